"""A paper's figures on one page: picture, our number beside the paper's, what was
trained, on what, for how long.
"""

import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from vmapseeds.mistakes import Mistake
from vmapseeds.store import files

TEMPLATES = jinja2.Environment(
  loader=jinja2.FileSystemLoader(Path(__file__).parent),
  trim_blocks=True,
  lstrip_blocks=True,
  autoescape=lambda name: name is not None and ".html" in name,
  undefined=jinja2.StrictUndefined,
)
RECORD = "index.json"


def check_same(out: Path, paper: str, scale: str) -> None:
  """Raises `Mistake` if a folder holds another paper's or scale's gallery, or an
  index.html that we did not write.
  """
  path = out / RECORD
  if not path.exists():
    if (out / "index.html").exists():
      raise Mistake(
        f"{out} has an index.html that no experiment wrote: give another folder with --out"
      )
    return
  try:
    holds = json.loads(path.read_text())
    theirs = holds["paper"], holds["scale"]
  except (ValueError, TypeError, KeyError):
    raise Mistake(
      f"{path} is of something else: give another folder with --out"
    ) from None
  if theirs != (paper, scale):
    raise Mistake(
      f"{out} holds {theirs[0]} at scale {theirs[1]}: give another folder with --out"
    )


def write(out: Path, paper: str, names: Sequence[str]) -> None:
  """Rewrites a paper's gallery from the records in its folder. Figures without a record
  are left out.
  """
  package = importlib.import_module(f"experiments.{paper}")
  paths = (out / f"{name}.json" for name in names)
  records = [json.loads(path.read_text()) for path in paths if path.exists()]
  figures = [described(record, getattr(package, "RECIPES", ())) for record in records]
  scale = records[0]["scale"]
  context = {
    "paper": paper,
    "title": package.TITLE,
    "scale": scale,
    "figures": figures,
    "absent": getattr(package, "ABSENT", {}),
    "notes": sorted({r["note"] for r in records} - {""}),
  }
  for ending in ("html", "md"):
    page = TEMPLATES.get_template(f"gallery.{ending}.j2").render(**context)
    files.write(out / f"index.{ending}", page.encode())
  index = {
    "paper": paper,
    "scale": scale,
    "figures": [figure["figure"] for figure in figures],
  }
  files.write(out / RECORD, (json.dumps(index, indent=1) + "\n").encode())


def described(record: Mapping[str, Any], papers: tuple[str, ...]) -> dict[str, Any]:
  """What the gallery says of a figure, beside its rows.

  Args:
    record: what `frame.write` saved of it.
    papers: the names of the paper's own recipes.
  """
  used = record["campaigns"].values()
  recipes = sorted(
    {f"{c['recipe']['name']} on {said(c['recipe']['dataset'])}" for c in used}
  )
  own = (
    bool(used)
    and all(c["recipe"]["name"] in papers for c in used)
    and record["scale"] == "paper"
  )
  return {
    **record,
    "status": "no training"
    if not used
    else "the paper's recipe and data"
    if own
    else "stand-in",
    "recipes": recipes,
    "devices": sorted({c["device_kind"] for c in used}),
    "runs": sum(c["runs"] for c in used),
    "diverged": sum(c["diverged"] for c in used),
    "minutes": sum(c["processor_seconds"] for c in used) / 60,
    "verdicts": [verdict(row) for row in record["rows"]],
    "holds": judged([row["holds"] for row in record["rows"]]),
  }


def judged(holds: Sequence[bool | None]) -> str:
  """How many of a figure's patterns hold, of those that can be judged."""
  said = [each for each in holds if each is not None]
  return f"{sum(said)} of {len(said)}" if said else "—"


def said(value: Any) -> str:
  """A recipe's field in words: its name, or the last part of the name of the object
  that was given.
  """
  return (
    value
    if isinstance(value, str)
    else value.get("object", "an object").rpartition(".")[2]
  )


def verdict(row: Mapping[str, Any]) -> str:
  """Whether a row's pattern holds, in a word, and its `why`."""
  word = {True: "yes", False: "no", None: "—"}[row["holds"]]
  return f"{word}: {row['why']}" if row["why"] else word
