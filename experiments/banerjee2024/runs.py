"""The runs that the paper's scripts share: a reference, and candidates beside it."""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

import vmapseeds as vs
from experiments import scripts
from experiments.banerjee2024.network import CNN_CIFAR10_BINARY as ADAM
from vmapseeds import stats

VARIED = {"S_init": "init", "S_batch": "order", "S_all": ("init", "order")}
SMALL = 0.05  # an α̂ up to this counts as small
REPLICATES = 100  # of the bootstrap: the paper does not give its number

# Of the readings of what the paper leaves open, the nearest to it after 50 epochs:
# README.md has what each gives.
SGD = ADAM.replace(
  optimizer="sgd",
  momentum=0.0,
  mean=(0.0, 0.0, 0.0),
  std=(1.0, 1.0, 1.0),
  evaluate_every=10,
)
DIGITS = vs.recipe(
  "digits_cnn",
  dataset="experiments.banerjee2024.groups:digits",
  augment="",
  epochs=2,
  evaluate_every=1,
)


class Task(NamedTuple):
  """Recipes, and how many examples a run is trained on."""

  recipe: vs.Recipe
  last_layer: vs.Recipe  # of last layers, and of the network that they are put on
  examples: int
  last_layer_examples: int


# On the classes that the task leaves out SGD learns too little for last layers.
TASKS = {
  "digits": Task(DIGITS, DIGITS, 700, 700),
  "cifar10": Task(SGD, ADAM, 40_000, 4_000),
}


class Gaps(NamedTuple):
  """Logit gaps of a reference and of candidates. Runs that diverged, or that have learnt
  nothing, are neither: the paper reports none.
  """

  reference: Float[np.ndarray, "models *epochs examples"]
  candidates: Float[np.ndarray, "runs *epochs examples"]
  labels: Int[np.ndarray, " examples"]
  epochs: Int[np.ndarray, " epochs"]
  left_out: int


def make_parser(doc: str | None, runs: int = 16) -> argparse.ArgumentParser:
  parser = scripts.make_parser(doc, "banerjee2024", runs)
  parser.add_argument("--data", choices=TASKS, default="digits")
  return parser


def read_gaps(flags: argparse.Namespace, source: str, by_epoch: bool = False) -> Gaps:
  """Return the gaps of runs in which a source varies, trained or kept: at the end, or
  after each evaluated epoch.
  """
  if flags.kept:
    return split(*kept_gaps(flags.kept, source, by_epoch))
  recipe, _, examples, _ = TASKS[flags.data]
  if source != "S_all":  # of which alone figures 3 and 16 follow the training
    recipe = recipe.replace(evaluate_every=None)
  runs = vs.Runs.vary(VARIED[source], flags.runs).subset(examples)
  folder = flags.runs_in / f"{flags.data}-{source}"
  results = vs.train(recipe, runs, folder, logits=True, seed_batch=flags.seed_batch)
  return split(*trained_gaps(results, by_epoch))


def trained_gaps(results, by_epoch: bool) -> tuple[np.ndarray, ...]:
  """Return the gaps of runs, labels, which diverged, and the epochs."""
  logits = (results.epoch_logits if by_epoch else results.logits).values
  gaps = logits[..., 1].astype(float) - logits[..., 0]
  epochs = results.epoch.values if by_epoch else np.zeros(0, int)
  return gaps, results.labels.values, results.diverged.values, epochs


def kept_gaps(folder: Path, source: str, by_epoch: bool) -> tuple[np.ndarray, ...]:
  """Return the same of kept runs, whose files keep the logits less the first class's."""
  # A name ends in the number of runs before its file's.
  paths = sorted(folder.glob(f"*{source}*.npz"), key=lambda p: (len(p.name), p))
  files = [np.load(path) for path in paths]
  logits = "epoch_logits" if by_epoch else "logits"
  gaps = np.concatenate([f[logits][..., 0].astype(float) for f in files])
  diverged = np.concatenate([f["diverged"] for f in files])
  epochs = files[0]["epoch"] if by_epoch else np.zeros(0, int)
  return gaps, files[0]["labels"], diverged, epochs


def split(
  gaps: Float[np.ndarray, "runs *epochs examples"],
  labels: Int[np.ndarray, " examples"],
  diverged: np.ndarray,
  epochs: np.ndarray,
) -> Gaps:
  """Return the first half of the runs that did not diverge as the reference. A run has
  learnt nothing if the 95 % interval of its accuracy reaches down to one half.
  """
  there = gaps[~diverged]
  at_end = there[:, -1] if there.ndim == 3 else there
  accuracy = ((at_end >= 0) == labels).mean(1)
  learnt = stats.proportion_over_examples(accuracy, len(labels)).low > 0.5
  is_first = np.arange(len(there)) < len(there) // 2
  reference, candidates = there[is_first & learnt], there[~is_first & learnt]
  left_out = len(gaps) - len(reference) - len(candidates)
  return Gaps(reference, candidates, labels, epochs, left_out)
