"""Tables of scores, as others write them: each is read as the same runs, or refused with
what it may mean. What is said of them is SciPy's and NumPy's.
"""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.stats
from statsmodels.stats.power import TTestPower
from test_cli import run

import vmapseeds as vs

rng = np.random.default_rng(0)
MODELS, SEEDS = ("gat", "gcn", "mlp"), 8
NOISE = rng.normal(size=SEEDS)
RMSE = {
  model: mean + 0.003 * NOISE + 0.002 * rng.normal(size=SEEDS)
  for model, mean in zip(MODELS, (0.45, 0.4735, 0.474), strict=True)
}
LONG = pd.DataFrame(
  [
    {"model": model, "seed": seed, "rmse": RMSE[model][seed], "note": f"a;b {seed}"}
    for model in MODELS
    for seed in range(SEEDS)
  ]
)
ASKED = {"by": "model", "score": "rmse", "lower_is_better": True}


def write(file, text, encoding="utf-8"):
  file.write_bytes(text.encode(encoding))
  return file


TWO = LONG[LONG.model != "mlp"]


def csv(**options):
  return lambda file: TWO.to_csv(file, **({"index": False} | options))


def with_summaries(file):
  summaries = pd.DataFrame(
    {"model": ["gat", "gcn"], "seed": "mean", "rmse": [RMSE["gat"].mean(), 0.5]}
  )
  pd.concat([TWO, summaries, summaries.assign(seed="std")]).to_csv(file, index=False)


def as_texts(file):
  texts = TWO.assign(rmse=[f" {x!r} " for x in TWO.rmse.tolist()])
  texts.to_json(file, orient="records")


def comments_in_percent(file):
  shares = TWO.assign(rmse=[f"{100 * x!r} %" for x in TWO.rmse.tolist()])
  shares.to_csv(file, index=False)


WRITERS = {
  "plain.csv": csv(),
  "index.csv": csv(index=True),
  "marked.csv": csv(encoding="utf-8-sig"),
  "utf16.txt": csv(encoding="utf-16", sep="\t"),
  "commas.csv": csv(sep=";", decimal=","),
  "bars.txt": csv(sep="|"),
  "packed.csv.gz": csv(),
  "quoted.csv": csv(quoting=1),
  "summaries.csv": with_summaries,
  "texts.json": as_texts,
  "percent.csv": comments_in_percent,
  "table.parquet": TWO.to_parquet,
  "table.xlsx": lambda file: TWO.to_excel(file, index=False),
  "lines.jsonl": lambda file: TWO.to_json(file, orient="records", lines=True),
}
FRAMES = {
  "pandas": TWO,
  "polars": pl.DataFrame(TWO.to_dict("list")),
  "index": TWO.set_index(["model", "seed"]),
  "arrow": TWO.convert_dtypes(dtype_backend="pyarrow"),
  "nullable": TWO.convert_dtypes(),
  "category": TWO.astype({"model": "category"}),
  "shuffled": TWO.sample(frac=1, random_state=1),
}


def differences(comparisons):
  return {c.names: float(c.found.difference) for c in comparisons}


def expected_differences():
  # Of performances: positive where the first is better, which has the lower error.
  pairs = [("gat", "gcn"), ("gat", "mlp"), ("gcn", "mlp")]
  return {(a, b): RMSE[b].mean() - RMSE[a].mean() for a, b in pairs}


@pytest.mark.parametrize("name", [*WRITERS, *FRAMES])
def test_every_way_of_writing_is_the_same_runs(name, tmp_path):
  source = FRAMES.get(name, tmp_path / name)
  if name in WRITERS:
    WRITERS[name](source)
  comparison = vs.compare(source, **ASKED)
  difference = RMSE["gcn"].mean() - RMSE["gat"].mean()
  assert comparison.found.difference == pytest.approx(difference, rel=1e-6)
  assert comparison.only.matching == "the same seeds"
  assert "16 runs: 2 models × 8 seeds; score rmse (lower is better)" in str(comparison)


