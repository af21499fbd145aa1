"""A plugin of pytest for `mutations`: writes down which tests fail, and lets a test that
does not end fail.
"""

import os
import signal

import pytest

SECONDS = 300


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
  def stop(number, frame):
    raise TimeoutError(f"{item.nodeid} did not end in {SECONDS} s")

  before = signal.signal(signal.SIGALRM, stop)
  signal.alarm(SECONDS)
  try:
    return (yield)
  finally:
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pytest_runtest_logreport(report):
  if report.failed:
    with open(os.environ["FAILURES"], "a", encoding="utf-8") as file:
      file.write(report.nodeid + "\n")
