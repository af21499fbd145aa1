"""A paper's figures on one page: picture, our number beside the paper's, the verdict on
each claim, what was trained, on what, for how long, by which commit.
"""

import importlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from experiments import claims
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


def write(
  out: Path, paper: str, names: Sequence[str], module: str = ""
) -> dict[str, dict[str, Any]]:
  """Rewrites a paper's gallery from the records in its folder, and returns what it says
  of each figure. Figures without a record are left out. `module` of the paper makes all
  of them at once, if one does, with its argument.
  """
  package = importlib.import_module(f"experiments.{paper}")
  paths = (out / f"{name}.json" for name in names)
  records = [json.loads(path.read_text()) for path in paths if path.exists()]
  rows = [row for record in records for row in record["rows"]]
  if not all("claim" in row for row in rows):
    raise Mistake(f"{out} has records without claims: run again with --redraw")
  judged = iter(claims.judge([claims.read(row) for row in rows]))
  figures = {}
  for record in records:
    here = [next(judged) for _ in record["rows"]]
    figures[record["figure"]] = described(record, here, getattr(package, "RECIPES", ()))
  every = [v for figure in figures.values() for v in figure["judged"]]
  context = {
    "paper": paper,
    "title": package.TITLE,
    "scale": records[0]["scale"],
    "module": module,
    "figures": list(figures.values()),
    "absent": {} if module else getattr(package, "ABSENT", {}),
    "notes": sorted({r["note"] for r in records} - {""}),
    "counts": claims.counted(every),
    "identities": sum(v.word == "identity" for v in every),
  }
  for ending in ("html", "md"):
    page = TEMPLATES.get_template(f"gallery.{ending}.j2").render(**context)
    files.write(out / f"index.{ending}", page.encode())
  index = {
    "paper": paper,
    "scale": records[0]["scale"],
    "figures": list(figures),
    "verdicts": context["counts"] | {"identity": context["identities"]},
  }
  files.write(out / RECORD, (json.dumps(index, indent=1) + "\n").encode())
  return figures


def described(
  record: Mapping[str, Any],
  verdicts: Sequence[claims.Verdict | None],
  papers: tuple[str, ...],
) -> dict[str, Any]:
  """What the gallery says of a figure, beside its rows.

  Args:
    record: what `frame.write` saved of it.
    verdicts: on each row.
    papers: the names of the paper's own recipes.
  """
  used = record["campaigns"].values()
  own = (
    bool(used)
    and all(c["recipe"]["name"] in papers for c in used)
    and record["scale"] == "paper"
  )
  judged = [verdict for verdict in verdicts if verdict]
  return {
    **record,
    "rows": [
      row
      | {"runs": f"{row['runs']:,}" if isinstance(row["runs"], int) else row["runs"]}
      for row in record["rows"]
    ],
    "status": "no training"
    if not used
    else "the paper's recipe and data"
    if own
    else "stand-in",
    "caption": caption(used),
    "provenance": provenance(used),
    "diverged": sum(c["diverged"] for c in used),
    "judged": judged,
    "verdicts": [
      claims.told(verdict, row["runs"]) if verdict else "—"
      for verdict, row in zip(verdicts, record["rows"], strict=True)
    ],
    "counts": counts_in_words(judged),
  }


def counts_in_words(verdicts: Sequence[claims.Verdict]) -> str:
  """How many claims of a figure have each verdict."""
  counts = claims.counted(verdicts)
  identities = sum(verdict.word == "identity" for verdict in verdicts)
  counts["identity"] = identities
  return ", ".join(f"{word} {n}" for word, n in counts.items() if n) or "no claim"


def caption(used: Iterable[Mapping[str, Any]]) -> str:
  """What was trained: on what, for how long, how many runs."""
  groups: dict[tuple[str, str], dict[str, Any]] = {}
  for c in used:
    what, _, data = c["trained_on"].rpartition(" of ")
    of = groups.setdefault((what, data), {"runs": 0, "epochs": {}})
    of["runs"] += c["runs"]
    of["epochs"][c["recipe"]["epochs"]] = bool(c["recipe"].get("stop_at"))
  alike: dict[tuple[str, str], list[tuple[str, int]]] = {}
  for (what, data), of in groups.items():
    alike.setdefault((what, epochs(of["epochs"])), []).append((data, of["runs"]))
  return "; ".join(
    f"{what} of {', '.join(data for data, _ in sets)}, {lasting}, {sum(runs for _, runs in sets):,} runs"
    for (what, lasting), sets in alike.items()
  )


def epochs(lengths: Mapping[int, bool]) -> str:
  """Durations in words; a duration may be where training stops at the latest."""
  most = "at most " * any(lengths.values())
  return (
    f"{most}{', '.join(map(str, sorted(lengths)))} epoch{'s' * ([*lengths] != [1])}"
  )


def provenance(used: Iterable[Mapping[str, Any]]) -> str:
  """By which commit, with which versions, on what, when and how long the runs of some
  campaigns were trained.
  """
  used = list(used)
  if not used:
    return ""
  commits = sorted({commit[:12] for c in used for commit in c["commits"]})
  versions = {k: v for c in used for k, v in c["versions"].items()}
  packages = ", ".join(f"{k} {versions[k]}" for k in ("python", "jax", "flax", "optax"))
  measured = all("processor_seconds" in c for c in used)
  clock = "processor_seconds" if measured else "seconds"
  minutes = sum(c[clock] for c in used) / 60
  names = sorted({f"{c['recipe']['name']}-{c['identity']}" for c in used})
  shown = ", ".join(names[:4]) + f" and {len(names) - 4} more" * (len(names) > 4)
  return (
    f"Trained by commit {', '.join(commits)} until {max(c['when'] for c in used)[:10]} "
    f"with {packages} on {', '.join(sorted({c['device_kind'] for c in used}))}, "
    f"{minutes:.1f} minutes of {'processor time' if measured else 'time beside other programs'} "
    "shared with other figures; "
    f"recipes {shown}."
  )


def said(value: Any) -> str:
  """A recipe's field in words: its name, or the last part of the name of the object
  that was given.
  """
  name = value if isinstance(value, str) else value.get("object", "an object")
  return re.split("[.:]", name)[-1]
