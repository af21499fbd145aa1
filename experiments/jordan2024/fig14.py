"""Jordan 2024, figure 14 [13]: the pairs of test examples whose errors are farthest from independent.

python -m experiments.jordan2024.fig14 --runs 200     8×8 digits, a minute on two cores; run it again to resume
python -m experiments.jordan2024.fig14 --recipe resnet9_cifar10 --epochs 64 --runs 60000     as the paper
python -m experiments.jordan2024.fig14 --kept docs/gallery/mnist --epochs 12     of kept predictions

The paper counts pairs whose probability that both are right deviates from independence by
more than 2 %. With few runs chance alone takes many pairs beyond that, so the number
expected by chance stands beside the number found.
"""

import matplotlib.pyplot as plt
import numpy as np

from experiments import scripts
from experiments.estimates import student_estimate
from experiments.jordan2024 import runs
from experiments.scripts import exactly, row
from vmapseeds import stats

PAPER = "5 of 49,995,000 pairs; of independent errors → both right: 46.76 → 59.78 %"
LEAST = 0.02
SHOWN = 5


def measure(tallies: stats.Tallies) -> dict:
  """Return how many pairs deviate by more than each threshold, found and by chance, and
  rows.
  """
  beyond = tallies.dependent_pairs(LEAST)
  deviations = np.sort(abs(beyond.joint - beyond.product))
  thresholds = np.linspace(LEAST, max(2 * LEAST, deviations.max(initial=0)), 31)
  found = len(deviations) - np.searchsorted(deviations, thresholds, side="right")
  rates = tallies.example_error_rates()
  by_chance = [
    float(stats.expected_false_pairs(rates, tallies.runs, threshold))
    for threshold in thresholds
  ]
  most = tallies.most_dependent_pairs(SHOWN)
  return {
    "title": "Figure 14 [13]",
    "pairs": tallies.examples * (tallies.examples - 1) // 2,
    "thresholds": thresholds,
    "found": found,
    "by_chance": by_chance,
    "rows": rows_of(int(found[0]), by_chance[0], most._asdict(), tallies.runs),
  }


def rows_of(found: int, by_chance: float, most: dict, count: int) -> list[dict]:
  deviate = "pairs that deviate by more than 2 %"
  rows = [
    row(deviate, exactly(found), count),
    row(f"{deviate}, by chance alone", exactly(by_chance), count),
  ]
  pairs = zip(most["i"], most["j"], most["joint"], most["product"], strict=True)
  for k, (i, j, joint, product) in enumerate(pairs, 1):
    se = (joint * (1 - joint) / count) ** 0.5
    name = f"pair {k}, examples {i} and {j}"
    rows += [
      row(f"{name}: both right", student_estimate(joint, se, unit="%"), count),
      row(f"{name}: if independent", exactly(product, "%"), count),
    ]
  return rows


def draw(numbers: dict) -> plt.Figure:
  figure, ax = plt.subplots(layout="constrained")
  per_cent = 100 * np.array(numbers["thresholds"])
  ax.plot(per_cent, numbers["found"], label="found")
  ax.plot(per_cent, numbers["by_chance"], "--", label="by chance alone")
  ax.set_yscale("symlog", linthresh=1)
  ax.set(xlabel="deviation of P(both right), at least (%)", ylabel="pairs of examples")
  ax.set(ylim=(0, None))
  ax.legend()
  return figure


def main(words: list[str] | None = None) -> None:
  flags = runs.make_parser(__doc__, 64).parse_args(words)
  scripts.save("fig14", measure(runs.tallies_of(flags)), draw, flags.out, PAPER)


if __name__ == "__main__":
  main()
