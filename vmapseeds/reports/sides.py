"""The two sides of a comparison: which runs of a folder, which number of each, and which
runs of the other side belong to them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from vmapseeds import stats
from vmapseeds.errors import UserError, check_one_of, option
from vmapseeds.reports import groups, pages
from vmapseeds.reports.groups import Where, format_values
from vmapseeds.reports.sources import MOST_READ, Source, open_source
from vmapseeds.reports.summaries import format_setting, say_undefined, settings_of
from vmapseeds.results.formatting import difference_of_labels
from vmapseeds.results.measured_runs import roles, values_of_runs
from vmapseeds.results.opening import (
  COUNTS,
  class_names_of,
  converged_runs,
  load_into_memory,
  with_role,
)
from vmapseeds.results.roles import ROLES, Role
from vmapseeds.results.score_tables import TASK
from vmapseeds.results.units import design_of, seed_columns
from vmapseeds.training.names import EXAMPLE_ID, NOT_ASKED

# What pairs of runs have in common.
ROW_BY_ROW = "rows of the same number"
SAME_SEEDS = "the same seeds"


class Side(NamedTuple):
  """Runs of A or of B, and what is compared of them."""

  folder: Any
  where: Where
  name: str
  output: str
  results: xr.Dataset  # the output's number of each run under its name
  opened: xr.Dataset  # the same runs, with all of their arrays, not read
  tested: Any  # labels, or how many examples
  levels: Mapping[str, Any] = {}  # columns that runs are averaged over -> their values
  undefined: str = ""  # a sentence, if the output is undefined in some of the runs
  # Where each test example of the first side is among those of this one; None at its own
  # place.
  order: np.ndarray | None = None

  @property
  def info(self) -> Mapping[str, Any]:
    """Return what the output says of itself: its role, labels, unit."""
    return self.results.attrs["roles"][self.output]

  @property
  def first_output(self) -> str:
    return next(iter(self.results.attrs["roles"]))

  @property
  def role(self) -> Role:
    return ROLES[self.info["role"]]

  @property
  def ids(self) -> np.ndarray | None:
    """Return the ids of the test examples, if they have some."""
    if EXAMPLE_ID in self.results.variables:
      return self.results[EXAMPLE_ID].values
    return None

  @property
  def class_names(self) -> Sequence[str] | None:
    # Tables of scores, and means over columns, have no labels.
    if self.info.get("labels") in self.results.variables:
      return class_names_of(self.results[self.info["labels"]])
    return None

  @property
  def values(self) -> np.ndarray:
    return self.results[self.output].values

  @property
  def finite_values(self) -> np.ndarray:
    """Return the numbers of the runs that have one: that did not diverge, and of which
    the output is defined.
    """
    return self.values[np.isfinite(self.values)]

  @property
  def design(self) -> stats.Design:
    """Return what is drawn anew of the runs that did not diverge."""
    return design_of_rows(self, np.flatnonzero(np.isfinite(self.values)))

  @property
  def examples(self) -> int:
    """Return how many test examples the values are about, 0 for scores."""
    if not self.role.parts:
      return 0
    if isinstance(self.tested, tuple):
      return int(np.prod(self.tested))
    return int(np.prod(self.tested.shape))


def read_side(
  folder: Any,
  where: Where,
  chosen_by: str,
  test_set: str,
  epoch: int | None,
  output: str | None,
  over: Sequence[str] = (),
) -> Side:
  """Read the selected runs of a folder, without predictions, logits and counts. Those of
  the same seeds are averaged over the columns `over`.
  """
  opened = open_source(folder, test_set, epoch).drop_dims("epoch", errors="ignore")
  # Predictions without labels say which runs disagree, not which are better.
  outputs = {n: info for n, info in roles(opened).items() if info["role"] != "vote"}
  if not outputs:
    raise UserError(
      f"{folder} has predictions without labels, which say not which runs are better: "
      "give labels, or take vmapseeds report for how often runs disagree"
    )
  name = output
  if name is None:
    name = next(iter(outputs))
  check_one_of("output", name, outputs)
  info = outputs[name]
  shape = np.shape(opened.get(name, 0))[1:]
  results = without_large_arrays(
    opened.assign_attrs(roles=outputs), name, ROLES[info["role"]]
  )
  results = load_into_memory(results, folder)
  try:
    results = results.assign({name: ("run", values_of_runs(results, name))})
    results = groups.select_runs(results, where)
    opened = groups.select_runs(opened, where)
    # Tasks are not what is asked about.
    task = tasks_of(results)
    if over and task:
      over = list(dict.fromkeys([*over, task]))
    groups.check_columns(results, over)
    known = {*(where or ()), *over, *filter(None, [task])}
    groups.check_not_pooled(results, known, chosen_by)
    undefined = _say_undefined(results, name)
    levels = {column: groups.values_of(results, column) for column in over}
    if over:
      results = opened = averaged_over(results, name, over)
  except UserError as mistake:
    raise UserError(f"{folder}: {mistake}") from None

  # Under label maps only the data set's own labels say that examples are the same.
  labels = results.get(info.get("labels", ""), shape)
  tested = results.get("original_labels", labels)
  after = ""
  if epoch is not None:
    after = f"epoch={epoch}"
  title = pages.join_names(str(folder), format_values(where), after)
  return Side(folder, where, title, name, results, opened, tested, levels, undefined)


def _say_undefined(results: xr.Dataset, name: str) -> str:
  """Return a sentence if an output's number, (run,), is undefined in some of the runs
  that did not diverge; else "".
  """
  values = results[name].values[converged_runs(results)]
  undefined = int((~np.isfinite(values)).sum())
  if not undefined:
    return ""
  return say_undefined(name, undefined, len(values))


def sides_by_value(
  source: Source,
  by: str | Sequence[str],
  where: Where,
  read: Callable[..., Side],
) -> dict[str, Side]:
  """Return a side for each combination of values of the columns `by`, by their names.

  Raises:
    UserError: there is one alone.
  """
  by = [by] if isinstance(by, str) else list(by)
  opened = groups.select_runs(open_source(source), where)
  sides = {}
  for values, _ in groups.group_runs(opened, by):
    name = format_values(values)
    # A text alone says what it is.
    if len(values) == 1 and isinstance(values[by[0]], str):
      name = str(values[by[0]])
    sides[name] = read(source, {**(where or {}), **values}, "where")
  if len(sides) < 2:
    raise UserError(
      f"all runs of {source} have {next(iter(sides))}: give columns with two values or "
      f"more as {option('by')}"
    )
  return sides


def tasks_of(results: xr.Dataset) -> str | None:
  """Return the column with tasks, if there are several."""
  for name in groups.swept_columns(results):
    if results[name].attrs.get("role") == TASK:
      return name
  return None


def without_large_arrays(results: xr.Dataset, name: str, role: Role) -> xr.Dataset:
  """Return results without logits, counts, and predictions whose accuracy is known."""
  unread = set(with_role(results, "logits")).union(COUNTS)
  # Predictions are the largest array, and the accuracy of each run is stored.
  if "accuracy" in results.variables and role.has_votes:
    unread.add(name)
  return results.drop_vars(unread, errors="ignore")


def averaged_over(results: xr.Dataset, name: str, over: Sequence[str]) -> xr.Dataset:
  """Return the means of an output's numbers over all values of the columns `over`, of runs
  that agree in all seeds: a run for each seeds.

  Raises:
    UserError: runs have no seeds, or none has all values.
  """
  seeds = seed_columns(results)
  table = pd.DataFrame({column: results[column].values for column in (*seeds, *over)})
  if not seeds or table.duplicated().any():
    raise UserError(
      f"runs do not differ by their seeds and {', '.join(over)} alone: name the other "
      "columns in where, or in over"
    )
  table["number"] = results[name].values
  # A seed that lacks a value, or of which a run diverged, is left out.
  wide = table.pivot(index=list(seeds), columns=list(over), values="number")
  count = np.prod([len(groups.values_of(results, column)) for column in over])
  whole = wide.dropna()
  if wide.shape[1] < count or not len(whole):
    raise UserError(f"no seeds have runs of all {count} values of {', '.join(over)}")
  labels = whole.index.to_frame()
  columns = {
    column: ("run", labels[column].to_numpy(), results[column].attrs)
    for column in seeds
  }
  means = whole.mean(axis=1).to_numpy()
  return xr.Dataset({name: ("run", means, results[name].attrs)}, columns, results.attrs)


def match(
  ours: Side, theirs: Side, paired: bool | None
) -> tuple[list[np.ndarray], tuple[stats.Design, stats.Design], str]:
  """Return the rows of the runs that have a number, those of a pair at the same place;
  what is drawn anew of them, of pairs with the same labels; and what paired runs have in
  common (empty if they are not paired).
  """
  rows, matching = _matched_rows(ours, theirs, paired)
  a = design_of_rows(ours, rows[0])
  if matching == ROW_BY_ROW:
    # Pairs have the labels of A: B's may be others, or none.
    b = design_of(ours.results.isel(run=rows[0]), theirs.values[rows[1]])
  else:
    b = design_of_rows(theirs, rows[1])
  return rows, (a, b), matching


def _matched_rows(
  ours: Side, theirs: Side, paired: bool | None
) -> tuple[list[np.ndarray], str]:
  kept_a = np.isfinite(ours.values)
  kept_b = np.isfinite(theirs.values)
  if paired:
    if len(kept_a) != len(kept_b):
      raise UserError(
        f"{ours.name} has {len(kept_a)} finished runs and {theirs.name} "
        f"{len(kept_b)}: to pair them row by row, give as many of each"
      )
    # A pair of which one has no number is left out whole.
    kept_a = kept_b = kept_a & kept_b

  for side, kept in ((ours, kept_a), (theirs, kept_b)):
    if not kept.any():
      missing = "runs that did not diverge"
      if paired:
        missing = f"pairs of which neither diverged, with {theirs.name}"
      remedy = "train some first"
      if ours.undefined or theirs.undefined:
        missing += f" and of which {side.output} is defined"
        remedy = "choose another output"
      raise UserError(f"{side.name} has no finished {missing}: {remedy}")

  rows_a, rows_b = np.flatnonzero(kept_a), np.flatnonzero(kept_b)
  if paired:
    return [rows_a, rows_b], ROW_BY_ROW
  if paired is None:
    same_seeds = _rows_of_same_seeds(ours, rows_a, theirs, rows_b)
    if same_seeds is not None:
      return same_seeds, SAME_SEEDS
  return [rows_a, rows_b], ""


def design_of_rows(side: Side, rows: np.ndarray) -> stats.Design:
  """Return what is drawn anew of some runs.

  Raises:
    UserError: they share seeds, and too few of these have all runs.
  """
  try:
    return design_of(side.results.isel(run=rows), side.values[rows])
  except UserError as mistake:
    raise UserError(
      f"{side.name}: {mistake}; train those that are missing, or choose others"
    ) from None


def _rows_of_same_seeds(
  ours: Side, our_rows: np.ndarray, theirs: Side, their_rows: np.ndarray
) -> list[np.ndarray] | None:
  """Return the rows of runs that have the same seeds on both sides; None if seeds do not
  say which runs belong together, or belong to too few.
  """
  our_seeds = seed_columns(ours.results)
  their_seeds = seed_columns(theirs.results)
  names = list(our_seeds)
  if not names or names != list(their_seeds):
    return None

  our_table = pd.DataFrame(our_seeds).iloc[our_rows]
  their_table = pd.DataFrame(their_seeds).iloc[their_rows]
  # If they repeat (a sweep), they do not say which runs belong together.
  if our_table.duplicated().any() or their_table.duplicated().any():
    return None

  pairs = our_table.assign(row=our_rows).merge(
    their_table.assign(row=their_rows), on=names
  )
  # With few common seeds, such as one run where each side varies another source,
  # pairs would leave out most runs.
  if 2 * len(pairs) <= min(len(our_rows), len(their_rows)):
    return None
  return [pairs.row_x.to_numpy(), pairs.row_y.to_numpy()]


def in_order_of(first: Side, other: Side) -> Side:
  """Return another side with its test examples in the order of the first one's, by their
  ids, and with labels that mean the same classes, by their names.

  Raises:
    UserError: they have ids, and not the same ones.
  """
  order = None
  if first.ids is not None and other.ids is not None:
    order = _order_by_ids(first, other, first.ids, other.ids)
  labels = other.tested
  if _has_label_vector(first) and _has_label_vector(other):
    if order is not None:
      labels = labels[order]
    names, its_names = first.class_names, other.class_names
    if names and its_names and set(names) == set(its_names):
      # Classes of the same names in another order have other numbers.
      number = np.array([names.index(name) for name in its_names])
      labels = labels.copy(data=number[np.asarray(labels)])
  return other._replace(tested=labels, order=order)


def _order_by_ids(
  first: Side, other: Side, ids: np.ndarray, its_ids: np.ndarray
) -> np.ndarray | None:
  """Return where each of the first side's ids is among those of the other; None if they
  are in one order.
  """
  if np.array_equal(ids, its_ids):
    return None
  places = pd.Index(its_ids)
  missing = sorted(set(ids.tolist()) ^ set(its_ids.tolist()))
  if missing or not places.is_unique:
    raise UserError(
      f"{first.name} and {other.name} were tested on different examples, by their ids, "
      f"such as {missing[0] if missing else 'one that is there twice'}: compare results of "
      "one test set"
    )
  return places.get_indexer(pd.Index(ids))


def check_comparable(first: Side, other: Side) -> None:
  """Raise `UserError` if means of the two sides are not about the same values and examples."""
  if other.levels != first.levels:
    raise UserError(
      f"{first.name} is averaged over {format_values(first.levels)}, {other.name} over "
      f"{format_values(other.levels)}: give runs of the same values"
    )
  if np.array_equal(first.tested, other.tested):
    return
  difference = ""
  if _has_label_vector(first) and _has_label_vector(other):
    labels = np.asarray(first.tested), np.asarray(other.tested)
    difference = f", {difference_of_labels(*labels)}"
  raise UserError(
    f"{first.name} and {other.name} were tested on different examples{difference}: "
    "compare results of one test set"
  )


def _has_label_vector(side: Side) -> bool:
  return not isinstance(side.tested, tuple) and np.ndim(side.tested) <= 1


def which_sources_vary(side: Side) -> dict[str, bool]:
  """Return whether its seeds differ between runs, for each source that training reads, as
  far as is known.
  """
  attrs = side.results.attrs
  settings = json.loads(attrs["recipe"])
  own_model = isinstance(settings.get("model"), dict)
  unread = {
    "data": attrs.get("sampling") is None and "model" in settings,
    "augment": settings.get("augment") == "",
    "dropout": settings.get("dropout") == 0 and not own_model,
  }
  varying = {}
  for column, seeds in seed_columns(side.results).items():
    source = column.removeprefix("seed_")
    # Seeds of a source that training does not read change nothing.
    if not unread.get(source):
      varying[source] = bool((seeds != seeds[:1]).any())
  return varying


def performance_on_examples(side: Side, rows: np.ndarray) -> np.ndarray | None:
  """Return each run's performance on each example: whether it is right, or its loss
  with the sign changed. None if that is not kept, or too much to read.
  """
  if side.levels:
    return None
  if not side.role.parts or side.output not in side.opened:
    return None
  outputs = side.opened[side.output]
  if outputs.nbytes > MOST_READ:
    return None

  outputs = outputs.isel(run=rows)
  if not side.role.has_votes:
    performance = -side.role.numbers(side.opened.isel(run=rows), side.output)
    is_missing = np.isnan(performance)
  else:
    labels = side.opened[side.info["labels"]]
    # If label maps differ between runs, each run has labels of its own.
    if "run" in labels.dims:
      labels = labels.isel(run=rows)
    performance = (outputs == labels).values
    is_missing = outputs.values == NOT_ASKED
  # Runs that were asked for different examples have no performance on the others.
  if is_missing.any():
    return None
  performance = performance.reshape(len(rows), -1)
  if side.order is not None:
    performance = performance[:, side.order]
  return performance


def settings_of_side(side: Side) -> dict[str, str]:
  """Return the recipe's settings as texts, those that runs have in columns as they have
  them.
  """
  settings = settings_of(side.results, side.results)
  # A recorder's runs may have columns that are no setting of a recipe.
  for name, values in (side.where or {}).items():
    settings[name] = np.atleast_1d(values).tolist()
  # They are in columns, too.
  settings.pop("values", None)
  return {name: format_setting(value) for name, value in settings.items()}
