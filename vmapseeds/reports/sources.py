"""The variance of crossed runs, each seed of one source with each of another, taken apart."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from vmapseeds import stats
from vmapseeds.reports import groups
from vmapseeds.reports.pages import Table
from vmapseeds.results.formatting import show, show_interval
from vmapseeds.results.statistics import MeasuredRuns, values_of_runs

_CAPTION = """Variance between runs by source: the share of each and of their interaction, \
which has all that is left. Analysis of variance with random effects; 95 % intervals for \
effects that are about normal. A source of few seeds is known roughly."""


def seeds_by_source(runs: MeasuredRuns) -> dict[str, np.ndarray]:
  """Return the number of each run's seed, by source: of those whose seeds differ. Sources
  that vary together are one.
  """
  found: dict[str, np.ndarray] = {}
  for name, column in groups.seed_columns(runs.kept).items():
    source = str(runs.kept[name].attrs.get("source", name))
    number = pd.factorize(column)[0]
    same = [s for s, other in found.items() if np.array_equal(other, number)]
    if same:
      found[f"{same[0]} and {source}"] = found.pop(same[0])
    elif number.any():
      found[source] = number
  return found


def decompose(runs: MeasuredRuns) -> dict[str, Any] | None:
  """Return the variance by source, ready for JSON: `names`, `seeds` of each, `variance`,
  `low` and `high` of both and of their interaction, and `mean_se`, the standard error of
  the mean over other seeds of both. None unless two sources are crossed.

  Seeds of the one with more of them that lack a run, because it diverged, are left out.
  """
  sources = seeds_by_source(runs)
  if len(sources) != 2:
    return None
  (a, first), (b, second) = sorted(sources.items(), key=lambda s: -s[1].max())
  table = pd.DataFrame(
    {a: first, b: second, "value": values_of_runs(runs.kept, runs.output)}
  )
  if table.duplicated([a, b]).any():
    return None
  whole = table.pivot(index=a, columns=b, values="value").dropna()
  if min(whole.shape) < 2 or 2 * whole.size < len(table):
    return None
  found = stats.source_variances(whole.to_numpy())
  return {
    "names": [a, b],
    "seeds": [*whole.shape],
    "variance": found.variance.tolist(),
    "low": found.low.tolist(),
    "high": np.minimum(found.high, runs.largest).tolist(),
    "mean_se": float(found.mean_se),
  }


def warning_of(found: Mapping[str, Any], unit: str) -> str:
  """Return what a reader must know of crossed runs."""
  a, b = found["names"]
  return (
    f"Runs share seeds of {a} and of {b}: intervals take them as independent, except "
    "those of the variance by source. Over other seeds of both, the mean is known to "
    f"± {show(found['mean_se'], None, unit)} (standard error)."
  )


def table_of_sources(found: Mapping[str, Any], unit: str) -> Table:
  """Return the variance by source: its root, the interval of that, and its share."""
  total = sum(max(0.0, of) for of in found["variance"])
  names = *found["names"], "interaction"
  seeds = *map(str, found["seeds"]), ""
  rows = []
  for k, (name, count) in enumerate(zip(names, seeds, strict=True)):
    variance, low, high = (found[end][k] for end in ("variance", "low", "high"))
    sd, low, high = (max(0.0, of) ** 0.5 for of in (variance, low, high))
    share = f"{100 * max(0.0, variance) / total:.0f} %" if total else "n/a"
    rows.append(
      (name, count, show(sd, None, unit), show_interval(low, high, unit), share)
    )
  return Table(
    _CAPTION, ("source", "seeds", "sd", "95 % interval", "share of variance"), rows
  )
