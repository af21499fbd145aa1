"""Search hyperparameters: each trial is a run with values of its own, and many
independent searches are one campaign.

The rows of a folder say which search and trial each run is. Random search and noisy
grids draw all rows at once. Samplers of optuna go by rounds: each extends the folder by
the next trials of all searches. What a sampler is told is read from the folder, so after
an interruption it is asked and told everything again, and answers the same.
"""

import collections
import dataclasses
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import xarray as xr
from jaxtyping import Float, UInt32

from vmapseeds.campaign import loop
from vmapseeds.campaign.loop import Campaign
from vmapseeds.campaign.options import Options
from vmapseeds.campaign.planning import Plan, resolve_task
from vmapseeds.campaign.progress import INTERVAL
from vmapseeds.campaign.spaces import (
  Space,
  grid_sizes,
  noisy_grid,
  parse_space,
  random_trial,
  widest_ends,
)
from vmapseeds.mistakes import Mistake, at_least, door, one_of, say
from vmapseeds.results import description
from vmapseeds.results.formatting import show
from vmapseeds.results.opening import open_results
from vmapseeds.results.searches import (
  create_study,
  distributions_of,
  import_optuna,
  read_trials,
  tell,
)
from vmapseeds.store.files import Folder
from vmapseeds.store.folders import removed_if_unused
from vmapseeds.store.layout import read_verified_metadata
from vmapseeds.target import moves_data
from vmapseeds.training import objects
from vmapseeds.training.names import SAMPLER, TRIAL_COLUMNS
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import OUT_OF_BOOTSTRAP, Runs, as_runs
from vmapseeds.training.task import Task, bind, reads

SAMPLERS = ("random", "noisy_grid", "tpe")
FIRST_REPEAT = 2**31  # the seed of the first repeat, far from those of searches
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

  def next_rows(
    self, rows: Sequence[Row], objective: Float[np.ndarray, " rows"]
  ) -> list[Row]:
    """Return the rows that follow; none once all trials are there.

    Args:
      rows: all rows so far, which are trained.
      objective: of each row; NaN where it failed.
    """


