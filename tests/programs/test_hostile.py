"""Hostile input through the command line: one line, exit status 2, nothing run, nothing
changed on disk.
"""

import contextlib
import functools
import hashlib
import io
import itertools
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import mostly_seldom, words_of

import vmapseeds as vs
from experiments import frame, jordan2024
from vmapseeds import cli, models
from vmapseeds.campaign import block_training, execution, starting
from vmapseeds.reports import pages
from vmapseeds.store import claims, layout
from vmapseeds.store.results import Results, variables_of_blocks
from vmapseeds.training.networks import make_network


def tiny(*argv):
  """The command that trains on the small file; settings at the beginning of `argv`
  replace its own.
  """
  own = ("dataset=tiny.npz", "model=linear", "batch_size=4", "epochs=1", "augment=")
  given = {
    word.partition("=")[0]
    for word in itertools.takewhile(lambda word: not word.startswith("--"), argv)
  }
  return [
    "train",
    "digits_cnn",
    "--set",
    *(one for one in own if one.partition("=")[0] not in given),
    *argv,
  ]


class Accepted(BaseException):
  """Raised where training would begin: what was given has passed every check."""


def snapshot(folder, times_of_folders=True):
  """What lies in a folder: kind, permissions, size, time of change and content of
  everything.
  """

  def of(path):
    status = path.lstat()
    content = (
      hashlib.sha256(path.read_bytes()).hexdigest()
      if path.is_file() and not path.is_symlink()
      else None
    )
    time = status.st_mtime_ns if times_of_folders or not path.is_dir() else None
    return (
      status.st_mode,
      status.st_size,
      time,
      os.readlink(path) if path.is_symlink() else content,
    )

  return {str(path): of(path) for path in sorted(folder.rglob("*"))}


def arrays(**changes):
  """What `tiny.npz` holds: twelve training and six test images of three classes, and a
  second test set.
  """
  rng = np.random.default_rng(0)
  good = {}
  for split, n in (("train", 12), ("test", 6), ("extra", 3)):
    good[f"x_{split}"] = rng.integers(0, 256, (n, 4, 4, 1), np.uint8)
    good[f"y_{split}"] = np.arange(n) % 3
  return {k: v for k, v in (good | changes).items() if v is not None}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  """A data set, files to import, a campaign of four runs with logits (`r`) and imported
  runs (`i`): made once.
  """
  with pytest.MonkeyPatch.context() as patch:
    patch.chdir(tmp_path_factory.mktemp("made"))
    np.savez("tiny.npz", **arrays())
    rng = np.random.default_rng(1)
    np.save("y.npy", np.arange(6) % 3)
    np.save("p.npy", rng.integers(0, 3, (4, 6)))
    np.save("l.npy", rng.normal(size=(4, 6, 3)).astype(np.float32))
    few = "--runs 4 --seed-batch 2 --logits --quiet --out r"
    cli.main(tiny("test_sets=test,extra", *words_of(few)))
    cli.main(words_of("import --labels y.npy --predictions p.npy --out i --quiet"))
    return Path.cwd()


@pytest.fixture
def files(made, tmp_path, monkeypatch):
  """Copies of the files in a working folder some levels deep; trainings and
  measurements raise `Accepted`.
  """
  work = tmp_path / "a" / "b" / "work"
  work.mkdir(parents=True)
  for file in made.glob("*.np?"):
    shutil.copyfile(file, work / file.name)
  for name in ("XDG_CACHE_HOME", "HOME", "TFDS_DATA_DIR", "TMPDIR"):
    (tmp_path / name).mkdir()
    monkeypatch.setenv(name, str(tmp_path / name))
  monkeypatch.chdir(work)

  def accepted(*args, **kwargs):
    raise Accepted

  for module, name in (
    (block_training, "spread_program"),
    (execution, "measure_speed"),
  ):
    monkeypatch.setattr(module, name, accepted)
  return work


@pytest.fixture
def work(made, files):
  """The same working folder with copies of the results folders."""
  for name in ("r", "i"):
    shutil.copytree(made / name, files / name, copy_function=shutil.copyfile)
  return files


@pytest.fixture
def refused(files, tmp_path, capsys):
  """refused(argv, message): that the command line says so in one line, ends with 2 and
  leaves the disk as it was.
  """

  def check(argv, message, main=cli.main, times_of_folders=True):
    before = snapshot(tmp_path, times_of_folders)
    with pytest.raises(SystemExit) as end:
      main([str(a) for a in argv])
    out, err = capsys.readouterr()
    assert err.startswith("error: "), err
    assert err.count("\n") == 1, err
    assert message in err
    assert "Traceback" not in err
    assert err[:-1].isprintable()
    assert len(err) < 3000
    assert (out, end.value.code) == ("", 2)
    assert snapshot(tmp_path, times_of_folders) == before

  return check


# Recipes


