"""What is wrong with results that look sound, each fault said in a line and only where it
is surely one.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import xarray as xr

from vmapseeds import stats
from vmapseeds.errors import UserError
from vmapseeds.results.description import IMPORTED
from vmapseeds.results.formatting import run_count
from vmapseeds.results.opening import (
  class_of,
  converged_runs,
  predicted_classes,
  tally,
  with_role,
)
from vmapseeds.stats.counts import VoteCounts
from vmapseeds.training.names import NOT_ASKED

# Of the way from chance to 1: accuracies below are near chance, a renaming of classes or
# an order of labels that reaches half of it explains them.
NEAR, EXPLAINED = 0.1, 0.5
MOST_CHANCE = 0.9  # above it, one class is nearly all of the test set
PADDED = 0.2  # share of predictions that are none
FEWEST = 20  # examples, or errors of equal runs, that are not chance
ROUNDING = 1e-2  # of probabilities in bfloat16


def find_doubts(results: xr.Dataset) -> list[str]:
  """Return what is surely wrong with runs, a sentence each, of those that did not
  diverge. Predictions are read only where accuracies are near chance or all equal.
  """
  kept = results.isel(run=converged_runs(results))
  if not kept.sizes["run"]:
    return []
  sentences = list(doubts_of_runs(kept))
  if "accuracy" not in kept.variables:
    return sentences
  sentences += doubts_of_padding(kept)
  # Under label maps an example has a label for each run, and no chance of its own.
  if kept.get("labels", kept).dims != ("example",):
    return sentences
  largest_share = np.bincount(kept.labels.values).max() / kept.sizes["example"]
  is_near_chance = kept.accuracy.values.mean() <= _near(largest_share)
  if is_near_chance and is_to_beat_chance(kept):
    with contextlib.suppress(UserError):  # neither votes nor predictions were kept
      sentences += doubts_of_votes(tally(kept))
  return sentences


def doubts_of_padding(results: xr.Dataset) -> Iterator[str]:
  """Yield a sentence if imported runs have no prediction for many examples, and others for
  each of these: they were hardly asked for all.
  """
  imported = results.attrs.get("device_kind") == IMPORTED
  name = class_of(results)
  # Of accurate runs, few examples can be without a prediction.
  if not imported or name is None or results.accuracy.values.min() > 1 - PADDED:
    return
  none = predicted_classes(results, name) == -1
  share = none.mean()
  if share > PADDED and not none.all(axis=0).any():
    yield (
      f"{share:.0%} of the predictions are -1, which is an error, and some run has one for "
      f"each example: if these runs were not asked, give {NOT_ASKED} there, NaN or a mask."
    )


def is_to_beat_chance(results: xr.Dataset) -> bool:
  """Return whether the runs were trained, as far as is known."""
  settings = json.loads(results.attrs["recipe"])
  return 0 not in _setting(results, settings, "epochs")


def _setting(results: xr.Dataset, settings: Mapping[str, Any], name: str) -> list[Any]:
  """Return the values that a field of the recipe has in these runs."""
  if name in results.coords:
    return np.unique(results[name].values).tolist()
  return [settings.get(name)]


def doubts_of_votes(counts: VoteCounts) -> Iterator[str]:
  """Yield a sentence if the mean accuracy of runs is surely at or below chance.

  Chance is the accuracy of the same votes beside shuffled labels, Σ_c q_c p_c for the
  shares q of the predictions and p of the labels. Its variance over all orders of the
  labels is exact (Hoeffding 1951, Ann. Math. Stat. 22, 558-566, theorem 2) and knows
  that runs agree: however many they are, examples are the units. Surely at chance means
  below chance + 2 sd, with chance + 1/10 of the way to 1 above the accuracy by 3 sd.
  """
  labels, classes = counts.labels, counts.classes
  n = len(labels)
  if n < FEWEST or not counts.runs or counts.asked is not None:
    return
  # Only cells with votes are kept: the sums below have a part for all others.
  cells = counts.cells
  votes, class_index = cells.votes / counts.runs, cells.class_index
  p = np.bincount(labels, minlength=classes) / n
  if p.max() == 1:  # one label, which no shuffling changes: sensitivity is measured so
    return
  q = np.bincount(class_index, cells.votes, classes) / (n * counts.runs)
  accuracy = (counts.runs - counts.wrong).mean() / counts.runs
  chance = float(q @ p)
  # Σ_ic p_c (v_ic - a_i - q_c + chance)², first as if nobody voted.
  mean = np.bincount(cells.example, votes * p[class_index], n)
  squares = (mean**2).sum() + n * (p @ (q - chance) ** 2)
  unvoted = -mean[cells.example] - q[class_index] + chance
  squares += p[class_index] @ ((votes + unvoted) ** 2 - unvoted**2)
  # Rounding may leave the sum just below 0.
  sd = np.sqrt(max(0.0, squares) / (n * (n - 1)))
  if chance > MOST_CHANCE or accuracy > chance + 2 * sd:
    return
  if accuracy + 3 * sd > _near(chance):
    return
  yield (
    f"Mean accuracy {accuracy:.2%} is no better than chance, {chance:.2%} beside "
    f"shuffled labels: {_cause(counts, q, chance)}."
  )


def _near(chance: float) -> float:
  return chance + NEAR * (1 - chance)


def _cause(counts: VoteCounts, q: np.ndarray, chance: float) -> str:
  """Return what to look at."""
  labels = counts.labels
  # -1 stands in for the label that the last or the first example then lacks.
  labels_after = np.append(labels[1:], -1)
  labels_before = np.append(-1, labels[:-1])
  votes_if = {
    "predictions less 1": counts.votes_for(labels + 1),
    "predictions plus 1": counts.votes_for(labels - 1),
    "the labels of the next examples": counts.votes_for(labels_after)[:-1],
    "the labels of the examples before": counts.votes_for(labels_before)[1:],
  }
  accuracies = {
    change: votes.mean() / counts.runs for change, votes in votes_if.items()
  }
  change = max(accuracies, key=lambda name: accuracies[name])
  accuracy = accuracies[change]
  if accuracy > chance + EXPLAINED * (1 - chance):
    remedy = "bring them in one order"
    if "predictions" in change:
      remedy = "count classes from 0"
    return f"with {change} it would be {accuracy:.2%}, so {remedy}"
  if q.max() > 1 - NEAR:
    return (
      f"nearly all predictions are class {q.argmax()}, so look at the learning rate and "
      "the loss"
    )
  if counts.runs < 2:
    return "look at the order of the labels, the learning rate and the loss"
  agree = 1 - stats.expected_disagreement(counts).value
  by_chance = (q**2).sum()
  if agree > by_chance + EXPLAINED * (1 - by_chance):
    return (
      f"two runs agree on {agree:.2%} of the examples, so look whether the labels are in "
      "the order of the examples, and count from 0"
    )
  return (
    f"two runs agree on {agree:.2%} of the examples only, so look whether the inputs reach "
    "the network, and at the learning rate and the loss"
  )


def doubts_of_runs(results: xr.Dataset) -> Iterator[str]:
  """Yield sentences about runs that are equal though their seeds differ, and outputs that
  are not what they are taken for.
  """
  settings = json.loads(results.attrs["recipe"])
  # A seed that all runs share lets them be equal.
  seeds = [
    str(variable.attrs.get("source", name))
    for name, variable in results.variables.items()
    if variable.attrs.get("role") == "seed"
    and (variable.values != variable.values[:1]).any()
  ]
  if seeds and _all_equal(results):
    yield (
      f"All {run_count(results.sizes['run'])} are equal although the seeds of "
      f"{', '.join(seeds)} differ: look whether training reads the keys of its run."
    )
  for name in with_role(results, "logits"):
    if not _are_probabilities(results[name]):
      continue
    is_cross_entropy = _setting(results, settings, "loss") == ["cross_entropy"]
    has_own_objective = _setting(results, settings, "objective") != [None]
    if results.attrs.get("device_kind") == IMPORTED:
      yield f"The {name} are probabilities, they sum to 1: give outputs before softmax."
    elif is_cross_entropy and not has_own_objective:
      yield (
        "The network's outputs sum to 1: cross-entropy takes outputs before softmax, so "
        "leave softmax out of the network."
      )


def _are_probabilities(logits: xr.DataArray) -> bool:
  """Return whether the first run's logits are probabilities of classes."""
  if logits.dims[-1] != "class" or logits.sizes["class"] < 2:
    return False
  first = np.asarray(logits.isel(run=0).values, np.float32)
  # Those of examples that the run was not asked for are NaN.
  first = first[~np.isnan(first).all(axis=-1)]
  sums = first.sum(axis=-1)
  deviation = abs(sums - 1).max()
  return not (first.min() < 0 or deviation > ROUNDING)


def _all_equal(results: xr.Dataset) -> bool:
  """Return whether runs are surely equal: in all numbers that are stored of them or, if
  there are only predictions, in those, with many of them wrong.
  """
  outputs = []
  for name in with_role(results, "loss", "logits", "variable", "value"):
    output = results[name]
    if output.dtype.kind == "f" and output.dims[:1] == ("run",):
      outputs.append(output)
  if "accuracy" in results.variables:
    # Looked at first, because these are few numbers.
    if (results.accuracy.values != results.accuracy.values[:1]).any():
      return False
    name = class_of(results)
    if not outputs and name:
      wrong = (results[name].isel(run=0) != results.labels).sum()
      if wrong >= FEWEST:
        outputs = [results[name]]
  is_telling = False
  for output in outputs:
    first = output.isel(run=0).values
    # Run by run, because all runs may not fit in memory.
    for run in range(1, output.sizes["run"]):
      if (output.isel(run=run).values != first).any():
        return False
    # Whole numbers may be equal by chance.
    numbers = first[np.isfinite(first)]
    if output.dtype.kind != "f" or (numbers % 1 != 0).any():
      is_telling = True
  return is_telling
