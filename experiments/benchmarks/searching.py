"""How long many searches of hyperparameters take: one campaign, beside the same trials in
plain optuna, one process a core.

    python -m experiments.benchmarks.searching        (20 searches of 200 trials, most from a sample of 10 trials each)

    campaign     `vs.search`: all searches of a round are trained side by side
    PyTorch      optuna asked and told in a loop, one network at a time in PyTorch, one thread
    JAX          the same with vmapseeds' own training loop for one network, jitted once

These train each trial to the end, by TPE. Two more stop the worse of them early, all
trials of each search, by random search, as successive halving takes as many epochs a
trial only of many trials:

    campaign, rungs    each rung trains anew, with a schedule of its own length
    PyTorch, pruned    a trial ends at a rung where optuna's SuccessiveHalvingPruner says so

All have the same examples, batch size, augmentation and space. Programs are compiled
before the clock starts. A sample's time is scaled to the whole. Processor time counts if
other programs run on the machine.
"""

import dataclasses
import itertools
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Annotated, Any, NamedTuple

import jax
import numpy as np

import vmapseeds as vs
from experiments.benchmarks import common
from experiments.benchmarks.common import Count, Table
from experiments.benchmarks.contenders import significant
from experiments.command import hint
from experiments.frame import format_duration
from vmapseeds.cli import one_line_errors
from vmapseeds.errors import UserError
from vmapseeds.parsing import parse_overrides
from vmapseeds.searches.trials import create_study, distributions_of, read_trials
from vmapseeds.training.supervised import load_recipe_task
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
  """trials of each search that are trained and timed if none is stopped early; plain optuna trains one search a core"""

  rungs: Annotated[tuple[int, ...], hint("EPOCHS", "1 4")] = (1, 4)
  """epochs after which trials are stopped early; each as many times the one before, and the recipe's epochs as many
  times the last"""


class Timing(NamedTuple):
  """A sample of one way: trials of all its processes together, and the best validation
  accuracy of each search.
  """

  trials: int
  epochs: float
  seconds: float
  processor_seconds: float
  best: list[float]


# Values and what tells after how many epochs, with which accuracy, to stop ->
# validation accuracy and epochs
Trial = Callable[
  [Mapping[str, float], Callable[[int, float], bool] | None], tuple[float, int]
]


def prepared(recipe: vs.Recipe, search: int):
  """The recipe's task, and the lane of a search: its seeds, examples and values."""
  runs = vs.Runs.independent(1, start=search).out_of_bootstrap()
  task = load_recipe_task(recipe, runs)
  return task, jax.tree.map(lambda column: column[0], lanes_of(task, runs))


def jax_trial(recipe: vs.Recipe, search: int) -> Trial:
  """One network at a time by the training loop that lanes run."""
  task, run = prepared(recipe, search)

  @jax.jit
  def accuracy(data, run):
    state = task.advance(data, run, task.start(data, run), 0, task.rounds)
    return task.finish(data, run, state)["valid_accuracy"]

  def trial(values, stop=None):
    drawn_values = {name: np.float32(value) for name, value in values.items()}
    reached = accuracy(
      task.data, dataclasses.replace(run, values={**run.values, **drawn_values})
    )
    return float(reached), recipe.epochs

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
  train = torch.from_numpy(np.array(run["subset"])).long()
  valid = torch.from_numpy(np.array(run["valid_examples"])).long()
  steps = len(train) // recipe.batch_size

  def trial(values, stop=None):
    model = MODELS[recipe.model](pool.inputs.shape[1:], pool.num_classes, recipe.width)
    optimizer = torch.optim.SGD(model.parameters(), **values, fused=True)
    schedule = torch.optim.lr_scheduler.LinearLR(
      optimizer,
      1,
      0,
      total_iters=steps * recipe.epochs,
    )
    for epoch in range(1, recipe.epochs + 1):
      order = train[torch.randperm(len(train))][: steps * recipe.batch_size]
      for chosen in order.split(recipe.batch_size):
        x, y = inputs.batch(chosen)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
      if stop and stop(epoch, accuracy(model)):
        break
    return accuracy(model), epoch

  def accuracy(model):
    with torch.inference_mode():
      x = (inputs.images[valid].float() - inputs.mean) / inputs.std
      return (model(x).argmax(1) == inputs.labels[valid]).float().mean().item()

  return trial


