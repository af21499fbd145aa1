"""How the cost of a campaign grows with the number of its blocks.

    python -m experiments.reliability.growth                            (10 minutes on two CPU cores)

Blocks of a few runs are claimed and written as campaigns do, but their outputs are drawn
at random instead of trained. So what is measured is what a block costs beside its
training. Each command runs in a process of its own. Seconds are without imports; memory
is the process's most, with JAX. The last row has the exponents of a power law through the
smallest and the largest number. With `--store s3` the folder is in a bucket of moto, on
this machine, and requests are counted as they are sent.
"""

import contextlib
import dataclasses
import functools
import json
import logging
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

import fsspec
import jax
import jax.numpy as jnp
import numpy as np

import vmapseeds as vs
from vmapseeds import cli, stats
from vmapseeds.campaign import block_training
from vmapseeds.errors import check_at_least
from vmapseeds.flags import metavar, parse_flags
from vmapseeds.store.files import as_folder, list_file_names
from vmapseeds.store.results import Results

EXAMPLES, CLASSES = 100, 10
LABELS = np.arange(EXAMPLES) % CLASSES
Outputs = dict[str, np.ndarray]
COMMANDS = ("train", "open", "report", "verify", "resume", "extend", "merge")
SHOWN = {
  "disk": {
    "busy": "Seconds of a processor",
    "elapsed": "Seconds",
    "memory": "MB of memory at most",
  },
  "s3": {"requests": "Requests"},
}


class Cost(NamedTuple):
  """What a command costs."""

  busy: float  # seconds of a processor
  elapsed: float  # seconds
  requests: int
  memory: float  # MB at most


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
  blocks: Annotated[tuple[int, ...], metavar("N")] = (300, 1000, 3000)
  """numbers of blocks"""

  block_runs: Annotated[int, metavar("N")] = 4
  """runs of a block"""

  store: Literal["disk", "s3"] = "disk"
  """where the folder is; s3 is a server on this machine"""


def start(data, run):
  return jax.random.uniform(run.key("init"), (EXAMPLES,))


def advance(data, run, state, first, last):
  return state


def finish_run(data, run, state):
  wrong = (state < 0.1).astype(jnp.int32)
  predictions = ((data["labels"] + wrong) % CLASSES).astype(jnp.int8)
  return {"test/predictions": predictions}


guesses = vs.Task(
  name="guesses",
  start=start,
  advance=advance,
  finish=finish_run,
  data={"labels": LABELS},
  rounds=1,
  sources=("init",),
  outputs={
    "test/predictions": vs.Output(
      ("example",),
      role="class",
      labels=LABELS,
      num_classes=CLASSES,
    )
  },
)


def command(name: str, folder: str, runs: int, block_runs: int) -> None:
  """Run one command on the folder."""
  out = f"{folder}/r"
  how = dict(seed_batch=block_runs, lane_width=1, lowering="sequential", progress=False)
  match name:
    case "train" | "resume" | "extend":
      outputs = functools.cache(outputs_of)
      block_training.run_lanes = lambda *_: outputs(out, block_runs)
      count = runs
      if name == "extend":
        count += block_runs
      vs.train(guesses, vs.Runs.independent(count), out, **how)
    case "open":
      vs.open_results(out).accuracy.values.mean()
    case "report":
      vs.tally(out)
      vs.open_results(out).accuracy.load()
    case "verify":
      assert not vs.verify(out).problems
    case "merge":
      vs.merge([out], f"{folder}/merged", progress=False)


def outputs_of(out: str, runs: int) -> tuple[Outputs, dict, Outputs]:
  """Return outputs, record and counts for a block of the folder, drawn at random."""
  results = Results(out)
  wrong = np.random.default_rng(0).random((runs, EXAMPLES)) < 0.1
  predictions = (LABELS + wrong).astype(np.int8) % CLASSES
  outputs = {
    "diverged": np.zeros(runs, bool),
    "test/predictions": predictions,
    "test/accuracy": 1 - wrong.mean(1),
    "test/half_errors": np.stack([wrong[:, h::2].sum(1) for h in (0, 1)], 1),
  }
  tallies = stats.tally(predictions, LABELS, CLASSES)
  counts = {
    "test/votes": tallies.votes[None],
    "test/counted": np.array([runs]),
  }
  record = {name: results.root.get(name) for name in ("recipe", "identity", "versions")}
  return outputs, record, counts


