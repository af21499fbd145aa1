"""Trainings that go on in the middle, and trained parameters that are kept."""

import dataclasses
import json
import math
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import flax
import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from cases import words_of

import vmapseeds as vs
from vmapseeds.campaign import block_loop, block_training, planning, progress
from vmapseeds.campaign.options import Options
from vmapseeds.data import load_dataset
from vmapseeds.lanes import Execution
from vmapseeds.results.description import stored_variable_shapes
from vmapseeds.store import checkpoints, claims
from vmapseeds.store.checkpoints import Checkpoints
from vmapseeds.store.layout import read_metadata, small_arrays
from vmapseeds.store.results import Results
from vmapseeds.training.networks import make_network

# Adam rounds differently in one program for all epochs than in programs that stop in
# between.
ADAM = vs.recipe("digits_cnn", model="linear", optimizer="adam", lr=1e-3, epochs=6)


def train(out, n=6, recipe=ADAM, runs=None, **options):
  options = {"progress": False, "lane_width": 2, **options}
  return vs.train(recipe, runs or vs.Runs.independent(n), out, **options)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
  """Six runs on two devices, two lanes each: a full step and half a step, without
  checkpoints.
  """
  out = tmp_path_factory.mktemp("undisturbed") / "r"
  options = {"checkpoint_every": "never", "logits": True, "keep_params": True}
  return out, train(out, **options).load()


def same(results, reference, names=("predictions", "accuracy", "diverged")):
  for name in names:
    np.testing.assert_array_equal(results[name], reference[name])


def interrupt(out, monkeypatch, after, **options):
  """Trains until `after` checkpoints are saved."""
  save, saved = Checkpoints.save, []

  def interrupted(self, *args):
    save(self, *args)
    saved.append(args)
    if len(saved) == after:
      raise KeyboardInterrupt

  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    patch.setattr(Checkpoints, "save", interrupted)
    train(out, **{"checkpoint_every": 2, **options})


@pytest.fixture
def saved(monkeypatch):
  """(block, epochs) of every checkpoint that is saved."""
  save, saved = Checkpoints.save, []
  monkeypatch.setattr(
    Checkpoints,
    "save",
    lambda self, rounds, state: (
      saved.append((self.block, rounds)) or save(self, rounds, state)
    ),
  )
  return saved


@pytest.mark.optimized
def test_checkpoints_change_no_bit(tmp_path, saved):
  folder, reference = (
    tmp_path / "undisturbed",
    train(
      tmp_path / "undisturbed", checkpoint_every="never", logits=True, keep_params=True
    ),
  )
  results = train(tmp_path / "r", checkpoint_every=4, logits=True, keep_params=True)
  assert saved == [(0, 4)], "not at the end, where the results are written"
  same(results, reference, ("predictions", "accuracy", "diverged", "logits"))
  for row in (0, 5):
    for a, b in zip(
      *(
        jax.tree.leaves(vs.load_networks(f, row).variables)
        for f in (folder, tmp_path / "r")
      ),
      strict=True,
    ):
      np.testing.assert_array_equal(a, b)
  assert not (tmp_path / "r" / "checkpoints").exists()


@pytest.mark.slow
@pytest.mark.optimized
def test_checkpoints_of_convolutions_change_no_bit(tmp_path):
  cnn = vs.recipe("digits_cnn", epochs=2, augment="")
  same(train(tmp_path / "a", 3, cnn, checkpoint_every=1), train(tmp_path / "b", 3, cnn))


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 2, 4])
def test_an_interrupted_training_goes_on_in_the_middle(
  tmp_path, undisturbed, monkeypatch, saved, after
):
  interrupt(
    tmp_path / "r", monkeypatch, after, logits=True, keep_params=True, seed_batch=4
  )
  interrupted_at = saved[-1]
  assert vs.open_results(tmp_path / "r").sizes["run"] == 4 * interrupted_at[0]
  del saved[:]
  # The interval may change: checkpoints of another one are used.
  results = train(
    tmp_path / "r", checkpoint_every=1, logits=True, keep_params=True, seed_batch=4
  )
  whole = [(block, epoch) for block in (0, 1) for epoch in range(1, 6)]
  assert saved == whole[whole.index(interrupted_at) + 1 :], (
    "nothing that was saved is trained again"
  )
  same(results, undisturbed[1], ("predictions", "accuracy", "diverged", "logits"))
  assert not (tmp_path / "r" / "checkpoints").exists()