TRIALS = {"PyTorch": torch_trial, "JAX": jax_trial}


def run_optuna(
  name: str,
  recipe: vs.Recipe,
  search: int,
  count: int,
  core: int,
  rungs: tuple[int, ...] = (),
) -> Timing:
  """One search in plain optuna, in a process that is tied to a core."""
  import optuna

  os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[core]})
  jax.config.update("jax_num_cpu_devices", 1)
  trial = TRIALS[name](recipe, search)
  trial({name: getattr(recipe, name) for name in OVER}, None)  # compiles
  samplers = optuna.samplers
  sampler = samplers.RandomSampler if rungs else samplers.TPESampler
  pruner = optuna.pruners.NopPruner()
  if rungs:
    factor = factor_of(rungs, recipe.epochs)
    pruner = optuna.pruners.SuccessiveHalvingPruner(rungs[0], factor)
  study = create_study(True, sampler=sampler(seed=search), pruner=pruner)
  space = distributions_of(searched_space())
  epochs = 0
  began = time.perf_counter(), time.process_time()
  for _ in range(count):
    asked = study.ask(space)

    def stop(epoch, accuracy, asked=asked):
      if epoch not in rungs:
        return False
      asked.report(accuracy, epoch)
      return asked.should_prune()

    accuracy, trained = trial(asked.params, stop if rungs else None)
    epochs += trained
    if trained < recipe.epochs:
      study.tell(asked, state=optuna.trial.TrialState.PRUNED)
    else:
      study.tell(asked, accuracy)
  ended = time.perf_counter(), time.process_time()
  best = [study.best_value]
  return Timing(count, epochs, ended[0] - began[0], ended[1] - began[1], best)


def factor_of(rungs: tuple[int, ...], epochs: int) -> int:
  """Return how many times as long as the rung before each rung is.

  Raises:
    UserError: they differ, which optuna's pruner does not know.
  """
  factors = {long / short for short, long in itertools.pairwise((*rungs, epochs))}
  factor = max(factors)
  if len(factors) > 1 or not factor.is_integer() or factor < 2:
    raise UserError(
      f"--rungs {' '.join(map(str, rungs))} of {epochs} epochs: give epochs of which "
      "each is the same whole number of times the one before, as 1 4 of 16"
    )
  return int(factor)


def searched_space():
  from vmapseeds.searches.spaces import parse_space

  return parse_space(OVER)


def run_on_cores(
  name: str,
  recipe: vs.Recipe,
  count: int,
  first: int,
  rungs: tuple[int, ...] = (),
) -> Timing:
  """One search a core, all at once."""
  cores = common.cores()
  context = multiprocessing.get_context("spawn")
  with ProcessPoolExecutor(cores, mp_context=context) as workers:
    searches = [
      workers.submit(run_optuna, name, recipe, first + core, count, core, rungs)
      for core in range(cores)
    ]
    timings = [future.result() for future in searches]
  return Timing(
    cores * count,
    sum(f.epochs for f in timings),
    max(f.seconds for f in timings),
    sum(f.processor_seconds for f in timings),
    [best for f in timings for best in f.best],
  )


def run_campaign(
  recipe: vs.Recipe,
  searches: int,
  count: int,
  rungs: tuple[int, ...] = (),
) -> Timing:
  """All searches in one campaign, after a first trial of each that compiles."""
  how: dict[str, Any] = dict(searches=searches, progress=False)
  if rungs:
    how |= dict(rungs=rungs, seed_batch=256)
  else:
    how |= dict(sampler="tpe")
  with tempfile.TemporaryDirectory() as folder:
    first = vs.search(recipe, OVER, trials=1, out=f"{folder}/s", **how)
    begun = epochs_of(first, recipe)
    began = time.perf_counter(), time.process_time()
    results = vs.search(recipe, OVER, trials=1 + count, out=f"{folder}/s", **how)
    ended = time.perf_counter(), time.process_time()
    epochs = epochs_of(results, recipe) - begun
    trials = read_trials(f"{folder}/s")
    kept = trials.trial < count  # as many as the others have
    best = [
      trials.objective[kept & (trials.search == s)].max() for s in range(searches)
    ]
  return Timing(
    searches * count,
    epochs,
    ended[0] - began[0],
    ended[1] - began[1],
    [float(value) for value in best],
  )


