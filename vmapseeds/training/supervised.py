"""Supervised training as a task: a recipe, its data, and what is kept of each run."""

import dataclasses
import functools
import json
import math
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Integer, PyTree

from vmapseeds import models
from vmapseeds.data import Dataset, load
from vmapseeds.data.dataset import Examples, count_seen, twins_in_training
from vmapseeds.mistakes import Mistake, say
from vmapseeds.training import augment, loop
from vmapseeds.training.evaluation import depends_on_batch, evaluate
from vmapseeds.training.holding_out import HeldOut
from vmapseeds.training.inputs import DeviceExamples, batch_like, targets_of
from vmapseeds.training.losses import predict_of
from vmapseeds.training.metrics import check_metric, measure_all, metric_of
from vmapseeds.training.modules import begins_as_it_is
from vmapseeds.training.moments import (
  GIVEN,
  KEPT_MOMENTS,
  OWN,
  SHARED,
  InputMoments,
  moments_of,
  with_own_moments,
)
from vmapseeds.training.names import (
  EXAMPLE_ID,
  FOLD_GROUPS,
  HELD_OUT,
  INPUT_MEAN,
  MADE_COLUMNS,
  SOURCES,
  TWINS,
)
from vmapseeds.training.networks import (
  check_size,
  describe_trainable,
  last_layer,
  network,
  path_of,
  product_precision,
  takes,
  variables_of,
)
from vmapseeds.training.objects import (
  Named,
  before_training,
  imported,
  is_name,
  is_object,
  is_pair,
  module_exists,
  name_of,
  resolve_object,
)
from vmapseeds.training.outputs import Output, sibling
from vmapseeds.training.recipes import FIELDS, MOST_EPOCHS, Recipe, hyperparameter
from vmapseeds.training.runs import (
  BOOTSTRAP,
  K_FOLD,
  OUT_OF_BOOTSTRAP,
  POOLED,
  STRATIFIED,
  Run,
  Runs,
  as_bytes,
)
from vmapseeds.training.task import Task

VARIABLES = "variables"  # the group of a folder's arrays with the networks' variables
EPOCH = "epoch"  # the axis of what is evaluated in training
TRIAL_STEPS = 100  # of a trial: enough that one-off costs do not count
# Most numbers in a trial's inputs; large batches get fewer steps, but at least two.
TRIAL_PIXELS = 2**21
# What all runs share: the training set, and the test sets.
Sets = tuple[DeviceExamples, dict[str, DeviceExamples]]


class Base(Protocol):
  """Stored networks that runs start from."""

  path: str
  digest: str  # of their values
  shapes: dict[str, tuple[int, ...]]  # of one network's variables, by their paths

  def __len__(self) -> int: ...

  def load(
    self, rows: Integer[np.ndarray, " networks"], names: Sequence[str]
  ) -> dict[str, np.ndarray]:
    """Return the variables `names` of the networks numbered `rows`. The first axis is
    the network.
    """


@dataclasses.dataclass(frozen=True)
class Keep:
  """What is kept of each run beside accuracies."""

  predictions: bool = True
  logits: bool = False
  params: bool = False  # parameters and batch statistics


