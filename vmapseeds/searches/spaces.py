"""Spaces of hyperparameters, and the trials that random search and noisy grids draw."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vmapseeds.errors import UserError

FORMS = "'0.5..0.99', 'log 1e-3..1', 'int 1..8', 'log int 1..100', or choices '1,2,4'"


class Dimension(NamedTuple):
  """The values that a search may give to one hyperparameter.

  Attributes:
    low, high: the ends, which are among the values.
    log: whether the logarithm is uniform, instead of the value.
    integer: whether values are whole numbers.
    choices: the values, if they are no range.
  """

  low: float
  high: float
  log: bool = False
  integer: bool = False
  choices: tuple[float, ...] = ()

  @property
  def ends(self) -> tuple[float, float]:
    """The ends on the scale that draws are uniform on."""
    if self.log:
      return math.log(self.low), math.log(self.high)
    return self.low, self.high

  def value(self, place: float) -> float:
    """Return the value at a place on the scale that draws are uniform on."""
    value = math.exp(place) if self.log else place
    if self.integer:
      return float(round(value))
    return float(value)

  def draw(self, u: float) -> float:
    """Return the value of a uniform draw from [0, 1)."""
    if self.choices:
      return self.choices[int(u * len(self.choices))]
    low, high = self.ends
    if self.integer:
      # Each whole number has the same share, or that of its logarithms: from half a
      # number below it to half a number above.
      low, high = self.low - 0.5, self.high + 0.5
      if self.log:
        low, high = math.log(low), math.log(high)
    value = self.value(low + u * (high - low))
    # Rounding must not lead out of the range.
    return min(max(value, self.low), self.high)


Space = Mapping[str, Dimension]


def parse_space(over: Mapping[str, Any]) -> dict[str, Dimension]:
  """Return the space that texts, or sequences of choices, describe by name; sorted, so
  that the order in which they are given changes no draw.

  >>> parse_space({"lr": "log 1e-3..1"})["lr"]
  Dimension(low=0.001, high=1.0, log=True, integer=False, choices=())

  Raises:
    UserError: there is no name, or a text is none of the forms.
  """
  if not isinstance(over, Mapping) or not over:
    raise UserError(
      f"over is {over!r:.100}: give names with what to search, like {FORMS}"
    )
  return {str(name): parse_dimension(str(name), over[name]) for name in sorted(over)}


def parse_dimension(name: str, given: Any) -> Dimension:
  """Return what `given` describes: a text as in `FORMS`, or a sequence of numbers, which
  are choices.

  Raises:
    UserError: it describes nothing, or an empty range.
  """
  wrong = UserError(f"{name} is searched over {given!r:.100}: write {FORMS}")
  kinds: set[str] = set()
  text = ""
  if isinstance(given, str) and given.strip():
    # The range or the choices come last, after what kind they are.
    *kind_words, text = given.split()
    kinds = set(kind_words)
  try:
    if ".." in text:
      dimension = _parse_range(text, kinds)
      allowed = {"log", "int"}
    else:
      values = text.split(",") if isinstance(given, str) else given
      dimension = _parse_choices(values)
      allowed = set()
  except (TypeError, ValueError):
    raise wrong from None
  if kinds - allowed:
    raise wrong
  if not (math.isfinite(dimension.low) and math.isfinite(dimension.high)):
    raise wrong
  if dimension.choices:
    distinct = len(set(dimension.choices))
    if distinct < 2 or distinct < len(dimension.choices):
      raise UserError(
        f"{name} has the choices {text or given}: give two or more, each once"
      )
  else:
    _check_range(name, text, dimension)
  return dimension


def _parse_range(text, kinds):
  """Return the range that a text like `0.5..0.99` describes."""
  low, _, high = text.partition("..")
  return Dimension(float(low), float(high), "log" in kinds, "int" in kinds)


def _parse_choices(values):
  """Return the choices that numbers, or texts of numbers, are."""
  choices = tuple(float(value) for value in values)
  return Dimension(min(choices), max(choices), choices=choices)


def _check_range(name, text, dimension):
  """Raise `UserError` unless a range has values."""
  low, _, high = text.partition("..")  # as they were written
  if dimension.low >= dimension.high:
    raise UserError(
      f"{name} goes from {low} to {high}: give a lower end below the upper"
    )
  if dimension.log and dimension.low <= 0:
    raise UserError(f"{name} goes from {low} on a logarithmic scale: begin above 0")
  are_whole = dimension.low.is_integer() and dimension.high.is_integer()
  if dimension.integer and not are_whole:
    raise UserError(f"{name} goes from {low} to {high}: give whole numbers with int")


def random_trial(space: Space, seed: int, trial: int) -> dict[str, float]:
  """Return the values of one trial of a random search: a function of the search's seed
  and the trial's number alone.
  """
  # A generator for each trial: more trials change none of those before.
  draws = np.random.default_rng([seed, trial]).random(len(space))
  return {name: space[name].draw(u) for name, u in zip(space, draws, strict=True)}


def grid_sizes(space: Space, trials: int) -> dict[str, int]:
  """Return how many values each dimension has in a grid of so many trials: choices have
  all of theirs, all ranges equally many.

  Raises:
    UserError: there is no such grid.
  """
  choices = math.prod(len(part.choices) for part in space.values() if part.choices)
  ranges = sum(not part.choices for part in space.values())
  if ranges:
    # The n of choices · n^ranges = trials.
    exact = (trials / choices) ** (1 / ranges)
    each = round(exact)
    below = max(2, int(exact))
    fitting = [choices * n**ranges for n in (below, below + 1)]
  else:
    each = 1
    fitting = [choices]
  too_few = ranges and each < 2
  if too_few or choices * each**ranges != trials:
    raise UserError(
      f"a grid of {trials} trials over {', '.join(space)}: give "
      f"{' or '.join(map(str, fitting))} trials, as many values of each range"
    )
  return {name: len(part.choices) or each for name, part in space.items()}


def noisy_grid(space: Space, seed: int, trials: int) -> list[dict[str, float]]:
  """Return the trials of a noisy grid search, in random order.

  Of a range from a to b with n values, Δ = (b - a)/(n - 1) apart, the ends are drawn
  uniformly from a ± Δ/2 and from b ± Δ/2, and the n values lie between these at equal
  distances: on a logarithmic scale if the range has one. Bouthillier et al. 2021,
  appendix E.2.
  """
  rng = np.random.default_rng(seed)
  axes = []
  for name, count in grid_sizes(space, trials).items():
    dimension = space[name]
    if dimension.choices:
      axes.append(list(dimension.choices))
      continue
    shifts = (rng.random(2) - 0.5) * step_of(dimension, count)
    low, high = np.array(dimension.ends) + shifts
    axes.append([dimension.value(place) for place in np.linspace(low, high, count)])
  points = list(itertools.product(*axes))
  order = rng.permutation(len(points))
  return [dict(zip(space, points[i], strict=True)) for i in order]


def step_of(dimension: Dimension, count: int) -> float:
  """Return the distance between a grid's `count` values, on the scale of draws."""
  low, high = dimension.ends
  return (high - low) / (count - 1)


def widest_ends(space: Space, sizes: Mapping[str, int]) -> dict[str, Sequence[float]]:
  """Return the lowest and the highest value that a search may draw by name. `sizes` are
  those of a noisy grid, whose ends vary; empty for other searches.
  """
  ends: dict[str, Sequence[float]] = {}
  for name, dimension in space.items():
    if dimension.choices:
      ends[name] = dimension.choices
      continue
    low, high = dimension.ends
    reach = 0.0
    if sizes:  # only a noisy grid leaves the range
      reach = step_of(dimension, sizes[name]) / 2
    ends[name] = (dimension.value(low - reach), dimension.value(high + reach))
  return ends