def test_a_verdict_is_that_of_scipy(tmp_path):
  """Two models of 8 seeds: the test that changes the signs of differences, exactly."""
  comparison = vs.compare(TWO, **ASKED)
  exact = scipy.stats.permutation_test(
    (RMSE["gat"], RMSE["gcn"]),
    lambda a, b, axis: (a - b).mean(axis),
    permutation_type="samples",
    n_resamples=np.inf,
  )
  assert comparison.p_value == pytest.approx(exact.pvalue)
  assert comparison.verdict == "better"
  difference = RMSE["gcn"].mean() - RMSE["gat"].mean()
  low, high = scipy.stats.ttest_rel(RMSE["gcn"], RMSE["gat"]).confidence_interval()
  assert f"rmse is lower by {difference:.4f}" in comparison.sentence
  assert comparison.found.low == pytest.approx(low, abs=(high - low) / 5)
  assert comparison.found.high == pytest.approx(high, abs=(high - low) / 5)


def test_repeated_folds_are_corrected_for_their_overlap():
  """Scores of 5 times 10 folds, as scikit-learn's RepeatedKFold gives them. A test set is
  a ninth of a training set, however often the division is repeated.
  """
  repeats, folds = np.indices((5, 10)).reshape(2, -1)
  values = np.random.default_rng(1)
  a = values.normal(0.8, 0.03, 50)
  differences = values.normal(0.01, 0.02, 50)
  parts = [
    pd.DataFrame({"model": name, "repeat": repeats, "fold": folds, "r2": scores})
    for name, scores in (("a", a), ("b", a - differences))
  ]
  comparison = vs.compare(pd.concat(parts), by="model", score="r2")
  se = (differences.var(ddof=1) * (1 / 50 + 1 / 9)) ** 0.5
  t = differences.mean() / se
  assert comparison.found.p_value == pytest.approx(2 * scipy.stats.t.sf(abs(t), 49))
  # A t of 50 independent pairs would be sure of it.
  assert scipy.stats.ttest_1samp(differences, 0).pvalue < 0.01
  assert comparison.verdict == "no difference shown"
  assert "50 folds are drawn anew, with training sets of 9 test sets" in str(comparison)


def test_the_best_mean_leads_and_its_probability_is_beside_it():
  """15 perfect runs against three, one of which is bad: Student's t of the three."""
  three = np.array([0.2, 1, 1])
  frame = pd.DataFrame(
    {
      "model": ["perfect"] * 15 + ["unsteady"] * 3,
      "seed": np.arange(18),
      "score": np.r_[np.ones(15), three],
    }
  )
  text = " ".join(str(vs.report(frame, by="model", score="score")).split())
  t = (1 - three.mean()) / (three.std(ddof=1) / 3**0.5)
  probability = scipy.stats.t.cdf(t, 2)
  assert round(100 * probability) == 79
  assert "Best is model=perfect, by its mean score of 1.00" in text
  assert "has a probability of 79 %" in text


def test_one_model_against_the_others():
  comparisons = vs.compare(LONG, **ASKED, against={"model": "gcn"})
  assert [c.names for c in comparisons] == [("gat", "gcn"), ("mlp", "gcn")]
  wanted = expected_differences()
  found = differences(comparisons)
  assert found["gat", "gcn"] == pytest.approx(wanted["gat", "gcn"])
  assert found["mlp", "gcn"] == pytest.approx(-wanted["gcn", "mlp"])


def test_two_choices_of_rows():
  chosen = {"where": {"model": "gat"}, "against": {"model": "mlp"}}
  comparison = vs.compare(LONG, score="rmse", lower_is_better=True, **chosen)
  assert comparison.only.paired
  assert comparison.found.difference == pytest.approx(
    expected_differences()["gat", "mlp"]
  )


def test_rows_are_chosen_by_columns_that_say_nothing_else():
  both = pd.concat([LONG.assign(part="test"), LONG.assign(part="val", rmse=1.0)])
  comparisons = vs.compare(both, **ASKED, where={"part": "test"})
  assert differences(comparisons) == pytest.approx(expected_differences())
  with pytest.raises(vs.UserError, match="no row has part=train: part takes test, val"):
    vs.compare(both, **ASKED, where={"part": "train"})


