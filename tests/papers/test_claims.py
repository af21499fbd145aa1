"""Results against SciPy and by hand; every claim that a page judges is tried on
simulated campaigns, and errs seldom.
"""

import importlib
import json
import math

import numpy as np
import pytest
import scipy.stats

from experiments import calibration, claims, frame, pages
from experiments.calibration import Simulated
from experiments.claims import Estimate

PLACE = ("1", "section 1")
AROUND = claims.near("x", PLACE, 0.9, 1.1)
SIZED = claims.near("x", PLACE, 2, 4, null=1)
FALLS = claims.near("x", PLACE, 0.2, 0.5, null=1)
ABOVE = claims.above("x", PLACE, 1.0)
BELOW = claims.below("x", PLACE, 1.0)
OTHER = "same direction, other size"


@pytest.mark.parametrize(
  ("claim", "interval", "expected"),
  [
    (AROUND, (1.0, 0.95, 1.05), "reproduced"),
    (AROUND, (1.0, 0.9, 1.1), "reproduced"),
    (AROUND, (1.0, 0.89, 1.1), "cannot tell"),
    (AROUND, (1.5, 1.2, 1.8), "opposite"),
    (AROUND, (0.5, 0.2, 0.8), "opposite"),
    (ABOVE, (2.0, 1.5, 2.5), "reproduced"),
    (ABOVE, (1.4, 0.95, 1.75), "cannot tell"),
    (ABOVE, (0.5, 0.2, 0.8), "opposite"),
    (BELOW, (0.5, 0.3, 0.7), "reproduced"),
    (BELOW, (1.5, 1.3, 1.7), "opposite"),
    (SIZED, (3.0, 2.5, 3.5), "reproduced"),
    (SIZED, (3.0, 1.5, 4.5), "cannot tell"),
    (SIZED, (1.5, 1.2, 1.8), OTHER),
    (SIZED, (6.0, 5.0, 7.0), OTHER),
    (SIZED, (1.1, 0.9, 1.3), "cannot tell"),  # another size, in no known direction
    (SIZED, (0.5, 0.3, 0.7), "opposite"),
    (FALLS, (0.7, 0.6, 0.8), OTHER),
    (FALLS, (0.1, 0.05, 0.15), OTHER),
    (FALLS, (1.5, 1.2, 1.8), "opposite"),
    (AROUND, (math.nan,) * 3, "cannot tell"),
    (ABOVE, (math.nan,) * 3, "cannot tell"),
    (ABOVE, (2.0, 2.0, 2.0), "reproduced"),
    (ABOVE, (2.0, 1.5, math.inf), "reproduced"),
  ],
)
def test_results(claim, interval, expected):
  assert claims.outcome_of(claim, Estimate(*interval)) == expected


@pytest.mark.parametrize("claim", [AROUND, ABOVE, BELOW, SIZED])
@pytest.mark.parametrize("value", [0.3, 0.97, 1.02, 2.9, 4.2])
def test_the_rule_is_the_same_for_both_sides(claim, value):
  """Mirrored at 0, a claim and its estimate have the same result."""
  null = None if claim.null is None else -claim.null
  mirrored = claim._replace(low=-claim.high, high=-claim.low, null=null)
  for reach in (0.05, 0.5, 2.0):
    estimate = Estimate(value, value - reach, value + reach)
    turned = Estimate(-value, -estimate.high, -estimate.low)
    assert claims.outcome_of(claim, estimate) == claims.outcome_of(mirrored, turned)


@pytest.mark.parametrize("runs", [3, 20])
@pytest.mark.parametrize("count", [1, 2, 11])
def test_intervals_that_hold_together_are_bonferronis(runs, count):
  x = np.random.default_rng(runs).normal(1.5, 1, runs)
  estimate = claims.student_estimate(x.mean(), scipy.stats.sem(x), freedom=runs - 1)
  level = 1 - 0.05 / count
  expected = scipy.stats.t.interval(level, runs - 1, x.mean(), scipy.stats.sem(x))
  assert claims.widen(estimate, count)[1:3] == pytest.approx(expected)


def test_intervals_are_widened_on_their_scale():
  plain = claims.student_estimate(0.4, 0.1)
  for scale, back in (("log", math.exp), ("atanh", math.tanh)):
    estimate = Estimate(*map(back, plain[:3]), scale)
    expected = [*map(back, claims.widen(plain, 9)[:3])]
    assert claims.widen(estimate, 9)[:3] == pytest.approx(expected)
  lopsided = claims.widen(Estimate(1.0, 0.5, 5.0), 4)
  assert (lopsided.high - 1) / (1 - lopsided.low) == pytest.approx(8)
  assert claims.widen(Estimate(2.0, 2.0, 2.0, "log"), 9)[:3] == (2, 2, 2)
  open_end = claims.widen(Estimate(2.0, 1.5, math.inf, "log"), 9)
  assert open_end.low < 1.5
  assert open_end.high == math.inf
  assert claims.widen(Estimate(0.1, 0.0, 0.2, "log"), 9).low == 0.0


def test_as_many_pages_as_promised_hold_altogether():
  """Of pages of five independent lines, at least 95 % have no interval that misses."""
  rng, lines = np.random.default_rng(0), 5
  misses = 0
  for _ in range(1000):
    found = [claims.student_estimate(x, 1.0) for x in rng.normal(size=lines)]
    wide = [claims.widen(x, lines) for x in found]
    misses += any(not x.low <= 0 <= x.high for x in wide)
  assert scipy.stats.binomtest(misses, 1000, 0.05, "greater").pvalue > 1e-3
  assert misses > 20  # and not by intervals that never miss


