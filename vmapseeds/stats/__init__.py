"""Statistics of runs × examples arrays, by the definitions of four papers: pure
functions of plain arrays.

These rules hold for all of them and are not repeated:

- Axis 0 is runs, axis 1 examples; an axis of classes comes last. `predictions` are
  class indices; -1 means no prediction, which counts as an error and not as a vote.
  `labels` are class indices (examples,), `errors` bool or 0/1.
- NumPy arrays, JAX arrays and nested lists are all accepted. Counts are exact, and made
  on the device of a JAX array; what follows is NumPy float64. A single number comes
  back as a 0-d array, several as a named tuple. Traced arrays are refused: call these
  functions outside `jit` and `vmap`.
- A statistic that needs no more than counts takes `Tallies` in place of errors, or of
  predictions, labels and num_classes, and is a method of `Tallies`.
- Rates and variances are fractions, not per cent. Variances have ddof = 1 unless a
  docstring says otherwise.
- A result that needs more runs or examples than are given is NaN; each docstring says
  when. Input must be finite.
- A wrong shape, dtype or value, or an argument out of range, raises a `Mistake`: one
  line that says what was given and what is allowed.
- Random functions take a `key`, those that resample also `replicates`, and intervals
  the `level` that they cover. These parameters, and those after them, are keyword-only.

`counts` is the door: there arrays become counts, of which statistics are functions.
`device_counts` has the counting itself, for programs on devices. Runs that do not fit
into memory are counted by `tally_blocks`. What only the papers' figures need is in
`experiments.measures`.
"""

from vmapseeds.stats.calibration import (
  CalibrationCurve,
  FiniteEnsemble,
  cace,
  calibration_band,
  calibration_curve,
  ece,
  finite_ensemble_calibration,
  gde_gap,
)
from vmapseeds.stats.comparison import (
  AverageComparison,
  Decision,
  MeanDifference,
  VarianceRatio,
  average_comparison,
  decide,
  mean_difference,
  noether_sample_size,
  paired_power,
  paired_sample_size,
  probability_of_outperforming,
  variance_ratio,
)
from vmapseeds.stats.disagreement import (
  churn,
  disagreement_matrix,
  ensemble_accuracy,
  expected_disagreement,
  plurality,
  vote_fractions,
)
from vmapseeds.stats.estimators import (
  Estimate,
  Normality,
  ideal_estimate,
  normality,
)
from vmapseeds.stats.gaps import (
  ks_distance,
  ks_threshold,
  logit_gap,
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
  binomial_variance,
  calibration_variance_bound,
)
from vmapseeds.stats.variance import (
  TopFractionGain,
  correlation_p_value,
  distribution_variance,
  distribution_variance_se,
  error_rates,
  example_error_rates,
  independent_errors_variance,
  split_correlation,
  split_covariance,
  test_set_variance,
  top_fraction_gain,
)
