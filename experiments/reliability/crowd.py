"""SIGKILLs six processes of one campaign at random, and compares what is there at the end
with an undisturbed one, bit for bit.

    python -m experiments.reliability.crowd                                  (10 minutes and the undisturbed campaign)

Each process that takes the place of a dead one wants more runs than all before, so that
folders are extended, and values gathered, while others train. A record that was seen
once must keep every byte.
"""

import dataclasses
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

import vmapseeds as vs
from experiments.reliability import kills
from vmapseeds import cli
from vmapseeds.errors import check_at_least
from vmapseeds.flags import parse_flags
from vmapseeds.store.small_values import gathered_file

RECIPE = vs.recipe("digits_cnn", epochs=2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
  seconds: int = 600
  """seconds in which processes are killed"""

  processes: int = 6
  """processes at once"""

  every: int = 5
  """mean seconds between two kills"""

  more: int = 20
  """runs that each new process adds"""

  seed: int = 0
  """seed of the instants and the victims"""


class CrowdOutcome(NamedTuple):
  """What became of a campaign."""

  kills: int
  runs: int
  changed: list[str]  # records that were not left as they were
  statuses: list[int]  # of the processes that were left alone, where not 0
  problems: list[str]  # that `verify` found
  same: bool  # whether the results equal the undisturbed campaign's


def run_disturbed(folder: Path, recipe: vs.Recipe, flags: Flags) -> CrowdOutcome:
  """Kill processes of a campaign for a while, let it end, and compare it with one that is
  never killed.
  """
  rng = np.random.default_rng(flags.seed)
  out = folder / "crowd" / "r"
  out.parent.mkdir()
  runs = flags.more
  hits = 0
  seen: dict[str, bytes] = {}
  changed: set[str] = set()
  statuses: list[int] = []

  def start():
    nonlocal runs
    runs += flags.more
    return kills.process(str(out), recipe, runs)

  def ended(process):
    process.join()
    if process.exitcode not in (0, -signal.SIGKILL):
      statuses.append(process.exitcode)

  def look():
    now = {f.name: f.read_bytes() for f in out.glob("blocks/*.json")}
    changed.update(name for name, text in seen.items() if now.get(name) != text)
    seen.update(now)

  alive = [start() for _ in range(flags.processes)]
  until = time.monotonic() + flags.seconds
  while time.monotonic() < until:
    time.sleep(rng.exponential(flags.every))
    victim = alive[rng.integers(len(alive))]
    if victim.is_alive():
      victim.kill()
      hits += 1
    victim.join()
    look()
    for place, process in enumerate(alive):
      if not process.is_alive():
        ended(process)
        alive[place] = start()
  for process in alive:
    ended(process)
  look()
  problems = vs.verify(out).problems
  if not (out / gathered_file(len(seen))).exists():
    problems.append("values were not gathered")
  same = kills.is_as_undisturbed(out, folder / "undisturbed", recipe, runs)
  return CrowdOutcome(hits, runs, sorted(changed), statuses, problems, same)


def is_sound(outcome: CrowdOutcome) -> bool:
  """Return whether every promise was kept."""
  return outcome.same and not (outcome.changed or outcome.statuses or outcome.problems)


def main(argv: list[str] | None = None) -> None:
  """Print what became of the campaign; exit status 1 when a promise was broken."""
  with cli.one_line_errors():
    flags = parse_flags(Flags, argv, prog="python -m experiments.reliability.crowd")
    for name, value in vars(flags).items():
      check_at_least(name, value, 0 if name == "seed" else 1)
    with tempfile.TemporaryDirectory() as folder:
      outcome = run_disturbed(Path(folder), RECIPE, flags)
  print(
    f"{outcome.kills} kills of {flags.processes} processes in {flags.seconds} s, "
    f"{outcome.runs} runs; records that changed: {outcome.changed or 'none'}; other "
    f"statuses: {outcome.statuses or 'none'}; problems: {outcome.problems or 'none'}; "
    f"equal to an undisturbed campaign bit for bit: {outcome.same}"
  )
  if not is_sound(outcome):
    sys.exit(1)


if __name__ == "__main__":
  main()
