"""The unit of inference: what is drawn anew, how many of it there are, and what a mean or
a difference of means then rests on.

A design is made of scores and of columns that say which of them share what. Reports,
comparisons and sample sizes all read it, so that none of them counts runs that share a
seed, a fold or a task as independent ones.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
import scipy.optimize
import scipy.stats
from jaxtyping import Float

from vmapseeds.errors import UserError
from vmapseeds.stats._arrays import Given, as_float64, centred, safe_divide
from vmapseeds.stats.comparison import least_p_value
from vmapseeds.stats.differences import Difference, compare_means
from vmapseeds.stats.reading import read_level, read_number, read_reals
from vmapseeds.stats.uncertainty import Estimate

RUN, FOLD = "run", "fold"
# Levels of each crossed source that an interval needs: with two, that of simulated
# designs held in 92.7 % (experiments/benchmarks/designs.py).
LEAST_CROSSED = 3
# The share of the units that must be left where those with gaps are left out.
LEAST_WHOLE = 0.5

Columns = Mapping[str, Given["runs"]]


class Component(NamedTuple):
  """The variance that one source, or the interaction of several, adds to a run.

  Attributes:
    sources: whose it is.
    variance: the unbiased estimate, which may be negative.
    low, high: the ends of its interval; NaN where there is none.
  """

  sources: tuple[str, ...]
  variance: float
  low: float
  high: float


@dataclasses.dataclass(frozen=True, eq=False)
class Design:
  """Scores by what is drawn anew: made by `design`.

  Attributes:
    drawn: what is drawn anew, such as ("seed",), or several crossed sources, such as
      ("init", "order").
    levels: of each of these, the labels of its units in the order of `values`.
    values: the mean score of each unit: an axis for each of `drawn`.
    scores: how many scores they are means of.
    averaged: what each unit is a mean over, and over how many of it.
    one: what could vary and does not: the mean rests on a single one of each.
    test_to_train: of folds, the size of a test set over that of a training set.
  """

  drawn: tuple[str, ...]
  levels: tuple[np.ndarray, ...]
  values: Float[np.ndarray, "..."]
  scores: int
  averaged: Mapping[str, int] = dataclasses.field(default_factory=dict)
  one: tuple[str, ...] = ()
  test_to_train: float = 0.0

  @property
  def counts(self) -> tuple[int, ...]:
    """Return how many units there are of each that is drawn anew."""
    return self.values.shape

  @property
  def crossed(self) -> bool:
    return len(self.drawn) > 1

  @property
  def overlapping(self) -> bool:
    """Return whether units share training examples, as folds do."""
    return self.test_to_train > 0

  @property
  def exchangeable(self) -> bool:
    """Return whether the units are independent draws of one kind: such can be rearranged."""
    return not self.crossed and not self.overlapping

  @property
  def independent_runs(self) -> bool:
    """Return whether each score is a unit of its own."""
    return self.exchangeable and self.values.size == self.scores

  def describe_units(self) -> str:
    """Return how many units there are of what is drawn anew: "5 of init and 2 of order"."""
    parts = []
    for name, count in zip(self.drawn, self.counts, strict=True):
      parts.append(f"{count} of {name}")
    return " and ".join(parts)

  def mean(self, *, level: float = 0.95) -> Estimate:
    """Return the mean over units with its standard error by the design, and its interval.

    - units of one kind: Student's, mean ± t_{n-1} s/√n
    - folds: mean ± t_{n-1} s √(1/n + q), q the test over the training examples
    - crossed sources: mean ± t_ν √V, V = Σ_S (-1)^{|S|+1} MS_S/N over all sets S of
      sources, and at least the largest MS/N of a source. MS_S is the mean square of the
      effect of S in the analysis of variance of N runs. ν is such that the interval of
      95 % reaches as far as one with the quantile t_i of each source's n_i - 1:

          t_ν² V = max_i [t_i² MS_i + Σ_{j≠i} t_j² max(0, MS_j - MS_ij)] / N

    Returns:
      An `Estimate`. Of a single unit there is neither a standard error nor an interval
      (NaN). Of crossed sources there is no interval with fewer than 3 of one.

    Source: Student 1908; Nadeau and Bengio 2003; Searle, Casella and McCulloch 1992; ν
      ours, after Howe 1974.
    """
    _, upper = read_level(level)
    mean = self.values.mean()
    variance, freedom = self.variance_of_mean()
    se = math.sqrt(variance)
    reach = math.nan
    if freedom > 0:
      reach = float(scipy.stats.t.ppf(upper, freedom)) * se
    return Estimate(mean, se, mean - reach, mean + reach, level)

  def variance_of_mean(self) -> tuple[float, float]:
    """Return the variance of the mean, and its degrees of freedom: 0 where there are too
    few units for an interval.
    """
    if self.crossed:
      return _crossed_variance(self.values)
    units = self.values.size
    if units < 2:
      return math.nan, 0.0
    variance = float(self.values.var(ddof=1))
    return variance * (1 / units + self.test_to_train), units - 1

  def sd_of_run(self) -> float:
    """Return the standard deviation of the score of a run, or of a unit, of which nothing
    is shared with another one.
    """
    if not self.crossed:
      return float(self.values.std(ddof=1))
    total = sum(component.variance for component in self.components())
    return math.sqrt(max(0.0, total))

  def components(self, *, level: float = 0.95) -> list[Component]:
    """Return the variance due to each crossed source, and to each interaction, which has
    the rest: by the analysis of variance with random effects.

        σ²_S = Σ_{T ⊇ S} (-1)^{|T| - |S|} MS_T / Π_{i ∉ S} n_i

    Unbiased whatever the laws, and may be negative. The intervals are for normal effects:
    modified large-sample ones, their degrees of freedom fewer where effects have long
    tails.

    Source: Searle, Casella and McCulloch 1992, section 4.3; Ting et al. 1990.
    """
    if not self.crossed:
      return []
    return _components(self.drawn, self.values, level)

  def restricted(self, levels: Sequence[np.ndarray]) -> "Design":
    """Return the units with these labels, in this order."""
    values = self.values
    for axis, (own, wanted) in enumerate(zip(self.levels, levels, strict=True)):
      place = {label: index for index, label in enumerate(own.tolist())}
      values = values.take([place[label] for label in wanted.tolist()], axis)
    return dataclasses.replace(self, levels=tuple(levels), values=values)


def design(
  scores: Given["runs"],
  drawn: Columns | None = None,
  *,
  over: Columns | None = None,
  folds: Given["runs"] | None = None,
  test_to_train: float | None = None,
) -> Design:
  """Return the unit of inference of scores: what is drawn anew, and its means.

  - A source of `drawn` with a single label is left out: the mean rests on that one.
    Sources that vary together are one. One that is nested in another, as subjects in
    clinics, is averaged over: the units are those of the outer one.
  - If several sources are left, they are crossed. Levels that lack a run are left out.
  - Everything else is averaged over in equal parts. Units that lack a part are left out.
  - If nothing of `drawn` varies, the folds are what is drawn anew. Their training sets
    overlap, which the standard error takes into account.
  - If nothing varies at all, each score is a run of its own.

  Args:
    scores: (runs,), one number a run.
    drawn: name -> (runs,), the labels of what other studies would draw anew: seeds,
      subjects, tasks. None: each score is a run of its own.
    over: name -> (runs,), the labels of what would stay the same: tasks, or seeds where
      tasks are drawn anew.
    folds: (runs,), the label of each run's test set: of a cross-validation, repeated or
      not, or of random splits.
    test_to_train: the size of a test set over that of a training set, such as 1/9 of 10
      folds. Needed if folds are what is drawn anew.

  Raises:
    UserError: lengths differ, no run is left, or folds are drawn anew and
      `test_to_train` is not given.

  Source: Nadeau and Bengio 2003 for folds; Searle, Casella and McCulloch 1992.

  >>> seeds, folds = np.repeat([0, 1, 2], 2), np.tile([0, 1], 3)
  >>> found = design([1, 3, 2, 4, 6, 8], {"seed": seeds}, folds=folds)
  >>> print(found.drawn, found.values, found.averaged)
  ('seed',) [2. 3. 7.] {'fold': 2}
  >>> found.mean()
  4.0 ± 1.5 [-2.6, 10.6]
  """
  scores = read_reals("scores", scores, "runs")
  if not len(scores):
    raise UserError("scores has no runs: give at least one")
  parts = _read_columns(over or {}, len(scores))
  if folds is not None:
    parts |= _read_columns({FOLD: folds}, len(scores))
  ratio = 0.0
  sources = _read_columns(drawn or {}, len(scores))
  units, nested, one = _outermost(sources)

  if not units and folds is not None and _varies(parts[FOLD]):
    if test_to_train is None:
      raise UserError(
        "folds are what is drawn anew, as nothing else varies: give test_to_train, the "
        "size of a test set over that of a training set, such as 1/9 of 10 folds"
      )
    ratio = read_number("test_to_train", test_to_train, "(0, inf)")
    units = {FOLD: parts.pop(FOLD)}
  if not units:
    # Scores of one unit differ in what is averaged over, or are repeats of it.
    alike = any(_varies(part) for part in parts.values())
    labels = np.zeros(len(scores), int) if alike else np.arange(len(scores))
    units = _read_columns({RUN: labels}, len(scores))

  parts |= {name: nested[name] for name in nested if name not in units}
  averaged = {}
  for name, column in parts.items():
    number = _number_within(column, units)
    if number > 1:
      averaged[name] = number
  values, levels = _table(scores, units, parts)
  return Design(tuple(units), levels, values, len(scores), averaged, one, ratio)


class _Column(NamedTuple):
  """The number of each run's label, and the labels."""

  numbers: np.ndarray
  labels: np.ndarray

  def of(self, rows: np.ndarray) -> "_Column":
    """Return the column of some runs, with those labels alone that are left."""
    left, numbers = np.unique(self.numbers[rows], return_inverse=True)
    return _Column(numbers, self.labels[left])


