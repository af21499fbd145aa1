"""Banerjee 2024, tables 2 and 3, figures 1, 2 and 7 to 11: candidates by what varies, and their α̂.

python -m experiments.banerjee2024.table2 --runs 16     8×8 digits, a minute on two cores; run it again to resume
python -m experiments.banerjee2024.table2 --data cifar10 --runs 200     as the paper
python -m experiments.banerjee2024.table2 --kept docs/gallery/banerjee2024     of kept logits

Runs with a small α̂ are good by accuracy, churn and calibration; some that are good by one
of these are not by another.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np
import scipy.stats

from experiments import measures, scripts
from experiments.banerjee2024.runs import (
  REPLICATES,
  SMALL,
  VARIED,
  Gaps,
  make_parser,
  read_gaps,
)
from experiments.estimates import Estimate, student_estimate
from experiments.scripts import exactly, row
from vmapseeds import stats

# Churn of two runs is of 8,018 examples.
PAPER = """
         accuracy          least to largest  where α̂ is small  ensemble  churn        both small
S_init   91.101 ± 0.302 %  90.422 to 91.781  90.422 to 91.781  91.731 %  270 to 481   270 to 481
S_batch  90.819 ± 0.554 %  87.852 to 91.843  90.409 to 91.843  91.731 %  218 to 1174  283 to 467
S_all    90.810 ± 0.560 %  88.513 to 91.769  90.409 to 91.769  92.361 %  327 to 1184  283 to 462
"""
SHOWN = 1500  # test examples of two runs


def candidates(n: Gaps) -> dict[str, np.ndarray]:
  """Return the measures of each candidate, each (runs,)."""
  predictions = measures.gap_labels(n.candidates)
  together = measures.gap_labels(measures.ensemble_gaps(n.candidates))
  churn = stats.disagreement_matrix(predictions)
  levels = measures.trimming_level(
    n.reference, n.candidates, key=jax.random.key(0), replicates=REPLICATES
  )
  return {
    "level": levels.level,
    # For ranking: above all others where some replicate accepted no level
    "order": np.where(levels.failed > 0, 1 + levels.failed, levels.level),
    "distance": measures.ks_distance(n.reference, n.candidates),
    "accuracy": (predictions == n.labels).mean(1),
    "churn": (predictions != together).mean(1),
    "mean_churn": churn.sum(1) / (len(churn) - 1),  # with itself a run has none
    "ece": measures.gap_ece(n.candidates, n.labels),
    "pairs": churn[np.triu_indices(len(churn), 1)],
    "ensemble": (together == n.labels).mean(),
  }


def spans(values: np.ndarray) -> Estimate:
  """Return the middle of some fractions with the least and the largest of them."""
  return Estimate(np.median(values), values.min(), values.max(), "%")


def tau(order: np.ndarray, worse: np.ndarray) -> Estimate:
  """Return Kendall's τ with its interval by the jackknife over runs."""
  every = np.arange(len(order))
  some = [every, *(np.delete(every, i) for i in every)]
  value, *without = (scipy.stats.kendalltau(order[k], worse[k]).statistic for k in some)
  return student_estimate(value, np.sqrt((len(every) - 1) * np.var(without)))


def measure(sources: dict[str, Gaps]) -> dict:
  """Return rows of each source, the measures of candidates, and two alike."""
  rows, found = [], {}
  for name, n in sources.items():
    of = found[name] = candidates(n)
    runs = len(of["accuracy"])
    small = of["level"] <= SMALL
    mean, variance = (
      stats.mean_over_runs(of["accuracy"]),
      stats.variance_over_runs(of["accuracy"]),
    )
    share = stats.proportion_over_examples(small.mean(), runs)
    lines = {
      "mean accuracy": Estimate(float(mean), *mean.interval, "%"),
      "sd of accuracy": Estimate(*np.sqrt([float(variance), *variance.interval]), "%"),
      "accuracies, least to largest": spans(of["accuracy"]),
      "accuracy of the ensemble": exactly(of["ensemble"], "%"),
      "α̂ ≤ 0.05": Estimate(float(share), *share.interval, "%"),
      "churn of pairs, least to largest": spans(of["pairs"]),
      "τ of α̂ with the error": tau(of["order"], 1 - of["accuracy"]),
      "τ of α̂ with churn": tau(of["order"], of["churn"]),
      "τ of α̂ with ECE": tau(of["order"], of["ece"]),
      "runs left out": exactly(n.left_out),
    }
    first, second = np.triu_indices(runs, 1)
    both = small[first] & small[second]
    if both.any():
      lines["accuracies where α̂ is small"] = spans(of["accuracy"][small])
      lines["churn of pairs where both α̂ are small"] = spans(of["pairs"][both])
    rows += [row(f"{name}: {quantity}", x, runs) for quantity, x in lines.items()]
  batch, init = (found[name]["accuracy"] for name in ("S_batch", "S_init"))
  ratio = stats.variance_ratio(batch, init, paired=False)
  quantity = "variance of accuracy with another order ÷ with another initialisation"
  rows.append(row(quantity, Estimate(float(ratio), *ratio.interval), len(batch)))
  return {
    "title": "Tables 2 and 3",
    "rows": rows,
    "candidates": found,
    "two_runs": two_runs(found["S_all"], sources["S_all"]),
  }


def two_runs(of: dict[str, np.ndarray], n: Gaps) -> dict:
  """Return the gaps of the two candidates that disagree most, of the closer half of
  neighbours by accuracy.
  """
  order = np.argsort(of["accuracy"], kind="stable")
  predictions = measures.gap_labels(n.candidates)
  apart = stats.disagreement_matrix(predictions)[order[:-1], order[1:]]
  steps = np.diff(of["accuracy"][order])
  first = np.argmax(np.where(steps <= np.median(steps), apart, -1))
  pair = order[first : first + 2]
  return {"gaps": n.candidates[pair, :SHOWN].round(3), "labels": n.labels[:SHOWN]}


def draw(numbers: dict) -> plt.Figure:
  figure, axes = plt.subplots(1, 5, figsize=(18, 3.6), layout="constrained")
  for name, of in numbers["candidates"].items():
    level = 100 * np.array(of["level"], float)
    for ax, quantity in zip(
      axes[:4], ("accuracy", "churn", "ece", "distance"), strict=True
    ):
      ax.plot(100 * np.array(of[quantity]), level, ".", label=name)
      ax.axhline(100 * SMALL, color="0.5", linestyle=":")
      ax.set(xlabel=f"{quantity} (%)", ylabel="α̂ (%)")
  gaps, labels = (np.array(numbers["two_runs"][name]) for name in ("gaps", "labels"))
  for label in (0, 1):
    axes[4].plot(*gaps[:, labels == label], ".", markersize=2)
  axes[4].set(xlabel="logit gap of a run", ylabel="of a run as accurate")
  axes[0].legend()
  return figure


def main(words: list[str] | None = None) -> None:
  flags = make_parser(__doc__).parse_args(words)
  numbers = measure({source: read_gaps(flags, source) for source in VARIED})
  scripts.save("table2", numbers, draw, flags.out, PAPER)


if __name__ == "__main__":
  main()
