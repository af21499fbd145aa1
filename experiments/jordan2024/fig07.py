"""Jordan 2024, figure 7 and sections 3.4, 4.1, 4.2: trainings with little variance, with more, and with much.

python -m experiments.jordan2024.fig07 --runs 8     8×8 digits, a minute or two on two cores; run it again to resume
python -m experiments.jordan2024.fig07 --recipe resnet9_cifar10 --runs 1000 --few 3668 --rates 0.05 1     as many as the paper

A regularised linear model converges to the same predictions every time. Without
augmentation runs vary more than with a fixed fifth of the data and four times the epochs,
and gain more from an ensemble. Of two finetunings one varies on the test set alone.
The paper finetunes BERT on MRPC; here a network trained on half of the classes is finetuned
on few examples of the others, in two groups, at a small and at a large learning rate.
"""

import argparse
from collections.abc import Mapping

import jax
import matplotlib.pyplot as plt
import numpy as np

import vmapseeds as vs
from experiments import scripts
from experiments.estimates import Estimate, student_estimate
from experiments.jordan2024 import runs
from experiments.merging import merged
from experiments.scripts import exactly, mean_and_sd, of_runs, row
from vmapseeds import stats

PAPER = {
  "linear": "sd below 0.01 %",
  "without augmentation, a fifth": "both 87.5 %, ensembles 91.2 and 89.8 %, variances over 3.5",
  "finetuned": "sd 0.80 and 2.24 %, on the distribution 0.21 and 2.08 %",
}
TOP = 0.15  # share of runs that are chosen as best on the validation half
FIRST = (0, 1, 2, 3, 4, *(-1,) * 5)
OTHERS = (*(-1,) * 5, 0, 0, 0, 1, 1)  # in two groups, so that the last layer is new


def compare(
  without: np.ndarray, fifth: np.ndarray, labels: np.ndarray
) -> dict[str, object]:
  """Return the accuracies of both from their predictions, (runs, examples), those of the
  votes, and how much more the first gains by its vote, with the error over examples.
  """
  classes = int(labels.max()) + 1
  right = [x == labels for x in (without, fifth)]
  votes = [stats.plurality(x, classes) == labels for x in (without, fifth)]
  gains = (votes[0] - right[0].mean(0)) - (votes[1] - right[1].mean(0))
  return {
    "accuracies": [x.mean(1) for x in right],
    "votes": [float(vote.mean()) for vote in votes],
    "gain": [float(gains.mean()), float(gains.std(ddof=1)) / len(labels) ** 0.5],
  }


def finetuned(errors: np.ndarray) -> dict[str, object]:
  """Return what is said of runs that start from one stored network."""
  variance = stats.distribution_variance(errors)
  root = max(float(variance), 0) ** 0.5
  gain = stats.top_fraction_gain(errors, TOP).even_to_odd
  gain_se = stats.top_fraction_gain_bootstrap(errors, TOP, key=jax.random.key(0)).se
  return {
    "accuracies": 1 - stats.error_rates(errors),
    "distribution": [root, float(variance.se) / (2 * root) if root else np.nan],
    "correlation": list(of_runs(stats.split_correlation(errors))[:3]),
    "gain": [float(gain), float(gain_se)],
  }


def rows_of(linear: np.ndarray, of: Mapping, by_rate: Mapping) -> list[dict]:
  _, sd = mean_and_sd(linear)
  rows = [row("linear model: sd of accuracy", sd, len(linear))]
  changes = ("without augmentation", "with a fifth of the data")
  for change, x, vote in zip(changes, of["accuracies"], of["votes"], strict=True):
    mean, _ = mean_and_sd(x)
    rows.append(row(f"mean accuracy {change}", mean, len(x)))
    rows.append(row(f"accuracy of the ensemble {change}", exactly(vote, "%"), len(x)))
  counts = ", ".join(str(len(x)) for x in of["accuracies"])
  ratio = of_runs(stats.variance_ratio(*of["accuracies"], paired=False))
  rows.append(row("variance without augmentation over with a fifth", ratio, counts))
  gain = student_estimate(*of["gain"], unit="%")
  quantity = "gain of the ensemble without augmentation, less with a fifth"
  rows.append(row(quantity, gain, counts))
  for rate, f in by_rate.items():
    _, sd = mean_and_sd(f["accuracies"])
    found = {
      "sd of accuracy": sd,
      "sd on the distribution": student_estimate(*f["distribution"], unit="%"),
      "correlation of validation and test half": Estimate(*f["correlation"]),
      "gain on the test half of the best 15 % on the validation half": student_estimate(
        *f["gain"], unit="%"
      ),
    }
    for quantity, x in found.items():
      name = f"{quantity}, finetuned at learning rate {rate}"
      rows.append(row(name, x, len(f["accuracies"])))
  return rows


