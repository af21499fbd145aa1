"""The results of a campaign, written block by block and opened as xarray; `vmapseeds.metadata` has the format."""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import xarray as xr
import zarr
from jaxtyping import Bool, Int
from upath import UPath

from vmapseeds import blocks
from vmapseeds.checks import MIXED
from vmapseeds.data import Dataset
from vmapseeds.errors import Failure, Mistake, at_least, one_of
from vmapseeds.evaluate import Evaluation
from vmapseeds.folders import check_folder, create_folder, fill, made_whole, whole_chunks
from vmapseeds.metadata import (
  UNLIKE,
  VARIABLES,
  attributes,
  checked_root,
  consolidate,
  damaged,
  group_is_whole,
  metadata_faults,
  missing,
  object_path,
  ours,
  outcomes,
  said,
  test_sets_of,
)
from vmapseeds.recipe import Recipe
from vmapseeds.runs import Runs
from vmapseeds.stores import place, zarr_store


class Results:
  """The folder of a campaign, open for writing: made by `open_or_create`, which also extends it."""

  def __init__(self, path: str | os.PathLike):
    self.path = place(path)
    for file, fault in metadata_faults(self.path):
      raise damaged(self.path, [f"{file} {fault}"])
    with readable(self.path):
      self.group = zarr.open_group(zarr_store(self.path), mode="r+", use_consolidated=False, zarr_format=3)
      self._arrays: dict[str, zarr.Array] = {}
      self.block_runs = self.array("done").chunks[0]
    self.columns = list(self.group.attrs["columns"])
    self.outcomes = outcomes(self.group.attrs)

  @classmethod
  def open_or_create(
    cls, path: str | os.PathLike, recipe: Recipe, runs: Runs, data: Dataset, *, chunk: int, logits: bool,
    variables: dict[str, jax.ShapeDtypeStruct], conditions: dict[str, Any], versions: dict[str, str],
    force_mixed: bool = False,
  ) -> "Results":  # fmt: skip
    """The campaign's folder, made if there is none, extended if it has fewer runs.

    Args:
      path: the folder.
      recipe: what its runs train.
      runs: all that it is to have.
      data: whose labels it keeps.
      chunk: runs a block of a new folder.
      logits: whether it keeps them.
      variables: those of one run, by their names; none where they are not kept.
      conditions: what bit-for-bit equal results need besides the recipe: device kind, lane width, lowering,
        precision, data, the mean and deviation of its pixels.
      versions: of Python and of packages.
      force_mixed: goes on under another recipe, other conditions or versions, and notes in the attributes which.

    Raises:
      Mistake: the folder holds something else, cannot be written, or belongs to another recipe, other runs or other
        conditions. Nothing is changed then.
      FileExistsError: another process has made the folder meanwhile.
    """
    path = place(path)
    check_folder(path)
    if attributes(path) is not None:
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
    other, use = f"{self.path} belongs to another campaign", "give another --out, or what it was started with"
    mixed = self.check_alike(recipe, runs, logits, keep_params, conditions, versions, force_mixed, other, use)
    columns = runs.columns()
    self.restore(columns)
    shared = min(len(runs), len(self))
    for name, column in columns.items():
      theirs = self.array(name)[:shared]
      if theirs.shape != column[:shared].shape or not np.array_equal(theirs, column[:shared]):
        raise Mistake(f"{other}: its runs differ from these in {name}; {use}")
    return mixed

  def check_alike(
    self, recipe: Recipe, runs: Runs, logits: bool, keep_params: bool, conditions: dict[str, Any],
    versions: dict[str, str], force_mixed: bool, other: str, use: str,
  ) -> list[str]:  # fmt: skip
    """The same, whatever the runs' seeds and values are. A mistake begins with `other` and ends with `use`."""
    stored = attributes(self.path)
    force = f"{use}, or --force-mixed"
    begun, mixed = self.done.any(), []
    ours, theirs = recipe, Recipe.from_json(stored["recipe"])
    if conditions["precision"] != MIXED:
      ours = ours.replace(precision=conditions["precision"])
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
      if stored.get(name) != value and begun:
        if not force_mixed or name == "data_digest":
          use_what = use if name == "data_digest" else force
          raise Mistake(f"{other}: its {name.replace('_', ' ')} is {stored.get(name)!r}, not {value!r}; {use_what}")
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
    root = json.loads(blocks.read(self.path / "zarr.json") or b"")
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
            fill(array, columns[name], before)
        self._arrays.clear()
        consolidate(self.path)

  def restore(self, columns: dict[str, np.ndarray]) -> None:
    """Writes objects of the runs table again that are lost or damaged, when it is the table they were of."""
    if "block_runs" not in self.group.attrs:
      return  # a folder without blocks has no object for zeros alone
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
    if not blocks.exists(self.path / self.object(name, block)):
      return None, "is missing"
    try:
      return self.array(name)[self.rows(block)], None
    except Failure:
      raise  # of a store that cannot be reached nothing is known
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
    if not blocks.exists(self.path / self.object("done", block)):
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
      rows: which runs.
      diverged: those whose training did.
      evaluations: of each test set, of these runs.
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
        self.write_block(block, rows[here], {name: v[here] for name, v in outcomes.items()}, provenance or {})
      except OSError:
        with contextlib.suppress(ValueError):
          if not self.record(block):
            self.forget(block)
        raise

  def write_block(
    self, block: int, rows: Int[np.ndarray, " rows"], outcomes: dict[str, np.ndarray], provenance: dict[str, Any]
  ) -> None:
    """`write` of rows that lie in one block, their outcomes by the names of the arrays."""
    # Whole objects are written without being read before.
    span = range(rows[0], rows[0] + len(rows))
    here = slice(span.start, span.stop) if np.array_equal(rows, span) else rows
    digests = {name: blocks.digest(self.array(name).oindex[here]) for name in self.columns}
    for name, values in outcomes.items():
      array = self.array(name)
      values = np.asarray(values).astype(array.dtype)
      array.oindex[here] = values
      digests[name] = blocks.digest(values)
      blocks.flush(self.path / object_path(name, block, array.ndim))
    # What an earlier process recorded of these rows, and did not mark, is no more.
    writes = [w for w in self.record(block) if not set(w["rows"]) & set(rows.tolist())]
    writes.append({"rows": rows.tolist(), "digests": digests, **provenance})
    blocks.write_record(self.path, block, writes)
    self.array("done").oindex[here] = True
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


