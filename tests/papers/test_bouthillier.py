"""Bouthillier 2021 at the smallest scale: its numbers against NumPy on the stored runs,
and its pieces on made-up ones.
"""

import math
import os
import subprocess
import sys
from pathlib import Path

import figures
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from places import place

import vmapseeds as vs
from experiments import frame, searches
from experiments.bouthillier2021 import (
  algorithms,
  campaigns,
  fig01_sources,
  fig02_binomial,
  fig05_standard_errors,
  fig06_detection,
  figc1_sample_size,
  figf2_searches,
  figg3_distributions,
  figh5_mse,
  figi6_robustness,
  measures,
  peptides,
)
from experiments.bouthillier2021.vgg11 import VGG11, vgg11_cifar10
from experiments.measures import (
  average_correlation,
  equivalent_threshold,
  operating_characteristics,
)
from vmapseeds import stats
from vmapseeds.campaign.options import Options
from vmapseeds.errors import UserError

SMOKE = campaigns.tasks("smoke")


@pytest.fixture(scope="module")
def numbers(made) -> dict:
  """Each figure's numbers, by the beginning of its name."""
  figures.make(made, "bouthillier2021")
  return figures.numbers(made, "bouthillier2021")


def stored(made: Path, name: str):
  (folder,) = (
    p
    for p in (made / "campaigns").glob(f"bouthillier2021-smoke-{name}-????????")
    if p.is_dir()
  )
  return vs.open_results(folder)


def best_of(results, searches: int) -> list[tuple[float, float]]:
  """The learning rate and the test accuracy of the best trial of each search."""
  names = ["lr", "diverged", "valid_accuracy", "test_accuracy"]
  table = results[names].to_dataframe().reset_index(drop=True)
  table["search"] = table.index % searches
  best = table[~table.diverged].groupby("search")["valid_accuracy"].idxmax()
  return [(table.lr[i], table.test_accuracy[i]) for i in best]


@pytest.mark.parametrize("task", SMOKE)
def test_a_sixth_is_tested(task):
  split = vs.Runs.independent(2).out_of_bootstrap().split_examples
  every = {"breast_cancer": 569, "digits": 1797}[task]
  trained = frame.Trained("bouthillier2021", "smoke", {}, Path(), Options(), {})
  found = measures.test_examples(trained, task)
  assert (2, found) == split(every)["test_examples"].shape


@pytest.mark.slow
def test_the_two_algorithms(tmp_path):
  """They have the trials that their folders have; what algorithm 2 holds, it holds."""
  recipe = SMOKE["breast_cancer"].recipe
  search = searches.Search({"lr": searches.Range(1e-3, 1, log=True)}, trials=2)
  ideal = algorithms.ideal_est(recipe, search, 3, tmp_path / "ideal")
  found = best_of(vs.open_results(tmp_path / "ideal"), 3)
  values = [x for _, x in found]
  np.testing.assert_allclose(ideal.value, np.mean(values), rtol=1e-6)
  np.testing.assert_allclose(ideal.se, np.std(values, ddof=1) / 3**0.5, rtol=1e-5)
  biased = algorithms.fix_hopt_est(recipe, search, 4, tmp_path / "one", ("init",))
  runs = vs.open_results(tmp_path / "one" / "runs")
  ((lr, _),) = best_of(vs.open_results(tmp_path / "one" / "search"), 1)
  assert (lr, _) == found[0]  # the first search, again
  assert set(runs.lr.values) == {lr}
  assert len(set(runs.seed_init.values)) == 4
  assert set(runs.seed_data.values) == set(runs.seed_order.values) == {0}
  np.testing.assert_allclose(biased.value, runs.test_accuracy.mean(), rtol=1e-6)


@pytest.mark.slow
def test_a_search_whose_trials_all_failed_leaves_nothing_to_train(tmp_path):
  recipe = SMOKE["breast_cancer"].recipe
  search = searches.Search({"lr": searches.Range(1e30, 1e32, log=True)}, trials=1)
  seeds = vs.Runs.independent(2).out_of_bootstrap()
  results = searches.train_searches(recipe, search, seeds, tmp_path / "s")
  trials = searches.trials_of(results, search, 2)
  assert np.isnan(trials.of_best(trials.measured)).all()
  with pytest.raises(vs.UserError, match="all trials of search 0 failed"):
    frame.with_best(vs.Runs.independent(4), trials, 2)


