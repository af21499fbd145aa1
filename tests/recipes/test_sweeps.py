"""Sweeps of any field of a recipe: numbers, names, arguments of a user's own model."""

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest
from cases import mostly_slow
from flax import nnx

import vmapseeds as vs
from vmapseeds import cli

LINEAR = vs.recipe("digits_cnn", model="linear", epochs=1, augment="")
SAME = {"progress": False, "lane_width": 2, "lowering": "sequential"}


class Net(nn.Module):
  """A network whose arguments `model_args` gives."""

  hidden: int
  activation: str = "relu"
  gain: float = 1.0

  @nn.compact
  def __call__(self, x, train=False):
    x = nn.Dense(self.hidden)(x.reshape(len(x), -1))
    return nn.Dense(10)(self.gain * getattr(nn, self.activation)(x))


def own_rate(run, steps):
  return optax.sgd(0.1 * run["factor"])


def alone(recipe, seeds, out, **options):
  return vs.train(recipe, seeds, out, **(SAME | options))


def check_equal(swept, recipe, tmp_path, *, exact=True, seeds=2):
  """Each value's runs are those of a campaign of its own."""
  (name,) = {*swept.coords} & {*recipe.swept_fields}
  for value in np.unique(swept[name].values).tolist():
    own = recipe.with_swept({name: value})
    apart = alone(own, seeds, tmp_path / f"{value}", logits=True)
    of = swept.isel(run=(swept[name] == value).values)
    assert of.sizes["run"] == seeds
    if exact:
      np.testing.assert_array_equal(of.logits, apart.logits)
      np.testing.assert_array_equal(of.predictions, apart.predictions)
    else:
      np.testing.assert_allclose(of.logits, apart.logits, rtol=1e-3, atol=2e-3)
  np.testing.assert_array_equal(swept.seed_init.values[: len(swept.run) : 2][:1], 0)


TEN = {
  "label_smoothing": [0.0, 0.1, 0.5],
  "epochs": [0, 1, 3],
  "batch_size": [16, 100],
  "optimizer": ["sgd", "adamw"],
  "schedule": ["constant", "cosine"],
  "augment": ["", "cutout=2", "translate=1"],
  "width": [0.5, 1.0],
  "dropout": [0.0, 0.25],
  "warmup": [0.0, 0.5],
  "model": ["linear", "small_cnn"],
}


# Fields that are compiled once a value in the same way as others of the ten
ALIKE = ("augment", "model", "schedule", "warmup")


@pytest.mark.parametrize(
  "field",
  [
    pytest.param(
      field, marks=pytest.mark.seldom if field in ALIKE else pytest.mark.slow
    )
    for field in TEN
  ],
)
def test_a_sweep_of_each_field_is_its_campaigns_apart(field, tmp_path, capsys):
  recipe = vs.recipe("digits_cnn", epochs=1)
  runs = vs.Runs.sweep(**{field: TEN[field]}, seeds=2)
  swept = vs.train(
    recipe, runs, tmp_path / "r", **(SAME | {"progress": True}), logits=True
  )
  traced = field in ("label_smoothing", "dropout")
  said = f"{field} is compiled once a value: {len(TEN[field])} compilations"
  assert (said in capsys.readouterr().err) != traced
  check_equal(swept, recipe, tmp_path, exact=not traced)


@pytest.mark.slow
def test_a_sweep_of_names_resumes_extends_and_replays(tmp_path):
  def table(n):
    return vs.Runs.sweep(optimizer=["sgd", "adam"], seeds=n)

  out = tmp_path / "r"
  first = alone(LINEAR, table(1), out, seed_batch=3)
  assert first.optimizer.values.tolist() == ["sgd", "adam"]
  more = alone(LINEAR, table(3), out)
  np.testing.assert_array_equal(more.predictions[:2], first.predictions)
  assert (more.predictions[0] != more.predictions[1]).any()
  assert vs.replay(out, 1).same
  assert vs.verify(out).problems == []
  with pytest.raises(vs.UserError, match=r"its runs have .*, these seed_init"):
    alone(LINEAR, 8, out)


@pytest.mark.slow
def test_a_sweep_of_names_is_reported_and_compared(tmp_path, capsys):
  out = str(tmp_path / "r")
  command = ["train", "digits_cnn", "--set", "model=linear", "epochs=1", "--runs", "3"]
  swept = ["--sweep", "augment=none,cutout=2", "batch_size=100,200"]
  cli.main([*command, *swept, "--out", out])
  results = vs.open_results(out)
  assert results.augment.values.tolist()[:3] == ["none", "none", "cutout=2"]
  cli.main(["report", out])
  said = capsys.readouterr().out
  assert "augment=cutout=2" in said
  assert (tmp_path / "r" / "report" / "augment=none, batch_size=100").is_dir()
  of = ["--where", "batch_size=100", "augment=none"]
  cli.main(["compare", out, *of, "--against", "batch_size=100", "augment=cutout=2"])
  assert "B minus A is" in capsys.readouterr().out
  with pytest.raises(vs.UserError, match=r"no run has augment=flip: .*cutout=2, none"):
    vs.report(out, where={"augment": "flip"})


