"""Record runs trained elsewhere in a results folder that `report` and `compare` read: one
after another as they finish, or many from arrays and files.

From PyTorch:

  recorder = vs.Recorder("results/mine", labels=labels)
  for seed in range(100):
    recorder.add(logits=train(seed)(images), seed=seed)

Of numbers alone:

  vs.Recorder("results/mine").add(scores={"r2": 0.8}, seed=0, model="gat")
"""

import contextlib
import copy
import functools
import json
import math
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, Unpack

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float, Int, Integer, Shaped
from rich.progress import track

import vmapseeds
from vmapseeds.data.dataset import MOST_CLASSES
from vmapseeds.errors import (
  UserError,
  as_numpy,
  check_at_least,
  check_class_names,
  console_of_stderr,
  hide_own_frames,
  printable,
  safe_name,
  say,
  warn,
)
from vmapseeds.machine import local_path
from vmapseeds.results.description import IMPORTED, axes_of_texts
from vmapseeds.results.doubts import find_doubts
from vmapseeds.results.formatting import difference_of_labels
from vmapseeds.results.given import (
  ARGUMENTS,
  ARRAY_NAMES,
  AXES,
  GivenArray,
  arrays_by_test_set,
  by_test_set,
  converted,
  ids_by_test_set,
  in_order_of_ids,
  is_seed,
  read_values,
  read_values_file,
)
from vmapseeds.results.opening import open_results
from vmapseeds.results.score_tables import (
  TASK,
  ScoreColumns,
  ScoreTable,
  is_task,
  read_scores,
  score_attributes,
  score_directions,
)
from vmapseeds.stats.reading import (
  NOT_ASKED,
  check_finite,
  read_classes,
  read_labels,
  read_reals,
)
from vmapseeds.store.files import Folder, as_folder
from vmapseeds.store.folders import (
  FolderExists,
  check_writable,
  create_folder,
  is_occupied,
)
from vmapseeds.store.growing import append, change_description
from vmapseeds.store.layout import (
  Description,
  array_entry,
  digest,
  read_verified_metadata,
)
from vmapseeds.store.results import Results
from vmapseeds.target import moves_data
from vmapseeds.training.names import EXAMPLE_ID
from vmapseeds.training.runs import as_bytes, format_value, holds_texts, texts_of

BLOCK_BYTES = 2**25
Columns = dict[str, np.ndarray]
Block = tuple[dict[str, np.ndarray], Description]  # outputs and record
ArraysBySet = Mapping[str, GivenArray]  # test set -> predictions or logits


@dataclass(frozen=True)
class Tested:
  """What recorded runs were tested on, and what is kept of them.

  Attributes:
    what: what is recorded of each example, a key of `FORMS`; None for scores alone.
    examples: test set -> how many.
    truth: test set -> labels or targets of the examples; empty where there are none.
    num_classes: of classes and votes.
    class_names: of these.
    dtype: of logits, if they are kept, of predicted numbers, or of losses.
    partial: of numbers and losses: whether they are NaN where a run was not asked.
    ids: test set -> ids of the examples, of those that have some.
    scores: name -> attributes.
  """

  what: str | None
  examples: Mapping[str, int] = field(default_factory=dict)
  truth: Mapping[str, Shaped[np.ndarray, " examples"]] = field(default_factory=dict)
  num_classes: int | None = None
  class_names: Sequence[str] | None = None
  dtype: np.dtype | None = None
  partial: bool = False
  ids: Mapping[str, Shaped[np.ndarray, " examples"]] = field(default_factory=dict)
  scores: Mapping[str, Description] = field(default_factory=dict)

  @property
  def form(self) -> "Form":
    """Return how it is recorded, where there are test sets."""
    assert self.what is not None
    return FORMS[self.what]

  @property
  def of_classes(self) -> Description:
    """Return what a description says of classes: how many there are, and their names."""
    attributes: Description = {"num_classes": self.num_classes}
    if self.class_names:
      attributes["class_names"] = list(self.class_names)
    return attributes

  @property
  def keeps_logits(self) -> bool:
    """Return whether logits are kept beside predicted classes."""
    return self.what == "classes" and self.dtype is not None


class Form(NamedTuple):
  """How something is recorded of each example.

  Attributes:
    array: the array of a test set that has it.
    kinds: the kinds of arrays that it is made of.
    truth: what it is compared with; empty if with nothing.
    is_number: whether it is a number, not a class.
  """

  array: str
  kinds: tuple[str, ...]
  truth: str = ""
  is_number: bool = False


FORMS = {
  "classes": Form("predictions", ("predictions", "logits", "probabilities"), "labels"),
  "votes": Form("predictions", ("predictions",)),
  "numbers": Form("predictions", ("numbers",), "targets", is_number=True),
  "losses": Form("losses", ("losses",), is_number=True),
}


