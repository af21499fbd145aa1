"""Campaigns under faults: kills, damage, a full disk, several processes, other
conditions.
"""

import contextlib
import dataclasses
import errno
import json
import math
import os
import pickle
import re
import resource
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray as xr
from cases import words_of
from folders import outputs_folder
from test_cli import run

import vmapseeds as vs
from experiments.reliability import crowd, kills, spot
from vmapseeds.campaign import block_training, planning, replaying
from vmapseeds.data import load_dataset
from vmapseeds.errors import Failure
from vmapseeds.store import archives, claims, folders, growing, layout
from vmapseeds.store.claims import Claims, claimed
from vmapseeds.store.large_arrays import zarr_rows
from vmapseeds.store.layout import read_metadata
from vmapseeds.store.results import Results

LINEAR = vs.recipe("digits_cnn", epochs=1, model="linear")
RUNS = 24


def train(out, n=RUNS, recipe=LINEAR, runs=None, **options):
  return vs.train(
    recipe,
    runs or vs.Runs.independent(n),
    out,
    **{"seed_batch": 4, "progress": False, **options},
  )


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
  """24 runs in 6 blocks, which no test changes."""
  train(tmp_path_factory.mktemp("reliability") / "r")
  return tmp_path_factory.getbasetemp() / "reliability0" / "r"


def same(folder, reference):
  # In which block a run lies is not compared: blocks may differ.
  one, other = (
    vs.open_results(f).load().drop_vars("run_place") for f in (folder, reference)
  )
  assert one.sizes["run"] == RUNS
  for name in other:  # each block stores its counts: their sums must be equal
    a, b = (
      r[name].sum("block") if "block" in r[name].dims else r[name] for r in (one, other)
    )
    np.testing.assert_array_equal(a, b, err_msg=name)


def test_a_block_is_on_the_disk_before_its_record_is(tmp_path, monkeypatch):
  """And the text of the record before its name, which lasts where that is asked for."""
  out, flushed = tmp_path / "r", []

  def fsync(descriptor):
    record = out / "blocks" / "0.json"
    flushed.append((os.fstat(descriptor).st_ino, record.exists()))

  monkeypatch.setattr(os, "fsync", fsync)
  values = np.zeros((4, 3, 1000), np.float32)  # which no record has room for
  outputs_folder(out, {"score": (values, {})}, block_runs=4)
  (chunk,) = [f for f in (out / "score" / "c").rglob("*") if f.is_file()]
  record = out / "blocks" / "0.json"
  before = [number for number, recorded in flushed if not recorded]
  after = [number for number, recorded in flushed if recorded]
  assert {chunk.stat().st_ino, record.stat().st_ino} <= {*before}
  assert record.parent.stat().st_ino not in after
  Results(out).flush_records()
  assert flushed[-1] == (record.parent.stat().st_ino, True)


def test_recorded_runs_last_before_the_folder_counts_them(tmp_path, monkeypatch):
  """Nobody here could train them again."""
  out, flushed = tmp_path / "r", []

  def fsync(descriptor):
    runs = read_metadata(out).get("extents", [0])[-1]
    flushed.append((os.fstat(descriptor).st_ino, runs))

  monkeypatch.setattr(os, "fsync", fsync)
  recorder = vs.Recorder(out, labels=[0, 1])
  recorder.add([0, 1], seed=0)
  recorder.add([0, 0], seed=1)
  blocks = (out / "blocks").stat().st_ino
  assert [runs for number, runs in flushed if number == blocks] == [0, 1]
  assert flushed[-1] == (out.stat().st_ino, 2)


@pytest.fixture
def trained(monkeypatch):
  """The rows that are trained, in their order."""
  rows, write = [], Results.write_block
  monkeypatch.setattr(
    Results,
    "write_block",
    lambda self, b, *rest: (rows.extend(self.blocks[b]), write(self, b, *rest)),
  )
  return rows


@pytest.mark.slow
@pytest.mark.optimized
def test_a_killed_campaign_equals_an_undisturbed_one(tmp_path):
  outcome = kills.run_killed(tmp_path, LINEAR, 80, kills=2, seed=2)
  assert outcome.kills  # how many of them hit depends on how fast the machine is
  assert (outcome.trained_again, outcome.problems, outcome.same) == (0, [], True)


@pytest.mark.parametrize(
  ("processes", "seconds"),
  [
    pytest.param(3, 6, marks=pytest.mark.slow),
    pytest.param(6, 40, marks=pytest.mark.seldom),
  ],
)
def test_processes_are_killed_at_random(processes, seconds, tmp_path):
  flags = crowd.Flags(seconds=seconds, processes=processes, every=2, more=8)
  outcome = crowd.run_disturbed(tmp_path, LINEAR, flags)
  assert outcome.kills
  assert crowd.is_sound(outcome), outcome


def test_simulated_machines_lose_what_is_expected():
  """Of a block that takes T and begins again whenever its machine is taken away at rate
  1/L, L (exp(T/L) - 1) - T is lost on average.
  """
  flags = spot.Flags(runs=40_000, machines=10)
  block, life = 8 * flags.run_seconds, flags.life
  found = spot.simulate_campaign(flags, 8, math.inf, 0)
  lost = found.lost * found.hours * 3600 * flags.machines / (flags.runs / 8)
  assert lost == pytest.approx(life * math.expm1(block / life) - block, rel=0.1)
  assert found.saving == pytest.approx(0, abs=1e-9)

  forever = dataclasses.replace(flags, life=1e15, runs=800)
  found = spot.simulate_campaign(forever, 8, math.inf, 0)
  assert found.lost == 0
  assert found.hours * 3600 == pytest.approx(flags.begin_seconds + 10 * block)
  saved = spot.simulate_campaign(forever, 8, 0.0, 0)
  moved = 8 * spot.STATE / flags.bandwidth
  assert (saved.hours - found.hours) * 3600 == pytest.approx(10 * 63 * moved)


