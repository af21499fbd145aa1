"""Cases of tests, shared between README's test command and the longer one, and the words
of commands.
"""

import shlex

import pytest


def words_of(command):
  """Return the words of a command, as a shell would give them."""
  return shlex.split(command)


def mostly_slow(cases, fast=1):
  """Return the cases for `parametrize`: README's test command runs the first ones, and
  `-m slow` all others.

  A tuple is a case of several values; a value that is a tuple is a `pytest.param`.
  """
  cases = list(cases)
  return cases[:fast] + [with_mark(case, pytest.mark.slow) for case in cases[fast:]]


def one_in(count, cases):
  """Return the cases for `parametrize`: README's test command runs one in so many, and
  `-m slow` all others.
  """
  cases = list(cases)
  for place, case in enumerate(cases):
    if place % count:
      cases[place] = with_mark(case, pytest.mark.slow)
  return cases


def mostly_seldom(cases, slow=1):
  """Return the cases for `parametrize`: `-m slow` runs the first ones, and `-m seldom`
  all others.
  """
  cases = list(cases)
  first = [with_mark(case, pytest.mark.slow) for case in cases[:slow]]
  return first + [with_mark(case, pytest.mark.seldom) for case in cases[slow:]]


def with_mark(case, mark):
  """Return a case with one more mark."""
  if isinstance(case, type(pytest.param())):
    return pytest.param(*case.values, marks=(*case.marks, mark), id=case.id)
  values = case if isinstance(case, tuple) else (case,)
  return pytest.param(*values, marks=mark)
