"""The notebooks, executed once on the CPU with few runs, and their install cells,
without installing.

`VMAPSEEDS_EXECUTED` names a folder in which they are kept as they were executed, for the
site, which then executes none.
"""

import importlib.util
import os
import re
import subprocess
from pathlib import Path

import nbclient
import nbformat
import numpy as np
import pandas as pd
import pytest

import vmapseeds as vs
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
  "quickstart": 2,
}


def read(path: Path = NOTEBOOK) -> nbformat.NotebookNode:
  notebook = nbformat.read(path, as_version=4)
  nbformat.validate(notebook)
  return notebook


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
def test_it_trains_and_shows(executed):
  results, shown = executed
  assert f"{RUNS} runs of each duration" in shown
  assert "device(s): cpu" in shown
  assert "WARNING: this is a CPU" in shown
  assert not [line for line in shown.splitlines() if "Warning:" in line]
  for epochs in (1, 16):
    dataset = vs.open_results(results / f"digits_cnn_{epochs}_epochs")
    assert dataset.sizes["run"] == RUNS
    errors = vs.error_matrix(dataset)
    (line,) = (
      row for row in shown.splitlines() if row.split()[:2] == [str(epochs), f"{RUNS}.0"]
    )
    assert f"{1e4 * stats.test_set_variance(errors):.4f}".rstrip("0") in line
    assert np.isfinite([float(value) for value in line.split()]).all()
  assert {p.name for p in results.iterdir()} == {
    "digits_cnn_1_epochs",
    "digits_cnn_16_epochs",
  }


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
  _, *cells = (cell.source for cell in read().cells if cell.cell_type == "code")
  names = {"importlib": importlib}  # of the first, which installs
  for cell in cells:
    exec(cell, names)
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
  (runs,) = {*re.findall(r"(\d+) runs on", shown)}
  assert not [line for line in shown.splitlines() if "Warning:" in line]
  assert runs == str(RUNS)
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


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_one_line_installs_and_keeps_jax(path, tmp_path):
  """The line is run by a shell with a pip that lists packages and says what it is given."""
  cell = next(cell for cell in read(path).cells if cell.cell_type == "code")
  (line,) = re.findall(r"^  !(.*)$", cell.source, re.MULTILINE)
  there = [
    "jax==0.7.2",
    "jaxlib==0.7.2",
    "libtpu==0.0.17",
    "flax==0.11.2",
    "numpy==2.1.3",
  ]
  (tmp_path / "listed").write_text("\n".join([*there, "pandas==2.2.2", "vmapseeds==9"]))
  (tmp_path / "bin").mkdir()
  pip = tmp_path / "bin" / "pip"
  pip.write_text(
    '#!/bin/sh\nif [ "$1" = list ]; then cat listed; else echo "$@" > given; fi\n'
  )
  pip.chmod(0o755)
  (tmp_path / "vmapseeds-0.2.0-py3-none-any.whl").touch()
  env = os.environ | {"PATH": f"{pip.parent}:{os.environ['PATH']}"}
  subprocess.run(["bash", "-c", line], cwd=tmp_path, env=env, check=True)
  given = (tmp_path / "given").read_text()
  assert given == "install -q -c kept.txt vmapseeds-0.2.0-py3-none-any.whl\n"
  assert (tmp_path / "kept.txt").read_text().split() == there


def test_the_notebooks_are_these():
  assert {path.stem for path in NOTEBOOKS} == {*PICTURES}
