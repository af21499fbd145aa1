"""A small transformer that sorts sequences of letters, as a task of one's own. Each
token is an example; padding is masked.
"""

import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

import vmapseeds as vs

LETTERS, LENGTH, STEPS = 8, 8, 100  # steps of a round
rng = np.random.default_rng(0)
# 200 sequences of 3 to 8 letters, which of their tokens are present, and in order.
tokens = rng.integers(0, LETTERS, (200, LENGTH))
present = np.arange(LENGTH) < rng.integers(3, LENGTH + 1, (200, 1))
ordered = np.sort(np.where(present, tokens, LETTERS), axis=1)


class Transformer(nn.Module):
  @nn.compact
  def __call__(self, tokens, present):
    x = nn.Embed(LETTERS, 32)(tokens) + nn.Embed(LENGTH, 32)(jnp.arange(LENGTH))
    mask = nn.make_attention_mask(present, present)
    x += nn.MultiHeadDotProductAttention(num_heads=2)(nn.LayerNorm()(x), mask=mask)
    x += nn.Dense(32)(nn.gelu(nn.Dense(64)(nn.LayerNorm()(x))))
    return nn.Dense(LETTERS)(x)


model = Transformer()


def start(test, run):
  params = model.init(run.key("init"), *test)
  return params, optax.adam(run["lr"]).init(params)


def advance(test, run, state, first, last):
  def step(i, state):
    params, opt_state = state
    keys = jax.random.split(jax.random.fold_in(run.key("data"), i))
    tokens = jax.random.randint(keys[0], (32, LENGTH), 0, LETTERS)
    present = jnp.arange(LENGTH) < jax.random.randint(keys[1], (32, 1), 3, LENGTH + 1)
    ordered = jnp.sort(jnp.where(present, tokens, LETTERS), axis=1)

    def loss(params):
      logits = model.apply(params, tokens, present)
      losses = optax.losses.softmax_cross_entropy_with_integer_labels(logits, ordered)
      return losses.mean(where=present)

    updates, opt_state = optax.adam(run["lr"]).update(jax.grad(loss)(params), opt_state)
    return optax.apply_updates(params, updates), opt_state

  return jax.lax.fori_loop(first * STEPS, last * STEPS, step, state)


def finish(test, run, state):
  return {"letters": model.apply(state[0], *test).argmax(-1)}


task = vs.Task(
  name="sorting",
  start=start,
  advance=advance,
  finish=finish,
  data=(tokens, present),
  rounds=3,
  sources=("init", "data"),
  values={"lr": 3e-3},
  outputs={
    "letters": vs.Output(
      ("sequence", "token"),
      "class",
      labels=ordered,
      num_classes=LETTERS,
      mask=present,
    )
  },
)

if __name__ == "__main__":
  out = sys.argv[1] if len(sys.argv) > 1 else "results/sorting"
  results = vs.train(task, vs.Runs.sweep(lr=[1e-3, 3e-3], seeds=16), out)
  wrong = results.letters != results.labels  # (run, example), without padding
  print(wrong.groupby(results.token).mean().mean("run"))
  vs.report(out).print()
  vs.compare(out, where={"lr": 3e-3}, against={"lr": 1e-3}).print()
  # Error rates by place in the sequence; token accuracy and its variance by learning
  # rate, and which of the two is better.
