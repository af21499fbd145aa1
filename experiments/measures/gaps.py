"""Distributions of logit gaps, and how much of a run must be left out until it is like
its reference (Banerjee 2024).

Reference gaps are (models, examples): M models' gaps on the N examples. Ĝ, equation 8,
is the eCDF of all M N of them; Ĝ_k that of a candidate's gaps. Both are step functions,
taken as they are, without interpolation.
"""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from vmapseeds.errors import UserError, check_at_least
from vmapseeds.stats._arrays import Array, Given, as_float64, safe_divide, times_drawn
from vmapseeds.stats.reading import (
  read_classes,
  read_key,
  read_labels,
  read_number,
  read_positive,
  read_reals,
  read_within,
)

# A bootstrap replicate takes this many candidates' gaps at a time: their arrays fit in
# a core's cache.
_GAPS_AT_ONCE = 2**17


class TrimmingLevel(NamedTuple):
  """α̂ of each candidate, its value in each bootstrap replicate, and how many
  replicates accepted no level.
  """

  level: Float[Array, "*candidates"]
  replicates: Float[Array, "*candidates replicates"]
  failed: Int[Array, "*candidates"]


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


def gap_labels(gaps: Given["*runs examples"]) -> Int[Array, "*runs examples"]:
  """Return the predicted class of a two-class network from its logit gap: 1 iff m ≥ 0,
  else 0.

  The paper's labels are +1 and -1. At m = 0 its text takes +1 and its equation 3, with
  sgn 0, neither.

  Args:
    gaps: (runs, examples), or (examples,) for one run.

  Returns:
    The shape of `gaps`, class indices.

  Source: banerjee2024, equation 3 and section 2.1.

  >>> gap_labels([-0.5, 0.0, 2.0])
  array([0, 1, 1])
  """
  return (read_reals("gaps", gaps, "runs examples", at_least=1) >= 0).astype(int)


def gap_ece(
  gaps: Given["*runs examples"],
  labels: Given["examples"],
  bins: int = 10,
  lowest: float = 0.0,
) -> Float[Array, "*runs"]:
  """Return the expected calibration error of a two-class network with confidence
  sigmoid(|m|):

      ECE = Σ_r (|B_r|/N) |acc(B_r) - conf(B_r)|

  B_r are `bins` bins of equal width from `lowest` to 1, the last one closed. A
  confidence is at least 1/2, so half of the bins from 0, the default, stay empty;
  `lowest=0.5` uses all. The paper gives neither.

  Args:
    gaps: (runs, examples), or (examples,) for one run.
    labels: (examples,), classes 0 and 1.
    bins: R, at least 1.
    lowest: where the first bin begins, from 0 to 0.5.

  Returns:
    (runs,) or 0-d, from 0 (perfect) to 1; NaN without examples.

  Source: banerjee2024, equation 28.

  >>> print(gap_ece([[-1.0, 2.0, 3.0]], labels=[1, 1, 1]).round(6))
  [0.299229]
  """
  bins = check_at_least("bins", bins, 1)
  lowest = read_number("lowest", lowest, "[0, 0.5]")
  gaps = read_reals("gaps", gaps, "runs examples", at_least=1)
  labels = read_labels(labels, 2, "gaps", gaps.shape, gaps.ndim - 1)
  confidence = 1 / (1 + np.exp(-abs(gaps)))
  bin_of = np.minimum(np.floor((confidence - lowest) / (1 - lowest) * bins), bins - 1)
  excess = ((gaps >= 0) == (labels == 1)) - confidence
  total = np.zeros(gaps.shape[:-1])
  for number in range(bins):
    in_bin = np.where(bin_of == number, excess, 0.0)
    total = total + abs(in_bin.sum(-1))
  return safe_divide(total, gaps.shape[-1])


