"""What a report says of searches of hyperparameters: the best of each, regret over
trials, each value against the objective, and what a search's luck does to a comparison.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import scipy.stats
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes

from vmapseeds import stats
from vmapseeds.mistakes import Mistake
from vmapseeds.reports import plots
from vmapseeds.reports.pages import Figure, Section, Table
from vmapseeds.reports.verdict import sd_of
from vmapseeds.results.formatting import (
  Quantity,
  finite_or_none,
  run_count,
  show,
  show_interval,
)
from vmapseeds.results.searches import (
  Trials,
  create_study,
  import_optuna,
  optuna_trials,
  repeats_of,
  trials_of,
)

MOST_SEARCHES = 100  # in a table
MOST_IMPORTANT = 10  # searches whose importances are computed
BAND = (0.1, 0.9)  # quantiles over searches
_CURVES = """The best trial so far by its validation examples: mean over searches, and ± one \
standard deviation. A gap between the curves is what choosing by validation examples promises \
too much."""
_REGRET = """How far the best trial so far is from the best that the same search found in the \
end: mean over searches, and from the 10 % to the 90 % quantile."""
_VALUES = """Each point is a trial; the larger ones are the best of their searches."""
_IMPORTANCE = """The share of the objective's variance that each value explains by itself \
and together with others (optuna's fANOVA), in each search: mean and standard deviation."""


class Components(NamedTuple):
  """Variances of the best of each search, trained again with other seeds.

  Attributes:
    searches: between the hyperparameters that searches found, with those of seeds taken
      off; negative if it cannot be told from 0.
    low, high: its 95 % interval.
    seeds: between seeds, of the same hyperparameters.
    repeats: of each search.
  """

  searches: float
  low: float
  high: float
  seeds: float
  repeats: int


def variance_components(values: Float[np.ndarray, "searches repeats"]) -> Components:
  """Return the variance between searches and between seeds, of a table in which the
  repeats of all searches have the same seeds; NaN with fewer than 2 searches or repeats.
  """
  found, repeats = stats.source_variances(values), values.shape[1]
  seeds = values.var(axis=1, ddof=1).mean() if min(values.shape) > 1 else math.nan
  variance, low, high = (float(of[0]) for of in found[:3])
  return Components(variance, low, high, seeds, repeats)


def sections(results: xr.Dataset) -> tuple[list[Section], dict[str, Any]]:
  """Return the sections of a report about searches, from all of their runs, and their
  numbers for JSON.
  """
  trials = trials_of(results)
  of = Quantity(trials.about["measure"], trials.unit)
  best = trials.best()
  measured = trials.measured[[*best.values()]]
  known = repeats_of(results, trials)
  luck = variance_components(known) if known.size else None
  lead, sentences = _luck(trials, measured, luck, of)
  shown = [
    Section(
      "Searches", lead, sentences, tables=[_spread(measured, luck, of), _best(trials)]
    ),
    Section("Trials", figures=figures(trials)),
  ]
  record = {
    **trials.about,
    "searches": len(trials.numbers()),
    "trials": len(trials.rows),
    "failed": int((~np.isfinite(trials.performance)).sum()),
    "best": [_record(trials, number, place) for number, place in best.items()],
    "variance_between_searches": finite_or_none(_variance(measured)),
    "components": luck and {n: finite_or_none(v) for n, v in luck._asdict().items()},
  }
  return shown, record


def _variance(values):
  return values.var(ddof=1) if len(values) > 1 else math.nan


def _record(trials: Trials, number: int, place: int) -> dict[str, Any]:
  return {
    "search": number,
    "trial": int(trials.trial[place]),
    "objective": finite_or_none(trials.objective[place]),
    "measured": finite_or_none(trials.measured[place]),
    **trials.values_at(place),
  }


def _luck(trials: Trials, measured, luck: Components | None, of: Quantity):
  """Return the sentences about what searches found, and how much of it is luck."""
  count, about = len(measured), trials.about
  sizes = [len(trials.of_search(number)) for number in trials.numbers()]
  each = (
    f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
  )
  mean = show(measured.mean(), None, of.unit)
  how = about["sampler"]
  if rungs := about.get("rungs"):
    how += (
      f"; of all epochs, after rungs of {' and '.join(f'{n:g}' for n in rungs[:-1])}"
    )
  lead = (
    f"{count} searches of {each} trials ({how}): {of.name} of the best of a search is "
    f"{mean} on average"
  )
  sentences = []
  lost = int((~np.isfinite(trials.performance)).sum())
  if lost:
    sentences.append(f"{lost} of {len(trials.rows)} trials failed or diverged.")
  if count < 2:
    one = "One search cannot say how much of what it found is luck: give --searches 10."
    return f"{lead}.", [*sentences, one]
  sd = measured.std(ddof=1)
  lead += f", with a standard deviation of {show(sd, None, of.unit)} between searches."
  # Bouthillier 2021, section 4.
  reach = _reach(count) * math.sqrt(2) * sd
  sentences.append(
    "Two recipes that are equally good, each tuned by one search, differ by up to "
    f"{show(reach, None, of.unit)} in 95 % of cases, by luck alone. A difference below "
    "that, between two that were tuned once, says nothing: randomise the searches too, "
    "and compare over them (vmapseeds compare DIR DIR_B, of two folders of searches)."
  )
  if luck is None or not math.isfinite(luck.searches):
    sentences.append(
      "How much of this is due to seeds alone, the same runs say with --repeats 10."
    )
  elif luck.searches <= 0 or luck.low <= 0:
    sentences.append(
      "What hyperparameters the searches chose makes no difference that can be told from "
      "that of seeds: runs of one of them, with other seeds of everything, stand for all."
    )
  else:
    share = luck.searches / (luck.searches + luck.seeds)
    sentences.append(
      f"Of the variance of a run, {100 * share:.0f} % is due to which hyperparameters a search "
      "found. Runs of one search's best share that, and their mean does not lose it with "
      "more seeds (Bouthillier 2021, section 3.2)."
    )
  return lead, sentences


def _reach(searches: int) -> float:
  """Return how many standard deviations, estimated from so many searches, hold 95 % of
  differences on both sides.
  """
  return float(scipy.stats.t.ppf(0.975, searches - 1))


def _spread(measured, luck: Components | None, of: Quantity) -> Table:
  """Return the table of standard deviations by what differs."""

  def root(variance):
    return math.sqrt(variance) if variance > 0 else 0.0

  rows = [
    ("between searches, the best of each as it was measured", sd_of(measured, of)),
  ]
  if luck and math.isfinite(luck.searches):
    ends = show_interval(root(luck.low), root(luck.high), of.unit)
    what = f"the best trained again, {run_count(luck.repeats)} each"
    rows += [
      (
        f"between searches without seeds: {what}",
        f"{show(root(luck.searches), None, of.unit)} ({ends})",
      ),
      (
        f"between seeds of the same hyperparameters: {what}",
        show(root(luck.seeds), None, of.unit),
      ),
    ]
  return Table(f"Standard deviations of {of.name}", ("", "sd (95 % interval)"), rows)


def _best(trials: Trials) -> Table:
  """Return the table of the best trial of each search."""
  unit = trials.unit
  names = [*trials.values]
  rows = [
    (
      str(number),
      str(trials.trial[place]),
      show(trials.objective[place], None, unit),
      show(trials.measured[place], None, unit),
      *(f"{trials.values[name][place]:.4g}" for name in names),
    )
    for number, place in [*trials.best().items()][:MOST_SEARCHES]
  ]
  left = len(trials.best()) - len(rows)
  more = f"; {left} more are in report.json" if left else ""
  headings = ("search", "trial", trials.about["objective"], trials.about["measure"])
  return Table(f"The best of each search{more}", (*headings, *names), rows)


# Figures.


def figures(trials: Trials) -> dict[str, Figure]:
  """Return the figures of searches, by name."""
  unit = trials.unit
  of = Quantity(trials.about["objective"], unit)
  found = {}
  if (incumbents := trials.incumbents()).size:
    found["best_so_far"] = Figure(
      "The best so far", _CURVES, functools.partial(draw_curves, trials, incumbents)
    )
    found["regret"] = Figure(
      "Regret over trials", _REGRET, functools.partial(draw_regret, trials, incumbents)
    )
  for name in trials.values:
    found[f"value_{name}"] = Figure(
      f"{name} against {of.name}",
      _VALUES,
      functools.partial(draw_value, trials, name),
      3.2,
    )
  if importance := importances(trials):
    found["importance"] = Figure(
      "Importance",
      _IMPORTANCE,
      functools.partial(draw_importance, importance),
      1.2 + 0.4 * len(importance),
    )
  return found


def _numbers(values, places):
  return np.where(places >= 0, values[places], np.nan)


def draw_curves(trials: Trials, incumbents: np.ndarray, ax: Axes) -> Axes:
  """Draw objective and measurement of the best so far, over trials. Bouthillier 2021,
  figure F.2.
  """
  of = Quantity("", trials.unit)
  count = 1 + np.arange(incumbents.shape[1])
  lines = {"objective": plots.BLUE, "measure": plots.ORANGE}
  if trials.about["objective"] == trials.about["measure"]:
    lines.pop("measure")
  for what, color in lines.items():
    values = trials.objective if what == "objective" else trials.measured
    numbers = of.scale * _numbers(values, incumbents)
    kept = np.isfinite(numbers).all(0)
    mean, sd = numbers[:, kept].mean(0), numbers[:, kept].std(0)
    ax.plot(count[kept], mean, color=color, label=trials.about[what])
    ax.fill_between(count[kept], mean - sd, mean + sd, color=color, alpha=0.2, lw=0)
  ax.legend()
  sign = of.label.strip(" ()")
  return plots.finish_axes(
    ax, "trials", f"of the best so far ({sign})" if sign else "of the best so far"
  )


def draw_regret(trials: Trials, incumbents: np.ndarray, ax: Axes) -> Axes:
  """Draw the final best objective less the best so far, over trials."""
  of = Quantity("regret", trials.unit)
  best = of.scale * _numbers(trials.sign * trials.objective, incumbents)
  kept = np.isfinite(best).all(0)
  regret = (best[:, -1:] - best)[:, kept]
  count = (1 + np.arange(best.shape[1]))[kept]
  if regret.size:
    low, high = np.quantile(regret, BAND, axis=0)
    ax.plot(count, regret.mean(0), color=plots.BLUE)
    ax.fill_between(count, low, high, color=plots.BLUE, alpha=0.2, lw=0)
  return plots.finish_axes(ax, "trials", of.label)


def draw_value(trials: Trials, name: str, ax: Axes) -> Axes:
  """Draw the objective of each trial against one of its values."""
  of = Quantity(trials.about["objective"], trials.unit)
  kept, best = np.isfinite(trials.performance), [*trials.best().values()]
  for places, size, alpha, color in (
    (np.flatnonzero(kept), 6, 0.35, plots.SKY),
    (np.array(best, int), 28, 1, plots.VERMILION),
  ):
    x, y = trials.values[name][places], of.scale * trials.objective[places]
    ax.scatter(x, y, s=size, alpha=alpha, color=color, linewidths=0)
  if trials.about["over"][name][2]:
    ax.set_xscale("log")
  return plots.finish_axes(ax, name, of.label)


def importances(trials: Trials) -> dict[str, Float[np.ndarray, " searches"]]:
  """Return each value's importance in some of the searches, by optuna's fANOVA; nothing
  without optuna, of one value, or of few trials.
  """
  try:
    optuna = import_optuna("importance")
  except Mistake:
    return {}
  found: list[dict[str, float]] = []
  for number in trials.numbers()[:MOST_IMPORTANT] if len(trials.values) > 1 else ():
    places = trials.of_search(number)
    places = places[np.isfinite(trials.performance[places])]
    if len(places) < 8 or not np.ptp(trials.objective[places]):
      continue
    study = create_study(trials.about["higher_is_better"])
    study.add_trials(optuna_trials(trials, places))
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    found.append(optuna.importance.get_param_importances(study, evaluator=evaluator))
  return {n: np.array([of[n] for of in found]) for n in trials.values} if found else {}


def draw_importance(of: dict[str, Float[np.ndarray, " searches"]], ax: Axes) -> Axes:
  """Draw the mean importance of each value, with its standard deviation over searches."""
  names = sorted(of, key=lambda name: of[name].mean())
  ax.barh(
    names,
    [100 * of[name].mean() for name in names],
    xerr=[100 * of[name].std() for name in names],
    color=plots.SKY,
    ecolor=plots.INK,
    capsize=3,
  )
  return plots.finish_axes(ax, "share of the variance (%)", "")
