"""Jordan 2024, theorems 3 to 5: what class-wise calibration says of variance and
disagreement.

Theorem 3, two classes: the mean variance on test sets of n examples is err/(2n) + (1 -
  1/n) Var(err). Theorem 4, k
classes: it is at least err/(n k). Theorem 5: two runs disagree as often as one errs.
  The networks are those of theorem
1. Their predictions are taken in ten classes, and in two: even and odd digits.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from experiments.estimates import student_estimate
from experiments.frame import Row, Trained, format_number, row
from experiments.jordan2024 import paper
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Theorems 3 to 5: calibration implies variance"
PANELS = 3
SIZES = (100, 1000)


class Calibrated(NamedTuple):
  """Statistics of predictions in k classes. Means are over the distribution; variances
  are over runs and unbiased.
  """

  runs: int
  classes: int
  error: float
  disagreement: float
  gap_se: float  # of error - disagreement, over runs
  of_examples: float  # mean variance of an example's error
  variance: float  # over runs, on the distribution
  variance_se: float
  curve: stats.CalibrationCurve
  cace: float


def compute(trained: Trained) -> dict[str, Calibrated]:
  results = trained("turned")
  predictions = results.predictions.values[~results.diverged.values]
  labels = results.labels.values
  classes = int(results.attrs["num_classes"])
  return {
    "two classes": measure_calibration(predictions % 2, labels % 2, 2),
    f"{classes} classes": measure_calibration(predictions, labels, classes),
  }


def measure_calibration(
  predictions: Int[np.ndarray, "runs examples"],
  labels: Int[np.ndarray, " examples"],
  classes: int,
) -> Calibrated:
  errors = predictions != labels
  runs = len(errors)
  rates = errors.mean(0)
  variance = stats.distribution_variance(errors)
  return Calibrated(
    runs,
    classes,
    errors.mean(),
    stats.expected_disagreement(predictions, classes).value,
    stats.gde_gap(predictions, labels, classes).se,
    ((rates * (1 - rates)).mean() * runs / (runs - 1)),
    variance.value,
    variance.se,
    stats.calibration_curve(predictions, labels, classes),
    stats.cace(predictions, labels, classes),
  )


def on_test_sets(n: Calibrated, size: int) -> float:
  """The mean variance on test sets of `size` examples by lemma 2, which needs no
  calibration.
  """
  return (1 - 1 / size) * n.variance + n.of_examples / size


def rows(numbers: dict[str, Calibrated]) -> list[Row]:
  two, many = numbers.values()
  lines = []
  for words, n in numbers.items():
    ratio = n.disagreement / n.error
    se = n.gap_se / n.error
    lines.append(
      row(
        f"theorem 5: disagreement over error, {words}",
        paper.STATED["theorem 5"],
        student_estimate(ratio, se),
        n.runs,
      )
    )
  for size in SIZES:
    observed = on_test_sets(two, size)
    expected = two.error / (2 * size) + (1 - 1 / size) * two.variance
    # Both contain the same variance on the distribution. With two classes they differ
    # only by the gap of theorem 5.
    ratio = observed / expected
    se = two.gap_se / 2 / size / expected
    lines.append(
      row(
        f"theorem 3: variance on {size:,} examples over err/(2n) + (1 - 1/n) Var(err)",
        ("1", "theorem 3; it says what theorem 5 says"),
        format_number(ratio, se),
        two.runs,
      )
    )
  for size in SIZES:
    least = stats.calibration_variance_bound(many.error, size, many.classes)
    ratio = on_test_sets(many, size) / least
    se = (1 - 1 / size) * many.variance_se / least
    lines.append(
      row(
        f"theorem 4: variance on {size:,} examples over err/(n k)",
        paper.STATED["theorem 4"],
        student_estimate(ratio, se),
        many.runs,
      )
    )
  return sorted(lines, key=lambda row: row.where)


def plot(numbers: dict[str, Calibrated], axes: np.ndarray) -> None:
  *lines, right = axes
  grid = np.geomspace(SIZES[0], SIZES[-1], 50)
  for ax, (words, n), theorem in zip(
    lines,
    numbers.items(),
    ("theorem 3", "theorem 4"),
    strict=True,
  ):
    expected = n.error / (n.classes * grid)
    label = "at least err/(n k)"
    if n.classes == 2:
      expected = expected + (1 - 1 / grid) * n.variance
      label = "err/(2n) + (1 - 1/n) Var(err)"
    observed = [1e6 * on_test_sets(n, size) for size in SIZES]
    ax.plot(SIZES, observed, "o", color=plots.BLUE, label="networks")
    ax.plot(grid, 1e6 * expected, color=plots.VERMILION, linestyle="--", label=label)
    ax.set(
      xscale="log",
      yscale="log",
      xlabel="test examples",
      ylabel="variance of the error (10⁻⁶)",
    )
    ax.set_title(f"{theorem}, {words}")
    ax.grid(True)
    ax.legend()
  for words, n in numbers.items():
    plots.calibration_plot(n.curve.confidence, n.curve.accuracy, right, label=words)
  right.set_title("class-wise calibration (definition 2)")
