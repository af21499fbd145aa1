"""Finished runs in few bytes, kept beside a gallery: its figures then need no training.

    python -m experiments.kept results/banerjee2024/cifar10-S_all --out docs/gallery/banerjee2024
    python -m experiments.banerjee2024.table1 --kept docs/gallery/banerjee2024

A file has the runs of one folder: their logits, less the first class's, on which softmax
does not depend, in half precision; or their predictions, if they have no logits; or
their scores alone, if they predict no classes. Scripts read them with `--kept`. A name
may end in the number of runs in the files before it.
"""

import dataclasses
import hashlib
import io
import json
import operator
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import xarray as xr

import vmapseeds as vs
from vmapseeds.cli import one_line_errors
from vmapseeds.errors import UserError
from vmapseeds.flags import metavar, parse_flags
from vmapseeds.store import files
from vmapseeds.store.folders import check_writable
from vmapseeds.store.results import Results
from vmapseeds.training.identity import Identity

CONDITIONS = (
  "device_kind",
  "lane_width",
  "lowering",
  "precision",
)
ARRAYS = ("labels", "epoch", "diverged", "logits", "epoch_logits")
Part = tuple[dict[str, np.ndarray], dict[str, Any]]  # arrays, and how they were made


@dataclasses.dataclass(frozen=True)
class Flags:
  """Keeps logits, predictions or scores of folders' finished runs, beside a gallery."""

  folders: Annotated[tuple[Path, ...], metavar("DIR", "one or more")] = ()
  """folders of trained runs"""

  _: dataclasses.KW_ONLY

  out: Annotated[Path, metavar("DIR")]
  """the gallery's folder"""


def main(argv: Sequence[str] | None = None) -> None:
  with one_line_errors():
    flags = parse_flags(
      Flags,
      argv,
      prog="python -m experiments.kept",
      description=__doc__,
    )
    if not flags.folders:
      raise UserError("no folder is given: name one or more that hold trained runs")
    check_writable(flags.out)
    for folder in flags.folders:
      if folder.is_file():  # times that a paper's command leaves beside its folders
        continue
      path = flags.out / f"{folder.name}.npz"
      write_kept_runs(
        path,
        folder_record(folder),
        small_arrays(vs.open_results(folder)),
      )
      print(f"wrote {path}, {path.stat().st_size / 1e6:.1f} MB")


def folder_record(folder: Path) -> dict[str, Any]:
  """Return how a folder's runs were made.

  Raises:
    UserError: none of them is finished.
  """
  results = Results(folder)
  blocks = [results.record(block) for block in results.finished_blocks()]
  if not blocks:
    raise UserError(
      f"{folder} has no finished runs: train on, they are written by batches"
    )
  record = describe_runs(folder, json.loads(blocks[0]["recipe"]))
  spent = folder.with_name(f"{folder.name}.json")  # a paper's command leaves it
  if spent.exists():
    return record | json.loads(spent.read_text())
  return record | {"seconds": sum(block["seconds"] for block in blocks)}


def hash_of(identity: Identity) -> str:
  """Return an identity as one short text."""
  text = json.dumps(identity, sort_keys=True)
  return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def describe_runs(place: Path, recipe: Mapping[str, Any]) -> dict[str, Any]:
  """Return what a folder's runs are, which commits trained them, with what, on what, and
  when the last were written. `recipe` has the recipe's fields, as JSON has them.
  """
  folder = Results(place)
  results = vs.open_results(place, recipe["test_sets"][0])
  records = [folder.record(block) for block in folder.finished_blocks()]
  return {
    "recipe": recipe,
    "runs": results.sizes["run"],
    "diverged": int(results.diverged.sum()),
    "identity": hash_of(json.loads(results.attrs["identity"])),
    "commits": sorted({str(record["commit"]) for record in records}),
    "when": max(record["when"] for record in records),
    **{condition: results.attrs[condition] for condition in CONDITIONS},
    "versions": json.loads(results.attrs["versions"]),
  }


def small_arrays(results: xr.Dataset) -> dict[str, np.ndarray]:
  """Return the arrays to keep, in their smallest form."""
  if results.predictions.attrs.get("role") != "class":
    scores = {
      name: array.values
      for name, array in results.items()
      if array.dims == ("run",) and array.attrs.get("role") == "score"
    }
    return scores | {"diverged": results.diverged.values}
  arrays = {}
  for name in ARRAYS:
    if name not in results:
      continue
    arrays[name] = results[name].values
    if name.endswith("logits"):
      logits = arrays[name]
      differences = logits - logits[..., :1]  # the first class's are 0
      arrays[name] = differences[..., 1:].astype(np.float16)
  if "logits" not in results:
    # Examples first: runs hardly differ on most of them, and such rows take little space.
    arrays["predictions"] = small_integers(results.predictions.values.T)
    arrays["labels"] = small_integers(arrays["labels"])
  return arrays


def small_integers(classes: np.ndarray) -> np.ndarray:
  """Return classes, -1 for none, in the smallest dtype that holds them."""
  fits_a_byte = classes.max(initial=0) <= np.iinfo(np.int8).max
  return np.ascontiguousarray(classes, np.int8 if fits_a_byte else np.int16)


def write_kept_runs(
  path: Path,
  record: Mapping[str, Any],
  arrays: Mapping[str, np.ndarray],
) -> None:
  stream = io.BytesIO()
  np.savez_compressed(stream, record=np.array(json.dumps(record)), **arrays)
  files.write(path, stream.getvalue())


def read_parts(folder: Path, name: str) -> list[Part]:
  """Return the arrays of the files of a name, each with its record, in the order of the
  numbers that their names end in: how many runs the files before have.

  Raises:
    UserError: they have another number of runs.
  """
  loaded = []
  for path in folder.glob(f"{name}*.npz"):
    number = re.fullmatch(r"(?:-(\d+))?", path.stem.removeprefix(name))
    if number is None:  # a file of a campaign whose name begins so
      continue
    with np.load(path, allow_pickle=False) as file:
      arrays = dict(file)
    record = json.loads(str(arrays.pop("record")))
    loaded.append((int(number[1] or 0), arrays, record))
  loaded.sort(key=operator.itemgetter(0))

  ordered = []
  runs = 0
  for first, arrays, record in loaded:
    if first != runs:
      raise UserError(
        f"{folder} keeps {runs} runs of {name} and others from run {first} on: "
        "remove one of the files, or add what is lacking"
      )
    runs += record["runs"]
    ordered.append((arrays, record))
  return ordered


if __name__ == "__main__":
  main()
