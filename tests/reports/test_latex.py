"""Rows of tables for LaTeX."""

from vmapseeds.reports import latex
from vmapseeds.reports.documents import Cell, Table


def test_rows_have_a_comment_with_their_columns():
  table = Table(
    "", ("recipe_1", "accuracy"), [("a & b", Cell("96.3 ± 0.1 %", "small"))]
  )
  assert latex.rows(table) == (
    "% recipe\\_1 & accuracy\n" r"a \& b & 96.3 $\pm$ 0.1 \% \\"
  )


def test_nothing_is_escaped_twice():
  assert latex.escape("\\{}~^<>") == (
    r"\textbackslash{}\{\}\textasciitilde{}\textasciicircum{}$<$$>$"
  )
  assert latex.escape("3 %² – 4 %") == r"3 \%$^2$ -- 4 \%"
