"""The papers' figures at the smallest scale: each is made, with its rows, its picture
and its place in the gallery.
"""

import importlib
import json
import math
import subprocess
import sys
from pathlib import Path

import figures
import pytest
from PIL import Image
from rich.table import Table
from upath import UPath

import vmapseeds as vs
from experiments import frame

ALWAYS = ("theorem1_test_sets",)  # the others with `-m slow`
FIGURES = [
  pytest.param(
    paper,
    figure,
    id=f"{paper}-{figure}",
    marks=[pytest.mark.slow] * (figure not in ALWAYS),
  )
  for paper in figures.PAPERS
  for figure in frame.figure_names(figures.EXPERIMENTS / paper)
]


def run(paper: str, made: Path, *flags: str) -> None:
  out = ("--out", str(made / paper), "--campaigns", str(made / "campaigns"))
  frame.main(str(figures.EXPERIMENTS / paper / "__main__.py"), [*flags, *out])


@pytest.mark.parametrize(("paper", "figure"), FIGURES)
def test_figure(paper, figure, made):
  figures.make(made, paper, [figure])
  record = json.loads((made / paper / f"{figure}.json").read_text())
  assert record["rows"]
  assert all(row["quantity"] and row["paper"] and row["ours"] for row in record["rows"])
  assert f"{figure}.png" in (made / paper / "index.html").read_text()


@pytest.mark.parametrize(
  "paper",
  [x for x in figures.PAPERS if frame.figure_names(figures.EXPERIMENTS / x)],
)
@pytest.mark.slow
def test_a_picture_of_each_paper(paper, made, tmp_path, capsys):
  """Its first figure, as the command makes it, with the campaigns of the others."""
  figure = frame.figure_names(figures.EXPERIMENTS / paper)[0]
  out = ("--out", str(tmp_path), "--campaigns", str(made / "campaigns"))
  frame.main(str(figures.EXPERIMENTS / paper / "__main__.py"), [figure, *out])
  record = json.loads((tmp_path / f"{figure}.json").read_text())
  assert record["title"] in capsys.readouterr().out.replace("\n", " ")
  with Image.open(tmp_path / f"{figure}.png") as image:
    image.load()
    assert min(image.size) > 300
    assert len(image.convert("L").getcolors()) > 20
  assert (tmp_path / f"{figure}.png").stat().st_size < 150_000


def test_all_cores_are_had(tmp_path, monkeypatch):
  """A campaign's folder is named after its precision, which depends on the device. So
  JAX must be started first.
  """
  called = []
  monkeypatch.setattr(frame.lanes, "start_jax", lambda: called.append("start_jax"))
  monkeypatch.setattr(
    frame.models,
    "resolve_precision",
    lambda precision: called.append("resolved") or "float32",
  )
  campaigns = {"one": frame.Campaign(vs.recipe("digits_cnn"), 2)}
  frame.Trained("jordan2024", "smoke", campaigns, tmp_path, frame.Options(), {}).place(
    "one"
  )
  assert called == ["start_jax", "resolved"]


MISTAKES = {
  "unknown figure": (("fig77",), "unknown figure 'fig77'"),
  "no seed batch": (
    ("--seed-batch", "0"),
    "seed batch is 0: give a whole number of at least 1",
  ),
}


