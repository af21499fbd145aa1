"""What a results folder holds, and its metadata: one campaign's folder, a Zarr v3 group.

The root group holds what is per run: `seed_<source>`, swept hyperparameters by their names, `poke_step`, `label_map`,
`subset`, `diverged`, and `done`, which is written last and says that a run's row is complete. Each test set is a group
with `predictions(run, example)`, `accuracy(run)`, `labels(example)` and, on request, `logits(run, example, class)`.
The group `variables` is there on request, with an array a leaf (`vmapseeds.variables`); the folder `checkpoints`, which
is no group, while runs are in training (`vmapseeds.checkpoints`).
The root's attributes hold the recipe as JSON, the names of the test sets and what the results depend on: device kind,
lane width, lowering, precision (what `auto` came to), data, the mean and deviation of its pixels.

Arrays are cut into blocks of `block_runs` runs (an attribute), one object each, with a checksum at its end; all of a
block's objects are there when one of its runs is done. See `vmapseeds.blocks` for what the folder `blocks` holds.
Folders of early versions have no blocks: neither that attribute nor that folder nor checksums.

Runs that were imported (`vmapseeds.imports`) are in the same format. They have no seed and none diverged; `device_kind`
is "imported", `lane_width`, `lowering`, `precision` and `data_digest` are None, and `recipe` is the JSON not of a
`Recipe` but of `name`, `dataset` (None), `test_sets` and `imported`: file, shape and dtype of each array that came.
"""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool
from upath import UPath

from vmapseeds import blocks, checks
from vmapseeds.checks import IMPORTED
from vmapseeds.errors import Mistake
from vmapseeds.recipe import Recipe
from vmapseeds.runs import MOST_RUNS
from vmapseeds.stores import is_remote, place

FORMAT = "vmapseeds results 1"
COPY = f"{blocks.FOLDER}/folder.json"  # of the root's zarr.json
# Of variables that have more than a number a run.
DIMENSIONS = {
  "label_map": ("run", "original_class"), "subset": ("run", "train_example"), "labels": ("example",),
  "predictions": ("run", "example"), "logits": ("run", "example", "class"),
}  # fmt: skip
VARIABLES = "variables"


def attributes(path: str | os.PathLike, file: str = "zarr.json") -> dict[str, Any] | None:
  """The attributes of a results folder, None where there is none."""
  return ours(parsed(place(path) / file))


def ours(root: Any) -> dict[str, Any] | None:
  """The attributes in a root's metadata, None where these are not of results."""
  found = root.get("attributes") if isinstance(root, dict) else None
  return found if isinstance(found, dict) and found.get("format") == FORMAT else None


def test_sets(path: str | os.PathLike) -> tuple[str, ...]:
  """The names of the test sets of a results folder, the default first."""
  return test_sets_of(attributes(path))


def test_sets_of(stored: dict[str, Any]) -> tuple[str, ...]:
  """The same, of the folder with these attributes."""
  # The first release wrote them into the recipe only.
  return tuple(stored["test_sets"]) if "test_sets" in stored else Recipe.from_json(stored["recipe"]).test_sets


def consolidate(path: Path | UPath) -> None:
  """Copies all metadata into one file a group, where it is not there yet, and the root's file into `blocks`.

  Without it `xarray.open_zarr` warns and reads array by array.
  """
  root = parsed(path / "zarr.json")
  found = parsed_all(path, metadata_files(root["attributes"]))
  nodes = {file.removesuffix("/zarr.json"): node for file, node in found.items()}
  for node in nodes.values():
    node.pop("consolidated_metadata", None)
    # An extension that was interrupted left some arrays longer.
    if node.get("dimension_names", [""])[0] == "run":
      node["shape"][0] = min(node["shape"][0], nodes["done"]["shape"][0])
  for name in groups(root["attributes"]):
    copies = {**checks.INLINE, "metadata": inside(nodes, name)}
    _rewrite(path / name / "zarr.json", {**nodes[name], "consolidated_metadata": copies})
  # The root counts for readers; the copy is first, so that it is never the older one.
  whole = {**root, "consolidated_metadata": {**checks.INLINE, "metadata": nodes}}
  if is_remote(path) or (path / blocks.FOLDER).is_dir():
    _rewrite(path / COPY, whole)
  _rewrite(path / "zarr.json", whole)


def _rewrite(file: Path | UPath, node: dict[str, Any]) -> None:
  if parsed(file) != node:
    blocks.replace(file, json.dumps(node, indent=2))


def parsed(file: Path | UPath) -> Any:
  """What a JSON file holds, None where it cannot be read."""
  return parsed_all(file.parent, [file.name])[file.name]


def parsed_all(folder: Path | UPath, files: list[str]) -> dict[str, Any]:
  """What JSON files hold, None for those that cannot be read."""

  def value(text: bytes | None) -> Any:
    with contextlib.suppress(ValueError):
      return blocks.parse(text)

  return {file: value(text) for file, text in blocks.read_all(folder, files).items()}


def metadata_files(root: dict[str, Any]) -> list[str]:
  """The metadata files below the root that a folder with these attributes has."""
  arrays = [*root["columns"], *outcomes(root), "done", *(f"{name}/labels" for name in test_sets_of(root))]
  # Zarr takes consolidated nodes group by group.
  return [f"{name}/zarr.json" for name in sorted((*groups(root), *arrays), key=lambda name: name.rpartition("/")[0])]


def groups(root: dict[str, Any]) -> list[str]:
  """The groups that a folder with these attributes has."""
  return [*test_sets_of(root), *[VARIABLES] * bool(root.get("variables"))]


