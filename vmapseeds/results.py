"""Results on disk: one campaign's folder, a Zarr v3 group.

The root group holds what is per run: `seed_<source>`, swept hyperparameters by their names, `poke_step`, `label_map`,
`subset`, `diverged`, and `done`, which is written last and says that a run's row is complete. Each test set is a group
with `predictions(run, example)`, `accuracy(run)`, `labels(example)` and, on request, `logits(run, example, class)`.
The group `variables` is there on request (`vmapseeds.variables`), the folder `checkpoints`, which is no group, while
runs are in training (`vmapseeds.checkpoints`).
The root's attributes hold the recipe as JSON, the names of the test sets and what the results depend on: device kind,
lane width, lowering, precision (what `auto` came to), data.

Runs that were imported (`vmapseeds.imports`) are in the same format. They have no seed and none diverged; `device_kind`
is "imported", `lane_width`, `lowering`, `precision` and `data_digest` are None, and `recipe` is the JSON not of a
`Recipe` but of `name`, `dataset` (None), `test_sets` and `imported`: file, shape and dtype of each array that came.
"""

import contextlib
import json
import os
import shutil
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr
import zarr
import zarr.errors
from jaxtyping import Bool, Int, PyTree

from vmapseeds import variables
from vmapseeds.data import Dataset
from vmapseeds.errors import Mistake, at_least, one_of
from vmapseeds.evaluate import Evaluation
from vmapseeds.recipe import Recipe
from vmapseeds.runs import Runs

FORMAT = "vmapseeds results 1"
IMPORTED = "imported"  # the device kind of runs from elsewhere
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
    params: PyTree[jax.ShapeDtypeStruct] | None = None, conditions: dict[str, Any], versions: dict[str, str],
  ) -> "Results":  # fmt: skip
    """The campaign's folder, made if there is none, extended if it has fewer runs.

    Args:
      chunk: runs a chunk of the arrays of a new folder.
      params: the shapes of one run's trained variables; None where they are not kept.
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
      results.check_same(recipe, runs, logits, conditions, params is not None)
      results.extend(runs)
      results.set_conditions(**conditions)
      return results

    num_classes = runs.num_classes(data.num_classes)
    with made_whole(path) as draft:
      create_folder(
        draft,
        {
          "recipe": recipe.to_json(), "test_sets": list(recipe.test_sets), "num_classes": num_classes,
          "sampling": _sampling(runs), **conditions, "versions": versions,
        },
        runs=len(runs), columns=runs.columns(), labels={name: e.labels for name, e in data.tests.items()}, chunk=chunk,
        logits=np.dtype(np.float32) if logits else None, params=params,
      )  # fmt: skip
    return cls(path)

  def check_same(
    self, recipe: Recipe, runs: Runs, logits: bool, conditions: dict[str, Any], keep_params: bool = False
  ) -> None:
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
    if stored.get("keep_params", False) != keep_params:
      raise Mistake(f"{other}: trained parameters are {'not ' if keep_params else ''}kept there; {use}")
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
    of_test_set = ["predictions", "accuracy"] + ["logits"] * self.group.attrs["logits"]
    outcomes = [f"{test_set}/{v}" for test_set in test_sets(self.path) for v in of_test_set]
    columns = runs.columns()
    for name in [*outcomes, *variables.arrays(self.group), *columns, "diverged", "done"]:
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
    self, rows: Int[np.ndarray, " rows"], diverged: Bool[np.ndarray, " rows"], evaluations: dict[str, Evaluation],
    trained: PyTree[np.ndarray] = None,
  ) -> None:  # fmt: skip
    """Writes what became of some runs, and only then marks them done."""
    for name, evaluation in evaluations.items():
      test_set = self.group[name]
      test_set["predictions"].oindex[rows] = evaluation.predictions
      test_set["accuracy"].oindex[rows] = evaluation.correct / evaluation.predictions.shape[1]
      if evaluation.logits is not None:
        test_set["logits"].oindex[rows] = evaluation.logits
    variables.write(self.group, rows, trained)
    self.group["diverged"].oindex[rows] = diverged
    self.group["done"].oindex[rows] = True


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
  chunk: int, logits: np.dtype | None, params: PyTree[jax.ShapeDtypeStruct] | None = None,
) -> None:  # fmt: skip
  """A results folder in which no run is done.

  Args:
    attributes: those of the root; `recipe`, `test_sets` and `num_classes` must be there.
    columns: what is known of each run.
    labels: those of each test set.
    chunk: runs a chunk of the arrays.
    logits: of which dtype they are kept, None where they are not.
    params: the shapes of one run's trained variables, None where they are not kept.
  """
  num_classes = attributes["num_classes"]
  kept = {"logits": logits is not None, "keep_params": params is not None}
  root = {"format": FORMAT, **kept, "columns": list(columns), **attributes}
  group = zarr.create_group(path, attributes=root)
  for name, column in columns.items():
    _create(group, name, column, chunk, DIMENSIONS.get(name, ("run",)))
  for name in ("diverged", "done"):
    _create(group, name, np.zeros(runs, bool), chunk, ("run",))
  for name, of_examples in labels.items():
    test_set = group.create_group(name)
    _create(test_set, "labels", of_examples, len(of_examples), ("example",))
    shape = (runs, len(of_examples))
    none = np.int8(-1) if num_classes <= 127 else np.int16(-1)
    _create(test_set, "predictions", np.broadcast_to(none, shape), chunk, ("run", "example"))
    _create(test_set, "accuracy", np.full(runs, np.nan), chunk, ("run",))
    if logits is not None:
      empty = np.broadcast_to(logits.type(np.nan), (*shape, num_classes))
      _create(test_set, "logits", empty, chunk, ("run", "example", "class"))
  variables.create(group, params, runs, chunk)
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
    # zarr-python says that other readers may not know consolidated metadata (they read the arrays' own), and what else
    # lies in the folder.
    for known in ("Consolidated metadata is currently not part", "Object at (report|checkpoints) is not recognized"):
      warnings.filterwarnings("ignore", known, zarr.errors.ZarrUserWarning)
    for name in (None, *test_sets(path)):
      zarr.consolidate_metadata(path, path=name)


def check_folder(path: str | os.PathLike) -> None:
  """`Mistake` unless `path` is the results folder of a training, an empty folder, or can be made."""
  check_writable(path)
  path = Path(path)
  stored = attributes(path)
  if path.is_dir() and any(path.iterdir()) and stored is None:
    raise Mistake(f"{path} holds something else than results: give a new or empty folder")
  if stored and stored.get("device_kind") == IMPORTED:
    raise Mistake(f"{path} holds imported runs, which cannot be extended: give a new or empty folder")


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
  stored = attributes(path)
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
  if attributes(path) is None:
    raise Mistake(f"{path} is no results folder: give one that `vmapseeds train` or `import` made")
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
