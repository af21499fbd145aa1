"""Jordan 2024, figure 8 and section 4.3: accuracy and variance between runs by learning rate.

python -m experiments.jordan2024.fig08 --runs 8     8×8 digits, minutes on two cores; run it again to resume
python -m experiments.jordan2024.fig08 --recipe resnet9_cifar10 --runs 1000     as the paper
python -m experiments.jordan2024.fig08 --recipe experiments.jordan2024.runs:MLP_MNIST --steps 2 --runs 40     the gallery's

The paper conjectures that the best learning rate is the largest at which the variance
hardly exceeds that of independent errors.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Bool

import vmapseeds as vs
from experiments import estimates, scripts
from experiments.estimates import Estimate, positive_estimate
from experiments.jordan2024 import runs
from experiments.scripts import exactly, mean_and_sd, row
from vmapseeds import stats

PAPER = {
  "best": "rate 0.5, sd 0.148 %, hardly above independent errors",
  "twice the best": "sd 0.168 %, 1.14 times that; equation 3 rises 5 times",
}
FAR = 2.5  # times the best learning rate, where runs still learn


def measure(
  errors: dict[float, Bool[np.ndarray, "runs examples"]], diverged: int
) -> dict:
  """Return the accuracies and the variance of independent errors at each rate at which
  three runs did not diverge, and rows.
  """
  rates = []
  for rate, x in errors.items():
    if len(x) >= 3:
      accuracies = 1 - stats.error_rates(x)
      independent = float(stats.independent_errors_variance(x))
      rates.append({"rate": rate, "accuracies": accuracies, "independent": independent})
  return {"title": "Figure 8", "rates": rates, "rows": rows_of(rates, diverged)}


def rows_of(rates: list[dict], diverged: int) -> list[dict]:
  best = max(rates, key=lambda at: np.mean(at["accuracies"]))
  mean, sd = mean_and_sd(best["accuracies"])
  over = "variance over that of independent errors"
  found = {
    "best learning rate": (exactly(best["rate"]), best),
    "mean accuracy at the best": (mean, best),
    "sd of accuracy at the best": (sd, best),
    f"{over} at the best learning rate": (over_independent(best), best),
  }
  for at in rates:
    if np.isclose(at["rate"], 2 * best["rate"], rtol=1e-5):
      mean, sd = mean_and_sd(at["accuracies"])
      ratio = estimates.ratio_of(sd_of(at), sd_of(best))
      found["mean accuracy at twice the best"] = mean, at
      found["sd of accuracy at twice the best"] = sd, at
      quantity = "sd of accuracy at twice the best learning rate over that at the best"
      found[quantity] = ratio, at
  far = next((at for at in rates if at["rate"] > FAR * best["rate"]), None)
  if far:
    quantity = f"{over} well above the best learning rate, {far['rate']:.3g}"
    found[quantity] = over_independent(far), far
  rows = [row(name, x, len(at["accuracies"])) for name, (x, at) in found.items()]
  every = sum(len(at["accuracies"]) for at in rates)
  return [*rows, row("runs that diverged, left out", exactly(diverged), every)]


def sd_of(at: dict) -> Estimate:
  """Return the sd of accuracy at a rate; its interval is symmetric for its logarithm."""
  variance = stats.variance_over_runs(at["accuracies"])
  sd = float(variance) ** 0.5
  return positive_estimate(sd, float(variance.se) / (2 * sd) if sd else np.nan)


def over_independent(at: dict) -> Estimate:
  """Return the variance over that of independent errors, which is taken as known."""
  variance = stats.variance_over_runs(at["accuracies"])
  independent = at["independent"] or np.nan
  return positive_estimate(
    float(variance) / independent, float(variance.se) / independent
  )


def draw(numbers: dict) -> plt.Figure:
  figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
  for at in numbers["rates"]:
    mean, _ = mean_and_sd(at["accuracies"])
    for ax, x, scale in zip(axes, (mean, over_independent(at)), (100, 1), strict=True):
      bars = scale * np.array([[x.value - x.low], [x.high - x.value]])
      ax.errorbar(at["rate"], scale * x.value, bars, fmt="C0o", capsize=3)
      ax.set(xlabel="learning rate", xscale="log")
  axes[0].set_ylabel("mean test accuracy (%)")
  axes[1].axhline(1, color="0.4", linestyle="--")
  axes[1].set(ylabel="variance ÷ independent errors'", yscale="log")
  return figure


def errors_by_rate(flags: argparse.Namespace) -> tuple[dict[float, np.ndarray], int]:
  """Return the errors of runs at rates from 2⁻⁹ to 2³ times the recipe's, as the paper's,
  and how many runs diverged.
  """
  recipe = runs.recipe_of(flags)
  steps = np.arange(-9 * flags.steps, 3 * flags.steps + 1)
  rates = [recipe.lr * 2 ** (k / flags.steps) for k in steps.tolist()]
  folder = flags.runs_in / f"{recipe.name}-{recipe.epochs}-rates-{flags.steps}"
  table = vs.Runs.sweep(lr=rates, seeds=flags.runs)
  results = vs.train(recipe, table, folder, seed_batch=flags.seed_batch)
  at = {rate: np.isclose(results.lr.values, rate) for rate in rates}
  errors = {
    rate: vs.error_matrix(results.isel(run=these)) for rate, these in at.items()
  }
  return errors, int(results.diverged.sum())


def main(words: list[str] | None = None) -> None:
  parser = runs.make_parser(__doc__, 8)
  parser.add_argument(
    "--steps", type=int, default=1, help="from one rate to its double"
  )
  flags = parser.parse_args(words)
  numbers = measure(*errors_by_rate(flags))
  scripts.save("fig08", numbers, draw, flags.out, PAPER)


if __name__ == "__main__":
  main()
