"""The study of very many runs, with few: sittings add up, numbers equal loops over
stored runs, lessons hold.
"""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
import scipy.stats

import vmapseeds as vs
from experiments.jordan2024 import lessons, sixty_thousand
from vmapseeds import stats

# Linear, so that it compiles soon.
RECIPE = vs.recipe("linear_cifar10", dataset="digits", batch_size=100, lr=0.02)
OTHER = RECIPE.replace(lr=0.05)
EPOCHS, FIRST, ALL = (0, 1, 2), 24, 40
GALLERY = Path(__file__).parents[2] / "docs" / "gallery" / "sixty_thousand"


def run(folder, *flags, recipe="RECIPE"):
  places = ("--campaigns", str(folder / "campaigns"), "--out", str(folder / "out"))
  sixty_thousand.main(
    [
      "--recipe",
      f"test_sixty_thousand:{recipe}",
      "--epochs",
      *map(str, EPOCHS),
      "--seed-batch",
      "8",
      *places,
      *flags,
    ]
  )


@pytest.mark.parametrize("epochs", [0, 1, 4, 16])
def test_kept_runs_are_of_the_recipe_of_today(epochs):
  kept = GALLERY / f"tallies-digits-{epochs}.npz"
  recipe = vs.recipe("digits_cnn", epochs=epochs)
  assert sixty_thousand.read_sitting(kept, recipe).seeds == (0, 60_000)
  with pytest.raises(vs.UserError, match="has runs of another recipe"):
    sixty_thousand.read_sitting(kept, recipe.replace(lr=0.01))


@pytest.fixture(scope="module")
def sat(tmp_path_factory):
  """A folder of two sittings. Only the tallies of the first are left in it."""
  folder = tmp_path_factory.mktemp("sixty")
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(lessons, "DRAWS", 2)
    with patch.context() as interrupted:
      interrupted.setattr(sixty_thousand, "write_numbers", lambda *_: None)
      run(folder, "--runs", str(FIRST))
    shutil.move(folder / "campaigns", folder / "lost")
    run(folder, "--runs", str(ALL))
  return folder


def wrong(sat, epochs):
  parts = [
    vs.open_results(sat / part / f"digits-{epochs}") for part in ("lost", "campaigns")
  ]
  assert [int(p.seed_init[0]) for p in parts] == [0, FIRST]
  return np.concatenate([p.predictions.values != p.labels.values for p in parts])


@pytest.mark.parametrize("epochs", EPOCHS)
def test_sittings_add_up_to_the_runs_of_one(sat, epochs, tmp_path):
  names = (f"tallies-digits-{epochs}.npz", f"tallies-digits-{epochs}-from{FIRST}.npz")
  recipe = RECIPE.replace(epochs=epochs)
  kept = [sixty_thousand.read_sitting(sat / "out" / name, recipe) for name in names]
  assert [s.seeds for s in kept] == [(0, FIRST), (FIRST, ALL)]
  both = kept[0].tallies + kept[1].tallies
  errors = wrong(sat, epochs)
  results = vs.train(recipe, ALL, tmp_path / "one", seed_batch=8)
  np.testing.assert_array_equal(
    results.predictions.values != results.labels.values, errors
  )
  one = vs.tally(results, pairs=epochs > 0).to_arrays()
  found = both.to_arrays()
  assert set(found) == set(one)
  for name, array in one.items():
    np.testing.assert_array_equal(found[name], array)
  with np.load(sat / "out" / names[0]) as file:
    even, odd, runs = file["half_errors"]
    found = np.zeros((400, 399), int)
    np.add.at(found, (even, odd), runs)
    expected = np.zeros_like(found)
    np.add.at(expected, (errors[:FIRST, ::2].sum(1), errors[:FIRST, 1::2].sum(1)), 1)
    np.testing.assert_array_equal(found, expected)
    assert {"labels", "votes"} <= set(file)


def test_numbers(sat):
  record = json.loads((sat / "out" / "numbers.json").read_text())["lengths"]
  assert list(record) == [f"digits-{epochs}" for epochs in EPOCHS]
  for epochs in EPOCHS:
    n, errors = record[f"digits-{epochs}"], wrong(sat, epochs)
    accuracy, covariance = 1 - errors.mean(1), np.cov(errors.T)
    sittings = n["sittings"]
    assert n["runs"] == ALL
    assert [s["seeds"] for s in sittings] == [[0, FIRST], [FIRST, ALL]]
    assert [s["runs"] for s in sittings] == [FIRST, ALL - FIRST]
    assert {s["recipe"]["epochs"] for s in sittings} == {epochs}
    assert {s["device_kind"] for s in sittings} == {jax.devices()[0].device_kind}
    assert (n["mean"], n["sd"]) == pytest.approx(
      (accuracy.mean(), accuracy.std(ddof=1))
    )
    pairs = (covariance.sum() - np.trace(covariance)) / (797 * 796)
    assert n["distribution_variance"] == pytest.approx(pairs)
    assert n["distribution_variance_interval"] == pytest.approx(
      [*map(float, stats.distribution_variance(errors).interval)]
    )
    assert n["seconds"] > 0
    assert n["epochs"] == epochs
    wrong_of_runs = errors.sum(1)
    assert n["errors"] == np.bincount(wrong_of_runs).tolist()