class Recorder:
  """Add runs trained elsewhere to a results folder, from any loop, process or machine.

  `report`, `compare`, `sample_size`, `example_table`, `merge` and `open_results` take it at
  any time. A run is added whole or not at all, whenever the process ends, and several
  processes may add to one folder. Give runs a `seed`: then none is added twice, and
  `compare` pairs the runs of equal seeds.

  ::

    recorder = vs.Recorder("results/mine", labels=labels)
    for seed in range(100):
      if not recorder.has(seed=seed):
        recorder.add(train(seed).predict(images), seed=seed)
    vs.report("results/mine").print()

  Args:
    out: the results folder. The first run that is added makes a new one.
    labels: (examples,), class indices from 0, or names of classes, or test set -> those.
      May be left out for a folder that is there; else they must be equal. Without labels
      and targets, runs have predictions that are compared with each other, losses, or
      scores alone.
    targets: (examples,), the numbers that are to be predicted, instead of labels. The
      loss of an example is then the squared error.
    num_classes: how many classes; by default as many as have names, or as logits have,
      or one more than the highest class in the labels and in what is added first.
    class_names: what reports call the classes, the first class 0; of a folder that is
      there, from now on. By default, where labels or predictions are names, these, sorted.
    example_ids: what reports and tables call the examples, and by which `vs.compare`
      matches those of two folders: (examples,), or test set -> those; by default the
      index of a series of labels that does more than count. A frame of predictions with
      ids as its columns is read in their order.
    keep_logits: whether to keep logits beside predictions.
    lower_is_better: whether lower scores are better; of several scores, the names of
      those. It must be said of a score whose name sounds so, such as rmse.
    name: what reports call these runs; by default the folder's name.
    header: whether the first line of a text file of labels is names, where it may be
      names or numbers.
    progress: whether to say on stderr how a text file was read.

  Raises:
    UserError: `out` holds something else, or recorded runs with other labels, classes or
      test sets.
  """

  def __init__(
    self,
    out: Folder,
    *,
    labels: Any = None,
    targets: Any = None,
    num_classes: int | None = None,
    class_names: Sequence[str] | None = None,
    example_ids: Any = None,
    keep_logits: bool = False,
    lower_is_better: bool | str | Sequence[str] | None = None,
    name: str | None = None,
    header: bool | None = None,
    progress: bool = True,
  ):
    self.path = as_folder(out)
    # A folder's name may have characters that cannot be shown.
    self._name = printable(self.path.name) if name is None else name
    if not isinstance(self._name, str) or not self._name.isprintable():
      raise UserError(f"the name is {name!r:.100}: give text that can be printed")
    if labels is not None and targets is not None:
      raise UserError("labels with targets: give one of them, classes or numbers")
    self._truth: ArraysBySet = {}
    kind, truth = ("labels", labels) if targets is None else ("targets", targets)
    if truth is not None:
      # They are written with the first runs, until when the caller may change them.
      truth = copy.deepcopy(truth)
      self._truth = arrays_by_test_set(kind, truth, header)
    counts = {name: source.shape[0] for name, source in self._truth.items()}
    self._ids = ids_by_test_set(example_ids, truth, counts)
    if progress:
      say_notes(self._truth)
    if class_names is not None:
      class_names = check_class_names(class_names, num_classes)
      num_classes = len(class_names)
    # Runs may come later, so what they must fit is kept until there is a folder.
    self._num_classes, self._class_names = num_classes, class_names
    self._keep_logits = keep_logits
    self._lower_is_better = lower_is_better
    self._results: Results | None = None
    check_writable(out)
    if is_occupied(out):
      self._open()

  def __len__(self) -> int:
    """Return how many runs the folder had when this recorder last looked."""
    return 0 if self._results is None else len(self._results)

  @property
  def test_sets(self) -> list[str]:
    """Return the names of the test sets."""
    return [*self._tested.examples]

  @property
  def ids(self) -> Mapping[str, Shaped[np.ndarray, " examples"]]:
    """Return the ids of the examples of the test sets that have some."""
    return self._ids if self._results is None else self._tested.ids

  def has(self, **values: Any) -> bool:
    """Return whether any process has added a run of these seeds and values."""
    if not is_occupied(self.path):
      return False
    # Read anew, because other processes may have added runs.
    results = Results(self.path)
    table = as_texts(results.table())
    unknown = set(values) - set(table)
    if unknown:
      raise UserError(f"{min(unknown)!r}: {_named(self.path, table)}")
    columns = read_values(values, 1)
    alike = [table[name] == value for name, value in columns.items()]
    return bool(np.all(alike, axis=0).any())

  def add(
    self,
    predictions: Any = None,
    *,
    logits: Any = None,
    probabilities: Any = None,
    losses: Any = None,
    scores: Mapping[str, Any] | None = None,
    **values: Any,
  ) -> None:
    """Add a finished run, or several.

    Args:
      predictions: (examples,), class indices or names, -1 for none, which is an error; of
        several runs (runs, examples). Of several test sets, test set -> those. Where a run
        was not asked for an example, as of other folds, -2, masked, or NaN among floats:
        it then counts in no statistic. Beside targets, numbers.
      logits: (examples, classes) or (runs, examples, classes), instead of predictions.
        A run predicts the class with the largest logit, the lowest such class on ties.
        All NaN, or masked, for an example that the run was not asked for.
      probabilities: of classes, instead of logits, which are then log p; of 0 that of the
        smallest number.
      losses: (examples,) or (runs, examples), numbers of which lower are better, instead
        of predictions. NaN for an example that the run was not asked for.
      scores: name -> a number; of several runs (runs,). With predictions or without.
        All runs of a folder have the same; NaN where one is not known.
      **values: numbers and texts that tell runs apart: `seed`, or `seed_<source>` for
        each source of randomness, and hyperparameters by any names. Of several runs,
        one each. All runs of a folder have the same names.

    Raises:
      UserError: shapes, classes or values do not fit the folder, a logit is not finite,
        or a run of these seeds and values is there. Nothing is added then.
    """
    runs: ArraysBySet = {}
    given = dict(
      predictions=predictions, logits=logits, probabilities=probabilities, losses=losses
    )
    if scores is None or any(arrays is not None for arrays in given.values()):
      runs = self.sources(*choose_kind(given), one_run=True)
    self.add_sources(runs, values, scores=scores)

  def sources(
    self, kind: str, arrays: Any, header: bool | None = None, one_run: bool = False
  ) -> ArraysBySet:
    """Return the arrays or files of each test set, their examples in the folder's order."""
    of_numbers = any(source.kind == "targets" for source in self._truth.values())
    if self._results is not None:
      of_numbers = self._tested.what == "numbers"
    if kind == "predictions" and of_numbers:
      kind = "numbers"
    in_order = {
      name: in_order_of_ids(kind, array, self.ids.get(name))
      for name, array in by_test_set(arrays).items()
    }
    return arrays_by_test_set(kind, in_order, header, one_run)

  def add_sources(
    self,
    runs: ArraysBySet,
    values: Any,
    *,
    scores: Mapping[str, Any] | None = None,
    block_runs: int | None = None,
    progress: bool = False,
    repeats: bool = True,
  ) -> None:
    """Add runs from arrays or files, a block at a time.

    Args:
      runs: predictions or logits of each test set.
      values: as `read_values` takes them.
      scores: name -> a number for each run.
      block_runs: how many runs make a block of a new folder; by default all of these.
      progress: whether to draw a progress bar on stderr.
      repeats: whether runs without seeds may be equal to those that are there.

    Raises:
      UserError: as `add`.
    """
    of_runs = read_given_scores(scores)
    count = number_of_runs(runs, of_runs)
    new = NewRuns(runs, of_runs, read_values(values, count), count)
    if self._results is None and not is_occupied(self.path):
      # Another process may add its first run meanwhile, which these then follow.
      with contextlib.suppress(FolderExists):
        return self._create(new, block_runs, progress)
    results = self._results or self._open()
    check_fit(new, self._tested, self.path)
    several = count > results.block_runs
    steps = _steps(count, results.block_runs, progress and several, "adding")
    blocks = make_blocks(new, self._tested, steps)
    if not repeats and not any(map(is_seed, new.columns)):
      blocks = refuse_repeats(results, blocks)
    # The table is joined while the folder's claim is held: two processes may add at once.
    append(
      results, count, functools.partial(append_runs, self.path, new.columns), blocks
    )

  def _open(self) -> Results:
    """Open the folder that is there, and check that it is as this recorder was told."""
    root = read_verified_metadata(self.path)
    # Runs of a campaign have an identity, which runs from elsewhere would break.
    if root is None or root["device_kind"] != IMPORTED:
      raise UserError(
        f"{self.path} is not empty, and has no recorded or imported runs: give a new or "
        "empty folder"
      )
    results = Results(self.path, root)
    test_sets, classes = root["test_sets"], root["num_classes"]
    examples = results.read_plan(results.examples)
    truth, ids = {}, {}
    for name in test_sets:
      for kind in ("labels", "targets"):
        if f"{name}/{kind}" in examples:
          truth[name] = examples[f"{name}/{kind}"]
      stored = examples.get(f"{name}/{EXAMPLE_ID}")
      if stored is not None:
        ids[name] = texts_of(stored)
    self._check_ids(ids)
    tested = tested_of_folder(root, truth, ids)
    if self._class_names is not None:
      tested = replace(tested, class_names=self._class_names)
    self._check_truth(tested)
    if self._num_classes not in (None, classes):
      raise UserError(
        f"{self.path} has {classes} classes, not {self._num_classes!r:.50}"
      )
    if self._keep_logits and not tested.keeps_logits:
      raise UserError(f"{self.path} keeps no logits: leave keep_logits out")
    self._tested = tested

    # Names change no result, so that a folder may get them at any time.
    if self._class_names is not None:
      change_description(
        results, functools.partial(with_class_names, self._class_names)
      )
    self._results = results
    return results

  def _check_ids(self, stored: Mapping[str, Shaped[np.ndarray, " examples"]]) -> None:
    """Raise `UserError` if ids were given, and are not those of the folder."""
    for name, ids in self._ids.items():
      theirs = stored.get(name)
      if theirs is None or np.array_equal(ids, theirs):
        continue
      difference = "others than those there"
      if set(ids.tolist()) == set(theirs.tolist()):
        difference = "in another order than there: bring the examples in one order"
      raise UserError(f"{self.path}: the example ids of {name} are {difference}")

  def _check_truth(self, tested: Tested) -> None:
    """Raise `UserError` if labels or targets were given, and are not the folder's."""
    if self._truth:
      check_same_test_sets(self._truth, tested.truth, self.path)
    for name, source in self._truth.items():
      source.use_class_names(tested.class_names)
      theirs = tested.truth[name]
      mine = source[:]
      if source.kind == "labels":
        mine = read_classes(source.what, mine, AXES["labels"], tested.num_classes)
      if np.array_equal(mine, theirs):
        continue
      difference = "with other numbers"
      if source.kind == "labels":
        difference = difference_of_labels(mine, theirs)
      raise UserError(
        f"{source.what} and {self.path} are of different examples, {difference}; or give "
        "another folder"
      )

  def _create(self, new: "NewRuns", block_runs: int | None, progress: bool) -> None:
    """Make the folder with these runs in it."""
    if self._truth:
      check_same_test_sets(new.runs, self._truth, "the labels")
    size = new.count
    if block_runs is not None:
      size = min(check_at_least("block_runs", block_runs, 1), size)
    tested = Tested(None)
    if new.runs:
      tested = self._tested_first(new.runs, size, progress)
    check_score_names(new, tested)
    directions = score_directions(list(new.scores), self._lower_is_better)
    scores = {name: score_attributes(higher) for name, higher in directions.items()}
    tested = replace(tested, scores=scores)
    check_fit(new, tested, "the labels")
    # Two of the new runs may have the same seeds.
    no_runs = {name: column[:0] for name, column in new.columns.items()}
    append_runs(self.path, new.columns, no_runs)

    truth, ids = {}, {}
    for name, array in tested.truth.items():
      truth[f"{name}/{tested.form.truth}"] = array
    for name, texts in self._ids.items():
      ids[f"{name}/{EXAMPLE_ID}"] = as_bytes(texts)
    columns = as_stored(new.columns)
    axes = axes_of_texts(columns) | dict.fromkeys(ids, ("example", "id_letter"))
    axes |= dict.fromkeys(truth, ("example",))
    origins = [*new.runs.values(), *self._truth.values()]
    with create_folder(
      self.path,
      describe_origin(self._name, tested, new.columns, origins),
      extents=[new.count],
      block_runs=size,
      columns=columns,
      examples=truth | ids,
      dimensions=axes,
      outputs=entries_of(tested),
      attributes=attributes_of(tested, new.columns),
    ) as results:
      steps = _steps(new.count, size, progress, "importing")
      for k, (outputs, record) in enumerate(make_blocks(new, tested, steps)):
        results.write_block(k, outputs, record)
      results.flush_records()
    self._open()

  def _tested_first(self, runs: ArraysBySet, block_runs: int, progress: bool) -> Tested:
    """Return what the first runs of a folder were tested on, read `block_runs` runs at a
    time.
    """
    first = next(iter(runs.values()))
    sets = {name: source.shape[1] for name, source in runs.items()}
    steps = functools.partial(_steps, first.shape[0], block_runs, progress, "checking")
    if self._keep_logits and not first.has_logits:
      raise UserError(
        "predictions have no logits to keep: give logits, or do not ask for them"
      )
    if first.kind in ("numbers", "losses"):
      return self._tested_numbers(runs, sets, steps())
    if not self._truth and first.has_logits:
      raise UserError(
        f"{self.path} has no runs yet: give labels, a class for each test example"
      )
    if any(source.kind == "targets" for source in self._truth.values()):
      raise UserError(
        f"{first.kind} of classes with targets: give labels, or predictions"
      )
    names = self._class_names or sorted_names(self._truth, runs)
    if names is not None:
      check_class_names(names, self._num_classes)
    for source in (*self._truth.values(), *runs.values()):
      source.use_class_names(names)
    classes = self._num_classes
    if names is not None:
      classes = len(names)
    elif classes is not None:
      classes = check_at_least("the number of classes", classes, 1)
    elif first.has_logits:
      classes = first.shape[2]
    most = classes or MOST_CLASSES
    if most > MOST_CLASSES:
      raise UserError(f"there are {most} classes: give at most {MOST_CLASSES}")
    labels = {}
    for name, source in self._truth.items():
      predicted = runs[name]
      labels[name] = read_labels(source[:], most, predicted.what, predicted.shape)
    if not first.has_logits:
      # This pass comes first, because the number of classes must be known before
      # anything is written.
      highest = highest_class(runs, most, steps())
      classes = classes or count_given_classes(labels, highest, progress)
    dtype = first.dtype if self._keep_logits else None
    what = "classes" if labels else "votes"
    return Tested(what, sets, labels, classes, names, dtype)

  def _tested_numbers(
    self, runs: ArraysBySet, sets: Mapping[str, int], steps: Any
  ) -> Tested:
    """Return what the first runs with a number of each example were tested on."""
    kind = next(iter(runs.values())).kind
    if kind == "losses" and self._truth:
      raise UserError(
        "losses with labels or targets: leave these out, or give predictions"
      )
    targets = {}
    for name, source in self._truth.items():
      targets[name] = read_reals(source.what, source[:], source.axes)
      if len(targets[name]) != sets[name]:
        raise UserError(
          f"{source.what} are {len(targets[name])}, and {runs[name]}: give one target an "
          "example"
        )
    partial = False
    for rows in steps:
      partial |= any(bool(np.isnan(s[rows]).any()) for s in runs.values())
    is_double = any(source.dtype == np.float64 for source in runs.values())
    dtype = np.dtype(np.float64 if is_double else np.float32)
    return Tested(kind, sets, targets, dtype=dtype, partial=partial)


