"""Campaigns on disk: what is stored, what resumes, what is refused."""

import json
import os
import shutil
import subprocess
import sys
import types

import jax
import numpy as np
import pytest
import xarray as xr
import zarr
from cases import words_of

import vmapseeds as vs
from vmapseeds.campaign import block_training, execution, progress, starting
from vmapseeds.campaign.options import Options
from vmapseeds.campaign.planning import check_task, load_task
from vmapseeds.campaign.progress import Progress
from vmapseeds.data import load_dataset
from vmapseeds.lanes import Execution, choice
from vmapseeds.results import description
from vmapseeds.results.opening import prediction_blocks
from vmapseeds.store import claims, folders
from vmapseeds.store.results import Results
from vmapseeds.training import recipe_data

RECIPE = vs.recipe("digits_cnn", epochs=1)
LINEAR = RECIPE.replace(model="linear")  # compiles soon


def checked(recipe, runs, **options):
  options = Options(**options)
  return check_task(*load_task(recipe, runs, options), options)


def train(out, n, recipe=LINEAR, runs=None, **options):
  options = {"progress": False, **options}
  return vs.train(recipe, runs or vs.Runs.independent(n), out, **options)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
  """Twelve runs, trained in one go."""
  return train(tmp_path_factory.mktemp("reference") / "all", 12).load()


def same(results, reference):
  for name in ("predictions", "accuracy", "diverged"):
    np.testing.assert_array_equal(
      results[name], reference[name][: results.sizes["run"]]
    )


@pytest.mark.slow
@pytest.mark.optimized
def test_schema(tmp_path):
  results = train(tmp_path / "r", 3, LINEAR, logits=True)
  assert dict(results.sizes) == {
    "run": 3,
    "example": 797,
    "class": 10,
    "half": 2,
    "block": 1,
    "combination": 1,
    "place": 3,
  }
  names = {
    *words_of(
      "predictions labels accuracy diverged nonfinite_steps logits "
      "half_errors votes counted run_place"
    ),
    *LINEAR.hyperparameters,
  }
  assert set(results.variables) == names | {
    f"seed_{s}" for s in ("init", "order", "augment", "dropout", "data")
  }
  assert results.predictions.dims == ("run", "example")
  assert results.logits.dims == ("run", "example", "class")
  np.testing.assert_array_equal(results.predictions, results.logits.argmax("class"))
  np.testing.assert_array_equal(
    results.labels, load_dataset("digits").tests["test"].targets
  )
  np.testing.assert_array_equal(
    results.accuracy, (results.predictions == results.labels).mean("example")
  )
  assert vs.Recipe.from_json(results.attrs["recipe"]) == LINEAR
  assert (
    results.attrs["lane_width"],
    results.attrs["lowering"],
    results.attrs["device_kind"],
  ) == (2, "sequential", "cpu")
  assert results.attrs["precision"] == "float32"
  assert {"jax", "flax", "numpy", "vmapseeds", "python"} <= set(
    json.loads(results.attrs["versions"])
  )
  assert results.predictions.std("run").max() > 0, "the runs differ"
  same(results, train(tmp_path / "without logits", 3, LINEAR))


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (lambda out: vs.train(RECIPE, 3, 4), "4 is no folder: give its path or its URL"),
    (
      lambda out: vs.train(RECIPE, 3, out.encode()),
      "is no folder: give its path or its URL",
    ),
    (lambda out: vs.train(vs.Runs.independent(2), RECIPE, out), "unknown recipe Runs"),
    (
      lambda out: vs.train({"model": "linear"}, 3, out),
      "unknown recipe {'model': 'linear'}",
    ),
    (
      lambda out: vs.train(RECIPE, None, out),
      "runs is None: give how many, or a table as vs.Runs.independent makes it",
    ),
    (lambda out: vs.train(RECIPE, [1, 2], out), r"runs is \[1, 2\]: give how many"),
    (
      lambda out: vs.train(RECIPE, vs.Runs.independent(2)[:0], out),
      "runs is 0: .*at least 1",
    ),
    (
      lambda out: vs.train(RECIPE, 2, out, logits="no"),
      "logits is 'no': give True or False",
    ),
    (
      lambda out: vs.train(RECIPE, 2, out, tallies="no"),
      "tallies is 'no': give True or False",
    ),
    (
      lambda out: vs.train(RECIPE.replace(width=1000), 2, out),
      "has 4,609,472,010 parameters, in training 55.3 GB: more",
    ),
    (lambda out: vs.work(None), "None is no folder"),
    (
      lambda out: vs.work(out, 3),
      r"blocks is 3: give \(first, one past the last\), e.g. \(0, 10\)",
    ),
    (lambda out: vs.work(out, "0:1"), "blocks is '0:1': give"),
    (lambda out: vs.work(out, (0, 1.5)), r"blocks is \(0, 1.5\): give"),
    (lambda out: vs.replay(None, 0), "None is no folder"),
    (lambda out: vs.verify(3), "3 is no folder"),
    (lambda out: vs.open_results(123), "123 is no folder"),
    (lambda out: vs.load_networks(123), "123 is no folder"),
    (
      lambda out: vs.import_runs(None, labels=[0], predictions=[[0]]),
      "None is no folder",
    ),
    (
      lambda out: vs.error_matrix(np.zeros((2, 3))),
      "results is ndarray: give what vs.open_results returns, or the path",
    ),
    (lambda out: next(prediction_blocks(None)), "results is NoneType: give"),
    (
      lambda out: vs.tally(5),
      "results is int: give what vs.open_results returns, or the path",
    ),
    (lambda out: vs.merge(5, out), "no results folders to merge: give a list"),
    (lambda out: vs.report(5), "5 is no folder: give its path or its URL"),
  ],
)
def test_wrong_kinds_of_things(call, message, tmp_path):
  with pytest.raises(vs.UserError, match=message):
    call(str(tmp_path / "r"))
  assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_xarray_opens_all_groups_as_a_tree(tmp_path):
  recipe = LINEAR.replace(test_sets=("test", "train"))
  for runs in (2, 4):  # extended: two blocks
    train(tmp_path / "r", runs, recipe, seed_batch=2, keep_params=True, logits=True)
  tree = xr.open_datatree(tmp_path / "r", engine="zarr")
  assert {"/", "/test", "/train", "/variables"} <= {*tree.groups}
  for test_set in ("test", "train"):
    opened = vs.open_results(tmp_path / "r", test_set)
    for name in ("predictions", "logits"):
      np.testing.assert_array_equal(tree[f"{test_set}/{name}"], opened[name])
  leaves = {
    f"{group.path}/{name}": array.shape
    for group in tree["variables"].subtree
    for name, array in group.data_vars.items()
  }
  with np.load(tmp_path / "r/blocks/values_2.npz") as small:
    leaves |= {name: small[name].shape for name in small if "variables/" in name}
  assert {shape[0] for shape in leaves.values()} == {4}
  assert len(leaves) == 2


