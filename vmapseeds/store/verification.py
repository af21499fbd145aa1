"""Finds what in a results folder is lost, damaged or foreign, and repairs it."""

import re
from pathlib import Path
from typing import NamedTuple

from upath import UPath

from vmapseeds.store.claims import BLOCKS, CLAIM, Claims, claimed
from vmapseeds.store.files import (
  Folder,
  names,
  parse,
  place,
  read,
  remove,
  replace,
  strays,
)
from vmapseeds.store.layout import ROOT, Damage, object_path, ours, zarr_json
from vmapseeds.store.results import Results, stop_of

BESIDE = ("checkpoints", "report")  # folders whose files are not checked
FOREIGN = "is not of these results: move it elsewhere"
AGAIN = "train with the same {} writes it again"


class Verdict(NamedTuple):
  """What `verify` found: each problem, note and repair is one line."""

  runs: int  # in the folder; 0 if the description cannot be read
  done: int
  problems: list[str]
  notes: list[str]
  repairs: list[str]


class _Problem(NamedTuple):
  file: str
  fault: str
  cure: str | int | None = (
    # "root": write `zarr.json` again; "remove": remove the file; block: remove its
    # record
    None
  )


def verify(path: Folder, *, repair: bool = False) -> Verdict:
  """Reads a results folder whole and compares it with its records.

  Args:
    path: the folder.
    repair: whether to remove the records of damaged blocks, so that `vmapseeds train`
      or `work` trains their runs again, and files that do not belong among the arrays.
      Nothing else is removed: files in the folder's root may be somebody's.

  Returns:
    A `Verdict`, of the folder after the repair.

  Raises:
    Mistake: `path` is no results folder.
  """
  path = place(path)
  look, repairs, failed = _Look(path), list[str](), list[str]()
  if repair and any(problem.cure is not None for problem in look.problems):
    _mend(look, repairs, failed)
    look = _Look(path)
  problems = [f"{p.file} {p.fault}".strip() for p in look.problems]
  lines = (
    list(dict.fromkeys(each)) for each in (problems, look.notes + failed, repairs)
  )
  return Verdict(look.runs, look.done, *lines)


class _Look:
  """One reading of a folder."""

  def __init__(self, path: Path | UPath):
    self.path = path
    self.problems: list[_Problem] = []
    self.notes: list[str] = []
    self.runs = self.done = 0
    try:
      root = ours(path)
    except Damage as damage:
      found = [_Problem(stray, "") for stray in strays(path)]
      self.problems = found or [_Problem(ROOT, damage.fault.removeprefix(f"{ROOT} "))]
      return
    if parse(read(path / ROOT)) != parse(zarr_json(root).encode()):
      self.problems.append(
        _Problem(ROOT, "has metadata that differ from its own description", "root")
      )
    self.results = Results(path, root)
    self.runs = len(self.results)
    self.there, self.known = names(path), {ROOT}
    claims = claimed(path)
    for block in range(-(-self.runs // self.results.block_runs)):
      self._block(block, claims.get(str(block)))
    for name in self.results.examples:
      if fault := self.results.values(name)[1]:
        self.problems.append(
          _Problem(object_path(root, name, 0), f"{fault}; {AGAIN.format('data')}")
        )
      self.known.add(object_path(root, name, 0))
    self._foreign()

  def _block(self, block: int, trained: bool | None) -> None:
    results, file = self.results, f"{BLOCKS}/{block}.json"
    outputs = {object_path(results.root, name, block) for name in results.outputs}
    self.known |= {
      file,
      *outputs,
      *(object_path(results.root, name, block) for name in results.columns),
    }
    if trained:
      self.notes.append(f"block {block} is being trained: it was not looked at")
      return
    try:
      writes = results.record(block)
    except Damage as damage:
      self.problems.append(_Problem(file, damage.fault.removeprefix(f"{file} "), block))
      return
    if not writes and outputs & self.there:
      self.notes.append(
        f"block {block} is not finished, and what lies there of it is not used"
      )
    rows = results.rows(block)
    self.done += len(range(rows.start, min(rows.stop, stop_of(writes))))
    for object, fault in results.faults(block, writes).items():
      if object in outputs or object.partition("/c/")[0] in results.counts:
        self.problems.append(_Problem(object, fault, block))
      else:
        self.problems.append(_Problem(object, f"{fault}; {AGAIN.format('runs')}"))

  def _foreign(self) -> None:
    """Looks for files where there should be none."""
    results, arrays = self.results, self.results.root["arrays"]
    tops = {name.split("/")[0] for name in arrays} | {BLOCKS}
    for file in sorted(self.there - self.known):
      top, inside, rest = file.partition("/")
      object = re.match(rf"({'|'.join(map(re.escape, arrays))})/c/(\d+)(/0)*$", file)
      name, number = (object[1], int(object[2])) if object else ("", 0)
      beyond = (
        number * (1 if name in results.counts else results.block_runs) >= self.runs
      )
      if (inside and top in BESIDE) or (top == BLOCKS and re.fullmatch(CLAIM, rest)):
        continue
      if file.endswith(".partial"):
        self.notes.append(f"{file} was left by a process that ended while it wrote")
      elif not inside or top not in tops:
        self.problems.append(_Problem(top + inside, FOREIGN))
      elif beyond and name in results.columns:
        self.notes.append(
          "more runs were to be added, and the process ended; train adds them"
        )
      elif (
        beyond or name not in results.counts
      ):  # other counts are of a write, or of one that was replaced
        fault = (
          "is of a block that the folder does not have"
          if beyond
          else "is foreign: no record knows it"
        )
        self.problems.append(_Problem(file, fault, "remove"))


def _mend(look: _Look, mended: list[str], failed: list[str]) -> None:
  """Repairs what can be repaired. Adds what was done to `mended`, and what could not be
  written to `failed`.
  """
  with Claims(look.path) as claims:
    for file, _, cure in look.problems:
      record = f"{BLOCKS}/{cure}.json"
      try:
        if cure == "root" and claims.take("folder"):
          replace(look.path / ROOT, zarr_json(ours(look.path)))
          mended.append(f"{ROOT} was written again")
        elif cure == "remove":
          remove(look.path / file)
          mended.append(f"{file} was removed")
        elif isinstance(cure, int) and claims.take(cure):
          remove(look.path / record)
          mended.append(
            f"block {cure}: {record} was removed, so that its runs are trained again"
          )
      except OSError as error:
        failed.append(f"{file} could not be repaired ({error.strerror or error})")
