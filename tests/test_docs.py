"""Documentation: examples run and say what stands there, no statistic and no parameter
is missing.
"""

import ast
import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

from experiments import measures
from vmapseeds import stats

ROOT = Path(__file__).parents[1]
PAGES = {"statistics.md": 100, "own.md": 6}  # with at least so many examples
PAGE = ROOT / "docs" / "statistics.md"
SOURCES = {
  str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
  for package in ("vmapseeds", "experiments")
  for path in sorted((ROOT / package).rglob("*.py"))
}
EXAMPLE = re.compile(r"^ *>>> (?!.*\+SKIP)", re.MULTILINE)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.optimized
def test_the_examples_of_the_pages_run(name):
  # A fence would be taken for output.
  text = re.sub(
    r"^```.*$",
    "",
    (ROOT / "docs" / name).read_text(encoding="utf-8"),
    flags=re.MULTILINE,
  )
  page = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
  assert len(page.examples) >= PAGES[name]
  differences = []
  doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE).run(
    page, out=differences.append
  )
  assert not differences, "".join(differences)


def test_every_public_statistic_is_on_the_page():
  named = set(re.findall(r"\w+", PAGE.read_text(encoding="utf-8")))
  public = {
    name
    for package in (stats, measures)
    for name, x in vars(package).items()
    if not (name.startswith("_") or inspect.ismodule(x))
  }
  assert public - named == {"beta_of_counts"}


# Those of the statistics: tests/stats/test_contract.py and test_tallies.py.
@pytest.mark.parametrize(
  "source",
  [
    s
    for s in SOURCES
    if EXAMPLE.search(SOURCES[s]) and not {"stats", "measures"} & {*Path(s).parts}
  ],
)
@pytest.mark.optimized
def test_examples_in_docstrings_run(source):
  module = importlib.import_module(source.removesuffix(".py").replace("/", "."))
  assert doctest.testmod(module) == (0, len(EXAMPLE.findall(SOURCES[source])))


def documented(docstring: str) -> list[str]:
  """The parameters that a docstring's section Args names."""
  (section,) = re.findall(r"^Args:\n((?:  .*\n|\n)+)", docstring + "\n", re.MULTILINE)
  names = re.findall(r"^  (\*{0,2}\w+(?:, \*{0,2}\w+)*):\s", section, re.MULTILINE)
  return [name.strip("*") for line in names for name in line.split(", ")]


def test_sections_of_parameters_name_them_all():
  sections = 0
  for source, text in SOURCES.items():
    for function in ast.walk(ast.parse(text)):
      docstring = isinstance(function, ast.FunctionDef) and ast.get_docstring(function)
      if docstring and "Args:" in docstring:
        given = function.args
        star, stars = ([a] if a else [] for a in (given.vararg, given.kwarg))
        parameters = [
          a.arg
          for a in (*given.posonlyargs, *given.args, *star, *given.kwonlyargs, *stars)
        ]
        expected = [p for p in parameters if p not in ("self", "cls")]
        assert documented(docstring) == expected, f"{source}: {function.name}"
        sections += 1
  assert sections > 100