@dataclass(frozen=True)
class NewRuns:
  """Runs to add.

  Attributes:
    runs: test set -> what is given of each example.
    scores: name -> a number for each run.
    columns: of the runs table.
    count: how many.
  """

  runs: ArraysBySet
  scores: Mapping[str, Float[np.ndarray, " runs"]]
  columns: Columns
  count: int


def tested_of_folder(
  root: Description,
  truth: Mapping[str, np.ndarray],
  ids: Mapping[str, Shaped[np.ndarray, " examples"]],
) -> Tested:
  """Return what the runs of a folder were tested on."""
  arrays, sets = root["arrays"], root["test_sets"]
  meanings = {name: entry["attributes"] for name, entry in arrays.items()}
  scores = {}
  for name, attributes in meanings.items():
    if attributes.get("role") == "score":
      scores[name] = attributes
  if not sets:
    return Tested(None, scores=scores)

  # All test sets have the same arrays.
  first = sets[0]
  what, kept, named = "votes", "", f"{first}/predictions"
  if f"{first}/labels" in arrays:
    # Labels say what classes are called; without any, predictions do.
    what, kept, named = "classes", f"{first}/logits", f"{first}/labels"
  elif f"{first}/predictions" not in arrays:
    what, kept, named = "losses", f"{first}/losses", f"{first}/losses"
  elif f"{first}/losses" in arrays:
    what, kept = "numbers", f"{first}/losses"
  dtype = None
  if kept in arrays:
    dtype = np.dtype(arrays[kept]["dtype"])
  array = FORMS[what].array
  return Tested(
    what,
    {name: arrays[f"{name}/{array}"]["shape"][-1] for name in sets},
    truth,
    root["num_classes"],
    meanings[named].get("class_names"),
    dtype,
    "partial" in meanings.get(kept, ()),
    ids,
    scores,
  )


