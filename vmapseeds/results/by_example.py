"""A table of the test examples: which are hard, which divide the runs, and which are
likely mislabelled.
"""

import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from vmapseeds.mistakes import Mistake, door, one_of
from vmapseeds.results.opening import class_names_of, open_results, tally
from vmapseeds.results.statistics import roles, values_of_runs
from vmapseeds.stats._arrays import ratio
from vmapseeds.stats.counts import VoteCounts
from vmapseeds.store.files import Folder
from vmapseeds.store.layout import readable
from vmapseeds.target import moves_data
from vmapseeds.training.names import EXAMPLE_ID


@door
@moves_data
def examples(
  results: xr.Dataset | Folder,
  *,
  output: str | None = None,
  test_set: str = "test",
  epoch: int | None = None,
) -> xr.Dataset:
  """Return a table of the test examples over the runs that did not diverge.
  `examples(folder).to_dataframe()` is a table of pandas with a row for each example.

  Of an output of role class it has, each with the dimension `example`:

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

  Of an output of role loss it has `mean_loss`, `sd` between runs (NaN for one run),
  `rank_hard`, 0 for the largest mean, and `rank_split`, 0 for the largest standard
  deviation. More axes of examples are flattened.

  Classes are numbers; where they have names, the attribute `class_names` of the table
  has these, the first of class 0.

  Where a campaign has stored the votes of exactly these runs, no predictions are read.

  Args:
    results: a results folder, or what `open_results` returned for it, or some of its
      runs.
    output: the output of role class or loss; None for the first.
    test_set: which test set, if `results` is a folder.
    epoch: after which epoch, if `results` is a folder; None for the end.

  Raises:
    Mistake: no output has such a role or this name; no run is left; label maps differ
      between runs; or neither votes nor predictions were kept.
  """
  with readable(results if isinstance(results, Folder) else "the results' folder"):
    if isinstance(results, Folder):
      results = open_results(results, test_set, epoch)
    # A score is a number of a run, not of its examples.
    role_of_output = {
      name: attributes["role"]
      for name, attributes in roles(results).items()
      if attributes["role"] != "score"
    }
    if not role_of_output:
      raise Mistake(
        "these outputs have no numbers of examples: give results of role class or loss"
      )
    if output is None:
      output = next(iter(role_of_output))
    one_of("output of role class or loss", output, role_of_output)
    alive = np.isfinite(values_of_runs(results, output))
    if not alive.any():
      raise Mistake(
        f"no run is left: {len(alive)} are finished, and all of them diverged"
      )
    if role_of_output[output] == "loss":
      # Losses may have further axes, such as the tokens of a text.
      losses = results[output].values[alive]
      table = table_of_losses(losses.reshape(len(losses), -1))
      return table.assign_coords(ids_of(results, table.sizes["example"]))
    table = table_of_votes(tally(results))
    class_names = class_names_of(results.labels)
    if class_names:
      table.attrs["class_names"] = class_names
    # The table has the labels in a column of its own.
    columns_of_examples = {
      name: variable
      for name, variable in results.variables.items()
      if variable.dims == ("example",) and name != "labels"
    }
    return table.assign_coords(columns_of_examples)


def ids_of(results: xr.Dataset, count: int) -> dict[str, xr.Variable]:
  """Return the ids of the examples by the name that they have in results; empty if there
  are none.
  """
  if EXAMPLE_ID not in results.variables or results[EXAMPLE_ID].shape != (count,):
    return {}
  return {EXAMPLE_ID: results[EXAMPLE_ID].variable}


def table_of_votes(counts: VoteCounts) -> xr.Dataset:
  """Return the table of `examples` of the votes of one or more runs."""
  labels, runs, wrong, cells = counts.labels, counts.runs, counts.wrong, counts.cells
  first_classes, first_votes = counts.first_classes(1)
  most_voted, votes = first_classes[:, 0], first_votes[:, 0]
  first_wrong_classes, first_wrong_votes = counts.first_classes(1, ~cells.right)
  other_class, other_votes = first_wrong_classes[:, 0], first_wrong_votes[:, 0]

  # Pairs of runs, in both orders, that predict the same class; or both none.
  none = runs - counts.voted
  pairs_of_cell = cells.votes * (cells.votes - 1)
  of_a_class = np.bincount(cells.example, pairs_of_cell, len(labels))
  agreeing = of_a_class.astype(np.int64) + none * (none - 1)
  # Whole numbers are ranked, not shares: equal shares might differ in the last bit.
  margin = runs - wrong - other_votes
  columns = {
    "label": labels,
    "most_voted": np.where(votes > 0, most_voted, -1),
    "votes": votes,
    "error_rate": wrong / runs,
    "agreement": ratio(agreeing, runs * (runs - 1)),
    "other_class": np.where(other_votes > 0, other_class, -1),
    "other_share": other_votes / runs,
    "margin": margin / runs,
    "rank_hard": _ranks(margin, -wrong),
    "rank_split": _ranks(agreeing),
    "rank_mislabelled": _ranks(-other_votes),
  }
  return xr.Dataset({name: ("example", column) for name, column in columns.items()})


def table_of_losses(losses: Float[np.ndarray, "runs examples"]) -> xr.Dataset:
  """Return the table of `examples` of the losses of one or more runs."""
  mean = losses.mean(0, dtype=np.float64)
  # NumPy would warn of a standard deviation of one run.
  sd = np.full(len(mean), np.nan)
  if len(losses) > 1:
    sd = losses.std(0, ddof=1, dtype=np.float64)
  columns = {
    "mean_loss": mean,
    "sd": sd,
    "rank_hard": _ranks(-mean),
    "rank_split": _ranks(-sd),
  }
  return xr.Dataset({name: ("example", column) for name, column in columns.items()})


def _ranks(*keys: np.ndarray) -> Int[np.ndarray, " examples"]:
  """Return the place of each example in ascending order of the last key, then of those
  before it.
  """
  order = np.lexsort(keys)
  ranks = np.empty_like(order)
  ranks[order] = np.arange(len(order))
  return ranks