@pytest.mark.slow
def test_the_time_before_an_interruption_counts(tmp_path, monkeypatch):
  interrupt(tmp_path / "r", monkeypatch, 2)
  (about,) = (tmp_path / "r" / "checkpoints" / "0").glob("*.json")
  saved = json.loads(about.read_text())
  assert saved["seconds"] > 0
  about.write_text(json.dumps(saved | {"seconds": 1000.0}))
  train(tmp_path / "r", checkpoint_every=2)
  assert 1000 < Results(tmp_path / "r").record(0)["seconds"] < 1100


def test_the_newest_states_of_the_same_runs_are_taken(tmp_path, capsys):
  state = {"a": np.arange(6.0).reshape(3, 2), "b": np.arange(3)}
  later = jax.tree.map(lambda x: x + 1, state)

  def keeper(seeds, block=0):
    table, said = {"seed": np.array(seeds, np.uint32)}, lambda *_: None
    return Checkpoints(tmp_path, block, table, 1, fits={"recipe": "r"}, reached=said)

  keeper([0, 1, 2]).save(1, state)
  shutil.copytree(tmp_path / "checkpoints/0", tmp_path / "before")
  keeper([0, 1, 2]).save(2, later)
  # It was interrupted before it removed the one before.
  shutil.copytree(tmp_path / "before", tmp_path / "checkpoints/0", dirs_exist_ok=True)
  rounds, found = keeper([0, 1, 2]).load(state)
  assert rounds == 2
  jax.tree.map(np.testing.assert_array_equal, found, later)
  assert keeper([0, 1, 3]).load(state) is None
  assert "is ignored: it is of other runs" in capsys.readouterr().err
  assert not (tmp_path / "checkpoints/0").exists()


