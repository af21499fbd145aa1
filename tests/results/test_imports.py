"""Imported runs: what the folder holds against plain NumPy, what is refused and by
which words, what is left behind.
"""

import errno
import json
import pickle
import signal
import subprocess
import sys
import time

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from test_cli import run

import vmapseeds as vs
from vmapseeds import stats
from vmapseeds.results import given as given_arrays
from vmapseeds.results import recording
from vmapseeds.results.opening import prediction_blocks
from vmapseeds.store import layout
from vmapseeds.store.results import Results

RUNS, EXAMPLES, CLASSES = 7, 23, 5


@pytest.fixture(scope="module")
def arrays():
  """Logits in float16 with many ties, the predictions that follow, and labels."""
  rng = np.random.default_rng(0)
  logits = rng.integers(-2, 3, (RUNS, EXAMPLES, CLASSES)).astype(np.float16)
  predictions = np.array(
    [[max(range(CLASSES), key=lambda c: (row[c], -c)) for row in r] for r in logits]
  )
  return {
    "logits": logits,
    "predictions": predictions,
    "labels": rng.integers(0, CLASSES, EXAMPLES),
  }


@pytest.fixture
def files(arrays, tmp_path):
  for name, array in arrays.items():
    np.save(tmp_path / f"{name}.npy", array)
  return {name: tmp_path / f"{name}.npy" for name in arrays}


def import_runs(out, labels, **given):
  return vs.import_runs(out, labels=labels, progress=False, **given)


def check(results, arrays):
  assert dict(results.sizes) == {"run": RUNS, "example": EXAMPLES}
  assert set(results) == {"predictions", "labels", "accuracy", "diverged"}
  np.testing.assert_array_equal(results.predictions, arrays["predictions"])
  np.testing.assert_array_equal(results.labels, arrays["labels"])
  np.testing.assert_array_equal(
    results.accuracy, (arrays["predictions"] == arrays["labels"]).mean(1)
  )
  assert not results.diverged.any()


@pytest.mark.parametrize("block_runs", [None, 1, 3, 7, 100])
@pytest.mark.parametrize("what", ["predictions", "logits"])
def test_files_of_any_block_size(what, block_runs, files, arrays, tmp_path):
  results = import_runs(
    tmp_path / "r", files["labels"], **{what: files[what]}, block_runs=block_runs
  )
  check(results, arrays)
  check(vs.open_results(tmp_path / "r"), arrays)
  assert results.predictions.dtype == np.int8
  assert Results(tmp_path / "r").block_runs == min(block_runs or RUNS, RUNS)
  assert {f.name for f in tmp_path.iterdir()} == {
    *(file.name for file in files.values()),
    "r",
  }


@pytest.mark.parametrize(
  "convert",
  [
    np.asarray,
    np.asfortranarray,
    jnp.asarray,
    np.ndarray.tolist,
    lambda x: x.astype(x.dtype.newbyteorder(">")),
    lambda x: zarr.array(x, chunks=x.shape),
    lambda x: xr.DataArray(x),
  ],
  ids=["numpy", "fortran", "jax", "lists", "big-endian", "zarr", "xarray"],
)
def test_arrays_of_any_kind(convert, arrays, tmp_path):
  labels = convert(arrays["labels"])
  check(
    import_runs(
      tmp_path / "p", labels, predictions=convert(arrays["predictions"]), block_runs=3
    ),
    arrays,
  )
  logits = convert(arrays["logits"])
  kept = import_runs(
    tmp_path / "l", labels, logits=logits, keep_logits=True, block_runs=3
  )
  np.testing.assert_array_equal(kept.logits, arrays["logits"])
  check(kept.drop_vars("logits"), arrays)


@pytest.mark.slow
def test_tensors_of_torch(arrays, tmp_path):
  torch = pytest.importorskip("torch")
  labels, logits = torch.tensor(arrays["labels"]), torch.tensor(arrays["logits"])
  check(import_runs(tmp_path / "r", labels, logits=logits), arrays)
  halved = import_runs(
    tmp_path / "h", labels, logits=logits.bfloat16(), keep_logits=True
  )
  np.testing.assert_array_equal(halved.logits, logits.bfloat16().float())
  np.testing.assert_array_equal(
    halved.predictions, logits.bfloat16().float().argmax(-1)
  )
  for unreadable in (
    [*logits.float().requires_grad_()],
    logits.float().to_sparse(),
  ):
    with pytest.raises(
      vs.UserError,
      match=r"logits (cannot be read as a NumPy array|is a list: give one array, .*) \(",
    ):
      import_runs(tmp_path / "no", labels, logits=unreadable)


