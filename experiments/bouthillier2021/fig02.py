"""Bouthillier 2021, figure 2: a test set of n' examples explains most of what other data change.

python -m experiments.bouthillier2021.fig02     569 tumours, a minute on two cores; shares figure 1's runs
python -m experiments.bouthillier2021.fig02 --tasks breast_cancer digits mnist cifar10

If each answer went wrong with the same probability τ, independently of the others, the
accuracy's variance would be τ (1 - τ)/n'.
"""

import matplotlib.pyplot as plt
import numpy as np

from experiments import scripts
from experiments.bouthillier2021 import tasks
from experiments.estimates import Estimate
from experiments.scripts import exactly, row
from vmapseeds import stats

PAPER = "the sd where the data vary is that of a binomial, on three tasks"


def measure(of_tasks: dict[str, tuple[np.ndarray, int]]) -> dict:
  """Return the sd of each task's accuracies, (repetitions, runs) where the data alone
  vary, beside that of a binomial on so many test examples.
  """
  rows, points = [], {}
  for task, (accuracies, examples) in of_tasks.items():
    error = 1 - accuracies.mean()
    binomial = np.sqrt(error * (1 - error) / examples)
    variance = stats.mean_over_runs(accuracies.var(axis=1, ddof=1))
    ends = np.array([float(variance), *variance.interval]).clip(0)
    observed = Estimate(*np.sqrt(ends), "%")
    ratio = Estimate(*(x / binomial for x in observed[:3]))
    runs = " × ".join(map(str, accuracies.shape))
    rows += [
      row(f"{task}: mean error", exactly(error, "%"), runs),
      row(f"{task}: sd of a binomial", exactly(binomial, "%"), runs),
      row(f"{task}: sd, data alone", observed, runs),
      row(f"{task}: ... over that of a binomial", ratio, runs),
    ]
    points[task] = {
      "examples": examples,
      "binomial": binomial,
      "observed": observed[:3],
    }
  return {"title": "Figure 2", "rows": rows, "points": points}


def draw(numbers: dict) -> plt.Figure:
  figure, ax = plt.subplots()
  for task, n in numbers["points"].items():
    value, low, high = 100 * np.array(n["observed"])
    sizes = n["examples"] * np.geomspace(0.3, 10, 50)
    law = 100 * n["binomial"] * np.sqrt(n["examples"] / sizes)
    (line,) = ax.loglog(sizes, law, ":")
    bars = [[value - low], [high - value]]
    ax.errorbar(n["examples"], value, bars, fmt="x", color=line.get_color(), label=task)
  ax.set(xlabel="test examples", ylabel="sd of accuracy (%); dotted: binomial")
  ax.legend()
  return figure


def main(words: list[str] | None = None) -> None:
  flags = tasks.make_parser(__doc__).parse_args(words)
  of_tasks = {}
  for name in flags.tasks:
    task = tasks.TASKS[name]
    if task.metric == "accuracy":  # a mean of errors
      data = tasks.train_sources(flags, name)["data"]
      of_tasks[name] = data, tasks.test_examples(task)
  scripts.save("fig02", measure(of_tasks), draw, flags.out, PAPER)


if __name__ == "__main__":
  main()
