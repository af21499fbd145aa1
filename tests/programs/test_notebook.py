"""The notebooks, executed once on the CPU with few runs, and their install cells,
without installing.

`VMAPSEEDS_EXECUTED` names a folder in which they are kept as they were executed, for the
site, which then executes none.
"""

import importlib.util
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import nbclient
import nbformat
import numpy as np
import pandas as pd
import pytest
from IPython.core.inputtransformer2 import TransformerManager

import vmapseeds as vs
from experiments import notebooks
from vmapseeds import stats

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "notebooks" / "quickstart.ipynb"
NOTEBOOKS = sorted(NOTEBOOK.parent.glob("*.ipynb"))
OTHERS = [path for path in NOTEBOOKS if path != NOTEBOOK]
EXECUTED = os.environ.get("VMAPSEEDS_EXECUTED")
RUNS = int(os.environ.get("VMAPSEEDS_RUNS", "0")) or 16
PICTURES = {  # how many each shows
  "banerjee2024_variability": 3,
  "bouthillier2021_compare": 2,
  "bring_your_own": 0,
  "jiang2022_disagreement": 2,
  "jordan2024_histograms": 3,
  "quickstart": 1,
}
KEPT = ["jax==0.7.2", "jaxlib==0.7.2", "libtpu==0.0.17", "flax==0.11.2", "numpy==2.1.3"]


def read(path: Path = NOTEBOOK) -> nbformat.NotebookNode:
  notebook = nbformat.read(path, as_version=4)
  nbformat.validate(notebook)
  return notebook


def code_cells(path: Path) -> list[str]:
  return [cell.source for cell in read(path).cells if cell.cell_type == "code"]


def execute(results: Path, path: Path = NOTEBOOK) -> str:
  """Everything that a notebook shows, as text."""
  notebook = read(path)
  settings = {
    "VMAPSEEDS_RESULTS": str(results),
    "VMAPSEEDS_RUNS": str(RUNS),
    "JAX_PLATFORMS": "cpu",
  }
  # The kernel's own backend draws into the notebook.
  env = {k: v for k, v in os.environ.items() if k != "MPLBACKEND"} | settings
  here = {"metadata": {"path": str(results.parent)}}
  nbclient.NotebookClient(notebook, timeout=600, resources=here).execute(env=env)
  if EXECUTED:
    Path(EXECUTED).mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, Path(EXECUTED, path.name))
  return shown_by(notebook, path.stem)


def shown_by(notebook: nbformat.NotebookNode, name: str) -> str:
  last = [cell for cell in notebook.cells if cell.cell_type == "code"][-1]
  answer = "".join(output.text for output in last.outputs)
  # A sentence, made of numbers of these runs
  assert re.search(r"\d .* \d", answer, re.DOTALL)
  assert answer.rstrip().endswith(".")
  outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
  shown = sum("image/png" in output.get("data", {}) for output in outputs)
  assert shown == PICTURES[name]
  return "\n".join(
    o.get("text", "") + o.get("data", {}).get("text/plain", "") for o in outputs
  )


@pytest.fixture(scope="module")
def executed(tmp_path_factory) -> tuple[Path, str]:
  results = tmp_path_factory.mktemp("notebook") / "results"
  return results, execute(results)


@pytest.mark.slow
def test_the_quickstart_trains_and_shows(executed):
  results, shown = executed
  assert f"{RUNS} runs of each duration are in" in shown
  assert f"{RUNS} runs on cpu, in " in shown
  assert "There is no TPU or GPU here" in shown
  assert not [line for line in shown.splitlines() if "Warning:" in line]
  for epochs in (1, 16):
    dataset = vs.open_results(results / "quickstart" / f"{epochs}_epochs")
    assert dataset.sizes["run"] == RUNS
    errors = vs.error_matrix(dataset)
    (line,) = (
      row for row in shown.splitlines() if row.split()[:2] == [str(epochs), f"{RUNS}.0"]
    )
    assert f"{1e4 * stats.test_set_variance(errors):.4f}".rstrip("0") in line
    assert np.isfinite([float(value) for value in line.split()]).all()


@pytest.mark.slow
def test_executed_again_it_trains_nothing(executed, monkeypatch, capsys):
  """Its cells as a program, in this process, on the results of the kernel's."""
  results, shown = executed
  written = {p: p.stat().st_mtime_ns for p in results.rglob("c/**/*") if p.is_file()}
  assert written
  monkeypatch.setenv("VMAPSEEDS_RESULTS", str(results))
  monkeypatch.setenv("VMAPSEEDS_RUNS", str(RUNS))
  monkeypatch.chdir(results.parent)
  monkeypatch.setattr("matplotlib.pyplot.show", lambda: None)
  names = {}
  for cell in code_cells(NOTEBOOK):
    exec(TransformerManager().transform_cell(cell), names)
  # As a kernel shows it, which has no terminal
  with pd.option_context("display.max_columns", 20, "display.width", 80):
    print(names["decomposition"].round(4))
  assert written == {
    p: p.stat().st_mtime_ns for p in results.rglob("c/**/*") if p.is_file()
  }
  again = capsys.readouterr().out
  assert [row for row in shown.splitlines() if f"{RUNS}.0" in row] == [
    row for row in again.splitlines() if f"{RUNS}.0" in row
  ]


