"""Banerjee 2024, figures 12 to 14: last layers of one pretrained network.

The paper's network is a transformer that was trained on ImageNet. Here it is its small
one, trained before on the two classes of CIFAR-10 that the task leaves out.
"""

from typing import NamedTuple

import numpy as np

from experiments.banerjee2024 import candidates, fig03_epochs, paper
from experiments.banerjee2024.candidates import Source
from experiments.banerjee2024.fig03_epochs import Epochs
from experiments.estimates import Estimate
from experiments.frame import Row, Trained, format_percent, row, rows_of
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Figures 12 to 14: last layers of one pretrained network"
PANELS = 5


class Transfer(NamedTuple):
  epochs: Epochs
  source: Source
  whole: np.ndarray  # accuracies of the candidates of S_all
  optimizers: tuple[str, ...] = ()  # of last layers, of whole networks


def compute(trained: Trained) -> Transfer:
  reference, runs, labels = candidates.gaps_of(trained("last_layers"))
  return Transfer(
    fig03_epochs.by_epoch(trained("last_layers")),
    candidates.measure_source(reference, runs, labels),
    candidates.candidates_by_source(trained, ["S_all"])["S_all"].accuracy.accuracies,
    tuple(
      trained.campaigns[name].recipe.optimizer for name in ("last_layers", "S_all")
    ),
  )


def rows(numbers: Transfer) -> list[Row]:
  n = numbers.source
  accuracies = numbers.source.accuracy.accuracies
  ratio = stats.variance_ratio(accuracies, numbers.whole, paired=False)
  listed = zip(paper.TABLE14, candidates.like(n, len(paper.TABLE14)), strict=False)
  table = rows_of(
    n.runs,
    (
      "accuracy",
      ("99 %", "figure 12"),
      format_percent(n.accuracy.mean, n.accuracy.mean_se),
    ),
    ("sd of accuracy", None, format_percent(n.accuracy.sd, n.accuracy.sd_se)),
    (
      f"{paper.STATED['transfer'].statistic}, by {' and by '.join(numbers.optimizers)}",
      paper.STATED["transfer"],
      Estimate(ratio.value, *ratio.interval),
    ),
    ("α̂", ("0.004 to 0.118", "figure 14"), level_span(n)),
    *(
      (
        f"ρ of α̂ with {metric}, given accuracy",
        None,
        candidates.partial(n.order, values, accuracies).estimate(),
      )
      for metric, values in {"churn": n.churn, "ECE": n.ece}.items()
    ),
  )
  for i, (printed, ours) in enumerate(listed, 1):
    stated = candidates.in_words(*printed), "figure 14"
    table.append(row(f"no. {i} by accuracy", stated, ours, 1))
  return table


def level_span(n: Source) -> str:
  known = n.level[~np.isnan(n.level)]
  if not known.size:
    return "none"
  return f"{known.min():.3f} to {known.max():.3f}"


def plot(numbers: Transfer, axes: np.ndarray) -> None:
  """Figure 12; α̂ against accuracy; figure 13, two metrics at a time."""
  n = numbers.epochs
  fig03_epochs.draw_range_of_runs(axes[0], n.epoch, n.loss, "test loss", plots.ORANGE)
  fig03_epochs.draw_range_of_runs(
    axes[1],
    n.epoch,
    100 * n.accuracy,
    "accuracy (%)",
    plots.PURPLE,
  )
  of_source = {"S_all": numbers.source}
  candidates.scatter(
    axes[2],
    of_source,
    lambda s: s.accuracy.accuracies,
    "accuracy (%)",
  )
  candidates.beside(numbers.source, axes[3:])
