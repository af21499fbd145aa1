"""Disagreement between runs and the ensemble of their votes (Jiang 2022; churn as in Banerjee 2024).

A prediction of -1 stands for none (a diverged run). It agrees with another -1 only, and is never a vote.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from vmapseeds.errors import Mistake, at_least
from vmapseeds.stats._arrays import (
  Array,
  Given,
  class_counts,
  namespace,
  ratio,
  read_classes,
  read_votes,
  real,
  settled,
)


def churn(
  predictions_a: Given["*runs examples"], predictions_b: Given["*runs examples"]
) -> Float[Array, "*runs"]:
  """Fraction of the examples on which two runs differ: (1/n) Σ_i 1{ŷ_a(x_i) ≠ ŷ_b(x_i)}.

  Args:
    predictions_a: class indices (examples,), or (runs, examples) for a churn a run.
    predictions_b: likewise; an (examples,) beside (runs, examples) is compared with each run.

  Returns:
    0-d, or (runs,) where either has runs, from 0 to 1; NaN without examples.

  Raises:
    Mistake: shapes that do not fit, or predictions that are no class indices.

  Source: banerjee2024, equation 27; jiang2022, section 2, Dis(h, h').

  >>> print(churn([0, 1, 2, 2], [0, 2, 2, 1]))
  0.5
  """
  a = read_classes("predictions_a", predictions_a, "runs examples", None, -1, at_least=1)
  b = read_classes("predictions_b", predictions_b, "runs examples", None, -1, at_least=1)
  if a.shape[-1] != b.shape[-1] or (a.ndim == b.ndim and a.shape != b.shape):
    raise Mistake(
      f"predictions_a has shape {a.shape} and predictions_b {b.shape}: give (runs, examples) of one shape, "
      "axis 0 runs, axis 1 examples, or (examples,) for one run"
    )
  rows_a, rows_b = (x[None] if x.ndim == 1 else x for x in (a, b))
  differ = _differences(rows_a, rows_b)
  return ratio(differ if 2 in (a.ndim, b.ndim) else differ[0], a.shape[-1])


def _differences(a: Array, b: Array) -> Array:
  """On how many examples each row of a differs from its row of b."""
  return settled((a != b).sum(1, dtype=np.int64 if _numpy(a, b) else np.int32))


def _numpy(*arrays: Array) -> bool:
  return all(isinstance(a, np.ndarray) for a in arrays)


def disagreement_matrix(predictions: Given["runs examples"]) -> Float[Array, "runs runs"]:
  """Churn of every two runs: D_ab = (1/n) Σ_i 1{ŷ_a(x_i) ≠ ŷ_b(x_i)}.

  Takes R² n comparisons and holds no more than one more copy of the predictions.

  Args:
    predictions: (runs, examples), class indices.

  Returns:
    (runs, runs), symmetric, 0 on the diagonal, from 0 to 1; NaN without examples.

  Raises:
    Mistake: predictions is not (runs, examples), or holds no class indices.

  Source: jiang2022, section 2.

  >>> disagreement_matrix([[0, 1], [0, 2], [1, 2]])
  array([[0. , 0.5, 1. ],
         [0.5, 0. , 0.5],
         [1. , 0.5, 0. ]])
  """
  predictions = read_classes("predictions", predictions, "runs examples", None, -1)
  runs, examples = predictions.shape
  if not runs:
    differ = real(np.zeros((0, 0)), namespace(predictions))
  elif _numpy(predictions):
    differ = np.stack([_differences(row[None], predictions) for row in predictions])
  else:
    differ = settled(jax.lax.map(lambda row: (row[None] != predictions).sum(1, dtype=jnp.int32), predictions))
  return ratio(differ, examples)


def expected_disagreement(
  predictions: Given["runs examples"], num_classes: int, self_pairs: bool = False
) -> Float[Array, ""]:
  """Expected disagreement of two runs: the mean over examples of 1 - Σ_c N_c (N_c - 1) / (R (R - 1)).

  N_c of the R runs predict class c; -1 counts as one class more. This is the mean churn over all pairs of
  distinct runs, unbiased for E[Dis(h, h')]. `self_pairs` draws the two runs with replacement, 1 - Σ_c
  (N_c/R)²: equation 32 on the votes of this ensemble, (R - 1)/R times the other, and what theorem 4.2 bounds.

  Args:
    predictions: (runs, examples), class indices.
    num_classes: how many classes there are.
    self_pairs: True to count each run's agreement with itself.

  Returns:
    0-d, from 0 to 1; a single run gives NaN, and 0 with self_pairs; no examples give NaN.

  Raises:
    Mistake: predictions is not (runs, examples), or not -1 to num_classes - 1.

  Source: jiang2022, section 2 and equation 32.

  >>> P = [[0, 1], [0, 2], [1, 2]]
  >>> print(expected_disagreement(P, 3).round(6), expected_disagreement(P, 3, self_pairs=True).round(6))
  0.666667 0.444444
  """
  num_classes = at_least("num_classes", num_classes, 1)
  predictions = read_classes("predictions", predictions, "runs examples", num_classes, -1)
  return disagreement_of_counts(class_counts(predictions, num_classes), *predictions.shape, self_pairs)


def disagreement_of_counts(counts: Array, runs: int, examples: int, self_pairs: bool) -> Array:
  """`expected_disagreement` from the class counts (examples, classes), with every run in one class."""
  counts = real(counts)
  # N (R - N) sums the disagreeing pairs alone: nothing is subtracted from R².
  pairs = runs**2 if self_pairs else runs * (runs - 1)
  return ratio((counts * (runs - counts)).sum(), examples * pairs)


def vote_fractions(predictions: Given["runs examples"], num_classes: int) -> Float[Array, "examples classes"]:
  """Fractions of the runs that vote for each class: h~_k(x) = (1/R) Σ_h 1{h(x) = k}.

  Args:
    predictions: (runs, examples), class indices.
    num_classes: how many classes there are.

  Returns:
    (examples, classes). Rows sum to 1, less the fraction of the runs without a prediction (-1). NaN without
    runs.

  Raises:
    Mistake: predictions is not (runs, examples), or not -1 to num_classes - 1.

  Source: jiang2022, sections 4 and 5 (votes of labels, not mean probabilities).

  >>> vote_fractions([[0, 1], [0, 2], [1, 2], [0, -1]], num_classes=3)
  array([[0.75, 0.25, 0.  ],
         [0.  , 0.25, 0.5 ]])
  """
  num_classes = at_least("num_classes", num_classes, 1)
  predictions = read_classes("predictions", predictions, "runs examples", num_classes, -1)
  return ratio(class_counts(predictions, num_classes)[:, :-1], predictions.shape[0])


def plurality(predictions: Given["runs examples"], num_classes: int) -> Int[Array, "examples"]:
  """The class with the most votes, argmax_k h~_k(x); of tied classes the lowest.

  Args:
    predictions: (runs, examples), class indices.
    num_classes: how many classes there are.

  Returns:
    (examples,), class indices; -1 where no run has a prediction. A single run is returned as it is.

  Raises:
    Mistake: predictions is not (runs, examples), or not -1 to num_classes - 1.

  Source: jiang2022, equation 59 (which leaves ties open).

  >>> plurality([[0, 2, -1], [0, 1, -1], [1, 1, 2], [1, 2, -1]], num_classes=3)
  array([0, 1, 2])
  """
  num_classes = at_least("num_classes", num_classes, 1)
  predictions = read_classes("predictions", predictions, "runs examples", num_classes, -1)
  return top_class(class_counts(predictions, num_classes)[:, :-1])


def top_class(votes: Array) -> Array:
  """The lowest class with the most votes, -1 where there are none; votes is (examples, classes)."""
  xp = namespace(votes)
  return xp.where(votes.sum(1) > 0, votes.argmax(1), -1)


def ensemble_accuracy(
  predictions: Given["runs examples"], labels: Given["examples"], num_classes: int
) -> Float[Array, ""]:
  """Accuracy of the runs' `plurality` vote: (1/n) Σ_i 1{argmax_k h~_k(x_i) = y_i}.

  Args:
    predictions: (runs, examples), class indices.
    labels: (examples,), class indices.
    num_classes: how many classes there are.

  Returns:
    0-d, from 0 to 1; a single run gives its accuracy, no examples give NaN.

  Raises:
    Mistake: shapes that do not fit, predictions not -1 to num_classes - 1, labels not 0 to num_classes - 1.

  Source: jordan2023, section 4.2 and figure 7 (which leaves the way of voting open).

  >>> print(ensemble_accuracy([[0, 1, 2], [0, 2, 2], [1, 2, 0]], labels=[0, 1, 2], num_classes=3).round(6))
  0.666667
  """
  num_classes = at_least("num_classes", num_classes, 1)
  predictions, labels = read_votes(predictions, labels, num_classes)
  return accuracy_of_votes(class_counts(predictions, num_classes)[:, :-1], labels)


def accuracy_of_votes(votes: Array, labels: Array) -> Array:
  """`ensemble_accuracy` from the votes (examples, classes)."""
  top = top_class(votes)
  xp = namespace(top, labels)
  return ratio((xp.asarray(top) == xp.asarray(labels)).sum(), len(labels))
