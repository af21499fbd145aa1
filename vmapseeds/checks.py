"""What a results folder must be like before its data are used: folders come from anywhere."""

import json
import math
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
from jaxtyping import Shaped

from vmapseeds.data.sources import MOST_CLASSES
from vmapseeds.errors import Mistake, safe_name
from vmapseeds.lanes.choice import free_host_memory
from vmapseeds.recipe import Recipe
from vmapseeds.runs import MOST_RUNS

MOST_METADATA = 2**26  # bytes of a zarr.json
MOST_CHUNKS = 10**6
IMPORTED = "imported"
REMEDY = "give a folder as `vmapseeds train` or `import` left it"
# Codecs that only unpack numbers; others may run code, or read other files.
CODECS = {
  "BytesCodec", "ZstdCodec", "GzipCodec", "BloscCodec", "Crc32cCodec", "ShardingCodec", "TransposeCodec",
}  # fmt: skip
# Attributes of an array by which xarray changes its values.
DECODED = {"_FillValue", "missing_value", "scale_factor", "add_offset", "units", "calendar", "_Unsigned", "dtype"}

# Of each array: its kinds of numbers and its dimensions.
ROOT = {"done": ("b", ("run",)), "diverged": ("b", ("run",))}
TEST_SET = {
  "predictions": ("i", ("run", "example")), "labels": ("iu", ("example",)), "accuracy": ("f", ("run",)),
}  # fmt: skip
OPTIONAL = {"logits": ("f", ("run", "example", "class")), "label_map": ("iu", ("run", "original_class"))}


def check_folder(path: str | os.PathLike, test_set: str | None = None) -> None:
  """`Mistake` where a results folder is not as vmapseeds writes it; the data of its runs are not read.

  A folder that says of itself that it is none of ours is left to others to refuse.

  Args:
    path: the folder.
    test_set: which is to be read; None where the folder is to be extended.
  """
  path = Path(path)
  attributes = _attributes(path)
  if attributes is None:
    return
  _check_attributes(path, attributes)
  for link in _links(path):
    raise Mistake(f"{link} is a link, and might lead out of the results: copy them with what they link to (cp -rL)")
  sets = attributes.get("test_sets") or json.loads(attributes["recipe"])["test_sets"]
  if test_set is not None and test_set not in sets:
    return
  for one in [test_set] if test_set else sets:
    # Zarr keeps some metadata as they came, of whatever type.
    reading(str(path), lambda one=one: _check_arrays(path, one, attributes["num_classes"], exact=test_set is not None))


def read(array: xr.DataArray) -> Shaped[np.ndarray, "..."]:
  """The values of an array. `Mistake` where its chunks cannot be read."""
  return reading(f"{array.name}", lambda: array.values)


def check_values(results: xr.Dataset) -> None:
  """`Mistake` for labels, predictions and accuracies that cannot be."""
  for name in ("labels", "accuracy", "diverged"):
    if name not in results:
      raise Mistake(f"{name} cannot be read: {REMEDY}")
  classes = results.attrs["num_classes"]
  original = classes
  if "label_map" in results:
    original = results.sizes["original_class"]
    _within("label_map", read(results.label_map), 0, classes - 1)
  _within("labels", read(results.labels), 0, original - 1)
  if "predictions" in results:
    _within("predictions", read(results.predictions), -1, classes - 1)
  kept = ~read(results.diverged)
  _within("accuracy", read(results.accuracy)[kept], 0, 1)


def _within(name: str, values: np.ndarray, low: int, high: int) -> None:
  # Written so that NaN is refused too.
  if values.size and not (values.min() >= low and values.max() <= high):
    raise Mistake(f"{name} goes from {values.min()} to {values.max()}, not within {low} to {high}: {REMEDY}")


def _attributes(path: Path) -> dict[str, Any] | None:
  """The attributes of what says that it is results of ours."""
  file = path / "zarr.json"
  try:
    if file.stat().st_size > MOST_METADATA or not file.is_file():
      raise Mistake(f"{file} is no file, or larger than {MOST_METADATA >> 20} MiB: {REMEDY}")
    attributes = json.loads(file.read_bytes())["attributes"]
  except Mistake:
    raise
  except RecursionError:
    raise Mistake(f"{file} is nested too deeply: {REMEDY}") from None
  except (OSError, ValueError, KeyError, TypeError):
    return None
  ours = isinstance(attributes, dict) and str(attributes.get("format")).startswith("vmapseeds results")
  return attributes if ours else None


