"""Calibration errors that so many runs have although their law is perfectly calibrated
(beside Jiang 2022, table 1).
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from vmapseeds.errors import UserError, check_at_least
from vmapseeds.stats._arrays import Array, Given, as_float64, bins_of, safe_divide
from vmapseeds.stats.reading import read_key, read_reals, read_within
from vmapseeds.stats.resampling import from_replicates

# Examples whose votes are simulated together, so that they stay in a core's cache.
EXAMPLES_AT_ONCE = 1024


class FiniteEnsemble(NamedTuple):
  """Calibration errors of R runs of a perfectly calibrated law: their means and
  standard deviations.
  """

  cace: Float[Array, ""]
  cace_sd: Float[Array, ""]
  ece: Float[Array, ""]
  ece_sd: Float[Array, ""]


def finite_ensemble_calibration(
  fractions: Given["examples classes"],
  runs: int,
  bins: int = 10,
  *,
  key: jax.Array,
  replicates: int = 100,
) -> FiniteEnsemble:
  """Return CACE and ECE that R runs on n examples have if their law is perfectly
  calibrated: the part that comes from R and n.

  The law is given by the vote fractions h~_k of infinitely many of its runs; in
  practice, give those of all runs you have. In each simulation an example's label and
  the R votes on it are drawn independently from its fractions. Report
  this with `cace` and `ece` of R runs: only their excess over it is the runs' lack of
  calibration.

  Args:
    fractions: (examples, classes), such as `vote_fractions`. What a row lacks to sum to
      1 stands for runs without a prediction, and for examples of none of the classes.
    runs: R, at least 1.
    bins: as in `cace`.
    key: a JAX random key; the same key gives the same labels and votes.
    replicates: how many simulations.

  Returns:
    `cace`, `ece`: means over simulations, 0-d; `cace_sd`, `ece_sd`: their standard
    deviation (ddof = 1) from one simulation to another, NaN for a single one. NaN
    without examples.

  Source: ours; compare jiang2022, table 1, whose CACE of 5 and of 2 models mostly
    measures this.

  >>> certain = [[1.0, 0.0], [0.0, 1.0]]
  >>> print(finite_ensemble_calibration(certain, runs=2, key=jax.random.key(0)).cace)
  0.0
  >>> undecided = [[0.5, 0.5]] * 100
  >>> print(finite_ensemble_calibration(undecided, runs=1, key=jax.random.key(0)).cace.round(1))
  1.0
  """
  fractions = read_reals("fractions", fractions, "examples classes")
  read_within("fractions", fractions, "[0, 1]")
  runs = check_at_least("runs", runs, 1)
  bins = check_at_least("bins", bins, 1)
  replicates = check_at_least("replicates", replicates, 1)
  rng = np.random.default_rng(np.asarray(jax.random.key_data(read_key(key))))
  total = fractions.sum(1)
  # Fractions in float32 sum to 1 only so far.
  if (total > 1 + 1e-4).any():
    i = total.argmax()
    raise UserError(
      f"fractions of example {i} sum to {total[i]:.6g}: give fractions that sum to at most 1"
    )
  starts = range(EXAMPLES_AT_ONCE, len(fractions), EXAMPLES_AT_ONCE)
  blocks = np.split(_laws(fractions), starts)
  laws = [_without_zeros(block) for block in blocks]
  return _simulate_calibrated(laws, runs, bins, rng, replicates)


def _laws(
  fractions: Float[np.ndarray, "some classes"],
) -> Float[np.ndarray, "some columns"]:
  """Return each example's law of labels and votes. What a row of fractions lacks to sum
  to 1 is an extra class: labels that nobody votes for, and runs that do not vote.
  """
  lack = np.maximum(1 - fractions.sum(1, keepdims=True), 0)
  laws = np.append(fractions, lack, axis=1)
  return laws / laws.sum(1, keepdims=True)


def _without_zeros(
  laws: Float[np.ndarray, "some columns"],
) -> Float[np.ndarray, "some fewer"]:
  """Return laws without the classes that have probability 0, which take no random
  numbers; the extra class stays the last.
  """
  example, class_index = np.nonzero(laws[:, :-1])
  taken = np.bincount(example, minlength=len(laws))
  # Where each example's entries begin among all that are not 0.
  first = np.cumsum(taken) - taken
  place = np.arange(len(example)) - first[example]
  # One more for no prediction, which is last in all laws.
  columns = taken.max(initial=0) + 1
  short = np.zeros((len(laws), columns))
  short[example, place] = laws[example, class_index]
  short[:, -1] = laws[:, -1]
  return short


def _simulate_calibrated(
  laws: Sequence[np.ndarray],
  runs: int,
  bins: int,
  rng: np.random.Generator,
  replicates: int,
) -> FiniteEnsemble:
  """Return `finite_ensemble_calibration` of laws, a few examples at a time."""
  examples = sum(map(len, laws))
  simulated = np.empty((replicates, 2))
  for replicate in range(replicates):
    # All labels are drawn before all votes: the order of the draws decides the result.
    labels = [rng.multinomial(1, law).argmax(1) for law in laws]
    excess = np.zeros((2, bins))
    for law, block_labels in zip(laws, labels, strict=True):
      votes = rng.multinomial(runs, law)[:, :-1]
      excess += _excess_by_bin(votes, block_labels, runs, bins)
    simulated[replicate] = safe_divide(abs(excess).sum(1), examples * runs)
  mean = simulated.mean(0)
  sd = from_replicates(simulated).se
  return FiniteEnsemble(
    cace=np.asarray(mean[0]),
    cace_sd=np.asarray(sd[0]),
    ece=np.asarray(mean[1]),
    ece_sd=np.asarray(sd[1]),
  )


def _excess_by_bin(
  votes: Int[np.ndarray, "block classes"],
  labels: Int[np.ndarray, "block"],
  runs: int,
  bins: int,
) -> Float[np.ndarray, "2 bins"]:
  """Return by how many votes the right items of each bin exceed all votes: of pairs of
  an example and a class, and of plurality classes.
  """
  examples, classes = votes.shape
  right = labels[:, None] == np.arange(classes)
  # Votes for the label may be none; other classes without votes add nothing.
  counted = (votes > 0) | right
  pairs = _sum_excess(votes[counted], right[counted], runs, bins)

  most = votes.max(1, initial=0)
  # Where the fractions of no example leave a class, there is none to vote for.
  top = np.full(examples, -1)
  if classes:
    top = votes.argmax(1)
  top_is_right = (most > 0) & (top == labels)
  return np.stack([pairs, _sum_excess(most, top_is_right, runs, bins)])


def _sum_excess(
  votes: Int[np.ndarray, "items"],
  right: Bool[np.ndarray, "items"],
  runs: int,
  bins: int,
) -> Float[np.ndarray, "bins"]:
  places = bins_of(votes, runs, bins)
  excess = as_float64(right * runs - votes)
  # Of no items, NumPy returns whole numbers.
  return as_float64(np.bincount(places, excess, bins))
