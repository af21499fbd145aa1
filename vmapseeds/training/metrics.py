"""Metrics of a run on a whole test set, by name: functions of (outputs, targets), of JAX.

Outputs are those of the network, (examples, classes) logits of a classifier. Definitions
are scikit-learn's, that of the concordance index Harrell's. A metric that is undefined,
such as an area under the curve of examples of one class, is NaN.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num

from vmapseeds.errors import UserError
from vmapseeds.stats.calibration import BINS
from vmapseeds.training.losses import shaped_as_targets
from vmapseeds.training.objects import (
  before_training,
  is_name,
  name_of,
  resolve_object,
)
from vmapseeds.training.recipes import Recipe

# What else helps a metric of NumPy or scikit-learn.
AFTERWARDS = "; or keep logits, and give the metric to vs.measure after the training"


def auc(
  outputs: Float[Array, "examples classes"], targets: Int[Array, " examples"]
) -> Float[Array, ""]:
  """Return the area under the ROC curve: how often an example of class 1 has a higher
  score than one of class 0, ties counted half. Of more classes, the mean over classes of
  each against the rest. NaN if a class has no example.
  """
  return _over_classes(_binary_auc, outputs, targets)


def average_precision(
  outputs: Float[Array, "examples classes"], targets: Int[Array, " examples"]
) -> Float[Array, ""]:
  """Return the mean over examples of class 1 of the precision where theirs is the lowest
  score that counts as 1. Of more classes, the mean over classes against the rest. NaN if
  one of these has no example.
  """
  return _over_classes(_binary_average_precision, outputs, targets)


def balanced_accuracy(
  outputs: Float[Array, "examples classes"], targets: Int[Array, " examples"]
) -> Float[Array, ""]:
  """Return the mean over the classes that there are of the share that is recognised."""
  recalls = _recalls(outputs, targets)
  there = jnp.isfinite(recalls)
  return jnp.where(there, recalls, 0).sum() / there.sum()


def sensitivity(
  outputs: Float[Array, "examples 2"], targets: Int[Array, " examples"]
) -> Float[Array, ""]:
  """Return the share of class 1 that is recognised; NaN if there is none."""
  return _recalls(outputs, targets)[1]


def specificity(
  outputs: Float[Array, "examples 2"], targets: Int[Array, " examples"]
) -> Float[Array, ""]:
  """Return the share of class 0 that is recognised; NaN if there is none."""
  return _recalls(outputs, targets)[0]


def f1(
  outputs: Float[Array, "examples classes"], targets: Int[Array, " examples"]
) -> Float[Array, ""]:
  """Return the macro F1 score: the mean over classes that are there or predicted."""
  actual, predicted = _indicators(outputs, targets)
  right = (actual & predicted).sum(0)
  total = actual.sum(0) + predicted.sum(0)
  each = 2 * right / jnp.maximum(1, total)
  return each.sum() / (total > 0).sum()


def brier(
  outputs: Float[Array, "examples classes"], targets: Int[Array, " examples"]
) -> Float[Array, ""]:
  """Return the Brier score: the mean squared error of the probabilities, summed over
  classes; of two classes, of that of class 1.
  """
  classes = outputs.shape[1]
  errors = jax.nn.softmax(outputs) - jax.nn.one_hot(targets, classes)
  # The two errors of two classes are equal.
  repeats = 2 if classes == 2 else 1
  return (errors**2).sum(1).mean() / repeats


def log_loss(
  outputs: Float[Array, "examples classes"], targets: Int[Array, " examples"]
) -> Float[Array, ""]:
  """Return the mean of -log of the probability of the right class."""
  log_p = jax.nn.log_softmax(outputs)
  return -jnp.take_along_axis(log_p, targets[:, None], 1).mean()


def expected_calibration_error(
  outputs: Float[Array, "examples classes"], targets: Int[Array, " examples"]
) -> Float[Array, ""]:
  """Return the expected calibration error of the most probable class, in ten bins."""
  probability = jax.nn.softmax(outputs)
  confidence = probability.max(1)
  is_right = probability.argmax(1) == targets
  bins = jnp.minimum((confidence * BINS).astype(int), BINS - 1)
  in_bin = bins[:, None] == jnp.arange(BINS)
  gaps = jnp.where(in_bin, (is_right - confidence)[:, None], 0).sum(0)
  return jnp.abs(gaps).sum() / len(targets)


def r2(
  outputs: Float[Array, "examples ..."], targets: Num[Array, "examples ..."]
) -> Float[Array, ""]:
  """Return 1 - squared error / variance of the targets, the mean over targets. Of a
  constant target it is 1 without an error and else 0, as in scikit-learn; NaN of a single
  example.
  """
  if len(targets) < 2:
    return jnp.float32(jnp.nan)
  errors, targets = _errors(outputs, targets)
  # From the first, so that deviations of constant targets are 0.
  deviations = targets - targets[0]
  deviations = deviations - deviations.mean(0)
  # The square of a number may be 0, or infinite, where the number is not.
  scale = jnp.abs(deviations).max(0)
  is_constant = scale == 0
  scale = jnp.where(is_constant, 1, scale)
  total = ((deviations / scale) ** 2).sum(0)
  unexplained = ((errors / scale) ** 2).sum(0)
  of_varying = 1 - unexplained / jnp.where(is_constant, 1, total)
  of_constant = jnp.where((errors == 0).all(0), 1.0, 0.0)
  return jnp.where(is_constant, of_constant, of_varying).mean()


def rmse(
  outputs: Float[Array, "examples ..."], targets: Num[Array, "examples ..."]
) -> Float[Array, ""]:
  """Return the root mean squared error, the mean over targets."""
  errors, _ = _errors(outputs, targets)
  largest = jnp.abs(errors).max(0)
  scale = jnp.where(largest == 0, 1, largest)
  return (scale * jnp.sqrt(((errors / scale) ** 2).mean(0))).mean()


def concordance_index(
  outputs: Float[Array, "examples ..."], targets: Num[Array, "examples 2"]
) -> Float[Array, ""]:
  """Return Harrell's concordance index: of the pairs whose order is known, in how many
  the one with the earlier event has the higher output, ties counted half.

  Targets are (time, whether there was an event), outputs a risk of each example. The
  order is known where the earlier time is of an event; of equal times where only one is.
  """
  risk = outputs.reshape(len(targets))
  time = targets[:, 0]
  event = targets[:, 1] > 0

  def count_pairs(example):
    own_risk, own_time, own_event = example
    is_later = (own_time < time) | ((own_time == time) & ~event)
    is_known = own_event & is_later
    concordance = (own_risk > risk) + 0.5 * (own_risk == risk)
    return jnp.where(is_known, concordance, 0).sum(), is_known.sum()

  # One example at a time: all pairs at once would take the square in memory.
  concordant, known = jax.lax.map(count_pairs, (risk, time, event))
  # The pairs of 65,537 examples are too many for 32 bits.
  return concordant.sum() / known.astype(jnp.float32).sum()


class Metric(NamedTuple):
  """A ready metric: of what targets it is, and whether higher is better."""

  function: Callable[[Array, Array], Array]
  of: str = "classes"
  higher_is_better: bool = True


READY = {
  "auc": Metric(auc),
  "average_precision": Metric(average_precision),
  "balanced_accuracy": Metric(balanced_accuracy),
  "sensitivity": Metric(sensitivity, "two classes"),
  "specificity": Metric(specificity, "two classes"),
  "f1": Metric(f1),
  "brier": Metric(brier, higher_is_better=False),
  "log_loss": Metric(log_loss, higher_is_better=False),
  "ece": Metric(expected_calibration_error, higher_is_better=False),
  "r2": Metric(r2, "numbers"),
  "rmse": Metric(rmse, "numbers", higher_is_better=False),
  "concordance_index": Metric(concordance_index, "(time, event)"),
}


def metric_of(name: str, name_or_function: Any) -> Metric:
  """Return a metric of a recipe. `of` is "" of a user's own."""
  if is_name(name_or_function):
    return READY[name_or_function]
  function = resolve_object(f"metric {name}", name_or_function)
  higher = getattr(function, "higher_is_better", True)
  return Metric(function, "", bool(higher))


