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
from vmapseeds.training.losses import squared_error
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
  p, predicted = scipy.special.softmax(outputs.astype(float), axis=1), outputs.argmax(1)
  two = outputs.shape[1] == 2
  # Rounding parts no scores that are tied: (1, 0) and (2, 1) have the same.
  ranked = p.round(9)
  of_one = ranked[:, 1] if two else ranked
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


@pytest.mark.slow
def test_counts_of_pairs_do_not_overflow():
  # Beyond 65,536 examples their pairs are too many for 32 bits. A known order of all
  # but a few examples needs no loop over all pairs to be known.
  n = 66_000
  time = np.arange(n, dtype=np.float32)
  risk = -time
  risk[:100] = 5.0 - n
  targets = np.stack([time, np.ones_like(time)], 1)
  pairs = n * (n - 1) / 2
  # The first hundred are tied with each other, and are below the others but for the last
  # five, of which one is tied with them.
  wrong = 0.5 * (100 * 99 / 2) + 100 * (n - 100 - 5) + 0.5 * 100
  concordance = value("concordance_index", risk, targets)
  assert concordance == pytest.approx(1 - wrong / pairs, abs=1e-6)


@pytest.mark.parametrize("rare", mostly_slow([1, 0]))
def test_a_rare_class_among_many_examples(rare):
  rng = np.random.default_rng(rare)
  targets = np.full(300_000, 1 - rare)
  targets[:5] = rare
  score = rng.normal(size=len(targets)).astype(np.float32)
  outputs = np.stack([np.zeros_like(score), score], axis=1)
  assert value("auc", outputs, targets) == pytest.approx(
    sk.roc_auc_score(targets, score), abs=1e-6
  )
  assert value("average_precision", outputs, targets) == pytest.approx(
    sk.average_precision_score(targets, score), rel=1e-5
  )


def log_odds(logits):
  """In float64; infinite ones are finite for scikit-learn, and farthest."""
  logits = logits.astype(float)
  columns = []
  for own in range(logits.shape[1]):
    others = scipy.special.logsumexp(np.delete(logits, own, 1), axis=1)
    columns.append(logits[:, own] - others)
  return np.clip(np.stack(columns, axis=1), -1e30, 1e30)


RANKING = {"auc": sk.roc_auc_score, "average_precision": sk.average_precision_score}


@pytest.mark.parametrize("scale", mostly_slow([1e5, 1, 30, 300]))
@pytest.mark.parametrize("ruled_out", [False, True])
def test_scores_of_large_and_infinite_logits_still_rank(scale, ruled_out):
  outputs, targets = logits(4, n=300)
  outputs = outputs * np.float32(scale)
  if ruled_out:
    lost = np.random.default_rng(2).random(outputs.shape) < 0.3
    lost[np.arange(300), outputs.argmax(1)] = False
    outputs[lost] = -np.inf
  odds = log_odds(outputs)
  for name, of_binary in RANKING.items():
    due = np.mean([of_binary(targets == c, odds[:, c]) for c in range(4)])
    # Differences of large logits are rounded, and single pairs change places.
    assert value(name, outputs, targets) == pytest.approx(due, abs=2e-4), name
  two = outputs[:, :2]
  two[np.isinf(two).all(1)] = 0
  score = np.clip(two[:, 1].astype(float) - two[:, 0], -1e30, 1e30)
  for name, of_binary in RANKING.items():
    due = of_binary(targets > 1, score)
    found = value(name, two, (targets > 1).astype(int))
    assert found == pytest.approx(due, abs=2e-4), name


def test_metrics_that_are_undefined_are_nan_and_others_are_not():
  outputs, targets = logits(2)
  one = np.zeros_like(targets)
  for name in ("auc", "average_precision", "sensitivity"):
    assert np.isnan(value(name, outputs, one)), name
    assert np.isfinite(value(name, outputs, targets)), name
  for name in ("specificity", "f1", "balanced_accuracy", "brier", "log_loss", "ece"):
    assert np.isfinite(value(name, outputs, one)), name
  outputs, targets = logits(4)
  for name in RANKING:
    assert np.isnan(value(name, outputs, np.minimum(targets, 2))), name
  risk, censored = outputs[:, 0], np.stack([targets, 0 * targets], 1).astype(float)
  assert np.isnan(value("concordance_index", risk, censored))


