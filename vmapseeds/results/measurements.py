"""The numbers of the table of statistics: each function measures one of the runs of an
output.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.stats
from jaxtyping import Float, Int

from vmapseeds import stats
from vmapseeds.results.measured_runs import MeasuredRuns
from vmapseeds.results.opening import with_role
from vmapseeds.stats._arrays import safe_divide
from vmapseeds.stats.intervals import mean_over_pairs_se, nonnegative_interval
from vmapseeds.stats.scoring import brier_of_probabilities
from vmapseeds.stats.variance import share_of_variance
from vmapseeds.training.names import FOLD

MOST_LOGITS = 2**28  # that are read for the runs' mean probability
UNDEFINED = (
  "Not defined here: it needs at least two runs that differ, and two test examples."
)
NEGATIVE = (
  "The variance estimate is negative: no difference between runs is seen beyond this "
  "test set."
)
NO_RUNS_SUFFICE = (
  "No number of runs can be named: the real variance is not above 0 here."
)
MOST_BY_CHANCE = 0.05  # of the pairs that are called dependent
CHANCE_PAIRS = (
  "Not said: of independent examples, {runs:,} runs would show about {by_chance:,.0f} pairs "
  "that are right together more than 2 points more or less often, and {seen:,} are seen. "
  "More runs tell which are dependent."
)
SEEN = (
  "Not said: runs were trained on some of these test examples, which are no sample of new "
  "ones."
)


class Measurement(NamedTuple):
  """A statistic's value, its standard error and 95 % interval, where there are any.

  Attributes:
    value: the number; NaN or infinite where the statistic is not defined.
    se: its standard error.
    interval: the ends of its interval.
    also: further numbers of the reading, by their names there, each with its unit.
    undefined: what is said if the value is not finite.
  """

  value: Any
  se: Any = None
  interval: Any = (None, None)
  also: Mapping[str, tuple[Any, str]] = {}
  undefined: str = UNDEFINED


# What runs have.


def have_groups(runs: MeasuredRuns) -> bool:
  """Return whether examples are of groups, such as patients, that folds keep together."""
  return runs.pooled and runs.groups is not None


def have_probabilities(runs: MeasuredRuns) -> bool:
  """Return whether there are logits of all examples and classes, few enough to read."""
  names = with_role(runs.kept, "logits")
  # Under label maps a class means another thing in each run.
  if len(names) != 1 or not runs.pooled:
    return False
  logits = runs.kept[names[0]]
  shape = (runs.runs, runs.examples, runs.num_classes)
  return logits.shape == shape and logits.size <= MOST_LOGITS


# Any number of a run: its accuracy, mean loss or score.


def measure_mean(runs: MeasuredRuns) -> Measurement:
  if runs.share_nothing:
    return _mean(runs.values)
  if runs.design is None:
    return Measurement(runs.values.mean())
  # Units that lack a part count less than their runs: the mean is that of the others.
  return _measured(runs.design.mean())


def measure_normality(runs: MeasuredRuns) -> Measurement:
  return Measurement(stats.normality(runs.values).p_value)


def measure_interquartile_mean(runs: MeasuredRuns) -> Measurement:
  if runs.runs < 2:
    return Measurement(np.nan)
  # From either end.
  trimmed = functools.partial(scipy.stats.trim_mean, proportiontocut=0.25)
  bootstrap = scipy.stats.bootstrap(
    [runs.values],
    trimmed,
    n_resamples=2000,
    batch=max(1, 2**22 // runs.runs),  # numbers that are held at once
    method="percentile",
    # Two reports of one folder say the same.
    random_state=np.random.default_rng(0),
  )
  return Measurement(
    trimmed(runs.values), bootstrap.standard_error, bootstrap.confidence_interval
  )


def measure_quantile(runs: MeasuredRuns, p: float) -> Measurement:
  # The ends are values of runs, and exact whatever their law.
  ends = scipy.stats.quantile_test(runs.values, p=p).confidence_interval(0.95)
  return Measurement(np.quantile(runs.values, p), None, ends)


# A number of each example: an error or a loss.


def measure_independent_sd(runs: MeasuredRuns) -> Measurement:
  variance = runs.variances.independent
  return _nonnegative_root(runs, variance.value, variance.se)


def measure_distribution_variance(runs: MeasuredRuns) -> Measurement:
  variance = _measured(runs.variances.distribution)
  if runs.seen:
    return variance._replace(undefined=SEEN)
  return variance


def measure_distribution_sd(runs: MeasuredRuns) -> Measurement:
  variance = measure_distribution_variance(runs)
  undefined = variance.undefined
  if variance.value < 0:
    undefined = NEGATIVE
  root = _root(variance.value, variance.se, variance.interval, runs.largest)
  root = root._replace(undefined=undefined)

  # The root's error means little if the variance may well be 0.
  if not variance.value > 2 * variance.se:
    root = root._replace(se=None)
  _, high = variance.interval
  if not high > 0:
    root = root._replace(interval=(None, None))
  return root


def measure_noise_share(runs: MeasuredRuns) -> Measurement:
  independent = runs.variances.independent.value
  seen = stats.variance_over_runs(runs.values)
  low, high = seen.interval
  return Measurement(
    share_of_variance(independent, seen.value),
    None,
    (share_of_variance(independent, high), share_of_variance(independent, low)),
  )


def measure_runs_for_variance(runs: MeasuredRuns) -> Measurement:
  return Measurement(runs.variances.runs_needed, undefined=NO_RUNS_SUFFICE)


def measure_split_correlation(runs: MeasuredRuns) -> Measurement:
  r = runs.variances.correlation
  even, odd = runs.variances.halves
  # Its standard error and interval are the same of errors and of losses.
  correlation = stats.correlation_over_runs(even, odd)
  return Measurement(
    r,
    correlation.se,
    correlation.interval,
    also={
      "p_value": (stats.correlation_p_value(r, runs.runs), "p"),
      "explained": (r**2, "fraction"),
    },
  )


# Predicted classes.


def measure_ensemble_accuracy(runs: MeasuredRuns) -> Measurement:
  asked = int((runs.tallies.times_asked > 0).sum())
  return _proportion(runs.tallies.ensemble_accuracy(), asked)


def measure_accuracy_over_groups(runs: MeasuredRuns) -> Measurement:
  rates = runs.tallies.example_error_rates()
  groups = np.asarray(runs.groups)
  mean = stats.mean_over_groups(1 - rates, groups)
  also = {"groups": (len(np.unique(groups)), "count")}
  ends = np.clip(mean.interval, 0.0, 1.0)
  return Measurement(mean.value, mean.se, ends, also=also)


def measure_probability_accuracy(runs: MeasuredRuns) -> Measurement:
  p, labels = _mean_probability_of_asked(runs)
  is_right = p.argmax(axis=1) == labels
  return _proportion(is_right.mean(), len(labels))


def measure_ensemble_log_loss(runs: MeasuredRuns) -> Measurement:
  return _mean_over_examples(negative_log(*_mean_probability_of_asked(runs)))


def measure_ensemble_brier(runs: MeasuredRuns) -> Measurement:
  p, labels = _mean_probability_of_asked(runs)
  return _mean_over_examples(brier_of_probabilities(p, labels[:, None]))


def _mean_probability_of_asked(
  runs: MeasuredRuns,
) -> tuple[Float[np.ndarray, "asked classes"], Int[np.ndarray, " asked"]]:
  """Return the mean probabilities and the labels of the examples that some run was asked
  for.
  """
  asked = runs.tallies.times_asked > 0
  return runs.mean_probability[asked], runs.tallies.labels[asked]


def negative_log(
  p: Float[np.ndarray, "examples classes"], labels: Int[np.ndarray, " examples"]
) -> Float[np.ndarray, " examples"]:
  """Return -log of the probability of the right class."""
  p_of_label = p[np.arange(len(p)), labels]
  # A probability that rounds to 0 costs infinity, as the definition has it.
  with np.errstate(divide="ignore"):
    return -np.log(p_of_label)


def measure_binomial_sd(runs: MeasuredRuns) -> Measurement:
  accuracy = _mean(runs.values)
  variance = stats.binomial_variance(1 - accuracy.value, runs.examples)
  # Linearised: the derivative of p (1 - p) by p is 1 - 2p.
  se = accuracy.se * abs(2 * accuracy.value - 1) / runs.examples
  return _nonnegative_root(runs, variance, se)


def measure_calibration_sd(runs: MeasuredRuns) -> Measurement:
  accuracy = _mean(runs.values)
  n, classes = runs.examples, runs.num_classes
  variance = stats.calibration_variance_bound(1 - accuracy.value, n, classes)
  # The bound is linear in the error rate, and so its standard error is exact.
  se = accuracy.se / (n * classes)
  return _nonnegative_root(runs, variance, se)


def measure_top_quarter_gain(runs: MeasuredRuns) -> Measurement:
  if runs.runs < 2:
    return Measurement(np.nan)
  # A fixed key, so that two reports of one folder say the same.
  bootstrap = runs.tallies.top_fraction_gain_bootstrap(key=jax.random.key(0))
  gain = runs.tallies.top_fraction_gain().mean
  return Measurement(gain, bootstrap.se, (bootstrap.low, bootstrap.high))


def measure_expected_disagreement(runs: MeasuredRuns) -> Measurement:
  disagreement = runs.tallies.expected_disagreement().value
  se = np.nan
  if runs.predictions is not None and runs.asked is None:
    se = mean_over_pairs_se(runs.disagreements)
  elif runs.asked is not None and FOLD not in runs.kept.variables:
    # Runs that share folds are not drawn independently.
    se = stats.expected_disagreement(runs.predictions, runs.num_classes).se
  ends = nonnegative_interval(disagreement, se, runs.runs)
  return Measurement(disagreement, se, ends)


def measure_disagreement_of_votes(runs: MeasuredRuns) -> Measurement:
  estimate = stats.expected_disagreement(runs.predictions, runs.num_classes)
  return Measurement(estimate.value, estimate.se, (estimate.low, estimate.high))


def measure_spread_of_votes(runs: MeasuredRuns) -> Measurement:
  # No error: the disagreements of two runs have each other in common.
  return Measurement(np.std(runs.values, ddof=1) if runs.runs > 1 else np.nan)


def measure_gde_gap(runs: MeasuredRuns) -> Measurement:
  gap = runs.tallies.gde_gap().value
  se = np.nan
  if runs.predictions is not None and runs.asked is None:
    # In the order of the predictions, which that of the values need not be.
    errors = (runs.predictions != runs.tallies.labels).sum(1) / runs.examples
    se = mean_over_pairs_se(runs.disagreements, errors)
  return Measurement(gap, se, nonnegative_interval(gap, se, runs.runs))


def measure_cace(runs: MeasuredRuns) -> Measurement:
  return Measurement(runs.tallies.cace(), runs.calibration_errors["cace"].se)


def measure_ece(runs: MeasuredRuns) -> Measurement:
  return Measurement(runs.tallies.ece(), runs.calibration_errors["ece"].se)


def measure_dependent_pairs(runs: MeasuredRuns) -> Measurement:
  # Pairs need two examples, and covariances two runs.
  if runs.runs < 2 or runs.examples < 2:
    return Measurement(np.nan, also={"by_chance": (np.nan, "count")})
  dependent = runs.pairs.dependent
  rates = runs.tallies.example_error_rates()
  by_chance = stats.expected_false_pairs(rates, runs.runs)
  also = {"by_chance": (by_chance, "count")}
  if by_chance > max(1, MOST_BY_CHANCE * dependent):
    too_many = CHANCE_PAIRS.format(by_chance=by_chance, runs=runs.runs, seen=dependent)
    return Measurement(np.nan, also=also, undefined=too_many)
  return Measurement(dependent, also=also)


# What these share.


def measure_sd_of_values(
  values: Float[np.ndarray, " runs"], largest: float
) -> Measurement:
  """Return the standard deviation over runs of numbers whose variance is at most
  `largest`.
  """
  variance = stats.variance_over_runs(values)
  sd = np.sqrt(variance)
  # The root of the square would change the last digit.
  root = _root(sd**2, variance.se, variance.interval, largest)
  return root._replace(value=sd)


def _measured(estimate: stats.Estimate) -> Measurement:
  return Measurement(estimate.value, estimate.se, estimate.interval)


def _mean(values: Float[np.ndarray, " runs"]) -> Measurement:
  return _measured(stats.mean_over_runs(values))


def _mean_over_examples(values: Float[np.ndarray, " examples"]) -> Measurement:
  se = np.nan
  if len(values) > 1:
    se = np.std(values, ddof=1) / np.sqrt(len(values))
  # Student's interval is the same of examples as of runs.
  return Measurement(values.mean(), se, stats.mean_over_runs(values).interval)


def _proportion(rate: Any, count: int) -> Measurement:
  interval = stats.proportion_over_examples(rate, count).interval
  return Measurement(rate, None, interval)


def _root(variance: Any, se: Any, interval: Any, largest: float) -> Measurement:
  """Measure the square root of a variance of at most `largest`, its error by
  linearisation.
  """
  # The estimate is unbiased and may be negative; its interval is clipped instead.
  sd = np.sqrt(variance) if variance >= 0 else np.nan
  ends = np.sqrt(np.clip(interval, 0.0, largest))
  return Measurement(sd, safe_divide(se, 2 * sd), ends)


def _nonnegative_root(runs: MeasuredRuns, variance: Any, se: Any) -> Measurement:
  interval = nonnegative_interval(variance, se, runs.runs)
  return _root(variance, se, interval, runs.largest)
