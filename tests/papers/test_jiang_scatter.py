"""Jiang's scatter plots, shifts and theorems: tables of runs, numbers against loops,
laws with known answers.
"""

import numpy as np
import pytest
import scipy.stats
import xarray as xr
from places import place

from experiments.jiang2022 import (
  campaigns,
  fig10_rates,
  fig15_pairs,
  scatter,
)
from experiments.jiang2022 import theorem4_calibration as theorem4
from experiments.jiang2022 import theoremB1_variance as corollary
from experiments.jiang2022.groups import Group
from experiments.jiang2022.scatter import BootstrapEstimate, Points
from vmapseeds.training.recipe_runs import check_runs_fit_recipe

CLASSES = 4


def some_runs(runs: int, examples: int = 200, certainty: float = 0.7) -> Group:
  """Runs that predict the label with some probability, else any class."""
  rng = np.random.default_rng(0)
  labels = rng.integers(0, CLASSES, examples)
  guesses = rng.integers(0, CLASSES, (runs, examples))
  return Group(
    np.where(rng.random((runs, examples)) < certainty, labels, guesses), labels, CLASSES
  )


def test_partners_differ_from_the_first_run_in_what_their_group_varies():
  runs = campaigns.runs_with_partners(examples=50, size=20, pairs=2)
  assert len(runs) == 12
  for first in (0, 6):
    for i, (group, sources) in enumerate(campaigns.PARTNERS.items(), first + 1):
      differ = {
        s
        for s in ("init", "order", "augment", "dropout")
        if runs.seeds[s][i] != runs.seeds[s][first]
      }
      assert differ == {*sources} - {"data"}, group
      shared = {*runs.values["subset"][i]} & {*runs.values["subset"][first]}
      assert len(shared) == (0 if "data" in sources else 20), group
  assert runs.seeds["init"][0] != runs.seeds["init"][6]
  more = campaigns.runs_with_partners(50, 20, 3)
  assert all((more.seeds[s][:12] == seeds).all() for s, seeds in runs.seeds.items())
  np.testing.assert_array_equal(more.values["subset"][:12], runs.values["subset"])


def test_a_scatter_plot_has_a_campaign_for_each_recipe_and_a_row_for_each_run():
  plot = campaigns.SCALES["smoke"].scatters["cifar10"]
  assert [recipe.augment for recipe in plot.recipes().values()] == ["", "cutout=2"]
  runs = plot.runs()
  swept = np.stack([runs.values["lr"], runs.values["weight_decay"]], 1).reshape(
    plot.pairs, 6, 4, 2
  )
  assert (swept == swept[0, 0]).all()
  assert len({tuple(row) for row in swept[0, 0]}) == 4
  assert np.ptp(runs.seeds["init"].reshape(plot.pairs, 6, 4), axis=2).max() == 0


@pytest.mark.parametrize("scale", campaigns.SCALES)
def test_campaigns_of_every_scale_fit_their_data(scale):
  examples = {
    "digits": 1000,
    "mnist": 60_000,
    "cifar10": 50_000,
    "cifar100": 50_000,
    "svhn_cropped": 73_257,
  }
  for name, campaign in campaigns.campaigns(scale).items():
    data = campaign.recipe.dataset
    check_runs_fit_recipe(campaign.recipe, campaign.runs, examples[data], 10)
    assert campaign.recipe.stop_at or scale == "smoke", name


def test_the_paper_has_as_many_configurations_as_it_says():
  scatters = campaigns.SCALES["paper"].scatters
  sizes = {
    of: len(plot.recipes()) * len(plot.runs()) // (6 * plot.pairs)
    for of, plot in scatters.items()
  }
  assert sizes == {
    "cifar10": 32,
    "svhn": 32,
    "cifar100": 32,
    "few": 32,
    "nin": 54,
    "mlp": 96,
    "mlp_few": 96,
    "mlp_rates": 96 * len(campaigns.RATES),
  }


