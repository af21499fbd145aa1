"""Single examples of a report: each with its input, label, votes and rates; and what the
page needs so that its reader can look for others.
"""

import base64
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.stats
import xarray as xr
from jaxtyping import Int

from vmapseeds.errors import shortened
from vmapseeds.reports import plots
from vmapseeds.reports.examples_table import MOST_LETTERS, OF_LOSSES, ORDERS
from vmapseeds.reports.pictures import ExampleInputs, show_input, tile_pictures
from vmapseeds.results.by_example import ids_of_results, table_of_votes
from vmapseeds.results.formatting import show, show_class
from vmapseeds.results.measured_runs import MeasuredRuns
from vmapseeds.results.units import seed_columns
from vmapseeds.stats.tallies import Tallies
from vmapseeds.training.names import EXAMPLE_ID

SHOWN_VOTES = 4  # classes of an example
# What the page may hold of examples that some run has wrong, the hardest first.
MOST_EXPLORED = 10_000
MOST_TILES = 2000
MOST_CONFUSIONS = 24
MOST_BINS = 24
MOST_RUNS = 20_000  # that are listed one by one
PAIRS = "Pairs of test examples that go wrong together"


class VoteShare(NamedTuple):
  """The share of the runs that predict a class."""

  name: str
  share: float
  right: bool


class Card(NamedTuple):
  """One example, or a pair: its inputs as HTML, what it is, votes and a sentence."""

  inputs: list[str]
  title: str
  votes: list[VoteShare]
  text: str


class Cards(NamedTuple):
  """Examples with something in common."""

  caption: str
  cards: list[Card]


def notable_cards(
  runs: MeasuredRuns, section: Mapping[str, Any], inputs: ExampleInputs
) -> list[Cards]:
  """Return the examples that `summarize_output` lists: the hardest, those that divide
  the runs, those that are likely mislabelled, and pairs that go wrong together.
  """
  inputs = _inputs_of_examples(inputs, section["examples"])
  titles = OF_LOSSES
  first_classes = None
  if runs.tallies is not None:
    titles = ORDERS
    first_classes = runs.tallies.first_classes(SHOWN_VOTES)

  groups = []
  for order, title in titles.items():
    rows = section.get(f"{order}_examples")
    if rows:
      cards = [_card(row, runs, first_classes, inputs) for row in rows]
      groups.append(Cards(title, cards))

  cards = [
    _pair(pair, runs, inputs)
    for pair in section.get("pairs", ())
    # Those below independence are right together less often, which is no riddle.
    if pair["joint"] > pair["product"]
  ]
  if cards:
    groups.append(Cards(PAIRS, cards))
  return groups


def _inputs_of_examples(inputs: ExampleInputs, examples: int) -> ExampleInputs:
  """Return the inputs, or none if they are of other examples than those of an output."""
  if inputs.values is not None and len(inputs.values) != examples:
    return ExampleInputs()
  return inputs


def _card(row, runs, first_classes, inputs):
  example = row["example"]
  pictures = [show_input(inputs, example)]
  name = name_of_example(example, runs)
  if runs.tallies is None:
    mean = show(row["mean_loss"], None, runs.of.unit)
    sd = show(row["sd"], None, runs.of.unit)
    text = f"loss {mean}, sd {sd} between runs"
    return Card(pictures, name, [], text)

  label = row["label"]
  wrong, agree = 100 * row["error_rate"], 100 * row["agreement"]
  text = f"wrong in {wrong:.1f} %, agree {agree:.1f} %"
  title = f"{name}, label {show_class(label, runs.class_names)}"
  classes, votes = first_classes
  asked = runs.tallies.times_asked[example]
  bars = _votes(classes[example], votes[example] / asked, label, runs)
  return Card(pictures, title, bars, text)


