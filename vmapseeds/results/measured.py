"""Metrics that were measured after the training, in files of a results folder beside what
was trained: `measured/<test set>.json`, read as outputs of role score.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from vmapseeds.errors import UserError
from vmapseeds.store.files import (
  Folder,
  as_folder,
  is_remote,
  parse_json,
  read,
  replace,
)
from vmapseeds.store.layout import Damage
from vmapseeds.training.names import MEASURED

WITHOUT_SETS = "results"  # the file's name, of a folder without test sets
INCOMPLETE = "measured_of_fewer"  # the attribute with metrics that some runs lack
REMEDY = "remove that file, and call vs.measure again"


def file_of(test_set: str) -> str:
  """Return where a folder keeps what was measured of a test set."""
  return f"{MEASURED}/{test_set or WITHOUT_SETS}.json"


def add_measured(
  path: Folder,
  test_set: str,
  rows: Int[np.ndarray, " runs"],
  metrics: Mapping[str, xr.Variable],
) -> None:
  """Write metrics of runs into their folder. Others of the same names are replaced.

  Args:
    path: the results folder.
    test_set: of which test set, empty of a folder without any.
    rows: (runs,), the rows of the runs table.
    metrics: (runs,) each, NaN for runs that diverged and where they are undefined.

  Raises:
    UserError: the folder cannot be written.
  """
  # Metrics that were measured before stay.
  kept = read_measured(path, test_set)
  for name, metric in metrics.items():
    # None for what is undefined: JSON has no NaN, and no numbers as keys.
    values = dict.fromkeys(map(str, rows.tolist()))
    for row, value in zip(rows.tolist(), metric.values.tolist(), strict=True):
      if np.isfinite(value):
        values[str(row)] = value
    higher = bool(metric.attrs["higher_is_better"])
    kept[name] = {"higher_is_better": higher, "values": values}
  file = as_folder(path) / file_of(test_set)
  try:
    # Object stores have no folders to make.
    if not is_remote(file):
      file.parent.mkdir(exist_ok=True)
    replace(file, json.dumps(kept))
  except OSError as error:
    raise UserError(
      f"{file} cannot be written ({error.strerror or error}): give vs.measure what "
      "vs.open_results returns, to add nothing to the folder"
    ) from error


def read_measured(path: Folder, test_set: str) -> dict[str, Any]:
  """Return what `add_measured` wrote, empty if it wrote nothing.

  Raises:
    Damage: the file holds something else.
  """
  name = file_of(test_set)
  try:
    text = read(as_folder(path) / name)
    if text is None:
      return {}
    kept = parse_json(text)
    # What is no number would fail later, where nothing tells the file's name.
    for metric in kept.values():
      for value in metric["values"].values():
        float(value or 0)
      metric["higher_is_better"] = bool(metric["higher_is_better"])
  except (ValueError, TypeError, KeyError, AttributeError) as error:
    raise Damage(path, f"{name} holds no metrics", REMEDY) from error
  return kept


def with_measured(
  opened: xr.Dataset, path: Folder, test_set: str, rows: Int[np.ndarray, " runs"]
) -> xr.Dataset:
  """Return opened results with the metrics that were measured of all their runs. The
  attribute `measured_of_fewer` names others.
  """
  columns = {}
  incomplete = []
  for name, metric in read_measured(path, test_set).items():
    values = metric["values"]
    # JSON has texts as keys. Runs that were trained since are not measured yet.
    if not all(str(row) in values for row in rows.tolist()):
      incomplete.append(name)
    elif name not in opened.variables:
      attributes = {"role": "score", "higher_is_better": metric["higher_is_better"]}
      columns[name] = xr.Variable(("run",), _column(values, rows), attributes)
  if incomplete:
    opened = opened.assign_attrs({INCOMPLETE: incomplete})
  return opened.assign(columns)


def _column(
  values: Mapping[str, Any], rows: Int[np.ndarray, " runs"]
) -> Float[np.ndarray, " runs"]:
  # JSON has no NaN: what is undefined is null, which becomes NaN.
  return np.array([values[str(row)] for row in rows.tolist()], float)
