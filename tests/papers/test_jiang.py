"""Jiang's ensembles: numbers against loops, laws with known answers, and the printed
values against each other.
"""

import numpy as np
import pytest
import xarray as xr
from places import place

from experiments.jiang2022 import campaigns, groups, paper
from experiments.jiang2022 import fig06_calibration as fig06
from experiments.jiang2022 import fig11_errors as fig11
from experiments.jiang2022 import fig12_confidences as fig12
from experiments.jiang2022 import fig14_classes as fig14
from experiments.jiang2022 import table1_ensembles_cifar10 as table1
from experiments.jiang2022.groups import Group

RUNS, EXAMPLES, CLASSES = 16, 300, 4


def law(
  rng: np.random.Generator, examples: int = EXAMPLES, classes: int = CLASSES
) -> np.ndarray:
  """Probabilities of the classes, (examples, classes), of which many are near 0 and 1."""
  return rng.dirichlet(np.full(classes, 0.2), examples)


def drawn(
  rng: np.random.Generator, of_runs: np.ndarray, of_labels: np.ndarray, runs: int = RUNS
) -> Group:
  """Runs and labels drawn independently from two laws. If the laws are equal, the
  ensemble is calibrated.
  """
  predictions = np.stack([rng.multinomial(1, of_runs).argmax(1) for _ in range(runs)])
  return Group(predictions, rng.multinomial(1, of_labels).argmax(1), of_runs.shape[1])


@pytest.fixture(scope="module")
def group() -> Group:
  """Runs of a law, and labels of a more certain one."""
  rng = np.random.default_rng(0)
  p = law(rng)
  return drawn(rng, p, p**2 / (p**2).sum(1, keepdims=True))


def of_two(P: np.ndarray, y: np.ndarray) -> float:
  """CACE of two runs: 0, 1 or 2 votes."""
  votes = (P[..., None] == np.arange(CLASSES)).sum(0)
  hits = y[:, None] == np.arange(CLASSES)
  return sum(abs((hits - v / 2)[votes == v].sum()) for v in range(3)) / len(y)


@pytest.mark.slow
def test_table_1_equals_loops(group):
  n = table1.measure_ensemble(group)
  P, y = group.predictions, group.labels
  error = (y != P).mean(1)
  assert n.runs == RUNS
  assert n.error == pytest.approx(
    (error.mean(), error.std(ddof=1) / RUNS**0.5, error.std(ddof=1))
  )
  pairs = [(P[a] != P[b]).mean() for a in range(RUNS) for b in range(a)]
  assert n.disagreement.mean == pytest.approx(np.mean(pairs))
  assert n.disagreement.sd == pytest.approx(np.std(pairs))
  assert n.gap == pytest.approx(abs(error.mean() - np.mean(pairs)))
  assert n.ratio == pytest.approx(error.mean() / np.mean(pairs))
  assert {size: c.ensembles for size, c in n.cace.items()} == {2: 8, 5: 3, 16: 1}
  caces = [of_two(P[[i, i + 8]], y) for i in range(8)]
  assert n.cace[2].value == pytest.approx(np.mean(caces))
  assert n.cace[2].se == pytest.approx(np.std(caces, ddof=1) / 8**0.5)
  # The law is calibrated: any error comes from the small number of runs and shrinks
  # with more.
  calibrated = [c.calibrated for c in n.cace.values()]
  assert calibrated == sorted(calibrated, reverse=True)


@pytest.mark.slow
def test_few_runs_of_a_calibrated_law_are_not_called_badly_calibrated():
  rng = np.random.default_rng(1)
  p = law(rng, 1000)
  calibrated = table1.measure_ensemble(drawn(rng, p, p, 60))
  alike = table1.measure_ensemble(
    drawn(rng, p, np.cbrt(p) / np.cbrt(p).sum(1, keepdims=True), 60)
  )
  numbers = {
    "AllDiff": calibrated,
    "DiffData": calibrated,
    "DiffInit": alike,
    "DiffOrder": alike,
  }
  rows = {row.quantity: row for row in table1.rows(numbers)}
  assert place(rows["CACE of 2, AllDiff"], 0) == "across"
  assert place(rows["CACE of 2, DiffInit"], 0) == "within"
  of_ratio = "error over disagreement, {}".format
  assert place(rows[of_ratio("DiffOrder")], 1, 1.3) == "outside"
  same = rows["CACE of DiffInit and DiffOrder over that of AllDiff and DiffData"]
  expected = (
    np.mean([n.cace[60].value for n in (alike, alike)]) / calibrated.cace[60].value
  )
  assert same.estimate.value == pytest.approx(expected)
  assert rows["CACE of all, AllDiff"][1:3] == ("0.0437", "table 1")
  assert rows["test error, DiffInit"].paper == "33.7 %, sd 1.7 %"
  swapped = dict(zip(numbers, reversed(numbers.values()), strict=True))
  (last,) = (r for r in table1.rows(swapped) if r.quantity.startswith("CACE of DiffI"))
  assert last.estimate.value == pytest.approx(1 / expected)
  assert place(last, 1.7, 3.5) == "outside"
  cifar100 = {row.quantity: row for row in table1.rows(numbers, "table 3")}
  assert cifar100["CACE of 2, AllDiff"].paper == "poorly calibrated"
  assert cifar100["gap, DiffInit"][1:3] == ("8.65 %", "table 3")


