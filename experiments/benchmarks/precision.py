"""Whether results depend on precision: accuracies in float32 and in bfloat16 from the
same seeds.

    python -m experiments.benchmarks.precision                                             (minutes on two CPU cores)

The same runs are trained in both, so their differences are paired. A CPU emulates
bfloat16, slowly. Run it again with the same --out to resume.
"""

import dataclasses
import math
from typing import Annotated

import numpy as np
from jaxtyping import Float
from tyro.conf import arg

import vmapseeds as vs
from experiments.benchmarks import common
from experiments.benchmarks.common import Table
from experiments.frame import duration, number, percent
from vmapseeds.cli import mistakes, overrides
from vmapseeds.mistakes import Mistake, at_least

PRECISIONS = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Flags(common.RecipeFlags):
  epochs: Annotated[int, arg(metavar="E")] = 8
  """epochs of each run"""

  runs: Annotated[int, arg(metavar="N")] = 128
  """runs of each precision"""


def compare(accuracies: Float[np.ndarray, "2 runs"]) -> dict[str, float]:
  """The paired difference of two rows of accuracies, second minus first, with its
  standard error.
  """
  difference = accuracies[1] - accuracies[0]
  sd = difference.std(ddof=1)
  return {
    "runs": len(difference),
    "mean_difference": float(difference.mean()),
    "se": float(sd / math.sqrt(len(difference))),
    "correlation": float(np.corrcoef(accuracies)[0, 1])
    if accuracies.std(1).all()
    else math.nan,
  }


def main(argv: list[str] | None = None) -> None:
  flags, command = common.arguments(Flags, __doc__, "precision", argv)
  at_least("--runs", flags.runs, 2)
  recipe = vs.recipe(flags.recipe, **overrides(flags.set)).replace(epochs=flags.epochs)
  where = common.elsewhere(common.machine)
  accuracies, kept = [], np.ones(flags.runs, bool)
  for precision in PRECISIONS:
    folder = (
      flags.out / "precision" / f"{recipe.name}-{recipe.epochs}epochs-{precision}"
    )
    results = vs.train(
      recipe.replace(precision=precision), vs.Runs.independent(flags.runs), folder
    )
    results = results.isel(run=slice(flags.runs))
    accuracies.append(results.accuracy.values.astype(np.float64))
    kept &= ~results.diverged.values
  if kept.sum() < 2:
    raise Mistake(
      f"{kept.sum()} of {flags.runs} runs converged in both precisions: give a smaller lr, or more runs"
    )
  accuracies = np.array(accuracies)[:, kept]
  found = compare(accuracies)
  rows = []
  for name, row in zip(PRECISIONS, accuracies, strict=True):
    sd = row.std(ddof=1)
    rows.append(
      (
        name,
        percent(row.mean(), sd / math.sqrt(len(row))),
        percent(sd, sd / math.sqrt(2 * len(row) - 2)),
      )
    )
  rows.append(
    ("difference, paired", percent(found["mean_difference"], found["se"]), "—")
  )
  se = (1 - found["correlation"] ** 2) / math.sqrt(found["runs"] - 1)
  notes = [
    f"bfloat16 minus float32 over {found['runs']} pairs, ± standard error; correlation of a pair's accuracies "
    f"{number(found['correlation'], se)}."
  ]
  if not kept.all():
    notes.append(
      f"{flags.runs - kept.sum()} runs diverged in one precision or both and are left out."
    )
  head = ("precision", "mean accuracy", "sd of accuracy")
  title = f"{recipe.name}, {duration(recipe.epochs)}, {flags.runs} runs: the same seeds in both"
  table = Table(title, head, rows, notes)
  common.write(
    flags,
    command,
    where,
    [table],
    found | dict(zip(PRECISIONS, accuracies, strict=True)),
  )


if __name__ == "__main__":
  with mistakes():
    main()
