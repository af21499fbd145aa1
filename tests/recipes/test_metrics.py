"""Metrics of a run on a whole test set: the ready ones against scikit-learn and plain
loops, one's own, and those of kept outputs.
"""

import itertools
import shutil

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
import sklearn.metrics as sk
from cases import mostly_slow

import vmapseeds as vs
from vmapseeds.campaign.until import Until, measure_statistic, train_until
from vmapseeds.training.metrics import READY, measure_metric, metric_of
from vmapseeds.training.recipes import METRICS

HOW = dict(progress=False, lane_width=2, lowering="sequential")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(61, 3)).astype(np.float32)
Y = (X[:, 0] + RNG.normal(size=61) > 0).astype(int)


def logits(classes, n=97, seed=0, ties=False):
  rng = np.random.default_rng(seed)
  targets = rng.integers(0, classes, n)
  outputs = rng.normal(size=(n, classes)) + 1.5 * np.eye(classes)[targets]
  if ties:
    outputs = outputs.round()
  return outputs.astype(np.float32), targets


def value(name, outputs, targets):
  return float(
    jax.jit(lambda o, t: measure_metric(name, metric_of(name, name), o, t))(
      jnp.asarray(outputs), jnp.asarray(targets)
    )
  )


def due_of_classes(outputs, targets):
  """What scikit-learn says."""
  # With JAX's rounding, so that the same scores are tied.
  p, predicted = np.asarray(jax.nn.softmax(outputs)), outputs.argmax(1)
  two = outputs.shape[1] == 2
  of_one = p[:, 1] if two else p
  return {
    "auc": sk.roc_auc_score(targets, of_one, multi_class="ovr"),
    "average_precision": sk.average_precision_score(targets, of_one),
    "balanced_accuracy": sk.balanced_accuracy_score(targets, predicted),
    "f1": sk.f1_score(targets, predicted, average="macro"),
    "log_loss": sk.log_loss(targets, p, labels=range(p.shape[1])),
    "brier": ((p - np.eye(p.shape[1])[targets]) ** 2).sum(1).mean() / (2 if two else 1),
  }


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("classes", mostly_slow([2, 4]))
def test_ready_metrics_of_classes_are_those_of_scikit_learn(classes, ties):
  outputs, targets = logits(classes, ties=ties)
  for name, due in due_of_classes(outputs, targets).items():
    assert value(name, outputs, targets) == pytest.approx(due, abs=2e-6), name


def test_two_classes():
  outputs, targets = logits(2)
  predicted = outputs.argmax(1)
  p = scipy.special.softmax(outputs, axis=1)[:, 1]
  due = {
    "sensitivity": sk.recall_score(targets, predicted),
    "specificity": sk.recall_score(targets, predicted, pos_label=0),
    "brier": sk.brier_score_loss(targets, p),
  }
  for name, expected in due.items():
    assert value(name, outputs, targets) == pytest.approx(expected, abs=1e-6), name
  # In a test set of one class, the other's share is not known.
  only = targets == 1
  assert value("sensitivity", outputs[only], targets[only]) == pytest.approx(
    due["sensitivity"], abs=1e-6
  )
  assert np.isnan(value("specificity", outputs[only], targets[only]))


def test_a_class_that_is_missing_counts_as_in_scikit_learn():
  outputs, targets = logits(4)
  few = np.isin(targets, [0, 1]) & np.isin(outputs.argmax(1), [0, 1, 2])
  outputs, targets = outputs[few], targets[few]
  predicted = outputs.argmax(1)
  with np.errstate(all="ignore"):
    f1 = sk.f1_score(targets, predicted, average="macro", zero_division=0)
  recalls = [(predicted[targets == c] == c).mean() for c in (0, 1)]
  assert value("f1", outputs, targets) == pytest.approx(f1, abs=1e-6)
  assert value("balanced_accuracy", outputs, targets) == pytest.approx(np.mean(recalls))


def test_calibration_error_is_that_of_a_loop():
  outputs, targets = logits(3, n=400)
  p = scipy.special.softmax(outputs.astype(float), axis=1)
  confidence, right = p.max(1), p.argmax(1) == targets
  due = 0.0
  for b in range(10):
    here = (confidence >= b / 10) & (confidence < (b + 1) / 10 + (b == 9))
    if here.any():
      due += here.mean() * abs(right[here].mean() - confidence[here].mean())
  assert value("ece", outputs, targets) == pytest.approx(due, abs=1e-5)