def epochs_of(results, recipe: vs.Recipe) -> float:
  """Return how many epochs all runs of a search were trained."""
  if "epochs" in results:
    return float(results["epochs"].sum())
  return recipe.epochs * results.sizes["run"]


def main(argv: list[str] | None = None) -> None:
  flags, command = common.arguments(Flags, __doc__, "searching", argv)
  recipe = vs.recipe(flags.recipe, **parse_overrides(flags.set))
  where = common.elsewhere(common.machine)
  factor_of(flags.rungs, recipe.epochs)

  def ours(count, rungs=()):
    return lambda number: common.elsewhere(
      run_campaign,
      recipe,
      flags.searches,
      count,
      rungs,
    )

  def theirs(name, count, rungs=()):
    return lambda number: run_on_cores(
      name,
      recipe,
      count,
      number * common.cores(),
      rungs,
    )

  ways: dict[str, Callable[[int], Timing]] = {
    "campaign": ours(flags.sample),
    **{name: theirs(name, flags.sample) for name in TRIALS},
    "campaign, rungs": ours(flags.trials, flags.rungs),
    "PyTorch, pruned": theirs("PyTorch", flags.trials, flags.rungs),
  }
  timings = {name: [] for name in ways}
  for number in range(flags.rounds):
    for name, way in ways.items():
      timings[name].append(way(number))
  whole = flags.searches * flags.trials
  rows = [row_of_way(name, timings, whole) for name in timings]
  head = (
    *("", "trials × searches", "epochs a trial"),
    *("seconds a trial", "processor seconds a trial"),
    f"hours for {whole:,} trials",
    *("time ÷ the campaign's", "processor time ÷ the campaign's"),
    *("time ÷ the campaign's by rungs", "processor time ÷ the campaign's by rungs"),
    "best validation accuracy of a search",
  )
  title = (
    f"{recipe.name}: {flags.searches} searches of {flags.trials} trials of at most "
    f"{format_duration(recipe.epochs)}, rungs {' and '.join(map(str, flags.rungs))}; medians of "
    f"{flags.rounds} rounds"
  )
  numbers = {}
  for name, timings_of_way in timings.items():
    numbers[name] = [timing._asdict() for timing in timings_of_way]
  common.write_results(flags, command, where, [Table(title, head, rows)], numbers)


def row_of_way(
  name: str,
  timings: dict[str, list[Timing]],
  whole: int,
) -> tuple[str, ...]:
  """Return what a trial takes in a way of searching, beside the campaign's; `whole` is
  how many trials all searches have.
  """
  of_way = timings[name]
  epochs = statistics.median(t.epochs / t.trials for t in of_way)
  wall = statistics.median(t.seconds / t.trials for t in of_way)
  processor = statistics.median(t.processor_seconds / t.trials for t in of_way)
  best = [value for t in of_way for value in t.best]
  searches = len(of_way[0].best)
  ratios = []
  for other in ("campaign", "campaign, rungs"):
    for field in ("seconds", "processor_seconds"):
      ratios.append(f"{median_ratio(of_way, timings[other], field):.2f}")
  se = np.std(best) / len(best) ** 0.5
  return (
    name,
    f"{of_way[0].trials // searches} × {searches}",
    significant(epochs),
    significant(wall),
    significant(processor),
    significant(whole * wall / 3600),
    *ratios,
    f"{np.mean(best):.2%} ± {se:.2%}",
  )


def median_ratio(ours: list[Timing], theirs: list[Timing], field: str) -> float:
  """Return the median ratio of the times of a trial."""
  return statistics.median(
    getattr(a, field) / a.trials / (getattr(b, field) / b.trials)
    for a, b in zip(ours, theirs, strict=True)
  )


if __name__ == "__main__":
  with one_line_errors():
    main()
