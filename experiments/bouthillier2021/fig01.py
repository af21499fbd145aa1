"""Bouthillier 2021, figures 1, F.2 and G.3: how much of the variance each source of randomness makes.

python -m experiments.bouthillier2021.fig01     569 tumours, a minute on two cores; run it again to resume
python -m experiments.bouthillier2021.fig01 --tasks breast_cancer digits mnist cifar10 --searches 5
python -m experiments.bouthillier2021.fig01 --tasks vgg11 peptides --runs 200 --repetitions 1     near the paper's
python -m experiments.bouthillier2021.fig01 --tasks peptides --kept docs/gallery/bouthillier2021     of kept runs

Searches are sources, too: in those of one sampler only what it draws varies.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
import scipy.stats

import vmapseeds as vs
from experiments import scripts
from experiments.bouthillier2021 import tasks
from experiments.bouthillier2021.tasks import (
  EVERYTHING,
  SOURCES,
  TASKS,
  ratio_of_variances,
)
from experiments.estimates import Estimate, student_estimate
from experiments.scripts import exactly, row
from experiments.searches import SAMPLERS
from vmapseeds import stats

PAPER = {
  "initialisation ÷ data": "generally below 0.5",
  "order ÷ initialisation": "on par",
  "a search ÷ initialisation, mean of three kinds": "as much",
  "sd of searches": "stable before 50 of 200 trials",
  "distributions": "normal but for SST-2",
}
NOISE_RUNS, NOISE_WIDTH = 40, 8


def measure(of_tasks: dict[str, dict]) -> dict:
  """Return rows of each task: measures by source, (repetitions, runs), best so far by
  sampler, (repetitions, searches, trials), and what lanes of another width change.
  """
  rows, relative = [], {}
  for task, of in of_tasks.items():
    found = summarize(of["sources"], of.get("searches", {}), of.get("noise"))
    mean = np.mean([x.mean() for x in of["sources"].values()])
    rows.append(row(f"{task}: mean of all measures", exactly(mean), found["runs"]))
    rows += rows_of(task, found)
    relative[task] = {name: x[:3] for name, x in found["relative"].items()}
  return {"title": "Figures 1, F.2 and G.3", "rows": rows, "relative": relative}


def summarize(sources: dict, searches: dict, noise: np.ndarray | None) -> dict:
  """Return what is said of one task; the last trials of searches are a source."""
  measures = dict(sources)
  measures |= {sampler: best[..., -1] for sampler, best in searches.items()}
  within = {name: x.var(axis=1, ddof=1) for name, x in measures.items()}
  found = {
    "sd": {name: x.mean() ** 0.5 for name, x in within.items()},
    "relative": {
      name: ratio_of_variances(x, within["data"]) for name, x in within.items()
    },
    "order ÷ init": ratio_of_variances(within["order"], within["init"]),
    "skewness": {},
    "p": {},
    "early": {},
  }
  for name, x in sources.items():
    x = x.reshape(1, -1) if name == EVERYTHING else x
    found["skewness"][name] = skewness((x - x.mean(1, keepdims=True)).ravel())
    found["p"][name] = normality(x)
  for sampler, best in searches.items():
    quarter, last = (
      best[..., i].var(axis=1, ddof=1) for i in (best.shape[2] // 4 - 1, -1)
    )
    found["early"][sampler] = ratio_of_variances(quarter, last)
  if searches:
    mean = np.mean([within[sampler] for sampler in searches], axis=0)
    found["search ÷ init"] = ratio_of_variances(mean, within["init"])
  if noise is not None:
    found["noise"] = np.nanmean(noise**2) / 2 / within["data"].mean()
  found["runs"] = " × ".join(map(str, sources["data"].shape))
  return found


def rows_of(task: str, found: dict) -> list[dict]:
  """Return the rows of one task."""
  quantities = {
    f"variance of {name} ÷ of data": x
    for name, x in found["relative"].items()
    if name != "data"
  }
  quantities |= {f"sd, {name}": exactly(x) for name, x in found["sd"].items()}
  quantities["variance of order ÷ of init"] = found["order ÷ init"]
  if "search ÷ init" in found:
    quantities["mean variance of searches ÷ of init"] = found["search ÷ init"]
  if "noise" in found:
    quantities["variance of lanes of another width ÷ of data"] = exactly(found["noise"])
  quantities |= {f"skewness, {name}": x for name, x in found["skewness"].items()}
  quantities |= {
    f"Shapiro-Wilk p, {name}": exactly(x) for name, x in found["p"].items()
  }
  for sampler, x in found["early"].items():
    quantities[f"variance after a quarter of the trials ÷ at the end, {sampler}"] = x
  return [row(f"{task}: {name}", x, found["runs"]) for name, x in quantities.items()]


def skewness(x: np.ndarray) -> Estimate:
  """Return the skewness of some values, with its error by the jackknife."""
  without = [scipy.stats.skew(np.delete(x, i)) for i in range(len(x))]
  se = np.sqrt((len(x) - 1) * np.var(without))
  return student_estimate(float(scipy.stats.skew(x)), float(se))


def normality(x: np.ndarray) -> float:
  """Return the p-value of each repetition's Shapiro-Wilk test, combined by Fisher."""
  each = np.array([stats.normality(of).p_value for of in x])
  known = each[~np.isnan(each)]  # a repetition whose measures are all the same has none
  return scipy.stats.combine_pvalues(known).pvalue if len(known) else np.nan


