"""Statistics of runs × examples arrays, by the definitions of four papers: pure
functions of plain arrays.

These rules hold for all of them and are not repeated:

- Axis 0 is runs, axis 1 examples; an axis of classes comes last. `predictions` are
  class indices; -1 means no prediction, which counts as an error and not as a vote. Where
  a run was not asked for an example, predictions are -2, masked, or NaN among floats:
  statistics of votes and error rates are over what was asked, those that compare runs on
  the same examples refuse.
  `labels` are class indices (examples,), `errors` bool or 0/1.
- NumPy arrays, JAX arrays and nested lists are all accepted. Counts are exact, and made
  on the device of a JAX array; what follows is NumPy float64. A number whose standard
  error or interval is known comes back as an `Estimate`, another one as a 0-d array,
  several as a named tuple. Traced arrays are refused: call these functions outside
  `jit` and `vmap`.
- `runs_for_mean`, `runs_for_variance`, ... say how many runs a question takes,
  `power_for_difference` how often so many runs answer it.
- A statistic that needs no more than counts takes `Tallies` in place of errors, or of
  predictions, labels and num_classes, and is a method of `Tallies`.
- Rates and variances are fractions, not per cent. Variances have ddof = 1 unless a
  docstring says otherwise.
- Two series of pandas whose numbers belong together are paired by their index.
- A result that needs more runs or examples than are given is NaN; each docstring says
  when. Input must be finite.
- A wrong shape, dtype or value, or an argument out of range, raises a `UserError`: one
  line that says what was given and what is allowed.
- Random functions take a `key`, those that resample also `replicates`, and intervals
  the `level` that they cover. These parameters, and those after them, are keyword-only.

`counts` is the door: there arrays become counts, of which statistics are functions.
`counting` has the counting itself, also for programs on devices. Runs that do not fit
into memory are counted by `tally_blocks`. What only the papers' figures need is in
`experiments.measures`.
"""

import typing

from vmapseeds import removed

# `as` says to type checkers that these are public.
from vmapseeds.stats.aggregates import (
  interquartile_mean as interquartile_mean,
  performance_profile as performance_profile,
  probability_of_improvement as probability_of_improvement,
  stratified_bootstrap as stratified_bootstrap,
)
from vmapseeds.stats.calibration import (
  CalibrationCurve as CalibrationCurve,
  cace as cace,
  calibration_band as calibration_band,
  calibration_curve as calibration_curve,
  ece as ece,
  gde_gap as gde_gap,
)
from vmapseeds.stats.comparison import (
  least_p_value as least_p_value,
  mean_difference as mean_difference,
  probability_of_outperforming as probability_of_outperforming,
  variance_ratio as variance_ratio,
)
from vmapseeds.stats.designs import (
  Component as Component,
  Design as Design,
  compare_designs as compare_designs,
  design as design,
)
from vmapseeds.stats.differences import (
  Difference as Difference,
  compare_means as compare_means,
  compare_means_on_other_examples as compare_means_on_other_examples,
  compare_networks as compare_networks,
  holm as holm,
  probability_of_best as probability_of_best,
)
from vmapseeds.stats.disagreement import (
  Confusion as Confusion,
  churn as churn,
  confusion_matrix as confusion_matrix,
  disagreement_matrix as disagreement_matrix,
  ensemble_accuracy as ensemble_accuracy,
  expected_disagreement as expected_disagreement,
  plurality as plurality,
  vote_fractions as vote_fractions,
)
from vmapseeds.stats.estimators import (
  Normality as Normality,
  mean_over_runs as mean_over_runs,
  normality as normality,
)
from vmapseeds.stats.intervals import (
  correlation_over_runs as correlation_over_runs,
  mean_over_groups as mean_over_groups,
  proportion_over_examples as proportion_over_examples,
  variance_over_runs as variance_over_runs,
)
from vmapseeds.stats.scoring import (
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
from vmapseeds.stats.sample_sizes import (
  power_for_difference as power_for_difference,
  runs_for_difference as runs_for_difference,
  runs_for_mean as runs_for_mean,
  runs_for_significance as runs_for_significance,
  runs_for_variance as runs_for_variance,
)
from vmapseeds.stats.resampling import (
  Bootstrap as Bootstrap,
  from_replicates as from_replicates,
  resamples as resamples,
  top_fraction_gain_bootstrap as top_fraction_gain_bootstrap,
)
from vmapseeds.stats.tallies import (
  Tallies as Tallies,
  tally as tally,
  tally_blocks as tally_blocks,
)
from vmapseeds.stats.tasks import (
  compare_within_tasks as compare_within_tasks,
  critical_difference as critical_difference,
  mean_ranks as mean_ranks,
  win_matrix as win_matrix,
)
from vmapseeds.stats.theory import (
  binomial_variance as binomial_variance,
  calibration_variance_bound as calibration_variance_bound,
)
from vmapseeds.stats.uncertainty import Estimate as Estimate
from vmapseeds.stats.variance import (
  TopFractionGain as TopFractionGain,
  correlation_p_value as correlation_p_value,
  distribution_variance as distribution_variance,
  error_rates as error_rates,
  example_error_rates as example_error_rates,
  independent_errors_variance as independent_errors_variance,
  noise_share as noise_share,
  split_correlation as split_correlation,
  split_covariance as split_covariance,
  test_set_variance as test_set_variance,
  top_fraction_gain as top_fraction_gain,
)


# Type checkers would take any name for one that is there.
if not typing.TYPE_CHECKING:

  def __getattr__(name: str) -> object:
    if name in removed.STATISTICS:
      raise AttributeError(f"stats.{name} is gone: {removed.STATISTICS[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
