"""What a results folder must be like before it is opened, its values before they are used: folders come from anywhere.

Metadata are checked before Zarr sees them: what they say must be what vmapseeds writes, so that nothing is run, read
from elsewhere or made room for that should not be. Nothing here reads what is kept of runs.
"""

import json
import math
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from upath import UPath

from vmapseeds import blocks
from vmapseeds.data.sources import MOST_CLASSES
from vmapseeds.errors import Mistake
from vmapseeds.lanes import LOWERINGS
from vmapseeds.lanes.choice import free_host_memory
from vmapseeds.recipe import Recipe, check_test_sets
from vmapseeds.runs import HYPERPARAMETERS, MOST_RUNS, OPTIONAL, SOURCES
from vmapseeds.stores import is_remote

MIXED = "mixed"  # a condition that is not the same for all runs: records have those of each
IMPORTED = "imported"  # the device kind of runs from elsewhere
MOST_BLOCKS = 10**6
MOST_NUMBERS = 2**44  # of an object
REMEDY = "give a folder as `vmapseeds train` or `import` left it"


# Attributes: what each must be.


def _text(value: Any) -> bool:
  return isinstance(value, str) and len(value) <= 1000 and value.isprintable()


def _whole(most: int) -> Callable[[Any], bool]:
  return lambda value: type(value) is int and 1 <= value <= most


def _texts(value: Any) -> bool:
  return isinstance(value, list) and all(map(_text, value)) and len({*value}) == len(value)


def _words(value: Any) -> bool:
  return isinstance(value, dict) and all(map(_text, (*value, *value.values())))


def _sampling(value: Any) -> bool:
  if not (isinstance(value, list) and len(value) == 2):
    return value is None
  return value[0] in ("subset", "bootstrap") and (value == ["bootstrap", None] or _whole(2**31)(value[1]))


def _variables(value: Any) -> bool:
  """Whether it gives shapes of the leaves of a tree, by names that are their paths with dots."""
  return (
    isinstance(value, dict)
    and all(len(name) <= 200 and re.fullmatch(r"\w+(\.\w+)+", name, re.ASCII) for name in value)
    and all(isinstance(shape, list) and all(map(_whole(2**40), shape)) for shape in value.values())
    and not any(other.startswith(f"{name}.") for name in value for other in value)
  )


def _pixels(value: Any) -> bool:
  """Whether it is a number a channel."""
  return value == MIXED or (isinstance(value, list) and all(type(n) is float and math.isfinite(n) for n in value))


COLUMNS = (*(f"seed_{source}" for source in SOURCES), *HYPERPARAMETERS, *OPTIONAL)
ATTRIBUTES: dict[str, Callable[[Any], bool]] = {
  "num_classes": _whole(MOST_CLASSES),
  "logits": lambda value: isinstance(value, bool),
  "columns": lambda value: _texts(value) and {*value} <= {*COLUMNS},
  "sampling": _sampling,
  "device_kind": _text,
  "lane_width": lambda value: value in (None, MIXED) or _whole(MOST_RUNS)(value),
  "lowering": lambda value: value in (None, MIXED, *LOWERINGS),
  "precision": lambda value: value is None or _text(value),
  "data_digest": lambda value: value is None or _text(value),
  "mean": _pixels,
  "std": _pixels,
  "versions": _words,
  "recipe": lambda value: isinstance(value, str),
  "test_sets": _texts,
  "block_runs": _whole(MOST_RUNS),
  "label_digests": _words,
  "mixed": _texts,
  "variables": _variables,
}
# Not there from the first.
OF_NOW = ("precision", "mean", "std", "test_sets", "block_runs", "label_digests", "mixed", "variables")
SEEDS = {f"seed_{source}" for source in SOURCES}

# Arrays: kinds of numbers, and fill values as JSON has them.
TYPES = (
  "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
)  # fmt: skip
KINDS = {
  **dict.fromkeys(("done", "diverged"), "b"), **dict.fromkeys(("accuracy", "logits", "poke_factor"), "f"),
  **dict.fromkeys(("poke_step", "predictions"), "i"), **dict.fromkeys(("labels", "label_map", "subset"), "iu"),
  **dict.fromkeys(HYPERPARAMETERS, "f"), **dict.fromkeys(SEEDS, "u"),
}  # fmt: skip
FILLS = {"b": ("false",), "i": ("0", "-1"), "u": ("0",), "f": ('"NaN"', "0.0")}
LITTLE, PLAIN = {"name": "bytes", "configuration": {"endian": "little"}}, {"name": "bytes"}
ZSTD, CRC = {"name": "zstd", "configuration": {"level": 0, "checksum": False}}, {"name": "crc32c"}
PACKED = [], [ZSTD], [CRC], [ZSTD, CRC]
GROUP = {"zarr_format": 3, "node_type": "group", "attributes": {}}
INLINE = {"kind": "inline", "must_understand": False}


