"""Reports: the numbers against plain NumPy, what is left out and said, the files, the
page.
"""

import functools
import html.parser
import io
import json
import os
import re
import shutil
import warnings
from collections import Counter
from itertools import combinations
from pathlib import Path

import folders
import numpy as np
import pytest
import scipy.stats
import xarray as xr
from cases import words_of
from rich.console import Console
from zarr.errors import ZarrUserWarning

import vmapseeds as vs
from vmapseeds import cli, stats
from vmapseeds.errors import UserError
from vmapseeds.reports import pages, plots, rendering, results_page, sweeps
from vmapseeds.reports.groups import group_runs
from vmapseeds.reports.pictures import ExampleInputs
from vmapseeds.reports.results_page import (
  OutputRow,
  Part,
  figures_of_output,
  short_side_by_side,
)
from vmapseeds.reports.summaries import measure_outputs, summarize
from vmapseeds.results import measured_runs
from vmapseeds.results.formatting import show
from vmapseeds.results.measured_runs import measure_runs
from vmapseeds.training.names import SOURCES

NAMES = words_of(
  "mean_accuracy sd_accuracy min_accuracy max_accuracy normality "
  "ensemble_accuracy independent_errors_sd noise_share "
  "distribution_variance distribution_sd runs_for_variance binomial_sd "
  "calibration_sd split_correlation top_quarter_gain expected_disagreement "
  "gde_gap cace ece dependent_pairs"
)
OVER_PREDICTIONS = words_of("ensemble_accuracy expected_disagreement gde_gap cace ece")


def dataset(runs=40, n=61, classes=3, *, spread=0.15, seed=0, **columns):
  """What `open_results` gives: runs whose error rates differ by `spread`."""
  rng = np.random.default_rng(seed)
  labels = rng.integers(0, classes, n).astype(np.int32)
  labels[:classes] = np.arange(classes)
  rates = np.clip(rng.beta(0.5, 1.5, n) + spread * rng.standard_normal((runs, 1)), 0, 1)
  wrong = rng.random((runs, n)) < rates
  predictions = (
    (labels + wrong * rng.integers(1, classes, (runs, n))) % classes
  ).astype(np.int8)
  table = {
    f"seed_{s}": (
      "run",
      np.arange(runs, dtype=np.uint32),
      {"role": "seed", "source": s},
    )
    for s in ("init", "order")
  }
  return xr.Dataset(
    {
      "predictions": (
        ("run", "example"),
        predictions,
        {"role": "class", "labels": "labels", "num_classes": classes},
      ),
      "labels": ("example", labels),
      "accuracy": ("run", (~wrong).mean(1)),
      "diverged": ("run", np.zeros(runs, bool)),
    },
    coords={**table, **columns},
    attrs={
      "recipe": vs.recipe("digits_cnn").to_json(),
      "device_kind": "cpu",
      "lane_width": 1,
      "num_classes": classes,
      "lowering": "im2col",
      "versions": '{"jax": "0.9", "vmapseeds": "0.1.0"}',
    },
  )


@functools.cache
def usual():
  """The summary of `dataset()`, not to be changed."""
  return summarize(dataset())


def page_of(summary):
  document = results_page.document_of(Part("", "", [], summary))
  return rendering.to_html(document, sources={})


def values(summary):
  return {name: s["value"] for name, s in summary["statistics"].items()}


def by_hand(predictions, labels, classes):
  """The report's statistics, each by its own loop."""
  errors = predictions != labels
  R, n = errors.shape
  accuracy = 1 - errors.mean(1)
  error = errors.mean()
  rates = errors.mean(0)
  sd = np.std(accuracy, ddof=1)
  covariances = np.cov(errors.T.astype(float))
  variance = (covariances.sum() - np.trace(covariances)) / (n * (n - 1))
  even, odd = (1 - errors[:, i::2].mean(1) for i in (0, 1))
  votes = [Counter(column.tolist()) for column in predictions.T]
  plurality = [max(range(classes), key=lambda c, v=v: (v[c], -c)) for v in votes]
  disagreement = np.mean([(a != b).mean() for a, b in combinations(predictions, 2)])
  right = 1.0 - errors
  deviations = (
    [
      (right[:, i] * right[:, j]).mean() - right[:, i].mean() * right[:, j].mean()
      for i, j in combinations(range(n), 2)
    ]
    if n < 100
    else []
  )
  return {
    "mean_accuracy": accuracy.mean(),
    "sd_accuracy": sd,
    "min_accuracy": accuracy.min(),
    "max_accuracy": accuracy.max(),
    "independent_errors_sd": np.sqrt((rates * (1 - rates)).sum() / n**2 * R / (R - 1)),
    "noise_share": min(1, (rates * (1 - rates)).sum() / n**2 * R / (R - 1) / sd**2),
    "distribution_variance": variance,
    "distribution_sd": np.sqrt(variance) if variance >= 0 else None,
    "binomial_sd": np.sqrt(error * (1 - error) / n),
    "calibration_sd": np.sqrt(error / (classes * n)),
    "split_correlation": np.corrcoef(even, odd)[0, 1],
    "ensemble_accuracy": np.mean(plurality == labels),
    "expected_disagreement": disagreement,
    "gde_gap": abs(error - disagreement),
    "normality": scipy.stats.shapiro(accuracy).pvalue if R > 2 else None,
    **({"dependent_pairs": told_pairs(deviations, rates, R)} if deviations else {}),
  }


def told_pairs(deviations, rates, runs):
  """Return how many pairs are dependent, None if chance alone would make many so."""
  found = sum(abs(d) > 0.02 + 1e-12 for d in deviations)
  by_chance = 0.0
  for a, b in combinations(rates, 2):
    sd = np.sqrt(a * (1 - a) * b * (1 - b) / runs)
    by_chance += 2 * scipy.stats.norm.sf(0.02 / sd) if sd else 0
  return found if by_chance <= max(1, 0.05 * found) else None


