"""Jiang 2022, figures 6 to 8, 12 and 14, tables 1 and 3: are ensembles of runs calibrated, whatever varies between them?

python -m experiments.jiang2022.fig06 --runs 32     8×8 digits, half a minute on two cores; run it again to resume
python -m experiments.jiang2022.fig06 --recipe resnet18_cifar10 --examples 50000 --train 10000 --runs 100
python -m experiments.jiang2022.fig06 --kept docs/gallery/jiang2022     of kept predictions
"""

import argparse
import json
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import vmapseeds as vs
from experiments.measures import finite_ensemble_calibration
from vmapseeds import stats

# Table 1: error, disagreement, gap, CACE of 100 ResNet-18 on CIFAR-10
PAPER = {
  "AllDiff": (0.336, 0.348, 0.012, 0.0437),
  "DiffData": (0.341, 0.354, 0.013, 0.0491),
  "DiffInit": (0.337, 0.307, 0.030, 0.0979),
  "DiffOrder": (0.335, 0.302, 0.033, 0.1014),
}
GROUPS = {
  "AllDiff": ("init", "order", "data"),
  "DiffData": ("data",),
  "DiffInit": ("init",),
  "DiffOrder": ("order",),
}


def runs_of(group: str, examples: int, size: int, runs: int) -> vs.Runs:
  """Return a group's runs. Training sets of runs 2i and 2i + 1 are disjoint."""
  pairs = ([0, pair] for pair in range((runs + 1) // 2))
  shuffled = [np.random.default_rng(x).permutation(examples) for x in pairs]
  sets = np.concatenate([x[: 2 * size].reshape(2, size) for x in shuffled])[:runs]
  sources = GROUPS[group]
  return vs.Runs.vary(sources, runs).subset(sets if "data" in sources else sets[0])


def cace_with_se(predictions: np.ndarray, labels: np.ndarray, classes: int):
  """Return CACE of all runs, and its bootstrap standard error over runs."""
  runs = len(predictions)
  drawn = stats.resamples(runs, key=jax.random.key(0), replicates=200)
  some = [predictions[np.repeat(np.arange(runs), times)] for times in drawn]
  values = [stats.cace(x, labels, classes) for x in some]
  return float(stats.cace(predictions, labels, classes)), np.std(values, ddof=1)


def measure(groups: dict[str, tuple[np.ndarray, np.ndarray, int]]) -> dict:
  """Return rows of each group, and its calibration curve with standard errors."""
  rows, curves, of_classes, caces = [], {}, {}, {}
  for group, (predictions, labels, classes) in groups.items():
    runs, data = len(predictions), (predictions, labels, classes)
    error = stats.mean_over_runs(stats.error_rates(predictions != labels))
    apart = stats.expected_disagreement(predictions, classes)
    gap = stats.gde_gap(*data)
    for name, x in (("test error", error), ("disagreement", apart), ("gap", gap)):
      ends = 100 * np.array([float(x), *x.interval])
      rows.append(row(f"{name}, {group}", ends, " %", runs))
    # The numerator's own error, and the denominator's, are in the gap's.
    reach = 1.96 * gap.se / float(apart)
    ratio = float(error) / float(apart)
    ends = ratio, ratio - reach, ratio + reach
    rows.append(row(f"error ÷ disagreement, {group}", ends, "", runs))
    caces[group] = cace, se = cace_with_se(*data)
    rows.append(
      row(f"CACE, {group}", (cace, cace - 1.96 * se, cace + 1.96 * se), "", runs)
    )
    fractions = stats.vote_fractions(predictions, classes)
    law = finite_ensemble_calibration(
      fractions, runs, key=jax.random.key(0), replicates=30
    )
    ends = law.cace, law.cace - 1.96 * law.cace_sd, law.cace + 1.96 * law.cace_sd
    rows.append(row(f"CACE were it calibrated, {group}", ends, "", runs))
    curve = stats.calibration_curve(*data)
    band = stats.calibration_band(*data, key=jax.random.key(0))
    columns = curve.confidence, curve.accuracy, band.se, curve.items
    curves[group] = [np.nan_to_num(x).tolist() for x in columns]
    single = stats.calibration_curve(*data, of="classes")
    classwise = zip(single.confidence, single.accuracy, single.items > 0, strict=True)
    of_classes[group] = [[x[has].tolist(), y[has].tolist()] for x, y, has in classwise]
    # With pairs of a run with itself, and a bin for each number of votes, theorem 4.2
    # holds for any runs: the gap is at most CACE.
    gap = 100 * float(stats.gde_gap(*data, self_pairs=True))
    bound = 100 * float(stats.cace(*data, bins=runs + 1))
    rows.append(row(f"gap of theorem 4.2, {group}", [gap] * 3, " %", runs))
    rows.append(row(f"CACE of theorem 4.2, {group}", [bound] * 3, " %", runs))
  same, other = (
    np.sum([caces[group] for group in names], 0)[0]
    for names in (("DiffInit", "DiffOrder"), ("AllDiff", "DiffData"))
  )
  ses = {group: se for group, (_, se) in caces.items()}
  of_log = np.hypot(
    np.hypot(ses["DiffInit"], ses["DiffOrder"]) / same,
    np.hypot(ses["AllDiff"], ses["DiffData"]) / other,
  )
  ends = same / other * np.exp([0, -1.96 * of_log, 1.96 * of_log])
  rows.append(row("CACE on one training set ÷ on several", ends, "", runs))
  found = {"title": "Figure 6, table 1", "rows": rows}
  return {**found, "curves": curves, "classes": of_classes}


def draw(numbers: dict) -> plt.Figure:
  figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
  for group, curve in numbers["curves"].items():
    confidence, accuracy, se, items = np.array(curve)
    bars = {"marker": "o", "capsize": 2, "label": group}
    axes[0].errorbar(100 * confidence, 100 * accuracy, 200 * se, **bars)
    axes[2].stairs(items, np.linspace(0, 100, len(items) + 1), label=group)
  for confidence, accuracy in numbers["classes"]["AllDiff"]:
    axes[1].plot(100 * np.array(confidence), 100 * np.array(accuracy), ".-")
  for ax, title in zip(axes, ("all classes", "each class, AllDiff"), strict=False):
    ax.plot([0, 100], [0, 100], color="0.5", linestyle="--")
    ax.set(ylabel="how often it is right (%)", title=title)
  for ax in axes:
    ax.set(xlabel="runs that vote for a class (%)")
  axes[2].set(yscale="log", ylabel="examples × classes")
  axes[0].legend()
  return figure


def row(quantity: str, numbers, unit: str, runs: int) -> dict:
  value, low, high = map(float, numbers)
  ends = {"value": value, "low": low, "high": high, "unit": unit}
  return {"quantity": quantity, **ends, "runs": runs}


def predictions_of(flags: argparse.Namespace, group: str):
  """Return predictions of runs that did not diverge, labels, and how many classes."""
  if flags.kept:
    (path,) = flags.kept.glob(f"*{group}*.npz")
    with np.load(path) as file:
      return file["predictions"].T, file["labels"], int(file["labels"].max()) + 1
  runs = runs_of(group, flags.examples, flags.train, flags.runs)
  folder = flags.runs_in / f"ensemble-{flags.recipe}-{group}"
  recipe = vs.recipe(flags.recipe, epochs=flags.epochs)
  results = vs.train(recipe, runs, folder, seed_batch=flags.seed_batch)
  predictions = results.predictions.values[~results.diverged.values]
  return predictions, results.labels.values, results.attrs["num_classes"]


def main(words: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--runs", type=int, default=16, help="runs of each group")
  parser.add_argument("--recipe", default="digits_cnn", help="a recipe's name")
  parser.add_argument("--epochs", type=int, default=8)
  parser.add_argument(
    "--examples", type=int, default=1000, help="there are to train on"
  )
  parser.add_argument("--train", type=int, default=200, help="a run is trained on")
  parser.add_argument("--seed-batch", type=int, help="runs between two writes")
  parser.add_argument("--runs-in", type=Path, default=Path("results/jiang2022"))
  parser.add_argument("--kept", type=Path, help="folder of kept predictions")
  parser.add_argument("--out", type=Path, default=Path("results/jiang2022"))
  flags = parser.parse_args(words)
  numbers = measure({group: predictions_of(flags, group) for group in GROUPS})
  flags.out.mkdir(parents=True, exist_ok=True)
  (flags.out / "fig06.json").write_text(json.dumps(numbers) + "\n")
  figure = draw(numbers)
  figure.savefig(flags.out / "fig06.png")
  plt.close(figure)
  for each in numbers["rows"]:
    print(*each.values(), sep="  ")
  print("the paper, error, disagreement, gap, CACE:", PAPER)


if __name__ == "__main__":
  main()