@pytest.mark.slow
def test_pairs_are_those_of_the_stored_runs(made, numbers):
  n = numbers["fig06"]
  a, b = (
    stored(made, "digits_sources")[dict(run=slice(-16, None))],
    stored(made, "digits_B"),
  )
  for source in vs.Runs.independent(1).seeds:
    np.testing.assert_array_equal(*(r[f"seed_{source}"].values for r in (a, b)))
  assert set(b.lr.values * 2) == set(a.lr.values)
  a, b = (r.test_accuracy.values.astype(float) for r in (a, b))
  assert n["runs"] == 16
  np.testing.assert_allclose(n["differences"], a - b)
  assert n["probability"] == pytest.approx(((a > b) + 0.5 * (a == b)).mean())
  np.testing.assert_allclose(n["sd"], [a.std(ddof=1), b.std(ddof=1)])
  assert numbers["figg3"]["digits"]["everything"]["p_value"] == pytest.approx(
    scipy.stats.shapiro(a).pvalue
  )


@pytest.mark.slow
@pytest.mark.parametrize("task", SMOKE)
def test_sources_are_those_of_the_stored_runs(made, numbers, task):
  of = SMOKE[task]
  results, size = stored(made, f"{task}_sources"), of.repetitions * of.measures
  for i, varied in enumerate((*of.sources, "everything")):
    part = results.isel(run=slice(i * size, (i + 1) * size))
    for source in of.sources:
      draws = size if varied in (source, "everything") else of.repetitions
      assert len(set(part[f"seed_{source}"].values)) == draws
    x = part.test_accuracy.values.astype(float).reshape(-1, of.repetitions)
    found = numbers["fig01_sources"][task]["of"][varied]
    assert found["variance"] == pytest.approx(x.var(axis=0, ddof=1).mean())
  noise = numbers["fig01_sources"][task]["noise"]
  again = stored(made, f"{task}_noise")
  assert again.attrs["lane_width"] == campaigns.NOISE_WIDTH
  lanes = numbers["fig01_sources"][task]["lanes"]
  assert f", width {campaigns.NOISE_WIDTH} instead of " in lanes
  assert lanes.endswith(f", width {results.attrs['lane_width']}")
  change = again.test_accuracy.values.astype(float) - x.ravel()
  assert noise == pytest.approx((change**2).mean() / 2)
  assert noise < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("task", SMOKE)
def test_estimators_are_those_of_the_stored_searches(made, numbers, task):
  of, n = SMOKE[task], numbers["fig05"][task]
  k = of.searched.k
  ideal, fixed = (stored(made, f"{task}_{name}") for name in ("ideal", "fixed"))
  best = best_of(ideal, of.searched.ideal)
  assert n["variance"] == pytest.approx(np.var([x for _, x in best], ddof=1), rel=1e-5)
  rates = [lr for lr, _ in best[: of.repetitions]] * (len(campaigns.FIXED) * k)
  np.testing.assert_array_equal(fixed.lr, rates)
  parts = fixed.test_accuracy.values.astype(float).reshape(3, k, of.repetitions)
  for what, x in zip(campaigns.FIXED, parts, strict=True):
    b = n["biased"][what]
    assert b["correlation"] == pytest.approx(average_correlation(x.T))
    means = [x[:i].mean(axis=0).std(ddof=1) for i in range(1, k + 1)]
    np.testing.assert_allclose(b["sd_of_means"], means)
  for name in (*searches.SAMPLERS, "ideal"):
    number = of.searched.ideal
    if name != "ideal":
      number = of.repetitions * of.searched.searches
    searched = best_of(stored(made, f"{task}_{name}"), number)
    x = np.array([x for _, x in searched], float).reshape(-1, of.repetitions)
    if len(x) > 1:
      found = numbers["fig01_sources"][task]["of"][name]["variance"]
      assert found == pytest.approx(x.var(axis=0, ddof=1).mean(), rel=1e-5)


