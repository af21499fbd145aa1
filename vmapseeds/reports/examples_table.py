"""Tables of single test examples, for pages and the terminal."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from vmapseeds.mistakes import at_least, one_of
from vmapseeds.reports.documents import Document, Section, Table
from vmapseeds.reports.groups import Where, select_runs
from vmapseeds.results.by_example import examples
from vmapseeds.results.formatting import finite_or_none, show, show_class
from vmapseeds.results.opening import open_results
from vmapseeds.store.files import Folder
from vmapseeds.training.names import EXAMPLE_ID

ORDERS = {
  "split": "The test examples on which runs agree least",
  "hard": "The test examples that most runs have wrong",
  "mislabelled": "The test examples of which most runs agree on another class than the "
  "label",
}
OF_LOSSES = {
  "hard": "The test examples with the largest mean loss",
  "split": "The test examples whose loss differs most between runs",
}
HEADINGS = {
  "example": "example",
  "label": "label",
  "most_voted": "voted",
  "error_rate": "wrong %",
  "agreement": "agree %",
  "margin": "margin %",
  "other_class": "other",
  "other_share": "other %",
  "mean_loss": "mean loss",
  "sd": "sd between runs",
}
CLASSES = ("label", "most_voted", "other_class")
SHARES = ("error_rate", "agreement", "margin", "other_share")
Row = dict[str, Any]  # numbers, or None; `id`, a text, if examples have ids


def rows_of(table: xr.Dataset, most: str, n: int) -> list[Row]:
  """Return the first `n` examples of `vs.examples` in an order, ready for JSON: of the
  hard ones those that any run has wrong, of those that split runs which do not agree,
  and of the mislabelled ones those of which most runs agree on another class.
  """
  first = np.argsort(table[f"rank_{most}"].values)[:n]
  listed = table.isel(example=first)
  if "label" in table:
    telling = {
      "hard": listed.error_rate > 0,
      "split": listed.agreement < 1,
      "mislabelled": listed.other_share > 0.5,
    }[most].values
    first = first[telling]
    listed = listed.isel(example=telling)

  names = [name for name in HEADINGS if name in listed.data_vars]
  columns = [listed[name].values.tolist() for name in names]
  rows = []
  for place, example in enumerate(first.tolist()):
    row: Row = {"example": example}
    for name, column in zip(names, columns, strict=True):
      row[name] = _ready_for_json(column[place])
    if EXAMPLE_ID in listed.coords:
      row["id"] = listed[EXAMPLE_ID].values[place].item()
    rows.append(row)
  return rows


def _ready_for_json(value: int | float) -> int | float | None:
  # Classes and counts stay whole numbers.
  if isinstance(value, int):
    return value
  return finite_or_none(value)


def table_of(
  rows: list[Row], most: str, class_names: Sequence[str] | None = None
) -> Table:
  """Return such rows as a table."""

  def cell(name: str, value: float | str | None) -> str:
    if isinstance(value, str):
      return value
    if name in ("mean_loss", "sd") or value is None:
      return show(value, None, "number")
    if name in SHARES:
      return f"{100 * value:.1f}"
    return show_class(value, class_names if name in CLASSES else None)

  titles = ORDERS
  names = ["example"]
  if rows:
    names = [name for name in rows[0] if name != "id"]
  if "mean_loss" in names:
    titles = OF_LOSSES
  cells = []
  for row in rows:
    values = dict(row)
    # Examples with ids of their own are called by these.
    values["example"] = row.get("id", row["example"])
    cells.append([cell(name, values[name]) for name in names])
  headings = [HEADINGS[name] for name in names]
  return Table(titles[most], headings, cells)


def first_examples(
  folder: Folder,
  *,
  most: str,
  n: int,
  where: Where,
  output: str | None,
  test_set: str,
  epoch: int | None,
) -> Document:
  """Return the examples of `vs.examples` that come first in an order.

  Raises:
    Mistake: there is no such order, or as `vs.examples`.
  """
  at_least("n", n, 1)
  one_of("order", most, ORDERS)
  results = select_runs(open_results(folder, test_set, epoch), where)
  table = examples(results, output=output)
  orders = ORDERS if "label" in table else OF_LOSSES
  one_of("order of losses", most, orders)

  rows = rows_of(table, most, n)
  section = Section(tables=[table_of(rows, most, table.attrs.get("class_names"))])
  if not rows:
    text = f"{folder} has no such examples: {ORDERS[most].lower()}"
    section = Section(sentences=[text])
  return Document(
    name="examples",
    title=orders[most],
    under=str(folder),
    brief=[section],
    notes=(),
    sections=[section],
    record=rows,
  )
