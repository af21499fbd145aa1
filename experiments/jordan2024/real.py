"""Jordan's figures from many runs on real images, trained until nothing is left to learn:
does the part of the variance that is on the distribution vanish beside that on the test
set?

    python -m experiments.jordan2024.real mnist --runs 500    trains; run it again to resume, or with more runs
    python -m experiments.jordan2024.real mnist               figures of the runs that are there

Every length has as many runs as the others after each round of training, whenever it is
interrupted. The predictions of all runs are kept beside the figures, so that these need
no training, and so that another machine goes on where one stopped: it trains the seeds
that the kept predictions lack.
"""

import dataclasses
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool
from tyro.conf import Positional, arg

import vmapseeds as vs
from experiments import frame, gallery
from experiments.airbench import airbench94_cifar10, airbench94_muon_cifar10
from experiments.jordan2024 import (
  fig01_accuracies,
  fig02_halves,
  fig03_independent_errors,
  fig05_distribution_variance,
  fig13_binomial,
  fig14_dependent_pairs,
  share,
)
from experiments.jordan2024.campaigns import DURATIONS
from vmapseeds import lanes, stats
from vmapseeds.campaign.options import hint
from vmapseeds.cli import mistakes, parse
from vmapseeds.mistakes import Mistake, at_least
from vmapseeds.results.opening import converged
from vmapseeds.store import files
from vmapseeds.store.folders import check_writable
from vmapseeds.store.results import Results
from vmapseeds.training.identity import hash_of
from vmapseeds.training.supervised import load_dataset

FIGURES = (
  share,
  fig01_accuracies,
  fig02_halves,
  fig03_independent_errors,
  fig05_distribution_variance,
  fig13_binomial,
  fig14_dependent_pairs,
)


class Study(NamedTuple):
  """What is trained, for how long, and how many runs between two writes."""

  recipe: vs.Recipe
  epochs: tuple[int, int, int, int]
  seed_batch: int


# A hidden layer of 64 units: after 12 epochs it is right on 99.9 % of the training set.
MLP_MNIST = vs.Recipe(
  name="mlp_mnist",
  dataset="mnist",
  model="mlp",
  width=0.5,
  epochs=12,
  batch_size=200,
  lr=0.1,
  momentum=0.9,
  optimizer="nesterov",
  schedule="linear",
)
STUDIES = {
  "mnist": Study(MLP_MNIST, (0, 1, 4, 12), 250),
  "airbench_quarter": Study(airbench94_cifar10.replace(width=0.25), (0, 2, 5, 10), 2),
  "airbench_half": Study(airbench94_cifar10.replace(width=0.5), (0, 2, 5, 10), 2),
  "muon_quarter": Study(airbench94_muon_cifar10.replace(width=0.25), (0, 2, 4, 8), 2),
}


@dataclasses.dataclass(frozen=True)
class Flags:
  """Trains runs of four lengths, keeps their predictions, and makes the paper's figures
  from these.
  """

  study: Positional[Annotated[Literal[*STUDIES], arg(metavar="STUDY")]]
  """mnist: a small network on all of MNIST; airbench_quarter, airbench_half: the fast
  recipe of CIFAR-10 at a part of its width; muon_quarter: its form with Muon"""

  runs: Annotated[int, arg(metavar="N")] = 0
  """train until there are so many runs of each length"""

  campaigns: Annotated[str, arg(metavar="DIR")] = "results/campaigns"
  """folder of trained runs"""

  out: Annotated[str | None, hint("DIR", "docs/gallery/<study>")] = None
  """folder for predictions, numbers, pictures and the page"""

  note: Annotated[str, hint("TEXT", "none")] = ""
  """a remark for the page, e.g. that a data set is a re-encoded copy"""


def main(argv: Sequence[str] | None = None) -> None:
  with mistakes():
    prog = "python -m experiments.jordan2024.real"
    flags = parse(Flags, argv, prog=prog, description=__doc__)
    at_least("--runs", flags.runs, 0)
    study = STUDIES[flags.study]
    out = Path(flags.out or f"docs/gallery/{flags.study}")
    for folder in (flags.campaigns, out):
      check_writable(folder)
    gallery.check_same(out, "jordan2024", flags.study)
    places = [Path(flags.campaigns, f"{flags.study}-{e}") for e in study.epochs]
    if flags.runs:
      train(study, places, out, flags.runs)
    out.mkdir(parents=True, exist_ok=True)
    for epochs, place in zip(study.epochs, places, strict=True):
      if (place / "zarr.json").exists():
        export(
          place, out / f"predictions-{epochs}-{first_seed(place, out, epochs)}.npz"
        )
    draw(out, flags.study, flags.note)
    print(f"wrote {out / 'index.html'}")


