"""Many runs of four lengths on real images, whose predictions are kept beside the
gallery: figures 1 to 3, 5, 13 and 14 are made of these, without training.

    python -m experiments.jordan2024.real mnist --runs 500    trains; run it again to resume, or with more runs
    python -m experiments.jordan2024.real fashion_mnist --runs 500 --no-figures   the same, and leaves figures for later
    python -m experiments.jordan2024.real mnist               figures of the runs that are there

Every length has as many runs as the others after each round of training, whenever it is
interrupted. Another machine goes on where one stopped: it trains the seeds that the kept
predictions lack.
"""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np

import vmapseeds as vs
from experiments import kept
from experiments.airbench import airbench94_cifar10, airbench94_muon_cifar10
from experiments.jordan2024 import fig01, fig02, fig03, fig05, fig13, fig14
from experiments.jordan2024.fashion import FASHION, PLAIN_FASHION
from experiments.jordan2024.runs import MLP_MNIST
from vmapseeds import lanes
from vmapseeds.cli import one_line_errors
from vmapseeds.errors import UserError, check_at_least
from vmapseeds.flags import Negatable, metavar, parse_flags
from vmapseeds.results.opening import converged_runs
from vmapseeds.store.folders import check_writable
from vmapseeds.store.results import Results

OF_LENGTHS = (fig01, fig02, fig03, fig05, fig13)


class Study(NamedTuple):
  """What is trained, for how long, and how many runs between two writes."""

  recipe: vs.Recipe
  epochs: tuple[int, int, int, int]
  seed_batch: int


STUDIES = {
  "mnist": Study(MLP_MNIST, (0, 1, 4, 12), 250),
  "fashion_mnist": Study(FASHION, (0, 1, 4, 12), 10),
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
  """whether to make figures; if not, predictions are kept alone"""

  campaigns: Annotated[str, metavar("DIR")] = "results/campaigns"
  """folder of trained runs"""

  out: Annotated[str | None, metavar("DIR", "docs/gallery/<study>")] = None
  """folder for predictions, numbers and pictures"""


def main(argv: Sequence[str] | None = None) -> None:
  with one_line_errors():
    prog = "python -m experiments.jordan2024.real"
    flags = parse_flags(Flags, argv, prog=prog, description=__doc__)
    check_at_least("--runs", flags.runs, 0)
    study = STUDIES[flags.study]
    out = Path(flags.out or f"docs/gallery/{flags.study}")
    for folder in (flags.campaigns, out):
      check_writable(folder)
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
      write_figures(out, study.epochs)


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


def write_figures(out: Path, lengths: Sequence[int]) -> None:
  """Make the figures of kept predictions, figure 14 of the longest training."""
  for epochs in lengths:
    if not any(out.glob(f"predictions-{epochs}-*.npz")):
      raise UserError(f"no runs of {epochs} epochs in {out}: train some with --runs")
  places = ["--kept", str(out), "--out", str(out), "--epochs"]
  for script in OF_LENGTHS:
    script.main([*places, *map(str, lengths)])
  fig14.main([*places, str(lengths[-1])])


if __name__ == "__main__":
  main()
