"""Disagreement as a prediction of the error, its variance, and calibration by exact
levels (Jiang 2022).
"""

from typing import NamedTuple

import numpy as np
import scipy
import scipy.special
from jaxtyping import Float, Int

from experiments.measures.fits import identity_r_squared
from vmapseeds.stats import calibration_curve, disagreement_matrix
from vmapseeds.stats._arrays import (
  Array,
  Given,
  as_float64,
  centred,
  correlation,
  safe_divide,
)
from vmapseeds.stats.calibration import calibration_error
from vmapseeds.stats.counting import count_errors
from vmapseeds.stats.counts import (
  Counts,
  counts_of_errors,
  counts_of_votes,
)
from vmapseeds.stats.estimators import sample_variance
from vmapseeds.stats.reading import (
  read_series,
  read_votes,
  read_within,
)


def confidence_histogram(
  predictions: Given["runs examples"] | Counts,
  num_classes: int | None = None,
  bins: int = 10,
  of: str = "pairs",
) -> Int[Array, "..."]:
  """Return how many items have a confidence in each bin: |B_i| of a
  `calibration_curve`. Needs no labels.

  Args:
    predictions: (runs, examples), class indices; -1 is no vote.
    num_classes: K.
    bins: how many bins of equal width.
    of: "pairs", "classes" or "top", as in `calibration_curve`.

  Returns:
    (bins,), whole numbers that sum to n K ("pairs") or n ("top"); (classes, bins) with
    rows that sum to n ("classes"). Zeros without runs.

  Source: jiang2022, appendix D.5, figure 12.

  >>> confidence_histogram([[0, 1, 1], [0, 1, 0], [0, 1, 0], [0, 1, 1]], num_classes=2, bins=4)
  array([2, 0, 2, 2])
  """
  counts = counts_of_votes(predictions, num_classes)
  return calibration_curve(counts, bins=bins, of=of).items


def cace_exact_levels(
  predictions: Given["runs examples"] | Counts,
  labels: Given["examples"] | None = None,
  num_classes: int | None = None,
  refined: bool = False,
) -> Float[Array, ""]:
  """Return CACE with a bin for each number of votes v, which bounds the gap of theorem
  4.2:

      |mean error - disagreement| <= Σ_v (1 - v/R) |Σ_{items with v votes} (hit - v/R)| / n <= CACE

  It is `cace` with bins = runs + 1; `refined` is the tighter bound in the middle. The
  gap is `gde_gap` with self_pairs of the same runs, not the gap over distinct pairs
  that the paper reports. CACE of 10 bins bounds neither. Predictions of -1 are one more
  class in the disagreement; with any, the bound needs that class to be counted too, as
  class K.

  Args:
    predictions: (runs, examples), class indices; -1 is no vote.
    labels: (examples,), class indices.
    num_classes: K.
    refined: True to keep the factor 1 - v/R, which theorem 4.2 bounds by 1.

  Returns:
    0-d, from 0 to num_classes; NaN without runs or examples.

  Source: jiang2022, definition 4.4, theorem 4.2 and the remark at the end of appendix
    B.3.

  >>> P, y = [[0, 1, 1], [0, 1, 0], [0, 0, 0], [0, 1, 1]], [0, 0, 1]
  >>> bounds = [cace_exact_levels(P, y, 2, refined) for refined in (True, False)]
  >>> from vmapseeds.stats import gde_gap
  >>> print(round(gde_gap(P, y, 2, self_pairs=True), 4), bounds[0].round(4), bounds[1].round(4))
  0.125 0.25 0.5
  """
  counts = counts_of_votes(predictions, num_classes, labels)
  runs = counts.runs
  weights = 1.0
  if refined:
    weights = 1 - np.arange(runs + 1) / max(runs, 1)
  return calibration_error(counts, "pairs", runs + 1, weights)


def relative_deviation(
  error: Given["..."],
  disagreement: Given["..."],
) -> Float[Array, "..."]:
  """Return the distance from the line disagreement = error, relative to their mean:
  |err - dis| / (0.5 (err + dis)).

  Elementwise; the paper reports the mean over configurations.

  Args:
    error: error rates, any shape, fractions.
    disagreement: disagreements, likewise.

  Returns:
    The arguments' broadcast shape, from 0 to 2; NaN where both are 0.

  Source: jiang2022, equation 63.

  >>> print(relative_deviation(0.75, 0.25))
  1.0
  """
  error = read_within("error", error, "[0, 1]", nan=True)
  disagreement = read_within("disagreement", disagreement, "[0, 1]", nan=True)
  return safe_divide(abs(error - disagreement), 0.5 * (error + disagreement))


