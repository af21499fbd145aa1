"""The seed-batched convolution against XLA's own, with and without lanes."""

import functools
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import mostly_slow
from flax import nnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vmapseeds.convolutions import (
  LOWERINGS,
  conv_general_dilated,
  cpu,
  depthwise,
  im2col,
  lowering,
  primitive,
)
from vmapseeds.errors import UserError
from vmapseeds.target import compiling_for

NHWC = ("NHWC", "HWIO", "NHWC")


def random(seed, *shape):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def outputs(convolve, **options):
  """A function that gives the outputs and both gradients of a random projection."""
  convolve = functools.partial(convolve, **options)

  def one(x, w):
    value, vjp = jax.vjp(convolve, x, w)
    return value, *vjp(jnp.asarray(random(7, *value.shape), value.dtype))

  return one


def equal(ours, theirs):
  """Compares outputs. `theirs` are NumPy arrays, so that nothing is compiled for the
  comparison.
  """
  for a, b in zip(ours, theirs, strict=True):
    np.testing.assert_allclose(a, b, atol=2e-6 * max(1.0, np.abs(b).max()))


def check(x, w, **options):
  """Compares XLA lane by lane with ours under `vmap`."""
  one = jax.jit(outputs(jax.lax.conv_general_dilated, **options))
  theirs = [np.stack(parts) for parts in zip(*map(one, x, w), strict=True)]
  equal(jax.jit(jax.vmap(outputs(conv_general_dilated, **options)))(x, w), theirs)


@pytest.mark.parametrize("name", mostly_slow(LOWERINGS))
@settings(max_examples=6)
@given(
  lanes=st.integers(1, 3),
  batch=st.integers(1, 3),
  spatial=st.tuples(st.integers(5, 8), st.integers(5, 8)),
  kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
  strides=st.tuples(st.integers(1, 3), st.integers(1, 2)),
  dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
  padding=st.sampled_from(["SAME", "VALID", ((0, 2), (1, 0)), ((1, 1), (2, 2))]),
  groups=st.sampled_from([1, 2]),
)
def test_convolution_equals_xla(
  name, lanes, batch, spatial, kernel, strides, dilation, padding, groups
):
  x = random(0, lanes, batch, *spatial, 2 * groups)
  w = random(1, lanes, *kernel, 2, 3 * groups)
  with lowering(name):
    check(
      x,
      w,
      window_strides=strides,
      padding=padding,
      rhs_dilation=dilation,
      dimension_numbers=NHWC,
      feature_group_count=groups,
    )


@pytest.mark.parametrize("name", LOWERINGS)
def test_one_dimension_equals_xla(name):
  with lowering(name):
    check(
      random(0, 2, 3, 11, 4),
      random(1, 2, 5, 2, 6),
      window_strides=(2,),
      padding=[(3, 1)],
      dimension_numbers=("NHC", "HIO", "NHC"),
      feature_group_count=2,
    )


@pytest.mark.slow
def test_blocks_of_images_equal_one_block(monkeypatch):
  x, w = random(0, 2, 6, 9, 9, 3), random(1, 2, 3, 3, 3, 4)
  for images in (
    1,
    2,
    4,
  ):  # 4 does not divide 6: the next smaller divisor must be taken
    monkeypatch.setattr(im2col, "BLOCK_BYTES", {"cpu": images * 9 * 9 * 27 * 4})
    with lowering("im2col"):
      check(x, w, window_strides=(1, 1), padding="SAME", dimension_numbers=NHWC)


@pytest.mark.slow
def test_a_kernel_gradient_takes_many_images_at_a_time_where_it_can(monkeypatch):
  """52 images are 13 fours: without a divisor for the usual 32 images, they are one
  block.
  """
  monkeypatch.setattr(cpu, "GRADIENT_BYTES", 0)
  monkeypatch.setattr(cpu, "TOGETHER", 4)
  taken, blocks = [], im2col.blocks
  monkeypatch.setattr(
    im2col, "blocks", lambda *given: taken.append(blocks(*given)) or taken[-1]
  )
  for images, expected in ((50, 1), (52, 1), (64, 2), (93, 3), (100, 5), (124, 31)):
    x, w = random(0, 1, images, 6, 5, 3), random(1, 1, 3, 3, 3, 2)
    check(x, w, window_strides=(1, 1), padding="SAME", dimension_numbers=NHWC)
    assert taken[-1] == expected


