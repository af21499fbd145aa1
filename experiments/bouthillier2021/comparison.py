"""Whether one recipe is better than another, and how often three ways to say so are right.

Bouthillier et al. 2021, sections 3 and 4, figures 5 and 6: A is better than B where a run of A outperforms one of B
often enough, P(A > B) against 1/2 and γ = 0.75; a difference of single runs, or of averages, against a threshold is
right less often. Measures that have something in common, there the hyperparameters, here the initialisation or
all else, are correlated (ρ), and however many of them are worth few independent ones.

    python -m experiments.bouthillier2021.comparison
    python -m experiments.bouthillier2021.comparison --against weight_decay=0.001
    python -m experiments.bouthillier2021.comparison --recipe resnet9_cifar10 --runs 400 --seed-batch 100

A is the recipe, B the same with what --against changes. Run i of both has the same seeds and the same bootstrap of
the training set; the test set is one for all. Of A, 20 repetitions more vary the initialisation alone, and 20 the
training set alone, what else is random being drawn once a repetition: their ρ gives the biased estimators of
figures 5 and 6.

Cost of the first, 400 pairs and twice 400 runs more of 16 epochs: 2 minutes on two CPU cores. With another --against
only the runs of B are trained. The last is for a GPU or TPU and was not timed.

Expected of the first, intervals of 95 %: half the learning rate loses 0.41 [0.36, 0.47] % of accuracy, 0.54 standard
deviations of a run, and P(A > B) = 0.77 [0.73, 0.81]: significant and meaningful, where the average comparison sees
nothing. Initialisation alone has ρ = 0.28 ± 0.12 (two standard errors), so that endlessly many such runs are worth 3.5
independent ones, the training set alone 0.09 ± 0.07, worth 11. The first is enough to turn the decision's 1.6 % of
false positives at P(A > B) = 0.5 into 28 %, and its 5.5 % of false negatives at 0.75 into 27 %. Accuracies on 797
examples are not quite normal: p = 0.02 and 0.03.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

import jax
import numpy as np
import tyro
from jaxtyping import Float

import vmapseeds as vs
from experiments import common
from experiments.common import Defaults, Row, Setting, number, percent
from vmapseeds import stats
from vmapseeds.cli import mistakes, overrides
from vmapseeds.mistakes import Mistake
from vmapseeds.reports import plots
from vmapseeds.reports.summary import show

DEFAULTS = {
  "digits_cnn": Defaults((16,), 400),
  "resnet9_cifar10": Defaults((16,), 400),
  "": Defaults((16,), 200),
}
REPETITIONS = 20  # section 3.3
PAIRS = 50  # section 4.2
GAMMA = 0.75
GRID = np.round(np.linspace(0.4, 0.99, 60), 2)  # true P(A > B)
HELD = {"init": "all but initialisation", "data": "all but the training set"}
STYLES = {"ideal": "-", "data": "--", "init": ":"}
PAPER = {
  "gamma": GAMMA,
  "pairs": PAIRS,
  "threshold": 1.9952,  # in standard deviations, section 4.2
  "sample_size": 29,  # appendix C.3
  "detection": {  # figure 6: rates of false positives and of false negatives
    "single_point": (0.10, 0.75),
    "average": ("below 5 %", 0.90),
    "outperforming": (0.05, 0.30),
  },
  "equivalent": {"init": "at best 2", "data": "2 to 10"},  # independent measures, section 3.3
  "init_over_data_variance": "generally below 0.5",  # figure 1
  "normal": "normal but for SST-2",  # figure G.3
}
PATTERN = (
  "one run each misses most improvements, averages against 1.9952 σ miss nearly all, P(A > B) finds them, and less "
  "surely the more its measures share"
)


@dataclasses.dataclass(frozen=True)
class Flags(common.Flags):
  against: Annotated[
    tuple[str, ...],
    tyro.conf.arg(metavar="FIELD=VALUE", help_behavior_hint="(default: half the learning rate)"),
  ] = ()
  """what B changes of the recipe, e.g. lr=0.02 epochs=8"""


class Biased(NamedTuple):
  """Repetitions of k measures of A in which one source varies and all others are drawn once a repetition."""

  repetitions: int
  measures: int
  correlation: float
  correlation_se: float  # jackknife over repetitions
  worth: float  # independent measures that endlessly many of these are worth, 1/ρ; infinite where ρ is not above 0
  variance: float  # of one measure within its repetition


class Comparison(NamedTuple):
  """What pairs of runs of A and B say, and the detection rates of figure 6 for runs that vary so."""

  runs: int  # pairs
  decision: str
  probability: float
  interval: tuple[float, float]
  power: float  # of the decision, at P(A > B) = γ
  sd: tuple[float, float]  # of A and of B
  sd_se: tuple[float, float]
  variance_ratio: stats.VarianceRatio
  correlation: float  # of the runs of a pair
  difference: stats.MeanDifference
  average: stats.AverageComparison
  normal: tuple[float, float]  # p values
  biased: dict[str, Biased]
  rates: dict[str, stats.DetectionRates]  # simulated, over GRID: ideal, and biased as `init` and as `data`
  exact: dict[str, stats.OperatingCharacteristics]
  differences: Float[np.ndarray, " runs"]
  examples: int  # of the test set


def sd_se(accuracies: Float[np.ndarray, " runs"]) -> float:
  """Standard error of the standard deviation over runs, by the jackknife of the variance."""
  runs, sd = len(accuracies), accuracies.std(ddof=1)
  without_each = np.array([np.delete(accuracies, run).var(ddof=1) for run in range(runs)])
  return math.sqrt((runs - 1) * without_each.var()) / (2 * sd) if sd else math.nan


def compute(
  a: Float[np.ndarray, " runs"], b: Float[np.ndarray, " runs"],
  repeated: Mapping[str, Float[np.ndarray, "repetitions k"]], examples: int, key: jax.Array,
) -> Comparison:  # fmt: skip
  """The comparison of paired accuracies; `repeated` by what varies within a repetition."""
  runs = len(a)
  decision = stats.decide(a, b, gamma=GAMMA)
  sd = tuple(float(x.std(ddof=1)) for x in (a, b))
  estimators = {name: biased(x) for name, x in repeated.items()}
  # ρ must be one that a simulation can have.
  rho = {"ideal": 0.0} | {name: float(np.clip(e.correlation, 0, 0.99)) for name, e in estimators.items()}
  keys = jax.random.split(key, len(rho))
  return Comparison(
    runs=runs,
    decision=decision.decision,
    probability=float(decision.probability),
    interval=(float(decision.low), float(decision.high)),
    power=float(stats.paired_power(runs, GAMMA, GAMMA)),
    sd=sd,
    sd_se=(sd_se(a), sd_se(b)),
    variance_ratio=stats.variance_ratio(a, b),
    correlation=float(np.corrcoef(a, b)[0, 1]) if all(sd) else math.nan,
    difference=stats.mean_difference(a, b),
    average=stats.average_comparison(a, b),
    normal=tuple(float(stats.normality(x).p_value) for x in (a, b)),
    biased=estimators,
    rates={n: stats.detection_rates(GRID, r, PAIRS, GAMMA, key=k) for (n, r), k in zip(rho.items(), keys, strict=True)},
    exact={n: stats.operating_characteristics(GRID, r, PAIRS, GAMMA) for n, r in rho.items()},
    differences=a - b,
    examples=examples,
  )


def biased(accuracies: Float[np.ndarray, "repetitions k"]) -> Biased:
  """The correlation within repetitions, and what it costs."""
  repetitions, measures = accuracies.shape
  rho = float(stats.average_correlation(accuracies))
  left_out = [stats.average_correlation(np.delete(accuracies, r, axis=0)) for r in range(repetitions)]
  se = math.sqrt((repetitions - 1) * np.var(left_out))
  worth = float(stats.equivalent_ideal_size(np.inf, rho)) if rho > 0 else math.inf
  return Biased(repetitions, measures, rho, se, worth, float(accuracies.var(axis=1, ddof=1).mean()))


def table_of_runs(varied: str, runs: int) -> tuple[vs.Runs, int]:
  """Runs whose source `varied` is new in each and whose other seeds repeat, and how many repetitions these are."""
  repetitions = min(REPETITIONS, math.isqrt(runs))
  each = np.arange(runs, dtype=np.uint32)
  seeds = {source: each if source == varied else each % repetitions for source in vs.Runs.independent(1).seeds}
  return vs.Runs(seeds).bootstrap(), repetitions


def accuracies(setting: Setting, other: Setting, epochs: int, other_epochs: int) -> tuple:
  """What `compute` takes: pairs that diverged in neither, and repetitions in which none did."""
  everything = vs.Runs.independent(setting.runs).bootstrap()
  a, b = (s.train(e, everything, "-bootstrap") for s, e in ((setting, epochs), (other, other_epochs)))
  kept = ~(a.diverged.values | b.diverged.values)
  repeated = {}
  for varied in HELD:
    table, repetitions = table_of_runs(varied, setting.runs)
    results = setting.train(epochs, table, f"-bootstrap-{varied}-of-{repetitions}")
    whole = setting.runs // repetitions * repetitions
    rows, diverged = (x[:whole].reshape(-1, repetitions).T for x in (results.accuracy.values, results.diverged.values))
    repeated[varied] = rows[~diverged.any(axis=1)]
  return a.accuracy.values[kept], b.accuracy.values[kept], repeated, a.sizes["example"]


def plot(numbers: Mapping[int, Comparison], axes: np.ndarray) -> None:
  """By duration: rates of saying that A is better by what is true, and the differences of the pairs."""
  for (rates, pairs), (epochs, n) in zip(axes.reshape(-1, 2), numbers.items(), strict=True):
    _plot_rates(n, rates)
    rates.set_title(f"{PAIRS} pairs; ρ as found at {common.duration(epochs)}", fontsize="medium")
    _plot_differences(n, pairs)
    pairs.set_title(f"{common.duration(epochs)}: P(A > B) = {n.probability:.3f}", fontsize="medium")


def _plot_rates(n: Comparison, ax) -> None:
  ax.axvspan(0.5, GAMMA, color="0.93", zorder=0)
  criteria = (
    ("single_point", "one run each", plots.GREEN),
    ("average", "averages", plots.ORANGE),
    ("outperforming", "P(A > B)", plots.PURPLE),
  )
  every = slice(None, None, 5)
  shared = {varied for varied, b in n.biased.items() if b.correlation > 0}  # the others' curves are the ideal ones
  for name, label, color in criteria:
    for estimator, style in STYLES.items():
      if estimator != "ideal" and (name == "single_point" or estimator not in shared):
        continue  # one run has nothing to share
      ax.plot(
        GRID, getattr(n.exact[estimator], name), style, color=color, linewidth=1.3,
        label=label if estimator == "ideal" else None,
      )  # fmt: skip
      ax.plot(GRID[every], getattr(n.rates[estimator], name)[every], ".", color=color, markersize=4)
    places = [(p, y) for p, y in zip((0.5, GAMMA), paper_rates(name), strict=True) if y is not None]
    ax.plot(*zip(*places, strict=True), "D", color=color, markerfacecolor="white", markersize=6, zorder=3)
  ax.plot([], [], "D", color=plots.INK, markerfacecolor="white", label="the paper's")
  for varied, b in n.biased.items():
    style = STYLES[varied if varied in shared else "ideal"]
    ax.plot([], [], style, color=plots.INK, label=f"{varied} varies: ρ = {b.correlation:z.2f}")
  ax.set(xlabel="true P(A > B); grey: from 1/2 to γ", ylabel="rate of “A is better”", xlim=(0.4, 1), ylim=(-0.02, 1.4))
  ax.set_yticks(np.linspace(0, 1, 6))
  ax.legend(frameon=False, fontsize="small", loc="upper left", ncols=2)


def paper_rates(criterion: str) -> tuple[float | None, float]:
  """The paper's rates of "A is better" at P(A > B) of 1/2, where it gives a number, and of γ."""
  positives, negatives = PAPER["detection"][criterion]
  return None if isinstance(positives, str) else positives, 1 - negatives