@pytest.mark.slow
def test_an_ensemble_of_two_runs(group):
  n = table1.measure_ensemble(group._replace(predictions=group.predictions[:2]))
  assert list(n.cace) == [2]
  assert n.cace[2].value == pytest.approx(of_two(group.predictions[:2], group.labels))
  rows = {row.quantity: row for row in table1.rows(dict.fromkeys(campaigns.GROUPS, n))}
  assert rows["CACE of all, AllDiff"].paper == "0.0437"
  assert rows["gap, AllDiff"].ours.startswith(f"{100 * n.gap:.4g} %")


def test_printed_gaps_are_those_of_error_and_disagreement():
  for where, table in paper.ENSEMBLES.items():
    for name, row in table.items():
      exact = (where, name) != ("table 3", "DiffData")
      of_means = abs(row.error[0] - row.disagreement[0])
      assert (abs(of_means - row.gap) < 1e-9) == exact, (where, name)
      assert sorted(row.cace.values(), reverse=True) == list(row.cace.values())


@pytest.mark.parametrize("power", [3, 1, 1 / 3])
def test_figure_6_tells_ensembles_that_are_calibrated(power):
  """Runs define the bins. The labels' law is known, so each bin's expected distance
  from y = x is known too.
  """
  rng = np.random.default_rng(2)
  p = law(rng, 3000)
  of_labels = p**power / (p**power).sum(1, keepdims=True)
  group = drawn(rng, p, of_labels, 100)
  n = fig06.calibration_of_group(group)
  votes = (group.predictions[..., None] == np.arange(CLASSES)).sum(0)
  squares, items = [], []
  for b in range(1, 9):
    here = votes // 10 == b
    squares.append((of_labels[here].mean() - votes[here].mean() / 100) ** 2)
    items.append(here.sum())
  exact = (np.dot(squares, items) / np.sum(items)) ** 0.5
  assert n.low <= exact <= n.high
  assert n.high - n.low < 0.1
  (row,) = fig06.rows({"AllDiff": n})
  assert place(row, -0.1, 0.1) == ("within" if power == 1 else "outside")


def test_figure_6_says_that_there_are_too_few_examples():
  p = law(np.random.default_rng(3), 40)
  n = fig06.calibration_of_group(drawn(np.random.default_rng(3), p, p, 20))
  (row,) = fig06.rows({"AllDiff": n})
  assert place(row, -0.1, 0.1) == "across"


def test_figure_11_equals_loops_and_fits_what_is_beta():
  rng = np.random.default_rng(4)
  rates = rng.beta(0.3, 0.9, 4000)
  predictions = (rng.random((50, 4000)) < rates).astype(int)
  n = fig11.error_rates(Group(predictions, np.zeros(4000, int), 2))
  wrong = predictions.sum(0)
  assert n.counts.tolist() == [(wrong == c).sum() for c in range(51)]
  assert abs(n.fit.a - 0.3) < 4 * n.a_se < 0.2
  assert abs(n.fit.b - 0.9) < 4 * n.b_se < 0.4
  assert n.distance < 0.02
  # With two classes, runs that disagree predict one of each, so pairs can be counted
  # from the error counts.
  excess = 2 * wrong * (50 - wrong) / (50 * 49) - wrong / 50
  assert n.more.value == pytest.approx((excess >= 0.1).mean())
  assert n.less.value == pytest.approx((excess <= -0.1).mean())
  assert n.more.low < n.more.value < n.more.high
  by_quantity = {row.quantity: row for row in fig11.rows({"AllDiff": n})}
  assert (
    place(by_quantity["distance from the Beta fit, AllDiff"], -0.05, 0.05) == "within"
  )


def test_figure_11_knows_easy_and_hard_examples():
  rng = np.random.default_rng(5)
  hard = rng.random(3000) < 0.3
  predictions = np.where(hard, rng.integers(0, 10, (100, 3000)), 0)
  n = fig11.error_rates(Group(predictions, np.zeros(3000, int), 10))
  assert n.neither.value < 0.01
  assert max(n.more.value, n.less.value) < 0.03
  rows = {row.quantity: row for row in fig11.rows({"AllDiff": n})}
  assert place(rows["distance from the Beta fit, AllDiff"], -0.05, 0.05) == "outside"


