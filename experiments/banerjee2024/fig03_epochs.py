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
from experiments.banerjee2024.paper import STATED
from experiments.estimates import Estimate, student_estimate
from experiments.frame import Row, Trained, format_percent, rows_of
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
  least, most = np.quantile(runs, [0.001, 0.999])
  edges = np.linspace(least, most, 41)
  # The ensemble first, then each run.
  every = np.stack([ensemble, *runs])
  counts = np.stack([np.histogram(gaps, edges)[0] for gaps in every])
  shares = counts / len(ensemble)
  large = np.quantile(abs(runs), LARGE)
  small_shares = (abs(every) <= SMALL_GAP).mean(1)
  large_shares = (abs(every) > large).mean(1)
  return Gaps(
    edges=edges,
    ensemble=shares[0],
    lowest=shares[1:].min(0),
    highest=shares[1:].max(0),
    small=small_shares[0] - small_shares[1:],
    large=large_shares[0] - large_shares[1:],
  )


def by_epoch(results: xr.Dataset) -> Epochs:
  """The candidates, and how near they are to the reference, after each evaluated epoch."""
  half = candidates.halves_of_source(results)
  labels = results.labels.values
  series = []
  for epoch in results.epoch:
    logits = results.epoch_logits.sel(epoch=epoch).values
    reference = measures.logit_gap(logits[half.reference])
    gaps = measures.logit_gap(logits[half.candidates])
    level = candidates.trimming_levels(reference, gaps).level
    ensemble = measures.ensemble_gaps(gaps)
    is_right = measures.gap_labels(gaps) == labels
    ensemble_is_right = measures.gap_labels(ensemble) == labels
    # Of two classes, the cross-entropy is that of the label's side of the gap.
    loss = np.logaddexp(0, np.where(labels, -gaps, gaps))
    series.append(
      (
        (level <= candidates.SMALL).mean(),
        is_right.mean(1),
        loss.mean(1),
        measures.gap_ece(gaps, labels),
        (is_right != ensemble_is_right).mean(1),
        ensemble_is_right.mean(),
        measures.gap_ece(ensemble, labels),
      )
    )
  columns = [np.array(values) for values in zip(*series, strict=True)]
  return Epochs(len(half.candidates), results.epoch.values, *columns)


def rows(numbers: EpochNumbers) -> list[Row]:
  return [*claim_rows(numbers), *snapshot_rows(numbers.epochs)]


def claim_rows(numbers: EpochNumbers) -> list[Row]:
  """The rows that the paper's text speaks of."""
  gaps, n = numbers
  early = int(np.argmax(n.epoch >= 0.2 * n.epoch[-1]))
  late = int(np.argmax(n.epoch >= 0.6 * n.epoch[-1]))
  first, then = n.epoch[[early, late]]
  end = n.epoch[-1]
  rise_of_accuracy = paired_estimate(n.accuracy[-1] - n.accuracy[late])
  # The more accurate half at one epoch has other runs than at another.
  rise_of_ece = unpaired_estimate(
    better_half(n, n.ece, -1),
    better_half(n, n.ece, early),
  )
  rise_of_churn = unpaired_estimate(
    better_half(n, n.churn, -1),
    better_half(n, n.churn, early),
  )
  half_after = f"of the more accurate half after {end} epochs less that after {first}"
  beyond = f"gaps beyond the {100 * LARGE:g} % quantile"
  return rows_of(
    n.runs,
    (
      f"accuracy after {end} epochs less that after {then}",
      STATED["plateau"],
      rise_of_accuracy,
    ),
    (f"ECE {half_after}", STATED["overconfident"], rise_of_ece),
    (f"churn with the ensemble {half_after}", STATED["departs"], rise_of_churn),
    (
      "ECE of the ensemble less that of its members",
      STATED["calibrated"],
      paired_estimate(n.ensemble_ece[-1] - n.ece[-1]),
    ),
    (
      f"gaps up to {SMALL_GAP:g}: the ensemble less its members",
      STATED["uncertain"],
      paired_estimate(gaps.small),
    ),
    (
      f"{beyond}: the ensemble less its members",
      STATED["extreme"],
      paired_estimate(gaps.large),
    ),
  )


def snapshot_rows(n: Epochs) -> list[Row]:
  """What runs and their ensemble are after some epochs."""
  cells = []
  for i in snapshots(n):
    epoch = f"epoch {n.epoch[i]}"
    accuracy = candidates.span(n.accuracy[i])
    ece = candidates.span(n.ece[i])
    ensemble_accuracy = format_percent(n.ensemble_accuracy[i])
    ensemble_ece = format_percent(n.ensemble_ece[i])
    cells += [
      (
        f"{epoch}: accuracy of runs; of the ensemble",
        None,
        f"{accuracy}; {ensemble_accuracy}",
      ),
      (f"{epoch}: ECE of runs; of the ensemble", None, f"{ece}; {ensemble_ece}"),
      (f"{epoch}: churn with the ensemble", None, candidates.span(n.churn[i])),
      (
        f"{epoch}: runs with α̂ ≤ {candidates.SMALL}",
        None,
        format_percent(n.small[i]),
      ),
    ]
  return rows_of(n.runs, *cells)


def snapshots(n: Epochs) -> list[int]:
  """The places of four epochs, the last among them."""
  return np.unique(np.linspace(0, len(n.epoch) - 1, 4).astype(int)).tolist()


def better_half(
  n: Epochs,
  metric: np.ndarray,
  place: int,
) -> Float[np.ndarray, " half"]:
  """A metric of the runs that are more accurate than the median after some epoch."""
  order = np.argsort(-n.accuracy[place])
  # A standard deviation takes two.
  better = order[: max(2, n.runs // 2)]
  return metric[place, better]


def paired_estimate(differences: Float[np.ndarray, " runs"]) -> Estimate:
  se = differences.std(ddof=1) / np.sqrt(len(differences))
  return student_estimate(differences.mean(), se, len(differences) - 1, "%")


def unpaired_estimate(a: np.ndarray, b: np.ndarray) -> Estimate:
  se_of_a = a.std(ddof=1) / np.sqrt(len(a))
  se_of_b = b.std(ddof=1) / np.sqrt(len(b))
  se = np.hypot(se_of_a, se_of_b)
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
  colors = dict(zip(snapshots(n), plots.PALETTE, strict=False))
  for i, color in colors.items():
    flat.scatter(
      100 * n.ece[i],
      100 * n.accuracy[i],
      s=12,
      color=color,
      label=f"epoch {n.epoch[i]}",
    )
  # After all runs, so that no star is under their dots.
  for i, color in colors.items():
    flat.scatter(
      100 * n.ensemble_ece[i],
      100 * n.ensemble_accuracy[i],
      s=70,
      color=color,
      marker="*",
      ec="k",
      lw=0.5,
    )
  flat.set(xlabel="ECE (%)", ylabel="accuracy (%), ★ the ensemble")
  flat.legend()
  flat.grid(True)
