"""Read tensorflow-datasets without TensorFlow."""

import contextlib
import difflib
import io
import os
import struct
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow_datasets as tfds
from jaxtyping import Int64, UInt8
from PIL import Image
from rich.progress import Progress

from vmapseeds.data.dataset import Dataset, check_splits
from vmapseeds.data.tfds_prepare import describe_failure, is_prepared, prepare, silence
from vmapseeds.errors import UserError, check_class_names, console_of_stderr

# About 12,000 small images are decoded per second. A progress bar for less than two
# seconds is only noise.
SHOWN_FROM = 25_000
PILLOW_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
# The images stay encoded until they are decoded straight into the array that holds them
# all.
ENCODED = {"image": tfds.decode.SkipDecoding()}


def load_tfds(name: str, test_sets: Sequence[str] = ("test",)) -> Dataset:
  """Load an image classification set of tensorflow-datasets, by its name there
  (`cifar10`, `emnist/letters`, ...).

  Reads `TFDS_DATA_DIR`, else `~/tensorflow_datasets`; a set that is not there is
  downloaded and prepared. The examples come in the order of the stored records:
  tensorflow-datasets shuffles them once, always in the same way.

  Raises:
    UserError: for an unknown name or test set, a set that is not image classification
      with images of one size, or one that is neither there nor can be fetched.
  """
  builder = open_builder(name)
  if not is_prepared(builder):
    prepare(builder, name, folder_of_sets())
    builder = open_builder(name)
  return load_splits(builder, name, "train", test_sets)


def load_prepared(name: str, test_set: str) -> Dataset:
  """Load one test set that is there, as its own training set. Download nothing.

  Raises:
    UserError: as `load_tfds`, or the set is not there.
  """
  builder = open_builder(name)
  if not is_prepared(builder):
    raise UserError(f"data set {name!r} is not in {folder_of_sets()!r}")
  check_splits((test_set,), builder.info.splits)
  return load_splits(builder, name, test_set, (test_set,))


