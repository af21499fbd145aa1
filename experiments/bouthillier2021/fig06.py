"""Bouthillier 2021, figures 6 and I.6: how often three ways to compare find the better of two recipes.

python -m experiments.bouthillier2021.fig06     exact rates: nothing is trained, seconds
python -m experiments.bouthillier2021.fig06 --rho 0 0.16 0.5     of measures that are correlated, too

The paper calls A better if a run of A outperforms one of B often enough: it compares
P(A > B) with 1/2 and γ. A difference of single runs, or of averages, is compared with a
threshold. All measures are normal; those after one search have a correlation ρ.
"""

import math

import matplotlib.pyplot as plt
import numpy as np
import scipy.stats

from experiments import measures, scripts
from experiments.bouthillier2021.tasks import GAMMA, PAIRS
from experiments.scripts import exactly, row

# False positives where A is no better, false negatives where it is. They are read off
# curves, the latter at no P(A > B) that the paper names.
PAPER = {
  "one run each": ("10 %", "75 %"),
  "averages of 50": ("below 5 %", "90 %"),
  "P(A > B) of 50": ("5 %", "30 %"),
}
CRITERIA = dict(zip(("single_point", "average", "outperforming"), PAPER, strict=True))
GRID = np.round(np.linspace(0.4, 0.99, 60), 2)  # true P(A > B)
SIZES = np.arange(5, 101, 5)
GAMMAS = np.round(np.arange(0.55, 0.96, 0.05), 2)


def rates(
  true: np.ndarray, rho: float, pairs: int = PAIRS, gamma: float = GAMMA
) -> dict:
  """Return how often each criterion says that A is better, by its name."""
  # The threshold of averages follows from γ, too, in figure I.6; at 0.75 it is 0.95.
  delta = (
    {} if gamma == GAMMA else {"threshold": float(measures.equivalent_threshold(gamma))}
  )
  found = measures.operating_characteristics(true, rho, pairs, gamma, **delta)
  return {name: getattr(found, of) for of, name in CRITERIA.items()}


def oracle(probability: np.ndarray, pairs: int, alpha: float = 0.05) -> np.ndarray:
  """Return how often a one-sided z-test finds A better, which knows the variance of
  independent runs: the most powerful one for normal runs.
  """
  d = math.sqrt(2) * scipy.stats.norm.ppf(probability)
  return scipy.stats.norm.cdf(d * math.sqrt(pairs / 2) - scipy.stats.norm.isf(alpha))


def measure(correlations: list[float]) -> dict:
  """Return exact rates at 1/2 and γ, and over a grid; by sample size and γ as well."""
  rows, curves, by_size, by_gamma = [], {}, {}, {}
  for rho in correlations:
    at = rates(np.array([0.5, GAMMA]), rho)
    for name, (positives, found) in at.items():
      quantity = f"{name}, ρ = {rho:g}"
      rows.append(row(f"false positives, {quantity}", exactly(positives, "%"), "exact"))
      rows.append(row(f"false negatives, {quantity}", exactly(1 - found, "%"), "exact"))
    curves[rho] = rates(GRID, rho)
    true = np.array([0.5, GAMMA])
    by_size[rho] = [rates(true, rho, pairs=int(n))["P(A > B) of 50"] for n in SIZES]
    by_gamma[rho] = [rates(true, rho, gamma=float(g))["P(A > B) of 50"] for g in GAMMAS]
  return {
    "title": "Figures 6 and I.6",
    "rows": rows,
    "true": GRID,
    "curves": curves,
    "by_size": by_size,
    "by_gamma": by_gamma,
    "oracle": oracle(GRID, PAIRS),
  }


def draw(numbers: dict) -> plt.Figure:
  figure, axes = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
  axes[0].plot(numbers["true"], numbers["oracle"], "k", label="best possible")
  for style, (rho, curves) in zip(
    ("-", "--", ":"), numbers["curves"].items(), strict=False
  ):
    of_rho = f"ρ = {float(rho):.2g}"
    for color, (name, rate) in zip(("C0", "C1", "C2"), curves.items(), strict=True):
      label = f"{name}, {of_rho}"
      axes[0].plot(numbers["true"], rate, style, color=color, label=label)
    for ax, x, of in ((axes[1], SIZES, "by_size"), (axes[2], GAMMAS, "by_gamma")):
      labels = [f"true 0.5, {of_rho}", f"true 0.75, {of_rho}"]
      ax.plot(x, numbers[of][rho], style, label=labels)
  for ax, label in zip(axes, ("true P(A > B)", "pairs", "γ"), strict=True):
    ax.set(xlabel=label, ylabel="rate of “A is better”")
    ax.legend(fontsize="small")
  return figure


def main(words: list[str] | None = None) -> None:
  parser = scripts.make_parser(__doc__, "bouthillier2021", 0)
  parser.add_argument("--rho", type=float, nargs="+", default=[0.0])
  flags = parser.parse_args(words)
  scripts.save("fig06", measure(flags.rho), draw, flags.out, PAPER)


if __name__ == "__main__":
  main()
