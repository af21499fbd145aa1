"""The command of each paper, and what its output is made of."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
from rich.table import Table

import vmapseeds as vs
from experiments import frame

EXPERIMENTS = Path(frame.__file__).parent


def run(made: Path, *flags: str) -> None:
  out = ("--out", str(made / "out"), "--campaigns", str(made / "campaigns"))
  frame.main(str(EXPERIMENTS / "jordan2024" / "__main__.py"), [*flags, *out])


MISTAKES = {
  "unknown figure": (("fig77",), "unknown figure 'fig77'"),
  "unknown scale": (("--scale", "huge"), "huge"),
  "no seed batch": (
    ("--seed-batch", "0"),
    "--seed-batch is 0: give a whole number of at least 1",
  ),
}


@pytest.mark.parametrize(("flags", "said"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(flags, said, tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(vs, "train", lambda *_, **__: pytest.fail("trained"))
  with pytest.raises(SystemExit) as end:
    run(tmp_path, *flags)
  assert end.value.code == 2
  err = capsys.readouterr().err
  assert len(err.splitlines()) == 1
  assert said in err
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  ("named", "scripts"),
  [
    (("5",), ["fig05"]),
    (("05", "fig11"), ["fig05", "fig11"]),
    ((), frame.script_names(EXPERIMENTS / "jordan2024")),
  ],
)
def test_figures_are_named_by_number_or_script(named, scripts):
  assert frame.select_scripts(EXPERIMENTS / "jordan2024", named) == scripts
  assert len(frame.script_names(EXPERIMENTS / "jordan2024")) == 14


def test_a_figure_as_a_program(tmp_path):
  command = [sys.executable, "-m", "experiments.jordan2024", "fig99"]
  ended = subprocess.run(
    command, cwd=EXPERIMENTS.parent, capture_output=True, text=True
  )
  assert ended.returncode == 2
  assert ended.stderr.startswith("error: unknown figure 'fig99': choose one of ")
  assert len(ended.stderr.splitlines()) == 1


HEAD = ("quantity", "paper", "where", "ours", "runs")


@pytest.mark.parametrize("columns", ["20", "80", "300"])
def test_words_and_numbers_of_a_table_stay_whole_in_a_pipe(
  columns, monkeypatch, capsys
):
  monkeypatch.setenv("COLUMNS", columns)
  rows = [
    (
      "variance of initialisation over that of the training set",
      "0.45 %",
      "figure 1",
      "0.00123",
      "16",
    ),
    (
      "correlation",
      "not given",
      "appendix D.1",
      "0.123456789 ± 0.000000012",
      "16",
    ),
  ]
  table = Table(*HEAD)
  for row in rows:
    table.add_row(*row)
  frame.print_table(table)
  words = capsys.readouterr().out.replace("│", " ").replace("┃", " ").split()
  assert not {
    word for row in (HEAD, *rows) for cell in row for word in cell.split()
  } - {*words}


@pytest.mark.parametrize(
  ("value", "se", "text"),
  [
    (0.00149, 0.000043, "0.1490 ± 0.0043 %"),
    (0.5, None, "50 %"),
    (math.nan, 0.1, "—"),
    (0.25, 0.0, "25.00 ± 0.00 %"),
    (-0.0001, 0.01, "0.0 ± 1.0 %"),
  ],
)
def test_percent(value, se, text):
  assert frame.format_percent(value, se) == text