def test_a_wide_table():
  wide = pd.DataFrame({"seed": range(SEEDS), **RMSE})
  comparisons = vs.compare(wide, wide=True, score="rmse", lower_is_better=True)
  assert differences(comparisons) == pytest.approx(expected_differences())
  some = vs.compare(wide, wide=["gat", "mlp"], score="rmse", lower_is_better=True)
  assert differences(some).keys() == {("gat", "mlp")}


def test_seeds_that_a_model_lacks_are_left_out():
  lacking = LONG.drop([3, 11]).assign(rmse=lambda x: x.rmse.where(x.index != 5))
  comparisons = vs.compare(lacking, **ASKED)
  pairs = [seed for seed in range(SEEDS) if seed not in (3, 5)]
  a, b = RMSE["gat"][pairs], RMSE["gcn"][pairs]
  assert differences(comparisons)["gat", "gcn"] == pytest.approx((b - a).mean())
  said = " ".join(str(comparisons).split())
  assert "3 models × 8 seeds, 2 of 24 not there" in said
  assert "missing in 1 run" in said


def test_texts_tell_runs_apart():
  """Ids of runs, of which no two models share one, pair nothing."""
  ids = LONG.assign(run_id=[f"run-{i}" for i in range(len(LONG))]).drop(columns="seed")
  comparison = vs.compare(ids, **ASKED)[0]
  assert not comparison.paired
  named = LONG.assign(seed=[f"s{seed}" for seed in LONG.seed])
  assert vs.compare(named, **ASKED)[0].matching == "the same seeds"


def test_a_report_of_each_model(tmp_path):
  LONG.assign(seconds=1.5).to_csv(tmp_path / "scores.csv", index=False)
  report = vs.report(tmp_path / "scores.csv", **ASKED)
  for model, summary in zip(MODELS, report, strict=True):
    assert summary["values"] == {"model": model}
    mean = summary["statistics"]["mean"]
    assert mean["value"] == pytest.approx(RMSE[model].mean())
    low, high = scipy.stats.ttest_1samp(RMSE[model], 0).confidence_interval()
    assert (mean["low"], mean["high"]) == (pytest.approx(low), pytest.approx(high))
  assert "not used: note, seconds" in str(report)
  page = report.save()
  assert page == tmp_path / "scores_report" / "report.html"
  assert (tmp_path / "scores_report" / "model=gat" / "report.html").is_file()


def test_how_many_seeds():
  chosen = {"where": {"model": "gat"}, "against": {"model": "mlp"}}
  sizes = vs.sample_size(
    LONG, score="rmse", lower_is_better=True, detect=0.002, **chosen
  )
  paired = next(need for need in sizes if need.unit == "pairs")
  sd = (RMSE["gat"] - RMSE["mlp"]).std(ddof=1)
  wanted = TTestPower().solve_power(0.002 / sd, alpha=0.05, power=0.8)
  assert paired.runs == pytest.approx(np.ceil(wanted), abs=1)


@pytest.mark.parametrize(
  ("frame", "given", "said"),
  [
    (
      LONG,
      {"lower_is_better": None},
      "rmse sounds as if lower were better: give lower_is_b",
    ),
    (
      LONG.assign(mae=rng.random(24)),
      {"score": None},
      "rmse, mae may be scores, or values that vary, or, with",
    ),
    (LONG, {"score": "rsme"}, "unknown column 'rsme': choose one of .* did you mean"),
    (
      LONG.assign(mae=0.1),
      {"score": ["rmse", "mae"], "lower_is_better": True},
      "there are 2 scores, rmse, mae: name those of which lower is better",
    ),
    (
      pd.concat([LONG.assign(lr=0.1), LONG.assign(lr=0.2)]),
      {},
      "2 rows have model=gat, seed=0 and differ in lr: give lr as by=, if it is comp",
    ),
    (
      pd.concat([LONG, LONG[:1]]),
      {},
      "2 rows have model=gat, seed=0: is one there twice",
    ),
    (
      LONG.assign(rmse=["0.45 ± 0.01"] * len(LONG)),
      {},
      "rmse has '0.45 ± 0.01' in row 1: that is a mean of runs: give a row with",
    ),
    (
      LONG.assign(rmse=[*["0.4"] * 23, "bad"]),
      {},
      "rmse has 'bad' in row 24: give numbers only",
    ),
    (
      LONG.assign(rmse=["1,000"] * len(LONG)),
      {},
      "rmse has 1,000, which may be 1.000 or 1000",
    ),
    (
      LONG.assign(seed=[None, *LONG.seed[1:]]),
      {},
      "row 1 has nothing in seed: fill it, or leave",
    ),
    (LONG[:8], {}, "all runs of table have gat: give columns with two values or more"),
    (LONG[:0], {}, "the table has no rows below its names"),
  ],
)
def test_what_may_mean_two_things_is_refused(frame, given, said):
  with pytest.raises(vs.UserError, match=said):
    vs.compare(frame, **(ASKED | given))


