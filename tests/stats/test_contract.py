"""What all statistics have in common, those of the papers too. Every public name must be
in CASES or RESULTS.
"""

import doctest
import importlib
import inspect
import re
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from beartype import beartype
from cases import words_of
from jaxtyping import jaxtyped

from experiments import measures
from vmapseeds import UserError, stats

RUNS, EXAMPLES, CLASSES = 6, 10, 3
_rng = np.random.default_rng(7)
ERRORS = _rng.uniform(size=(RUNS, EXAMPLES)) < _rng.uniform(0.1, 0.9, EXAMPLES)[None]
LABELS = _rng.integers(0, CLASSES, EXAMPLES)
PREDICTIONS = np.where(ERRORS, _rng.integers(-1, CLASSES, ERRORS.shape), LABELS[None])
GAPS = _rng.normal(size=(3, EXAMPLES))
MEMBERS = np.array([[0, 1], [1, 2]])
CANDIDATES = _rng.normal(0.5, 1, (2, EXAMPLES))
X, Y = _rng.integers(0, 5, (2, 12)) / 8
RATES = _rng.uniform(0, 1, 12)
PAIRS = np.arange(1, 13)
MEASURES = _rng.normal(size=(5, 4))
LOGITS = _rng.normal(size=(RUNS, EXAMPLES, CLASSES))
SETS = np.stack(
  [ERRORS, ERRORS ^ (_rng.uniform(size=ERRORS.shape) < 0.3), ~ERRORS & ERRORS[::-1]]
)
LOSSES = _rng.gamma(1, 1, (RUNS, EXAMPLES))
FRACTIONS = _rng.dirichlet(np.ones(CLASSES), EXAMPLES)


class Case(NamedTuple):
  """A call, the axes of its array arguments and of each result, and the bounds of the
  results.
  """

  args: tuple
  axes: tuple[str, ...]
  out: tuple[str, ...]
  low: float
  high: float
  options: dict = {}  # noqa: RUF012
  # Axes whose order matters; each case gives the reason.
  ordered: tuple[str, ...] = ()


def of_errors(out, low, high, **kwargs):
  return Case((ERRORS,), ("runs examples",), out, low, high, **kwargs)


def of_votes(out, low, high, **kwargs):
  classes = {"num_classes": CLASSES}
  return Case(
    (PREDICTIONS, LABELS),
    ("runs examples", "examples"),
    out,
    low,
    high,
    classes,
    **kwargs,
  )


def of_predictions(out, low, high, **options):
  return Case((PREDICTIONS,), ("runs examples",), out, low, high, options)


def of_pairs(*out, **kwargs):
  return Case((X, Y), ("points", "points"), out, 0, 1, **kwargs)


def elementwise(high, *args):
  return Case(args, ("points",) * len(args), ("points",), 0, high)


# An estimate with its standard error and both ends.
KNOWN = ("",) * 4
# Halves are made of even and odd examples.
halves = partial(of_errors, ordered=("examples",))

