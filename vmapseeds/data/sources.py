"""Where data sets come from: the built-in digits, an `.npz` file, tensorflow-datasets."""

import os
from collections.abc import Sequence

import numpy as np

from vmapseeds.data.dataset import Dataset, Examples, check_splits
from vmapseeds.errors import UserError, hide_own_frames
from vmapseeds.machine import free_host_memory, local_path


@hide_own_frames
def load_dataset(
  name: str | os.PathLike,
  *,
  test_sets: Sequence[str] = ("test",),
) -> Dataset:
  """Load a data set into memory.

  Args:
    name: `digits`; the name of a tensorflow-datasets image classification set, such as
      `cifar10`, which is looked for in `TFDS_DATA_DIR` (else in
      `~/tensorflow_datasets`) and downloaded to it when absent; or the path of an
      `.npz` file, see `load_npz`.
    test_sets: names of the splits to test on. `train` is allowed, and gives training
      errors.

  Returns:
    The data set, `tests` in the order of `test_sets`.

  Raises:
    UserError: one line, for whatever is wrong with the name, the data or the arguments.
  """
  name = str(name)
  if os.path.exists(os.path.join(name, "zarr.json")):
    raise UserError(f"{name} is a results folder: open it with vs.open_results")
  if name == "digits":
    dataset = load_digits()
  elif name.endswith(".npz"):
    dataset = load_npz(str(local_path(name)), test_sets)
  else:
    # Importing tensorflow-datasets takes half a second, which users of the other
    # sources need not wait for.
    from vmapseeds.data.tfds_read import load_tfds

    dataset = load_tfds(name, test_sets)
  return dataset.select(test_sets)


def load_test_set(name: str, test_set: str) -> Examples:
  """Load one test set, to look at its examples. Unlike `load_dataset` it downloads nothing, and
  of tensorflow-datasets it reads no training set.

  Raises:
    UserError: as `load_dataset`, or the data set is not there.
  """
  if name == "digits" or name.endswith(".npz"):
    return load_dataset(name, test_sets=(test_set,)).tests[test_set]
  from vmapseeds.data.tfds_read import load_prepared

  return load_prepared(name, test_set).select((test_set,)).tests[test_set]


def load_digits() -> Dataset:
  """Load scikit-learn's 1,797 handwritten digits, 8×8×1, values 0 to 16: the first
  1,000 train, the last 797 test.

  The images come writer after writer, so that an image's nearest neighbour is mostly by
  the same hand. Cutting the sequence once keeps the writers of the two sets apart (but
  for one at the cut). A random split, or every n-th image, would test on hands seen in
  training: the nearest neighbour in the training set then has the wrong class for 2.0%
  of the test set (training on 5 of every 9 images). With this cut it is 3.8%. The
  classes have 98 to 104 training and 76 to 83 test examples each.

  The digits are written in turn, 0 to 9, so even and odd examples would be of different
  classes: the test set is stored in a fixed random order, as CIFAR-10's is.
  """
  from sklearn.datasets import load_digits as sklearn_digits

  digits = sklearn_digits()
  images = digits.images.astype(np.uint8)[..., None]
  labels = digits.target.astype(np.int32)
  # The draws of RandomState are frozen by NumPy's policy; those of newer generators are
  # not.
  shuffled = 1000 + np.random.RandomState(0).permutation(len(labels) - 1000)
  train = Examples(images[:1000], labels[:1000])
  test = Examples(images[shuffled], labels[shuffled])
  return Dataset(name="digits", train=train, test=test, num_classes=10)


def load_npz(path: str, test_sets: Sequence[str] = ("test",)) -> Dataset:
  """Load an `.npz` with `x_train`, `y_train`, `x_test`, `y_test` and any `x_<name>`,
  `y_<name>`, and `class_names` if the classes have names.

  The file is read as `Dataset(train=(x_train, y_train), ...)` takes its arrays, of any
  shape: images are (n, height, width, channels), and rows of features (n, features).

  Raises:
    UserError: when the file cannot be read or does not hold that. Pickled objects are
      never loaded.
  """
  sets, names = read_npz(path, test_sets)
  return Dataset(
    name=path,
    train=sets["train"],
    tests={split: sets[split] for split in test_sets},
    class_names=names,
  )


def read_npz(path: str, test_sets):
  """Read the raw (images, labels) of `train` and of the wanted test sets, by their names,
  and the names of the classes or None.
  """
  advice = (
    "give an .npz with x_train, y_train, x_test, y_test, as numpy.savez writes it"
  )
  if not os.path.isfile(path):
    raise UserError(f"no such file {path!r}: {advice}")
  try:
    # np.load itself leaves a file open that is not a zip.
    with open(path, "rb") as stream:
      file = np.load(stream, allow_pickle=False)
      return _read_members(file, path, test_sets, advice)
  except UserError:
    raise
  # Whatever a damaged file makes zipfile and the reader of headers raise.
  except Exception as error:
    what = f"cannot be read ({type(error).__name__})"
    # So np.load speaks of arrays of objects, and of any file that is no .npz.
    if isinstance(error, ValueError) and "pickle" in str(error):
      what = "is no .npz, or holds pickled objects, which are not loaded"
    raise UserError(f"{path!r} {what}: {advice}") from error


def _read_members(
  file,
  path: str,
  test_sets: Sequence[str],
  advice: str,
):
  """Return the sets of an open file, and the names of classes or None."""
  # np.load returns an .npy file as an array.
  keys = []
  if isinstance(file, np.lib.npyio.NpzFile):
    keys = file.files
  available = []
  for key in keys:
    split = key.removeprefix("x_")
    if split != key and f"y_{split}" in keys:
      available.append(split)
  if "train" not in available:
    listed = ", ".join(keys) or "nothing by name"
    raise UserError(f"{path!r} lacks x_train and y_train, it holds {listed}: {advice}")

  check_splits(test_sets, available)
  splits = list(dict.fromkeys(("train", *test_sets)))
  members = []
  for split in splits:
    members += [f"x_{split}", f"y_{split}"]
  check_memory_for_arrays(file.zip, members, path)

  names = None
  if "class_names" in keys:
    names = file["class_names"].tolist()
  sets = {}
  for split in splits:
    # np.load gives a member that is not an array as bytes.
    inputs = np.asarray(file[f"x_{split}"])
    targets = np.asarray(file[f"y_{split}"])
    sets[split] = (inputs, targets)
  return sets, names


def check_memory_for_arrays(file, names, path: str) -> None:
  """Check that memory has room for the arrays.

  Raises:
    UserError: it has not.
  """
  members = {f"{name}.npy" for name in names}
  needed = 0
  for info in file.infolist():
    if info.filename in members:
      # The size that the zip's directory states, before anything is unpacked.
      needed += info.file_size
  if needed > free_host_memory():
    raise UserError(
      f"the arrays of {path!r} take {needed / 1e9:.3g} GB, more memory than is free: give smaller ones"
    )
