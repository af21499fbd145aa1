"""Banerjee 2024, figures 12 to 14: last layers of one pretrained network.

python -m experiments.banerjee2024.fig12 --runs 8     8×8 digits, a minute on two cores; run it again to resume
python -m experiments.banerjee2024.fig12 --data cifar10 --runs 90     as many as the paper's
python -m experiments.banerjee2024.fig12 --kept docs/gallery/banerjee2024     of kept logits

The paper's network is a transformer that was trained on ImageNet. Here it is its small
one, trained before on the two classes of CIFAR-10 that the task leaves out.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np

import vmapseeds as vs
from experiments import scripts
from experiments.banerjee2024 import runs, table2
from experiments.banerjee2024.fig03 import by_epoch
from experiments.estimates import Estimate
from experiments.scripts import exactly, row
from vmapseeds import stats

PAPER = "accuracies from 99.20 to 99.30 %, ECE 0.001 to 0.003, α̂ 0.004 to 0.118"


def measure(n: runs.Gaps) -> dict:
  """Return rows of last layers, their measures, and each by epoch."""
  at_end = n._replace(reference=n.reference[:, -1], candidates=n.candidates[:, -1])
  of = table2.candidates(at_end)
  mean, variance = (
    f(of["accuracy"]) for f in (stats.mean_over_runs, stats.variance_over_runs)
  )
  known = of["level"][~np.isnan(of["level"])]
  quantities = {
    "mean accuracy": Estimate(float(mean), *mean.interval, "%"),
    "sd of accuracy": Estimate(*np.sqrt([float(variance), *variance.interval]), "%"),
    "accuracy of the ensemble": exactly(of["ensemble"], "%"),
    "τ of α̂ with churn": table2.tau(of["order"], of["churn"]),
    "τ of α̂ with ECE": table2.tau(of["order"], of["ece"]),
  }
  if known.size:
    quantities["α̂, least to largest"] = table2.spans(known)
  rows = [row(name, x, len(of["accuracy"])) for name, x in quantities.items()]
  return {
    "title": "Figures 12 to 14",
    "rows": rows,
    "candidates": of,
    "by_epoch": by_epoch(n),
  }


def draw(numbers: dict) -> plt.Figure:
  figure, axes = plt.subplots(1, 4, figsize=(16, 3.8), layout="constrained")
  of = numbers["by_epoch"]
  axes[0].plot(of["epoch"], of["loss"], "C1", alpha=0.4)
  axes[1].plot(of["epoch"], 100 * np.array(of["accuracy"]), "C0", alpha=0.4)
  for ax, label in zip(axes, ("test loss", "accuracy (%)"), strict=False):
    ax.set(xlabel="epoch", ylabel=label)
  at_end = {name: 100 * np.array(x, float) for name, x in numbers["candidates"].items()}
  for ax, name in zip(axes[2:], ("churn", "ece"), strict=True):
    drawn = ax.scatter(at_end["accuracy"], at_end[name], c=at_end["level"], s=14)
    ax.set(xlabel="accuracy (%)", ylabel=f"{name} (%)")
  figure.colorbar(drawn, label="α̂ (%)")
  return figure


def read_gaps(flags: argparse.Namespace) -> runs.Gaps:
  """Return the gaps of last layers after each epoch: trained, or kept."""
  if flags.kept:
    return runs.split(*runs.kept_gaps(flags.kept, "last_layers", by_epoch=True))
  task = runs.TASKS[flags.data]
  before = flags.runs_in / f"{flags.data}-pretrained"
  others = f"experiments.banerjee2024.others:{flags.data}"
  whole = task.last_layer.replace(dataset=others, epochs=10, evaluate_every=None)
  vs.train(whole, 1, before, keep_params=True)
  recipe = task.last_layer.replace(
    start_from=str(before),
    trainable=["Dense_0" if flags.data == "digits" else "Dense_1"],
    epochs=5,
    evaluate_every=1,
  )
  table = vs.Runs.vary(("init", "order"), flags.runs).subset(task.last_layer_examples)
  folder = flags.runs_in / f"{flags.data}-last-layers"
  results = vs.train(recipe, table, folder, logits=True, seed_batch=flags.seed_batch)
  return runs.split(*runs.trained_gaps(results, by_epoch=True))


def main(words: list[str] | None = None) -> None:
  flags = runs.make_parser(__doc__, 8).parse_args(words)
  scripts.save("fig12", measure(read_gaps(flags)), draw, flags.out, PAPER)


if __name__ == "__main__":
  main()
