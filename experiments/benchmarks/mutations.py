"""How many of 60 small faults in `vmapseeds` the tests notice.

    python -m experiments.benchmarks.mutations --list
    python -m experiments.benchmarks.mutations --reach
    python -m experiments.benchmarks.mutations
    python -m experiments.benchmarks.mutations --slow
    python -m experiments.benchmarks.mutations --table

A mutation is a file, a line, its old text and its new text. The 60 are in mutations.json;
`--draw` draws others, with a fixed seed, for those whose lines are gone, so that each room
has about its share of tokens.
Mutations that change no behaviour are excluded in mutations_excluded.json, with a reason.

Tests run in a copy of the tree, one mutation after the other, until the first failure.
`--reach` makes the copy and runs the fast tests in it once, and keeps which test reaches
which line: a mutation is then judged by the tests that reach its line, those first that
reach few lines. Each mutation adds one JSON line to the results, so the command resumes
where it stopped.
`--slow` tries those that no fast test noticed on the slow tests of the same files;
`--confirm` runs the noticing tests once more without any mutation.

Needs Python 3.12. Cost: the time of the fast tests for `--reach`, then a minute a
mutation.
"""

import ast
import collections
import dataclasses
import io
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import tokenize
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from experiments.benchmarks.common import Count, markdown_row
from vmapseeds.errors import UserError
from vmapseeds.flags import metavar, parse_flags

TREE = Path(__file__).parents[2]
LISTED = Path(__file__).with_suffix(".json")
EXCLUDED = Path(__file__).with_name("mutations_excluded.json")
COPIED = ("vmapseeds", "experiments", "tests", "docs", "notebooks")
COPIED_FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "CITATION.cff")
COPIED_FILES += ("CONTRIBUTING.md", "MANIFEST.in", "LICENSE")

NUMBER, SEED = 60, 58
OUT_OF_TIME = "out of time"
# Arguments of pytest: a test that hangs fails, and those that fail are written down.
NOTICING = (
  *("-p", "no:cacheprovider", "--timeout", "300"),
  *("-p", "experiments.benchmarks.noticing"),
)
FAILING = "failing.txt"  # tests, without any mutation
REACHED = "reached"  # the beginning of the names of the files of `--reach`
AT_LEAST = dict.fromkeys(
  ("lanes", "training", "campaign", "store", "stats", "reports"), 5
)


@dataclasses.dataclass(frozen=True)
class Mutation:
  """Lines of a file and what replaces them."""

  file: str
  line: int
  old: str
  new: str
  kind: str

  @property
  def room(self) -> str:
    return room_of(Path(self.file))

  @property
  def key(self) -> tuple[str, str, str]:
    """What names a mutation while lines above it come and go."""
    return self.file, self.old, self.new

  def line_in(self, source: str) -> int:
    """Return the line at which the old text stands, the nearest to where it stood.

    Raises:
      UserError: the old text does not stand in the source.
    """
    lines = source.split("\n")
    old = self.old.split("\n")
    numbers = []
    for number in range(1, len(lines) - len(old) + 2):
      first = number - 1
      if lines[first : first + len(old)] == old:
        numbers.append(number)
    if not numbers:
      raise UserError(f"{self.file} no longer has the line {self.old.strip()!r}")
    return min(numbers, key=lambda number: abs(number - self.line))

  def applied(self, source: str) -> str:
    """Return the mutated source."""
    lines = source.split("\n")
    first = self.line_in(source) - 1
    lines[first : first + self.old.count("\n") + 1] = self.new.split("\n")
    return "\n".join(lines)


def room_of(file: Path) -> str:
  """Return the package in `vmapseeds` to which a file belongs; "top" for none."""
  return file.parts[1] if len(file.parts) > 2 else "top"


COMPARISONS = {
  ast.Lt: ("<", "<="),
  ast.LtE: ("<=", "<"),
  ast.Gt: (">", ">="),
  ast.GtE: (">=", ">"),
  ast.Eq: ("==", "!="),
  ast.NotEq: ("!=", "=="),
}
OPERATORS = {
  ast.Add: ("+", "-"),
  ast.Sub: ("-", "+"),
  ast.Mult: ("*", "/"),
  ast.Div: ("/", "*"),
  ast.FloorDiv: ("//", "*"),
}
LOGIC = {ast.And: (" and ", " or "), ast.Or: (" or ", " and ")}