def _votes(
  classes: np.ndarray, shares: np.ndarray, label: int, runs: MeasuredRuns
) -> list[VoteShare]:
  return [
    VoteShare(show_class(number, runs.class_names), float(share), number == label)
    for number, share in zip(classes, shares, strict=True)
    # Of few classes some of the first have no vote.
    if share
  ]


def name_of_example(example: int, runs: MeasuredRuns) -> str:
  """Return what a page calls an example: its id, or its number."""
  ids = ids_of_results(runs.kept, runs.examples).get(EXAMPLE_ID)
  if ids is None:
    return f"#{example}"
  return shortened(str(ids.values[example]), MOST_LETTERS)


def _pair(pair, runs, inputs):
  i, j = pair["i"], pair["j"]
  # P(both wrong) = 1 - P(i right) - P(j right) + P(both right).
  both = 1 - pair["right_i"] - pair["right_j"] + pair["joint"]
  chance = 1 - pair["right_i"] - pair["right_j"] + pair["product"]
  titles = []
  for example in (i, j):
    label = show_class(runs.tallies.labels[example], runs.class_names)
    titles.append(f"{name_of_example(example, runs)}, label {label}")
  return Card(
    [show_input(inputs, i), show_input(inputs, j)],
    " and ".join(titles),
    [],
    f"both wrong in {100 * both:.1f} %, by chance in {100 * chance:.1f} %",
  )


def explorer_of(runs: MeasuredRuns, inputs: ExampleInputs) -> dict[str, Any]:
  """Return what the page's script needs, ready for JSON; arrays are bytes in base64,
  little-endian.

  Returns:
    `runs`; `class_names`, or None; `examples`, how many some run has wrong; `errors` of all runs; `surprising`,
    how many standard errors a difference may be by chance (Bonferroni); of those that the page holds `id`,
    `label`, `wrong`, `agree`, texts `ids` if they have some, and of the classes with the most votes `classes` and
    `votes`, one example after the other; `confusions`, label, class and votes of the
    most frequent; `bins`: edges of accuracy, how many runs are in each, and how many of
    these have each example `wrong`, if predictions are at hand, and of the single runs, in
    ascending order of `accuracy`, that, `number` and `seeds`; `tiles`, pictures of
    the first examples. Nothing of runs that are never wrong, whose votes cannot be
    pooled, or that were asked for different examples.
  """
  tallies = runs.tallies
  # The script takes shares of all runs.
  if tallies is None or not runs.pooled or runs.asked is not None:
    return {}
  if runs.runs < 2 or not tallies.wrong.any():
    return {}
  inputs = _inputs_of_examples(inputs, tallies.examples)
  ever_wrong = int((tallies.wrong > 0).sum())
  table = table_of_votes(tallies)
  # A page of all examples of a large test set would take long to open.
  count = min(ever_wrong, MOST_EXPLORED)
  first = np.argsort(table.rank_hard.values)[:count]
  classes, votes = tallies.first_classes(min(SHOWN_VOTES, tallies.classes))
  record = {
    "runs": tallies.runs,
    "class_names": runs.class_names,
    "examples": ever_wrong,
    "errors": int(tallies.wrong.sum()),
    # Two-sided, 5 % over all examples that the reader may look at.
    "surprising": float(scipy.stats.norm.isf(0.025 / ever_wrong)),
    "id": _packed(first),
    "label": _packed(tallies.labels[first]),
    "wrong": _packed(tallies.wrong[first]),
    "agree": _packed(table.agreement.values[first].astype(np.float32)),
    "classes": _packed(classes[first]),
    "votes": _packed(votes[first]),
    "confusions": _most_confused_classes(tallies),
  }
  ids = ids_of_results(runs.kept, runs.examples).get(EXAMPLE_ID)
  if ids is not None:
    record["ids"] = ids.values[first].tolist()
  if runs.predictions is not None:
    record["bins"] = _bins(runs, first)
  if inputs.extremes:
    # They are most of what a page weighs.
    pictured = first[:MOST_TILES].tolist()
    record["tiles"] = {"count": len(pictured), **tile_pictures(inputs, pictured)}
  return record


