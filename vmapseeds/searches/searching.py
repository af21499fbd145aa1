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
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from vmapseeds.campaign import block_loop, estimating, running, starting
from vmapseeds.campaign.options import Options
from vmapseeds.campaign.planning import Plan
from vmapseeds.campaign.progress import INTERVAL
from vmapseeds.campaign.starting import Campaign
from vmapseeds.errors import (
  UserError,
  check_at_least,
  check_one_of,
  hide_own_frames,
  say,
)
from vmapseeds.results import description
from vmapseeds.results.formatting import show
from vmapseeds.results.opening import open_results
from vmapseeds.searches.samplers import AskedOfOptuna, DrawnAtOnce, Row, Sampler
from vmapseeds.searches.spaces import (
  Dimension,
  Space,
  grid_sizes,
  parse_space,
  widest_ends,
)
from vmapseeds.searches.trials import (
  read_trials,
)
from vmapseeds.store import growing
from vmapseeds.store.files import Folder
from vmapseeds.store.folders import removed_if_unused
from vmapseeds.store.layout import read_verified_metadata
from vmapseeds.target import moves_data
from vmapseeds.training import objects
from vmapseeds.training.names import SAMPLER, TRIAL_COLUMNS
from vmapseeds.training.recipe_or_task import (
  epochs_of,
  has_dataset,
  own_values,
  resolve_task,
)
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import OUT_OF_BOOTSTRAP, Runs, as_runs
from vmapseeds.training.task import Task, bind_runs, depends_on_input

DRAWN_AT_ONCE = ("random", "noisy_grid")  # others go by rounds
SAMPLERS = (*DRAWN_AT_ONCE, "tpe")
FIRST_REPEAT = 2**31  # the seed of the first repeat, far from those of searches


