"""What the runs of a folder share, and so what is drawn anew: the design of their numbers."""

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float, Integer

from vmapseeds import stats
from vmapseeds.results.description import parsed_attribute
from vmapseeds.results.formatting import count_of, joined
from vmapseeds.stats.designs import FOLD as FOLD_UNIT
from vmapseeds.stats.designs import LEAST_CROSSED
from vmapseeds.training.names import FOLD

SEED = "seed"
# Columns that tell the repeats of a cross-validation apart, beside one of folds.
REPEATS = ("repeat", "repetition", "rep")


def columns(results: xr.Dataset) -> list[str]:
  """Return the columns of the runs table with one number per run, seeds last."""
  # Coordinates of runs and examples are outputs.
  names = []
  for name, column in results.coords.items():
    if column.dims == ("run",):
      names.append(str(name))
  # False before True, and each in the order of the table.
  return sorted(names, key=lambda name: is_seed(results, name))


def is_seed(results: xr.Dataset, column: str) -> bool:
  """Return whether runs that differ in this column repeat one another: true of seeds,
  of networks that runs start from, and of folds.
  """
  if column in ("start", FOLD):
    return True
  return results[column].attrs.get("role") == "seed"


def seed_columns(results: xr.Dataset) -> dict[str, Integer[np.ndarray, " runs"]]:
  """Return column -> its values for the columns in which repetitions differ: seeds,
  where runs start, and folds.
  """
  seeds = {}
  for name in columns(results):
    if is_seed(results, name):
      seeds[name] = results[name].values
  return seeds


def seeds_by_source(results: xr.Dataset) -> dict[str, np.ndarray]:
  """Return the number of each run's seed, by source: of those whose seeds differ, folds
  among them. Sources that vary together are one.
  """
  numbers: dict[str, np.ndarray] = {}
  for column, seeds in seed_columns(results).items():
    source = str(results[column].attrs.get("source", column))
    # Seeds by the order in which they occur, so that sources that vary together agree.
    number = pd.factorize(seeds)[0]
    same = []
    for name, other in numbers.items():
      if np.array_equal(other, number):
        same.append(name)
    if same:
      numbers[f"{same[0]} and {source}"] = numbers.pop(same[0])
    elif number.any():
      numbers[source] = number
  return numbers


def design_of(results: xr.Dataset, values: Float[np.ndarray, " runs"]) -> stats.Design:
  """Return the design of a number of each run: which seeds, or folds, are drawn anew. Runs
  of the same ones are averaged over swept values, of which each needs all. Folds of other
  repeats of a cross-validation are other folds.

  Raises:
    UserError: most lack a run.
  """
  swept = {}
  for name in columns(results):
    if not is_seed(results, name):
      swept[name] = results[name].values
  folds = None
  drawn = results
  if FOLD in results.coords:
    repeats, folds = _folds_by_repeat(results)
    drawn = results.drop_vars([FOLD, *repeats])
  return stats.design(
    values,
    _drawn_seeds(drawn),
    over=swept,
    folds=folds,
    test_to_train=ratio_of_folds(results),
  )


def _folds_by_repeat(results: xr.Dataset) -> tuple[list[str], np.ndarray]:
  """Return the column with repeats of the cross-validation, if there is one, and a number
  of each run's fold, another one in each repeat.
  """
  columns = []
  for name in seed_columns(results):
    if results[name].attrs.get("source") in REPEATS:
      columns.append(name)
  labels = pd.DataFrame({name: results[name].values for name in [*columns, FOLD]})
  return columns, labels.groupby([*columns, FOLD]).ngroup().to_numpy()


def _drawn_seeds(results: xr.Dataset) -> dict[str, np.ndarray]:
  """Return seeds by what sentences call them: "seed" if all sources that vary do so
  together. The labels are the seeds, so that runs of two folders find their partners.
  """
  seeds = seed_columns(results)
  varying = {}
  for column, labels in seeds.items():
    if (labels != labels[:1]).any():
      varying[column] = labels
  by_source = seeds_by_source(results)
  if len(by_source) == 1:
    return {SEED: next(iter(varying.values()))}
  drawn = {}
  for source in by_source:
    first = source.split(" and ")[0]
    (column,) = [
      name for name in varying if results[name].attrs.get("source", name) == first
    ]
    drawn[f"{SEED} of {source}"] = varying[column]
  return drawn


def ratio_of_folds(results: xr.Dataset) -> float | None:
  """Return the size of a fold over that of the others together; None if runs have no
  folds of a known number.
  """
  if FOLD not in results.coords:
    return None
  kind, k, *_ = parsed_attribute(results, "sampling") or ("", None)
  count = k
  # Folds that were imported say nothing of their division.
  if not count or "k_fold" not in kind:
    repeats, folds = _folds_by_repeat(results)
    count = len(np.unique(folds))
    if repeats:
      count /= len(np.unique(results[repeats[0]].values))
  return 1 / max(1, count - 1)


def describe_units(design: stats.Design) -> str:
  """Return what is drawn anew, how many of it there are, and what intervals are not about;
  nothing of runs that share nothing.
  """
  if design.independent_runs:
    return ""
  counts = dict(zip(design.drawn, design.counts, strict=True))
  units = joined(_count_of(count, name) for name, count in counts.items())
  if design.crossed:
    text = (
      f"{units} are drawn anew, each with each of the others: standard errors of means "
      "are over all of them."
    )
    few = [plural(name) for name, count in counts.items() if count < LEAST_CROSSED]
    if few:
      text += f" Fewer than {LEAST_CROSSED} {joined(few)} give no interval."
    return text

  name = plural(design.drawn[0])
  if design.overlapping:
    train_to_test = f"{1 / design.test_to_train:.3g}"
    text = (
      f"{units} are drawn anew, with training sets of {train_to_test} test sets. These "
      "overlap, which standard errors allow for (Nadeau and Bengio 2003): an "
      "approximation, since no unbiased estimate exists (Bengio and Grandvalet 2004)."
    )
    text += " Nothing is said of other seeds."
    return text

  text = f"{units} are drawn anew"
  others = []
  if not design.averaged:
    text += ", of some of which there are several runs"
  else:
    averaged = [_count_of(count, name) for name, count in design.averaged.items()]
    text += f", each with its mean over {joined(averaged)}"
    others = [plural(name) for name in design.averaged]
  about = f"intervals are about other {name}"
  if others:
    # Folds hold all examples there are, so other examples would be other folds.
    if FOLD_UNIT in design.averaged:
      others.append("examples")
    about += f", not about other {joined(others, 'or')}"
  return f"{text}: {about}."


def plural(name: str) -> str:
  """Return "seeds of init" of "seed of init"."""
  first, *rest = name.split(" ")
  return " ".join([f"{first}s", *rest])


def _count_of(count: int, name: str) -> str:
  first, *rest = name.split(" ")
  return " ".join([count_of(count, first), *rest])
