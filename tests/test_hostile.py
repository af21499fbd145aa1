"""Hostile input through the command line: one line, exit status 2, nothing run, nothing changed on disk."""

import hashlib
import io
import itertools
import json
import os
import pickle
import random
import shutil
import struct
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zarr

import vmapseeds as vs
from experiments.jordan2023 import independent_errors, poking
from vmapseeds import bench, blocks, campaign, cli, models, pages


def tiny(*argv):
  """The command that trains on the small file; settings at the beginning of `argv` are instead of its own."""
  own = ("dataset=tiny.npz", "model=linear", "batch_size=4", "epochs=1", "augment=")
  given = {word.partition("=")[0] for word in itertools.takewhile(lambda word: not word.startswith("--"), argv)}
  return ["train", "digits_cnn", "--set", *(one for one in own if one.partition("=")[0] not in given), *argv]


def thinned(cases):
  """Every other case by default, the others with `-m slow`."""
  return [pytest.param(case, marks=[pytest.mark.slow] * (i % 2)) for i, case in enumerate(cases)]


class Accepted(BaseException):
  """Raised where training would begin: what was given has passed every check."""


def snapshot(folder, times_of_folders=True):
  """What lies in a folder: kind, permissions, size, time of change and content of everything."""

  def of(path):
    status = path.lstat()
    content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else None
    time = status.st_mtime_ns if times_of_folders or not path.is_dir() else None
    return status.st_mode, status.st_size, time, os.readlink(path) if path.is_symlink() else content

  return {str(path): of(path) for path in sorted(folder.rglob("*"))}


def arrays(**changes):
  """What `tiny.npz` holds: twelve training and six test images of three classes, and a second test set."""
  rng = np.random.default_rng(0)
  good = {}
  for split, n in (("train", 12), ("test", 6), ("extra", 3)):
    good[f"x_{split}"] = rng.integers(0, 256, (n, 4, 4, 1), np.uint8)
    good[f"y_{split}"] = np.arange(n) % 3
  return {k: v for k, v in (good | changes).items() if v is not None}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  """A data set, files to import, a campaign of four runs with logits (`r`) and imported runs (`i`): made once."""
  with pytest.MonkeyPatch.context() as patch:
    patch.chdir(tmp_path_factory.mktemp("made"))
    np.savez("tiny.npz", **arrays())
    rng = np.random.default_rng(1)
    np.save("y.npy", np.arange(6) % 3)
    np.save("p.npy", rng.integers(0, 3, (4, 6)))
    np.save("l.npy", rng.normal(size=(4, 6, 3)).astype(np.float32))
    cli.main(tiny("test_sets=test,extra", "--runs", "4", "--seed-batch", "2", "--logits", "--quiet", "--out", "r"))
    cli.main(["import", "--labels", "y.npy", "--predictions", "p.npy", "--out", "i", "--quiet"])
    return Path.cwd()


@pytest.fixture
def files(made, tmp_path, monkeypatch):
  """Copies of the files in a working folder some levels deep; trainings and measurements raise `Accepted`."""
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

  for module, name in ((campaign, "spread_run"), (bench, "measure")):
    monkeypatch.setattr(module, name, accepted)
  return work


@pytest.fixture
def work(made, files):
  """The results folders too."""
  for name in ("r", "i"):
    shutil.copytree(made / name, files / name, copy_function=shutil.copyfile)
  return files


@pytest.fixture
def refused(files, tmp_path, capsys):
  """refused(argv, message): that the command line says so in one line, ends with 2 and leaves the disk as it was."""

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
    ("=4", "unknown recipe field ''"),
    ("epochs =4", "unknown recipe field 'epochs '"),
    ("EPOCHS=4", "unknown recipe field 'EPOCHS'"),
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
    ("epochs=0x10", "epochs is '0x10': give a whole number"),
    ('epochs={"__import__": "os"}', "epochs is {'__import__': 'os'}: give a whole number"),
    ("epochs=[4]", "epochs is [4]: give a whole number"),
    ("epochs=" + "9" * 30, "epochs is 9999"),
    ("epochs=" + "9" * 10_000, "epochs is '9999"),
    ("epochs=" + "[" * 100_000, "epochs is '[[["),
    ("batch_size=0", "batch_size is 0: give a whole number of at least 1"),
    ("batch_size=-4", "batch_size is -4: give a whole number of at least 1"),
    ("batch_size=13", "batch_size 13 with 12 training examples"),
    ("batch_size=" + "9" * 30, "with 12 training examples"),
    ("lr=-0.1", "lr is -0.1: give a finite number"),
    ("lr=nan", "lr is 'nan': give a number"),
    ("lr=NaN", "lr is nan: give a finite number"),
    ("lr=Infinity", "lr is inf: give a finite number"),
    ("lr=1e999", "lr is inf: give a finite number"),
    ("lr=1e39", "lr is 1e+39: give a finite number"),
    ("lr=" + "9" * 400, "lr is 9999"),
    ("lr=0,1", "lr is '0,1': give a number"),
    ('lr="0.1"', "lr is '0.1': give a number"),
    ("lr=none", "lr is None: give a number"),
    ("momentum=1", "momentum is 1.0: give a number of at least 0 and below 1"),
    ("momentum=-0.5", "momentum is -0.5"),
    ("momentum=false", "momentum is False: give a number"),
    ("weight_decay=-Infinity", "weight_decay is -inf: give a finite number"),
    ("width=0", "width is 0.0: give a finite number above 0"),
    ("width=-1", "width is -1.0: give a finite number above 0"),
    ("width=NaN", "width is nan: give a finite number above 0"),
    ("width=1e30", "width is 1e+30: give"),
    ("model=", "unknown model of recipe 'digits_cnn': ''"),
    ("model=../linear", "unknown model of recipe"),
    ("model=Linear", "did you mean 'linear'?"),
    ("model=resnet9", "model 'resnet9' on images of 4×4 pixels: give at least 11×11, or another model"),
    ("optimizer=lion", "unknown optimizer"),
    ("schedule=cosine", "unknown schedule"),
    ("precision=float16", "unknown precision"),
    ("name=", "recipe name '' cannot be the name of a file"),
    ("name=../../evil", "recipe name '../../evil' cannot be the name"),
    ("name=two\nlines", "recipe name 'two"),
    ("name=\x1b]0;title\x07", "recipe name "),
    ("name=" + "n" * 5000, "recipe name 'nnn"),
    ("augment=flip=2", "augmentation 'flip=2'"),
    ("augment=cutout", "augmentation 'cutout'"),
    ("augment=cutout=-2", "augmentation 'cutout=-2'"),
    ("augment=cutout=0", "augmentation cutout is 0"),
    ("augment=cutout=5", "augmentation 'cutout=5' on images of 4×4 pixels"),
    ("augment=cutout=" + "9" * 8, "on images of 4×4 pixels"),
    ("augment=cutout=" + "9" * 5000, "augmentation 'cutout=999"),
    ("augment=reflect=4", "at most reflect=3"),
    ("augment=blur=3", "unknown augmentation 'blur'"),
    ("augment=" + "flip " * 1000, "augmentation of 1000 steps: give at most 20"),
    ("mean=1,2", "/tiny.npz images of 1: give 1 or none"),
    ("mean=", "mean of 0 channels"),
    ("mean=NaN", "mean is (nan,): give finite numbers"),
    ("mean=1e300", "mean is (1e+300,): give finite numbers"),
    ("mean=a", "mean is 'a': give a number"),
    ("std=0", "std is (0.0,): give finite numbers above 0"),
    ("std=-3", "std is (-3.0,): give finite numbers above 0"),
    ("std=1e-300", "std is (1e-300,): give finite numbers above 0"),
    ("classes=0,1", "classes is 0, 1, 2 numbers: give one for each of the 3"),
    ("classes=0,0,2", "classes is 0, 0, 2: those kept must be 0 to K-1"),
    ("classes=-1,-1,-1", "classes is -1, -1, -1: those kept"),
    ("classes=0,0.5,1", "classes is 0.5: give a whole number"),
    ("classes=0,1,-2", "classes is 0, 1, -2: those kept"),
    ("classes=0,1," + "9" * 30, "classes is 0, 1, 9999"),
    ("test_sets=", "test_sets is ()"),
    ("test_sets=none", "test_sets is None: give a list"),
    ("test_sets=test,test", "each once"),
    ("test_sets=tset", "unknown test set 'tset'"),
    ("test_sets=../../etc", "test set '../../etc'"),
    ("test_sets=/etc", "test set '/etc'"),
    ("test_sets=..", "test set '..'"),
    ("test_sets=a\\b", "test set"),
    ("test_sets=.hidden", "test set '.hidden'"),
    ("test_sets=te\x00st", "holds a null character"),
    ("test_sets=done", "test set 'done': results have something else of that name"),
    ("test_sets=seed_init", "test set 'seed_init': results have something else of that name"),
    ("test_sets=" + "t" * 300, "test set 'ttt"),
    ("dataset=", "data set '' cannot be opened"),
    ("dataset=\n", "data set"),
    ("dataset=../../x", "data set '../../x'"),
    ("dataset=mnist:no.version", "data set 'mnist:no.version'"),
    ("dataset=mnist/no_such_config", "data set 'mnist/no_such_config'"),
    ("dataset=mnist/split=train[:0]", "data set 'mnist/split=train[:0]'"),
    ("dataset=huggingface:mnist", "data set 'huggingface:mnist'"),
    ("dataset=kubric:movi_a", "data set 'kubric:movi_a'"),
    ("dataset=ｄｉｇｉｔｓ", "data set"),
    ("dataset=file:///etc/passwd", "data set 'file:///etc/passwd'"),
    ("dataset=https://localhost/x.npz", "no such file"),
    ("dataset=.npz", "/.npz'"),
    ("dataset=" + "x" * 5000 + ".npz", "no such file"),
    ("dataset=tiny.npz/x.npz", "no such file"),
    ("dataset=tiny.npz\x00.npz", "holds a null character"),
    ("dataset=\udcff.npz", "is no UTF-8"),
  ],
)  # fmt: skip
def test_recipe_fields(setting, message, refused):
  argv = tiny(setting)
  refused([*argv, "--out", "new"], message)


