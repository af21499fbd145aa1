"""Jiang 2022, table 2: error, disagreement, their gap and CACE where the test set is
shifted from the training set.

On the domain that runs were trained on, the gap is small; on others it is large, and so
is CACE.
"""

import math

import numpy as np

from experiments import estimates
from experiments.frame import Row, format_number, format_percent, row, rows_of
from experiments.jiang2022 import paper, shift
from experiments.jiang2022.shift import MISSING, Transfers, compute  # noqa: F401
from vmapseeds.reports import plots

TITLE = "Table 2: error, disagreement and CACE under a shift of the distribution"
PANELS = 2
SMALL = 0.1  # a gap below this counts as small


def rows(numbers: Transfers) -> list[Row]:
  lines = []
  for source, target, n in shift.each(numbers):
    gap = format_percent(n.gap, n.gap_se)
    cace = format_number(n.cace, n.cace_se)
    parts = (
      f"error {mean_and_sd(n.errors)}",
      f"disagreement {mean_and_sd(n.disagreement)}",
      f"gap {gap}",
      f"CACE {cace}, if calibrated {n.calibrated:.4f}",
    )
    lines.append(row(f"{source} to {target}", None, "; ".join(parts), n.runs))
  return [*lines, *patterns(numbers)]


def mean_and_sd(values: np.ndarray) -> str:
  return f"{format_percent(values.mean())}, sd {format_percent(values.std(ddof=1))}"


def patterns(numbers: Transfers) -> list[Row]:
  """The rows that compare the domains here with the paper's, for networks that are not
  pretrained.
  """
  # The third column of the paper's table has the gaps.
  theirs = np.array(paper.table2("not pretrained"))[..., 2]
  own = np.eye(len(numbers), dtype=bool)
  other = ~own
  every = [n for _, _, n in shift.each(numbers)]
  gaps = np.array([n.gap for n in every]).reshape(own.shape)
  ses = np.array([n.gap_se for n in every]).reshape(own.shape)
  runs = sum(n.runs for n in every) // len(numbers)
  within = gaps[own].mean()
  within_se = math.hypot(*ses[own]) / own.sum()
  beyond = gaps[other].mean()
  beyond_se = math.hypot(*ses[other]) / other.sum()
  claim = paper.STATED["shift"]
  further = estimates.difference_of(
    estimates.student_estimate(beyond, beyond_se, unit="%"),
    estimates.student_estimate(within, within_se, unit="%"),
  )
  where = "table 2, not pretrained"
  printed_within = (format_percent(theirs[own].mean()), where)
  printed_beyond = (format_percent(theirs[other].mean()), where)
  few = (f"{(theirs < SMALL).sum()} of {theirs.size}", where)
  small = (gaps < SMALL).sum()
  surely_small = (gaps + 2 * ses < SMALL).sum()
  ours = f"{small} of {gaps.size}, surely {surely_small}"
  return rows_of(
    runs,
    (
      "mean gap on the domain trained on",
      printed_within,
      format_percent(within, within_se),
    ),
    ("mean gap on other domains", printed_beyond, format_percent(beyond, beyond_se)),
    (claim.statistic, claim, further),
    (f"gaps below {SMALL:.0%}", few, ours),
  )


def plot(numbers: Transfers, axes: np.ndarray) -> None:
  """Heat maps of the gap and of CACE, by the domains trained on and tested on."""
  maps = (
    ("gap of error and disagreement (%)", lambda n: 100 * n.gap),
    ("CACE", lambda n: n.cace),
  )
  for ax, (title, value_of) in zip(axes, maps, strict=True):
    flat = [value_of(n) for _, _, n in shift.each(numbers)]
    values = np.reshape(flat, (len(numbers), -1))
    drawn = ax.imshow(values, cmap=plots.COUNT_COLORS, vmin=0)
    for (line, column), x in np.ndenumerate(values):
      ax.text(column, line, f"{x:.3g}", ha="center", va="center", color="white")
    for set_ticks in (ax.set_xticks, ax.set_yticks):
      set_ticks(range(len(numbers)), list(numbers))
    ax.set(xlabel="tested on", ylabel="trained on", title=title)
    ax.figure.colorbar(drawn, ax=ax, fraction=0.045, pad=0.02)
