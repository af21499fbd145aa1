"""What the scripts of figures share: flags, rows, and how numbers and picture are saved."""

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from experiments.estimates import Estimate
from vmapseeds import stats


def make_parser(doc: str | None, paper: str, runs: int) -> argparse.ArgumentParser:
  """Return the flags that every script of a paper has."""
  parser = argparse.ArgumentParser(
    description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  folder = Path("results", paper)
  parser.add_argument("--runs", type=int, default=runs, help=f"{runs} if not given")
  parser.add_argument("--seed-batch", type=int, help="runs between two writes")
  parser.add_argument("--runs-in", type=Path, default=folder, help="folder of runs")
  parser.add_argument("--kept", type=Path, help="folder of kept runs: trains nothing")
  parser.add_argument("--out", type=Path, default=folder, help="folder of numbers")
  return parser


def row(quantity: str, estimate: Estimate, runs: int | str) -> dict[str, Any]:
  """Return a row of a figure's numbers, fractions with the unit "%" as per cent."""
  scale, unit = (100, " %") if estimate.unit == "%" else (1, estimate.unit)
  value, low, high = (scale * float(x) for x in estimate[:3])
  ends = {"value": value, "low": low, "high": high, "unit": unit}
  return {"quantity": quantity, **ends, "runs": runs}


def of_runs(found: Any, unit: str = "") -> Estimate:
  """Return a statistic of `vmapseeds.stats` with its interval."""
  return Estimate(float(found), *map(float, found.interval), unit)


def mean_and_sd(accuracies: Any) -> tuple[Estimate, Estimate]:
  """Return the mean and the standard deviation of runs' accuracies, in per cent."""
  mean = of_runs(stats.mean_over_runs(accuracies), "%")
  variance = of_runs(stats.variance_over_runs(accuracies))
  return mean, root_of(variance)


def root_of(variance: Estimate) -> Estimate:
  """Return the standard deviation of a variance, in per cent; 0 where that is below 0."""
  return Estimate(*np.sqrt(np.clip(variance[:3], 0, None)), "%")


def exactly(value: float, unit: str = "") -> Estimate:
  """Return a number that is known, or that has no interval."""
  return Estimate(value, value, value, unit)


def save(
  name: str,
  numbers: Mapping[str, Any],
  draw: Callable[[Any], plt.Figure],
  out: Path,
  paper: object,
) -> None:
  """Save a figure's numbers and its picture, and print its rows above the paper's."""
  out.mkdir(parents=True, exist_ok=True)
  write_numbers(out / f"{name}.json", numbers)
  # As they are read again: names are words there.
  figure = draw(json.loads((out / f"{name}.json").read_text()))
  figure.savefig(out / f"{name}.png")
  plt.close(figure)
  for each in numbers["rows"]:
    print(*each.values(), sep="  ")
  print("the paper:", paper)


def write_numbers(path: Path, numbers: Mapping[str, Any]) -> None:
  """Write a figure's numbers, arrays as lists."""
  path.write_text(json.dumps(numbers, default=as_list) + "\n")


def as_list(x: Any) -> Any:
  """Return an array or a number of NumPy as JSON has it, to six digits."""
  if not isinstance(x, np.ndarray | np.generic):
    raise TypeError(f"{type(x).__name__} is not of JSON")
  return np.asarray(x).round(6).tolist()
