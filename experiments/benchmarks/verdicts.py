"""How often the first sentence of `compare` is wrong, its intervals hold and it finds a
difference; and what happens with as many runs as `plan` says.

    python -m experiments.benchmarks.verdicts
    python -m experiments.benchmarks.verdicts --campaigns 200 --runs 5 8

Accuracies of runs are normal; skewed: an exponential tail of runs that are worse; or
discrete: right answers among 20 examples. Where A and B are the same, each sentence that
calls one of them better is an error. Where they differ (B has three times the spread,
or A is skewed and B normal, or B has 19 of 20 right and A 18) it is counted how often
the interval holds the true difference. Below 6 pairs, or 4 runs of each, the interval is
Student's or Welch's, which the sentence says holds if runs are normal.

Other examples: run h of A has example i wrong with probability p_i + s u_h, run h of B
with p'_i + s u'_h. Each campaign draws its examples too.

Plan: pilots of some runs of a recipe say how many runs a question takes. With as many
as the true standard deviation asks for, it is counted how often a true difference is
shown. Each pilot's interval holds that number or not.

Cost: 8 minutes on one CPU core.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Annotated

import numpy as np
from rich.console import Console
from rich.progress import track

from experiments.benchmarks.common import (
  Count,
  Flags,
  Table,
  arguments,
  machine,
  write_results,
)
from vmapseeds import stats
from vmapseeds.flags import metavar

ALPHA = 0.05
Draw = Callable[[np.random.Generator, int], np.ndarray]
# Each of mean 0 and standard deviation 1, up to the grid of the last.
LAWS: dict[str, Draw] = {
  "normal": lambda rng, n: rng.standard_normal(n),
  "skewed": lambda rng, n: 1 - rng.standard_exponential(n),
  "discrete": lambda rng, n: (rng.binomial(20, 0.9, n) - 18) / np.sqrt(1.8),
}
# A, B, and mean A - mean B.
DIFFERENT: dict[str, tuple[Draw, Draw, float]] = {
  "B has 3 times the sd": (
    LAWS["normal"],
    lambda rng, n: 3 * LAWS["normal"](rng, n),
    0,
  ),
  "A skewed, B normal": (LAWS["skewed"], LAWS["normal"], 0),
  "discrete, 18 and 19 of 20": (
    LAWS["discrete"],
    lambda rng, n: (rng.binomial(20, 0.95, n) - 18) / np.sqrt(1.8),
    -1 / np.sqrt(1.8),
  ),
}
DIFFERENCES = (0.5, 1.0, 2.0)  # in standard deviations of a run
WAYS = {"pairs": True, "unpaired": False}


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerdictFlags(Flags):
  """How many campaigns, of how many runs."""

  campaigns: Count = 400
  """campaigns of each law and number of runs"""

  runs: Annotated[tuple[int, ...], metavar("R")] = (2, 3, 5, 8, 20, 100)
  """runs of A, and of B"""


def interval(
  a: np.ndarray,
  b: np.ndarray,
  paired: bool,
) -> tuple[bool, tuple[float, float]]:
  """Whether one is called better, and the interval that is printed."""
  comparison = stats.compare_means(a, b, paired)
  ends = comparison.low, comparison.high
  if not np.isfinite(comparison.low):
    ends = stats.mean_difference(a, b, paired).interval
  return bool(comparison.p_value <= ALPHA), ends


def rates_of_verdicts(
  of_a: Draw,
  of_b: Draw,
  truth: float,
  runs: int,
  paired: bool,
  number: int,
  rng,
) -> tuple[float, float, float]:
  """How often one is called better, the interval holds the truth, and that of P(A > B)
  does, over campaigns.
  """
  better = 0
  held = 0
  won = 0
  same = of_a is of_b
  for _ in range(number):
    a = of_a(rng, runs)
    b = of_b(rng, runs)
    called, (low, high) = interval(a, b, paired)
    better += called
    held += bool(low <= truth + 1e-9 and truth - 1e-9 <= high)
    if same:
      low, high = stats.probability_of_outperforming(a, b, paired=paired).interval
      won += bool(low <= 0.5 <= high)
  return better / number, held / number, won / number


def examples_rate(runs: int, examples: int, number: int, rng) -> tuple[float, float]:
  """How often the intervals over runs and examples, and over runs alone, hold the true
  difference on all examples, where most p_i are near 0.04 and p'_i = p_i plus noise.
  """
  held = np.zeros(2)
  for _ in range(number):
    # Far enough from 0 that no rate is cut off, and p'_i is p_i on average: the true
    # difference is 0.
    p = 0.04 + 0.9 * rng.beta(0.5, 4, examples)
    sign = rng.choice([-1, 1], examples)
    room = np.minimum(p - 0.02, 0.98 - p)
    other = p + sign * 0.5 * room

    def errors(rates: np.ndarray) -> np.ndarray:
      """Errors of runs that differ by a normal deviate each."""
      uniform = rng.random((runs, examples))
      return uniform < rates + 0.004 * rng.standard_normal((runs, 1))

    a = errors(p)
    b = errors(other)
    over_runs = stats.compare_means(a.mean(1), b.mean(1))
    both = stats.compare_means_on_other_examples(a, b)
    held += [
      min(both.low, over_runs.low) <= 0 <= max(both.high, over_runs.high),
      over_runs.low <= 0 <= over_runs.high,
    ]
  return tuple(held / number)


def share_shown(runs: int, difference: float, paired: bool, law: str, number: int, rng):
  """How often a true difference, in standard deviations, is shown as such."""
  seen = 0
  for _ in range(number):
    a = LAWS[law](rng, runs)
    b = LAWS[law](rng, runs)
    result = stats.compare_means(a + difference, b, paired)
    seen += bool(result.p_value <= ALPHA and result.difference > 0)
  return seen / number


def pilots(runs: int, law: str, number: int, rng) -> tuple[float, float, float, float]:
  """How often the intervals of pilots hold the number of runs that a mean within 0.2
  sd, and a difference of half an sd, take; and the middle half of the latter estimates.
  """
  sd = 1.0
  truths = (
    float(stats.runs_for_mean(sd, 0.2)),
    float(stats.runs_for_difference(sd, 0.5, paired=False)),
  )
  held = np.zeros(2)
  estimates = []
  for _ in range(number):
    x = LAWS[law](rng, runs)
    ends = np.sqrt(stats.variance_over_runs(x).interval)
    needed_runs = (
      stats.runs_for_mean(ends, 0.2),
      stats.runs_for_difference(ends, 0.5, paired=False),
    )
    held += [
      low <= t <= high for t, (low, high) in zip(truths, needed_runs, strict=True)
    ]
    needed = stats.runs_for_difference(x.std(ddof=1), 0.5, paired=False)
    estimates.append(float(needed))
  return *(held / number), *np.quantile(estimates, (0.25, 0.75))


def format_share(x: float) -> str:
  return f"{100 * x:.1f}"


def rates_of_comparisons(
  runs: int,
  paired: bool,
  number: int,
  rng,
) -> tuple[list[str], list[str], list[str]]:
  """How often, of so many runs, equal recipes are called different, intervals hold the
  true difference, and differences are shown: a cell for each law or pair of laws.
  """
  null = [
    rates_of_verdicts(law, law, 0.0, runs, paired, number, rng) for law in LAWS.values()
  ]
  errors = [format_share(error) for error, _, _ in null]
  covers = [format_share(cover) for _, cover, _ in null]
  for laws in DIFFERENT.values():
    _, cover, _ = rates_of_verdicts(*laws, runs, paired, number, rng)
    covers.append(format_share(cover))
  covers.append(" ".join(format_share(probability) for _, _, probability in null))
  powers = []
  for difference in DIFFERENCES:
    of_laws = [
      format_share(share_shown(runs, difference, paired, law, max(1, number // 2), rng))
      for law in LAWS
    ]
    powers.append(" / ".join(of_laws))
  return errors, covers, powers


def rows_of_examples(number: int, rng) -> list[tuple[str, ...]]:
  """How often intervals hold the true difference on other examples, by numbers of runs
  and examples.
  """
  rows = []
  for runs, n in itertools.product((6, 10, 40), (100, 800)):
    both, alone = examples_rate(runs, n, number, rng)
    rows.append((str(runs), str(n), format_share(both), format_share(alone)))
  return rows


def rows_of_differences(number: int, rng) -> list[tuple[str, ...]]:
  """How often a difference is shown by as many runs as it is said to take."""
  rows = []
  for difference in (2.0, 1.5, 1.0, 0.7, 0.5):
    for way, paired in WAYS.items():
      # Of a difference of pairs, or of one run.
      sd = np.sqrt(2) if paired else 1.0
      runs = int(stats.runs_for_difference(sd, difference, paired))
      power = []
      for law in LAWS:
        share = share_shown(runs, difference, paired, law, number, rng)
        power.append(format_share(share))
      rows.append((way, f"{difference:g}", str(runs), *power))
  return rows


def rows_of_pilots(number: int, rng) -> list[tuple[str, ...]]:
  """How often the intervals of pilots hold the number of runs that a question takes."""
  rows = []
  for runs, law in itertools.product((10, 20, 30), LAWS):
    of_mean, of_difference, low, high = pilots(runs, law, number, rng)
    middle = f"{low:.0f} to {high:.0f}"
    shares = format_share(of_mean), format_share(of_difference)
    rows.append((str(runs), law, *shares, middle))
  return rows


def main(argv: Sequence[str] | None = None) -> None:
  flags, command = arguments(VerdictFlags, __doc__, "verdicts", argv)
  rng = np.random.default_rng(0)
  number = flags.campaigns
  steps = [(way, runs) for way in WAYS for runs in flags.runs]
  errors = []
  covers = []
  powers = []
  for way, runs in track(steps, "simulating", console=Console(stderr=True)):
    error, cover, power = rates_of_comparisons(runs, WAYS[way], number, rng)
    errors.append((way, str(runs), *error))
    covers.append((way, str(runs), *cover))
    powers.append((way, str(runs), *power))
  # What follows is of larger samples, and takes half as many.
  half = max(1, number // 2)
  examples = rows_of_examples(half, rng)
  taken = rows_of_differences(half, rng)
  guesses = rows_of_pilots(half, rng)
  tables = [
    Table(
      f"Per cent of {number} comparisons of equal recipes that call one better",
      ("", "runs", *LAWS),
      errors,
    ),
    Table(
      f"Per cent of {number} comparisons whose interval holds the true difference",
      ("", "runs", *LAWS, *DIFFERENT, "P(A > B)"),
      covers,
      ("P(A > B): its interval for equal recipes, normal, skewed and discrete.",),
    ),
    Table(
      "Per cent of comparisons that show a difference, normal / skewed / discrete",
      ("", "runs", *(f"{d:g} sd" for d in DIFFERENCES)),
      powers,
    ),
    Table(
      "Per cent of intervals that hold the true difference on other examples, of pairs",
      ("runs", "examples", "over runs and examples", "over runs alone"),
      examples,
    ),
    Table(
      "Runs that `plan` asks for a power of 80 %, and the power that they then have",
      ("", "difference (sd)", "runs", *LAWS),
      taken,
    ),
    Table(
      "Pilots: per cent of intervals that hold the runs needed",
      (
        "runs",
        "law",
        "mean ± 0.2 sd",
        "difference of 0.5 sd",
        "estimates of the latter (64), middle half",
      ),
      guesses,
    ),
  ]
  write_results(flags, command, machine(), tables, {t.title: t.rows for t in tables})


if __name__ == "__main__":
  main()
