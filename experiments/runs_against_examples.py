"""More runs, or more test examples? The variance of an accuracy, and of a difference
between two learning rates, by what is drawn anew.

    python -m experiments.runs_against_examples --runs results/crossed --groups 64    trains; run it again to resume
    python -m experiments.runs_against_examples     the numbers, from the kept errors

A group has two seeds of each source: initialisation, order, augmentation and training
sample, all 16 combinations of them, at both learning rates. Other groups share nothing
with it. All runs are tested on the same examples. So each component of variance is known
from as many independent groups, whatever its law.
"""

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Bool, Float

import vmapseeds as vs
from experiments import frame, pages
from vmapseeds.cli import one_line_errors
from vmapseeds.flags import metavar, parse_flags
from vmapseeds.store import files

FOLDER = "runs_against_examples"
SOURCES = {
  "init": "initialisation",
  "order": "order",
  "augment": "augmentation",
  "data": "training sample",
}
CELLS = 2 ** len(SOURCES)  # of a group
RATES = (0.1, 0.05)
EPOCHS = (2, 8, 32)
TRAINED_ON = 1000  # examples, drawn anew for each seed
MLP = vs.Recipe(
  name="mlp_mnist",
  dataset="mnist",
  model="mlp",
  width=0.5,
  epochs=EPOCHS[-1],
  batch_size=50,
  lr=RATES[0],
  momentum=0.9,
  optimizer="nesterov",
  schedule="linear",
  augment="translate=2",
)


class Component(NamedTuple):
  """A variance with its 95 % interval over other groups. It may be estimated below 0."""

  value: float
  low: float
  high: float


class Shares(NamedTuple):
  """A variance between runs by source, as Sobol has it."""

  whole: Component  # where all sources are drawn anew
  first: dict[str, Component]  # of the mean over all other sources
  total: dict[str, Component]  # where this source alone is drawn anew
  interactions: Component  # the whole less the first of each


class Variances(NamedTuple):
  """Of an error rate, or of a difference of two."""

  groups: int
  mean: float  # the error rate, or its difference
  runs: Shares  # on endlessly many examples
  both: Shares  # by example: divided by their number on a test set
  example: Component  # of the mean over runs, between examples: likewise


def runs_of(groups: int) -> vs.Runs:
  """Return the runs of groups: their sources' seeds are 2g and 2g + 1 in group g."""
  cells = np.array([*itertools.product((0, 1), repeat=len(SOURCES))])
  seeds = (2 * np.arange(groups)[:, None, None] + cells).reshape(-1, len(SOURCES))
  columns = {
    f"seed_{source}": seeds[:, k].astype(np.uint32) for k, source in enumerate(SOURCES)
  }
  columns["seed_dropout"] = np.zeros(len(seeds), np.uint32)
  table = vs.Runs.from_columns(columns, (*SOURCES, "dropout")).subset(TRAINED_ON)
  return vs.Runs.sweep(seeds=table, lr=RATES)


def train(folder: str, groups: int, epochs: int) -> Bool[np.ndarray, "..."]:
  """Train the runs that are missing, and return the errors, (groups, cells, rates,
  examples).
  """
  place = f"{folder}-{epochs}"
  results = vs.train(MLP.replace(epochs=epochs), runs_of(groups), place, seed_batch=128)
  return by_group(vs.error_matrix(results))