def kendall_tau(x: Given["points"], y: Given["points"]) -> Float[Array, ""]:
  """Return Kendall's τ_b: (C - D) / √((pairs untied in x) (pairs untied in y)), C
  concordant, D discordant pairs.

  Args:
    x, y: (points,), numbers.

  Returns:
    0-d, from -1 to 1; NaN for fewer than two points or a constant series.

  Source: jiang2022, section 3 (which leaves the variant open); Kendall 1945.

  >>> print(kendall_tau([1, 2, 3, 3], [1, 3, 2, 4]).round(6))
  0.547723
  """
  x, y = read_series("points", x=x, y=y)
  return as_float64(scipy.stats.kendalltau(x, y).statistic if len(x) > 1 else np.nan)


def r_squared(x: Given["points"], y: Given["points"]) -> Float[Array, ""]:
  """Return the squared Pearson correlation R² of two series: how well the best line
  fits, not the line y = x.

  Args:
    x, y: (points,), numbers.

  Returns:
    0-d, from 0 to 1; NaN for fewer than two points or a constant series.

  Source: jiang2022, section 3; jordan2024, figures 2, 6 and 12.

  >>> print(r_squared([1, 2, 3], [2, 4, 5]).round(6))
  0.964286
  """
  return np.asarray(correlation(*read_series("points", x=x, y=y)) ** 2)


class ScatterAgreement(NamedTuple):
  """How well disagreement predicts the error over configurations."""

  # The squared Pearson correlation
  r_squared: Float[Array, ""]
  # 1 - Σ (err - dis)² / Σ (err - mean err)², for the line error = disagreement
  r_squared_identity: Float[Array, ""]
  kendall_tau: Float[Array, ""]
  mean_deviation: Float[Array, ""]  # mean of `relative_deviation`
  least_ratio: Float[Array, ""]  # the least disagreement / error
  greatest_ratio: Float[Array, ""]


def scatter_agreement(
  error: Given["configurations"],
  disagreement: Given["configurations"],
) -> ScatterAgreement:
  """Return the numbers of a scatter plot of test error (y) against disagreement (x),
  one point per configuration.

  The paper's R² is that of the best line; `r_squared_identity` is that of y = x, and
  negative where y = x predicts the error worse than the mean error does.

  Args:
    error: (configurations,), error rates, fractions.
    disagreement: (configurations,), disagreements, likewise.

  Returns:
    See `ScatterAgreement`, all 0-d. Correlations are NaN for fewer than two points or a
    constant series. The deviation leaves out points where error and disagreement are 0,
    and the ratios those where the error is 0; they are NaN if no point is left.

  Source: jiang2022, section 3, figures 1 to 5, tables 4 and 5, equation 63.

  >>> agreement = scatter_agreement([0.2, 0.3, 0.4], [0.19, 0.3, 0.36])
  >>> print(agreement.r_squared.round(4), agreement.r_squared_identity.round(4), agreement.least_ratio.round(4))
  0.972 0.915 0.9
  """
  y, x = read_series("configurations", error=error, disagreement=disagreement)
  deviation = relative_deviation(y, x)
  ratios = safe_divide(x, y)
  known = np.isfinite(deviation)
  return ScatterAgreement(
    r_squared(x, y),
    identity_r_squared(y, x),
    kendall_tau(x, y),
    safe_divide(np.where(known, deviation, 0).sum(), known.sum()),
    # `fmin` and `fmax` ignore NaN.
    np.asarray(np.fmin.reduce(ratios, initial=np.nan)),
    np.asarray(np.fmax.reduce(ratios, initial=np.nan)),
  )


class DisagreementVariance(NamedTuple):
  """The variance of the disagreement of two runs, and what corollary B.1.1 bounds it
  by.
  """

  variance: Float[Array, ""]  # of Dis(h, h') over all pairs of distinct runs
  kappa: Float[Array, ""]  # κ, the greatest Dis(h, h') / (err(h) + err(h'))
  bound: Float[Array, ""]  # 2κ² Var(err) + 4κ² ETE² - EDR², equation 54
  # 2κ² Var(err) + (4κ² - 1) ETE², equation 55: a bound only where EDR >= ETE
  bound_under_gde: Float[Array, ""]