@hide_own_frames
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
  seed_batch: int | None = None,
  lane_width: int | None = None,
  lowering: str | None = None,
  checkpoint_every: int | Literal["auto", "never"] | None = None,
  predictions: Literal["all", "none"] = "all",
  logits: bool = False,
  keep_params: bool = False,
  tallies: bool = True,
  pairs: bool = False,
  force_mixed: bool = False,
  allow_upgrade: bool = False,
  progress: bool = True,
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
    out: the results folder, created if absent; None for a temporary one, as for `train`.
    seed_batch, lane_width, lowering, checkpoint_every: as for `train`.
    predictions, logits, keep_params, tallies, pairs: as for `train`.
    force_mixed, allow_upgrade, progress: as for `train`.

  Raises:
    UserError: an argument is not valid; then nothing has been trained or changed.
    Failure: the disk is full, or cannot be written any more. What was written stays.
  """
  campaign_options = Options(
    seed_batch=seed_batch,
    lane_width=lane_width,
    lowering=lowering,
    checkpoint_every=checkpoint_every,
    predictions=predictions,
    logits=logits,
    keep_params=keep_params,
    tallies=tallies,
    pairs=pairs,
    force_mixed=force_mixed,
    allow_upgrade=allow_upgrade,
    progress=progress,
  )
  folder = out
  if folder is None:
    folder = running.temporary_folder()
  repeats = check_at_least("repeats", repeats, 0)
  design = make_design(task, over, trials, searches, sampler, at_once, rungs, folder)
  with removed_if_unused(folder):
    train_search(design, folder, campaign_options, repeats, objective, measure)
  results = open_results(folder)
  if out is None:
    results.load()
  return results


class Design(NamedTuple):
  """A search that has been checked, and has no folder yet.

  Attributes:
    task: what is trained.
    space: what is searched.
    seeds: of the searches.
    sampler: what draws the trials.
    searched: what is searched, ready for JSON.
  """

  task: Recipe | Task
  space: Space
  seeds: Runs
  sampler: Sampler
  searched: Mapping[str, Any]


def make_design(
  task: Recipe | Task | str,
  over: Mapping[str, Any],
  trials: int,
  searches: Runs | int,
  sampler: str | Callable[[int], Any],
  at_once: int,
  rungs: Sequence[int],
  out: Folder,
) -> Design:
  """Check the arguments of `search` and return what they ask for.

  Raises:
    UserError: an argument is not valid.
  """
  space = parse_space(over)
  trials = check_at_least("trials", trials, 1)
  at_once = check_at_least("at_once", at_once, 1)
  if not callable(sampler):
    check_one_of("sampler", sampler, SAMPLERS)
  task = resolve_task(task)
  lengths = check_rungs(task, rungs, sampler, space)
  seeds = as_runs(searches)
  if has_dataset(task):
    seeds = with_splits(seeds)
  grid: Mapping[str, int] = {}
  if sampler == "noisy_grid":
    grid = grid_sizes(space, trials)
  check_values(task, space, grid)

  drawn_by: Sampler
  if sampler in DRAWN_AT_ONCE:
    drawn_by = DrawnAtOnce(space, sampler_seeds(seeds), trials, bool(grid), lengths[:1])
  else:
    drawn_by = AskedOfOptuna(
      space, sampler_seeds(seeds), trials, sampler, at_once, str(out)
    )
  searched = {
    "over": {name: dimension_to_json(dimension) for name, dimension in space.items()},
    "sampler": sampler if isinstance(sampler, str) else objects.to_spec(sampler),
    "grid": grid,
    "rungs": lengths or None,
  }
  return Design(task, space, seeds, drawn_by, searched)


def train_search(
  design: Design,
  out: Folder,
  options: Options,
  repeats: int,
  objective: str | None,
  measure: str | None,
) -> None:
  """Train all trials of a search, and the repeats of the best."""
  rows, theirs = read_rows_in_folder(out, design.searched, len(design.seeds))
  # A folder that is resumed has rows, and more are drawn once these are trained.
  if not rows:
    rows = design.sampler.next_rows([], np.empty(0))
  if options.seed_batch is None and not theirs:
    # A round of a sampler is a block: more runs are never in training together.
    batch = max(options.lane_width or 1, min(starting.SEED_BATCH, len(rows)))
    options = dataclasses.replace(options, seed_batch=batch)
  while True:
    campaign = open_search(design, rows, out, options, theirs, objective, measure)
    campaign, rows, values = train_rounds(campaign, design, rows)
    longer = rows_of_next_rung(rows, values, campaign.plan.search or {})
    if not longer:
      break
    # They have more epochs, so another program, which is planned anew.
    rows = [*rows, *longer]
  # Last of all, when it is known which trials are best.
  missing = missing_repeats(campaign, repeats, rows)
  if missing:
    campaign, _ = add_rows(campaign, design.seeds, rows, missing)
    block_loop.train_blocks(campaign, wait=True)


def open_search(
  design: Design,
  rows: Sequence[Row],
  out: Folder,
  options: Options,
  theirs: Mapping[str, Any],
  objective: str | None,
  measure: str | None,
) -> Campaign:
  """Plan the training of rows, and create the folder or extend it.

  Raises:
    UserError: rows, task and outputs do not fit together, or the folder, of which
      `theirs` says what it searches, has another search.
  """
  table = runs_table_of(design.seeds, rows)
  plan = starting.plan_campaign(design.task, table, out, options)
  searched = {**design.searched, **objectives(plan, objective, measure)}
  check_search(plan, design.space, searched, theirs, out)
  # The direction is known once the task is planned.
  design.sampler.restart(searched["higher_is_better"])
  return starting.open_planned_campaign(out, plan._replace(search=searched))


def dimension_to_json(dimension: Dimension) -> list[Any]:
  """Return a dimension as a folder's description has it."""
  return [
    dimension.low,
    dimension.high,
    dimension.log,
    dimension.integer,
    list(dimension.choices),
  ]


def check_rungs(
  task: Recipe | Task,
  rungs: Sequence[int],
  sampler: Any,
  space: Space,
) -> list[float]:
  """Return the epochs of all rungs, the recipe's last; none without rungs.

  Raises:
    UserError: they do not ascend to the recipe's, or there is nothing to shorten.
  """
  if not rungs:
    return []
  all_epochs = epochs_of(task)
  if all_epochs is None or "epochs" in space:
    raise UserError(
      "rungs are epochs of a recipe: leave them out for a task, or where epochs are "
      "searched"
    )
  if sampler not in DRAWN_AT_ONCE:
    raise UserError(
      "rungs shorten trials that are drawn at once: give the sampler random or "
      "noisy_grid, or leave rungs out"
    )
  lengths = [float(check_at_least("rungs", epochs, 1)) for epochs in rungs]
  lengths.append(float(all_epochs))
  if any(short >= long for short, long in itertools.pairwise(lengths)):
    raise UserError(
      f"rungs {list(rungs)} of a recipe of {all_epochs} epochs: give epochs that "
      "ascend, and fewer than the recipe's"
    )
  return lengths


