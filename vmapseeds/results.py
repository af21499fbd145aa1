"""Results on disk: one campaign's folder, a Zarr v3 group.

The root group holds what is per run: `seed_<source>`, swept hyperparameters by their names, `poke_step`, `label_map`,
`subset`, `diverged`, and `done`, which is written last and says that a run's row is complete. Each test set is a group
with `predictions(run, example)`, `accuracy(run)`, `labels(example)` and, on request, `logits(run, example, class)`.
The group `variables` is there on request, with an array a leaf (`vmapseeds.variables`); the folder `checkpoints`, which
is no group, while runs are in training (`vmapseeds.checkpoints`).
The root's attributes hold the recipe as JSON, the names of the test sets and what the results depend on: device kind,
lane width, lowering, precision (what `auto` came to), data.

Arrays are cut into blocks of `block_runs` runs (an attribute), one object each, with a checksum at its end; all of a
block's objects are there when one of its runs is done. See `vmapseeds.blocks` for what the folder `blocks` holds.
Folders of before have neither that attribute nor that folder nor checksums.

Runs that were imported (`vmapseeds.imports`) are in the same format. They have no seed and none diverged; `device_kind`
is "imported", `lane_width`, `lowering`, `precision` and `data_digest` are None, and `recipe` is the JSON not of a
`Recipe` but of `name`, `dataset` (None), `test_sets` and `imported`: file, shape and dtype of each array that came.
"""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr
import zarr
from jaxtyping import Bool, Int
from zarr.codecs import Crc32cCodec, ZstdCodec

from vmapseeds import blocks, checks
from vmapseeds.checks import IMPORTED, MIXED, axes
from vmapseeds.data import Dataset
from vmapseeds.errors import Mistake, at_least, one_of
from vmapseeds.evaluate import Evaluation
from vmapseeds.recipe import Recipe
from vmapseeds.runs import MOST_RUNS, Runs

FORMAT = "vmapseeds results 1"
COPY = f"{blocks.FOLDER}/folder.json"  # of the root's zarr.json
# Of variables that have more than a number a run.
DIMENSIONS = {
  "label_map": ("run", "original_class"), "subset": ("run", "train_example"), "labels": ("example",),
  "predictions": ("run", "example"), "logits": ("run", "example", "class"),
}  # fmt: skip
VARIABLES = "variables"
FILL = {"predictions": -1, "accuracy": np.nan, "logits": np.nan, "done": False, "diverged": False}


