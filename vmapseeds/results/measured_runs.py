"""The outputs that reports are about, and what the statistics of one need of its runs.

An output of role `class` has predicted classes (run, example) and labels, one of role
`vote` these without labels, one of role `loss` a number of each example (run, example), one
of role `score` a number of each run. More axes of examples are flattened.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.special
import xarray as xr
from jaxtyping import Bool, Float, Int

from vmapseeds import stats
from vmapseeds.errors import UserError, option
from vmapseeds.results.description import count_seen_examples
from vmapseeds.results.formatting import ACCURACY, Quantity, run_count
from vmapseeds.results.opening import (
  class_names_of,
  converged_runs,
  predicted_classes,
  stored_tallies,
  with_role,
)
from vmapseeds.results.roles import REPORTED, REPORTED_ROLES, Role
from vmapseeds.results.units import design_of
from vmapseeds.stats._arrays import safe_divide
from vmapseeds.stats.calibration import (
  calibration_bootstrap_of_votes,
)
from vmapseeds.stats.counting import count_asked, sparse_votes
from vmapseeds.stats.counts import Counts
from vmapseeds.stats.intervals import disagreement_of_each_run
from vmapseeds.stats.pairs import PairScan, scan_pairs
from vmapseeds.stats.reading import read_votes
from vmapseeds.stats.sample_sizes import runs_needed
from vmapseeds.training.names import FOLD_GROUPS, MASK, NOT_ASKED

PRECISION = 0.1  # of the distribution-wise variance, as a fraction of it
MOST_PAIRS = 10  # of examples, that are farthest from independence


class NoRunLeft(UserError):
  """No run is left whose statistics could be told: all diverged, or the output is
  undefined in all.

  Attributes:
    why: that as a clause, such as "all 12 runs diverged".
  """

  def __init__(self, message: str, why: str):
    super().__init__(message)
    self.why = why


def roles(results: xr.Dataset) -> dict[str, Mapping[str, Any]]:
  """Return name -> attributes of the outputs that reports are about, whose role is one of
  `REPORTED_ROLES`.

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
    if attributes.get("role") in REPORTED_ROLES and "series" not in attributes
  }

  # Where predictions are not kept, labels say what was counted.
  for name, x in results.variables.items():
    if x.attrs.get("role") != "labels" or outputs.get(x.attrs["of"], {}).get("partial"):
      continue
    counted = {"role": "class", "labels": name, "num_classes": x.attrs["num_classes"]}
    outputs = {x.attrs["of"]: counted} | outputs

  if not outputs:
    raise UserError(
      f"no output of these results has the role {REPORTED}: they have "
      f"{', '.join(map(str, results.data_vars))}; declare the role where the task does, "
      "e.g. outputs={'reward': vs.Output(role='score')}"
    )
  return outputs


def quantity_of(name: str, attributes: Mapping[str, Any]) -> Quantity:
  """Return what an output's number of a run is: accuracy, mean loss or score."""
  return REPORTED_ROLES[attributes["role"]].quantity(name, attributes)


def is_higher_better(attributes: Mapping[str, Any]) -> bool:
  """Return whether higher numbers of an output are better."""
  higher = REPORTED_ROLES[attributes["role"]].higher_is_better
  return attributes.get("higher_is_better", True) if higher is None else higher


def values_of_runs(results: xr.Dataset, name: str) -> Float[np.ndarray, " runs"]:
  """Return an output's number of each run: NaN or infinite where it is undefined, NaN
  for runs that diverged.
  """
  attributes = roles(results)[name]
  role = REPORTED_ROLES[attributes["role"]]
  if attributes["role"] == "vote":
    predictions = results[name].values
    values = disagreement_of_each_run(predictions, int(attributes["num_classes"]))
  elif not role.has_votes and attributes.get("partial"):
    losses = role.numbers(results, name)
    asked = asked_for_losses(results, losses)
    totals = np.where(asked, losses, 0).sum(1, dtype=np.float64)
    values = safe_divide(totals, asked.sum(1))
  elif not role.has_votes:
    numbers = role.numbers(results, name)
    # The mean of infinities warns.
    with np.errstate(all="ignore"):
      values = numbers.reshape(len(numbers), -1).mean(1, dtype=np.float64)
  elif "accuracy" in results.variables:
    values = results.accuracy.values
  else:
    right = results[name] == results[attributes["labels"]]
    axes_of_examples = [axis for axis in right.dims if axis != "run"]
    # No label is the code for an example that a run was not asked for.
    asked = results[name].copy(data=predicted_classes(results, name) != NOT_ASKED)
    right_of_run = (right & asked).sum(axes_of_examples).values
    values = safe_divide(right_of_run, asked.sum(axes_of_examples).values)
  if "diverged" not in results.variables:
    return values
  return np.where(results.diverged.values, np.nan, values)