def _sampling(runs: Runs) -> list | None:
  return list(runs.sampling) if runs.sampling else None


def open_results(path: str | os.PathLike, test_set: str = "test") -> xr.Dataset:
  """The finished runs of a campaign, or imported ones: an `xarray.Dataset` that reads from disk what is asked of it.

  Dimensions are `run`, `example` (of one test set) and `class`; variables `predictions(run, example)`,
  `labels(example)`, `accuracy(run)`, `diverged(run)`, one `seed_<source>(run)` a source, swept hyperparameters by
  their names and, where kept, `logits(run, example, class)`. Attributes: the recipe as JSON (`recipe`), `versions`,
  `device_kind`, `lane_width`, `lowering`, `precision`, `mean` and `std` of pixels as the networks saw them.

  `labels` are the classes that the predictions are of. Under a label map they are mapped, and the data set's own are
  `original_labels(example)`. Where label maps differ between runs there is no one label of an example: `labels` is
  then `(run, example)`, and `predictions == labels` still says who is right, but votes cannot be pooled.

  Raises:
    Mistake: `path` is no results folder, or has no such test set.
  """
  path = place(path)
  root = checked_root(path)
  stored = ours(root)
  if stored is None:
    raise Mistake(f"{path} is no results folder: give one that `vmapseeds train` or `import` made")
  one_of("test set", test_set, test_sets_of(stored))
  if not group_is_whole(path, test_set, root):
    raise damaged(path, [f"{test_set}/zarr.json {UNLIKE}"])
  with readable(path):
    groups = (None, test_set)
    of_runs, of_test = (xr.open_zarr(zarr_store(path), group=g, zarr_format=3, decode_cf=False) for g in groups)
    # An extension that was interrupted may have left the test set's arrays longer.
    of_test = of_test.isel(run=slice(of_runs.sizes["run"]))
    dataset = xr.merge([of_runs, of_test], combine_attrs="override", join="exact", compat="no_conflicts")
    done = dataset.done.values
  if "block_runs" in stored and (lost := missing(path, stored, done)):
    raise damaged(path, [f"{file} is missing" for file in lost])
  with readable(path):
    return _mapped(dataset.isel(run=np.flatnonzero(done)).drop_vars("done"))


def _mapped(results: xr.Dataset) -> xr.Dataset:
  """Results whose labels fit the predictions."""
  if "label_map" not in results:
    return results
  # Read from a copy: what is read is kept, and labels of many runs are only made when they are asked for.
  maps, original = results.label_map[:].values, results.labels.load()
  labels = results.label_map.isel(original_class=original.drop_attrs())
  shared = len(maps) > 0 and (maps == maps[0]).all()
  return results.assign(labels=labels[0] if shared else labels, original_labels=original)


@contextlib.contextmanager
def readable(path: str | os.PathLike) -> Iterator[None]:
  """Makes of an error a `Mistake` that says what is damaged, when something is."""
  try:
    yield
  except (Mistake, Failure, FileExistsError):
    raise
  except Exception as error:
    if isinstance(error, OSError) and not isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
      raise  # the disk's fault
    from vmapseeds.verify import FOREIGN, verify  # which reads results itself

    faults = [problem for problem in verify(path).problems if not problem.endswith(FOREIGN)]
    if not faults:
      raise
    raise damaged(path, faults) from error


def opened(results: xr.Dataset | str | os.PathLike) -> xr.Dataset:
  """Results as `open_results` gives them, opened where they are a folder's path. `Mistake` for anything else."""
  if isinstance(results, xr.Dataset) and {"predictions", "labels", "diverged"} <= {*results.variables}:
    return results
  if isinstance(results, str | os.PathLike | UPath):
    return open_results(results)
  raise Mistake(f"results is {type(results).__name__}: give what vs.open_results returns, or the path of a folder")


def errors(results: xr.Dataset | str | os.PathLike) -> Bool[np.ndarray, "runs examples"]:
  """predictions != labels of the runs that did not diverge, of opened results or of the folder at a path."""
  results = opened(results)
  kept = results.isel(run=np.flatnonzero(~results.diverged.values))
  # Of one type: comparing two is many times slower.
  return kept.predictions.values != kept.labels.values.astype(kept.predictions.dtype)


def prediction_blocks(
  results: xr.Dataset | str | os.PathLike, runs: int = 4096
) -> Iterator[Int[np.ndarray, "runs examples"]]:
  """The predictions of the runs that did not diverge, so many runs at a time, for `stats.tally_blocks`.

  Raises:
    Mistake: label maps differ between runs, so that no labels fit all of them.
  """
  at_least("runs of a block", runs, 1)
  results = opened(results)
  if "run" in results.labels.dims:
    raise Mistake("these runs have a label map each, and no labels fit all of them: take vs.errors(results)")
  kept = np.flatnonzero(~results.diverged.values)
  for start in range(0, len(kept), runs):
    yield results.predictions.isel(run=kept[start : start + runs]).values
