"""The data of a recipe: loaded, checked, and as lanes read them."""

import dataclasses

import numpy as np

from vmapseeds import models
from vmapseeds.data import Dataset, load_dataset
from vmapseeds.data.dataset import Examples, find_training_twins
from vmapseeds.errors import UserError
from vmapseeds.training import augment
from vmapseeds.training.inputs import DeviceExamples, Sets
from vmapseeds.training.metrics import check_metric, metric_of
from vmapseeds.training.moments import Centred, centre
from vmapseeds.training.names import HELD_OUT
from vmapseeds.training.objects import is_name, is_object, name_of, resolve_object
from vmapseeds.training.recipes import Recipe


def dataset_of(recipe: Recipe, splits_all: bool = False) -> Dataset:
  """Load the recipe's data into memory. Where runs hold some of all examples out, it
  needs no test set.
  """
  source = recipe.dataset
  if is_object(source):
    source = resolve_object("data set", source)
    if not isinstance(source, Dataset):
      kind = type(source).__name__
      raise UserError(
        f"dataset {name_of(recipe.dataset)} is {kind}: give the name of a vs.Dataset"
      )
  if not isinstance(source, Dataset):
    return load_dataset(source, test_sets=recipe.test_sets)
  test_sets = recipe.test_sets
  if splits_all and not source.tests:
    test_sets = ()
  return source.select(test_sets)


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


def put_sets_on_device(recipe: Recipe, data: Dataset, num_classes: int | None) -> Sets:
  """Return the training set and the test sets as lanes read them."""
  return sets_of(centre(recipe, data), num_classes)


def sets_of(centred: Centred, num_classes: int | None) -> Sets:
  """Return the training set and the test sets of a data set as lanes read them."""
  data, mean, std, _ = centred

  def as_read(part):
    return DeviceExamples(part.inputs, part.targets, mean, std, num_classes)

  tests = {name: as_read(part) for name, part in data.tests.items()}
  return as_read(data.train), tests


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
