"""Save documents: self-contained HTML, with its figures as SVG and its numbers as JSON
and CSV beside it.
"""

import hashlib
import os
import urllib.parse
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import xarray as xr
from upath import UPath

import vmapseeds
from vmapseeds.errors import MAX_NAME_LENGTH, UserError, option
from vmapseeds.machine import commit
from vmapseeds.reports import rendering
from vmapseeds.reports.documents import Document, Figure
from vmapseeds.results.description import parsed_attribute
from vmapseeds.results.score_tables import ScoreTable
from vmapseeds.store.files import Folder, as_folder, is_remote, write

MAX_FOLDER_BYTES = 255  # of a folder's name


def write_page(
  out: Path | UPath,
  document: Document,
  *,
  table: pd.DataFrame | None = None,
  pages: Mapping[str, Path | UPath] | None = None,
  image: str = "",
  origin: str = "",
  back: Path | UPath | None = None,
) -> Path | UPath:
  """Write NAME.html, NAME.json, NAME.csv and the figures into a folder, and return the
  page's path.

  Args:
    out: the folder.
    document: what is written.
    table: what the CSV file has; None writes none.
    pages: name of another page -> where it is.
    image: another format of the figures, such as "pdf".
    origin: where the page comes from: see `describe_page_origin`.
    back: where the page above it is.

  Raises:
    UserError: the folder cannot be written.
  """
  # Last of all it is written, so that a page that is there is whole.
  page = out / f"{document.name}.html"
  files = [f"{document.name}.json"]
  try:
    sources = {}
    # The page holds them, too; the files are for papers and slides.
    for name, figure in document.figures.items():
      sources[name] = _save_figure(figure, out / f"{name}.svg", image)
    write(out / files[0], rendering.to_json(document).encode())
    if table is not None:
      files.append(f"{document.name}.csv")
      write(out / files[1], table.to_csv().encode())
    addresses = {
      name: relative_address(other, out) for name, other in (pages or {}).items()
    }
    above = relative_address(back, out) if back else ""
    text = rendering.to_html(document, sources, addresses, files, origin, above)
    write(page, text.encode())
  except OSError as error:
    raise UserError(
      f"{out} cannot be written ({error.strerror}): make it writable, or give another "
      f"place with {option('out')}"
    ) from error
  return page


def _save_figure(figure: Figure, path: Path | UPath, image: str = "") -> str:
  """Save a figure as SVG, and in another format if `image` names one. Return it as a
  page shows it.
  """
  drawing = rendering.drawing_of(figure)
  lines = rendering.image(drawing, "svg")
  write(path, lines)
  if image:
    write(path.with_suffix(f".{image}"), rendering.image(drawing, image))
  return rendering.page_image(drawing, lines)


def describe_page_origin(call: str) -> str:
  """Return where a page comes from: the call that made it, when, with which version and
  from which commit of it.
  """
  # In UTC, as the records of blocks.
  now = datetime.now(UTC)
  version = f"vmapseeds {vmapseeds.__version__}"
  # Of a checkout alone.
  if commit():
    version = f"{version} (commit {commit()})"
  return f"{call}, {version}, {now:%Y-%m-%d %H:%M} UTC"


def path_parts(folder: Folder | ScoreTable) -> tuple[str, ...]:
  """Return the parts of a folder's absolute path or URL, the last of which is its name.
  A table has its name alone.
  """
  if isinstance(folder, ScoreTable):
    return (folder.name,)
  path = as_folder(folder)
  if is_remote(path):
    whole = str(path)
  else:
    whole = os.path.abspath(path)
  return tuple(whole.rstrip("/").split("/"))


def short_names(folders: Sequence[Folder | ScoreTable]) -> list[str]:
  """Return the shortest path endings that tell the folders apart."""
  parts = [path_parts(folder) for folder in folders]
  longest = max(len(path) for path in parts)
  for length in range(1, longest + 1):
    names = ["/".join(path[-length:]).strip("/") for path in parts]
    # A folder that is given twice has one name.
    if len(set(names)) == len(set(parts)):
      break
  return names


def join_names(*names: str, by: str = ", ") -> str:
  """Return the names that are not empty in one."""
  return by.join(filter(None, names))


def nested_folder(out: Path | UPath, *names: str) -> Path | UPath:
  """Return a folder in `out`: a subfolder in a subfolder for each name. Empty names are
  left out, and long ones cut.
  """
  for name in filter(None, names):
    # The digest keeps the folders of two long names apart.
    if len(name.encode()) > MAX_FOLDER_BYTES:
      digest = hashlib.sha256(name.encode()).hexdigest()[:8]
      name = f"{name[:MAX_NAME_LENGTH]}... {digest}"
    out = out / name
  return out


def subfolders_of(results: xr.Dataset, test_set: str) -> tuple[str, str]:
  """Return the subfolders for results of a test set and an epoch: both empty for the
  recipe's first test set after the training.
  """
  # Results in memory need not have a list of them.
  test_sets = parsed_attribute(results, "test_sets")
  of_test_set = ""
  if test_sets and test_set != test_sets[0]:
    of_test_set = test_set
  epoch = results.attrs.get("epoch")
  of_epoch = ""
  if epoch is not None:
    of_epoch = f"epoch={epoch}"
  return of_test_set, of_epoch


def relative_address(page: Path | UPath, out: Path | UPath) -> str:
  """Return the address of a page as seen from a page in `out`."""
  text = str(page)
  # Both on this machine, or on one server: relative, so that they can be moved.
  if is_remote(page) == is_remote(out):
    text = urllib.parse.quote(os.path.relpath(text, str(out)))
  return text
