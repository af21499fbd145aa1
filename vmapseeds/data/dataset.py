"""A data set in memory, and the checks that all sources of data sets share."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Int, PyTree, Shaped

from vmapseeds.data.tables import (
  as_classes,
  as_ids,
  check_same_index,
  ids_of_table,
  in_order_of_columns,
  numbers_of,
  targets_of_column,
)
from vmapseeds.errors import (
  UserError,
  check_at_least,
  check_class_names,
  check_fields,
  check_one_of,
  one_line,
)

AS_MANY = "as many as there are"
# Results keep classes, and -1, in 16 bits.
MOST_CLASSES = 2**15
# Fewer test examples that are in the training set too are no sign of a mistake.
FEWEST_TWINS = 20
# JAX computes in 32 bits unless it is told otherwise.
NARROWER = {"float64": "float32", "int64": "int32", "uint64": "uint32"}
# How many standard deviations numbers may be away from 0, so that float32, of seven
# digits, keeps four of their differences.
MOST_OFFSET = 1000
# Which share of their standard deviation float32 may round targets by.
MOST_ROUNDING = 0.01
FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class Examples:
  """Inputs with their targets; the order is the source's and never changes."""

  inputs: Shaped[np.ndarray, "n ..."]  # images are (n, height, width, channels)
  targets: Shaped[np.ndarray, "n ..."]  # whole numbers are int32; classes are (n,)
  ids: Shaped[np.ndarray, " n"] | None = None  # texts, shown in place of numbers
  copied: bool = False  # whether a data set has made these arrays for itself

  def __len__(self) -> int:
    return len(self.targets)