@pytest.mark.parametrize("shape", [(50,), (50, 1), (50, 3)])
def test_metrics_of_numbers(shape):
  targets = RNG.normal(3, 2, shape).astype(np.float32)
  outputs = targets + RNG.normal(size=shape).astype(np.float32)
  rows = [a.reshape(50, -1) for a in (targets, outputs)]
  assert value("r2", outputs, targets) == pytest.approx(sk.r2_score(*rows), abs=1e-5)
  assert value("rmse", outputs.reshape(50, -1), targets) == pytest.approx(
    sk.root_mean_squared_error(*rows), abs=1e-5
  )


def test_concordance_is_that_of_a_loop_over_pairs():
  n = 40
  risk = RNG.integers(0, 9, n).astype(np.float32)
  time, event = RNG.integers(1, 12, n), RNG.random(n) < 0.6
  concordant = known = 0.0
  for i, j in itertools.permutations(range(n), 2):
    earlier = time[i] < time[j] or (time[i] == time[j] and not event[j])
    if event[i] and earlier:
      known += 1
      concordant += float(risk[i] > risk[j]) + 0.5 * float(risk[i] == risk[j])
  targets = np.stack([time, event], axis=1).astype(np.float32)
  assert value("concordance_index", risk, targets) == pytest.approx(concordant / known)


def test_all_ready_metrics_have_a_name_and_nan_stays_nan():
  assert {*METRICS} == {*READY}
  outputs, targets = logits(2)
  outputs[3] = np.nan
  for name, metric in READY.items():
    if "classes" in metric.of:
      assert np.isnan(value(name, outputs, targets)), name


# In recipes.


def accuracy_of_mine(outputs, targets):
  return (outputs.argmax(1) == targets).mean()


def worst_loss(outputs, targets):
  losses = -jax.nn.log_softmax(outputs)
  return jnp.take_along_axis(losses, targets[:, None], 1).max()


worst_loss.higher_is_better = False


def two(outputs, targets):
  return outputs[:2, 0]


def recipe(**more):
  given = dict(
    name="metrics",
    dataset=vs.Dataset(train=(X[:40], Y[:40]), test=(X[40:], Y[40:])),
    model=nn.Dense,
    model_args={"features": 2},
    epochs=3,
    batch_size=10,
    lr=0.1,
  )
  return vs.Recipe(**(given | more))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  folder = tmp_path_factory.mktemp("metrics") / "a"
  metrics = {"area": "auc", "brier": "brier", "mine": accuracy_of_mine}
  metrics["worst"] = worst_loss
  vs.train(recipe(metrics=metrics), vs.Runs.independent(4), folder, logits=True, **HOW)
  return folder


def test_metrics_are_scores_of_runs(trained):
  results = vs.open_results(trained)
  targets = Y[40:]
  for run in range(4):
    outputs = results.logits.values[run]
    p = scipy.special.softmax(outputs, axis=1)
    assert results.area.values[run] == pytest.approx(sk.roc_auc_score(targets, p[:, 1]))
    assert results.brier.values[run] == pytest.approx(
      sk.brier_score_loss(targets, p[:, 1]), abs=1e-6
    )
    assert results.mine.values[run] == pytest.approx(results.accuracy.values[run])
    assert results.worst.values[run] == pytest.approx(
      (-np.log(p[np.arange(21), targets])).max(), rel=1e-5
    )
  roles = {name: results[name].attrs["role"] for name in ("area", "mine", "worst")}
  assert {*roles.values()} == {"score"}
  assert results.area.attrs["higher_is_better"]
  assert not results.worst.attrs["higher_is_better"]
  assert not results.brier.attrs["higher_is_better"]