@door
@moves_data
def search(
  task: Recipe | Task | str,
  over: Mapping[str, Any],
  *,
  trials: int = 50,
  searches: Runs | int = 20,
  sampler: str | Callable[[int], Any] = "random",
  at_once: int = 1,
  rungs: Sequence[int] = (),
  repeats: int = 0,
  objective: str | None = None,
  measure: str | None = None,
  out: Folder | None = None,
  **options: Any,
) -> xr.Dataset:
  """Search hyperparameters, many independent searches side by side, and return the
  results, as `open_results` does. Call it again to resume; with more trials or more
  searches it extends the folder.

  A trial is a run. All trials of a search have the search's seeds. Its data seed draws
  training, validation and test examples from all examples of the recipe's data set, as
  `Runs.out_of_bootstrap` does. The best trial is chosen by its validation examples and
  measured on its test examples. The source `sampler` is the seed of what is drawn from
  the space.

  Args:
    task: what to train: a recipe or a task, the name of a recipe, or an import string.
    over: what to search, by the name of a value that the recipe or the task declares:
      "log 1e-3..1", "0.5..0.99", "int 1..8", "log int 1..100", or choices: "1,2,4" or a
      list.
    trials: of each search.
    searches: how many, or the table with the seeds of each: `Runs.vary("sampler", 20)`
      varies only what is drawn from the space.
    sampler: "random"; "noisy_grid" (Bouthillier et al. 2021, appendix E.2); "tpe", which
      is optuna's; or a function that makes a sampler of optuna from a seed.
    at_once: how many trials of a search optuna's sampler is asked for in a round.
    rungs: epochs of shorter trainings before that of the recipe, ascending: successive
      halving (Jamieson and Talwalkar 2016), as each search trains all of its trials for
      the first of these epochs, and of every rung only the best for the next: their
      share is such that all rungs cost alike. Every rung trains anew, with a schedule of
      its own length. Only trials of all epochs are chosen from. Not for samplers of
      optuna.
    repeats: how often the best of each search is trained again, with other seeds of all
      sources, to set the variance between searches beside that between seeds.
    objective: the output that is optimised; by default that of the recipe on validation
      examples, or a task's first score.
    measure: the output that is reported of the best; by default that of the recipe on
      test examples, or a task's objective.
    out: the results folder, created if absent. It must be given.
    **options: the fields of `vs.Options`, as for `train`.

  Raises:
    Mistake: an argument is not valid; then nothing has been trained or changed.
    Failure: the disk is full, or cannot be written any more. What was written stays.
  """
  if out is None:
    raise Mistake(
      "out is not given: give the results folder, such as out='results/mine'"
    )
  space, given = parse_space(over), Options.of(**options)
  trials, at_once = at_least("trials", trials, 1), at_least("at_once", at_once, 1)
  repeats = at_least("repeats", repeats, 0)
  if not callable(sampler):
    one_of("sampler", sampler, SAMPLERS)
  task = resolve_task(task)
  lengths = check_rungs(task, rungs, sampler, space)
  seeds = as_runs(searches)
  seeds = with_splits(seeds) if isinstance(task, Recipe) else seeds
  grid = grid_sizes(space, trials) if sampler == "noisy_grid" else {}
  check_values(task, space, grid)
  about: dict[str, Any] = {
    "over": {name: [*of[:4], list(of.choices)] for name, of in space.items()},
    "sampler": sampler if isinstance(sampler, str) else objects.to_spec(sampler),
    "grid": grid,
    "rungs": lengths or None,
  }
  drawn_by: Sampler = (
    Drawn(space, sampler_seeds(seeds), trials, bool(grid), lengths[:1])
    if sampler in SAMPLERS[:2]
    else Asked(space, sampler_seeds(seeds), trials, sampler, at_once, str(out))
  )
  with removed_if_unused(out):
    rows, theirs = held_rows(out, about, len(seeds))
    rows = rows or drawn_by.next_rows([], np.empty(0))
    if given.seed_batch is None and not theirs:
      batch = max(given.lane_width or 1, min(loop.SEED_BATCH, len(rows)))
      given = dataclasses.replace(given, seed_batch=batch)
    while rows:
      plan = loop.plan_campaign(task, table_of(seeds, rows), out, given)
      about |= objectives(plan, objective, measure)
      check_search(plan, space, about, theirs, out)
      if isinstance(drawn_by, Asked):
        drawn_by.restart(about["higher_is_better"])
      campaign = loop.attach_folder(out, plan._replace(search=about))
      rows = train_rounds(campaign, seeds, rows, drawn_by, repeats)
  return open_results(out)


def check_rungs(
  task: Recipe | Task, rungs: Sequence[int], sampler: Any, space: Space
) -> list[float]:
  """Return the epochs of all rungs, the recipe's last; none without rungs.

  Raises:
    Mistake: they do not ascend to the recipe's, or there is nothing to shorten.
  """
  if not rungs:
    return []
  if not isinstance(task, Recipe) or "epochs" in space:
    raise Mistake(
      "rungs are epochs of a recipe: leave them out for a task, or where epochs are "
      "searched"
    )
  if sampler not in SAMPLERS[:2]:
    raise Mistake(
      "rungs shorten trials that are drawn at once: give the sampler random or "
      "noisy_grid, or leave rungs out"
    )
  lengths = [*(float(at_least("rungs", n, 1)) for n in rungs), float(task.epochs)]
  if any(short >= long for short, long in itertools.pairwise(lengths)):
    raise Mistake(
      f"rungs {list(rungs)} of a recipe of {task.epochs} epochs: give epochs that "
      "ascend, and fewer than the recipe's"
    )
  return lengths


def with_splits(seeds: Runs) -> Runs:
  """Return the searches' seeds, of which the data seed draws training, validation and
  test examples.

  Raises:
    Mistake: the table chooses training examples in another way.
  """
  if "subset" in seeds.values or (seeds.sampling or (OUT_OF_BOOTSTRAP,))[0] != (
    OUT_OF_BOOTSTRAP
  ):
    raise Mistake(
      "searches that choose their training examples: leave that out, or use "
      "Runs.out_of_bootstrap, which leaves some to validate and test on"
    )
  return seeds if seeds.sampling else seeds.out_of_bootstrap()


