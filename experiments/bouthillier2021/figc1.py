"""Bouthillier 2021, figure C.1: how many runs find P(A > B) = γ with a power of 95 %.

python -m experiments.bouthillier2021.figc1     exact: nothing is trained, half a minute

The paper's sample size is for a Mann-Whitney test of two groups that are no pairs. Its
decision is on pairs, which takes more runs.
"""

import matplotlib.pyplot as plt
import numpy as np

from experiments import measures, scripts
from experiments.bouthillier2021.tasks import GAMMA
from experiments.scripts import exactly, row

PAPER = {0.55: "more than 700", 0.75: 29}  # runs by γ, for 95 %
GRID = np.round(np.arange(0.55, 0.96, 0.05), 2)  # γ
MOST = 400  # the largest number of pairs whose power is computed


def measure() -> dict:
  """Return runs by the paper's formula, pairs that are needed, and the power of as many
  pairs as the formula says; null where more than MOST are needed.
  """
  pairs = np.arange(1, MOST + 1)
  power_of = measures.power_for_probability_of_outperforming
  noether = measures.runs_for_probability_of_outperforming(GRID, paired=False)
  rows, needed = [], []
  for gamma, runs in zip(GRID, noether, strict=True):
    too_few = int(pairs[power_of(pairs, gamma, gamma) < 0.95][-1])
    needed.append(too_few + 1 if too_few < MOST else None)
    power = float(power_of(runs, gamma, gamma))
    rows.append(row(f"runs by the formula, γ = {gamma:g}", exactly(runs), "exact"))
    if needed[-1]:
      rows.append(row(f"pairs, γ = {gamma:g}", exactly(needed[-1]), "exact"))
    quantity = f"power of {runs} pairs, γ = {gamma:g}"
    rows.append(row(quantity, exactly(power, "%"), "exact"))
  return {
    "title": "Figure C.1",
    "rows": rows,
    "gamma": GRID,
    "noether": noether,
    "needed": needed,
  }


def draw(numbers: dict) -> plt.Figure:
  figure, ax = plt.subplots()
  ax.semilogy(
    numbers["gamma"], numbers["noether"], label="two groups, the paper's formula"
  )
  ax.semilogy(numbers["gamma"], np.array(numbers["needed"], float), "o", label="pairs")
  ax.plot(GAMMA, PAPER[GAMMA], "D", label="the paper's choice, 29")
  ax.set(xlabel="P(A > B) to be found", ylabel="runs of each of A and B")
  ax.legend()
  return figure


def main(words: list[str] | None = None) -> None:
  flags = scripts.make_parser(__doc__, "bouthillier2021", 0).parse_args(words)
  scripts.save("figc1", measure(), draw, flags.out, PAPER)


if __name__ == "__main__":
  main()
