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
    about = {n: a["role"] for n, a in roles(results).items() if a["role"] != "score"}
    if not about:
      raise Mistake(
        "these outputs have no numbers of examples: give results of role class or loss"
      )
    output = next(iter(about)) if output is None else output
    one_of("output of role class or loss", output, about)
    alive = np.isfinite(values_of_runs(results, output))
    if not alive.any():
      raise Mistake(
        f"no run is left: {len(alive)} are finished, and all of them diverged"
      )
    if about[output] == "loss":
      losses = results[output].values[alive]
      table = table_of_losses(losses.reshape(len(losses), -1))
      return table.assign_coords(ids_of(results, table.sizes["example"]))
    table = table_of_votes(tally(results))
    if names := class_names_of(results.labels):
      table.attrs["class_names"] = names
    beside = (n for n, x in results.variables.items() if x.dims == ("example",))
    return table.assign_coords(
      {name: results[name].variable for name in beside if name != "labels"}
    )


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
  most_voted, most = (x[:, 0] for x in counts.first_classes(1))
  other_class, other = (x[:, 0] for x in counts.first_classes(1, ~cells.right))
  none = runs - counts.voted
  alike = np.bincount(cells.example, cells.votes * (cells.votes - 1), len(labels))
  agreeing = alike.astype(np.int64) + none * (none - 1)
  margin = runs - wrong - other
  columns = {
    "label": labels,
    "most_voted": np.where(most > 0, most_voted, -1),
    "votes": most,
    "error_rate": wrong / runs,
    "agreement": ratio(agreeing, runs * (runs - 1)),
    "other_class": np.where(other > 0, other_class, -1),
    "other_share": other / runs,
    "margin": margin / runs,
    "rank_hard": _ranks(margin, -wrong),
    "rank_split": _ranks(agreeing),
    "rank_mislabelled": _ranks(-other),
  }
  return xr.Dataset({name: ("example", of) for name, of in columns.items()})


def table_of_losses(losses: Float[np.ndarray, "runs examples"]) -> xr.Dataset:
  """Return the table of `examples` of the losses of one or more runs."""
  mean = losses.mean(0, dtype=np.float64)
  sd = np.full(len(mean), np.nan)
  if len(losses) > 1:
    sd = losses.std(0, ddof=1, dtype=np.float64)
  columns = {
    "mean_loss": mean,
    "sd": sd,
    "rank_hard": _ranks(-mean),
    "rank_split": _ranks(-sd),
  }
  return xr.Dataset({name: ("example", of) for name, of in columns.items()})


def _ranks(*keys: np.ndarray) -> Int[np.ndarray, " examples"]:
  """Return the place of each example in ascending order of the last key, then of those
  before it.
  """
  order = np.lexsort(keys)
  ranks = np.empty_like(order)
  ranks[order] = np.arange(len(order))
  return ranks