def sampler_seeds(seeds: Runs) -> Any:
  """Return the seed of each search's sampler."""
  return seeds.seeds.get(SAMPLER, seeds.others)


def check_values(task: Recipe | Task, space: Space, grid: Mapping[str, int]) -> None:
  """Raise `Mistake` unless the task declares the values, and allows all that may be
  drawn.
  """
  own = task.hyperparameters if isinstance(task, Recipe) else task.values
  for name, values in widest_ends(space, grid).items():
    one_of("value to search", name, own)
    for value in values:
      try:
        task.replace(**{name: value})
      except Mistake as mistake:
        why = ", as a noisy grid moves the ends by up to half a step" * bool(grid)
        raise Mistake(f"{name} may be drawn as {value:g}{why}: {mistake}") from None


def held_rows(
  out: Folder, about: Mapping[str, Any], searches: int
) -> tuple[list[Row], Mapping[str, Any]]:
  """Return the rows of an existing folder, and what it says is searched; nothing of a
  new one.

  Raises:
    Mistake: it holds something else.
  """
  if (root := read_verified_metadata(out)) is None:
    return [], {}
  if (theirs := root.get("search")) is None:
    raise Mistake(f"{out} holds runs of no search; {description.USE}")
  check_alike(out, theirs, about)
  runs, _ = description.campaign_of(out)
  columns = [runs.values[name].tolist() for name in TRIAL_COLUMNS]
  names = [*about["over"], *["epochs"] * bool(about["rungs"])]
  if (there := max(columns[0]) + 1) > searches:
    raise Mistake(f"{out} holds {there} searches, not {searches}: give as many or more")
  values = [runs.values[name].tolist() for name in names]
  rows = [
    Row(number, trial, dict(zip(names, of, strict=True)), repeat, round_)
    for number, trial, repeat, round_, *of in zip(*columns, *values, strict=True)
  ]
  return rows, theirs


def check_alike(out: Folder, theirs: Mapping[str, Any], mine: Mapping[str, Any]):
  """Raise `Mistake` if a folder's search differs from this one."""
  for name, value in mine.items():
    if theirs.get(name) != value:
      raise Mistake(
        f"{out} belongs to another search: its {name} is {theirs.get(name)!r}, not "
        f"{value!r}; {description.USE}"
      )


def objectives(plan: Plan, objective: str | None, measure: str | None):
  """Return which output is optimised, which is reported, and whether higher is better.

  Raises:
    Mistake: there are no such outputs, of one number a run.
  """
  name = plan.task.name
  there = {
    n: of
    for n, of in plan.stored.items()
    if of.role in ("score", "count") and not (plan.traced.shapes[n].shape or of.series)
  }
  scores = [n for n, of in there.items() if of.role == "score"]
  if not there:
    raise Mistake(
      f"{name} has no score to search by: declare one where the task does, such as "
      "outputs={'reward': vs.Output(role='score')}"
    )
  split = [n for n in scores if n.startswith("valid_")] if plan.runs.sampling else []
  objective = objective or (split or scores or [*there])[0]
  if measure is None:
    measure = objective.replace("valid_", "test_") if split else objective
  if f"valid_{objective}" in there and objective not in there:  # a metric's own name
    objective = f"valid_{objective}"
  if f"test_{measure}" in there and measure not in there:
    measure = f"test_{measure}"
  for what, given in (("objective", objective), ("output to measure", measure)):
    one_of(what, given, there)
  of = there[objective]
  return {
    "objective": objective,
    "measure": measure,
    "unit": of.unit,
    "higher_is_better": of.higher_is_better,
  }


def check_search(
  plan: Plan, space: Space, about, theirs: Mapping[str, Any], out: Folder
) -> None:
  """Raise `Mistake` if a trial would not depend on a value, or would be compiled for
  itself, or the folder has another objective.
  """
  for name, of in space.items():
    if name in plan.task.fixed and not of.choices:
      raise Mistake(
        f"{name} is read in Python by {plan.task.name}, so each value is compiled: give "
        "a few choices, such as 1,2,4"
      )
    if name not in plan.task.fixed and not reads(plan.traced, name):
      raise Mistake(
        f"{plan.task.name} does not read {name}: a search over it would train the same "
        "run again"
      )
  if theirs:
    check_alike(out, theirs, about)


