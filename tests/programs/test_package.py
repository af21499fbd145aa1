"""What is built and uploaded: installed in an environment that has what it declares and
nothing else, away from the repository, it does what it does here.
"""

import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import vmapseeds as vs

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# `.ci/run` installs the others.
EXTRAS = {*PYPROJECT["project"]["optional-dependencies"]} - {
  *("test", "tpu", "docs", "ray", "dask", "browser", "dev")
}
TYPED = """
import numpy as np

import vmapseeds as vs

recipe = vs.recipe("digits_cnn", epochs=4)
runs = vs.Runs.sweep(lr=[0.01, 0.02], seeds=4)
taken = vs.estimate(recipe, runs)
results = vs.train(recipe, runs, "results/a", progress=False)
errors = vs.error_matrix(results)
variance: float = float(vs.stats.distribution_variance(errors))
low, high = vs.stats.distribution_variance(errors).interval
better = vs.stats.compare_means(1 - errors.mean(1), np.zeros(len(errors)))
print(better.difference, taken.runs + 1, results.sizes["run"])
"""
WRONG = {
  'vs.train("digits_cnn", runs="many")': "arg-type",
  "vs.no_such_name": "attr-defined",
  "vs.stats.no_such_statistic": "attr-defined",
  'vs.estimate("digits_cnn").minutes': "attr-defined",
}


def test_the_version_is_one():
  text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
  assert f"version: {vs.__version__}\n" in text
  assert f"## {vs.__version__} - " in (ROOT / "CHANGELOG.md").read_text("utf-8")
  assert f"{{{vs.__version__}}}" in (ROOT / "docs" / "citing.md").read_text("utf-8")


def call(*argv, cwd, env=None, status=0):
  """Return what a command prints."""
  environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | (env or {})
  ended = subprocess.run(argv, cwd=cwd, env=environment, capture_output=True, text=True)
  assert ended.returncode == status, f"{argv}: {ended.stdout}{ended.stderr}"
  return ended.stdout


def needed(requirements, done=None):
  """Return the names of the distributions that requirements lead to, as pip installs
  them here.
  """
  done = {} if done is None else done
  for text in requirements:
    requirement = Requirement(text)
    marker, extras = requirement.marker, frozenset({"", *requirement.extras})
    if marker is not None and not marker.evaluate():
      continue
    if extras <= done.setdefault(requirement.name, set()):
      continue
    done[requirement.name] |= extras
    further = []
    for line in metadata.requires(requirement.name) or ():
      if any(applies(line, extra) for extra in extras):
        further.append(line.partition(";")[0])
    needed(further, done)
  return set(done)


def applies(line, extra):
  marker = Requirement(line).marker
  return marker is None or marker.evaluate({"extra": extra})


def link_distribution(name, folder):
  """Put the modules and the metadata of an installed distribution into a folder."""
  for file in metadata.files(name):
    top = file.parts[0]
    link = folder / top
    if top not in ("..", "__pycache__") and not link.exists():
      link.symlink_to(Path(file.locate()).parents[len(file.parts) - 1] / top)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
  """A folder with an environment in which the wheel is installed. It has the packages
  that the wheel declares, by links to those of this environment.
  """
  here = tmp_path_factory.mktemp("package")
  # The wheel is built from the source distribution, so both are complete.
  call(sys.executable, "-m", "build", "--outdir", here / "dist", ROOT, cwd=here)
  (wheel,) = (here / "dist").glob("*.whl")
  (_,) = (here / "dist").glob("*.tar.gz")
  call(sys.executable, "-m", "venv", here / "venv", cwd=here)
  (packages,) = (here / "venv" / "lib").glob("python*/site-packages")
  for name in needed(PYPROJECT["project"]["dependencies"]):
    link_distribution(name, packages)
  pip = here / "venv" / "bin" / "python", "-m", "pip"
  install = "install", "--quiet", "--no-compile", "--no-deps", "--no-index", wheel
  call(*pip, *install, cwd=here)
  return here


@pytest.mark.slow
def test_a_wheel_does_what_the_repository_does(installed):
  here, scripts = installed, installed / "venv" / "bin"
  python = scripts / "python"
  program = "import vmapseeds; print(vmapseeds.__file__)"
  assert call(python, "-c", program, cwd=here).startswith(f"{here}/venv/lib")
  # What the repository alone needs is not there.
  for name in ("pytest", "experiments"):
    call(python, "-c", f"import {name}", cwd=here, status=1)
  said = call(scripts / "vmapseeds", "demo", "--runs", "8", "--out", "demo", cwd=here)
  assert "16_epochs" in said
  assert (here / "demo" / "report" / "16_epochs" / "report.html").stat().st_size > 1e5
  folders = "demo/1_epochs", "demo/16_epochs"
  said = call(scripts / "vmapseeds", "compare", *folders, cwd=here)
  assert "B is better than A by" in " ".join(said.split())
  assert call(scripts / "vmapseeds", "verify", folders[0], cwd=here).startswith("sound")


@pytest.mark.seldom
def test_every_extra_can_be_installed(installed):
  """Even all of them together."""
  (wheel,) = (installed / "dist").glob("*.whl")
  pip = installed / "venv" / "bin" / "python", "-m", "pip"
  extras = ",".join(sorted(EXTRAS))
  call(*pip, "install", "--quiet", "--dry-run", f"{wheel}[{extras}]", cwd=installed)


@pytest.mark.slow
def test_types_are_checked_in_a_program_of_a_users(installed):
  pytest.importorskip("mypy", reason="mypy is not installed")
  here = installed
  (here / "typed.py").write_text(TYPED)
  wrong = "import vmapseeds as vs\n" + "\n".join(WRONG) + "\n"
  (here / "wrong.py").write_text(wrong)
  # There, as in the checkout mypy would find our own sources.
  flags = "--strict", "--python-executable", "venv/bin/python"
  command = [sys.executable, "-m", "mypy", *flags, "typed.py", "wrong.py"]
  ended = subprocess.run(command, cwd=here, text=True, capture_output=True)
  assert (ended.returncode, ended.stderr) == (1, ""), ended.stdout
  errors = ended.stdout.splitlines()[:-1]
  assert not [line for line in errors if not line.startswith("wrong.py:")]
  found = {int(line.split(":")[1]): line for line in errors}
  for number, code in enumerate(WRONG.values(), start=2):
    assert f"[{code}]" in found[number]
