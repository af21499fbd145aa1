"""Bouthillier 2021 at the smallest scale: its numbers against NumPy on the stored runs, and its pieces on made-up ones."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
import scipy.stats

import vmapseeds as vs
from experiments import bouthillier2021, frame
from experiments.bouthillier2021 import (
  campaigns,
  fig01_sources,
  fig05_estimators,
  fig06_detection,
  figc1_sample_size,
  measures,
)
from vmapseeds import stats

SMOKE = campaigns.SCALES["smoke"]


@pytest.fixture(scope="module")
def numbers(made) -> dict:
  """By the beginning of each figure's name."""
  folders = ["--out", str(made / "bouthillier2021"), "--campaigns", str(made / "campaigns")]
  frame.main(str(Path(bouthillier2021.__file__).with_name("__main__.py")), folders)
  records = (json.loads(path.read_text()) for path in (made / "bouthillier2021").glob("*_*.json"))
  return {record["figure"].partition("_")[0]: record["numbers"] for record in records}


def stored(made: Path, name: str):
  (folder,) = (p for p in (made / "campaigns").glob(f"bouthillier2021-smoke-{name}-????????") if p.is_dir())
  return vs.open_results(folder)


@pytest.mark.slow
def test_pairs_are_those_of_the_stored_runs(made, numbers):
  n = numbers["fig06"]
  results = [stored(made, name) for name in "AB"]
  assert [json.loads(r.attrs["recipe"])["lr"] for r in results] == [0.05, 0.002]
  for source in vs.Runs.independent(1).seeds:
    np.testing.assert_array_equal(*(r[f"seed_{source}"].values for r in results))
  a, b = (r.accuracy.values for r in results)
  assert n["runs"] == SMOKE.pairs
  np.testing.assert_allclose(n["differences"], a - b)
  assert n["probability"] == pytest.approx(((a > b) + 0.5 * (a == b)).mean())
  assert n["decision"] == "significant and meaningful"  # a learning rate far too small
  np.testing.assert_allclose(n["sd"], [a.std(ddof=1), b.std(ddof=1)])
  assert n["correlation"] == pytest.approx(np.corrcoef(a, b)[0, 1])
  assert numbers["figg3"]["A"]["p_value"] == pytest.approx(scipy.stats.shapiro(a).pvalue)
  assert numbers["fig05"]["variance"] == numbers["fig01"]["everything"]["variance"] == pytest.approx(a.var(ddof=1))


@pytest.mark.parametrize(("varied", "shared"), [("init", "data"), ("data", "init")])
@pytest.mark.slow
def test_repetitions_are_those_of_the_stored_runs(made, numbers, varied, shared):
  results = stored(made, f"A_{varied}")
  assert len(set(results[f"seed_{varied}"].values)) == 16
  x = np.array([results.accuracy.values[results[f"seed_{shared}"].values == r] for r in range(4)])
  assert x.shape == (4, 4)
  n = numbers["fig05"]["biased"][varied]
  assert n["correlation"] == pytest.approx(stats.average_correlation(x))
  assert n["variance"] == numbers["fig01"][varied]["variance"] == pytest.approx(x.var(1, ddof=1).mean())
  np.testing.assert_allclose(n["sd_of_means"], [x[:, :k].mean(1).std(ddof=1) for k in range(1, 5)])
  assert numbers["fig06"]["rho"][varied] == pytest.approx(np.clip(n["correlation"], 0, 0.99))


@pytest.mark.slow
def test_tables_have_the_papers_values(made, numbers):
  table = (made / "bouthillier2021" / "index.md").read_text()
  assert "| power of 29 pairs, γ = 0.75 | 95 % | appendix C.3 | 0.834 | exact | no:" in table
  assert "false negatives at P = 0.75, P(A > B) of 50 | 30 % | figure 6" in table
  assert "nan" not in table


def made_up(runs=30, repetitions=5):
  rng = np.random.default_rng(0)
  shared = rng.normal(0.9, 0.01, runs)
  repeated = rng.normal(0.9, 0.01, (repetitions, 1)) + rng.normal(0, 0.01, (repetitions, 6))
  biased = {"init": measures.biased(repeated), "data": measures.biased(repeated - repeated.mean(1)[:, None])}
  return shared, shared - rng.normal(0.005, 0.01, runs), repeated, biased


