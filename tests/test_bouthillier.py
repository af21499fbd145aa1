"""Bouthillier 2021 at the smallest scale: its numbers against NumPy on the stored runs,
and its pieces on made-up ones.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import scipy.stats
import xarray as xr
from verdicts import word

import vmapseeds as vs
from experiments import bouthillier2021, frame
from experiments.bouthillier2021 import (
  campaigns,
  fig01_sources,
  fig02_binomial,
  fig05_estimators,
  fig06_detection,
  figc1_sample_size,
  figg3_distributions,
  measures,
  pool,
)
from experiments.measures import average_correlation, operating_characteristics
from vmapseeds import stats
from vmapseeds.data import load, splits
from vmapseeds.training.runs import source_key

SMOKE = campaigns.SCALES["smoke"]


@pytest.fixture(scope="module")
def numbers(made) -> dict:
  """Each figure's numbers, by the beginning of its name."""
  folders = [
    "--out",
    str(made / "bouthillier2021"),
    "--campaigns",
    str(made / "campaigns"),
  ]
  frame.main(str(Path(bouthillier2021.__file__).with_name("__main__.py")), folders)
  records = (
    json.loads(path.read_text()) for path in (made / "bouthillier2021").glob("*_*.json")
  )
  return {record["figure"].partition("_")[0]: record["numbers"] for record in records}


def stored(made: Path, name: str):
  (folder,) = (
    p
    for p in (made / "campaigns").glob(f"bouthillier2021-smoke-{name}-????????")
    if p.is_dir()
  )
  return vs.open_results(folder)


def outside(results, train: int) -> np.ndarray:
  """Each run's accuracy on the examples that its data seed does not draw."""
  labels, accuracies = results.labels.values, []
  for seed, predictions in zip(
    results.seed_data.values, results.predictions.values, strict=True
  ):
    drawn = {*splits.bootstrap(source_key("data", seed), len(labels), train).tolist()}
    right = [predictions[i] == labels[i] for i in range(len(labels)) if i not in drawn]
    accuracies.append(sum(right) / len(right))
  return np.array(accuracies)


def test_a_run_is_tested_on_what_its_bootstrap_left_out():
  rng = np.random.default_rng(0)
  runs = vs.Runs.independent(5)[[3, 1, 3]].bootstrap(20)
  results = xr.Dataset(
    {
      "predictions": (("run", "example"), rng.integers(0, 2, (3, 30))),
      "labels": ("example", rng.integers(0, 2, 30)),
      "diverged": ("run", [False, True, False]),
      "seed_data": ("run", np.array([3, 1, 3], np.uint32)),
    }
  )

  class Made(SimpleNamespace):
    def __call__(self, name):
      return results

  found = measures.tested(
    Made(campaigns={"A": frame.Campaign(SMOKE.recipe, runs)}), "A"
  )
  np.testing.assert_allclose(found.accuracies, outside(results, 20))
  np.testing.assert_array_equal(found.diverged, results.diverged)
  sizes = [
    30 - len({*splits.bootstrap(source_key("data", np.uint32(seed)), 30, 20).tolist()})
    for seed in (3, 1, 3)
  ]
  assert found.examples == round(np.mean(sizes))


def test_the_pool_has_all_examples_twice():
  data, digits = pool.digits, load("digits")
  assert len(data.train) == pool.SIZES["digits"]
  for examples in (data.train, data.tests["test"]):
    np.testing.assert_array_equal(examples.inputs[:1000], digits.train.inputs)
    np.testing.assert_array_equal(examples.targets[1000:], digits.tests["test"].targets)


