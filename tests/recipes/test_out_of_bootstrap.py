"""Runs that are trained on a bootstrap sample and measured on what it leaves."""

import flax.linen as nn
import jax
import numpy as np
import pytest
from cases import mostly_slow

import vmapseeds as vs
from vmapseeds.data.splits import out_of_bootstrap
from vmapseeds.errors import UserError


@pytest.mark.parametrize(
  ("n", "size", "trained", "held_out"),
  mostly_slow([(10, 4, 4, 3), (3, 1, 1, 1), (11, 4, 4, 3), (12, None, 8, 2)]),
)
def test_validation_and_test_examples_share_what_is_left(n, size, trained, held_out):
  split = out_of_bootstrap(jax.random.key(3), n, size)
  train, valid, test = (set(np.asarray(part).tolist()) for part in split)
  assert [len(part) for part in split] == [trained, held_out, held_out]
  assert not train & valid
  assert not train & test
  assert not valid & test
  assert train | valid | test <= set(range(n))


def test_one_example_is_the_least_to_train_on():
  runs = vs.Runs.independent(2)
  assert runs.out_of_bootstrap(1).sampling[1] == 1
  with pytest.raises(UserError, match="training examples"):
    runs.out_of_bootstrap(0)


@pytest.mark.slow
def test_what_runs_of_a_bootstrap_make_of_other_training_examples_is_kept(tmp_path):
  """Against each network, applied by hand to the examples that its run did not draw."""
  rng = np.random.default_rng(0)
  x = rng.normal(size=(30, 3)).astype(np.float32)
  y = rng.integers(2, size=30)
  recipe = vs.Recipe(
    name="bag",
    dataset=vs.Dataset(train=(x[:20], y[:20]), test=(x[20:], y[20:])),
    model=nn.Dense,
    model_args={"features": 2},
    epochs=2,
    batch_size=10,
    lr=0.1,
    normalize=False,
  )
  runs = vs.Runs.independent(4).bootstrap()
  folder = tmp_path / "a"
  how = dict(progress=False, lane_width=2, lowering="sequential")
  vs.train(recipe, runs, folder, logits=True, keep_params=True, **how)
  assert vs.open_results(folder).sizes["example"] == 10
  results = vs.open_results(folder, "held_out")
  networks = vs.load_networks(folder)
  logits = np.asarray(jax.vmap(networks.apply, (0, None))(networks.variables, x[:20]))
  for run, drawn in enumerate(vs.training_examples(folder)):
    mask = ~np.isin(np.arange(20), drawn)
    np.testing.assert_array_equal(results["mask"].values[run], mask)
    np.testing.assert_allclose(
      results.logits.values[run][mask], logits[run][mask], 1e-4
    )
    assert np.isnan(results.logits.values[run][~mask]).all()
    assert np.isnan(results.losses.values[run][~mask]).all()
    due = np.where(mask, logits[run].argmax(1), -1)
    np.testing.assert_array_equal(results.predictions.values[run], due)
  together = vs.held_out(folder)
  np.testing.assert_array_equal(together.runs, results["mask"].values.sum(0))
  wrong = (results.predictions.values != y[:20]) & results["mask"].values
  some = together.runs.values > 0
  rate = wrong.sum(0)[some] / together.runs.values[some]
  np.testing.assert_allclose(together.error_rate.values[some], rate)
  (summary,) = vs.report(folder)
  assert summary["output"] == "predictions"

  vs.train(recipe, runs, tmp_path / "b", predictions="none", **how)
  with pytest.raises(UserError, match="these runs hold no examples out"):
    vs.held_out(tmp_path / "b")
