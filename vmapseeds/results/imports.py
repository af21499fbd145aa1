"""Import runs trained elsewhere, from arrays or `.npy` files, into a folder that
`report` and `compare` read.

From PyTorch, where `logits` is a list with a tensor (examples, classes) per run, with
the same examples in one order:

  np.save("logits.npy", torch.stack(logits).cpu().numpy())
  np.save("labels.npy", labels.cpu().numpy())
  vs.import_runs("results/mine", logits="logits.npy", labels="labels.npy")
"""

import contextlib
import functools
import importlib.metadata
import json
import math
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Int, Shaped
from rich.console import Console
from rich.progress import track

from vmapseeds.data.dataset import MOST_CLASSES
from vmapseeds.mistakes import Mistake, at_least, say
from vmapseeds.results.description import IMPORTED
from vmapseeds.results.doubts import doubts
from vmapseeds.results.opening import open_results
from vmapseeds.stats.reading import (
  check_axes,
  check_finite,
  layout,
  read,
  read_classes,
  read_labels,
)
from vmapseeds.store.files import short_message
from vmapseeds.store.folders import check_empty, create_folder
from vmapseeds.store.layout import array
from vmapseeds.training.outputs import Output

AXES = {
  "predictions": "runs examples",
  "logits": "runs examples classes",
  "labels": "examples",
}
BLOCK_BYTES = 2**25
# In Fortran order a run is scattered over the whole file, and every block would read
# nearly all of it.
FORTRAN_BYTES = 2**31


def import_runs(
  out: str | os.PathLike,
  *,
  labels: Any,
  predictions: Any = None,
  logits: Any = None,
  num_classes: int | None = None,
  keep_logits: bool = False,
  name: str | None = None,
  block_runs: int | None = None,
  progress: bool = True,
) -> xr.Dataset:
  """Write runs trained elsewhere into a new results folder, and return what
  `open_results` does.

  Runs are read a block at a time, so they may be larger than memory.

  Args:
    out: the results folder, new or empty.
    labels: (examples,), class indices. This and the next two are paths of `.npy` files
      or arrays: of NumPy, JAX, PyTorch or Zarr, nested lists, or anything else with a
      `shape` and slices that NumPy can read.
    predictions: (runs, examples), class indices. -1 means that a run predicts no class,
      which counts as an error.
    logits: (runs, examples, classes), float16, bfloat16, float32 or float64, instead of
      predictions. A run predicts the class with the largest logit, the lowest such
      class on ties. bfloat16 is kept as float32, which loses nothing.
    num_classes: how many classes; by default as many as logits have, or one more than
      the highest class that occurs.
    keep_logits: whether to keep logits beside predictions.
    name: what reports call these runs; by default the name of the file of predictions
      or logits.
    block_runs: how many runs are read at once and stored in one block; by default as
      many as fill 32 MiB.
    progress: whether to draw a progress bar on stderr, and to note there what is surely
      wrong, such as an accuracy of chance.

  Raises:
    Mistake: the arguments do not fit each other, something cannot be read or written, a
      class is out of range, a logit is NaN or infinite, or an entry is masked. Nothing
      is changed on disk then.
  """
  check_empty(out)
  if (predictions is None) == (logits is None):
    raise Mistake("give either predictions or logits")
  if keep_logits and logits is None:
    raise Mistake(
      "predictions have no logits to keep: give logits, or do not ask for them"
    )
  runs = (
    Source("predictions", predictions) if logits is None else Source("logits", logits)
  )
  labels = Source("labels", labels)
  num_classes = classes_of(runs, num_classes)
  most = num_classes or MOST_CLASSES
  true_classes = read_labels(labels[:], most, runs.what, runs.shape)
  highest = [true_classes.max()]
  if block_runs is None:
    block_runs = max(
      1, BLOCK_BYTES // (runs.dtype.itemsize * math.prod(runs.shape[1:]))
    )
  block_runs = min(at_least("block_runs", block_runs, 1), runs.shape[0])

  steps = [
    slice(start, start + block_runs) for start in range(0, runs.shape[0], block_runs)
  ]
  shown = functools.partial(track, console=Console(stderr=True), disable=not progress)
  if logits is None:
    # This pass comes first, because the number of classes must be known before anything
    # is written.
    for rows in shown(steps, "checking"):
      block = read_classes(
        "predictions", runs[rows], AXES["predictions"], most, -1, first_run=rows.start
      )
      highest.append(block.max())
    if progress and highest[0] > max(highest[1:]):
      say(
        f"note: no run predicts class {highest[0]}: do labels count from 0, as predictions do?"
      )
  num_classes = num_classes or int(max(highest)) + 1
  about = Output(("example",), "class", labels=true_classes, num_classes=num_classes)
  dtype = np.int8 if num_classes <= 127 else np.int16
  outputs = {
    "diverged": array(bool, ("run",), ()),
    "test/accuracy": array(np.float64, ("run",), (), role="count", of="predictions"),
    "test/predictions": array(
      dtype, ("run", "example"), labels.shape, **about.attributes
    ),
  }
  if keep_logits:
    outputs["test/logits"] = array(
      runs.dtype, ("run", "example", "class"), runs.shape[1:], role="logits"
    )
  with create_folder(
    out,
    {**origin(runs, labels, name), "num_classes": num_classes},
    extents=[runs.shape[0]],
    block_runs=block_runs,
    columns={},
    examples={"test/labels": true_classes},
    dimensions={"test/labels": ("example",)},
    outputs=outputs,
    attributes={"test/labels": about.of_labels | {"of": "predictions"}},
  ) as results:
    for k, rows in enumerate(shown(steps, "importing")):
      block = runs[rows]
      predicted = block if logits is None else largest(block, rows.start)
      values = {
        "diverged": np.zeros(len(block), bool),
        "test/predictions": predicted,
        "test/accuracy": (predicted == true_classes).mean(1),
        "test/logits": block,
      }
      results.write_block(k, {name: values[name] for name in outputs})
  opened = open_results(out)
  for doubt in doubts(opened) if progress else ():
    say(f"note: {doubt}")
  return opened


