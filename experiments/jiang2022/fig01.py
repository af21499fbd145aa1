"""Jiang 2022, figures 1 to 4, 10 and 13, tables 4 and 5, appendix D.9: test error against disagreement.

python experiments/jiang2022/fig01.py --runs 2     8×8 digits, half a minute on two cores; run it again to resume
python experiments/jiang2022/fig01.py --recipe resnet18_cifar10 --examples 50000 --train 25000 --lr 0.1 0.05 --runs 4
python experiments/jiang2022/fig01.py --kept docs/gallery/jiang2022     of kept predictions
"""

import argparse
import json
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import scipy.stats

import vmapseeds as vs
from vmapseeds import stats

# R² and Kendall's τ of ResNet-18 on CIFAR-10, with and without augmentation
PAPER = {"R²": (0.986, 0.998, 0.983, 0.941), "τ": (0.899, 0.948, 0.858, 0.807)}
# Where the points of a group "typically" lie: error ÷ disagreement, section 3
RATIO = {
  "AllDiff": (0.9, 1.0),
  "DiffData": (0.9, 1.0),
  "DiffInit": (1.0, 1.3),
  "DiffOrder": (1.0, 1.3),
}
NAMES = (
  "error ÷ disagreement",
  "R²",
  "τ",
  # Equation 63, of DiffInit 0.112, and 0.034 of the mean of four pairs
  "deviation of a pair",
  "deviation of the mean of all pairs",
)
# What a partner differs in from the first run. The paper names the first four.
PARTNERS = {
  "AllDiff": ("init", "order", "data"),
  "DiffData": ("data",),
  "DiffInit": ("init",),
  "DiffOrder": ("order",),
  "SameData": ("init", "order"),
}
KEPT = {  # the paper's fully connected networks, figure 10
  "depth": [1, 2, 3, 4],
  "width": [1.0, 2.0, 3.0, 4.0],
  "batch_size": [100, 200, 300],
  "weight_decay": [1e-3, 0.0],
  "lr": [0.1, 0.05, 0.02, 0.01],
}


