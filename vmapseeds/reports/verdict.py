"""What the runs of A and B show, in sentences: first which is better, and what that is
about.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from vmapseeds import stats
from vmapseeds.results.formatting import (
  ACCURACY,
  Quantity,
  count_of,
  scale_and_sign,
  show,
  show_difference,
  show_interval,
)
from vmapseeds.results.statistics import largest_variance, standard_deviation

ALPHA = 0.05  # error rate of the first sentence, two-sided
POWER = 0.8  # of the pairs that it says are needed


class Comparison(NamedTuple):
  """What is compared, and what was found.

  Attributes:
    names: what A and B are called.
    a, b: (runs_a,) and (runs_b,), numbers of A and of B.
    found: mean A - mean B, its interval over runs and its p-value, of performances: the
      numbers, with their sign changed if lower is better.
    p_value: that p-value, by Holm's method among all comparisons.
    outperforming: P(A > B) and its exact interval.
    elsewhere: the interval of the difference over runs and examples; None if unknown.
    decision: what `stats.decide` returns of the side that leads against the other.
    gamma: P(A > B) from which that decision calls A meaningfully better.
    margin: within which A and B are called equal, in the unit of the numbers.
    comparisons: how many were made.
    matching: what pairs of runs have in common; empty if all are compared with all.
    of: what the numbers are.
    higher_is_better: whether A with higher numbers is better.
    examples: how many test examples the numbers are about; None if about none.
  """

  names: tuple[str, str]
  a: np.ndarray
  b: np.ndarray
  found: stats.Difference
  p_value: float
  outperforming: tuple[float, float, float]
  elsewhere: stats.Interval | None
  decision: stats.Decision
  gamma: float = 0.75
  margin: float | None = None
  comparisons: int = 1
  matching: str = ""
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
      return "better"
    if self.margin and max(-self.found.low, self.found.high) <= self.margin:
      return "equal"
    few = self.comparisons * self.least_p_value > ALPHA
    return "too few runs" if few else "no difference shown"

  @property
  def least_p_value(self) -> float:
    return stats.least_p_value(len(self.a), len(self.b), self.paired)

  @property
  def over_runs_and_examples(self) -> tuple[float, float] | None:
    """Return the interval for other runs on other examples, which is at least as wide
    as that on these; None if unknown.
    """
    if self.elsewhere is None:
      return None
    low, high = float(self.elsewhere.low), float(self.elsewhere.high)
    return min(low, float(self.found.low)), max(high, float(self.found.high))

  @property
  def sentence(self) -> str:
    return next(headline(self))


def compare_values(
  a: np.ndarray,
  b: np.ndarray,
  *,
  gamma: float = 0.75,
  matching: str = "",
  **about: Any,
) -> Comparison:
  """Return what runs show of A and B, from a number of each run; `about` are the other
  attributes of `Comparison`.
  """
  about = {"names": ("A", "B"), "elsewhere": None} | about
  paired, sign = bool(matching), 1 if about.get("higher_is_better", True) else -1
  ours, theirs = sign * a, sign * b
  found = stats.compare_means(ours, theirs, paired)
  p = stats.probability_of_outperforming(ours, theirs, paired=paired)
  ends = stats.probability_interval(ours, theirs, paired)
  sides = (ours, theirs) if found.difference >= 0 else (theirs, ours)
  return Comparison(
    a=a,
    b=b,
    found=found,
    p_value=float(found.p_value),
    outperforming=(float(p), float(ends.low), float(ends.high)),
    decision=stats.decide(*sides, gamma=gamma, paired=paired),
    gamma=gamma,
    matching=matching,
    **about,
  )


Known = tuple[float, float, float]  # a number and the ends of its interval


def _negative(known: Known) -> Known:
  value, low, high = known
  return -value, -high, -low


def _difference(c: Comparison) -> Known:
  return float(c.found.difference), float(c.found.low), float(c.found.high)


def _in_order(c: Comparison) -> tuple[str, str]:
  """Return the names, first that of the side that leads."""
  a, b = c.names
  return (a, b) if c.leads else (b, a)


def headline(c: Comparison) -> Iterator[str]:
  """Yield which of A and B is better, or why that cannot be said, and then what it is
  about and what it would take.
  """
  here = f" on these {c.examples} test examples" if c.examples else ""
  difference, outperforming = _difference(c), c.outperforming
  (a, b), (first, second) = c.names, _in_order(c)
  # As the numbers are: A less B.
  natural = difference if c.higher_is_better else _negative(difference)
  plain, plain_ends, sign = show_difference(natural, c.of.unit)
  if not c.leads:
    difference = _negative(difference)
    p, low, high = outperforming
    outperforming = 1 - p, 1 - high, 1 - low
  value, ends, _ = show_difference(difference, c.of.unit)
  less = f"{a} less {b} is {plain}{sign}"
  more = "more pairs are" if c.paired else "more runs of each are"
  few = c.verdict == "too few runs"
  if c.verdict == "better":
    by = f"by {value}{sign} (95 % interval {ends})"
    if not c.higher_is_better:
      by = f"its {c.of.name} is lower {by}"
    won = " to ".join(_percent(end) for end in outperforming[1:])
    ties = ", a tie as half of one" * bool(_ties(c)[0])
    yield (
      f"{first} is better than {second}{'' if c.higher_is_better else ':'} {by}{here}"
      f"{_within_margin(c)}; a run of {first} beats one of {second} in "
      f"{_percent(outperforming[0])} % of pairs{ties} ({won} %)."
    )
  elif c.verdict == "equal":
    within = amount(c.margin, c.of)
    yield f"{a} and {b} are equal within {within}{here}: {less} (95 % interval {plain_ends})."
  elif few:
    yield from _too_few(c, less)
  else:
    among = ""
    if c.comparisons > 1 and c.found.p_value <= ALPHA:
      among = (
        f" among {c.comparisons} comparisons (p = {c.p_value:.2g} by Holm's method)"
      )
    yield f"No difference shown{here}{among}: {less} (95 % interval {plain_ends})."
    most = max(map(abs, difference[1:]))
    wanted, number = _needed(c)
    text = f"A difference of up to {amount(most, c.of, 2)} is compatible"
    if number:
      tell = "tell a difference of" if c.margin else "show one of"
      text += f"; to {tell} {amount(wanted, c.of)}"
      text += " from none" * bool(c.margin)
      text += f", about {number:,} {more} needed"
    yield f"{text}."
  if not few and (both := c.over_runs_and_examples):
    yield _of_examples(c, both)


def _of_examples(c: Comparison, both: tuple[float, float]) -> str:
  """Return what other runs on other examples would give, from that interval."""
  difference = float(c.found.difference), *both
  if not (c.leads if c.verdict == "better" else c.higher_is_better):
    difference = _negative(difference)
  _, ends, sign = show_difference(difference, c.of.unit)
  where = "On other test examples of the same kind"
  if c.verdict != "better":
    return f"{where}, with other runs: {ends}{sign}."
  if difference[1] > 0:
    return f"{where}, with other runs, it is better too: by {ends}{sign}."
  return (
    f"{where} that is not shown: with other runs and other examples the interval is "
    f"{ends}{sign}."
  )


def _within_margin(c: Comparison) -> str:
  if not c.margin:
    return ""
  low, high = sorted(np.abs([c.found.low, c.found.high]))
  within = amount(c.margin, c.of)
  if high <= c.margin:
    return f", which is within the margin of {within}"
  return f", more than the margin of {within}" if low > c.margin else ""


def _too_few(c: Comparison, less: str) -> Iterator[str]:
  runs, among = min(len(c.a), len(c.b)), ""
  if c.comparisons > 1:
    among = f" in one of {c.comparisons} comparisons"
  fewest = stats.fewest_runs(c.paired, alpha=ALPHA / c.comparisons)
  unit = "pairs" if c.paired else "runs of each"
  ahead = "all pairs" if c.paired else "all runs"
  here = count_of(runs, "pair")
  if not c.paired:
    here = f"{len(c.a)} and {len(c.b)} runs"
  why = "a single run shows no spread"
  if runs > 1:
    why = (
      f"with {here}, chance alone puts {ahead} of one ahead in "
      f"{100 * c.least_p_value:.2g} % of cases"
    )
  normal = stats.mean_difference(c.a, c.b, c.paired)
  _, ends, _ = show_difference(normal, c.of.unit)
  known = f" ({ends} if runs were normal)" * bool(normal.high > normal.low)
  yield f"Too few runs to say which is better{among}: {less} here{known}, but {why}."
  yield f"At an error rate of 5 % it takes at least {fewest} {unit}."


def _needed(c: Comparison) -> tuple[float, int | None]:
  """Return a difference worth showing, and how many more pairs, or runs of each, show it
  in 80 % of cases: the margin, or about half of what is uncertain.
  """
  runs = min(len(c.a), len(c.b))
  wanted = c.margin
  if not wanted:
    half = float(c.found.high - c.found.low) / 4
    if not 0 < half < math.inf:
      return half, None
    wanted = round_difference(half, c.of)
  if c.paired:
    sd = (c.a - c.b).std(ddof=1)
  else:
    sd = math.sqrt((c.a.var(ddof=1) + c.b.var(ddof=1)) / 2)
  # To see equality within a margin takes an interval that is as narrow.
  power = (1 + POWER) / 2 if c.margin else POWER
  alpha = ALPHA / c.comparisons
  total = stats.runs_for_difference(sd, wanted, c.paired, power=power, alpha=alpha)
  more = int(total) - runs
  if more > 20:  # a number that the runs so far tell no better
    digit = 10 ** (len(str(more)) - 2)
    more = math.ceil(more / digit) * digit
  return wanted, max(1, more)


def round_difference(value: float, of: Quantity) -> float:
  """Return a difference above 0 to one digit in the unit that is shown."""
  return float(f"{of.scale * value:.0e}") / of.scale


def amount(value: float | None, of: Quantity, digits: int = 3) -> str:
  """Return a difference with its unit."""
  scale, sign = scale_and_sign(of.unit)
  return f"{scale * (value or 0):.{digits}g}{sign.replace('%', 'points')}"


def _percent(fraction: float) -> str:
  """Return a fraction in percent, never rounded to 0 or 100."""
  percent = 100 * float(fraction)
  if 0 < percent < 0.5 or 99.5 <= percent < 100:
    return "< 1" if percent < 50 else "> 99"
  return f"{percent:.0f}"


def criteria(c: Comparison) -> Iterator[str]:
  """Yield what the papers' criteria ask, and what they say of the side that leads."""
  first, second = _in_order(c)
  runs, unit = min(len(c.a), len(c.b)), "pairs" if c.paired else "runs of each"
  p = f"P({first} > {second})"
  value, low, high = (f"{float(x):.3f}" for x in c.decision[:3])
  law = "in pairs" if c.paired else "of all runs of one with all of the other"
  yield (
    f"Bouthillier et al. 2021, appendix C.6, asks how often {first} outperforms "
    f"{second}, {law}, and not by how much: {p} = {value}, bootstrap interval {low} to "
    f"{high}, against ½ and γ = {c.gamma}: {c.decision.decision}."
  )
  if bool(c.decision.significant) != (c.verdict == "better"):
    text = "That asks something else than the first sentence"
    if c.paired and c.decision.significant:
      rate = 2 * float(stats.paired_power(runs, 0.5, c.gamma))
      text += (
        f", and of two equal algorithms it calls one better in {100 * rate:.2g} % of "
        f"cases with {count_of(runs, 'pair')}"
      )
    yield f"{text}."
  if runs > 1:
    sign = 1 if c.higher_is_better else -1
    sides = (c.a, c.b) if c.leads else (c.b, c.a)
    average = stats.average_comparison(sign * sides[0], sign * sides[1])
    if average.threshold > 0:
      lead = stats.comparison.PUBLISHED * average.difference / average.threshold
      yield (
        f"The average comparison asks for a lead of 1.9952 standard deviations of a "
        f"run, however well it is known, which is as much as {p} = 0.921: {first} leads by "
        f"{lead:.2f}, which is {'enough' if average.better else 'less'}."
      )
  size = stats.paired_sample_size if c.paired else stats.noether_sample_size
  here = ""
  if c.paired and runs > 1:
    power = 100 * float(stats.paired_power(runs, c.gamma, c.gamma))
    here = f"; the {runs} here do in {power:.0f} %"
  yield (
    f"To call {p} = {c.gamma} significant by that criterion in about 95 % of cases takes "
    f"{int(size(c.gamma))} {unit} (Noether 1987){here}."
  )


