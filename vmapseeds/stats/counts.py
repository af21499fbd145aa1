"""The one door of the statistics: errors, or predictions and labels, become counts over
runs, of the examples that each run was asked for.

A statistic that needs no more than counts is a function of `Counts`. It takes arrays
too, and `Tallies`, which are counts already. Counts are exact whole numbers, and made
on the device of a JAX array when they are first asked for.
"""

import itertools
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Bool, Int

from vmapseeds.errors import UserError, check_at_least
from vmapseeds.stats._arrays import Array, Given
from vmapseeds.stats.counting import (
  count_asked,
  count_block,
  count_errors,
  count_half_errors,
  device_of,
  pack_marks,
  sparse_votes,
  votes_of,
)
from vmapseeds.stats.reading import (
  label_by_column,
  read_asked_errors,
  read_errors,
  read_labels,
  read_predictions,
)

# Joint errors that are not held are counted for square blocks of this many examples.
BLOCK = 512
# With more classes than ImageNet's, votes are SciPy's sparse arrays: nearly all are 0.
MANY_CLASSES = 1000


class Counts:
  """What statistics read: counts over R runs on n examples of K classes. Here of errors
  (runs, examples); `VoteCounts` and `Tallies` hold theirs.

  Attributes:
    runs, examples: R and n.
    asked: (examples,), how many runs were asked for each example; None if all runs were
      asked for all.
    wrong: (examples,), how many runs have each example wrong.
    run_errors: (runs,), each run's number of errors.
    halves: (2, runs), those on the examples of even and of odd index (from 0).
  """

  runs: int
  asked: Int[np.ndarray, "examples"] | None

  def __init__(self, errors: Array, asked_of_run: Array | None = None):
    self.errors = errors
    self.runs = len(errors)
    self.asked_of_run = asked_of_run
    self.asked = None
    if asked_of_run is not None:
      self.asked = count_errors(asked_of_run, axis=0)

  @cached_property
  def examples(self) -> int:
    return self.errors.shape[1]

  @cached_property
  def times_asked(self) -> Int[np.ndarray, "examples"]:
    """Return how many runs were asked for each example."""
    if self.asked is None:
      return np.full(self.examples, self.runs)
    return self.asked

  @cached_property
  def run_examples(self) -> Int[np.ndarray, "runs"] | int:
    """Return how many examples each run was asked for."""
    if self.asked_of_run is None:
      return self.examples
    return count_errors(self.asked_of_run, axis=1)

  @cached_property
  def wrong(self) -> Int[np.ndarray, "examples"]:
    return count_errors(self.errors, axis=0)

  @cached_property
  def run_errors(self) -> Int[np.ndarray, "runs"]:
    return self.halves.sum(0)

  @cached_property
  def halves(self) -> Int[np.ndarray, "2 runs"]:
    return np.asarray(count_half_errors(self.errors != 0), np.int64).T

  def joint_blocks(
    self, among: Int[np.ndarray, "among"]
  ) -> Iterator[tuple[slice, slice, np.ndarray]]:
    """Yield the places in `among`, which are examples, of each block of pairs on and
    above the diagonal, and how many runs have both examples of a pair wrong.
    """
    if self.runs >= 2**24:
      raise UserError(
        f"errors has {self.runs} runs: float32 products count exactly up to "
        f"{2**24 - 1}, give fewer"
      )
    device = device_of(self.errors)
    in_bits = device.platform == "cpu"
    errors = jax.device_put(self.errors[:, among] != 0, device)
    # Blocks of one shape are one compiled program.
    padding = -len(among) % BLOCK
    padded = jnp.pad(errors, ((0, 0), (0, padding)))
    packed = jax.jit(pack_marks, static_argnums=1)(padded, in_bits)
    for rows, columns in block_pairs(len(among)):
      i = rows.start
      j = columns.start
      block = count_block(packed, i, j, BLOCK, in_bits)
      # The last blocks have padding.
      both = np.asarray(block)[: len(among) - i, : len(among) - j]
      yield rows, columns, both


def block_pairs(size: int) -> Iterator[tuple[slice, slice]]:
  """Yield the rows and columns of the blocks on and above the diagonal of a square."""
  starts = range(0, size, BLOCK)
  for i, j in itertools.combinations_with_replacement(starts, 2):
    yield slice(i, i + BLOCK), slice(j, j + BLOCK)


class Cells(NamedTuple):
  """Pairs of an example and a class in ascending order: all that any run votes for, and
  each example with its label. No run votes for the others, and they are wrong.
  """

  example: Int[np.ndarray, "cells"]
  class_index: Int[np.ndarray, "cells"]
  votes: Int[np.ndarray, "cells"]
  # Whether the class is the label.
  right: Bool[np.ndarray, "cells"]


