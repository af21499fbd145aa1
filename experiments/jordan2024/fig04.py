"""Jordan 2024, figure 4: two test examples on which runs err independently, and how many pairs are like them.

python -m experiments.jordan2024.fig04 --runs 200     8×8 digits, a minute on two cores; run it again to resume
python -m experiments.jordan2024.fig04 --recipe resnet9_cifar10 --epochs 64 --runs 60000     as the paper
python -m experiments.jordan2024.fig04 --kept docs/gallery/mnist --epochs 12     of kept predictions

The two examples are those whose shares of right runs are nearest to the paper's; whether
they depend on each other plays no part in the choice. Beside them stand the p-values of
all pairs of examples that 30 to 70 % of the runs get right: uniform under independence.
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy.stats
from jaxtyping import Float, Int

from experiments import scripts
from experiments.estimates import student_estimate
from experiments.jordan2024 import runs
from experiments.scripts import exactly, row
from vmapseeds import stats

RIGHT = (0.362, 0.607)  # shares of 60,000 runs that have the paper's two images right
PAPER = "36.2 and 60.7 % right, both 21.83 %, their product 21.97 %: p = 0.16"
MIDDLE = (0.3, 0.7)
EDGES = np.linspace(0, 1, 21)  # of the histogram of p-values


def measure(tallies: stats.Tallies) -> dict:
  """Return the pair, the p-values of all pairs counted in bins, and rows."""
  count = tallies.runs
  rates = 1 - tallies.example_error_rates()
  first = int(abs(rates - RIGHT[0]).argmin())
  away = abs(rates - RIGHT[1])
  away[first] = np.inf
  pair = np.array([first, int(away.argmin())])
  right = rates[pair]
  # Runs that are wrong on either count once: both wrong are counted twice before.
  both = right.sum() - 1 + tallies.joint_errors[tuple(pair)] / count
  # Of independent errors, which the paper's pair has
  se = np.sqrt((right * (1 - right)).prod() / count)
  middle = np.flatnonzero((rates >= MIDDLE[0]) & (rates <= MIDDLE[1]))
  counted, _ = np.histogram(p_values(tallies, middle), EDGES)
  found = {
    "runs that have the first example right": share(right[0], count),
    "runs that have the second example right": share(right[1], count),
    "runs that have both right": share(both, count),
    "the same, less the product": student_estimate(both - right.prod(), se, unit="%"),
    "p-value of the χ² test": exactly(float(p_values(tallies, pair)[0])),
    "pairs of examples 30 to 70 % right": exactly(int(counted.sum())),
    "... with p < 0.05; 5 % by chance": exactly(
      counted[0] / counted.sum() if counted.sum() else np.nan, "%"
    ),
  }
  rows = [row(quantity, x, count) for quantity, x in found.items()]
  return {"title": "Figure 4", "examples": pair, "counted": counted, "rows": rows}


def share(p: float, count: int):
  """Return a share of runs, with the interval of its binomial standard error."""
  return student_estimate(float(p), float(p * (1 - p) / count) ** 0.5, unit="%")


def p_values(
  tallies: stats.Tallies, examples: Int[np.ndarray, " examples"]
) -> Float[np.ndarray, " pairs"]:
  """Return those of the χ² test of independence for each pair of some examples; 1 if an
  example is right in all runs or in none.
  """
  wrong = tallies.wrong[examples].astype(float)
  i, j = np.triu_indices(len(examples), 1)
  joint = tallies.joint_errors[examples[i], examples[j]]
  # Pearson's χ² of a table of two by two, from its counts.
  count = tallies.runs
  covariance = count * joint - wrong[i] * wrong[j]
  spread = wrong[i] * (count - wrong[i]) * wrong[j] * (count - wrong[j])
  varies = spread > 0
  chi_squared = count * covariance**2 / np.where(varies, spread, 1)
  return scipy.stats.chi2.sf(np.where(varies, chi_squared, 0), df=1)


def draw(numbers: dict) -> plt.Figure:
  figure, ax = plt.subplots(layout="constrained")
  counted = np.array(numbers["counted"])
  density = len(counted) * counted / max(1, counted.sum())
  ax.bar(EDGES[:-1], density, EDGES[1], align="edge")
  ax.axhline(1, color="C1", linestyle="--", label="independent errors")
  ax.set(xlabel="p-value of the χ² test", ylabel="density")
  ax.set_title(f"{counted.sum():,} pairs 30 to 70 % right")
  ax.legend()
  return figure


def main(words: list[str] | None = None) -> None:
  flags = runs.make_parser(__doc__, 64).parse_args(words)
  scripts.save("fig04", measure(runs.tallies_of(flags)), draw, flags.out, PAPER)


if __name__ == "__main__":
  main()