def table_of(seeds: Runs, rows: Sequence[Row]) -> Runs:
  """Return the runs table of rows: the seeds of their searches, and of repeats."""
  own = {
    name: np.array([getattr(row, name) for row in rows], np.int32)
    for name in TRIAL_COLUMNS
  }
  runs, repeats = seeds[own["search"]], own["repeat"]
  again = (FIRST_REPEAT - 1 + repeats).astype(np.uint32)

  def seeded(column):
    return np.where(repeats > 0, again, column)

  columns = {name: np.array([r.values[name] for r in rows]) for name in rows[0].values}
  return dataclasses.replace(
    runs,
    seeds={source: seeded(column) for source, column in runs.seeds.items()},
    others=None if runs.others is None else seeded(runs.others),
    values=runs.values | columns | own,
  )


def train_rounds(
  campaign: Campaign, seeds: Runs, rows: list[Row], sampler: Sampler, repeats: int
) -> list[Row]:
  """Train all rows of a search, round after round. Return all rows if longer trainings
  are due, whose program is to be planned; else none.
  """
  plan, results, _ = campaign
  about, shown = plan.search or {}, plan.options.progress
  quiet = plan._replace(options=dataclasses.replace(plan.options, progress=False))
  objective = np.empty(0)
  said = time.monotonic()
  while True:
    drawn_once = isinstance(sampler, Drawn)
    if shown and drawn_once and not len(objective):
      done = int(results.done[: len(rows)].sum())
      what = loop.estimate_plan(plan, campaign.execution, results.block_runs, done)
      say(f"to train: {what}")
    loop.train_blocks(
      campaign if drawn_once else campaign._replace(plan=quiet), wait=True
    )
    new = np.arange(len(objective), len(rows))
    found = results.read(about["objective"], new).astype(np.float64)
    objective = np.append(objective, np.where(np.isfinite(found), found, np.nan))
    if shown and time.monotonic() - said > INTERVAL:
      said = time.monotonic()
      say(progress_line(rows, objective, about))
    more = sampler.next_rows(rows, objective)
    if not more and (longer := promoted(rows, objective, about)):
      return [*rows, *longer]
    more = more or missing_repeats(campaign, repeats, rows)
    if not more:
      return []
    rows = [*rows, *(row._replace(round=1 + rows[-1].round) for row in more)]
    runs = bind(plan.task, table_of(seeds, rows))
    with loop.writing(results.path):
      results.extend(len(runs), runs.columns())
    plan, quiet = plan._replace(runs=runs), quiet._replace(runs=runs)
    campaign = campaign._replace(plan=plan)
    check_extended(campaign)


