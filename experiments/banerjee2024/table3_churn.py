"""Banerjee 2024, table 3 and figure 8: pairs of runs whose α̂ is small do not disagree
much.

The converse does not hold: pairs that agree may have a large α̂.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from experiments import frame
from experiments.banerjee2024 import candidates, paper
from experiments.banerjee2024.candidates import Source
from experiments.frame import Row, Trained, of_runs
from vmapseeds.reports import plots

TITLE = "Table 3, figure 8: churn of pairs by what varies, and where both α̂ are small"
PANELS = 3


def compute(trained: Trained) -> dict[str, Source]:
  return candidates.sources(trained)


def churn_of_pairs(n: Source) -> list[Float[np.ndarray, " pairs"]]:
  """The churn of all pairs, and of those with two small α̂."""
  return [np.repeat(np.arange(len(counts)), counts) / n.examples for counts in n.pairs]


def rows(numbers: Mapping[str, Source]) -> list[Row]:
  table = []
  for name, n in numbers.items():
    printed, (churn, small) = paper.SOURCES[name], churn_of_pairs(n)
    out = candidates.excluded(n.mean_churn, n.small)
    judged = name != "S_init"  # for S_init the paper has two small α̂ at all churns
    table += of_runs(
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
        paper.CLAIMS["churns"] if judged else None,
        f"{out.runs} (p = {out.p_value:.2g})",
        candidates.leaves_out(out),
      ),
    )
  return table


def plot(numbers: Mapping[str, Source], axes: np.ndarray) -> None:
  """The churn of pairs: all, and those with two small α̂."""
  for ax, (name, n) in zip(axes, numbers.items(), strict=True):
    every, small = churn_of_pairs(n)
    edges = plots.bin_edges([every], n.examples)
    ax.hist(100 * every, 100 * edges, color=plots.SKY, alpha=0.7, label="all pairs")
    ax.hist(
      100 * small,
      100 * edges,
      color=plots.BLUE,
      alpha=0.7,
      label=f"both α̂ ≤ {candidates.SMALL}",
    )
    ax.set(xlabel="churn (% of the test examples)", ylabel="pairs", title=name)
    frame.legend_above(ax)
