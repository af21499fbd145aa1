"""Tallies: exact sums over runs that determine the statistics, so that no run need be
kept.

60,000 runs on 10,000 examples need never be in memory together: they are tallied a
block of runs at a time, and tallies of different runs are added. A statistic of a tally
applies the formula of its namesake in `vmapseeds.stats` to the same whole numbers, and
equals it bit for bit.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax import lax
from jaxtyping import Float, Int, Integer

from vmapseeds.errors import UserError, check_at_least
from vmapseeds.stats import (
  calibration,
  disagreement,
  resampling,
  sample_sizes,
  variance,
)
from vmapseeds.stats import pairs as pair_statistics
from vmapseeds.stats._arrays import Array, Given, safe_divide
from vmapseeds.stats.counting import (
  RunCounts,
  add_runs,
  count_asked,
  count_half_errors,
  device_of,
  in_one_type,
  mirror_joint_counts,
  no_runs,
  sparse_votes,
)
from vmapseeds.stats.counts import (
  MANY_CLASSES,
  VoteCounts,
  block_pairs,
  counts_of_errors,
)
from vmapseeds.stats.reading import (
  NOT_ASKED,
  label_by_column,
  read_classes,
  read_votes,
)

# Blocks are regrouped into this many runs: enough that reading and writing all joint
# counts once a block costs little, and few enough that float32 counts them exactly.
_RUNS = 4096


Result = TypeVar("Result")


def _as_tallies_method(statistic: Callable[..., Result]) -> Callable[..., Result]:
  """Return a statistic as a method of `Tallies`, which take the place of errors, or of
  predictions, labels and num_classes.
  """
  signature = inspect.signature(statistic)
  data, *others = signature.parameters.values()
  # Tallies have labels and num_classes of their own: these arguments are always None.
  options = []
  unused = []
  for parameter in others:
    if parameter.name in ("labels", "num_classes"):
      unused.append(None)
    else:
      options.append(parameter)

  @functools.wraps(statistic)
  def method(self, *args, **named):
    return statistic(self, *unused, *args, **named)

  # Help and editors show the options that are left.
  own_signature = signature.replace(parameters=[data.replace(name="self"), *options])
  method.__signature__ = own_signature  # type: ignore[attr-defined]
  method.__doc__ = f"See `stats.{statistic.__name__}`."
  return method


@dataclasses.dataclass(frozen=True, eq=False)
class Tallies(VoteCounts):
  """What `tally` and `tally_blocks` count over R runs on n examples of K classes. All
  counts are exact.

  `a + b` is the tally of both's runs; order and grouping do not matter, and tallies of
  no run change nothing. The methods are the functions of `vmapseeds.stats` of the same
  names, which document the arguments and results. For statistics of a mean error, such
  as `binomial_variance`, give `error_rates().mean()`.

  Attributes:
    runs: R.
    labels: (examples,), class indices.
    votes: (examples, classes), how many runs predict each class; a prediction of -1 is
      not counted. With more than 1,000 classes SciPy's `csr_array`, which takes memory
      only for votes that are not 0; `votes.toarray()` is the array.
    half_errors: (3, events). Rows 0 and 1 are the pairs of numbers of errors that runs
      make on the examples of even and of odd index (from 0), each pair once, in
      ascending order; row 2 is how many runs make that pair.
    joint_errors: (examples, examples), how many runs have both examples wrong, on the
      diagonal the one example; None unless asked for.
    asked: (examples,), how many runs were asked for each example; None if all runs were
      asked for all. Statistics of votes then are of the runs that were asked; those that
      compare runs on the same examples refuse.

  Raises:
    UserError: when adding tallies of different labels or classes, or if only one of them
      has joint error counts.
  """

  runs: int
  labels: Int[np.ndarray, "examples"] = dataclasses.field(repr=False)
  votes: Int[np.ndarray, "examples classes"] | scipy.sparse.csr_array = (
    dataclasses.field(repr=False)
  )
  half_errors: Int[np.ndarray, "3 events"] = dataclasses.field(repr=False)
  joint_errors: Int[np.ndarray, "examples examples"] | None = dataclasses.field(
    repr=False
  )
  asked: Int[np.ndarray, "examples"] | None = dataclasses.field(
    default=None, repr=False
  )

  def __add__(self, other: "Tallies") -> "Tallies":
    if not isinstance(other, Tallies):
      return NotImplemented
    if self.votes.shape != other.votes.shape:
      raise UserError(
        f"tallies of {self.examples} examples of {self.classes} classes and "
        f"{other.examples} examples of {other.classes} classes: add tallies of runs on "
        "the same examples"
      )
    if not np.array_equal(self.labels, other.labels):
      first = int((self.labels != other.labels).argmax())
      pair = f"{self.labels[first]} and {other.labels[first]}"
      raise UserError(
        f"tallies with labels {pair} of example {first}: add tallies of runs on the "
        "same examples"
      )
    if (self.joint_errors is None) != (other.joint_errors is None):
      raise UserError(
        "only one of two tallies has joint error counts: tally both with pairs=True, or "
        "neither"
      )
    half_errors = np.concatenate([self.half_errors, other.half_errors], axis=1)
    joint_errors = None
    if self.joint_errors is not None:
      joint_errors = self.joint_errors + other.joint_errors
    asked = None
    if self.asked is not None or other.asked is not None:
      asked = self.times_asked + other.times_asked
    return Tallies(
      runs=self.runs + other.runs,
      labels=self.labels,
      votes=self.votes + other.votes,
      half_errors=_merge_equal(half_errors),
      joint_errors=joint_errors,
      asked=asked,
    )

  def to_arrays(self) -> dict[str, np.ndarray]:
    """Return the attributes as arrays by name, for storage; without `joint_errors` if
    pairs were not counted. Votes are an array of all classes.
    """
    arrays = {}
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if scipy.sparse.issparse(value):
        value = value.toarray()
      if value is not None:
        arrays[field.name] = np.asarray(value)
    return arrays

  @classmethod
  def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "Tallies":
    """Return the tallies whose `to_arrays()` returned these arrays."""
    return cls(
      runs=int(arrays["runs"]),
      labels=arrays["labels"],
      votes=arrays["votes"].astype(np.int64),
      half_errors=arrays["half_errors"],
      joint_errors=arrays.get("joint_errors"),
      asked=arrays.get("asked"),
    )

  @classmethod
  def from_counts(
    cls,
    labels: np.ndarray,
    votes: np.ndarray | scipy.sparse.csr_array,
    halves: np.ndarray,
    joint_errors: np.ndarray | None = None,
    asked: np.ndarray | None = None,
  ) -> "Tallies":
    """Return tallies of votes and `halves`, (2, runs): each run's numbers of errors on
    examples of even and of odd index, of those that it was asked for.
    """
    # Each run is a pair of its own, until equal ones are merged.
    once = np.ones_like(halves[:1])
    half_errors = np.append(halves, once, axis=0).astype(np.int64)
    return cls(
      runs=halves.shape[1],
      labels=labels,
      votes=votes.astype(np.int64),
      half_errors=_merge_equal(half_errors),
      joint_errors=joint_errors,
      asked=asked,
    )

  @functools.cached_property
  def run_errors(self) -> Int[np.ndarray, "runs"]:
    """Return each run's number of errors, in ascending order."""
    return np.sort(self.halves.sum(0))

  @functools.cached_property
  def halves(self) -> Int[np.ndarray, "2 runs"]:
    """Return each run's number of errors on the examples of even and of odd index; the
    runs are sorted by these numbers.
    """
    return np.repeat(self.half_errors[:2], self.half_errors[2], axis=1)

  def joint_blocks(
    self, among: Int[np.ndarray, "among"]
  ) -> Iterator[tuple[slice, slice, np.ndarray]]:
    """See `Counts.joint_blocks`."""
    joint = self._require_joint_errors()
    for rows, columns in block_pairs(len(among)):
      yield rows, columns, joint[np.ix_(among[rows], among[columns])]

  def _require_joint_errors(self) -> Int[np.ndarray, "examples examples"]:
    if self.joint_errors is None:
      raise UserError("tallies without joint error counts: tally with pairs=True")
    return self.joint_errors

  def covariance(
    self, rows: slice | Int[np.ndarray, "rows"] = slice(None)
  ) -> Float[np.ndarray, "rows examples"]:
    """Return the covariance over runs (ddof = 1) of the errors of some examples, by
    default all, with those of all examples.

    Its mean off the diagonal is the distribution-wise variance, and its trace over n²
    the independent-errors variance.

    Args:
      rows: which examples. Each number takes 8 bytes: ask for many rows a block at a
        time.

    Returns:
      (rows, examples), symmetric if it has all rows, in squared fractions; NaN for a
      single run.

    Raises:
      UserError: tallied without pairs.

    Source: jordan2024, appendix B.2.
    """
    wrong = counts_of_errors(self).wrong
    both = self._require_joint_errors()[rows].astype(np.int64)
    # Whole numbers until the division, so nothing is rounded before.
    products = self.runs * both - wrong[rows, None] * wrong
    return safe_divide(products, self.runs * (self.runs - 1))

  # Errors and their variance between runs
  error_rates = _as_tallies_method(variance.error_rates)
  example_error_rates = _as_tallies_method(variance.example_error_rates)
  test_set_variance = _as_tallies_method(variance.test_set_variance)
  independent_errors_variance = _as_tallies_method(variance.independent_errors_variance)
  distribution_variance = _as_tallies_method(variance.distribution_variance)
  noise_share = _as_tallies_method(variance.noise_share)
  split_correlation = _as_tallies_method(variance.split_correlation)
  split_covariance = _as_tallies_method(variance.split_covariance)
  top_fraction_gain = _as_tallies_method(variance.top_fraction_gain)
  top_fraction_gain_bootstrap = _as_tallies_method(
    resampling.top_fraction_gain_bootstrap
  )
  runs_for_variance = _as_tallies_method(sample_sizes.runs_for_variance)

  # Pairs of examples, if tallied with pairs
  dependent_pairs = _as_tallies_method(pair_statistics.dependent_pairs)
  most_dependent_pairs = _as_tallies_method(pair_statistics.most_dependent_pairs)

  # Disagreement and calibration
  vote_fractions = _as_tallies_method(disagreement.vote_fractions)
  plurality = _as_tallies_method(disagreement.plurality)
  ensemble_accuracy = _as_tallies_method(disagreement.ensemble_accuracy)
  confusion_matrix = _as_tallies_method(disagreement.confusion_matrix)
  expected_disagreement = _as_tallies_method(disagreement.expected_disagreement)
  gde_gap = _as_tallies_method(calibration.gde_gap)
  cace = _as_tallies_method(calibration.cace)
  ece = _as_tallies_method(calibration.ece)
  calibration_curve = _as_tallies_method(calibration.calibration_curve)
  calibration_band = _as_tallies_method(calibration.calibration_band)


