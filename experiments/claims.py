"""What papers claim, and what runs say of it: claims as data, estimates, verdicts.

A verdict is one of

- agrees: the 95 % interval lies within the margin that was declared around the paper's
  value;
- shown: the claim is a direction, and its null is excluded at 1 %, by Holm's method over
  all directions of a page;
- contradicted: the 95 % interval lies outside what the claim allows;
- undecided: none of these, with how many times as many runs would decide;
- identity: true by arithmetic, whatever the networks do. A check of the code, which no
  page counts.

`python -m experiments.calibration` runs each claim on simulated campaigns in which it is
false, and in which it is true.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import scipy.stats

# A value that a paper prints, a fraction or words, and its place, with the version if
# versions differ.
Printed = tuple[float | str, str]
LEVEL = 0.01  # of directions, over a page
WORDS = ("agrees", "shown", "contradicted", "undecided")
SCALES = {"": lambda x: x, "log": math.log, "atanh": math.atanh}
MOST = 10_000  # times as many runs: more is not worth a number


class Claim(NamedTuple):
  """What a paper says of a statistic. Make one by `near`, `above`, `below`, `identity`.

  Args:
    statistic: what is measured.
    printed: the paper's value or words, and where.
    low: if the claim is true, the statistic is at least this.
    high: and at most this. A direction leaves one end open, and the other is its null.
    is_identity: whether arithmetic makes it true.
  """

  statistic: str
  printed: Printed
  low: float = -math.inf
  high: float = math.inf
  is_identity: bool = False

  @property
  def is_direction(self) -> bool:
    return not self.is_identity and math.isinf(self.high - self.low)


def near(statistic: str, printed: Printed, low: float, high: float) -> Claim:
  """Return the claim that a statistic has the paper's value, within a margin."""
  return Claim(statistic, printed, low, high)


def above(statistic: str, printed: Printed, null: float = 0.0) -> Claim:
  """Return the claim that a statistic exceeds its null."""
  return Claim(statistic, printed, low=null)


def below(statistic: str, printed: Printed, null: float = 0.0) -> Claim:
  """Return the claim that a statistic is less than its null."""
  return Claim(statistic, printed, high=null)


def identity(
  statistic: str, printed: Printed, low: float = -math.inf, high: float = math.inf
) -> Claim:
  """Return what looks like a claim, and follows from arithmetic."""
  return Claim(statistic, printed, low, high, is_identity=True)


class Estimate(NamedTuple):
  """A number with its 95 % interval.

  Args:
    value: NaN if there is none.
    low: the interval's lower end.
    high: its upper end.
    scale: on which it is about normal: a name of `SCALES`.
    freedom: Student's degrees of freedom, on that scale.
    unit: "%" prints a fraction as per cent.
    p_value: of the claim's null, where an exact test gives it.
  """

  value: float
  low: float
  high: float
  scale: str = ""
  freedom: float = math.inf
  unit: str = ""
  p_value: float | None = None

  def __str__(self) -> str:
    scale, unit = (100, " %") if self.unit == "%" else (1, self.unit)
    return between(*self[:3], scale, unit)


def between(
  value: float, low: float, high: float, scale: float = 1.0, unit: str = ""
) -> str:
  """Return a value and its interval, to two digits of half the interval's width."""
  if not math.isfinite(value):
    return "—"
  half = scale * (high - low) / 2
  digits = (
    min(9, max(0, 1 - math.floor(math.log10(half)))) if 0 < half < math.inf else 2
  )
  value, low, high = (f"{scale * x:z,.{digits}f}" for x in (value, low, high))
  return f"{value} [{low}, {high}]{unit}"


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


def less(a: Estimate, b: Estimate) -> Estimate:
  """Return a - b of two independent estimates, from the ends of their intervals
  (Zou and Donner 2008).
  """
  down = math.hypot(a.value - a.low, b.high - b.value)
  up = math.hypot(a.high - a.value, b.value - b.low)
  freedom = min(a.freedom, b.freedom)
  value = a.value - b.value
  return Estimate(value, value - down, value + up, "", freedom, a.unit)


def over(a: Estimate, b: Estimate) -> Estimate:
  """Return a/b of two independent positive estimates, as `less` of their logarithms."""

  def log(x: Estimate) -> Estimate:
    return x._replace(**{k: math.log(getattr(x, k)) for k in ("value", "low", "high")})

  if not min(a.low, b.low) > 0:
    return Estimate(a.value / b.value if b.value else math.nan, 0.0, math.inf, "log")
  found = less(log(a), log(b))
  ends = (math.exp(x) for x in found[:3])
  return Estimate(*ends, "log", found.freedom)


def critical(p: float, freedom: float) -> float:
  """Return where the upper tail of Student's t, or of the normal law, has probability p."""
  return float(
    scipy.stats.norm.isf(p) if math.isinf(freedom) else scipy.stats.t.isf(p, freedom)
  )


