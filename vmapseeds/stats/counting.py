"""The counting itself, exact: votes, errors on two halves of the examples and joint
errors of pairs of examples, on whatever holds the predictions.

`RunCounts` is a pytree of sums over runs. The evaluation of a campaign adds runs to it
in its own program, `tally` a block of runs after the other. All functions of JAX's arrays
but `device_of` may be called inside `jit`.

An accelerator counts joint errors as a product of matrices of 0 and 1. A CPU packs 32
runs into a word and counts the bits that are set in the words of both examples. There
this is about 20 times as fast as the product in float32.
"""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax import lax
from jaxtyping import Bool, Int, Integer

from vmapseeds.stats._arrays import Array
from vmapseeds.stats.reading import NOT_ASKED

# How many counters of votes are in memory together, where not all need be.
COUNTERS = 2**22
# Up to so many classes, comparing the predictions with each is faster than indexing.
FEW_CLASSES = 64
# How many words of each example one step of the scan counts: the counts stay in
# registers meanwhile.
_WORDS = 16

# Joint error counts, of which only the tiles on and above the diagonal are counted.
Upper = Int[jax.Array, "padded padded"]


def device_of(x: object) -> jax.Device:
  """Return the device that holds an array, or the first of several; the default device
  for NumPy.
  """
  if not isinstance(x, jax.Array):
    x = jnp.zeros(())
  return min(x.devices(), key=lambda device: device.id)


class RunCounts(NamedTuple):
  """Counts over runs, of n examples of K classes: a pytree, to which `add_runs` adds.

  Attributes:
    runs: how many runs were added.
    votes: (examples, classes), how many runs predict each class; None if not counted.
    joint: how many runs have both of two examples wrong, see `add_joint_errors`; None if
      not counted.
  """

  runs: Any
  votes: Any
  joint: Any = None


def no_runs(examples: int, num_classes: int | None, pairs: bool = False) -> RunCounts:
  """Return counts over no runs; votes are counted if there is a number of classes."""
  votes = None
  if num_classes is not None:
    votes = np.zeros((examples, num_classes), np.int32)
  joint = no_joint_errors(examples) if pairs else None
  return RunCounts(np.int32(0), votes, joint)


def add_runs(
  counts: RunCounts,
  predictions: Integer[jax.Array, "runs examples"],
  wrong: Bool[jax.Array, "runs examples"],
  counted: Bool[jax.Array, "runs"],
) -> RunCounts:
  """Add those runs that are `counted`, in place where `counts` are donated."""
  _, votes, joint = counts
  if votes is not None:
    predictions = in_one_type(predictions, votes.shape[1])
    predictions = jnp.where(counted[:, None], predictions, -1)
    votes = votes + count_votes(predictions, votes.shape[1])
  if joint is not None:
    joint = add_joint_errors(joint, wrong & counted[:, None])
  return RunCounts(counts.runs + counted.sum(dtype=np.int32), votes, joint)


def in_one_type(
  predictions: Integer[jax.Array, "runs examples"],
  num_classes: int,
) -> Integer[jax.Array, "runs examples"]:
  """Convert to int32 if the dtype cannot hold -1 and all classes: comparing arrays of
  two dtypes is several times slower.
  """
  dtype = predictions.dtype
  if dtype.kind == "i" and num_classes - 1 <= jnp.iinfo(dtype).max:
    return predictions
  return predictions.astype(jnp.int32)


