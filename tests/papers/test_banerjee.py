"""Banerjee 2024 at the smallest scale: its numbers against NumPy on the stored runs,
and its pieces on made-up gaps.
"""

import math
from pathlib import Path

import figures
import jax
import numpy as np
import pytest
import scipy.special
import scipy.stats
import xarray as xr
from places import place

import vmapseeds as vs
from experiments import frame, measures
from experiments.banerjee2024 import (
  candidates,
  fig01_two_runs,
  fig03_epochs,
  fig09_metrics,
  others,
  paper,
  table1_ensembles,
  table2_accuracies,
  table3_churn,
)
from experiments.banerjee2024.campaigns import SCALES

HALF = SCALES["smoke"].runs // 2
SOURCES = {"S_init": {"init"}, "S_batch": {"order"}, "S_all": {"init", "order"}}


@pytest.fixture(scope="module")
def numbers(made) -> dict:
  """Each figure's numbers, by the beginning of its name."""
  figures.make(made, "banerjee2024")
  return figures.numbers(made, "banerjee2024")


def opened(made: Path, source: str) -> xr.Dataset:
  """One source's runs."""
  (folder,) = (
    path
    for path in (made / "campaigns").glob(f"banerjee2024-smoke-{source}-????????")
    if path.is_dir()
  )
  results = vs.open_results(folder)
  seeds = {s: results[f"seed_{s}"].values for s in ("init", "order")}
  assert {s for s, of in seeds.items() if len({*of}) > 1} == SOURCES[source]
  return results


def gaps_of(logits: xr.DataArray) -> np.ndarray:
  logits = logits.values.astype(float)
  return logits[..., 1] - logits[..., 0]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.slow
def test_candidates_are_compared_with_the_other_half(made, numbers, source):
  results = opened(made, source)
  gaps, labels = gaps_of(results.logits), results.labels.values
  assert all(
    numbers[figure][source] == numbers["fig09"][source]
    for figure in ("table2", "table3")
  )
  n = numbers["fig09"][source]
  reference, runs = gaps[:HALF], gaps[HALF:]
  level = measures.trimming_level(
    reference, runs, key=jax.random.key(0), replicates=100
  ).level
  np.testing.assert_allclose(np.array(n["level"], float), level)
  np.testing.assert_array_equal(n["small"], level <= 0.05)
  predictions = (runs >= 0).astype(int)
  accuracy = (predictions == labels).mean(1)
  np.testing.assert_allclose(n["accuracy"]["accuracies"], accuracy)
  together = runs.mean(0) >= 0
  assert n["ensemble_accuracy"] == pytest.approx((together == labels).mean())
  np.testing.assert_allclose(n["churn"], (predictions != together).mean(1))
  pairs = {
    (i, j): (predictions[i] != predictions[j]).sum()
    for i in range(HALF)
    for j in range(i + 1, HALF)
  }
  assert n["pairs"] == list(pairs.values())
  of_first = [churn for pair, churn in pairs.items() if 0 in pair]
  assert n["mean_churn"][0] == pytest.approx(np.mean(of_first) / len(labels))
  farthest = [scipy.stats.ks_2samp(reference.ravel(), r).statistic for r in runs]
  np.testing.assert_allclose(n["distance"], farthest)


@pytest.mark.slow
def test_candidates_are_followed_through_training(made, numbers):
  """The loss is SciPy's, and the last epoch is the end of training."""
  results = opened(made, "S_all")
  n, labels = numbers["fig03"]["epochs"], results.labels.values
  assert (n["epoch"], n["runs"]) == ([1, 2], HALF)
  for i, epoch in enumerate(n["epoch"]):
    logits = results.epoch_logits.sel(epoch=epoch).values[HALF:].astype(float)
    log_p = scipy.special.log_softmax(logits, axis=-1)
    loss = -log_p[:, np.arange(len(labels)), labels].mean(1)
    np.testing.assert_allclose(n["loss"][i], loss, rtol=1e-5)
    np.testing.assert_allclose(
      n["accuracy"][i], (logits.argmax(-1) == labels).mean(1), atol=1e-12
    )
    together = logits.mean(0).argmax(-1)
    np.testing.assert_allclose(
      n["churn"][i], (logits.argmax(-1) != together).mean(1), atol=1e-12
    )
  np.testing.assert_array_equal(results.epoch_logits[:, -1], results.logits)
  at_end = numbers["fig09"]["S_all"]
  assert n["small"][-1] == np.mean(at_end["small"])
  assert n["accuracy"][-1] == pytest.approx(at_end["accuracy"]["accuracies"])
  assert n["ensemble_accuracy"][-1] == pytest.approx(at_end["ensemble_accuracy"])