def ensemble_gaps(
  gaps: Given["models examples"],
  members: Given["ensembles members"] | None = None,
) -> Float[Array, "*ensembles examples"]:
  """Return the logit gaps of an ensemble that averages logits: m̄(x) = (1/P) Σ_k
  m_k(x), of one or of many ensembles.

  The eCDF of these gaps is the paper's Ĝ_e. Labels, distances and ECE are computed from
  them as from a run's.

  Args:
    gaps: (models, examples).
    members: (ensembles, P), the models of each ensemble by index; all models, in one
      ensemble, by default. The paper's text draws them without replacement, some
      captions with: without is right.

  Returns:
    (ensembles, examples), or (examples,) without `members`; NaN for an ensemble without
    members.

  Source: banerjee2024, section 2.1, equation 9.

  >>> ensemble_gaps([[1.0, 2.0], [3.0, -4.0], [5.0, 0.0]], members=[[0, 1], [1, 2]])
  array([[ 2., -1.],
         [ 4., -2.]])
  """
  gaps = read_reals("gaps", gaps, "models examples")
  if members is None:
    return safe_divide(gaps.sum(0), len(gaps))
  members = read_classes(
    "members",
    members,
    "ensembles members",
    len(gaps),
    contents="model indices,",
  )
  # A product with how often each model is in an ensemble gathers no gaps.
  times = as_float64(times_drawn(np.asarray(members), len(gaps)))
  return safe_divide(times @ gaps, members.shape[1])


def ecdf(
  gaps: Given["*runs examples"],
  at: Given["points"],
) -> Float[Array, "*runs points"]:
  """Return the empirical distribution function: Ĝ_k(z) = (1/N) Σ_j 1{m_k(x_j) ≤ z},
  continuous from the right.

  Args:
    gaps: (runs, examples), or (examples,) for one run.
    at: (points,), the z.

  Returns:
    (runs, points) or (points,), from 0 to 1; NaN without examples.

  Source: banerjee2024, equation 5; for `ensemble_gaps` equation 9.

  >>> ecdf([[0.0, 1.0, 1.0, 2.0], [0.0, 0.0, 0.0, 3.0]], at=[0.5, 1.0])
  array([[0.25, 0.75],
         [0.75, 0.75]])
  """
  gaps = read_reals("gaps", gaps, "runs examples", at_least=1)
  points = read_reals("at", at, "points")
  shape = (*gaps.shape[:-1], len(points))
  if not gaps.size:
    return np.full(shape, np.nan)
  # From the right: a gap equal to z counts.
  counts = []
  for row in np.atleast_2d(gaps):
    counts.append(np.searchsorted(np.sort(row), points, side="right"))
  return safe_divide(np.stack(counts), gaps.shape[-1]).reshape(shape)


def reference_ecdf(
  reference_gaps: Given["models examples"],
  at: Given["points"],
  interpolated: bool = False,
) -> Float[Array, " points"]:
  """Return the mean of the models' eCDFs, which is the eCDF of all their gaps: Ĝ(z) =
  (1/M) Σ_k Ĝ_k(z).

  Args:
    reference_gaps: (models, examples).
    at: (points,), the z.
    interpolated: True for Ĝˡ, linear between the gaps v_1 ≤ v_2 ≤ ... and 0 below v_1.
      All distances here are to the step function; the paper adds 1/N to the threshold
      instead, which is enough without ties.

  Returns:
    (points,), from 0 to 1; NaN without gaps.

  Source: banerjee2024, equation 8; Ĝˡ section 7.3.

  >>> reference_ecdf([[0.0, 1.0], [2.0, 4.0]], at=[1.0, 3.0])
  array([0.5 , 0.75])
  """
  pooled = read_reals("reference_gaps", reference_gaps, "models examples").reshape(-1)
  if not interpolated or not pooled.size:
    return ecdf(pooled, at)
  points = read_reals("at", at, "points")
  pooled = np.sort(pooled)
  heights = ecdf(pooled, pooled)
  return np.interp(points, pooled, heights, left=0.0, right=1.0)


def dkw_threshold(
  n: Given["..."],
  models: Given["..."],
  epsilon: Given["..."] = 0.01,
) -> Float[Array, "..."]:
  """Return the bound on the distance of the eCDF of M models on n examples from its
  expectation: δ_b = √(ln(2M/ε)/(2n)).

  The Dvoretzky-Kiefer-Wolfowitz inequality and a union bound over the models.

  Args:
    n: the number of examples each model's eCDF has, above 0, a number or an array.
    models: M, at least 1.
    epsilon: the probability ε_b of a larger distance, above 0 and at most 1.

  Returns:
    The arguments' broadcast shape, a distance between eCDFs.

  Source: banerjee2024, theorem 1, equation 11.

  >>> print(dkw_threshold(8000, models=800).round(5))
  0.02737
  """
  n = read_positive("n", n)
  models = read_within("models", models, "[1, inf]")
  epsilon = read_within("epsilon", epsilon, "(0, 1]")
  return np.asarray(np.sqrt(np.log(2 * models / epsilon) / (2 * n)))