def test_errors_and_disagreements_equal_loops():
  rng = np.random.default_rng(1)
  pairs, configurations = 2, 3
  predictions, labels = (
    rng.integers(0, 3, (pairs * 6 * configurations, 40)),
    rng.integers(0, 3, 40),
  )
  diverged = np.zeros(len(predictions), bool)
  diverged[[3 * configurations + 1, 6 * configurations]] = (
    True  # a partner (DiffInit), and a first run
  )
  found = scatter.points_of_stars(predictions, diverged, labels, pairs)
  for i, group in enumerate(campaigns.PARTNERS, 1):
    for pair in range(pairs):
      for c in range(configurations):
        a, b = (
          pair * 6 * configurations + member * configurations + c for member in (0, i)
        )
        error, disagreement = found[group][0][pair, c], found[group][1][pair, c]
        if diverged[a] or diverged[b]:
          assert np.isnan(error)
          assert np.isnan(disagreement)
        else:
          assert error == np.mean(predictions[a] != labels)
          assert disagreement == np.mean(predictions[a] != predictions[b])
  assert np.isnan(found["DiffInit"][0]).sum() == 2
  assert np.isnan(found["DiffData"][0]).sum() == 1


def some_points(
  configurations: int, pairs: int, noise: float, ratio: float = 1.0
) -> Points:
  rng = np.random.default_rng(2)
  law = rng.uniform(0.2, 0.4, configurations)[:, None]
  error, disagreement = (
    law * r + noise * rng.standard_normal((configurations, pairs)) for r in (ratio, 1)
  )
  return Points(error, disagreement, np.arange(configurations) % 2 == 0)


def test_agreement_equals_scipy_and_leaves_out_what_diverged():
  points = some_points(20, 2, 0.02)
  points.error[3, 1] = points.disagreement[3, 1] = np.nan
  n = scatter.agreement(points)
  known = ~np.isnan(points.error.ravel())
  x, y = points.disagreement.ravel()[known], points.error.ravel()[known]
  assert points.known() == len(x) == 39
  assert n.r_squared.value == pytest.approx(scipy.stats.pearsonr(x, y).statistic ** 2)
  assert n.kendall_tau.value == pytest.approx(scipy.stats.kendalltau(x, y).statistic)
  assert n.ratio.value == pytest.approx(y.mean() / x.mean())
  assert n.deviation.value == pytest.approx(np.mean(abs(y - x) / (0.5 * (x + y))))
  for estimate in n:
    assert estimate.low < estimate.value < estimate.high


@pytest.mark.parametrize(
  ("ratio", "noise", "expected"),
  [
    (1.0, 0.001, ["within", "within", "within"]),
    (1.6, 0.001, ["outside", "within", "within"]),
    (1.0, 0.1, ["across", "outside", "outside"]),
  ],
)
def test_intervals_of_a_scatter_plot(ratio, noise, expected):
  points = some_points(32, 2, noise, ratio)
  found = scatter.Found(points, scatter.agreement(points))
  rows = scatter.rows({"AllDiff": found}, high="high ")
  assert [row[1:3] for row in rows] == [
    ("0.9 to 1.1", "section 3"),
    ("generally above 0.85; DiffOrder's τ 0.807 in table 5", "section 3"),
  ] + [("generally above 0.85; DiffOrder's τ 0.807 in table 5", "section 3")]
  bounds = [(0.9, 1.1), (0.85,), (0.85,)]
  assert [place(row, *of) for row, of in zip(rows, bounds, strict=True)] == expected


@pytest.mark.slow
def test_means_of_pairs_lose_noise_and_keep_what_pairs_share():
  noisy = fig15_pairs.averaged(some_points(32, 4, 0.05))
  assert noisy.left.low < 0.5 < noisy.left.high  # independent noise of 4 pairs halves
  assert noisy.mean.points.error.shape == (32, 1)
  assert noisy.pairs == 4
  biased = fig15_pairs.averaged(some_points(32, 4, 0.001, ratio=1.5))
  assert biased.left.value > 0.99
  row = fig15_pairs.rows(biased)[2]
  assert place(row, 0.2, 0.45) == "outside"
  # With two pairs the paper's number stands beside it with what it is of.
  two = fig15_pairs.averaged(some_points(32, 2, 0.05))
  assert fig15_pairs.rows(two)[2].paper == "0.30 with 4 pairs"
  gone = some_points(3, 2, 0.01)
  gone.error[1, 0] = gone.disagreement[1, 0] = np.nan
  assert len(fig15_pairs.averaged(gone).one.points.error) == 2


