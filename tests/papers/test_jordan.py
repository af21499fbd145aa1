"""Figures of Jordan 2024: their numbers against loops over runs and SciPy, and the
where the intervals of their rows lie.
"""

import numpy as np
import pytest
import scipy.stats
from matplotlib.figure import Figure
from places import place

from experiments import frame
from experiments.jordan2024 import (
  fig01_accuracies,
  fig02_halves,
  fig03_independent_errors,
  fig04_pair,
  fig05_distribution_variance,
  fig13_binomial,
  fig14_dependent_pairs,
  theorem1_test_sets,
  theorem3_calibration,
)
from experiments.jordan2024.turned import turned
from vmapseeds import stats
from vmapseeds.data.sources import load_digits

RUNS, EXAMPLES = 40, 31
IMAGES = np.arange(EXAMPLES * 4, dtype=np.uint8).reshape(EXAMPLES, 2, 2, 1)


def drawn(seed: int, common: float) -> np.ndarray:
  """Errors of runs of which some are better than others."""
  rng = np.random.default_rng(seed)
  rates = np.linspace(0, 0.8, EXAMPLES) + common * rng.standard_normal((RUNS, 1))
  return rng.random((RUNS, EXAMPLES)) < rates


ERRORS = {
  name: drawn(k, common)
  for k, (name, common) in enumerate(
    {"untrained": 0.1, "short": 0.3, "medium": 0.1, "long": 0.0}.items()
  )
}


def tallied(errors: np.ndarray, pairs: bool = False) -> stats.Tallies:
  return stats.tally(errors.astype(int), np.zeros(errors.shape[1], int), 2, pairs=pairs)


TALLIES = {name: tallied(errors) for name, errors in ERRORS.items()}
PAIRS = tallied(ERRORS["long"], pairs=True)


def by_quantity(rows: list[frame.Row]) -> dict[str, frame.Row]:
  assert all(row.quantity and row.ours for row in rows)
  return {row.quantity: row for row in rows}


@pytest.mark.parametrize("name", ERRORS)
def test_spread(name):
  accuracy = 1 - ERRORS[name].mean(1)
  for s in (frame.spread_of(ERRORS[name]), frame.spread_of(TALLIES[name])):
    np.testing.assert_allclose(np.sort(s.accuracies), np.sort(accuracy), rtol=1e-12)
    expected = accuracy.mean(), accuracy.std(ddof=1), accuracy.std(ddof=1) / RUNS**0.5
    np.testing.assert_allclose([s.mean, s.sd, s.mean_se], expected, rtol=1e-9)
    without_each = np.array(
      [np.delete(accuracy, run).var(ddof=1) for run in range(RUNS)]
    )
    assert s.sd_se == pytest.approx(
      ((RUNS - 1) * without_each.var()) ** 0.5 / (2 * accuracy.std(ddof=1))
    )


def test_accuracies_narrow():
  numbers = {
    name: fig01_accuracies.accuracies_of_duration(4, t) for name, t in TALLIES.items()
  }
  rows = by_quantity(fig01_accuracies.rows(numbers))
  assert rows["sd of accuracy, long: 4 epochs, the paper's 64"].paper == "0.149 %"
  for short, long, expected in (
    ("short", "long", "within"),
    ("long", "short", "outside"),
    ("long", "long", "across"),
  ):
    ours = numbers | {"short": numbers[short], "long": numbers[long]}
    last = fig01_accuracies.rows(ours)[-1]
    assert place(last, high=1) == expected
    assert last.estimate.value == pytest.approx(
      ERRORS[long].mean(1).std(ddof=1) / ERRORS[short].mean(1).std(ddof=1)
    )


@pytest.mark.parametrize("name", ERRORS)
def test_halves(name):
  n = fig02_halves.halves_of_duration(4, TALLIES[name])
  even, odd = 1 - ERRORS[name][:, ::2].mean(1), 1 - ERRORS[name][:, 1::2].mean(1)
  np.testing.assert_allclose(
    sorted(zip(n.even, n.odd, strict=True)), sorted(zip(even, odd, strict=True))
  )
  assert n.correlation == pytest.approx(np.corrcoef(even, odd)[0, 1])
  assert n.correlation_interval[0] < n.correlation < n.correlation_interval[1]
  best = even == even.max()
  assert n.best_gain[0] == pytest.approx(odd[best].mean() - odd.mean())


