"""Supervised training as a task: a recipe, its data, and what is kept of each run."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from vmapseeds import models
from vmapseeds.data import Dataset, load
from vmapseeds.mistakes import Mistake
from vmapseeds.training import augment, loop
from vmapseeds.training.evaluation import evaluate
from vmapseeds.training.loop import DeviceExamples, State, check_size
from vmapseeds.training.objects import Named, described, imported, is_found
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import SOURCES, Run, Runs
from vmapseeds.training.task import Task

VARIABLES = "variables"  # the group of a folder's arrays that has them
TRIAL_STEPS = 100  # of a trial, so that what is done once does not count, or fewer (at least two) with so many
TRIAL_PIXELS = 2**21  # numbers in all its inputs

Sets = tuple[DeviceExamples, dict[str, DeviceExamples]]  # what all runs share: the training set, and the test sets


def path_of(leaf: tuple) -> str:
  """A leaf's name in a folder: its path with dots, `params.Conv_0.kernel`."""
  return jax.tree_util.keystr(leaf, simple=True, separator=".")


@functools.lru_cache(maxsize=64)
def functions(recipe: Recipe, logits: bool, keep_params: bool) -> dict[str, Any]:
  """The three functions of a recipe's task: the same ones for an equal recipe, so that they are compiled once."""

  def start(sets: Sets, run: Run) -> State:
    return loop.start(recipe, sets[0], run)

  def advance(sets: Sets, run: Run, state: State, first, last) -> State:
    return loop.advance(recipe, sets[0], run, state, first, last)

  def finish(sets: Sets, run: Run, state: State) -> dict[str, Any]:
    trained = loop.finish(state)
    out = {"diverged": trained.diverged}
    for name, data in sets[1].items():
      evaluation = evaluate(recipe, data, run, trained)
      out[f"{name}/predictions"] = evaluation.predictions
      if data.num_classes is not None:
        out[f"{name}/accuracy"] = evaluation.correct
      if logits:
        out[f"{name}/logits"] = evaluation.outputs
    if keep_params:
      out |= {f"{VARIABLES}/{path_of(path)}": leaf for path, leaf in jax.tree.leaves_with_path(trained.variables)}
    return out

  return {"start": start, "advance": advance, "finish": finish}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Supervised(Task):
  """A recipe's task."""

  recipe: Recipe
  dataset: Dataset | None
  logits: bool
  keep_params: bool

  def bound(self, runs: Runs) -> Runs:
    return runs.of(self.sources, self.values)

  def lanes(self, runs: Runs) -> Run:
    return runs.lanes(self.recipe, len(self.data[0]))

  @property
  def num_classes(self) -> int | None:
    return self.data[0].num_classes

  def outputs(self, runs: Runs) -> dict[str, jax.ShapeDtypeStruct]:
    found = super().outputs(runs)
    return {n: jax.ShapeDtypeStruct((), np.float64) if n.endswith("/accuracy") else a for n, a in found.items()}

  def stored(self, outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    sizes = {f"{name}/accuracy": len(data) for name, data in self.dataset.tests.items()}
    return {name: values / sizes[name] if name in sizes else values for name, values in outputs.items()}

  def dimensions(self, name: str, ndim: int) -> tuple[str, ...]:
    group, _, array = name.rpartition("/")
    if group == VARIABLES:
      return tuple(f"{array}.{axis}" for axis in range(ndim))
    last = "class" if array == "logits" and self.num_classes is not None else "output"
    return ("example", last, *(f"output.{axis}" for axis in range(1, ndim)))[:ndim]

  @property
  def examples(self) -> dict[str, np.ndarray]:
    kind = "targets" if self.num_classes is None else "labels"
    return {f"{name}/{kind}": data.targets for name, data in self.dataset.tests.items()}

  def described(self) -> str:
    return self.recipe.to_json()

  @functools.cached_property
  def data_digest(self) -> str:
    return self.dataset.digest

  def description(self, runs: Runs) -> dict[str, Any]:
    return {
      "recipe": self.described(), "test_sets": list(self.recipe.test_sets), "num_classes": self.num_classes,
      "sampling": list(runs.sampling) if runs.sampling else None, "logits": self.logits,
    }  # fmt: skip

  def conditions(self) -> dict[str, Any]:
    train = self.data[0]
    moments = {name: None if (m := getattr(train, name)) is None else m.tolist() for name in ("mean", "std")}
    return {"precision": models.resolved(self.recipe.precision), "data_digest": self.data_digest, **moments}

  def speed_key(self) -> dict[str, Any]:
    fields = ("model", "width", "dropout", "loss", "batch_size", "optimizer", "augment")
    train = self.data[0]
    return {
      **{field: described(getattr(self.recipe, field)) for field in fields},
      "precision": models.resolved(self.recipe.precision), "image": train.inputs.shape[1:],
      "dtype": str(train.inputs.dtype),
      "num_classes": self.num_classes,
    }  # fmt: skip

  def trial(self) -> Task:
    """One epoch of a few steps on random inputs."""
    train = self.data[0]
    shape = train.inputs.shape[1:]
    steps = min(TRIAL_STEPS, max(2, TRIAL_PIXELS // (self.recipe.batch_size * math.prod(shape))))
    return timed(self.recipe, train, steps)


def random_examples(like: DeviceExamples, n: int) -> DeviceExamples:
  """`n` random examples that look like others."""
  rng = np.random.default_rng(0)
  shape, targets, kind = (n, *like.inputs.shape[1:]), like.targets.shape[1:], np.dtype(like.inputs.dtype)
  # Of other whole numbers, such as words, nothing says how many there are.
  numbers = rng.normal(0, 1, shape) if kind.kind == "f" else rng.integers(0, 256 if kind == np.uint8 else 2, shape)
  inputs = numbers.astype(kind)
  if like.num_classes is None:
    answers = rng.normal(0, 1, (n, *targets)).astype(like.targets.dtype)
  else:
    answers = rng.integers(0, like.num_classes, (n, *targets), np.int32)
  mean, std = ((None if like.mean is None else np.full(like.mean.shape, value, np.float32)) for value in (128, 64))
  return DeviceExamples(inputs, answers, mean, std, like.num_classes)


def timed(recipe: Recipe, like: DeviceExamples, steps: int) -> Supervised:
  """A task of one epoch of so many steps, on random inputs that look like some examples."""
  recipe = dataclasses.replace(recipe, epochs=1, evaluate_every=None, training_metrics=False, start_from=None)
  parts = functions(recipe, False, False)

  def finish(sets, run, state):
    return {"diverged": state.diverged}

  return Supervised(
    name=recipe.name, **(parts | {"finish": finish}), data=(random_examples(like, steps * recipe.batch_size), {}),
    rounds=1, steps=steps, sources=SOURCES, values=recipe.hyperparameters, recipe=recipe, dataset=None, logits=False,
    keep_params=False,
  )  # fmt: skip


def supervised(
  recipe: Recipe, runs: Runs, *, logits: bool = False, keep_params: bool = False, memory: float = math.inf,
  dataset: Dataset | None = None,
) -> Supervised:  # fmt: skip
  """The task that a recipe makes for such runs, its data loaded.

  Args:
    recipe: what to train.
    runs: for their label maps.
    logits, keep_params: what is kept of each run beside predictions.
    memory: bytes that a device has.
    dataset: the data, where they are loaded already.

  Raises:
    Mistake: recipe, runs and data do not fit.
  """
  dataset = dataset_of(recipe) if dataset is None else dataset
  runs.check(recipe, len(dataset.train), dataset.num_classes)
  sets = on_device(recipe, dataset, runs.num_classes(dataset.num_classes))
  check_size(recipe, sets[0], memory)
  steps = max(1, runs.num_train(len(dataset.train)) // recipe.batch_size)
  return Supervised(
    name=recipe.name, **functions(recipe, logits, keep_params), data=sets, rounds=recipe.epochs, sources=SOURCES,
    values=recipe.hyperparameters, steps=steps, origin=recipe.origin, recipe=recipe, dataset=dataset, logits=logits,
    keep_params=keep_params, shown="" if sets[0].num_classes is None else f"{recipe.test_sets[0]}/accuracy",
  )  # fmt: skip


# Height, width and channels, classes, training and test examples, of which each class has as many: what a program
# depends on, known without the data.
BALANCED = {"cifar10": ((32, 32, 3), 10, 50_000, 10_000)}


def without_data(recipe: Recipe) -> Supervised:
  """The recipe's task with what its data look like, for what asks how fast it is. `Mistake` where there are none."""
  if recipe.dataset in BALANCED and {*recipe.test_sets} <= {"train", "test"}:
    shape, num_classes, *counts = BALANCED[recipe.dataset]
    if recipe.classes:
      counts = [n * sum(c >= 0 for c in recipe.classes) // num_classes for n in counts]
      num_classes = max(recipe.classes) + 1
    sizes = dict(zip(("train", "test"), counts, strict=True))
    moment = jax.ShapeDtypeStruct(shape[-1:], np.float32) if recipe.normalize else None

    def alike(n: int) -> DeviceExamples:
      inputs, targets = jax.ShapeDtypeStruct((n, *shape), np.uint8), jax.ShapeDtypeStruct((n,), np.int32)
      return DeviceExamples(inputs, targets, moment, moment, num_classes)

    check_inputs(recipe, shape)
    sets = alike(sizes["train"]), {name: alike(sizes[name]) for name in recipe.test_sets}
  else:
    data = dataset_of(recipe)
    looks = functools.partial(jax.tree.map, lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype))
    sets = looks(on_device(recipe, data, data.num_classes))
  return Supervised(
    name=recipe.name, **functions(recipe, False, False), data=sets, rounds=recipe.epochs, sources=SOURCES,
    values=recipe.hyperparameters, steps=max(1, len(sets[0]) // recipe.batch_size), recipe=recipe, dataset=None,
    logits=False, keep_params=False,
  )  # fmt: skip


def check_inputs(recipe: Recipe, shape: tuple[int, ...]) -> None:
  """`Mistake` where inputs of this shape are too small for the recipe."""
  augment.check_size(recipe.augment, shape)
  if isinstance(recipe.model, str) and recipe.model in models.NAMES:
    models.check_size(recipe.model, shape)


def dataset_of(recipe: Recipe) -> Dataset:
  """The recipe's data in memory."""
  given = recipe.dataset
  if isinstance(given, Named):
    raise Mistake(f"the data of {recipe.name} were arrays in memory, which only its own program has: start that again")
  if isinstance(given, str) and is_found(given) and not isinstance(given := imported(given), Dataset):
    raise Mistake(f"dataset {recipe.dataset} is {type(given).__name__}: give the name of a vs.Dataset")
  if isinstance(given, Dataset):
    return given.chosen(recipe.test_sets, recipe.classes)
  return load(given, test_sets=recipe.test_sets, classes=recipe.classes)


def on_device(recipe: Recipe, data: Dataset, num_classes: int | None) -> Sets:
  """The training set and the test sets as lanes read them. `Mistake` where the recipe does not fit the inputs."""
  check_inputs(recipe, data.train.inputs.shape[1:])
  targets = data.train.targets
  said = f"the targets of {data.name} are {targets.dtype} {targets.shape}, no classes, which are whole numbers (n,)"
  if num_classes is None and recipe.loss == "cross_entropy":
    raise Mistake(f"{said}: give a loss for them, such as squared_error")
  if num_classes is None and recipe.predict == "argmax":
    raise Mistake(f"{said}: give predict, such as 'outputs'")
  moments = moments_of(recipe, data) if recipe.normalize else (None, None)

  def examples(e):
    return DeviceExamples(e.inputs, e.targets, *moments, num_classes)

  return examples(data.train), {name: examples(e) for name, e in data.tests.items()}


def moments_of(recipe: Recipe, data: Dataset) -> tuple[Float[np.ndarray, " channels"], Float[np.ndarray, " channels"]]:
  """Mean and standard deviation of the training set's inputs, a channel (their last axis)."""
  inputs = data.train.inputs
  channels = inputs.shape[-1] if inputs.ndim > 1 else 1
  moments = []
  for name, statistic in (("mean", np.mean), ("std", np.std)):
    given = getattr(recipe, name)
    if given is not None and len(given) != channels:
      raise Mistake(f"{name} of {len(given)} channels for {data.name} images of {channels}: give {channels} or none")
    value = statistic(inputs, axis=tuple(range(max(1, inputs.ndim - 1))), dtype=np.float64) if given is None else given
    moments.append(np.asarray(value, np.float32))
  if not (moments[1] > 0).all():
    raise Mistake(f"a channel of {data.name} is constant: give std for each channel, or normalize=False")
  return moments[0], moments[1]
