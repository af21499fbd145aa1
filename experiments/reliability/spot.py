"""Simulates a campaign on machines that are taken away, over an object store.

    python -m experiments.reliability.spot                                (2 minutes on one CPU core)

A machine claims a block, trains it, and writes it, as `vmapseeds train` does. It lives
for an exponential time. What it had trained since the last checkpoint is lost, and its
block is free again once its claim was seen not to be renewed for a lease. Another
machine takes its place. Requests and the size of a state were measured (`MEASURED`);
prices, bandwidth and the time to begin are assumed (`Flags`). Nothing here ran in a
cloud.
"""

import dataclasses
import heapq
import math
from typing import Annotated, NamedTuple

import numpy as np

from vmapseeds import cli
from vmapseeds.errors import UserError, check_number
from vmapseeds.flags import metavar, parse_flags
from vmapseeds.store.checkpoints import SHARE
from vmapseeds.store.claims import LEASE

EPOCHS = 64  # of resnet9_cifar10
STATE = 18.2e6  # bytes of parameters, momentum and running means of one of its lanes


class Requests(NamedTuple):
  """Requests, by what they cost."""

  put: float = 0  # and list
  get: float = 0
  free: float = 0  # removals

  def __add__(self, other):
    return Requests(*(a + b for a, b in zip(self, other, strict=True)))

  def __mul__(self, times):
    return Requests(*(a * times for a in self))


# Counted on a server on this machine.
MEASURED = {
  "block": Requests(put=5, get=2, free=1),  # with one look at the folder
  "begin": Requests(put=10, get=26, free=2),
  "save": Requests(put=12, get=11, free=12),
  "load": Requests(put=2, get=11),
  "clear": Requests(put=1, free=11),
  "renewal": Requests(put=1, get=1),
}
RENEWAL = LEASE / 10  # seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
  runs: int = 60_000
  """runs of the campaign"""

  machines: int = 100
  """machines at once"""

  life: float = 3600.0
  """mean seconds until a machine is taken away"""

  run_seconds: float = 58.5
  """seconds of a run; the paper's on an A100"""

  begin_seconds: float = 180.0
  """seconds until a new machine trains: boot, imports, compilation"""

  bandwidth: float = 200e6
  """bytes a second between a machine and the store"""

  machine_price: float = 1.0
  """dollars of a machine's hour"""

  put_price: float = 5e-6
  """dollars of a request that writes or lists"""

  get_price: float = 4e-7
  """dollars of a request that reads"""

  batches: Annotated[tuple[int, ...], metavar("N")] = (
    2,
    4,
    8,
    16,
    32,
    64,
    128,
    256,
  )
  """seed batches"""

  seeds: int = 5
  """campaigns of each kind, to be averaged"""


class SpotOutcome(NamedTuple):
  """What a campaign took."""

  hours: float  # until the last block is written
  lost: float  # share of the time of machines in which what was trained was lost
  saving: float  # share in which checkpoints were written and read
  waiting: float  # share in which a machine began or had nothing to train
  requests: float
  dollars: float


