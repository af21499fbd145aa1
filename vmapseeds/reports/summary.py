"""The numbers of a campaign: every statistic with its interval, in groups, and warnings
that a reader must know.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy
import xarray as xr
from jaxtyping import Integer

from vmapseeds import stats
from vmapseeds.mistakes import Mistake
from vmapseeds.reports import groups
from vmapseeds.reports.groups import run_count
from vmapseeds.results.opening import check_classes, errors, stored_tallies
from vmapseeds.stats import Interval
from vmapseeds.stats.intervals import nonnegative_interval, sd_interval
from vmapseeds.stats.resampling import calibration_bootstrap_of_votes

Statistic = dict[str, Any]

FEW_RUNS = 30
# Runs below which chance alone makes pairs of examples look dependent: see
# `stats.dependent_pairs`.
RUNS_FOR_PAIRS = 3000
# Above this excess kurtosis of accuracies and below this number of runs, intervals of
# variances hold in under 95 %.
LONG_TAIL, RUNS_FOR_LONG_TAILS = 2, 100
PRECISION = 0.1
SHOWN_PAIRS = 10
MOST_GAPS = 200  # runs whose logit gaps are read
UNREAD = (
  "Predictions were not kept, or are too many to read for a report. So standard errors of disagreement and of "
  "independent errors are left out, and pairs of examples unless they were counted in training (--pairs): vs.stats has "
  "them of runs that vs.prediction_blocks reads."
)
UNDEFINED = (
  "Not defined here: it needs at least two runs that differ, and two test examples."
)
GROUPS = {
  "accuracy": "Accuracy",
  "variance": "Variance between runs",
  "halves": "One half of the examples against the other",
  "disagreement": "Disagreement and calibration",
  "pairs": "Examples that go wrong together",
  "gaps": "Distributions of logit gaps",
}


class Counts(NamedTuple):
  """The runs that did not diverge, and what is counted of them."""

  kept: xr.Dataset
  tallies: stats.Tallies
  predictions: (
    Integer[np.ndarray, "runs examples"] | None
  )  # as they are counted; None if `tallies` were stored
  pooled: bool  # whether votes of different runs may be pooled


def summarize(
  results: xr.Dataset, *, test_set: str = "test", counts: Counts | None = None
) -> dict[str, Any]:
  """All numbers of one campaign on one test set, ready for JSON.

  Runs that diverged are counted and kept out of everything else. Undefined numbers (one
  run, a negative variance under a root) are None, never NaN.

  Args:
    results: what `open_results` returns.
    test_set: name of the test set, for the record.
    counts: what `counted` returns for the results, if it was called before.

  Returns:
    `recipe`, `settings`, `test_set`, `epoch` (None: the end), `device_kind`,
    `lane_width`, `lowering`, `versions`; `varied`, the sources of randomness whose
    seeds differ between runs, and "start" if their starts do; `pooled`, what
    else differs between them: swept columns, or "label_map"; `runs`, `diverged`,
    `examples`, `classes`; `summary`, a few sentences; `warnings`, a sentence each;
    `pairs`, the pairs of examples farthest from independence; and
    `statistics`: name -> `label`, `group`, `value`, `se` (standard error, or None),
    `low` and `high` (95 % interval, or None), `over` (what the uncertainty is about:
    other "runs", or other "examples"), `unit` (fraction; variance: squared fraction;
    correlation; number; count; p), `definition` and `reading`.

  Raises:
    Mistake: the results have no labels, no run is finished, or all diverged.
  """
  kept, tallies, predictions, pooled = counts or counted(results)
  num_classes, diverged = (
    int(results.attrs["num_classes"]),
    results.sizes["run"] - tallies.runs,
  )
  numbers = error_statistics(tallies, predictions, num_classes)
  if pooled:
    numbers |= vote_statistics(tallies, predictions, num_classes)
  numbers |= pair_statistics(tallies)
  if "logits" in kept and num_classes == 2 and tallies.runs > 1:
    numbers |= gap_statistics(gaps(kept))
  settings = json.loads(results.attrs["recipe"])
  known = {*settings, *settings.get("values", {})}
  values = {
    name: groups.values_of(kept, name) for name in groups.columns(kept) if name in known
  }
  settings |= {
    name: taken[0] if len(taken) == 1 else taken for name, taken in values.items()
  }
  return {
    "recipe": settings["name"],
    "settings": settings,
    "test_set": test_set,
    "epoch": results.attrs.get("epoch"),
    **{
      name: results.attrs[name]
      for name in ("device_kind", "lane_width", "lowering", "versions")
    },
    "varied": [
      name.removeprefix("seed_")
      for name, of in groups.drawn(kept).items()
      if (of != of[0]).any()
    ],
    "pooled": [*groups.swept(kept), *["label_map"] * (not pooled)],
    "runs": tallies.runs,
    "diverged": diverged,
    "examples": tallies.examples,
    "classes": num_classes,
    "summary": _in_short(numbers, tallies.runs),
    "warnings": [
      *_warnings(kept, diverged, numbers, pooled),
      *[UNREAD] * (predictions is None),
    ],
    "pairs": _pairs(tallies),
    "statistics": dict(
      sorted(numbers.items(), key=lambda item: [*GROUPS].index(item[1]["group"]))
    ),
  }


def counted(results: xr.Dataset) -> Counts:
  """Counts the runs that did not diverge, and the joint errors of all pairs of
  examples.

  Tallies are counted from predictions, if there are any. Otherwise the stored tallies
  are returned, and predictions are None. If label maps differ between runs, errors take
  the place of predictions: 1 is wrong, and all labels are 0.

  Raises:
    Mistake: the results have no labels, no run is finished, or all diverged; or there
      are neither predictions nor stored tallies of exactly these runs.
  """
  finished, diverged = check_classes(results).sizes["run"], results.diverged.values
  if not finished:
    raise Mistake(
      "no run is finished: start `vmapseeds train` again with the same --out, and it goes on"
    )
  if diverged.all():
    raise Mistake(f"all {finished} finished runs diverged: train with a lower lr")
  kept = (
    results.isel(run=np.flatnonzero(~diverged)) if diverged.any() else results
  )  # choosing runs copies them
  labels, num_classes = kept.labels.values, int(kept.attrs["num_classes"])
  if "predictions" not in kept:
    if (stored := stored_tallies(kept, pairs=True)) is None:
      several = "these runs were counted together with others, and their predictions were not kept"
      raise Mistake(
        f"{several}: report all runs of the folder, or train these in a folder of their own"
      )
    return Counts(kept, stored, None, True)
  predictions, pooled = (
    kept.predictions.values,
    labels.ndim == 1 or not (labels != labels[0]).any(),
  )
  if not pooled:
    predictions, labels = (
      errors(kept).astype(np.int8),
      np.zeros(labels.shape[1], np.int8),
    )
  labels = labels.reshape(-1, predictions.shape[1])[0]
  return Counts(
    kept, stats.tally(predictions, labels, num_classes, pairs=True), predictions, pooled
  )


def gaps(kept: xr.Dataset) -> np.ndarray:
  """Logit gaps (runs, examples) of the first runs of a two-class network."""
  return np.asarray(stats.logit_gap(kept.logits.isel(run=slice(MOST_GAPS)).values))


# The statistics: one call of `_statistic` each, so that number, uncertainty, definition
# and meaning stand together.


def error_statistics(
  tallies: stats.Tallies,
  predictions: Integer[np.ndarray, "runs examples"] | None,
  num_classes: int,
) -> dict[str, Statistic]:
  """The statistics of Jordan 2024 that need only to know which run has which example
  wrong, by name.

  Args:
    tallies: the tallies.
    predictions: (runs, examples), as tallied; None if they were not read.
    num_classes: number of classes of the network. Tallies of errors have another
      number.
  """
  runs, n = tallies.runs, tallies.examples
  accuracy = 1 - tallies.error_rates()
  estimate = stats.ideal_estimate(accuracy)
  test_set, independent = (
    tallies.test_set_variance(),
    tallies.independent_errors_variance(),
  )
  variance, variance_se = (
    tallies.distribution_variance(),
    tallies.distribution_variance_se(),
  )
  ends = tallies.distribution_variance_interval()
  correlation = tallies.split_correlation()
  p_value = stats.correlation_p_value(correlation, runs)
  gain = tallies.top_fraction_gain().mean if runs > 1 else math.nan
  of_gain = (
    tallies.top_fraction_gain_bootstrap(key=jax.random.key(0)) if runs > 1 else None
  )
  needed = tallies.runs_for_precision(PRECISION)
  # Both of one dtype: comparing arrays of different dtypes is many times slower.
  wrong = (
    None
    if predictions is None
    else predictions != tallies.labels.astype(predictions.dtype)
  )
  independent_se = (
    math.nan if wrong is None else stats.independent_errors_variance_se(wrong)
  )
  return {
    "mean_accuracy": _statistic(
      "accuracy",
      "mean accuracy",
      "fraction",
      "A run has {} of the test examples right on average.",
      "Mean over runs of the fraction of test examples that are right; interval: Student's t.",
      estimate.mean,
      estimate.se,
      stats.mean_interval(accuracy),
      over="runs",
    ),
    "sd_accuracy": _statistic(
      "accuracy",
      "standard deviation of accuracy",
      "fraction",
      "On this test set accuracy scatters about its mean by {} from run to run.",
      "Standard deviation over runs of test accuracy, ddof = 1 (Jordan 2024, section 3.3); error and interval: "
      "jackknife of the variance over runs, which need not be normal.",
      np.sqrt(test_set),
      _ratio((1 - 1 / n) * variance_se, 2 * np.sqrt(test_set)),
      sd_interval(stats.variance_interval(accuracy)),
      over="runs",
    ),
    "min_accuracy": _statistic(
      "accuracy",
      "lowest accuracy",
      "fraction",
      "The worst run has {} right; part of that is bad luck on these examples.",
      "The least accurate run; it falls as more runs are drawn. No interval: the run was chosen by this number.",
      float(accuracy.min()),
    ),
    "max_accuracy": _statistic(
      "accuracy",
      "highest accuracy",
      "fraction",
      "The best run has {} right; part of that is luck on these examples, and gone on others.",
      "The most accurate run; it rises as more runs are drawn. No interval: the run was chosen by this number.",
      float(accuracy.max()),
    ),
    "normality": _statistic(
      "accuracy",
      "p of normality",
      "p",
      "Accuracies of normal runs would look this far from normal or farther with probability {}.",
      "p-value of the Shapiro-Wilk test of the runs' accuracies (Bouthillier 2021, figure G.3).",
      stats.normality(accuracy).p_value,
    ),
    "independent_errors_sd": _root_of(
      "variance",
      "sd if errors were independent",
      "Were each example right or wrong by its own coin, runs would differ by a standard deviation of {}.",
      "√((1/n²) Σ ε_i (1 - ε_i)) with ε_i the error rate of example i, unbiased in the number of runs (Jordan 2024, "
      "section 3.2); error: jackknife over runs.",
      independent,
      independent_se,
      runs,
    ),
    "distribution_variance": _statistic(
      "variance",
      "distribution-wise variance",
      "variance",
      "This variance, {}, would remain on an endless test set; noise can make the estimate negative.",
      "n/(n - 1) [variance over runs - independent-errors variance], signed and unbiased (Jordan 2024, equation 3); "
      "error and interval: n/(n - 1) times those of the variance over runs, by the jackknife.",
      variance,
      variance_se,
      ends,
      over="runs",
    ),
    "distribution_sd": _statistic(
      "variance",
      "distribution-wise sd",
      "fraction",
      "On an endless test set runs would differ by a standard deviation of {}.",
      "Square root of the distribution-wise variance where that is not negative (Jordan 2024, equation 3); its "
      "interval: the roots of that one's, from 0.",
      np.sqrt(variance) if variance >= 0 else math.nan,
      # The root's error by linearisation, which means little if the variance may well
      # be 0.
      variance_se / (2 * np.sqrt(variance)) if variance > 2 * variance_se else math.nan,
      sd_interval(ends) if ends.high > 0 else None,
      over="runs",
      undefined="The variance estimate is negative: no difference between runs is seen beyond this test set."
      if variance < 0
      else UNDEFINED,
    ),
    "runs_for_precision": _statistic(
      "variance",
      "runs for distr. variance ± 10 %",
      "count",
      "About {} runs in all would give the distribution-wise variance to within 10 %.",
      "1 + (R - 1) (1.96 SE/(0.1 σ²))², from the standard error of equation 3 (Jordan 2024).",
      needed,
      undefined="No number of runs can be named: the distribution-wise variance is not above 0 here.",
    ),
    "binomial_sd": _root_of(
      "variance",
      "binomial sd",
      "With all examples equally hard, chance alone would give {}.",
      "√(err (1 - err)/n): all examples equally hard and errors independent (Jordan 2024, figure 13).",
      stats.binomial_variance(1 - estimate.mean, n),
      estimate.se * abs(2 * estimate.mean - 1) / n,
      runs,
    ),
    "calibration_sd": _calibration(
      1 - estimate.mean, estimate.se, n, num_classes, runs
    ),
    "split_correlation": _statistic(
      "halves",
      "correlation between halves",
      "correlation",
      f"Accuracy on one half explains {show(_plain(correlation**2), None, 'fraction')} of the variance of that on the "
      f"other: their correlation is {{}}, p {p_text(p_value)}.",
      "Pearson correlation over runs of the accuracies on even and odd test examples (Jordan 2024, section 3.1); "
      "two-sided p from the t test with R - 2 degrees of freedom; error and interval: jackknife over runs.",
      correlation,
      tallies.split_correlation_se(),
      tallies.split_correlation_interval(),
      over="runs",
    )
    | {"p_value": _plain(p_value)},
    "top_quarter_gain": _statistic(
      "halves",
      "gain of the top quarter",
      "fraction",
      "Picking the best quarter of runs on half of the examples gains {} on the other half.",
      "Mean accuracy on one half of the quarter of runs best on the other half, minus that of all runs; mean of both "
      "directions (Jordan 2024, section 3.1); error: bootstrap of the runs.",
      gain,
      of_gain and of_gain.se,
      of_gain and Interval(of_gain.low, of_gain.high),
      over="runs",
    ),
  }


def _calibration(
  error: Any, error_se: Any, n: int, num_classes: int, runs: int
) -> Statistic:
  label, about = "least sd by calibration", "at least"
  definition = (
    "√(err/(nk)) for k classes and a class-wise calibrated ensemble, a lower bound on average over test sets "
    "(Jordan 2024, theorem 4)."
  )
  if num_classes == 2:
    label, about = "sd predicted by calibration", "about"
    definition = "√(err/(2n)), for two classes and a class-wise calibrated ensemble (Jordan 2024, equation 6)."
  sd = f"a standard deviation of {about} {{}} on such test sets"
  reading = f"If the runs' votes are calibrated, runs must differ by {sd}."
  variance, se = (
    stats.calibration_variance_bound(error, n, num_classes),
    error_se / (n * num_classes),
  )
  return _root_of("variance", label, reading, definition, variance, se, runs)


def vote_statistics(
  tallies: stats.Tallies,
  predictions: Integer[np.ndarray, "runs examples"] | None,
  num_classes: int,
) -> dict[str, Statistic]:
  """The statistics that need to know which class each run predicts, by name. All runs
  have the same labels.
  """
  labels, n, runs = tallies.labels, tallies.examples, tallies.runs
  disagreement, gap = tallies.expected_disagreement(), tallies.gde_gap()
  known = predictions is not None
  disagreement_se = (
    stats.expected_disagreement_se(predictions, num_classes) if known else math.nan
  )
  gap_se = stats.gde_gap_se(predictions, labels, num_classes) if known else math.nan
  ensemble = tallies.ensemble_accuracy()
  key = jax.random.key(0)
  resampled = calibration_bootstrap_of_votes(tallies.votes, labels, runs, key=key)
  inflation = stats.finite_ensemble_calibration(tallies.vote_fractions(), runs, key=key)
  return {
    "ensemble_accuracy": _statistic(
      "accuracy",
      "ensemble accuracy",
      "fraction",
      "All runs voting together have {} right.",
      "Accuracy of the plurality vote of all runs, ties to the lowest class (Jordan 2024, section 4.2); interval: "
      "Wilson's.",
      ensemble,
      None,
      stats.proportion_interval(ensemble, n),
      over="examples",
    ),
    "expected_disagreement": _statistic(
      "disagreement",
      "expected disagreement",
      "fraction",
      "Two runs predict different classes on {} of the test examples.",
      "Mean over pairs of distinct runs of the fraction of test examples they predict differently (Jiang 2022, section "
      "2); error: jackknife over runs.",
      disagreement,
      disagreement_se,
      nonnegative_interval(disagreement, disagreement_se, runs),
      over="runs",
    ),
    "gde_gap": _statistic(
      "disagreement",
      "disagreement against error",
      "fraction",
      "Disagreement, which needs no labels, misses the test error by {}.",
      "|mean test error - expected disagreement|, the gap of the generalization-disagreement equality (Jiang 2022, "
      "section 3); error: jackknife over runs.",
      gap,
      gap_se,
      nonnegative_interval(gap, gap_se, runs),
      over="runs",
    ),
    "cace": _statistic(
      "disagreement",
      "class-aggregated calib. error",
      "number",
      f"The votes' confidences miss the truth by {{}} in all, summed over the classes; a perfectly calibrated law of "
      f"runs would show {show(_plain(inflation.cace), None, 'number')} with {run_count(runs)}.",
      "CACE of the ensemble of votes in 10 bins, from 0 to the number of classes (Jiang 2022, equations 56 to 58); "
      "error: bootstrap of the examples; no interval, for few examples raise it.",
      tallies.cace(),
      resampled["cace"].se,
      over="examples",
    ),
    "ece": _statistic(
      "disagreement",
      "expected calibration error",
      "fraction",
      f"The winning class's share of the votes misses its accuracy by {{}} on average; a perfectly calibrated law of "
      f"runs would show {show(_plain(inflation.ece), None, 'fraction')} with {run_count(runs)}.",
      "ECE of the plurality vote in 10 bins (Jiang 2022, equations 59 to 62); error: bootstrap of the examples; no "
      "interval, for few examples raise it.",
      tallies.ece(),
      resampled["ece"].se,
      over="examples",
    ),
  }


def pair_statistics(tallies: stats.Tallies) -> dict[str, Statistic]:
  """How many pairs of examples are right together more or less often than independent
  ones.
  """
  if tallies.joint_errors is None:
    return {}
  found, by_chance = math.nan, math.nan
  if tallies.runs > 1 and tallies.examples > 1:
    found = len(tallies.dependent_pairs().i)
    by_chance = stats.expected_false_pairs(tallies.example_error_rates(), tallies.runs)
  return {
    "dependent_pairs": _statistic(
      "pairs",
      "dependent pairs of examples",
      "count",
      f"{{}} pairs of examples are right together more than 2 points more or less often than independent ones; noise "
      f"alone would show {show(_plain(by_chance), None, 'count')}.",
      "Pairs with |P(C_i, C_j) - P(C_i) P(C_j)| > 0.02 over the runs (Jordan 2024, section 3.2); by chance: normal "
      "noise of independent pairs with these error rates.",
      found,
    )
    | {"by_chance": _plain(by_chance)},
  }


def gap_statistics(gaps: np.ndarray) -> dict[str, Statistic]:
  """How alike the runs' distributions of logit gaps are."""
  runs, n = gaps.shape
  distances = stats.ks_distance(gaps, gaps)
  threshold = float(stats.ks_threshold(n))
  within = float((distances <= threshold).mean())
  estimate = stats.ideal_estimate(distances)
  return {
    "gap_distance": _statistic(
      "gaps",
      "distance of logit-gap eCDFs",
      "number",
      "A run's distribution function of logit gaps is {} away from that of all at its farthest, on average.",
      f"Mean L∞ distance of a run's eCDF from the pooled one of {run_count(runs)} (Banerjee 2024, equations 8 and 16).",
      estimate.mean,
      estimate.se,
      stats.mean_interval(distances),
      over="runs",
    ),
    "gap_accepted": _statistic(
      "gaps",
      "runs within the KS threshold",
      "fraction",
      f"{{}} of the runs are within the distance {threshold:.4f} of the pooled distribution.",
      "Runs whose eCDF is within δ_a = √((2/n) ln(2/0.01)) of the pooled one (Banerjee 2024, equations 14 and 16); "
      "interval: Wilson's.",
      within,
      None,
      stats.proportion_interval(within, runs),
      over="runs",
    ),
  }


