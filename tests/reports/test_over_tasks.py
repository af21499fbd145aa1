"""Tables of runs on several tasks, compared: their numbers are SciPy's and rliable's."""

import json

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from test_aggregates import A, B
from test_cli import run
from test_over_several_tasks import AUC

import vmapseeds as vs

rng = np.random.default_rng(3)
EASE = np.array([0.0, 3, 10, 30, 100])


def table(seeds=3, lead=1.5, tasks=5, shared=0.0):
  """Return scores of two models; `shared`: of a seed, in its lead on every task."""
  rows = []
  leads = lead + shared * rng.normal(size=seeds)
  for task in range(tasks):
    for seed in range(seeds):
      common = EASE[task] + rng.normal()
      a = common + leads[seed] + 0.5 * rng.normal()
      for model, score in (("a", a), ("b", common)):
        rows.append({"model": model, "task": f"t{task}", "seed": seed, "score": score})
  return pd.DataFrame(rows)


def wide(frame):
  return frame.pivot(index=["task", "seed"], columns="model", values="score")


def p_of_signs(differences):
  found = scipy.stats.permutation_test(
    (differences, np.zeros(len(differences))),
    lambda x, y, axis: (x - y).mean(axis),
    permutation_type="samples",
    n_resamples=np.inf,
  )
  return found.pvalue


def test_three_splits_of_five_tasks_tell_together():
  frame = table()
  one = vs.compare(frame, by="model", score="score", where={"task": "t0"})
  assert one.verdict == "too few runs"
  comparison = vs.compare(frame, by="model", score="score")
  pairs = wide(frame)
  differences = (pairs.a - pairs.b).to_numpy()
  assert comparison.verdict == "better"
  assert comparison.found.difference == pytest.approx(differences.mean())
  assert comparison.p_value == pytest.approx(p_of_signs(differences), rel=0.2)
  assert f"a is better than b by {differences.mean():.2f}" in comparison.sentence
  assert "drawn anew on each of 5 values of task" in " ".join(comparison.notes)


def test_the_deviation_of_a_run_is_that_on_its_task():
  """Neither what tells tasks apart is in it, nor on which of them a model is good."""
  frame = table(seeds=4)
  strong = (frame.model == "a") & (frame.task == "t2")
  frame.loc[strong, "score"] += 7
  sides = vs.compare(frame, by="model", score="score").tables["sides"]
  for model in "ab":
    of_tasks = frame[frame.model == model].groupby("task").score
    sd = np.sqrt(of_tasks.var().mean())
    assert sides.sd[model] == pytest.approx(sd)
    assert sides.se[model] == pytest.approx(sd / np.sqrt(20))
    assert sides["mean"][model] == pytest.approx(of_tasks.mean().mean())


def test_pairs_of_seeds_are_planned_by_their_means_over_tasks():
  frame = table(seeds=8)
  asked = {"score": "score", "where": {"model": "a"}, "against": {"model": "b"}}
  means = frame.groupby(["model", "seed"], as_index=False).score.mean()
  found = vs.sample_size(frame, detect=0.5, **asked)
  expected = vs.sample_size(means, detect=0.5, **asked)
  assert [n.runs for n in found if n.unit == "pairs"] == pytest.approx(
    [n.runs for n in expected if n.unit == "pairs"]
  )
  assert any(n.unit == "pairs" for n in found)


def test_a_page_of_some_rows_says_which(tmp_path, capsys):
  path = tmp_path / "scores.csv"
  table(seeds=6).to_csv(path, index=False)
  run(
    capsys, "compare", path, "--by", "model", "--score", "score", "--where", "task=t1"
  )
  page = tmp_path / "scores_report" / "task=t1" / "by_model" / "compare.html"
  assert "--where task=t1" in page.read_text()


def test_one_network_on_all_tasks_is_one_run():
  """Leads that a seed has on all tasks: its mean over tasks is the unit."""
  frame = table(seeds=8, lead=0.0, shared=2.0)
  comparison = vs.compare(frame, by="model", score="score")
  means = wide(frame).groupby("seed").mean()
  assert comparison.p_value == pytest.approx(p_of_signs((means.a - means.b).to_numpy()))
  assert "Runs of one seed rise and fall together over task" in comparison.notes[0]


def test_seeds_are_averaged_over_tasks_if_that_is_asked():
  frame = table(seeds=7)
  comparison = vs.compare(frame, by="model", score="score", over=["task"])
  means = wide(frame).groupby("seed").mean()
  assert len(comparison.only.a) == 7
  assert comparison.p_value == pytest.approx(p_of_signs((means.a - means.b).to_numpy()))