@pytest.mark.parametrize("images", [0, 1, 5])
@pytest.mark.parametrize("channels", [3, 32])  # pairs of pixels, and pixels
def test_joined_rows_equal_xla(monkeypatch, images, channels):
  monkeypatch.setattr(cpu, "JOINED_BYTES", 2**22)
  x, w = random(0, images, 7, 6, channels), random(1, 3, 2, channels, 16)
  options = dict(
    window_strides=(2, 1), padding=((0, 2), (3, 1)), dimension_numbers=NHWC
  )
  convolve = functools.partial(conv_general_dilated, **options)
  theirs = jax.jit(outputs(jax.lax.conv_general_dilated, **options))(x, w)
  np.testing.assert_allclose(jax.jit(convolve)(x, w), theirs[0], atol=1e-4)
  program = jax.jit(convolve).lower(x, w).as_text()
  assert (f"rhs_dilate = [1, {images}]" in program) == (images > 0)
  if images:
    equal(jax.jit(outputs(convolve))(x, w), map(np.asarray, theirs))
    assert jax.jit(functools.partial(convolve, padding="VALID"))(
      x[:, :, :1], w
    ).shape == (images, 3, 0, 16)


def test_joined_rows_of_three_dimensions_equal_xla(monkeypatch):
  monkeypatch.setattr(cpu, "JOINED_BYTES", 2**22)
  x, w = random(0, 2, 3, 4, 5, 6, 16), random(1, 2, 3, 3, 3, 16, 16)
  options = dict(
    window_strides=(1, 1, 1),
    padding=[(2, 1)] * 3,
    dimension_numbers=("NDHWC", "DHWIO", "NDHWC"),
  )
  check(x, w, **options)
  convolve = functools.partial(conv_general_dilated, **options)
  # The images' four layers of each of three are images.
  assert "rhs_dilate = [1, 15]" in jax.jit(convolve).lower(x[0], w[0]).as_text()


@pytest.mark.slow
@pytest.mark.parametrize(
  ("kernel", "strides", "dilation"),
  [(3, 1, 1), (5, 2, 1), (1, 2, 1), (2, 3, 1), (3, 2, 2), (3, 1, 2)],
)
@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
  lanes=st.sampled_from([None, 1]),
  channels=st.sampled_from([1, 3, 8]),
  padding=st.sampled_from([((2, 1), (0, 3)), ((1, 1), (1, 1))]),
)
def test_one_network_equals_xla(
  monkeypatch, lanes, channels, kernel, strides, dilation, padding
):
  """Each way of `convolutions.cpu`: few channels, strides by phases (some without a kernel
  element), dilation, kernel gradients with swapped arrays. There are more images than a
  block of these holds, and a number that no block divides.
  """
  monkeypatch.setattr(cpu, "PHASED_ELEMENTS", 0)
  for images in (17, 32) if lanes == 1 else (5,):
    batch = (lanes or 1, images)
    x, w = (
      random(0, *batch, 7, 6, channels),
      random(1, lanes or 1, kernel, kernel, channels, 2),
    )
    options = dict(
      window_strides=(strides,) * 2,
      padding=padding,
      rhs_dilation=(dilation,) * 2,
      dimension_numbers=NHWC,
    )
    if lanes:
      check(x, w, **options)
      continue
    convolve = jax.jit(functools.partial(conv_general_dilated, **options))
    theirs = jax.jit(outputs(jax.lax.conv_general_dilated, **options))(x[0], w[0])
    equal(jax.jit(outputs(convolve))(x[0], w[0]), map(np.asarray, theirs))


