"""Supervised training as a task: a recipe, its data, and what is kept of each run."""

import dataclasses
import functools
import json
import math
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Integer, PyTree

from vmapseeds import models
from vmapseeds.data import Dataset, load_dataset
from vmapseeds.data.dataset import Examples, count_seen, find_training_twins
from vmapseeds.errors import UserError, say
from vmapseeds.training import augment, loop
from vmapseeds.training.evaluation import depends_on_batch, evaluate
from vmapseeds.training.holding_out import HeldOutEvaluation
from vmapseeds.training.inputs import DeviceExamples, batch_like, targets_of
from vmapseeds.training.losses import predict_of
from vmapseeds.training.metrics import check_metric, measure_all, metric_of
from vmapseeds.training.modules import has_fixed_init
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
  check_network,
  describe_trainable,
  last_layer,
  make_network,
  model_takes,
  path_of,
  product_precision,
  variables_of,
)
from vmapseeds.training.objects import (
  Named,
  before_training,
  import_object,
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
  SUBSET,
  Run,
  Runs,
  as_bytes,
)
from vmapseeds.training.task import Internal, Task

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


def load_recipe_task(
  recipe: Recipe,
  runs: Runs,
  keep: Keep = Keep(),  # frozen
  *,
  memory: float = math.inf,
  base: Base | None = None,
  says: bool = False,
) -> Task:
  """Return the recipe's task for these runs, with its data loaded.

  Args:
    recipe: what to train.
    runs: the table to train; label maps and subsets change the numbers of classes and
      of steps.
    keep: what is kept of each run.
    memory: bytes that a device has.
    base: the stored networks that the recipe starts from.
    says: whether to say on stderr what is strange in the data and the model.

  Raises:
    UserError: recipe, runs and data do not fit together.
  """
  kind = sampling_kind(runs)
  splits_all = kind in POOLED
  dataset = dataset_of(recipe, splits_all)
  if splits_all:
    dataset = pool_sets(dataset)
  held_out = held_out_examples(runs, keep, len(dataset.train))
  traced, fields = swept_fields(recipe, runs)

  # Pooling has refused data with an example in two sets.
  twins = {} if splits_all else find_training_twins(dataset)
  if says:
    warn_about_data(recipe, runs, dataset, twins)

  num_classes = dataset.num_classes
  label_map = runs.values.get("label_map")
  if label_map is not None:
    num_classes = int(label_map.max()) + 1
  train, tests = put_sets_on_device(recipe, dataset, num_classes)
  if splits_all:
    tests = {}

  moments = None
  if whose_moments(recipe, runs) == OWN:
    moments = InputMoments.of(recipe, dataset)
  shared = SharedByPrograms(
    runs=runs,
    keep=keep,
    dataset=dataset,
    sets=(train, tests),
    num_classes=num_classes,
    held_out=held_out,
    moments=moments,
    twins=twins,
    traced=traced,
    conditions=conditions_of(recipe, runs, train, base, fields),
    memory=memory,
    base=base,
    says=says,
  )

  return make_task_for_table(
    recipe,
    shared,
    fields=fields,
    make_variant=functools.partial(make_task_of_variant, recipe, shared),
  )


class SharedByPrograms(NamedTuple):
  """What the tasks of one table share, whatever values choose their programs."""

  runs: Runs
  keep: Keep
  dataset: Dataset
  sets: Sets
  num_classes: int | None  # after label maps
  held_out: HeldOutEvaluation | None
  moments: InputMoments | None  # where each run has its own
  twins: Mapping[str, Int[np.ndarray, " examples"]]
  traced: Sequence[str]  # swept fields that programs read from their run
  conditions: Mapping[str, Any]
  memory: float
  base: Base | None
  says: bool


def make_task_of_variant(
  recipe: Recipe, shared: SharedByPrograms, values: Mapping[str, float | str]
) -> Task:
  """Return the task of those runs of a table that have these values of the fields that
  choose a program.
  """
  return make_task_for_table(recipe.with_swept(values), shared)