def measure(linear: np.ndarray, of: Mapping, by_rate: Mapping) -> dict:
  numbers = {"linear": linear, "ablated": of, "finetuned": by_rate}
  return {"title": "Figure 7", **numbers, "rows": rows_of(linear, of, by_rate)}


def draw(numbers: dict) -> plt.Figure:
  figure, axes = plt.subplots(1, 4, figsize=(14, 3.4), layout="constrained")
  axes[0].hist(100 * np.array(numbers["linear"]), bins=20)
  axes[0].set_title("linear model")
  of = numbers["ablated"]
  names = ("no augmentation", "a fifth of the data")
  for i, (x, vote) in enumerate(zip(of["accuracies"], of["votes"], strict=True)):
    axes[1].hist(100 * np.array(x), bins=20, color=f"C{i}", alpha=0.6, label=names[i])
    axes[1].axvline(100 * vote, color=f"C{i}", linestyle="--")
  axes[1].set_title("dashed: ensembles")
  axes[1].legend()
  for ax, (rate, f) in zip(axes[2:], numbers["finetuned"].items(), strict=True):
    ax.hist(100 * np.array(f["accuracies"]), bins=20)
    ax.set_title(f"finetuned at learning rate {rate}")
  for ax in axes:
    ax.set_xlabel("test accuracy (%)")
  return figure


def train(flags: argparse.Namespace) -> tuple[np.ndarray, dict, dict]:
  """Return the accuracies of linear models, and what is said of the other runs."""
  recipe = runs.recipe_of(flags)
  data = vs.load_dataset(recipe.dataset)
  examples = len(data.train)
  every = vs.Runs.independent(flags.runs)

  def trained(name: str, recipe: vs.Recipe, table: vs.Runs | int, **options):
    folder = flags.runs_in / f"{flags.recipe}-{recipe.epochs}-{name}"
    return vs.train(recipe, table, folder, seed_batch=flags.seed_batch, **options)

  # All examples are one batch: runs differ only in their initial weights, and converge.
  size = min(examples, 10_000)
  at_once = {"batch_size": size, "schedule": "constant", "dataset": recipe.dataset}
  converging = vs.recipe(
    "linear_cifar10", epochs=200, lr=0.02, weight_decay=0.3, **at_once
  )
  linear = trained("linear", converging, every.subset(np.arange(size)))
  without = trained("no-augmentation", recipe.replace(augment=""), every)
  longer = recipe.replace(epochs=4 * recipe.epochs)
  fifth = trained("fifth", longer, every.subset(np.arange(examples // 5)))
  pretrained = recipe.replace(dataset=merged(data, FIRST))
  trained("pretrained", pretrained, 1, keep_params=True)
  start = flags.runs_in / f"{flags.recipe}-{recipe.epochs}-pretrained"
  few = every.subset(np.arange(flags.few))
  tuned = recipe.replace(
    dataset=merged(data, OTHERS), epochs=3, batch_size=20, start_from=str(start)
  )
  rates = vs.Runs.sweep(lr=flags.rates, seeds=few)
  found = trained("finetuned", tuned, rates)
  by_rate = {}
  for rate in flags.rates:
    these = found.isel(run=np.isclose(found.lr.values, rate))
    by_rate[f"{rate:g}"] = finetuned(vs.error_matrix(these))
  both = [x.predictions.values[~x.diverged.values] for x in (without, fifth)]
  accuracies = 1 - stats.error_rates(vs.error_matrix(linear))
  return accuracies, compare(*both, without.labels.values), by_rate


def main(words: list[str] | None = None) -> None:
  parser = runs.make_parser(__doc__, 8)
  parser.add_argument("--few", type=int, default=100, help="examples of finetuning")
  parser.add_argument("--rates", type=float, nargs=2, default=[0.05, 0.4])
  flags = parser.parse_args(words)
  scripts.save("fig07", measure(*train(flags)), draw, flags.out, PAPER)


if __name__ == "__main__":
  main()