@pytest.mark.parametrize("classes", [2, 3])
def test_numbers_agree_with_numpy(classes):
  results = dataset(classes=classes)
  summary = summarize(results)
  expected = by_hand(results.predictions.values, results.labels.values, classes)
  found = values(summary)
  assert list(found) == NAMES
  for name, value in expected.items():
    due = None if value is None else pytest.approx(value, rel=1e-9)
    assert found[name] == due, name
  assert (
    summary["runs"],
    summary["diverged"],
    summary["examples"],
    summary["classes"],
  ) == (
    40,
    0,
    61,
    classes,
  )
  assert summary["varied"] == ["init", "order"]
  assert summary["recipe"] == summary["settings"]["name"] == "digits_cnn"


def test_standard_errors():
  results = dataset()
  statistics = usual()["statistics"]
  accuracy = results.accuracy.values
  sd, n = accuracy.std(ddof=1), 61
  left = [np.delete(accuracy, h).var(ddof=1) for h in range(40)]
  variance_se = n / (n - 1) * np.sqrt(39 * np.var(left))
  assert statistics["mean_accuracy"]["se"] == pytest.approx(sd / np.sqrt(40))
  assert statistics["sd_accuracy"]["se"] == pytest.approx(
    np.sqrt(39 * np.var(left)) / (2 * sd)
  )
  assert statistics["distribution_variance"]["se"] == pytest.approx(variance_se)
  root = statistics["distribution_sd"]
  assert root["se"] == pytest.approx(variance_se / (2 * root["value"]))
  assert statistics["max_accuracy"]["se"] is None
  # The jackknife of error less disagreement, by leaving runs out.
  predictions = results.predictions.values
  apart = (predictions[:, None] != predictions).mean(-1)
  gaps = []
  for run in range(40):
    others = np.delete(np.arange(40), run)
    disagreement = apart[np.ix_(others, others)].sum() / (39 * 38)
    gaps.append(1 - accuracy[others].mean() - disagreement)
  assert statistics["gde_gap"]["se"] == pytest.approx(np.sqrt(39 * np.var(gaps)))


@pytest.mark.parametrize("classes", [2, 3])
def test_uncertainties_of_deviations_that_follow_from_the_mean(classes):
  results, n = dataset(classes=classes), 61
  statistics = summarize(results)["statistics"]
  mean, se = _mean_and_sem(1 - results.accuracy.values)
  reach = scipy.stats.t.ppf(0.975, 39)
  for name, variance, of_variance in (
    ("binomial_sd", mean * (1 - mean) / n, abs(1 - 2 * mean) * se / n),
    ("calibration_sd", mean / (n * classes), se / (n * classes)),
  ):
    found = statistics[name]
    assert found["value"] == pytest.approx(np.sqrt(variance))
    assert found["se"] == pytest.approx(of_variance / (2 * np.sqrt(variance)))
    ends = np.sqrt([variance - reach * of_variance, variance + reach * of_variance])
    assert [found["low"], found["high"]] == pytest.approx(ends)


@pytest.mark.parametrize(("spread", "seen"), [(0.04, False), (0.06, True)])
def test_a_root_has_an_error_where_its_variance_is_twice_its_own(spread, seen):
  statistics = summarize(dataset(runs=12, spread=spread))["statistics"]
  variance, root = (statistics[f"distribution_{of}"] for of in ("variance", "sd"))
  assert variance["value"] > variance["se"]
  assert (variance["value"] > 2 * variance["se"]) == seen
  assert (root["se"] is not None) == seen


def test_which_numbers_have_an_interval_and_which_an_error_alone():
  statistics = usual()["statistics"]
  without = {
    name for name, s in statistics.items() if s["low"] is None and s["se"] is None
  }
  # Extremes, a p value, a plan, and a count that is shown beside the count expected by
  # chance.
  assert without == {
    *words_of("min_accuracy max_accuracy normality runs_for_variance dependent_pairs")
  }
  # Few examples bias these upwards in every resample.
  assert {
    name for name, s in statistics.items() if s["low"] is None and s["se"] is not None
  } == {"cace", "ece"}
  for name, s in statistics.items():
    if s["low"] is not None:
      assert s["low"] <= s["value"] <= s["high"], name
      assert re.search(r" \(95 %: .* to .*\)\.$", s["reading"]), name
    over = "examples" if name in ("ensemble_accuracy", "cace", "ece") else "runs"
    assert s["over"] == (None if name in without else over), name
  low, high = scipy.stats.t.interval(
    0.95, 39, *_mean_and_sem(dataset().accuracy.values)
  )
  assert (
    statistics["mean_accuracy"]["low"],
    statistics["mean_accuracy"]["high"],
  ) == pytest.approx((low, high))
  variance = statistics["distribution_variance"]
  assert statistics["distribution_sd"]["high"] == pytest.approx(
    np.sqrt(variance["high"])
  )


def _mean_and_sem(values):
  return values.mean(), scipy.stats.sem(values)


def test_two_examples_are_a_pair_and_one_is_none():
  results = dataset(20, 2, 2)
  # Together in all runs but one, which chance does not do.
  answers = np.arange(20) % 2
  answers_of_both = np.stack([answers, answers], axis=1)
  answers_of_both[3, 1] = 0
  results["predictions"][:] = answers_of_both
  (pair,) = summarize(results)["pairs"]
  right = results.predictions.values == results.labels.values
  assert (pair["i"], pair["j"]) == (0, 1)
  assert (pair["right_i"], pair["right_j"]) == pytest.approx(right.mean(0))
  assert pair["joint"] == pytest.approx(right.all(1).mean())
  assert summarize(results.isel(example=[0]))["pairs"] == []


@pytest.mark.slow
def test_pairs_are_those_farthest_from_independence():
  """Two examples are always right or wrong together, two always opposite, all others
  independent.
  """
  rng = np.random.default_rng(0)
  errors = rng.random((400, 30)) < 0.5
  errors[:, 7], errors[:, 21] = errors[:, 3], ~errors[:, 20]
  results = dataset(400, 30, 2)
  results["labels"][:], results["predictions"][:] = 0, errors.astype(np.int8)
  pairs = summarize(results)["pairs"]
  assert {(p["i"], p["j"]) for p in pairs[:2]} == {(3, 7), (20, 21)}
  first = next(p for p in pairs if p["i"] == 3)
  assert first["joint"] == pytest.approx((~errors[:, 3]).mean())
  assert first["product"] == pytest.approx(first["right_i"] * first["right_j"])
  # Each example is right half the time, so the standard error of P(C_i) P(C_j) is 1/(4
  # √R).
  assert first["se"] == pytest.approx(1 / 80, rel=0.01)