def test_bfloat16(arrays, tmp_path):
  logits = jnp.asarray(arrays["logits"], jnp.bfloat16)
  for i, given in enumerate((logits, np.asarray(logits))):
    results = import_runs(
      tmp_path / str(i), arrays["labels"], logits=given, keep_logits=True
    )
    assert results.logits.dtype == np.float32
    np.testing.assert_array_equal(results.logits, logits.astype(jnp.float32))
    np.testing.assert_array_equal(results.predictions, logits.argmax(-1))


def test_a_mask_that_hides_nothing(tmp_path):
  results = import_runs(
    tmp_path / "r", np.ma.masked_array(LABELS), predictions=np.ma.masked_array(GOOD)
  )
  np.testing.assert_array_equal(results.predictions, GOOD)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_logits_are_kept_as_they_came(dtype, arrays, tmp_path):
  logits = arrays["logits"].astype(dtype) * np.asarray(1.1, dtype)
  results = import_runs(
    tmp_path / "r", arrays["labels"], logits=logits, keep_logits=True, block_runs=2
  )
  assert results.logits.dtype == dtype
  assert results.logits.dims == ("run", "example", "class")
  np.testing.assert_array_equal(results.logits, logits)


def test_differences_below_float32_decide(tmp_path):
  results = import_runs(tmp_path / "r", [0], logits=np.array([[[1, 1 + 1e-12]]]))
  assert results.predictions.values == [[1]]


def test_files_in_fortran_order(files, arrays, tmp_path, monkeypatch):
  np.save(files["predictions"], np.asfortranarray(arrays["predictions"]))
  check(
    import_runs(
      tmp_path / "r", files["labels"], predictions=files["predictions"], block_runs=2
    ),
    arrays,
  )
  monkeypatch.setattr(given_arrays, "FORTRAN_BYTES", 100)
  with pytest.raises(vs.UserError, match="is in Fortran order"):
    import_runs(tmp_path / "no", files["labels"], predictions=files["predictions"])


def test_statistics_are_those_of_the_arrays(arrays, tmp_path):
  results = import_runs(
    tmp_path / "r", arrays["labels"], logits=arrays["logits"], block_runs=2
  )
  errors = arrays["predictions"] != arrays["labels"]
  np.testing.assert_array_equal(vs.error_matrix(results), errors)
  tallied = stats.tally_blocks(
    prediction_blocks(results, 3), results.labels.values, CLASSES
  )
  assert tallied.distribution_variance() == stats.distribution_variance(errors)


def test_attributes_say_where_runs_are_from(files, tmp_path):
  results = import_runs(
    tmp_path / "r", files["labels"], logits=files["logits"], name="their [runs]"
  )
  recipe = json.loads(results.attrs["recipe"])
  assert recipe == {
    "name": "their [runs]",
    "dataset": None,
    "test_sets": ["test"],
    "imported": {
      "logits": {
        "file": "logits.npy",
        "shape": [RUNS, EXAMPLES, CLASSES],
        "dtype": "float16",
      },
      "labels": {"file": "labels.npy", "shape": [EXAMPLES], "dtype": "int64"},
    },
  }
  assert results.attrs["num_classes"] == CLASSES
  assert results.attrs["device_kind"] == "imported"
  for name in ("lane_width", "lowering", "precision", "data_digest"):
    assert name not in results.attrs
  assert set(json.loads(results.attrs["versions"])) == {"python", "vmapseeds", "numpy"}


@pytest.mark.parametrize(
  ("given", "name"), [("files", "logits"), ("arrays", "imported")]
)
def test_default_names(given, name, request, tmp_path):
  given = request.getfixturevalue(given)
  results = import_runs(tmp_path / "r", given["labels"], logits=given["logits"])
  assert json.loads(results.attrs["recipe"])["name"] == name


