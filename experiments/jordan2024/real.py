"""Jordan's figures from many runs on real images, trained until nothing is left to learn:
does the part of the variance that is on the distribution vanish beside that on the test
set?

    python -m experiments.jordan2024.real mnist --runs 500    trains; run it again to resume, or with more runs
    python -m experiments.jordan2024.real fashion_mnist --runs 500 --no-figures   the same, and leaves figures for later
    python -m experiments.jordan2024.real mnist               figures of the runs that are there
    python -m experiments.jordan2024.real mnist --other       also those that need runs of their own

Every length has as many runs as the others after each round of training, whenever it is
interrupted. The predictions of all runs are kept beside the figures, so that these need
no training, and so that another machine goes on where one stopped: it trains the seeds
that the kept predictions lack.
"""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool

import vmapseeds as vs
from experiments import frame, gallery, kept
from experiments.airbench import airbench94_cifar10, airbench94_muon_cifar10
from experiments.jordan2024 import (
  fig01,
  fig02,
  fig03,
  fig05,
  fig08_learning_rate,
  fig09_distribution_shift,
  fig10_randomness_sources,
  fig11_poking,
  fig12_shift_correlations,
  fig13,
  fig14_dependent_pairs,
)
from experiments.jordan2024.campaigns import DURATIONS, MLP_MNIST, campaigns
from experiments.jordan2024.fashion import FASHION, PLAIN_FASHION
from vmapseeds import lanes, stats
from vmapseeds.campaign.options import Options
from vmapseeds.cli import one_line_errors
from vmapseeds.errors import UserError, check_at_least
from vmapseeds.flags import Negatable, metavar, parse_flags
from vmapseeds.results.opening import converged_runs
from vmapseeds.store.folders import check_writable
from vmapseeds.store.results import Results
from vmapseeds.training.recipe_data import dataset_of

SCRIPTS = (fig01, fig02, fig03, fig05, fig13)
FIGURES = (fig14_dependent_pairs,)
OTHER = (
  fig08_learning_rate,
  fig09_distribution_shift,
  fig10_randomness_sources,
  fig11_poking,
  fig12_shift_correlations,
)


class Study(NamedTuple):
  """What is trained, for how long, how many runs between two writes, and which figures
  are made of other runs.
  """

  recipe: vs.Recipe
  epochs: tuple[int, int, int, int]
  seed_batch: int
  other: tuple[ModuleType, ...] = ()


STUDIES = {
  "mnist": Study(MLP_MNIST, (0, 1, 4, 12), 250, OTHER),
  "fashion_mnist": Study(FASHION, (0, 1, 4, 12), 10, OTHER[:1]),
  "fashion_mnist_plain": Study(PLAIN_FASHION, (0, 1, 4, 12), 10),
  "airbench_quarter": Study(airbench94_cifar10.replace(width=0.25), (0, 2, 5, 10), 2),
  "airbench_half": Study(airbench94_cifar10.replace(width=0.5), (0, 2, 5, 10), 2),
  "muon_quarter": Study(airbench94_muon_cifar10.replace(width=0.25), (0, 2, 4, 8), 2),
}


@dataclasses.dataclass(frozen=True)
class Flags:
  """Trains runs of four lengths, keeps their predictions, and makes the paper's figures
  from these.
  """

  study: Annotated[Literal[*STUDIES], metavar("STUDY")]
  """mnist: a small network on all of MNIST; fashion_mnist: a convolutional one on all of Fashion-MNIST; fashion_mnist_plain: one without batch norm; airbench_quarter, airbench_half: the fast
  recipe of CIFAR-10 at a part of its width; muon_quarter: its form with Muon"""

  _: dataclasses.KW_ONLY

  runs: Annotated[int, metavar("N")] = 0
  """train until there are so many runs of each length"""

  figures: Negatable = True
  """whether to make figures and page; if not, predictions are kept alone"""

  other: bool = False
  """mnist and fashion_mnist only: also make figure 8, on mnist 8 to 12, and train what they need: other learning rates,
  shifted test sets, single sources of randomness, pokes"""

  campaigns: Annotated[str, metavar("DIR")] = "results/campaigns"
  """folder of trained runs"""

  out: Annotated[str | None, metavar("DIR", "docs/gallery/<study>")] = None
  """folder for predictions, numbers, pictures and the page"""

  note: Annotated[str, metavar("TEXT", "none")] = ""
  """a remark for the page, e.g. that a data set is a re-encoded copy"""


def main(argv: Sequence[str] | None = None) -> None:
  with one_line_errors():
    prog = "python -m experiments.jordan2024.real"
    flags = parse_flags(Flags, argv, prog=prog, description=__doc__)
    check_at_least("--runs", flags.runs, 0)
    study = STUDIES[flags.study]
    if flags.other and not study.other:
      allowed = ", ".join(name for name, study in STUDIES.items() if study.other)
      raise UserError(f"--other is for {allowed}, not {flags.study}: leave it out")
    out = Path(flags.out or f"docs/gallery/{flags.study}")
    for folder in (flags.campaigns, out):
      check_writable(folder)
    gallery.check_same(out, "jordan2024", flags.study)
    # A folder for each length.
    places = [Path(flags.campaigns, f"{flags.study}-{e}") for e in study.epochs]
    if flags.runs:
      train_missing(study, places, out, flags.runs)
    out.mkdir(parents=True, exist_ok=True)
    for epochs, place in zip(study.epochs, places, strict=True):
      if (place / "zarr.json").exists():
        first = first_seed(place, out, epochs)
        export(place, out / f"predictions-{epochs}-{first}.npz")
    if flags.figures:
      other_runs = flags.campaigns if flags.other else None
      write_figures(out, flags.study, flags.note, other_runs)
      print(f"wrote {out / 'index.html'}")