def check_metric(name: str, metric: Metric, targets: Any, num_classes: int | None):
  """Raise `UserError` unless a ready metric is of such targets."""
  fits = {
    "": True,
    "classes": num_classes is not None and num_classes > 1,
    "two classes": num_classes == 2,
    "numbers": num_classes is None,
    "(time, event)": num_classes is None and targets.shape[1:] == (2,),
  }
  if not fits[metric.of]:
    present = f"{num_classes} classes" if num_classes else f"targets {targets.shape}"
    raise UserError(
      f"metric {name} is of {metric.of}, the data have {present}: leave it out"
    )


def measure_metric(
  name: str, metric: Metric, outputs: Num[Array, "examples ..."], targets: Array
) -> Float[Array, ""]:
  """Return a metric, NaN where an output is NaN.

  Raises:
    UserError: it fails, or is not one number.
  """
  is_traced = isinstance(outputs, jax.core.Tracer)
  with before_training(f"metric {name}", AFTERWARDS, traced=is_traced):
    value = jnp.asarray(metric.function(outputs, targets))
  if value.shape or value.dtype.kind not in "fiub":
    raise UserError(
      f"metric {name}, {name_of(metric.function)}, gives {value.dtype} of shape "
      f"{value.shape}: give one number"
    )
  return jnp.where(jnp.isnan(outputs).any(), jnp.nan, value.astype(jnp.float32))


