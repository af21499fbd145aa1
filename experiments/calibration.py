"""How often results err: every claim that a page judges, on simulated campaigns.

    python -m experiments.calibration

A paper's `simulated.py` says for each claim how to draw the estimate that the paper's
law gives, with as many runs as the gallery has; for a direction, also one for which its
null is true. A claim of a value is false if the value lies at the edge of its margin: so
its margin is moved until it ends at the median of the draws.

A result errs if a false claim is reproduced. Its power is how often it is reproduced
under the paper's law. Intervals are those of the page, which hold together. What is
exact is not drawn.
"""

import dataclasses
import importlib
import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from tyro.conf import arg

from experiments import claims, frame, pages
from experiments.claims import Claim, Estimate, Outcome
from experiments.command import parse_flags
from vmapseeds.cli import one_line_errors
from vmapseeds.store import files

WORST = 0.05  # of the draws of a false claim may be reproduced
LEAST = 0.5  # of the draws of the paper's law must be
Draw = Callable[[np.random.Generator], Estimate]


class Simulated(NamedTuple):
  """Campaigns of one claim.

  Args:
    law: draws its estimate as the paper has it.
    law_text: what is drawn.
    null: draws it where a direction's null is true.
    null_text: what that is.
  """

  law: Draw
  law_text: str
  null: Draw | None = None
  null_text: str = "the value at the edge of the margin"


class Errs(NamedTuple):
  """How often results on one claim err."""

  paper: str
  claim: str
  law: str
  null: str
  falsely: float  # share of draws of the null that are reproduced
  power: float  # share of draws of the law


@dataclasses.dataclass(frozen=True)
class Flags:
  """Runs every claim that a page judges on simulated campaigns."""

  draws: frame.Count = 400
  """simulated campaigns in which a claim is false, and in which it is true"""

  out: Annotated[Path, arg(metavar="FILE")] = Path("docs/gallery/calibration.json")
  """where the shares go"""


def main(argv: Sequence[str] | None = None) -> None:
  with one_line_errors():
    flags = parse_flags(Flags, argv, prog="python -m experiments.calibration")
    entries = []
    for name in pages.PAGES:
      page = importlib.import_module(f"experiments.{name}").PAGE
      lines = pages.judged_lines(page)
      for claim, simulated in select_simulated(
        page.paper, {line.claim for line in lines}
      ).items():
        errs = calibrate(page.paper, claim, simulated, len(lines), flags.draws)
        print(*errs[:2], f"{errs.falsely:.1%}", f"{errs.power:.1%}", file=sys.stderr)
        entries.append(errs._asdict())
    record = {"draws": flags.draws, "claims": entries}
    files.write(flags.out, (json.dumps(record, indent=1) + "\n").encode())
    print(f"wrote {flags.out}")


def select_simulated(paper: str, names: set[str]) -> dict[str, Simulated]:
  """Return the simulated campaigns of some claims of a paper."""
  if not names:
    return {}
  module = importlib.import_module(f"experiments.{paper}.simulated")
  return {
    name: simulated for name, simulated in module.SIMULATED.items() if name in names
  }


def calibrate(
  paper: str,
  name: str,
  simulated: Simulated,
  count: int,
  draws: int,
) -> Errs:
  """Return how often results on a claim err, on a page of `count` lines."""
  claim = importlib.import_module(f"experiments.{paper}.paper").CLAIMS[name]
  falsely, power = false_and_true_shares(claim, simulated, count, draws)
  return Errs(paper, name, simulated.law_text, simulated.null_text, falsely, power)


def false_and_true_shares(
  claim: Claim,
  simulated: Simulated,
  count: int,
  draws: int,
) -> tuple[float, float]:
  """Return how often a claim is reproduced where it is false, and where it is true."""
  rng = np.random.default_rng(0)
  law = [simulated.law(rng) for _ in range(draws)]
  if simulated.null:
    null = [simulated.null(rng) for _ in range(draws)]
    false = claim
  else:
    null = law
    values = [estimate.value for estimate in law if not math.isnan(estimate.value)]
    shift = float(np.median(values)) - claim.high if values else 0.0
    false = claim._replace(low=claim.low + shift, high=claim.high + shift)
  return share_reproduced(false, null, count), share_reproduced(claim, law, count)


def share_reproduced(claim: Claim, estimates: Sequence[Estimate], count: int) -> float:
  """Return the share of estimates that reproduce a claim."""
  reproduces = []
  for estimate in estimates:
    outcome = claims.outcome_of(claim, claims.widen(estimate, count))
    reproduces.append(outcome == Outcome.REPRODUCED)
  return float(np.mean(reproduces))


if __name__ == "__main__":
  main()
