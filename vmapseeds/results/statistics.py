"""The table of statistics: what is computed of the runs of an output of each role, and
how it reads. Reports, comparisons, `--until` and the documentation read it.

To add a statistic, write a function of runs in `measurements`, and a row that names it
in the list below of the outputs that have it. `roles` has the roles.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from vmapseeds.results import measurements
from vmapseeds.results.formatting import finite_or_none, run_count, show, show_interval
from vmapseeds.results.measured_runs import MeasuredRuns
from vmapseeds.results.measurements import Measurement, measure_sd_of_values
from vmapseeds.results.roles import ROLES, Role

# In the order of the tables.
GROUPS = {
  **{role.noun: role.heading for role in ROLES.values()},
  "quantiles": "Quantiles of the runs",
  "variance": "Variance between runs",
  "halves": "One half of the examples against the other",
  "disagreement": "Disagreement and calibration",
  "pairs": "Examples that go wrong together",
}
# Units of statistics that depend on the output's: its own, and its square.
UNIT = "unit"
SQUARED = "unit²"


class Requirement(NamedTuple):
  """What runs must have for a statistic, and what is said if they have not."""

  met: Callable[[MeasuredRuns], bool]
  otherwise: str


COMMON_LABELS = Requirement(
  lambda runs: runs.pooled, "these runs have labels of their own"
)
SAME_EXAMPLES = Requirement(
  lambda runs: runs.asked is None, "runs were asked for different examples"
)
COMMON_LABELS_AND_EXAMPLES = Requirement(
  lambda runs: runs.pooled and runs.asked is None,
  "these runs have labels of their own, or were asked for different examples",
)
GROUPS_OF_EXAMPLES = Requirement(
  measurements.have_groups, "examples have no groups that folds keep together"
)
COUNTED_PAIRS = Requirement(
  lambda runs: runs.paired is not None, "pairs were not counted"
)
PROBABILITIES = Requirement(
  measurements.have_probabilities,
  "logits of all classes were not kept, or are too many to read",
)


@dataclass(frozen=True, kw_only=True)
class Statistic:
  """A row of the table.

  Attributes:
    name: as in JSON and `--until`.
    group: key of `GROUPS`.
    unit: fraction; variance: squared fraction; correlation; number; count; p; or UNIT
      and SQUARED for the output's own.
    label: what tables call it.
    reading: what it says, with {} for its value, {runs} for their number, and names of
      `Measurement.also` for further numbers.
    definition: what it is, and its source.
    estimate: takes the runs that `measure_runs` returns.
    over: what the uncertainty is about: other "runs", or other "examples".
    needs: what runs must have.
    key: what it is called in every role, such as "mean" of `mean_loss`; empty where that
      is `name`.
    heading: for the columns of groups side by side; empty for a statistic that is not
      among the headline numbers. Nothing is looked up by it.
    recorded: numbers of the reading that JSON has too.
  """

  name: str
  group: str
  unit: str = UNIT
  label: str
  reading: str
  definition: str
  estimate: Callable[[MeasuredRuns], Measurement]
  over: str | None = None
  needs: Requirement | None = None
  key: str = ""
  heading: str = ""
  recorded: tuple[str, ...] = ()


def rows_for_numbers_of_runs(noun: str, suffix: str, group: str) -> list[Statistic]:
  """Return the statistics of any number of a run: its accuracy, mean loss or score.

  Args:
    noun: what the number is.
    suffix: end of the statistics' names.
    group: key of `GROUPS`.
  """
  extreme = (
    "It moves as more runs are drawn. No interval: the run was chosen by this number."
  )
  return [
    Statistic(
      name=f"mean{suffix}",
      key="mean",
      group=group,
      label=f"mean {noun}",
      reading=f"The {noun} of a run is {{}} on average.",
      definition=(
        f"Mean over runs of the {noun}; error and interval: over what is drawn anew, by "
        "Student's t where runs share nothing."
      ),
      estimate=measurements.measure_mean,
      over="runs",
      heading="mean",
    ),
    Statistic(
      name=f"sd{suffix}",
      key="sd",
      group=group,
      label=f"standard deviation of {noun}",
      reading=f"Runs scatter about their mean {noun} by {{}}.",
      definition=(
        f"Standard deviation over runs of the {noun}, ddof = 1 (Jordan 2024, section "
        "3.3); error and interval: jackknife of the variance over runs, which need not "
        "be normal."
      ),
      estimate=lambda runs: measure_sd_of_values(runs.values, runs.largest),
      over="runs",
      heading="sd",
    ),
    Statistic(
      name=f"min{suffix}",
      group=group,
      label=f"lowest {noun}",
      reading="The lowest run has {}; part of that is luck.",
      definition=f"The run with the lowest {noun}. {extreme}",
      estimate=lambda runs: Measurement(runs.values.min()),
    ),
    Statistic(
      name=f"max{suffix}",
      group=group,
      label=f"highest {noun}",
      reading="The highest run has {}; part of that is luck.",
      definition=f"The run with the highest {noun}. {extreme}",
      estimate=lambda runs: Measurement(runs.values.max()),
    ),
    Statistic(
      name="normality",
      group=group,
      unit="p",
      label="p of normality",
      reading=(
        "Normal runs would look this far from normal or farther with probability {}."
      ),
      definition=(
        f"p-value of the Shapiro-Wilk test of the runs' {noun} (Bouthillier 2021, figure "
        "G.3)."
      ),
      estimate=measurements.measure_normality,
    ),
  ]


def rows_for_means_over_examples(noun: str, parts: str) -> list[Statistic]:
  """Return the statistics of a mean over examples.

  Args:
    noun: what the mean is: accuracy, mean loss.
    parts: what it is the mean of: errors, losses.
  """
  return [
    Statistic(
      name=f"independent_{parts}_sd",
      key="independent_sd",
      group="variance",
      label="test-set noise",
      reading=(
        f"Were the {parts} of a run independent between examples, runs would differ by a "
        "standard deviation of {}."
      ),
      definition=(
        f"√((1/n²) Σ Var_i) with Var_i the variance over runs of the {parts} on example "
        "i, unbiased in the number of runs (Jordan 2024, section 3.2 and appendix B.2); "
        "error: jackknife over runs."
      ),
      estimate=measurements.measure_independent_sd,
      needs=SAME_EXAMPLES,
      over="runs",
    ),
    Statistic(
      name="noise_share",
      group="variance",
      unit="fraction",
      label="share of test-set noise",
      reading=(
        "{} of the variance between runs is noise of the test set: so much is what "
        f"{parts} that are independent between examples would give."
      ),
      definition=(
        f"The independent-{parts} variance over the variance between runs, at most 100 % "
        "(Jordan 2024, sections 3.2 and 3.3); interval: by the jackknife of the variance "
        "over runs."
      ),
      estimate=measurements.measure_noise_share,
      needs=SAME_EXAMPLES,
      over="runs",
      heading="noise share",
    ),
    Statistic(
      name="distribution_variance",
      group="variance",
      unit=SQUARED,
      label="real variance",
      reading=(
        "This variance, {}, would remain on an infinite test set; noise can make the "
        "estimate negative."
      ),
      definition=(
        f"n/(n - 1) [variance over runs - independent-{parts} variance], signed and "
        "unbiased (Jordan 2024, equation 3; theorem 2 holds for any loss); error and "
        "interval: n/(n - 1) times those of the variance over runs, by the jackknife."
      ),
      estimate=measurements.measure_distribution_variance,
      needs=SAME_EXAMPLES,
      over="runs",
    ),
    Statistic(
      name="distribution_sd",
      group="variance",
      label="real sd",
      reading="On an infinite test set runs would differ by a standard deviation of {}.",
      definition=(
        "Square root of the distribution-wise variance where that is not negative "
        "(Jordan 2024, equation 3); its interval: the roots of that one's, from 0."
      ),
      estimate=measurements.measure_distribution_sd,
      needs=SAME_EXAMPLES,
      over="runs",
      heading="real sd",
    ),
    Statistic(
      name="runs_for_variance",
      group="variance",
      unit="count",
      label="runs for real variance ± 10 %",
      reading="About {} runs in all would give the real variance to within 10 %.",
      definition=(
        "1 + (R - 1) (1.96 SE/(0.1 σ²))², from the standard error of equation 3 (Jordan "
        "2024)."
      ),
      estimate=measurements.measure_runs_for_variance,
      needs=SAME_EXAMPLES,
    ),
    Statistic(
      name="split_correlation",
      group="halves",
      unit="correlation",
      label="correlation between halves",
      reading=(
        f"The {noun} on one half explains {{explained}} of the variance of that on the "
        "other: their correlation is {}, p-value {p_value}."
      ),
      definition=(
        f"Pearson correlation over runs of the {noun} on even and odd test examples "
        "(Jordan 2024, section 3.1); two-sided p from the t test with R - 2 degrees of "
        "freedom; error and interval: jackknife over runs."
      ),
      estimate=measurements.measure_split_correlation,
      needs=SAME_EXAMPLES,
      over="runs",
      recorded=("p_value",),
    ),
  ]


STATISTICS_OF_CLASSES = [
  Statistic(
    name="ensemble_accuracy",
    group="accuracy",
    label="ensemble accuracy",
    reading="All runs voting together have {} right.",
    definition=(
      "Accuracy of the plurality vote of all runs, ties to the lowest class (Jordan "
      "2024, section 4.2); interval: Wilson's."
    ),
    estimate=measurements.measure_ensemble_accuracy,
    over="examples",
    needs=COMMON_LABELS,
    heading="ensemble",
  ),
  Statistic(
    name="accuracy_over_groups",
    group="accuracy",
    label="accuracy over groups",
    reading=(
      "Of the answers for examples that a run had not seen, {} are right; the interval is "
      "what other groups, as these {groups}, would give."
    ),
    definition=(
      "Mean over examples of the share of runs that are right; error and interval: by "
      "linearisation over groups, which are drawn anew with all of their examples (Cochran "
      "1977; Student's t). The networks are taken as they are."
    ),
    estimate=measurements.measure_accuracy_over_groups,
    over="examples",
    needs=GROUPS_OF_EXAMPLES,
  ),
  Statistic(
    name="probability_accuracy",
    group="accuracy",
    label="accuracy of mean probability",
    reading="The class of the highest mean probability over all runs is right on {}.",
    definition=(
      "Accuracy of the mean over runs of the softmax of the logits; interval: Wilson's."
    ),
    estimate=measurements.measure_probability_accuracy,
    over="examples",
    needs=PROBABILITIES,
  ),
  Statistic(
    name="ensemble_log_loss",
    group="accuracy",
    unit="number",
    label="log-loss of mean probability",
    reading="The mean probability over all runs has a log-loss of {}.",
    definition=(
      "Mean of -log p of the right class, of the mean over runs of the softmax of the "
      "logits; error and interval: Student's t over examples."
    ),
    estimate=measurements.measure_ensemble_log_loss,
    over="examples",
    needs=PROBABILITIES,
  ),
  Statistic(
    name="ensemble_brier",
    group="accuracy",
    unit="number",
    label="Brier score of mean prob.",
    reading="The mean probability over all runs has a Brier score of {}.",
    definition=(
      "Mean squared error summed over classes, of two classes that of one, of the mean "
      "over runs of the softmax of the logits; error and interval: Student's t over "
      "examples."
    ),
    estimate=measurements.measure_ensemble_brier,
    over="examples",
    needs=PROBABILITIES,
  ),
  Statistic(
    name="binomial_sd",
    group="variance",
    label="binomial sd",
    reading="With all examples equally hard, chance alone would give {}.",
    definition=(
      "√(err (1 - err)/n): all examples equally hard and errors independent (Jordan "
      "2024, figure 13)."
    ),
    estimate=measurements.measure_binomial_sd,
    needs=SAME_EXAMPLES,
    over="runs",
  ),
  Statistic(
    name="calibration_sd",
    group="variance",
    label="least sd by calibration",
    reading=(
      "If the runs' votes are calibrated, runs must differ by a standard deviation of at "
      "least {} on such test sets; of two classes, by about that."
    ),
    definition=(
      "√(err/(nk)) for k classes and a class-wise calibrated ensemble: a lower bound on "
      "average over test sets (Jordan 2024, theorem 4), of two classes the value itself "
      "(equation 6)."
    ),
    estimate=measurements.measure_calibration_sd,
    needs=SAME_EXAMPLES,
    over="runs",
  ),
  Statistic(
    name="top_quarter_gain",
    group="halves",
    label="gain of the top quarter",
    reading=(
      "Picking the best quarter of runs on half of the examples gains {} on the other "
      "half."
    ),
    definition=(
      "Mean accuracy on one half of the quarter of runs best on the other half, minus "
      "that of all runs; mean of both directions (Jordan 2024, section 3.1); error: "
      "bootstrap of the runs."
    ),
    estimate=measurements.measure_top_quarter_gain,
    needs=SAME_EXAMPLES,
    over="runs",
  ),
  Statistic(
    name="expected_disagreement",
    group="disagreement",
    label="expected disagreement",
    reading="Two runs predict different classes on {} of the test examples.",
    definition=(
      "Mean over pairs of distinct runs of the fraction of test examples they predict "
      "differently (Jiang 2022, section 2); error: jackknife over runs."
    ),
    estimate=measurements.measure_expected_disagreement,
    over="runs",
    needs=COMMON_LABELS,
    heading="disagr.",
  ),
  Statistic(
    name="gde_gap",
    group="disagreement",
    label="disagreement against error",
    reading="Disagreement, which needs no labels, misses the test error by {}.",
    definition=(
      "|mean test error - expected disagreement|, the gap of the "
      "generalization-disagreement equality (Jiang 2022, section 3); error: jackknife "
      "over runs."
    ),
    estimate=measurements.measure_gde_gap,
    over="runs",
    needs=COMMON_LABELS,
  ),
  Statistic(
    name="cace",
    group="disagreement",
    unit="number",
    label="class-aggregated calib. error",
    reading=(
      "Summed over the classes, the votes' confidences miss the truth by {} with {runs}."
    ),
    definition=(
      "CACE of the ensemble of votes in 10 bins, from 0 to the number of classes (Jiang "
      "2022, equations 56 to 58); error: bootstrap of the examples; no interval, for few "
      "examples raise it."
    ),
    estimate=measurements.measure_cace,
    over="examples",
    needs=COMMON_LABELS_AND_EXAMPLES,
  ),
  Statistic(
    name="ece",
    group="disagreement",
    unit="fraction",
    label="expected calibration error",
    reading=(
      "On average, the winning class's share of the votes misses its accuracy by {} with "
      "{runs}."
    ),
    definition=(
      "ECE of the plurality vote in 10 bins (Jiang 2022, equations 59 to 62); error: "
      "bootstrap of the examples; no interval, for few examples raise it."
    ),
    estimate=measurements.measure_ece,
    over="examples",
    needs=COMMON_LABELS_AND_EXAMPLES,
  ),
  Statistic(
    name="dependent_pairs",
    group="pairs",
    unit="count",
    label="dependent pairs of examples",
    reading=(
      "{} pairs of examples are right together more than 2 points more or less often "
      "than independent ones; noise alone would show {by_chance}."
    ),
    definition=(
      "Pairs with |P(C_i, C_j) - P(C_i) P(C_j)| > 0.02 over the runs (Jordan 2024, "
      "section 3.2); by chance: normal noise of independent pairs with these error "
      "rates. Said where at most 5 % of the pairs, or one, are expected by chance."
    ),
    estimate=measurements.measure_dependent_pairs,
    needs=COUNTED_PAIRS,
    recorded=("by_chance",),
  ),
]


STATISTICS_OF_VOTES = [
  Statistic(
    name="expected_disagreement",
    key="mean",
    group="disagreement",
    label="expected disagreement",
    reading="Two runs predict different classes on {} of the examples.",
    definition=(
      "Mean over pairs of distinct runs of the fraction of test examples they predict "
      "differently (Jiang 2022, section 2); error: jackknife over runs."
    ),
    estimate=measurements.measure_disagreement_of_votes,
    over="runs",
    heading="mean",
  ),
  Statistic(
    name="sd_disagreement",
    key="sd",
    group="disagreement",
    label="sd of a run's disagreement",
    reading="Runs differ by {} in how often they disagree with the others.",
    definition=(
      "Standard deviation over runs, ddof = 1, of a run's mean disagreement with the "
      "others. No error: these means have each other's runs in common."
    ),
    estimate=measurements.measure_spread_of_votes,
    heading="sd",
  ),
]


def quantile(
  name: str, p: float, label: str, reading: str, heading: str = ""
) -> Statistic:
  """Return the statistic of a quantile over runs."""
  return Statistic(
    name=name,
    group="quantiles",
    label=label,
    reading=reading,
    definition=(
      "Quantile over runs, interpolated; interval: order statistics, which hold whatever "
      "the law of runs, and need many runs for the outer quantiles."
    ),
    estimate=functools.partial(measurements.measure_quantile, p=p),
    over="runs",
    heading=heading,
  )


STATISTICS_OF_SCORES = [
  Statistic(
    name="iqm",
    group="score",
    label="interquartile mean",
    reading="The middle half of the runs has {} on average.",
    definition=(
      "Mean of the runs without the lowest and the highest quarter (Agarwal 2021); error "
      "and interval: bootstrap of the runs."
    ),
    estimate=measurements.measure_interquartile_mean,
    over="runs",
    heading="IQM",
  ),
  quantile("q05", 0.05, "5 % quantile", "One run in twenty is below {}."),
  quantile("q25", 0.25, "25 % quantile", "A quarter of the runs is below {}."),
  quantile("median", 0.5, "median", "Half of the runs are below {}.", heading="median"),
  quantile("q75", 0.75, "75 % quantile", "A quarter of the runs is above {}."),
  quantile("q95", 0.95, "95 % quantile", "One run in twenty is above {}."),
]


def in_order_of_groups(rows: Sequence[Statistic]) -> list[Statistic]:
  """Return rows as the tables have them; those of one group stay in their order."""
  groups = list(GROUPS)
  return sorted(rows, key=lambda row: groups.index(row.group))


def statistics_of_role(role: Role) -> list[Statistic]:
  """Return the rows of the outputs of a role."""
  rows = rows_for_numbers_of_runs(role.noun, suffix=role.suffix, group=role.noun)
  if role.parts:
    rows += rows_for_means_over_examples(role.heading.lower(), parts=role.parts)
  else:
    rows += STATISTICS_OF_SCORES
  if role.has_votes:
    rows += STATISTICS_OF_CLASSES
  return in_order_of_groups(rows)


# Role of an output -> its statistics.
STATISTICS = {name: statistics_of_role(role) for name, role in ROLES.items()}
STATISTICS["vote"] = STATISTICS_OF_VOTES


def statistics_defined_for(runs: MeasuredRuns) -> list[Statistic]:
  """Return the rows of the table that runs have what it takes for."""
  rows = STATISTICS[runs.role]
  return [row for row in rows if row.needs is None or row.needs.met(runs)]


def statistic_by_key(section: Mapping[str, Any], key: str) -> Any:
  """Return the statistic of a key among those that `describe_statistic` returned of an
  output; None if its role has no such statistic, or its runs not what it takes.

  Args:
    section: `role`, and `statistics` by name.
    key: "mean", "sd", "independent_sd", or the name of a statistic.
  """
  for row in STATISTICS[section["role"]]:
    if key in (row.key, row.name):
      return section["statistics"].get(row.name)
  return None


def describe_statistic(row: Statistic, runs: MeasuredRuns) -> dict[str, Any]:
  """Return a statistic of runs, with its uncertainty and texts, ready for JSON."""
  measurement = row.estimate(runs)
  # All but the mean take runs as independent.
  if row.over == "runs" and row.key != "mean" and not runs.share_nothing:
    measurement = measurement._replace(se=None, interval=(None, None))
  unit = unit_of(row, runs)
  value = finite_or_none(measurement.value)
  se = finite_or_none(measurement.se)
  if value is None:
    # An error of nothing would only puzzle a reader.
    se = None

  low, high = clip_interval(row, unit, measurement)
  ends = show_interval(low, high, unit)
  # An end alone is no interval.
  if not ends:
    low = high = None

  reading = read_measurement(row, measurement, unit, runs.runs)
  if ends:
    reading = f"{reading.removesuffix('.')} (95 %: {ends})."
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
    number, _ = measurement.also[name]
    description[name] = finite_or_none(number)
  return description


def clip_interval(
  row: Statistic, unit: str, measurement: Measurement
) -> tuple[float | None, float | None]:
  """Return the ends of a statistic's interval, of a mean fraction within 0 and 1."""
  low, high = map(finite_or_none, measurement.interval)
  # Student's interval may reach beyond.
  if row.key == "mean" and unit == "fraction":
    if low is not None:
      low = max(0.0, low)
    if high is not None:
      high = min(1.0, high)
  return low, high


def read_measurement(
  row: Statistic, measurement: Measurement, unit: str, runs: int
) -> str:
  """Return the sentence of a statistic that so many runs have, without its interval."""
  if finite_or_none(measurement.value) is None:
    return measurement.undefined
  numbers = {}
  for name, (number, its_unit) in measurement.also.items():
    numbers[name] = show(number, None, its_unit)
  value = show(measurement.value, None, unit)
  return row.reading.format(value, runs=run_count(runs), **numbers)


def unit_of(row: Statistic, runs: MeasuredRuns) -> str:
  """Return the unit of a statistic, as `formatting` names it."""
  unit = runs.of.unit
  if row.unit == UNIT:
    return unit
  if row.unit != SQUARED:
    return row.unit
  squared_units = {"fraction": "variance", "number": "number"}
  return squared_units.get(unit, f"{unit}²")