def test_theorem_4_2_equals_loops_and_calibrated_ensembles_have_no_gap():
  group = some_runs(7)
  n, P, y = theorem4.bounds(group), group.predictions, group.labels
  assert n.gap == pytest.approx(
    abs(np.mean(y != P) - np.mean([(a != b).mean() for a in P for b in P]))
  )
  levels = np.zeros((8, 2))
  for x in range(len(y)):
    for k in range(CLASSES):
      votes = (P[:, x] == k).sum()
      levels[votes] += (y[x] == k) - votes / 7, 0
  cace = [
    (1 - v / 7 if refined else 1) * abs(levels[v, 0])
    for refined in (True, False)
    for v in range(8)
  ]
  assert n.refined == pytest.approx(sum(cace[:8]) / len(y))
  assert n.cace == pytest.approx(sum(cace[8:]) / len(y))
  assert n.gap <= n.refined <= n.cace
  assert abs(n.calibrated) < 3 * n.calibrated_se < 0.02
  rows = theorem4.rows({"AllDiff": n, "DiffInit": n._replace(gap=n.gap + 1)})
  bounds = [(-0.01, 0.01), (-1e-12,), (-0.01, 0.01), (-1e-12,)]
  judged = [row for row in rows if row.estimate]
  assert [place(row, *of) for row, of in zip(judged, bounds, strict=True)] == [
    *["within"] * 3,
    "outside",
  ]


def test_corollary_b_1_1_equals_loops():
  group = some_runs(6)
  n, P, y = corollary.variances_of_group(group), group.predictions, group.labels
  error = [np.mean(p != y) for p in P]
  pairs = [(a, b) for a in range(6) for b in range(a)]
  dis = [np.mean(P[a] != P[b]) for a, b in pairs]
  assert n.kappa == pytest.approx(
    max(d / (error[a] + error[b]) for d, (a, b) in zip(dis, pairs, strict=True))
  )
  assert n.disagreement_sd == pytest.approx(np.std(dis))
  assert n.error_sd == pytest.approx(np.std(error, ddof=1))
  bound = (
    n.kappa**2 * (2 * np.var(error, ddof=1) + 4 * np.mean(error) ** 2)
    - np.mean(dis) ** 2
  )
  assert n.bound_sd == pytest.approx(bound**0.5)
  assert n.disagreement_sd <= n.bound_sd
  without = []
  for out in range(6):
    some = [d for d, pair in zip(dis, pairs, strict=True) if out not in pair]
    without.append(np.std(some) / np.std(np.delete(error, out), ddof=1))
  assert n.ratio_se == pytest.approx((5 * np.var(without)) ** 0.5)


def test_estimates():
  estimate = BootstrapEstimate(0.5, 0.4, 0.6)
  assert str(estimate) == "0.50 [0.40, 0.60]"


def test_rates_of_configurations_are_those_of_their_runs():
  for scale in ("smoke", "laptop", "paper"):
    plot = campaigns.SCALES[scale].scatters["mlp_rates"]
    table = plot.runs()
    swept = len(table) // (len(campaigns.PARTNERS) + 1) // plot.pairs
    loop = [table.values["lr"][i] for _ in plot.recipes() for i in range(swept)]
    assert plot.learning_rates().tolist() == loop
    assert {*plot.learning_rates()} == {*table.values["lr"]}


@pytest.mark.slow
def test_ratios_at_a_rate_are_of_the_runs_with_this_rate(monkeypatch):
  plot = campaigns.SCALES["smoke"].scatters["mlp_rates"]
  table = plot.runs()
  rng = np.random.default_rng(3)
  labels = rng.integers(0, 3, 50)
  stored = {}
  for name in plot.recipes():
    predictions = rng.integers(0, 3, (len(table), 50))
    stored[name] = xr.Dataset(
      {
        "predictions": (("run", "example"), predictions),
        "labels": ("example", labels),
        "diverged": ("run", np.zeros(len(table), bool)),
      }
    )

  class Stored:
    scale = "smoke"

    def __call__(self, name):
      return stored[name]

  numbers = fig10_rates.compute(Stored())
  star = len(campaigns.PARTNERS) + 1
  swept = len(table) // star // plot.pairs
  for rate, groups in numbers.items():
    for member, group in enumerate(campaigns.PARTNERS, 1):
      errors, disagreements = [], []
      for results in stored.values():
        of = results.predictions.values
        for row in range(len(table)):
          if table.values["lr"][row] == float(rate) and row // swept % star == 0:
            errors.append(np.mean(of[row] != labels))
            disagreements.append(np.mean(of[row] != of[row + member * swept]))
      ratio = groups[group].agreement.ratio
      assert ratio.value == pytest.approx(np.sum(errors) / np.sum(disagreements))
      assert ratio.low <= ratio.value <= ratio.high
