"""`load` for the built-in digits and for `.npz` files, and its map of classes."""

import contextlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

import vmapseeds as vs


def arrays(n=(6, 4), shape=(2, 3, 1), dtype=np.uint8, classes=2):
  """What a good `.npz` holds."""
  rng = np.random.default_rng(0)
  good = {}
  for split, size in zip(("train", "test"), n, strict=True):
    good[f"x_{split}"] = rng.integers(0, 256, (size, *shape)).astype(dtype)
    good[f"y_{split}"] = np.arange(size) % classes
  return good


@pytest.fixture
def save(tmp_path):
  """save(**arrays) -> path of an `.npz`; None leaves one of the good arrays out."""

  def write(**changes):
    path = str(tmp_path / "own.npz")
    np.savez(
      path,
      **{
        key: value
        for key, value in {**arrays(), **changes}.items()
        if value is not None
      },
    )
    return path

  return write


def test_digits_are_scikit_learns_cut_once():
  digits, original = vs.load_dataset("digits"), load_digits()
  assert digits.name == "digits"
  assert digits.num_classes == 10
  assert [*digits.tests] == ["test"]
  train, test = digits.train, digits.tests["test"]
  assert train.inputs.dtype == np.uint8
  assert train.targets.dtype == np.int32
  np.testing.assert_array_equal(train.inputs[..., 0], original.images[:1000])
  np.testing.assert_array_equal(train.targets, original.target[:1000])

  # The test set holds the remaining images, in another order.
  def rows(images, labels):
    return sorted(map(tuple, np.c_[images.reshape(len(labels), -1), labels].tolist()))

  assert rows(test.inputs, test.targets) == rows(
    original.images[1000:], original.target[1000:]
  )
  halves = [np.bincount(test.targets[half::2], minlength=10) for half in (0, 1)]
  assert np.abs(halves[0] - halves[1]).max() < 25, (
    "even and odd examples have the same classes"
  )
  assert len(digits.train) == 1000
  assert np.ptp(np.bincount(digits.train.targets)) <= 6
  assert np.ptp(np.bincount(digits.tests["test"].targets)) <= 7


@pytest.mark.slow
def test_digits_writers_are_kept_apart():
  """Nearest neighbours err about twice as often across the cut at 1,000 as in a split
  that mixes the writers.
  """
  original = load_digits()

  def errors(test):
    distances = ((original.data[test][:, None] - original.data[~test][None]) ** 2).sum(
      -1
    )
    return np.mean(original.target[~test][distances.argmin(1)] != original.target[test])

  index = np.arange(1797)
  assert errors(index >= 1000) == pytest.approx(0.038, abs=5e-4)
  assert errors(index % 9 >= 5) == pytest.approx(0.020, abs=5e-4)


@pytest.mark.slow
def test_digits_do_not_wait_for_tensorflow_datasets():
  code = "import sys, vmapseeds as vs; vs.load_dataset('digits'); assert 'tensorflow_datasets' not in sys.modules"
  subprocess.run([sys.executable, "-c", code], check=True)


def test_training_errors_can_be_asked_for():
  digits = vs.load_dataset("digits", test_sets=["test", "train"])
  assert [*digits.tests] == ["test", "train"]
  assert digits.tests["train"] is digits.train


@pytest.mark.parametrize(
  ("test_sets", "message"),
  [
    (
      ["validation"],
      "unknown test set 'validation': choose one of train, test",
    ),
    ("test", "test_sets is 'test': give a list of names from train, test"),
    (["test", "test"], "test_sets is test, test: name each set once"),
  ],
)
def test_wrong_test_sets(test_sets, message):
  with pytest.raises(vs.UserError, match=f"^{message}$"):
    vs.load_dataset("digits", test_sets=test_sets)


