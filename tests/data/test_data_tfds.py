"""tensorflow-datasets without TensorFlow: downloading, preparing, reading, and what can
go wrong.
"""

import io
import json
import socket
import struct
import threading
import time

import numpy as np
import pytest
import tensorflow_datasets as tfds
from originals import (
  as_dict,
  cifar_arrays,
  cifar_bytes,
  idx_gz,
  point_to,
  register,
  tar_gz,
)
from tensorflow_datasets.core.utils import lazy_imports_utils
from tensorflow_datasets.image_classification import cifar, mnist

from vmapseeds.data import load_dataset, tfds_prepare, tfds_read
from vmapseeds.errors import UserError


def test_cifar10_is_downloaded_prepared_and_read(cifar10, capfd):
  (train_images, train_labels, test_images, test_labels), folder = cifar10
  dataset = load_dataset("cifar10")
  assert dataset.name == "cifar10"
  assert dataset.class_names == tuple(f"class{c}" for c in range(10))
  assert dataset.num_classes == 10
  assert dataset.train.inputs.dtype == np.uint8
  assert dataset.train.inputs.shape == (25, 32, 32, 3)
  assert dataset.train.targets.dtype == np.int32
  assert as_dict(dataset.train.inputs, dataset.train.targets) == as_dict(
    train_images, train_labels
  )
  test = dataset.tests["test"]
  assert as_dict(test.inputs, test.targets) == as_dict(test_images, test_labels)
  out, err = capfd.readouterr()
  assert out == err == ""

  # What was written is a data set of tensorflow-datasets like any other, with its names
  # of the classes.
  source = tfds.data_source("cifar10", split="train", data_dir=folder)
  np.testing.assert_array_equal(
    np.stack([r["image"] for r in source]), dataset.train.inputs
  )
  assert [r["label"] for r in source] == dataset.train.targets.tolist()
  assert (
    tfds.builder("cifar10", data_dir=folder).info.features["label"].names[3] == "class3"
  )


def test_a_second_load_needs_no_network_and_gives_the_same(cifar10, monkeypatch):
  first = load_dataset("cifar10", test_sets=["test", "train"])
  monkeypatch.setattr(
    socket.socket, "connect", lambda *_: pytest.fail("it should not ask the network")
  )
  second = load_dataset("cifar10", test_sets=["test", "train"])
  np.testing.assert_array_equal(first.tests["train"].inputs, second.train.inputs)
  np.testing.assert_array_equal(
    first.tests["test"].targets, second.tests["test"].targets
  )


def test_cifar100_is_prepared(serve, monkeypatch, tmp_path):
  (images, labels), (test_images, test_labels) = (
    cifar_arrays(9, [20, 100], 0),
    cifar_arrays(4, [20, 100], 1),
  )
  files = {
    "train.bin": cifar_bytes(images, labels),
    "test.bin": cifar_bytes(test_images, test_labels),
  }
  files["coarse_label_names.txt"] = b"\n".join(b"coarse%d" % i for i in range(20))
  files["fine_label_names.txt"] = b"\n".join(b"fine%d" % i for i in range(100))
  archive = {
    "cifar-100.tar.gz": tar_gz(
      {f"cifar-100-binary/{name}": body for name, body in files.items()}
    )
  }
  address = serve(archive)
  point_to(
    monkeypatch,
    cifar.Cifar100,
    cifar.Cifar100._cifar_info.fget,
    cifar.CifarInfo,
    address + "cifar-100.tar.gz",
  )
  register(monkeypatch, cifar.Cifar100, address, archive)
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  dataset = load_dataset("cifar100")
  assert dataset.num_classes == 100
  assert as_dict(dataset.train.inputs, dataset.train.targets) == as_dict(
    images, labels[1]
  )


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "kmnist"])
def test_mnist_and_its_kin_are_prepared(serve, monkeypatch, tmp_path, name):
  rng = np.random.default_rng(0)
  images, test_images = (rng.integers(0, 256, (n, 28, 28), np.uint8) for n in (8, 5))
  labels, test_labels = (rng.integers(0, 10, n, np.uint8) for n in (8, 5))
  files = {
    "train-images-idx3-ubyte.gz": idx_gz(images),
    "train-labels-idx1-ubyte.gz": idx_gz(labels),
    "t10k-images-idx3-ubyte.gz": idx_gz(test_images),
    "t10k-labels-idx1-ubyte.gz": idx_gz(test_labels),
  }
  address = serve(files)
  builder_class = type(tfds.builder(name, data_dir=tmp_path))
  monkeypatch.setattr(builder_class, "URL", address)
  monkeypatch.setattr(mnist, "_TRAIN_EXAMPLES", 8)
  monkeypatch.setattr(mnist, "_TEST_EXAMPLES", 5)
  register(monkeypatch, builder_class, address, files)
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  dataset = load_dataset(name)
  assert dataset.train.inputs.shape == (8, 28, 28, 1)
  assert as_dict(dataset.train.inputs, dataset.train.targets) == as_dict(images, labels)
  assert as_dict(
    dataset.tests["test"].inputs, dataset.tests["test"].targets
  ) == as_dict(test_images, test_labels)


