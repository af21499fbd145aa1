"""A function of one's own as a campaign: resumed, extended, in folds, by several workers;
against the same loop by hand.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.tree import DecisionTreeClassifier

import vmapseeds as vs
from vmapseeds.campaign import repeating
from vmapseeds.store.claims import Claims

X, Y = load_iris(return_X_y=True)
TRAIN, TEST = slice(0, None, 2), slice(1, None, 2)
QUIET = {"progress": False}


def predict(seed, depth=None):
  tree = DecisionTreeClassifier(max_features=1, max_depth=depth, random_state=seed)
  return tree.fit(X[TRAIN], Y[TRAIN]).predict(X[TEST])


def train_one(run):
  return {"predictions": predict(run.seed), "scores": {"half": run.seed / 2}}


@pytest.mark.parametrize("workers", [None, 3])
def test_runs_are_those_of_a_loop(workers, tmp_path):
  executor = ThreadPoolExecutor(workers) if workers else None
  results = vs.repeat(
    train_one, 6, tmp_path / "r", labels=Y[TEST], executor=executor, **QUIET
  )
  order = np.argsort(results.seed.values)
  assert results.seed.values[order].tolist() == list(range(6))
  wanted = np.stack([predict(seed) for seed in range(6)])
  np.testing.assert_array_equal(results.predictions.values[order], wanted)
  np.testing.assert_array_equal(results.half.values[order], np.arange(6) / 2)
  assert vs.verify(tmp_path / "r").problems == []


def test_it_resumes_after_a_failure_and_is_extended(tmp_path):
  called = []

  def fails_once(run):
    called.append(run.seed)
    if called == [0, 1, 2]:
      raise MemoryError
    return {"r2": run.seed / 10}

  with pytest.raises(MemoryError):
    vs.repeat(fails_once, 4, tmp_path / "r", **QUIET)
  assert vs.open_results(tmp_path / "r").seed.values.tolist() == [0, 1]
  vs.repeat(fails_once, 4, tmp_path / "r", **QUIET)
  assert called == [0, 1, 2, 2, 3]
  results = vs.repeat(fails_once, 6, tmp_path / "r", **QUIET)
  assert called == [0, 1, 2, 2, 3, 4, 5]
  np.testing.assert_allclose(results.r2, np.arange(6) / 10)
  vs.repeat(fails_once, 6, tmp_path / "r", **QUIET)
  assert len(called) == 7


def test_folds_and_swept_values(tmp_path):
  runs = vs.Runs.sweep(depth=[1, 3], seeds=2).k_fold(5)

  def score(run):
    train, test = run.split(len(X))
    tree = DecisionTreeClassifier(max_depth=int(run["depth"]), random_state=run.seed)
    right = tree.fit(X[train], Y[train]).predict(X[test]) == Y[test]
    assert len(np.intersect1d(train, test)) == 0
    return {"accuracy": right.mean(), "tested": test.sum()}

  results = vs.repeat(score, runs, tmp_path / "r", **QUIET)
  assert results.sizes["run"] == 20
  first = results.isel(run=results.seed.values == 0).sel()
  of_depth = first.isel(run=first.depth.values == 1)
  # Each example is in one fold.
  assert of_depth.tested.values.sum() == np.arange(len(X)).sum()
  means = [x.accuracy.values.mean() for _, x in results.groupby("depth")]
  assert means[1] - means[0] > 0.2


def test_sources_of_randomness_of_their_own(tmp_path):
  runs = vs.Runs.vary("init", 2, repeat={"order": 3})

  def score(run):
    if run.seeds["init"] != run.seeds["order"]:
      with pytest.raises(vs.UserError, match="sources have seeds of their own"):
        run.seed  # noqa: B018
    return {"sum": run.seeds["init"] + 10 * run.seeds["order"]}

  results = vs.repeat(score, runs, tmp_path / "r", **QUIET)
  seeds = results.seed_init.values + 10 * results.seed_order.values
  np.testing.assert_array_equal(results["sum"], seeds)
  assert len(set(seeds.tolist())) == 6


def test_what_another_process_trains_is_left_to_it(tmp_path, capsys):
  def score(run):
    return {"r2": run.seed / 10}

  vs.repeat(score, 1, tmp_path / "r", **QUIET)
  (columns,) = repeating.columns_of_runs(vs.Runs.independent(1, start=2))
  with Claims(tmp_path / "r") as other:
    assert other.take(repeating._claim_name(columns))
    results = vs.repeat(score, 4, tmp_path / "r", **QUIET)
    assert results.seed.values.tolist() == [0, 1, 3]
  assert "1 runs are trained by another process" in capsys.readouterr().err
  results = vs.repeat(score, 4, tmp_path / "r", **QUIET)
  assert sorted(results.seed.values.tolist()) == [0, 1, 2, 3]


def test_what_a_function_may_return(tmp_path):
  with pytest.raises(vs.UserError, match=r"train_one returned 0\.5: give a dict with"):
    vs.repeat(lambda run: 0.5, 2, tmp_path / "r", **QUIET)
  assert not (tmp_path / "r").exists()