@pytest.mark.slow
def test_tables_have_the_papers_values(made, numbers):
  table = (made / "bouthillier2021" / "index.html").read_text()
  for row in (
    (
      "power of 29 pairs, γ = 0.75",
      "95 %",
      "appendix C.3",
      "0.834; 95 % take 51 pairs",
    ),
    ("false negatives at P = 0.75, P(A &gt; B) of 50", "30 %", "figure 6"),
  ):
    assert f"<tr><td>{'</td><td>'.join(row)}</td>" in table
  assert "nan" not in table


def made_up(runs=30, repetitions=5):
  rng = np.random.default_rng(0)
  shared = rng.normal(0.9, 0.01, runs)
  repeated = rng.normal(0.9, 0.01, (repetitions, 1)) + rng.normal(
    0, 0.01, (repetitions, 6)
  )
  biased = {
    "init": measures.biased(repeated),
    "data": measures.biased(repeated - repeated.mean(1)[:, None]),
    "all": measures.biased(rng.normal(0.9, 0.01, (repetitions, 6))),
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
      for row in fig05_standard_errors.rows(
        {"task": fig05_standard_errors.Estimators(30, 1e-4, of)}
      )
    }
    for of in (biased, made_up(repetitions=40)[-1])
  )
  of_init, of_data = (f"task: ρ of FixHOptEst(k, {x})" for x in ("init", "data"))
  assert few[of_data].ours.endswith("worth at most — independent measures")
  wide, narrow = (found[of_init].estimate for found in (few, many))
  assert wide.value == pytest.approx(init.correlation)
  assert wide.low < wide.value < wide.high
  assert -1 / 5 < narrow.low < narrow.value < narrow.high < 1
  assert narrow.high - narrow.low < wide.high - wide.low
  # As far apart as 6 measures can be: nothing is left between repetitions.
  assert place(few[of_data], 0.1, 0.5) == "across"


@pytest.mark.slow
def test_rates_are_simulated_with_the_correlations_found():
  a, b, _, biased = made_up()
  rho = {"all": biased["data"].simulated, "init": biased["init"].simulated}
  n = fig06_detection.compare_paired("digits", a, b, 1000, rho, jax.random.key(1))
  np.testing.assert_allclose(n.exact["all"], n.exact["ideal"])
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
  assert len(drawn) == 6
  np.testing.assert_allclose(drawn[1], n.exact["ideal"].single_point)
  assert not any(
    np.allclose(x, y) for i, x in enumerate(drawn) for y in drawn[:i]
  )  # no two curves lie on each other
  of_paper = {x: set() for x in (0.5, 0.75)}
  for line in axes[0].lines:
    if line.get_marker() == "D":
      for x, y in line.get_xydata():
        of_paper[x].add(round(y, 9))
  assert of_paper == {0.5: {0.1, 0.05}, 0.75: {0.25, 0.1, 0.7}}
  assert f"FixHOptEst(init), ρ = {rho['init']:.2f}" in [
    text.get_text() for text in axes[0].get_legend().texts
  ]
  assert sum(p.get_height() for p in axes[1].patches[:-1]) == 30
  # By hand: a threshold of 1.9952 of a difference with sd √2; the sign test's tail.
  found = {row.quantity: row.estimate for row in fig06_detection.rows(n)}
  apart = np.sqrt(2) * scipy.stats.norm.ppf(0.75)
  single = scipy.stats.norm.cdf((1.9952 - np.array([0, apart])) / np.sqrt(2))
  positive = found["false positives at P = 0.5, one run each"]
  negative = found["false negatives at P = 0.75, one run each"]
  assert positive[:3] == pytest.approx((1 - single[0],) * 3)
  assert negative[:3] == pytest.approx((single[1],) * 3)
  average = found["false negatives at P = 0.75, averages of 50"].value
  assert average == pytest.approx(1, abs=1e-4)
  more = found["false negatives of averages of 50 less those of single runs, P = 0.75"]
  assert more.value == pytest.approx(average - single[1])
  least = (
    measures.power_for_probability_of_outperforming(50, 0.5),
    measures.power_for_probability_of_outperforming(50, 0.75),
  )
  ours = [
    found[f"false {kind}, P(A > B) of 50"].value
    for kind in ("positives at P = 0.5", "negatives at P = 0.75")
  ]
  assert ours == pytest.approx([float(least[0]), float(1 - least[1])])


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
  found = measures.variance_ratio_within(a, b)
  np.testing.assert_allclose(
    np.log(found), log_ratio(range(6)) + reach * np.array([0, -1, 1])
  )
  assert np.isnan(measures.variance_ratio_within(np.ones((6, 5)), b)).all()


