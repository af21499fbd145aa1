"""Results on disk: one campaign's folder, a Zarr v3 group.

The root group holds what is per run: `seed_<source>`, swept hyperparameters by their names, `poke_step`, `label_map`,
`subset`, `diverged`, and `done`, which is written last and says that a run's row is complete. Each test set is a group
with `predictions(run, example)`, `accuracy(run)`, `labels(example)` and, on request, `logits(run, example, class)`.
The root's attributes hold the recipe as JSON and what the results depend on: device kind, lane width, lowering,
precision (what `auto` came to), data.
"""

import json
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
import zarr.errors
from jaxtyping import Bool, Int

from vmapseeds.data import Dataset
from vmapseeds.errors import Mistake, at_least, one_of
from vmapseeds.evaluate import Evaluation
from vmapseeds.recipe import Recipe
from vmapseeds.runs import Runs

FORMAT = "vmapseeds results 1"
DIMENSIONS = {"label_map": ("run", "original_class"), "subset": ("run", "train_example")}
FILL = {"predictions": -1, "accuracy": np.nan, "logits": np.nan, "done": False, "diverged": False}


class Results:
  """The folder of a campaign, open for writing: made by `open_or_create`, which also extends it."""

  def __init__(self, path: Path):
    self.path = path
    self.group = zarr.open_group(path, mode="r+", use_consolidated=False)

  @classmethod
  def open_or_create(
    cls, path: str | os.PathLike, recipe: Recipe, runs: Runs, data: Dataset, *, chunk: int, logits: bool,
    conditions: dict[str, Any], versions: dict[str, str],
  ) -> "Results":  # fmt: skip
    """The campaign's folder, made if there is none, extended if it has fewer runs.

    Args:
      chunk: runs a chunk of the arrays of a new folder.
      conditions: what bit-for-bit equal results need besides the recipe: device kind, lane width, lowering,
        precision, data.

    Raises:
      Mistake: the folder holds something else, cannot be written, or belongs to another recipe, other runs or other
        conditions. Nothing is changed then.
    """
    path = Path(path)
    check_folder(path)
    if path.is_dir() and any(path.iterdir()):
      results = cls(path)
      results.check_same(recipe, runs, logits, conditions)
      results.extend(runs)
      results.set_conditions(**conditions)
      return results

    # Made beside its place and moved there whole, so that a folder is never found half made.
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    shutil.rmtree(draft, ignore_errors=True)
    try:
      _create_folder(draft, recipe, runs, data, chunk=chunk, logits=logits, conditions=conditions, versions=versions)
      if path.is_dir():
        path.rmdir()
      draft.rename(path)
    except OSError as error:
      shutil.rmtree(draft, ignore_errors=True)
      raise Mistake(f"{path} cannot be written ({error.strerror or error}): give another folder") from None
    return cls(path)

  def check_same(self, recipe: Recipe, runs: Runs, logits: bool, conditions: dict[str, Any]) -> None:
    """`Mistake`, naming the first difference, unless the folder is of this recipe, these runs and these conditions."""
    stored = self.group.attrs.asdict()
    other = f"{self.path} belongs to another campaign"
    use = "give another --out, or what it was started with"
    ours, theirs = recipe.replace(precision=conditions["precision"]), Recipe.from_json(stored["recipe"])
    # `auto` is no precision of its own; what it came to is a condition, which the first release did not write.
    if theirs.precision == "auto":
      theirs = theirs.replace(precision=ours.precision)
    stored.setdefault("precision", theirs.precision)
    difference = theirs.differences(ours)
    if difference:
      raise Mistake(f"{other}: its recipe and this one differ in {difference}; {use}")
    for name, value in conditions.items():
      if stored[name] != value and self.done.any():
        raise Mistake(f"{other}: its {name.replace('_', ' ')} is {stored[name]!r}, not {value!r}; {use}")
    if stored["logits"] != logits:
      raise Mistake(f"{other}: logits are {'' if stored['logits'] else 'not '}kept there; {use}")
    columns = runs.columns()
    if stored["columns"] != list(columns) or stored["sampling"] != _sampling(runs):
      theirs, ours = (", ".join(names) for names in (stored["columns"], columns))
      theirs, ours = f"{theirs} and sampling {stored['sampling']}", f"{ours} and {_sampling(runs)}"
      raise Mistake(f"{other}: its runs have {theirs}, these {ours}; {use}")
    shared = min(len(runs), len(self))
    for name, column in columns.items():
      theirs = self.group[name][:shared]
      if theirs.shape != column[:shared].shape or not np.array_equal(theirs, column[:shared]):
        raise Mistake(f"{other}: its runs differ from these in {name}; {use}")

  def set_conditions(self, **conditions: Any) -> None:
    """Writes what the runs depend on, or some of it."""
    self.group.attrs.update(conditions)
    _consolidate(self.path)

  def extend(self, runs: Runs) -> None:
    """Makes room for all of `runs`. `done` grows last: it says how many runs the folder has."""
    if len(runs) <= len(self):
      return
    variables = ["predictions", "accuracy"] + ["logits"] * self.group.attrs["logits"]
    outcomes = [f"{test_set}/{v}" for test_set in test_sets(self.path) for v in variables]
    columns = runs.columns()
    for name in [*outcomes, *columns, "diverged", "done"]:
      array = self.group[name]
      if array.shape[0] < len(runs):
        array.resize((len(runs), *array.shape[1:]))
      if name in columns:
        array[len(self) :] = columns[name][len(self) :]

  def __len__(self) -> int:
    return self.group["done"].shape[0]

  @property
  def done(self) -> Bool[np.ndarray, " runs"]:
    """Which runs are trained, evaluated and written."""
    return self.group["done"][:]

  def write(
    self, rows: Int[np.ndarray, " rows"], diverged: Bool[np.ndarray, " rows"], evaluations: dict[str, Evaluation]
  ) -> None:
    """Writes what became of some runs, and only then marks them done."""
    for name, evaluation in evaluations.items():
      test_set = self.group[name]
      test_set["predictions"].oindex[rows] = evaluation.predictions
      test_set["accuracy"].oindex[rows] = evaluation.correct / evaluation.predictions.shape[1]
      if evaluation.logits is not None:
        test_set["logits"].oindex[rows] = evaluation.logits
    self.group["diverged"].oindex[rows] = diverged
    self.group["done"].oindex[rows] = True


