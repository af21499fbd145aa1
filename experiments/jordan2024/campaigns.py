"""What the figures train, by name, at each scale."""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Int

import vmapseeds as vs
from experiments import shifts
from experiments.frame import Campaign, format_duration
from experiments.jordan2024.fashion import FASHION
from experiments.jordan2024.poking import poked
from vmapseeds.training.runs import Run

DURATIONS = ("untrained", "short", "medium", "long")
TEST_SETS = ("test", *shifts.NAMES)  # of the campaigns in figures 9 and 12


class DurationScale(NamedTuple):
  """Recipes and sizes of the four durations and of the theorems' campaign."""

  recipe: vs.Recipe  # of the main campaigns
  epochs: tuple[int, int, int, int]  # of the four durations
  runs: int  # of each
  turned: vs.Recipe  # of the theorems
  turned_runs: int


TURNED = "experiments.jordan2024.turned"
TURNED_MNIST = vs.recipe("narrow_mnist", dataset=f"{TURNED}:mnist", epochs=4)
SCALES = {
  "smoke": DurationScale(
    vs.recipe("digits_cnn"),
    (0, 1, 2, 4),
    16,
    vs.recipe("linear_cifar10", dataset=f"{TURNED}:digits", batch_size=50, epochs=4),
    16,
  ),
  "laptop": DurationScale(
    vs.recipe("narrow_cifar10"),
    (0, 1, 2, 8),
    64,
    TURNED_MNIST,
    100,
  ),
  "gpu": DurationScale(
    vs.recipe("resnet9_cifar10"),
    (0, 4, 16, 64),
    1000,
    TURNED_MNIST,
    1000,
  ),
  "paper": DurationScale(
    vs.recipe("resnet9_cifar10"),
    (0, 4, 16, 64),
    60_000,
    TURNED_MNIST,
    1000,
  ),
}


class Studies(NamedTuple):
  """Recipe and sizes of the campaigns of figures 6, 8, 10 and 11."""

  recipe: vs.Recipe
  # The step through the 511 tasks: 1 trains all. It is odd: an even one would never
  # part some classes.
  every_task: int
  task_runs: int  # of each task
  rate_runs: int  # of each learning rate
  rate_steps: int  # from one learning rate to its double
  source_epochs: tuple[int, ...]
  source_runs: int  # of each source and duration
  poke_epochs: tuple[int, ...]  # some of `source_epochs`
  pairs: int  # of a poked and an unpoked run, for each poke
  # Eighths of the longest training, after which it is poked
  poke_eighths: tuple[int, ...]


class Ablations(NamedTuple):
  """Recipes and sizes of the campaigns of figures 7, 9 and 12."""

  recipe: vs.Recipe
  # On a fifth of the data, for about the accuracy that all data give without
  # augmentation
  fifth_epochs: int
  runs: int  # of each of the two
  linear: vs.Recipe
  linear_runs: int
  finetune_examples: int
  finetune_epochs: int
  finetune_rates: tuple[float, float]
  finetune_runs: int  # at each of these learning rates
  mnist: vs.Recipe
  mnist_runs: int


