"""Run `vmapseeds demo`, draw what a terminal shows as docs/images/demo.svg, and take a
picture of the report's page, docs/images/report.png:

    python docs/record_demo.py        # with '.[browser]', where a Chromium is

Left out are lines of progress, whose times are this machine's, and the two tables that
the last one sets side by side.
"""

import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
WIDTH = 92


def run_demo(folder: Path) -> tuple[list[str], list[str]]:
  """Run the demo in an empty folder and return its lines on stderr and on stdout."""
  done = subprocess.run(
    [sys.executable, "-m", "vmapseeds", "demo"],
    cwd=folder,
    env=os.environ | {"COLUMNS": str(WIDTH), "PYTHONPATH": str(ROOT)},
    capture_output=True,
    text=True,
    check=True,
  )
  streams = (done.stderr, done.stdout)
  said, printed = (text.replace(f"{folder}/", "").splitlines() for text in streams)
  return said, printed


def draw(said: list[str], printed: list[str]) -> str:
  """Return a terminal with the lines of a demo, as SVG."""
  console = Console(record=True, width=WIDTH, file=io.StringIO())
  console.print(Text("$ ", "green") + Text("vmapseeds demo", "bold"))
  for line in said:
    if line.startswith("digits_cnn"):
      console.print(Text(line, "dim"))
  (table,) = (i for i, line in enumerate(printed) if "side by side" in line)
  for line in printed[table:]:
    console.print(Text(line))
  return console.export_svg(title="two studies and their report")


def take_picture(page: Path) -> None:
  """Take a picture of the top of a page, down to its first figure."""
  with sync_playwright() as playwright:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
    shown = browser.new_page(viewport={"width": 1000, "height": 855})
    shown.goto(page.as_uri())
    shown.screenshot(path=IMAGES / "report.png")
    browser.close()


def main() -> None:
  with tempfile.TemporaryDirectory() as name:
    folder = Path(name).resolve()
    svg = draw(*run_demo(folder))
    take_picture(folder / "results/demo/report/16_epochs/report.html")
  (IMAGES / "demo.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
  main()