@pytest.mark.parametrize(
  ("setting", "message"),
  [
    ("epochs", "write FIELD=VALUE"),
    ("", "write FIELD=VALUE"),
    ("=", "unknown recipe field ''"),
    ("__class__=int", "unknown recipe field '__class__'"),
    ("epochs\n=4", "unknown recipe field"),
    ("\x1b[2Jepochs=4", "unknown recipe field"),
    ("épochs=4", "did you mean 'epochs'?"),
    ("epochs=", "epochs is '': give a whole number"),
    ("epochs=-1", "epochs is -1: give a whole number of at least 0"),
    ("epochs=1.5", "epochs is 1.5: give a whole number"),
    ("epochs=1e3", "epochs is 1000.0: give a whole number"),
    ("epochs=NaN", "epochs is nan: give a whole number"),
    ("epochs=true", "epochs is True: give a whole number"),
    ("epochs=none", "epochs is None: give a whole number"),
    ("epochs=4;rm -rf /", "epochs is '4;rm -rf /': give a whole number"),
    ("epochs=[4]", "epochs is [4]: give a whole number"),
    ("epochs=" + "9" * 30, "epochs is 9999"),
    ("epochs=" + "9" * 10_000, "epochs is '9999"),
    ("epochs=" + "[" * 100_000, "epochs is '[[["),
    ("batch_size=0", "batch_size is 0: give a whole number of at least 1"),
    ("batch_size=13", "batch_size 13 with 12 training examples"),
    ("lr=-0.1", "lr is -0.1: give a finite number"),
    ("lr=nan", "lr is 'nan': give a number"),
    ("lr=NaN", "lr is nan: give a finite number"),
    ("lr=1e999", "lr is inf: give a finite number"),
    ("lr=1e39", "lr is 1e+39: give a finite number"),
    ("lr=" + "9" * 400, "lr is 9999"),
    ("lr=0,1", "lr is '0,1': give a number"),
    ('lr="0.1"', "lr is '0.1': give a number"),
    ("lr=none", "lacks lr: give a learning rate"),
    ("momentum=1", "momentum is 1.0: give a number of at least 0 and below 1"),
    ("momentum=false", "momentum is False: give a number"),
    ("weight_decay=-Infinity", "weight_decay is -inf: give a finite number"),
    ("width=0", "width is 0.0: give a finite number above 0"),
    ("width=1e30", "width is 1e+30: give"),
    ("model=", "unknown model of recipe 'digits_cnn': ''"),
    ("model=Linear", "did you mean 'linear'?"),
    (
      "model=resnet9",
      "model 'resnet9' on images of 4×4 pixels: give at least 11×11, or another model",
    ),
    ("optimizer=sdg", "did you mean 'sgd'?"),
    ("schedule=cosines", "did you mean 'cosine'?"),
    ("precision=float16", "choose one of auto, float32, tensorfloat32"),
    ("name=", "recipe name '' cannot be the name of a file"),
    ("name=../../evil", "recipe name '../../evil' cannot be the name"),
    ("name=two\nlines", "recipe name 'two"),
    ("name=" + "n" * 5000, "recipe name 'nnn"),
    ("augment=flip=2", "write flip and alternate without a size, the others as"),
    ("augment=alternate=2", "write flip and alternate without a size"),
    ("augment=cutout", "augmentation 'cutout'"),
    ("augment=cutout=-2", "augmentation 'cutout=-2'"),
    ("augment=cutout=0", "augmentation cutout is 0"),
    ("augment=cutout=5", "augmentation 'cutout=5' on images of 4×4 pixels"),
    ("augment=cutout=" + "9" * 8, "on images of 4×4 pixels"),
    ("augment=reflect=4", "at most reflect=3"),
    ("augment=blur=3", "'blur': choose one of flip, alternate, translate, reflect,"),
    ("mean=1,2", "/tiny.npz images of 1: give 1 or none"),
    ("mean=", "mean of 0 channels"),
    ("mean=NaN", "mean is (nan,): give finite numbers"),
    ("mean=1e300", "mean is (1e+300,): give finite numbers"),
    ("mean=a", "mean is 'a': give a number"),
    ("std=0", "std is (0.0,): give finite numbers above 0"),
    ("std=1e-300", "std is (1e-300,): give finite numbers above 0"),
    ("test_sets=", "test_sets is ()"),
    ("test_sets=none", "test_sets is None: give a list"),
    ("test_sets=test,test", "each once"),
    ("test_sets=tset", "unknown test set 'tset'"),
    ("test_sets=/etc", "test set '/etc'"),
    ("test_sets=a\\b", "test set"),
    ("test_sets=.hidden", "test set '.hidden'"),
    ("test_sets=te\x00st", "holds a null character"),
    (
      "test_sets=diverged",
      "test set 'diverged': that name is already used in the results",
    ),
    (
      "test_sets=seed_init",
      "test set 'seed_init': that name is already used in the results",
    ),
    ("test_sets=" + "t" * 300, "test set 'ttt"),
    ("dataset=", "data set '' cannot be opened"),
    ("dataset=\n", "data set"),
    ("dataset=mnist:no.version", "data set 'mnist:no.version'"),
    ("dataset=mnist/split=train[:0]", "data set 'mnist/split=train[:0]'"),
    ("dataset=huggingface:mnist", "data set 'huggingface:mnist'"),
    ("dataset=ｄｉｇｉｔｓ", "data set"),
    ("dataset=file:///etc/passwd", "data set 'file:///etc/passwd'"),
    ("dataset=https://localhost/x.npz", "no such file"),
    ("dataset=" + "x" * 5000 + ".npz", "no such file"),
    ("dataset=tiny.npz/x.npz", "no such file"),
    ("dataset=tiny.npz\x00.npz", "holds a null character"),
    ("dataset=\udcff.npz", "is no UTF-8"),
  ],
)
def test_recipe_fields(setting, message, refused):
  argv = tiny(setting)
  refused([*argv, "--out", "new"], message)


@pytest.mark.parametrize("model", models.NAMES)
def test_the_smallest_images(model):
  def sees(pixels):
    """Whether pixels are left before the last layer. JAX before 0.12 cannot make
    weights for none.
    """
    made = make_network(vs.recipe("digits_cnn", model=model, precision="float32"), 3)
    images = jnp.zeros((1, pixels, pixels, 1))
    try:
      variables = jax.eval_shape(made.init, jax.random.key(0), images)
      out = jax.eval_shape(made.apply, variables, images)
    except (ValueError, ZeroDivisionError):
      return False
    assert out.shape == (1, 3)
    return all(leaf.size for leaf in jax.tree.leaves(variables))

  least = max(1, models.MODELS[model][1])
  assert sees(least)
  assert least == 1 or not sees(least - 1)


ODD_RECIPES = (
  "../digits_cnn",
  "digits_cnn\n",
  "DIGITS_CNN",
  "ｄｉｇｉｔｓ_cnn",
  "%s%n",
)


@pytest.mark.parametrize("name", ["", "-", *ODD_RECIPES, "d" * 5000])
def test_recipe_names(name, refused):
  refused(
    ["train", name, "--out", "new"], "unknown recipe" if name != "-" else "error: "
  )


# Flags


