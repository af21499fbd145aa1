"""Jordan 2024, figure 11 [12] and appendix D.2: how far apart training ends when one weight is changed by a thousandth.

python -m experiments.jordan2024.fig11 --runs 16     8×8 digits, a minute or two on two cores; run it again to resume
python -m experiments.jordan2024.fig11 --recipe resnet9_cifar10 --epochs 4 128 --runs 1000     as the paper
python -m experiments.jordan2024.fig11 --recipe experiments.jordan2024.runs:MLP_MNIST --epochs 1 12 --runs 50     the gallery's
python -m experiments.jordan2024.fig11 --recipe experiments.jordan2024.fashion:FASHION --epochs 1 12 --eighths 1 4 --no-first-steps --runs 10     the same

Two runs have the same seeds; in one of them a random weight is multiplied by 1.001 before
some step. Beside it: the first gradient in half precision, and the first batch left out,
where the paper computes the first step in half precision, and draws another first batch.
"""

import argparse
from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Int

import vmapseeds as vs
from experiments import estimates, scripts
from experiments.estimates import Estimate, positive_estimate, student_estimate
from experiments.jordan2024 import poking, runs
from experiments.scripts import row
from vmapseeds import stats

# Predictions that differ: one poked, and distinct seeds
PAPER = "7.0 to 7.5 % and about 8.5 % after few epochs; 5.14 and 5.19 % after 128"
FIRST_STEPS = ("first gradient in half precision", "first batch left out")
Predictions = Int[np.ndarray, "runs examples"]
Pairs = dict[str, tuple[Predictions, Predictions]]  # row i of both has the same seeds


def measure(at_start: Pairs, later: Pairs, first_steps: Pairs) -> dict:
  """Return what differs: of pokes before the first step by length, of later ones of the
  longest training by eighths of it, of other first steps.
  """
  groups = [
    {name: compare(*pair) for name, pair in pairs.items()}
    for pairs in (at_start, later, first_steps)
  ]
  names = ("at_start", "later", "first_steps")
  return {
    "title": "Figure 11 [12]",
    **dict(zip(names, groups, strict=True)),
    "rows": rows_of(*groups),
  }


def compare(unchanged: Predictions, changed: Predictions) -> dict:
  """Return the disagreement of each pair, and of runs with distinct seeds, the mean over
  all pairs of these with its standard error: 2/√R times the sd over runs of a run's
  disagreement with the others.
  """
  with_others = stats.disagreement_matrix(unchanged).sum(1) / (len(unchanged) - 1)
  se = 2 * with_others.std(ddof=1) / len(unchanged) ** 0.5
  return {
    "matched": stats.churn(unchanged, changed),
    "distinct": float(with_others.mean()),
    "distinct_se": float(se),
  }


def rows_of(at_start: dict, later: dict, first_steps: dict) -> list[dict]:
  rows = []

  def add(quantity: str, estimate: Estimate, of: dict) -> None:
    rows.append(row(quantity, estimate, len(of["matched"])))

  differ = "predictions that differ"
  for length, n in at_start.items():
    distinct = student_estimate(n["distinct"], n["distinct_se"], unit="%")
    add(f"{differ}, one poked, {length}", student_estimate(*matched(n), unit="%"), n)
    add(f"{differ}, distinct seeds, {length}", distinct, n)
    add(f"one poked over distinct seeds, {length}", over_distinct(n), n)
  for eighths, n in later.items():
    estimate = student_estimate(*matched(n), unit="%")
    add(f"{differ}, poked after {eighths}/8 of {length}", estimate, n)
  first, *_, last = later.values()
  ends = (student_estimate(*matched(n), unit="%") for n in (first, last))
  add(f"{differ}, poked first less poked last", estimates.difference_of(*ends), last)
  of_poke = positive_estimate(*matched(at_start[length]))
  for name, n in first_steps.items():
    ratio = estimates.ratio_of(positive_estimate(*matched(n)), of_poke)
    add(f"{differ}, {name}, over one poked", ratio, n)
  return rows


def matched(n: dict) -> tuple[float, float]:
  """Return the mean disagreement of pairs, and its standard error."""
  pairs = np.asarray(n["matched"])
  return float(pairs.mean()), float(pairs.std(ddof=1)) / len(pairs) ** 0.5


