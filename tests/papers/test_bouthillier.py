"""The scripts of Bouthillier 2021: their numbers against loops and SciPy, of made-up
measures and of the runs that they train.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

import vmapseeds as vs
from experiments import bouthillier2021, frame, searches
from experiments.bouthillier2021 import (
  fig01,
  fig02,
  fig05,
  fig06,
  figc1,
  peptides,
  tasks,
)
from experiments.bouthillier2021.campaigns import script_flags
from experiments.bouthillier2021.vgg11 import VGG11, vgg11_cifar10
from experiments.measures import (
  average_correlation,
  equivalent_threshold,
  operating_characteristics,
)
from vmapseeds.errors import UserError

GALLERY = Path(__file__).parents[2] / "docs" / "gallery" / "bouthillier2021"


def rows_of(numbers: dict) -> dict[str, dict]:
  return {row["quantity"]: row for row in numbers["rows"]}


def test_repetitions_share_all_seeds_but_one():
  table = tasks.repeated_seeds(("data",), 20, 20)
  assert len({*table.seeds["data"].tolist()}) == len(table) == 400
  for source in ("init", "order", "augment", "dropout"):
    np.testing.assert_array_equal(table.seeds[source], np.arange(400) % 20)
  longer = tasks.repeated_seeds(("data",), 20, 22)
  np.testing.assert_array_equal(longer.seeds["init"][:400], table.seeds["init"])
  measures = np.arange(400.0)
  measures[45] = np.nan  # of repetition 5
  found = tasks.by_repetition(measures, 20)
  assert found.shape == (19, 20)
  assert found[0].tolist() == [*range(0, 400, 20)]
  assert 5 not in found


@pytest.mark.parametrize("task", ["breast_cancer", "digits"])
def test_a_sixth_is_tested(task):
  split = vs.Runs.independent(2).out_of_bootstrap().split_examples
  every = {"breast_cancer": 569, "digits": 1797}[task]
  found = tasks.test_examples(tasks.TASKS[task])
  assert (2, found) == split(every)["test_examples"].shape


def within(a: np.ndarray, b: np.ndarray):
  return tasks.ratio_of_variances(a.var(axis=1, ddof=1), b.var(axis=1, ddof=1))


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
  found = within(a, b)
  np.testing.assert_allclose(
    np.log(found[:3]), log_ratio(range(6)) + reach * np.array([0, -1, 1])
  )
  assert np.isnan(within(np.ones((6, 5)), b)[:3]).all()


def test_the_ratios_interval_covers():
  """Even if repetitions have different variances, which an interval from pooled
  measures would miss.
  """
  rng = np.random.default_rng(0)
  sd = np.exp(rng.normal(0, 0.3, (2, 300, 20, 1)))
  accuracies = sd * rng.normal(size=(2, 300, 20, 10))
  intervals = [within(a, b) for a, b in zip(*accuracies, strict=True)]
  assert 0.92 < np.mean([low < 1 < high for _, low, high, _ in intervals]) < 0.985


def made_up(**sds: float) -> dict[str, np.ndarray]:
  """Return twenty repetitions of twenty normal measures by source."""
  rng = np.random.default_rng(0)
  sd = {"data": 2.0, "order": 1.0, "init": 1.0, "everything": 2.5, **sds}
  return {name: 0.9 + x * rng.normal(size=(20, 20)) / 100 for name, x in sd.items()}


def test_sources_and_searches_beside_the_data():
  sources = made_up()
  rng = np.random.default_rng(1)
  # The best of four trials so far: after a quarter of them, sds are four times larger.
  best = 0.9 + rng.normal(size=(20, 20, 1)) * np.array([0.04, 0.02, 0.01, 0.01])
  of = {"sources": sources, "searches": dict.fromkeys(searches.SAMPLERS, best)}
  of["noise"] = np.array([0.0, 0.0, 0.01, -0.01])
  rows = rows_of(fig01.measure({"task": of}))
  variance = {name: x.var(axis=1, ddof=1).mean() for name, x in sources.items()}
  init = rows["task: variance of init ÷ of data"]
  assert init["value"] == pytest.approx(variance["init"] / variance["data"])
  assert 0.15 < init["low"] < 0.25 < init["high"] < 0.4
  order = rows["task: variance of order ÷ of init"]
  assert order["value"] == pytest.approx(variance["order"] / variance["init"])
  searched = rows["task: mean variance of searches ÷ of init"]
  expected = best[..., -1].var(axis=1, ddof=1).mean() / variance["init"]
  assert searched["value"] == pytest.approx(expected)
  early = rows["task: variance after a quarter of the trials ÷ at the end, tpe"]
  assert early["value"] == pytest.approx(16)
  noise = rows["task: variance of lanes of another width ÷ of data"]
  assert noise["value"] == pytest.approx(0.01**2 / 4 / variance["data"])
  of_init = rows["task: skewness, init"]["value"]
  deviations = sources["init"] - sources["init"].mean(axis=1, keepdims=True)
  assert of_init == pytest.approx(scipy.stats.skew(deviations.ravel()))
  alone = rows_of(fig01.measure({"task": {"sources": sources}}))
  assert not [name for name in alone if "search" in name or "lanes" in name]


def test_repetitions_are_tested_for_normality_one_by_one():
  rng = np.random.default_rng(0)
  x = rng.normal(size=(4, 12)) + np.arange(4)[:, None]
  x[2] = 5.0  # nothing to test
  log_p = sum(np.log(scipy.stats.shapiro(x[r]).pvalue) for r in (0, 1, 3))
  assert fig01.normality(x) == pytest.approx(scipy.stats.chi2.sf(-2 * log_p, 6))
  assert fig01.normality(rng.exponential(size=(20, 20))) < 1e-6


def test_numbers_of_kept_runs_are_the_committed_ones():
  kept = tasks.kept_sources(GALLERY, tasks.TASKS["peptides"])
  again = fig01.measure({"peptides": {"sources": kept}})
  committed = json.loads((GALLERY / "fig01_peptides.json").read_text())
  assert again["rows"] == committed["rows"]
  # By NumPy alone: of the 600 runs the first 200 have other data, the last others initialisations.
  paths = sorted(GALLERY.glob("*mhc_sources*.npz"), key=lambda p: (len(p.name), p))
  measured = np.concatenate([np.load(path)["test_pearson"] for path in paths])
  data, _, init = measured.astype(float).reshape(3, 10, 20).var(axis=1, ddof=1).mean(1)
  found = rows_of(committed)["peptides: variance of init ÷ of data"]
  assert found["value"] == pytest.approx(init / data)


def test_binomial_of_answers_that_are_independent():
  """Answers that go wrong together do not fit a binomial."""
  right = np.random.default_rng(0).random((20, 40, 500)) > 0.1
  of_tasks = {
    "alone": (right.mean(2), 500),
    "together": (right[..., :100].mean(2), 500),
  }
  rows = rows_of(fig02.measure(of_tasks))
  assert rows["alone: sd of a binomial"]["value"] == pytest.approx(1.34, rel=0.02)
  of_repetitions = [np.var([np.mean(run) for run in x], ddof=1) for x in right]
  se = scipy.stats.sem(of_repetitions) * scipy.stats.t.ppf(0.975, 19)
  observed = rows["alone: sd, data alone"]
  ends = [observed[name] / 100 for name in ("value", "low", "high")]
  expected = np.mean(of_repetitions) + se * np.array([0, -1, 1])
  np.testing.assert_allclose(np.square(ends), expected)
  assert rows["alone: ... over that of a binomial"]["low"] > 0.8
  assert rows["alone: ... over that of a binomial"]["high"] < 1.25
  assert rows["together: ... over that of a binomial"]["low"] > 1.25


def test_what_repetitions_share_costs_measures():
  rng = np.random.default_rng(0)
  ideal = rng.normal(0.9, 0.02, 400)
  shared = rng.normal(0.9, 0.02, (50, 1)) + rng.normal(0, 1e-4, (50, 8))
  half = rng.normal(0.9, 0.02, (50, 1)) + rng.normal(0, 0.02, (50, 8))
  free = rng.normal(0.92, 0.02, (50, 8))
  biased = {"init": shared, "data": half, "all": free}
  of = fig05.summarize(ideal, biased)
  rows = rows_of(fig05.measure({"task": of}))
  rho = rows["task: ρ, data varies"]
  assert rho["value"] == pytest.approx(float(average_correlation(half)))
  assert rho["low"] < 0.5 < rho["high"]
  assert rows["task: ρ, init varies"]["value"] > 0.99
  worth = rows["task: independent measures that endlessly many are worth, data varies"]
  assert worth["value"] == pytest.approx(1 / rho["value"])
  means = [half[:, :i].mean(axis=1).std(ddof=1) for i in range(1, 9)]
  np.testing.assert_allclose(of["biased"]["data"]["sd_of_means"], means)
  for name, x in biased.items():
    from_truth = (x - ideal.mean()) / ideal.std(ddof=1)
    mse = rows[f"task: mse of the mean, {name} varies"]["value"]
    assert mse == pytest.approx((from_truth.mean(axis=1) ** 2).mean())
    bias = rows[f"task: bias of the mean, {name} varies"]["value"]
    assert bias == pytest.approx(from_truth.mean())
  ratio = rows["task: mean squared error, init ÷ all"]["value"]
  by_name = [
    rows[f"task: mse of the mean, {x} varies"]["value"] for x in ("init", "all")
  ]
  assert ratio == pytest.approx(by_name[0] / by_name[1])


def test_rates_are_exact():
  """A threshold of 1.9952 of a difference with sd √2, by hand; a sign test's tail."""
  rows = rows_of(fig06.measure([0.0, 0.3]))
  apart = np.sqrt(2) * scipy.stats.norm.ppf(0.75)
  single = 100 * scipy.stats.norm.cdf((1.9952 - np.array([0, apart])) / np.sqrt(2))
  positive = rows["false positives, one run each, ρ = 0"]["value"]
  negative = rows["false negatives, one run each, ρ = 0"]["value"]
  assert [100 - positive, negative] == pytest.approx(single)
  # 33 of 50 wins are the fewest that are significant; γ decides nothing.
  wins = scipy.stats.binom(50, [0.5, 0.75]).sf(32)
  assert rows["false positives, P(A > B) of 50, ρ = 0"]["value"] == pytest.approx(
    100 * wins[0]
  )
  missed = rows["false negatives, P(A > B) of 50, ρ = 0"]["value"]
  assert missed == pytest.approx(100 - 100 * wins[1])
  correlated = rows["false positives, P(A > B) of 50, ρ = 0.3"]["value"]
  due = operating_characteristics([0.5], 0.3, 50, 0.75).outperforming[0]
  assert correlated == pytest.approx(100 * due)
  by_size = fig06.rates(np.array([0.5, 0.75]), 0.3, pairs=30, gamma=0.6)
  due = operating_characteristics(
    [0.5, 0.75], 0.3, 30, 0.6, float(equivalent_threshold(0.6))
  )
  np.testing.assert_allclose(by_size["averages of 50"], due.average)