def promoted(rows: Sequence[Row], objective, about: Mapping[str, Any]) -> list[Row]:
  """Return what the next rung trains: of each search the best trials of the rung before,
  that are not there yet. None if no rung lacks any.

  Of n trials of e epochs, n · e / E go on to E epochs, rounded down, but at least one;
  the first of equal ones. Trials that failed do not.
  """
  sign = 1 if about["higher_is_better"] else -1
  performance = np.where(np.isfinite(objective), sign * objective, -np.inf)
  for short, long in itertools.pairwise(about["rungs"] or ()):
    of_rung = collections.defaultdict[int, list[int]](list)
    there = set()
    for i, row in enumerate(rows):
      if not row.repeat and row.values["epochs"] == short:
        of_rung[row.search].append(i)
      there.add((row.search, row.trial, row.values["epochs"]))
    best = [
      rows[i]
      for of in of_rung.values()
      for i in sorted(of, key=lambda i: (-performance[i], rows[i].trial))[
        : max(1, int(len(of) * short // long))
      ]
      if np.isfinite(performance[i])
    ]
    longer = [
      row._replace(values={**row.values, "epochs": long}, round=1 + rows[-1].round)
      for row in best
      if (row.search, row.trial, long) not in there
    ]
    if longer:
      return sorted(longer, key=lambda row: (row.trial, row.search))
  return []


def check_extended(campaign: Campaign) -> None:
  """Raise `Mistake` if another process has extended the folder with other rows."""
  plan, results, _ = campaign
  for name, column in results.table().items():
    mine = plan.runs.columns()[name]
    if not np.array_equal(column[: len(mine)], mine):
      raise Mistake(
        f"{results.path} was extended by another process with another {name}: start "
        "both with the same arguments and the same optuna"
      )


def progress_line(rows: Sequence[Row], objective, about: Mapping[str, Any]) -> str:
  """Return how far the searches are, and the best objectives so far."""
  best: dict[int, float] = {}
  better = max if about["higher_is_better"] else min
  for row, value in zip(rows, objective, strict=False):
    if np.isfinite(value):
      best[row.search] = better(value, best.get(row.search, value))
  trials = 1 + max(row.trial for row in rows)
  line = f"{trials} trials of {1 + max(row.search for row in rows)} searches"
  if not best:
    return line
  ends = (
    show(end(best.values()), None, about["unit"] or "number") for end in (min, max)
  )
  return f"{line}, best {about['objective']} {' to '.join(ends)}"


def missing_repeats(campaign: Campaign, repeats: int, rows: Sequence[Row]) -> list[Row]:
  """Return the repeats of the best of each search that are not there yet."""
  if not repeats:
    return []
  trials = read_trials(campaign.results.path)
  there = {(row.search, row.trial, row.repeat) for row in rows}
  length = {"epochs": trials.about["rungs"][-1]} if trials.about["rungs"] else {}
  wanted = [
    Row(
      number,
      int(trials.trial[place]),
      trials.values_at(place) | length,
      repeat,
    )
    for repeat in range(1, repeats + 1)
    for number, place in trials.best().items()
  ]
  return [r for r in wanted if (r.search, r.trial, r.repeat) not in there]


class Drawn(NamedTuple):
  """Random search, or a noisy grid: all trials are drawn at once."""

  space: Space
  seeds: UInt32[np.ndarray, " searches"]
  trials: int
  grid: bool
  epochs: Sequence[float] = ()  # of the first rung, if there are rungs

  def next_rows(self, rows, objective) -> list[Row]:
    drawn = {(row.search, row.trial) for row in rows}
    have = collections.Counter(search for search, _ in drawn)
    more = {
      number: self._of_search(int(seed), have[number])
      for number, seed in enumerate(self.seeds)
    }
    length = {"epochs": self.epochs[0]} if self.epochs else {}
    new = [
      Row(number, trial, {**values, **length})
      for number, of in more.items()
      for trial, values in enumerate(of, have[number])
    ]
    return sorted(new, key=lambda row: (row.trial, row.search))

  def _of_search(self, seed, first):
    if self.grid:
      return noisy_grid(self.space, seed, self.trials)[first:]
    return [random_trial(self.space, seed, t) for t in range(first, self.trials)]


class Asked:
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
    self.told = 0  # how many rows
    self.asked: list[Any] = []  # optuna's trials of the rows after these

  def next_rows(self, rows, objective) -> list[Row]:
    untold = range(self.told, len(rows))
    for _, of in itertools.groupby(untold, key=lambda i: rows[i].round):
      trials = [i for i in of if not rows[i].repeat]
      asked = self.asked or [self._ask_again(rows[i]) for i in trials]
      for i, trial in zip(trials, asked, strict=True):
        tell(self.studies[rows[i].search], trial, objective[i])
      self.asked = []
    self.told = len(rows)
    have = collections.Counter(row.search for row in rows if not row.repeat)
    numbers = range(len(self.studies))
    drawn = [
      Row(number, have[number] + i, {})
      for i in range(self.at_once)
      for number in numbers
      if have[number] + i < self.trials
    ]
    self.asked = [self.studies[row.search].ask(self.distributions) for row in drawn]
    return [
      row._replace(values={name: float(v) for name, v in trial.params.items()})
      for row, trial in zip(drawn, self.asked, strict=True)
    ]

  def _ask_again(self, row: Row):
    trial = self.studies[row.search].ask(self.distributions)
    for name, value in row.values.items():
      if not np.isclose(trial.params[name], value, rtol=AGREEMENT, atol=0):
        raise Mistake(
          f"{self.out} has {name}={value!r} in trial {row.trial} of search {row.search}, "
          f"optuna {self.optuna.__version__} draws {trial.params[name]!r}: use the "
          "version that began these searches"
        )
    return trial
