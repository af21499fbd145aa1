"""What a recipe keeps besides the end of its training, and trainings that start from
stored networks.
"""

import json
import shutil
import tracemalloc

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import plain
import pytest
import xarray as xr
from cases import words_of

import vmapseeds as vs
from experiments.merging import merged
from vmapseeds.campaign import block_training, starting
from vmapseeds.campaign.options import Options
from vmapseeds.campaign.planning import load_task
from vmapseeds.data import load_dataset
from vmapseeds.results import opening
from vmapseeds.store.checkpoints import Checkpoints
from vmapseeds.training import moments, supervised
from vmapseeds.training.evaluation import evaluate
from vmapseeds.training.inputs import DeviceExamples
from vmapseeds.training.networks import (
  TrainedNetwork,
  initialize,
)
from vmapseeds.training.outputs import Keep
from vmapseeds.training.recipe_runs import recipe_lanes
from vmapseeds.training.stages import recipe_stages
from vmapseeds.training.task import bind_runs, lanes_of, trace, trial_of

ADAM = vs.recipe(
  "digits_cnn",
  model="linear",
  optimizer="adam",
  schedule="constant",
  lr=0.01,
  batch_size=10,
  epochs=5,
  augment="",
)
EVERY = ADAM.replace(evaluate_every=2, training_metrics=True)
MEASURED = words_of(
  "predictions accuracy epoch_predictions epoch_accuracy epoch_train_loss "
  "epoch_train_accuracy"
)


def train(out, recipe=EVERY, runs=4, **options):
  return vs.train(
    recipe,
    runs,
    out,
    progress=False,
    **{"lane_width": 1, "lowering": "sequential", **options},
  )


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
  out = tmp_path_factory.mktemp("evaluated") / "r"
  return out, train(
    out, runs=vs.Runs.independent(4).subset(100), keep_params=True, logits=True
  ).load()


def same(results, reference):
  for name in MEASURED:
    np.testing.assert_array_equal(results[name], reference[name])


@pytest.mark.slow
@pytest.mark.optimized
def test_an_epoch_is_evaluated_as_if_the_training_had_ended_there(evaluated, tmp_path):
  out, results = evaluated
  assert results.epoch.values.tolist() == [2, 4, 5]
  assert results.epoch_predictions.dims == ("run", "epoch", "example")
  for epoch in (2, 5):
    shorter = train(
      tmp_path / str(epoch),
      ADAM.replace(epochs=epoch),
      vs.Runs.independent(4).subset(100),
      logits=True,
    )
    of_epoch = vs.open_results(out, epoch=epoch)
    np.testing.assert_array_equal(of_epoch.logits, shorter.logits)
    np.testing.assert_array_equal(of_epoch.predictions, shorter.predictions)
    np.testing.assert_array_equal(of_epoch.accuracy, shorter.accuracy)
    np.testing.assert_array_equal(vs.error_matrix(of_epoch), vs.error_matrix(shorter))
    # The stored votes are those at the end.
    np.testing.assert_array_equal(vs.tally(of_epoch).votes, vs.tally(shorter).votes)
  np.testing.assert_array_equal(results.predictions, shorter.predictions)
  assert (results.epoch_predictions[:, 0] != results.epoch_predictions[:, 1]).any()
  for epoch in (3, 0, "5"):
    with pytest.raises(
      vs.UserError, match=f"not evaluated after epoch {epoch!r}: give one of 2, 4, 5"
    ):
      vs.open_results(out, epoch=epoch)
  with pytest.raises(
    vs.UserError,
    match="not evaluated after epoch 2: train with evaluate_every to have any",
  ):
    vs.open_results(tmp_path / "2", epoch=2)
  with pytest.raises(
    vs.UserError, match="not evaluated after epoch True: give one of 1, 2"
  ):
    opening._of_epoch(xr.Dataset(coords={"epoch": [1, 2]}), "r", True)