def disagreement_variance(
  predictions: Given["runs examples"],
  labels: Given["examples"],
  num_classes: int,
) -> DisagreementVariance:
  """Return the variance of the disagreement between pairs of runs, and its two bounds
  by the variance of their errors.

      Var(Dis(h, h')) <= 2κ² Var(err) + 4κ² ETE² - EDR²,    κ = max Dis(h, h') / (err(h) + err(h'))

  ETE and EDR are the mean error and the mean disagreement of distinct runs. Var(err)
  has ddof = 1, and Var(Dis) is the variance (ddof = 0) over all R(R - 1)/2 pairs: the
  first bound then holds for any runs. Takes R² n comparisons.

  Args:
    predictions: (runs, examples), class indices; -1 is an error, and one more class in
      the disagreement.
    labels: (examples,), class indices.
    num_classes: K.

  Returns:
    `variance`, `kappa`, `bound` and `bound_under_gde`, 0-d, squared fractions except κ,
    which is from 0 to 1; NaN for a single run or without examples. κ and the bounds are
    NaN where no run errs.

  Source: jiang2022, corollary B.1.1, equations 54 and 55.

  >>> print(disagreement_variance([[0, 1, 1], [0, 1, 0], [1, 1, 0]], [0, 1, 1], num_classes=2).kappa.round(6))
  1.0
  """
  predictions, labels = read_votes(predictions, labels, num_classes)
  runs, examples = predictions.shape
  if runs < 2:
    return DisagreementVariance(*(as_float64(np.nan),) * 4)
  rows, columns = np.triu_indices(runs, 1)
  dis = disagreement_matrix(predictions)[rows, columns]
  error = safe_divide(count_errors(predictions != labels, 1), examples)
  apart = safe_divide(dis, error[rows] + error[columns])
  kappa = np.fmax.reduce(apart)  # of those that are not NaN
  ete = error.mean()
  edr = dis.mean()
  bound = 2 * kappa**2 * sample_variance(error) + 4 * kappa**2 * ete**2
  return DisagreementVariance(
    np.asarray((centred(dis) ** 2).mean()),
    np.asarray(kappa),
    np.asarray(bound - edr**2),
    np.asarray(bound - ete**2),
  )


class BetaFit(NamedTuple):
  """Parameters of a Beta distribution."""

  a: Float[Array, ""]
  b: Float[Array, ""]


def beta_of_error_rates(
  errors: Given["runs examples"] | Counts,
  unbiased: bool = True,
) -> BetaFit:
  """Return the Beta distribution with the mean and variance of the error distribution,
  the law over examples of 1 - h~_y(x).

  With m the mean and v the variance (ddof = 0) over examples of the error rates ε_i of
  `example_error_rates`,

      a = m s,  b = (1 - m) s,    s = m (1 - m)/v - 1

  `unbiased` subtracts from v what sampling R runs adds to it, mean ε_i (1 - ε_i)/(R -
  1): this fits the moments of the beta-binomial distribution of error counts. Maximum
  likelihood fails on examples that no run, or every run, has wrong.

  Args:
    errors: (runs, examples), bool or 0/1.
    unbiased: False for the moments of the ε_i of these R runs as they are.

  Returns:
    `a` and `b`, 0-d. NaN where no Beta distribution has the moments: all examples
    equally hard (as far as the runs can tell), or each always right or always wrong, as
    with a single run; and without runs or examples.

  Source: jiang2022, appendix D.4, figure 11 (which says neither how it fits nor to what
    parameters).

  >>> fit = beta_of_error_rates([[1, 0, 1, 0], [1, 0, 0, 0], [1, 0, 0, 1]], unbiased=False)
  >>> print(fit.a.round(6), fit.b.round(6))
  0.350877 0.491228
  """
  counts = counts_of_errors(errors)
  runs = counts.runs
  wrong = as_float64(counts.wrong)
  mean = safe_divide(wrong.sum(), len(wrong) * runs)
  # Σ c (R - c) and Σ (c - c̄)² are both exactly 0 where they should be.
  within = (wrong * (runs - wrong)).sum()
  between = (centred(wrong) ** 2).sum()
  if unbiased:
    sampling = safe_divide(within, runs - 1)  # what drawing R runs adds
    within = sampling * runs
    between = between - sampling
  size = safe_divide(within, between)
  size = np.where((within > 0) & (between > 0), size, np.nan)
  return BetaFit(np.asarray(mean * size), np.asarray((1 - mean) * size))
