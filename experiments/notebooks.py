"""Write what all notebooks share into them, and draw the pictures that they show.

    python -m experiments.notebooks                # the first cell, and the badge
    python -m experiments.notebooks --draw 100     # executes them, and keeps the pictures

The address of the repository stands in `pyproject.toml`, under `tool.vmapseeds`. While it
is empty there is no badge, and the first cell asks for a wheel.
"""

import base64
import dataclasses
import io
import os
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

import nbclient
import nbformat
from nbformat import NotebookNode
from PIL import Image

from vmapseeds.cli import one_line_errors
from vmapseeds.flags import parse_flags

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
COLORS = 64  # of a picture
BADGE = (
  "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({})\n\n"
)
INSTALL = """\
# @title Install, and choose where results are kept
KEEP_ON_DRIVE = True  # @param {type: "boolean"}
import sys
from importlib.util import find_spec

if KEEP_ON_DRIVE and "google.colab" in sys.modules:
  from google.colab import drive

  drive.mount("/content/drive")
if not find_spec("vmapseeds"):
  !pip list --format=freeze | grep -E "^(jax|libtpu|flax|opt|orb|tens|ml_|num|sci)" > kept.txt
  !pip install -q -c kept.txt SOURCE
"""
# The newest of the wheels beside the notebook and on the drive: nothing is public yet.
WHEEL = "$(ls -t vmapseeds-*.whl drive/MyDrive/vmapseeds/*.whl | head -1)"


def repository() -> str:
  """Return the address of the public repository; empty while there is none."""
  with (ROOT / "pyproject.toml").open("rb") as file:
    return tomllib.load(file)["tool"]["vmapseeds"]["repository"]


def install_cell(address: str) -> str:
  """Return the text of the first code cell of every notebook."""
  source = f'"vmapseeds @ git+{address}"' if address else WHEEL
  return INSTALL.replace("SOURCE", source).rstrip()


def badge(name: str, address: str) -> str:
  """Return the line that opens a notebook on Colab; empty without an address.

  Args:
    name: of the notebook's file.
    address: of the repository on GitHub.
  """
  if not address:
    return ""
  path = address.removesuffix(".git").removeprefix("https://github.com/")
  link = f"https://colab.research.google.com/github/{path}/blob/main/notebooks/{name}"
  return BADGE.format(link)


def with_shared_parts(notebook: NotebookNode, name: str, address: str) -> NotebookNode:
  """Put the badge and the first code cell into a notebook, and return it."""
  title, install = notebook.cells[:2]
  # The badge stands above the heading.
  heading = title.source.index("# ")
  title.source = badge(name, address) + title.source[heading:]
  install.source = install_cell(address)
  # Lines for the shell are no Python, which the site's colours would stumble over.
  notebook.metadata.language_info = NotebookNode(
    name="python", pygments_lexer="ipython3"
  )
  return notebook


def draw_pictures(notebook: NotebookNode, runs: int) -> None:
  """Execute a notebook with so many runs, and leave the pictures in it alone."""
  environment = {k: v for k, v in os.environ.items() if k != "MPLBACKEND"}
  with tempfile.TemporaryDirectory() as folder:
    environment |= {"VMAPSEEDS_RUNS": str(runs), "VMAPSEEDS_RESULTS": folder}
    where = {"metadata": {"path": folder}}
    client = nbclient.NotebookClient(notebook, timeout=3600, resources=where)
    client.execute(env=environment)
  for cell in notebook.cells:
    cell.metadata.pop("execution", None)
    if cell.cell_type == "code":
      cell.execution_count = None
      cell.outputs = [
        only_picture(output) for output in cell.outputs if has_picture(output)
      ]


def has_picture(output: NotebookNode) -> bool:
  return "image/png" in output.get("data", {})


def only_picture(output: NotebookNode) -> NotebookNode:
  image = Image.open(io.BytesIO(base64.b64decode(output.data["image/png"])))
  stream = io.BytesIO()
  # A third of the bytes, and no difference that one sees.
  image.convert("RGB").quantize(COLORS).save(stream, "PNG", optimize=True)
  text = base64.b64encode(stream.getvalue()).decode()
  return nbformat.v4.new_output("display_data", data={"image/png": text})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
  draw: int = 0
  """runs of each training; 0 draws none"""


def main(argv: Sequence[str] | None = None) -> None:
  with one_line_errors():
    flags = parse_flags(
      Flags,
      argv,
      prog="python -m experiments.notebooks",
      description=__doc__,
    )
  for path in NOTEBOOKS:
    notebook = nbformat.read(path, as_version=4)
    with_shared_parts(notebook, path.name, repository())
    if flags.draw:
      draw_pictures(notebook, flags.draw)
    # As Jupyter writes it.
    nbformat.write(notebook, path)


if __name__ == "__main__":
  main()
