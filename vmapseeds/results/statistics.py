"""The table of statistics: for each role of an output, what is computed of its runs, and
how well it is known. Reports, comparisons, `--until` and the documentation read it.

An output of role `class` has predicted classes (run, example) and labels, one of role
`loss` a number of each example (run, example), one of role `score` a number of each run.
More axes of examples are flattened.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.special
import scipy.stats
import xarray as xr
from jaxtyping import Float

from vmapseeds import stats
from vmapseeds.errors import UserError, option
from vmapseeds.results.description import count_seen_examples
from vmapseeds.results.formatting import (
  ACCURACY,
  Quantity,
  finite_or_none,
  run_count,
  show,
  show_interval,
)
from vmapseeds.results.opening import class_names_of, stored_tallies, with_role
from vmapseeds.stats.calibration import finite_ensemble_of_votes
from vmapseeds.stats.counts import Counts, sparse_votes
from vmapseeds.stats.intervals import (
  disagreement_of_each_run,
  mean_over_pairs_se,
  nonnegative_interval,
)
from vmapseeds.stats.pairs import PairScan, scan_pairs
from vmapseeds.stats.reading import read_votes
from vmapseeds.stats.resampling import calibration_bootstrap_of_votes
from vmapseeds.stats.sample_sizes import runs_needed

PRECISION = 0.1  # of the distribution-wise variance, as a fraction of it
MOST_PAIRS = 10  # of examples, that are farthest from independence
MOST_GAPS = 200  # runs whose logit gaps are read
MOST_LOGITS = 2**28  # that are read for the runs' mean probability
UNDEFINED = (
  "Not defined here: it needs at least two runs that differ, and two test examples."
)
NEGATIVE = (
  "The variance estimate is negative: no difference between runs is seen beyond this "
  "test set."
)


SEEN = (
  "Not said: runs were trained on some of these test examples, which are no sample of new "
  "ones."
)


class AllDiverged(UserError):
  """No run is left whose statistics could be told."""


class Measurement(NamedTuple):
  """A statistic's value, its standard error and 95 % interval, where there are any."""

  value: Any
  se: Any = None
  interval: Any = (None, None)
  also: Mapping[str, tuple[Any, str]] = {}  # numbers of its reading, with their units
  undefined: str = UNDEFINED  # what is said if the value is not finite


# Outputs and their runs.


def roles(results: xr.Dataset) -> dict[str, Mapping[str, Any]]:
  """Return name -> attributes of the outputs that reports are about: role `class`,
  `loss` or `score`.

  They are the dataset's attribute `roles`, so that they are known of arrays that are not
  read or stored, else the attributes of its variables.

  Raises:
    UserError: no output has such a role.
  """
  variables = {str(name): x.attrs for name, x in results.variables.items()}
  # A variable after each epoch has the role of the output that it is a series of.
  outputs: dict[str, Mapping[str, Any]] = {
    name: attributes
    for name, attributes in results.attrs.get("roles", variables).items()
    if attributes.get("role") in STATISTICS and "series" not in attributes
  }

  # Where predictions are not kept, labels say what was counted.
  for name, x in results.variables.items():
    if x.attrs.get("role") != "labels":
      continue
    counted = {"role": "class", "labels": name, "num_classes": x.attrs["num_classes"]}
    outputs = {x.attrs["of"]: counted} | outputs

  if not outputs:
    raise UserError(
      "no output of these results has the role class, loss or score: they have "
      f"{', '.join(map(str, results.data_vars))}; declare the role where the task does, "
      "e.g. outputs={'reward': vs.Output(role='score')}"
    )
  return outputs


def quantity_of(name: str, attributes: Mapping[str, Any]) -> Quantity:
  """Return what an output's number of a run is: accuracy, mean loss or score."""
  role = attributes["role"]
  if role == "class":
    return ACCURACY
  if role == "loss":
    name = f"mean {name}"
  return Quantity(name, attributes.get("unit") or "number")


def is_higher_better(attributes: Mapping[str, Any]) -> bool:
  """Return whether higher numbers of an output are better."""
  if attributes["role"] == "loss":
    return False
  return attributes.get("higher_is_better", True)


def values_of_runs(results: xr.Dataset, name: str) -> Float[np.ndarray, " runs"]:
  """Return an output's number of each run; NaN or infinite for runs that diverged."""
  attributes = roles(results)[name]
  if attributes["role"] != "class":
    output = results[name].values
    # Runs that diverged have infinities, whose mean warns.
    with np.errstate(all="ignore"):
      values = output.reshape(len(output), -1).mean(1, dtype=np.float64)
  elif "accuracy" in results.variables:
    values = results.accuracy.values
  else:
    right = results[name] == results[attributes["labels"]]
    axes_of_examples = [axis for axis in right.dims if axis != "run"]
    values = right.mean(axes_of_examples).values
  if "diverged" not in results.variables:
    return values
  return np.where(results.diverged.values, np.nan, values)


def largest_variance(quantity: Quantity) -> float:
  """Return the largest variance that numbers can have: fractions are within 0 and 1."""
  # Popoviciu: half of the numbers at either end of [0, 1].
  return 0.25 if quantity.unit == ACCURACY.unit else np.inf


