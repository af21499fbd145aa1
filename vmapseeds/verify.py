"""Whether a results folder is as it was written: what is lost, damaged or foreign, and its repair."""

import contextlib
import json
import os
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from upath import UPath

from vmapseeds import blocks, checks
from vmapseeds.checks import IMPORTED
from vmapseeds.errors import Mistake
from vmapseeds.metadata import (
  COPY,
  UNLIKE,
  attributes,
  consolidate,
  group_is_whole,
  groups,
  metadata_faults,
  metadata_files,
  object_path,
  parsed,
  root_fault,
  said,
  same_copies,
  test_sets,
)
from vmapseeds.results import Results
from vmapseeds.stores import is_remote, place

BESIDE = ("checkpoints", "report")  # folders of files that are not looked at
FOREIGN = "is not of these results: move it elsewhere"


class Verdict(NamedTuple):
  """What `verify` found: each problem, note and repair in a line."""

  runs: int  # of the folder; 0 where that cannot be read
  done: int
  problems: list[str]
  notes: list[str]
  repairs: list[str]


class _Problem(NamedTuple):
  file: str
  fault: str
  cure: str  # a name of what `_Look.mend` can do
  block: int | None = None


def verify(path: str | os.PathLike, *, repair: bool = False) -> Verdict:
  """Reads a results folder whole and compares it with its records.

  Args:
    path: the folder.
    repair: whether to restore what there is a copy of, to remove what does not belong among the arrays, and to mark the
      runs of blocks that are hit as not done, so that `vmapseeds train` or `work` trains these again. Nothing else is
      removed: what lies in the folder's root may be somebody's.

  Returns:
    A `Verdict`, of the folder after the repair.

  Raises:
    Mistake: `path` is no results folder.
  """
  path = place(path)
  if attributes(path) is None and attributes(path, COPY) is None:
    raise Mistake(f"{path} is no results folder: give one that `vmapseeds train` or `import` made")
  look, repairs = _Look(path), []
  while repair and look.problems:
    # Damaged metadata hide damaged values: look again as long as something is cured.
    earlier, failed = look.problems, []
    repairs += look.mend(failed)
    look = _Look(path)
    look.notes += failed
    if look.problems == earlier:
      break
  return Verdict(look.runs, look.done, [f"{p.file} {p.fault}".strip() for p in look.problems], look.notes, repairs)


