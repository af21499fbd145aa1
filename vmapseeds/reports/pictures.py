"""What the examples of a report look like: pictures, texts, or rows of numbers."""

import base64
import functools
import io
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Shaped, UInt8
from markupsafe import Markup
from PIL import Image

from vmapseeds.data.dataset import Dataset
from vmapseeds.data.sources import load_test_set
from vmapseeds.mistakes import Mistake, option
from vmapseeds.store.files import short_message
from vmapseeds.training.objects import fields_of, imported, module_exists

MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}  # by the number of channels
LEAST_PIXELS = 4  # of a side; an array with fewer is no picture
MOST_PIXELS = 96
MOST_OF_TILES = 40
TILES_A_ROW = 50
MOST_CHARACTERS = 200  # of a text
MOST_NUMBERS = 8  # of a row
LOOKED_AT = 1000  # examples whose least and largest value are black and white
GIVE = "give a .npy or .npz file or the name of a data set with"


class Inputs(NamedTuple):
  """The inputs of the test examples.

  Attributes:
    values: first axis the example; of pictures (examples, height, width, channels).
      None where they are not at hand.
    why: a sentence that says why they are not.
    extremes: of pictures, the values that are shown black and white; of others None.
  """

  values: Any = None
  why: str = ""
  extremes: Any = None


def find_inputs(images: Any, results: xr.Dataset, test_set: str) -> Inputs:
  """Return the inputs of the examples of results.

  Args:
    images: an array, a `.npy` file, an `.npz` file with `x_<test set>` or one array, or
      a data set as recipes name it. None means that of the recipe, if it is digits, an
      `.npz` file or a set of tensorflow-datasets that is on the disk. Nothing is
      downloaded, and no code that results name is imported.
    results: what `open_results` returns.
    test_set: which test set.

  Raises:
    Mistake: `images` cannot be read or are not those of the results' examples.
  """
  if images is not None:
    return as_inputs(_checked(*_given(images, results, test_set), results=results))
  settings = fields_of(results.attrs["recipe"])
  name = settings.get("dataset")
  if not isinstance(name, str):
    return Inputs(why=f"Inputs of these examples are not at hand: {GIVE} --images.")
  try:
    inputs, labels = _load(name, test_set, settings.get("classes"))
    return as_inputs(_checked(inputs, labels, results=results))
  except Mistake as mistake:
    return Inputs(why=f"Inputs of these examples are not at hand: {mistake}.")


def _load(name, test_set, classes):
  return _load_once(name, test_set, None if classes is None else tuple(classes))


@functools.lru_cache(maxsize=1)  # the next page often has the same examples
def _load_once(name, test_set, classes):
  examples = load_test_set(name, test_set, classes)
  return examples.inputs, examples.targets


def _given(images, results, test_set):
  """Return inputs, and the labels that come with them or None."""
  if not isinstance(images, str | os.PathLike):
    return np.asarray(images), None
  name = os.fspath(images)
  if not name.endswith((".npy", ".npz")):
    classes = fields_of(results.attrs["recipe"]).get("classes")
    if not module_exists(name):
      return _load(name, test_set, classes)
    data = imported(name)
    if not isinstance(data, Dataset):
      raise Mistake(f"{name} is {type(data).__name__}: give the name of a vs.Dataset")
    of_set = data.select((test_set,), classes).tests[test_set]
    return of_set.inputs, of_set.targets
  try:
    if name.endswith(".npy"):
      return np.lib.format.open_memmap(name, mode="r"), None
    with np.load(name, allow_pickle=False) as file:
      held = file.files
      x = held[0] if len(held) == 1 else f"x_{test_set}"
      y = f"y_{test_set}"
      if x in held:
        return file[x], file[y] if y in held else None
  except Exception as error:  # a missing or damaged file raises many kinds
    raise Mistake(
      f"{name} cannot be read ({short_message(error)}): {GIVE} {option('images')}"
    ) from None
  raise Mistake(f"{name} holds {', '.join(held)}: give {x}, or one array alone")


