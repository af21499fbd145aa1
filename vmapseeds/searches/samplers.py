"""What draws the trials of a search: all at once, or by a sampler of optuna."""

import collections
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float, UInt32

from vmapseeds.errors import (
  UserError,
)
from vmapseeds.searches.spaces import (
  Space,
  noisy_grid,
  random_trial,
)
from vmapseeds.searches.trials import (
  create_study,
  distributions_of,
  import_optuna,
  tell,
)

AGREEMENT = 1e-9  # of values drawn again: processors may differ in the last bits


class Row(NamedTuple):
  """A run of a search: a trial, or a repeat of one, counted from 1, with other seeds.

  Trials of one round were drawn with the same knowledge: of the rounds before it.
  """

  search: int
  trial: int
  values: Mapping[str, float]
  repeat: int = 0
  round: int = 0


class Sampler(Protocol):
  """What draws the trials of all searches."""

  def restart(self, higher_is_better: bool) -> None:
    """Begin again, with nothing drawn, for an objective of this direction."""

  def next_rows(
    self,
    rows: Sequence[Row],
    objective: Float[np.ndarray, " rows"],
  ) -> list[Row]:
    """Return the rows that follow; none once all trials are there.

    Args:
      rows: all rows so far, which are trained.
      objective: of each row; NaN where it failed.
    """


class DrawnAtOnce(NamedTuple):
  """Random search, or a noisy grid: all trials are drawn at once."""

  space: Space
  seeds: UInt32[np.ndarray, " searches"]
  trials: int
  grid: bool
  epochs: Sequence[float] = ()  # of the first rung, if there are rungs

  def restart(self, higher_is_better: bool) -> None:
    """Do nothing: what is drawn follows from seeds and numbers alone."""

  def next_rows(self, rows, objective) -> list[Row]:
    # A trial has a row for each rung that it has reached, and for each repeat.
    drawn = {(row.search, row.trial) for row in rows}
    trials_of = collections.Counter(number for number, _ in drawn)
    length: dict[str, float] = {}
    if self.epochs:
      length["epochs"] = self.epochs[0]
    new_rows = []
    for number, seed in enumerate(self.seeds):
      first = trials_of[number]
      for trial, values in enumerate(self._of_search(int(seed), first), first):
        new_rows.append(Row(number, trial, {**values, **length}))
    # All searches advance together, so that an interruption leaves them equally long.
    return sorted(new_rows, key=lambda row: (row.trial, row.search))

  def _of_search(self, seed, first):
    """Return the values of a search's trials from number `first` on."""
    if self.grid:
      return noisy_grid(self.space, seed, self.trials)[first:]
    numbers = range(first, self.trials)
    return [random_trial(self.space, seed, number) for number in numbers]


class AskedOfOptuna:
  """Samplers of optuna, one a search, which are told every round before the next.

  Args:
    space: what is searched.
    seeds: of the samplers.
    trials: of each search.
    sampler: "tpe", or a function that makes a sampler from a seed.
    at_once: how many trials a search asks for in a round.
    out: the folder, for messages.
  """

  def __init__(
    self,
    space: Space,
    seeds: UInt32[np.ndarray, " searches"],
    trials: int,
    sampler: str | Callable[[int], Any],
    at_once: int,
    out: str,
  ):
    self.optuna = import_optuna(f"sampler {sampler!r:.100}")
    self.sampler = sampler if callable(sampler) else self._tpe
    self.seeds, self.trials, self.at_once, self.out = seeds, trials, at_once, out
    self.distributions = distributions_of(space)
    self.restart()

  def _tpe(self, seed):
    return self.optuna.samplers.TPESampler(seed=seed)

  def restart(self, higher_is_better: bool = True) -> None:
    """Begin again, with nothing asked or told."""
    self.studies = [
      create_study(higher_is_better, sampler=self.sampler(int(seed)))
      for seed in self.seeds
    ]
    self.rows_told = 0
    self.asked: list[Any] = []  # optuna's trials of the rows after these

  def next_rows(self, rows, objective) -> list[Row]:
    self._tell(rows, objective)
    trials_of = collections.Counter(row.search for row in rows if not row.repeat)
    drawn = []
    for i in range(self.at_once):
      for number in range(len(self.studies)):
        trial = trials_of[number] + i
        if trial < self.trials:
          drawn.append(Row(number, trial, {}))
    self.asked = [self.studies[row.search].ask(self.distributions) for row in drawn]
    new_rows = []
    for row, trial in zip(drawn, self.asked, strict=True):
      values = {name: float(value) for name, value in trial.params.items()}
      new_rows.append(row._replace(values=values))
    return new_rows

  def _tell(self, rows, objective):
    """Tell the studies the rows that they have not been told, round after round: each
    was drawn with the knowledge of those before.
    """
    places = range(self.rows_told, len(rows))
    for _, places_of_round in itertools.groupby(places, key=lambda i: rows[i].round):
      # Repeats are no trials of the sampler.
      trials = [place for place in places_of_round if not rows[place].repeat]
      # After an interruption, nothing was asked by this process.
      asked = self.asked or [self._ask_again(rows[place]) for place in trials]
      for place, trial in zip(trials, asked, strict=True):
        tell(self.studies[rows[place].search], trial, objective[place])
      self.asked = []
    self.rows_told = len(rows)

  def _ask_again(self, row: Row):
    # In the order of the first time, so that a sampler with the same seed answers the
    # same.
    trial = self.studies[row.search].ask(self.distributions)
    for name, value in row.values.items():
      if not np.isclose(trial.params[name], value, rtol=AGREEMENT, atol=0):
        raise UserError(
          f"{self.out} has {name}={value!r} in trial {row.trial} of search {row.search}, "
          f"optuna {self.optuna.__version__} draws {trial.params[name]!r}: use the "
          "version that began these searches"
        )
    return trial