def test_svhn_is_prepared(serve, monkeypatch, tmp_path):
  from scipy.io import savemat
  from tensorflow_datasets.datasets.svhn_cropped import (
    svhn_cropped_dataset_builder as svhn,
  )

  files, arrays = {}, {}
  for seed, split in enumerate(("train", "test", "extra")):
    images, (labels,) = cifar_arrays(6, [10], seed)
    body = io.BytesIO()
    savemat(
      body,
      {
        "X": images.transpose(1, 2, 3, 0),
        "y": np.where(labels == 0, 10, labels)[:, None],
      },
    )
    files[f"{split}_32x32.mat"], arrays[split] = body.getvalue(), (images, labels)
  address = serve(files)
  monkeypatch.setattr(svhn, "URL", address)
  register(monkeypatch, svhn.Builder, address, files)
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  dataset = load_dataset("svhn_cropped", test_sets=["test", "extra"])
  assert as_dict(dataset.train.inputs, dataset.train.targets) == as_dict(
    *arrays["train"]
  )
  for split in ("test", "extra"):
    assert as_dict(
      dataset.tests[split].inputs, dataset.tests[split].targets
    ) == as_dict(*arrays[split])


def test_what_is_patched_while_preparing_is_restored(cifar10):
  patched = [
    (tfds_prepare.downloader, "_open_with_requests"),
    (tfds_prepare.downloader, "MAX_RETRIES"),
    (tfds_prepare.image_feature._ImageEncoder, "_encode_image"),
    (tfds_prepare.tqdm_utils, "_active"),
  ]
  before = [getattr(*place) for place in patched]
  load_dataset("cifar10")
  assert [getattr(*place) for place in patched] == before
  assert "_module" not in vars(lazy_imports_utils.tensorflow)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_pillow_encodes_losslessly_what_tensorflow_would_have_encoded(channels):
  from PIL import Image

  image = np.random.default_rng(0).integers(0, 256, (5, 7, channels), np.uint8)
  feature = tfds.features.Image(shape=(5, 7, channels))
  encoded = tfds_prepare.encode_image(feature._image_encoder, image)
  assert encoded.startswith(b"\x89PNG")
  np.testing.assert_array_equal(
    np.asarray(Image.open(io.BytesIO(encoded))).reshape(image.shape), image
  )
  np.testing.assert_array_equal(feature.decode_example_np(encoded), image)


@pytest.mark.parametrize(
  ("feature", "dtype", "what"),
  [
    (
      tfds.features.Image(shape=(2, 2, 3), encoding_format="jpeg"),
      np.uint8,
      "uint8 jpeg",
    ),
    (tfds.features.Image(shape=(2, 2, 1), dtype=np.uint16), np.uint16, "uint16 png"),
  ],
)
def test_other_encodings_are_left_to_tensorflow(feature, dtype, what):
  with pytest.raises(
    ModuleNotFoundError, match=f"^it needs TensorFlow's encoder of {what} images$"
  ):
    tfds_prepare.encode_image(feature._image_encoder, np.zeros(feature.shape, dtype))


