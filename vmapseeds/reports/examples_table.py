"""Tables of single test examples, for pages and the terminal."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from vmapseeds.mistakes import at_least, one_of
from vmapseeds.reports.groups import Where, select_runs
from vmapseeds.reports.pages import Table, terminal
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
  chosen = table.isel(example=first)
  if "label" in table:
    telling = {
      "hard": chosen.error_rate > 0,
      "split": chosen.agreement < 1,
      "mislabelled": chosen.other_share > 0.5,
    }[most].values
    first, chosen = first[telling], chosen.isel(example=telling)
  names = [name for name in HEADINGS if name in chosen.data_vars]
  columns = [first.tolist(), *(chosen[name].values.tolist() for name in names)]
  rows: list[Row] = [
    {
      name: value if isinstance(value, int) else finite_or_none(value)
      for name, value in zip(("example", *names), row, strict=True)
    }
    for row in zip(*columns, strict=True)
  ]
  if EXAMPLE_ID in chosen.coords:
    for row, text in zip(rows, chosen[EXAMPLE_ID].values.tolist(), strict=True):
      row["id"] = text
  return rows


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

  titles = OF_LOSSES if rows and "mean_loss" in rows[0] else ORDERS
  rows = [
    {
      n: row["id"] if n == "example" and "id" in row else row[n]
      for n in row
      if n != "id"
    }
    for row in rows
  ]
  headings = [HEADINGS[name] for name in (rows[0] if rows else ("example",))]
  cells = [[cell(name, value) for name, value in row.items()] for row in rows]
  return Table(titles[most], headings, cells)


def print_examples(
  folder: Folder,
  *,
  most: str,
  n: int,
  where: Where,
  output: str | None,
  test_set: str,
  epoch: int | None,
) -> None:
  """Print the examples of `vs.examples` that come first in an order."""
  at_least("n", n, 1)
  one_of("order", most, ORDERS)
  results = select_runs(open_results(folder, test_set, epoch), where)
  table = examples(results, output=output)
  one_of("order of losses", most, ORDERS if "label" in table else OF_LOSSES)
  rows = rows_of(table, most, n)
  if rows:
    names = table.attrs.get("class_names")
    return terminal().print(table_of(rows, most, names).for_terminal())
  print(f"{folder} has no such examples: {ORDERS[most].lower()}")
