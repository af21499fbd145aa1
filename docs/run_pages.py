"""Run the blocks of pages from top to bottom, and write below them what they print:

    python docs/run_pages.py docs/howto/improvement.md

Each page runs in one empty folder. `python` blocks share their names; one that begins with
a comment `# NAME.py` is that file, which others may import. A `bash` block is a script; a
`console` block has commands behind `$ `, each with its output. A `text` block right below
another is its output. `<!-- not run: WHY -->` above a block leaves it out.
"""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

BLOCK = re.compile(r"(?ms)^(<!-- not run: [^>]+ -->\n)?```(\w+)\n(.*?)^```\n")
RUN = ("python", "bash", "console")
WIDTH = "94"  # columns of a page's code


class PageError(Exception):
  """A block of a page failed."""


def run_page(
  text: str, folder: Path, commands: Path, environment: dict[str, str]
) -> str:
  """Run a page in the current folder and return it with the outputs that were printed.

  Args:
    text: of the page.
    folder: of the page. Data of its folder `data` to which it has a link is copied.
    commands: folder with the program `vmapseeds` that is run.
    environment: variables of the commands, beside those of this process.
  """
  environment = os.environ | {
    "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
    "COLUMNS": WIDTH,
    "PYTHONWARNINGS": "error",
    **environment,
  }
  for name in re.findall(r"\]\(data/([\w.]+)\)", text):
    shutil.copy(folder / "data" / name, name)
  names = {"__name__": "__main__"}
  pieces, end, printed = [], 0, ""
  for block in BLOCK.finditer(text):
    left_out, language, code = block.groups()
    between = text[end : block.start()]
    pieces.append(between)
    end = block.end()
    if left_out or language not in RUN:
      is_output = language == "text" and not between.strip() and printed
      pieces.append(fenced("text", printed) if is_output else block.group())
      printed = ""
    elif language == "python":
      printed = run_python(code, names)
      pieces.append(block.group())
    elif language == "bash":
      printed = run_command(code, environment)
      pieces.append(block.group())
    else:
      printed = ""
      pieces.append(fenced("console", "".join(run_console(code, environment))))
  return "".join([*pieces, text[end:]])


def fenced(language: str, text: str) -> str:
  return f"```{language}\n{text}```\n"


def run_python(code: str, names: dict) -> str:
  """Run a block and return what it prints."""
  if name := re.match(r"# (\w+\.py)\n", code):
    Path(name[1]).write_text(code, encoding="utf-8")
  output = io.StringIO()
  # Else the block's prints would have the width of this terminal.
  with contextlib.redirect_stdout(output):
    exec(compile(code, "block", "exec"), names)
  return output.getvalue()


def run_command(command: str, environment: dict[str, str]) -> str:
  """Run a script of bash and return what it prints."""
  done = subprocess.run(
    ["bash", "-e", "-o", "pipefail", "-c", command],
    env=environment,
    capture_output=True,
    text=True,
    check=False,
  )
  if done.returncode:
    raise PageError(f"status {done.returncode} of\n{command}\n{done.stderr}")
  # Paths are shown from the folder that the page runs in.
  return done.stdout.replace(f"{Path.cwd()}/", "")


def run_console(session: str, environment: dict[str, str]) -> Iterator[str]:
  """Yield each command of a session and then what it prints."""
  for part in re.split(r"(?m)^\$ ", session)[1:]:
    lines = part.splitlines(keepends=True)
    count = 1
    while lines[count - 1].endswith("\\\n"):
      count += 1
    command = "".join(lines[:count])
    yield "$ " + command
    printed = run_command(command, environment)
    lines = [as_in_a_terminal(line.rstrip()) for line in printed.splitlines()]
    # Blank lines at the ends separate a command's output in a terminal.
    yield "\n".join(lines).strip("\n") + "\n"


def as_in_a_terminal(line: str) -> str:
  """Return a line of prose wrapped to the width of a page's code."""
  return textwrap.fill(line, int(WIDTH), break_long_words=False, break_on_hyphens=False)


def without_numbers(page: str) -> str:
  """Return a page without what another machine may print otherwise: numbers, units of
  time, and how wide tables are and lines break.
  """
  page = re.sub(r"\d[\d,.:]*( (s|min|h|hours)\b)?", "0", page)
  return " ".join(re.sub(r"[-─━┏┳┓┡╇┩│┃└┴┘]+", " ", page).split())


def write_command(folder: Path, program: str) -> None:
  """Write `vmapseeds` into a folder, as what Python makes of a program's arguments."""
  path = folder / "vmapseeds"
  path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {program} "$@"\n')
  path.chmod(0o755)


def main(*pages: str) -> None:
  here = Path.cwd()
  root = Path(__file__).resolve().parents[1]
  for page in pages:
    path = Path(page).resolve()
    with (
      tempfile.TemporaryDirectory() as commands,
      tempfile.TemporaryDirectory() as run,
    ):
      write_command(Path(commands), "-m vmapseeds")
      os.chdir(run)
      sys.path.insert(0, run)
      text = run_page(
        path.read_text(encoding="utf-8"),
        path.parent,
        Path(commands),
        {"PYTHONPATH": str(root)},
      )
      os.chdir(here)
      path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
  os.environ["COLUMNS"] = WIDTH
  main(*sys.argv[1:])
