"""Documentation: examples run and say what stands there, no statistic and no parameter
is missing.
"""

import ast
import doctest
import importlib
import inspect
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cases import mostly_slow

import vmapseeds as vs
from experiments import measures
from vmapseeds import stats

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
STATISTICS = DOCS / "statistics"
OF_PAPERS = sorted((ROOT / "experiments").glob("*/*.md"))
PAGES = [
  page
  for page in (*sorted(DOCS.rglob("*.md")), *OF_PAPERS)
  if "\n>>> " in page.read_text(encoding="utf-8") and page != STATISTICS / "index.md"
]
SOURCES = {
  str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
  for package in ("vmapseeds", "experiments")
  for path in sorted((ROOT / package).rglob("*.py"))
}
EXAMPLE = re.compile(r"^ *>>> (?!.*\+SKIP)", re.MULTILINE)


def text_of(page: Path) -> str:
  """Return a page without its fences, which would be taken for output."""
  return re.sub(r"^```.*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)


@pytest.mark.parametrize(
  "page", mostly_slow(PAGES, fast=6), ids=lambda page: f"{page.parent.name}/{page.stem}"
)
@pytest.mark.optimized
def test_the_examples_of_the_pages_run(page):
  text = text_of(page)
  if page.parent == STATISTICS or page in OF_PAPERS:  # with the arrays of the index
    text = text_of(STATISTICS / "index.md") + text
  name = str(page.relative_to(ROOT))
  examples = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
  differences = []
  doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE).run(
    examples, out=differences.append
  )
  assert not differences, "".join(differences)


def test_no_example_was_lost():
  examples = sum(text_of(page).count("\n>>> ") for page in PAGES)
  assert examples >= 200
  assert len(PAGES) >= 16


def test_every_public_statistic_is_on_the_page():
  pages = "".join(text_of(page) for page in (*STATISTICS.glob("*.md"), *OF_PAPERS))
  named = set(re.findall(r"\w+", pages))
  public = {
    name
    for package in (stats, measures)
    for name, x in vars(package).items()
    if not (name.startswith("_") or inspect.ismodule(x))
  }
  assert not public - named


def slug(heading: str) -> str:
  """Return the anchor of a heading, as GitHub and the site make it."""
  text = re.sub(r"[`*]|\[(.*?)\]\(.*?\)", r"\1", heading).strip().lower()
  return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


WRITTEN = sorted(
  {*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "experiments").rglob("*.md")}
)


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
  prose = re.sub(r"(?ms)^```.*?^```$|`[^`\n]*`", "", page.read_text(encoding="utf-8"))
  for link in re.findall(r"\]\(([^)\s]+)\)", prose):
    path, _, anchor = link.partition("#")
    if path.startswith(("https:", "http:")):
      continue
    target = page.parent / path if path else page
    assert target.exists(), link
    if anchor:
      headings = re.findall(r"(?m)^#+ (.*)$", target.read_text(encoding="utf-8"))
      assert anchor in map(slug, headings), link


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_is_as_wide_as_its_column(page):
  # What is between two fences and begins with a brace is no code but a directive.
  blocks = re.findall(r"(?ms)^```(.*?)^```", page.read_text(encoding="utf-8"))
  wide = []
  for block in blocks:
    if not block.startswith("{"):
      wide += [line for line in block.splitlines() if len(line) > 97]
  assert wide == []


def test_every_public_name_is_in_the_reference():
  pages = [page.read_text(encoding="utf-8") for page in DOCS.glob("reference/*.md")]
  named = re.findall(r":: vmapseeds\.(\w+)$", "\n".join(pages), re.MULTILINE)
  named.remove("stats")
  assert sorted(named) == sorted({*vs.__all__} - {"stats"})


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


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
  ("statuses", "times"), [("0", 1), ("1 137 0", 3), ("2 0", 1), ("137 2 0", 2)]
)
def test_the_loop_of_a_machine_that_is_taken_away_ends(statuses, times, tmp_path):
  """It trains again after an interruption, and does not repeat a mistake for ever."""
  (loop,) = re.findall(
    r"(?m)^until .*\ndo sleep 5; done$", text_of(DOCS / "howto/machines.md")
  )
  script = f"""
    statuses=({statuses})
    sleep() {{ :; }}
    vmapseeds() {{ echo "$@" >> trained; local s=${{statuses[0]}}; statuses=("${{statuses[@]:1}}"); return $s; }}
    {loop}"""
  subprocess.run(["bash", "-c", script], cwd=tmp_path, check=True, timeout=20)
  assert len((tmp_path / "trained").read_text().splitlines()) == times


def test_questions_are_answered_within_two_clicks():
  """The page is linked from the README and the how-to guides; each answer has a line, or a
  page of which the heading is there.
  """
  page = DOCS / "howto" / "questions.md"
  flags = SOURCES["vmapseeds/commands.py"] + SOURCES["vmapseeds/campaign/options.py"]
  for index in (ROOT / "README.md", DOCS / "howto" / "index.md"):
    assert "questions.md" in text_of(index)
  rows = [line for line in text_of(page).splitlines() if line.startswith("| ")][1:]
  rows = [line.strip("| ").split(" | ") for line in rows if not line.startswith("| **")]
  assert len(rows) >= 39
  for row in rows:
    links = re.findall(r"\]\(([^)#]+)(?:#([\w-]+))?\)", row[-1])
    assert links, row
    for target, anchor in links:
      path = (page.parent / target).resolve()
      assert path.exists(), (row, target)
      headings = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
      slugs = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
      assert not anchor or anchor in slugs, (row, anchor)
    for flag in re.findall(r"`[^`]*?--([a-z-]+)", row[1]):
      assert flag.replace("-", "_") in flags, flag