def sorted_names(truth: ArraysBySet, runs: ArraysBySet) -> list[str] | None:
  """Return the names of classes in labels and predictions, sorted; None if these are
  numbers.

  Raises:
    UserError: predictions are names, and labels numbers.
  """
  names: set[str] = set()
  for source in (*truth.values(), *runs.values()):
    names.update(source.names or ())
  if not names:
    return None
  for source in truth.values():
    if not source.names:
      raise UserError(
        f"{source.what} are numbers, and predictions names, such as {min(names)!r}: give "
        "the names of the classes as class_names, the first that of 0"
      )
  return list(check_class_names(sorted(names)))


def say_notes(runs: ArraysBySet) -> None:
  """Say how text files were read."""
  for source in runs.values():
    if source.note:
      say(source.note)


def choose_kind(given: Mapping[str, Any]) -> tuple[str, Any]:
  """Return which of several arrays was given, and it."""
  there = [(kind, arrays) for kind, arrays in given.items() if arrays is not None]
  if len(there) != 1:
    kinds = " with ".join(kind for kind, _ in there) or "nothing is given"
    raise UserError(f"{kinds}: give one of {', '.join(given)}")
  return there[0]


def refuse_beside(given: str, others: Mapping[str, Any]) -> None:
  """Refuse arguments that say nothing of what was given.

  Raises:
    UserError: one of the others was given too.
  """
  for name, value in others.items():
    if value is not None:
      raise UserError(f"{given} with {name}: give one of them")


