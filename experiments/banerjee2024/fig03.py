"""Banerjee 2024, figures 3 and 16: what becomes of runs and of their ensemble during training.

python -m experiments.banerjee2024.fig03 --runs 16     8×8 digits, a minute on two cores; run it again to resume
python -m experiments.banerjee2024.fig03 --data cifar10 --runs 200     as the paper
python -m experiments.banerjee2024.fig03 --kept docs/gallery/banerjee2024     of kept logits

Networks become more accurate and then overconfident; their ensemble becomes better than
each of them, and better calibrated. In the paper it has fewer small and fewer large gaps.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

from experiments import measures, scripts
from experiments.banerjee2024.runs import (
  REPLICATES,
  SMALL,
  Gaps,
  make_parser,
  read_gaps,
)
from experiments.estimates import Estimate, student_estimate
from experiments.scripts import row

PAPER = {
  "accuracy, epochs 30 to 50": "stops increasing",
  "ECE of the best, epochs 10 to 50": ".01 to .02, then .02 to .03",
  "their churn with the ensemble": "180 to 250 of 8,018, then 250 to 400",
}
SMALL_GAP = 1.0  # less decided than 73 %
LARGE = 0.95  # large gaps exceed this quantile of all candidates'


def by_epoch(n: Gaps) -> dict[str, np.ndarray]:
  """Return the measures of candidates and of their ensemble after each epoch."""
  series: dict[str, list] = {}
  for i in range(len(n.epochs)):
    gaps = n.candidates[:, i]
    ensemble = measures.ensemble_gaps(gaps)
    is_right = measures.gap_labels(gaps) == n.labels
    ensemble_is_right = measures.gap_labels(ensemble) == n.labels
    level = measures.trimming_level(
      n.reference[:, i], gaps, key=jax.random.key(0), replicates=REPLICATES
    ).level
    for name, x in {
      "accuracy": is_right.mean(1),
      # Of two classes, the cross-entropy is that of the label's side of the gap.
      "loss": np.logaddexp(0, np.where(n.labels, -gaps, gaps)).mean(1),
      "ece": measures.gap_ece(gaps, n.labels),
      "churn": (is_right != ensemble_is_right).mean(1),
      "ensemble_accuracy": ensemble_is_right.mean(),
      "ensemble_ece": measures.gap_ece(ensemble, n.labels),
      "small": (level <= SMALL).mean(),
    }.items():
      series.setdefault(name, []).append(x)
  return {"epoch": n.epochs, **{name: np.array(x) for name, x in series.items()}}


def mean_of(differences: np.ndarray) -> Estimate:
  """Return a mean over runs with its interval."""
  runs = len(differences)
  se = differences.std(ddof=1) / np.sqrt(runs)
  return student_estimate(differences.mean(), se, runs - 1, "%")


def rise_of_better(of: dict[str, np.ndarray], metric: str, early: int) -> Estimate:
  """Return a metric of the more accurate half at the end less that of the more accurate
  half at an early epoch. These are other runs.
  """
  halves = []
  for place in (-1, early):
    order = np.argsort(-of["accuracy"][place])
    halves.append(of[metric][place, order[: max(2, len(order) // 2)]])
  a, b = halves
  se = np.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
  return student_estimate(a.mean() - b.mean(), se, len(a) + len(b) - 2, "%")


def measure(n: Gaps) -> dict:
  """Return rows of what changes, each candidate by epoch, and shares by logit gap."""
  of = by_epoch(n)
  last = n.epochs[-1]
  early = int(np.argmax(n.epochs >= 0.2 * last))
  late = int(np.argmax(n.epochs >= 0.6 * last))
  gaps = n.candidates[:, -1]
  every = np.stack([measures.ensemble_gaps(gaps), *gaps])  # the ensemble first
  small = (abs(every) <= SMALL_GAP).mean(1)
  large = (abs(every) > np.quantile(abs(gaps), LARGE)).mean(1)
  half = (
    f"of the more accurate half after {last} epochs less that after {n.epochs[early]}"
  )
  quantities = {
    f"accuracy after {last} epochs less that after {n.epochs[late]}": mean_of(
      of["accuracy"][-1] - of["accuracy"][late]
    ),
    f"ECE {half}": rise_of_better(of, "ece", early),
    f"churn with the ensemble {half}": rise_of_better(of, "churn", early),
    "ECE of the ensemble less that of its members": mean_of(
      of["ensemble_ece"][-1] - of["ece"][-1]
    ),
    f"gaps up to {SMALL_GAP:g}: the ensemble less its members": mean_of(
      small[0] - small[1:]
    ),
    f"gaps beyond the {100 * LARGE:g} % quantile: the ensemble less its members": mean_of(
      large[0] - large[1:]
    ),
  }
  rows = [row(quantity, x, len(gaps)) for quantity, x in quantities.items()]
  edges = np.linspace(*np.quantile(gaps, [0.001, 0.999]), 41)
  shares = [np.histogram(x, edges)[0] / len(n.labels) for x in every]
  return {
    "title": "Figures 3 and 16",
    "rows": rows,
    "by_epoch": of,
    "gaps": {"edges": edges, "shares": shares},
  }


def draw(numbers: dict) -> plt.Figure:
  figure, axes = plt.subplots(1, 4, figsize=(16, 3.8), layout="constrained")
  of = {name: np.array(x, float) for name, x in numbers["by_epoch"].items()}
  for ax, name in zip(axes, ("accuracy", "ece", "churn"), strict=False):
    ax.plot(of["epoch"], 100 * of[name], "-", color="C0", alpha=0.3)
    if f"ensemble_{name}" in of:
      ax.plot(of["epoch"], 100 * of[f"ensemble_{name}"], "C1", label="the ensemble")
      ax.legend()
    ax.set(xlabel="epoch", ylabel=f"{name} (%)")
  ensemble, *runs = 100 * np.array(numbers["gaps"]["shares"])
  edges = numbers["gaps"]["edges"]
  for share in runs:
    axes[3].stairs(share, edges, color="C0", alpha=0.3)
  axes[3].stairs(ensemble, edges, color="C1")
  axes[3].set(xlabel="logit gap", ylabel="test examples (%)")
  return figure


def main(words: list[str] | None = None) -> None:
  flags = make_parser(__doc__).parse_args(words)
  numbers = measure(read_gaps(flags, "S_all", by_epoch=True))
  scripts.save("fig03", numbers, draw, flags.out, PAPER)


if __name__ == "__main__":
  main()
