"""The page of Jordan 2024: many runs on all of MNIST and Fashion-MNIST."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats

from experiments import scripts
from experiments.jordan2024 import fig01, fig08, fig11, fig14, real, runs
from experiments.pages import Colors, Page, Picture, Records
from vmapseeds import stats

DATA = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
AFTER = {1: "1 epoch", 4: "4 epochs", 12: "12 epochs"}


def draw_densities(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw densities of accuracy, and what independent errors would give."""
  (ax,) = axes
  shown = records["mnist/fig03"]["shown"]
  ax.axhline(0, color=colors.quiet, linewidth=0.6)
  for (epochs, label), color in zip(AFTER.items(), colors.each(), strict=False):
    values = np.array(shown[str(epochs)]["accuracies"])
    edges = np.arange(values.min() - 0.025, values.max() + 0.05, 0.05)
    ax.hist(values, edges, density=True, color=color, alpha=0.45)
    ax.plot([], [], color=color, linewidth=5, alpha=0.6, label=label)
    grid = np.linspace(values.min(), values.max(), 200)
    law = scipy.stats.norm(values.mean(), shown[str(epochs)]["sd"])
    ax.plot(grid, law.pdf(grid), color=color, linestyle="--")
  ax.plot([], [], color=colors.ink, linestyle="--", label="independent errors")
  ax.set(xlabel="test accuracy (%)", ylabel="density (per point)")
  ax.legend(loc="upper center")