def _check_attributes(path: Path, attributes: dict[str, Any]) -> None:
  def must(name: str, fits: Callable[[Any], bool]) -> None:
    if name not in attributes:
      if name in ("num_classes", "recipe"):
        raise Mistake(f"{path} lacks the attribute {name}: {REMEDY}")
    elif not fits(attributes[name]):
      raise Mistake(f"{path} has {name} {attributes[name]!r:.100}: {REMEDY}")

  def text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 1000 and value.isprintable()

  def whole(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most

  must("num_classes", lambda v: whole(v, MOST_CLASSES))
  must("device_kind", text)
  must("lane_width", lambda v: v is None or whole(v, MOST_RUNS))
  must("lowering", lambda v: v is None or text(v))
  must("versions", lambda v: isinstance(v, dict) and all(map(text, (*v, *v.values()))))
  must("logits", lambda v: isinstance(v, bool))
  must("columns", lambda v: isinstance(v, list) and all(map(text, v)))
  must("sampling", lambda v: v is None or (isinstance(v, list) and len(v) == 2 and v[0] in ("subset", "bootstrap")))
  must("precision", lambda v: v is None or text(v))
  must("data_digest", lambda v: v is None or text(v))
  must("test_sets", lambda v: isinstance(v, list) and v and all(map(text, v)) and len({*v}) == len(v))
  must("recipe", lambda v: isinstance(v, str))
  for test_set in attributes.get("test_sets", ()):
    safe_name(f"{path}: test set", test_set)
  try:
    if attributes.get("device_kind") in (None, IMPORTED):
      recipe = json.loads(attributes["recipe"], parse_constant=_no_number)
      if not (isinstance(recipe, dict) and text(recipe.get("name")) and isinstance(recipe.get("test_sets"), list)):
        raise Mistake("the recipe has no name or no test_sets")
    else:
      Recipe.from_json(attributes["recipe"])
  except (Mistake, ValueError, RecursionError) as error:
    raise Mistake(f"{path} has a recipe that is none ({error!s:.300}): {REMEDY}") from None


def _no_number(text: str) -> None:
  raise ValueError(f"{text} is no number")


def _links(folder: Path) -> Iterator[str]:
  """All links in a folder, at any depth."""
  with os.scandir(folder) as entries:
    for entry in entries:
      if entry.is_symlink():
        yield entry.path
      elif entry.is_dir():
        yield from _links(Path(entry.path))


def _check_arrays(path: Path, test_set: str, num_classes: int, *, exact: bool) -> None:
  """`Mistake` unless the arrays of the root and of a test set are numbers and, if `exact`, fit each other."""
  sizes: dict[str, tuple[int, str]] = {"class": (num_classes, "num_classes")}
  seen = set()
  for group, due in ((None, ROOT), (test_set, TEST_SET)):
    where = path / group if group else path
    # As xarray opens them; format 2 could hold pickled objects.
    opened = reading(str(where), lambda group=group: zarr.open_group(path, path=group, mode="r", zarr_format=3))
    if opened.metadata.zarr_format != 3:
      raise Mistake(f"{where} is of Zarr format {opened.metadata.zarr_format}, not 3: {REMEDY}")
    if exact and opened.metadata.consolidated_metadata is None:
      raise Mistake(f"{where} has no consolidated metadata: run zarr.consolidate_metadata on it")
    arrays = dict(reading(str(where), lambda opened=opened: list(opened.arrays())))
    for name in due.keys() - arrays.keys():
      raise Mistake(f"{where} lacks the array {name}: {REMEDY}")
    for name in arrays.keys() & seen:
      raise Mistake(f"{where} has an array {name!r:.100} twice: {REMEDY}")
    seen |= arrays.keys()
    for name, array in arrays.items():
      kinds, dimensions = (due | OPTIONAL).get(name, ("biuf", array.metadata.dimension_names))
      _check_array(f"{where / safe_name('array', name)}", array, kinds, dimensions)
      for dimension, size in zip(dimensions, array.shape, strict=True):
        of, first = sizes.setdefault(dimension, (size, name))
        if exact and of != size:
          raise Mistake(f"{where}: {name} has {size} of {dimension}, {first} has {of}: {REMEDY}")
    if exact:
      for name in due.keys() & {"done", "diverged", "labels"}:
        reading(f"{where / name}", lambda array=arrays[name]: array[:])


def _check_array(where: str, array: zarr.Array, kinds: str, dimensions: tuple[str, ...] | None) -> None:
  metadata = array.metadata
  if metadata.zarr_format != 3 or array.dtype.kind not in kinds:
    raise Mistake(f"{where} has dtype {array.dtype} in Zarr format {metadata.zarr_format}, not numbers: {REMEDY}")
  if (
    dimensions is None or None in dimensions or metadata.dimension_names != dimensions or len(dimensions) != array.ndim
  ):
    raise Mistake(f"{where} has dimensions {metadata.dimension_names}, not {dimensions}: {REMEDY}")
  for codec in _codecs(metadata.codecs):
    if codec not in CODECS:
      raise Mistake(f"{where} is packed by {codec}: {REMEDY}")
  for name in DECODED & metadata.attributes.keys():
    raise Mistake(f"{where} has the attribute {name}: {REMEDY}")
  chunks = array.chunks
  if 0 in chunks or math.prod(-(-n // c) for n, c in zip(array.shape, chunks, strict=True)) > MOST_CHUNKS:
    raise Mistake(f"{where} has shape {array.shape} in chunks of {chunks}: {REMEDY}")
  if (dimensions[:1] == ("run",) and array.shape[0] > MOST_RUNS) or math.prod(chunks) * array.dtype.itemsize > 2**40:
    raise Mistake(f"{where} has shape {array.shape} in chunks of {chunks}, more than can be: {REMEDY}")
  if array.ndim < 3 and array.nbytes > free_host_memory():
    raise Mistake(f"{where} has shape {array.shape}, {array.nbytes / 1e9:.3g} GB, more memory than is free: {REMEDY}")


def _codecs(codecs: Any) -> Iterator[str]:
  for codec in codecs:
    yield type(codec).__name__
    yield from _codecs((*getattr(codec, "codecs", ()), *getattr(codec, "index_codecs", ())))


def reading(what: str, reads: Callable[[], Any]) -> Any:
  """What `reads` returns. `Mistake` for whatever Zarr and its codecs raise at metadata and chunks that are damaged."""
  try:
    with warnings.catch_warnings():
      # Of what a folder may hold beside results, and of what is refused here.
      warnings.simplefilter("ignore")
      return reads()
  except Mistake:
    raise
  except Exception as error:
    said = str(error).strip().partition("\n")[0]
    raise Mistake(f"{what} cannot be read ({type(error).__name__}: {said:.200}): {REMEDY}") from error
