"""The distribution of test-set accuracy over runs, at several training durations.

Jordan 2023/24, figure 1: more training narrows it. 60,000 runs of a ResNet-9 on CIFAR-10 for 0, 4, 16 and
64 epochs have standard deviations of 1.87, 0.56, 0.19 and 0.15 %.

    python -m experiments.jordan2024.accuracy_distributions
    python -m experiments.jordan2024.accuracy_distributions --recipe resnet9_cifar10 --runs 1000

Cost of the first, 500 runs of each of 0, 1, 16 and 64 epochs: 6 minutes on two CPU cores, once for the four
experiments that share these runs, and then 5 seconds. The second is for a GPU or TPU and was not timed.

Expected of the first, two standard errors either way: standard deviations of 3.08 ± 0.22, 3.70 ± 0.44, 0.57
± 0.04 and 0.46 ± 0.03 %, means of 9.9, 83.2, 96.3 and 96.9 %.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool

import vmapseeds as vs
from experiments import common
from experiments.common import Defaults, Spread, percent, rows, spread
from vmapseeds.cli import mistakes
from vmapseeds.reports import plots

DEFAULTS = {
  "digits_cnn": Defaults((0, 1, 16, 64), 500),
  "resnet9_cifar10": Defaults((0, 4, 16, 64), 1000),
  "": Defaults((0, 4, 16), 200),
}
PAPER = {
  "runs": 60_000,
  "sd": {0: 0.0187, 4: 0.0056, 16: 0.0019, 64: 0.0015},  # figure 1
  "range": {0: 0.132, 4: 0.066, 16: 0.017, 64: 0.014},  # figure 1: best minus worst run
  "mean": {0: 0.10, 4: None, 16: None, 64: 0.9442},  # sections 2 and 3.1
}
PATTERN = "the standard deviation of trained networks falls steeply with training, then levels off"


def compute(errors: Mapping[int, Bool[np.ndarray, "runs examples"]]) -> dict[int, Spread]:
  """Mean and standard deviation of accuracy by training duration."""
  return {epochs: spread(e) for epochs, e in errors.items()}


def plot(numbers: Mapping[int, Spread], axes: np.ndarray) -> None:
  """One histogram a duration."""
  for ax, (epochs, n) in zip(axes, numbers.items(), strict=True):
    plots.accuracy_histogram(n.accuracies, ax, examples=n.examples)
    ax.set_title(common.duration(epochs))
    common.legend_above(ax)


def main(argv: Sequence[str] | None = None) -> None:
  with mistakes():
    setting = common.settings(__file__, __doc__, argv, DEFAULTS, quick=(0, 1))
    numbers = compute({e: vs.errors(setting.train(e)) for e in setting.epochs})
    table = [
      *rows(setting, numbers, "mean accuracy", "sections 2, 3.1", PAPER["mean"],
            lambda n: percent(n.mean, n.mean_se)),
      *rows(setting, numbers, "sd of accuracy", "figure 1", PAPER["sd"], lambda n: percent(n.sd, n.sd_se)),
      *rows(setting, numbers, "best minus worst run", "figure 1", PAPER["range"],
            lambda n: percent(np.ptp(n.accuracies))),
    ]  # fmt: skip
    notes = f"{common.note(setting, PATTERN)} The range grows with the number of runs: the paper has 60,000."
    common.write(setting, numbers, PAPER, table, notes, plot, panels=len(numbers))


if __name__ == "__main__":
  main()
