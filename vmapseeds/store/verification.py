"""Validate a results folder: find what is lost, damaged or foreign, and repair it."""

import re
from typing import NamedTuple

from vmapseeds.errors import hide_own_frames
from vmapseeds.store.claims import BLOCKS, CLAIM, Claims, claimed
from vmapseeds.store.files import (
  Folder,
  Place,
  as_folder,
  list_file_names,
  parse_json,
  read,
  remove,
  replace,
  strays,
)
from vmapseeds.store.large_arrays import zarr_json
from vmapseeds.store.layout import PLAN, ROOT, Damage, require_metadata
from vmapseeds.store.results import Results
from vmapseeds.store.small_values import GATHERED, gathered_file

# Folders whose files are not checked: their own writers check them, or people do.
BESIDE = ("checkpoints", "report", "source", "measured")
FOREIGN = "is not of these results: move it elsewhere"
AGAIN = "train with the same runs and data writes it again"


class Verification(NamedTuple):
  """What `verify` found: each problem, note and repair is one line."""

  runs: int  # in the folder; 0 if the description cannot be read
  done: int
  problems: list[str]
  notes: list[str]
  repairs: list[str]


class _Problem(NamedTuple):
  file: str
  fault: str
  # "root": write `zarr.json` again; "remove": remove the file; a number: remove the record
  # of that block. None: no repair.
  fix: str | int | None = None


@hide_own_frames
def verify(path: Folder, *, repair: bool = False) -> Verification:
  """Read a results folder whole and compare it with its records.

  Args:
    path: the folder.
    repair: whether to remove the records of damaged blocks, so that `vmapseeds train`
      or `work` trains their runs again, and files that do not belong among the arrays.
      Nothing else is removed: files in the folder's root may be somebody's.

  Returns:
    A `Verification`, of the folder after the repair.

  Raises:
    UserError: `path` is not a results folder.
  """
  path = as_folder(path)
  scan = _Scan(path)
  repairs: list[str] = []
  failures: list[str] = []
  if repair and any(problem.fix is not None for problem in scan.problems):
    repairs, failures = _repair(scan)
    scan = _Scan(path)  # what is wrong still
  problems = [f"{problem.file} {problem.fault}".strip() for problem in scan.problems]
  return Verification(
    scan.runs,
    scan.done,
    _unique(problems),
    _unique(scan.notes + failures),
    _unique(repairs),
  )


def _unique(lines):
  """Return lines in their order, each once."""
  return list(dict.fromkeys(lines))


