"""Runs recorded one after another: what the folder holds against plain NumPy and against
an import, who may add to it, and what is refused by which words.
"""

import builtins
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from cases import mostly_slow
from test_cli import run

import vmapseeds as vs
from vmapseeds.store import growing

EXAMPLES, CLASSES = 40, 4
rng = np.random.default_rng(0)
LABELS = rng.integers(0, CLASSES, EXAMPLES)
SHIFT = rng.integers(0, CLASSES, 15)
LOGITS = rng.normal(size=(12, EXAMPLES, CLASSES)).astype(np.float32)
PREDICTIONS = LOGITS.argmax(-1)
SEEDS, LRS = np.repeat(np.arange(6), 2), np.tile([0.1, 0.4], 6)


def record(out, rows=range(12), **given):
  recorder = vs.Recorder(out, labels=LABELS, **given)
  for i in rows:
    recorder.add(PREDICTIONS[i], seed=SEEDS[i], lr=LRS[i])
  return recorder


def content(folder):
  """The stored numbers, whatever the blocks."""
  results = vs.open_results(folder).drop_vars("run_place", errors="ignore")
  return {
    name: array.values.tolist()
    for name, array in results.variables.items()
    if array.dims[:1] == ("run",)
  }


def files_below(folder):
  return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


def is_sound(folder):
  verdict = vs.verify(folder)
  return (verdict.problems, verdict.notes) == ([], []) and verdict.done == verdict.runs


def test_runs_are_those_that_were_added(tmp_path):
  recorder = record(tmp_path / "r")
  results = vs.open_results(tmp_path / "r")
  np.testing.assert_array_equal(results.predictions, PREDICTIONS)
  np.testing.assert_array_equal(results.labels, LABELS)
  np.testing.assert_array_equal(results.seed, SEEDS)
  np.testing.assert_array_equal(results.lr, LRS)
  np.testing.assert_array_equal(results.accuracy, (PREDICTIONS == LABELS).mean(1))
  assert {"seed", "lr"} <= {*results.coords}
  assert (len(recorder), results.attrs["num_classes"]) == (12, CLASSES)
  assert json.loads(results.attrs["recipe"])["name"] == "r"
  assert is_sound(tmp_path / "r")


@pytest.mark.parametrize("keep", [False, True])
def test_one_by_one_several_at_once_and_imported(keep, tmp_path):
  given = {"keep_logits": keep}
  one = vs.Recorder(tmp_path / "one", labels=LABELS, **given)
  for i in range(12):
    one.add(logits=LOGITS[i], seed=SEEDS[i], lr=LRS[i])
  several = vs.Recorder(tmp_path / "several", labels=LABELS, **given)
  for rows in (slice(0, 5), slice(5, 6), slice(6, 12)):
    several.add(logits=LOGITS[rows], lr=LRS[rows], seed=SEEDS[rows])
  values = pd.DataFrame({"seed": SEEDS, "lr": LRS})
  for name, rows in (("a", slice(0, 12)), ("b", slice(0, 7)), ("b", slice(7, 12))):
    vs.import_runs(
      tmp_path / name,
      labels=LABELS,
      logits=LOGITS[rows],
      values=values[rows],
      block_runs=4,
      progress=False,
      **given,
    )
  wanted = content(tmp_path / "a")
  assert ("logits" in wanted) == keep
  for name in ("one", "several", "b"):
    assert content(tmp_path / name) == wanted
    assert is_sound(tmp_path / name)


@pytest.mark.parametrize(
  ("predictions", "values"),
  [
    (
      pd.DataFrame(PREDICTIONS).astype("Int64"),
      pd.DataFrame({"seed": SEEDS, "lr": LRS}),
    ),
    (
      pd.DataFrame(PREDICTIONS).astype("category"),
      pd.DataFrame({"lr": LRS}, index=pd.Index(SEEDS, name="seed")),
    ),
    (
      PREDICTIONS.astype(object),
      pd.DataFrame({"seed": SEEDS, "lr": LRS}).convert_dtypes(dtype_backend="pyarrow"),
    ),
  ],
)
def test_frames_of_any_types(predictions, values, tmp_path):
  results = vs.import_runs(
    tmp_path / "r",
    labels=pd.Series(LABELS, dtype="Int64"),
    predictions=predictions,
    values=values,
    progress=False,
  )
  np.testing.assert_array_equal(results.predictions, PREDICTIONS)
  np.testing.assert_array_equal(results.labels, LABELS)
  np.testing.assert_array_equal(results.seed, SEEDS)
  np.testing.assert_array_equal(results.lr, LRS)


