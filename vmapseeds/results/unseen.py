"""What runs make of examples that they have not seen, and metrics of kept outputs."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
import xarray as xr

from vmapseeds import stats
from vmapseeds.mistakes import Mistake, door, safe_name
from vmapseeds.results.measured import add_measured, read_measured
from vmapseeds.results.opening import (
  class_of,
  converged,
  open_results,
  open_with_rows,
  resolve_test_set,
)
from vmapseeds.store.files import Folder
from vmapseeds.target import moves_data
from vmapseeds.training import metrics as run_metrics
from vmapseeds.training.names import EXAMPLE_ID, HELD_OUT
from vmapseeds.training.recipes import METRICS, Names


@door
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
    Mistake: these are no results of such runs, or predictions were not kept.
  """
  if isinstance(results, Folder):
    opened = open_results(results)
    if HELD_OUT in (opened.attrs.get("test_sets") or ()):
      opened = open_results(results, HELD_OUT)
  else:
    opened = results
  if "mask" not in opened or HELD_OUT not in opened.attrs.get("test_sets", ()):
    raise Mistake(
      "these runs hold no examples out, or did not keep what they made of them: train "
      "with Runs.k_fold, Runs.out_of_bootstrap or Runs.bootstrap"
    )
  if "predictions" not in opened:
    raise Mistake("predictions were not kept: train with predictions='all'")
  if "label_map" in opened.variables:
    raise Mistake("runs with label maps have no common labels: leave these out")
  kept = opened.isel(run=converged(opened))
  mask, predictions = kept["mask"].values, kept["predictions"].values
  runs = mask.sum(0)
  found: dict[str, Any] = {
    "runs": ("example", runs),
  }
  if EXAMPLE_ID in kept.variables:
    found[EXAMPLE_ID] = kept[EXAMPLE_ID].variable
  if "losses" in kept:
    found["mean_loss"] = "example", _mean_of(kept["losses"].values, mask)
  if "labels" not in kept:
    dims = kept["predictions"].dims[1:]
    found["targets"] = kept["targets"].variable
    found["prediction"] = dims, _mean_of(predictions, mask)
    return xr.Dataset(found)
  labels = kept["labels"].values
  classes = _num_classes(kept)
  votes = np.stack([(mask & (predictions == c)).sum(0) for c in range(classes)], axis=1)
  prediction = np.where(runs > 0, votes.argmax(1), -1)
  found |= {
    "labels": ("example", labels),
    "prediction": ("example", prediction),
    "error_rate": ("example", _mean_of(predictions != labels, mask)),
    "vote_fractions": (("example", "class"), _ratio(votes, runs[:, None])),
  }
  if "logits" in kept:
    probabilities = scipy.special.softmax(kept["logits"].values.astype(float), axis=-1)
    found["probabilities"] = ("example", "class"), _mean_of(probabilities, mask)
  return xr.Dataset(found)


@door
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
      the ready ones by name.
    test_set: which test set, if `results` is a folder.

  Returns:
    of each metric a variable (run,), NaN for runs that diverged. Its attributes have
      `mean`, `se`, `low` and `high` (95 % interval) over the runs, and `ensemble`: of
      the runs' mean probability, or mean output where targets are no classes. Of runs
      that hold examples out, each is measured on its own, and the ensemble of those that
      had not seen an example on all that some run held out.

  Raises:
    Mistake: outputs were not kept, or do not fit a metric; or the folder cannot be
      written.
  """
  rows = None
  if isinstance(results, Folder):
    opened, rows = open_with_rows(results, test_set)
  else:
    opened = results
  name = "logits" if "logits" in opened else "predictions"
  is_outputs = name == "logits" or "targets" in opened
  if name not in opened or not is_outputs or class_of(opened) == "logits":
    raise Mistake(
      "outputs of the networks were not kept: train with --logits, in another folder"
    )
  if isinstance(metrics, str):
    metrics = [metrics]
  given = metrics if isinstance(metrics, Mapping) else {name: name for name in metrics}
  targets = opened["labels" if "labels" in opened else "targets"].values
  if "labels" in opened and opened["labels"].ndim != 1:
    raise Mistake("label maps differ between runs: measure runs of one label map")
  classes = _num_classes(opened) if "labels" in opened else None
  outputs = opened[name].values.astype(np.float32)
  alive = np.zeros(len(outputs), bool)
  alive[converged(opened)] = True
  mask = opened["mask"].values if "mask" in opened else None
  if mask is None:
    mask = np.ones(outputs.shape[:2], bool)
  together, seen_by = _ensemble(outputs[alive], mask[alive], classes)
  found: dict[str, Any] = {}
  for metric_name, value in given.items():
    safe_name("metric", metric_name)
    Names(METRICS, "a function of (outputs, targets)").check(
      f"metric {metric_name}", value
    )
    metric = run_metrics.metric_of(metric_name, value)
    run_metrics.check_metric(metric_name, metric, targets, classes)
    of_one = jax.jit(
      lambda outputs, targets, name=metric_name, metric=metric: run_metrics.measure(
        name, metric, outputs, targets
      )
    )
    values = np.full(len(outputs), np.nan)
    for run in np.flatnonzero(alive):
      own = mask[run]
      values[run] = of_one(jnp.asarray(outputs[run][own]), jnp.asarray(targets[own]))
    ensemble = of_one(jnp.asarray(together[seen_by]), jnp.asarray(targets[seen_by]))
    estimate = stats.ideal_estimate(values[alive])
    low, high = stats.mean_interval(values[alive])
    attributes = {
      "mean": float(estimate.mean),
      "se": float(estimate.se),
      "low": float(low),
      "high": float(high),
      "ensemble": float(ensemble),
      "higher_is_better": metric.higher_is_better,
    }
    found[metric_name] = xr.Variable(("run",), values, attributes)
  if isinstance(results, Folder) and rows is not None:
    sets = opened.attrs.get("test_sets")
    of_set = resolve_test_set(sets, test_set) if sets else ""
    earlier = read_measured(results, of_set)
    new = {n: of for n, of in found.items() if n in earlier or n not in opened}
    add_measured(results, of_set, rows, new)
  columns = {str(n): x for n, x in opened.coords.items() if x.dims == ("run",)}
  return xr.Dataset(found, coords=columns)


def _ensemble(outputs, mask, classes):
  """Return the outputs of all runs together, log probabilities of classes, and which
  examples some run has not seen.
  """
  values = outputs.astype(np.float64)
  if classes is None:
    return _mean_of(values, mask).astype(np.float32), mask.any(0)
  mean = _mean_of(scipy.special.softmax(values, axis=-1), mask)
  with np.errstate(divide="ignore"):
    return np.log(mean).astype(np.float32), mask.any(0)


def _num_classes(results):
  if "class" in results.sizes:
    return results.sizes["class"]
  name = class_of(results)
  if name:
    return int(results[name].attrs["num_classes"])
  return int(results["labels"].values.max()) + 1


def _mean_of(values, mask):
  """Return the mean over the runs of the mask, NaN where there is none."""
  axes = mask.reshape(*mask.shape, *[1] * (values.ndim - 2))
  total = np.where(axes, values, 0).sum(0, dtype=np.float64)
  return _ratio(total, axes.sum(0))


def _ratio(a, b):
  with np.errstate(all="ignore"):
    return np.where(b > 0, a / b, np.nan)
