"""Write rows of tables for LaTeX."""

from vmapseeds.reports.documents import Table, text_of_cell

# As they are written in text; a backslash first, since the others bring some.
CHARACTERS = {
  "\\": r"\textbackslash{}",
  "&": r"\&",
  "%": r"\%",
  "$": r"\$",
  "#": r"\#",
  "_": r"\_",
  "{": r"\{",
  "}": r"\}",
  "~": r"\textasciitilde{}",
  "^": r"\textasciicircum{}",
  "<": r"$<$",
  ">": r"$>$",
  "±": r"$\pm$",
  "²": r"$^2$",
  "–": "--",
  "…": r"\ldots{}",
  "×": r"$\times$",
  "∞": r"$\infty$",
  "\n": " ",
  "\N{NO-BREAK SPACE}": "~",
}


def escape(text: str) -> str:
  """Return a text as it is written in LaTeX."""
  # One letter after the other, so that nothing is escaped twice.
  return "".join(CHARACTERS.get(letter, letter) for letter in text)


def rows(table: Table) -> str:
  """Return the rows of a table, after a comment that names its columns."""
  headings = " & ".join(escape(heading) for heading in table.headings)
  lines = [f"% {headings}"]
  for row in table.rows:
    cells = " & ".join(escape(text_of_cell(cell)) for cell in row)
    lines.append(rf"{cells} \\")
  return "\n".join(lines)
