"""List the results folders below a folder."""

import json
import os
from pathlib import Path

import numpy as np

from vmapseeds.errors import Failure, UserError, one_line
from vmapseeds.reports import groups
from vmapseeds.reports.documents import Table
from vmapseeds.results.formatting import show
from vmapseeds.results.measured_runs import quantity_of, roles, values_of_runs
from vmapseeds.results.opening import open_results
from vmapseeds.store.files import Folder, as_folder, is_remote
from vmapseeds.store.layout import ROOT, read_metadata
from vmapseeds.store.results import Results

HEADINGS = ("folder", "recipe", "values", "done", "mean ± sd of a run", "last written")


def list_results(folder: Folder) -> Table:
  """Return a table of the results folders in a folder, at any depth: recipe, values that
  differ between runs, how many runs are done, the mean and standard deviation of the
  first output, and when the last block was written, in UTC.

  Raises:
    UserError: there is no such folder, or it holds no results.
  """
  top = as_folder(folder)
  if is_remote(top) or not top.is_dir():
    raise UserError(f"{folder} is no folder on this machine: give one")
  rows = []
  for path, subfolders, files in os.walk(top):
    # In place: `os.walk` goes on with what is left in this list.
    subfolders.sort()
    if ROOT in files and read_metadata(path):
      subfolders.clear()
      rows.append((os.path.relpath(path, top), *_row(Path(path))))
  if not rows:
    raise UserError(f"{folder} holds no results: give a folder that has some in it")
  return Table("", HEADINGS, rows)


def _row(path: Path) -> tuple[str, ...]:
  try:
    results = Results(path)
    opened = open_results(path)
    finished = sorted(results.finished_blocks())
    # Records of earlier versions have no time.
    written = "–"
    if finished:
      record = results.record(finished[-1]) or {}
      written = str(record.get("when", written))
    # In UTC, so without the difference to it.
    written = written.partition("+")[0].replace("T", " ")
    done = str(opened.sizes["run"])
    if opened.sizes["run"] < len(results):
      done += f" of {len(results)}"
    name = json.loads(results.root["recipe"])["name"]
    return str(name), _swept_values(opened), done, _mean(opened), written
  # One damaged folder does not hide the others.
  except (UserError, Failure) as error:
    return "–", one_line(error)[:100], "–", "–", "–"


def _swept_values(opened) -> str:
  columns = []
  for name, values in groups.swept_columns(opened).items():
    text = groups.format_values({name: values[: groups.MAX_SHOWN_VALUES]})
    if len(values) > groups.MAX_SHOWN_VALUES:
      text += " or more"
    columns.append(text)
  return ", ".join(columns)


def _mean(opened) -> str:
  try:
    name, info = next(iter(roles(opened).items()))
  except UserError:
    return "–"
  values = values_of_runs(opened, name)
  values = values[np.isfinite(values)]
  if not len(values):
    return "–"
  unit = quantity_of(name, info).unit
  sd = None
  if len(values) > 1:
    sd = float(values.std(ddof=1))
  return show(float(values.mean()), sd, unit)