def _pairs(tallies: stats.Tallies) -> list[dict[str, float]]:
  """The pairs of examples farthest from independence, each with the standard error of
  its deviation.
  """
  if tallies.joint_errors is None or tallies.runs < 2 or tallies.examples < 2:
    return []
  pairs = tallies.most_dependent_pairs(SHOWN_PAIRS)
  right = 1 - tallies.example_error_rates()
  a, b = right[pairs.i], right[pairs.j]
  # The standard error for independent examples, where only noise makes a deviation.
  se = np.sqrt(a * (1 - a) * b * (1 - b) / tallies.runs)
  columns = {
    "i": pairs.i,
    "j": pairs.j,
    "right_i": a,
    "right_j": b,
    "joint": pairs.joint,
    "product": pairs.product,
    "se": se,
  }
  rows = zip(*(column.tolist() for column in columns.values()), strict=True)
  return [dict(zip(columns, row, strict=True)) for row in rows]


def _root_of(
  group: str,
  label: str,
  reading: str,
  definition: str,
  variance: Any,
  se: Any,
  runs: int,
) -> Statistic:
  """The statistic of a standard deviation, from its variance and the variance's
  standard error over runs.
  """
  sd, ends = (
    float(np.sqrt(variance)),
    sd_interval(nonnegative_interval(variance, se, runs)),
  )
  return _statistic(
    group,
    label,
    "fraction",
    reading,
    definition,
    sd,
    _ratio(se, 2 * sd),
    ends,
    over="runs",
  )


