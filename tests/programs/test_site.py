"""Some pages of the documentation in a real browser, light and dark, wide and on a phone:
what axe finds, and what is wider than its column; and what the search finds first.

The site is made before: `python -m sphinx -W --keep-going -q -j auto docs build/site`.
axe comes as `tests/accessibility.py` says.
"""

from pathlib import Path

import pytest
from accessibility import findings, needs_axe
from cases import words_of

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"
pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(
    not (SITE / "index.html").exists(), reason="the site is not made: see CONTRIBUTING"
  ),
]
PAGES = words_of(
  "index start installation howto/first_study howto/own_model "
  "howto/improvement howto/tabular tutorials/quickstart reference/training "
  "statistics/variance statistics/comparison gallery/index"
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


@needs_axe
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


# What readers typed, and the page that they looked for.
FOUND_FIRST = {
  "how many runs": "howto/number_of_runs",
  "number of runs": "howto/number_of_runs",
  "How many seeds": "howto/number_of_runs",
  "confidence interval": "statistics/intervals",
  "noise": "howto/noise_share",
  "PyTorch": "howto/noise_share",
  "scikit-learn": "howto/noise_share",
  "latex": "howto/scores",
  "table of scores": "howto/scores",
  "is B better": "howto/improvement",
  "own model": "howto/own_model",
  "auc": "howto/tabular",
  "cross-validation": "howto/tabular",
  "early stopping": "howto/searches",
  "hyperparameter": "howto/searches",
  "slurm": "howto/machines",
  "s3": "howto/machines",
  "colab": "installation",
  "gpu": "howto/accelerators",
  "resume": "howto/resuming",
  "checkpoint": "howto/resuming",
  "lane": "glossary",
  "ensemble": "statistics/disagreement",
  "augmentation": "reference/recipes",
  "real sd": "glossary",
  "p-value": "statistics/comparison",
  "calibration": "statistics/calibration",
  "distribution_variance": "reference/stats_variance",
  "noise_share": "reference/stats_variance",
  "Recorder": "reference/recording",
}


@pytest.fixture(scope="module")
def search(browser):
  """Returns the pages that the search of the site finds, the best first."""
  page = browser.new_page()
  page.goto((SITE / "search.html").as_uri())
  page.wait_for_function("Search.hasIndex()")
  ranked = "query => Search._performSearch(...Search._parseQuery(query)).map(r => r[0])"
  yield lambda query: page.evaluate(ranked, query)[::-1]
  page.close()


@pytest.mark.parametrize("query", FOUND_FIRST)
def test_the_search_finds_the_page_first(search, query):
  assert search(query)[0] == FOUND_FIRST[query]
