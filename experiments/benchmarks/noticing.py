"""A plugin of pytest for `mutations`: writes down which tests fail."""

import os


def pytest_runtest_logreport(report):
  if report.failed:
    with open(os.environ["FAILURES"], "a", encoding="utf-8") as file:
      file.write(report.nodeid + "\n")