def test_more_runs_extend_and_nothing_is_trained_twice(
  reference, tmp_path, monkeypatch, capsys
):
  trained = []
  write = Results.write_block
  monkeypatch.setattr(
    Results,
    "write_block",
    lambda self, block, *rest: (
      trained.extend(self.blocks[block]),
      write(self, block, *rest),
    ),
  )
  train(tmp_path / "r", 5, seed_batch=2)
  assert trained == [0, 1, 2, 3, 4]
  results = train(tmp_path / "r", 12, seed_batch=4)
  assert trained == list(range(12))
  train(tmp_path / "r", 12)
  capsys.readouterr()
  train(tmp_path / "r", 3, progress=True)
  assert capsys.readouterr().err.startswith("4/4 runs, accuracy")
  assert trained == list(range(12))
  same(results, reference)


@pytest.mark.slow
def test_sweeps_and_maps_are_stored(tmp_path):
  runs = vs.Runs.concat([vs.Runs.sweep(lr=[0.01, 0.05], seeds=2)] * 2)
  results = train(tmp_path / "sweep", 8, LINEAR, runs=runs)
  assert results.lr.values.tolist() == pytest.approx([0.01, 0.05] * 4)
  assert results.seed_init.values.tolist() == [0, 0, 1, 1] * 2

  maps = np.array([[0] * 5 + [1] * 5, [0, 1] * 5])
  results = train(
    tmp_path / "map",
    2,
    LINEAR,
    runs=vs.Runs.independent(2).with_label_map(maps),
    logits=True,
  )
  assert results.sizes["class"] == 2
  labels = load_dataset("digits").tests["test"].targets
  np.testing.assert_array_equal(results.original_labels, labels)
  np.testing.assert_array_equal(results.labels, maps[:, labels])
  np.testing.assert_allclose(
    results.accuracy, (results.predictions == results.labels).mean("example")
  )
  np.testing.assert_array_equal(
    vs.error_matrix(results), results.predictions.values != maps[:, labels]
  )
  assert 0.6 < results.accuracy.mean() < 1, "two classes are learned, not ten"
  with pytest.raises(vs.UserError, match="label map each"):
    next(prediction_blocks(results))

  results = train(
    tmp_path / "one map", 2, LINEAR, runs=vs.Runs.independent(2).with_label_map(maps[0])
  )
  predictions, mapped = results.predictions.values, results.labels.values
  np.testing.assert_array_equal(mapped, maps[0][labels])
  np.testing.assert_allclose(results.accuracy, (predictions == mapped).mean(1))
  # With two voters the lower class wins a tie, so one vote for class 0 is enough.
  assert vs.stats.ensemble_accuracy(predictions, mapped, 2) == pytest.approx(
    (predictions.min(0) == mapped).mean()
  )
  np.testing.assert_array_equal(next(prediction_blocks(results)), predictions)


