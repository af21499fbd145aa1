"""What reports are about: a results folder, or a table of scores."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr
from upath import UPath

from vmapseeds import removed
from vmapseeds.errors import UserError, option
from vmapseeds.results.opening import open_results
from vmapseeds.results.score_tables import ScoreTable, read_scores
from vmapseeds.results.table_files import is_table
from vmapseeds.store.files import Folder, as_folder

Source = Folder | pd.DataFrame | ScoreTable
MOST_READ = 2**28  # bytes of predictions that are read although counts are stored


def read_source(
  source: Any,
  by: str | Sequence[str] | None = None,
  where: Mapping[str, Any] | None = None,
  needed: Sequence[str] = (),
  columns: Mapping[str, Any] | None = None,
) -> Any:
  """Return a table of scores, read as `read_scores` does; a results folder as it is.

  Raises:
    UserError: columns are named of a results folder, which knows its own.
  """
  for name in columns or {}:
    if name in removed.ARGUMENTS:
      raise UserError(f"{name} is gone: {removed.ARGUMENTS[name]}")
  if is_table(source):
    return read_scores(source, by, where, needed, **(columns or {}))
  for name, value in (columns or {}).items():
    if value not in (None, False):
      raise UserError(
        f"{option(name)} is of a table of scores, and {source!s:.100} is none: leave it "
        f"out; {option('output')} chooses a score of a results folder"
      )
  return source


def open_source(
  source: Any, test_set: str = "test", epoch: int | None = None
) -> xr.Dataset:
  """Return the runs of a folder or a table as `open_results` does."""
  if not isinstance(source, ScoreTable):
    return open_results(source, test_set, epoch)
  if epoch is not None:
    raise UserError(
      f"{source} has no epochs to choose from: give {option('at')} instead"
    )
  return source.results


def how_read(results: Iterable[xr.Dataset]) -> list[str]:
  """Return how tables of scores were read, each once, a sentence each."""
  lines = dict.fromkeys(of_one.attrs.get("understood") for of_one in results)
  return [f"Read as {line}." for line in lines if line]


def report_folder(source: Any) -> Path | UPath | None:
  """Return the folder of the pages about runs; None for a frame."""
  if isinstance(source, ScoreTable):
    return source.folder
  return as_folder(source) / "report"