def make_task_for_table(
  recipe: Recipe, shared: SharedByPrograms, **internal: Any
) -> Task:
  """Return the recipe's task for the runs of a table.

  Args:
    recipe: with the swept values that choose the program.
    shared: what it shares with the table's other tasks.
    **internal: fields of `task.Internal`.

  Raises:
    UserError: recipe, runs and data do not fit together.
  """
  runs, dataset = shared.runs, shared.dataset
  train = shared.sets[0]
  available = len(dataset.train)
  check_runs_fit_recipe(recipe, runs, available, dataset.num_classes)
  check_data(recipe, dataset, shared.num_classes)
  check_network(recipe, train, shared.memory)
  if shared.says and recipe.trainable != "all":
    say(describe_trainable(recipe, train))

  paths: Sequence[str] = ()
  if shared.base is not None:
    paths = compatible_variables(recipe, train, shared.base, runs)
  labels = None
  if sampling_kind(runs) == STRATIFIED:
    labels = dataset.train.targets
  # A label map merges classes, so that their names are no more those of the data.
  class_names = None
  if "label_map" not in runs.values:
    class_names = dataset.class_names
  derive = DerivedColumns(available, shared.base, paths, shared.moments, labels)
  swept_values = {name: getattr(recipe, name) for name in shared.traced}
  return make_task_on_sets(
    recipe,
    shared.sets,
    shared.keep,
    num_train=runs.num_train(available),
    held_out=shared.held_out,
    own_moments=shared.moments is not None,
    class_names=class_names,
    twins=shared.twins,
    ids=ids_of_sets(dataset, shared.held_out is not None),
    internal=dict(
      origin=recipe.origin, derive=derive, conditions=shared.conditions, **internal
    ),
    values=recipe.hyperparameters | swept_values,
  )


def sampling_kind(runs: Runs) -> str:
  """Return how the data seed draws training examples, "" if it draws none."""
  if runs.sampling is None:
    return ""
  kind, _ = runs.sampling
  return kind


def held_out_examples(
  runs: Runs, keep: Keep, available: int
) -> HeldOutEvaluation | None:
  """Return which of the available examples runs hold out; None if they are measured on
  test sets alone.

  Raises:
    UserError: logits would be kept of the trials of a search.
  """
  kind = sampling_kind(runs)
  splits_all = kind in POOLED
  out_of_bag = kind == BOOTSTRAP and keep.predictions
  if not splits_all and not out_of_bag:
    return None
  # What single trials of a search make of held-out examples is not kept.
  kept = "trial" not in runs.values
  if splits_all and keep.logits and not kept:
    raise UserError("logits of the trials of a search are not kept: leave logits out")
  sizes = runs.held_out_sizes(available) if splits_all else ()
  validates = kind == OUT_OF_BOOTSTRAP
  return HeldOutEvaluation(validates, kept, sizes, out_of_bag=out_of_bag)


def conditions_of(
  recipe: Recipe,
  runs: Runs,
  train: DeviceExamples,
  base: Base | None,
  fields: Sequence[str],
) -> dict[str, Any]:
  """Return what results depend on beside the recipe's text. `fields` are those that
  choose a run's program.
  """
  precision = None
  if "precision" not in fields:  # else each run's own is in its column
    precision = models.resolve_precision(recipe.precision)
  normalized_by = whose_moments(recipe, runs)
  moments = {"mean": train.mean, "std": train.std}
  if normalized_by == OWN:
    moments = {}  # each run's own are beside its variables
  listed: dict[str, Any] = {"mean": None, "std": None}
  for name, moment in moments.items():
    if moment is not None:
      listed[name] = moment.tolist()
  return {
    "precision": precision,
    "networks_digest": base.digest if base else None,
    "normalized_by": normalized_by,
    **listed,
  }


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
    UserError: the recipe has no such fields, or does not allow a value.
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
  return name == "dropout" and "model" not in swept and model_takes(recipe, name)