def make_task(
  recipe: Recipe,
  runs: Runs,
  keep: Keep = Keep(),  # frozen
  *,
  memory: float = math.inf,
  base: Base | None = None,
  told: bool = False,
) -> Task:
  """Return the recipe's task for these runs, with its data loaded.

  Args:
    recipe: what to train.
    runs: the table to train; label maps and subsets change the numbers of classes and
      of steps.
    keep: what is kept of each run.
    memory: bytes that a device has.
    base: the stored networks that the recipe starts from.
    told: whether to say on stderr what is strange in the data and the model.

  Raises:
    Mistake: recipe, runs and data do not fit together.
  """
  kind = (runs.sampling or ("",))[0]
  splits_all = kind in POOLED
  dataset = load_dataset(recipe, splits_all)
  if splits_all:
    dataset = pooled(dataset)
  # What single trials of a search make of held-out examples is not kept.
  bag = kind == BOOTSTRAP and keep.predictions
  held_out = HeldOut(
    kind == OUT_OF_BOOTSTRAP,
    "trial" not in runs.values,
    runs.held_out_sizes(len(dataset.train)) if splits_all else (),
    out_of_bag=bag,
  )
  if splits_all and keep.logits and not held_out.kept:
    raise Mistake("logits of the trials of a search are not kept: leave logits out")
  traced, fields = swept_fields(recipe, runs)
  twins = {} if splits_all else twins_in_training(dataset)
  if told:
    say_what_is_strange(recipe, runs, dataset, twins)
  label_map = runs.values.get("label_map")
  num_classes = dataset.num_classes if label_map is None else int(label_map.max()) + 1
  sets = on_device(recipe, dataset, num_classes)
  sets = (sets[0], {}) if splits_all else sets
  num_train = runs.num_train(len(dataset.train))
  moments = {"mean": sets[0].mean, "std": sets[0].std}
  precision = recipe.precision
  whose = whose_moments(recipe, runs)
  measured = InputMoments.of(recipe, dataset) if whose == OWN else None
  if measured is not None:
    moments = dict.fromkeys(moments)  # each run's own are beside its variables
  conditions = {
    # Each run's own is in its column.
    "precision": None if "precision" in fields else models.resolve_precision(precision),
    "networks_digest": base.digest if base else None,
    "normalized_by": whose,
    **{n: None if m is None else m.tolist() for n, m in moments.items()},
  }

  def made(recipe, **more):
    check_runs(recipe, runs, len(dataset.train), dataset.num_classes)
    check_data(recipe, dataset, num_classes)
    check_size(recipe, sets[0], memory)
    if told and recipe.trainable != "all":
      say(describe_trainable(recipe, sets[0]))
    paths = compatible_variables(recipe, sets[0], base, runs) if base else []
    return recipe_task(
      recipe,
      sets,
      keep,
      num_train=num_train,
      held_out=held_out if splits_all or bag else None,
      own_moments=measured is not None,
      origin=recipe.origin,
      derive=functools.partial(
        derived_columns,
        len(dataset.train),
        base,
        paths,
        measured,
        dataset.train.targets if kind == STRATIFIED else None,
      ),
      values=recipe.hyperparameters | {n: getattr(recipe, n) for n in traced},
      conditions=conditions,
      class_names=dataset.class_names if label_map is None else None,
      twins=twins,
      ids=ids_of_sets(dataset, splits_all or bag),
      **more,
    )

  return made(
    recipe,
    fields=fields,
    make_variant=lambda values: made(recipe.with_swept(values)),
  )


def whose_moments(recipe: Recipe, runs: Runs) -> str | None:
  """Return of what the moments are that inputs are normalised by; None if they are not
  normalised.
  """
  if not recipe.normalize:
    return None
  if recipe.mean is not None and recipe.std is not None:
    return GIVEN
  return OWN if runs.choose_examples else SHARED


def swept_fields(recipe: Recipe, runs: Runs) -> tuple[list[str], list[str]]:
  """Return the fields that a table varies: those whose values are traced, and those that
  make another program each.

  Raises:
    Mistake: the recipe has no such fields, or does not allow a value.
  """
  names = [name for name in runs.values if name not in MADE_COLUMNS]
  recipe.check_swept(names)
  swept = [name for name in names if name not in recipe.hyperparameters]
  traced = [name for name in swept if is_traced(recipe, name, swept)]
  for name in traced:
    for value in np.unique(runs.values[name]).tolist():
      recipe.with_swept({name: value})
  return traced, [name for name in swept if name not in traced]


def is_traced(recipe: Recipe, name: str, swept: Sequence[str]) -> bool:
  """Return whether a program reads a field's value from its run."""
  if name == "label_smoothing":
    return recipe.loss == "cross_entropy" and "loss" not in swept
  return name == "dropout" and "model" not in swept and takes(recipe, name)


def say_what_is_strange(
  recipe: Recipe,
  runs: Runs,
  dataset: Dataset,
  twins: Mapping[str, Int[np.ndarray, " examples"]],
) -> None:
  """Say which test examples are in the training set, and whether all runs begin with the
  same parameters.
  """
  trained = runs.training_examples(len(dataset.train)) if twins else None
  for name, places in twins.items():
    count, total = count_seen(places, trained), len(places)
    if trained is None:
      say(
        f"note: {count:.0f} of the {total} examples of {name} are in the training set "
        "too: give others"
      )
    elif count:
      say(
        f"note: on average {count:.4g} of the {total} examples of {name} are among a "
        "run's own training examples: give others"
      )
  if depends_on_batch(recipe, on_device(recipe, dataset, dataset.num_classes)[0]):
    say(
      f"note: the loss {name_of(recipe.loss)} depends on the examples beside one: it is "
      "evaluated on a whole set at once, as one number of each run, and what needs a loss "
      "of each example is left out of reports"
    )
  own = not is_name(recipe.model)
  if own and begins_as_it_is(resolve_object("model", recipe.model)):
    say(
      f"every run begins with the parameters that the model {name_of(recipe.model)} has: "
      "give its class, or a function of a key that makes it, for others"
    )


