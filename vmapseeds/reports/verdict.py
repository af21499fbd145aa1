"""What the runs of A and B show, in sentences: first which is better, and what that is
about.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from vmapseeds import stats
from vmapseeds.results.formatting import (
  ACCURACY,
  Quantity,
  count_of,
  scale_and_suffix,
  show,
  show_difference,
  show_interval,
)
from vmapseeds.results.measured_runs import largest_variance
from vmapseeds.results.measurements import measure_sd_of_values
from vmapseeds.results.units import describe_units, plural
from vmapseeds.stats.designs import least_p_value_of, paired_units

ALPHA = 0.05  # error rate of the first sentence, two-sided
POWER = 0.8  # of the pairs that it says are needed

# What `Comparison.verdict` may be.
BETTER = "better"
EQUAL = "equal"
NO_DIFFERENCE_SHOWN = "no difference shown"
TOO_FEW_RUNS = "too few runs"


# A difference between two means, and the ends of its interval.
Gap = tuple[float, float, float]


class Comparison(NamedTuple):
  """What is compared, and what was found.

  Attributes:
    names: what A and B are called.
    a, b: (units_a,) and (units_b,), numbers of A and of B: of each run, or means of what
      is drawn anew.
    designs: what is drawn anew, of A and of B.
    found: mean A - mean B, its interval over runs and its p-value, of performances: the
      numbers, with their sign changed if lower is better.
    p_value: that p-value, by Holm's method among all comparisons.
    outperforming: P(A > B) and its exact interval; NaN where units are not independent.
    elsewhere: the interval of the difference over runs and examples; None if unknown.
    margin: within which A and B are called equal, in the unit of the numbers.
    comparisons: how many were made.
    matching: what pairs of runs have in common; empty if all are compared with all.
    few_pairs: how many pairs there are that could show nothing, so that all are compared
      with all.
    networks: of one run each, the difference of these two networks over examples, and how
      many examples each alone has right, if they are right or wrong; None if unknown.
    of: what the numbers are.
    higher_is_better: whether A with higher numbers is better.
    examples: how many test examples the numbers are about; None if about none.
  """

  names: tuple[str, str]
  a: np.ndarray
  b: np.ndarray
  designs: tuple[stats.Design, stats.Design]
  found: stats.Difference
  p_value: float
  outperforming: tuple[float, float, float]
  elsewhere: stats.Estimate | None = None
  margin: float | None = None
  comparisons: int = 1
  matching: str = ""
  few_pairs: int = 0
  networks: tuple[stats.Difference, tuple[int, int] | None] | None = None
  of: Quantity = ACCURACY
  higher_is_better: bool = True
  examples: int | None = None

  @property
  def paired(self) -> bool:
    return bool(self.matching)

  @property
  def sides(self) -> dict[str, np.ndarray]:
    return dict(zip(self.names, (self.a, self.b), strict=True))

  @property
  def leads(self) -> bool:
    """Return whether A has the better mean."""
    return bool(self.found.difference >= 0)

  @property
  def verdict(self) -> str:
    """Return "better", "equal", "no difference shown" or "too few runs". Who is better
    is who leads.
    """
    if self.p_value <= ALPHA:
      return BETTER
    if self.margin and self.farthest <= self.margin:
      return EQUAL
    # Not even if all runs of one were ahead would Holm's method call it better.
    if self.comparisons * self.smallest_possible_p_value > ALPHA:
      return TOO_FEW_RUNS
    return NO_DIFFERENCE_SHOWN

  @property
  def farthest(self) -> float:
    """Return the largest difference, of either sign, that the interval holds."""
    return float(max(abs(self.found.low), abs(self.found.high)))

  @property
  def smallest_possible_p_value(self) -> float:
    return least_p_value_of(*self.designs, self.paired)

  @property
  def exchangeable(self) -> bool:
    """Return whether the units of either side are independent draws of one kind."""
    return all(design.exchangeable for design in self.designs)

  @property
  def unit(self) -> str:
    """Return what is drawn anew: "run", or such as "seed" where runs share seeds."""
    design = self.designs[0]
    if design.independent_runs or design.crossed:
      return "run"
    return design.drawn[0]

  @property
  def over_runs_and_examples(self) -> tuple[float, float] | None:
    """Return the interval for other runs on other examples, which is at least as wide
    as that on these; None if unknown.
    """
    if self.elsewhere is None:
      return None
    # Its estimate of a variance may fall below that over runs alone.
    low = min(float(self.elsewhere.low), float(self.found.low))
    high = max(float(self.elsewhere.high), float(self.found.high))
    return low, high

  @property
  def sentence(self) -> str:
    return next(headline(self))


def compare_values(
  a: stats.Design,
  b: stats.Design,
  *,
  matching: str = "",
  higher_is_better: bool = True,
  **attributes: Any,
) -> Comparison:
  """Return what runs show of A and B; `attributes` are the other ones of `Comparison`. If
  there is a `matching`, units of both have the same labels.
  """
  paired = bool(matching)
  if paired:
    a, b = paired_units(a, b) or (a, b)
  of_a = dataclasses.replace(a, values=as_performances(a.values, higher_is_better))
  of_b = dataclasses.replace(b, values=as_performances(b.values, higher_is_better))
  found = stats.compare_designs(of_a, of_b, paired)
  outperforming = stats.probability_of_outperforming(
    of_a.values.ravel(), of_b.values.ravel(), paired=paired
  )
  low, high = outperforming.interval
  # Units that share seeds or examples are no independent wins.
  if not (a.exchangeable and b.exchangeable):
    low = high = np.nan
  return Comparison(
    a=a.values.ravel(),
    b=b.values.ravel(),
    designs=(a, b),
    found=found,
    p_value=float(found.p_value),
    outperforming=(float(outperforming), float(low), float(high)),
    matching=matching,
    higher_is_better=higher_is_better,
    **attributes,
  )


def as_performances(values: np.ndarray, higher_is_better: bool) -> np.ndarray:
  """Return numbers of which the larger is the better, as the statistics take them."""
  if higher_is_better:
    return values
  return -values


def turned(value: Any, low: Any, high: Any) -> Gap:
  """Return a difference the other way round: B - A of A - B."""
  # From 0, as there is no -0 in a text.
  return 0 - float(value), 0 - float(high), 0 - float(low)


def gap(c: Comparison, *, of_b: bool, ends: tuple[float, float] | None = None) -> Gap:
  """Return by how much A is better than B, or B than A, with the ends of the interval over
  runs, or with other `ends`, which are of A - B.

  Texts, tables and figures show the improvement by B, or by the side that leads. Of the
  numbers as they are, B - A is `of_b=c.higher_is_better`.
  """
  value = float(c.found.difference)
  low, high = map(float, ends or (c.found.low, c.found.high))
  if of_b:
    return turned(value, low, high)
  return value, low, high


def names_by_lead(c: Comparison) -> tuple[str, str]:
  """Return the names, first that of the side that leads."""
  a, b = c.names
  if c.leads:
    return a, b
  return b, a


# Sentences.


def headline(c: Comparison) -> Iterator[str]:
  """Yield which of A and B is better, or why that cannot be said, and then what it is
  about and what it would take.
  """
  if c.verdict == TOO_FEW_RUNS:
    yield from _too_few(c)
    return
  if c.verdict == BETTER:
    yield _better(c)
  elif c.verdict == EQUAL:
    yield _equal(c)
  else:
    yield from _no_difference(c)
  if c.few_pairs:
    yield _why_unpaired(c)
  # Runs of many seeds know nothing of other examples.
  if c.over_runs_and_examples:
    yield _of_examples(c, c.over_runs_and_examples)


def what_is_drawn(c: Comparison) -> list[str]:
  """Return what is drawn anew, where that is not runs: of both sides if they differ."""
  found = [describe_units(design) for design in c.designs]
  if found[0] == found[1]:
    return found[:1] if found[0] else []
  return [f"{name}: {text}" for name, text in zip(c.names, found, strict=True) if text]


def _why_unpaired(c: Comparison) -> str:
  fewest = stats.runs_for_significance(alpha=ALPHA)
  return (
    f"All {plural(c.unit)} of one are compared with all of the other: "
    f"{count_of(c.few_pairs, 'pair')} of the same seeds could show nothing, since it takes "
    f"at least {fewest}."
  )


def _on_examples(c: Comparison) -> str:
  if not c.examples:
    return ""
  return f" on these {c.examples} test examples"


def _b_minus_a(c: Comparison) -> tuple[str, str]:
  """Return by how much the numbers of B are above those of A, and the interval of that."""
  a, b = c.names
  value, ends, unit = show_difference(gap(c, of_b=c.higher_is_better), c.of.unit)
  return f"{b} minus {a} is {value}{unit}", f"95 % interval {ends}"


def _is_better(c: Comparison, first: str, second: str, by: str) -> str:
  if c.higher_is_better:
    return f"{first} is better than {second} by {by}"
  return f"{first} is better than {second}: its {c.of.name} is lower by {by}"


def _better(c: Comparison) -> str:
  """Return which side is better, by how much, and how often its run beats the other's."""
  first, second = names_by_lead(c)
  value, ends, unit = show_difference(gap(c, of_b=not c.leads), c.of.unit)

  # P(A > B) is of A against B; the sentence is about who leads.
  p, low, high = c.outperforming
  if not c.leads:
    p, low, high = 1 - p, 1 - high, 1 - low
  how_often = f"{_percent(p)} % of pairs"
  ties, _ = _count_ties(c)
  if ties:
    how_often += ", a tie as half of one"
  if c.exchangeable and math.isfinite(low):
    how_often += f" ({_percent(low)} to {_percent(high)} %)"
  return (
    f"{_is_better(c, first, second, f'{value}{unit}')} (95 % interval {ends})"
    f"{_on_examples(c)}{_within_margin(c)}; a {c.unit} of {first} beats one of {second} in "
    f"{how_often}."
  )


