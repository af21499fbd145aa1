"""Mistakes that leave results which look sound, each said in a line and only where it is
surely so.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import xarray as xr

from vmapseeds import stats
from vmapseeds.data.shifts import SHIFTS
from vmapseeds.mistakes import Mistake
from vmapseeds.results.description import IMPORTED
from vmapseeds.results.formatting import run_count
from vmapseeds.results.opening import class_of, converged, tally, with_role
from vmapseeds.stats.counts import VoteCounts
from vmapseeds.store.layout import readable

# Of the way from chance to 1: accuracies below are near chance, a renaming of classes or
# an order of labels that reaches half of it explains them.
NEAR, EXPLAINED = 0.1, 0.5
MOST_CHANCE = 0.9  # above it, one class is nearly all of the test set
FEWEST = 20  # examples, or errors of equal runs, that are not chance
# How often, at most, all runs have their lowest loss first though it does not change.
CHANCE_OF_RISES = 1e-4
ROUNDING = 1e-2  # of probabilities in bfloat16


def doubts(results: xr.Dataset) -> list[str]:
  """Return what is surely wrong with runs, a sentence each, of those that did not
  diverge. Predictions are read only where accuracies are near chance or all equal.
  """
  kept = results.isel(run=converged(results))
  if not kept.sizes["run"]:
    return []
  found = [*doubts_of_runs(kept)]
  if "accuracy" in kept.variables and kept.get("labels", kept).dims == ("example",):
    most = np.bincount(kept.labels.values).max() / kept.sizes["example"]
    if kept.accuracy.values.mean() <= _near(most) and is_to_beat_chance(kept):
      with contextlib.suppress(Mistake):  # neither votes nor predictions were kept
        found += doubts_of_votes(tally(kept))
  return found


def is_to_beat_chance(results: xr.Dataset) -> bool:
  """Return whether the runs were trained, and no test set is a shift, as far as is
  known.
  """
  settings = json.loads(results.attrs["recipe"])
  shifted = not SHIFTS.keys().isdisjoint(settings.get("test_sets") or ())
  return 0 not in _setting(results, settings, "epochs") and not shifted


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
  labels, n, classes = counts.labels, len(counts.labels), counts.classes
  if n < FEWEST or not counts.runs:
    return
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
  shifts = {
    "predictions less 1": counts.votes_for(labels + 1),
    "predictions plus 1": counts.votes_for(labels - 1),
    "the labels of the next examples": counts.votes_for(np.append(labels[1:], -1))[:-1],
    "the labels of the examples before": counts.votes_for(np.append(-1, labels[:-1]))[
      1:
    ],
  }
  accuracies = {name: votes.mean() / counts.runs for name, votes in shifts.items()}
  name, right = max(accuracies.items(), key=lambda of: of[1])
  if right > chance + EXPLAINED * (1 - chance):
    kind = (
      "count classes from 0" if "predictions" in name else "bring them in one order"
    )
    return f"with {name} it would be {right:.2%}, so {kind}"
  if q.max() > 1 - NEAR:
    return (
      f"nearly all predictions are class {q.argmax()}, so look at the learning rate and "
      "the loss"
    )
  if counts.runs < 2:
    return "look at the order of the labels, the learning rate and the loss"
  agree = 1 - stats.expected_disagreement(counts)
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
  """Yield sentences about training that changes nothing, and outputs that are not what
  they are taken for.
  """
  with readable("the results' folder"):
    yield from _doubts_of_runs(results)


def _doubts_of_runs(results):
  settings = json.loads(results.attrs["recipe"])
  lr = results["lr"].values if "lr" in results.variables else settings.get("lr")
  if (
    lr is not None and 0 not in _setting(results, settings, "epochs") and not np.any(lr)
  ):
    yield "The learning rate is 0: training changes no parameter."
  elif doubt := _rising_loss(results, settings):
    yield doubt
  elif name := _constant_series(results):
    yield (
      f"{name} is the same in the first and the last epoch of all runs: training changes "
      "no parameter, so look whether the optimizer sees them."
    )
  seeds = [
    str(x.attrs.get("source", name))
    for name, x in results.variables.items()
    if x.attrs.get("role") == "seed" and (x.values != x.values[:1]).any()
  ]
  if seeds and _all_equal(results):
    yield (
      f"All {run_count(results.sizes['run'])} are equal although the seeds of "
      f"{', '.join(seeds)} differ: look whether training reads the keys of its run."
    )
  for name in with_role(results, "logits"):
    x = results[name]
    if x.dims[-1] != "class" or x.sizes["class"] < 2:
      continue
    first = np.asarray(x.isel(run=0).values, np.float32)
    if first.min() < 0 or abs(first.sum(-1) - 1).max() > ROUNDING:
      continue
    if results.attrs.get("device_kind") == IMPORTED:
      yield f"The {name} are probabilities, they sum to 1: give outputs before softmax."
    elif _setting(results, settings, "loss") == ["cross_entropy"] and _setting(
      results, settings, "objective"
    ) == [None]:
      yield (
        "The network's outputs sum to 1: cross-entropy takes outputs before softmax, so "
        "leave softmax out of the network."
      )


def _rising_loss(results: xr.Dataset, settings: Mapping[str, Any]) -> str | None:
  """Return what is wrong if the training loss never falls below that of the first
  evaluation, in no run.

  That of a sound training may, of few runs or evaluations, or where it cannot fall: of
  networks that are trained already, or by an objective of one's own. Of losses that do
  not change but by chance, the first of E is the lowest in R runs with probability E⁻ᴿ.
  """
  name = "epoch_train_loss"
  others = ("start_from", "objective", "stop_at")
  if name not in results.variables or any(
    _setting(results, settings, other) != [None] for other in others
  ):
    return None
  losses = results[name].values
  runs, evaluations = losses.shape
  if evaluations**-runs > CHANCE_OF_RISES or not np.isfinite(losses).all():
    return None
  rises = losses[:, 1:] - losses[:, :1]
  if rises.min() < 0 or rises.mean() <= 0:
    return None
  return (
    f"The training loss falls in no run: on average it is {losses[:, 0].mean():.3g} after "
    f"epoch {results.epoch.values[0]} and {losses[:, -1].mean():.3g} at the end, so look "
    "at the learning rate and the sign of the loss."
  )


def _constant_series(results: xr.Dataset) -> str | None:
  """Return a loss or value that no run's training changes between evaluations."""
  for name, x in results.variables.items():
    told = x.attrs.get("series") == "epoch" and x.attrs.get("role") in ("loss", "value")
    if not told or x.dtype.kind != "f" or x.sizes["epoch"] < 2:
      continue
    first, last = (x.isel(epoch=i).values for i in (0, -1))
    # Runs that stop early keep what they had.
    stops = "trained_epochs" in results.variables
    if not stops and (first == last).all() and (first % 1 != 0).any():
      return str(name)
  return None


def _all_equal(results: xr.Dataset) -> bool:
  """Return whether runs are surely equal: in all numbers that are stored of them or, if
  there are only predictions, in those, with many of them wrong.
  """
  told = [
    results[name]
    for name in with_role(results, "loss", "logits", "variable", "value")
    if results[name].dtype.kind == "f" and results[name].dims[:1] == ("run",)
  ]
  if "accuracy" in results.variables:
    if (results.accuracy.values != results.accuracy.values[:1]).any():
      return False
    name = class_of(results)
    if not told and name:
      wrong = (results[name].isel(run=0) != results.labels).sum()
      told = [results[name]] if wrong >= FEWEST else []
  telling = False
  for x in told:
    first = x.isel(run=0).values
    if any((x.isel(run=i).values != first).any() for i in range(1, x.sizes["run"])):
      return False
    telling |= x.dtype.kind != "f" or bool((first % 1 != 0).any())
  return telling
