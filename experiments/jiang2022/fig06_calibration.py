"""Jiang 2022, figure 6: ensembles of runs are nearly calibrated, whatever varies between the runs.

Of the pairs of a test example and a class for which a fraction q of the runs votes, the class is right in about q.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from experiments import frame
from experiments.frame import Printed, Row, Trained, number
from experiments.jiang2022 import groups
from experiments.jiang2022.groups import Group
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Figure 6: class-aggregated calibration of ensembles"
PANELS = 2
PANEL = {"AllDiff": 0, "DiffData": 0, "DiffInit": 1, "DiffOrder": 1}
NEAR = 0.1  # "closely follows the x = y line": within the width of a bin


class Curve(NamedTuple):
  """A calibration curve. Standard errors are over test examples."""

  runs: int
  curve: stats.CalibrationCurve
  se: Float[np.ndarray, " bins"]  # of the accuracies, one bootstrap standard deviation: the paper's error bar
  too_certain: float  # by how much, on average over pairs with a confidence from 0.1 to 0.9
  too_certain_se: float


def compute(trained: Trained) -> dict[str, Curve]:
  return {name: calibration(group) for name, group in groups.read(trained, "cifar10").items()}


def calibration(group: Group) -> Curve:
  curve = stats.calibration_curve(*group)
  se = np.asarray(stats.calibration_band(*group, key=jax.random.key(0)).se)
  return Curve(len(group.predictions), curve, se, *too_certain(group))


def too_certain(group: Group) -> tuple[float, float]:
  """How far accuracies of middling confidences are on 1/2's side of y = x, and the standard error over examples.

  It is above 0 where runs are more alike than their ensemble's accuracy warrants, and 0 for a calibrated one.
  """
  confidence = stats.vote_fractions(group.predictions, group.num_classes)
  right = group.labels[:, None] == np.arange(group.num_classes)
  middling = (confidence > 0.1) & (confidence < 0.9)
  excess = np.where(middling, np.sign(confidence - 0.5) * (confidence - right), 0.0)
  mean = excess.sum() / middling.sum()
  by_example = (excess - mean * middling).sum(1)
  return float(mean), float(np.sqrt((by_example**2).sum()) / middling.sum())


def rows(numbers: Mapping[str, Curve], figure: int = 6) -> list[Row]:
  """It holds where the interval of two standard errors is within `NEAR` of 0, and does not where it is beyond."""
  printed = Printed("close to 0", f"section 5, figure {figure}")
  made = []
  for name, n in numbers.items():
    far, reach = abs(n.too_certain), 2 * n.too_certain_se
    holds = True if far + reach < NEAR else False if far - reach > NEAR else None
    way = "less" if n.too_certain > 0 else "more"
    why = {True: "", False: f"the ensemble is {way} often right than it is certain", None: "too few examples to tell"}
    made.append(Row.of(f"confidence too high above 1/2, too low below, {name}", printed,
                       number(n.too_certain, n.too_certain_se), n.runs, holds, why[holds]))  # fmt: skip
  return made


def plot(numbers: Mapping[str, Curve], axes: np.ndarray) -> None:
  """Groups with different training sets, and those with one; bands of one standard error."""
  for name, n in numbers.items():
    confidence, accuracy = n.curve.confidence, n.curve.accuracy
    low, high = accuracy - n.se, accuracy + n.se
    plots.calibration_curve(confidence, accuracy, axes[PANEL[name]], low=low, high=high, label=f"{name}, {n.runs} runs")
  for ax, title in zip(axes, ("different training sets", "one training set"), strict=True):
    ax.set_title(title)
    ax.legend(frameon=False, fontsize="small", loc="upper left")


if __name__ == "__main__":
  frame.main(__file__)