def is_text_or_list(node: ast.expr) -> bool:
  if isinstance(node, ast.Constant):
    return isinstance(node.value, str)
  return isinstance(node, (ast.JoinedStr, ast.List, ast.Tuple))


class Finder(ast.NodeVisitor):
  """Collects the mutations of a file."""

  def __init__(self, file: str, source: str) -> None:
    self.file = file
    self.source = source
    self.lines = source.split("\n")
    self.mutations: list[Mutation] = []

  def between(
    self,
    left: ast.expr,
    right: ast.expr,
    words: tuple[str, str],
    kind: str,
  ) -> None:
    """Exchange the operator that stands between two expressions of one line."""
    if left.end_lineno != right.lineno:
      return
    line = self.lines[left.end_lineno - 1].encode()
    # Columns count bytes.
    before = line[: left.end_col_offset]
    after = line[right.col_offset :]
    middle = line[left.end_col_offset : right.col_offset].decode()
    if middle.count(words[0]) != 1:
      return
    new = before + middle.replace(*words).encode() + after
    self.replace(left.end_lineno, new.decode(), kind)

  def replace(self, number: int, new: str, kind: str, end: int | None = None) -> None:
    old = "\n".join(self.lines[number - 1 : end or number])
    self.mutations.append(Mutation(self.file, number, old, new, kind))

  def substitute(self, node: ast.expr, text: str, kind: str) -> None:
    """Put another text in the place of an expression of one line."""
    if node.lineno != node.end_lineno:
      return
    line = self.lines[node.lineno - 1].encode()
    new = line[: node.col_offset] + text.encode() + line[node.end_col_offset :]
    self.replace(node.lineno, new.decode(), kind)

  def text(self, node: ast.AST) -> str:
    return ast.get_source_segment(self.source, node) or ""

  def visit_Compare(self, node: ast.Compare) -> None:
    operands = [node.left, *node.comparators]
    pairs = itertools.pairwise(operands)
    for (before, after), operator in zip(pairs, node.ops, strict=True):
      if type(operator) in COMPARISONS:
        self.between(before, after, COMPARISONS[type(operator)], "operator")
    self.generic_visit(node)

  def visit_BinOp(self, node: ast.BinOp) -> None:
    # A sum of texts or lists has no difference: the mutant would not be one.
    is_sum_of_texts = is_text_or_list(node.left) or is_text_or_list(node.right)
    if type(node.op) in OPERATORS and not is_sum_of_texts:
      self.between(node.left, node.right, OPERATORS[type(node.op)], "operator")
    self.generic_visit(node)

  def visit_BoolOp(self, node: ast.BoolOp) -> None:
    if len(node.values) == 2:
      self.between(*node.values, LOGIC[type(node.op)], "operator")
    self.generic_visit(node)

  def visit_Constant(self, node: ast.Constant) -> None:
    if isinstance(node.value, bool):
      self.substitute(node, str(not node.value), "constant")
    elif isinstance(node.value, int):
      self.substitute(node, str(node.value + 1), "constant")
    elif isinstance(node.value, float):
      self.substitute(node, repr(2 * node.value), "constant")

  def visit_keyword(self, node: ast.keyword) -> None:
    value = node.value
    if node.arg in ("axis", "ddof"):
      if isinstance(value, ast.Constant) and isinstance(value.value, int):
        self.substitute(value, str(abs(1 - value.value)), "axis or ddof")
      elif isinstance(value, ast.UnaryOp):
        self.substitute(value, "0", "axis or ddof")
    else:
      self.generic_visit(node)

  def visit_Call(self, node: ast.Call) -> None:
    name = self.text(node.func)
    first = node.args[0] if node.args else None
    if name == "jax.random.split":
      self.substitute(node, f"[{self.text(first)}] * 2", "key split")
    elif name == "jax.random.fold_in":
      self.substitute(node, self.text(first), "key split")
    if name not in ("isinstance", "jax.random.fold_in"):
      self.swap_arguments(node)
    self.generic_visit(node)

  def swap_arguments(self, node: ast.Call) -> None:
    """Exchange the first two arguments of a call on one line, if both are names."""
    if len(node.args) < 2 or node.lineno != node.end_lineno:
      return
    first, second = node.args[:2]
    plain = (ast.Name, ast.Attribute)
    if not isinstance(first, plain) or not isinstance(second, plain):
      return
    line = self.lines[node.lineno - 1].encode()
    head = line[: first.col_offset]
    tail = line[second.end_col_offset :]
    pair = f"{self.text(second)}, {self.text(first)}".encode()
    self.replace(node.lineno, (head + pair + tail).decode(), "swapped argument")

  def visit_Expr(self, node: ast.Expr) -> None:
    if isinstance(node.value, ast.Constant):
      return
    if isinstance(node.value, ast.Call):
      self.drop(node)
    self.generic_visit(node)

  def visit_If(self, node: ast.If) -> None:
    if len(node.body) == 1 and isinstance(node.body[0], ast.Raise) and not node.orelse:
      self.drop(node)
    self.generic_visit(node)

  def visit_AugAssign(self, node: ast.AugAssign) -> None:
    self.drop(node)
    self.generic_visit(node)

  def drop(self, node: ast.stmt) -> None:
    indent = " " * node.col_offset
    first = self.lines[node.lineno - 1]
    if first[: node.col_offset] != indent:  # an elif, or beside another statement
      return
    fsync = "fsync(" in self.text(node)
    kind = "missing fsync" if fsync else "dropped line"
    self.replace(node.lineno, f"{indent}pass", kind, node.end_lineno)

  def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
    if node.value is not None:
      self.visit(node.value)

  def visit_arg(self, node: ast.arg) -> None:
    """Leave annotations alone."""

  def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
    for default in (*node.args.defaults, *node.args.kw_defaults):
      if default is not None:
        self.visit(default)
    for statement in node.body:
      self.visit(statement)


