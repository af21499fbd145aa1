"""Verdicts against SciPy and by hand; every claim is stated by a row and tried on
simulated campaigns; committed pages count what their records say.
"""

import importlib
import json
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from experiments import calibration, claims, frame
from experiments.calibration import PAPERS, Simulated
from experiments.claims import Estimate

PAGES = Path(__file__).parents[2] / "docs" / "gallery"
GALLERIES = (*PAPERS, "mnist")
PLACE = ("1", "section 1")
AROUND = claims.near("x", PLACE, 0.9, 1.1)
ABOVE = claims.above("x", PLACE, 1.0)
BELOW = claims.below("x", PLACE, 1.0)
TRUE = claims.identity("x", PLACE, low=1.0)


def alone(claim: claims.Claim, estimate: Estimate) -> claims.Verdict:
  return claims.judge([(claim, estimate)])[0]


@pytest.mark.parametrize(
  ("claim", "interval", "word"),
  [
    (AROUND, (1.0, 0.95, 1.05), "agrees"),
    (AROUND, (1.0, 0.9, 1.1), "agrees"),
    (AROUND, (1.0, 0.89, 1.1), "undecided"),
    (AROUND, (1.5, 1.2, 1.8), "contradicted"),
    (AROUND, (0.5, 0.2, 0.8), "contradicted"),
    (ABOVE, (2.0, 1.5, 2.5), "shown"),
    (ABOVE, (1.4, 1.05, 1.75), "undecided"),  # excluded at 5 %, not at 1 %
    (ABOVE, (0.5, 0.2, 0.8), "contradicted"),
    (BELOW, (0.5, 0.3, 0.7), "shown"),
    (BELOW, (1.5, 1.3, 1.7), "contradicted"),
    (TRUE, (1.0, 0.0, 2.0), "identity"),
    (TRUE, (0.9, 0.0, 2.0), "violated"),
    (AROUND, (math.nan,) * 3, "undecided"),
    (ABOVE, (math.nan,) * 3, "undecided"),
    (ABOVE, (2.0, 2.0, 2.0), "shown"),
    (AROUND, (1.0, 1.0, 1.0), "agrees"),
  ],
)
def test_verdicts(claim, interval, word):
  assert alone(claim, Estimate(*interval)).word == word


@pytest.mark.parametrize("runs", [2, 3, 20])
def test_p_values_are_those_of_students_test(runs):
  x = np.random.default_rng(runs).normal(1.5, 1, runs)
  estimate = claims.estimated(x.mean(), scipy.stats.sem(x), freedom=runs - 1)
  interval = scipy.stats.t.interval(0.95, runs - 1, x.mean(), scipy.stats.sem(x))
  assert estimate[1:3] == pytest.approx(interval)
  for claim, side in ((ABOVE, "greater"), (BELOW, "less")):
    expected = scipy.stats.ttest_1samp(x, 1.0, alternative=side).pvalue
    assert claims.p_value(claim, estimate) == pytest.approx(expected)


def test_scales():
  """The same distance in standard errors, whether on its own scale or transformed."""
  plain = claims.estimated(0.4, 0.1)
  for scale, back in (("log", np.exp), ("atanh", np.tanh)):
    estimate = Estimate(*back(plain[:3]), scale)
    expected = claims.distance(plain, 0.25)
    assert claims.distance(estimate, back(0.25)) == pytest.approx(expected)
    assert expected == pytest.approx(1.5)
  # The side that faces the null counts.
  lopsided = Estimate(1.0, 0.5, 5.0)
  assert claims.distance(lopsided, 0.5) == pytest.approx(1.959964)
  assert claims.distance(lopsided, 5.0) == pytest.approx(-1.959964)
  assert claims.distance(Estimate(0.0, 0.0, 0.0, "log"), 0.1) == -math.inf
  assert claims.distance(Estimate(1.0, 0.0, 2.0, "log"), 0.1) == 0


