"""What papers state, and what runs say of it: claims as data, estimates, outcomes.

A claim allows its statistic a range. An estimate has an interval. The `Outcome` says how
the two lie, by a rule that is the same for both sides. Intervals hold together: those of
the `count` lines of a page each have the level 1 - 0.05 / count, so that all of them hold
in 95 % of studies. The interval that is judged is the one that is printed.

`python -m experiments.calibration` tries each claim on simulated campaigns in which it is
false, and in which it is true.
"""

import enum
import math
from typing import NamedTuple

import scipy.stats

# A value that a paper prints, a fraction or words, and its place, with the version if
# versions differ.
Printed = tuple[float | str, str]
ERRS = 0.05  # the probability that any interval of a page misses
# From a number to a scale on which its estimates are about normal, and back.
SCALES = {
  "": (float, float),
  "log": (math.log, math.exp),
  "atanh": (math.atanh, math.tanh),
}


class Outcome(enum.StrEnum):
  """What became of a claim: pages print these words."""

  REPRODUCED = "reproduced"
  """the interval lies within what the claim allows"""

  OTHER_SIZE = "same direction, other size"
  """it lies outside, on the paper's side of the null"""

  OPPOSITE = "opposite"
  """it lies outside, and not on that side"""

  CANNOT_TELL = "cannot tell"
  """it crosses a limit of the claim, or the null"""

  NOT_REACHED = "—"
  """the runs are not in the regime of the claim, which is not judged"""


# Those of a claim that is judged.
JUDGED = (
  Outcome.REPRODUCED,
  Outcome.OTHER_SIZE,
  Outcome.OPPOSITE,
  Outcome.CANNOT_TELL,
)


class Claim(NamedTuple):
  """What a paper says of a statistic. Make one by `near`, `above`, `below` or `stated`.

  Args:
    statistic: what is measured.
    printed: the paper's value or words, and where.
    low: if the claim is true, the statistic is at least this.
    high: and at most this. Both ends are open if nothing is judged.
    null: beyond this, on the side of the claim, the direction is the paper's, whatever
      the size; None if the claim has no direction.
  """

  statistic: str
  printed: Printed
  low: float = -math.inf
  high: float = math.inf
  null: float | None = None


def near(
  statistic: str,
  printed: Printed,
  low: float,
  high: float,
  null: float | None = None,
) -> Claim:
  """Return the claim that a statistic has the paper's value, within a margin."""
  return Claim(statistic, printed, low, high, null)


def above(statistic: str, printed: Printed, null: float = 0.0) -> Claim:
  """Return the claim that a statistic exceeds its null."""
  return Claim(statistic, printed, low=null)


def below(statistic: str, printed: Printed, null: float = 0.0) -> Claim:
  """Return the claim that a statistic is less than its null."""
  return Claim(statistic, printed, high=null)


def stated(statistic: str, printed: Printed) -> Claim:
  """Return what a paper says of a statistic, which is not judged: arithmetic makes it
  true, or the runs made here could hardly show it.
  """
  return Claim(statistic, printed)


class Estimate(NamedTuple):
  """A number with its 95 % interval.

  Args:
    value: NaN if there is none.
    low: the interval's lower end.
    high: its upper end.
    scale: on which it is about normal: a name of `SCALES`.
    freedom: Student's degrees of freedom, on that scale.
    unit: "%" prints a fraction as per cent.
  """

  value: float
  low: float
  high: float
  scale: str = ""
  freedom: float = math.inf
  unit: str = ""

  def __str__(self) -> str:
    ends = self.value, self.low, self.high
    if self.unit == "%":
      return format_interval(*ends, 100, " %")
    return format_interval(*ends, 1, self.unit)


def format_interval(
  value: float,
  low: float,
  high: float,
  scale: float = 1.0,
  unit: str = "",
) -> str:
  """Return a value and its interval, to two digits of half the interval's width."""
  if not math.isfinite(value):
    return "—"
  half = scale * (high - low) / 2
  digits = 2
  if 0 < half < math.inf:
    digits = 1 - math.floor(math.log10(half))
    digits = min(max(digits, 0), 9)

  def text(x: float) -> str:
    return f"{scale * x:z,.{digits}f}"

  return f"{text(value)} [{text(low)}, {text(high)}]{unit}"


def student_estimate(
  value: float,
  se: float,
  freedom: float = math.inf,
  unit: str = "",
) -> Estimate:
  """Return a number with its interval by Student's t."""
  reach = upper_quantile(ERRS / 2, freedom) * se
  return Estimate(value, value - reach, value + reach, "", freedom, unit)


