"""How far apart training ends when one weight is changed by a thousandth.

Jordan 2023/24, appendix D.2, figure 11: two runs have the same seeds, and in
one of them a single random weight is multiplied by 1.001 before some training step. After 128 epochs, pairs
of ResNets on CIFAR-10 then disagree on 5.14 % of the test set and pairs of distinct seeds on 5.19 %; after
a short training on 7.0 to 7.5 % and on about 8.5 %.

    python -m experiments.jordan2024.poking
    python -m experiments.jordan2024.poking --recipe resnet9_cifar10 --runs 200

Left panels: pokes before the first step, a panel a duration. Right panel: the longest duration, poked later
and later.

Cost of the first, 100 pairs of each of 1, 16 and 64 epochs and five later pokes: 5 minutes on two CPU
cores, and one more if no other experiment has trained the unpoked runs. The second is for a GPU or TPU and
was not timed.

Expected of the first, two standard errors either way: poked pairs disagree on 0.02 ± 0.02, 0.38 ± 0.08 and
0.74 ± 0.08 %, pairs of distinct seeds on 17.9 ± 0.9, 3.16 ± 0.13 and 2.59 ± 0.10 %. So small a network on
the digits is far less sensitive than the paper's, but the longer it is trained, the more.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

import vmapseeds as vs
from experiments import common
from experiments.common import Defaults, number, percent
from vmapseeds import stats
from vmapseeds.cli import mistakes
from vmapseeds.mistakes import at_least
from vmapseeds.reports import plots
from vmapseeds.training.supervised import dataset_of

DEFAULTS = {
  "digits_cnn": Defaults((1, 16, 64), 100),
  "resnet9_cifar10": Defaults((4, 128), 200),
  "": Defaults((4, 16), 100),
}
FRACTIONS = (0, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 7 / 8)  # of the longest training, at which it is poked
PAPER = {  # it says neither how long its short training is nor how many pairs there are
  "epochs": {"short": "short", "long": 128},
  "one poked": {"short": "7.0 to 7.5 %", "long": 0.0514},
  "distinct seeds": {"short": "about 8.5 %", "long": 0.0519},
  "ratio of these": {"short": "0.82 to 0.88", "long": "0.99"},
}
WHERE = "figure 11"
PATTERN = (
  "the longer the training, the nearer is the disagreement of poked pairs to that of distinct seeds; the "
  "later the poke, the smaller it is"
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
  ratio: float  # matched over distinct
  ratio_se: float
  matched_pairs: Float[np.ndarray, " runs"]
  distinct_pairs: Float[np.ndarray, " runs"]  # each unpoked run and the next


def compute(
  unpoked: Int[np.ndarray, "runs examples"], poked: Int[np.ndarray, "runs examples"], step: int, steps: int
) -> Poked:
  """Disagreement of one poke: row i of both arrays has the same seeds."""
  runs, examples = unpoked.shape
  pairs = stats.churn(unpoked, poked)
  with_others = mean_disagreement(unpoked)
  matched, matched_se = float(pairs.mean()), pairs.std(ddof=1) / math.sqrt(runs)
  distinct, distinct_se = float(with_others.mean()), 2 * with_others.std(ddof=1) / math.sqrt(runs)
  ratio = matched / distinct if distinct else math.nan
  return Poked(
    runs=runs,
    step=step,
    steps=steps,
    examples=examples,
    matched=matched,
    matched_se=matched_se,
    distinct=distinct,
    distinct_se=distinct_se,
    ratio=ratio,
    ratio_se=math.hypot(matched_se, ratio * distinct_se) / distinct if distinct else math.nan,
    matched_pairs=pairs,
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
    groups = {"one poked": n.matched_pairs, "each run and the next": n.distinct_pairs}
    plots.disagreement_histogram(groups, ax, examples=n.examples)
    ax.set_title(f"poked before the first of {n.steps} steps")
    common.legend_above(ax)
  last = [n for n in numbers if n.steps == first[-1].steps]
  right.errorbar(
    [n.step for n in last], [100 * n.matched for n in last], [100 * n.matched_se for n in last],
    color=plots.BLUE, marker="o", capsize=3, label="one poked",
  )  # fmt: skip
  right.axhline(100 * last[0].distinct, color=plots.ORANGE, linestyle="--", label="distinct seeds, all pairs")
  right.set_title(f"poked later, {last[0].steps} steps")
  right.set(xlabel="training step before which one is poked", ylabel="mean disagreement (%)", ylim=(0, None))
  right.spines[["top", "right"]].set_visible(False)
  right.grid(alpha=0.25, linewidth=0.7)
  right.xaxis.get_major_locator().set_params(integer=True)
  common.legend_above(right)


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
    recipe = setting.recipe
    examples = dataset_of(recipe)
    epoch_steps = len(examples.train) // recipe.batch_size
    later = (0, 1 / 2) if setting.quick else FRACTIONS
    numbers = [
      poke(setting, epochs, int(fraction * epochs * epoch_steps), epochs * epoch_steps)
      for epochs in setting.epochs
      for fraction in (later if epochs == setting.epochs[-1] else (0,))
    ]
    first = [n for n in numbers if n.step == 0]
    lengths = {0: "short", len(first) - 1: "long"}  # the paper's, beside our shortest and longest
    table = []
    for name, ours in (
      ("one poked", lambda n: percent(n.matched, n.matched_se)),
      ("distinct seeds", lambda n: percent(n.distinct, n.distinct_se)),
      ("ratio of these", lambda n: number(n.ratio, n.ratio_se)),
    ):
      for i, (n, epochs) in enumerate(zip(first, setting.epochs, strict=True)):
        length = lengths.get(i)
        paper = common.published(PAPER[name][length]) if length else "—"
        durations = f"{PAPER['epochs'][length] if length else '—'} / {epochs}"
        quantity = f"predictions that differ: {name}"
        table.append(common.Row(quantity, durations, paper, WHERE if length else "—", ours(n), n.runs))
    for n in numbers:
      if n.step:
        quantity = f"one poked before step {n.step} of {n.steps}"
        durations = f"{PAPER['epochs']['long']} / {setting.epochs[-1]}"
        ours = percent(n.matched, n.matched_se)
        table.append(common.Row(quantity, durations, "figure only", WHERE, ours, n.runs))
    common.write(setting, numbers, PAPER, table, common.note(setting, PATTERN), plot, panels=len(first) + 1)


if __name__ == "__main__":
  main()