@pytest.mark.parametrize(
  ("labels", "predictions", "given", "num_classes", "dtype"),
  [
    ([0, 7], [[0, 3]], None, 8, np.int8),  # absent from the predictions
    ([0, 1], [[2, 9]], None, 10, np.int8),  # absent from the labels
    ([0, 7], [[0, 7]], 10, 10, np.int8),
    ([0, 126], [[0, 1]], None, 127, np.int8),
    ([0, 127], [[0, 1]], None, 128, np.int16),
    ([0, 2**15 - 1], [[-1, 2**15 - 1]], None, 2**15, np.int16),
    ([0], [[-1]], None, 1, np.int8),
  ],
)
def test_number_of_classes(labels, predictions, given, num_classes, dtype, tmp_path):
  results = import_runs(
    tmp_path / "r", labels, predictions=predictions, num_classes=given
  )
  assert results.attrs["num_classes"] == num_classes
  assert results.predictions.dtype == dtype
  np.testing.assert_array_equal(results.predictions, predictions)


def test_labels_that_count_from_1_are_noted(tmp_path, capsys):
  predictions = np.array([[0, 1, 2, 1], [0, 1, 2, 2]])
  for name, labels, noted in (
    ("0", [0, 1, 2, 1], False),
    ("1", [1, 2, 3, 2], True),
    ("rare", [0, 1, 2, 3], False),  # that no run predicts class 3 is no mistake
    ("rarer", [1, 2, 1, 9], False),
  ):
    vs.import_runs(tmp_path / name, predictions=predictions, labels=labels)
    assert (
      "note: no run predicts class 3: do labels count from 0" in capsys.readouterr().err
    ) is noted


def test_no_prediction_is_an_error(tmp_path):
  results = import_runs(
    tmp_path / "r", [0, 1, 1], predictions=[[-1, 1, -1], [0, -1, 1]]
  )
  assert results.accuracy.values.tolist() == [1 / 3, 2 / 3]
  assert vs.error_matrix(results).tolist() == [
    [True, False, True],
    [False, True, False],
  ]


def test_one_run_and_one_example(tmp_path):
  results = import_runs(
    tmp_path / "r", [1], logits=np.array([[[0.5, 0.5]]], np.float16)
  )
  assert dict(results.sizes) == {"run": 1, "example": 1}
  assert results.predictions.values.tolist() == [
    [0]
  ]  # of equal logits the lowest class
  assert results.accuracy.values.tolist() == [0]


def test_labels_of_8_bits(arrays, tmp_path):
  results = import_runs(
    tmp_path / "r", arrays["labels"].astype(np.uint8), predictions=arrays["predictions"]
  )
  check(results, arrays)


# What is refused


def with_nan(value):
  logits = np.zeros((6, 4, 3), np.float16)
  logits[4, 2, 1] = value
  logits[5, 0, 0] = np.nan  # a later one
  return logits


LABELS = np.array([0, 1, 2, 1])
GOOD = np.zeros((6, 4), int)


def with_class(value, dtype=int):
  predictions = GOOD.astype(dtype)
  predictions[4, 2] = value
  return predictions