def _read_columns(columns: Columns, runs: int) -> dict[str, _Column]:
  found = {}
  for name, column in columns.items():
    labels = np.asarray(column)
    if labels.shape != (runs,):
      raise UserError(
        f"{name} has shape {labels.shape} beside {runs} scores: give a label for each"
      )
    distinct, numbers = np.unique(labels, return_inverse=True)
    found[str(name)] = _Column(numbers, distinct)
  return found


def _varies(column: _Column) -> bool:
  return len(column.labels) > 1


def _outermost(
  sources: Mapping[str, _Column],
) -> tuple[dict[str, _Column], dict[str, _Column], tuple[str, ...]]:
  """Return the sources that vary and are not nested in another one, those that are, and
  the names of those that do not vary. Sources that vary together are one.
  """
  varying: dict[str, _Column] = {}
  one = []
  for name, column in sources.items():
    if not _varies(column):
      one.append(name)
      continue
    together = [other for other in varying if _same(varying[other], column)]
    for other in together:
      name = f"{other} and {name}"
      del varying[other]
    varying[name] = column

  outermost: dict[str, _Column] = {}
  nested: dict[str, _Column] = {}
  for name, column in varying.items():
    others = [other for key, other in varying.items() if key != name]
    is_nested = any(_refines(column, other) for other in others)
    if is_nested:
      nested[name] = column
    else:
      outermost[name] = column
  return outermost, nested, tuple(one)


