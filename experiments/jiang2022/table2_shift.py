"""Jiang 2022, table 2: error, disagreement, their gap and CACE where the test set is
shifted from the training set.

On the domain that runs were trained on, the gap is small; on others it is large, and so
is CACE.
"""

import math

import numpy as np

from experiments import claims
from experiments.frame import Row, number, of_runs, percent, row
from experiments.jiang2022 import paper, shift
from experiments.jiang2022.shift import MISSING, Transfers, compute  # noqa: F401
from vmapseeds.reports import plots

TITLE = "Table 2: error, disagreement and CACE under a shift of the distribution"
PANELS = 2
SMALL = 0.1  # a gap below this counts as small


def rows(numbers: Transfers) -> list[Row]:
  made = []
  for source, target, n in shift.each(numbers):
    ours = (
      f"error {percent(n.errors.mean())}, sd {percent(n.errors.std(ddof=1))}; "
      f"disagreement {percent(n.disagreement.mean())}, sd {percent(n.disagreement.std(ddof=1))}; "
      f"gap {percent(n.gap, n.gap_se)}; CACE {number(n.cace, n.cace_se)}, if calibrated {n.calibrated:.4f}"
    )
    made.append(row(f"{source} to {target}", None, ours, n.runs))
  return [*made, *patterns(numbers)]


def patterns(numbers: Transfers) -> list[Row]:
  """The rows that compare the domains here with the paper's, for networks that are not
  pretrained.
  """
  theirs = np.array(paper.table2("not pretrained"))[..., 2]
  own = np.eye(len(numbers), dtype=bool)
  every = [n for _, _, n in shift.each(numbers)]
  gaps, ses = np.array([(n.gap, n.gap_se) for n in every]).T.reshape(2, *own.shape)
  runs = sum(n.runs for n in every) // len(numbers)
  (within, within_se), (beyond, beyond_se) = (
    (gaps[which].mean(), math.hypot(*ses[which]) / which.sum()) for which in (own, ~own)
  )
  printed = [
    (percent(theirs[which].mean()), "table 2, not pretrained") for which in (own, ~own)
  ]
  claim = paper.CLAIMS["shift"]
  further = claims.less(
    *(
      claims.estimated(*of, unit="%")
      for of in ((beyond, beyond_se), (within, within_se))
    )
  )
  few = (f"{(theirs < SMALL).sum()} of {theirs.size}", "table 2, not pretrained")
  ours = (
    f"{(gaps < SMALL).sum()} of {gaps.size}, surely {(gaps + 2 * ses < SMALL).sum()}"
  )
  return of_runs(
    runs,
    ("mean gap on the domain trained on", printed[0], percent(within, within_se)),
    ("mean gap on other domains", printed[1], percent(beyond, beyond_se)),
    (claim.statistic, claim, further),
    (f"gaps below {SMALL:.0%}", few, ours),
  )


def plot(numbers: Transfers, axes: np.ndarray) -> None:
  """Heat maps of the gap and of CACE, by the domains trained on and tested on."""
  shown = (
    ("gap of error and disagreement (%)", lambda n: 100 * n.gap),
    ("CACE", lambda n: n.cace),
  )
  for ax, (title, of) in zip(axes, shown, strict=True):
    values = np.array([of(n) for _, _, n in shift.each(numbers)]).reshape(
      len(numbers), -1
    )
    drawn = ax.imshow(values, cmap=plots.COUNT_COLORS, vmin=0)
    for (line, column), x in np.ndenumerate(values):
      ax.text(column, line, f"{x:.3g}", ha="center", va="center", color="white")
    for set_ticks in (ax.set_xticks, ax.set_yticks):
      set_ticks(range(len(numbers)), list(numbers))
    ax.set(xlabel="tested on", ylabel="trained on", title=title)
    ax.figure.colorbar(drawn, ax=ax, fraction=0.045, pad=0.02)
