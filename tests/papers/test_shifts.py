"""Shifted test sets against loops over images and pixels, and where their names lead."""

from unittest import mock

import numpy as np
import pytest
import scipy.signal

import vmapseeds as vs
from experiments import shifts
from experiments.jiang2022 import fig05
from experiments.shifts import SHIFTS, apply_shift

LOW, HIGH = 3.0, 241.0


def images(n=2, shape=(7, 5, 3), dtype=np.uint8):
  return (
    np.random.default_rng(0)
    .integers(LOW, HIGH, (n, *shape), endpoint=True)
    .astype(dtype)
  )


def blurred(x, sigma):
  """A two-dimensional Gaussian convolution of the image, padded by repeating its border
  pixels.
  """
  reach = round(4 * sigma)
  line = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
  kernel = np.outer(line, line) / line.sum() ** 2
  padded = np.pad(x, ((reach, reach), (reach, reach), (0, 0)), mode="edge")
  return np.stack(
    [
      scipy.signal.convolve2d(padded[..., c], kernel, "valid")
      for c in range(x.shape[-1])
    ],
    -1,
  )


def less_contrast(x, factor):
  out = np.empty_like(x)
  for c in range(x.shape[-1]):
    mean = sum(x[..., c].ravel()) / x[..., c].size
    out[..., c] = factor * x[..., c] + (1 - factor) * mean
  return out


LOOPS = {
  "blur-1": lambda x: blurred(x, 0.4),
  "blur": lambda x: blurred(x, 0.7),
  "blur-5": lambda x: blurred(x, 1.0),
  "contrast": lambda x: less_contrast(x, 0.4),
  "contrast-5": lambda x: less_contrast(x, 0.15),
  "inversion": lambda x: HIGH - (x - LOW),
}


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("name", LOOPS)
def test_a_shift_is_what_its_formula_says(name, n):
  for shape in ((7, 5, 3), (1, 1, 1), (28, 28, 1)):
    real = images(n, shape, np.float32)
    exact = np.array([LOOPS[name](x.astype(float)) for x in real]).reshape(real.shape)
    found = apply_shift(real, name, LOW, HIGH)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, exact.clip(LOW, HIGH), rtol=1e-5)
    whole = apply_shift(real.astype(np.uint8), name, LOW, HIGH)
    assert whole.dtype == np.uint8
    assert (np.abs(whole - exact) <= 0.5 + 1e-9).all(), "rounded"


@pytest.mark.parametrize(
  ("name", "size"), [("translation-1", 2), ("translation", 4), ("translation-5", 6)]
)
def test_a_translation_moves_every_image_along_both_axes(name, size):
  real = images(40, (9, 8, 2))
  moves, found = set(), apply_shift(real, name, LOW, HIGH)
  for before, after in zip(real, found, strict=True):
    expected = {}
    for down in (-size, size):
      for right in (-size, size):
        moved = np.full_like(before, LOW)
        for i in range(9):
          for j in range(8):
            if 0 <= i - down < 9 and 0 <= j - right < 8:
              moved[i, j] = before[i - down, j - right]
        expected[down, right] = moved
    moves |= {move for move, moved in expected.items() if (moved == after).all()}
    assert any((moved == after).all() for moved in expected.values())
  assert len(moves) == 4, "every direction occurs"
  np.testing.assert_array_equal(apply_shift(real[:2], name, LOW, HIGH), found[:2])
  assert (apply_shift(images(1, (2, 3, 1)), name, LOW, HIGH) == LOW).all(), (
    "moved out of the image"
  )