@pytest.mark.parametrize(
  ("name", "text", "said"),
  [
    (
      "a.csv",
      "model,rmse\na,1,2\nb,2\n",
      "is no table: line 2 has 3 cells and the first 2",
    ),
    ("a.csv", "", "a.csv is empty: give a line of names"),
    ("a.csv", "0,1\n2,3\n", "has no names of columns, its first line is 0, 1"),
    ("a.csv", "rmse,rmse\n1,2\n", "has two columns 'rmse'"),
    ("a.json", '[{"model": "a", "scores": [1, 2]}]', "has lists or objects in scores"),
    ("a.xlsx", "no file of Excel", "cannot be read"),
    ("a.parquet", "no such file", "cannot be read"),
  ],
)
def test_files_that_are_no_tables(name, text, said, tmp_path):
  file = write(tmp_path / name, text)
  with pytest.raises(vs.UserError, match=said):
    vs.compare(file, by="model", score="rmse", lower_is_better=True)


def test_scores_that_are_no_table(tmp_path):
  with pytest.raises(
    vs.UserError, match=r"the table is {'r2': \[1, 2\]}: give a frame"
  ):
    vs.import_runs(tmp_path / "r", scores={"r2": [1, 2]})


@pytest.mark.parametrize(
  ("given", "says"),
  [
    ({"scores": LONG, "predictions": [[0]]}, "scores with predictions"),
    ({"scores": LONG, "labels": [0]}, "scores with labels"),
    ({"scores": LONG, "num_classes": 2}, "scores with num_classes"),
    ({"scores": LONG, "keep_logits": True}, "scores with keep_logits"),
    ({"predictions": [[0]], "labels": [0], "by": "model"}, "predictions with by"),
    ({"losses": [[0.5]], "score": "rmse"}, "losses with score"),
  ],
)
def test_what_says_nothing_of_what_is_imported_is_refused(tmp_path, given, says):
  with pytest.raises(vs.UserError, match=f"^{says}: give one of them"):
    vs.import_runs(tmp_path / "r", **given)
  assert not (tmp_path / "r").exists()


def test_columns_are_not_of_results_folders(tmp_path):
  with pytest.raises(
    vs.UserError, match=r"score= is of a table of scores, and .* none"
  ):
    vs.report(tmp_path, score="rmse")
  with pytest.raises(TypeError, match="unexpected keyword argument 'scores'"):
    vs.report(LONG, scores="rmse")


def test_the_commands(tmp_path, capsys):
  file = tmp_path / "scores.csv"
  LONG.to_csv(file, index=False)
  columns = ["--score", "rmse", "--lower-is-better"]
  status, out, _ = run(capsys, "compare", file, "--by", "model", *columns)
  assert status == 0
  difference = expected_differences()["gat", "gcn"]
  assert f"gat is better than gcn: its rmse is lower by {difference:.4f}" in out
  record = json.loads((tmp_path / "scores_report/by_model/compare.json").read_text())
  assert record["comparisons"][0]["names"] == ["gat", "gcn"]
  page = (tmp_path / "scores_report/by_model/compare.html").read_text()
  assert "3 models × 8 seeds" in page
  status, out, _ = run(capsys, "report", file, *columns)
  assert status == 0
  assert "model=gat" in out
  models = ["--where", "model=gat", "--against", "model=gcn"]
  status, out, _ = run(capsys, "sample-size", file, *columns, *models)
  assert (status, "pairs" in out) == (0, True)
  status, _, err = run(capsys, "compare", file, "--by", "model", "--score", "rmse")
  assert status == 2
  assert "give --lower-is-better rmse, or --higher-is-better" in err