def _plot_differences(n: Comparison, ax) -> None:
  ax.hist(100 * n.differences, bins=100 * plots.bin_edges([n.differences], n.examples), color=plots.SKY, alpha=0.6)
  clear = 1 / 1.35  # of the legend
  ax.axvline(0, ymax=clear, color=plots.INK, linewidth=0.8)
  low, high = 100 * n.difference.low, 100 * n.difference.high
  ax.axvspan(low, high, ymax=clear, color=plots.BLUE, alpha=0.4, label="mean, 95 % interval")
  ax.axvline(100 * n.average.threshold, ymax=clear, color=plots.ORANGE, linestyle="--", label="1.9952 σ")
  ax.set(xlabel="accuracy of A less that of B (percentage points)", ylabel="pairs")
  common.legend_above(ax)


def rows_of(epochs: int, n: Comparison) -> list[Row]:
  """The paper's values beside ours, of one duration."""
  e, runs = f"— / {epochs}", n.runs
  low, high = n.interval
  delta = n.average.threshold / PAPER["threshold"]
  half, at_gamma = (int(np.flatnonzero(p == GRID)[0]) for p in (0.5, GAMMA))
  table = [
    Row("P(A > B), 95 % interval", e, "—", "equation 9", f"{n.probability:.3f} [{low:.3f}, {high:.3f}]", runs),
    Row("decision", e, f"γ = {GAMMA}", "appendix C.6", n.decision, runs),
    Row("pairs for a power of 95 % at P(A > B) = γ", e, str(PAPER["sample_size"]), "appendix C.3",
        f"29 have {float(stats.paired_power(29)):.3f}, {runs} have {n.power:.3f}", "exact"),
    Row("mean A less mean B", e, "—", "section 4.1", _interval(n.difference), runs),
    Row("... in standard deviations of a run", e, f"better from {PAPER['threshold']}", "section 4.2",
        f"{float(n.difference.difference) / delta:.2f}: {'' if n.average.better else 'not '}better", runs),
    Row("sd of A", e, "—", "—", percent(n.sd[0], n.sd_se[0]), runs),
    Row("sd of B", e, "—", "—", percent(n.sd[1], n.sd_se[1]), runs),
    Row("variance of A over that of B", e, "—", "—",
        f"{n.variance_ratio.ratio:.2f} [{n.variance_ratio.low:.2f}, {n.variance_ratio.high:.2f}]", runs),
    Row("p of normality, A and B", e, PAPER["normal"], "figure G.3",
        " and ".join(show(p, None, "p") for p in n.normal), runs),
  ]  # fmt: skip
  for name, b in n.biased.items():
    of = f"{b.repetitions} × {b.measures}"
    table += [
      Row(f"ρ, fixing {HELD[name]}", e, "—", "equation 7", number(b.correlation, b.correlation_se), of),
      Row(f"independent measures it is worth, fixing {HELD[name]}", e, PAPER["equivalent"][name], "section 3.3",
          f"{b.worth:.3g}" if math.isfinite(b.worth) else "—", of),
    ]  # fmt: skip
  init, data = n.biased["init"], n.biased["data"]
  relative = init.variance / data.variance if data.variance else math.nan
  freedom = [b.repetitions * (b.measures - 1) for b in (init, data)]
  relative_se = relative * math.sqrt(sum(2 / f for f in freedom)) if all(freedom) else math.nan
  table.append(Row("variance of initialisation over that of the training set", e, PAPER["init_over_data_variance"],
                   "figure 1", number(relative, relative_se), f"{init.repetitions} × {init.measures}"))  # fmt: skip
  for name, (positives, negatives) in PAPER["detection"].items():
    label = {"single_point": "one run each", "average": f"averages of {PAIRS}", "outperforming": f"P(A > B) of {PAIRS}"}
    for what, paper, place, sign in (
      ("false positives at P = 0.5", positives, half, 1),
      (f"false negatives at P = {GAMMA}", negatives, at_gamma, -1),
    ):
      ours = []
      for estimator in ("ideal", "init")[: 1 if name == "single_point" else 2]:
        rate, se = (float(getattr(n.rates[estimator], name + end)[place]) for end in ("", "_se"))
        ours.append(percent(rate if sign > 0 else 1 - rate, se))
      table.append(
        Row(f"{what}, {label[name]}", e, common.published(paper), "figure 6", ", biased ".join(ours), "simulated")
      )
  return table