def _statistic(
  group: str,
  label: str,
  unit: str,
  reading: str,
  definition: str,
  value: Any,
  se: Any = None,
  ends: Interval | None = None,
  *,
  over: str | None = None,
  undefined: str = UNDEFINED,
) -> Statistic:
  value, se, low, high = map(_plain, (value, se, *(ends or (None, None))))
  if value is None:
    reading, se = undefined, None
  else:
    reading = reading.format(show(value, None, unit))
  if low is None or high is None:
    low = high = None
    over = None if se is None else over
  else:
    reading = f"{reading[:-1]} (95 %: {show_interval(low, high, unit)})."
  return {
    "group": group,
    "label": label,
    "value": value,
    "se": se,
    "low": low,
    "high": high,
    "over": over,
    "unit": unit,
    "definition": definition,
    "reading": reading,
  }


def _plain(value: Any) -> float | None:
  """A number for JSON: NaN, infinities and None become None."""
  return None if value is None or not math.isfinite(value) else float(value)


def _ratio(a: Any, b: Any) -> float:
  return a / b if b else math.nan


def p_text(value: Any) -> str:
  """A p-value after "p": "= 0.031", "< 0.0001"."""
  text = show(_plain(value), None, "p")
  return text if text.startswith("<") else f"= {text}"