def test_independent_errors():
  for name, errors in ERRORS.items():
    n = fig03_independent_errors.independence(4, TALLIES[name])
    rates = errors.mean(0)
    predicted = (rates * (1 - rates)).sum() / EXAMPLES**2 * RUNS / (RUNS - 1)
    assert n.predicted == pytest.approx(predicted**0.5)
    assert n.ratio == pytest.approx(errors.mean(1).var(ddof=1) / predicted)
    assert len(n.simulated) == RUNS


def test_simulated_runs_have_the_law_of_independent_errors():
  rates = np.linspace(0, 0.8, 9)
  errors = np.arange(1000)[:, None] < 1000 * rates
  n = fig03_independent_errors.simulated(tallied(errors))
  slow = 1 - (np.random.default_rng(1).random((1000, 9)) < rates).mean(1)
  assert n.mean() == pytest.approx(1 - rates.mean(), abs=4 * n.std() / 1000**0.5)
  assert scipy.stats.ks_2samp(n, slow).pvalue > 0.01


def test_pair():
  n = fig04_pair.pair(PAIRS, IMAGES)
  right = ~ERRORS["long"]
  rates = right.mean(0)
  first = np.abs(rates - 0.362).argmin()
  second = min(
    (i for i in range(EXAMPLES) if i != first), key=lambda i: abs(rates[i] - 0.607)
  )
  assert n.examples == (first, second)
  np.testing.assert_allclose(n.right, rates[[first, second]])
  assert n.both == pytest.approx((right[:, first] & right[:, second]).mean())
  np.testing.assert_array_equal(n.images, IMAGES[[first, second]])
  table = [
    [(a & b).sum() for b in (right[:, second], ~right[:, second])]
    for a in (right[:, first], ~right[:, first])
  ]
  assert n.p_value == pytest.approx(
    scipy.stats.chi2_contingency(table, correction=False).pvalue
  )
  middle = ((rates >= 0.3) & (rates <= 0.7)).sum()
  assert n.pairs.sum() == middle * (middle - 1) // 2
  (row,) = (row for row in fig04_pair.rows(n) if row.estimate)
  assert row.estimate.value == pytest.approx(n.both - rates[first] * rates[second])
  spread = (rates * (1 - rates))[[first, second]]
  reach = 1.959964 * np.sqrt(spread.prod() / RUNS)
  assert row.estimate.high == pytest.approx(row.estimate.value + reach)


def test_a_pair_without_two_uncertain_examples():
  errors = np.zeros((5, 3), bool)
  n = fig04_pair.pair(tallied(errors, pairs=True), IMAGES)
  assert (n.examples, n.p_value, n.pairs.sum()) == ((0, 1), 1, 0)
  assert "—" in fig04_pair.rows(n)[-1].ours


@pytest.mark.parametrize("name", ERRORS)
def test_distribution_variance(name):
  errors = ERRORS[name]
  n = fig05_distribution_variance.variance_of_duration(4, TALLIES[name])
  covariance = np.cov(errors.T)
  off = (covariance.sum() - np.trace(covariance)) / (EXAMPLES * (EXAMPLES - 1))
  observed, independent = errors.mean(1).var(ddof=1), np.trace(covariance) / EXAMPLES**2
  assert n.test_set == pytest.approx(observed**0.5)
  assert n.independent == pytest.approx(independent**0.5)
  if off <= 0:
    assert np.isnan(n.distribution)
    assert n.ratio == np.inf
    return
  assert n.distribution == pytest.approx(off**0.5)
  largest = min(
    0.25,
    EXAMPLES
    / (EXAMPLES - 1)
    * (stats.variance_over_runs(errors.mean(1)).high - independent),
  )
  assert n.interval[1] == pytest.approx(largest**0.5)
  assert n.ratio_interval[0] == pytest.approx(
    ((1 - 1 / EXAMPLES) * largest + independent) / largest
  )
  assert n.ratio_interval[0] < n.ratio < n.ratio_interval[1]