def positive_estimate(
  value: float,
  se: float,
  freedom: float = math.inf,
  unit: str = "",
) -> Estimate:
  """Return a positive number with the interval that is Student's on the log scale."""
  factor = math.nan
  if value > 0:
    # By the delta method: the logarithm has the standard error se / value.
    factor = math.exp(upper_quantile(ERRS / 2, freedom) * se / value)
  return Estimate(value, value / factor, value * factor, "log", freedom, unit)


def difference_of(a: Estimate, b: Estimate) -> Estimate:
  """Return a - b of two independent estimates, from the ends of their intervals
  (Zou and Donner 2008).
  """
  value = a.value - b.value
  # The difference is low where a is low, or b high.
  down = math.hypot(a.value - a.low, b.high - b.value)
  up = math.hypot(a.high - a.value, b.value - b.low)
  freedom = min(a.freedom, b.freedom)
  return Estimate(value, value - down, value + up, "", freedom, a.unit)


def ratio_of(a: Estimate, b: Estimate) -> Estimate:
  """Return a/b of two independent positive estimates, as `difference_of` their
  logarithms.
  """
  if not min(a.low, b.low) > 0:
    # Nothing bounds a ratio whose parts may be 0.
    value = a.value / b.value if b.value else math.nan
    return Estimate(value, 0.0, math.inf, "log")
  logs = difference_of(_log_of(a), _log_of(b))
  value, low, high = math.exp(logs.value), math.exp(logs.low), math.exp(logs.high)
  return Estimate(value, low, high, "log", logs.freedom)


def _log_of(x: Estimate) -> Estimate:
  return x._replace(value=math.log(x.value), low=math.log(x.low), high=math.log(x.high))


def upper_quantile(p: float, freedom: float) -> float:
  """Return where the upper tail of Student's t, or of the normal law, has probability p."""
  if math.isinf(freedom):
    return float(scipy.stats.norm.isf(p))
  return float(scipy.stats.t.isf(p, freedom))


def widen(estimate: Estimate, count: int) -> Estimate:
  """Return an estimate with the interval that holds together with those of `count` - 1
  others: it reaches further by the same factor on both sides, on its scale.
  """
  # Bonferroni's: each of the intervals may err in a part of all cases.
  alone = upper_quantile(ERRS / 2, estimate.freedom)
  together = upper_quantile(ERRS / (2 * max(count, 1)), estimate.freedom)
  factor = together / alone
  low = _move_away(estimate.low, estimate, factor)
  high = _move_away(estimate.high, estimate, factor)
  return estimate._replace(low=low, high=high)


def _move_away(end: float, estimate: Estimate, factor: float) -> float:
  """Return an end of an estimate's interval, moved away from its value by a factor."""
  to_scale, back = SCALES[estimate.scale]
  try:
    value = to_scale(estimate.value)
    reach = factor * (to_scale(end) - value)
    return back(value + reach)
  except (ValueError, OverflowError):  # an open end, or log 0
    return end


def outcome_of(claim: Claim, estimate: Estimate) -> Outcome:
  """Return what an estimate, with its interval as it is, says of a claim."""
  if _lies_within(claim, estimate):
    return Outcome.REPRODUCED
  if not _lies_outside(claim, estimate):
    return Outcome.CANNOT_TELL
  if claim.null is None:
    # Without a direction, whatever is outside contradicts the paper.
    return Outcome.OPPOSITE
  if _is_beyond_null(claim, estimate):
    return Outcome.OTHER_SIZE
  if _is_short_of_null(claim, estimate):
    return Outcome.OPPOSITE
  return Outcome.CANNOT_TELL


# An estimate of NaN has an interval of NaN: each of these is then False.


def _lies_within(claim: Claim, estimate: Estimate) -> bool:
  """Return whether a claim allows all of an interval."""
  return claim.low <= estimate.low and estimate.high <= claim.high


def _lies_outside(claim: Claim, estimate: Estimate) -> bool:
  """Return whether a claim allows nothing of an interval."""
  return estimate.high < claim.low or estimate.low > claim.high


def _is_beyond_null(claim: Claim, estimate: Estimate) -> bool:
  """Return whether an interval lies on the paper's side of a claim's null."""
  if _falls(claim):
    return estimate.high < claim.null
  return estimate.low > claim.null


def _is_short_of_null(claim: Claim, estimate: Estimate) -> bool:
  """Return whether an interval lies on the other side of a claim's null."""
  if _falls(claim):
    return estimate.low > claim.null
  return estimate.high < claim.null


def _falls(claim: Claim) -> bool:
  """Return whether the paper's side is below the null."""
  return claim.null > claim.low