NAMES = np.array(["eel", "cat", "a; dog", "ant"])


@pytest.mark.parametrize(
  "given",
  [
    {"labels": pd.Series(NAMES[LABELS]), "predictions": NAMES[PREDICTIONS]},
    {"labels": NAMES[LABELS].tolist(), "predictions": pd.DataFrame(NAMES[PREDICTIONS])},
    {"labels": NAMES[LABELS], "predictions": NAMES[PREDICTIONS], "class_names": NAMES},
    {"labels": LABELS, "predictions": NAMES[PREDICTIONS], "class_names": NAMES},
    {"labels": NAMES[LABELS], "predictions": PREDICTIONS, "class_names": NAMES},
    {"labels": NAMES[LABELS], "logits": LOGITS[..., np.argsort(NAMES)]},
  ],
  ids=["series", "lists", "class_names", "predictions", "labels", "logits"],
)
def test_names_of_classes(given, tmp_path):
  """A plain comparison of names."""
  expected = (NAMES[PREDICTIONS] == NAMES[LABELS]).mean(1)
  results = vs.import_runs(tmp_path / "i", **given, progress=False)
  np.testing.assert_array_equal(results.accuracy, expected)
  names = json.loads(results.labels.attrs["class_names"])
  assert names == ([*NAMES] if "class_names" in given else sorted(NAMES))
  assert np.array(names)[results.predictions].tolist() == NAMES[PREDICTIONS].tolist()

  kind = "logits" if "logits" in given else "predictions"
  arrays = np.asarray(given.pop(kind))
  recorder = vs.Recorder(tmp_path / "r", **given)
  recorder.add(**{kind: arrays[:9]}, seed=range(9))
  vs.Recorder(tmp_path / "r", **given).add(**{kind: arrays[9:]}, seed=range(9, 12))
  recorded = vs.open_results(tmp_path / "r")
  np.testing.assert_array_equal(recorded.predictions, results.predictions)


def test_a_run_that_names_no_class_was_not_asked(tmp_path):
  predictions = NAMES[PREDICTIONS].astype(object)
  predictions[:, :7] = None
  predictions[:, 7] = np.nan
  expected = (NAMES[PREDICTIONS] == NAMES[LABELS])[:, 8:].mean(1)
  results = vs.import_runs(
    tmp_path / "r", labels=NAMES[LABELS], predictions=predictions, progress=False
  )
  np.testing.assert_allclose(results.accuracy, expected, rtol=1e-15)


@pytest.mark.parametrize(
  ("given", "said"),
  [
    (
      {"labels": LABELS},
      "labels are numbers, and predictions names, such as 'a; dog': ",
    ),
    ({"labels": NAMES[LABELS], "num_classes": 9}, "4 class names for 9 classes"),
    (
      {"labels": np.where(LABELS == 0, None, NAMES[LABELS])},
      "labels is at example .*: leave examples without a label out",
    ),
    (
      {"labels": NAMES[LABELS], "class_names": ["eel", "cat", "ant"]},
      r"labels is a; dog at example \d+: classes are eel, cat, ant; give all",
    ),
  ],
)
def test_names_that_are_refused(given, said, tmp_path):
  with pytest.raises(vs.UserError, match=said):
    vs.Recorder(tmp_path / "r", **given).add(NAMES[PREDICTIONS[0]], seed=0)
  assert not (tmp_path / "r").exists()


def test_a_later_run_has_the_classes_of_the_first(tmp_path):
  vs.Recorder(tmp_path / "r", labels=NAMES[LABELS]).add(NAMES[PREDICTIONS[0]], seed=0)
  other = NAMES[PREDICTIONS[1]].astype("U9")
  other[3] = "fox"
  with pytest.raises(vs.UserError, match="predictions is fox at run 0, example 3: "):
    vs.Recorder(tmp_path / "r").add(other, seed=1)
  record(tmp_path / "numbers", range(1))
  with pytest.raises(
    vs.UserError, match="are names, such as 'a; dog', and classes have"
  ):
    vs.Recorder(tmp_path / "numbers").add(NAMES[PREDICTIONS[1]], seed=1, lr=0.1)