def number_of_runs(runs: ArraysBySet, scores: Mapping[str, np.ndarray]) -> int:
  """Return how many runs the arrays of all test sets, and the scores, have."""
  counts = {name: source.shape[0] for name, source in runs.items()}
  counts |= {name: len(numbers) for name, numbers in scores.items()}
  if len(set(counts.values())) > 1:
    listed = ", ".join(f"{count} of {name}" for name, count in counts.items())
    what = "test sets and scores" if scores else "test sets"
    raise UserError(f"the {what} have different numbers of runs, {listed}: give one")
  return next(iter(counts.values()))


def read_given_scores(
  scores: Mapping[str, Any] | None,
) -> dict[str, Float[np.ndarray, " runs"]]:
  """Return scores as float64, one for each run.

  Raises:
    UserError: they are no numbers by names.
  """
  if scores is None:
    return {}
  if not isinstance(scores, Mapping) or not scores:
    raise UserError(
      f"scores are {scores!r:.100}: give name -> number, such as {{'rmse': 0.45}}"
    )
  of_runs = {}
  for name, numbers in scores.items():
    with converted(f"score {name}"):
      array = np.atleast_1d(as_numpy(numbers))
    if array.ndim > 1 or array.dtype.kind not in "iuf":
      raise UserError(f"score {name} is {numbers!r:.100}: give a number, or one a run")
    of_runs[name] = array.astype(np.float64)
  return of_runs


def check_score_names(new: NewRuns, tested: Tested) -> None:
  """Raise `UserError` if a score is called as a value or another array."""
  taken = set(ARRAY_NAMES).union(new.columns)
  if tested.what != "classes":
    taken.discard("accuracy")
  for name in new.scores:
    if safe_name("score", name) in taken:
      raise UserError(f"score {name!r}: that name is already used in the results")


def _steps(
  count: int, block_runs: int, progress: bool, what: str
) -> Sequence[slice] | Any:
  """Return the rows of each block, with a progress bar."""
  starts = range(0, count, block_runs)
  steps = [slice(start, min(start + block_runs, count)) for start in starts]
  if not progress:
    return steps
  # stdout is for what a program prints.
  return track(steps, what, console=console_of_stderr())


def check_same_test_sets(
  arrays: Mapping[str, Any], stored: Mapping[str, Any], where: Folder
) -> None:
  """Raise `UserError` unless the same test sets are given in the same order."""
  if list(arrays) != list(stored):
    raise UserError(
      f"test sets are {', '.join(arrays)}, those of {where} are {', '.join(stored)}: "
      "give the same, in this order"
    )


def check_fit(new: NewRuns, tested: Tested, where: Folder) -> None:
  """Raise `UserError` unless runs have the test sets, examples, classes and scores of
  those that are there.
  """
  check_same_test_sets(new.runs, tested.examples, where)
  for name, source in new.runs.items():
    check_kind(source, tested, where)
    source.use_class_names(tested.class_names)
    examples = tested.examples[name]
    if source.shape[1] != examples:
      # (examples, classes) where (runs, examples) is due: logits of one run.
      like_logits = source.kind == "predictions" and source.shape[0] == examples
      remedy = "one entry an example"
      if like_logits:
        remedy = "logits=, if they are logits"
      raise UserError(f"{source}, and there are {examples} examples: give {remedy}")
    if not source.has_logits:
      continue
    if source.shape[2] != tested.num_classes:
      raise UserError(
        f"{source.what} has {source.shape[2]} classes, not {tested.num_classes}: give "
        "one entry a class"
      )
    # Logits in float64 would lose digits in a folder of float32.
    if tested.dtype is not None and not np.can_cast(source.dtype, tested.dtype):
      raise UserError(
        f"{source.what} has dtype {source.dtype}, and {tested.dtype} is kept: convert it"
      )
  if set(new.scores) != set(tested.scores):
    given = ", ".join(new.scores) or "none"
    raise UserError(
      f"scores are {given}, those of {where} are {', '.join(tested.scores) or 'none'}: "
      "give the same"
    )


def check_kind(source: GivenArray, tested: Tested, where: Folder) -> None:
  """Raise `UserError` unless an array is of the kind that a folder has of its runs."""
  form = tested.form
  if source.kind not in form.kinds:
    arguments = [ARGUMENTS.get(kind, kind) for kind in form.kinds]
    raise UserError(
      f"{source.what} beside {form.truth or form.array} of {where}: give "
      f"{' or '.join(arguments)}"
    )
  if tested.keeps_logits and source.kind == "predictions":
    raise UserError("logits are kept here: give logits instead of predictions")


def make_blocks(
  new: NewRuns, tested: Tested, steps: Sequence[slice]
) -> Iterator[Block]:
  """Yield the outputs of each block of runs, and its record.

  Raises:
    UserError: a class is out of range, or a logit is infinite or NaN.
  """
  outputs_of = outputs_of_classes
  if new.runs and tested.form.is_number:
    outputs_of = outputs_of_numbers
  for rows in steps:
    outputs = {name: numbers[rows] for name, numbers in new.scores.items()}
    for name, source in new.runs.items():
      of_set = outputs_of(source, rows, tested, tested.truth.get(name))
      outputs |= {f"{name}/{array}": values for array, values in of_set.items()}
    # Predictions are classes and logits are finite, or they were refused.
    outputs["diverged"] = np.zeros(rows.stop - rows.start, bool)
    when = datetime.now(UTC).isoformat(timespec="seconds")
    yield outputs, {"versions": recorder_versions(), "when": when}


