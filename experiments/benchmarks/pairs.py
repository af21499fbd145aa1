"""What `compare` says of twenty pairs of campaigns that differ in kind, beside what is
true and what it said before it began with a sentence.

    python -m experiments.benchmarks.pairs

Two pairs are trained on digits; the others are imported predictions, losses and scores
with a known law: run h has example i wrong with probability p_i (1 + s u_h), where u_h
is normal and the mean of p_i and s are what a pair asks for. Runs of equal seeds share
u_h. The folders are compared by `vs.compare`, and the verdicts of other draws of each
pair are counted. What was said before is made of the functions of then, which have not
changed: P(A > B) with `decide`, which judged A alone, the interval of Student or Welch,
and the average comparison.

Cost: a minute on one CPU core.
"""

import dataclasses
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.progress import track

import vmapseeds as vs
from experiments.benchmarks.common import Count, Flags, Table, arguments, machine, write
from vmapseeds import stats
from vmapseeds.reports.verdict import Comparison, compare_values, headline
from vmapseeds.results.formatting import show_difference

EXAMPLES = 800
SILENT = Console(file=open("/dev/null", "w"))  # noqa: SIM115


class Law(NamedTuple):
  """What decides the runs of one side."""

  runs: int
  accuracy: float = 0.95
  sd: float = 0.004  # of the probability that a run is right
  examples: int = EXAMPLES
  first_seed: int = 0
  wrong: Sequence[int] = ()  # examples that all runs have wrong
  right: Sequence[int] = ()


class Pair(NamedTuple):
  """Two campaigns and how they are compared."""

  kind: str
  truth: str
  a: Any  # a law, or a folder's recipe
  b: Any
  how: dict[str, Any] = {}  # noqa: RUF012


def better(points: float, runs: int, base: float = 0.95, **law: Any) -> Any:
  return Law(runs, base), Law(runs, base + points / 100, **law)


def same(runs: int, **law: Any) -> Any:
  return Law(runs, **law), Law(runs, **law)


LINEAR = vs.recipe("digits_cnn", model="linear", epochs=1)
SHARED = {"sd": 0.015}  # most of what differs between runs is their seeds'
PAIRS = [
  Pair("digits, 1 and 3 epochs, 20 seeds", "B better", 1, 3),
  Pair("the same, given the other way round", "A better", 3, 1),
  Pair("3 pairs", "same", *same(3)),
  Pair("5 pairs", "same", *same(5)),
  Pair("20 pairs", "same", *same(20)),
  Pair("100 pairs", "same", *same(100)),
  Pair("20 runs each, no common seeds", "same", Law(20), Law(20, first_seed=500)),
  Pair("3 pairs, large", "B better by 3", *better(3, 3)),
  Pair("6 pairs, large", "B better by 3", *better(3, 6)),
  Pair("3 runs each, large", "A better by 3", Law(3, 0.96), Law(3, 0.93, first_seed=9)),
  Pair("400 pairs, tiny", "B better by 0.15", *better(0.15, 400)),
  Pair("100 pairs, margin 0.5", "same", *same(100), {"margin": 0.5}),
  Pair("200 pairs, margin 0.8", "A better by 0.4", *better(-0.4, 200), {"margin": 0.8}),
  Pair("20 pairs, margin 0.1", "same", *same(20), {"margin": 0.1}),
  Pair(
    "30 runs each on 20 examples, many ties",
    "same",
    Law(30, 0.9, examples=20),
    Law(30, 0.9, examples=20, first_seed=500),
  ),
  Pair(
    "20 pairs on 60 examples; one of these alone tells B from A",
    "B better on these, same on others",
    Law(20, examples=60, wrong=(7,)),
    Law(20, examples=60, right=(7,)),
  ),
  Pair(
    "12 pairs, seeds decide most of a run",
    "B better by 1",
    Law(12, **SHARED),
    Law(12, 0.96, **SHARED),
  ),
  Pair(
    "the same, not paired",
    "B better by 1",
    Law(12, **SHARED),
    Law(12, 0.96, **SHARED),
    {"paired": False},
  ),
  Pair("losses, 20 seeds, lower is better", "B better by 0.04", 0.0, 0.04),
  Pair(
    "scores, 20 seeds, lower is better", "A better by 2", 2.0, 0.0, {"output": "time"}
  ),
]


def draw_wrong(law: Law, draw: Sequence[int]) -> np.ndarray:
  """Return which examples runs of a law have wrong, (runs, examples)."""
  hard = np.random.default_rng(99).beta(0.3, 4, law.examples)
  hard *= (1 - law.accuracy) / hard.mean()
  shared = [
    np.random.default_rng(law.first_seed + run).standard_normal()
    for run in range(law.runs)
  ]
  rate = hard * (1 + law.sd / (1 - law.accuracy) * np.array(shared)[:, None])
  rate[:, [*law.wrong]], rate[:, [*law.right]] = 1, 0
  return np.random.default_rng(draw).random(rate.shape) < rate