def draw(numbers: dict) -> plt.Figure:
  of_tasks = numbers["relative"]
  size = (4.2 * len(of_tasks), 3.8)
  figure, axes = plt.subplots(
    1, len(of_tasks), figsize=size, squeeze=False, layout="constrained"
  )
  for ax, (task, relative) in zip(axes[0], of_tasks.items(), strict=True):
    value, low, high = np.array(list(relative.values())).T
    ax.barh([*relative], value, xerr=np.nan_to_num(abs(np.array([low, high]) - value)))
    ax.axvline(0.5, color="0.5", linestyle=":")
    ax.invert_yaxis()
    ax.set(title=task, xlabel="variance ÷ that of the data")
  return figure


def read_task(flags: argparse.Namespace, name: str) -> dict:
  """Return the measures of a task: trained, or kept."""
  task = TASKS[name]
  if flags.kept:
    return {"sources": tasks.kept_sources(flags.kept, task)}
  sources = tasks.train_sources(flags, name)
  searches = {}
  for sampler in SAMPLERS if flags.searches and task.over else ():
    held = tasks.repeated_seeds((), flags.repetitions, flags.searches)
    trials = tasks.search(flags, name, held, sampler, sampler)
    best = np.take_along_axis(trials.measured, trials.incumbents(), axis=1)
    best = best.reshape(flags.searches, flags.repetitions, -1).swapaxes(0, 1)
    searches[sampler] = best[~np.isnan(best).any((1, 2))]
  again = tasks.repeated_seeds(SOURCES, flags.repetitions, flags.runs)[:NOISE_RUNS]
  folder = flags.runs_in / f"{name}-noise"
  results = vs.train(task.recipe, again, folder, lane_width=NOISE_WIDTH)
  first = vs.open_results(flags.runs_in / f"{name}-{EVERYTHING}").isel(
    run=slice(len(again))
  )
  noise = tasks.measured(results, task) - tasks.measured(first, task)
  return {"sources": sources, "searches": searches, "noise": noise}


def main(words: list[str] | None = None) -> None:
  parser = tasks.make_parser(__doc__)
  parser.add_argument(
    "--searches", type=int, default=0, help="a repetition, of a sampler"
  )
  flags = parser.parse_args(words)
  numbers = measure({name: read_task(flags, name) for name in flags.tasks})
  scripts.save("fig01", numbers, draw, flags.out, PAPER)


if __name__ == "__main__":
  main()
