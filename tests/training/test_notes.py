"""Notes go through the logger `vmapseeds`; without configuration they are lines on
stderr.
"""

import errno
import logging

import pytest

import vmapseeds as vs
from vmapseeds import cli
from vmapseeds.errors import printing_notes, say, warn

NOTE = "100 % of 2 runs, {braces} and %s"


@pytest.fixture
def own_logger():
  logger = logging.getLogger("vmapseeds")
  yield logger
  logger.setLevel(logging.NOTSET)


def test_notes_are_lines_on_stderr_where_nothing_is_configured(capsys, caplog):
  say(NOTE)
  warn(NOTE)
  assert capsys.readouterr().err == f"{NOTE}\n{NOTE}\n"
  assert caplog.records == []


def test_notes_are_records_where_logging_shows_them(capsys, caplog):
  # As `logging.basicConfig(level="INFO")` does.
  caplog.set_level(logging.INFO)
  say(NOTE)
  warn(NOTE)
  assert [
    (record.name, record.levelname, record.getMessage(), record.funcName)
    for record in caplog.records
  ] == [
    (
      "vmapseeds",
      level,
      NOTE,
      "test_notes_are_records_where_logging_shows_them",
    )
    for level in ("INFO", "WARNING")
  ]
  assert capsys.readouterr().err == ""


def test_a_level_of_the_logger_leaves_notes_out(capsys, caplog, own_logger):
  own_logger.setLevel("WARNING")
  say("a note")
  warn("a warning")
  assert [record.getMessage() for record in caplog.records] == ["a warning"]
  assert capsys.readouterr().err == ""


def test_a_training_logs_its_notes(capsys, caplog, tmp_path):
  caplog.set_level(logging.INFO, "vmapseeds")
  recipe = vs.recipe("digits_cnn", model="linear", epochs=1)
  vs.train(recipe, 2, tmp_path / "r", lane_width=1, lowering="sequential")
  notes = [record.getMessage() for record in caplog.records]
  assert any(note.startswith("training 2 runs of ") for note in notes)
  assert any(note.startswith("2/2 runs") for note in notes)
  assert capsys.readouterr().err == ""


def test_commands_print_notes_however_a_module_configures_logging(
  capsys, caplog, own_logger
):
  caplog.set_level(logging.INFO)
  own_logger.setLevel("ERROR")
  with cli.one_line_errors():
    say(NOTE)
    warn(NOTE)
  assert capsys.readouterr().err == f"{NOTE}\n{NOTE}\n"
  assert caplog.records == []
  assert own_logger.level == logging.ERROR
  assert own_logger.propagate


def test_a_full_disk_behind_a_note_is_an_error(monkeypatch):
  class Full:
    def write(self, text):
      raise OSError(errno.ENOSPC, "full")

  with printing_notes(), pytest.raises(OSError, match="full"):
    monkeypatch.setattr("sys.stderr", Full())
    say(NOTE)
