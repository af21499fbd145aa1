"""Jiang 2022, figure 14: class by class ensembles are calibrated less well than over all classes together.

Beside each calibration error stands what a perfectly calibrated law of as many runs on as many examples has: the bins
of one class hold fewer pairs, which alone takes their curves from y = x.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from experiments import frame, gallery
from experiments.frame import Printed, Row, Trained, number
from experiments.jiang2022 import groups
from experiments.jiang2022.campaigns import ensemble
from experiments.jiang2022.groups import Group
from vmapseeds import stats
from vmapseeds.reports import plots
from vmapseeds.stats.calibration import curve_of_votes

TITLE = "Figure 14: calibration of single classes and of all together"
PANELS = 2
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
GROUP = "AllDiff"  # the paper does not say which
SHOWN = 5
SIMULATIONS = 30


class Error(NamedTuple):
  """A calibration error, beside that of runs of a perfectly calibrated law with the same vote fractions."""

  value: float
  calibrated: float
  calibrated_sd: float  # from one draw of labels and votes to another


class Classes(NamedTuple):
  data: str  # the paper's, and what stands in its place
  runs: int
  shown: Int[np.ndarray, " shown"]
  single: stats.CalibrationCurve  # a row a class
  together: stats.CalibrationCurve
  se: Float[np.ndarray, " bins"]  # of the latter's accuracies: bootstrap standard deviations over test examples
  error: Error  # class by class: Σ_k Σ_i |B_i^k|/n |acc - conf|
  cace: Error


def compute(trained: Trained) -> dict[str, Classes]:
  found = {}
  for of, named in DATA.items():
    campaign = ensemble(trained.scale, of)[GROUP]
    ours = gallery.said(trained.campaigns[campaign].recipe.dataset)
    data = named if ours == of else f"{ours} for {named}"
    found[of] = classes(groups.of_campaign(trained, campaign), data)
  return found


def classes(group: Group, data: str) -> Classes:
  runs, fractions = len(group.predictions), stats.vote_fractions(group.predictions, group.num_classes)
  rng = np.random.default_rng(0)
  shown = np.sort(rng.permutation(group.num_classes)[:SHOWN])
  errors = []
  for _ in range(SIMULATIONS):
    votes, labels = rng.multinomial(runs, fractions), rng.multinomial(1, fractions).argmax(1)
    errors.append([error_of(curve_of_votes(votes, labels, runs, 10, of)) for of in ("classes", "pairs")])
  single, together = (stats.calibration_curve(*group, of=of) for of in ("classes", "pairs"))
  se = np.asarray(stats.calibration_band(*group, key=jax.random.key(0)).se)
  laws = zip((single, together), np.mean(errors, 0), np.std(errors, 0, ddof=1), strict=True)
  return Classes(data, runs, shown, single, together, se, *(Error(error_of(curve), *law) for curve, *law in laws))


def error_of(curve: stats.CalibrationCurve) -> float:
  return float(np.nansum(curve.weight * abs(curve.accuracy - curve.confidence)))


def rows(numbers: Mapping[str, Classes]) -> list[Row]:
  """It holds where class by class the error exceeds a calibrated law's by more than CACE does."""
  made = []
  for n in numbers.values():
    for what, e in (("class by class", n.error), ("of all classes together, CACE", n.cace)):
      ours = f"{number(e.value, e.calibrated_sd)}; if calibrated {e.calibrated:.4f}"
      made.append(Row.of(f"calibration error {what}, {n.data}", None, ours, n.runs))
    more = (n.error.value - n.error.calibrated) - (n.cace.value - n.cace.calibrated)
    se = math.hypot(n.error.calibrated_sd, n.cace.calibrated_sd)
    holds = more > 2 * se
    made.append(Row.of(f"more class by class, beyond a calibrated law, {n.data}",
                       Printed("a lot more variance", "appendix D.7"), number(more, se), n.runs, holds,
                       "" if holds else "that the bins of one class hold fewer pairs accounts for it"))  # fmt: skip
  return made


def plot(numbers: Mapping[str, Classes], axes: np.ndarray) -> None:
  """For each data set some classes, drawn at random, and all together with a band of one standard error."""
  for ax, n in zip(axes, numbers.values(), strict=True):
    for k in n.shown:
      plots.calibration_curve(n.single.confidence[k], n.single.accuracy[k], ax, label=f"class {k}")
    x, y, se = n.together.confidence, n.together.accuracy, n.se
    plots.calibration_curve(x, y, ax, low=y - se, high=y + se, label=f"all {len(n.single.confidence)} classes")
    ax.set_title(f"{n.data}, {GROUP}, {n.runs} runs")
    ax.legend(frameon=False, fontsize="small", loc="upper left")


if __name__ == "__main__":
  frame.main(__file__)