def test_several_test_sets(tmp_path, capsys):
  labels = {"test": LABELS, "shift": SHIFT}
  shifted = rng.integers(0, CLASSES, (3, len(SHIFT)))
  recorder = vs.Recorder(tmp_path / "r", labels=labels, num_classes=5)
  for i in range(3):
    recorder.add({"test": PREDICTIONS[i], "shift": shifted[i]}, seed=i)
  for name, of in {**labels, "run": PREDICTIONS[:3], "run2": shifted}.items():
    np.save(tmp_path / f"{name}.npy", of)
  pd.DataFrame({"seed": [0, 1, 2]}).to_csv(tmp_path / "runs.csv", index=False)
  status, _, err = run(
    capsys,
    *("import", "--out", tmp_path / "i", "--classes", 5, "--quiet"),
    *("--labels", f"test={tmp_path}/test.npy", f"shift={tmp_path}/shift.npy"),
    *("--predictions", f"test={tmp_path}/run.npy", f"shift={tmp_path}/run2.npy"),
    *("--values", tmp_path / "runs.csv"),
  )
  assert (status, err) == (0, "")
  assert content(tmp_path / "i") == content(tmp_path / "r")
  for name, of in (("test", PREDICTIONS[:3]), ("shift", shifted)):
    results = vs.open_results(tmp_path / "i", name)
    np.testing.assert_array_equal(results.accuracy, (of == labels[name]).mean(1))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["blocks", "report", "run", "held_out", "measured"])
def test_test_sets_called_as_something_in_the_folder_are_refused(name, tmp_path):
  for call in (
    lambda: vs.Recorder(tmp_path / "r", labels={name: LABELS}),
    lambda: vs.import_runs(
      tmp_path / "r", labels={name: LABELS}, predictions={name: PREDICTIONS}
    ),
  ):
    with pytest.raises(vs.UserError, match=f"test set '{name}': that name is already"):
      call()
  assert not (tmp_path / "r").exists()


def test_folders_with_equal_labels_merge(tmp_path):
  for name, rows in (("a", range(5)), ("b", range(3, 12))):
    record(tmp_path / name, rows)
  vs.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "m", progress=False)
  record(tmp_path / "all")
  assert content(tmp_path / "m") == content(tmp_path / "all")
  vs.Recorder(tmp_path / "m").add(PREDICTIONS[0], seed=9, lr=0.1)
  assert vs.open_results(tmp_path / "m").seed[-1] == 9
  assert is_sound(tmp_path / "m")


def test_runs_without_seeds_merge_as_different_runs(tmp_path):
  for name, count in (("a", 2), ("b", 3)):
    given = {"labels": LABELS, "predictions": PREDICTIONS[:count], "num_classes": 9}
    vs.import_runs(tmp_path / name, progress=False, **given)
  merged = vs.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "m", progress=False)
  np.testing.assert_array_equal(merged.predictions, PREDICTIONS[[0, 1, 0, 1, 2]])
  for labels, classes, said in (
    (LABELS[::-1], 9, "its test/labels are others, with as many labels of each class,"),
    ((LABELS + 1) % 4, 9, "its test/labels are others, with other labels at 100% of"),
    (LABELS, 8, "it has 8 classes, not 9"),
  ):
    given = {"labels": labels, "predictions": PREDICTIONS, "num_classes": classes}
    vs.import_runs(tmp_path / said[:20], progress=False, **given)
    with pytest.raises(vs.UserError, match=said):
      vs.merge([tmp_path / "a", tmp_path / said[:20]], tmp_path / "no", progress=False)
    assert not (tmp_path / "no").exists()
    shutil.rmtree(tmp_path / said[:20])


@pytest.mark.slow
def test_reports_group_by_values_and_comparisons_pair_by_seeds(tmp_path):
  record(tmp_path / "r")
  groups = vs.report(tmp_path / "r")
  right = (PREDICTIONS == LABELS).mean(1)
  means = {g["values"]["lr"]: g["statistics"]["mean_accuracy"]["value"] for g in groups}
  assert means == {lr: pytest.approx(right[lr == LRS].mean()) for lr in (0.1, 0.4)}
  (found,) = vs.compare(tmp_path / "r", where={"lr": 0.1}, against={"lr": 0.4})
  assert found.matching == "the same seeds"
  difference = right[LRS == 0.1].mean() - right[LRS == 0.4].mean()
  assert found.found.difference == pytest.approx(difference)