def test_the_ratios_interval_covers():
  """Even if repetitions have different variances, which an interval from pooled
  measures would miss.
  """
  rng = np.random.default_rng(0)
  sd = np.exp(rng.normal(0, 0.3, (2, 300, 20, 1)))
  accuracies = sd * rng.normal(size=(2, 300, 20, 10))
  intervals = [
    measures.variance_ratio_within(a, b) for a, b in zip(*accuracies, strict=True)
  ]
  assert 0.92 < np.mean([low < 1 < high for _, low, high in intervals]) < 0.985


def test_no_test_is_above_the_oracle_where_it_keeps_its_level():
  p = np.linspace(0.5, 0.99, 50)
  oracle, exact = fig06_detection.oracle(p, 50), operating_characteristics(p)
  assert oracle[0] == pytest.approx(0.05)
  assert (oracle >= exact.outperforming - 1e-12).all()
  rng = np.random.default_rng(0)
  runs = rng.normal(size=(2, 20_000, 50)).mean(axis=2)
  shift = np.sqrt(2) * scipy.stats.norm.ppf(p[10])
  better = runs[0] + shift - runs[1] > 1.6449 * np.sqrt(2 / 50)
  assert better.mean() == pytest.approx(oracle[10], abs=0.015)


def test_robustness_has_the_rates_of_each_setting():
  n = figi6_robustness.robustness({"ideal": 0.0, "all": 0.3})
  place = np.flatnonzero(figi6_robustness.SIZES == 30)[0]
  due = operating_characteristics(
    [0.5, 0.75], 0.3, 30, 0.75, float(equivalent_threshold(0.75))
  )
  for name, curves in n.by_size["all"].items():
    np.testing.assert_allclose(curves[:, place], getattr(due, name))
  assert n.by_gamma["ideal"]["average"][1][20] == pytest.approx(0.5)  # γ = P = 0.75


def test_errors_in_units_of_an_ideal_measure():
  rng = np.random.default_rng(0)
  ideal = rng.normal(0.9, 0.02, 400)
  shared = rng.normal(0.9, 0.02, (50, 1)) + rng.normal(0, 1e-4, (50, 8))
  free = rng.normal(0.92, 0.02, (50, 8))
  n = figh5_mse.estimator_errors(ideal, {"init": shared, "data": free, "all": free})
  init, every = n.of["init"], n.of["all"]
  assert init["correlation"].value == pytest.approx(1, abs=1e-3)
  assert init["mse"].value == pytest.approx(1, rel=0.4)
  assert every["bias"].value == pytest.approx(1, abs=0.15)
  assert every["variance"].value == pytest.approx(1 / 8, rel=0.5)
  for parts in n.of.values():
    total = parts["variance"].value + parts["bias"].value ** 2
    assert parts["mse"].value == pytest.approx(total)
  assert n.init_over_all.value == pytest.approx(init["mse"].value / every["mse"].value)