class _Look:
  """One reading of a folder."""

  def __init__(self, path: Path | UPath):
    self.path, self.problems, self.notes = path, [], []
    self.runs = self.done = 0
    self.stored = attributes(path)
    if self._metadata():
      self._values()

  def _metadata(self) -> bool:
    """Looks at the metadata, and says whether arrays can be opened."""
    for stray in checks.strays(self.path):
      self.problems.append(_Problem(stray, "", "none"))
    if self.problems:
      return False
    root, copy = parsed(self.path / "zarr.json"), parsed(self.path / COPY)
    sound = attributes(self.path, COPY) is not None and root_fault(self.path, COPY) is None
    fault = "cannot be read" if self.stored is None else root_fault(self.path)
    if fault or (sound and not same_copies(copy, root["consolidated_metadata"]["metadata"], root["attributes"])):
      fault = fault or f"differs from its copy {COPY}"
      self.problems.append(_Problem("zarr.json", fault, "root" if sound else "none"))
      return False
    if not sound and (copy is not None or blocks.exists(self.path / COPY) or "block_runs" in self.stored):
      fault = "cannot be read" if blocks.exists(self.path / COPY) else "is missing"
      self.problems.append(_Problem(COPY, fault, "copy"))
    for file, fault in metadata_faults(self.path):
      self.problems.append(_Problem(file, fault, "metadata"))
    if self.problems:
      return False
    for name in groups(self.stored):
      if not group_is_whole(self.path, name, root):
        self.problems.append(_Problem(f"{name}/zarr.json", UNLIKE, "group"))
    return True

  def _values(self) -> None:
    self.results = results = Results(self.path)
    self.runs = len(results)
    claims = blocks.claimed(self.path)
    checked = "block_runs" in self.stored
    trained = self.stored["device_kind"] != IMPORTED
    known, unrecorded = {COPY}, 0
    for block in range(-(-self.runs // results.block_runs)):
      file = f"{blocks.FOLDER}/{block}.json"
      known |= {file, *(results.object(name, block) for name in (*results.columns, "done"))}
      outcomes = {results.object(name, block) for name in results.outcomes}
      if claims.get(str(block)):
        self.notes.append(f"block {block} is being trained: it was not looked at")
        known |= outcomes
        continue
      try:
        writes = results.record(block)
      except Mistake as mistake:
        self.problems.append(_Problem(file, f"cannot be read ({said(mistake.__cause__)})", "block", block))
        known |= outcomes
        continue

      marked = self._marked(block, bool(writes), checked)
      self.done += len(marked)
      recorded = set(blocks.recorded_rows(writes))
      if marked - recorded and checked and trained:
        fault = f"has no word of {_rows(marked - recorded)}, marked done"
        self.problems.append(_Problem(file, fault if writes else "is missing", "block", block))
      elif trained:
        unrecorded += len(marked - recorded)
      if recorded - marked and not any(p.cure == "done" and p.block == block for p in self.problems):
        rows = _rows(recorded - marked)
        self.notes.append(f"block {block}: {rows} are written but not marked; train or work marks them")

      if writes or marked:
        known |= outcomes
        faults = results.faults(block, writes) if checked else self._unreadable(block)
      else:
        names = results.columns if checked else []
        faults = {results.object(name, block): results.faulty(name, block) for name in names}
        if str(block) in claims and any(blocks.exists(self.path / o) for o in outcomes):
          self.notes.append(f"block {block} was left half written by a process that ended; train or work trains it")
          known |= outcomes
      for object, fault in faults.items():
        if fault and object in outcomes:
          self.problems.append(_Problem(object, fault, "block", block))
        elif fault:
          self.problems.append(_Problem(object, f"{fault}; train with the same runs writes it again", "none", block))
    if unrecorded:
      self.notes.append(f"{unrecorded} runs were written before there were records: they can be read, no more is known")
    for name in test_sets(self.path):
      known.add(object := object_path(f"{name}/labels", 0, 1))
      fault = results.faulty_labels(name)
      if fault:
        self.problems.append(_Problem(object, f"{fault}; train with the same data writes it again", "none"))
    self._foreign(known)

  def _marked(self, block: int, recorded: bool, checked: bool) -> set[int]:
    """The rows of a block that are marked done."""
    fault = self.results.faulty("done", block)
    if fault == "is missing" and (not recorded or not checked):
      return set()
    if fault:
      self.problems.append(_Problem(self.results.object("done", block), fault, "done", block))
      return set()
    rows = self.results.rows(block)
    return {rows.start + i for i in np.flatnonzero(self.results.array("done")[rows]).tolist()}

  def _unreadable(self, block: int) -> dict[str, str]:
    """Objects of a folder without blocks that cannot be read; it has none for fill values alone."""
    names = (*self.results.columns, *self.results.outcomes)
    found = {self.results.object(name, block): self.results.faulty(name, block) for name in names}
    return {object: fault for object, fault in found.items() if fault and fault != "is missing"}

  def _foreign(self, known: set[str]) -> None:
    """Looks for files where there should be none. What else lies in the root may be dear to somebody: it is named."""
    known |= set(metadata_files(self.stored))
    places = [file.removesuffix("/zarr.json") for file in metadata_files(self.stored)]
    begun = False
    tops = {place.split("/")[0] for place in places} | {blocks.FOLDER}
    others = {}
    for file in sorted(blocks.names(self.path)):
      top, inside, _ = file.partition("/")
      if file.endswith(".partial") and top not in BESIDE:
        self.notes.append(f"{file} was left by a process that ended while it wrote")
        continue
      if not inside or top not in tops:
        if file != "zarr.json" and not (inside and top in BESIDE):
          others[top + inside] = None
        continue
      if file in known or re.fullmatch(rf"{blocks.FOLDER}/\w+\.\d+\.claim", file):
        continue
      beyond = re.match(rf"({'|'.join(map(re.escape, places))})/c/(\d+)|{blocks.FOLDER}/(\d+)\.json", file)
      first = int(beyond[2] or beyond[3]) * self.results.block_runs if beyond else 0
      extra = beyond and first >= self.runs
      if extra and beyond[1] in self.results.columns and first < self.results.array(beyond[1]).shape[0]:
        begun = True
        continue
      fault = "is of a block that the folder does not have" if extra else "is foreign: no record knows it"
      self.problems.append(_Problem(file, fault, "remove"))
    if begun:
      self.notes.append("more runs were to be added, and the process ended; train adds them")
    for name in others:
      self.problems.append(_Problem(name, FOREIGN, "none"))

  # Repair.

  def mend(self, failed: list[str]) -> list[str]:
    """Cures what can be cured, and says what was done; `failed` gets what could not be written."""
    mended = []
    curable = [problem for problem in self.problems if problem.cure != "none"]
    with blocks.Claims(self.path) if curable else contextlib.nullcontext() as claims:
      for problem in curable:
        if problem.cure in ("done", "block") and not claims.take(problem.block):
          continue
        try:
          mended += self._cure(problem)
        except OSError as error:
          failed.append(f"{problem.file} could not be repaired ({error.strerror or error})")
        if problem.block is not None:
          claims.release(problem.block)
    return mended

  def _cure(self, problem: _Problem) -> list[str]:
    match problem.cure:
      case "root":
        blocks.replace(self.path / "zarr.json", blocks.read(self.path / COPY).decode())
        return [f"zarr.json was restored from {COPY}"]
      case "copy":
        blocks.replace(self.path / COPY, blocks.read(self.path / "zarr.json").decode())
        return [f"{COPY} was written again"]
      case "group":
        consolidate(self.path)
        return [f"{problem.file} was written again"]
      case "metadata":
        copies = parsed(self.path / "zarr.json")["consolidated_metadata"]["metadata"]
        if not is_remote(self.path):
          (self.path / problem.file).parent.mkdir(parents=True, exist_ok=True)
        copy = copies[problem.file.removesuffix("/zarr.json")]
        blocks.replace(self.path / problem.file, json.dumps(copy, indent=2))
        return [f"{problem.file} was restored from zarr.json"]
      case "remove":
        blocks.remove(self.path / problem.file)
        return [f"{problem.file} was removed"]
      case "done":
        return [self._restore_marks(problem.block)]
      case "block":
        return self._unmark(problem.block)

  def _restore_marks(self, block: int) -> str:
    """Marks the rows that the block's record has and that are sound, and no others."""
    results = Results(self.path)
    blocks.remove(self.path / results.object("done", block))
    results.begin(block)
    return f"{results.object('done', block)} was written again from the block's record"

  def _unmark(self, block: int) -> list[str]:
    """Forgets a block: first its marks, then its record, then its values."""
    results = Results(self.path)
    record, rows = self.path / blocks.FOLDER / f"{block}.json", results.rows(block)
    objects = [self.path / results.object(name, block) for name in results.outcomes]
    if not any(map(blocks.exists, (record, *objects))) and results.faulty("done", block) is None \
      and not results.array("done")[rows].any():  # fmt: skip
      return []  # another of its problems brought us here before
    if results.faulty("done", block):
      blocks.remove(self.path / results.object("done", block))
    results.array("done")[rows] = False
    results.forget(block)
    return [f"block {block}: {_rows(range(rows.start, rows.stop))} are marked for training again"]


def _rows(rows: set[int] | range) -> str:
  rows = sorted(rows)
  if len(rows) == 1:
    return f"run {rows[0]}"
  return f"runs {rows[0]} to {rows[-1]}" if rows[-1] - rows[0] == len(rows) - 1 else f"runs {', '.join(map(str, rows))}"