def test_the_first_error_leaves_the_folder_as_it_was(tmp_path):
  recorder = vs.Recorder(tmp_path / "r", labels=LABELS, num_classes=CLASSES)
  recorder.add(logits=LOGITS[:2], seed=[0, 1])
  before = files_below(tmp_path)
  broken = LOGITS.copy()
  broken[3, 1, 2] = np.nan
  with pytest.raises(vs.UserError, match="logits is nan at run 3, example 1, class 2"):
    recorder.add(logits=broken[:6], seed=np.arange(6) + 5)
  assert files_below(tmp_path) == before
  assert is_sound(tmp_path / "r")
  recorder.add(logits=LOGITS[2:7], seed=np.arange(5) + 5)
  np.testing.assert_array_equal(
    vs.open_results(tmp_path / "r").predictions, PREDICTIONS[:7]
  )


class Tensor:
  """Like PyTorch's with a gradient: NumPy reads it only once that is left out."""

  def __init__(self, array, has_gradient=True):
    self.array, self.has_gradient = np.asarray(array), has_gradient
    self.shape, self.dtype = self.array.shape, self.array.dtype

  def __len__(self):
    return len(self.array)

  def __getitem__(self, place):
    return Tensor(self.array[place], self.has_gradient)

  def __float__(self):
    return float(self.array)

  def detach(self):
    return Tensor(self.array, has_gradient=False)

  def __array__(self, dtype=None, copy=None):
    if self.has_gradient:
      raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
    return self.array


def tensor_of_torch(array):
  return pytest.importorskip("torch").tensor(array, requires_grad=True)


def long_double(array):
  return np.asarray(array, np.longdouble)


@pytest.mark.parametrize("make", mostly_slow([Tensor, long_double, tensor_of_torch], 2))
def test_tensors_with_gradients_and_long_doubles_at_every_door(make, tmp_path):
  areas = np.linspace(0.5, 0.9, 12)
  recorder = vs.Recorder(tmp_path / "r", labels=LABELS, keep_logits=True)
  recorder.add(
    logits=make(LOGITS), seed=SEEDS, lr=make(LRS), scores={"area": make(areas)}
  )
  np.testing.assert_array_equal(vs.open_results(tmp_path / "r").area, areas)
  imported = vs.import_runs(
    tmp_path / "i",
    labels=LABELS,
    logits=make(LOGITS),
    values={"seed": SEEDS, "lr": make(LRS)},
    keep_logits=True,
    progress=False,
  )
  for results in (vs.open_results(tmp_path / "r"), imported):
    np.testing.assert_array_equal(results.logits, LOGITS)
    np.testing.assert_array_equal(results.lr, LRS)

  x = LOGITS[:3, :, 0]
  inputs = vs.Dataset(train=(make(x), [0, 1, 1]), test=(x, [0, 1, 1])).train.inputs
  assert inputs.dtype == np.float32
  np.testing.assert_array_equal(inputs, x)
  targets = vs.Dataset(train=(x, make(x)), test=(x, x)).train.targets
  assert targets.dtype == np.float32
  np.testing.assert_array_equal(targets, x)
  assert vs.stats.mean_over_runs(make(areas)).se == pytest.approx(
    np.std(areas, ddof=1) / np.sqrt(12)
  )
  swept = vs.Runs.sweep(lr=make(LRS[:2]), seeds=1).values["lr"]
  np.testing.assert_allclose(swept, LRS[:2])


@pytest.mark.parametrize("name", mostly_slow(["two\nlines", "a\ttab"]))
def test_folders_and_files_whose_names_cannot_be_shown(name, tmp_path, undrawn):
  np.save(tmp_path / f"{name}.npy", PREDICTIONS)
  recorder = record(tmp_path / name)
  imported = vs.import_runs(
    tmp_path / f"{name} imported",
    labels=LABELS,
    predictions=tmp_path / f"{name}.npy",
    progress=False,
  )
  np.testing.assert_array_equal(imported.predictions, PREDICTIONS)
  assert recorder.has(seed=3, lr=0.4)
  report = vs.report(tmp_path / name)
  assert name not in str(report)
  report.save()
  assert (tmp_path / name / "report" / "report.html").exists()


