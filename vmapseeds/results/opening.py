"""The results of campaigns and imports as xarray, with their errors and tallies."""

import itertools
from collections.abc import Iterator

import numpy as np
import xarray as xr
from jaxtyping import Bool, Int

from vmapseeds import stats
from vmapseeds.machine import free_host_memory
from vmapseeds.mistakes import Mistake, at_least, one_of, whole_number
from vmapseeds.store.files import Folder
from vmapseeds.store.layout import readable
from vmapseeds.store.results import Results, finished

COUNTS = ("votes", "joint_errors")  # arrays of writes


def open_results(
  path: Folder, test_set: str = "test", epoch: int | None = None
) -> xr.Dataset:
  """Opens the finished runs of a campaign, or imported runs: an `xarray.Dataset` that
  reads arrays when they are used.

  Dimensions are `run`, `example` (of one test set) and `class`; variables
  `predictions(run, example)`, `labels(example)`, `accuracy(run)`, `diverged(run)`,
  `seed_<source>(run)` for each source, swept hyperparameters by their names and, where
  kept, `logits(run, example, class)`. Attributes: the recipe as JSON (`recipe`),
  `versions`, `device_kind`, `lane_width`, `lowering`, `precision`, and the `mean` and
  `std` that pixels were normalised with. Seeds
  and swept values are coordinates: `results.groupby("lr")`.

  If targets are not classes, they are in `targets(example)`, and there are no labels
  and no accuracy. For a task other than a recipe's, the variables are what its `finish`
  returns.

  `labels` are classes as the networks predict them. Under a label map they are mapped,
  and the data set's own are in `original_labels(example)`. If label maps differ between
  runs, an example has no single label: `labels` is then `(run, example)`, and
  `predictions == labels` still says who is right, but votes cannot be pooled.

  A recipe with `training_metrics` adds `train_loss(run)` and `train_accuracy(run)`.
  With `evaluate_every` there are also these, `predictions` and `accuracy` after some
  epochs: `epoch_predictions(run, epoch, example)` and so on. `epoch` chooses one of
  them, and `predictions` and the others are then those after that epoch. Runs that
  diverge later still count as diverged. A recipe with `stop_at` adds
  `trained_epochs(run)`.

  Raises:
    Mistake: `path` is no results folder, has no such test set, or was not evaluated
      after that epoch.
  """
  results = Results(path)
  if sets := results.root["test_sets"]:
    one_of("test set", test_set, sets)
  with readable(path):
    opened = _of_epoch(finished(results, test_set if sets else None), path, epoch)
    return _mapped(
      opened.set_coords(
        [name for name in results.columns if opened[name].dims == ("run",)]
      )
    )


def _of_epoch(results: xr.Dataset, path: Folder, epoch: int | None) -> xr.Dataset:
  """Results whose predictions are those after an epoch; None for the end of the
  training.
  """
  if epoch is None:
    return results
  there = results.epoch.values.tolist() if "epoch" in results.variables else []
  if (whole := whole_number(epoch)) not in there:
    remedy = (
      f"give one of {', '.join(map(str, there))}"
      if there
      else "train with evaluate_every to have any"
    )
    raise Mistake(f"{path} was not evaluated after epoch {epoch!r:.50}: {remedy}")
  of_epoch = results.sel(epoch=whole, drop=True)
  names = [name for name in map(str, of_epoch) if name.startswith("epoch_")]
  chosen = of_epoch.drop_vars([*names, *{"logits", *COUNTS} & {*of_epoch}])
  return chosen.assign(
    {name.removeprefix("epoch_"): of_epoch[name] for name in names}
  ).assign_attrs(epoch=whole)


def _mapped(results: xr.Dataset) -> xr.Dataset:
  """Results whose labels are mapped to the classes of the predictions."""
  if "label_map" not in results:
    return results
  # `[:]` makes a copy to read, because xarray caches what it reads. Labels of many runs
  # are made only when used.
  maps, original = results.label_map[:].values, results.labels.load()
  labels = results.label_map.isel(original_class=original.drop_attrs())
  shared = len(maps) > 0 and (maps == maps[0]).all()
  return results.assign(
    labels=labels[0] if shared else labels, original_labels=original
  )


def opened(results: xr.Dataset | Folder) -> xr.Dataset:
  """Results as `open_results` gives them; a folder's path is opened. `Mistake` for
  others, or without predictions.
  """
  if isinstance(results, Folder):
    results = open_results(results)
  if "predictions" not in check_classes(results):
    raise Mistake(
      "predictions were not kept: take vs.tally, or train with predictions='all' in another folder"
    )
  return results