def mutations_of_file(tree: Path, file: Path) -> list[Mutation]:
  """Return all mutations of a file, in order of its lines."""
  source = file.read_text()
  finder = Finder(str(file.relative_to(tree)), source)
  finder.visit(ast.parse(source))
  return list(dict.fromkeys(m for m in finder.mutations if m.new != m.old))


def count_tokens(source: str) -> int:
  skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT}
  skipped.add(tokenize.DEDENT)
  read = io.StringIO(source).readline
  return sum(token.type not in skipped for token in tokenize.generate_tokens(read))


def mutations_by_room(tokens: dict[str, int]) -> dict[str, int]:
  """Return how many mutations each room gets: its share of tokens, `AT_LEAST` and 1 at
  least, `NUMBER` together.
  """
  total = sum(tokens.values())
  share = {
    room: max(AT_LEAST.get(room, 1), NUMBER * count // total)
    for room, count in tokens.items()
  }
  while sum(share.values()) != NUMBER:
    lack = {room: NUMBER * tokens[room] / total - share[room] for room in share}
    if sum(share.values()) < NUMBER:
      share[max(share, key=lack.__getitem__)] += 1
    else:
      above_least = [room for room in share if share[room] > AT_LEAST.get(room, 1)]
      share[min(above_least, key=lack.__getitem__)] -= 1
  return share


def draw_mutations(
  tree: Path,
  listed: Sequence[Mutation],
  excluded: Sequence[tuple[str, str, str]],
) -> list[Mutation]:
  """Return the listed mutations whose lines are there, and others in the place of those
  whose lines are gone: in the rooms that have too few, the kinds take turns, rare ones
  first.
  """
  by_room = collections.defaultdict(list)
  tokens: dict[str, int] = collections.Counter()
  for file in sorted((tree / "vmapseeds").rglob("*.py")):
    room = room_of(file.relative_to(tree))
    by_room[room] += mutations_of_file(tree, file)
    tokens[room] += count_tokens(file.read_text())

  chosen = [mutation for mutation in listed if stands(tree, mutation)]
  lacking = collections.Counter(mutations_by_room(tokens))
  lacking.subtract(mutation.room for mutation in chosen)
  drawn: dict[str, int] = collections.Counter()
  for _ in range(NUMBER - len(chosen)):
    room = max(sorted(lacking), key=lacking.__getitem__)
    lacking[room] -= 1
    drawn[room] += 1
  left_out = [*excluded, *(mutation.key for mutation in chosen)]
  for room, count in drawn.items():
    chosen += take_turns(room, by_room[room], count, left_out)
  return sorted(chosen, key=lambda mutation: (mutation.file, mutation.line))


def stands(tree: Path, mutation: Mutation) -> bool:
  """Return whether the line of a mutation is there."""
  file = tree / mutation.file
  if not file.exists():
    return False
  try:
    mutation.line_in(file.read_text())
  except UserError:
    return False
  return True


def take_turns(
  room: str,
  mutations: Sequence[Mutation],
  count: int,
  excluded: Sequence[tuple[str, str, str]],
) -> list[Mutation]:
  """Draw `count` mutations of a room, or all if there are fewer, one of each kind in
  turn.
  """
  by_kind = collections.defaultdict(list)
  for mutation in mutations:
    by_kind[mutation.kind].append(mutation)
  for kind in sorted(by_kind):
    random.Random(f"{SEED} {room} {kind}").shuffle(by_kind[kind])

  rare_first = sorted(by_kind, key=lambda kind: len(by_kind[kind]))
  drawn: list[Mutation] = []
  while len(drawn) < count and any(by_kind.values()):
    for kind in rare_first:
      if not by_kind[kind] or len(drawn) == count:
        continue
      mutation = by_kind[kind].pop()
      if mutation.key not in excluded:
        drawn.append(mutation)
  return drawn


def read_listed() -> list[Mutation]:
  return [Mutation(**fields) for fields in json.loads(LISTED.read_text())]


def read_excluded() -> list[tuple[str, str, str]]:
  """Return the keys of the excluded mutations."""
  rows = json.loads(EXCLUDED.read_text()) if EXCLUDED.exists() else []
  return [(row["file"], row["old"], row["new"]) for row in rows]


def copy_tree(tree: Path, to: Path) -> None:
  """Copy what the tests need, from scratch."""
  shutil.rmtree(to, ignore_errors=True)
  to.mkdir(parents=True)
  leave = shutil.ignore_patterns("__pycache__")
  for name in COPIED:
    if (tree / name).exists():
      shutil.copytree(tree / name, to / name, ignore=leave)
  for name in COPIED_FILES:
    if (tree / name).exists():
      shutil.copy2(tree / name, to / name)


def run_pytest(
  tree: Path,
  arguments: Sequence[str],
  seconds: float,
  log: Path,
) -> tuple[int | None, str]:
  """Run the tests in a copy of the tree; return their status, None if they were ended
  after so many seconds by the clock, and the name of the first that failed, "" for none.
  """
  failures = log.with_name("failures.txt")
  with log.open("w") as output:
    process = subprocess.Popen(
      [sys.executable, "-m", "pytest", *NOTICING, *arguments],
      cwd=tree,
      env=environment(tree, failures),
      stdout=output,
      stderr=subprocess.STDOUT,
      start_new_session=True,
    )
    try:
      status: int | None = process.wait(seconds)
    except subprocess.TimeoutExpired:
      os.killpg(process.pid, signal.SIGKILL)
      process.wait()
      status = None
  return status, (read_lines(failures) or [""])[0]


def environment(tree: Path, failures: Path) -> dict[str, str]:
  """Return the environment of a run of the tests in a copy of the tree, without the
  failures of the last.
  """
  failures.unlink(missing_ok=True)
  return {
    **os.environ,
    "PYTHONPATH": str(tree),
    "PYTHONDONTWRITEBYTECODE": "1",
    "FAILURES": str(failures),
  }


def read_lines(path: Path) -> list[str]:
  return path.read_text("utf-8").splitlines() if path.exists() else []


def reach(tree: Path, work: Path) -> None:
  """Run the fast tests, and keep which test reaches which line, and which tests fail
  without any mutation.
  """
  for path in work.glob(f"{REACHED}*.json"):
    path.unlink()
  variables = environment(tree, work / FAILING)
  variables["REACHED"] = str(work / REACHED)
  plugins = [*NOTICING, "-p", "experiments.benchmarks.reaching"]
  command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile"]
  subprocess.run([*command, *plugins], cwd=tree, env=variables, check=False)


def read_reach(work: Path) -> dict[str, dict[int, list[str]]]:
  """Return the tests that reach each line of each file, those of few lines first, but
  those that fail without any mutation.

  Raises:
    UserError: it was not measured which tests reach which line.
  """
  paths = sorted(work.glob(f"{REACHED}*.json"))
  if not paths:
    raise UserError("it is not known which tests reach which line: run --reach first")
  failing = set(read_lines(work / FAILING))
  reached: dict[str, dict[int, list[str]]] = {}
  counts: dict[str, int] = collections.Counter()
  for path in paths:
    record = json.loads(path.read_text())
    for file, numbers_by_line in record["lines"].items():
      lines = reached.setdefault(str(Path(file).relative_to(work / "tree")), {})
      for line, numbers in numbers_by_line.items():
        tests = [record["tests"][number] for number in numbers]
        passing = [test for test in tests if test not in failing]
        lines.setdefault(int(line), []).extend(passing)
        counts.update(passing)
  for lines in reached.values():
    for tests in lines.values():
      tests.sort(key=counts.__getitem__)
  return reached


def tests_of(
  reached: dict[str, dict[int, list[str]]],
  mutation: Mutation,
  line: int,
  slow: bool,
) -> list[str]:
  """Return the tests that reach the lines of a mutation that stands at one; if only the
  import of its module does, all that reach the module. With `slow`, the files of these
  tests.
  """
  lines = reached.get(mutation.file, {})
  height = mutation.old.count("\n") + 1
  numbers = range(line, line + height)
  own = [test for number in numbers for test in lines.get(number, [])]
  whole = [test for tests in lines.values() for test in tests]
  tests = [*dict.fromkeys(own or whole)]
  if slow:
    return [*dict.fromkeys(test.split("::")[0] for test in tests)]
  return tests


def judge_mutation(
  mutation: Mutation,
  tests: Sequence[str],
  work: Path,
  seconds: float,
  slow: bool,
) -> dict[str, Any]:
  """Run the tests on one mutation until the first failure."""
  file = work / "tree" / mutation.file
  source = file.read_text()
  chosen = work / "tests.txt"
  log = work / "pytest.log"
  chosen.write_text("\n".join(tests) + "\n")
  marks = ["-m", "slow"] if slow else []
  began = time.monotonic()
  noticed_by = None  # by no test, if none reaches the line
  if tests:
    file.write_text(mutation.applied(source))
    try:
      arguments = ["-q", "-x", "--tb=line", *marks, f"@{chosen}"]
      status, name = run_pytest(work / "tree", arguments, seconds, log)
    finally:
      file.write_text(source)
    noticed_by = what_noticed(status, name, log)
  return {
    **dataclasses.asdict(mutation),
    "room": mutation.room,
    "stage": "slow" if slow else "fast",
    "limit": seconds,
    "tests": len(tests),
    "seconds": round(time.monotonic() - began, 1),
    "noticed_by": noticed_by,
  }


def what_noticed(status: int | None, failed: str, log: Path) -> str | None:
  """Return what noticed a mutation, None for nothing.

  Args:
    status: of the run of the tests, None if it was ended.
    failed: the first test that failed, "" for none.
    log: the output of the run.

  Raises:
    UserError: pytest could not run.
  """
  if failed:
    return failed
  if status is None:  # the tests may merely have been many
    return OUT_OF_TIME
  if status in (1, 2, 4):  # a file, or conftest.py, could not be imported
    return "collection"
  if status not in (0, 5):
    raise UserError(f"pytest ended with {status}: see {log}")
  return None


def read_results(path: Path) -> list[dict[str, Any]]:
  if not path.exists():
    return []
  return [json.loads(line) for line in path.read_text().splitlines()]


def key_of(result: dict[str, Any]) -> tuple[str, str, str]:
  return result["file"], result["old"], result["new"]


def noticed(result: dict[str, Any]) -> bool:
  return result["noticed_by"] not in (None, OUT_OF_TIME)


def shorten(mutation: Mutation) -> tuple[str, str]:
  """Return the text of both sides around where they differ."""
  old, new = mutation.old.strip(), mutation.new.strip()
  return old.split("\n")[0], new


def describe_results(
  fast: dict[str, Any] | None,
  slow: dict[str, Any] | None,
) -> tuple[str, str]:
  """Return the test that noticed a mutation, and under what it is counted, from the
  results of the fast and of the slow tests.
  """
  if fast is None:
    return "not run", "not run"
  if noticed(fast):
    return f"`{fast['noticed_by']}`", "fast"
  if slow is not None and noticed(slow):
    return f"longer: `{slow['noticed_by']}`", "longer"
  if fast["noticed_by"]:
    return OUT_OF_TIME, OUT_OF_TIME
  return "none", "none"


def results_table(listed: Sequence[Mutation], results: Sequence[dict[str, Any]]) -> str:
  """Return the results as a table, with the totals above it."""
  by_stage: dict[str, dict[tuple[str, str, str], dict[str, Any]]] = {
    "fast": {},
    "slow": {},
  }
  for result in results:
    by_stage[result["stage"]][key_of(result)] = result
  rows = []
  totals: dict[str, int] = collections.Counter()
  for mutation in listed:
    fast = by_stage["fast"].get(mutation.key)
    slow = by_stage["slow"].get(mutation.key)
    outcome, kind = describe_results(fast, slow)
    totals[kind] += 1
    old, new = shorten(mutation)
    place = f"{mutation.file.removeprefix('vmapseeds/')}:{mutation.line}"
    rows.append((place, f"`{old}` → `{new}`", mutation.room, outcome))
  head = ", ".join(f"{kind}: {count}" for kind, count in totals.items())
  lines = ["| mutation | change | room | noticed by |", "|---|---|---|---|"]
  lines += [markdown_row(row) for row in rows]
  return f"{head}\n\n" + "\n".join(lines)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
  """What the judge takes."""

  out: Annotated[Path, metavar("DIR")] = Path("results/benchmarks/mutations")
  """folder for the results, which test reaches what, and the copy of the tree"""

  seconds: Count = 1200
  """seconds at most for the tests of a mutation"""

  list: bool = False
  """print the mutations"""

  draw: bool = False
  """draw others for the mutations whose lines are gone, and write mutations.json"""

  reach: bool = False
  """run the fast tests, to learn which of them reach which line"""

  slow: bool = False
  """try the mutations that no fast test noticed on the slow tests of the likely files"""

  confirm: bool = False
  """run the tests that noticed a mutation without any: all must pass"""

  table: bool = False
  """print the results"""


def main(argv: Sequence[str] | None = None) -> None:
  flags = parse_flags(
    Flags,
    argv,
    prog="python -m experiments.benchmarks.mutations",
    description=__doc__,
  )
  work = flags.out.absolute()
  tree = work / "tree"
  written = work / "results.jsonl"
  if flags.draw:
    drawn = draw_mutations(TREE, read_listed(), read_excluded())
    rows = [dataclasses.asdict(mutation) for mutation in drawn]
    LISTED.write_text(json.dumps(rows, indent=1) + "\n")
  listed = read_listed()
  if flags.list or flags.draw:
    for mutation in listed:
      old, new = shorten(mutation)
      print(f"{mutation.file}:{mutation.line} [{mutation.kind}]\n  {old}\n  {new}")
    return
  results = read_results(written)
  if flags.table:
    print(results_table(listed, results))
    return
  if flags.reach:
    copy_tree(TREE, tree)
    reach(tree, work)
  elif flags.confirm:
    tests = sorted({row["noticed_by"] for row in results if noticed(row)})
    chosen = work / "confirm.txt"
    log = work / "confirm.log"
    chosen.write_text("\n".join(test for test in tests if test != "collection") + "\n")
    arguments = ["-q", "-m", "slow or not slow", f"@{chosen}"]
    status, _ = run_pytest(tree, arguments, 3600, log)
    print(log.read_text()[-2000:])
    if status != 0:
      raise UserError("a test that noticed a mutation fails without it, see above")
  else:
    run_all(flags, listed, results, work, written)


def run_all(
  flags: Flags,
  listed: Sequence[Mutation],
  results: Sequence[dict[str, Any]],
  work: Path,
  written: Path,
) -> None:
  """Judge the mutations that have no result yet."""
  reached = read_reach(work)
  stage = "slow" if flags.slow else "fast"
  done = set()
  for row in results:
    # With more time it is tried again.
    had_less_time = row["noticed_by"] == OUT_OF_TIME and row["limit"] < flags.seconds
    if row["stage"] == stage and not had_less_time:
      done.add(key_of(row))
  noticed_fast = {key_of(row) for row in results if noticed(row)}
  for number, mutation in enumerate(listed, 1):
    if mutation.key in done or (flags.slow and mutation.key in noticed_fast):
      continue
    line = mutation.line_in((work / "tree" / mutation.file).read_text())
    tests = tests_of(reached, mutation, line, flags.slow)
    result = judge_mutation(mutation, tests, work, flags.seconds, flags.slow)
    with written.open("a") as lines:
      lines.write(json.dumps(result) + "\n")
    place = f"{mutation.file}:{mutation.line}"
    took = f"{result['tests']} tests, {result['seconds']} s"
    print(f"{number} of {len(listed)}: {place}: {result['noticed_by']} ({took})")
    sys.stdout.flush()


if __name__ == "__main__":
  main()