class Source:
  """An array or a `.npy` file whose slices along axis 0 are NumPy arrays.

  A file is memory-mapped anew for each slice, because the pages of a lasting map would
  count as used memory.

  Raises:
    Mistake: it cannot be read so.
  """

  def __init__(self, what: str, given: Any):
    self.what = what
    self.file = Path(given) if isinstance(given, str | os.PathLike) else None
    if self.file is None and not hasattr(given, "shape"):
      with converted(what):
        given = read(what, given, AXES[what])
    self._open = functools.partial(mapped, self.file) if self.file else lambda: given
    array = self._open()
    self.shape = tuple(array.shape)
    check_axes(what, self.shape, AXES[what])
    if 0 in self.shape:
      raise Mistake(
        f"{what} has shape {self.shape}, {layout(AXES[what])}: give at least one of each"
      )
    self.dtype = self[:0].dtype
    if what == "logits" and self.dtype not in (np.float16, np.float32, np.float64):
      lost = "; np.save loses bfloat16, save float32" if self.dtype == "V2" else ""
      raise Mistake(
        f"logits has dtype {self.dtype}: give float16, bfloat16, float32 or float64{lost}"
      )
    if self.file and not array.flags.c_contiguous and array.nbytes > FORTRAN_BYTES:
      raise Mistake(
        f"{self.file} is in Fortran order, which is slow to read by runs: save np.ascontiguousarray of it"
      )

  def __getitem__(self, rows: slice) -> Shaped[np.ndarray, "..."]:
    with converted(self.what):
      block = self._open()[rows]
      if np.ma.is_masked(block):
        fill = (
          "-1 for none"
          if self.what == "predictions"
          else "or leave their runs or examples out"
        )
        raise Mistake(f"{self.what} has masked entries: fill them, {fill}")
      if str(getattr(block, "dtype", "")).endswith(
        "bfloat16"
      ):  # PyTorch converts with `float()`
        block = block.float() if hasattr(block, "float") else block.astype(np.float32)
      block = np.asarray(block)
    return block.astype(block.dtype.newbyteorder("="), copy=False)


