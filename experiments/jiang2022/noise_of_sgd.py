"""When does the disagreement of two runs tell their test error? A law of learning rate,
batch size and depth, from the runs of figure 10.

    python -m experiments.jiang2022.noise_of_sgd     the law, from the kept runs of docs/gallery
    python -m experiments.jiang2022.noise_of_sgd --check results/noise --pairs 2    trains other runs, to check it

The two runs differ in what a group says, in the order of the data alone for the law. At
each of 384 settings there is one pair of each group; all have the same training set and
the same seeds. The check has other seeds and training sets, other batch sizes and rates,
and runs without momentum.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import scipy.optimize
import scipy.stats
from jaxtyping import Float

import vmapseeds as vs
from experiments import frame, pages
from experiments.jiang2022.fig01 import training_sets
from vmapseeds.cli import one_line_errors
from vmapseeds.flags import metavar, parse_flags
from vmapseeds.store import files

SCATTER = "jiang2022/fig01"
NUMBERS = "noise_of_sgd/numbers"
MOMENTUM = 0.9  # of the runs of figure 10
# Settings of the check: two hidden layers of 128 units, no weight decay.
CHECKED = {
  "momentum": [0.0, MOMENTUM],
  "batch_size": [50, 400],
  "lr": [0.1, 0.03],
}
LEARNT = 0.15  # a run that errs more often has failed


class Points(NamedTuple):
  """A pair of runs at each setting."""

  rate: Float[np.ndarray, " settings"]
  batch: Float[np.ndarray, " settings"]
  depth: Float[np.ndarray, " settings"]
  width: Float[np.ndarray, " settings"]
  decay: Float[np.ndarray, " settings"]
  ratio: dict[str, Float[np.ndarray, " settings"]]  # error ÷ disagreement, by group


class Coefficient(NamedTuple):
  """A coefficient with its 95 % interval: settings that differ in their rate alone err
  together.
  """

  value: float
  low: float
  high: float


class Law(NamedTuple):
  """error ÷ disagreement = 1 + exp(constant + exponent log(rate ÷ batch) + depth ×
  layers), by least squares of its logarithm.
  """

  constant: Coefficient
  exponent: Coefficient
  depth: Coefficient
  r_squared: float  # of the logarithm
  scatter: float  # standard deviation of what is left of the logarithm
  # Standard deviation of the logarithm from a law of the other rates
  left_out: float
  rate: Coefficient  # exponents where rate and batch size count apart
  batch: Coefficient
  # A power law without the 1: what it leaves, and leaves of rates left out
  power_scatter: float
  power_left_out: float


class Checked(NamedTuple):
  """Pairs of the check at one setting."""

  momentum: float
  batch: float
  rate: float
  ratios: list[float]  # of each pair
  failed: int  # pairs of which a run did not learn
  predicted: float  # by the law, at rate ÷ (1 - momentum)


class Numbers(NamedTuple):
  points: Points
  law: Law
  slopes: dict[str, Coefficient]  # of log ratio against log(rate ÷ batch), by group
  checks: list[Checked]


def points_of(records: pages.Records) -> Points:
  """Return the pairs of figure 10, with their settings."""
  record = records[SCATTER]
  swept = {name: np.array(values, float) for name, values in record["settings"].items()}
  (error,) = np.array(record["error"])
  ratio = {group: error / x[0] for group, x in record["disagreement"].items()}
  columns = ("lr", "batch_size", "depth", "width", "weight_decay")
  return Points(*(swept[name] for name in columns), ratio)


def fit_law(points: Points) -> Law:
  """Fit the ratio of runs that differ in their order alone."""
  y = np.log(points.ratio["DiffOrder"])
  ones = np.ones_like(y)
  rate, batch = np.log(points.rate), np.log(points.batch)
  together = np.stack([ones, rate - batch, points.depth], 1)
  apart = np.stack([ones, rate, batch, points.depth], 1)
  clusters = alike(points)
  constant, exponent, depth = least_squares(above_one, together, y, clusters)
  _, of_rate, of_batch, _ = least_squares(above_one, apart, y, clusters)
  found = [constant.value, exponent.value, depth.value]
  left = y - above_one(together, found)
  line, *_ = np.linalg.lstsq(together, y, rcond=None)
  return Law(
    constant,
    exponent,
    depth,
    r_squared=1 - left.var() / y.var(),
    scatter=left.std(ddof=3),
    left_out=miss_of_left_out(above_one, together, y, points.rate),
    rate=of_rate,
    batch=of_batch,
    power_scatter=(y - together @ line).std(ddof=3),
    power_left_out=miss_of_left_out(linear, together, y, points.rate),
  )


def alike(points: Points) -> np.ndarray:
  """Return a number for each setting that settings of other rates share."""
  settings = np.stack([points.batch, points.depth, points.width, points.decay], 1)
  _, clusters = np.unique(settings, axis=0, return_inverse=True)
  return clusters.ravel()


def slope(points: Points, group: str) -> Coefficient:
  """Return the slope of a group's log ratio, at equal depth."""
  noise = np.log(points.rate / points.batch)
  x = np.stack([np.ones_like(noise), noise, points.depth], 1)
  _, found, _ = least_squares(linear, x, np.log(points.ratio[group]), alike(points))
  return found


