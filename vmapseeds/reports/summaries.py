"""The numbers of a campaign: every statistic with its interval, in groups, and warnings
that a reader must know.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats
import xarray as xr

from vmapseeds import stats
from vmapseeds.reports import crossed_sources, groups
from vmapseeds.reports.examples_table import OF_LOSSES, OF_VOTES, ORDERS, rows_of
from vmapseeds.reports.sources import how_read
from vmapseeds.results.by_example import (
  ids_of_results,
  losses_of_asked,
  table_of_losses,
  table_of_unlabelled,
  table_of_votes,
)
from vmapseeds.results.description import parsed_attribute, shown_condition
from vmapseeds.results.doubts import (
  doubts_of_padding,
  doubts_of_runs,
  doubts_of_votes,
  is_to_beat_chance,
)
from vmapseeds.results.formatting import capitalized, count_of, run_count, show
from vmapseeds.results.measured import INCOMPLETE
from vmapseeds.results.measured_runs import (
  MeasuredRuns,
  NoRunLeft,
  measure_runs,
  roles,
)
from vmapseeds.results.opening import converged_runs
from vmapseeds.results.statistics import (
  describe_statistic,
  statistic_by_key,
  statistics_defined_for,
)
from vmapseeds.results.units import describe_units, seed_columns
from vmapseeds.stats._arrays import centred

FEW_RUNS = 30
# Above this excess kurtosis of accuracies and below this number of runs, intervals of
# variances hold in under 95 %.
LONG_TAIL, RUNS_FOR_LONG_TAILS = 2, 100
SHOWN_EXAMPLES = 10
UNREAD = (
  "Predictions were not kept, or are too many to read for a report. So standard errors "
  "of disagreement and of independent errors are left out, and pairs of examples unless "
  "they were counted in training (--pairs): vs.stats has them of runs that "
  "vs.open_results reads."
)


def summarize(
  results: xr.Dataset,
  *,
  test_set: str = "test",
  measured: Sequence[MeasuredRuns] | None = None,
) -> dict[str, Any]:
  """Return all numbers of one campaign on one test set, ready for JSON.

  Runs that diverged are counted and kept out of everything else. Runs of which an output
  is undefined are counted and kept out of its statistics alone; an output that is
  undefined in all runs has a warning and no statistics. Undefined numbers (one
  run, a negative variance under a root) are None, never NaN.

  Args:
    results: what `open_results` returns.
    test_set: name of the test set, for the record.
    measured: what `measure_outputs` returns for the results, if it was called before.

  Returns:
    `recipe`, `settings`, `test_set`, `epoch` (None: the end), `device_kind`,
    `lane_width`, `lowering`, `normalized_by` (of which examples the moments are),
    `versions`; `varied`, the sources of randomness whose
    seeds differ between runs, and "start" if their starts do; `pooled`, what
    else differs between them: swept columns, or "label_map"; what `summarize_output`
    returns for the first output; and `further`, the same for each of the others.

  Raises:
    UserError: no output has a role, no run is finished, all diverged, or no output is
      defined.
  """
  measured = measured or measure_outputs(results)
  kept = results.isel(run=converged_runs(results))
  settings = settings_of(results, kept)
  # A spread over values is not one over seeds: pages say so beside their title.
  pooled = list(groups.swept_columns(kept))
  if any(not runs.pooled for runs in measured):
    pooled.append("label_map")
  versions = parsed_attribute(results, "versions")
  conditions = results.attrs | versions
  conditions["kinds"] = parsed_attribute(results, "kinds") or {}
  first, *further = [summarize_output(runs) for runs in measured]
  first["warnings"] += _undefined_outputs(results, measured)
  return {
    "recipe": settings["name"],
    "settings": settings,
    "test_set": test_set,
    "epoch": results.attrs.get("epoch"),
    "device_kind": shown_condition(conditions, "device_kind"),
    "lane_width": shown_condition(conditions, "lane_width"),
    "lowering": shown_condition(conditions, "lowering"),
    "normalized_by": results.attrs.get("normalized_by"),
    "versions": {package: shown_condition(conditions, package) for package in versions},
    "varied": _varied_sources(kept),
    "pooled": pooled,
    **first,
    "further": further,
  }


def settings_of(results: xr.Dataset, kept: xr.Dataset) -> dict[str, Any]:
  """Return the recipe's settings, those that runs have in columns as they have them."""
  settings = json.loads(results.attrs["recipe"])
  # A recorded value may be called as what is no setting.
  names = set(settings).union(settings.get("values", {})) - {"name"}
  # Swept ones have several values, others the one that all runs have.
  for name in groups.columns(kept):
    if name in names:
      values = groups.values_of(kept, name)
      settings[name] = values[0] if len(values) == 1 else values
  return settings