def scores_of(folder):
  frame = vs.run_table(folder).drop(columns="diverged")
  return frame.sort_values([*frame.columns]).reset_index(drop=True)


def test_a_folder_of_a_table_says_the_same(tmp_path, capsys):
  file = tmp_path / "scores.csv"
  LONG.assign(r2=rng.random(24)).to_csv(file, index=False)
  columns = ["--score", "rmse", "r2", "--lower-is-better", "rmse"]
  out = tmp_path / "folder"
  status, said, err = run(capsys, "import", file, *columns, "--out", out)
  assert (status, said) == (0, f"24 runs in {out}; next: vmapseeds report {out}\n")
  assert (
    "scores.csv: 24 runs: 3 models × 8 seeds; scores rmse (lower is better), r2"
    in (err)
  )
  of_folder = vs.compare(out, by="model")
  assert differences(of_folder) == pytest.approx(expected_differences())
  table = vs.compare(
    file, **(ASKED | {"score": ["rmse", "r2"], "lower_is_better": "rmse"})
  )
  assert [c.sentence for c in of_folder] == [c.sentence for c in table]
  assert vs.report(out)[1]["statistics"]["mean"]["value"] == RMSE["gcn"].mean()
  again = run(capsys, "import", file, *columns, "--out", out)
  assert again[0] == 2
  assert "has a run with model=gat, seed=0, or it is given twice" in again[2]


def test_scores_are_recorded_one_after_another(tmp_path):
  """Without predictions: of models by their names, on tasks."""
  recorder = vs.Recorder(tmp_path / "r", lower_is_better="rmse")
  for model in ("gat", "gcn"):
    for seed in range(SEEDS):
      assert not recorder.has(seed=seed, model=model)
      scores = {"rmse": RMSE[model][seed], "r2": seed / 10}
      recorder.add(scores=scores, seed=seed, model=model)
      assert recorder.has(seed=seed, model=model)
  assert len(vs.Recorder(tmp_path / "r")) == 2 * SEEDS
  frame = scores_of(tmp_path / "r")
  np.testing.assert_array_equal(frame.rmse[frame.model == "gcn"], RMSE["gcn"])
  assert vs.verify(tmp_path / "r").problems == []
  comparison = vs.compare(tmp_path / "r", by="model")
  assert comparison.found.difference == pytest.approx(
    RMSE["gcn"].mean() - RMSE["gat"].mean()
  )
  several = vs.Recorder(tmp_path / "s", lower_is_better="rmse")
  models = np.repeat(["gat", "gcn"], SEEDS)
  seeds = np.tile(np.arange(SEEDS), 2)
  rmse = np.concatenate([RMSE["gat"], RMSE["gcn"]])
  several.add(scores={"rmse": rmse, "r2": seeds / 10}, seed=seeds, model=models)
  pd.testing.assert_frame_equal(scores_of(tmp_path / "s"), frame)


def test_scores_beside_predictions(tmp_path):
  labels = rng.integers(0, 3, 20)
  predictions = rng.integers(0, 3, (4, 20))
  recorder = vs.Recorder(tmp_path / "r", labels=labels)
  for seed in range(4):
    recorder.add(predictions[seed], scores={"auc": seed / 4}, seed=seed, data="a")
  summary = vs.report(tmp_path / "r")[0]
  accuracy = (predictions == labels).mean()
  assert summary["statistics"]["mean_accuracy"]["value"] == pytest.approx(accuracy)
  (further,) = summary["further"]
  assert further["statistics"]["mean"]["value"] == pytest.approx(3 / 8)


