"""What the figures train, by name, at each scale; for each task:

- `sources`: runs in which one source of randomness varies, or all of them,
- `noise`: some of these runs again, in lanes of another width,

and for each task whose hyperparameters are searched:

- `random`, `noisy_grid`, `tpe`: searches in which only what the sampler draws varies,
- `ideal`: searches in which everything varies, algorithm 1,
- `fixed`: runs with what some of these searches found, algorithm 2,
- `B`: all of `sources` with another learning rate, of the task that is compared.

A run is trained on a bootstrap sample of two thirds as many examples as there are, and
tested on a sixth, drawn from what is left, as the paper's 40,000 and 10,000 of 60,000.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import vmapseeds as vs
from experiments.bouthillier2021 import images, peptides, tabular
from experiments.bouthillier2021.vgg11 import vgg11_cifar10
from experiments.frame import Campaign
from experiments.jordan2024.real import MLP_MNIST
from experiments.searches import SAMPLERS, Range, Search

EVERYTHING, NOISE = "everything", "noise"
FIXED = ("init", "data", "all")  # what algorithm 2 randomises
# The first seed of runs after a search, far from those of searches
AFTER_SEARCH = 2**20
NOISE_RUNS, NOISE_WIDTH = 40, 8
REPETITIONS = 20  # section 3.3


class Searched(NamedTuple):
  """What a task's searches are."""

  over: dict[str, Range]
  trials: int  # of a search: with two ranges a square, for the grid
  searches: int  # of a sampler, in each repetition
  ideal: int  # searches of the ideal estimator
  k: int  # measures of a biased estimator


class Task(NamedTuple):
  """Recipe, sources that its training has, and sizes."""

  recipe: vs.Recipe
  sources: tuple[str, ...]
  measures: int = 10  # of a source, in each repetition
  repetitions: int = REPETITIONS
  searched: Searched | None = None


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
DIGITS = vs.recipe("digits_cnn", dropout=0.1)
HALF = DIGITS.replace(name="digits_cnn_half", width=0.5, epochs=4)
QUICK_MNIST = MLP_MNIST.replace(name="mlp_mnist_quarter", width=0.25, epochs=1)
SOURCES = ("data", "augment", "order", "init", "dropout")
MLP_SOURCES = ("data", "order", "init")
# Table 2; the noisy grid moves the ends by up to half a step.
OVER = {"lr": Range(1e-3, 0.3, log=True), "weight_decay": Range(1e-6, 1e-2, log=True)}
OVER_MLP = {"lr": Range(1e-3, 1, log=True), "weight_decay": Range(1e-6, 0.1, log=True)}
OVER_MHC = {
  "lr": Range(1e-4, 1e-2, log=True),
  "weight_decay": Range(1e-8, 1e-2, log=True),
}
OVER_VGG = OVER | {"momentum": Range(0.5, 0.99), "gamma": Range(0.96, 0.999)}


def tasks(scale: str) -> dict[str, Task]:
  """Return the tasks of a scale, those that are searched first."""
  if scale == "smoke":
    tiny = (4, 2, 8, 4)
    quick = DIGITS.replace(name="digits_cnn_quarter", epochs=1, width=0.25)
    mlp = MLP.replace(epochs=1)
    return {
      "breast_cancer": Task(mlp, MLP_SOURCES, 4, 4, Searched(OVER_MLP, *tiny)),
      "digits": Task(quick, SOURCES, 4, 4, Searched(OVER, *tiny)),
    }
  by_name = {
    "breast_cancer": Task(
      MLP,
      MLP_SOURCES,
      searched=Searched(OVER_MLP, 100, 5, 200, 100),
    )
  }
  whole = Searched(OVER_MHC, 196, 2, 100, 100)
  few = Searched(OVER_MHC, 16, 2, 60, 20)
  mhc = whole
  if scale == "laptop":
    mhc = few
  by_name["mhc"] = Task(peptides.MLP_MHC, MLP_SOURCES, searched=mhc)
  if scale == "paper":
    vgg = Searched(OVER_VGG, 256, 2, 100, 100)
    return by_name | {"cifar10": Task(vgg11_cifar10, SOURCES[:-1], searched=vgg)}
  if scale == "gpu":
    digits = Task(DIGITS, SOURCES, searched=Searched(OVER, 196, 2, 200, 100))
    mnist = MLP_MNIST
    cifar10 = vgg11_cifar10
  else:
    digits = Task(HALF, SOURCES, searched=Searched(OVER, 16, 2, 60, 20))
    mnist = QUICK_MNIST
    cifar10 = images.PATCHES
  return by_name | {
    "digits": digits,
    "mnist": Task(mnist, MLP_SOURCES),
    "cifar10": Task(cifar10, SOURCES[:-1]),
  }


