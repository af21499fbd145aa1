"""How often verdicts are wrong, and intervals hold the truth, for each design that
`stats.design` knows.

    python -m experiments.benchmarks.designs
    python -m experiments.benchmarks.designs --draws 200 --units 5 10

Each draw makes scores of A and of B of the same law and asks `stats.compare_designs`
whether one is better, at 5 %, and whether the interval of `Design.mean` holds the true
mean. What is drawn anew is drawn: seeds on folds that stay; crossed sources, each with an
effect of its own and an interaction; tasks; the subjects of grouped folds.

Repeated folds are those of a real cross-validation: each draw makes a data set, divides
it, and fits least squares to ten of its features (A) and to the ten others (B), which are
as good. The truth is the mean accuracy of such a fit on new examples, over data sets.

Cost: 9 minutes on one CPU core.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated

import numpy as np
import scipy.special
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
# A and B, whether they are paired, and the true mean of A.
Draw = tuple[stats.Design, stats.Design, bool, float]
LAWS: dict[str, Callable] = {
  "normal": lambda rng, shape: rng.standard_normal(shape),
  "skewed": lambda rng, shape: 1 - rng.standard_exponential(shape),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DesignFlags(Flags):
  """How many draws, of how many units."""

  draws: Count = 2000
  """draws of each design and number of units"""

  units: Annotated[tuple[int, ...], metavar("N")] = (3, 5, 10, 20, 40)
  """how many seeds, subjects or tasks"""


def labels(*counts: int) -> np.ndarray:
  """The labels of a full table, an array for each axis."""
  return np.indices(counts).reshape(len(counts), -1)


def runs(rng, n: int, law: str, paired: bool) -> Draw:
  """Runs of n seeds; those of one seed are alike where they are paired."""
  shared = LAWS[law](rng, n) if paired else 0
  a, b = shared + LAWS[law](rng, (2, n))
  seeds = {"seed": np.arange(n)}
  return stats.design(a, seeds), stats.design(b, seeds), paired, 0.0


def seeds_and_folds(rng, n: int, law: str, paired: bool) -> Draw:
  """Seeds on 5 folds that stay: a fold may suit A or B, a seed moves all of its folds."""
  folds = rng.standard_normal(5)
  # Centred: on these folds A and B are equally good.
  suits = rng.standard_normal((2, 5))
  suits -= suits.mean(axis=1, keepdims=True)
  own = LAWS[law](rng, (2, n, 1))
  noise = LAWS[law](rng, (2, n, 5)) / 2
  a, b = folds + suits[:, None] + own + noise
  seeds, fold = labels(n, 5)
  found = [stats.design(x.ravel(), {"seed": seeds}, folds=fold) for x in (a, b)]
  return found[0], found[1], paired, float(folds.mean())


def crossed(rng, counts: tuple[int, ...], sds: tuple[float, ...], paired: bool) -> Draw:
  """Crossed sources with an effect each and an interaction of all, of sd 1."""

  def scores():
    table = rng.standard_normal(counts)
    for axis, sd in enumerate(sds):
      shape = [1] * len(counts)
      shape[axis] = counts[axis]
      table = table + sd * rng.standard_normal(shape)
    return table.ravel()

  names = ("init", "order", "augment")[: len(counts)]
  columns = dict(zip(names, labels(*counts), strict=True))
  a, b = (stats.design(scores(), columns) for _ in range(2))
  return a, b, paired, 0.0


def tasks(rng, n: int, law: str, paired: bool) -> Draw:
  """Tasks that are drawn anew, 3 seeds of each: some suit A, others B."""
  difficulty = 3 * LAWS[law](rng, (n, 1))
  suits = LAWS[law](rng, (2, n, 1))
  a, b = difficulty + suits + rng.standard_normal((2, n, 3)) / 2
  task, seed = labels(n, 3)
  found = [stats.design(x.ravel(), {"task": task}, over={"seed": seed}) for x in (a, b)]
  return found[0], found[1], paired, 0.0


def subjects(rng, n: int, law: str, paired: bool) -> Draw:
  """Accuracies of n subjects of 20 rows each, who are held out in turn."""
  hard = LAWS[law](rng, n)
  rates = scipy.special.expit(1.5 + hard + 0.5 * LAWS[law](rng, (2, n)))
  a, b = rng.binomial(20, rates) / 20
  subject = {"subject": np.arange(n)}
  truth = _true_rate(law)
  return stats.design(a, subject), stats.design(b, subject), paired, truth


_RATES: dict[str, float] = {}


def _true_rate(law: str) -> float:
  if law not in _RATES:
    rng = np.random.default_rng(1)
    one, other = LAWS[law](rng, (2, 2_000_000))
    _RATES[law] = float(scipy.special.expit(1.5 + one + 0.5 * other).mean())
  return _RATES[law]


EXAMPLES, FEATURES, SIGNAL = 200, 20, 0.25


def cross_validation(rng, k: int, repeats: int) -> Draw:
  """Repeated cross-validation of least squares on one half of the features or the other."""
  y = rng.choice([-1.0, 1.0], EXAMPLES)
  x = SIGNAL * y[:, None] + rng.standard_normal((EXAMPLES, FEATURES))
  halves = x[:, : FEATURES // 2], x[:, FEATURES // 2 :]
  # Which examples each fold of each repeat holds out.
  divisions = rng.permuted(np.tile(np.arange(EXAMPLES) % k, (repeats, 1)), axis=1)
  held_out = (divisions[:, None] == np.arange(k)[:, None]).reshape(repeats * k, -1)
  trained = (~held_out).astype(float)
  accuracies = []
  for features in halves:
    # The normal equations of the examples that are left, for all folds at once.
    products = features[:, :, None] * features[:, None, :]
    squares = np.tensordot(trained, products, axes=1)
    weights = np.linalg.solve(squares, (trained @ (features * y[:, None]))[..., None])
    right = (features @ weights[..., 0].T).T * y > 0
    accuracies.append((right & held_out).sum(1) / held_out.sum(1))
  folds = np.arange(repeats * k)
  ratio = 1 / (k - 1)
  a, b = (stats.design(of, folds=folds, test_to_train=ratio) for of in accuracies)
  return a, b, True, _true_accuracy(k)


_ACCURACIES: dict[int, float] = {}


def _true_accuracy(k: int) -> float:
  """The mean accuracy of a fit to k - 1 folds on new examples, over data sets."""
  if k not in _ACCURACIES:
    rng = np.random.default_rng(2)
    train = EXAMPLES - EXAMPLES // k
    means = []
    for _ in range(4000):
      y = rng.choice([-1.0, 1.0], train)
      x = SIGNAL * y[:, None] + rng.standard_normal((train, FEATURES // 2))
      weights = np.linalg.lstsq(x, y, rcond=None)[0]
      # Of a new example w·x y is normal with mean SIGNAL Σ w and sd |w|.
      z = SIGNAL * weights.sum() / np.linalg.norm(weights)
      means.append(scipy.special.ndtr(z))
    _ACCURACIES[k] = float(np.mean(means))
  return _ACCURACIES[k]


def rates(draw: Callable[[], Draw], number: int) -> tuple[str, str, str]:
  """In how many per cent of draws one is called better, the interval of the difference
  holds 0, and that of A's mean the truth; "none" where there is no interval.
  """
  better = held = known = held_mean = known_mean = 0
  for _ in range(number):
    a, b, paired, truth = draw()
    found = stats.compare_designs(a, b, paired)
    better += bool(found.p_value <= ALPHA)
    if np.isfinite(found.low):
      known += 1
      held += bool(found.low - 1e-12 <= 0 <= found.high + 1e-12)
    mean = a.mean()
    if np.isfinite(mean.low):
      known_mean += 1
      held_mean += bool(mean.low <= truth <= mean.high)
  return (
    f"{100 * better / number:.1f}",
    f"{100 * held / known:.1f}" if known else "none",
    f"{100 * held_mean / known_mean:.1f}" if known_mean else "none",
  )


def cases(units: Sequence[int], rng) -> dict[tuple[str, str, str], Callable[[], Draw]]:
  """What is simulated: design, law or effects, and how many there are."""
  found: dict[tuple[str, str, str], Callable[[], Draw]] = {}
  of_units = {
    "runs, unpaired": (runs, False),
    "runs, paired": (runs, True),
    "seeds × 5 folds, unpaired": (seeds_and_folds, False),
    "seeds × 5 folds, paired": (seeds_and_folds, True),
    "groups: subjects held out, paired": (subjects, True),
    "tasks × 3 seeds, paired": (tasks, True),
  }
  for name, (make, paired) in of_units.items():
    for law in LAWS:
      for n in units:
        found[name, law, str(n)] = lambda make=make, n=n, law=law, paired=paired: make(
          rng, n, law, paired
        )
  for counts in ((5, 3), (10, 3), (40, 3), (10, 10), (5, 3, 3), (10, 3, 3), (40, 3, 3)):
    first, rest = (1.0, *[0.0] * (len(counts) - 1)), tuple([1.0] * len(counts))
    for effects, sds in (("of the first", first), ("of each", rest)):
      name = f"{len(counts)} crossed sources"
      size = " × ".join(map(str, counts))
      for paired in (False, True):
        way = "paired" if paired else "unpaired"
        found[f"{name}, {way}", effects, size] = (
          lambda counts=counts, sds=sds, paired=paired: crossed(
            rng, counts, sds, paired
          )
        )
  for k, repeats in ((5, 1), (10, 1), (5, 3), (10, 3), (10, 10)):
    found["repeated folds", f"{repeats} times", f"{k} folds"] = (
      lambda k=k, repeats=repeats: cross_validation(rng, k, repeats)
    )
  return found


def main(argv: Sequence[str] | None = None) -> None:
  flags, command = arguments(DesignFlags, __doc__, "designs", argv)
  rng = np.random.default_rng(0)
  rows = []
  todo = cases(flags.units, rng)
  for names in track(todo, "simulating", console=Console(stderr=True)):
    rows.append((*names, *rates(todo[names], flags.draws)))
  headings = (
    "design",
    "law or effects",
    "units",
    "called better",
    "difference held",
    "mean held",
  )
  title = f"Per cent of {flags.draws} draws of equal recipes"
  tables = [Table(title, headings, rows)]
  write_results(flags, command, machine(), tables, {title: rows})


if __name__ == "__main__":
  main()
