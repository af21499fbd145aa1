"""A paper's figures at one scale on one page: picture, our numbers beside the paper's,
what was trained, on what, for how long, by which commit. Nothing is judged there.
"""

import importlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from vmapseeds.errors import UserError
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
  """Raises `UserError` if a folder holds another paper's or scale's gallery, or an
  index.html that we did not write.
  """
  path = out / RECORD
  if not path.exists():
    if (out / "index.html").exists():
      raise UserError(
        f"{out} has an index.html that no experiment wrote: give another folder with --out"
      )
    return
  try:
    index = json.loads(path.read_text())
    theirs = index["paper"], index["scale"]
  except (ValueError, TypeError, KeyError):
    raise UserError(
      f"{path} is of something else: give another folder with --out"
    ) from None
  if theirs != (paper, scale):
    raise UserError(
      f"{out} holds {theirs[0]} at scale {theirs[1]}: give another folder with --out"
    )


def write_gallery(
  out: Path,
  paper: str,
  names: Sequence[str],
  module: str = "",
) -> dict[str, dict[str, Any]]:
  """Rewrites a paper's page from the records in its folder, and returns what it says of
  each figure. Figures without a record are left out. `module` of the paper makes all of
  them at once, if one does, with its argument.
  """
  package = importlib.import_module(f"experiments.{paper}")
  paths = (out / f"{name}.json" for name in names)
  records = [json.loads(path.read_text()) for path in paths if path.exists()]
  figures = {record["figure"]: page_entry(record) for record in records}
  # A module that makes all figures at once lacks none.
  absent = {} if module else getattr(package, "ABSENT", {})
  context = {
    "paper": paper,
    "title": package.TITLE,
    "scale": records[0]["scale"],
    "module": module,
    "figures": list(figures.values()),
    "absent": absent,
    "notes": sorted({record["note"] for record in records if record["note"]}),
  }
  page = TEMPLATES.get_template("gallery.html.j2").render(**context)
  files.write(out / "index.html", page.encode())
  index = {
    "paper": paper,
    "scale": records[0]["scale"],
    "figures": list(figures),
  }
  files.write(out / RECORD, (json.dumps(index, indent=1) + "\n").encode())
  return figures


def page_entry(record: Mapping[str, Any]) -> dict[str, Any]:
  """What the page says of a figure: what `frame.write` saved of it, and in words what
  was trained.
  """
  used = record["campaigns"].values()
  return {**record, "caption": caption(used), "provenance": provenance(used)}


def caption(used: Iterable[Mapping[str, Any]]) -> str:
  """What was trained: on what, for how long, how many runs, how many diverged."""
  # Runs of the same data, and then data that were used alike, stand together.
  groups: dict[tuple[str, str], dict[str, Any]] = {}
  for campaign in used:
    what, _, data = campaign["trained_on"].rpartition(" of ")
    group = groups.setdefault((what, data), {"runs": 0, "diverged": 0, "epochs": {}})
    group["runs"] += campaign["runs"]
    group["diverged"] += campaign["diverged"]
    recipe = campaign["recipe"]
    group["epochs"][recipe["epochs"]] = bool(recipe.get("stop_at"))

  alike: dict[tuple[str, str], list[tuple[str, int, int]]] = {}
  for (what, data), group in groups.items():
    lasting = format_epochs(group["epochs"])
    sets = alike.setdefault((what, lasting), [])
    sets.append((data, group["runs"], group["diverged"]))

  parts = []
  for (what, lasting), sets in alike.items():
    names, runs, diverged = zip(*sets, strict=True)
    part = f"{what} of {', '.join(names)}, {lasting}, {sum(runs):,} runs"
    if any(diverged):
      part += f", of which {sum(diverged)} diverged"
    parts.append(part)
  return "; ".join(parts)


def format_epochs(lengths: Mapping[int, bool]) -> str:
  """Durations in words; a duration may be where training stops at the latest."""
  text = ", ".join(str(length) for length in sorted(lengths))
  text += " epoch" if list(lengths) == [1] else " epochs"
  if any(lengths.values()):
    return f"at most {text}"
  return text


def provenance(used: Iterable[Mapping[str, Any]]) -> str:
  """By which commit, with which versions, on what, when and how long the runs of some
  campaigns were trained.
  """
  used = list(used)
  if not used:
    return ""
  commits = set()
  devices = set()
  recipes = set()
  versions: dict[str, str] = {}
  for campaign in used:
    commits.update(commit[:12] for commit in campaign["commits"])
    devices.add(campaign["device_kind"])
    recipes.add(f"{campaign['recipe']['name']}-{campaign['identity']}")
    versions |= campaign["versions"]
  packages = ", ".join(
    f"{name} {versions[name]}" for name in ("python", "jax", "flax", "optax")
  )
  last = max(campaign["when"] for campaign in used)[:10]

  clock, time = "processor_seconds", "processor time"
  if not all(clock in campaign for campaign in used):  # no paper's command timed it
    clock, time = "seconds", "time beside other programs"
  minutes = sum(campaign[clock] for campaign in used) / 60

  names = sorted(recipes)
  listed = ", ".join(names[:4])
  if len(names) > 4:
    listed += f" and {len(names) - 4} more"
  return (
    f"Trained by commit {', '.join(sorted(commits))} until {last} "
    f"with {packages} on {', '.join(sorted(devices))}, "
    f"{minutes:.1f} minutes of {time} shared with other figures; "
    f"recipes {listed}."
  )


def short_name(value: Any) -> str:
  """A recipe's field in words: its name, or the last part of the name of the object
  that was given.
  """
  name = value if isinstance(value, str) else value.get("object", "an object")
  return re.split("[.:]", name)[-1]