def test_runs_without_partners_are_compared_within_tasks():
  """No seeds, and other numbers of runs: rearranged within each task."""
  frame = table(seeds=6).drop(columns="seed").drop([0, 4, 9])
  comparison = vs.compare(frame, by="model", score="score")
  of_tasks = frame.groupby(["model", "task"]).score
  means = of_tasks.mean().unstack("task")
  assert comparison.found.difference == pytest.approx(
    (means.loc["a"] - means.loc["b"]).mean()
  )
  shown = comparison.tables["means"]
  np.testing.assert_allclose(shown["mean"].T, means)
  np.testing.assert_allclose(shown["se"].T, of_tasks.agg(scipy.stats.sem).unstack())
  assert not comparison.only.paired
  assert comparison.verdict == "better"
  shares = []
  for task in means:
    a, b = (
      frame.score[(frame.model == model) & (frame.task == task)].to_numpy()
      for model in "ab"
    )
    shares.append(scipy.stats.mannwhitneyu(a, b).statistic / len(a) / len(b))
  assert comparison.outperforming[0] == pytest.approx(np.mean(shares))


def test_aggregates_are_those_of_rliable():
  """The numbers of tests/stats/test_aggregates.py, from a long table."""
  rows = [
    {
      "model": name,
      "seed": f"{name}{seed}",
      "game": f"g{game}",
      "return": scores[seed, game],
    }
    for name, scores in (("A", A), ("B", B))
    for seed, game in np.ndindex(scores.shape)
  ]
  comparison = vs.compare(pd.DataFrame(rows), by="model", score="return")
  sides = comparison.tables["tasks"]
  np.testing.assert_allclose(sides.iqm, [1.98175, 1.991])
  assert sides.iqm_low["A"] == pytest.approx(1.64855, abs=0.03)
  record = comparison.document.record["tasks"]
  (improvement,) = record["probability_of_improvement"]
  assert improvement["probability"] == pytest.approx(0.5178571428571428)
  assert improvement["low"] == pytest.approx(0.375, abs=0.03)


def demsar():
  names = ["C4.5", "C4.5+m", "C4.5+cf", "C4.5+m+cf"]
  rows = [
    {"classifier": names[i], "dataset": f"d{j:02}", "auc": AUC[i, j]}
    for i, j in np.ndindex(AUC.shape)
  ]
  return pd.DataFrame(rows)


def test_one_score_of_each_classifier_on_each_data_set(tmp_path, capsys):
  """Demšar's table: tasks are the pairs; ranks and Friedman's test are his."""
  file = tmp_path / "auc.csv"
  demsar().to_csv(file, index=False)
  comparisons = vs.compare(file, by="classifier", score="auc")
  record = comparisons.document.record["tasks"]
  ranks = comparisons.tables["tasks"].mean_rank
  wanted = {"C4.5": 3.143, "C4.5+m": 2, "C4.5+cf": 2.893, "C4.5+m+cf": 1.964}
  assert ranks.to_dict() == pytest.approx(wanted, abs=5e-4)
  assert record["p_value"] == pytest.approx(scipy.stats.friedmanchisquare(*AUC).pvalue)
  assert record["critical_difference"] == pytest.approx(1.25, abs=5e-3)
  found = comparisons[0]
  assert found.names == ("C4.5", "C4.5+cf")
  assert found.found.difference == pytest.approx((AUC[0] - AUC[2]).mean())
  assert found.found.p_value == pytest.approx(p_of_signs(AUC[0] - AUC[2]), abs=0.01)
  assert "ranks" in comparisons.figures
  status, out, _ = run(capsys, "compare", file, "--by", "classifier", "--score", "auc")
  assert status == 0
  said = " ".join(out.split())
  assert (
    "two differ by Nemenyi's test if their mean ranks do by 1.25, which tells none"
    in said
  )
  assert "depends on which others are compared" in said
  saved = json.loads((tmp_path / "auc_report/by_classifier/compare.json").read_text())
  assert saved["tasks"]["wins"]["C4.5"]["C4.5+m"] == pytest.approx(3 / 14)


def test_folds_on_data_sets_are_one_score_of_each():
  """Means over folds, compared over data sets: SciPy's signed ranks."""
  rows = []
  for task in range(8):
    for fold in range(5):
      for model in "ab":
        score = 10 * task + (model == "a") + rng.normal()
        rows.append({"model": model, "dataset": f"d{task}", "fold": fold, "acc": score})
  frame = pd.DataFrame(rows)
  comparison = vs.compare(frame, by="model", score="acc")
  means = frame.groupby(["dataset", "model"]).acc.mean().unstack()
  differences = (means.a - means.b).to_numpy()
  assert comparison.p_value == pytest.approx(p_of_signs(differences))
  wilcoxon = scipy.stats.wilcoxon(differences).pvalue
  assert comparison.document.record["tasks"]["p_value"] == pytest.approx(wilcoxon)


def test_tasks_that_one_lacks_are_left_out():
  frame = table(seeds=6)
  lacking = frame[(frame.model == "a") | (frame.task != "t4")]
  comparison = vs.compare(lacking, by="model", score="score")
  pairs = wide(frame[frame.task != "t4"])
  assert comparison.found.difference == pytest.approx((pairs.a - pairs.b).mean())
  assert "Left out, since not all have runs there: t4." in " ".join(comparison.notes)


def test_lower_is_better_on_tasks():
  frame = table(seeds=4)
  comparison = vs.compare(frame, by="model", score="score", lower_is_better=True)
  assert "b is better than a: its score is lower by" in comparison.sentence
  assert comparison.tables["tasks"].mean_rank["b"] == 1