class Spread(NamedTuple):
  """How the means of a number of each example differ between runs."""

  independent: tuple[Any, Any]  # the variance if examples were, and its standard error
  distribution: Measurement  # the variance on an infinite test set
  halves: np.ndarray  # (2, runs), sums over the examples of even and of odd index
  correlation: Any  # of these
  runs_needed: Any  # for PRECISION
  # What is left out of `halves`, so that large losses cost no digits of their spread
  common: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class MeasuredRuns:
  """The runs that did not diverge, and what the statistics of an output need of them.

  Attributes:
    kept: their results.
    output: name of the output.
    role: class, loss or score.
    of: what the values are.
    values: (runs,), a number of each run; of tallies in ascending order of errors.
    diverged: how many runs are left out.
    spread: of role class or loss.
    examples: how many, of role class or loss.
    seen: how many of them a run was trained on, on average.
    losses: (runs, examples), of role loss.
    tallies: of role class, as the next four.
    predictions: (runs, examples), as they are counted; None if `tallies` were stored.
    paired: counts that have those of pairs of examples, if these are asked for.
    num_classes: how many classes.
    class_names: their names, if they have any.
    pooled: whether votes of different runs may be pooled.
  """

  kept: xr.Dataset
  output: str
  role: str
  of: Quantity
  values: Float[np.ndarray, " runs"]
  diverged: int
  spread: Any = None
  examples: Any = None
  seen: float = 0.0
  losses: Any = None
  tallies: Any = None
  predictions: Any = None
  paired: Counts | None = None
  num_classes: Any = None
  class_names: Sequence[str] | None = None
  pooled: bool = True

  @property
  def runs(self) -> int:
    return len(self.values)

  @property
  def largest(self) -> float:
    """Return the largest variance that runs can have."""
    return largest_variance(self.of)

  @property
  def means_of_halves(self) -> list[np.ndarray]:
    """Return each run's mean over the examples of even and of odd index: accuracies of
    role class.
    """
    even_sums, odd_sums = self.spread.halves
    common_even, common_odd = self.spread.common
    # Of an odd number of examples, one more has an even index.
    even_count = (self.examples + 1) // 2
    odd_count = self.examples // 2
    even_means = (even_sums + common_even) / even_count
    odd_means = (odd_sums + common_odd) / odd_count
    if self.role == "class":
      # The sums are of errors.
      return [1 - even_means, 1 - odd_means]
    return [even_means, odd_means]

  @functools.cached_property
  def disagreements(self) -> Float[np.ndarray, " runs"]:
    """Each run's mean disagreement with the others, of kept predictions."""
    return disagreement_of_each_run(self.predictions, self.num_classes)

  @functools.cached_property
  def gaps(self) -> Float[np.ndarray, "runs examples"]:
    """Logit gaps of the first runs of a two-class network."""
    (name,) = with_role(self.kept, "logits")
    logits = self.kept[name].isel(run=slice(MOST_GAPS)).values
    return np.asarray(stats.logit_gap(logits))

  @functools.cached_property
  def mean_probability(self) -> Float[np.ndarray, "examples classes"]:
    """The mean over runs of the probabilities of classes, of kept logits."""
    (name,) = with_role(self.kept, "logits")
    logits = self.kept[name]
    total = np.zeros(logits.shape[1:])
    # Run by run, because logits of all runs in float64 may not fit in memory.
    for run in range(self.runs):
      # A sum of thousands of runs in float32 would lose digits.
      outputs = logits.isel(run=run).values.astype(np.float64)
      total += scipy.special.softmax(outputs, axis=-1)
    return total / self.runs

  @functools.cached_property
  def pairs(self) -> PairScan:
    """What there is of pairs of examples. All are looked at once."""
    assert self.paired is not None
    return scan_pairs(self.paired, k=MOST_PAIRS)

  @functools.cached_property
  def calibration(self) -> tuple[Mapping[str, stats.Bootstrap], stats.FiniteEnsemble]:
    """The errors of CACE and ECE, and what both are of calibrated runs."""
    # A fixed key, so that two reports of one folder say the same.
    key = jax.random.key(0)
    resampled_errors = calibration_bootstrap_of_votes(self.tallies, key=key)
    calibrated = finite_ensemble_of_votes(self.tallies, key=key)
    return resampled_errors, calibrated


def measure_runs(results: xr.Dataset, name: str, *, pairs: bool = True) -> MeasuredRuns:
  """Return the runs that did not diverge, with what the statistics of an output need.

  A run diverged if the results say so, or if its loss or score is not finite. Tallies
  are counted from predictions, if there are any. Otherwise they are the stored ones. If
  label maps differ between runs, errors take the place of predictions: 1 is wrong, and
  all labels are 0.

  Args:
    results: what `open_results` returns.
    name: a name of `roles(results)`.
    pairs: whether pairs of examples are looked at.

  Raises:
    UserError: no run is finished, or all diverged; or there are neither predictions nor
      stored tallies of exactly these runs.
  """
  attributes = roles(results)[name]
  finished = results.sizes["run"]
  if not finished:
    raise UserError(
      "no run is finished: start `vmapseeds train` again with the same "
      f"{option('out')} to resume"
    )
  values = values_of_runs(results, name)
  # One run that diverged would take the mean and the variance of all with it.
  alive = np.isfinite(values)
  if not alive.any():
    raise AllDiverged(f"all {finished} finished runs diverged: train with a lower lr")
  # Choosing runs copies them.
  kept = results if alive.all() else results.isel(run=np.flatnonzero(alive))
  runs = MeasuredRuns(
    kept=kept,
    output=name,
    role=attributes["role"],
    of=quantity_of(name, attributes),
    values=values[alive],
    diverged=int((~alive).sum()),
  )
  # A score has no examples, and so no test set whose luck could be told apart.
  if runs.role == "score":
    return runs
  runs = replace(runs, seen=count_seen_examples(kept))
  if runs.role == "loss":
    return _with_losses(runs)
  return _with_votes(runs, attributes, pairs)


