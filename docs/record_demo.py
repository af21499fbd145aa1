"""Draw what `vmapseeds demo` shows in a terminal, as docs/images/demo.svg:

    python docs/record_demo.py

Left out are lines of progress and the two tables that the last one sets side by side.
"""

import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 92
SHOWN = ("digits_cnn", "training", "256/256")  # how lines of the training begin


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
    if line.startswith(SHOWN):
      console.print(Text(line, "dim"))
  (table,) = (i for i, line in enumerate(printed) if "side by side" in line)
  for line in printed[table:]:
    console.print(Text(line))
  return console.export_svg(title="two studies and their report")


def main() -> None:
  with tempfile.TemporaryDirectory() as folder:
    svg = draw(*run_demo(Path(folder).resolve()))
  (ROOT / "docs" / "images" / "demo.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
  main()
