"""Jordan 2024, figure 3: do runs vary as if each test example went wrong by its own coin?

python experiments/jordan2024/fig03.py --runs 200     8×8 digits, a minute or two on two cores; run it again to resume
python experiments/jordan2024/fig03.py --recipe resnet9_cifar10 --epochs 0 4 16 64 --runs 60000     as the paper
python experiments/jordan2024/fig03.py --kept docs/gallery/mnist --epochs 0 1 4 12     of kept predictions
"""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import vmapseeds as vs
from vmapseeds import stats

# Variance over that of independent errors, by epochs: from 0.56 and 0.22 %, and printed
PAPER = {4: "6.5", 64: "1.06"}


def measure(errors: dict[int, np.ndarray]) -> dict:
  """Return rows of ratios and of sds in %, and what the histograms show."""
  rows, shown = [], {}
  for epochs, x in errors.items():
    rates = stats.error_rates(x)
    independent = float(stats.independent_errors_variance(x))
    observed = stats.variance_over_runs(rates)
    ratios = np.array([float(observed), *observed.interval]) / independent
    sd = 100 * independent**0.5
    rows += [
      row("variance ÷ independent errors'", epochs, ratios, "", len(rates)),
      row("sd if errors were independent", epochs, [sd] * 3, " %", len(rates)),
    ]
    accuracies = (100 * (1 - rates)).round(4).tolist()
    shown[str(epochs)] = {"accuracies": accuracies, "sd": sd}
  return {"title": "Figure 3", "rows": rows, "shown": shown}


def draw(numbers: dict) -> plt.Figure:
  shown = numbers["shown"]
  figure, axes = plt.subplots(
    1, len(shown), figsize=(3.2 * len(shown), 3), squeeze=False
  )
  for ax, (epochs, x) in zip(axes[0], shown.items(), strict=True):
    z = np.linspace(-4, 4, 200)  # sums of many independent errors are about normal
    law = np.exp(-(z**2) / 2) / (x["sd"] * (2 * np.pi) ** 0.5)
    ax.hist(x["accuracies"], bins=30, density=True)
    ax.plot(
      np.mean(x["accuracies"]) + x["sd"] * z, law, "--", label="independent errors"
    )
    ax.set(xlabel="test accuracy (%)", title=f"{epochs} epochs")
  axes[0, 0].legend()
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
  (flags.out / "fig03.json").write_text(json.dumps(numbers) + "\n")
  figure = draw(numbers)
  figure.savefig(flags.out / "fig03.png")
  plt.close(figure)
  for each in numbers["rows"]:
    print(*each.values(), sep="  ")
  print("the paper, by epochs of ResNet-9:", PAPER)


if __name__ == "__main__":
  main()