@pytest.mark.slow
@pytest.mark.optimized
def test_metrics_are_of_the_examples_that_a_run_is_trained_on(evaluated):
  out, results = evaluated
  train_set, networks = load_dataset("digits").train, vs.load_networks(out)
  subsets = recipe_lanes(EVERY, vs.Runs.independent(4).subset(100), 1000)["subset"]
  for run, subset in enumerate(subsets):
    variables = jax.tree.map(lambda leaf, run=run: leaf[run], networks.variables)
    logits = np.float64(networks.apply(variables, train_set.inputs[subset]))
    labels = train_set.targets[subset]
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(100), labels]
    np.testing.assert_allclose(results.train_loss[run], losses.mean(), rtol=1e-5)
    assert results.train_accuracy[run] == np.mean(logits.argmax(1) == labels)
  np.testing.assert_array_equal(results.epoch_train_loss[:, -1], results.train_loss)
  assert (np.diff(results.epoch_train_loss.values) < 0).all()


@pytest.mark.optimized
def test_outputs_that_are_not_kept_take_no_memory():
  data = DeviceExamples(
    np.zeros((20_000, 4), np.float32), np.zeros(20_000, np.int32), None, None, 100
  )
  recipe = ADAM.replace(model=nn.Dense(100), normalize=False)
  run = jax.tree.map(
    lambda column: column[0], recipe_lanes(recipe, vs.Runs.independent(1), 20_000)
  )

  def predictions(data, run):
    trained = TrainedNetwork(initialize(recipe, data, run), jnp.array(False))
    return evaluate(recipe, data, run, trained).predictions

  memory = jax.jit(predictions).lower(data, run).compile().memory_analysis()
  assert memory.temp_size_in_bytes < 20_000 * 100 * 4 / 8


def test_other_epochs_evaluate_nothing():
  """The evaluation stays in a branch under lanes, because its condition does not depend
  on the lane.
  """
  data = vs.Dataset(
    train=(np.zeros((8, 4), np.float32), np.arange(8) % 2),
    test=(np.zeros((6, 4), np.float32), np.arange(6) % 2),
  )
  recipe = vs.Recipe(
    name="r",
    dataset=data,
    model=nn.Dense(2),
    lr=0.1,
    epochs=5,
    batch_size=4,
    evaluate_every=2,
    normalize=False,
  )
  task, runs = load_task(recipe, vs.Runs.independent(3), Options())
  table = lanes_of(task, runs)
  states = jax.eval_shape(jax.vmap(task.start, (None, 0)), task.data, table)
  program = jax.make_jaxpr(jax.vmap(task.advance, (None, 0, 0, None, None)))(
    task.data, table, states, 0, 5
  )

  def conditions(jaxpr):
    for equation in jaxpr.eqns:
      inner = [p for p in jax.tree.leaves(equation.params) if hasattr(p, "eqns")]
      if equation.primitive.name == "cond":
        yield [sum(1 for e in branch.eqns) for branch in inner]
      else:
        yield from (found for one in inner for found in conditions(one))

  ((nothing, evaluation),) = conditions(program.jaxpr)
  assert nothing == 0
  assert evaluation > 3


@pytest.mark.slow
@pytest.mark.optimized
def test_evaluations_in_an_epoch_that_is_saved(evaluated, tmp_path):
  _, whole = evaluated
  runs = vs.Runs.independent(2).subset(100)
  same(train(tmp_path / "r", runs=runs, checkpoint_every=2), whole.isel(run=[0, 1]))


