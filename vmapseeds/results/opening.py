"""The results of campaigns and imports as xarray, and what must be true of their values."""

import os
from collections.abc import Iterator

import numpy as np
import xarray as xr
from jaxtyping import Bool, Int
from upath import UPath

from vmapseeds.machine import free_host_memory
from vmapseeds.mistakes import Mistake, at_least, one_of
from vmapseeds.store.layout import readable
from vmapseeds.store.results import Results, finished

REMEDY = "give a folder as `vmapseeds train` or `import` left it"


def open_results(path: str | os.PathLike, test_set: str = "test", epoch: int | None = None) -> xr.Dataset:
  """The finished runs of a campaign, or imported ones: an `xarray.Dataset` that reads from disk what is asked of it.

  Dimensions are `run`, `example` (of one test set) and `class`; variables `predictions(run, example)`,
  `labels(example)`, `accuracy(run)`, `diverged(run)`, one `seed_<source>(run)` a source, swept hyperparameters by
  their names and, where kept, `logits(run, example, class)`. Attributes: the recipe as JSON (`recipe`), `versions`,
  `device_kind`, `lane_width`, `lowering`, `precision`, `mean` and `std` of pixels as the networks saw them. Seeds and
  swept values are coordinates: `results.groupby("lr")`.

  Where targets are no classes, they are `targets(example)`, and there are no labels and no accuracy. Of a task that is
  no recipe's, the variables are what its `finish` gives.

  `labels` are the classes that the predictions are of. Under a label map they are mapped, and the data set's own are
  `original_labels(example)`. Where label maps differ between runs there is no one label of an example: `labels` is
  then `(run, example)`, and `predictions == labels` still says who is right, but votes cannot be pooled.

  Of a recipe with `training_metrics`, also `train_loss(run)` and `train_accuracy(run)`; with `evaluate_every`, these,
  `predictions` and `accuracy` as they were after some epochs too: `epoch_predictions(run, epoch, example)` and so on.
  `epoch` chooses one, which is then what `predictions` and the others are of; runs that diverge later too count as
  diverged.

  Raises:
    Mistake: `path` is no results folder, has no such test set, or was not evaluated after that epoch.
  """
  results = Results(path)
  if sets := results.root["test_sets"]:
    one_of("test set", test_set, sets)
  with readable(path):
    opened = _of_epoch(finished(results, test_set if sets else None), path, epoch)
    return _mapped(opened.set_coords([name for name in results.columns if opened[name].dims == ("run",)]))


def _of_epoch(results: xr.Dataset, path: str | os.PathLike, epoch: int | None) -> xr.Dataset:
  """Results whose predictions are those after an epoch; None for the end of the training."""
  if epoch is None:
    return results
  there = results.epoch.values.tolist() if "epoch" in results.variables else []
  if epoch not in there:
    remedy = f"give one of {', '.join(map(str, there))}" if there else "train with evaluate_every to have any"
    raise Mistake(f"{path} was not evaluated after epoch {epoch!r:.50}: {remedy}")
  of_epoch = results.sel(epoch=epoch, drop=True)
  names = [name for name in map(str, of_epoch) if name.startswith("epoch_")]
  chosen = of_epoch.drop_vars([*names, *{"logits"} & {*of_epoch}])
  return chosen.assign({name.removeprefix("epoch_"): of_epoch[name] for name in names}).assign_attrs(epoch=epoch)


def _mapped(results: xr.Dataset) -> xr.Dataset:
  """Results whose labels fit the predictions."""
  if "label_map" not in results:
    return results
  # Read from a copy: what is read is kept, and labels of many runs are only made when they are asked for.
  maps, original = results.label_map[:].values, results.labels.load()
  labels = results.label_map.isel(original_class=original.drop_attrs())
  shared = len(maps) > 0 and (maps == maps[0]).all()
  return results.assign(labels=labels[0] if shared else labels, original_labels=original)


def opened(results: xr.Dataset | str | os.PathLike) -> xr.Dataset:
  """Results as `open_results` gives them, opened where they are a folder's path. `Mistake` for anything else."""
  if isinstance(results, str | os.PathLike | UPath):
    results = open_results(results)
  if isinstance(results, xr.Dataset):
    return check_classes(results)
  raise Mistake(f"results is {type(results).__name__}: give what vs.open_results returns, or the path of a folder")


def check_classes(results: xr.Dataset) -> xr.Dataset:
  """The results. `Mistake` where they have no labels."""
  if {"labels", "diverged"} <= {*results.variables}:
    return results
  arrays = ", ".join(map(str, results.data_vars))
  raise Mistake(f"these results have no labels, and so no errors: take their arrays, which are {arrays}")


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


def check_memory(results: xr.Dataset, where: str | os.PathLike) -> None:
  """`Mistake` where results are larger than what memory is free."""
  if results.nbytes > free_host_memory():
    raise Mistake(f"{where} holds {results.nbytes / 1e9:.3g} GB to read, more than memory is free: take fewer runs")


def check_values(results: xr.Dataset, where: str | os.PathLike) -> None:
  """`Mistake` for labels, predictions and accuracies out of range, or not there."""
  check_classes(results)
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
