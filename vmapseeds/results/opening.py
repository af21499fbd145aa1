"""The results of campaigns and imports as xarray, with their errors and tallies."""

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse
import xarray as xr
from jaxtyping import Bool, Int

from vmapseeds import stats
from vmapseeds.errors import (
  UserError,
  check_at_least,
  check_class_names,
  check_one_of,
  hide_own_frames,
  option,
  whole_number,
)
from vmapseeds.machine import free_host_memory
from vmapseeds.results.description import campaign_of, combinations, netcdf_attributes
from vmapseeds.results.measured import with_measured
from vmapseeds.stats.counts import MANY_CLASSES
from vmapseeds.store.files import Folder
from vmapseeds.store.results import Results, variables_of_blocks
from vmapseeds.target import moves_data
from vmapseeds.training.names import DIVERGED, EXAMPLE_ID, MASK, NOT_ASKED
from vmapseeds.training.runs import holds_texts, texts_of

COUNTS = ("votes", "joint_errors")  # arrays of blocks


@hide_own_frames
def open_results(
  path: Folder, test_set: str = "test", epoch: int | None = None
) -> xr.Dataset:
  """Open the finished runs of a campaign, or imported runs, as an `xarray.Dataset` that
  reads arrays when they are used.

  Dimensions are `run`, `example` (of one test set) and `class`; variables
  `predictions(run, example)`, `labels(example)`, `accuracy(run)`, `diverged(run)`,
  `seed_<source>(run)` for each source, the values that the recipe or task declares by
  their names and, where kept, `logits(run, example, class)`. Attributes: the recipe
  (`recipe`), `versions`, `device_kind`, `lane_width`, `lowering`, `precision`, and the
  `mean` and `std` that pixels were normalised with. They are texts, numbers and lists of
  numbers, as netCDF takes them, and what has names or several texts is JSON:
  `json.loads(results.attrs["versions"])["jax"]`. What is None is absent. Seeds and values are
  coordinates: `results.groupby("lr")`. In predictions, -1 is no class, which is an error,
  and -2 says that a run was not asked for the example. What a variable means stands in its own
  attributes, such as `role`: see `vs.Output`. `results.encoding["source"]` is the folder.

  If targets are not classes, they are in `targets(example)`, the recipe's loss of each
  example in `losses(run, example)`, and there are no labels and no accuracy. For a task
  other than a recipe's, the variables are what its `finish` returns.

  `labels` are classes as the networks predict them. Under a label map they are mapped,
  and the data set's own are in `original_labels(example)`. If label maps differ between
  runs, an example has no single label: `labels` is then `(run, example)`, and
  `predictions == labels` still says who is right, but votes cannot be pooled.

  A recipe with `training_metrics` adds `train_loss(run)` and `train_accuracy(run)`. With
  `evaluate_every` there are also these, `predictions`, `accuracy` and kept `logits` after
  some epochs: `epoch_predictions(run, epoch, example)` and so on. `epoch` chooses one, and
  `predictions` and the others are then those after that epoch. Runs that diverge later
  still count as diverged: their parameters or outputs end not finite.
  `nonfinite_steps(run)` counts the steps whose loss was not finite. A recipe with `stop_at` adds `trained_epochs(run)`.

  Args:
    path: the results folder.
    test_set: whose arrays to open; of a task, the first group's if it has no such.
    epoch: after which epoch; None for the end of training.

  Raises:
    UserError: `path` is not a results folder, has no such test set, or was not evaluated
      after that epoch.
  """
  return open_with_rows(path, test_set, epoch)[0]


def open_with_rows(
  path: Folder, test_set: str = "test", epoch: int | None = None
) -> tuple[xr.Dataset, Int[np.ndarray, " runs"]]:
  """Return what `open_results` does, and each run's row in the runs table."""
  results = Results(path)
  test_sets = results.root["test_sets"]
  group = None
  if test_sets:
    group = resolve_test_set(test_sets, test_set)
    check_one_of("test set", group, test_sets)
  # Read once, because another process may finish a block meanwhile.
  # Sorted by number, so that runs keep their order whichever block is done first.
  blocks = sorted(results.finished_blocks())
  opened = variables_of_blocks(results, blocks, group)
  opened = _of_epoch(opened, path, epoch)
  opened = _with_places(results, blocks, opened)
  opened = _with_texts(opened, results.columns)

  rows = np.array([row for block in blocks for row in results.blocks[block]], int)
  # Metrics were measured of the end of the training.
  if epoch is None:
    opened = with_measured(opened, path, group or "", rows)
  columns = [name for name in results.columns if opened[name].dims == ("run",)]
  opened = _mapped(opened.set_coords(columns))
  # Where xarray keeps the file of a dataset.
  opened.encoding["source"] = str(results.path)
  opened.attrs = netcdf_attributes(opened.attrs)
  for variable in opened.variables.values():
    variable.attrs = netcdf_attributes(variable.attrs)
  return opened, rows