def asked_for_losses(
  results: xr.Dataset, losses: Float[np.ndarray, "runs ..."]
) -> Bool[np.ndarray, "runs ..."]:
  """Return for which examples each run was asked, of losses that are NaN for others."""
  if MASK in results.variables:
    return results[MASK].values
  return ~np.isnan(losses)


def largest_variance(quantity: Quantity) -> float:
  """Return the largest variance that numbers can have: fractions are within 0 and 1."""
  # Popoviciu: half of the numbers at either end of [0, 1].
  return 0.25 if quantity.unit in (ACCURACY.unit, "fraction") else np.inf


class RunVariances(NamedTuple):
  """How the means of a number of each example differ between runs.

  Attributes:
    independent: the variance if examples were independent.
    distribution: the variance on an infinite test set; NaN if runs were trained on some
      test examples.
    halves: (2, runs), sums over the examples of even and of odd index.
    correlation: of these.
    runs_needed: for `PRECISION`.
    common: what is left out of `halves`, so that large losses cost no digits of their
      spread.
  """

  independent: stats.Estimate
  distribution: stats.Estimate
  halves: np.ndarray
  correlation: Any
  runs_needed: Any
  common: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class MeasuredRuns:
  """The runs that did not diverge and of which an output is a number, and what its
  statistics need of them.

  Attributes:
    kept: their results.
    output: name of the output.
    role: class, vote, loss or score.
    of: what the values are.
    values: (runs,), a number of each run; of tallies in ascending order of errors.
    diverged: how many runs are left out of all statistics.
    undefined: of how many others the output is NaN or infinite.
    variances: of role class or loss; None where runs were not asked for the same
      examples.
    examples: how many, of other roles than score.
    seen: how many of them a run was trained on, on average.
    losses: (runs, examples), of role loss.
    asked: (runs, examples), for which examples each run was asked; None for all.
    tallies: of role class.
    predictions: (runs, examples), of role class and vote, as they are counted; None if
      `tallies` were stored.
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
  undefined: int = 0
  variances: Any = None
  examples: Any = None
  seen: float = 0.0
  losses: Any = None
  asked: Bool[np.ndarray, "runs examples"] | None = None
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
  def about(self) -> Role:
    """Return what is said of the output's role."""
    return REPORTED_ROLES[self.role]

  @property
  def largest(self) -> float:
    """Return the largest variance that runs can have."""
    return largest_variance(self.of)

  @property
  def groups(self) -> Int[np.ndarray, " examples"] | None:
    """Return the group of each example, such as a patient, of folds that keep groups
    together; None of others.
    """
    if self.asked is None or FOLD_GROUPS not in self.kept.variables:
      return None
    # They are the same in all runs.
    return self.kept[FOLD_GROUPS].values[0]

  @property
  def means_of_halves(self) -> list[np.ndarray]:
    """Return each run's mean over the examples of even and of odd index: accuracies of
    role class.
    """
    even_sums, odd_sums = self.variances.halves
    common_even, common_odd = self.variances.common
    # Of an odd number of examples, one more has an even index.
    even_count = (self.examples + 1) // 2
    odd_count = self.examples // 2
    even_means = (even_sums + common_even) / even_count
    odd_means = (odd_sums + common_odd) / odd_count
    if self.tallies is not None:
      # The sums are of errors.
      return [1 - even_means, 1 - odd_means]
    return [even_means, odd_means]

  @functools.cached_property
  def design(self) -> stats.Design | None:
    """What is drawn anew; None if runs share seeds so irregularly that no mean has a known
    error.
    """
    # The values here may be sorted; those of the runs table are in its order.
    values = values_of_runs(self.kept, self.output)
    try:
      return design_of(self.kept, values)
    except UserError:
      return None

  @property
  def share_nothing(self) -> bool:
    """Return whether runs are independent of each other."""
    return self.design is not None and self.design.independent_runs

  @functools.cached_property
  def disagreements(self) -> Float[np.ndarray, " runs"]:
    """Each run's mean disagreement with the others, of kept predictions."""
    return disagreement_of_each_run(self.predictions, self.num_classes)

  @functools.cached_property
  def mean_probability(self) -> Float[np.ndarray, "examples classes"]:
    """The mean over runs of the probabilities of classes, of kept logits; NaN where no run
    was asked.
    """
    (name,) = with_role(self.kept, "logits")
    logits = self.kept[name]
    total = np.zeros(logits.shape[1:])
    # Run by run, because logits of all runs in float64 may not fit in memory.
    for run in range(self.runs):
      # A sum of thousands of runs in float32 would lose digits.
      outputs = logits.isel(run=run).values.astype(np.float64)
      probabilities = scipy.special.softmax(outputs, axis=-1)
      if self.asked is not None:
        probabilities[~self.asked[run]] = 0
      total += probabilities
    return safe_divide(total, self.tallies.times_asked[:, None])

  @functools.cached_property
  def pairs(self) -> PairScan:
    """What there is of pairs of examples. All are looked at once."""
    assert self.paired is not None
    return scan_pairs(self.paired, k=MOST_PAIRS)

  @functools.cached_property
  def calibration_errors(self) -> Mapping[str, stats.Bootstrap]:
    """The errors of CACE and ECE."""
    # A fixed key, so that two reports of one folder say the same.
    return calibration_bootstrap_of_votes(self.tallies, key=jax.random.key(0))