@pytest.mark.slow
@pytest.mark.parametrize(
  ("images", "spatial", "channels", "kernel", "stride", "padding"),
  [
    (8, (8, 8), (64, 128), 3, 1, "SAME"),
    (11, (9, 7), (96, 96), 3, 1, ((0, 2), (1, 1))),  # outputs of odd sizes
    (16, (8, 8), (128, 64), 3, 1, "VALID"),
    (8, (17, 16), (64, 64), 5, 2, ((2, 2), (2, 2))),
    (
      16,
      (13, 15),
      (64, 64),
      5,
      2,
      ((1, 0), (3, 2)),
    ),  # a padding that is not a whole tile
  ],
)
def test_many_channels_equal_xla(
  monkeypatch, images, spatial, channels, kernel, stride, padding
):
  """Without strides, all three parts use Winograd's transforms."""
  monkeypatch.setitem(cpu.MANY_PRODUCTS, "kernel", 64 * 128)
  options = dict(window_strides=(stride,) * 2, padding=padding, dimension_numbers=NHWC)
  x, w = (
    random(0, 1, images, *spatial, channels[0]),
    random(1, 1, kernel, kernel, *channels) / 30,
  )
  check(x, w, **options)
  convolve = jax.vmap(lambda x, w: conv_general_dilated(x, w, **options))
  both = jax.jit(lambda x, w: jax.vjp(convolve, x, w)[1](convolve(x, w)))
  program = both.lower(x, w).as_text()
  assert ("stablehlo.convolution(" in program) == (stride > 1)


@pytest.mark.parametrize(
  ("groups", "channels", "features", "dtype"),
  [
    (5, 1, 3, np.float32),  # depthwise, with more features than channels
    (5, 1, 2, jnp.bfloat16),
    (3, 2, 4, np.float32),  # zeros in the kernel
    (2, 16, 16, np.float32),  # one group after another
  ],
)
@pytest.mark.parametrize("dense", mostly_slow([False, True]))
@pytest.mark.parametrize(
  ("stride", "dilation"), mostly_slow([(2, 1), (1, 2), (1, 1), (2, 2)], fast=2)
)
def test_groups_of_one_network_equal_xla(
  monkeypatch, groups, channels, features, dtype, stride, dilation, dense
):
  if not dense:
    monkeypatch.setattr(cpu, "DENSE_PRODUCTS", 0)
  monkeypatch.setattr(depthwise, "GRADIENT_BYTES", 1)  # an image at a time
  x = random(0, 3, 7, 6, groups * channels).astype(dtype)
  w = random(1, 3, 2, channels, groups * features).astype(dtype)
  options = dict(
    window_strides=(stride,) * 2,
    padding=((0, 2), (1, 1)),
    rhs_dilation=(dilation,) * 2,
    dimension_numbers=NHWC,
    feature_group_count=groups,
  )
  exact = (a.astype(np.float32) for a in (x, w))
  theirs = jax.jit(outputs(jax.lax.conv_general_dilated, **options))(*exact)
  ours = jax.jit(outputs(conv_general_dilated, **options))(x, w)
  for a, b in zip(ours, map(np.asarray, theirs), strict=True):
    assert a.dtype == dtype
    error = 8 * float(jnp.finfo(dtype).eps) * max(1.0, np.abs(b).max())
    np.testing.assert_allclose(a.astype(np.float32), b, atol=error)


@pytest.mark.parametrize("channels", [2, 8])
@pytest.mark.parametrize("name", LOWERINGS)
def test_a_batch_of_no_images(name, channels):
  x, w = random(0, 1, 0, 6, 6, channels), random(1, 1, 3, 3, channels, 4)
  with lowering(name):
    gradient = jax.vmap(
      jax.grad(
        lambda w, x: conv_general_dilated(
          x, w, (1, 1), "SAME", dimension_numbers=NHWC
        ).sum()
      )
    )
    np.testing.assert_array_equal(jax.jit(gradient)(w, x), np.zeros_like(w))