class _Scan:
  """One reading of a folder."""

  def __init__(self, path: Place):
    self.path = path
    self.problems: list[_Problem] = []
    self.notes: list[str] = []
    self.runs = 0
    self.done = 0
    try:
      root = require_metadata(path)
    except Damage as damage:
      self.problems = [_Problem(ROOT, damage.fault.removeprefix(f"{ROOT} "))]
      return
    # Repairs must not lead elsewhere. Only here, as looking at every file takes long.
    self.problems = [_Problem(stray, "") for stray in strays(path)]
    if self.problems:
      return
    # Here only the description is read, but other programs read Zarr's metadata.
    if parse_json(read(path / ROOT)) != parse_json(zarr_json(root).encode()):
      self.problems.append(
        _Problem(ROOT, "has metadata that differ from its own description", "root")
      )
    self.results = Results(path, root)
    self.runs = len(self.results)
    self.there = list_file_names(path)
    self._check_blocks()
    self._check_arrays()
    self._check_foreign()

  def _check_blocks(self):
    """Compare each block with its record."""
    claims = claimed(self.path)
    for block in range(len(self.results.blocks)):
      self._check_block(block, claims.get(str(block), False))

  def _check_block(self, block, claimed):
    results = self.results
    file = f"{BLOCKS}/{block}.json"
    try:
      record = results.record(block)
      faults = results.faults(block, record) if record else {}
    except Damage as damage:
      self.problems.append(_Problem(file, damage.fault.removeprefix(f"{file} "), block))
      return
    if record:
      self.done += len(results.blocks[block])
      for path, fault in faults.items():
        self.problems.append(_Problem(path, fault, block))
    elif claimed:
      self.notes.append(
        f"block {block} is not finished: another process has claimed it"
      )
    elif self.there.intersection(results.objects(block)):
      self.notes.append(
        f"block {block} is not finished, and what lies there of it is not used"
      )

  def _check_arrays(self):
    """Check what is written for all blocks together, after their records are known."""
    self.results.finished_blocks()  # which finds the file of small values
    if self.results.gathered:
      fault = self.results.gathered_fault()
      if fault:
        file = gathered_file(self.results.gathered)
        self.problems.append(_Problem(file, fault, "remove"))
    for name, fault in self.results.plan_faults().items():
      self.problems.append(_Problem(name, f"{fault}; {AGAIN}"))

  def _expected_files(self):
    """Return the files that the description speaks of, whether they are there or not."""
    results = self.results
    files = {ROOT, PLAN}
    for block in range(len(results.blocks)):
      files.add(f"{BLOCKS}/{block}.json")
      files.update(results.objects(block))
    return files

  def _check_foreign(self):
    """Look for files where there should be none."""
    folders = {name.split("/")[0] for name in self.results.large}
    folders.add(BLOCKS)
    end = self._end_of_append()
    for file in sorted(self.there - self._expected_files()):
      self._check_stray(file, folders, end)

  def _check_stray(self, file, folders, end):
    """Say what a file is that the description does not speak of."""
    top, inside, rest = file.partition("/")
    if inside and top in BESIDE:
      return
    if top == BLOCKS and (re.fullmatch(CLAIM, rest) or GATHERED.fullmatch(rest)):
      return
    if file.endswith(".partial"):
      self.notes.append(f"{file} was left by a process that ended while it wrote")
      return
    if not inside or top not in folders:
      self.problems.append(_Problem(top + inside, FOREIGN))
      return
    if self._is_of_append(file, end):
      self.notes.append(
        "more runs were to be added, and the process ended: what lies there of them is "
        "not used"
      )
      return
    fault = "is foreign: the folder has no such block or array"
    self.problems.append(_Problem(file, fault, "remove"))

  def _end_of_append(self):
    """Return the first block that a process which ended while it added runs cannot have
    begun: it writes one block after the other, each with its record last.
    """
    end = len(self.results.blocks) + 1
    while f"{BLOCKS}/{end - 1}.json" in self.there:
      end += 1
    return end

  def _is_of_append(self, file, end):
    """Return whether a file can come from a process that ended while it added runs."""
    match = re.fullmatch(rf"{BLOCKS}/(\d+)\.json|.+?/c/(\d+)(/0)*", file)
    if match is None:
      return False
    block = int(match[1] or match[2])
    return len(self.results.blocks) <= block < end


def _repair(scan):
  """Repair what can be repaired. Return what was done, and what could not be written."""
  repairs: list[str] = []
  failures: list[str] = []
  with Claims(scan.path) as claims:
    for problem in _one_a_block(scan.problems):
      try:
        line = _repair_problem(scan.results, problem, claims)
      except _Claimed as claimed:
        failures.append(str(claimed))
      except OSError as error:
        reason = error.strerror or error
        failures.append(f"{problem.file} could not be repaired ({reason})")
      else:
        repairs += line
  return repairs, failures


def _one_a_block(problems):
  """Return the problems without those of a block that an earlier one repairs: a second
  claim of the block would be refused.
  """
  blocks = set()
  kept = []
  for problem in problems:
    if isinstance(problem.fix, int):
      if problem.fix in blocks:
        continue
      blocks.add(problem.fix)
    kept.append(problem)
  return kept


class _Claimed(Exception):
  """Another process has claimed a damaged block, and says so."""


def _repair_problem(results, problem, claims):
  """Repair one problem. Return what was done.

  Raises:
    _Claimed: another process has claimed the block.
    OSError: a file cannot be written or removed.
  """
  path = results.path
  if problem.fix == "root":
    if not claims.take("folder"):  # its holder writes the description itself
      return []
    replace(path / ROOT, zarr_json(require_metadata(path)))
    return [f"{ROOT} was written again"]
  if problem.fix == "remove":
    remove(path / problem.file)
    return [f"{problem.file} was removed"]
  if isinstance(problem.fix, int):
    return _remove_record(results, problem.fix, claims)
  return []


def _remove_record(results, block, claims):
  """Remove a block's record, unless another process is training the block."""
  if not claims.take(block):
    raise _Claimed(f"block {block} is claimed by another process: repair it later")
  # First: values of a block without a record would be believed once it has another.
  results.forget_gathered()
  record = f"{BLOCKS}/{block}.json"
  remove(results.path / record)
  return [f"block {block}: {record} was removed, so that its runs are trained again"]
