"""Pages: self-contained HTML, with its figures as PNG and its numbers as JSON beside
it.
"""

import base64
import hashlib
import io
import json
import os
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import xarray as xr
from matplotlib.axes import Axes
from upath import UPath

from vmapseeds.mistakes import MAX_NAME_LENGTH, Mistake
from vmapseeds.reports import plots
from vmapseeds.reports.groups import format_values
from vmapseeds.results.formatting import run_count, show, show_error, show_interval
from vmapseeds.results.statistics import GROUPS
from vmapseeds.store.files import Folder, is_remote, place, write

MAX_FOLDER_BYTES = 255  # of a folder's name

TEMPLATES = jinja2.Environment(
  loader=jinja2.FileSystemLoader(Path(__file__).parent),
  autoescape=True,
  trim_blocks=True,
  lstrip_blocks=True,
  undefined=jinja2.StrictUndefined,
)
TEMPLATES.globals |= {
  "format_values": format_values,
  "groups": GROUPS,
  "run_count": run_count,
  "show": show,
  "show_error": show_error,
  "show_interval": show_interval,
}


class Figure(NamedTuple):
  """A figure of a page. `draw` draws it on the axes of a figure of this height, in
  inches.
  """

  title: str
  caption: str
  draw: Callable[[Axes], Axes]
  height: float = 4.0
  of: str = ""  # the output that it is about


def html(template: str, **context: Any) -> str:
  """Render a template as a page that loads nothing else."""
  page = TEMPLATES.get_template(f"{template}.html.j2").render(**context)
  # No line may break between a number and its unit.
  return page.replace(" %", "\N{NO-BREAK SPACE}%")


def write_page(
  out: Path | UPath,
  name: str,
  template: str,
  figures: Mapping[str, Figure],
  record: Any,
  **context: Any,
) -> Path | UPath:
  """Write NAME.html, NAME.json with the `record` and the figures into a folder, and
  return the page's path.

  Raises:
    Mistake: the folder cannot be written.
  """
  page = out / f"{name}.html"
  try:
    drawn = [
      {
        "title": f.title,
        "caption": f.caption,
        "of": f.of,
        "source": _save_figure(f, out / f"{key}.png"),
      }
      for key, f in figures.items()
    ]
    text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False)
    write(out / f"{name}.json", f"{text}\n".encode())
    write(page, html(template, figures=drawn, **context).encode())
  except OSError as error:
    raise Mistake(
      f"{out} cannot be written ({error.strerror}): make it writable, or give another place with --out"
    ) from error
  return page


def path_parts(folder: Folder) -> tuple[str, ...]:
  """Return the parts of a folder's absolute path or URL. The last is its name."""
  path = place(folder)
  return tuple(
    (str(path) if is_remote(path) else os.path.abspath(path)).rstrip("/").split("/")
  )


def join_names(*names: str, by: str = ", ") -> str:
  """Return the names that are not empty in one."""
  return by.join(filter(None, names))


def below(out: Path | UPath, *names: str) -> Path | UPath:
  """Return a folder in `out`: a subfolder in a subfolder for each name. Empty names are
  left out, and long ones cut.
  """
  for name in filter(None, names):
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    out = out / (
      name
      if len(name.encode()) <= MAX_FOLDER_BYTES
      else f"{name[:MAX_NAME_LENGTH]}... {digest}"
    )
  return out


def of_test_set(out: Path | UPath, results: xr.Dataset, test_set: str) -> Path | UPath:
  """Return the folder in `out` for results of a test set and an epoch: `out` itself for
  the recipe's first test set after the training.
  """
  sets, epoch = results.attrs.get("test_sets"), results.attrs.get("epoch")
  return below(
    out,
    test_set if sets and test_set != sets[0] else "",
    "" if epoch is None else f"epoch={epoch}",
  )


def link(page: Path | UPath, out: Path | UPath) -> str:
  """Return the address of a page as seen from a page in `out`."""
  if is_remote(page) != is_remote(out):
    return str(page)
  return urllib.parse.quote(os.path.relpath(str(page), str(out)))


def _save_figure(figure: Figure, path: Path | UPath) -> str:
  """Save a figure as PNG and return it as a data URI."""
  drawing, ax = plots.figure(height=figure.height)
  figure.draw(ax)
  drawn = io.BytesIO()
  drawing.savefig(drawn, dpi=160)
  write(path, drawn.getvalue())
  return f"data:image/png;base64,{base64.b64encode(drawn.getvalue()).decode()}"
