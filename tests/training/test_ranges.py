"""Between which numbers results of a program lie, beside numbers that it computes."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vmapseeds.training.losses import argmax
from vmapseeds.training.ranges import UNKNOWN, ranges_of

LOGITS = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
LOGITS[0, 0] = np.nan


def largest(x):
  return x.argmax(-1)


@jax.jit
def in_batches(x):
  return jax.lax.map(largest, x.reshape(20, 10, 4)).reshape(-1)


def unknown(x):
  return jax.lax.while_loop(lambda i: i < 7, lambda i: i + 1, largest(x)[0])


@pytest.mark.parametrize(
  ("function", "expected"),
  [
    (largest, (0, 3)),
    (argmax, (-1, 3)),
    (in_batches, (0, 3)),
    (lambda x: largest(x) + 5, (5, 8)),
    (lambda x: 2 - largest(x), (-1, 2)),
    (lambda x: x[:, 0] > 0, (0, 1)),
    (lambda x: (x > 0).astype(int)[:, :2].reshape(-1), (0, 1)),
    (lambda x: jnp.where(x[:, 0] > 0, largest(x), -1), (-1, 3)),
    (lambda x: jnp.concatenate([largest(x), jnp.full(3, 9)]), (0, 9)),
    (lambda x: jnp.clip(x[:, 0].astype(int), -1, 2), (-1, 2)),
    (lambda x: jnp.maximum(largest(x), 1), (1, 3)),
    (lambda x: jnp.maximum(x[:, 0].astype(int), 1), (1, math.inf)),
    (lambda x: jax.lax.cond(x[0, 0] > 0, lambda: 1, lambda: 6), (1, 6)),
    (lambda x: largest(x).astype(np.int8) + np.int8(126), UNKNOWN),  # which overflows
    (lambda x: x[:, 0].astype(int), UNKNOWN),
    (lambda x: largest(x) * 2.0, UNKNOWN),
    (unknown, UNKNOWN),
  ],
)
def test_ranges(function, expected):
  (known,) = ranges_of(jax.make_jaxpr(function)(LOGITS))
  assert known == expected
  values = np.asarray(function(jnp.asarray(LOGITS)))
  assert known[0] <= values.min()
  assert values.max() <= known[1]
