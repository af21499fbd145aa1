"""The two estimators of a method's performance (Bouthillier et al. 2021, figure 4).

Validation examples choose the best trial. It is measured as it was trained, on the
training set: the paper's may be trained once more, with the validation set.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

import vmapseeds as vs
from experiments.bouthillier2021.campaigns import AFTER_SEARCH, SOURCES, repeated_seeds
from experiments.frame import with_best
from experiments.measures.estimators import biased_estimate
from vmapseeds import stats
from vmapseeds.searches.trials import trials_of
from vmapseeds.store.files import Folder


def ideal_est(
  recipe: vs.Recipe,
  over: Mapping[str, str],
  k: int,
  trials: int,
  out: Folder,
) -> stats.Estimate:
  """Return the ideal estimate of k measures, each after a search of its own: k × trials
  trainings, in the folder `out`.

  Source: bouthillier2021, algorithm 1.
  """
  return stats.mean_over_runs(
    best_scores(vs.search(recipe, over, trials=trials, searches=k, out=out))
  )


def fix_hopt_est(
  recipe: vs.Recipe,
  over: Mapping[str, str],
  k: int,
  trials: int,
  out: Folder,
  randomised: tuple[str, ...] = SOURCES,
  correlation: float = 0.0,
) -> stats.Estimate:
  """Return the biased estimate of k measures after one search: trials + k trainings, in
  folders below `out`.

  Args:
    recipe: what is trained.
    over: what is searched, as `vs.search` takes it.
    k: measures.
    trials: of the search.
    out: the folder, created if absent.
    randomised: the sources that are drawn anew for each measure; the others keep the
      search's seeds.
    correlation: ρ of the measures, which they cannot tell; see `biased_estimate`.

  Source: bouthillier2021, algorithm 2.
  """
  searched = vs.search(recipe, over, trials=trials, searches=1, out=f"{out}/search")
  runs = repeated_seeds(randomised, 1, k, AFTER_SEARCH).out_of_bootstrap()
  results = vs.train(recipe, with_best(runs, searched, 1), f"{out}/runs")
  return biased_estimate(results.test_accuracy.values, correlation)


def best_scores(searched) -> Float[np.ndarray, " searches"]:
  """Return what was measured of the best trial of each search; NaN where all failed."""
  trials = trials_of(searched)
  measured = np.full(1 + max(trials.numbers()), np.nan)
  for number, place in trials.best().items():
    measured[number] = trials.measured[place]
  return measured
