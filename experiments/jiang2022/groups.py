"""The runs of an ensemble, by what varies between them."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from jaxtyping import Int
from matplotlib.axes import Axes

from experiments.frame import Trained
from experiments.jiang2022.campaigns import GROUPS, ensemble_campaigns
from vmapseeds.reports import plots

COLORS = dict(zip(GROUPS, plots.PALETTE, strict=False))


class Group(NamedTuple):
  """Predictions of the runs that did not diverge, as functions of `vmapseeds.stats`
  take them.
  """

  predictions: Int[np.ndarray, "runs examples"]
  labels: Int[np.ndarray, " examples"]
  num_classes: int


def read_groups(trained: Trained, data: str) -> dict[str, Group]:
  """The groups of the ensemble that stands for the paper's data `of`."""
  return {
    group: read_group(trained, name)
    for group, name in ensemble_campaigns(trained.scale, data).items()
  }


def read_group(trained: Trained, name: str) -> Group:
  """The runs of one campaign."""
  results = trained(name)
  kept = ~results.diverged.values
  return Group(
    results.predictions.values[kept],
    results.labels.values,
    results.attrs["num_classes"],
  )


def computed(
  data: str,
  function: Callable[[Group], Any],
) -> Callable[[Trained], dict[str, Any]]:
  """Return a figure's `compute`: `function` of each group of the paper's data `of`."""

  def compute(trained: Trained) -> dict[str, Any]:
    return {name: function(group) for name, group in read_groups(trained, data).items()}

  result_type = get_type_hints(function)["return"]
  compute.__annotations__["return"] = dict[str, result_type]
  return compute


def plot_fields(
  numbers: Mapping[str, Any],
  ax: Axes,
  labels: Mapping[str, str],
  markers: str,
  scale: float = 1,
  **style: Any,
) -> None:
  """Draw some fields of each group's numbers, side by side."""
  x = range(len(numbers))
  for (field, label), marker, color in zip(
    labels.items(),
    markers,
    plots.PALETTE,
    strict=False,
  ):
    values = [scale * getattr(n, field) for n in numbers.values()]
    ax.plot(x, values, marker, color=color, label=label, **style)
  ax.set_xticks(x, list(numbers))
