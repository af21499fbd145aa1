"""A statistic's value, and how well it is known."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from vmapseeds.stats._arrays import Array, Given, as_float64

Uncertainty = tuple[Any, Any, Any]  # standard error, low end, high end
UNKNOWN: Uncertainty = (np.nan, np.nan, np.nan)


class Estimate(np.lib.mixins.NDArrayOperatorsMixin):
  """A statistic's value, its standard error and its interval.

  `float(estimate)` is the value. NumPy's operators and functions take an estimate as
  its value too, so that `estimate**0.5` is a plain array. JSON and pandas want numbers:
  give them `float(estimate)`.

  The standard error and the interval are computed when one of them is first read, from
  the arrays that the statistic was given, which stay in memory until then. The value
  alone costs no more than itself.

  Attributes:
    value: the statistic, float64; 0-d where the statistic is one number.
    se: its standard error, of the shape of `value`; NaN where it is not known.
    low, high: the ends of its interval; NaN where they are not known.
    interval: the pair of `low` and `high`.
    level: how often such an interval covers the truth.

  >>> Estimate(0.00314, se=0.00041, low=0.0023, high=0.0039)
  0.00314 ± 0.00041 [0.00230, 0.00390]
  >>> print(Estimate(0.25, low=0.125, high=0.5) ** 0.5)
  0.5
  """

  value: Float[Array, "..."]
  level: float
  _uncertainty: Uncertainty | Callable[[], Uncertainty]

  def __init__(
    self,
    value: Given["..."],
    se: Given["..."] = np.nan,
    low: Given["..."] = np.nan,
    high: Given["..."] = np.nan,
    level: float = 0.95,
  ):
    uncertainty = as_float64(se), as_float64(low), as_float64(high)
    vars(self).update(value=as_float64(value), level=level, _uncertainty=uncertainty)

  @classmethod
  def deferred(
    cls,
    value: Given["..."],
    uncertainty: Callable[[], Uncertainty],
    level: float,
  ) -> "Estimate":
    """Return an estimate whose standard error and ends a function returns when one of
    them is first read.
    """
    estimate = cls(value, level=level)
    vars(estimate)["_uncertainty"] = uncertainty
    return estimate

  @property
  def se(self) -> Float[Array, "..."]:
    return self._computed()[0]

  @property
  def low(self) -> Float[Array, "..."]:
    return self._computed()[1]

  @property
  def high(self) -> Float[Array, "..."]:
    return self._computed()[2]

  @property
  def interval(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    return self.low, self.high

  def _computed(self) -> Uncertainty:
    uncertainty = self._uncertainty
    if callable(uncertainty):
      se, low, high = uncertainty()
      uncertainty = as_float64(se), as_float64(low), as_float64(high)
      # This also lets go of the arrays that the function holds.
      vars(self)["_uncertainty"] = uncertainty
    return uncertainty

  def __setattr__(self, name: str, value: object) -> None:
    raise AttributeError(f"{name} of an Estimate is fixed: make another Estimate")

  def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    return np.array(self.value, dtype, copy=copy)

  def __array_ufunc__(
    self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any
  ) -> Any:
    values = [x.value if isinstance(x, Estimate) else x for x in inputs]
    return getattr(ufunc, method)(*values, **options)

  # `==` compares values, as arrays do, and arrays have no hash.
  __hash__ = None  # type: ignore[assignment]

  def __float__(self) -> float:
    return float(self.value)

  def __int__(self) -> int:
    return int(self.value)

  def __bool__(self) -> bool:
    return bool(self.value)

  def __round__(self, digits: int | None = None) -> float:
    return round(float(self), digits)

  def __format__(self, form: str) -> str:
    return format(float(self), form) if form else repr(self)

  def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
    # A function need not be picklable; what it returns is.
    return Estimate, (self.value, *self._computed(), self.level)

  def __repr__(self) -> str:
    if self.value.ndim:
      return (
        f"Estimate(value={self.value!r}, se={self.se!r}, low={self.low!r}, "
        f"high={self.high!r})"
      )
    se = float(self.se)
    low = float(self.low)
    high = float(self.high)
    form = _format_of(float(self), se, low, high)
    text = f"{float(self):{form}}"
    if not math.isnan(se):
      text += f" ± {se:{form}}"
    if not (math.isnan(low) and math.isnan(high)):
      text += f" [{low:{form}}, {high:{form}}]"
    return text


def _format_of(value: float, se: float, low: float, high: float) -> str:
  """Return the format of an estimate's numbers, which shows two digits of the standard
  error, or of about what it would be.
  """
  resolution = se
  if math.isnan(se):
    resolution = (high - low) / 4
  if not (math.isfinite(resolution) and resolution > 0):
    return ".6g"
  largest = max(abs(x) for x in (value, se, low, high) if math.isfinite(x))
  last_digit = math.floor(math.log10(resolution)) - 1
  if largest < 1e-4:
    return f".{math.floor(math.log10(largest)) - last_digit}e"
  # z: no minus sign before 0.
  return f"z.{max(0, -last_digit)}f"