def warn_about_data(
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
    count = count_seen(places, trained)
    total = len(places)
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
  if depends_on_batch(
    recipe, put_sets_on_device(recipe, dataset, dataset.num_classes)[0]
  ):
    say(
      f"note: the loss {name_of(recipe.loss)} depends on the examples beside one: it is "
      "evaluated on a whole set at once, as one number of each run, and what needs a loss "
      "of each example is left out of reports"
    )
  if is_name(recipe.model):
    return
  if has_fixed_init(resolve_object("model", recipe.model)):
    say(
      f"every run begins with the parameters that the model {name_of(recipe.model)} has: "
      "give its class, or a function of a key that makes it, for others"
    )


def make_task_on_sets(
  recipe: Recipe,
  sets: Sets,
  keep: Keep = Keep(),
  *,
  num_train: int | None = None,
  held_out: HeldOutEvaluation | None = None,
  own_moments: bool = False,
  class_names: Sequence[str] | None = None,
  twins: Mapping[str, Int[np.ndarray, " examples"]] = MappingProxyType({}),
  ids: Mapping[str, np.ndarray] = MappingProxyType({}),
  internal: Mapping[str, Any] = MappingProxyType({}),
  **changes: Any,
) -> Task:
  """Return the recipe's task on these sets, each run trained on `num_train` examples, and
  measured on others that are `held_out`. With `own_moments`, each run's
  inputs are normalised by those of its own training examples. `twins` are those of test
  examples in the training set, `ids` the ids of a set's examples, `internal` and
  `changes` other fields of `task.Internal` and of the task.
  """
  num_train = num_train or len(sets[0])
  whole_loss = depends_on_batch(recipe, sets[0])
  if held_out is not None:
    held_out = dataclasses.replace(held_out, whole_loss=whole_loss)
  start, advance, finish = recipe_stages(recipe, keep, held_out, whole_loss)
  spec = recipe.to_json()
  internal_fields = dict(
    columns=MADE_COLUMNS,
    derive=DerivedColumns(len(sets[0])),
    code=recipe_code(recipe),
    spec=spec,
    speed_key=recipe_speed_key(recipe, spec, sets[0]),
    make_trial=functools.partial(trial_task, recipe, sets[0]),
  )
  fields = dict(
    name=recipe.name,
    start=start,
    advance=advance,
    finish=finish,
    data=sets,
    rounds=recipe.epochs,
    sources=(*SOURCES, *recipe.sources),
    values=recipe.hyperparameters,
    outputs=recipe_outputs(
      recipe, sets, keep, num_train, held_out, own_moments, class_names, whole_loss
    ),
    constants=recipe_constants(recipe, sets, twins, held_out, ids),
    steps=max(1, num_train // recipe.batch_size),
    version=recipe.version,
    internal=Internal(**(internal_fields | dict(internal))),
  )
  return Task(**(fields | changes))


def ids_of_sets(dataset: Dataset, holds_out: bool) -> dict[str, np.ndarray]:
  """Return the ids of the examples of test sets, and of those that are held out of the
  training set, where they have some.
  """
  sets = dict(dataset.tests)
  if holds_out:
    sets.pop("train", None)
    sets[HELD_OUT] = dataset.train
  return {
    name: examples.ids for name, examples in sets.items() if examples.ids is not None
  }


def recipe_code(recipe: Recipe) -> list[Any]:
  """Return the objects of the user's that a recipe is made of, and the module that has
  the recipe.
  """
  module, _, _ = recipe.origin.partition(":")
  code: list[Any] = [sys.modules.get(module)]
  values = [getattr(recipe, field) for field in FIELDS if field != "metrics"]
  values.extend(recipe.metrics.values())
  for value in values:
    if not is_object(value):
      continue
    resolved = resolve_object("", value)
    if is_pair(resolved):
      code.extend(resolved)
    else:
      code.append(resolved)
  return [item for item in code if item is not None]


def recipe_lanes(recipe: Recipe, runs: Runs, num_train: int) -> Run:
  """Return a table as the training loop of a recipe reads it, without a task."""
  values = recipe.hyperparameters
  runs = runs.filled((*SOURCES, *recipe.sources), values, MADE_COLUMNS)
  derive = DerivedColumns(num_train)
  return runs.lanes(values, derive(runs))


@dataclasses.dataclass(frozen=True, eq=False)
class DerivedColumns:
  """What lanes read instead of columns of a table: which examples each run is trained
  on, their moments, and the variables that it starts from.

  Attributes:
    num_train: how many training examples there are.
    base: the networks that runs start from, if any.
    paths: which of their variables.
    moments: of each example, where runs are normalised by those of their own.
    labels: of all examples, which stratified folds need.
  """

  num_train: int
  base: Base | None = None
  paths: Sequence[str] = ()
  moments: InputMoments | None = None
  labels: Integer[np.ndarray, " examples"] | None = None

  def __call__(self, runs: Runs) -> dict[str, PyTree]:
    """Return the entries by name, arrays with the run as first axis."""
    entries: dict[str, PyTree] = {}
    entries |= runs.split_examples(self.num_train, self.labels)
    if "subset" in entries:
      entries["repeats"] = count_repeats(entries["subset"])
    if self.moments is not None:
      entries |= self.moments.of_runs(entries["subset"])
    if self.base is not None:
      entries["start"] = self.base.load(runs.values["start"], self.paths)
    return entries


def count_repeats(
  examples: Integer[np.ndarray, "runs examples"],
) -> Integer[np.ndarray, "runs examples"]:
  """Return how many times before its place a run's sample has the same example."""
  order = np.argsort(examples, axis=1, kind="stable")
  ordered = np.take_along_axis(examples, order, axis=1)
  places = np.broadcast_to(np.arange(examples.shape[1]), examples.shape)
  new = np.diff(ordered, axis=1, prepend=-1) != 0
  first = np.maximum.accumulate(np.where(new, places, 0), axis=1)
  repeats = np.empty_like(examples)
  np.put_along_axis(repeats, order, places - first, axis=1)
  return repeats


def pool_sets(data: Dataset) -> Dataset:
  """Return a data set whose training set has the examples of all its sets.

  Raises:
    UserError: it has the same examples twice, so that some would be held out and trained on.
  """
  for name, twins in find_training_twins(data).items():
    raise UserError(
      f"{(twins >= 0).sum()} of the {len(twins)} examples of {name!r} of {data.name!r} "
      "are in the training set too, and runs would train on what they hold out: leave "
      "them out; a vs.Dataset whose runs hold examples out needs no test set"
    )
  parts = [data.train]
  parts += [examples for name, examples in data.tests.items() if name != "train"]
  inputs = np.concatenate([part.inputs for part in parts])
  targets = np.concatenate([part.targets for part in parts])
  known_ids = [part.ids for part in parts if part.ids is not None]
  ids = None
  if len(known_ids) == len(parts):
    ids = np.concatenate(known_ids)
  pool = Examples(inputs, targets, ids)
  return dataclasses.replace(data, train=pool, tests={"train": pool})


def assign_start_networks(runs: Runs, base: Base) -> Runs:
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
  held_out: HeldOutEvaluation | None = None,
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


@dataclasses.dataclass(frozen=True, eq=False)
class RecipeStages:
  """The three functions of the task of a recipe whose precision is resolved.

  Attributes:
    recipe: what is trained.
    keep: what is kept of each run.
    held_out: the examples that runs hold out, if any.
    whole_loss: whether the loss depends on its batch.
  """

  recipe: Recipe
  keep: Keep
  held_out: HeldOutEvaluation | None
  whole_loss: bool

  def start(self, sets, run):
    """Return the state before the first epoch, and zeros in place of what evaluations
    in training will give.
    """
    state = loop.start(self.recipe, sets[0], run)
    if self.recipe.evaluate_every is None:
      return state
    measure = functools.partial(self.measure_state, sets, run)
    shapes = jax.eval_shape(measure, state)
    count = len(evaluated_epochs(self.recipe))
    series = jax.tree.map(lambda a: jnp.zeros((count, *a.shape), a.dtype), shapes)
    return state, series

  def advance(self, sets, run, state, first, last):
    """Return the state after the epochs from `first` to `last`, not included."""
    recipe = self.recipe
    every = recipe.evaluate_every
    if every is None:
      return loop.advance(recipe, sets[0], run, state, first, last)

    def up_to_an_evaluation(number, state_and_series):
      state, series = state_and_series
      end = (number + 1) * every
      begin = jnp.maximum(first, end - every)
      stop = jnp.minimum(last, end)
      state = loop.advance(recipe, sets[0], run, state, begin, stop)

      def with_evaluation():
        now = self.measure_state(sets, run, state)
        return jax.tree.map(lambda a, one: a.at[number].set(one), series, now)

      # The condition does not depend on the lane, so vmap keeps the branch. `finish`
      # makes the last evaluation.
      is_due = (end <= last) & (end < recipe.epochs)
      return state, jax.lax.cond(is_due, with_evaluation, lambda: series)

    begun = first // every
    ended = -(-last // every)  # rounded up
    return jax.lax.fori_loop(begun, ended, up_to_an_evaluation, state)

  def finish(self, sets, run, state):
    """Return what is stored of a run, by name."""
    series = {}
    if self.recipe.evaluate_every is not None:
      state, series = state
    trained = loop.finish(self.recipe, state)
    now, sound = self.measure(sets, run, trained)
    out = {
      "diverged": trained.diverged | ~sound,
      "nonfinite_steps": state.nonfinite_steps,
      **now,
    }
    if self.recipe.stop_at is not None:
      out["trained_epochs"] = state.epochs
    for name, values in series.items():
      array = name.rpartition("/")[2]
      out[sibling(name, array, EPOCH)] = values.at[-1].set(now[name])
    if self.keep.params:
      for path, leaf in jax.tree.leaves_with_path(trained.variables):
        out[variable_name(path)] = leaf
      if run.get(INPUT_MEAN) is not None:
        for path, name in KEPT_MOMENTS.items():
          out[f"{VARIABLES}/{path}"] = run[name]
    return out

  def measure_state(self, sets, run, state):
    """Return what a run has of its sets, in the middle of training."""
    values, _ = self.measure(sets, run, loop.finish(self.recipe, state))
    return values

  def measure(self, sets, run, trained):
    """Return what a run has of its sets, by name, and whether the network's outputs are
    sound on all of them.
    """
    train, tests = sets
    out: dict[str, Array] = {}
    all_sound = []
    for name, data in tests.items():
      values, is_sound = self.measure_test_set(name, data, run, trained)
      out |= values
      all_sound.append(is_sound)
    if self.held_out is not None:
      kept = self.keep.predictions, self.keep.logits
      for name in self.held_out.names:
        values, is_sound = self.held_out.measure(
          name, self.recipe, train, run, trained, *kept
        )
        out |= values
        all_sound.append(is_sound)
      if self.held_out.out_of_bag:
        out |= self.held_out.measure_out_of_bag(self.recipe, train, run, trained, *kept)
    if self.recipe.training_metrics:
      subset = run.get("subset")
      evaluation = evaluate(
        self.recipe, train, run, trained, subset, whole_loss=self.whole_loss
      )
      out["train_loss"] = evaluation.losses.mean()
      if train.num_classes is not None:
        out["train_accuracy"] = evaluation.correct
    return out, jnp.array(all_sound).all()

  def measure_test_set(self, name, data, run, trained):
    """Return what a run has of the test set `name`, and whether the network's outputs
    are sound there.
    """
    recipe = self.recipe
    keep_logits = self.keep.logits
    whole_loss = self.whole_loss and data.num_classes is None
    evaluation = evaluate(
      recipe,
      data,
      run,
      trained,
      keep_outputs=keep_logits or bool(recipe.metrics),
      whole_loss=whole_loss,
    )
    out = {f"{name}/predictions": evaluation.predictions}
    if recipe.metrics and evaluation.outputs is not None:
      targets = jnp.asarray(targets_of(data, run))
      values = measure_all(recipe, evaluation.outputs, targets)
      for metric, value in values.items():
        out[f"{name}/{metric}"] = value
    if whole_loss:
      out[f"{name}/loss"] = evaluation.losses.mean()
    elif data.num_classes is None:
      out[f"{name}/losses"] = evaluation.losses
    if keep_logits and evaluation.outputs is not None:
      out[f"{name}/logits"] = evaluation.outputs
    return out, evaluation.sound


def make_stages(
  recipe: Recipe,
  keep: Keep,
  held_out: HeldOutEvaluation | None = None,
  whole_loss: bool = False,
):
  """Return the three functions of the task of a recipe whose precision is resolved.
  With `whole_loss`, the loss depends on its batch.
  """
  stages = RecipeStages(recipe, keep, held_out, whole_loss)

  def precisely(stage):
    def computed(sets, run, *args):
      with product_precision(recipe.precision):
        return stage(with_own_moments(sets, run), run, *args)

    return computed

  return precisely(stages.start), precisely(stages.advance), precisely(stages.finish)


cached_stages = functools.lru_cache(maxsize=64)(make_stages)


def recipe_outputs(
  recipe: Recipe,
  sets: Sets,
  keep: Keep,
  num_train: int,
  held_out: HeldOutEvaluation | None,
  own_moments: bool,
  class_names: Sequence[str] | None,
  whole_loss: bool,
):
  """Return what the outputs of a recipe's task mean. With `whole_loss`, the loss depends
  on its batch, and is one number of a run.
  """
  train, tests = sets
  of_training = {"diverged": Output(), "nonfinite_steps": Output()}
  measured: dict[str, Output] = {}
  if held_out is not None:
    for name in held_out.names:
      measured |= held_out_scores(recipe, train, name)
  if recipe.training_metrics:
    measured["train_loss"] = Output()
    if train.num_classes is not None:
      measured["train_accuracy"] = Output(role="count", total=num_train)
  for name, data in tests.items():
    measured |= set_outputs(recipe, name, data, keep, class_names, whole_loss)
  if held_out is not None and held_out.kept:
    predicted: Sequence[str] = ("example",)
    network_dims: Sequence[str] = ("example", "class")
    if train.num_classes is None:
      predicted, network_dims = predicted_dims(recipe, train)
    measured |= held_out.outputs(predicted, network_dims, keep.predictions, keep.logits)
  if recipe.evaluate_every:
    measured |= series_of(measured)

  outputs = of_training | measured
  if recipe.stop_at is not None:
    outputs["trained_epochs"] = Output()
  if keep.params:
    for path, _ in jax.tree.leaves_with_path(variables_of(recipe, train)):
      outputs[variable_name(path)] = Output(role="variable")
    if own_moments:
      for path in KEPT_MOMENTS:
        outputs[f"{VARIABLES}/{path}"] = Output(role="variable")
  return outputs


def held_out_scores(recipe: Recipe, train, name: str) -> dict[str, Output]:
  """Return what the scores of the part `name` of held-out examples mean."""
  scores = metric_outputs(recipe, f"{name}_")
  if train.num_classes is None:
    own = {f"{name}_loss": Output(role="score", higher_is_better=False)}
  else:
    own = {f"{name}_accuracy": Output(role="score", unit="fraction")}
  return own | scores


def set_outputs(
  recipe: Recipe,
  name: str,
  data,
  keep: Keep,
  class_names: Sequence[str] | None,
  whole_loss: bool,
) -> dict[str, Output]:
  """Return what the outputs of the test set `name` mean."""
  outputs = {}
  if data.num_classes is None:
    predicted, network_dims = predicted_dims(recipe, data)
    outputs[f"{name}/predictions"] = Output(predicted, kept=keep.predictions)
    if whole_loss:
      outputs[f"{name}/loss"] = Output(role="score", higher_is_better=False)
    else:
      outputs[f"{name}/losses"] = Output(("example",), "loss")
  else:
    network_dims = ("example", "class")
    outputs[f"{name}/predictions"] = Output(
      ("example",),
      "class",
      labels=data.targets,
      num_classes=data.num_classes,
      class_names=class_names,
      label_map="label_map",
      kept=keep.predictions,
    )
  if keep.logits:
    outputs[f"{name}/logits"] = Output(network_dims, "logits")
  return outputs | metric_outputs(recipe, f"{name}/")


def series_of(outputs: Mapping[str, Output]) -> dict[str, Output]:
  """Return what the values of these outputs in the course of training mean."""
  series = {}
  for name, output in outputs.items():
    array = name.rpartition("/")[2]
    # A score is one number of a run, a series is several.
    role = "value" if output.role == "score" else output.role
    series[sibling(name, array, EPOCH)] = dataclasses.replace(
      output, dims=(EPOCH, *output.dims), role=role, series=EPOCH, of=array
    )
  return series


def metric_outputs(recipe: Recipe, before: str) -> dict[str, Output]:
  """Return what a recipe's metrics mean, with what is `before` their names."""
  return {
    f"{before}{name}": Output(
      role="score", higher_is_better=metric_of(name, metric).higher_is_better
    )
    for name, metric in recipe.metrics.items()
  }


def predicted_dims(recipe: Recipe, data):
  """Return the names of the axes of predictions, and of the network's outputs, where
  the targets are not classes.
  """

  def outputs(variables):
    inputs = jnp.zeros_like(batch_like(data, len(data)))
    outputs = make_network(recipe, None).apply(variables, inputs).astype(jnp.float32)
    return predict_of(recipe, None)(outputs), outputs

  def dims(leaf):
    # Xarray subtracts entry by entry along axes of the same name, and every pair along
    # others.
    if leaf.shape[1:] == data.targets.shape[1:]:
      return example_dims("target", leaf.ndim)
    return example_dims("output", leaf.ndim)

  with before_training(recipe.name):
    predictions, network_outputs = jax.eval_shape(outputs, variables_of(recipe, data))
  return dims(predictions), dims(network_outputs)


def example_dims(name: str, ndim: int) -> tuple[str, ...]:
  """Return the names of the axes of an array whose first axis is the example.

  >>> example_dims("target", 3)
  ('example', 'target', 'target.1')
  """
  numbered = [f"{name}.{axis}" for axis in range(1, ndim)]
  return ("example", name, *numbered)[:ndim]


def recipe_constants(
  recipe: Recipe,
  sets: Sets,
  twins: Mapping[str, Int[np.ndarray, " examples"]],
  held_out: HeldOutEvaluation | None = None,
  ids: Mapping[str, np.ndarray] = MappingProxyType({}),
):
  """Return what results of a recipe hold once for all runs, beside labels."""
  constants: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
  train, tests = sets
  measured = dict(tests)
  if held_out and held_out.kept:
    measured[HELD_OUT] = train
    if train.num_classes is not None:
      constants[f"{HELD_OUT}/labels"] = ("example",), train.targets
  for name, data in measured.items():
    if data.num_classes is None:
      dims = example_dims("target", data.targets.ndim)
      constants[f"{name}/targets"] = dims, data.targets
  for name, places in twins.items():
    constants[f"{name}/{TWINS}"] = ("example",), places
  for name, texts in ids.items():
    constants[f"{name}/{EXAMPLE_ID}"] = ("example", "id_letter"), as_bytes(texts)
  if recipe.evaluate_every:
    constants[EPOCH] = (EPOCH,), np.array(evaluated_epochs(recipe))
  return constants


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
  spec_of_fields = json.loads(spec)
  return {
    **{field: spec_of_fields[field] for field in fields},
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
  all_steps = max(1, recipe.epochs) * max(1, len(train) // recipe.batch_size)
  short = recipe.replace(
    epochs=min(MOST_EPOCHS, math.ceil(all_steps / steps)),
    warmup=0,
    evaluate_every=None,
    training_metrics=False,
    metrics={},
    start_from=None,
    stop_at=None,
  )
  examples = random_examples(train, steps * recipe.batch_size)
  return make_task_on_sets(
    short,
    (examples, {}),
    rounds=1,
    finish=lambda sets, run, state: {"diverged": state.nonfinite_steps > 0},
    outputs={},
    internal=dict(make_trial=None),
  )


def random_examples(like: DeviceExamples, n: int) -> DeviceExamples:
  """`n` random examples with the shapes and dtypes of others."""
  rng = np.random.default_rng(0)

  def draw(array, below):
    shape = (n, *array.shape[1:])
    dtype = np.dtype(array.dtype)
    if dtype.kind == "f":
      return rng.normal(0, 1, shape).astype(dtype)
    return rng.integers(0, below, shape).astype(dtype)

  # Other whole numbers, such as token ids, have no known range, but it should include 0
  # and 1.
  is_image = like.inputs.dtype == np.uint8
  inputs = draw(like.inputs, 256 if is_image else 2)
  targets = draw(like.targets, like.num_classes or 2)
  if like.mean is None:
    return dataclasses.replace(like, inputs=inputs, targets=targets)
  mean = np.full(like.mean.shape, 128, np.float32)
  std = np.full(like.mean.shape, 64, np.float32)
  return DeviceExamples(inputs, targets, mean, std, like.num_classes)


def check_runs_fit_recipe(
  recipe: Recipe, runs: Runs, num_train: int, num_classes: int | None
) -> None:
  """Raise `UserError` if a table does not fit a recipe and its data set, which has so many
  training examples and classes.
  """
  values = runs.values
  for name, column in values.items():
    if name in recipe.hyperparameters and column.dtype.kind != "U":
      for value in np.unique(column).tolist():
        hyperparameter(name, value)
  label_map = values.get("label_map")
  if label_map is not None and label_map.shape[1] != num_classes:
    raise UserError(
      f"label map of {label_map.shape[1]} classes for data with {num_classes}: give "
      "one for each"
    )
  check_sampling(runs, num_train, num_classes)
  if "start" in values and recipe.start_from is None:
    raise UserError(
      "runs that start from stored networks: give the recipe start_from, the folder "
      "that has them"
    )
  size = runs.num_train(num_train)
  if size < recipe.batch_size:
    raise UserError(
      f"batch_size {recipe.batch_size} with {size} training examples: give at most as "
      "many"
    )


def check_sampling(runs: Runs, num_train: int, num_classes: int | None) -> None:
  """Raise `UserError` if the training examples that a table chooses are not among those of
  a data set, which has so many and so many classes.
  """
  subset = runs.values.get("subset")
  if subset is not None and subset.max() >= num_train:
    raise UserError(
      f"training index {subset.max()} in data with {num_train} examples: the last is "
      f"{num_train - 1}"
    )
  size = runs.num_train(num_train)
  kind, count = runs.sampling or ("", None)
  groups = runs.values.get(FOLD_GROUPS)
  if groups is not None and groups.shape[1] != num_train:
    raise UserError(
      f"groups of {groups.shape[1]} examples for data with {num_train}, training and test: "
      "give one for each"
    )
  if kind == STRATIFIED and num_classes is None:
    raise UserError(
      "stratified folds of targets that are no classes: leave stratified out"
    )
  if kind in (K_FOLD, STRATIFIED) and (count or 0) > num_train:
    raise UserError(
      f"{count} folds of {num_train} examples: give at most as many folds"
    )
  if kind == OUT_OF_BOOTSTRAP and size > num_train - 2:
    raise UserError(
      f"{size} of {num_train} examples to train on: give at most {num_train - 2}, so that "
      "some are left to validate and test on"
    )
  if kind == SUBSET and size > num_train:
    raise UserError(
      f"training subset of {size} of {num_train} examples: give at most {num_train}"
    )


def compatible_variables(recipe: Recipe, data, base: Base, runs: Runs):
  """Return the paths of the stored variables that runs start from.

  Raises:
    UserError: more than the last layer differs, or there is no such network.
  """
  start = runs.values.get("start")
  if start is not None and start.max() >= len(base):
    raise UserError(
      f"network {start.max()} of {base.path} with {len(base)}: the last is "
      f"{len(base) - 1}"
    )
  variables = variables_of(recipe, data)
  leaves = jax.tree.leaves_with_path(variables)
  due = {path_of(path): leaf.shape for path, leaf in leaves}
  apply = make_network(recipe, data.num_classes).apply
  last = last_layer(apply, variables, batch_like(data, 1))
  fresh = {path for path in last if base.shapes.get(path) != due[path]}
  trained = [path for path in base.shapes if path not in KEPT_MOMENTS]
  for path in dict.fromkeys((*due, *trained)):
    stored = base.shapes.get(path)
    mine = due.get(path)
    if stored != mine and path not in fresh:
      raise UserError(
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
    UserError: another data set cannot be loaded.
  """
  known = recipe
  if recipe.dataset in BALANCED and set(recipe.test_sets) <= {"train", "test"}:
    shape, num_classes, num_train, num_test = BALANCED[recipe.dataset]

    def balanced(n):
      # Of one byte, broadcast: it takes no memory.
      return np.broadcast_to(np.uint8(0), (n, *shape)), np.arange(n) % num_classes

    channels = shape[-1]
    known = recipe.replace(
      dataset=Dataset(
        train=balanced(num_train), test=balanced(num_test), name=recipe.dataset
      ),
      mean=(0,) * channels,
      std=(1,) * channels,
    )
  data = dataset_of(known)
  check_data(known, data, data.num_classes)
  sets = put_sets_on_device(known, data, data.num_classes)
  shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), sets)
  return make_task_on_sets(recipe, sets, data=shapes)


def dataset_of(recipe: Recipe, splits_all: bool = False) -> Dataset:
  """Load the recipe's data into memory. Where runs hold some of all examples out, it
  needs no test set.
  """
  source = recipe.dataset
  if isinstance(source, Named):
    raise UserError(
      f"the data of {recipe.name} were arrays in memory: resume with vs.train in the "
      "program that created it"
    )
  if isinstance(source, str) and module_exists(source):
    source = import_object(source)
    if not isinstance(source, Dataset):
      kind = type(source).__name__
      raise UserError(
        f"dataset {recipe.dataset} is {kind}: give the name of a vs.Dataset"
      )
  if not isinstance(source, Dataset):
    return load_dataset(source, test_sets=recipe.test_sets, classes=recipe.classes)
  test_sets = recipe.test_sets
  if splits_all and not source.tests:
    test_sets = ()
  return source.select(test_sets, recipe.classes)


def check_data(recipe: Recipe, data: Dataset, num_classes: int | None) -> None:
  """Raise `UserError` if the recipe does not fit the data."""
  augment.check_steps(recipe.augment, data.train.inputs.shape[1:])
  if is_name(recipe.model):
    models.check_size(recipe.model, data.train.inputs.shape[1:])
  targets = data.train.targets
  no_classes = f"the targets of {data.name} are {targets.dtype} {targets.shape}, no classes, which are whole numbers (n,)"
  if num_classes is None and recipe.loss == "cross_entropy":
    remedy = remedy_for_targets(targets)
    raise UserError(
      f"{no_classes}: {remedy}give a loss for them, such as squared_error"
    )
  if num_classes is not None and recipe.loss == "squared_error":
    remedy = "give cross_entropy, or a vs.Dataset with num_classes=None"
    raise UserError(
      f"loss is squared_error, the targets of {data.name} are classes: {remedy}"
    )
  for name, metric in recipe.metrics.items():
    check_metric(name, metric_of(name, metric), targets, num_classes)
  if num_classes is None and recipe.stop_at is not None:
    raise UserError(f"{no_classes}: leave stop_at out, which is an accuracy")
  if num_classes is None and recipe.predict == "argmax":
    raise UserError(f"{no_classes}: leave predict out, which is of classes")


def remedy_for_targets(targets: np.ndarray) -> str:
  """Return what to do with targets that may be meant as classes, up to an "or"; "" if
  they do not look like classes.
  """
  if is_one_hot(targets):
    return "they look like one-hot labels: give y.argmax(1), or "
  if not (targets == np.round(targets)).all():
    return ""
  if targets.shape[1:] == (1,):
    cast = "" if targets.dtype.kind in "iu" else ".astype(int)"
    return f"they look like labels (n, 1): give y.ravel(){cast}, or "
  if targets.ndim == 1:
    return "use .astype(int) if they are classes, or "
  return ""


def is_one_hot(targets: np.ndarray) -> bool:
  """Return whether each row of targets (n, classes) is one 1 and zeros."""
  if targets.ndim != 2 or targets.shape[1] < 2:
    return False
  is_binary = (targets == 0) | (targets == 1)
  return bool(is_binary.all() and (targets.sum(1) == 1).all())


def put_sets_on_device(recipe: Recipe, data: Dataset, num_classes: int | None) -> Sets:
  """Return the training set and the test sets as lanes read them."""
  mean = std = None
  if recipe.normalize:
    mean, std = moments_of(recipe, data)

  def as_read(part):
    return DeviceExamples(part.inputs, part.targets, mean, std, num_classes)

  tests = {name: as_read(part) for name, part in data.tests.items()}
  return as_read(data.train), tests
