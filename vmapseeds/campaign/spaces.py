"""Spaces of hyperparameters, and the trials that random search and noisy grids draw."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vmapseeds.mistakes import Mistake

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
    return (math.log(self.low), math.log(self.high)) if self.log else self[:2]

  def value(self, place: float) -> float:
    """Return the value at a place on the scale that draws are uniform on."""
    value = math.exp(place) if self.log else place
    return float(round(value)) if self.integer else float(value)

  def draw(self, u: float) -> float:
    """Return the value of a uniform draw from [0, 1)."""
    if self.choices:
      return self.choices[int(u * len(self.choices))]
    (low, high), (first, last) = self.ends, self[:2]
    if self.integer:  # each whole number has the same share, or that of its logarithms
      ends = first - 0.5, last + 0.5
      low, high = map(math.log, ends) if self.log else ends
    return min(max(self.value(low + u * (high - low)), first), last)


Space = Mapping[str, Dimension]


def parse_space(over: Mapping[str, Any]) -> dict[str, Dimension]:
  """Return the space that texts, or sequences of choices, describe by name; sorted, so
  that the order in which they are given changes no draw.

  >>> parse_space({"lr": "log 1e-3..1"})["lr"]
  Dimension(low=0.001, high=1.0, log=True, integer=False, choices=())

  Raises:
    Mistake: there is no name, or a text is none of the forms.
  """
  if not isinstance(over, Mapping) or not over:
    raise Mistake(
      f"over is {over!r:.100}: give names with what to search, like {FORMS}"
    )
  return {str(name): parse_dimension(str(name), over[name]) for name in sorted(over)}


def parse_dimension(name: str, given: Any) -> Dimension:
  """Return what `given` describes: a text as in `FORMS`, or a sequence of numbers, which
  are choices.

  Raises:
    Mistake: it describes nothing, or an empty range.
  """
  wrong = Mistake(f"{name} is searched over {given!r:.100}: write {FORMS}")
  words = str(given).split() if isinstance(given, str) else []
  kinds, text = words[:-1], words[-1] if words else ""
  try:
    if low_high := text.partition("..") if ".." in text else None:
      low, _, high = low_high
      found = Dimension(float(low), float(high), "log" in kinds, "int" in kinds)
    else:
      listed = text.split(",") if isinstance(given, str) else [*given]
      choices = tuple(float(value) for value in listed)
      found = Dimension(min(choices), max(choices), choices=choices)
  except (TypeError, ValueError):
    raise wrong from None
  if {*kinds} - ({"log", "int"} if not found.choices else set()):
    raise wrong
  if not (math.isfinite(found.low) and math.isfinite(found.high)):
    raise wrong
  if found.choices:
    if len({*found.choices}) < max(2, len(found.choices)):
      raise Mistake(
        f"{name} has the choices {text or given}: give two or more, each once"
      )
  elif not found.low < found.high:
    raise Mistake(f"{name} goes from {low} to {high}: give a lower end below the upper")
  elif found.log and found.low <= 0:
    raise Mistake(f"{name} goes from {low} on a logarithmic scale: begin above 0")
  elif found.integer and not (found.low.is_integer() and found.high.is_integer()):
    raise Mistake(f"{name} goes from {low} to {high}: give whole numbers with int")
  return found


def random_trial(space: Space, seed: int, trial: int) -> dict[str, float]:
  """Return the values of one trial of a random search: a function of the search's seed
  and the trial's number alone.
  """
  draws = np.random.default_rng([seed, trial]).random(len(space))
  return {name: space[name].draw(u) for name, u in zip(space, draws, strict=True)}


def grid_sizes(space: Space, trials: int) -> dict[str, int]:
  """Return how many values each dimension has in a grid of so many trials: choices have
  all of theirs, all ranges equally many.

  Raises:
    Mistake: there is no such grid.
  """
  choices = math.prod(len(d.choices) for d in space.values() if d.choices)
  ranges = sum(not d.choices for d in space.values())
  each = round((trials / choices) ** (1 / ranges)) if ranges else 1
  if (ranges and each < 2) or choices * each**ranges != trials:
    below = max(2, int((trials / choices) ** (1 / max(1, ranges))))
    fitting = [choices * n**ranges for n in (below, below + 1)[: 1 + bool(ranges)]]
    raise Mistake(
      f"a grid of {trials} trials over {', '.join(space)}: give "
      f"{' or '.join(map(str, fitting))} trials, as many values of each range"
    )
  return {name: len(d.choices) or each for name, d in space.items()}


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
    of = space[name]
    if of.choices:
      axes.append([*of.choices])
      continue
    low, high = np.array(of.ends) + (rng.random(2) - 0.5) * step_of(of, count)
    axes.append([of.value(place) for place in np.linspace(low, high, count)])
  points = [*itertools.product(*axes)]
  order = rng.permutation(len(points))
  return [dict(zip(space, points[i], strict=True)) for i in order]


def step_of(of: Dimension, count: int) -> float:
  """Return the distance between a grid's `count` values, on the scale of draws."""
  low, high = of.ends
  return (high - low) / (count - 1)


def widest_ends(space: Space, sizes: Mapping[str, int]) -> dict[str, Sequence[float]]:
  """Return the lowest and the highest value that a search may draw by name. `sizes` are
  those of a noisy grid, whose ends vary; empty for other searches.
  """
  found: dict[str, Sequence[float]] = {}
  for name, of in space.items():
    reach = step_of(of, sizes[name]) / 2 if sizes and not of.choices else 0
    low, high = of.ends
    found[name] = of.choices or (of.value(low - reach), of.value(high + reach))
  return found