@pytest.mark.slow
def test_a_diverged_run_is_marked_and_kept_out_of_the_errors(tmp_path):
  runs = vs.Runs.sweep(lr=[0.05, 1e6], seeds=2)
  results = train(tmp_path / "r", 4, RECIPE, runs)
  assert results.diverged.values.tolist() == [False, True, False, True]
  assert (results.predictions[1] == -1).all()
  assert vs.error_matrix(results).shape == (2, 797)
  for runs in (1, 2, 5):
    tallies = vs.stats.tally_blocks(
      prediction_blocks(results, runs), results.labels.values, 10, pairs=True
    )
    assert tallies.runs == 2
    np.testing.assert_array_equal(
      np.diag(tallies.joint_errors), vs.error_matrix(results).sum(0)
    )
  calm = train(tmp_path / "calm", 2, RECIPE, vs.Runs.sweep(lr=[0.05], seeds=2))
  np.testing.assert_array_equal(results.predictions[::2], calm.predictions)


@pytest.mark.slow
@pytest.mark.optimized
def test_several_test_sets_from_an_npz(tmp_path):
  digits = load_dataset("digits")
  np.savez(
    tmp_path / "d.npz",
    x_train=digits.train.inputs,
    y_train=digits.train.targets,
    x_test=digits.tests["test"].inputs[:501],
    y_test=digits.tests["test"].targets[:501],
    x_small=digits.tests["test"].inputs[:1],
    y_small=digits.tests["test"].targets[:1],
  )
  recipe = LINEAR.replace(dataset=str(tmp_path / "d.npz"), test_sets=("test", "small"))
  results = train(tmp_path / "r", 2, recipe)
  digits_alone = train(tmp_path / "d", 2, LINEAR)
  # 501 examples are one full step and one with a single image: the padding must not
  # count.
  np.testing.assert_array_equal(results.predictions, digits_alone.predictions[:, :501])
  small = vs.open_results(tmp_path / "r", "small")
  np.testing.assert_array_equal(small.predictions, digits_alone.predictions[:, :1])
  with pytest.raises(
    vs.UserError, match="unknown test set 'large': choose one of test, small"
  ):
    vs.open_results(tmp_path / "r", "large")


# What is refused, with nothing changed.


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
  """A folder that no test changes."""
  out = tmp_path_factory.mktemp("two") / "r"
  train(out, 2, RECIPE)
  return out


def snapshot(folder):
  return {
    p: (p.read_bytes() if p.is_file() else None) for p in sorted(folder.rglob("*"))
  }


@pytest.mark.slow
@pytest.mark.parametrize(
  ("options", "message"),
  [
    (
      {"recipe": RECIPE.replace(precision="bfloat16")},
      "its recipe and this one differ in precision: 'float32', 'bfloat16'",
    ),
    ({"logits": True}, "logits are not kept there"),
    (
      {"runs": vs.Runs.sweep(lr=[0.1], seeds=2)},
      "its runs differ from these in lr",
    ),
    (
      {"runs": vs.Runs.vary("dropout", 4)},
      "^digits_cnn reads no seed of dropout: vary some of init, order, augment$",
    ),
    (
      {"runs": vs.Runs.vary(["init", "data"], 4)},
      r"no seed of data: .* augment \(data only after Runs.subset or Runs.boot",
    ),
    (
      {"runs": vs.Runs.vary("augment", 4), "recipe": RECIPE.replace(augment="")},
      "no seed of augment: vary some of init, order",
    ),
  ],
)
def test_refused_with_nothing_changed(two_runs, options, message):
  before = snapshot(two_runs.parent)
  with pytest.raises(vs.UserError, match=message):
    train(two_runs, 4, **{"recipe": RECIPE} | options)
  assert snapshot(two_runs.parent) == before


@pytest.fixture
def small_memory(monkeypatch):
  """Sets how wide lanes may be; returns the widths that were tried and how often data
  were loaded.
  """
  spread, tried, loaded, module = (
    block_training.lanes.spread_stages,
    [],
    [],
    recipe_data,
  )

  def limited(most):
    def spread_limited(function, *, width, devices):
      def full(*_):
        raise jax.errors.JaxRuntimeError(
          "RESOURCE_EXHAUSTED: Out of memory allocating 99 bytes.\nmore"
        )

      tried.append(width)
      return spread(function, width=width, devices=devices) if width <= most else full

    block_training.spread_program.cache_clear()
    monkeypatch.setattr(block_training.lanes, "spread_stages", spread_limited)
    monkeypatch.setattr(
      module,
      "load_dataset",
      lambda *args, **options: loaded.append(1) or load_dataset(*args, **options),
    )
    return tried, loaded

  yield limited
  block_training.spread_program.cache_clear()