DIGITS = vs.recipe("digits_cnn")
RESNET = vs.recipe("resnet9_cifar10")
LINEAR = vs.recipe("linear_cifar10")
NARROW = vs.recipe("narrow_cifar10")
MNIST = vs.recipe("narrow_mnist")
# A hidden layer of 64 units: after 12 epochs it is right on 99.9 % of the training set.
MLP_MNIST = vs.Recipe(
  name="mlp_mnist",
  dataset="mnist",
  model="mlp",
  width=0.5,
  epochs=12,
  batch_size=200,
  lr=0.1,
  momentum=0.9,
  optimizer="nesterov",
  schedule="linear",
)
# All examples are one batch: runs differ only in their initial weights, and converge to
# the same optimum.
CONVERGED = LINEAR.replace(
  batch_size=50_000,
  epochs=200,
  lr=0.02,
  weight_decay=0.3,
  schedule="constant",
)
STUDIES = {
  "smoke": Studies(
    DIGITS.replace(epochs=1),
    73,
    3,
    4,
    1,
    (1, 2),
    16,
    (1, 2),
    8,
    (0, 4),
  ),
  "laptop": Studies(
    DIGITS,
    5,
    100,
    100,
    2,
    (1, 4, 16, 32, 64),
    250,
    (1, 16, 64),
    60,
    (0, 1, 2, 4, 7),
  ),
  "mnist": Studies(
    MLP_MNIST,
    1,
    0,
    40,
    2,
    (1, 4, 12),
    150,
    (1, 12),
    50,
    (0, 1, 2, 4, 7),
  ),
  "gpu": Studies(
    RESNET.replace(epochs=16),
    7,
    8,
    50,
    1,
    (1, 4, 16, 32),
    100,
    (4, 32),
    50,
    (0, 1, 2, 4, 6, 7),
  ),
  "paper": Studies(
    RESNET,
    1,
    100,
    1000,
    1,
    (1, 4, 16, 32, 64, 128),
    4000,
    (4, 128),
    1000,
    (0, 1, 2, 4, 6, 7),
  ),
}
ABLATIONS = {
  "smoke": Ablations(
    recipe=DIGITS.replace(epochs=1),
    fifth_epochs=1,
    runs=8,
    linear=CONVERGED.replace(dataset="digits", batch_size=1000),
    linear_runs=4,
    finetune_examples=100,
    finetune_epochs=1,
    finetune_rates=(0.05, 0.4),
    finetune_runs=8,
    mnist=DIGITS.replace(epochs=1),
    mnist_runs=16,
  ),
  "laptop": Ablations(
    recipe=NARROW.replace(epochs=4),
    fifth_epochs=16,
    runs=32,
    linear=CONVERGED.replace(batch_size=10_000),
    linear_runs=8,
    finetune_examples=500,
    finetune_epochs=5,
    finetune_rates=(0.005, 0.05),
    finetune_runs=120,
    mnist=MNIST,
    mnist_runs=60,
  ),
  "gpu": Ablations(
    recipe=RESNET.replace(epochs=16),
    fifth_epochs=64,
    runs=50,
    linear=CONVERGED,
    linear_runs=50,
    finetune_examples=3000,
    finetune_epochs=3,
    finetune_rates=(0.05, 1.0),
    finetune_runs=300,
    mnist=MNIST,
    mnist_runs=500,
  ),
}
ABLATIONS["paper"] = ABLATIONS["gpu"]._replace(
  recipe=RESNET,
  runs=1000,
  linear_runs=1000,
  finetune_examples=3668,
  finetune_runs=1000,
  mnist_runs=1000,
)
TRAIN = {"digits": 1000, "mnist": 60_000, "cifar10": 50_000}


def campaigns(scale: str) -> dict[str, Campaign]:
  """Every campaign of the paper's at a scale; "mnist" has those of figures 8 to 12,
  "fashion_mnist" that of figure 8.
  """
  if scale == "mnist":
    return on_mnist()
  if scale == "fashion_mnist":
    return rate_sweep(FASHION, steps=1, runs=100)
  main = SCALES[scale]
  studies = STUDIES[scale]
  ablated = ABLATIONS[scale]
  return {
    **durations(main),
    # Trained on the test set and tested on the larger training set: theorems 1 to 5.
    "turned": Campaign(main.turned, main.turned_runs),
    **binary_tasks(studies),
    **ablations(ablated),
    **learning_rates(studies),
    **source_campaigns(studies),
    **poke_campaigns(studies),
  }


def on_mnist() -> dict[str, Campaign]:
  """Return campaigns of a network that is trained until nothing is left to learn."""
  studies = STUDIES["mnist"]
  on_shifted = tested_on_shifts(studies.recipe)
  return {
    **learning_rates(studies),
    "mnist": Campaign(on_shifted, studies.source_runs),
    **source_campaigns(studies),
    **poke_campaigns(studies),
  }