def test_top_quarter_gain_without_ties():
  """Every run differs from every other on both halves, so that the quarter is
  unambiguous.
  """
  errors = np.arange(80) < np.repeat(np.arange(8)[:, None], 80, axis=1) * 10
  labels = np.zeros(80, np.int32)
  results = dataset(8, 80, 2)
  results["labels"][:], results["predictions"][:] = labels, errors.astype(np.int8)
  right = 1 - errors.mean(1)
  assert values(summarize(results))["top_quarter_gain"] == pytest.approx(
    right[:2].mean() - right.mean()
  )


def test_diverged_runs_are_counted_and_left_out():
  clean = dataset(runs=41)
  broken = clean.copy(deep=True)
  broken.predictions[7], broken.accuracy[7], broken.diverged[7] = -1, np.nan, True
  summary = summarize(broken)
  assert (summary["runs"], summary["diverged"]) == (40, 1)
  assert values(summary) == values(summarize(clean.drop_isel(run=7)))
  assert "1 run diverged and is left out of every statistic." in summary["warnings"]


def test_one_run_has_an_accuracy_and_no_variance():
  results = dataset(runs=1)
  summary = summarize(results)
  found = values(summary)
  assert (
    found["mean_accuracy"]
    == found["ensemble_accuracy"]
    == pytest.approx(results.accuracy.values[0])
  )
  undefined = {name for name, value in found.items() if value is None}
  assert undefined == {
    *words_of(
      "sd_accuracy normality independent_errors_sd noise_share "
      "distribution_variance distribution_sd runs_for_variance "
      "split_correlation top_quarter_gain expected_disagreement gde_gap "
      "dependent_pairs"
    )
  }
  assert summary["warnings"] == [
    "One run says nothing about variance between runs: train more with --runs."
  ]
  assert figures_of_output(measure_outputs(results)[0], summary) == {}
  assert "n/a" in page_of(summary)
  assert "negative" not in summary["statistics"]["distribution_sd"]["reading"]


def test_two_runs():
  results = dataset(runs=2)
  summary = summarize(results)
  expected = by_hand(results.predictions.values, results.labels.values, 3)
  found = values(summary)
  for name in ("sd_accuracy", "distribution_variance", "expected_disagreement"):
    assert found[name] == pytest.approx(expected[name])
  assert found["split_correlation"] == pytest.approx(
    np.sign(expected["split_correlation"])
  )
  assert summary["statistics"]["split_correlation"]["p_value"] == 1
  assert (
    "With only 2 runs the standard deviation may be anything." in summary["warnings"]
  )
  for name in ("sd_accuracy", "distribution_variance", "split_correlation"):
    assert (
      summary["statistics"][name]["se"] is summary["statistics"][name]["low"] is None
    )


def test_a_negative_variance_is_signed_and_has_no_root():
  """Each run is wrong on exactly one example, so accuracy does not vary; with
  independent errors it would.
  """
  results = dataset(runs=40, n=40, classes=2)
  results["labels"][:], results["predictions"][:] = 0, np.eye(40, dtype=np.int8)
  summary = summarize(results)
  found = summary["statistics"]
  # -n/(n - 1) (1/n²) Σ ε (1 - ε) R/(R - 1) with R = n = 40 and ε = 1/40.
  assert found["distribution_variance"]["value"] == pytest.approx(-1 / 39 / 40)
  assert found["distribution_sd"]["value"] is None
  assert "negative" in found["distribution_sd"]["reading"]
  assert found["sd_accuracy"]["value"] == 0
  assert found["split_correlation"]["value"] == pytest.approx(-1)


def test_a_negative_variance_estimate_still_bounds_the_standard_deviation():
  results = dataset(runs=30, spread=0, seed=1)
  estimate, root = (
    summarize(results)["statistics"][f"distribution_{what}"]
    for what in ("variance", "sd")
  )
  assert estimate["value"] < 0 < estimate["high"]
  assert root["value"] is root["se"] is None
  assert (root["low"], root["high"]) == (0, pytest.approx(estimate["high"] ** 0.5))
  assert root["reading"].endswith(f"(95 %: 0.0 to {100 * root['high']:.1f} %).")


def test_all_right_everywhere():
  results = dataset(runs=3)
  results["predictions"][:] = results.labels.values.astype(np.int8)
  summary = summarize(results)
  found = values(summary)
  assert found["mean_accuracy"] == found["ensemble_accuracy"] == 1
  assert (
    found["sd_accuracy"]
    == found["distribution_variance"]
    == found["expected_disagreement"]
    == 0
  )
  assert found["split_correlation"] is None
  assert found["cace"] == found["ece"] == found["dependent_pairs"] == 0
  for drawn in figures_of_output(measure_outputs(results)[0], summary).values():
    drawn.draw(plots.figure()[1])


@pytest.mark.parametrize(
  ("spread", "seen"),
  [(0.3, False), (0.0, True)],
  ids=["runs differ", "errors independent"],
)
def test_warns_where_no_distribution_wise_variance_is_seen(spread, seen):
  summary = summarize(dataset(spread=spread))
  s = summary["statistics"]["distribution_variance"]
  assert (s["low"] <= 0 <= s["high"]) is seen
  assert (
    "The real variance may be 0: its interval holds it." in summary["warnings"]
  ) is seen
  assert ("beyond it, no difference between runs" in summary["summary"]) is seen


@pytest.mark.slow
def test_warns_of_runs_far_from_the_rest():
  """With few runs, a long tail makes intervals hold too rarely. With many runs no
  warning is needed.
  """
  for runs, far, told in ((60, 2, True), (60, 0, False), (100, 2, False)):
    results = dataset(runs)
    results["predictions"][:far] = -1
    results["accuracy"][:far] = 0
    kurtosis = scipy.stats.kurtosis(results.accuracy.values)
    assert (kurtosis > 2) == (far > 0)
    warning = f"Some runs are far from the rest (excess kurtosis {kurtosis:.1f}): below 100 runs the 95 % intervals of "
    assert any(w.startswith(warning) for w in summarize(results)["warnings"]) is told