@pytest.mark.slow
def test_sweeps_of_several_fields_extend_merge_and_replay(tmp_path):
  def table(n, start=0):
    values = {"batch_size": [100, 200], "optimizer": ["sgd", "adam"]}
    return vs.Runs.sweep(**values, seeds=n, start=start)

  out = tmp_path / "r"
  first = alone(LINEAR, table(1), out, seed_batch=3)
  assert first.optimizer.values.tolist() == ["sgd", "adam"] * 2
  assert first.batch_size.values.tolist() == [100, 100, 200, 200]
  # Other values join too, and names longer than those before.
  added = vs.Runs.sweep(batch_size=[50], optimizer=["nesterov"], seeds=1)
  longer = vs.Runs.concat([table(2), added])
  extended = alone(LINEAR, longer, out)
  np.testing.assert_array_equal(extended.predictions[:4], first.predictions)
  assert extended.optimizer.values[-1] == "nesterov"
  for run in (1, 8):
    assert vs.replay(out, run).same
  with pytest.raises(vs.UserError, match="recipe and this one differ in warmup"):
    alone(LINEAR.replace(warmup=0.5), longer, out)
  other = alone(LINEAR, table(1, start=5), tmp_path / "other")
  merged = vs.merge([out, tmp_path / "other"], tmp_path / "m", progress=False)
  assert merged.sizes["run"] == 9 + 4
  np.testing.assert_array_equal(merged.predictions[9:], other.predictions)
  assert merged.optimizer.values.tolist()[8:10] == ["nesterov", "sgd"]


@pytest.mark.slow
def test_work_trains_the_runs_that_a_sweep_left(tmp_path):
  out = tmp_path / "r"
  table = vs.Runs.sweep(epochs=[1, 2], seeds=2)
  whole = alone(LINEAR, table, tmp_path / "whole", seed_batch=2)
  alone(LINEAR, table, out, seed_batch=2)
  (out / "blocks" / "1.json").unlink()
  assert vs.open_results(out).sizes["run"] == 2
  again = vs.work(out, progress=False)
  np.testing.assert_array_equal(again.predictions, whole.predictions)
  np.testing.assert_array_equal(again.epochs, [1, 2] * 2)


@pytest.mark.slow
def test_networks_of_a_sweep_are_applied_each_by_its_own_model(tmp_path):
  given = {"hidden": 8, "activation": "relu"}
  recipe = LINEAR.replace(model=Net, model_args=given)
  runs = vs.Runs.sweep(activation=["relu", "tanh"], optimizer=["sgd", "adam"], seeds=1)
  out = tmp_path / "r"
  results = alone(recipe, runs, out, keep_params=True)
  images = vs.load_dataset("digits").tests["test"].inputs
  with pytest.raises(vs.UserError, match="networks of several models"):
    vs.load_networks(out)
  for pair in ([0, 1], [2, 3]):
    networks = vs.load_networks(out, pair)
    logits = jax.vmap(networks.apply, (0, None))(networks.variables, images)
    predicted = np.asarray(logits.argmax(-1))
    np.testing.assert_array_equal(predicted, results.predictions[pair])


@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "values"),
  [("hidden", [4, 8]), ("activation", ["relu", "tanh"]), ("gain", [1, 2])],
)
def test_arguments_of_a_users_model_are_swept(name, values, tmp_path):
  given = {"hidden": 8, "activation": "relu", "gain": 1.0}
  recipe = LINEAR.replace(model=Net, model_args=given)
  assert recipe.replace(hidden=4).model_args == given | {"hidden": 4}
  runs = vs.Runs.sweep(**{name: values}, seeds=2)
  swept = alone(recipe, runs, tmp_path / name, logits=True)
  check_equal(swept, recipe, tmp_path)