@pytest.mark.slow
@pytest.mark.optimized
def test_evaluated_runs_stop_and_go_on(evaluated, tmp_path, monkeypatch, capsys):
  _, whole = evaluated
  save, table = Checkpoints.save, vs.Runs.independent(4).subset(100)

  def interrupted(self, *args):
    save(self, *args)
    raise KeyboardInterrupt

  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    patch.setattr(Checkpoints, "save", interrupted)
    train(
      tmp_path / "a", runs=table[:2], checkpoint_every=3
    )  # an epoch after an evaluation
  saved = []
  monkeypatch.setattr(
    Checkpoints, "save", lambda self, rounds, state: saved.append(rounds)
  )
  train(tmp_path / "a", runs=table[:2], checkpoint_every=3)
  assert saved == [], "it went on from epoch 3"
  train(tmp_path / "b", runs=table[2:], checkpoint_every=1)
  merged = vs.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "all", progress=False)
  same(merged, whole)
  assert vs.replay(tmp_path / "all", 3).same
  from vmapseeds.cli import main

  main(["verify", str(tmp_path / "all")])
  assert "sound: 4 of 4 runs" in capsys.readouterr().out
  for epoch, folder in (("4", "report/epoch=4"), (None, "report")):
    main(["report", str(tmp_path / "all"), *(["--epoch", epoch] if epoch else [])])
    reported = json.loads((tmp_path / "all" / folder / "report.json").read_text())
    accuracy = whole.epoch_accuracy.sel(epoch=4) if epoch else whole.accuracy
    assert reported["statistics"]["mean_accuracy"]["value"] == pytest.approx(
      accuracy.values.mean()
    )
    assert (
      "epoch 4 of 5" if epoch else "digits_cnn, 5 epochs"
    ) in capsys.readouterr().out
  found = vs.compare(tmp_path / "all", tmp_path / "all", epoch=2)
  found.save()
  assert found.outperforming[0] == 0.5
  compared = json.loads(
    (tmp_path / "all/report/epoch=2/against_all/compare.json").read_text()
  )
  assert compared["sides"]["A"]["mean_accuracy"] == pytest.approx(
    whole.epoch_accuracy.sel(epoch=2).values.mean()
  )


@pytest.mark.slow
def test_runs_that_stop(tmp_path, monkeypatch):
  """Networks of stopped runs do not change any more, also in evaluations and after an
  interruption.
  """
  recipe = EVERY.replace(epochs=6, stop_at=0.97, evaluate_every=1)
  table = vs.Runs.independent(4).subset(100)
  whole = train(tmp_path / "whole", recipe, table, lane_width=2).load()
  epochs = whole.trained_epochs.values
  assert len({*epochs.tolist()}) > 1, "some go on"
  for run, last in enumerate(epochs):
    reached = whole.epoch_train_accuracy[run].values >= 0.97
    assert reached.tolist() == [epoch >= last and reached[-1] for epoch in range(1, 7)]
    assert last == 6 or reached[-1]
    of_epochs = whole.epoch_predictions[run].values
    assert (of_epochs[last - 1 :] == whole.predictions[run].values).all()
    assert (of_epochs[last - 2] != of_epochs[last - 1]).any()
  save, saved = Checkpoints.save, []

  def interrupted(self, *args):
    save(self, *args)
    saved.append(args)
    if len(saved) == max(2, epochs.min()):
      raise KeyboardInterrupt

  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    patch.setattr(Checkpoints, "save", interrupted)
    train(tmp_path / "r", recipe, table, lane_width=2, checkpoint_every=1)
  again = train(tmp_path / "r", recipe, table, lane_width=2, checkpoint_every=1)
  same(again, whole)
  np.testing.assert_array_equal(again.trained_epochs, epochs)
  assert vs.replay(tmp_path / "r", int(epochs.argmin())).same


@pytest.mark.parametrize("field", ["optimizer", "schedule"])
def test_a_function_of_the_steps_is_made_for_the_whole_training(field, monkeypatch):
  """Also in the trial of a long campaign, which has two steps, and in a training of no
  epochs, for one epoch.
  """
  made = []

  def own(run, steps):
    made.append(steps)
    rate = optax.warmup_cosine_decay_schedule(
      0.0, 0.1, 30, steps
    )  # refuses fewer than 30 steps
    return optax.adam(rate) if field == "optimizer" else rate

  monkeypatch.setattr(supervised, "TRIAL_STEPS", 2)
  for epochs, steps in ((3, 120), (0, 40)):
    task, runs = load_task(
      ADAM.replace(**{"optimizer": "adam", field: own}, batch_size=25, epochs=epochs),
      vs.Runs.independent(1),
      Options(),
    )
    for one in (task, trial := trial_of(task)):
      made.clear()
      trace(one, bind_runs(one, runs))
      assert {*made} == {steps}
    assert (trial.rounds, trial.steps) == (1, 2)


