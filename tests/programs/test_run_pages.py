"""The how-to pages run from top to bottom in one folder, as they stand."""

import re
import sys
from pathlib import Path

import pytest
import whole

import vmapseeds as vs

ROOT = Path(__file__).parents[2]
HOWTO = ROOT / "docs" / "howto"
# Pages that show what is printed are run as printed, others with few runs.
SHOWN = re.compile(r"(?m)^```console\n")


@pytest.fixture
def run_pages(monkeypatch):
  monkeypatch.syspath_prepend(ROOT / "docs")
  import run_pages

  return run_pages


# Which tests of their own run, and look at what comes out.
OTHERS = ("noise_share", "tabular")
BLOCK = re.compile(r"(?m)^(?<! -->\n)```(python|bash|console)\n")
PAGES = [
  page
  for page in sorted(HOWTO.glob("*.md"))
  if page.stem not in OTHERS and BLOCK.search(page.read_text("utf-8"))
]


@pytest.mark.slow
@pytest.mark.optimized
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_runs_from_top_to_bottom(page, run_pages, tmp_path, monkeypatch):
  text = page.read_text("utf-8")
  in_full = bool(SHOWN.search(text))
  commands, folder = tmp_path / "bin", tmp_path / "run"
  commands.mkdir()
  folder.mkdir()
  run_pages.write_command(commands, str(ROOT / "tests" / "few.py"))
  environment = {"PYTHONPATH": str(ROOT)}
  if in_full:
    environment["VMAPSEEDS_RUNS"] = "0"
  else:
    monkeypatch.setattr(vs, "train", whole.train_with_few_runs())
  monkeypatch.chdir(folder)
  monkeypatch.syspath_prepend(folder)
  known = set(sys.modules)
  printed = run_pages.run_page(text, page.parent, commands, environment)
  for name in set(sys.modules) - known:
    if (folder / f"{name}.py").exists():
      del sys.modules[name]
  if in_full:
    assert run_pages.without_numbers(printed) == run_pages.without_numbers(text)


def test_a_page_shows_what_its_blocks_print(run_pages, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  page = (
    "```python\n# two.py\ntwo = 2\n```\n\n```bash\necho a > kept\n```\n\n"
    "```console\n$ cat kept\n$ echo \\\n  b\nstale\n```\n\n"
    "<!-- not run: it ends with an error -->\n```bash\nfalse\n```\n\n"
    "```python\nprint(two)\n```\n\n```text\n3\n```\n"
  )
  due = page.replace("$ cat kept\n", "$ cat kept\na\n").replace("stale", "b")
  due = due.replace("text\n3", "text\n2")
  assert run_pages.run_page(page, tmp_path, tmp_path, {}) == due
  assert (tmp_path / "two.py").read_text() == "# two.py\ntwo = 2\n"


def test_a_page_fails_where_a_command_does(run_pages, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(run_pages.PageError, match="status 1 of\nfalse\n"):
    run_pages.run_page("```bash\nfalse\ntrue\n```\n", tmp_path, tmp_path, {})