def _with_losses(runs: MeasuredRuns) -> MeasuredRuns:
  """Return runs of role loss with what their statistics need."""
  losses = runs.kept[runs.output].values.reshape(runs.runs, -1)
  spread = _spread_of_losses(losses, runs.values)
  return replace(
    runs,
    losses=losses,
    examples=losses.shape[1],
    spread=_unless_seen(runs, spread),
  )


def _with_votes(
  runs: MeasuredRuns, attributes: Mapping[str, Any], pairs: bool
) -> MeasuredRuns:
  """Return runs of role class with what their statistics need."""
  num_classes = int(attributes["num_classes"])
  if runs.output in runs.kept:
    votes = _count_predictions(runs, attributes["labels"], num_classes)
  else:
    votes = _read_tallies(runs.kept, pairs)

  # Pairs need errors of single runs, or sums of their products that a campaign stored.
  paired: Counts | None = votes.counts
  if votes.counts is None and votes.tallies.joint_errors is not None:
    paired = votes.tallies
  # Without common labels, the classes are right and wrong.
  class_names = None
  if votes.pooled:
    class_names = class_names_of(runs.kept[attributes["labels"]])
  spread = _spread_of_tallies(votes.tallies, votes.counts)
  return replace(
    runs,
    values=1 - votes.tallies.error_rates(),
    spread=_unless_seen(runs, spread),
    examples=votes.tallies.examples,
    tallies=votes.tallies,
    predictions=votes.predictions,
    paired=paired if pairs else None,
    num_classes=num_classes,
    class_names=class_names,
    pooled=votes.pooled,
  )


class _CountedVotes(NamedTuple):
  """Tallies of runs, and what they were counted from, if that was kept."""

  tallies: stats.Tallies
  predictions: np.ndarray | None = None
  counts: Counts | None = None
  pooled: bool = True


def _read_tallies(kept: xr.Dataset, pairs: bool) -> _CountedVotes:
  tallies = stored_tallies(kept, pairs=pairs)
  if tallies is None:
    raise UserError(
      "these runs were counted together with others, and their predictions were not "
      "kept: report all runs of the folder, or train these in a folder of their own"
    )
  return _CountedVotes(tallies)


def _count_predictions(
  runs: MeasuredRuns, labels_name: str, num_classes: int
) -> _CountedVotes:
  predictions = runs.kept[runs.output].values.reshape(runs.runs, -1)
  labels_of_runs = runs.kept[labels_name].values.reshape(-1, predictions.shape[1])
  labels = labels_of_runs[0]
  pooled = bool((labels_of_runs == labels).all())
  if not pooled:
    # Under label maps a class means another thing in each run. Errors mean the same.
    wrong = predictions != labels_of_runs.astype(predictions.dtype)
    predictions = wrong.astype(np.int8)
    labels = np.zeros_like(labels, np.int8)
  predictions, labels = read_votes(predictions, labels, num_classes)
  # Both of one dtype: comparing arrays of different dtypes is many times slower.
  counts = Counts(predictions != labels.astype(predictions.dtype))
  votes = sparse_votes(predictions, num_classes)
  tallies = stats.Tallies.from_counts(labels, votes, counts.halves)
  return _CountedVotes(tallies, predictions, counts, pooled)


def _unless_seen(runs: MeasuredRuns, spread: Spread) -> Spread:
  """Return the spread of runs, without what it says of other test examples where runs
  were trained on some of these.
  """
  if not runs.seen:
    return spread
  # Runs are better on examples that they saw, and differ in which they saw.
  nothing = Measurement(np.nan, np.nan, (np.nan, np.nan), undefined=SEEN)
  return spread._replace(distribution=nothing, runs_needed=np.nan)


def _spread_of_tallies(tallies: stats.Tallies, counts: Counts | None) -> Spread:
  # Tallies have no errors of single runs, which the jackknife leaves out in turn.
  independent = stats.independent_errors_variance(tallies if counts is None else counts)
  return Spread(
    independent=(independent.value, independent.se),
    distribution=_measured(tallies.distribution_variance()),
    halves=tallies.halves,
    correlation=tallies.split_correlation().value,
    runs_needed=tallies.runs_for_variance(PRECISION),
  )


