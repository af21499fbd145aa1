"""Cases of tests, shared between README's test command and the longer one."""

import pytest


def mostly_slow(cases, fast=1):
  """Return the cases for `parametrize`: README's test command runs the first ones, and
  `-m slow` all others.

  A tuple is a case of several values; a value that is a tuple is a `pytest.param`.
  """
  cases = list(cases)
  return cases[:fast] + [with_mark(case) for case in cases[fast:]]


def with_mark(case):
  """Return a case that is slow."""
  if isinstance(case, type(pytest.param())):
    marks = (*case.marks, pytest.mark.slow)
    return pytest.param(*case.values, marks=marks, id=case.id)
  values = case if isinstance(case, tuple) else (case,)
  return pytest.param(*values, marks=pytest.mark.slow)
