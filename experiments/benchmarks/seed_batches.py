"""How the speed grows with the number of lanes: ours beside one network at a time.

    python -m experiments.benchmarks.seed_batches                                          (3 minutes on two CPU cores)

Ours spreads its lanes over all devices. Each device advances at most the lane width
together. "One at a time" is a jitted Flax network without vmapseeds, on all cores.
"""

import dataclasses
from typing import Annotated, Literal

from tyro.conf import arg

from experiments.benchmarks import common
from experiments.benchmarks.common import Table, significant
from experiments.benchmarks.contenders import (
  WORKLOADS,
  Way,
  our_way,
  placed,
  plain_jax,
  race,
)
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
  """lanes that a device advances together, at most"""

  lowerings: Annotated[tuple[Literal[*lanes.LOWERINGS], ...], arg(metavar="NAME")] = (
    "sequential",
    "im2col",
  )
  """lowerings of ours"""

  lanes: Annotated[tuple[int, ...], arg(metavar="N")] = (1, 4, 16, 64, 256)
  """numbers of lanes"""


def main(argv: list[str] | None = None) -> None:
  flags, command = common.arguments(Flags, __doc__, "seed_batches", argv)
  for count in (
    *flags.lanes,
    *(() if flags.lane_width is None else (flags.lane_width,)),
  ):
    at_least("a number of lanes", count, 1)
  where = common.elsewhere(common.machine)
  devices, cpu = where["devices"], where["platform"] == "cpu"
  most = candidates(where["platform"], width=flags.lane_width)[0].width
  workload = placed(flags.workload, where["platform"])
  ways = [
    our_way(
      workload,
      lanes=n,
      width=min(most, -(-n // devices)),
      lowering=lowering,
      devices=devices,
    )
    for lowering in flags.lowerings
    for n in flags.lanes
  ]
  ways += [
    Way("b", f"JAX, one at a time, {how}", plain_jax, {"scan": how != "a call a step"})
    for how in ("steps in a scan", "a call a step")
  ]
  contenders = race(ways, workload, flags.rounds, slow=float("inf"), together=cpu)
  alone = max(
    (c.speed for c in contenders if c.way.kind == "b" and c.speeds),
    default=float("nan"),
  )
  rows = [
    (c.way.label, significant(c.speed), c.spread(), f"{c.speed / alone:.2f}")
    if c.speeds
    else (c.way.label, c.error, "—", "—")
    for c in contenders
  ]
  head = ("contender", "model-steps/s", "least – most", "÷ one at a time")
  table = Table(f"{flags.workload}: model-steps a second by lanes", head, rows)
  common.write(flags, command, where, [table], [c.numbers() for c in contenders])


if __name__ == "__main__":
  with mistakes():
    main()