def trimmed_ks_distance(
  reference_gaps: Given["models examples"],
  candidate_gaps: Given["*candidates examples"],
  alpha: Given[""],
) -> Float[Array, "*candidates"]:
  """Return the least distance from the reference that a candidate reaches by leaving
  out a fraction α of its gaps:

      d(Ĝ, R_α(Ĝ_k)) = min over F~ in R_α(Ĝ_k) of ‖Ĝ - F~‖∞,    R_α(P) = {P*: dP*/dP ≤ 1/(1 - α)}

  that is, the candidate's examples get weights from 0 to 1/(1 - α) times 1/n, with sum
  1. Closed form: with Γ = Ĝ ∘ Ĝ_k⁻¹ and B(t) = Γ(t) - t/(1 - α), U(t) = sup_{s ≥ t}
  B(s), L(t) = inf_{s ≤ t} B(s),

      h~ = max(min((U + L)/2, 0), -α/(1 - α)),    d = ‖h~ - B‖∞

  Here Γ is a step function, and B is taken at both sides of every step. The distance
  never rises with α; at α = 0 it is `ks_distance`.

  Args:
    reference_gaps: (models, examples).
    candidate_gaps: (examples,), or (candidates, examples) for many at once.
    alpha: 0 ≤ α < 1.

  Returns:
    0-d or (candidates,), from 0 to 1; NaN where either has no gaps.

  Source: banerjee2024, equations 21, 23 and 42 to 46. Equations 21 and 45 are
  misprinted (dP/dP*, and a product and an outer max with 0); the above is what del
  Barrio et al.'s theorem says.

  >>> print(trimmed_ks_distance([[1.0, 2.0, 3.0, 4.0]], [1.0, 2.0, 3.0, 9.0], alpha=0.25))
  0.125
  """
  alpha = read_number("alpha", alpha, "[0, 1)")
  reference = read_reals("reference_gaps", reference_gaps, "models examples")
  candidates = read_reals(
    "candidate_gaps",
    candidate_gaps,
    "candidates examples",
    at_least=1,
  )
  examples = candidates.shape[-1]
  if not reference.size or not examples:
    return np.full(candidates.shape[:-1], np.nan)
  # Γ = Ĝ ∘ Ĝ_k⁻¹: the reference's eCDF at the candidate's sorted gaps.
  pooled = np.sort(reference.reshape(-1))
  ordered = np.sort(candidates, axis=-1)
  before = np.searchsorted(pooled, ordered, side="left") / pooled.size
  after = np.searchsorted(pooled, ordered, side="right") / pooled.size
  low, high = _sides(before, after)
  t = np.arange(examples + 1) / examples
  return _trimmed(low, high, t, alpha)


