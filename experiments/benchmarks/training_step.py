"""The race: training steps of many networks by vmapseeds and by what a user would pick
instead.

    python -m experiments.benchmarks.training_step                                    (about an hour on two CPU cores)
    python -m experiments.benchmarks.training_step --workloads digits --rounds 3 --no-compile              (3 minutes)

    ours  vmapseeds on all devices: the lowerings and lane widths that a short
      measurement would choose from
    a     plain jax.vmap of the Flax network, steps in a scan or one jitted call each
    b     one jitted Flax network at a time, on all cores, or in one process for each core
    c     PyTorch, one network at a time, on all cores
    d     PyTorch, one network at a time in one process for each core
    e     torch.func.vmap of stacked networks

Every contender trains the same networks, batches, optimizer and augmentation, in
processes of its own, which are timed in turn. One that is over five times slower than
the fastest so far on its side (ours, or a to e) is timed once. On a GPU all compute in
bfloat16, on a CPU in float32; `--precisions float32 bfloat16` races both, PyTorch's
bfloat16 by its autocast.
"""

import dataclasses
import itertools
from typing import Annotated, Literal

from experiments.benchmarks import common
from experiments.benchmarks.common import Table
from experiments.benchmarks.contenders import (
  LIMIT,
  SLOW,
  WORKLOADS,
  Contender,
  Way,
  Workload,
  flops,
  our_way,
  race,
  significant,
  workload_on,
)
from experiments.benchmarks.contenders import plain_jax as start_jax
from experiments.benchmarks.contenders import plain_torch as start_torch
from vmapseeds import convolutions
from vmapseeds.cli import one_line_errors
from vmapseeds.errors import UserError, check_at_least
from vmapseeds.flags import metavar
from vmapseeds.training.objects import name_of