def test_what_repetitions_share_costs_measures():
  _, _, repeated, biased = made_up()
  init, data = biased["init"], biased["data"]
  assert init.correlation == pytest.approx(stats.average_correlation(repeated))
  assert init.worth == pytest.approx(1 / init.correlation)
  left_out = [stats.average_correlation(np.delete(repeated, r, 0)) for r in range(5)]
  assert init.correlation_se == pytest.approx((4 * np.var(left_out)) ** 0.5)
  # Repetitions that agree more than chance has them do: no bias to simulate.
  assert data.correlation < 0 == data.simulated
  assert data.worth == np.inf
  few, many = (
    {row.quantity: row for row in fig05_estimators.rows(fig05_estimators.Estimators(30, 1e-4, of))}
    for of in (biased, made_up(repetitions=40)[-1])
  )
  assert few["independent measures it is worth, fixing all but the training set"].ours == "—"
  assert few["ρ of init less that of data"].holds is None
  assert many["ρ of init less that of data"].holds is True


def test_rates_are_simulated_with_the_correlations_found():
  a, b, _, biased = made_up()
  rho = {varied: x.simulated for varied, x in biased.items()}
  n = fig06_detection.compared(a, b, 1000, rho, jax.random.key(1))
  np.testing.assert_allclose(n.exact["data"], n.exact["ideal"])
  np.testing.assert_allclose(n.exact["init"], stats.operating_characteristics(fig06_detection.GRID, rho["init"]))
  for name, exact in n.exact.items():
    np.testing.assert_allclose(n.rates[name].outperforming, exact.outperforming, atol=0.025)
  axes = frame.Figure().subplots(1, 2)
  fig06_detection.plot(n, axes)
  drawn = [line.get_ydata() for line in axes[0].lines if len(line.get_ydata()) == 60]
  assert len(drawn) == 5
  np.testing.assert_allclose(drawn[0], n.exact["ideal"].single_point)
  assert not any(np.allclose(x, y) for i, x in enumerate(drawn) for y in drawn[:i])  # one over the other
  of_paper = {x: set() for x in (0.5, 0.75)}
  for line in axes[0].lines:
    if line.get_marker() == "D":
      for x, y in line.get_xydata():
        of_paper[x].add(round(y, 9))
  assert of_paper == {0.5: {0.1, 0.05}, 0.75: {0.25, 0.1, 0.7}}
  assert f"init varies: ρ = {rho['init']:.2f}" in [text.get_text() for text in axes[0].get_legend().texts]
  assert sum(p.get_height() for p in axes[1].patches[:-1]) == 30
  # The rule keeps its 5 % of false positives with independent runs alone.
  holds = {row.quantity: row.holds for row in fig06_detection.rows(n)}
  assert holds["false positives at P = 0.5, P(A > B) of 50"] is True
  assert holds["false positives at P = 0.5, P(A > B) of 50, init alone varying"] is False
  assert holds["false negatives at P = 0.75, averages of 50"] is True


def test_variances_relative_to_that_of_the_training_set():
  numbers = fig01_sources.relative({"init": (1.0, 50, "a"), "data": (4.0, 200, "b")})
  draws = np.random.default_rng(0).chisquare([50, 200], (100_000, 2)) / [50, 200]
  assert numbers["init"].relative == 0.25
  assert numbers["init"].relative_se == pytest.approx(0.25 * (draws[:, 0] / draws[:, 1]).std(), rel=0.03)
  assert numbers["data"][2:4] == (1.0, 0.0)
  assert fig01_sources.rows(numbers)[-1].holds


@pytest.mark.slow
def test_sizes_are_the_least_with_that_power(numbers):
  n = figc1_sample_size.Sizes(**{name: np.array(x, float) for name, x in numbers["figc1"].items()})
  place = np.flatnonzero(n.gamma == 0.75)[0]
  assert (n.noether[place], n.needed[place]) == (29, 51)
  assert stats.paired_power(51, 0.75) >= 0.95 > stats.paired_power(50, 0.75)
  assert np.isnan(n.needed[0])  # more than are looked at
  assert np.nanmax(abs(n.needed / n.sign - 1)) < 0.25


def test_repetitions_share_all_seeds_but_one():
  table = campaigns.repeated("data", 20, 20)
  assert (len(table), table.sampling) == (400, ("bootstrap", None))
  assert len(set(table.seeds["data"])) == 400
  for source in ("init", "order", "augment", "dropout"):
    np.testing.assert_array_equal(table.seeds[source], np.arange(400) % 20)
  longer = campaigns.repeated("data", 20, 22)
  np.testing.assert_array_equal(longer.seeds["init"][:400], table.seeds["init"])


@pytest.mark.parametrize("runs", [3, 40])
def test_error_of_a_deviation_is_that_of_the_tensor(runs):
  errors = np.random.default_rng(runs).random((runs, 50)) < 0.3
  errors[0] = False  # a run far from the others
  of_tensor = frame.spread(errors).sd_se
  np.testing.assert_allclose(fig06_detection.sd_se(1 - stats.error_rates(errors)), of_tensor, rtol=1e-9)