def _create_folder(
  path: Path, recipe: Recipe, runs: Runs, data: Dataset, *, chunk: int, logits: bool, conditions: dict[str, Any],
  versions: dict[str, str],
) -> None:  # fmt: skip
  """A campaign's folder in which no run is done."""
  num_classes = runs.num_classes(data.num_classes)
  group = zarr.create_group(path, attributes={
    "format": FORMAT,
    "recipe": recipe.to_json(),
    "num_classes": num_classes,
    "logits": logits,
    "columns": list(runs.columns()),
    "sampling": _sampling(runs),
    **conditions,
    "versions": versions,
  })  # fmt: skip
  for name, column in runs.columns().items():
    _create(group, name, column, chunk, DIMENSIONS.get(name, ("run",)))
  for name in ("diverged", "done"):
    _create(group, name, np.zeros(len(runs), bool), chunk, ("run",))
  for name, examples in data.tests.items():
    test_set = group.create_group(name)
    _create(test_set, "labels", examples.labels, len(examples.labels), ("example",))
    shape = (len(runs), len(examples.labels))
    dtype = np.int8 if num_classes <= 127 else np.int16
    _create(test_set, "predictions", np.broadcast_to(dtype(-1), shape), chunk, ("run", "example"))
    _create(test_set, "accuracy", np.full(len(runs), np.nan), chunk, ("run",))
    if logits:
      empty = np.broadcast_to(np.float32(np.nan), (*shape, num_classes))
      _create(test_set, "logits", empty, chunk, ("run", "example", "class"))
  _consolidate(path)


def _create(group: zarr.Group, name: str, values: np.ndarray, chunk: int, dimensions: tuple[str, ...]) -> None:
  array = group.create_array(
    name,
    shape=values.shape,
    dtype=values.dtype,
    chunks=(max(1, min(chunk, len(values))), *values.shape[1:]),
    dimension_names=dimensions,
    fill_value=FILL.get(name, 0),
  )
  if name not in FILL:
    array[:] = values


def _sampling(runs: Runs) -> list | None:
  return list(runs.sampling) if runs.sampling else None


def _consolidate(path: Path) -> None:
  """Copies all metadata into one file a group: without it `xarray.open_zarr` warns and reads array by array."""
  with warnings.catch_warnings():
    # zarr-python says that other readers may not know consolidated metadata (they read the arrays' own), and that a
    # report lies in the folder.
    for known in ("Consolidated metadata is currently not part", "Object at report is not recognized"):
      warnings.filterwarnings("ignore", known, zarr.errors.ZarrUserWarning)
    for name in (None, *test_sets(path)):
      zarr.consolidate_metadata(path, path=name)


def check_folder(path: str | os.PathLike) -> None:
  """`Mistake` unless `path` is a results folder, an empty folder, or can be made."""
  check_writable(path)
  path = Path(path)
  if path.is_dir() and any(path.iterdir()) and attributes(path) is None:
    raise Mistake(f"{path} holds something else than results: give a new or empty folder")


def check_writable(path: str | os.PathLike) -> None:
  """`Mistake` unless `path` is a writable folder or can be made."""
  path = Path(path)
  if path.exists() and not path.is_dir():
    raise Mistake(f"{path} is a file: give a folder for the results")
  parent = next(p for p in (path, *path.absolute().parents) if p.exists())
  if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
    raise Mistake(f"{path} cannot be written ({parent} is not writable): give another folder")


def attributes(path: str | os.PathLike) -> dict[str, Any] | None:
  """The attributes of a results folder, None where there is none."""
  try:
    found = json.loads((Path(path) / "zarr.json").read_text())["attributes"]
  except (OSError, ValueError, KeyError, TypeError):
    return None
  return found if isinstance(found, dict) and found.get("format") == FORMAT else None


def test_sets(path: str | os.PathLike) -> tuple[str, ...]:
  """The names of the test sets of a results folder, the default first."""
  return Recipe.from_json(attributes(path)["recipe"]).test_sets


def open_results(path: str | os.PathLike, test_set: str = "test") -> xr.Dataset:
  """The finished runs of a campaign: an `xarray.Dataset` that reads from disk what is asked of it.

  Dimensions are `run`, `example` (of one test set) and `class`; variables `predictions(run, example)`,
  `labels(example)`, `accuracy(run)`, `diverged(run)`, one `seed_<source>(run)` a source, swept hyperparameters by
  their names and, where kept, `logits(run, example, class)`. Attributes: the recipe as JSON (`recipe`), `versions`,
  `device_kind`, `lane_width`, `lowering`, `precision`.

  Raises:
    Mistake: `path` is no results folder, or has no such test set.
  """
  path = Path(path)
  if attributes(path) is None:
    raise Mistake(f"{path} is no results folder: give one that `vmapseeds train` made")
  one_of("test set", test_set, test_sets(path))
  dataset = xr.merge(
    [xr.open_zarr(path), xr.open_zarr(path, group=test_set)],
    combine_attrs="override",
    join="exact",
    compat="no_conflicts",
  )
  return dataset.isel(run=np.flatnonzero(dataset.done.values)).drop_vars("done")


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