def _merge_equal(half_errors: Int[np.ndarray, "3 _"]) -> Int[np.ndarray, "3 events"]:
  """Return `half_errors` with each pair of numbers once, in ascending order, its runs
  added up.
  """
  runs = half_errors[2]
  events, place = np.unique(half_errors[:2], axis=1, return_inverse=True)
  # Float64 holds the sums exactly.
  merged = np.bincount(place, runs, events.shape[1]).astype(np.int64)
  return np.append(events, merged[None], axis=0)


def tally(
  predictions: Given["runs examples"],
  labels: Given["examples"],
  num_classes: int,
  *,
  pairs: bool = False,
) -> Tallies:
  """Count runs in the form from which the statistics follow: see `Tallies`.

  Args:
    predictions: (runs, examples), class indices; -1 is an error and no vote; -2, masked,
      or NaN among floats, where the run was not asked. A device array is counted on its
      device.
    labels: (examples,), class indices.
    num_classes: how many classes there are.
    pairs: True to count for each two examples the runs that have both wrong, (examples,
      examples).

  Returns:
    The tallies, in NumPy; no runs give zeros.

  Source: ours; the sums that sections 3 of jordan2024 and of jiang2022 need.

  >>> tallies = tally([[0, 1], [0, 2]], [0, 2], num_classes=3) + tally([[1, 2]], [0, 2], num_classes=3)
  >>> print(tallies.runs, tallies.example_error_rates().round(3), tallies.expected_disagreement().value.round(6))
  3 [0.333 0.333] 0.666667
  """
  labels = label_by_column(predictions, labels)
  return tally_blocks([predictions], labels, num_classes, pairs=pairs)