def draw_variances(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw standard deviations against the length of training, on two data sets."""
  for ax, (folder, title) in zip(axes, DATA.items(), strict=True):
    epochs = np.array(records[f"{folder}/fig05"]["epochs"])
    for record, name, form, color, label in (
      ("fig05", "sd on the test set", "o", colors.blue, "test set"),
      ("fig03", "sd if errors", ".", colors.vermilion, "independent errors"),
      ("fig05", "sd on the distribution", "s", colors.green, "distribution"),
    ):
      every = records[f"{folder}/{record}"]["rows"]
      rows = [row for row in every if row["quantity"].startswith(name)]
      sd, low, high = np.array([[r["value"], r["low"], r["high"]] for r in rows]).T
      bars_of = [sd - low, high - sd]
      style = {"color": color, "capsize": 3, "markersize": 4.5}
      ax.errorbar(epochs, sd, bars_of, fmt=form, label=label, **style)
      # Untrained runs are no short training: no line leads there.
      ax.plot(epochs[1:], sd[1:], "--" if form == "." else "-", color=color)
    ax.set_xscale("symlog", linthresh=1)
    ax.set_xticks(epochs, [f"{e}" for e in epochs])
    ax.set(xlabel="epochs", title=title, yscale="log", ylim=(0.05, 8))
    ax.set_xlim(-0.2, 1.3 * epochs[-1])
    ax.set_yticks([0.1, 0.3, 1, 3], ["0.1", "0.3", "1", "3"])
    ax.minorticks_off()
    ax.grid(True, axis="y")
  axes[0].set_ylabel("sd of accuracy (%)")
  axes[1].legend()


def draw_halves(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw the accuracies on two halves, in deviations from their means."""
  for ax, epochs in zip(axes, (1, 12), strict=True):
    halves = records["mnist/fig02"]["halves"][str(epochs)]
    even, odd = (np.array(x) - np.mean(x) for x in halves.values())
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
    correlation = np.corrcoef(even, odd)[0, 1]
    ax.set_title(f"{AFTER[epochs]}: correlation {correlation:.2f}")
    ax.set_aspect("equal")
  axes[0].set_ylabel("odd examples (points)")


def learning_rate(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw accuracy, and the variance over that of independent errors, by rate."""
  every = records["mnist/fig08"]["rates"]
  best = max(every, key=lambda at: np.mean(at["accuracies"]))
  means = [stats.mean_over_runs(at["accuracies"]) for at in every]
  mean, se = 100 * np.array([(float(x), float(x.se)) for x in means]).T
  rates = [at["rate"] for at in every]
  axes[0].errorbar(rates, mean, 1.96 * se, fmt=".-", color=colors.blue)
  axes[0].set(ylabel="test accuracy (%)")
  for at in every:
    ratio = fig08.over_independent(at)
    color = colors.vermilion if at is best else colors.green
    bars = [[ratio.value - ratio.low], [ratio.high - ratio.value]]
    axes[1].errorbar(at["rate"], ratio.value, bars, fmt="o", color=color, markersize=4)
  axes[1].plot([], [], "o", color=colors.vermilion, markersize=4, label="the best rate")
  axes[1].legend(loc="upper left")
  axes[1].axhline(1, color=colors.ink, linestyle="--", linewidth=1)
  axes[1].set(ylabel="variance ÷ independent errors'", yscale="log")
  axes[1].set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
  for ax in axes:
    ax.set(xscale="log", xlabel="learning rate")
    ax.set_xticks([0.001, 0.01, 0.1], ["0.001", "0.01", "0.1"])
    ax.minorticks_off()
    ax.grid(True)


def poking(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw how far runs end from their poked twins, on two data sets."""
  for ax, (folder, title) in zip(axes, DATA.items(), strict=True):
    later = records[f"{folder}/fig11"]["later"]
    share = [100 * int(eighths) / 8 for eighths in later]
    matched, error = 100 * np.array([fig11.matched(n) for n in later.values()]).T
    style = {"color": colors.blue, "capsize": 3, "label": "one poked"}
    ax.errorbar(share, matched, 2 * error, fmt="o-", **style)
    distinct = 100 * later["0"]["distinct"]
    ax.axhline(distinct, color=colors.vermilion, label="distinct seeds")
    ax.set(xlabel="training done before the poke (%)", title=title)
    ax.set(xlim=(-5, 95), ylim=(0, 1.15 * distinct))
    ax.grid(True, axis="y")
  axes[0].set_ylabel("predictions that differ (%)")
  axes[0].legend(loc="center right")


def values_of_long_runs(records: Records) -> dict[str, Any]:
  """Return the variance of the longest runs over that of independent errors, and where
  95 % of it lie for draws of as many of them as figure 8 has at a rate.
  """
  shown = records["mnist/fig03"]["shown"]["12"]
  (runs,) = {len(at["accuracies"]) for at in records["mnist/fig08"]["rates"]}
  accuracies = np.array(shown["accuracies"])
  rng = np.random.default_rng(0)
  drawn = [rng.choice(accuracies, runs, replace=False).var(ddof=1) for _ in range(2000)]
  return {
    "ratio": accuracies.var(ddof=1) / shown["sd"] ** 2,
    "ends": np.quantile(drawn, [0.025, 0.975]) / shown["sd"] ** 2,
  }


KEPT = ("01", "02", "03", "05", "13", "14")  # figures of kept predictions
MNIST = ("01", "02", "03", "05", "08", "09", "10", "11", "12", "13", "14")
SMALL = (
  "fig06",
  "fig07",
  *(f"fig{n}_{data}" for n in ("09", "12") for data in ("cifar10", "mnist")),
)

PAGE = Page(
  folder="jordan2024",
  title="Jordan 2024: does a lucky run stay lucky on new data?",
  appendix=(
    *(f"mnist/fig{n}" for n in MNIST),
    *(f"fashion_mnist/fig{n}" for n in (*KEPT, "11")),
    *(f"jordan2024/{name}" for name in SMALL),
  ),
  pictures={
    "accuracies": Picture(
      draw_densities,
      "Figures 1, 3: MNIST, 4,000 runs a length; dashed: independent errors of the same means.",
    ),
    "variance": Picture(
      draw_variances,
      "Figure 5: sd on 10,000 test images, if errors were independent, and on endlessly "
      "many images. Bars: 95 %.",
      panels=2,
    ),
    "halves": Picture(
      draw_halves,
      "Figure 2: MNIST, even and odd test images, less the mean; a dot a run.",
      panels=2,
    ),
    "learning_rate": Picture(
      learning_rate,
      "Figure 8: 40 runs a rate, 12 epochs, the same seeds at each. At the smallest rates "
      "training is too short, from 0.4 on it fails. Bars: 95 %.",
      panels=2,
    ),
    "poking": Picture(
      poking,
      "Figure 11 (12): 50 runs and 10, and twins with one weight times 1.001. Bars: 2 "
      "standard errors.",
      panels=2,
    ),
  },
  values=values_of_long_runs,
)


def recompute(out: Path) -> None:
  """Make the numbers of kept predictions anew."""
  for study in DATA:
    lengths = real.STUDIES[study].epochs
    errors = errors_of(out / study, lengths)
    for script in real.OF_LENGTHS:
      name = script.__name__.rpartition(".")[2]
      scripts.write_numbers(out / study / f"{name}.json", script.measure(errors))
    of_pairs = fig14.measure(runs.kept_tallies(out / study, lengths[-1]))
    scripts.write_numbers(out / study / "fig14.json", of_pairs)


def errors_of(folder: Path, lengths: Sequence[int]) -> dict[int, np.ndarray]:
  """Return the errors of kept predictions by length."""
  flags = argparse.Namespace(kept=folder)
  return {epochs: fig01.errors_after(flags, epochs) for epochs in lengths}