def over_distinct(n: dict) -> Estimate:
  """Return the disagreement of pairs over that of distinct seeds, by the delta method, as
  if both means were independent.
  """
  mean, se = matched(n)
  distinct = n["distinct"] or np.nan
  ratio = mean / distinct
  return positive_estimate(ratio, np.hypot(se, ratio * n["distinct_se"]) / distinct)


def draw(numbers: dict) -> plt.Figure:
  later = numbers["later"]
  means, errors = 100 * np.array([matched(n) for n in later.values()]).T
  figure, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
  shares = [int(eighths) / 8 for eighths in later]
  ax.errorbar(shares, means, 2 * errors, marker="o", capsize=3, label="one poked")
  for i, (name, n) in enumerate(numbers["first_steps"].items(), 1):
    mean, se = matched(n)
    at = -0.05 * i
    ax.errorbar(at, 100 * mean, 200 * se, marker="s", capsize=3, label=name)
  distinct = 100 * next(iter(later.values()))["distinct"]
  ax.axhline(distinct, color="0.4", linestyle="--", label="distinct seeds")
  ax.set(xlabel="share of the longest training before the poke")
  ax.set(ylabel="mean disagreement (%)", ylim=(0, None))
  ax.legend()
  return figure


def poked_pairs(flags: argparse.Namespace) -> tuple[Pairs, Pairs, Pairs]:
  """Return the predictions of runs, and of the same runs changed."""
  at_start, later, first_steps = {}, {}, {}
  *_, longest = flags.epochs
  for epochs in flags.epochs:
    recipe = vs.recipe(flags.recipe, epochs=epochs)
    eighths = sorted({0, *flags.eighths}) if epochs == longest else [0]
    pairs = pairs_of(
      poking.poked(recipe, 0), "poke_step", steps_of(recipe, eighths), flags
    )
    at_start[f"{epochs} epochs"] = pairs[0]
    if epochs == longest:
      later = {str(k): pair for k, pair in zip(eighths, pairs, strict=True)}
  if flags.first_steps:
    pairs = pairs_of(poking.with_first_step(recipe), "first_step", [0, 1, 2], flags)
    first_steps = dict(zip(FIRST_STEPS, pairs, strict=True))
  return at_start, later, first_steps


def steps_of(recipe: vs.Recipe, eighths: Sequence[int]) -> list[int]:
  """Return -1, the number of no step, and those after so many eighths of training."""
  examples = len(vs.load_dataset(recipe.dataset).train)
  steps = recipe.epochs * (examples // recipe.batch_size)
  return [-1, *(steps * k // 8 for k in eighths)]


def pairs_of(
  recipe: vs.Recipe, changed: str, values: Sequence[int], flags: argparse.Namespace
) -> list[tuple[Predictions, Predictions]]:
  """Return, for each value but the first, the predictions of runs with the first and
  with that one. One compiled program trains all: another could round otherwise, which is
  a change, too.
  """
  table = vs.Runs.sweep(**{changed: values}, seeds=flags.runs)
  folder = flags.runs_in / f"{recipe.name}-{recipe.epochs}-{changed}"
  results = vs.train(recipe, table, folder, seed_batch=flags.seed_batch)
  unchanged, *others = (
    results.isel(run=results[changed].values == value) for value in values
  )
  return [kept_pair(unchanged, x) for x in others]


def kept_pair(unchanged, changed) -> tuple[Predictions, Predictions]:
  """Return the predictions of pairs of which neither run diverged."""
  kept = ~(unchanged.diverged.values | changed.diverged.values)
  return unchanged.predictions.values[kept], changed.predictions.values[kept]


def main(words: list[str] | None = None) -> None:
  parser = runs.make_parser(__doc__, 16, (1, 16))
  parser.add_argument(
    "--eighths",
    type=int,
    nargs="+",
    default=[1, 2, 4, 7],
    help="of it before later pokes",
  )
  parser.add_argument(
    "--first-steps",
    action=argparse.BooleanOptionalAction,
    default=True,
    help="whether to change first steps, too",
  )
  flags = parser.parse_args(words)
  scripts.save("fig11", measure(*poked_pairs(flags)), draw, flags.out, PAPER)


if __name__ == "__main__":
  main()