def with_splits(seeds: Runs) -> Runs:
  """Return the searches' seeds, of which the data seed draws training, validation and
  test examples.

  Raises:
    UserError: the table chooses training examples in another way.
  """
  way, _ = seeds.sampling or (OUT_OF_BOOTSTRAP, None)
  if "subset" in seeds.values or way != OUT_OF_BOOTSTRAP:
    raise UserError(
      "searches that choose their training examples: leave that out, or use "
      "Runs.out_of_bootstrap, which leaves some to validate and test on"
    )
  return seeds if seeds.sampling else seeds.out_of_bootstrap()


def sampler_seeds(seeds: Runs) -> Any:
  """Return the seed of each search's sampler."""
  # `others` seeds all sources that the table does not name.
  return seeds.seeds.get(SAMPLER, seeds.others)


def check_values(task: Recipe | Task, space: Space, grid: Mapping[str, int]) -> None:
  """Raise `UserError` unless the task declares the values, and allows all that may be
  drawn.
  """
  own = own_values(task)
  why = ""
  if grid:
    why = ", as a noisy grid moves the ends by up to half a step"
  for name, values in widest_ends(space, grid).items():
    check_one_of("value to search", name, own)
    # Each range is checked at its ends: what is allowed in between is not looked at.
    for value in values:
      try:
        task.replace(**{name: value})
      except UserError as mistake:
        raise UserError(f"{name} may be drawn as {value:g}{why}: {mistake}") from None


def read_rows_in_folder(
  out: Folder,
  mine: Mapping[str, Any],
  searches: int,
) -> tuple[list[Row], Mapping[str, Any]]:
  """Return the rows of an existing folder, and what it says is searched; nothing of a
  new one.

  Raises:
    UserError: it holds something else.
  """
  root = read_verified_metadata(out)
  if root is None:
    return [], {}
  theirs = root.get("search")
  if theirs is None:
    raise UserError(
      f"{out} holds runs of no search; {description.remedy_of_other_campaign()}"
    )
  check_same_search(out, theirs, mine)
  runs, _ = description.campaign_of(out)
  columns = [runs.values[name].tolist() for name in TRIAL_COLUMNS]
  names = list(mine["over"])
  if mine["rungs"]:
    names.append("epochs")
  count = max(columns[0]) + 1
  if count > searches:
    raise UserError(
      f"{out} holds {count} searches, not {searches}: give as many or more"
    )
  columns += [runs.values[name].tolist() for name in names]
  rows = []
  for number, trial, repeat, round_, *values in zip(*columns, strict=True):
    values_by_name = dict(zip(names, values, strict=True))
    rows.append(Row(number, trial, values_by_name, repeat, round_))
  return rows, theirs


def check_same_search(out: Folder, theirs: Mapping[str, Any], mine: Mapping[str, Any]):
  """Raise `UserError` if a folder's search differs from this one."""
  # What is not given yet, such as the objective, is compared once the task is planned.
  for name, value in mine.items():
    if theirs.get(name) != value:
      raise UserError(
        f"{out} belongs to another search: its {name} is {theirs.get(name)!r}, not "
        f"{value!r}; {description.remedy_of_other_campaign()}"
      )


def objectives(plan: Plan, objective: str | None, measure: str | None):
  """Return which output is optimised, which is reported, and whether higher is better.

  Raises:
    UserError: there are no such outputs, of one number a run.
  """
  candidates = {}
  for name, output in plan.stored.items():
    is_number = not plan.traced.shapes[name].shape and not output.series
    if output.role in ("score", "count") and is_number:
      candidates[name] = output
  if not candidates:
    raise UserError(
      f"{plan.task.name} has no score to search by: declare one where the task does, such as "
      "outputs={'reward': vs.Output(role='score')}"
    )
  scores = [name for name, output in candidates.items() if output.role == "score"]
  on_validation = []
  if plan.runs.sampling:
    on_validation = [name for name in scores if name.startswith("valid_")]
  if not objective:
    objective = (on_validation or scores or list(candidates))[0]
  if measure is None:
    measure = objective
    if on_validation:
      measure = objective.replace("valid_", "test_")
  # A metric may be given by its own name, without the examples that it is of.
  if objective not in candidates and f"valid_{objective}" in candidates:
    objective = f"valid_{objective}"
  if measure not in candidates and f"test_{measure}" in candidates:
    measure = f"test_{measure}"
  check_one_of("objective", objective, candidates)
  check_one_of("output to measure", measure, candidates)
  output = candidates[objective]
  return {
    "objective": objective,
    "measure": measure,
    "unit": output.unit,
    "higher_is_better": output.higher_is_better,
  }


