"""Jordan's figures 6 to 12: their numbers against loops, and what their runs vary."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

import vmapseeds as vs
from experiments import measures
from experiments.jordan2024 import (
  fig06,
  fig07,
  fig08,
  fig09,
  fig10,
  fig11,
  fig12,
  poking,
)
from vmapseeds import stats
from vmapseeds.training.optimizers import make_optimizer
from vmapseeds.training.recipe_runs import recipe_lanes


def draw(seed: int, *shape: int, rate: float = 0.3) -> np.ndarray:
  return np.random.default_rng(seed).random(shape) < rate


def by_quantity(numbers: dict) -> dict[str, dict]:
  return {row["quantity"]: row for row in numbers["rows"]}


# Figure 6.


def test_there_are_511_ways_to_split_ten_classes():
  maps = fig06.label_maps()
  assert maps.shape == (511, 10)
  # A split and its complement count once: no map equals another or another's
  # complement. Each has two groups.
  assert len({tuple(m) for m in maps} | {tuple(1 - m) for m in maps}) == 1022
  assert set(maps.ravel()) == {0, 1}
  assert (maps.max(1) == 1).all()


def test_binary_tasks_equal_loops():
  errors = [draw(seed, 5, 60, rate=0.05 * seed) for seed in range(1, 8)]
  tasks = fig06.tasks_of([*errors, draw(9, 1, 60)])  # one run is too few
  assert len(tasks.error) == 7
  rows = by_quantity(fig06.measure(tasks))
  observed = np.array([x.mean(1).var(ddof=1) for x in errors])
  error = np.array([x.mean() for x in errors])
  for x, independent, distribution in zip(
    errors, tasks.independent, tasks.distribution, strict=True
  ):
    covariance = np.cov(x.T)
    off = covariance.sum() - np.trace(covariance)
    assert independent == pytest.approx(np.trace(covariance) / 60**2)
    assert distribution == pytest.approx(off / (60 * 59))
  equation_6, binomial = error / 120, error * (1 - error) / 60
  theorem_3 = np.maximum(0, equation_6 + (1 - 1 / 60) * tasks.distribution)
  for name, predicted in {
    "equation 6": equation_6,
    "binomial": binomial,
    "theorem 3, with the genuine variance": theorem_3,
  }.items():
    r = np.corrcoef(observed, predicted)[0, 1]
    assert rows[f"R², {name}"]["value"] == pytest.approx(r**2)
    sd, of = observed**0.5, predicted**0.5
    fit = 1 - ((sd - of) ** 2).sum() / ((sd - sd.mean()) ** 2).sum()
    quantity = f"R² about y = x, on standard deviations, {name}"
    assert rows[quantity]["value"] == pytest.approx(fit)
  ratio = rows["mean variance of the binary tasks over equation 6's"]
  assert ratio["value"] == pytest.approx(observed.sum() / equation_6.sum())
  assert ratio["low"] < ratio["value"] < ratio["high"]


@pytest.mark.parametrize(
  ("runs", "r_squared"), [(100, 0.86), (1000, 0.985), (4000, 0.996)]
)
def test_the_most_that_runs_allow(runs, r_squared):
  """The expected values are those of errors of 2 to 9 %."""
  error = np.linspace(0.02, 0.09, 511)
  predicted = measures.calibration_variance(error, 10_000)
  most = fig06.most_that_runs_allow(predicted, np.full(511, runs))["r_squared"]
  assert most.value == pytest.approx(r_squared, abs=0.015 * (1 - r_squared) / 0.14)
  assert most.low < most.value < most.high


def test_equation_6_fits_errors_that_are_calibrated_and_independent():
  """Each example has a share q: runs predict 1, and its label is 1, independently with
  probability q.
  """
  rng = np.random.default_rng(2)
  tasks, n, runs = 40, 400, 200
  share = rng.uniform(0, 1, (tasks, n)) * np.linspace(0.1, 1, tasks)[:, None]
  label = rng.random((tasks, n)) < share
  errors = (rng.random((runs, tasks, n)) < share) != label
  rows = by_quantity(fig06.measure(fig06.tasks_of([*errors.transpose(1, 0, 2)])))
  most = rows["R², the most that so many runs allow"]["value"]
  assert rows["R², equation 6"]["value"] == pytest.approx(most, abs=0.1)
  apart = "R² about y = x, equation 6, to what independent errors give"
  assert rows[apart]["value"] > 0.9
  ratio = rows["mean variance of the binary tasks over equation 6's"]
  assert ratio["low"] < 1 < ratio["high"]


# Figure 7.


def test_ensembles_of_two_configurations():
  rng = np.random.default_rng(8)
  labels = rng.integers(0, 3, 90)
  without, fifth = (
    np.where(rng.random((runs, 90)) < 0.6, labels, rng.integers(0, 3, (runs, 90)))
    for runs in (7, 5)
  )
  n = fig07.compare(without, fifth, labels)
  votes = [
    [np.bincount(column, minlength=3).argmax() for column in p.T]
    for p in (without, fifth)
  ]
  right = [np.array(v) == labels for v in votes]
  assert n["votes"] == pytest.approx([r.mean() for r in right])
  of_runs = [(p == labels).mean(0) for p in (without, fifth)]
  gains = right[0] - of_runs[0] - right[1] + of_runs[1]
  gain, se = n["gain"]
  assert gain == pytest.approx(
    right[0].mean()
    - (without == labels).mean()
    - right[1].mean()
    + (fifth == labels).mean()
  )
  assert se == pytest.approx(gains.std(ddof=1) / 90**0.5)
  variances = [(p == labels).mean(1).var(ddof=1) for p in (without, fifth)]
  numbers = fig07.measure(draw(3, 9, 20).mean(1), n, {})
  ratio = by_quantity(numbers)["variance without augmentation over with a fifth"]
  assert ratio["value"] == pytest.approx(variances[0] / variances[1])


def test_halves_of_finetuned_runs():
  errors = draw(0, 20, 61)
  n = fig07.finetuned(errors)
  validation, test = 1 - errors[:, ::2].mean(1), 1 - errors[:, 1::2].mean(1)
  assert n["correlation"][0] == pytest.approx(np.corrcoef(validation, test)[0, 1])
  cut = np.sort(validation)[-3]  # of 20 runs 15 % are three
  assert (validation >= cut).sum() == 3
  assert n["gain"][0] == pytest.approx(test[validation >= cut].mean() - test.mean())


def test_the_last_layer_of_a_finetuned_network_is_new():
  both = zip(fig07.FIRST, fig07.OTHERS, strict=True)
  assert all((a == -1) != (b == -1) for a, b in both)  # no class is in both
  assert max(fig07.FIRST) != max(fig07.OTHERS)  # so the last layer does not fit


# Figure 8.


def test_learning_rates():
  errors = {0.25: draw(1, 5, 40), 0.5: draw(2, 4, 40, rate=0.2), 1.0: draw(3, 2, 40)}
  n = fig08.measure(errors, 4)
  assert [at["rate"] for at in n["rates"]] == [0.25, 0.5]  # two runs are too few
  rows = by_quantity(n)
  assert rows["best learning rate"]["value"] == 0.5
  assert rows["runs that diverged, left out"]["value"] == 4
  covariance = np.cov(errors[0.5].T)
  over = rows["variance over that of independent errors at the best learning rate"]
  assert over["value"] == pytest.approx(covariance.sum() / np.trace(covariance))
  mean = rows["mean accuracy at the best"]["value"]
  assert mean == pytest.approx(100 * (1 - errors[0.5].mean()))


def test_what_holds_of_learning_rates():
  """Runs vary 1.15 times as much at learning rate 1.0 as at 0.5, the best rate."""
  rng, runs, n = np.random.default_rng(3), 2000, 1000
  levels = {0.25: (0.2, 0), 0.5: (0.1, 0), 1.0: (0.12, 0.0065), 1.5: (0.3, 0.1)}
  errors = {
    rate: rng.random((runs, n)) < level + moved * rng.uniform(-1, 1, (runs, 1))
    for rate, (level, moved) in levels.items()
  }
  rows = by_quantity(fig08.measure(errors, 0))
  over = "variance over that of independent errors"
  best = rows[f"{over} at the best learning rate"]
  assert 1 / 1.2 < best["low"] < best["value"] < best["high"] < 1.2
  twice = "sd of accuracy at twice the best learning rate over that at the best"
  sds = [errors[rate].mean(1).std(ddof=1) for rate in (0.5, 1.0)]
  assert rows[twice]["value"] == pytest.approx(sds[1] / sds[0])
  assert 1.07 < rows[twice]["low"] < rows[twice]["high"] < 1.21
  assert rows[f"{over} well above the best learning rate, 1.5"]["low"] > 1
  del errors[1.0], errors[1.5]
  assert not [name for name in by_quantity(fig08.measure(errors, 0)) if "twice" in name]


# Figure 10.


def test_sources():
  """After 1 epoch one source alone gives two thirds of the variance of all, after 64 half
  of it.
  """
  rng = np.random.default_rng(13)

  def accuracies(share: float) -> np.ndarray:
    return rng.normal(0.6, share**0.5, 2000)

  found = {
    e: {"all": accuracies(1), "init": accuracies(share)}
    for e, share in ((1, 2 / 3), (64, 0.5))
  }
  rows = by_quantity(fig10.measure(found))
  for epochs, share in ((1, 2 / 3), (64, 0.5)):
    ratio = rows[f"variance, init alone over all, {epochs} epochs"]
    a, b = (found[epochs][source].var(ddof=1) for source in ("init", "all"))
    assert ratio["value"] == pytest.approx(a / b)
    assert 0.8 * share < ratio["low"] < ratio["value"] < ratio["high"] < 1.25 * share
  sd = rows["sd of accuracy, varying init, 1 epochs"]["value"]
  assert sd == pytest.approx(100 * found[1]["init"].std(ddof=1))


# Figure 11.


def test_disagreement_of_pairs():
  unpoked = np.random.default_rng(6).integers(0, 3, (6, 80))
  poked, later = (
    np.where(draw(7, 6, 80, rate=rate), (unpoked + 1) % 3, unpoked)
    for rate in (0.1, 0.05)
  )
  start = {"2 epochs": (unpoked, poked)}
  at = {"0": (unpoked, poked), "4": (unpoked, later)}
  n = fig11.measure(start, at, {"other": (unpoked, later)})
  pairs, of_later = ((unpoked != x).mean(1) for x in (poked, later))
  np.testing.assert_allclose(n["at_start"]["2 epochs"]["matched"], pairs)
  distinct = np.mean(
    [(unpoked[a] != unpoked[b]).mean() for a in range(6) for b in range(a)]
  )
  rows = by_quantity(n)
  differ = "predictions that differ"
  expected = {
    f"{differ}, one poked, 2 epochs": 100 * pairs.mean(),
    f"{differ}, distinct seeds, 2 epochs": 100 * distinct,
    "one poked over distinct seeds, 2 epochs": pairs.mean() / distinct,
    f"{differ}, poked after 4/8 of 2 epochs": 100 * of_later.mean(),
    f"{differ}, poked first less poked last": 100 * (pairs - of_later).mean(),
    f"{differ}, other, over one poked": of_later.mean() / pairs.mean(),
  }
  for name, value in expected.items():
    assert rows[name]["value"] == pytest.approx(value), name
    assert rows[name]["low"] < value < rows[name]["high"]


def test_a_poke_changes_one_weight():
  params = {
    "Conv_0": {"bias": jnp.zeros(3), "kernel": jnp.ones((3, 3, 1, 3))},
    "Dense_0": {"kernel": jnp.ones((4, 2))},
    "Dense_1": {"kernel": jnp.ones((2, 2))},
  }

  def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])

  @jax.jit
  def poke(key):
    place = poking.poke_place(params, key)
    return poking.poke_weight(params, place, jnp.float32(1.5))

  places = set()
  for seed in range(300):
    changed = flat(poke(jax.random.key(seed)))
    differs = changed != flat(params)
    assert differs.sum() == 1
    places.add(int(np.argmax(differs)))
  assert places == set(range(3, 3 + 27 + 8 + 4)), (
    "every weight and no bias is poked now and then"
  )


POKED_INPUTS = np.random.default_rng(0).normal(size=(24, 6)).astype(np.float32)
POKED_LABELS = (np.arange(24) % 3).astype(np.int32)
POKED_RECIPE = vs.Recipe(
  name="poked",
  dataset=vs.Dataset(
    train=(POKED_INPUTS, POKED_LABELS), test=(POKED_INPUTS, POKED_LABELS)
  ),
  model="linear",
  epochs=1,
  batch_size=6,
  lr=0.0,
  momentum=0.0,
  schedule="constant",
  normalize=False,
)


def train_layers(folder, recipe, runs) -> dict[str, np.ndarray]:
  """Return the trained kernels and biases of a linear network, runs first."""
  vs.train(recipe, runs, folder, keep_params=True, progress=False)
  return vs.load_networks(folder).variables["params"]["Dense_0"]


def test_poke_happens_at_its_step(tmp_path):
  """At learning rate 0 a poke within the four steps stays as it is. The init seed alone
  chooses the weight.
  """
  runs = vs.Runs.concat([vs.Runs.vary("init", 3), vs.Runs.vary("order", 2, start=5)])
  unchanged = train_layers(tmp_path / "unchanged", POKED_RECIPE, runs)["kernel"]
  changed = {}
  for step in (0, 3, 4):
    recipe = poking.poked(POKED_RECIPE, step, factor=2.0)
    changed[step] = train_layers(tmp_path / str(step), recipe, runs)["kernel"]
  differs = (changed[0] != unchanged).reshape(5, -1)
  assert differs.sum(1).tolist() == [1] * 5
  np.testing.assert_array_equal(
    changed[0].reshape(5, -1)[differs], 2 * unchanged.reshape(5, -1)[differs]
  )
  np.testing.assert_array_equal(changed[3], changed[0])
  np.testing.assert_array_equal(changed[4], unchanged)
  places = differs.argmax(1).tolist()
  assert len(set(places[:3])) == 3
  # The runs that vary the order have the init seed 0.
  assert places[3:] == [places[0]] * 2


def test_training_goes_on_from_the_poked_weight(tmp_path):
  """Beside a loop of gradient descent on all examples."""
  steps, poke_step, factor, lr = 3, 1, 5.0, 0.5
  runs = vs.Runs.independent(2)
  still = POKED_RECIPE.replace(epochs=steps, batch_size=len(POKED_INPUTS))
  initial = train_layers(tmp_path / "initial", still, runs)
  still_poked = poking.poked(still, poke_step, factor)
  moved = train_layers(tmp_path / "moved", still_poked, runs)["kernel"]
  recipe = poking.poked(still.replace(lr=lr), poke_step, factor)
  trained = train_layers(tmp_path / "trained", recipe, runs)

  one_hot = np.eye(3)[POKED_LABELS]
  for run in range(len(runs)):
    kernel = np.array(initial["kernel"][run], np.float64)
    bias = np.array(initial["bias"][run], np.float64)
    changes = moved[run] != initial["kernel"][run]
    for step in range(steps):
      if step == poke_step:
        kernel[changes] *= factor
      excess = scipy.special.softmax(POKED_INPUTS @ kernel + bias, axis=1) - one_hot
      kernel -= lr * POKED_INPUTS.T @ excess / len(excess)
      bias -= lr * excess.mean(0)
    np.testing.assert_allclose(trained["kernel"][run], kernel, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(trained["bias"][run], bias, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_another_first_step(which, nesterov):
  """Against the recipe's own optimizer, given the other first gradient."""
  name = "nesterov" if nesterov else "sgd"
  recipe = vs.recipe("digits_cnn", epochs=2, optimizer=name)
  swept = vs.Runs.sweep(first_step=[which], seeds=1)
  run = recipe_lanes(recipe.replace(values={"first_step": 0.0}), swept, 1000)
  run = type(run)({}, {name: column[0] for name, column in run.values.items()})
  gradients = [
    jnp.array([0.1, -3e-9, 2.0]),
    jnp.array([0.3, 0.2, 0.1]),
    jnp.array([-1.0, 0.0, 0.5]),
  ]
  expected = [
    np.float32([0.1, -3e-9, 2.0]),
    np.float16([0.1, -3e-9, 2.0]).astype(np.float32),
    np.zeros(3, np.float32),
  ]
  parameters = jnp.array([1.0, -2.0, 0.5])
  optimizers = (
    poking.other_first_step(run, 10, nesterov),
    make_optimizer(recipe, run, 10),
  )
  states = [optimizer.init(parameters) for optimizer in optimizers]
  for step, gradient in enumerate(gradients):
    ours, states[0] = optimizers[0].update(gradient, states[0], parameters)
    theirs, states[1] = optimizers[1].update(
      expected[which] if step == 0 else gradient, states[1], parameters
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


# Figures 9 and 12.


def test_shifted_test_sets_are_compared_with_the_first():
  """A test set on which runs differ by chance, and one on which some runs are better."""
  rng = np.random.default_rng(10)
  levels = {"test": np.full(200, 0.1), "blur": rng.uniform(0.2, 0.4, 200)}
  errors = {name: rng.random((200, 2000)) < p[:, None] for name, p in levels.items()}
  n = fig09.measure(errors)
  rows = by_quantity(n)
  of_blur = rows["sd on the distribution, blur"]
  assert of_blur["value"] == pytest.approx(100 * 0.2 / 12**0.5, rel=0.1)
  less = rows["variance on the distribution, less that of test, blur"]
  variances = [x.mean(1).var(ddof=1) for x in errors.values()]
  independent = [stats.independent_errors_variance(x) for x in errors.values()]
  apart = np.subtract(variances, independent)
  assert less["value"] == pytest.approx(1e4 * (apart[1] - apart[0]))
  assert less["low"] > 0
  assert rows["sd on the distribution, test"]["value"] < 1 < of_blur["low"]
  assert fig09.draw(n).axes


def test_correlations_are_scipys():
  rng = np.random.default_rng(11)
  common = rng.uniform(0.2, 0.8, (50, 1))
  levels = {"test": 0.5, "blur": common, "noise": common}
  errors = {name: rng.random((50, 401)) < level for name, level in levels.items()}
  rows = by_quantity(fig12.measure(errors))
  significant = 0
  for first, second in (("test", "blur"), ("test", "noise"), ("blur", "noise")):
    even, odd = errors[first][:, ::2].mean(1), errors[second][:, 1::2].mean(1)
    expected = scipy.stats.pearsonr(even, odd)
    found = rows[f"correlation on {first} and {second}"]
    assert found["value"] == pytest.approx(expected.statistic)
    assert found["low"] < found["value"] < found["high"]
    significant += expected.pvalue < 0.05
  assert rows["pairs with p < 0.05, of 3"]["value"] == significant