def durations(scale: DurationScale) -> dict[str, Campaign]:
  """Independent runs of four durations: figures 1 to 5, 13 and 14; the longest on
  shifted test sets too: 9 and 12.
  """
  campaigns = {
    name: Campaign(scale.recipe.replace(epochs=epochs), scale.runs)
    for name, epochs in zip(DURATIONS, scale.epochs, strict=True)
  }
  long = campaigns["long"]
  return campaigns | {"long": long._replace(recipe=tested_on_shifts(long.recipe))}


def tested_on_shifts(recipe: vs.Recipe) -> vs.Recipe:
  """Return a recipe with shifted test sets beside its own."""
  return recipe.replace(
    dataset=f"{shifts.__name__}:{recipe.dataset}", test_sets=TEST_SETS
  )


def script_flags(scale: str, script: str) -> list[str]:
  """Return what the scripts of figures 1, 2, 3, 5 and 13 train at a scale."""
  of_scale = SCALES[scale]
  lengths = ["--epochs", *map(str, of_scale.epochs)]
  return ["--recipe", of_scale.recipe.name, "--runs", str(of_scale.runs), *lengths]


def binary_tasks(studies: Studies) -> dict[str, Campaign]:
  """Every task with one seed, then every task with the next: figure 6."""
  maps = label_maps()[:: studies.every_task]
  runs = vs.Runs.independent(studies.task_runs * len(maps)).with_label_map(
    np.tile(maps, (studies.task_runs, 1))
  )
  return {"binary_tasks": Campaign(studies.recipe, runs)}


def label_maps() -> Int[np.ndarray, "tasks classes"]:
  """The 511 ways to split ten classes into two groups: class 0 is in group 0, and some
  other class in group 1.
  """
  others = np.arange(1, 2**9)[:, None] >> np.arange(9) & 1
  return np.pad(others, ((0, 0), (1, 0)))


