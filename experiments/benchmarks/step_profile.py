"""Where the time of a training step goes: ours beside PyTorch, one network on one core.

    python -m experiments.benchmarks.step_profile resnet_quarter
    taskset -c 0 python -m experiments.benchmarks.step_profile binary --precision bfloat16

Profiles of `jax.profiler` and `torch.profiler` name each operation; here they are added
up by what they are for. XLA merges batch norm, ReLU and what is around them into loops,
which are named after one of these, so that their rows tell less than their sum. A host
that is busy makes all rows longer.
"""

import collections
import dataclasses
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import jax
from jax.profiler import ProfileData
from torch.profiler import profile

from experiments.benchmarks import plain_torch
from experiments.benchmarks.common import markdown_row
from experiments.benchmarks.contenders import (
  WORKLOADS,
  Workload,
  our_way,
  start_ours,
  workload_on,
)
from vmapseeds.cli import one_line_errors
from vmapseeds.flags import metavar, parse_flags

KINDS = (
  "convolutions: forward",
  "convolutions: input gradients",
  "convolutions: kernel gradients",
  "convolutions: both gradients",
  "batch norm, ReLU, bias: forward",
  "batch norm, ReLU, bias: gradients",
  "pooling",
  "batches: order, augmentation, normalisation",
  "the rest: dense layers, loss, optimizer",
)
FORWARD, INPUTS, KERNELS, BOTH, LAYERS, OF_LAYERS, POOLING, BATCHES, REST = KINDS
# What a name of XLA's operations holds, in the order of asking: first what it is of.
OURS = (
  (r"\bkernel_gradient\b", KERNELS),
  (r"\binput_gradient\b", INPUTS),
  (r"\bforward\b", FORWARD),
  (r"pool", POOLING),
  (r"transpose\(jvp\(.*(BatchNorm|Conv|relu|/add)", OF_LAYERS),
  (r"jvp\(.*(BatchNorm|Conv|relu|/add)", LAYERS),
  (r"jvp\(", REST),
  (r"vmap\(\)|gather|sort|random|threefry", BATCHES),
)
PYTORCH = (
  (r"^aten::convolution_backward", BOTH),
  (r"^aten::(mkldnn_)?convolution", FORWARD),
  (r"max_pool|aten::fill_", POOLING),
  (r"batch_norm_backward|threshold_backward", OF_LAYERS),
  (r"batch_norm|clamp_min", LAYERS),
  (r"^aten::(index|where|flip|div|sub|rand|arange|constant_pad|copy_)", BATCHES),
)


@dataclasses.dataclass(frozen=True)
class Flags:
  """Profiles training steps, and prints the milliseconds of a step by kind."""

  workload: Annotated[Literal[*WORKLOADS], metavar("NAME")]
  """what to train: digits binary resnet_quarter resnet"""

  _: dataclasses.KW_ONLY

  precision: Literal["float32", "bfloat16"] = "float32"
  """what to compute in"""


def kind_of(name: str, rules: tuple[tuple[str, str], ...]) -> str:
  """Return the kind of the first rule that matches the name of an operation."""
  return next((kind for pattern, kind in rules if re.search(pattern, name)), REST)


def our_profile(workload: Workload) -> tuple[float, dict[str, float]]:
  """Return the milliseconds of a step without a profiler, and those of each kind."""
  way = our_way(workload, lanes=1, width=1, lowering="sequential", devices=1)
  with tempfile.TemporaryDirectory() as folder:
    # What each operation of the program is of stands in XLA's text of it.
    dump = f"--xla_dump_to={folder} --xla_dump_hlo_as_text"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {dump}"
    jax.config.update("jax_num_cpu_devices", 1)
    jax.config.update("jax_enable_compilation_cache", False)
    advance = start_ours(way, workload, workload.examples())
    steps = workload.steps * workload.epochs
    milliseconds = time_of_step(advance, steps)
    with jax.profiler.trace(folder):
      advance()
    origins = read_origins(Path(folder))
    by_kind: dict[str, float] = collections.Counter()
    for operation, nanoseconds in own_times(Path(folder)):
      kind = kind_of(origins.get(operation, ""), OURS)
      by_kind[kind] += nanoseconds / 1e6 / steps
  return milliseconds, by_kind


def read_origins(folder: Path) -> dict[str, str]:
  """Return by its name what part of the program each operation of XLA is of."""
  origins = {}
  for file in folder.glob("*cpu_after_optimizations.txt"):
    for line in file.read_text().splitlines():
      operation = re.match(r"\s*(?:ROOT )?%?([\w.-]+) = ", line)
      origin = re.search(r'op_name="([^"]*)"', line)
      if operation and origin:
        origins[operation[1]] = origin[1]
  return origins


def own_times(folder: Path) -> Iterator[tuple[str, float]]:
  """Yield operations and the nanoseconds that they took without those inside them."""
  (file,) = folder.rglob("*.xplane.pb")
  for plane in ProfileData.from_file(str(file)).planes:
    for line in plane.lines:
      # A call of oneDNN has its name after that of the operation.
      events = [
        (event.start_ns, -event.duration_ns, event.name.split("__")[0])
        for event in line.events
        if any(name == "hlo_op" for name, _ in event.stats)
      ]
      around: list[tuple[float, str]] = []
      for began, negative, operation in sorted(events):
        while around and around[-1][0] <= began:
          around.pop()
        if around:
          yield around[-1][1], negative
        yield operation, -negative
        around.append((began - negative, operation))


def profile_of_pytorch(workload: Workload) -> tuple[float, dict[str, float]]:
  """Return the same of PyTorch, with channels last."""
  advance = plain_torch.trainer(
    workload.recipe, workload.examples(), lanes=1, threads=1, channels_last=True
  )
  milliseconds = time_of_step(advance, workload.steps)
  with profile() as profiled:
    advance()
  by_kind: dict[str, float] = collections.Counter()
  for event in profiled.key_averages():
    kind = kind_of(event.key, PYTORCH)
    by_kind[kind] += event.self_cpu_time_total / 1e3 / workload.steps
  return milliseconds, by_kind


def time_of_step(advance: Callable[[], None], steps: int) -> float:
  """Return the least milliseconds of a step in five calls, after one to compile."""
  advance()
  times = []
  for _ in range(5):
    began = time.perf_counter()
    advance()
    times.append(time.perf_counter() - began)
  return 1e3 * min(times) / steps


def main(argv: Sequence[str] | None = None) -> None:
  prog = "python -m experiments.benchmarks.step_profile"
  flags = parse_flags(Flags, argv, prog=prog, description=__doc__)
  workload = workload_on(flags.workload, "cpu")
  recipe = workload.recipe.replace(precision=flags.precision)
  workload = dataclasses.replace(workload, recipe=recipe)
  of_ours, ours = our_profile(workload)
  of_pytorch, pytorch = profile_of_pytorch(workload)
  print(markdown_row(("ms a step", "ours", "PyTorch")))
  print("|---|---|---|")
  for kind in KINDS:
    print(markdown_row((kind, f"{ours[kind]:.2f}", f"{pytorch[kind]:.2f}")))
  sums = f"{sum(ours.values()):.2f}", f"{sum(pytorch.values()):.2f}"
  print(markdown_row(("sum", *sums)))
  print(markdown_row(("without a profiler", f"{of_ours:.2f}", f"{of_pytorch:.2f}")))


if __name__ == "__main__":
  with one_line_errors():
    main()
