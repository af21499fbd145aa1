"""Tables of single test examples, for pages and the terminal."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from rich.console import Console
from upath import UPath

from vmapseeds.errors import (
  check_at_least,
  check_one_of,
  hide_own_frames,
  hide_own_frames_of_methods,
  shortened,
)
from vmapseeds.reports import plots, rendering
from vmapseeds.reports.documents import Document, Figure, Section, Table
from vmapseeds.reports.findings import (
  Findings,
  command_to_repeat,
)
from vmapseeds.reports.groups import Where, select_runs
from vmapseeds.reports.sources import report_folder
from vmapseeds.results.by_example import open_with_held_out, table_of_examples
from vmapseeds.results.formatting import show, show_class
from vmapseeds.store.files import Folder
from vmapseeds.target import moves_data
from vmapseeds.training.names import EXAMPLE_ID

SHOWN = 20  # examples of an order
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
OF_VOTES = {"split": ORDERS["split"]}
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
MOST_LETTERS = 60  # of an id in a table
Row = dict[str, Any]  # numbers, or None; `id`, a text, if examples have ids


def rows_of(table: xr.Dataset, most: str, n: int) -> list[Row]:
  """Return the first `n` examples of `vs.example_table` in an order, ready for JSON: of the
  hard ones those that any run has wrong, of those that split runs which do not agree,
  and of the mislabelled ones those of which most runs agree on another class.
  """
  # Ranks, as shares of many runs tie.
  first = np.argsort(table[f"rank_{most}"].values)[:n]
  listed = table.isel(example=first).assign_coords(example=first)
  # A list of examples that all runs have right would tell nothing.
  if "label" in table:
    telling = {
      "hard": listed.error_rate > 0,
      "split": listed.agreement < 1,
      "mislabelled": listed.other_share > 0.5,
    }[most].values
    listed = listed.isel(example=telling)

  names = [name for name in HEADINGS if name in listed.data_vars]
  numbers = pd.DataFrame({name: listed[name].values for name in names})
  # Classes and counts stay whole numbers.
  cells = numbers.astype(object).where(np.isfinite(numbers), None)
  cells.insert(0, "example", listed.example.values)
  if EXAMPLE_ID in listed.coords:
    cells["id"] = listed[EXAMPLE_ID].values
  return cells.to_dict("records")


def table_of_rows(
  rows: list[Row], most: str, class_names: Sequence[str] | None = None
) -> Table:
  """Return such rows as a table."""

  def cell(name: str, value: float | str | None) -> str:
    # An id of the user's.
    if isinstance(value, str):
      return shortened(value, MOST_LETTERS)
    if value is None:
      return show(value, None, "number")
    if name in CLASSES:
      return show_class(value, class_names)
    if name in SHARES:
      return f"{100 * value:.1f}"
    # The number of an example, or a count.
    if isinstance(value, int):
      return str(value)
    return show(value, None, "number")

  titles = ORDERS
  names = ["example"]
  if rows:
    names = [name for name in rows[0] if name != "id"]
  if "mean_loss" in names and "label" not in names:
    titles = OF_LOSSES
  cells = []
  for row in rows:
    values = dict(row)
    # Examples with ids of their own are called by these.
    values["example"] = row.get("id", row["example"])
    cells.append([cell(name, values[name]) for name in names])
  headings = [HEADINGS[name] for name in names]
  return Table(titles[most], headings, cells)


@hide_own_frames_of_methods
class ExampleTable(Findings):
  """The test examples: what `vs.example_table` returns.

  `table` is a frame with a row for each example, `dataset` the same in xarray. `figures`
  has "error_rates" or "losses". `print`, `save` and a notebook show the examples that come
  first.
  """

  def __init__(
    self, dataset: xr.Dataset, name: str, folder: Path | UPath | None, call: str
  ):
    self.dataset = dataset
    self._name = name
    document = examples_document(dataset, name)
    super().__init__(document, {"examples": dataset.to_dataframe()}, folder, call)

  def print(
    self,
    console: Console | None = None,
    *,
    most: str = "split",
    n: int = SHOWN,
  ) -> None:
    """Print the examples that come first in an order.

    Args:
      console: where to print; by default to the standard output.
      most: "split", where runs agree least; "hard", where most are wrong; "mislabelled",
        where most agree on another class than the label.
      n: the most examples to print.

    Raises:
      UserError: there is no such order, or `n` is below 1.
    """
    check_at_least("n", n, 1)
    orders = orders_of(self.dataset)
    what = "order" if "label" in self.dataset else "order of losses"
    check_one_of(what, most, orders)
    rows = rows_of(self.dataset, most, n)
    section = _section(self.dataset, most, rows)
    if not rows:
      text = f"{self._name} has no such examples: {orders[most].lower()}"
      section = Section(sentences=[text])
    document = self.document._replace(brief=[section])
    console = console or rendering.make_console()
    rendering.print_brief(document, console, self.page)


@hide_own_frames
@moves_data
def example_table(
  results: xr.Dataset | Folder,
  *,
  where: Where = None,
  output: str | None = None,
  test_set: str = "test",
  epoch: int | None = None,
) -> ExampleTable:
  """Return a table of the test examples over the runs that did not diverge. Nothing is
  printed or written.

  ::

    examples = vs.example_table("results/a")
    examples.table  # a frame of pandas, a row for each example
    examples.dataset  # the same in xarray, with the dimension `example`
    examples.print(most="hard", n=10)

  Of an output of role class it has the columns

  - `label`; `most_voted`, the class that most runs predict, the lowest on ties, -1 if
    no run predicts any; `votes`, how many runs predict it. `vs.tally(results).votes`
    has those of all classes.
  - `error_rate`, the share of runs that are wrong.
  - `agreement`, the share of pairs of runs that predict the same; NaN for one run. Its
    mean is 1 less the expected disagreement.
  - `other_class`, the class that most runs predict besides the label, the lowest on
    ties, -1 if there is none; `other_share`, the share of runs that predict it.
  - `margin`, the share of runs that are right less `other_share`.
  - `rank_hard`, 0 for the highest error rate and, among equal ones, the lowest margin;
    `rank_split`, 0 for the lowest agreement; `rank_mislabelled`, 0 for the highest
    `other_share`: where nearly all runs agree on another class, the label may be wrong.
    Examples that tie are ranked in their order.
  - `mean_loss`, where runs kept the losses of examples that they held out: by it
    `rank_mislabelled` goes there, the largest first. Votes of few runs tie; the loss also
    says how sure a run was of another class than the label.

  Of predictions without labels it has `most_voted`, `votes`, `agreement` and `rank_split`.

  Of an output of role loss it has `mean_loss`, `sd` between runs (NaN for one run),
  `rank_hard`, 0 for the largest mean, and `rank_split`, 0 for the largest standard
  deviation. More axes of examples are flattened.

  Where runs hold examples out (`Runs.k_fold`, `Runs.out_of_bootstrap`,
  `Runs.bootstrap`), or were not asked for all, the shares of an example are of the runs
  that were asked for it, `runs` of them, and NaN where there are none. Examples without
  such runs are ranked last.

  Classes are numbers; where they have names, the attribute `class_names` of the
  dataset has these, the first of class 0.

  Where a campaign has stored the votes of exactly these runs, no predictions are read.

  Args:
    results: a results folder, or what `open_results` returned for it, or some of its
      runs.
    where: column -> value or values. Takes only the runs that have them.
    output: the output of role class or loss; None for the first.
    test_set: which test set, if `results` is a folder.
    epoch: after which epoch, if `results` is a folder; None for the end.

  Returns:
    an `ExampleTable`: `table`, `dataset` and `figures`; `print` and `save` it.

  Raises:
    UserError: no output has such a role or this name; no run is left; label maps differ
      between runs; or neither votes nor predictions were kept.
  """
  opened, name, folder, call = open_given(
    "examples", "example_table", results, where, test_set, epoch
  )
  return ExampleTable(table_of_examples(opened, output), name, folder, call)


def open_given(
  command: str,
  function: str,
  results: xr.Dataset | Folder,
  where: Where,
  test_set: str,
  epoch: int | None,
) -> tuple[xr.Dataset, str, Path | UPath | None, str]:
  """Return chosen runs of a folder, or of what `open_results` returned; what they are
  called; where pages about them are saved; and the command, or the function, that finds the
  same again.
  """
  if not isinstance(results, Folder):
    # Of arrays in memory nobody knows where they are from.
    call = f"vmapseeds.{function}(results)"
    return select_runs(results, where), "these results", None, call
  call = command_to_repeat(
    command, [results], where=where, test_set=test_set, epoch=epoch
  )
  opened = open_with_held_out(results, test_set, epoch)
  return select_runs(opened, where), str(results), report_folder(results), call


def orders_of(dataset: xr.Dataset) -> dict[str, str]:
  """Return the orders of examples, with their titles."""
  if "label" in dataset:
    return ORDERS
  return OF_VOTES if "votes" in dataset else OF_LOSSES


def _section(dataset: xr.Dataset, most: str, rows: list[Row]) -> Section:
  """Return examples that come first in an order; without contents if there are none."""
  if not rows:
    return Section()
  return Section(tables=[table_of_rows(rows, most, dataset.attrs.get("class_names"))])


def examples_document(dataset: xr.Dataset, name: str) -> Document:
  """Return the examples that come first in each order."""
  record = {}
  sections = []
  for order in orders_of(dataset):
    record[order] = rows_of(dataset, order, SHOWN)
    sections.append(_section(dataset, order, record[order]))
  count = dataset.sizes["example"]
  # Without examples there are no axes to draw.
  if count:
    sections.append(Section("Figures", figures=_figures(dataset)))
  return Document(
    name="examples",
    title=f"Test examples of {name}",
    under=f"{count} examples",
    brief=sections[:1],
    notes=(),
    sections=sections,
    record=record,
  )


def _figures(dataset: xr.Dataset) -> dict[str, Figure]:
  if "label" not in dataset:
    if "mean_loss" not in dataset:
      return {}
    losses = dataset.mean_loss.values
    draw = functools.partial(plots.loss_histogram, losses)
    return {"losses": Figure("How large the loss of each example is", "", draw)}
  rates = dataset.error_rate.values
  # Examples that no run has held out have no rate.
  rates = rates[np.isfinite(rates)]
  draw = functools.partial(plots.error_rate_histogram, rates)
  return {"error_rates": Figure("How often each example is wrong", "", draw)}
