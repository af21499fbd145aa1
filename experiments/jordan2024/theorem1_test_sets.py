"""Jordan 2024, theorems 1 and 2: test-set variance overestimates that on the
distribution; equation 3 does not.

The distribution is a large set of equally likely examples, and the runs at hand are all
that training can give. So the truth is known, and test sets can be drawn again and
again. Networks are trained on the 10,000 test images of MNIST; the distribution is its
60,000 training images.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from experiments.estimates import student_estimate
from experiments.frame import Row, Trained, rows_of
from experiments.jordan2024 import paper
from vmapseeds.reports import plots

TITLE = "Theorems 1 and 2: test sets drawn from a distribution that is known"
PANELS = 2
SIZES = (100, 300, 1000, 3000)
DRAWS = 400


class Drawn(NamedTuple):
  """Means and standard errors over test sets of one size, in squared fractions."""

  test_set: float  # of the variance over runs of the test-set error
  test_set_se: float
  estimate: float  # of equation 3
  estimate_se: float
  middle: tuple[float, float]  # equation 3's tenth and ninetieth percentile


class Known(NamedTuple):
  runs: int
  examples: int
  truth: float  # variance over runs of the error on the distribution
  of_examples: float  # mean over the distribution of each example's variance
  by_size: dict[int, Drawn]


def compute(trained: Trained) -> Known:
  return known(trained.errors("turned"))


def known(errors: Bool[np.ndarray, "runs examples"]) -> Known:
  """Population variances (ddof = 0): the runs are all that training can give."""
  runs, examples = errors.shape
  rates = errors.mean(0)
  rng = np.random.default_rng(0)
  by_size = {
    size: draw_test_sets(errors, size, rng) for size in SIZES if size <= examples
  }
  return Known(
    runs,
    examples,
    errors.mean(1).var(),
    (rates * (1 - rates)).mean(),
    by_size,
  )


def draw_test_sets(
  errors: Bool[np.ndarray, "runs examples"],
  size: int,
  rng: np.random.Generator,
) -> Drawn:
  """Draws test sets of independent examples, so that an example may be in one twice,
  and averages over them.
  """
  draws = np.array(
    [moments(errors[:, rng.integers(errors.shape[1], size=size)]) for _ in range(DRAWS)]
  )
  (test_set, estimate) = draws.mean(0)
  (test_set_se, estimate_se) = draws.std(0, ddof=1) / DRAWS**0.5
  return Drawn(
    test_set,
    test_set_se,
    estimate,
    estimate_se,
    tuple(np.percentile(draws[:, 1], [10, 90])),
  )


def moments(errors: Bool[np.ndarray, "runs examples"]) -> tuple[float, float]:
  """The variance of the test-set error, and equation 3."""
  n = errors.shape[1]
  rates = errors.mean(0)
  variance = errors.mean(1).var()
  return variance, n / (n - 1) * (variance - (rates * (1 - rates)).sum() / n**2)


def rows(numbers: Known) -> list[Row]:
  lines = []
  for size, n in numbers.by_size.items():
    over = student_estimate(n.test_set / numbers.truth, n.test_set_se / numbers.truth)
    estimate = student_estimate(
      n.estimate / numbers.truth, n.estimate_se / numbers.truth
    )
    lines += rows_of(
      numbers.runs,
      (
        f"theorem 1: variance on {size:,} examples over that on the distribution",
        paper.STATED["theorem 1"],
        over,
      ),
      (
        f"theorem 2: equation 3 on {size:,} examples over the truth, mean of {DRAWS} test sets",
        paper.STATED["theorem 2"],
        estimate,
      ),
    )
  return sorted(lines, key=lambda row: row.where)


def plot(numbers: Known, axes: np.ndarray) -> None:
  test_set_ax, estimate_ax = axes
  sizes = list(numbers.by_size)
  numbers_by_size = list(numbers.by_size.values())
  grid = np.geomspace(sizes[0], sizes[-1], 100)
  scale = 1e6
  expected = (1 - 1 / grid) * numbers.truth + numbers.of_examples / grid
  test_set_ax.plot(grid, scale * expected, color=plots.BLUE, label="lemma 2")
  test_set_ax.plot(
    sizes,
    [scale * n.test_set for n in numbers_by_size],
    "o",
    color=plots.BLUE,
    label="test set, mean of draws",
  )
  low, high = scale * np.array([n.middle for n in numbers_by_size]).T
  estimate = np.array([scale * n.estimate for n in numbers_by_size])
  estimate_ax.errorbar(
    sizes,
    estimate,
    [estimate - low, high - estimate],
    color=plots.GREEN,
    marker="s",
    capsize=3,
    linestyle="none",
    label="equation 3: mean, 10 to 90 % of test sets",
  )
  for ax in axes:
    ax.axhline(
      scale * numbers.truth,
      color=plots.INK,
      linestyle="--",
      label="on the distribution",
    )
    ax.set(xscale="log", xlabel="test examples", ylabel="variance of the error (10⁻⁶)")
    ax.grid(True)
    ax.legend()
  test_set_ax.set_yscale("log")
