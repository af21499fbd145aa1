"""Runs counted on the devices that train them: which counts campaigns store, and how
they are read.
"""

import contextlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_digits

import vmapseeds as vs
from vmapseeds import cli, stats
from vmapseeds.campaign import until
from vmapseeds.errors import Failure
from vmapseeds.reports import results_page
from vmapseeds.reports.summaries import summarize
from vmapseeds.results.description import combinations, count_entries
from vmapseeds.results.opening import prediction_blocks
from vmapseeds.store.results import Results

WIDTH = until.Until.parse("mean_accuracy abs 1%")
LINEAR = vs.recipe("digits_cnn", epochs=1, model="linear")


def train(out, n, runs=None, recipe=LINEAR, **options):
  # Five runs a block on two devices: steps end inside blocks, and the last step of a
  # batch is padded.
  how = {"seed_batch": 5, "lane_width": 1, "lowering": "sequential", "progress": False}
  return vs.train(recipe, runs or vs.Runs.independent(n), out, **{**how, **options})


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
  """Thirteen runs in three blocks, which no test changes."""
  out = tmp_path_factory.mktemp("counted") / "r"
  train(out, 13)
  return out


def plain(results, pairs=False):
  """What `stats` counts of the stored predictions."""
  kept = results.isel(run=np.flatnonzero(~results.diverged.values))
  return stats.tally(
    kept.predictions.values,
    kept.labels.values,
    int(results.attrs["num_classes"]),
    pairs=pairs,
  )


def equal(given, expected):
  ours, theirs = given.to_arrays(), expected.to_arrays()
  assert ours.keys() == theirs.keys()
  for name in ours:
    np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name, strict=True)


@contextlib.contextmanager
def nothing_counted(monkeypatch):
  """In this context, counting predictions is an error."""

  def refuse(*_, **__):
    raise AssertionError("predictions are counted")

  with monkeypatch.context() as patch:
    for name in ("tally", "tally_blocks"):
      patch.setattr(stats, name, refuse)
    yield


def test_what_is_stored_is_what_is_counted(reference, monkeypatch):
  results = vs.open_results(reference)
  errors = results.predictions.values != results.labels.values
  np.testing.assert_array_equal(
    results.half_errors,
    np.stack([errors[:, 0::2].sum(1), errors[:, 1::2].sum(1)], axis=1),
  )
  assert (results.votes.dtype, results.sizes["block"]) == (np.uint8, 3)
  votes = [
    np.bincount(column, minlength=10) for column in results.predictions.values[5:10].T
  ]
  np.testing.assert_array_equal(results.votes[1, 0], votes)
  with nothing_counted(monkeypatch):
    found = vs.tally(reference)
  equal(found, plain(results))


def test_one_run_alone(tmp_path, monkeypatch):
  train(tmp_path / "r", 1)
  with nothing_counted(monkeypatch):
    found = vs.tally(tmp_path / "r")
  equal(found, plain(vs.open_results(tmp_path / "r")))


@pytest.mark.slow
@pytest.mark.optimized
def test_a_run_that_diverges_is_not_counted(tmp_path, monkeypatch):
  runs = vs.Runs.independent(7)
  train(tmp_path / "r", 7, runs=runs, recipe=LINEAR.replace(lr=1e30))
  assert vs.open_results(tmp_path / "r").diverged.all()
  with nothing_counted(monkeypatch):
    assert vs.tally(tmp_path / "r").runs == 0
  runs = vs.Runs.sweep(lr=[0.1, 1e30], seeds=3)
  results = train(tmp_path / "s", 6, runs=runs, seed_batch=20, pairs=True)
  assert results.diverged.sum() == 3
  assert results.votes.shape == (1, 2, 797, 10)
  with nothing_counted(monkeypatch):
    found = vs.tally(results, pairs=True)
  equal(found, plain(results, pairs=True))