def root_fault(root: Any, arrays: Callable[[dict[str, Any]], dict[str, tuple[str, ...]]]) -> str | None:
  """What is wrong with the root's `zarr.json`, None where nothing is.

  Args:
    root: what the file holds.
    arrays: gives the dimensions of each array, by its path, that a folder with some attributes has.
  """
  try:
    stored = root["attributes"]
    _check_attributes(stored)
    _check_nodes(root, stored, arrays(stored))
  except Mistake as mistake:
    return str(mistake)
  except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
    return f"is not as it was written ({type(error).__name__}: {error!s:.80})"


def _check_attributes(stored: dict[str, Any]) -> None:
  for name, fits in ATTRIBUTES.items():
    if name not in stored and name not in OF_NOW:
      raise Mistake(f"lacks the attribute {name}")
    if name in stored and not fits(stored[name]):
      raise Mistake(f"has {name} {stored[name]!r:.100}")
  try:
    if stored["device_kind"] == IMPORTED:
      recipe = json.loads(stored["recipe"])
      sets = recipe["test_sets"]
      if not _text(recipe["name"]):
        raise Mistake(f"name is {recipe['name']!r:.100}")
    else:
      sets = list(Recipe.from_json(stored["recipe"]).test_sets)
    check_test_sets(stored.get("test_sets", sets))
  except (LookupError, RecursionError, TypeError, ValueError) as error:
    raise Mistake(f"has a recipe or test_sets that cannot be ({error!s:.300})") from None
  if not same(sets, stored.get("test_sets", sets)):
    raise Mistake(f"has test_sets {stored['test_sets']!r:.100}, and {sets!r:.100} in its recipe")
  if stored["device_kind"] != IMPORTED and not {*stored["columns"]} >= SEEDS:
    raise Mistake(f"has columns {stored['columns']!r:.100}, which lack seeds")


def _check_nodes(root: dict[str, Any], stored: dict[str, Any], arrays: dict[str, tuple[str, ...]]) -> None:
  copies = root.get("consolidated_metadata") or {}
  nodes = copies.get("metadata") or {}
  if not same({**root, "attributes": {}, "consolidated_metadata": {**copies, "metadata": {}}},
              {**GROUP, "consolidated_metadata": {**INLINE, "metadata": {}}}):  # fmt: skip
    raise Mistake("is not a group's of Zarr format 3 with consolidated metadata")
  groups = {name.split("/")[0] for name in arrays if "/" in name}
  for name in sorted({*nodes} ^ {*arrays, *groups}):
    raise Mistake(f"describes {name!r:.100}, which is not one of its arrays" if name in nodes else f"lacks {name}")
  for name in groups:
    if not same(nodes[name] | {"consolidated_metadata": None}, {**GROUP, "consolidated_metadata": None}):
      raise Mistake(f"says of {name} what is not of a group")
  sizes = {"class": stored["num_classes"]}
  sizes |= {f"{name}.{i}": n for name, shape in stored.get("variables", {}).items() for i, n in enumerate(shape)}
  if "block_runs" in stored:
    sizes["block"] = stored["block_runs"]
  for name, dimensions in arrays.items():
    try:
      _check_array(name, nodes[name], dimensions, sizes)
    except Mistake as mistake:
      raise Mistake(f"says of {name} that {mistake}") from None
  if sum(_bytes(nodes[name]) for name in stored["columns"]) > free_host_memory():
    raise Mistake("says of its runs table that it is larger than free memory")


def _bytes(node: dict[str, Any]) -> int:
  return math.prod(node["shape"]) * np.dtype(node["data_type"]).itemsize


