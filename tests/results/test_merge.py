"""Folders that were trained apart become one, which equals one campaign of all runs bit
for bit.
"""

import json
import shutil

import numpy as np
import pytest
from test_cli import run

import vmapseeds as vs
from experiments.merging import merged
from vmapseeds.data import load_dataset
from vmapseeds.results import merging
from vmapseeds.results.merging import match_runs
from vmapseeds.store.folders import create_folder
from vmapseeds.store.layout import read_metadata
from vmapseeds.store.results import Results

LINEAR = vs.recipe("digits_cnn", epochs=1, model="linear")


def train(out, runs, recipe=LINEAR, **options):
  return vs.train(recipe, runs, out, progress=False, **{"lane_width": 1, **options})


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
  """`all`: 12 runs with logits and parameters; `a` and `b`: the first 7 and the last 5,
  in blocks of other sizes.
  """
  folder = tmp_path_factory.mktemp("parts")
  kept = {"logits": True, "keep_params": True}
  train(folder / "all", vs.Runs.independent(12), **kept)
  train(folder / "a", vs.Runs.independent(7), seed_batch=4, **kept)
  train(folder / "b", vs.Runs.independent(5, start=7), seed_batch=3, **kept)
  return folder


def same(folder, reference):
  """Every array of one folder is that of the other, and both are sound."""
  one, other = Results(folder), Results(reference)
  assert one.columns + one.outputs == other.columns + other.outputs
  n = len(other)
  for name in (*one.columns, *one.outputs):
    a, b = (results.read(name, np.arange(n)) for results in (one, other))
    assert a.tobytes() == b.tobytes(), name
  a, b = (results.read_plan(["test/labels"])["test/labels"] for results in (one, other))
  np.testing.assert_array_equal(a, b)
  assert vs.verify(folder) == (n, n, [], [], [])


@pytest.mark.slow
@pytest.mark.optimized
def test_another_process_makes_the_folder_meanwhile(
  parts, tmp_path, capsys, monkeypatch
):
  def slower(*given, **about):
    shutil.copytree(parts / "b", tmp_path / "m", dirs_exist_ok=True)
    return create_folder(*given, **about)

  monkeypatch.setattr(merging, "create_folder", slower)
  status, out, err = run(capsys, "merge", parts / "a", "--out", tmp_path / "m")
  assert (status, out) == (2, "")
  assert (
    err
    == f"error: {tmp_path}/m was made by another process meanwhile: give another folder\n"
  )
  same(tmp_path / "m", parts / "b")


@pytest.mark.slow
@pytest.mark.optimized
def test_a_campaign_that_was_split_by_its_seeds(parts, tmp_path, capsys):
  status, out, err = run(
    capsys, "merge", parts / "a", parts / "b", "--out", tmp_path / "c" / "m", "--quiet"
  )
  assert (status, err) == (0, "")
  accuracy = vs.open_results(parts / "all").accuracy.values.mean()
  assert out == (
    f"12 runs in {tmp_path}/c/m, mean accuracy {accuracy:.2%}; next: vmapseeds report {tmp_path}/c/m\n"
  )
  same(tmp_path / "c" / "m", parts / "all")
  ours, theirs = read_metadata(tmp_path / "c" / "m"), read_metadata(parts / "all")
  for count in ("votes", "counted"):  # merged folders have no counts over runs
    del theirs["arrays"][f"test/{count}"]
  cut = {"block_runs": 4, "extents": [4, 7, 10, 12], "digest": None}
  assert {**ours, **cut} == {**theirs, **cut}
  assert {**ours, **cut, "digest": ours["digest"]} == ours

  # Each block of the new folder is one of `a` or `b`, with what its record says.
  merged = Results(tmp_path / "c" / "m")
  for block, (part, of_part) in enumerate([("a", 0), ("a", 1), ("b", 0), ("b", 1)]):
    theirs = Results(parts / part).record(of_part)
    for count in ("votes", "counted"):
      del theirs["digests"][f"test/{count}"]
    del theirs["values"]["test/counted"]
    own = {"block": block, "digest": ""}
    assert {**merged.record(block), **own} == {**theirs, **own}
  assert vs.replay(tmp_path / "c" / "m", 9).same
  train(tmp_path / "c" / "m", vs.Runs.independent(13), logits=True, keep_params=True)
  assert vs.verify(tmp_path / "c" / "m") == (13, 13, [], [], [])


