"""Estimates: a value that NumPy takes as an array, with an uncertainty that is computed
when it is read.
"""

import math
import pickle
import weakref

import jax.numpy as jnp
import numpy as np
import pytest

from vmapseeds import stats
from vmapseeds.stats import calibration, disagreement, intervals, variance
from vmapseeds.stats.uncertainty import Estimate

ESTIMATE = Estimate(0.25, se=0.125, low=-0.5, high=1.5, level=0.9)


def test_parts():
  assert (ESTIMATE.value, ESTIMATE.se, ESTIMATE.level) == (0.25, 0.125, 0.9)
  assert ESTIMATE.interval == (ESTIMATE.low, ESTIMATE.high) == (-0.5, 1.5)
  for part in (ESTIMATE.value, ESTIMATE.se, *ESTIMATE.interval):
    assert isinstance(part, np.ndarray)
    assert (part.shape, part.dtype) == ((), np.float64)
  alone = Estimate(3)
  assert np.isnan([alone.se, alone.low, alone.high]).all()
  assert alone.level == 0.95


def test_it_is_its_value_in_numpy_and_in_arithmetic():
  e, x = ESTIMATE, np.array([1.0, 2.0])
  for result, expected in (
    (e**0.5, 0.5),
    (1 - e, 0.75),
    (-e, -0.25),
    (abs(e), 0.25),
    (e / e, 1.0),
    (np.sqrt(e), 0.5),
    (np.float64(2) * e, 0.5),
    (np.maximum(e, 1), 1.0),
    (math.sqrt(e), 0.5),
    (round(e, 1), 0.2),
    (np.clip(e, 0, 0.1), 0.1),
    (x * e, [0.25, 0.5]),
    (e * x, [0.25, 0.5]),
    (np.asarray([e, e]), [0.25, 0.25]),
    (jnp.asarray(x) - e, [0.75, 1.75]),
  ):
    np.testing.assert_allclose(result, expected)
    assert not isinstance(result, Estimate)
  assert e == 0.25
  assert e > 0.2
  assert e == pytest.approx(0.25)
  assert not np.isnan(e)
  assert (int(Estimate(2.5)), bool(Estimate(0)), bool(e)) == (2, False, True)
  assert max(0.0, float(e)) == 0.25
  assert np.array(e, np.float32).dtype == np.float32
  np.testing.assert_array_equal(np.add.reduce(Estimate([1.0, 2.0])), 3)


@pytest.mark.parametrize(
  ("estimate", "text"),
  [
    (
      Estimate(0.00314, 0.00041, 0.0023, 0.0039),
      "0.00314 ± 0.00041 [0.00230, 0.00390]",
    ),
    # As sensible where the digit that is shown is rounded up to the next place.
    (
      Estimate(0.0009988, 0.000211, 0.00067, 0.0019),
      "0.00100 ± 0.00021 [0.00067, 0.00190]",
    ),
    (
      Estimate(2.31e-6, 4.1e-7, 1.6e-6, 3.4e-6),
      "2.31e-06 ± 4.10e-07 [1.60e-06, 3.40e-06]",
    ),
    (Estimate(1234.5, 456.0, 200, 2000), "1234 ± 456 [200, 2000]"),
    (Estimate(0.7), "0.7"),
    (Estimate(0.7, 0.1), "0.70 ± 0.10"),
    (Estimate(0.7, low=0.5, high=0.9), "0.70 [0.50, 0.90]"),
    (Estimate(0.5, 0, 0.5, 0.5), "0.5 ± 0 [0.5, 0.5]"),
    (Estimate(1, low=-np.inf, high=np.inf), "1 [-inf, inf]"),
    (Estimate(-1e-9, 0.01, -0.02, 0.02), "0.000 ± 0.010 [-0.020, 0.020]"),
    (Estimate(0, 0, 0, 0), "0 ± 0 [0, 0]"),
    (Estimate(np.nan), "nan"),
    (Estimate(np.nan, low=0, high=1), "nan [0.00, 1.00]"),
  ],
)
def test_texts(estimate, text):
  assert repr(estimate) == str(estimate) == f"{estimate}" == text


def test_formats_are_of_the_value():
  assert f"{ESTIMATE:.1%}" == "25.0%"
  assert repr(Estimate([1.0, 2.0])).startswith("Estimate(value=array([1., 2.]), se=")


def test_it_is_fixed_and_can_be_pickled():
  with pytest.raises(AttributeError, match="se of an Estimate is fixed"):
    ESTIMATE.se = 1.0
  with pytest.raises(AttributeError, match="value of an Estimate is fixed"):
    ESTIMATE.value = 1.0
  deferred = Estimate.deferred(1.0, lambda: (0.5, 0.0, 2.0), 0.9)
  for estimate in (ESTIMATE, deferred):
    same = pickle.loads(pickle.dumps(estimate))
    assert repr(same) == repr(estimate)
    assert same.level == 0.9
  with pytest.raises(TypeError, match="unhashable"):
    hash(ESTIMATE)
  with pytest.raises(TypeError, match=r"not iterable|cannot unpack"):
    _low, _high = ESTIMATE


def test_the_uncertainty_is_computed_once_when_it_is_read():
  calls = []
  data = np.zeros(3)
  held = weakref.ref(data)

  def uncertainty(data=data):
    calls.append(len(data))
    return 0.5, 0.0, 2.0

  estimate = Estimate.deferred(1.0, uncertainty, 0.95)
  del data, uncertainty
  assert float(estimate) + estimate == 2
  assert f"{estimate:.1f}" == "1.0"
  assert not calls
  assert held() is not None
  assert (estimate.se, estimate.low, estimate.high) == (0.5, 0, 2)
  assert calls == [3]
  # The data are let go, at once.
  assert held() is None


def test_values_alone_compute_no_uncertainty(monkeypatch):
  def refuse(*_):
    raise AssertionError("computed")

  names = {"disagreement_of_each_run", "variance_se", "variance_ends"}
  for module in (calibration, disagreement, intervals, variance):
    for name in (names | {"correlation_uncertainty"}) & set(vars(module)):
      monkeypatch.setattr(module, name, refuse)
  predictions = np.array([[0, 1, 2, 0], [0, 1, 1, 2], [0, 2, 2, 1], [1, 1, 0, 0]])
  labels = np.array([0, 1, 2, 0])
  errors = predictions != labels
  rates = errors.mean(1)
  for estimate in (
    stats.test_set_variance(errors),
    stats.independent_errors_variance(errors),
    stats.distribution_variance(errors),
    stats.split_correlation(errors),
    stats.expected_disagreement(predictions, 3),
    stats.gde_gap(predictions, labels, 3),
    stats.variance_over_runs(rates),
    stats.correlation_over_runs(rates, rates[::-1]),
  ):
    assert np.isfinite(float(estimate))
    with pytest.raises(AssertionError, match="computed"):
      _ = estimate.se
