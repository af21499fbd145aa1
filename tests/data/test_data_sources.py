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


X = np.zeros((6, 2, 3, 1), np.uint8)
NAN = np.full((6, 2, 3, 1), np.nan, np.float32)
FLOAT = np.zeros((6, 2, 3, 1), np.float32)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    (
      {"x_train": None},
      "'.*own.npz' lacks x_train and y_train, it holds y_train, x_test, y_test: give an .npz",
    ),
    (
      {"y_train": None},
      "lacks x_train and y_train, it holds x_train, x_test, y_test: give an .npz with",
    ),
    ({"y_test": None}, "unknown test set 'test': choose one of train$"),
    (
      {"x_train": X[0, 0, :, 0]},
      r"'train' of '.*own.npz' has inputs \(3,\) and targets \(6,\): give as many of each",
    ),
    (
      {"x_train": X[:, :0]},
      r"has inputs \(6, 0, 3, 1\) and targets \(6,\): give as many of each, at least one$",
    ),
    (
      {"x_train": np.array(3, np.uint8)},
      "'train' of '.*' has uint8 inputs and .* targets: give arrays of numbers$",
    ),
    (
      {"x_train": NAN},
      "'train' of '.*own.npz' holds NaN or infinite values: give finite ones$",
    ),
    ({"x_train": NAN + np.inf}, "holds NaN or infinite values: give finite ones$"),
    (
      {"x_train": FLOAT, "x_test": -np.inf * np.ones((4, 2, 3, 1), np.float32)},
      "'test' .* holds NaN or",
    ),
    (
      {"y_train": np.zeros(6)},
      r"targets of 'test' of '.*own.npz' are int32 \(\), those of 'train' are float32 \(\)",
    ),
    ({"y_train": np.zeros(6, bool)}, "targets of 'test' of .* go from 0 to 1"),
    (
      {"y_train": np.zeros(5, int)},
      r"has inputs \(6, 2, 3, 1\) and targets \(5,\): give as many",
    ),
    ({"y_train": np.zeros((6, 1), int)}, r"those of 'train' are int32 \(1,\)"),
    (
      {"x_train": X[:0], "y_train": np.zeros(0, int)},
      r"'train' of '.*' has inputs \(0, 2, 3, 1\) and targets \(0,\): give as many of each, at least one",
    ),
    (
      {"x_test": X[:0], "y_test": np.zeros(0, int)},
      r"'test' of '.*' has inputs \(0, 2, 3, 1\) and targets \(0,\)",
    ),
    (
      {"y_train": np.array([1, 2, 3, 1, 2, 3])},
      "targets of 'train' .* take 3 values from 1 to 3: number the cla",
    ),
    (
      {"y_train": np.array([0, 2, 0, 2, 0, 2])},
      "targets of 'train' .* take 2 values from 0 to 2: number the cla",
    ),
    (
      {"y_train": np.array([0, -1, 0, 1, 0, 1])},
      "targets of 'train' .* take 3 values from -1 to 1: number the",
    ),
    (
      {"y_train": np.array([0, 2**63] * 3, np.uint64)},
      "'train' of .* holds whole numbers from 0 to 9223372036854775808: give some of 32 bits",
    ),
    (
      {"y_test": np.array([0, 1, 2, 0])},
      "targets of 'test' of .* go from 0 to 2: classes lie in 0 to 1; where",
    ),
    (
      {"y_test": np.array([0, 1, -1, 0])},
      "targets of 'test' of .* go from -1 to 1: classes lie in 0 to 1; where",
    ),
    (
      {"x_test": X[:4, :, :2]},
      r"inputs of 'test' of .*own.npz' are uint8 \(2, 2, 1\), those of 'train' are uint8",
    ),
    (
      {"x_test": FLOAT[:4]},
      r"inputs of 'test' of .*own.npz' are float32 \(2, 3, 1\), those of 'train' are uint8",
    ),
    (
      {"x_train": np.array([object()] * 6)},
      "is no .npz, or holds pickled objects, which are not loaded: give an",
    ),
  ],
)
def test_npz_mistakes(save, changes, message):
  with pytest.raises(vs.UserError, match=message):
    vs.load_dataset(save(**changes))


def test_npz_that_is_missing(tmp_path):
  with pytest.raises(
    vs.UserError,
    match=r"^no such file '.*none.npz': give an .npz with x_train, y_train, x_test, y_te",
  ):
    vs.load_dataset(str(tmp_path / "none.npz"))


def test_npz_that_is_a_folder(tmp_path):
  (tmp_path / "own.npz").mkdir()
  with pytest.raises(
    vs.UserError, match=r"^no such file '.*own.npz': give an .npz with x_train, y_train"
  ):
    vs.load_dataset(tmp_path / "own.npz")


@pytest.mark.parametrize(
  ("content", "message"),
  [
    (b"", r"^'.*own.npz' cannot be read \(EOFError\): give an .npz with"),
    (
      b"x_train, y_train\n",
      "^'.*own.npz' is no .npz, or holds pickled objects, which are not loaded: give an",
    ),
    (
      b"PK\x03\x04 and no more",
      r"^'.*own.npz' cannot be read \(BadZipFile\): give an .npz with",
    ),
  ],
)
def test_npz_that_is_none(tmp_path, content, message):
  (tmp_path / "own.npz").write_bytes(content)
  with pytest.raises(vs.UserError, match=message):
    vs.load_dataset(tmp_path / "own.npz")


def test_npz_that_is_a_single_array(tmp_path):
  with (tmp_path / "own.npz").open("wb") as file:
    np.save(file, X)
  with pytest.raises(
    vs.UserError,
    match=r"^'.*own.npz' lacks x_train and y_train, it holds nothing by name: give an .npz",
  ):
    vs.load_dataset(tmp_path / "own.npz")


def test_npz_whose_array_header_is_damaged(save):
  path = save()
  with open(path, "rb") as file:
    content = file.read()
  with open(path, "wb") as file:
    file.write(content.replace(b"'fortran_order'", b"'fortran_0rder'"))
  with pytest.raises(
    vs.UserError,
    match=r"^'.*own.npz' cannot be read \((ValueError|BadZipFile)\): give an .npz with",
  ):
    vs.load_dataset(path)


@settings(
  suppress_health_check=[HealthCheck.function_scoped_fixture],
  max_examples=200,
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