def test_metrics_of_kept_outputs_are_the_same(trained):
  results = vs.open_results(trained)
  found = vs.measure(
    trained, {"area": "auc", "worst": worst_loss, "log_loss": "log_loss"}
  )
  np.testing.assert_allclose(found.area, results.area, rtol=1e-6)
  np.testing.assert_allclose(found.worst, results.worst, rtol=1e-6)
  about = found.area.attrs
  assert about["mean"] == pytest.approx(float(results.area.mean()))
  assert about["low"] < about["mean"] < about["high"]
  # The ensemble is that of the mean probability.
  p = scipy.special.softmax(results.logits.values.astype(float), axis=-1).mean(0)
  assert about["ensemble"] == pytest.approx(sk.roc_auc_score(Y[40:], p[:, 1]), abs=1e-6)
  assert found.log_loss.attrs["ensemble"] == pytest.approx(
    sk.log_loss(Y[40:], p), rel=1e-5
  )
  assert [*vs.measure(trained, ["f1", "brier"])] == ["f1", "brier"]


def test_a_recipe_with_metrics_is_written_and_read_back():
  of = recipe(dataset="digits", metrics={"area": "auc", "mine": accuracy_of_mine})
  again = vs.Recipe.from_json(of.to_json()).found_in(of)
  assert again.metrics == of.metrics
  assert recipe(metrics=["auc", "f1"]).metrics == {"auc": "auc", "f1": "f1"}
  assert recipe(metrics="auc,f1").metrics == {"auc": "auc", "f1": "f1"}
  imported = recipe(metrics={"area": "vmapseeds.training.metrics:auc"})
  assert (
    vs.Recipe.from_json(imported.replace(dataset="digits").to_json())
    .metrics["area"]
    .name
    == "vmapseeds.training.metrics:auc"
  )


@pytest.mark.parametrize(
  ("metrics", "message"),
  [
    (3, "metrics is 3: give functions of"),
    ({"area": "aucc"}, "aucc"),
    ({"area": 3}, "metric is 3: give a name"),
    (
      {"accuracy": "auc"},
      "metric 'accuracy': .*already used",
    ),
    ({"lr": "auc"}, "metric 'lr': .*already used"),
    (
      {"two": two},
      r"metric two, .*two, gives float32 of shape \(2,\): give one number",
    ),
    (["r2"], "metric r2 is of numbers, the data have 2 classes: leave it out"),
    (["concordance_index"], r"is of \(time, event\), the data have 2 classes"),
  ],
)
def test_mistakes(metrics, message, tmp_path):
  with pytest.raises(vs.UserError, match=message):
    vs.train(recipe(metrics=metrics), 2, tmp_path / "a", **HOW)
  assert not (tmp_path / "a").exists()


def test_outputs_that_were_not_kept_cannot_be_measured(tmp_path):
  vs.train(recipe(epochs=1), 2, tmp_path / "a", **HOW)
  with pytest.raises(
    vs.UserError, match="outputs of the networks were not kept: train"
  ):
    vs.measure(tmp_path / "a", ["auc"])


def test_what_is_measured_later_is_added_to_the_folder(trained, tmp_path):
  folder = tmp_path / "a"
  shutil.copytree(trained, folder)
  found = vs.measure(
    folder, {"area": "auc", "log_loss": "log_loss", "late": worst_loss}
  )
  results = vs.open_results(folder)
  np.testing.assert_allclose(results.late, results.worst, rtol=1e-6)
  np.testing.assert_array_equal(results.log_loss, found.log_loss)
  assert results.late.attrs == {"role": "score", "higher_is_better": False}
  # What was trained stays, and the files of the folder are sound.
  assert results.area.dtype == np.float32
  assert vs.verify(folder).problems == []
  assert not vs.verify(folder).notes
  (summary,) = vs.report(folder)
  sections = {s["output"]: s for s in (summary, *summary["further"])}
  mean = sections["log_loss"]["statistics"]["mean"]["value"]
  assert mean == pytest.approx(found.log_loss.attrs["mean"])
  assert vs.run_table(folder).log_loss.tolist() == found.log_loss.values.tolist()
  assert "late" not in vs.open_results(trained)
  # Again: replaced.
  vs.measure(folder, {"late": accuracy_of_mine})
  again = vs.open_results(folder)
  np.testing.assert_allclose(again.late, again.accuracy)
  assert "log_loss" in again


