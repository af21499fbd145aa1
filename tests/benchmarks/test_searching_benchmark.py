"""The race of searches: every contender trains what it says."""

import os

import jax
import pytest

import vmapseeds as vs
from experiments.benchmarks import searching
from vmapseeds.errors import UserError
from vmapseeds.searches.trials import read_trials

RECIPE = vs.recipe("digits_cnn", epochs=2)


@pytest.mark.slow
def test_single_trials_are_the_campaigns(tmp_path):
  place = tmp_path / "searches"
  vs.search(RECIPE, searching.OVER, trials=2, searches=2, sampler="random", out=place)
  trials = read_trials(place)
  assert {*trials.search} == {0, 1}
  for i, search in enumerate(trials.search):
    values = {name: of[i] for name, of in trials.values.items()}
    accuracy, epochs = searching.jax_trial(RECIPE, int(search))(values)
    assert epochs == 2
    assert accuracy == pytest.approx(trials.objective[i], abs=0.01)


@pytest.mark.slow
def test_trials_in_torch_learn_and_stop():
  pytest.importorskip("torch")
  trial = searching.torch_trial(RECIPE, 0)
  values = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.0}
  seen = []
  accuracy, epochs = trial(values, lambda *given: seen.append(given))
  assert epochs == 2
  assert accuracy > 0.85
  assert [epoch for epoch, _ in seen] == [1, 2]
  assert seen[1][1] == accuracy
  assert trial(values, lambda epoch, _: epoch == 1)[1] == 1
  still, _ = trial(values | {"lr": 0.0})
  assert still < 0.3


@pytest.mark.parametrize("rungs", [(), (1, 4)])
def test_plain_search_counts_epochs_and_finds_the_best(rungs, monkeypatch):
  told = []

  def made(recipe, search):
    def trial(values, stop=None):
      for epoch in range(1, recipe.epochs + 1):
        if stop and stop(epoch, values["momentum"]):
          break
      told.append((values["momentum"], epoch))
      return values["momentum"], epoch

    return trial

  monkeypatch.setitem(searching.TRIALS, "JAX", made)
  monkeypatch.setattr(os, "sched_setaffinity", lambda *given: None)
  monkeypatch.setattr(jax.config, "update", lambda *given: None)
  found = searching.run_optuna("JAX", RECIPE.replace(epochs=16), 0, 12, 0, rungs)
  _, *trained = told  # the first compiles
  assert found.trials == len(trained) == 12
  assert found.epochs == sum(epochs for _, epochs in trained)
  assert {epochs for _, epochs in trained} <= {*rungs, 16}
  assert (found.epochs < 12 * 16) == bool(rungs)
  assert found.best == [max(value for value, epochs in trained if epochs == 16)]


def test_rungs_are_multiples():
  assert searching.factor_of((1, 4), 16) == 4
  for rungs in ((1, 4), (2, 3), (8,)):
    with pytest.raises(UserError, match="the same whole number of times"):
      searching.factor_of(rungs, 8)
