"""How far apart training ends when one weight is changed by a thousandth.

Jordan 2023/24, appendix D.2, figure 12 (figure 11 of the preprint): two runs have the same seeds, and in
one of them a single random weight is multiplied by 1.001 before some training step. After 128 epochs, pairs
of ResNets on CIFAR-10 then disagree on 5.14 % of the test set and pairs of distinct seeds on 5.19 %; after
a short training on 7.0 to 7.5 % and on about 8.5 %.

    python -m experiments.jordan2023.poking
    python -m experiments.jordan2023.poking --recipe resnet9_cifar10 --runs 200

Left panels: pokes before the first step, a panel a duration. Right panel: the longest duration, poked later
and later.

@COST@
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

import vmapseeds as vs
from experiments import common
from experiments.common import Defaults, percent
from vmapseeds import data, plots, stats
from vmapseeds.cli import mistakes
from vmapseeds.errors import at_least

DEFAULTS = {
  "digits_cnn": Defaults((1, 16), 250),
  "resnet9_cifar10": Defaults((4, 128), 200),
  "": Defaults((4, 16), 100),
}
FRACTIONS = (0, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 7 / 8)  # of the longest training, at which it is poked
PAPER = {  # it says neither how long its short training is nor how many pairs there are
  "epochs": {"short": "short", "long": 128},
  "one poked": {"short": "7.0 to 7.5 %", "long": 0.0514},
  "distinct seeds": {"short": "about 8.5 %", "long": 0.0519},
}
WHERE = "appendix D.2, figure 12"
PATTERN = (
  "poked pairs disagree less than pairs of distinct seeds, nearly as much when trained for long, and the "
  "less the later they are poked"
)


class Poked(NamedTuple):
  """Test-set disagreement of matched pairs, a run and the same run poked, beside that of distinct seeds."""

  runs: int  # matched pairs, neither of which diverged
  step: int  # before which training step, of how many
  steps: int
  examples: int
  matched: float
  matched_se: float
  distinct: float  # all pairs of distinct unpoked runs
  distinct_se: float  # of a mean over pairs: 2/√R times the deviation of runs' disagreement with all others
  matched_pairs: Float[np.ndarray, " runs"]
  distinct_pairs: Float[np.ndarray, " runs"]  # each unpoked run and the next


def compute(
  unpoked: Int[np.ndarray, "runs examples"], poked: Int[np.ndarray, "runs examples"], step: int, steps: int
) -> Poked:
  """Disagreement of one poke: row i of both arrays has the same seeds."""
  runs, examples = unpoked.shape
  matched = stats.churn(unpoked, poked)
  with_others = mean_disagreement(unpoked)
  return Poked(
    runs=runs,
    step=step,
    steps=steps,
    examples=examples,
    matched=float(matched.mean()),
    matched_se=matched.std(ddof=1) / math.sqrt(runs),
    distinct=float(with_others.mean()),
    distinct_se=2 * with_others.std(ddof=1) / math.sqrt(runs),
    matched_pairs=matched,
    distinct_pairs=stats.churn(unpoked, np.roll(unpoked, -1, axis=0)),
  )


def mean_disagreement(predictions: Int[np.ndarray, "runs examples"]) -> Float[np.ndarray, " runs"]:
  """Each run's mean disagreement with the others, from how many runs predict each class of each example."""
  runs, examples = predictions.shape
  agree = np.zeros(runs)
  for label in np.unique(predictions):
    same = predictions == label
    agree += same @ (same.sum(0) - 1.0)
  return 1 - agree / (examples * (runs - 1))


def plot(numbers: Sequence[Poked], axes: np.ndarray) -> None:
  """Left, histograms over pairs, poked before the first step; right, their mean against the poke step."""
  *left, right = axes
  first = [n for n in numbers if n.step == 0]
  for ax, n in zip(left, first, strict=True):
    groups = {"one poked": n.matched_pairs, "distinct seeds": n.distinct_pairs}
    plots.disagreement_histogram(groups, ax, examples=n.examples)
    ax.set_title(f"poked before the first of {n.steps} steps")
    common.legend_above(ax)
  last = [n for n in numbers if n.steps == first[-1].steps]
  right.errorbar(
    [n.step for n in last], [100 * n.matched for n in last], [100 * n.matched_se for n in last],
    color=plots.BLUE, marker="o", capsize=3, label="one poked",
  )  # fmt: skip
  right.axhline(100 * last[0].distinct, color=plots.ORANGE, linestyle="--", label="distinct seeds")
  right.set_title(f"poked later, {last[0].steps} steps")
  right.set(xlabel="training step before which one is poked", ylabel="mean disagreement (%)", ylim=(0, None))
  right.spines[["top", "right"]].set_visible(False)
  right.grid(alpha=0.25, linewidth=0.7)
  right.legend(frameon=False, fontsize="small")


def poke(setting: common.Setting, epochs: int, step: int, steps: int) -> Poked:
  """Trains both runs of each pair. The unpoked ones are the independent runs that other experiments train."""
  unpoked = setting.train(epochs)
  poked = setting.train(epochs, vs.Runs.independent(setting.runs).poke(step), f"-poke{step}")
  kept = ~(unpoked.diverged.values | poked.diverged.values)
  return compute(unpoked.predictions.values[kept], poked.predictions.values[kept], step, steps)


def main(argv: Sequence[str] | None = None) -> None:
  with mistakes():
    setting = common.settings(__file__, __doc__, argv, DEFAULTS, quick=(1,))
    at_least("--epochs", setting.epochs[0], 1)
    epoch_steps = len(data.load(setting.recipe.dataset).train) // setting.recipe.batch_size
    later = (0, 1 / 2) if setting.quick else FRACTIONS
    numbers = [
      poke(setting, epochs, int(fraction * epochs * epoch_steps), epochs * epoch_steps)
      for epochs in setting.epochs
      for fraction in (later if epochs == setting.epochs[-1] else (0,))
    ]
    first = [n for n in numbers if n.step == 0]
    table = []
    for length, end in (("short", 0), ("long", -1)):
      n, durations = first[end], f"{PAPER['epochs'][length]} / {setting.epochs[end]}"
      for key, ours in (
        ("one poked", percent(n.matched, n.matched_se)),
        ("distinct seeds", percent(n.distinct, n.distinct_se)),
      ):
        paper = common.published(PAPER[key][length])
        table.append(common.Row(f"disagreement, {key}", durations, paper, WHERE, ours, n.runs))
    for n in numbers:
      if n.step:
        quantity = f"disagreement, one poked before step {n.step} of {n.steps}"
        ours = percent(n.matched, n.matched_se)
        table.append(common.Row(quantity, durations, "figure only", WHERE, ours, n.runs))
    common.write(setting, numbers, PAPER, table, common.note(setting, PATTERN), plot, panels=len(first) + 1)


if __name__ == "__main__":
  main()