@pytest.mark.slow
def test_two_processes_at_once_train_every_run_once(tmp_path, reference):
  out, log = tmp_path / "shared" / "r", tmp_path / "log"
  both = [kills.process(str(out), LINEAR, RUNS, str(log)) for _ in range(2)]
  for process in both:
    process.join()
  assert [process.exitcode for process in both] == [0, 0]
  assert sorted(kills.trained_rows(log)) == list(range(RUNS))
  assert vs.verify(out).problems == []
  assert [f.name for f in out.parent.iterdir()] == ["r"]
  same(out, reference)


# Claims


def test_a_claim_is_one_process_s(tmp_path):
  with Claims(tmp_path) as one, Claims(tmp_path) as other:
    assert one.take(3)
    assert not other.take(3)
    assert other.take(4)
    assert claimed(tmp_path) == {"3": True, "4": True}
  with Claims(tmp_path) as other:
    assert other.take(3), "given back"
  assert claimed(tmp_path) == {}


class Clock:
  """A process's own clock, that a test advances."""

  def __init__(self, monkeypatch):
    self.seconds = 1000.0
    monkeypatch.setattr(claims.time, "monotonic", lambda: self.seconds)


def write_claim(path, block, owner, dated=0.0):
  """Leaves a claim, dated some seconds ahead."""
  claim = Path(path) / "blocks" / f"{block}.claim"
  claim.parent.mkdir(exist_ok=True)
  claim.write_text("" if owner is None else json.dumps(owner))
  os.utime(claim, (time.time() + dated,) * 2)
  return claim


HERE = {**claims._process(os.getpid()), "token": "of another"}
ELSEWHERE = {**HERE, "host": "elsewhere"}


@pytest.mark.parametrize(
  ("owner", "known", "lease"),
  [
    ("gone", False, 0),
    ({**HERE, "started": "1"}, False, 0),  # another process has its number now
    (HERE, True, claims.LEASE),  # it lives, and is not renewed
    (ELSEWHERE, None, claims.LEASE),
    (None, None, claims.UNFINISHED),  # being written, or damaged
  ],
)
@pytest.mark.parametrize("dated", [0, 590, -1e6, 1e9])
def test_a_claim_that_nobody_renews_is_taken_over(
  owner, known, lease, dated, tmp_path, monkeypatch
):
  """After so many seconds of one's own clock, whatever the claim's date is."""
  if owner == "gone":
    ended = subprocess.Popen(["true"])
    ended.wait()
    owner = HERE | {"pid": ended.pid}
  clock = Clock(monkeypatch)
  write_claim(tmp_path, 0, owner, dated)
  with Claims(tmp_path) as mine:
    assert mine.look() == (set(), {"0": known})
    if lease:
      assert not mine.take(0)
      clock.seconds += lease - 1
      assert not mine.take(0)
      assert not mine.holds(0)
      clock.seconds += 1
    assert mine.look() == (set(), {"0": False})
    assert mine.take(0)
    assert mine.holds(0)
    assert mine.look() == (set(), {}), "one's own"


@pytest.mark.parametrize("dated", [0, 590, -1e6, 1e9])
def test_a_claim_that_is_renewed_is_left_alone(dated, tmp_path, monkeypatch):
  """By a process whose clock is right or wrong."""
  clock = Clock(monkeypatch)
  claim = write_claim(tmp_path, 0, ELSEWHERE, dated)
  with Claims(tmp_path) as mine:
    assert mine.look()[1] == {"0": None}
    for renewal in range(1, 50):
      clock.seconds += claims.LEASE / 10
      os.utime(claim, (time.time() + dated + renewal,) * 2)
      assert mine.look()[1] == {"0": True}
      assert not mine.take(0)
    clock.seconds += claims.LEASE
    assert mine.take(0)


def test_of_two_that_take_over_a_claim_the_last_has_it(tmp_path, monkeypatch):
  replace = claims.replace
  claim = write_claim(tmp_path, 0, HERE | {"started": "1"})

  def overtaken(path, text):
    replace(path, text)
    replace(path, "of another process")

  monkeypatch.setattr(claims, "replace", overtaken)
  with Claims(tmp_path) as mine:
    assert not mine.take(0)
  assert claim.read_text() == "of another process"