def measure_runs(results: xr.Dataset, name: str, *, pairs: bool = True) -> MeasuredRuns:
  """Return the runs that did not diverge and of which an output is a number, with what
  its statistics need.

  A run diverged if the results say so. A sound network may have a metric that is
  undefined, such as an area under the curve of one class: that run is left out of the
  statistics of this output alone. Tallies
  are counted from predictions, if there are any. Otherwise they are the stored ones. If
  label maps differ between runs, errors take the place of predictions: 1 is wrong, and
  all labels are 0.

  Args:
    results: what `open_results` returns.
    name: a name of `roles(results)`.
    pairs: whether pairs of examples are looked at.

  Raises:
    UserError: no run is finished; all diverged, or the output is undefined in all others
      (`NoRunLeft`); or there are neither predictions nor stored tallies of exactly these
      runs.
  """
  attributes = roles(results)[name]
  finished = results.sizes["run"]
  if not finished:
    raise UserError(
      "no run is finished: start `vmapseeds train` again with the same "
      f"{option('out')} to resume"
    )
  converged = len(converged_runs(results))
  if not converged:
    raise NoRunLeft(
      f"all {finished} finished runs diverged: train with a lower lr",
      f"all {run_count(finished)} diverged",
    )
  values = values_of_runs(results, name)
  # One of these would take the mean and the variance of all with it.
  is_defined = np.isfinite(values)
  defined = int(is_defined.sum())
  if not defined:
    why = f"{name} is undefined in all {run_count(converged)}"
    raise NoRunLeft(f"{why}, NaN or infinite: choose another output", why)
  # Choosing runs copies them.
  kept = results
  if defined < finished:
    kept = results.isel(run=np.flatnonzero(is_defined))
  runs = MeasuredRuns(
    kept=kept,
    output=name,
    role=attributes["role"],
    of=quantity_of(name, attributes),
    values=values[is_defined],
    diverged=finished - converged,
    undefined=converged - defined,
  )
  if runs.role == "vote":
    return _with_unlabelled_votes(runs, attributes)
  # A score has no examples, and so no test set whose luck could be told apart.
  if not runs.about.parts:
    return runs
  runs = replace(runs, seen=count_seen_examples(kept))
  if runs.about.has_votes:
    return _with_votes(runs, attributes, pairs)
  return _with_losses(runs)


def _with_losses(runs: MeasuredRuns) -> MeasuredRuns:
  """Return runs of losses with what their statistics need."""
  losses = runs.about.numbers(runs.kept, runs.output)
  if roles(runs.kept)[runs.output].get("partial"):
    asked = asked_for_losses(runs.kept, losses)
    return replace(runs, losses=losses, examples=losses.shape[1], asked=asked)
  losses = losses.reshape(runs.runs, -1)
  variances = _variances_of_losses(losses, runs.values)
  return replace(
    runs,
    losses=losses,
    examples=losses.shape[1],
    variances=_unless_seen(runs, variances),
  )


def _with_unlabelled_votes(
  runs: MeasuredRuns, attributes: Mapping[str, Any]
) -> MeasuredRuns:
  """Return runs of role vote with what their statistics need."""
  predictions = runs.kept[runs.output].values
  num_classes = int(attributes["num_classes"])
  asked = None
  if count_asked(predictions) is not None:
    asked = predictions != NOT_ASKED
  return replace(
    runs,
    examples=predictions.shape[1],
    asked=asked,
    predictions=predictions,
    num_classes=num_classes,
    class_names=class_names_of(runs.kept[runs.output]),
  )


