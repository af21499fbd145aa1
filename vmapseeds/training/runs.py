"""The runs table: what differs between repeats, as columns whose first axis is the run."""

import dataclasses
import functools
import json
import math
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import pandas as pd
from jax.typing import ArrayLike
from jaxtyping import Array, Integer, Key, Shaped, UInt8, UInt32

from vmapseeds.data import splits
from vmapseeds.errors import (
  UnknownField,
  UserError,
  check_at_least,
  check_number,
  check_one_of,
  hide_own_frames_of_methods,
  is_bool,
  whole_number,
)
from vmapseeds.training.names import (
  FOLD,
  FOLD_GROUPS,
  MADE_COLUMNS,
  SOURCES,
  seed_column,
)
from vmapseeds.training.objects import is_import, name_of
from vmapseeds.training.recipes import FIELDS, value_of_text

MAX_RUNS = 10**7
TEXT_BYTES = 120  # of a name in a results folder
# How the data seed chooses a run's training examples, as results folders name it.
SUBSET = "subset"
BOOTSTRAP = "bootstrap"
OUT_OF_BOOTSTRAP = "out_of_bootstrap"
K_FOLD = "k_fold"
STRATIFIED = "stratified_k_fold"
# Those that draw for each seed apart.
DRAWS: dict[str, Callable[..., Any]] = {
  SUBSET: splits.subset,
  BOOTSTRAP: splits.draw_bootstrap_sample,
  OUT_OF_BOOTSTRAP: splits.out_of_bootstrap,
}
# Ways to choose training examples of all that a data set has; others are held out.
POOLED = (OUT_OF_BOOTSTRAP, K_FOLD, STRATIFIED)

# An array: JAX's where it is traced, NumPy's in a table, or a `jax.ShapeDtypeStruct`
Leaf = Any


def source_key(source: str, seed: np.uint32 | UInt32[Array, ""]) -> Key[Array, ""]:
  """Return the key of a source's seed.

  Sources have different streams. Names other than `SOURCES` are hashed to 31 bits.
  """
  if source in SOURCES:
    number = SOURCES.index(source)
  else:
    number = len(SOURCES) + zlib.crc32(source.encode()) % 2**31
  # Threefry, whatever JAX's default is: with other generators, draws under vmap depend
  # on a lane's neighbours.
  return jax.random.fold_in(jax.random.key(number, impl="threefry2x32"), seed)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Run:
  """One row of the runs table as the training sees it.

  Its entries are traced, so that new values need no new compilation.
  `run.key("init")` is the key of a source of randomness, `run["lr"]` the entry of a
  column, and `run.get("subset")` is None where the table has no such column.
  """

  seeds: Mapping[str, Leaf]
  values: Mapping[str, Leaf]
  # Values that Python code reads. They are numbers, and compiled in.
  fixed: tuple[tuple[str, float], ...] = dataclasses.field(
    default=(), metadata=dict(static=True)
  )

  def key(self, source: str) -> Key[Array, ""]:
    """Return the key of a source of randomness: a function of its seed alone."""
    check_one_of("source of randomness", source, self.seeds, UnknownField)
    return source_key(source, self.seeds[source])

  def __getitem__(self, name: str) -> Array:
    check_one_of("value of a run", name, self._entries, UnknownField)
    return self._entries[name]

  def get(self, name: str) -> Leaf:
    """Return the entry of a column, or None if the table has no such column."""
    return self._entries.get(name)

  @property
  def _entries(self):
    fixed = {name: np.float32(value) for name, value in self.fixed}
    return {**self.values, **fixed}


