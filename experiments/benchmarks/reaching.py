"""A plugin of pytest for `mutations`: writes down which tests reach which line.

Only the package's own code is watched, by `sys.monitoring` of Python 3.12 and later, so
that the tests take hardly longer than without it. What runs in child processes is not
seen.
"""

import collections
import json
import os
import sys
import types

import pytest

TOOL = 1  # `sys.monitoring.COVERAGE_ID`
PACKAGE = f"{os.sep}vmapseeds{os.sep}"

# Lines by file: of the test that runs, and, with the numbers of their tests, of all.
current: dict[str, set[int]] = collections.defaultdict(set)
reached: dict[str, dict[int, list[int]]] = collections.defaultdict(
  lambda: collections.defaultdict(list)
)
tests: list[str] = []


def watch_lines(code: types.CodeType) -> None:
  """Watch the lines of the functions of a module, nested ones too."""
  for constant in code.co_consts:
    if isinstance(constant, types.CodeType):
      sys.monitoring.set_local_events(TOOL, constant, sys.monitoring.events.LINE)
      watch_lines(constant)


def start_code(code: types.CodeType, offset: int) -> object:
  """Watch a module of the package when it is imported; look at other code only once."""
  if code.co_name == "<module>" and PACKAGE in code.co_filename:
    watch_lines(code)
  return sys.monitoring.DISABLE


def add_line(code: types.CodeType, line: int) -> None:
  current[code.co_filename].add(line)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests():
  # Before the package is imported.
  events = sys.monitoring.events
  sys.monitoring.use_tool_id(TOOL, "which tests reach which line")
  sys.monitoring.register_callback(TOOL, events.PY_START, start_code)
  sys.monitoring.register_callback(TOOL, events.LINE, add_line)
  sys.monitoring.set_events(TOOL, events.PY_START)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
  current.clear()
  try:
    return (yield)
  finally:
    tests.append(item.nodeid)
    for file, lines in list(current.items()):
      for line in lines:
        reached[file][line].append(len(tests) - 1)


def pytest_sessionfinish(session):
  sys.monitoring.set_events(TOOL, sys.monitoring.events.NO_EVENTS)
  worker = os.environ.get("PYTEST_XDIST_WORKER", "")
  path = f"{os.environ['REACHED']}{worker}.json"
  with open(path, "w", encoding="utf-8") as file:
    json.dump({"tests": tests, "lines": reached}, file)