@pytest.mark.slow
@pytest.mark.optimized
def test_each_combination_of_values_has_its_counts(tmp_path, monkeypatch):
  runs = vs.Runs.sweep(lr=[0.1, 0.01, 1.0], seeds=13)
  train(tmp_path / "r", 39, runs=runs, seed_batch=30, lane_width=2)
  results = vs.open_results(tmp_path / "r")
  assert results.votes.shape == (2, 3, 797, 10)
  for lr in (0.1, 0.01, 1.0):
    some = results.isel(run=results["lr"].values == lr)
    with nothing_counted(monkeypatch):
      found = vs.tally(some)
    equal(found, plain(some))
  with nothing_counted(monkeypatch):
    found = vs.tally(results)
  equal(found, plain(results))
  # Half of a combination's runs: the predictions are counted.
  some = results.isel(run=np.flatnonzero(results["lr"].values == 0.1)[:7])
  equal(vs.tally(some), plain(some))
  # More runs of the folder with other values have counts of their own.
  more = vs.Runs.concat([runs, vs.Runs.sweep(lr=[0.3], seeds=4)])
  results = train(tmp_path / "r", 43, runs=more, lane_width=2)
  some = results.isel(run=results["lr"].values == 0.3)
  with nothing_counted(monkeypatch):
    found = vs.tally(some)
  equal(found, plain(some))


@pytest.mark.slow
@pytest.mark.optimized
def test_tallies_of_any_runs_are_what_a_recount_gives(tmp_path):
  """2,000 choices and resamplings: whole blocks, whole combinations, parts of them,
  repeated and reordered runs. Few classes and examples, so that totals agree by chance.
  """

  def finish(data, run, state):
    right = jax.random.bernoulli(run.key("init"), 0.5, (4,))
    return {"test/predictions": jnp.where(right, 0, 1) ^ (run["flip"] > 0)}

  task = vs.Task(
    name="coins",
    start=lambda data, run: jnp.zeros(()),
    advance=lambda data, run, state, first, last: state,
    finish=finish,
    sources=("init",),
    values={"flip": 0.0},
    outputs={
      "test/predictions": vs.Output(
        ("example",), "class", labels=np.zeros(4, np.int32), num_classes=2
      )
    },
  )
  runs = vs.Runs.sweep(flip=[0, 1, 2], seeds=16)
  vs.train(task, runs, tmp_path / "r", seed_batch=8, lane_width=2, progress=False)
  results = vs.open_results(tmp_path / "r")
  predictions, labels = results.predictions.values, results.labels.values
  rng = np.random.default_rng(0)
  blocks = np.arange(48).reshape(6, 8)
  kinds = (
    lambda: rng.choice(48, rng.integers(1, 49), replace=False),
    lambda: rng.choice(48, 48),
    lambda: rng.permutation(48),
    lambda: np.flatnonzero(np.isin(results["flip"], rng.choice(3, 2, replace=False))),
    lambda: blocks[rng.choice(6, rng.integers(1, 7), replace=False)].ravel(),
    lambda: np.tile(blocks[rng.integers(6)], 2),
    lambda: rng.choice(blocks[rng.integers(6)], 8),
    lambda: np.r_[blocks[0][:7], rng.integers(48)],
  )
  for n in range(2000):
    chosen = kinds[n % len(kinds)]()
    found = vs.tally(results.isel(run=chosen))
    votes = np.stack([(predictions[chosen] == c).sum(0) for c in (0, 1)], axis=1)
    np.testing.assert_array_equal(found.votes, votes)
    equal(found, stats.tally(predictions[chosen], labels, 2))


def test_combinations_are_numbered_by_their_first_runs():
  runs = vs.Runs.sweep(lr=[0.2, 0.3, 0.1], seeds=2)
  place, count = combinations(runs)
  assert (place.tolist(), count) == ([0, 1, 2, 0, 1, 2], 3)
  assert combinations(vs.Runs.independent(3).start_from([2, 0, 1]))[1] == 1


