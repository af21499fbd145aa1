"""Jordan 2024, figure 5: how much runs differ on a test set, and on the distribution behind it.

python experiments/jordan2024/fig05.py --runs 200     8×8 digits, a minute or two on two cores; run it again to resume
python experiments/jordan2024/fig05.py --recipe resnet9_cifar10 --epochs 0 4 16 64 --runs 60000     as the paper
python experiments/jordan2024/fig05.py --kept docs/gallery/mnist --epochs 0 1 4 12     of kept predictions
"""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import vmapseeds as vs
from vmapseeds import stats

# Sd on the test set, on the distribution, and from these the share
PAPER = {4: ("0.56 %", "0.52 %", "86 %"), 64: ("0.149 %", "0.033 %", "4.9 %")}
NAMES = ("sd on the test set", "sd on the distribution", "share of the variance")


def measure(errors: dict[int, np.ndarray]) -> dict:
  """Return rows of sds, and of the share of the variance that is on the distribution.

  Equation 3 takes from the variance on the test set what independent errors give. That
  is taken as known, so that all three ends follow from the variance's.
  """
  rows = []
  for epochs, x in errors.items():
    of_runs = stats.variance_over_runs(stats.error_rates(x))
    test_set = np.array([float(of_runs), *of_runs.interval])
    found = stats.distribution_variance(x)
    on_distribution = np.array([float(found), *found.interval]).clip(0)
    independent = float(stats.independent_errors_variance(x))
    share = on_distribution / (on_distribution * (1 - 1 / x.shape[1]) + independent)
    numbers = test_set**0.5, on_distribution**0.5, share
    for name, of in zip(NAMES, numbers, strict=True):
      rows.append(row(name, epochs, 100 * of, " %", len(x)))
  return {"title": "Figure 5", "epochs": list(errors), "rows": rows}


def draw(numbers: dict) -> plt.Figure:
  figure, ax = plt.subplots()
  for name in NAMES[:2]:
    rows = [each for each in numbers["rows"] if each["quantity"].startswith(name)]
    value, low, high = np.array([[x["value"], x["low"], x["high"]] for x in rows]).T
    bars = [value - low, high - value]
    ax.errorbar(range(len(rows)), value, bars, marker="o", capsize=3, label=name)
  ax.set_xticks(range(len(rows)), numbers["epochs"])
  ax.set(xlabel="epochs", ylabel="standard deviation between runs (%)", yscale="log")
  ax.legend()
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
  (flags.out / "fig05.json").write_text(json.dumps(numbers) + "\n")
  figure = draw(numbers)
  figure.savefig(flags.out / "fig05.png")
  plt.close(figure)
  for each in numbers["rows"]:
    print(*each.values(), sep="  ")
  print("the paper, by epochs of ResNet-9:", PAPER)


if __name__ == "__main__":
  main()