def test_what_the_stand_in_lacks_it_names():
  with pytest.raises(ModuleNotFoundError, match=r"^it needs TensorFlow's image$"):
    _ = tfds_prepare.stand_in().image.encode_png


def test_a_builder_that_needs_more_of_tensorflow(cifar10, monkeypatch):
  def examples(self, *_):
    raise ModuleNotFoundError("it needs TensorFlow's image", name="tensorflow")
    yield

  monkeypatch.setattr(cifar.Cifar10, "_generate_examples", examples)
  with pytest.raises(
    UserError,
    match=r"\(ModuleNotFoundError: it needs TensorFlow's image\): pip install tensorflow",
  ):
    load_dataset("cifar10")


def test_a_file_with_another_checksum_is_refused(cifar10, monkeypatch, tmp_path):
  infos = cifar.Cifar10.url_infos
  (url,) = [url for url in infos if "127.0.0.1" in url]
  register(
    monkeypatch,
    cifar.Cifar10,
    url[: url.rindex("/") + 1],
    {"cifar-10-binary.tar.gz": b"another"},
  )
  with pytest.raises(
    UserError,
    match=r"^data set 'cifar10' is not in '.*' and cannot be prepared there .*wrong checksum",
  ):
    load_dataset("cifar10")
  assert not [*tmp_path.glob("cifar10/3*")]


def test_a_file_that_is_not_there(cifar10, monkeypatch):
  url = cifar.Cifar10._cifar_info.fget(tfds.builder("cifar10", data_dir="/")).url
  point_to(
    monkeypatch,
    cifar.Cifar10,
    cifar.Cifar10._cifar_info.fget,
    cifar.CifarInfo,
    url + ".moved",
  )
  with pytest.raises(
    UserError, match=r"DownloadError: Failed to get url .*\.moved\. HTTP code: 404"
  ):
    load_dataset("cifar10")


@pytest.mark.parametrize(
  "there", [(), ("data/downloads/mine.tar.gz", "data/mnist/empty/")]
)
def test_a_failed_download_leaves_what_was_there(
  there, cifar10, monkeypatch, tmp_path, capfd
):
  """No half download, no empty folder of its own, whether the server is gone at once or
  midway.
  """
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "new" / "data"))
  for path in there:
    file = tmp_path / "new" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.mkdir() if path.endswith("/") else file.write_text("mine")
  before = sorted(tmp_path.rglob("*"))

  def half(connection):
    connection.recv(2**16)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 500)
    connection.close()

  original = cifar.Cifar10._cifar_info.fget
  with socket.create_server(("127.0.0.1", 0)) as server:
    point_to(
      monkeypatch,
      cifar.Cifar10,
      original,
      cifar.CifarInfo,
      f"http://127.0.0.1:{server.getsockname()[1]}/c.tar.gz",
    )
    answering = threading.Thread(target=lambda: half(server.accept()[0]))
    answering.start()
    with pytest.raises(UserError, match="cannot be prepared there"):
      load_dataset("cifar10")
    answering.join()
  assert sorted(tmp_path.rglob("*")) == before
  start = time.monotonic()
  message = (
    r"^data set 'cifar10' is not in '.*' and cannot be prepared there \(no connection to 127.0.0.1\): "
    r"set TFDS_DATA_DIR to a folder that has it, or give an .npz file$"
  )
  with pytest.raises(UserError, match=message):
    load_dataset("cifar10")
  assert time.monotonic() - start < 10
  assert capfd.readouterr() == ("", "")
  assert sorted(tmp_path.rglob("*")) == before


def test_a_server_that_never_answers(cifar10, monkeypatch):
  monkeypatch.setattr(tfds_prepare, "SILENCE_SECONDS", 0.2)
  original = cifar.Cifar10._cifar_info.fget
  with socket.create_server(("127.0.0.1", 0)) as silent:
    url = f"http://127.0.0.1:{silent.getsockname()[1]}/cifar.tar.gz"
    point_to(monkeypatch, cifar.Cifar10, original, cifar.CifarInfo, url)
    start = time.monotonic()
    with pytest.raises(
      UserError,
      match=r"cannot be prepared there \(no connection to 127.0.0.1\): set TFDS_DATA_DIR",
    ):
      load_dataset("cifar10")
  assert time.monotonic() - start < 10


