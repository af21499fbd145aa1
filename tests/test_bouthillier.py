"""The experiment on Bouthillier 2021: one quick run against NumPy, its pieces on made-up accuracies, its mistakes."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
import scipy.stats
from PIL import Image

import vmapseeds as vs
from experiments import common
from experiments.bouthillier2021 import comparison
from vmapseeds import stats

RUNS = common.QUICK_RUNS


@pytest.fixture(scope="module")
def quick(tmp_path_factory) -> Path:
  folder = tmp_path_factory.mktemp("bouthillier")
  flags = ["--quick", "--against", "lr=0.002", "--set", "width=0.25"]
  comparison.main([*flags, "--out", str(folder / "out"), "--campaigns", str(folder / "campaigns")])
  return folder


def stored(quick: Path, lr: float, suffix: str = ""):
  found = [vs.open_results(p) for p in (quick / "campaigns").glob(f"digits_cnn-1epochs-????????-bootstrap{suffix}")]
  (results,) = (r for r in found if json.loads(r.attrs["recipe"])["lr"] == lr)
  return results


def test_numbers_are_those_of_the_stored_runs(quick):
  written = json.loads((quick / "out" / "comparison.json").read_text())
  n = written["numbers"]["1"]
  results = [stored(quick, lr) for lr in (0.05, 0.002)]
  for source in vs.Runs.independent(1).seeds:
    np.testing.assert_array_equal(*(r[f"seed_{source}"].values for r in results))
  a, b = (r.accuracy.values for r in results)
  assert n["runs"] == written["runs"] == RUNS
  np.testing.assert_allclose(n["differences"], a - b)
  assert n["probability"] == pytest.approx(((a > b) + 0.5 * (a == b)).mean())
  assert n["decision"] == "significant and meaningful"  # a learning rate far too small
  np.testing.assert_allclose(n["sd"], [a.std(ddof=1), b.std(ddof=1)])
  assert n["normal"][0] == pytest.approx(scipy.stats.shapiro(a).pvalue)
  assert n["correlation"] == pytest.approx(np.corrcoef(a, b)[0, 1])
  for varied in ("init", "data"):
    results = stored(quick, 0.05, f"-{varied}-of-4")
    others = {"init": "data", "data": "init"}
    assert len(set(results[f"seed_{varied}"].values)) == RUNS
    x = np.array([results.accuracy.values[results[f"seed_{others[varied]}"].values == r] for r in range(4)])
    assert x.shape == (4, 4)
    assert n["biased"][varied]["correlation"] == pytest.approx(stats.average_correlation(x))
    assert n["biased"][varied]["variance"] == pytest.approx(x.var(1, ddof=1).mean())
  assert len(written["campaigns"]) == 4
  assert written["paper"]["against"] == {"lr": 0.002}


def test_files(quick):
  with Image.open(quick / "out" / "comparison.png") as image:
    image.load()
    assert min(image.size) > 300
    assert len(image.convert("L").getcolors()) > 20
  table = (quick / "out" / "comparison.md").read_text()
  assert "29 have 0.834, 16 have" in table
  assert "false negatives at P = 0.75, P(A > B) of 50 | — / 1 | 30 % | figure 6" in table
  assert "not expected to agree, only the pattern is comparable" in table
  assert "B the same with lr=0.002" in table
  assert "nan" not in table


def made_up(runs=30, repetitions=5):
  rng = np.random.default_rng(0)
  shared = rng.normal(0.9, 0.01, runs)
  repeated = rng.normal(0.9, 0.01, (repetitions, 1)) + rng.normal(0, 0.01, (repetitions, 6))
  return (
    shared,
    shared - rng.normal(0.005, 0.01, runs),
    {"init": repeated, "data": repeated - repeated.mean(1)[:, None]},
  )


def test_compute_simulates_with_the_correlations_found():
  a, b, repeated = made_up()
  n = comparison.compute(a, b, repeated, 1000, jax.random.key(1))
  assert n.biased["init"].correlation == pytest.approx(stats.average_correlation(repeated["init"]))
  assert n.biased["init"].worth == pytest.approx(1 / n.biased["init"].correlation)
  left_out = [stats.average_correlation(np.delete(repeated["init"], r, 0)) for r in range(5)]
  assert n.biased["init"].correlation_se == pytest.approx((4 * np.var(left_out)) ** 0.5)
  # Repetitions that agree more than chance has them do: no bias to simulate.
  assert n.biased["data"].correlation < 0
  assert n.biased["data"].worth == np.inf
  np.testing.assert_allclose(n.exact["data"], n.exact["ideal"])
  expected = stats.operating_characteristics(comparison.GRID, n.biased["init"].correlation)
  np.testing.assert_allclose(n.exact["init"], expected)
  for name, exact in n.exact.items():
    np.testing.assert_allclose(n.rates[name].outperforming, exact.outperforming, atol=0.025)
  axes = common.Figure().subplots(1, 4)
  comparison.plot({4: n, 16: n}, axes)
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
  (legend,) = ([text.get_text() for text in ax.get_legend().texts] for ax in axes[:1])
  assert f"init varies: ρ = {n.biased['init'].correlation:.2f}" in legend
  assert sum(p.get_height() for p in axes[3].patches[:-1]) == 30
  rows = comparison.rows_of(4, n)
  assert {row.epochs for row in rows} == {"— / 4"}
  assert next(row.ours for row in rows if row.quantity.startswith("independent") and "training" in row.quantity) == "—"


def test_repetitions_share_all_seeds_but_one():
  table, repetitions = comparison.table_of_runs("data", 400)
  assert (repetitions, len(table), table.sampling) == (20, 400, ("bootstrap", None))
  assert len(set(table.seeds["data"])) == 400
  for source in ("init", "order", "augment", "dropout"):
    np.testing.assert_array_equal(table.seeds[source], np.arange(400) % 20)
  longer, _ = comparison.table_of_runs("data", 440)
  np.testing.assert_array_equal(longer.seeds["init"][:400], table.seeds["init"])


@pytest.mark.parametrize(
  ("flags", "text"),
  [
    (("--against", "lr"), "lr: write FIELD=VALUE"),
    (("--against", "widht=1"), "unknown recipe field 'widht'"),
    (("--against", "lr=0.05"), "--against lr=0.05 changes nothing of digits_cnn"),
    (("--runs", "1"), "--runs is 1"),
    (("--recipe", "nothing"), "unknown recipe 'nothing'"),
  ],
)
def test_mistakes(flags, text, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(vs, "train", lambda *_, **__: pytest.fail("trained"))
  with pytest.raises(SystemExit) as end:
    comparison.main(list(flags))
  assert end.value.code == 2
  out, err = capsys.readouterr()
  assert not out
  assert len(err.splitlines()) == 1
  assert text in err
  assert not list(tmp_path.iterdir())


def test_help_describes_the_flag(capsys, monkeypatch):
  monkeypatch.setenv("COLUMNS", "200")
  with pytest.raises(SystemExit) as end:
    comparison.main(["--help"])
  assert not end.value.code
  text = capsys.readouterr().out
  assert "python -m experiments.bouthillier2021.comparison" in text
  assert "--against FIELD=VALUE" in text.replace("[", "").replace("]", "")
  assert "half the learning rate" in text


@pytest.mark.parametrize("runs", [3, 40])
def test_error_of_a_deviation_is_that_of_the_tensor(runs):
  errors = np.random.default_rng(runs).random((runs, 50)) < 0.3
  errors[0] = False  # a run far from the others
  of_tensor = common.spread(errors).sd_se
  np.testing.assert_allclose(comparison.sd_se(1 - stats.error_rates(errors)), of_tensor, rtol=1e-9)
