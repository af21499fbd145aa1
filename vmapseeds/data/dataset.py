"""A data set in memory, and the checks that all sources of data sets share."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Int, PyTree, Shaped

from vmapseeds.data import shifts
from vmapseeds.data.tables import as_classes, as_ids, ids_of, labels_of, numbers_of
from vmapseeds.mistakes import (
  Mistake,
  at_least,
  check_class_names,
  check_fields,
  one_of,
)

AS_MANY = "as many as there are"
MOST_CLASSES = 2**15  # results keep classes, and -1, in 16 bits


@dataclass(frozen=True, eq=False)
class Examples:
  """Inputs with their targets; the order is the source's and never changes."""

  inputs: Shaped[np.ndarray, "n ..."]  # images are (n, height, width, channels)
  targets: Shaped[np.ndarray, "n ..."]  # whole numbers are int32; classes are (n,)
  ids: Shaped[np.ndarray, " n"] | None = None  # texts, shown in place of numbers

  def __len__(self) -> int:
    return len(self.targets)


@check_fields("data set")
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Dataset:
  """A training set and one or more test sets, as arrays. Inputs and targets may have
  any shape, or be frames and series of pandas.

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
    Mistake: arrays that do not fit together.
  """

  train: Any  # kept as `Examples`, as `tests` are
  test: InitVar[Any] = None
  tests: Mapping[str, Any] = field(default_factory=dict)
  name: str = "arrays"
  num_classes: Any = AS_MANY  # kept as a number, or None
  class_names: Sequence[str] | None = None
  example_ids: Mapping[str, Any] | None = None  # then in `Examples`

  def __post_init__(self, test):
    tests = {"test": test} if test is not None else {}
    if not isinstance(self.tests, Mapping):
      raise Mistake(
        f"tests is {self.tests!r:.100}: give a dict, name -> (inputs, targets)"
      )
    tests |= self.tests
    sets, names = self._read({"": self.train} | tests)
    train = sets.pop("")
    tests = sets
    count = self.num_classes
    if names is not None and count == AS_MANY:
      count = len(names)
    if count is not None and count != AS_MANY:
      count = at_least("num_classes", count, 1)
    elif count == AS_MANY:
      count = None
      if train.targets.ndim == 1 and train.targets.dtype.kind == "i":
        present = np.unique(train.targets)
        count = len(present)
        if not np.array_equal(present, np.arange(count)):
          raise Mistake(
            f"targets of 'train' of {self.name!r} take {count} values from {present[0]} to {present[-1]}: number the "
            f"classes 0 to {count - 1} without gaps, or give a vs.Dataset with num_classes (None: no classes)"
          )
    if count is not None and count > MOST_CLASSES:
      raise Mistake(f"{self.name!r} has {count} classes: give at most {MOST_CLASSES}")
    if names is not None:
      if count is None:
        raise Mistake(
          f"class_names of {self.name!r}, which has no classes: leave them out"
        )
      names = check_class_names(names, count)
    for name, examples in ({"train": train} | tests).items():
      for what in ("inputs", "targets"):
        mine, due = (
          f"{a.dtype} {a.shape[1:]}"
          for a in (getattr(examples, what), getattr(train, what))
        )
        if mine != due:
          raise Mistake(
            f"{what} of {name!r} of {self.name!r} are {mine}, those of 'train' are {due}: give the same"
          )
      low = examples.targets.min()
      high = examples.targets.max()
      if count is not None and not 0 <= low <= high < count:
        remedy = f"classes lie in 0 to {count - 1}; where they are none, give a vs.Dataset with num_classes=None"
        raise Mistake(
          f"targets of {name!r} of {self.name!r} go from {low} to {high}: {remedy}"
        )
    kept = {"train": train, "tests": tests, "num_classes": count, "class_names": names}
    kept["example_ids"] = None
    for name, value in kept.items():
      object.__setattr__(self, name, value)

  def _read(self, given: Mapping[str, Any]) -> tuple[dict[str, Examples], Any]:
    """Return sets as arrays of numbers, and the names of classes or None. The name of the
    training set is empty here: a test set may be called "train".
    """
    places = {name: f"{name or 'train'!r} of {self.name!r}" for name in given}
    sets, categories = {}, None
    for name, where in places.items():
      sets[name], ordered = _examples(given[name], where)
      categories = categories or ordered
    ids = self.example_ids if self.example_ids is not None else {}
    if not isinstance(ids, Mapping):
      raise Mistake(
        f"example_ids is {ids!r:.100}: give a dict, the name of a set -> its ids"
      )
    for name, of_set in ids.items():
      one_of("set with example_ids", name, ("train", *filter(None, sets)))
      place = "" if name == "train" and name not in sets else name
      texts = as_ids(of_set)
      if len(texts) != len(sets[place]):
        raise Mistake(
          f"{len(texts)} example_ids for the {len(sets[place])} examples of "
          f"{places[place]}: give one for each"
        )
      sets[place] = replace(sets[place], ids=texts)
    names = self.class_names
    named = [name for name in sets if sets[name].targets.dtype.kind == "U"]
    if not named:
      return sets, names
    if "" not in named:
      raise Mistake(
        f"targets of {places[named[0]]} are names, those of 'train' are none: give the same"
      )
    if names is None:
      names = categories or sorted({*sets[""].targets.tolist()})
    names = list(check_class_names(names))
    for name in named:
      classes = as_classes(sets[name].targets, names, places[name])
      sets[name] = replace(sets[name], targets=classes.astype(np.int32))
    return sets, names

  def __repr__(self) -> str:
    sizes = ("train", self.train), *self.tests.items()
    parts = [f"{name} {len(of)}" for name, of in sizes]
    classes = f", {self.num_classes} classes" if self.num_classes else ""
    return f"<Dataset {self.name!r}: examples {', '.join(parts)}{classes}>"

  def described(self) -> dict[str, str]:
    """Describe the data set in a recipe's folder: arrays in memory cannot be imported
    by name.
    """
    return {"object": f"<{self.name}>"}

  def select(
    self, test_sets: Sequence[str], classes: Sequence[int] | None = None
  ) -> "Dataset":
    """Return the data set with some of its test sets, or with shifts of `test` (see
    `data.shifts`), and its classes merged.
    """
    held = {"train": self.train, **self.tests}
    if not self.tests and "test" in test_sets:
      raise Mistake(
        f"the data set {self.name!r} has no test set: give test=(inputs, targets), or hold "
        "examples out with Runs.k_fold"
      )
    if test_sets:
      required_splits(test_sets, held)

    def shifted(name):
      low, high = (float(extreme(self.train.inputs)) for extreme in (np.min, np.max))
      return replace(
        held["test"],
        inputs=shifts.apply_shift(held["test"].inputs, name, low, high),
      )

    chosen = replace(
      self,
      tests={name: held[name] if name in held else shifted(name) for name in test_sets},
    )
    return chosen if classes is None else relabel(chosen, classes)