@pytest.mark.slow
def test_ensembles_are_as_large_as_the_candidates_allow(numbers):
  ensembles = numbers["table1"]["by_size"]
  assert list(ensembles) == ["3", "5"]
  for size, n in ensembles.items():
    assert (n["members"], n["runs"]) == (int(size), HALF)
  churn = [np.mean(ensembles[size]["churn"]) for size in ("5", "3")]
  assert churn[0] < churn[1] < np.mean(numbers["fig09"]["S_all"]["churn"])


def test_ensembles_are_drawn_without_replacement():
  """Each ensemble leaves out one of the four candidates, all of them equally often."""
  rng = np.random.default_rng(0)
  reference, runs, labels = (
    rng.normal(size=(2, 40)),
    rng.normal(size=(4, 40)),
    rng.integers(0, 2, 40),
  )
  n = table1_ensembles.draw_ensembles(reference, runs, labels, members=3)
  without = np.array([(runs.sum(0) - run) / 3 for run in runs])
  accuracies = ((without >= 0) == labels).mean(1)
  assert n.accuracy.mean() == pytest.approx(
    accuracies.mean(), abs=4 * accuracies.std() / 500**0.5
  )
  whole = table1_ensembles.draw_ensembles(reference, runs, labels, members=4)
  assert (whole.churn.max(), np.ptp(whole.accuracy)) == (0, 0)


def test_distances_of_halves_and_of_the_ensemble_are_scipys():
  rng = np.random.default_rng(0)
  reference, runs = rng.normal(size=(3, 50)), rng.normal(0.5, size=(4, 50))
  pairs = [(reference, runs), (reference, runs.mean(0)), (runs, runs.mean(0))]
  expected = [scipy.stats.ks_2samp(a.ravel(), b.ravel()).statistic for a, b in pairs]
  found = table1_ensembles.distances(reference, runs)
  np.testing.assert_allclose(found, expected)
  assert len({*np.round(expected, 3)}) == 3


def test_runs_that_diverged_or_are_at_chance_are_left_out():
  """Of nine runs the second diverged, and the last of each half guesses."""
  rng = np.random.default_rng(0)
  labels = np.arange(400) % 2
  right = np.array([0.9, 0.9, 0.9, 0.8, 0.52, 0.7, 0.9, 0.8, 0.5])
  wrong = rng.permuted(np.arange(400) >= 400 * right[:, None], axis=1)
  results = xr.Dataset(
    {
      "predictions": (("run", "example"), labels ^ wrong),
      "labels": ("example", labels),
      "diverged": ("run", np.arange(9) == 1),
    }
  )
  half = candidates.halves_of_source(results)
  assert [of.tolist() for of in half] == [[0, 2, 3], [5, 6, 7], [8]]
  gaps = np.where(results.predictions, 1.0, -1.0)
  logits = np.stack([np.zeros_like(gaps), gaps], -1)
  logits[1] = np.nan
  dims = "run", "example", "class"
  found = candidates.gaps_of(results.assign(logits=(dims, logits)))
  for of, rows in zip(found, half[:2], strict=False):
    np.testing.assert_array_equal(of, gaps[rows])
  at_end = {"epoch_logits": (("run", "epoch", *dims[1:]), logits[:, None])}
  by_epoch = fig03_epochs.by_epoch(results.assign(at_end).assign_coords(epoch=[1]))
  np.testing.assert_allclose(by_epoch.accuracy[0], right[5:8])