def test_a_folder_that_cannot_be_written_to(cifar10, monkeypatch, tmp_path):
  (tmp_path / "file").write_text("in the way")
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "file"))
  with pytest.raises(
    UserError,
    match=r"^data set 'cifar10' is not in '.*file' and cannot be prepared there .*Error",
  ):
    load_dataset("cifar10")


def test_another_process_that_prepared_it_meanwhile(cifar10, monkeypatch):
  prepare = cifar.Cifar10.download_and_prepare

  def late(self, **kwargs):
    prepare(self, **kwargs)
    raise FileExistsError("the folder is there already")

  monkeypatch.setattr(cifar.Cifar10, "download_and_prepare", late)
  assert len(load_dataset("cifar10").train) == 25


WRONG_NAMES = {
  "cifar1O": "^unknown data set 'cifar1O': give digits, the name of .* or the path of an .npz file; did you mean",
  "didgits": "^unknown data set 'didgits': .*; did you mean digits",
  "qqqqqq": "^unknown data set 'qqqqqq': .* or the path of an .npz file$",
  "cifar10:1.0.0": r"^data set 'cifar10:1.0.0' cannot be opened in .*\(AssertionError: Dataset cifar10 cannot be",
  "cifar10/grey": r"^data set 'cifar10/grey' cannot be opened in .*\(ValueError: BuilderConfig grey not found",
  "own data.npy": "^data set 'own data.npy' cannot be opened .* or the path of an .npz file$",
  "someone:cifar10": "^data set 'someone:cifar10' cannot be opened .*: give digits, a name such as cifar10",
  "": "^data set '' cannot be opened .*: give digits, a name such as cifar10 or emnist/letters, or the",
  "food101": r"^images of data set 'food101' are uint8 of shape \(None, None, 3\): they must be uint8 and of one",
  "imdb_reviews": "^data set 'imdb_reviews' is not image classification, with an 'image' and a class 'label': it has",
}


@pytest.mark.parametrize("name", WRONG_NAMES)
def test_wrong_names(monkeypatch, tmp_path, capfd, name):
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  with pytest.raises(UserError, match=WRONG_NAMES[name]):
    load_dataset(name)
  out, err = capfd.readouterr()
  assert out == err == ""


def own(monkeypatch, folder, splits, feature=None, labels=2):
  """Writes a data set `own` that tensorflow-datasets has no code for: {split: [(image,
  label), ...]}.
  """
  feature = feature or tfds.features.Image(shape=(2, 2, 1))

  class Own(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
      features = tfds.features.FeaturesDict(
        {"image": feature, "label": tfds.features.ClassLabel(num_classes=labels)}
      )
      return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, _):
      return {split: self._generate_examples(rows) for split, rows in splits.items()}

    def _generate_examples(self, rows):
      for i, (image, label) in enumerate(rows):
        yield i, {"image": image, "label": label}

  monkeypatch.setenv("TFDS_DATA_DIR", str(folder))
  with tfds_prepare.silence():
    tfds_prepare.prepare(Own(data_dir=folder), "own", str(folder))


@pytest.fixture(autouse=True)
def unregistered():
  with tfds.core.registered.skip_registration():
    yield


PIXELS = np.zeros((2, 2, 1), np.uint8)


def test_a_data_set_that_is_only_in_the_folder(monkeypatch, tmp_path):
  own(
    monkeypatch,
    tmp_path,
    {"train": [(PIXELS, 0), (PIXELS + 9, 1)], "test": [(PIXELS + 5, 1)]},
  )
  dataset = load_dataset("own")
  assert as_dict(dataset.train.inputs, dataset.train.targets) == as_dict(
    [PIXELS, PIXELS + 9], [0, 1]
  )
  assert dataset.tests["test"].inputs.tolist() == (PIXELS + 5)[None].tolist()


def test_unknown_test_set(monkeypatch, tmp_path):
  own(monkeypatch, tmp_path, {"train": [(PIXELS, 0)], "validation": [(PIXELS, 1)]})
  with pytest.raises(
    UserError, match=r"^unknown test set 'extra': choose one of train, validation"
  ):
    load_dataset("own", test_sets=["extra"])
  with pytest.raises(
    UserError, match="unknown test set 'test': choose one of train, validation"
  ):
    load_dataset("own")
  assert len(load_dataset("own", test_sets=["validation"]).tests["validation"]) == 1


