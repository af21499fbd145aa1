"""How far to trust a statistic, in closed form. Where there is none, see `vmapseeds.stats.resampling`.

Every interval and standard error answers a question, which its docstring names: what other runs on the same test
examples would have given (over runs), or the same runs on other test examples (over examples).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.special
import scipy.stats
from jaxtyping import Float

from vmapseeds.errors import Mistake, at_least, one_of
from vmapseeds.stats._arrays import (
  Array,
  Given,
  class_counts,
  namespace,
  positive,
  ratio,
  read_classes,
  read_errors,
  read_reals,
  read_votes,
  real,
  within,
)
from vmapseeds.stats.variance import (
  distribution_variance,
  independent_errors_variance,
  test_set_variance,
)


class Interval(NamedTuple):
  """The ends of an interval."""

  low: Float[Array, "..."]
  high: Float[Array, "..."]


def mean_interval(values: Given["runs"], level: float = 0.95) -> Interval:
  """Student's interval of a mean over runs: mean ± t_{R-1} sd/√R.

  It answers what the mean over endlessly many runs is, on the same test examples.

  Args:
    values: (runs,), one number a run, such as its accuracy.
    level: what the interval shall cover, between 0 and 1.

  Returns:
    `low` and `high`, 0-d; NaN for fewer than two runs.

  Raises:
    Mistake: values is not (runs,), has a number that is not finite, or level is out of range.

  Source: Student 1908.

  >>> print(mean_interval([0.1, 0.2, 0.3]).high.round(4))
  0.4484
  """
  values = read_reals("values", values, "runs")
  xp, runs = namespace(values), len(values)
  mean = ratio(values.sum(), runs)
  if runs < 2:
    return Interval(*(real(np.nan, xp),) * 2)
  reach = float(scipy.stats.t.ppf(_upper(level), runs - 1)) * xp.sqrt(((values - mean) ** 2).sum() / (runs - 1) / runs)
  return Interval(xp.asarray(mean - reach), xp.asarray(mean + reach))


def variance_interval(variance: Given["..."], runs: int, level: float = 0.95) -> Interval:
  """Interval of a variance between runs that are normally distributed: (R - 1) S²/χ²_{R-1}.

  It answers what the variance of endlessly many runs is, on the same test examples. Its roots are the interval of the
  standard deviation.

  Args:
    variance: S², any shape, ddof = 1.
    runs: R, over how many runs.
    level: what the interval shall cover, between 0 and 1.

  Returns:
    `low` and `high`, of the variance's shape and unit; NaN for fewer than two runs.

  Raises:
    Mistake: variance is negative, or level out of range.

  Source: ours, from the law of S² of normal values.

  >>> low, high = variance_interval(1.0, runs=201)
  >>> print(low.round(3), high.round(3))
  0.83 1.229
  """
  variance = within("variance", variance, 0, np.inf)
  low, high = _chi_square_factors(runs, level)
  return Interval(*(namespace(variance).asarray(variance * factor) for factor in (low, high)))


def _upper(level: float) -> float:
  if not 0 < level < 1:
    raise Mistake(f"level is {level!r}: give a number between 0 and 1, such as 0.95")
  return (1 + level) / 2


def _chi_square_factors(runs: int, level: float) -> tuple[float, float]:
  """What S² is multiplied with for the ends of its interval."""
  upper = _upper(level)
  if runs < 2:
    return np.nan, np.nan
  return tuple((runs - 1) / float(scipy.stats.chi2.ppf(q, runs - 1)) for q in (upper, 1 - upper))


def distribution_variance_interval(errors: Given["runs examples"], level: float = 0.95) -> Interval:
  """Interval of `distribution_variance` over runs: n/(n - 1) times that of S² less the independent-errors variance.

  S² has the interval of normal runs, `variance_interval`; the independent-errors variance is known far better and is
  taken as known. The low end is negative where no variance need be there at all. It answers what endlessly many runs
  would give on the same examples; the sampling of the examples comes on top and cannot be seen from one test set.

  Args:
    errors: (runs, examples), bool or 0/1.
    level: what the interval shall cover, between 0 and 1.

  Returns:
    `low` and `high`, 0-d, squared fractions; NaN for a single run or a single example.

  Raises:
    Mistake: errors is not (runs, examples), or holds other values, or level is out of range.

  Source: ours; jordan2023 gives none.

  >>> low, high = distribution_variance_interval([[1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 0, 0]])
  >>> print(low.round(4), high.round(4))
  -0.033 3.2359
  """
  errors = read_errors(errors)
  parts = test_set_variance(errors), independent_errors_variance(errors)
  return variance_beyond_independence_interval(*parts, *errors.shape, level)


def variance_beyond_independence_interval(
  test_set: Array, independent: Array, runs: int, examples: int, level: float
) -> Interval:
  """`distribution_variance_interval` from the two unbiased variances."""
  scale = ratio(examples, max(examples - 1, 0))
  ends = (scale * (test_set * factor - independent) for factor in _chi_square_factors(runs, level))
  return Interval(*map(namespace(test_set).asarray, ends))


def correlation_interval(r: Given["..."], runs: int, level: float = 0.95) -> Interval:
  """Fisher's interval of a Pearson correlation over runs: tanh(artanh r ± z/√(R - 3)).

  It answers what endlessly many runs would give on the same test examples.

  Args:
    r: correlations, any shape.
    runs: R, over how many runs.
    level: what the interval shall cover, between 0 and 1.

  Returns:
    `low` and `high`, of the shape of r; NaN for fewer than four runs or where r is NaN.

  Raises:
    Mistake: r is not between -1 and 1, or level out of range.

  Source: Fisher 1921.

  >>> low, high = correlation_interval(0.5, runs=103)
  >>> print(low.round(4), high.round(4))
  0.3393 0.6323
  """
  r = within("r", r, -1, 1)
  xp = namespace(r)
  reach = float(scipy.special.ndtri(_upper(level))) * (ratio(1, runs - 3) ** 0.5 if runs > 3 else np.nan)
  # Of ±1 nothing is uncertain, and artanh is not finite there.
  sure = abs(r) == 1
  z = xp.arctanh(xp.where(sure, 0, r))
  return Interval(*(xp.where(sure & (runs > 3), r, xp.tanh(z + side)) for side in (-reach, reach)))


def proportion_interval(rate: Given["..."], examples: int, level: float = 0.95) -> Interval:
  """Wilson's interval of a proportion of test examples, such as one network's accuracy.

  It answers what the same network, or ensemble, would have on endlessly many examples.

  Args:
    rate: the proportion seen, any shape.
    examples: n, of how many.
    level: what the interval shall cover, between 0 and 1.

  Returns:
    `low` and `high`, of the rate's shape; NaN without examples.

  Raises:
    Mistake: a rate is not between 0 and 1, or level out of range.

  Source: Wilson 1927; bouthillier2021, figure 2, has the binomial variance of accuracies.

  >>> low, high = proportion_interval(0.9, examples=100)
  >>> print(low.round(4), high.round(4))
  0.8256 0.9448
  """
  rate = within("rate", rate, 0, 1)
  xp = namespace(rate)
  z = float(scipy.special.ndtri(_upper(level)))
  n = examples or np.nan
  middle = (rate + z**2 / (2 * n)) / (1 + z**2 / n)
  reach = z / (1 + z**2 / n) * xp.sqrt(rate * (1 - rate) / n + z**2 / (4 * n**2))
  return Interval(*(xp.asarray(xp.clip(middle + side, 0, 1)) for side in (-reach, reach)))


def runs_for_precision(
  errors: Given["runs examples"],
  relative: Given["..."] = 0.1,
  statistic: str = "distribution_variance",
  level: float = 0.95,
) -> Float[Array, "..."]:
  """How many runs it takes until the interval of a variance reaches at most this far to either side of it.

      R = 1 + 2 (z S²/(p V))²,    S² the test-set variance, V the variance that is asked for, p the precision

  V is either S² itself or the distribution-wise variance, n/(n - 1) of whose S² is noise for it too: where most of the
  test-set variance is of independent errors, that takes many more runs.

  Args:
    errors: (runs, examples), bool or 0/1.
    relative: p, half the interval's width as a fraction of the estimate, above 0.
    statistic: "distribution_variance" or "test_set_variance".
    level: of the interval, between 0 and 1.

  Returns:
    The shape of `relative`: a whole number as a float; infinite where the estimated variance is not above 0, NaN for a
    single run or, of the distribution-wise variance, a single example.

  Raises:
    Mistake: errors is not (runs, examples), or holds other values; or an argument out of range.

  Source: ours, from `distribution_variance_se`.

  >>> errors = [[1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 0, 0]]
  >>> print(runs_for_precision(errors, 0.1, "test_set_variance"))
  770.0
  """
  one_of("statistic", statistic, ("distribution_variance", "test_set_variance"))
  errors = read_errors(errors)
  test_set = test_set_variance(errors)
  if statistic == "test_set_variance":
    return runs_of_variances(test_set, test_set, relative, level)
  scale = ratio(errors.shape[1], errors.shape[1] - 1)
  return runs_of_variances(scale * test_set, distribution_variance(errors), relative, level)


def runs_of_variances(noise: Array, variance: Array, relative: Given["..."], level: float) -> Array:
  """`runs_for_precision` where the standard error is noise √(2/(R - 1))."""
  xp = namespace(noise, variance, relative)
  z = float(scipy.special.ndtri(_upper(level)))
  runs = xp.ceil(1 + 2 * (z * ratio(noise, positive("relative", relative) * variance)) ** 2)
  return xp.asarray(xp.where(variance > 0, runs, xp.where(xp.isnan(variance), xp.nan, xp.inf)))


# Pairs of runs: independent-errors variance and disagreement are means over pairs, of which a run's share is known.


def independent_errors_variance_se(errors: Given["runs examples"]) -> Float[Array, ""]:
  """Standard error over runs of `independent_errors_variance`, by the jackknife, in closed form.

  The unbiased estimate is the mean over pairs of runs of H/(2n²), H the number of examples of which just one of the two
  is wrong. With h_r the mean of run r's pairs and U that of all,

      SE² = 4 (R - 1) / (R (R - 2)²) Σ_r (h_r - U)²

  It answers what other runs on the same test examples would give.

  Args:
    errors: (runs, examples), bool or 0/1.

  Returns:
    0-d, squared fractions; NaN for fewer than three runs or without examples.

  Raises:
    Mistake: errors is not (runs, examples), or holds other values.

  Source: ours; Arvesen 1969 for the jackknife of such means.

  >>> print(independent_errors_variance_se([[1, 0, 0], [1, 1, 1], [1, 1, 0], [0, 0, 0]]).round(4))
  0.0321
  """
  errors = read_errors(errors)
  examples = errors.shape[1]
  # Over pairs of one example alone, H is disagreement of the errors.
  return ratio(_jackknife(_pairs_of_each_run(errors, 2)), 2 * examples)


def expected_disagreement_se(predictions: Given["runs examples"], num_classes: int) -> Float[Array, ""]:
  """Standard error over runs of `expected_disagreement`, by the jackknife of its pairs, in closed form.

  It answers what other runs on the same test examples would give; see `independent_errors_variance_se`.

  Args:
    predictions: (runs, examples), class indices.
    num_classes: how many classes there are.

  Returns:
    0-d, a fraction; NaN for fewer than three runs or without examples.

  Raises:
    Mistake: predictions is not (runs, examples), or not -1 to num_classes - 1.

  Source: ours; Arvesen 1969.

  >>> print(expected_disagreement_se([[0, 1, 2], [0, 1, 1], [0, 2, 2], [1, 1, 0]], num_classes=3).round(4))
  0.2152
  """
  num_classes = at_least("num_classes", num_classes, 1)
  predictions = read_classes("predictions", predictions, "runs examples", num_classes, -1)
  return _jackknife(_pairs_of_each_run(predictions, num_classes))


def gde_gap_se(predictions: Given["runs examples"], labels: Given["examples"], num_classes: int) -> Float[Array, ""]:
  """Standard error over runs of the signed gap of which `gde_gap` is the size: mean error - expected disagreement.

  By the jackknife, in closed form; it answers what other runs on the same test examples would give.

  Args:
    predictions: (runs, examples), class indices.
    labels: (examples,), class indices.
    num_classes: how many classes there are.

  Returns:
    0-d, a fraction; NaN for fewer than three runs or without examples.

  Raises:
    Mistake: shapes that do not fit, predictions or labels out of range.

  Source: ours; Arvesen 1969.

  >>> print(gde_gap_se([[0, 1, 2], [0, 1, 1], [0, 2, 2], [1, 1, 0]], [0, 1, 2], num_classes=3).round(4))
  0.0962
  """
  num_classes = at_least("num_classes", num_classes, 1)
  predictions, labels = read_votes(predictions, labels, num_classes)
  xp = namespace(predictions, labels)
  runs, examples = predictions.shape
  error = ratio((xp.asarray(predictions) != xp.asarray(labels)[None]).sum(1), examples)
  return _jackknife(_pairs_of_each_run(predictions, num_classes), error)


def _pairs_of_each_run(predictions: Array, num_classes: int) -> Float[Array, "runs"]:
  """Each run's mean disagreement with the other runs."""
  runs, examples = predictions.shape
  counts = class_counts(predictions, num_classes)
  xp = namespace(predictions)
  if xp is jnp:
    places = predictions.astype(int) % (num_classes + 1)
    agreeing = real(jnp.take_along_axis(counts, places.T, axis=1)).sum(0)
  else:
    places = np.arange(examples) * (num_classes + 1)
    flat, rows = counts.reshape(-1), np.asarray(predictions)
    agreeing = np.array([flat[places + row.astype(np.int64) % (num_classes + 1)].sum() for row in rows], np.float64)
  return ratio(runs * examples - agreeing, examples * (runs - 1))


def _jackknife(of_pairs: Float[Array, "runs"], of_runs: Float[Array, "runs"] | None = None) -> Array:
  """Standard error of a mean over pairs of runs, of which each run's are given, or of a mean over runs less that."""
  runs = len(of_pairs)
  xp = namespace(of_pairs)
  if runs < 3:
    return real(np.nan, xp)
  moved = 2 * (of_pairs - of_pairs.mean()) / (runs - 2)
  if of_runs is not None:
    moved = (of_runs - of_runs.mean()) / (runs - 1) - moved
  return xp.asarray(xp.sqrt((runs - 1) / runs * (moved**2).sum()))
