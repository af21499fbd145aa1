"""What XLA for CPUs never returns from: operations of several lanes at once on few cores.

    python -m experiments.reliability.hangs                (three minutes on two cores)

Each case is a process of its own, ended after `SECONDS`: six calls of an operation, of
matrices of several sizes, vmapped over lanes by plain JAX (`before`) and spread over
lanes by `vmapseeds.spread` (`after`). `--case vmap qr 2` runs one of them alone: a
minimal program to report.
"""

import argparse
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np

import vmapseeds as vs
from vmapseeds import lanes

SECONDS = 20
WIDTHS = (2, 8)
SIZES = ((4, 64), (64, 64), (4, 64), (64, 64), (64, 2), (64, 1))


def symmetric(a):
  return a @ a.T + 64 * jnp.eye(len(a))


OPERATIONS = {
  "qr": lambda a: jnp.linalg.qr(a)[0],
  "svd": lambda a: jnp.linalg.svd(a)[1],
  "eigh": lambda a: jnp.linalg.eigh(symmetric(a))[0],
  "cholesky": lambda a: jnp.linalg.cholesky(symmetric(a)),
  "solve": lambda a: jnp.linalg.solve(symmetric(a), a),
  "sort": lambda a: jnp.sort(a, axis=0),
  "top_k": lambda a: jax.lax.top_k(a.T, 1)[0],
  "fft": lambda a: jnp.fft.fft(a, axis=0).real,
  "product": lambda a: a @ a.T,
}  # fmt: skip


def run_case(how: str, operation: str, width: int) -> None:
  """Run one case."""

  def lane(_, key):
    keys = [jax.random.fold_in(key, i) for i in range(len(SIZES))]
    if operation == "orthogonal":  # initialisers, as of a policy network
      make = jax.nn.initializers.orthogonal()
      return [make(k, s) for k, s in zip(keys, SIZES, strict=True)]
    drawn = (jax.random.normal(k, s) for k, s in zip(keys, SIZES, strict=True))
    return [OPERATIONS[operation](a) for a in drawn]

  lanes.start_jax()
  keys = np.stack([jax.random.key_data(jax.random.key(i)) for i in range(2 * width)])
  wrapped = lambda shared, data: lane(shared, jax.random.wrap_key_data(data))  # noqa: E731
  if how == "vmap":
    jax.block_until_ready(jax.jit(jax.vmap(lambda k: wrapped(None, k)))(keys[:width]))
  else:
    list(vs.spread(wrapped, width=width)(0, keys))


def ends(how: str, operation: str, width: int) -> str:
  """Return whether a case ends in time."""
  command = [sys.executable, "-m", __spec__.name, "--case", how, operation, str(width)]
  try:
    done = subprocess.run(command, timeout=SECONDS, capture_output=True, check=False)
  except subprocess.TimeoutExpired:
    return "hangs"
  return "ends" if done.returncode == 0 else f"status {done.returncode}"


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument(
    "--case", nargs=3, metavar=("HOW", "OPERATION", "WIDTH"), help="run one case"
  )
  if case := parser.parse_args().case:
    return run_case(case[0], case[1], int(case[2]))
  print("| operation | lanes | before | after |\n|---|---|---|---|")
  for operation in ("orthogonal", *OPERATIONS):
    for width in WIDTHS:
      found = (ends(how, operation, width) for how in ("vmap", "spread"))
      print(f"| {operation} | {width} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
  main()
