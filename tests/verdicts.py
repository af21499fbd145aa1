"""What tests of the papers' figures share: the result of a row alone."""

import math

from experiments import claims
from experiments.frame import Row


def word(row: Row, low: float = -math.inf, high: float = math.inf) -> str:
  """Return a row's result, alone on its page; from bounds, of a statement that no page
  judges.
  """
  claim = row.claim
  if (low, high) != (-math.inf, math.inf):
    claim = claims.near(row.quantity, ("", ""), low, high)
  assert (claim.low, claim.high) != (-math.inf, math.inf), row.quantity
  return claims.outcome_of(claim, row.estimate)