def test_r2_of_constant_targets_and_of_any_scale_is_that_of_scikit_learn():
  rng = np.random.default_rng(3)
  targets = rng.normal(size=(30, 3)).astype(np.float32)
  targets[:, 1] = 0.5
  outputs = targets + 0.3 * rng.normal(size=(30, 3)).astype(np.float32)
  due = sk.r2_score(targets, outputs)
  assert value("r2", outputs, targets) == pytest.approx(due, abs=1e-5)
  outputs[:, 1] = 0.5
  due = sk.r2_score(targets, outputs)
  assert value("r2", outputs, targets) == pytest.approx(due, abs=1e-5)
  assert np.isnan(value("r2", outputs[:1], targets[:1]))
  # Squares of these are beyond float32.
  for scale in (1e-30, 1e25):
    small = np.float32(scale) * np.stack([outputs, targets])
    assert value("r2", *small) == pytest.approx(due, abs=1e-5)
    rmse = sk.root_mean_squared_error(*small[::-1].astype(float))
    assert value("rmse", *small) == pytest.approx(rmse, rel=1e-5)


def loss_value(outputs, targets):
  return float(squared_error(jnp.asarray(outputs), jnp.asarray(targets)).mean())


@pytest.mark.parametrize("name", ["r2", "rmse", "squared_error"])
def test_outputs_of_other_axes_than_their_targets_are_refused(name):
  rng = np.random.default_rng(4)
  targets = rng.normal(size=(8, 3, 2)).astype(np.float32)
  outputs = rng.normal(size=(8, 3, 2)).astype(np.float32)
  rows = targets.reshape(8, -1), outputs.reshape(8, -1)
  due = {
    "r2": sk.r2_score(*rows),
    "rmse": sk.root_mean_squared_error(*rows),
    "squared_error": sk.mean_squared_error(*rows),
  }[name]

  def measured(outputs):
    if name == "squared_error":
      return loss_value(outputs, targets)
    return value(name, outputs, targets)

  for same in (outputs, outputs[:, None], outputs[..., None]):
    assert measured(same) == pytest.approx(due, rel=1e-5)
  for other in (outputs.reshape(8, 2, 3), outputs.reshape(8, 6), outputs[:, :1]):
    with pytest.raises(vs.UserError, match=r"for targets \(8, 3, 2\): give the same"):
      measured(other)


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


def confident_accuracy(outputs, targets):
  accuracy = (outputs.argmax(1) == targets).mean()
  return jnp.where(outputs[0, 0] > 0, accuracy, jnp.nan)


@pytest.mark.slow
def test_a_metric_that_is_undefined_leaves_everything_else_alone(tmp_path):
  """Of a test set of one class, and a metric of one's own."""
  one = np.flatnonzero(Y[40:] == 1) + 40
  of_one = vs.Dataset(train=(X[:40], Y[:40]), test=(X[one], Y[one]))
  metrics = {"auc": "auc", "f1": "f1", "own": confident_accuracy}
  out, plain = tmp_path / "a", tmp_path / "b"
  how = HOW | {"logits": True}
  runs = vs.Runs.independent(12)
  vs.train(recipe(dataset=of_one, metrics=metrics), runs, out, **how)
  vs.train(recipe(dataset=of_one, metrics={"f1": "f1"}), runs, plain, **how)

  results = vs.open_results(out)
  assert not results.diverged.any()
  is_defined = results.logits.values[:, 0, 0] > 0
  count = 12 - is_defined.sum()
  assert 0 < count < 12
  np.testing.assert_array_equal(np.isnan(results.own), ~is_defined)
  (summary,), (alone,) = vs.report(out), vs.report(plain)
  assert summary["statistics"] == alone["statistics"]
  sections = {s["output"]: s for s in (summary, *summary["further"])}
  assert {*sections} == {"predictions", "f1", "own"}
  (f1,) = alone["further"]
  assert sections["f1"]["statistics"] == f1["statistics"]
  own = sections["own"]
  assert (own["runs"], own["undefined"], own["diverged"]) == (12 - count, count, 0)
  right = results.accuracy.values[is_defined]
  assert own["statistics"]["mean"]["value"] == pytest.approx(right.mean())
  notes = [note for note in vs.report(out).notes if "undefined" in note]
  assert len(notes) == 2
  assert "auc is undefined in all 12 runs" in notes[0]
  assert f"own is undefined in {count} of 12 runs" in notes[1]
  vs.report(out).save(tmp_path / "page")

  again = vs.measure(out, metrics | {"brier": "brier"})
  p = scipy.special.softmax(results.logits.values.astype(float), axis=-1)[..., 1]
  assert again.brier.attrs["mean"] == pytest.approx(((1 - p) ** 2).mean(), rel=1e-5)
  assert again.brier.attrs["undefined"] == 0
  assert (again.auc.attrs["undefined"], again.own.attrs["undefined"]) == (12, count)
  assert again.own.attrs["mean"] == pytest.approx(right.mean())
  assert np.isnan(again.auc.attrs["mean"])
  assert vs.open_results(out).brier.values == pytest.approx(again.brier.values)