@pytest.mark.slow
@pytest.mark.optimized
def test_a_folder_that_was_copied_and_worked_on_in_two_places(
  parts, tmp_path, monkeypatch, capsys
):
  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    patch.setattr(
      Results, "write_block", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    train(
      tmp_path / "one",
      vs.Runs.independent(12),
      seed_batch=4,
      logits=True,
      keep_params=True,
    )
  shutil.copytree(tmp_path / "one", tmp_path / "other")
  vs.work(tmp_path / "one", (1, 2), progress=False)
  vs.work(tmp_path / "other", (1, 3), progress=False)
  status, out, err = run(
    capsys,
    "merge",
    tmp_path / "other",
    tmp_path / "one",
    "--out",
    tmp_path / "m",
    "--quiet",
  )
  assert status == 0
  assert out.endswith(f"; 4 are left: vmapseeds work {tmp_path}/m\n")
  assert vs.verify(tmp_path / "m") == (12, 8, [], [], [])
  vs.work(tmp_path / "m", progress=False)
  same(tmp_path / "m", parts / "all")


@pytest.mark.slow
@pytest.mark.optimized
def test_a_run_in_both_folders_is_taken_once_and_refused_where_it_differs(
  parts, tmp_path
):
  merged = vs.merge(
    [parts / "all", parts / "b", parts / "a", parts / "all"],
    tmp_path / "m",
    progress=False,
  )
  assert merged.sizes["run"] == 12
  same(tmp_path / "m", parts / "all")

  shutil.copytree(parts / "b", tmp_path / "b")
  results = Results(tmp_path / "b")
  record = results.record(1)
  outcomes = {name: results.read(name, np.arange(3, 5)) for name in results.outputs}
  outcomes["test/logits"][1, 5, 2] *= 1.0001
  (tmp_path / "b" / "blocks" / "1.json").unlink()
  small = results.small_values([1])
  counts = {name: {**results.arrays, **small}[name][1] for name in results.counts}
  results.write_block(1, outcomes, record, counts)
  assert vs.verify(tmp_path / "b").problems == []
  vs.merge([parts / "a", tmp_path / "b"], tmp_path / "apart", progress=False)
  with pytest.raises(
    vs.UserError,
    match=rf"^run 4 of {tmp_path}/b differs in test/logits from a run of an earlier folder",
  ):
    vs.merge([parts / "all", tmp_path / "b"], tmp_path / "no", progress=False)
  assert not (tmp_path / "no").exists()


def test_rows_that_a_table_has_twice_are_two_runs():
  tables = [
    vs.Runs.independent(2),
    vs.Runs.concat([vs.Runs.independent(1, start=1)] * 2),
    vs.Runs.independent(1),
  ]
  rows, table = match_runs([table.columns() for table in tables])
  assert [r.tolist() for r in rows] == [[0, 1], [1, 2], [0]]
  assert table["seed_init"].tolist() == [0, 1, 1]


@pytest.mark.slow
@pytest.mark.optimized
def test_data_that_lay_elsewhere(tmp_path, monkeypatch):
  digits = load_dataset("digits")
  arrays = {"x_train": digits.train.inputs, "y_train": digits.train.targets}
  arrays |= {
    "x_test": digits.tests["test"].inputs,
    "y_test": digits.tests["test"].targets,
  }
  for i, name in enumerate("ab"):
    np.savez(tmp_path / f"{name}.npz", **arrays)
    train(
      tmp_path / name,
      vs.Runs.independent(1, start=i),
      LINEAR.replace(dataset=str(tmp_path / f"{name}.npz")),
    )
  (tmp_path / "b.npz").unlink()
  vs.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "m", progress=False)
  assert vs.replay(tmp_path / "m", 1).same


