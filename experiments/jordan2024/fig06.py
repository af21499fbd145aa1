"""Jordan 2024, figure 6 and section 3.4: what the mean error alone says of the variance, over binary tasks.

python -m experiments.jordan2024.fig06 --runs 4 --every 73     8×8 digits, a minute on two cores; run it again to resume
python -m experiments.jordan2024.fig06 --runs 100 --every 5     the gallery's: hours
python -m experiments.jordan2024.fig06 --recipe resnet9_cifar10 --runs 100     the paper's 511 tasks

A class-wise calibrated binary classifier that varies little on the distribution has a
variance of err/(2n) on a test set of n examples (equation 6). The tasks are the ways to
split ten classes into two groups, or every few of them. Intervals are over tasks.
"""

import argparse
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float, Int

import vmapseeds as vs
from experiments import measures, scripts
from experiments.estimates import Estimate, positive_estimate, student_estimate
from experiments.jordan2024 import runs
from experiments.scripts import row
from vmapseeds import stats

PAPER = "R² 0.996, not said of which; errors 70.5 [70] times less than the binomial's"
REPLICATES = 300
FITS = {
  "r_squared": "R²",
  "r_squared_sd": "R² on standard deviations",
  "identity_r_squared": "R² about y = x",
  "identity_r_squared_sd": "R² about y = x, on standard deviations",
}
PerTask = Float[np.ndarray, " tasks"]


class Tasks(NamedTuple):
  """Mean error and variances of tasks with two runs or more that did not diverge."""

  runs: Int[np.ndarray, " tasks"]
  examples: int
  error: PerTask
  variance: PerTask  # observed on the test set
  independent: PerTask  # if errors were independent, unbiased
  distribution: PerTask  # equation 3, signed


def tasks_of(errors: list[np.ndarray]) -> Tasks:
  """Return the numbers of tasks from the errors of each, (runs, examples)."""
  kept = [x for x in errors if len(x) >= 2]
  found = [
    (
      len(x),
      stats.error_rates(x).mean(),
      float(stats.test_set_variance(x)),
      float(stats.independent_errors_variance(x)),
      float(stats.distribution_variance(x)),
    )
    for x in kept
  ]
  counts, *numbers = map(np.array, zip(*found, strict=True))
  return Tasks(counts, kept[0].shape[1], *numbers)


def measure(tasks: Tasks) -> dict:
  """Return the tasks, and rows of how well predictions fit."""
  n = tasks.examples
  equation_6 = measures.calibration_variance(tasks.error, n)
  # Theorem 3: no variance is negative, but its unbiased estimate may be.
  theorem_3 = np.maximum(0, equation_6 + (1 - 1 / n) * tasks.distribution)
  binomial = stats.binomial_variance(tasks.error, n)
  fits = {
    "equation 6": fit(tasks.variance, equation_6),
    "equation 6, to what independent errors give": fit(tasks.independent, equation_6),
    "the most that so many runs allow": most_that_runs_allow(equation_6, tasks.runs),
    "binomial": fit(tasks.variance, binomial),
    "theorem 3, with the genuine variance": fit(tasks.variance, theorem_3),
  }
  of = f"{len(tasks.error)} × {int(tasks.runs.max())}"
  ratio = over_equation_6(tasks.variance, equation_6)
  quantity = "mean variance of the binary tasks over equation 6's"
  rows = [row(quantity, ratio, of)]
  for field, words in FITS.items():
    rows += [row(f"{words}, {name}", fits[name][field], of) for name in fits]
  arrays = {name: getattr(tasks, name) for name in tasks._fields[2:]}
  listed = {name: x.tolist() for name, x in arrays.items()}
  return {"title": "Figure 6", "examples": n, **listed, "rows": rows}


