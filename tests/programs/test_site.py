"""Ten pages of the documentation in a real browser, light and dark, wide and on a phone:
what axe finds, and what is wider than its column.

The site is made before: `python -m sphinx -W --keep-going -q -j auto docs build/site`.
axe comes as `tests/accessibility.py` says.
"""

from pathlib import Path

import pytest
from accessibility import findings, needs_axe

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"
pytestmark = [
  pytest.mark.slow,
  needs_axe,
  pytest.mark.skipif(
    not (SITE / "index.html").exists(), reason="the site is not made: see CONTRIBUTING"
  ),
]
PAGES = (
  "index",
  "start",
  "installation",
  "howto/first_study",
  "howto/own_model",
  "howto/improvement",
  "howto/tabular",
  "tutorials/quickstart",
  "reference/training",
  "statistics/variance",
)
# Code and tables scroll by themselves where they do not fit, which hides their ends.
CUT = """() => [...document.querySelectorAll(".bd-article pre, .bd-article table")]
  .filter((e) => e.scrollWidth > e.clientWidth + 1)
  .map((e) => e.textContent.trim().slice(0, 100))"""


@pytest.fixture
def opened(browser):
  """Opens a page of the site in a new context."""
  contexts = []

  def visit(name: str, width: int, scheme: str):
    viewport = {"width": width, "height": 1000}
    contexts.append(browser.new_context(viewport=viewport, color_scheme=scheme))
    page = contexts[-1].new_page()
    page.goto((SITE / f"{name}.html").as_uri())
    return page

  yield visit
  for context in contexts:
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious(opened, name, scheme):
  page = opened(name, 1400, scheme)
  assert page.evaluate("document.documentElement.dataset.theme") == scheme
  grave = [found for found in findings(page) if found.startswith(("serious", "crit"))]
  assert grave == []


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wider_than_its_column(opened, name):
  assert opened(name, 1400, "light").evaluate(CUT) == []
  phone = opened(name, 400, "light")
  assert phone.evaluate("document.documentElement.scrollWidth") == 400