def _equal(c: Comparison) -> str:
  """Return that the difference is within the margin."""
  a, b = c.names
  within = amount(c.margin, c.of)
  difference, interval = _b_minus_a(c)
  return f"{a} and {b} are equal within {within}{_on_examples(c)}: {difference} ({interval})."


def _no_difference(c: Comparison) -> Iterator[str]:
  """Yield that no difference is shown, and what it would take."""
  among = ""
  # It would be called better if it were the only comparison.
  if c.comparisons > 1 and c.found.p_value <= ALPHA:
    among = f" among {c.comparisons} comparisons (p = {c.p_value:.2g} by Holm's method)"
  difference, interval = _b_minus_a(c)
  yield f"No difference shown{_on_examples(c)}{among}: {difference} ({interval})."

  largest = amount(c.farthest, c.of, 2)
  text = f"A difference of up to {largest} is compatible"
  wanted, number = _needed(c)
  if number:
    purpose = f"to show one of {amount(wanted, c.of)}"
    if c.margin:
      purpose = f"to tell a difference of {amount(wanted, c.of)} from none"
    unit = "pairs" if c.paired else f"{plural(c.unit)} of each"
    text += f"; {purpose}, about {number:,} more {unit} are needed"
  yield f"{text}."


def _of_examples(c: Comparison, ends: tuple[float, float]) -> str:
  """Return what other runs on other examples would give, from the ends of that interval."""
  # From the point of view of the sentence before it.
  is_better = c.verdict == BETTER
  of_b = c.higher_is_better
  if is_better:
    of_b = not c.leads
  difference = gap(c, of_b=of_b, ends=ends)
  _, interval, unit = show_difference(difference, c.of.unit)

  where = "On other test examples of the same kind"
  # Nothing was called better before, so nothing is better "too".
  if not is_better:
    return f"{where}, with other runs: {interval}{unit}."
  _, low, _ = difference
  if low > 0:
    return f"{where}, with other runs, it is better too: by {interval}{unit}."
  return (
    f"{where} that is not shown: with other runs and other examples the interval is "
    f"{interval}{unit}."
  )


