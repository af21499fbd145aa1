"""Jordan 2024, figure 10 [11] and appendix D.1: initialisation, order or augmentation varied alone.

python -m experiments.jordan2024.fig10 --runs 24     8×8 digits, a minute or two on two cores; run it again to resume
python -m experiments.jordan2024.fig10 --recipe resnet9_cifar10 --epochs 1 4 16 64 --runs 4000     as the paper
python -m experiments.jordan2024.fig10 --recipe experiments.jordan2024.runs:MLP_MNIST --epochs 1 4 12 --runs 150     the gallery's

After a short training one source alone gives less variance than all together, after a
long one as much. Fixed sources have seed 0; another seed may give another variance.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float

import vmapseeds as vs
from experiments import scripts
from experiments.jordan2024 import runs
from experiments.scripts import mean_and_sd, of_runs, row
from vmapseeds import stats

# Sd of accuracy by what varies and epochs
PAPER = {
  "all": "1.33 % after 1, 0.45 % after 4, 0.160 % after 64",
  "init": "0.38 % after 4, 0.158 % after 64",
  "one source": "25 to 40 % less variance after 1 epoch, as much after 64",
}


def measure(accuracies: dict[int, dict[str, Float[np.ndarray, " runs"]]]) -> dict:
  """Return rows of sds, and of variances over that of all sources, by length."""
  rows = []
  for epochs, by_source in accuracies.items():
    for source, x in by_source.items():
      _, sd = mean_and_sd(x)
      rows.append(row(f"sd of accuracy, varying {source}, {epochs} epochs", sd, len(x)))
      if source != "all":
        # Runs that vary one source are no pairs with those that vary all.
        ratio = of_runs(stats.variance_ratio(x, by_source["all"], paired=False))
        quantity = f"variance, {source} alone over all, {epochs} epochs"
        rows.append(row(quantity, ratio, len(x)))
  return {"title": "Figure 10 [11]", "accuracies": accuracies, "rows": rows}


def draw(numbers: dict) -> plt.Figure:
  figure, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
  lengths = list(numbers["accuracies"])
  alone = [source for source in numbers["accuracies"][lengths[0]] if source != "all"]
  for i, source in enumerate(alone):
    found = [
      r for r in numbers["rows"] if r["quantity"].startswith(f"variance, {source}")
    ]
    value, low, high = np.array([[r["value"], r["low"], r["high"]] for r in found]).T
    place = np.arange(len(lengths)) + 0.1 * i
    bars = [value - low, high - value]
    ax.errorbar(place, value, bars, marker="o", capsize=3, label=f"{source} alone")
  ax.axhline(1, color="0.4", linestyle="--")
  ax.set_xticks(range(len(lengths)), lengths)
  ax.set(xlabel="epochs", ylabel="variance over that of all sources", yscale="log")
  ax.legend()
  return figure


def accuracies_by_source(
  flags: argparse.Namespace, epochs: int
) -> dict[str, np.ndarray]:
  """Return the accuracies of runs in which all sources vary, or one."""
  recipe = vs.recipe(flags.recipe, epochs=epochs)
  results = {"all": runs.train_length(flags, epochs)}
  for source in ("init", "order", "augment")[: 3 if recipe.augment else 2]:
    folder = flags.runs_in / f"{recipe.name}-{epochs}-{source}"
    table = vs.Runs.vary(source, flags.runs)
    results[source] = vs.train(recipe, table, folder, seed_batch=flags.seed_batch)
  return {s: 1 - stats.error_rates(vs.error_matrix(x)) for s, x in results.items()}


def main(words: list[str] | None = None) -> None:
  flags = runs.make_parser(__doc__, 24, (1, 16)).parse_args(words)
  numbers = measure({e: accuracies_by_source(flags, e) for e in flags.epochs})
  scripts.save("fig10", numbers, draw, flags.out, PAPER)


if __name__ == "__main__":
  main()