def _same(one: _Column, other: _Column) -> bool:
  return _refines(one, other) and _refines(other, one)


def _refines(inner: _Column, outer: _Column) -> bool:
  """Return whether runs with the same inner label have the same outer one."""
  outer_of = np.zeros(len(inner.labels), int)
  outer_of[inner.numbers] = outer.numbers
  return bool((outer_of[inner.numbers] == outer.numbers).all())


def _codes(columns: Sequence[_Column], runs: int) -> np.ndarray:
  """Return the number of each run's combination of labels, among all combinations."""
  if not columns:
    return np.zeros(runs, int)
  numbers = [column.numbers for column in columns]
  shape = [len(column.labels) for column in columns]
  return np.ravel_multi_index(numbers, shape)


def _number_within(part: _Column, units: Mapping[str, _Column]) -> int:
  """Return how many labels of a part a unit has, at most."""
  runs = len(part.numbers)
  pairs = np.stack([_codes(list(units.values()), runs), part.numbers])
  _, numbers = np.unique(np.unique(pairs, axis=1)[0], return_counts=True)
  return int(numbers.max())


def _table(
  scores: Float[np.ndarray, "runs"],
  units: Mapping[str, _Column],
  parts: Mapping[str, _Column],
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
  """Return the mean of each unit over its parts, an axis for each source, and the labels
  along each axis.
  """
  shape = [len(column.labels) for column in units.values()]
  cell = _codes(list(units.values()), len(scores))
  # Parts that recur must be the same in all units; what differs between units alone, or
  # within one alone, need not.
  whole = _Column(cell, np.arange(math.prod(shape)))
  recurring = [
    part
    for part in parts.values()
    if not _refines(part, whole) and not _refines(whole, part)
  ]
  part = np.unique(_codes(recurring, len(scores)), return_inverse=True)[1]
  means = _means_of_cells(scores, cell, part, math.prod(shape))
  # A unit that lacks a part has no mean.
  values = means.mean(axis=1).reshape(shape)
  labels = [column.labels for column in units.values()]
  return _without_gaps(values, labels, len(np.unique(cell)))


def _means_of_cells(
  scores: np.ndarray, cell: np.ndarray, part: np.ndarray, cells: int
) -> np.ndarray:
  """Return the mean of each cell's scores of each part, NaN where there are none."""
  parts = part.max() + 1
  code = cell * parts + part
  sums = np.bincount(code, scores, minlength=cells * parts)
  numbers = np.bincount(code, minlength=cells * parts)
  return safe_divide(sums, numbers).reshape(cells, parts)


def _without_gaps(
  values: np.ndarray, labels: Sequence[np.ndarray], units: int
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
  """Return a table of so many units without the levels that have gaps: one at a time, always that with the
  largest share of them.

  Raises:
    UserError: fewer than half of the units would be left.
  """
  left = list(labels)
  while np.isnan(values).any():
    shares = []
    for axis in range(values.ndim):
      others = tuple(other for other in range(values.ndim) if other != axis)
      shares.append(np.isnan(values).mean(axis=others))
    axis = int(np.argmax([share.max() for share in shares]))
    worst = int(shares[axis].argmax())
    values = np.delete(values, worst, axis)
    left[axis] = np.delete(left[axis], worst)
  if values.size < LEAST_WHOLE * units:
    raise UserError(
      f"units lack runs of what they have in common: {values.size} of {units} are whole"
    )
  return values, tuple(left)


# Crossed sources: the analysis of variance.


def _sets(axes: int) -> list[tuple[int, ...]]:
  """Return all sets of sources but the empty one, the smallest first."""
  sizes = range(1, axes + 1)
  sets = (itertools.combinations(range(axes), size) for size in sizes)
  return list(itertools.chain(*sets))


def _effects(values: np.ndarray) -> dict[tuple[int, ...], np.ndarray]:
  """Return the effect of each set of sources: the means over all others, less the effects
  of the sets within.
  """
  effects: dict[tuple[int, ...], np.ndarray] = {(): values.mean(keepdims=True)}
  for chosen in _sets(values.ndim):
    others = tuple(axis for axis in range(values.ndim) if axis not in chosen)
    effect = values.mean(axis=others, keepdims=True)
    for within, known in effects.items():
      if set(within) < set(chosen):
        effect = effect - known
    effects[chosen] = effect
  del effects[()]
  return effects


def _mean_squares(
  values: np.ndarray,
) -> dict[tuple[int, ...], tuple[float, float]]:
  """Return the mean square of each set of sources, and its degrees of freedom."""
  found = {}
  for chosen, effect in _effects(values).items():
    freedom = math.prod(values.shape[axis] - 1 for axis in chosen)
    repeats = values.size / effect.size
    found[chosen] = (float(repeats * (effect**2).sum() / freedom), float(freedom))
  return found


def _crossed_variance(values: np.ndarray) -> tuple[float, float]:
  """Return the variance of the mean of crossed runs and its degrees of freedom."""
  if min(values.shape) < 2:
    return math.nan, 0.0
  shares, total = {}, 0.0
  for chosen, (square, _) in _mean_squares(values).items():
    shares[chosen] = square / values.size
    total += (-1) ** (len(chosen) + 1) * shares[chosen]
  axes = range(values.ndim)
  variance = max(total, *(shares[axis,] for axis in axes))
  if min(values.shape) < LEAST_CROSSED or not variance:
    return variance, 0.0

  # Each source by the quantile of its own number of seeds: a source of few seeds may look
  # small by chance, and all the others together say nothing of it.
  quantiles = scipy.stats.t.ppf(0.975, np.array(values.shape) - 1)
  reaches = []
  for first in axes:
    # Its mean square has its interactions, which those of the others need not have again.
    reach = quantiles[first] ** 2 * shares[first,]
    for other in axes:
      if other != first:
        both = shares[tuple(sorted((first, other)))]
        reach += quantiles[other] ** 2 * max(0.0, shares[other,] - both)
    reaches.append(reach)
  return variance, _freedom_of_quantile(math.sqrt(max(reaches) / variance))


def _freedom_of_quantile(quantile: float) -> float:
  """Return the degrees of freedom of which Student's t has this 97.5 % quantile."""

  def excess(log_freedom: float) -> float:
    return float(scipy.stats.t.ppf(0.975, math.exp(log_freedom))) - quantile

  fewest, most = math.log(0.5), math.log(1e6)
  if excess(most) >= 0:
    return math.exp(most)
  return math.exp(scipy.optimize.brentq(excess, fewest, most))


def _components(
  names: Sequence[str], values: np.ndarray, level: float
) -> list[Component]:
  outside, _ = read_level(level)
  if min(values.shape) < 2:
    return []
  effects = _effects(values)
  squares = _mean_squares(values)
  found = []
  for chosen in squares:
    # The mean squares of this set and of all that have it in them.
    wider = [other for other in squares if set(chosen) <= set(other)]
    repeats = math.prod(
      count for axis, count in enumerate(values.shape) if axis not in chosen
    )
    signs = np.array([(-1) ** (len(other) - len(chosen)) for other in wider])
    terms = np.array([squares[other][0] for other in wider]) / repeats
    freedom = np.array(
      [effective_freedom(effects[other], squares[other][1]) for other in wider]
    )
    variance = float((signs * terms).sum())
    down, up = reach_of_sum(terms, signs, freedom, outside)
    sources = tuple(names[axis] for axis in chosen)
    found.append(Component(sources, variance, variance - down, variance + up))
  return found


def effective_freedom(effects: np.ndarray, normal_freedom: float) -> float:
  """Return the degrees of freedom of a mean square: fewer where tails are long."""
  # Effects that differ by rounding alone have no kurtosis, of which SciPy warns.
  effects = centred(effects.ravel())
  if effects.size < 4 or not effects.any():
    return normal_freedom
  # The unbiased estimate of normal effects is 0, and that of others is low.
  kurtosis = scipy.stats.kurtosis(effects, bias=False)
  return 2 / (2 / normal_freedom + max(0.0, kurtosis) / effects.size)


def reach_of_sum(
  terms: np.ndarray, signs: np.ndarray, freedom: np.ndarray, outside: float
) -> tuple[float, float]:
  """Return how far the modified large-sample interval of a sum of mean squares with signs
  reaches down and up (Ting et al. 1990).
  """
  plus, minus = signs > 0, signs < 0
  chi2, f = scipy.stats.chi2, scipy.stats.f
  # How far a mean square alone reaches down and up, as a share of it.
  down_alone = 1 - freedom / chi2.ppf(1 - outside, freedom)
  up_alone = freedom / chi2.ppf(outside, freedom) - 1
  reaches = []
  for tail, moving_down in ((1 - outside, plus), (outside, minus)):
    alone = np.where(moving_down, down_alone, up_alone)
    square = ((alone * terms) ** 2).sum()
    # A mean square that counts and one that is subtracted.
    for q, r in itertools.product(np.flatnonzero(plus), np.flatnonzero(minus)):
      quotient = f.ppf(tail, freedom[q], freedom[r])
      both = (quotient - 1) ** 2 - (alone[q] * quotient) ** 2 - alone[r] ** 2
      square += both / quotient * terms[q] * terms[r]
    # Two that lie on the side of this end.
    for q, t in itertools.combinations(np.flatnonzero(moving_down), 2):
      n, m = freedom[q], freedom[t]
      together = 1 - (n + m) / chi2.ppf(1 - outside, n + m)
      both = together**2 * (n + m) ** 2 / (n * m)
      both -= alone[q] ** 2 * n / m + alone[t] ** 2 * m / n
      square += both / (moving_down.sum() - 1) * terms[q] * terms[t]
    reaches.append(math.sqrt(max(0.0, square)))
  return reaches[0], reaches[1]


# Comparing two designs.


def compare_designs(
  a: Design,
  b: Design,
  paired: bool | None = None,
  *,
  key: jax.Array | None = None,
  level: float = 0.95,
) -> Difference:
  """Return mean A - mean B with an interval and a p-value over what is drawn anew.

  - units of one kind: by rearranging them, as in `compare_means`
  - folds and crossed sources: d ± t_ν SE with the standard error of `Design.mean`: of
    pairs that of their differences; else SE² = SE_A² + SE_B², ν by Welch's formula

  Args:
    a: the design of A's scores, higher is better.
    b: that of B's.
    paired: True pairs units of the same labels, and scores that have no labels in the
      order given. None pairs labels if the same is drawn anew and more than half of the
      units on either side have a partner.
    key: a JAX random key for the rearrangements; by default a fixed one.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    `difference`, `low`, `high`, `p_value`, 0-d. With too few units the ends are infinite
    and p is 1.

  Raises:
    UserError: `paired` is True and no units can be paired.

  Source: Hartigan 1969 and Fisher 1935; Nadeau and Bengio 2003; Welch 1947.

  >>> seeds = np.repeat(np.arange(6), 2)
  >>> folds = np.tile([0, 1], 6)
  >>> a = design([5, 7, 4, 6, 6, 8, 7, 9, 5, 8, 8, 9], {"seed": seeds}, folds=folds)
  >>> b = design([4, 6, 4, 5, 5, 8, 5, 9, 4, 7, 7, 7], {"seed": seeds}, folds=folds)
  >>> found = compare_designs(a, b)
  >>> print(found.difference.round(3), found.p_value)
  0.917 0.03125
  """
  _, upper = read_level(level)
  # The order of scores that have no labels says nothing.
  if paired is None:
    paired = a.drawn == b.drawn != (RUN,) and paired_units(a, b) is not None
  pairs = None
  if paired:
    pairs = paired_units(a, b)
    if pairs is None:
      raise UserError(
        f"A has {a.describe_units()} and B {b.describe_units()}, of which too few have "
        "the same labels to make pairs: give paired=False"
      )
  if pairs is not None:
    a, b = pairs
  if a.exchangeable and b.exchangeable:
    return compare_means(a.values, b.values, pairs is not None, key=key, level=level)

  difference = a.values.mean() - b.values.mean()
  if pairs is not None:
    variance, freedom = difference_of_pairs(a, b).variance_of_mean()
  else:
    of_a, freedom_of_a = a.variance_of_mean()
    of_b, freedom_of_b = b.variance_of_mean()
    variance, freedom = of_a + of_b, 0.0
    if min(freedom_of_a, freedom_of_b) > 0 and variance:
      freedom = variance**2 / (of_a**2 / freedom_of_a + of_b**2 / freedom_of_b)
  return _by_student(difference, variance, freedom, upper)


def _by_student(
  difference: float, variance: float, freedom: float, upper: float
) -> Difference:
  if not freedom > 0:
    numbers = difference, -np.inf, np.inf, 1.0
  elif not variance:
    numbers = difference, difference, difference, float(difference == 0)
  else:
    se = math.sqrt(variance)
    reach = scipy.stats.t.ppf(upper, freedom) * se
    p = 2 * scipy.stats.t.sf(abs(difference) / se, freedom)
    numbers = difference, difference - reach, difference + reach, p
  return Difference(*map(as_float64, numbers))


def paired_units(a: Design, b: Design) -> tuple[Design, Design] | None:
  """Return both designs with the units that have the same labels, in the same order; None
  if something else is drawn anew, or half of the units or more have no partner.
  """
  if a.drawn != b.drawn:
    return None
  common = []
  for of_a, of_b in zip(a.levels, b.levels, strict=True):
    both = np.intersect1d(of_a, of_b)
    if 2 * len(both) <= min(len(of_a), len(of_b)):
      return None
    common.append(both)
  return a.restricted(common), b.restricted(common)


def difference_of_pairs(a: Design, b: Design) -> Design:
  """Return the design of the differences A - B of paired units."""
  return dataclasses.replace(a, values=a.values - b.values)


def least_p_value_of(a: Design, b: Design, paired: bool) -> float:
  """Return the smallest p-value that `compare_designs` can give: 1 if the units are too
  few.
  """
  if a.exchangeable and b.exchangeable:
    return least_p_value(a.values.size, b.values.size, paired)
  known = all(found.variance_of_mean()[1] > 0 for found in (a, b))
  return 0.0 if known else 1.0
