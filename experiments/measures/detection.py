"""How often three criteria find the better of two algorithms (Bouthillier 2021, section
4.2), and the thresholds that they compare with.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Float
from scipy.special import ndtr, ndtri

from experiments.measures.criteria import PUBLISHED, check_rule, fewest_wins
from vmapseeds.errors import check_at_least
from vmapseeds.stats._arrays import Array, Given, safe_divide
from vmapseeds.stats.reading import read_key, read_number, read_positive, read_within

# Nodes of the sum that integrates over the normal difference of two biases; its error
# is below 1e-9 for ρ up to 0.9.
_NODES = np.linspace(-8, 8, 1001)


class DetectionRates(NamedTuple):
  """How often three criteria find A better in simulations, and the standard errors of
  these rates.
  """

  single_point: Float[Array, "..."]
  average: Float[Array, "..."]
  outperforming: Float[Array, "..."]
  single_point_se: Float[Array, "..."]
  average_se: Float[Array, "..."]
  outperforming_se: Float[Array, "..."]


class OperatingCharacteristics(NamedTuple):
  """How often three criteria find A better, exactly."""

  single_point: Float[Array, "..."]
  average: Float[Array, "..."]
  outperforming: Float[Array, "..."]


def difference_sd(
  sd_a: Given["..."],
  sd_b: Given["..."],
  correlation: Given["..."] = 0.0,
) -> Float[Array, "..."]:
  """Return the standard deviation of the difference of a run of A and one of B: √(s_A²
  + s_B² - 2 r s_A s_B).

  For runs that are not paired r = 0. Appendix C.2 has s_A + s_B, the value for r = -1.

  Args:
    sd_a: s_A, at least 0.
    sd_b: s_B, at least 0.
    correlation: r of the runs that make a pair, from -1 to 1.

  Returns:
    The arguments' broadcast shape.

  Source: bouthillier2021, appendix C.2, corrected.

  >>> print(difference_sd(3.0, 4.0))
  5.0
  """
  sd_a = read_within("sd_a", sd_a, "[0, inf]", nan=True)
  sd_b = read_within("sd_b", sd_b, "[0, inf]", nan=True)
  r = read_within("correlation", correlation, "[-1, 1]", nan=True)
  # Rounding may leave a hair below 0 at r = 1.
  return np.asarray(np.sqrt(np.maximum(sd_a**2 + sd_b**2 - 2 * r * sd_a * sd_b, 0.0)))


def equivalent_threshold(
  gamma: Given["..."],
  sigma: Given["..."] = 1.0,
) -> Float[Array, "..."]:
  """Return the difference of means at which P(A > B) = γ, for independent normal runs
  of deviation σ: δ = √2 Φ⁻¹(γ) σ.

  Args:
    gamma: γ, above 0 and below 1.
    sigma: σ of one run, above 0.

  Returns:
    The arguments' broadcast shape.

  Source: bouthillier2021, appendix I, where the √2 of a difference of two runs is
    missing.

  >>> equivalent_threshold([0.75, 0.921]).round(3)
  array([0.954, 1.997])
  """
  gamma = read_within("gamma", gamma, "(0, 1)")
  sigma = read_positive("sigma", sigma)
  return np.asarray(np.sqrt(2) * ndtri(gamma) * sigma)


def detection_rates(
  probability: Given["..."],
  correlation: float = 0.0,
  pairs: int = 50,
  gamma: float = 0.75,
  threshold: float = PUBLISHED,
  alpha: float = 0.05,
  *,
  key: jax.Array,
  replicates: int = 10_000,
) -> DetectionRates:
  """Return how often each criterion says that A is better, at each true P(A > B): the
  simulation of section 4.2.

  Runs are normal with standard deviation σ = 1; A's are better by √2 Φ⁻¹(P). With the
  ideal estimator (ρ = 0) all are independent. With a biased one the k runs of an
  algorithm share a bias: the variance between repetitions of the estimator is ρ σ², and
  the variance within one is (1 - ρ) σ². The criteria: one run exceeds another by
  `threshold` σ; the means of k do; `decide` finds the k pairs significant and
  meaningful. The same draws serve all values of `probability`.

  Args:
    probability: the true P(A > B), any shape, from 0 to 1.
    correlation: ρ, a number of at least 0 and below 1.
    pairs: k.
    gamma: γ of the decision.
    threshold: δ/σ.
    alpha: α of the decision.
    key: a JAX random key.
    replicates: how many comparisons are simulated.

  Returns:
    `single_point`, `average`, `outperforming`, each of the shape of `probability`, and
    their standard errors √(rate (1 - rate)/replicates) as `..._se`.

  Source: bouthillier2021, section 4.2 and figure 6. The paper's bias has the variance
    of the whole biased estimator, which counts the variance within twice; here it has
    the variance between repetitions.

  >>> rates = detection_rates([0.5, 0.75], key=jax.random.key(0))
  >>> bool(rates.outperforming[0] < 0.05), bool(rates.outperforming[1] > 0.9)
  (True, True)
  """
  difference, rho, fewest = _setting(probability, correlation, pairs, gamma, alpha)
  replicates = check_at_least("replicates", replicates, 1)
  counts = _detections(
    read_key(key),
    difference.ravel(),
    rho,
    threshold,
    fewest,
    pairs,
    replicates,
  )
  rates = np.where(
    np.isnan(difference.ravel()),
    np.nan,
    safe_divide(np.asarray(counts), replicates),
  )
  both = np.concatenate([rates, np.sqrt(rates * (1 - rates) / replicates)])
  return DetectionRates(*both.reshape(6, *difference.shape))


def _setting(
  probability: object,
  correlation: object,
  pairs: object,
  gamma: float,
  alpha: float,
) -> tuple[np.ndarray, float, int]:
  """Return the difference of the means in standard deviations of a run, ρ, and the
  fewest wins that are enough.
  """
  check_rule(gamma, alpha)
  pairs = check_at_least("pairs", pairs, 1)
  rho = read_number("correlation", correlation, "[0, 1)")
  probability = read_within("probability", probability, "[0, 1]", nan=True)
  return (
    np.asarray(np.sqrt(2) * ndtri(probability)),
    rho,
    fewest_wins(pairs, gamma, alpha),
  )


@partial(jax.jit, static_argnames=("pairs", "replicates"))
def _detections(
  key: jax.Array,
  difference: jax.Array,
  rho: float,
  threshold: float,
  fewest: int,
  pairs: int,
  replicates: int,
) -> jax.Array:
  """Return how many simulations of each difference (points,) each of the three criteria
  detects, (3, points).
  """
  bias_key, run_key = jax.random.split(key)
  # Only differences matter, and they have twice the variance of a run.
  bias = jnp.sqrt(2 * rho) * jax.random.normal(bias_key, (replicates,))
  noise = bias[:, None] + jnp.sqrt(2 * (1 - rho)) * jax.random.normal(
    run_key, (replicates, pairs)
  )
  means = noise.mean(1)

  def count(shift: jax.Array) -> jax.Array:
    wins = (noise + shift > 0).sum(1)
    return jnp.stack(
      [
        (noise[:, 0] + shift > threshold).sum(),
        (means + shift > threshold).sum(),
        (wins >= fewest).sum(),
      ]
    )

  return jax.lax.map(count, difference).T


def operating_characteristics(
  probability: Given["..."],
  correlation: float = 0.0,
  pairs: int = 50,
  gamma: float = 0.75,
  threshold: float = PUBLISHED,
  alpha: float = 0.05,
) -> OperatingCharacteristics:
  """Return the exact rates that `detection_rates` estimates by simulation.

      single point: Φ((d - δ)/√2);  average: Φ((d - δ)/√(2ρ + 2(1 - ρ)/k)),  d = √2
      Φ⁻¹(P) P(A > B): the binomial tail of
      `power_for_probability_of_outperforming` at Φ((d + √(2ρ) z)/√(2(1 -
      ρ))), averaged over normal z

  Args:
    probability: the true P(A > B), any shape, from 0 to 1.
    correlation: ρ, a number of at least 0 and below 1.
    pairs: k.
    gamma: γ of the decision.
    threshold: δ/σ.
    alpha: α of the decision.

  Returns:
    `single_point`, `average`, `outperforming`, each of the shape of `probability`.

  Source: ours, for the simulation of bouthillier2021, section 4.2.

  >>> rates = operating_characteristics([0.5, 0.75])
  >>> print(rates.single_point.round(3), rates.outperforming.round(3))
  [0.079 0.231] [0.016 0.945]
  """
  d, rho, fewest = _setting(probability, correlation, pairs, gamma, alpha)

  def exceeds(variance: float) -> Array:
    """How often a normal difference of this variance exceeds the threshold."""
    return np.asarray(ndtr((d - threshold) / np.sqrt(variance)))

  # One of A's runs is better, whatever the two biases are.
  bias = np.sqrt(2 * rho) * _NODES
  of_pair = ndtr((d[..., None] + bias) / np.sqrt(2 * (1 - rho)))
  density = scipy.stats.norm.pdf(_NODES)
  weights = density / density.sum()
  outperforming = scipy.stats.binom.sf(fewest - 1, pairs, of_pair) @ weights
  return OperatingCharacteristics(
    exceeds(2),
    exceeds(2 * rho + 2 * (1 - rho) / pairs),
    # Weights add up to 1 but for rounding.
    np.asarray(np.clip(outperforming, 0.0, 1.0)),
  )
