"""Which value of a sweep is best, and how sure that is; how the outcome depends on each
value.
"""

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from vmapseeds import stats
from vmapseeds.reports import groups, plots
from vmapseeds.reports.documents import Figure, Table
from vmapseeds.reports.groups import Value, format_values
from vmapseeds.results.formatting import capitalized, show, show_interval
from vmapseeds.results.measured_runs import (
  MeasuredRuns,
  is_higher_better,
  roles,
  values_of_runs,
)

MOST_LINES = 8  # of a figure
MOST_ROWS = 32  # of a table
_CURVE = """Means of the runs with 95 % intervals over other runs{others}."""
_BEST = """P(best): how probable it is that no other value has a better mean over all \
runs, on these test examples. It is for normal means and no knowledge beforehand; values \
that were chosen by these runs are not tested anew."""


class Outcome(NamedTuple):
  """What runs of one combination of values gave."""

  values: Mapping[str, Value]
  runs: MeasuredRuns
  mean: Mapping[str, Any]  # `value`, `low`, `high`


class Best(NamedTuple):
  """How probable it is that each combination of values is the best."""

  probabilities: Sequence[float]
  pairs: int  # runs of the same seeds in all of them; 0: compared unpaired
  leader: int


def is_sweep(values: Sequence[Mapping[str, Value]]) -> bool:
  """Return whether groups of runs differ in values, not only in seeds."""
  names = {name for of_group in values for name in of_group}
  seeds = {name for name in names if name.startswith("seed_") or name == "start"}
  return len(values) > 1 and bool(names) and not seeds


def best_of(outcomes: Sequence[Outcome]) -> Best | None:
  """Return which combination is best and how sure that is; None with a single run of
  one. Runs of the same seeds are paired if most have a partner in all of them.
  """
  first = outcomes[0].runs
  higher_is_better = is_higher_better(roles(first.kept)[first.output])
  samples, tables = [], []
  for outcome in outcomes:
    kept = outcome.runs.kept
    performance = values_of_runs(kept, outcome.runs.output)
    if not higher_is_better:
      performance = -performance
    samples.append(performance)
    seeds = groups.seed_columns(kept)
    tables.append(pd.DataFrame({"value": performance, **seeds}))
  fewest = min(len(performance) for performance in samples)
  # One run says nothing about how sure its mean is.
  if fewest < 2:
    return None

  names = [str(name) for name in tables[0].columns[1:]]
  pairs = 0
  # Seeds that repeat do not say which runs belong together.
  if names and not any(table.duplicated(names).any() for table in tables):
    values = [table.set_index(names)["value"] for table in tables]
    joined = pd.concat(values, axis=1, join="inner")
    # Pairs of few common seeds would leave out most runs.
    if 2 * len(joined) > fewest:
      samples = list(joined.to_numpy().T)
      pairs = len(joined)
  probabilities = stats.probability_of_best(*samples, paired=pairs > 0)
  # Runs that are all equal have no spread to compare with.
  if np.isnan(probabilities).any():
    return None
  return Best(probabilities.tolist(), pairs, int(probabilities.argmax()))


def describe_best(outcomes: Sequence[Outcome], best: Best) -> str:
  """Return which combination is best in a sentence."""
  leader = outcomes[best.leader]
  name = format_values(leader.values)
  mean = show(leader.mean["value"], None, leader.runs.of.unit)
  matching = "unpaired"
  if best.pairs:
    matching = f"paired by {best.pairs} seeds"
  probability = 100 * best.probabilities[best.leader]
  surely = f"{probability:.0f} %"
  # Never rounded to certainty.
  if probability > 99:
    surely = "over 99 %"
  return (
    f"Best is {name}, with a probability of {surely} ({matching}): its mean "
    f"{leader.runs.of.name} is {mean}."
  )


def table_of_best(outcomes: Sequence[Outcome], best: Best) -> Table:
  """Return a row for each combination, the best first."""
  # Stable: equal ones stay in the order of their values.
  order = np.argsort(-np.array(best.probabilities), kind="stable")
  rows = []
  for k in order[:MOST_ROWS]:
    values, runs, mean = outcomes[k]
    interval = show_interval(mean["low"], mean["high"], runs.of.unit)
    rows.append(
      (
        format_values(values),
        str(runs.runs),
        show(mean["value"], None, runs.of.unit),
        interval or "n/a",
        f"{100 * best.probabilities[k]:.1f} %",
      )
    )
  noun = outcomes[0].runs.of.name
  return Table(_BEST, ("", "runs", noun, "95 % interval", "P(best)"), rows)


def response_curves(outcomes: Sequence[Outcome]) -> dict[str, Figure]:
  """Return a figure for each swept column: its values against the mean outcome, a line
  for each combination of the others.
  """
  quantity = outcomes[0].runs.of
  # A column with a single value has no curve, and need not be named beside a line.
  names = []
  for name in outcomes[0].values:
    if len({outcome.values[name] for outcome in outcomes}) > 1:
      names.append(name)

  figures = {}
  for name in names:
    lines: dict[str, list[plots.Point]] = {}
    for outcome in outcomes:
      others = {n: outcome.values[n] for n in names if n != name}
      mean = outcome.mean
      point = (outcome.values[name], mean["value"], mean["low"], mean["high"])
      lines.setdefault(format_values(others), []).append(point)

    # More lines than that are a tangle.
    drawn = dict(itertools.islice(lines.items(), MOST_LINES))
    note = ""
    if len(lines) > MOST_LINES:
      note = f", of {MOST_LINES} of the {len(lines)} combinations of the other values"
    figures[f"response_{name}"] = Figure(
      f"{capitalized(quantity.name)} against {name}",
      _CURVE.format(others=note),
      functools.partial(plots.response_curve, drawn, name=name, of=quantity),
    )
  return figures
