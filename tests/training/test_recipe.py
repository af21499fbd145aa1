"""Recipes: frozen, named, overridable, and back from JSON."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vmapseeds as vs
from vmapseeds import lanes, models
from vmapseeds.results.description import differing_fields
from vmapseeds.training.networks import make_network
from vmapseeds.training.recipes import FIELDS, RECIPES, from_text


@pytest.mark.parametrize("name", RECIPES)
def test_json_round_trip(name):
  recipe = vs.recipe(name)
  again = vs.Recipe.from_json(recipe.to_json())
  assert again == recipe
  assert hash(again) == hash(recipe)
  assert recipe.name == name


def test_resnet9_cifar10_is_jordans_core_recipe():
  r = vs.recipe("resnet9_cifar10")
  assert (r.lr, r.momentum, r.weight_decay, r.batch_size, r.epochs) == (
    0.5,
    0.9,
    5e-4,
    500,
    64,
  )
  assert (r.optimizer, r.schedule, r.augment) == (
    "sgd",
    "linear",
    "flip translate=2 cutout=12",
  )
  assert (r.mean, r.std) == ((125.307, 122.961, 113.8575), (51.5865, 50.847, 51.255))
  assert vs.recipe("resnet9_cifar10_published").augment == "flip cutout=12 reflect=2"


def test_precision_is_the_platforms_unless_said():
  assert vs.recipe("digits_cnn").precision == "auto"
  stored = vs.recipe("digits_cnn").to_json().replace('"auto"', '"float32"')
  assert vs.Recipe.from_json(stored).precision == "float32"
  for backend, precision in (
    ("cpu", "float32"),
    ("gpu", "bfloat16"),
    ("tpu", "bfloat16"),
  ):
    with lanes.compiling_for(backend):
      assert models.resolve_precision("auto") == precision
      made = make_network(vs.recipe("linear_cifar10"), 2)
      logits = jax.eval_shape(
        lambda x: made.apply(made.init(jax.random.key(0), x), x),
        jnp.zeros((1, 2, 2, 3)),
      )
      assert logits.dtype == precision
      assert models.resolve_precision("float32") == "float32"
      assert models.resolve_precision("bfloat16") == "bfloat16"
  assert lanes.platform() == jax.default_backend()


@pytest.mark.parametrize("model", models.NAMES)
def test_parameters_and_batch_statistics_are_float32_whatever_the_precision(model):
  recipe = vs.recipe(
    "digits_cnn",
    model=model,
    width=0.25 if model != "linear" else 1.0,
    precision="bfloat16",
  )
  made, images = make_network(recipe, 3), jnp.zeros((2, 16, 16, 3))
  variables = jax.eval_shape(made.init, jax.random.key(0), images)
  logits, updates = jax.eval_shape(made.train, variables, images, jax.random.key(1))
  assert logits.dtype == jnp.bfloat16
  assert {leaf.dtype for leaf in jax.tree.leaves((variables, updates))} == {
    jnp.dtype("float32")
  }


def test_values_in_any_order_are_the_same_recipe():
  one, other = (
    vs.recipe("digits_cnn", values=values)
    for values in ({"a": 1, "b": 2}, {"b": 2, "a": 1})
  )
  assert one == other
  assert hash(one) == hash(other)


def test_recipes_are_frozen():
  with pytest.raises(dataclasses.FrozenInstanceError):
    vs.recipe("digits_cnn").epochs = 3


def test_every_field_can_be_overridden():
  changes = dict(
    name="mine",
    dataset="mnist",
    model="linear",
    epochs=1,
    batch_size=7,
    eval_model="mlp",
    eval_batch_size=9,
    initialize="experiments.airbench:whiten",
    metrics=["auc"],
    lr=1,
    momentum=0.5,
    weight_decay=0,
    optimizer="adam",
    schedule="step",
    augment="flip",
    width=2,
    mean=[1, 2.5],
    std=[1, 2],
    test_sets=["test", "extra"],
    precision="bfloat16",
    gamma=0.5,
    values={"temperature": 2},
    warmup=0.5,
    milestones=[1, 2],
    loss="cross_entropy",
    label_smoothing=0.1,
    objective="vmapseeds.training.loop:default_objective",
    sources=["mixup"],
    predict="outputs",
    dropout=0.5,
    normalize=False,
    evaluate_every=2,
    training_metrics=True,
    start_from="base",
    trainable="all",
    depth=2,
    model_args={"hidden": 3},
    version="1",
    stop_at=1,
  )
  # `eval_params` goes with an optimizer of one's own, which has no schedule.
  assert {*changes, "eval_params"} == set(FIELDS)
  recipe = vs.recipe("digits_cnn", **changes)
  assert recipe.lr == 1.0
  assert isinstance(recipe.lr, float)
  assert recipe.mean == (1.0, 2.5)
  again = vs.Recipe.from_json(recipe.to_json())
  assert again.to_json() == recipe.to_json()
  assert again.objective.name == recipe.objective
  assert again.initialize.name == recipe.initialize
  same = [of.replace(objective=None, initialize=None) for of in (again, recipe)]
  assert same[0] == same[1]
  assert (
    differing_fields(
      *({"recipe": vs.recipe("digits_cnn", lr=lr).to_json()} for lr in (0.05, 0.5))
    )
    == "recipe and this one differ in lr: 0.05, 0.5"
  )


def test_numbers_and_names_of_other_libraries_become_plain_ones(tmp_path):
  recipe = vs.recipe(
    vs.recipe("digits_cnn"),
    epochs=np.int64(3),
    lr=np.float32(0.5),
    width=jnp.float32(2),
    momentum=np.array(0.25),
    weight_decay=np.int8(1),
    mean=np.array([1, 2]),
    std=jnp.ones(2),
    model=np.str_("linear"),
    dataset=tmp_path / "d.npz",
  )
  plain = vs.recipe(
    "digits_cnn",
    epochs=3,
    lr=0.5,
    width=2.0,
    momentum=0.25,
    weight_decay=1.0,
    mean=(1.0, 2.0),
    std=(1.0, 1.0),
    model="linear",
    dataset=str(tmp_path / "d.npz"),
  )
  assert recipe == plain
  for field in FIELDS:
    assert repr(getattr(recipe, field)) == repr(getattr(plain, field))
  assert vs.Recipe.from_json(recipe.to_json()) == plain


def test_a_recipe_is_read_without_what_has_a_default():
  given = {
    "name": "r",
    "dataset": "digits",
    "model": "linear",
    "epochs": 1,
    "batch_size": 2,
  }
  assert vs.Recipe.from_json(json.dumps({**given, "lr": 0.1})) == vs.Recipe(
    **given, lr=0.1
  )
  del given["model"]
  with pytest.raises(
    vs.UserError, match="the recipe lacks model: give every field that has no default"
  ):
    vs.Recipe.from_json(json.dumps(given))


def test_a_name_has_at_most_60_characters():
  assert vs.recipe("digits_cnn", name="n" * 60).name == "n" * 60
  with pytest.raises(vs.UserError, match="file: give 1 to 60 printable characters"):
    vs.recipe("digits_cnn", name="n" * 61)


def test_an_unknown_field_is_a_type_error_that_names_the_nearest():
  with pytest.raises(
    TypeError,
    match=r"unknown recipe field 'epoch': choose one of .*; did you mean 'epochs'\?",
  ):
    vs.recipe("digits_cnn", epoch=3)
  with pytest.raises(vs.UserError, match="unknown recipe field 'x'"):
    vs.Recipe.from_json('{"x": 1}')


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"epochs": np.bool_(True)}, "epochs is np.True_: give a whole number"),
    ({"epochs": np.array([1, 2])}, r"epochs is array\(\[1, 2\]\): give a whole number"),
    ({"lr": np.zeros((2, 2))}, "lr is array.*: give a number"),
    ({"lr": 10**400}, "lr is 1000.*: give a number"),
    ({"lr": 1j}, "lr is 1j: give a number"),
    ({"mean": "a"}, "mean is 'a': give a list"),
    ({"model": ["linear"]}, r"model is \('linear',\): give a name .small_cnn, "),
    ({"mean": 3}, "mean is 3: give a list"),
    ({"warmup": -1}, "warmup is -1.0: give at least 0 and fewer than the 16 epochs"),
    ({"warmup": 16}, "warmup is 16.0: give at least 0 and fewer than the 16 epochs"),
    ({"schedule": "step"}, "milestones go with schedule 'step': give both or neither"),
    ({"milestones": (3,)}, "milestones go with schedule 'step': give both or neither"),
    (
      {"schedule": "step", "milestones": (0, 3)},
      r"milestones is \(0, 3\): give epochs from 1 on",
    ),
    (
      {"label_smoothing": 0.1, "loss": "squared_error"},
      "label_smoothing is of the loss cross_entropy alone",
    ),
    (
      {"label_smoothing": 1},
      "label_smoothing is 1.0: give a number of at least 0 and below 1",
    ),
    (
      {"optimizer": print},
      "an optimizer of your own has a schedule: leave this 'constant'",
    ),
    (
      {"schedule": print, "warmup": 1},
      "what you give makes the learning rate: leave warmup out",
    ),
    (
      {"trainable": ["head"], "dropout": 0.5},
      r"with trainable \('head',\) the rest does not train: leave dropout out",
    ),
    ({"trainable": "first"}, "trainable is 'first': give all, a list of parameters"),
    (
      {"stop_at": 0},
      "stop_at is 0.0: give an accuracy above 0, at most 1: all examples",
    ),
    ({"stop_at": 1.01}, "stop_at is 1.01: give an accuracy"),
    ({"stop_at": float("nan")}, "stop_at is nan: give an accuracy"),
    ({"stop_at": "all"}, "stop_at is 'all': give a number"),
    ({"depth": 0}, "depth is 0: .*at least 1"),
    ({"evaluate_every": 0}, "evaluate_every is 0: .*at least 1"),
    ({"values": {"lr": 0.5}}, "lr is 0.05, and 0.5 in values: give one of the two"),
    ({"values": {1: 2}}, "value is 1: give a text"),
    (
      {"values": {"seed_init": 1}},
      "value 'seed_init': .*already used",
    ),
    (
      {"values": {"epoch": 1}},
      "value 'epoch': .*already used",
    ),
    ({"start_from": 3}, "start_from is 3: give a name"),
  ],
)
def test_mistakes_name_what_is_allowed(changes, message):
  with pytest.raises(vs.UserError, match=message):
    vs.recipe("digits_cnn", **changes)


def test_an_unknown_recipe():
  with pytest.raises(
    vs.UserError,
    match=r"unknown recipe 'digit_cnn': choose one of digits_cnn, .* did you mean 'digits_cnn'",
  ):
    vs.recipe("digit_cnn")
  with pytest.raises(vs.UserError, match="unknown recipe 1: choose one of"):
    vs.recipe(1)


@pytest.mark.parametrize(
  ("field", "text", "value"),
  [
    ("epochs", "4", 4),
    ("lr", "0.25", 0.25),
    ("lr", "1e-3", 1e-3),
    ("dataset", "1e3", "1e3"),
    ("augment", "flip cutout=2", "flip cutout=2"),
    ("mean", "1,2.5", [1, 2.5]),
    ("mean", "none", None),
    ("test_sets", "test,validation", ["test", "validation"]),
    ("epochs", "four", "four"),
  ],
)
def test_settings_from_the_command_line(field, text, value):
  assert from_text(field, text) == value