def _sides(before: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Return Γ at both sides of t = 0, 1/n, ..., 1, from Ĝ just before and at each of the
  n sorted gaps.

  From one gap to the next the candidate's eCDF is constant, and Ĝ climbs from the first
  array to the second.
  """
  edge = np.ones_like(before[..., :1])
  low = np.concatenate([0 * edge, after], axis=-1)
  high = np.concatenate([before, edge], axis=-1)
  return low, high


def _trimmed(
  low: np.ndarray,
  high: np.ndarray,
  t: np.ndarray,
  alpha: float,
) -> np.ndarray:
  """Return ‖h~ - B‖∞ over the steps on the last axis: the largest of the excess above
  0, the excess below -α/(1 - α), and (U - L)/2 in between. Tied gaps, and gaps without
  weight, only repeat constraints.
  """
  slope = 1 / (1 - alpha)
  # B at both sides of each step.
  low = low - slope * t
  high = high - slope * t
  above = high.max(-1)
  below = 1 - slope - low.min(-1)
  # L(t) is the least B up to t, and U(t) the largest from there on: the largest of
  # their differences is that of some B and the least before it.
  least_so_far = np.minimum.accumulate(low, axis=-1)
  between = (high - least_so_far).max(-1) / 2
  outside = np.maximum(above, below)
  return np.asarray(np.maximum(outside, np.maximum(between, 0.0)))


def trimming_level(
  reference_gaps: Given["models examples"],
  candidate_gaps: Given["*candidates examples"],
  alphas: Given["levels"] | None = None,
  epsilon: float = 0.01,
  threshold: float | None = None,
  *,
  key: jax.Array,
  replicates: int = 100,
) -> TrimmingLevel:
  """Return the α-trimming level of a candidate: the mean over bootstrap replicates of the
  least α that the robust KS test accepts (algorithm 1).

  A replicate draws N/2 of the N examples with replacement for the reference (the same
  for all its models) and, independently, N/2 for the candidate (the same for all
  candidates), and takes the least of `alphas` with d(Ĝ, R_α(Ĝ_k)) ≤ δ_a. The paper
  leaves open B, the levels, whether the draws are independent, and what happens if no
  level is accepted. Here the replicate is then NaN, and so is the mean. α̂ is biased
  upwards relative to the level of the full sample: a replicate adds the noise of
  resampling and cannot fall below 0.

  Args:
    reference_gaps: (models, examples).
    candidate_gaps: (examples,), or (candidates, examples), on the same examples as the
      reference.
    alphas: trimming levels to try, rising, in [0, 1); 0, 0.005, ..., 0.995 by default.
    epsilon: ε of the default threshold.
    threshold: δ_a; `ks_threshold(N, epsilon)` by default.
    key: a JAX random key; the same key gives the same draws, for any number of
      candidates.
    replicates: B, at least 1.

  Returns:
    `level`, 0-d or (candidates,); `replicates`, (..., B); `failed`, how many replicates
    accepted no level. NaN with fewer than two examples or no models.

  Source: banerjee2024, algorithm 1 and equation 24, with the step reference.

  >>> import jax
  >>> gaps = np.linspace(-2, 2, 2000)
  >>> astray = np.where(np.arange(2000) % 5 == 0, 9.0, gaps)
  >>> result = trimming_level(gaps[None] * [[1.0], [1.1]], astray, key=jax.random.key(0), replicates=20)
  >>> print(0.1 < result.level < 0.2, result.failed)
  True 0
  """
  alphas = _read_levels(alphas)
  replicates = check_at_least("replicates", replicates, 1)
  reference = read_reals("reference_gaps", reference_gaps, "models examples")
  candidates = read_reals(
    "candidate_gaps",
    candidate_gaps,
    "candidates examples",
    at_least=1,
  )
  if reference.shape[1] != candidates.shape[-1]:
    raise UserError(
      f"reference_gaps has shape {reference.shape} and candidate_gaps "
      f"{candidates.shape}: give gaps of the same examples, which are the last axis"
    )
  models, examples = reference.shape
  half = examples // 2
  shape = candidates.shape[:-1]
  if not half or not models or not candidates.size:
    return TrimmingLevel(
      np.full(shape, np.nan),
      np.full((*shape, replicates), np.nan),
      np.full(shape, replicates),
    )
  if threshold is None:
    threshold = ks_threshold(examples, epsilon)
  threshold = read_number("threshold", threshold, "(0, inf]")

  # Algorithm 1 draws N/2 examples for the reference, and as many for the candidates.
  size = (replicates, 2, half)
  draws = np.asarray(jax.random.randint(read_key(key), size, 0, examples))
  flat = candidates.reshape(-1, examples)
  levels = _levels_of_draws(reference, flat, draws, alphas, threshold)
  levels = levels.reshape(*shape, replicates)
  return TrimmingLevel(
    safe_divide(levels.sum(-1), replicates),
    levels,
    np.asarray(np.isnan(levels).sum(-1)),
  )


def _read_levels(alphas: object) -> np.ndarray:
  """Return trimming levels; 0, 0.005, ..., 0.995 for None."""
  if alphas is None:
    return np.arange(200) / 200
  levels = read_reals("alphas", alphas, "levels")
  are_within = (levels >= 0).all() and (levels < 1).all()
  are_rising = (np.diff(levels) > 0).all()
  if not (levels.size and are_within and are_rising):
    raise UserError(
      "alphas does not rise within 0 to 1: give trimming levels in order, 0 included and 1 not"
    )
  return levels


def _levels_of_draws(
  reference: np.ndarray,
  candidates: np.ndarray,
  draws: np.ndarray,
  alphas: np.ndarray,
  threshold: float,
) -> np.ndarray:
  """Return the least accepted level of each candidate with each draw, (candidates,
  replicates).

  `draws` are (replicates, 2, N/2): examples for the reference and for the candidates.
  """
  models, examples = reference.shape
  half = draws.shape[2]
  # The gaps are sorted once; a replicate is then only how often each example was drawn.
  order = np.argsort(candidates, axis=-1)
  ordered = np.take_along_axis(candidates, order, -1)
  pooled_order = np.argsort(reference.reshape(-1))
  pooled = reference.reshape(-1)[pooled_order]
  example_of = pooled_order % examples
  before = np.searchsorted(pooled, ordered, side="left")
  after = np.searchsorted(pooled, ordered, side="right")

  def levels_of_block(block, climbed, times):
    """Levels of some candidates; `climbed` is how many of the reference's drawn gaps are
    among the first 0, 1, ... of all, and `times` how often each example was drawn.
    """
    counts = times[order[block]]
    # Examples that were not drawn would only repeat constraints.
    kept = np.flatnonzero(counts > 0)

    def of_drawn(x):
      return np.take(x, kept).reshape(len(counts), -1)

    drawn_gaps = models * half
    low, high = _sides(
      climbed[of_drawn(before[block])] / drawn_gaps,
      climbed[of_drawn(after[block])] / drawn_gaps,
    )
    t = np.cumsum(of_drawn(counts), axis=-1) / half
    start_of_t = np.zeros_like(t[:, :1])
    t = np.append(start_of_t, t, axis=1)
    return _least_accepted(low, high, t, alphas, threshold)

  levels = np.empty((len(candidates), len(draws)))
  rows = max(1, _GAPS_AT_ONCE // examples)
  for replicate, draw in enumerate(draws):
    for_reference, for_candidates = times_drawn(draw, examples)
    climbed = np.append(0, np.cumsum(for_reference[example_of]))
    for start in range(0, len(candidates), rows):
      block = slice(start, start + rows)
      levels[block, replicate] = levels_of_block(block, climbed, for_candidates)
  return levels


def _least_accepted(
  low: np.ndarray,
  high: np.ndarray,
  t: np.ndarray,
  alphas: np.ndarray,
  threshold: float,
) -> np.ndarray:
  """Return, for each row, the least of the rising `alphas` with a trimmed distance of
  at most the threshold δ; NaN if none.

  Newton's method: the distance is at most δ iff high_i - low_j - s (t_i - t_j) ≤ 2δ for
  all j ≤ i, with the slope s = 1/(1 - α). A first low of -δ and a last high of 1 + δ
  cover the excess above 0 and below -α/(1 - α). If a level fails, the next one tried is
  the first whose slope satisfies the pair that failed most.
  """
  # The tolerance lets a distance equal to the threshold pass, whichever way it was
  # rounded.
  bound = 2 * threshold + 2e-12
  low = low.copy()
  low[:, 0] = -threshold
  high = high.copy()
  high[:, -1] = 1 + threshold
  slopes = 1 / (1 - alphas)

  def advance(tried, low, high, t):
    rise = slopes[np.minimum(tried, len(slopes) - 1)][:, None] * t
    lowest = np.minimum.accumulate(low - rise, axis=1)
    drop = high - rise - lowest
    # The pair that fails most: i, and the first j that is as low as what came before i.
    i = drop.argmax(1)[:, None]
    lowest_at_i = np.take_along_axis(lowest, i, axis=1)
    j = (lowest <= lowest_at_i).argmax(1)[:, None]

    def column(x, k):
      return np.take_along_axis(x, k, axis=1)[:, 0]

    apart = column(t, i) - column(t, j)
    excess = column(high, i) - column(low, j) - bound
    least = np.where(apart > 0, safe_divide(excess, apart), np.inf)
    accepted = (column(drop, i) <= bound) | (tried == len(slopes))
    further = np.maximum(tried + 1, np.searchsorted(slopes, least))
    return np.where(accepted, tried, further)

  tried = np.zeros(len(low), int)
  rows = np.arange(len(low))
  while rows.size:
    before = tried[rows]
    tried[rows] = advance(before, low[rows], high[rows], t[rows])
    rows = rows[tried[rows] > before]
  return np.append(alphas, np.nan)[tried]
