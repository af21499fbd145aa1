"""Disagreement between runs and the ensemble of their votes (Jiang 2022; churn as in
Banerjee 2024).

A prediction of -1 stands for none (a diverged run). It agrees with another -1 only, and
is never a vote. Where a run was not asked for an example, which is -2, masked, or NaN
among floats, it is left out: every mean and share is over what was asked.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vmapseeds.errors import UserError
from vmapseeds.stats._arrays import Array, Given, as_float64, safe_divide
from vmapseeds.stats.counts import VoteCounts, counts_of_votes
from vmapseeds.stats.intervals import (
  disagreement_of_each_run,
  mean_over_pairs_se,
  nonnegative_interval,
)
from vmapseeds.stats.reading import (
  NOT_ASKED,
  pair_by_index,
  read_level,
  read_predictions,
)
from vmapseeds.stats.uncertainty import Estimate, Uncertainty


def churn(
  predictions_a: Given["*runs examples"],
  predictions_b: Given["*runs examples"],
) -> Float[Array, "*runs"]:
  """Return the fraction of the examples on which two runs differ: (1/n) Σ_i 1{ŷ_a(x_i)
  ≠ ŷ_b(x_i)}.

  Args:
    predictions_a: class indices (examples,), or (runs, examples) for one churn per run.
    predictions_b: likewise; an (examples,) beside (runs, examples) is compared with
      each run.

  Returns:
    0-d, or (runs,) if either has an axis of runs, from 0 to 1; NaN without examples.

  Source: banerjee2024, equation 27; jiang2022, section 2, Dis(h, h').

  >>> print(churn([0, 1, 2, 2], [0, 2, 2, 1]))
  0.5
  """
  predictions_a, predictions_b = pair_by_index(
    predictions_a=predictions_a, predictions_b=predictions_b
  )
  a = read_predictions(predictions_a, None, "predictions_a", at_least=1)
  b = read_predictions(predictions_b, None, "predictions_b", at_least=1)
  # A single run is compared with all runs of the other.
  same_runs = a.ndim != b.ndim or a.shape == b.shape
  if a.shape[-1] != b.shape[-1] or not same_runs:
    raise UserError(
      f"predictions_a has shape {a.shape} and predictions_b {b.shape}: give (runs, "
      "examples) of one shape, or (examples,) for one run"
    )
  both_asked = (a != NOT_ASKED) & (b != NOT_ASKED)
  return safe_divide(((a != b) & both_asked).sum(-1), both_asked.sum(-1))


def disagreement_matrix(
  predictions: Given["runs examples"],
) -> Float[Array, "runs runs"]:
  """Return the churn of every two runs: D_ab = (1/n) Σ_i 1{ŷ_a(x_i) ≠ ŷ_b(x_i)}.

  Takes R² n comparisons and holds no more than one more copy of the predictions.

  Args:
    predictions: (runs, examples), class indices.

  Returns:
    (runs, runs), symmetric, 0 on the diagonal, from 0 to 1; NaN without examples.

  Source: jiang2022, section 2.

  >>> disagreement_matrix([[0, 1], [0, 2], [1, 2]])
  array([[0. , 0.5, 1. ],
         [0.5, 0. , 0.5],
         [1. , 0.5, 0. ]])
  """
  predictions = read_predictions(predictions, None)
  asked = predictions != NOT_ASKED
  runs, _ = predictions.shape
  matrix = np.empty((runs, runs))
  # Run after run: all pairs at once would take runs times the memory.
  for i in range(runs):
    both_asked = asked[i : i + 1] & asked
    differ = (predictions[i : i + 1] != predictions) & both_asked
    matrix[i] = safe_divide(differ.sum(1), both_asked.sum(1))
  return matrix


def expected_disagreement(
  predictions: Given["runs examples"] | VoteCounts,
  num_classes: int | None = None,
  self_pairs: bool = False,
  *,
  level: float = 0.95,
) -> Estimate:
  """Return the expected disagreement of two runs: the mean over examples of 1 - Σ_c N_c
  (N_c - 1) / (R (R - 1)).

  N_c of the R runs predict class c; -1 counts as one more class. This is the mean churn
  over all pairs of distinct runs, unbiased for E[Dis(h, h')]. With `self_pairs` the two
  runs are drawn with replacement, 1 - Σ_c (N_c/R)²: equation 32 on the votes of this
  ensemble, the disagreement in theorem 4.2, and (R - 1)/R times the mean over distinct
  runs.

  The standard error is the jackknife's of a mean over pairs, in closed form, as in
  `independent_errors_variance`; the interval is Student's, from 0 on. They read the
  predictions anew, which takes longer than the value.

  Args:
    predictions: (runs, examples), class indices.
    num_classes: how many classes there are.
    self_pairs: True to count each run's agreement with itself.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    An `Estimate`, from 0 to 1; a single run gives NaN, and 0 with self_pairs; no
    examples give NaN. There is neither a standard error nor an interval (NaN) for fewer
    than three runs, with self_pairs, or of tallies, which have no single runs.

  Source: jiang2022, section 2 and equation 32; Arvesen 1969 for the jackknife.

  >>> P = [[0, 1, 2], [0, 1, 1], [0, 2, 2], [1, 1, 0]]
  >>> expected_disagreement(P, 3)
  0.61 ± 0.22 [0.00, 1.30]
  >>> expected_disagreement(P, 3, self_pairs=True)
  0.458333
  """
  counts = counts_of_votes(predictions, num_classes)
  read_level(level)
  value = mean_disagreement(counts, self_pairs)
  if self_pairs or isinstance(predictions, VoteCounts):
    return Estimate(value, level=level)

  def uncertainty() -> Uncertainty:
    array = read_predictions(predictions, counts.classes)
    if counts.asked is None:
      se = mean_over_pairs_se(disagreement_of_each_run(array, counts.classes))
    else:
      se = _jackknifed_se(np.asarray(array), counts)
    return se, *nonnegative_interval(value, se, counts.runs, level)

  return Estimate.deferred(value, uncertainty, level)


def mean_disagreement(counts: VoteCounts, self_pairs: bool) -> Float[Array, ""]:
  """Return the value of `expected_disagreement`."""
  if counts.asked is not None:
    return _mean_disagreement_of_asked(counts, self_pairs)
  runs = counts.runs
  votes = as_float64(counts.cells.votes)
  # Runs without a prediction agree with each other.
  no_vote = as_float64(runs - counts.voted)
  # N (R - N) counts the disagreeing pairs directly: nothing is subtracted from R².
  with_vote = (votes * (runs - votes)).sum()
  without_vote = (no_vote * (runs - no_vote)).sum()
  disagreeing = with_vote + without_vote
  pairs = count_pairs(runs, self_pairs)
  return safe_divide(disagreeing, counts.examples * pairs)


def count_pairs(runs: Any, self_pairs: bool) -> Any:
  """Return how many ordered pairs so many runs make, each with itself too if asked for."""
  if self_pairs:
    return runs**2
  return runs * (runs - 1)


def _mean_disagreement_of_asked(
  counts: VoteCounts, self_pairs: bool
) -> Float[Array, ""]:
  """Return the mean over examples of the share of pairs that disagree, of the runs that
  were asked for each.
  """
  disagreeing = _disagreeing_runs(counts)
  asked = counts.times_asked
  pairs = count_pairs(asked, self_pairs)
  has_pairs = pairs > 0
  shares = safe_divide(disagreeing, pairs)[has_pairs]
  return safe_divide(shares.sum(), len(shares))


def _disagreeing_runs(counts: VoteCounts) -> Int[np.ndarray, "examples"]:
  """Return how many ordered pairs of runs disagree on each example."""
  cells = counts.cells
  asked = counts.times_asked
  with_vote = cells.votes * (asked[cells.example] - cells.votes)
  by_example = np.bincount(cells.example, with_vote, counts.examples)
  without_vote = asked - counts.voted
  return by_example.astype(np.int64) + without_vote * (asked - without_vote)


def _jackknifed_se(
  predictions: Int[np.ndarray, "runs examples"], counts: VoteCounts
) -> Float[Array, ""]:
  """Return the jackknife's standard error of the mean over examples, each run left out in
  turn.
  """
  runs, asked = counts.runs, counts.times_asked
  if runs < 3:
    return as_float64(np.nan)
  disagreeing = _disagreeing_runs(counts)
  without_vote = asked - counts.voted
  means = np.empty(runs)
  for run, classes in enumerate(predictions):
    was_asked = classes != NOT_ASKED
    alike = np.where(classes == -1, without_vote, counts.votes_for(classes))
    # A pair counts in both orders.
    left = disagreeing - np.where(was_asked, 2 * (asked - alike), 0)
    asked_left = asked - was_asked
    pairs = asked_left * (asked_left - 1)
    shares = safe_divide(left, pairs)[pairs > 0]
    means[run] = safe_divide(shares.sum(), len(shares))
  squares = (means - means.mean()) ** 2
  return np.asarray(np.sqrt((runs - 1) / runs * squares.sum()))


def vote_fractions(
  predictions: Given["runs examples"] | VoteCounts,
  num_classes: int | None = None,
) -> Float[Array, "examples classes"]:
  """Return the fractions of the runs that vote for each class: h~_k(x) = (1/R) Σ_h
  1{h(x) = k}.

  Args:
    predictions: (runs, examples), class indices.
    num_classes: how many classes there are.

  Returns:
    (examples, classes). Rows sum to 1, less the fraction of the runs without a
    prediction (-1). NaN where no run was asked.

  Source: jiang2022, sections 4 and 5 (votes of labels, not mean probabilities).

  >>> vote_fractions([[0, 1], [0, 2], [1, 2], [0, -1]], num_classes=3)
  array([[0.75, 0.25, 0.  ],
         [0.  , 0.25, 0.5 ]])
  """
  counts = counts_of_votes(predictions, num_classes)
  votes = counts.votes
  if not isinstance(votes, np.ndarray):
    votes = votes.toarray()
  return safe_divide(votes, counts.times_asked[:, None])


def plurality(
  predictions: Given["runs examples"] | VoteCounts,
  num_classes: int | None = None,
) -> Int[Array, "examples"]:
  """Return the class with the most votes, argmax_k h~_k(x); of tied classes the lowest.

  Args:
    predictions: (runs, examples), class indices.
    num_classes: how many classes there are.

  Returns:
    (examples,), class indices; -1 where no run has a prediction. A single run is
    returned as it is.

  Source: jiang2022, equation 59 (which leaves ties open).

  >>> plurality([[0, 2, -1], [0, 1, -1], [1, 1, 2], [1, 2, -1]], num_classes=3)
  array([0, 1, 2])
  """
  counts = counts_of_votes(predictions, num_classes)
  classes, votes = counts.first_classes(1)
  return np.where(votes[:, 0] > 0, classes[:, 0], -1)


def ensemble_accuracy(
  predictions: Given["runs examples"] | VoteCounts,
  labels: Given["examples"] | None = None,
  num_classes: int | None = None,
) -> Float[Array, ""]:
  """Return the accuracy of the runs' `plurality` vote: (1/n) Σ_i 1{argmax_k h~_k(x_i) =
  y_i}.

  Args:
    predictions: (runs, examples), class indices.
    labels: (examples,), class indices.
    num_classes: how many classes there are.

  Returns:
    0-d, from 0 to 1; a single run gives its accuracy, no examples give NaN.

  Source: jordan2024, section 4.2 and figure 7 (which leaves the way of voting open).

  >>> print(ensemble_accuracy([[0, 1, 2], [0, 2, 2], [1, 2, 0]], labels=[0, 1, 2], num_classes=3).round(6))
  0.666667
  """
  counts = counts_of_votes(predictions, num_classes, labels).of_asked_examples()
  is_right = plurality(counts) == counts.labels
  return safe_divide(is_right.sum(), counts.examples)


class Confusion(NamedTuple):
  """What runs predict for examples of each class: a row for each label, a column for each
  predicted class, and a last one for answers that are no class.
  """

  # How many answers of all runs.
  counts: Int[Array, "labels predicted"]
  # Their share of the answers for examples of the label; NaN for a class of no example.
  rates: Float[Array, "labels predicted"]


def confusion_matrix(
  predictions: Given["runs examples"] | VoteCounts,
  labels: Given["examples"] | None = None,
  num_classes: int | None = None,
) -> Confusion:
  """Return the confusion matrix over runs: N_ck, how many answers of the runs are k on
  examples of class c, and N_ck / Σ_j N_cj.

  Every answer of every run counts once, so the rates are means over runs and examples.
  What a run was not asked for (-2) is no answer.

  Args:
    predictions: (runs, examples), class indices; -1 is an answer that is no class.
    labels: (examples,), class indices.
    num_classes: how many classes there are.

  Returns:
    `counts` and `rates`, (classes, classes + 1), a row for each label; the last column is
    of answers that are no class.

  Source: ours, of each run the usual one.

  >>> found = confusion_matrix([[0, 1, 1], [0, 0, -1]], labels=[0, 0, 1], num_classes=2)
  >>> found.counts
  array([[3, 1, 0],
         [0, 1, 1]])
  >>> found.rates
  array([[0.75, 0.25, 0.  ],
         [0.  , 0.5 , 0.5 ]])
  """
  counts = counts_of_votes(predictions, num_classes, labels)
  classes = counts.classes
  matrix = np.zeros((classes, classes + 1), np.int64)
  cells = counts.cells
  of_labels = np.asarray(counts.labels)
  np.add.at(matrix, (of_labels[cells.example], cells.class_index), cells.votes)
  without_class = counts.times_asked - counts.voted
  np.add.at(matrix[:, classes], of_labels, without_class)
  return Confusion(matrix, safe_divide(matrix, matrix.sum(axis=1, keepdims=True)))
