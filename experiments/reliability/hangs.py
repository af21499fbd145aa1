"""What XLA for CPUs never returns from: operations of several lanes at once on few cores.

    python -m experiments.reliability.hangs           (what hangs takes its time)

A case is eight calls of an operation, of matrices of several sizes, vmapped over lanes by
plain JAX (`before`) or spread over lanes by `vmapseeds.spread` (`after`), where a device
has `width` lanes. Processes go through the cases and say which they begin. One that has
not taken a tenth of a second of processor time in `SECONDS` hangs: it is ended, and
another goes on with the next case. `--case after qr once 2 1` runs one case alone.
"""

import argparse
import itertools
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

SECONDS = 40
DEVICES = (1, 2)
LANES = 64  # of all calls of a case together, at least four
# OpenBLAS's own threads spin, which is slow on busy cores; and programs compile sooner.
QUICK = {"OPENBLAS_NUM_THREADS": "1", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
SIZES = tuple((96 + i, 96) for i in range(8))
# Once, in a loop, and of two matrices of a lane; each with how many lanes a device has.
WIDTHS = (1, 2, 4, 8, 16)
FORMS = {"once": WIDTHS, "looped": WIDTHS, "of two": (1, 8)}


def symmetric(a):
  return a @ a.T + 64 * jnp.eye(len(a))


def draw_orthogonal(a):
  """Draw as an initialiser of a policy network does."""
  return jax.nn.initializers.orthogonal()(jax.random.key(a.sum().astype(int)), a.shape)


def convolve(a):
  kernel = jnp.tile(a[:1, :1], (4, 1, 3, 3))
  return jax.lax.conv(jnp.ones((8, 1, 16, 16)), kernel, (1, 1), "SAME")


OPERATIONS = {
  "orthogonal": draw_orthogonal,
  "qr": lambda a: jnp.linalg.qr(a)[0],
  "svd": lambda a: jnp.linalg.svd(a)[1],
  "eigh": lambda a: jnp.linalg.eigh(symmetric(a))[0],
  "cholesky": lambda a: jnp.linalg.cholesky(symmetric(a)),
  "solve": lambda a: jnp.linalg.solve(symmetric(a), a),
  "sort": lambda a: jnp.sort(a, axis=0),
  "top_k": lambda a: jax.lax.top_k(a.T, 1)[0],
  "fft": lambda a: jnp.fft.fft2(jnp.tile(a, (4, 4))).real,
  "convolution": convolve,
  "product": lambda a: a @ a.T,
}
CASES = [
  (operation, form, width)
  for operation, (form, widths) in itertools.product(OPERATIONS, FORMS.items())
  for width in widths
]


def run_case(how, operation, form, width, devices) -> None:
  """Run one case; JAX has so many devices."""

  def all_sizes(seed):
    results = []
    for i, size in enumerate(SIZES):
      key = jax.random.fold_in(jax.random.key(seed), i)
      matrix = jax.random.normal(key, size)
      results.append(OPERATIONS[operation](matrix))
    return results

  def lane(_, seed):
    if form == "once":
      return all_sizes(seed)
    two = 2 * seed + jnp.arange(2)
    if form == "of two":
      return jax.vmap(all_sizes)(two)
    return jax.lax.map(all_sizes, two)

  seeds = np.arange(width * devices)
  calls = max(4, LANES // len(seeds))
  if how == "before":
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("lanes",))
    spec = jax.sharding.PartitionSpec("lanes")
    over_devices = jax.sharding.NamedSharding(mesh, spec)
    step = jax.jit(jax.vmap(lambda seed: lane(0, seed)))
    for _ in range(calls):
      seeds_there = jax.device_put(seeds, over_devices)
      jax.block_until_ready(step(seeds_there))
  else:
    import vmapseeds as vs

    step = vs.spread(lane, width=width, devices=jax.devices())
    for _ in range(calls):
      list(step(0, seeds))


def begin(how, devices, number) -> subprocess.Popen:
  """Start a process that runs the cases from `number` on."""
  arguments = ["--from", how, str(devices), str(number)]
  return subprocess.Popen(
    [sys.executable, "-m", __spec__.name, *arguments],
    env=os.environ | QUICK,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
  )


def processor_seconds(process) -> float:
  stat = Path(f"/proc/{process.pid}/stat").read_text()
  # The program's name, in brackets, may have spaces.
  _, _, after_name = stat.rpartition(")")
  fields = after_name.split()
  user_ticks = int(fields[11])
  system_ticks = int(fields[12])
  return (user_ticks + system_ticks) / os.sysconf("SC_CLK_TCK")


def watch_process(process) -> tuple[int, str]:
  """Wait for a process that goes through cases. Return the last that it began, and how
  it ended.
  """
  assert process.stdout is not None
  os.set_blocking(process.stdout.fileno(), False)
  output = b""
  taken = 0.0
  since = time.monotonic()
  while process.poll() is None:
    time.sleep(0.2)
    output += process.stdout.read() or b""
    if processor_seconds(process) > taken + 0.1:
      taken = processor_seconds(process)
      since = time.monotonic()
    if time.monotonic() > since + SECONDS:
      process.kill()
      process.wait()
      return int(output.split()[-1]), "hangs"
  output += process.stdout.read() or b""
  number = int(output.split()[-1])
  if process.returncode:
    return number, f"status {process.returncode}"
  return number, "ends"


def search(how, devices) -> dict[int, str]:
  """Return how each case ended that did not end well."""
  failures = {}
  number = 0
  while number < len(CASES):
    number, ended = watch_process(begin(how, devices, number))
    if ended != "ends":
      failures[number] = ended
      print(f"{how}, {devices} device(s), {CASES[number]}: {ended}", file=sys.stderr)
    number += 1
  return failures


def failures_text(failures: dict[int, str], operation: str, form: str) -> str:
  """Return how the cases of an operation ended that did not end well, with their
  widths.
  """
  texts = []
  for width in FORMS[form]:
    number = CASES.index((operation, form, width))
    if number in failures:
      texts.append(f"{failures[number]} at {width}")
  return ", ".join(texts) or "ends"


def failures_table(failures) -> str:
  """Return a table of searches {(how, devices): what `search` returns}."""
  columns = list(failures)
  titles = ["operation", "form"]
  for how, devices in columns:
    unit = "device" if devices == 1 else "devices"
    titles.append(f"{how}, {devices} {unit}")
  lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
  for operation, form in itertools.product(OPERATIONS, FORMS):
    cells = [failures_text(failures[column], operation, form) for column in columns]
    lines.append(f"| {operation} | {form} | {' | '.join(cells)} |")
  return "\n".join(lines)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument(
    "--case",
    nargs=5,
    metavar=("HOW", "OPERATION", "FORM", "WIDTH", "DEVICES"),
  )
  parser.add_argument("--from", nargs=3, dest="start", help=argparse.SUPPRESS)
  parser.add_argument("--only", choices=("before", "after"), help="by default both")
  args = parser.parse_args()
  if args.case:
    how, operation, form, width, devices = args.case
    jax.config.update("jax_num_cpu_devices", int(devices))
    return run_case(how, operation, form, int(width), int(devices))
  if args.start:
    how = args.start[0]
    devices = int(args.start[1])
    number = int(args.start[2])
    jax.config.update("jax_num_cpu_devices", devices)
    for i, (operation, form, width) in enumerate(CASES[number:], number):
      print(i, flush=True)
      run_case(how, operation, form, width, devices)
    return None
  hows = (args.only,) if args.only else ("before", "after")
  columns = [*itertools.product(hows, DEVICES)]
  with ThreadPoolExecutor() as pool:  # what hangs takes no processor time
    results = pool.map(lambda column: search(*column), columns)
    failures = dict(zip(columns, results, strict=True))
  print(
    f"jax {jax.__version__}, Python {sys.version.split()[0]}\n\n{failures_table(failures)}"
  )


if __name__ == "__main__":
  main()