def test_curves_are_of_the_best_so_far():
  """Chosen by validation; a search's first trial failed, so curves begin with the second."""
  valid = [[0.5, 0.7, 0.6]] + np.arange(4)[:, None] / 100
  valid[0, 0] = np.nan
  test = [[0.4, 0.5, 0.9]] + np.arange(4)[:, None] / 10
  n = figf2_searches.curves(searches.Trials({}, valid, test), 2)
  assert np.isnan(n.mean["test"][0])
  np.testing.assert_allclose(n.mean["test"][1:], 1 - 0.65)
  np.testing.assert_allclose(n.mean["validation"][1:], 1 - 0.715)
  # Searches 0 and 2 have the same seeds, as 1 and 3 have.
  np.testing.assert_allclose(n.sd["test"][1:], np.std([0, 0.2], ddof=1))


def test_sources_beside_the_data():
  rng = np.random.default_rng(0)
  sd = dict.fromkeys(fig01_sources.NAMES, 1.0) | {
    "data": 2.0,
    "everything": 2.5,
    "augment": 3.0,
    "random": 2.0,
  }
  accuracies = {
    name: 0.9 + x * rng.normal(size=(20, 20)) / 100 for name, x in sd.items()
  }
  numbers = fig01_sources.compare_sources(
    accuracies, np.array([0.0, 0.0, 0.01, -0.01]), "b"
  )
  assert numbers.of["init"].relative.value == pytest.approx(0.25, rel=0.3)
  assert numbers.of["init"].sd_se == pytest.approx(0.01 / np.sqrt(2 * 20 * 19), rel=0.4)
  table = fig01_sources.rows({"task": numbers})
  rows = {row.quantity.removeprefix("task: "): row for row in table}
  init = rows["variance of weights init over that of data"]
  assert place(init, high=0.5) == "within"
  assert init.estimate.value == pytest.approx(numbers.of["init"].relative.value)
  # More than the data, which arithmetic does not allow, as they draw the test set too.
  augment = rows["variance of data augmentation over that of data"]
  assert place(augment, 0, 1) == "outside"
  assert (
    place(rows["variance of data order over that of weights init"], 0.5, 2) == "within"
  )
  noise = rows["variance of numerical noise over that of data; lanes b"]
  assert noise.ours.endswith("accuracy changed in 2 of 4 runs")
  assert numbers.noise == pytest.approx(0.01**2 / 4)
  three = rows["mean variance of the three searches over that of weights init"]
  assert three.estimate.value == pytest.approx(2, rel=0.3)  # (4 + 1 + 1) / 3


@pytest.mark.seldom
def test_the_number_of_devices_changes_no_bit(tmp_path):
  """As the row of figure 1 says; at the same lane width."""
  task = SMOKE["digits"]
  runs = campaigns.campaigns("smoke")["digits_sources"].runs[:10]
  how = dict(lane_width=4, keep_params=True, progress=False)
  vs.train(task.recipe, runs, tmp_path / "two", **how)
  program = f"""
import vmapseeds as vs
from experiments.bouthillier2021 import campaigns
import jax
recipe = campaigns.tasks("smoke")["digits"].recipe
runs = campaigns.campaigns("smoke")["digits_sources"].runs[:10]
vs.train(recipe, runs, {str(tmp_path / "one")!r}, **{how!r})
assert jax.device_count() == 1
"""
  env = os.environ | {"JAX_NUM_CPU_DEVICES": "1"}
  subprocess.run([sys.executable, "-c", program], check=True, env=env)
  assert jax.device_count() == 2
  results, networks = (
    [read(tmp_path / name) for name in ("one", "two")]
    for read in (vs.open_results, vs.load_networks)
  )
  for name in ("test_accuracy", "valid_accuracy"):
    np.testing.assert_array_equal(*(of[name].values for of in results))
  assert len(set(results[0].test_accuracy.values)) > 1
  leaves = [jax.tree.leaves(of.variables) for of in networks]
  for one, two in zip(*leaves, strict=True):
    np.testing.assert_array_equal(one, two)


def test_a_task_without_searches_has_no_rows_of_them():
  rng = np.random.default_rng(0)
  names = ("data", "order", "init", "everything")
  accuracies = {name: rng.normal(size=(4, 5)) for name in names}
  numbers = fig01_sources.compare_sources(accuracies, np.zeros(3), "b")
  said = " ".join(row.quantity for row in fig01_sources.rows({"task": numbers}))
  assert "weights init over that of data" in said
  assert "search" not in said.replace("all but the search", "")