def twins_in_training(dataset: Dataset) -> dict[str, Int[np.ndarray, " examples"]]:
  """Return of each example of a test set the place of the first training example with
  the same inputs, by their digests, or -1; of those sets where this is surely no chance.

  That is if 20 or more have one, over 1 % of the set, and over 3 times the share of the
  training examples that repeat another. A test set called "train" is meant to be so.
  """
  digests = {n: _digests(e) for n, e in dataset.tests.items() if n != "train"}
  train = _digests(dataset.train) if digests else []
  places: dict[bytes, int] = {}
  for place, digest in enumerate(train):
    places.setdefault(digest, place)
  repeated = 1 - len(places) / max(1, len(train))
  found = {}
  for name, of_set in digests.items():
    twins = np.array([places.get(digest, -1) for digest in of_set], np.int32)
    count = (twins >= 0).sum()
    if count >= 20 and count > len(of_set) * max(0.01, 3 * repeated):
      found[name] = twins
  return found


def count_seen(
  twins: Int[np.ndarray, " examples"], trained: Int[np.ndarray, "runs train"] | None
) -> float:
  """Return how many examples of a test set are among those that a run is trained on, on
  average over runs.

  Args:
    twins: what `twins_in_training` returns of the set.
    trained: the places of each run's training examples; None for all of them.
  """
  there = twins[twins >= 0]
  if trained is None:
    return float(len(there))
  counts = []
  for examples in trained:
    own = np.zeros(1 + max(examples.max(), there.max(initial=0)), bool)
    own[examples] = True
    counts.append(own[there].sum())
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
    if jax.dtypes.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key):
      leaf = jax.random.key_data(leaf)
    array = np.ascontiguousarray(leaf)
    place = jax.tree_util.keystr(path), str(array.dtype), np.shape(leaf)
    digest.update(repr(place).encode())
    digest.update(array.reshape(-1).view(np.uint8).data)
  return digest.hexdigest()