@pytest.mark.parametrize(
  ("scores", "values", "said"),
  [
    ({}, {}, "scores are {}: give name -> number"),
    ({"r2": [1, 2]}, {"seed": [0, 1, 2]}, r"seed has shape \(3,\) beside 2 runs"),
    ({"r2": "high"}, {}, "score r2"),
    ({"r2": 1.0, "auc": [1, 2]}, {}, "test sets and scores have different numbers of"),
    ({"run": 1.0}, {}, "score 'run': that name is already used"),
    ({"r2": 1.0}, {"r2": 3}, "score 'r2': that name is already used"),
    ({"rmse": 1.0}, {}, "rmse sounds as if lower were better"),
  ],
)
def test_scores_that_are_refused(scores, values, said, tmp_path):
  with pytest.raises(vs.UserError, match=said):
    vs.Recorder(tmp_path / "r").add(scores=scores, **values)
  assert not (tmp_path / "r").exists()


def test_runs_of_a_folder_have_the_same_scores(tmp_path):
  recorder = vs.Recorder(tmp_path / "r")
  recorder.add(scores={"r2": 0.5}, seed=0)
  with pytest.raises(
    vs.UserError, match=r"scores are auc, those of .* are r2: give the"
  ):
    recorder.add(scores={"auc": 0.5}, seed=1)
  with pytest.raises(vs.UserError, match=r"test sets are test, those of .* are "):
    recorder.add([0, 1], scores={"r2": 0.5}, seed=1)
  assert len(vs.Recorder(tmp_path / "r")) == 1


def curves():
  """Return learning curves of unequal lengths, best before their ends."""
  rows = []
  for model in ("gat", "gcn"):
    for seed in range(SEEDS):
      steps = 10 + seed % 3
      values = rng.random(steps) + (model == "gat")
      for step, value in enumerate(values):
        rows.append({"model": model, "seed": seed, "step": step, "r2": value})
  return pd.DataFrame(rows).sample(frac=1, random_state=2)


@pytest.mark.parametrize(
  ("at", "said"),
  [("last", "at the last step"), ("best", "which is optimistic"), (4, "at step 4")],
)
def test_a_learning_curve_gives_one_score(at, said):
  frame = curves()
  comparison = vs.compare(frame, by="model", score="r2", at=at)
  means = {}
  for model, of_model in frame.groupby("model"):
    scores = []
    for _, curve in of_model.groupby("seed"):
      by_step = dict(zip(curve.step, curve.r2, strict=True))
      chosen = {"last": by_step[max(by_step)], "best": max(by_step.values())}
      scores.append(chosen.get(at, by_step[4]))
    means[model] = np.mean(scores)
  difference = means["gat"] - means["gcn"]
  assert comparison.found.difference == pytest.approx(difference)
  assert said in " ".join(comparison.notes + comparison.document.notes)


def test_a_step_that_no_run_has_is_refused():
  with pytest.raises(vs.UserError, match="no run has step 99: give at= last, best or"):
    vs.compare(curves(), by="model", score="r2", at=99)


# rliable 1.2.0 with arch 8: get_interval_estimates of aggregate_iqm at each step, 20,000
# replicates, of the scores (runs, tasks, steps) of `scores_at_steps`.
IQM = [-0.05355556, 0.35111111, 0.502, 0.76144444, 1.28411111, 1.433]
LOW = [-0.19334444, 0.20044444, 0.31977778, 0.66577778, 1.11099722, 1.28]
HIGH = [0.00733333, 0.54011667, 0.67211667, 0.87777778, 1.43155556, 1.56733333]


def scores_at_steps():
  draw = np.random.default_rng(7).normal(scale=0.3, size=(5, 3, 6))
  slopes = np.array([1, 2, 1.5])[:, None]
  return np.round(np.linspace(0, 1, 6) * slopes + draw, 3)


def long_table(scores, **columns):
  """A row for each run, task and step."""
  rows = []
  for (seed, task, step), score in np.ndenumerate(scores):
    named = {"seed": seed, "task": f"t{task}", "step": 10 * step, "return": score}
    rows.append(named | columns)
  return pd.DataFrame(rows)