@pytest.mark.parametrize(("runs", "dtype"), [(255, "uint8"), (256, "uint16")])
def test_counts_hold_all_runs_of_a_block(runs, dtype):
  entries = count_entries("test/predictions", 3, 2, 1, runs, True)
  assert {about["dtype"] for about in entries.values()} == {dtype}
  assert {*entries} == {"test/votes", "test/counted", "test/joint_errors"}


@pytest.mark.slow
@pytest.mark.optimized
def test_a_search_with_other_values_for_each_run_has_no_counts(tmp_path):
  runs = vs.Runs.sweep(lr=np.linspace(0.01, 0.1, 5), seeds=1)
  results = train(tmp_path / "r", 5, runs=runs)
  assert "votes" not in results
  equal(vs.tally(results), plain(results))


@pytest.mark.slow
@pytest.mark.optimized
def test_with_64_bits(tmp_path, monkeypatch):
  """64-bit types change the random draws, so going on without them is another campaign."""
  jax.config.update("jax_enable_x64", True)
  try:
    results = train(tmp_path / "r", 3, pairs=True)
    with nothing_counted(monkeypatch):
      found = vs.tally(results, pairs=True)
    equal(found, plain(results, pairs=True))
  finally:
    jax.config.update("jax_enable_x64", False)
  with pytest.raises(
    vs.UserError,
    match=f"and versions differ: jax: {jax.__version__} with x64, {jax.__version__}; ",
  ):
    train(tmp_path / "r", 4, pairs=True)


@pytest.mark.parametrize(
  "options",
  [
    pytest.param({"checkpoint_every": 1}, marks=pytest.mark.slow),
    {"lane_width": 2},
    pytest.param({"seed_batch": 4}, marks=pytest.mark.slow),
    {"seed_batch": 13},
  ],
)
def test_a_campaign_that_stops_and_grows(options, reference, tmp_path, monkeypatch):
  """Blocks in several writes, batches over several blocks, checkpoints: the counts are
  those of all the runs.
  """
  two = LINEAR.replace(epochs=2) if "checkpoint_every" in options else LINEAR
  width = {"lane_width": options.get("lane_width", 1)}  # one folder has one lane width
  train(tmp_path / "r", 3, recipe=two, **width)

  def full(*_):
    raise OSError(28, "No space left on device")

  with (
    monkeypatch.context() as patch,
    pytest.raises(Failure, match="cannot be written"),
  ):
    patch.setattr(
      "vmapseeds.store.layout.write_record", full
    )  # the objects are there, and the record is not
    train(tmp_path / "r", 9, recipe=two, **width)
  assert vs.tally(tmp_path / "r").runs == 3
  results = train(tmp_path / "r", 13, recipe=two, **options)
  assert vs.verify(tmp_path / "r") == (13, 13, [], [], [])
  with nothing_counted(monkeypatch):
    found = vs.tally(tmp_path / "r")
  equal(found, plain(results))
  if two is LINEAR and "lane_width" not in options:
    equal(found, vs.tally(reference))


@pytest.mark.slow
@pytest.mark.optimized
def test_pairs_on_request(reference, tmp_path, monkeypatch):
  # A step has two lanes of each device, and a block two steps.
  results = train(tmp_path / "r", 6, pairs=True, lane_width=2)
  with nothing_counted(monkeypatch):
    found, with_pairs = vs.tally(results), vs.tally(results, pairs=True)
  equal(found, plain(results))
  equal(with_pairs, plain(results, pairs=True))
  results = vs.open_results(reference)
  assert "joint_errors" not in results
  equal(vs.tally(results, pairs=True), plain(results, pairs=True))


def test_some_of_the_runs_are_counted_of_predictions(reference):
  results = vs.open_results(reference)
  for rows in (slice(5), slice(12), [0, 0, 1], [0, 0, 1, 2, 3]):
    some = results.isel(run=rows)
    equal(vs.tally(some), plain(some))