def _within_margin(c: Comparison) -> str:
  if not c.margin:
    return ""
  within = amount(c.margin, c.of)
  if c.farthest <= c.margin:
    return f", which is within the margin of {within}"
  # Of a side that is better, 0 is outside the interval.
  if min(abs(c.found.low), abs(c.found.high)) > c.margin:
    return f", more than the margin of {within}"
  return ""


def _too_few(c: Comparison) -> Iterator[str]:
  """Yield that no result could be significant, and from how many runs one could."""
  among = ""
  if c.comparisons > 1:
    among = f" in one of {c.comparisons} comparisons"
  difference, _ = _b_minus_a(c)
  if not c.exchangeable:
    yield (
      f"Too few units to say which is better{among}: {difference} here, and no interval is "
      "known."
    )
    return
  units = plural(c.unit)
  # An interval that asks for normal runs is better than none, if it is called that.
  known = ""
  normal = stats.mean_difference(c.a, c.b, c.paired)
  if normal.high > normal.low:
    of_b = turned(normal, normal.low, normal.high)
    _, ends, _ = show_difference(of_b, c.of.unit)
    known = f" ({ends} if {units} were normal)"
  yield (
    f"Too few runs to say which is better{among}: {difference} here{known}, but "
    f"{_why_too_few(c)}."
  )
  # Holm's method tests the least of several p-values at this level.
  alpha = ALPHA / c.comparisons
  of_each = stats.runs_for_significance(False, alpha=alpha)
  enough = f"{of_each} {units} of each"
  if c.paired:
    pairs = stats.runs_for_significance(alpha=alpha)
    enough = f"{pairs} pairs, or {enough} without pairs"
  yield f"At an error rate of 5 % it takes at least {enough}."
  if c.networks:
    yield _of_networks(c, *c.networks)