def test_no_test_sets():
  """Runs may hold examples out instead."""
  assert vs.load_dataset("digits", test_sets=[]).tests == {}


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("shape", [(2, 3, 3), (2, 3), (5,), (1, 1), ()])
def test_npz(save, shape, dtype):
  good = arrays(shape=shape, dtype=dtype)
  path = save(**good)
  dataset = vs.load_dataset(path)
  assert dataset.name == path
  assert dataset.num_classes == 2
  for examples, split, n in (
    (dataset.train, "train", 6),
    (dataset.tests["test"], "test", 4),
  ):
    assert examples.inputs.dtype == dtype
    assert len(examples) == n
    np.testing.assert_array_equal(examples.inputs, good[f"x_{split}"], strict=True)
    assert examples.targets.dtype == np.int32
    np.testing.assert_array_equal(examples.targets, good[f"y_{split}"])


@pytest.mark.parametrize(
  ("dtype", "kept"),
  [(float, np.float32), (">f4", np.float32), (int, np.int32), (np.int16, np.int16)],
)
def test_npz_images_in_the_precisions_that_jax_has(save, dtype, kept):
  images = arrays()["x_train"]
  inputs = vs.load_dataset(
    save(x_train=images.astype(dtype), x_test=images[:4].astype(dtype))
  ).train.inputs
  assert inputs.dtype == kept
  assert inputs.dtype.isnative
  np.testing.assert_array_equal(inputs, images)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint64, ">i4"])
def test_npz_labels_of_any_integer_dtype(save, dtype):
  labels = vs.load_dataset(
    save(y_train=np.array([0, 1, 2, 2, 1, 0], dtype))
  ).train.targets
  assert labels.dtype == np.int32
  assert labels.tolist() == [0, 1, 2, 2, 1, 0]


def test_npz_of_one_training_and_one_test_example(save):
  dataset = vs.load_dataset(save(**arrays(n=(1, 1))))
  assert (len(dataset.train), len(dataset.tests["test"]), dataset.num_classes) == (
    1,
    1,
    1,
  )


def test_npz_further_test_sets(save):
  blurred = np.ones((3, 2, 3, 1), np.uint8)
  path = save(
    x_blurred=blurred,
    y_blurred=np.array([1, 1, 0]),
    x_lone=blurred,
    notes=np.array("none"),
  )
  dataset = vs.load_dataset(path, test_sets=("blurred", "test"))
  assert [*dataset.tests] == ["blurred", "test"]
  assert dataset.tests["blurred"].targets.tolist() == [1, 1, 0]
  with pytest.raises(
    vs.UserError,
    match=r"unknown test set 'lone': choose one of train, test, blurred",
  ):
    vs.load_dataset(path, test_sets=["lone"])


def test_npz_without_test_but_with_validation(save):
  good = arrays()
  path = save(
    x_validation=good["x_test"], y_validation=good["y_test"], x_test=None, y_test=None
  )
  with pytest.raises(
    vs.UserError, match=r"unknown test set 'test': choose one of .*validation"
  ):
    vs.load_dataset(path)
  assert len(vs.load_dataset(path, test_sets=["validation"]).tests["validation"]) == 4


@settings(
  suppress_health_check=[HealthCheck.function_scoped_fixture],
  max_examples=60,
  deadline=None,
)
@given(st.data())
def test_a_damaged_npz_is_loaded_unharmed_or_is_a_mistake(save, data):
  path = save()
  with open(path, "rb") as file:
    content = bytearray(file.read())
  for _ in range(data.draw(st.integers(1, 3))):
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(
      st.integers(0, 255)
    )
  with open(path, "wb") as file:
    file.write(content[: data.draw(st.integers(0, len(content)))])
  with contextlib.suppress(vs.UserError):
    assert isinstance(vs.load_dataset(path), vs.Dataset)


def test_names_of_classes(save):
  path = save(class_names=np.array(["cat", "dog"]))
  assert vs.load_dataset(path).class_names == ("cat", "dog")
  assert vs.load_dataset("digits").class_names is None
  with pytest.raises(
    vs.UserError, match=r"class_names is \[1, 2\]: give a printable text"
  ):
    vs.load_dataset(save(class_names=np.array([1, 2])))