@pytest.mark.parametrize("lost", [(0,), (0, 2), (1,)])
def test_counts_are_of_the_blocks_that_are_finished(lost, reference, tmp_path):
  shutil.copytree(reference, tmp_path / "r")
  for block in lost:
    (tmp_path / f"r/blocks/{block}.json").unlink()
  results = vs.open_results(tmp_path / "r")
  equal(vs.tally(results), plain(results))


def test_without_tallies(reference, tmp_path):
  results = train(tmp_path / "r", 13, tallies=False)
  assert "votes" not in results
  equal(vs.tally(results), vs.tally(reference))
  # A folder that has tallies goes on with them.
  shutil.copytree(reference, tmp_path / "more")
  assert train(tmp_path / "more", 14, tallies=False).sizes["block"] == 4


@pytest.mark.slow
@pytest.mark.optimized
def test_predictions_that_are_not_kept(reference, tmp_path, capsys):
  results = train(tmp_path / "r", 7, predictions="none")
  assert "predictions" not in results
  train(tmp_path / "r", 13, predictions="none")
  equal(vs.tally(tmp_path / "r"), vs.tally(reference))
  opened, whole = vs.open_results(tmp_path / "r"), vs.open_results(reference)
  for name in ("accuracy", "half_errors", "diverged"):
    np.testing.assert_array_equal(opened[name], whole[name])
  cli.main(["replay", str(tmp_path / "r"), "--run", "11"])
  assert "half_errors agree bit for bit on all 2 halves" in capsys.readouterr().out
  assert vs.verify(tmp_path / "r").problems == []
  # `work` knows only the folder.
  (tmp_path / "r/blocks/1.json").unlink()
  assert vs.work(tmp_path / "r", progress=False).sizes["run"] == 13
  equal(vs.tally(tmp_path / "r"), vs.tally(reference))


@pytest.fixture(scope="module")
def none_kept(tmp_path_factory):
  out = tmp_path_factory.mktemp("counted") / "none"
  train(out, 13, predictions="none")
  return out


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (lambda out, new: vs.error_matrix(out), "predictions were not kept: take vs.tally"),
    (
      lambda out, new: next(prediction_blocks(out)),
      "predictions were not kept: take vs.tally",
    ),
    (
      lambda out, new: vs.tally(out, pairs=True),
      "joint error counts were not stored, nor predictions",
    ),
    (
      lambda out, new: vs.merge([out], new),
      "keeps no predictions to merge: add what is counted",
    ),
    (
      lambda out, new: vs.report(out, where={"seed_init": 1}),
      "counted together with others, and their predictions were",
    ),
    (
      lambda out, new: vs.tally(vs.open_results(out).isel(run=[0])),
      "predictions were not kept",
    ),
    (lambda out, new: train(out, 13), "predictions are not kept there"),
    (lambda out, new: train(new, 3, predictions="some"), "predictions 'some'"),
    (
      lambda out, new: train(new, 3, predictions="none", tallies=False),
      "predictions='none' keeps tallies alone",
    ),
    (
      lambda out, new: train(
        new,
        2,
        runs=vs.Runs.independent(2).with_label_map([*range(5), *range(5)]),
        predictions="none",
      ),
      "classes without label maps",
    ),
    (
      lambda out, new: until.train_until(
        LINEAR, vs.Runs.independent(3), new, WIDTH, first=3, predictions="none"
      ),
      "looks at predictions: keep them",
    ),
  ],
)
def test_what_needs_predictions_says_so(call, message, none_kept, tmp_path):
  with pytest.raises(vs.UserError, match=message):
    call(none_kept, tmp_path / "new")
  assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("harm", ["flipped", "removed"])
