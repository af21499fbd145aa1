"""Which classes runs take for which: how often, and in which share of their answers."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from upath import UPath

from vmapseeds import stats
from vmapseeds.errors import hide_own_frames, hide_own_frames_of_methods
from vmapseeds.reports.documents import Document, Section, Table
from vmapseeds.reports.examples_table import open_given
from vmapseeds.reports.findings import Findings
from vmapseeds.reports.groups import Where
from vmapseeds.results.formatting import finite_or_none, run_count, show, show_class
from vmapseeds.results.opening import class_names_of, tally
from vmapseeds.store.files import Folder
from vmapseeds.target import moves_data

NONE = "none"  # what stands for a run's answer that is no class
MOST_CLASSES = 12  # of a table with a column for each
SHOWN = 20  # confusions of more classes
TITLE = "Which class the runs predict for examples of each class"


@hide_own_frames_of_methods
class ConfusionMatrix(Findings):
  """Which classes runs take for which: what `vs.confusion` returns.

  `counts` and `rates` are frames with a row for each label and a column for each predicted
  class, and `none` for answers that are no class: how many answers of all runs, and their
  share of those for examples of the label. `print`, `save` and a notebook show the rates,
  of many classes the most frequent confusions.
  """

  def __init__(
    self,
    found: stats.Confusion,
    class_names: Sequence[str] | None,
    runs: int,
    name: str,
    folder: Path | UPath | None,
    call: str,
  ):
    count = len(found.counts)
    classes = [show_class(number, class_names) for number in range(count)]
    rows = pd.Index(classes, name="label")
    columns = pd.Index([*classes, NONE], name="predicted")
    self.counts = pd.DataFrame(found.counts, rows, columns)
    self.rates = pd.DataFrame(found.rates, rows, columns)
    super().__init__(
      confusion_document(found, classes, name, runs),
      {"rates": self.rates, "counts": self.counts},
      folder and folder / "confusion",
      call,
    )


@hide_own_frames
@moves_data
def confusion(
  results: xr.Dataset | Folder,
  *,
  where: Where = None,
  test_set: str = "test",
  epoch: int | None = None,
) -> ConfusionMatrix:
  """Return which classes the runs that did not diverge take for which. Nothing is printed
  or written.

  ::

    confusion = vs.confusion("results/a")
    confusion.rates  # a frame of pandas, a row for each label
    confusion.print()

  Of runs that hold examples out, such as those of `Runs.k_fold`, the answers are those on
  the examples that each held out. Where a campaign has stored the votes of exactly these
  runs, no predictions are read.

  Args:
    results: a results folder, or what `open_results` returned for it, or some of its
      runs.
    where: column -> value or values. Takes only the runs that have them.
    test_set: which test set, if `results` is a folder.
    epoch: after which epoch, if `results` is a folder; None for the end.

  Returns:
    a `ConfusionMatrix`: `rates` and `counts`; `print` and `save` it.

  Raises:
    UserError: there are no classes; label maps differ between runs; or neither votes nor
      predictions were kept.
  """
  opened, name, folder, call = open_given(
    "confusion", "confusion", results, where, test_set, epoch
  )
  tallies = tally(opened)
  class_names = class_names_of(opened["labels"])
  found = stats.confusion_matrix(tallies)
  return ConfusionMatrix(found, class_names, tallies.runs, name, folder, call)


def confusion_document(
  found: stats.Confusion, classes: Sequence[str], name: str, runs: int
) -> Document:
  """Return what there is to say of a confusion matrix."""
  table = table_of_confusion(found, classes)
  return Document(
    name="confusion",
    title=f"Confusion of classes of {name}",
    under=f"{run_count(runs)}, {len(classes)} classes",
    brief=[Section(tables=[table])],
    notes=(),
    sections=[Section(tables=[table])],
    record={
      "labels": list(classes),
      "predicted": [*classes, NONE],
      "counts": found.counts.tolist(),
      "rates": [[finite_or_none(rate) for rate in row] for row in found.rates],
    },
  )


def table_of_confusion(found: stats.Confusion, classes: Sequence[str]) -> Table:
  """Return the rates of all classes, or of many the most frequent confusions."""
  columns = [*classes, NONE]
  if len(classes) > MOST_CLASSES:
    return _table_of_most_frequent(found, columns)
  # A column of zeros would only take room.
  shown = [place for place, count in enumerate(found.counts.sum(0)) if count]
  shown = sorted({*shown, *range(len(classes))})
  rows = []
  for label, name in enumerate(classes):
    cells = [show(rate, None, "fraction") for rate in found.rates[label, shown]]
    rows.append([name, str(found.counts[label].sum()), *cells])
  headings = ["label", "answers", *(columns[place] for place in shown)]
  return Table(TITLE, headings, rows)


def _table_of_most_frequent(found: stats.Confusion, columns: Sequence[str]) -> Table:
  wrong = found.counts.copy()
  np.fill_diagonal(wrong, 0)
  first = np.argsort(-wrong, axis=None, kind="stable")[:SHOWN]
  rows = []
  for cell in zip(*np.unravel_index(first, wrong.shape), strict=True):
    if wrong[cell]:
      names = [columns[place] for place in cell]
      rate = show(found.rates[cell], None, "fraction")
      rows.append([*names, str(wrong[cell]), rate])
  headings = ("label", "predicted", "answers", "of the label's")
  return Table("The most frequent confusions of classes", headings, rows)