@pytest.mark.parametrize(
  ("changes", "swept", "options", "message"),
  [
    ({}, {"width": [1, 2]}, {}, "width is 2.0: the model linear takes none"),
    ({}, {"batch_size": [100, 10**4]}, {}, "batch_size 10000 with 1000 training"),
    ({}, {"batch_size": [100, 0.5]}, {}, "batch_size is 0.5: give a whole number"),
    ({}, {"optimizer": ["sgd", "agd"]}, {}, "unknown optimizer .*'agd'"),
    ({}, {"label_smoothing": [0, 1]}, {}, "label_smoothing is 1.*below 1"),
    ({}, {"dataset": ["digits", "mnist"]}, {}, "numbers and names, not dataset"),
    ({}, {"milestones": [1, 2]}, {}, "numbers and names, not milestones"),
    ({}, {"wdith": [1, 2]}, {}, "unknown value to sweep 'wdith'.*mean 'width'"),
    (
      {},
      {"evaluate_every": [None, 1]},
      {},
      "evaluate_every=none and evaluate_every=1 store different arrays",
    ),
    (
      {"model": "mlp"},
      {"depth": [1, 2]},
      {"keep_params": True},
      r"depth=1 and depth=2 store different arrays of a run, such as variables/params.*"
      "leave keep_params out",
    ),
    (
      {"evaluate_every": 1},
      {"epochs": [1, 2]},
      {},
      "epochs=1 and epochs=2 store different arrays of a run, such as test/epoch_",
    ),
    (
      {"model": "mlp"},
      {"depth": [None, 1]},
      {},
      "depth=none and depth=1 train the same runs: leave one of them out",
    ),
    (
      {},
      {"epochs": [1, 2]},
      {"checkpoint_every": 1},
      "epochs is compiled once a value: 2 compilations, and blocks of several programs",
    ),
    (
      {"model": Net},
      {"hidden": [1, 2]},
      {},
      "unknown value to sweep 'hidden'",
    ),
    (
      {"optimizer": own_rate, "schedule": "constant", "values": {"factor": 1}},
      {"lr": [0.1, 0.2]},
      {},
      r"does not read lr: .* read run\['lr'\] in the optimizer.* values=",
    ),
    (
      {"optimizer": own_rate, "schedule": "constant", "lr": None},
      {"lr": [0.1, 0.2]},
      {},
      r"has no lr: .*values={'name': number}",
    ),
  ],
)
def test_what_a_sweep_refuses(changes, swept, options, message, tmp_path):
  with pytest.raises(vs.UserError, match=message):
    alone(
      LINEAR.replace(**changes),
      vs.Runs.sweep(**swept, seeds=1),
      tmp_path / "r",
      **options,
    )
  assert not (tmp_path / "r").exists()


class Told(nn.Module):
  """A network that shows what it was given, by a factor of its logits."""

  norm: object = None

  @nn.compact
  def __call__(self, x, train=False):
    factor = 1 + TOLD.index((type(self.norm), self.norm))
    return factor * nn.Dense(10)(x.reshape(len(x), -1))


class ToldByNNX(nnx.Module):
  """The same of NNX."""

  def __init__(self, norm=None, *, rngs):
    self.factor = 1 + TOLD.index((type(norm), norm))
    self.dense = nnx.Linear(64, 10, rngs=rngs)

  def __call__(self, x):
    return self.factor * self.dense(x.reshape(len(x), -1))


GIVEN = [None, "none", True, "", "true", 1, "1", "layer"]
TOLD = [(type(value), value) for value in GIVEN]


# Each value compiles a program of its own.
@pytest.mark.parametrize(
  ("model", "count"), mostly_slow([(Told, 3), (Told, 8), (ToldByNNX, 8)])
)
def test_a_model_gets_what_a_sweep_gives(model, count, tmp_path):
  recipe = LINEAR.replace(model=model, model_args={"norm": None}, epochs=0)
  values = [np.True_ if value is True else value for value in GIVEN[:count]]
  runs = vs.Runs.sweep(norm=values, seeds=1)
  results = alone(recipe, runs, tmp_path / "r", lane_width=1, logits=True)
  logged = results.logits.values
  for place in range(count):
    np.testing.assert_allclose(logged[place], (1 + place) * logged[0], rtol=1e-5)
  assert len({*results.norm.values.tolist()}) == count
  for text in {"none", "layer"}.intersection(GIVEN[:count]):
    (summary,) = vs.report(tmp_path / "r", where={"norm": text})
    assert summary["runs"] == 1


def test_values_that_are_equal_in_float32_are_one():
  for values in ([0.1, 0.1 + 1e-10], [0.1, np.float32(0.1)]):
    with pytest.raises(vs.UserError, match="give at least one value, each once"):
      vs.Runs.sweep(lr=values, seeds=1)
  table = vs.Runs.sweep(lr=np.array([0.1, 0.2], np.float32), seeds=1)
  assert table.values["lr"].tolist() == [0.1, 0.2]
  assert LINEAR.replace(lr=np.float32(0.1)).lr == 0.1