def test_the_claim_of_variances_is_of_runs_that_learnt():
  rng = np.random.default_rng(0)
  gaps = rng.normal(size=(2, 6, 200)) + rng.normal(size=(2, 6, 1))
  labels = np.arange(200) % 2
  init, batch = (candidates.measure_source(of[:3], of[3:], labels) for of in gaps)
  a, b = batch.accuracy.accuracies, init.accuracy.accuracies
  claim = paper.STATED["order"].statistic
  for at_chance in ([], [0.1]):
    lost = init._replace(at_chance=np.array(at_chance))
    rows = table2_accuracies.rows({"S_init": lost, "S_batch": batch})
    of = {row.quantity: row for row in rows}
    assert of[claim].estimate.value == pytest.approx(a.var(ddof=1) / b.var(ddof=1))
    every = of.get(f"{claim}, with runs at chance")
    assert (every is not None) == bool(at_chance)
  expected = table2_accuracies.accuracy_variance_ratio(a, np.append(b, 0.1))
  assert every.ours == str(expected)


def ensembles(small, sd, ece) -> table1_ensembles.Ensembles:
  """Ensembles of which the share `small` needs no trimming, with these moments."""
  drawn = table1_ensembles.DRAWN
  away = np.where(np.arange(drawn) < small * drawn, 0.0, 1.0)
  steady = np.resize([-sd, sd], drawn) * math.sqrt(1 - 1 / drawn)
  return table1_ensembles.Ensembles(
    200, 0, away, away, 0.05, 0.9 + steady, 0.9 + steady, ece + steady
  )


def test_the_pattern_of_ensembles():
  def found_of(*sizes):
    numbers = {size: n._replace(members=size) for size, n in sizes}
    apart = table1_ensembles.Distances(0.0, 0.0, 0.0)
    falls = numbers[max(numbers)].ece.mean() - numbers[min(numbers)].ece.mean(), 0.001
    over_runs = dict.fromkeys(numbers, table1_ensembles.OverRuns(0.5, 0.1, 0.02, 0.001))
    rows = table1_ensembles.rows(
      table1_ensembles.EnsembleSizes(apart, numbers, over_runs, falls)
    )
    return {row.quantity: row.estimate for row in rows if row.estimate}, [
      place(row, high=0) for row in rows if row.quantity.startswith("ECE")
    ]

  small = "30 members: α̂ ≤ 0.05"
  found, results = found_of(
    (3, ensembles(0.8, 0.02, 0.03)), (30, ensembles(1.0, 0.01, 0.02))
  )
  assert results == ["within"]
  assert found[small].value == 1
  narrower = [x for name, x in found.items() if name.startswith("sd of")]
  assert all(x.high < 1 for x in narrower)
  assert len(narrower) == 3
  found, results = found_of(
    (3, ensembles(0.8, 0.01, 0.02)), (30, ensembles(0.9, 0.02, 0.03))
  )
  assert results == ["outside"]
  assert found[small].high < 0.99
  found, results = found_of(
    (3, ensembles(0.8, 0.02, 0.03)), (5, ensembles(0.9, 0.0195, 0.0299))
  )
  assert results == ["across"]
  assert small not in found


def test_no_small_level_is_shown_as_none():
  gaps = np.arange(12.0).reshape(4, 1, 3).repeat(20, axis=2).reshape(4, 60)
  n = candidates.measure_source(gaps[:2], 100 + gaps[2:], np.ones(60, int))
  assert not n.small.any()
  assert n.failed.sum() == 200
  numbers = dict.fromkeys(SOURCES, n)
  for figure in (table2_accuracies, table3_churn, fig09_metrics):
    assert all(row.ours for row in figure.rows(numbers))
    figure.plot(numbers, frame.Figure().subplots(1, figure.PANELS))
  shown = {row.quantity: row for row in table2_accuracies.rows(numbers)}
  assert shown["S_all: accuracies where α̂ is small"].ours == "none"
  row = shown["S_all: runs less accurate than all with a small α̂"]
  assert (row.ours, row.estimate) == ("2 (p = 1)", None)
  assert candidates.span(np.array([283, 462]) / 8018) == "3.53 to 5.76 %"


def test_the_worst_runs_are_left_out_by_more_than_chance():
  """The p-value is that of Fisher's exact test."""
  worse, small = np.arange(20), np.arange(20) < 12
  out = candidates.excluded(worse, small)
  table = [[0, 8], [12, 0]]  # of the 8 worst and of the others: small, and not
  assert out == (8, pytest.approx(scipy.stats.fisher_exact(table, "less").pvalue))