def test_no_test_is_above_the_oracle_where_it_keeps_its_level():
  p = np.linspace(0.5, 0.99, 50)
  oracle, exact = fig06.oracle(p, 50), operating_characteristics(p)
  assert oracle[0] == pytest.approx(0.05)
  assert (oracle >= exact.outperforming - 1e-12).all()
  rng = np.random.default_rng(0)
  runs = rng.normal(size=(2, 20_000, 50)).mean(axis=2)
  shift = np.sqrt(2) * scipy.stats.norm.ppf(p[10])
  better = runs[0] + shift - runs[1] > 1.6449 * np.sqrt(2 / 50)
  assert better.mean() == pytest.approx(oracle[10], abs=0.015)


def test_sizes_are_the_least_with_that_power():
  numbers = figc1.measure()
  place = np.flatnonzero(numbers["gamma"] == 0.75)[0]
  assert (numbers["noether"][place], numbers["needed"][place]) == (29, 51)
  assert numbers["needed"][0] is None  # more than the sizes that are tried
  # 20 of 29 wins are the fewest that are significant.
  power = 100 * scipy.stats.binom(29, 0.75).sf(19)
  row = rows_of(numbers)["power of 29 pairs, γ = 0.75"]
  assert row["value"] == pytest.approx(power) == pytest.approx(83.4, abs=0.05)


