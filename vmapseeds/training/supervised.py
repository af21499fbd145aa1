"""Supervised training as a task: a recipe, its data, and what is kept of each run."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Integer

from vmapseeds import models
from vmapseeds.data import Dataset, load
from vmapseeds.data.examples import fingerprint
from vmapseeds.mistakes import Mistake
from vmapseeds.training import augment, loop
from vmapseeds.training.evaluation import evaluate
from vmapseeds.training.inputs import DeviceExamples, batch_like
from vmapseeds.training.loop import State
from vmapseeds.training.networks import (
  Trained,
  check_size,
  last_layer,
  network,
  path_of,
  variables_of,
)
from vmapseeds.training.objects import Named, described, imported, is_found, is_name
from vmapseeds.training.recipes import MOST_EPOCHS, Recipe
from vmapseeds.training.runs import SOURCES, Run, Runs
from vmapseeds.training.task import Task

VARIABLES = "variables"  # the group of a folder's arrays with the networks' variables
TRIAL_STEPS = 100  # of a trial: enough that one-off costs do not count
PART = 2**20  # numbers of inputs whose moments are summed at once
TRIAL_PIXELS = (
  2**21
)  # most numbers in a trial's inputs; large batches get fewer steps, but at least two

Sets = tuple[
  DeviceExamples, dict[str, DeviceExamples]
]  # what all runs share: the training set, and the test sets


class Base(Protocol):
  """Stored networks that runs start from."""

  path: str
  digest: str  # of their values
  shapes: dict[str, tuple[int, ...]]  # of one network's variables, by their paths

  def __len__(self) -> int: ...

  def load(
    self, rows: Integer[np.ndarray, " networks"], names: Sequence[str]
  ) -> dict[str, np.ndarray]:
    """The variables `names` of the networks numbered `rows`. The first axis is the
    network.
    """


def of_epochs(name: str) -> str:
  """The name in a folder of the array with `name` after each evaluated epoch."""
  group, slash, array = name.rpartition("/")
  return f"{group}{slash}epoch_{array}"


def stored_as(path: tuple) -> str:
  """The name of a variable's array in a folder. `Mistake` where it would not lead to
  the layer again.
  """
  for key in (jax.tree_util.keystr((key,), simple=True) for key in path):
    if {*key} & {*"./"}:
      raise Mistake(
        f"layer {key!r}: parameters are kept by their layers' names, give it one without . and /"
      )
  return f"{VARIABLES}/{path_of(path)}"


def evaluated_epochs(recipe: Recipe) -> list[int]:
  """The numbers of epochs after which runs are evaluated."""
  every = recipe.evaluate_every or max(1, recipe.epochs)
  return [*range(every, recipe.epochs, every), recipe.epochs]


@functools.lru_cache(maxsize=64)
def functions(recipe: Recipe, logits: bool, keep_params: bool) -> dict[str, Any]:
  """The three functions of a recipe's task. Equal recipes get the same functions, so
  that these are compiled once.
  """

  every = recipe.evaluate_every

  def measured(sets: Sets, run: Run, trained: Trained) -> dict[str, Any]:
    out = {}
    for name, data in sets[1].items():
      evaluation = evaluate(recipe, data, run, trained)
      out[f"{name}/predictions"] = evaluation.predictions
      if data.num_classes is not None:
        out[f"{name}/accuracy"] = evaluation.correct
        out[f"{name}/half_errors"] = evaluation.half_errors
      if logits:
        out[f"{name}/logits"] = evaluation.outputs
    if recipe.training_metrics:
      evaluation = evaluate(recipe, sets[0], run, trained, run.subset)
      out["train_loss"] = evaluation.loss
      if sets[0].num_classes is not None:
        out["train_accuracy"] = evaluation.correct
    return out

  def of_an_epoch(measured: dict[str, Any]) -> dict[str, Any]:
    return {
      of_epochs(name): value
      for name, value in measured.items()
      if not name.endswith("/logits")
    }

  def start(sets: Sets, run: Run) -> State | tuple[State, dict[str, Any]]:
    state = loop.start(recipe, sets[0], run)
    if every is None:
      return state
    like = jax.eval_shape(
      lambda state: of_an_epoch(measured(sets, run, loop.finish(state))), state
    )
    return state, jax.tree.map(
      lambda a: jnp.zeros((len(evaluated_epochs(recipe)), *a.shape), a.dtype), like
    )

  def advance(sets: Sets, run: Run, state, first, last):
    if every is None:
      return loop.advance(recipe, sets[0], run, state, first, last)

    def up_to_an_evaluation(number, state):
      state, seen = state
      end = (number + 1) * every
      state = loop.advance(
        recipe,
        sets[0],
        run,
        state,
        jnp.maximum(first, end - every),
        jnp.minimum(last, end),
      )

      def evaluated():
        now = of_an_epoch(measured(sets, run, loop.finish(state)))
        return jax.tree.map(lambda of_all, one: of_all.at[number].set(one), seen, now)

      # The condition does not depend on the lane, so vmap keeps the branch. `finish`
      # makes the last evaluation.
      return state, jax.lax.cond(
        (end <= last) & (end < recipe.epochs), evaluated, lambda: seen
      )

    return jax.lax.fori_loop(
      first // every, -(-last // every), up_to_an_evaluation, state
    )

  def finish(sets: Sets, run: Run, state) -> dict[str, Any]:
    state, seen = (state, {}) if every is None else state
    trained = loop.finish(state)
    out = {"diverged": trained.diverged, **(now := measured(sets, run, trained))}
    if recipe.stop_at is not None:
      out["trained_epochs"] = state.epochs
    out |= {
      name: of_all.at[-1].set(of_an_epoch(now)[name]) for name, of_all in seen.items()
    }
    if keep_params:
      out |= {
        stored_as(path): leaf
        for path, leaf in jax.tree.leaves_with_path(trained.variables)
      }
    return out

  return {"start": start, "advance": advance, "finish": finish}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Supervised(Task):
  """A recipe's task."""

  recipe: Recipe
  num_train: int = 0  # examples that each run is trained on
  data_name: str = ""
  base: Base | None = None
  from_base: Sequence[str] = ()  # the paths of the variables that come from `base`
  predictions: bool = True  # whether they are stored

  def bound(self, runs: Runs) -> Runs:
    if self.base and runs.start is None:
      runs = runs.start_from(np.arange(len(runs)) % len(self.base))
    return runs.of(self.sources, self.values)

  def lanes(self, runs: Runs) -> Run:
    run = runs.lanes(self.recipe, len(self.data[0]))
    if self.base is None:
      return run
    return dataclasses.replace(
      run, start=self.base.load(runs.columns()["start"], self.from_base)
    )

  @property
  def num_classes(self) -> int | None:
    return self.data[0].num_classes

  def outputs(self, runs: Runs) -> dict[str, jax.ShapeDtypeStruct]:
    found = super().outputs(runs)
    stored = {
      n: a
      for n, a in found.items()
      if self.predictions or not n.endswith("predictions")
    }
    return {
      n: jax.ShapeDtypeStruct(a.shape, np.float64) if n.endswith("accuracy") else a
      for n, a in stored.items()
    }

  def tallied(self, runs: Runs) -> dict[str, Int[np.ndarray, " examples"]]:
    columns = {
      name: column
      for name, column in runs.columns().items()
      if not name.startswith(("seed_", "start"))
    }
    alike = "label_map" not in columns and not any(
      np.ptp(c) for c in columns.values() if c.ndim == 1
    )
    classes = self.num_classes is not None and self.recipe.predict == "argmax"
    return (
      {name: data.targets for name, data in self.data[1].items()}
      if classes and alike
      else {}
    )

  def stored(self, outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    sizes = {f"{name}/accuracy": len(data) for name, data in self.data[1].items()}
    sizes["train_accuracy"] = self.num_train
    sizes |= {of_epochs(name): size for name, size in sizes.items()}
    return {
      name: values / sizes[name] if name in sizes else values
      for name, values in outputs.items()
    }

  def dimensions(self, name: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    group, _, array = name.rpartition("/")
    if group == VARIABLES:
      return tuple(f"{array}.{axis}" for axis in range(len(shape)))
    if array == "epoch":
      return ("epoch",)
    if array.startswith("epoch_"):
      return (
        "epoch",
        *self.dimensions(f"{group}/{array.removeprefix('epoch_')}", shape[1:]),
      )
    if array == "half_errors":
      return ("half",)
    if not shape:
      return ()
    if array == "logits" and self.num_classes is not None:
      last = "class"
    # Xarray subtracts entry by entry along axes of the same name, and every pair along
    # others
    else:
      last = (
        "target" if shape[1:] == self.data[1][group].targets.shape[1:] else "output"
      )
    return ("example", last, *(f"{last}.{axis}" for axis in range(1, len(shape))))[
      : len(shape)
    ]

  @property
  def examples(self) -> dict[str, np.ndarray]:
    kind = "targets" if self.num_classes is None else "labels"
    epochs = (
      {"epoch": np.array(evaluated_epochs(self.recipe))}
      if self.recipe.evaluate_every
      else {}
    )
    return {
      f"{name}/{kind}": data.targets for name, data in self.data[1].items()
    } | epochs

  def described(self) -> str:
    return self.recipe.to_json()

  @functools.cached_property
  def data_digest(self) -> str:
    train, tests = self.data
    digest = fingerprint(
      [(examples.inputs, examples.targets) for examples in (train, *tests.values())]
    )
    return f"{digest} from {self.base.digest}" if self.base else digest

  def description(self, runs: Runs) -> dict[str, Any]:
    return {
      "recipe": self.described(),
      "test_sets": list(self.recipe.test_sets),
      "num_classes": self.num_classes,
      "sampling": [*runs.sampling, len(self.data[0])] if runs.sampling else None,
    }

  def conditions(self) -> dict[str, Any]:
    train = self.data[0]
    moments = {
      name: None if (m := getattr(train, name)) is None else m.tolist()
      for name in ("mean", "std")
    }
    return {
      "precision": models.resolve_precision(self.recipe.precision),
      "data_digest": self.data_digest,
      **moments,
    }

  def speed_key(self) -> dict[str, Any]:
    fields = (
      "model",
      "width",
      "depth",
      "dropout",
      "loss",
      "batch_size",
      "optimizer",
      "augment",
      "trainable",
    )
    train = self.data[0]
    return {
      **{field: described(getattr(self.recipe, field)) for field in fields},
      "precision": models.resolve_precision(self.recipe.precision),
      "image": train.inputs.shape[1:],
      "dtype": str(train.inputs.dtype),
      "num_classes": self.num_classes,
    }

  def bytes_of_a_run(self, runs: Runs) -> int:
    begun_from = (
      sum(4 * math.prod(self.base.shapes[path]) for path in self.from_base)
      if self.base
      else 0
    )
    return super().bytes_of_a_run(runs) + begun_from

  def check_varying(self, runs: Runs) -> None:
    # A run that starts from a stored network uses its init seed only to choose the
    # poked weight.
    stored = self.base and len(self.from_base) == len(
      jax.tree.leaves(variables_of(self.recipe, self.data[0]))
    )
    if stored and runs.poke_step is None and "init" in runs.varying():
      raise Mistake(
        f"{self.name} begins as stored networks and reads no seed of init: vary other sources"
      )
    super().check_varying(runs)

  def trial(self) -> Task:
    """One epoch of a few steps on random inputs.

    Its recipe has more epochs, so that a schedule of the user's own is made for as many
    steps as in the whole training.
    """
    train = self.data[0]
    shape = train.inputs.shape[1:]
    steps = min(
      TRIAL_STEPS, max(2, TRIAL_PIXELS // (self.recipe.batch_size * math.prod(shape)))
    )
    recipe = self.recipe.replace(
      epochs=min(MOST_EPOCHS, -(-max(1, self.rounds) * self.steps // steps)),
      warmup=0,
      evaluate_every=None,
      training_metrics=False,
      start_from=None,
      stop_at=None,
    )
    task = task_of(
      recipe, (random_examples(train, steps * recipe.batch_size), {}), steps=steps
    )
    return dataclasses.replace(
      task, rounds=1, finish=lambda sets, run, state: {"diverged": state.diverged}
    )


def random_examples(like: DeviceExamples, n: int) -> DeviceExamples:
  """`n` random examples with the shapes and dtypes of others."""
  rng = np.random.default_rng(0)
  shape, targets, kind = (
    (n, *like.inputs.shape[1:]),
    like.targets.shape[1:],
    np.dtype(like.inputs.dtype),
  )
  # Other whole numbers, such as token ids, have no known range, but it should include 0
  # and 1.
  numbers = (
    rng.normal(0, 1, shape)
    if kind.kind == "f"
    else rng.integers(0, 256 if kind == np.uint8 else 2, shape)
  )
  inputs = numbers.astype(kind)
  if like.num_classes is None:
    answers = rng.normal(0, 1, (n, *targets)).astype(like.targets.dtype)
  else:
    answers = rng.integers(0, like.num_classes, (n, *targets), np.int32)
  mean, std = (
    (None if like.mean is None else np.full(like.mean.shape, value, np.float32))
    for value in (128, 64)
  )
  return DeviceExamples(inputs, answers, mean, std, like.num_classes)


def task_of(
  recipe: Recipe,
  sets: Sets,
  *,
  logits: bool = False,
  keep_params: bool = False,
  **more: Any,
) -> Supervised:
  """The recipe's task on these sets; `more` sets further fields."""
  return Supervised(
    name=recipe.name,
    **functions(recipe, logits, keep_params),
    data=sets,
    rounds=recipe.epochs,
    sources=SOURCES,
    values=recipe.hyperparameters,
    recipe=recipe,
    **more,
  )


def supervised(
  recipe: Recipe,
  runs: Runs,
  *,
  logits: bool = False,
  keep_params: bool = False,
  predictions: bool = True,
  memory: float = math.inf,
  base: Base | None = None,
) -> Supervised:
  """The recipe's task for these runs, with its data loaded.

  Args:
    recipe: what to train.
    runs: the table to train; label maps and subsets change the numbers of classes and
      of steps.
    logits, keep_params, predictions: what is kept of each run beside accuracies.
    memory: bytes that a device has.
    base: the stored networks that the recipe starts from.

  Raises:
    Mistake: recipe, runs and data do not fit together.
  """
  dataset = dataset_of(recipe)
  runs.check(recipe, len(dataset.train), dataset.num_classes)
  sets = on_device(recipe, dataset, runs.num_classes(dataset.num_classes))
  check_size(recipe, sets[0], memory)
  num_train = runs.num_train(len(dataset.train))
  return task_of(
    recipe,
    sets,
    logits=logits,
    keep_params=keep_params,
    steps=max(1, num_train // recipe.batch_size),
    origin=recipe.origin,
    data_name=dataset.name,
    predictions=predictions,
    num_train=num_train,
    base=base,
    from_base=fitting(recipe, sets[0], base, runs) if base else (),
    shown="" if sets[0].num_classes is None else f"{recipe.test_sets[0]}/accuracy",
  )


def fitting(recipe: Recipe, data: DeviceExamples, base: Base, runs: Runs) -> list[str]:
  """The paths of the stored variables that runs start from. `Mistake` where more than
  the last layer differs.
  """
  if runs.start is not None and runs.start.max() >= len(base):
    raise Mistake(
      f"network {runs.start.max()} of {base.path} with {len(base)}: the last is {len(base) - 1}"
    )
  variables = variables_of(recipe, data)
  due = {
    path_of(path): leaf.shape for path, leaf in jax.tree.leaves_with_path(variables)
  }
  last = last_layer(
    network(recipe, data.num_classes).apply, variables, batch_like(data, 1)
  )
  fresh = {path for path in last if base.shapes.get(path) != due[path]}
  for path in dict.fromkeys((*due, *base.shapes)):
    stored, mine = base.shapes.get(path), due.get(path)
    if stored != mine and path not in fresh:
      said = f"{base.path} has {path} {stored}, {recipe.name} {mine}"
      raise Mistake(
        f"{said}: give the model that was trained there, of which the last layer alone may differ"
      )
  return [path for path in due if path not in fresh]


# Data sets with equally many examples of each class: (height, width, channels),
# classes, training and test examples. Programs depend on nothing else about the data,
# so compiling them needs no data.
BALANCED = {"cifar10": ((32, 32, 3), 10, 50_000, 10_000)}


def without_data(recipe: Recipe) -> Supervised:
  """The recipe's task with shapes and dtypes in place of data, to estimate its speed.
  Data sets in `BALANCED` are not loaded; for others `Mistake` where they cannot be.
  """
  known = recipe
  if recipe.dataset in BALANCED and {*recipe.test_sets} <= {"train", "test"}:
    shape, num_classes, *counts = BALANCED[recipe.dataset]
    sets = [
      (np.broadcast_to(np.uint8(0), (n, *shape)), np.arange(n) % num_classes)
      for n in counts
    ]
    known = recipe.replace(
      dataset=Dataset(train=sets[0], test=sets[1], name=recipe.dataset),
      mean=(0,) * shape[-1],
      std=(1,) * shape[-1],
    )
  data = dataset_of(known)
  looks = functools.partial(
    jax.tree.map, lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype)
  )
  train, tests = looks(on_device(known, data, data.num_classes))
  return task_of(recipe, (train, tests), steps=max(1, len(train) // recipe.batch_size))


def dataset_of(recipe: Recipe) -> Dataset:
  """Loads the recipe's data into memory."""
  given = recipe.dataset
  if isinstance(given, Named):
    raise Mistake(
      f"the data of {recipe.name} were arrays in memory: only vs.train in their own program goes on"
    )
  if (
    isinstance(given, str)
    and is_found(given)
    and not isinstance(given := imported(given), Dataset)
  ):
    raise Mistake(
      f"dataset {recipe.dataset} is {type(given).__name__}: give the name of a vs.Dataset"
    )
  if isinstance(given, Dataset):
    return given.select(recipe.test_sets, recipe.classes)
  return load(given, test_sets=recipe.test_sets, classes=recipe.classes)


def on_device(recipe: Recipe, data: Dataset, num_classes: int | None) -> Sets:
  """The training set and the test sets as lanes read them. `Mistake` where the recipe
  does not fit the inputs.
  """
  augment.check_size(recipe.augment, data.train.inputs.shape[1:])
  if is_name(recipe.model):
    models.check_size(recipe.model, data.train.inputs.shape[1:])
  targets = data.train.targets
  said = f"the targets of {data.name} are {targets.dtype} {targets.shape}, no classes, which are whole numbers (n,)"
  if num_classes is None and recipe.loss == "cross_entropy":
    raise Mistake(f"{said}: give a loss for them, such as squared_error")
  if num_classes is not None and recipe.loss == "squared_error":
    remedy = "give cross_entropy, or a vs.Dataset with num_classes=None"
    raise Mistake(
      f"loss is squared_error, the targets of {data.name} are classes: {remedy}"
    )
  if num_classes is None and recipe.stop_at is not None:
    raise Mistake(f"{said}: leave stop_at out, which is an accuracy")
  if num_classes is None and recipe.predict == "argmax":
    raise Mistake(f"{said}: give predict, such as 'outputs'")
  mean, std = moments_of(recipe, data) if recipe.normalize else (None, None)

  def examples(e):
    return DeviceExamples(e.inputs, e.targets, mean, std, num_classes)

  return examples(data.train), {name: examples(e) for name, e in data.tests.items()}


def deviation(inputs: np.ndarray, *, axis: tuple[int, ...], dtype: type) -> np.ndarray:
  """`np.std`, in parts: it would make an array of all deviations from the mean, eight
  times as large as bytes.
  """
  mean: np.ndarray = np.mean(inputs, axis=axis, dtype=dtype)
  parts = np.array_split(inputs, -(-inputs.size // PART))
  return np.sqrt(
    sum(((part - mean) ** 2).sum(axis) for part in parts) / (inputs.size // mean.size)
  )


def moments_of(
  recipe: Recipe, data: Dataset
) -> tuple[Float[np.ndarray, " channels"], Float[np.ndarray, " channels"]]:
  """Mean and standard deviation per channel (last axis): the recipe's, or those of the
  training set's inputs.
  """
  inputs = data.train.inputs
  channels = inputs.shape[-1] if inputs.ndim > 1 else 1
  moments = []
  for name, statistic in (("mean", np.mean), ("std", deviation)):
    given = getattr(recipe, name)
    if given is not None and len(given) != channels:
      raise Mistake(
        f"{name} of {len(given)} channels for {data.name} images of {channels}: give {channels} or none"
      )
    value = (
      statistic(inputs, axis=tuple(range(max(1, inputs.ndim - 1))), dtype=np.float64)
      if given is None
      else given
    )
    moments.append(np.asarray(value, np.float32))
  if not (moments[1] > 0).all():
    raise Mistake(
      f"a channel of {data.name} is constant: give std for each channel, or normalize=False"
    )
  return moments[0], moments[1]
