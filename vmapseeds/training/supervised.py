"""Supervised training as a task: a recipe, its data, and what is kept of each run."""

import dataclasses
import functools
import json
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from vmapseeds import models
from vmapseeds.data import Dataset
from vmapseeds.data.dataset import count_seen, find_training_twins
from vmapseeds.errors import say
from vmapseeds.training.evaluation import depends_on_batch
from vmapseeds.training.holding_out import HeldOutEvaluation
from vmapseeds.training.inputs import DeviceExamples, Sets
from vmapseeds.training.modules import has_fixed_init
from vmapseeds.training.moments import OWN, Centred, InputMoments, centre
from vmapseeds.training.names import MADE_COLUMNS, SOURCES
from vmapseeds.training.networks import check_network, describe_trainable
from vmapseeds.training.objects import (
  is_name,
  name_of,
  resolve_object,
)
from vmapseeds.training.outputs import DEFAULT_KEEP, Keep
from vmapseeds.training.recipe_data import (
  check_data,
  dataset_of,
  ids_of_sets,
  pool_sets,
  put_sets_on_device,
  random_examples,
  sets_of,
)
from vmapseeds.training.recipe_outputs import recipe_constants, recipe_outputs
from vmapseeds.training.recipe_runs import (
  Base,
  DerivedColumns,
  check_runs_fit_recipe,
  check_sampling,
  compatible_variables,
  held_out_examples,
  sampling_kind,
  swept_fields,
  whose_moments,
)
from vmapseeds.training.recipe_setup import RecipeSetup
from vmapseeds.training.recipes import MOST_EPOCHS, Recipe
from vmapseeds.training.runs import POOLED, STRATIFIED, Runs
from vmapseeds.training.stages import recipe_stages
from vmapseeds.training.task import Internal, Task

TRIAL_STEPS = 100  # of a trial: enough that one-off costs do not count
# Most numbers in a trial's inputs; large batches get fewer steps, but at least two.
TRIAL_PIXELS = 2**21


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


def load_recipe_task(
  recipe: Recipe,
  runs: Runs,
  keep: Keep = DEFAULT_KEEP,
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
  splits_all = sampling_kind(runs) in POOLED
  dataset = dataset_of(recipe, splits_all)
  if splits_all:
    dataset = pool_sets(dataset)
  available = len(dataset.train)
  labels = labels_for_folds(runs, dataset)
  check_sampling(runs, available, dataset.num_classes, labels)
  held_out = held_out_examples(runs, keep, available, labels)
  traced, fields = swept_fields(recipe, runs)

  # Pooling has refused data with an example in two sets.
  twins = {} if splits_all else find_training_twins(dataset)
  if says:
    warn_about_data(recipe, runs, dataset, twins)

  num_classes = classes_after_map(runs, dataset)
  centred = centre(recipe, dataset)
  train, tests = sets_of(centred, num_classes)
  if splits_all:
    tests = {}
  moments = None
  if whose_moments(recipe, runs) == OWN:
    moments = InputMoments.of(recipe, centred)

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
    conditions=conditions_of(recipe, runs, centred, base, fields),
    memory=memory,
    base=base,
    says=says,
  )
  make_variant = functools.partial(make_task_of_variant, recipe, shared)
  return make_task_for_table(recipe, shared, fields=fields, make_variant=make_variant)


def labels_for_folds(
  runs: Runs, dataset: Dataset
) -> Int[np.ndarray, " examples"] | None:
  """Return the labels of all examples, if folds are stratified by them."""
  return dataset.train.targets if sampling_kind(runs) == STRATIFIED else None


