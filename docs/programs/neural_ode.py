"""A neural ODE of Diffrax in a recipe: from where a pendulum starts, its way."""

import sys

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import odeint

import vmapseeds as vs

TIMES = np.linspace(0, 4, 9)


class NeuralODE(eqx.Module):
  field: eqx.nn.MLP

  def __init__(self, key):
    self.field = eqx.nn.MLP(2, 2, 32, 1, jax.nn.softplus, key=key)

  def __call__(self, state):
    way = diffrax.diffeqsolve(
      diffrax.ODETerm(lambda t, y, args: self.field(y)),
      diffrax.Tsit5(),
      TIMES[0],
      TIMES[-1],
      dt0=0.1,
      y0=state,
      stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-5),
      saveat=diffrax.SaveAt(ts=jnp.asarray(TIMES)),
    )
    return way.ys


def pendulum(y, t):
  angle, speed = y
  return speed, -np.sin(angle) - 0.1 * speed


def error(outputs, ways):
  return ((outputs - ways) ** 2).mean((1, 2))


starts = np.random.default_rng(0).uniform(-1.5, 1.5, (384, 2)).astype(np.float32)
ways = np.stack([odeint(pendulum, y, TIMES) for y in starts]).astype(np.float32)
recipe = vs.Recipe(
  name="neural_ode",
  dataset=vs.Dataset(train=(starts[:256], ways[:256]), test=(starts[256:], ways[256:])),
  model=NeuralODE,
  loss=error,
  predict=lambda outputs: outputs,
  normalize=False,
  optimizer="adam",
  lr=1e-2,
  epochs=20,
  batch_size=32,
  version="1",  # Diffrax calls Python where a solution fails
)

if __name__ == "__main__":
  out = sys.argv[1] if len(sys.argv) > 1 else "results/neural_ode"
  results = vs.train(recipe, vs.Runs.sweep(lr=[3e-3, 1e-2], seeds=16), out)
  vs.report(out).print()
  vs.compare(out, where={"lr": 1e-2}, against={"lr": 3e-3}).print()
  print(results.losses.groupby("lr").mean(...))
  # The error of a way by learning rate, and which of the two is better.