def test_differences_and_ratios_of_independent_estimates():
  a, b = claims.student_estimate(3, 0.3), claims.student_estimate(1, 0.4)
  assert claims.difference_of(a, b)[:3] == pytest.approx(
    claims.student_estimate(2, 0.5)[:3]
  )
  a, b = claims.positive_estimate(3, 0.3), claims.positive_estimate(2, 0.1)
  expected = claims.positive_estimate(1.5, 1.5 * math.hypot(0.1, 0.05))
  assert claims.ratio_of(a, b)[:3] == pytest.approx(expected[:3])
  assert claims.ratio_of(a, Estimate(0, 0, 1))[1:3] == (0, math.inf)


# Simulated campaigns.


JUDGED = [
  (page, name, len(pages.judged_lines(page)))
  for page in (
    importlib.import_module(f"experiments.{name}").PAGE for name in pages.PAGES
  )
  for name in sorted({line.claim for line in pages.judged_lines(page)})
]
EXACT = {
  "power",
  *(
    f"{kind} {criterion}"
    for kind in ("positives", "negatives")
    for criterion in ("single_point", "average", "outperforming")
  ),
}


def test_every_claim_that_a_page_judges_was_tried_and_errs_seldom():
  record = json.loads((pages.GALLERY / "calibration.json").read_text())
  assert record["draws"] == 400
  tried = {(each["paper"], each["claim"]) for each in record["claims"]}
  judged = {(page.paper, name) for page, name, _ in JUDGED}
  assert judged - tried == {("bouthillier2021", name) for name in EXACT}
  assert tried <= judged
  for each in record["claims"]:
    assert each["falsely"] <= calibration.WORST, each
    assert each["power"] >= calibration.LEAST, each


@pytest.mark.slow
@pytest.mark.parametrize(
  ("page", "name", "count"),
  [of for of in JUDGED if of[1] not in EXACT],
  ids=[f"{page.paper}-{name}" for page, name, _ in JUDGED if name not in EXACT],
)
def test_false_claims_are_seldom_reproduced(page, name, count):
  """Fewer draws than the committed ones, and others of the runs: anew."""
  (simulated,) = calibration.select_simulated(page.paper, {name}).values()
  errs = calibration.calibrate(page.paper, name, simulated, count, 60)
  false = round(60 * errs.falsely)
  assert scipy.stats.binomtest(false, 60, calibration.WORST, "greater").pvalue > 1e-3
  true = round(60 * errs.power)
  assert scipy.stats.binomtest(true, 60, calibration.LEAST, "less").pvalue > 1e-3


def test_calibration_of_known_laws():
  """A normal mean: the result errs at its level; one that calls noise a direction does
  not pass.
  """

  def mean(of: float, se: float = 0.1):
    return lambda rng: claims.student_estimate(rng.normal(of, 0.1), se)

  direction = Simulated(mean(1.5), "", mean(1.0), "")
  falsely, power = calibration.false_and_true_shares(ABOVE, direction, 1, 2000)
  assert scipy.stats.binomtest(round(2000 * falsely), 2000, 0.025).pvalue > 1e-4
  assert power == pytest.approx(scipy.stats.norm.cdf(5 - 1.96), abs=0.02)
  falsely, _ = calibration.false_and_true_shares(ABOVE, direction, 10, 2000)
  assert scipy.stats.binomtest(round(2000 * falsely), 2000, 0.0025).pvalue > 1e-4
  _, power = calibration.false_and_true_shares(AROUND, Simulated(mean(1.0), ""), 1, 500)
  assert power == 0  # the interval is wider than the margin
  narrow = Simulated(mean(1.0, 0.02), "")
  assert (
    calibration.false_and_true_shares(AROUND, narrow, 1, 500)[0] > calibration.WORST
  )


def test_a_record_is_revived_as_it_was():
  of = importlib.import_module("experiments.jordan2024.fig05_distribution_variance")
  n = of.Variance(4, 9, 0.2, 0.1, 0.1, math.nan, 0.1, (0.0, 0.3), math.inf, (1.0, 2.0))
  stored = json.loads(json.dumps(frame.plain({"long": n})))
  again = frame.revive(stored, frame.return_type(of.compute))["long"]
  assert again[:5] == n[:5]
  assert math.isnan(again.distribution)
  assert (again.interval, again.ratio_interval) == (n.interval, n.ratio_interval)
  of = importlib.import_module("experiments.jiang2022.fig06_calibration")
  kind = frame.return_type(of.compute)
  value = {
    "AllDiff": {
      "runs": 3,
      "curve": {
        "confidence": [0.1, None],
        "accuracy": [0.2, 0.3],
        "items": [1, 2],
        "weight": [0.5, 0.5],
      },
      "se": [0.1, 0.2],
      "distance": 0.1,
      "low": 0.0,
      "high": 0.2,
    }
  }
  n = frame.revive(value, kind)["AllDiff"]
  assert isinstance(n, of.Curve)
  np.testing.assert_array_equal(n.curve.confidence, [0.1, np.nan])
  assert n.curve.items.dtype.kind == "i"
