"""Small values of runs: in the records of their blocks, and in one file when all are done."""

import base64
import json
import os
import re

import numpy as np
import pytest
from cases import words_of

import vmapseeds as vs
from vmapseeds.store import growing, layout, results, small_values
from vmapseeds.store.claims import Claims
from vmapseeds.store.folders import create_folder
from vmapseeds.store.layout import array_entry
from vmapseeds.store.results import Results, variables_of_blocks

# Of 64 bytes a run at most: accuracy, marks and eight; nine has 72.
OUTPUTS = {
  "accuracy": array_entry("float64", ("run",), ()),
  "test/marks": array_entry("bool", ("run",), ()),
  "test/eight": array_entry("int64", ("run", "eight"), (8,)),
  "nine": array_entry("int64", ("run", "nine"), (9,)),
  "counted": array_entry("int16", ("block", "two"), (2,)),
}
SMALL = ["accuracy", "test/marks", "test/eight", "counted"]


def gathered(path):
  """The numbers of blocks whose values are in one file."""
  found = (path / "blocks").glob("values_*.npz")
  return sorted(int(f.stem.removeprefix("values_")) for f in found)


def values_of(runs, blocks, seed=0):
  rng = np.random.default_rng(seed)
  outputs = {
    "accuracy": rng.random(runs),
    "test/marks": rng.random(runs) < 0.5,
    "test/eight": rng.integers(0, 99, (runs, 8)),
    "nine": rng.integers(0, 99, (runs, 9)),
  }
  return outputs, {"counted": rng.integers(0, 99, (blocks, 2))}


def make(path, extents=(7,), block_runs=3):
  seeds = {"seed_init": np.arange(extents[-1], dtype=np.uint32)}
  with create_folder(
    path,
    {},
    extents=list(extents),
    block_runs=block_runs,
    columns=seeds,
    dimensions={},
    examples={},
    outputs=OUTPUTS,
  ):
    pass
  return Results(path)


def fill(folder, values, blocks=None):
  outputs, counts = values
  for k in range(len(folder.blocks)) if blocks is None else blocks:
    rows = np.array(folder.blocks[k])
    of_block = {name: of[rows] for name, of in outputs.items()}
    folder.write_block(k, of_block, {}, {"counted": counts["counted"][k]})


def check(path, values, blocks=None):
  """That a new look at the folder finds these blocks' values, in both ways of reading."""
  folder = Results(path)
  blocks = range(len(folder.blocks)) if blocks is None else blocks
  rows = np.array([run for k in blocks for run in folder.blocks[k]], int)
  outputs, counts = values
  opened = variables_of_blocks(folder, list(blocks), "test")
  for name, of in outputs.items():
    np.testing.assert_array_equal(folder.read(name, rows), of[rows])
    np.testing.assert_array_equal(opened[name.rpartition("/")[2]], of[rows])
  np.testing.assert_array_equal(opened.counted, counts["counted"][list(blocks)])


def files(path):
  return {f.relative_to(path).as_posix() for f in path.rglob("*") if f.is_file()}


@pytest.mark.parametrize("block_runs", [1, 3, 10_000])
@pytest.mark.parametrize("extents", [(1,), (7,), (2, 7)])
def test_values_come_back(tmp_path, monkeypatch, extents, block_runs):
  path = tmp_path / "r"
  folder = make(path, extents, block_runs)
  assert folder.small == SMALL
  blocks = len(folder.blocks)
  values = values_of(extents[-1], blocks)
  check(path, values, [])
  order = np.random.default_rng(1).permutation(blocks).tolist()
  for done in range(1, blocks + 1):
    fill(folder, values, order[done - 1 : done])
    check(path, values, sorted(order[:done]))
  assert {f.partition("/")[0] for f in files(path)} == {
    *words_of("blocks nine plan.npz zarr.json")
  }
  folder.gather()
  assert gathered(path) == [blocks]
  monkeypatch.setattr(results, "FEW_BLOCKS", 0)
  for record in (path / "blocks").glob("*.json"):
    record.write_text("no longer read")
  check(path, values)
  with np.load(path / f"blocks/values_{blocks}.npz") as plain:
    np.testing.assert_array_equal(plain["accuracy"], values[0]["accuracy"])
    np.testing.assert_array_equal(plain["counted"], values[1]["counted"])


