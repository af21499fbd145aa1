"""A table of the test examples: which are hard, which divide the runs, and which are
likely mislabelled.
"""

import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from vmapseeds.errors import UserError, check_one_of
from vmapseeds.results.description import parsed_attribute
from vmapseeds.results.measured_runs import roles, values_of_runs
from vmapseeds.results.opening import (
  class_names_of,
  class_of,
  converged_runs,
  open_results,
  predicted_classes,
  tally,
)
from vmapseeds.results.roles import OF_EXAMPLES, REPORTED_ROLES
from vmapseeds.stats._arrays import safe_divide
from vmapseeds.stats.counts import VoteCounts, counts_of_votes
from vmapseeds.store.files import Folder
from vmapseeds.training.names import EXAMPLE_ID, HELD_OUT, MASK


def table_of_examples(results: xr.Dataset, output: str | None = None) -> xr.Dataset:
  """Return the table of `vs.example_table`, which says what it has.

  Raises:
    UserError: as `vs.example_table`.
  """
  outputs = roles(results)
  votes = [name for name, about in outputs.items() if about["role"] == "vote"]
  if votes and output in (None, *votes):
    table = table_of_unlabelled(results[votes[0]])
    return table.assign_coords(ids_of_results(results, table.sizes["example"]))
  role_of_output = {}
  for name, attributes in outputs.items():
    role = REPORTED_ROLES[attributes["role"]]
    # A score is a number of a run, not of its examples.
    if role.parts:
      role_of_output[name] = role
  if MASK in results and "labels" in results:
    return table_of_held_out(results)
  if not role_of_output:
    raise UserError(
      f"these outputs have no numbers of examples: give results of role {OF_EXAMPLES}"
    )
  if output is None:
    output = next(iter(role_of_output))
  check_one_of(f"output of role {OF_EXAMPLES}", output, role_of_output)
  alive = np.isfinite(values_of_runs(results, output))
  if not alive.any():
    raise UserError(
      f"no run is left: {len(alive)} are finished, and all of them diverged, or have no "
      f"{output} that is a number"
    )
  role = role_of_output[output]
  if not role.has_votes:
    # Losses may have further axes, such as the tokens of a text.
    losses = role.numbers(results, output)[alive]
    table = table_of_losses(losses.reshape(len(losses), -1))
    return table.assign_coords(ids_of_results(results, table.sizes["example"]))
  return with_columns_of_examples(table_of_votes(tally(results)), results)


def open_with_held_out(
  folder: Folder, test_set: str = "test", epoch: int | None = None
) -> xr.Dataset:
  """Return the results of a folder: of the examples that its runs held out, if they were
  tested on these.
  """
  results = open_results(folder, test_set, epoch)
  if epoch is None and HELD_OUT in (parsed_attribute(results, "test_sets") or ()):
    return open_results(folder, HELD_OUT)
  return results


def count_classes(results: xr.Dataset) -> int:
  """Return how many classes there are: of the logits, or the predictions; else as many
  as the labels have.
  """
  # Logits know classes that no label and no vote has.
  if "class" in results.sizes:
    return results.sizes["class"]
  name = class_of(results)
  if name:
    return int(results[name].attrs["num_classes"])
  highest = max(results["labels"].values.max(), results["predictions"].values.max())
  return int(highest) + 1


def votes_of_held_out(results: xr.Dataset) -> VoteCounts:
  """Return the votes on each example of the runs that were asked for it. Runs that
  diverged are left out.
  """
  kept = results.isel(run=converged_runs(results))
  predictions = predicted_classes(kept)
  labels = kept["labels"].values
  return counts_of_votes(predictions, count_classes(results), labels)


def table_of_held_out(results: xr.Dataset) -> xr.Dataset:
  """Return the table of `vs.example_table` of runs that held examples out.

  Raises:
    UserError: predictions of classes were not kept.
  """
  if "labels" not in results or "predictions" not in results:
    raise UserError(
      "these runs kept no classes of the examples that they held out: vs.held_out has "
      "what they kept"
    )
  kept = results.isel(run=converged_runs(results))
  counts = votes_of_held_out(kept)
  table = table_of_votes(counts, losses_of_asked(kept))
  table["runs"] = ("example", counts.times_asked)
  return with_columns_of_examples(table, results)


def losses_of_asked(
  results: xr.Dataset,
) -> Float[np.ndarray, "runs examples"] | None:
  """Return the losses of the examples that runs held out, NaN for others; None if they
  were not kept.
  """
  if MASK not in results or "losses" not in results:
    return None
  return np.where(results[MASK].values, results["losses"].values, np.nan)


def with_columns_of_examples(table: xr.Dataset, results: xr.Dataset) -> xr.Dataset:
  """Return a table with what results know of each example, and the names of classes."""
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