def test_a_link_that_leads_nowhere_is_refused_at_once(tmp_path):
  """It looked like a claim of another process, which was waited for."""
  link = tmp_path / "link"
  os.symlink("gone", link)
  said = f"{link} is a link to gone, which does not exist: make that folder, or give"
  for call in (
    lambda: record(link),
    lambda: record(link / "below"),
    lambda: vs.import_runs(link, labels=LABELS, predictions=PREDICTIONS),
    lambda: vs.train("digits_cnn", 2, link, progress=False),
    lambda: vs.merge([record(tmp_path / "r").path], link),
  ):
    with pytest.raises(vs.UserError, match=said):
      call()
  (tmp_path / "gone").mkdir()
  assert is_sound(record(link).path)


def test_paths_mean_what_they_meant_when_they_were_given(
  tmp_path, monkeypatch, undrawn
):
  for name in ("here", "there", "home"):
    (tmp_path / name).mkdir()
  monkeypatch.setenv("HOME", str(tmp_path / "home"))
  monkeypatch.chdir(tmp_path / "here")
  recorder = record("r", range(4))
  at_home = record("~/r")
  results = vs.open_results("r")
  report = vs.report("r")
  comparison = vs.compare("r", "r", where={"lr": 0.1}, against={"lr": 0.4})
  monkeypatch.chdir(tmp_path / "there")
  np.testing.assert_array_equal(results.predictions, PREDICTIONS[:4])
  recorder.add(PREDICTIONS[4], seed=4, lr=LRS[4])
  report.save()
  comparison.save("c")
  np.save("p.npy", PREDICTIONS)
  np.save(tmp_path / "home" / "p.npy", PREDICTIONS[::-1])
  imported = vs.import_runs("~/i", labels=LABELS, predictions="~/p.npy", progress=False)
  np.testing.assert_array_equal(imported.predictions, PREDICTIONS[::-1])
  assert {path.name for path in (tmp_path / "home").iterdir()} == {"r", "i", "p.npy"}
  assert len(vs.open_results(tmp_path / "here" / "r").run) == 5
  assert (tmp_path / "here" / "r" / "report" / "report.html").exists()
  assert {path.name for path in (tmp_path / "there").iterdir()} == {"c", "p.npy"}
  assert at_home.path == tmp_path / "home" / "r"


def test_a_value_called_epoch_is_chosen_as_any_other(tmp_path, capsys):
  recorder = vs.Recorder(tmp_path / "r", labels=LABELS)
  recorder.add(PREDICTIONS, seed=SEEDS, epoch=np.tile([2, 5], 6))
  with pytest.raises(vs.UserError, match=r"choose where=\{'epoch': 2\}"):
    vs.report(tmp_path / "r", epoch=2)
  status, _, err = run(capsys, "report", tmp_path / "r", "--epoch", 2)
  assert status == 2
  assert "epoch is a value of these runs, choose --where epoch=2" in err
  (summary,) = vs.report(tmp_path / "r", where={"epoch": 2})
  mean = summary["statistics"]["mean_accuracy"]["value"]
  assert mean == pytest.approx((PREDICTIONS[::2] == LABELS).mean())


def test_values_are_shown_and_chosen_as_people_write_them(tmp_path, capsys):
  third = 0.07 * 3
  assert third != 0.21
  recorder = vs.Recorder(tmp_path / "r", labels=LABELS)
  recorder.add(PREDICTIONS, seed=SEEDS, val_loss=np.tile([third, 0.4], 6))
  shown = str(vs.report(tmp_path / "r"))
  assert "val_loss=0.21" in shown
  assert "0.21000" not in shown
  due = (PREDICTIONS[::2] == LABELS).mean()
  (summary,) = vs.report(tmp_path / "r", where={"val_loss": 0.21})
  assert summary["statistics"]["mean_accuracy"]["value"] == pytest.approx(due)
  chosen = ("--where", "val_loss=0.21", "--against", "val_loss=0.4")
  status, out, _ = run(capsys, "compare", tmp_path / "r", *chosen)
  assert status == 0
  assert "val_loss=0.21" in out
  assert "0.21000" not in out
  # Stored as it was given.
  assert set(vs.open_results(tmp_path / "r").val_loss.values) == {third, 0.4}


