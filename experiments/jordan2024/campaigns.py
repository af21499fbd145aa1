"""What the figures train, by name, at each scale."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Int

import vmapseeds as vs
from experiments.frame import Campaign, duration
from vmapseeds.training.runs import Run

DURATIONS = ("untrained", "short", "medium", "long")
PRINTED_EPOCHS = dict(zip(DURATIONS, (0, 4, 16, 64), strict=True))  # the paper's


class Scale(NamedTuple):
  """What the sizes of campaigns follow from."""

  recipe: vs.Recipe  # of the main campaigns
  epochs: tuple[int, int, int, int]  # of the four durations
  runs: int  # of each


SCALES = {
  "smoke": Scale(vs.recipe("digits_cnn"), (0, 1, 2, 4), 16),
  "laptop": Scale(vs.recipe("narrow_cifar10"), (0, 1, 2, 8), 64),
  "gpu": Scale(vs.recipe("resnet9_cifar10"), (0, 4, 16, 64), 1000),
  "paper": Scale(vs.recipe("resnet9_cifar10"), (0, 4, 16, 64), 60_000),
}


class Studies(NamedTuple):
  """What the campaigns of figures 6 to 8, 10 and 11 follow from."""

  recipe: vs.Recipe
  every_task: int  # of the 511
  task_runs: int  # of each task
  rate_runs: int  # of each learning rate
  source_epochs: tuple[int, ...]
  source_runs: int  # of each source and duration
  poke_epochs: tuple[int, ...]  # some of `source_epochs`
  pairs: int  # of runs, poked and not, for each poke
  poke_eighths: tuple[int, ...]  # of the longest training, at which it is poked


DIGITS, RESNET = vs.recipe("digits_cnn"), vs.recipe("resnet9_cifar10")
STUDIES = {
  "smoke": Studies(DIGITS.replace(epochs=1), 64, 3, 4, (1, 2), 16, (1, 2), 8, (0, 4)),
  "laptop": Studies(DIGITS, 1, 10, 100, (1, 4, 16, 32, 64), 250, (1, 16, 64), 60, (0, 1, 2, 4, 7)),
  "gpu": Studies(RESNET.replace(epochs=16), 8, 8, 50, (1, 4, 16, 32), 100, (4, 32), 50, (0, 1, 2, 4, 6, 7)),
  "paper": Studies(RESNET, 1, 100, 1000, (1, 4, 16, 32, 64, 128), 4000, (4, 128), 1000, (0, 1, 2, 4, 6, 7)),
}
TRAIN = {"digits": 1000, "mnist": 60_000, "cifar10": 50_000}


def campaigns(scale: str) -> dict[str, Campaign]:
  """Every campaign of the paper's at a scale."""
  studies = STUDIES[scale]
  return {
    **durations(SCALES[scale]),
    **binary_tasks(studies),
    **learning_rates(studies),
    **sources(studies),
    **pokes(studies),
  }


def durations(scale: Scale) -> dict[str, Campaign]:
  """Independent runs of four durations: figures 1 to 5, 13 and 14."""
  return {
    name: Campaign(scale.recipe.replace(epochs=epochs), scale.runs)
    for name, epochs in zip(DURATIONS, scale.epochs, strict=True)
  }


def said(name: str, epochs: int) -> str:
  """A duration in words: ours, and the paper's that it stands for."""
  printed = PRINTED_EPOCHS[name]
  return f"{name}: {duration(epochs)}" + (f", the paper's {printed}" if epochs != printed else "")


def binary_tasks(studies: Studies) -> dict[str, Campaign]:
  """Every task with a first seed, then every task with another: figure 6."""
  maps = label_maps()[:: studies.every_task]
  runs = vs.Runs.independent(studies.task_runs * len(maps)).with_label_map(np.tile(maps, (studies.task_runs, 1)))
  return {"binary_tasks": Campaign(studies.recipe, runs)}


def label_maps() -> Int[np.ndarray, "tasks classes"]:
  """The 511 ways to split ten classes into two groups: class 0 is in group 0, and some other class in group 1."""
  others = np.arange(1, 2**9)[:, None] >> np.arange(9) & 1
  return np.pad(others, ((0, 0), (1, 0)))


# The paper's 13, of which the tenth is its recipe's own 0.5.
RATES = tuple(2.0**power for power in range(-9, 4))


def learning_rates(studies: Studies) -> dict[str, Campaign]:
  """Thirteen learning rates, the same seeds with each: figure 8."""
  rates = [studies.recipe.lr * rate for rate in RATES]
  return {"learning_rates": Campaign(studies.recipe, vs.Runs.sweep(lr=rates, seeds=studies.rate_runs))}


SOURCES = ("init", "order", "augment")


def sources(studies: Studies) -> dict[str, Campaign]:
  """All sources of randomness, or one alone while the others have the seed 0: figure 10."""
  tables = {"all": studies.source_runs, **{source: vs.Runs.vary(source, studies.source_runs) for source in SOURCES}}
  return {
    f"{source}_{epochs}epochs": Campaign(studies.recipe.replace(epochs=epochs), runs)
    for source, runs in tables.items()
    for epochs in studies.source_epochs
  }


def pokes(studies: Studies) -> dict[str, Campaign]:
  """The runs of figure 10 in which all sources vary, poked before some step; and another first step: figure 11."""
  unpoked = vs.Runs.independent(studies.pairs)
  found = {}
  for epochs in studies.poke_epochs:
    steps = epochs * (TRAIN[studies.recipe.dataset] // studies.recipe.batch_size)
    for eighths in studies.poke_eighths if epochs == studies.poke_epochs[-1] else (0,):
      runs = unpoked.poke(steps * eighths // 8)
      found[f"poked_{epochs}epochs_{eighths}of8"] = Campaign(studies.recipe.replace(epochs=epochs), runs)
  other = {"optimizer": other_first_step, "schedule": "constant", "values": {"first_step": 0.0}}
  recipe = studies.recipe.replace(epochs=studies.poke_epochs[-1], **other)
  return {**found, "first_step": Campaign(recipe, vs.Runs.sweep(first_step=range(3), seeds=unpoked))}


def other_first_step(run: Run, steps: int) -> optax.GradientTransformation:
  """The recipes' SGD and linear schedule, with another first gradient where `run["first_step"]` says so.

  0: as it is; 1: as half precision has it; 2: left out, as if the first batch were not there.
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
    optax.trace(run["momentum"]),
    optax.scale_by_schedule(lambda step: -run["lr"] * (1 - step / steps)),
  )