KINDS = ("ours", "a", "b", "c", "d", "e")
STARTED = ("ours", "d", "b", "c", "e", "a")
HEAD = (
  "contender",
  "model-steps/s",
  "least – most",
  "µs a model-step",
  "ours ÷ it",
  "of peak",
  "ready, s",
  "memory, MiB",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags(common.Flags):
  workloads: Annotated[tuple[Literal[*WORKLOADS], ...], metavar("NAME", "all")] = tuple(
    WORKLOADS
  )
  """what to train: digits binary resnet_quarter resnet"""

  steps: Annotated[int | None, metavar("N", "by workload")] = None
  """steps of an epoch; at least one epoch is timed"""

  only: Annotated[tuple[Literal[*KINDS], ...], metavar("KIND", "all")] = KINDS
  """which contenders: ours a b c d e"""

  skip: Annotated[tuple[Literal[*KINDS], ...], metavar("KIND", "none")] = ()
  """which contenders to leave out"""

  lowerings: Annotated[
    tuple[Literal[*convolutions.LOWERINGS], ...], metavar("NAME", "by device")
  ] = ()
  """lowerings of ours: by default sequential im2col on a CPU, im2col grouped elsewhere"""

  widths: Annotated[tuple[int, ...], metavar("W", "by device")] = ()
  """lane widths of ours, and on a GPU of the plain vmaps: by default 1 on a CPU, 16 64 256 elsewhere"""

  precisions: Annotated[
    tuple[Literal["float32", "bfloat16"], ...], metavar("NAME", "by device")
  ] = ()
  """what to compute in: float32 by default on a CPU, bfloat16 elsewhere"""

  limit: Annotated[float, metavar("SECONDS")] = LIMIT
  """a contender whose first epoch takes longer is given up"""

  no_compile: bool = False
  """leave out torch.compile, which needs a C++ compiler and is slow to be ready"""


def ways_to_train(workload: Workload, where: dict, flags: Flags) -> list[Way]:
  """All contenders in the order of their start: ours, then the others, those expected
  to be fastest first.
  """
  cpu = where["platform"] == "cpu"
  cores = where["cores"]
  devices = where["devices"]
  if cpu:
    widths = flags.widths or (1,)
    lowerings = flags.lowerings or ("sequential", "im2col")
    stacks = (workload.stacked,)
  else:
    widths = flags.widths or (16, 64, 256)
    lowerings = flags.lowerings or ("im2col", "grouped")
    stacks = widths
  every_way = [
    our_way(
      workload,
      lanes=max(workload.lanes, width * devices),
      width=width,
      lowering=lowering,
      devices=devices,
    )
    for lowering, width in itertools.product(lowerings, widths)
  ]
  for scan, how in ((True, "steps in a scan"), (False, "a call a step")):
    every_way += [
      Way("a", f"jax.vmap, {n} lanes, {how}", start_jax, {"scan": scan}, lanes=n)
      for n in stacks
    ]
    every_way.append(Way("b", f"JAX, one at a time, {how}", start_jax, {"scan": scan}))
    if cpu and cores > 1:
      label = f"JAX, one at a time in {cores} processes, {how}"
      every_way.append(
        Way("b", label, start_jax, {"scan": scan}, processes=cores, pinned=True)
      )
  modes: dict[str, str | None] = {"": None}
  if not flags.no_compile:
    modes[", torch.compile"] = "default"
    if not cpu:
      modes[", torch.compile with CUDA graphs"] = "reduce-overhead"
  for channels_last, (compiled, mode) in itertools.product(
    (False, True), modes.items()
  ):
    options = {"channels_last": channels_last, "mode": mode}
    how = f", channels_last{compiled}" if channels_last else compiled
    every_way.append(
      Way(
        "c",
        f"PyTorch, one at a time{how}",
        start_torch,
        options | {"threads": cores},
      )
    )
    if cores > 1:
      label = f"PyTorch in {cores} processes{how}"
      every_way.append(
        Way("d", label, start_torch, options | {"threads": 1}, processes=cores)
      )
  every_way += [
    Way("e", f"torch.func.vmap, {n} lanes", start_torch, {"threads": cores}, lanes=n)
    for n in stacks
  ]
  chosen = [
    dataclasses.replace(way, label=way.label + label, precision=precision)
    for way in every_way
    if way.kind in flags.only and way.kind not in flags.skip
    for precision, label in labels(workload, flags).items()
  ]
  return sorted(chosen, key=lambda way: STARTED.index(way.kind))


def labels(workload: Workload, flags: Flags) -> dict[str, str]:
  """The precisions that are raced, and what labels say of them."""
  raced = flags.precisions or (workload.recipe.precision,)
  if len(raced) == 1:
    return {raced[0]: ""}
  return {name: f", {name}" for name in raced}


def earlier_record(names: tuple[str, ...]) -> tuple[dict, dict[str, int]]:
  """The machine and the operations of each workload's step. Starts JAX."""
  return common.machine(), {name: flops(WORKLOADS[name]) for name in names}


def fastest_contender(
  contenders: list[Contender],
  kinds: str | tuple[str, ...],
) -> Contender | None:
  return max(
    (c for c in contenders if c.way.kind in kinds and c.speeds),
    key=lambda c: c.speed,
    default=None,
  )


def race_table(
  name: str,
  workload: Workload,
  contenders: list[Contender],
  operations: int,
  peaks: dict[str, float],
) -> Table:
  """The race of one workload."""
  mine = fastest_contender(contenders, ("ours",))
  rows = []
  for c in contenders:
    kind = "ours" if c.way.kind == "ours" else f"({c.way.kind})"
    label = f"{kind} {c.way.label}"
    if c.skipped:
      label += ", timed once"
    if not c.speeds:
      dashes = ["—" for _ in HEAD[2:]]
      rows.append((label, c.error, *dashes))
      continue
    memory = f"{c.host_bytes / 2**20:,.0f}"
    if c.device_bytes:
      memory += f" + {c.device_bytes / 2**20:,.0f}"
    rows.append(
      (
        label,
        significant(c.speed),
        c.spread(),
        significant(1e6 / c.speed),
        f"{mine.speed / c.speed:.2f}" if mine else "—",
        f"{c.speed * operations / peaks[c.way.precision]:.1%}",
        f"{c.ready_seconds:.0f}",
        memory,
      )
    )
  recipe = workload.recipe
  size = "×".join(map(str, workload.shape))
  title = f"{name}: {name_of(recipe.model)}, width {recipe.width:g}, {size}, batch {recipe.batch_size}, {' and '.join(peaks)}"
  return Table(title, HEAD, rows, notes(contenders, operations, peaks))


def notes(
  contenders: list[Contender],
  operations: int,
  peaks: dict[str, float],
) -> list[str]:
  mine = fastest_contender(contenders, ("ours",))
  best = fastest_contender(contenders, KINDS[1:])
  vmap = fastest_contender(contenders, ("a",))
  lines = []
  if mine and best:
    lines.append(
      f"Fastest other: ({best.way.kind}) {best.way.label}; ours ÷ it: {mine.speed / best.speed:.2f}."
    )
  if mine and vmap:
    lines.append(f"Ours ÷ the faster plain jax.vmap: {mine.speed / vmap.speed:.2f}.")
  speeds = [f"{peak / 1e9:,.0f} GFLOP/s in {name}" for name, peak in peaks.items()]
  last = (
    f"A model-step takes {operations / 1e6:,.1f} MFLOP; "
    f"matrix-product peak of all devices {' and '.join(speeds)}. "
    "Medians of the rounds. Ready: from nothing until the first epoch is done, "
    "compilation included. Memory: the most that all its processes held, Python and "
    "libraries included (+ on the device)."
  )
  if any(c.skipped for c in contenders):
    last += (
      f" Timed once: over {SLOW:g} times slower than the fastest of its side so far."
    )
  return [*lines, last]


def main(argv: list[str] | None = None) -> None:
  flags, command = common.arguments(Flags, __doc__, "training_step", argv)
  for width in flags.widths:
    check_at_least("lane width", width, 1)
  if flags.steps is not None:
    check_at_least("--steps", flags.steps, 1)
  if not flags.limit > 0:
    raise UserError(f"--limit is {flags.limit:g}: give seconds above 0")
  if not flags.workloads:
    raise UserError(f"--workloads without a name: give some of {', '.join(WORKLOADS)}")
  if not set(flags.only) - set(flags.skip):
    raise UserError("--only and --skip leave no contender: name fewer in --skip")
  where, operations = common.elsewhere(earlier_record, flags.workloads)
  peaks: dict[str, float] = {}
  tables = []
  numbers = {}
  for name in flags.workloads:
    workload = workload_on(name, where["platform"], flags.steps)
    cpu = where["platform"] == "cpu"
    contenders = race(
      ways_to_train(workload, where, flags),
      workload,
      flags.rounds,
      together=cpu,
      limit=flags.limit,
    )
    for precision in labels(workload, flags):
      # The machine may have been busy when it was measured before.
      measured = common.elsewhere(common.peak, precision)
      peaks[precision] = max(peaks.get(precision, 0), measured)
    contenders.sort(key=lambda c: KINDS.index(c.way.kind))
    tables.append(race_table(name, workload, contenders, operations[name], peaks))
    numbers[name] = {
      "peak_flops_per_second": dict(peaks),
      "flops_per_model_step": operations[name],
      "contenders": [c.numbers() for c in contenders],
    }
    common.write_results(flags, command, where, tables, numbers)


if __name__ == "__main__":
  with one_line_errors():
    main()