def test_a_variance_below_0_is_shown_as_none():
  """Each run errs on another example, but equally often: the estimate is below 0."""
  n = fig05_distribution_variance.variance_of_duration(
    1, tallied(np.eye(12, 30, dtype=bool))
  )
  assert np.isnan(n.distribution)
  rows = fig05_distribution_variance.rows(dict.fromkeys(ERRORS, n))
  assert any(row.ours.startswith("—") for row in rows)
  fig05_distribution_variance.plot({1: n, 2: n}, Figure().subplots(1, 2))
  assert frame.plain(n)["distribution"] is None


def test_a_variance_below_0_is_an_open_marker_at_0():
  unlike = {"runs": 9, "interval": (0, 0), "ratio": 1, "ratio_interval": (1, 1)}
  below, above = (
    fig05_distribution_variance.Variance(
      epochs,
      test_set=0.02,
      test_set_se=0.001,
      independent=0.01,
      distribution=sd,
      distribution_se=se,
      **unlike,
    )
    for epochs, sd, se in ((0, np.nan, 0.004), (4, 0.02, 0.03))
  )
  ax = Figure().subplots()
  fig05_distribution_variance.against_duration([below, above], ax)
  test_set, distribution, marker = (bars.lines for bars in ax.containers)
  np.testing.assert_allclose(ax.lines[0].get_ydata(), [1, 1])
  np.testing.assert_allclose(test_set[0].get_ydata(), [2, 2])
  np.testing.assert_allclose(distribution[0].get_ydata(), [np.nan, 2])
  assert [
    segment[:, 1].tolist()
    for segment in distribution[2][0].get_segments()
    if len(segment)
  ][-1] == [0, 5]
  assert (marker[0].get_xdata().tolist(), marker[0].get_ydata().tolist()) == ([0], [0])
  assert marker[0].get_markerfacecolor() == "white"
  np.testing.assert_allclose(marker[2][0].get_segments()[0][:, 1], [0, 0.4])
  assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "4"]
  labels = [text.get_text() for text in ax.get_legend().get_texts()]
  assert "distribution: variance estimate below 0" in labels
  ax = Figure().subplots()
  fig05_distribution_variance.against_duration([above], ax)
  assert sorted(text.get_text() for text in ax.get_legend().get_texts()) == sorted(
    label for label in labels if "below" not in label
  )


def test_binomial():
  n = fig13_binomial.compare_with_binomial(4, PAIRS)
  errors = ERRORS["long"]
  rate, rates, observed = errors.mean(), errors.mean(0), errors.mean(1).var(ddof=1)
  assert n.over_observed["binomial"] == pytest.approx(
    rate * (1 - rate) / EXAMPLES / observed
  )
  independent = (rates * (1 - rates)).sum() / EXAMPLES**2 * RUNS / (RUNS - 1)
  assert n.over_observed["independent"] == pytest.approx(independent / observed)


def test_binomial_rows():
  n = fig13_binomial.compare_with_binomial(4, PAIRS)
  cases = {
    (2.0, 3.0): "within",
    (1.1, 1.6): "outside",
    (0.6, 0.9): "outside",
    (0.8, 1.9): "across",
  }
  for binomial, expected in cases.items():
    intervals = {"binomial": binomial, "independent": (0.9, 1.1)}
    row, other = fig13_binomial.rows(n._replace(intervals=intervals))
    assert place(row, 1.7, 3.5) == expected
    assert other.estimate[1:3] == (0.9, 1.1)


def test_dependent_pairs():
  n = fig14_dependent_pairs.scan_tallies(PAIRS, IMAGES)
  right = ~ERRORS["long"]
  deviation = {  # times R², a whole number
    (i, j): RUNS * (right[:, i] & right[:, j]).sum()
    - right[:, i].sum() * right[:, j].sum()
    for i in range(EXAMPLES)
    for j in range(i + 1, EXAMPLES)
  }
  sizes = np.abs(list(deviation.values()))
  assert (n.pairs, n.thresholds[0], n.found[0]) == (
    len(sizes),
    0.02,
    (50 * sizes > RUNS**2).sum(),
  )
  np.testing.assert_array_equal(
    n.found[1:-1],
    [(sizes > threshold * RUNS**2).sum() for threshold in n.thresholds[1:-1]],
  )
  assert n.found[-1] == 0 < n.by_chance[0]
  farthest = max(deviation, key=lambda pair: abs(deviation[pair]))
  assert abs(deviation[n.most.i[0], n.most.j[0]]) == abs(deviation[farthest])
  np.testing.assert_array_equal(n.images[:, 1], IMAGES[n.most.j])
  row = fig14_dependent_pairs.rows(n)[0]
  assert place(row, 0, 1e-6) == "across"