def test_who_waits_for_the_folder_says_so(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(claims, "PATIENCE", 0)
  monkeypatch.setattr(claims, "LEASE", 1)
  write_claim(tmp_path, "folder", ELSEWHERE)
  with Claims(tmp_path) as mine:
    mine.wait_for("folder")
    assert mine.holds("folder")
  assert capsys.readouterr().err == (
    f"waiting for another process, which writes the folder {tmp_path}; if it is gone, "
    "its claim is taken over after 1 s\n"
  )


def test_renewals_go_on_after_a_disk_that_fails_for_a_moment(tmp_path, monkeypatch):
  renewed, touch = [], os.utime

  def fails_once(path):
    renewed.append(path)
    if len(renewed) == 1:
      raise OSError(errno.ESTALE, "Stale file handle")
    touch(path)

  monkeypatch.setattr(claims, "LEASE", 0.5)
  monkeypatch.setattr(os, "utime", fails_once)
  with Claims(tmp_path) as mine:
    assert mine.take(0)
    end = time.monotonic() + 60
    while len(renewed) < 3 and time.monotonic() < end:
      time.sleep(0.05)
  assert len(renewed) >= 3


def test_who_lost_a_folder_while_asleep_leaves_it_alone(tmp_path, monkeypatch):
  """Its claim runs out while it makes the folder. When it goes on, another process has
  made the folder.
  """
  monkeypatch.setattr(claims, "LEASE", 0.5)
  monkeypatch.setattr(Claims, "_renew", lambda self: None)
  about = dict(
    extents=[1], block_runs=1, columns={}, dimensions={}, examples={}, outputs={}
  )
  with (
    pytest.raises(folders.FolderExists),
    folders.create_folder(tmp_path / "r", {"of": "one"}, **about),
    folders.create_folder(tmp_path / "r", {"of": "another"}, **about),
  ):
    pass
  assert Results(tmp_path / "r").description == {"of": "another"}


@pytest.mark.slow
@pytest.mark.parametrize("other", ["trains", "has finished"])
def test_who_lost_a_block_while_asleep_writes_it_unless_it_is_there(
  other, tmp_path, reference, monkeypatch, capsys
):
  """Another process has taken block 2 over while it was trained here."""
  shutil.copytree(reference, tmp_path / "r")
  record = (tmp_path / "r/blocks/2.json").read_bytes()
  values = (tmp_path / "r/test/predictions/c/2/0").read_bytes()
  vs_repair(tmp_path / "r", "test/predictions/c/2/0")
  spread = block_training.spread_program

  def slow(*args):
    def run_lanes(*given):
      write_claim(tmp_path / "r", 2, ELSEWHERE)
      if other == "has finished":
        (tmp_path / "r/test/predictions/c/2/0").write_bytes(values)
        (tmp_path / "r/blocks/2.json").write_bytes(record)
      yield from spread(*args)(*given)

    return run_lanes

  monkeypatch.setattr(block_training, "spread_program", slow)
  assert vs.work(tmp_path / "r").sizes["run"] == RUNS
  said = "block 2 was finished by another process; discarding this duplicate"
  assert (said in capsys.readouterr().err) == (other == "has finished")
  assert (tmp_path / "r/test/predictions/c/2/0").read_bytes() == values
  assert ((tmp_path / "r/blocks/2.json").read_bytes() == record) == (other != "trains")
  same(tmp_path / "r", reference)


@pytest.mark.slow
def test_work_waits_until_it_knows_whether_others_live(
  tmp_path, reference, trained, monkeypatch, capsys
):
  """It takes over what nobody renews, and leaves what somebody renews."""
  monkeypatch.setattr(claims, "LEASE", 3)
  shutil.copytree(reference, tmp_path / "r")
  for block in (1, 4):
    vs_repair(tmp_path / "r", f"test/predictions/c/{block}/0")
    claim = write_claim(tmp_path / "r", block, ELSEWHERE, dated=590)
  touched, ended = iter(range(1, 1000)), threading.Event()

  def renew():
    while not ended.wait(0.3):
      os.utime(claim, (time.time() + 590 + next(touched),) * 2)

  thread = threading.Thread(target=renew)
  thread.start()
  try:
    assert vs.work(tmp_path / "r").sizes["run"] == RUNS - 4
  finally:
    ended.set()
    thread.join()
  assert trained == [4, 5, 6, 7]
  said = capsys.readouterr().err
  assert "2 blocks left to other processes: looking for up to" in said
  assert (
    "1 block left to other processes, which train them; the first is block 4" in said
  )


def vs_repair(folder, deleted):
  (folder / deleted).unlink()
  assert vs.verify(folder, repair=True).problems == []


# Work


@pytest.mark.slow
@pytest.mark.optimized
def test_work_trains_its_blocks_and_leaves_others(
  tmp_path, reference, trained, monkeypatch, capsys
):
  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    patch.setattr(
      Results, "write_block", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    train(tmp_path / "r")
  assert claimed(tmp_path / "r") == {}
  status, out, err = run(capsys, "work", tmp_path / "r", "--blocks", "2:3", "--quiet")
  assert out.startswith("4 runs in")
  assert out.endswith(f"; 20 are left: vmapseeds work {tmp_path}/r\n")
  assert vs.work(tmp_path / "r", (2, 4), progress=False).sizes["run"] == 8
  assert trained == list(range(8, 16))
  with Claims(tmp_path / "r") as other:
    assert other.take(0)
    assert other.take(5)
    status, out, err = run(capsys, "work", tmp_path / "r", "--seed-batch", 3)
    assert status == 0
    assert "16 runs in" in out
    assert (
      "2 blocks left to other processes, which train them; the first is block 0" in err
    )
    # Where others train too, blocks are taken in any order.
    assert sorted(trained) == [*range(4, 20)]
    assert trained[:8] == [*range(8, 16)]
    assert len(vs.verify(tmp_path / "r").notes) == 2
  status, out, err = run(capsys, "work", tmp_path / "r", "--blocks", "0:", "--quiet")
  assert (status, err) == (0, "")
  assert sorted(trained) == list(range(RUNS))
  same(tmp_path / "r", reference)


@pytest.mark.parametrize(
  ("argv", "message"),
  [
    (["work", "{}/none"], "is not a results folder"),
    (["work", "{}", "--blocks", "3"], "--blocks '3': write A:B"),
    (
      ["work", "{}", "--blocks", "4:9"],
      "blocks 4:9 of a folder with 6: give some from 0:6",
    ),
    (["work", "{}", "--blocks", "4:4"], "blocks 4:4 of a folder with 6"),
    (["verify", "{}/none"], "is not a results folder"),
    (["replay", "{}", "--run", "24"], "run 24 of a folder with 24: the last is 23"),
    (["replay", "{}", "--run", "-1"], "run is -1: give a whole number of at least 0"),
  ],
)
def test_mistakes_are_one_line(argv, message, reference, capsys):
  status, out, err = run(capsys, *(a.format(reference) for a in argv))
  assert (status, out, err.count("\n")) == (2, "", 1)
  assert message in err


def test_replay(tmp_path, reference, capsys):
  status, out, err = run(capsys, "replay", reference, "--run", 13)
  assert (status, out) == (
    0,
    "run 13, test set test: predictions agree bit for bit on all 797 examples\n",
  )
  shutil.copytree(reference, tmp_path / "r")
  stored = Results(tmp_path / "r").arrays["test/predictions"]
  stored[13, 5:8] = (stored[13, 5:8] + 1) % 10
  status, out, err = run(capsys, "replay", tmp_path / "r", "--run", 13)
  assert (status, out) == (
    1,
    "run 13, test set test: predictions differ in 3 of 797 examples\n",
  )


def test_a_run_is_replayed_as_its_block_was_trained(tmp_path, monkeypatch):
  train(tmp_path / "r", 4, lane_width=1)
  train(tmp_path / "r", 8, lane_width=2)
  widths, spread = [], replaying.spread_task

  def recorded(plan, traced):
    widths.append(plan.execution.width)
    return spread(plan, traced)

  monkeypatch.setattr(replaying, "spread_task", recorded)
  assert vs.replay(tmp_path / "r", 3).same
  assert vs.replay(tmp_path / "r", 4).same
  assert widths == [1, 2]
  (tmp_path / "r/blocks/1.json").unlink()
  with pytest.raises(vs.UserError, match=r"run 4 of .* is not done"):
    vs.replay(tmp_path / "r", 4)


@pytest.fixture
def moved(tmp_path, monkeypatch, reference):
  """A folder `r` begun on `x.npz` beside it, its second block not done; the data are
  now in `there`.
  """
  (tmp_path / "there").mkdir()
  monkeypatch.chdir(tmp_path)
  digits = load_dataset("digits")
  arrays = {"x_train": digits.train.inputs, "y_train": digits.train.targets}
  arrays |= {
    "x_test": digits.tests["test"].inputs,
    "y_test": digits.tests["test"].targets,
  }
  np.savez("x.npz", **arrays)
  np.savez("there/other.npz", **{**arrays, "y_test": arrays["y_test"][::-1]})
  train("r", recipe=LINEAR.replace(dataset="x.npz"))
  vs_repair(tmp_path / "r", "test/predictions/c/1/0")
  monkeypatch.chdir("there")
  return tmp_path


@pytest.mark.slow
@pytest.mark.optimized
def test_a_campaign_on_a_file_goes_on_from_elsewhere(moved, reference, trained, capsys):
  assert run(capsys, "work", "../r", "--quiet")[0] == 0
  assert trained == [4, 5, 6, 7]
  same(moved / "r", reference)
  assert vs.replay("../r", 5).same


@pytest.mark.slow
@pytest.mark.optimized
def test_data_that_were_moved_are_known_by_their_digest(
  moved, reference, trained, capsys
):
  (moved / "x.npz").rename("x.npz")
  before = tree(moved / "r")
  for argv in (["work", "../r"], ["replay", "../r", "--run", "0"]):
    said = f"error: no such file '{moved}/x.npz', the data of ../r: say where they are with --dataset PATH\n"
    assert run(capsys, *argv) == (2, "", said)
    said = f"error: the data {moved}/there/other.npz are not those of ../r: say where those are with --dataset PATH\n"
    assert run(capsys, *argv, "--dataset", "other.npz") == (2, "", said)
  with pytest.raises(vs.UserError, match="its recipe and this one differ in dataset"):
    train("../r", recipe=LINEAR.replace(dataset="other.npz"))
  assert tree(moved / "r") == before
  assert trained == []
  status, out, err = run(capsys, "replay", "../r", "--run", "0", "--dataset", "x.npz")
  assert (status, out) == (
    0,
    "run 0, test set test: predictions agree bit for bit on all 797 examples\n",
  )
  assert run(capsys, "work", "../r", "--quiet", "--dataset", "x.npz")[0] == 0
  assert trained == [4, 5, 6, 7]
  same(moved / "r", reference)
  train("../r", 28, LINEAR.replace(dataset="x.npz"))
  assert trained == [4, 5, 6, 7, *range(24, 28)]
  assert vs.verify("../r") == (28, 28, [], [], [])
  for stored in (
    read_metadata("../r"),
    *(Results("../r").record(block) for block in (0, 1, 6)),
  ):
    assert json.loads(stored["recipe"])["dataset"] == f"{moved}/x.npz", (
      "where it was begun"
    )
  assert vs.replay("../r", 25, dataset="x.npz").same


def tree(folder):
  return {
    file: (file.stat().st_mtime_ns, file.is_file() and file.read_bytes())
    for file in folder.rglob("*")
  }


def test_replay_writes_nothing(tmp_path, reference, monkeypatch):
  before = tree(reference)
  monkeypatch.setattr(
    os, "access", lambda path, mode: not mode & os.W_OK
  )  # as of a folder that is read-only
  with pytest.raises(vs.UserError, match="cannot be written"):
    vs.work(reference, progress=False)
  assert vs.replay(reference, 3).same
  assert tree(reference) == before


# Damage


def truncated(file):
  file.write_bytes(file.read_bytes()[:-1])


def emptied(file):
  file.write_bytes(b"")


def flipped(file):
  data = bytearray(file.read_bytes())
  data[len(data) // 2] ^= 16
  file.write_bytes(bytes(data))


def misspelt(file):
  """Changes one bit of the description."""
  file.write_bytes(file.read_bytes().replace(b"block_runs", b"block_runr", 1))


def exchanged(file):
  shutil.copy(
    file.parent.parent / "0" / "0" if file.name == "0" else file.parent / "0", file
  )


def other_values(file):
  """Exchanges seeds in the plan, and leaves its checksums right."""
  with np.load(file) as stored:
    arrays = dict(stored)
  arrays["seed_order"] = arrays["seed_order"][::-1]
  np.savez(file, **arrays)


def flipped_in(name):
  def flip(file):
    """Changes one bit in the middle of an array of the plan."""
    with np.load(file) as stored:
      values = stored[name].tobytes()
    content = bytearray(file.read_bytes())
    content[content.index(values) + len(values) // 2] ^= 4
    file.write_bytes(content)

  return flip


def mangled(file):
  file.write_text("{")


def other_recipe(file):
  file.write_text(file.read_text().replace('\\"lr\\": 0.05', '\\"lr\\": 0.25'))


def other_chunks(file):
  """Changes a chunk shape that Zarr reads, not the description."""
  node = json.loads(file.read_text())
  node["consolidated_metadata"]["metadata"]["test/predictions"]["chunk_grid"][
    "configuration"
  ]["chunk_shape"][0] = 2
  file.write_text(json.dumps(node))


def deleted(file):
  file.unlink()


def added(file):
  file.parent.mkdir(parents=True, exist_ok=True)
  file.write_bytes(b"mine")


PREDICTIONS = "test/predictions/c/2/0"


@pytest.mark.parametrize(
  ("damage", "file", "rows", "silent"),
  [
    # `rows` are trained again. `silent`: `open_results` need not complain.
    (truncated, PREDICTIONS, range(8, 12), False),
    (flipped, PREDICTIONS, range(8, 12), False),
    (deleted, PREDICTIONS, range(8, 12), False),
    (exchanged, PREDICTIONS, range(8, 12), True),
    (flipped, "blocks/3.json", range(12, 16), True),
    (emptied, "plan.npz", [], False),
    (deleted, "plan.npz", [], False),
    (flipped_in("seed_init"), "plan.npz", [], False),
    (flipped_in("test/labels"), "plan.npz", [], False),
    (other_values, "plan.npz", [], True),
    (other_chunks, "zarr.json", [], True),
    (added, "test/predictions/c/9/0", [], True),
    (added, "test/votes/c/mine", [], True),
    (added, "blocks/77.json", [], True),
  ],
)
def test_damage_is_named_and_repaired(
  damage, file, rows, silent, tmp_path, reference, trained, capsys
):
  folder = tmp_path / "r"
  shutil.copytree(reference, folder)
  damage(folder / file)

  status, out, err = run(capsys, "verify", folder)
  assert status == 1
  (problem,) = (line for line in out.splitlines() if line.startswith("problem: "))
  plan = file == "plan.npz"
  names = "plan.npz|seed_init|seed_order|test/labels" if plan else re.escape(file)
  assert re.match(f"problem: ({names}) ", problem)
  if not silent:
    with pytest.raises(
      vs.UserError,
      match=r"is damaged: .*`vmapseeds verify .*` says what, and --repair helps",
    ):
      vs.open_results(folder).load()

  status, out, err = run(capsys, "verify", folder, "--repair")
  assert status == (1 if plan else 0), out  # training writes the plan again
  assert Results(folder).done.sum() == RUNS - len(rows)
  train(folder)
  assert trained == list(rows)
  assert run(capsys, "verify", folder)[:2] == (
    0,
    f"sound: 24 of 24 runs are done in {folder}\n",
  )
  same(folder, reference)


def test_foreign_files_are_named_and_left_alone(tmp_path, reference, capsys):
  folder = tmp_path / "r"
  shutil.copytree(reference, folder)
  for file in ("report/figures/a.png", "checkpoints/0-3/1", "zarr.json.0123.partial"):
    added(folder / file)
  status, out, err = run(capsys, "verify", folder)
  assert (status, out.splitlines()[0]) == (
    0,
    "note: zarr.json.0123.partial was left by a process that ended while it wrote",
  )
  foreign = ("notes.txt", "figures/1.png", "figures/2.png", "report", "0.json")
  shutil.rmtree(folder / "report")
  for file in foreign:
    added(folder / file)
  for repair in ((), ("--repair",)):
    status, out, err = run(capsys, "verify", folder, *repair)
    assert status == 1
    assert [line for line in out.splitlines() if not line.startswith("note: ")] == [
      f"problem: {name} is not of these results: move it elsewhere"
      for name in ("0.json", "figures/", "notes.txt", "report")
    ]
  assert all((folder / file).read_bytes() == b"mine" for file in foreign)
  same(folder, reference)  # foreign files do no harm


@pytest.mark.parametrize("damage", [mangled, deleted, other_recipe, misspelt])
def test_a_damaged_description_is_named_and_nothing_is_done(
  damage, tmp_path, reference, trained, capsys
):
  """There is no copy of the description. Once it is put back, the folder is whole
  again.
  """
  folder = tmp_path / "r"
  shutil.copytree(reference, folder)
  damage(folder / "zarr.json")
  before = tree(folder)
  for argv in (["report", folder], ["work", folder], ["replay", folder, "--run", "1"]):
    status, out, err = run(capsys, *argv)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert re.search(
      "r is damaged: zarr.json (cannot be read|is not as it was written)", err
    )
  with pytest.raises(vs.UserError, match=r"r is damaged: zarr.json"):
    train(folder)
  status, out, err = run(capsys, "verify", folder, "--repair")
  assert status == 1
  assert re.fullmatch(
    "problem: zarr.json (cannot be read|is not as it was written.*)\n", out
  )
  assert tree(folder) == before
  shutil.copy(reference / "zarr.json", folder)
  same(folder, reference)
  assert trained == []


@pytest.mark.parametrize("file", ["test/predictions/c/1/0", "blocks/1.json"])
def test_what_may_not_be_read_is_not_damaged(
  file, tmp_path, reference, monkeypatch, capsys
):
  """As on a shared disk that fails for a moment: nothing is repaired, nothing is
  trained again.
  """
  folder = tmp_path / "r"
  shutil.copytree(reference, folder)
  before = tree(folder)

  def refusing(method):
    def checked(path, *args, **kwargs):
      if path == folder / file:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))
      return method(path, *args, **kwargs)

    return checked

  with monkeypatch.context() as patch:
    patch.setattr(Path, "open", refusing(Path.open))
    patch.setattr(Path, "read_bytes", refusing(Path.read_bytes))
    for argv in (["verify", folder, "--repair"], ["replay", folder, "--run", "5"]):
      assert run(capsys, *argv)[::2] == (
        1,
        f"error: {folder / file} cannot be read (Permission denied)\n",
      )
  assert tree(folder) == before


def test_damage_comes_back_from_another_process():
  damage = pickle.loads(pickle.dumps(layout.Damage("r", "it is torn", layout.BACK)))
  assert type(damage) is layout.Damage
  assert str(damage) == str(layout.Damage("r", "it is torn", layout.BACK))


def test_results_stay_open_in_another_working_folder(reference, tmp_path, monkeypatch):
  monkeypatch.chdir(reference.parent)
  results = vs.open_results(reference.name)
  monkeypatch.chdir(tmp_path)
  np.testing.assert_array_equal(
    results.predictions.values, vs.open_results(reference).predictions.values
  )


def test_a_block_without_record_is_trained_again(tmp_path, reference, trained):
  shutil.copytree(reference, tmp_path / "r")
  (tmp_path / "r" / "blocks" / "3.json").unlink()
  note = "block 3 is not finished, and what lies there of it is not used"
  assert vs.verify(tmp_path / "r") == (RUNS, RUNS - 4, [], [note], [])
  train(tmp_path / "r")
  assert trained == [12, 13, 14, 15]
  same(tmp_path / "r", reference)


@pytest.mark.slow
@pytest.mark.optimized
@pytest.mark.parametrize("killed", ["before the record", "between the objects"])
def test_an_extension_rewrites_no_block(
  killed, tmp_path, reference, trained, monkeypatch
):
  """A short block stays short: the extension begins a new one, whatever happens."""
  train(tmp_path / "r", 6)
  root = read_metadata(tmp_path / "r")
  # They are written again, with the same values in front.
  grown = ("plan.npz", "zarr.json", "blocks/values_")
  blocks = {
    file: file.read_bytes()
    for file in (tmp_path / "r").rglob("*")
    if file.is_file()
    and not file.relative_to(tmp_path / "r").as_posix().startswith(grown)
  }

  def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")

  with (
    monkeypatch.context() as patch,
    pytest.raises(Failure, match="cannot be written"),
  ):
    if killed == "before the record":
      patch.setattr(layout, "write_record", full)
    else:
      patch.setattr(Results, "_write", full)
    train(tmp_path / "r")
  assert vs.verify(tmp_path / "r").problems == []
  assert vs.open_results(tmp_path / "r").load().sizes["run"] == 6
  train(tmp_path / "r", seed_batch=3)
  root = read_metadata(tmp_path / "r")
  assert (root["block_runs"], root["extents"]) == (4, [6, RUNS])
  lengths = [len(block) for block in Results(tmp_path / "r").blocks]
  assert lengths == [4, 2, 4, 4, 4, 4, 2]
  assert all(file.read_bytes() == content for file, content in blocks.items())
  assert trained == [*range(10), *range(6, RUNS)]
  assert vs.verify(tmp_path / "r") == (RUNS, RUNS, [], [], [])
  same(tmp_path / "r", reference)
  rows = np.array([5, 6, 7, 23])
  np.testing.assert_array_equal(
    Results(tmp_path / "r").read("test/predictions", rows),
    vs.open_results(reference).predictions[rows],
  )


@pytest.fixture
def six_runs(tmp_path):
  return outputs_folder(tmp_path / "r", {"x": (np.zeros(6), {})}, block_runs=4)


def test_an_extension_writes_the_table_of_all_runs(six_runs):
  seeds = np.arange(15, dtype=np.uint32)
  growing.extend(Results(six_runs), 15, {"seed_init": seeds})
  found = Results(six_runs)
  assert found.plan_faults() == {}
  np.testing.assert_array_equal(found.table()["seed_init"], seeds)


def test_an_extension_that_ends_before_the_description_changes_nothing(
  six_runs, monkeypatch
):
  def ended(*_):
    raise KeyboardInterrupt

  seeds = np.arange(15, dtype=np.uint32)
  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    patch.setattr(growing, "replace", ended)
    growing.extend(Results(six_runs), 15, {"seed_init": seeds})
  found = Results(six_runs)
  assert found.plan_faults() == {}
  np.testing.assert_array_equal(found.table()["seed_init"], seeds[:6])
  assert vs.verify(six_runs) == (6, 6, [], [], [])


@pytest.mark.parametrize("lost", ["the file", "an array"])
def test_a_lost_plan_is_restored_from_the_same_runs_alone(six_runs, lost):
  if lost == "the file":
    (six_runs / "plan.npz").unlink()
    faults = {"plan.npz": "is missing"}
  else:
    np.savez(six_runs / "plan.npz", seed_init=np.arange(6, 0, -1).astype(np.uint32))
    faults = {"seed_init": "holds other values than were written"}
  found, seeds = Results(six_runs), np.arange(6, dtype=np.uint32)
  growing.restore(found, {"seed_init": seeds + 1})
  assert found.plan_faults() == faults
  growing.restore(found, {"seed_init": np.arange(9)})
  assert found.plan_faults() == {}
  np.testing.assert_array_equal(found.table()["seed_init"], seeds)


def test_whoever_reads_a_damaged_array_is_told_which_folder_is_damaged(
  tmp_path, reference
):
  shutil.copytree(reference, tmp_path / "r")
  opened = vs.open_results(tmp_path / "r")  # reads no predictions yet
  flipped(tmp_path / "r" / "test" / "predictions" / "c" / "1" / "0")
  line = r"r is damaged: an object cannot be read \(Stored and computed checksum"
  with pytest.raises(vs.UserError, match=line):
    (opened.predictions == opened.labels).mean("example").values  # noqa: B018
  with pytest.raises(vs.UserError, match=line):
    vs.error_matrix(tmp_path / "r")
  # Other blocks are as they were.
  assert opened.predictions[:1].values.shape == (1, opened.sizes["example"])


@pytest.mark.parametrize(
  ("read", "step"),
  [
    (vs.open_results, "results.opening._of_epoch"),
    (vs.tally, "results.opening.stored_tallies"),
    (vs.run_table, "results.by_run.roles"),
    (vs.example_table, "reports.examples_table.table_of_examples"),
    (vs.report, "reports.results_page.summarize"),
    (lambda folder: vs.compare(folder, folder), "reports.comparison_page._compare_all"),
  ],
)
@pytest.mark.parametrize("fault", [KeyError, ValueError])
def test_a_fault_of_a_computation_is_no_damage_of_the_folder(
  read, step, fault, reference, monkeypatch
):
  def fail(*args, **kwargs):
    raise fault("of the computation")

  monkeypatch.setattr(f"vmapseeds.{step}", fail)
  with pytest.raises(fault, match="of the computation") as caught:
    read(reference)
  assert not isinstance(caught.value, vs.UserError)


@pytest.mark.slow
@pytest.mark.optimized
def test_what_is_wrong_with_a_block_does_not_stop_an_extension(tmp_path):
  train(tmp_path / "r", 6)
  flipped(tmp_path / "r" / "test" / "predictions" / "c" / "1" / "0")
  with pytest.raises(
    vs.UserError,
    match=r"r is damaged: an object cannot be read \(Stored and computed checksum",
  ):
    train(tmp_path / "r", 8).load()
  verdict = vs.verify(tmp_path / "r", repair=True)
  assert (verdict.problems, verdict.runs, verdict.done) == ([], 8, 6)
  train(tmp_path / "r", 8)
  assert vs.verify(tmp_path / "r") == (8, 8, [], [], [])


def test_runs_are_read_without_the_others(tmp_path, reference):
  shutil.copytree(reference, tmp_path / "r")
  damaged = tmp_path / "r" / "test" / "predictions" / "c" / "1" / "0"
  damaged.write_bytes(b"no predictions")
  results, whole = vs.open_results(tmp_path / "r"), vs.open_results(reference)
  some = [0, 3, 8, RUNS - 1]
  np.testing.assert_array_equal(results.predictions[some], whole.predictions[some])
  with pytest.raises(Exception, match="checksum"):
    results.predictions[4].load()


@pytest.mark.slow
@pytest.mark.optimized
def test_plain_xarray_shows_holes_as_missing(tmp_path, reference):
  """The rows of a chunk that a short block does not have."""
  for runs in (6, 9, 11):
    train(tmp_path / "r", runs)
  opened = xr.open_zarr(tmp_path / "r", group="test").load()
  there = np.flatnonzero((opened.predictions != -1).any("example"))
  assert there.tolist() == [0, 1, 2, 3, 4, 5, 8, 9, 10, 12, 13]
  assert opened.sizes["run"] == 14
  assert (opened.predictions[[6, 7, 11]] == -1).all()
  whole = vs.open_results(reference).isel(run=slice(11))
  np.testing.assert_array_equal(opened.predictions[there], whole.predictions)
  with np.load(tmp_path / "r/plan.npz") as plan:
    assert plan["seed_init"].tolist() == list(range(11))
    right = opened.predictions[there].values == plan["test/labels"]
  np.testing.assert_array_equal(right.mean(1), whole.accuracy)
  assert vs.replay(tmp_path / "r", 7).same
  assert vs.verify(tmp_path / "r") == (11, 11, [], [], [])


def test_what_one_byte_anywhere_does_is_seen(tmp_path, reference):
  folder = tmp_path / "r"
  shutil.copytree(reference, folder)
  rng = np.random.default_rng(0)
  with np.load(folder / "plan.npz") as plan:
    seeds = plan["seed_order"].tobytes()
  start = (folder / "plan.npz").read_bytes().index(seeds)
  for file, places in (
    (folder / "test/predictions/c/0/0", None),
    (folder / "plan.npz", range(start, start + len(seeds))),
  ):
    whole = file.read_bytes()
    places = places or range(len(whole))
    for place in rng.choice(places, 12, replace=False):
      broken = bytearray(whole)
      broken[place] ^= 1 << rng.integers(8)
      file.write_bytes(bytes(broken))
      with pytest.raises(Exception, match=r"checksum|damaged"):
        vs.open_results(folder).load()
    file.write_bytes(whole)
  same(folder, reference)


# The disk


@pytest.mark.parametrize("full", ["test/predictions/c/2/0", "blocks/2.json"])
def test_a_full_disk_is_one_line_and_nothing_is_lost(full, tmp_path, reference, capsys):
  shutil.copytree(reference, tmp_path / "r")
  # A record's size varies, because it states seconds in more or fewer digits.
  most = (reference / full).stat().st_size - (40 if full.endswith("json") else 1)
  vs_repair(tmp_path / "r", "test/predictions/c/2/0")
  limits = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
  try:
    status, out, err = run(capsys, "work", tmp_path / "r", "--quiet")
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
  assert (status, out) == (1, "")
  assert re.fullmatch(
    r"error: .*/r cannot be written \(File too large\): free disk space and .* to resume\n",
    err,
  )
  assert vs.verify(tmp_path / "r").problems == []
  assert vs.open_results(tmp_path / "r").sizes["run"] == RUNS - 4
  assert vs.work(tmp_path / "r", progress=False).sizes["run"] == RUNS
  same(tmp_path / "r", reference)


@pytest.mark.slow
@pytest.mark.optimized
@pytest.mark.parametrize("module", [archives, growing])
def test_an_extension_that_was_interrupted(tmp_path, reference, monkeypatch, module):
  """It stops before the plan, or before the description, is written."""

  def interrupted(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")

  train(tmp_path / "r", 6)
  with (
    monkeypatch.context() as patch,
    pytest.raises(Failure, match=r"cannot be written \(No space left on device\)"),
  ):
    patch.setattr(module, "replace", interrupted)
    train(tmp_path / "r", 12)
  verdict = vs.verify(tmp_path / "r")
  assert (verdict.problems, verdict.notes, verdict.done) == ([], [], 6)
  assert vs.open_results(tmp_path / "r").load().sizes["run"] == 6
  assert vs.work(tmp_path / "r", progress=False).sizes["run"] == 6
  train(tmp_path / "r", 14)
  assert vs.verify(tmp_path / "r") == (14, 14, [], [], [])


# Stopping


@pytest.mark.parametrize(
  ("number", "status", "word"),
  [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_signals_finish_the_write_in_hand(
  number, status, word, tmp_path, trained, monkeypatch, capsys
):
  record = layout.write_record
  signal.signal(
    signal.SIGINT, signal.default_int_handler
  )  # a shell's background processes ignore it
  with monkeypatch.context() as patch:
    patch.setattr(
      layout,
      "write_record",
      lambda *args: (os.kill(os.getpid(), number), record(*args)),
    )
    before = signal.getsignal(signal.SIGTERM)
    said = run(
      capsys,
      *words_of("train digits_cnn --set epochs=1 model=linear --runs"),
      RUNS,
      "--seed-batch",
      4,
      "--out",
      tmp_path / "r",
      "--quiet",
    )
    signal.signal(signal.SIGTERM, before)
  assert said == (
    status,
    "",
    f"{word}: what was written stays; rerun the same command to resume\n",
  )
  assert claimed(tmp_path / "r") == {}
  assert vs.open_results(tmp_path / "r").sizes["run"] == 4
  assert vs.verify(tmp_path / "r").problems == []


# Other conditions


def test_settings_of_jax_that_change_results_are_refused(reference):
  usual = jax.__version__
  assert planning.package_versions()["jax"] == usual
  with jax.default_matmul_precision("highest"), jax.threefry_partitionable(False):
    changed = f"{usual} with jax_threefry_partitionable=False, jax_default_matmul_precision=highest"
    with pytest.raises(
      vs.UserError,
      match=re.escape(
        "its program was another (start, advance), and versions differ: jax: "
        f"{usual}, {changed}; give another out="
      ),
    ):
      train(reference, RUNS + 1)


@pytest.mark.slow
@pytest.mark.optimized
def test_runs_of_other_versions_and_widths_join_a_folder(tmp_path, monkeypatch, capsys):
  train(tmp_path / "r", 8, lane_width=1)
  now = planning.package_versions()
  monkeypatch.setattr(planning, "package_versions", lambda: {**now, "jax": "99.0"})
  with pytest.raises(vs.UserError, match="its recipe and this one differ in lr"):
    train(tmp_path / "r", 12, LINEAR.replace(lr=0.1))
  train(tmp_path / "r", 12, lane_width=2, progress=True)
  assert (
    f"has runs of several kinds (lane width 1, 2; jax {now['jax']}, 99.0), between which"
    in capsys.readouterr().err
  )
  results = vs.open_results(tmp_path / "r")
  assert (
    results.attrs["lane_width"],
    json.loads(results.attrs["versions"])["jax"],
  ) == (
    "mixed",
    "mixed",
  )
  first, last = (Results(tmp_path / "r").record(block) for block in (0, 2))
  assert [(w["versions"]["jax"], w["lane_width"]) for w in (first, last)] == [
    (now["jax"], 1),
    ("99.0", 2),
  ]
  assert vs.verify(tmp_path / "r").problems == []
  assert vs.replay(tmp_path / "r", 0).same
  assert vs.replay(tmp_path / "r", 9).same
  assert train(tmp_path / "r", 16, lane_width=1).sizes["run"] == 16


@pytest.mark.slow
@pytest.mark.optimized
def test_a_forced_recipe_is_recorded(tmp_path):
  train(tmp_path / "r", 8)
  other = LINEAR.replace(label_smoothing=0.5)
  with pytest.raises(
    vs.UserError, match=r"differ in label_smoothing: .* or force_mixed=True"
  ):
    train(tmp_path / "r", 12, other)
  results = train(tmp_path / "r", 12, other, force_mixed=True)
  assert results.attrs["mixed"] == 1
  assert read_metadata(tmp_path / "r")["recipe"] == LINEAR.to_json()
  records = [Results(tmp_path / "r").record(block)["recipe"] for block in (0, 2)]
  assert [json.loads(r)["label_smoothing"] for r in records] == [0, 0.5]
  assert all(vs.replay(tmp_path / "r", run).same for run in (0, 9)), (
    "as the run was trained, not as the folder began"
  )


def test_what_a_record_says(reference):
  write = Results(reference).record(1)
  assert (write["block"], write["runs"]) == (1, 4)
  assert {
    *words_of("versions commit device_kind platform lane_width lowering precision")
  } <= set(write)
  assert write["seconds"] >= write["compile_seconds"] >= 0
  assert "host" not in write


@pytest.mark.parametrize(
  ("record", "whole"),
  [
    ({"block": 1, "runs": 4}, True),
    ({"block": 0, "runs": 4}, False),
    ({"block": 1, "runs": 3}, False),
    ({"block": 1}, False),
    ({"block": 1, "runs": 4, "digests": "none"}, False),
    ({"block": 1, "runs": 4, "values": "none"}, False),
  ],
)
def test_a_record_is_of_its_block(record, whole):
  text = json.dumps(layout.signed({"digests": {}, "values": {}, **record})).encode()
  with (
    contextlib.nullcontext()
    if whole
    else pytest.raises((ValueError, KeyError), match=r"it is of block|runs|dictionary")
  ):
    assert layout.parse_record(text, 1, 4)["block"] == 1


@pytest.mark.parametrize(
  ("size", "extents", "blocks"),
  [
    (256, [100, 300], [range(100), range(100, 300)]),
    (2, [5, 6], [range(2), range(2, 4), range(4, 5), range(5, 6)]),
    (3, [6], [range(3), range(3, 6)]),
    (0, [6], None),
    (2, [6, 6], None),
    (2, [6, 4], None),
    (2, [], None),
  ],
)
def test_blocks_of_a_description(size, extents, blocks):
  root = {"block_runs": size, "extents": extents}
  if blocks is None:
    with pytest.raises(ValueError, match="cannot be cut into blocks"):
      layout.blocks_of(root)
    return
  assert layout.blocks_of(root) == blocks
  rows = [size * k + i for k, block in enumerate(blocks) for i in range(len(block))]
  assert zarr_rows(blocks, size).tolist() == rows