def test_sample_efficiency_curves_are_those_of_rliable(tmp_path):
  scores = scores_at_steps()
  frame = pd.concat([long_table(scores, model="a"), long_table(scores + 1, model="b")])
  # A run that ends early: its side's curve ends there, the other's does not.
  ended = (frame.model == "b") & (frame.seed == 3) & (frame.task == "t1")
  frame = frame[~(ended & (frame.step > 30))]
  comparisons = vs.compare(frame, by="model", score="return")
  curve = comparisons.tables["curves"].loc["a"]
  assert curve.index.tolist() == [0, 10, 20, 30, 40, 50]
  np.testing.assert_allclose(curve.iqm, IQM, atol=1e-8)
  # Monte Carlo errors of 2,000 replicates.
  np.testing.assert_allclose(curve.low, LOW, atol=0.03)
  np.testing.assert_allclose(curve.high, HIGH, atol=0.03)

  of_b = comparisons.tables["curves"].loc["b"]
  np.testing.assert_allclose(of_b.iqm, np.array(IQM)[:4] + 1, atol=1e-8)
  assert any(
    "curve of b is without 2 steps, from step 40 on, which 1 of 15 runs have not: "
    "task=t1 seed=3." in note
    for note in comparisons.notes
  )
  comparisons.save(tmp_path)
  assert [path.name for path in tmp_path.rglob("curves*.svg")]
  record = json.loads((tmp_path / "compare.json").read_text())
  assert len(record["curves"]) == 10


def test_runs_that_do_not_reach_a_step_are_named():
  frame = long_table(scores_at_steps(), model="a")
  frame = pd.concat([frame, frame.assign(model="b")])
  frame = frame[~((frame.model == "b") & (frame.seed == 2) & (frame.step > 30))]
  comparisons = vs.compare(frame, by="model", score="return", at=40)
  text = " ".join(comparisons.document.notes)
  assert (
    "at step 40, without 3 of 30 runs that have none there: model=b task=t0" in text
  )
  last = vs.compare(frame, by="model", score="return")
  assert "at the last step of each run, 30 to 50" in " ".join(last.document.notes)


def test_profiles_over_tasks():
  """The fraction above each value, by a plain count."""
  scores = scores_at_steps()[..., -1:]
  frame = pd.concat([long_table(scores, model="a"), long_table(scores + 1, model="b")])
  figure = vs.compare(frame.drop(columns="step"), by="model").figures["profiles"]
  lines = {line.get_label(): line for line in figure.axes[0].lines}
  for name, shift in (("a", 0), ("b", 1)):
    x, y = lines[name].get_data()
    expected = [100 * np.mean(scores + shift > value) for value in x]
    np.testing.assert_allclose(y, expected)


def test_fifteen_seeds_with_every_trap(tmp_path):
  """A spreadsheet of 15 seeds: decimal commas, a byte order mark, pandas' index, texts with
  `;`, rows of means, a missing cell and a missing row. The test of signs is SciPy's.
  """
  draw = np.random.default_rng(3)
  a = draw.normal(0.5, 0.03, 15).round(4)
  b = (a - 0.01 + draw.normal(0, 0.02, 15)).round(4)
  parts = [
    pd.DataFrame({"model": name, "seed": range(15), "note": "x;y", "r2": scores})
    for name, scores in (("a", a), ("b", b))
  ]
  means = pd.DataFrame({"model": ["a", "b"], "seed": "mean", "note": "", "r2": 0.9})
  frame = pd.concat([*parts, means], ignore_index=True)
  frame.loc[4, "r2"] = np.nan
  frame = frame.drop(index=15 + 7)
  frame.to_csv(tmp_path / "t.csv", sep=";", decimal=",", encoding="utf-8-sig")
  comparison = vs.compare(tmp_path / "t.csv", by="model", score="r2")
  kept = np.delete(np.arange(15), [4, 7])
  exact = scipy.stats.permutation_test(
    (a[kept], b[kept]),
    lambda x, y, axis: (x - y).mean(axis),
    permutation_type="samples",
    n_resamples=np.inf,
  )
  difference = (a[kept] - b[kept]).mean()
  assert comparison.found.difference == pytest.approx(difference)
  assert comparison.p_value == pytest.approx(exact.pvalue)
  assert "without 2 rows that sum up others" in str(comparison)