def format_setting(value: Any) -> str:
  """Return a setting as a text; that of nothing is empty."""
  if isinstance(value, Mapping):
    value = groups.format_values(value)
  elif isinstance(value, list):
    value = ", ".join(map(str, value))
  if value is None:
    return ""
  return str(value)


def _varied_sources(kept: xr.Dataset) -> list[str]:
  # A column may be there with one seed for all runs.
  return [
    kept[name].attrs.get("source", name)
    for name, seeds in seed_columns(kept).items()
    if (seeds != seeds[0]).any()
  ]


def measure_outputs(results: xr.Dataset) -> list[MeasuredRuns]:
  """Return the runs of each output with a role, but for outputs that are undefined in
  all runs: see `measure_runs`.

  Raises:
    UserError: no run is finished, all diverged, or all outputs are undefined.
  """
  measured = []
  for name in roles(results):
    try:
      measured.append(measure_runs(results, name))
    # One metric that says nothing does not hide the others.
    except NoRunLeft as mistake:
      undefined = mistake
  if not measured:
    raise undefined
  return measured


def summarize_output(runs: MeasuredRuns) -> dict[str, Any]:
  """Return all numbers of one output.

  Returns:
    `output`, `role`, `runs`, `diverged`, `undefined` (runs of which the output is); `examples`, `classes` and `class_names`, where there are any;
    `sources`, what `crossed_sources.decompose` returns; `summary`, a few sentences; `warnings`, a sentence each; `pairs`, the pairs of
    examples farthest from independence; of more runs than one `hard_examples`,
    `split_examples` and, of classes, `mislabelled_examples`, the first rows of
    `vs.example_table` in these orders; and `statistics`: name -> `label`, `group`, `value`, `se` (standard error, or
    None), `low` and `high` (95 % interval, or None), `over` (what the uncertainty is
    about: other "runs", or other "examples"), `unit` (fraction; variance: squared
    fraction; correlation; number; count; p; or the output's own), `definition` and
    `reading`.
  """
  rows = statistics_defined_for(runs)
  statistics = {row.name: describe_statistic(row, runs) for row in rows}
  section = {
    "output": runs.output,
    "role": runs.role,
    "runs": runs.runs,
    "diverged": runs.diverged,
    "undefined": runs.undefined,
    "examples": runs.examples,
    "classes": runs.num_classes,
    "class_names": runs.class_names,
    **_notable_examples(runs),
    "sources": crossed_sources.decompose(runs),
    "headline": {row.heading: row.name for row in rows if row.heading},
    "statistics": statistics,
  }
  return section | {
    "summary": _in_short(runs, section),
    "warnings": list(_warnings(runs, section)),
  }