@pytest.mark.parametrize(
  "name", ["predictions", "labels", "accuracy", "example", "run", "half_errors"]
)
def test_a_swept_value_has_no_name_that_results_use(name, tmp_path):
  with pytest.raises(
    vs.UserError,
    match=f"value '{name}': .*already used",
  ):
    own = ADAM.replace(
      optimizer=lambda run, steps: optax.sgd(run[name]), values={name: 0.1}
    )
    train(tmp_path / "r", own, vs.Runs.sweep(**{name: [0.1, 0.2]}, seeds=1))
  assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
  "shape", [(7000, 20, 3, 3), (5, 600, 600, 2), (3000,), (3000, 4)]
)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_inputs_are_normalised_with_their_moments(shape, dtype, monkeypatch):
  """To the last bit, and without an array of float64 as long as the inputs."""
  inputs = np.random.default_rng(0).normal(100, 20, shape).astype(dtype)
  data = vs.Dataset(
    train=(inputs, np.arange(len(inputs)) % 2),
    test=(inputs[:1], np.zeros(1, int)),
    num_classes=2,
  )
  monkeypatch.setattr(moments, "PART", 2**17)
  tracemalloc.start()
  _, mean, std, _ = moments.centre(ADAM, data)
  peak = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  axes = tuple(range(max(1, inputs.ndim - 1)))
  np.testing.assert_array_equal(
    mean, np.mean(inputs, axes, np.float64).astype(np.float32)
  )
  np.testing.assert_array_equal(
    std, np.std(inputs, axes, np.float64).astype(np.float32)
  )
  assert peak < max(8 * inputs.size / 2, 2**20)


# Stored networks.


class Net(nn.Module):
  """Two layers, batch statistics between them."""

  num_classes: int

  @nn.compact
  def __call__(self, x, train):
    x = nn.Dense(6, name="z_first")(x.reshape(len(x), -1))
    x = nn.relu(nn.BatchNorm(use_running_average=not train, name="norm")(x))
    return jax.jit(lambda x: 2 * x)(nn.Dense(self.num_classes, name="a_last")(x))


DIGITS = load_dataset("digits")
LEFT_OUT = (-1,) * 5
OTHER_DIGITS = merged(DIGITS, (*LEFT_OUT, 0, 1, 2, 3, 4))
BASE = vs.recipe(
  "digits_cnn",
  name="base",
  model=Net,
  dataset=merged(DIGITS, (0, 1, 2, 3, 4, *LEFT_OUT)),
  augment="",
  epochs=1,
  batch_size=100,
)
# By name, so that they can be replayed.
OTHERS = {"name": "other", "dataset": f"{__name__}:OTHER_DIGITS"}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
  out = tmp_path_factory.mktemp("base") / "r"
  train(out, BASE, 3, keep_params=True)
  return out


def variables(out):
  return vs.load_networks(out).variables


@pytest.mark.slow
def test_runs_begin_as_stored_networks(base, tmp_path, monkeypatch):
  monkeypatch.chdir(base.parent)
  recipe = BASE.replace(epochs=0, start_from="r", **OTHERS)
  results = train(tmp_path / "own", recipe, 4, keep_params=True)
  assert results.start.values.tolist() == [0, 1, 2, 0]
  jax.tree.map(
    lambda a, b: np.testing.assert_array_equal(a, b[[0, 1, 2, 0]]),
    variables(tmp_path / "own"),
    variables(base),
  )
  train(
    tmp_path / "one", recipe, vs.Runs.independent(2).start_from(2), keep_params=True
  )
  jax.tree.map(
    lambda a, b: np.testing.assert_array_equal(a, b[[2, 2]]),
    variables(tmp_path / "one"),
    variables(base),
  )
  # With other classes the last layer is newly initialised.
  fewer = recipe.replace(dataset=merged(DIGITS, (*LEFT_OUT, 0, 1, 2, 0, 1)))
  train(tmp_path / "fewer", fewer, 2, keep_params=True)
  train(tmp_path / "fresh", fewer.replace(start_from=None), 2, keep_params=True)
  ours, fresh, stored = (
    variables(out) for out in (tmp_path / "fewer", tmp_path / "fresh", base)
  )
  last = ours["params"].pop("a_last")
  jax.tree.map(np.testing.assert_array_equal, last, fresh["params"]["a_last"])
  del stored["params"]["a_last"]
  jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[:2]), ours, stored)