def _checked(inputs, targets, *, results):
  """Return inputs, if they can be those of the results' examples.

  Raises:
    Mistake: they are not.
  """
  count = len(inputs) if inputs.ndim else 0
  n = results.sizes.get("example", count)
  if not count or count != n:
    raise Mistake(f"there are {count} inputs for {n} examples: give one for each")
  name = "original_labels" if "original_labels" in results else "labels"
  labels = results[name].values if name in results else targets
  if targets is not None and not np.array_equal(labels, targets):
    raise Mistake("the labels that come with the inputs are not those of the results")
  return inputs


def as_inputs(values: Shaped[np.ndarray, "examples ..."]) -> Inputs:
  """Return inputs as they are shown. They are pictures if they have two axes of at least
  4 pixels and 1 to 4 channels, last or, as in PyTorch, first.
  """
  of_numbers = values.dtype.kind in "biuf"
  pictures = values[..., None] if values.ndim == 3 else values
  if pictures.ndim == 4 and pictures.shape[3] not in MODES:
    pictures = np.moveaxis(pictures, 1, 3)
  is_picture = pictures.ndim == 4 and pictures.shape[3] in MODES
  if not (of_numbers and is_picture and min(pictures.shape[1:3]) >= LEAST_PIXELS):
    return Inputs(values)
  some = pictures[:LOOKED_AT]
  return Inputs(pictures, extremes=(float(some.min()), float(some.max())))


def show_input(inputs: Inputs, example: int) -> str:
  """Return an example as HTML; nothing if its input is not at hand."""
  if inputs.values is None:
    return ""
  if inputs.extremes:
    picture = _image(inputs, example, MOST_PIXELS)
    return Markup('<img class="picture" src="{}" alt="example {}">').format(
      _encode(picture, "png", "PNG"), example
    )
  return Markup("<code>{}</code>").format(text_of(inputs, example))


def text_of(inputs: Inputs, example: int) -> str:
  """Return an example that is no picture, cut where it is long."""
  value = inputs.values[example]
  if value.dtype.kind in "US":
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"
  numbers = value.ravel()
  text = ", ".join(f"{number:.4g}" for number in numbers[:MOST_NUMBERS])
  return f"{text}, …" if numbers.size > MOST_NUMBERS else text


def tiles(inputs: Inputs, examples: Sequence[int]) -> dict[str, Any]:
  """Return pictures side by side in one image, 50 a row: its address, and the width and
  height of a picture.
  """
  small = [np.asarray(_image(inputs, i, MOST_OF_TILES)) for i in examples]
  height, width = small[0].shape[:2]
  rows = -(-len(small) // TILES_A_ROW)
  columns = min(len(small), TILES_A_ROW)
  whole = np.zeros((rows * height, columns * width, *small[0].shape[2:]), np.uint8)
  for n, tile in enumerate(small):
    y, x = divmod(n, TILES_A_ROW)
    whole[y * height : (y + 1) * height, x * width : (x + 1) * width] = tile
  address = _encode(Image.fromarray(whole), "webp", "WEBP", quality=88)
  return {"address": address, "width": width, "height": height, "columns": columns}


def _image(inputs: Inputs, example: int, most: int) -> Image.Image:
  """Return a picture with sides of at most so many pixels."""
  low, high = inputs.extremes
  values = np.asarray(inputs.values[example], np.float32)
  scaled = 255 * np.clip((values - low) / ((high - low) or 1), 0, 1)
  pixels: UInt8[np.ndarray, "height width channels"] = np.rint(scaled).astype(np.uint8)
  image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
  image.thumbnail((most, most))
  return image


def _encode(image: Image.Image, kind: str, name: str, **how: Any) -> str:
  """Return an image as a data URI."""
  stream = io.BytesIO()
  image.save(stream, name, **how)
  return f"data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode()}"
