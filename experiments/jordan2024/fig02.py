"""Jordan 2024, figure 2: is a run that is lucky on one half of the test set lucky on the other?

python experiments/jordan2024/fig02.py --runs 200     8×8 digits, a minute or two on two cores; run it again to resume
python experiments/jordan2024/fig02.py --recipe resnet9_cifar10 --epochs 0 4 16 64 --runs 60000     as the paper
python experiments/jordan2024/fig02.py --kept docs/gallery/mnist --epochs 0 1 4 12     of kept predictions
"""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import vmapseeds as vs
from vmapseeds import stats

# The paper prints no correlation. From its sds on the test set and the distribution:
PAPER = {4: "0.76", 64: "0.025"}


def measure(errors: dict[int, np.ndarray]) -> dict:
  """Return rows of correlations, and the accuracies on both halves in %."""
  rows, halves = [], {}
  for epochs, x in errors.items():
    found = stats.split_correlation(x)
    ends = [found, *found.interval]
    rows.append(row("correlation of the halves", epochs, ends, "", len(x)))
    even, odd = (100 * (1 - half.mean(1)) for half in (x[:, ::2], x[:, 1::2]))
    halves[str(epochs)] = {"even": even.round(3).tolist(), "odd": odd.round(3).tolist()}
  return {"title": "Figure 2", "rows": rows, "halves": halves}


def draw(numbers: dict) -> plt.Figure:
  halves = numbers["halves"]
  figure, axes = plt.subplots(
    1, len(halves), figsize=(3.2 * len(halves), 3), squeeze=False
  )
  for ax, (epochs, x), found in zip(
    axes[0], halves.items(), numbers["rows"], strict=True
  ):
    ax.plot(x["even"], x["odd"], ".", markersize=2)
    ax.set(xlabel="even examples (%)", ylabel="odd examples (%)")
    ax.set_title(f"{epochs} epochs: correlation {found['value']:.2f}")
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
  (flags.out / "fig02.json").write_text(json.dumps(numbers) + "\n")
  figure = draw(numbers)
  figure.savefig(flags.out / "fig02.png")
  plt.close(figure)
  for each in numbers["rows"]:
    print(*each.values(), sep="  ")
  print("the paper, by epochs of ResNet-9:", PAPER)


if __name__ == "__main__":
  main()
