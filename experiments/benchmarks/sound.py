"""How often sound results get a line that says something is wrong.

    python -m experiments.benchmarks.sound

Folders are trained on digits (networks, lengths, optimizers, sweeps, subsets, one varied
source, what is kept), imported (predictions or logits of runs with a known law, from 2
to 1,000 classes, rare ones too, 25 examples or more, 1 run or more) or of a task with
losses and scores. Every note of `train` and `import`, every doubt, and every warning of
a report is counted; of the first two there should be none.

Cost: 4 minutes on one CPU core.
"""

import contextlib
import dataclasses
import io
import itertools
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.progress import track

import vmapseeds as vs
from experiments.benchmarks.common import (
  Count,
  Flags,
  Table,
  arguments,
  machine,
  write_results,
)
from experiments.merging import merged
from vmapseeds.reports.summaries import summarize
from vmapseeds.results.doubts import find_doubts
from vmapseeds.results.formatting import capitalized

Make = Callable[[Path], Any]
Runs = vs.Runs
FEW = Runs.independent(6)
# Fields of digits_cnn, and options.
NETWORKS: tuple[dict[str, Any], ...] = (
  {"model": "linear"},
  {"model": "mlp", "width": 0.25},
  {"width": 0.5},
)
LENGTHS: tuple[dict[str, Any], ...] = (
  {"epochs": 1},
  {"epochs": 2, "evaluate_every": 1, "training_metrics": True},
  {"epochs": 5, "evaluate_every": 2, "training_metrics": True, "lr": 0.02},
)
KEPT: tuple[dict[str, Any], ...] = ({}, {"logits": True, "keep_params": True})
TABLES = (FEW, Runs.independent(3, start=90), Runs.independent(1))
DIGITS = vs.load_dataset("digits")
SPECIAL: tuple[tuple[dict[str, Any], vs.Runs, dict[str, Any]], ...] = (
  ({"optimizer": "adamw", "lr": 0.002}, FEW, {"logits": True}),
  ({"optimizer": "sgd", "momentum": 0.0}, FEW, {}),
  ({"label_smoothing": 0.1, "training_metrics": True}, FEW, {"logits": True}),
  ({"dataset": merged(DIGITS, (0, 1) * 5)}, FEW, {"logits": True}),
  ({"dataset": merged(DIGITS, (0,) * 9 + (1,))}, FEW, {}),
  ({"test_sets": ("test", "train")}, FEW, {}),
  ({"augment": ""}, FEW, {"predictions": "none"}),
  ({"dropout": 0.2, "model": "mlp"}, FEW, {}),
  ({"weight_decay": 0.1, "schedule": "cosine"}, FEW, {}),
  ({"precision": "bfloat16"}, FEW, {"logits": True}),
  ({"batch_size": 20, "epochs": 10}, FEW.subset(40), {}),
  ({}, FEW.bootstrap(), {}),
  ({}, Runs.vary(["init"], 6), {}),
  ({}, Runs.vary(["order"], 6), {}),
  ({"augment": ""}, Runs.vary(["init"], 3, repeat={"order": 2}), {}),
  ({}, Runs.sweep(lr=[0.02, 0.05, 0.1], seeds=3), {}),
  ({}, Runs.sweep(epochs=[1, 2], seeds=3), {}),
)


def measure_gain(data: Any, run: Any, state: Any) -> dict[str, Any]:
  """Return losses of 300 examples, and seconds, both smaller by the run's gain."""
  key = jax.random.fold_in(run.key("init"), (100 * run["gain"]).astype(int))
  noise = jax.random.normal(key, (301,))
  return {
    "loss": 0.5 - run["gain"] + 0.2 * noise[1:],
    "time": 60 - run["gain"] + noise[0],
  }


MEASURED = vs.Task(
  name="measured",
  start=lambda data, run: 0.0,
  advance=lambda data, run, state, first, last: state,
  finish=measure_gain,
  data=(),
  rounds=1,
  sources=("init",),
  values={"gain": 0.0},
  outputs={
    "loss": vs.Output(("example",), "loss", unit="nats"),
    "time": vs.Output(role="score", unit="s", higher_is_better=False),
  },
)


def trained_folders() -> Iterator[Make]:
  """Yield what makes a folder by training."""

  def make(fields, runs, kept):
    recipe = vs.recipe("digits_cnn", **{"epochs": 2, **fields})
    return lambda out: vs.train(recipe, runs, out, **kept)

  for fields, runs, kept in SPECIAL:
    yield make({"model": "linear", **fields}, runs, kept)
  combinations = itertools.product(NETWORKS, LENGTHS, KEPT, TABLES)
  for network, length, kept, runs in combinations:
    yield make(network | length, runs, kept)
  for gains in ([0.0], [0.1], [0.0, 0.1, 0.2]):
    table = Runs.sweep(gain=gains, seeds=4)
    yield lambda out, table=table: vs.train(MEASURED, table, out)


