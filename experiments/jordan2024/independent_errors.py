"""Whether the variance of test-set accuracy is what independent errors on the test examples would give.

Jordan 2023/24, figure 3 and section 3.2. If each example went wrong with its own probability, independently
of the others, the accuracy's variance would be the sum of ε(1 - ε)/n². Short trainings vary more than that,
long ones do not: 60,000 ResNet-9s on CIFAR-10 have a predicted standard deviation of 0.22 % against 0.56 %
at 4 epochs, and of 0.145 % against 0.149 % at 64.

    python -m experiments.jordan2024.independent_errors
    python -m experiments.jordan2024.independent_errors --recipe resnet9_cifar10 --runs 1000

Cost of the first, 500 runs of each of 0, 1, 16 and 64 epochs: 6 minutes on two CPU cores, once for the four
experiments that share these runs, and then 5 seconds. The second is for a GPU or TPU and was not timed.

Expected of the first, two standard errors either way: the variance is 8.5 ± 1.2, 15.4 ± 3.7, 1.90 ± 0.25
and 1.53 ± 0.19 times the prediction.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool
from matplotlib.ticker import LogLocator, NullLocator

import vmapseeds as vs
from experiments import common
from experiments.common import Spread, number, percent, relative_error, root, rows, spread
from experiments.jordan2024.accuracy_distributions import DEFAULTS
from vmapseeds import stats
from vmapseeds.cli import mistakes
from vmapseeds.reports import plots

PAPER = {
  "runs": 60_000,
  "sd": {0: 0.0187, 4: 0.0056, 16: 0.0019, 64: 0.00149},  # figure 1; section 3.3 for 64 epochs
  "independent_sd": {0: None, 4: 0.0022, 16: None, 64: 0.00145},  # sections 3.3, 3.2
}
PATTERN = "the variance is far above the prediction after a short training and comes near it after a long one"


class Independence(NamedTuple):
  """Test-set variance beside the one that independent errors predict."""

  runs: int
  accuracy: Spread
  independent_sd: float
  independent_sd_se: float  # jackknife over runs
  variance_ratio: float  # observed over predicted
  variance_ratio_se: float  # that of the observed variance: the prediction's own is much smaller


def compute(errors: Mapping[int, Bool[np.ndarray, "runs examples"]]) -> dict[int, Independence]:
  """Observed and predicted standard deviation of accuracy, by training duration."""
  return {epochs: independence(e) for epochs, e in errors.items()}


def independence(errors: Bool[np.ndarray, "runs examples"]) -> Independence:
  """The comparison for one duration."""
  runs = len(errors)
  variance = float(stats.independent_errors_variance(errors))
  sd, se = root(variance, jackknife_se(errors))
  accuracy = spread(errors)
  ratio = accuracy.sd**2 / variance if variance else math.nan
  return Independence(runs, accuracy, sd, se, ratio, 2 * ratio * relative_error(accuracy))


def jackknife_se(errors: Bool[np.ndarray, "runs examples"]) -> float:
  """Standard error of the independent-errors variance over runs, by leaving out one run at a time.

  With w errors on an example in R runs, leaving out run h changes Σ w(R - w) by e_h (2w - R) and what is the
  same for all h.
  """
  runs, examples = errors.shape
  if runs < 3:
    return math.nan
  wrong = errors.sum(0, dtype=np.float64)
  left_out = errors @ (2 * wrong - runs) / ((runs - 1) * (runs - 2) * examples**2)
  return math.sqrt((runs - 1) * left_out.var())


def plot(numbers: Mapping[int, Independence], axes: np.ndarray) -> None:
  """Left, a histogram a duration with the predicted curve; right, both deviations against duration."""
  *left, right = axes
  for ax, (epochs, n) in zip(left, numbers.items(), strict=True):
    observed = n.accuracy
    plots.accuracy_histogram(
      observed.accuracies, ax, examples=observed.examples, independent_sd=n.independent_sd
    )
    ax.set_title(common.duration(epochs))
    common.legend_above(ax)
  x = np.arange(len(numbers))
  observed = [(n.accuracy.sd, n.accuracy.sd_se) for n in numbers.values()]
  predicted = [(n.independent_sd, n.independent_sd_se) for n in numbers.values()]
  for name, color, values in (
    ("observed", plots.BLUE, observed),
    ("errors independent", plots.VERMILION, predicted),
  ):
    sd, se = 100 * np.array(values).T
    right.errorbar(x, sd, se, color=color, marker="o", capsize=3, label=name)
  right.set(xlabel="training duration (epochs)", ylabel="standard deviation of accuracy (%)", yscale="log")
  right.set_xticks(x, [str(e) for e in numbers])
  right.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5, 7)))
  right.yaxis.set_major_formatter("{x:g}")
  right.yaxis.set_minor_locator(NullLocator())
  right.spines[["top", "right"]].set_visible(False)
  right.grid(alpha=0.25, linewidth=0.7)
  right.legend(frameon=False, fontsize="small")


def main(argv: Sequence[str] | None = None) -> None:
  with mistakes():
    setting = common.settings(__file__, __doc__, argv, DEFAULTS, quick=(0, 1))
    numbers = compute({e: vs.errors(setting.train(e)) for e in setting.epochs})
    independent = PAPER["independent_sd"]
    ratios = {e: sd and f"{PAPER['sd'][e] ** 2 / sd**2:.3g}" for e, sd in independent.items()}
    table = [
      *rows(setting, numbers, "sd of accuracy", "figure 1, section 3.3", PAPER["sd"],
            lambda n: percent(n.accuracy.sd, n.accuracy.sd_se)),
      *rows(setting, numbers, "sd if errors were independent", "sections 3.2, 3.3", independent,
            lambda n: percent(n.independent_sd, n.independent_sd_se)),
      *rows(setting, numbers, "variance, observed over independent", "from the above", ratios,
            lambda n: number(n.variance_ratio, n.variance_ratio_se)),
    ]  # fmt: skip
    notes = common.note(setting, PATTERN)
    common.write(setting, numbers, PAPER, table, notes, plot, panels=len(numbers) + 1)


if __name__ == "__main__":
  main()