@pytest.mark.parametrize("model", models.NAMES)
def test_the_smallest_images(model):
  def sees(pixels):
    """Whether something is left of an image before the last layer; JAX before 0.12 has no weights for nothing."""
    model_of = models.build(model, num_classes=3, width=1.0, precision="float32")
    images = jnp.zeros((1, pixels, pixels, 1))
    try:
      out, variables = jax.eval_shape(lambda: model_of.init_with_output(jax.random.key(0), images, train=False))
    except (ValueError, ZeroDivisionError):
      return False
    assert out.shape == (1, 3)
    return all(leaf.size for leaf in jax.tree.leaves(variables))

  least = models.LEAST_PIXELS[model]
  assert sees(least)
  assert least == 1 or not sees(least - 1)


@pytest.mark.parametrize(
  "name", ["", "../digits_cnn", "digits_cnn\n", "DIGITS_CNN", "-", "ｄｉｇｉｔｓ_cnn", "%s%n", "d" * 5000]
)
def test_recipe_names(name, refused):
  refused(["train", name, "--out", "new"], "unknown recipe" if name != "-" else "error: ")


# Flags


@pytest.mark.parametrize(
  ("argv", "message"),
  [
    (["--runs", "-1"], "runs is -1"),
    (["--runs", "1.5"], "--runs"),
    (["--runs", "1e3"], "--runs"),
    (["--runs", "nan"], "--runs"),
    (["--runs", ""], "--runs"),
    (["--runs"], "--runs"),
    (["--runs", "4", "4"], "Unrecognized options: 4"),
    (["--runs", "1" + "0" * 30], "give at most 10000000"),
    (["--runs", "9" * 5000], "--runs"),
    (["--runs", "4000000000"], "runs is 4000000000"),
    (["--rnus", "4"], "Unrecognized options: --rnus"),
    (["--run\x1b[31ms", "4"], "Unrecognized options"),
    (["--seed-batch", "-1"], "seed batch is -1"),
    (["--seed-batch", "0"], "seed batch is 0"),
    (["--seed-batch", "2.0"], "--seed-batch"),
    (["--lane-width", "0"], "lane width is 0"),
    (["--lane-width", "-2"], "lane width is -2"),
    (["--lane-width", "5"], "lane width 5 with 4 runs"),
    (["--lane-width", "3", "--seed-batch", "2"], "lane width 3 with seed batch 2"),
    (["--lane-width", "1" + "0" * 30], "lane width 1000"),
    (["--lowering", ""], "unknown lowering ''"),
    (["--lowering", "im2col,grouped"], "unknown lowering 'im2col,grouped'"),
    (["--lowering", "../im2col"], "unknown lowering"),
    (["--vary", "weather"], "unknown source of randomness 'weather'"),
    (["--vary", "init", ""], "unknown source of randomness ''"),
    (["--vary", "init,order"], "unknown source of randomness 'init,order'"),
    (["--vary", "init", "init"], "sources that vary are init, init: name each once"),
    (["--until", ""], "--until ''"),
    (["--until", "mean_accuracy"], "write STATISTIC rel X%"),
    (["--until", "mean_accuracy rel"], "write STATISTIC rel X%"),
    (["--until", "mean_accuracy rel 0%"], "is no number above 0"),
    (["--until", "mean_accuracy rel -1%"], "is no number above 0"),
    (["--until", "mean_accuracy rel nan"], "write STATISTIC rel X%"),
    (["--until", "mean_accuracy abs 1e999"], "is no number above 0"),
    (["--until", "mean_accuracy abs 1.2.3"], "is no number above 0"),
    (["--until", "mean_accuracy abs ١"], "write STATISTIC rel X%"),
    (["--until", "mean_acuracy rel 1%"], "did you mean 'mean_accuracy'?"),
    (["--until", "min_accuracy rel 1%"], "unknown statistic 'min_accuracy'"),
    (["--until", "mean_accuracy rel 1%\nabs 1"], "write STATISTIC rel X%"),
    (["--until", "__class__ abs 1"], "unknown statistic '__class__'"),
    (["--until", "mean_accuracy rel 1%", "--most-runs", "-1"], "most runs is -1"),
    (["--until", "mean_accuracy rel 1%", "--most-runs", "3"], "most runs is 3"),
    (["--until", "mean_accuracy rel 1%", "--most-runs", "1" + "0" * 30], "give at most 10000000"),
    (["--until", "mean_accuracy rel 1%", "--runs", "0"], "runs is 0"),
    (["--logits", "--no-logits"], "error"),
    (["--logits=yes"], "Unrecognized options: yes"),
    (["--quiet", "please"], "Unrecognized options: please"),
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
)  # fmt: skip
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
  return b"\x93NUMPY" + bytes(version) + len(text).to_bytes(2 if version[0] == 1 else 4, "little") + text + body


def declared(shape, descr="|u1", **options):
  return npy(header=f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}}}\n", **options)


def zipped(*, method=zipfile.ZIP_STORED, edit=lambda content: content, more=(), **members):
  """The bytes of `tiny.npz` with some members replaced by other bytes (None: left out), then edited as a whole."""
  file = io.BytesIO()
  with zipfile.ZipFile(file, "w", method) as archive:
    for name, content in ({k: npy(v) for k, v in arrays().items()} | members).items():
      if content is not None:
        archive.writestr(f"{name}.npy", content)
    for name, content in more:
      archive.writestr(name, content)
  return edit(file.getvalue())


def sized(member, size):
  """Says in the archive's directory that a member unpacks to so many bytes."""

  def edit(content):
    content, at = bytearray(content), content.rindex(member.encode()) - 46
    content[at + 24 : at + 28] = struct.pack("<I", size)
    return bytes(content)

  return edit


