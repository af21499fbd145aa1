"""The page of Jordan 2024: many runs on all of MNIST."""

from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats

from experiments import pages
from experiments.jordan2024 import real
from experiments.pages import Colors, Line, Page, Picture, Records

AFTER = {"short": "1 epoch", "medium": "4 epochs", "long": "12 epochs"}


def draw_densities(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw densities of accuracy, and what independent errors would give."""
  (ax,) = axes
  numbers = records.numbers("mnist/fig01_accuracies")
  independent = records.numbers("mnist/fig03_independent_errors")
  ax.axhline(0, color=colors.quiet, linewidth=0.6)
  for (name, label), color in zip(AFTER.items(), colors.each(), strict=False):
    values = 100 * numbers[name].spread.accuracies
    edges = np.arange(values.min() - 0.025, values.max() + 0.05, 0.05)
    ax.hist(values, edges, density=True, color=color, alpha=0.45)
    ax.plot([], [], color=color, linewidth=5, alpha=0.6, label=label)
    grid = np.linspace(values.min(), values.max(), 200)
    law = scipy.stats.norm(values.mean(), 100 * independent[name].predicted)
    ax.plot(grid, law.pdf(grid), color=color, linestyle="--")
  ax.plot([], [], color=colors.ink, linestyle="--", label="independent errors")
  ax.set(xlabel="test accuracy (%)", ylabel="density (per point)")
  ax.legend(loc="upper center")


def draw_variances(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw standard deviations against the length of training, on two data sets."""
  titles = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
  for ax, (folder, title) in zip(axes, titles.items(), strict=True):
    by_length = records.numbers(f"{folder}/fig05_distribution_variance").values()
    numbers = list(by_length)
    x = np.arange(len(numbers))
    test_set = 100 * np.array([n.test_set for n in numbers])
    independent = 100 * np.array([n.independent for n in numbers])
    distribution = 100 * np.array([n.distribution for n in numbers])
    ends = 100 * np.array([n.interval for n in numbers]).T
    ax.plot(x, test_set, "o-", color=colors.blue, label="test set")
    ax.plot(x, independent, ".--", color=colors.vermilion, label="independent errors")
    bars = np.abs(ends - distribution)
    ax.errorbar(
      x,
      distribution,
      bars,
      fmt="s-",
      color=colors.green,
      capsize=3,
      label="distribution",
    )
    ax.set_xticks(x, [f"{n.epochs}" for n in numbers])
    ax.set(xlabel="epochs", title=title, yscale="log", ylim=(0.05, 8))
    ax.set_yticks([0.1, 0.3, 1, 3], ["0.1", "0.3", "1", "3"])
    ax.minorticks_off()
    ax.grid(True, axis="y")
  axes[0].set_ylabel("sd of accuracy (%)")
  axes[1].legend()


def draw_halves(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw the accuracies on two halves, in deviations from their means."""
  numbers = records.numbers("mnist/fig02_halves")
  for ax, name in zip(axes, ("short", "long"), strict=True):
    n = numbers[name]
    even = 100 * (n.even - n.even.mean())
    odd = 100 * (n.odd - n.odd.mean())
    jitter = np.random.default_rng(0).uniform(-0.01, 0.01, (2, len(even)))
    ax.plot(
      even + jitter[0],
      odd + jitter[1],
      ".",
      color=colors.blue,
      markersize=1.5,
      alpha=0.35,
      rasterized=True,
    )
    ax.set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05), xlabel="even examples (points)")
    ax.set_title(f"{AFTER[name]}: correlation {n.correlation:.2f}")
    ax.set_aspect("equal")
  axes[0].set_ylabel("odd examples (points)")


def learning_rate(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw accuracy, and the variance over that of independent errors, by rate."""
  numbers = records.numbers("mnist/fig08_learning_rate")
  numbers = [n for n in numbers if n.accuracy.mean > 0.9]
  rates = [n.rate for n in numbers]
  best = max(numbers, key=lambda n: n.accuracy.mean)
  mean, se = 100 * np.array([n.accuracy[2:4] for n in numbers]).T
  ratio = np.array([(n.accuracy.sd / n.independent) ** 2 for n in numbers])
  error = np.array([2 * n.accuracy.sd_se / n.accuracy.sd for n in numbers])
  axes[0].errorbar(rates, mean, 2 * se, fmt=".-", color=colors.blue)
  axes[0].set(ylabel="test accuracy (%)")
  reach = np.exp(1.96 * error)
  bars = [ratio - ratio / reach, ratio * reach - ratio]
  axes[1].errorbar(rates, ratio, bars, fmt=".-", color=colors.green)
  axes[1].axhline(1, color=colors.ink, linestyle="--", linewidth=1)
  axes[1].set(ylabel="variance ÷ independent errors'", yscale="log")
  axes[1].set_yticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10"])
  axes[1].minorticks_off()
  for ax in axes:
    ax.axvline(best.rate, color=colors.vermilion, linewidth=1)
    ax.set(xscale="log", xlabel="learning rate")
    ax.set_xticks([0.001, 0.01, 0.1], ["0.001", "0.01", "0.1"])
    ax.minorticks_off()
    ax.grid(True)


def poking(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw how far runs end from their poked twins."""
  (ax,) = axes
  numbers = records.numbers("mnist/fig11_poking")
  eighths = numbers.eighths
  share = 100 * np.array(list(eighths)) / 8
  matched = 100 * np.array([n.matched for n in eighths.values()])
  error = 200 * np.array([n.matched_se for n in eighths.values()])
  ax.errorbar(
    share,
    matched,
    error,
    fmt="o-",
    color=colors.blue,
    capsize=3,
    label="one poked",
  )
  distinct = 100 * eighths[0].distinct
  ax.axhline(distinct, color=colors.vermilion, label="distinct seeds")
  ax.set(
    xlabel="training done before the poke (%)",
    ylabel="predictions that differ (%)",
    ylim=(0, 1.15 * distinct),
  )
  ax.grid(True, axis="y")
  ax.legend(loc="center right")


def values_of_durations(records: Records) -> dict[str, Any]:
  numbers = records.numbers("mnist/fig08_learning_rate")
  return {"best": max(numbers, key=lambda n: n.accuracy.mean)}


# Statements tried on a second data set, with a convolutional network: too few runs to be
# judged, so far.
FASHION_RUNS = "runs: 100 of 3,000"
FASHION_LINES = (
  Line(
    "Fashion-MNIST, short (variance ÷ independent)",
    "independence short",
    "fashion_mnist/fig03_independent_errors",
    "variance, observed over independent, short",
    FASHION_RUNS,
  ),
  Line(
    "Fashion-MNIST, long (variance ÷ independent)",
    "independence long",
    "fashion_mnist/fig03_independent_errors",
    "variance, observed over independent, long",
    FASHION_RUNS,
  ),
)

LINES = (
  Line(
    "More training narrows the distribution of accuracy (sd, 12 epochs ÷ 1)",
    "narrows",
    "mnist/fig01_accuracies",
    "sd of accuracy after the long",
  ),
  Line(
    "After a short training, runs better on one half are so on the other (correlation)",
    "halves short",
    "mnist/fig02_halves",
    "correlation of the halves, short",
  ),
  Line(
    "After a long training, hardly (correlation)",
    "halves long",
    "mnist/fig02_halves",
    "correlation of the halves, long",
  ),
  Line(
    "Short trainings vary more than independent errors (variance ÷ theirs)",
    "independence short",
    "mnist/fig03_independent_errors",
    "variance, observed over independent, short",
  ),
  Line(
    "Long trainings vary as independent errors (variance ÷ theirs)",
    "independence long",
    "mnist/fig03_independent_errors",
    "variance, observed over independent, long",
  ),
  Line(
    "A binomial law overestimates the variance (its ÷ observed)",
    "binomial",
    "mnist/fig13_binomial",
    "variance, binomial over observed",
  ),
  Line(
    "Well above the best learning rate, runs vary more than at it",
    "rate far",
    "mnist/fig08_learning_rate",
    "variance over that of independent errors well",
  ),
  Line(
    "One weight changed by a thousandth matters as much as other seeds (differences ÷ theirs)",
    "poked long",
    "mnist/fig11_poking",
    "one poked over distinct seeds, 12",
  ),
  Line(
    "The later that weight is changed, the less it matters",
    "poked later",
    "mnist/fig11_poking",
    "disagreement of runs poked first",
  ),
  Line(
    "Calibrated runs vary at least by err/(nk)",
    "theorem 4",
    "jordan2024/theorem3_calibration",
    "theorem 4: variance on 100 ",
  ),
  Line(
    "Calibrated runs disagree as often as one errs (disagreement ÷ error)",
    "theorem 5",
    "jordan2024/theorem3_calibration",
    "theorem 5: disagreement over error, 10",
  ),
  Line(
    "Mean errors of binary tasks predict their variance",
    "equation 6",
    "jordan2024/fig06_binary_tasks",
    "mean variance of the binary tasks over",
    "data: 8×8 digits",
  ),
  Line(
    "After unstable finetuning, halves correlate",
    "finetuned large",
    "jordan2024/fig07_ablations",
    "correlation of validation and test half, finetuned at a large",
    "network, data: BERT, MRPC",
  ),
  *FASHION_LINES,
)

PAGE = Page(
  folder="jordan2024",
  paper="jordan2024",
  title="Jordan 2024: does a lucky run stay lucky on new data?",
  appendix=(
    *(
      f"mnist/{name}"
      for name in (
        "fig01_accuracies",
        "fig02_halves",
        "fig03_independent_errors",
        "fig05_distribution_variance",
        "share",
        "fig08_learning_rate",
        "fig09_distribution_shift",
        "fig10_randomness_sources",
        "fig11_poking",
        "fig12_shift_correlations",
        "fig13_binomial",
        "fig14_dependent_pairs",
      )
    ),
    *(f"fashion_mnist/{real.name_of(module)}" for module in real.FIGURES),
    *(
      f"jordan2024/{name}"
      for name in (
        "fig06_binary_tasks",
        "fig07_ablations",
        "fig09_distribution_shift",
        "fig12_shift_correlations",
        "theorem3_calibration",
      )
    ),
  ),
  lines=LINES,
  pictures={
    "accuracies": Picture(
      draw_densities,
      "Figures 1, 3: 4,000 runs a length, beside independent errors of the same means.",
    ),
    "variance": Picture(
      draw_variances,
      "Figure 5: on 10,000 test images, if errors were independent, and on endlessly "
      "many images. Bars: 95 %.",
      panels=2,
    ),
    "halves": Picture(
      draw_halves,
      "Figure 2: even and odd test images, less the mean; a dot a run.",
      panels=2,
    ),
    "learning_rate": Picture(
      learning_rate,
      "Figure 8: 40 runs a rate, 12 epochs. Vertical: the best. From 0.4 on, nothing is "
      "learnt. Bars: 95 %.",
      panels=2,
    ),
    "poking": Picture(
      poking,
      "Figure 11 [12]: 50 runs and their twins, of which one weight is multiplied by "
      "1.001 once. Bars: 2 se.",
    ),
  },
  values=values_of_durations,
)


def recompute(out: Path) -> None:
  """Make the records of kept predictions anew."""
  for study in ("mnist", "fashion_mnist"):
    for module in real.FIGURES:
      # One for each figure: it says which runs the figure used.
      stored = real.Stored(out / study, study, data=False)
      pages.save_again(out / study, stored, module)
