"""A paper's figures on one page: picture, our number beside the paper's, what was trained, on what, for how long."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from vmapseeds.mistakes import Mistake
from vmapseeds.store import files

TEMPLATES = jinja2.Environment(
  loader=jinja2.FileSystemLoader(Path(__file__).parent), trim_blocks=True, lstrip_blocks=True,
  autoescape=lambda name: name is not None and ".html" in name, undefined=jinja2.StrictUndefined,
)  # fmt: skip
RECORD = "index.json"


def check_same(out: Path, paper: str, scale: str) -> None:
  """`Mistake` where a folder holds a gallery of something else, or an index.html that is none of ours."""
  path = out / RECORD
  if path.exists():
    holds = json.loads(path.read_text())
    if (holds.get("paper"), holds.get("scale")) != (paper, scale):
      raise Mistake(f"{out} holds {holds.get('paper')} at scale {holds.get('scale')}: give another folder with --out")
  elif (out / "index.html").exists():
    raise Mistake(f"{out} has an index.html that no experiment wrote: give another folder with --out")


def write(out: Path, paper: str) -> None:
  """Rewrites the gallery from the figures' numbers in its folder."""
  import importlib

  package = importlib.import_module(f"experiments.{paper}")
  records = [json.loads(path.read_text()) for path in sorted(out.glob("*_*.json"))]
  figures = [described(record, getattr(package, "RECIPES", ())) for record in records]
  scale = records[0]["scale"]
  context = {
    "paper": paper, "title": package.TITLE, "scale": scale, "figures": figures,
    "absent": getattr(package, "ABSENT", {}), "notes": sorted({r["note"] for r in records} - {""}),
  }  # fmt: skip
  for ending in ("html", "md"):
    page = TEMPLATES.get_template(f"gallery.{ending}.j2").render(**context)
    files.write(out / f"index.{ending}", page.encode())
  index = {"paper": paper, "scale": scale, "figures": [figure["figure"] for figure in figures]}
  files.write(out / RECORD, (json.dumps(index, indent=1) + "\n").encode())


def described(record: Mapping[str, Any], papers: tuple[str, ...]) -> dict[str, Any]:
  """What the gallery says of a figure, beside its rows.

  Args:
    record: what was written of it.
    papers: the names of the paper's own recipes.
  """
  used = record["campaigns"].values()
  recipes = sorted({f"{c['recipe']['name']} on {said(c['recipe']['dataset'])}" for c in used})
  own = bool(used) and all(c["recipe"]["name"] in papers for c in used) and record["scale"] == "paper"
  return {
    **record,
    "status": "no training" if not used else "the paper's recipe and data" if own else "stand-in",
    "recipes": recipes,
    "devices": sorted({c["device_kind"] for c in used}),
    "runs": sum(c["runs"] for c in used),
    "diverged": sum(c["diverged"] for c in used),
    "minutes": sum(c["processor_seconds"] for c in used) / 60,
    "verdicts": [verdict(row) for row in record["rows"]],
  }


def said(value: Any) -> str:
  """A recipe's field in words: a name, or that of the object that was given."""
  return value if isinstance(value, str) else str(value.get("name", "an object")) if isinstance(value, dict) else "data"


def verdict(row: Mapping[str, Any]) -> str:
  """Whether a row's pattern holds, in a word, and why not."""
  word = {True: "yes", False: "no", None: "—"}[row["holds"]]
  return f"{word}: {row['why']}" if row["why"] else word