# Warnings and the summary in words.


def _warnings(
  kept: xr.Dataset, diverged: int, numbers: Mapping[str, Statistic], pooled: bool
) -> Iterator[str]:
  """What a reader must know before believing the numbers, a sentence each."""
  runs = kept.sizes["run"]
  variance, sd = numbers["distribution_variance"], numbers["sd_accuracy"]
  if diverged:
    yield f"{run_count(diverged)} diverged and {'is' if diverged == 1 else 'are'} left out of every statistic."
  if runs == 1:
    yield "One run says nothing about variance between runs: train more with --runs."
  elif runs < FEW_RUNS:
    known = (
      f"is known to about ±{100 * sd['se'] / sd['value']:.0f} %"
      if sd["se"]
      else "may be anything"
    )
    yield f"With only {runs} runs the standard deviation {known}."
    low = f"{100 / runs:.0f} % low with {runs} runs"
    yield f"The papers' plug-in variances would come out {low}; those here are unbiased."
  if variance["low"] is not None and variance["low"] <= 0 <= variance["high"]:
    yield "The distribution-wise variance may be 0: its interval holds it."
  kurtosis = scipy.stats.kurtosis(kept.accuracy.values) if sd["value"] else 0.0
  if kurtosis > LONG_TAIL and runs < RUNS_FOR_LONG_TAILS:
    yield (
      f"Some runs are far from the rest (excess kurtosis {kurtosis:.1f}): below {RUNS_FOR_LONG_TAILS} runs the 95 % "
      "intervals of variances then hold in about 92 %."
    )
  if numbers.get("dependent_pairs", {}).get("value") and runs < RUNS_FOR_PAIRS:
    chance = f"by chance below about {RUNS_FOR_PAIRS} runs"
    yield f"Pairs of examples pass 0.02 {chance}: with {runs} their number says little."
  if not pooled:
    yield (
      "Label maps differ between runs, so votes cannot be pooled and the statistics over predictions are left out; the "
      "spread of accuracy includes differences between the tasks."
    )
  if swept := groups.swept(kept):
    yield f"The spread between runs includes the effect of {' and '.join(swept)}, varied between them."
  drawn = [*groups.drawn(kept).values()]
  if drawn and np.unique(drawn, axis=1).shape[1] < runs:
    yield "Some runs share all their seeds: they are not independent, and standard errors are too small."