@pytest.mark.slow
def test_folds_that_lack_a_rare_class_have_accuracies_and_no_area(tmp_path):
  rare = np.zeros(61, int)
  rare[:3] = 1
  of = recipe(dataset=vs.Dataset(train=(X, rare)), metrics=["auc"])
  vs.train(of, vs.Runs.independent(2).k_fold(5), tmp_path / "k", **HOW)
  results = vs.open_results(tmp_path / "k")
  assert not results.diverged.any()
  undefined = int(np.isnan(results.test_auc).sum())
  assert 0 < undefined < 10
  (summary,) = vs.report(tmp_path / "k")
  assert (summary["output"], summary["runs"]) == ("test_accuracy", 10)
  mean = float(results.test_accuracy.mean())
  assert summary["statistics"]["mean"]["value"] == pytest.approx(mean)
  areas = [of for of in summary["further"] if of["output"] == "test_auc"]
  (area,) = areas
  assert (area["undefined"], area["diverged"]) == (undefined, 0)
  table = vs.run_table(tmp_path / "k")
  assert table.test_auc.isna().sum() == undefined
  assert table.test_accuracy.notna().all()


def test_the_names_of_arrays_of_the_product_are_refused_at_every_door(
  trained, tmp_path
):
  message = "that name is already used in the results"
  sets = {"test": (X[40:], Y[40:]), "held_out": (X[40:], Y[40:])}
  data = vs.Dataset(train=(X[:40], Y[:40]), tests=sets)
  with pytest.raises(vs.UserError, match=f"test set 'held_out': {message}"):
    vs.train(recipe(dataset=data, test_sets=["test", "held_out"]), 2, tmp_path, **HOW)
  for name in ("held_out", "example_id", "run_place", "id_letter", "original_labels"):
    with pytest.raises(vs.UserError, match=f"metric '{name}': {message}"):
      recipe(metrics={name: "auc"})
    with pytest.raises(vs.UserError, match=f"metric '{name}': {message}"):
      vs.measure(trained, {name: "auc"})
  predictions = np.zeros((3, 4), int)
  for name in ("mask", "votes", "example_id", "logits", "targets"):
    with pytest.raises(vs.UserError, match=f"value '{name}': {message}"):
      vs.import_runs(
        tmp_path / name,
        predictions=predictions,
        labels=predictions[0],
        values={name: [1, 2, 3]},
        progress=False,
      )


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


def macro(outputs, targets):
  return sk.f1_score(targets, outputs.argmax(1), average="macro")


def mostly_right(outputs, targets):
  if (outputs.argmax(1) == targets).mean() > 0.5:
    return 1.0
  return 0.0


def mean_of_numbers(outputs, targets):
  return float(outputs.mean())


@pytest.mark.parametrize("metric", [macro, mostly_right, mean_of_numbers])
def test_metrics_that_need_numbers_are_measured_afterwards(metric, trained, tmp_path):
  said = (
    r"metric mine needs the numbers of an array that JAX only traces, "
    r"test_metrics.py line \d+: compute with jax.numpy, not with NumPy, scikit-learn or "
    r"Python's if, float and range; or keep logits, and give the metric to vs.measure"
  )
  with pytest.raises(vs.UserError, match=said):
    vs.train(recipe(metrics={"mine": metric}), 2, tmp_path / "a", **HOW)

  results = vs.open_results(trained)
  found = vs.measure(results, {"late": metric}).late
  targets = Y[40:]
  due = [metric(outputs, targets) for outputs in results.logits.values]
  np.testing.assert_allclose(found, due, rtol=1e-6)
  log_p = scipy.special.log_softmax(results.logits.values.astype(float), axis=-1)
  together = scipy.special.logsumexp(log_p, axis=0) - np.log(4)
  assert found.attrs["ensemble"] == pytest.approx(metric(together, targets), rel=1e-5)


@pytest.mark.parametrize(
  ("name", "meant"),
  [
    ("macro_f1", "f1"),
    ("f1-macro", "f1"),
    ("f1_score", "f1"),
    ("roc_auc", "auc"),
    ("AUC", "auc"),
    ("brier_score", "brier"),
    ("c_index", "concordance_index"),
    ("balanced_acc", "balanced_accuracy"),
  ],
)
def test_names_that_other_libraries_have_lead_to_those_here(name, meant, trained):
  for call in (
    lambda: recipe(metrics=[name]),
    lambda: vs.measure(trained, [name]),
  ):
    with pytest.raises(
      vs.UserError, match=rf"unknown metric '{name}': .*did you mean '{meant}'"
    ):
      call()


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