def _spread_of_losses(losses: np.ndarray, means: np.ndarray) -> Spread:
  runs, examples = losses.shape
  estimate = stats.loss_variance(losses)

  low, high = stats.variance_over_runs(means).interval
  scale = _ratio(examples, examples - 1)
  ends = (
    scale * (low - estimate.independent),
    scale * (high - estimate.independent),
  )
  variance, se = estimate.distribution.value, estimate.distribution.se
  distribution = Measurement(variance, se, ends)

  # Runs differ by little beside the losses themselves, which would cost float32 digits.
  first_run = losses[0].astype(np.float64)
  even_first, odd_first = first_run[0::2], first_run[1::2]
  even_differences = (losses[:, 0::2] - even_first).sum(axis=1)
  odd_differences = (losses[:, 1::2] - odd_first).sum(axis=1)
  return Spread(
    independent=(estimate.independent, _independent_losses_se(losses)),
    distribution=distribution,
    halves=np.stack([even_differences, odd_differences]),
    correlation=estimate.split_correlation.value,
    runs_needed=runs_needed(variance, se, runs, PRECISION),
    common=(even_first.sum(), odd_first.sum()),
  )


def _independent_losses_se(losses: np.ndarray) -> Any:
  """Return the jackknife's standard error of the independent-losses variance."""
  runs, examples = losses.shape
  mean = losses.mean(axis=0, dtype=np.float64)
  # Row by row, because all rows in float64 may not fit in memory.
  squares_of_runs = []
  for row in losses:
    deviations = row - mean
    squares_of_runs.append((deviations**2).sum())
  squares = np.array(squares_of_runs)
  # Without run r, the examples' sums of squares are smaller by R/(R - 1) of its own.
  squared_deviations = (squares - squares.mean()) ** 2
  spread = np.sqrt(_ratio(runs, runs - 1) * squared_deviations.sum())
  return _ratio(spread, max(runs - 2, 0) * examples**2)


# Estimates.


def _ratio(a: Any, b: Any) -> Any:
  return a / b if b else np.nan


def _measured(estimate: stats.Estimate) -> Measurement:
  return Measurement(estimate.value, estimate.se, estimate.interval)


def _mean(values: np.ndarray) -> Measurement:
  return _measured(stats.mean_over_runs(values))


def _root(variance: Any, se: Any, interval: Any, largest: float) -> Measurement:
  """Measure the square root of a variance of at most `largest`, its error by
  linearisation.
  """
  # The estimate is unbiased and may be negative; its interval is clipped instead.
  sd = np.sqrt(variance) if variance >= 0 else np.nan
  ends = np.sqrt(np.clip(interval, 0.0, largest))
  return Measurement(sd, _ratio(se, 2 * sd), ends)


def _nonnegative_root(runs: MeasuredRuns, variance: Any, se: Any) -> Measurement:
  interval = nonnegative_interval(variance, se, runs.runs)
  return _root(variance, se, interval, runs.largest)