@pytest.mark.slow
def test_pairs_are_those_of_the_stored_runs(made, numbers):
  n = numbers["fig06"]
  results = [stored(made, name) for name in "AB"]
  assert [json.loads(r.attrs["recipe"])["lr"] for r in results] == [0.05, 0.002]
  for source in vs.Runs.independent(1).seeds:
    np.testing.assert_array_equal(*(r[f"seed_{source}"].values for r in results))
  assert all(r.attrs["sampling"] == ["bootstrap", 1198, 1797] for r in results)
  a, b = (outside(r, 1198) for r in results)
  assert n["runs"] == SMOKE.pairs
  np.testing.assert_allclose(n["differences"], a - b)
  assert n["probability"] == pytest.approx(((a > b) + 0.5 * (a == b)).mean())
  assert n["decision"] == "significant and meaningful"  # a learning rate far too small
  np.testing.assert_allclose(n["sd"], [a.std(ddof=1), b.std(ddof=1)])
  assert n["correlation"] == pytest.approx(np.corrcoef(a, b)[0, 1])
  assert numbers["figg3"]["everything"]["p_value"] == pytest.approx(
    scipy.stats.shapiro(a).pvalue
  )
  assert numbers["fig05"]["variance"] == pytest.approx(a.var(ddof=1))
  groups = [np.var(a[4 * i : 4 * i + 4], ddof=1) for i in range(4)]
  assert numbers["fig01"]["of"]["everything"]["variance"] == pytest.approx(
    np.mean(groups)
  )


@pytest.mark.slow
def test_the_same_seeds_give_the_same_run(made, numbers):
  results = stored(made, "A_nothing")
  np.testing.assert_array_equal(results.predictions[:4], results.predictions[4:])
  assert numbers["fig01"]["of"]["nothing"]["variance"] == 0


@pytest.mark.parametrize("varied", campaigns.SOURCES)
@pytest.mark.slow
def test_repetitions_are_those_of_the_stored_runs(made, numbers, varied):
  results, shared = stored(made, f"A_{varied}"), "data" if varied == "init" else "init"
  assert len(set(results[f"seed_{varied}"].values)) == 16
  # The first run of each repetition has the same row as a run in which everything
  # varies.
  np.testing.assert_array_equal(
    results.predictions[:4], stored(made, "A").predictions[:4]
  )
  accuracies = outside(results, 1198)
  x = np.array([accuracies[results[f"seed_{shared}"].values == r] for r in range(4)])
  assert x.shape == (4, 4)
  assert numbers["fig01"]["of"][varied]["variance"] == pytest.approx(
    x.var(1, ddof=1).mean()
  )
  if varied not in measures.HELD:
    return
  n = numbers["fig05"]["biased"][varied]
  assert n["correlation"] == pytest.approx(average_correlation(x))
  np.testing.assert_allclose(
    n["sd_of_means"], [x[:, :k].mean(1).std(ddof=1) for k in range(1, 5)]
  )
  assert numbers["fig06"]["rho"][varied] == pytest.approx(
    np.clip(n["correlation"], 0, 0.99)
  )


@pytest.mark.slow
def test_tables_have_the_papers_values(made, numbers):
  table = (made / "bouthillier2021" / "index.md").read_text()
  assert (
    "| power of 29 pairs, γ = 0.75 | 95 % | appendix C.3 | 0.834; 95 % take 51 pairs | "
    "exact | contradicted |" in table
  )
  assert "false negatives at P = 0.75, P(A > B) of 50 | 30 % | figure 6" in table
  assert "nan" not in table
  assert (
    "numerical noise over that of data | 0 but for segmentation | appendix A | 0 | 4 × 2 | — |"
    in table
  )


def made_up(runs=30, repetitions=5):
  rng = np.random.default_rng(0)
  shared = rng.normal(0.9, 0.01, runs)
  repeated = rng.normal(0.9, 0.01, (repetitions, 1)) + rng.normal(
    0, 0.01, (repetitions, 6)
  )
  biased = {
    "init": measures.biased(repeated),
    "data": measures.biased(repeated - repeated.mean(1)[:, None]),
  }
  return shared, shared - rng.normal(0.005, 0.01, runs), repeated, biased