def test_pairs_that_chance_explains_are_neither_counted_nor_listed(tmp_path, undrawn):
  """Independent errors of 30 runs, of which thousands of pairs pass 2 points."""
  rng = np.random.default_rng(0)
  errors = rng.random((30, 200)) < rng.beta(0.5, 4, 200)
  vs.import_runs(
    tmp_path / "a",
    predictions=errors.astype(int),
    labels=np.zeros(200, int),
    progress=False,
  )
  report = vs.report(tmp_path / "a")
  (summary,) = report
  statistic = summary["statistics"]["dependent_pairs"]
  assert statistic["value"] is None
  seen = len(vs.stats.dependent_pairs(errors).i)
  due = told_pairs([0.03] * seen, errors.mean(0), 30)
  assert due is None
  assert seen > 1000
  assert f"{seen:,} are seen" in statistic["reading"]
  by_chance = statistic["by_chance"]
  assert f"about {by_chance:,.0f} pairs" in statistic["reading"]
  assert 0.8 < by_chance / seen < 1.2
  assert summary["pairs"] == []
  with io.StringIO() as printed:
    report.print(Console(file=printed, width=100))
    (row,) = [
      line for line in printed.getvalue().splitlines() if "dependent pairs" in line
    ]
  assert not any(letter.isdigit() for letter in row)
  page = report.save(tmp_path / "page").read_text()
  assert "farthest from independence" not in page


def test_differing_label_maps_leave_out_statistics_over_predictions():
  maps = np.array([[0, 1, 1], [1, 0, 1]] * 20, np.int32)
  results = dataset()
  results["labels"] = (("run", "example"), maps[:, results.labels.values])
  results.attrs["num_classes"] = results["predictions"].attrs["num_classes"] = 2
  results["predictions"][:] = (results.predictions.values > 0).astype(np.int8)
  summary = summarize(results)
  assert list(values(summary)) == [
    name for name in NAMES if name not in OVER_PREDICTIONS
  ]
  assert any("Label maps differ" in w for w in summary["warnings"])
  assert values(summary)["mean_accuracy"] == pytest.approx(
    (results.predictions.values == results.labels.values).mean()
  )
  assert summary["classes"] == 2
  assert "equation 6" in summary["statistics"]["calibration_sd"]["definition"]
  assert "ensemble accuracy" not in page_of(summary)