def test_the_error_of_tau_is_that_of_samples():
  rng = np.random.default_rng(0)
  x = rng.normal(size=(300, 40))
  y = x + rng.normal(size=x.shape)
  of_samples = [
    scipy.stats.kendalltau(*sample).statistic for sample in zip(x, y, strict=True)
  ]
  tau, _ = candidates.tau(x[0], y[0])
  assert tau == pytest.approx(of_samples[0])
  errors = [candidates.tau(*sample)[1] for sample in zip(x[:50], y[:50], strict=True)]
  assert np.mean(errors) == pytest.approx(np.std(of_samples), rel=0.15)


def test_a_partial_correlation_is_that_of_ranks_without_the_third():
  """What NumPy has for residuals of ranks; its interval covers."""
  rng = np.random.default_rng(0)
  given = rng.normal(size=60)
  x, y = given + rng.normal(size=60), given**3 + rng.normal(size=60)
  ranks = [scipy.stats.rankdata(of) for of in (x, y)]
  line = np.vander(scipy.stats.rankdata(given), 2)
  left = [of - line @ np.linalg.lstsq(line, of)[0] for of in ranks]
  found = candidates.partial(x, y, given)
  assert found.rho == pytest.approx(np.corrcoef(*left)[0, 1])
  # Of values that all follow one, about 95 of 100 intervals hold 0.
  draws = rng.normal(size=(300, 3, 20))
  held = [
    estimate.low < 0 < estimate.high
    for x, y, given in draws
    for estimate in [candidates.partial(x + given, y + given, given).estimate()]
  ]
  assert 0.91 < np.mean(held) < 0.985
  for few in (np.arange(4.0), np.ones(9)):
    assert np.isnan(candidates.partial(few, few, few).rho)
    assert np.isnan(candidates.mean_rank([candidates.partial(few, few, few)]).rho)
  assert candidates.mean_rank([found] * 4).se == pytest.approx(found.se / 2)
  assert candidates.mean_rank([found] * 4).rho == pytest.approx(found.rho)


def test_two_runs_as_accurate_that_disagree_most():
  gaps = np.array([[1, 1, 1, -1], [1, 1, -1, 1], [1, -1, -1, -1], [1, 1, 1, 1.0]])
  n = candidates.measure_source(gaps, gaps, np.ones(4, int))
  assert sorted(fig01_two_runs.alike(n)) == [0, 1]


def test_the_ensemble_of_opposite_runs_has_small_gaps():
  gaps = fig03_epochs.gap_distributions(
    np.array([[3.0, -3.0, 0.5, 9.0], [-3.0, 3.0, 0.5, 9.0]])
  )
  np.testing.assert_allclose(gaps.small, [0.5, 0.5])
  np.testing.assert_allclose(gaps.large, 0)
  assert (gaps.lowest <= gaps.highest).all()


def test_other_classes_are_those_left_out():
  data, digits = others.digits, vs.load_dataset("digits")
  left_out = np.flatnonzero(np.array(SCALES["laptop"].recipe.classes) < 0)
  assert data.num_classes == 2 * len(left_out)
  kept = np.isin(digits.train.targets, left_out)
  upright, turned = np.split(np.asarray(data.train.inputs), 2)
  np.testing.assert_array_equal(upright, np.asarray(digits.train.inputs)[kept])
  np.testing.assert_array_equal(turned, upright[:, ::-1])
  assert not hasattr(others, "mnist")


@pytest.mark.slow
def test_tables_have_the_papers_values(made, numbers):
  table = (made / "banerjee2024" / "index.html").read_text()
  for row in (
    ("3 members: α̂ ≤ 0.05", "77.2 %", "table 1"),
    ("S_all: accuracy of the ensemble", "92.36 %", "table 2"),
    ("S_all: churn of pairs where both α̂ are small", "3.53 to 5.76 %", "table 3"),
  ):
    assert f"<tr><td>{'</td><td>'.join(row)}</td>" in table
  assert "Nothing is judged here" in table