def ids_of_results(results: xr.Dataset, count: int) -> dict[str, xr.Variable]:
  """Return the ids of the examples by the name that they have in results; empty if there
  are none.
  """
  if EXAMPLE_ID not in results.variables or results[EXAMPLE_ID].shape != (count,):
    return {}
  return {EXAMPLE_ID: results[EXAMPLE_ID].variable}


def table_of_votes(
  counts: VoteCounts, losses: Float[np.ndarray, "runs examples"] | None = None
) -> xr.Dataset:
  """Return the table of `vs.example_table` of the votes of one or more runs.

  Args:
    counts: the votes.
    losses: those of the same runs, NaN where a run was not asked; None if they were not
      kept.
  """
  runs, wrong = counts.times_asked, counts.wrong
  labels, cells = counts.labels, counts.cells
  first_classes, first_votes = counts.first_classes(1)
  most_voted, votes = first_classes[:, 0], first_votes[:, 0]
  first_wrong_classes, first_wrong_votes = counts.first_classes(1, ~cells.right)
  other_class, other_votes = first_wrong_classes[:, 0], first_wrong_votes[:, 0]

  # Pairs of runs, in both orders, that predict the same class; or both none.
  none = runs - counts.voted
  pairs_of_cell = cells.votes * (cells.votes - 1)
  of_a_class = np.bincount(cells.example, pairs_of_cell, len(labels))
  agreeing = of_a_class.astype(np.int64) + none * (none - 1)

  # Each is one division of whole numbers, so that equal shares tie.
  error_rate = safe_divide(wrong, runs)
  agreement = safe_divide(agreeing, runs * (runs - 1))
  other_share = safe_divide(other_votes, runs)
  margin = safe_divide(runs - wrong - other_votes, runs)
  columns = {
    "label": labels,
    "most_voted": np.where(votes > 0, most_voted, -1),
    "votes": votes,
    "error_rate": error_rate,
    "agreement": agreement,
    "other_class": np.where(other_votes > 0, other_class, -1),
    "other_share": other_share,
    "margin": margin,
    "rank_hard": _ranks(margin, -error_rate),
    "rank_split": _ranks(agreement),
    "rank_mislabelled": _ranks(-other_share),
  }
  if counts.asked is not None:
    columns["runs"] = counts.asked
  if losses is not None:
    # Votes of few runs tie, and say nothing of how sure a run was.
    columns["mean_loss"] = mean_of_asked(losses)
    columns["rank_mislabelled"] = _ranks(-other_share, -columns["mean_loss"])
  return xr.Dataset({name: ("example", column) for name, column in columns.items()})


def table_of_unlabelled(predictions: xr.DataArray) -> xr.Dataset:
  """Return what the table of `vs.example_table` has of predictions without labels."""
  num_classes = int(predictions.attrs["num_classes"])
  table = table_of_votes(counts_of_votes(predictions.values, num_classes))
  of_labels = ("most_voted", "votes", "agreement", "rank_split", "runs")
  table = table[[name for name in of_labels if name in table]]
  names = class_names_of(predictions)
  if names:
    table.attrs["class_names"] = names
  return table


def table_of_losses(losses: Float[np.ndarray, "runs examples"]) -> xr.Dataset:
  """Return the table of `vs.example_table` of the losses of one or more runs, NaN where a
  run was not asked.
  """
  mean = mean_of_asked(losses)
  asked = (~np.isnan(losses)).sum(0)
  squares = np.nansum((losses - mean) ** 2, axis=0, dtype=np.float64)
  # A single run has no standard deviation.
  sd = np.sqrt(safe_divide(squares, np.maximum(asked - 1, 0)))
  columns = {
    "mean_loss": mean,
    "sd": sd,
    "rank_hard": _ranks(-mean),
    "rank_split": _ranks(-sd),
  }
  if (asked < len(losses)).any():
    columns["runs"] = asked
  return xr.Dataset({name: ("example", column) for name, column in columns.items()})


def mean_of_asked(
  losses: Float[np.ndarray, "runs examples"],
) -> Float[np.ndarray, " examples"]:
  """Return the mean loss over the runs that were asked for each example, which is not NaN
  there.
  """
  asked = (~np.isnan(losses)).sum(0)
  return safe_divide(np.nansum(losses, axis=0, dtype=np.float64), asked)


def _ranks(*keys: np.ndarray) -> Int[np.ndarray, " examples"]:
  """Return the place of each example in ascending order of the last key, then of those
  before it.
  """
  order = np.lexsort(keys)
  ranks = np.empty_like(order)
  ranks[order] = np.arange(len(order))
  return ranks