def count_votes(
  predictions: Integer[jax.Array, "runs examples"],
  num_classes: int,
) -> Int[jax.Array, "examples classes"]:
  """Count the runs that predict each class for each example; -1 is not counted."""
  predictions = in_one_type(predictions, num_classes)
  classes = jnp.arange(num_classes, dtype=predictions.dtype)[None, :, None]

  def add(counts, runs):
    # A byte holds the counts, because a block has at most 128 runs, and bytes are added
    # many at a time.
    votes = (runs[:, None] == classes).sum(0, dtype=jnp.uint8)
    return counts + votes.astype(jnp.int32), None

  runs, examples = predictions.shape
  size = min(128, max(1, runs))
  padding = -runs % size
  padded = jnp.pad(predictions, ((0, padding), (0, 0)), constant_values=-1)
  blocks = padded.reshape(len(padded) // size, size, examples)
  no_votes = jnp.zeros((num_classes, examples), jnp.int32)
  counts, _ = lax.scan(add, no_votes, blocks)
  return counts.T


def count_half_errors(errors: Bool[Array, "*runs examples"]) -> Int[Array, "*runs 2"]:
  """Count each run's errors on the examples of even and of odd index, of NumPy or JAX."""
  # Counting the bits of bytes of 8 examples is many times as fast as adding examples.
  xp: Any = np if isinstance(errors, np.ndarray) else jnp
  packed = xp.packbits(errors, axis=-1)
  # The highest bit of a byte is its first example.
  halves = (packed & 0b10101010, packed & 0b01010101)
  counts = [xp.bitwise_count(half).sum(-1, dtype=np.int32) for half in halves]
  return xp.stack(counts, axis=-1)


def joint_error_counts(
  errors: Bool[jax.Array, "runs examples"],
) -> Int[jax.Array, "examples examples"]:
  """Count the runs that have both of two examples wrong, for all pairs; fewer than 2^24
  runs.
  """
  examples = errors.shape[1]
  upper = add_joint_errors(no_joint_errors(examples), errors)
  return mirror_joint_counts(upper)[:examples, :examples]


def no_joint_errors(examples: int) -> Upper:
  """Return joint counts of no runs, for `add_joint_errors`."""
  tile = _tile_size(examples)
  padded = tile * max(1, -(-examples // tile))
  return jnp.zeros((padded, padded), jnp.int32)


def add_joint_errors(upper: Upper, errors: Bool[jax.Array, "runs examples"]) -> Upper:
  """Add the joint errors of some runs, in place where `upper` is donated."""
  padding = len(upper) - errors.shape[1]
  padded = jnp.pad(errors, ((0, 0), (0, padding)))
  # The device is known only when the program is lowered.
  return lax.platform_dependent(upper, padded, cpu=_add_bits, default=_add_product)


def _add_product(upper: Upper, errors: Bool[jax.Array, "runs padded"]) -> Upper:
  marks = pack_marks(errors, in_bits=False)
  return upper + count_both(marks, marks, in_bits=False)


def _add_bits(upper: Upper, errors: Bool[jax.Array, "runs padded"]) -> Upper:
  # Only tiles on and above the diagonal, which is half the work.
  tile = _tile_size(len(upper))
  words = pack_marks(errors, in_bits=True)

  def add(upper, corner):
    row, column = corner
    row_words = lax.dynamic_slice_in_dim(words, row, tile, axis=-1)
    column_words = lax.dynamic_slice_in_dim(words, column, tile, axis=-1)
    counts = lax.dynamic_slice(upper, corner, (tile, tile))
    counts += count_both(row_words, column_words, in_bits=True)
    return lax.dynamic_update_slice(upper, counts, corner), None

  corners = _upper_corners(len(upper), tile)
  upper, _ = lax.scan(add, upper, corners)
  return upper


def mirror_joint_counts(upper: Upper) -> Int[jax.Array, "padded padded"]:
  """Copy the joint counts above the diagonal to below it."""
  tile = _tile_size(len(upper))

  def copy(joint, corner):
    counts = lax.dynamic_slice(joint, corner, (tile, tile))
    mirrored = corner[::-1]
    return lax.dynamic_update_slice(joint, counts.T, mirrored), None

  corners = _upper_corners(len(upper), tile)
  joint, _ = lax.scan(copy, upper, corners)
  return joint


def _tile_size(examples: int) -> int:
  """Return how many examples a tile has on either side: a multiple of 128 that splits
  them about evenly. A tile and its words stay in a core's own cache.
  """
  # -(-a // b) is a / b rounded up.
  tiles = max(1, -(-examples // 512))
  return 128 * max(1, -(-examples // (128 * tiles)))


def _upper_corners(size: int, tile: int) -> Int[np.ndarray, "tiles 2"]:
  """Return where the tiles on and above the diagonal begin."""
  tiles = np.triu_indices(size // tile)
  return tile * np.stack(tiles, axis=1).astype(np.int32)


def pack_marks(marks: Bool[jax.Array, "runs examples"], in_bits: bool) -> jax.Array:
  """Return marks in the form that `count_both` takes; examples stay the last axis.

  With `in_bits`, a word holds 32 runs and a group up to `_WORDS` words: (groups, words,
  examples). Padding runs are 0.
  """
  if not in_bits:
    # Half of float32's memory; 0 and 1 are exact.
    return marks.astype(jnp.bfloat16)
  runs, examples = marks.shape
  words = max(1, min(_WORDS, -(-runs // 32)))
  group = 32 * words
  padding = -runs % group
  marks = jnp.pad(marks, ((0, padding), (0, 0)))
  bits = marks.reshape(len(marks) // group, words, 32, examples)
  places = jnp.arange(32, dtype=jnp.uint32).reshape(1, 1, 32, 1)
  shifted = bits.astype(jnp.uint32) << places
  return shifted.sum(2, dtype=jnp.uint32)


def count_both(
  rows: jax.Array,
  columns: jax.Array,
  in_bits: bool,
) -> Int[jax.Array, "rows columns"]:
  """Count the runs that mark both of two examples, one of `rows` and one of `columns`,
  which `pack_marks` returned.
  """
  if not in_bits:
    # Sums of products of 0 and 1 are exact in float32 below 2^24.
    product = jnp.matmul(rows.T, columns, preferred_element_type=jnp.float32)
    return product.astype(jnp.int32)

  def add(counts, words):
    for row_word, column_word in zip(*words, strict=True):
      both = row_word[:, None] & column_word[None, :]
      counts += lax.population_count(both)
    return counts, None

  shape = rows.shape[-1], columns.shape[-1]
  none = jnp.zeros(shape, jnp.uint32)
  counts, _ = lax.scan(add, none, (rows, columns))
  return counts.astype(jnp.int32)


@functools.partial(jax.jit, static_argnums=(3, 4))
def count_block(
  packed: jax.Array,
  row: int,
  column: int,
  size: int,
  in_bits: bool,
) -> Int[jax.Array, "size size"]:
  """Return the joint counts of a square block of pairs that begins at `row, column`."""
  rows = lax.dynamic_slice_in_dim(packed, row, size, axis=-1)
  columns = lax.dynamic_slice_in_dim(packed, column, size, axis=-1)
  return count_both(rows, columns, in_bits)


# On the host, for arrays of NumPy.


def count_asked(predictions: Array) -> Int[np.ndarray, "examples"] | None:
  """Return how many runs were asked for each example; None if all were asked for all."""
  if not predictions.size or int(predictions.min()) > NOT_ASKED:
    return None
  return count_errors(predictions != NOT_ASKED, axis=0)


def count_errors(errors: Array, axis: int) -> Int[np.ndarray, "_"]:
  """Count the errors along an axis, exactly."""
  # JAX has no int64 unless it is asked for.
  dtype = np.int64 if isinstance(errors, np.ndarray) else np.int32
  counts = errors.sum(axis, dtype=dtype)
  return np.asarray(counts, np.int64)


def votes_of(
  predictions: Array,
  num_classes: int,
) -> Int[np.ndarray, "examples classes"]:
  """Count the runs that predict each class for each example, where the array lies."""
  if not isinstance(predictions, np.ndarray):
    return np.asarray(_votes_on_device(predictions, num_classes), np.int64)
  blocks = [votes for _, votes in vote_blocks(predictions, num_classes)]
  return np.concatenate(blocks)


def sparse_votes(predictions: np.ndarray, num_classes: int) -> scipy.sparse.csr_array:
  """Return `votes_of`, of which only votes that are not 0 take memory."""
  blocks = []
  for _, votes in vote_blocks(predictions, num_classes):
    blocks.append(scipy.sparse.csr_array(votes))
  stacked = scipy.sparse.vstack(blocks, format="csr")
  return scipy.sparse.csr_array(stacked)


def vote_blocks(
  predictions: np.ndarray,
  num_classes: int,
) -> Iterator[tuple[slice, Int[np.ndarray, "block classes"]]]:
  """Yield some examples, and their `votes_of`, so many at a time as memory always has
  room for.
  """
  count = _votes_by_class if num_classes <= FEW_CLASSES else _votes_by_place
  runs, examples = predictions.shape
  size = max(1, COUNTERS // max(runs, num_classes))
  # Without examples there is one block, too.
  for start in range(0, max(1, examples), size):
    some = slice(start, start + size)
    yield some, count(predictions[:, some], num_classes)


def _votes_by_class(
  predictions: np.ndarray,
  num_classes: int,
) -> Int[np.ndarray, "examples classes"]:
  votes = np.zeros((num_classes, predictions.shape[1]), np.int64)
  # A byte counts to 255, and NumPy compares and adds bytes many at a time.
  for start in range(0, len(predictions), 255):
    block = predictions[start : start + 255]
    for class_index in range(num_classes):
      is_class = (block == class_index).view(np.uint8)
      votes[class_index] += is_class.sum(0, dtype=np.uint8)
  return votes.T


def _votes_by_place(
  predictions: np.ndarray,
  num_classes: int,
) -> Int[np.ndarray, "examples classes"]:
  examples = predictions.shape[1]
  # What is no class is counted too, in a first column that is left out.
  columns = num_classes + 1
  classes_or_none = np.maximum(predictions.astype(np.int64), -1)
  places = classes_or_none + (1 + columns * np.arange(examples))
  votes = np.bincount(places.ravel(), minlength=examples * columns)
  return votes.reshape(examples, columns)[:, 1:]


_votes_on_device = functools.partial(jax.jit, static_argnums=1)(count_votes)
