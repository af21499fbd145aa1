"""Augmentation: pure functions of (image, key), one image at a time, in pixel values.

An image's key is derived from (augment seed, epoch, example), so a fixed augment seed
gives the same augmented images in any order (jordan2024, appendix D.1).

The random part of an augmentation is a few small numbers per image. One call draws
those of a whole epoch, which costs less than a call per batch.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, Real, UInt32

from vmapseeds.errors import UserError
from vmapseeds.target import platform
from vmapseeds.training.objects import calling, is_name, resolve_object
from vmapseeds.training.recipes import augmentation

Image = Real[Array, "height width channels"]
Fill = Real[Array, " channels"]
Draw = Bool[Array, ""] | Int[Array, " 2"]


class Step(NamedTuple):
  """One step: `draw(words, height, width)` makes a draw from random words, and
  `apply(image, draw, fill)` returns the new image.
  """

  draw: Callable[[UInt32[Array, " 2"], int, int], Draw]
  apply: Callable[[Image, Draw, Fill], Image]
  alternates: bool = False  # each epoch inverts the draw of the first


def flip() -> Step:
  """Return the step that mirrors left and right with probability one half."""
  return Step(
    draw=lambda words, height, width: words[0] % 2 == 1,
    apply=lambda image, mirrored, fill: jnp.where(mirrored, image[:, ::-1], image),
  )


def alternate() -> Step:
  """Return the step that mirrors an image in every second epoch, beginning with the first
  or with the second with probability one half (arXiv 2404.00498, section 3.6).
  """
  return flip()._replace(alternates=True)


def translate(size: int, border: str = "constant") -> Step:
  """Return the step that shifts by a uniform whole number of pixels in [-size, size]
  along each axis. The padding is 0 or a reflection.
  """

  def apply(image, corner, fill):
    if platform() == "cpu":
      shifted = jnp.pad(image, ((size, size), (size, size), (0, 0)), mode=border)
      start = (*corner, jnp.zeros_like(corner[0]))
      return jax.lax.dynamic_slice(shifted, start, image.shape)
    # Accelerators run dynamic slices one image at a time, so select among static
    # slices: of rows, then of columns.
    for axis, start in enumerate(corner):
      length = image.shape[axis]
      padding = [(0, 0)] * 3
      padding[axis] = (size, size)
      bordered = jnp.pad(image, padding, mode=border)
      slices = [
        jax.lax.slice_in_dim(bordered, first, first + length, axis=axis)
        for first in range(2 * size + 1)
      ]
      image = jax.lax.select_n(start, *slices)
    return image

  return Step(lambda words, height, width: _numbers_below(2 * size + 1, words), apply)


def cutout(size: int) -> Step:
  """Return the step that fills a uniformly placed size × size square, wholly inside the
  image, with `fill`.
  """

  def draw(words, height, width):
    return _numbers_below(np.array([height - size + 1, width - size + 1]), words)

  def apply(image, corner, fill):
    places = []  # in the square, of rows and of columns
    for length, first in zip(image.shape[:2], corner, strict=True):
      places.append(jnp.arange(length) - first)
    rows, columns = places
    in_rows = ((rows >= 0) & (rows < size))[:, None]
    in_columns = ((columns >= 0) & (columns < size))[None, :]
    is_inside = in_rows & in_columns
    return jnp.where(is_inside[..., None], fill[None, None], image)

  return Step(draw, apply)


def _numbers_below(ends, words):
  """Return uniform whole numbers in [0, `ends`), made of random words of 32 bits. The
  relative error of each probability is at most `ends` / 2³².
  """
  return (words % np.uint32(ends)).astype(jnp.int32)


STEPS: dict[str, Callable[..., Step]] = {
  "flip": flip,
  "alternate": alternate,
  "translate": translate,
  "reflect": functools.partial(translate, border="reflect"),
  "cutout": cutout,
}


@functools.cache
def parse_steps(text: str) -> tuple[Step, ...]:
  """Return the steps of a text such as "flip translate=2 cutout=12"."""
  steps = []
  for name, size in augmentation(text):
    make_step = STEPS[name]
    steps.append(make_step() if size is None else make_step(size))
  return tuple(steps)


def draw_steps(steps, key: Key[Array, ""], shape: tuple[int, ...]):
  """Draw what the steps need for one input of this shape, each from its own random
  words. For a user's function, return the key.
  """
  if not is_name(steps):
    return jax.random.key_data(key)
  # One call draws two words for every step: on a CPU the call costs more than the
  # numbers.
  parsed = parse_steps(steps)
  words = jax.random.bits(key, (len(parsed), 2), np.uint32)
  return tuple(
    step.draw(two, *shape[:2]) for step, two in zip(parsed, words, strict=True)
  )


def alternates(steps) -> bool:
  """Return whether a step needs what was drawn in the first epoch."""
  return is_name(steps) and any(step.alternates for step in parse_steps(steps))


def alternated(steps, drawn, first, epoch: Int[Array, ""]):
  """Return what was drawn for one input, but of steps that alternate what was drawn in
  the first epoch, inverted in every second.
  """
  draws_of_epoch = []
  for step, draw, first_draw in zip(parse_steps(steps), drawn, first, strict=True):
    if step.alternates:
      is_inverted = epoch % 2 == 1
      draw = first_draw ^ is_inverted
    draws_of_epoch.append(draw)
  return tuple(draws_of_epoch)


def apply_steps(
  steps, single: Real[Array, "..."], drawn, fill: Fill
) -> Real[Array, "..."]:
  """Apply the steps to one input, given what they drew."""
  if not is_name(steps):
    key = jax.random.wrap_key_data(drawn, impl="threefry2x32")
    with calling("augment", steps):
      return resolve_object("augment", steps)(key, single)
  for step, draw in zip(parse_steps(steps), drawn, strict=True):
    single = step.apply(single, draw, fill)
  return single


def check_steps(steps, shape: tuple[int, ...]) -> None:
  """Check that the steps fit inputs of this shape.

  Raises:
    UserError: a step is larger than the images, or the inputs are not images.
  """
  if not is_name(steps) or not steps:
    return
  if len(shape) != 3:
    raise UserError(
      f"augmentation {steps!r} on inputs of shape {shape}: it is of images (height, width, channels)"
    )
  height, width = shape[:2]
  for name, size in augmentation(steps):
    limit = min(height, width)
    if name == "reflect":  # pixels at the border are not repeated
      limit -= 1
    if size and size > limit:
      raise UserError(
        f"augmentation '{name}={size}' on images of {height}×{width} pixels: at most {name}={limit}"
      )
