"""Optimizers of optax in recipes: every one trains, or is refused by name."""

import functools
import inspect
import re

import flax.linen as nn
import jax
import numpy as np
import optax
import plain
import pytest
from optax import contrib

import vmapseeds as vs
from vmapseeds.training import loop
from vmapseeds.training.names import OPTIMIZERS
from vmapseeds.training.optimizers import UPDATE_RULES
from vmapseeds.training.runs import Runs
from vmapseeds.training.supervised import load_recipe_task
from vmapseeds.training.task import bind_runs, lanes_of, trace

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(48, 4)).astype(np.float32)
LABELS = (INPUTS @ RNG.normal(size=4) > 0).astype(np.int32)
DATA = vs.Dataset(train=(INPUTS, LABELS), test=(INPUTS, LABELS))
EPOCHS, BATCH = 3, 16


class Net(nn.Module):
  @nn.compact
  def __call__(self, x):
    x = nn.tanh(nn.Dense(8)(x))
    return nn.Dense(2)(x)


def recipe_of(optimizer, **changes):
  fields = dict(name="r", dataset=DATA, model=Net, epochs=EPOCHS, batch_size=BATCH)
  return vs.Recipe(**fields | {"optimizer": optimizer, "normalize": False} | changes)


def sgd():
  return optax.sgd(0.1)


def weights(params):
  return jax.tree.map(lambda leaf: leaf.ndim > 1, params)


def small(step, updates=None, **_):
  return step < 1000


# Arguments of those that need some beside a learning rate.
ARGUMENTS = {
  "adaptive_grad_clip": lambda f: f(0.1),
  "add_noise": lambda f: f(0.01, 0.55, key=0),
  "apply_if_finite": lambda f: f(sgd(), 3),
  "chain": lambda f: f(optax.clip(1.0), sgd()),
  "clip": lambda f: f(1.0),
  "clip_by_block_rms": lambda f: f(1.0),
  "clip_by_global_norm": lambda f: f(1.0),
  "conditionally_mask": lambda f: f(sgd(), small),
  "conditionally_transform": lambda f: f(sgd(), small),
  "differentially_private_aggregate": lambda f: f(1.0, 0.1, key=0),
  "dpsgd": lambda f: f(0.1, 1.0, 0.1, 0),
  "ema": lambda f: f(0.9),
  "flatten": lambda f: f(sgd()),
  "freeze": lambda f: f(weights),
  "lookahead": lambda f: f(sgd(), 3, 0.5),
  "masked": lambda f: f(sgd(), weights),
  "measure_with_ema": lambda f: f(optax.global_norm, 0.9),
  "mechanize": lambda f: f(sgd()),
  "monitor": lambda f: f({"norm": optax.global_norm}),
  "multi_transform": lambda f: f({True: sgd(), False: sgd()}, weights),
  "named_chain": lambda f: f(("clip", optax.clip(1.0)), ("sgd", sgd())),
  "noisy_sgd": lambda f: f(0.1, key=0),
  "partition": lambda f: f({True: sgd(), False: sgd()}, weights),
  "per_example_global_norm_clip": lambda f: f(1.0),
  "per_example_layer_norm_clip": lambda f: f(1.0),
  "sam": lambda f: f(sgd(), optax.chain(contrib.normalize(), optax.sgd(0.05))),
  "scale": lambda f: f(-0.1),
  "scale_by_backtracking_linesearch": lambda f: f(5),
  "scale_by_schedule": lambda f: f(lambda step: -0.1),
  "scale_by_zoom_linesearch": lambda f: f(5),
  "schedule_free": lambda f: f(sgd(), 0.1),
  "selective_transform": lambda f: f(sgd(), freeze_mask=weights),
  "snapshot": lambda f: f("norm", optax.global_norm),
  "split_real_and_imaginary": lambda f: f(sgd()),
  "stateless": lambda f: f(lambda updates, params: updates),
  "stateless_with_tree_map": lambda f: f(lambda update, param: update),
  "trace": lambda f: f(0.9),
  "with_extra_args_support": lambda f: f(sgd()),
}
# What is no optimizer of a whole batch's gradient, and what it says of itself.
REFUSED = {
  "differentially_private_aggregate": "expects `grads` to have a batch dimension",
  "dpsgd": "expects `grads` to have a batch dimension",
  # In the words of new and old JAX.
  "measure_with_ema": "(structure|Expected dict)",
  "scale_by_muon": "(structure|Expected dict)",
}


def optimizers():
  """The functions of optax and optax.contrib that make a transformation, by name."""
  found = {}
  for module in (optax, contrib):
    for name, function in inspect.getmembers(module, inspect.isroutine):
      try:
        gives = inspect.signature(function).return_annotation
      except ValueError:
        continue
      if (
        inspect.isclass(gives)
        and not name.startswith("_")
        and issubclass(gives, optax.GradientTransformation)
      ):
        found[name] = function
  return found


def made(name):
  function = optimizers()[name]
  if name in ARGUMENTS:
    return ARGUMENTS[name](function)
  takes = "learning_rate" in inspect.signature(function).parameters
  return function(**{"learning_rate": 0.05} if takes else {})