@check_fields("data set")
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Dataset:
  """A training set and one or more test sets, as arrays. Inputs and targets may have
  any shape, or be frames and series of pandas. They are copied: what happens to the
  arrays afterwards changes nothing here.

  >>> x, y = np.zeros((6, 8), np.float32), np.array([0, 1, 0, 1, 0, 1])
  >>> Dataset(train=(x[:4], y[:4]), test=(x[4:], y[4:])).num_classes
  2

  Args:
    train: (inputs, targets), arrays whose first axis is the example. Targets may be names
      of classes.
    test: the test set that is called `test`. Runs that hold examples out, as
      `Runs.k_fold` does, need none.
    tests: test sets by their names.
    name: what results call it.
    num_classes: how many classes the targets have; None if they are not classes. By
      default whole numbers (n,) are classes, and the training set must have examples of
      each.
    class_names: what reports call the classes, the first class 0; None for the names that
      targets are, sorted or in the order of their categories, or else numbers.
    example_ids: ids of the examples of sets, by the sets' names, which reports and tables
      show; None for the index of a frame, if it has one of its own.

  Raises:
    UserError: arrays that do not fit together.
  """

  train: Any  # kept as `Examples`, as `tests` are
  test: InitVar[Any] = None
  tests: Mapping[str, Any] = field(default_factory=dict)
  name: str = "arrays"
  num_classes: Any = AS_MANY  # kept as a number, or None
  class_names: Sequence[str] | None = None
  example_ids: Mapping[str, Any] | None = None  # then in `Examples`

  def __post_init__(self, test):
    if not isinstance(self.tests, Mapping):
      raise UserError(
        f"tests is {self.tests!r:.100}: give a dict, name -> (inputs, targets)"
      )

    # The training set has no name here, so that a test set may be called "train".
    raw_sets = {"": self.train}
    if test is not None:
      raw_sets["test"] = test
    raw_sets |= self.tests
    sets, names = self._as_numbers(raw_sets)
    train = sets.pop("")

    count = self._count_classes(train, names)
    if count is None:
      _check_digits(train.targets, f"targets of 'train' of {self.name!r}")
    narrowed = _narrowed(train, train)
    for name, examples in sets.items():
      # A test set that is the training set takes no memory of its own.
      is_train = raw_sets[name] is raw_sets[""]
      sets[name] = narrowed if is_train else _narrowed(examples, train)
    train = narrowed
    if count is not None and count > MOST_CLASSES:
      raise UserError(f"{self.name!r} has {count} classes: give at most {MOST_CLASSES}")
    if names is not None:
      if count is None:
        raise UserError(
          f"class_names of {self.name!r}, which has no classes: leave them out"
        )
      names = check_class_names(names, count)

    for name, examples in ({"train": train} | sets).items():
      self._check_alike(name, examples, train)
      self._check_range(name, examples, count)

    attributes = {
      "train": train,
      "tests": sets,
      "num_classes": count,
      "class_names": names,
      "example_ids": None,
    }
    for name, value in attributes.items():
      # The dataclass is frozen, which also stops its own methods.
      object.__setattr__(self, name, value)

  def _count_classes(self, train: Examples, names: Any) -> int | None:
    """Return the number of classes: as given, as many as there are names, or as the
    training set's targets take; None if they are not classes.
    """
    count = self.num_classes
    if count == AS_MANY and names is not None:
      count = len(names)
    if count is None:
      return None
    if count != AS_MANY:
      return check_at_least("num_classes", count, 1)

    if train.targets.ndim != 1 or train.targets.dtype.kind != "i":
      return None
    present = np.unique(train.targets)
    count = len(present)
    if not np.array_equal(present, np.arange(count)):
      raise UserError(
        f"targets of 'train' of {self.name!r} take {count} values from {present[0]} to {present[-1]}: number the "
        f"classes 0 to {count - 1} without gaps, or give a vs.Dataset with num_classes (None: no classes)"
      )
    return count

  def _check_alike(
    self,
    name: str,
    examples: Examples,
    train: Examples,
  ) -> None:
    """Raise `UserError` if a set's arrays are not of the training set's types and shapes
    of one example.
    """
    for field_name in ("inputs", "targets"):
      array = getattr(examples, field_name)
      train_array = getattr(train, field_name)
      form = f"{array.dtype} {array.shape[1:]}"
      train_form = f"{train_array.dtype} {train_array.shape[1:]}"
      if form != train_form:
        raise UserError(
          f"{field_name} of {name!r} of {self.name!r} are {form}, those of 'train' are {train_form}: give the same"
        )

  def _check_range(
    self,
    name: str,
    examples: Examples,
    count: int | None,
  ) -> None:
    """Raise `UserError` if a set has targets that are none of `count` classes."""
    if count is None:
      return
    low = examples.targets.min()
    high = examples.targets.max()
    if not 0 <= low <= high < count:
      remedy = f"classes lie in 0 to {count - 1}; where they are none, give a vs.Dataset with num_classes=None"
      raise UserError(
        f"targets of {name!r} of {self.name!r} go from {low} to {high}: {remedy}"
      )

  def _as_numbers(self, raw_sets: Mapping[str, Any]) -> tuple[dict[str, Examples], Any]:
    """Return sets as arrays of numbers, and the names of classes or None. The name of the
    training set is empty here: a test set may be called "train".
    """
    places = {name: f"{name or 'train'!r} of {self.name!r}" for name in raw_sets}
    sets = {}
    categories = None
    for name, where in places.items():
      raw = raw_sets[name]
      if name:
        raw = _with_columns_of(raw, raw_sets[""], where)
      sets[name], set_categories = _make_examples(raw, where)
      categories = categories or set_categories
    self._add_ids(sets, places)

    names = self.class_names
    named = [name for name in sets if sets[name].targets.dtype.kind == "U"]
    if not named:
      return sets, names
    if "" not in named:
      raise UserError(
        f"targets of {places[named[0]]} are names, those of 'train' are none: give the same"
      )

    if names is None:
      # Categories of a table have an order of their own; texts are sorted.
      names = categories or sorted(set(sets[""].targets.tolist()))
    names = list(check_class_names(names))
    for name in named:
      classes = as_classes(sets[name].targets, names, places[name])
      sets[name] = replace(sets[name], targets=classes.astype(np.int32))
    return sets, names

  def _add_ids(self, sets: dict[str, Examples], places: Mapping[str, str]) -> None:
    """Put `example_ids` into the sets that they name."""
    ids = self.example_ids
    if ids is None:
      return
    if not isinstance(ids, Mapping):
      raise UserError(
        f"example_ids is {ids!r:.100}: give a dict, the name of a set -> its ids"
      )
    allowed = ["train", *filter(None, sets)]
    for name, set_ids in ids.items():
      check_one_of("set with example_ids", name, allowed)
      key = name
      if name == "train" and name not in sets:
        key = ""
      texts = as_ids(set_ids)
      size = len(sets[key])
      if len(texts) != size:
        raise UserError(
          f"{len(texts)} example_ids for the {size} examples of "
          f"{places[key]}: give one for each"
        )
      sets[key] = replace(sets[key], ids=texts)

  def __repr__(self) -> str:
    parts = [f"train {len(self.train)}"]
    for name, examples in self.tests.items():
      parts.append(f"{name} {len(examples)}")
    classes = ""
    if self.num_classes:
      classes = f", {self.num_classes} classes"
    return f"<Dataset {self.name!r}: examples {', '.join(parts)}{classes}>"

  def described(self) -> dict[str, str]:
    """Describe the data set in a recipe's folder: arrays in memory cannot be imported
    by name.
    """
    return {"object": f"<{self.name}>"}

  def select(self, test_sets: Sequence[str]) -> "Dataset":
    """Return the data set with some of its test sets."""
    sets = {"train": self.train, **self.tests}
    if not self.tests and "test" in test_sets:
      raise UserError(
        f"the data set {self.name!r} has no test set: give test=(inputs, targets), or hold "
        "examples out with Runs.k_fold"
      )
    if test_sets:
      check_splits(test_sets, sets)
    return replace(self, tests={name: sets[name] for name in test_sets})


