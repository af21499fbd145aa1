"""Validate a results folder: find what is lost, damaged or foreign, and repair it."""

import re
from typing import NamedTuple

from vmapseeds.mistakes import door
from vmapseeds.store.claims import BLOCKS, CLAIM, Claims, claimed
from vmapseeds.store.files import (
  Folder,
  Place,
  names,
  parse,
  place,
  read,
  remove,
  replace,
  strays,
)
from vmapseeds.store.layout import (
  ROOT,
  Damage,
  object_path,
  require_metadata,
  zarr_json,
)
from vmapseeds.store.results import Results

BESIDE = (
  "checkpoints",
  "report",
  "source",
  "measured",
)  # folders whose files are not checked
FOREIGN = "is not of these results: move it elsewhere"
AGAIN = "train with the same runs and data writes it again"


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
    # "root": write `zarr.json` again; "gather": gather the array's values again;
    # "remove": remove the file; block: remove its record
    None
  )


@door
def verify(path: Folder, *, repair: bool = False) -> Verdict:
  """Read a results folder whole and compares it with its records.

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
  look = _Look(path)
  repairs = list[str]()
  failed = list[str]()
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

  def __init__(self, path: Place):
    self.path = path
    self.problems: list[_Problem] = []
    self.notes: list[str] = []
    self.runs = self.done = 0
    try:
      root = require_metadata(path)
    except Damage as damage:
      found = [_Problem(stray, "") for stray in strays(path)]
      self.problems = found or [_Problem(ROOT, damage.fault.removeprefix(f"{ROOT} "))]
      return
    if parse(read(path / ROOT)) != parse(zarr_json(root).encode()):
      self.problems.append(
        _Problem(ROOT, "has metadata that differ from its own description", "root")
      )
    self.results = Results(path, root)
    self.runs, blocks = len(self.results), range(len(self.results.blocks))
    self.there = names(path)
    claims = claimed(path)
    self.expected = {ROOT, *(f"{BLOCKS}/{block}.json" for block in blocks)}
    for name in root["arrays"]:
      array = self.results.arrays[name]
      chunks = range(-(-array.shape[0] // array.chunks[0]))
      self.expected |= {object_path(root, name, chunk) for chunk in chunks}
    for block in blocks:
      self._block(block, claims.get(str(block), False))
    for name, fault in self.results.gathered_faults().items():
      self.problems.append(_Problem(name, fault, "gather"))
    for name, fault in self.results.plan_faults().items():
      self.problems.append(_Problem(name, f"{fault}; {AGAIN}"))
    self._foreign()

  def _block(self, block, claimed):
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
      self.problems += [_Problem(*fault, block) for fault in faults.items()]
    elif claimed:
      self.notes.append(
        f"block {block} is not finished: another process has claimed it"
      )
    elif self.there & {object_path(results.root, n, block) for n in results.large}:
      self.notes.append(
        f"block {block} is not finished, and what lies there of it is not used"
      )

  def _foreign(self):
    """Look for files where there should be none."""
    results = self.results
    arrays = self.results.root["arrays"]
    tops = {name.split("/")[0] for name in arrays} | {BLOCKS}
    end = len(results.blocks) + 1  # of an append that did not end
    while f"{BLOCKS}/{end - 1}.json" in self.there:
      end += 1
    for file in sorted(self.there - self.expected):
      top, inside, rest = file.partition("/")
      column = re.match(rf"({'|'.join(map(re.escape, results.columns))})/c/\d+", file)
      later = re.fullmatch(rf"{BLOCKS}/(\d+)\.json|.+?/c/(\d+)(/0)*", file)
      later = later and int(later[1] or later[2]) in range(len(results.blocks), end)
      if (inside and top in BESIDE) or (top == BLOCKS and re.fullmatch(CLAIM, rest)):
        continue
      if file.endswith(".partial"):
        self.notes.append(f"{file} was left by a process that ended while it wrote")
      elif not inside or top not in tops:
        self.problems.append(_Problem(top + inside, FOREIGN))
      elif column or later:
        self.notes.append(
          "more runs were to be added, and the process ended: what lies there of them is "
          "not used"
        )
      else:
        fault = "is foreign: the folder has no such block or array"
        self.problems.append(_Problem(file, fault, "remove"))


def _mend(look, mended, failed):
  """Repair what can be repaired. Add what was done to `mended`, and what could not be
  written to `failed`.
  """
  stale = [0 if p.cure == "gather" else p.cure for p in look.problems]
  stale = [block for block in stale if isinstance(block, int)]
  if stale and min(stale) < look.results.gathered:
    try:
      look.results.forget(stale)
      if not any(isinstance(problem.cure, int) for problem in look.problems):
        look.results.gather()
        mended.append("values were gathered again from the records")
    except OSError as error:
      failed.append(f"{ROOT} could not be repaired ({error.strerror or error})")
      return
  with Claims(look.path) as claims:
    for file, _, cure in look.problems:
      record = f"{BLOCKS}/{cure}.json"
      try:
        if cure == "root" and claims.take("folder"):
          replace(look.path / ROOT, zarr_json(require_metadata(look.path)))
          mended.append(f"{ROOT} was written again")
        elif cure == "remove":
          remove(look.path / file)
          mended.append(f"{file} was removed")
        elif isinstance(cure, int) and not claims.take(cure):
          failed.append(f"block {cure} is claimed by another process: repair it later")
        elif isinstance(cure, int):
          remove(look.path / record)
          mended.append(
            f"block {cure}: {record} was removed, so that its runs are trained again"
          )
      except OSError as error:
        failed.append(f"{file} could not be repaired ({error.strerror or error})")
