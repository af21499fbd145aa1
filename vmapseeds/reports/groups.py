"""Select and group runs by columns of the runs table: swept hyperparameters, seeds."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from vmapseeds.errors import UserError, check_one_of, option
from vmapseeds.results.units import columns, is_seed
from vmapseeds.training.runs import as_text, as_values, format_value

Value = int | float | str
# Column -> value or values; only runs that have them are taken.
Where = Mapping[str, Value | Sequence[Value]] | None
MAX_SHOWN_VALUES = 8  # values of a column, in a line


class Group(NamedTuple):
  """Runs that agree in some columns of the runs table."""

  values: dict[str, Value]
  results: xr.Dataset


def values_of(results: xr.Dataset, name: str) -> list[Value]:
  """Return the values of a column, ascending."""
  return np.unique(results[name].values).tolist()


def swept_columns(results: xr.Dataset) -> dict[str, list[Value]]:
  """Return column -> its values, ascending, for the columns besides seeds that take
  several values.
  """
  swept = {}
  for name in columns(results):
    if not is_seed(results, name):
      values = values_of(results, name)
      if len(values) > 1:
        swept[name] = values
  return swept


def select_runs(results: xr.Dataset, where: Where) -> xr.Dataset:
  """Return the runs that have these values, or one of several, in each of these columns.

  Raises:
    UserError: there is no such column, or no run has a value.
  """
  if not where:
    return results
  if not isinstance(where, Mapping):
    raise UserError(
      f"the values wanted are {where!r:.100}: give column -> value or values, such as "
      "{'lr': 0.02}"
    )
  # A run is taken if all conditions hold.
  kept = np.ones(results.sizes["run"], bool)
  for name, condition in where.items():
    _check_column(results, name)
    values = values_of(results, name)
    by_text = {format_value(value): value for value in values}
    taken = []
    for value in _listed(name, condition):
      text = _as_shown(name, value, values)
      if text not in by_text:
        raise UserError(f"no run has {name}={text}: {_format_column(name, values)}")
      taken.append(by_text[text])
    kept &= np.isin(results[name].values, taken)
  # Of a grid that was not trained whole, some combinations have no run.
  if not kept.any():
    raise UserError(
      f"no run has {' and '.join(where)} as given: each value occurs, but not together"
    )
  return results.isel(run=np.flatnonzero(kept))


def _listed(name: str, condition: Value | Sequence[Value]) -> list[Value]:
  """Return the values that a condition lists: at least one."""
  # A text is a sequence, of letters.
  if isinstance(condition, str) or not np.iterable(condition):
    return [condition]
  if not len(condition):
    raise UserError(f"{name} is {condition!r:.100}: give a value or several")
  return list(condition)


def _as_shown(name: str, value: Value, values: Sequence[Value]) -> str:
  """Return a wanted value as those of a column are shown: 0.21 for 0.21000000000000002, and
  None or a number among texts by its word, as the command line and tables spell it.
  """
  if any(isinstance(known, str) for known in values):
    text = as_text(name, value)
    if text in values:
      return text
    return str(value)
  try:
    return format_value(as_values(np.array(value)).item())
  except (TypeError, ValueError):
    return str(value)


def group_runs(
  results: xr.Dataset, by: str | Sequence[str] | None = None, where: Where = None
) -> list[Group]:
  """Return the selected runs, a group for each combination of values of all swept
  columns, or only of those in `by`.

  Args:
    results: what `open_results` returns.
    by: columns of the runs table.
    where: as `select_runs` takes it. Its columns that are left with one value name the
      groups too.

  Raises:
    UserError: as `select_runs`; or there is no such column in `by`.
  """
  if by is not None:
    by = list(by) if np.ndim(by) else [str(by)]
    check_columns(results, by)
  results = select_runs(results, where)
  # They name the groups, although no group differs in them.
  names = [name for name in where or () if len(values_of(results, name)) == 1]
  names += swept_columns(results) if by is None else by
  names = list(dict.fromkeys(names))
  if not names or not results.sizes["run"]:
    return [Group({}, results)]

  table = results[names].to_dataframe().reset_index(drop=True)
  groups = []
  for _, rows in table.groupby(names):
    first = rows.index[0]
    # From the columns themselves: pandas would make a float of a whole number.
    values = {name: results[name].values[first].item() for name in names}
    groups.append(Group(values, results.isel(run=rows.index.to_numpy())))
  return groups


def format_values(values: Mapping[str, Any] | None) -> str:
  """Return the values of a group as a name: "lr=0.02, momentum=0.9"; of several,
  "lr=0.01 or 0.02".

  >>> format_values({"lr": 0.02, "momentum": [0.9, 0.95]})
  'lr=0.02, momentum=0.9 or 0.95'
  """
  # As the command line takes them, but for the comma, which ends a value here.
  texts = []
  for name, value in (values or {}).items():
    alternatives = " or ".join(map(format_value, np.atleast_1d(value)))
    texts.append(f"{name}={alternatives}")
  return ", ".join(texts)


def check_not_pooled(
  results: xr.Dataset, named: Collection[str], chosen_by: str
) -> None:
  """Raise if runs of different swept values would be pooled.

  Raises:
    UserError: a swept column is not `named`.
  """
  for name, values in swept_columns(results).items():
    if name not in named:
      value: Any = format_value(values[0])
      if not isinstance(values[0], str):
        value = json.loads(value)
      example = option(chosen_by, {name: value})
      raise UserError(f"{_format_column(name, values)}: choose, such as {example}")


def check_columns(results: xr.Dataset, names: Sequence[str]) -> None:
  """Raise `UserError` unless runs have these columns."""
  for name in names:
    _check_column(results, name)


def _check_column(results: xr.Dataset, name: str) -> None:
  known = columns(results)
  # "choose one of" nothing would help nobody.
  if not known:
    raise UserError(
      f"unknown column {name!r}: these runs have no runs table, as they were imported"
    )
  check_one_of("column", name, known)


def _format_column(name: str, values: Sequence[Value]) -> str:
  listed = ", ".join(format_value(value) for value in values[:MAX_SHOWN_VALUES])
  text = f"{name} takes {listed}"
  if len(values) > MAX_SHOWN_VALUES:
    text += f" and {len(values) - MAX_SHOWN_VALUES} more values"
  return text
