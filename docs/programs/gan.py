"""A generative adversarial network of one number, as a task of one's own: two networks
and two optimizers in one state.
"""

import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.stats import norm

import vmapseeds as vs

STEPS, BATCH = 200, 64  # steps of a round
# Quantiles of a normal distribution: mean 4, standard deviation 1.25.
truth = norm.ppf((np.arange(512) + 0.5) / 512, 4, 1.25).astype(np.float32)


class Net(nn.Module):
  @nn.compact
  def __call__(self, x):
    return nn.Dense(1)(nn.relu(nn.Dense(16)(x)))


net, sides = Net(), ("generator", "critic")


def optimizers(run):
  return {side: optax.adam(run[side], b1=0.5) for side in sides}


def start(truth, run):
  keys = dict(zip(sides, jax.random.split(run.key("init")), strict=True))
  params = {side: net.init(keys[side], jnp.zeros((1, 1))) for side in sides}
  return params, {s: opt.init(params[s]) for s, opt in optimizers(run).items()}


def advance(truth, run, state, first, last):
  def step(i, state):
    params, opt_states = state
    real_key, noise_key = jax.random.split(jax.random.fold_in(run.key("order"), i))
    real = jax.random.choice(real_key, truth, (BATCH, 1))
    noise = jax.random.normal(noise_key, (BATCH, 1))

    def losses(generator, critic):
      fake = net.apply(generator, noise)
      said_real, said_fake = net.apply(critic, real), net.apply(critic, fake)
      seen = jax.nn.softplus(-said_real) + jax.nn.softplus(said_fake)
      return jax.nn.softplus(-said_fake).mean(), seen.mean()

    of = params["generator"], params["critic"]
    gradients = {
      "generator": jax.grad(lambda g: losses(g, of[1])[0])(of[0]),
      "critic": jax.grad(lambda c: losses(of[0], c)[1])(of[1]),
    }
    new, new_states = {}, {}
    for side, optimizer in optimizers(run).items():
      updates, new_states[side] = optimizer.update(gradients[side], opt_states[side])
      new[side] = optax.apply_updates(params[side], updates)
    return new, new_states

  return jax.lax.fori_loop(first * STEPS, last * STEPS, step, state)


def finish(truth, run, state):
  noise = jax.random.normal(jax.random.key(0), (len(truth), 1))  # the same for all runs
  samples = jnp.sort(net.apply(state[0]["generator"], noise)[:, 0])
  return {"samples": samples, "distance": jnp.abs(samples - truth).mean()}


task = vs.Task(
  name="gan",
  start=start,
  advance=advance,
  finish=finish,
  data=truth,
  rounds=10,
  values={"generator": 2e-3, "critic": 2e-3},
  outputs={
    "distance": vs.Output(role="score", unit="Wasserstein-1", higher_is_better=False),
    "samples": vs.Output(("sample",)),
  },
)

if __name__ == "__main__":
  out = sys.argv[1] if len(sys.argv) > 1 else "results/gan"
  vs.train(task, vs.Runs.sweep(critic=[2e-3, 6e-3], seeds=64), out)
  vs.report(out).print()
  vs.compare(out, where={"critic": 6e-3}, against={"critic": 2e-3}).print()
  # The distance to the true distribution at two learning rates of the critic, and which
  # is better: lower is.
