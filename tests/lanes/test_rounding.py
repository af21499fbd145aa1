"""What a program rounds is rounded in lanes too: bit for bit as by `jax.jit`, whatever
the lane width and wherever its training is interrupted.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import mostly_slow

import vmapseeds as vs
from vmapseeds.lanes import Stages, spread_stages

HALVES = (jnp.bfloat16, jnp.float16)
by_dtype = pytest.mark.parametrize("dtype", HALVES, ids=lambda d: d.dtype.name)
by_width = pytest.mark.parametrize("width", [1, 3], ids="width {}".format)


def in_lanes(function, lanes, width):
  found = [out for _, out in vs.spread(function, width=width)((), lanes)]
  return jax.tree.map(lambda *parts: np.concatenate(parts), *found)


@by_dtype
@by_width
def test_every_step_of_a_sum_is_rounded(dtype, width):
  def program(_, first):
    return jax.lax.fori_loop(0, 100, lambda _, w: w + dtype(0.001), first)

  lanes = jnp.array([1, 0.25, 0, -3], dtype)
  expected = []
  for number in lanes:
    for _ in range(100):  # each addition in Python, rounded by NumPy
      number = np.asarray(number + np.asarray(0.001, dtype), dtype)
    expected.append(number)
  found = in_lanes(program, lanes, width)
  assert found.dtype == dtype
  np.testing.assert_array_equal(found, np.stack(expected))
  if dtype == jnp.bfloat16:
    assert found[0] == 1  # half a unit of its last place is lost in each


@by_dtype
@by_width
def test_quantisation_by_a_cast_quantises(dtype, width):
  lanes = np.random.default_rng(0).normal(size=(7, 50)).astype(np.float32)
  found = in_lanes(lambda _, x: x.astype(dtype).astype(jnp.float32), lanes, width)
  np.testing.assert_array_equal(found, lanes.astype(dtype).astype(np.float32))
  assert (found != lanes).any()


def programs(x, key):
  """Own derivatives, loops, branches, random numbers, bits, reductions."""

  @jax.custom_vjp
  def doubled(x):
    return x + x

  doubled.defvjp(lambda x: (x + x, None), lambda _, dy: (3 * dy,))
  total, each = jax.lax.scan(
    lambda sum, x: (sum + jnp.tanh(x), sum * x), jnp.zeros((), x.dtype), x
  )
  return {
    "total": jax.lax.fori_loop(0, 3, lambda _, a: a * x.dtype.type(1.5), total),
    "each": each,
    "branch": jax.lax.cond(
      total > 0, jnp.sin, lambda a: a.astype(jnp.float32).astype(a.dtype), total
    ),
    "slope": jax.grad(lambda x: doubled(jnp.square(x)).sum())(x),
    "layer": jax.nn.gelu(x * x.dtype.type(1.7)) - jax.nn.softmax(x),
    "drawn": jax.random.normal(key, (3,), x.dtype),
    "running": jnp.cumsum(x),
    "power": (x * x + 1) ** 3 / 7,
    "mixed": (x.astype(jnp.float32) * 1.1).astype(x.dtype) * x,
    "product": jnp.outer(x, x) @ x,
    "bits": jax.lax.bitcast_convert_type(x, jnp.uint16),
  }


@by_dtype
def test_programs_compute_in_lanes_what_jit_computes(dtype):
  x = jnp.asarray(np.random.default_rng(1).normal(size=40), dtype)
  key = jax.random.key(1)
  found = jax.jit(vs.fast_convolutions(programs))(x, key)
  for name, a in jax.jit(programs)(x, key).items():
    assert found[name].dtype == a.dtype, name
    np.testing.assert_array_equal(found[name], a, err_msg=name)


@by_dtype
@pytest.mark.parametrize("groups", mostly_slow([1, 2]))
def test_convolutions_round_once_what_they_sum_in_float32(dtype, groups):
  """Outputs and both gradients, beside the same sums in float64."""
  rng = np.random.default_rng(0)
  x = jnp.asarray(rng.normal(size=(3, 6, 7, 4)), dtype)
  w = jnp.asarray(rng.normal(size=(3, 3, 4 // groups, 6)), dtype)
  dy = jnp.asarray(rng.normal(size=(3, 6, 7, 6)), dtype)

  def parts(x, w, dy):
    def conv(x, w):
      return jax.lax.conv_general_dilated(
        x,
        w,
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
      )

    y, pull = jax.vjp(conv, x, w)
    return y, *pull(dy)

  found = jax.jit(vs.fast_convolutions(parts))(x, w, dy)
  wide = jax.jit(parts)(*(a.astype(jnp.float32) for a in (x, w, dy)))
  for a, exact in zip(found, wide, strict=True):
    assert a.dtype == dtype
    step = float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(
      a.astype(np.float32), exact, rtol=0.51 * step, atol=1e-5 * np.abs(exact).max()
    )


class Interrupted:
  """A keeper that saves every round, and forgets what it saved."""

  every = 1

  def load(self, like):
    return None

  def save(self, rounds, state):
    assert state["w"].dtype in HALVES


@by_dtype
@by_width
def test_states_are_the_same_however_often_they_are_saved(dtype, width):
  """The state is multiplied by 1.01 in each of 30 rounds, and rounded each time."""

  def advance(_, lane, state, first, last):
    def round_(i, w):
      return w * w.dtype.type(1.01)

    return {"w": jax.lax.fori_loop(first, last, round_, state["w"])}

  stages = Stages(
    lambda _, lane: {"w": lane}, advance, lambda _, lane, state: state["w"], 30
  )
  lanes = jnp.array([1, 1.3, 0.007, -2], dtype)
  expected = np.asarray(lanes)
  for _ in range(30):
    expected = (expected * np.asarray(1.01, dtype)).astype(dtype)
  for keeper in (None, Interrupted()):
    steps = spread_stages(stages, width=width)((), lanes, keeper=keeper)
    found = np.concatenate([out for _, out, _ in steps])
    np.testing.assert_array_equal(found, expected)
