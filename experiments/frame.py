"""What the papers' experiments share: one command a paper, tables and JSON.

A paper is a package beside this file:

- `figNN.py`, `tableN.py`: a script for each figure, with what the paper prints in `PAPER`.
  `measure` turns runs into numbers, whose `rows` have the quantities that figures and
  pages name, and `draw` draws them.
- `campaigns.py`: `script_flags(scale, script)` says what a script trains at a scale.
- `page.py`: the paper's `PAGE` in docs/gallery; `recompute(out)` makes the numbers anew
  that need no training.

`python -m experiments.<paper>` runs all scripts, or those that are named.
`python -m experiments.pages` makes the pages of docs/gallery, the paper's numbers beside
ours, from the scripts' JSON that is kept there.
"""

import dataclasses
import importlib
import itertools
import math
import sys
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from rich.console import Console
from rich.table import Table

from vmapseeds.cli import one_line_errors
from vmapseeds.errors import check_at_least, check_one_of
from vmapseeds.flags import metavar, parse_flags
from vmapseeds.results.formatting import count_of
from vmapseeds.store.folders import check_writable

KINDS = ("fig", "table")  # beginnings of scripts' names
Count = Annotated[int, metavar("N")]


@dataclasses.dataclass(frozen=True)
class Flags:
  """Makes a paper's figures from runs trained here at some scale."""

  figures: Annotated[tuple[str, ...], metavar("[FIGURE ...]", "all")] = ()
  """which figures, by number or by the script's name: 5, fig05, table1, c1; all if none is named"""

  _: dataclasses.KW_ONLY

  scale: Annotated[Literal["smoke", "laptop", "gpu", "paper"], metavar("SCALE")] = (
    "smoke"
  )
  """smoke: in a minute or two, numbers mean little; laptop: real data, hours on two CPU cores; gpu: a day on one
  accelerator; paper: what the paper trained"""

  seed_batch: Annotated[int | None, metavar("S", "256, or what fits in memory")] = None
  """runs trained between two writes; an interruption loses at most these"""

  out: Annotated[Path | None, metavar("DIR", "results/<paper>/<scale>")] = None
  """folder for numbers and pictures"""

  campaigns: Annotated[Path, metavar("DIR")] = Path("results/campaigns")
  """folder of trained runs: runs that are there are not trained again, interrupted campaigns resume"""


def main(file: str, argv: Sequence[str] | None = None) -> None:
  """Run the command line of a paper.

  Args:
    file: the `__file__` of the paper's `__main__.py`.
    argv: the arguments; None takes the program's own.
  """
  folder = Path(file).parent
  name = f"experiments.{folder.name}"
  with one_line_errors():
    doc = importlib.import_module(name).__doc__
    flags = parse_flags(Flags, argv, prog=f"python -m {name}", description=doc)
    if flags.seed_batch is not None:
      check_at_least("--seed-batch", flags.seed_batch, 1)
    selected = select_scripts(folder, flags.figures)
    out = flags.out or Path("results", folder.name, flags.scale)
    # What fails, fails before hours of training.
    for place in (out, flags.campaigns):
      check_writable(place)
    campaigns = importlib.import_module(f"{name}.campaigns")
    for i, script in enumerate(selected, 1):
      print(f"{i} of {len(selected)}, {script}", file=sys.stderr)
      words = [*campaigns.script_flags(flags.scale, script)]
      words += ["--runs-in", str(flags.campaigns), "--out", str(out)]
      if flags.seed_batch:
        words += ["--seed-batch", str(flags.seed_batch)]
      importlib.import_module(f"{name}.{script}").main(words)


def script_names(folder: Path) -> list[str]:
  """Return the scripts of a paper's figures, in order."""
  stems = sorted(path.stem for path in folder.glob("*.py"))
  return [stem for stem in stems if stem.startswith(KINDS)]


def select_scripts(folder: Path, named: Sequence[str]) -> list[str]:
  """Return the scripts that some numbers or names select; all if there are none."""
  every = script_names(folder)
  if not named:
    return every
  selected = []
  for name in named:
    # 5 and 05 are figure 5; c1 is figure C.1, table1 table 1.
    number = f"{int(name):02d}" if name.isdecimal() else name
    if f"fig{number}" in every:
      name = f"fig{number}"
    check_one_of("figure", name, every)
    selected.append(name)
  return selected


# Tables, words and JSON.


def format_percent(value: float, se: float | None = None) -> str:
  """A fraction as per cent, to two digits of its standard error."""
  if not math.isfinite(value):
    return "—"
  if se is None or not math.isfinite(se):
    return f"{100 * value:.4g} %"
  digits = _digits(100 * se)
  return f"{100 * value:z.{digits}f} ± {100 * se:.{digits}f} %"


def _digits(se: float) -> int:
  """Return how many decimals show two digits of a standard error."""
  if se <= 0:
    return 2
  return max(0, 1 - math.floor(math.log10(se)))


def format_duration(epochs: int) -> str:
  return count_of(epochs, "epoch")


def print_table(table: Table) -> None:
  """Prints a table whose words and numbers stay whole: wider than a narrow terminal if
  it must be.
  """
  for column in table.columns:
    cells = [str(cell) for cell in (column.header, *column.cells)]
    words = " ".join(cells).split()
    column.min_width = max(map(len, words), default=1)
  # Borders and spaces take three characters a column.
  least = sum(column.min_width + 3 for column in table.columns) + 1
  width = 160  # of a file
  if sys.stdout.isatty():
    width = Console().width
  Console(width=max(least, width)).print(table)


def revive(value: Any, kind: Any) -> Any:
  """Return what `plain` made of a value of some type as a value of that type; null is
  NaN.
  """
  origin = typing.get_origin(kind)
  args = typing.get_args(kind)
  if isinstance(kind, type) and hasattr(kind, "_fields"):  # a NamedTuple
    hints = typing.get_type_hints(kind)
    return kind(**{name: revive(field, hints[name]) for name, field in value.items()})
  if origin in (dict, Mapping):
    # JSON has no keys but strings.
    to_key = int if args[0] is int else str
    return {to_key(key): revive(entry, args[1]) for key, entry in value.items()}
  if origin in (list, Sequence):
    return [revive(entry, args[0]) for entry in value]
  if origin is tuple:
    kinds = itertools.repeat(args[0]) if args[-1] is ... else args
    return tuple(map(revive, value, kinds))
  if isinstance(value, list):
    return without_null(value)
  if value is None and kind is not type(None):
    return math.nan
  return value


def without_null(value: Any) -> np.ndarray:
  """Return nested lists as an array, with NaN for null."""
  array = np.array(value)
  if array.dtype == object:
    return array.astype(float)
  return array


def plain(value: Any) -> Any:
  """`value` in JSON's types: NaN and infinity become null, and arrays of three or more
  axes become their shape.
  """
  if dataclasses.is_dataclass(value):
    names = [field.name for field in dataclasses.fields(value)]
    value = {name: getattr(value, name) for name in names}
  elif hasattr(value, "_asdict"):
    value = value._asdict()
  if isinstance(value, Mapping):
    return {str(key): plain(entry) for key, entry in value.items()}
  if isinstance(value, np.ndarray | np.generic):
    if value.ndim >= 3:
      return f"array of {value.shape}"
    value = value.tolist()
  if isinstance(value, list | tuple):
    return [plain(entry) for entry in value]
  if isinstance(value, float) and not math.isfinite(value):
    return None
  return value
