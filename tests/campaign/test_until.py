"""Going on until an interval is narrow enough."""

import numpy as np
import pytest
import xarray as xr

import vmapseeds as vs
from vmapseeds.campaign import until
from vmapseeds.campaign.until import NARROWED, Until
from vmapseeds.errors import UserError
from vmapseeds.reports.summaries import summarize

ACCURACY = Until("mean_accuracy", True, 0.1)


@pytest.mark.parametrize(
  ("text", "meant"),
  [
    ("distribution_variance rel 10%", ("distribution_variance", True, 0.1)),
    ("  sd_accuracy rel 0.25", ("sd_accuracy", True, 0.25)),
    ("mean_accuracy abs 5e-4", ("mean_accuracy", False, 5e-4)),
    ("mean_accuracy  abs .02 %", ("mean_accuracy", False, 2e-4)),
  ],
)
def test_what_is_understood(text, meant):
  found = Until.parse(text)
  assert (found.statistic, found.relative) == meant[:2]
  assert found.reach == pytest.approx(meant[2])


@pytest.mark.parametrize(
  ("text", "said"),
  [
    ("", "write STATISTIC rel X%"),
    ("distribution_variance 10%", "write STATISTIC rel X%"),
    ("distribution_variance rel -10%", "'-10' is no number above 0"),
    ("distribution_variance rel 0", "no number above 0"),
    ("distribution_variance rel 1e", "'1e' is no number above 0"),
    ("distribution_variances rel 10%", "did you mean 'distribution_variance'"),
    ("max_accuracy rel 10%", "unknown statistic 'max_accuracy'"),
  ],
)
def test_what_is_not(text, said):
  with pytest.raises(UserError, match=said):
    Until.parse(text)


def test_how_far_it_is():
  found = {"value": -2.0, "low": -2.6, "high": -1.8}
  relative = Until("distribution_variance", True, 0.1)
  assert relative.reached(found) == pytest.approx(2)
  assert Until("distribution_variance", False, 0.8).reached(found) == pytest.approx(0.5)
  assert relative.reached({**found, "value": 0.0}) == np.inf
  assert relative.reached({"value": None, "low": None, "high": None}) == np.inf
  assert relative.reached({**found, "low": None, "high": None}) == np.inf


def results_of(predictions, labels, classes=3, diverged=()):
  runs = len(predictions)
  diverged = np.isin(np.arange(runs), diverged)
  of_label = ("run", "example")[-np.ndim(labels) :]
  return xr.Dataset(
    {
      "predictions": (
        ("run", "example"),
        predictions,
        {"role": "class", "labels": "labels", "num_classes": classes},
      ),
      "labels": (of_label, labels),
      "diverged": ("run", diverged),
      "accuracy": ("run", (predictions == labels).mean(axis=1)),
      "seed_init": ("run", np.arange(runs), {"role": "seed", "source": "init"}),
    },
    attrs={
      "num_classes": classes,
      "recipe": '{"name": "of none"}',
      "device_kind": "",
      "lane_width": 1,
      "lowering": "",
      "versions": "{}",
    },
  )


@pytest.fixture(scope="module")
def predicted():
  rng = np.random.default_rng(0)
  labels = rng.integers(0, 3, 200).astype(np.int8)
  skill = rng.uniform(0.3, 0.9, (12, 1))
  return np.where(
    rng.random((12, 200)) < skill, labels, rng.integers(0, 3, (12, 200))
  ).astype(np.int8), labels


@pytest.fixture(scope="module")
def reported(predicted):
  return summarize(results_of(*predicted))["statistics"]


@pytest.mark.parametrize("name", sorted(NARROWED["class"]))
def test_numbers_are_those_of_the_report(name, predicted, reported):
  predictions, labels = predicted
  worst = np.full((1, 200), -1, np.int8)
  one_diverged = results_of(np.concatenate([predictions, worst]), labels, diverged=[12])
  assert until.measure_statistic(one_diverged, Until(name, True, 1)) == reported[name]
  for runs in (1, 2):
    rule = Until(name, True, 1e-9)
    few = until.measure_statistic(results_of(predictions[:runs], labels), rule)
    assert rule.reached(few) > 1


def test_runs_of_which_nothing_can_be_said(predicted):
  predictions, labels = predicted
  with pytest.raises(
    UserError, match="all 12 finished runs diverged: train with a lower lr"
  ):
    until.measure_statistic(
      results_of(predictions, labels, diverged=range(12)), ACCURACY
    )
  each = results_of(predictions, np.stack([labels] * 6 + [labels[::-1]] * 6))
  until.measure_statistic(each, ACCURACY)
  with pytest.raises(
    UserError,
    match=r"--until gde_gap: these runs have labels of their own; choose one of mean_acc",
  ):
    until.measure_statistic(each, Until("gde_gap", True, 0.1))


@pytest.fixture
def train(tmp_path):
  def train(text, most=60, first=3, progress=False):
    recipe = vs.recipe("digits_cnn", epochs=0, width=0.25)
    runs = vs.Runs.independent(most)
    return until.train_until(
      recipe,
      runs,
      tmp_path / "out",
      Until.parse(text),
      first=first,
      progress=progress,
      lane_width=1,
    )

  return train


@pytest.mark.slow
def test_trains_until_the_interval_is_narrow_and_no_more(train, tmp_path, capsys):
  results = train("sd_accuracy rel 50%")
  runs = results.sizes["run"]
  assert 12 < runs < 60
  statistic = summarize(results)["statistics"]["sd_accuracy"]
  assert (statistic["high"] - statistic["low"]) / 2 <= 0.5 * statistic["value"]
  before = summarize(results.isel(run=slice(12)))["statistics"]["sd_accuracy"]
  assert (before["high"] - before["low"]) / 2 > 0.5 * before["value"]
  assert train("sd_accuracy rel 50%").sizes["run"] == runs
  # Runs that others have trained beyond this number do not count.
  recipe = vs.recipe("digits_cnn", epochs=0, width=0.25)
  vs.train(recipe, vs.Runs.independent(runs + 5), tmp_path / "out", progress=False)
  train("sd_accuracy rel 50%", progress=True)
  assert f"\n{runs} runs: " in capsys.readouterr().err


@pytest.mark.slow
def test_stops_at_the_most(train):
  assert train("mean_accuracy abs 1e-9", most=5).sizes["run"] == 5