def test_holm_over_a_page():
  """Against the method by hand; values and identities take no part in it."""
  ps = [0.0001, 0.004, 0.0045, 0.03]
  page = [(ABOVE, Estimate(2, 1, 3, p_value=p)) for p in ps]
  others = [(AROUND, Estimate(1, 0.95, 1.05)), (TRUE, Estimate(1, 1, 1))] * 3
  words = [v.word for v in claims.judge(page + others)]
  # 0.01/4, 0.01/3, ...: the second is above its level, and so the third is not tried.
  assert words[:4] == ["shown", "undecided", "undecided", "undecided"]
  assert words[4:] == ["agrees", "identity"] * 3
  assert [v.word for v in claims.judge(page[1:2])] == ["shown"]
  assert claims.judge([]) == []


@pytest.mark.parametrize(
  ("claim", "mean"), [(ABOVE, 1.2), (AROUND, 1.05), (BELOW, 1.1)]
)
def test_as_many_runs_as_are_said_would_decide(claim, mean):
  """With that many times as many, the interval is so narrow that the verdict just
  falls; with fewer it does not.
  """
  times = alone(claim, claims.estimated(mean, 0.3)).times
  for factor, decided in ((1.01, True), (0.99, False)):
    more = claims.estimated(mean, 0.3 / math.sqrt(factor * times))
    assert (alone(claim, more).word != "undecided") == decided


def test_differences_and_ratios_of_independent_estimates():
  a, b = claims.estimated(3, 0.3), claims.estimated(1, 0.4)
  assert claims.less(a, b)[:3] == pytest.approx(claims.estimated(2, 0.5)[:3])
  a, b = claims.positive(3, 0.3), claims.positive(2, 0.1)
  expected = claims.positive(1.5, 1.5 * math.hypot(0.1, 0.05))
  assert claims.over(a, b)[:3] == pytest.approx(expected[:3])
  assert claims.over(a, Estimate(0, 0, 1))[1:3] == (0, math.inf)


def test_words():
  told = claims.told
  assert told(claims.Verdict("undecided", 3.21), 64) == (
    "undecided: about 210 runs would decide"
  )
  assert told(claims.Verdict("undecided", 37.2), "32 pairs") == (
    "undecided: 38 times as many would decide"
  )
  assert told(claims.Verdict("undecided", math.inf), 64).endswith("would not decide")
  assert told(claims.Verdict("undecided"), 64) == "undecided"
  assert told(claims.Verdict("violated"), 64) == "violated: the code is wrong"


@pytest.mark.parametrize("claim", [AROUND, ABOVE, BELOW, TRUE])
@pytest.mark.parametrize("freedom", [math.inf, 4.0])
def test_a_stored_row_has_the_same_verdict(claim, freedom):
  estimate = Estimate(1.2, 1.0, math.inf, "log", freedom)
  row = frame.row("x", claim, estimate, 3)
  stored = json.loads(json.dumps(frame.plain(row), allow_nan=False))
  read, again = claims.read(stored)
  assert read == claim._replace(printed=list(PLACE))
  assert again[:2] == estimate[:2]
  assert (again.scale, again.freedom) == ("log", freedom)
  assert alone(read, again).word == alone(claim, estimate).word


@pytest.mark.parametrize("paper", PAPERS)
def test_every_statistic_that_claims_are_of_is_tried(paper):
  stated = importlib.import_module(f"experiments.{paper}.paper").CLAIMS
  tried = importlib.import_module(f"experiments.{paper}.simulated").SIMULATED
  exact = {  # nothing is drawn
    "Noether's sample size less the printed one",
    "power of 29 pairs at γ = 0.75",
  }
  of = {stated[name].statistic for name in tried}
  assert {claim.statistic for claim in stated.values()} - of <= exact
  for name, simulated in tried.items():
    assert bool(simulated.null) or not stated[name].is_direction


