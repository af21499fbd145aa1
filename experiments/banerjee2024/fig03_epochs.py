"""Banerjee 2024, figures 3 and 16: logit gaps of an ensemble and of its members, and what
becomes of both during training.

Networks become more accurate and then overconfident; their ensemble becomes better than
each of them, and better calibrated. In the paper it has fewer small and fewer large gaps.
"""

from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float, Int
from matplotlib.axes import Axes

from experiments import measures
from experiments.banerjee2024 import candidates
from experiments.banerjee2024.paper import CLAIMS
from experiments.claims import Estimate, student_estimate
from experiments.frame import Row, Trained, format_percent, rows_of
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Figures 3 and 16: an ensemble's logit gaps, and candidates by epoch"
PANELS = 5
SMALL_GAP = 1.0  # less decided than 73 %
LARGE = 0.95  # large gaps exceed this quantile of all candidates'


class Epochs(NamedTuple):
  """Candidates and their ensemble, after each of some epochs."""

  runs: int
  epoch: Int[np.ndarray, " epochs"]
  small: Float[np.ndarray, " epochs"]  # share whose α̂ is small
  accuracy: Float[np.ndarray, "epochs runs"]
  loss: Float[np.ndarray, "epochs runs"]  # cross-entropy
  ece: Float[np.ndarray, "epochs runs"]
  churn: Float[np.ndarray, "epochs runs"]  # with the ensemble at that epoch
  ensemble_accuracy: Float[np.ndarray, " epochs"]
  ensemble_ece: Float[np.ndarray, " epochs"]


class Gaps(NamedTuple):
  """Shares of the test examples by logit gap, at the end of training."""

  edges: Float[np.ndarray, " edges"]
  ensemble: Float[np.ndarray, " bins"]
  lowest: Float[np.ndarray, " bins"]  # of any candidate
  highest: Float[np.ndarray, " bins"]
  # The ensemble's share of small gaps less each run's
  small: Float[np.ndarray, " runs"]
  large: Float[np.ndarray, " runs"]


class EpochNumbers(NamedTuple):
  gaps: Gaps
  epochs: Epochs


def compute(trained: Trained) -> EpochNumbers:
  _, runs, _ = candidates.gaps_of(trained("S_all"))
  return EpochNumbers(gap_distributions(runs), by_epoch(trained("S_all")))


def gap_distributions(runs: Float[np.ndarray, "runs examples"]) -> Gaps:
  """The distributions of logit gaps."""
  ensemble = measures.ensemble_gaps(runs)
  edges = np.linspace(*np.quantile(runs, [0.001, 0.999]), 41)
  shares = np.stack([np.histogram(x, edges)[0] for x in (ensemble, *runs)]) / len(
    ensemble
  )
  large = np.quantile(abs(runs), LARGE)
  # The ensemble's share first, then each run's.
  small_shares = np.array([(abs(x) <= SMALL_GAP).mean() for x in (ensemble, *runs)])
  large_shares = np.array([(abs(x) > large).mean() for x in (ensemble, *runs)])
  return Gaps(
    edges,
    shares[0],
    shares[1:].min(0),
    shares[1:].max(0),
    small_shares[0] - small_shares[1:],
    large_shares[0] - large_shares[1:],
  )


def by_epoch(results: xr.Dataset) -> Epochs:
  """The candidates, and how near they are to the reference, after each evaluated epoch."""
  half = candidates.halves_of_source(results)
  labels = results.labels.values
  series = []
  for epoch in results.epoch:
    logits = results.epoch_logits.sel(epoch=epoch).values
    reference = stats.logit_gap(logits[half.reference])
    gaps = stats.logit_gap(logits[half.candidates])
    level = candidates.trimming_levels(reference, gaps).level
    ensemble = measures.ensemble_gaps(gaps)
    right = measures.gap_labels(gaps) == labels
    together = measures.gap_labels(ensemble) == labels
    series.append(
      (
        (level <= candidates.SMALL).mean(),
        right.mean(1),
        np.logaddexp(0, np.where(labels, -gaps, gaps)).mean(1),
        measures.gap_ece(gaps, labels),
        (right != together).mean(1),
        together.mean(),
        measures.gap_ece(ensemble, labels),
      )
    )
  return Epochs(
    len(half.candidates),
    results.epoch.values,
    *(np.array(values) for values in zip(*series, strict=True)),
  )


