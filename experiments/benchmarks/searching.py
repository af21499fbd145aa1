"""How long many searches of hyperparameters take: one campaign, beside the same trials in
plain optuna, one process a core.

    python -m experiments.benchmarks.searching        (20 searches of 200 trials, from a sample of 10 trials each)

    campaign     `vs.search`: all searches of a round are trained side by side
    PyTorch      optuna asked and told in a loop, one network at a time in PyTorch, one thread
    JAX          the same with vmapseeds' own training loop for one network, jitted once

All have the same examples, epochs, batch size, schedule, augmentation and sampler (TPE).
Programs are compiled before the clock starts. Each way trains a sample, and its time is
scaled to the whole. Processor time counts if other programs run on the machine.
"""

import dataclasses
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

import vmapseeds as vs
from experiments.benchmarks import common
from experiments.benchmarks.common import Count, Table
from experiments.benchmarks.contenders import significant
from experiments.frame import duration
from vmapseeds.cli import mistakes, overrides
from vmapseeds.results.searches import create_study, distributions_of, read_trials
from vmapseeds.training.supervised import make_task
from vmapseeds.training.task import lanes_of

OVER = {
  "lr": "log 1e-3..1",
  "momentum": "0.5..0.99",
  "weight_decay": "log 1e-6..1e-2",
}


@dataclasses.dataclass(frozen=True)
class Flags(common.RecipeFlags):
  searches: Count = 20
  """independent searches"""

  trials: Count = 200
  """trials of each search"""

  sample: Count = 10
  """trials of each search that are trained and timed; plain optuna trains one search a core"""


class Timing(NamedTuple):
  """A sample of one way: trials of all its processes together, and the best validation
  accuracy of each search.
  """

  trials: int
  seconds: float
  processor_seconds: float
  best: list[float]


Trial = Callable[[Mapping[str, float]], float]  # values -> validation accuracy


def prepared(recipe: vs.Recipe, search: int):
  """The recipe's task, and the lane of a search: its seeds, examples and values."""
  runs = vs.Runs.independent(1, start=search).out_of_bootstrap()
  task = make_task(recipe, runs)
  return task, jax.tree.map(lambda column: column[0], lanes_of(task, runs))


def jax_trial(recipe: vs.Recipe, search: int) -> Trial:
  """One network at a time by the training loop that lanes run."""
  task, run = prepared(recipe, search)

  @jax.jit
  def accuracy(data, run):
    state = task.advance(data, run, task.start(data, run), 0, task.rounds)
    return task.finish(data, run, state)["valid_accuracy"]

  def trial(values):
    given = {name: np.float32(value) for name, value in values.items()}
    return float(
      accuracy(task.data, dataclasses.replace(run, values={**run.values, **given}))
    )

  return trial


def torch_trial(recipe: vs.Recipe, search: int) -> Trial:
  """One network at a time in PyTorch, on one thread."""
  import torch
  from torch.nn import functional as F

  from experiments.benchmarks.plain_torch import MODELS, Input

  torch.set_num_threads(1)
  torch.manual_seed(search)
  task, run = prepared(recipe, search)
  pool, _ = task.data
  inputs = Input(recipe, pool, "cpu", channels_last=False)
  train, valid = (
    torch.from_numpy(np.array(run[name])).long()
    for name in ("subset", "valid_examples")
  )
  steps = len(train) // recipe.batch_size

  def trial(values):
    model = MODELS[recipe.model](pool.inputs.shape[1:], pool.num_classes, recipe.width)
    optimizer = torch.optim.SGD(model.parameters(), **values, fused=True)
    schedule = torch.optim.lr_scheduler.LinearLR(
      optimizer, 1, 0, total_iters=steps * recipe.epochs
    )
    for _ in range(recipe.epochs):
      order = train[torch.randperm(len(train))][: steps * recipe.batch_size]
      for chosen in order.split(recipe.batch_size):
        x, y = inputs.batch(chosen)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
    with torch.inference_mode():
      x = (inputs.images[valid].float() - inputs.mean) / inputs.std
      return (model(x).argmax(1) == inputs.labels[valid]).float().mean().item()

  return trial


TRIALS = {"PyTorch": torch_trial, "JAX": jax_trial}


