"""SIGKILLs one campaign again and again, and compares what it has at the end with an
undisturbed one, bit for bit.

    python -m experiments.reliability.kills                                            (9 minutes on two busy CPU cores)

Every other kill is by the clock, mostly while networks train. The others come just
before the n-th time that a process opens a file for writing, renames or removes one, or
makes a folder. So they fall between any two steps of creating the results folder,
extending it, claiming, saving checkpoints, writing, recording and marking. Each process
wants more runs than the one before, and every third one checkpoints. After each kill
the folder must be sound; no run that was marked done may be trained again.
"""

import dataclasses
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

import vmapseeds as vs
from vmapseeds import cli
from vmapseeds.errors import check_at_least
from vmapseeds.flags import parse_flags
from vmapseeds.store.layout import read_metadata
from vmapseeds.store.results import Results

RECIPE = vs.recipe("digits_cnn", epochs=2)
HOW = dict(seed_batch=4, lane_width=1, lowering="sequential", progress=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
  kills: int = 50
  """how many kills"""

  runs: int = 1600
  """runs of the campaign; with too few it is done before the last kill"""

  seed: int = 0
  """seed of the instants of the kills"""


class CampaignEnd(NamedTuple):
  """What became of a campaign."""

  kills: int  # that hit a process before it was done
  by_clock: int
  done_at_kills: list[int]
  trained_again: int  # runs that were marked done and trained once more
  problems: list[str]  # that `verify` found after any kill or at the end
  same: bool  # whether the results equal the undisturbed campaign's


def train_and_be_killed(
  out: str,
  recipe: vs.Recipe,
  runs: int,
  log: str | None = None,
  operation: int | None = None,
  checkpoint_every: int | None = None,
) -> None:
  """What a process does: trains, logs the rows, and kills itself just before its
  `operation`-th change of a file.
  """
  count = 0
  place = str(Path(out).parent)

  def watch(event, args):
    nonlocal count
    if not args or not isinstance(args[0], str | os.PathLike):
      return
    is_ours = os.fspath(args[0]).startswith(place)
    writes = event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR)
    changes = writes or event in ("os.rename", "os.remove", "os.mkdir")
    if is_ours and changes:
      count += 1
      if count == operation:
        os.kill(os.getpid(), signal.SIGKILL)

  write = Results.write_block

  def logged(self, block, *rest):
    with open(log, "a") as file:
      file.write(json.dumps([*self.blocks[block]]) + "\n")
    write(self, block, *rest)

  if log:
    Results.write_block = logged
  if operation:
    sys.addaudithook(watch)
  vs.train(
    recipe, vs.Runs.independent(runs), out, checkpoint_every=checkpoint_every, **HOW
  )


def process(*args) -> multiprocessing.Process:
  """A process of `train_and_be_killed`, forked from one that has imported everything and not yet
  started JAX.
  """
  context = multiprocessing.get_context("forkserver")
  context.set_forkserver_preload(["vmapseeds.campaign.running", "vmapseeds.cli"])
  started = context.Process(target=train_and_be_killed, args=args)
  started.start()
  return started


def trained_rows(log: Path) -> list[int]:
  """The rows that were trained. A row that was trained twice is there twice."""
  if not log.exists():
    return []
  rows = []
  for line in log.read_text().splitlines():
    rows += json.loads(line)
  return rows


def run_killed(
  folder: Path,
  recipe: vs.Recipe,
  runs: int,
  kills: int,
  seed: int = 0,
  progress: bool = False,
) -> CampaignEnd:
  """Kills a campaign again and again, lets it end, and compares it with one that is
  never killed.
  """
  rng = np.random.default_rng(seed)
  out = folder / "killed" / "r"
  log = folder / "log"
  out.parent.mkdir()
  hits = 0
  by_clock = 0
  again = 0
  done_at_kills = []
  problems = []

  def finish(clock: bool) -> bool:
    """Runs one more process. Returns whether it was killed."""
    nonlocal again
    done = np.zeros(0, bool)
    if read_metadata(out):
      done = Results(out).done
    before = len(trained_rows(log))
    operation = None
    if kills_left and not clock:
      # Every fourth kill comes within the first 60 changes, where the process extends
      # the folder.
      last = min(300, 2 * runs) if kills_left % 4 else 60
      operation = int(rng.integers(1, last))
    # More runs with every process, so that each extends the folder; the first trains
    # several shares, so that there is something to kill.
    shares = kills // 8 + kills + 1
    wanted = runs * (shares - kills_left) // shares
    checkpoint_every = 1 if kills_left % 3 == 0 else None
    run = process(str(out), recipe, wanted, str(log), operation, checkpoint_every)
    if clock and kills_left:
      begun = count_blocks(out)
      while run.is_alive() and count_blocks(out) <= begun:
        time.sleep(0.01)
      time.sleep(rng.uniform(0, min(1, runs / 400)))
      run.kill()
    run.join()
    for row in trained_rows(log)[before:]:
      if row < len(done):
        again += int(done[row])
    return run.exitcode == -signal.SIGKILL

  for kills_left in range(kills, 0, -1):
    clock = bool(kills_left % 2)
    if not finish(clock):
      continue
    hits += 1
    by_clock += clock
    if read_metadata(out):
      problems += vs.verify(out).problems
      done_at_kills.append(vs.open_results(out).sizes["run"])
    if progress:
      when = "by the clock" if clock else "at a change"
      last = done_at_kills[-1] if done_at_kills else 0
      print(f"kill {hits}, {when}: {last} runs done", file=sys.stderr)
  kills_left = 0
  finish(False)
  problems += vs.verify(out).problems

  same = is_as_undisturbed(out, folder / "undisturbed", recipe, runs)
  return CampaignEnd(hits, by_clock, done_at_kills, again, problems, same)


def is_as_undisturbed(out: Path, other: Path, recipe: vs.Recipe, runs: int) -> bool:
  """Train the same runs in another folder, where nothing disturbs them, and return
  whether the results are equal bit for bit.
  """
  undisturbed = process(str(other), recipe, runs)
  undisturbed.join()

  def arrays(folder: Path) -> dict[str, bytes]:
    results = vs.open_results(folder).load().drop_vars("run_place")
    # Blocks differ, the sums over them do not.
    for name in ("votes", "counted"):
      results[name] = results[name].sum("block")
    return {name: results[name].values.tobytes() for name in results}

  return arrays(out) == arrays(other)


def count_blocks(out: Path) -> int:
  """How many blocks a folder has; 0 if it is not there."""
  if not read_metadata(out):
    return 0
  return len(os.listdir(out / "blocks"))


def main(argv: list[str] | None = None) -> None:
  """Prints what became of the campaign; exit status 1 when a promise was broken."""
  with cli.one_line_errors():
    flags = parse_flags(Flags, argv, prog="python -m experiments.reliability.kills")
    check_at_least("kills", flags.kills, 1)
    with tempfile.TemporaryDirectory() as folder:
      outcome = run_killed(
        Path(folder),
        RECIPE,
        flags.runs,
        flags.kills,
        flags.seed,
        progress=True,
      )
  print(
    f"{outcome.kills} kills ({outcome.by_clock} by the clock) with {outcome.done_at_kills} of {flags.runs} runs done; "
    f"runs trained again after they were marked: {outcome.trained_again}; problems: {outcome.problems or 'none'}; "
    f"equal to an undisturbed campaign bit for bit: {outcome.same}"
  )
  if outcome.trained_again or outcome.problems or not outcome.same:
    sys.exit(1)


if __name__ == "__main__":
  main()
