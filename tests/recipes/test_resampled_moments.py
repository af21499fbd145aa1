"""What is learnt from data before training is learnt of each run's own training examples,
where runs have some.
"""

import html
import json

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest
from cases import mostly_slow

import vmapseeds as vs
from vmapseeds.reports.summaries import summarize
from vmapseeds.results.kept_networks import StoredNetworks
from vmapseeds.training.moments import InputMoments, centre
from vmapseeds.training.outputs import Keep
from vmapseeds.training.supervised import load_recipe_task

HOW = dict(progress=False, lane_width=2, lowering="sequential")
RNG = np.random.default_rng(0)


class Identity(nn.Module):
  """The first input as it arrives. Its parameter is multiplied by 0."""

  @nn.compact
  def __call__(self, x):
    return x[..., 0] + 0 * self.param("unused", nn.initializers.zeros, ())


def outlier(n=120):
  """Inputs that are 0, but the last one, and whether they are above 0 as targets."""
  x = np.zeros((n, 1), np.float32)
  x[-1] = 1e6
  return x, np.zeros(n, np.float32)


def identity_recipe(data, **more):
  return vs.Recipe(
    name="identity",
    dataset=data,
    model=Identity,
    epochs=0,
    batch_size=2,
    lr=0.1,
    loss="squared_error",
    predict="outputs",
    **more,
  )


def seen(folder):
  """Return what each run's network makes of the inputs of the test set."""
  return vs.open_results(folder).predictions.values


FAR = 1.7e9 + 60 * np.random.default_rng(1).normal(size=(40, 1))


@pytest.mark.parametrize(
  "inputs",
  mostly_slow(
    [
      np.concatenate([FAR, RNG.normal(size=(40, 1))], axis=1),
      1e-30 * RNG.normal(size=(40, 1)),
      np.round(FAR).astype(np.int64),
      np.round(FAR - 1.6e9).astype(np.int32),
      1e8 + RNG.normal(size=(40, 1)),
    ],
    fast=2,
  ),
)
def test_inputs_far_from_0_keep_their_digits(inputs, tmp_path):
  targets = np.zeros(40, np.float32)
  data = vs.Dataset(train=(inputs[:30], targets[:30]), test=(inputs, targets))
  vs.train(identity_recipe(data), 2, tmp_path / "all", keep_params=True, **HOW)
  x = inputs[:, 0].astype(np.float64)
  due = (x - x[:30].mean()) / x[:30].std()
  np.testing.assert_allclose(seen(tmp_path / "all")[0], due, atol=1e-6)
  networks = vs.load_networks(tmp_path / "all", 0)
  found = networks.apply(networks.variables, inputs)
  np.testing.assert_allclose(found, due, atol=1e-6)

  some = np.arange(10, 25)
  runs = vs.Runs.independent(2).subset(some)
  vs.train(identity_recipe(data), runs, tmp_path / "own", keep_params=True, **HOW)
  due = (x - x[some].mean()) / x[some].std()
  np.testing.assert_allclose(seen(tmp_path / "own")[0], due, atol=1e-6)
  networks = vs.load_networks(tmp_path / "own", 0)
  found = networks.apply(networks.variables, inputs)
  np.testing.assert_allclose(found, due, atol=1e-6)


def test_inputs_that_vary_too_little_for_float32_are_not_called_constant(tmp_path):
  x, y = 1e-38 * RNG.normal(size=(40, 1)), np.zeros(40, np.float32)
  data = vs.Dataset(train=(x, y), test=(x, y))
  with pytest.raises(vs.UserError, match=r"too small for float32, .*: scale it up"):
    vs.train(identity_recipe(data), 2, tmp_path / "a", **HOW)
  data = vs.Dataset(train=(0 * x + 0.1, y), test=(x, y))
  with pytest.raises(vs.UserError, match="a channel of arrays is constant"):
    vs.train(identity_recipe(data), 2, tmp_path / "a", **HOW)