@pytest.mark.parametrize("shared", ["images", "kernels"])
def test_what_lanes_share_needs_no_copy(shared):
  x, w = random(0, 3, 2, 6, 6, 2), random(1, 3, 3, 3, 2, 4)
  axes = (None, 0) if shared == "images" else (0, None)
  x, w = (x[0], w) if shared == "images" else (x, w[0])

  def loss(x, w, convolve):
    return (convolve(x, w, (1, 1), "SAME", dimension_numbers=NHWC) ** 2).sum()

  for argument in (0, 1):

    def gradient(c, a=argument):
      return jax.jit(
        jax.vmap(jax.grad(functools.partial(loss, convolve=c), a), in_axes=axes)
      )

    ours, theirs = (
      gradient(c)(x, w) for c in (conv_general_dilated, jax.lax.conv_general_dilated)
    )
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-4)


def test_unbatched_convolution_is_xla_itself():
  x, w = random(0, 2, 6, 6, 8), random(1, 3, 3, 8, 4)
  ours = jax.jit(
    lambda x, w: conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NHWC)
  )
  program = ours.lower(x, w).as_text()
  assert "stablehlo.convolution(" in program
  assert "dot_general" not in program


# Images, kernel, strides, dilation and groups, of which some gradient is left to XLA.
LEFT_TO_XLA = [
  ((2, 12, 12, 16), (5, 5, 16, 32), (2, 2), (1, 1), 1),
  ((2, 12, 12, 4), (3, 3, 4, 8), (1, 1), (2, 2), 1),
  ((2, 24, 24, 6), (8, 8, 2, 6), (2, 2), (1, 1), 3),
  ((2, 40, 3), (9, 3, 5), (5,), (1,), 1),
  ((2, 310, 4), (300, 1, 4), (1,), (1,), 4),
  ((1, 6, 7, 8, 4), (2, 3, 4, 4, 4), (2, 1, 3), (1, 1, 1), 1),
]


@pytest.mark.parametrize(
  ("images", "kernel", "strides", "dilation", "groups"), LEFT_TO_XLA
)
def test_every_part_on_a_cpu_is_a_forward_convolution(
  images, kernel, strides, dilation, groups
):
  """In loops, XLA for CPUs computes other orders of dimensions 5 to 400 times slower."""
  spatial = "DHW"[-len(strides) :]
  options = {
    "window_strides": strides,
    "padding": ((4, 3),) * len(strides),
    "rhs_dilation": dilation,
    "dimension_numbers": (f"N{spatial}C", f"{spatial}IO", f"N{spatial}C"),
    "feature_group_count": groups,
  }
  x, w = random(0, *images), random(1, *kernel)
  with compiling_for("cpu"):
    program = jax.jit(outputs(conv_general_dilated, **options)).lower(x, w)
  orders = re.findall(
    r"dim_numbers = (\[.*?\])x(\[.*?\])->(\[.*?\])", program.as_text()
  )
  assert orders
  for order in orders:
    axes = ", ".join("012"[: order[0].count(",") - 1])
    assert order == (f"[b, {axes}, f]", f"[{axes}, i, o]", f"[b, {axes}, f]")
  theirs = jax.jit(outputs(jax.lax.conv_general_dilated, **options))(x, w)
  equal(program.compile()(x, w), [np.asarray(part) for part in theirs])


def test_gradients_by_example_on_a_cpu_are_forward_convolutions():
  x, dy = random(0, 3, 1, 6, 6, 2), random(1, 3, 1, 6, 6, 4)
  kernel = random(2, 3, 3, 2, 4)

  def of_example(x, dy):
    convolve = functools.partial(
      conv_general_dilated,
      x,
      window_strides=(1, 1),
      padding="SAME",
      dimension_numbers=NHWC,
    )
    return jax.vjp(convolve, kernel)[1](dy)[0]

  with compiling_for("cpu"):
    program = jax.jit(jax.vmap(of_example)).lower(x, dy).as_text()
  orders = re.findall(r"dim_numbers = (\[.*?\])x(\[.*?\])->(\[.*?\])", program)
  assert set(orders) == {("[b, 0, 1, f]", "[0, 1, i, o]", "[b, 0, 1, f]")}


