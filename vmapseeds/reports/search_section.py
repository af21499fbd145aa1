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
from vmapseeds.errors import UserError
from vmapseeds.reports import plots
from vmapseeds.reports.documents import Figure, Section, Table
from vmapseeds.reports.verdict import sd_of
from vmapseeds.results.formatting import (
  Quantity,
  finite_or_none,
  run_count,
  show,
  show_interval,
)
from vmapseeds.searches.trials import (
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
  by_source = stats.source_variances(values)
  seeds = math.nan
  if min(values.shape) > 1:
    seeds = values.var(axis=1, ddof=1).mean()
  # Searches are the rows, so the first source.
  return Components(
    searches=float(by_source.variance[0]),
    low=float(by_source.low[0]),
    high=float(by_source.high[0]),
    seeds=seeds,
    repeats=values.shape[1],
  )


def sections_of_searches(results: xr.Dataset) -> tuple[list[Section], dict[str, Any]]:
  """Return the sections of a report about searches, from all of their runs, and their
  numbers for JSON.
  """
  trials = trials_of(results)
  quantity = Quantity(trials.about["measure"], trials.unit)
  best = trials.best()
  measured = trials.measured[list(best.values())]
  repeats = repeats_of(results, trials)
  luck = None
  components = None
  if repeats.size:
    luck = variance_components(repeats)
    numbers = luck._asdict().items()
    components = {name: finite_or_none(number) for name, number in numbers}

  lead, sentences = _describe_luck(trials, measured, luck, quantity)
  tables = [_table_of_spread(measured, luck, quantity), _table_of_best(trials)]
  page_sections = [
    Section("Searches", lead, sentences, tables=tables),
    Section("Trials", figures=figures_of_searches(trials)),
  ]
  record = {
    **trials.about,
    "searches": len(trials.numbers()),
    "trials": len(trials.rows),
    "failed": int((~np.isfinite(trials.performance)).sum()),
    "best": [_record(trials, number, place) for number, place in best.items()],
    "variance_between_searches": finite_or_none(_variance(measured)),
    "components": components,
  }
  return page_sections, record


def _variance(values):
  # NumPy would warn.
  if len(values) < 2:
    return math.nan
  return values.var(ddof=1)


def _record(trials: Trials, number: int, place: int) -> dict[str, Any]:
  return {
    "search": number,
    "trial": int(trials.trial[place]),
    "objective": finite_or_none(trials.objective[place]),
    "measured": finite_or_none(trials.measured[place]),
    **trials.values_at(place),
  }


def _describe_luck(
  trials: Trials,
  measured: np.ndarray,
  luck: Components | None,
  quantity: Quantity,
) -> tuple[str, list[str]]:
  """Return a lead about what searches found, and sentences on how much of it is luck."""
  count = len(measured)
  mean = show(measured.mean(), None, quantity.unit)
  lead = (
    f"{count} searches of {_describe_trials(trials)}: {quantity.name} of the best "
    f"of a search is {mean} on average"
  )
  sentences = []
  # They are no mistake: a search tries learning rates that diverge.
  lost = int((~np.isfinite(trials.performance)).sum())
  if lost:
    sentences.append(f"{lost} of {len(trials.rows)} trials failed or diverged.")
  # Between searches there is a spread from two on.
  if count < 2:
    one = "One search cannot say how much of what it found is luck: give --searches 10."
    return f"{lead}.", [*sentences, one]
  sd = measured.std(ddof=1)
  lead += (
    f", with a standard deviation of {show(sd, None, quantity.unit)} between searches."
  )
  # Bouthillier 2021, section 4.
  reach = _reach(count) * math.sqrt(2) * sd
  sentences.append(
    "Two recipes that are equally good, each tuned by one search, differ by up to "
    f"{show(reach, None, quantity.unit)} in 95 % of cases, by luck alone. A difference below "
    "that, between two that were tuned once, says nothing: randomise the searches too, "
    "and compare over them (vmapseeds compare DIR DIR_B, of two folders of searches)."
  )
  sentences.append(_describe_components(luck))
  return lead, sentences


def _describe_trials(trials: Trials) -> str:
  sizes = [len(trials.of_search(number)) for number in trials.numbers()]
  trials_each = f"{min(sizes)}"
  if min(sizes) < max(sizes):
    trials_each = f"{min(sizes)} to {max(sizes)}"
  method = trials.about["sampler"]
  rungs = trials.about.get("rungs")
  if rungs:
    # The last rung is a training of all epochs.
    shorter = " and ".join(f"{epochs:g}" for epochs in rungs[:-1])
    method += f"; of all epochs, after rungs of {shorter}"
  return f"{trials_each} trials ({method})"


def _describe_components(luck: Components | None) -> str:
  """Return how much of the variance between searches is not that of seeds."""
  if luck is None or not math.isfinite(luck.searches):
    return (
      "How much of this is due to seeds alone, the same runs say with --repeats 10."
    )
  if luck.searches <= 0 or luck.low <= 0:
    return (
      "What hyperparameters the searches chose makes no difference that can be told from "
      "that of seeds: runs of one of them, with other seeds of everything, stand for all."
    )
  share = luck.searches / (luck.searches + luck.seeds)
  return (
    f"Of the variance of a run, {100 * share:.0f} % is due to which hyperparameters a search "
    "found. Runs of one search's best share that, and their mean does not lose it with "
    "more seeds (Bouthillier 2021, section 3.2)."
  )


def _reach(searches: int) -> float:
  """Return how many standard deviations, estimated from so many searches, hold 95 % of
  differences on both sides.
  """
  return float(scipy.stats.t.ppf(0.975, searches - 1))


def _table_of_spread(measured, luck: Components | None, quantity: Quantity) -> Table:
  """Return the table of standard deviations by what differs."""

  def root(variance):
    # Estimates without bias fall below 0 where a variance is about 0.
    return math.sqrt(max(0.0, variance))

  name = "between searches, the best of each as it was measured"
  rows = [(name, sd_of(measured, quantity))]
  if luck and math.isfinite(luck.searches):
    again = f"the best trained again, {run_count(luck.repeats)} each"
    searches = show(root(luck.searches), None, quantity.unit)
    ends = show_interval(root(luck.low), root(luck.high), quantity.unit)
    rows.append((f"between searches without seeds: {again}", f"{searches} ({ends})"))
    seeds = show(root(luck.seeds), None, quantity.unit)
    rows.append((f"between seeds of the same hyperparameters: {again}", seeds))
  caption = f"Standard deviations of {quantity.name}"
  return Table(caption, ("", "sd (95 % interval)"), rows)


def _table_of_best(trials: Trials) -> Table:
  """Return the table of the best trial of each search."""
  best = list(trials.best().items())
  rows = []
  # A page has room for some; report.json has all.
  for number, place in best[:MOST_SEARCHES]:
    row = [str(number), str(trials.trial[place])]
    row.append(show(trials.objective[place], None, trials.unit))
    row.append(show(trials.measured[place], None, trials.unit))
    for values in trials.values.values():
      row.append(f"{values[place]:.4g}")
    rows.append(row)

  caption = "The best of each search"
  if len(best) > len(rows):
    caption += f"; {len(best) - len(rows)} more are in report.json"
  headings = ("search", "trial", trials.about["objective"], trials.about["measure"])
  return Table(caption, (*headings, *trials.values), rows)


# Figures.


def figures_of_searches(trials: Trials) -> dict[str, Figure]:
  """Return the figures of searches, by name."""
  drawn = {}
  incumbents = trials.incumbents()
  # Without a trial that succeeded there is no best one.
  if incumbents.size:
    drawn["best_so_far"] = Figure(
      "The best so far", _CURVES, functools.partial(draw_curves, trials, incumbents)
    )
    drawn["regret"] = Figure(
      "Regret over trials", _REGRET, functools.partial(draw_regret, trials, incumbents)
    )
  objective = Quantity(trials.about["objective"], trials.unit)
  for name in trials.values:
    drawn[f"value_{name}"] = Figure(
      f"{name} against {objective.name}",
      _VALUES,
      functools.partial(draw_value, trials, name),
      3.2,
    )
  importance = importances(trials)
  if importance:
    drawn["importance"] = Figure(
      "Importance",
      _IMPORTANCE,
      functools.partial(draw_importance, importance),
      1.2 + 0.4 * len(importance),
    )
  return drawn


def _numbers(values, places):
  """Return the values at places, NaN before the first trial that succeeded."""
  return np.where(places >= 0, values[places], np.nan)


def draw_curves(trials: Trials, incumbents: np.ndarray, ax: Axes) -> Axes:
  """Draw objective and measurement of the best so far, over trials. Bouthillier 2021,
  figure F.2.
  """
  quantity = Quantity("", trials.unit)
  count = 1 + np.arange(incumbents.shape[1])
  lines = [(trials.about["objective"], trials.objective, plots.BLUE)]
  # Some searches choose by the very numbers that are measured.
  if trials.about["objective"] != trials.about["measure"]:
    lines.append((trials.about["measure"], trials.measured, plots.ORANGE))
  for name, values, color in lines:
    numbers = quantity.scale * _numbers(values, incumbents)
    # A mean over all searches: of trials before which one of them has no best, none.
    kept = np.isfinite(numbers).all(0)
    mean = numbers[:, kept].mean(0)
    sd = numbers[:, kept].std(0)
    low, high = mean - sd, mean + sd
    ax.plot(count[kept], mean, color=color, label=name)
    ax.fill_between(count[kept], low, high, color=color, alpha=0.2, lw=0)
  ax.legend()
  label = "of the best so far"
  unit = plots.unit_text(quantity)
  if unit:
    label += f" ({unit})"
  return plots.finish_axes(ax, "trials", label)


def draw_regret(trials: Trials, incumbents: np.ndarray, ax: Axes) -> Axes:
  """Draw the final best objective less the best so far, over trials."""
  quantity = Quantity("regret", trials.unit)
  best = quantity.scale * _numbers(trials.sign * trials.objective, incumbents)
  # As of the curves: from where all searches have a best trial.
  kept = np.isfinite(best).all(0)
  regret = (best[:, -1:] - best)[:, kept]
  count = (1 + np.arange(best.shape[1]))[kept]
  if regret.size:
    low, high = np.quantile(regret, BAND, axis=0)
    ax.plot(count, regret.mean(0), color=plots.BLUE)
    ax.fill_between(count, low, high, color=plots.BLUE, alpha=0.2, lw=0)
  return plots.finish_axes(ax, "trials", quantity.label)


def draw_value(trials: Trials, name: str, ax: Axes) -> Axes:
  """Draw the objective of each trial against one of its values."""
  quantity = Quantity(trials.about["objective"], trials.unit)
  succeeded = np.flatnonzero(np.isfinite(trials.performance))
  best = np.array(list(trials.best().values()), int)
  for places, size, alpha, color in (
    (succeeded, 6, 0.35, plots.SKY),
    (best, 28, 1, plots.VERMILION),
  ):
    x = trials.values[name][places]
    y = quantity.scale * trials.objective[places]
    ax.scatter(x, y, s=size, alpha=alpha, color=color, linewidths=0)
  # As it was drawn: trials are even along the axis.
  if trials.about["over"][name][2]:
    ax.set_xscale("log")
  return plots.finish_axes(ax, name, quantity.label)


def importances(trials: Trials) -> dict[str, Float[np.ndarray, " searches"]]:
  """Return each value's importance in some of the searches, by optuna's fANOVA; nothing
  without optuna, of one value, or of few trials.
  """
  try:
    optuna = import_optuna("importance")
  except UserError:
    return {}
  # One value alone has all of the importance.
  if len(trials.values) < 2:
    return {}

  of_searches: list[dict[str, float]] = []
  for number in trials.numbers()[:MOST_IMPORTANT]:
    places = trials.of_search(number)
    places = places[np.isfinite(trials.performance[places])]
    # Of fewer, or of equal outcomes, its trees have nothing to split.
    if len(places) < 8 or not np.ptp(trials.objective[places]):
      continue
    study = create_study(trials.about["higher_is_better"])
    study.add_trials(optuna_trials(trials, places))
    # Its trees are random; a page that is written again has the same numbers.
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
    of_searches.append(shares)
  if not of_searches:
    return {}
  by_name = {}
  for name in trials.values:
    by_name[name] = np.array([shares[name] for shares in of_searches])
  return by_name


def draw_importance(
  importance: dict[str, Float[np.ndarray, " searches"]], ax: Axes
) -> Axes:
  """Draw the mean importance of each value, with its standard deviation over searches."""
  names = sorted(importance, key=lambda name: importance[name].mean())
  ax.barh(
    names,
    [100 * importance[name].mean() for name in names],
    xerr=[100 * importance[name].std() for name in names],
    color=plots.SKY,
    ecolor=plots.INK,
    capsize=3,
  )
  return plots.finish_axes(ax, "share of the variance (%)", "")
