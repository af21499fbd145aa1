"""Tables for LaTeX: frames as pandas writes them."""

import re
import shutil
import subprocess

import numpy as np
import pytest

import vmapseeds as vs


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
  rng = np.random.default_rng(0)
  labels = rng.integers(0, 3, 40)
  names = ("cat_1", "50 %", "R&D")
  made = []
  for name, share in (("first_#1", 0.9), ("second", 0.8)):
    made.append(tmp_path_factory.mktemp("tex") / name)
    recorder = vs.Recorder(made[-1], labels=labels, class_names=names)
    guesses = rng.integers(0, 3, (6, 40))
    predictions = np.where(rng.random((6, 40)) < share, labels, guesses)
    recorder.add(predictions, seed=np.arange(6), my_lr=0.1)
  return made


def frames(folders):
  summary = vs.report(folders).table
  return {
    "summary": summary,
    "some": summary.xs("mean_accuracy", level="statistic")[["value", "se"]],
    "runs": vs.run_table(folders[0]),
    "examples": vs.example_table(folders[0]).dataset.to_dataframe(),
  }


def test_frames_have_no_sign_that_latex_reads_otherwise(folders):
  for name, frame in frames(folders).items():
    text = frame.to_latex(escape=True)
    assert "_" in text, name
    # Ampersands and braces are pandas' own, too.
    assert not re.search(r"(?<!\\)[_%#$]", text), name


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("pdflatex"), reason="there is no TeX")
def test_tex_reads_what_is_offered(folders, tmp_path):
  tables = [frame.to_latex(escape=True) for frame in frames(folders).values()]
  # A package for `multirow` may be absent: what it would span is one cell here.
  packages = r"\usepackage{booktabs}\newcommand{\multirow}[4][]{#4}"
  body = "\n\n".join(tables)
  source = (
    rf"\documentclass{{article}}{packages}\begin{{document}}{body}\end{{document}}"
  )
  (tmp_path / "t.tex").write_text(source)
  ended = subprocess.run(
    ["pdflatex", "-interaction=nonstopmode", "t.tex"],
    cwd=tmp_path,
    capture_output=True,
    text=True,
    errors="replace",
  )
  faults = [line for line in ended.stdout.splitlines() if line.startswith("!")]
  assert faults == []
  assert ended.returncode == 0
