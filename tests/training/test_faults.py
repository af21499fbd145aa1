"""Who is to blame for what fails before training: the user's object in one line, this
package with the original error.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import vmapseeds as vs
from vmapseeds.training import inputs, loop, losses, supervised, task

INPUTS = np.random.default_rng(0).normal(size=(24, 6)).astype(np.float32)
LABELS = (np.arange(24) % 3).astype(np.int32)
DATA = vs.Dataset(train=(INPUTS, LABELS), test=(INPUTS, LABELS))
OURS = f"of vmapseeds {vs.__version__}, not in your code: please report"


class Net(nn.Module):
  @nn.compact
  def __call__(self, x):
    return nn.Dense(3)(x)


def opened(**changes):
  """Make the program of a recipe, without training it."""
  fields = dict(name="own", dataset=DATA, model=Net, epochs=1, batch_size=8, lr=0.1)
  recipe = vs.Recipe(**fields | {"normalize": False} | changes)
  runs = vs.Runs.independent(1)
  made = supervised.load_recipe_task(recipe, runs)
  return task.trace(made, task.bind_runs(made, runs))


def wrong_sum(*args, **options):
  return jnp.zeros(3) + jnp.zeros(4)


def penalised(model, params, batch, run):
  loss, updates = model.mean_loss(params, batch)
  return 2 * loss, updates


def _patched(module, name):
  def patch(monkeypatch):
    # A function of the package's own file, so that its frame is one of ours.
    source = f"def {name}(*args, **options):\n  return jnp.zeros(3) + jnp.zeros(4)\n"
    space = {"jnp": jnp}
    exec(compile(source, module.__file__, "exec"), space)
    monkeypatch.setattr(module, name, space[name])

  return patch


@pytest.mark.parametrize("objective", [None, penalised])
@pytest.mark.parametrize(
  ("module", "name"),
  [
    (losses, "smoothed_cross_entropy"),
    (inputs, "normalize"),
    (loop, "moved_params"),
  ],
)
def test_what_fails_in_the_package_goes_through(module, name, objective, monkeypatch):
  _patched(module, name)(monkeypatch)
  normalize = name == "normalize"
  with pytest.raises(TypeError, match="add got incompatible shapes") as caught:
    opened(objective=objective, normalize=normalize)
  assert not isinstance(caught.value, vs.UserError)
  notes = [note for note in caught.value.__notes__ if OURS in note]
  assert len(notes) == 1
  file = module.__file__.rpartition("/")[2]
  assert notes[0].startswith(f"raised in {file} line 2 ")


class Loops(nn.Module):
  """A loop that has no gradient."""

  @nn.compact
  def __call__(self, x):
    x = nn.Dense(3)(x)
    return jax.lax.while_loop(lambda y: y.sum() < 3, lambda y: y + 1, x)


class Bad(nn.Module):
  @nn.compact
  def __call__(self, x):
    return nn.Dense(3)(wrong_sum(x))


class BadInTraining(nn.Module):
  @nn.compact
  def __call__(self, x, train):
    x = nn.Dense(3)(x)
    return nn.BatchNorm(use_running_average=not train)(x) + x[: len(x) - train]


class Counts(nn.Module):
  """A network that counts its steps in whole numbers, then in others."""

  @nn.compact
  def __call__(self, x):
    steps = self.variable("batch_stats", "steps", lambda: jnp.zeros((), jnp.int32))
    if self.is_mutable_collection("batch_stats") and not self.is_initializing():
      steps.value = steps.value + 0.5
    return nn.Dense(3)(x)


def wrong_objective(model, params, batch, run):
  return model.loss(wrong_sum(), batch.targets).mean(), {}


def wide(run, steps):
  """An optimizer whose state changes its type."""
  return optax.GradientTransformation(
    lambda params: jnp.zeros((), jnp.int32),
    lambda grads, state, params: (grads, state + 0.5),
  )


def library_optimizer(run, steps):
  return optax.GradientTransformation(lambda params: (), optax.global_norm)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"model": Bad}, "model test_faults:Bad on inputs of 6 fails .TypeError: add got"),
    (
      {"model": BadInTraining},
      r"own raised an error while being traced .*test_faults.py line \d+",
    ),
    (
      {"model": Loops},
      "own raised an error while being traced .ValueError: Reverse-mode",
    ),
    (
      {"loss": wrong_sum},
      "loss test_faults:wrong_sum raised an error .*test_faults.py line",
    ),
    ({"loss": jnp.cross}, "loss .*:cross raised an error while being traced .*"),
    ({"predict": wrong_sum}, "predict test_faults:wrong_sum raised an error"),
    ({"augment": wrong_sum}, "augment test_faults:wrong_sum raised an error"),
    ({"augment": jnp.split}, "augment .*:split raised an error while being traced"),
    ({"schedule": wrong_sum}, "schedule test_faults:wrong_sum raised an error"),
    ({"optimizer": wrong_sum}, "optimizer test_faults:wrong_sum raised an error"),
    (
      {"optimizer": library_optimizer},
      "optimizer test_faults:library_optimizer raised an error",
    ),
    (
      {"objective": wrong_objective},
      "objective test_faults:wrong_objective raised an error",
    ),
    (
      {"model": Counts},
      r"model test_faults:Counts makes .*'float32\[\]'.* of .*'int32\[\]'.* in a step",
    ),
    (
      {"optimizer": wide},
      r"optimizer test_faults:wide makes .*'float32\[\]'.* of .*'int32\[\]'.* in a step",
    ),
    ({"metrics": {"mine": wrong_sum}}, "metric mine raised an error"),
  ],
)
def test_what_fails_in_a_users_object_is_one_line(changes, message):
  with pytest.raises(vs.UserError, match=message) as caught:
    opened(**changes)
  assert "\n" not in str(caught.value)
  assert not any(OURS in note for note in getattr(caught.value, "__notes__", ()))


@pytest.mark.parametrize("stage", ["start", "advance", "finish"])
@pytest.mark.parametrize("function", [wrong_sum, lambda: 0, jnp.concatenate])
def test_what_fails_in_a_task_is_one_line(stage, function):
  stages = {
    "start": lambda data, run: jax.random.normal(run.key("init")),
    "advance": lambda data, run, state, first, last: state,
    "finish": lambda data, run, state: {"state": state},
  }
  made = vs.Task(name="walk", sources=("init",), **stages | {stage: function})
  with pytest.raises(vs.UserError, match="walk raised an error while being traced"):
    task.trace(made, task.bind_runs(made, vs.Runs.independent(1)))
