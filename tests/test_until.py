"""Going on until an interval is narrow enough."""

import numpy as np
import pytest

import vmapseeds as vs
from vmapseeds.campaign import until
from vmapseeds.campaign.until import Until
from vmapseeds.mistakes import Mistake
from vmapseeds.reports.summary import summarize


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
  with pytest.raises(Mistake, match=said):
    Until.parse(text)


def test_how_far_it_is():
  of = {"value": -2.0, "low": -2.6, "high": -1.8}
  assert Until("distribution_variance", True, 0.1).reached(of) == pytest.approx(2)
  assert Until("distribution_variance", False, 0.8).reached(of) == pytest.approx(0.5)
  assert Until("distribution_variance", True, 0.1).reached(of | {"value": 0.0}) == np.inf
  assert Until("distribution_variance", True, 0.1).reached({"value": None, "low": None, "high": None}) == np.inf


@pytest.fixture
def train(tmp_path):
  def train(text, most=60, first=3, progress=False):
    recipe = vs.recipe("digits_cnn", epochs=0, width=0.25)
    runs = vs.Runs.independent(most)
    return until.train(recipe, runs, tmp_path / "out", Until.parse(text), first=first, progress=progress, lane_width=1)

  return train


def test_trains_until_the_interval_is_narrow_and_no_more(train, tmp_path, capsys):
  results = train("sd_accuracy rel 50%")
  runs = results.sizes["run"]
  assert 12 < runs < 60
  statistic = summarize(results)["statistics"]["sd_accuracy"]
  assert (statistic["high"] - statistic["low"]) / 2 <= 0.5 * statistic["value"]
  before = summarize(results.isel(run=slice(12)))["statistics"]["sd_accuracy"]
  assert (before["high"] - before["low"]) / 2 > 0.5 * before["value"]
  assert train("sd_accuracy rel 50%").sizes["run"] == runs
  # What others have trained beyond does not count.
  recipe = vs.recipe("digits_cnn", epochs=0, width=0.25)
  vs.train(recipe, vs.Runs.independent(runs + 5), tmp_path / "out", progress=False)
  train("sd_accuracy rel 50%", progress=True)
  assert f"\n{runs} runs: " in capsys.readouterr().err


def test_stops_at_the_most(train):
  assert train("mean_accuracy abs 1e-9", most=5).sizes["run"] == 5