@contextlib.contextmanager
def converted(what: str) -> Iterator[None]:
  """Turn PyTorch's errors, for tensors that are sparse, have gradients or are on other
  devices, into a `Mistake`.
  """
  try:
    yield
  except (TypeError, RuntimeError) as error:
    raise Mistake(
      f"{what} cannot be read as a NumPy array ({str(error).splitlines()[0]})"
    ) from None


def mapped(file: Path) -> Shaped[np.ndarray, "..."]:
  """Memory-map the array of a `.npy` file. Pickled objects are never loaded."""
  remedy = "give a .npy file, as np.save writes one array"
  if not os.path.isfile(file):
    raise Mistake(f"{file} is no file: {remedy}")
  try:
    with np.errstate(over="raise"):  # sizes in a broken header may overflow
      return np.lib.format.open_memmap(file, mode="r")
  except Exception as error:  # a missing or broken header raises many kinds
    raise Mistake(f"{file} cannot be read ({short_message(error)}): {remedy}") from None


def largest(
  logits: Float[np.ndarray, "runs examples classes"], first: int
) -> Int[np.ndarray, "runs examples"]:
  """Return the class with the largest logit, the lowest on ties.

  Raises:
    Mistake: a logit is infinite or NaN, which argmax picks.
  """
  predictions = np.empty(logits.shape[:2], np.int16)
  for run, of_run in enumerate(logits):
    # The conversion is exact, and comparing float32 is several times faster than
    # comparing float16.
    of_run = np.asarray(of_run, np.promote_types(of_run.dtype, np.float32))
    check_finite("logits", of_run[None], AXES["logits"], first + run)
    predictions[run] = of_run.argmax(1)
  return predictions


def classes_of(runs: Source, num_classes: int | None) -> int | None:
  """Return the number of classes, None if it is not known before the predictions are read."""
  if num_classes is not None:
    num_classes = at_least("the number of classes", num_classes, 1)
  if runs.what == "logits":
    if runs.shape[2] < 2:
      raise Mistake(
        f"logits has shape {runs.shape}, {layout(AXES['logits'])}: give at least two classes"
      )
    if num_classes not in (None, runs.shape[2]):
      raise Mistake(
        f"logits has {runs.shape[2]} classes, not {num_classes}: leave the number of classes out"
      )
    num_classes = runs.shape[2]
  if num_classes is not None and num_classes > MOST_CLASSES:
    raise Mistake(f"there are {num_classes} classes: give at most {MOST_CLASSES}")
  return num_classes


def origin(runs: Source, labels: Source, name: str | None) -> dict[str, Any]:
  """Return the attributes that say where the runs come from, and that nothing is known of
  their training.
  """
  imported = {
    source.what: {
      "file": source.file and source.file.name,
      "shape": list(source.shape),
      "dtype": str(source.dtype),
    }
    for source in (runs, labels)
  }
  name = name or (runs.file.stem if runs.file else IMPORTED)
  if not isinstance(name, str) or not name.isprintable():
    raise Mistake(f"the name is {name!r:.100}: give text that can be printed")
  packages = {
    package: importlib.metadata.version(package) for package in ("vmapseeds", "numpy")
  }
  return {
    "recipe": json.dumps(
      {"name": name, "dataset": None, "test_sets": ["test"], "imported": imported}
    ),
    "test_sets": ["test"],
    "sampling": None,
    "device_kind": IMPORTED,
    **dict.fromkeys(("lane_width", "lowering", "precision", "data_digest")),
    "versions": {"python": platform.python_version(), **packages},
  }