def _why_too_few(c: Comparison) -> str:
  units = plural(c.unit)
  if min(len(c.a), len(c.b)) == 1:
    return f"a single {c.unit} shows no spread"
  here, ahead = f"{len(c.a)} and {len(c.b)} {units}", f"all {units}"
  if c.paired:
    here, ahead = count_of(len(c.a), "pair"), "all pairs"
  return (
    f"with {here}, chance alone puts {ahead} of one ahead in "
    f"{100 * c.smallest_possible_p_value:.2g} % of cases"
  )


def _of_networks(
  c: Comparison, found: stats.Difference, alone: tuple[int, int] | None
) -> str:
  """Return which of two networks is better on examples of this kind."""
  a, b = c.names
  first, second = a, b
  difference: Any = found[:3]
  if found.difference < 0:
    first, second, difference = b, a, turned(*found[:3])
  value, ends, unit = show_difference(difference, c.of.unit)
  verdict = f"no difference is shown: {first} leads by {value}{unit}"
  if found.p_value <= ALPHA:
    verdict = _is_better(c, first, second, f"{value}{unit}")
  test = ""
  if alone:
    test = (
      f" by McNemar's exact test: {a} alone is right on {count_of(alone[0], 'example')}, "
      f"{b} alone on {alone[1]:,}"
    )
  return (
    f"Of these two networks, not of their recipes, {verdict} (95 % interval {ends} over "
    f"other examples of the same kind, p = {found.p_value:.2g}{test})."
  )


def _needed(c: Comparison) -> tuple[float, int | None]:
  """Return a difference worth showing, and how many more pairs, or runs of each, show it
  in 80 % of cases: the margin, or about half of what is uncertain.
  """
  # An interval reaches as far as its half width, and half of that is still open.
  wanted = c.margin or float(c.found.high - c.found.low) / 4
  if not 0 < wanted < math.inf or not c.exchangeable:
    return wanted, None
  power = POWER
  if c.margin:
    # To see equality within a margin takes an interval that is as narrow.
    power = (1 + POWER) / 2
  else:
    wanted = round_difference(wanted, c.of)
  if c.paired:
    sd = (c.a - c.b).std(ddof=1)
  else:
    # The two may differ in their variances: their mean is what both add to a difference.
    sd = math.sqrt((c.a.var(ddof=1) + c.b.var(ddof=1)) / 2)
  alpha = ALPHA / c.comparisons
  total = stats.runs_for_difference(sd, wanted, c.paired, power=power, alpha=alpha)
  missing = int(total) - min(len(c.a), len(c.b))
  # Two digits: the standard deviation of the runs so far tells it no better.
  if missing > 20:
    digit = 10 ** (len(str(missing)) - 2)
    missing = math.ceil(missing / digit) * digit
  return wanted, max(1, missing)


