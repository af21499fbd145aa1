"""Jordan 2024, figure 9, section 4.4 and appendix C: variance between runs on shifted test sets.

python -m experiments.jordan2024.fig09 --runs 16     8×8 digits, a minute on two cores; run it again to resume
python -m experiments.jordan2024.fig09 --recipe experiments.jordan2024.runs:MLP_MNIST --runs 150     the gallery's

On the test set runs vary about as much as with independent errors, on shifted ones much
more. The paper has ImageNet and its shifted versions; here the test set is blurred,
noisy, of less contrast, translated, inverted.
"""

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Bool

from experiments import estimates, scripts
from experiments.estimates import Estimate
from experiments.jordan2024 import runs
from experiments.scripts import mean_and_sd, of_runs, root_of, row
from vmapseeds import stats

# Sds on ImageNet and on the distribution behind it, and on those shifted
PAPER = "0.118 % and 0.034 %; ImageNet-R, ObjectNet, Sketch 0.179 to 0.257 %"


def measure(errors: dict[str, Bool[np.ndarray, "runs examples"]]) -> dict:
  """Return what is known of each test set, the first not shifted, and rows."""
  by_set = {}
  for name, x in errors.items():
    by_set[name] = {
      "accuracies": 1 - stats.error_rates(x),
      "independent": float(stats.independent_errors_variance(x)),
      "distribution": list(of_runs(stats.distribution_variance(x))[:3]),
    }
  return {"title": "Figure 9", "by_set": by_set, "rows": rows_of(by_set)}


def rows_of(by_set: dict[str, dict]) -> list[dict]:
  rows = []
  unshifted = next(iter(by_set))
  for name, of in by_set.items():
    mean, sd = mean_and_sd(of["accuracies"])
    found = {
      "mean accuracy": mean,
      "sd of accuracy": sd,
      "sd on the distribution": root_of(Estimate(*of["distribution"])),
    }
    if name != unshifted:
      more = estimates.difference_of(excess(of), excess(by_set[unshifted]))
      in_squares = Estimate(*(1e4 * x for x in more[:3]), " %²")
      found[f"variance on the distribution, less that of {unshifted}"] = in_squares
    rows += [row(f"{q}, {name}", x, len(of["accuracies"])) for q, x in found.items()]
  return rows


def excess(of: dict) -> Estimate:
  """Return the variance less that of independent errors, which is taken as known."""
  observed = of_runs(stats.variance_over_runs(of["accuracies"]))
  return Estimate(*(x - of["independent"] for x in observed[:3]))


def draw(numbers: dict) -> plt.Figure:
  figure, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
  by_set = numbers["by_set"]
  for i, of in enumerate(by_set.values()):
    _, sd = mean_and_sd(of["accuracies"])
    distribution = root_of(Estimate(*of["distribution"]))
    for k, x in enumerate((sd, distribution)):
      bars = 100 * np.array([[x.value - x.low], [x.high - x.value]])
      ax.errorbar(i + 0.1 * k, 100 * x.value, bars, fmt=f"C{k}o", capsize=3)
    ax.plot(i - 0.1, 100 * of["independent"] ** 0.5, "kx")
  ax.set_xticks(range(len(by_set)), by_set)
  ax.set(yscale="log", ylabel="sd (%): × independent errors,\n● test set, distribution")
  return figure


def main(words: list[str] | None = None) -> None:
  flags = runs.make_parser(__doc__, 16).parse_args(words)
  scripts.save("fig09", measure(runs.errors_by_set(flags)), draw, flags.out, PAPER)


if __name__ == "__main__":
  main()