def test_im2col_has_no_grouped_convolution():
  x, w = random(0, 3, 2, 6, 6, 2), random(1, 3, 3, 3, 2, 4)
  lanes = jax.vmap(
    jax.grad(
      lambda x, w: conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=NHWC
      ).sum(),
      1,
    )
  )
  with lowering("im2col"):
    assert "convolution" not in jax.jit(lambda x, w: lanes(x, w)).lower(x, w).as_text()
  with lowering("grouped"):
    assert "convolution" in jax.jit(lambda x, w: lanes(x, w)).lower(x, w).as_text()


@pytest.mark.parametrize("name", LOWERINGS)
def test_vmap_of_vmap(name):
  x, w = random(0, 2, 3, 1, 5, 5, 2), random(1, 2, 3, 3, 3, 2, 4)

  def gradient(convolve):
    one = jax.grad(
      lambda x, w: (convolve(x, w, (1, 1), "SAME", dimension_numbers=NHWC) ** 2).sum(),
      1,
    )
    return jax.jit(jax.vmap(jax.vmap(one)))(x, w)

  with lowering(name):
    ours = gradient(conv_general_dilated)
  np.testing.assert_allclose(
    ours, gradient(jax.lax.conv_general_dilated), rtol=2e-5, atol=2e-4
  )


def test_bfloat16_accumulates_in_float32():
  # A sum of 4,096 ones is 4,096 in float32; bfloat16 sums stop growing at 256.
  x, w = (
    jnp.ones((1, 1, 1, 1, 4096), jnp.bfloat16),
    jnp.ones((1, 1, 1, 4096, 1), jnp.bfloat16),
  )
  y = jax.vmap(
    lambda x, w: conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=NHWC)
  )(x, w)
  assert y.dtype == jnp.bfloat16
  assert float(y.squeeze()) == 4096


@pytest.mark.slow
def test_flax_layers_take_it():
  x = random(0, 2, 8, 8, 3)
  linen = nn.Conv(4, (3, 3), strides=2, conv_general_dilated=conv_general_dilated)
  plain = nn.Conv(4, (3, 3), strides=2)
  keys = jax.random.split(jax.random.key(0), 3)
  variables = jax.tree.map(
    np.asarray, jax.jit(jax.vmap(lambda k: plain.init(k, x)))(keys)
  )
  ours = jax.jit(jax.vmap(lambda v: linen.apply(v, x)))(variables)
  apply = jax.jit(plain.apply)
  theirs = np.stack(
    [apply(jax.tree.map(lambda a, i=i: a[i], variables), x) for i in range(3)]
  )
  np.testing.assert_allclose(ours, theirs, atol=1e-5)

  @nnx.vmap(in_axes=(0, None))
  def outputs(layer, x):
    return layer(x)

  @nnx.split_rngs(splits=3)
  @nnx.vmap
  def layers(rngs):
    return nnx.Conv(3, 4, (3, 3), rngs=rngs, conv_general_dilated=conv_general_dilated)

  stacked = layers(nnx.Rngs(0))
  one = [nnx.Conv(3, 4, (3, 3), rngs=nnx.Rngs(0)) for _ in range(3)]
  for i, layer in enumerate(one):
    layer.kernel[...], layer.bias[...] = stacked.kernel[i], stacked.bias[i]
  np.testing.assert_allclose(
    outputs(stacked, x), jnp.stack([layer(x) for layer in one]), atol=1e-5
  )