def train(study: Study, places: Sequence[Path], out: Path, runs: int) -> None:
  """Trains the runs that are missing, a seed batch of each length in turn."""
  lanes.start_jax()
  for upto in range(study.seed_batch, runs + study.seed_batch, study.seed_batch):
    for epochs, place in zip(study.epochs, places, strict=True):
      first, there = first_seed(place, out, epochs), 0
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
  return sum(record["runs"] for _, record in parts(out, epochs))


def parts(out: Path, epochs: int) -> list[tuple[dict[str, np.ndarray], dict[str, Any]]]:
  """Return the kept predictions of a length and how they were made, by the first seed of
  the folders they are from.
  """
  found = []
  for path in out.glob(f"predictions-{epochs}-*.npz"):
    with np.load(path, allow_pickle=False) as file:
      arrays = dict(file)
    record = json.loads(str(arrays.pop("record")))
    found.append((int(path.stem.rpartition("-")[2]), arrays, record))
  found.sort(key=lambda part: part[0])
  return [(arrays, record) for _, arrays, record in found]


def export(place: Path, path: Path) -> None:
  """Writes the predictions of a folder's finished runs, examples first: the runs hardly
  differ on most of them, and such rows take little space.
  """
  results = vs.open_results(place)
  finished = results.isel(run=converged(results))
  records = [Results(place).record(b) for b in Results(place).finished_blocks()]
  recipe = vs.Recipe.from_json(records[0]["recipe"])
  record = {
    "recipe": json.loads(recipe.to_json()),
    "runs": results.sizes["run"],
    "diverged": int(results.diverged.sum()),
    "identity": hash_of(results.attrs["identity"]),
    **frame.written(place),
    "seconds": sum(r["seconds"] for r in records),
    **{condition: results.attrs[condition] for condition in frame.CONDITIONS},
  }
  stream = io.BytesIO()
  np.savez_compressed(
    stream,
    predictions=finished.predictions.values.T.astype(np.int8),
    labels=finished.labels.values.astype(np.int8),
    record=np.array(json.dumps(record)),
  )
  files.write(path, stream.getvalue())


class Stored:
  """Predictions that were exported, as figures read campaigns (`frame.Trained`)."""

  paper = "jordan2024"

  def __init__(self, out: Path, scale: str):
    self.scale, self._out = scale, out
    self.used: dict[str, dict[str, Any]] = {}
    self._read: dict[str, dict[str, np.ndarray]] = {}

  def __call__(self, name: str) -> dict[str, np.ndarray]:
    """Return the predictions of a length, (examples, runs), and the labels."""
    if name not in self._read:
      recipe, epochs = STUDIES[self.scale].recipe, self.epochs(name)
      found = parts(self._out, epochs)
      if not found:
        raise Mistake(
          f"no runs of {epochs} epochs in {self._out}: train some with --runs"
        )
      examples = frame.examples_of(str(recipe.dataset), recipe)
      said = f"{recipe.name}, {examples:,} training examples of {recipe.dataset}"
      for i, (_, record) in enumerate(found, 1):
        of = name if i == 1 else f"{name}, part {i}"
        self.used[of] = record | {"trained_on": said}
      together = np.hstack([arrays["predictions"] for arrays, _ in found])
      self._read[name] = found[0][0] | {"predictions": together}
    return self._read[name]

  def errors(self, name: str) -> Bool[np.ndarray, "runs examples"]:
    found = self(name)
    return found["labels"] != found["predictions"].T

  def tallies(self, name: str, *, pairs: bool = False) -> stats.Tallies:
    found = self(name)
    predictions = found["predictions"].T.astype(np.int32)
    num_classes = int(found["labels"].max()) + 1
    return stats.tally(
      predictions, found["labels"].astype(np.int32), num_classes, pairs=pairs
    )

  def epochs(self, name: str) -> int:
    return STUDIES[self.scale].epochs[DURATIONS.index(name)]

  def images(self, name: str) -> np.ndarray:
    return load_dataset(STUDIES[self.scale].recipe).tests["test"].inputs


def draw(out: Path, scale: str, note: str) -> None:
  """Makes the figures and the page from exported predictions."""
  names = []
  for module in FIGURES:
    stored = Stored(out, scale)
    frame.write(out, stored, module, module.compute(stored), note)
    names.append(module.__name__.rpartition(".")[2])
    frame.show_rows(gallery.write(out, "jordan2024", names, f"real {scale}")[names[-1]])


if __name__ == "__main__":
  main()