def standard_deviation(
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


def _distribution_sd(runs: MeasuredRuns) -> Measurement:
  variance, se, interval, _, undefined = runs.spread.distribution
  root = _root(variance, se, interval, runs.largest)
  if variance < 0:
    undefined = NEGATIVE
  root = root._replace(undefined=undefined)
  # The root's error means little if the variance may well be 0.
  if not variance > 2 * se:
    root = root._replace(se=None)
  if not interval[1] > 0:
    root = root._replace(interval=(None, None))
  return root


def _split_correlation(runs: MeasuredRuns) -> Measurement:
  r = runs.spread.correlation
  even, odd = runs.spread.halves
  # Its standard error and interval are the same of errors and of losses.
  of_halves = stats.correlation_over_runs(even, odd)
  return Measurement(
    r,
    of_halves.se,
    of_halves.interval,
    also={
      "p_value": (stats.correlation_p_value(r, runs.runs), "p"),
      "explained": (r**2, "fraction"),
    },
  )


def _top_quarter_gain(runs: MeasuredRuns) -> Measurement:
  if runs.runs < 2:
    return Measurement(np.nan)
  # A fixed key, so that two reports of one folder say the same.
  bootstrap = runs.tallies.top_fraction_gain_bootstrap(key=jax.random.key(0))
  gain = runs.tallies.top_fraction_gain().mean
  return Measurement(gain, bootstrap.se, (bootstrap.low, bootstrap.high))


def _proportion(rate: Any, count: int, **also: tuple[Any, str]) -> Measurement:
  interval = stats.proportion_over_examples(rate, count).interval
  return Measurement(rate, None, interval, also)


def _of_probability(
  runs: MeasuredRuns, of_each: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> Measurement:
  """Measure the mean over examples of a number of the runs' mean probability and the
  label.
  """
  values = of_each(runs.mean_probability, runs.tallies.labels)
  se = np.nan
  if len(values) > 1:
    se = np.std(values, ddof=1) / np.sqrt(len(values))
  return Measurement(values.mean(), se, stats.mean_over_runs(values).interval)


def _negative_log(p: np.ndarray, labels: np.ndarray) -> np.ndarray:
  of_label = p[np.arange(len(p)), labels]
  # A probability that rounds to 0 costs infinity, as the definition has it.
  with np.errstate(divide="ignore"):
    return -np.log(of_label)


def _brier(p: np.ndarray, labels: np.ndarray) -> np.ndarray:
  classes = p.shape[1]
  one_hot = np.eye(classes)[labels]
  squares = ((p - one_hot) ** 2).sum(axis=1)
  # Of two classes the score is that of one: both errors are the same.
  return squares / 2 if classes == 2 else squares


def _probability_accuracy(runs: MeasuredRuns) -> Measurement:
  right = runs.mean_probability.argmax(1) == runs.tallies.labels
  return _proportion(right.mean(), runs.examples)


def _has_probabilities(runs: MeasuredRuns) -> bool:
  """Return whether there are logits of all examples and classes, few enough to read."""
  names = with_role(runs.kept, "logits")
  # Under label maps a class means another thing in each run.
  if len(names) != 1 or not runs.pooled:
    return False
  logits = runs.kept[names[0]]
  shape = (runs.runs, runs.examples, runs.num_classes)
  return logits.shape == shape and logits.size <= MOST_LOGITS


def _binomial_sd(runs: MeasuredRuns) -> Measurement:
  mean, se, *_ = _mean(runs.values)
  # Linearised: the derivative of p (1 - p) by p is 1 - 2p.
  variance = stats.binomial_variance(1 - mean, runs.examples)
  return _nonnegative_root(runs, variance, se * abs(2 * mean - 1) / runs.examples)


def _calibration_sd(runs: MeasuredRuns) -> Measurement:
  mean, se, *_ = _mean(runs.values)
  n, classes = runs.examples, runs.num_classes
  # The bound is linear in the error rate, and so its standard error is exact.
  variance = stats.calibration_variance_bound(1 - mean, n, classes)
  return _nonnegative_root(runs, variance, se / (n * classes))


def _expected_disagreement(runs: MeasuredRuns) -> Measurement:
  value = runs.tallies.expected_disagreement().value
  se = np.nan
  if runs.predictions is not None:
    se = mean_over_pairs_se(runs.disagreements)
  return Measurement(value, se, nonnegative_interval(value, se, runs.runs))


def _gde_gap(runs: MeasuredRuns) -> Measurement:
  value = runs.tallies.gde_gap().value
  se = np.nan
  if runs.predictions is not None:
    # In the order of the predictions, which that of the values need not be.
    errors = (runs.predictions != runs.tallies.labels).sum(1) / runs.examples
    se = mean_over_pairs_se(runs.disagreements, errors)
  return Measurement(value, se, nonnegative_interval(value, se, runs.runs))


def _calibration_error(runs: MeasuredRuns, name: str) -> Measurement:
  resampled_errors, calibrated = runs.calibration
  # CACE is a sum over classes, and may exceed 1.
  unit = "number" if name == "cace" else "fraction"
  return Measurement(
    getattr(runs.tallies, name)(),
    resampled_errors[name].se,
    also={"calibrated": (getattr(calibrated, name), unit)},
  )


def _dependent_pairs(runs: MeasuredRuns) -> Measurement:
  # Pairs need two examples, and covariances two runs.
  dependent, by_chance = np.nan, np.nan
  if runs.runs > 1 and runs.examples > 1:
    dependent = runs.pairs.dependent
    rates = runs.tallies.example_error_rates()
    by_chance = stats.expected_false_pairs(rates, runs.runs)
  return Measurement(dependent, also={"by_chance": (by_chance, "count")})


def _gap_distances(runs: MeasuredRuns) -> Any:
  return stats.ks_distance(runs.gaps, runs.gaps)


def _gap_accepted(runs: MeasuredRuns) -> Measurement:
  distances = _gap_distances(runs)
  examples = runs.gaps.shape[1]
  threshold = stats.ks_threshold(examples)
  within = (distances <= threshold).mean()
  return _proportion(within, len(distances), threshold=(threshold, "number"))


def _interquartile_mean(runs: MeasuredRuns) -> Measurement:
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


def _quantile(runs: MeasuredRuns, p: float) -> Measurement:
  # The ends are values of runs, and exact whatever their law.
  ends = scipy.stats.quantile_test(runs.values, p=p).confidence_interval(0.95)
  return Measurement(np.quantile(runs.values, p), None, ends)


# The table.


class Requirement(NamedTuple):
  """What runs must have for a statistic, and what is said if they have not."""

  met: Callable[[Any], bool]
  otherwise: str


class Statistic(NamedTuple):
  """A row of the table.

  Attributes:
    name: as in JSON and `--until`.
    group: key of `GROUPS`.
    unit: fraction; variance: squared fraction; correlation; number; count; p; or UNIT
      and SQUARED for the output's own.
    label: what tables call it.
    reading: what it says, with {} for its value.
    definition: what it is, and its source.
    estimate: takes the runs that `measure_runs` returns.
    over: what the uncertainty is about: other "runs", or other "examples".
    needs: what runs must have.
    heading: for the columns of groups side by side; empty for a statistic that is not
      among the headline numbers.
    recorded: numbers of the reading that JSON has too.
  """

  name: str
  group: str
  unit: str
  label: str
  reading: str
  definition: str
  estimate: Callable[[Any], Measurement]
  over: str | None = None
  needs: Requirement | None = None
  heading: str = ""
  recorded: tuple[str, ...] = ()


# In the order of the tables.
GROUPS = {
  "accuracy": "Accuracy",
  "loss": "Mean loss",
  "score": "Score",
  "quantiles": "Quantiles of the runs",
  "variance": "Variance between runs",
  "halves": "One half of the examples against the other",
  "disagreement": "Disagreement and calibration",
  "pairs": "Examples that go wrong together",
  "gaps": "Distributions of logit gaps",
}
UNIT, SQUARED = "unit", "unit²"
VOTES = Requirement(lambda runs: runs.pooled, "these runs have labels of their own")
PAIRS = Requirement(lambda runs: runs.paired is not None, "pairs were not counted")
PROBABILITIES = Requirement(
  lambda runs: _has_probabilities(runs),
  "logits of all classes were not kept, or are too many to read",
)
GAPS = Requirement(
  lambda runs: (
    runs.num_classes == 2 and runs.runs > 1 and len(with_role(runs.kept, "logits")) > 0
  ),
  "logits of two classes were not kept",
)


def _statistics_of_runs(noun: str, end: str, group: str) -> list[Statistic]:
  """Return the rows of any number of a run: its accuracy, mean loss or score."""
  extreme = """It moves as more runs are drawn. No interval: the run was chosen by this \
number."""
  return [
    Statistic(
      f"mean{end}",
      group,
      UNIT,
      f"mean {noun}",
      f"The {noun} of a run is {{}} on average.",
      f"Mean over runs of the {noun}; interval: Student's t.",
      lambda runs: _mean(runs.values),
      "runs",
      heading="mean",
    ),
    Statistic(
      f"sd{end}",
      group,
      UNIT,
      f"standard deviation of {noun}",
      f"Runs scatter about their mean {noun} by {{}}.",
      f"""Standard deviation over runs of the {noun}, ddof = 1 (Jordan 2024, section \
3.3); error and interval: jackknife of the variance over runs, which need not be \
normal.""",
      lambda runs: standard_deviation(runs.values, runs.largest),
      "runs",
      heading="sd",
    ),
    Statistic(
      f"min{end}",
      group,
      UNIT,
      f"lowest {noun}",
      "The lowest run has {}; part of that is luck.",
      f"The run with the lowest {noun}. {extreme}",
      lambda runs: Measurement(runs.values.min()),
    ),
    Statistic(
      f"max{end}",
      group,
      UNIT,
      f"highest {noun}",
      "The highest run has {}; part of that is luck.",
      f"The run with the highest {noun}. {extreme}",
      lambda runs: Measurement(runs.values.max()),
    ),
    Statistic(
      "normality",
      group,
      "p",
      "p of normality",
      "Normal runs would look this far from normal or farther with probability {}.",
      f"""p-value of the Shapiro-Wilk test of the runs' {noun} (Bouthillier 2021, figure \
G.3).""",
      lambda runs: Measurement(stats.normality(runs.values).p_value),
    ),
  ]


def _statistics_of_examples(noun: str, parts: str) -> list[Statistic]:
  """Return the rows of outputs with a number of each example: an error or a loss."""
  return [
    Statistic(
      f"independent_{parts}_sd",
      "variance",
      UNIT,
      f"sd if {parts} were independent",
      f"""Were the {parts} of a run independent between examples, runs would differ by a \
standard deviation of {{}}.""",
      f"""√((1/n²) Σ Var_i) with Var_i the variance over runs of the {parts} on example \
i, unbiased in the number of runs (Jordan 2024, section 3.2 and appendix B.2); error: \
jackknife over runs.""",
      lambda runs: _nonnegative_root(runs, *runs.spread.independent),
      "runs",
      heading="sd if indep.",
    ),
    Statistic(
      "distribution_variance",
      "variance",
      SQUARED,
      "distribution-wise variance",
      """This variance, {}, would remain on an infinite test set; noise can make the \
estimate negative.""",
      f"""n/(n - 1) [variance over runs - independent-{parts} variance], signed and \
unbiased (Jordan 2024, equation 3; theorem 2 holds for any loss); error and interval: \
n/(n - 1) times those of the variance over runs, by the jackknife.""",
      lambda runs: runs.spread.distribution,
      "runs",
    ),
    Statistic(
      "distribution_sd",
      "variance",
      UNIT,
      "distribution-wise sd",
      "On an infinite test set runs would differ by a standard deviation of {}.",
      """Square root of the distribution-wise variance where that is not negative \
(Jordan 2024, equation 3); its interval: the roots of that one's, from 0.""",
      _distribution_sd,
      "runs",
      heading="distr. sd",
    ),
    Statistic(
      "runs_for_variance",
      "variance",
      "count",
      "runs for distr. variance ± 10 %",
      "About {} runs in all would give the distribution-wise variance to within 10 %.",
      """1 + (R - 1) (1.96 SE/(0.1 σ²))², from the standard error of equation 3 (Jordan \
2024).""",
      lambda runs: Measurement(
        runs.spread.runs_needed,
        undefined="""No number of runs can be named: the distribution-wise variance is \
not above 0 here.""",
      ),
    ),
    Statistic(
      "split_correlation",
      "halves",
      "correlation",
      "correlation between halves",
      f"""The {noun} on one half explains {{explained}} of the variance of that on the \
other: their correlation is {{}}, p-value {{p_value}}.""",
      f"""Pearson correlation over runs of the {noun} on even and odd test examples \
(Jordan 2024, section 3.1); two-sided p from the t test with R - 2 degrees of freedom; \
error and interval: jackknife over runs.""",
      _split_correlation,
      "runs",
      recorded=("p_value",),
    ),
  ]


_CLASS = [
  Statistic(
    "ensemble_accuracy",
    "accuracy",
    UNIT,
    "ensemble accuracy",
    "All runs voting together have {} right.",
    """Accuracy of the plurality vote of all runs, ties to the lowest class (Jordan 2024, \
section 4.2); interval: Wilson's.""",
    lambda runs: _proportion(runs.tallies.ensemble_accuracy(), runs.examples),
    "examples",
    VOTES,
    "ensemble",
  ),
  Statistic(
    "probability_accuracy",
    "accuracy",
    UNIT,
    "accuracy of mean probability",
    "The class of the highest mean probability over all runs is right on {}.",
    """Accuracy of the mean over runs of the softmax of the logits; interval: \
Wilson's.""",
    _probability_accuracy,
    "examples",
    PROBABILITIES,
  ),
  *(
    Statistic(
      name,
      "accuracy",
      "number",
      label,
      reading,
      f"""{definition}, of the mean over runs of the softmax of the logits; error and \
interval: Student's t over examples.""",
      functools.partial(_of_probability, of_each=of_each),
      "examples",
      PROBABILITIES,
    )
    for name, label, reading, definition, of_each in (
      (
        "ensemble_log_loss",
        "log-loss of mean probability",
        "The mean probability over all runs has a log-loss of {}.",
        "Mean of -log p of the right class",
        _negative_log,
      ),
      (
        "ensemble_brier",
        "Brier score of mean prob.",
        "The mean probability over all runs has a Brier score of {}.",
        "Mean squared error summed over classes, of two classes that of one",
        _brier,
      ),
    )
  ),
  Statistic(
    "binomial_sd",
    "variance",
    UNIT,
    "binomial sd",
    "With all examples equally hard, chance alone would give {}.",
    """√(err (1 - err)/n): all examples equally hard and errors independent (Jordan 2024, \
figure 13).""",
    _binomial_sd,
    "runs",
  ),
  Statistic(
    "calibration_sd",
    "variance",
    UNIT,
    "least sd by calibration",
    """If the runs' votes are calibrated, runs must differ by a standard deviation of at \
least {} on such test sets; of two classes, by about that.""",
    """√(err/(nk)) for k classes and a class-wise calibrated ensemble: a lower bound on \
average over test sets (Jordan 2024, theorem 4), of two classes the value itself \
(equation 6).""",
    _calibration_sd,
    "runs",
  ),
  Statistic(
    "top_quarter_gain",
    "halves",
    UNIT,
    "gain of the top quarter",
    """Picking the best quarter of runs on half of the examples gains {} on the other \
half.""",
    """Mean accuracy on one half of the quarter of runs best on the other half, minus \
that of all runs; mean of both directions (Jordan 2024, section 3.1); error: bootstrap of \
the runs.""",
    _top_quarter_gain,
    "runs",
  ),
  Statistic(
    "expected_disagreement",
    "disagreement",
    UNIT,
    "expected disagreement",
    "Two runs predict different classes on {} of the test examples.",
    """Mean over pairs of distinct runs of the fraction of test examples they predict \
differently (Jiang 2022, section 2); error: jackknife over runs.""",
    _expected_disagreement,
    "runs",
    VOTES,
    "disagr.",
  ),
  Statistic(
    "gde_gap",
    "disagreement",
    UNIT,
    "disagreement against error",
    "Disagreement, which needs no labels, misses the test error by {}.",
    """|mean test error - expected disagreement|, the gap of the \
generalization-disagreement equality (Jiang 2022, section 3); error: jackknife over \
runs.""",
    _gde_gap,
    "runs",
    VOTES,
  ),
  *(
    Statistic(
      name,
      "disagreement",
      unit,
      label,
      f"""{reading} by {{}}; a perfectly calibrated law of runs would show {{calibrated}} \
with {{runs}}.""",
      f"""{definition}; error: bootstrap of the examples; no interval, for few examples \
raise it.""",
      functools.partial(_calibration_error, name=name),
      "examples",
      VOTES,
    )
    for name, unit, label, reading, definition in (
      (
        "cace",
        "number",
        "class-aggregated calib. error",
        "Summed over the classes, the votes' confidences miss the truth",
        """CACE of the ensemble of votes in 10 bins, from 0 to the number of classes \
(Jiang 2022, equations 56 to 58)""",
      ),
      (
        "ece",
        "fraction",
        "expected calibration error",
        "On average, the winning class's share of the votes misses its accuracy",
        "ECE of the plurality vote in 10 bins (Jiang 2022, equations 59 to 62)",
      ),
    )
  ),
  Statistic(
    "dependent_pairs",
    "pairs",
    "count",
    "dependent pairs of examples",
    """{} pairs of examples are right together more than 2 points more or less often \
than independent ones; noise alone would show {by_chance}.""",
    """Pairs with |P(C_i, C_j) - P(C_i) P(C_j)| > 0.02 over the runs (Jordan 2024, \
section 3.2); by chance: normal noise of independent pairs with these error rates.""",
    _dependent_pairs,
    None,
    PAIRS,
    recorded=("by_chance",),
  ),
  Statistic(
    "gap_distance",
    "gaps",
    "number",
    "distance of logit-gap eCDFs",
    """A run's distribution function of logit gaps is {} away from that of all at its \
farthest, on average.""",
    """Mean L∞ distance of a run's eCDF from the pooled one of at most 200 runs (Banerjee \
2024, equations 8 and 16).""",
    lambda runs: _mean(_gap_distances(runs)),
    "runs",
    GAPS,
  ),
  Statistic(
    "gap_accepted",
    "gaps",
    UNIT,
    "runs within the KS threshold",
    "{} of the runs are within the distance {threshold} of the pooled distribution.",
    """Runs whose eCDF is within δ_a = √((2/n) ln(2/0.01)) of the pooled one (Banerjee \
2024, equations 14 and 16); interval: Wilson's.""",
    _gap_accepted,
    "runs",
    GAPS,
  ),
]
_SCORE = [
  Statistic(
    "iqm",
    "score",
    UNIT,
    "interquartile mean",
    "The middle half of the runs has {} on average.",
    """Mean of the runs without the lowest and the highest quarter (Agarwal 2021); error \
and interval: bootstrap of the runs.""",
    _interquartile_mean,
    "runs",
    heading="IQM",
  ),
  *(
    Statistic(
      name,
      "quantiles",
      UNIT,
      label,
      reading,
      """Quantile over runs, interpolated; interval: order statistics, which hold \
whatever the law of runs, and need many runs for the outer quantiles.""",
      functools.partial(_quantile, p=p),
      "runs",
      heading=heading,
    )
    for name, p, label, reading, heading in (
      ("q05", 0.05, "5 % quantile", "One run in twenty is below {}.", ""),
      ("q25", 0.25, "25 % quantile", "A quarter of the runs is below {}.", ""),
      ("median", 0.5, "median", "Half of the runs are below {}.", "median"),
      ("q75", 0.75, "75 % quantile", "A quarter of the runs is above {}.", ""),
      ("q95", 0.95, "95 % quantile", "One run in twenty is above {}.", ""),
    )
  ),
]


def _in_order_of_groups(rows: Sequence[Statistic]) -> list[Statistic]:
  """Return rows as the tables have them; those of one group stay in their order."""
  groups = list(GROUPS)
  return sorted(rows, key=lambda row: groups.index(row.group))


STATISTICS = {
  "class": _in_order_of_groups(
    [
      *_statistics_of_runs("accuracy", "_accuracy", "accuracy"),
      *_statistics_of_examples("accuracy", "errors"),
      *_CLASS,
    ]
  ),
  "loss": _in_order_of_groups(
    [
      *_statistics_of_runs("loss", "_loss", "loss"),
      *_statistics_of_examples("mean loss", "losses"),
    ]
  ),
  "score": _in_order_of_groups([*_statistics_of_runs("score", "", "score"), *_SCORE]),
}


def statistics_of(runs: MeasuredRuns) -> list[Statistic]:
  """Return the rows of the table that runs have what it takes for."""
  rows = STATISTICS[runs.role]
  return [row for row in rows if row.needs is None or row.needs.met(runs)]


def describe_statistic(row: Statistic, runs: MeasuredRuns) -> dict[str, Any]:
  """Return a statistic of runs, with its uncertainty and texts, ready for JSON."""
  measurement = row.estimate(runs)
  unit = _unit_of(row, runs)
  value, se = finite_or_none(measurement.value), finite_or_none(measurement.se)
  low, high = map(finite_or_none, measurement.interval)
  if value is None:
    # An error of nothing would only puzzle a reader.
    reading, se = measurement.undefined, None
  else:
    numbers = {
      name: show(number, None, its_unit)
      for name, (number, its_unit) in measurement.also.items()
    }
    shown_value = show(value, None, unit)
    reading = row.reading.format(shown_value, runs=run_count(runs.runs), **numbers)

  # Student's interval of a mean fraction may reach beyond 0 and 1.
  if row.heading == "mean" and unit == "fraction":
    low = None if low is None else max(0.0, low)
    high = None if high is None else min(1.0, high)
  ends = show_interval(low, high, unit)
  if ends:
    reading = f"{reading.removesuffix('.')} (95 %: {ends})."
  else:
    low = high = None
  is_uncertain = bool(ends) or se is not None
  description = {
    "group": row.group,
    "label": row.label,
    "value": value,
    "se": se,
    "low": low,
    "high": high,
    "over": row.over if is_uncertain else None,
    "unit": unit,
    "definition": row.definition,
    "reading": reading,
  }
  for name in row.recorded:
    description[name] = finite_or_none(measurement.also[name][0])
  return description


def _unit_of(row: Statistic, runs: MeasuredRuns) -> str:
  """Return the unit of a statistic, as `formatting` names it."""
  unit = runs.of.unit
  if row.unit == UNIT:
    return unit
  if row.unit != SQUARED:
    return row.unit
  squared_units = {"fraction": "variance", "number": "number"}
  return squared_units.get(unit, f"{unit}²")
