"""Banerjee 2024, table 3 and figure 8: pairs of runs whose α̂ is small do not disagree
much.

The converse does not hold: pairs that agree may have a large α̂.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from experiments.banerjee2024 import candidates, paper
from experiments.banerjee2024.candidates import Source
from experiments.frame import Row, Trained, rows_of
from vmapseeds.reports import plots

TITLE = "Table 3, figure 8: churn of pairs by what varies, and where both α̂ are small"
PANELS = 3


def compute(trained: Trained) -> dict[str, Source]:
  return candidates.candidates_by_source(trained)


def pair_levels(n: Source) -> Float[np.ndarray, "2 pairs"]:
  """The α̂ of both runs of each pair."""
  return np.stack([n.level[k] for k in np.triu_indices(n.runs, 1)])


def rows(numbers: Mapping[str, Source]) -> list[Row]:
  table = []
  for name, n in numbers.items():
    printed = paper.SOURCES[name]
    churn = n.pairs / n.examples
    small = churn[(pair_levels(n) <= candidates.SMALL).all(0)]
    out = candidates.excluded(n.mean_churn, n.small)
    judged = name != "S_init"  # for S_init the paper has two small α̂ at all churns
    table += rows_of(
      n.runs,
      (
        f"{name}: churn of pairs",
        (candidates.span(printed.churn), "table 3"),
        candidates.span(churn),
      ),
      (
        f"{name}: churn of pairs where both α̂ are small",
        (candidates.span(printed.churn_small), "table 3"),
        candidates.span(small),
      ),
      (
        f"{name}: mean churn with the others where α̂ is small",
        None,
        candidates.span(n.mean_churn[n.small]),
      ),
      (
        f"{name}: runs with a larger mean churn than all with a small α̂",
        paper.STATED["churns"] if judged else None,
        f"{out.runs} (p = {out.p_value:.2g})",
      ),
    )
  return table


def plot(numbers: Mapping[str, Source], axes: np.ndarray) -> None:
  """The churn of each pair against the larger α̂; pairs without are left out."""
  for (name, n), flat in zip(numbers.items(), axes, strict=True):
    levels = pair_levels(n)
    churn = 100 * n.pairs / n.examples
    style = {"s": 8, "color": candidates.COLORS[name], "alpha": 0.5, "linewidths": 0}
    flat.scatter(levels.max(0), churn, **style)
    flat.axvline(candidates.SMALL, color=plots.INK, linewidth=0.9, linestyle=":")
    flat.set(xlabel="larger α̂ of the pair", ylabel="churn (% of the test examples)")
    flat.set_title(name)
    flat.grid(True)
