"""The runs table: everything that differs between repeats. A struct of arrays whose
leading axis is the run.
"""

import dataclasses
import math
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Integer, Key, UInt32

from vmapseeds.data import splits
from vmapseeds.mistakes import (
  Mistake,
  UnknownField,
  at_least,
  number,
  one_of,
  whole_number,
)
from vmapseeds.training.recipes import (
  FLOAT32_MAX,
  HYPERPARAMETERS,
  Recipe,
  hyperparameter,
)

SOURCES = ("init", "order", "augment", "dropout", "data")  # of supervised training
# Optional columns of a table, and the fields of `Runs` that hold them.
OPTIONAL = {
  "poke_step": "poke_step",
  "poke_factor": "poke_factor",
  "label_map": "label_map",
  "subset": "subset_indices",
  "start": "start",
}
MOST_RUNS = 10**7  # of a table
NEVER = -1  # the poke step of a run that is not poked


# An array: JAX's where it is traced, NumPy's in a table, or a `jax.ShapeDtypeStruct`
Leaf = Any


def source_key(source: str, seed: np.uint32 | UInt32[Array, ""]) -> Key[Array, ""]:
  """The key of a source's seed. Sources have different streams; names other than
  `SOURCES` are hashed to 31 bits.
  """
  number = (
    SOURCES.index(source)
    if source in SOURCES
    else len(SOURCES) + zlib.crc32(source.encode()) % 2**31
  )
  # Threefry, whatever JAX's default is: with other generators, draws under vmap depend
  # on a lane's neighbours.
  return jax.random.fold_in(jax.random.key(number, impl="threefry2x32"), seed)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Run:
  """One row of the runs table as the training sees it: traced scalars, so that new
  values need no new compilation.

  `run.key("init")` is the key of a source of randomness, `run["lr"]` a value that may
  be swept. The other fields may be
  None: then the run has nothing of that kind.
  """

  seeds: Mapping[str, Leaf]
  values: Mapping[str, Leaf]
  poke_step: Leaf = None
  poke_factor: Leaf = None
  label_map: Leaf = None  # (classes,)
  subset: Leaf = None  # (train,), indices of the examples that it is trained on
  start: Mapping[str, Leaf] | None = (
    None  # the variables that it starts from, by their paths
  )

  def key(self, source: str) -> Key[Array, ""]:
    """The key of one source of randomness: a function of that source's seed alone."""
    one_of("source of randomness", source, self.seeds, UnknownField)
    return source_key(source, self.seeds[source])

  def __getitem__(self, name: str) -> Array:
    one_of("value of a run", name, self.values, UnknownField)
    return self.values[name]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Runs:
  """A table of runs, made by `independent`, `vary`, `sweep` or `concat` and refined by
  the other methods.

  A source's seed is a number in [0, 2³²). Equal seeds of a source give equal draws of
  that source, whatever the other seeds are. Values that are not swept come from the
  recipe or the task, which also declares the names of sources and values. Training
  refuses other names.
  """

  seeds: dict[
    str, UInt32[np.ndarray, " runs"]
  ]  # of the sources of supervised training, and of others that vary
  values: dict[str, Float[np.ndarray, " runs"]] = dataclasses.field(
    default_factory=dict
  )
  poke_step: Integer[np.ndarray, " runs"] | None = None
  poke_factor: Float[np.ndarray, " runs"] | None = None
  label_map: Integer[np.ndarray, "runs classes"] | None = None
  subset_indices: Integer[np.ndarray, "runs train"] | None = None
  start: Integer[np.ndarray, " runs"] | None = (
    None  # which stored network each starts from
  )
  others: UInt32[np.ndarray, " runs"] | None = (
    None  # seeds of any source that is not among `seeds`
  )
  # ("subset" or "bootstrap", size), if the data seed draws the training examples
  sampling: tuple[str, int | None] | None = dataclasses.field(
    default=None, metadata=dict(static=True)
  )

  def __len__(self) -> int:
    return len(next(iter(self.seeds.values())))

  def __getitem__(self, rows: int | slice | Sequence[int] | np.ndarray) -> "Runs":
    """Some rows of the table, in the order given."""
    rows = np.atleast_1d(np.arange(len(self))[rows])
    return jax.tree.map(lambda column: column[rows], self)

  # Constructors.

  @classmethod
  def independent(cls, n: int, *, start: int = 0) -> "Runs":
    """`n` runs in which every source varies: run i has seed `start` + i for each."""
    return cls(dict.fromkeys(SOURCES, seeds := _seeds(start, n)), others=seeds)

  @classmethod
  def vary(
    cls, sources: str | Sequence[str], n: int, *, start: int = 0, fixed: int = 0
  ) -> "Runs":
    """`n` runs in which only `sources` vary, with seeds from `start` on; all others
    have the seed `fixed`.

    If all sources of supervised training vary, those that a task has of its own vary
    with them, as in `independent`. `vs.train` refuses a source that the recipe's
    training does not read: its runs would be the same.

    >>> Runs.vary("order", 3, fixed=7).seeds["order"], Runs.vary("order", 3, fixed=7).seeds["init"]
    (array([0, 1, 2], dtype=uint32), array([7, 7, 7], dtype=uint32))
    """
    varied = _listed(sources)
    if (
      not varied
      or not all(isinstance(source, str) for source in varied)
      or len({*varied}) < len(varied)
    ):
      given = ", ".join(map(str, varied)) or "none"
      raise Mistake(
        f"sources that vary are {given}: choose some of {', '.join(SOURCES)}, each once"
      )
    columns = _seeds(start, n), np.repeat(_seeds(fixed, 1), n)
    named = dict.fromkeys((*SOURCES, *varied))
    others = columns[
      not {*SOURCES} <= {*varied}
    ]  # as in `independent` if all of these vary
    return cls(
      {source: columns[source not in varied] for source in named}, others=others
    )

  @classmethod
  def sweep(
    cls,
    *,
    seeds: "int | Runs | None" = None,
    start: int = 0,
    **values: float | Sequence[float],
  ) -> "Runs":
    """Every combination of hyperparameters, `seeds` times each: the same seeds, from
    `start` on, for each combination.

    Rows go seed by seed, so that more seeds extend the table. The recipe or the task
    declares which values there are. Recipes have at least `lr`, `momentum`,
    `weight_decay`. `seeds` may also be a table, whose rows are repeated for
    each combination: `Runs.sweep(lr=[0.1, 0.2], seeds=Runs.vary("init", 50))`. What
      that table sweeps is kept.

    >>> Runs.sweep(lr=[0.1, 0.2], seeds=2).values["lr"].tolist()
    [0.10000000149011612, 0.20000000298023224, 0.10000000149011612, 0.20000000298023224]
    """
    swept = {}
    for name, column in values.items():
      swept[name] = np.array(
        [hyperparameter(name, value) for value in _listed(column)], np.float32
      )
      if not len(swept[name]) or len(np.unique(swept[name])) < len(swept[name]):
        given = ", ".join(f"{v:g}" for v in swept[name]) or "no values"
        raise Mistake(
          f"{name} is swept over {given}: give at least one value, each once"
        )
    if not swept:
      raise Mistake("nothing to sweep: give values, e.g. lr=[0.1, 0.2]")
    each = math.prod(map(len, swept.values()))
    table = (
      seeds
      if isinstance(seeds, Runs)
      else cls.independent(at_least("seeds", seeds, 1), start=start)
    )
    if twice := swept.keys() & table.values.keys():
      raise Mistake(
        f"{', '.join(sorted(twice))}: the table of seeds is a sweep of it already, leave it out of one"
      )
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
    """The rows of several tables, one table after the other.

    Tables must agree in what is swept and in how training examples are chosen. If one
    table has a poke or a label map, every table needs one (`Runs.poke(step=-1)` never
    pokes).
    """
    if (
      not isinstance(tables, Sequence)
      or not tables
      or not all(isinstance(table, Runs) for table in tables)
    ):
      raise Mistake(
        f"tables is {tables!r:.100}: give a list of at least one table to concatenate"
      )
    shapes = [
      (jax.tree.structure(t), [c.shape[1:] for c in jax.tree.leaves(t)]) for t in tables
    ]
    if any(s != shapes[0] for s in shapes):
      alike = "the same values swept, a poke or none, as many classes in a label map, as many training examples"
      raise Mistake(f"these tables have different columns: give each {alike}")
    return jax.tree.map(lambda *columns: np.concatenate(columns), *tables)

  @classmethod
  def from_columns(
    cls, columns: dict[str, np.ndarray], sampling: Sequence | None = None
  ) -> "Runs":
    """The table whose `columns` results have stored. `sampling` is not a column, so it
    is given apart.
    """
    seeds = {
      name.removeprefix("seed_"): column
      for name, column in columns.items()
      if name.startswith("seed_")
    }
    values = {
      name: column
      for name, column in columns.items()
      if not name.startswith("seed_") and name not in OPTIONAL
    }
    optional: dict[str, Any] = {
      field: columns.get(name) for name, field in OPTIONAL.items()
    }
    return cls(
      seeds,
      values,
      **optional,
      sampling=(sampling[0], sampling[1]) if sampling else None,
    )

  # Copies with a change.

  def poke(self, step: int | Sequence[int] = 0, *, factor: float = 1.001) -> "Runs":
    """The same runs with one random weight multiplied by `factor` before training step
    `step` (-1: never).

    Steps are counted from 0. The init seed chooses the weight. Jordan 2024, appendix
    D.2; Summers & Dinneen 2021.
    """
    steps = self._of_each(
      "poke step", step, "from 0, or -1 for never, one or one a run", least=NEVER
    )
    if not abs(number("poke factor", factor)) <= FLOAT32_MAX:
      raise Mistake(f"poke factor is {factor!r}: give a finite number")
    return dataclasses.replace(
      self, poke_step=steps, poke_factor=np.full(len(self), factor, np.float32)
    )

  def subset(self, size_or_indices: ArrayLike | Sequence) -> "Runs":
    """The same runs, each on some training examples: a number, drawn without
    replacement by the data seed, or indices.

    Indices are an int array, (train,) for all runs or (runs, train) with a row for
    each.
    """
    if whole_number(size_or_indices) is not None or not hasattr(
      size_or_indices, "__len__"
    ):
      size = at_least("training subset", size_or_indices, 1)
      return dataclasses.replace(self, sampling=("subset", size), subset_indices=None)
    rows = self._of_each(
      "training indices", size_or_indices, "from 0, (train,) or (runs, train)", ndim=1
    )
    return dataclasses.replace(self, subset_indices=rows, sampling=None)

  def bootstrap(self, size: int | None = None) -> "Runs":
    """The same runs, each on training examples drawn with replacement by its data seed
    (as many as there are).
    """
    if size is not None:
      at_least("bootstrap size", size, 1)
    return dataclasses.replace(self, sampling=("bootstrap", size), subset_indices=None)

  def with_label_map(self, label_map: ArrayLike | Sequence) -> "Runs":
    """The same runs with classes merged: class c becomes class `label_map[c]`, from 0,
    in training and testing.

    An int array, (classes,) for all runs or (runs, classes) with a row for each.
    """
    rows = self._of_each(
      "label map", label_map, "from 0, (classes,) or (runs, classes)", ndim=1
    )
    return dataclasses.replace(self, label_map=rows)

  def start_from(self, network: int | Sequence[int] | np.ndarray) -> "Runs":
    """The same runs, starting from stored network number `network` of the recipe's
    folder `start_from`.

    One number for all runs, or one a run. Without it, run i starts from network i
    modulo how many there are.
    """
    start = self._of_each("network to start from", network, "from 0, one or one a run")
    return dataclasses.replace(self, start=start)

  def _of_each(
    self, what: str, given: Any, allowed: str, *, least: int = 0, ndim: int = 0
  ) -> Integer[np.ndarray, "runs ..."]:
    """Whole numbers of at least `least` for each run: `given` is one array of `ndim`
    axes for all, or one per run.
    """
    try:
      rows = np.asarray(given)
    except ValueError:  # rows of unequal length
      rows = np.array(None)
    fits = (
      rows.dtype.kind in "iu"
      and rows.size
      and least <= rows.min()
      and rows.max() < 2**31
    )
    if not fits or rows.ndim not in (ndim, ndim + 1):
      raise Mistake(f"{what} is {given!r:.200}: give whole numbers {allowed}")
    if rows.ndim > ndim and len(rows) != len(self):
      raise Mistake(
        f"{what} for {len(rows)} runs in a table of {len(self)}: give one a run"
      )
    return np.broadcast_to(rows, (len(self), *rows.shape[rows.ndim - ndim :])).astype(
      np.int32
    )

  # What other modules call.

  def varying(self) -> list[str]:
    """The sources that were chosen to vary. There are none if no source is fixed, as in
    `independent`.
    """
    varying = [
      source for source in _ordered(self.seeds, SOURCES) if np.ptp(self.seeds[source])
    ]
    return varying if len(varying) < len(self.seeds) else []

  def of(self, sources: Sequence[str], values: Collection[str]) -> "Runs":
    """The table with a seed for each of `sources`. `Mistake` where it varies other
    sources or sweeps other values.
    """
    for source in self.varying():
      one_of("source of randomness", source, sources, UnknownField)
    for name in self.values:
      one_of("value to sweep", name, values, UnknownField)
    seeds = (
      self.seeds
      if self.others is None
      else {**dict.fromkeys(sources, self.others), **self.seeds}
    )
    return dataclasses.replace(
      self, seeds={source: seeds[source] for source in sources}
    )

  def columns(self) -> dict[str, np.ndarray]:
    """The table by the names that results use: `seed_<source>`, swept values, pokes,
    label maps, subsets, starts.
    """
    optional = {name: getattr(self, field) for name, field in OPTIONAL.items()}
    return {
      **{
        f"seed_{source}": self.seeds[source] for source in _ordered(self.seeds, SOURCES)
      },
      **{name: self.values[name] for name in _ordered(self.values, HYPERPARAMETERS)},
      **{name: column for name, column in optional.items() if column is not None},
    }

  def check(self, recipe: Recipe, num_train: int, num_classes: int | None) -> None:
    """`Mistake` when this table does not fit a recipe and its data set, which has so
    many examples and classes.
    """
    if self.label_map is not None and self.label_map.shape[1] != num_classes:
      raise Mistake(
        f"label map of {self.label_map.shape[1]} classes for data with {num_classes}: give one for each"
      )
    if self.subset_indices is not None and self.subset_indices.max() >= num_train:
      given = f"training index {self.subset_indices.max()}"
      raise Mistake(
        f"{given} in data with {num_train} examples: the last is {num_train - 1}"
      )
    size = self.num_train(num_train)
    if self.sampling and self.sampling[0] == "subset" and size > num_train:
      raise Mistake(
        f"training subset of {size} of {num_train} examples: give at most {num_train}"
      )
    if self.start is not None and recipe.start_from is None:
      raise Mistake(
        "runs that start from stored networks: give the recipe start_from, the folder that has them"
      )
    if size < recipe.batch_size:
      raise Mistake(
        f"batch_size {recipe.batch_size} with {size} training examples: give at most as many"
      )
    steps = recipe.epochs * (size // recipe.batch_size)
    if self.poke_step is not None and (last := self.poke_step.max()) >= steps:
      given = f"poke step {last} in trainings of {steps} steps, counted from 0"
      raise Mistake(f"{given}: give an earlier one, or -1 for never")

  def num_train(self, num_train: int) -> int:
    """How many examples each run is trained on, of a training set of `num_train`."""
    if self.subset_indices is not None:
      return self.subset_indices.shape[1]
    return (self.sampling[1] if self.sampling else None) or num_train

  def num_classes(self, num_classes: int) -> int:
    """How many classes the networks tell apart, for a data set with `num_classes`."""
    return num_classes if self.label_map is None else int(self.label_map.max()) + 1

  def lanes(self, recipe: Recipe, num_train: int) -> Run:
    """The table as a `Run` of arrays (runs, ...), with the recipe's values where
    nothing is swept.
    """
    n = len(self)
    values = {
      name: np.full(n, value, np.float32)
      for name, value in recipe.hyperparameters.items()
    }
    return Run(
      self.seeds,
      values | self.values,
      poke_step=np.full(n, NEVER, np.int32)
      if self.poke_step is None
      else self.poke_step,
      poke_factor=np.ones(n, np.float32)
      if self.poke_factor is None
      else self.poke_factor,
      label_map=self.label_map,
      subset=self.training_examples(num_train),
    )

  def training_examples(
    self, num_train: int
  ) -> Integer[np.ndarray, "runs examples"] | None:
    """The indices of the examples that each run is trained on, in a training set of
    `num_train`; None for all.
    """
    if self.sampling is None:
      return self.subset_indices
    kind, size = self.sampling
    draw = jax.vmap(
      lambda seed: getattr(splits, kind)(
        source_key("data", seed), num_train, size or num_train
      )
    )
    return np.asarray(jax.jit(draw)(self.seeds["data"]))


def as_runs(given: Runs | int) -> Runs:
  """A table of at least one run; a number n means `Runs.independent(n)`."""
  if isinstance(given, Runs):
    at_least("runs", len(given), 1)
    return given
  if whole_number(given) is None:
    raise Mistake(
      f"runs is {given!r:.100}: give how many, or a table as vs.Runs.independent makes it"
    )
  return Runs.independent(given)


def _ordered(names: Collection[str], first: Sequence[str]) -> list[str]:
  """The names, those of `first` in their order and then the others."""
  return [name for name in first if name in names] + sorted({*names} - {*first})


def _seeds(start: int, n: int) -> UInt32[np.ndarray, " runs"]:
  start, n = at_least("seed", start, 0), _checked_count(n)
  if start + n > 2**32:
    raise Mistake(f"seeds up to {start + n - 1}: give numbers below 2**32")
  return np.arange(start, start + n, dtype=np.uint32)


def _checked_count(n: int) -> int:
  if at_least("runs", n, 1) > MOST_RUNS:
    raise Mistake(f"runs is {n}: give at most {MOST_RUNS}")
  return int(n)


def _listed(given: Any) -> list:
  """Several values as a list, one as a list of one."""
  try:
    return [given] if isinstance(given, str) else list(given)
  except TypeError:
    return [given]