def _examples(given, where):
  """Return the arrays as `Examples`, checked to fit together, with 64-bit dtypes
  narrowed to the 32 bits that JAX has, and the names of categories or None. Targets that
  are names stay texts.
  """
  if isinstance(given, Examples):
    return given, None
  try:
    if any(np.ma.is_masked(array) for array in given):
      raise Mistake(
        f"{where} has masked entries: fill them, or leave these examples out"
      )
    given_inputs, given_targets = given
    ids = ids_of(given_inputs)
    inputs = numbers_of(given_inputs, where)
    targets, categories = labels_of(given_targets, where)
  except Mistake:
    raise
  except (TypeError, ValueError):
    raise Mistake(
      f"{where} is {given!r:.100}: give (inputs, targets), two arrays"
    ) from None
  named = targets.dtype.kind == "U" and targets.ndim == 1
  numbers = (inputs,) if named else (inputs, targets)
  if any(a.dtype.kind not in "biuf" or not a.ndim for a in numbers):
    raise Mistake(
      f"{where} has {inputs.dtype} inputs and {targets.dtype} targets: give arrays of numbers"
    )
  if len(inputs) != len(targets) or not inputs.size or not targets.size:
    shapes = f"inputs {inputs.shape} and targets {targets.shape}"
    raise Mistake(f"{where} has {shapes}: give as many of each, at least one")
  if not all(np.isfinite(a).all() for a in (inputs, targets) if a.dtype.kind == "f"):
    raise Mistake(f"{where} holds NaN or infinite values: give finite ones")
  for a in (inputs, targets):
    if a.dtype.kind in "iu" and not -(2**31) <= int(a.min()) <= int(a.max()) < 2**31:
      raise Mistake(
        f"{where} holds whole numbers from {a.min()} to {a.max()}: give some of 32 bits"
      )
  narrow = {"float64": "float32", "int64": "int32", "uint64": "uint32"}
  inputs, targets = (
    a
    if a.dtype.kind == "U"
    else a.astype(narrow.get(a.dtype.name, a.dtype.name), copy=False)
    for a in (inputs, targets)
  )
  if targets.dtype.kind in "iu":
    targets = targets.astype(np.int32, copy=False)
  return Examples(inputs, targets, ids), categories


def required_splits(
  test_sets: Sequence[str], available: Iterable[str]
) -> tuple[str, ...]:
  """Return the `available` splits that `test_sets` need: those named, and `test` for
  shifts.

  Raises:
    Mistake: an unknown name.
  """
  available = tuple(available)
  if isinstance(test_sets, str) or not test_sets:
    raise Mistake(
      f"test_sets is {test_sets!r}: give a list of names from {', '.join(available)}"
    )
  shifted = "test" in available
  for given in test_sets:
    if not (shifted and given in shifts.SHIFTS):
      one_of("test set", given, [*available, *(shifts.NAMES if shifted else ())])
  if len(set(test_sets)) < len(test_sets):
    raise Mistake(f"test_sets is {', '.join(test_sets)}: name each set once")
  return tuple(
    dict.fromkeys(given if given in available else "test" for given in test_sets)
  )


def relabel(dataset: Dataset, classes: Sequence[int]) -> Dataset:
  """Rename class `c` to `classes[c]` in every set, and drop it where that is -1.

  For example (1, 1, 0, -1, -1, 0, 0, 0, 1, 1) makes two classes of CIFAR-10, without
  cats and deer.

  Raises:
    Mistake: unless `classes` has one number for each class and those kept are 0 to K-1
      without gaps, or when a set is left without examples.
  """
  given = ", ".join(map(str, classes))
  if dataset.num_classes is None:
    raise Mistake(
      f"classes is {given}: the targets of {dataset.name!r} are no classes, leave it out"
    )
  if len(classes) != dataset.num_classes:
    raise Mistake(
      f"classes is {given}, {len(classes)} numbers: give one for each of the {dataset.num_classes} "
      f"classes of {dataset.name!r}, -1 to drop it"
    )
  kept = set(classes) - {-1}
  if not kept or kept != set(range(len(kept))):
    raise Mistake(
      f"classes is {given}: those kept must be 0 to K-1 without gaps, -1 drops a class"
    )

  table = np.array(classes, np.int32)

  def renamed(examples, where):
    labels = table[examples.targets]
    keep = labels >= 0
    if not keep.any():
      raise Mistake(
        f"classes is {given}, which leaves no examples in the {where} set of {dataset.name!r}: "
        "keep a class that it has"
      )
    ids = None if examples.ids is None else examples.ids[keep]
    return Examples(examples.inputs[keep], labels[keep], ids)

  tests = {name: renamed(examples, name) for name, examples in dataset.tests.items()}
  names = dataset.class_names
  if names is not None:
    names = [
      "/".join(name for name, new in zip(names, classes, strict=True) if new == c)
      for c in range(len(kept))
    ]
  return replace(
    dataset,
    train=renamed(dataset.train, "train"),
    tests=tests,
    num_classes=len(kept),
    class_names=names,
  )
