"""Jiang 2022, figure 11: how many runs have an example wrong, beside a Beta law.

python experiments/jiang2022/fig11.py --runs 32     8×8 digits, half a minute on two cores; shares figure 6's runs
python experiments/jiang2022/fig11.py --kept docs/gallery/jiang2022     of kept predictions

Were all examples either easy or guessed, disagreement would equal the error on each. Error
rates have no such two peaks.
"""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scipy.optimize
import scipy.stats

import vmapseeds as vs

PAPER = "Beta distributions fit; their parameters are not printed"
GROUPS = {
  "AllDiff": ("init", "order", "data"),
  "DiffData": ("data",),
  "DiffInit": ("init",),
  "DiffOrder": ("order",),
}


def fit_beta(counts: np.ndarray) -> tuple[np.ndarray, float]:
  """Return the likeliest Beta law of error rates as probabilities of 0, 1, ... wrong
  runs, and the greatest distance of its distribution function from the counts'.
  """
  wrong = np.arange(len(counts))

  def law(log_parameters: np.ndarray):
    return scipy.stats.betabinom(len(counts) - 1, *np.exp(log_parameters))

  found = scipy.optimize.minimize(
    lambda x: -(counts @ law(x).logpmf(wrong)) / counts.sum(),
    np.log([0.1, 1.0]),
    method="Nelder-Mead",
  )
  fitted = law(found.x).pmf(wrong)
  return fitted, abs(counts.cumsum() / counts.sum() - fitted.cumsum()).max()


def measure(errors: dict[str, np.ndarray]) -> dict:
  """Return the distance of each group's counts from its law, resampling examples."""
  rows, counts, laws = [], {}, {}
  for group, wrong in errors.items():
    runs, examples = wrong.shape
    seen = np.bincount(wrong.sum(0), minlength=runs + 1)
    fitted, distance = fit_beta(seen)
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(examples, seen / examples, 100)
    se = np.std([fit_beta(x)[1] for x in drawn], ddof=1)
    ends = {
      "value": distance,
      "low": distance - 1.96 * se,
      "high": distance + 1.96 * se,
    }
    quantity = f"distance from the Beta law, {group}"
    rows.append({"quantity": quantity, **ends, "unit": "", "runs": runs})
    counts[group], laws[group] = seen.tolist(), fitted.tolist()
  return {"title": "Figure 11", "rows": rows, "counts": counts, "laws": laws}


def draw(numbers: dict) -> plt.Figure:
  figure, ax = plt.subplots()
  for group, seen in numbers["counts"].items():
    (dots,) = ax.plot(seen, ".", label=group)
    ax.plot(sum(seen) * np.array(numbers["laws"][group]), color=dots.get_color())
  ax.set(yscale="log", xlabel="runs that have it wrong", ylabel="test examples")
  ax.set_ylim(bottom=0.5)
  ax.legend()
  return figure


def errors_of(flags: argparse.Namespace, group: str) -> np.ndarray:
  """Return the errors of a group's runs that did not diverge, (runs, examples)."""
  if flags.kept:
    (path,) = flags.kept.glob(f"*{group}*.npz")
    with np.load(path) as file:
      return file["labels"] != file["predictions"].T
  pairs = ([0, pair] for pair in range((flags.runs + 1) // 2))
  shuffled = [np.random.default_rng(x).permutation(flags.examples) for x in pairs]
  halves = [x[: 2 * flags.train].reshape(2, flags.train) for x in shuffled]
  sets, sources = np.concatenate(halves)[: flags.runs], GROUPS[group]
  runs = vs.Runs.vary(sources, flags.runs)
  runs = runs.subset(sets if "data" in sources else sets[0])
  folder = flags.runs_in / f"ensemble-{flags.recipe}-{group}"
  recipe = vs.recipe(flags.recipe, epochs=flags.epochs)
  return vs.error_matrix(vs.train(recipe, runs, folder, seed_batch=flags.seed_batch))


def main(words: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--runs", type=int, default=16, help="runs of each group")
  parser.add_argument("--recipe", default="digits_cnn", help="a recipe's name")
  parser.add_argument("--epochs", type=int, default=8)
  parser.add_argument(
    "--examples", type=int, default=1000, help="there are to train on"
  )
  parser.add_argument("--train", type=int, default=200, help="a run is trained on")
  parser.add_argument("--seed-batch", type=int, help="runs between two writes")
  parser.add_argument("--runs-in", type=Path, default=Path("results/jiang2022"))
  parser.add_argument("--kept", type=Path, help="folder of kept predictions")
  parser.add_argument("--out", type=Path, default=Path("results/jiang2022"))
  flags = parser.parse_args(words)
  numbers = measure({group: errors_of(flags, group) for group in GROUPS})
  flags.out.mkdir(parents=True, exist_ok=True)
  (flags.out / "fig11.json").write_text(json.dumps(numbers) + "\n")
  figure = draw(numbers)
  figure.savefig(flags.out / "fig11.png")
  plt.close(figure)
  for each in numbers["rows"]:
    print(*each.values(), sep="  ")
  print("the paper:", PAPER)


if __name__ == "__main__":
  main()