def resolve_test_set(sets: Sequence[str] | None, test_set: str) -> str:
  """Return the test set that is meant: of a task without "test", its first group."""
  if sets and test_set == "test" and "test" not in sets:
    return sets[0]
  return test_set


def with_role(results: xr.Dataset, *roles: str) -> list[str]:
  """Return the variables that have one of these roles, not in training."""
  return [
    str(name)
    for name, variable in results.variables.items()
    if variable.attrs.get("role") in roles and "series" not in variable.attrs
  ]


def class_of(results: xr.Dataset) -> str | None:
  """Return the variable with the runs' predicted classes, or None."""
  return next(iter(with_role(results, "class")), None)


def class_names_of(labels: xr.DataArray) -> tuple[str, ...] | None:
  """Return the names of the classes of labels, None if they have none."""
  attributes = labels.attrs
  if "class_names" not in attributes:
    return None
  names = attributes["class_names"]
  # Not those of results that a user has put together.
  if isinstance(names, str):
    names = json.loads(names)
  return check_class_names(names, attributes.get("num_classes"))


def _of_epoch(results, path, epoch):
  """Return results whose arrays are those after an epoch; None for the end."""
  if epoch is None:
    return results
  epochs = []
  # Recorded runs may have a value of that name.
  if "epoch" in results.dims:
    epochs = results.epoch.values.tolist()
  whole_epoch = whole_number(epoch)
  if whole_epoch not in epochs:
    remedy = "train with evaluate_every to have any"
    if epochs:
      remedy = f"give one of {', '.join(map(str, epochs))}"
    elif "epoch" in results.variables:
      remedy = (
        f"epoch is a value of these runs, choose {option('where', {'epoch': epoch})}"
      )
    raise UserError(f"{path} was not evaluated after epoch {epoch!r:.50}: {remedy}")

  at_epoch = results.sel(epoch=whole_epoch, drop=True)
  series = [
    str(name)
    for name, array in at_epoch.items()
    if array.attrs.get("series") == "epoch"
  ]
  after_epoch = {}
  for name in series:
    array = at_epoch[name]
    attributes = dict(array.attrs)
    del attributes["series"]
    output = attributes.pop("of")
    after_epoch[output] = xr.Variable(array.dims, array.data, attributes)
  # Stored counts are of the predictions at the end.
  counts = [name for name in COUNTS if name in at_epoch]
  without_end = at_epoch.drop_vars([*series, *counts])
  return without_end.assign(after_epoch).assign_attrs(epoch=whole_epoch)


def _with_places(results, blocks, opened):
  """Return results with `run_place(run, place)`: each run's row, its block and, within
  that, its combination of values. They say which stored counts are of which runs.
  """
  if "votes" not in opened:
    return opened
  # Most campaigns sweep nothing, and their runs table need not be read.
  runs = None
  if opened.sizes["combination"] > 1:
    runs, _ = campaign_of(results.path)
  places = [np.zeros((0, 3), int)]
  for number, block in enumerate(blocks):
    rows = np.array(results.blocks[block])
    combination_of_run = np.zeros(len(rows), int)
    if runs:
      combination_of_run, _ = combinations(runs[rows])
    block_of_run = np.full(len(rows), number)
    places.append(np.stack([rows, block_of_run, combination_of_run], axis=1))
  return opened.assign(run_place=(("run", "place"), np.concatenate(places)))


def _with_texts(opened, columns):
  """Return results with columns of names as texts."""
  # Stored as bytes, which every reader of Zarr understands.
  texts = {
    name: ("run", texts_of(opened[name].values), opened[name].attrs)
    for name in columns
    if holds_texts(opened[name])
  }
  if EXAMPLE_ID in opened.variables:
    texts[EXAMPLE_ID] = ("example", texts_of(opened[EXAMPLE_ID].values), {})
  return opened.assign(texts)