@pytest.mark.parametrize(
  "choose",
  mostly_slow(
    [
      lambda runs: runs.subset(np.stack([np.arange(119), np.arange(1, 120)])),
      lambda runs: runs.subset(60),
      lambda runs: runs.bootstrap(),
    ]
  ),
)
def test_inputs_are_normalised_by_a_runs_own_examples(choose, tmp_path):
  x, y = outlier()
  # The examples differ, so that moments do.
  x[:119, 0] = RNG.normal(3, 2, 119)
  recipe = identity_recipe(vs.Dataset(train=(x, y), test=(x[:7], y[:7])))
  runs = choose(vs.Runs.independent(2))
  vs.train(recipe, runs, tmp_path / "a", **HOW)
  found = seen(tmp_path / "a")
  for run, examples in enumerate(runs.training_examples(120)):
    own = x[examples].astype(np.float64)
    due = (x[:7, 0] - own.mean()) / own.std()
    np.testing.assert_allclose(found[run], due, rtol=2e-5, atol=1e-5)


def test_an_outlier_that_is_held_out_scales_nothing(tmp_path):
  """With it the standard deviation is 91,000; without it inputs are constant, and not
  scaled.
  """
  x, y = outlier()
  held_out = np.array([[0.0], [1e6], [2.0]], np.float32)
  data = vs.Dataset(train=(x, y), test=(held_out, y[:3]))
  rows = np.stack([np.arange(119), np.arange(1, 120)])
  runs = vs.Runs.independent(2).subset(rows)
  vs.train(identity_recipe(data), runs, tmp_path / "a", **HOW)
  without, with_it = seen(tmp_path / "a")
  np.testing.assert_array_equal(without, [0, 1e6, 2])
  own = x[rows[1]].astype(np.float64)
  np.testing.assert_allclose(
    with_it, (held_out[:, 0] - own.mean()) / own.std(), rtol=1e-5
  )


@pytest.mark.slow
def test_held_out_examples_of_a_bootstrap_are_normalised_without_them(tmp_path):
  """The loss of the identity on them is the mean square of what arrives."""
  x, y = outlier(36)
  x[:-1, 0] = RNG.normal(0, 1, 35)
  data = vs.Dataset(train=(x[:30], y[:30]), test=(x[30:], y[30:]))
  runs = vs.Runs.independent(8).out_of_bootstrap()
  vs.train(identity_recipe(data), runs, tmp_path / "a", **HOW)
  found = vs.open_results(tmp_path / "a")
  splits = runs.split_examples(36)
  for what in ("valid", "test"):
    for run in range(8):
      own = x[splits["subset"][run]].astype(np.float64)
      arrived = (x[splits[f"{what}_examples"][run]] - own.mean()) / own.std()
      assert found[f"{what}_loss"].values[run] == pytest.approx(
        (arrived**2).mean(), rel=1e-4
      )


@pytest.mark.parametrize(
  ("shape", "dtype"),
  [((20,), np.float32), ((20, 3), np.float32), ((20, 4, 5, 3), np.uint8)],
)
def test_moments_of_runs_are_those_of_numpy(shape, dtype, monkeypatch):
  monkeypatch.setattr("vmapseeds.training.moments.PART", 64)
  x = RNG.normal(100, 20, shape).astype(dtype)
  data = vs.Dataset(train=(x, np.arange(20) / 20), test=(x, np.arange(20) / 20))
  recipe = identity_recipe(data)
  examples = np.stack([RNG.integers(0, 20, 9), np.arange(9), np.arange(9)])
  found = InputMoments.of(recipe, centre(recipe, data)).of_runs(examples)
  axes = tuple(range(max(1, len(shape) - 1)))
  for run, row in enumerate(examples):
    own = x[row].astype(np.float64)
    np.testing.assert_allclose(found["input_mean"][run], own.mean(axes), rtol=1e-6)
    np.testing.assert_allclose(found["input_std"][run], own.std(axes), rtol=1e-6)


def test_a_constant_channel_is_exactly_constant():
  """Sums of 0.1 are rounded; its standard deviation is 0 all the same, and taken as 1."""
  x = np.full((50, 2), 0.1, np.float32)
  x[0] = 3
  data = vs.Dataset(train=(x, x[:, 0]), test=(x, x[:, 0]))
  found = InputMoments.of(
    identity_recipe(data), centre(identity_recipe(data), data)
  ).of_runs(np.arange(1, 50)[None])
  np.testing.assert_array_equal(found["input_std"], np.ones((1, 2)))
  np.testing.assert_array_equal(found["input_mean"], x[1:2])


def test_a_given_moment_is_that_of_every_run():
  x = RNG.normal(size=(20, 2)).astype(np.float32)
  data = vs.Dataset(train=(x, x[:, 0]), test=(x, x[:, 0]))
  recipe = identity_recipe(data, mean=(1, 2))
  found = InputMoments.of(recipe, centre(recipe, data)).of_runs(np.arange(10)[None])
  np.testing.assert_array_equal(found["input_mean"], [[1, 2]])
  np.testing.assert_allclose(found["input_std"], x[:10].std(0)[None], rtol=1e-6)


