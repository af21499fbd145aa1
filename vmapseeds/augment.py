"""Augmentation: pure functions of (image, key), one image at a time, in pixel values.

An image's key is folded in from (augment seed, epoch, example), so a fixed augment seed shows the same augmented
images in whatever order they come (jordan2023, appendix D.1).
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from vmapseeds.errors import Mistake, at_least, one_of

Image = Float[Array, "height width channels"]
Step = Callable[[Image, Key[Array, ""], Float[Array, " channels"]], Image]


def flip(image: Image, key: Key[Array, ""], fill: Float[Array, " channels"]) -> Image:
  """Mirrors left and right with probability one half."""
  return jnp.where(jax.random.bernoulli(key), image[:, ::-1], image)


def translate(image: Image, key: Key[Array, ""], fill: Float[Array, " channels"], *, size: int, border: str) -> Image:
  """Shifts by a uniform whole number of pixels in [-size, size] each way; the border is black or reflects."""
  padded = jnp.pad(image, ((size, size), (size, size), (0, 0)), mode=border)
  top, left = jax.random.randint(key, (2,), 0, 2 * size + 1)
  return jax.lax.dynamic_slice(padded, (top, left, 0), image.shape)


def cutout(image: Image, key: Key[Array, ""], fill: Float[Array, " channels"], *, size: int) -> Image:
  """Fills a uniformly placed size × size square, wholly inside the image, with `fill`."""
  height, width, _ = image.shape
  top, left = jax.random.randint(key, (2,), 0, jnp.array([height - size + 1, width - size + 1]))
  rows = jnp.arange(height)[:, None] - top
  columns = jnp.arange(width)[None, :] - left
  inside = (rows >= 0) & (rows < size) & (columns >= 0) & (columns < size)
  return jnp.where(inside[..., None], fill, image)


STEPS: dict[str, Callable[..., Step]] = {
  "flip": lambda size: flip,
  "translate": lambda size: functools.partial(translate, size=size, border="constant"),
  "reflect": lambda size: functools.partial(translate, size=size, border="reflect"),
  "cutout": lambda size: functools.partial(cutout, size=size),
}


@functools.cache
def parse(text: str) -> tuple[Step, ...]:
  """The steps of e.g. "flip translate=2 cutout=12". `Mistake` for an unknown step or a missing size."""
  steps = []
  for word in text.split():
    name, _, size = word.partition("=")
    one_of("augmentation", name, STEPS)
    if (name == "flip") == bool(size) or not (size or "1").isdecimal():
      raise Mistake(f"augmentation {word!r}: write flip without a size, the others as {name}=PIXELS")
    steps.append(STEPS[name](at_least(f"augmentation {name}", int(size or 1), 1)))
  return tuple(steps)


def augment(text: str, image: Image, key: Key[Array, ""], fill: Float[Array, " channels"]) -> Image:
  """`image` after the steps of `text`, each with its own key."""
  for i, step in enumerate(parse(text)):
    image = step(image, jax.random.fold_in(key, i), fill)
  return image


def check_size(text: str, height: int, width: int) -> None:
  """`Mistake` when a step of `text` is larger than the images."""
  for word in text.split():
    name, _, size = word.partition("=")
    limit = min(height, width) - (name == "reflect")
    if size and int(size) > limit:
      raise Mistake(f"augmentation {word!r} on images of {height}×{width} pixels: at most {name}={limit}")
