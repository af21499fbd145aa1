"""A table of scores as runs: what `open_results` returns of a folder, made of a table with
a row for each run.

Columns have roles: scores; what varies, such as a model; seeds, which tell runs of one
kind apart; tasks, folds and steps. They are found by their names and types, or named.
What was understood is one line, and what can be understood in two ways is refused.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np
import pandas as pd
import xarray as xr

import vmapseeds
from vmapseeds.errors import UserError, check_one_of, option, wording
from vmapseeds.results.description import IMPORTED, netcdf_attributes
from vmapseeds.results.formatting import count_of
from vmapseeds.results.table_files import (
  is_whole,
  listed,
  numbers_of,
  read_table,
)
from vmapseeds.training.names import FOLD
from vmapseeds.training.runs import format_value

# Names by which columns are known, in lower case; the first that is there counts.
SEED_NAMES = (
  *("seed", "random_seed", "random_state", "rng_seed", "rng"),
  *("run", "run_id", "trial", "trial_id", "repeat", "repetition", "replicate", "rep"),
)
TASK_NAMES = (
  *("task", "dataset", "data_set", "env", "environment", "env_id", "env_name"),
  *("game", "problem", "benchmark"),
)
FOLD_NAMES = ("fold", "cv_fold", "fold_id", "split")
STEP_NAMES = ("step", "epoch", "iteration", "global_step", "timestep", "env_step")
# Words of names of scores of which lower is better.
LOWER_WORDS = {
  *("loss", "losses", "error", "errors", "err", "rmse", "mse", "mae", "mape", "rmsle"),
  *("nll", "logloss", "perplexity", "ppl", "brier", "ece", "regret"),
  *("wer", "cer", "fid", "time", "seconds", "latency", "cost"),
}
# What stands instead of a seed in rows that sum up others.
SUMMARY_WORDS = {
  *("mean", "average", "avg", "median", "std", "sd", "stdev", "stderr", "sem", "se"),
  *("var", "min", "max", "sum", "total", "all", "overall", "count", "ci95"),
}
TASK = "task"  # the role of a column
BEST, LAST = "best", "last"


class ScoreColumns(TypedDict, total=False):
  """What the columns of a table of scores are, where their names do not say it.

  Attributes:
    score: the columns with scores, of which the first is compared; by default the only
      column of numbers that has no other role.
    lower_is_better: whether lower scores are better; of several scores, the names of
      those. It must be said of a score whose name sounds so, such as rmse.
    seed: the columns that tell runs of one kind apart; by default `seed`, those that begin
      with `seed_`, or one called run, trial, repeat or alike. Runs of equal seeds are
      paired.
    task: the column with tasks; by default one called task, dataset, env or alike.
    fold: the column with folds of cross-validation; by default `fold` or alike. If it was
      repeated, the column of seeds is one called repeat, repetition or rep.
    step: the column with steps of learning curves; by default `step`, `epoch` or alike.
    at: at which step a run's score is taken: "last", "best" or a number.
    wide: whether each column of numbers is the scores of one kind, such as a model; or
      which of the columns are.
  """

  score: str | Sequence[str] | None
  lower_is_better: bool | str | Sequence[str] | None
  seed: str | Sequence[str] | None
  task: str | None
  fold: str | None
  step: str | None
  at: str | float
  wide: bool | Sequence[str]


class StepScores(NamedTuple):
  """The scores of runs at several steps.

  Attributes:
    frame: a row for each run and step, with the columns of the table.
    runs: the columns that tell runs of one kind apart, but for folds: tasks and seeds.
    task: the column with tasks.
    step: the column with steps.
  """

  frame: pd.DataFrame
  runs: list[str]
  task: str | None
  step: str


class ScoreTable(NamedTuple):
  """A table of scores, read.

  Attributes:
    name: what pages call it.
    results: as `open_results` returns them of a folder. The attribute `understood` is a
      line that says what the columns were taken for.
    by: the columns with what varies.
    folder: where its pages are saved; None of a frame.
    words: of the command that reads it.
    curves: the scores at each step, if runs have several.
  """

  name: str
  results: xr.Dataset
  by: list[str]
  folder: Path | None
  words: list[str]
  curves: StepScores | None = None

  def __str__(self) -> str:
    return self.name


class _Roles(NamedTuple):
  """Which columns are what."""

  scores: list[str]
  by: list[str]
  seeds: list[str]
  task: str | None
  fold: str | None
  step: str | None

  @property
  def cells(self) -> list[str]:
    """Return the columns that say which run a row is of."""
    single = [name for name in (self.task, self.fold) if name is not None]
    return [*self.by, *single, *self.seeds]


def read_scores(
  source: Any,
  by: str | Sequence[str] | None = None,
  where: Mapping[str, Any] | None = None,
  needed: Sequence[str] = (),
  **columns: Any,
) -> ScoreTable:
  """Return a table of scores as runs.

  Args:
    source: a frame of pandas or polars, or the path or URL of a file.
    by: the columns with what varies, such as "model"; by default columns of text that
      have no other role.
    where: column -> value or values: takes only the rows that have them.
    needed: columns that are kept with `by`, because runs are chosen by them.
    **columns: as in `ScoreColumns`.

  Raises:
    UserError: it cannot be read, or can be understood in two ways.
  """
  for column in columns:
    if column not in ScoreColumns.__optional_keys__:
      raise TypeError(f"unexpected keyword argument {column!r}")
  frame, remarks = read_table(source)
  frame.columns = pd.Index([str(name) for name in frame.columns])
  frame = _chosen_rows(frame, where)
  wide = columns.get("wide")
  if wide or isinstance(wide, list | tuple):
    frame, by, columns = _long(frame, by, columns)

  frame, summaries = _without_summaries(frame)
  if summaries:
    remarks.append(f"without {count_of(summaries, 'row')} that sum up others")
  roles = _roles_of(frame, _names(by), needed, columns)
  directions = score_directions(roles.scores, columns.get("lower_is_better"))
  frame, units = _with_numbers(frame, roles)
  curves: StepScores | None = None
  of_steps: list[str] = []
  if _has_steps(frame, roles):
    frame = _joined_steps(frame, roles)
    if roles.cells:
      runs = [name for name in (roles.task, *roles.seeds) if name is not None]
      curves = StepScores(frame, runs, roles.task, str(roles.step))
    frame, of_steps = _at_step(frame, roles, directions, columns.get("at", LAST))
  elif roles.seeds or roles.fold is not None:  # else rows are runs, in no order
    _check_different(frame, roles.cells, roles)
  used = (*roles.cells, *roles.scores, roles.step)
  unused = [name for name in frame if name not in used]
  if unused:
    remarks.append(f"not used: {listed(unused)}")

  name, folder = _name_of(source)
  results = _as_results(frame, roles, directions, units, name)
  results.attrs["understood"] = _describe(
    frame, roles, directions, [*of_steps, *remarks]
  )
  words = _words(source, roles, directions)
  return ScoreTable(name, results, roles.by, folder, words, curves)


def _words(source: Any, roles: "_Roles", directions: Mapping[str, bool]) -> list[str]:
  """Return the words of the command that reads a table so."""
  words = [os.fspath(source) if isinstance(source, str | os.PathLike) else "TABLE"]
  lower = [name for name in roles.scores if not directions[name]]
  flags = {
    "by": roles.by,
    "score": roles.scores,
    "lower_is_better": lower,
    "seed": roles.seeds,
  }
  for name, values in flags.items():
    if values:
      words += ["--" + name.replace("_", "-"), *values]
  return words


def _names(given: str | Sequence[str] | None) -> list[str] | None:
  if given is None:
    return None
  return [given] if isinstance(given, str) else [str(name) for name in given]


def _name_of(source: Any) -> tuple[str, Path | None]:
  """Return what a table is called, and the folder of its pages."""
  if not isinstance(source, str | os.PathLike):
    return "table", None
  text = os.fspath(source)
  name = text.rstrip("/").rpartition("/")[2]
  if "://" in text:
    return name, None
  stem = name.partition(".")[0] or name
  return name, Path(text).absolute().parent / f"{stem}_report"


def _chosen_rows(frame: pd.DataFrame, where: Mapping[str, Any] | None) -> pd.DataFrame:
  """Return the rows that have these values in these columns."""
  for name, condition in (where or {}).items():
    check_one_of("column", name, frame.columns)
    if isinstance(condition, str) or not np.iterable(condition):
      condition = [condition]
    wanted = [_text(value) for value in condition]
    column = frame[name].map(_text)
    for value in wanted:
      if value not in set(column):
        values = listed(sorted(set(column)))
        raise UserError(f"no row has {name}={value}: {name} takes {values}")
    frame = frame[column.isin(wanted)]
  if not len(frame):
    raise UserError(f"no row has {' and '.join(where or ())} as given")
  return frame.reset_index(drop=True)


def _text(value: Any) -> str:
  """Return a cell as a text, in which 1 and 1.0 are the same."""
  if isinstance(value, bool | np.bool_) or not isinstance(
    value, int | float | np.number
  ):
    return str(value).strip()
  return format_value(float(value))


# A column for each kind.


def _long(
  frame: pd.DataFrame, by: str | Sequence[str] | None, columns: Mapping[str, Any]
) -> tuple[pd.DataFrame, list[str], dict[str, Any]]:
  """Return a wide table as a long one: a row for each of its scores."""
  names = _names(by) or ["model"]
  scores = _names(columns.get("score")) or ["score"]
  if len(names) > 1 or len(scores) > 1:
    given = option("wide", True)
    raise UserError(
      f"{given} has one score and one thing that varies: give one name as "
      f"{option('by')} and as {option('score')}, such as model and rmse"
    )
  wide = columns["wide"]
  if wide is True:
    others: list[str] = []
    for role in ("seed", "task", "fold", "step"):
      others += _names(columns.get(role)) or ()
    known = (*SEED_NAMES, *TASK_NAMES, *FOLD_NAMES, *STEP_NAMES)
    wide = []
    for name in frame:
      is_other = name in others or _plain(name) in known or _is_seed_name(name)
      if not is_other and numbers_of(frame[name]) is not None:
        wide.append(name)
  for name in wide:
    check_one_of("column", name, frame.columns)
  if len(wide) < 2:
    raise UserError(
      f"the table has {count_of(len(wide), 'column')} of numbers besides seeds, tasks "
      f"and folds: a wide table has several; leave {option('wide')} out"
    )
  rest = [name for name in frame if name not in wide]
  long = frame.melt(rest, list(wide), var_name=names[0], value_name=scores[0])
  return long, names, {**columns, "score": scores, "wide": False}


# Roles.


def _plain(name: str) -> str:
  return re.sub(r"[\s.\-/]+", "_", name.strip().lower())


def _is_seed_name(name: str) -> bool:
  plain = _plain(name)
  return plain.startswith("seed_") or plain.endswith("_seed")


def _find(
  frame: pd.DataFrame, known: Sequence[str], taken: Sequence[str], whole: bool
) -> str | None:
  """Return the first column of a known name that has no other role; with `whole`, of
  whole numbers.
  """
  by_name = {_plain(name): name for name in reversed(list(frame))}
  for name in known:
    column = by_name.get(name)
    if column is None or column in taken:
      continue
    if whole:
      numbers = numbers_of(frame[column])
      if numbers is None or not is_whole(numbers):
        continue
    return column
  return None


def _roles_of(
  frame: pd.DataFrame,
  by: list[str] | None,
  needed: Sequence[str],
  columns: Mapping[str, Any],
) -> _Roles:
  """Return which columns are what: as given, or by their names and types."""
  given_scores = _names(columns.get("score"))
  given_seeds = _names(columns.get("seed"))
  single = {role: columns.get(role) for role in ("task", "fold", "step")}
  named = [*(by or ()), *needed, *(given_scores or ()), *(given_seeds or ())]
  named += [name for name in single.values() if name is not None]
  for name in named:
    check_one_of("column", name, frame.columns)
  taken = list(named)

  seeds = given_seeds
  if seeds is None:
    seeds = [name for name in frame if _is_seed_name(name) and name not in taken]
    plain = _find(frame, SEED_NAMES, taken, whole=False)
    # Numbers of runs say nothing beside seeds.
    if plain and (_plain(plain) == "seed" or not seeds):
      seeds = [plain, *(name for name in seeds if name != plain)]
  taken += seeds
  known = {"task": TASK_NAMES, "fold": FOLD_NAMES, "step": STEP_NAMES}
  for role, names in known.items():
    if single[role] is None:
      single[role] = _find(frame, names, taken, whole=role != "task")
      taken.append(single[role] or "")

  scores = given_scores or _guess_scores(frame, taken)
  taken += scores
  if by is None:
    repeats = [*seeds, *(name for name in single.values() if name)]
    by = [] if needed else _guess_by(frame, taken, repeats)
  by = [*by, *(name for name in needed if name not in by)]
  return _Roles(scores, by, seeds, single["task"], single["fold"], single["step"])


def _guess_scores(frame: pd.DataFrame, taken: Sequence[str]) -> list[str]:
  """Return the only column that can be a score.

  Raises:
    UserError: none can, or several can.
  """
  fractional: list[str] = []
  whole: list[str] = []
  for name in frame:
    numbers = None if name in taken else numbers_of(frame[name])
    if numbers is None or not numbers.notna().any():
      continue
    (whole if is_whole(numbers) else fractional).append(name)
  # Whole numbers are rather sizes or settings.
  candidates = fractional or whole
  if len(candidates) == 1:
    return candidates
  if not candidates:
    raise UserError(
      f"no column has numbers that can be scores, of {listed(list(frame))}: give "
      f"{option('score')}"
    )
  raise UserError(
    f"{listed(candidates)} may be scores, or values that vary, or, with "
    f"{option('wide', True)}, what varies: give one or several as {option('score')}"
  )


def _guess_by(
  frame: pd.DataFrame, taken: Sequence[str], repeats: Sequence[str]
) -> list[str]:
  """Return the columns of texts, with several values, that have no other role. Of these
  the ones are left out that `repeats`, such as seeds, and the others say already.
  """
  found = []
  for name in frame:
    if name in taken or numbers_of(frame[name]) is not None:
      continue
    values = frame[name].nunique(dropna=False)
    # A text of its own for each row is a note, a date or a path.
    if 1 < values < len(frame) or (values == len(frame) and values < 3):
      found.append(name)
  for name in reversed(found):
    rest = [*repeats, *(other for other in found if other != name)]
    if repeats and not frame.duplicated(rest).any():
      found.remove(name)
  return found


def score_directions(scores: Sequence[str], lower: Any) -> dict[str, bool]:
  """Return of each score whether higher is better.

  Raises:
    UserError: a name sounds as if lower were, and nothing is said of it.
  """
  if isinstance(lower, bool | np.bool_):
    if lower and len(scores) > 1:
      raise UserError(
        f"there are {len(scores)} scores, {listed(scores)}: name those of which lower is "
        f"better, such as {option('lower_is_better', scores[0])}"
      )
    return dict.fromkeys(scores, not lower)
  named = _names(lower)
  for name in named or ():
    check_one_of("score", name, scores)
  directions = {}
  for name in scores:
    words = set(re.split(r"[^a-z]+", _plain(name)))
    if named is None and words & LOWER_WORDS and not words & {"neg", "negative"}:
      raise UserError(
        f"{name} sounds as if lower were better: give "
        + wording(
          command=f"--lower-is-better {name}, or --higher-is-better",
          function=f"lower_is_better={name!r}, or False",
        )
      )
    directions[name] = name not in (named or ())
  return directions


# Cells.


def _without_summaries(frame: pd.DataFrame) -> tuple[pd.DataFrame, int]:
  """Return the rows that are of runs, and how many rows sum up others: they have "mean"
  or the like where others have a number.
  """
  is_summary = np.zeros(len(frame), bool)
  for name in frame:
    if pd.api.types.is_numeric_dtype(frame[name]):
      continue
    texts = frame[name].astype(str).str.strip().str.lower()
    is_word = texts.isin(SUMMARY_WORDS).to_numpy()
    if not is_word.any() or is_word.all():
      continue
    # Where others are texts, a pooling or a reduction may be called mean.
    if numbers_of(frame[name][~is_word]) is not None:
      is_summary |= is_word
  if not is_summary.any():
    return frame, 0
  frame = frame[~is_summary].reset_index(drop=True)
  return frame, int(is_summary.sum())


def _with_numbers(
  frame: pd.DataFrame, roles: _Roles
) -> tuple[pd.DataFrame, dict[str, str]]:
  """Return the table with scores as numbers, seeds and folds as whole numbers, and what
  varies as numbers or texts; and the units of scores.
  """
  frame = frame.copy()
  units = {}
  for name in roles.scores:
    numbers = numbers_of(frame[name])
    if numbers is None:
      raise UserError(_no_number(frame, name))
    units[name] = "number"
    if frame[name].astype(str).str.contains("%").any():
      # As accuracies are kept.
      units[name], numbers = "fraction", numbers / 100
    frame[name] = numbers
  for name in roles.cells:
    is_missing = frame[name].isna().to_numpy()
    if is_missing.any():
      raise UserError(
        f"row {is_missing.argmax() + 1} has nothing in {name}: fill it, or leave the row "
        "out"
      )
  for name in roles.seeds:
    frame[name] = _as_seeds(frame[name])
  for name in (roles.fold, roles.step):
    if name is not None:
      numbers = numbers_of(frame[name])
      if numbers is None or not is_whole(numbers):
        raise UserError(f"{name} has other than whole numbers: give another column")
      frame[name] = numbers.astype(np.int64)
  if roles.task is not None:
    frame[roles.task] = frame[roles.task].map(_text)
  for name in roles.by:
    numbers = numbers_of(frame[name])
    if numbers is None:
      numbers = frame[name].map(_text)
    frame[name] = numbers
  return frame, units


def _no_number(frame: pd.DataFrame, name: str) -> str:
  """Return what is wrong with a column that should be scores."""
  for row, cell in enumerate(frame[name]):
    if numbers_of(pd.Series([cell, 0.5], dtype=object)) is not None:
      continue
    text = str(cell)[:60]
    remedy = "give numbers only"
    if re.search(r"±|\+/-|\+-|\(", text):
      remedy = "that is a mean of runs: give a row with the score of each run"
    return f"{name} has {text!r} in row {row + 1}: {remedy}"
  return f"{name} has no numbers: give another {option('score')}"


def _as_seeds(column: pd.Series) -> np.ndarray:
  """Return seeds as whole numbers: texts by a digest, so that equal ones in two tables
  are equal.
  """
  numbers = numbers_of(column)
  if numbers is not None and is_whole(numbers):
    if pd.api.types.is_integer_dtype(column):
      return column.to_numpy(np.int64)
    return numbers.to_numpy(np.int64)
  digests = {}
  for text in set(column.map(_text)):
    content = hashlib.sha256(text.encode()).digest()[:8]
    digests[text] = int.from_bytes(content) >> 1  # below 2^63
  return column.map(_text).map(digests).to_numpy(np.int64)


def _has_steps(frame: pd.DataFrame, roles: _Roles) -> bool:
  """Return whether runs have several steps: rows of one kind that nothing tells apart are
  steps of one run.
  """
  if roles.step is None:
    return False
  return not roles.cells or bool(frame.groupby(roles.cells).size().max() > 1)


def _joined_steps(frame: pd.DataFrame, roles: _Roles) -> pd.DataFrame:
  """Return a row for each run and step, in the order of steps. Scores of one step may
  stand in rows of their own, as Lightning writes them.
  """
  at_steps = [*roles.cells, str(roles.step)]
  frame = frame.sort_values(roles.step, kind="stable")
  for name in roles.scores:
    _check_different(frame[frame[name].notna()], at_steps, roles)
  return frame.groupby(at_steps, as_index=False, sort=False).first()


def _at_step(
  frame: pd.DataFrame,
  roles: _Roles,
  directions: Mapping[str, bool],
  at: str | float,
) -> tuple[pd.DataFrame, list[str]]:
  """Return a row for each run, with its scores at a step, and what that step is.

  Raises:
    UserError: no run has that step.
  """
  cells, name = roles.cells, str(roles.step)
  runs = frame.groupby(cells or np.zeros(len(frame)), sort=False)
  if at in (LAST, BEST):
    # Of a column that is logged at other steps, the last that is there.
    how = dict.fromkeys(roles.scores, LAST)
    ends = runs[name].max()
    words = f"at the last {name}"
    if ends.nunique() > 1:
      words += f" of each run, {ends.min()} to {ends.max()}"
    if at == BEST:
      best = {True: "max", False: "min"}
      how = {score: best[directions[score]] for score in roles.scores}
      words = f"at the best {name} of each run, which is optimistic"
    return runs.agg(how).reset_index(drop=not cells), [words]

  step = pd.to_numeric(at, errors="coerce")
  if step not in frame[name].values:
    raise UserError(
      f"no run has {name} {at!s:.40}: give {option('at')} {LAST}, {BEST} or one of "
      f"{listed(sorted(frame[name].unique()))}"
    )
  words = f"at {name} {step:g}"
  lacking = frame[runs[name].transform(lambda steps: step not in steps.values)]
  lacking = lacking[cells].drop_duplicates()
  if len(lacking):
    named = [
      " ".join(f"{cell}={value}" for cell, value in zip(cells, row, strict=True))
      for row in lacking.itertuples(index=False)
    ]
    words += (
      f", without {len(lacking)} of {count_of(runs.ngroups, 'run')} that have none there: "
      f"{listed(named, 3)}"
    )
  return frame[frame[name] == step].reset_index(drop=True), [words]


def _check_different(frame: pd.DataFrame, cells: Sequence[str], roles: _Roles) -> None:
  """Raise `UserError` if two rows are of the same run, as far as columns say."""
  repeated = frame.duplicated(cells)
  if repeated.any():
    raise UserError(_two_rows(frame, cells, repeated, roles))


def _two_rows(
  frame: pd.DataFrame, cells: Sequence[str], repeated: pd.Series, roles: _Roles
) -> str:
  """Return what to do about two rows of one run: in what else they differ, or that one
  is there twice.
  """
  second = frame[repeated].iloc[0]
  alike = (frame[cells] == second[cells]).all(axis=1)
  rows = frame[alike]
  run = ", ".join(f"{name}={second[name]}" for name in cells)
  differing = [
    name
    for name in frame
    if name not in (*roles.cells, *roles.scores) and rows[name].nunique() > 1
  ]
  text = f"{count_of(len(rows), 'row')} have {run}"
  if not differing:
    return f"{text}: is one there twice? Leave it out, or tell them apart by a column"
  name = differing[0]
  value = rows[name].iloc[0]
  return (
    f"{text} and differ in {listed(differing)}: give {name} as {option('by')}, if it is "
    f"compared, or {option('seed')}, if it tells repeats apart, or {option('where')} "
    f"{name}={value}"
  )


# The line, and the runs.


def _describe(
  frame: pd.DataFrame,
  roles: _Roles,
  directions: Mapping[str, bool],
  remarks: Sequence[str],
) -> str:
  """Return what a table was understood to be, in a line."""
  factors, size = [], 1
  for name in roles.cells:
    count = frame[name].nunique()
    factors.append(_count_of_values(count, name))
    size *= count
  text = count_of(len(frame), "run")
  if factors:
    text = f"{text}: {' × '.join(factors)}"
  # Seeds of their own for each kind are no grid.
  if len(frame) < size <= 2 * len(frame):
    text = f"{text}, {size - len(frame)} of {size} not there"
  scores = []
  for name in roles.scores:
    words = []
    if not directions[name]:
      words.append("lower is better")
    missing = int(frame[name].isna().sum())
    if missing:
      words.append(f"missing in {count_of(missing, 'run')}")
    scores.append(f"{name} ({', '.join(words)})" if words else name)
  noun = "scores" if len(scores) > 1 else "score"
  text = f"{text}; {noun} {', '.join(scores)}"
  return "; ".join([text, *remarks])


def _count_of_values(count: int, name: str) -> str:
  # "3 models", but "3 values of class" and of "lr".
  if name.isalpha() and len(name) > 2 and not name.endswith(("s", "y", "x")):
    return count_of(count, name)
  return f"{count_of(count, 'value')} of {name}"


def _as_results(
  frame: pd.DataFrame,
  roles: _Roles,
  directions: Mapping[str, bool],
  units: Mapping[str, str],
  name: str,
) -> xr.Dataset:
  """Return a table's runs as `open_results` returns those of a folder."""
  columns: dict[str, tuple[str, dict[str, Any]]] = {
    column: (column, {"role": "column"}) for column in roles.by
  }
  if roles.task is not None:
    columns[roles.task] = (roles.task, {"role": TASK})
  if roles.fold is not None:
    columns[FOLD] = (roles.fold, {"role": "column"})
  for column in roles.seeds:
    seeds = _seed_name(column)
    columns[seeds] = (column, {"role": "seed", "source": seeds.removeprefix("seed_")})
  scores = {}
  for score in roles.scores:
    scores[score] = (score, score_attributes(directions[score], units[score]))
  attributes: dict[str, Any] = {
    "recipe": json.dumps({"name": name}),
    "test_sets": [],
    "num_classes": None,
    "sampling": None,
    "device_kind": IMPORTED,
    "versions": {"vmapseeds": vmapseeds.__version__},
    **dict.fromkeys(("lane_width", "lowering", "precision", "data_digest")),
  }
  return xr.Dataset(
    _of_runs(frame, scores),
    _of_runs(frame, columns),
    attrs=netcdf_attributes(attributes),
  )


def _of_runs(
  frame: pd.DataFrame, columns: Mapping[str, tuple[str, dict[str, Any]]]
) -> dict[str, Any]:
  """Return variables of xarray by name, of columns of a table and their attributes."""
  return {
    name: ("run", _array(frame[column]), attributes)
    for name, (column, attributes) in columns.items()
  }


def score_attributes(higher_is_better: bool, unit: str = "number") -> dict[str, Any]:
  """Return what an array with a score of each run means."""
  return {"role": "score", "higher_is_better": higher_is_better, "unit": unit}


def is_task(name: str) -> bool:
  """Return whether a column of texts has tasks, by its name."""
  return _plain(name) in TASK_NAMES


def _array(column: pd.Series) -> np.ndarray:
  # A dtype of pandas' own is not xarray's.
  values = column.to_numpy()
  return values.astype(str) if values.dtype == object else values


def _seed_name(column: str) -> str:
  # In a results folder the name says that they are seeds.
  if column == "seed" or column.startswith("seed_"):
    return column
  return f"seed_{column}"
