"""Parameters that are complex numbers, beside torch."""

import jax
import numpy as np

import vmapseeds as vs
from vmapseeds.training.inputs import DeviceExamples
from vmapseeds.training.loop import train
from vmapseeds.training.recipe_runs import recipe_lanes

START = np.array([0.5 - 0.5j, -0.2 + 0.9j, 1 - 0.1j], np.complex64)
# What torch 2.13 has after 30 steps of SGD (rate 0.002, momentum 0.9) from START on the
# mean of (|x · w|² - y)², which is 74.719 at first, and then 2.2276.
TORCH = np.array(
  [0.551605 - 2.196235j, 0.874299 + 0.289571j, -0.837926 + 0.2291897j], np.complex64
)


def problem():
  rng = np.random.default_rng(0)
  inputs = rng.normal(size=(40, 3)).astype(np.float32)
  truth = np.array([1 + 2j, -1 + 0.5j, 0.3 - 1j])
  return inputs, (np.abs(inputs @ truth) ** 2).astype(np.float32)


def start(key, inputs):
  return {"w": jax.numpy.asarray(START)}


def intensity(params, inputs):
  return jax.numpy.abs(inputs @ params["w"]) ** 2


def by_hand():
  """Thirty steps of SGD along the Wirtinger derivative 2 ∂L/∂w̄."""
  inputs, targets = (array.astype(np.float64) for array in problem())
  w, velocity = START.astype(np.complex128), 0
  for _ in range(30):
    product = inputs @ w
    error = np.abs(product) ** 2 - targets
    gradient = 2 * (2 * error * product) @ inputs / len(inputs)
    velocity = 0.9 * velocity + gradient
    w = w - 0.002 * velocity
  return w


def test_sgd_of_complex_parameters_is_torchs():
  np.testing.assert_allclose(by_hand(), TORCH, rtol=1e-3)
  inputs, targets = problem()
  recipe = vs.Recipe(
    name="complex",
    dataset=vs.Dataset(
      train=(inputs, targets), test=(inputs, targets), name="waves", num_classes=None
    ),
    model=(start, intensity),
    epochs=30,
    batch_size=40,
    lr=0.002,
    momentum=0.9,
    loss="squared_error",
    predict="outputs",
    normalize=False,
  )
  lanes = recipe_lanes(recipe, vs.Runs.independent(1), len(inputs))
  run = jax.tree.map(lambda column: column[0], lanes)
  data = DeviceExamples(*map(jax.numpy.asarray, (inputs, targets)), None, None, None)
  trained = jax.jit(lambda run: train(recipe, data, run))(run)
  np.testing.assert_allclose(trained.variables["params"]["w"], TORCH, rtol=1e-3)
  assert not trained.diverged
