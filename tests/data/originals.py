"""Small data sets in the formats of the originals, and how tensorflow-datasets is made
to take them.
"""

import gzip
import hashlib
import io
import struct
import tarfile

import numpy as np


def register(patch, builder_class, address, files):
  """Makes tensorflow-datasets expect `files` at `address`, as it expects the real ones
  at theirs.
  """
  from tensorflow_datasets.core.download import checksums
  from tensorflow_datasets.core.utils import Size

  for path, body in files.items():
    digest = hashlib.sha256(body).hexdigest()
    info = checksums.UrlInfo(size=Size(len(body)), checksum=digest, filename=path)
    patch.setitem(builder_class.url_infos, address + path, info)


def cifar_arrays(n, label_counts, seed):
  """`n` CIFAR-like images and, for each label, its values."""
  rng = np.random.default_rng(seed)
  images = rng.integers(0, 256, (n, 32, 32, 3), np.uint8)
  return images, [rng.integers(0, count, n, np.uint8) for count in label_counts]


def cifar_bytes(images, labels):
  """CIFAR's binary format: the labels' bytes, then the red, the green and the blue
  plane, row by row.
  """
  rows = [
    *(label[:, None] for label in labels),
    images.transpose(0, 3, 1, 2).reshape(len(images), -1),
  ]
  return np.concatenate(rows, axis=1).tobytes()


def tar_gz(files):
  archive = io.BytesIO()
  with tarfile.open(fileobj=archive, mode="w:gz") as tar:
    for name, body in files.items():
      member = tarfile.TarInfo(name)
      member.size = len(body)
      tar.addfile(member, io.BytesIO(body))
  return archive.getvalue()


def idx_gz(array):
  """MNIST's format: a magic number with the number of axes, the big-endian shape, the
  bytes.
  """
  header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
  return gzip.compress(header + array.tobytes())


def cifar10_archive(batch=5, test=7):
  """(archive, train images, train labels, test images, test labels)."""
  batches = [cifar_arrays(batch, [10], seed) for seed in range(5)]
  test_images, test_labels = cifar_arrays(test, [10], 5)
  files = {f"data_batch_{i}.bin": cifar_bytes(*b) for i, b in enumerate(batches, 1)}
  files["test_batch.bin"] = cifar_bytes(test_images, test_labels)
  files["batches.meta.txt"] = b"\n".join(b"class%d" % i for i in range(10)) + b"\n"
  archive = tar_gz(
    {f"cifar-10-batches-bin/{name}": body for name, body in files.items()}
  )
  images = np.concatenate([b[0] for b in batches])
  return (
    archive,
    images,
    np.concatenate([b[1][0] for b in batches]),
    test_images,
    test_labels[0],
  )


def point_to(patch, builder_class, original, info_class, url):
  """Replaces the address that a CIFAR builder downloads from, and nothing else of it."""
  patch.setattr(
    builder_class,
    "_cifar_info",
    property(lambda self: original(self)._replace(url=url)),
  )


def as_dict(images, labels):
  """Label of each image, whatever their order."""
  pairs = {
    image.tobytes(): int(label) for image, label in zip(images, labels, strict=True)
  }
  assert len(pairs) == len(images), "the images should differ"
  return pairs