def folder_of_sets() -> str:
  """Return the folder of all data sets."""
  return os.path.expanduser(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")


def open_builder(name: str) -> tfds.core.DatasetBuilder:
  """Return the builder of an image classification set. Download nothing."""
  builder = find_builder(name, folder_of_sets())
  check_features(builder.info.features, name)
  return builder


def load_splits(
  builder: tfds.core.DatasetBuilder,
  name: str,
  train: str,
  test_sets: Sequence[str],
) -> Dataset:
  """Load the split to train on, and the test sets."""
  splits = tuple(builder.info.splits)
  if train not in splits:
    raise UserError(
      f"data set {name!r} has no {train!r} set, only {', '.join(splits)}: choose another data set"
    )
  check_splits(test_sets, splits)
  label = builder.info.features["label"]
  names = None
  # A set's names may be no texts that can be shown.
  with contextlib.suppress(UserError):
    names = check_class_names(label.int2str(c) for c in range(label.num_classes))
  # Where a set has no names, tensorflow-datasets counts its classes.
  if names == tuple(str(c) for c in range(label.num_classes)):
    names = None

  sets = {}
  for split in dict.fromkeys((train, *test_sets)):
    try:
      sets[split] = decode_split(builder, split)
    # Whatever a damaged or unsupported record file makes the readers raise.
    except Exception as error:
      raise UserError(
        f"the {split} set in {str(builder.data_path)!r} cannot be read ({describe_failure(error)}): delete "
        "that folder to have it prepared again"
      ) from error
  tests = {split: sets[split] for split in test_sets}
  return Dataset(
    name=name,
    train=sets[train],
    tests=tests,
    num_classes=label.num_classes,
    class_names=names,
  )


def find_builder(name: str, folder: str) -> tfds.core.DatasetBuilder:
  """Return the builder of a data set, from its code or from the files in `folder`.
  Download nothing.
  """
  public = [tfds.core.visibility.DatasetType.TFDS_PUBLIC]
  try:
    # Looking a name up among the community's sets would need TensorFlow and the
    # network.
    with silence(), tfds.core.visibility.set_availables_tmp(public):
      return tfds.builder(name, data_dir=folder)
  except tfds.core.DatasetNotFoundError as error:
    known = ["digits", *tfds.list_builders(with_community_datasets=False)]
    near = difflib.get_close_matches(name, known, n=3)
    hint = ""
    if near:
      hint = f"; did you mean {' or '.join(near)}?"
    raise UserError(
      f"unknown data set {name!r}: give digits, the name of a tensorflow-datasets image "
      f"classification set (such as cifar10) or the path of an .npz file{hint}"
    ) from error
  # Builders are third-party code; this is a version or configuration they lack.
  except Exception as error:
    raise UserError(
      f"data set {name!r} cannot be opened in {folder!r} ({describe_failure(error)}): give digits, a name "
      "such as cifar10 or emnist/letters, or the path of an .npz file"
    ) from error


def check_features(features, name: str) -> None:
  """Check that there are uint8 images of one size under `image` and classes under
  `label`.

  Raises:
    UserError: there are not.
  """
  by_name = {}
  if isinstance(features, tfds.features.FeaturesDict):
    by_name = dict(features.items())
  image = by_name.get("image")
  label = by_name.get("label")
  if not (
    isinstance(image, tfds.features.Image)
    and isinstance(label, tfds.features.ClassLabel)
  ):
    raise UserError(
      f"data set {name!r} is not image classification, with an 'image' and a class 'label': it "
      f"has {', '.join(by_name) or 'neither'}, choose another data set"
    )
  if None in image.shape or image.np_dtype != np.uint8:
    raise UserError(
      f"images of data set {name!r} are {np.dtype(image.np_dtype)} of shape {image.shape}: they "
      "must be uint8 and of one size, so bring them to one size and give an .npz file"
    )


def decode_split(
  builder: tfds.core.DatasetBuilder,
  split: str,
) -> tuple[UInt8[np.ndarray, "n height width channels"], Int64[np.ndarray, " n"]]:
  """Decode all images and labels of one split: about 5 seconds for CIFAR-10 on one
  core.
  """
  height, width, channels = builder.info.features["image"].shape
  n = builder.info.splits[split].num_examples
  images = np.empty((n, height, width, channels), np.uint8)
  labels = np.empty(n, np.int64)
  mode = PILLOW_MODES[channels]
  done = 0
  console = console_of_stderr()
  is_silent = n < SHOWN_FROM or not console.is_interactive
  with Progress(console=console, transient=True, disable=is_silent) as bars:
    task = bars.add_task(f"reading {builder.name} {split}", total=n)
    for record in read_split_records(builder, split):
      image = Image.open(io.BytesIO(record["image"])).convert(mode)
      images[done] = np.asarray(image).reshape(height, width, channels)
      labels[done] = record["label"]
      done += 1
      if done % 500 == 0:
        bars.update(task, completed=done)
  # Too many records have failed above, when one had no place in the array.
  if done != n:
    raise EOFError(f"{done} of {n} examples")
  return images, labels


def read_split_records(builder: tfds.core.DatasetBuilder, split: str) -> Iterator[dict]:
  """Yield the records of one split in their stored order, with the images still
  encoded.
  """
  if builder.info.file_format == tfds.core.FileFormat.TFRECORD:
    # This is what tensorflow-datasets writes where TensorFlow is installed, and reads
    # only there.
    for path in builder.info.splits[split].filepaths:
      for record in read_tfrecords(path):
        yield builder.info.features.deserialize_example_np(record, decoders=ENCODED)
  else:
    source = builder.as_data_source(split, decoders=ENCODED)
    n = len(source)
    for start in range(0, n, 1000):
      stop = min(start + 1000, n)
      yield from source.__getitems__(range(start, stop))


def read_tfrecords(path: os.PathLike):
  """Yield the records of a TFRecord file: a length (uint64), its checksum (4 bytes),
  the record, its checksum.
  """
  with open(path, "rb") as file:
    while True:
      header = file.read(12)
      if not header:
        return
      (length,) = struct.unpack_from("<Q", header)
      record = file.read(length + 4)
      if len(record) < length + 4:
        raise EOFError(f"{os.path.basename(path)} ends within a record")
      yield record[:-4]
