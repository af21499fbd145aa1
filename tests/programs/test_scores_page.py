"""The page on tables of scores: what it prints is what the table on it gives."""

import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from test_cli import run

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
TABLE = HOWTO / "data" / "scores.csv"


@pytest.fixture
def page(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  shutil.copy(TABLE, "scores.csv")
  return (HOWTO / "scores.md").read_text("utf-8")


def test_the_sentences_are_those_of_the_table(page, capsys):
  words = ["compare", "scores.csv", "--by", "model", "--score", "accuracy"]
  _, out, _ = run(capsys, *words)
  said = " ".join(out.split())
  lines = [line[1:] for line in page.splitlines() if line.startswith(">")]
  quoted = " ".join(" ".join(lines).split())
  pieces = re.split(r" … | (?=note: )| (?=For other)", quoted)
  assert len(pieces) == 4
  for piece in pieces:
    assert piece in said
  table = pd.read_csv(TABLE)
  means = table.groupby(["model", "dataset"]).accuracy.mean().unstack("model")
  friedman = scipy.stats.friedmanchisquare(*means.to_numpy().T).pvalue
  assert f"p = {friedman:.2f} (Friedman)" in said
  assert np.isclose((means.linear - means.neighbours).mean(), 0.013, atol=5e-4)


@pytest.mark.slow
def test_the_page_runs_as_it_stands(page, capsys):
  names = {"__name__": "scores"}
  for block in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S):
    exec(compile(block, "scores.md", "exec"), names)
  assert Path("differences.pdf").is_file()
  assert Path("page/compare.html").is_file()
  assert r"\toprule" in capsys.readouterr().out
  commands = page.replace("\\\n", "")
  for command in re.findall(r"^    vmapseeds (.*)$", commands, re.M):
    assert run(capsys, *command.split())[0] == 0
