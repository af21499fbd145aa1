"""Importing the package, or any of its modules, changes nothing in the process."""

import subprocess
import sys

import pytest

BARE = """
import os
import sys

before = dict(os.environ), list(sys.argv), list(sys.path)
import vmapseeds

assert (dict(os.environ), sys.argv, sys.path) == before
assert "jax" not in sys.modules
"""

EVERY_MODULE = """
import importlib
import os
import pkgutil
import sys

# It sets variables itself.
import jax
from jax._src import xla_bridge

before = dict(os.environ), list(sys.argv), dict(jax.config.values)
import {package}

for _, name, _ in pkgutil.walk_packages({package}.__path__, "{package}."):
  if name.endswith("__main__"):
    continue
  try:
    importlib.import_module(name)
  except ModuleNotFoundError as error:
    # Of extras that may be absent.
    assert error.name in ("torch", "optuna"), error
  assert (dict(os.environ), sys.argv, dict(jax.config.values)) == before, name
  assert not xla_bridge.backends_are_initialized(), name
"""


def run(program):
  # In the repository, where `experiments` is.
  ended = subprocess.run(
    [sys.executable, "-c", program, "word"], capture_output=True, text=True
  )
  assert ended.returncode == 0, ended.stderr
  assert ended.stderr == ""


def test_importing_changes_nothing():
  run(BARE)


@pytest.mark.slow
@pytest.mark.parametrize("package", ["vmapseeds", "experiments"])
def test_importing_any_module_changes_nothing(package):
  run(EVERY_MODULE.format(package=package))
