"""Statistics of runs × examples arrays, by the definitions of four papers: pure functions of plain arrays.

What holds for all of them, and is not said again:

- Axis 0 is runs, axis 1 examples; an axis of classes comes last. `predictions` are class indices; -1 stands for none:
  an error, and no vote. `labels` are class indices (examples,), `errors` bool or 0/1.
- NumPy arrays, JAX arrays and nested lists serve alike. They are counted exactly, a JAX array on its device, and what
  follows is NumPy float64. A single number comes back as a 0-d array, several as a named tuple.
- Rates and variances are fractions, not per cent. Variances have ddof = 1 unless a docstring says otherwise.
- What too few runs or examples leave open is NaN, and each docstring says when. Numbers given must be finite.
- A shape, type or value out of place, or an argument out of range, raises a `Mistake`: one line that says what was
  given and what is allowed.
- What is random takes `key`, what is drawn again and again `replicates`, an interval the `level` that it covers: by
  name, like all that stands behind them.
- Under `jit` and `vmap` run the functions of errors and of predictions whose size does not depend on values: the error
  rates, variances and halves of `variance`, `churn`, `disagreement_matrix`, `expected_disagreement`, `vote_fractions`,
  `plurality`, `ensemble_accuracy`, and of `calibration` what counts votes: `cace`, `ece`, `cace_exact_levels`,
  `calibration_curve`, `confidence_histogram`, `gde_gap`. There all stays in JAX, at its precision. The others refuse
  what is traced.

Each statistic is in two layers: a kernel that works on counts, and a function that reads what it is given and counts.
More runs than memory holds are tallied, `tally`, `tally_blocks`, on devices by `tallies.update`: the same kernels.
"""

from vmapseeds.stats.calibration import (
  CalibrationCurve as CalibrationCurve,
  FiniteEnsemble as FiniteEnsemble,
  ScatterAgreement as ScatterAgreement,
  cace as cace,
  cace_exact_levels as cace_exact_levels,
  calibration_band as calibration_band,
  calibration_curve as calibration_curve,
  confidence_histogram as confidence_histogram,
  ece as ece,
  finite_ensemble_calibration as finite_ensemble_calibration,
  gde_gap as gde_gap,
  kendall_tau as kendall_tau,
  r_squared as r_squared,
  relative_deviation as relative_deviation,
  scatter_agreement as scatter_agreement,
)
from vmapseeds.stats.comparison import (
  AverageComparison as AverageComparison,
  Decision as Decision,
  DetectionRates as DetectionRates,
  MeanDifference as MeanDifference,
  OperatingCharacteristics as OperatingCharacteristics,
  VarianceRatio as VarianceRatio,
  average_comparison as average_comparison,
  decide as decide,
  detection_rates as detection_rates,
  difference_sd as difference_sd,
  equivalent_threshold as equivalent_threshold,
  least_significant_difference as least_significant_difference,
  mean_difference as mean_difference,
  noether_sample_size as noether_sample_size,
  operating_characteristics as operating_characteristics,
  paired_power as paired_power,
  paired_sample_size as paired_sample_size,
  probability_of_outperforming as probability_of_outperforming,
  single_point_comparison as single_point_comparison,
  variance_ratio as variance_ratio,
)
from vmapseeds.stats.disagreement import (
  BetaFit as BetaFit,
  DisagreementVariance as DisagreementVariance,
  beta_of_error_rates as beta_of_error_rates,
  churn as churn,
  disagreement_matrix as disagreement_matrix,
  disagreement_variance as disagreement_variance,
  ensemble_accuracy as ensemble_accuracy,
  ensemble_accuracy_of_logits as ensemble_accuracy_of_logits,
  expected_disagreement as expected_disagreement,
  plurality as plurality,
  vote_fractions as vote_fractions,
)
from vmapseeds.stats.estimators import (
  Estimate as Estimate,
  MseDecomposition as MseDecomposition,
  Normality as Normality,
  average_correlation as average_correlation,
  biased_estimate as biased_estimate,
  equivalent_ideal_size as equivalent_ideal_size,
  estimator_se as estimator_se,
  ideal_estimate as ideal_estimate,
  mse_decomposition as mse_decomposition,
  normality as normality,
)
from vmapseeds.stats.gaps import (
  KsTest as KsTest,
  TrimmingLevel as TrimmingLevel,
  dkw_threshold as dkw_threshold,
  ecdf as ecdf,
  ensemble_gaps as ensemble_gaps,
  gap_ece as gap_ece,
  gap_labels as gap_labels,
  ks_distance as ks_distance,
  ks_test as ks_test,
  ks_threshold as ks_threshold,
  logit_gap as logit_gap,
  reference_ecdf as reference_ecdf,
  trimmed_ks_distance as trimmed_ks_distance,
  trimming_level as trimming_level,
)
from vmapseeds.stats.intervals import (
  Interval as Interval,
  correlation_interval as correlation_interval,
  distribution_variance_interval as distribution_variance_interval,
  expected_disagreement_se as expected_disagreement_se,
  gde_gap_se as gde_gap_se,
  independent_errors_variance_se as independent_errors_variance_se,
  mean_interval as mean_interval,
  proportion_interval as proportion_interval,
  runs_for_precision as runs_for_precision,
  split_correlation_interval as split_correlation_interval,
  split_correlation_se as split_correlation_se,
  variance_interval as variance_interval,
)
from vmapseeds.stats.losses import (
  LossVariance as LossVariance,
  brier_score as brier_score,
  cross_entropy as cross_entropy,
  loss_variance as loss_variance,
)
from vmapseeds.stats.pairs import (
  DependentPairs as DependentPairs,
  dependent_pairs as dependent_pairs,
  expected_false_pairs as expected_false_pairs,
  most_dependent_pairs as most_dependent_pairs,
)
from vmapseeds.stats.resampling import (
  Bootstrap as Bootstrap,
  bootstrap as bootstrap,
  from_replicates as from_replicates,
  resamples as resamples,
  top_fraction_gain_bootstrap as top_fraction_gain_bootstrap,
)
from vmapseeds.stats.tallies import (
  Tallies as Tallies,
  tally as tally,
  tally_blocks as tally_blocks,
)
from vmapseeds.stats.theory import (
  VarianceFit as VarianceFit,
  binomial_variance as binomial_variance,
  calibration_variance as calibration_variance,
  calibration_variance_bound as calibration_variance_bound,
  poisson_binomial_pmf as poisson_binomial_pmf,
  variance_fit as variance_fit,
)
from vmapseeds.stats.variance import (
  Correlations as Correlations,
  TopFractionGain as TopFractionGain,
  correlation_p_value as correlation_p_value,
  distribution_variance as distribution_variance,
  distribution_variance_se as distribution_variance_se,
  error_rates as error_rates,
  example_error_rates as example_error_rates,
  independent_errors_variance as independent_errors_variance,
  split_correlation as split_correlation,
  split_covariance as split_covariance,
  test_set_correlations as test_set_correlations,
  test_set_variance as test_set_variance,
  top_fraction_gain as top_fraction_gain,
)
