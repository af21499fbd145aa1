"""What tests of the papers' figures share: where a row's interval lies."""

import math

from experiments.frame import Row


def place(row: Row, low: float = -math.inf, high: float = math.inf) -> str:
  """Return whether a row's interval lies within bounds, outside or across one."""
  _, least, most, _ = row.estimate
  if low <= least and most <= high:
    return "within"
  if most < low or least > high:
    return "outside"
  return "across"