def simulate_campaign(
  flags: Flags,
  batch: int,
  interval: float,
  seed: int,
) -> SpotOutcome:
  """Simulate one campaign.

  Args:
    flags: what it is of.
    batch: the seed batch.
    interval: seconds of training between two checkpoints; infinite for none.
    seed: of the machines' lives.
  """
  rng = np.random.default_rng(seed)
  epoch = batch * flags.run_seconds / EPOCHS
  moved = batch * STATE / flags.bandwidth  # seconds of a save or a load
  every = EPOCHS  # epochs between two saves
  if interval < math.inf:
    every = min(EPOCHS, max(1, math.ceil(interval / epoch)))
  blocks = math.ceil(flags.runs / batch)
  # When a block can be taken, and how many of its epochs are saved.
  free = [(0.0, k, 0) for k in range(blocks)]
  # When a machine is ready, and when it is taken away.
  ready = [
    (flags.begin_seconds, rng.exponential(flags.life)) for _ in range(flags.machines)
  ]
  heapq.heapify(ready)
  done = 0
  end = 0.0
  lost = 0.0
  saving = 0.0
  total = MEASURED["begin"] * flags.machines

  def replace_machine(gone: float) -> Requests:
    """Begin a machine in place of one that was taken away; return its requests."""
    life = rng.exponential(flags.life)
    heapq.heappush(ready, (gone + flags.begin_seconds, gone + life))
    # It shows the accuracies of finished runs, and so reads their records.
    return MEASURED["begin"] + Requests(get=done)

  while free:
    now, death = heapq.heappop(ready)
    since, block, epochs = heapq.heappop(free)
    now = max(now, since)
    if death <= now:  # it was taken away while it waited for the block
      heapq.heappush(free, (since, block, epochs))
      total += replace_machine(death)
      continue

    epochs_left = EPOCHS - epochs
    saves = max(0, math.ceil(epochs_left / every) - 1)
    loading = 0.0
    if epochs:  # some of them are saved, and loaded first
      loading = moved
      total += MEASURED["load"]
    start = now + loading
    finish = start + epochs_left * epoch + saves * moved
    total += Requests(put=done // 1000)  # more pages of the list of records
    if finish <= death:
      done += 1
      end = max(end, finish)
      saving += finish - now - epochs_left * epoch
      total += MEASURED["block"] + MEASURED["save"] * saves
      if saves or epochs:
        total += MEASURED["clear"]
      total += MEASURED["renewal"] * ((finish - now) / RENEWAL)
      heapq.heappush(ready, (finish, death))
      continue

    # It is taken away first: what it trained since its last save is lost, and others
    # may take the block when its claim has ended.
    saves = max(0, min(saves, int((death - start) / (every * epoch + moved))))
    kept = saves * every * epoch
    spent = min(death - now, loading) + saves * moved
    saving += spent
    lost += death - now - kept - spent
    total += MEASURED["save"] * saves + Requests(put=2, get=2)
    total += MEASURED["renewal"] * ((death - now) / RENEWAL)
    heapq.heappush(free, (death + LEASE, block, epochs + saves * every))
    total += replace_machine(death)

  paid = flags.machines * end
  trained = flags.runs * flags.run_seconds
  dollars = (
    paid / 3600 * flags.machine_price
    + total.put * flags.put_price
    + total.get * flags.get_price
  )
  waiting = paid - trained - lost - saving
  return SpotOutcome(
    end / 3600,
    lost / paid,
    saving / paid,
    waiting / paid,
    sum(total),
    dollars,
  )


def checkpoint_intervals(flags: Flags, batch: int) -> dict[str, float]:
  """Return seconds between two checkpoints, by how the policy is called.

  "2 %" is what campaigns do by default; "sqrt" is the approximation of Young (1974,
  Comm. ACM 17, 530-531).
  """
  cost = batch * STATE / flags.bandwidth
  return {
    "never": math.inf,
    "10 min": 600.0,
    "sqrt": math.sqrt(2 * cost * flags.life),
    "2 %": cost / SHARE,
    "every epoch": 0.0,
  }


def check_positive(name: str, value: object) -> None:
  """Raise `UserError` if a flag, or one of its values, is not above 0."""
  values = value if isinstance(value, tuple) else (value,)
  for each in values:
    if check_number(name, each) <= 0:
      raise UserError(f"{name} is {each}: give a number above 0")


def main(argv: list[str] | None = None) -> None:
  """Print the table."""
  with cli.one_line_errors():
    flags = parse_flags(Flags, argv, prog="python -m experiments.reliability.spot")
    for name, value in vars(flags).items():
      check_positive(name, value)
  print(
    "| seed batch | checkpoints | hours | lost | saving | waiting | requests | dollars |"
  )
  print("|---" * 8 + "|")
  best = []
  for batch in flags.batches:
    for policy, interval in checkpoint_intervals(flags, batch).items():
      if policy == "never" and batch * flags.run_seconds > 2 * flags.life:
        continue  # it would take days
      outcomes = []
      for seed in range(flags.seeds):
        outcomes.append(simulate_campaign(flags, batch, interval, seed))
      mean = SpotOutcome(*np.mean(outcomes, axis=0))
      best.append((mean.dollars, batch, policy))
      print(
        f"| {batch} | {policy} | {mean.hours:.2f} | {mean.lost:.1%} | {abs(mean.saving):.1%} "
        f"| {mean.waiting:.1%} | {mean.requests:,.0f} | {mean.dollars:,.0f} |",
        flush=True,
      )
  dollars, batch, policy = min(best)
  print(f"\nleast: {dollars:,.0f} dollars with a seed batch of {batch}, saved {policy}")


if __name__ == "__main__":
  main()