def outcomes(root: dict[str, Any]) -> list[str]:
  """The arrays of what became of each run, but for `done`."""
  of_tests = ["predictions", "accuracy"] + ["logits"] * root["logits"]
  of_networks = [f"{VARIABLES}/{name}" for name in root.get("variables", {})]
  return ["diverged", *(f"{name}/{variable}" for name in test_sets_of(root) for variable in of_tests), *of_networks]


def metadata_faults(path: Path | UPath) -> list[tuple[str, str]]:
  """Metadata files that are missing, cannot be read or differ from the root's copy of them, and what is wrong."""
  copies = parsed(path / "zarr.json")["consolidated_metadata"]["metadata"]
  found = []
  for file, node in parsed_all(path, metadata_files(attributes(path))).items():
    copy = copies[file.removesuffix("/zarr.json")]
    if not isinstance(node, dict):
      found.append((file, "cannot be read" if blocks.exists(path / file) else "is missing"))
      continue
    if not checks.same(node | {"consolidated_metadata": None}, _as_long(copy, node) | {"consolidated_metadata": None}):
      found.append((file, "differs from the root's copy of it"))
  return found


def _as_long(copy: dict[str, Any], node: Any) -> dict[str, Any]:
  """The root's copy of an array's metadata, as long as the array.

  An extension that was interrupted leaves some arrays longer than the root says; the next one completes it.
  """
  shape = node.get("shape") if isinstance(node, dict) else None
  first = shape[:1] if isinstance(shape, list) else []
  if first and type(first[0]) is int and copy.get("shape", first)[0] < first[0] <= MOST_RUNS:
    return {**copy, "shape": [*first, *copy["shape"][1:]]}
  return copy


def same_copies(group: Any, copies: dict[str, Any], attributes: dict[str, Any]) -> bool:
  """Whether what a group's file holds is these attributes and these copies, but for arrays that became longer."""
  held = group.get("consolidated_metadata") if isinstance(group, dict) else None
  held = held.get("metadata") if isinstance(held, dict) else None
  held = held if isinstance(held, dict) else {}
  copies = {name: _as_long(copy, held.get(name)) for name, copy in copies.items()}
  whole = {**checks.GROUP, "attributes": attributes, "consolidated_metadata": {**checks.INLINE, "metadata": copies}}
  return checks.same(group, whole)


def inside(nodes: dict[str, Any], group: str) -> dict[str, Any]:
  """Those of the root's nodes that lie in a group, by their names there."""
  return {name.removeprefix(f"{group}/"): node for name, node in nodes.items() if name.startswith(f"{group}/")}


UNLIKE = "differs from the root's copy of its arrays"


def group_is_whole(path: Path | UPath, group: str, root: dict[str, Any]) -> bool:
  """Whether a group's metadata, and its copies of those of its arrays, are as the root says."""
  copies = inside(root["consolidated_metadata"]["metadata"], group)
  return same_copies(parsed(path / group / "zarr.json"), copies, checks.GROUP["attributes"])


def dimensions(root: dict[str, Any]) -> dict[str, tuple[str, ...]]:
  """Those of each array, by its path, that a folder with these attributes has."""
  names = (file.removesuffix("/zarr.json") for file in metadata_files(root))
  of_networks = {
    f"{VARIABLES}/{name}": ("run", *(f"{name}.{axis}" for axis in range(len(shape))))
    for name, shape in root.get("variables", {}).items()
  }
  known = {name: DIMENSIONS.get(name.split("/")[-1], ("run",)) for name in names if name not in groups(root)}
  return known | of_networks


def root_fault(path: Path, file: str = "zarr.json") -> str | None:
  """What is wrong with the root's metadata, or with a copy of them."""
  return checks.root_fault(parsed(path / file), dimensions)


def checked(path: str | os.PathLike) -> dict[str, Any] | None:
  """The attributes of a results folder that is well formed, None where there is none. `Mistake` for a damaged one."""
  return ours(checked_root(place(path)))


def checked_root(path: Path | UPath) -> dict[str, Any] | None:
  """What the `zarr.json` of such a folder holds."""
  root = parsed(path / "zarr.json")
  if ours(root) is None:
    if attributes(path, COPY):
      raise damaged(path, ["zarr.json cannot be read"])
    return None
  for stray in checks.strays(path):
    raise damaged(path, [stray])
  if fault := checks.root_fault(root, dimensions):
    raise damaged(path, [f"zarr.json {fault}"])
  return root


def object_path(name: str, block: int, ndim: int) -> str:
  """The path in a results folder of the object that holds an array's block."""
  return "/".join((name, "c", str(block), *["0"] * (ndim - 1)))


def missing(path: Path | UPath, stored: dict[str, Any], done: Bool[np.ndarray, " runs"]) -> list[str]:
  """The objects and records that should be there, given which runs are done, and are not: by names, nothing is read."""
  begun = np.unique(np.flatnonzero(done) // stored["block_runs"]).tolist()
  there = blocks.names(path)
  recorded = [k for k in range(-(-len(done) // stored["block_runs"])) if f"{blocks.FOLDER}/{k}.json" in there]
  lost = []
  for name, axes in dimensions(stored).items():
    wanted = {"done": [*begun, *recorded], "labels": [0]}.get(name.split("/")[-1], begun)
    lost += [object_path(name, block, len(axes)) for block in wanted]
  if stored["device_kind"] != IMPORTED:
    lost += [f"{blocks.FOLDER}/{block}.json" for block in begun]
  return [file for file in lost if file not in there]


def damaged(path: str | os.PathLike, faults: list[str]) -> Mistake:
  """What is said of a folder that cannot be trusted."""
  more = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
  return Mistake(f"{path} is damaged: {faults[0]}{more}; `vmapseeds verify {path}` says what, and --repair helps")


def said(error: BaseException) -> str:
  """An error's text in one line."""
  return " ".join(str(error).split())[:120] or type(error).__name__