@pytest.mark.parametrize("scale", ["smoke", "laptop", "gpu", "paper"])
def test_each_task_has_its_campaigns(scale):
  """Noise for all, searches where there are any, and one task that is compared."""
  found = campaigns.campaigns(scale)
  for name, task in campaigns.tasks(scale).items():
    assert len(found[f"{name}_sources"].runs) == (len(task.sources) + 1) * (
      task.repetitions * task.measures
    )
    assert found[f"{name}_noise"].lane_width == campaigns.NOISE_WIDTH
    assert (f"{name}_ideal" in found) == (f"{name}_tpe" in found) == bool(task.searched)
  (b,) = (name for name in found if name.endswith("_B"))
  assert b == f"{campaigns.compared_task(scale)}_B"
  assert b == ("cifar10_B" if scale == "paper" else "digits_B")


def test_binomial_of_answers_that_are_independent():
  """Answers that go wrong together do not fit a binomial."""
  right = np.random.default_rng(0).random((20, 40, 500)) > 0.1
  found, together = (
    fig02_binomial.spread_beside_binomial(x.mean(2), 500)
    for x in (right, right[..., :100])
  )
  assert found.binomial == pytest.approx(0.0134, rel=0.02)
  within = [
    np.var([np.mean(run) for run in repetition], ddof=1) for repetition in right
  ]
  se = scipy.stats.sem(within) * scipy.stats.t.ppf(0.975, 19)
  np.testing.assert_allclose(
    np.square(found.observed), np.mean(within) + se * np.array([0, -1, 1])
  )
  assert place(fig02_binomial.rows({"task": found})[-1], 0.8, 1.25) == "within"
  assert place(fig02_binomial.rows({"task": together})[-1], 0.8, 1.25) == "outside"


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
  assert (
    measures.power_for_probability_of_outperforming(51, 0.75)
    >= 0.95
    > measures.power_for_probability_of_outperforming(50, 0.75)
  )
  assert np.isnan(n.needed[0])  # more than the sizes that are tried
  assert np.nanmax(abs(n.needed / n.sign - 1)) < 0.25


def test_repetitions_share_all_seeds_but_one():
  table = campaigns.repeated_seeds(("data",), 20, 20)
  assert len(table) == 400
  assert len(set(table.seeds["data"])) == 400
  for source in ("init", "order", "augment", "dropout"):
    np.testing.assert_array_equal(table.seeds[source], np.arange(400) % 20)
  longer = campaigns.repeated_seeds(("data",), 20, 22)
  np.testing.assert_array_equal(longer.seeds["init"][:400], table.seeds["init"])


@pytest.mark.parametrize("runs", [3, 40])
def test_error_of_a_deviation_is_that_of_the_tensor(runs):
  errors = np.random.default_rng(runs).random((runs, 50)) < 0.3
  errors[0] = False  # a run far from the others
  of_tensor = frame.spread_of(errors).sd_se
  np.testing.assert_allclose(
    fig06_detection.sd_se(1 - stats.error_rates(errors)), of_tensor, rtol=1e-9
  )


def test_vgg11_has_the_published_layers():
  shapes = jax.eval_shape(
    lambda key: VGG11(10).init(key, jnp.zeros((1, 32, 32, 3)), train=False),
    jax.random.key(0),
  )
  kernels = [(3, 64), (64, 128), (128, 256), (256, 256), (256, 512)]
  kernels += [(512, 512)] * 3
  features = 64 + 128 + 2 * 256 + 4 * 512
  expected = sum(9 * a * b for a, b in kernels) + 2 * features + 512 * 10 + 10
  sizes = [leaf.size for leaf in jax.tree.leaves(shapes["params"])]
  assert sum(sizes) == expected == 9_228_362


