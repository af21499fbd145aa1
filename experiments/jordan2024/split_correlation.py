"""Whether a run that is lucky on one half of the test set is lucky on the other.

Jordan 2023/24, figure 2 and section 3.1: accuracies on two halves of the test set are correlated over runs
after a short training and nearly not at all after a long one. Of 60,000 ResNet-9s trained on CIFAR-10 for
64 epochs, the quarter that is best on one half is 0.02 % better than average on the other.

    python -m experiments.jordan2024.split_correlation
    python -m experiments.jordan2024.split_correlation --recipe resnet9_cifar10 --runs 1000

The halves are the even and the odd examples, as in the paper: the test sets of both recipes are stored shuffled.

Cost of the first, 500 runs of each of 0, 1, 16 and 64 epochs: 6 minutes on two CPU cores, once for the four
experiments that share these runs, and then 5 seconds. The second is for a GPU or TPU and was not timed.

Expected of the first, two standard errors either way: correlations of 0.83 ± 0.03, 0.89 ± 0.03, 0.36 ± 0.08
and 0.19 ± 0.09; at 64 epochs the top quarter gains 0.14 ± 0.11 %, with the halves exchanged 0.08 ± 0.07 %.
Networks of the digits keep some genuine differences even after 64 epochs.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

import vmapseeds as vs
from experiments import common
from experiments.common import number, percent, rows
from experiments.jordan2024.accuracy_distributions import DEFAULTS
from vmapseeds import stats
from vmapseeds.cli import mistakes
from vmapseeds.reports import plots

PAPER = {
  "runs": 60_000,
  "correlation": {0: "figure only", 4: "figure only", 16: "figure only", 64: "nearly none"},  # figure 2
  "top_quarter_gain": {0: None, 4: None, 16: None, 64: 0.0002},  # section 3.1
  "best_run_gain": {0: None, 4: None, 16: None, 64: "not above 0 %"},  # section 3.1
}
PATTERN = (
  "among trained networks the correlation falls from the shortest training to the longest, and with it what "
  "a lucky run is worth"
)


class Split(NamedTuple):
  """Accuracies of the runs on both halves and what the one says of the other. Gains are in accuracy."""

  runs: int
  correlation: float
  correlation_se: float
  # Mean accuracy on the second half of the quarter of the runs best on the first, minus that of all runs.
  quarter_gain: float
  quarter_gain_se: float  # of the mean of a quarter drawn without replacement
  quarter_gain_back: float  # with the halves exchanged: the paper does not say which is first
  quarter_gain_back_se: float
  best_gain: float  # the same for the single best run
  best_gain_se: float  # the deviation of runs
  first: Float[np.ndarray, " runs"]
  second: Float[np.ndarray, " runs"]


def compute(errors: Mapping[int, Bool[np.ndarray, "runs examples"]]) -> dict[int, Split]:
  """Correlation between the halves and gain from choosing on one of them, by training duration."""
  return {epochs: split(e) for epochs, e in errors.items()}


def split(errors: Bool[np.ndarray, "runs examples"]) -> Split:
  """The statistics of one duration."""
  runs, _ = errors.shape
  first, second = (1 - stats.error_rates(errors[:, half::2]) for half in (0, 1))
  quarter, best = (stats.top_fraction_gain(errors, fraction) for fraction in (1 / 4, 1 / runs))
  top = max(1, runs // 4)
  without_replacement = math.sqrt((runs - top) / (runs * top))
  return Split(
    runs=runs,
    correlation=float(stats.split_correlation(errors)),
    correlation_se=float(stats.split_correlation_se(errors)),
    quarter_gain=float(quarter.even_to_odd),
    quarter_gain_se=second.std(ddof=1) * without_replacement,
    quarter_gain_back=float(quarter.odd_to_even),
    quarter_gain_back_se=first.std(ddof=1) * without_replacement,
    best_gain=float(best.even_to_odd),
    best_gain_se=second.std(ddof=1),
    first=first,
    second=second,
  )


def plot(numbers: Mapping[int, Split], axes: np.ndarray) -> None:
  """One scatter of runs a duration."""
  for ax, (epochs, n) in zip(axes, numbers.items(), strict=True):
    plots.split_scatter(n.first, n.second, ax)
    for line in ax.lines[:1]:
      line.set_label("mean")
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    ax.set(xlabel="accuracy on the first half (%)", ylabel="accuracy on the second half (%)")
    ax.set_title(f"{common.duration(epochs)}: r = {number(n.correlation, n.correlation_se)}")


def main(argv: Sequence[str] | None = None) -> None:
  with mistakes():
    setting = common.settings(__file__, __doc__, argv, DEFAULTS, quick=(0, 1))
    numbers = compute({e: vs.errors(setting.train(e)) for e in setting.epochs})
    table = [
      *rows(setting, numbers, "correlation of the halves", "figure 2", PAPER["correlation"],
            lambda n: number(n.correlation, n.correlation_se)),
      *rows(setting, numbers, "gain of the top quarter", "section 3.1", PAPER["top_quarter_gain"],
            lambda n: percent(n.quarter_gain, n.quarter_gain_se)),
      *rows(setting, numbers, "gain of the top quarter, halves exchanged", "section 3.1",
            PAPER["top_quarter_gain"], lambda n: percent(n.quarter_gain_back, n.quarter_gain_back_se)),
      *rows(setting, numbers, "gain of the best run", "section 3.1", PAPER["best_run_gain"],
            lambda n: percent(n.best_gain, n.best_gain_se)),
    ]  # fmt: skip
    notes = (
      f"{common.note(setting, PATTERN)} The paper's 0.02 % does not fit its own distribution-wise deviation "
      "of 0.033 %, from which 0.007 % follows, with a standard error of 0.002 % at 60,000 runs."
    )
    common.write(setting, numbers, PAPER, table, notes, plot, panels=len(numbers))


if __name__ == "__main__":
  main()