def ablations(sizes: Ablations) -> dict[str, Campaign]:
  """A linear model; no augmentation; a fixed fifth of the data; a pretrained network,
  finetuned: figure 7.

  The network is pretrained on half of the classes. Finetuning uses a few examples, the
  same for all runs, of the other classes in two groups, so that the last layer is new.
  `mnist` is for figures 9 and 12.
  """
  recipe = sizes.recipe
  runs = vs.Runs.independent(sizes.runs)
  fifth = runs.subset(np.arange(TRAIN[recipe.dataset] // 5))
  few = vs.Runs.independent(sizes.finetune_runs).subset(
    np.arange(sizes.finetune_examples)
  )
  all_at_once = vs.Runs.independent(sizes.linear_runs).subset(
    np.arange(sizes.linear.batch_size)
  )
  first = (0, 1, 2, 3, 4, *(-1,) * 5)
  others = (*(-1,) * 5, 0, 0, 0, 1, 1)
  finetuned = recipe.replace(
    classes=others,
    epochs=sizes.finetune_epochs,
    batch_size=20,
  )
  return {
    "linear": Campaign(sizes.linear, all_at_once),
    "no_augmentation": Campaign(recipe.replace(augment=""), runs),
    "fifth_of_data": Campaign(recipe.replace(epochs=sizes.fifth_epochs), fifth),
    "pretrained": Campaign(recipe.replace(classes=first), 1, keep=("keep_params",)),
    "finetuned": Campaign(
      finetuned,
      vs.Runs.sweep(lr=sizes.finetune_rates, seeds=few),
      start_from="pretrained",
    ),
    "mnist": Campaign(tested_on_shifts(sizes.mnist), sizes.mnist_runs),
  }


def shifted(campaigns: Mapping[str, Campaign]) -> list[str]:
  """The names of the campaigns of figures 9 and 12."""
  return [name for name in ("long", "mnist") if name in campaigns]


def data_of(campaign: Campaign) -> str:
  """A campaign's data set and duration in words."""
  dataset = campaign.recipe.dataset.removeprefix(f"{shifts.__name__}:")
  return f"{dataset}, {format_duration(campaign.recipe.epochs)}"


def learning_rates(studies: Studies) -> dict[str, Campaign]:
  """Learning rates from 2⁻⁹ to 2³ times the recipe's, as the paper's, the same seeds with
  each: figure 8.
  """
  return rate_sweep(studies.recipe, studies.rate_steps, studies.rate_runs)


def rate_sweep(recipe: vs.Recipe, steps: int, runs: int) -> dict[str, Campaign]:
  """The same with `steps` rates from one to its double, `runs` runs of each."""
  rates = [recipe.lr * 2 ** (k / steps) for k in range(-9 * steps, 3 * steps + 1)]
  return {"learning_rates": Campaign(recipe, vs.Runs.sweep(lr=rates, seeds=runs))}


SOURCES = ("init", "order", "augment")


def sources_of(recipe: vs.Recipe) -> tuple[str, ...]:
  return SOURCES if recipe.augment else SOURCES[:-1]


def source_campaigns(studies: Studies) -> dict[str, Campaign]:
  """Runs that vary all sources of randomness, or one while the others keep seed 0:
  figure 10.
  """
  tables = {
    "all": studies.source_runs,
    **{
      source: vs.Runs.vary(source, studies.source_runs)
      for source in sources_of(studies.recipe)
    },
  }
  return {
    f"{source}_{epochs}epochs": Campaign(studies.recipe.replace(epochs=epochs), runs)
    for source, runs in tables.items()
    for epochs in studies.source_epochs
  }


def poke_campaigns(studies: Studies) -> dict[str, Campaign]:
  """The runs of figure 10 that vary all sources, poked before some step or with another
  first step: figure 11.
  """
  unpoked = vs.Runs.independent(studies.pairs)
  campaigns = {}
  for epochs in studies.poke_epochs:
    steps = epochs * (TRAIN[studies.recipe.dataset] // studies.recipe.batch_size)
    longest = epochs == studies.poke_epochs[-1]
    for eighths in studies.poke_eighths if longest else (0,):
      recipe = studies.recipe.replace(epochs=epochs)
      campaigns[f"poked_{epochs}epochs_{eighths}of8"] = Campaign(
        poked(recipe, steps * eighths // 8), unpoked
      )
  nesterov = studies.recipe.optimizer == "nesterov"
  other = {
    "optimizer": partial(other_first_step, nesterov=nesterov),
    "schedule": "constant",
    "values": {"first_step": 0.0},
  }
  recipe = studies.recipe.replace(epochs=studies.poke_epochs[-1], **other)
  return {
    **campaigns,
    "first_step": Campaign(recipe, vs.Runs.sweep(first_step=range(3), seeds=unpoked)),
  }


def other_first_step(
  run: Run,
  steps: int,
  nesterov: bool,
) -> optax.GradientTransformation:
  """The recipes' SGD and linear schedule. `run["first_step"]` says what happens to the
  first gradient.

  0: unchanged; 1: rounded to half precision; 2: replaced by zeros, as if there were no
    first batch.
  """

  def update(gradients, step, params=None):
    def first(gradient):
      half = gradient.astype(jnp.float16).astype(gradient.dtype)
      other = jnp.where(run["first_step"] == 1, half, 0.0)
      return jnp.where((step == 0) & (run["first_step"] > 0), other, gradient)

    return jax.tree.map(first, gradients), step + 1

  return optax.chain(
    optax.GradientTransformation(lambda params: jnp.zeros((), jnp.int32), update),
    optax.add_decayed_weights(run["weight_decay"]),
    optax.trace(run["momentum"], nesterov),
    optax.scale_by_schedule(lambda step: -run["lr"] * (1 - step / steps)),
  )