@pytest.mark.parametrize(
  ("argv", "message"),
  [
    (["--runs", "-1"], "runs is -1"),
    (["--runs", "1.5"], "--runs"),
    (["--runs", "1e3"], "--runs"),
    (["--runs", ""], "--runs"),
    (["--runs"], "--runs"),
    (["--runs", "4", "4"], "unknown flag or word '4'"),
    (["--runs", "1" + "0" * 30], "give at most 10000000"),
    (["--runs", "9" * 5000], "--runs"),
    (["--runs", "4000000000"], "runs is 4000000000"),
    (["--rnus", "4"], "unknown flag or word '--rnus': did you mean --runs?"),
    (["--run\x1b[31ms", "4"], r"unknown flag or word '--run\x1b[31ms'"),
    (["--seed-batch", "-1"], "seed batch is -1"),
    (["--seed-batch", "2.0"], "--seed-batch"),
    (["--lane-width", "-2"], "lane width is -2"),
    (["--lane-width", "5"], "lane width 5 with 4 runs"),
    (["--lane-width", "3", "--seed-batch", "2"], "lane width 3 with seed batch 2"),
    (["--lane-width", "1" + "0" * 30], "lane width 1000"),
    (["--lowering", ""], "unknown lowering ''"),
    (["--lowering", "im2col,grouped"], "unknown lowering 'im2col,grouped'"),
    (["--vary", "weather"], "unknown source of randomness 'weather'"),
    (["--vary", "init", ""], "unknown source of randomness ''"),
    (["--vary", "init,order"], "unknown source of randomness 'init,order'"),
    (["--vary", "init", "init"], "sources that vary are init, init: choose some of"),
    (["--until", ""], "--until ''"),
    (["--until", "mean_accuracy"], "write STATISTIC rel X%"),
    (["--until", "mean_accuracy rel"], "write STATISTIC rel X%"),
    (["--until", "mean_accuracy rel 0%"], "is no number above 0"),
    (["--until", "mean_accuracy rel nan"], "write STATISTIC rel X%"),
    (["--until", "mean_accuracy abs 1e999"], "is no number above 0"),
    (["--until", "mean_accuracy abs ١"], "write STATISTIC rel X%"),
    (["--until", "mean_acuracy rel 1%"], "did you mean 'mean_accuracy'?"),
    (["--until", "min_accuracy rel 1%"], "unknown statistic 'min_accuracy'"),
    (["--until", "mean_accuracy rel 1%\nabs 1"], "write STATISTIC rel X%"),
    (["--until", "__class__ abs 1"], "unknown statistic '__class__'"),
    (["--until", "mean_accuracy rel 1%", "--most-runs", "-1"], "most runs is -1"),
    (["--until", "mean_accuracy rel 1%", "--most-runs", "3"], "most runs is 3"),
    (
      ["--until", "mean_accuracy rel 1%", "--most-runs", "1" + "0" * 30],
      "give at most 10000000",
    ),
    (["--until", "mean_accuracy rel 1%", "--runs", "0"], "runs is 0"),
    (["--logits", "--no-logits"], "error"),
    (["--logits=maybe"], "--logits is 'maybe': give true or false"),
    (["--quiet", "please"], "unknown flag or word 'please'"),
    (["--out", ""], "holds something else than results"),
    (["--out"], "--out"),
    (["--out", "tiny.npz"], "tiny.npz is a file: give a folder"),
    (["--out", "tiny.npz/r"], "tiny.npz/r cannot be written"),
    (["--out", "."], "holds something else than results"),
    (["--out", "r/test"], "holds something else than results"),
    (["--out", "i"], "holds imported runs"),
    (["--out", "ne\x00w"], "holds a null character"),
    (["--out", "n" * 300], "too long"),
    (["--out", "n/" * 3000], "too long"),
    (["--out", "/proc/none/r", "--quiet"], "cannot be written"),
    (["--out", "/dev/null"], "is a file"),
    (["--out", "/dev/null/r"], "cannot be written"),
  ],
)
def test_train_flags(argv, message, work, refused):
  given = {} if "--runs" in argv else {"--runs": "4"}
  given |= {} if "--out" in argv else {"--out": "new"}
  refused(tiny(*(x for pair in given.items() for x in pair), *argv), message)


# Data sets


class Payload:
  """Creates the file `ran` when it is unpickled."""

  def __reduce__(self):
    return (open, ("ran", "w"))


def test_the_payload_is_one(work):
  pickle.loads(pickle.dumps(Payload())).close()
  assert Path("ran").exists()


def npy(array=None, *, header=None, body=b"", version=(1, 0)):
  """The bytes of a `.npy` file, or of one with any header."""
  if header is None:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()
  text = header.encode() if isinstance(header, str) else header
  return (
    b"\x93NUMPY"
    + bytes(version)
    + len(text).to_bytes(2 if version[0] == 1 else 4, "little")
    + text
    + body
  )


def declared(shape, descr="|u1", **options):
  return npy(
    header=f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}}}\n",
    **options,
  )


def zipped(
  *, method=zipfile.ZIP_STORED, edit=lambda content: content, more=(), **members
):
  """The bytes of `tiny.npz` with some members replaced by other bytes (None: left out),
  then edited as a whole.
  """
  file = io.BytesIO()
  with zipfile.ZipFile(file, "w", method) as archive:
    for name, content in ({k: npy(v) for k, v in arrays().items()} | members).items():
      if content is not None:
        archive.writestr(f"{name}.npy", content)
    for name, content in more:
      archive.writestr(name, content)
  return edit(file.getvalue())


def of(**members):
  """A file of `tiny.npz` with other arrays."""
  return lambda: zipped(**{name: npy(np.asarray(a)) for name, a in members.items()})


def edited(edit):
  return lambda: zipped(edit=edit)


