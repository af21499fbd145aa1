"""What tests of the papers' figures share: the verdict on a row alone."""

from experiments import claims
from experiments.frame import Row


def word(row: Row) -> str | None:
  """Return a row's verdict, alone on its page; None if it has no claim."""
  return claims.judge([(row.claim, row.estimate)])[0].word if row.claim else None