def test_figure_12_counts_every_pair(group):
  n = fig12.confidences_of_group(group)
  votes = (group.predictions[..., None] == np.arange(CLASSES)).sum(0)
  assert n.counts.tolist() == [
    (votes * 10 // RUNS == b).sum() + (b == 9) * (votes == RUNS).sum()
    for b in range(10)
  ]
  of_examples = ((votes >= 7) & (votes <= 9)).mean(1)  # of 16, from 0.4 to 0.6
  assert n.shares[1] == pytest.approx(of_examples.mean())
  assert n.shares_se[1] == pytest.approx(of_examples.std(ddof=1) / EXAMPLES**0.5)
  uniform = np.full((EXAMPLES, 2), 0.5)
  middling = fig12.confidences_of_group(
    drawn(np.random.default_rng(0), uniform, uniform)
  )
  rows = fig12.rows({"AllDiff": n, "DiffInit": middling})
  assert [place(row, 0) for row in rows if row.estimate] == ["within", "outside"]


def test_figure_14_finds_classes_that_are_off_though_all_together_are_not():
  rng = np.random.default_rng(6)
  p = law(rng, 3000)
  # Runs vote too often for class 0 and too seldom for class 1: together they are right
  # about as often as before.
  off = p + 0.9 * np.outer(np.minimum(p[:, 0], p[:, 1]), [-1, 1, 0, 0])
  verdicts = []
  for of_labels in (p, off):
    group = drawn(rng, p, of_labels, 100)
    n = fig14.classes(group, "ours")
    votes = (group.predictions[..., None] == np.arange(CLASSES)).sum(0)
    bins = np.minimum(votes // 10, 9)

    def distance(
      wheres: list[np.ndarray],
      of_labels: np.ndarray = of_labels,
      votes: np.ndarray = votes,
    ) -> float:
      squares = [
        (of_labels[here].mean() - votes[here].mean() / 100) ** 2 for here in wheres
      ]
      return (
        np.dot(squares, [here.sum() for here in wheres])
        / sum(here.sum() for here in wheres)
      ) ** 0.5

    of_classes = [
      (bins == b) & (np.arange(CLASSES) == k)
      for k in range(CLASSES)
      for b in range(1, 9)
    ]
    exact = distance(of_classes), distance([bins == b for b in range(1, 9)])
    for (_, low, high), value in zip(
      (n.single_distance, n.together_distance), exact, strict=True
    ):
      assert low <= value <= high
    assert n.apart[1] <= np.sqrt(exact[0] ** 2 - exact[1] ** 2) <= n.apart[2]
    verdicts += [place(row, 0) for row in fig14.rows({"cifar10": n}) if row.estimate]
  assert verdicts == ["across", "within"]


def test_runs_that_diverged_are_left_out():
  predictions = np.array([[0, 1], [-1, -1], [1, 1]])
  stored = xr.Dataset(
    {
      "predictions": (("run", "example"), predictions),
      "labels": ("example", [0, 1]),
      "diverged": ("run", [False, True, False]),
    },
    attrs={"num_classes": 3},
  )

  class Trained:
    scale = "smoke"

    def __call__(self, name: str, test_set: str | None = None) -> xr.Dataset:
      assert name.removeprefix("digits-") in campaigns.GROUPS
      return stored

  read = groups.read_groups(Trained(), "cifar10")
  assert list(read) == list(campaigns.GROUPS)
  np.testing.assert_array_equal(read["DiffInit"].predictions, predictions[[0, 2]])


def test_each_group_varies_what_it_says():
  for group, runs in campaigns.group_tables(100, 30, 8).items():
    varied = {
      s for s in ("init", "order", "data") if len(set(runs.seeds[s].tolist())) == 8
    }
    assert varied == set(campaigns.PARTNERS[group])
    sets = np.broadcast_to(runs.values["subset"], (8, 30))
    assert len(np.unique(sets, axis=0)) == (8 if "data" in varied else 1)


def test_training_sets_of_two_are_disjoint_and_of_more_runs_the_same():
  sets = campaigns.training_sets(11, 5, 7)
  assert sets.shape == (7, 5)
  for a, b in ((0, 1), (2, 3), (4, 5)):
    assert len({*sets[a], *sets[b]}) == 10
  np.testing.assert_array_equal(campaigns.training_sets(11, 5, 20)[:7], sets)
  assert len({*sets[1], *sets[2]}) < 10
  assert sets.max() == 10