class VoteCounts(Counts):
  """Counts of votes: how many runs predict each class for each example, (examples,
  classes), and the examples' labels, class indices.

  Votes are an array or, as most classes have none, SciPy's `csr_array`. Statistics read
  `cells`, whose number does not grow with the number of classes.
  """

  def __init__(
    self,
    votes: np.ndarray | scipy.sparse.csr_array,
    runs: int,
    labels: np.ndarray,
    asked: Int[np.ndarray, "examples"] | None = None,
  ):
    self.votes = votes
    self.runs = runs
    self.labels = labels
    self.asked = asked

  @cached_property
  def examples(self) -> int:
    return self.votes.shape[0]

  @cached_property
  def classes(self) -> int:
    return self.votes.shape[1]

  @cached_property
  def wrong(self) -> Int[np.ndarray, "examples"]:
    return self.times_asked - self.cells.votes[self.cells.right]

  @cached_property
  def run_examples(self) -> int:
    """Return how many examples each run was asked for.

    Raises:
      UserError: runs were asked for different ones, which votes do not tell.
    """
    if self.asked is not None:
      raise UserError(
        "tallies of runs that were asked for different examples do not say how many each "
        "was asked for: take vs.error_matrix"
      )
    return self.examples

  def of_examples(self, places: Int[np.ndarray, "some"]) -> "VoteCounts":
    """Return the votes of some examples."""
    asked = None
    if self.asked is not None:
      asked = self.asked[places]
    return VoteCounts(self.votes[places], self.runs, self.labels[places], asked)

  def of_asked_examples(self, least: int = 1) -> "VoteCounts":
    """Return the votes of the examples that at least so many runs were asked for."""
    if self.asked is None:
      return self
    return self.of_examples(np.flatnonzero(self.asked >= least))

  @cached_property
  def cells(self) -> Cells:
    if isinstance(self.votes, np.ndarray):
      example, class_index = np.nonzero(self.votes)
      votes = self.votes[example, class_index]
    else:
      coordinates = self.votes.tocoo()
      example = coordinates.row
      class_index = coordinates.col
      votes = coordinates.data

    # A cell's place in the table of all examples and classes. Labels without votes are
    # added.
    place = example.astype(np.int64) * self.classes + class_index
    label_place = np.arange(self.examples) * self.classes + self.labels
    unvoted = np.setdiff1d(label_place, place, assume_unique=True)
    place = np.append(place, unvoted)
    votes = np.append(votes, np.zeros_like(unvoted))

    order = np.argsort(place, kind="stable")
    example, class_index = np.divmod(place[order], max(self.classes, 1))
    return Cells(
      example=example,
      class_index=class_index,
      votes=votes[order].astype(np.int64),
      right=class_index == self.labels[example],
    )

  @cached_property
  def voted(self) -> Int[np.ndarray, "examples"]:
    """Return how many runs have a prediction for each example."""
    votes = np.bincount(self.cells.example, self.cells.votes, self.examples)
    return votes.astype(np.int64)

  def first_classes(
    self,
    count: int,
    among: Bool[np.ndarray, "cells"] | slice = slice(None),
  ) -> tuple[Int[np.ndarray, "examples count"], Int[np.ndarray, "examples count"]]:
    """Return each example's classes with the most votes, of equal votes the lowest
    first, and their votes. Classes without votes are 0, with 0 votes.

    Args:
      count: how many classes.
      among: which of the cells.
    """
    cells = self.cells
    example = cells.example[among]
    class_index = cells.class_index[among]
    votes = cells.votes[among]
    order = np.lexsort((class_index, -votes, example))
    example = example[order]
    class_index = class_index[order]
    votes = votes[order]

    # A cell's rank among those of its example.
    starts = np.searchsorted(example, np.arange(self.examples))
    rank = np.arange(len(example)) - starts[example]
    chosen = (rank < count) & (votes > 0)
    places = example[chosen], rank[chosen]
    first_classes = np.zeros((self.examples, count), np.int64)
    first_classes[places] = class_index[chosen]
    first_votes = np.zeros((self.examples, count), np.int64)
    first_votes[places] = votes[chosen]
    return first_classes, first_votes

  def votes_for(
    self, classes: Int[np.ndarray, "examples"]
  ) -> Int[np.ndarray, "examples"]:
    """Return how many runs vote for one class of each example, 0 where there is no such
    class.
    """
    # An example has at most one cell of a class, so an assignment is enough.
    cells = self.cells
    same = classes[cells.example] == cells.class_index
    votes = np.zeros(self.examples, np.int64)
    votes[cells.example[same]] = cells.votes[same]
    return votes


def counts_of_errors(errors: Given["runs examples"] | Counts) -> Counts:
  """Return the counts of errors, or the given counts as they are.

  Raises:
    UserError: runs were asked for different examples.
  """
  if not isinstance(errors, Counts):
    return Counts(read_errors(errors))
  if errors.asked is not None:
    raise UserError(
      "runs were asked for different examples: this statistic compares runs on the same "
      "ones, give those that all runs were asked for; error_rates, example_error_rates and "
      "statistics of votes take what was asked"
    )
  return errors


def counts_of_asked_errors(errors: Given["runs examples"] | Counts) -> Counts:
  """Return the counts of errors on the examples that each run was asked for, or the given
  counts as they are.
  """
  if isinstance(errors, Counts):
    return errors
  return Counts(*read_asked_errors(errors))


# What stands for the labels where a statistic needs votes alone.
_NO_LABELS = object()


def counts_of_votes(
  predictions: Given["runs examples"] | Counts,
  num_classes: int | None,
  labels: Given["examples"] | None = _NO_LABELS,
) -> VoteCounts:
  """Return the counts of predictions and labels, or the given counts as they are."""
  if isinstance(predictions, VoteCounts):
    has_labels = labels is not None and labels is not _NO_LABELS
    if has_labels or num_classes is not None:
      raise UserError(
        "tallies have labels and num_classes of their own: give other arguments by "
        "name, such as bins=10"
      )
    return predictions
  num_classes = check_at_least("num_classes", num_classes, 1)
  labels = label_by_column(predictions, labels)
  predictions = read_predictions(predictions, num_classes)
  runs, examples = predictions.shape
  if labels is _NO_LABELS:
    labels = np.zeros(examples, np.int32)
  labels = read_labels(labels, num_classes, "predictions", predictions.shape)
  if num_classes > MANY_CLASSES:
    votes = sparse_votes(np.asarray(predictions), num_classes)
  else:
    votes = votes_of(predictions, num_classes)
  return VoteCounts(votes, runs, labels, count_asked(predictions))