@pytest.mark.slow
def test_out_of_memory_halves_the_lane_width(tmp_path, small_memory, capsys):
  tried, loaded = small_memory(2)
  results = vs.train(LINEAR, 8, tmp_path / "r", lane_width=8)
  assert (tried, loaded) == ([8, 4, 2], [1])
  assert (results.sizes["run"], results.attrs["lane_width"]) == (8, 2)
  first, second = (
    line
    for line in capsys.readouterr().err.splitlines()
    if line.startswith("lane width")
  )
  assert (
    first
    == "lane width 8 does not fit in the memory of cpu (Out of memory allocating 99 bytes.): continuing with 4"
  )
  np.testing.assert_array_equal(
    results.predictions, train(tmp_path / "two", 8, LINEAR, lane_width=2).predictions
  )
  # The folder keeps the width that fitted.
  assert train(tmp_path / "r", 9, LINEAR).attrs["lane_width"] == 2


@pytest.mark.slow
def test_out_of_memory_that_cannot_be_helped_says_what_to_do(tmp_path, small_memory):
  small_memory(0)
  with pytest.raises(
    vs.UserError,
    match=r"lane width 1 does not fit .*99 bytes.*: give a smaller width, batch_size or eval_b",
  ):
    train(tmp_path / "new" / "none", 4, LINEAR, lane_width=2)
  assert list(tmp_path.iterdir()) == [], "nothing was trained"
  (tmp_path / "none").mkdir()
  with pytest.raises(vs.UserError, match="lane width 1 does not fit"):
    train(tmp_path / "none", 4, LINEAR)
  assert list((tmp_path / "none").iterdir()) == []
  small_memory(2)
  assert train(tmp_path / "none", 4, LINEAR, lane_width=2).attrs["lane_width"] == 2
  small_memory(1)
  results = train(tmp_path / "none", 6, LINEAR)
  assert results.sizes["run"] == 6
  assert json.loads(results.attrs["kinds"]) == {"lane_width": [2, 1]}


@pytest.mark.slow
def test_the_seed_batch_is_what_fits_in_whole_steps(monkeypatch):
  runs = vs.Runs.independent(4)
  plain, all_kept = (
    checked(LINEAR, runs, logits=kept, keep_params=kept) for kept in (False, True)
  )
  predictions, logits, network = 797 + 8 + 1, 4 * 10 * 797, 4 * (64 * 10 + 10)

  def fitting(task, width, a_state=0):
    return starting.fitting_seed_batch(task, Execution("sequential", width), a_state)

  monkeypatch.setattr(block_training.lanes, "devices", lambda: [None])
  assert fitting(plain, 2) == 256
  assert fitting(plain, 100) == 200
  assert fitting(plain, 1000) == 1000, "one step at least"
  monkeypatch.setattr(
    starting, "free_host_memory", lambda: 8 * (predictions + logits + network) * 11.5
  )
  assert fitting(all_kept, 2) == 10
  assert fitting(all_kept, 64) == 64
  # A checkpoint holds the network, its momentum, the step of the schedule, and whether
  # the run diverged.
  monkeypatch.setattr(
    starting, "free_host_memory", lambda: 8 * (predictions + 2 * network + 4 + 1) * 5.5
  )
  assert fitting(plain, 1, plain.traced.bytes_of_a_state) == 5
  # What is derived for a run, such as its examples, takes host memory too.
  some = checked(LINEAR, runs.subset(100)).traced
  moments = 2 * 4  # mean and standard deviation of the one channel of its inputs
  assert some.bytes_of_a_run == plain.traced.bytes_of_a_run + 2 * 4 * 100 + moments


def test_there_is_room_for_the_counts_of_every_block():
  blocks = vs.Runs.sweep(lr=[0.1], seeds=20), vs.Runs.sweep(lr=[0.1, 0.3], seeds=2)
  for tables in (blocks, blocks[::-1]):
    task = checked(LINEAR, vs.Runs.concat(tables))
    contents = task.planned(Execution("sequential", 1), block_runs=20).contents
    assert contents.counts["test/votes"]["shape"] == [2, 797, 10]


# The choice of lowering and lane width.


def test_a_timing_is_of_one_step_of_one_network(monkeypatch):
  now = iter(range(1000))
  clock = types.SimpleNamespace(perf_counter=lambda: 0.25 * next(now))
  monkeypatch.setattr(execution, "time", clock)
  monkeypatch.setattr(execution.lanes, "devices", lambda: jax.devices()[:2])
  monkeypatch.setattr(
    execution.lanes, "compile_step_to_measure", lambda *_, **__: (lambda: None, 1000.0)
  )
  task = vs.Task(
    name="own",
    start=lambda data, run: 0,
    advance=lambda data, run, state, first, last: state,
    finish=lambda data, run, state: {"state": state},
    rounds=7,
    steps=10,
  )
  speed = execution.measure_speed(task, Execution("sequential", 4))
  # A look at the clock passes between the beginning and the end of a training.
  assert speed.seconds == 0.25 / (10 * 4 * 2)
  assert speed.memory_bytes == 1000