@pytest.mark.parametrize("page", GALLERIES)
def test_committed_pages_count_what_their_records_say(page):
  """Every claim of the paper's is stated by a row; nothing is violated; the index and
  README count as the verdicts do.
  """
  index = json.loads((PAGES / page / "index.json").read_text())
  records = [
    json.loads((PAGES / page / f"{name}.json").read_text()) for name in index["figures"]
  ]
  rows = [row for record in records for row in record["rows"]]
  judged = claims.judge([claims.read(row) for row in rows])
  verdicts = [verdict for verdict in judged if verdict]
  identities = sum(verdict.word == "identity" for verdict in verdicts)
  assert claims.counted(verdicts) | {"identity": identities} == index["verdicts"]
  assert not [verdict for verdict in verdicts if verdict.word == "violated"]
  stated = importlib.import_module(
    f"experiments.{index['paper']}.paper"
  ).CLAIMS.values()
  of_rows = {claims.read(row)[0]._replace(printed=()) for row in rows if row["claim"]}
  assert of_rows <= {claim._replace(printed=()) for claim in stated}
  counts = " | ".join(map(str, index["verdicts"].values()))
  assert f"| [{page}]({page}/index.md) | {counts} |" in (PAGES / "index.md").read_text()


def test_readme_counts_all_claims():
  every = [
    json.loads((PAGES / page / "index.json").read_text())["verdicts"]
    for page in GALLERIES
  ]
  agrees, shown, contradicted, undecided = (
    sum(of[word] for of in every) for word in claims.WORDS
  )
  said = f"Of {agrees + shown + contradicted + undecided} claims, {agrees} agree"
  rest = f"{shown} are shown, {contradicted} contradicted and {undecided} undecided"
  readme = " ".join((PAGES.parent.parent / "README.md").read_text().split())
  assert f"{said}, {rest}" in readme


def test_committed_verdicts_err_seldom():
  record = json.loads((PAGES / "calibration" / "numbers.json").read_text())
  assert record["draws"] == 400
  names = {(each["paper"], each["statistic"]) for each in record["claims"]}
  for paper in PAPERS:
    stated = importlib.import_module(f"experiments.{paper}.paper").CLAIMS
    tried = importlib.import_module(f"experiments.{paper}.simulated").SIMULATED
    assert {(paper, stated[name].statistic) for name in tried} <= names
  for each in record["claims"]:
    if each["kind"] != "identity":
      assert each["falsely"] <= calibration.WORST, each


@pytest.mark.slow
def test_calibration_of_known_laws():
  """A normal mean: the verdict errs at its level; one that calls noise a direction does
  not pass.
  """

  def mean(of: float, se: float = 0.1):
    return lambda rng: claims.estimated(rng.normal(of, 0.1), se)

  direction = Simulated(mean(1.5), "", mean(1.0), "")
  errs = calibration.calibrated("p", ABOVE, direction, 2000)
  assert errs.kind == "direction"
  assert scipy.stats.binomtest(round(2000 * errs.falsely), 2000, 0.01).pvalue > 1e-4
  assert errs.power == pytest.approx(scipy.stats.norm.cdf(5 - 2.326), abs=0.02)
  value = calibration.calibrated("p", AROUND, Simulated(mean(1.0), ""), 2000)
  assert value.power == 0  # the interval is wider than the margin
  narrow = Simulated(mean(1.0, 0.02), "")
  assert calibration.calibrated("p", AROUND, narrow, 500).falsely > calibration.WORST
  known = calibration.calibrated("p", TRUE, Simulated(mean(3), "", mean(3)), 20)
  assert (known.kind, known.falsely, known.power) == ("identity", 1, 1)


def test_a_record_is_revived_as_it_was():
  of = importlib.import_module("experiments.jordan2024.fig05_distribution_variance")
  n = of.Variance(4, 9, 0.2, 0.1, 0.1, math.nan, 0.1, (0.0, 0.3), math.inf, (1.0, 2.0))
  stored = json.loads(json.dumps(frame.plain({"long": n})))
  again = frame.revived(stored, frame.return_type(of.compute))["long"]
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
  n = frame.revived(value, kind)["AllDiff"]
  assert isinstance(n, of.Curve)
  np.testing.assert_array_equal(n.curve.confidence, [0.1, np.nan])
  assert n.curve.items.dtype.kind == "i"
