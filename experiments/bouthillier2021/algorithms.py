"""The two estimators of a method's performance (Bouthillier et al. 2021, figure 4).

Validation examples choose the best trial. It is measured as it was trained, on the
training set: the paper's may be trained once more, with the validation set.
"""

import vmapseeds as vs
from experiments.bouthillier2021.campaigns import AFTER_SEARCH, SOURCES, repeated_seeds
from experiments.frame import with_best
from experiments.measures.estimators import biased_estimate
from experiments.searches import Search, train_searches, trials_of
from vmapseeds import stats
from vmapseeds.store.files import Folder


def ideal_est(
  recipe: vs.Recipe,
  search: Search,
  k: int,
  out: Folder,
) -> stats.Estimate:
  """Return the ideal estimate of k measures, each after a search of its own: k × trials
  trainings, in the folder `out`.

  Source: bouthillier2021, algorithm 1.
  """
  seeds = vs.Runs.independent(k).out_of_bootstrap()
  results = train_searches(recipe, search, seeds, out)
  trials = trials_of(results, search, k)
  return stats.mean_over_runs(trials.of_best(trials.measured))


def fix_hopt_est(
  recipe: vs.Recipe,
  search: Search,
  k: int,
  out: Folder,
  randomised: tuple[str, ...] = SOURCES,
  correlation: float = 0.0,
) -> stats.Estimate:
  """Return the biased estimate of k measures after one search: trials + k trainings, in
  folders below `out`.

  Args:
    recipe: what is trained.
    search: how its hyperparameters are found.
    k: measures.
    out: the folder, created if absent.
    randomised: the sources that are drawn anew for each measure; the others keep the
      search's seeds.
    correlation: ρ of the measures, which they cannot tell; see `biased_estimate`.

  Source: bouthillier2021, algorithm 2.
  """
  seeds = vs.Runs.independent(1).out_of_bootstrap()
  searched = train_searches(recipe, search, seeds, f"{out}/search")
  runs = repeated_seeds(randomised, 1, k, AFTER_SEARCH).out_of_bootstrap()
  runs = with_best(runs, trials_of(searched, search, 1), 1)
  results = vs.train(recipe, runs, f"{out}/runs")
  return biased_estimate(results.test_accuracy.values, correlation)
