"""docs/statistics.md: its examples run and say what stands there, and no statistic is missing."""

import doctest
import re
from pathlib import Path

from vmapseeds import stats

PAGE = Path(__file__).parents[1] / "docs" / "statistics.md"


def test_the_examples_of_the_statistics_page_run():
  # A fence would be taken for output.
  text = re.sub(r"^```.*$", "", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
  page = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
  assert len(page.examples) > 100
  differences = []
  doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE).run(page, out=differences.append)
  assert not differences, "".join(differences)


def test_every_public_statistic_is_on_the_page():
  named = set(re.findall(r"\w+", PAGE.read_text(encoding="utf-8")))
  assert not set(stats.__all__) - named
