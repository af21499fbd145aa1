"""Banerjee 2024, table 1 and figures 4 to 6: how large must an ensemble be to need little trimming?

python -m experiments.banerjee2024.table1 --runs 16     8×8 digits, a minute on two cores; run it again to resume
python -m experiments.banerjee2024.table1 --data cifar10 --runs 1600     as the paper
python -m experiments.banerjee2024.table1 --kept docs/gallery/banerjee2024     of kept logits

Half of the runs are the reference, ensembles are drawn from the others.
"""

import itertools
import math

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
from experiments.estimates import student_estimate
from experiments.scripts import exactly, row

# By members: share with α̂ ≤ 0.05, then mean and sd of accuracy, of churn in examples, of ECE
PAPER = {
  3: (0.7720, (0.9185, 0.0025), (190.79, 33.90), (0.0226, 0.0048)),
  5: (0.8920, (0.9203, 0.0018), (145.70, 28.61), (0.0200, 0.0037)),
  10: (0.9680, (0.9211, 0.0014), (103.57, 22.50), (0.0185, 0.0023)),
  20: (0.9940, (0.9217, 0.0011), (76.97, 17.23), (0.0175, 0.0016)),
  30: (1.0, (0.9221, 0.0010), (62.84, 12.45), (0.0171, 0.0014)),
  70: (1.0, (0.9222, 0.0008), (43.45, 9.64), (0.0168, 0.0012)),
  100: (1.0, (0.9223, 0.0008), (38.59, 9.08), (0.0169, 0.0012)),
  150: (1.0, (0.9223, 0.0007), (32.75, 7.42), (0.0169, 0.0011)),
  200: (1.0, (0.9224, 0.0007), (29.3, 6.91), (0.0169, 0.0011)),
}
DRAWN = 500  # ensembles of each size, or all if there are fewer
EXACT = 5000  # of calibration errors, all sets if there are at most so many


def member_sets(runs: int, members: int, most: int) -> np.ndarray:
  """Return every set of that many members if these are at most so many, else some drawn
  at random, the same each time: (sets, members).
  """
  if math.comb(runs, members) <= most:
    return np.array([*itertools.combinations(range(runs), members)])
  rng = np.random.default_rng(members)
  # Without replacement, as the text of section 2.1 says; some captions say with.
  return np.stack([rng.permutation(runs)[:members] for _ in range(DRAWN)])


def ensembles(n: Gaps, members: int) -> dict[str, np.ndarray]:
  """Return the statistics of ensembles of that many members, each (drawn,)."""
  gaps = measures.ensemble_gaps(
    n.candidates, member_sets(len(n.candidates), members, DRAWN)
  )
  predictions = measures.gap_labels(gaps)
  together = measures.gap_labels(measures.ensemble_gaps(n.candidates))
  levels = measures.trimming_level(
    n.reference, gaps, key=jax.random.key(0), replicates=REPLICATES
  )
  return {
    "level": levels.level,
    "distance": measures.ks_distance(n.reference, gaps),
    "accuracy": (predictions == n.labels).mean(1),
    "churn": (predictions != together).mean(1),
    "ece": measures.gap_ece(gaps, n.labels),
  }


def ece_of_sets(n: Gaps, sets: np.ndarray) -> np.ndarray:
  """Return the calibration error of each ensemble."""
  gaps = (measures.ensemble_gaps(n.candidates, x) for x in np.array_split(sets, 20))
  return np.concatenate([measures.gap_ece(x, n.labels) for x in gaps])


def left_out(values: np.ndarray, sets: np.ndarray, runs: int) -> np.ndarray:
  """Return the mean over all sets, then over those without each run."""
  without = [values[~(sets == run).any(1)].mean() for run in range(runs)]
  return np.array([values.mean(), *without])


def jackknife(means: np.ndarray):
  """Return what `left_out` gives, with its interval over other runs: ensembles of one
  pool share members, so that their spread says little.
  """
  whole, *without = means
  runs = len(without)
  se = math.sqrt((runs - 1) * np.var(without))
  return student_estimate(float(whole), se, runs - 1, "%")


def measure(n: Gaps) -> dict:
  """Return rows of ensembles of each size, and every drawn ensemble."""
  runs, examples = len(n.candidates), len(n.labels)
  threshold = float(measures.ks_threshold(examples))
  together = measures.ensemble_gaps(n.candidates)[None]
  pooled = n.candidates.reshape(1, -1)
  distances = {
    "distance within which a test accepts, δ_a": threshold,
    "distance of the candidates from the reference": measures.ks_distance(
      n.reference, pooled
    )[0],
    "distance of their ensemble from the reference": measures.ks_distance(
      n.reference, together
    )[0],
    "distance of their ensemble from them": measures.ks_distance(
      n.candidates, together
    )[0],
  }
  rows = [row(name, exactly(x), runs) for name, x in distances.items()]
  drawn, mean_ece = {}, {}
  for members in [size for size in PAPER if size < runs]:
    of = drawn[members] = ensembles(n, members)
    sets = member_sets(runs, members, DRAWN)
    small = jackknife(left_out(of["level"] <= SMALL, sets, runs))
    sets = member_sets(runs, members, EXACT)
    mean_ece[members] = left_out(ece_of_sets(n, sets), sets, runs)
    ece = jackknife(mean_ece[members])
    within = (of["distance"] <= threshold).mean()
    # A share, or a size, is not below 0.
    for name, x in (
      ("α̂ ≤ 0.05", small._replace(low=max(0.0, small.low))),
      ("ECE", ece._replace(low=max(0.0, ece.low))),
      ("within δ_a untrimmed, of those drawn", exactly(within, "%")),
      ("mean accuracy of those drawn", exactly(of["accuracy"].mean(), "%")),
      ("mean churn of those drawn with that of all", exactly(of["churn"].mean(), "%")),
    ):
      rows.append(row(f"{members} members: {name}", x, runs))
  few, many = min(mean_ece), max(mean_ece)
  falls = jackknife(mean_ece[many] - mean_ece[few])
  rows.append(row(f"ECE of {many} members less that of {few}", falls, runs))
  return {"title": "Table 1", "rows": rows, "drawn": drawn, "threshold": threshold}


def draw(numbers: dict) -> plt.Figure:
  figure, axes = plt.subplots(1, 4, figsize=(16, 3.8), layout="constrained")
  for members, of in numbers["drawn"].items():
    for ax, name in zip(axes, ("level", "distance", "churn", "ece"), strict=True):
      x, y = 100 * np.array(of["accuracy"]), 100 * np.array(of[name], float)
      ax.plot(x, y, ".", markersize=3, label=members)
      ax.set(xlabel="accuracy (%)", ylabel=f"{name} (%)")
  axes[0].axhline(100 * SMALL, color="0.5", linestyle=":")
  axes[1].axhline(100 * numbers["threshold"], color="0.5", linestyle=":")
  axes[3].legend(title="members")
  return figure


def main(words: list[str] | None = None) -> None:
  flags = make_parser(__doc__).parse_args(words)
  numbers = measure(read_gaps(flags, "S_all"))
  scripts.save("table1", numbers, draw, flags.out, PAPER)


if __name__ == "__main__":
  main()
