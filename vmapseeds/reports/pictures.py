"""What the examples of a report look like: pictures, texts, or rows of numbers."""

import base64
import functools
import io
import math
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
from vmapseeds.errors import UserError
from vmapseeds.training.objects import fields_of, import_object, module_exists

MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}  # by the number of channels
LEAST_PIXELS = 4  # of a side; an array with fewer is no picture
MOST_PIXELS = 96
MOST_OF_TILES = 40
TILES_A_ROW = 50
MOST_CHARACTERS = 200  # of a text
MOST_NUMBERS = 8  # of a row
LOOKED_AT = 1000  # examples whose least and largest value are black and white
GIVE = "give an array or the name of a data set with"


class ExampleInputs(NamedTuple):
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


def find_inputs(images: Any, results: xr.Dataset, test_set: str) -> ExampleInputs:
  """Return the inputs of the examples of results.

  Args:
    images: an array, or a data set as recipes name it. None means that of the recipe, if
      it is digits, an `.npz` file or a set of tensorflow-datasets that is on the disk.
      Nothing is downloaded, and no code that results name is imported.
    results: what `open_results` returns.
    test_set: which test set.

  Raises:
    UserError: `images` cannot be read or are not those of the results' examples.
  """
  if images is not None:
    inputs, labels = _read_images(images, test_set)
    return as_inputs(_checked(inputs, labels, results))
  settings = fields_of(results.attrs["recipe"])
  name = settings.get("dataset")
  if not isinstance(name, str):
    return ExampleInputs(
      why=f"Inputs of these examples are not at hand: {GIVE} vs.report(..., images=)."
    )
  try:
    inputs, labels = _load(name, test_set)
    return as_inputs(_checked(inputs, labels, results))
  # A report has much to show without them.
  except UserError as mistake:
    return ExampleInputs(why=f"Inputs of these examples are not at hand: {mistake}.")


@functools.lru_cache(maxsize=1)  # the next page often has the same examples
def _load(name, test_set):
  examples = load_test_set(name, test_set)
  return examples.inputs, examples.targets


def _read_images(images, test_set):
  """Return inputs, and the labels that come with them or None."""
  if not isinstance(images, str | os.PathLike):
    return np.asarray(images), None
  name = os.fspath(images)
  if name.endswith(".npy"):
    raise UserError(f"images is {name}: give np.load({name!r})")
  if not module_exists(name):
    return _load(name, test_set)
  dataset = import_object(name)
  if not isinstance(dataset, Dataset):
    kind = type(dataset).__name__
    raise UserError(f"{name} is {kind}: give the name of a vs.Dataset")
  examples = dataset.select((test_set,)).tests[test_set]
  return examples.inputs, examples.targets


def _checked(inputs, targets, results):
  """Return inputs, if they can be those of the results' examples.

  Raises:
    UserError: they are not.
  """
  # A single number has no length.
  count = len(inputs) if inputs.ndim else 0
  n = results.sizes.get("example", count)
  if not count or count != n:
    raise UserError(f"there are {count} inputs for {n} examples: give one for each")
  labels = targets
  # Under label maps the labels of runs are not those of the data set.
  for name in ("original_labels", "labels"):
    if name in results:
      labels = results[name].values
      break
  if targets is not None and not np.array_equal(labels, targets):
    raise UserError("the labels that come with the inputs are not those of the results")
  return inputs


def as_inputs(values: Shaped[np.ndarray, "examples ..."]) -> ExampleInputs:
  """Return inputs as they are shown. They are pictures if they have two axes of at least
  4 pixels and 1 to 4 channels, last or, as in PyTorch, first.
  """
  pictures = values
  if pictures.ndim == 3:
    pictures = pictures[..., None]
  if pictures.ndim == 4 and pictures.shape[3] not in MODES:
    pictures = np.moveaxis(pictures, 1, 3)
  has_channels = pictures.ndim == 4 and pictures.shape[3] in MODES
  are_numbers = values.dtype.kind in "biuf"
  if not (are_numbers and has_channels):
    return ExampleInputs(values)
  if min(pictures.shape[1:3]) < LEAST_PIXELS:
    return ExampleInputs(values)
  # Not all, which may be a mapped file that is larger than memory.
  some = pictures[:LOOKED_AT]
  return ExampleInputs(pictures, extremes=(float(some.min()), float(some.max())))


def show_input(inputs: ExampleInputs, example: int) -> str:
  """Return an example as HTML; nothing if its input is not at hand."""
  if inputs.values is None:
    return ""
  if inputs.extremes:
    picture = _image(inputs, example, MOST_PIXELS)
    return Markup('<img class="picture" src="{}" alt="example {}">').format(
      _encode(picture, "png", "PNG"), example
    )
  return Markup("<code>{}</code>").format(text_of(inputs, example))


def text_of(inputs: ExampleInputs, example: int) -> str:
  """Return an example that is no picture, cut where it is long."""
  value = inputs.values[example]
  if value.dtype.kind in "US":
    # Bytes need not be UTF-8.
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    if len(text) > MOST_CHARACTERS:
      text = f"{text[:MOST_CHARACTERS]}…"
    return text
  numbers = value.ravel()
  text = ", ".join(f"{number:.4g}" for number in numbers[:MOST_NUMBERS])
  if numbers.size > MOST_NUMBERS:
    text += ", …"
  return text


def tile_pictures(inputs: ExampleInputs, examples: Sequence[int]) -> dict[str, Any]:
  """Return pictures side by side in one image, 50 a row: its address, and the width and
  height of a picture.
  """
  small = [np.asarray(_image(inputs, i, MOST_OF_TILES)) for i in examples]
  height, width, *channels = small[0].shape
  rows = math.ceil(len(small) / TILES_A_ROW)
  columns = min(len(small), TILES_A_ROW)
  # One image is many times smaller, and faster to show, than an image for each.
  whole = np.zeros((rows * height, columns * width, *channels), np.uint8)
  for n, tile in enumerate(small):
    row, column = divmod(n, TILES_A_ROW)
    y, x = row * height, column * width
    whole[y : y + height, x : x + width] = tile
  address = _encode(Image.fromarray(whole), "webp", "WEBP", quality=88)
  return {"address": address, "width": width, "height": height, "columns": columns}


def _image(inputs: ExampleInputs, example: int, most: int) -> Image.Image:
  """Return a picture with sides of at most so many pixels."""
  low, high = inputs.extremes
  values = np.asarray(inputs.values[example], np.float32)
  # Pictures of one colour have no contrast to stretch.
  contrast = (high - low) or 1
  # Those beyond the first examples may be darker or brighter than these.
  scaled = 255 * np.clip((values - low) / contrast, 0, 1)
  pixels: UInt8[np.ndarray, "height width channels"] = np.rint(scaled).astype(np.uint8)
  # Pillow wants grey pictures without an axis of channels.
  if pixels.shape[2] == 1:
    pixels = pixels[..., 0]
  image = Image.fromarray(pixels)
  image.thumbnail((most, most))
  return image


def _encode(image: Image.Image, kind: str, name: str, **options: Any) -> str:
  """Return an image as a data URI."""
  stream = io.BytesIO()
  image.save(stream, name, **options)
  text = base64.b64encode(stream.getvalue()).decode()
  return f"data:image/{kind};base64,{text}"