CASES = {
  "error_rates": of_errors(("runs",), 0, 1),
  "example_error_rates": of_errors(("examples",), 0, 1),
  "test_set_variance": of_errors(KNOWN, 0, 0.5),
  "independent_errors_variance": of_errors(KNOWN, 0, 0.5 / EXAMPLES),
  "distribution_variance": of_errors(KNOWN, -0.5, 0.5),
  "noise_share": of_errors(("",) * 3, 0, 1),
  "split_correlation": halves(KNOWN, -1, 1),
  "split_covariance": halves(("",), -0.5, 0.5),
  "top_fraction_gain": halves(("", "", ""), -1, 1),
  # Pairs name examples by place.
  "dependent_pairs": of_errors(("pairs",) * 4, 0, EXAMPLES, ordered=("examples",)),
  "most_dependent_pairs": of_errors(
    ("pairs",) * 4, 0, EXAMPLES, options={"k": 7}, ordered=("examples",)
  ),
  "expected_false_pairs": Case((RATES,), ("points",), ("",), 0, 66, {"runs": 100}),
  "test_set_correlations": Case(
    (SETS,), ("sets runs examples",), ("sets sets",) * 3, -1, 1
  ),
  "variance_fit": of_pairs(*("",) * 5)._replace(low=-9),
  "loss_variance": Case(
    (LOSSES,), ("runs examples",), ("",) * 14, -1, 9, ordered=("examples",)
  ),  # its halves
  "cross_entropy": Case(
    (LOGITS, LABELS),
    ("runs examples classes", "examples"),
    ("runs examples",),
    0,
    20,
    ordered=("classes",),
  ),
  "brier_score": Case(
    (LOGITS, LABELS),
    ("runs examples classes", "examples"),
    ("runs examples",),
    0,
    2,
    ordered=("classes",),
  ),
  "binomial_variance": elementwise(0.25, RATES, 1 + 9 * RATES),
  "calibration_variance": elementwise(0.5, RATES, 1 + 9 * RATES),
  "calibration_variance_bound": elementwise(0.5, RATES, 1 + 9 * RATES, 2 + RATES),
  "correlation_p_value": Case((RATES,), ("points",), ("points",), 0, 1, {"runs": 9}),
  "poisson_binomial_pmf": Case((RATES,), ("points",), ("events",), 0, 1),
  "churn": Case(
    (PREDICTIONS, PREDICTIONS[::-1]), ("runs examples",) * 2, ("runs",), 0, 1
  ),
  "disagreement_matrix": of_predictions(("runs runs",), 0, 1),
  "confusion_matrix": of_votes(("labels predicted",) * 2, 0, RUNS * EXAMPLES),
  "expected_disagreement": of_predictions(KNOWN, 0, 1, num_classes=CLASSES),
  "vote_fractions": of_predictions(("examples classes",), 0, 1, num_classes=CLASSES),
  "plurality": of_predictions(("examples",), -1, CLASSES - 1, num_classes=CLASSES),
  "ensemble_accuracy": of_votes(("",), 0, 1),
  "cace": of_votes(("",), 0, CLASSES),
  "ece": of_votes(("",), 0, 1),
  "gde_gap": of_votes(KNOWN, 0, 1),
  "calibration_curve": Case(
    (PREDICTIONS, LABELS),
    ("runs examples", "examples"),
    ("bins",) * 4,
    0,
    EXAMPLES * CLASSES,
    {"num_classes": CLASSES, "bins": 2},
  ),
  # The bootstrap draws examples by their place, and a simulation draws for each.
  "calibration_band": Case(
    (PREDICTIONS, LABELS),
    ("runs examples", "examples"),
    ("bins",) * 3,
    0,
    1,
    {"num_classes": CLASSES, "bins": 2, "key": jax.random.key(0), "replicates": 20},
    ordered=("examples",),
  ),
  "finite_ensemble_calibration": Case(
    (FRACTIONS,),
    ("examples classes",),
    ("",) * 4,
    0,
    CLASSES,
    {"runs": 3, "key": jax.random.key(0), "replicates": 5},
    ordered=("examples", "classes"),
  ),
  "logit_gap": Case(
    (np.stack([GAPS, -GAPS], -1),),
    ("runs examples class",),
    ("runs examples",),
    -9,
    9,
    ordered=("class",),
  ),  # its sign
  "gap_labels": Case((GAPS,), ("runs examples",), ("runs examples",), 0, 1),
  "gap_ece": Case(
    (GAPS, LABELS % 2), ("runs examples", "examples"), ("runs",), 0, 1, {"bins": 3}
  ),
  "ensemble_gaps": Case(
    (GAPS, MEMBERS),
    ("models examples", "ensembles members"),
    ("ensembles examples",),
    -9,
    9,
    ordered=("models",),
  ),  # which `members` name
  "ecdf": Case((CANDIDATES, X), ("runs examples", "points"), ("runs points",), 0, 1),
  "reference_ecdf": Case((GAPS, X), ("models examples", "points"), ("points",), 0, 1),
  "ks_threshold": elementwise(5, 2 + RATES * 100),
  "dkw_threshold": elementwise(5, 2 + RATES * 100, 1 + RATES),
  "ks_distance": Case(
    (GAPS, CANDIDATES), ("models points", "candidates points"), ("candidates",), 0, 1
  ),
  "trimmed_ks_distance": Case(
    (GAPS, CANDIDATES),
    ("models points", "candidates points"),
    ("candidates",),
    0,
    1,
    {"alpha": 0.2},
  ),
  # The bootstrap draws examples by their place.
  "trimming_level": Case(
    (GAPS, CANDIDATES),
    ("models examples", "candidates examples"),
    ("candidates", "candidates replicates", "candidates"),
    0,
    5,
    {"key": jax.random.key(0), "replicates": 5, "threshold": 0.77},
    ordered=("examples",),
  ),
  # It has an interval and no standard error, as `variance_ratio` below.
  "probability_of_outperforming": of_pairs(*KNOWN[1:]),
  "decide": of_pairs("", "", "", "", ""),
  "runs_for_probability_of_outperforming": Case(
    (0.55 + RATES / 5,), ("points",), ("points",), 1, 2000
  ),
  "power_for_probability_of_outperforming": Case(
    (PAIRS, RATES), ("points", "points"), ("points",), 0, 1
  ),
  "mean_difference": of_pairs(*KNOWN)._replace(low=-1),
  "compare_means": of_pairs("", "", "", "")._replace(low=-1),
  "compare_means_on_other_examples": Case(
    (ERRORS, ~ERRORS), ("runs examples",) * 2, KNOWN, -2, 2
  ),
  "compare_networks": Case((ERRORS[0], ERRORS[1]), ("examples",) * 2, ("",) * 4, -1, 1),
  "interquartile_mean": Case((MEASURES,), ("runs tasks",), ("",), -9, 9),
  "probability_of_improvement": Case(
    (MEASURES, MEASURES[:4] + 0.2), ("runs tasks", "others tasks"), ("",), 0, 1
  ),
  "performance_profile": Case(
    (MEASURES, X), ("runs tasks", "points"), ("points",), 0, 1
  ),
  "holm": Case((RATES,), ("points",), ("points",), 0, 1),
  "compare_within_tasks": Case(
    (X, Y, np.arange(12) % 3), ("points",) * 3, ("",) * 4, -1, 1
  ),
  "mean_ranks": Case((MEASURES,), ("points tasks",), ("points",), 1, 5),
  "win_matrix": Case((MEASURES,), ("points tasks",), ("points points",), 0, 1),
  "runs_for_mean": Case((RATES,), ("points",), ("points",), 2, 999, {"reach": 0.1}),
  "runs_for_difference": Case(
    (RATES,), ("points",), ("points",), 6, 999, {"difference": 0.2}
  ),
  "variance_ratio": of_pairs(*KNOWN[1:])._replace(high=20),
  "difference_sd": elementwise(2, RATES, RATES[::-1]),
  "equivalent_threshold": elementwise(9, (1 + RATES) / 3)._replace(low=-9),
  "average_comparison": of_pairs("", "", "", "", "")._replace(low=-1),
  "detection_rates": Case(
    (RATES,),
    ("points",),
    ("points",) * 6,
    0,
    1,
    {"correlation": 0.1, "key": jax.random.key(0), "replicates": 50},
  ),
  "operating_characteristics": Case(
    (RATES,), ("points",), ("points",) * 3, 0, 1, {"correlation": 0.1}
  ),
  "biased_estimate": Case((RATES,), ("runs",), ("",) * 2, 0, 1, {"correlation": 0.25}),
  "estimator_se": elementwise(1, 1 + 9 * RATES, RATES, RATES[::-1] / 2),
  "equivalent_ideal_size": elementwise(10, 1 + 9 * RATES, RATES / 2),
  "normality": Case((RATES,), ("runs",), ("", ""), 0, 1),
  "average_correlation": Case((MEASURES,), ("repetitions k",), ("",), -1, 1),
  "mse_decomposition": Case(
    (MEASURES,), ("repetitions k",), ("",) * 5, -1, 9, {"truth": 0.5}
  ),
  "mean_over_runs": Case((RATES,), ("runs",), KNOWN, 0, 1),
  "mean_over_groups": Case(
    (RATES, np.arange(12) // 3), ("points", "points"), KNOWN, -1, 2
  ),
  "variance_over_runs": Case((RATES,), ("runs",), KNOWN, 0, 20),
  "correlation_over_runs": of_pairs(*KNOWN)._replace(low=-1),
  "proportion_over_examples": Case(
    (RATES,), ("points",), ("points",) * 4, 0, 1, {"examples": 40}
  ),
  "runs_for_variance": of_errors(
    ("",), 1, 999, options={"statistic": "test_set_variance", "relative": 0.2}
  ),
  "from_replicates": Case((GAPS,), ("replicates examples",), ("examples",) * 3, -9, 9),
  # The bootstrap draws runs by their place.
  "top_fraction_gain_bootstrap": of_errors(
    ("",) * 3,
    -1,
    1,
    options={"key": jax.random.key(0), "replicates": 20},
    ordered=("runs", "examples"),
  ),
}
RESULTS = {
  *words_of(
    "AverageComparison Bootstrap CalibrationCurve Confusion Component Design "
    "TestSetCorrelations Decision DependentPairs Difference DetectionRates "
    "Estimate FiniteEnsemble LossVariance MseDecomposition Normality "
    "OperatingCharacteristics TopFractionGain TrimmingLevel VarianceFit"
  )
}
# These take no arrays, or return counts or many statistics at once; test_differences.py,
# test_designs.py, test_over_several_tasks.py, test_aggregates.py, test_tallies.py and test_resampling.py test them.
COUNTS = {"Tallies", "bootstrap", "resamples", "tally", "tally_blocks"} | {
  *words_of(
    "compare_designs critical_difference design least_p_value "
    "power_for_difference probability_of_best runs_for_significance "
    "stratified_bootstrap"
  )
}

every = pytest.mark.parametrize("name", CASES)


def function(name):
  return getattr(stats if hasattr(stats, name) else measures, name)


def leaves(result):
  """The arrays of a result; of estimates also what is known of their uncertainty."""
  if isinstance(result, stats.Estimate):
    uncertainty = [result.se, result.low, result.high]
    return [result.value, *(x for x in uncertainty if not np.isnan(x).all())]
  if isinstance(result, tuple):
    return [leaf for part in result for leaf in leaves(part)]
  return [result]


def call(name, *args):
  return leaves(function(name)(*args, **CASES[name].options))


def equal(given, expected, tolerance, name):
  assert len(given) == len(expected)
  for g, e in zip(given, expected, strict=True):
    np.testing.assert_allclose(
      np.asarray(g, float),
      np.asarray(e, float),
      rtol=tolerance,
      atol=tolerance / 10,
      err_msg=name,
    )


def test_every_public_name_is_in_one_set():
  of_stats, of_papers = (
    {
      n
      for n, v in vars(package).items()
      if not n.startswith("_") and not inspect.ismodule(v)
    }
    for package in (stats, measures)
  )
  assert not of_stats & of_papers
  public = of_stats | of_papers
  assert set(CASES) | RESULTS | COUNTS == public
  assert not set(CASES) & RESULTS


@every
def test_order_of_runs_and_of_examples(name):
  case = CASES[name]
  before = call(name, *case.args)
  rng = np.random.default_rng(0)
  for axis in {a for axes in case.axes for a in axes.split()} - set(case.ordered):
    sizes = [
      x.shape[axes.split().index(axis)]
      for x, axes in zip(case.args, case.axes, strict=True)
      if axis in axes.split()
    ]
    if axis == "points" and "models points" in case.axes:
      moves = [
        rng.permutation(s) for s in sizes
      ]  # Each model has a sample of its own: no order is shared.
    else:
      moves = [rng.permutation(sizes[0])] * len(sizes)
    moves_left = iter(moves)
    moved = [
      np.take(x, next(moves_left), axes.split().index(axis))
      if axis in axes.split()
      else x
      for x, axes in zip(case.args, case.axes, strict=True)
    ]
    expected = before
    for place in range(2):
      expected = [
        np.take(e, moves[0], place)
        if len(out.split()) > place and out.split()[place] == axis
        else e
        for e, out in zip(expected, case.out, strict=True)
      ]
    equal(call(name, *moved), expected, 1e-12, f"{name} along {axis}")


@every
def test_range_shape_and_type(name):
  case = CASES[name]
  for result, out in zip(call(name, *case.args), case.out, strict=True):
    assert isinstance(result, np.ndarray)
    assert result.ndim == len(out.split())
    assert np.isfinite(result).all()
    assert (result >= case.low).all()
    assert (result <= case.high + 1e-12).all()
    if result.dtype.kind == "f":
      assert result.dtype == np.float64


@every
def test_lists_and_jax_arrays_are_taken_like_numpy(name):
  """They also agree with the annotations, whose shapes are checked."""
  annotated = jaxtyped(function(name), typechecker=beartype)
  statistic, args = partial(annotated, **CASES[name].options), CASES[name].args
  expected = leaves(statistic(*args))
  lists = [a.tolist() if isinstance(a, np.ndarray) else a for a in args]
  equal(leaves(statistic(*lists)), expected, 1e-15, name)
  arrays = [jnp.asarray(a) if isinstance(a, np.ndarray) else a for a in args]
  # Integers are counted exactly; floats have been rounded to float32 by JAX.
  rounded = any(a.dtype.kind == "f" for a in args if isinstance(a, np.ndarray))
  equal(leaves(statistic(*arrays)), expected, 3e-5 if rounded else 1e-15, name)


@every
def test_tracers_are_refused(name):
  case = CASES[name]
  for place, x in enumerate(case.args):
    rest = [*case.args]

    def alone(x, place=place, rest=rest):
      return call(name, *rest[:place], x, *rest[place + 1 :])

    with pytest.raises(
      UserError,
      match="is traced: this statistic is computed in NumPy, call it outside jit",
    ):
      jax.eval_shape(alone, x)


@every
def test_options_stand_behind_the_data_and_agree(name):
  parameters = inspect.signature(function(name)).parameters.values()
  named = {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}
  assert list(named) == [
    option for option in ("key", "level", "replicates") if option in named
  ]
  assert not {"key", "level", "replicates"} & {
    p.name for p in parameters if p.kind is not p.KEYWORD_ONLY
  } or (
    name == "from_replicates"  # the replicates are its data
  )
  assert "level" not in named or named["level"].default == 0.95


@every
def test_key_and_level_are_checked(name):
  statistic, case = function(name), CASES[name]
  parameters = inspect.signature(statistic).parameters
  for option, given in (
    ("key", 0),
    ("level", "95%"),
    ("level", [0.9, 0.95]),
    ("level", 1),
  ):
    # A key that may be left out is not always read.
    if option in parameters and parameters[option].default is not None:
      with pytest.raises(
        UserError,
        match=rf"{option} is {re.escape(repr(given))}: give (a number|one JAX random key)",
      ):
        statistic(*case.args, **case.options | {option: given})


def modules():
  """By name, the modules that define public statistics, and these."""
  found = {}
  for name in CASES:
    found.setdefault(function(name).__module__, []).append(name)
  return found


@pytest.mark.parametrize("module", modules())
def test_examples_in_docstrings_run(module):
  failed, tried = doctest.testmod(importlib.import_module(module))
  assert failed == 0
  assert tried >= len(modules()[module])


def test_docstrings_say_what_they_must():
  parts = ("Args:", "Returns:", "Source: ", ">>> ")
  documentation = {name: inspect.getdoc(function(name)) for name in CASES}
  missing = [
    (name, part)
    for name, doc in documentation.items()
    for part in parts
    if part not in doc
  ]
  assert not missing
