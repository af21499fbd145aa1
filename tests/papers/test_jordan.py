"""Figures of Jordan 2024: their numbers against loops over runs and SciPy, and the
where the intervals of their rows lie.
"""

import json

import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.stats
from places import place

from experiments import frame
from experiments.jordan2024 import (
  fig01,
  fig02,
  fig03,
  fig04_pair,
  fig05,
  fig13,
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


BY_EPOCHS = dict(zip((0, 1, 4, 12), ERRORS.values(), strict=True))
SCRIPTS = (fig01, fig02, fig03, fig05, fig13)


def rows_of_script(script) -> dict[str, dict]:
  numbers = script.measure(BY_EPOCHS)
  figure = script.draw(numbers)
  assert figure.axes
  plt.close(figure)
  for row in numbers["rows"]:
    assert row["low"] <= row["value"] <= row["high"] or np.isnan(row["low"])
  return {row["quantity"]: row for row in numbers["rows"]}


@pytest.mark.parametrize("epochs", BY_EPOCHS)
def test_scripts_of_figures_equal_loops(epochs):
  """Figures 1, 2, 3, 5 and 13, without their intervals."""
  errors = BY_EPOCHS[epochs]
  accuracy = 1 - errors.mean(1)
  rates = errors.mean(0)
  independent = (rates * (1 - rates)).sum() / EXAMPLES**2 * RUNS / (RUNS - 1)
  covariance = np.cov(errors.T)
  off = (covariance.sum() - np.trace(covariance)) / (EXAMPLES * (EXAMPLES - 1))
  variance = accuracy.var(ddof=1)
  even, odd = errors[:, ::2].mean(1), errors[:, 1::2].mean(1)
  mean = accuracy.mean()
  expected = {
    fig01: {"mean accuracy": 100 * mean, "sd of accuracy": 100 * variance**0.5},
    fig02: {"correlation of the halves": np.corrcoef(even, odd)[0, 1]},
    fig03: {
      "variance ÷ independent errors'": variance / independent,
      "sd if errors were independent": 100 * independent**0.5,
    },
    fig05: {
      "sd on the test set": 100 * variance**0.5,
      "sd on the distribution": 100 * max(off, 0) ** 0.5,
      "share of the variance": 100 * max(off, 0) / variance,
    },
    fig13: {
      "binomial ÷ observed variance": mean * (1 - mean) / EXAMPLES / variance,
      "independent errors ÷ observed variance": independent / variance,
    },
  }
  for script, numbers in expected.items():
    found = rows_of_script(script)
    for quantity, value in numbers.items():
      row = found[f"{quantity}, {epochs} epochs"]
      assert row["value"] == pytest.approx(value), quantity
      assert row["runs"] == RUNS


def test_ends_of_ratios_are_those_of_the_observed_variance():
  errors = BY_EPOCHS[1]
  low, high = stats.variance_over_runs(errors.mean(1)).interval
  rates = errors.mean(0)
  independent = (rates * (1 - rates)).sum() / EXAMPLES**2 * RUNS / (RUNS - 1)
  ratio = rows_of_script(fig03)["variance ÷ independent errors', 1 epochs"]
  assert (ratio["low"], ratio["high"]) == pytest.approx(
    (low / independent, high / independent)
  )
  over = rows_of_script(fig13)["independent errors ÷ observed variance, 1 epochs"]
  assert (over["low"], over["high"]) == pytest.approx(
    (independent / high, independent / low)
  )


def test_a_script_of_kept_predictions(tmp_path, capsys):
  for first, runs in ((0, 25), (25, 15)):
    part = ERRORS["short"][first : first + runs]
    np.savez(
      tmp_path / f"predictions-1-{first}.npz",
      predictions=part.T.astype(np.int8),
      labels=np.zeros(EXAMPLES, np.int8),
    )
  fig05.main(["--kept", str(tmp_path), "--epochs", "1", "--out", str(tmp_path / "out")])
  written = json.loads((tmp_path / "out" / "fig05.json").read_text())
  expected = fig05.measure({1: ERRORS["short"]})
  assert [row["runs"] for row in written["rows"]] == [RUNS] * 3
  for row, other in zip(written["rows"], expected["rows"], strict=True):
    assert row["value"] == pytest.approx(other["value"])
  assert (tmp_path / "out" / "fig05.png").exists()
  assert "sd on the distribution, 1 epochs" in capsys.readouterr().out


def test_a_script_trains_runs_that_others_take_too(tmp_path):
  words = ["--epochs", "1", "--runs-in", str(tmp_path), "--out", str(tmp_path / "out")]
  fig05.main([*words, "--runs", "2"])
  blocks = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("blocks/**/*")}
  fig13.main([*words, "--runs", "2"])
  assert blocks
  assert blocks == {path: path.stat().st_mtime_ns for path in blocks}
  found = json.loads((tmp_path / "out" / "fig13.json").read_text())
  assert [row["runs"] for row in found["rows"]] == [2, 2]


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