def test_what_repetitions_share_costs_measures():
  _, _, repeated, biased = made_up()
  init, data = biased["init"], biased["data"]
  assert init.correlation == pytest.approx(average_correlation(repeated))
  assert init.worth == pytest.approx(1 / init.correlation)
  left_out = [average_correlation(np.delete(repeated, r, 0)) for r in range(5)]
  assert init.correlation_se == pytest.approx((4 * np.var(left_out)) ** 0.5)
  # Repetitions agree more than they would by chance: there is no bias to simulate.
  assert data.correlation < 0 == data.simulated
  assert data.worth == np.inf
  few, many = (
    {
      row.quantity: row
      for row in fig05_estimators.rows(fig05_estimators.Estimators(30, 1e-4, of))
    }
    for of in (biased, made_up(repetitions=40)[-1])
  )
  assert few["independent measures it is worth, fixing all but the data"].ours == "—"
  of_init = "ρ, fixing all but initialisation"
  wide, narrow = (found[of_init].estimate for found in (few, many))
  assert wide.value == pytest.approx(init.correlation)
  assert wide.low < wide.value < wide.high
  assert -1 / 5 < narrow.low < narrow.value < narrow.high < 1
  assert narrow.high - narrow.low < wide.high - wide.low
  # As far apart as 6 measures can be: nothing is left between repetitions.
  assert word(few["ρ, fixing all but the data"]) == "undecided"


def test_rates_are_simulated_with_the_correlations_found():
  a, b, _, biased = made_up()
  rho = {varied: x.simulated for varied, x in biased.items()}
  n = fig06_detection.compared(a, b, 1000, rho, jax.random.key(1))
  np.testing.assert_allclose(n.exact["data"], n.exact["ideal"])
  np.testing.assert_allclose(
    n.exact["init"], operating_characteristics(fig06_detection.GRID, rho["init"])
  )
  for name, exact in n.exact.items():
    np.testing.assert_allclose(
      n.rates[name].outperforming, exact.outperforming, atol=0.025
    )
  axes = frame.Figure().subplots(1, 2)
  fig06_detection.plot(n, axes)
  drawn = [line.get_ydata() for line in axes[0].lines if len(line.get_ydata()) == 60]
  assert len(drawn) == 5
  np.testing.assert_allclose(drawn[0], n.exact["ideal"].single_point)
  assert not any(
    np.allclose(x, y) for i, x in enumerate(drawn) for y in drawn[:i]
  )  # no two curves lie on each other
  of_paper = {x: set() for x in (0.5, 0.75)}
  for line in axes[0].lines:
    if line.get_marker() == "D":
      for x, y in line.get_xydata():
        of_paper[x].add(round(y, 9))
  assert of_paper == {0.5: {0.1, 0.05}, 0.75: {0.25, 0.1, 0.7}}
  assert f"init varies: ρ = {rho['init']:.2f}" in [
    text.get_text() for text in axes[0].get_legend().texts
  ]
  assert sum(p.get_height() for p in axes[1].patches[:-1]) == 30
  # The rule keeps its 5 % of false positives only with independent runs.
  found = {row.quantity: word(row) for row in fig06_detection.rows(n) if row.claim}
  close = found.pop("false negatives at P = 0.75, one run each")  # 77 %, of 72 to 78
  assert close in ("agrees", "undecided")
  assert found == {
    "false positives at P = 0.5, one run each": "agrees",
    "false positives at P = 0.5, averages of 50": "agrees",
    "false negatives at P = 0.75, averages of 50": "contradicted",
    "false positives at P = 0.5, P(A > B) of 50": "contradicted",
    "false negatives at P = 0.75, P(A > B) of 50": "contradicted",
  }


def test_ratio_of_variances_by_a_slow_loop():
  rng = np.random.default_rng(0)
  a, b = rng.normal(0, 1, (6, 5)), rng.normal(0, 2, (6, 5))

  def log_ratio(kept):
    of, to = (sum(np.var(x[r], ddof=1) for r in kept) for x in (a, b))
    return np.log(of / to)

  left_out = [log_ratio([r for r in range(6) if r != out]) for out in range(6)]
  reach = scipy.stats.t.ppf(0.975, 5) * np.sqrt(
    5 / 6 * sum((x - np.mean(left_out)) ** 2 for x in left_out)
  )
  found = measures.ratio(a, b)
  np.testing.assert_allclose(
    np.log(found), log_ratio(range(6)) + reach * np.array([0, -1, 1])
  )
  assert np.isnan(measures.ratio(np.ones((6, 5)), b)).all()


def test_the_ratios_interval_covers():
  """Even if repetitions have different variances, which an interval from pooled
  measures would miss.
  """
  rng = np.random.default_rng(0)
  sd = np.exp(rng.normal(0, 0.3, (2, 300, 20, 1)))
  accuracies = sd * rng.normal(size=(2, 300, 20, 10))
  intervals = [measures.ratio(a, b) for a, b in zip(*accuracies, strict=True)]
  assert 0.92 < np.mean([low < 1 < high for _, low, high in intervals]) < 0.985