def _with_votes(
  runs: MeasuredRuns, attributes: Mapping[str, Any], pairs: bool
) -> MeasuredRuns:
  """Return runs of votes with what their statistics need."""
  runs = replace(runs, num_classes=int(attributes["num_classes"]))
  counts = None
  if runs.output in runs.kept:
    runs, counts = _with_counted_votes(runs, attributes["labels"])
  else:
    tallies = stored_tallies(runs.kept, pairs=pairs)
    if tallies is None:
      raise UserError(
        "these runs were counted together with others, and their predictions were not "
        "kept: report all runs of the folder, or train these in a folder of their own"
      )
    runs = replace(runs, tallies=tallies)

  # Pairs need errors of single runs, or sums of their products that a campaign stored.
  paired = counts
  if counts is None and runs.tallies.joint_errors is not None:
    paired = runs.tallies
  # Without common labels, the classes are right and wrong.
  class_names = None
  if runs.pooled:
    class_names = class_names_of(runs.kept[attributes["labels"]])
  runs = replace(
    runs,
    examples=runs.tallies.examples,
    paired=paired if pairs else None,
    class_names=class_names,
  )
  if runs.asked is not None:
    return runs
  variances = _variances_of_tallies(runs.tallies, counts)
  return replace(
    runs,
    values=1 - runs.tallies.error_rates(),
    variances=_unless_seen(runs, variances),
  )


def _with_counted_votes(
  runs: MeasuredRuns, labels_name: str
) -> tuple[MeasuredRuns, Counts | None]:
  """Return runs with their predictions and the tallies of these, and the counts of their
  errors if all runs were asked for all examples.
  """
  predictions = predicted_classes(runs.kept, runs.output).reshape(runs.runs, -1)
  labels_of_runs = runs.kept[labels_name].values.reshape(-1, predictions.shape[1])
  labels = labels_of_runs[0]
  pooled = bool((labels_of_runs == labels).all())
  if not pooled:
    # Under label maps a class means another thing in each run. Errors mean the same.
    wrong = predictions != labels_of_runs.astype(predictions.dtype)
    is_missing = predictions == NOT_ASKED
    predictions = np.where(is_missing, NOT_ASKED, wrong).astype(np.int8)
    labels = np.zeros_like(labels, np.int8)
  predictions, labels = read_votes(predictions, labels, runs.num_classes)
  # Both of one dtype: comparing arrays of different dtypes is many times slower.
  errors = predictions != labels.astype(predictions.dtype)
  votes = sparse_votes(predictions, runs.num_classes)
  asked = None
  asked_by_example = count_asked(predictions)
  if asked_by_example is not None:
    asked = predictions != NOT_ASKED
    errors = errors & asked
  counts = Counts(errors)
  tallies = stats.Tallies.from_counts(
    labels, votes, counts.halves, asked=asked_by_example
  )
  runs = replace(
    runs, tallies=tallies, predictions=predictions, pooled=pooled, asked=asked
  )
  if asked is not None:
    return runs, None
  return runs, counts


def _unless_seen(runs: MeasuredRuns, variances: RunVariances) -> RunVariances:
  """Return the variances of runs, without what it says of other test examples where runs
  were trained on some of these.
  """
  if not runs.seen:
    return variances
  # Runs are better on examples that they saw, and differ in which they saw.
  unknown = stats.Estimate(np.nan)
  return variances._replace(distribution=unknown, runs_needed=np.nan)


def _variances_of_tallies(
  tallies: stats.Tallies, counts: Counts | None
) -> RunVariances:
  # Tallies have no errors of single runs, which the jackknife leaves out in turn.
  if counts is None:
    counts = tallies
  return RunVariances(
    independent=stats.independent_errors_variance(counts),
    distribution=tallies.distribution_variance(),
    halves=tallies.halves,
    correlation=tallies.split_correlation().value,
    runs_needed=tallies.runs_for_variance(PRECISION),
  )


def _variances_of_losses(losses: np.ndarray, means: np.ndarray) -> RunVariances:
  runs, examples = losses.shape
  estimate = stats.loss_variance(losses)

  # Equation 3 is linear in the variance over runs, whose interval is known.
  low, high = stats.variance_over_runs(means).interval
  scale = safe_divide(examples, examples - 1)
  variance, se = estimate.distribution.value, estimate.distribution.se
  distribution = stats.Estimate(
    variance,
    se,
    low=scale * (low - estimate.independent),
    high=scale * (high - estimate.independent),
  )

  # Runs differ by little beside the losses themselves, which would cost float32 digits.
  first_run = losses[0].astype(np.float64)
  even_first, odd_first = first_run[0::2], first_run[1::2]
  even_differences = (losses[:, 0::2] - even_first).sum(axis=1)
  odd_differences = (losses[:, 1::2] - odd_first).sum(axis=1)
  return RunVariances(
    independent=stats.Estimate(estimate.independent, _independent_losses_se(losses)),
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
  total = np.sqrt(safe_divide(runs, runs - 1) * squared_deviations.sum())
  return safe_divide(total, max(runs - 2, 0) * examples**2)
