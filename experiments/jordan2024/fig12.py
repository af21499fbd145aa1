"""Jordan 2024, figure 12 [10] and appendix C: is a run that is good on one test set good on another?

python -m experiments.jordan2024.fig12 --runs 16     8×8 digits, a minute on two cores; run it again to resume
python -m experiments.jordan2024.fig12 --recipe experiments.jordan2024.runs:MLP_MNIST --runs 150     the gallery's

Correlations over runs between the accuracies on a test set and its shifted versions.
These have the same images, so a run that is lucky on one would be lucky on the other:
therefore a pair compares the even examples of the first with the odd ones of the second.
The runs are those of figure 9.
"""

import itertools

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Bool

from experiments import scripts
from experiments.jordan2024 import runs
from experiments.scripts import exactly, of_runs, row
from vmapseeds import stats

PAPER = "R² below 0.01 on ImageNet and shifted; p < 0.05 for 4 of 10 pairs"
LEVEL = 0.05


def measure(errors: dict[str, Bool[np.ndarray, "runs examples"]]) -> dict:
  """Return the accuracies on both halves of each test set, and rows."""
  halves = {
    name: [1 - x[:, ::2].mean(1), 1 - x[:, 1::2].mean(1)] for name, x in errors.items()
  }
  return {"title": "Figure 12 [10]", "halves": halves, "rows": rows_of(halves)}


def rows_of(halves: dict) -> list[dict]:
  """Return the correlations, and for how many pairs p, from Student's t, is below 0.05;
  chance gives that for one in twenty.
  """
  rows, significant = [], 0
  for first, second in itertools.combinations(halves, 2):
    even, odd = np.asarray(halves[first][0]), np.asarray(halves[second][1])
    found = stats.correlation_over_runs(even, odd)
    quantity = f"correlation on {first} and {second}"
    rows.append(row(quantity, of_runs(found), len(even)))
    significant += bool(stats.correlation_p_value(float(found), len(even)) < LEVEL)
  quantity = f"pairs with p < {LEVEL}, of {len(rows)}"
  return [*rows, row(quantity, exactly(significant), len(even))]


def draw(numbers: dict) -> plt.Figure:
  figure, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
  found = [r for r in numbers["rows"] if r["quantity"].startswith("correlation on ")]
  value, low, high = np.array([[r["value"], r["low"], r["high"]] for r in found]).T
  ax.errorbar(value, range(len(found)), None, [value - low, high - value], "o")
  pairs = [r["quantity"].removeprefix("correlation on ") for r in found]
  ax.set_yticks(range(len(pairs)), pairs, fontsize="small")
  ax.axvline(0, color="0.4", linestyle="--")
  ax.set(xlabel="correlation over runs: even examples, odd examples")
  return figure


def main(words: list[str] | None = None) -> None:
  flags = runs.make_parser(__doc__, 16).parse_args(words)
  scripts.save("fig12", measure(runs.errors_by_set(flags)), draw, flags.out, PAPER)


if __name__ == "__main__":
  main()