def outputs_of_classes(
  source: GivenArray,
  rows: slice,
  tested: Tested,
  labels: Int[np.ndarray, " examples"] | None,
) -> dict[str, np.ndarray]:
  """Return the arrays of a test set, of a block of predicted classes or of logits."""
  block = source[rows]
  if source.has_logits:
    predicted = class_of_largest_logit(block, rows.start, source.what)
  else:
    predicted = read_predicted(source, block, rows.start, tested.num_classes)
  asked = (predicted != NOT_ASKED).sum(1)
  check_asked(source, asked, rows.start)
  outputs = {"predictions": predicted}
  if labels is not None:
    outputs["accuracy"] = (predicted == labels).sum(1) / asked
  if tested.dtype is not None:
    outputs["logits"] = block
  return outputs


def outputs_of_numbers(
  source: GivenArray,
  rows: slice,
  tested: Tested,
  targets: Float[np.ndarray, " examples"] | None,
) -> dict[str, np.ndarray]:
  """Return the arrays of a test set, of a block of predicted numbers or of losses."""
  block = known = source[rows]
  if tested.partial:
    known = np.where(np.isnan(block), 0, block)
    check_asked(source, (~np.isnan(block)).sum(1), rows.start)
  check_finite(source.what, known, source.axes, rows.start)
  if targets is None:
    return {"losses": block}
  return {"predictions": block, "losses": (block - targets) ** 2}


def check_asked(source: GivenArray, asked: np.ndarray, first: int) -> None:
  """Raise `UserError` if a run was asked for no example."""
  if not asked.all():
    run = first + int(asked.argmin())
    raise UserError(f"{source.what}: run {run} was asked for no example, leave it out")


def read_predicted(
  source: GivenArray, block: np.ndarray, first: int, most: int | None
) -> Integer[np.ndarray, "runs examples"]:
  """Return predictions; a `UserError` names the place of the first that is no class."""
  return read_classes(source.what, block, source.axes, most, NOT_ASKED, first_run=first)


def highest_class(runs: ArraysBySet, most: int, steps: Sequence[slice]) -> int:
  """Return the highest class that any run predicts."""
  highest = -1
  for rows in steps:
    for source in runs.values():
      classes = read_predicted(source, source[rows], rows.start, most)
      highest = max(highest, int(classes.max()))
  return highest


def count_given_classes(
  labels: Mapping[str, Int[np.ndarray, " examples"]], predicted: int, progress: bool
) -> int:
  """Return how many classes there are if none is above the labels and the highest
  predicted one. With `progress`, say so if the labels seem to count from 1.
  """
  if not labels:
    return predicted + 1
  highest = max(int(array.max()) for array in labels.values())
  lowest = min(int(array.min()) for array in labels.values())
  if progress and lowest == 1 and highest == predicted + 1:
    say(
      f"note: no run predicts class {highest}: do labels count from 0, as predictions do?"
    )
  return max(highest, predicted) + 1


def refuse_repeats(results: Results, blocks: Iterator[Block]) -> Iterator[Block]:
  """Yield blocks; raise `UserError` at one whose predictions a block of the folder has."""
  # One test set is enough: other runs differ in it.
  first_set = results.root["test_sets"][:1]
  names = [f"{of_set}/{form.array}" for of_set in first_set for form in FORMS.values()]
  name = next((name for name in names if name in results.outputs), None)
  if name is None:  # scores alone
    yield from blocks
    return
  # A record has the digest of what is stored, in the folder's dtype.
  dtype = results.root["arrays"][name]["dtype"]
  first_runs = {
    (results.record(k) or {})["digests"][name]: runs.start
    for k, runs in enumerate(results.blocks)
  }
  for outputs, record in blocks:
    first = first_runs.get(digest(outputs[name].astype(dtype)))
    if first is not None:
      raise UserError(
        f"{results.path} has these predictions already, from run {first} on: give each "
        "run a seed if they are others"
      )
    yield outputs, record


def append_runs(path: Folder, columns: Columns, table: Columns) -> Columns:
  """Return the runs table with new runs after those that are there.

  Raises:
    UserError: the columns are others, or a run of the same seeds and values is there.
  """
  if set(columns) != set(table):
    names = ", ".join(columns) or "no values"
    raise UserError(f"the run has {names}: {_named(path, table)}, give the same")
  both = {}
  for name, there in as_texts(table).items():
    column = columns[name]
    are_texts = there.dtype.kind == "U"
    if are_texts != (column.dtype.kind == "U"):
      kind = "text" if are_texts else "number"
      raise UserError(
        f"{name} is {format_value(column[0])}, and the runs of {path} have a {kind} each: "
        "give one"
      )
    both[name] = np.concatenate([there, column])

  # Without seeds, equal rows may well be different runs.
  if any(map(is_seed, both)):
    frame = pd.DataFrame(both)
    duplicated = frame.duplicated()
    if duplicated.any():
      repeated = frame[duplicated].iloc[0]
      run = ", ".join(
        f"{name}={format_value(value)}" for name, value in repeated.items()
      )
      raise UserError(
        f"{path} has a run with {run}, or it is given twice: leave it out, or give "
        "another seed"
      )
  return as_stored(both)


def as_stored(columns: Columns) -> Columns:
  """Return columns as folders have them: texts as bytes, of one width, since all columns
  of texts share an axis.
  """
  texts = [column for column in columns.values() if column.dtype.kind == "U"]
  width = max((as_bytes(column).shape[1] for column in texts), default=1)
  return {
    name: as_bytes(column, width) if column.dtype.kind == "U" else column
    for name, column in columns.items()
  }


def as_texts(table: Columns) -> Columns:
  """Return columns of a folder with texts instead of bytes."""
  return {
    name: texts_of(column) if holds_texts(column) else column
    for name, column in table.items()
  }


def _named(path: Folder, table: Columns) -> str:
  return f"runs of {path} have {', '.join(table) or 'no values'}"