def test_values_of_many_blocks_are_found_without_a_listing(tmp_path, monkeypatch):
  monkeypatch.setattr(results, "FEW_BLOCKS", 2)
  path = tmp_path / "r"
  folder = make(path)
  values = values_of(7, 3)
  fill(folder, values)
  folder.gather()
  for record in (path / "blocks").glob("*.json"):
    record.write_text("not read")
  accuracies = Results(path).read("accuracy", np.arange(7))
  np.testing.assert_array_equal(accuracies, values[0]["accuracy"])
  with pytest.raises(vs.UserError, match=r"blocks/0.json cannot be read"):
    Results(path).read("accuracy", np.arange(4))


def test_gathering_waits_for_the_last_block_and_for_nobody(tmp_path):
  path = tmp_path / "r"
  folder = make(path)
  values = values_of(7, 3)
  fill(folder, values, [0, 2])
  assert folder.read("test/eight", [3]).tolist() == [[-1] * 8], "not there"
  folder.gather()
  assert gathered(path) == []
  fill(folder, values, [1])
  with Claims(path) as other:
    assert other.take("folder")
    Results(path).gather()  # which reads the records
  assert gathered(path) == [3]
  check(path, values)


def test_an_extension_is_gathered_too(tmp_path):
  path = tmp_path / "r"
  folder = make(path)
  values = values_of(20, 8)
  fill(folder, values)
  folder.gather()
  growing.extend(folder, 20, {"seed_init": np.arange(20, dtype=np.uint32)})
  assert len(folder.blocks) == 8
  check(path, values, range(3))
  fill(folder, values, [4])
  check(path, values, [0, 1, 2, 4])
  fill(folder, values, [3, 5, 6, 7])
  check(path, values)
  folder.gather()
  assert gathered(path) == [8], "the file of three blocks is removed"
  check(path, values)
  assert vs.verify(path).problems == []


@pytest.mark.parametrize("step", range(2))
def test_a_process_that_ends_while_it_gathers_harms_nothing(
  tmp_path, monkeypatch, step
):
  """Before the new file, or before the old one is removed."""
  path = tmp_path / "r"
  folder = make(path)
  values = values_of(20, 8)
  fill(folder, values)
  folder.gather()
  growing.extend(folder, 20, {"seed_init": np.arange(20, dtype=np.uint32)})
  fill(folder, values, range(3, 8))

  def ended(*_, **__):
    raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    if step == 0:
      patch.setattr(small_values, "write_archive", ended)
    else:
      patch.setattr(results, "remove", ended)
    with pytest.raises(KeyboardInterrupt):
      folder.gather()
  assert gathered(path) == [3, 8][: step + 1]
  check(path, values)
  assert vs.verify(path) == (20, 20, [], [], [])
  Results(path).gather()
  assert gathered(path)[-1] == 8
  check(path, values)


@pytest.mark.parametrize("how", ["repaired", "by hand"])
def test_a_block_that_is_trained_again_may_have_other_values(tmp_path, how):
  """As on another kind of machine."""
  path = tmp_path / "r"
  values, others = values_of(7, 3), values_of(7, 3, seed=1)
  folder = make(path)
  fill(folder, values)
  folder.gather()
  if how == "repaired":
    (path / "nine/c/1/0").unlink()
    assert vs.verify(path, repair=True).problems == []
    assert gathered(path) == []
  else:
    (path / "blocks/1.json").unlink()
    assert gathered(path) == [3]
  folder = Results(path)
  assert folder.finished_blocks() == {0, 2}
  fill(folder, others, [1])
  assert gathered(path) == []
  for part in (0, 1):
    for name, of in others[part].items():
      rows = [1] if part else [*folder.blocks[1]]
      values[part][name][rows] = of[rows]
  check(path, values)
  folder.gather()
  check(path, values)
  assert vs.verify(path) == (7, 7, [], [], [])


def exchanged(path):
  """One value is another."""
  with np.load(path) as stored:
    arrays = dict(stored)
  arrays["accuracy"][4] = 2.0
  np.savez(path, **arrays)


def shorter(path):
  with np.load(path) as stored:
    arrays = {name: values[:-1] for name, values in stored.items()}
  np.savez(path, **arrays)