def train_missing(study: Study, places: Sequence[Path], out: Path, runs: int) -> None:
  """Trains the runs that are missing, a seed batch of each length in turn."""
  lanes.start_jax()
  for upto in range(study.seed_batch, runs + study.seed_batch, study.seed_batch):
    for epochs, place in zip(study.epochs, places, strict=True):
      first = first_seed(place, out, epochs)
      there = 0
      if (place / "zarr.json").exists():
        there = len(Results(place).table()["seed_init"])
      missing = min(upto, runs) - first
      if there < missing:
        recipe = study.recipe.replace(epochs=epochs)
        print(f"{place.name}: {first + missing} runs", file=sys.stderr)
        table = vs.Runs.independent(missing, start=first)
        vs.train(recipe, table, place, seed_batch=study.seed_batch)


# Predictions of finished runs, and how they were made.


def first_seed(place: Path, out: Path, epochs: int) -> int:
  """Return the seed at which a folder begins: as many runs were kept when it was made."""
  if (place / "zarr.json").exists():
    return int(Results(place).table()["seed_init"][0])
  return sum(record["runs"] for _, record in kept_parts(out, epochs))


def kept_parts(out: Path, epochs: int) -> list[kept.Part]:
  """Return the kept predictions of a length and how they were made, by the first seed of
  the folders they are from.
  """
  return kept.read_parts(out, f"predictions-{epochs}")


def export(place: Path, path: Path) -> None:
  """Writes the predictions of a folder's finished runs, examples first: the runs hardly
  differ on most of them, and such rows take little space.
  """
  results = vs.open_results(place)
  finished = results.isel(run=converged_runs(results))
  arrays = {
    "predictions": np.ascontiguousarray(finished.predictions.values.T, np.int8),
    "labels": finished.labels.values.astype(np.int8),
  }
  kept.write_kept_runs(path, kept.folder_record(place), arrays)


class Stored:
  """Predictions that were exported, as figures read campaigns (`frame.Trained`)."""

  paper = "jordan2024"

  def __init__(self, out: Path, scale: str, data: bool = True):
    """`data` is whether to read the data set, for its size and its images."""
    self.scale, self._out, self._data = scale, out, data
    self.used: dict[str, dict[str, Any]] = {}
    self._read: dict[str, dict[str, np.ndarray]] = {}

  def __call__(self, name: str) -> dict[str, np.ndarray]:
    """Return the predictions of a length, (examples, runs), and the labels."""
    if name not in self._read:
      recipe = STUDIES[self.scale].recipe
      epochs = self.epochs(name)
      parts = kept_parts(self._out, epochs)
      if not parts:
        raise UserError(
          f"no runs of {epochs} epochs in {self._out}: train some with --runs"
        )
      data = ""
      if self._data:
        data = frame.trained_on(frame.Campaign(recipe, 0))
      for i, (_, record) in enumerate(parts, 1):
        label = name if i == 1 else f"{name}, part {i}"
        self.used[label] = record | {"trained_on": data}
      predictions = np.hstack([arrays["predictions"] for arrays, _ in parts])
      first_arrays, _ = parts[0]
      self._read[name] = first_arrays | {"predictions": predictions}
    return self._read[name]

  def errors(self, name: str) -> Bool[np.ndarray, "runs examples"]:
    arrays = self(name)
    return arrays["labels"] != arrays["predictions"].T

  def tallies(self, name: str, *, pairs: bool = False) -> stats.Tallies:
    arrays = self(name)
    predictions = arrays["predictions"].T.astype(np.int32)
    labels = arrays["labels"].astype(np.int32)
    num_classes = int(labels.max()) + 1
    return stats.tally(predictions, labels, num_classes, pairs=pairs)

  def epochs(self, name: str) -> int:
    return STUDIES[self.scale].epochs[DURATIONS.index(name)]

  def images(self, name: str) -> np.ndarray:
    """The test images; blank ones without the data. Records do not keep them."""
    if self._data:
      return dataset_of(STUDIES[self.scale].recipe).tests["test"].inputs
    return np.zeros((len(self(name)["labels"]), 1, 1, 1))


def write_figures(out: Path, scale: str, note: str, runs: str | None) -> None:
  """Makes the page and its figures, from exported predictions; those that need other runs
  from these, trained in the folder `runs`, or else from the numbers made before.
  """
  lengths = ["--epochs", *map(str, STUDIES[scale].epochs)]
  for script in SCRIPTS:
    script.main(["--kept", str(out), "--out", str(out), *lengths])
  names = sorted(map(name_of, (*FIGURES, *STUDIES[scale].other)))
  for module in FIGURES:
    stored = Stored(out, scale)
    frame.write_figure(out, stored, module, module.compute(stored), note)
  records: dict[str, dict[str, Any]] = {}
  for module in STUDIES[scale].other:
    folder = Path(runs or out)
    path = out / f"{name_of(module)}.json"
    trained = frame.Trained(
      "jordan2024",
      scale,
      campaigns(scale),
      folder,
      Options(),
      records,
    )
    if runs:
      gallery.write_gallery(out, "jordan2024", names, f"real {scale}")  # if interrupted
      frame.write_figure(out, trained, module, module.compute(trained), note)
    elif path.exists():
      numbers, stored_note = frame.read_stored(path, module, trained)
      frame.write_figure(out, trained, module, numbers, stored_note)
  for figure in gallery.write_gallery(
    out,
    "jordan2024",
    names,
    f"real {scale}",
  ).values():
    frame.show_rows(figure)


def name_of(module: ModuleType) -> str:
  return module.__name__.rpartition(".")[2]


if __name__ == "__main__":
  main()