def test_damaged_counts_are_named_and_repaired(harm, reference, tmp_path):
  shutil.copytree(reference, tmp_path / "r")
  file = tmp_path / "r/test/votes/c/1/0/0/0"
  whole = file.read_bytes()
  file.unlink() if harm == "removed" else file.write_bytes(
    whole[:9] + bytes([whole[9] ^ 1]) + whole[10:]
  )
  with pytest.raises(vs.UserError, match="is damaged"):
    vs.tally(tmp_path / "r")
  (problem,) = vs.verify(tmp_path / "r").problems
  assert problem.startswith("test/votes/c/1/0/0/0 ")
  assert (
    vs.verify(tmp_path / "r", repair=True)
    .repairs[0]
    .startswith("block 1: blocks/1.json was removed")
  )
  train(tmp_path / "r", 13)
  assert vs.verify(tmp_path / "r") == (13, 13, [], [], [])
  equal(vs.tally(tmp_path / "r"), vs.tally(reference))


def test_a_block_that_another_process_has_written_stays(reference, tmp_path):
  shutil.copytree(reference, tmp_path / "r")
  results, record = Results(tmp_path / "r"), tmp_path / "r/blocks/2.json"
  written = record.read_text()
  rows = np.array(results.blocks[2])
  outputs = {name: results.read(name, rows) for name in results.outputs}
  arrays = results.root["arrays"]
  counts = {name: np.ones(arrays[name]["shape"]) for name in results.counts}
  results.write_block(2, outputs, {}, counts)
  assert record.read_text() == written
  equal(vs.tally(tmp_path / "r"), vs.tally(reference))


# Reports


@pytest.mark.slow
@pytest.mark.optimized
def test_a_report_opens_no_predictions(reference, none_kept, tmp_path, monkeypatch):
  """If predictions are many, a report uses tallies; its statistics equal those of a
  report that reads predictions.
  """
  folder = tmp_path / "r"
  shutil.copytree(reference, folder)
  shutil.rmtree(folder / "test/predictions")
  with pytest.raises(vs.UserError, match=r"test/predictions/c/./0 is missing"):
    vs.report(folder)
  monkeypatch.setattr(results_page, "MOST_READ", 0)
  report = vs.report(folder)
  report.save()
  (given,) = report
  whole = summarize(vs.open_results(reference))
  assert "Predictions were not kept, or are too many to read" in given["warnings"][-1]
  assert whole["statistics"].keys() - given["statistics"].keys() == {"dependent_pairs"}
  of_predictions = {"independent_errors_sd", "expected_disagreement", "gde_gap"}
  for name, statistic in given["statistics"].items():
    assert statistic["value"] == whole["statistics"][name]["value"], name
    if name not in of_predictions:
      assert statistic == whole["statistics"][name]
    else:
      assert (statistic["se"], statistic["low"]) == (None, None)
      assert whole["statistics"][name]["se"]
  assert (folder / "report/report.html").exists()
  assert not (folder / "report/disagreement.svg").exists()
  assert (folder / "report/calibration.svg").exists()
  (kept_none,) = vs.report(none_kept)
  assert kept_none["statistics"] == given["statistics"]


@pytest.mark.slow
@pytest.mark.optimized
def test_a_report_of_stored_pairs(tmp_path, monkeypatch):
  images, labels = load_digits(return_X_y=True)
  # Each test example is there twice, and so are its errors.
  twice = np.tile(np.arange(1000, 1050), 2)
  recipe = LINEAR.replace(
    dataset=vs.Dataset(
      train=(images[:1000].reshape(-1, 8, 8, 1), labels[:1000]),
      test=(images[twice].reshape(-1, 8, 8, 1), labels[twice]),
    )
  )
  results = train(tmp_path / "r", 40, recipe=recipe, pairs=True)
  whole = summarize(results)
  shutil.rmtree(tmp_path / "r/test/predictions")
  monkeypatch.setattr(results_page, "MOST_READ", 0)
  (given,) = vs.report(tmp_path / "r")
  assert given["pairs"] == whole["pairs"]
  assert given["pairs"]
  assert {pair["j"] - pair["i"] for pair in given["pairs"]} == {50}
  assert (
    given["statistics"]["dependent_pairs"] == whole["statistics"]["dependent_pairs"]
  )


def test_a_comparison_reads_accuracies_alone(reference, none_kept):
  assert vs.compare(none_kept, reference).verdict
