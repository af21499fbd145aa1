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
from collections.abc import Callable, Sequence
from typing import Annotated

import numpy as np
from rich.console import Console
from rich.progress import track
from tyro.conf import arg

from experiments.benchmarks.common import Count, Flags, Table, arguments, machine, write
from vmapseeds import stats

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


@dataclasses.dataclass(frozen=True)
class VerdictFlags(Flags):
  """How many campaigns, of how many runs."""

  campaigns: Count = 400
  """campaigns of each law and number of runs"""

  runs: Annotated[tuple[int, ...], arg(metavar="R")] = (2, 3, 5, 8, 20, 100)
  """runs of A, and of B"""


def interval(
  a: np.ndarray, b: np.ndarray, paired: bool
) -> tuple[bool, tuple[float, float]]:
  """Whether one is called better, and the interval that is printed."""
  comparison = stats.compare_means(a, b, paired)
  ends = comparison.low, comparison.high
  if not np.isfinite(comparison.low):
    ends = stats.mean_difference(a, b, paired).interval
  return bool(comparison.p_value <= ALPHA), ends


def rates(
  of_a: Draw, of_b: Draw, truth: float, runs: int, paired: bool, number: int, rng
) -> tuple[float, float, float]:
  """How often one is called better, the interval holds the truth, and that of P(A > B)
  does, over campaigns.
  """
  better, held, won = 0, 0, 0
  same = of_a is of_b
  for _ in range(number):
    a, b = of_a(rng, runs), of_b(rng, runs)
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
    other = p + rng.choice([-1, 1], examples) * 0.5 * np.minimum(p - 0.02, 0.98 - p)

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


def shown(runs: int, difference: float, paired: bool, law: str, number: int, rng):
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
  held, estimates = np.zeros(2), []
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


def percent(x: float) -> str:
  return f"{100 * x:.1f}"


def main(argv: Sequence[str] | None = None) -> None:
  flags, command = arguments(VerdictFlags, __doc__, "verdicts", argv)
  rng, number = np.random.default_rng(0), flags.campaigns
  # The rows of the tables.
  errors: list[tuple[str, ...]] = []
  covers: list[tuple[str, ...]] = []
  powers: list[tuple[str, ...]] = []
  examples: list[tuple[str, ...]] = []
  taken: list[tuple[str, ...]] = []
  guesses: list[tuple[str, ...]] = []
  ways = {"pairs": True, "unpaired": False}
  steps = [(way, runs) for way in ways for runs in flags.runs]
  for way, runs in track(steps, "simulating", console=Console(stderr=True)):
    paired = ways[way]
    null = [rates(law, law, 0.0, runs, paired, number, rng) for law in LAWS.values()]
    errors.append((way, str(runs), *(percent(x[0]) for x in null)))
    covers.append(
      (
        way,
        str(runs),
        *(percent(x[1]) for x in null),
        *(
          percent(rates(*laws, runs, paired, number, rng)[1])
          for laws in DIFFERENT.values()
        ),
        " ".join(percent(x[2]) for x in null),
      )
    )
    powers.append(
      (
        way,
        str(runs),
        *(
          " / ".join(
            percent(shown(runs, d, paired, law, max(1, number // 2), rng))
            for law in LAWS
          )
          for d in DIFFERENCES
        ),
      )
    )
  for runs in (6, 10, 40):
    for n in (100, 800):
      both, alone = examples_rate(runs, n, max(1, number // 2), rng)
      examples.append((str(runs), str(n), percent(both), percent(alone)))
  for difference in (2.0, 1.5, 1.0, 0.7, 0.5):
    for way, paired in ways.items():
      sd = np.sqrt(2) if paired else 1.0
      runs = int(stats.runs_for_difference(sd, difference, paired))
      happened = [
        percent(shown(runs, difference, paired, law, max(1, number // 2), rng))
        for law in LAWS
      ]
      taken.append((way, f"{difference:g}", str(runs), *happened))
  for runs in (10, 20, 30):
    for law in LAWS:
      of_mean, of_difference, low, high = pilots(runs, law, max(1, number // 2), rng)
      guesses.append(
        (
          str(runs),
          law,
          percent(of_mean),
          percent(of_difference),
          f"{low:.0f} to {high:.0f}",
        )
      )
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
  write(flags, command, machine(), tables, {t.title: t.rows for t in tables})


if __name__ == "__main__":
  main()
