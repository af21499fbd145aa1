"""Exact counts of the runs that mark both of two examples, for all pairs of an example
of one block and one of another.

An accelerator multiplies the marks, 0 and 1, as matrices. A CPU packs 32 runs into a
word and counts the bits that are set in the words of both examples. There this is about
20 times as fast as the product in float32.
"""

import jax
import jax.numpy as jnp
from jax import lax

from vmapseeds.stats._arrays import Array

# How many words of each example one step of the scan counts: the counts stay in
# registers meanwhile.
_WORDS = 16


def device_of(x: Array) -> jax.Device:
  """The device that an array is on, or the first of several; the default device for
  NumPy.
  """
  lies = x if isinstance(x, jax.Array) else jnp.zeros(())
  return min(lies.devices(), key=lambda device: device.id)


def packed(marks: jax.Array, in_bits: bool) -> jax.Array:
  """The marks (runs, examples) in the form that `common` takes; examples stay the last
  axis.

  With `in_bits`, a word holds 32 runs and a group up to `_WORDS` words: (groups, words,
  examples). Padding runs are 0.
  """
  if not in_bits:
    return marks.astype(jnp.bfloat16)
  words = max(1, min(_WORDS, -(-len(marks) // 32)))
  marks = jnp.pad(marks, ((0, -len(marks) % (32 * words)), (0, 0)))
  bits = marks.reshape(len(marks) // (32 * words), words, 32, marks.shape[1]).astype(
    jnp.uint32
  )
  return (bits << jnp.arange(32, dtype=jnp.uint32)[:, None]).sum(2, dtype=jnp.uint32)


def common(left: jax.Array, right: jax.Array, in_bits: bool) -> jax.Array:
  """How many runs mark both of two examples, (examples of left, examples of right),
  int32.
  """
  if not in_bits:
    return jnp.matmul(left.T, right, preferred_element_type=jnp.float32).astype(
      jnp.int32
    )

  def add(counts, words):
    for a, b in zip(*words, strict=True):
      counts += lax.population_count(a[:, None] & b[None, :])
    return counts, None

  start = jnp.zeros((left.shape[-1], right.shape[-1]), jnp.uint32)
  return lax.scan(add, start, (left, right))[0].astype(jnp.int32)


def joint_error_counts(errors: jax.Array) -> jax.Array:
  """Return how many runs have both of two examples wrong, int32 (examples, examples)."""
  in_bits = jax.default_backend() == "cpu"
  marks = packed(errors, in_bits)
  return common(marks, marks, in_bits)
