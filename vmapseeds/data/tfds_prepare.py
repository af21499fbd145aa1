"""Download and prepare tensorflow-datasets where TensorFlow is not installed, and
without ever hanging.

tensorflow-datasets reads without TensorFlow, but prepares with it: TensorFlow opens
files and encodes images as PNG. Here a stand-in opens files and Pillow encodes images.
Everything else (addresses, checksums, download cache, record files) is
tensorflow-datasets' own. So the files are those that it would have written, except for
the compression of the PNGs, which is lossless.
"""

import contextlib
import functools
import glob
import importlib.util
import io
import logging
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest import mock
from urllib.parse import urlsplit

import numpy as np
import requests
import tensorflow_datasets as tfds
from PIL import Image
from tensorflow_datasets.core.download import downloader
from tensorflow_datasets.core.features import image_feature
from tensorflow_datasets.core.utils import lazy_imports_utils, tqdm_utils

from vmapseeds.errors import UserError

CONNECT_SECONDS, SILENCE_SECONDS = 5, 30


def prepare(
  builder: tfds.core.DatasetBuilder,
  name: str,
  folder: str,
) -> None:
  """Download a data set to `folder` and write its record files.

  Raises:
    UserError: when it cannot be fetched, does not have the registered checksum, or needs
      more of TensorFlow.
  """
  config = tfds.download.DownloadConfig(try_download_gcs=False)
  try:
    bars = mock.patch.object(tqdm_utils, "_active", sys.stderr.isatty())
    with (
      remove_unfinished(folder),
      silence(),
      bars,
      without_tensorflow(),
      impatient_downloads(),
    ):
      builder.download_and_prepare(download_config=config, file_format="array_record")
  # Builders are third-party code that meets the network, archives and the disk.
  except Exception as error:
    # Another process was faster.
    if is_prepared(builder):
      return
    advice = "set TFDS_DATA_DIR to a folder that has it, or give an .npz file"
    if isinstance(error, ModuleNotFoundError):
      advice = f"pip install {error.name}, or {advice}"
    raise UserError(
      f"data set {name!r} is not in {folder!r} and cannot be prepared there ({describe_failure(error)}): "
      f"{advice}"
    ) from error


def is_prepared(builder: tfds.core.DatasetBuilder) -> bool:
  """Return whether the data set is ready in the builder's folder."""
  with silence():
    return builder.is_prepared()


def describe_failure(error: BaseException) -> str:
  """Return what went wrong, within one line."""
  request = getattr(error, "request", None)
  is_offline = isinstance(
    error, requests.exceptions.ConnectionError | requests.exceptions.Timeout
  )
  if is_offline and request:
    return f"no connection to {urlsplit(request.url).hostname}"

  first_line = ""
  text = str(error).strip()
  if text:
    first_line = text.splitlines()[0].strip()
  # tensorflow-datasets puts the arguments of the builder before what was wrong with
  # them.
  _, _, message = first_line.rpartition('}": ')
  kind = type(error).__name__
  if not message:
    return kind
  return f"{kind}: {message[:400]}"


@contextlib.contextmanager
def remove_unfinished(folder: str) -> Iterator[None]:
  """After an exception, remove unfinished downloads and those empty folders that were
  not there before.
  """
  before = set(existing_folders(folder))
  destinations = []
  download = downloader._Downloader.download

  def noted(self, url, destination, *args, **kwargs):
    destinations.append(destination)
    return download(self, url, destination, *args, **kwargs)

  try:
    with mock.patch.object(downloader._Downloader, "download", noted):
      yield
  # Ctrl-C too leaves unfinished downloads.
  except BaseException:
    for destination in destinations:
      shutil.rmtree(destination, ignore_errors=True)
    new_folders = [path for path in existing_folders(folder) if path not in before]
    for path in new_folders:
      # A folder that holds something stays, maybe it is another process's.
      with contextlib.suppress(OSError):
        os.rmdir(path)
    raise


def existing_folders(folder: str) -> list[str]:
  """Return the existing folders among those inside `folder`, itself, and its parents,
  the deepest first.
  """
  paths = [path for path, _, _ in os.walk(folder, topdown=False)]
  for parent in Path(folder).absolute().parents:
    if parent.exists():
      paths.append(str(parent))
  return paths


@contextlib.contextmanager
def silence() -> Iterator[None]:
  """Silence tensorflow-datasets' notices and warnings about retried connections."""
  before = logging.root.manager.disable
  logging.disable(logging.WARNING)
  try:
    with contextlib.redirect_stdout(io.StringIO()):
      yield
  finally:
    logging.disable(before)


def impatient_downloads() -> contextlib.AbstractContextManager:
  """Make tensorflow-datasets give up on a server that does not answer.

  By default it waits without limit, and without a network it tries ten times over some
  three minutes.
  """
  impatient = functools.partial(
    downloader._open_with_requests, timeout=(CONNECT_SECONDS, SILENCE_SECONDS)
  )
  return mock.patch.multiple(downloader, _open_with_requests=impatient, MAX_RETRIES=1)


@contextlib.contextmanager
def without_tensorflow() -> Iterator[None]:
  """Make tensorflow-datasets use a stand-in for TensorFlow, unless TensorFlow is
  installed.
  """
  if importlib.util.find_spec("tensorflow"):
    yield
    return
  # tensorflow-datasets imports TensorFlow at one place for all its modules, on first
  # use, and keeps it there.
  with (
    mock.patch.dict(vars(lazy_imports_utils.tensorflow), _module=stand_in()),
    mock.patch.object(image_feature._ImageEncoder, "_encode_image", encode_image),
  ):
    yield


class MissingTensorFlow(SimpleNamespace):
  """A namespace that says which part of TensorFlow it lacks."""

  def __getattr__(self, name: str):
    raise ModuleNotFoundError(f"it needs TensorFlow's {name}", name="tensorflow")


def stand_in() -> MissingTensorFlow:
  """Return TensorFlow's functions for files, the only part of it that most builders of
  data sets use.
  """
  gfile = MissingTensorFlow(
    GFile=open,
    copy=shutil.copy,
    exists=os.path.exists,
    glob=glob.glob,
    isdir=os.path.isdir,
    listdir=os.listdir,
    makedirs=lambda path: os.makedirs(path, exist_ok=True),
    remove=os.remove,
  )

  class NeverRaised(Exception):
    """For the `except` clauses that name errors of TensorFlow's own file systems."""

  return MissingTensorFlow(
    io=MissingTensorFlow(gfile=gfile),
    compat=MissingTensorFlow(as_text=os.fsdecode),
    errors=MissingTensorFlow(
      UnimplementedError=NeverRaised, ResourceExhaustedError=NeverRaised
    ),
  )


def encode_image(encoder: image_feature._ImageEncoder, image: np.ndarray) -> bytes:
  """Do what `_ImageEncoder._encode_image` does with Pillow: encode a uint8 image of 1
  to 4 channels as a lossless PNG.
  """
  image_feature._validate_np_array(image, shape=encoder.shape, dtype=encoder.np_dtype)
  if encoder.encoding_format != "png" or image.dtype != np.uint8:
    # JPEG is lossy, so the decoded image would depend on the encoder.
    what = f"{image.dtype} {encoder.encoding_format}"
    raise ModuleNotFoundError(
      f"it needs TensorFlow's encoder of {what} images", name="tensorflow"
    )
  # Pillow takes grey images without an axis of channels.
  if image.shape[-1] == 1:
    image = image[..., 0]
  png = io.BytesIO()
  Image.fromarray(image).save(png, "PNG")
  return png.getvalue()
