"""Losses and their variance between runs: the statistics of `vmapseeds.stats.variance`
for any per-example loss.

Losses are (runs, examples), R runs and n examples. The theorems of Jordan 2024 on
variance between runs do not need errors to be 0 or 1 (the end of its appendix B.2), so
the same formulas hold for a cross-entropy or a squared error.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import scipy.special
from jaxtyping import Float, Int

from vmapseeds.errors import check_at_least
from vmapseeds.stats._arrays import Array, Given, as_float64, correlation, safe_divide
from vmapseeds.stats.estimators import sample_variance
from vmapseeds.stats.intervals import (
  correlation_uncertainty,
  variance_ends,
  variance_se,
)
from vmapseeds.stats.reading import (
  check_finite,
  read_array,
  read_labels,
  read_level,
  read_numbers,
)
from vmapseeds.stats.uncertainty import UNKNOWN, Estimate, Uncertainty

# Logits are turned into losses, and losses centred, this many numbers at a time (32 MB
# in float64).
_AT_ONCE = 2**22


class LossVariance(NamedTuple):
  """The mean of a loss, and the parts of its variance between runs; all but the mean
  and the correlation are squares.

  `test_set` is the variance of the runs' mean losses, `independent` what it would be if
  the examples' losses were independent. `distribution` is the variance on the whole
  distribution. `split_correlation` is the correlation between the mean losses on the
  examples of even and of odd index.
  """

  mean: Float[Array, ""]
  test_set: Estimate
  independent: Float[Array, ""]
  distribution: Estimate
  split_correlation: Estimate


def loss_variance(
  losses: Given["runs examples"],
  *,
  level: float = 0.95,
) -> LossVariance:
  """Return the variance between runs of a mean loss: on the test set, if examples were
  independent, and on the distribution.

      test_set = Var_h(mean_i loss_i(h))
      independent = (1/n²) Σ_i Var_h(loss_i(h))
      distribution = n/(n - 1) [test_set - independent]

  All variances have ddof = 1, so the three are unbiased. For losses of 0 and 1 the
  results after the mean equal `test_set_variance`, `independent_errors_variance`,
  `distribution_variance` and `split_correlation`, with their standard errors. The first
  run's loss on each example is subtracted before anything is summed, so that a large
  common part costs no digits.

  Args:
    losses: (runs, examples), finite numbers, such as `cross_entropy(logits, labels)`.
    level: the coverage of the intervals, between 0 and 1.

  Returns:
    `mean` and `independent`, 0-d, and three `Estimate`s. All but the mean are NaN for a
    single run, `distribution` and `split_correlation` for a single example, all without
    examples. `split_correlation` is NaN also where a half's mean loss is the same in
    all runs. For fewer than three runs, of the correlation fewer than four, there is
    neither a standard error nor an interval (NaN).

  Source: jordan2024, theorem 2 and equation 3, which its appendix B.2 extends to any
    loss.

  >>> v = loss_variance([[0.5, 0.0, 0.25], [1.5, 0.5, 0.25], [0.5, 0.5, 0.5]])
  >>> print(v.mean, v.test_set.value, v.independent.round(6))
  0.5 0.0625 0.048611
  >>> v.distribution
  0.021 ± 0.094 [-0.054, 7.771]
  """
  read_level(level)
  losses = read_numbers("losses", losses, "runs examples")
  runs, examples = losses.shape
  sums = _sum_parts(losses)

  # Each run's mean loss, less that of the first run.
  above = safe_divide(sums.even + sums.odd, examples)
  scale = safe_divide(examples, examples - 1)
  independent = safe_divide(sums.squares, max(runs - 1, 0) * examples**2)
  test_set = as_float64(np.nan)
  if examples:
    test_set = sample_variance(above)

  def test_set_uncertainty() -> Uncertainty:
    if not examples:
      return UNKNOWN
    return variance_se(above), *variance_ends(above, level)

  def distribution_uncertainty() -> Uncertainty:
    se, low, high = test_set_uncertainty()
    # The variance of independent losses is taken as known.
    return scale * se, scale * (low - independent), scale * (high - independent)

  def correlation_of_halves() -> Uncertainty:
    return correlation_uncertainty(sums.even, sums.odd, level)

  mean_of_first = safe_divide(sums.first, examples)
  return LossVariance(
    mean=np.asarray(mean_of_first + safe_divide(above.sum(), runs)),
    test_set=Estimate.deferred(test_set, test_set_uncertainty, level),
    independent=independent,
    distribution=Estimate.deferred(
      scale * (test_set - independent), distribution_uncertainty, level
    ),
    split_correlation=Estimate.deferred(
      correlation(sums.even, sums.odd), correlation_of_halves, level
    ),
  )


class _Parts(NamedTuple):
  """Sums over a block of examples."""

  first: Float[Array, ""]
  even: Float[Array, "runs"]
  odd: Float[Array, "runs"]
  squares: Float[Array, ""]


def _sum_parts(losses: Array) -> _Parts:
  """Return the sums over all examples, read a block at a time."""
  runs, examples = losses.shape
  # The width is even, so that a block's even columns are the even examples.
  width = 2 * max(1, _AT_ONCE // (2 * max(runs, 1)))
  none = as_float64(0)
  sums = _Parts(first=none, even=none, odd=none, squares=none)
  # Without examples, too, there is one block, which has the shapes of the sums.
  for start in range(0, max(examples, 1), width):
    block = _parts(as_float64(losses[:, start : start + width]))
    sums = _Parts(
      first=sums.first + block.first,
      even=sums.even + block.even,
      odd=sums.odd + block.odd,
      squares=sums.squares + block.squares,
    )
  return sums


def _parts(losses: Array) -> _Parts:
  """Return the first run's sum, each run's sums over even and over odd examples minus
  the first's, and Σ (loss - mean)².
  """
  above = losses - losses[:1]
  total = above.sum(0, keepdims=True)
  from_mean = above - safe_divide(total, len(above))
  return _Parts(
    first=losses[:1].sum(),
    even=above[:, 0::2].sum(1),
    odd=above[:, 1::2].sum(1),
    squares=(from_mean**2).sum(),
  )


def cross_entropy(
  logits: Given["runs examples classes"],
  labels: Given["examples"],
) -> Float[Array, "runs examples"]:
  """Return the cross-entropy of each run on each example: -log softmax(logits)_y =
  log(1 + Σ_{c≠y} exp(z_c - z_y)), in nats.

  In this form large logits do not overflow and small losses do not vanish: a loss of
  e^-40 is not rounded to 0.

  Args:
    logits: (runs, examples, classes), finite numbers, float16 too. They are read a few
      runs at a time, so that a memory-mapped array may be larger than the memory.
    labels: (examples,), class indices.

  Returns:
    (runs, examples), 0 or more; 0 where there is a single class.

  Source: standard; Good 1952.

  >>> cross_entropy([[[0.0, 0.0], [40.0, 0.0]]], [0, 0])
  array([[6.93147181e-01, 4.24835426e-18]])
  """
  return _by_runs(_cross_entropy, logits, labels)


def brier_score(
  logits: Given["runs examples classes"],
  labels: Given["examples"],
) -> Float[Array, "runs examples"]:
  """Return the Brier score of each run on each example: Σ_c (softmax(logits)_c - 1{c =
  y})², of two classes that of one.

  Both terms of two classes are equal, and their sum is Brier's own score. One of them
  is what scikit-learn's `brier_score_loss`, the metric `brier` of recipes and reports
  give.

  Args:
    logits: (runs, examples, classes), finite numbers; read as in `cross_entropy`.
    labels: (examples,), class indices.

  Returns:
    (runs, examples), from 0 to 1 of two classes, from 0 to 2 of more; 0 where there is
    a single class.

  Source: Brier 1950.

  >>> brier_score([[[0.0, 0.0], [40.0, 0.0]]], [0, 1])
  array([[0.25, 1.  ]])
  """
  return _by_runs(_brier_score, logits, labels)


def _cross_entropy(logits: np.ndarray, label: np.ndarray) -> np.ndarray:
  own = np.take_along_axis(logits, label, axis=-1)
  is_label = label == np.arange(logits.shape[-1])
  # e^-inf is 0: the label's own class does not count.
  others = np.where(is_label, -np.inf, logits - own)
  return np.logaddexp(0.0, scipy.special.logsumexp(others, axis=-1))


def _brier_score(logits: np.ndarray, label: np.ndarray) -> np.ndarray:
  return brier_of_probabilities(scipy.special.softmax(logits, axis=-1), label)


def brier_of_probabilities(
  probabilities: Float[np.ndarray, "*runs examples classes"],
  label: Int[np.ndarray, "*_ examples 1"],
) -> Float[np.ndarray, "*runs examples"]:
  """Return the `brier_score` of probabilities."""
  is_label = label == np.arange(probabilities.shape[-1])
  wrong = np.where(is_label, 0.0, probabilities)
  # 1 - p_y is computed as the sum of the other probabilities, which does not cancel.
  squares = (wrong**2).sum(-1) + wrong.sum(-1) ** 2
  # Of two classes the score is that of one: both errors are the same.
  return squares / 2 if probabilities.shape[-1] == 2 else squares


def _by_runs(
  loss: Callable[[np.ndarray, np.ndarray], np.ndarray],
  logits: object,
  labels: object,
) -> np.ndarray:
  """Return the loss of every run on every example, (runs, examples)."""
  logits = read_array("logits", logits, "runs examples classes")
  runs, examples, classes = logits.shape
  classes = check_at_least("classes in logits", classes, 1)
  labels = read_labels(labels, classes, "logits", logits.shape)
  label = labels[None, :, None]
  losses = np.empty((runs, examples))
  for start, block in logit_blocks(logits):
    losses[start : start + len(block)] = loss(block, label)
  return losses


def logit_blocks(logits: Array) -> Iterator[tuple[int, np.ndarray]]:
  """Yield blocks of logits in float64, of as many runs as take little memory, each
  after the index of its first run.
  """
  runs, examples, classes = logits.shape
  step = max(1, _AT_ONCE // max(1, examples * classes))
  for start in range(0, runs, step):
    block = as_float64(logits[start : start + step])
    # Block by block, as all of a memory-mapped array may be larger than the memory.
    check_finite("logits", block, "runs examples classes", start)
    yield start, block