@pytest.mark.parametrize(
  ("spatial", "options"),
  [
    ((7,), {"window_strides": (1,), "padding": "SAME"}),
    ((5, 6), {"window_strides": (1, 1), "padding": "SAME"}),
    (
      (7, 6),
      {
        "window_strides": (2, 1),
        "padding": ((0, 2), (1, 0)),
        "rhs_dilation": (1, 2),
        "feature_group_count": 2,
      },
    ),
  ],
)
def test_the_grouped_kernel_gradient_is_that_of_each_lane(spatial, options):
  """Also of one lane, and of images or gradients that all lanes share."""
  groups = options.get("feature_group_count", 1)
  x = random(0, 3, 2, *spatial, 4)
  w = random(1, 3, *[3] * len(spatial), 4 // groups, 6)
  names = "DHW"[-len(spatial) :]
  numbers = (f"N{names}C", f"{names}IO", f"N{names}C")

  def convolve(x, w, how=conv_general_dilated):
    return how(x, w, dimension_numbers=numbers, **options)

  weigh = random(2, 3, *jax.eval_shape(convolve, x[0], w[0]).shape)

  def gradient(x, w, weigh, how=conv_general_dilated):
    return jax.grad(lambda w: (weigh * convolve(x, w, how)).sum())(w)

  plain = jax.jit(functools.partial(gradient, how=jax.lax.conv_general_dilated))

  def each(xs, weights):
    return np.stack([plain(*one) for one in zip(xs, w, weights, strict=True)])

  with compiling_for("gpu"), lowering("grouped"):
    lanes = jax.jit(jax.vmap(gradient))(x, w, weigh)
    single = jax.jit(jax.vmap(gradient))(x[1:2], w[1:2], weigh[1:2])
    images = jax.jit(jax.vmap(gradient, (None, 0, 0)))(x[0], w, weigh)
    weights = jax.jit(jax.vmap(gradient, (0, 0, None)))(x, w, weigh[0])
  np.testing.assert_allclose(lanes, each(x, weigh), atol=1e-4)
  np.testing.assert_allclose(single, each(x, weigh)[1:2], atol=1e-4)
  np.testing.assert_allclose(images, each([x[0]] * 3, weigh), atol=1e-4)
  np.testing.assert_allclose(weights, each(x, [weigh[0]] * 3), atol=1e-4)


def test_grouped_kernel_gradients_are_one_filter_gradient_on_a_gpu():
  """Lanes are groups of its batch. As groups of its features they would be a forward
  convolution with windows as large as the images.
  """
  x, w = random(0, 3, 2, 9, 8, 4), random(1, 3, 3, 3, 4, 5)
  gradient = jax.grad(
    lambda w, x: conv_general_dilated(
      x, w, (1, 1), "SAME", dimension_numbers=NHWC
    ).sum()
  )
  with compiling_for("gpu"), lowering("grouped"):
    program = str(jax.make_jaxpr(jax.vmap(gradient))(w, x))
  assert "batch_group_count=3" in program


def test_unknown_lowering():
  with (
    pytest.raises(
      UserError,
      match="unknown lowering 'im2row': choose one of im2col, grouped, sequential",
    ),
    lowering("im2row"),
  ):
    pass


def test_what_is_traced_is_made_for_the_platform_that_is_said():
  x, w = random(0, 2, 1, 6, 6, 8), random(1, 2, 3, 3, 8, 4)

  def loops(platform):
    # A new function each time, because JAX does not trace the same one again.
    convolve = jax.vmap(
      lambda x, w: conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NHWC)
    )
    with compiling_for(platform):
      return "scan[" in str(jax.make_jaxpr(convolve)(x, w))

  assert loops("cpu"), "one lane after another"
  assert not loops("tpu")
  with pytest.raises(
    UserError,
    match="unknown platform 'gpus': choose one of cpu, gpu, tpu; did you mean 'gpu'",
  ):
    compiling_for("gpus").__enter__()


def test_a_lowering_holds_within_its_context_alone():
  """Nested ones too, and after an error."""
  assert primitive.current_lane_parameters()["lowering"] is None
  with lowering("grouped"):
    with pytest.raises(ZeroDivisionError), lowering("im2col"):
      assert primitive.current_lane_parameters()["lowering"] == "im2col"
      raise ZeroDivisionError
    assert primitive.current_lane_parameters()["lowering"] == "grouped"
  assert primitive.current_lane_parameters()["lowering"] is None
