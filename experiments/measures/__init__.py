"""Statistics and simulations that only the papers' figures need; `vmapseeds.stats` has
the others, and its conventions hold here too.
"""

from experiments.measures.calibrated import (
  FiniteEnsemble,
  finite_ensemble_calibration,
)
from experiments.measures.criteria import (
  AverageComparison,
  Decision,
  average_comparison,
  decide,
  power_for_probability_of_outperforming,
  runs_for_probability_of_outperforming,
)
from experiments.measures.detection import (
  DetectionRates,
  OperatingCharacteristics,
  detection_rates,
  difference_sd,
  equivalent_threshold,
  operating_characteristics,
)
from experiments.measures.estimators import (
  MseDecomposition,
  average_correlation,
  biased_estimate,
  equivalent_ideal_size,
  estimator_se,
  mse_decomposition,
)
from experiments.measures.fits import (
  TestSetCorrelations,
  VarianceFit,
  calibration_variance,
  poisson_binomial_pmf,
  test_set_correlations,
  variance_fit,
)
from experiments.measures.gaps import (
  TrimmingLevel,
  dkw_threshold,
  ecdf,
  ensemble_gaps,
  gap_ece,
  gap_labels,
  ks_distance,
  ks_threshold,
  logit_gap,
  reference_ecdf,
  trimmed_ks_distance,
  trimming_level,
)
from experiments.measures.resampled import bootstrap