@pytest.mark.seldom
def test_vgg11_learns_which_half_is_bright(tmp_path):
  rng = np.random.default_rng(0)
  labels = np.arange(256) % 2
  images = rng.integers(0, 128, (256, 32, 32, 3), dtype=np.uint8)
  images[labels == 1, :16] += 100
  data = vs.Dataset(
    train=(images[:192], labels[:192]), test=(images[192:], labels[192:])
  )
  recipe = vgg11_cifar10.replace(dataset=data, epochs=10, width=0.1, batch_size=32)
  runs = vs.Runs.independent(2).out_of_bootstrap()
  results = vs.train(recipe, runs, tmp_path / "r", progress=False)
  assert (results.test_accuracy.values > 0.9).all()


def test_peptides_and_affinities_are_read():
  lines = [
    ("B", "ACDEFGHI", "500", "quantitative"),
    ("A", "YYYYYYYYYYYYYYY", "0.2", "quantitative"),  # stronger than 1 nM
    ("A", "ACDEFGHIK", "900000", "quantitative"),  # weaker than 50,000 nM
    ("A", "ACDEFGHIK", "100", "qualitative"),
    ("C", "ACDEFGH", "100", "quantitative"),  # too short
    ("C", "ACDEFGHIKLMNPQRS", "100", "quantitative"),  # too long
    ("C", "ACDEFGHX", "100", "quantitative"),  # no amino acid
  ]
  names = ("allele", "peptide", "ic50", "measurement_type")
  inputs, targets = peptides.read([dict(zip(names, of, strict=True)) for of in lines])
  end = peptides.END
  assert inputs.tolist() == [
    [*range(7), 7, *[end] * 7, 1],
    [*[19] * 15, 0],
    [*range(9), *[end] * 6, 0],
  ]
  expected = [1 - math.log(500) / math.log(50_000), 1, 0]
  np.testing.assert_allclose(targets, expected, rtol=1e-6)


def test_peptides_need_their_file(monkeypatch):
  monkeypatch.setenv(peptides.VARIABLE, "nowhere.zip")
  peptides.load_affinities.cache_clear()
  with pytest.raises(UserError, match=r"MHCFLURRY_DATA is 'nowhere\.zip': give"):
    _ = peptides.affinities


def test_scores_of_peptides_are_those_of_scipy_and_sklearn():
  rng = np.random.default_rng(0)
  targets = rng.random(300).astype(np.float32)
  outputs = (targets + rng.normal(0, 0.3, 300)).round(1).astype(np.float32)[:, None]
  r = scipy.stats.pearsonr(outputs[:, 0], targets).statistic
  np.testing.assert_allclose(peptides.pearson(outputs, targets), r, rtol=1e-5)
  binds = 50_000 ** (1 - targets.astype(float)) < 500
  expected = sklearn.metrics.roc_auc_score(binds, outputs[:, 0])
  np.testing.assert_allclose(peptides.binder_auc(outputs, targets), expected, rtol=1e-5)


def test_network_of_peptides_sees_amino_acids_and_allele():
  codes = np.array([[*range(8), *[peptides.END] * 7, 3]], np.int32)
  network = peptides.PeptideMLP(hidden=2)
  params = network.init(jax.random.key(0), codes)["params"]
  kernel = np.asarray(params["Dense_0"]["kernel"])
  assert kernel.shape == (15 * 21 + 170, 2)
  rows = [21 * place + code for place, code in enumerate(codes[0, :15])]
  hidden = kernel[[*rows, 15 * 21 + 3]].sum(0) + np.asarray(params["Dense_0"]["bias"])
  last = params["Dense_1"]
  expected = np.maximum(hidden, 0) @ np.asarray(last["kernel"]) + np.asarray(
    last["bias"]
  )
  np.testing.assert_allclose(
    network.apply({"params": params}, codes)[0], expected, rtol=1e-5
  )
  assert np.abs(kernel).max() <= math.sqrt(6 / (15 * 21 + 170 + 2))


def test_regression_is_measured_by_its_first_metric():
  assert campaigns.score(peptides.MLP_MHC) == "test_pearson"
  assert campaigns.score(SMOKE["digits"].recipe) == "test_accuracy"
  found = campaigns.campaigns("laptop")
  assert found["mhc_random"].search.objective == "pearson"
  assert found["digits_random"].search.objective == "accuracy"