def is_traceable(metric: Metric, outputs: np.ndarray, targets: np.ndarray) -> bool:
  """Return whether JAX can trace a metric: not one of scikit-learn or PyTorch, which needs
  numbers. `outputs` are (runs, examples, ...).
  """
  of_run = jax.ShapeDtypeStruct(outputs.shape[1:], outputs.dtype)
  try:
    jax.eval_shape(metric.function, of_run, targets)
  # A mistake of the function's is said where it is measured.
  except Exception:
    return False
  return True


def measure_all(
  recipe: Recipe, outputs: Num[Array, "examples ..."], targets: Array
) -> dict[str, Float[Array, ""]]:
  """Return all metrics of a recipe, by name."""
  values = {}
  for name, name_or_function in recipe.metrics.items():
    metric = metric_of(name, name_or_function)
    values[name] = measure_metric(name, metric, outputs, targets)
  return values


def _over_classes(of_binary, outputs, targets):
  if outputs.shape[1] == 2:
    return of_binary(outputs[:, 1] - outputs[:, 0], targets == 1)
  # Sorted, so that sums over classes that change places stay equal.
  ordered = jnp.sort(outputs, axis=1)
  values = []
  for number in range(outputs.shape[1]):
    scores = _log_odds(outputs[:, number], ordered)
    values.append(of_binary(scores, targets == number))
  return jnp.stack(values).mean()


def _log_odds(
  own: Float[Array, " n"], logits: Float[Array, "n classes"]
) -> Float[Array, " n"]:
  """Return the log odds of a class, which rank as its probabilities do: these are 0 or 1
  in float32 where logits are some 90 apart. `logits` has `own` at some place.
  """
  own = own[:, None]
  place = (logits == own).argmax(1)
  is_other = jnp.arange(logits.shape[1]) != place[:, None]
  log_odds = -jax.nn.logsumexp(logits - own, axis=1, where=is_other)
  # A logit of minus infinity rules the class out.
  return jnp.where(own[:, 0] == -jnp.inf, -jnp.inf, log_odds)


def _binary_auc(scores: Float[Array, " n"], positive: Bool[Array, " n"]):
  positives = positive.sum()
  negatives = len(scores) - positives
  # Those of positives come last, and no place is counted beyond the negatives.
  of_negatives = jnp.sort(jnp.where(positive, jnp.inf, scores))
  below = jnp.searchsorted(of_negatives, scores, side="left")
  up_to = jnp.searchsorted(of_negatives, scores, side="right")
  # Of each, the share of negatives that it is above, ties counted half: the statistic of
  # Mann and Whitney. NaN without negatives.
  shares = (jnp.minimum(below, negatives) + jnp.minimum(up_to, negatives)) / 2
  shares = shares / negatives
  return jnp.where(positive, shares, 0).sum() / positives


def _binary_average_precision(scores: Float[Array, " n"], positive: Bool[Array, " n"]):
  n = len(scores)
  right = jnp.sort(jnp.where(positive, scores, -jnp.inf))
  at_least = n - jnp.searchsorted(jnp.sort(scores), scores, side="left")
  right_at_least = n - jnp.searchsorted(right, scores, side="left")
  # Scores of minus infinity are not told from those of negatives.
  right_at_least = jnp.minimum(right_at_least, positive.sum())
  precision = right_at_least / at_least
  return jnp.where(positive, precision, 0).sum() / positive.sum()


def _indicators(outputs, targets):
  classes = jnp.arange(outputs.shape[1])
  actual = targets[:, None] == classes
  predicted = outputs.argmax(1)[:, None] == classes
  return actual, predicted


def _recalls(outputs, targets):
  actual, predicted = _indicators(outputs, targets)
  return (actual & predicted).sum(0) / actual.sum(0)


def _errors(outputs, targets):
  errors = shaped_as_targets(outputs, targets) - targets
  rows = len(targets), -1
  return errors.reshape(rows), targets.reshape(rows)
