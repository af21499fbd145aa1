"""The variance of crossed runs, each seed of one source with each of another, taken apart."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from vmapseeds import stats
from vmapseeds.reports import groups
from vmapseeds.reports.documents import Table
from vmapseeds.results.formatting import show, show_interval
from vmapseeds.results.measured_runs import MeasuredRuns, values_of_runs

_CAPTION = """Variance between runs by source: the share of each and of their interaction, \
which has all that is left. Analysis of variance with random effects; 95 % intervals for \
effects that are about normal. A source of few seeds is known roughly."""


def seeds_by_source(runs: MeasuredRuns) -> dict[str, np.ndarray]:
  """Return the number of each run's seed, by source: of those whose seeds differ. Sources
  that vary together are one.
  """
  numbers: dict[str, np.ndarray] = {}
  for column, seeds in groups.seed_columns(runs.kept).items():
    source = str(runs.kept[column].attrs.get("source", column))
    # Seeds by the order in which they occur, so that sources that vary together agree.
    number = pd.factorize(seeds)[0]
    same = []
    for name, other in numbers.items():
      if np.array_equal(other, number):
        same.append(name)
    if same:
      numbers[f"{same[0]} and {source}"] = numbers.pop(same[0])
    elif number.any():
      numbers[source] = number
  return numbers


def decompose(runs: MeasuredRuns) -> dict[str, Any] | None:
  """Return the variance by source, ready for JSON: `names`, `seeds` of each, `variance`,
  `low` and `high` of both and of their interaction, and `mean_se`, the standard error of
  the mean over other seeds of both. None unless two sources are crossed.

  Seeds of the one with more of them that lack a run, because it diverged, are left out.
  """
  sources = seeds_by_source(runs)
  if len(sources) != 2:
    return None
  # The one with more seeds first: its rows are left out where runs diverged.
  a, b = sorted(sources, key=lambda name: -sources[name].max())
  values = values_of_runs(runs.kept, runs.output)
  table = pd.DataFrame({a: sources[a], b: sources[b], "value": values})
  if table.duplicated([a, b]).any():
    return None
  whole = table.pivot(index=a, columns=b, values="value").dropna()
  # Seeds that are not crossed leave out most runs.
  if min(whole.shape) < 2 or 2 * whole.size < len(table):
    return None
  by_source = stats.source_variances(whole.to_numpy())
  # Accuracies lie between 0 and 1, which bounds their variance.
  high = np.minimum(by_source.high, runs.largest)
  return {
    "names": [a, b],
    "seeds": list(whole.shape),
    "variance": by_source.variance.tolist(),
    "low": by_source.low.tolist(),
    "high": high.tolist(),
    "mean_se": float(by_source.mean_se),
  }


def warning_of(decomposition: Mapping[str, Any], unit: str) -> str:
  """Return what a reader must know of crossed runs."""
  a, b = decomposition["names"]
  return (
    f"Runs share seeds of {a} and of {b}: intervals take them as independent, except "
    "those of the variance by source. Over other seeds of both, the mean is known to "
    f"± {show(decomposition['mean_se'], None, unit)} (standard error)."
  )


def table_of_sources(decomposition: Mapping[str, Any], unit: str) -> Table:
  """Return the variance by source: its root, the interval of that, and its share."""
  positive = [max(0.0, variance) for variance in decomposition["variance"]]
  total = sum(positive)
  names = [*decomposition["names"], "interaction"]
  # An interaction has no seeds of its own.
  seeds = [str(count) for count in decomposition["seeds"]] + [""]

  rows = []
  for k, (name, count) in enumerate(zip(names, seeds, strict=True)):
    sd = show(_root(positive[k]), None, unit)
    low = _root(decomposition["low"][k])
    high = _root(decomposition["high"][k])
    share = "n/a"
    if total:
      share = f"{100 * positive[k] / total:.0f} %"
    rows.append((name, count, sd, show_interval(low, high, unit), share))
  headings = ("source", "seeds", "sd", "95 % interval", "share of variance")
  return Table(_CAPTION, headings, rows)


def _root(variance: float) -> float:
  # Estimates without bias fall below 0 where a variance is about 0.
  return max(0.0, variance) ** 0.5