@pytest.mark.parametrize(
  ("given", "message"),
  [
    ({}, "nothing is given: give one of predictions, logits, probabilities, losses"),
    (
      {"predictions": GOOD, "logits": np.zeros((6, 4, 3))},
      "predictions with logits: give one of predictions, logits, probabilities, losses",
    ),
    ({"predictions": GOOD, "keep_logits": True}, "predictions have no logits to keep"),
    (
      {"logits": with_nan(np.nan)},
      "logits is nan at run 4, example 2, class 1: leave such entries out",
    ),
    ({"logits": with_nan(-np.inf)}, "logits is -inf at run 4, example 2, class 1"),
    (
      {"logits": np.zeros((6, 4, 3), int)},
      "logits has dtype int64: give float16, bfloat16, float32 or float64",
    ),
    (
      {"logits": np.zeros((6, 4, 3), "V2")},
      "float64; np.save loses bfloat16, save float32",
    ),
    (
      {"logits": np.ma.masked_equal(with_nan(9.0), 9)},
      # Of some classes alone, which is no example that was not asked.
      "logits is nan at run 4, example 2, class 1: leave such entries out",
    ),
    (
      {"predictions": GOOD, "labels": np.ma.masked_equal(LABELS, 1)},
      "labels has masked entries: fill them, or leave",
    ),
    (
      {"predictions": xr.Dataset()},
      "predictions is a Dataset: give one array, (runs, examples)",
    ),
    ({"predictions": GOOD, "name": 3}, "the name is 3: give text"),
    (
      {"logits": np.zeros((6, 4, 1))},
      "(runs, examples, classes), axis 0 runs, axis 1 examples, axis 2 classes: give at least two",
    ),
    ({"logits": np.zeros((6, 4, 3)), "num_classes": 4}, "logits has 3 classes, not 4"),
    (
      {"logits": np.zeros((6, 4, 2))},
      "labels is 2 at example 2: give class indices, 0 to 1",
    ),
    ({"logits": np.zeros((4, 3))}, "; for a single run give logits[None]"),
    (
      {"logits": np.zeros((4, 6, 3))},
      "labels has shape (4,) beside logits of shape (4, 6, 3), of which axis 1 is examples: give one label an example, 6; are the axes of logits in another order?",
    ),
    ({"logits": np.zeros((0, 4, 3))}, "give at least one of each"),
    (
      {"predictions": GOOD.T},
      "labels has shape (4,) beside predictions of shape (4, 6), of which axis 1 is examples: give one label an example, 6; are the axes of predictions in another order?",
    ),
    (
      {"predictions": GOOD[0]},
      "predictions has shape (4,): give (runs, examples), axis 0 runs, axis 1 examples; for a single run give predictions[None]",
    ),
    (
      {"predictions": np.zeros((6, 4, 3))},
      "predictions has shape (6, 4, 3): give (runs, examples)",
    ),
    ({"predictions": [[0, 1], [0]]}, "predictions has rows of unequal length"),
    (
      {"predictions": GOOD[:0]},
      "predictions has shape (0, 4), (runs, examples), axis 0 runs, axis 1 examples: give at least one",
    ),
    (
      {"predictions": GOOD.astype(float)},
      "predictions has dtype float64: give class indices, integers",
    ),
    (
      {"predictions": GOOD, "values": pd.Series([0, 1, 2], name="seed")},
      "give name -> numbers",
    ),
    ({"predictions": GOOD.astype(str)}, "labels are numbers, and predictions names"),
    (
      {"predictions": with_class(-3)},
      "predictions is -3 at run 4, example 2: give class indices, 0 to 32767, -1 for none",
    ),
    (
      {"predictions": with_class(3), "num_classes": 3},
      "predictions is 3 at run 4, example 2: give class indices, 0 to 2, -1 for none",
    ),
    (
      {"predictions": with_class(2**64 - 1, np.uint64)},
      f"predictions is {2**64 - 1} at run 4, example 2",
    ),
    (
      {"predictions": GOOD, "num_classes": 2},
      "labels is 2 at example 2: give class indices, 0 to 1",
    ),
    (
      {"predictions": GOOD, "num_classes": 0},
      "the number of classes is 0: give a whole number of at least 1",
    ),
    (
      {"predictions": GOOD, "num_classes": 2**15 + 1},
      "there are 32769 classes: give at most 32768",
    ),
    ({"predictions": GOOD, "block_runs": 0}, "block_runs is 0"),
    (
      {"logits": np.zeros((6, 4, 3)), "labels": None},
      "has no runs yet: give labels, a class for each test example",
    ),
    (
      {"predictions": GOOD, "labels": LABELS - 1},
      "labels is -1 at example 0: give class indices, 0 to",
    ),
    ({"predictions": GOOD, "labels": LABELS * 1.0}, "labels has dtype float64"),
    (
      {"predictions": GOOD, "labels": np.eye(3)[LABELS]},
      "labels has shape (4, 3): give (examples,), axis 0 examples",
    ),
  ],
)
def test_what_does_not_fit_is_refused(given, message, tmp_path):
  with pytest.raises(vs.UserError) as mistake:
    import_runs(tmp_path / "new" / "r", **{"labels": LABELS, "block_runs": 2} | given)
  assert message in str(mistake.value)
  assert list(tmp_path.iterdir()) == []


def write_text(path):
  path.write_text("0 1 2\n")


def write_pickled_array(path):
  np.save(path, np.array([[0, {}]], object), allow_pickle=True)


def write_pickle(path):
  path.write_bytes(pickle.dumps([[0, 1]]))


def write_truncated(path):
  np.save(path, GOOD)
  path.write_bytes(path.read_bytes()[:-8])


def write_only_a_header(path):
  np.save(path, GOOD)
  path.write_bytes(path.read_bytes()[:128])


def write_half_a_header(path):
  np.save(path, GOOD)
  path.write_bytes(path.read_bytes()[:60])


def write_header(header):
  def write(path):
    header_bytes = header.encode()
    path.write_bytes(
      b"\x93NUMPY\x01\x00"
      + len(header_bytes).to_bytes(2, "little")
      + header_bytes
      + bytes(1000)
    )

  return write


