"""What a user's mistake and Ctrl-C look like in Python: one line, without the package's own
frames, in the words of Python.
"""

import pickle
import subprocess
import sys
import traceback

import flax.linen as nn
import numpy as np
import pytest

import vmapseeds as vs
from vmapseeds import cli, errors

X, Y = np.eye(4, dtype=np.float32), np.arange(4) % 2
DATA = vs.Dataset(train=(X, Y), test=(X, Y))
GIVEN = dict(dataset=DATA, model=nn.Dense, epochs=1, batch_size=2, lr=0.1)


class Bad(nn.Module):
  @nn.compact
  def __call__(self, x):
    return x + "text"


@pytest.fixture(autouse=True)
def as_for_users(monkeypatch):
  monkeypatch.delenv(errors.TRACEBACK, raising=False)


def own_frames(error):
  files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
  return [name.rpartition("/vmapseeds/")[2] for name in files if "/vmapseeds/" in name]


@pytest.mark.parametrize(
  "call",
  [
    lambda folder: vs.Recipe(epoch=1),
    lambda folder: vs.Recipe(**GIVEN).replace(optimizer="adamW"),
    lambda folder: vs.Runs.independent(0),
    lambda folder: vs.Runs.independent(2).k_fold(1),
    lambda folder: vs.Dataset(train=(X, Y[:2])),
    lambda folder: vs.open_results(folder),
    lambda folder: vs.report(folder),
    lambda folder: vs.train("digits_cnn", 2, folder, lane_width=0),
    lambda folder: vs.load_dataset("none_such"),
  ],
)
def test_our_frames_are_left_out(call, tmp_path):
  with pytest.raises(vs.UserError) as caught:
    call(tmp_path / "a")
  frames = own_frames(caught.value)
  assert [*dict.fromkeys(frames)][-1:] == ["errors.py"]
  assert len(frames) <= 2  # the door, and a constructor's
  assert caught.value.__cause__ is None


def test_the_cause_in_a_users_code_stays(tmp_path):
  recipe = vs.Recipe(**(GIVEN | {"model": Bad}))
  with pytest.raises(
    vs.UserError, match=r"model .* fails .*test_doors.py line"
  ) as caught:
    vs.train(recipe, 2, tmp_path / "a", progress=False)
  assert isinstance(caught.value.__cause__, TypeError)
  assert own_frames(caught.value) == ["errors.py"]


def test_all_frames_are_shown_on_request(monkeypatch, tmp_path):
  monkeypatch.setenv(errors.TRACEBACK, "1")
  with pytest.raises(vs.UserError) as caught:
    vs.open_results(tmp_path / "a")
  assert len(own_frames(caught.value)) > 2


@pytest.mark.parametrize(
  ("name", "value", "argument", "flag"),
  [
    ("out", None, "out=", "--out"),
    ("lane_width", 1, "lane_width=1", "--lane-width 1"),
    ("force_mixed", True, "force_mixed=True", "--force-mixed"),
    ("dataset", "PATH", "dataset=PATH", "--dataset PATH"),
    ("where", {"lr": 0.02}, "where={'lr': 0.02}", "--where lr=0.02"),
  ],
)
def test_options_are_arguments_in_python_and_flags_on_the_command_line(
  name, value, argument, flag
):
  assert errors.option(name, value) == argument
  with errors.naming_flags():
    assert errors.option(name, value) == flag
  assert errors.option(name, value) == argument


