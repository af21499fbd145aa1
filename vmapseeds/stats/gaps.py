"""Logit gaps of two-class networks and how far their distributions are apart (Banerjee
2024).
"""

import numpy as np
from jaxtyping import Float

from vmapseeds.errors import UserError
from vmapseeds.stats._arrays import Array, Given
from vmapseeds.stats.reading import (
  read_positive,
  read_reals,
  read_within,
)


def logit_gap(logits: Given["*runs examples 2"]) -> Float[Array, "*runs examples"]:
  """Return the logit gaps of a two-class network: m(x) = m⁺(x) - m⁻(x), with m⁻ and m⁺
  the logits of class 0 and 1.

  The logits become float64 before they are subtracted, also where they come as float16.
  The predicted class is 1 iff m ≥ 0; note that argmax takes class 0 at m = 0.

  Args:
    logits: (runs, examples, 2), or (examples, 2) for one run.

  Returns:
    (runs, examples) or (examples,).

  Source: banerjee2024, section 2.1, after equation 3.

  >>> logit_gap([[0.5, 2.0], [1.0, 0.0]])
  array([ 1.5, -1. ])
  """
  logits = read_reals("logits", logits, "runs examples classes", at_least=2)
  if logits.shape[-1] != 2:
    raise UserError(
      f"logits has shape {logits.shape}: a logit gap needs two classes on the last axis"
    )
  return logits[..., 1] - logits[..., 0]


def ks_threshold(n: Given["..."], epsilon: Given["..."] = 0.01) -> Float[Array, "..."]:
  """Return the threshold of the two-sample KS test between two eCDFs of n/2 examples
  each: δ_a = √((2/n) ln(2/ε)).

  Conservative as the paper uses it: Ĝ is known and not sampled, so the level is nearer
    5e-5 than ε = 0.01.

  Args:
    n: N_test, the number of examples, above 0, a number or an array. From 916 on the
      constant 2 is valid.
    epsilon: the nominal level ε, above 0 and at most 1.

  Returns:
    The arguments' broadcast shape, a distance between eCDFs.

  Source: banerjee2024, equation 14.

  >>> print(ks_threshold(8000).round(6))
  0.036395
  """
  n = read_positive("n", n)
  epsilon = read_within("epsilon", epsilon, "(0, 1]")
  return np.asarray(np.sqrt(2 * np.log(2 / epsilon) / n))


def ks_distance(
  reference_gaps: Given["models examples"],
  candidate_gaps: Given["*candidates examples"],
) -> Float[Array, "*candidates"]:
  """Return the largest difference of two eCDFs: ‖Ĝ - Ĝ_k‖∞, over the reals, exactly.

  Args:
    reference_gaps: (models, examples).
    candidate_gaps: (examples,), or (candidates, examples) for many at once.

  Returns:
    0-d or (candidates,), from 0 to 1; NaN where either has no gaps.

  Source: banerjee2024, equations 8 and 16. With one model it is SciPy's `ks_2samp`.

  >>> print(ks_distance([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], [2.5, 2.5, 9.0, 9.0]))
  0.5
  """
  reference = read_reals("reference_gaps", reference_gaps, "models examples")
  candidates = read_reals(
    "candidate_gaps", candidate_gaps, "candidates examples", at_least=1
  )
  examples = candidates.shape[-1]
  # There is no eCDF of nothing.
  if not reference.size or not examples:
    return np.full(candidates.shape[:-1], np.nan)

  pooled = np.sort(reference, axis=None)
  ordered = np.sort(candidates, axis=-1)
  # The reference's eCDF just before and at each of the candidate's gaps.
  before = np.searchsorted(pooled, ordered, "left") / pooled.size
  after = np.searchsorted(pooled, ordered, "right") / pooled.size
  # Between two gaps the candidate's eCDF is constant: the extremes are at its steps.
  steps = np.arange(examples + 1) / examples
  farthest = np.maximum(before - steps[:-1], steps[1:] - after)
  return np.asarray(farthest.max(-1))