def searched_tasks(scale: str) -> dict[str, Task]:
  """Return the tasks of a scale whose hyperparameters are searched."""
  return {name: task for name, task in tasks(scale).items() if task.searched}


def objective(recipe: vs.Recipe) -> str:
  """Return what a run is measured by: its recipe's first metric, or else its accuracy."""
  return next(iter(recipe.metrics), "accuracy")


def score(recipe: vs.Recipe) -> str:
  """Return the array with what a run is measured by, on test examples."""
  return f"test_{objective(recipe)}"


def compared_task(scale: str) -> str:
  """Return the task on which A and B are compared: the last that is searched."""
  return [*searched_tasks(scale)][-1]


def campaigns(scale: str) -> dict[str, Campaign]:
  """Return every campaign of the paper's at a scale."""
  every_campaign = {}
  for name, task in tasks(scale).items():
    recipe = task.recipe
    repetitions = task.repetitions
    varied = [*((source,) for source in task.sources), SOURCES]
    tables = [
      repeated_seeds(varied_sources, repetitions, task.measures)
      for varied_sources in varied
    ]
    all_vary = tables[-1].out_of_bootstrap()
    of_task = {
      "sources": Campaign(recipe, vs.Runs.concat(tables).out_of_bootstrap()),
      NOISE: Campaign(recipe, all_vary[:NOISE_RUNS], lane_width=NOISE_WIDTH),
    }
    if name == compared_task(scale):
      of_task["B"] = Campaign(recipe.replace(lr=recipe.lr / 2), all_vary)
    searched = task.searched
    if searched:
      search = Search(searched.over, searched.trials, objective=objective(recipe))
      ideal = vs.Runs.independent(searched.ideal).out_of_bootstrap()
      of_task["ideal"] = Campaign(recipe, ideal, search=search)
      best_of = f"{name}_ideal", repetitions
      of_task["fixed"] = Campaign(
        recipe,
        fixed(repetitions, searched.k),
        best_of=best_of,
      )
      # Only what the sampler draws differs within a repetition.
      held = repeated_seeds((), repetitions, searched.searches).out_of_bootstrap()
      for sampler in SAMPLERS:
        by_sampler = search._replace(sampler=sampler)
        of_task[sampler] = Campaign(recipe, held, search=by_sampler)
    every_campaign |= {f"{name}_{what}": campaign for what, campaign in of_task.items()}
  return every_campaign


def repeated_seeds(
  varied: Sequence[str],
  repetitions: int,
  measures: int,
  first: int = 0,
) -> vs.Runs:
  """Return runs that each have a new seed for `varied`, from `first` on. Run i has the
  other seeds of repetition i modulo `repetitions`.
  """
  each = np.arange(repetitions * measures, dtype=np.uint32)
  seeds = {}
  for name in (*SOURCES, *varied):
    seeds[name] = first + each if name in varied else each % repetitions
  return vs.Runs(seeds)


def fixed(repetitions: int, k: int) -> vs.Runs:
  """Return the runs of algorithm 2 after its search, for each of `FIXED`: repetition r
  holds the seeds of search r where it does not draw anew.
  """
  tables = []
  for what in FIXED:
    varied = SOURCES if what == "all" else (what,)
    tables.append(repeated_seeds(varied, repetitions, k, AFTER_SEARCH))
  return vs.Runs.concat(tables).out_of_bootstrap()