def training_sets(examples: int, size: int, runs: int) -> np.ndarray:
  """Return a training set for each run; those of runs 2i and 2i + 1 are disjoint."""
  pairs = ([0, pair] for pair in range((runs + 1) // 2))
  shuffled = [np.random.default_rng(x).permutation(examples) for x in pairs]
  return np.concatenate([x[: 2 * size].reshape(2, size) for x in shuffled])[:runs]


def stars(examples: int, size: int, pairs: int, swept: dict) -> vs.Runs:
  """Return a first run and its partners, pair by pair, each at all that is swept."""
  sets = training_sets(examples, size, 2 * pairs)
  members = []
  for first in range(0, 2 * pairs, 2):
    same = vs.Runs.vary("init", 1, start=first, fixed=first)
    members.append(same.subset(sets[first]))
    for sources in PARTNERS.values():
      partner = vs.Runs.vary(sources, 1, start=first + 1, fixed=first)
      members.append(partner.subset(sets[first + ("data" in sources)]))
  return vs.Runs.sweep(seeds=vs.Runs.concat(members), **swept)


def agreement(error: np.ndarray, apart: np.ndarray) -> np.ndarray:
  """Return the numbers of `NAMES` of the pairs that are there, (pairs, configurations)."""
  known = ~np.isnan(error + apart)
  y, x = error[known], apart[known]
  ratio = y.sum() / x.sum() if x.any() else np.nan
  whole = known.all(0)
  deviations = (
    deviation(y, x),
    deviation(error[:, whole].mean(0), apart[:, whole].mean(0)),
  )
  if len(set(x)) < 2 or len(set(y)) < 2:
    return np.array([ratio, np.nan, np.nan, *deviations])
  tau = scipy.stats.kendalltau(x, y).statistic
  return np.array([ratio, np.corrcoef(x, y)[0, 1] ** 2, tau, *deviations])


def deviation(error: np.ndarray, apart: np.ndarray) -> float:
  """Return the mean distance from error = disagreement, relative to both (equation 63)."""
  middle = (error + apart) / 2
  relative = abs(error - apart)[middle > 0] / middle[middle > 0]
  return relative.mean() if relative.size else np.nan


def measure(predictions: np.ndarray, labels: np.ndarray, swept: dict) -> dict:
  """Return rows by learning rate and group, and every point, (pairs, configurations).

  Intervals resample configurations with all their pairs. A run that diverged predicts
  nothing, -1: its pairs are left out.
  """
  settings = dict(zip(swept, np.meshgrid(*swept.values(), indexing="ij"), strict=True))
  count = settings["lr"].size
  by_star = predictions.reshape(-1, 1 + len(PARTNERS), count, len(labels))
  first, lost = by_star[:, 0], (by_star == -1).all(-1)
  error = np.where(lost[:, 0], np.nan, (first != labels).mean(-1))
  rows, points = [], {}
  for i, group in enumerate(PARTNERS, 1):
    apart = (by_star[:, i] != first).mean(-1)
    points[group] = np.where(lost[:, 0] | lost[:, i], np.nan, apart)
  for rate in swept["lr"]:
    at = np.flatnonzero(settings["lr"].ravel() == rate)
    drawn = stats.resamples(len(at), key=jax.random.key(0), replicates=300)
    some = [np.repeat(at, times) for times in drawn]
    for group, apart in points.items():
      found = agreement(error[:, at], apart[:, at])
      ends = stats.from_replicates([agreement(error[:, k], apart[:, k]) for k in some])
      for name, *numbers in zip(NAMES, found, ends.low, ends.high, strict=True):
        rows.append(
          row(f"{name} at rate {rate:g}, {group}", numbers, error[:, at].size)
        )
  return {
    "title": "Figures 1 and 10",
    "settings": {name: x.ravel().tolist() for name, x in settings.items()},
    "error": error.tolist(),
    "disagreement": {group: x.tolist() for group, x in points.items()},
    "rows": rows,
  }


def draw(numbers: dict) -> plt.Figure:
  figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
  rates = np.array(numbers["settings"]["lr"])
  at, error = rates == rates.max(), 100 * np.array(numbers["error"])
  for group, apart in numbers["disagreement"].items():
    disagreement = 100 * np.array(apart)
    axes[0].plot(disagreement[:, at].ravel(), error[:, at].ravel(), ".", label=group)
    ratio = [
      error[:, rates == r].mean() / disagreement[:, rates == r].mean()
      for r in np.unique(rates)
    ]
    axes[1].plot(np.unique(rates), ratio, "o-", label=group)
  axes[0].axline((error[:, at].mean(),) * 2, slope=1, color="0.5", linestyle="--")
  axes[0].set(xlabel="disagreement (%)", ylabel="test error (%)")
  axes[1].axhline(1, color="0.5", linestyle="--")
  axes[1].set(xscale="log", xlabel="learning rate", ylabel="error ÷ disagreement")
  axes[1].legend()
  return figure


def row(quantity: str, numbers, pairs: int) -> dict:
  value, low, high = map(float, numbers)
  ends = {"value": value, "low": low, "high": high, "unit": ""}
  return {"quantity": quantity, **ends, "runs": f"{pairs} pairs"}


def points_of(flags: argparse.Namespace) -> tuple[np.ndarray, np.ndarray, dict]:
  """Return predictions, (runs, examples), labels, and what is swept."""
  if flags.kept:
    # Their names end in the number of runs before them.
    paths = sorted(flags.kept.glob("*mlp_rates*.npz"), key=lambda p: (len(p.name), p))
    files = [np.load(path) for path in paths]
    return np.hstack([f["predictions"] for f in files]).T, files[0]["labels"], KEPT
  swept = {"weight_decay": flags.weight_decay, "lr": flags.lr}
  runs = stars(flags.examples, flags.train, flags.runs, swept)
  folder = flags.runs_in / f"stars-{flags.recipe}"
  recipe = vs.recipe(flags.recipe, epochs=flags.epochs)
  results = vs.train(recipe, runs, folder, seed_batch=flags.seed_batch)
  return results.predictions.values, results.labels.values, swept


def main(words: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--runs", type=int, default=1, help="pairs at each setting")
  parser.add_argument("--recipe", default="digits_cnn", help="a recipe's name")
  parser.add_argument("--epochs", type=int, default=8)
  parser.add_argument(
    "--examples", type=int, default=1000, help="there are to train on"
  )
  parser.add_argument("--train", type=int, default=200, help="a run is trained on")
  parser.add_argument("--lr", type=float, nargs="+", default=[0.1, 0.05, 0.02])
  parser.add_argument("--weight-decay", type=float, nargs="+", default=[5e-4, 0.0])
  parser.add_argument("--seed-batch", type=int, help="runs between two writes")
  parser.add_argument("--runs-in", type=Path, default=Path("results/jiang2022"))
  parser.add_argument("--kept", type=Path, help="folder of kept predictions")
  parser.add_argument("--out", type=Path, default=Path("results/jiang2022"))
  flags = parser.parse_args(words)
  numbers = measure(*points_of(flags))
  flags.out.mkdir(parents=True, exist_ok=True)
  (flags.out / "fig01.json").write_text(json.dumps(numbers) + "\n")
  figure = draw(numbers)
  figure.savefig(flags.out / "fig01.png")
  plt.close(figure)
  for each in numbers["rows"]:
    print(*each.values(), sep="  ")
  print("the paper, AllDiff, DiffData, DiffInit, DiffOrder:", PAPER)


if __name__ == "__main__":
  main()
