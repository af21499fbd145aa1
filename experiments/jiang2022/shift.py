"""Runs that are trained on one domain and tested on each."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from experiments import measures
from experiments.frame import Trained
from experiments.jiang2022.campaigns import SCALES
from experiments.jiang2022.domains import DOMAINS
from experiments.jiang2022.groups import Group
from vmapseeds import stats
from vmapseeds.reports import plots

MISSING = (
  "PACS, and networks pretrained on ImageNet. The domains here are clean, blurred, noisy and inverted images of one "
  "data set, and all networks begin from random weights"
)
MARKERS = dict(zip(DOMAINS, "osD^", strict=True))  # by source


class DomainTransfer(NamedTuple):
  """Runs trained on a source and tested on a target. Standard errors are over runs;
  CACE's is by the bootstrap.
  """

  runs: int
  errors: Float[np.ndarray, " runs"]
  disagreement: Float[np.ndarray, " pairs"]
  # Between the mean error and the mean disagreement of all pairs of distinct runs
  gap: float
  gap_se: float
  cace: float
  cace_se: float
  calibrated: (
    float  # CACE of as many runs drawn from a perfectly calibrated distribution
  )

  @property
  def error(self) -> Float[np.ndarray, " pairs"]:
    """The error of each pair's first run."""
    return self.errors[0::2]


Transfers = Mapping[str, Mapping[str, DomainTransfer]]  # by source, and by target


def compute(trained: Trained) -> dict[str, dict[str, DomainTransfer]]:
  by_source: dict[str, dict[str, DomainTransfer]] = {}
  for source, name in SCALES[trained.scale].shift.campaigns().items():
    for target in DOMAINS:
      results = trained(name, target)
      whole = np.repeat(~results.diverged.values.reshape(-1, 2).any(1), 2)
      group = Group(
        results.predictions.values[whole],
        results.labels.values,
        results.attrs["num_classes"],
      )
      by_source.setdefault(source, {})[target] = transfer(group)
  return by_source


def transfer(group: Group) -> DomainTransfer:
  """The numbers of pairs of which no run diverged. Rows 2i and 2i + 1 are a pair."""
  predictions, labels, classes = group
  runs = len(predictions)
  key = jax.random.key(0)
  spread = measures.bootstrap(*group, key=key, replicates=200)
  law = stats.finite_ensemble_calibration(
    stats.vote_fractions(predictions, classes),
    runs,
    key=key,
    replicates=10,
  )
  gap = stats.gde_gap(*group)
  return DomainTransfer(
    runs,
    stats.error_rates(predictions != labels),
    stats.churn(predictions[0::2], predictions[1::2]),
    gap.value,
    gap.se,
    stats.cace(*group),
    spread["cace"].se,
    law.cace,
  )


def each(numbers: Transfers) -> list[tuple[str, str, DomainTransfer]]:
  """All transfers, each after its source and target."""
  return [
    (source, target, n)
    for source, by_target in numbers.items()
    for target, n in by_target.items()
  ]


def plot(
  numbers: Transfers,
  axes: np.ndarray,
  draw: Callable[[DomainTransfer], tuple],
) -> None:
  """One panel per target, one marker and colour per source. `draw` gives x and y."""
  for ax, target in zip(axes, DOMAINS, strict=True):
    for (source, marker), color in zip(MARKERS.items(), plots.PALETTE, strict=False):
      ax.plot(
        *draw(numbers[source][target]),
        marker,
        color=color,
        alpha=0.8,
        markersize=6,
        label=f"trained on {source}",
      )
    ax.set_title(f"tested on {target}", fontsize="medium")


def diagonal(ax: Axes, label: str) -> None:
  """Draws the line y = x, and gives both axes the same limits."""
  top = max(ax.get_xlim()[1], ax.get_ylim()[1])
  ax.plot(
    [0, top],
    [0, top],
    color=plots.INK,
    linestyle="--",
    linewidth=1,
    zorder=0,
    label=label,
  )
  ax.set_xlim(0, top)
  ax.set_ylim(0, top)
