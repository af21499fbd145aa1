"""How much of a run has to be trimmed before its logit gaps look like those of the others, and what that says of it.

Banerjee 2024, tables 1 to 3 and figures 6 to 9: α̂ is the least fraction of the test examples that must be left out so
that the distribution of a candidate's logit gaps is near that of a reference, all gaps of other runs. Runs differ in
initialisation alone (S_init), in the order of the batches alone (S_batch) or in all (S_all); half of each are the
reference, half candidates. CNNs on two groups of four CIFAR-10 classes have an accuracy of 91.10 ± 0.30 % in S_init and
of 90.81 ± 0.56 % in S_all, where those with α̂ ≤ 0.05 stay above 90.4 %: a small α̂ admits no bad accuracy, churn or
calibration, but a good one of these does not promise a small α̂. Of ensembles of 3 runs 77 % have α̂ ≤ 0.05, of 30 all.

    python -m experiments.banerjee2024.trimming_levels
    python -m experiments.banerjee2024.trimming_levels --recipe cnn_cifar10_binary

A recipe with ten classes is trained on two groups of them: the digits 0 to 4 against 5 to 9, on CIFAR-10 the paper's
eight. `--set classes=...` takes others. What a source does not vary has seed 0: another choice may give other numbers.

Cost of the first, 400 runs of each source for 2 epochs: 20 seconds on two CPU cores. The second is for a GPU or TPU and
was not timed.

Expected of the first, two standard errors either way: α̂ is small for 79 ± 6 % of S_init and S_batch and 70 ± 6 % of
S_all, and for 87 ± 3, 91 ± 3 and 98 ± 1 % of ensembles of 3, 5 and 10; of 30 for all. Accuracies in S_all go from 78.4
to 96.5 %, and from 88.3 to 95.9 % where α̂ is small: the worst runs have a large one, but so have some good ones.
Kendall's τ of α̂ with the error is only 0.16 to 0.34. Unlike the paper's, larger ensembles are not better calibrated:
after so short a training runs are underconfident. After 16 epochs α̂ is small for 98.5 to 99.5 % of the runs, some of
the least accurate among them: on 797 test examples the threshold is three times the paper's.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float, Int

import vmapseeds as vs
from experiments import common
from experiments.common import Defaults, Row, Spread, percent, rows, spread
from vmapseeds import stats
from vmapseeds.cli import mistakes
from vmapseeds.mistakes import Mistake, at_least
from vmapseeds.reports import plots
from vmapseeds.training.supervised import dataset_of

DEFAULTS = {
  "digits_cnn": Defaults((2,), 400),
  "cnn_cifar10_binary": Defaults((50,), 200),
  "": Defaults((16,), 200),
}
CLASSES = {"digits": (0,) * 5 + (1,) * 5, "cifar10": vs.recipe("cnn_cifar10_binary").classes}
SOURCES = {"S_init": "init", "S_batch": "order", "S_all": None}  # what varies
SMALL = 0.05  # α̂ at most so large is small
SIZES = (3, 5, 10, 20, 30, 70, 100, 150, 200)
ENSEMBLES = 500  # of each size
REPLICATES = 100  # of the bootstrap: the paper does not give its number
TESTED = 8_018  # test examples: the paper says 8,000, its accuracies are fractions of 8,018
PAPER = {
  "epochs": 50,
  "table 1": {  # by size: small α̂; mean and deviation of accuracy, of churn in examples, of ECE
    3: (0.7720, (0.9185, 0.0025), (190.79, 33.90), (0.0226, 0.0048)),
    5: (0.8920, (0.9203, 0.0018), (145.70, 28.61), (0.0200, 0.0037)),
    10: (0.9680, (0.9211, 0.0014), (103.57, 22.50), (0.0185, 0.0023)),
    20: (0.9940, (0.9217, 0.0011), (76.97, 17.23), (0.0175, 0.0016)),
    30: (1.0, (0.9221, 0.0010), (62.84, 12.45), (0.0171, 0.0014)),
    70: (1.0, (0.9222, 0.0008), (43.45, 9.64), (0.0168, 0.0012)),
    100: (1.0, (0.9223, 0.0008), (38.59, 9.08), (0.0169, 0.0012)),
    150: (1.0, (0.9223, 0.0007), (32.75, 7.42), (0.0169, 0.0011)),
    200: (1.0, (0.9224, 0.0007), (29.3, 6.91), (0.0169, 0.0011)),
  },
  "table 2": {  # mean, deviation and range of accuracy, range where α̂ is small, accuracy of the ensemble
    "S_init": (0.91101, 0.00302, (0.90422, 0.91781), (0.90422, 0.91781), 0.91731),
    "S_batch": (0.90819, 0.00554, (0.87852, 0.91843), (0.90409, 0.91843), 0.91731),
    "S_all": (0.90810, 0.00560, (0.88513, 0.91769), (0.90409, 0.91769), 0.92361),
  },
  "table 3": {  # range of the churn of pairs, in examples, and where both have a small α̂
    "S_init": ((270, 481), (270, 481)),
    "S_batch": ((218, 1174), (283, 467)),
    "S_all": ((327, 1184), (283, 462)),
  },
}
PATTERN = (
  "the runs of a small α̂ leave out the least accurate ones, and the larger an ensemble, the more of its kind have a "
  "small α̂ and the less their accuracy, churn and calibration vary"
)


class Range(NamedTuple):
  """Least and largest of some numbers; NaN of none."""

  low: float
  high: float


class Source(NamedTuple):
  """The candidates of one source of randomness beside their reference."""

  runs: int  # candidates
  reference_runs: int
  examples: int
  threshold: float  # δ_a
  level: Float[np.ndarray, " runs"]  # α̂, NaN where some replicate accepted no level
  failed: Int[np.ndarray, " runs"]  # such replicates
  accuracy: Spread
  churn: Float[np.ndarray, " runs"]  # with the ensemble of all candidates
  mean_churn: Float[np.ndarray, " runs"]  # with the other candidates
  ece: Float[np.ndarray, " runs"]  # 10 bins from 0 to 1
  ece_fine: Float[np.ndarray, " runs"]  # 10 bins from 1/2 to 1
  ensemble_accuracy: float
  small: float  # share of candidates with a small α̂
  accuracy_range: Range
  accuracy_range_small: Range
  pair_churn_range: Range
  pair_churn_range_small: Range
  tau_accuracy: float  # Kendall's τ of α̂, and what is worse when it is larger
  tau_churn: float
  tau_ece: float


class Ensembles(NamedTuple):
  """Ensembles of some members drawn without replacement from the candidates."""

  runs: int  # candidates drawn from
  ensembles: int
  members: int
  small: float  # share of ensembles with a small α̂
  within: float  # share of ensembles within δ_a of the reference, untrimmed
  accuracy: float
  accuracy_sd: float
  churn: float  # with the ensemble of all candidates
  churn_sd: float
  ece: float
  ece_sd: float
  ece_fine: float
  ece_fine_sd: float


class Numbers(NamedTuple):
  """All of one duration: candidates by source, ensembles of S_all by size."""

  runs: int
  sources: dict[str, Source]
  ensembles: dict[int, Ensembles]


def compute(gaps: Mapping[str, Float[np.ndarray, "runs examples"]], labels: Int[np.ndarray, " examples"]) -> Numbers:
  """The logit gaps of each source's runs: the first half of these are the reference."""
  halves = {source: np.split(g, [len(g) // 2]) for source, g in gaps.items()}
  sources = {source: of_source(*both, labels) for source, both in halves.items()}
  reference, candidates = halves["S_all"]
  ensembles = {p: of_ensembles(reference, candidates, labels, p) for p in SIZES if p < len(candidates)}
  return Numbers(len(candidates), sources, ensembles)


def of_source(
  reference: Float[np.ndarray, "models examples"],
  candidates: Float[np.ndarray, "runs examples"],
  labels: Int[np.ndarray, " examples"],
) -> Source:
  """The statistics of candidates, and α̂ beside what else says how good a run is."""
  runs, examples = candidates.shape
  predictions = stats.gap_labels(candidates)
  together = stats.gap_labels(stats.ensemble_gaps(candidates))
  trimmed = stats.trimming_level(reference, candidates, key=jax.random.key(0), replicates=REPLICATES)
  small = trimmed.level <= SMALL
  accuracy = spread(predictions != labels)
  churn = stats.churn(predictions, np.broadcast_to(together, predictions.shape))
  matrix = stats.disagreement_matrix(predictions)
  ece = stats.gap_ece(candidates, labels)
  pairs = np.triu(np.ones((runs, runs), bool), 1)
  # For its rank: above all that have an α̂, the more replicates accepted no level.
  order = np.where(np.isnan(trimmed.level), 1 + trimmed.failed, trimmed.level)
  return Source(
    runs=runs,
    reference_runs=len(reference),
    examples=examples,
    threshold=float(stats.ks_threshold(examples)),
    level=trimmed.level,
    failed=trimmed.failed,
    accuracy=accuracy,
    churn=churn,
    mean_churn=matrix.sum(1) / (runs - 1),
    ece=ece,
    ece_fine=stats.gap_ece(candidates, labels, lowest=0.5),
    ensemble_accuracy=float((together == labels).mean()),
    small=float(small.mean()),
    accuracy_range=extremes(accuracy.accuracies),
    accuracy_range_small=extremes(accuracy.accuracies[small]),
    pair_churn_range=extremes(matrix[pairs]),
    pair_churn_range_small=extremes(matrix[pairs & small & small[:, None]]),
    tau_accuracy=float(stats.kendall_tau(order, -accuracy.accuracies)),
    tau_churn=float(stats.kendall_tau(order, churn)),
    tau_ece=float(stats.kendall_tau(order, ece)),
  )


def of_ensembles(
  reference: Float[np.ndarray, "models examples"],
  candidates: Float[np.ndarray, "runs examples"],
  labels: Int[np.ndarray, " examples"],
  members: int,
) -> Ensembles:
  """The statistics of ensembles of that many members."""
  rng = np.random.default_rng(members)
  drawn = np.stack([rng.permutation(len(candidates))[:members] for _ in range(ENSEMBLES)])
  gaps = stats.ensemble_gaps(candidates, drawn)
  level = stats.trimming_level(reference, gaps, key=jax.random.key(0), replicates=REPLICATES).level
  predictions, together = stats.gap_labels(gaps), stats.gap_labels(stats.ensemble_gaps(candidates))
  accuracy = (predictions == labels).mean(1)
  churn = (predictions != together).mean(1)
  ece, ece_fine = (stats.gap_ece(gaps, labels, lowest=lowest) for lowest in (0.0, 0.5))
  within = stats.ks_distance(reference, gaps) <= stats.ks_threshold(len(labels))

  def mean_and_sd(x: np.ndarray) -> tuple[float, float]:
    return float(x.mean()), float(x.std(ddof=1))

  return Ensembles(
    len(candidates), ENSEMBLES, members, float((level <= SMALL).mean()), float(within.mean()),
    *mean_and_sd(accuracy), *mean_and_sd(churn), *mean_and_sd(ece), *mean_and_sd(ece_fine),
  )  # fmt: skip


def extremes(x: Float[np.ndarray, " n"]) -> Range:
  return Range(float(x.min()), float(x.max())) if x.size else Range(math.nan, math.nan)


def plot(numbers: Mapping[int, Numbers], axes: np.ndarray) -> None:
  """α̂ of each candidate against its accuracy, its churn and its ECE, three panels a duration; crosses have none."""
  metrics = {
    "test accuracy (%)": lambda s: s.accuracy.accuracies,
    "churn with the ensemble (%)": lambda s: s.churn,
    "expected calibration error (%)": lambda s: s.ece,
  }
  for three, (epochs, n) in zip(axes.reshape(-1, 3), numbers.items(), strict=True):
    for ax, (label, of) in zip(three, metrics.items(), strict=True):
      for (name, source), color in zip(n.sources.items(), plots.PALETTE, strict=False):
        x, known = 100 * of(source), ~np.isnan(source.level)
        ax.scatter(x[known], source.level[known], s=14, color=color, alpha=0.6, linewidths=0, label=name)
        ax.scatter(x[~known], np.ones((~known).sum()), s=14, color=color, marker="x", linewidths=0.8)
      ax.axhline(SMALL, color=plots.INK, linewidth=0.9, linestyle=":", label=f"α̂ = {SMALL}")
      ax.set(xlabel=label, ylabel="trimming level α̂ (×: none)", ylim=(-0.04, 1.04))
      ax.spines[["top", "right"]].set_visible(False)
      ax.grid(alpha=0.25, linewidth=0.7)
    three[1].set_title(common.duration(epochs))
    above = dict(loc="lower left", bbox_to_anchor=(-0.02, 1), ncols=4, columnspacing=1)
    three[0].legend(frameon=False, fontsize="small", **above)


def span(of: Sequence[float], examples: int | None = None) -> str:
  """A range of fractions as per cent; of numbers of examples if it is said of how many."""
  low, high = (x / (examples or 1) for x in of)
  return f"{100 * low:.2f} to {100 * high:.2f} %" if math.isfinite(low) else "none"


def varied(mean: float, sd: float) -> str:
  return f"{100 * mean:.2f} %, sd {100 * sd:.2f} %"


def share(fraction: float, of: int) -> str:
  return percent(fraction, math.sqrt(fraction * (1 - fraction) / of))


def table(setting: common.Setting, numbers: Mapping[int, Numbers]) -> list[Row]:
  """The paper's tables 1 to 3 beside ours."""
  epochs = PAPER["epochs"]
  lines = []

  def add(quantity, where, paper, part, ours):
    by_duration = {e: part(n) for e, n in numbers.items()}
    lines.extend(rows(setting, by_duration, quantity, where, {epochs: paper}, ours))

  sizes = {size for n in numbers.values() for size in n.ensembles}
  for size in sorted(sizes):
    small, accuracy, churn, ece = PAPER["table 1"][size]
    within = "all" if size >= 100 else "figure only"
    add(
      f"ensembles of {size}: within δ_a untrimmed",
      "figure 4",
      within,
      lambda n, size=size: n.ensembles[size],
      lambda n: share(n.within, n.ensembles),
    )
    for quantity, paper, ours in (
      ("small α̂", small, lambda n: share(n.small, n.ensembles)),
      ("accuracy", varied(*accuracy), lambda n: varied(n.accuracy, n.accuracy_sd)),
      ("churn with that of all", varied(*(x / TESTED for x in churn)), lambda n: varied(n.churn, n.churn_sd)),
      ("ECE", varied(*ece), lambda n: varied(n.ece, n.ece_sd)),
      ("ECE, bins from 1/2", None, lambda n: varied(n.ece_fine, n.ece_fine_sd)),
    ):
      add(f"ensembles of {size}: {quantity}", "table 1", paper, lambda n, size=size: n.ensembles[size], ours)
  for name in SOURCES:
    mean, sd, everywhere, of_small, ensemble = PAPER["table 2"][name]
    churn, churn_small = PAPER["table 3"][name]
    for quantity, where, paper, ours in (
      ("mean accuracy", "table 2", mean, lambda s: percent(s.accuracy.mean, s.accuracy.mean_se)),
      ("sd of accuracy", "table 2", sd, lambda s: percent(s.accuracy.sd, s.accuracy.sd_se)),
      ("accuracies", "table 2", span(everywhere), lambda s: span(s.accuracy_range)),
      ("accuracies where α̂ is small", "table 2", span(of_small), lambda s: span(s.accuracy_range_small)),
      ("accuracy of the ensemble", "table 2", ensemble, lambda s: percent(s.ensemble_accuracy)),
      ("churn of pairs", "table 3", span(churn, TESTED), lambda s: span(s.pair_churn_range)),
      ("churn of pairs where both α̂ are small", "table 3", span(churn_small, TESTED),
       lambda s: span(s.pair_churn_range_small)),
      ("small α̂", "not given", None, lambda s: share(s.small, s.runs)),
      ("replicates that accepted no level", "not given", None,
       lambda s: f"{s.failed.sum()}, of {(s.failed > 0).sum()} runs"),
      ("τ of α̂ with error", "figure 7", "figure only", lambda s: f"{s.tau_accuracy:.2f}"),
      ("τ of α̂ with churn", "figure 9", "figure only", lambda s: f"{s.tau_churn:.2f}"),
      ("τ of α̂ with ECE", "figure 9", "figure only", lambda s: f"{s.tau_ece:.2f}"),
    ):  # fmt: skip
      add(f"{name}: {quantity}", where, paper, lambda n, name=name: n.sources[name], ours)
  return lines


def notes(setting: common.Setting, examples: int) -> str:
  recipe = setting.recipe
  if any(recipe.replace(epochs=e) == vs.recipe("cnn_cifar10_binary", epochs=e) for e in setting.epochs):
    ours = f"Ours is the paper's network and data, by Adam, which is our reading. Pattern: {PATTERN}."
  else:
    ours = (
      f"Ours is {recipe.name} on two groups of the classes of {recipe.dataset}, not the paper's: values are not "
      f"expected to agree, only the pattern is comparable: {PATTERN}."
    )
  few = "" if examples >= 916 else ", and below 916 the constant of equation 14 is a little above its 2"
  return (
    f"{ours} What a source does not vary has seed 0; S_all varies augmentation too. Small is α̂ ≤ {SMALL}; a run of "
    f"which some replicate accepts no level has no α̂ and is not small. δ_a is {stats.ks_threshold(examples):.4f} for "
    f"{examples:,} test examples{few}; the paper's is 0.0364. Its ensembles are drawn from 800 runs, ours from "
    f"{setting.runs - setting.runs // 2}: those of more than half overlap much. The paper's churn is in examples, here "
    f"divided by {TESTED:,}, of which its accuracies are fractions, and not of the 8,000 it gives. Its range of S_all "
    "where α̂ is small, in table 3, lies partly outside the full range; S_init and S_batch have one ensemble accuracy, "
    "and a sentence of section 5.2.2 exchanges them. Of 10 bins from 0 to 1 its ECE can use 5."
  )


def with_two_classes(setting: common.Setting) -> common.Setting:
  """The setting with a recipe of two classes. `Mistake` where its classes cannot be two."""
  recipe = setting.recipe
  if recipe.classes is None:
    recipe = recipe.replace(classes=CLASSES.get(recipe.dataset))
  count = dataset_of(recipe).num_classes
  if count != 2:
    raise Mistake(f"{recipe.dataset} with {count} classes: give --set classes=... with the group, 0 or 1, of each")
  return dataclasses.replace(setting, recipe=recipe)


def gaps_of(results: xr.Dataset) -> Float[np.ndarray, "runs examples"]:
  """The logit gaps of the runs that did not diverge."""
  return stats.logit_gap(results.logits.values[~results.diverged.values])


def main(argv: Sequence[str] | None = None) -> None:
  with mistakes():
    setting = common.settings(__file__, __doc__, argv, DEFAULTS, quick=(2,))
    at_least("--runs", setting.runs, 4)
    setting = with_two_classes(setting)
    numbers = {}
    for epochs in setting.epochs:
      gaps = {}
      for name, source in SOURCES.items():
        varying = vs.Runs.vary(source, setting.runs) if source else None
        results = setting.train(epochs, varying, f"-{source}" if source else "", logits=True)
        gaps[name] = gaps_of(results)
      numbers[epochs] = compute(gaps, results.labels.values)
    lines, text = table(setting, numbers), notes(setting, results.sizes["example"])
    common.write(setting, numbers, PAPER, lines, text, plot, panels=3 * len(numbers),
                 quoted=tuple(f"{name}: accuracies" for name in SOURCES))  # fmt: skip


if __name__ == "__main__":
  main()