def find_training_twins(dataset: Dataset) -> dict[str, Int[np.ndarray, " examples"]]:
  """Return of each example of a test set the place of the first training example with
  the same inputs, by their digests, or -1; of those sets where this is surely no chance.

  That is if 20 or more have one, over 1 % of the set, and over 3 times the share of the
  training examples that repeat another. A test set called "train" is meant to be so.
  """
  test_digests = {}
  for name, examples in dataset.tests.items():
    # Results of the training set itself are no mistake.
    if name != "train":
      test_digests[name] = _digests(examples)
  if not test_digests:
    return {}

  train_digests = _digests(dataset.train)
  places: dict[bytes, int] = {}
  for place, digest in enumerate(train_digests):
    places.setdefault(digest, place)
  repeated = 1 - len(places) / max(1, len(train_digests))

  twins_by_set = {}
  for name, digests in test_digests.items():
    twins = np.array([places.get(digest, -1) for digest in digests], np.int32)
    count = (twins >= 0).sum()
    # Examples that the training set itself repeats meet in a fair split too.
    by_chance = len(digests) * max(0.01, 3 * repeated)
    if count >= FEWEST_TWINS and count > by_chance:
      twins_by_set[name] = twins
  return twins_by_set


def count_seen(
  twins: Int[np.ndarray, " examples"],
  trained: Int[np.ndarray, "runs train"] | None,
) -> float:
  """Return how many examples of a test set are among those that a run is trained on, on
  average over runs.

  Args:
    twins: what `find_training_twins` returns of the set.
    trained: the places of each run's training examples; None for all of them.
  """
  there = twins[twins >= 0]
  if trained is None:
    return float(len(there))
  counts = []
  for examples in trained:
    largest = max(examples.max(), there.max(initial=0))
    is_trained = np.zeros(1 + largest, bool)
    is_trained[examples] = True
    counts.append(is_trained[there].sum())
  return float(np.mean(counts))


def _digests(examples: Examples) -> list[bytes]:
  rows = np.ascontiguousarray(examples.inputs).reshape(len(examples), -1)
  return [hashlib.blake2b(row.data, digest_size=16).digest() for row in rows]


def fingerprint(arrays: PyTree[np.ndarray]) -> str:
  """Return a digest of all arrays: of their bytes, dtypes and shapes, and of their places
  in the pytree that holds them.
  """
  digest = hashlib.blake2b(digest_size=8)
  for path, leaf in jax.tree.leaves_with_path(arrays):
    # NumPy has no keys, only the numbers in them.
    if jax.dtypes.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key):
      leaf = jax.random.key_data(leaf)
    array = np.ascontiguousarray(leaf)
    # `ascontiguousarray` makes a scalar an array of one number: its own shape is told.
    header = (
      jax.tree_util.keystr(path),
      str(array.dtype),
      np.shape(leaf),
    )
    digest.update(repr(header).encode())
    digest.update(array.reshape(-1).view(np.uint8).data)
  return digest.hexdigest()


def _make_examples(raw, where):
  """Return copies of the arrays as `Examples`, checked to fit together, with whole
  numbers narrowed to the 32 bits that JAX has, and the names of categories or None.
  Targets that are names stay texts.
  """
  if isinstance(raw, Examples):
    if raw.copied:
      return raw, None
    copies, categories = _make_examples((raw.inputs, raw.targets), where)
    return replace(copies, ids=raw.ids), categories
  try:
    if any(np.ma.is_masked(array) for array in raw):
      raise UserError(
        f"{where} has masked entries: fill them, or leave these examples out"
      )
    raw_inputs, raw_targets = raw
    check_same_index(raw_inputs, raw_targets, where)
    ids = ids_of_table(raw_inputs)
    inputs = numbers_of(raw_inputs, where)
    targets, categories = targets_of_column(raw_targets, where)
  except UserError:
    raise
  # Whatever cannot be unpacked into two, or made an array, as a tensor on a GPU.
  except (TypeError, ValueError, RuntimeError) as error:
    raise UserError(
      f"{where} is {raw!r:.100}: give (inputs, targets), two arrays "
      f"({one_line(error)[:200]})"
    ) from None

  _check_numbers(inputs, targets, where)
  # Copies: the caller may shuffle or fill these arrays again.
  inputs = inputs.astype(
    _narrower(inputs) if inputs.dtype.kind != "f" else inputs.dtype
  )
  targets = targets.astype(np.int32 if targets.dtype.kind in "iu" else targets.dtype)
  return Examples(inputs, targets, ids, copied=True), categories