def attributes_of(tested: Tested, columns: Columns) -> dict[str, Description]:
  """Return what columns of the runs table and labels mean."""
  attributes: dict[str, Description] = {}
  for name in columns:
    if not is_seed(name):
      of_tasks = is_task(name) and columns[name].dtype.kind == "U"
      attributes[name] = {"role": TASK if of_tasks else "column"}
      continue
    attributes[name] = {"role": "seed"}
    # A column `seed` is of all sources of randomness together.
    source = name.partition("_")[2]
    if source:
      attributes[name]["source"] = source
  if tested.what == "classes":
    of_labels = {"role": "labels", **tested.of_classes, "of": "predictions"}
    attributes |= {f"{name}/labels": of_labels for name in tested.truth}
  return attributes


def entries_of(tested: Tested) -> dict[str, Description]:
  """Return the entries of the arrays of runs."""
  entries = {"diverged": array_entry(bool, ("run",), ())}
  for name, about in tested.scores.items():
    entries[name] = array_entry(np.float64, ("run",), (), **about)
  for name, examples in tested.examples.items():
    of_set = _entries_of_examples(tested, examples)
    entries |= {f"{name}/{array}": entry for array, entry in of_set.items()}
  return entries


def _entries_of_examples(tested: Tested, examples: int) -> dict[str, Description]:
  """Return the entries of the arrays of a test set."""
  # -1 is no class, so that int8 has 127 classes besides 0 at most.
  of_class = np.int8 if (tested.num_classes or 0) <= 127 else np.int16
  loss: Description = {"role": "loss"}
  if tested.partial:
    loss["partial"] = True
  classes = {"role": "class", "labels": "labels", "num_classes": tested.num_classes}
  arrays: dict[str, dict[str, tuple[Any, Description]]] = {
    "classes": {"predictions": (of_class, classes)},
    "votes": {"predictions": (of_class, {"role": "vote", **tested.of_classes})},
    "numbers": {
      "losses": (tested.dtype, loss),
      "predictions": (tested.dtype, {"role": "value"}),
    },
    "losses": {"losses": (tested.dtype, loss)},
  }
  axes, shape = ("run", "example"), (examples,)
  entries = {}
  if tested.what == "classes":
    count = {"role": "count", "of": "predictions"}
    entries["accuracy"] = array_entry(np.float64, ("run",), (), **count)
  for array, (dtype, attributes) in arrays[str(tested.what)].items():
    entries[array] = array_entry(dtype, axes, shape, **attributes)
  if tested.keeps_logits:
    axes, shape = (*axes, "class"), (*shape, tested.num_classes or 0)
    entries["logits"] = array_entry(tested.dtype, axes, shape, role="logits")
  return entries


def with_class_names(names: Sequence[str], root: Description) -> Description:
  """Return a description whose classes have these names."""
  arrays = {}
  for name, entry in root["arrays"].items():
    attributes = entry["attributes"]
    if attributes.get("role") in ("labels", "vote"):
      attributes = attributes | {"class_names": list(names)}
    arrays[name] = entry | {"attributes": attributes}
  return root | {"arrays": arrays}


def class_of_largest_logit(
  logits: Float[np.ndarray, "runs examples classes"], first: int, what: str = "logits"
) -> Int[np.ndarray, "runs examples"]:
  """Return the class with the largest logit, the lowest on ties; `NOT_ASKED` where all
  logits of an example are NaN.

  Raises:
    UserError: another logit is infinite or NaN, which argmax picks.
  """
  predictions = np.empty(logits.shape[:2], np.int16)
  # The conversion is exact, and comparing float32 is several times faster than
  # comparing float16.
  dtype = np.promote_types(logits.dtype, np.float32)
  for run, logits_of_run in enumerate(logits):
    converted = np.asarray(logits_of_run, dtype)
    is_missing = np.isnan(converted[:, 0])
    if is_missing.any():
      is_missing &= np.isnan(converted).all(axis=1)
      converted = np.where(is_missing[:, None], 0, converted)
    check_finite(what, converted[None], AXES["logits"], first + run)
    predictions[run] = np.where(is_missing, NOT_ASKED, converted.argmax(axis=1))
  return predictions


@functools.cache
def recorder_versions() -> dict[str, str]:
  """Return the versions of Python and of the packages that recorded the runs."""
  return {
    "python": platform.python_version(),
    "vmapseeds": vmapseeds.__version__,
    "numpy": np.__version__,
  }


def describe_origin(
  name: str, tested: Tested, columns: Columns, origins: Sequence[GivenArray]
) -> Description:
  """Return the attributes that say where the runs come from, and that nothing is known of
  their training.
  """
  imported = {
    source.what: {
      "file": source.file.name,
      "shape": list(source.shape),
      "dtype": str(source.dtype),
    }
    for source in origins
    if source.file
  }
  sets = list(tested.examples)
  # Not the JSON of a `Recipe`, but the fields of one that reports read.
  recipe = {"name": name, "dataset": None, "test_sets": sets, "imported": imported}
  # Readers expect these of any folder; None says that they are not known.
  unknown = ("lane_width", "lowering", "precision", "data_digest", "sampling")
  seeds = [name for name in columns if is_seed(name)]
  return {
    "recipe": json.dumps(recipe),
    "test_sets": sets,
    "num_classes": tested.num_classes,
    "sources": [seed.partition("_")[2] or seed for seed in seeds],
    "device_kind": IMPORTED,
    **dict.fromkeys(unknown),
    "kept": {
      "predictions": "all",
      "logits": tested.keeps_logits,
      "keep_params": False,
    },
    "identity": {"data": None, "networks": None, "fixed": {}},
    "versions": recorder_versions(),
  }


