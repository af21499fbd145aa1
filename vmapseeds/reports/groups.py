"""Chooses and groups runs by columns of the runs table: swept hyperparameters, pokes,
seeds.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Integer

from vmapseeds.mistakes import Mistake, one_of

Value = int | float
Where = (
  Mapping[str, Value | Sequence[Value]] | None
)  # column -> value or values; only runs that have them are taken
MOST_SHOWN = 8  # values of a column, in a line


class Group(NamedTuple):
  """Runs that agree in some columns of the runs table."""

  values: dict[str, Value]
  results: xr.Dataset


def columns(results: xr.Dataset) -> list[str]:
  """The columns of the runs table with one number per run, seeds last."""
  return sorted(
    (str(name) for name, column in results.coords.items() if column.dims == ("run",)),
    key=_is_drawn,
  )


def _is_drawn(column: str) -> bool:
  """Whether runs that differ in this column repeat one another: true of seeds, and of
  networks that runs start from.
  """
  return column.startswith("seed_") or column == "start"


def drawn(results: xr.Dataset) -> dict[str, Integer[np.ndarray, " runs"]]:
  """column -> its values, for the columns that set runs apart which repeat one another:
  seeds, and where runs start.
  """
  return {name: results[name].values for name in columns(results) if _is_drawn(name)}


def values_of(results: xr.Dataset, name: str) -> list[Value]:
  """The values of a column, ascending."""
  return [_number(value) for value in np.unique(results[name].values)]


def swept(results: xr.Dataset) -> dict[str, list[Value]]:
  """column -> its values, ascending, for the columns besides seeds that take several
  values.
  """
  found = {
    name: values_of(results, name) for name in columns(results) if not _is_drawn(name)
  }
  return {name: values for name, values in found.items() if len(values) > 1}


def chosen(results: xr.Dataset, where: Where) -> xr.Dataset:
  """The runs that have these values, or one of several, in each of these columns.

  Raises:
    Mistake: there is no such column, or no run has a value.
  """
  if not where:
    return results
  if not isinstance(where, Mapping):
    raise Mistake(
      f"the values wanted are {where!r:.100}: give column -> value or values, such as {{'lr': 0.02}}"
    )
  kept = np.ones(results.sizes["run"], bool)
  for name, wanted in where.items():
    _check_column(results, name)
    column = results[name].values
    try:
      # Hyperparameters are stored as float32: 0.1 means the float32 nearest to it.
      with np.errstate(over="ignore"):
        wanted = np.atleast_1d(wanted).astype(
          column.dtype if column.dtype.kind == "f" else np.float64
        )
      if not wanted.size:
        raise ValueError
    except (TypeError, ValueError):
      raise Mistake(
        f"{name} is {where[name]!r:.100}: give a number or several"
      ) from None
    for value in wanted:
      if value not in column:
        raise Mistake(
          f"no run has {name}={_text(value)}: {_listed(name, values_of(results, name))}"
        )
    kept &= np.isin(column, wanted)
  if not kept.any():
    raise Mistake(
      f"no run has {' and '.join(where)} as given: each value occurs, but not together"
    )
  return results.isel(run=np.flatnonzero(kept))


def grouped(
  results: xr.Dataset, by: str | Sequence[str] | None = None, where: Where = None
) -> list[Group]:
  """The chosen runs, one group for each combination of values of all swept columns, or
  only of those in `by`.

  Args:
    results: what `open_results` gives.
    by: columns of the runs table.
    where: as `chosen` takes it. Its columns that are left with one value name the
      groups too.

  Raises:
    Mistake: as `chosen`; or there is no such column in `by`.
  """
  by = by if by is None or np.ndim(by) else [str(by)]
  for name in by or ():
    _check_column(results, name)
  results = chosen(results, where)
  keys = swept(results) if by is None else by
  names = list(
    dict.fromkeys(
      [*(name for name in where or () if len(values_of(results, name)) == 1), *keys]
    )
  )
  if not names or not results.sizes["run"]:
    return [Group({}, results)]
  rows = np.stack([results[name].values.astype(np.float64) for name in names], axis=1)
  _, first, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
  return [
    Group(
      {name: _number(results[name].values[i]) for name in names},
      results.isel(run=np.flatnonzero(group == g)),
    )
    for g, i in enumerate(first)
  ]


def named(values: Mapping[str, Any]) -> str:
  """The values of a group as a name: "lr=0.02, momentum=0.9"; of several, "lr=0.01 or
  0.02".

  >>> named({"lr": 0.02, "momentum": [0.9, 0.95]})
  'lr=0.02, momentum=0.9 or 0.95'
  """
  return ", ".join(
    f"{name}={' or '.join(map(_text, np.atleast_1d(value)))}"
    for name, value in values.items()
  )


def check_not_pooled(results: xr.Dataset, where: Where, flag: str) -> None:
  """`Mistake` if runs of different swept values would be pooled, because `where` does
  not name the column.
  """
  for name, values in swept(results).items():
    if name not in (where or {}):
      raise Mistake(
        f"{_listed(name, values)}: choose, such as {flag} {name}={_text(values[0])}"
      )


def _check_column(results: xr.Dataset, name: str) -> None:
  there = columns(results)
  if not there:
    raise Mistake(
      f"unknown column {name!r}: these runs have no runs table, as they were imported"
    )
  one_of("column", name, there)


def _number(value: np.generic) -> Value:
  """The shortest number that means the same in its dtype: 0.1 for the float32 nearest
  to it.
  """
  return int(value) if value.dtype.kind in "iu" else float(str(value))


def _text(value: Any) -> str:
  return str(value).removesuffix(".0")


def run_count(n: int) -> str:
  return f"{n} run{'s' * (n != 1)}"


def _listed(name: str, values: Sequence[Value]) -> str:
  shown = ", ".join(map(_text, values[:MOST_SHOWN]))
  return f"{name} takes {shown}{f' and {len(values) - MOST_SHOWN} more values' * (len(values) > MOST_SHOWN)}"
