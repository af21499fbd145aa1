"""Losses that depend on the examples beside one, as Cox's partial likelihood does: against
the loss of a whole set, by a loop.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vmapseeds as vs
from vmapseeds.training.evaluation import depends_on_batch
from vmapseeds.training.recipe_data import dataset_of, put_sets_on_device

HOW = dict(progress=False, lane_width=2, lowering="sequential")
RNG = np.random.default_rng(0)
N = 61
X = RNG.normal(size=(N, 3)).astype(np.float32)
TIMES = RNG.exponential(size=N) + 0.1
EVENTS = RNG.random(N) < 0.7
Y = np.stack([TIMES, EVENTS], axis=1).astype(np.float32)


def cox(outputs, targets):
  """Negative log partial likelihood, an entry an example."""
  risk, time, event = outputs[:, 0], targets[:, 0], targets[:, 1]
  at_risk = time[None] >= time[:, None]
  total = jax.nn.logsumexp(jnp.where(at_risk, risk[None], -jnp.inf), axis=1)
  return event * (total - risk)


def absolute(outputs, targets):
  return jnp.abs(outputs[:, 0] - targets[:, 0])


def cox_by_a_loop(risk, targets):
  total = 0.0
  for i, (time, event) in enumerate(targets):
    if event:
      total += np.log(np.exp(risk[targets[:, 0] >= time]).sum()) - risk[i]
  return total / len(targets)


def recipe(**more):
  given = dict(
    name="survival",
    dataset=vs.Dataset(train=(X[:30], Y[:30]), test=(X[30:], Y[30:])),
    model=nn.Dense,
    model_args={"features": 1},
    loss=cox,
    predict="outputs",
    metrics=["concordance_index"],
    epochs=2,
    batch_size=15,
    eval_batch_size=7,
    lr=0.05,
    training_metrics=True,
  )
  return vs.Recipe(**(given | more))


@pytest.mark.parametrize(("loss", "due"), [(cox, True), (absolute, False)])
def test_it_is_found_before_training(loss, due):
  of = recipe(loss=loss)
  assert depends_on_batch(of, put_sets_on_device(of, dataset_of(of), None)[0]) is due


def test_built_in_losses_do_not():
  of = recipe(loss="squared_error")
  assert not depends_on_batch(of, put_sets_on_device(of, dataset_of(of), None)[0])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  folder = tmp_path_factory.mktemp("cox") / "a"
  vs.train(recipe(evaluate_every=1), 4, folder, keep_params=True, **HOW)
  return folder


def test_the_loss_is_that_of_the_whole_set(trained):
  results = vs.open_results(trained)
  networks = vs.load_networks(trained)
  train = np.asarray(jax.vmap(networks.apply, (0, None))(networks.variables, X[:30]))
  assert "losses" not in results
  assert results.loss.attrs["role"] == "score"
  assert not results.loss.attrs["higher_is_better"]
  for run in range(4):
    risk = results.predictions.values[run, :, 0].astype(float)
    due = cox_by_a_loop(risk, Y[30:])
    assert results.loss.values[run] == pytest.approx(due, rel=1e-4)
    of_train = cox_by_a_loop(train[run, :, 0].astype(float), Y[:30])
    assert results.train_loss.values[run] == pytest.approx(of_train, rel=1e-4)
  np.testing.assert_array_equal(results.epoch_loss.values[:, -1], results.loss.values)


def test_a_report_says_why_there_is_no_variance_of_means(trained):
  (summary,) = vs.report(trained)
  sections = {section["output"]: section for section in (summary, *summary["further"])}
  assert {*sections} == {"loss", "concordance_index"}
  of_loss = sections["loss"]
  assert "distribution_variance" not in of_loss["statistics"]
  assert any("depends on those beside it" in text for text in of_loss["warnings"])
  assert not any("beside it" in t for t in sections["concordance_index"]["warnings"])


@pytest.mark.slow
def test_of_folds_it_is_that_of_each_fold(tmp_path, capsys):
  data = vs.Dataset(train=(X, Y))
  runs = vs.Runs.independent(2).k_fold(3)
  how = HOW | {"progress": True}
  vs.train(recipe(dataset=data, batch_size=10), runs, tmp_path / "a", **how)
  assert "the loss" in capsys.readouterr().err
  results = vs.open_results(tmp_path / "a")
  assert "losses" not in results
  for run in range(6):
    own = results["mask"].values[run]
    risk = results.predictions.values[run, own, 0].astype(float)
    due = cox_by_a_loop(risk, Y[own])
    assert results.test_loss.values[run] == pytest.approx(due, rel=1e-4)
  together = vs.held_out(tmp_path / "a")
  assert "mean_loss" not in together
  assert np.isfinite(together.prediction.values).all()