def write_npz(path):
  with path.open("wb") as file:
    np.savez(file, GOOD)


@pytest.mark.parametrize(
  ("write", "message"),
  [
    (lambda path: None, "is no file: give a .npy file"),
    (lambda path: path.mkdir(), "is no file: give a .npy file"),
    (lambda path: path.touch(), "cannot be read (EOF"),
    (write_text, "cannot be read (EOF"),
    (write_pickle, "cannot be read (the magic string is not correct"),
    (write_npz, "): give a .npy file, as np.save writes one array"),
    (
      write_pickled_array,
      "cannot be read (Array can't be memory-mapped: Python objects in dtype.)",
    ),
    (write_truncated, "cannot be read (mmap length is greater than file size)"),
    (write_only_a_header, "cannot be read"),
    (write_half_a_header, "cannot be read"),
    (write_header("{'descr': '<i8', "), "cannot be read"),
    (write_header("(" * 5000), "cannot be read"),
    (
      write_header("{'descr': '<i8', 'fortran_order': False, 'shape': (-1, 4)}\n"),
      "cannot be read",
    ),
    (
      write_header(
        "{'descr': '<i8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}\n"
      ),
      "cannot be read",
    ),
    (
      write_header("{'descr': '<i8', 'fortran_order': False, 'shape': ()}\n"),
      "{} has shape (): give (",
    ),
  ],
)
def test_files_that_hold_no_array_are_refused(write, message, tmp_path, capsys):
  np.save(tmp_path / "good.npy", LABELS)
  write(tmp_path / "bad.npy")
  before = sorted(tmp_path.iterdir())
  for bad, good in (("--predictions", "--labels"), ("--labels", "--predictions")):
    given = (bad, tmp_path / "bad.npy", good, tmp_path / "good.npy")
    if good == "--predictions":
      np.save(tmp_path / "good.npy", GOOD)
    status, out, err = run(capsys, "import", *given, "--out", tmp_path / "r", "--quiet")
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert message.format(bad.removeprefix("--")) in err
    assert err.count("\n") == 1
  assert sorted(tmp_path.iterdir()) == before


def test_folders_are_never_overwritten(files, tmp_path):
  out = tmp_path / "r"
  out.mkdir()
  (out / "note.txt").write_text("mine")
  with pytest.raises(vs.UserError, match="is not empty"):
    import_runs(out, files["labels"], logits=files["logits"])
  assert [f.name for f in out.iterdir()] == ["note.txt"]
  (out / "note.txt").unlink()
  import_runs(out, files["labels"], logits=files["logits"])
  with pytest.raises(
    vs.UserError, match="has these predictions already, from run 0 on"
  ):
    import_runs(out, files["labels"], logits=files["logits"])
  with pytest.raises(vs.UserError, match="is a file: give a folder"):
    import_runs(files["labels"], files["labels"], logits=files["logits"])


def test_an_empty_folder_by_any_path(files, arrays, tmp_path, monkeypatch):
  (tmp_path / "real").mkdir()
  (tmp_path / "link").symlink_to("real")
  check(import_runs(tmp_path / "link", files["labels"], logits=files["logits"]), arrays)
  assert (tmp_path / "link").is_symlink()
  check(vs.open_results(tmp_path / "real"), arrays)


def test_imported_runs_are_not_trained_further(files, arrays, tmp_path):
  import_runs(tmp_path / "r", files["labels"], logits=files["logits"])
  with pytest.raises(
    vs.UserError, match="holds imported runs, which cannot be extended"
  ):
    vs.train(
      vs.recipe("digits_cnn"), vs.Runs.independent(9), tmp_path / "r", progress=False
    )
  check(vs.open_results(tmp_path / "r"), arrays)
  with pytest.raises(vs.UserError, match="unknown test set 'exam'"):
    vs.open_results(tmp_path / "r", "exam")


# The command line