def check_search(
  plan: Plan,
  space: Space,
  mine,
  theirs: Mapping[str, Any],
  out: Folder,
) -> None:
  """Raise `UserError` if a trial would not depend on a value, or would be compiled for
  itself, or the folder has another objective.
  """
  for name, dimension in space.items():
    is_compiled = name in plan.task.internal.fixed
    if is_compiled and not dimension.choices:
      raise UserError(
        f"{name} is read in Python by {plan.task.name}, so each value is compiled: give "
        "a few choices, such as 1,2,4"
      )
    if not is_compiled and not depends_on_input(plan.traced, name):
      raise UserError(
        f"{plan.task.name} does not read {name}: a search over it would train the same "
        "run again"
      )
  if theirs:
    check_same_search(out, theirs, mine)


def runs_table_of(seeds: Runs, rows: Sequence[Row]) -> Runs:
  """Return the runs table of rows: the seeds of their searches, and of repeats."""
  own = {
    name: np.array([getattr(row, name) for row in rows], np.int32)
    for name in TRIAL_COLUMNS
  }
  columns = {
    name: np.array([row.values[name] for row in rows]) for name in rows[0].values
  }
  # All trials of a search have its seeds, so that they differ in their values alone.
  runs = seeds[own["search"]]
  repeats = own["repeat"]
  # Repeats are counted from 1: a row of repeat 0 is the trial.
  seeds_of_repeats = (FIRST_REPEAT - 1 + repeats).astype(np.uint32)

  def reseed(column):
    return np.where(repeats > 0, seeds_of_repeats, column)

  return dataclasses.replace(
    runs,
    seeds={source: reseed(column) for source, column in runs.seeds.items()},
    others=None if runs.others is None else reseed(runs.others),
    values=runs.values | columns | own,
  )


class TrainedRows(NamedTuple):
  """Rows of a search that are trained, the campaign that has them all, and the objective
  of each, NaN where it failed.
  """

  campaign: Campaign
  rows: list[Row]
  objective: Float[np.ndarray, " rows"]


def train_rounds(campaign: Campaign, design: Design, rows: list[Row]) -> TrainedRows:
  """Train rows, then those that the sampler draws, round after round until it draws no
  more.
  """
  plan, results, _ = campaign
  sampler = design.sampler
  searched = plan.search or {}
  progress = plan.options.progress
  drawn_once = isinstance(sampler, DrawnAtOnce)
  # Where rounds are drawn one after another, only the next one is known.
  if progress and drawn_once:
    done = int(results.done[: len(rows)].sum())
    due = estimating.estimate_plan(
      campaign.plan, campaign.execution, results.block_runs, done
    )
    say(f"to train: {due}")
  if not drawn_once:
    # Each round is short. One line now and then says how far all of them are.
    quiet = dataclasses.replace(plan.options, progress=False)
    campaign = campaign._replace(plan=plan._replace(options=quiet))

  objective = np.empty(0)
  spoke = time.monotonic()
  while True:
    block_loop.train_blocks(campaign, wait=True)
    new = new_objectives(campaign, len(objective), len(rows))
    objective = np.append(objective, new)
    if progress and time.monotonic() - spoke > INTERVAL:
      spoke = time.monotonic()
      say(progress_line(rows, objective, searched))
    new_rows = sampler.next_rows(rows, objective)
    if not new_rows:
      return TrainedRows(campaign, rows, objective)
    campaign, rows = add_rows(campaign, design.seeds, rows, new_rows)


def add_rows(
  campaign: Campaign, seeds: Runs, rows: Sequence[Row], new_rows: Sequence[Row]
) -> tuple[Campaign, list[Row]]:
  """Extend a search by the rows of a new round. Return all of its rows, too."""
  next_round = 1 + rows[-1].round
  numbered = [row._replace(round=next_round) for row in new_rows]
  all_rows = [*rows, *numbered]
  return extend_campaign(campaign, runs_table_of(seeds, all_rows)), all_rows


def new_objectives(campaign: Campaign, first: int, stop: int):
  """Return the objective of runs `first` to `stop`, NaN where it failed."""
  searched = campaign.plan.search or {}
  runs = np.arange(first, stop)
  values = campaign.results.read(searched["objective"], runs)
  values = values.astype(np.float64)
  return np.where(np.isfinite(values), values, np.nan)


