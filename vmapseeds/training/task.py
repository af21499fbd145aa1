"""A task: what a campaign trains, as three pure functions of one lane. `supervised`
makes one from a recipe.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Int, PyTree

from vmapseeds.data.examples import fingerprint
from vmapseeds.mistakes import (
  Mistake,
  UnknownField,
  at_least,
  number,
  one_of,
  safe_name,
)
from vmapseeds.training import objects
from vmapseeds.training.runs import OPTIONAL, Run, Runs

OF_FOLDERS = (
  "run",
  "zarr.json",
  "blocks",
  "checkpoints",
  "report",
)  # names in a folder that outputs cannot have


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Task:
  """What a campaign trains: anything that is a pure function of one lane.

  - `start(data, run) -> state`
  - `advance(data, run, state, first, last) -> state`: the rounds from `first`, counted
    from 0, to `last`, not included.
  - `finish(data, run, state) -> {name: array}`: what is stored of the run, in arrays
    (run, ...) of these names.

  `run.key("init")` is the key of a source of randomness and `run["lr"]` a value, both
  traced. `data` is a pytree of arrays that all runs share.

  Raises:
    Mistake: a field is not what it should be.
  """

  name: str
  start: Callable[[PyTree, Run], PyTree]
  advance: Callable[
    [PyTree, Run, PyTree, Int[Array, ""] | int, Int[Array, ""] | int], PyTree
  ]
  finish: Callable[[PyTree, Run, PyTree], Mapping[str, Array]]
  data: PyTree = ()
  rounds: int = 1
  sources: Sequence[str] = ("init", "order")
  values: Mapping[str, float] = dataclasses.field(
    default_factory=dict
  )  # what a sweep may vary, and its defaults
  dims: Mapping[str, tuple[str, ...]] = dataclasses.field(
    default_factory=dict
  )  # axis names of stored arrays
  origin: str = ""  # the import string that it came from
  steps: int = 1  # in a round; speed is measured in steps
  shown: str = ""  # the output that the progress line shows

  def __post_init__(self):
    for field, what in (
      ("values", "numbers by their names, such as {'lr': 0.1}"),
      ("dims", "names of axes by array"),
    ):
      if not isinstance(given := getattr(self, field), Mapping):
        raise Mistake(f"{field} is {given!r:.100}: give {what}")
    safe_name("task name", self.name)
    at_least("rounds", self.rounds, 0)
    for part in ("start", "advance", "finish"):
      if not callable(getattr(self, part)):
        raise Mistake(
          f"{part} is {getattr(self, part)!r:.100}: give a pure function of one lane"
        )
    if isinstance(self.sources, str) or not isinstance(self.sources, Sequence):
      raise Mistake(f"sources is {self.sources!r}: give a list of names")
    for name in (*self.sources, *self.values):
      safe_name("source or value", name)
      if name in OPTIONAL or name.startswith("seed_"):
        raise Mistake(
          f"source or value {name!r}: results have something else of that name, rename it"
        )
    object.__setattr__(
      self, "values", {name: number(name, value) for name, value in self.values.items()}
    )

  def replace(self, **values: float) -> "Task":
    """The task with other defaults for some of its values. `UnknownField` (a TypeError)
    for any other name.
    """
    for name in values:
      one_of(f"value of task {self.name}", name, self.values, UnknownField)
    return dataclasses.replace(self, values={**self.values, **values})

  # What a campaign calls. A recipe's task overrides some of it.

  def bound(self, runs: Runs) -> Runs:
    """The runs table with a seed for each source. `Mistake` where it has columns that
    the task does not know.
    """
    for name, column in runs.columns().items():
      if (
        not name.startswith("seed_") and name not in runs.values and column is not None
      ):
        raise Mistake(
          f"these runs have {name}, which task {self.name} does not know: leave it out"
        )
    if runs.sampling:
      raise Mistake(
        f"these runs choose training examples, of which task {self.name} knows none: leave that out"
      )
    return runs.of(self.sources, self.values)

  def lanes(self, runs: Runs) -> Run:
    """The table as a `Run` of arrays (runs, ...), with the task's values where nothing
    is swept.
    """
    filled = {
      name: np.full(len(runs), value, np.float32) for name, value in self.values.items()
    }
    return Run(runs.seeds, filled | runs.values)

  def outputs(self, runs: Runs) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and dtypes of a run's outputs, by name. `Mistake` where the three
    functions do not fit together.
    """

    run = jax.tree.map(lambda column: column[0], self.lanes(runs[:1]))
    round_ = jax.ShapeDtypeStruct((), np.int32)
    try:
      state = jax.eval_shape(self.start, self.data, run)
      went_on = jax.eval_shape(self.advance, self.data, run, state, round_, round_)
      found = jax.eval_shape(self.finish, self.data, run, state)
    except Mistake:
      raise
    except Exception as error:  # whatever the user's functions do
      raise Mistake(
        f"{self.name} fails before it trains ({objects.told(error)}): mend that"
      ) from error
    before, after = (
      jax.tree.map(lambda a: f"{a.dtype}{[*a.shape]}", s) for s in (state, went_on)
    )
    if before != after:
      raise Mistake(
        f"advance of {self.name} makes of a state {before} {after}: give one of the same shapes and dtypes"
      )
    if not (
      isinstance(found, Mapping)
      and found
      and all(isinstance(a, jax.ShapeDtypeStruct) for a in found.values())
    ):
      raise Mistake(
        f"finish of task {self.name} gives no arrays by name: give a dict such as {{'loss': loss}}"
      )
    self.check_stored(found, runs)
    return dict(found)

  def check_stored(self, found: Mapping[str, jax.ShapeDtypeStruct], runs: Runs) -> None:
    """`Mistake` where results cannot store what `finish` gives: for its names, dtypes
    or axes.
    """
    taken, sizes = {*runs.columns(), *OF_FOLDERS}, dict[tuple[str, str], int]()
    for name, array in found.items():
      said = f"finish of {self.name} gives {name!r}"
      if not (
        isinstance(name, str)
        and name.isprintable()
        and re.fullmatch(r"[^/\\.][^/\\]*(/[^/\\.][^/\\]*)*", name)
      ):
        raise Mistake(f"{said}: give a printable name without \\ and no . in front")
      if name.split("/")[0] in taken:
        raise Mistake(f"{said}: results have something else of that name, give another")
      if getattr(array.dtype, "kind", "") not in {*"biuf"}:
        raise Mistake(
          f"{said} of {array.dtype}: give numbers of NumPy's dtypes, such as float32"
        )
      axes = self.dimensions(name, array.shape)
      if (
        isinstance(self.dims.get(name), str)
        or len(axes) != array.ndim
        or len({*axes, "run"}) <= array.ndim
      ):
        others = f"give {array.ndim} names, all different, without that of the run"
        raise Mistake(f"dims of {name!r} are {self.dims[name]!r}: {others}")
      for axis, size in zip(axes, array.shape, strict=True):
        other = sizes.setdefault((name.rpartition("/")[0], axis), size)
        if size != other:
          raise Mistake(
            f"{said} with {size} along {axis!r}, another array has {other}: give the axes other names"
          )
    for name in self.dims:
      one_of("array in dims", name, found)
    arrays = (name.rpartition("/")[2] for name in (*found, *self.examples))
    for name in runs.values.keys() & {"run", *arrays, *(axis for _, axis in sizes)}:
      raise Mistake(
        f"a sweep of {name!r}: results have something else of that name, rename the value"
      )

  def tallied(self, runs: Runs) -> dict[str, Int[np.ndarray, " examples"]]:
    """The labels of the test sets that have tallies, by the sets' names. Only
    classifiers have tallies, and only if no run has a label map and all runs have the
    same values and pokes.
    """
    return {}

  def stored(self, outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What is stored of the outputs of some runs. The outputs are on the host, so that
    any dtype is possible.
    """
    return dict(outputs)

  def dimensions(self, name: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    """The names of an output's axes, without the run axis."""
    return tuple(
      self.dims.get(name) or (f"{name}.{axis}" for axis in range(len(shape)))
    )

  @property
  def examples(self) -> dict[str, np.ndarray]:
    """Arrays that are stored once for all runs."""
    return {}

  def described(self) -> str:
    """All that defines the task but its data, as JSON."""
    functions = {
      part: objects.described(getattr(self, part))
      for part in ("start", "advance", "finish")
    }
    return json.dumps(
      {
        "name": self.name,
        **functions,
        "rounds": self.rounds,
        "values": dict(self.values),
      }
    )

  @functools.cached_property
  def data_digest(self) -> str:
    """A fingerprint of the data: when a campaign is resumed, the same name may mean
    other data.
    """
    return fingerprint(self.data)

  def description(self, runs: Runs) -> dict[str, Any]:
    """The task's entries in a folder's description."""
    return {
      "recipe": self.described(),
      "test_sets": [],
      "num_classes": None,
      "sampling": None,
    }

  def conditions(self) -> dict[str, Any]:
    """What must be equal for bit-for-bit equal results, besides what `described` has
    and how lanes run.
    """
    return {
      "precision": None,
      "data_digest": self.data_digest,
      "mean": None,
      "std": None,
    }

  def speed_key(self) -> dict[str, Any]:
    """What the task's speed depends on."""
    shapes = [
      (a.shape, str(a.dtype)) for a in map(np.asarray, jax.tree.leaves(self.data))
    ]
    return {"task": self.described(), "data": shapes}

  def trial(self) -> "Task":
    """A task whose steps are as fast as this one's, short enough to be timed."""
    return self

  def bytes_of_a_run(self, runs: Runs) -> int:
    """How many bytes the results of one run take."""
    return sum(
      int(np.prod(a.shape)) * a.dtype.itemsize for a in self.outputs(runs).values()
    )

  def check_varying(self, runs: Runs) -> None:
    """`Mistake` where a source was chosen to vary, or a value is swept, that no run
    depends on.
    """
    run = jax.tree.map(lambda column: column[0], self.lanes(runs[:1]))
    varying = [s for s in runs.varying() if not self.reads(run, s)]
    if varying:
      others = ", ".join(
        source
        for source in self.sources
        if source not in varying and self.reads(run, source)
      )
      drawn = " (data only after Runs.subset or Runs.bootstrap)" * ("data" in varying)
      raise Mistake(
        f"{self.name} reads no seed of {', '.join(varying)}: vary some of {others}{drawn}"
      )
    unread = [name for name in runs.values if not self.reads(run, name)]
    if unread:
      raise Mistake(
        f"{self.name} does not read {', '.join(unread)}: a sweep of it would train the same run again"
      )

  def reads(self, run: Run, name: str) -> bool:
    """Whether a run depends on a source or a value. This traces the training and
    computes nothing.
    """

    def trained(data, run):
      state = self.start(data, run)
      state = self.advance(data, run, state, 0, self.rounds) if self.rounds else state
      return state, self.finish(data, run, state)

    def marked(path, leaf) -> bool:
      # Training does not read the data seed, only the subset that it drew or that was
      # given for it.
      keys = {getattr(key, "key", getattr(key, "name", None)) for key in path}
      return name in keys or (name == "data" and "subset" in keys)

    # Only the marked values get a batch axis. With `out_axes=None`, vmap fails if the
    # result depends on them.
    axes = jax.tree_util.tree_map_with_path(
      lambda path, leaf: 0 if marked(path, leaf) else None, run
    )
    batched = jax.tree_util.tree_map_with_path(
      lambda path, leaf: leaf[None] if marked(path, leaf) else leaf, run
    )
    try:
      jax.eval_shape(
        jax.vmap(trained, in_axes=(None, axes), out_axes=None), self.data, batched
      )
    except ValueError:
      return True
    return False