def classes_after_map(runs: Runs, dataset: Dataset) -> int | None:
  """Return how many classes runs train on; None if targets are none."""
  label_map = runs.values.get("label_map")
  if label_map is None:
    return dataset.num_classes
  return int(label_map.max()) + 1


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
  runs, dataset, base = shared.runs, shared.dataset, shared.base
  train, _ = shared.sets
  available = len(dataset.train)
  labels = labels_for_folds(runs, dataset)
  check_runs_fit_recipe(recipe, runs, available, dataset.num_classes, labels)
  check_data(recipe, dataset, shared.num_classes)
  check_network(recipe, train, shared.memory)
  if shared.says and recipe.trainable != "all":
    say(describe_trainable(recipe, train))

  paths: Sequence[str] = ()
  if base is not None:
    paths = compatible_variables(recipe, train, base, runs)
  derive = DerivedColumns(available, base, paths, shared.moments, labels)

  # A label map merges classes, so that their names are no more those of the data.
  class_names = None
  if "label_map" not in runs.values:
    class_names = dataset.class_names
  setup = RecipeSetup.on_sets(
    recipe,
    shared.sets,
    keep=shared.keep,
    num_train=runs.num_train(available, labels),
    held_out=shared.held_out,
    own_moments=shared.moments is not None,
    class_names=class_names,
    twins=shared.twins,
    ids=ids_of_sets(dataset, shared.held_out is not None),
  )
  swept_values = {name: getattr(recipe, name) for name in shared.traced}
  return make_task(
    setup,
    values=recipe.hyperparameters | swept_values,
    internal=dict(
      origin=recipe.origin, derive=derive, conditions=shared.conditions, **internal
    ),
  )


def make_task(
  setup: RecipeSetup,
  *,
  internal: Mapping[str, Any] = MappingProxyType({}),
  **fields: Any,
) -> Task:
  """Return the task of a recipe. `internal` are fields of `task.Internal`, `fields` those
  of the task, which take the place of the recipe's.
  """
  recipe = setup.recipe
  start, advance, finish = recipe_stages(
    recipe, setup.keep, setup.held_out, setup.whole_loss
  )
  spec = recipe.to_json()
  known_of_recipe = Internal(
    columns=MADE_COLUMNS,
    derive=DerivedColumns(len(setup.train)),
    spec=spec,
    speed_key=recipe_speed_key(recipe, spec, setup.train),
    make_trial=functools.partial(trial_task, recipe, setup.train),
  )
  task = Task(
    name=recipe.name,
    start=start,
    advance=advance,
    finish=finish,
    data=setup.sets,
    rounds=recipe.epochs,
    sources=(*SOURCES, *recipe.sources),
    values=recipe.hyperparameters,
    outputs=recipe_outputs(setup),
    constants=recipe_constants(setup),
    steps=max(1, setup.num_train // recipe.batch_size),
    version=recipe.version,
    internal=dataclasses.replace(known_of_recipe, **internal),
  )
  return dataclasses.replace(task, **fields)


def conditions_of(
  recipe: Recipe,
  runs: Runs,
  centred: Centred,
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
  mean = centred.mean
  if mean is not None and centred.origin is not None:
    mean = mean + centred.origin
  moments = {"mean": mean, "std": centred.std}
  if normalized_by == OWN:
    # Each run's own are beside its variables, less the origin.
    moments = {"mean": centred.origin}
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


def warn_about_data(
  recipe: Recipe,
  runs: Runs,
  dataset: Dataset,
  twins: Mapping[str, Int[np.ndarray, " examples"]],
) -> None:
  """Say which test examples are in the training set, which axis is taken for channels if
  that looks wrong, and whether all runs begin with the same parameters.
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
  if recipe.normalize and is_channels_first(dataset.train.inputs.shape[1:]):
    shape = dataset.train.inputs.shape[1:]
    say(
      f"note: inputs are {shape}: the last axis, {shape[-1]}, is taken for their "
      "channels; of PyTorch's, whose first are the channels, give np.moveaxis(x, 1, -1)"
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


def is_channels_first(shape: tuple[int, ...]) -> bool:
  """Return whether the shape of an input looks like one of PyTorch: a first axis of at
  most four, shorter than all others.
  """
  return len(shape) > 1 and shape[0] <= 4 and shape[0] < min(shape[1:])


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
  return make_task(
    RecipeSetup.on_sets(short, (examples, {})),
    rounds=1,
    finish=lambda sets, run, state: {"diverged": state.nonfinite_steps > 0},
    outputs={},
    internal=dict(make_trial=None),
  )