@hide_own_frames
@moves_data
def import_runs(
  out: str | os.PathLike,
  *,
  labels: Any = None,
  targets: Any = None,
  predictions: Any = None,
  logits: Any = None,
  probabilities: Any = None,
  losses: Any = None,
  values: Any = None,
  scores: Any = None,
  num_classes: int | None = None,
  class_names: Sequence[str] | None = None,
  example_ids: Any = None,
  keep_logits: bool = False,
  name: str | None = None,
  header: bool | None = None,
  block_runs: int | None = None,
  progress: bool = True,
  by: str | Sequence[str] | None = None,
  **columns: Unpack[ScoreColumns],
) -> xr.Dataset:
  """Write runs trained elsewhere into a results folder, and return what `open_results`
  does. Imported or recorded runs that are there stay, before the new ones.

  `.npy` files are read a block of runs at a time, so they may be larger than memory.

  Args:
    out: the results folder: new, empty, or with runs on the same examples.
    labels: (examples,), class indices, or names of classes. This and the next are arrays
      (of NumPy, JAX, PyTorch or Zarr, nested lists, or anything else with a `shape` and
      slices that NumPy can read), or the paths of `.npy`, `.npz`, `.csv`, `.tsv`, `.txt` or
      `.parquet` files; of several test sets, test set -> those. A folder with runs has its
      labels already.
    targets: (examples,), the numbers that are to be predicted, instead of labels. The loss
      of an example is then the squared error.
    predictions: (runs, examples), class indices or names, or numbers beside targets. -1
      means that a run predicts no class, which counts as an error. -2, masked, NaN among
      floats, nothing among names, or an empty cell of a text file means that the run was
      not asked for the example, as of other folds: it then counts in no statistic. Without
      labels and targets, runs are compared with each other.
    logits: (runs, examples, classes), float16, bfloat16, float32 or float64, instead of
      predictions. A run predicts the class with the largest logit, the lowest such
      class on ties. All are NaN, or masked, for an example that the run was not asked
      for. bfloat16 is kept as float32, which loses nothing.
    probabilities: of classes, instead of logits, which are then log p; of 0 that of the
      smallest number.
    losses: (runs, examples), numbers of which lower are better, instead of predictions.
    values: the runs table, name -> a number or a text for each run, a frame of pandas or
      polars, or a file of such a table, or `.npz`: `seed` or `seed_<source>`, by which
      `compare` pairs runs, and hyperparameters by any names.
    scores: instead of predictions, a table with a row for each run: a frame of pandas or
      polars, or a file.
    num_classes: how many classes; by default as many as have names, or as logits have,
      or one more than the highest class that occurs.
    class_names: what reports call the classes, the first class 0; of a folder with runs,
      from now on. By default, where labels or predictions are names, these, sorted.
    example_ids: what reports and tables call the examples, and by which `vs.compare`
      matches those of two folders: (examples,), a file with one a line, or test set ->
      those; by default the index of a series of labels that does more than count. A frame
      of predictions with ids as its columns is read in their order.
    keep_logits: whether to keep logits beside predictions.
    name: what reports call these runs; by default the name of the file of predictions
      or logits.
    header: whether the first line of a text file of predictions or labels is names,
      where it may be names or numbers, such as 0,1,2: such a file is refused otherwise.
    block_runs: how many runs are read at once and stored in one block of a new folder;
      by default as many as fill 32 MiB.
    progress: whether to draw a progress bar on stderr, and to note there how text files
      were read, and what is surely wrong, such as an accuracy of chance.
    by: the columns of a table of scores with what varies, such as "model"; by default
      those of text.
    **columns: what the other columns of a table of scores are: see `ScoreColumns`.

  Raises:
    UserError: the arguments do not fit each other or the folder, something cannot be read
      or written, a class is out of range, a logit is NaN or infinite, an entry is
      masked, or the runs are there already. Nothing is changed on disk then.
  """
  if scores is not None:
    refuse_beside(
      "scores",
      {
        "predictions": predictions,
        "logits": logits,
        "probabilities": probabilities,
        "losses": losses,
        "labels": labels,
        "targets": targets,
        "values": values,
        "num_classes": num_classes,
        "class_names": class_names,
        "example_ids": example_ids,
        "header": header,
        "block_runs": block_runs,
        "keep_logits": keep_logits or None,
      },
    )
    return _import_scores(out, read_scores(scores, by, **columns), name, progress)
  kind, arrays = choose_kind(
    {
      "predictions": predictions,
      "logits": logits,
      "probabilities": probabilities,
      "losses": losses,
    }
  )
  refuse_beside(kind, {"by": by, **columns})
  if name is None:
    first: Any = next(iter(by_test_set(arrays).values()))
    is_file = isinstance(first, str | os.PathLike)
    name = printable(local_path(first).stem) if is_file else IMPORTED
  recorder = Recorder(
    out,
    labels=labels,
    targets=targets,
    num_classes=num_classes,
    class_names=class_names,
    example_ids=example_ids,
    keep_logits=keep_logits,
    name=name,
    header=header,
    progress=progress,
  )
  runs = recorder.sources(kind, arrays, header)
  if isinstance(values, str | os.PathLike):
    values, note = read_values_file(values)
    if progress and note:
      say(note)
  if progress:
    say_notes(runs)
  if block_runs is None:
    block_runs = runs_in_block(runs)
  recorder.add_sources(
    runs,
    {} if values is None else values,
    block_runs=block_runs,
    progress=progress,
    # A file that is imported twice would count its runs twice.
    repeats=False,
  )
  results = open_results(out, recorder.test_sets[0])
  if progress:
    for doubt in find_doubts(results):
      warn(f"note: {doubt}")
  return results


def _import_scores(
  out: str | os.PathLike, table: ScoreTable, name: str | None, progress: bool
) -> xr.Dataset:
  """Write a table of scores into a results folder."""
  if progress:
    say(f"{table}: {table.results.attrs['understood']}")
  scores = table.results.data_vars
  lower = [str(x) for x, array in scores.items() if not array.higher_is_better]
  recorder = Recorder(
    out, name=table.name if name is None else name, lower_is_better=lower
  )
  recorder.add_sources(
    {},
    {str(column): array.values for column, array in table.results.coords.items()},
    scores={str(score): array.values for score, array in scores.items()},
  )
  return open_results(out)


def runs_in_block(runs: ArraysBySet) -> int:
  """Return how many runs fill a block: files may be larger than memory."""
  bytes_of_run = 0
  for source in runs.values():
    size = 1 if source.names else source.dtype.itemsize
    bytes_of_run += size * math.prod(source.shape[1:])
  return max(1, BLOCK_BYTES // max(1, bytes_of_run))
