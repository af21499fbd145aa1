"""Numbers with their intervals."""

import math
from typing import NamedTuple

import scipy.stats

ERRS = 0.05  # the probability that an interval misses


class Estimate(NamedTuple):
  """A number with its 95 % interval.

  Args:
    value: NaN if there is none.
    low: the interval's lower end.
    high: its upper end.
    unit: "%" prints a fraction as per cent.
  """

  value: float
  low: float
  high: float
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
  return Estimate(value, value - reach, value + reach, unit)


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
  return Estimate(value, value / factor, value * factor, unit)


def difference_of(a: Estimate, b: Estimate) -> Estimate:
  """Return a - b of two independent estimates, from the ends of their intervals
  (Zou and Donner 2008).
  """
  value = a.value - b.value
  # The difference is low where a is low, or b high.
  down = math.hypot(a.value - a.low, b.high - b.value)
  up = math.hypot(a.high - a.value, b.value - b.low)
  return Estimate(value, value - down, value + up, a.unit)


def ratio_of(a: Estimate, b: Estimate) -> Estimate:
  """Return a/b of two independent positive estimates, as `difference_of` their
  logarithms.
  """
  if not min(a.low, b.low) > 0:
    # Nothing bounds a ratio whose parts may be 0.
    value = a.value / b.value if b.value else math.nan
    return Estimate(value, 0.0, math.inf)
  logs = difference_of(_log_of(a), _log_of(b))
  value, low, high = math.exp(logs.value), math.exp(logs.low), math.exp(logs.high)
  return Estimate(value, low, high)


def _log_of(x: Estimate) -> Estimate:
  return x._replace(value=math.log(x.value), low=math.log(x.low), high=math.log(x.high))


def upper_quantile(p: float, freedom: float) -> float:
  """Return where the upper tail of Student's t, or of the normal law, has probability p."""
  if math.isinf(freedom):
    return float(scipy.stats.norm.isf(p))
  return float(scipy.stats.t.isf(p, freedom))