def recipe_task(
  recipe: Recipe,
  sets: Sets,
  keep: Keep = Keep(),
  *,
  num_train: int | None = None,
  held_out: HeldOut | None = None,
  own_moments: bool = False,
  class_names: Sequence[str] | None = None,
  twins: Mapping[str, Int[np.ndarray, " examples"]] = MappingProxyType({}),
  ids: Mapping[str, np.ndarray] = MappingProxyType({}),
  **more: Any,
) -> Task:
  """Return the recipe's task on these sets, each run trained on `num_train` examples, and
  measured on others that are `held_out`. With `own_moments`, each run's
  inputs are normalised by those of its own training examples. `twins` are those of test
  examples in the training set, `ids` the ids of a set's examples.
  """
  num_train = num_train or len(sets[0])
  whole_loss = depends_on_batch(recipe, sets[0])
  if held_out is not None:
    held_out = dataclasses.replace(held_out, whole_loss=whole_loss)
  start, advance, finish = recipe_stages(recipe, keep, held_out, whole_loss)
  spec = recipe.to_json()
  fields = dict(
    name=recipe.name,
    start=start,
    advance=advance,
    finish=finish,
    data=sets,
    rounds=recipe.epochs,
    sources=(*SOURCES, *recipe.sources),
    values=recipe.hyperparameters,
    columns=MADE_COLUMNS,
    outputs=recipe_outputs(
      recipe, sets, keep, num_train, held_out, own_moments, class_names, whole_loss
    ),
    constants=recipe_constants(recipe, sets, twins, held_out, ids),
    derive=functools.partial(derived_columns, len(sets[0]), None, (), None, None),
    steps=max(1, num_train // recipe.batch_size),
    version=recipe.version,
    code=recipe_code(recipe),
    spec=spec,
    speed_key=recipe_speed_key(recipe, spec, sets[0]),
    make_trial=functools.partial(trial_task, recipe, sets[0]),
  )
  return Task(**(fields | more))


def ids_of_sets(dataset: Dataset, holds_out: bool) -> dict[str, np.ndarray]:
  """Return the ids of the examples of test sets, and of those that are held out of the
  training set, where they have some.
  """
  sets = dict(dataset.tests)
  if holds_out:
    sets.pop("train", None)
    sets[HELD_OUT] = dataset.train
  return {name: of.ids for name, of in sets.items() if of.ids is not None}


def recipe_code(recipe: Recipe) -> list[Any]:
  """Return the objects of the user's that a recipe is made of, and the module that has
  the recipe.
  """
  found = [sys.modules.get(recipe.origin.partition(":")[0])]
  given = [getattr(recipe, field) for field in FIELDS if field != "metrics"]
  for value in (*given, *recipe.metrics.values()):
    if is_object(value):
      made = resolve_object("", value)
      found += made if is_pair(made) else (made,)
  return [of for of in found if of is not None]


def recipe_lanes(recipe: Recipe, runs: Runs, num_train: int) -> Run:
  """Return a table as the training loop of a recipe reads it, without a task."""
  values = recipe.hyperparameters
  runs = runs.filled((*SOURCES, *recipe.sources), values, MADE_COLUMNS)
  return runs.lanes(values, derived_columns(num_train, None, (), None, None, runs))


def derived_columns(
  num_train: int,
  base: Base | None,
  paths,
  moments: InputMoments | None,
  labels,
  runs: Runs,
):
  """Return what lanes read instead of columns: which examples each run is trained on,
  their moments, and the variables that it starts from.
  """
  found: dict[str, PyTree] = {}
  found |= runs.split_examples(num_train, labels)
  if "subset" in found:
    found["repeats"] = count_repeats(found["subset"])
  if moments is not None:
    found |= moments.of_runs(found["subset"])
  if base is not None:
    found["start"] = base.load(runs.values["start"], paths)
  return found


def count_repeats(
  examples: Integer[np.ndarray, "runs examples"],
) -> Integer[np.ndarray, "runs examples"]:
  """Return how many times before its place a run's sample has the same example."""
  order = np.argsort(examples, axis=1, kind="stable")
  ordered = np.take_along_axis(examples, order, axis=1)
  places = np.broadcast_to(np.arange(examples.shape[1]), examples.shape)
  new = np.diff(ordered, axis=1, prepend=-1) != 0
  first = np.maximum.accumulate(np.where(new, places, 0), axis=1)
  found = np.empty_like(examples)
  np.put_along_axis(found, order, places - first, axis=1)
  return found


def pooled(data: Dataset) -> Dataset:
  """Return a data set whose training set has the examples of all its sets.

  Raises:
    Mistake: it has the same examples twice, so that some would be held out and trained on.
  """
  for name, twins in twins_in_training(data).items():
    raise Mistake(
      f"{(twins >= 0).sum()} of the {len(twins)} examples of {name!r} of {data.name!r} "
      "are in the training set too, and runs would train on what they hold out: leave "
      "them out; a vs.Dataset whose runs hold examples out needs no test set"
    )
  parts = [data.train, *(of for name, of in data.tests.items() if name != "train")]
  whole = tuple(
    np.concatenate([getattr(part, of) for part in parts])
    for of in ("inputs", "targets")
  )
  ids = [part.ids for part in parts]
  known = np.concatenate(ids) if all(of is not None for of in ids) else None
  pool = Examples(whole[0], whole[1], known)
  return dataclasses.replace(data, train=pool, tests={"train": pool})


def start_in_turn(runs: Runs, base: Base) -> Runs:
  """Return the table with run i starting from network i modulo how many there are,
  unless it says otherwise.
  """
  if "start" in runs.values:
    return runs
  return runs.start_from(np.arange(len(runs)) % len(base))


def evaluated_epochs(recipe: Recipe) -> list[int]:
  """Return the numbers of epochs after which runs are evaluated."""
  every = recipe.evaluate_every or max(1, recipe.epochs)
  return [*range(every, recipe.epochs, every), recipe.epochs]


def recipe_stages(
  recipe: Recipe,
  keep: Keep,
  held_out: HeldOut | None = None,
  whole_loss: bool = False,
):
  """Return the three functions of a recipe's task: for equal recipes of registered names
  the same ones, which JAX then traces once a process.
  """
  precision = models.resolve_precision(recipe.precision)
  # Compiled programs outlive a task: they must not keep its data in memory.
  recipe = recipe.replace(dataset="any", precision=precision)
  # What a user's objects read may change.
  own_objects = any(is_object(getattr(recipe, field)) for field in FIELDS)
  if own_objects or recipe.metrics or held_out is not None:
    return make_stages(recipe, keep, held_out, whole_loss)
  return cached_stages(recipe, keep)


def make_stages(
  recipe: Recipe,
  keep: Keep,
  held_out: HeldOut | None = None,
  whole_loss: bool = False,
):
  """Return the three functions of the task of a recipe whose precision is resolved.
  With `whole_loss`, the loss depends on its batch.
  """
  precision = recipe.precision
  every = recipe.evaluate_every

  def measure(sets, run, trained):
    train, tests = sets
    out: dict[str, Array] = {}
    sound = []
    for name, data in tests.items():
      kept = keep.logits or bool(recipe.metrics)
      whole = whole_loss and data.num_classes is None
      evaluation = evaluate(
        recipe, data, run, trained, keep_outputs=kept, whole_loss=whole
      )
      sound.append(evaluation.sound)
      out[f"{name}/predictions"] = evaluation.predictions
      if recipe.metrics and evaluation.outputs is not None:
        targets = jnp.asarray(targets_of(data, run))
        values = measure_all(recipe, evaluation.outputs, targets)
        out |= {f"{name}/{metric}": value for metric, value in values.items()}
      if whole:
        out[f"{name}/loss"] = evaluation.losses.mean()
      elif data.num_classes is None:
        out[f"{name}/losses"] = evaluation.losses
      if keep.logits and evaluation.outputs is not None:
        out[f"{name}/logits"] = evaluation.outputs
    if held_out is not None:
      for name in held_out.names:
        measured, is_sound = held_out.measure(
          name, recipe, train, run, trained, keep.predictions, keep.logits
        )
        out |= measured
        sound.append(is_sound)
      if held_out.out_of_bag:
        out |= held_out.measure_out_of_bag(
          recipe, train, run, trained, keep.predictions, keep.logits
        )
    if recipe.training_metrics:
      evaluation = evaluate(
        recipe, train, run, trained, run.get("subset"), whole_loss=whole_loss
      )
      out["train_loss"] = evaluation.losses.mean()
      if train.num_classes is not None:
        out["train_accuracy"] = evaluation.correct
    return out, jnp.array(sound).all()

  def measure_epoch(sets, run, state):
    return measure(sets, run, loop.finish(recipe, state))[0]

  def start(sets, run):
    state = loop.start(recipe, sets[0], run)
    if every is None:
      return state
    like = jax.eval_shape(functools.partial(measure_epoch, sets, run), state)
    count = len(evaluated_epochs(recipe))
    return state, jax.tree.map(lambda a: jnp.zeros((count, *a.shape), a.dtype), like)

  def advance(sets, run, state, first, last):
    if every is None:
      return loop.advance(recipe, sets[0], run, state, first, last)

    def up_to_an_evaluation(number, state):
      state, series = state
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
        now = measure_epoch(sets, run, state)
        return jax.tree.map(lambda a, one: a.at[number].set(one), series, now)

      # The condition does not depend on the lane, so vmap keeps the branch. `finish`
      # makes the last evaluation.
      more = (end <= last) & (end < recipe.epochs)
      return state, jax.lax.cond(more, evaluated, lambda: series)

    return jax.lax.fori_loop(
      first // every, -(-last // every), up_to_an_evaluation, state
    )

  def finish(sets, run, state):
    state, series = (state, {}) if every is None else state
    trained = loop.finish(recipe, state)
    now, sound = measure(sets, run, trained)
    out = {
      "diverged": trained.diverged | ~sound,
      "nonfinite_steps": state.nonfinite_steps,
      **now,
    }
    if recipe.stop_at is not None:
      out["trained_epochs"] = state.epochs
    for name, values in series.items():
      out[sibling(name, name.rpartition("/")[2], EPOCH)] = values.at[-1].set(now[name])
    if keep.params:
      leaves = jax.tree.leaves_with_path(trained.variables)
      out |= {variable_name(path): leaf for path, leaf in leaves}
      if run.get(INPUT_MEAN) is not None:
        out |= {f"{VARIABLES}/{path}": run[name] for path, name in KEPT_MOMENTS.items()}
    return out

  def precisely(stage):
    def computed(sets, run, *args):
      with product_precision(precision):
        return stage(with_own_moments(sets, run), run, *args)

    return computed

  return precisely(start), precisely(advance), precisely(finish)


cached_stages = functools.lru_cache(maxsize=64)(make_stages)


def recipe_outputs(
  recipe: Recipe,
  sets: Sets,
  keep: Keep,
  num_train: int,
  held_out: HeldOut | None,
  own_moments: bool,
  class_names: Sequence[str] | None,
  whole_loss: bool,
):
  """Return what the outputs of a recipe's task mean. With `whole_loss`, the loss depends
  on its batch, and is one number of a run.
  """
  train, tests = sets
  found = {"diverged": Output(), "nonfinite_steps": Output()}
  for name in held_out.names if held_out else ():
    if train.num_classes is None:
      found[f"{name}_loss"] = Output(role="score", higher_is_better=False)
    else:
      found[f"{name}_accuracy"] = Output(role="score", unit="fraction")
    found |= metric_outputs(recipe, f"{name}_")
  if recipe.training_metrics:
    found["train_loss"] = Output()
    if train.num_classes is not None:
      found["train_accuracy"] = Output(role="count", total=num_train)
  for name, data in tests.items():
    predictions = f"{name}/predictions"
    if data.num_classes is None:
      kept, outputs = predicted_dims(recipe, data)
      found[predictions] = Output(kept, kept=keep.predictions)
      if whole_loss:
        found[f"{name}/loss"] = Output(role="score", higher_is_better=False)
      else:
        found[f"{name}/losses"] = Output(("example",), "loss")
    else:
      outputs = ("example", "class")
      found[predictions] = Output(
        ("example",),
        "class",
        labels=data.targets,
        num_classes=data.num_classes,
        class_names=class_names,
        label_map="label_map",
        kept=keep.predictions,
      )
    if keep.logits:
      found[f"{name}/logits"] = Output(outputs, "logits")
    found |= metric_outputs(recipe, f"{name}/")
  if held_out and held_out.kept:
    predicted: Sequence[str] = ("example",)
    given: Sequence[str] = ("example", "class")
    if train.num_classes is None:
      predicted, given = predicted_dims(recipe, train)
    found |= held_out.outputs(predicted, given, keep.predictions, keep.logits)
  if recipe.evaluate_every:
    for name, output in [*found.items()][2:]:
      array = name.rpartition("/")[2]
      dims = (EPOCH, *output.dims)
      found[sibling(name, array, EPOCH)] = dataclasses.replace(
        output,
        dims=dims,
        role="value" if output.role == "score" else output.role,
        series=EPOCH,
        of=array,
      )
  if recipe.stop_at is not None:
    found["trained_epochs"] = Output()
  if keep.params:
    leaves = jax.tree.leaves_with_path(variables_of(recipe, train))
    found |= {variable_name(path): Output(role="variable") for path, _ in leaves}
    if own_moments:
      found |= {f"{VARIABLES}/{n}": Output(role="variable") for n in KEPT_MOMENTS}
  return found


def metric_outputs(recipe: Recipe, before: str) -> dict[str, Output]:
  """Return what a recipe's metrics mean, with what is `before` their names."""
  return {
    f"{before}{name}": Output(
      role="score", higher_is_better=metric_of(name, given).higher_is_better
    )
    for name, given in recipe.metrics.items()
  }


def predicted_dims(recipe: Recipe, data):
  """Return the names of the axes of predictions, and of the network's outputs, where
  the targets are not classes.
  """

  def outputs(variables):
    inputs = jnp.zeros_like(batch_like(data, len(data)))
    outputs = network(recipe, None).apply(variables, inputs).astype(jnp.float32)
    return predict_of(recipe, None)(outputs), outputs

  def dims(leaf):
    # Xarray subtracts entry by entry along axes of the same name, and every pair along
    # others.
    last = "target" if leaf.shape[1:] == data.targets.shape[1:] else "output"
    return ("example", last, *(f"{last}.{axis}" for axis in range(1, leaf.ndim)))[
      : leaf.ndim
    ]

  with before_training(recipe.name):
    kept, given = jax.eval_shape(outputs, variables_of(recipe, data))
  return dims(kept), dims(given)


def recipe_constants(
  recipe: Recipe,
  sets: Sets,
  twins: Mapping[str, Int[np.ndarray, " examples"]],
  held_out: HeldOut | None = None,
  ids: Mapping[str, np.ndarray] = MappingProxyType({}),
):
  """Return what results of a recipe hold once for all runs, beside labels."""
  found: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
  tests = dict(sets[1])
  if held_out and held_out.kept:
    tests[HELD_OUT] = sets[0]
    if sets[0].num_classes is not None:
      found[f"{HELD_OUT}/labels"] = ("example",), sets[0].targets
  for name, data in tests.items():
    if data.num_classes is None:
      last = ("target", *(f"target.{axis}" for axis in range(1, data.targets.ndim)))
      found[f"{name}/targets"] = ("example", *last)[: data.targets.ndim], data.targets
  for name, places in twins.items():
    found[f"{name}/{TWINS}"] = ("example",), places
  for name, texts in ids.items():
    found[f"{name}/{EXAMPLE_ID}"] = ("example", "id_letter"), as_bytes(texts)
  if recipe.evaluate_every:
    found[EPOCH] = (EPOCH,), np.array(evaluated_epochs(recipe))
  return found


def variable_name(path: tuple) -> str:
  """Return the name of a variable's array in a folder."""
  return f"{VARIABLES}/{path_of(path)}"


def recipe_speed_key(recipe: Recipe, spec: str, train):
  """Return what the speed of a recipe's steps depends on."""
  fields = (
    "model",
    "width",
    "depth",
    "dropout",
    "loss",
    "objective",
    "batch_size",
    "optimizer",
    "augment",
    "trainable",
  )
  described = json.loads(spec)
  return {
    **{field: described[field] for field in fields},
    "precision": models.resolve_precision(recipe.precision),
    "image": train.inputs.shape[1:],
    "dtype": str(train.inputs.dtype),
    "num_classes": train.num_classes,
  }


def trial_task(recipe: Recipe, train: DeviceExamples) -> Task:
  """Return one epoch of a few steps on random inputs.

  Its recipe has more epochs, so that a schedule of the user's own is made for as many
  steps as in the whole training.
  """
  shape = train.inputs.shape[1:]
  pixels = recipe.batch_size * math.prod(shape)
  steps = min(TRIAL_STEPS, max(2, TRIAL_PIXELS // pixels))
  whole = max(1, recipe.epochs) * max(1, len(train) // recipe.batch_size)
  short = recipe.replace(
    epochs=min(MOST_EPOCHS, -(-whole // steps)),
    warmup=0,
    evaluate_every=None,
    training_metrics=False,
    metrics={},
    start_from=None,
    stop_at=None,
  )
  examples = random_examples(train, steps * recipe.batch_size)
  return recipe_task(
    short,
    (examples, {}),
    rounds=1,
    finish=lambda sets, run, state: {"diverged": state.nonfinite_steps > 0},
    outputs={},
    make_trial=None,
  )


def random_examples(like: DeviceExamples, n: int) -> DeviceExamples:
  """`n` random examples with the shapes and dtypes of others."""
  rng = np.random.default_rng(0)

  def drawn(array, below):
    shape, dtype = (n, *array.shape[1:]), np.dtype(array.dtype)
    floats = dtype.kind == "f"
    numbers = rng.normal(0, 1, shape) if floats else rng.integers(0, below, shape)
    return numbers.astype(dtype)

  # Other whole numbers, such as token ids, have no known range, but it should include 0
  # and 1.
  inputs = drawn(like.inputs, 256 if like.inputs.dtype == np.uint8 else 2)
  targets = drawn(like.targets, like.num_classes or 2)
  if like.mean is None:
    return dataclasses.replace(like, inputs=inputs, targets=targets)
  mean, std = (np.full(like.mean.shape, value, np.float32) for value in (128, 64))
  return DeviceExamples(inputs, targets, mean, std, like.num_classes)


def check_runs(
  recipe: Recipe, runs: Runs, num_train: int, num_classes: int | None
) -> None:
  """Raise `Mistake` if a table does not fit a recipe and its data set, which has so many
  training examples and classes.
  """
  values = runs.values
  for name, column in values.items():
    if name in recipe.hyperparameters and column.dtype.kind != "U":
      for value in np.unique(column).tolist():
        hyperparameter(name, value)
  label_map = values.get("label_map")
  subset = values.get("subset")
  if label_map is not None and label_map.shape[1] != num_classes:
    raise Mistake(
      f"label map of {label_map.shape[1]} classes for data with {num_classes}: give "
      "one for each"
    )
  if subset is not None and subset.max() >= num_train:
    raise Mistake(
      f"training index {subset.max()} in data with {num_train} examples: the last is "
      f"{num_train - 1}"
    )
  size = runs.num_train(num_train)
  kind, count = runs.sampling or ("", None)
  groups = values.get(FOLD_GROUPS)
  if groups is not None and groups.shape[1] != num_train:
    raise Mistake(
      f"groups of {groups.shape[1]} examples for data with {num_train}, training and test: "
      "give one for each"
    )
  if kind == STRATIFIED and num_classes is None:
    raise Mistake(
      "stratified folds of targets that are no classes: leave stratified out"
    )
  if kind in (K_FOLD, STRATIFIED) and (count or 0) > num_train:
    raise Mistake(f"{count} folds of {num_train} examples: give at most as many folds")
  if kind == OUT_OF_BOOTSTRAP and size > num_train - 2:
    raise Mistake(
      f"{size} of {num_train} examples to train on: give at most {num_train - 2}, so that "
      "some are left to validate and test on"
    )
  if kind == "subset" and size > num_train:
    raise Mistake(
      f"training subset of {size} of {num_train} examples: give at most {num_train}"
    )
  if "start" in values and recipe.start_from is None:
    raise Mistake(
      "runs that start from stored networks: give the recipe start_from, the folder "
      "that has them"
    )
  if size < recipe.batch_size:
    raise Mistake(
      f"batch_size {recipe.batch_size} with {size} training examples: give at most as "
      "many"
    )
  steps = recipe.epochs * (size // recipe.batch_size)
  if "poke_step" in values and (last := values["poke_step"].max()) >= steps:
    raise Mistake(
      f"poke step {last} in trainings of {steps} steps, counted from 0: give an earlier "
      "one, or -1 for never"
    )


def compatible_variables(recipe: Recipe, data, base: Base, runs: Runs):
  """Return the paths of the stored variables that runs start from.

  Raises:
    Mistake: more than the last layer differs, or there is no such network.
  """
  start = runs.values.get("start")
  if start is not None and start.max() >= len(base):
    raise Mistake(
      f"network {start.max()} of {base.path} with {len(base)}: the last is "
      f"{len(base) - 1}"
    )
  variables = variables_of(recipe, data)
  leaves = jax.tree.leaves_with_path(variables)
  due = {path_of(path): leaf.shape for path, leaf in leaves}
  apply = network(recipe, data.num_classes).apply
  last = last_layer(apply, variables, batch_like(data, 1))
  fresh = {path for path in last if base.shapes.get(path) != due[path]}
  trained = [path for path in base.shapes if path not in KEPT_MOMENTS]
  for path in dict.fromkeys((*due, *trained)):
    stored = base.shapes.get(path)
    mine = due.get(path)
    if stored != mine and path not in fresh:
      raise Mistake(
        f"{base.path} has {path} {stored}, {recipe.name} {mine}: give the model that "
        "was trained there, of which the last layer alone may differ"
      )
  return [path for path in due if path not in fresh]


# Data sets with equally many examples of each class: (height, width, channels),
# classes, training and test examples. Programs depend on nothing else about the data,
# so compiling them needs no data.
BALANCED = {"cifar10": ((32, 32, 3), 10, 50_000, 10_000)}


def abstract_task(recipe: Recipe) -> Task:
  """Return the recipe's task with shapes and dtypes in place of data, to estimate its
  speed. Data sets in `BALANCED` are not loaded.

  Raises:
    Mistake: another data set cannot be loaded.
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
  data = load_dataset(known)
  check_data(known, data, data.num_classes)
  sets = on_device(known, data, data.num_classes)
  looks = functools.partial(
    jax.tree.map, lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype)
  )
  return recipe_task(recipe, sets, data=looks(sets))


def load_dataset(recipe: Recipe, splits_all: bool = False) -> Dataset:
  """Load the recipe's data into memory. Where runs hold some of all examples out, it
  needs no test set.
  """
  given = recipe.dataset
  if isinstance(given, Named):
    raise Mistake(
      f"the data of {recipe.name} were arrays in memory: resume with vs.train in the "
      "program that created it"
    )
  if (
    isinstance(given, str)
    and module_exists(given)
    and not isinstance(given := imported(given), Dataset)
  ):
    raise Mistake(
      f"dataset {recipe.dataset} is {type(given).__name__}: give the name of a vs.Dataset"
    )
  if isinstance(given, Dataset):
    chosen = () if splits_all and not given.tests else recipe.test_sets
    return given.select(chosen, recipe.classes)
  return load(given, test_sets=recipe.test_sets, classes=recipe.classes)


def check_data(recipe: Recipe, data: Dataset, num_classes: int | None) -> None:
  """Raise `Mistake` if the recipe does not fit the data."""
  augment.check_size(recipe.augment, data.train.inputs.shape[1:])
  if is_name(recipe.model):
    models.check_size(recipe.model, data.train.inputs.shape[1:])
  targets = data.train.targets
  said = f"the targets of {data.name} are {targets.dtype} {targets.shape}, no classes, which are whole numbers (n,)"
  if num_classes is None and recipe.loss == "cross_entropy":
    whole = targets.ndim == 1 and (targets == np.round(targets)).all()
    remedy = "use .astype(int) if they are classes, or " if whole else ""
    if is_one_hot(targets):
      remedy = "they look like one-hot labels: give y.argmax(1), or "
    elif targets.shape[1:] == (1,) and (targets == np.round(targets)).all():
      cast = "" if targets.dtype.kind in "iu" else ".astype(int)"
      remedy = f"they look like labels (n, 1): give y.ravel(){cast}, or "
    raise Mistake(f"{said}: {remedy}give a loss for them, such as squared_error")
  if num_classes is not None and recipe.loss == "squared_error":
    remedy = "give cross_entropy, or a vs.Dataset with num_classes=None"
    raise Mistake(
      f"loss is squared_error, the targets of {data.name} are classes: {remedy}"
    )
  for name, given in recipe.metrics.items():
    check_metric(name, metric_of(name, given), targets, num_classes)
  if num_classes is None and recipe.stop_at is not None:
    raise Mistake(f"{said}: leave stop_at out, which is an accuracy")
  if num_classes is None and recipe.predict == "argmax":
    raise Mistake(f"{said}: leave predict out, which is of classes")


def is_one_hot(targets: np.ndarray) -> bool:
  """Return whether each row of targets (n, classes) is one 1 and zeros."""
  if targets.ndim != 2 or targets.shape[1] < 2:
    return False
  return bool(((targets == 0) | (targets == 1)).all() and (targets.sum(1) == 1).all())


def on_device(recipe: Recipe, data: Dataset, num_classes: int | None) -> Sets:
  """Return the training set and the test sets as lanes read them."""
  mean, std = moments_of(recipe, data) if recipe.normalize else (None, None)

  def examples(e):
    return DeviceExamples(e.inputs, e.targets, mean, std, num_classes)

  return examples(data.train), {name: examples(e) for name, e in data.tests.items()}
