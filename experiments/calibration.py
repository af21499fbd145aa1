"""How often verdicts err: every claim on simulated campaigns.

    python -m experiments.calibration

A paper's `simulated.py` says for each claim how to draw the estimate that the paper's
law gives, with as many runs as the gallery has at scale laptop; for a direction, also
one for which its null is true. A claim of a value is false if the value lies at the edge
of its margin: so its margin is moved until it ends at the median of the draws.

A verdict errs if a false claim agrees or is shown. Its power is how often it agrees or is
shown under the paper's law. Levels are those of a claim alone on its page, the most
lenient. An identity is true where no network has anything to do with it.
"""

import dataclasses
import importlib
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from tyro.conf import arg

from experiments import claims, frame, gallery
from experiments.claims import Claim, Estimate
from experiments.command import parse
from vmapseeds.cli import mistakes
from vmapseeds.store import files

PAPERS = ("banerjee2024", "bouthillier2021", "jiang2022", "jordan2024")
WORST = 0.05  # of the draws of a false claim may agree or be shown
Draw = Callable[[np.random.Generator], Estimate]


class Simulated(NamedTuple):
  """Campaigns of one claim.

  Args:
    law: draws its estimate as the paper has it.
    said: what is drawn.
    null: draws it where a direction's null is true.
    said_null: what that is.
  """

  law: Draw
  said: str
  null: Draw | None = None
  said_null: str = "the value at the edge of the margin"


class Errs(NamedTuple):
  """How often verdicts on one statistic err."""

  paper: str
  statistic: str
  kind: str
  law: str
  null: str
  falsely: float  # share of draws of the null that agree or are shown
  power: float  # share of draws of the law


@dataclasses.dataclass(frozen=True)
class Flags:
  """Runs every claim of the papers on simulated campaigns."""

  papers: Annotated[tuple[str, ...], arg(metavar="PAPER ...")] = PAPERS
  """whose claims"""

  draws: frame.Count = 400
  """simulated campaigns in which a claim is false, and in which it is true"""

  out: Annotated[str, arg(metavar="DIR")] = "docs/gallery/calibration"
  """folder for the page"""


def main(argv: list[str] | None = None) -> None:
  with mistakes():
    flags = parse(Flags, argv, prog="python -m experiments.calibration")
    found = []
    for paper in flags.papers:
      module = importlib.import_module(f"experiments.{paper}.simulated")
      stated = importlib.import_module(f"experiments.{paper}.paper").CLAIMS
      for name, simulated in module.SIMULATED.items():
        errs = calibrated(paper, stated[name], simulated, flags.draws)
        print(*errs[:3], f"{errs.falsely:.1%}", f"{errs.power:.1%}", file=sys.stderr)
        found.append(errs)
    write(Path(flags.out), found, flags.draws)
    print(f"wrote {Path(flags.out) / 'index.md'}")


def calibrated(paper: str, claim: Claim, simulated: Simulated, draws: int) -> Errs:
  """Return how often verdicts on a claim err."""
  rng = np.random.default_rng(0)
  law = [simulated.law(rng) for _ in range(draws)]
  if simulated.null:
    null, false = [simulated.null(rng) for _ in range(draws)], claim
  else:
    null = law
    known = [x.value for x in law if not math.isnan(x.value)]
    away = float(np.median(known)) - claim.high if known else 0.0
    false = claim._replace(low=claim.low + away, high=claim.high + away)
  kind = (
    "identity" if claim.is_identity else "direction" if claim.is_direction else "value"
  )
  return Errs(
    paper,
    claim.statistic,
    kind,
    simulated.said,
    simulated.said_null,
    positive(false, null),
    positive(claim, law),
  )


def positive(claim: Claim, estimates: list[Estimate]) -> float:
  """Return the share of estimates with which a claim agrees or is shown, alone on its
  page, or an identity is true.
  """
  words = [claims.judge([(claim, estimate)])[0].word for estimate in estimates]
  return float(np.mean([word in ("agrees", "shown", "identity") for word in words]))


def write(out: Path, found: list[Errs], draws: int) -> None:
  """Write the page and its numbers. Papers that were not tried now keep theirs."""
  out.mkdir(parents=True, exist_ok=True)
  if (out / "numbers.json").exists():
    kept = json.loads((out / "numbers.json").read_text())
    of_others = {errs["paper"] for errs in kept["claims"]} - {e.paper for e in found}
    earlier = [Errs(**errs) for errs in kept["claims"] if errs["paper"] in of_others]
    found = sorted([*found, *earlier], key=lambda errs: errs.paper)
  record: dict[str, Any] = {
    "draws": draws,
    "claims": [errs._asdict() for errs in found],
  }
  files.write(out / "numbers.json", (json.dumps(record, indent=1) + "\n").encode())
  judged = [errs for errs in found if errs.kind != "identity"]
  context = {
    "draws": draws,
    "found": found,
    "judged": len(judged),
    "worst": max((errs.falsely for errs in judged), default=0.0),
    "above": sum(errs.falsely > WORST for errs in judged),
    "identities": [errs for errs in found if errs.kind == "identity"],
    "title": "How often verdicts err",
  }
  for ending in ("html", "md"):
    page = gallery.TEMPLATES.get_template(f"calibration.{ending}.j2").render(**context)
    files.write(out / f"index.{ending}", page.encode())


if __name__ == "__main__":
  main()
