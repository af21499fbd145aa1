"""Intervals of differences and ratios; records."""

import json
import math
from typing import NamedTuple

import numpy as np
import pytest
import scipy.stats

from experiments import estimates, frame
from experiments.estimates import Estimate


@pytest.mark.parametrize("runs", [3, 20])
def test_intervals_are_students(runs):
  x = np.random.default_rng(runs).normal(1.5, 1, runs)
  found = estimates.student_estimate(x.mean(), scipy.stats.sem(x), runs - 1)
  expected = scipy.stats.t.interval(0.95, runs - 1, x.mean(), scipy.stats.sem(x))
  assert found[1:3] == pytest.approx(expected)


def test_differences_and_ratios_of_independent_estimates():
  a, b = estimates.student_estimate(3, 0.3), estimates.student_estimate(1, 0.4)
  assert estimates.difference_of(a, b)[:3] == pytest.approx(
    estimates.student_estimate(2, 0.5)[:3]
  )
  a, b = estimates.positive_estimate(3, 0.3), estimates.positive_estimate(2, 0.1)
  expected = estimates.positive_estimate(1.5, 1.5 * math.hypot(0.1, 0.05))
  assert estimates.ratio_of(a, b)[:3] == pytest.approx(expected[:3])
  assert estimates.ratio_of(a, Estimate(0, 0, 1))[1:3] == (0, math.inf)


class Spread(NamedTuple):
  sd: float
  ends: tuple[float, float]
  values: np.ndarray


def test_a_record_is_revived_as_it_was():
  n = Spread(math.nan, (0.0, 0.3), np.arange(3))
  stored = json.loads(json.dumps(frame.plain({"long": n})))
  again = frame.revive(stored, dict[str, Spread])["long"]
  assert math.isnan(again.sd)
  assert again.ends == n.ends
  np.testing.assert_array_equal(again.values, n.values)
