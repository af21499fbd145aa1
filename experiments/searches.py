"""Many independent searches of hyperparameters as one campaign of `vs.train`.

With S searches, run t · S + s is trial t of search s: it has the search's seeds, and the
values that its sampler drew. So a folder is extended by trials, and resumed. The best
trial is chosen by validation examples and measured on test examples. `docs/programs/
search.py` is the same for recipes of one's own, with early stopping.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float, Int

import vmapseeds as vs
from vmapseeds.store.files import Folder

SAMPLERS = ("random", "noisy_grid", "tpe")


class Range(NamedTuple):
  """The values that a search may give to one hyperparameter."""

  low: float
  high: float
  log: bool = False  # whether the logarithm is uniform, instead of the value

  @property
  def ends(self) -> tuple[float, float]:
    """The ends on the scale that draws are uniform on."""
    if self.log:
      return math.log(self.low), math.log(self.high)
    return self.low, self.high

  def value(self, place: float) -> float:
    """Return the value at a place on that scale."""
    return math.exp(place) if self.log else float(place)


class Search(NamedTuple):
  """How searches draw their trials, and by what they choose."""

  over: Mapping[str, Range]
  trials: int  # of each; for a noisy grid of n ranges, an nth power
  sampler: str = "random"  # one of `SAMPLERS`
  objective: str = "accuracy"  # higher is better


class Trials(NamedTuple):
  """What trials were, and what they reached on validation and on test examples; NaN
  where a run diverged.
  """

  values: dict[str, Float[np.ndarray, "searches trials"]]
  objective: Float[np.ndarray, "searches trials"]
  measured: Float[np.ndarray, "searches trials"]

  def incumbents(self) -> Int[np.ndarray, "searches trials"]:
    """Return the number of the best trial so far after each trial, the first of several;
    -1 before any trial that did not fail.
    """
    performance = np.nan_to_num(self.objective, nan=-np.inf)
    best = np.maximum.accumulate(performance, axis=1)
    before = np.full((len(best), 1), -np.inf)
    is_better = performance > np.hstack([before, best[:, :-1]])
    numbers = np.where(is_better, np.arange(best.shape[1]), -1)
    return np.maximum.accumulate(numbers, axis=1)

  def of_best(
    self, values: Float[np.ndarray, "searches trials"]
  ) -> Float[np.ndarray, " searches"]:
    """Return the value of each search's best trial; NaN where all failed."""
    best = self.incumbents()[:, -1]
    chosen = np.take_along_axis(values, best[:, None], axis=1)[:, 0]
    return np.where(best < 0, np.nan, chosen)


def train_searches(
  recipe: vs.Recipe,
  search: Search,
  seeds: vs.Runs,
  out: Folder,
  **options: Any,
) -> xr.Dataset:
  """Train the trials of all searches that `out` does not hold yet, and return its
  results. `seeds` has those of each search; what search s draws follows from s alone.
  """
  if search.sampler == "tpe":
    return _train_rounds(recipe, search, seeds, out, options)
  draw = random_trials if search.sampler == "random" else noisy_grid
  drawn = [draw(search, seed) for seed in range(len(seeds))]
  return vs.train(recipe, runs_of(seeds, drawn), out, **options)


def _train_rounds(recipe, search, seeds, out, options):
  """Ask a study of optuna for each trial of each search, and tell it what it reached."""
  import optuna

  optuna.logging.set_verbosity(optuna.logging.WARNING)
  space = {
    name: optuna.distributions.FloatDistribution(r.low, r.high, log=r.log)
    for name, r in search.over.items()
  }
  studies = [
    optuna.create_study(
      direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed)
    )
    for seed in range(len(seeds))
  ]
  # A round is a block: more runs are never in training together.
  options = {**options, "seed_batch": options.get("seed_batch") or len(seeds)}
  drawn: list[list[Mapping[str, float]]] = [[] for _ in studies]
  for trial in range(search.trials):
    asked = [study.ask(space) for study in studies]
    for values, of_search in zip(asked, drawn, strict=True):
      of_search.append(values.params)
    results = vs.train(recipe, runs_of(seeds, drawn), out, **options)
    # Of a folder that is resumed, later trials are there already.
    reached = trials_of(results, search, len(seeds)).objective[:, trial]
    for study, values, objective in zip(studies, asked, reached, strict=True):
      if np.isnan(objective):
        study.tell(values, state=optuna.trial.TrialState.FAIL)
      else:
        study.tell(values, objective)
  return results


def runs_of(seeds: vs.Runs, drawn: Sequence[Sequence[Mapping[str, float]]]) -> vs.Runs:
  """Return the runs of trials, given the values of each trial of each search."""
  by_trial = [values for trials in zip(*drawn, strict=True) for values in trials]
  rows = np.tile(np.arange(len(seeds)), len(drawn[0]))
  runs = seeds[rows]
  columns = {
    name: np.array([values[name] for values in by_trial]) for name in by_trial[0]
  }
  return dataclasses.replace(runs, values=runs.values | columns)


def trials_of(results: xr.Dataset, search: Search, searches: int) -> Trials:
  """Return the finished trials of a folder's searches, in rounds that are whole."""
  rounds = results.sizes["run"] // searches
  results = results.isel(run=slice(rounds * searches))

  def by_search(column):
    return column.astype(float).reshape(rounds, searches).T

  diverged = by_search(results.diverged.values) > 0
  objective = by_search(results[f"valid_{search.objective}"].values)
  measured = by_search(results[f"test_{search.objective}"].values)
  # Outputs of NaN have an argmax, and so an accuracy.
  return Trials(
    values={name: by_search(results[name].values) for name in search.over},
    objective=np.where(diverged, np.nan, objective),
    measured=np.where(diverged, np.nan, measured),
  )


def random_trials(search: Search, seed: int) -> list[dict[str, float]]:
  """Return the values of each trial of a random search."""
  trials = []
  for trial in range(search.trials):
    # A generator for each trial: more trials change none of those before.
    draws = np.random.default_rng([seed, trial]).random(len(search.over))
    values = {}
    for (name, r), u in zip(search.over.items(), draws, strict=True):
      low, high = r.ends
      # Rounding must not lead out of the range.
      values[name] = min(max(r.value(low + u * (high - low)), r.low), r.high)
    trials.append(values)
  return trials


def noisy_grid(search: Search, seed: int) -> list[dict[str, float]]:
  """Return the trials of a noisy grid search, in random order.

  Of a range from a to b with n values, Δ = (b - a)/(n - 1) apart, the ends are drawn
  uniformly from a ± Δ/2 and from b ± Δ/2, and the n values lie between these at equal
  distances: on a logarithmic scale if the range has one. Bouthillier et al. 2021,
  appendix E.2.
  """
  rng = np.random.default_rng(seed)
  count = round(search.trials ** (1 / len(search.over)))
  axes = []
  for r in search.over.values():
    low, high = r.ends
    step = (high - low) / (count - 1)
    low, high = np.array(r.ends) + (rng.random(2) - 0.5) * step
    axes.append([r.value(place) for place in np.linspace(low, high, count)])
  points = list(itertools.product(*axes))
  order = rng.permutation(len(points))
  return [dict(zip(search.over, points[i], strict=True)) for i in order]