TRAIN, TEST = arrays()["x_train"], arrays()["x_test"]
PICKLED = "holds pickled objects, which are not loaded"
NO_NPZ = "is no .npz, or holds pickled objects"
LACKING = "lacks x_train and y_train"
NO_NUMBERS = "give arrays of numbers"
NO_SUCH_HEADER = "cannot be read (ValueError)"
HUGE = declared((12, 10**6, 10**6, 1))
OF_A_FILE = b"PK\x01\x02\x14\x03\x14\x00\x00"  # of a zip's list, before its flags
NPZ = {
  "empty file": (lambda: b"", "cannot be read (EOFError)"),
  "text": (lambda: b"x_train,y_train\n", NO_NPZ),
  "an .npy": (lambda: npy(TRAIN), "holds nothing by name"),
  "a pickle": (lambda: pickle.dumps(Payload()), NO_NPZ),
  "an .npy of a pickle": (lambda: npy(np.array([Payload()])), NO_NPZ),
  "empty zip": (lambda: b"PK\x05\x06" + bytes(18), LACKING),
  "half a zip": (edited(lambda c: c[: len(c) // 2]), "cannot be read (BadZipFile)"),
  "zip without its start": (edited(lambda c: c[200:]), NO_NPZ),
  "a byte flipped in the images": (
    edited(lambda c: c.replace(TRAIN.tobytes()[:9], bytes(9))),
    "cannot be read (BadZipFile)",
  ),
  "encrypted": (
    edited(lambda c: c.replace(OF_A_FILE, OF_A_FILE[:-1] + b"\x01")),
    "cannot be read (RuntimeError)",
  ),
  "unknown compression": (
    edited(lambda c: c.replace(OF_A_FILE + b"\0\0", OF_A_FILE + b"\0\x63")),
    "cannot be read (NotImplementedError)",
  ),
  "images pickled": (of(x_train=[Payload()] * 12), PICKLED),
  "labels pickled": (of(y_test=[Payload()] * 6), PICKLED),
  "objects in a structure": (
    of(y_train=np.array([(0, Payload())] * 12, [("a", int), ("b", object)])),
    "holds pickled objects",
  ),
  "a bare pickle as labels": (
    lambda: zipped(y_train=pickle.dumps(Payload())),
    NO_NUMBERS,
  ),
  "code in a header": (
    lambda: zipped(x_train=npy(header="open('ran', 'w')\n")),
    NO_SUCH_HEADER,
  ),
  "a header of brackets": (lambda: zipped(x_train=npy(header="(" * 9000)), "error"),
  "a header of 60 kB": (lambda: zipped(x_train=npy(header="#" * 60_000)), "error"),
  "a header that is cut off": (
    lambda: zipped(x_train=npy(TRAIN)[:40]),
    NO_SUCH_HEADER,
  ),
  "format version 9": (
    lambda: zipped(x_train=declared((12, 4, 4, 1), body=bytes(192), version=(9, 9))),
    NO_SUCH_HEADER,
  ),
  "members that are no arrays": (
    lambda: zipped(
      x_train=None, y_train=None, more=[("x_train", b"abc"), ("y_train", b"abc")]
    ),
    NO_NUMBERS,
  ),
  "no y_train": (
    lambda: zipped(y_train=None),
    f"{LACKING}, it holds x_train, x_test, y_test, x_extra, y_extra: give an .npz",
  ),
  "no x_test": (lambda: zipped(x_test=None), "unknown test set 'test'"),
  "names that climb": (
    lambda: zipped(x_train=None, more=[("../x_train.npy", npy(TRAIN))]),
    LACKING,
  ),
  "an absolute name": (
    lambda: zipped(y_train=None, more=[("/y_train.npy", npy(TRAIN))]),
    LACKING,
  ),
  "12 TB declared, 192 bytes there": (
    lambda: zipped(x_train=HUGE + bytes(192)),
    ": give an .npz with x_train",
  ),
  "12 TB declared of one bit pattern": (
    lambda: zipped(method=zipfile.ZIP_DEFLATED, x_train=HUGE),
    ": give an .npz with x_train",
  ),
  "more dimensions than numbers go": (
    lambda: zipped(x_train=declared((0, 10**30))),
    "error",
  ),
  "negative dimensions": (
    lambda: zipped(x_train=declared((-12, -4, 4, 1), body=bytes(192))),
    NO_SUCH_HEADER,
  ),
  "70 dimensions": (lambda: zipped(x_train=declared((1,) * 70, body=b"a")), "error"),
  "a dimension that is a float": (
    lambda: zipped(x_train=declared((12.0, 4, 4), body=bytes(192))),
    NO_SUCH_HEADER,
  ),
  "no examples": (
    of(x_train=TRAIN[:0], y_train=np.zeros(0, int)),
    "targets (0,): give as many of each, at least one",
  ),
  "no test examples": (
    of(x_test=TRAIN[:0], y_test=np.zeros(0, int)),
    "targets (0,): give as many of each, at least one",
  ),
  "no pixels": (of(x_train=TRAIN[:, :0]), "has inputs (12, 0, 4, 1) and targets (12,)"),
  "videos": (of(x_train=TRAIN[..., None]), "inputs of 'test' of"),
  "float64 images": (
    of(x_train=TRAIN / 1),
    "are uint8 (4, 4, 1), those of 'train' are float32",
  ),
  "complex images": (
    of(x_train=TRAIN * 1j),
    "has complex128 inputs and int64 targets: give arrays of numbers",
  ),
  "images of text": (of(x_train=TRAIN.astype("U3")), "has <U3 inputs"),
  "structured images": (of(x_train=np.zeros(12, "u1,u1")), NO_NUMBERS),
  "images of nothing": (of(x_train=np.zeros((12, 4), "V0")), NO_NUMBERS),
  "NaN in an image": (
    of(x_train=TRAIN.astype("f4") * np.nan),
    "holds NaN or infinite values",
  ),
  "infinite test image": (
    of(x_train=TRAIN.astype("f4"), x_test=TEST.astype("f4") + np.inf),
    "bad.npz' holds NaN",
  ),
  "constant images": (of(x_train=TRAIN * 0), "bad.npz is constant"),
  "test images of another size": (
    of(x_test=np.zeros((6, 5, 4, 1), "u1")),
    "those of 'train' are",
  ),
  "test images of another type": (of(x_test=TEST.astype("f4")), "those of 'train' are"),
  "float labels": (
    of(y_train=np.arange(12) % 3 / 1),
    "those of 'train' are float32 (): give the same",
  ),
  "labels true and false": (
    of(y_train=np.arange(12) % 2 == 0),
    "go from 0 to 2: classes lie in 0 to 1",
  ),
  "labels that are dates": (
    of(y_train=np.zeros(12, "M8[s]")),
    "and datetime64[s] targets: give arrays of numbers",
  ),
  "labels that are time spans": (of(y_train=np.zeros(12, "m8[s]")), NO_NUMBERS),
  "labels in one-hot rows": (
    of(y_train=np.eye(12, 3, dtype=int)),
    "those of 'train' are int32 (3,): give the same",
  ),
  "one label for all": (of(y_train=0), NO_NUMBERS),
  "a label too many": (
    of(y_train=np.arange(13) % 3),
    "and targets (13,): give as many of each",
  ),
  "a label too few": (
    of(y_test=np.arange(5) % 3),
    "and targets (5,): give as many of each",
  ),
  "negative labels": (of(y_train=np.arange(12) % 3 - 1), "take 3 values from -1 to 1"),
  "labels with a gap": (of(y_train=np.arange(12) % 3 * 2), "take 3 values from 0 to 4"),
  "labels beyond 64 bits": (
    of(y_train=np.array([0, 2**64 - 1] * 6, np.uint64)),
    "holds whole numbers from 0 to 18446744073709551615: give some of 32 bits",
  ),
  "test labels not trained on": (
    of(y_test=np.arange(6)),
    "go from 0 to 5: classes lie in 0 to 2",
  ),
  "40,000 classes": (
    of(
      x_train=np.zeros((40_000, 1), "u1"),
      y_train=np.arange(40_000),
      x_test=np.zeros((1, 1), "u1"),
      y_test=[0],
    ),
    "has 40000 classes: give at most 32768",
  ),
}


@pytest.mark.parametrize("case", NPZ)
def test_data_sets(case, files, refused):
  write, message = NPZ[case]
  (files / "bad.npz").write_bytes(write())
  refused(tiny("dataset=bad.npz", "--out", "new", "--runs", "4"), message)


OF_FOLDERS = ("zarr.json", "blocks", "checkpoints", "variables", "diverged", "report")
ODD_NAMES = (
  *words_of("../../evil /evil .. . a/b"),
  "a\\b",
  ".hidden",
  "a\nb",
  "x" * 200,
)


@pytest.mark.parametrize("test_set", ["seed_init", *OF_FOLDERS, *ODD_NAMES])
def test_names_of_test_sets_that_the_data_has(test_set, files, refused):
  """The data set does hold them: only their names are wrong."""
  np.savez(
    files / "bad.npz",
    **arrays(),
    **{f"x_{test_set}": arrays()["x_test"], f"y_{test_set}": arrays()["y_test"]},
  )
  argv = tiny("dataset=bad.npz", f"test_sets={test_set}", "--out", "new", "--runs", "4")
  refused(argv, "test set ")


@pytest.mark.parametrize(
  ("make", "message"),
  [
    (lambda: os.mkdir("bad.npz"), "no such file"),
    (lambda: os.symlink("bad.npz", "bad.npz"), "no such file"),
    (lambda: os.symlink("nothing", "bad.npz"), "no such file"),
    (lambda: os.mkfifo("bad.npz"), "no such file"),
    (lambda: os.symlink("/dev/zero", "bad.npz"), "no such file"),
  ],
)
def test_data_sets_that_are_no_files(make, message, files, refused):
  make()
  refused(tiny("dataset=bad.npz", "--out", "new", "--runs", "4"), message)


def test_data_sets_larger_than_memory(files, refused, monkeypatch):
  from vmapseeds.data import sources

  monkeypatch.setattr(sources, "free_host_memory", lambda: 100.0)
  refused(tiny("--out", "new", "--runs", "4"), "more memory than is free")


# Files to import. What their arrays may be is in tests/results/test_imports.py.


IMPORT = ("import", "--labels", "y.npy", "--quiet")


@pytest.mark.parametrize(
  ("name", "content", "message"),
  [
    ("y", lambda: npy(np.array([Payload()] * 6)), "Python objects"),
    (
      "p",
      lambda: npy(np.array([[(0, Payload())] * 6] * 4, [("a", int), ("b", object)])),
      "Python objects",
    ),
    ("y", lambda: npy(header="open('ran', 'w')\n"), "cannot be read"),
    ("y", lambda: npy(np.arange(6) > 2), "labels has dtype bool"),
    ("y", lambda: npy(np.arange(6).astype("M8[D]")), "labels has dtype datetime64[D]"),
    ("y", lambda: npy(np.zeros(6, "V0")), "labels has dtype |V0"),
    ("y", lambda: npy(np.zeros(6, "U0")), "labels are empty texts"),
    ("y", lambda: npy(np.zeros(6, "i4,i4")), "labels has dtype"),
    ("y", lambda: npy(np.arange(0)), "give at least one of each"),
    ("y", lambda: npy(np.array(0)), "labels has shape ()"),
    ("p", lambda: npy(np.full((4, 6), 40_000)), "predictions is 40000"),
    ("p", lambda: declared((2**62, 6), "<i8"), "cannot be read"),
    ("p", lambda: declared((10**30, 6), "<i8"), "cannot be read"),
  ],
)
def test_files_to_import(name, content, message, files, refused):
  (files / f"{name}.npy").write_bytes(content())
  refused([*IMPORT, *words_of("--predictions p.npy --out new")], message)


PREDICTIONS = (*IMPORT, "--predictions", "p.npy")
NEW = (*PREDICTIONS, "--out", "new")


@pytest.mark.parametrize(
  ("argv", "message"),
  [
    ([*IMPORT, "--out", "new"], "give one of predictions, logits, probabilities"),
    ([*NEW, "--logits", "l.npy"], "predictions with logits: give one of"),
    ([*NEW, "--classes", "3.5"], "--classes"),
    ([*NEW, "--classes", "1" + "0" * 30], "give at most 32768"),
    ([*NEW, "--name", "two\nlines"], "the name is 'two"),
    ([*NEW, "--name", "\x1b[2J"], "name "),
    ([*PREDICTIONS, "--out", "r"], "r is not empty"),
    ([*PREDICTIONS, "--out", "y.npy"], "y.npy is a file"),
    ([*PREDICTIONS, "--out", "y.npy/new"], "cannot be written"),
    ([*PREDICTIONS, "--out", "n" * 256], "too long"),
    ([*IMPORT, "--predictions", "", "--out", "new"], "error"),
    ([*IMPORT, "--predictions", "n" * 256, "--out", "new"], "is no file"),
    ([*IMPORT, "--predictions", "/dev/zero", "--out", "new"], "is no file"),
    ([*IMPORT, "--predictions", "tiny.npz", "--out", "new"], "call the array"),
  ],
)
def test_import_flags(argv, message, work, refused):
  refused(argv, message)


# Results folders


def edit(file, change):
  """Changes the JSON in a file."""
  content = json.loads(Path(file).read_text())
  content = change(content) or content
  Path(file).write_text(json.dumps(content))


def description(change, signed=True):
  """Changes the description of `r` and, unless told otherwise, signs it again."""

  def make():
    def changed(root):
      about = root["attributes"]
      about = change(about) or about
      root["attributes"] = layout.signed(about) if signed else about

    edit("r/zarr.json", changed)

  return make


def field(**changes):
  return description(lambda about: {**about, **changes})


def array(name, **changes):
  """Changes what the description says about an array."""
  return description(
    lambda about: (
      about["arrays"]
      .setdefault(name, about["arrays"]["diverged"].copy())
      .update(changes)
    )
  )


def values(name, value):
  """Writes one value all over an array."""

  def make():
    (file,) = (f for f in Path("r").rglob("*.npz") if name in np.load(f))
    with np.load(file) as stored:
      arrays = dict(stored)
    arrays[name] = np.full_like(arrays[name], value)
    np.savez(file, **arrays)

  return make


def write(name, content):
  return lambda: (Path("r") / name).write_bytes(content)


def cut(name):
  return lambda: os.truncate(Path("r") / name, Path("r", name).stat().st_size // 2)


def remove(name):
  return lambda: (
    shutil.rmtree(Path("r") / name)
    if Path("r", name).is_dir()
    else Path("r", name).unlink()
  )


def link(name, target):
  def make():
    remove(name)() if Path("r", name).exists() else None
    Path("r", name).symlink_to(target)

  return make


def pickles():
  """Makes the logits a Zarr 2 array of pickled objects, and adds an array with a pickle
  codec to the metadata.
  """
  from numcodecs import Pickle

  v2 = {
    "zarr_format": 2,
    "shape": [4, 6],
    "chunks": [4, 6],
    "dtype": "|O",
    "compressor": None,
    "fill_value": None,
    "order": "C",
    "filters": [{"id": "pickle", "protocol": 5}],
  }
  Path("r/test/logits/0.0").write_bytes(
    bytes(Pickle().encode(np.array([[Payload()] * 6] * 4)))
  )
  Path("r/test/logits/.zarray").write_text(json.dumps(v2))

  def change(root):
    nodes = root["consolidated_metadata"]["metadata"]
    codecs = [{"name": "numcodecs.pickle", "configuration": {}}]
    nodes["test/accuracy"] = nodes["test/logits"] | {"codecs": codecs}
    nodes["test/logits"] = v2

  edit("r/zarr.json", change)


NO_RESULTS = "is not a results folder"
DAMAGED = "r is damaged: zarr.json "
UNREADABLE = f"{DAMAGED}cannot be read"
FOLDERS = {
  "no zarr.json": (remove("zarr.json"), UNREADABLE),
  "garbage": (write("zarr.json", bytes(range(256))), UNREADABLE),
  "a number": (write("zarr.json", b"1e999"), UNREADABLE),
  "zarr.json is a folder": (
    lambda: (remove("zarr.json")(), os.mkdir("r/zarr.json")),
    UNREADABLE,
  ),
  "zarr.json is a pipe": (
    lambda: (remove("zarr.json")(), os.mkfifo("r/zarr.json")),
    UNREADABLE,
  ),
  "brackets in brackets": (write("zarr.json", b'{"attributes":' * 100_000), UNREADABLE),
  "zarr.json of 100 MB": (lambda: os.truncate("r/zarr.json", 10**8), UNREADABLE),
  "another format": (
    field(format="vmapseeds results 999"),
    "r has the format 'vmapseeds results 999', and this version of vmapseeds reads ",
  ),
  "not signed": (
    description(lambda about: about.update(lane_width=2), signed=False),
    f"{DAMAGED}is not as it was written",
  ),
  "a recipe of brackets, not signed": (
    description(lambda about: about.update(recipe="[" * 100_000), signed=False),
    f"{DAMAGED}is not as",
  ),
  "10^12 examples": (
    array("test/predictions", shape=[10**12]),
    "which free memory does not hold",
  ),
  "labels cut off": (
    cut("plan.npz"),
    "r is damaged: plan.npz cannot be read (File is not a zip file",
  ),
  "no labels": (remove("plan.npz"), "r is damaged: plan.npz is missing"),
  "labels of pickled objects": (
    lambda: np.savez("r/plan.npz", **{"test/labels": np.array([Payload()])}),
    "in plan.npz cannot be read",
  ),
  "a plan of 12 TB": (
    lambda: Path("r/plan.npz").write_bytes(NPZ["12 TB declared, 192 bytes there"][0]()),
    "in plan.npz cannot be read",
  ),
  "a compressed plan": (
    lambda: np.savez_compressed("r/plan.npz", seed_init=np.zeros(10**6, np.uint32)),
    "r is damaged: plan.npz cannot be read (it is compressed)",
  ),
  "labels too high": (
    values("test/labels", 5),
    " example",
  ),  # 0 has no such class, or they are others
  "all diverged": (values("diverged", True), "diverge"),
  "no run done": (
    lambda: [f.unlink() for f in Path("r/blocks").glob("*.json")],
    "finished",
  ),
  "a link in place of a file": (
    link("plan.npz", "/etc/passwd"),
    "r is damaged: plan.npz cannot be read",
  ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", FOLDERS)
def test_results_folders(case, work, refused, tmp_path, capsys):
  make, message = FOLDERS[case]
  make()
  refused(["report", "r"], message)
  refused(["compare", "i", "r"], message)
  if DAMAGED in message:
    refused(
      tiny("test_sets=test,extra", "--runs", "8", "--logits", "--quiet", "--out", "r"),
      message,
    )
  ends_well_and_stays_inside(tmp_path, capsys)


def ends_well_and_stays_inside(tmp_path, capsys):
  """Commands that work on the folder `r` report its faults in lines, and change nothing
  outside it.
  """
  before = outside(tmp_path)
  for argv in (
    ["work", "r", "--quiet"],
    ["replay", "r", "--run", "1"],
    ["verify", "r"],
    ["verify", "r", "--repair"],
  ):
    ends_well(argv, capsys)
  assert outside(tmp_path) == before


def outside(tmp_path):
  inside = str(Path("r").absolute()) + "/"
  return {
    f: s
    for f, s in snapshot(tmp_path, times_of_folders=False).items()
    if not f.startswith(inside)
  }


def test_pickles_are_not_loaded(work, capsys):
  """The encoding of arrays is not read from the folder. `verify` reports a differing
  one, and repairs it.
  """
  pickles()
  assert ends_well(["compare", "r", "i"], capsys)
  problems = vs.verify("r").problems
  assert problems[0] == "zarr.json has metadata that differ from its own description"
  assert len(problems) == 3
  assert vs.verify("r", repair=True).problems == []
  assert not Path("ran").exists()


def record(**changes):
  """Changes what the record of block 0 says, and signs it."""

  def make():
    text = json.dumps(layout.signed(Results("r").record(0) | changes))
    Path("r/blocks/0.json").write_text(text)

  return make


def claim(**owner):
  """A claim of block 0 whose process seems to run on this machine."""
  return lambda: write(
    "blocks/0.claim", json.dumps({**claims._process(os.getpid()), **owner}).encode()
  )()


HIT = "r is damaged: blocks/0.json "
RECORDS = {
  "empty": (write("blocks/0.json", b""), HIT),
  "brackets in brackets": (write("blocks/0.json", b"[" * 100_000), HIT),
  "objects in objects": (write("blocks/0.json", b'{"digests":' * 100_000), HIT),
  "70 MB": (lambda: os.truncate("r/blocks/0.json", 70 * 10**6), HIT),
  "a list": (write("blocks/0.json", b"[]"), HIT),
  "not signed": (
    lambda: edit("r/blocks/0.json", lambda r: r.update(lane_width=2)),
    HIT,
  ),
  "of another block": (
    lambda: shutil.copyfile("r/blocks/1.json", "r/blocks/0.json"),
    HIT,
  ),
  "nothing but a signature": (
    lambda: write("blocks/0.json", json.dumps(layout.signed({})).encode())(),
    HIT,
  ),
  "more runs than the block has": (record(runs=10**30), HIT),
  "runs of text": (record(runs="2"), HIT),
  "digests of text": (record(digests="none"), HIT),
  "a record of no lane width": (record(lane_width=None), None),
  "a folder": (lambda: (remove("blocks/0.json")(), os.mkdir("r/blocks/0.json")), HIT),
  "a file that says nothing": (write("blocks/\x1b[2J.json", b""), None),
  "a file that is no UTF-8": (
    lambda: Path(os.fsdecode(b"r/blocks/\xff.json")).write_bytes(b""),
    None,
  ),
  "a link": (link("blocks/0.json", "../../tiny.npz"), HIT),
  "blocks is a file": (
    lambda: (remove("blocks")(), write("blocks", b"")()),
    "/r is not done: `vmapseeds train` or `work` trains it",
  ),
  "checkpoints is a file": (write("checkpoints", b""), None),
  "a checkpoint of no runs": (
    lambda: os.makedirs("r/checkpoints/0/" + "9" * 200),
    None,
  ),
  "a claim of process 10^30": (claim(pid=10**30), None),
  "a claim of process infinity": (claim(pid=float("inf")), None),
  "a claim of a path": (claim(pid="../../../etc"), None),
  "a claim of the year 2100": (
    lambda: (claim(host="elsewhere")(), os.utime("r/blocks/0.claim", (4e9, 4e9))),
    None,
  ),
  "a claim nested deeply": (write("blocks/0.claim", b"[" * 100_000), None),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", RECORDS)
def test_records_and_claims(case, work, refused, tmp_path, capsys):
  make, message = RECORDS[case]
  make()
  if message:
    refused(["replay", "r", "--run", "0"], message)
  ends_well_and_stays_inside(tmp_path, capsys)


def test_what_lies_elsewhere_is_not_repaired(work, tmp_path):
  """Links may be the user's own, as to a larger disk: only `verify` looks for them."""
  link("blocks", "../i/blocks")()
  link("checkpoints", "../i")()
  os.mkfifo("r/pipe")
  before = snapshot(tmp_path)
  for repair in (False, True):
    verdict = vs.verify("r", repair=repair)
    assert sorted(verdict.problems) == [
      "blocks is a link",
      "checkpoints is a link",
      "pipe is a pipe or a device",
    ]
    assert verdict.repairs == []
  assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
  ("more", "message"),
  [
    (["lr=0.1"], "its recipe and this one differ in lr: 0.05, 0.1"),
    (["test_sets=test"], "test_sets: ('test', 'extra'), ('test',)"),
    (["dataset=other.npz"], "differ in dataset"),
    (["--vary", "init"], "its runs differ from these in seed_order"),
    (["--bootstrap", "6"], "its runs have "),
  ],
)
def test_other_campaigns_in_the_same_folder(more, message, work, refused):
  np.savez("other.npz", **arrays(y_test=np.zeros(6, int)))
  more = more if more[0].startswith("test_sets") else ["test_sets=test,extra", *more]
  refused(tiny(*more, "--runs", "8", "--logits", "--quiet", "--out", "r"), message)


# Reports, comparisons and the rest


@pytest.mark.parametrize(
  ("argv", "message"),
  [
    (["report"], "no results folder given"),
    (["report", ""], NO_RESULTS),
    (["report", "none"], NO_RESULTS),
    (["report", "tiny.npz"], NO_RESULTS),
    (["report", "r/test"], NO_RESULTS),
    (["report", "r", "none"], NO_RESULTS),
    (["report", "r\x00"], "holds a null character"),
    (["report", "\x1b[2J"], NO_RESULTS),
    (["report", "r", "--test-set", ""], "unknown test set ''"),
    (["report", "r", "--test-set", "../../i/test"], "unknown test set '../../i/test'"),
    (["report", "r", "--test-set", "tset"], "did you mean 'test'?"),
    (["report", "r", "--test-set", "te\nst"], "unknown test set"),
    (["report", "r", "--test-set"], "--test-set"),
    (["report", "r", "i", "--test-set", "extra"], "unknown test set 'extra'"),
    (["compare"], "no results folder given: name two or more to compare"),
    (["compare", "r"], "error"),
    (["compare", "r", "i", "--margin", "-1"], "margin is -1.0"),
    (["compare", "r", "tiny.npz"], NO_RESULTS),
    (["compare", "r", "i", "--test-set", "extra"], "unknown test set 'extra'"),
    (
      ["compare", "r", "fewer", "--paired"],
      "to pair them row by row, give as many of each",
    ),
    (["compare", "r", "labels"], "were tested on different examples"),
    (["compare", "r", "examples"], "were tested on different examples"),
    (["demo", "--runs", "0"], "runs is 0"),
    (["demo", "--runs", "4000000000"], "give at most 10000000"),
    (["demo", "--out", "tiny.npz"], "tiny.npz is a file"),
    (["recipes", "all"], "unknown flag or word 'all': `vmapseeds recipes --help`"),
    (["work", ""], NO_RESULTS),
    (["work", "none"], NO_RESULTS),
    (["work", "r/test"], NO_RESULTS),
    (["work", "i"], "holds imported runs"),
    (["work", "r\x00"], "holds a null character"),
    (["work", "r", "i"], "unknown flag or word 'i'"),
    (["work", "r", "--blocks", "-1:2"], "--blocks"),
    (["work", "r", "--blocks=-1:2"], "write A:B"),
    (["work", "r", "--blocks", "0:3"], "blocks 0:3 of a folder with 2"),
    (["work", "r", "--blocks", "2:"], "blocks 2:2 of a folder with 2"),
    (["work", "r", "--blocks", "1:1"], "blocks 1:1 of a folder with 2"),
    (["work", "r", "--blocks", "9" * 5000 + ":"], "write A:B"),
    (["work", "r", "--blocks", ":" * 9], "write A:B"),
    (["work", "r", "--blocks", ""], "write A:B"),
    (["work", "r", "--seed-batch", "0"], "seed batch is 0"),
    (["verify", ""], NO_RESULTS),
    (["verify", "none"], NO_RESULTS),
    (["verify", "r/test", "--repair"], NO_RESULTS),
    (["verify", ".", "--repair"], NO_RESULTS),
    (["verify", "r", "--repair=all"], "--repair is 'all': give true or false"),
    (["replay", "r"], "--run"),
    (["replay", "r", "--run", "-1"], "run is -1"),
    (["replay", "r", "--run", "4"], "run 4 of a folder with 4: the last is 3"),
    (["replay", "r", "--run", "1" + "0" * 30], "of a folder with 4"),
    (["replay", "r", "--run", "1.5"], "--run"),
    (["replay", "r", "--run", ""], "--run"),
    (["replay", "i", "--run", "0"], "holds imported runs"),
    (["replay", "none", "--run", "0"], NO_RESULTS),
    ([""], "error"),
    (["__init__"], "error"),
    (["--version\n"], "error"),
    (["train\x1b[31m"], "error"),
    (["x" * 100_000], "error"),
    (["report", *["none"] * 3000], NO_RESULTS),
  ],
)
def test_commands(argv, message, work, refused):
  for name, labels, runs in (
    ("labels", [0] * 6, 4),
    ("examples", [0] * 5, 4),
    ("fewer", np.arange(6) % 3, 3),
  ):
    if name in argv:
      vs.import_runs(
        name,
        labels=labels,
        predictions=np.zeros((runs, len(labels)), int),
        progress=False,
      )
  refused(argv, message)


@pytest.mark.parametrize(
  ("argv", "message"),
  [
    (["../fig01"], "unknown figure '../fig01'"),
    (["--scale", "1" + "0" * 30], "give gpu or laptop or paper or smoke"),
    (["--scale"], "--scale has no value: give --scale SCALE"),
    (["--scale", "smoke", "--scale", "smoke"], "--scale is given several times"),
    (["--seed-batch", "0"], "--seed-batch is 0"),
    (["--out", "tiny.npz"], "tiny.npz is a file"),
    (["--campaigns", "tiny.npz/c"], "cannot be written"),
  ],
)
def test_flags_of_experiments(argv, message, refused):
  refused(argv, message, main=functools.partial(frame.main, jordan2024.__file__))


@pytest.mark.parametrize(
  ("make", "argv", "message"),
  [
    pytest.param(
      lambda: None, ["report", "r", b"\xff\xfe"], "is no UTF-8", marks=pytest.mark.slow
    ),
    pytest.param(
      cut("plan.npz"),
      ["report", "r"],
      "plan.npz cannot be read",
      marks=pytest.mark.slow,
    ),
    (
      lambda: Path("bad.npz").write_bytes(NPZ["12 TB declared, 192 bytes there"][0]()),
      tiny("dataset=bad.npz", "--out", "new"),
      ": give an .npz with x_train",
    ),
  ],
)
@pytest.mark.slow
def test_as_programs(
  make, argv, message, work, tmp_path, tmp_path_factory, monkeypatch
):
  """Warnings that a user would see count too."""
  monkeypatch.setenv(
    "MPLCONFIGDIR", str(tmp_path_factory.mktemp("matplotlib"))
  )  # where it caches fonts
  temporary = tmp_path_factory.mktemp(
    "temporary"
  )  # Python tests it with a file that it removes
  monkeypatch.setenv("TMPDIR", str(temporary))
  make()
  before = snapshot(tmp_path)
  program = [sys.executable, "-m", "vmapseeds.cli", *argv]
  ended = subprocess.run(
    program,
    capture_output=True,
    text=True,
    env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
  )
  assert (ended.returncode, ended.stdout) == (2, "")
  assert ended.stderr.startswith("error: ")
  assert message in ended.stderr
  assert ended.stderr.count("\n") == 1
  assert snapshot(tmp_path) == before
  assert not list(temporary.iterdir())


# At random


def mutated(value, rng):
  """A JSON value with one change somewhere in it."""
  if isinstance(value, dict | list) and value and rng.random() < 0.85:
    value = value.copy()
    key = (
      rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
    )
    action = rng.random()
    if action < 0.15:
      del value[key]
    elif action < 0.2 and isinstance(value, dict):
      value[key + "x"] = value.pop(key)
    elif action < 0.25 and isinstance(value, list):
      value.append(value[key])
    else:
      value[key] = mutated(value[key], rng)
    return value
  if isinstance(value, str) and value.startswith("{") and rng.random() < 0.8:
    return json.dumps(mutated(json.loads(value), rng))
  numbers = [0, -1, 3, 2**31, 10**30, 0.5, float("nan"), float("inf")]
  texts = ["", "test", "../x", "\x00", "\ud800", "[" * 5000, str(value)]
  return rng.choice([*numbers, *texts, None, True, [], {}, [value], {"name": value}])


FILES = ("zarr.json", "zarr.json", "blocks/0.json")


def ends_well(argv, capsys):
  """Whether the command line accepts `argv`; False where it says in one line why not,
  or what `verify` found.
  """
  try:
    cli.main(argv)
    status = 0
  except SystemExit as end:
    status = end.code
  except Accepted:
    status = 0
  out, err = capsys.readouterr()
  assert all(line.isprintable() for line in (out + err).splitlines()), argv
  if status == 1 and argv[0] == "verify":
    assert "problem: " in out, argv
    assert err == "", argv
  elif status:
    assert status == 2 or (argv[0] == "work" and "cannot be written" in err), argv
    assert err.startswith("error: "), argv
    assert err.count("\n") == 1, argv
  return not status


MUTATIONS = mostly_seldom([20, 60])


@pytest.mark.parametrize("mutations", MUTATIONS)
def test_mutated_metadata(mutations, work, capsys, monkeypatch):
  """Any change of the metadata is either read as results or refused in one line."""
  monkeypatch.setattr(pages, "_save_figure", lambda *args: "")
  rng = random.Random(mutations)
  accepted = 0
  for i in range(mutations):
    file = Path("r", rng.choice(FILES))
    good = file.read_text()
    file.write_text(json.dumps(mutated(json.loads(good), rng)))
    accepted += ends_well(
      ["report", "r"] if i % 10 == 0 else ["compare", "r", "i"], capsys
    )
    file.write_text(good)
    shutil.rmtree("r/report", ignore_errors=True)
  assert 0 < accepted < mutations
  assert not Path("ran").exists()


@pytest.mark.parametrize("mutations", [25, pytest.param(150, marks=pytest.mark.seldom)])
def test_mutated_descriptions(mutations, work):
  """Any signed description of runs, blocks, columns and arrays is either read or
  refused in one line.
  """
  rng = random.Random(mutations)
  good = json.loads(Path("r/zarr.json").read_text())
  ours = ("extents", "block_runs", "columns", "arrays", "digests")
  before, accepted = outside(Path.cwd()), 0
  for _ in range(mutations):
    name = rng.choice(ours)
    about = layout.signed(
      {**good["attributes"], name: mutated(good["attributes"][name], rng)}
    )
    Path("r/zarr.json").write_text(json.dumps({**good, "attributes": about}))
    with contextlib.suppress(vs.UserError), layout.wrap_zarr_errors("r"):
      results = Results("r")
      variables_of_blocks(results, sorted(results.finished_blocks()), "test").load()
      accepted += vs.verify("r").runs > 0
  assert 0 < accepted < mutations
  assert outside(Path.cwd()) == before


@pytest.mark.parametrize("mutations", MUTATIONS)
def test_mutated_bytes(mutations, work, capsys, monkeypatch):
  """Whatever bytes are changed in any file, chunks included."""
  monkeypatch.setattr(pages, "_save_figure", lambda *args: "")
  rng = random.Random(mutations)
  files = sorted(f for f in Path("r").rglob("*") if f.is_file())
  accepted = 0
  for i in range(mutations):
    file = rng.choice(files)
    good = file.read_bytes()
    bad = bytearray(good)
    for _ in range(rng.randint(1, 4)):
      bad[rng.randrange(len(bad))] = rng.randrange(256)
    file.write_bytes(bad[: rng.choice((len(bad), len(bad), rng.randint(0, len(bad))))])
    accepted += ends_well(
      ["report", "r"] if i % 10 == 0 else ["compare", "r", "i"], capsys
    )
    file.write_bytes(good)
    shutil.rmtree("r/report", ignore_errors=True)
  assert 0 < accepted < mutations


@pytest.mark.parametrize("mutations", MUTATIONS)
def test_mutated_commands(mutations, work, capsys, monkeypatch):
  """Good command lines with words left out, repeated, exchanged, cut off or replaced."""

  def accepted(*args, **kwargs):
    raise Accepted

  for module, name in ((starting.description, "open_or_create"), (pages, "write_page")):
    monkeypatch.setattr(module, name, accepted)
  few = words_of("--runs 4 --seed-batch 2 --lane-width 1 --out new --quiet")
  more = words_of("--runs 9 --out r --logits --vary init data --until")
  good = [
    tiny("test_sets=test,extra", *few),
    tiny(*more, "mean_accuracy rel 1%"),
    words_of("compare r i --margin 0.8 --test-set test --paired"),
    words_of("report r i --test-set test"),
    words_of(
      "import --labels y.npy --predictions p.npy --classes 3 --name mine --out i"
    ),
  ]
  replacing = ["", *words_of("- -- -1 0 nan 1e99 ../.. = lr= é --out --set")]
  replacing += ["1" * 25, "\0", "\x1b[0m"]
  rng = random.Random(mutations)
  ended = []
  for _ in range(2 * mutations):
    argv = rng.choice(good).copy()
    for _ in range(rng.randint(1, 3)):
      place, action = rng.randrange(1, len(argv)), rng.randrange(5)
      if action == 0 and len(argv) > 2:
        del argv[place]
      elif action == 1:
        argv.insert(place, rng.choice(argv))
      elif action == 2:
        other = rng.randrange(1, len(argv))
        argv[place], argv[other] = argv[other], argv[place]
      elif action == 3:
        argv[place] = argv[place][: rng.randint(0, len(argv[place]))]
      else:
        argv[place] = rng.choice(replacing)
    ended.append(ends_well(argv, capsys))
  assert 0 < sum(ended) < len(ended) / 2