def test_warns_of_swept_hyperparameters_and_shared_seeds():
  results = dataset(
    lr=("run", np.repeat([0.1, 0.2], 20)), momentum=("run", np.full(40, 0.9))
  )
  assert not any("drawn anew" in w for w in summarize(results)["warnings"])
  for source in ("init", "order"):
    results[f"seed_{source}"][1] = 0
  said = " ".join(summarize(results)["warnings"])
  assert "the effect of lr, varied" in said
  assert "39 seeds are drawn anew, of some of which there are several runs" in said
  # The mean of a seed with two runs counts once.
  accuracies = results.accuracy.values
  means = np.r_[accuracies[:2].mean(), accuracies[2:]]
  mean = summarize(results)["statistics"]["mean_accuracy"]
  assert mean["value"] == pytest.approx(means.mean())
  assert mean["se"] == pytest.approx(means.std(ddof=1) / 39**0.5)
  started = summarize(results.assign_coords(start=("run", np.arange(40) // 2)))
  assert started["varied"] == ["init", "order", "start"]


def test_summaries_are_json_without_nan():
  for runs in (1, 2, 40):
    summary = summarize(dataset(runs=runs))
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_every_statistic_has_its_definition_and_reading():
  for name, s in usual()["statistics"].items():
    known = {*words_of("group label value se low high over unit definition reading")}
    assert set(s) - {"p_value", "by_chance"} == known, name
    assert s["unit"] in ("fraction", "variance", "correlation", "number", "count", "p")
    assert s["reading"].endswith(".")
    assert "{" not in s["reading"] + s["definition"]
    if name not in ("mean_accuracy", "min_accuracy", "max_accuracy"):
      source = r"(Jordan 2024|Jiang 2022|Bouthillier 2021), (section|equation|theorem|figure)|equation 3 \("
      assert re.search(source, s["definition"]), name


def test_no_run_and_only_diverged_runs_are_mistakes():
  with pytest.raises(
    UserError, match="no run is finished: start `vmapseeds train` again"
  ):
    summarize(dataset().isel(run=slice(0)))
  results = dataset(runs=2)
  results.diverged[:] = True
  with pytest.raises(UserError, match="all 2 finished runs diverged"):
    summarize(results)


SHOWN = {
  (0.97531, 0.00041, "fraction"): "97.531 ± 0.041 %",
  (0.9, 0.02, "fraction"): "90.0 ± 2.0 %",
  (0.5, None, "fraction"): "50.00 %",
  (0.00123, None, "fraction"): "0.123 %",
  (-1.2e-6, 3.4e-6, "variance"): "-0.012 ± 0.034 %²",
  (0.25, None, "correlation"): "0.250",
  (0.0195, 0.0076, "number"): "0.0195 ± 0.0076",
  (3394.0, None, "count"): "3,394",
  (0.62, None, "count"): "0.62",
  (0.0312, None, "p"): "0.031",
  (1e-12, None, "p"): "< 0.0001",
  (0.0, 0.0, "fraction"): "0.00 %",
  # Rounding of equal numbers is no error.
  (0.09, 1.4e-17, "fraction"): "9.00 %",
  (1.9e-34, 2.2e-34, "variance"): "0.00 %²",
  (2.5, 4.4e-16, "nats"): "2.50 nats",
  # Small errors that are no rounding.
  (0.5, 1e-9, "fraction"): "50.00000000 ± 0.00000010 %",
  (3e-12, 1e-12, "nats"): "3.0e-12 ± 1.0e-12 nats",
  (None, None, "variance"): "n/a",
}


@pytest.mark.parametrize(("given", "text"), SHOWN.items())
def test_show(given, text):
  assert show(*given) == text


# The page and the folder.


class Page(html.parser.HTMLParser):
  """Everything a page would load, and its text."""

  def __init__(self, page):
    super().__init__()
    self.loads, self.links, self.anchors, self.ids = [], [], [], []
    self.tags, self.text = Counter(), ""
    self.feed(page)

  def handle_starttag(self, tag, attrs):
    self.tags[tag] += 1
    for name, value in attrs:
      if tag == "a" and name == "href" and value.startswith("#"):
        self.anchors.append(value[1:])
      elif tag == "a" and name == "href":
        self.links.append(value)
      elif name in ("src", "href", "srcset", "data", "action"):
        self.loads.append(value)
      elif name == "id":
        self.ids.append(value)

  def handle_data(self, data):
    self.text += data


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  path = tmp_path_factory.mktemp("results") / "untrained"
  vs.train(
    vs.recipe("digits_cnn", epochs=0, width=0.25),
    vs.Runs.independent(4),
    path,
    progress=False,
  )
  return path


@pytest.fixture(scope="module")
def reported(folder):
  console = Console(width=80, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
  report = vs.report([folder, str(folder)])
  report.save()
  report.print(console)
  console.file.close()
  return list(report), console.export_text()


@pytest.mark.slow
def test_report_writes_what_it_returns(folder, reported):
  summaries, _ = reported
  assert (
    summaries[0]
    == summaries[1]
    == json.loads((folder / "report" / "report.json").read_text())
  )
  results = vs.open_results(folder)
  predictions, labels = results.predictions.values, results.labels.values
  for name, value in by_hand(predictions, labels, 10).items():
    assert values(summaries[0])[name] == pytest.approx(value, rel=1e-6), name
  assert summaries[0]["versions"]["jax"] == json.loads(results.attrs["versions"])["jax"]


@pytest.mark.slow
def test_terminal_tables(folder, reported):
  summaries, text = reported
  # Prose is wrapped where there is a terminal.
  of_tables = [line.rstrip() for line in text.splitlines() if {"│", "┃"} & set(line)]
  assert of_tables
  assert [line for line in of_tables if len(line) > 80] == []
  for s in summaries[0]["statistics"].values():
    mark = r"\* ?" if s["over"] == "examples" else r"[^*]*"
    value = re.escape(show(s["value"], s["se"], s["unit"]))
    assert re.search(
      rf"{re.escape(s['label'])} +│ +{value} │ +{mark}[-0-9. to%²]* │", text
    )
  assert (
    text.count(
      "± and intervals: what other runs would give; *: these runs on other examples"
    )
    == 2
  )
  assert text.count("digits_cnn, 0 epochs: 4 runs, 797 examples of test") == 2
  assert "side by side" in text
  assert len(re.findall("untrained +│ +4 │", text)) == 2
  assert "With only 4 runs" in text


def test_page_is_whole_and_loads_nothing(folder, reported):
  raw = (folder / "report" / "report.html").read_text("utf-8")
  page = Page(raw)
  assert page.tags["img"] == 5 + raw.count('<img class="picture"')
  figures = [source for source in page.loads if "svg" in source[:20]]
  assert len(figures) == 5
  assert all(source.startswith("data:image/") for source in page.loads)
  assert page.links == ["report.json", "report.csv"]
  assert page.anchors == page.ids
  assert not re.search(
    r"https?:|@import|url\((?!\$\{tiles)|<link|fetch\(|import\(", raw
  )
  assert "color-scheme: light dark" in raw
  assert 'name="viewport"' in raw
  text = page.text.replace("\N{NO-BREAK SPACE}", " ")
  summary = reported[0][0]
  for s in summary["statistics"].values():
    for part in (
      s["label"],
      s["definition"],
      s["reading"],
      show(s["value"], s["se"], s["unit"]),
    ):
      assert part in text
  for part in (
    *summary["warnings"],
    summary["summary"],
    "4 runs",
    "batch_size",
    "lane width",
    summary["lowering"],
  ):
    assert part in text
  own = re.sub(r"<(style|script)\b.*?</\1>", "", raw, flags=re.S)
  assert not re.search(r"[{}]", own)


def test_figures_are_images(folder, reported):
  found = sorted(p.name for p in (folder / "report").glob("*.svg"))
  expected = words_of(
    "accuracy_distribution calibration disagreement error_rates split"
  )
  assert found == [f"{name}.svg" for name in expected]
  assert all((folder / "report" / f).read_bytes().startswith(b"<?xml") for f in found)


def equal_accuracies(results):
  results["predictions"][:] = (results.labels.values + np.eye(2, 61, dtype=int)) % 3


def all_right(results):
  results["predictions"][:] = results.labels.values


def one_class(results):
  results["labels"][:], results["predictions"][:] = 0, 0
  results.attrs["num_classes"] = 1


@pytest.mark.parametrize("made", [equal_accuracies, all_right, one_class])
def test_a_page_of_runs_that_do_not_differ(made):
  results = dataset(runs=2)
  made(results)
  summary = summarize(results)
  mean = summary["statistics"]["mean_accuracy"]
  assert (mean["se"], summary["statistics"]["sd_accuracy"]["value"]) == (0, 0)
  text = Page(page_of(summary)).text.replace("\N{NO-BREAK SPACE}", " ")
  assert show(mean["value"], 0, "fraction") in text


def test_names_are_escaped_in_the_page():
  results = dataset()
  settings = json.loads(results.attrs["recipe"]) | {"dataset": "<b>&.npz"}
  results.attrs["recipe"] = json.dumps(settings)
  page = page_of(summarize(results))
  assert "<b>" not in page
  assert "&lt;b&gt;&amp;.npz" in page


def test_results_open_as_before_beside_a_report(folder, reported):
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    assert vs.open_results(folder).sizes["run"] == 4
    assert xr.open_zarr(folder, group="test").sizes["example"] == 797


def test_results_are_extended_beside_a_report(folder, reported, tmp_path):
  path = tmp_path / "extended"
  shutil.copytree(folder, path)
  runs = vs.Runs.independent(5)
  with warnings.catch_warnings():
    warnings.simplefilter("error", ZarrUserWarning)
    results = vs.train(
      vs.recipe("digits_cnn", epochs=0, width=0.25), runs, path, progress=False
    )
  assert results.sizes["run"] == 5
  assert (path / "report" / "report.json").exists()


def test_unfinished_results_are_a_mistake_that_writes_nothing(folder, tmp_path):
  empty = tmp_path / "empty"
  shutil.copytree(folder, empty, ignore=shutil.ignore_patterns("report"))
  for record in (empty / "blocks").glob("*.json"):
    record.unlink()
  with pytest.raises(UserError, match=r"empty: no run is finished"):
    vs.report([empty])
  assert not (empty / "report").exists()
  absent = "nowhere is not a results folder, it does not exist: give a results folder"
  with pytest.raises(UserError, match=absent):
    vs.report(folder, tmp_path / "nowhere")
  with pytest.raises(UserError, match=r"unknown test set 'tset'.*did you mean 'test'"):
    vs.report([folder], test_set="tset")


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_a_mistake(folder, tmp_path, undrawn):
  full = tmp_path / "full"
  shutil.copytree(folder, full, ignore=shutil.ignore_patterns("report"))
  (full / "report").write_text("in the way")
  with pytest.raises(
    UserError,
    match=r"report cannot be written .*: make it writable, or give another .* out=",
  ):
    vs.report([full]).save()
  page = vs.report(full).save(tmp_path / "elsewhere")
  assert page == tmp_path / "elsewhere" / "report.html"
  assert json.loads(page.with_suffix(".json").read_text())["runs"] == 4


# Groups of runs, and several folders.


def saved(path, results):
  """A results folder of what `dataset` made, as `vs.train` would leave it."""
  columns = {f"seed_{s}": np.zeros(results.sizes["run"], np.uint32) for s in SOURCES}
  columns |= {name: column.values for name, column in results.coords.items()}
  outcomes = {name: results[name].values for name in ("accuracy", "diverged")}
  attributes = {
    **results.attrs,
    "test_sets": ["test"],
    "sampling": None,
    "precision": "float32",
    "data_digest": "",
  }
  return folders.folder(
    path,
    attributes,
    block_runs=64,
    columns=columns,
    labels=results.labels.values,
    predictions=results.predictions.values,
    **outcomes,
  )


LR = [0.01, 0.02, 0.05, 1e5]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
  """Runs at four learning rates. Accuracies differ more between rates than within one;
  at the last rate all diverge.
  """
  lr = np.tile(np.float64(LR), 12)
  seeds = {
    f"seed_{s}": (
      "run",
      np.repeat(np.arange(12, dtype=np.uint32), 4),
      {"role": "seed", "source": s},
    )
    for s in SOURCES
  }
  momentum = ("run", np.full(48, 0.9))
  results = dataset(48, spread=0.03, lr=("run", lr), momentum=momentum, **seeds)
  for i, value in enumerate(LR[:2]):
    results["predictions"][lr == value, : 20 + 20 * i] = results.labels.values[
      : 20 + 20 * i
    ]
  results["accuracy"] = (results.predictions == results.labels).mean("example")
  results["diverged"][:] = lr == 1e5
  return saved(tmp_path_factory.mktemp("swept") / "sweep", results)


@pytest.fixture
def undrawn(monkeypatch):
  """Reports do not draw their figures."""
  monkeypatch.setattr(pages, "_save_figure", lambda *args: "data:")


def saved_report(*args, out=None, **options):
  """What is reported and printed, after its pages were saved."""
  console = Console(width=80, record=True, file=io.StringIO())
  report = vs.report(*args, **options)
  report.save(out)
  report.print(console)
  return list(report), console.export_text()


@pytest.mark.slow
def test_swept_values_are_reported_apart(sweep, tmp_path, undrawn):
  summaries, text = saved_report(sweep, out=tmp_path / "out")
  results = vs.open_results(sweep)
  assert [s["values"] for s in summaries] == [{"lr": value} for value in LR[:3]]
  for summary in summaries:
    value = summary["values"]["lr"]
    of = results.isel(run=np.flatnonzero(np.isclose(results.lr, value)))
    assert values(summary) == values(summarize(of))
    assert summary["settings"]["lr"] == value
    page = Path(tmp_path / "out" / f"lr={value}" / "report.html")
    assert f"lr={value}" in Page(page.read_text()).text
    sd = show(values(summary)["distribution_sd"], None, "fraction").removesuffix(" %")
    assert re.search(rf"│ lr={value} +│ +12 │.* {sd} │", text)
  pooled = summarize(results)
  assert values(pooled)["sd_accuracy"] > 1.5 * max(
    values(s)["sd_accuracy"] for s in summaries
  )
  said = show(values(pooled)["sd_accuracy"], None, "fraction").removesuffix(" %")
  overview = Page((tmp_path / "out" / "report.html").read_text("utf-8"))
  assert said not in text
  assert said not in overview.text
  assert "note: lr=100000: all 12 runs diverged." in text
  assert "lr=100000: all 12 runs diverged." in overview.text
  # Two of all values, the response curve, and the means beside each other.
  assert overview.tags["img"] == 4
  groups = [f"lr%3D{value}/report.html" for value in LR[:3]]
  assert overview.links == [*groups, "report.json", "report.csv"]
  of_group = Page((tmp_path / "out" / "lr=0.02" / "report.html").read_text("utf-8"))
  assert of_group.links == ["../report.html", "report.json", "report.csv"]
  assert (
    json.loads((tmp_path / "out" / "report.json").read_text())["reports"] == summaries
  )
  assert not (sweep / "report").exists()


@pytest.mark.slow
def test_runs_are_chosen_and_pooled_only_when_asked(sweep, tmp_path, undrawn):
  (chosen,), text = saved_report(
    sweep, where={"lr": 0.02, "seed_init": [3, 4, 5]}, out=tmp_path
  )
  assert (chosen["values"], chosen["runs"], chosen["pooled"]) == ({"lr": 0.02}, 3, [])
  assert "digits_cnn, 16 epochs, lr=0.02: 3 runs" in text
  assert (tmp_path / "lr=0.02" / "report.html").exists()
  (pooled,), text = saved_report(
    sweep, where={"lr": LR[:2]}, by="momentum", out=tmp_path
  )
  assert (pooled["values"], pooled["runs"], pooled["pooled"]) == (
    {"momentum": 0.9},
    24,
    ["lr"],
  )
  assert "digits_cnn, 16 epochs, momentum=0.9, lr pooled: 24 runs" in text
  assert "includes the effect of lr" in text
  assert pooled["settings"]["lr"] == LR[:2]
  nested, _ = saved_report(
    sweep,
    where={"lr": 0.01, "seed_init": [3, 4, 7]},
    by=["seed_init"],
    out=tmp_path,
  )
  assert [s["values"] for s in nested] == [
    {"seed_init": seed, "lr": 0.01} for seed in (3, 4, 7)
  ]


def test_the_command_chooses_runs(sweep, tmp_path, capsys):
  cli.main(
    [
      "report",
      str(sweep),
      *words_of("--where lr=0.02,0.05 --where seed_init=3 --out"),
      str(tmp_path),
    ]
  )
  assert re.findall(
    r"│ seed_init=3 +│ +(\d+) │.*\n│ (lr=\S+) ", capsys.readouterr().out
  ) == [("1", "lr=0.02"), ("1", "lr=0.05")]
  with pytest.raises(SystemExit):
    cli.main(["report", str(sweep), "--where", "lr"])
  assert capsys.readouterr().err.startswith(
    "error: --where lr: write COLUMN=NUMBER, e.g. --where lr=0.02; "
  )


@pytest.mark.parametrize(
  ("options", "message"),
  [
    (
      {"where": {"rl": 1}},
      r"sweep: unknown column 'rl': choose one of lr, momentum, .*seed_data$",
    ),
    (
      {"where": {"lr": 0.03}},
      r"sweep: no run has lr=0\.03: lr takes 0\.01, 0\.02, 0\.05, 100000$",
    ),
    (
      {"where": {"seed_init": 12}},
      "seed_init takes 0, 1, 2, 3, 4, 5, 6, 7 and 4 more values",
    ),
    ({"where": {"lr": "fast"}}, r"no run has lr=fast: lr takes 0\.01, 0\.02"),
    ({"by": ["momentun"]}, "unknown column 'momentun'.* did you mean 'momentum'"),
    ({"by": ["accuracy"]}, "unknown column 'accuracy'"),
    ({"by": 5}, "unknown column '5': choose one of lr,"),
    (
      {"where": "lr=0.02"},
      "sweep: the values wanted are 'lr=0.02': give column -> value or values, such as {'lr': 0.02}",
    ),
    ({"where": {"lr": []}}, r"lr is \[\]: give a value or several"),
    (
      {"where": {"lr": 1e5}},
      "sweep: all 12 finished runs diverged: train with a lower lr",
    ),
  ],
)
def test_mistakes_in_choosing_runs(options, message, sweep):
  with pytest.raises(UserError, match=message):
    vs.report(sweep, **options)


def test_the_table_side_by_side_cuts_no_name_and_no_number():
  section = {**summarize(dataset(3)), "runs": 10_000}
  for name in section["headline"].values():
    section["statistics"][name] = {"value": 0.12345, "unit": "fraction"}
  console = Console(width=80, record=True, file=io.StringIO())
  part = Part("weight_decay=0.0005, momentum=0.95", "", [], section)
  table = short_side_by_side("test accuracy", [OutputRow(part, None, section)])
  console.print(rendering.terminal_table(table))
  lines = console.export_text().splitlines()
  assert all(len(line.rstrip()) <= 80 for line in lines)
  assert (
    "".join(line.split("│")[1].strip() for line in lines if "│" in line)
    == "weight_decay=0.0005momentum=0.95"
  )
  assert sum(line.count(" 12.35 ") for line in lines) == 6
  assert "ensemble" in "".join(lines)


def test_predictions_are_counted_once_and_not_copied(monkeypatch):
  results, found, count = dataset(8), [], measured_runs.sparse_votes
  monkeypatch.setattr(
    measured_runs, "sparse_votes", lambda *args: found.append(args[0]) or count(*args)
  )
  (part,), _ = results_page._parts(
    group_runs(results), "", "r", "test", ExampleInputs()
  )
  assert "disagreement" in figures_of_output(part.measured[0], part.summary)
  (predictions,) = found
  assert np.shares_memory(predictions, results.predictions.values)


def test_imported_runs_have_no_columns(tmp_path):
  labels = np.arange(6) % 2
  vs.import_runs(
    tmp_path / "i",
    predictions=np.stack([labels, 1 - labels]),
    labels=labels,
    progress=False,
  )
  with pytest.raises(
    UserError,
    match="unknown column 'lr': these runs have no runs table, as they were imported",
  ):
    vs.report(tmp_path / "i", where={"lr": 0.1})


@pytest.mark.slow
def test_folders_side_by_side_are_written(sweep, tmp_path):
  a = saved(tmp_path / "x" / "a", dataset(5))
  b = saved(tmp_path / "y" / "a", dataset(2, seed=1))
  summaries, text = saved_report(a, b)
  assert summaries == list(vs.report([a, b]))
  top = a / "report" / "side_by_side"
  written = json.loads((top / "report.json").read_text())
  assert (
    written["reports"]
    == summaries
    == [json.loads((f / "report" / "report.json").read_text()) for f in (a, b)]
  )
  assert "With only 2 runs" in " ".join(written["warnings"])
  page = Page((top / "report.html").read_text("utf-8"))
  for link, folder in zip(page.links[:2], (a, b), strict=True):
    assert (top / link).resolve() == folder / "report" / "report.html"
  for s in summaries:
    accuracy = s["statistics"]["mean_accuracy"]
    assert show(accuracy["value"], accuracy["se"], "fraction") in page.text.replace(
      "\N{NO-BREAK SPACE}", " "
    )
  assert [name for name in ("x/a", "y/a") if re.search(rf"│ {name} +│", text)] == [
    "x/a",
    "y/a",
  ]
  assert (top / "standard_deviations.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.slow
def test_several_folders_go_where_they_are_told(sweep, tmp_path, undrawn):
  a, b = (saved(tmp_path / parent / "a", dataset(2)) for parent in "xy")
  before = sorted(p for f in (a, b, sweep) for p in f.rglob("*"))
  summaries, text = saved_report([a, b, sweep], out=tmp_path / "out")
  assert len(summaries) == 5
  assert sorted(p for f in (a, b, sweep) for p in f.rglob("*")) == before
  # One path is the end of the other.
  inner = saved(tmp_path / "in" / "/".join(a.parts[1:]), dataset(2))
  saved_report([inner, a], out=tmp_path / "ends")
  assert not (a / "report.html").exists()
  assert (tmp_path / "ends" / "/".join(a.parts[1:]) / "report.html").exists()
  written = {
    str(p.relative_to(tmp_path / "out").parent)
    for p in (tmp_path / "out").rglob("report.html")
  }
  ends = ("x/a", "y/a", "/".join(sweep.parts[-2:]))
  assert written == {".", *ends, *(f"{ends[2]}/lr={value}" for value in LR[:3])}


@pytest.mark.slow
def test_a_sweep_says_which_value_is_best_and_how_sure(sweep, tmp_path, undrawn):
  _, text = saved_report(sweep, out=tmp_path)
  results = vs.open_results(sweep)
  columns = [results.accuracy.values[results.lr == value] for value in LR[:3]]
  expected = stats.probability_of_best(*columns)
  record = json.loads((tmp_path / "report.json").read_text())
  found = record["probability_of_best"]["predictions"]
  assert [*found] == ["lr=0.01", "lr=0.02", "lr=0.05"]
  np.testing.assert_allclose([*found.values()], expected)
  best = [*found][expected.argmax()]
  means = {value: column.mean() for value, column in zip(found, columns, strict=True)}
  assert best == max(means, key=means.get)
  assert f"Best is {best}, by its mean" in text
  assert "(paired by 12 seeds)" in text
  page = Page((tmp_path / "report.html").read_text("utf-8"))
  assert f"Best is {best}" in page.text
  assert "Test accuracy against lr" in page.text
  # Groups of seeds are no values to choose, and pooled ones have seeds several times.
  vs.report(sweep, by=["seed_init"]).save(tmp_path / "seeds")
  record = json.loads((tmp_path / "seeds" / "report.json").read_text())
  assert record["probability_of_best"] == {}


def test_outcomes_of_lower_scores_and_of_single_runs():
  def outcome(value, scores, seeds, **about):
    attrs = {"role": "score", "higher_is_better": False} | about
    columns = {"seed_init": ("run", seeds, {"role": "seed", "source": "init"})}
    results = xr.Dataset({"cost": ("run", scores, attrs)}, columns)
    runs = measure_runs(results, "cost")
    return sweeps.Outcome({"lr": value}, runs, {"value": runs.values.mean()})

  low, high = [1.0, 1.5, 1.2], [3.0, 3.5, 3.2]
  best = sweeps.best_of([outcome(1, high, [0, 1, 2]), outcome(2, low, [2, 0, 1])])
  assert (best.leaders, best.pairs) == ([1], 3)
  best = sweeps.best_of([outcome(1, high, [0, 1, 2]), outcome(2, low, [7, 8, 9])])
  assert (best.leaders, best.pairs) == ([1], 0)
  # The best mean leads, whatever the probabilities are: these are shared by the best.
  costs = [[0.0, 0.0, 0.0]] * 5 + [[0.8, 0.0, 0.0]]
  outcomes = [outcome(lr, cost, [0, 1, 2]) for lr, cost in enumerate(costs)]
  best = sweeps.best_of(outcomes)
  assert np.argmax(best.probabilities) == 5
  assert best.leaders == [0, 1, 2, 3, 4]
  assert sweeps.describe_best(outcomes, best).startswith(
    "The best mean cost is 0.00, of 5 combinations alike (lr=0; lr=1; lr=2; lr=3; lr=4)"
  )
  assert sweeps.best_of([outcome(1, [1.0], [0]), outcome(2, low, [0, 1, 2])]) is None
  assert not sweeps.is_sweep([{}])
  assert not sweeps.is_sweep([{"lr": 1}])
  assert sweeps.is_sweep([{"lr": 1}, {"lr": 2}])


def crossed(first=4, second=3, **columns):
  """Runs of each seed of init with each of order, which augment varies with."""
  init = np.repeat(np.arange(first), second)
  order = np.tile(np.arange(second), first)
  results = dataset(first * second, **columns)
  for source, seeds in (("init", init), ("order", order), ("augment", order + 5)):
    about = {"role": "seed", "source": source}
    results = results.assign_coords(
      {f"seed_{source}": ("run", seeds.astype(np.uint32), about)}
    )
  return results


def test_the_variance_of_crossed_runs_is_taken_apart(tmp_path, undrawn):
  results = crossed()
  summary = summarize(results)
  table = results.accuracy.values.reshape(4, 3)

  def expected_of(table):
    first, second = np.indices(table.shape).reshape(2, -1)
    return stats.design(table.ravel(), {"first": first, "second": second})

  expected = expected_of(table).components()
  found = summary["sources"]
  assert found["names"] == ["init", "order and augment"]
  assert found["seeds"] == [4, 3]
  variances = [component.variance for component in expected]
  np.testing.assert_allclose(found["variance"], variances, atol=1e-12)
  # No accuracies vary more than 0 and 1 do.
  high = [min(component.high, 0.25) for component in expected]
  np.testing.assert_allclose(found["high"], high)
  assert found["of"] == ["init", "order and augment", "init × order and augment"]
  said = (
    "4 seeds of init and 3 seeds of order and augment are drawn anew, each with each"
  )
  assert any(said in warning for warning in summary["warnings"])
  # The mean's error is that of the design, and others are not known.
  mean, sd = (summary["statistics"][f"{name}_accuracy"] for name in ("mean", "sd"))
  assert mean["se"] == pytest.approx(float(expected_of(table).mean().se))
  assert sd["se"] is None
  assert sd["low"] is None
  # A seed whose run diverged is left out.
  results["diverged"][0] = True
  found = summarize(results)["sources"]
  assert found["seeds"] == [3, 3]
  np.testing.assert_allclose(
    found["variance"],
    [component.variance for component in expected_of(table[1:]).components()],
    atol=1e-12,
  )
  results["diverged"][:3] = False
  _, text = saved_report(saved(tmp_path / "r", results))
  assert "Variance between runs by source" in text
  assert "×" in text
  independent = dataset(12)
  for other in (independent, crossed().isel(run=[0, 1, 3, 5, 8]), crossed(12, 1)):
    assert summarize(other)["sources"] is None
