"""How the speed grows with the number of lanes, or of XLA devices.

    python -m experiments.benchmarks.scaling                                               (3 minutes on two CPU cores)
    python -m experiments.benchmarks.scaling --by devices                                  (1 minute)

lanes    ours beside one network at a time, a jitted Flax network on all cores. Ours
         spreads its lanes over all devices. Each device advances at most the lane width
         together
devices  the same lanes on one XLA device, on two, ..., on all. On a CPU one XLA device
         can use all cores inside an operation. In the first row the whole process is
         kept to one core
"""

import dataclasses
from typing import Annotated, Literal

from experiments.benchmarks import common
from experiments.benchmarks.common import Table
from experiments.benchmarks.contenders import (
  WORKLOADS,
  Way,
  our_way,
  plain_jax,
  race,
  significant,
  workload_on,
)
from vmapseeds import convolutions
from vmapseeds.cli import one_line_errors
from vmapseeds.errors import check_at_least
from vmapseeds.flags import metavar
from vmapseeds.lanes.choice import candidates
from vmapseeds.results.formatting import count_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags(common.Flags):
  by: Annotated[Literal["lanes", "devices"], metavar("WHAT")] = "lanes"
  """what grows: lanes or devices"""

  workload: Annotated[Literal[*WORKLOADS], metavar("NAME")] = "digits"
  """what to train: digits binary resnet_quarter resnet"""

  lane_width: Annotated[int | None, metavar("W", "by device")] = None
  """lanes that a device advances together, at most"""

  lowerings: Annotated[
    tuple[Literal[*convolutions.LOWERINGS], ...], metavar("NAME", "by device")
  ] = ()
  """lowerings of ours"""

  lanes: Annotated[tuple[int, ...], metavar("N")] = (1, 4, 16, 64, 256)
  """with --by lanes, numbers of lanes"""


def ways(flags: Flags, where: dict) -> list[Way]:
  """What is timed, in the order of the table."""
  devices = where["devices"]
  platform = where["platform"]
  workload = workload_on(flags.workload, platform)
  first = candidates(platform, width=flags.lane_width)[0]
  if flags.by == "lanes":
    ours = [
      our_way(
        workload,
        lanes=n,
        width=min(first.width, -(-n // devices)),
        lowering=lowering,
        devices=devices,
      )
      for lowering in flags.lowerings or ("sequential", "im2col")
      for n in flags.lanes
    ]
    return ours + [
      Way("b", f"JAX, one at a time, {how}", plain_jax, {"scan": how[0] == "s"})
      for how in ("steps in a scan", "a call a step")
    ]
  ways_to_time = []
  for lowering in flags.lowerings or (first.lowering,):
    powers = {2**i for i in range(devices.bit_length())}
    for n in sorted(powers | {devices}):
      way = our_way(
        workload,
        lanes=max(workload.lanes, first.width * devices),
        width=first.width,
        lowering=lowering,
        devices=n,
      )
      label = f"{count_of(n, 'device')}, {way.label}"
      if n == 1 and platform == "cpu":
        ways_to_time.append(
          dataclasses.replace(way, label=f"{label}, one core", pinned=True)
        )
      ways_to_time.append(dataclasses.replace(way, label=label))
  return ways_to_time


def main(argv: list[str] | None = None) -> None:
  flags, command = common.arguments(Flags, __doc__, "scaling", argv)
  for count in flags.lanes:
    check_at_least("a number of lanes", count, 1)
  if flags.lane_width is not None:
    check_at_least("a number of lanes", flags.lane_width, 1)
  where = common.elsewhere(common.machine)
  contenders = race(
    ways(flags, where),
    workload_on(flags.workload, where["platform"]),
    flags.rounds,
    slow=float("inf"),
    together=where["platform"] == "cpu",
  )
  alone = (c for c in contenders if c.way.kind == "b" and c.speeds)
  base = max(alone, key=lambda c: c.speed, default=contenders[0])
  rows = []
  for c in contenders:
    if not (c.speeds and base.speeds):
      rows.append((c.way.label, c.error or base.error, "—", "—", "—"))
      continue
    ratios = [a / b for a, b in zip(c.speeds, base.speeds, strict=True)]
    rows.append(
      (
        c.way.label,
        significant(c.speed),
        c.spread(),
        f"{c.speed / base.speed:.2f}",
        f"{min(ratios):.2f} – {max(ratios):.2f}",
      )
    )
  than = "one at a time" if flags.by == "lanes" else "first row"
  head = ("", "model-steps/s", "least – most", f"÷ {than}", "least – most of a round")
  table = Table(f"{flags.workload}: model-steps a second by {flags.by}", head, rows)
  common.write_results(
    flags,
    command,
    where,
    [table],
    [c.numbers() for c in contenders],
  )


if __name__ == "__main__":
  with one_line_errors():
    main()