@pytest.mark.parametrize(
  ("name", "part"), [("noise-1", 0.04), ("noise", 0.08), ("noise-5", 0.1)]
)
def test_noise_is_normal_independent_and_fixed(name, part):
  grey = np.full((50, 8, 8, 3), 128.0, np.float32)
  found = apply_shift(grey, name, 0.0, 255.0)
  e = (found - grey) / (part * 255)
  # Four standard errors of 9,600 draws.
  assert abs(e.mean()) < 4 / np.sqrt(e.size)
  assert abs(e.var() - 1) < 4 * np.sqrt(2 / e.size)
  assert abs((e**4).mean() - 3) < 4 * np.sqrt(96 / e.size)
  for a, b in (
    (e[1:], e[:-1]),
    (e[:, 1:], e[:, :-1]),
    (e[:, :, 1:], e[:, :, :-1]),
    (e[..., 1:], e[..., :-1]),
  ):
    assert abs((a * b).mean()) < 4 / np.sqrt(a.size)
  np.testing.assert_array_equal(apply_shift(grey[:2], name, 0.0, 255.0), found[:2])
  ends = apply_shift(
    np.array([0, 255] * 32, np.uint8).reshape(1, 8, 8, 1), name, 0.0, 255.0
  )
  assert (ends == 0).any(), "clipped, where whole numbers would go round"
  assert ((ends <= 120) | (ends >= 135)).all()


@pytest.mark.parametrize("name", shifts.NAMES)
def test_a_shift_stays_in_the_range_of_the_training_set(name):
  digits = shifts.digits
  assert [*digits.tests] == ["test", *shifts.NAMES]
  plain, other = digits.tests["test"], digits.tests[name]
  assert other.inputs.dtype == np.uint8
  assert other.inputs.shape == plain.inputs.shape
  assert 0 <= other.inputs.min() <= other.inputs.max() <= 16
  np.testing.assert_array_equal(other.targets, plain.targets)
  changed = (other.inputs != plain.inputs).any((1, 2, 3)).mean()
  assert changed > 0.95


def test_pixels_go_from_the_least_to_the_greatest_of_the_training_set():
  train, test = (
    np.array(x, np.uint8).reshape(2, 1, 1, 1) for x in ([10, 201], [50, 90])
  )
  data = vs.Dataset(train=(train, [0, 1]), test=(test, [0, 1]))
  with mock.patch.object(vs, "load_dataset", {"marks": data}.get):
    shifted = shifts.with_shifts("marks").tests["inversion"]
  assert shifted.inputs.ravel().tolist() == [161, 121]


def test_the_script_shifts_in_the_same_way():
  real = images(4, (9, 9, 2))
  found = fig05.shifted(real, LOW, HIGH)
  for name, expected in (("blur", "blur-5"), ("noise", "noise-5"), ("inversion",) * 2):
    np.testing.assert_array_equal(found[name], apply_shift(real, expected, LOW, HIGH))
  np.testing.assert_array_equal(found["translation"][:, 4:, 4:], real[:, :-4, :-4])
  assert (found["translation"][:, :4] == LOW).all()


@pytest.mark.parametrize("name", SHIFTS)
def test_truth_values_are_rounded_like_whole_numbers(name):
  marks = np.random.default_rng(0).random((3, 8, 8, 1)) < 0.25
  found = apply_shift(marks, name, 0, 1)
  assert found.dtype == bool
  np.testing.assert_array_equal(
    found, apply_shift(marks.astype(np.uint8), name, 0, 1) == 1
  )


def test_severities_grow_and_the_third_is_the_default():
  real = images()
  for name in shifts.NAMES[:-1]:
    levels = [
      apply_shift(real, f"{name}-{i}", LOW, HIGH).astype(int) for i in range(1, 6)
    ]
    np.testing.assert_array_equal(apply_shift(real, name, LOW, HIGH), levels[2])
    if name != "translation":
      distances = [np.abs(level - real).mean() for level in levels]
      assert distances == sorted({*distances})


def test_a_folder_names_its_shifts_and_another_process_goes_on(tmp_path):
  linear = vs.recipe(
    "digits_cnn",
    model="linear",
    epochs=1,
    augment="",
    dataset="experiments.shifts:digits",
    test_sets=("test", "contrast", "inversion"),
  )
  vs.train(linear, 1, tmp_path / "r", progress=False)
  # `work` knows the recipe only from the folder's text.
  again = vs.Recipe.from_json(linear.to_json())
  vs.train(again, 2, tmp_path / "r", progress=False)
  accuracies = {
    name: vs.open_results(tmp_path / "r", name).accuracy.values
    for name in linear.test_sets
  }
  assert accuracies["test"].shape == (2,)
  assert (accuracies["inversion"] < accuracies["test"] - 0.2).all()