def spread(c: Comparison) -> Iterator[str]:
  """Yield what else the runs say: how they vary, and what is strange about them."""
  if min(len(c.a), len(c.b)) > 1:
    of_a, of_b = sds(c)
    a, b = c.names
    yield f"Standard deviation of a run (95 % interval): {a} {of_a}, {b} {of_b}."
    ratio = stats.variance_ratio(c.a, c.b, c.paired)
    if np.isfinite(ratio.high):
      law = "jackknife of pairs" if c.paired else "jackknife"
      yield (
        f"Variance of {a} over that of {b}: {ratio.ratio:.3g}, 95 % interval "
        f"{ratio.low:.3g} to {ratio.high:.3g} ({law})."
      )
    p = {side: float(stats.normality(x).p_value) for side, x in c.sides.items()}
    if not np.isnan([*p.values()]).any():
      of_p = " and ".join(f"{show(x, None, 'p')} for {side}" for side, x in p.items())
      verdict = "no sign that runs are not normal"
      if strange := " and ".join(side for side, x in p.items() if x < 0.05):
        verdict = (
          f"the runs of {strange} are not normal, which all intervals here allow for"
        )
      yield f"Shapiro-Wilk: p {of_p}; {verdict}."
  ties, compared = _ties(c)
  if ties == compared:
    yield f"All runs compared are equal: nothing tells {' from '.join(c.names)}."
    return
  if ties > 0.1 * compared:
    yield f"{100 * ties / compared:.0f} % of the comparisons are ties, which count half."
  for side, x in c.sides.items():
    if len(x) > 1 and np.ptp(x) == 0:
      yield (
        f"All runs of {side} have the same {c.of.name}: were they given the same seeds?"
      )


def _ties(c: Comparison) -> tuple[int, int]:
  """Return how many of the comparisons are ties, and how many there are."""
  if c.paired:
    return int((c.a == c.b).sum()), len(c.a)
  ends = (np.searchsorted(np.sort(c.b), c.a, side) for side in ("right", "left"))
  return int(np.subtract(*ends).sum()), len(c.a) * len(c.b)


def sds(c: Comparison) -> Iterator[str]:
  """Yield the standard deviation of A and of B, each with its interval."""
  for values in (c.a, c.b):
    yield sd_of(values, c.of)


def sd_of(values: np.ndarray, of: Quantity) -> str:
  """Return the standard deviation between runs, with its interval."""
  sd, _, (low, high), *_ = standard_deviation(values, largest_variance(of))
  ends = show_interval(low, high, of.unit)
  return show(sd, None, of.unit) + (f" ({ends})" if ends and low != high else "")
