"""Anybody's training as a campaign: a Python function of one run, called for each run that
is not there yet.
"""

import concurrent.futures
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Int
from rich.progress import Progress

from vmapseeds.errors import (
  UserError,
  check_at_least,
  console_of_stderr,
  hide_own_frames,
  hide_own_frames_of_methods,
  say,
)
from vmapseeds.results.opening import open_results
from vmapseeds.results.recording import Recorder
from vmapseeds.store.claims import Claims
from vmapseeds.store.files import Folder
from vmapseeds.store.folders import is_occupied
from vmapseeds.training.names import seed_column
from vmapseeds.training.runs import Runs

KINDS = {"predictions", "logits", "probabilities", "losses", "scores"}
Columns = dict[str, Any]  # what tells a run apart, as a recorder takes it


@hide_own_frames_of_methods
@dataclasses.dataclass(frozen=True)
class Repetition:
  """One run, as a function of one's own sees it.

  `run.seed` is its seed, `run["lr"]` a swept value, `run["fold"]` its fold.

  Attributes:
    row: its number.
    seeds: source of randomness -> seed.
    values: name -> its swept value, fold and so on.
    table: the runs table of this run alone.
  """

  row: int
  seeds: Mapping[str, int]
  values: Mapping[str, Any]
  table: Runs

  @property
  def seed(self) -> int:
    """Return the seed of all sources.

    Raises:
      UserError: they have different seeds.
    """
    different = set(self.seeds.values())
    if len(different) > 1:
      raise UserError(
        f"sources have seeds of their own, {', '.join(self.seeds)}: take run.seeds['init']"
      )
    return different.pop()

  def __getitem__(self, name: str) -> Any:
    return self.values[name]

  def split(
    self, examples: int, labels: Any = None
  ) -> tuple[Int[np.ndarray, " train"], Int[np.ndarray, " test"]]:
    """Return the indices of this run's training examples and of those that it holds out,
    as `k_fold`, `subset` or `bootstrap` of the runs table choose them of all `examples`.
    Stratified folds need the `labels` of all examples.

    Raises:
      UserError: the runs table chooses none.
    """
    chosen = self.table.split_examples(examples, labels)
    if "subset" not in chosen:
      raise UserError(
        "runs have no training examples of their own: give runs.k_fold(5)"
      )
    train = np.asarray(chosen["subset"][0])
    if "test_examples" in chosen:
      test = np.asarray(chosen["test_examples"][0])
      # Those of smaller folds end with a number that is no example.
      return train, test[test < examples]
    return train, np.setdiff1d(np.arange(examples), train)


@hide_own_frames
def repeat(
  train_one: Callable[[Repetition], Any],
  runs: Runs | int,
  out: Folder,
  *,
  executor: concurrent.futures.Executor | None = None,
  labels: Any = None,
  targets: Any = None,
  class_names: Sequence[str] | None = None,
  keep_logits: bool = False,
  lower_is_better: bool | str | Sequence[str] | None = None,
  progress: bool = True,
) -> xr.Dataset:
  """Call a function of your own for each run that a results folder does not have, add what
  it returns to the folder, and return what `open_results` does.

  ::

    def train_one(run):
      model = RandomForestClassifier(random_state=run.seed).fit(x_train, y_train)
      return {"predictions": model.predict(x_test)}

    vs.repeat(train_one, vs.Runs.independent(30), out="results/forest", labels=y_test)

  Called again, it resumes where it stopped; with more runs, it extends the folder. Several
  processes may call it at once, also on several machines that share the folder: each run
  is trained by one of them. `compare`, `report` and `sample_size` read the folder at any
  time.

  Args:
    train_one: takes a `Repetition`: `run.seed`, `run.seeds`, `run["lr"]`, `run.split(n)`.
      Returns a dict with "predictions" or "losses" (examples,), "logits" or
      "probabilities" (examples, classes), or "scores", name -> number; or these scores
      themselves.
    runs: the runs table, or a number n for `Runs.independent(n)`.
    out: the results folder: new, empty, or with runs of an earlier call.
    executor: of `concurrent.futures`, which calls the function in several threads or
      processes; by default one run is trained after another. A process pool needs a
      function that can be imported.
    labels: (examples,), as `Recorder` takes them; without predictions there are none.
    targets: (examples,), the numbers to be predicted, instead of labels.
    class_names: what reports call the classes.
    keep_logits: whether to keep logits beside predictions.
    lower_is_better: whether lower scores are better; of several, the names of those.
    progress: whether to draw a progress bar on stderr.

  Raises:
    UserError: as `Recorder.add`. What the function raises is raised here; runs that were
      added stay.
  """
  if not isinstance(runs, Runs):
    runs = Runs.independent(check_at_least("runs", runs, 1))
  recorder = Recorder(
    out,
    labels=labels,
    targets=targets,
    class_names=class_names,
    keep_logits=keep_logits,
    lower_is_better=lower_is_better,
    progress=progress,
  )
  columns = columns_of_runs(runs)
  missing = [row for row, of_run in enumerate(columns) if not recorder.has(**of_run)]
  bar = Progress(console=console_of_stderr(), disable=not progress)
  with bar, _Claimed(recorder) as claims:
    task = bar.add_task("runs", total=len(runs), completed=len(runs) - len(missing))
    for row, outcome in _outcomes(train_one, runs, missing, columns, claims, executor):
      _add(recorder, outcome, columns[row])
      claims.give_back(columns[row])
      bar.advance(task)
  if claims.others:
    say(f"{claims.others} runs are trained by another process")
  return open_results(out)