@pytest.mark.slow
def test_the_last_layer_alone_is_trained(base, tmp_path):
  """With trainable="all" every layer is. Equal seeds start from equal networks."""
  before = variables(base)
  for name, trainable in (("last", ["a_last"]), ("all", "all")):
    recipe = BASE.replace(start_from=base, trainable=trainable, **OTHERS)
    train(tmp_path / name, recipe, vs.Runs.independent(3).subset(200), keep_params=True)
    after = variables(tmp_path / name)
    del after["input_moments"]  # of each run's own examples
    moved = jax.tree.leaves_with_path(
      jax.tree.map(lambda a, b: (a != b).any(), before, after)
    )
    assert {
      jax.tree_util.keystr(path[:2], simple=True) for path, one in moved if one
    } == {
      "last": {"paramsa_last"},
      "all": {"paramsa_last", "paramsz_first", "paramsnorm", "batch_statsnorm"},
    }[name]
  assert vs.replay(tmp_path / "last", 1).same


@pytest.mark.slow
def test_a_started_lane_is_the_plain_script(tmp_path):
  changes = {"batch_size": 250, "epochs": 2, "weight_decay": 0.01}
  linear = vs.recipe("linear_cifar10", dataset="digits", **changes)
  train(tmp_path / "base", linear.replace(epochs=1), 2, keep_params=True)
  train(
    tmp_path / "r", linear.replace(start_from=tmp_path / "base"), 3, keep_params=True
  )
  ours, stored, data = (
    variables(tmp_path / "r"),
    variables(tmp_path / "base"),
    load_dataset("digits").train,
  )
  theirs = plain.train(
    plain.Linear(),
    data.inputs,
    data.targets,
    seed=2,
    steps=8,
    epochs=2,
    batch=250,
    lr=linear.lr,
    momentum=0.9,
    weight_decay=0.01,
    mean=data.inputs.mean(),
    std=data.inputs.std(),
    variables=jax.tree.map(lambda a: a[0], stored),
  )
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a[2], b, atol=1e-5), ours, theirs
  )


@pytest.mark.parametrize(
  ("changes", "runs", "message"),
  [
    (
      {"start_from": "nowhere"},
      2,
      "start_from is .*nowhere, which is not a results folder: train it first, or put it back",
    ),
    (
      {"start_from": None},
      vs.Runs.independent(2).start_from(0),
      "give the recipe start_from, the folder that has them",
    ),
    (
      {},
      vs.Runs.vary("init", 2),
      "other reads no seed of init: vary some of order",
    ),
    (
      {},
      vs.Runs.independent(2).start_from([0, 3]),
      "network 3 of .* with 3: the last is 2",
    ),
    (
      {"model": "linear"},
      2,
      r"has params.Dense_0.bias None, other \(5,\): give the model that was trained there",
    ),
    (
      {"model": "small_cnn"},
      2,
      "has params.Conv_0.bias None, other .16,.: give the model",
    ),
  ],
)
def test_bases_that_do_not_fit(base, tmp_path, changes, runs, message):
  with pytest.raises(vs.UserError, match=message):
    train(
      tmp_path / "r",
      BASE.replace(**{"start_from": str(base), **OTHERS, **changes}),
      runs,
    )
  assert not (tmp_path / "r").exists()


