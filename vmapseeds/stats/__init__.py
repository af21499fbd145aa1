"""Statistics of runs × examples arrays, by the definitions of four papers: pure
functions of plain arrays.

These rules hold for all of them and are not repeated:

- Axis 0 is runs, axis 1 examples; an axis of classes comes last. `predictions` are
  class indices; -1 means no prediction, which counts as an error and not as a vote.
  `labels` are class indices (examples,), `errors` bool or 0/1.
- NumPy arrays, JAX arrays and nested lists are all accepted. Counts are exact, and made
  on the device of a JAX array; what follows is NumPy float64. A single number comes
  back as a 0-d array, several as a named tuple.
- Rates and variances are fractions, not per cent. Variances have ddof = 1 unless a
  docstring says otherwise.
- A result that needs more runs or examples than are given is NaN; each docstring says
  when. Input must be finite.
- A wrong shape, dtype or value, or an argument out of range, raises a `Mistake`: one
  line that says what was given and what is allowed.
- Random functions take a `key`, those that resample also `replicates`, and intervals
  the `level` that they cover. These parameters, and those after them, are keyword-only.
- Functions of errors and predictions with results of a fixed shape run under `jit` and
  `vmap`: in `variance` the error rates, the variances, `split_correlation` and
  `split_covariance`; `churn`, `disagreement_matrix`, `expected_disagreement`,
  `vote_fractions`, `plurality`, `ensemble_accuracy`; and in `calibration` those that
  count votes: `cace`, `ece`, `cace_exact_levels`, `calibration_curve`,
  `confidence_histogram`, `gde_gap`. What is traced stays in JAX, at its precision. The
  other functions refuse traced input.

Each statistic has two layers: a kernel that works on counts, and a function that checks
its input and counts it. Runs that do not fit into memory are tallied by `tally` and
`tally_blocks`, or on devices by `tallies.update`, for the same kernels.
"""

from vmapseeds.stats.calibration import (
  CalibrationCurve,
  FiniteEnsemble,
  ScatterAgreement,
  cace,
  cace_exact_levels,
  calibration_band,
  calibration_curve,
  confidence_histogram,
  ece,
  finite_ensemble_calibration,
  gde_gap,
  kendall_tau,
  r_squared,
  relative_deviation,
  scatter_agreement,
)
from vmapseeds.stats.comparison import (
  AverageComparison,
  Decision,
  DetectionRates,
  MeanDifference,
  OperatingCharacteristics,
  VarianceRatio,
  average_comparison,
  decide,
  detection_rates,
  difference_sd,
  equivalent_threshold,
  least_significant_difference,
  mean_difference,
  noether_sample_size,
  operating_characteristics,
  paired_power,
  paired_sample_size,
  probability_of_outperforming,
  single_point_comparison,
  variance_ratio,
)
from vmapseeds.stats.disagreement import (
  BetaFit,
  DisagreementVariance,
  beta_of_error_rates,
  churn,
  disagreement_matrix,
  disagreement_variance,
  ensemble_accuracy,
  ensemble_accuracy_of_logits,
  expected_disagreement,
  plurality,
  vote_fractions,
)
from vmapseeds.stats.estimators import (
  Estimate,
  MseDecomposition,
  Normality,
  average_correlation,
  biased_estimate,
  equivalent_ideal_size,
  estimator_se,
  ideal_estimate,
  mse_decomposition,
  normality,
)
from vmapseeds.stats.gaps import (
  KsTest,
  TrimmingLevel,
  dkw_threshold,
  ecdf,
  ensemble_gaps,
  gap_ece,
  gap_labels,
  ks_distance,
  ks_test,
  ks_threshold,
  logit_gap,
  reference_ecdf,
  trimmed_ks_distance,
  trimming_level,
)
from vmapseeds.stats.intervals import (
  Interval,
  correlation_interval,
  distribution_variance_interval,
  expected_disagreement_se,
  gde_gap_se,
  independent_errors_variance_se,
  mean_interval,
  proportion_interval,
  runs_for_precision,
  split_correlation_interval,
  split_correlation_se,
  variance_interval,
)
from vmapseeds.stats.losses import (
  LossVariance,
  brier_score,
  cross_entropy,
  loss_variance,
)
from vmapseeds.stats.pairs import (
  DependentPairs,
  dependent_pairs,
  expected_false_pairs,
  most_dependent_pairs,
)
from vmapseeds.stats.resampling import (
  Bootstrap,
  bootstrap,
  from_replicates,
  resamples,
  top_fraction_gain_bootstrap,
)
from vmapseeds.stats.tallies import Tallies, tally, tally_blocks
from vmapseeds.stats.theory import (
  VarianceFit,
  binomial_variance,
  calibration_variance,
  calibration_variance_bound,
  poisson_binomial_pmf,
  variance_fit,
)
from vmapseeds.stats.variance import (
  Correlations,
  TopFractionGain,
  correlation_p_value,
  distribution_variance,
  distribution_variance_se,
  error_rates,
  example_error_rates,
  independent_errors_variance,
  split_correlation,
  split_covariance,
  test_set_correlations,
  test_set_variance,
  top_fraction_gain,
)
from vmapseeds.stats._joint import joint_error_counts