def test_sources_beside_the_data():
  rng = np.random.default_rng(0)
  sd = dict.fromkeys(fig01_sources.NAMES, 1.0) | {
    "data": 2.0,
    "everything": 2.5,
    "augment": 3.0,
  }
  accuracies = {
    name: 0.9 + x * rng.normal(size=(20, 20)) / 100 for name, x in sd.items()
  }
  numbers = fig01_sources.sources(accuracies | {campaigns.NOISE: np.full((20, 2), 0.9)})
  assert numbers.of["init"].relative.value == pytest.approx(0.25, rel=0.3)
  assert numbers.of["init"].sd_se == pytest.approx(0.01 / np.sqrt(2 * 20 * 19), rel=0.4)
  rows = {row.quantity: row for row in fig01_sources.rows(numbers)}
  init = rows["variance of weights init over that of data"]
  assert word(init) == "shown"
  assert init.estimate.value == pytest.approx(numbers.of["init"].relative.value)
  # More than the data, which arithmetic does not allow, as they draw the test set too.
  augment = rows["variance of data augmentation over that of data"]
  assert word(augment) == "violated"
  assert word(rows["variance of data order over that of weights init"]) == "agrees"
  assert rows["variance of numerical noise over that of data"].ours == "0"
  assert word(rows["variance of everything over that of data"]) == "identity"


def test_binomial_of_answers_that_are_independent():
  """Answers that go wrong together do not fit a binomial."""
  right = np.random.default_rng(0).random((20, 40, 500)) > 0.1
  found, together = (
    fig02_binomial.binomial(x.mean(2), 500) for x in (right, right[..., :100])
  )
  assert found.binomial == pytest.approx(0.0134, rel=0.02)
  within = [
    np.var([np.mean(run) for run in repetition], ddof=1) for repetition in right
  ]
  se = scipy.stats.sem(within) * scipy.stats.t.ppf(0.975, 19)
  np.testing.assert_allclose(
    np.square(found.observed), np.mean(within) + se * np.array([0, -1, 1])
  )
  assert word(fig02_binomial.rows(found)[-1]) == "agrees"
  assert word(fig02_binomial.rows(together)[-1]) == "contradicted"


def test_repetitions_are_tested_for_normality_one_by_one():
  rng = np.random.default_rng(0)
  x = rng.normal(size=(4, 12)) + np.arange(4)[:, None]
  x[2] = 5.0  # nothing to test
  log_p = sum(np.log(scipy.stats.shapiro(x[r]).pvalue) for r in (0, 1, 3))
  found = figg3_distributions.normality(x, 10)
  assert found.p_value == pytest.approx(scipy.stats.chi2.sf(-2 * log_p, 6))
  np.testing.assert_allclose(found.deviations[1], x[1] - np.mean(x[1]))
  assert (
    figg3_distributions.normality(rng.exponential(size=(20, 20)), 10).p_within_steps
    < 1e-6
  )
  rounded = figg3_distributions.normality(rng.normal(0.9, 0.01, (20, 40)).round(2), 100)
  assert rounded.p_value < 0.001 < 0.05 < rounded.p_within_steps


@pytest.mark.slow
def test_sizes_are_the_least_with_that_power(numbers):
  n = figc1_sample_size.Sizes(
    **{name: np.array(x, float) for name, x in numbers["figc1"].items()}
  )
  place = np.flatnonzero(n.gamma == 0.75)[0]
  assert (n.noether[place], n.needed[place]) == (29, 51)
  assert stats.paired_power(51, 0.75) >= 0.95 > stats.paired_power(50, 0.75)
  assert np.isnan(n.needed[0])  # more than the sizes that are tried
  assert np.nanmax(abs(n.needed / n.sign - 1)) < 0.25


def test_repetitions_share_all_seeds_but_one():
  table = campaigns.repeated("data", 20, 20)
  assert len(table) == 400
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
  np.testing.assert_allclose(
    fig06_detection.sd_se(1 - stats.error_rates(errors)), of_tensor, rtol=1e-9
  )
