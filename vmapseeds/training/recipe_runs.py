"""What a recipe makes of the runs table: which columns its lanes read, and whether the
table fits.
"""

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import jax
import numpy as np
from jaxtyping import Integer, PyTree

from vmapseeds.errors import UserError
from vmapseeds.training.holding_out import HeldOutEvaluation
from vmapseeds.training.inputs import batch_like
from vmapseeds.training.moments import GIVEN, KEPT_MOMENTS, OWN, SHARED, InputMoments
from vmapseeds.training.names import FOLD_GROUPS, MADE_COLUMNS, SOURCES
from vmapseeds.training.networks import (
  make_network,
  model_takes,
  path_of,
  variables_of,
)
from vmapseeds.training.outputs import Keep
from vmapseeds.training.recipes import Recipe, hyperparameter
from vmapseeds.training.runs import (
  BOOTSTRAP,
  K_FOLD,
  OUT_OF_BOOTSTRAP,
  POOLED,
  STRATIFIED,
  SUBSET,
  Run,
  Runs,
)


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


def sampling_kind(runs: Runs) -> str:
  """Return how the data seed draws training examples, "" if it draws none."""
  if runs.sampling is None:
    return ""
  kind, _ = runs.sampling
  return kind


def held_out_examples(
  runs: Runs,
  keep: Keep,
  available: int,
  labels: Integer[np.ndarray, " examples"] | None = None,
) -> HeldOutEvaluation | None:
  """Return which of the available examples runs hold out; None if they are measured on
  test sets alone. Stratified folds need the labels.
  """
  kind = sampling_kind(runs)
  splits_all = kind in POOLED
  out_of_bag = kind == BOOTSTRAP and keep.predictions
  if not splits_all and not out_of_bag:
    return None
  sizes = runs.held_out_sizes(available, labels) if splits_all else ()
  validates = kind == OUT_OF_BOOTSTRAP
  return HeldOutEvaluation(validates, sizes, out_of_bag=out_of_bag)


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


def assign_start_networks(runs: Runs, base: Base) -> Runs:
  """Return the table with run i starting from network i modulo how many there are,
  unless it says otherwise.
  """
  if "start" in runs.values:
    return runs
  return runs.start_from(np.arange(len(runs)) % len(base))


def compatible_variables(recipe: Recipe, data, base: Base, runs: Runs):
  """Return the paths of the stored variables that runs start from.

  Raises:
    UserError: more than the number of outputs differs, or there is no such network.
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
  outputs = jax.eval_shape(apply, variables, batch_like(data, 1)).shape[-1]

  def is_of_other_outputs(path):
    stored, mine = base.shapes.get(path, ()), due[path]
    if len(stored) != len(mine):
      return False
    sizes = [size for size, other in zip(mine, stored, strict=True) if size != other]
    return sizes == [outputs]

  fresh = {path for path in due if is_of_other_outputs(path)}
  trained = [path for path in base.shapes if path not in KEPT_MOMENTS]
  for path in dict.fromkeys((*due, *trained)):
    stored = base.shapes.get(path)
    mine = due.get(path)
    if stored != mine and path not in fresh:
      raise UserError(
        f"{base.path} has {path} {stored}, {recipe.name} {mine}: give the model that "
        "was trained there: only its number of outputs may differ"
      )
  return [path for path in due if path not in fresh]


def check_runs_fit_recipe(
  recipe: Recipe,
  runs: Runs,
  num_train: int,
  num_classes: int | None,
  labels: Integer[np.ndarray, " examples"] | None = None,
) -> None:
  """Raise `UserError` if a table does not fit a recipe and its data set, which has so many
  training examples and classes. Stratified folds need the labels.
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
  check_sampling(runs, num_train, num_classes, labels)
  if "start" in values and recipe.start_from is None:
    raise UserError(
      "runs that start from stored networks: give the recipe start_from, the folder "
      "that has them"
    )
  size = runs.num_train(num_train, labels)
  if size < recipe.batch_size:
    raise UserError(
      f"batch_size {recipe.batch_size} with {size} training examples: give at most as "
      "many"
    )


def check_sampling(
  runs: Runs,
  num_train: int,
  num_classes: int | None,
  labels: Integer[np.ndarray, " examples"] | None = None,
) -> None:
  """Raise `UserError` if the training examples that a table chooses are not among those of
  a data set, which has so many and so many classes. Stratified folds need the labels.
  """
  subset = runs.values.get("subset")
  if subset is not None and subset.max() >= num_train:
    raise UserError(
      f"training index {subset.max()} in data with {num_train} examples: the last is "
      f"{num_train - 1}"
    )
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
  size = runs.num_train(num_train, labels)
  if kind == OUT_OF_BOOTSTRAP and size > num_train - 2:
    raise UserError(
      f"{size} of {num_train} examples to train on: give at most {num_train - 2}, so that "
      "some are left to validate and test on"
    )
  if kind == SUBSET and size > num_train:
    raise UserError(
      f"training subset of {size} of {num_train} examples: give at most {num_train}"
    )
