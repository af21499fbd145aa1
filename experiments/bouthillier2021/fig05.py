"""Bouthillier 2021, figures 5, H.4 and H.5: what measures that share hyperparameters or seeds are worth.

python -m experiments.bouthillier2021.fig05     569 tumours, two minutes on two cores; run it again to resume
python -m experiments.bouthillier2021.fig05 --tasks breast_cancer digits --runs 100 --searches 200 --trials 100
python -m experiments.bouthillier2021.fig05 --tasks vgg11 peptides --runs 100 --searches 100 --trials 196

The ideal estimator (algorithm 1) searches hyperparameters for each measure. The biased
one (algorithm 2) searches once, and then draws some sources anew for each of k measures.
"""

import argparse
import dataclasses
import math

import matplotlib.pyplot as plt
import numpy as np
import scipy.stats

import vmapseeds as vs
from experiments import measures, scripts
from experiments.bouthillier2021 import tasks
from experiments.bouthillier2021.tasks import (
  SOURCES,
  TASKS,
  jackknife,
  ratio_of_variances,
)
from experiments.estimates import Estimate, student_estimate
from experiments.scripts import exactly, row

PAPER = {
  "initialisation varies": "worth at best 2 measures: ρ above 0.5",
  "data vary": "worth 2 to 10: ρ from 0.1 to 0.5",
  "all but the search": "worth 2 to 100: ρ from 0.01 to 0.5",
}
RANDOMISED = {"init": ("init",), "data": ("data",), "all": SOURCES}
AFTER_SEARCH = (
  2**20
)  # the first seed of runs after a search, far from those of searches


def correlation(x: np.ndarray) -> Estimate:
  """Return the correlation within repetitions, with the interval of F, the ratio of the
  mean squares between and within: χ² with as many degrees of freedom as give F's error.
  """
  k = x.shape[1]
  rho = float(measures.average_correlation(x))
  f = (1 + (k - 1) * rho) / (1 - rho)
  se = jackknife(measures.average_correlation, x)
  if not (f > 0 and 0 < se < math.inf):
    return Estimate(math.nan, -1, 1)
  # By the delta method: the slope of F at ρ is k / (1 - ρ)².
  se_of_log = k * se / (1 - rho) ** 2 / f
  # The logarithm of χ² with n degrees of freedom has a variance of about 2/n.
  freedom = max(1.0, 2 / se_of_log**2)
  ends = f * freedom / scipy.stats.chi2.ppf([0.975, 0.025], freedom)
  low, high = (ends - 1) / (ends + k - 1)
  return Estimate(rho, low, high)


def summarize(ideal: np.ndarray, biased: dict[str, np.ndarray]) -> dict:
  """Return what one task says: measures by the ideal estimator, and (repetitions, k) by
  what the biased one draws anew. Errors are in standard deviations of an ideal measure.
  """
  truth, scale = ideal.mean(), ideal.std(ddof=1)
  found, squares = {}, {}
  for name, x in biased.items():
    k = np.arange(1, x.shape[1] + 1)
    from_truth = (x - truth) / scale
    squares[name] = from_truth.mean(axis=1) ** 2
    found[name] = {
      "correlation": correlation(x),
      "variance": x.var(),
      "sd_of_means": (np.cumsum(x, axis=1) / k).std(axis=0, ddof=1),
    }
    for part in ("bias", "variance", "mse"):
      value = part_of(from_truth, part)
      se = jackknife(lambda y, part=part: part_of(y, part), from_truth)
      found[name][f"{part} of the mean"] = student_estimate(value, se)
  return {
    "variance": scale**2,
    "biased": found,
    "init ÷ all": ratio_of_variances(squares["init"], squares["all"]),
    "runs": " × ".join(map(str, biased["all"].shape)),
  }


def part_of(x: np.ndarray, part: str) -> float:
  return float(getattr(measures.mse_decomposition(x, 0.0), part))


def measure(of_tasks: dict[str, dict]) -> dict:
  """Return rows of each task's summary."""
  rows = []
  for task, of in of_tasks.items():
    for name, b in of["biased"].items():
      rho = b["correlation"]
      quantities = {"ρ": rho}
      if rho.value > 0:
        quantities["independent measures that endlessly many are worth"] = exactly(
          1 / rho.value
        )
      quantities |= {x: b[x] for x in b if x.endswith("of the mean")}
      rows += [
        row(f"{task}: {x}, {name} varies", y, of["runs"]) for x, y in quantities.items()
      ]
    quantity = f"{task}: mean squared error, init ÷ all"
    rows.append(row(quantity, of["init ÷ all"], of["runs"]))
  return {"title": "Figures 5, H.4 and H.5", "rows": rows, "tasks": of_tasks}


def draw(numbers: dict) -> plt.Figure:
  of_tasks = numbers["tasks"]
  size = (4.8 * len(of_tasks), 3.8)
  figure, axes = plt.subplots(
    1, len(of_tasks), figsize=size, squeeze=False, layout="constrained"
  )
  for ax, (task, of) in zip(axes[0], of_tasks.items(), strict=True):
    k = np.arange(1, 1 + max(len(b["sd_of_means"]) for b in of["biased"].values()))
    ax.plot(k, measures.estimator_se(k, of["variance"]), "k", label="a search for each")
    for name, b in of["biased"].items():
      rho = np.clip(np.nan_to_num(b["correlation"][0]), 0, 0.99)
      (line,) = ax.plot(k, measures.estimator_se(k, b["variance"], rho), label=name)
      ax.plot(k, b["sd_of_means"], ".", color=line.get_color(), markersize=3)
    ax.set(title=task, xscale="log", xlabel="measures k", ylabel="sd of their mean")
    ax.legend()
  return figure


def read_task(flags: argparse.Namespace, name: str) -> dict:
  """Train a task's searches, and the runs after some of them; return their summary."""
  task = TASKS[name]
  seeds = vs.Runs.independent(max(flags.searches, flags.repetitions)).out_of_bootstrap()
  trials = tasks.search(flags, name, seeds, "random", "ideal")
  best = trials.incumbents()[: flags.repetitions, -1]
  if (best < 0).any():
    raise vs.UserError("all trials of a search failed: search other values")
  biased = {}
  for randomised, varied in RANDOMISED.items():
    runs = tasks.repeated_seeds(varied, flags.repetitions, flags.runs, AFTER_SEARCH)
    search_of_run = np.arange(len(runs)) % flags.repetitions
    values = {x: trials.of_best(y)[search_of_run] for x, y in trials.values.items()}
    runs = dataclasses.replace(runs, values=runs.values | values)
    folder = flags.runs_in / f"{name}-fixed-{randomised}-{flags.trials}"
    results = vs.train(task.recipe, runs, folder, seed_batch=flags.seed_batch)
    biased[randomised] = tasks.by_repetition(
      tasks.measured(results, task), flags.repetitions
    )
  ideal = trials.of_best(trials.measured)
  return summarize(ideal[~np.isnan(ideal)], biased)


def main(words: list[str] | None = None) -> None:
  parser = tasks.make_parser(__doc__)
  parser.add_argument("--searches", type=int, default=20, help="of the ideal estimator")
  flags = parser.parse_args(words)
  numbers = measure({name: read_task(flags, name) for name in flags.tasks})
  scripts.save("fig05", numbers, draw, flags.out, PAPER)


if __name__ == "__main__":
  main()
