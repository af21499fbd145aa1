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
  CalibrationCurve, FiniteEnsemble, ScatterAgreement, cace, cace_exact_levels, calibration_band, calibration_curve,
  confidence_histogram, ece, finite_ensemble_calibration, gde_gap, kendall_tau, r_squared, relative_deviation,
  scatter_agreement,
)
from vmapseeds.stats.comparison import (
  AverageComparison, Decision, DetectionRates, MeanDifference, OperatingCharacteristics, VarianceRatio,
  average_comparison, decide, detection_rates, difference_sd, equivalent_threshold, least_significant_difference,
  mean_difference, noether_sample_size, operating_characteristics, paired_power, paired_sample_size,
  probability_of_outperforming, single_point_comparison, variance_ratio,
)
from vmapseeds.stats.disagreement import (
  BetaFit, DisagreementVariance, beta_of_error_rates, churn, disagreement_matrix, disagreement_variance,
  ensemble_accuracy, ensemble_accuracy_of_logits, expected_disagreement, plurality, vote_fractions,
)
from vmapseeds.stats.estimators import (
  Estimate, MseDecomposition, Normality, average_correlation, biased_estimate, equivalent_ideal_size, estimator_se,
  ideal_estimate, mse_decomposition, normality,
)
from vmapseeds.stats.gaps import (
  KsTest, TrimmingLevel, dkw_threshold, ecdf, ensemble_gaps, gap_ece, gap_labels, ks_distance, ks_test, ks_threshold,
  logit_gap, reference_ecdf, trimmed_ks_distance, trimming_level,
)
from vmapseeds.stats.intervals import (
  Interval, correlation_interval, distribution_variance_interval, expected_disagreement_se, gde_gap_se,
  independent_errors_variance_se, mean_interval, proportion_interval, runs_for_precision, split_correlation_interval,
  split_correlation_se, variance_interval,
)
from vmapseeds.stats.losses import LossVariance, brier_score, cross_entropy, loss_variance
from vmapseeds.stats.pairs import DependentPairs, dependent_pairs, expected_false_pairs, most_dependent_pairs
from vmapseeds.stats.resampling import Bootstrap, bootstrap, from_replicates, resamples, top_fraction_gain_bootstrap
from vmapseeds.stats.tallies import Tallies, tally, tally_blocks
from vmapseeds.stats.theory import (
  VarianceFit, binomial_variance, calibration_variance, calibration_variance_bound, poisson_binomial_pmf,
  variance_fit,
)
from vmapseeds.stats.variance import (
  Correlations, TopFractionGain, correlation_p_value, distribution_variance, distribution_variance_se, error_rates,
  example_error_rates, independent_errors_variance, split_correlation, split_covariance, test_set_correlations,
  test_set_variance, top_fraction_gain,
)