def _interval(difference: stats.MeanDifference) -> str:
  value, low, high = (100 * float(x) for x in difference)
  return f"{value:.3f} [{low:.3f}, {high:.3f}] %"


def main(argv: Sequence[str] | None = None) -> None:
  with mistakes():
    setting = common.settings(__file__, __doc__, argv, DEFAULTS, quick=(1,), flags=Flags)
    changes = overrides(setting.flags.against) or {"lr": setting.recipe.lr / 2}
    other = dataclasses.replace(setting, recipe=setting.recipe.replace(**changes))
    if other.recipe == setting.recipe and "epochs" not in changes:
      raise Mistake(f"--against {' '.join(setting.flags.against)} changes nothing of {setting.recipe.name}")
    numbers = {
      e: compute(*accuracies(setting, other, e, changes.get("epochs", e)), jax.random.key(0)) for e in setting.epochs
    }
    by_duration = (rows_of(e, n) for e, n in numbers.items())
    table = [row for quantity in zip(*by_duration, strict=True) for row in quantity]
    said = " ".join(f"{field}={value}" for field, value in changes.items())
    notes = (
      f"A is {setting.recipe.name} on {setting.recipe.dataset}, B the same with {said}. Neither is one of the paper's "
      "five tasks, and hyperparameters are not searched: values are not expected to agree, only the pattern is "
      f"comparable: {PATTERN}. Simulated are 10,000 comparisons each; the biased ones have the ρ found here, fixing "
      f"{HELD['init']}. The paper's rates are of whole regions, ours of one point, and its 30 % of false negatives of "
      "P(A > B) are not what its own rule gives."
    )
    quoted = ("independent measures", "variance of init", "false positives at P = 0.5, averages")
    papers = PAPER | {"against": changes}
    common.write(setting, numbers, papers, table, notes, plot, panels=2 * len(numbers), quoted=quoted)


if __name__ == "__main__":
  main()
