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
  array = x if isinstance(x, jax.Array) else jnp.zeros(())
  return min(array.devices(), key=lambda device: device.id)


def in_one_type(
  predictions: Integer[jax.Array, "runs examples"], num_classes: int
) -> Integer[jax.Array, "runs examples"]:
  """Convert to int32 if the dtype cannot hold -1 and all classes: comparing arrays of
  two dtypes is several times slower.
  """
  fits = (
    predictions.dtype.kind == "i"
    and num_classes - 1 <= jnp.iinfo(predictions.dtype).max
  )
  return predictions if fits else predictions.astype(jnp.int32)


def count_votes(
  predictions: Integer[jax.Array, "runs examples"], num_classes: int
) -> Int[jax.Array, "examples classes"]:
  """Count the runs that predict each class for each example; -1 is not counted."""
  predictions = in_one_type(predictions, num_classes)
  classes = jnp.arange(num_classes, dtype=predictions.dtype)[None, :, None]

  def add(counts, runs):
    # A byte holds the counts, because a block has at most 128 runs, and bytes are added
    # many at a time.
    votes = (runs[:, None] == classes).sum(0, dtype=jnp.uint8)
    return counts + votes.astype(jnp.int32), None

  size = min(128, max(1, len(predictions)))
  padding = ((0, -len(predictions) % size), (0, 0))
  whole = jnp.pad(predictions, padding, constant_values=-1)
  blocks = whole.reshape(len(whole) // size, size, whole.shape[1])
  start = jnp.zeros((num_classes, predictions.shape[1]), jnp.int32)
  return lax.scan(add, start, blocks)[0].T


def count_half_errors(
  errors: Bool[jax.Array, "runs examples"],
) -> Int[jax.Array, "runs 2"]:
  """Count each run's errors on the examples of even and of odd index."""
  # Counting the bits of words of 32 examples is many times as fast as adding single
  # examples.
  padded = jnp.pad(errors, ((0, 0), (0, -errors.shape[1] % 64)))
  bits = padded.reshape(len(errors), padded.shape[1] // 64, 32, 2).astype(jnp.uint32)
  places = jnp.arange(32, dtype=jnp.uint32)[None, None, :, None]
  words = (bits << places).sum(2, dtype=jnp.uint32)
  return lax.population_count(words).sum(1, dtype=jnp.uint32).astype(jnp.int32)


def joint_error_counts(
  errors: Bool[jax.Array, "runs examples"],
) -> Int[jax.Array, "examples examples"]:
  """Count the runs that have both of two examples wrong, for all pairs; fewer than 2^24
  runs.
  """
  examples = errors.shape[1]
  upper = add_joint_errors(no_joint_errors(examples), errors)
  return mirror(upper)[:examples, :examples]


def no_joint_errors(examples: int) -> Upper:
  """Return joint counts of no runs, for `add_joint_errors`."""
  tile = _tile(examples)
  padded = tile * max(1, -(-examples // tile))
  return jnp.zeros((padded, padded), jnp.int32)


def add_joint_errors(upper: Upper, errors: Bool[jax.Array, "runs examples"]) -> Upper:
  """Add the joint errors of some runs, in place where `upper` is donated."""
  padded = jnp.pad(errors, ((0, 0), (0, len(upper) - errors.shape[1])))
  return lax.platform_dependent(upper, padded, cpu=_add_bits, default=_add_product)


def _add_product(upper: Upper, errors: Bool[jax.Array, "runs padded"]) -> Upper:
  marks = pack(errors, in_bits=False)
  return upper + count_both(marks, marks, in_bits=False)


def _add_bits(upper: Upper, errors: Bool[jax.Array, "runs padded"]) -> Upper:
  tile = _tile(len(upper))
  words = pack(errors, in_bits=True)

  def add(upper, corner):
    left, right = (
      lax.dynamic_slice_in_dim(words, start, tile, axis=-1) for start in corner
    )
    counts = lax.dynamic_slice(upper, corner, (tile, tile))
    counts += count_both(left, right, in_bits=True)
    return lax.dynamic_update_slice(upper, counts, corner), None

  return lax.scan(add, upper, _upper_corners(len(upper), tile))[0]


def mirror(upper: Upper) -> Int[jax.Array, "padded padded"]:
  """Copy the joint counts above the diagonal to below it."""
  tile = _tile(len(upper))

  def copy(joint, corner):
    counts = lax.dynamic_slice(joint, corner, (tile, tile))
    return lax.dynamic_update_slice(joint, counts.T, corner[::-1]), None

  return lax.scan(copy, upper, _upper_corners(len(upper), tile))[0]


def _tile(examples: int) -> int:
  """Return how many examples a tile has on either side: a multiple of 128 that splits
  them about evenly. A tile and its words stay in a core's own cache.
  """
  tiles = max(1, -(-examples // 512))
  return 128 * max(1, -(-examples // (128 * tiles)))


def _upper_corners(size: int, tile: int) -> Int[np.ndarray, "tiles 2"]:
  """Return where the tiles on and above the diagonal begin."""
  return tile * np.stack(np.triu_indices(size // tile), axis=1).astype(np.int32)


def pack(marks: Bool[jax.Array, "runs examples"], in_bits: bool) -> jax.Array:
  """Return marks in the form that `count_both` takes; examples stay the last axis.

  With `in_bits`, a word holds 32 runs and a group up to `_WORDS` words: (groups, words,
  examples). Padding runs are 0.
  """
  if not in_bits:
    return marks.astype(jnp.bfloat16)
  words = max(1, min(_WORDS, -(-len(marks) // 32)))
  marks = jnp.pad(marks, ((0, -len(marks) % (32 * words)), (0, 0)))
  groups = marks.reshape(len(marks) // (32 * words), words, 32, marks.shape[1])
  places = jnp.arange(32, dtype=jnp.uint32).reshape(1, 1, 32, 1)
  return (groups.astype(jnp.uint32) << places).sum(2, dtype=jnp.uint32)


def count_both(
  left: jax.Array, right: jax.Array, in_bits: bool
) -> Int[jax.Array, "left right"]:
  """Count the runs that mark both of two examples, one of `left` and one of `right`,
  which `pack` returned.
  """
  if not in_bits:
    product = jnp.matmul(left.T, right, preferred_element_type=jnp.float32)
    return product.astype(jnp.int32)

  def add(counts, words):
    for a, b in zip(*words, strict=True):
      counts += lax.population_count(a[:, None] & b[None, :])
    return counts, None

  start = jnp.zeros((left.shape[-1], right.shape[-1]), jnp.uint32)
  return lax.scan(add, start, (left, right))[0].astype(jnp.int32)


@functools.partial(jax.jit, static_argnums=(3, 4))
def count_block(
  packed: jax.Array, row: int, column: int, size: int, in_bits: bool
) -> Int[jax.Array, "size size"]:
  """Return the joint counts of a square block of pairs that begins at `row, column`."""
  left, right = (
    lax.dynamic_slice_in_dim(packed, start, size, axis=-1) for start in (row, column)
  )
  return count_both(left, right, in_bits)
