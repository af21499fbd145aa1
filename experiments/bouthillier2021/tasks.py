"""The paper's tasks, and the runs of each: in a repetition one source of randomness is
drawn anew for each run, or several; all others are drawn once.

A run is trained on a bootstrap sample of two thirds as many examples as there are, and
tested on a sixth, drawn from what is left, as the paper's 40,000 and 10,000 of 60,000.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Float

import vmapseeds as vs
from experiments import scripts
from experiments.bouthillier2021 import images, peptides, tabular
from experiments.bouthillier2021.vgg11 import vgg11_cifar10
from experiments.estimates import Estimate
from experiments.searches import Range, Search, train_searches, trials_of
from vmapseeds.training.recipe_data import dataset_of

EVERYTHING = "everything"
SOURCES = ("data", "augment", "order", "init", "dropout")
MLP_SOURCES = ("data", "order", "init")
REPETITIONS = 20  # section 3.3
GAMMA, PAIRS = 0.75, 50  # sections 4.1 and 4.2


class Task(NamedTuple):
  """Recipe, the sources that its training has, and what its searches may choose."""

  recipe: vs.Recipe
  sources: tuple[str, ...]
  over: dict[str, Range] | None = None
  metric: str = "accuracy"


# Table 2; the noisy grid moves the ends by up to half a step.
OVER = {"lr": Range(1e-3, 0.3, log=True), "weight_decay": Range(1e-6, 1e-2, log=True)}
OVER_MLP = {"lr": Range(1e-3, 1, log=True), "weight_decay": Range(1e-6, 0.1, log=True)}
OVER_MHC = {
  "lr": Range(1e-4, 1e-2, log=True),
  "weight_decay": Range(1e-8, 1e-2, log=True),
}
OVER_VGG = OVER | {"momentum": Range(0.5, 0.99), "gamma": Range(0.96, 0.999)}
MLP = vs.Recipe(
  name="mlp_breast_cancer",
  dataset=f"{tabular.__name__}:breast_cancer",
  model="mlp",
  width=0.25,
  epochs=10,
  batch_size=32,
  lr=0.05,
  weight_decay=1e-3,
  schedule="linear",
)
MNIST = vs.recipe(
  "mlp_cifar10", name="mlp_mnist_quarter", dataset="mnist", width=0.25, epochs=1
)
DIGITS = vs.recipe(
  "digits_cnn", name="digits_cnn_half", dropout=0.1, width=0.5, epochs=4
)
TASKS = {
  "breast_cancer": Task(MLP, MLP_SOURCES, OVER_MLP),
  "digits": Task(DIGITS, SOURCES, OVER),
  "mnist": Task(MNIST, MLP_SOURCES),
  "cifar10": Task(images.PATCHES, SOURCES[:-1]),
  "peptides": Task(peptides.MLP_MHC, MLP_SOURCES, OVER_MHC, "pearson"),
  "vgg11": Task(vgg11_cifar10, SOURCES[:-1], OVER_VGG),
}


def make_parser(doc: str | None) -> argparse.ArgumentParser:
  parser = scripts.make_parser(doc, "bouthillier2021", 10)
  parser.add_argument("--tasks", nargs="+", choices=TASKS, default=["breast_cancer"])
  parser.add_argument("--repetitions", type=int, default=REPETITIONS)
  parser.add_argument("--trials", type=int, default=16, help="of a search, a square")
  return parser


def repeated_seeds(
  varied: Sequence[str], repetitions: int, runs: int, first: int = 0
) -> vs.Runs:
  """Return runs that each have a new seed for `varied`, from `first` on. Run i has the
  other seeds of repetition i modulo `repetitions`.
  """
  each = np.arange(repetitions * runs, dtype=np.uint32)
  names = (*SOURCES, *varied)
  seeds = {
    name: first + each if name in varied else each % repetitions for name in names
  }
  return vs.Runs(seeds).out_of_bootstrap()


def by_repetition(
  measures: Float[np.ndarray, " runs"], repetitions: int
) -> Float[np.ndarray, "repetitions runs"]:
  """Return measures by their repetitions, without repetitions of which a run diverged."""
  of = measures.reshape(-1, repetitions).T
  return of[~np.isnan(of).any(1)]


def measured(results, task: Task) -> Float[np.ndarray, " runs"]:
  """Return what each run is measured by; NaN where it diverged."""
  values = results[f"test_{task.metric}"].values.astype(float)
  return np.where(results.diverged.values, np.nan, values)


def train_sources(
  flags: argparse.Namespace, name: str
) -> dict[str, Float[np.ndarray, "repetitions runs"]]:
  """Return measures of a task where one source varies within a repetition, or all."""
  task = TASKS[name]
  found = {}
  for source in (*task.sources, EVERYTHING):
    varied = SOURCES if source == EVERYTHING else (source,)
    runs = repeated_seeds(varied, flags.repetitions, flags.runs)
    folder = flags.runs_in / f"{name}-{source}"
    results = vs.train(task.recipe, runs, folder, seed_batch=flags.seed_batch)
    found[source] = by_repetition(measured(results, task), flags.repetitions)
  return found


def kept_sources(folder: Path, task: Task) -> dict[str, np.ndarray]:
  """Return the same of kept runs, source after source, as far as they go."""
  paths = sorted(folder.glob("*_sources*.npz"), key=lambda p: (len(p.name), p))
  parts = []
  for path in paths:
    with np.load(path) as file:
      score = file[f"test_{task.metric}"].astype(float)
      parts.append(np.where(file["diverged"], np.nan, score))
  every = np.concatenate(parts).reshape(-1, 10 * REPETITIONS)
  names = (*task.sources, EVERYTHING)[: len(every)]
  return {x: by_repetition(y, REPETITIONS) for x, y in zip(names, every, strict=True)}


def search(
  flags: argparse.Namespace, name: str, seeds: vs.Runs, sampler: str, what: str
):
  """Return the trials of a task's searches, one for each run of `seeds`."""
  task = TASKS[name]
  how = Search(task.over, flags.trials, sampler, task.metric)
  folder = flags.runs_in / f"{name}-{what}-{flags.trials}"
  options = {"seed_batch": flags.seed_batch}
  results = train_searches(task.recipe, how, seeds, folder, **options)
  return trials_of(results, how, len(seeds))