def test_bars_ask_for_no_widgets_in_a_notebook(tmp_path, monkeypatch, capsys):
  class ZMQInteractiveShell:
    """Of a notebook, by the name of which rich knows it."""

  monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
  monkeypatch.setitem(sys.modules, "ipywidgets", None)
  # The warning that ipywidgets is not there would be an error.
  for name in "ab":
    seeds = {"seed": SEEDS[::2] + 10 * (name == "b")}
    vs.import_runs(
      tmp_path / name,
      labels=LABELS,
      predictions=PREDICTIONS[::2],
      values=seeds,
      block_runs=2,
    )
  vs.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "c")
  vs.repeat(
    lambda run: {"predictions": PREDICTIONS[0]}, 2, tmp_path / "d", labels=LABELS
  )
  # A text is not shown besides.
  assert "noise of the test set" in str(vs.report(tmp_path / "c"))
  assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
  ("given", "said"),
  [
    ({"seed": 1}, r"the run has seed: runs of \S*/r have seed, lr, give the same"),
    ({"seed": 0, "lr": 0.1}, "r has a run with seed=0, lr=0.1, or it is given twice"),
    ({"seed": 1.5, "lr": 1}, "seed is 1.5 at run 0: give a whole number from 0 on"),
    ({"seed": -1, "lr": 1}, "seed is -1 at run 0: give a whole number from 0 on"),
    (
      {"seed": 1, "lr": "adam"},
      "lr is adam, and the runs of .* have a number each: give one",
    ),
    ({"seed": 1, "lr": np.inf}, "lr is inf at run 0: give finite numbers"),
    ({"seed": 1, "lr": [1, 2]}, r"lr has shape \(2,\) beside 1 runs: give one number"),
    ({"seed": 1, "accuracy": 1}, "value 'accuracy': that name is already used in"),
    ({"seed": 1, "a/b": 1}, "value 'a/b' cannot be the name of a file"),
    (
      {"seed": 1, "lr": 1, "predictions": PREDICTIONS[0, 1:]},
      r"predictions has shape \(1, 39\), .* there are 40 examples: give one entry an example",
    ),
    (
      {"seed": 1, "lr": 1, "predictions": LOGITS[0].astype(int)},
      r"predictions has shape \(40, 4\), .*: give logits=, if they are logits",
    ),
    (
      {"seed": 1, "lr": 1, "predictions": PREDICTIONS[0] + 1},
      "predictions is 4 at run 0, example [0-9]+: give class indices, 0 to 3, -1 for none",
    ),
    (
      {"seed": 1, "lr": 1, "predictions": None, "logits": LOGITS[0, :, 1:]},
      "logits has 3 classes, not 4: give one entry a class",
    ),
    (
      {"seed": 1, "lr": 1, "predictions": {"shift": PREDICTIONS[0]}},
      r"test sets are shift, those of \S*/r are test: give the same, in this order",
    ),
    ({"predictions": None}, "nothing is given: give one of predictions, logits"),
  ],
)
def test_what_does_not_fit_is_refused(given, said, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  recorder = record("r", range(1))
  before = content("r")
  with pytest.raises(vs.UserError, match=said) as mistake:
    recorder.add(**{"predictions": PREDICTIONS[0], **given})
  assert "\n" not in str(mistake.value)
  assert content("r") == before
  assert is_sound("r")


@pytest.mark.parametrize(
  ("given", "said"),
  [
    (
      {"labels": LABELS[::-1]},
      r"labels and \S*/r are of different examples, with as many",
    ),
    (
      {"labels": LABELS[1:]},
      r"labels and \S*/r are of different examples, of 39 and 40",
    ),
    ({"labels": {"shift": LABELS}}, r"test sets are shift, those of \S*/r are test"),
    ({"num_classes": 7}, r"/r has 4 classes, not 7"),
    ({"keep_logits": True}, r"/r keeps no logits: leave keep_logits out"),
    ({"name": 3}, "the name is 3: give text"),
  ],
)
def test_another_recorder_must_fit_the_folder(given, said, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  recorder = record("r", range(1))
  with pytest.raises(vs.UserError, match=said):
    vs.Recorder("r", **given)
  with pytest.raises(vs.UserError, match=r"'sed': runs of \S*/r have seed, lr"):
    recorder.has(sed=1)
  with pytest.raises(vs.UserError, match="new has no runs yet: give labels"):
    vs.Recorder("new").add(logits=LOGITS[0], seed=0)
  assert not (tmp_path / "new").exists()


# Files.


@pytest.mark.parametrize("kind", ["npz", "csv", "csv with a header", "parquet"])
def test_files_of_other_kinds(kind, tmp_path):
  file = {name: tmp_path / f"{name}.{kind[:7].split()[0]}" for name in "plv"}
  frames = {
    "p": pd.DataFrame(PREDICTIONS).add_prefix("x"),
    "l": pd.DataFrame({"y": LABELS}),
    "v": pd.DataFrame({"seed": SEEDS, "lr": LRS}),
  }
  if kind == "npz":
    np.savez(file["p"], predictions=PREDICTIONS, labels=LABELS)
    file["l"] = file["p"]
    np.savez(file["v"], seed=SEEDS, lr=LRS)
  elif kind == "parquet":
    pytest.importorskip("pyarrow")
    for name, frame in frames.items():
      frame.to_parquet(file[name])
  else:
    for name, frame in frames.items():
      frame.to_csv(file[name], index=False, header=name == "v" or "header" in kind)
  results = vs.import_runs(
    tmp_path / "r",
    labels=file["l"],
    predictions=file["p"],
    values=file["v"],
    progress=False,
  )
  np.testing.assert_array_equal(results.predictions, PREDICTIONS)
  np.testing.assert_array_equal(results.labels, LABELS)
  np.testing.assert_array_equal(results.seed, SEEDS)
  np.testing.assert_array_equal(results.lr, LRS)


def test_what_files_cannot_be_read(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  np.savez("two.npz", a=LABELS, b=LABELS)
  (tmp_path / "model.pt").write_bytes(b"PK")
  (tmp_path / "words.csv").write_text("seed\nnone\n")
  (tmp_path / "runs.xlsx").write_text("seed\n1\n")

  def absent(*_):
    raise ImportError

  monkeypatch.setattr(pd, "read_parquet", absent)
  (tmp_path / "x.parquet").write_bytes(b"PAR1")
  for given, said in (
    ({"labels": "two.npz"}, "two.npz holds a, b: call the array 'labels', or give a"),
    ({"labels": "model.pt"}, r"np.save\('model.npy', tensor.cpu\(\).numpy\(\)\)"),
    ({"labels": "x.parquet"}, "parquet files need pyarrow: pip install pyarrow"),
    ({"values": "words.csv"}, "seed is 'none' at run 0: give a whole number"),
    ({"values": "runs.xlsx"}, "runs.xlsx cannot be read|needs openpyxl"),
    ({"values": "runs.h5"}, r"values are in \S*/runs.h5: give a table as .csv, .tsv"),
    ({"values": "no.csv"}, "no.csv cannot be read"),
    ({"values": {"seed": [1, 2]}}, r"seed has shape \(2,\) beside 1 runs"),
    ({"values": 3}, "values are 3: give name -> numbers, such as"),
    (
      {"values": {"seed": 1, "lr": 1, "labels": 1}},
      "value 'labels': that name is already",
    ),
  ):
    with pytest.raises(vs.UserError, match=said):
      vs.import_runs("r", **{"predictions": PREDICTIONS[:1], "labels": LABELS, **given})
    assert not (tmp_path / "r").exists()


def test_imports_are_added_once(tmp_path, capsys):
  np.save(tmp_path / "p.npy", PREDICTIONS)
  np.save(tmp_path / "y.npy", LABELS)
  out = tmp_path / "r"
  given = ("import", "--out", out, "--predictions", tmp_path / "p.npy", "--quiet")
  assert run(capsys, *given, "--labels", tmp_path / "y.npy")[0] == 0
  status, _, err = run(capsys, *given)
  assert (status, err) == (
    2,
    f"error: {out} has these predictions already, from run 0 on: give each run a seed if "
    "they are others\n",
  )
  np.save(tmp_path / "p.npy", PREDICTIONS[::-1])
  status, said, _ = run(capsys, *given)
  assert status == 0
  assert said.startswith("24 runs on 40 examples of 4 classes")
  status, _, err = run(capsys, *given, "--labels", "a=x.npy", "a=y.npy")
  assert status == 2
  assert "--labels gives a twice, x.npy and y.npy" in err


# Several processes, and none left.

PROGRAM = """
import numpy as np, os, sys
import vmapseeds as vs
from vmapseeds.store import folders, growing

if sys.argv[2] == "killed":
  folders.write_plan = lambda *_: os._exit(9)
  growing.write_plan = lambda *_: os._exit(9)  # the block is written by now
recorder = vs.Recorder(sys.argv[1], labels=[0, 1, 2])
for seed in map(int, sys.argv[3:]):
  try:
    recorder.add([seed % 3] * 3, seed=seed)
  except vs.UserError as mistake:
    print(mistake)
"""


def command(folder, *given):
  return [sys.executable, "-c", PROGRAM, str(folder), *map(str, given)]


@pytest.mark.slow
def test_processes_that_add_at_once(tmp_path):
  seeds = [range(12), range(8, 20), range(18, 30)]
  processes = [
    subprocess.Popen(
      command(tmp_path / "r", "alive", *of), stdout=subprocess.PIPE, text=True
    )
    for of in seeds
  ]
  said = [process.communicate(timeout=300)[0] for process in processes]
  assert [process.returncode for process in processes] == [0, 0, 0]
  assert sum(out.count("or it is given twice") for out in said) == 6
  results = vs.open_results(tmp_path / "r")
  assert sorted(results.seed.values) == [*range(30)]
  np.testing.assert_array_equal(results.predictions[:, 0], results.seed % 3)
  assert is_sound(tmp_path / "r")


@pytest.mark.slow
def test_a_kill_in_the_middle_of_an_add(tmp_path):
  # As the folder is made.
  assert subprocess.call(command(tmp_path / "r", "killed", 0)) == 9
  recorder = vs.Recorder(tmp_path / "r", labels=[0, 1, 2])
  recorder.add([1, 1, 1], seed=1)
  before = content(tmp_path / "r")
  assert subprocess.call(command(tmp_path / "r", "killed", 2)) == 9
  assert content(tmp_path / "r") == before
  verdict = vs.verify(tmp_path / "r")
  assert (verdict.runs, verdict.done, verdict.problems) == (1, 1, [])
  assert verdict.notes == [
    "more runs were to be added, and the process ended: what lies there of them is not used"
  ]
  vs.Recorder(tmp_path / "r").add([0, 0, 0], seed=3)
  assert vs.open_results(tmp_path / "r").seed.values.tolist() == [1, 3]
  assert is_sound(tmp_path / "r")


def test_columns_of_texts_of_other_lengths(tmp_path):
  scores = pd.DataFrame(
    {
      "seed": [0, 1, 0, 1],
      "model": ["gat", "gat", "a longer one", "a longer one"],
      "data": ["the longest name", "b", "the longest name", "b"],
      "rmse": [0.5, 0.25, 1.0, 0.75],
    }
  )
  opened = vs.import_runs(
    tmp_path / "r", scores=scores, by="model", score="rmse", lower_is_better="rmse"
  )
  assert sorted(opened.rmse.values.tolist()) == [0.25, 0.5, 0.75, 1.0]


def test_texts_of_later_runs_may_be_longer(tmp_path, monkeypatch):
  recorder = vs.Recorder(tmp_path / "r", labels=[0, 1, 2])
  models = ["cnn", "a", "a longer name", "été"]
  for i, model in enumerate(models):
    recorder.add([0, 1, i % 3], model=model, data=f"data{10**i}")
    opened = vs.open_results(tmp_path / "r")
    assert opened.model.values.tolist() == models[: i + 1]
    assert (
      opened["data"].values.tolist()
      == ["data1", "data10", "data100", "data1000"][: i + 1]
    )
  assert is_sound(tmp_path / "r")

  def end(*_):
    raise KeyboardInterrupt

  # The runs table is written by now, and the description is not.
  monkeypatch.setattr(growing, "replace", end)
  with pytest.raises(KeyboardInterrupt):
    recorder.add([0, 1, 2], model="a much longer name", data="x")
  monkeypatch.undo()
  assert vs.open_results(tmp_path / "r").model.values.tolist() == models
  vs.Recorder(tmp_path / "r").add([0, 1, 2], model="b", data="x")
  assert vs.open_results(tmp_path / "r").model.values.tolist() == [*models, "b"]


def test_folders_with_texts_of_other_lengths_merge(tmp_path):
  for model in ("gat", "a longer name"):
    recorder = vs.Recorder(tmp_path / model, labels=[0, 1, 2])
    recorder.add([[0, 1, 2], [0, 0, 2]], seed=[0, 1], model=model)
  folders = [tmp_path / "gat", tmp_path / "a longer name"]
  merged = vs.merge(folders, tmp_path / "m", progress=False)
  assert merged.model.values.tolist() == ["gat"] * 2 + ["a longer name"] * 2
  assert merged.seed.values.tolist() == [0, 1, 0, 1]
  assert is_sound(tmp_path / "m")
