"""The searches of the papers' campaigns: what is drawn, and which trial is best."""

import math

import numpy as np
import optuna
import pytest
import scipy.stats

import vmapseeds as vs
from experiments import searches
from experiments.searches import Range, Search

OVER = {"lr": Range(1e-3, 1, log=True), "momentum": Range(0.5, 0.99)}


def test_random_trials_are_uniform_on_their_scales():
  search = Search(OVER, trials=2000)
  drawn = searches.random_trials(search, 7)
  lr, momentum = (np.array([d[name] for d in drawn]) for name in OVER)
  for column in (1 + np.log10(lr) / 3, (momentum - 0.5) / 0.49):
    assert scipy.stats.kstest(column, "uniform").pvalue > 0.01
  # More trials change none of those before; another search draws others.
  assert searches.random_trials(search._replace(trials=3), 7) == drawn[:3]
  assert searches.random_trials(search._replace(trials=3), 8) != drawn[:3]


def test_a_noisy_grid_is_that_of_the_paper():
  n = 5
  search = Search({"a": Range(0, 10), "b": Range(1e-4, 1, log=True)}, n * n)
  grids = [searches.noisy_grid(search, seed) for seed in range(2000)]
  for grid in grids[:20]:
    points = {(p["a"], p["b"]) for p in grid}
    assert len(points) == n * n
    for name, spread in (("a", np.asarray), ("b", np.log)):
      axis = spread(sorted({p[name] for p in grid}))
      assert len(axis) == n
      np.testing.assert_allclose(np.diff(axis), axis[1] - axis[0], rtol=1e-9)
  delta = 10 / (n - 1)
  axes = np.array([sorted({p["a"] for p in grid}) for grid in grids])
  assert (abs(axes[:, 0]) <= delta / 2).all()
  assert (abs(axes[:, -1] - 10) <= delta / 2).all()
  # Appendix E.2: the expectation is the grid. The variance follows from two uniform ends.
  w = np.arange(n) / (n - 1)
  variance = delta**2 / 12 * ((1 - w) ** 2 + w**2)
  np.testing.assert_allclose(
    axes.mean(0), delta * np.arange(n), atol=4 * np.sqrt(variance.max() / len(grids))
  )
  np.testing.assert_allclose(axes.var(0), variance, rtol=0.1)
  logs = np.log([sorted({p["b"] for p in grid})[0] for grid in grids])
  low, reach = math.log(1e-4), math.log(1e4) / (n - 1) / 2
  assert scipy.stats.kstest((logs - low + reach) / (2 * reach), "uniform").pvalue > 0.01
  # The order is random: the first trial is any point.
  assert len({round(g[0]["a"] / delta) for g in grids[:100]}) == n


def test_the_best_so_far_is_the_first_of_the_best_that_did_not_fail():
  nan = np.nan
  objective = np.array(
    [[0.2, nan, 0.4, 0.4, 0.1], [nan, 0.3, 0.2, nan, 0.5], [nan] * 5]
  )
  trials = searches.Trials({}, objective, 10 * objective)
  expected = [[0, 0, 2, 2, 2], [-1, 1, 1, 1, 4], [-1] * 5]
  np.testing.assert_array_equal(trials.incumbents(), expected)
  np.testing.assert_array_equal(trials.of_best(trials.measured), [4, 5, nan])


def advance(data, run, state, first, last):
  return state


def start(data, run):
  return run["lr"], run["momentum"]


def finish(data, run, state):
  lr, momentum = state
  score = -((lr - 0.1) ** 2) - (momentum - 0.8) ** 2
  return {"valid_hill": score, "test_hill": 2 * score, "diverged": lr > 0.9}


HILL = vs.Task(
  name="hill",
  start=start,
  advance=advance,
  finish=finish,
  values={"lr": 0.1, "momentum": 0.9},
  outputs={
    "valid_hill": vs.Output(role="score"),
    "test_hill": vs.Output(role="score"),
  },
)


def test_trials_are_those_of_plain_optuna_and_a_folder_is_extended(tmp_path):
  """Asked and told by one study at a time, in float32 as runs compute."""
  search = Search(OVER, trials=14, sampler="tpe", objective="hill")
  seeds, how = vs.Runs.independent(2), {"progress": False}
  few = search._replace(trials=3)
  searches.train_searches(HILL, few, seeds, tmp_path / "r", **how)
  results = searches.train_searches(HILL, search, seeds, tmp_path / "r", **how)
  found = searches.trials_of(results, search, 2)
  for seed in range(2):
    study = optuna.create_study(
      direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed)
    )
    for trial in range(search.trials):
      asked = study.ask(
        {
          "lr": optuna.distributions.FloatDistribution(1e-3, 1, log=True),
          "momentum": optuna.distributions.FloatDistribution(0.5, 0.99),
        }
      )
      for name, value in asked.params.items():
        assert found.values[name][seed, trial] == value
      lr, momentum = np.float32([asked.params["lr"], asked.params["momentum"]])
      if lr > 0.9:
        assert np.isnan(found.objective[seed, trial])
        study.tell(asked, state=optuna.trial.TrialState.FAIL)
        continue
      score = -((lr - 0.1) ** 2) - (momentum - 0.8) ** 2
      assert found.objective[seed, trial] == pytest.approx(score, abs=1e-6)
      # The same bits, as a sampler compares them.
      study.tell(asked, found.objective[seed, trial])
    best = found.of_best(found.measured)[seed]
    assert best == pytest.approx(2 * study.best_value)