def test_examples(task: Task) -> int:
  """Return on how many examples a run of a task is tested."""
  data = dataset_of(task.recipe)
  every = len(data.train) + sum(len(test) for test in data.tests.values())
  # Two thirds are drawn for training; half of the others are for validation.
  return (every - 2 * every // 3) // 2


def jackknife(
  statistic: Callable[..., float], *of: Float[np.ndarray, "repetitions _"]
) -> float:
  """Return the standard error of a statistic of some arrays: one repetition at a time is
  left out of all.
  """
  count = min(map(len, of))
  without = [statistic(*(np.delete(x, i, axis=0) for x in of)) for i in range(count)]
  return math.sqrt((count - 1) * np.var(without))


def ratio_of_variances(
  a: Float[np.ndarray, " repetitions"], b: Float[np.ndarray, " repetitions"]
) -> Estimate:
  """Return the ratio of the mean variances within repetitions, with the interval of its
  logarithm: other seeds that repetitions may hold, on the same data. NaN if fewer than
  two repetitions of either vary.
  """
  if min(np.count_nonzero(a), np.count_nonzero(b)) < 2:
    return Estimate(math.nan, math.nan, math.nan)
  ratio = a.mean() / b.mean()
  se_of_log = jackknife(lambda u, v: math.log(u.mean() / v.mean()), a, b)
  freedom = min(len(a), len(b)) - 1
  factor = math.exp(scipy.stats.t.ppf(0.975, freedom) * se_of_log)
  return Estimate(ratio, ratio / factor, ratio * factor)
