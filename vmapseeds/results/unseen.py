"""What runs make of examples that they have not seen, and metrics of kept outputs."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.special
import xarray as xr
from jaxtyping import Bool, Int

from vmapseeds import stats
from vmapseeds.errors import UserError, hide_own_frames, option
from vmapseeds.results.by_example import (
  count_classes,
  open_with_held_out,
  table_of_votes,
  votes_of_held_out,
)
from vmapseeds.results.description import parsed_attribute
from vmapseeds.results.measured import add_measured, read_measured
from vmapseeds.results.opening import (
  class_of,
  converged_runs,
  open_with_rows,
  predicted_classes,
  resolve_test_set,
)
from vmapseeds.stats._arrays import safe_divide
from vmapseeds.store.files import Folder
from vmapseeds.target import moves_data
from vmapseeds.training import metrics as run_metrics
from vmapseeds.training.names import EXAMPLE_ID, MASK, NOT_ASKED
from vmapseeds.training.recipes import check_metric


@hide_own_frames
@moves_data
def held_out(results: xr.Dataset | Folder) -> xr.Dataset:
  """Return what the runs that had not seen an example make of it together, as out-of-bag
  predictions of a forest: of runs of `Runs.k_fold`, `Runs.out_of_bootstrap` or
  `Runs.bootstrap`.

  Args:
    results: a results folder, or what `open_results` returned for it, or some of its
      runs. Runs that diverged are left out.

  Returns:
    (example,) arrays: `runs`, how many held it out; `mean_loss`, unless the loss depends on
      its batch; of classes `labels`,
      `prediction` (of most votes, the lowest class of tied ones, -1 without runs),
      `error_rate` and `vote_fractions(example, class)`, and with kept logits
      `probabilities(example, class)`, the mean of those of the runs; else `targets` and
      `prediction`, the mean. NaN where no run held an example out.

  Raises:
    UserError: these are no results of such runs, or predictions were not kept.
  """
  if isinstance(results, Folder):
    opened = open_with_held_out(results)
  else:
    opened = results
  check_held_out(opened)
  kept = opened.isel(run=converged_runs(opened))
  mask = asked_for(kept)
  runs = mask.sum(0)
  table: dict[str, Any] = {"runs": ("example", runs)}
  if EXAMPLE_ID in kept.variables:
    table[EXAMPLE_ID] = kept[EXAMPLE_ID].variable
  if "losses" in kept:
    table["mean_loss"] = ("example", _mean_of(kept["losses"].values, mask))
  if "labels" in kept:
    table |= _classes_by_example(opened, kept, mask)
  else:
    predictions = kept["predictions"]
    mean = _mean_of(predictions.values, mask)
    table["targets"] = kept["targets"].variable
    table["prediction"] = (predictions.dims[1:], mean)
  return xr.Dataset(table)


def check_held_out(opened: xr.Dataset) -> None:
  """Raise `UserError` unless runs kept what they made of examples that they held out, or
  were asked for.
  """
  has_classes = class_of(opened) is not None
  are_missing = has_classes and (predicted_classes(opened) == NOT_ASKED).any()
  if MASK not in opened and not are_missing:
    raise UserError(
      "these runs hold no examples out, or did not keep what they made of them: train "
      "with Runs.k_fold, Runs.out_of_bootstrap or Runs.bootstrap; or import predictions "
      f"that are {NOT_ASKED} where a run was not asked"
    )
  if "predictions" not in opened:
    raise UserError("predictions were not kept: train with predictions='all'")
  # Votes for a class of one run and a class of another would be added up.
  if "labels" in opened and "run" in opened["labels"].dims:
    raise UserError("runs with label maps have no common labels: leave these out")


def asked_for(results: xr.Dataset) -> Bool[np.ndarray, "runs examples"]:
  """Return for which examples each run was asked: those that it held out."""
  if MASK in results:
    return results[MASK].values
  return predicted_classes(results) != NOT_ASKED


def _classes_by_example(
  opened: xr.Dataset, kept: xr.Dataset, mask: Bool[np.ndarray, "runs examples"]
) -> dict[str, Any]:
  """Return what the runs that held an example out make of its class.

  Args:
    opened: all runs.
    kept: those that did not diverge.
    mask: which examples each of these held out.
  """
  counts = votes_of_held_out(opened)
  by_example = table_of_votes(counts)
  votes = counts.votes
  if not isinstance(votes, np.ndarray):
    votes = votes.toarray()
  columns: dict[str, Any] = {
    "labels": by_example["label"].variable,
    "prediction": by_example["most_voted"].variable,
    "error_rate": by_example["error_rate"].variable,
    "vote_fractions": (("example", "class"), safe_divide(votes, mask.sum(0)[:, None])),
  }
  if "logits" in kept:
    logits = kept["logits"].values.astype(float)
    probabilities = scipy.special.softmax(logits, axis=-1)
    mean = _mean_of(probabilities, mask)
    columns["probabilities"] = (("example", "class"), mean)
  return columns


@hide_own_frames
@moves_data
def measure(
  results: xr.Dataset | Folder,
  metrics: Mapping[str, Any] | Sequence[str],
  test_set: str = "test",
) -> xr.Dataset:
  """Compute metrics of runs from their kept outputs, without training them again.

  >>> vs.measure("results/mine", ["auc", "brier"]).auc.attrs  # doctest: +SKIP

  Where `results` is a folder, they are added to it: `open_results`, reports, comparisons
  and tables then have them as scores, as those of `Recipe.metrics`. A metric that the
  folder has from its training stays. After an extension of the folder, measure again.

  Args:
    results: a results folder with kept logits (`logits=True`, `--logits`), or what
      `open_results` returned for it, or some of its runs. Predictions do as well where
      they are the network's outputs (`predict="outputs"`).
    metrics: functions of (outputs, targets) by names, as in `Recipe.metrics`, or some of
      the ready ones by name. Functions that JAX cannot trace, such as scikit-learn's, get
      arrays of NumPy.
    test_set: which test set, if `results` is a folder.

  Returns:
    of each metric a variable (run,), NaN for runs that diverged and where it is
      undefined. Its attributes have
      `mean`, `se`, `low` and `high` (95 % interval) over the other runs, NaN without any;
      `undefined`, in how many sound runs it is; and `ensemble`: of
      the runs' mean probability, or mean output where targets are no classes. Of runs
      that hold examples out, each is measured on its own, and the ensemble of those that
      had not seen an example on all that some run held out.

  Raises:
    UserError: outputs were not kept, or do not fit a metric; or the folder cannot be
      written.
  """
  rows = None
  if isinstance(results, Folder):
    opened, rows = open_with_rows(results, test_set)
  else:
    opened = results
  kept = _kept_outputs(opened)
  if isinstance(metrics, str):
    metrics = [metrics]
  if not isinstance(metrics, Mapping):
    metrics = {metric: metric for metric in metrics}

  ensemble = _ensemble(kept)
  measured: dict[str, Any] = {}
  for metric_name, name_or_function in metrics.items():
    metric = _check_metric(metric_name, name_or_function, kept.targets, kept.classes)
    measure_one = functools.partial(run_metrics.measure_metric, metric_name, metric)
    if run_metrics.is_traceable(metric, kept.outputs, kept.targets):
      # Compiled once a metric, and again for each other number of examples.
      measure_one = jax.jit(measure_one)
    values = np.full(len(kept.outputs), np.nan)
    for run in np.flatnonzero(kept.alive):
      own = kept.mask[run]
      values[run] = measure_one(kept.outputs[run][own], kept.targets[own])
    attributes = _summarize(values[kept.alive])
    attributes["ensemble"] = float(measure_one(*ensemble))
    attributes["higher_is_better"] = metric.higher_is_better
    measured[metric_name] = xr.Variable(("run",), values, attributes)

  if isinstance(results, Folder) and rows is not None:
    _keep_measured(results, test_set, opened, rows, measured)
  columns = {
    str(name): column
    for name, column in opened.coords.items()
    if column.dims == ("run",)
  }
  return xr.Dataset(measured, coords=columns)


class _KeptOutputs(NamedTuple):
  """What metrics of runs are measured on.

  Attributes:
    outputs: (runs, examples, ...), of the networks, float32.
    targets: (examples, ...).
    classes: how many; None where targets are none.
    alive: (runs,), whether they did not diverge.
    mask: (runs, examples), on which examples each run is measured.
  """

  outputs: np.ndarray
  targets: np.ndarray
  classes: int | None
  alive: Bool[np.ndarray, " runs"]
  mask: Bool[np.ndarray, "runs examples"]


def _kept_outputs(opened: xr.Dataset) -> _KeptOutputs:
  """Return the outputs that results hold; raise `UserError` if there are none."""
  name = "logits" if "logits" in opened else "predictions"
  # Predictions of classes are no outputs; of a regression, they are.
  is_outputs = name == "logits" or "targets" in opened
  if name not in opened or not is_outputs or class_of(opened) == "logits":
    raise UserError(
      f"outputs of the networks were not kept: train with {option('logits', True)}, in "
      "another folder"
    )
  classes = None
  if "labels" in opened:
    targets = opened["labels"].values
    if targets.ndim != 1:
      raise UserError("label maps differ between runs: measure runs of one label map")
    classes = count_classes(opened)
  else:
    targets = opened["targets"].values

  # Kept in float16 or bfloat16, outputs would round the metrics, too.
  outputs = opened[name].values.astype(np.float32)
  alive = np.zeros(len(outputs), bool)
  alive[converged_runs(opened)] = True
  # Logits of examples that a run was not asked for are NaN.
  mask = ~np.isnan(outputs.reshape(*outputs.shape[:2], -1)).all(axis=2)
  if MASK in opened:
    mask = opened[MASK].values
  return _KeptOutputs(outputs, targets, classes, alive, mask)


def _keep_measured(
  folder: Folder,
  test_set: str,
  opened: xr.Dataset,
  rows: Int[np.ndarray, " runs"],
  measured: Mapping[str, xr.Variable],
) -> None:
  """Add metrics to their folder, but for those that it has from its training."""
  test_sets = parsed_attribute(opened, "test_sets")
  group = resolve_test_set(test_sets, test_set) if test_sets else ""
  earlier = read_measured(folder, group)
  # What was measured before is opened, too, and is measured anew.
  new = {
    name: metric
    for name, metric in measured.items()
    if name in earlier or name not in opened
  }
  add_measured(folder, group, rows, new)


def _check_metric(
  name: str, name_or_function: Any, targets: np.ndarray, classes: int | None
) -> run_metrics.Metric:
  """Return a metric; raise `UserError` if it does not fit the targets."""
  check_metric(name, name_or_function)
  metric = run_metrics.metric_of(name, name_or_function)
  run_metrics.check_metric(name, metric, targets, classes)
  return metric


def _summarize(values: np.ndarray) -> dict[str, Any]:
  """Return what is known of a metric over the runs, as the attributes that have it."""
  is_defined = np.isfinite(values)
  mean = stats.Estimate(np.nan)
  if is_defined.any():
    mean = stats.mean_over_runs(values[is_defined])
  return {
    "undefined": int((~is_defined).sum()),
    "mean": float(mean),
    "se": float(mean.se),
    "low": float(mean.low),
    "high": float(mean.high),
  }


def _ensemble(kept: _KeptOutputs) -> tuple[Any, Any]:
  """Return the outputs of all runs together, log probabilities of classes, and the
  targets, of the examples that some run has not seen.
  """
  outputs = kept.outputs[kept.alive].astype(np.float64)
  mask = kept.mask[kept.alive]
  unseen_by_some = mask.any(axis=0)
  if kept.classes is None:
    together = _mean_of(outputs, mask)
  else:
    # Metrics take log probabilities as logits: softmax gives the mean back. Logarithms
    # still rank probabilities that are 0 or 1 in floating point.
    log_p = scipy.special.log_softmax(outputs, axis=-1)
    # What is left out may be NaN.
    log_p = np.where(mask[..., None], log_p, -np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
      total = scipy.special.logsumexp(log_p, axis=0)
      together = total - np.log(mask.sum(axis=0))[:, None]
  outputs_of_all = together.astype(np.float32)[unseen_by_some]
  return outputs_of_all, kept.targets[unseen_by_some]


def _mean_of(values, mask):
  """Return the mean over the runs of the mask, NaN where there is none."""
  # The mask is (runs, examples), and values may have more axes behind.
  further_axes = tuple(range(2, values.ndim))
  mask = np.expand_dims(mask, further_axes)
  # Not `values * mask`, because what is left out may be NaN.
  total = np.where(mask, values, 0).sum(axis=0, dtype=np.float64)
  return safe_divide(total, mask.sum(axis=0))