def test_tables(sat):
  """Every figure and lesson has its table; a row has a cell for each of its heads."""
  record = json.loads((sat / "out" / "numbers.json").read_text())
  titles = [table["title"].partition(":")[0] for table in record["tables"]]
  assert titles[:2] == ["Figure 4", "Figure 14 [13]"]
  assert len(titles) == 8
  for table in record["tables"]:
    assert {len(row) for row in table["rows"]} <= {len(table["head"])}
  assert list(record["shares"]) == list(lessons.CLAIMS)
  assert list(record["coverage"]) == [str(epochs) for epochs in EPOCHS]
  for by_statistic in record["coverage"].values():
    for share, low, high in by_statistic.values():
      assert low <= share <= high
  assert not list((sat / "out").glob("*.png"))
  assert sum(path.stat().st_size for path in (sat / "out").iterdir()) < 2_000_000


def test_nothing_is_trained_where_nothing_lacks(sat, tmp_path, monkeypatch):
  shutil.copytree(sat / "out", tmp_path / "out")
  monkeypatch.setattr(vs, "train", lambda *_, **__: pytest.fail("trained"))
  made = []
  monkeypatch.setattr(
    sixty_thousand, "write_numbers", lambda *given: made.append(given[2])
  )
  run(tmp_path, "--runs", str(ALL))
  assert [[s.seeds for s in sittings] for sittings in made[0].values()] == [
    [(0, FIRST), (FIRST, ALL)]
  ] * 3


def test_runs_of_another_recipe_are_not_added(sat, tmp_path, capsys):
  shutil.copytree(sat / "out", tmp_path / "out")
  with pytest.raises(SystemExit):
    run(tmp_path, recipe="OTHER")
  said = capsys.readouterr().err
  assert "has runs of another recipe: give another folder with --out" in said
  assert not (tmp_path / "campaigns" / "digits-0").exists()


MISTAKES = {
  "one duration": (
    ("--epochs", "0", "4"),
    "--epochs is 0 4: give two or three durations above 0",
  ),
  "too many": (("--epochs", "1", "2", "3", "4"), "give two or three durations"),
  "negative": (("--epochs", "-1", "2"), "-1"),
  "no runs": (("--runs", "1"), "--runs is 1"),
  "no seed batch": (("--seed-batch", "0"), "--seed-batch is 0"),
  "nothing there": (("--no-train",), "there are no runs of digits-"),
  "unknown recipe": (("--recipe", "digits_cn"), "digits_cn"),
}