def test_import_on_the_command_line(files, arrays, tmp_path, capsys):
  given = (
    "--labels",
    files["labels"],
    "--out",
    tmp_path / "r",
    "--logits",
    files["logits"],
  )
  status, out, err = run(capsys, "import", *given, "--keep-logits", "--name", "theirs")
  mean = (arrays["predictions"] == arrays["labels"]).mean()
  assert status == 0
  assert out == (
    f"7 runs on 23 examples of 5 classes in {tmp_path / 'r'}, mean accuracy {mean:.2%}; "
    f"next: vmapseeds report {tmp_path / 'r'}\n"
  )
  assert "importing" in err
  results = vs.open_results(tmp_path / "r")
  assert json.loads(results.attrs["recipe"])["name"] == "theirs"
  check(results.drop_vars("logits"), arrays)
  given = (
    "--labels",
    files["labels"],
    "--out",
    tmp_path / "p",
    "--predictions",
    files["predictions"],
  )
  status, out, err = run(capsys, "import", *given, "--classes", 12, "--quiet")
  assert (status, err) == (0, "")
  assert "of 12 classes" in out
  status, out, err = run(
    capsys, "import", "--labels", files["labels"], "--out", tmp_path / "n"
  )
  assert (status, out, err) == (
    2,
    "",
    "error: nothing is given: give one of predictions, logits, probabilities, losses\n",
  )


def test_an_interruption_leaves_nothing(files, tmp_path, capsys, monkeypatch):
  before = sorted(tmp_path.iterdir())

  def interrupt(logits, first, what):
    if first:
      raise KeyboardInterrupt
    return np.zeros(logits.shape[:2], np.int16)

  monkeypatch.setattr(recording, "class_of_largest_logit", interrupt)
  monkeypatch.setattr(recording, "BLOCK_BYTES", 1)  # a run a block
  given = (
    "--labels",
    files["labels"],
    "--out",
    tmp_path / "new" / "r",
    "--logits",
    files["logits"],
  )
  status, out, err = run(capsys, "import", *given, "--quiet")
  assert (status, out, err) == (130, "", "interrupted: nothing was written\n")
  assert sorted(tmp_path.iterdir()) == before


def test_what_cannot_be_written_is_said(files, tmp_path, monkeypatch):
  def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")

  monkeypatch.setattr(layout, "write_record", full)
  with pytest.raises(
    vs.UserError,
    match=r"cannot be written \(No space left on device\): give another folder",
  ):
    import_runs(tmp_path / "new" / "r", files["labels"], logits=files["logits"])
  assert sorted(f.name for f in tmp_path.iterdir()) == [
    "labels.npy",
    "logits.npy",
    "predictions.npy",
  ]


# Size


@pytest.fixture
def large(tmp_path):
  """6 GB of zeros, of which the disk keeps nothing."""
  header = np.lib.format.open_memmap(
    tmp_path / "zeros.npy", "w+", np.float16, (30_000, 10_000, 10)
  )
  del header
  np.save(tmp_path / "labels.npy", np.zeros(10_000, int))
  return [
    "--logits",
    str(tmp_path / "zeros.npy"),
    "--labels",
    str(tmp_path / "labels.npy"),
    "--out",
    str(tmp_path / "r"),
  ]


@pytest.mark.seldom
@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_files_larger_than_memory(large, tmp_path):
  limits = "import resource; resource.setrlimit(resource.RLIMIT_DATA, (4 * 2**30,) * 2)"
  program = (
    f"{limits}; from vmapseeds import cli; cli.main({['import', *large, '--quiet']!r})"
  )
  # `getrusage` would count the size of the parent process too.
  program += (
    "; print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"
  )
  said = subprocess.run(
    [sys.executable, "-c", program], capture_output=True, text=True, check=True
  ).stdout.splitlines()
  assert "30000 runs on 10000 examples of 10 classes" in said[0]
  assert int(said[1]) * 1024 < 2**30
  assert (vs.open_results(tmp_path / "r").accuracy == 1).all()


@pytest.mark.slow
def test_ctrl_c_in_the_middle_leaves_nothing(large, tmp_path):
  before = sorted(tmp_path.iterdir())
  # A shell's background processes ignore the signal.
  program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from vmapseeds import cli; "
  program += f"cli.main({['import', *large, '--quiet', '--keep-logits']!r})"
  process = subprocess.Popen(
    [sys.executable, "-c", program], stderr=subprocess.PIPE, text=True
  )
  while sorted(tmp_path.iterdir()) == before and process.poll() is None:
    time.sleep(0.01)
  time.sleep(0.2)
  process.send_signal(signal.SIGINT)
  _, err = process.communicate(timeout=60)
  assert (process.returncode, err) == (130, "interrupted: nothing was written\n")
  assert sorted(tmp_path.iterdir()) == before
