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
EPOCHS, BATCH, DISCOUNT, TRACE, ENTROPY = 4, 128, 0.99, 0.95, 0.01


class Agent(nn.Module):
  @nn.compact
  def __call__(self, x):
    def network(outputs, scale):
      hidden = x
      for _ in range(2):
        hidden = nn.tanh(nn.Dense(64, kernel_init=orthogonal(2**0.5))(hidden))
      return nn.Dense(outputs, kernel_init=orthogonal(scale))(hidden)

    return network(2, 0.01), network(1, 1.0)[..., 0]  # logits of actions, value


agent = Agent()


def place(key, carts):
  return jax.random.uniform(key, (carts, 4), minval=-0.05, maxval=0.05)


def push(carts, actions):
  """0.02 s of the dynamics of Barto, Sutton and Anderson (1983), and who fell."""
  x, speed, angle, turning = carts.T
  sin, cos = jnp.sin(angle), jnp.cos(angle)
  pushed = (20 * actions - 10 + 0.05 * turning**2 * sin) / 1.1
  bending = (9.8 * sin - cos * pushed) / (2 / 3 - 0.05 * cos**2 / 1.1)
  change = [speed, pushed - 0.05 * bending * cos / 1.1, turning, bending]
  carts = carts + 0.02 * jnp.stack(change, 1)
  return carts, (abs(carts[:, 0]) > 2.4) | (abs(carts[:, 2]) > 0.2095)


def start(data, run):
  params = agent.init(run.key("init"), jnp.zeros(4))
  return params, optimizer(run).init(params), place(run.key("play"), CARTS)


def optimizer(run):
  return optax.chain(optax.clip_by_global_norm(0.5), optax.adam(run["lr"]))


def advance(data, run, state, first, last):
  def play(params, carts, key):
    action_key, place_key = jax.random.split(key)
    logits, values = agent.apply(params, carts)
    actions = jax.random.categorical(action_key, logits)
    moved, fell = push(carts, actions)
    moved = jnp.where(fell[:, None], place(place_key, CARTS), moved)
    log_p = jnp.take_along_axis(nn.log_softmax(logits), actions[:, None], 1)[:, 0]
    return moved, (carts, actions, log_p, values, fell)

  def loss(params, carts, actions, old_log_p, advantages, targets):
    logits, values = agent.apply(params, carts)
    log_p = nn.log_softmax(logits)
    ratio = jnp.exp(log_p[jnp.arange(BATCH), actions] - old_log_p)
    clipped = jnp.clip(ratio, 1 - run["clip"], 1 + run["clip"])
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    gain = jnp.minimum(ratio * advantages, clipped * advantages)
    entropy = -(jnp.exp(log_p) * log_p).sum(1)
    return (0.5 * (values - targets) ** 2 - gain - ENTROPY * entropy).mean()

  def update(i, state):
    params, opt_state, carts = state
    play_key, order_key = jax.random.split(jax.random.fold_in(run.key("play"), i))
    keys = jax.random.split(play_key, STEPS)
    carts, played = jax.lax.scan(lambda c, key: play(params, c, key), carts, keys)
    values, fell = played[3:]

    def back(later, now):  # generalised advantage estimation
      advantage, next_value = later
      value, stands = now
      error = 1 + DISCOUNT * stands * next_value - value  # a reward of 1 for each step
      advantage = error + DISCOUNT * TRACE * stands * advantage
      return (advantage, value), advantage

    ended = jnp.zeros(CARTS), agent.apply(params, carts)[1]
    advantages = jax.lax.scan(back, ended, (values, 1.0 - fell), reverse=True)[1]
    seen = (*played[:3], advantages, advantages + values)
    seen = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), seen)

    def step(state, rows):
      gradient = jax.grad(loss)(state[0], *(a[rows] for a in seen))
      updates, opt_state = optimizer(run).update(gradient, state[1])
      return (optax.apply_updates(state[0], updates), opt_state), None

    order = jax.vmap(lambda key: jax.random.permutation(key, CARTS * STEPS))
    rows = order(jax.random.split(order_key, EPOCHS)).reshape(-1, BATCH)
    return *jax.lax.scan(step, (params, opt_state), rows)[0], carts

  return jax.lax.fori_loop(first, last, update, state)


def finish(data, run, state):
  """The mean length of episodes whose actions are drawn, from the same places in all
  runs.
  """

  def play(state, key):
    carts, stand = state
    actions = jax.random.categorical(key, agent.apply(params, carts)[0])
    carts, fell = push(carts, actions)
    return (carts, stand & ~fell), stand.mean()

  params, keys = state[0], jax.random.split(jax.random.key(0), MOST)
  carts = place(jax.random.key(1), 64)
  stands = jax.lax.scan(play, (carts, jnp.ones(64, bool)), keys)[1]
  return {"returns": stands.sum()}


task = vs.Task(
  name="ppo",
  start=start,
  advance=advance,
  finish=finish,
  rounds=60,
  sources=("init", "play"),
  values={"lr": 2.5e-3, "clip": 0.2},
  outputs={"returns": vs.Output(role="score", unit="steps")},
)

if __name__ == "__main__":
  out = sys.argv[1] if len(sys.argv) > 1 else "results/ppo"
  vs.train(task, vs.Runs.sweep(clip=[0.2, 100.0], seeds=32), out)
  vs.report(out)
  vs.compare(out, where={"clip": 0.2}, against={"clip": 100.0})
  # How long the pole stands, with PPO's clipping and without.