def tally_blocks(
  blocks: Iterable[Given["runs examples"]],
  labels: Given["examples"],
  num_classes: int,
  *,
  pairs: bool = False,
) -> Tallies:
  """Return the `tally` of all runs of several blocks, which are read one after another:
  the runs need not fit into memory.

  Takes the memory of the result and of a few blocks of 4,096 runs, whatever the size of
  `blocks`. All is counted on one device: that of the first 4,096 runs if they lie on
  one, else JAX's default device.

      predictions = zarr.open_group("results/demo")["test/predictions"]
      starts = range(0, predictions.shape[0], 2000)
      blocks = (predictions[start : start + 2000] for start in starts)
      tallies = tally_blocks(blocks, labels, num_classes, pairs=True)

  Args:
    blocks: any number of predictions (runs, examples), as in `tally`, of one or more
      runs each.
    labels: (examples,), class indices.
    num_classes: how many classes there are.
    pairs: as in `tally`; takes 4 bytes a pair of examples.

  Returns:
    The tallies, in NumPy; no blocks give zeros.

  Source: ours.

  >>> tallies = tally_blocks([[[0, 1], [0, 2]], [[1, 2]]], labels=[0, 2], num_classes=3, pairs=True)
  >>> tallies.joint_errors
  array([[1, 0],
         [0, 1]], dtype=int32)
  """
  num_classes = check_at_least("num_classes", num_classes, 1)
  labels = read_classes("labels", labels, "examples", num_classes)
  labels = np.asarray(labels, np.int32)
  examples = len(labels)
  has_many_classes = num_classes > MANY_CLASSES
  counts = no_runs(examples, None if has_many_classes else num_classes, pairs)
  many_votes = scipy.sparse.csr_array((examples, num_classes), dtype=np.int64)
  halves = [np.zeros((0, 2), np.int64)]
  asked = None
  runs = 0
  device = None
  for block in _regrouped(_read_blocks(blocks, labels, num_classes)):
    # All blocks are counted where the first one is.
    device = device or device_of(block)
    on_device = jax.device_put((counts, block, labels), device)
    counts, block_halves = _count_block(*on_device, num_classes)
    # This also waits for the counts; otherwise blocks would queue up in memory.
    halves.append(np.asarray(block_halves))
    if has_many_classes:
      many_votes = many_votes + sparse_votes(np.asarray(block), num_classes)
    asked_of_block = count_asked(block)
    if asked is None and asked_of_block is not None:
      # All earlier runs were asked for all examples.
      asked = np.full(examples, runs)
    if asked is not None:
      asked = asked + (len(block) if asked_of_block is None else asked_of_block)
    runs += len(block)

  votes = many_votes if has_many_classes else np.asarray(counts.votes)
  joint = None
  if pairs:
    # Tiles have padding.
    joint = np.asarray(_mirror(counts.joint))[:examples, :examples]
  return Tallies.from_counts(labels, votes, np.concatenate(halves).T, joint, asked)