def check_classes(results: xr.Dataset) -> xr.Dataset:
  """Returns the results. `Mistake` if they are no results, or have no labels."""
  if not isinstance(results, xr.Dataset):
    raise Mistake(
      f"results is {type(results).__name__}: give what vs.open_results returns, or the path of a folder"
    )
  if {"labels", "diverged"} <= {*results.variables}:
    return results
  raise Mistake(
    "these results have no labels, and so no errors: give vs.stats losses of the arrays of vs.open_results"
  )


def errors(results: xr.Dataset | Folder) -> Bool[np.ndarray, "runs examples"]:
  """predictions != labels for the runs that did not diverge. Takes opened results, or
  the path of a folder.
  """
  results = opened(results)
  kept = results.isel(run=np.flatnonzero(~results.diverged.values))
  # Both of one dtype: comparing arrays of different dtypes is many times slower.
  return kept.predictions.values != kept.labels.values.astype(kept.predictions.dtype)


def prediction_blocks(
  results: xr.Dataset | Folder, runs: int = 4096
) -> Iterator[Int[np.ndarray, "runs examples"]]:
  """Yields the predictions of the runs that did not diverge, `runs` of them at a time,
  for `stats.tally_blocks`.

  Raises:
    Mistake: label maps differ between runs, so that no labels fit all of them.
  """
  at_least("runs of a block", runs, 1)
  results = opened(results)
  if "run" in results.labels.dims:
    raise Mistake(
      "these runs have a label map each, and no labels fit all of them: take vs.errors(results)"
    )
  kept = np.flatnonzero(~results.diverged.values)
  for start in range(0, len(kept), runs):
    yield results.predictions.isel(run=kept[start : start + runs]).values


def tally(
  results: xr.Dataset | Folder, test_set: str = "test", *, pairs: bool = False
) -> stats.Tallies:
  """The tallies of the runs that did not diverge: those that a campaign has stored, or
  counts of the predictions.

  Both are equal, whatever the blocks and devices. Stored tallies are of all runs of a
  folder.

  Args:
    results: a results folder, or what `open_results` returned for it.
    test_set: which test set, if `results` is a folder.
    pairs: whether to have joint error counts, which campaigns store on request.

  Raises:
    Mistake: label maps differ between runs; or stored tallies do not suffice and
      predictions were not kept.
  """
  if isinstance(results, Folder):
    with readable(path := results):
      results = added_up(open_results(path, test_set), pairs=pairs)
  found = stored_tallies(check_classes(results), pairs=pairs)
  if found is None or (pairs and found.joint_errors is None):
    if found is not None and "predictions" not in results:
      raise Mistake(
        "joint error counts were not stored, nor predictions: train with pairs=True in another folder"
      )
    blocks, num_classes = prediction_blocks(results), int(results.attrs["num_classes"])
    first = list(
      itertools.islice(blocks, 1)
    )  # says what is wrong before anything is counted
    return stats.tally_blocks(
      itertools.chain(first, blocks), results.labels.values, num_classes, pairs=pairs
    )
  return found


def stored_tallies(results: xr.Dataset, *, pairs: bool) -> stats.Tallies | None:
  """The stored tallies of exactly these runs, or None. With `pairs`, they have joint
  errors if those were stored.
  """
  if not {"votes", "half_errors", "labels"} <= {*results.variables}:
    return None
  results, halves = (
    added_up(results, pairs=pairs),
    results.half_errors.values[~results.diverged.values],
  )
  joint = results.joint_errors.values[0] if "joint_errors" in results else None
  found = stats.Tallies.from_counts(
    results.labels.values, results.votes.values[0], halves.T, joint
  )
  # The numbers of errors tell whether the votes are of exactly these runs.
  return found if found.wrong.sum() == halves.sum() else None


def added_up(results: xr.Dataset, *, pairs: bool) -> xr.Dataset:
  """Results with the counts of all writes added up into one write, and read. Joint
  errors are kept only for `pairs`.
  """
  sums = {}
  for counts in (results[name] for name in COUNTS[: 1 + pairs] if name in results):
    total = np.zeros((1, *counts.shape[1:]), np.int32)
    for of_write in counts:  # all together may be larger than memory
      total += of_write.values
    sums[counts.name] = counts.dims, total
  return results.drop_vars(COUNTS, errors="ignore").assign(sums)


def loaded(results: xr.Dataset, where: Folder) -> xr.Dataset:
  """Results read into memory, except logits. `Mistake` if they do not fit in memory."""
  with readable(where):
    small = results.drop_vars("logits", errors="ignore")
    if small.nbytes > free_host_memory():
      raise Mistake(
        f"{where} holds {small.nbytes / 1e9:.3g} GB to read, more than memory is free: take fewer runs"
      )
    return results.assign(small.load().data_vars)