@pytest.mark.slow
@pytest.mark.optimized
def test_folders_of_other_campaigns_are_refused_or_said_to_be_mixed(
  parts, tmp_path, capsys
):
  a = tmp_path / "a"
  train(a, vs.Runs.independent(2))
  train(tmp_path / "lr", vs.Runs.independent(1, start=2), LINEAR.replace(lr=0.1))
  train(tmp_path / "width", vs.Runs.independent(2, start=3), lane_width=2)
  smooth = LINEAR.replace(label_smoothing=0.5)
  train(tmp_path / "smooth", vs.Runs.independent(1, start=5), smooth)
  parity = merged(load_dataset("digits"), (0, 1) * 5)
  train(tmp_path / "classes", vs.Runs.independent(1), LINEAR.replace(dataset=parity))
  train(tmp_path / "vary", vs.Runs.independent(1).with_label_map(range(10)))
  vs.import_runs(
    tmp_path / "imported", predictions=[[0, 1]], labels=[0, 1], progress=False
  )
  shutil.copytree(a, tmp_path / "damaged")
  (tmp_path / "damaged" / "test" / "predictions" / "c" / "0" / "0").write_bytes(b"")
  for folder, message in (
    (
      "smooth",
      "belongs to another campaign than {}: its recipe and this one differ in label_smoothing: 0.5, 0.0; leave one of them out, or --force-mixed",
    ),
    ("classes", "its recipe and this one differ in dataset"),
    ("vary", "its runs have"),
    (parts / "b", "test/logits is float32 [797, 10] here, not kept there"),
    ("imported", "one has runs trained here, one imported runs; leave one of them out"),
    ("damaged", "is damaged: test/predictions/c/0"),
    ("none", "is not a results folder"),
  ):
    status, out, err = run(
      capsys, "merge", a, tmp_path / folder, "--out", tmp_path / "m", "--quiet"
    )
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message.format(a) in err
    assert not (tmp_path / "m").exists()
  assert "is not empty" in run(capsys, "merge", a, "--out", a)[2]
  assert (
    "no results folders to merge" in run(capsys, "merge", "--out", tmp_path / "m")[2]
  )
  with pytest.raises(vs.UserError, match="no results folders to merge: give a list"):
    vs.merge(a, tmp_path / "m")

  # Values are columns, and the lane width a condition: these are of one experiment.
  folders = [a, tmp_path / "lr", tmp_path / "width"]
  results = vs.merge(folders, tmp_path / "m", progress=False)
  assert "mixed" not in results.attrs
  assert json.loads(results.attrs["kinds"]) == {"lane_width": [1, 2]}
  assert results["lr"].values.tolist() == [0.05, 0.05, 0.1, 0.05, 0.05]
  assert vs.verify(tmp_path / "m") == (5, 5, [], [], [])
  assert vs.replay(tmp_path / "m", 2).same, "as it was trained"
  forced = vs.merge(
    [a, tmp_path / "smooth"], tmp_path / "f", force_mixed=True, progress=False
  )
  assert forced.attrs["mixed"] == 1


@pytest.mark.parametrize("force_mixed", [False, True])
def test_runs_whose_kept_arrays_have_other_types_are_refused(force_mixed, tmp_path):
  logits = np.random.default_rng(0).normal(size=(2, 6, 3))
  for dtype in ("float64", "float32"):
    vs.import_runs(
      tmp_path / dtype,
      logits=logits.astype(dtype),
      labels=np.arange(6) % 3,
      keep_logits=True,
      progress=False,
    )
  folders = [tmp_path / "float64", tmp_path / "float32"]
  found = r"test/logits is float32 \[6, 3\] here, float64 \[6, 3\] there"
  with pytest.raises(vs.UserError, match=found):
    vs.merge(folders, tmp_path / "m", force_mixed=force_mixed, progress=False)