def linear(x: np.ndarray, coefficients: Sequence[float]) -> np.ndarray:
  return x @ np.asarray(coefficients)


def above_one(x: np.ndarray, coefficients: Sequence[float]) -> np.ndarray:
  """Return the logarithm of a ratio whose excess over 1 is a power law."""
  return np.log1p(np.exp(x @ np.asarray(coefficients)))


def minimum(law: Callable, x: np.ndarray, y: np.ndarray) -> np.ndarray:
  """Return the coefficients of least squares."""
  start, *_ = np.linalg.lstsq(x, y, rcond=None)
  return scipy.optimize.least_squares(lambda c: law(x, c) - y, start).x


def least_squares(
  law: Callable,
  x: Float[np.ndarray, "points columns"],
  y: Float[np.ndarray, " points"],
  clusters: np.ndarray,
) -> list[Coefficient]:
  """Return coefficients with intervals that allow points of a cluster to err together
  (Liang and Zeger 1986).
  """
  start, *_ = np.linalg.lstsq(x, y, rcond=None)
  fit = scipy.optimize.least_squares(lambda c: law(x, c) - y, start)
  inverse = np.linalg.inv(fit.jac.T @ fit.jac)
  numbers = np.unique(clusters)
  scores = [fit.jac[clusters == c].T @ fit.fun[clusters == c] for c in numbers]
  covariance = inverse @ np.transpose(scores) @ scores @ inverse
  count = len(numbers)
  se = np.sqrt(np.diag(covariance) * count / (count - 1))
  reach = scipy.stats.t.isf(0.025, count - 1) * se
  return [Coefficient(v, v - r, v + r) for v, r in zip(fit.x, reach, strict=True)]


def miss_of_left_out(
  law: Callable,
  x: np.ndarray,
  y: np.ndarray,
  rates: np.ndarray,
) -> float:
  """Return how far each rate's points are from the law of the others, root mean square."""
  misses = []
  for rate in np.unique(rates):
    others = rates != rate
    found = minimum(law, x[others], y[others])
    misses.append(y[~others] - law(x[~others], found))
  return float(np.sqrt(np.mean(np.concatenate(misses) ** 2)))


def predict(
  law: Law,
  rate: np.ndarray | float,
  batch: np.ndarray | float,
  depth: np.ndarray | float,
) -> np.ndarray:
  """Return the ratio that a law gives."""
  noise = np.log(rate / batch)
  log = law.constant.value + law.exponent.value * noise + law.depth.value * depth
  return 1 + np.exp(log)


# The check.