@pytest.mark.slow
@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.stem)
def test_a_tutorial_runs(path, tmp_path):
  shown = execute(tmp_path / "results", path)
  assert not [line for line in shown.splitlines() if "Warning:" in line]
  assert f"{RUNS} runs on cpu" in shown
  (home,) = (tmp_path / "results").iterdir()
  folders = [vs.open_results(f) for f in home.iterdir() if f.name[:6] != "search"]
  assert folders
  assert {results.sizes["run"] for results in folders} == {RUNS}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_only_small_pictures_are_stored(path):
  assert path.stat().st_size < 200_000
  cells = [cell for cell in read(path).cells if cell.cell_type == "code"]
  assert 8 <= len(read(path).cells) <= 20
  for cell in cells:
    assert cell.execution_count is None
    assert all({*output.data} == {"image/png"} for output in cell.outputs)
  assert sum(len(cell.outputs) for cell in cells) == PICTURES[path.stem]


@pytest.fixture
def machine(tmp_path, monkeypatch):
  """A machine without vmapseeds, whose pip lists packages and notes what it is given.
  Returns a function that runs the first cell there.
  """
  packages = [*KEPT, "pandas==2.2.2", "vmapseeds==9"]
  (tmp_path / "listed").write_text("\n".join(packages))
  (tmp_path / "bin").mkdir()
  pip = tmp_path / "bin" / "pip"
  pip.write_text(
    '#!/bin/sh\nif [ "$1" = list ]; then cat listed; else echo "$@" > given; fi\n'
  )
  pip.chmod(0o755)
  monkeypatch.setenv("PATH", f"{pip.parent}:{os.environ['PATH']}")
  monkeypatch.chdir(tmp_path)
  find_spec = importlib.util.find_spec
  monkeypatch.setattr(
    "importlib.util.find_spec",
    lambda name, *rest: None if name == "vmapseeds" else find_spec(name, *rest),
  )

  def run_first_cell(address=""):
    cell = TransformerManager().transform_cell(notebooks.install_cell(address))
    names = {}

    def system(line):
      # As IPython puts variables into a line.
      command = line.format(**names)
      subprocess.run(["bash", "-c", command], check=True)

    names["get_ipython"] = lambda: types.SimpleNamespace(system=system)
    exec(cell, names)
    return Path("given").read_text()

  return run_first_cell


def test_the_first_cell_installs_the_newest_wheel_and_keeps_jax(machine):
  for version, seconds in (("0.2.0", 2000), ("0.1.0", 1000)):
    wheel = Path("drive/MyDrive/vmapseeds", f"vmapseeds-{version}-py3-none-any.whl")
    wheel.parent.mkdir(parents=True, exist_ok=True)
    wheel.touch()
    os.utime(wheel, (seconds, seconds))
  wheel = "drive/MyDrive/vmapseeds/vmapseeds-0.2.0-py3-none-any.whl"
  assert machine() == f"install -q -c kept.txt {wheel}\n"
  assert Path("kept.txt").read_text().split() == KEPT


def test_the_first_cell_takes_the_public_repository_first(machine):
  Path("vmapseeds-0.2.0-py3-none-any.whl").touch()
  installed = machine("https://github.com/owner/vmapseeds")
  source = "vmapseeds @ git+https://github.com/owner/vmapseeds"
  assert installed == f"install -q -c kept.txt {source}\n"


def test_the_first_cell_has_ten_lines():
  lines = notebooks.install_cell("").splitlines()
  assert len([line for line in lines if line.strip()]) <= 10


def test_on_colab_the_drive_is_mounted(monkeypatch):
  mounted = []
  drive = types.ModuleType("google.colab.drive")
  drive.mount = mounted.append
  colab = types.ModuleType("google.colab")
  colab.drive = drive
  for name, module in (("google.colab", colab), ("google.colab.drive", drive)):
    monkeypatch.setitem(sys.modules, name, module)
  cell = TransformerManager().transform_cell(notebooks.install_cell(""))
  forgetful = cell.replace("KEEP_ON_DRIVE = True", "KEEP_ON_DRIVE = False")
  exec(forgetful, {})
  assert mounted == []
  exec(cell, {})
  assert mounted == ["/content/drive"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_all_begin_alike(path):
  """`python -m experiments.notebooks` would change nothing."""
  notebook = read(path)
  written = nbformat.writes(notebook)
  shared = notebooks.with_shared_parts(notebook, path.name, notebooks.repository())
  assert nbformat.writes(shared) == written


def test_a_badge_leads_to_colab():
  notebook = read()
  address = "https://github.com/owner/name"
  title = notebooks.with_shared_parts(notebook, "quickstart.ipynb", address).cells[0]
  link = (
    "https://colab.research.google.com/github/owner/name/blob/main/notebooks/"
    "quickstart.ipynb"
  )
  assert title.source.splitlines()[0].endswith(f"({link})")
  assert "\n\n# vmapseeds" in title.source
  # Once more, it is the same; without an address it is gone.
  again = notebooks.with_shared_parts(notebook, "quickstart.ipynb", address).cells[0]
  assert again.source.count(link) == 1
  bare = notebooks.with_shared_parts(notebook, "quickstart.ipynb", "").cells[0]
  assert bare.source.startswith("# vmapseeds")


def test_the_quickstart_has_five_cells():
  assert len(code_cells(NOTEBOOK)) == 5


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_pictures_have_words(path):
  """The site shows them in place of a picture's file name."""
  for cell in read(path).cells:
    if cell.get("outputs"):
      words = cell.metadata["mystnb"]["image"]["alt"]
      assert len(words.split()) >= 10


def test_the_notebooks_are_these():
  assert {path.stem for path in NOTEBOOKS} == {*PICTURES}