def extend_campaign(campaign: Campaign, table: Runs) -> Campaign:
  """Extend the folder to the runs of a table. Return the campaign with all of them.

  Raises:
    UserError: another process has extended it with other rows.
  """
  plan, results, _ = campaign
  runs = bind_runs(plan.task, table)
  with starting.wrap_disk_errors(results.path):
    growing.extend(results, len(runs), runs.columns())
  campaign = campaign._replace(plan=plan._replace(runs=runs))
  check_extended(campaign)
  return campaign


def rows_of_next_rung(
  rows: Sequence[Row], objective, searched: Mapping[str, Any]
) -> list[Row]:
  """Return what the next rung trains: of each search the best trials of the rung before,
  that are not there yet. None if no rung lacks any.

  Of n trials of e epochs, n · e / E go on to E epochs, rounded down, but at least one;
  the first of equal ones. Trials that failed do not.
  """
  performance = np.array(objective)
  if not searched["higher_is_better"]:
    performance = -performance
  # Trials that failed come last, also where a loss is NaN.
  performance[~np.isfinite(objective)] = -np.inf
  for short, long in itertools.pairwise(searched["rungs"] or ()):
    trained = {(row.search, row.trial, row.values["epochs"]) for row in rows}
    longer = []
    for place in best_of_rung(rows, performance, short, long):
      row = rows[place]
      if (row.search, row.trial, long) not in trained:
        values = {**row.values, "epochs": long}
        longer.append(row._replace(values=values, round=1 + rows[-1].round))
    if longer:
      return sorted(longer, key=lambda row: (row.trial, row.search))
  return []


def best_of_rung(
  rows: Sequence[Row],
  performance: np.ndarray,
  short: float,
  long: float,
) -> list[int]:
  """Return the places of the rows of `short` trainings that go on to `long` ones."""
  rung = collections.defaultdict[int, list[int]](list)
  for place, row in enumerate(rows):
    if not row.repeat and row.values["epochs"] == short:
      rung[row.search].append(place)
  best = []
  for places in rung.values():
    ranked = sorted(places, key=lambda place: (-performance[place], rows[place].trial))
    count = max(1, int(len(places) * short // long))
    best += [place for place in ranked[:count] if np.isfinite(performance[place])]
  return best


def check_extended(campaign: Campaign) -> None:
  """Raise `UserError` if another process has extended the folder with other rows."""
  plan, results, _ = campaign
  for name, column in results.table().items():
    mine = plan.runs.columns()[name]
    # Samplers draw the same rows in each process, unless their versions differ.
    if not np.array_equal(column[: len(mine)], mine):
      raise UserError(
        f"{results.path} was extended by another process with another {name}: start "
        "both with the same arguments and the same optuna"
      )


def progress_line(rows: Sequence[Row], objective, searched: Mapping[str, Any]) -> str:
  """Return how far the searches are, and the best objectives so far."""
  best: dict[int, float] = {}
  better = max if searched["higher_is_better"] else min
  # The last rows have no objective yet.
  for row, value in zip(rows, objective, strict=False):
    if np.isfinite(value):
      best[row.search] = better(value, best.get(row.search, value))
  trials = 1 + max(row.trial for row in rows)
  searches = 1 + max(row.search for row in rows)
  line = f"{trials} trials of {searches} searches"
  if not best:
    return line
  unit = searched["unit"] or "number"
  low = show(min(best.values()), None, unit)
  high = show(max(best.values()), None, unit)
  return f"{line}, best {searched['objective']} {low} to {high}"


def missing_repeats(campaign: Campaign, repeats: int, rows: Sequence[Row]) -> list[Row]:
  """Return the repeats of the best of each search that are not there yet."""
  if not repeats:
    return []
  trials = read_trials(campaign.results.path)
  # Repeats of the best are whole trainings.
  length: dict[str, float] = {}
  if trials.about["rungs"]:
    length["epochs"] = trials.about["rungs"][-1]
  existing = {(row.search, row.trial, row.repeat) for row in rows}
  missing = []
  for repeat in range(1, repeats + 1):
    for number, place in trials.best().items():
      row = Row(
        number, int(trials.trial[place]), trials.values_at(place) | length, repeat
      )
      if (row.search, row.trial, row.repeat) not in existing:
        missing.append(row)
  return missing
