"""The file that a reader copies: short, of public names alone, and it runs."""

import ast
import os
import subprocess
import sys
from pathlib import Path

from PIL import Image

import vmapseeds as vs
from experiments import frame

FILE = Path(frame.__file__).with_name("quickstart.py")
TEXT = FILE.read_text()


def test_it_has_forty_lines_of_public_names():
  assert len(TEXT.splitlines()) <= 40
  modules = set()
  for node in ast.walk(ast.parse(TEXT)):
    if isinstance(node, ast.Import):
      modules |= {name.name for name in node.names}
    elif isinstance(node, ast.ImportFrom):
      modules.add(node.module)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
      assert node.value.id != "vs" or node.attr in vs.__all__, node.attr
  assert modules == {"pathlib", "matplotlib.pyplot", "vmapseeds"}
  readme = FILE.parents[1] / "README.md"
  assert "`experiments/quickstart.py`" in readme.read_text()


def test_it_draws_the_figure(tmp_path):
  program = tmp_path / "quickstart.py"
  program.write_text(TEXT.replace("RUNS = 200", "RUNS = 4"))
  ended = subprocess.run(
    [sys.executable, program],
    cwd=tmp_path,
    env=os.environ | {"MPLBACKEND": "agg", "PYTHONPATH": str(FILE.parents[1])},
    capture_output=True,
    text=True,
  )
  assert ended.returncode == 0, ended.stderr
  with Image.open(tmp_path / "results/quickstart/figure1.png") as image:
    assert image.size == (1200, 300)