@pytest.mark.slow
def test_what_was_measured_is_taken_and_said(tmp_path, monkeypatch, capsys):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  conditions = execution.cache_key(checked(LINEAR, vs.Runs.independent(4)).task)
  choice.write_timings(
    conditions,
    {
      Execution("sequential", 1): 2.0,
      Execution("grouped", 1): 1.0,
      Execution("im2col", 2): 0.5,
      Execution("im2col", 64): 0.1,
    },
  )
  results = vs.train(LINEAR, vs.Runs.independent(4), tmp_path / "r")
  assert (results.attrs["lowering"], results.attrs["lane_width"]) == ("im2col", 2), (
    "four runs have no use for more"
  )
  results = train(tmp_path / "given", 4, LINEAR, lowering="grouped")
  assert (results.attrs["lowering"], results.attrs["lane_width"]) == ("grouped", 1)
  # A folder keeps its lowering.
  choice.write_timings(conditions, {Execution("sequential", 1): 0.01})
  assert train(tmp_path / "r", 5, LINEAR).attrs["lowering"] == "im2col"
  assert train(tmp_path / "r", 6, LINEAR, lane_width=2).attrs["lowering"] == "im2col"
  capsys.readouterr()
  assert train(tmp_path / "new", 5, LINEAR).attrs["lowering"] == "sequential"
  assert capsys.readouterr().err == ""


def test_steps_of_all_runs_of_a_campaign():
  """1,000 training examples: 20 steps an epoch in batches of 50, 10 of 100."""
  runs = vs.Runs.sweep(seeds=3, batch_size=[50, 100])
  assert checked(LINEAR.replace(epochs=2), runs).model_steps(runs) == 3 * (40 + 20)