def _packed(array: np.ndarray) -> dict[str, str]:
  """Return an array as bytes for a typed array of JavaScript, and that array's name."""
  if array.dtype.kind == "f":
    name, dtype = "Float32Array", "<f4"
  else:
    # The smallest type, since these bytes are most of a page.
    bits = next(b for b in (8, 16, 32) if array.max(initial=0) < 2**b)
    name, dtype = f"Uint{bits}Array", f"<u{bits // 8}"
  text = base64.b64encode(array.astype(dtype).tobytes()).decode()
  return {"type": name, "bytes": text}


def _most_confused_classes(tallies: Tallies) -> list[list[int]]:
  """Return label, class and votes of the classes that are most often predicted wrongly."""
  cells, classes = tallies.cells, tallies.classes
  wrong = ~cells.right
  # Products of two numbers of classes overflow the labels' own type.
  label = tallies.labels[cells.example[wrong]].astype(np.int64)
  pair_of_cell = label * classes + cells.class_index[wrong]
  pairs, place = np.unique(pair_of_cell, return_inverse=True)
  # Sums of weights are floats, exact up to 2⁵³.
  votes = np.bincount(place, cells.votes[wrong], len(pairs)).astype(np.int64)
  order = np.argsort(-votes, kind="stable")[:MOST_CONFUSIONS]
  label, predicted = np.divmod(pairs[order], classes)
  return np.stack([label, predicted, votes[order]], axis=1).tolist()


def _bins(runs: MeasuredRuns, examples: Int[np.ndarray, " listed"]) -> dict[str, Any]:
  """Return the bins of the runs' accuracy, and the single runs if they are not too many."""
  predictions = runs.predictions
  # In one type, so that comparing them copies no predictions.
  labels = runs.tallies.labels.astype(predictions.dtype)
  accuracy = 1 - (predictions != labels).mean(1)
  edges = plots.bin_edges([accuracy], len(labels))
  # Whole numbers of the figure's bins, so that each still holds as many possible values.
  step = math.ceil((len(edges) - 1) / MOST_BINS)
  count = math.ceil((len(edges) - 1) / step)
  width = step * (edges[1] - edges[0])
  edges = edges[0] + width * np.arange(count + 1)
  bin_of_run = np.searchsorted(edges, accuracy) - 1

  wrong = []
  for place in range(count):
    wrong_in_bin = predictions[bin_of_run == place] != labels
    wrong.append(np.count_nonzero(wrong_in_bin, axis=0)[examples])
  record = {
    "edges": edges.tolist(),
    "runs": np.bincount(bin_of_run, minlength=count).tolist(),
    "wrong": _packed(np.stack(wrong)),
  }
  if len(accuracy) <= MOST_RUNS:
    record |= _single_runs(runs.kept, accuracy)
  return record


def _single_runs(kept: xr.Dataset, accuracy: np.ndarray) -> dict[str, Any]:
  """Return number, accuracy and seeds of each run, in ascending order of accuracy."""
  order = np.argsort(accuracy, kind="stable")
  numbers = np.arange(len(accuracy))
  # Runs that diverged are left out, and the others keep their numbers.
  if "run" in kept.coords:
    numbers = kept["run"].values
  columns = {}
  for column, values in seed_columns(kept).items():
    # Of runs that share a seed it says nothing of one of them.
    if len(np.unique(values)) > 1:
      columns[column.replace("_", " ")] = values
  # As in most campaigns: each run has one seed of all sources.
  seeds = list(columns.values())
  if len(seeds) > 1 and all(np.array_equal(seeds[0], values) for values in seeds):
    columns = {"seeds": seeds[0]}
  return {
    "number": _packed(numbers[order]),
    "accuracy": _packed(accuracy[order].astype(np.float32)),
    "seeds": {name: _packed(values[order]) for name, values in columns.items()},
  }