@pytest.mark.slow
def test_a_base_that_changes_or_goes_is_refused(base, tmp_path, monkeypatch):
  linear = vs.recipe(
    "digits_cnn", name="base", model="linear", augment="", epochs=1, batch_size=250
  )
  first = tmp_path / "first"
  train(first, linear, 2)
  recipe = linear.replace(start_from=first)
  with pytest.raises(
    vs.UserError, match="holds no trained parameters: train it with keep_params=True"
  ):
    train(tmp_path / "r", recipe, 2)
  shutil.rmtree(first)
  train(first, linear, 2, keep_params=True)
  train(tmp_path / "r", recipe, 3)
  first.rename(tmp_path / "kept")
  for go_on in (
    lambda: vs.work(tmp_path / "r", progress=False),
    lambda: vs.replay(tmp_path / "r", 0),
  ):
    with pytest.raises(
      vs.UserError,
      match=r"first, which is not a results folder: train it first, or put it back",
    ):
      go_on()
  assert starting.open_campaign(
    recipe.replace(start_from=tmp_path / "kept"),
    3,
    tmp_path / "r",
    starting.Options(progress=False),
  ), "the same"
  train(first, linear, vs.Runs.independent(2, start=5), keep_params=True)
  with pytest.raises(
    vs.UserError,
    match=r"the networks of .*first are not those that .*r began with: put those back",
  ):
    vs.work(tmp_path / "r", progress=False)
  with pytest.raises(
    vs.UserError, match="belongs to another campaign: its networks digest is"
  ):
    train(tmp_path / "r", recipe, 4)
  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    patch.setattr(
      block_training, "run_lanes", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    train(tmp_path / "left", linear, 2, keep_params=True)
  with pytest.raises(
    vs.UserError, match=r"where runs are left to train: `vmapseeds work .*left` first"
  ):
    train(tmp_path / "r", recipe.replace(start_from=tmp_path / "left"), 2)


def test_equal_recipes_of_names_have_the_same_functions():
  """Which JAX traces once a process. What a user's objects read may change between two
  campaigns.
  """

  def stages(**changes):
    return recipe_stages(ADAM.replace(**changes), Keep())

  assert stages() == stages(dataset="cifar10")
  for changes in ({"epochs": 6}, {"name": "other"}, {"width": 2.0}):
    assert stages() != stages(**changes)
  loss = optax.losses.softmax_cross_entropy_with_integer_labels
  for own in ({"loss": loss}, {"loss": f"{loss.__module__}:{loss.__name__}"}):
    assert stages(**own) != stages(**own)


@pytest.mark.slow
def test_any_name_of_a_layer_leads_to_it_from_a_folder(tmp_path):
  class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
      inner = nn.Dense(3, name="a.b")(x.reshape(len(x), -1))
      return nn.Dense(10, name="a/b")(inner)

  train(tmp_path / "r", ADAM.replace(model=Net), keep_params=True)
  variables = vs.load_networks(tmp_path / "r").variables
  shapes = jax.tree.map(np.shape, variables)
  first = {"bias": (4, 3), "kernel": (4, 64, 3)}
  second = {"bias": (4, 10), "kernel": (4, 3, 10)}
  assert shapes == {"params": {"a.b": first, "a/b": second}}


@pytest.mark.slow
@pytest.mark.parametrize(
  "made",
  [
    lambda runs: runs.subset(300),
    lambda runs: runs.bootstrap(60),
    lambda runs: runs.bootstrap(),
  ],
)
def test_training_examples_named_one_by_one_give_the_same_runs(made, tmp_path):
  """Of a folder that lacks a block, too."""
  recipe, runs = (
    ADAM.replace(epochs=1, batch_size=50),
    vs.Runs.vary(["data", "order"], 4),
  )
  drawn = train(tmp_path / "a", recipe, made(runs), seed_batch=2)
  examples = vs.training_examples(tmp_path / "a")
  named = train(tmp_path / "b", recipe, runs.subset(examples))
  np.testing.assert_array_equal(drawn.predictions, named.predictions)
  np.testing.assert_array_equal(vs.training_examples(tmp_path / "b"), examples)
  assert (drawn.predictions[0] != drawn.predictions[1]).any()
  (tmp_path / "a" / "blocks" / "0.json").unlink()
  np.testing.assert_array_equal(vs.training_examples(tmp_path / "a"), examples[2:])


@pytest.mark.slow
def test_runs_that_saw_all_examples_have_no_list_of_them(tmp_path):
  train(tmp_path / "r", ADAM.replace(epochs=0), 2)
  with pytest.raises(
    vs.UserError,
    match=r"/r were trained on all examples: train some with Runs.subset or Runs.bootstrap$",
  ):
    vs.training_examples(tmp_path / "r")
  vs.import_runs(
    tmp_path / "i", predictions=np.zeros((2, 3), int), labels=np.zeros(3, int)
  )
  with pytest.raises(vs.UserError, match="imported runs, whose training is not known"):
    vs.training_examples(tmp_path / "i")