@pytest.mark.slow
def test_a_long_campaign_measures_once(tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  monkeypatch.setattr(execution, "wide_width", lambda task, run: 1)
  monkeypatch.setattr(choice, "FEW_MODEL_STEPS", 1)
  asked = []
  speeds = {
    Execution("sequential", 1): 9.0,
    Execution("im2col", 1): 3.0,
    Execution("sequential", 2): 5.0,
  }
  monkeypatch.setattr(
    execution,
    "measure_speed",
    lambda task, how: (
      asked.append(how)
      or (execution.Speed(speeds[how], 0.0) if how in speeds else None)
    ),
  )
  for name in ("a", "b"):
    assert train(tmp_path / name, 8, LINEAR).attrs["lowering"] == "im2col"
    assert asked == [*speeds, Execution("sequential", 4)]


def test_a_campaign_calls_the_users_functions_once(tmp_path):
  calls = []

  def start(data, run):
    calls.append("start")
    return jax.random.normal(run.key("init"), (3,))

  def advance(data, run, state, first, last):
    calls.append("advance")
    return jax.lax.fori_loop(first, last, lambda _, x: x * 0.5, state)

  def finish(data, run, state):
    calls.append("finish")
    return {"size": (state * state).sum()}

  task = vs.Task(
    name="calls",
    start=start,
    advance=advance,
    finish=finish,
    rounds=3,
    sources=("init",),
    outputs={"size": vs.Output(role="score")},
  )
  results = vs.train(task, 4, tmp_path / "r", progress=False)
  # All that follows reads the programs that were traced: identity, checks, the choice
  # of a lane width, and what the lanes run.
  assert calls == ["start", "advance", "finish"]
  for seed, size in enumerate(results["size"].values):
    state = jax.random.normal(vs.single_run(task, seed).key("init"), (3,)) / 8
    np.testing.assert_allclose(size, (state * state).sum(), rtol=1e-6)


@pytest.mark.slow
def test_a_campaign_compiles_once_whatever_its_runs(tmp_path, caplog):
  tables = [
    vs.Runs.independent(2, start=50),
    vs.Runs.vary("init", 2),
    vs.Runs.sweep(lr=[0.1, 1.0], seeds=1),
  ]
  # A process compiles small helpers once, whatever it trains.
  for i, table in enumerate(tables[::2]):
    train(tmp_path / f"before_{i}", 2, runs=table)
  block_training.spread_program.cache_clear()
  compiled = []
  for i, table in enumerate(tables):
    with jax.log_compiles(), caplog.at_level("WARNING"):
      caplog.clear()
      train(tmp_path / str(i), 2, runs=table)
      compiled.append(
        sum("Finished XLA compilation" in message for message in caplog.messages)
      )
  # To begin, to go on and to evaluate; the last counts votes of two combinations.
  assert compiled == [3, 0, 1]


def test_other_data_under_the_same_name_is_refused(tmp_path):
  rng = np.random.default_rng(0)
  arrays = {
    f"x_{s}": rng.integers(0, 256, (40, 8, 8, 1), np.uint8) for s in ("train", "test")
  }
  arrays |= {f"y_{s}": np.arange(40) % 10 for s in ("train", "test")}
  recipe = LINEAR.replace(dataset=str(tmp_path / "d.npz"))
  np.savez(tmp_path / "d.npz", **arrays)
  train(tmp_path / "r", 2, recipe)
  arrays["x_train"][3, 4, 5] ^= 1
  np.savez(tmp_path / "d.npz", **arrays)
  with pytest.raises(vs.UserError, match=r"its data digest is '[0-9a-f]{16}', not"):
    train(tmp_path / "r", 3, recipe)


def test_folders_that_hold_something_else(tmp_path):
  (tmp_path / "file").write_text("mine")
  (tmp_path / "full").mkdir()
  (tmp_path / "full" / "mine").write_text("mine")
  zarr.create_group(tmp_path / "zarr")
  before = snapshot(tmp_path)
  for name, message in (
    ("file", "is a file: give a folder"),
    ("full", "holds something else"),
    ("zarr", "holds something else"),
  ):
    with pytest.raises(vs.UserError, match=message):
      train(tmp_path / name, 2)
    with pytest.raises(vs.UserError, match="is not a results folder"):
      vs.open_results(tmp_path / name)
  with pytest.raises(vs.UserError, match="file/r cannot be written"):
    train(tmp_path / "file" / "r", 2)
  assert snapshot(tmp_path) == before
  (tmp_path / "empty").mkdir()
  assert train(tmp_path / "empty", 2).sizes["run"] == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(tmp_path):
  tmp_path.chmod(0o500)
  with pytest.raises(vs.UserError, match="cannot be written"):
    train(tmp_path / "r", 2)
  tmp_path.chmod(0o700)


def test_work_on_a_folder_that_may_not_be_written_says_what_helps(
  tmp_path, monkeypatch
):
  train(tmp_path / "r", 1, LINEAR)
  monkeypatch.setattr(folders.os, "access", lambda *_: False)  # root may write anywhere
  for out, remedy in (("r", "train its runs in a copy"), ("new", "another folder")):
    with pytest.raises(
      vs.UserError, match=f"cannot be written .*not writable.*{remedy}"
    ):
      train(tmp_path / out, 2, LINEAR)


def test_half_a_folder_that_was_left_behind_does_not_matter(tmp_path, monkeypatch):
  monkeypatch.setattr(claims, "UNFINISHED", 0.1)
  for name in ("blocks/folder.claim", "test/logits/c/0/0/0", "seed_init/c/9"):
    (tmp_path / "r" / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "r" / name).write_text("made")
  with pytest.raises(vs.UserError, match="is not a results folder"):
    vs.open_results(tmp_path / "r")
  train(tmp_path / "r", 1, LINEAR)
  assert vs.verify(tmp_path / "r") == (1, 1, [], [], [])


def test_a_folder_that_another_process_finishes_while_it_is_looked_at(
  tmp_path, monkeypatch
):
  def made_meanwhile(path):
    monkeypatch.undo()
    train(path, 1, LINEAR)
    return description.is_occupied(path)

  monkeypatch.setattr(description, "is_occupied", made_meanwhile)
  assert train(tmp_path / "r", 2, LINEAR).sizes["run"] == 2


def test_progress_is_drawn_on_stderr(tmp_path, capsys):
  vs.train(LINEAR, vs.Runs.independent(3), tmp_path / "r")
  out, err = capsys.readouterr()
  assert out == ""
  assert "3/3" in err
  assert "runs/s" in err
  (summary,) = vs.report(tmp_path / "r")
  sd = summary["statistics"]["sd_accuracy"]
  assert f"σ {100 * sd['value']:.3f} ± {100 * sd['se']:.3f} %" in err
  assert starting.SEED_BATCH == 256
  shutil.rmtree(tmp_path / "r")


def test_a_process_that_only_waits_says_so():
  bar = Progress(4, 0, np.array([]), None, visible=False)
  assert bar.line() == "0/4 runs, compiling"
  bar.waits(True)
  assert bar.line() == "0/4 runs, waiting for other processes"
  bar.waits(False)
  assert bar.line() == "0/4 runs, compiling"


def test_without_a_terminal_a_line_is_printed_now_and_then(monkeypatch, capsys):
  now = [100.0]
  clock = types.SimpleNamespace(monotonic=lambda: now[0])
  monkeypatch.setattr(progress, "time", clock)
  with Progress(9, 0, np.array([]), None, visible=True) as bar:
    for _ in range(6):
      now[0] += progress.INTERVAL / 2
      bar.trained_more(1, np.array([]))
    lines = capsys.readouterr().err.splitlines()
  assert [line.split(",")[0] for line in lines] == ["2/9 runs", "4/9 runs", "6/9 runs"]


def test_numbers_of_the_progress_line(monkeypatch):
  now = [100.0]
  clock = types.SimpleNamespace(monotonic=lambda: now[0])
  monkeypatch.setattr(progress, "time", clock)
  shown = "accuracy", "accuracy", "%"
  bar = Progress(20, 4, np.array([0.5, 0.7, np.nan]), shown, visible=False)
  now[0] = 110  # compiled and trained: how fast, is not known yet
  bar.trained_more(2, np.array([0.6, np.inf]))
  now[0] = 114
  bar.trained_more(4, np.array([0.4]))
  values = np.array([0.5, 0.7, 0.6, 0.4])
  sd = np.std(values, ddof=1)
  # The jackknife of the variance, as reports have it.
  left_out = [np.var(np.delete(values, i), ddof=1) for i in range(4)]
  error = np.sqrt(3 / 4 * np.sum((left_out - np.mean(left_out)) ** 2)) / (2 * sd)
  assert bar.line() == (
    f"10/20 runs, 1 runs/s, accuracy 55.000 ± {100 * sd / 2:.3f} %, "
    f"σ {100 * sd:.3f} ± {100 * error:.3f} %, 0:00:10 left"
  )


@pytest.mark.parametrize(
  ("speed", "text"),
  [(0.0312, "0.0312"), (99.96, "100"), (640.2, "640"), (8271.4, "8,271")],
)
def test_a_speed_is_written_without_an_exponent(speed, text):
  assert progress.written_speed(speed) == text


def test_the_time_left_does_not_count_compilation(monkeypatch):
  """Batches of 30 runs take 100 s, after 3,000 s of compilation in all."""
  now, compiled = [100.0], [7.0]  # 7 s of another campaign
  clock = types.SimpleNamespace(monotonic=lambda: now[0])
  monkeypatch.setattr(progress, "time", clock)
  bar = Progress(90, 0, np.array([]), None, False, lambda: compiled[0])
  now[0] += 2600
  compiled[0] += 2500
  bar.trained_more(30, np.array([]))
  assert bar.line() == "30/90 runs, 0.3 runs/s, 0:03:20 left"
  now[0] += 600  # the last batch is smaller
  compiled[0] += 500
  bar.trained_more(30, np.array([]))
  assert bar.line() == "60/90 runs, 0.3 runs/s, 0:01:40 left"


def test_the_time_left_counts_the_epochs_of_runs_in_training(monkeypatch):
  """30 runs take 20 s an epoch and 30 s to compile."""
  now = [100.0]
  clock = types.SimpleNamespace(monotonic=lambda: now[0])
  monkeypatch.setattr(progress, "time", clock)
  bar = Progress(60, 0, np.array([]), None, visible=False)
  now[0] += 50
  bar.at_epoch(30, 50, 1, resumed=False)  # how fast, is not known yet
  assert bar.line() == "0/60 runs, 30 at epoch 1"
  now[0] += 200
  bar.at_epoch(30, 50, 11, resumed=False)
  assert bar.line() == "0/60 runs, 30 at epoch 11, 0.03 runs/s, 0:29:40 left"
  now[0] += 40  # it is drawn between two epochs
  assert bar.line() == "0/60 runs, 30 at epoch 11, 0.03 runs/s, 0:29:00 left"
  now[0] += 39 * 20 - 40
  for _ in range(30):
    bar.trained_more(1, np.array([]))
    assert "0.03 runs/s" in bar.line()
  assert bar.line() == "30/60 runs, 0.03 runs/s, 0:16:40 left"
  now[0] += 2000  # others train the rest, for longer than it would take here
  assert bar.line() == "30/60 runs, 0.03 runs/s"
  now[0] -= 2000
  bar.at_epoch(30, 50, 38, resumed=True)
  assert bar.line() == "30/60 runs, 30 at epoch 38, 0.03 runs/s, 0:04:00 left"
  now[0] += 240
  bar.trained_more(30, np.array([]))
  assert bar.line() == "60/60 runs, 0.03 runs/s"


def test_options_take_numbers_of_numpy(tmp_path):
  given = dict(
    seed_batch=np.int64(2), lane_width=np.int32(1), checkpoint_every=np.uint8(1)
  )
  assert train(tmp_path / "r", 2, LINEAR, **given).attrs["lane_width"] == 1


@pytest.mark.slow
def test_what_a_campaign_takes(tmp_path, monkeypatch, capsys):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  timed = []
  monkeypatch.setattr(
    execution, "measure_speed", lambda *_: timed.append(1) or execution.Speed(0.5, 9.0)
  )
  recipe = LINEAR.replace(epochs=2)  # of 31 steps
  short = vs.estimate(recipe, 5, progress=False)
  assert (short.runs, short.seconds) == (5, 5 * 62 * 0.5)
  assert "; 310 s each, 0:10:20 in all; " in str(short._replace(runs=2, seconds=620.0))
  # What an array of the folder takes in memory, it takes here before compression.
  results = train(tmp_path / "r", 5, recipe, logits=True)
  stored = [
    results[name].nbytes
    for name in {*results.variables}
    - {"labels", "run_place", "diverged", "nonfinite_steps"}
  ]
  taken = vs.estimate(recipe, 5, logits=True, progress=False).disk_bytes
  assert (
    taken == sum(stored) + 5 + 5 * 4
  )  # diverged and nonfinite_steps, of one and four bytes each
  assert taken - short.disk_bytes == 5 * 797 * 10 * 4
  assert vs.estimate(recipe, 5, tmp_path / "r", logits=True, progress=False).runs == 0
  assert timed == [1], "the timing is kept"
  one_more = vs.estimate(recipe, 6, tmp_path / "r", logits=True, progress=False)
  assert 797 * 10 * 4 < one_more.disk_bytes < 2 * 797 * 10 * 4
  capsys.readouterr()
  train(tmp_path / "r", 6, recipe, logits=True, progress=True)
  size = f"{one_more.disk_bytes / 1e6:.2f}"
  said = capsys.readouterr().err.splitlines()[0]
  assert said.startswith(f"training 1 run of {recipe.name} on ")
  assert f"/r: 31 s each, 0:00:31 in all; {size} MB on disk. Ctrl-C" in said


def test_blocks_that_were_begun_with_more_runs_are_trained_whole(
  tmp_path, monkeypatch, capsys
):
  from test_cli import run  # which imports this module

  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  monkeypatch.setattr(execution, "measure_speed", lambda *_: execution.Speed(0.5, 9.0))
  out = tmp_path / "r"
  # As a process leaves it that is killed in its first block.
  vs.create(LINEAR, 8, out, seed_batch=3, lane_width=1, progress=False)
  whole = "a folder's blocks are trained whole: 6 runs, not 4\n"
  estimated = vs.estimate(LINEAR, 4, out)
  assert estimated.runs == 6
  assert estimated.seconds == 6 * 31 * 0.5
  assert whole in capsys.readouterr().err
  given = ("train", "digits_cnn", "--set", "model=linear", "epochs=1", "--out", out)
  status, said, err = run(capsys, *given, "--runs", 4, "--dry-run")
  assert (status, said.splitlines()[0]) == (0, str(estimated))
  assert whole in err
  assert vs.estimate(LINEAR, 6, out).runs == 6
  assert vs.estimate(LINEAR, 11, out).runs == 11
  assert capsys.readouterr().err == ""
  results = vs.train(LINEAR, 4, out)
  assert results.sizes["run"] == 6
  assert results.seed_init.values.tolist() == list(range(6))
  said = capsys.readouterr().err
  assert whole in said
  assert "training 6 runs of " in said
  assert vs.estimate(LINEAR, 4, out).runs == 0
  assert vs.estimate(LINEAR, 7, out).runs == 2
  assert "8 runs, not 7" in capsys.readouterr().err


def test_what_does_not_fit_is_not_timed(tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  monkeypatch.setattr(execution, "measure_speed", lambda *_: None)
  taken = vs.estimate(LINEAR, 1, progress=False)
  assert taken.seconds is None
  assert str(taken).startswith("1 run; time not measured; ")


FORKED = """
import os
import sys
import warnings

import jax.numpy as jnp
import vmapseeds as vs

warnings.simplefilter("ignore")  # JAX's own, about forks
jnp.ones(3).block_until_ready()
asked = [
  lambda: vs.train("digits_cnn", 2, progress=False),
  lambda: vs.report(sys.argv[1]),
  lambda: vs.compare(sys.argv[1], sys.argv[1]),
  lambda: vs.measure(sys.argv[1], "accuracy"),
  lambda: vs.tally(sys.argv[1]),
]
if not os.fork():
  for ask in asked:
    try:
      ask()
    except vs.UserError as error:
      print(error, flush=True)
  os._exit(0)
os.wait()
"""


@pytest.mark.slow
def test_a_child_forked_after_jax_has_run_says_so(tmp_path):
  """It would wait for threads that it lacks."""
  vs.import_runs(tmp_path / "r", predictions=np.eye(4, dtype=int), labels=[0, 1, 0, 1])
  ended = subprocess.run(
    [sys.executable, "-c", FORKED, tmp_path / "r"],
    capture_output=True,
    text=True,
    timeout=100,
  )
  said = ended.stdout.splitlines()
  assert len(said) == 5, ended
  assert {line[:53] for line in said} == {
    "this process was forked from one in which JAX had run"
  }