@hide_own_frames_of_methods
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Runs:
  """A table of runs: make it with `independent`, `vary`, `sweep` or `concat`.

  A source's seed is a number in [0, 2³²). Equal seeds of a source give equal draws of
  that source, whatever the other seeds are. The recipe or the task declares the names
  of sources and values and fills in what the table does not set; training refuses
  other names.
  """

  seeds: dict[str, UInt32[np.ndarray, " runs"]]
  # Other columns: swept values as float64 or texts, label maps, subsets, starts.
  values: dict[str, Shaped[np.ndarray, "runs ..."]] = dataclasses.field(
    default_factory=dict
  )
  # Seeds of any source that is not among `seeds`.
  others: UInt32[np.ndarray, " runs"] | None = None
  # (a key of `DRAWS`, size) if the data seed draws the training examples; or (K_FOLD or
  # STRATIFIED, the number of folds), with a column of folds
  sampling: tuple[str, int | None] | None = dataclasses.field(
    default=None, metadata=dict(static=True)
  )

  def __len__(self) -> int:
    return len(next(iter(self.seeds.values())))

  def __getitem__(self, rows: int | slice | Sequence[int] | np.ndarray) -> "Runs":
    """Return some rows of the table, in the order given."""
    rows = np.atleast_1d(np.arange(len(self))[rows])
    return jax.tree.map(lambda column: column[rows], self)

  # Constructors.

  @classmethod
  def independent(cls, n: int, *, start: int = 0) -> "Runs":
    """Return `n` runs in which every source varies: run i has seed `start` + i for each."""
    seeds = _seeds(start, n)
    return cls(dict.fromkeys(SOURCES, seeds), others=seeds)

  @classmethod
  def vary(
    cls,
    sources: str | Sequence[str],
    n: int,
    *,
    start: int = 0,
    fixed: int = 0,
    repeat: Mapping[str, int] | None = None,
  ) -> "Runs":
    """Return `n` runs in which only `sources` vary, with seeds from `start` on; all others
    have the seed `fixed`.

    With `repeat={"order": 5}` each of these runs is there for each of 5 seeds of `order`,
    the same ones, from `start` on: reports then take the variance apart into that of the
    sources, that of the order and their interaction.

    If all sources of supervised training vary, those that a task has of its own vary
    with them, as in `independent`. `vs.train` refuses a source that the recipe's
    training does not read: its runs would be the same.

    >>> Runs.vary("order", 3, fixed=7).seeds["order"], Runs.vary("order", 3, fixed=7).seeds["init"]
    (array([0, 1, 2], dtype=uint32), array([7, 7, 7], dtype=uint32))
    """
    varied = _listed(sources)
    are_names = all(isinstance(source, str) for source in varied)
    if not varied or not are_names or len(set(varied)) < len(varied):
      listed = ", ".join(map(str, varied)) or "none"
      raise UserError(
        f"sources that vary are {listed}: choose some of {', '.join(SOURCES)}, each once"
      )
    varying_seeds = _seeds(start, n)
    fixed_seeds = np.repeat(_seeds(fixed, 1), n)
    seeds = dict.fromkeys(SOURCES, fixed_seeds)
    seeds |= dict.fromkeys(varied, varying_seeds)
    # As in `independent` if all of these vary.
    others = varying_seeds if set(SOURCES).issubset(varied) else fixed_seeds
    table = cls(seeds, others=others)
    if repeat is None:
      return table
    for source, times in repeat.items():
      if source in varied:
        raise UserError(f"{source} varies and is repeated: give it in one place")
      repeated = _seeds(start, check_at_least(f"repeats of {source}", times, 2))
      _checked_count(len(table) * times)
      rows = table[np.repeat(np.arange(len(table)), times)]
      column = np.tile(repeated, len(table))
      table = dataclasses.replace(rows, seeds={**rows.seeds, source: column})
    return table

  @classmethod
  def sweep(
    cls,
    *,
    seeds: "int | Runs | None" = None,
    start: int = 0,
    **values: Any,
  ) -> "Runs":
    """Return every combination of values, `seeds` times each: the same seeds, from
    `start` on, for each combination.

    Rows go seed by seed, so that more seeds extend the table. Values are numbers, or
    names such as those of optimizers, None, True and False. A text that reads as one of
    the others stays a text, and has quotes in tables: `"none"`, `"1"`. Functions and
    classes count by the names by which they are imported. A sweep of a recipe varies its fields and
    `model_args`, and what is in `values`; that of a task, its values. `seeds` may also
    be a table, whose rows are repeated for each combination: `Runs.sweep(lr=[0.1, 0.2],
    seeds=Runs.vary("init", 50))`. What that table sweeps is kept.

    >>> Runs.sweep(lr=[0.1, 0.2], seeds=2).values["lr"].tolist()
    [0.1, 0.2, 0.1, 0.2]
    """
    swept = {}
    for name, column in values.items():
      swept[name] = as_column(name, _listed(column))
      _check_distinct(name, swept[name])
    if not swept:
      raise UserError("nothing to sweep: give values, e.g. lr=[0.1, 0.2]")
    if isinstance(seeds, Runs):
      table = seeds
    else:
      table = cls.independent(check_at_least("seeds", seeds, 1), start=start)
    twice = swept.keys() & table.values.keys()
    if twice:
      raise UserError(
        f"{', '.join(sorted(twice))}: the table of seeds is a sweep of it already, leave "
        "it out of one"
      )
    each = math.prod(map(len, swept.values()))
    _checked_count(len(table) * each)
    grids = np.meshgrid(*swept.values(), indexing="ij")
    columns = {
      name: np.tile(grid.ravel(), len(table))
      for name, grid in zip(swept, grids, strict=True)
    }
    rows = table[np.repeat(np.arange(len(table)), each)]
    return dataclasses.replace(rows, values=rows.values | columns)

  @classmethod
  def concat(cls, tables: Sequence["Runs"]) -> "Runs":
    """Return the rows of several tables, one table after the other.

    Tables must agree in what is swept and in how training examples are chosen. If one
    table has a label map, every table needs one.
    """
    is_list = isinstance(tables, Sequence) and len(tables) > 0
    if not is_list or not all(isinstance(table, Runs) for table in tables):
      raise UserError(
        f"tables is {tables!r:.100}: give a list of at least one table to concatenate"
      )

    def form(table):
      columns = jax.tree.leaves(table)
      return jax.tree.structure(table), [column.shape[1:] for column in columns]

    if any(form(table) != form(tables[0]) for table in tables):
      raise UserError(
        "these tables have different columns: give each the same values swept, as many "
        "classes in a label map, as many training examples"
      )
    return jax.tree.map(lambda *columns: np.concatenate(columns), *tables)

  @classmethod
  def from_columns(
    cls,
    columns: Mapping[str, np.ndarray],
    sources: Sequence[str],
    sampling: Sequence | None = None,
  ) -> "Runs":
    """Return the table whose columns a results folder has, with seeds of `sources`.

    `sampling` is not a column, so it is given apart.
    """
    values = dict(columns)
    seeds = {source: values.pop(seed_column(source)) for source in sources}
    for name, column in values.items():
      if holds_texts(column):
        values[name] = texts_of(column)
    if not sampling:
      return cls(seeds, values)
    kind, size = sampling[:2]
    return cls(seeds, values, sampling=(kind, size))

  # Copies with a change.

  def subset(self, size_or_indices: ArrayLike | Sequence) -> "Runs":
    """Return the same runs, each trained on some of the training examples.

    Args:
      size_or_indices: how many, drawn without replacement by the data seed; or their
        indices, ints (train,) for all runs or (runs, train) with a row for each.
    """
    is_size = whole_number(size_or_indices) is not None
    if is_size or not hasattr(size_or_indices, "__len__"):
      size = check_at_least("training subset", size_or_indices, 1)
      return self._with(subset=None, sampling=(SUBSET, size))
    rows = self._of_each(
      "training indices", size_or_indices, "from 0, (train,) or (runs, train)", ndim=1
    )
    return self._with(subset=rows, sampling=None)

  def bootstrap(self, size: int | None = None) -> "Runs":
    """Return the same runs, each trained on `size` examples that its data seed draws
    with replacement; None for as many as there are.

    What a run makes of the examples that it did not draw is kept in the test set
    `held_out`: see `vs.held_out`.
    """
    if size is not None:
      check_at_least("bootstrap size", size, 1)
    return self._with(subset=None, sampling=(BOOTSTRAP, size))

  def out_of_bootstrap(self, size: int | None = None) -> "Runs":
    """Return the same runs, each trained on `size` examples that its data seed draws with
    replacement from all examples of the data set, training and test. It is measured on
    validation and on test examples, drawn from what is left.

    Results have `valid_accuracy(run)` and `test_accuracy(run)`, or `valid_loss` and
    `test_loss`. See `vmapseeds.data.splits.out_of_bootstrap` for the sizes: two thirds,
    a sixth and a sixth by default.
    """
    if size is not None:
      check_at_least("training examples", size, 1)
    return self._with(subset=None, sampling=(OUT_OF_BOOTSTRAP, size))

  def k_fold(
    self,
    k: int,
    *,
    stratified: bool = False,
    repeats: int = 1,
    groups: Sequence | np.ndarray | None = None,
  ) -> "Runs":
    """Return each of the runs once for each of `k` folds: trained on the examples of the
    others, and tested on those of its own.

    All examples of the data set, training and test, are divided into folds at random, in
    the same way for all runs: so the variance over folds and over seeds can be taken
    apart. A data set needs no test set for this. All runs are trained on as many
    examples: where folds are not of one size, runs that hold a smaller one out leave
    some at random out, too, which nobody is tested on.

    Results have `test_accuracy(run)` or `test_loss(run)`, the column `fold`, and in the
    test set `held_out` the predictions, losses and, where kept, logits of each run on
    the examples that it held out, -1 or NaN for the others: see `vs.held_out`.

    Args:
      k: how many folds, at least 2.
      stratified: whether folds have equally many examples of each class, to one; with
        `groups` as nearly as these allow, by scikit-learn's `StratifiedGroupKFold`.
      repeats: how many times the examples are divided. Folds of the second division are
        `k` to 2 `k` - 1, and so on.
      groups: (examples,), the group of each, such as the patient: numbers, texts or a
        column of pandas. Examples of a group are in one fold. Those of the training set
        come first.

    Raises:
      UserError: an argument is not valid.

    >>> runs = Runs.independent(2).k_fold(3)
    >>> runs.values["fold"], runs.seeds["init"]
    (array([0, 1, 2, 0, 1, 2], dtype=int32), array([0, 0, 0, 1, 1, 1], dtype=uint32))
    """
    each = check_at_least("folds", k, 2) * check_at_least("repeats", repeats, 1)
    _checked_count(len(self) * each)
    rows = self[np.repeat(np.arange(len(self)), each)]
    folds = np.tile(np.arange(each, dtype=np.int32), len(self))
    groups_of_runs = None
    if groups is not None:
      numbers = _group_numbers(groups, k)
      groups_of_runs = np.broadcast_to(numbers, (len(rows), len(numbers)))
    kind = STRATIFIED if stratified else K_FOLD
    columns = {FOLD: folds, FOLD_GROUPS: groups_of_runs}
    return rows._with(subset=None, sampling=(kind, k), **columns)

  def with_label_map(self, label_map: ArrayLike | Sequence) -> "Runs":
    """Return the same runs with merged classes: in training and testing, class c
    becomes class `label_map[c]`.

    Args:
      label_map: ints from 0, (classes,) for all runs or (runs, classes) with a row for
        each.
    """
    rows = self._of_each(
      "label map", label_map, "from 0, (classes,) or (runs, classes)", ndim=1
    )
    return self._with(label_map=rows)

  def start_from(self, network: int | Sequence[int] | np.ndarray) -> "Runs":
    """Return the same runs, starting from stored networks of the recipe's folder
    `start_from`.

    Args:
      network: its number, one for all runs or one a run. Without this method, run i
        starts from network i modulo how many there are.
    """
    start = self._of_each("network to start from", network, "from 0, one or one a run")
    return self._with(start=start)

  def _with(self, **changes):
    """Return the table with other columns, where None removes one, or `sampling`."""
    sampling = changes.pop("sampling", self.sampling)
    columns = self.values | changes
    values = {name: column for name, column in columns.items() if column is not None}
    return dataclasses.replace(self, values=values, sampling=sampling)

  def _of_each(self, what, numbers, allowed, *, ndim=0):
    """Return whole numbers from 0 for each run, from one array of `ndim` axes for all or
    from one for each.
    """
    try:
      rows = np.asarray(numbers)
    except ValueError:  # rows of unequal length
      rows = np.array(None)
    are_whole = rows.dtype.kind in "iu" and rows.size > 0
    # They are kept as int32.
    fits = are_whole and rows.min() >= 0 and rows.max() < 2**31
    if not fits or rows.ndim not in (ndim, ndim + 1):
      raise UserError(f"{what} is {numbers!r:.200}: give whole numbers {allowed}")
    if rows.ndim > ndim and len(rows) != len(self):
      raise UserError(
        f"{what} for {len(rows)} runs in a table of {len(self)}: give one a run"
      )
    shape_of_one = rows.shape[rows.ndim - ndim :]
    return np.broadcast_to(rows, (len(self), *shape_of_one)).astype(np.int32)

  # What other modules call.

  def varying(self) -> list[str]:
    """Return the sources that were chosen to vary: none if no source is fixed, as in
    `independent`.
    """
    sources = _ordered(self.seeds, SOURCES)
    varying = [source for source in sources if np.ptp(self.seeds[source]) > 0]
    if len(varying) == len(sources):
      return []
    return varying

  def filled(
    self,
    sources: Sequence[str],
    values: Mapping[str, float],
    columns: Collection[str] = (),
    fields: Collection[str] = (),
  ) -> "Runs":
    """Return the table with a seed for each of a task's sources and a column for each
    of its values, with the task's own value where nothing is swept.

    Args:
      sources: the names of the task's sources.
      values: its values by name.
      columns: which of `MADE_COLUMNS` it knows, too.
      fields: which columns it does not read, as they choose its program.

    Raises:
      UnknownField: the table varies a source or sweeps a value that is not declared.
      UserError: a value is no number.
    """
    for source in self.varying():
      check_one_of("source of randomness", source, sources, UnknownField)
    for name, column in self.values.items():
      if name in columns or name in MADE_COLUMNS or name in fields:
        continue
      check_one_of("value to sweep", name, values, UnknownField)
      if column.dtype.kind == "U":
        texts = column.tolist()
        no_numbers = [text for text in texts if _as_number(text) is None]
        check_number(name, (no_numbers or texts)[0])  # which refuses a text
    seeds = self.seeds
    if self.others is not None:
      seeds = dict.fromkeys(sources, self.others) | seeds
    count = len(self)
    constant = {name: np.full(count, value) for name, value in values.items()}
    return dataclasses.replace(
      self,
      seeds={source: seeds[source] for source in sources},
      values=constant | self.values,
    )

  def lanes(
    self,
    names: Iterable[str],
    derived: Mapping[str, Leaf],
    fixed: Collection[str] = (),
    fields: Collection[str] = (),
  ) -> Run:
    """Return the filled table as lanes read it, arrays (runs, ...): the values `names` as
    float32, and what is `derived` in place of columns or beside them. Those `fixed` are
    numbers, and the same in all runs. The columns `fields` are left out.
    """
    floats = {name: np.float32(self.values[name]) for name in names}
    columns = self.values | floats | dict(derived)
    entries = {name: columns[name] for name in columns if name not in fields}
    fixed_values = [(name, float(entries.pop(name)[0])) for name in sorted(fixed)]
    return Run(self.seeds, entries, tuple(fixed_values))

  def swept(self) -> list[str]:
    """Return the columns of one number a run that differ between
    runs: votes of such runs are not pooled.
    """
    return [
      name
      for name, column in sorted(self.values.items())
      if column.ndim == 1 and (column != column[0]).any()
    ]

  def columns(self) -> dict[str, Shaped[np.ndarray, "runs ..."]]:
    """Return the columns by their names in results: `seed_<source>`, then the others.
    Texts are UTF-8 bytes, (runs, TEXT_BYTES).
    """
    columns: dict[str, np.ndarray] = {}
    for source in _ordered(self.seeds, SOURCES):
      columns[seed_column(source)] = self.seeds[source]
    for name, column in sorted(self.values.items()):
      if column.dtype.kind == "U":
        column = as_bytes(column, TEXT_BYTES)
      columns[name] = column
    return columns

  @property
  def choose_examples(self) -> bool:
    """Whether runs have training examples of their own."""
    return self.sampling is not None or "subset" in self.values

  def num_train(
    self, available: int, labels: Integer[np.ndarray, " pool"] | None = None
  ) -> int:
    """Return how many of the available training examples each run is trained on.
    Stratified folds of groups need the labels of all of these.
    """
    if "subset" in self.values:
      return self.values["subset"].shape[1]
    kind, size = self.sampling or ("", None)
    if kind in (K_FOLD, STRATIFIED):
      # The size is the number of folds.
      return available - self.held_out_sizes(available, labels)[-1]
    if size is not None:
      return size
    if kind == OUT_OF_BOOTSTRAP:
      return 2 * available // 3
    return available

  def held_out_sizes(
    self, available: int, labels: Integer[np.ndarray, " pool"] | None = None
  ) -> tuple[int, ...]:
    """Return how many test examples a run may hold out of the available ones, ascending.
    Stratified folds of groups need the labels of all of these.
    """
    kind, k = self.sampling or ("", None)
    if kind == STRATIFIED and self._fold_groups is not None:
      partitions = self._partitions(available, labels)
      sizes = [np.bincount(folds, minlength=k or 2) for folds in partitions.values()]
      return tuple(np.unique(sizes).tolist())
    if kind in (K_FOLD, STRATIFIED):
      return splits.fold_sizes(available, k or 2, self._fold_groups)
    return ((available - self.num_train(available)) // 2,)

  @property
  def _fold_groups(self):
    # They are the same in all runs.
    groups = self.values.get(FOLD_GROUPS)
    return None if groups is None else groups[0]

  def training_examples(
    self, available: int, labels: Integer[np.ndarray, " pool"] | None = None
  ) -> Integer[np.ndarray, "runs examples"] | None:
    """Return the indices of the examples that each run is trained on; None for all of
    the available ones. Stratified folds need the labels of all of these.
    """
    return self.split_examples(available, labels).get("subset")

  def split_examples(
    self, available: int, labels: Integer[np.ndarray, " pool"] | None = None
  ) -> dict[str, Integer[np.ndarray, "runs examples"]]:
    """Return the indices of the examples that each run is trained on, `subset`, and that
    it is measured on, `valid_examples` and `test_examples`, where these are drawn too.
    Of folds smaller than others, `test_examples` end with `available`.
    """
    if self.sampling is None:
      if "subset" in self.values:
        return {"subset": self.values["subset"]}
      return {}
    kind, _ = self.sampling
    if kind in (K_FOLD, STRATIFIED):
      return self._split_folds(available, labels)
    size = self.num_train(available)
    drawn = _draw_examples(kind, self.seeds["data"], available, size)
    if not isinstance(drawn, splits.Split):
      return {"subset": np.asarray(drawn)}
    names = ("subset", "valid_examples", "test_examples")
    return dict(zip(names, map(np.asarray, drawn), strict=True))

  def _split_folds(self, available, labels):
    kind, folds = self.sampling or (K_FOLD, None)
    k = folds or 2
    if kind == K_FOLD:
      labels = None
    size = self.num_train(available, labels)
    distinct, places = np.unique(self.values[FOLD], return_inverse=True)
    train = np.empty((len(distinct), size), np.int32)
    test = np.full((len(distinct), available - size), available, np.int32)
    partitions = self._partitions(available, labels)
    for row, column in enumerate(distinct.tolist()):
      partition, fold = divmod(column, k)
      key = source_key("data", np.uint32(partition))
      held_out = partitions[partition] == fold
      others = np.flatnonzero(~held_out)
      # A smaller fold leaves more others than are trained on.
      order = jax.random.permutation(jax.random.fold_in(key, 1 + fold), len(others))
      chosen = np.sort(np.asarray(order)[:size])
      train[row] = others[chosen]
      test[row, : held_out.sum()] = np.flatnonzero(held_out)
    return {"subset": train[places], "test_examples": test[places]}

  def _partitions(self, available, labels):
    """Return the fold of each example, by the number of the partition into folds."""
    kind, folds = self.sampling or (K_FOLD, None)
    k = folds or 2
    partitions = {}
    for partition in np.unique(self.values[FOLD] // k).tolist():
      # Folds depend on their number alone, so that they are the same for all runs.
      partitions[partition] = splits.k_fold(
        source_key("data", np.uint32(partition)),
        available,
        k,
        labels=labels if kind == STRATIFIED else None,
        groups=self._fold_groups,
      )
    return partitions


def _group_numbers(groups, k: int) -> Integer[np.ndarray, " examples"]:
  """Return the number of each example's group, of at least `k`. Groups are sorted."""
  given = np.asarray(groups)
  if given.ndim != 1:
    raise UserError(
      f"groups have shape {given.shape}: give the number or name of each example's "
      "group, (examples,)"
    )
  # As objects: an array of texts would turn a missing name into the text "nan".
  names = np.asarray(groups, dtype=object)
  numbers, present = pd.factorize(names, sort=True)
  lacking = int((numbers < 0).sum())
  if lacking:
    raise UserError(
      f"groups lack {lacking} of {len(names)} values: give each example a group"
    )
  if len(present) < k:
    raise UserError(
      f"groups are {len(present)} for {k} folds: give at least {k} groups, or fewer folds"
    )
  return numbers.astype(np.int32)


# A search draws examples again in each of its rounds.
@functools.partial(jax.jit, static_argnums=(0, 2, 3))
def _draw_examples(kind, seeds, available, size):
  draw = DRAWS[kind]
  return jax.vmap(lambda seed: draw(source_key("data", seed), available, size))(seeds)


def as_runs(table_or_count: Runs | int) -> Runs:
  """Return a table of at least one run; n means `Runs.independent(n)`."""
  if isinstance(table_or_count, Runs):
    check_at_least("runs", len(table_or_count), 1)
    return table_or_count
  if whole_number(table_or_count) is None:
    raise UserError(
      f"runs is {table_or_count!r:.100}: give how many, or a table as "
      "vs.Runs.independent makes it"
    )
  return Runs.independent(table_or_count)


def as_column(name: str, values: Sequence[Any]) -> np.ndarray:
  """Return values to sweep as a column: float64 if all are numbers, else texts.

  Raises:
    UserError: one of them is neither a number nor a name.
  """

  def is_named(value):
    return value is None or isinstance(value, str) or is_bool(value) or callable(value)

  convert = as_text if any(map(is_named, values)) else finite
  return np.array([convert(name, value) for value in values])


def _check_distinct(name: str, column: np.ndarray) -> None:
  """Raise `UserError` unless a column has at least one value to sweep, each once."""
  alike = ""
  distinct = np.unique(column)
  if len(column) and column.dtype.kind == "f" and len(distinct) == len(column):
    # Runs compute in float32: two values that are one there would be called two.
    alike = ", some of them equal in float32"
    distinct = np.unique(column.astype(np.float32))
  if not len(column) or len(distinct) < len(column):
    listed = ", ".join(map(format_value, column.tolist())) or "no values"
    raise UserError(
      f"{name} is swept over {listed}{alike}: give at least one value, each once"
    )


def as_text(name: str, value: Any) -> str:
  """Return one value to sweep as a text: that of `--sweep`. `value_of_text` returns the
  value again.

  Raises:
    UserError: it is neither a number nor a name.
  """
  if value is None:
    return "none"
  if is_bool(value):
    return str(bool(value)).lower()
  if callable(value):
    text = name_of(value)
    if not is_import(text):
      raise UserError(
        f"{name} is {text}, which cannot be imported by name: define it in a module"
      )
  elif isinstance(value, str) and name in FIELDS:
    # A field of a recipe knows what its texts mean.
    text = value or "none"
  elif isinstance(value, str):
    text = value
    if value_of_text(text) != text:
      text = json.dumps(value, ensure_ascii=False)
  else:
    # All digits: the recipe gets this value again.
    text = str(finite(name, value)).removesuffix(".0")
  # Names of programs have commas, and folders' paths have slashes.
  is_legal = text.isprintable() and not any(letter in text for letter in "/\\,")
  if not is_legal or len(text.encode()) > TEXT_BYTES:
    raise UserError(
      f"{name} is {text!r:.200}: give numbers or names, of at most {TEXT_BYTES} "
      "characters, without / \\ and commas"
    )
  return text


def as_values(numbers: np.ndarray) -> np.ndarray:
  """Return numbers as float64, those of float32 as `check_number` does: 0.1 of
  `np.float32(0.1)`.
  """
  if numbers.dtype == np.float32:
    return numbers.astype(str).astype(np.float64)
  return numbers.astype(np.float64)


def format_value(value: float | str) -> str:
  """Return a value as it is shown: a float has 15 digits at most, as people write it.

  >>> format_value(0.21000000000000002), format_value(2.0), format_value("adam")
  ('0.21', '2', 'adam')
  """
  if isinstance(value, float):
    return f"{value:.15g}"
  return str(value)


def as_bytes(
  texts: Shaped[np.ndarray, " texts"], size: int | None = None
) -> UInt8[np.ndarray, "texts bytes"]:
  """Return texts as UTF-8 bytes with zeros after them: `size` of each, or as many as the
  longest has.
  """
  encoded = np.char.encode(texts, "utf-8")
  size = size or encoded.dtype.itemsize
  return encoded.astype(f"S{size}").view(np.uint8).reshape(len(texts), size)


def texts_of(column: UInt8[np.ndarray, "runs bytes"]) -> Shaped[np.ndarray, " runs"]:
  """Return the texts that `as_bytes` wrote."""
  packed = np.ascontiguousarray(column).view(f"S{column.shape[1]}").ravel()
  if not len(packed):
    return packed.astype("U1")
  return np.char.decode(packed, "utf-8")


def holds_texts(column: Any) -> bool:
  """Return whether a column of a results folder has texts."""
  return column.dtype == np.uint8 and len(column.shape) == 2


def _as_number(text):
  try:
    return float(text)
  except ValueError:
    return None


def finite(what: str, value: object) -> float:
  """Return a number that is finite in float32, in which training computes."""
  as_float = check_number(what, value)
  # NaN fails this comparison too.
  if not abs(as_float) <= float(np.finfo(np.float32).max):
    raise UserError(f"{what} is {value!r}: give a finite number")
  return as_float


def _ordered(names, first):
  """Return the names: those of `first` in their order, then the others."""
  others = set(names).difference(first)
  return [name for name in first if name in names] + sorted(others)


def _seeds(start, n):
  start = check_at_least("seed", start, 0)
  n = _checked_count(n)
  if start + n > 2**32:
    raise UserError(f"seeds up to {start + n - 1}: give numbers below 2**32")
  return np.arange(start, start + n, dtype=np.uint32)


def _checked_count(n):
  if check_at_least("runs", n, 1) > MAX_RUNS:
    raise UserError(f"runs is {n}: give at most {MAX_RUNS}")
  return int(n)


def _listed(values):
  """Return several values as a list, one as a list of one."""
  if isinstance(values, str):
    return [values]
  try:
    return list(values)
  except TypeError:
    return [values]