def plain_params(name, init=0, order=0):
  """The parameters that a script evaluates after it has trained with an optimizer."""
  optimizer, model = made(name), Net()
  params = model.init(plain.key("init", init), INPUTS[:1])["params"]

  def value_of(params, inputs, labels):
    logits = model.apply({"params": params}, inputs)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

  @jax.jit
  def step(params, state, inputs, labels):
    def value_fn(params, **_):
      return value_of(params, inputs, labels)

    fast = params.fast if name == "lookahead" else params
    value, gradient = jax.value_and_grad(value_fn)(fast)
    more = {"value": value, "grad": gradient, "value_fn": value_fn}
    if name == "sophia" or "hutchinson" in name:
      more = {"obj_fn": value_fn}
    elif not isinstance(optimizer, optax.GradientTransformationExtraArgs) or (
      name == "sam"
    ):
      more = {}
    updates, state = optimizer.update(gradient, state, params, **more)
    return optax.apply_updates(params, updates), state

  if name == "lookahead":
    params = optax.LookaheadParams.init_synced(params)
  state = optimizer.init(params)
  for epoch in range(EPOCHS):
    key = jax.random.fold_in(plain.key("order", order), epoch)
    examples = np.asarray(jax.random.permutation(key, len(INPUTS)))
    for chosen in examples.reshape(-1, BATCH):
      params, state = step(params, state, INPUTS[chosen], LABELS[chosen])
  if name == "lookahead":
    return params.slow
  if name.startswith("schedule_free"):
    return contrib.schedule_free_eval_params(state, params)
  if name == "sam" and int(state.steps_since_sync):
    return state.cache
  return params


def trained_params(recipe):
  """The parameters that a recipe's first run evaluates."""
  task = load_recipe_task(recipe, Runs.independent(1))
  run = jax.tree.map(lambda column: column[0], lanes_of(task, Runs.independent(1)))
  trained = jax.jit(functools.partial(loop.train, recipe))(task.data[0], run)
  assert not trained.diverged
  return trained.variables["params"]


def refusal(optimizer):
  recipe = recipe_of(optimizer)
  with pytest.raises(vs.UserError) as error:
    task = load_recipe_task(recipe, Runs.independent(1))
    trace(task, bind_runs(task, Runs.independent(1)))
  return str(error.value)


def check(name):
  def optimizer(run, steps):
    return made(name)

  if name in REFUSED:
    assert re.search(
      f"optimizer .* raised an error .*{REFUSED[name]}", refusal(optimizer)
    )
    return
  ours, theirs = trained_params(recipe_of(optimizer)), plain_params(name)
  for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


QUICK = (
  "differentially_private_aggregate",
  "lookahead",
  "scale_by_backtracking_linesearch",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_what_optimizers_need_beside_the_gradient(name):
  check(name)


# One of each kind: what they are given beside the gradient, what they keep, and what
# they are made of. The package treats the others as it treats these.
KINDS = {
  *("adam", "adafactor", "apply_if_finite", "chain", "conditionally_mask", "dpsgd"),
  *(
    "hutchinson_estimator_diag_hessian",
    "lbfgs",
    "masked",
    "measure_with_ema",
    "mechanize",
    "momo",
  ),
  *("multi_transform", "muon", "named_chain", "noisy_sgd", "polyak_sgd", "sam"),
  *("scale_by_muon", "scale_by_zoom_linesearch", "schedule_free", "schedule_free_sgd"),
  *("scale_by_schedule", "snapshot", "sophia", "split_real_and_imaginary"),
}


@pytest.mark.filterwarnings("default")  # of optax, about names that will change
@pytest.mark.parametrize(
  "name",
  [
    pytest.param(name, marks=pytest.mark.slow if name in KINDS else pytest.mark.seldom)
    for name in sorted({*optimizers()} - {*QUICK})
  ],
)
def test_every_optimizer_of_optax(name):
  check(name)


@pytest.mark.slow
def test_averages_are_found_in_other_optimizers():
  def wrapped(run, steps):
    free = optax.chain(optax.clip(10.0), contrib.schedule_free_adamw(0.05))
    return optax.MultiSteps(free, 1)

  found = trained_params(recipe_of(wrapped))
  alone = plain_params("schedule_free_adamw")
  for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(alone), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_the_last_layer_alone_is_averaged():
  recipe = recipe_of(lambda run, steps: contrib.schedule_free_sgd(0.1))
  first = trained_params(recipe.replace(epochs=0))
  last = trained_params(recipe.replace(trainable=["Dense_1"]))
  for name, leaf in first["Dense_0"].items():
    np.testing.assert_allclose(last["Dense_0"][name], leaf, rtol=1e-5)
  assert (last["Dense_1"]["kernel"] != first["Dense_1"]["kernel"]).all()


@pytest.mark.slow
def test_evaluation_parameters_of_ones_own():
  """The parameters before the last update, which the optimizer's state keeps."""

  def keep():
    def update(updates, state, params):
      return updates, params

    return optax.GradientTransformation(lambda params: params, update)

  recipe = recipe_of(lambda run, steps: optax.chain(keep(), optax.sgd(0.1)), epochs=2)
  before = trained_params(recipe.replace(eval_params=lambda state, params: state[0]))
  after = trained_params(recipe)
  assert (before["Dense_1"]["kernel"] != after["Dense_1"]["kernel"]).all()
  wrong = recipe.replace(eval_params=lambda state, params: state)
  task = load_recipe_task(wrong, Runs.independent(1))
  with pytest.raises(
    vs.UserError, match=r"eval_params .* give parameters of the names"
  ):
    trace(task, bind_runs(task, Runs.independent(1)))
  with pytest.raises(
    vs.UserError, match=r"eval_params are of an optimizer of your own"
  ):
    recipe.replace(optimizer="sgd", lr=0.1, eval_params=lambda state, params: params)


def test_what_optimizers_by_name_keep_is_what_memory_is_checked_with():
  assert OPTIMIZERS.keys() == UPDATE_RULES.keys()
  params = {"kernel": np.zeros((3, 2), np.float32), "bias": np.zeros(2, np.float32)}
  for name, arrays in OPTIMIZERS.items():
    leaves = jax.tree.leaves(UPDATE_RULES[name](0.9).init(params))
    assert sum(leaf.size for leaf in leaves if leaf.ndim > 0) == arrays * 8, name