@pytest.mark.parametrize(("flags", "said"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(flags, said, tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(vs, "train", lambda *_, **__: pytest.fail("trained"))
  with pytest.raises(SystemExit) as end:
    run("jordan2024", tmp_path, *flags)
  assert end.value.code == 2
  err = capsys.readouterr().err
  assert len(err.splitlines()) == 1
  assert said in err
  assert not list(tmp_path.iterdir())


def test_an_unknown_scale_is_refused(tmp_path, capsys):
  with pytest.raises(SystemExit) as end:
    run("jordan2024", tmp_path, "--scale", "huge")
  assert end.value.code == 2
  assert "huge" in capsys.readouterr().err
  assert not list(tmp_path.iterdir())


FOREIGN = {
  "a page": ("index.html", "mine", "has an index.html that no experiment wrote"),
  "another paper": (
    "index.json",
    '{"paper": "jiang2022", "scale": "smoke"}',
    "holds jiang2022 at scale smoke",
  ),
  "another scale": (
    "index.json",
    '{"paper": "jordan2024", "scale": "gpu"}',
    "holds jordan2024 at scale gpu",
  ),
  "a list": ("index.json", "[1]", "index.json is of something else"),
  "no JSON": ("index.json", "mine", "index.json is of something else"),
}


@pytest.mark.parametrize(("name", "text", "said"), FOREIGN.values(), ids=FOREIGN)
def test_a_folder_of_something_else_is_left_alone(
  name, text, said, tmp_path, monkeypatch, capsys
):
  monkeypatch.setattr(vs, "train", lambda *_, **__: pytest.fail("trained"))
  (tmp_path / "jordan2024").mkdir()
  there = tmp_path / "jordan2024" / name
  there.write_text(text)
  with pytest.raises(SystemExit) as end:
    run("jordan2024", tmp_path)
  assert end.value.code == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert said in line
  assert line.endswith("give another folder with --out")
  assert list(tmp_path.rglob("*")) == [there.parent, there]
  assert there.read_text() == text


@pytest.mark.parametrize("figure", [(), ("4",)], ids=["all", "one"])
def test_missing_data(figure, tmp_path, monkeypatch, capsys):
  """One line tells it: before any training if all figures are asked for, otherwise
  before its campaign's training.
  """
  campaigns = importlib.import_module("experiments.jordan2024.campaigns")
  here, missing = (
    frame.Campaign(vs.recipe("digits_cnn", dataset=data), 2)
    for data in ("digits", "missing.npz")
  )
  monkeypatch.setattr(
    campaigns,
    "campaigns",
    lambda _: {"here": here} | dict.fromkeys(campaigns.DURATIONS, missing),
  )
  with pytest.raises(SystemExit) as end:
    run("jordan2024", tmp_path, *figure)
  assert end.value.code == 2
  *progress, line = capsys.readouterr().err.splitlines()
  assert "no such file" in line
  assert "missing.npz" in line
  assert (
    ("name the figures that do without it" in line) == (not figure) == (not progress)
  )
  assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_gallery_has_this_papers_figures_alone(tmp_path, capsys):
  """This holds for a folder behind a URL, too. Other files in it are not read."""
  out = UPath("memory://papers")
  out.mkdir(parents=True)
  (out / "my_notes.json").write_text("mine")
  paper = str(figures.EXPERIMENTS / "jordan2024" / "__main__.py")
  name = "theorem1_test_sets"
  frame.main(paper, [name, "--out", str(out), "--campaigns", str(tmp_path)])
  assert json.loads((out / "index.json").read_text())["figures"] == [name]
  page = (out / "index.html").read_text()
  assert json.loads((out / f"{name}.json").read_text())["title"] in page
  assert "Not here: figure 7, BERT. finetuning BERT" in page
  assert (out / "my_notes.json").read_text() == "mine"


@pytest.mark.slow
def test_a_figure_as_a_program(tmp_path):
  command = [sys.executable, "-m", "experiments.jordan2024", "fig99"]
  ended = subprocess.run(
    command, cwd=figures.EXPERIMENTS.parent, capture_output=True, text=True
  )
  assert ended.returncode == 2
  assert ended.stderr.startswith("error: unknown figure 'fig99': choose one of ")
  assert len(ended.stderr.splitlines()) == 1


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
  table = Table(*frame.HEAD)
  for row in rows:
    table.add_row(*row)
  frame.print_table(table)
  words = capsys.readouterr().out.replace("│", " ").replace("┃", " ").split()
  assert not {
    word for row in (frame.HEAD, *rows) for cell in row for word in cell.split()
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