def task_of(runs, **more):
  x = RNG.normal(size=(20, 2)).astype(np.float32)
  data = vs.Dataset(train=(x, x[:, 0]), test=(x, x[:, 0]))
  return load_recipe_task(identity_recipe(data, **more), runs, Keep())


@pytest.mark.slow
def test_results_say_whose_moments_they_are(tmp_path):
  x, y = outlier()
  x[:, 0] += np.arange(120)
  data = vs.Dataset(train=(x, y), test=(x[:7], y[:7]))
  runs = vs.Runs.independent(2)
  for folder, recipe, table, whose in (
    ("shared", identity_recipe(data), runs, "the training set"),
    (
      "own",
      identity_recipe(data),
      runs.bootstrap(),
      "each run's own training examples",
    ),
    ("given", identity_recipe(data, mean=(0,), std=(1,)), runs.bootstrap(), "given"),
    ("none", identity_recipe(data, normalize=False), runs.bootstrap(), None),
  ):
    vs.train(recipe, table, tmp_path / folder, **HOW)
    attrs = vs.open_results(tmp_path / folder).attrs
    assert attrs.get("normalized_by") == whose, folder
    summary = summarize(vs.open_results(tmp_path / folder))
    assert summary["normalized_by"] == whose


@pytest.mark.slow
def test_the_page_says_whose_moments_they_are(tmp_path):
  x, y = outlier(10)
  x[:, 0] += np.arange(10)
  data = vs.Dataset(train=(x, y), test=(x, y))
  runs = vs.Runs.independent(2).bootstrap()
  vs.train(identity_recipe(data), runs, tmp_path / "own", **HOW)
  vs.report(tmp_path / "own").save()
  page = (tmp_path / "own" / "report" / "report.html").read_text()
  assert "each run's own training examples" in html.unescape(page)


def first_mean(variables, data, run):
  """Start from the mean of the training examples."""
  return {"params": {"unused": jnp.mean(data.inputs) * len(data.inputs)}}


@pytest.mark.slow
def test_initialize_gets_the_runs_own_examples(tmp_path):
  x, y = outlier(10)
  x[:, 0] = np.arange(10)
  data = vs.Dataset(train=(x, y), test=(x, y))
  rows = np.array([[0, 1, 2], [7, 8, 9]])
  recipe = identity_recipe(data, initialize=first_mean)
  runs = vs.Runs.independent(2).subset(rows)
  vs.train(recipe, runs, tmp_path / "a", keep_params=True, **HOW)
  found = vs.load_networks(tmp_path / "a")
  np.testing.assert_allclose(found.variables["params"]["unused"], [3, 24])
  # Kept networks normalise as their run did, alone and side by side.
  np.testing.assert_allclose(
    vs.load_networks(tmp_path / "a", 1).apply(
      vs.load_networks(tmp_path / "a", 1).variables, x
    ),
    (x[:, 0] - 8) / np.std([7, 8, 9]),
    rtol=1e-5,
  )


@pytest.mark.slow
def test_runs_start_from_networks_with_moments_of_their_own(tmp_path):
  x, y = outlier(10)
  x[:, 0] = np.arange(10)
  data = vs.Dataset(train=(x, y), test=(x, y))
  runs = vs.Runs.independent(2).subset(np.array([[0, 1, 2], [7, 8, 9]]))
  recipe = identity_recipe(data, initialize=first_mean)
  vs.train(recipe, runs, tmp_path / "a", keep_params=True, **HOW)
  assert "input_moments.mean" in StoredNetworks(str(tmp_path / "a")).shapes
  again = identity_recipe(data, start_from=str(tmp_path / "a"))
  vs.train(again, runs, tmp_path / "b", keep_params=True, **HOW)
  found = vs.load_networks(tmp_path / "b").variables["params"]["unused"]
  np.testing.assert_allclose(found, [3, 24])


def test_shared_examples_have_shared_moments():
  """No bit of the tasks of such runs changes: the entries of a run are what they were."""
  task = task_of(vs.Runs.independent(2))
  assert [*task.internal.derive(vs.Runs.independent(2))] == []
  assert task.internal.conditions["normalized_by"] == "the training set"
  assert json.dumps(task.internal.conditions)
