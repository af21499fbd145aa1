"""Reinforcement learning: proximal policy optimisation (Schulman et al. 2017) learns to
balance a pole on a cart, in an environment of one's own.
"""

import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.nn.initializers import orthogonal

import vmapseeds as vs

CARTS, STEPS, MOST = 8, 64, 200  # steps of an update, and of an episode that counts
EPOCHS, BATCH, DISCOUNT, TRACE = 4, 128, 0.99, 0.95


class Agent(nn.Module):
  @nn.compact
  def __call__(self, x):
    def network(outputs, scale):
      hidden = x
      for _ in range(2):
        hidden = nn.tanh(nn.Dense(64, kernel_init=orthogonal(2**0.5))(hidden))
      return nn.Dense(outputs, kernel_init=orthogonal(scale))(hidden)

    return nn.log_softmax(network(2, 0.01)), network(1, 1.0)[..., 0]


agent = Agent()  # log probabilities of the two actions, and the value


def place(key, carts):
  return jax.random.uniform(key, (carts, 4), minval=-0.05, maxval=0.05)


def push(carts, actions):
  """0.02 s of the dynamics of Barto, Sutton and Anderson (1983), and who stands."""
  _, speed, angle, turning = carts.T
  sin, cos = jnp.sin(angle), jnp.cos(angle)
  pushed = (20 * actions - 10 + 0.05 * turning**2 * sin) / 1.1
  bending = (9.8 * sin - cos * pushed) / (2 / 3 - 0.05 * cos**2 / 1.1)
  change = [speed, pushed - 0.05 * bending * cos / 1.1, turning, bending]
  carts = carts + 0.02 * jnp.stack(change, 1)
  return carts, (abs(carts[:, 0]) <= 2.4) & (abs(carts[:, 2]) <= jnp.pi / 15)


def start(data, run):
  params = agent.init(run.key("init"), jnp.zeros(4))
  return params, optax.adam(run["lr"]).init(params), place(run.key("play"), CARTS)


def advance(data, run, state, first, last):
  def loss(params, carts, actions, old_log_p, advantages, targets):
    log_p, values = agent.apply(params, carts)
    ratio = jnp.exp(log_p[jnp.arange(BATCH), actions] - old_log_p)
    clipped = jnp.clip(ratio, 1 - run["clip"], 1 + run["clip"])
    advantages = (advantages - advantages.mean()) / advantages.std()
    gain = jnp.minimum(ratio * advantages, clipped * advantages)
    return (0.5 * (values - targets) ** 2 - gain).mean()

  def update(i, state):
    params, opt_state, carts = state
    play_key, order_key = jax.random.split(jax.random.fold_in(run.key("play"), i))

    def play(carts, key):
      action_key, place_key = jax.random.split(key)
      log_p, values = agent.apply(params, carts)
      actions = jax.random.categorical(action_key, log_p)
      moved, stands = push(carts, actions)
      moved = jnp.where(stands[:, None], moved, place(place_key, CARTS))
      return moved, (carts, actions, log_p[jnp.arange(CARTS), actions], values, stands)

    def back(later, now):  # generalised advantage estimation, a reward of 1 each step
      (advantage, next_value), (value, stands) = later, now
      error = 1 + DISCOUNT * stands * next_value - value
      advantage = error + DISCOUNT * TRACE * stands * advantage
      return (advantage, value), advantage

    def step(state, rows):
      gradient = jax.grad(loss)(state[0], *(a[rows] for a in seen))
      updates, opt_state = optax.adam(run["lr"]).update(gradient, state[1])
      return (optax.apply_updates(state[0], updates), opt_state), None

    carts, played = jax.lax.scan(play, carts, jax.random.split(play_key, STEPS))
    ended = jnp.zeros(CARTS), agent.apply(params, carts)[1]
    advantages = jax.lax.scan(back, ended, played[3:], reverse=True)[1]
    seen = (*played[:3], advantages, advantages + played[3])
    seen = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), seen)
    orders = jax.vmap(lambda key: jax.random.permutation(key, CARTS * STEPS))
    rows = orders(jax.random.split(order_key, EPOCHS)).reshape(-1, BATCH)
    return *jax.lax.scan(step, (params, opt_state), rows)[0], carts

  return jax.lax.fori_loop(first, last, update, state)


def finish(data, run, state):
  """The mean length of episodes from the same places in all runs, actions drawn."""

  def play(now, key):
    carts, standing = now
    actions = jax.random.categorical(key, agent.apply(state[0], carts)[0])
    carts, stands = push(carts, actions)
    return (carts, standing & stands), standing.mean()

  now = place(jax.random.key(1), 64), jnp.ones(64, bool)
  shares = jax.lax.scan(play, now, jax.random.split(jax.random.key(0), MOST))[1]
  return {"returns": shares.sum()}


task = vs.Task(
  name="ppo",
  start=start,
  advance=advance,
  finish=finish,
  rounds=40,
  sources=("init", "play"),
  values={"lr": 2.5e-3, "clip": 0.2},
  outputs={"returns": vs.Output(role="score", unit="steps")},
)

if __name__ == "__main__":
  out = sys.argv[1] if len(sys.argv) > 1 else "results/ppo"
  vs.train(task, vs.Runs.sweep(clip=[0.2, 100.0], seeds=16), out)
  vs.report(out).print()
  vs.compare(out, where={"clip": 0.2}, against={"clip": 100.0}).print()
  # How long the pole stands: with clipping longer, and much more alike.