@pytest.mark.slow
def test_how_far_it_is_is_said(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(progress, "INTERVAL", 0)
  interrupt(tmp_path / "r", monkeypatch, 1, progress=True)
  *lines, last = capsys.readouterr().err.splitlines()
  assert lines[-3:] == [
    "0/6 runs, 6 at epoch 2",
    "6 runs in training: they will resume after epoch 2",
    "0/6 runs, 6 at epoch 2",
  ], "when it is saved, and at the end"
  assert last.startswith("interrupted: ")
  train(tmp_path / "r", checkpoint_every=2, progress=True)
  said = capsys.readouterr().err.splitlines()
  assert said[0].startswith("training 6 runs of ")
  assert said[1] == "6 runs resume after epoch 2"
  assert said[2] == "0/6 runs, 6 at epoch 4"
  assert said[-1].startswith("6/6 runs, ")
  assert "epoch" not in said[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
  ("begun", "when"),
  [
    (86400.0, r" at 1970-01-0\d \S+"),
    # What another program wrote there may be no time.
    (1e300, ""),
    (math.nan, ""),
    (-1e300, ""),
  ],
)
def test_what_a_kill_lost_is_said(begun, when, tmp_path, monkeypatch, capsys):
  interrupt(tmp_path / "r", monkeypatch, 1)
  shutil.rmtree(tmp_path / "r" / "checkpoints")
  gone = claims._process(os.getpid()) | {"started": "0", "token": "t", "begun": begun}
  (tmp_path / "r" / "blocks").mkdir(exist_ok=True)
  (tmp_path / "r" / "blocks" / "0.claim").write_text(json.dumps(gone))
  train(tmp_path / "r", progress=True)
  said = capsys.readouterr().err
  assert re.search(
    rf"^6 runs begun{when} by a process that has ended; starting them again$",
    said,
    re.MULTILINE,
  )


def test_what_ctrl_c_loses_is_said(tmp_path, monkeypatch, capsys):
  def interrupted(*args):
    raise KeyboardInterrupt

  monkeypatch.setattr(block_training, "run_lanes", interrupted)
  with pytest.raises(KeyboardInterrupt):
    train(tmp_path / "r", progress=True)
  assert "6 runs in training: they will start again" in capsys.readouterr().err


@pytest.mark.parametrize(
  ("speed", "width", "options", "interval"),
  [
    (1.0, 1, {}, "auto"),  # 6 runs of 6 epochs of 31 steps take 1,116 s
    (0.01, 1, {}, None),
    (None, 2, {}, "auto"),  # two steps of lanes
    (1.0, 1, {"checkpoint_every": "never"}, None),
    (0.01, 1, {"checkpoint_every": 3}, 3),
  ],
)
def test_long_blocks_are_saved_by_default(speed, width, options, interval, monkeypatch):
  given = Options(predictions="all", **options)
  task = planning.check_task(
    *planning.load_task(ADAM, vs.Runs.independent(6), given), given
  )
  monkeypatch.setattr(block_loop, "known_speed", lambda task, execution: speed)
  plan = task.planned(Execution("sequential", width), block_runs=6)
  assert block_loop.checkpoint_interval(plan, plan.runs) == interval
  monkeypatch.setattr(block_loop, "free_host_memory", lambda: 1000.0)
  if not options:
    assert block_loop.checkpoint_interval(plan, plan.runs) is None, (
      "no memory for states"
    )
  of_one_round = dataclasses.replace(plan.task, rounds=1)
  one_round = dataclasses.replace(plan, task=of_one_round)
  monkeypatch.undo()
  if not options:
    assert block_loop.checkpoint_interval(one_round, plan.runs) is None


def test_blocks_of_many_steps_and_unknown_speed_are_not_saved(monkeypatch):
  options = Options()
  runs = vs.Runs.independent(50)
  task = planning.check_task(*planning.load_task(ADAM, runs, options), options)
  plan = task.planned(Execution("sequential", 1), block_runs=50)
  monkeypatch.setattr(block_loop, "known_speed", lambda task, execution: None)
  assert block_loop.checkpoint_interval(plan, plan.runs) is None


@pytest.mark.slow
def test_sigkill_amid_checkpoints(tmp_path, capsys):
  recipe, out = ADAM.replace(epochs=60), tmp_path / "r"
  command = [
    sys.executable,
    *words_of("-m vmapseeds.cli train digits_cnn --out"),
    str(out),
    *words_of(
      "--runs 4 --quiet --set model=linear optimizer=adam lr=0.001 epochs=60 "
      "--checkpoint-every 1"
    ),
  ]
  process = subprocess.Popen(command, env=os.environ)
  deadline = time.time() + 60
  while time.time() < deadline and not any(
    f.stem.isdigit() and int(f.stem) > 4 for f in out.glob("checkpoints/0/*.json")
  ):
    time.sleep(0.01)
  os.kill(process.pid, signal.SIGKILL)
  assert process.wait() == -signal.SIGKILL
  assert vs.open_results(out).sizes["run"] == 0
  going_on = train(out, 4, recipe, lane_width=None, checkpoint_every=100)
  assert capsys.readouterr().err == "", "what a kill leaves behind is no fault"
  same(going_on, train(tmp_path / "whole", 4, recipe, lane_width=None))
  assert not (out / "checkpoints").exists()


def largest(folder):
  return max(
    (f for f in (folder, *folder.rglob("*")) if f.is_file()),
    key=lambda f: f.stat().st_size,
  )


def torn(folder):
  largest(folder).write_bytes(largest(folder).read_bytes()[:500])


def flipped(folder):
  content = bytearray(largest(folder).read_bytes())
  content[len(content) // 2] ^= 1
  largest(folder).write_bytes(content)


def says(**other):
  def change(folder):
    file = folder.with_name("2.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | other))

  return change


def renamed(folder):
  folder.rename(folder.with_name("4"))
  folder.with_name("2.json").rename(folder.with_name("4.json"))


@pytest.mark.slow
@pytest.mark.parametrize(
  ("harm", "message"),
  [
    (torn, "it is not as it was written"),
    (flipped, "it is not as it was written"),
    (says(versions={}), "it is of other versions"),
    (says(lane_width=1), "it is of other lane width"),
    (says(identity={}), "it is of other identity"),
    (says(runs="0"), "it is of other runs"),
    (says(digest="0"), "it is not as it was written"),
    (says(epochs=3), "it is of other epochs"),
    (shutil.rmtree, "it is not as it was written"),
    (
      lambda folder: folder.with_name("2.json").write_text("[" * 9999),
      "it cannot be read",
    ),
    (lambda folder: folder.with_name("2.json").write_text("[]"), "it cannot be read"),
    (renamed, "it is of other epochs"),
  ],
)
def test_a_checkpoint_that_does_not_fit_is_ignored(
  tmp_path, undisturbed, monkeypatch, capfd, harm, message
):
  interrupt(tmp_path / "r", monkeypatch, 1, logits=True, keep_params=True)
  harm(tmp_path / "r" / "checkpoints" / "0" / "2")
  capfd.readouterr()  # of the interrupt
  results = train(tmp_path / "r", checkpoint_every=2, logits=True, keep_params=True)
  (said,) = capfd.readouterr().err.splitlines()
  assert said.startswith("the checkpoint 0/")
  assert re.search(f"is ignored: {message}", said)
  same(results, undisturbed[1], ("predictions", "accuracy", "diverged", "logits"))


@pytest.mark.slow
def test_other_seed_batches_and_the_flag_left_out(
  tmp_path, undisturbed, monkeypatch, capsys
):
  interrupt(tmp_path / "r", monkeypatch, 1, logits=True, keep_params=True)
  capsys.readouterr()
  results = train(
    tmp_path / "r",
    checkpoint_every=2,
    seed_batch=2,
    logits=True,
    keep_params=True,
    progress=True,
  )
  said = capsys.readouterr().err.splitlines()
  assert said[0] == (
    f"the seed batch is 256, as in {tmp_path}/r, not 2: a folder keeps its own"
  )
  assert said[2] == "6 runs resume after epoch 2"
  same(results, undisturbed[1])
  interrupt(tmp_path / "s", monkeypatch, 1, logits=True, keep_params=True)
  capsys.readouterr()
  without_flag = train(tmp_path / "s", logits=True, keep_params=True, progress=True)
  assert "6 runs resume after epoch 2" in capsys.readouterr().err.splitlines()
  same(without_flag, undisturbed[1])
  assert not (tmp_path / "s" / "checkpoints").exists()


@pytest.mark.slow
def test_fewer_runs_than_a_killed_campaign_resume_its_checkpoint(
  tmp_path, undisturbed, monkeypatch, capsys
):
  out = tmp_path / "r"
  interrupt(out, monkeypatch, 1, logits=True, keep_params=True)
  capsys.readouterr()
  results = train(out, 2, logits=True, keep_params=True, progress=True)
  said = capsys.readouterr().err.splitlines()
  assert said[0] == "a folder's blocks are trained whole: 6 runs, not 2"
  assert said[1].startswith("training 6 runs of ")
  assert said[2] == "6 runs resume after epoch 2"
  assert results.sizes["run"] == 6
  same(results, undisturbed[1])


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_written_stops_nothing(
  tmp_path, undisturbed, monkeypatch, capsys
):
  def full(*args, **options):
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(checkpoints, "replace", full)
  same(train(tmp_path / "r", checkpoint_every=4), undisturbed[1])
  first, *_ = capsys.readouterr().err.splitlines()
  assert (
    first
    == "no checkpoint of block 0 after epoch 4: [Errno 28] No space left on device"
  )


@pytest.mark.parametrize(
  ("a_round", "a_save", "rounds", "saves"),
  [
    (0.1, 0.01, 100, [0]),  # over before a checkpoint is worth its time
    (1.0, 0.01, 1000, range(30, 1000)),
    (1.0, 0.5, 1000, range(30, 42)),
    (1.0, 60.0, 10000, range(2, 5)),
    (400.0, 2.0, 20, range(18, 20)),
  ],
)
def test_auto_saves_for_at_most_2_percent_of_the_time(
  a_round, a_save, rounds, saves, tmp_path, monkeypatch
):
  """With a clock of our own, and the first round slow, as it compiles."""
  now, written = [0.0], []
  monkeypatch.setattr(checkpoints.time, "perf_counter", lambda: now[0])

  def write(self, at, state):
    written.append((at, now[0]))
    now[0] += a_save

  monkeypatch.setattr(Checkpoints, "_write", write)
  about = {"fits": {}, "reached": lambda *_: None}
  keeper, done = Checkpoints(tmp_path, 0, np.zeros(2), "auto", **about), 0
  now[0] += 10
  while done + keeper.every < rounds:
    last = done + keeper.every
    now[0] += a_round * (last - done)
    keeper.save(last, None)
    done = last
    # The first save is made before its cost is known.
    if len(written) > 1 or a_save <= checkpoints.FIRST_COST:
      assert len(written) * a_save <= 0.0201 * now[0]
  assert len(written) in saves, len(written)


@pytest.mark.slow
def test_auto_is_taken_by_train(tmp_path, undisturbed, saved):
  same(train(tmp_path / "r", checkpoint_every="auto"), undisturbed[1])
  assert saved
  assert not (tmp_path / "r" / "checkpoints").exists()
  for wrong in ("often", 0.5):
    with pytest.raises(vs.UserError, match=r"checkpoint_every is .*: give a whole"):
      train(tmp_path / "n", checkpoint_every=wrong)


def test_several_hosts_are_refused_checkpoints(tmp_path, monkeypatch):
  monkeypatch.setattr(jax, "process_count", lambda: 2)
  with pytest.raises(vs.UserError, match="start `vmapseeds work` on each host instead"):
    train(tmp_path / "r", checkpoint_every=1)
  assert not (tmp_path / "r").exists()


# Trained parameters.


@pytest.mark.slow
def test_kept_parameters_give_the_stored_predictions(tmp_path):
  """Extended twice, with label maps, and with a network that has batch statistics."""
  rng, images = np.random.default_rng(0), load_dataset("digits").train.inputs
  np.savez(
    tmp_path / "d.npz",
    x_train=images[:40],
    y_train=np.arange(40) % 10,
    x_test=images[40:60],
    y_test=np.arange(20) % 10,
  )
  recipe = ADAM.replace(
    model="test_supervised:Net",
    dataset=str(tmp_path / "d.npz"),
    batch_size=20,
    lr=0.1,
    epochs=1,
    mean=None,
    std=None,
    augment="flip",
  )
  runs = vs.Runs.independent(5).with_label_map(rng.integers(0, 3, (5, 10)))
  for n in (2, 5):
    results = train(
      tmp_path / "r",
      recipe=recipe,
      runs=runs[slice(n)],
      seed_batch=2,
      lane_width=1,
      keep_params=True,
      logits=True,
    )
  shown, networks = images[40:60], vs.load_networks(tmp_path / "r")
  (tmp_path / "d.npz").unlink()  # the folder holds what normalisation needs
  assert set(networks.variables) == {"params", "batch_stats"}
  assert all(
    isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(networks.variables)
  )
  logits = jax.jit(jax.vmap(networks.apply, (0, None)))(networks.variables, shown)
  np.testing.assert_array_equal(logits.argmax(-1), results.predictions)
  np.testing.assert_allclose(logits, results.logits, rtol=1e-4, atol=1e-5)
  assert len(np.unique(logits, axis=0)) == 5, "the runs differ"
  # The network by itself, normalised by hand.
  normalised = jax.numpy.asarray(
    (shown - images[:40].mean()) / images[:40].std(), "float32"
  )
  plain = jax.jit(make_network(recipe, 3).apply)(
    vs.load_networks(tmp_path / "r", 4).variables, normalised
  )
  np.testing.assert_allclose(plain, results.logits[4], rtol=1e-4, atol=1e-4)
  some = vs.load_networks(tmp_path / "r", [4, 1])
  jax.tree.map(
    lambda a, b: np.testing.assert_array_equal(a, b[[4, 1]]),
    some.variables,
    networks.variables,
  )


@pytest.mark.slow
def test_exported_networks_are_restored_by_orbax_alone(tmp_path, undisturbed):
  folder, images = undisturbed[0], load_dataset("digits").tests["test"].inputs[:9]
  program = Path(__file__).parents[2] / "docs" / "programs" / "export_networks.py"
  runpy.run_path(str(program))["export"](folder, tmp_path / "o")
  assert {f.name for f in (tmp_path / "o").iterdir()} == set("012345")
  with ocp.StandardCheckpointer() as checkpointer:
    for row in (1, 4):
      variables = checkpointer.restore(tmp_path / "o" / str(row))
      about = checkpointer.metadata(tmp_path / "o" / str(row)).custom_metadata
      normalised = (images - np.array(about["mean"])) / np.array(about["std"])
      dense = {"params": variables["params"]["Dense_0"]}
      logits = flax.linen.Dense(10).apply(dense, normalised.reshape(9, -1))
      ours = vs.load_networks(folder, row)
      assert jax.tree.structure(variables) == jax.tree.structure(ours.variables)
      jax.tree.map(np.testing.assert_array_equal, variables, ours.variables)
      np.testing.assert_allclose(
        logits, ours.apply(ours.variables, images), rtol=1e-5, atol=1e-5
      )
  assert vs.Recipe.from_json(about["recipe"]) == ADAM


@pytest.mark.parametrize(
  ("run", "message"),
  [
    (6, "run 6 of a folder with 6: the last is 5"),
    ([0, 7], "run 7 of a folder"),
    (-1, "runs is -1: give the number of"),
    ("x", "runs is 'x'"),
    ([], r"runs is \[\]: give"),
    (1.0, "runs is 1.0"),
    (slice(2), "runs is slice"),
  ],
)
def test_runs_that_are_not_there(undisturbed, run, message):
  with pytest.raises(vs.UserError, match=message):
    vs.load_networks(undisturbed[0], run)


def test_images_that_networks_cannot_take(undisturbed):
  networks = vs.load_networks(undisturbed[0], 0)
  for shape in ((8, 8, 1), (2, 8, 8, 2), (2, 9, 12, 1)):
    with pytest.raises(
      vs.UserError,
      match=r"inputs have shape .*: give \(examples, \.\.\., 1\), as in digits",
    ):
      networks.apply(networks.variables, np.zeros(shape, np.uint8))


@pytest.mark.slow
def test_parameters_that_were_not_kept(tmp_path, undisturbed):
  train(tmp_path / "r", 2, recipe=ADAM.replace(epochs=1), lane_width=1)
  vs.import_runs(
    tmp_path / "i",
    predictions=np.zeros((2, 3), int),
    labels=np.zeros(3, int),
    progress=False,
  )
  for folder in ("r", "i"):
    with pytest.raises(
      vs.UserError,
      match=f"{folder} holds no trained parameters: `vmapseeds train --keep-params`",
    ):
      vs.load_networks(tmp_path / folder, 0)
  with pytest.raises(vs.UserError, match="is not a results folder"):
    vs.load_networks(tmp_path / "none", 0)
  with pytest.raises(vs.UserError, match="trained parameters are not kept there"):
    train(
      tmp_path / "r", 2, recipe=ADAM.replace(epochs=1), lane_width=1, keep_params=True
    )
  with pytest.raises(vs.UserError, match="trained parameters are kept there"):
    train(undisturbed[0], logits=True)
  with pytest.raises(vs.UserError, match="imported runs, which cannot be extended"):
    train(tmp_path / "i", keep_params=True)
  with pytest.raises(vs.UserError, match=r"checkpoint_every is 0: .*at least 1"):
    train(tmp_path / "n", checkpoint_every=0)
  assert not (tmp_path / "n").exists()


def test_a_run_that_is_not_trained_yet(tmp_path, monkeypatch):
  interrupt(tmp_path / "r", monkeypatch, 1, keep_params=True)
  with pytest.raises(vs.UserError, match=r"run 3 of .* is not trained yet"):
    vs.load_networks(tmp_path / "r", 3)


@pytest.mark.slow
def test_damaged_parameters_are_named_and_trained_again(tmp_path, undisturbed):
  folder, reference = tmp_path / "r", undisturbed[0]
  shutil.copytree(reference, folder)
  root = read_metadata(folder)
  small = small_arrays(root)
  name = next(
    n for n in sorted(stored_variable_shapes(root)) if f"variables/{n}" not in small
  )
  objects = sorted(
    (folder / "variables" / name / "c").rglob("*"), key=lambda f: len(f.parts)
  )
  whole = objects[-1].read_bytes()
  flipped(folder / "variables" / name)
  with pytest.raises(
    vs.UserError,
    match=r"r is damaged: an object cannot be read .*checksum.*`vmapseeds verify",
  ):
    vs.load_networks(folder, 0)
  assert len(vs.verify(folder).problems) == 1
  objects[-1].unlink()
  with pytest.raises(
    vs.UserError, match=rf"damaged: variables/{name}/c/0/.* is missing"
  ):
    vs.load_networks(folder, 0)
  verdict = vs.verify(folder, repair=True)
  assert (verdict.problems, verdict.done) == ([], 0)
  train(folder, logits=True, keep_params=True)
  assert objects[-1].read_bytes() == whole
  assert vs.verify(folder).problems == []


@pytest.mark.parametrize(
  "name", ["variables", "blocks", "checkpoints", "seed_init", "diverged"]
)
def test_test_sets_named_as_something_else(tmp_path, name):
  images, labels = (
    np.random.default_rng(0).integers(0, 255, (8, 8, 8, 1), np.uint8),
    np.arange(8) % 2,
  )
  np.savez(
    tmp_path / "d.npz",
    x_train=images,
    y_train=labels,
    **{f"x_{name}": images, f"y_{name}": labels},
  )
  with pytest.raises(vs.UserError, match=f"test set '{name}': .*already used"):
    train(
      tmp_path / "r",
      recipe=ADAM.replace(
        dataset=str(tmp_path / "d.npz"), test_sets=(name,), batch_size=4
      ),
    )
  assert not (tmp_path / "r").exists()