def test_messages_name_arguments_in_python_and_flags_on_the_command_line(
  capsys, tmp_path
):
  recipe = vs.recipe("digits_cnn", model="linear", epochs=1)
  vs.train(recipe, 2, tmp_path / "r", progress=False)
  use = "give another {}, or what it was started with, or {}"
  with pytest.raises(vs.UserError) as caught:
    vs.train(recipe.replace(epochs=2), 2, tmp_path / "r", progress=False)
  assert str(caught.value).endswith(use.format("out=", "force_mixed=True"))
  words = ["digits_cnn", "--set", "model=linear", "epochs=2", "--out", f"{tmp_path}/r"]
  with pytest.raises(SystemExit):
    cli.main(["train", *words])
  assert use.format("--out", "--force-mixed") in capsys.readouterr().err
  error = pickle.loads(pickle.dumps(caught.value))
  assert (type(error), str(error)) == (vs.UserError, str(caught.value))
  with pytest.raises(SystemExit):
    cli.main(["train", "digits_cnn", "--out", "r", "--until", "soon"])
  assert "--until 'soon': write" in capsys.readouterr().err


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (
      lambda: vs.Recipe(epoch=1),
      "unknown recipe field 'epoch': .*did you mean 'epochs'",
    ),
    (lambda: vs.Recipe(epochs=1), "the recipe lacks dataset, model, batch_size: give"),
    (lambda: vs.Recipe(), "the recipe lacks dataset, model, epochs, batch_size"),
    (lambda: vs.Dataset(tran=1), "unknown data set field 'tran': .* mean 'train'"),
    (lambda: vs.Dataset(), "the data set lacks train"),
    (lambda: vs.Task(stat=1), "unknown task field 'stat': .* mean 'start'"),
    (lambda: vs.Output(rolle="loss"), "unknown output field 'rolle': .* mean 'role'"),
    (lambda: vs.Recipe(**GIVEN, optimizer="adamW"), "did you mean 'adamw'"),
  ],
)
def test_fields(call, message):
  with pytest.raises(vs.UserError, match=message):
    call()


def test_a_recipe_is_called_as_its_model():
  recipe = vs.Recipe(**GIVEN)
  assert recipe.name == "Dense"
  assert vs.Recipe(**(GIVEN | {"model": nn.Dense(2)})).name == "Dense"
  assert vs.Recipe(**(GIVEN | {"model": lambda key: key})).name == "lambda"
  assert vs.Recipe(**(GIVEN | {"model": (len, max)})).name == "model"
  assert vs.Recipe(**(GIVEN | {"model": "small_cnn"})).name == "small_cnn"
  assert vs.Recipe(**GIVEN, name="mine").name == "mine"


def test_what_is_shown_of_a_recipe_is_short():
  large = np.zeros((10_000, 20), np.float32)
  data = vs.Dataset(train=(large, np.arange(10_000) % 2), name="large")
  text = repr(vs.Recipe(**(GIVEN | {"dataset": data})))
  assert text == (
    "Recipe(name='Dense', dataset=<Dataset 'large': examples train 10000, 2 classes>, "
    "model=flax.linen.linear:Dense, epochs=1, batch_size=2, lr=0.1)"
  )
  assert repr(vs.recipe("digits_cnn")).startswith(
    "Recipe(name='digits_cnn', dataset='di"
  )


def test_a_results_folder_is_no_data_set(tmp_path):
  labels = np.arange(4) % 2
  vs.import_runs(
    tmp_path / "a", predictions=labels[None], labels=labels, progress=False
  )
  with pytest.raises(vs.UserError, match="is a results folder: open it with"):
    vs.load_dataset(tmp_path / "a")


def test_an_interrupt_is_one_line(capsys, monkeypatch, tmp_path):
  def interrupted(*args):
    raise KeyboardInterrupt

  monkeypatch.setattr("vmapseeds.campaign.block_training.run_lanes", interrupted)
  with pytest.raises(KeyboardInterrupt) as caught:
    vs.train("digits_cnn", 2, tmp_path / "a", progress=False)
  assert own_frames(caught.value) == ["errors.py"]
  assert capsys.readouterr().err == (
    "interrupted: what was written stays; make the same call again to resume\n"
  )


def test_a_script_that_is_interrupted_says_so_once(tmp_path):
  script = (
    "from vmapseeds import errors\n"
    "@errors.hide_own_frames\n"
    "def inner(): raise KeyboardInterrupt\n"
    "@errors.hide_own_frames\n"
    "def outer(): inner()\n"
    "outer()\n"
  )
  ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
  assert ended.returncode in (130, -2)
  assert ended.stderr.count("interrupted:") == 1
  assert ended.stderr.count("errors.py") == 1