def _outcomes(
  train_one: Callable[[Repetition], Any],
  runs: Runs,
  missing: Sequence[int],
  columns: Sequence[Columns],
  claims: "_Claimed",
  executor: concurrent.futures.Executor | None,
) -> Iterator[tuple[int, Any]]:
  """Yield the number of each missing run that no other process trains, and its outcome."""
  if executor is None:
    for row in missing:
      if claims.take(columns[row]):
        yield row, train_one(_repetition(runs, row))
    return
  futures = {}
  for row in missing:
    if claims.take(columns[row]):
      futures[executor.submit(train_one, _repetition(runs, row))] = row
  try:
    for future in concurrent.futures.as_completed(futures):
      yield futures[future], future.result()
  finally:
    for future in futures:
      future.cancel()


def columns_of_runs(runs: Runs) -> list[Columns]:
  """Return what tells each run apart: `seed` if all sources have the same, else that of
  each source that varies; and its values.
  """
  table: dict[str, np.ndarray] = {}
  seeds = {**runs.seeds}
  first = next(iter(seeds.values()))
  if all(np.array_equal(of_source, first) for of_source in seeds.values()):
    table["seed"] = first
  else:
    varying = {name: x for name, x in seeds.items() if np.ptp(x) > 0}
    table = {seed_column(name): x for name, x in varying.items()}
  for name, column in runs.values.items():
    if column.ndim == 1:
      table[name] = column
  return [
    {name: column[row].item() for name, column in table.items()}
    for row in range(len(runs))
  ]


def _repetition(runs: Runs, row: int) -> Repetition:
  seeds = {source: int(column[row]) for source, column in runs.seeds.items()}
  values = {}
  for name, column in runs.values.items():
    values[name] = column[row].item() if column.ndim == 1 else column[row]
  return Repetition(row, seeds, values, runs[row])


def _add(recorder: Recorder, outcome: Any, columns: Columns) -> None:
  """Add what a function returned of a run, unless another process has done so."""
  if isinstance(outcome, Mapping) and KINDS.isdisjoint(outcome):
    outcome = {"scores": dict(outcome)}
  if not isinstance(outcome, Mapping) or set(outcome) - KINDS:
    raise UserError(
      f"train_one returned {outcome!r:.100}: give a dict with predictions, logits or "
      "scores, such as {'scores': {'r2': 0.8}}"
    )
  if not recorder.has(**columns):
    recorder.add(**outcome, **columns)


class _Claimed:
  """The runs of a folder that this process trains. Before there is a folder nobody can
  claim any: then two processes may train the same first run, and one of them adds it.
  """

  def __init__(self, recorder: Recorder):
    self._recorder = recorder
    self._claims: Claims | None = None
    self._names: set[str] = set()
    self.others = 0  # runs that other processes hold

  def __enter__(self) -> "_Claimed":
    return self

  def __exit__(self, *error: Any) -> None:
    if self._claims is not None:
      self._claims.__exit__(*error)

  def take(self, columns: Columns) -> bool:
    """Claim a run. Return False where another process has it, or has added it."""
    if self._claims is None:
      if not is_occupied(self._recorder.path):
        return True
      self._claims = Claims(self._recorder.path).__enter__()
    name = _claim_name(columns)
    if not self._claims.take(name):
      self.others += 1
      return False
    self._names.add(name)
    if self._recorder.has(**columns):
      self.give_back(columns)
      return False
    return True

  def give_back(self, columns: Columns) -> None:
    name = _claim_name(columns)
    if self._claims is not None and name in self._names:
      self._names.discard(name)
      self._claims.give_back(name)


def _claim_name(columns: Columns) -> str:
  # Blocks have numbers, and the folder's description its own name.
  text = json.dumps(columns, sort_keys=True)
  return f"run_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