def rows(numbers: EpochNumbers) -> list[Row]:
  gaps, n = numbers
  early = int(np.argmax(n.epoch >= 0.2 * n.epoch[-1]))
  late = int(np.argmax(n.epoch >= 0.6 * n.epoch[-1]))
  first, then = n.epoch[[early, late]]
  end = n.epoch[-1]
  return rows_of(
    n.runs,
    (
      f"accuracy after {end} epochs less that after {then}",
      CLAIMS["plateau"],
      paired_estimate(n.accuracy[-1] - n.accuracy[late]),
    ),
    *(
      (
        f"{metric} of the more accurate half after {end} epochs less that after {first}",
        CLAIMS[claim],
        unpaired_estimate(better_half(n, values, -1), better_half(n, values, early)),
      )
      for metric, values, claim in (
        ("ECE", n.ece, "overconfident"),
        ("churn with the ensemble", n.churn, "departs"),
      )
    ),
    (
      "ECE of the ensemble less that of its members",
      CLAIMS["calibrated"],
      paired_estimate(n.ensemble_ece[-1] - n.ece[-1]),
    ),
    (
      f"gaps up to {SMALL_GAP:g}: the ensemble less its members",
      CLAIMS["uncertain"],
      paired_estimate(gaps.small),
    ),
    (
      f"gaps beyond the {100 * LARGE:g} % quantile: the ensemble less its members",
      CLAIMS["extreme"],
      paired_estimate(gaps.large),
    ),
    *(
      row
      for i, epoch in enumerate(n.epoch)
      if i in snapshots(n)
      for row in (
        (
          f"epoch {epoch}: accuracy of runs; of the ensemble",
          None,
          f"{candidates.span(n.accuracy[i])}; {format_percent(n.ensemble_accuracy[i])}",
        ),
        (
          f"epoch {epoch}: ECE of runs; of the ensemble",
          None,
          f"{candidates.span(n.ece[i])}; {format_percent(n.ensemble_ece[i])}",
        ),
        (f"epoch {epoch}: churn with the ensemble", None, candidates.span(n.churn[i])),
        (
          f"epoch {epoch}: runs with α̂ ≤ {candidates.SMALL}",
          None,
          format_percent(n.small[i]),
        ),
      )
    ),
  )


def snapshots(n: Epochs) -> list[int]:
  """The places of four epochs, the last among them."""
  return np.unique(np.linspace(0, len(n.epoch) - 1, 4).astype(int)).tolist()


def better_half(
  n: Epochs,
  metric: np.ndarray,
  place: int,
) -> Float[np.ndarray, " half"]:
  """A metric of the runs that are more accurate than the median after some epoch."""
  return metric[place, np.argsort(-n.accuracy[place])[: max(2, n.runs // 2)]]


def paired_estimate(differences: Float[np.ndarray, " runs"]) -> Estimate:
  se = differences.std(ddof=1) / np.sqrt(len(differences))
  return student_estimate(differences.mean(), se, len(differences) - 1, "%")


def unpaired_estimate(a: np.ndarray, b: np.ndarray) -> Estimate:
  se = np.hypot(*(x.std(ddof=1) / np.sqrt(len(x)) for x in (a, b)))
  return student_estimate(a.mean() - b.mean(), se, len(a) + len(b) - 2, "%")


def draw_range_of_runs(
  ax: Axes,
  epochs: np.ndarray,
  values: np.ndarray,
  label: str,
  color: str,
) -> None:
  """The mean over runs, and the range of all of them."""
  low = values.min(1)
  high = values.max(1)
  ax.fill_between(
    epochs,
    low,
    high,
    alpha=0.25,
    color=color,
    linewidth=0,
    label="all runs",
  )
  ax.plot(epochs, values.mean(1), "o-", color=color, markersize=3.5, label="their mean")
  ax.set(xlabel="epoch", ylabel=label)
  ax.grid(True)


def plot(numbers: EpochNumbers, axes: np.ndarray) -> None:
  gaps, n = numbers
  histogram, *by_metric, flat = axes
  middles = (gaps.edges[1:] + gaps.edges[:-1]) / 2
  histogram.fill_between(
    middles,
    100 * gaps.lowest,
    100 * gaps.highest,
    color=plots.SKY,
    alpha=0.5,
    linewidth=0,
    label="least to most of any run",
  )
  histogram.plot(middles, 100 * gaps.ensemble, color=plots.INK, label="the ensemble")
  histogram.set(xlabel="logit gap", ylabel="test examples (%)")
  histogram.legend()
  together = {"accuracy": n.ensemble_accuracy, "ECE": n.ensemble_ece}
  every = {"accuracy": n.accuracy, "ECE": n.ece, "churn with the ensemble": n.churn}
  for ax, (name, values) in zip(by_metric, every.items(), strict=True):
    draw_range_of_runs(ax, n.epoch, 100 * values, f"{name} (%)", plots.BLUE)
    if name in together:
      ax.plot(n.epoch, 100 * together[name], color=plots.ORANGE, label="the ensemble")
    ax.legend()
  for i, color in zip(snapshots(n), plots.PALETTE, strict=False):
    own = 100 * n.ece[i], 100 * n.accuracy[i]
    flat.scatter(*own, s=12, color=color, label=f"epoch {n.epoch[i]}")
  for i, color in zip(snapshots(n), plots.PALETTE, strict=False):  # above all dots
    ensemble = 100 * n.ensemble_ece[i], 100 * n.ensemble_accuracy[i]
    flat.scatter(*ensemble, s=70, color=color, marker="*", ec="k", lw=0.5)
  flat.set(xlabel="ECE (%)", ylabel="accuracy (%), ★ the ensemble")
  flat.legend()
  flat.grid(True)