def test_without_a_training_set(monkeypatch, tmp_path):
  own(monkeypatch, tmp_path, {"test": [(PIXELS, 0)]})
  with pytest.raises(
    UserError,
    match=r"^data set 'own' has no 'train' set, only test: choose another data set$",
  ):
    load_dataset("own")


def test_a_test_set_without_labels(monkeypatch, tmp_path):
  own(monkeypatch, tmp_path, {"train": [(PIXELS, 0)], "test": [(PIXELS, -1)]})
  with pytest.raises(
    UserError,
    match=r"^targets of 'test' of 'own' go from -1 to -1: classes lie in 0 to 1; where",
  ):
    load_dataset("own")


def test_grey_images_in_a_colour_set_get_three_channels(monkeypatch, tmp_path):
  """TensorFlow's decoder does the same."""
  from PIL import Image

  grey = np.arange(4, dtype=np.uint8).reshape(2, 2)
  png = io.BytesIO()
  Image.fromarray(grey).save(png, "PNG")
  feature = tfds.features.Image(shape=(2, 2, 3))
  own(
    monkeypatch,
    tmp_path,
    {"train": [(png.getvalue(), 0)], "test": [(png.getvalue(), 0)]},
    feature,
  )
  np.testing.assert_array_equal(
    load_dataset("own").train.inputs[0], np.stack([grey] * 3, -1)
  )


def test_record_files_that_tensorflow_wrote_are_read(cifar10, tmp_path):
  """The same records in the TFRecord format: framed, with checksums, which are not
  looked at.
  """
  from array_record.python.array_record_data_source import ArrayRecordDataSource

  first = load_dataset("cifar10", test_sets=["test", "train"])
  (version,) = tmp_path.glob("cifar10/3*")
  for path in version.glob("*array_record*"):
    source = ArrayRecordDataSource([str(path)])
    frames = [
      struct.pack("<QI", len(r), 0) + r + b"\0\0\0\0"
      for r in (source[i] for i in range(len(source)))
    ]
    path.with_name(path.name.replace("array_record", "tfrecord")).write_bytes(
      b"".join(frames)
    )
    path.unlink()
  info = json.loads(
    (version / "dataset_info.json").read_text().replace("array_record", "tfrecord")
  )
  (version / "dataset_info.json").write_text(json.dumps(info))

  second = load_dataset("cifar10", test_sets=["test", "train"])
  np.testing.assert_array_equal(first.train.inputs, second.train.inputs)
  np.testing.assert_array_equal(
    first.tests["test"].targets, second.tests["test"].targets
  )

  (path,) = version.glob("*train*tfrecord*")
  content = path.read_bytes()
  for cut, complaint in (
    (content[:-1], "ends within a record"),
    (content[: 16 + struct.unpack_from("<Q", content)[0]], "1 of 25 examples"),
  ):
    path.write_bytes(cut)
    with pytest.raises(
      UserError,
      match=rf"^the train set in '.*3\..*' cannot be read \(EOFError: .*{complaint}\)",
    ):
      load_dataset("cifar10")


def test_damaged_record_files(cifar10, tmp_path):
  load_dataset("cifar10")
  (path,) = tmp_path.glob("cifar10/3*/*train*array_record*")
  path.write_bytes(path.read_bytes()[:100])
  with pytest.raises(
    UserError,
    match=r"^the train set in '.*' cannot be read .*: delete that folder to have it prepared",
  ):
    load_dataset("cifar10")


def test_home_is_the_default_folder(monkeypatch, tmp_path):
  monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
  monkeypatch.setenv("HOME", str(tmp_path))
  seen = []

  def find(name, folder):
    seen.append(folder)
    raise UserError("enough")

  monkeypatch.setattr(tfds_read, "find_builder", find)
  with pytest.raises(UserError, match=r"enough"):
    load_dataset("cifar10")
  assert seen == [str(tmp_path / "tensorflow_datasets")]
