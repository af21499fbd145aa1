"""What the benchmarks share: flags, the machine and its matrix-product peak, tables and
files.
"""

import dataclasses
import datetime
import functools
import importlib.metadata
import itertools
import json
import platform
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from rich.markup import escape
from rich.table import Table as RichTable

from experiments.benchmarks.contenders import elsewhere as elsewhere
from experiments.frame import Count, plain
from experiments.frame import print_table as show_whole
from vmapseeds import lanes
from vmapseeds.errors import check_at_least
from vmapseeds.flags import metavar, parse_flags
from vmapseeds.machine import cores
from vmapseeds.store.folders import check_writable

PACKAGES = ("vmapseeds", "jax", "flax", "torch", "numpy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
  """What every benchmark takes."""

  out: Annotated[Path, metavar("DIR")] = Path("results/benchmarks")
  """folder for the numbers (.json) and the tables (.md)"""

  rounds: Count = 5
  """timings of each contender, taken in turn; the median is shown"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeFlags(Flags):
  """What a benchmark of campaigns takes."""

  recipe: Annotated[str, metavar("RECIPE")] = "digits_cnn"
  """what to train: a name that `vmapseeds recipes` lists"""

  set: Annotated[tuple[str, ...], metavar("FIELD=VALUE", "none")] = ()
  """recipe fields to change"""


def arguments(
  target: type[Flags],
  doc: str,
  name: str,
  argv: Sequence[str] | None,
) -> tuple[Any, str]:
  """The flags of a benchmark, checked before any work, and the command that repeats it."""
  if argv is None:
    argv = sys.argv[1:]
  module = f"experiments.benchmarks.{name}"
  flags = parse_flags(target, argv, prog=f"python -m {module}", description=doc)
  check_counts(flags)
  check_writable(flags.out)
  return flags, shlex.join(["python", "-m", module, *argv])


def check_counts(flags: Any, least: int = 1) -> None:
  """Raise `UserError` unless each `Count` is a whole number of at least `least`."""
  for field in dataclasses.fields(flags):
    if field.type == Count:
      name = f"--{field.name.replace('_', '-')}"
      check_at_least(name, getattr(flags, field.name), least)


def in_turn(
  ways: Mapping[str, Callable[[], Callable[[], Any]]],
  rounds: int,
) -> dict[str, list[tuple[float, float]]]:
  """Time ways in turn, round after round, after a first round that compiles.

  Args:
    ways: by name, a function that prepares a call, untimed, and returns it.
    rounds: how many calls of each are timed.

  Returns:
    (seconds, processor seconds) of each call, by name.
  """
  times = {name: [] for name in ways}
  for number, name in itertools.product(range(rounds + 1), ways):
    call = ways[name]()
    began = time.perf_counter()
    processor_began = time.process_time()
    call()
    seconds = time.perf_counter() - began
    processor_seconds = time.process_time() - processor_began
    if number:
      times[name].append((seconds, processor_seconds))
  return times


def spread(values: Sequence[float], form: str) -> tuple[str, str]:
  """Return the median, and the least and the most, as a table shows them."""
  median, least, most = map(form.format, np.quantile(values, (0.5, 0, 1)))
  return median, f"{least} – {most}"


def machine() -> dict[str, Any]:
  """What numbers depend on: processor, devices, versions, date. Starts JAX."""
  devices = lanes.start_jax()
  return {
    "cpu": cpu_name(),
    "cores": cores(),
    "platform": devices[0].platform,
    "devices": len(devices),
    "device_kind": devices[0].device_kind,
    "versions": {"python": platform.python_version()}
    | {p: version(p) for p in PACKAGES},
    "date": datetime.date.today().isoformat(),
  }


def version(package: str) -> str | None:
  try:
    return importlib.metadata.version(package)
  except importlib.metadata.PackageNotFoundError:
    return None


def cpu_name() -> str:
  """The processor's name, as exactly as this system says it."""
  cpuinfo = Path("/proc/cpuinfo")
  if cpuinfo.exists():
    for line in cpuinfo.read_text().splitlines():
      if line.startswith("model name"):
        return line.split(":", 1)[1].strip()
  return platform.processor() or platform.machine()


def peak(precision: str) -> float:
  """The highest rate of square matrix products on all devices at once, in FLOP a
  second. Starts JAX.
  """
  devices = lanes.start_jax()
  size, calls = (2048, 1) if devices[0].platform == "cpu" else (8192, 20)
  sharding = NamedSharding(
    Mesh(np.array(devices), ("device",)), PartitionSpec("device")
  )
  factor = np.random.default_rng(0).standard_normal(
    (len(devices), size, size), np.float32
  )
  factor = jax.device_put(factor.astype(jax.numpy.dtype(precision)), sharding)
  # CPUs multiply bfloat16 fast with sums in float32 alone.
  product = jax.jit(
    functools.partial(jax.numpy.matmul, preferred_element_type=jax.numpy.float32)
  )

  def seconds():
    began = time.perf_counter()
    jax.block_until_ready([product(factor, factor) for _ in range(calls)])
    return time.perf_counter() - began

  seconds()
  return 2 * len(devices) * size**3 * calls / min(seconds() for _ in range(10))


class Table(NamedTuple):
  """A finished table whose cells are strings."""

  title: str
  head: Sequence[str]
  rows: Sequence[Sequence[str]]
  notes: Sequence[str] = ()


def markdown(table: Table) -> str:
  lines = [markdown_row(table.head), markdown_row(["---"] * len(table.head))]
  lines += [markdown_row(row) for row in table.rows]
  parts = [f"### {table.title}", "\n".join(lines), *table.notes]
  return "\n\n".join(parts) + "\n"


def markdown_row(cells: Sequence[str]) -> str:
  # A bar would end a cell.
  escaped = [cell.replace("|", "\\|") for cell in cells]
  return f"| {' | '.join(escaped)} |"


def conditions(where: dict[str, Any], command: str) -> str:
  """Machine, versions, date and command in a line of Markdown."""
  devices = ""
  if where["platform"] != "cpu":
    devices = f", {where['devices']} × {where['device_kind']}"
  versions = ", ".join(
    f"{name} {v or 'absent'}" for name, v in where["versions"].items()
  )
  return f"{where['cpu']}, {where['cores']} cores{devices}; {versions}; {where['date']}; `{command}`"


def print_table_of_results(table: Table) -> None:
  """Prints a table."""
  table_to_show = RichTable(
    title=escape(table.title),
    caption=escape("\n".join(table.notes)),
    caption_justify="left",
  )
  for i, head in enumerate(table.head):
    table_to_show.add_column(escape(head), justify="right" if i else "left")
  for row in table.rows:
    table_to_show.add_row(*map(escape, row))
  show_whole(table_to_show)


def write_results(
  flags: Flags,
  command: str,
  where: dict[str, Any],
  tables: Sequence[Table],
  numbers: Any,
) -> None:
  """Prints the last table, and writes `<name>.json` and `<name>.md` into the output
  folder.
  """
  print_table_of_results(tables[-1])
  flags.out.mkdir(parents=True, exist_ok=True)
  chosen = {}
  for field in dataclasses.fields(flags):
    value = getattr(flags, field.name)
    chosen[field.name] = str(value) if isinstance(value, Path) else value
  stem = flags.out / shlex.split(command)[2].rsplit(".", 1)[1]
  record = {"command": command, "flags": chosen, "machine": where, "numbers": numbers}
  stem.with_suffix(".json").write_text(
    json.dumps(plain(record), indent=1, allow_nan=False) + "\n", "utf-8"
  )
  text = "\n".join((conditions(where, command), "", *map(markdown, tables)))
  stem.with_suffix(".md").write_text(text, "utf-8")
  print(f"wrote {stem}.json and .md", file=sys.stderr)