def plain(name: str, recipe: vs.Recipe, search: int, count: int, core: int) -> Timing:
  """One search in plain optuna, in a process that is tied to a core."""
  import optuna

  os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[core]})
  jax.config.update("jax_num_cpu_devices", 1)
  trial = TRIALS[name](recipe, search)
  trial({name: getattr(recipe, name) for name in OVER})  # compiles
  study = create_study(True, sampler=optuna.samplers.TPESampler(seed=search))
  space = distributions_of(searched_space())
  began = time.perf_counter(), time.process_time()
  for _ in range(count):
    asked = study.ask(space)
    study.tell(asked, trial(asked.params))
  ended = time.perf_counter(), time.process_time()
  return Timing(count, ended[0] - began[0], ended[1] - began[1], [study.best_value])


def searched_space():
  from vmapseeds.campaign.spaces import parse_space

  return parse_space(OVER)


def together(name: str, recipe: vs.Recipe, count: int, first: int) -> Timing:
  """One search a core, all at once."""
  cores = common.cores()
  context = multiprocessing.get_context("spawn")
  with ProcessPoolExecutor(cores, mp_context=context) as workers:
    of = [
      workers.submit(plain, name, recipe, first + core, count, core)
      for core in range(cores)
    ]
    found = [future.result() for future in of]
  return Timing(
    cores * count,
    max(f.seconds for f in found),
    sum(f.processor_seconds for f in found),
    [best for f in found for best in f.best],
  )


def campaign(recipe: vs.Recipe, searches: int, count: int) -> Timing:
  """All searches in one campaign, after a first trial of each that compiles."""
  how: dict[str, Any] = dict(sampler="tpe", searches=searches, progress=False)
  with tempfile.TemporaryDirectory() as folder:
    vs.search(recipe, OVER, trials=1, out=f"{folder}/s", **how)
    began = time.perf_counter(), time.process_time()
    vs.search(recipe, OVER, trials=1 + count, out=f"{folder}/s", **how)
    ended = time.perf_counter(), time.process_time()
    trials = read_trials(f"{folder}/s")
    kept = trials.trial < count  # as many as the others have
    best = [
      trials.objective[kept & (trials.search == s)].max() for s in range(searches)
    ]
  return Timing(
    searches * count,
    ended[0] - began[0],
    ended[1] - began[1],
    [float(value) for value in best],
  )


def main(argv: list[str] | None = None) -> None:
  flags, command = common.arguments(Flags, __doc__, "searching", argv)
  recipe = vs.recipe(flags.recipe, **overrides(flags.set))
  where = common.elsewhere(common.machine)
  ways: dict[str, Callable[[int], Timing]] = {
    "campaign": lambda number: common.elsewhere(
      campaign, recipe, flags.searches, flags.sample
    ),
    **{
      name: lambda number, name=name: together(
        name, recipe, flags.sample, number * common.cores()
      )
      for name in TRIALS
    },
  }
  timings = {name: [] for name in ways}
  for number in range(flags.rounds):
    for name, way in ways.items():
      timings[name].append(way(number))
  whole = flags.searches * flags.trials
  rows = []
  for name, of in timings.items():
    wall, processor = (
      [getattr(t, field) / t.trials for t in of]
      for field in ("seconds", "processor_seconds")
    )
    ours = timings["campaign"]
    ratios = [
      statistics.median(
        a / (getattr(b, field) / b.trials) for a, b in zip(each, ours, strict=True)
      )
      for each, field in ((wall, "seconds"), (processor, "processor_seconds"))
    ]
    best = [value for t in of for value in t.best]
    rows.append(
      (
        name,
        significant(statistics.median(wall)),
        significant(statistics.median(processor)),
        significant(whole * statistics.median(wall) / 3600),
        *(f"{ratio:.2f}" for ratio in ratios),
        f"{np.mean(best):.2%} ± {np.std(best) / len(best) ** 0.5:.2%} ({len(best)})",
      )
    )
  head = (
    *(
      "",
      "seconds a trial",
      "processor seconds a trial",
      f"hours for {whole:,} trials",
    ),
    *("time ÷ the campaign's", "processor time ÷ the campaign's"),
    f"best validation accuracy of {flags.sample} trials (searches)",
  )
  title = (
    f"{recipe.name}: {flags.searches} searches of {flags.trials} trials by TPE, "
    f"{duration(recipe.epochs)} each, from {flags.sample} trials of each search and "
    f"one search a core; medians of {flags.rounds} rounds"
  )
  common.write(
    flags,
    command,
    where,
    [Table(title, head, rows)],
    {name: [t._asdict() for t in of] for name, of in timings.items()},
  )


if __name__ == "__main__":
  with mistakes():
    main()