@pytest.mark.parametrize("scale", ["smoke", "laptop", "gpu", "paper"])
def test_each_scale_has_flags_that_scripts_take(scale):
  for script in (fig01, fig02, fig05, fig06, figc1):
    words = script_flags(scale, script.__name__.rpartition(".")[2])
    with pytest.raises(SystemExit) as stopped:
      script.main([*words, "--help"])
    assert stopped.value.code == 0
  searched = script_flags(scale, "fig05")
  named = [name for name in tasks.TASKS if name in searched]
  assert named
  assert all(tasks.TASKS[name].over for name in named)


def test_scripts_show_the_runs_that_they_train(tmp_path):
  """All of the paper, as one command; the numbers are those of its folders."""
  out = tmp_path / "out"
  frame.main(
    bouthillier2021.__file__, ["--out", str(out), "--campaigns", str(tmp_path)]
  )
  rows = rows_of(json.loads((out / "fig01.json").read_text()))

  def variance(source: str) -> float:
    results = vs.open_results(tmp_path / f"breast_cancer-{source}")
    seeds = {x: len({*results[f"seed_{x}"].values}) for x in ("data", "order", "init")}
    assert seeds == {x: 16 if x == source else 4 for x in seeds}
    x = results.test_accuracy.values.astype(float).reshape(-1, 4)
    return x.var(axis=0, ddof=1).mean()

  found = rows["breast_cancer: variance of init ÷ of data"]["value"]
  assert found == pytest.approx(variance("init") / variance("data"))
  # The best trial of each search, by validation examples.
  results = vs.open_results(tmp_path / "breast_cancer-ideal-4")
  table = results[["lr", "valid_accuracy", "test_accuracy"]].to_dataframe()
  table = table.reset_index(drop=True)
  best = table.loc[table.groupby(table.index % 8)["valid_accuracy"].idxmax()]
  numbers = json.loads((out / "fig05.json").read_text())["tasks"]["breast_cancer"]
  variance_of_best = best.test_accuracy.astype(float).var()
  assert numbers["variance"] == pytest.approx(variance_of_best, rel=1e-3)
  fixed = vs.open_results(tmp_path / "breast_cancer-fixed-init-4")
  np.testing.assert_array_equal(fixed.lr, np.tile(best.lr.values[:4], 4))
  for seed in ("data", "order"):
    np.testing.assert_array_equal(fixed[f"seed_{seed}"], np.arange(16) % 4)
  for name in ("fig01", "fig02", "fig05", "fig06", "figc1"):
    assert (out / f"{name}.png").stat().st_size > 5000


@pytest.mark.seldom
def test_the_number_of_devices_changes_no_bit(tmp_path):
  """At the same lane width: numerical noise is of other lanes alone."""
  runs = tasks.repeated_seeds(tasks.SOURCES, 2, 5)
  how = dict(lane_width=4, keep_params=True, progress=False)
  vs.train(tasks.DIGITS, runs, tmp_path / "two", **how)
  program = f"""
import vmapseeds as vs
from experiments.bouthillier2021 import tasks
import jax
runs = tasks.repeated_seeds(tasks.SOURCES, 2, 5)
vs.train(tasks.DIGITS, runs, {str(tmp_path / "one")!r}, **{how!r})
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