def _check_array(name: str, node: dict[str, Any], dimensions: tuple[str, ...], sizes: dict[str, int]) -> None:
  """`Mistake` unless an array is of numbers and fits those that were checked before it, whose `sizes` are kept."""
  *test_set, variable = name.split("/")
  shape, chunks = node["shape"], node["chunk_grid"]["configuration"]["chunk_shape"]
  kind = np.dtype(node["data_type"] if node["data_type"] in TYPES else object)
  if kind.kind not in KINDS.get(variable, "f"):
    raise Mistake(f"its data_type is {node['data_type']!r:.100}")
  fixed = {
    "shape": shape, "data_type": kind.name, "fill_value": node["fill_value"], "codecs": node["codecs"],
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, "attributes": {},
    "dimension_names": list(dimensions), "zarr_format": 3, "node_type": "array", "storage_transformers": [],
  }  # fmt: skip
  for key in sorted({*node} | {*fixed}):
    if not same(node.get(key), fixed.get(key)):
      raise Mistake(f"its {key} is {node.get(key)!r:.100}, not {fixed.get(key)!r:.100}")
  if json.dumps(node["fill_value"]) not in FILLS[kind.kind]:
    raise Mistake(f"its fill_value is {node['fill_value']!r:.100}")
  unpacked = [LITTLE] if kind.itemsize > 1 else [LITTLE, PLAIN]
  if not any(same(node["codecs"], [first, *rest]) for first in unpacked for rest in PACKED):
    raise Mistake(f"its codecs are {node['codecs']!r:.100}")
  if not all(_whole(2**40)(n) for n in (*shape, *chunks)) or len(shape) != len(dimensions):
    raise Mistake(f"its shape is {shape!r:.100}, in chunks of {chunks!r:.100}")
  for dimension, size in zip(dimensions, shape, strict=True):
    key = "/".join([*test_set, dimension]) if dimension == "example" else dimension
    if sizes.setdefault(key, size) != size:
      raise Mistake(f"it has {size} of {dimension}, where others have {sizes[key]}")
  block = sizes.setdefault("block", chunks[0]) if dimensions[0] == "run" else shape[0]
  if chunks != [block, *shape[1:]]:
    raise Mistake(f"its chunks are {chunks}, not {[block, *shape[1:]]}")
  if sizes.get("run", 0) > min(MOST_RUNS, MOST_BLOCKS * sizes.get("block", 1)) or math.prod(chunks) > MOST_NUMBERS:
    raise Mistake(f"its shape is {shape}, in chunks of {chunks}: more than can be")


def same(one: Any, other: Any) -> bool:
  """Whether two JSON values are equal; to Python so are 1, 1.0 and true."""
  return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def strays(folder: Path | UPath) -> Iterator[str]:
  """What is neither file nor folder in a results folder, at any depth: links lead elsewhere, pipes wait for ever."""
  folders = [] if is_remote(folder) else [""]  # a store has objects alone
  while folders:
    inside = folders.pop()
    try:
      with os.scandir(folder / inside) as entries:
        for entry in entries:
          name = f"{inside}{entry.name}"
          if entry.is_dir(follow_symlinks=False):
            folders.append(f"{name}/")
          elif not entry.is_file(follow_symlinks=False):
            yield f"{name} is {'a link' if entry.is_symlink() else 'a pipe or a device'}"
          elif name == blocks.FOLDER:
            yield f"{name} is a file"
    except FileNotFoundError:
      pass  # another process has removed it
    except OSError as error:
      yield f"{inside or folder} cannot be read ({error.strerror})"


# Values.


def check_memory(results: xr.Dataset, where: str | os.PathLike) -> None:
  """`Mistake` where results are larger than what memory is free."""
  if results.nbytes > free_host_memory():
    raise Mistake(f"{where} holds {results.nbytes / 1e9:.3g} GB to read, more than memory is free: take fewer runs")


def check_values(results: xr.Dataset, where: str | os.PathLike) -> None:
  """`Mistake` for labels, predictions and accuracies that cannot be."""
  classes = original = results.attrs["num_classes"]
  if "label_map" in results:
    original = results.sizes["original_class"]
    _check_within(f"{where}: label_map", results.label_map.values, 0, classes - 1)
  labels = results.get("original_labels", results.labels)
  _check_within(f"{where}: labels", labels.values, 0, original - 1)
  if "predictions" in results:
    _check_within(f"{where}: predictions", results.predictions.values, -1, classes - 1)
  _check_within(f"{where}: accuracy", results.accuracy.values[~results.diverged.values], 0, 1)


def _check_within(what: str, values: np.ndarray, low: int, high: int) -> None:
  # Written so that NaN is refused too.
  if values.size and not (values.min() >= low and values.max() <= high):
    raise Mistake(f"{what} goes from {values.min()} to {values.max()}, not within {low} to {high}: {REMEDY}")