TRAIN = arrays()["x_train"]
NPZ = {
  "empty file": (lambda: b"", "cannot be read (EOFError)"),
  "text": (lambda: b"x_train,y_train\n", "is no .npz, or holds pickled objects"),
  "an .npy": (lambda: npy(TRAIN), "holds nothing by name"),
  "a pickle": (lambda: pickle.dumps(Payload()), "is no .npz, or holds pickled objects"),
  "an .npy of a pickle": (lambda: npy(np.array([Payload()])), "is no .npz, or holds pickled objects"),
  "empty zip": (lambda: b"PK\x05\x06" + bytes(18), "lacks x_train and y_train"),
  "half a zip": (lambda: zipped(edit=lambda c: c[: len(c) // 2]), "cannot be read (BadZipFile)"),
  "zip without its start": (lambda: zipped(edit=lambda c: c[200:]), "is no .npz, or holds"),
  "a byte flipped in the images": (lambda: zipped(edit=lambda c: c.replace(TRAIN.tobytes()[:9], bytes(9))), "cannot be read (BadZipFile)"),
  "encrypted": (lambda: zipped(edit=lambda c: c.replace(b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01")), "cannot be read (RuntimeError)"),
  "unknown compression": (lambda: zipped(edit=lambda c: c.replace(b"PK\x01\x02\x14\x03\x14\x00\x00\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x00\x00\x63")), "cannot be read (NotImplementedError)"),
  "images pickled": (lambda: zipped(x_train=npy(np.array([Payload()] * 12))), "holds pickled objects, which are not loaded"),
  "labels pickled": (lambda: zipped(y_test=npy(np.array([Payload()] * 6))), "holds pickled objects, which are not loaded"),
  "objects in a structure": (lambda: zipped(y_train=npy(np.array([(0, Payload())] * 12, [("a", int), ("b", object)]))), "holds pickled objects"),
  "a bare pickle as labels": (lambda: zipped(y_train=pickle.dumps(Payload())), "is damaged"),
  "code in a header": (lambda: zipped(x_train=npy(header="open('ran', 'w')\n")), "is damaged"),
  "a header of brackets": (lambda: zipped(x_train=npy(header="(" * 9000)), "error"),
  "a header of 60 kB": (lambda: zipped(x_train=npy(header="#" * 60_000)), "error"),
  "a header that is cut off": (lambda: zipped(x_train=npy(TRAIN)[:40]), "is damaged"),
  "format version 3": (lambda: zipped(x_train=declared((12, 4, 4, 1), body=bytes(192), version=(3, 0))), "cannot be read"),
  "format version 9": (lambda: zipped(x_train=declared((12, 4, 4, 1), body=bytes(192), version=(9, 9))), "cannot be read"),
  "members that are no arrays": (lambda: zipped(x_train=None, y_train=None, more=[("x_train", b"abc"), ("y_train", b"abc")]), "is damaged"),
  "no y_train": (lambda: zipped(y_train=None), "lacks x_train and y_train"),
  "no x_test": (lambda: zipped(x_test=None), "unknown test set 'test'"),
  "names that climb": (lambda: zipped(x_train=None, more=[("../x_train.npy", npy(TRAIN))]), "lacks x_train and y_train"),
  "an absolute name": (lambda: zipped(y_train=None, more=[("/y_train.npy", npy(TRAIN))]), "lacks x_train and y_train"),
  "12 TB declared, 192 bytes there": (lambda: zipped(x_train=declared((12, 10**6, 10**6, 1), body=bytes(192))), "is not as long as its header says"),
  "12 TB declared of one bit pattern": (lambda: zipped(method=zipfile.ZIP_DEFLATED, x_train=declared((12, 10**6, 10**6, 1))), "is not as long as"),
  "4 GB declared twice": (lambda: zipped(x_train=declared((2**32 - 256,), body=bytes(192)), edit=sized("x_train.npy", 2**32 - 256 + 70)), "is not as long as its header says"),
  "more dimensions than numbers go": (lambda: zipped(x_train=declared((0, 10**30))), "error"),
  "negative dimensions": (lambda: zipped(x_train=declared((-12, -4, 4, 1), body=bytes(192))), "is not as long as its header says"),
  "70 dimensions": (lambda: zipped(x_train=declared((1,) * 70, body=b"a")), "error"),
  "a dimension that is a float": (lambda: zipped(x_train=declared((12.0, 4, 4), body=bytes(192))), "is damaged"),
  "longer than declared": (lambda: zipped(x_train=npy(TRAIN) + bytes(5)), "is not as long as its header says"),
  "no examples": (lambda: zipped(x_train=npy(TRAIN[:0]), y_train=npy(np.zeros(0, int))), "holds no examples"),
  "no test examples": (lambda: zipped(x_test=npy(TRAIN[:0]), y_test=npy(np.zeros(0, int))), "holds no examples"),
  "no pixels": (lambda: zipped(x_train=npy(TRAIN[:, :0])), "bad.npz' have the shape (12, 0, 4, 1)"),
  "videos": (lambda: zipped(x_train=npy(TRAIN[..., None])), "bad.npz' have the shape (12, 4, 4, 1, 1)"),
  "float64 images": (lambda: zipped(x_train=npy(TRAIN / 1)), "are float64: give uint8 or float32"),
  "complex images": (lambda: zipped(x_train=npy(TRAIN * 1j)), "are complex128: give uint8 or float32"),
  "images of text": (lambda: zipped(x_train=npy(TRAIN.astype("U3"))), "are <U3: give uint8 or float32"),
  "structured images": (lambda: zipped(x_train=npy(np.zeros(12, "u1,u1"))), "give uint8 or float32"),
  "images of nothing": (lambda: zipped(x_train=npy(np.zeros((12, 4), "V0"))), "give uint8 or float32"),
  "NaN in an image": (lambda: zipped(x_train=npy(TRAIN.astype("f4") * np.nan)), "hold NaN or infinite values"),
  "infinite test image": (lambda: zipped(**{f"x_{s}": npy(arrays()[f"x_{s}"].astype("f4") + (np.inf if s == "test" else 0)) for s in ("train", "test")}), "bad.npz' hold NaN"),
  "constant images": (lambda: zipped(x_train=npy(TRAIN * 0)), "bad.npz is constant"),
  "test images of another size": (lambda: zipped(x_test=npy(np.zeros((6, 5, 4, 1), "u1"))), "those of 'train' are"),
  "test images of another type": (lambda: zipped(x_test=npy(np.zeros((6, 4, 4, 1), "f4"))), "those of 'train' are"),
  "float labels": (lambda: zipped(y_train=npy(np.arange(12) % 3 / 1)), "are float64: give integers"),
  "labels true and false": (lambda: zipped(y_train=npy(np.arange(12) % 2 == 0)), "are bool: give integers"),
  "labels that are dates": (lambda: zipped(y_train=npy(np.zeros(12, "M8[s]"))), "are datetime64[s]: give integers"),
  "labels that are time spans": (lambda: zipped(y_train=npy(np.zeros(12, "m8[s]"))), "give integers"),
  "labels in one-hot rows": (lambda: zipped(y_train=npy(np.eye(12, 3, dtype=int))), "have the shape (12, 3): give (12,)"),
  "one label for all": (lambda: zipped(y_train=npy(np.array(0))), "have the shape (): give (12,)"),
  "a label too many": (lambda: zipped(y_train=npy(np.arange(13) % 3)), "have the shape (13,): give (12,)"),
  "a label too few": (lambda: zipped(y_test=npy(np.arange(5) % 3)), "have the shape (5,): give (6,)"),
  "negative labels": (lambda: zipped(y_train=npy(np.arange(12) % 3 - 1)), "take 3 values from -1 to 1"),
  "labels with a gap": (lambda: zipped(y_train=npy(np.arange(12) % 3 * 2)), "take 3 values from 0 to 4"),
  "labels beyond 64 bits": (lambda: zipped(y_train=npy(np.array([0, 2**64 - 1] * 6, np.uint64))), "to 18446744073709551615"),
  "test labels not trained on": (lambda: zipped(y_test=npy(np.arange(6))), "go from 0 to 5: they must lie in 0 to 2"),
  "40,000 classes": (lambda: zipped(x_train=npy(np.zeros((40_000, 1), "u1")), y_train=npy(np.arange(40_000)), x_test=npy(np.zeros((1, 1), "u1")), y_test=npy(np.array([0]))), "has 40000 classes: give at most 32768"),
}  # fmt: skip


@pytest.mark.parametrize("case", NPZ)
def test_data_sets(case, files, refused):
  write, message = NPZ[case]
  (files / "bad.npz").write_bytes(write())
  refused(tiny("dataset=bad.npz", "--out", "new", "--runs", "4"), message)


@pytest.mark.parametrize(
  "test_set",
  [
    "../../evil",
    "/evil",
    "..",
    ".",
    "a/b",
    "a\\b",
    ".hidden",
    "done",
    "report",
    "a\nb",
    "seed_init",
    "zarr.json",
    "blocks",
    "checkpoints",
    "variables",
    "x" * 200,
  ],
)
def test_names_of_test_sets_that_the_data_has(test_set, files, refused):
  """The data set does hold them: only their names are wrong."""
  np.savez(files / "bad.npz", **arrays(), **{f"x_{test_set}": arrays()["x_test"], f"y_{test_set}": arrays()["y_test"]})
  argv = tiny("dataset=bad.npz", f"test_sets={test_set}", "--out", "new", "--runs", "4")
  refused(argv, "test set ")


@pytest.mark.parametrize(
  ("make", "message"),
  [
    (lambda: os.mkdir("bad.npz"), "is a folder"),
    (lambda: os.symlink("bad.npz", "bad.npz"), "no such file"),
    (lambda: os.symlink("nothing", "bad.npz"), "no such file"),
    (lambda: os.mkfifo("bad.npz"), "is a pipe or a device"),
    (lambda: os.symlink("/dev/zero", "bad.npz"), "is a pipe or a device"),
  ],
)
def test_data_sets_that_are_no_files(make, message, files, refused):
  make()
  refused(tiny("dataset=bad.npz", "--out", "new", "--runs", "4"), message)


def test_data_sets_larger_than_memory(files, refused, monkeypatch):
  from vmapseeds.data import sources

  monkeypatch.setattr(sources, "free_host_memory", lambda: 100.0)
  refused(tiny("--out", "new", "--runs", "4"), "more memory than is free")


# Files to import


@pytest.mark.parametrize(
  ("name", "content", "message"),
  [
    ("y", lambda: npy(np.array([Payload()] * 6)), "Python objects"),
    ("p", lambda: npy(np.array([[(0, Payload())] * 6] * 4, [("a", int), ("b", object)])), "Python objects"),
    ("y", lambda: npy(header="open('ran', 'w')\n"), "cannot be read"),
    ("y", lambda: npy(np.arange(6) / 1), "labels has dtype float64"),
    ("y", lambda: npy(np.arange(6) > 2), "labels has dtype bool"),
    ("y", lambda: npy(np.arange(6).astype("M8[D]")), "labels has dtype datetime64[D]"),
    ("y", lambda: npy(np.zeros(6, "V0")), "labels has dtype |V0"),
    ("y", lambda: npy(np.zeros(6, "U0")), "labels has dtype"),
    ("y", lambda: npy(np.zeros(6, "i4,i4")), "labels has dtype"),
    ("y", lambda: npy(np.arange(5)), "give one label an example, 6"),
    ("y", lambda: npy(np.arange(0)), "give at least one of each"),
    ("y", lambda: npy(np.array(0)), "labels has shape ()"),
    ("y", lambda: npy(np.arange(6) - 1), "labels has -1 at example 0"),
    ("y", lambda: npy(np.array([0, 1, 2, 3, 4, 2**64 - 1], np.uint64)), "labels has 18446744073709551615 at example 5"),
    ("p", lambda: npy(np.full((4, 6), -2)), "predictions has -2 at run 0, example 0"),
    ("p", lambda: npy(np.full((4, 6), 40_000)), "predictions has 40000"),
    ("p", lambda: npy(np.zeros((4, 6, 3), int)), "logits are given as logits"),
    ("p", lambda: npy(np.zeros(6, int)), "for a single run give predictions[None]"),
    ("p", lambda: npy(np.zeros((6, 4), int)), "are the axes in another order?"),
    ("p", lambda: npy(np.zeros((4, 6), "f2")), "predictions has dtype float16"),
    ("p", lambda: declared((2**62, 6), "<i8"), "cannot be read"),
    ("p", lambda: declared((10**30, 6), "<i8"), "cannot be read"),
    ("p", lambda: declared((0, 6), "<i8"), "give at least one of each"),
    ("p", lambda: declared((4, 6), "<i8", version=(9, 9)), "cannot be read"),
  ],
)
def test_files_to_import(name, content, message, files, refused):
  (files / f"{name}.npy").write_bytes(content())
  refused(["import", "--labels", "y.npy", "--predictions", "p.npy", "--out", "new", "--quiet"], message)


@pytest.mark.parametrize(
  ("content", "message"),
  [
    (lambda: np.full((4, 6, 3), np.nan), "logits is nan at run 0, example 0, class 0"),
    (lambda: np.where(np.arange(72).reshape(4, 6, 3) == 71, -np.inf, 0), "logits is -inf at run 3, example 5, class 2"),
    (lambda: np.zeros((4, 6, 3), int), "logits has dtype int64"),
    (lambda: np.zeros((4, 6, 3), complex), "logits has dtype complex128"),
    (lambda: np.zeros((4, 6, 1)), "give at least two classes"),
    (lambda: np.zeros((4, 6, 2)), "labels has 2 at example 2"),
    (lambda: np.zeros((4, 6, 3), "f16"), "logits has dtype float128"),
    (lambda: np.zeros((4, 6)), "logits has shape (4, 6)"),
    (lambda: np.zeros((1, 6, 40_000), "f2"), "there are 40000 classes"),
  ],
)
def test_logits_to_import(content, message, files, refused):
  np.save("l.npy", content())
  argv = ["import", "--labels", "y.npy", "--logits", "l.npy", "--out", "new", "--quiet"]
  # What is wrong in a late block is found when earlier ones lie in a draft beside `new`, which is removed.
  refused(argv, message, times_of_folders=False)


IMPORT = ("import", "--labels", "y.npy", "--quiet")


@pytest.mark.parametrize(
  ("argv", "message"),
  [
    ([*IMPORT, "--out", "new"], "give either --predictions P.npy or --logits L.npy"),
    ([*IMPORT, "--predictions", "p.npy", "--logits", "l.npy", "--out", "new"], "give either --predictions"),
    ([*IMPORT, "--predictions", "p.npy", "--keep-logits", "--out", "new"], "predictions have no logits to keep"),
    ([*IMPORT, "--predictions", "p.npy", "--out", "new", "--classes", "0"], "the number of classes is 0"),
    ([*IMPORT, "--predictions", "p.npy", "--out", "new", "--classes", "2"], "labels has 2 at example 2"),
    ([*IMPORT, "--predictions", "p.npy", "--out", "new", "--classes", "1" + "0" * 30], "give at most 32768"),
    ([*IMPORT, "--predictions", "p.npy", "--out", "new", "--classes", "3.5"], "--classes"),
    ([*IMPORT, "--logits", "l.npy", "--out", "new", "--classes", "4"], "logits has 3 classes, not 4"),
    ([*IMPORT, "--predictions", "p.npy", "--out", "new", "--name", "two\nlines"], "name 'two"),
    ([*IMPORT, "--predictions", "p.npy", "--out", "new", "--name", "\x1b[2J"], "name "),
    ([*IMPORT, "--predictions", "p.npy", "--out", "r"], "r is not empty"),
    ([*IMPORT, "--predictions", "p.npy", "--out", "y.npy"], "y.npy is a file"),
    ([*IMPORT, "--predictions", "p.npy", "--out", "y.npy/new"], "cannot be written"),
    ([*IMPORT, "--predictions", "p.npy", "--out", "n" * 256], "too long"),
    ([*IMPORT, "--predictions", "", "--out", "new"], "error"),
    ([*IMPORT, "--predictions", "n" * 256, "--out", "new"], "too long"),
    ([*IMPORT, "--predictions", "/dev/zero", "--out", "new"], "is no file"),
    ([*IMPORT, "--predictions", "tiny.npz", "--out", "new"], "is no .npy file"),
  ],
)  # fmt: skip
def test_import_flags(argv, message, work, refused):
  refused(argv, message)


# Results folders


def edit(file, change):
  """Changes the JSON in a file."""
  content = json.loads(Path(file).read_text())
  content = change(content) or content
  Path(file).write_text(json.dumps(content))


def everywhere():
  """Copies all metadata of `r` to where copies of them are kept, so that no difference gives a change away."""
  nodes = {f.parent.relative_to("r").as_posix(): json.loads(f.read_text()) for f in Path("r").rglob("*/zarr.json")}
  for node in nodes.values():
    node.pop("consolidated_metadata", None)
  inline = {"kind": "inline", "must_understand": False}
  for group in [name for name, node in nodes.items() if node.get("node_type") == "group"]:
    inside = {name.removeprefix(f"{group}/"): node for name, node in nodes.items() if name.startswith(f"{group}/")}
    edit(f"r/{group}/zarr.json", lambda g, i=inside: g.update(consolidated_metadata={**inline, "metadata": i}))
  edit("r/zarr.json", lambda root: root.update(consolidated_metadata={**inline, "metadata": nodes}))
  shutil.copyfile("r/zarr.json", "r/blocks/folder.json")


def root(change):
  """Changes the root's metadata and their copy."""

  def make():
    edit("r/zarr.json", change)
    shutil.copyfile("r/zarr.json", "r/blocks/folder.json")

  return make


def attribute(name, value):
  """Sets an attribute of the results; None removes it."""

  def change(root):
    root["attributes"].pop(name, None)
    if value is not None:
      root["attributes"][name] = value

  return root(change)


def in_recipe(**fields):
  def change(root):
    recipe = json.loads(root["attributes"]["recipe"])
    recipe.update({k: v for k, v in fields.items() if v is not None})
    root["attributes"]["recipe"] = json.dumps({k: v for k, v in recipe.items() if fields.get(k, 0) is not None})

  return root(change)


def metadata(name, **changes):
  """Changes an array's metadata, wherever they are kept."""

  def make():
    edit(f"r/{name}/zarr.json", lambda own: own.update(changes))
    everywhere()

  return make


def values(name, array, dimensions=None):
  """Writes other values in place of an array, of any shape and dtype."""

  def make():
    group, _, base = name.rpartition("/")
    path = Path("r") / group
    names = dimensions or json.loads(Path(f"r/{name}/zarr.json").read_text())["dimension_names"]
    chunks = (2, *array.shape[1:]) if names[0] == "run" else array.shape
    opened = zarr.open_group(path, mode="r+", use_consolidated=False)
    with warnings.catch_warnings(), zarr.config.set({"array.write_empty_chunks": True}):
      warnings.simplefilter("ignore")  # text is no type of Zarr's specification
      made = opened.create_array(
        base, shape=array.shape, dtype=array.dtype, chunks=chunks, dimension_names=names, overwrite=True
      )
      made[:] = array
    everywhere()

  return make


def write(name, content):
  return lambda: (Path("r") / name).write_bytes(content)


def cut(name):
  return lambda: os.truncate(Path("r") / name, Path("r", name).stat().st_size // 2)


def remove(name):
  return lambda: shutil.rmtree(Path("r") / name) if Path("r", name).is_dir() else Path("r", name).unlink()


def link(name, target):
  def make():
    remove(name)() if Path("r", name).exists() else None
    Path("r", name).symlink_to(target)

  return make


def format_2(consolidated):
  """The predictions as a Zarr 2 array of pickled objects."""
  from numcodecs import Pickle

  v2 = {
    "zarr_format": 2, "shape": [4, 6], "chunks": [4, 6], "dtype": "|O", "compressor": None, "fill_value": None,
    "order": "C", "filters": [{"id": "pickle", "protocol": 5}],
  }  # fmt: skip

  def make():
    payload = bytes(Pickle().encode(np.array([[Payload()] * 6] * 4)))
    Path("r/test/predictions/0.0").write_bytes(payload)
    if consolidated:
      edit("r/test/zarr.json", lambda all: all["consolidated_metadata"]["metadata"].update(predictions=v2))
      return
    group = Path("r/test")
    for array in ("labels", "accuracy", "predictions"):
      (group / array / "zarr.json").unlink()
      shape = {"shape": [6], "chunks": [6]} if array == "labels" else {"shape": [4], "chunks": [4]}
      plain = v2 | shape | {"dtype": "<i4", "filters": None, "fill_value": 0}
      (group / array / ".zarray").write_text(json.dumps(v2 if array == "predictions" else plain))
      dimensions = {"labels": ["example"], "accuracy": ["run"]}.get(array, ["run", "example"])
      (group / array / ".zattrs").write_text(json.dumps({"_ARRAY_DIMENSIONS": dimensions}))
    (group / "zarr.json").unlink()
    (group / ".zgroup").write_text('{"zarr_format": 2}')

  return make


NO_RESULTS = "is no results folder"
FOLDERS = {
  "no zarr.json": (remove("zarr.json"), "zarr.json cannot be read"),
  "empty zarr.json": (write("zarr.json", b""), "zarr.json cannot be read"),
  "garbage": (write("zarr.json", bytes(range(256))), "zarr.json cannot be read"),
  "half of zarr.json": (cut("zarr.json"), "zarr.json cannot be read"),
  "a list": (write("zarr.json", b"[1, 2]"), "zarr.json cannot be read"),
  "a number": (write("zarr.json", b"1e999"), "zarr.json cannot be read"),
  "attributes in a list": (root(lambda r: r.update(attributes=[1])), NO_RESULTS),
  "no attributes": (root(lambda r: r.update(attributes={})), NO_RESULTS),
  "zarr.json is a folder": (lambda: (remove("zarr.json")(), os.mkdir("r/zarr.json")), "zarr.json cannot be read"),
  "zarr.json is a pipe": (lambda: (remove("zarr.json")(), os.mkfifo("r/zarr.json")), "zarr.json cannot be read"),
  "brackets in brackets": (write("zarr.json", b'{"attributes":' * 100_000), "zarr.json cannot be read"),
  "an integer of 10,000 digits": (write("zarr.json", b'{"attributes": ' + b"9" * 10_000 + b"}"), "zarr.json cannot be read"),
  "zarr.json of 100 MB": (lambda: os.truncate("r/zarr.json", 10**8), "zarr.json cannot be read"),
  "another format": (attribute("format", "vmapseeds results 999"), NO_RESULTS),
  "format is a list": (attribute("format", ["vmapseeds results 1"]), NO_RESULTS),
  "an array where the group is": (root(lambda r: r.update(node_type="array")), "is not a group's of Zarr format 3"),
  "Zarr format 2 and 3": (root(lambda r: r.update(zarr_format=2)), "is not a group's of Zarr format 3"),
  "Zarr format NaN": (root(lambda r: r.update(zarr_format=float("nan"))), "is not a group's of Zarr format 3"),
  "consolidated metadata in a list": (root(lambda r: r.update(consolidated_metadata={"kind": "inline", "metadata": []})), "error"),
  "consolidated array of another": (lambda: edit("r/test/zarr.json", lambda g: g["consolidated_metadata"]["metadata"].update({"../../i/test/predictions": g["consolidated_metadata"]["metadata"]["predictions"]})), "error"),
  "no classes": (attribute("num_classes", None), "lacks the attribute num_classes"),
  "0 classes": (attribute("num_classes", 0), "has num_classes 0"),
  "fewer classes than labels": (attribute("num_classes", 2), "has 3 of class, where others have 2"),
  "10^30 classes": (attribute("num_classes", 10**30), "has num_classes 1000"),
  "NaN classes": (attribute("num_classes", float("nan")), "has num_classes nan"),
  "classes in words": (attribute("num_classes", "three"), "has num_classes 'three'"),
  "classes true": (attribute("num_classes", True), "has num_classes True"),
  "a device kind that clears the screen": (attribute("device_kind", "\x1b[2J"), "has device_kind"),
  "lane width in words": (attribute("lane_width", "wide"), "has lane_width 'wide'"),
  "lowering is a number": (attribute("lowering", 3), "has lowering 3"),
  "versions in a list": (attribute("versions", [1]), "has versions [1]"),
  "a version is a dict": (attribute("versions", {"jax": {}}), "has versions"),
  "logits is a word": (attribute("logits", "no"), "has logits 'no'"),
  "columns is a word": (attribute("columns", "seed"), "has columns 'seed'"),
  "sampling is a word": (attribute("sampling", "all"), "has sampling 'all'"),
  "test sets in a word": (attribute("test_sets", "test"), "has test_sets 'test'"),
  "no test set": (attribute("test_sets", []), "test_sets is []"),
  "a test set twice": (attribute("test_sets", ["test", "test"]), "has test_sets"),
  "test sets of lists": (attribute("test_sets", [["test"]]), "has test_sets"),
  "a test set that climbs": (attribute("test_sets", ["test", "../../etc"]), "test set '../../etc' cannot be the name"),
  "a test set at the root": (attribute("test_sets", ["test", "/etc"]), "test set '/etc' cannot be the name"),
  "a test set with a slash": (attribute("test_sets", ["test", "a/b"]), "test set 'a/b' cannot be the name"),
  "a test set without a name": (attribute("test_sets", ["test", ""]), "test set '' cannot be the name"),
  "a test set that is not there": (lambda: (attribute("test_sets", ["test"])(), remove("test")()), "and ['test', 'extra'] in its recipe"),
  "variables is a word": (attribute("variables", "params"), "has variables 'params'"),
  "variables that climb": (attribute("variables", {"../../i.x": [3]}), "has variables {'../../i.x'"),
  "variables that are not there": (attribute("variables", {"params.a": [3]}), "lacks variables"),
  "variables of no shape": (attribute("variables", {"params.a": 3}), "has variables"),
  "a variable in another": (attribute("variables", {"params.a": [1], "params.a.b": [1]}), "has variables"),
  "no recipe": (attribute("recipe", None), "lacks the attribute recipe"),
  "a recipe of text": (attribute("recipe", "digits_cnn"), "has a recipe or test_sets that cannot be"),
  "a recipe that is a dict": (attribute("recipe", {"name": "digits_cnn"}), "has recipe {'name'"),
  "a recipe in a list": (attribute("recipe", "[]"), "has a recipe or test_sets that cannot be"),
  "a recipe of brackets": (attribute("recipe", "[" * 100_000), "has a recipe or test_sets that cannot be"),
  "a recipe of half an object": (attribute("recipe", '{"name": "di'), "has a recipe or test_sets that cannot be"),
  "a field too many": (in_recipe(hook="os.system"), "unknown recipe field 'hook'"),
  "a field missing": (in_recipe(lr=None), "the recipe lacks lr"),
  "a name of None": (attribute("recipe", "{}"), "the recipe lacks name"),
  "a learning rate of NaN": (in_recipe(lr=float("nan")), "lr is nan"),
  "epochs of a list": (in_recipe(epochs=[1]), "epochs is [1]"),
  "a name that climbs": (in_recipe(name="../../etc"), "recipe name '../../etc'"),
  "a name of half a character": (in_recipe(name="\ud800"), "recipe name"),
  "a recipe's test sets that climb": (in_recipe(test_sets=["test", "../../etc"]), "test set '../../etc'"),
  "no done": (remove("done"), "error"),
  "done as numbers": (values("done", np.ones(4, int)), "says of done that its data_type is 'int64'"),
  "done in two dimensions": (values("done", np.ones((4, 6), bool), ("run", "example")), "says of done that its dimension_names"),
  "done of more runs": (values("done", np.ones(9, bool)), "of run, where others have"),
  "done of 10^15 runs": (metadata("done", shape=[10**15]), "its shape is [1000000000000000]"),
  "done of 10^15 runs in one chunk": (metadata("done", shape=[10**15], chunk_grid={"name": "regular", "configuration": {"chunk_shape": [10**15]}}), "its shape is [1000000000000000]"),
  "done of a negative number of runs": (metadata("done", shape=[-4]), "error"),
  "done of NaN runs": (metadata("done", shape=[float("nan")]), "its shape is [nan]"),
  "chunks of no size": (metadata("done", chunk_grid={"name": "regular", "configuration": {"chunk_shape": [0]}}), "error"),
  "no run done": (values("done", np.zeros(4, bool)), "finished"),
  "all diverged": (values("diverged", np.ones(4, bool)), "diverge"),
  "no diverged": (lambda: (remove("diverged")(), everywhere()), "lacks diverged"),
  "done cut off": (cut("done/c/0"), "done/c/0 cannot be read"),
  "labels cut off": (cut("test/labels/c/0"), "labels/c/0 cannot be read"),
  "labels flipped to garbage": (write("test/labels/c/0", bytes(range(64))), "labels/c/0 cannot be read"),
  "metadata of labels cut off": (cut("test/zarr.json"), "test/zarr.json differs from the root's copy"),
  "labels too high": (values("test/labels", np.arange(6, dtype=np.int32)), "labels goes from 0 to 5"),
  "labels negative": (values("test/labels", np.arange(6, dtype=np.int32) % 3 - 1), "labels goes from -1 to 1"),
  "labels as floats": (values("test/labels", np.zeros(6)), "says of test/labels that its data_type is"),
  "labels as text": (values("test/labels", np.array(["a"] * 6)), "says of test/labels that its data_type is"),
  "labels of fewer examples": (values("test/labels", np.zeros(5, np.int32)), "of example"),
  "accuracies of more runs": (values("test/accuracy", np.zeros(5)), "of run"),
  "accuracies over 1": (values("test/accuracy", np.full(4, 7.0)), "accuracy goes from 7.0 to 7.0"),
  "accuracies of NaN": (values("test/accuracy", np.full(4, np.nan)), "accuracy goes from nan to nan"),
  "accuracies of objects": (metadata("test/accuracy", data_type="object"), "its data_type is 'object'"),
  "predictions of dates": (metadata("test/predictions", data_type="numpy.datetime64"), "its data_type is"),
  "predictions transposed": (values("test/predictions", np.zeros((6, 4), np.int8), ("example", "run")), "says of test/predictions that its dimension_names"),
  "predictions of fewer runs": (values("test/predictions", np.zeros((3, 6), np.int8)), "of run"),
  "predictions of 10^12 examples": (metadata("test/predictions", shape=[4, 10**12]), "says of test/predictions that its chunks are"),
  "predictions missing": (lambda: (remove("test/predictions")(), everywhere()), "lacks test/predictions"),
  "logits of other classes": (values("test/logits", np.zeros((4, 6, 5), np.float32)), "it has 5 of class, where others have 3"),
  "a codec of pickles": (metadata("test/accuracy", codecs=[{"name": "numcodecs.pickle", "configuration": {}}]), "its codecs are"),
  "an unknown codec": (metadata("test/accuracy", codecs=[{"name": "os.system", "configuration": {"command": "touch ran"}}]), "its codecs are"),
  "a codec of another kind": (metadata("test/accuracy", codecs=[{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "numcodecs.zlib", "configuration": {}}]), "its codecs are"),
  "values to be rescaled": (metadata("test/labels", attributes={"scale_factor": 0.5}), "its attributes is {'scale_factor'"),
  "values to be dates": (metadata("test/labels", attributes={"units": "days since 2000-01-01"}), "its attributes is {'units'"),
  "pickles in Zarr format 2": (format_2(False), "test/zarr.json differs from the root's copy"),
  "pickles in consolidated metadata": (format_2(True), "test/zarr.json differs from the root's copy"),
  "an array of the root again": (lambda: (shutil.copytree("r/done", "r/test/done"), everywhere()), "describes 'test/done', which is not one of its arrays"),
  "a seed of text": (values("seed_init", np.array(["a"] * 4)), "says of seed_init that its data_type is"),
  "seeds of another number of runs": (values("seed_init", np.zeros(5, np.uint32)), "of run"),
  "a link to other results": (link("test", "../i/test"), "is a link"),
  "a link out of the folder": (link("report", "../../.."), "is a link"),
  "a link to itself": (link("test/labels/c/0", "0"), "is a link"),
  "a link among the chunks": (link("test/labels/c/0", "/etc/passwd"), "is a link"),
  "a link that the report would write through": (lambda: (os.mkdir("r/report"), os.symlink("../../tiny.npz", "r/report/report.json")), "is a link"),
}  # fmt: skip


@pytest.mark.parametrize("case", thinned(FOLDERS))
def test_results_folders(case, work, refused, tmp_path, capsys):
  make, message = FOLDERS[case]
  make()
  refused(["report", "r"], message)
  refused(["compare", "i", "r"], message)
  ends_well_and_stays_inside(tmp_path, capsys)


def ends_well_and_stays_inside(tmp_path, capsys):
  """What works on the folder `r` says in lines what is wrong with it, and changes nothing else."""
  before = outside(tmp_path)
  for argv in (["work", "r", "--quiet"], ["replay", "r", "--run", "1"], ["verify", "r"], ["verify", "r", "--repair"]):
    ends_well(argv, capsys)
  assert outside(tmp_path) == before


def outside(tmp_path):
  inside = str(Path("r").absolute()) + "/"
  return {f: s for f, s in snapshot(tmp_path, times_of_folders=False).items() if not f.startswith(inside)}


@pytest.mark.parametrize("name", ["device_kind", "lane_width", "lowering", "versions", "columns", "sampling", "logits"])
def test_attributes_that_are_not_there(name, work, refused):
  attribute(name, None)()
  refused(["report", "r"], f"lacks the attribute {name}")


@pytest.mark.parametrize(
  "case",
  [
    "garbage", "brackets in brackets", "another format", "no classes", "classes in words", "lane width in words",
    "lowering is a number", "sampling is a word", "columns is a word", "logits is a word", "a test set that climbs",
    "a recipe of text", "a field too many", "a field missing", "a name that climbs", "done as numbers",
    "a codec of pickles", "a link to other results", "a link among the chunks", "no recipe",
  ],
)  # fmt: skip
def test_results_folders_that_are_trained_further(case, work, refused):
  make, _ = FOLDERS[case]
  make()
  refused(tiny("test_sets=test,extra", "--runs", "8", "--logits", "--quiet", "--out", "r"), "")


def record(**changes):
  """Changes what the record of block 0 says of its write, and signs it."""

  def make():
    (write,) = blocks.record("r", 0)
    blocks.write_record("r", 0, [{k: v for k, v in (write | changes).items() if v is not None}])

  return make


def claim(name="0.0", **owner):
  """A claim of block 0, whose process seems to be of this machine."""
  content = json.dumps({**blocks._process(), **owner}).encode()
  return lambda: (write(f"blocks/{name}.claim", content)(), os.truncate(f"r/blocks/{name}.claim", len(content)))


def recipe_of(**changes):
  return json.dumps(json.loads(vs.recipe("digits_cnn").to_json()) | changes)


DAMAGED = "r is damaged: blocks/0.json "
RECORDS = {
  "empty": (write("blocks/0.json", b""), DAMAGED),
  "garbage": (write("blocks/0.json", bytes(range(256))), DAMAGED),
  "brackets in brackets": (write("blocks/0.json", b"[" * 100_000), DAMAGED),
  "objects in objects": (write("blocks/0.json", b'{"writes":' * 100_000), DAMAGED),
  "70 MB": (lambda: os.truncate("r/blocks/0.json", 70 * 10**6), DAMAGED),
  "a number of 10,000 digits": (write("blocks/0.json", b"9" * 10_000), DAMAGED),
  "a list": (write("blocks/0.json", b"[]"), DAMAGED),
  "not signed": (lambda: edit("r/blocks/0.json", lambda r: r["writes"][0].update(lane_width=2)), DAMAGED),
  "of another block": (lambda: shutil.copyfile("r/blocks/1.json", "r/blocks/0.json"), DAMAGED),
  "a folder": (lambda: (remove("blocks/0.json")(), os.mkdir("r/blocks/0.json")), DAMAGED),
  "writes of numbers": (lambda: blocks.write_record("r", 0, [1, 2]), DAMAGED),
  "writes of none": (lambda: blocks.write_record("r", 0, None), DAMAGED),
  "writes nested deeply": (lambda: blocks.write_record("r", 0, [json.loads("[" * 900 + "]" * 900)]), DAMAGED),
  "no rows": (record(rows=[]), DAMAGED),
  "rows missing": (record(rows=None), DAMAGED),
  "rows of another block": (record(rows=[2, 3]), DAMAGED),
  "rows beyond all": (record(rows=[0, 10**30]), DAMAGED),
  "rows below 0": (record(rows=[-1, -2]), DAMAGED),
  "rows of text": (record(rows=["0", "1"]), DAMAGED),
  "rows true": (record(rows=[True, False]), DAMAGED),
  "rows of floats": (record(rows=[0.0, 1.0]), DAMAGED),
  "a row twice": (record(rows=[0, 0]), DAMAGED),
  "digests in a list": (record(digests=[]), DAMAGED),
  "no digests": (record(digests={}), None),
  "no recipe": (record(recipe=None), "the recipe is None"),
  "a recipe in a list": (record(recipe="[]"), "the recipe is '[]'"),
  "a recipe of brackets": (record(recipe="[" * 100_000), "the recipe is '[[["),
  "a recipe that is a dict": (record(recipe={"name": "x"}), "the recipe is {'name': 'x'}"),
  "a recipe of other data": (record(recipe=recipe_of(dataset="../../secret.npz")), "on another task"),
  "a recipe of test sets that climb": (record(recipe=recipe_of(test_sets=["../../etc"])), "cannot be the name"),
  "a recipe with a field too many": (record(recipe=recipe_of(hook="os.system")), "unknown recipe field 'hook'"),
  "lanes of 10^9": (record(lane_width=10**9), "lane width 1000000000: impossible"),
  "no lanes": (record(lane_width=0), "lane width 0: impossible"),
  "lanes in words": (record(lane_width="wide"), "lane width 'wide': no such"),
  "lanes true": (record(lane_width=True), "lane width True: no such"),
  "lowering that climbs": (record(lowering="../im2col"), "lowering '../im2col'"),
  "lowering in a list": (record(lowering=["im2col"]), "lowering ['im2col']"),
  "a precision of 3": (record(precision=3), "precision is 3"),
  "a precision in a list": (record(precision=[[]]), "precision is [[]]"),
  "a file that says nothing": (write("blocks/\x1b[2J.json", b""), None),
  "a file that is no UTF-8": (lambda: Path(os.fsdecode(b"r/blocks/\xff.json")).write_bytes(b""), None),
  "a link": (link("blocks/0.json", "../../tiny.npz"), "r is damaged: blocks/0.json is a link"),
  "a link out of the folder": (link("blocks", "../i"), "r is damaged: blocks is a link"),
  "a link to where marks are": (link("done/c/0", "../../../tiny.npz"), "r is damaged: done/c/0 is a link"),
  "blocks is a file": (lambda: (remove("blocks")(), write("blocks", b"")()), "r is damaged: blocks is a file"),
  "checkpoints elsewhere": (link("checkpoints", "../i"), "r is damaged: checkpoints is a link"),
  "checkpoints is a file": (write("checkpoints", b""), None),
  "a checkpoint of no runs": (lambda: os.makedirs("r/checkpoints/0-1/" + "9" * 200), None),
  "a pipe": (lambda: (remove("blocks/0.json")(), os.mkfifo("r/blocks/0.json")), "r is damaged: blocks/0.json is a pipe"),
  "marks are a folder": (lambda: (remove("done/c/0")(), os.mkdir("r/done/c/0")), "run 0 of r is not done"),
  "metadata are a folder": (lambda: (remove("done/zarr.json")(), os.mkdir("r/done/zarr.json")), "r is damaged: done/zarr.json cannot be read"),
  "metadata nested deeply": (write("done/zarr.json", b"[" * 100_000), "r is damaged: done/zarr.json cannot be read"),
  "metadata longer than can be": (lambda: edit("r/done/zarr.json", lambda n: n.update(shape=[10**15])), "r is damaged: done/zarr.json differs"),
  "metadata of 4.0 runs": (lambda: edit("r/done/zarr.json", lambda n: n.update(shape=[4.0])), "r is damaged: done/zarr.json differs"),
  "a copy nested deeply": (write("blocks/folder.json", b"[" * 100_000), None),
  "a copy of another kind": (write("blocks/folder.json", b'{"attributes": {"format": "vmapseeds results 1"}}'), None),
  "a copy of another kind alone": (lambda: (write("blocks/folder.json", b'{"attributes": {"format": "vmapseeds results 1"}}')(), cut("zarr.json")()), "r is damaged: zarr.json cannot be read"),
  "a claim of process 10^30": (claim(pid=10**30), None),
  "a claim of all processes": (claim(pid=-1), None),
  "a claim of process infinity": (claim(pid=float("inf")), None),
  "a claim that began in a list": (claim(started=[]), None),
  "a claim of a high number": (claim("0." + "9" * 200), None),
  "a claim of the year 2100": (lambda: (claim(host="elsewhere")(), os.utime("r/blocks/0.0.claim", (4e9, 4e9))), None),
  "a claim nested deeply": (write("blocks/0.0.claim", b"[" * 100_000), None),
}  # fmt: skip


@pytest.mark.parametrize(
  ("case", "begun"), [pytest.param(case, b, marks=[pytest.mark.slow] * ((i + b) % 2 or i % 4 > 1)) for i, case in enumerate(RECORDS) for b in (False, True)]
)  # fmt: skip
def test_records_claims_and_copies(case, begun, work, refused, tmp_path, capsys):
  """With all runs done, and with the first block to be trained."""
  if begun:
    with zarr.config.set({"array.write_empty_chunks": True}):
      zarr.open_group("r", mode="r+", use_consolidated=False)["done"][:2] = False
  make, message = RECORDS[case]
  make()
  if message and not begun:
    refused(["replay", "r", "--run", "0"], message)
  ends_well_and_stays_inside(tmp_path, capsys)


@pytest.mark.parametrize(
  ("more", "message"),
  [
    (["lr=0.1"], "its recipe and this one differ in lr: 0.05, 0.1"),
    (["test_sets=extra,test"], "test_sets: ('test', 'extra'), ('extra', 'test')"),
    (["dataset=other.npz"], "differ in dataset"),
    (["--vary", "init"], "its runs differ from these in seed_order"),
    (["--lane-width", "2"], "its lane width is 1, not 2"),
    (["--lowering", "im2col"], "its lowering is 'sequential', not 'im2col'"),
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
    (["report"], "no DIR given"),
    (["report", ""], NO_RESULTS),
    (["report", "none"], NO_RESULTS),
    (["report", "tiny.npz"], NO_RESULTS),
    (["report", "r/test"], NO_RESULTS),
    (["report", "r", "none"], NO_RESULTS),
    (["report", "r\x00"], "holds a null character"),
    (["report", "\x1b[2J"], NO_RESULTS),
    (["report", "n" * 300], NO_RESULTS),
    (["report", "/dev/null"], NO_RESULTS),
    (["report", "r", "--test-set", ""], "unknown test set ''"),
    (["report", "r", "--test-set", "../../i/test"], "unknown test set '../../i/test'"),
    (["report", "r", "--test-set", "/etc"], "unknown test set '/etc'"),
    (["report", "r", "--test-set", "tset"], "did you mean 'test'?"),
    (["report", "r", "--test-set", "."], "unknown test set '.'"),
    (["report", "r", "--test-set", "te\nst"], "unknown test set"),
    (["report", "r", "--test-set"], "--test-set"),
    (["report", "r", "i", "--test-set", "extra"], "unknown test set 'extra'"),
    (["compare"], "error"),
    (["compare", "r"], "error"),
    (["compare", "r", "i", "r"], "Unrecognized options: r"),
    (["compare", "r", "tiny.npz"], NO_RESULTS),
    (["compare", "r", "i", "--gamma", "nan"], "gamma is nan"),
    (["compare", "r", "i", "--gamma", "inf"], "gamma is inf"),
    (["compare", "r", "i", "--gamma", "-0.75"], "gamma is -0.75"),
    (["compare", "r", "i", "--gamma", "0.5"], "gamma is 0.5"),
    (["compare", "r", "i", "--gamma", "1.0000001"], "gamma is 1.0000001"),
    (["compare", "r", "i", "--gamma", "75%"], "--gamma"),
    (["compare", "r", "i", "--gamma", ""], "--gamma"),
    (["compare", "r", "i", "--test-set", "extra"], "unknown test set 'extra'"),
    (["compare", "r", "fewer", "--paired"], "to pair them row by row, give as many of each"),
    (["compare", "r", "labels"], "were tested on different examples"),
    (["compare", "r", "examples"], "were tested on different examples"),
    (["bench", "no_such_recipe"], "unknown recipe 'no_such_recipe'"),
    (["bench", "digits_cnn", "--widths", "-1"], "lane width is -1"),
    (["bench", "digits_cnn", "--widths", "1.5"], "--widths"),
    (["bench", "digits_cnn", "--widths", "1" + "0" * 30], "lane width is 1000"),
    (["bench", "digits_cnn", "--lowerings", ""], "unknown lowering ''"),
    (["bench", "digits_cnn", "--set", "dataset=none.npz"], "no such file"),
    (["demo", "--runs", "0"], "runs is 0"),
    (["demo", "--runs", "4000000000"], "give at most 10000000"),
    (["demo", "--out", "tiny.npz"], "tiny.npz is a file"),
    (["recipes", "all"], "Unrecognized options: all"),
    (["bench", "digits_cnn", "--set", "dataset=tiny.npz", "model=resnet9"], "on images of 4×4 pixels"),
    (["work", ""], NO_RESULTS),
    (["work", "none"], NO_RESULTS),
    (["work", "tiny.npz"], NO_RESULTS),
    (["work", "r/test"], NO_RESULTS),
    (["work", "i"], "holds imported runs"),
    (["work", "n" * 300], NO_RESULTS),
    (["work", "r\x00"], "holds a null character"),
    (["work", "r", "i"], "Unrecognized options: i"),
    (["work", "r", "--blocks", "-1:2"], "write A:B"),
    (["work", "r", "--blocks", "0:3"], "blocks 0:3 of a folder with 2"),
    (["work", "r", "--blocks", "2:"], "blocks 2:2 of a folder with 2"),
    (["work", "r", "--blocks", "1:1"], "blocks 1:1 of a folder with 2"),
    (["work", "r", "--blocks", "1:0"], "blocks 1:0 of a folder with 2"),
    (["work", "r", "--blocks", "9" * 5000 + ":"], "write A:B"),
    (["work", "r", "--blocks", ":" * 9], "write A:B"),
    (["work", "r", "--blocks", ""], "write A:B"),
    (["work", "r", "--seed-batch", "0"], "seed batch is 0"),
    (["work", "r", "--seed-batch", "1e3"], "--seed-batch"),
    (["verify", ""], NO_RESULTS),
    (["verify", "none"], NO_RESULTS),
    (["verify", "tiny.npz"], NO_RESULTS),
    (["verify", "r/test", "--repair"], NO_RESULTS),
    (["verify", ".", "--repair"], NO_RESULTS),
    (["verify", "n" * 300, "--repair"], NO_RESULTS),
    (["verify", "r", "--repair=all"], "Unrecognized options: all"),
    (["replay", "r"], "--run"),
    (["replay", "r", "--run", "-1"], "run is -1"),
    (["replay", "r", "--run", "4"], "run 4 of a folder with 4: the last is 3"),
    (["replay", "r", "--run", "1" + "0" * 30], "of a folder with 4"),
    (["replay", "r", "--run", "1.5"], "--run"),
    (["replay", "r", "--run", "nan"], "--run"),
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
)  # fmt: skip
def test_commands(argv, message, work, refused):
  for name, labels, runs in (("labels", [0] * 6, 4), ("examples", [0] * 5, 4), ("fewer", np.arange(6) % 3, 3)):
    if name in argv:
      vs.import_runs(name, labels=labels, predictions=np.zeros((runs, len(labels)), int), progress=False)
  refused(argv, message)


@pytest.mark.parametrize("main", [poking.main, independent_errors.main])
@pytest.mark.parametrize(
  ("argv", "message"),
  [
    (["--recipe", "../digits_cnn"], "unknown recipe '../digits_cnn'"),
    (["--set", "name=../../../evil"], "recipe name '../../../evil'"),
    (["--epochs", "-1"], "epochs is -1"),
    (["--epochs"], "--epochs"),
    (["--epochs", "1" + "0" * 30], "give at most 1000000"),
    (["--runs", "1"], "--runs is 1: give a whole number of at least 2"),
    (["--runs", "4000000000"], "give at most 10000000"),
    (["--seed-batch", "0"], "--seed-batch is 0"),
    (["--out", "tiny.npz"], "tiny.npz is a file"),
    (["--campaigns", "tiny.npz/c"], "cannot be written"),
    (["--lowering", "fast"], "unknown lowering 'fast'"),
  ],
)  # fmt: skip
def test_flags_of_experiments(argv, message, main, refused):
  refused(argv, message, main=main)


@pytest.mark.parametrize(
  ("make", "argv", "message"),
  [
    pytest.param(lambda: None, ["report", "r", b"\xff\xfe"], "is no UTF-8", marks=pytest.mark.slow),
    pytest.param(values("seed_init", np.array(["a"] * 4)), ["report", "r"], "says of seed_init that its data_type is", marks=pytest.mark.slow),
    pytest.param(format_2(False), ["report", "r"], "differs from the root's copy", marks=pytest.mark.slow),
    (lambda: Path("bad.npz").write_bytes(NPZ["12 TB declared, 192 bytes there"][0]()), tiny("dataset=bad.npz", "--out", "new"), "is not as long as"),
  ],
)  # fmt: skip
def test_as_programs(make, argv, message, work, tmp_path, tmp_path_factory, monkeypatch):
  """With the warnings that a user would see."""
  monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path_factory.mktemp("matplotlib")))  # where it caches fonts
  temporary = tmp_path_factory.mktemp("temporary")  # which Python tries out with a file that it removes
  monkeypatch.setenv("TMPDIR", str(temporary))
  make()
  before = snapshot(tmp_path)
  program = [sys.executable, "-m", "vmapseeds.cli", *argv]
  ended = subprocess.run(program, capture_output=True, text=True, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"})
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
    key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
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
  return rng.choice([
    None, True, 0, -1, 3, 2**31, 10**30, 0.5, float("nan"), float("inf"), "", "test", "../x", "\x00", "\ud800", [], {},
    [value], {"name": value}, str(value), "[" * 5000,
  ])  # fmt: skip


FILES = ("zarr.json", "zarr.json", "test/zarr.json", "test/labels/zarr.json", "done/zarr.json")


def ends_well(argv, capsys):
  """Whether the command line accepts `argv`; False where it says in one line why not, or what `verify` found."""
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


MANY = pytest.mark.parametrize("mutations", [25, pytest.param(1000, marks=pytest.mark.slow)])


@MANY
def test_mutated_metadata(mutations, work, capsys, monkeypatch):
  """Whatever is changed in the metadata: read as results, or refused in one line."""
  monkeypatch.setattr(pages, "_save_figure", lambda *args: "")
  rng = random.Random(mutations)
  accepted = 0
  for i in range(mutations):
    file = Path("r", rng.choice(FILES))
    good = file.read_text()
    file.write_text(json.dumps(mutated(json.loads(good), rng)))
    accepted += ends_well(["report", "r"] if i % 10 == 0 else ["compare", "r", "i"], capsys)
    file.write_text(good)
    shutil.rmtree("r/report", ignore_errors=True)
  assert 0 < accepted < mutations
  assert not Path("ran").exists()


@MANY
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
    accepted += ends_well(["report", "r"] if i % 10 == 0 else ["compare", "r", "i"], capsys)
    file.write_bytes(good)
    shutil.rmtree("r/report", ignore_errors=True)
  assert 0 < accepted < mutations


@MANY
def test_mutated_commands(mutations, work, capsys, monkeypatch):
  """Good command lines with words left out, repeated, exchanged, cut off or replaced."""

  def accepted(*args, **kwargs):
    raise Accepted

  for module, name in ((campaign.Results, "open_or_create"), (pages, "write_page")):
    monkeypatch.setattr(module, name, accepted)
  good = [
    tiny("test_sets=test,extra", "--runs", "4", "--seed-batch", "2", "--lane-width", "1", "--out", "new", "--quiet"),
    tiny("--vary", "init", "data", "--until", "mean_accuracy rel 1%", "--runs", "9", "--out", "r", "--logits"),
    ["compare", "r", "i", "--gamma", "0.8", "--test-set", "test", "--paired"],
    ["report", "r", "i", "--test-set", "test"],
    ["import", "--labels", "y.npy", "--predictions", "p.npy", "--classes", "3", "--name", "mine", "--out", "i"],
  ]
  words = "", "-", "--", "-1", "0", "nan", "1e99", "1" * 25, "../..", "=", "lr=", "\0", "\x1b[0m", "é", "--out", "--set"
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
        argv[place] = rng.choice(words)
    ended.append(ends_well(argv, capsys))
  assert 0 < sum(ended) < len(ended) / 2
