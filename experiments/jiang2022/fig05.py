"""Jiang 2022, figures 5 and 9, table 2: error and disagreement on test sets that are shifted from the training set.

python experiments/jiang2022/fig05.py --runs 16     8×8 digits, half a minute on two cores; run it again to resume
python experiments/jiang2022/fig05.py --recipe resnet18_cifar10 --runs 10

Runs differ in initialisation and order, as the paper's. It trains on each domain of PACS in
turn; here the shifts are of one data set's images.
"""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scipy.ndimage

import vmapseeds as vs
from vmapseeds import stats

# Error and disagreement of ResNets not pretrained, trained on photos
PAPER = {
  "art": (0.811, 0.6042),
  "cartoon": (0.6215, 0.4882),
  "photo": (0.1066, 0.0989),
  "sketch": (0.8204, 0.4868),
}


def shifted(images: np.ndarray, low: float, high: float) -> dict[str, np.ndarray]:
  """Return images (n, height, width, channels) with pixels from `low` to `high` blurred,
  noisy, moved by 4 pixels along rows and along columns, and inverted.
  """
  x = images.astype(float)
  noise = np.random.RandomState(0).standard_normal(x.shape)
  changed = {
    "blur": scipy.ndimage.gaussian_filter(x, 1.0, mode="nearest", axes=(1, 2)),
    "noise": x + 0.1 * (high - low) * noise,
    "translation": scipy.ndimage.shift(x, (0, 4, 4, 0), order=0, cval=low),
    "inversion": low + high - x,
  }
  return {
    name: values.clip(low, high).round().astype(images.dtype)
    for name, values in changed.items()
  }


def measure(by_test_set: dict[str, tuple[np.ndarray, np.ndarray, int]]) -> dict:
  """Return error, disagreement, their gap and CACE of each test set, over runs."""
  rows, points = [], {}
  for name, data in by_test_set.items():
    predictions, labels, classes = data
    error = stats.mean_over_runs(stats.error_rates(predictions != labels))
    apart = stats.expected_disagreement(predictions, classes)
    found = {"test error": error, "disagreement": apart, "gap": stats.gde_gap(*data)}
    for quantity, x in found.items():
      value, low, high = (100 * float(end) for end in (x, *x.interval))
      ends = {"value": value, "low": low, "high": high, "unit": " %"}
      rows.append({"quantity": f"{quantity}, {name}", **ends, "runs": len(predictions)})
    points[name] = float(apart), float(error), float(stats.cace(*data))
  return {"title": "Figure 5, table 2", "rows": rows, "points": points}


def draw(numbers: dict) -> plt.Figure:
  figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
  for name, (apart, error, cace) in numbers["points"].items():
    axes[0].plot(100 * apart, 100 * error, "o", label=name)
    axes[1].plot(cace, 100 * abs(error - apart), "o")
  for name, (error, apart) in PAPER.items():
    axes[0].plot(100 * apart, 100 * error, "D", mfc="none", color="0.5")
    axes[0].annotate(name, (100 * apart, 100 * error), color="0.5")
  axes[0].axline((0, 0), slope=1, color="0.5", linestyle="--")
  axes[0].set(xlabel="disagreement (%)", ylabel="error (%); ◇ the paper")
  axes[1].set(xlabel="CACE", ylabel="|error - disagreement| (%)")
  axes[0].legend(fontsize="small")
  return figure


def main(words: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--runs", type=int, default=16)
  parser.add_argument("--recipe", default="digits_cnn", help="a recipe's name")
  parser.add_argument("--epochs", type=int, default=8)
  parser.add_argument("--seed-batch", type=int, help="runs between two writes")
  parser.add_argument("--runs-in", type=Path, default=Path("results/jiang2022"))
  parser.add_argument("--out", type=Path, default=Path("results/jiang2022"))
  flags = parser.parse_args(words)
  recipe = vs.recipe(flags.recipe, epochs=flags.epochs)
  data = vs.load_dataset(recipe.dataset)
  train, test = data.train, data.tests["test"]
  images = shifted(test.inputs, train.inputs.min(), train.inputs.max())
  tests = {name: (x, test.targets) for name, x in images.items()}
  tests = {"test": (test.inputs, test.targets), **tests}
  with_shifts = vs.Dataset(
    train=(train.inputs, train.targets),
    tests=tests,
    name=data.name,
    num_classes=data.num_classes,
  )
  recipe = recipe.replace(dataset=with_shifts, test_sets=tuple(tests))
  runs = vs.Runs.vary(("init", "order"), flags.runs)
  folder = flags.runs_in / f"shifts-{flags.recipe}"
  vs.train(recipe, runs, folder, seed_batch=flags.seed_batch)
  by_test_set = {}
  for name in tests:
    results = vs.open_results(folder, name)
    kept = results.predictions.values[~results.diverged.values]
    labels = results.labels.values
    by_test_set[name] = kept, labels, results.attrs["num_classes"]
  numbers = measure(by_test_set)
  flags.out.mkdir(parents=True, exist_ok=True)
  (flags.out / "fig05.json").write_text(json.dumps(numbers) + "\n")
  figure = draw(numbers)
  figure.savefig(flags.out / "fig05.png")
  plt.close(figure)
  for each in numbers["rows"]:
    print(*each.values(), sep="  ")
  print("the paper, trained on photos: error, disagreement:", PAPER)


if __name__ == "__main__":
  main()