def by_group(errors: Bool[np.ndarray, "runs examples"]) -> Bool[np.ndarray, "..."]:
  """Return the errors of whole groups, (groups, cells, rates, examples)."""
  errors = np.asarray(errors)
  runs = CELLS * len(RATES)
  whole = errors[: len(errors) // runs * runs]
  return whole.reshape(-1, CELLS, len(RATES), errors.shape[1])


def keep(path: Path, errors: Bool[np.ndarray, "groups cells rates examples"]) -> None:
  """Write errors as bits, examples first: rows of few ones take little space."""
  rows = errors.reshape(-1, errors.shape[-1]).T
  np.savez_compressed(path, bits=np.packbits(rows, axis=1), shape=errors.shape)


def read_kept(path: Path) -> Bool[np.ndarray, "groups cells rates examples"]:
  with np.load(path) as file:
    shape = tuple(file["shape"])
    rows = np.unpackbits(file["bits"], axis=1, count=int(np.prod(shape[:-1])))
  return rows.T.astype(bool).reshape(shape)


def names_of_sets() -> list[str]:
  """Return what is drawn anew in each contrast, in the order of `contrasts`."""
  sets = []
  for flags in itertools.product((0, 1), repeat=len(SOURCES)):
    drawn = [source for source, flag in zip(SOURCES, flags, strict=True) if flag]
    sets.append(", ".join(drawn))
  return sets


def contrasts() -> Float[np.ndarray, "sets cells"]:
  """Return the orthonormal contrasts of a group's cells: the sign of a cell in a set's
  contrast changes with the seed of each source of the set.
  """
  one = np.array([[1, 1], [1, -1]]) / np.sqrt(2)
  matrix = np.ones((1, 1))
  for _ in SOURCES:
    matrix = np.kron(matrix, one)
  return matrix


def decompose(x: Float[np.ndarray, "groups cells examples"]) -> Variances:
  """Take the variance of x apart: errors, or differences of errors.

  The mean square of a set's contrast is Σ_B 2^(k - |B|) σ²_B over all sets B that
  include it, of k sources: the sum is undone from the largest set on. The products of
  different examples have σ² on endlessly many examples.
  """
  groups, _, examples = x.shape
  c = np.einsum("sc,gcx->gsx", contrasts(), x)
  sums = c.sum(2)
  squares = (c**2).sum(2)
  distinct = (sums**2 - squares) / (examples * (examples - 1))
  same = squares / examples
  mean = c[:, 0] / np.sqrt(CELLS)  # over cells, by group and example
  return Variances(
    groups,
    float(x.mean()),
    shares_of(components(distinct)),
    shares_of(components(same - distinct)),
    between_examples(mean),
  )


def shares_of(by_set: Mapping[str, Float[np.ndarray, " groups"]]) -> Shares:
  """Return the shares of the sources, with their intervals over groups."""
  whole = sum(by_set.values())
  first = {source: by_set[source] for source in SOURCES}
  total = {}
  for source in SOURCES:
    # All sets that this source is in
    total[source] = sum(x for name, x in by_set.items() if source in name.split(", "))
  return Shares(
    over_groups(whole),
    {source: over_groups(values) for source, values in first.items()},
    {source: over_groups(values) for source, values in total.items()},
    over_groups(whole - sum(first.values())),
  )


def components(
  mean_squares: Float[np.ndarray, "groups sets"],
) -> dict[str, Float[np.ndarray, " groups"]]:
  """Return each set's component of variance from every group alone."""
  names = names_of_sets()
  found = {}
  for k, name in enumerate(names):
    if not name:
      continue
    # Inclusion and exclusion over the sets that include this one
    total = np.zeros(len(mean_squares))
    for other in range(len(names)):
      if other & k == k:
        sign = (-1) ** (other ^ k).bit_count()
        total = total + sign * mean_squares[:, other]
    found[name] = total / 2 ** (len(SOURCES) - k.bit_count())
  return found


def over_groups(values: Float[np.ndarray, " groups"]) -> Component:
  """Return the mean over groups with Student's interval."""
  value = float(values.mean())
  se = values.std(ddof=1) / np.sqrt(len(values))
  reach = scipy.stats.t.isf(0.025, len(values) - 1) * se
  return Component(value, value - reach, value + reach)


def between_examples(mean: Float[np.ndarray, "groups examples"]) -> Component:
  """Return the variance between examples of the mean over all runs, from products of
  different groups, with the interval over other examples.
  """
  groups, examples = mean.shape
  sums = mean.sum(0)
  # Of each example, the mean over pairs of different groups
  squared = (sums**2 - (mean**2).sum(0)) / (groups * (groups - 1))
  centre = sums.mean() / groups
  value = float(squared.mean() - centre**2)
  # The influence of an example on that variance
  influence = squared - 2 * centre * sums / groups
  reach = 1.96 * influence.std(ddof=1) / np.sqrt(examples)
  return Component(value, value - reach, value + reach)


def standard_error(n: Variances, runs: np.ndarray, examples: np.ndarray) -> np.ndarray:
  """Return the standard error of a mean over runs on a test set, all drawn anew."""
  runs = np.asarray(runs, float)
  examples = np.asarray(examples, float)
  of_seeds, of_both = max(n.runs.whole.value, 0), max(n.both.whole.value, 0)
  return np.sqrt(
    of_seeds / runs + max(n.example.value, 0) / examples + of_both / (runs * examples)
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
  """Trains crossed runs, keeps their errors, and takes their variance apart."""

  runs: Annotated[str | None, metavar("DIR", "none are trained")] = None
  """where the folders of runs begin: a folder for each length of training"""

  groups: frame.Count = 64
  """groups of 32 runs of each length"""

  epochs: tuple[int, ...] = EPOCHS
  """lengths to train"""

  out: Annotated[Path, metavar("DIR")] = pages.GALLERY
  """the gallery's folder"""


def main(argv: Sequence[str] | None = None) -> None:
  with one_line_errors():
    prog = "python -m experiments.runs_against_examples"
    flags = parse_flags(Flags, argv, prog=prog, description=__doc__)
    (flags.out / FOLDER).mkdir(exist_ok=True)
    if flags.runs:
      for epochs in flags.epochs:
        errors = train(flags.runs, flags.groups, epochs)
        keep(flags.out / FOLDER / f"errors-{epochs}.npz", errors)
    for epochs, of_length in recompute(flags.out).items():
      print(epochs, of_length["accuracy"].groups, "groups")


def recompute(out: Path) -> Mapping[int, Mapping[str, Variances]]:
  """Write the numbers of the page anew, from the kept errors."""
  found = {}
  for epochs in EPOCHS:
    path = out / FOLDER / f"errors-{epochs}.npz"
    if path.exists():
      errors = read_kept(path).astype(np.float64)
      found[epochs] = {
        "accuracy": decompose(errors[:, :, 0]),
        "difference": decompose(errors[:, :, 0] - errors[:, :, 1]),
      }
  text = json.dumps(frame.plain(found), indent=1, allow_nan=False) + "\n"
  files.write(out / FOLDER / "numbers.json", text.encode())
  return found


if __name__ == "__main__":
  main()
