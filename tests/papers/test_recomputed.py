"""Numbers of the pages again, from the kept files, by NumPy alone: nothing of
`experiments` or of `vmapseeds` is imported.
"""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

GALLERY = Path(__file__).parents[2] / "docs" / "gallery"


def page(folder: str) -> str:
  return (GALLERY / folder / "index.md").read_text()


def errors_after(epochs: int, study: str = "mnist") -> np.ndarray:
  """Return which images each run has wrong: (runs, images)."""
  parts = []
  for path in (GALLERY / study).glob(f"predictions-{epochs}-*.npz"):
    with np.load(path) as file:
      parts.append((file["predictions"] != file["labels"][:, None]).T)
  return np.concatenate(parts)


@pytest.mark.parametrize(("epochs", "ratio"), [(1, "2.11 ["), (12, "1.473 [")])
def test_variance_over_that_of_independent_errors(epochs, ratio):
  wrong = errors_after(epochs)
  runs, images = wrong.shape
  rate = wrong.mean(0)
  independent = (rate * (1 - rate)).sum() * runs / (runs - 1) / images**2
  found = wrong.mean(1).var(ddof=1) / independent
  digits = len(ratio) - len("2. [")
  assert f"{found:.{digits}f} [" == ratio
  assert f"| {ratio}" in page("jordan2024")


def test_halves_and_the_share_on_the_distribution():
  wrong = errors_after(12)
  even, odd = wrong[:, ::2].mean(1), wrong[:, 1::2].mean(1)
  assert f"{np.corrcoef(even, odd)[0, 1]:.3f} [" in page("jordan2024")
  # Covariance of different images: that of halves is a quarter of all such pairs.
  images = wrong.shape[1]
  of_runs = wrong.sum(1) - wrong.sum(1).mean()
  rate = wrong.mean(0)
  of_images = (rate * (1 - rate)).sum() * len(wrong) / (len(wrong) - 1)
  of_pairs = (of_runs @ of_runs) / (len(wrong) - 1) - of_images
  distribution = of_pairs / (images * (images - 1))
  share = distribution / wrong.mean(1).var(ddof=1)
  assert f"{100 * share:.1f} [" in page("jordan2024")


def star_points() -> dict[str, np.ndarray]:
  """Return error and disagreement of each of Jiang's settings, and the settings."""
  parts = sorted(
    (GALLERY / "jiang2022").glob("*mlp_rates*.npz"),
    key=lambda path: int(path.stem.partition("4753ff5d")[2].strip("-") or 0),
  )
  files = [np.load(path) for path in parts]
  predictions = np.concatenate([file["predictions"].T for file in files])
  labels = files[0]["labels"]
  # A first run and five partners of each setting; the fourth differs in its order.
  stars = predictions.reshape(6, -1, len(labels))
  settings = np.array(
    [*itertools.product((1, 2, 3, 4), (1, 2, 3, 4), (100, 200, 300), (0, 1), range(4))]
  )
  return {
    "error": (stars[0] != labels).mean(1),
    "order": (stars[0] != stars[4]).mean(1),
    "all": (stars[0] != stars[1]).mean(1),
    "depth": settings[:, 0].astype(float),
    "batch": settings[:, 2].astype(float),
    "rate": np.array([0.1, 0.05, 0.02, 0.01])[settings[:, 4]],
  }


def test_the_law_of_noise_by_gauss_newton():
  points = star_points()
  y = np.log(points["error"] / points["order"])
  noise = np.log(points["rate"] / points["batch"])
  x = np.stack([np.ones_like(y), noise, points["depth"]], 1)
  coefficients = np.array([-5.0, -0.8, -0.3])
  for _ in range(50):
    excess = np.exp(x @ coefficients)
    slopes = x * (excess / (1 + excess))[:, None]
    left = y - np.log1p(excess)
    coefficients = coefficients + np.linalg.lstsq(slopes, left, rcond=None)[0]
  law = json.loads((GALLERY / "noise_of_sgd" / "numbers.json").read_text())["law"]
  for name, value in zip(("constant", "exponent", "depth"), coefficients, strict=True):
    assert law[name]["value"] == pytest.approx(value, abs=1e-4)
  assert law["r_squared"] == pytest.approx(1 - left.var() / y.var(), abs=1e-6)
  assert f"a = {-coefficients[1]:.3f} [" in page("noise_of_sgd")


def test_r_squared_over_configurations():
  points = star_points()
  at = points["rate"] == 0.1
  assert at.sum() == 96
  for partner in ("all", "order"):
    r = np.corrcoef(points["error"][at], points[partner][at])[0, 1]
    assert f"| {r**2:.2f} [" in page("jiang2022")


def test_calibration_of_all_sets_of_three():
  """Ten bins of the confidence in the ensemble's class, as in the paper."""
  logits = []
  for path in sorted(
    (GALLERY / "banerjee2024").glob("*S_all*.npz"),
    key=lambda path: int(path.stem.partition("29cda917")[2].strip("-") or 0),
  ):
    with np.load(path) as file:
      logits.append(file["logits"][:, :, 0].astype(np.float64))
      labels = file["labels"]
  gaps = np.concatenate(logits)[15:]  # the second half has the candidates
  ece = []
  for some in itertools.combinations(range(15), 3):
    gap = gaps[list(some)].mean(0)
    confidence = 1 / (1 + np.exp(-np.abs(gap)))
    right = (gap > 0) == labels
    bins = np.minimum((10 * confidence).astype(int), 9)
    off = np.bincount(bins, right - confidence, minlength=10)
    ece.append(np.abs(off).sum() / len(labels))
  assert f"| {100 * np.mean(ece):.2f} [" in page("banerjee2024")