def test_dependent_pairs_of_enough_runs():
  n = fig14_dependent_pairs.scan_tallies(PAIRS, IMAGES)
  known = n._replace(by_chance=np.zeros_like(n.by_chance))
  assert place(fig14_dependent_pairs.rows(known)[0], 0, 1e-6) == "outside"
  none = known._replace(found=np.zeros_like(n.found))
  assert place(fig14_dependent_pairs.rows(none)[0], 0, 1e-6) == "within"


# Theorems.


def test_equation_3_is_exact_over_all_test_sets():
  """All test sets of two examples from a distribution of five: theorem 2 and lemma 2
  hold to the last digit.
  """
  errors = drawn(5, 0.2)[:6, 10:15]
  n = theorem1_test_sets.known(errors)
  assert n.truth == pytest.approx(errors.mean(1).var())
  found = np.array(
    [theorem1_test_sets.moments(errors[:, [i, j]]) for i in range(5) for j in range(5)]
  ).mean(0)
  np.testing.assert_allclose(found, [n.truth / 2 + n.of_examples / 2, n.truth])


def test_drawn_test_sets():
  errors = np.tile(drawn(6, 0.2), (1, 4))
  n = theorem1_test_sets.known(errors)
  assert list(n.by_size) == [100]
  found = n.by_size[100]
  assert abs(found.estimate - n.truth) < 4 * found.estimate_se
  assert (
    abs(found.test_set - (0.99 * n.truth + n.of_examples / 100)) < 4 * found.test_set_se
  )
  assert found.middle[0] < found.estimate < found.middle[1]
  first, second = theorem1_test_sets.rows(n)
  assert place(first, 1) == place(second, 0.7, 1.3) == "within"
  wrong = n._replace(truth=2 * n.truth)
  assert place(theorem1_test_sets.rows(wrong)[1], 0.7, 1.3) == "outside"


def votes(classes: int, calibrated: bool) -> tuple[np.ndarray, np.ndarray]:
  """Predictions drawn from each example's class probabilities; labels drawn likewise,
  or the likeliest class.
  """
  rng = np.random.default_rng(classes)
  q = rng.dirichlet(np.ones(classes), 3000)
  below = q.cumsum(1)[:, :-1]
  predictions = (rng.random((30, 3000, 1)) > below).sum(2)
  return predictions, (rng.random((3000, 1)) > below).sum(
    1
  ) if calibrated else q.argmax(1)


@pytest.mark.parametrize("calibrated", [True, False])
def test_calibration_implies_variance(calibrated):
  numbers = {
    f"{k} classes": theorem3_calibration.measure_calibration(*votes(k, calibrated), k)
    for k in (2, 5)
  }
  predictions, labels = votes(2, calibrated)
  errors, n = predictions != labels, numbers["2 classes"]
  pairs = [
    (predictions[a] != predictions[b]).mean() for a in range(30) for b in range(a)
  ]
  assert n.disagreement == pytest.approx(np.mean(pairs))
  assert n.error == pytest.approx(errors.mean())
  assert n.of_examples == pytest.approx(errors.var(0, ddof=1).mean())
  expected = errors.mean(1).var(ddof=1)  # on the distribution's own examples
  assert theorem3_calibration.on_test_sets(n, 3000) == pytest.approx(expected)
  rows = theorem3_calibration.rows(numbers)
  by_theorem = {4: [], 5: []}
  for row in rows:
    for theorem, bounds in ((4, (1,)), (5, (0.9, 1.1))):
      if row.quantity.startswith(f"theorem {theorem}"):
        by_theorem[theorem].append(place(row, *bounds))
  of_5 = {*by_theorem[5]}
  assert of_5 == {"within" if calibrated else "outside"}
  if calibrated:
    assert {*by_theorem[4]} == {"within"}


def test_turned_data():
  digits, found = load_digits(), turned("digits")
  np.testing.assert_array_equal(found.train.inputs, digits.tests["test"].inputs)
  np.testing.assert_array_equal(found.tests["test"].targets, digits.train.targets)
  assert (found.num_classes, list(found.tests)) == (10, ["test"])