def imported_folder(number: int) -> Make:
  """Return what imports runs whose law is drawn by a number."""
  rng = np.random.default_rng(number)
  classes = int(rng.choice([2, 3, 10, 100, 1000]))
  examples = int(rng.choice([25, 50, 200, 1000]))
  runs = int(rng.choice([1, 2, 5, 30]))
  shares = rng.dirichlet(np.full(classes, rng.choice([0.3, 1.0, 10.0])))
  labels = rng.choice(classes, examples, p=shares)
  # At least a third of the way from chance to 1.
  chance = (shares**2).sum()
  rate = (1 - chance) * rng.uniform(0.001, 0.67)
  difficulty = 5 * rng.beta(0.5, 2, examples)  # with mean 1
  hard = np.minimum(difficulty * rate, 0.98)
  taken = rng.choice(classes, examples, p=shares)  # the class that it is taken for
  wrong = rng.random((runs, examples)) < hard
  predictions = np.where(wrong, taken, labels)
  outputs: dict[str, Any] = {"predictions": predictions, "num_classes": classes}
  if rng.random() < 0.5 and predictions.size * classes < 3e6:
    logits = rng.normal(size=(runs, examples, classes))
    np.put_along_axis(logits, predictions[..., None], 6, -1)
    outputs = {"logits": logits.astype(rng.choice([np.float16, np.float32]))}
  if rng.random() < 0.3:
    outputs.pop("num_classes", None)
  seeds = {}
  if rng.random() < 0.5:
    seeds = {"values": {"seed": np.arange(runs)}}
  return lambda out: vs.import_runs(out, labels=labels, **outputs, **seeds)


def lines_of(make: Make, out: Path) -> tuple[list[str], list[str]]:
  """Return the notes and doubts of a new folder, and the warnings of its reports."""
  stderr = io.StringIO()
  with contextlib.redirect_stderr(stderr):
    make(out)
  notes = []
  for line in stderr.getvalue().splitlines():
    if line.startswith("note:"):
      notes.append(capitalized(line.removeprefix("note: ")))
  warnings: list[str] = []
  sets = json.loads(vs.open_results(out).attrs["test_sets"]) or ["test"]
  for name in sets:
    results = vs.open_results(out, name)
    notes += find_doubts(results)
    warnings += summarize(results, test_set=name)["warnings"]
  # A report says doubts again, as warnings.
  others = [warning for warning in warnings if warning not in notes]
  return list(dict.fromkeys(notes)), others


def without_numbers(kind: str, lines: list[str]) -> set[str]:
  """Return the different lines of a folder, a # for each number, after its kind."""
  alike = [re.sub(r"[\d.,]*\d", "#", line) for line in lines]
  return {f"{kind}: {line}" for line in alike}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SoundFlags(Flags):
  """How many folders are imported."""

  imports: Count = 150
  """imported folders, beside those that are trained"""


def main(argv: Sequence[str] | None = None) -> None:
  flags, command = arguments(SoundFlags, __doc__, "sound", argv)
  makers = {"trained": [*trained_folders()]}
  makers["imported"] = [imported_folder(number) for number in range(flags.imports)]
  counts = {"wrong": Counter[str](), "warning": Counter[str]()}
  folders = Counter[str]()
  with tempfile.TemporaryDirectory() as path:
    steps = []
    for kind, makers_of_kind in makers.items():
      steps += [(kind, make) for make in makers_of_kind]
    progress = track(steps, "making", console=Console(stderr=True))
    for i, (kind, make) in enumerate(progress):
      folders[kind] += 1
      wrong, warnings = lines_of(make, Path(path, str(i)))
      counts["wrong"].update(without_numbers(kind, wrong))
      counts["warning"].update(without_numbers(kind, warnings))
  count = " and ".join(f"{number} {kind}" for kind, number in folders.items())
  tables = [
    table_of_lines(
      f"Lines that say that something is wrong, in {count} sound folders",
      counts["wrong"],
    ),
    table_of_lines("Other warnings of their reports", counts["warning"]),
  ]
  record = {kind: dict(lines) for kind, lines in counts.items()}
  write_results(flags, command, machine(), tables, record)


def table_of_lines(title: str, counts: Counter[str]) -> Table:
  """Return in how many folders each line stands."""
  rows = [(line, str(folders)) for line, folders in counts.most_common()]
  return Table(title, ("line", "folders"), rows or [("none", "0")])


if __name__ == "__main__":
  main()