def fit(observed: PerTask, predicted: PerTask) -> dict[str, Estimate]:
  """Return each R² of a prediction; standard errors are by the bootstrap over tasks."""
  tasks = len(observed)
  drawn = np.random.default_rng(0).integers(0, tasks, (REPLICATES, tasks))
  whole = measures.variance_fit(observed, predicted)
  again = [measures.variance_fit(observed[i], predicted[i]) for i in drawn]
  return {
    field: student_estimate(
      float(getattr(whole, field)), np.std([getattr(x, field) for x in again], ddof=1)
    )
    for field in FITS
  }


def most_that_runs_allow(
  equation_6: PerTask, counts: Int[np.ndarray, " tasks"]
) -> dict[str, Estimate]:
  """Return the R² of equation 6 if it were exact and accuracies normal: mean and 95 % of
  simulated studies.
  """
  rng = np.random.default_rng(1)
  freedom = counts - 1  # a variance of normal values is a χ² over this
  draws = equation_6 * rng.chisquare(freedom, (REPLICATES, len(counts))) / freedom
  again = [measures.variance_fit(observed, equation_6) for observed in draws]
  values = {field: np.array([getattr(x, field) for x in again]) for field in FITS}
  return {
    field: Estimate(float(x.mean()), *map(float, np.quantile(x, (0.025, 0.975))))
    for field, x in values.items()
  }


def over_equation_6(variance: PerTask, equation_6: PerTask) -> Estimate:
  """Return the sum of the variances over the sum predicted, by the delta method."""
  ratio = float(variance.sum() / equation_6.sum())
  tasks = len(variance)
  apart = variance - ratio * equation_6
  se = np.sqrt(tasks / (tasks - 1) * (apart**2).sum()) / equation_6.sum()
  return positive_estimate(ratio, float(se))


def draw(numbers: dict) -> plt.Figure:
  figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
  error, n = np.array(numbers["error"]), numbers["examples"]
  predictions = {
    "binomial: err(1 − err)/n": error * (1 - error) / n,
    "equation 6: err/(2n)": error / (2 * n),
  }
  for ax, name in zip(axes, ("variance", "independent"), strict=True):
    observed = 100 * np.sqrt(numbers[name])
    for label, predicted in predictions.items():
      ax.scatter(100 * np.sqrt(predicted), observed, s=9, alpha=0.6, label=label)
    ax.axline((0, 0), slope=1, color="0.4", linewidth=1)
    ax.set(xlim=(0, None), ylim=(0, None), xlabel="predicted sd of accuracy (%)")
  axes[0].set_ylabel("sd of accuracy on the test set (%)")
  axes[1].set_ylabel("sd if errors were independent (%)")
  axes[0].legend()
  return figure


def label_maps() -> Int[np.ndarray, "tasks classes"]:
  """Return the 511 ways to split ten classes into two groups: class 0 is in group 0, and
  some other class in group 1.
  """
  others = np.arange(1, 2**9)[:, None] >> np.arange(9) & 1
  return np.pad(others, ((0, 0), (1, 0)))


def errors_of_tasks(flags: argparse.Namespace) -> list[np.ndarray]:
  """Return the errors of each task: every task with one seed, then with the next."""
  maps = label_maps()[:: flags.every]
  recipe = runs.recipe_of(flags)
  table = vs.Runs.independent(flags.runs * len(maps))
  table = table.with_label_map(np.tile(maps, (flags.runs, 1)))
  folder = flags.runs_in / f"{recipe.name}-{recipe.epochs}-tasks-{flags.every}"
  results = vs.train(recipe, table, folder, seed_batch=flags.seed_batch)
  every_task = range(len(maps))
  return [
    vs.error_matrix(results.isel(run=slice(k, None, len(maps)))) for k in every_task
  ]


def main(words: list[str] | None = None) -> None:
  parser = runs.make_parser(__doc__, 4)
  # An even step would never part some classes.
  parser.add_argument("--every", type=int, default=1, help="task; an odd number")
  flags = parser.parse_args(words)
  scripts.save(
    "fig06", measure(tasks_of(errors_of_tasks(flags))), draw, flags.out, PAPER
  )


if __name__ == "__main__":
  main()