def headline_statistics(section: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
  """Return heading -> statistic for the numbers that come first, to show them. Look one of
  them up by `statistic_by_key`.
  """
  names = section["headline"].items()
  return {heading: section["statistics"][name] for heading, name in names}


def _notable_examples(runs: MeasuredRuns) -> dict[str, list[dict[str, Any]]]:
  notable = {}
  if runs.tallies is not None:
    notable["pairs"] = _pairs(runs)
  if runs.examples is None or runs.runs < 2 or not runs.pooled:
    return notable

  if runs.role == "vote":
    table, orders = table_of_unlabelled(runs.kept[runs.output]), OF_VOTES
  elif runs.losses is not None:
    table, orders = table_of_losses(runs.losses), OF_LOSSES
  else:
    table, orders = table_of_votes(runs.tallies, losses_of_asked(runs.kept)), ORDERS
  table = table.assign_coords(ids_of_results(runs.kept, runs.examples))
  # The page has pictures of these alone, without a script.
  for order in orders:
    notable[f"{order}_examples"] = rows_of(table, order, SHOWN_EXAMPLES)
  return notable


def _pairs(runs: MeasuredRuns) -> list[dict[str, float]]:
  """Return the pairs of examples farthest from independence, each with the standard
  error of its deviation: those that chance does not explain among all pairs.
  """
  # Joint errors of many examples are not counted unless asked for.
  if runs.paired is None or runs.runs < 2 or runs.examples < 2:
    return []
  pairs = runs.pairs.most_dependent
  right = 1 - runs.tallies.example_error_rates()
  a, b = right[pairs.i], right[pairs.j]
  # The standard error for independent examples, where only noise makes a deviation.
  variance = a * (1 - a) * b * (1 - b)
  se = np.sqrt(variance / runs.tallies.runs)
  columns = {
    "i": pairs.i,
    "j": pairs.j,
    "right_i": a,
    "right_j": b,
    "joint": pairs.joint,
    "product": pairs.product,
    "se": se,
  }
  # 5 % over all pairs of which these are the farthest.
  count = runs.examples * (runs.examples - 1) / 2
  is_surprising = _p_values_of_pairs(pairs, right, runs.runs) < 0.05 / count
  return pd.DataFrame(columns)[is_surprising].to_dict(orient="records")


def _p_values_of_pairs(
  pairs: stats.DependentPairs, right: np.ndarray, runs: int
) -> np.ndarray:
  """Return Fisher's exact p-value of each pair's independence over the runs."""
  p_values = []
  for i, j, joint in zip(pairs.i, pairs.j, pairs.joint, strict=True):
    right_i, right_j, both = np.rint(runs * np.array([right[i], right[j], joint]))
    neither = runs - right_i - right_j + both
    table = [[both, right_i - both], [right_j - both, neither]]
    p_values.append(scipy.stats.fisher_exact(table).pvalue)
  return np.array(p_values)


# Warnings and the summary in words.


def _skipped_steps(kept: xr.Dataset) -> Iterator[str]:
  """Yield how many steps of runs that did not diverge had a loss that was not finite."""
  # Tasks of one's own, and imported runs, do not count them.
  if "nonfinite_steps" not in kept.variables:
    return
  steps = [number for number in kept["nonfinite_steps"].values.tolist() if number]
  if steps:
    some = count_of(steps[0], "step")
    if min(steps) < max(steps):
      some = f"{min(steps):,} to {max(steps):,} steps"
    yield (
      f"In {run_count(len(steps))} that ended finite, the loss of {some} was not: the "
      "optimizer skipped these steps, or the loss alone was too large for a number."
    )


def _warnings(runs: MeasuredRuns, section: Mapping[str, Any]) -> Iterator[str]:
  """Yield what a reader must know before believing the numbers, a sentence each."""
  yield from how_read([runs.kept])
  yield from _left_out_runs(runs)
  yield from _skipped_steps(runs.kept)
  yield from _doubts_of_examples(runs)
  yield from doubts_of_runs(runs.kept)
  if runs.predictions is not None:
    yield from doubts_of_padding(runs.kept)
  counted = runs.tallies is not None and runs.pooled and runs.asked is None
  if counted and is_to_beat_chance(runs.kept):
    yield from doubts_of_votes(runs.tallies)
  yield from _mixed_programs(runs.kept)
  yield from _uncertain_spread(runs, section)
  yield from _what_differs(runs, section)
  if runs.tallies is not None and runs.predictions is None:
    yield UNREAD


def _left_out_runs(runs: MeasuredRuns) -> Iterator[str]:
  if runs.diverged:
    yield (
      f"{run_count(runs.diverged)} diverged and {_is_or_are(runs.diverged)} left out of "
      "every statistic."
    )
  if runs.undefined:
    yield say_undefined(runs.output, runs.undefined, runs.runs + runs.undefined)


def say_undefined(output: str, undefined: int, runs: int) -> str:
  """Return a sentence about an output that is undefined in some of the runs."""
  return (
    f"{output} is undefined in {undefined} of {run_count(runs)}, NaN or infinite, which "
    f"{_is_or_are(undefined)} left out of its statistics."
  )


def _is_or_are(count: int) -> str:
  return "is" if count == 1 else "are"


def _undefined_outputs(
  results: xr.Dataset, measured: Sequence[MeasuredRuns]
) -> list[str]:
  """Return a sentence for each output that is undefined in all runs."""
  defined = {runs.output for runs in measured}
  count = run_count(len(converged_runs(results)))
  return [
    f"{name} is undefined in all {count}, NaN or infinite: it has no statistics."
    for name in roles(results)
    if name not in defined
  ]


def _doubts_of_examples(runs: MeasuredRuns) -> Iterator[str]:
  """Yield why the numbers may not be those of new examples, or of each example."""
  kept = runs.kept
  if runs.asked is not None:
    yield (
      f"A run was asked for {runs.asked.mean():.0%} of the examples on average: every number "
      "is over what was asked, and what compares runs on the same examples is left out."
    )
  if runs.seen:
    yield (
      f"On average {runs.seen:.4g} of the {runs.examples} test examples are among those "
      f"that a run was trained on: {runs.of.name} is not that of new examples, and "
      "nothing is said of an infinite test set. Give others."
    )
  if runs.output == "loss" and "losses" not in kept.variables:
    yield (
      "The loss of an example depends on those beside it, so it is evaluated on the whole "
      "test set at once: there is no variance on an infinite test set, which is of means "
      "over examples, and no example is harder than others."
    )
  incomplete = parsed_attribute(kept, INCOMPLETE)
  if incomplete:
    yield (
      f"{', '.join(incomplete)}: measured of fewer runs than there are now, and "
      "left out: vs.measure adds the others."
    )


def _mixed_programs(kept: xr.Dataset) -> Iterator[str]:
  # Whoever forced this knows it; the reader of the page may be another.
  if kept.attrs.get("mixed"):
    yield (
      "Runs of different programs are in this folder (--force-mixed): they are not "
      "repeats of one experiment."
    )


def _uncertain_spread(runs: MeasuredRuns, section: Mapping[str, Any]) -> Iterator[str]:
  """Yield how well the runs know their standard deviation."""
  count = runs.runs
  sd = statistic_by_key(section, "sd")
  variance = section["statistics"].get("distribution_variance")
  if count == 1:
    yield "One run says nothing about variance between runs: train more with --runs."
  elif count < FEW_RUNS:
    known = "may be anything"
    if sd["se"]:
      known = f"is known to about ±{100 * sd['se'] / sd['value']:.0f} %"
    yield f"With only {count} runs the standard deviation {known}."
  has_interval = variance and variance["low"] is not None
  if has_interval and variance["low"] <= 0 <= variance["high"]:
    yield "The real variance may be 0: its interval holds it."
  # Runs that are all equal have no kurtosis.
  if not sd["value"] or count >= RUNS_FOR_LONG_TAILS:
    return
  kurtosis = scipy.stats.kurtosis(centred(runs.values))
  if kurtosis > LONG_TAIL:
    yield (
      f"Some runs are far from the rest (excess kurtosis {kurtosis:.1f}): below "
      f"{RUNS_FOR_LONG_TAILS} runs the 95 % intervals of variances then hold in about "
      "92 %."
    )


def _what_differs(runs: MeasuredRuns, section: Mapping[str, Any]) -> Iterator[str]:
  """Yield what differs between the runs besides their seeds, and which share these."""
  kept = runs.kept
  if not runs.pooled:
    yield (
      "Label maps differ between runs, so votes cannot be pooled and the statistics over "
      "predictions are left out; the spread of accuracy includes differences between the "
      "tasks."
    )
  # Whoever pools values on purpose may still send the page to another.
  swept = groups.swept_columns(kept)
  if swept:
    varied = " and ".join(swept)
    yield (
      f"The spread between runs includes the effect of {varied}, varied between them."
    )
  if runs.share_nothing:
    return
  if runs.design is None:
    yield (
      "Runs share seeds, and too few of these have all runs: no error of their mean is "
      "known."
    )
    return
  yield (
    f"{describe_units(runs.design)} Other statistics have no interval, as theirs take runs "
    "as independent."
  )


def _in_short(runs: MeasuredRuns, section: Mapping[str, Any]) -> str:
  def show_statistic(key):
    statistic = statistic_by_key(section, key)
    return show(statistic["value"], statistic["se"], statistic["unit"])

  mean, noun = show_statistic("mean"), runs.of.name
  variance = section["statistics"].get("distribution_variance")
  # Of few examples the estimate may be undefined.
  unknown = variance and variance["value"] is None and not runs.seen
  if statistic_by_key(section, "sd")["value"] is None or unknown:
    return (
      f"{run_count(runs.runs)}: {noun} is {mean}; its variance cannot be estimated."
    )
  if runs.role == "vote":
    return statistic_by_key(section, "mean")["reading"]
  lead = f"{capitalized(noun)} is {mean} on average"
  if variance:
    return f"{_share_in_words(runs, section)} {lead}."
  lead += f", with a standard deviation of {show_statistic('sd')} between runs"
  if runs.examples is None:
    middle = show_statistic("iqm")
    return f"{lead}; the middle half of the runs has {middle} on average."
  return f"{lead}, each on the examples that it was asked for."


def _share_in_words(runs: MeasuredRuns, section: Mapping[str, Any]) -> str:
  """Say how much of the variance between runs is noise of the test set, and what would
  remain without it.
  """
  share = statistic_by_key(section, "noise_share")
  between = f"these {run_count(runs.runs)}"
  if share["value"] is None:
    return f"All of {between} have the same {runs.of.name}."
  interval = " (no interval from these)"
  if share["low"] is not None:
    interval = f" [{100 * share['low']:.0f}, {100 * share['high']:.0f}]"
  lead = (
    f"Of the variance between {between}, {100 * share['value']:.0f} %{interval} is noise "
    "of the test set"
  )
  # Memorised examples say nothing of new ones.
  if runs.seen:
    return f"{lead}; runs were trained on some of these examples."
  real = statistic_by_key(section, "distribution_sd")
  if real["value"] is None:
    return f"{lead}: beyond it, no difference between runs can be seen."
  sd = show_in_points(statistic_by_key(section, "sd"))
  return (
    f"{lead}: on endlessly many examples the sd would be {show_in_points(real)} instead "
    f"of {sd}."
  )


def show_in_points(statistic: Mapping[str, Any]) -> str:
  """Return a standard deviation or a difference: that of percentages is in points."""
  shown = show(statistic["value"], statistic["se"], statistic["unit"])
  return shown.replace(" %", " points")
