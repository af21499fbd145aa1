"""Jordan 2024, figure 1: the longer the training, the narrower the distribution of accuracy.

python experiments/jordan2024/fig01.py --runs 200     8×8 digits, a minute or two on two cores; run it again to resume
python experiments/jordan2024/fig01.py --recipe resnet9_cifar10 --epochs 0 4 16 64 --runs 60000     as the paper
python experiments/jordan2024/fig01.py --kept docs/gallery/mnist --epochs 0 1 4 12     of kept predictions
"""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import vmapseeds as vs
from vmapseeds import stats

PAPER = {0: "1.87 %", 4: "0.56 %", 16: "0.19 %", 64: "0.149 %"}  # sd by epochs


def measure(errors: dict[int, np.ndarray]) -> dict:
  """Return rows of numbers in %, and the accuracies by length."""
  rows, listed = [], {}
  for epochs, x in errors.items():
    accuracies = 100 * (1 - stats.error_rates(x))
    mean, variance = (
      stats.mean_over_runs(accuracies),
      stats.variance_over_runs(accuracies),
    )
    of_mean = [mean, *mean.interval]
    sd = np.sqrt([float(variance), *variance.interval])
    rows.append(row("mean accuracy", epochs, of_mean, " %", len(accuracies)))
    rows.append(row("sd of accuracy", epochs, sd, " %", len(accuracies)))
    listed[str(epochs)] = np.round(accuracies, 4).tolist()
  return {"title": "Figure 1", "rows": rows, "accuracies": listed}


def draw(numbers: dict) -> plt.Figure:
  listed = numbers["accuracies"]
  figure, axes = plt.subplots(
    1, len(listed), figsize=(3.2 * len(listed), 3), squeeze=False
  )
  for ax, (epochs, x) in zip(axes[0], listed.items(), strict=True):
    ax.hist(x, bins=30)
    ax.set(
      xlabel="test accuracy (%)", title=f"{epochs} epochs, sd {np.std(x, ddof=1):.3f} %"
    )
  return figure


def row(quantity: str, epochs: int, numbers, unit: str, runs: int) -> dict:
  value, low, high = map(float, numbers)
  name = f"{quantity}, {epochs} epochs"
  ends = {"value": value, "low": low, "high": high, "unit": unit}
  return {"quantity": name, **ends, "runs": runs}


def errors_after(flags: argparse.Namespace, epochs: int) -> np.ndarray:
  """Return the errors of runs of a length, (runs, examples): trained, or kept."""
  if flags.kept:
    files = map(np.load, sorted(flags.kept.glob(f"predictions-{epochs}-*.npz")))
    return np.concatenate([(f["predictions"] != f["labels"][:, None]).T for f in files])
  folder = flags.runs_in / f"{flags.recipe}-{epochs}"
  recipe = vs.recipe(flags.recipe, epochs=epochs)
  return vs.error_matrix(
    vs.train(recipe, flags.runs, folder, seed_batch=flags.seed_batch)
  )


def main(words: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--runs", type=int, default=24, help="runs of each length")
  parser.add_argument("--recipe", default="digits_cnn", help="a recipe's name")
  parser.add_argument("--epochs", type=int, nargs="+", default=[0, 1, 4, 16])
  parser.add_argument("--seed-batch", type=int, help="runs between two writes")
  parser.add_argument("--runs-in", type=Path, default=Path("results/jordan2024"))
  parser.add_argument("--kept", type=Path, help="folder of kept predictions")
  parser.add_argument("--out", type=Path, default=Path("results/jordan2024"))
  flags = parser.parse_args(words)
  numbers = measure({e: errors_after(flags, e) for e in flags.epochs})
  flags.out.mkdir(parents=True, exist_ok=True)
  (flags.out / "fig01.json").write_text(json.dumps(numbers) + "\n")
  figure = draw(numbers)
  figure.savefig(flags.out / "fig01.png")
  plt.close(figure)
  for each in numbers["rows"]:
    print(*each.values(), sep="  ")
  print("the paper, by epochs of ResNet-9:", PAPER)


if __name__ == "__main__":
  main()
