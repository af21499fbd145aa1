"""Which value of a sweep is best, and how sure that is; how the outcome depends on each
value.
"""

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vmapseeds import stats
from vmapseeds.reports import plots
from vmapseeds.reports.documents import Figure, Table
from vmapseeds.reports.groups import Value, format_values
from vmapseeds.results.formatting import capitalized, show, show_interval
from vmapseeds.results.measured_runs import (
  MeasuredRuns,
  is_higher_better,
  roles,
)
from vmapseeds.stats.designs import RUN

MOST_LINES = 8  # of a figure
MOST_ROWS = 32  # of a table
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
  leaders: Sequence[int]  # those with the best mean


def is_sweep(values: Sequence[Mapping[str, Value]]) -> bool:
  """Return whether groups of runs differ in values, not only in seeds."""
  names = {name for of_group in values for name in of_group}
  seeds = {name for name in names if name.startswith("seed_") or name == "start"}
  return len(values) > 1 and bool(names) and not seeds


def best_of(outcomes: Sequence[Outcome]) -> Best | None:
  """Return which combination is best and how sure that is; None with a single unit of
  one, or with units that are not independent, such as folds. Units of the same seeds are
  paired if most have a partner in all combinations.
  """
  first = outcomes[0].runs
  higher_is_better = is_higher_better(roles(first.kept)[first.output])
  designs = [outcome.runs.design for outcome in outcomes]
  known = [design for design in designs if design and design.exchangeable]
  # One run says nothing about how sure its mean is.
  if len(known) < len(outcomes) or min(design.values.size for design in known) < 2:
    return None

  pairs = 0
  common = functools.reduce(np.intersect1d, [design.levels[0] for design in known])
  fewest = min(design.values.size for design in known)
  have_labels = {design.drawn for design in known} == {known[0].drawn} != {(RUN,)}
  # Pairs of few common seeds would leave out most runs.
  if have_labels and 2 * len(common) > fewest:
    known = [design.restricted([common]) for design in known]
    pairs = len(common)
  samples = [design.values if higher_is_better else -design.values for design in known]
  probabilities = stats.probability_of_best(*samples, paired=pairs > 0)
  # Runs that are all equal have no spread to compare with.
  if np.isnan(probabilities).any():
    return None
  # The combination with the highest probability may be one of few runs and a low mean.
  means = np.array([sample.mean() for sample in samples])
  leaders = np.flatnonzero(np.isclose(means, means.max(), rtol=1e-12, atol=0))
  return Best(probabilities.tolist(), pairs, leaders.tolist())


def describe_best(outcomes: Sequence[Outcome], best: Best) -> str:
  """Return which combination is best in a sentence."""
  leaders = [outcomes[leader] for leader in best.leaders]
  names = [format_values(leader.values) for leader in leaders]
  of = leaders[0].runs.of
  mean = show(leaders[0].mean["value"], None, of.unit)
  if len(leaders) > 1:
    return (
      f"The best mean {of.name} is {mean}, of {len(leaders)} combinations alike "
      f"({'; '.join(names[:MOST_LINES])})."
    )
  probability = 100 * best.probabilities[best.leaders[0]]
  surely = f"{probability:.0f} %"
  # Never rounded to certainty.
  if probability > 99:
    surely = "over 99 %"
  matching = "unpaired"
  if best.pairs:
    matching = f"paired by {best.pairs} seeds"
  return (
    f"Best is {names[0]}, by its mean {of.name} of {mean}: that it is the best over all "
    f"runs has a probability of {surely} ({matching})."
  )


def table_of_best(outcomes: Sequence[Outcome], best: Best) -> Table:
  """Return a row for each combination, the best first."""
  # Those with the best mean first; equal ones stay in the order of their values.
  probabilities = np.array(best.probabilities)
  probabilities[list(best.leaders)] += 1
  order = np.argsort(-probabilities, kind="stable")
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
    for values, _, mean in outcomes:
      line = format_values({other: values[other] for other in names if other != name})
      point = (values[name], mean["value"], mean["low"], mean["high"])
      lines.setdefault(line, []).append(point)
    # More lines than that are a tangle.
    drawn = dict(itertools.islice(lines.items(), MOST_LINES))
    note = ""
    if len(lines) > MOST_LINES:
      note = f", of {MOST_LINES} of the {len(lines)} combinations of the other values"
    figures[f"response_{name}"] = Figure(
      f"{capitalized(quantity.name)} against {name}",
      f"Means of the runs with 95 % intervals over other runs{note}.",
      functools.partial(plots.response_curve, drawn, name=name, of=quantity),
    )
  return figures