def round_difference(value: float, of: Quantity) -> float:
  """Return a difference above 0 to one digit in the unit that is shown."""
  return float(f"{of.scale * value:.0e}") / of.scale


def amount(value: float | None, of: Quantity, digits: int = 3) -> str:
  """Return a difference with its unit."""
  scale, suffix = scale_and_suffix(of.unit)
  unit = suffix.replace("%", "points")
  return f"{scale * (value or 0):.{digits}g}{unit}"


def _percent(fraction: float) -> str:
  """Return a fraction in percent, never rounded to 0 or 100."""
  percent = 100 * float(fraction)
  if 0 < percent < 0.5:
    return "< 1"
  if 99.5 <= percent < 100:
    return "> 99"
  return f"{percent:.0f}"


def describe_spread(c: Comparison) -> Iterator[str]:
  """Yield what else the runs say: how they vary, and what is strange about them."""
  a, b = c.names
  if min(len(c.a), len(c.b)) > 1 and c.exchangeable:
    sds = [f"{side} {sd_of(values, c.of)}" for side, values in c.sides.items()]
    yield f"Standard deviation of a {c.unit} (95 % interval): {', '.join(sds)}."
    ratio = stats.variance_ratio(c.a, c.b, c.paired)
    # Of runs that are all equal there is no ratio.
    if np.isfinite(ratio.high):
      law = "jackknife"
      if c.paired:
        law = "jackknife of pairs"
      yield (
        f"Variance of {a} over that of {b}: {float(ratio):.3g}, 95 % interval "
        f"{ratio.low:.3g} to {ratio.high:.3g} ({law})."
      )
    yield from _normality(c)
  ties, compared = _count_ties(c)
  # Then the same predictions were probably given twice.
  if ties == compared:
    yield f"All runs compared are equal: nothing tells {a} from {b}."
    return
  # Few test examples make many ties, and P(A > B) coarse.
  if ties > 0.1 * compared:
    yield f"{100 * ties / compared:.0f} % of the comparisons are ties, which count half."
  for side, x in c.sides.items():
    if len(x) > 1 and np.ptp(x) == 0:
      yield (
        f"All runs of {side} have the same {c.of.name}: were they given the same seeds?"
      )


def _normality(c: Comparison) -> Iterator[str]:
  p_values = {x: float(stats.normality(of_x).p_value) for x, of_x in c.sides.items()}
  # NaN where the test is not defined.
  if np.isnan(list(p_values.values())).any():
    return
  numbers = [f"{show(p, None, 'p')} for {side}" for side, p in p_values.items()]
  not_normal = [side for side, p in p_values.items() if p < 0.05]
  verdict = "no sign that runs are not normal"
  if not_normal:
    names = " and ".join(not_normal)
    verdict = f"the runs of {names} are not normal, which all intervals here allow for"
  yield f"Shapiro-Wilk: p {' and '.join(numbers)}; {verdict}."


def _count_ties(c: Comparison) -> tuple[int, int]:
  """Return how many of the comparisons are ties, and how many there are."""
  if c.paired:
    return int((c.a == c.b).sum()), len(c.a)
  # Sorted, since a table of all pairs of many runs is larger than memory.
  ordered = np.sort(c.b)
  not_above = np.searchsorted(ordered, c.a, "right")
  below = np.searchsorted(ordered, c.a, "left")
  return int((not_above - below).sum()), len(c.a) * len(c.b)


def sd_of(values: np.ndarray, of: Quantity) -> str:
  """Return the standard deviation between runs, with its interval."""
  sd, _, (low, high), *_ = measure_sd_of_values(values, largest_variance(of))
  ends = show_interval(low, high, of.unit)
  text = show(sd, None, of.unit)
  # Ends that are equal are those of runs that are all equal.
  if not ends or low == high:
    return text
  return f"{text} ({ends})"