def distance(estimate: Estimate, bound: float) -> float:
  """Return how far above a bound an estimate is, in standard errors: those of the side
  of its interval that faces the bound.
  """

  def on_scale(x: float) -> float:
    try:
      return SCALES[estimate.scale](x)
    except ValueError:  # log 0, atanh 1
      return math.copysign(math.inf, x) if estimate.scale == "atanh" else -math.inf

  value, end, bound = map(
    on_scale,
    (
      estimate.value,
      estimate.low if bound < estimate.value else estimate.high,
      bound,
    ),
  )
  if value == bound:
    return 0.0
  if value == end:
    return math.copysign(math.inf, value - bound)
  if math.isinf(end) or math.isnan(end):
    return 0.0
  return (value - bound) / abs(value - end) * critical(0.025, estimate.freedom)


def p_value(claim: Claim, estimate: Estimate) -> float:
  """Return the one-sided p-value of a direction's null."""
  if estimate.p_value is not None:
    return estimate.p_value
  if math.isnan(estimate.value):
    return 1.0
  side, null = (1, claim.low) if math.isfinite(claim.low) else (-1, claim.high)
  z = side * distance(estimate, null)
  return float(
    scipy.stats.norm.sf(z)
    if math.isinf(estimate.freedom)
    else scipy.stats.t.sf(z, estimate.freedom)
  )


class Verdict(NamedTuple):
  """A verdict's word; if undecided, how many times as many runs would decide."""

  word: str
  times: float | None = None


def judge(page: Sequence[tuple[Claim | None, Estimate | None]]) -> list[Verdict | None]:
  """Return the verdict of each claim of a page; None for a row without a claim."""
  directions = [i for i, (claim, _) in enumerate(page) if claim and claim.is_direction]
  ps = {i: p_value(*page[i]) for i in directions}
  levels, excluded = {}, True
  for rank, i in enumerate(sorted(directions, key=ps.__getitem__)):
    excluded &= ps[i] <= LEVEL / (len(directions) - rank)
    levels[i] = LEVEL / (len(directions) - rank), excluded
  return [
    claim and verdict(claim, estimate, *levels.get(i, (LEVEL, False)))
    for i, (claim, estimate) in enumerate(page)
  ]


def verdict(claim: Claim, estimate: Estimate, level: float, excluded: bool) -> Verdict:
  """Return the verdict of one claim, given whether its null is excluded, and at which
  level.
  """
  value, low, high = estimate[:3]
  if claim.is_identity:
    return Verdict("identity" if claim.low <= value <= claim.high else "violated")
  if excluded:
    return Verdict("shown")
  if high < claim.low or low > claim.high:
    return Verdict("contradicted")
  if not claim.is_direction and claim.low <= low and high <= claim.high:
    return Verdict("agrees")
  if math.isnan(value) or estimate.p_value is not None:
    return Verdict("undecided")
  ends = [abs(distance(estimate, x)) for x in claim[2:4] if math.isfinite(x)]
  inside = claim.low <= value <= claim.high
  needed = critical(level if claim.is_direction and inside else 0.025, estimate.freedom)
  return Verdict("undecided", (needed / min(ends)) ** 2 if min(ends) else math.inf)


def read(row: Mapping[str, Any]) -> tuple[Claim | None, Estimate | None]:
  """Return the claim and the estimate of a stored row, which may have none."""
  if not row["claim"]:
    return None, None
  given = {
    k: math.nan if v is None and k in ("value", "low", "high") else v
    for k, v in row["estimate"].items()
  }
  estimate = Estimate(**given | {"freedom": given["freedom"] or math.inf})
  ends = {k: row["claim"][k] for k in ("low", "high")}
  open_ends = {"low": -math.inf, "high": math.inf}
  ends = {k: open_ends[k] if x is None else x for k, x in ends.items()}
  return Claim(**row["claim"] | ends), estimate


def told(verdict: Verdict, runs: int | str) -> str:
  """Return a verdict in words."""
  if verdict.times is None:
    return "violated: the code is wrong" if verdict.word == "violated" else verdict.word
  if verdict.times > MOST:
    return f"undecided: more than {MOST:,} times as many would not decide"
  if isinstance(runs, int):
    return f"undecided: about {rounded(verdict.times * runs):,} runs would decide"
  times = max(1.1, verdict.times)
  many = f"{rounded(times):,}" if times > 10 else f"{times:.2g}"
  return f"undecided: {many} times as many would decide"


def rounded(x: float) -> int:
  """Return a number of runs, to two digits."""
  digits = max(0, math.floor(math.log10(x)) - 1)
  return math.ceil(x / 10**digits) * 10**digits


def counted(verdicts: Iterable[Verdict]) -> dict[str, int]:
  """Return how many claims of a page have each verdict; identities are no claims."""
  counts = Counter(verdict.word for verdict in verdicts)
  return {word: counts[word] for word in WORDS}