def flipped(path):
  content = bytearray(path.read_bytes())
  content[content.index(b"accuracy") + 300] ^= 1
  path.write_bytes(content)


@pytest.mark.parametrize("damage", [exchanged, shorter, flipped, "emptied", "torn"])
def test_gathered_values_are_compared_with_the_records(tmp_path, damage):
  path = tmp_path / "r"
  folder = make(path)
  values = values_of(7, 3)
  fill(folder, values)
  folder.gather()
  file = path / "blocks/values_3.npz"
  if callable(damage):
    damage(file)
  else:
    file.write_bytes(b"" if damage == "emptied" else file.read_bytes()[:-50])
  if damage is not exchanged:
    check(path, values)  # from the records
  (problem,) = vs.verify(path).problems
  assert re.match(
    r"blocks/values_3.npz (holds other values than were written|cannot be read \(.+\))$",
    problem,
  )
  verdict = vs.verify(path, repair=True)
  assert verdict == (7, 7, [], [], ["blocks/values_3.npz was removed"])
  check(path, values)
  Results(path).gather()
  assert vs.verify(path) == (7, 7, [], [], [])


@pytest.mark.parametrize(
  "given",
  [
    {},
    {"accuracy": None},
    {"accuracy": "?"},
    {"accuracy": base64.b64encode(bytes(23)).decode()},
    {"accuracy": base64.b64encode(bytes(8 * 10**6)).decode()},
  ],
)
def test_a_record_of_other_values_is_damage(tmp_path, given):
  path = tmp_path / "r"
  folder = make(path)
  fill(folder, values_of(7, 3))
  record = folder.record(1)
  whole = record["values"] if given else {}
  text = json.dumps(layout.signed(record | {"values": whole | given}))
  (path / "blocks/1.json").write_text(text)
  wrong = "blocks/1.json has no values of accuracy"
  with pytest.raises(layout.Damage, match=wrong):
    Results(path).read("accuracy", 3)
  assert [p.partition(" (")[0] for p in vs.verify(path).problems] == [wrong]
  assert vs.verify(path, repair=True).problems == []
  assert Results(path).finished_blocks() == {0, 2}


def test_a_folder_made_whole_is_gathered_at_once(tmp_path):
  predictions = np.random.default_rng(0).integers(0, 3, (5, 4))
  vs.import_runs(
    tmp_path / "r", predictions=predictions, labels=[0, 1, 2, 0], block_runs=2
  )
  assert gathered(tmp_path / "r") == [3]
  assert not os.path.exists(tmp_path / "r/blocks/folder.claim")
  with np.load(tmp_path / "r/blocks/values_3.npz") as plain:
    accuracies = plain["test/accuracy"]
  np.testing.assert_array_equal(accuracies, (predictions == [0, 1, 2, 0]).mean(1))


def test_another_format_is_named(tmp_path):
  path = tmp_path / "r"
  text = (make(path).path / "zarr.json").read_text()
  (path / "zarr.json").write_text(text.replace(layout.FORMAT, "vmapseeds results 4"))
  with pytest.raises(
    vs.UserError,
    match=r"has the format 'vmapseeds results 4', .* take the version that",
  ):
    Results(path)


def test_a_block_with_two_damaged_objects_is_repaired_without_a_complaint(tmp_path):
  path = tmp_path / "r"
  outputs = {
    name: array_entry("int64", ("run", "nine"), (9,)) for name in ("one", "other")
  }
  seeds = {"seed_init": np.arange(2, dtype=np.uint32)}
  with create_folder(
    path,
    {},
    extents=[2],
    block_runs=1,
    columns=seeds,
    dimensions={},
    examples={},
    outputs=outputs,
  ):
    pass
  folder = Results(path)
  for block in (0, 1):
    folder.write_block(block, {name: np.full((1, 9), block) for name in outputs})
  for name in outputs:
    (path / f"{name}/c/1/0").write_bytes(b"damaged")
  verdict = vs.verify(path, repair=True)
  assert verdict.repairs == [
    "block 1: blocks/1.json was removed, so that its runs are trained again"
  ]
  assert verdict.notes == [
    "block 1 is not finished, and what lies there of it is not used"
  ]
  assert verdict.problems == []