@pytest.mark.slow
def test_runs_that_are_added_later_are_to_be_measured_again(trained, tmp_path):
  folder = tmp_path / "a"
  shutil.copytree(trained, folder)
  vs.measure(folder, ["log_loss"])
  metrics = {"area": "auc", "brier": "brier", "mine": accuracy_of_mine}
  metrics["worst"] = worst_loss
  of = recipe(metrics=metrics)
  vs.train(of, vs.Runs.independent(6), folder, logits=True, **HOW)
  assert "log_loss" not in vs.open_results(folder)
  (summary,) = vs.report(folder)
  assert any(
    "log_loss" in w and "measured of fewer runs" in w for w in summary["warnings"]
  )
  vs.measure(folder, ["log_loss"])
  assert np.isfinite(vs.open_results(folder).log_loss.values).all()
  (folder / "measured" / "test.json").write_text('{"log_loss": 3}')
  with pytest.raises(vs.UserError, match="holds no metrics; remove that file"):
    vs.open_results(folder)


def test_a_report_has_the_mean_probability_beside_the_vote(trained, monkeypatch):
  (summary,) = vs.report(trained)
  numbers = summary["statistics"]
  logits = vs.open_results(trained).logits.values.astype(float)
  p, targets = scipy.special.softmax(logits, axis=-1).mean(0), Y[40:]
  due = {
    "probability_accuracy": sk.accuracy_score(targets, p.argmax(1)),
    "ensemble_log_loss": sk.log_loss(targets, p),
    "ensemble_brier": sk.brier_score_loss(targets, p[:, 1]),
  }
  for name, value_due in due.items():
    assert numbers[name]["value"] == pytest.approx(value_due), name
    assert numbers[name]["low"] < value_due < numbers[name]["high"]
    assert numbers[name]["over"] == "examples"
  losses = -np.log(p[np.arange(21), targets])
  assert numbers["ensemble_log_loss"]["se"] == pytest.approx(scipy.stats.sem(losses))
  monkeypatch.setattr("vmapseeds.results.measurements.MOST_LOGITS", 1)
  assert "ensemble_brier" not in vs.report(trained)[0]["statistics"]


def test_the_interval_of_a_mean_accuracy_stays_within_0_and_100_percent(tmp_path):
  labels = np.arange(20) % 2
  predictions = np.stack(
    [labels, labels, np.where(np.arange(20) < 9, 1 - labels, labels)]
  )
  vs.import_runs(tmp_path / "a", predictions=predictions, labels=labels, progress=False)
  (summary,) = vs.report(tmp_path / "a")
  mean = summary["statistics"]["mean_accuracy"]
  assert mean["value"] == pytest.approx(0.85)
  assert mean["low"] == pytest.approx(
    0.85 - scipy.stats.t.ppf(0.975, 2) * scipy.stats.sem([1, 1, 0.55])
  )
  assert mean["high"] == 1


def test_metrics_in_comparisons_plans_and_until(trained, tmp_path):
  other = tmp_path / "b"
  of = recipe(metrics={"area": "auc", "brier": "brier"}, lr=0.01)
  vs.train(of, vs.Runs.independent(4), other, **HOW)
  a, b = (vs.open_results(folder).area.values for folder in (trained, other))
  (said,) = vs.compare(trained, other, output="area")
  assert said.found.difference == pytest.approx((a - b).mean(), abs=1e-6)
  vs.sample_size(trained, other, output="brier")

  until = Until.parse("area:mean abs 100")
  how = HOW | {"first": 3}
  runs = vs.Runs.independent(4)
  found = train_until(of, runs, tmp_path / "c", until, **how)
  assert found.sizes["run"] == 3
  of_none = Until.parse("auc:mean abs 1")
  with pytest.raises(
    vs.UserError, match="unknown output 'auc': choose one of predictions"
  ):
    train_until(of, runs, tmp_path / "d", of_none, **how)


def test_the_width_that_until_looks_at_is_not_cut_off(tmp_path):
  labels = np.arange(20) % 2
  predictions = np.stack(
    [labels, labels, np.where(np.arange(20) < 9, 1 - labels, labels)]
  )
  vs.import_runs(tmp_path / "a", predictions=predictions, labels=labels, progress=False)
  until = Until.parse("mean_accuracy abs 1%")
  found = measure_statistic(vs.open_results(tmp_path / "a"), until)
  half = scipy.stats.t.ppf(0.975, 2) * scipy.stats.sem([1, 1, 0.55])
  assert until.reached(found) == pytest.approx(half / 0.01)