def import_law(out: Path, law: Law, draw: Sequence[int]) -> None:
  """Write runs of a law into a folder; `draw` numbers pair and side."""
  labels = np.arange(law.examples) % 3
  vs.import_runs(
    out,
    predictions=(labels + draw_wrong(law, draw)) % 3,
    labels=labels,
    values={"seed": law.first_seed + np.arange(law.runs)},
    progress=False,
  )


def count_verdicts(pair: Pair, number: int, times: int) -> str:
  """Return what is said of other draws of a pair, and how often."""
  if not isinstance(pair.a, Law):
    return "–"
  laws = pair.a, pair.b
  shared = pair.a.first_seed == pair.b.first_seed and pair.how.get("paired", True)
  margin = pair.how.get("margin", 0) / 100 or None
  said = Counter[str]()
  for time in range(1, times + 1):
    a, b = (
      1 - draw_wrong(law, (number, side, time)).mean(1) for side, law in enumerate(laws)
    )
    found = compare_values(a, b, matching="seeds" * shared, margin=margin)
    who = "A is " if found.leads else "B is "
    said[who * (found.verdict == "better") + found.verdict] += 1
  return ", ".join(f"{what} {count}" for what, count in said.most_common())


def measure(data: Any, run: Any, state: Any) -> dict[str, Any]:
  """Return losses of 300 examples, and seconds, both smaller by the run's gain."""
  key = jax.random.fold_in(run.key("init"), (100 * run["gain"]).astype(int))
  noise = jax.random.normal(key, (301,))
  return {
    "loss": 0.5 - run["gain"] + 0.2 * noise[1:],
    "time": 60 - run["gain"] + noise[0],
  }


MEASURED = vs.Task(
  name="measured",
  start=lambda data, run: 0.0,
  advance=lambda data, run, state, first, last: state,
  finish=measure,
  data=(),
  rounds=1,
  sources=("init",),
  values={"gain": 0.0},
  outputs={
    "loss": vs.Output(("example",), "loss", unit="nats"),
    "time": vs.Output(role="score", unit="s", higher_is_better=False),
  },
)


def make(out: Path, given: Any, draw: Sequence[int]) -> Path:
  """Make one side's folder."""
  if isinstance(given, Law):
    import_law(out, given, draw)
  elif isinstance(given, int):
    vs.train(LINEAR.replace(epochs=given), 20, out, progress=False)
  else:
    runs = vs.Runs.sweep(gain=[given], seeds=vs.Runs.independent(20, start=0))
    vs.train(MEASURED, runs, out, progress=False)
  return out


def said_before(c: Comparison) -> Iterator[str]:
  """Yield what stood first before: P(A > B), its verdict on A, the interval, and the
  average comparison.
  """
  sign = 1 if c.higher_is_better else -1
  a, b = sign * c.a, sign * c.b
  d = stats.decide(a, b, gamma=c.gamma, paired=c.paired)
  yield (
    f"P(A > B) = {float(d.probability):.3f}, 95 % interval {float(d.low):.3f} to "
    f"{float(d.high):.3f}; {d.decision}."
  )
  if d.high < 0.5:
    yield "B is better than A: swap A and B for a decision on that."
  value, ends, unit = show_difference(
    stats.mean_difference(c.a, c.b, c.paired), c.of.unit
  )
  yield f"A less B: {value} ({ends}){unit}."
  average = stats.average_comparison(a, b)
  if average.threshold > 0:
    yield f"By the average comparison A is {'' if average.better else 'not '}better."


@dataclasses.dataclass(frozen=True)
class PairsFlags(Flags):
  """How often each pair is drawn."""

  draws: Count = 200
  """other draws of each pair, whose verdicts are counted"""


def main(argv: Sequence[str] | None = None) -> None:
  flags, command = arguments(PairsFlags, __doc__, "pairs", argv)
  rows, verdicts = [], {}
  with tempfile.TemporaryDirectory() as folder:
    for number, pair in enumerate(
      track(PAIRS, "comparing", console=Console(stderr=True))
    ):
      sides = [
        make(Path(folder, f"{number}{name}"), given, (number, side))
        for side, (name, given) in enumerate((("a", pair.a), ("b", pair.b)))
      ]
      if isinstance(pair.a, float):
        pair.how.setdefault("against", {"gain": pair.b})
        pair.how.setdefault("where", {"gain": pair.a})
      (found,) = vs.compare(*sides, console=SILENT, **pair.how)
      said = (" ".join(of(found)) for of in (said_before, headline))
      rows.append(
        (pair.kind, pair.truth, *said, count_verdicts(pair, number, flags.draws))
      )
      verdicts[pair.kind] = found.verdict
  table = Table(
    "What `compare` says of twenty pairs",
    (
      "A and B",
      "what is true",
      "what it said before",
      "what it says",
      f"of {flags.draws} other draws",
    ),
    rows,
  )
  write(flags, command, machine(), [table], verdicts)


if __name__ == "__main__":
  main()
