"""Exact counts of arrays on whatever device holds them. All but `device_of` may be
called inside `jit`.

An accelerator counts joint errors as a product of matrices of 0 and 1. A CPU packs 32
runs into a word and counts the bits that are set in the words of both examples. There
this is about 20 times as fast as the product in float32.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Bool, Int, Integer

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


def count_half_errors(
  errors: Bool[jax.Array, "runs examples"],
) -> Int[jax.Array, "runs 2"]:
  """Count each run's errors on the examples of even and of odd index."""
  # Counting the bits of words of 32 examples is many times as fast as adding single
  # examples.
  runs, examples = errors.shape
  padding = -examples % 64
  padded = jnp.pad(errors, ((0, 0), (0, padding)))
  # The last axis is the half: even and odd examples alternate.
  bits = padded.reshape(runs, padded.shape[1] // 64, 32, 2)
  bits = bits.astype(jnp.uint32)
  places = jnp.arange(32, dtype=jnp.uint32)[None, None, :, None]
  words = (bits << places).sum(2, dtype=jnp.uint32)
  counts = lax.population_count(words).sum(1, dtype=jnp.uint32)
  return counts.astype(jnp.int32)


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