def _mapped(results):
  """Return results whose labels are mapped to the classes of the predictions."""
  name = class_of(results)
  map_name = None
  if name:
    map_name = results[name].attrs.get("label_map")
  if map_name not in results.variables:
    return results
  # `[:]` makes a copy to read, because xarray caches what it reads. Labels of many runs
  # are made only when used.
  maps = results[map_name][:].values
  original = results.labels.load()
  labels = results[map_name].isel(original_class=original.drop_attrs()).drop_attrs()
  # With one map for all runs, votes can be pooled: labels are (example,) then.
  if len(maps) > 0 and (maps == maps[0]).all():
    labels = labels[0]
  return results.assign(labels=labels, original_labels=original)


def predicted_classes(
  results: xr.Dataset, name: str | None = None
) -> Int[np.ndarray, "runs ..."]:
  """Return predicted classes, `NOT_ASKED` where a run was not asked for an example.

  Args:
    results: the runs.
    name: the output; by default the only one that is a class.
  """
  predictions = results[name or class_of(results) or "predictions"].values
  if MASK in results.variables:
    # Folders of earlier versions have -1 there, too.
    predictions = np.where(results[MASK].values, predictions, NOT_ASKED)
  return predictions


def require_predictions(results):
  """Return results as `open_results` gives them; a folder's path is opened.

  Raises:
    UserError: they are something else, or their predictions were not kept.
  """
  if isinstance(results, Folder):
    results = open_results(results)
  if class_of(check_classes(results)) is None:
    raise UserError(
      "predictions were not kept: take vs.tally, or train with predictions='all' in "
      "another folder"
    )
  return results


def check_classes(results: xr.Dataset) -> xr.Dataset:
  """Return the results.

  Raises:
    UserError: they are no results, or have no labels.
  """
  if not isinstance(results, xr.Dataset):
    raise UserError(
      f"results is {type(results).__name__}: give what vs.open_results returns, or the "
      "path of a folder"
    )
  if "labels" in results.variables:
    return results
  raise UserError(
    "these results have no labels, and so no errors: give vs.stats losses of the arrays "
    "of vs.open_results"
  )


def converged_runs(results: xr.Dataset) -> Int[np.ndarray, " runs"]:
  """Return the places of the runs that did not diverge."""
  if DIVERGED not in results.variables:
    return np.arange(results.sizes["run"])
  return np.flatnonzero(~results[DIVERGED].values)


@hide_own_frames
def error_matrix(results: xr.Dataset | Folder) -> Bool[np.ndarray, "runs examples"]:
  """Return predictions != labels for the runs that did not diverge.

  Args:
    results: opened results, or the path of a folder.

  Returns:
    (runs, examples), bool; where runs were not asked for all examples, as those that hold
      some out, a masked array: `errors.mean(1)` is then of what each was asked for.
  """
  results = require_predictions(results)
  kept = results.isel(run=converged_runs(results))
  predictions = predicted_classes(kept)
  # Both of one dtype: comparing arrays of different dtypes is many times slower.
  errors = predictions != kept.labels.values.astype(predictions.dtype)
  is_missing = predictions == NOT_ASKED
  if not is_missing.any():
    return errors
  return np.ma.MaskedArray(errors, is_missing)


def prediction_blocks(
  results: xr.Dataset | Folder, runs: int = 4096
) -> Iterator[Int[np.ndarray, "runs examples"]]:
  """Yield the predictions of the runs that did not diverge, `runs` of them at a time,
  for `stats.tally_blocks`.

  Raises:
    UserError: label maps differ between runs, so that no labels fit all of them.
  """
  check_at_least("runs of a block", runs, 1)
  results = require_predictions(results)
  if "run" in results.labels.dims:
    raise UserError(
      "these runs have a label map each, and no labels fit all of them: take "
      "vs.error_matrix(results)"
    )
  kept = converged_runs(results)
  for start in range(0, len(kept), runs):
    block = kept[start : start + runs]
    yield predicted_classes(results.isel(run=block))