@pytest.mark.parametrize(("flags", "said"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(flags, said, tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(vs, "train", lambda *_, **__: pytest.fail("trained"))
  with pytest.raises(SystemExit) as end:
    sixty_thousand.main(
      [
        *flags,
        "--campaigns",
        str(tmp_path / "campaigns"),
        "--out",
        str(tmp_path / "out"),
      ]
    )
  assert end.value.code == 2
  err = capsys.readouterr().err
  assert len(err.splitlines()) == 1
  assert said in err


# The lessons, from simulated runs.


def simulated(
  runs: int, common: float, seed: int = 0, pairs: bool = False
) -> tuple[np.ndarray, stats.Tallies]:
  rng = np.random.default_rng(seed)
  errors = rng.random((runs, 40)) < np.linspace(
    0.1, 0.6, 40
  ) + common * rng.standard_normal((runs, 1))
  return errors, stats.tally(errors.astype(int), np.zeros(40, int), 2, pairs=pairs)


def test_intervals_are_those_of_the_errors():
  errors, tallies = simulated(60, 0.1)
  halves = np.stack([errors[:, ::2].sum(1), errors[:, 1::2].sum(1)])
  found = lessons.intervals_of_halves(
    halves, float(tallies.independent_errors_variance()), 40
  )
  np.testing.assert_allclose(found.mean, stats.mean_over_runs(errors.mean(1)).interval)
  np.testing.assert_allclose(
    found.variance, stats.variance_over_runs(errors.mean(1)).interval
  )
  np.testing.assert_allclose(
    found.distribution, stats.distribution_variance(errors).interval
  )
  np.testing.assert_allclose(
    found.correlation, stats.split_correlation(errors).interval
  )


def test_intervals_hold_the_truth_about_as_often_as_they_say():
  tallies = simulated(6000, 0.1)[1]
  found = lessons.coverage_of_groups(tallies, 50)
  assert found.groups == 120
  assert list(found.held) == ["mean", "variance", "correlation", "gain"]
  for hits in found.held.values():
    assert scipy.stats.binomtest(hits, 120, 0.95).pvalue > 0.001
  reaches = [lessons.half_width(tallies, size) for size in (200, 800, 6000)]
  assert reaches[0] == pytest.approx(2 * reaches[1], rel=0.1)
  low, high = tallies.distribution_variance().interval
  assert reaches[2] == pytest.approx(
    (high - low) / 2 / tallies.distribution_variance(), rel=1e-6
  )


def test_gain_interval_is_that_of_the_runs():
  errors, tallies = simulated(300, 0.1)
  halves = np.stack([errors[:90, ::2].sum(1), errors[:90, 1::2].sum(1)])
  found = stats.top_fraction_gain_bootstrap(errors[:90], key=jax.random.key(0))
  assert lessons.gain_interval(tallies, halves) == (found.low, found.high)


def test_skewness():
  rng = np.random.default_rng(0)
  drawn = rng.exponential(size=(400, 1000)) * 100
  found = lessons.skewness_of_accuracy(drawn[:2].astype(int))
  assert found.skewness == pytest.approx(
    scipy.stats.skew(-drawn[:2].astype(int).sum(0))
  )
  assert found.skewness < -1
  assert found.p_value < 1e-9
  symmetric = [
    lessons.skewness_of_accuracy(rng.integers(0, 50, (2, 300))).p_value
    for _ in range(400)
  ]
  assert scipy.stats.kstest(symmetric, "uniform").pvalue > 0.001
  assert np.isnan(lessons.skewness_of_accuracy(np.full((2, 5), 3)).p_value)


@pytest.mark.parametrize(("skew", "low", "high"), [(0, 0, 0.05), (2, 0.95, 1)])
def test_share_of_groups_that_are_skewed(skew, low, high):
  rng = np.random.default_rng(0)
  wrong = 500 + 10 * rng.standard_normal(40_000)
  wrong += skew * 10 * rng.exponential(size=40_000)
  halves = np.stack([wrong.astype(int), np.zeros(40_000, int)])
  tallies = stats.Tallies.from_counts(np.zeros(2000, int), np.zeros((2000, 2)), halves)
  assert low <= lessons.skewed(tallies, 400, 0.01) <= high


def test_more_runs_show_a_claim_more_often(monkeypatch):
  monkeypatch.setattr(lessons, "DRAWS", 30)
  short, long = simulated(2000, 0.2)[1], simulated(2000, 0.03, seed=1)[1]
  few, many = (lessons.claim_shares(short, long, size) for size in (8, 500))
  assert all(few[claim] < many[claim] for claim in lessons.CLAIMS if few[claim] < 1)
  assert all(share == 1 for share in list(many.values())[:3])
  assert all(
    share < 0.2 for share in list(lessons.claim_shares(long, short, 500).values())[:3]
  )


@pytest.mark.parametrize(
  ("shares", "least"),
  [
    ({8: 0.2, 16: 0.95, 32: 1.0}, 16),
    ({8: 1.0, 16: 0.9, 32: 1.0}, 32),
    ({8: 1.0}, 8),
    ({8: 0.5}, None),
    ({}, None),
  ],
)
def test_smallest(shares, least):
  assert lessons.smallest(shares) == least


def test_sizes():
  assert lessons.group_sizes(31) == []
  assert lessons.group_sizes(70) == [8, 16]


def test_power_of_the_pairs():
  errors, tallies = simulated(4000, 0.15, pairs=True)
  predicted = lessons.pairs_seen(tallies, np.array([100, 4000]))
  right = np.flatnonzero((errors.mean(0) >= 0.3) & (errors.mean(0) <= 0.7))
  for runs, share in zip((100, 4000), predicted, strict=True):
    parts = [errors[start : start + runs, right] for start in range(0, 4000, runs)]
    phi = np.array([np.corrcoef(part.T) for part in parts])[
      :, *np.triu_indices(len(right), 1)
    ]
    assert (runs * phi**2 > 3.841).mean() == pytest.approx(share, abs=0.05)