def check_runs(pairs: int) -> vs.Runs:
  """Return pairs of runs that differ in their order, each with a training set of its own."""
  sets = training_sets(60_000, 2000, 2 * pairs + 2)
  rows = []
  for pair in range(1, pairs + 1):
    shared, other = 2 * pair, 2 * pair + 1
    first = vs.Runs.vary("init", 1, start=shared, fixed=shared)
    partner = vs.Runs.vary("order", 1, start=other, fixed=shared)
    rows += [first.subset(sets[shared]), partner.subset(sets[shared])]
  return vs.Runs.sweep(seeds=vs.Runs.concat(rows), **CHECKED)


def train_check(folder: str, pairs: int) -> list[dict]:
  """Train the runs that are missing, and return error and disagreement of each pair."""
  recipe = vs.recipe("mlp_cifar10", name="mlp_mnist", dataset="mnist", depth=2, lr=0.1)
  results = vs.train(recipe, check_runs(pairs), folder)
  predictions = results.predictions.values
  settings = len(predictions) // (2 * pairs)
  by_pair = predictions.reshape(pairs, 2, settings, -1)
  wrong = (by_pair != results.labels.values).mean(-1)
  differ = (by_pair[:, 0] != by_pair[:, 1]).mean(-1)
  values = {name: results[name].values[:settings].tolist() for name in CHECKED}
  found = []
  for place in range(settings):
    setting = {name: column[place] for name, column in values.items()}
    for pair in range(pairs):
      found.append(
        setting
        | {"error": wrong[pair, :, place].tolist(), "disagreement": differ[pair, place]}
      )
  return found


def checked(law: Law, found: Sequence[Mapping]) -> list[Checked]:
  """Return the pairs of the check by setting, beside what the law says."""
  settings: dict[tuple, list[float | None]] = {}
  for each in found:
    pairs = settings.setdefault((each["momentum"], each["batch_size"], each["lr"]), [])
    has_learnt = max(each["error"]) < LEARNT
    pairs.append(each["error"][0] / each["disagreement"] if has_learnt else None)
  checks = []
  for (momentum, batch, rate), pairs in settings.items():
    ratios = [ratio for ratio in pairs if ratio is not None]
    # As large a step in the long run, in the units of the law's runs
    alike = rate * (1 - MOMENTUM) / (1 - momentum)
    predicted = float(predict(law, alike, batch, 2))
    failed = len(pairs) - len(ratios)
    checks.append(Checked(momentum, batch, rate, ratios, failed, predicted))
  return checks


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
  """Fits the law of error over disagreement, and trains runs to check it."""

  check: Annotated[str | None, metavar("DIR", "none is trained")] = None
  """folder of the runs that check the law; run again to resume"""

  pairs: frame.Count = 2
  """pairs of the check at each setting"""

  out: Annotated[Path, metavar("DIR")] = pages.GALLERY
  """the gallery's folder"""


def main(argv: Sequence[str] | None = None) -> None:
  with one_line_errors():
    prog = "python -m experiments.jiang2022.noise_of_sgd"
    flags = parse_flags(Flags, argv, prog=prog, description=__doc__)
    path = flags.out / "noise_of_sgd" / "check.json"
    if flags.check:
      found = train_check(flags.check, flags.pairs)
      files.write(path, (json.dumps(found, indent=1) + "\n").encode())
    exponent = recompute(flags.out).law.exponent
    print("exponent {:.3f} [{:.3f}, {:.3f}]".format(*exponent))


def recompute(out: Path) -> Numbers:
  """Write the numbers of the page anew, from the record of figure 10 and the check."""
  records = pages.Records(out)
  points = points_of(records)
  law = fit_law(points)
  slopes = {group: slope(points, group) for group in points.ratio}
  checks = []
  path = out / "noise_of_sgd" / "check.json"
  if path.exists():
    checks = checked(law, json.loads(path.read_text()))
  numbers = Numbers(points, law, slopes, checks)
  text = json.dumps(frame.plain(numbers), indent=1, allow_nan=False) + "\n"
  files.write(out / f"{NUMBERS}.json", text.encode())
  return numbers


if __name__ == "__main__":
  main()
