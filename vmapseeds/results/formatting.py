"""Numbers as text, with their units and as many digits as are known."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

SCALES = {"fraction": (100, " %"), "variance": (1e4, " %²")}
TINY = 1e-9  # smaller numbers are shown with an exponent
# Of numbers that are equal, means and deviations differ by rounding: relative to them,
# and of fractions, which are at most 1.
ROUNDING = 1e-13
ZERO = {"fraction": ROUNDING, "variance": ROUNDING**2}
WITHOUT_SUFFIX = ("number", "count", "correlation", "p")


def scale_and_suffix(unit: str) -> tuple[float, str]:
  """Return what numbers of a unit are multiplied by, and the text that follows them."""
  if unit in SCALES:
    return SCALES[unit]
  if unit in WITHOUT_SUFFIX:
    return 1, ""
  return 1, f" {unit}"


class Quantity(NamedTuple):
  """What numbers are, for axes and texts."""

  name: str = "test accuracy"
  unit: str = "fraction"

  @property
  def scale(self) -> float:
    return scale_and_suffix(self.unit)[0]

  @property
  def label(self) -> str:
    """Return the label of an axis: "test accuracy (%)"."""
    _, suffix = scale_and_suffix(self.unit)
    if not suffix:
      return self.name
    return f"{self.name} ({suffix.strip()})"


ACCURACY = Quantity()


def show(value: Any, se: Any, unit: str) -> str:
  """Return a number with its standard error and unit: fractions in percent, variances
  of fractions in squared percentage points (%²).

  The error has two significant digits, and the value as many decimal places. A value
  without an error, or with an error of 0, has three significant digits and, in percent,
  at least two decimal places. What is rounding is shown as 0. None and NaN are shown as
  n/a.

  >>> show(0.97531, 0.00041, "fraction"), show(-1.2e-6, 3.4e-6, "variance"), show(None, None, "fraction")
  ('97.531 ± 0.041 %', '-0.012 ± 0.034 %²', 'n/a')
  >>> show(0.031, None, "p"), show(1e-9, None, "p"), show(102.967, None, "reward")
  ('0.031', '< 0.0001', '103 reward')
  """
  value, se = finite_or_none(value), finite_or_none(se)
  if value is None:
    return "n/a"
  scale, suffix = scale_and_suffix(unit)
  value *= scale
  if unit == "p":
    return f"{value:.2g}" if value >= 1e-4 else "< 0.0001"
  if unit == "count":
    # A count below 10 that is no whole number is an expectation.
    is_expectation = value < 10 and value != round(value)
    return f"{value:.2g}" if is_expectation else f"{value:,.0f}"
  if se and abs(scale * se) <= ROUNDING * abs(value):
    se = None
  largest = max(abs(value), abs(scale * (se or 0)))
  if largest <= scale * ZERO.get(unit, 0):
    value, se = 0.0, None
  if unit not in SCALES and 0 < largest < TINY:
    if se:
      return f"{value:.1e} ± {se:.1e}{suffix}"
    return f"{value:.2e}{suffix}"
  if se:
    places = _places(scale * se, 2)
    return f"{value:.{places}f} ± {scale * se:.{places}f}{suffix}"
  places = _places(value, 3)
  # Accuracies are told apart by hundredths of a percent.
  if unit == "fraction":
    places = max(places, 2)
  return f"{value:.{places}f}{suffix}"


def show_interval(low: Any, high: Any, unit: str) -> str:
  """Return an interval, to two digits of its width; nothing where an end is unknown.

  >>> show_interval(0.97448, 0.97614, "fraction"), show_interval(None, None, "fraction")
  ('97.45 to 97.61 %', '')
  """
  if None in map(finite_or_none, (low, high)):
    return ""
  scale, suffix = scale_and_suffix(unit)
  places = _places(scale * (high - low), 2)
  return f"{scale * low:.{places}f} to {scale * high:.{places}f}{suffix}"


def show_difference(known: Sequence[Any], unit: str) -> tuple[str, str, str]:
  """Return a difference, given with the ends of its interval; this interval, to two
  digits of its width, or to four of the difference if these are fewer; and what follows
  them.

  >>> show_difference((0.0348, 0.0307, 0.0389), "fraction")
  ('3.48', '3.07 to 3.89', ' points')
  >>> show_difference((0.03999999, 0.03999999, 0.04000001), "nats")
  ('0.04000', '0.04000 to 0.04000', ' nats')
  """
  value, low, high = known
  scale, suffix = scale_and_suffix(unit)
  has_ends = None not in map(finite_or_none, (low, high))
  if has_ends and high > low:
    width = high - low
    # Of an interval that is narrow beside the difference, more digits are rounding.
    most_places = _places(scale * max(abs(value), width), 4)
    places = min(_places(scale * width, 2), most_places)
  else:
    places = _places(scale * value, 2)
  # z: no sign before what rounds to 0
  ends = f"{scale * low:z.{places}f} to {scale * high:z.{places}f}"
  return f"{scale * value:z.{places}f}", ends, suffix.replace("%", "points")


def finite_or_none(value: Any) -> float | None:
  """Return a number for JSON: NaN, infinities and None become None."""
  if value is None or not math.isfinite(value):
    return None
  return float(value)


def show_class(number: float, names: Sequence[str] | None) -> str:
  """Return the name of a class, its number if classes have no names; -1 is none."""
  if number == -1:
    return "none"
  if names:
    return names[int(number)]
  return f"{number:.0f}"


def run_count(n: int) -> str:
  return count_of(n, "run")


def count_of(n: int, what: str) -> str:
  """Return how many things there are, as a text.

  >>> count_of(1, "run"), count_of(2000, "pair")
  ('1 run', '2,000 pairs')
  """
  if n != 1:
    what = f"{what}s"
  return f"{n:,} {what}"


def joined(names: Iterable[str], last: str = "and") -> str:
  """Return names as a sentence lists them: "a, b and c"."""
  *first, end = names
  if not first:
    return end
  return f"{', '.join(first)} {last} {end}"


def capitalized(text: str) -> str:
  return text[:1].upper() + text[1:]


def _places(value: float, digits: int) -> int:
  """Return the decimal places that show `value` with so many significant digits, at
  most 15.
  """
  # 0 has no logarithm.
  exponent = 0
  if value:
    exponent = math.floor(math.log10(abs(value)))
  # A float has no more digits to show.
  return min(15, max(0, digits - 1 - exponent))


def difference_of_labels(ours: np.ndarray, theirs: np.ndarray) -> str:
  """Return how two arrays of labels differ, as a clause after a comma."""
  if len(ours) != len(theirs):
    return f"of {len(ours)} and {len(theirs)} examples"
  if np.array_equal(np.sort(ours), np.sort(theirs)):
    return (
      "with as many labels of each class, in another order: bring the examples and "
      "predictions in one order"
    )
  return f"with other labels at {np.mean(ours != theirs):.0%} of them"
