"""What more devices bring: the same lanes on one XLA device, on two, ..., on all.

    python -m experiments.benchmarks.devices                                                (1 minute on two CPU cores)

On a CPU one XLA device can use all cores inside an operation. In the first row the
whole process is kept to one core.
"""

import dataclasses
from typing import Annotated, Literal

from tyro.conf import arg

from experiments.benchmarks import common
from experiments.benchmarks.common import Table, significant
from experiments.benchmarks.contenders import WORKLOADS, our_way, placed, race
from vmapseeds import lanes
from vmapseeds.campaign.options import hint
from vmapseeds.cli import mistakes
from vmapseeds.lanes.choice import candidates
from vmapseeds.mistakes import at_least


@dataclasses.dataclass(frozen=True)
class Flags(common.Flags):
  workload: Annotated[Literal[*WORKLOADS], arg(metavar="NAME")] = "digits"
  """what to train: digits binary resnet_quarter resnet"""

  lane_width: Annotated[int | None, hint("W", "by device")] = None
  """lanes that a device advances together"""

  lowering: Annotated[Literal[*lanes.LOWERINGS] | None, hint("NAME", "by device")] = (
    None
  )
  """lowering of the convolution"""


def main(argv: list[str] | None = None) -> None:
  flags, command = common.arguments(Flags, __doc__, "devices", argv)
  if flags.lane_width is not None:
    at_least("--lane-width", flags.lane_width, 1)
  where = common.elsewhere(common.machine)
  cpu, most = where["platform"] == "cpu", where["devices"]
  lowering, width = candidates(
    where["platform"], lowering=flags.lowering, width=flags.lane_width
  )[0]
  workload = placed(flags.workload, where["platform"])
  counts = sorted({*(2**i for i in range(most.bit_length())), most})
  count = max(workload.lanes, width * most)
  ways = [
    our_way(workload, lanes=count, width=width, lowering=lowering, devices=n)
    for n in counts
  ]
  ways = [dataclasses.replace(ways[0], pinned=True)] * cpu + ways
  contenders = race(ways, workload, flags.rounds, slow=float("inf"), together=cpu)
  base = contenders[0]
  rows = []
  for c in contenders:
    label = (
      f"{c.way.devices} device{'s' * (c.way.devices > 1)}" + ", one core" * c.way.pinned
    )
    if not (c.speeds and base.speeds):
      rows.append((label, c.error or base.error, "—", "—", "—"))
      continue
    ratios = [a / b for a, b in zip(c.speeds, base.speeds, strict=True)]
    rows.append(
      (
        label,
        significant(c.speed),
        c.spread(),
        f"{c.speed / base.speed:.2f}",
        f"{min(ratios):.2f} – {max(ratios):.2f}",
      )
    )
  head = (
    "devices",
    "model-steps/s",
    "least – most",
    "speed-up",
    "least – most of a round",
  )
  table = Table(f"{flags.workload}: speed by devices, {base.way.label}", head, rows)
  common.write(
    flags,
    command,
    where,
    [table],
    [c.numbers() | {"pinned": c.way.pinned} for c in contenders],
  )


if __name__ == "__main__":
  with mistakes():
    main()