def _in_short(numbers: Mapping[str, Statistic], runs: int) -> str:
  text = {name: show(s["value"], s["se"], s["unit"]) for name, s in numbers.items()}
  variance = numbers["distribution_variance"]
  if variance["value"] is None:
    return f"{run_count(runs)}: test accuracy is {text['mean_accuracy']}; its variance cannot be estimated."
  lead = (
    f"Test accuracy differs between runs by a standard deviation of {text['sd_accuracy']}; errors that are independent "
    f"between examples would give {text['independent_errors_sd']}."
  )
  if (variance["low"] or 0) > 0:
    return f"{lead} On an endless test set {text['distribution_sd']} would remain."
  if (variance["high"] or 0) < 0:
    return (
      f"{lead} Errors spread less than independent ones, by more than chance explains."
    )
  return f"{lead} No difference between runs beyond this test set can be seen."


# Numbers as text.

NO_SCALE = (1, "")
SCALES = {"fraction": (100, " %"), "variance": (1e4, " %²")}


def show(value: float | None, se: float | None, unit: str) -> str:
  """A number with its standard error: fractions in percent, variances in squared
  percentage points (%²).

  The error has two significant digits, and the value as many decimal places. A value
  without an error, or with an error of 0, has three significant digits and, in percent,
  at least two decimal places.

  >>> show(0.97531, 0.00041, "fraction"), show(-1.2e-6, 3.4e-6, "variance"), show(None, None, "fraction")
  ('97.531 ± 0.041 %', '-0.012 ± 0.034 %²', 'n/a')
  >>> show(0.031, None, "p"), show(1e-9, None, "p")
  ('0.031', '< 0.0001')
  """
  if value is None:
    return "n/a"
  scale, sign = SCALES.get(unit, NO_SCALE)
  value *= scale
  if unit == "p":
    return f"{value:.2g}" if value >= 1e-4 else "< 0.0001"
  if unit == "count":
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.2g}"
  if se:
    return f"{value:.{_places(scale * se, 2)}f} {show_error(se, unit)}"
  return f"{value:.{max(_places(value, 3), 2 if unit == 'fraction' else 0)}f}{sign}"


def show_error(se: float | None, unit: str) -> str:
  """A standard error alone, to two digits; nothing where it is 0 or unknown.

  >>> show_error(0.00041, "fraction"), show_error(0.0, "fraction")
  ('± 0.041 %', '')
  """
  if not se:
    return ""
  scale, sign = SCALES.get(unit, NO_SCALE)
  return f"± {scale * se:.{_places(scale * se, 2)}f}{sign}"


def show_interval(low: float | None, high: float | None, unit: str) -> str:
  """An interval, to two digits of its width.

  >>> show_interval(0.97448, 0.97614, "fraction"), show_interval(None, None, "fraction")
  ('97.45 to 97.61 %', '')
  """
  if low is None or high is None:
    return ""
  scale, sign = SCALES.get(unit, NO_SCALE)
  low, high = scale * low, scale * high
  places = _places(high - low, 2)
  return f"{low:.{places}f} to {high:.{places}f}{sign}"


def _places(value: float, digits: int) -> int:
  """Decimal places that show `value` with so many significant digits, at most 8."""
  return (
    min(8, max(0, digits - 1 - math.floor(math.log10(abs(value)))))
    if value
    else digits - 1
  )