def _check_numbers(
  inputs: np.ndarray,
  targets: np.ndarray,
  where: str,
) -> None:
  """Raise `UserError` unless there are as many inputs as targets, at least one, all finite
  numbers of 32 bits. Targets may be names.
  """
  arrays = [inputs, targets]
  numbers = arrays
  if targets.dtype.kind == "U" and targets.ndim == 1:
    numbers = [inputs]
  if any(array.dtype.kind not in "biuf" or not array.ndim for array in numbers):
    raise UserError(
      f"{where} has {inputs.dtype} inputs and {targets.dtype} targets: give arrays of numbers"
    )
  if len(inputs) != len(targets) or not inputs.size or not targets.size:
    shapes = f"inputs {inputs.shape} and targets {targets.shape}"
    raise UserError(f"{where} has {shapes}: give as many of each, at least one")

  for array in arrays:
    if array.dtype.kind != "f":
      continue
    if not np.isfinite(array).all():
      raise UserError(f"{where} holds NaN or infinite values: give finite ones")
    largest = float(np.abs(array).max())
    if largest > FLOAT32_MAX:
      raise UserError(
        f"{where} holds numbers up to {largest:.3g}, and training computes in float32, "
        f"up to {FLOAT32_MAX:.3g}: scale them"
      )
  for array in arrays:
    if array.dtype.kind not in "iu":
      continue
    low = int(array.min())
    high = int(array.max())
    if low < -(2**31) or high >= 2**31:
      raise UserError(
        f"{where} holds whole numbers from {low} to {high}: give some of 32 bits"
      )


def _with_columns_of(raw: Any, raw_train: Any, where: str) -> Any:
  """Return (inputs, targets) whose inputs, if both are tables, have their columns in the
  order of the training set's.

  Raises:
    UserError: the columns are others.
  """
  try:
    inputs, targets = raw
    train_inputs, _ = raw_train
  # What cannot be unpacked is refused where it is read.
  except (TypeError, ValueError):
    return raw
  return in_order_of_columns(inputs, train_inputs, where), targets


def _narrower(array: np.ndarray) -> str:
  """Return the dtype of 32 bits for an array of 64, and that of any other."""
  name = array.dtype.name
  return NARROWER.get(name, name)


def _narrowed(examples: Examples, train: Examples) -> Examples:
  """Return a set in the 32 bits that JAX has; its inputs in float64 if those of the
  training set are, and are so far from 0 that float32 would take most digits of their
  differences. `training.moments` centres them before.
  """
  inputs, targets = examples.inputs, examples.targets
  if inputs.dtype.kind == "f" and train.inputs.dtype == np.float64:
    is_far = is_far_from_0(train.inputs)
    inputs = inputs.astype(np.float64 if is_far else np.float32, copy=False)
  else:
    inputs = inputs.astype(_narrower(inputs), copy=False)
  targets = targets.astype(_narrower(targets), copy=False)
  return replace(examples, inputs=inputs, targets=targets)


def is_far_from_0(inputs: np.ndarray) -> bool:
  """Return whether a channel, of the last axis, varies little beside its mean."""
  axes = tuple(range(max(1, inputs.ndim - 1)))
  mean = np.abs(inputs.mean(axes, dtype=np.float64))
  spread = inputs.std(axes, dtype=np.float64)
  return bool(((mean > MOST_OFFSET * spread) & (spread > 0)).any())


def _check_digits(targets: np.ndarray, what: str) -> None:
  """Raise `UserError` if float32, in which losses are computed, would take the
  differences of targets that are numbers.
  """
  numbers = targets.astype(np.float64)
  spread = numbers.std(0)
  rounding = np.abs(numbers.astype(np.float32) - numbers).max(0)
  is_lost = (rounding > MOST_ROUNDING * spread) & (spread > 0)
  if is_lost.any():
    raise UserError(
      f"{what} vary by {spread[is_lost].max():.3g} around "
      f"{np.abs(numbers).max():.3g}, whose digits float32 has not: subtract their mean"
    )


def check_splits(test_sets: Sequence[str], available: Iterable[str]) -> None:
  """Raise `UserError` unless `test_sets` names some of the `available` splits, each once."""
  available = tuple(available)
  if isinstance(test_sets, str) or not test_sets:
    raise UserError(
      f"test_sets is {test_sets!r}: give a list of names from {', '.join(available)}"
    )
  for name in test_sets:
    check_one_of("test set", name, available)
  if len(set(test_sets)) < len(test_sets):
    raise UserError(f"test_sets is {', '.join(test_sets)}: name each set once")