@hide_own_frames
@moves_data
def tally(
  results: xr.Dataset | Folder, test_set: str = "test", *, pairs: bool = False
) -> stats.Tallies:
  """Return the tallies of the runs that did not diverge: those that a campaign has
  stored, if they are of exactly these runs, or counts of the predictions.

  Both are equal, whatever the blocks and devices.

  Args:
    results: a results folder, or what `open_results` returned for it, or some of its
      runs.
    test_set: which test set, if `results` is a folder.
    pairs: whether to have joint error counts, which campaigns store on request.

  Raises:
    UserError: label maps differ between runs; or stored tallies do not suffice and
      predictions were not kept.
  """
  if isinstance(results, Folder):
    results = open_results(results, test_set)
  stored = stored_tallies(check_classes(results), pairs=pairs)
  if stored is not None:
    if not pairs or stored.joint_errors is not None:
      return stored
    if class_of(results) is None:
      raise UserError(
        "joint error counts were not stored, nor predictions: train with pairs=True in "
        "another folder"
      )
  results = require_predictions(results)
  blocks = prediction_blocks(results)
  num_classes = int(results[class_of(results)].attrs["num_classes"])
  # A generator checks nothing until it is asked: its first block says what is wrong
  # before anything is counted.
  first = list(itertools.islice(blocks, 1))
  # Labels are alike for all runs: others have been refused.
  labels = results.labels.values
  return stats.tally_blocks(
    itertools.chain(first, blocks), labels, num_classes, pairs=pairs
  )


def stored_tallies(results: xr.Dataset, *, pairs: bool) -> stats.Tallies | None:
  """Return the stored tallies of exactly these runs, or None.

  A block's counts of a combination of values are used if all of its runs are among
  these, each once. With `pairs`, they have joint errors if those were stored.
  """
  needed = {"votes", "counted", "half_errors", "labels", "run_place"}
  if not needed <= set(results.variables):
    return None
  kept = results.isel(run=converged_runs(results))
  rows, block, combination = kept.run_place.values.T
  counted = results.counted.values.astype(np.int64)
  of_these = np.zeros_like(counted)
  np.add.at(of_these, (block, combination), 1)
  # A block's count is of all its runs; of some of them, there is none.
  chosen = of_these > 0
  # A user may choose a run twice, as a bootstrap does; it was counted once.
  repeated = len(set(rows)) < len(rows)
  if repeated or (of_these != counted)[chosen].any():
    return None

  votes = _sum_of_counts(results["votes"], chosen)
  joint_errors = None
  if pairs and "joint_errors" in results:
    joint_errors = _sum_of_counts(results["joint_errors"], chosen).astype(np.int32)
  return stats.Tallies.from_counts(
    results.labels.values, votes, kept.half_errors.values.T, joint_errors
  )


def _sum_of_counts(
  counts: xr.DataArray, chosen: Bool[np.ndarray, "blocks combinations"]
) -> Any:
  """Return the sum of the chosen counts of a folder's blocks: of votes for many classes,
  nearly all of which are 0, a sparse array.
  """
  shape = counts.shape[2:]
  is_sparse = counts.name == "votes" and shape[1] > MANY_CLASSES
  total: Any = np.zeros(shape, np.int64)
  if is_sparse:
    total = scipy.sparse.csr_array(shape, dtype=np.int64)
  # Block by block, because all together may be larger than memory.
  for number in np.flatnonzero(chosen.any(axis=1)):
    of_block = counts[int(number)].values
    for combination in np.flatnonzero(chosen[number]):
      counted = of_block[combination]
      # In place: a second table of all classes would double the memory.
      if is_sparse:
        total = total + scipy.sparse.csr_array(counted)
      else:
        total += counted
  return total


def load_into_memory(results: xr.Dataset, where: Folder) -> xr.Dataset:
  """Return results read into memory, except logits and counts.

  Raises:
    UserError: they do not fit in memory.
  """
  large = [
    name
    for name, array in results.items()
    if array.attrs.get("role") == "logits" or name in COUNTS
  ]
  small = results.drop_vars(large)
  # Said here, because the system would end the process without a word.
  if small.nbytes > free_host_memory():
    raise UserError(
      f"{where} holds {small.nbytes / 1e9:.3g} GB to read, more than memory is free: "
      "take fewer runs"
    )
  return results.assign(small.load().data_vars)