def measure_command(name: str, folder: str, runs: int, block_runs: int) -> Cost:
  """Return what a command costs in a process of its own, after imports."""
  code = (
    "from experiments.reliability import growth\n"
    f"growth.print_cost({name!r}, {folder!r}, {runs}, {block_runs})"
  )
  output = subprocess.run(
    [sys.executable, "-c", code],
    check=True,
    stdout=subprocess.PIPE,
    text=True,
  ).stdout
  return Cost(**json.loads(output.splitlines()[-1]))


def print_cost(name: str, *given) -> None:
  """Run one command, and print its `Cost` as JSON."""
  jax.devices()
  requests = 0
  with contextlib.suppress(ImportError):
    from aiobotocore.httpsession import AIOHTTPSession

    send = AIOHTTPSession.send

    def counted(*args):
      nonlocal requests
      requests += 1
      return send(*args)

    AIOHTTPSession.send = counted
  began = time.perf_counter()
  busy = time.process_time()
  command(name, *given)
  busy = time.process_time() - busy
  elapsed = time.perf_counter() - began
  memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
  print(json.dumps(Cost(busy, elapsed, requests, memory)._asdict()))


@contextlib.contextmanager
def store(kind: str) -> Iterator[str]:
  """Return a new folder, on the disk or in a bucket of a server on this machine."""
  if kind == "disk":
    with tempfile.TemporaryDirectory() as folder:
      yield folder
    return
  from moto.server import ThreadedMotoServer

  server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
  server.start()
  host, port = server.get_host_and_port()
  os.environ |= {
    "AWS_ENDPOINT_URL": f"http://{host}:{port}",
    "AWS_ACCESS_KEY_ID": "a",
    "AWS_SECRET_ACCESS_KEY": "b",
    "AWS_DEFAULT_REGION": "us-east-1",
  }
  logging.getLogger("werkzeug").setLevel(logging.ERROR)
  fsspec.get_filesystem_class("s3").clear_instance_cache()
  fsspec.filesystem("s3").makedirs("growth", exist_ok=True)
  try:
    yield f"s3://growth/{port}"
  finally:
    server.stop()


def exponent(first: tuple[float, float], last: tuple[float, float]) -> float:
  """Return the exponent of the power law through two points (blocks, seconds).

  >>> exponent((10, 3), (1000, 300))
  1.0
  """
  return math.log(last[1] / first[1]) / math.log(last[0] / first[0])


def main(argv: list[str] | None = None) -> None:
  """Print a table for each of what a command costs."""
  with cli.one_line_errors():
    flags = parse_flags(Flags, argv, prog="python -m experiments.reliability.growth")
    for count in (*flags.blocks, flags.block_runs):
      check_at_least("a number of blocks or runs", count, 1)
  table: dict[int, dict[str, Cost]] = {}
  objects: dict[int, int] = {}
  for blocks in flags.blocks:
    table[blocks], objects[blocks] = measure_folder(flags, blocks)
  for field, what in SHOWN[flags.store].items():
    costs = {}
    for blocks, by_command in table.items():
      costs[blocks] = [getattr(by_command[name], field) for name in COMMANDS]
    print_costs(what, costs, objects, flags.block_runs)


def measure_folder(flags: Flags, blocks: int) -> tuple[dict[str, Cost], int]:
  """Return what each command costs in a new folder of so many blocks, and how many
  objects the folder has after the training.
  """
  runs = blocks * flags.block_runs
  costs = {}
  objects = 0
  with store(flags.store) as folder:
    for name in COMMANDS:
      costs[name] = measure_command(name, folder, runs, flags.block_runs)
      print(blocks, name, costs[name], file=sys.stderr, flush=True)
      if name == "train":
        objects = len(list_file_names(as_folder(f"{folder}/r")))
  return costs, objects


def format_cost(value: float) -> str:
  if value < 100:
    return f"{value:,.2f}"
  return f"{value:,.0f}"


def print_costs(
  what: str,
  costs: dict[int, list[float]],
  objects: dict[int, int],
  block_runs: int,
) -> None:
  """Print a table of one cost: a row for each number of blocks, a column a command."""
  columns = ("blocks", "runs", "files", *COMMANDS)
  print(f"\n{what}\n\n| " + " | ".join(columns) + " |")
  print("|" + "---|" * len(columns))
  for blocks, row in costs.items():
    cells = [format_cost(value) for value in row]
    runs = blocks * block_runs
    print(f"| {blocks:,} | {runs:,} | {objects[blocks]:,} | {' | '.join(cells)} |")
  if len(costs) > 1:
    few = min(costs)
    many = max(costs)
    exponents = [
      f"{exponent((few, low), (many, high)):.2f}"
      for low, high in zip(costs[few], costs[many], strict=True)
    ]
    print(f"| exponent | | | {' | '.join(exponents)} |")


if __name__ == "__main__":
  main()
