"""The one door of the statistics: errors, or predictions and labels, become counts over
runs.

A statistic that needs no more than counts is a function of `Counts`. It takes arrays
too, and `Tallies`, which are counts already. Counts are exact whole numbers, and made
on the device of a JAX array when they are first asked for.
"""

import itertools
from collections.abc import Iterator
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from vmapseeds.mistakes import Mistake, at_least
from vmapseeds.stats import device_counts
from vmapseeds.stats._arrays import Array, Given
from vmapseeds.stats.reading import read_errors, read_labels, read_predictions

# Joint errors that are not held are counted for square blocks of this many examples.
BLOCK = 512


class Counts:
  """What statistics read: counts over R runs on n examples of K classes. Here of errors
  (runs, examples); `VoteCounts` and `Tallies` hold theirs.

  Attributes:
    runs, examples: R and n.
    wrong: (examples,), how many runs have each example wrong.
    run_errors: (runs,), each run's number of errors.
    halves: (2, runs), those on the examples of even and of odd index (from 0).
  """

  runs: int

  def __init__(self, errors: Array):
    self.errors, self.runs = errors, len(errors)

  @cached_property
  def examples(self) -> int:
    return self.errors.shape[1]

  @cached_property
  def wrong(self) -> Int[np.ndarray, "examples"]:
    return count_errors(self.errors, axis=0)

  @cached_property
  def run_errors(self) -> Int[np.ndarray, "runs"]:
    return count_errors(self.errors, axis=1)

  @cached_property
  def halves(self) -> Int[np.ndarray, "2 runs"]:
    return np.stack([count_errors(self.errors[:, half::2], axis=1) for half in (0, 1)])

  def joint_blocks(
    self,
  ) -> Iterator[tuple[slice, slice, np.ndarray]]:
    """Yield the examples of each block of pairs on and above the diagonal, and their
    joint error counts.
    """
    starts = range(0, self.examples, BLOCK)
    for i, j in itertools.combinations_with_replacement(starts, 2):
      rows, columns = slice(i, i + BLOCK), slice(j, j + BLOCK)
      yield rows, columns, self.joint(rows, columns)

  def joint(self, rows: slice, columns: slice) -> Int[np.ndarray, "rows columns"]:
    """Return how many runs have both of two examples wrong, for some of the pairs."""
    packed, in_bits = self._packed
    row, column = rows.start, columns.start
    block = device_counts.count_block(packed, row, column, BLOCK, in_bits)
    return np.asarray(block)[: self.examples - row, : self.examples - column]

  @cached_property
  def _packed(self) -> tuple[jax.Array, bool]:
    """Return the errors in the form that `count_block` takes, and whether that is bits."""
    if self.runs >= 2**24:
      raise Mistake(
        f"errors has {self.runs} runs: float32 products count exactly up to "
        f"{2**24 - 1}, give fewer"
      )
    device = device_counts.device_of(self.errors)
    in_bits = device.platform == "cpu"
    errors = jax.device_put(self.errors != 0, device)
    padded = jnp.pad(errors, ((0, 0), (0, -self.examples % BLOCK)))
    return jax.jit(device_counts.pack, static_argnums=1)(padded, in_bits), in_bits


class VoteCounts(Counts):
  """Counts of votes: how many runs predict each class for each example, (examples,
  classes), and the examples' labels, class indices.
  """

  def __init__(self, votes: np.ndarray, runs: int, labels: np.ndarray):
    self.votes, self.runs, self.labels = votes, runs, labels

  @cached_property
  def examples(self) -> int:
    return len(self.votes)

  @cached_property
  def wrong(self) -> Int[np.ndarray, "examples"]:
    right = np.take_along_axis(self.votes, self.labels[:, None], axis=1)
    return self.runs - right[:, 0]


def counts_of_errors(errors: Given["runs examples"] | Counts) -> Counts:
  """Return the counts of errors, or the given counts as they are."""
  return errors if isinstance(errors, Counts) else Counts(read_errors(errors))


# What stands for the labels where a statistic needs votes alone.
_NO_LABELS = object()


def counts_of_votes(
  predictions: Given["runs examples"] | Counts,
  num_classes: int | None,
  labels: Given["examples"] | None = _NO_LABELS,
) -> VoteCounts:
  """Return the counts of predictions and labels, or the given counts as they are."""
  if isinstance(predictions, VoteCounts):
    if num_classes is not None or not (labels is None or labels is _NO_LABELS):
      raise Mistake(
        "tallies have labels and num_classes of their own: give other arguments by "
        "name, such as bins=10"
      )
    return predictions
  num_classes = at_least("num_classes", num_classes, 1)
  predictions = read_predictions(predictions, num_classes)
  runs, examples = predictions.shape
  if labels is _NO_LABELS:
    labels = np.zeros(examples, np.int32)
  labels = read_labels(labels, num_classes, "predictions", predictions.shape)
  return VoteCounts(votes_of(predictions, num_classes), runs, labels)


def count_errors(errors: Array, axis: int) -> Int[np.ndarray, "_"]:
  """Count the errors along an axis, exactly."""
  dtype = np.int64 if isinstance(errors, np.ndarray) else np.int32
  return np.asarray(errors.sum(axis, dtype=dtype), np.int64)


def votes_of(
  predictions: Array, num_classes: int
) -> Int[np.ndarray, "examples classes"]:
  """Count the runs that predict each class for each example."""
  if not isinstance(predictions, np.ndarray):
    return np.asarray(_votes_on_device(predictions, num_classes), np.int64)
  votes = np.zeros((num_classes, predictions.shape[1]), np.int64)
  # A byte counts to 255, and NumPy compares and adds bytes many at a time.
  for start in range(0, len(predictions), 255):
    block = predictions[start : start + 255]
    for c, of_class in enumerate(votes):
      of_class += (block == c).view(np.uint8).sum(0, dtype=np.uint8)
  return votes.T


_votes_on_device = partial(jax.jit, static_argnums=1)(device_counts.count_votes)