class Results:
  """The folder of a campaign, open for writing: made by `open_or_create`, which also extends it."""

  def __init__(self, path: str | os.PathLike):
    self.path = Path(path)
    for file, fault in metadata_faults(self.path):
      raise damaged(self.path, [f"{file} {fault}"])
    with readable(self.path):
      self.group = zarr.open_group(self.path, mode="r+", use_consolidated=False)
      self._arrays: dict[str, zarr.Array] = {}
      self.block_runs = self.array("done").chunks[0]
    self.columns = list(self.group.attrs["columns"])
    self.outcomes = _outcomes(self.group.attrs)

  @classmethod
  def open_or_create(
    cls, path: str | os.PathLike, recipe: Recipe, runs: Runs, data: Dataset, *, chunk: int, logits: bool,
    variables: dict[str, jax.ShapeDtypeStruct], conditions: dict[str, Any], versions: dict[str, str],
    force_mixed: bool = False,
  ) -> "Results":  # fmt: skip
    """The campaign's folder, made if there is none, extended if it has fewer runs.

    Args:
      chunk: runs a block of a new folder.
      variables: those of one run, by their names; none where they are not kept.
      conditions: what bit-for-bit equal results need besides the recipe: device kind, lane width, lowering,
        precision, data.
      versions: of Python and of packages.
      force_mixed: goes on under another recipe, other conditions or versions, and notes in the attributes which.

    Raises:
      Mistake: the folder holds something else, cannot be written, or belongs to another recipe, other runs or other
        conditions. Nothing is changed then.
      FileExistsError: another process has made the folder meanwhile.
    """
    path = Path(path)
    check_folder(path)
    if path.is_dir() and any(path.iterdir()):
      results = cls(path)
      with readable(path):
        mixed = results.check_same(recipe, runs, logits, bool(variables), conditions, versions, force_mixed)
        results.check_task(data, runs.num_classes(data.num_classes), variables)
        results.restore_labels(data)
        results.extend(runs)
        results.settle(conditions, versions, mixed)
      return results

    num_classes = runs.num_classes(data.num_classes)
    try:
      with made_whole(path) as draft:
        create_folder(
          draft,
          {
            "recipe": recipe.to_json(), "test_sets": list(recipe.test_sets), "num_classes": num_classes,
            "sampling": _sampling(runs), "block_runs": chunk, **conditions, "versions": versions,
          },
          runs=len(runs), columns=runs.columns(), labels={name: e.labels for name, e in data.tests.items()},
          chunk=chunk, logits=np.dtype(np.float32) if logits else None, variables=variables,
        )  # fmt: skip
    except Mistake:
      if attributes(path) is None:
        raise
      raise FileExistsError(path) from None
    return cls(path)

  def check_same(
    self, recipe: Recipe, runs: Runs, logits: bool, keep_params: bool, conditions: dict[str, Any],
    versions: dict[str, str], force_mixed: bool = False,
  ) -> list[str]:  # fmt: skip
    """`Mistake`, naming the first difference, unless the folder is of this recipe, these runs and these conditions.

    Returns:
      What differs though runs are done, which only `force_mixed` allows: names of conditions, `versions`, `recipe`.
    """
    stored = attributes(self.path)
    other = f"{self.path} belongs to another campaign"
    use = "give another --out, or what it was started with"
    force = f"{use}, or --force-mixed"
    begun, mixed = self.done.any(), []
    ours, theirs = recipe.replace(precision=conditions["precision"]), Recipe.from_json(stored["recipe"])
    # `auto` is no precision of its own; what it came to is a condition, which the first release did not write.
    if theirs.precision == "auto":
      theirs = theirs.replace(precision=ours.precision)
    stored.setdefault("precision", theirs.precision)
    difference = theirs.differences(ours)
    if difference:
      same_task = theirs.same_task(ours)
      if not (force_mixed and same_task):
        raise Mistake(f"{other}: its recipe and this one differ in {difference}; {force if same_task else use}")
      mixed.append("recipe")
    for name, value in conditions.items():
      if stored[name] != value and begun:
        if not force_mixed or name == "data_digest":
          use_what = use if name == "data_digest" else force
          raise Mistake(f"{other}: its {name.replace('_', ' ')} is {stored[name]!r}, not {value!r}; {use_what}")
        mixed.append(name)
    for package in versions.keys() & stored["versions"].keys() - {"python"}:
      if stored["versions"][package] != versions[package] and begun:
        if not force_mixed:
          theirs, ours = stored["versions"][package], versions[package]
          raise Mistake(f"{other}: its version of {package} is {theirs}, not {ours}; {force}")
        mixed.append("versions")
    if stored["logits"] != logits:
      raise Mistake(f"{other}: logits are {'' if stored['logits'] else 'not '}kept there; {use}")
    if bool(stored.get("variables")) != keep_params:
      raise Mistake(f"{other}: trained parameters are {'not ' if keep_params else ''}kept there; {use}")
    columns = runs.columns()
    if stored["columns"] != list(columns) or stored["sampling"] != _sampling(runs):
      theirs, ours = (", ".join(names) for names in (stored["columns"], columns))
      theirs, ours = f"{theirs} and sampling {stored['sampling']}", f"{ours} and {_sampling(runs)}"
      raise Mistake(f"{other}: its runs have {theirs}, these {ours}; {use}")
    self.restore(columns)
    shared = min(len(runs), len(self))
    for name, column in columns.items():
      theirs = self.array(name)[:shared]
      if theirs.shape != column[:shared].shape or not np.array_equal(theirs, column[:shared]):
        raise Mistake(f"{other}: its runs differ from these in {name}; {use}")
    return sorted(set(mixed))

  def check_task(
    self, data: Dataset, num_classes: int, variables: dict[str, jax.ShapeDtypeStruct] | None = None
  ) -> None:
    """`Mistake` unless the arrays have as many examples and classes as the task, and such variables where given."""
    attrs = self.group.attrs
    held = {f"{name}/labels": self.array(f"{name}/labels").shape for name in data.tests}
    given = {f"{name}/labels": (len(examples),) for name, examples in data.tests.items()}
    held["num_classes"], given["num_classes"] = attrs["num_classes"], num_classes
    if variables:
      held["variables"] = attrs["variables"]
      given["variables"] = {name: list(leaf.shape) for name, leaf in variables.items()}
    for name, now in given.items():
      if held[name] != now:
        raise Mistake(f"{self.path} has {name} {held[name]!s:.100}, the task {now!s:.100}: give what it was begun with")

  def settle(self, conditions: dict[str, Any], versions: dict[str, str], mixed: list[str]) -> None:
    """Writes under what runs are trained, where it is not as it was and no run is done or `mixed` allows it."""
    stored = attributes(self.path)
    if self.done.any():
      # The first release did not write the precision.
      new = {name: value for name, value in conditions.items() if name not in stored}
    else:
      new = {**conditions, "versions": versions}
    new |= {name: MIXED for name in mixed if name not in ("recipe", "versions")}
    if mixed:
      new["mixed"] = sorted({*stored.get("mixed", []), *mixed})
    if any(stored.get(name) != value for name, value in new.items()):
      self.set_attributes(**new)
    consolidate(self.path)

  def set_attributes(self, **changes: Any) -> None:
    """Writes some of the root's attributes."""
    root = json.loads((self.path / "zarr.json").read_text())
    root["attributes"] |= changes
    blocks.replace(self.path / "zarr.json", json.dumps(root, indent=2))
    consolidate(self.path)

  def extend(self, runs: Runs) -> None:
    """Makes room for all of `runs`. `done` grows last: it says how many runs the folder has."""
    columns = runs.columns()
    while len(self) < len(runs):
      self._arrays.clear()
      with blocks.Claims(self.path) as claims, whole_chunks():
        if not claims.take("folder"):  # another process extends it
          time.sleep(0.1)
          continue
        self._arrays.clear()
        before = len(self)
        for name in (*self.outcomes, *columns, "done")[: None if before < len(runs) else 0]:
          array = self.group[name]
          array.resize((len(runs), *array.shape[1:]))
          if name in columns:
            _fill(array, columns[name], before)
        self._arrays.clear()
        consolidate(self.path)

  def restore(self, columns: dict[str, np.ndarray]) -> None:
    """Writes objects of the runs table again that are lost or damaged, when it is the table they were of."""
    if "block_runs" not in self.group.attrs:
      return  # in folders of before an object of zeros alone was not written
    count = -(-len(self) // self.block_runs)
    for name, column in columns.items():
      with contextlib.suppress(Exception):
        shared = min(len(column), len(self))
        same = np.array_equal(self.array(name)[:shared], column[:shared])
        if same and len(blocks.names(self.path / name / "c")) >= count:
          continue
      for block in range(count):
        rows = self.rows(block)
        values, fault = self._values(name, block)
        if rows.stop > len(column) or (not fault and np.array_equal(values, column[rows])):
          continue
        writes = self.record(block)
        told = all(blocks.digest(column[write["rows"]]) == write["digests"].get(name) for write in writes)
        # Without a record, what can be read counts.
        if told and (fault or writes):
          blocks.remove(self.path / self.object(name, block))
          self.array(name)[rows] = column[rows]

  def restore_labels(self, data: Dataset) -> None:
    """Writes the labels of a test set again where they are lost or damaged, when they are those of `data`."""
    digests = self.group.attrs.get("label_digests", {})
    for name, examples in data.tests.items():
      array = self.array(f"{name}/labels")
      if self.faulty_labels(name) and digests.get(name) == blocks.digest(examples.labels.astype(array.dtype)):
        blocks.remove(self.path / object_path(f"{name}/labels", 0, 1))
        array[:] = examples.labels

  def runs(self) -> Runs:
    """The runs table."""
    columns = {name: self.array(name)[: len(self)] for name in self.columns}
    return Runs.from_columns(columns, self.group.attrs["sampling"])

  def rows(self, block: int) -> slice:
    """The rows of a block."""
    return slice(block * self.block_runs, min((block + 1) * self.block_runs, len(self)))

  def object(self, name: str, block: int) -> str:
    """The path in the folder of an array's object of a block."""
    return object_path(name, block, self.array(name).ndim)

  def faulty(self, name: str, block: int = 0) -> str | None:
    """Why an array cannot be read in a block, None where it can."""
    return self._values(name, block)[1]

  def _values(self, name: str, block: int) -> tuple[np.ndarray | None, str | None]:
    """An array's values in a block, or why they cannot be read."""
    if not (self.path / self.object(name, block)).is_file():
      return None, "is missing"
    try:
      return self.array(name)[self.rows(block)], None
    except Exception as error:
      return None, f"cannot be read ({said(error)})"

  def faulty_labels(self, test_set: str) -> str | None:
    """Why the labels of a test set cannot be trusted, None where they can."""
    fault = self.faulty(f"{test_set}/labels")
    kept = self.group.attrs.get("label_digests", {}).get(test_set)
    if fault or kept is None:
      return fault
    values = self.array(f"{test_set}/labels")[:]
    return None if blocks.digest(values) == kept else "holds other values than were written"

  def begin(self, block: int) -> Bool[np.ndarray, " rows"]:
    """Which runs of a block that this process has claimed are done.

    A process that was killed may have written and recorded runs without marking them: they are marked now.
    """
    if self.group["done"].shape != self.array("done").shape:
      self._arrays.clear()  # another process has extended the folder
    rows = self.rows(block)
    if not (self.path / self.object("done", block)).exists():
      self.array("done")[rows] = False
    marked = self.array("done")[rows]
    for write in self.record(block):
      here = np.asarray(write["rows"]) - rows.start
      if not marked[here].all() and not self.faults(block, [write]):
        marked[here] = True
        self.array("done")[rows] = marked
    return marked

  def faults(self, block: int, writes: list[dict[str, Any]]) -> dict[str, str]:
    """What is wrong with the objects of a block, given what was written there, by their paths."""
    found = {}
    start = self.rows(block).start
    for name in (*self.columns, *self.outcomes):
      values, fault = self._values(name, block)
      for write in writes if fault is None else ():
        here = np.asarray(write["rows"]) - start
        if max(here) >= len(values) or blocks.digest(values[here]) != write["digests"].get(name):
          fault = "holds other values than were written"
      if fault:
        found[self.object(name, block)] = fault
    return found

  def __len__(self) -> int:
    return self.array("done").shape[0]

  @property
  def done(self) -> Bool[np.ndarray, " runs"]:
    """Which runs are trained, evaluated and written."""
    return self.array("done")[:]

  def array(self, name: str) -> zarr.Array:
    """An array of the folder, opened once."""
    if name not in self._arrays:
      with whole_chunks():
        self._arrays[name] = self.group[name]
    return self._arrays[name]

  def write(
    self, rows: Int[np.ndarray, " rows"], diverged: Bool[np.ndarray, " rows"], evaluations: dict[str, Evaluation],
    variables: dict[str, np.ndarray], provenance: dict[str, Any] | None = None,
  ) -> None:  # fmt: skip
    """Writes what became of some runs, block by block: the values, then the block's record, and only then the marks.

    Args:
      variables: the trained ones by their names, where they are kept.
      provenance: what the record says of these runs besides digests of their values.
    """
    outcomes = {"diverged": diverged, **{f"{VARIABLES}/{name}": leaf for name, leaf in variables.items()}}
    for name, evaluation in evaluations.items():
      outcomes[f"{name}/predictions"] = evaluation.predictions
      outcomes[f"{name}/accuracy"] = evaluation.correct / evaluation.predictions.shape[1]
      if evaluation.logits is not None:
        outcomes[f"{name}/logits"] = evaluation.logits
    for block in np.unique(rows // self.block_runs).tolist():
      here = rows // self.block_runs == block
      try:
        self._write(block, rows[here], {name: v[here] for name, v in outcomes.items()}, provenance or {})
      except OSError:
        with contextlib.suppress(ValueError):
          if not self.record(block):
            self.forget(block)
        raise

  def _write(
    self, block: int, rows: Int[np.ndarray, " rows"], outcomes: dict[str, np.ndarray], provenance: dict
  ) -> None:
    digests = {name: blocks.digest(self.array(name).oindex[rows]) for name in self.columns}
    for name, values in outcomes.items():
      array = self.array(name)
      values = np.asarray(values).astype(array.dtype)
      array.oindex[rows] = values
      digests[name] = blocks.digest(values)
      blocks.flush(self.path / object_path(name, block, array.ndim))
    # What an earlier process recorded of these rows, and did not mark, is no more.
    writes = [w for w in self.record(block) if not set(w["rows"]) & set(rows.tolist())]
    writes.append({"rows": rows.tolist(), "digests": digests, **provenance})
    blocks.write_record(self.path, block, writes)
    self.array("done").oindex[rows] = True
    blocks.flush(self.path / object_path("done", block, 1))

  def record(self, block: int) -> list[dict[str, Any]]:
    """What was written in a block. `Mistake` where its record cannot be understood, whoever holds the block."""
    rows = self.rows(block)
    try:
      writes = blocks.record(self.path, block)
      if not all(rows.start <= row < rows.stop for row in blocks.recorded_rows(writes)):
        raise ValueError("is of other rows")
    except ValueError as error:
      raise damaged(self.path, [f"{blocks.FOLDER}/{block}.json cannot be read ({said(error)})"]) from error
    return writes

  def forget(self, block: int) -> None:
    """Removes a block's record and outcomes; none of its runs is marked done."""
    for object in (f"{blocks.FOLDER}/{block}.json", *(self.object(name, block) for name in self.outcomes)):
      blocks.remove(self.path / object)


@contextlib.contextmanager
def made_whole(path: Path) -> Iterator[Path]:
  """A place beside `path` to make a folder in, moved to `path` at the end: it is there whole or not at all.

  Raises:
    Mistake: it cannot be written. Then, and after any other exception, nothing is left of it.
  """
  place = path.resolve()
  draft = place.with_name(f".{place.name}.{os.getpid()}.new")
  new_parents = [parent for parent in place.parents if not parent.exists()]
  _remove(draft)
  try:
    yield draft
    if place.is_dir():
      place.rmdir()
    draft.rename(place)
  except BaseException as error:
    _remove(draft)
    with contextlib.suppress(OSError):
      for parent in new_parents:
        parent.rmdir()
    if isinstance(error, OSError):
      raise Mistake(f"{path} cannot be written ({error.strerror or error}): give another folder") from None
    raise


def _remove(folder: Path) -> None:
  """Removes a folder, if there is one. Zarr's threads, interrupted, still write what they had begun: hence again."""
  for _ in range(20):
    if not folder.exists():
      return
    shutil.rmtree(folder, ignore_errors=True)
    time.sleep(0.1)


def create_folder(
  path: Path, attributes: dict[str, Any], *, runs: int, columns: dict[str, np.ndarray], labels: dict[str, np.ndarray],
  chunk: int, logits: np.dtype | None, variables: dict[str, jax.ShapeDtypeStruct] | None = None,
) -> None:  # fmt: skip
  """A results folder in which no run is done.

  Args:
    attributes: those of the root; `recipe`, `test_sets` and `num_classes` must be there. `block_runs` promises that
      all objects of a block are there when one of its runs is done.
    columns: what is known of each run.
    labels: those of each test set.
    chunk: runs a chunk of the arrays.
    logits: of which dtype they are kept, None where they are not.
    variables: those of one run, by their names, where they are kept.
  """
  num_classes = attributes["num_classes"]
  variables = variables or {}
  root = {
    "format": FORMAT, "logits": logits is not None, "columns": list(columns),
    "variables": {name: leaf.shape for name, leaf in variables.items()},
    "label_digests": {name: blocks.digest(of_examples) for name, of_examples in labels.items()}, **attributes,
  }  # fmt: skip
  group = zarr.create_group(path, attributes=root)
  (path / blocks.FOLDER).mkdir()
  for name, column in columns.items():
    _create(group, name, column, chunk)
  for name in ("diverged", "done"):
    _create(group, name, np.zeros(runs, bool), chunk)
  for name, of_examples in labels.items():
    test_set = group.create_group(name)
    _create(test_set, "labels", of_examples, len(of_examples))
    shape = (runs, len(of_examples))
    none = np.int8(-1) if num_classes <= 127 else np.int16(-1)
    _create(test_set, "predictions", np.broadcast_to(none, shape), chunk)
    _create(test_set, "accuracy", np.full(runs, np.nan), chunk)
    if logits is not None:
      empty = np.broadcast_to(logits.type(np.nan), (*shape, num_classes))
      _create(test_set, "logits", empty, chunk)
  if variables:
    of_runs = group.create_group(VARIABLES)
    for name, leaf in variables.items():
      # Not compressed: trained numbers are noise in all but their first bits.
      of_runs.create_array(
        name, shape=(runs, *leaf.shape), dtype=leaf.dtype, chunks=(max(1, chunk), *leaf.shape),
        compressors=[Crc32cCodec()], dimension_names=("run", *axes(name, leaf.shape)), fill_value=np.nan,
      )  # fmt: skip
  consolidate(path)


def _create(group: zarr.Group, name: str, values: np.ndarray, chunk: int) -> None:
  with whole_chunks():
    array = group.create_array(
      name,
      shape=values.shape,
      dtype=values.dtype,
      chunks=(max(1, chunk), *values.shape[1:]),
      compressors=[ZstdCodec(level=0), Crc32cCodec()],
      dimension_names=DIMENSIONS.get(name, ("run",)),
      fill_value=FILL.get(name, 0),
    )
    if name not in FILL:
      _fill(array, values)


def _fill(array: zarr.Array, values: np.ndarray, start: int = 0) -> None:
  """Writes rows from `start` on, object by object: where one fails, Zarr would go on with others beside it."""
  size = array.chunks[0]
  for first in range(start // size * size, len(values), size):
    rows = slice(max(first, start), first + size)
    array[rows] = values[rows]


def whole_chunks() -> contextlib.AbstractContextManager:
  """Arrays opened within write every object, also where all values are the fill value: one that is absent is lost."""
  return zarr.config.set({"array.write_empty_chunks": True})


def object_path(name: str, block: int, ndim: int) -> str:
  """The path in a results folder of the object that holds an array's block."""
  return "/".join((name, "c", str(block), *["0"] * (ndim - 1)))


def _sampling(runs: Runs) -> list | None:
  return list(runs.sampling) if runs.sampling else None


def consolidate(path: Path) -> None:
  """Copies all metadata into one file a group, where it is not there yet, and the root's file into `blocks`.

  Without it `xarray.open_zarr` warns and reads array by array.
  """
  root = parsed(path / "zarr.json")
  found = {file: parsed(path / file) for file in metadata_files(root["attributes"])}
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
  if (path / blocks.FOLDER).is_dir():
    _rewrite(path / COPY, whole)
  _rewrite(path / "zarr.json", whole)


def _rewrite(file: Path, node: dict[str, Any]) -> None:
  if parsed(file) != node:
    blocks.replace(file, json.dumps(node, indent=2))


def parsed(file: Path) -> Any:
  """What a JSON file holds, None where it cannot be read."""
  try:
    return blocks.parse(blocks.read(file))
  except (OSError, ValueError):
    return None


def metadata_files(root: dict[str, Any]) -> list[str]:
  """The metadata files below the root that a folder with these attributes has."""
  arrays = [*root["columns"], *(f"{name}/labels" for name in _test_sets(root)), *_outcomes(root), "done"]
  # Zarr takes consolidated nodes group by group.
  return [f"{name}/zarr.json" for name in sorted((*groups(root), *arrays), key=lambda name: name.rpartition("/")[0])]


def groups(root: dict[str, Any]) -> list[str]:
  """The groups that a folder with these attributes has."""
  return [*_test_sets(root), *[VARIABLES] * bool(root.get("variables"))]


def _outcomes(root: dict[str, Any]) -> list[str]:
  """The arrays of what became of each run, but for `done`."""
  of_tests = ["predictions", "accuracy"] + ["logits"] * root["logits"]
  of_networks = [f"{VARIABLES}/{name}" for name in root.get("variables", {})]
  return ["diverged", *(f"{name}/{variable}" for name in _test_sets(root) for variable in of_tests), *of_networks]


def metadata_faults(path: Path) -> list[tuple[str, str]]:
  """Metadata files that are missing, cannot be read or differ from the root's copy of them, and what is wrong."""
  copies = parsed(path / "zarr.json")["consolidated_metadata"]["metadata"]
  found = []
  for file in metadata_files(attributes(path)):
    node, copy = parsed(path / file), copies[file.removesuffix("/zarr.json")]
    if not isinstance(node, dict):
      found.append((file, "cannot be read" if (path / file).exists() else "is missing"))
      continue
    # An extension that was interrupted leaves some arrays longer than the root says; the next one completes it.
    first = node["shape"][:1] if isinstance(node.get("shape"), list) else []
    if first and type(first[0]) is int and copy.get("shape", first)[0] < first[0] <= MOST_RUNS:
      copy = {**copy, "shape": [*first, *copy["shape"][1:]]}
    if not checks.same(node | {"consolidated_metadata": None}, copy | {"consolidated_metadata": None}):
      found.append((file, "differs from the root's copy of it"))
  return found


def inside(nodes: dict[str, Any], group: str) -> dict[str, Any]:
  """Those of the root's nodes that lie in a group, by their names there."""
  return {name.removeprefix(f"{group}/"): node for name, node in nodes.items() if name.startswith(f"{group}/")}


UNLIKE = "differs from the root's copy of its arrays"


def group_is_whole(path: Path, group: str) -> bool:
  """Whether a group's metadata, and its copies of those of its arrays, are as the root says."""
  node, root = parsed(path / group / "zarr.json"), parsed(path / "zarr.json")
  copies = {**checks.INLINE, "metadata": inside(root["consolidated_metadata"]["metadata"], group)}
  return checks.same(node, {**checks.GROUP, "consolidated_metadata": copies})


def _dimensions(root: dict[str, Any]) -> dict[str, tuple[str, ...]]:
  """Those of each array, by its path, that a folder with these attributes has."""
  names = (file.removesuffix("/zarr.json") for file in metadata_files(root))
  known = {f"{VARIABLES}/{name}": ("run", *axes(name, shape)) for name, shape in root.get("variables", {}).items()}
  return {n: known.get(n) or DIMENSIONS.get(n.split("/")[-1], ("run",)) for n in names if n not in groups(root)}


def root_fault(path: Path, file: str = "zarr.json") -> str | None:
  """What is wrong with the root's metadata, or with a copy of them."""
  return checks.root_fault(parsed(path / file), _dimensions)


def checked(path: str | os.PathLike) -> dict[str, Any] | None:
  """The attributes of a results folder that is well formed, None where there is none. `Mistake` for a damaged one."""
  path = Path(path)
  stored = attributes(path)
  if stored is None:
    if attributes(path, COPY):
      raise damaged(path, ["zarr.json cannot be read"])
    return None
  for stray in checks.strays(path):
    raise damaged(path, [stray])
  if fault := root_fault(path):
    raise damaged(path, [f"zarr.json {fault}"])
  return stored


def check_folder(path: str | os.PathLike) -> None:
  """`Mistake` unless `path` is the results folder of a training, an empty folder, or can be made."""
  check_writable(path)
  path = Path(path)
  stored = checked(path)
  if path.is_dir() and any(path.iterdir()) and stored is None:
    raise Mistake(f"{path} holds something else than results: give a new or empty folder")
  if stored and stored.get("device_kind") == IMPORTED:
    raise Mistake(f"{path} holds imported runs, which cannot be extended: give a new or empty folder")


def check_writable(path: str | os.PathLike) -> None:
  """`Mistake` unless `path` is a writable folder or can be made."""
  path = Path(path)
  try:
    if path.exists() and not path.is_dir():
      raise Mistake(f"{path} is a file: give a folder for the results")
    parent = next(p for p in (path, *path.absolute().parents) if p.exists())
  except OSError as error:
    raise Mistake(f"{path} cannot be a folder ({error.strerror}): give another") from None
  if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
    raise Mistake(f"{path} cannot be written ({parent} is not writable): give another folder")


def attributes(path: str | os.PathLike, file: str = "zarr.json") -> dict[str, Any] | None:
  """The attributes of a results folder, None where there is none."""
  root = parsed(Path(path) / file)
  found = root.get("attributes") if isinstance(root, dict) else None
  return found if isinstance(found, dict) and found.get("format") == FORMAT else None


def test_sets(path: str | os.PathLike) -> tuple[str, ...]:
  """The names of the test sets of a results folder, the default first."""
  return _test_sets(attributes(path))


def _test_sets(stored: dict[str, Any]) -> tuple[str, ...]:
  # The first release wrote them into the recipe only.
  return tuple(stored["test_sets"]) if "test_sets" in stored else Recipe.from_json(stored["recipe"]).test_sets


def open_results(path: str | os.PathLike, test_set: str = "test") -> xr.Dataset:
  """The finished runs of a campaign, or imported ones: an `xarray.Dataset` that reads from disk what is asked of it.

  Dimensions are `run`, `example` (of one test set) and `class`; variables `predictions(run, example)`,
  `labels(example)`, `accuracy(run)`, `diverged(run)`, one `seed_<source>(run)` a source, swept hyperparameters by
  their names and, where kept, `logits(run, example, class)`. Attributes: the recipe as JSON (`recipe`), `versions`,
  `device_kind`, `lane_width`, `lowering`, `precision`.

  Raises:
    Mistake: `path` is no results folder, or has no such test set.
  """
  path = Path(path)
  stored = checked(path)
  if stored is None:
    raise Mistake(f"{path} is no results folder: give one that `vmapseeds train` or `import` made")
  one_of("test set", test_set, _test_sets(stored))
  if not group_is_whole(path, test_set):
    raise damaged(path, [f"{test_set}/zarr.json {UNLIKE}"])
  with readable(path):
    dataset = xr.merge(
      [xr.open_zarr(path, group=group, zarr_format=3, decode_cf=False) for group in (None, test_set)],
      combine_attrs="override",
      join="exact",
      compat="no_conflicts",
    )
    done = dataset.done.values
  if "block_runs" in stored and (lost := missing(path, stored, done)):
    raise damaged(path, [f"{file} is missing" for file in lost])
  return dataset.isel(run=np.flatnonzero(done)).drop_vars("done")


def missing(path: Path, stored: dict[str, Any], done: Bool[np.ndarray, " runs"]) -> list[str]:
  """The objects and records that should be there, given which runs are done, and are not: by names, nothing is read."""
  begun = np.unique(np.flatnonzero(done) // stored["block_runs"]).tolist()
  records = {file.removesuffix(".json") for file in blocks.names(path / blocks.FOLDER)}
  recorded = [block for block in range(-(-len(done) // stored["block_runs"])) if str(block) in records]
  lost = []
  for name, dimensions in _dimensions(stored).items():
    there = blocks.names(path / name / "c")
    wanted = {"done": [*begun, *recorded], "labels": [0]}.get(name.split("/")[-1], begun)
    objects = (object_path(name, block, len(dimensions)) for block in wanted)
    lost += [object for object in objects if object.removeprefix(f"{name}/c/") not in there]
  if stored["device_kind"] != IMPORTED:
    lost += [f"{blocks.FOLDER}/{block}.json" for block in begun if str(block) not in records]
  return lost


def damaged(path: str | os.PathLike, faults: list[str]) -> Mistake:
  """What is said of a folder that cannot be trusted."""
  more = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
  return Mistake(f"{path} is damaged: {faults[0]}{more}; `vmapseeds verify {path}` says what, and --repair helps")


@contextlib.contextmanager
def readable(path: str | os.PathLike) -> Iterator[None]:
  """Makes of an error a `Mistake` that says what is damaged, when something is."""
  try:
    yield
  except (Mistake, FileExistsError):
    raise
  except Exception as error:
    if isinstance(error, OSError) and not isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
      raise  # the disk's fault
    from vmapseeds.verify import verify  # which reads results itself

    faults = verify(path).problems
    if not faults:
      raise
    raise damaged(path, faults) from error


def said(error: BaseException) -> str:
  """An error's text in one line."""
  return " ".join(str(error).split())[:120] or type(error).__name__


def errors(results: xr.Dataset) -> Bool[np.ndarray, "runs examples"]:
  """predictions != labels of the runs that did not diverge, labels through each run's label map where it has one."""
  kept = results.isel(run=np.flatnonzero(~results.diverged.values))
  labels = kept.labels.values
  if "label_map" in kept:
    labels = kept.label_map.values[:, labels]
  return kept.predictions.values != labels


def prediction_blocks(results: xr.Dataset, runs: int = 4096) -> Iterator[Int[np.ndarray, "runs examples"]]:
  """The predictions of the runs that did not diverge, so many runs at a time, for `stats.tally_blocks`.

  Raises:
    Mistake: runs have label maps, so that no labels fit all of them.
  """
  at_least("runs of a block", runs, 1)
  if "label_map" in results:
    raise Mistake("these runs have a label map each, and no labels fit all of them: take vs.errors(results)")
  kept = np.flatnonzero(~results.diverged.values)
  for start in range(0, len(kept), runs):
    yield results.predictions.isel(run=kept[start : start + runs]).values
