"""The variance of crossed runs, each seed of a source with each of the others, taken apart."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from vmapseeds import stats
from vmapseeds.errors import UserError
from vmapseeds.reports.documents import Table
from vmapseeds.results.formatting import show, show_interval
from vmapseeds.results.measured_runs import MeasuredRuns, values_of_runs
from vmapseeds.results.units import seeds_by_source

_CAPTION = """Variance between runs by source: the share of each and of their \
interactions, of which the last has all that is left. Analysis of variance with random \
effects; 95 % intervals for effects that are about normal. A source of few seeds is known \
roughly. Of folds they are approximate, since these share examples."""


def decompose(runs: MeasuredRuns) -> dict[str, Any] | None:
  """Return the variance by source, ready for JSON: `names`, `seeds` of each, and lists that
  have a place for each source and each interaction: `of`, `variance`, `low` and `high`.
  None unless sources are crossed.

  Seeds that lack a run, because it diverged, are left out.
  """
  sources = seeds_by_source(runs.kept)
  values = values_of_runs(runs.kept, runs.output)
  # Of runs of the same seeds only their mean would be known.
  if not sources or len(np.unique(list(sources.values()), axis=1).T) < len(values):
    return None
  # The one with most seeds first.
  ordered = sorted(sources, key=lambda name: -sources[name].max())
  # Seeds that are not crossed leave out most runs.
  try:
    design = stats.design(values, {name: sources[name] for name in ordered})
  except UserError:
    return None
  components = design.components()
  if not components:
    return None
  return {
    "names": list(design.drawn),
    "seeds": list(design.counts),
    "of": [" × ".join(component.sources) for component in components],
    "variance": [component.variance for component in components],
    "low": [component.low for component in components],
    # Accuracies lie between 0 and 1, which bounds their variance.
    "high": [min(component.high, runs.largest) for component in components],
  }


def table_of_sources(decomposition: Mapping[str, Any], unit: str) -> Table:
  """Return the variance by source: its root, the interval of that, and its share."""
  positive = np.maximum(0, decomposition["variance"])
  total = positive.sum()
  counts = dict(zip(decomposition["names"], decomposition["seeds"], strict=True))

  rows = []
  for k, name in enumerate(decomposition["of"]):
    # An interaction has no seeds of its own.
    count = str(counts.get(name, ""))
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