def _read_blocks(
  blocks: Iterable[Given["runs examples"]],
  labels: np.ndarray,
  num_classes: int,
) -> Iterator[Array]:
  for block in blocks:
    predictions, _ = read_votes(block, labels, num_classes)
    yield predictions


@functools.partial(jax.jit, static_argnums=3, donate_argnums=0)
def _count_block(
  counts: RunCounts,
  predictions: Integer[jax.Array, "runs examples"],
  labels: Int[jax.Array, "examples"],
  num_classes: int,
) -> tuple[RunCounts, Int[Array, "runs 2"]]:
  """Return the counts with those of a block, and its runs' numbers of errors on both
  halves.
  """
  # Each is a pass of its own: fused into the counting, they would make it several times
  # slower.
  predictions = in_one_type(predictions, num_classes)
  predictions = lax.optimization_barrier(predictions)
  wrong = predictions != labels.astype(predictions.dtype)[None]
  wrong &= predictions != NOT_ASKED
  wrong = lax.optimization_barrier(wrong)
  all_of_them = jnp.ones(len(predictions), bool)
  counts = add_runs(counts, predictions, wrong, all_of_them)
  return counts, count_half_errors(wrong)


_mirror = jax.jit(mirror_joint_counts, donate_argnums=0)


def _regrouped(blocks: Iterable[Array]) -> Iterator[Array]:
  """Yield the same runs in blocks of `_RUNS`, and the rest in a last one."""
  parts: list[Array] = []
  runs = 0
  for block in blocks:
    while len(block):
      missing = _RUNS - runs
      part = block[:missing]
      block = block[missing:]
      parts.append(part)
      runs += len(part)
      if runs == _RUNS:
        yield _joined(parts)
        parts = []
        runs = 0
  if parts:
    yield _joined(parts)


def _joined(blocks: list[Array]) -> Array:
  if len(blocks) == 1:
    # Not a copy of the predictions.
    return blocks[0]
  on_devices = [block for block in blocks if isinstance(block, jax.Array)]
  if not on_devices:
    return np.concatenate(blocks)
  # JAX does not join arrays of several devices.
  device = device_of(on_devices[0])
  # For type checkers `Array` is NumPy's alone: see where it is defined.
  return jnp.concatenate(jax.device_put(blocks, device))  # type: ignore[return-value]
