"""What papers state, and what runs say of it: claims as data, estimates, results.

A result is one of

- reproduced: the interval lies within what the statement allows;
- same direction, other size: it lies outside, on the paper's side of the null;
- opposite: it lies outside, and not on that side;
- cannot tell: none of these.

The rule is the same for both sides. Intervals hold together: those of the `count` lines
of a page each have the level 1 - 0.05 / count, so that all of them hold in 95 % of
studies. The interval that is judged is the one that is printed.

`python -m experiments.calibration` tries each claim on simulated campaigns in which it is
false, and in which it is true.
"""

import math
from typing import NamedTuple

import scipy.stats

# A value that a paper prints, a fraction or words, and its place, with the version if
# versions differ.
Printed = tuple[float | str, str]
ERRS = 0.05  # the probability that any interval of a page misses
RESULTS = ("reproduced", "same direction, other size", "opposite", "cannot tell")
SCALES = {
  "": (lambda x: x, lambda x: x),
  "log": (math.log, math.exp),
  "atanh": (math.atanh, math.tanh),
}


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
  statistic: str, printed: Printed, low: float, high: float, null: float | None = None
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
      return between(*ends, 100, " %")
    return between(*ends, 1, self.unit)


def between(
  value: float, low: float, high: float, scale: float = 1.0, unit: str = ""
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


def estimated(
  value: float, se: float, freedom: float = math.inf, unit: str = ""
) -> Estimate:
  """Return a number with its interval by Student's t."""
  reach = critical(0.025, freedom) * se
  return Estimate(value, value - reach, value + reach, "", freedom, unit)


def positive(
  value: float, se: float, freedom: float = math.inf, unit: str = ""
) -> Estimate:
  """Return a positive number with the interval that is Student's on the log scale."""
  factor = math.exp(critical(0.025, freedom) * se / value) if value > 0 else math.nan
  return Estimate(value, value / factor, value * factor, "log", freedom, unit)


def difference(a: Estimate, b: Estimate) -> Estimate:
  """Return a - b of two independent estimates, from the ends of their intervals
  (Zou and Donner 2008).
  """
  down = math.hypot(a.value - a.low, b.high - b.value)
  up = math.hypot(a.high - a.value, b.value - b.low)
  freedom = min(a.freedom, b.freedom)
  value = a.value - b.value
  return Estimate(value, value - down, value + up, "", freedom, a.unit)


def ratio(a: Estimate, b: Estimate) -> Estimate:
  """Return a/b of two independent positive estimates, as `difference` of their
  logarithms.
  """

  def log(x: Estimate) -> Estimate:
    return x._replace(
      value=math.log(x.value), low=math.log(x.low), high=math.log(x.high)
    )

  if not min(a.low, b.low) > 0:
    # Nothing bounds a ratio whose parts may be 0.
    value = a.value / b.value if b.value else math.nan
    return Estimate(value, 0.0, math.inf, "log")
  logs = difference(log(a), log(b))
  return Estimate(
    math.exp(logs.value),
    math.exp(logs.low),
    math.exp(logs.high),
    "log",
    logs.freedom,
  )


def critical(p: float, freedom: float) -> float:
  """Return where the upper tail of Student's t, or of the normal law, has probability p."""
  if math.isinf(freedom):
    return float(scipy.stats.norm.isf(p))
  return float(scipy.stats.t.isf(p, freedom))


def widen(estimate: Estimate, count: int) -> Estimate:
  """Return an estimate with the interval that holds together with those of `count` - 1
  others: it reaches further by the same factor on both sides, on its scale.
  """
  to_scale, back = SCALES[estimate.scale]
  factor = critical(ERRS / (2 * max(count, 1)), estimate.freedom)
  factor /= critical(ERRS / 2, estimate.freedom)
  value = estimate.value
  ends = []
  for end in (estimate.low, estimate.high):
    try:
      reach = factor * (to_scale(end) - to_scale(value))
      ends.append(back(to_scale(value) + reach))
    except (ValueError, OverflowError):  # an open end, or log 0
      ends.append(end)
  return estimate._replace(low=ends[0], high=ends[1])


def result(claim: Claim, estimate: Estimate) -> str:
  """Return what an estimate, with its interval as it is, says of a claim: one of
  `RESULTS`.
  """
  low = estimate.low
  high = estimate.high
  if claim.low <= low and high <= claim.high:
    return "reproduced"
  outside = high < claim.low or low > claim.high
  if not outside:
    return "cannot tell"
  if claim.null is None:
    return "opposite"
  beyond = low > claim.null
  short = high < claim.null
  if claim.null > claim.low:  # the paper's side is below the null
    beyond, short = short, beyond
  if beyond:
    return "same direction, other size"
  if short:
    return "opposite"
  return "cannot tell"
