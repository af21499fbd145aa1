"""Whether one recipe outperforms another: P(A > B) of their runs (Bouthillier et al.
2021, appendix C).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vmapseeds import stats
from vmapseeds.mistakes import Mistake, number
from vmapseeds.reports import groups, pages, plots
from vmapseeds.reports.groups import Where, run_count
from vmapseeds.reports.summary import p_text, show, show_interval
from vmapseeds.results.opening import COUNTS, loaded, open_results
from vmapseeds.stats.intervals import sd_interval
from vmapseeds.store.files import Folder, place


def compare(
  a: Folder,
  b: Folder | None = None,
  *,
  where: Where = None,
  against: Where = None,
  gamma: float = 0.75,
  test_set: str = "test",
  epoch: int | None = None,
  paired: bool | None = None,
  out: Folder | None = None,
  console: Console | None = None,
) -> stats.Decision:
  """Prints and returns P(A > B) of accuracies, its 95 % interval and the decision.
  Prints what else the runs show.

  Diverged runs are left out. `compare.html`, `compare.json` and a figure are written
  into the folder `report` of A's results, in its subfolder `against_<B>`. A test set
  other than the recipe's first, a chosen epoch and `where` add a subfolder each above
  that, such as `report/lr=0.02/against_lr=0.05`.

  Args:
    a: results folder of A.
    b: results folder of B; that of A by default.
    where: column -> value or values. Takes only the runs of A that have them. Swept
      columns must be named.
    against: likewise for B.
    gamma: P(A > B) from which a difference is meaningful.
    test_set: which test set.
    epoch: after which epoch, for runs trained with `evaluate_every`; None for the end.
    paired: None pairs the runs that have the same seeds on both sides, if they are more
      than half of the smaller side. Otherwise (other sources vary, or runs were
      imported and have no seeds) it compares all against all. True pairs the finished
      runs row by row, False compares all against all.
    out: folder for the page instead.
    console: where to print.

  Raises:
    Mistake: a folder has no finished runs, the test examples differ, columns or values
      are unknown, swept values would be pooled, gamma is outside (1/2, 1], paired=True
      with unequal numbers of runs, or the page cannot be written.
  """
  gamma = number("gamma", gamma)
  if paired not in (None, True, False):
    raise Mistake(f"paired is {paired!r:.100}: give True, False or None")
  if b is None and not against:
    raise Mistake(
      "one results folder, and nothing to compare it with: give a second one, or e.g. --against lr=0.05"
    )
  sides = ((a, where, "--where"), (a if b is None else b, against, "--against"))
  results = [
    _loaded(folder, test_set, epoch, values, flag) for folder, values, flag in sides
  ]
  after = "" if epoch is None else f"epoch={epoch}"
  names = tuple(
    ", ".join(filter(None, [str(of), groups.named(values or {}), after]))
    for of, values, _ in sides
  )
  if not np.array_equal(*(r.get("original_labels", r.labels).values for r in results)):
    raise Mistake(
      f"{names[0]} and {names[1]} were tested on different examples: compare results of one test set"
    )
  accuracies, matching = _accuracies(results, names, paired)
  ours, theirs = accuracies
  key = None if matching else jax.random.key(0)
  decision = stats.decide(ours, theirs, gamma=gamma, paired=bool(matching), key=key)

  rows = [
    ("results", *names),
    ("runs compared", *(f"{len(x)}" for x in accuracies)),
    ("mean accuracy", *(show(*_mean(x), "fraction") for x in accuracies)),
    (
      "standard deviation",
      *(_sd(x) if len(x) > 1 else "needs two runs" for x in accuracies),
    ),
  ]
  table = Table("", "A", "B")
  for row in rows:
    table.add_row(*map(escape, row))
  console = console or Console()
  console.print(table)
  said = list(sentences(ours, theirs, decision, gamma, matching))
  for sentence in said:
    # Only the terminal wraps sentences, so that output can be searched and piped.
    console.print(sentence, soft_wrap=True, highlight=False)
  if out is None:
    of_b = ", ".join(
      filter(
        None,
        ["" if b is None else pages.path_parts(b)[-1], groups.named(against or {})],
      )
    )
    other_set = "" if test_set == results[0].attrs["test_sets"][0] else test_set
    out = pages.below(
      place(a) / "report",
      other_set,
      after,
      groups.named(where or {}),
      f"against_{of_b}",
    )
  page = pages.write_page(
    place(out),
    "compare",
    "compare",
    {"accuracies": _figure(accuracies, results[0].sizes["example"])},
    {
      "a": _record(accuracies[0], a, where),
      "b": _record(accuracies[1], sides[1][0], against),
      "test_set": test_set,
      "epoch": results[0].attrs.get("epoch"),
      "gamma": gamma,
      "matching": matching or None,
      "probability": float(decision.probability),
      "low": float(decision.low),
      "high": float(decision.high),
      "decision": decision.decision,
      "sentences": said,
    },
    title=f"{names[0]} against {names[1]}",
    rows=rows,
    lead=said[0],
    sentences=said[1:],
    warnings=[],
    test_set=test_set,
  )
  console.print(page, highlight=False, markup=False, soft_wrap=True)
  return decision


def sentences(
  a: Float[np.ndarray, " runs_a"],
  b: Float[np.ndarray, " runs_b"],
  decision: stats.Decision,
  gamma: float,
  matching: str,
) -> Iterator[str]:
  """Yields sentences about what the accuracies say of A and B.

  Args:
    a, b: (runs_a,) and (runs_b,), accuracies of A and of B.
    decision: what `stats.decide` returns for them.
    gamma: P(A > B) from which A is meaningfully better.
    matching: what pairs of runs have in common; empty if all are compared with all.
  """
  paired = bool(matching)
  yield (
    f"P(A > B) = {float(decision.probability):.3f}, 95 % interval {float(decision.low):.3f} to "
    f"{float(decision.high):.3f}, over {f'pairs of runs with {matching}' if paired else 'all pairs of runs'}"
  )
  yield f"{decision.decision} (γ = {gamma}; Bouthillier et al. 2021, appendix C.6)"
  if decision.high < 0.5:
    yield "B outperforms A: give them the other way round for a decision on that."
  yield _difference(a, b, paired)
  if min(len(a), len(b)) > 1:
    yield from _spread(a, b, paired)
  yield from _warnings(a, b, decision, gamma, paired)


def _difference(a: np.ndarray, b: np.ndarray, paired: bool) -> str:
  mean = stats.mean_difference(a, b, paired)
  said = f"Mean accuracy of A less that of B: {_points(mean.difference)}"
  if np.isnan(mean.low):
    return f"{said} percentage points; an interval needs two runs of each."
  test = "Student's t of the differences" if paired else "Welch's t"
  return f"{said} percentage points, 95 % interval {_points(mean.low)} to {_points(mean.high)} ({test})."


def _spread(a: np.ndarray, b: np.ndarray, paired: bool) -> Iterator[str]:
  average = stats.average_comparison(a, b)
  if average.threshold > 0:
    yield (
      f"That is {1.9952 * average.difference / average.threshold:.2f} standard deviations of a run: by the average "
      f"comparison, which asks for 1.9952 (as much as P(A > B) = 0.921), A is {'' if average.better else 'not '}better."
    )
  yield f"Standard deviation of a run: A {_deviation(a)}, B {_deviation(b)}."
  ratio = stats.variance_ratio(a, b, paired)
  if np.isfinite(ratio.high):
    law = "jackknife of pairs" if paired else "jackknife"
    yield f"Variance of A over that of B: {ratio.ratio:.2f}, 95 % interval {ratio.low:.2f} to {ratio.high:.2f} ({law})."
  p_a, p_b = (float(stats.normality(x).p_value) for x in (a, b))
  if not np.isnan([p_a, p_b]).any():
    verdict = "no sign that accuracies are not normal"
    if not_normal := " and ".join(
      name for name, p in (("A", p_a), ("B", p_b)) if p < 0.05
    ):
      verdict = f"the accuracies of {not_normal} are not normal, which the intervals of variances allow for"
    yield f"Shapiro-Wilk: p {p_text(p_a)} for A and p {p_text(p_b)} for B; {verdict}."


def _deviation(accuracy: np.ndarray) -> str:
  low, high = map(float, sd_interval(stats.variance_interval(accuracy)))
  return _sd(accuracy) + (
    f" (95 % interval {show_interval(low, high, 'fraction')})" if low < high else ""
  )


def _sd(accuracy: np.ndarray) -> str:
  return show(accuracy.std(ddof=1), None, "fraction")


def _mean(accuracy: np.ndarray) -> tuple[float, float | None]:
  """The mean and its standard error, None for one run."""
  return accuracy.mean(), accuracy.std(ddof=1) / len(accuracy) ** 0.5 if len(
    accuracy
  ) > 1 else None


def _warnings(
  a: np.ndarray, b: np.ndarray, decision: stats.Decision, gamma: float, paired: bool
) -> Iterator[str]:
  runs = min(len(a), len(b))
  unit = "pairs" if paired else "runs each"
  needed = int(
    stats.paired_sample_size(gamma) if paired else stats.noether_sample_size(gamma)
  )
  power = (
    f"{100 * float(stats.paired_power(runs, gamma, gamma)):.0f} %"
    if paired and runs > 1
    else ""
  )
  if runs < needed:
    here = f"; the {runs} here have {power}" if power else ""
    yield f"Few runs: {needed} {unit} find P(A > B) = {gamma} with about 95 % power{here}."
  elif paired:
    yield f"{runs} pairs find P(A > B) = {gamma} with {power} power."
  if runs == 1:
    yield "With one run nothing is known of the variance: the interval of P(A > B) means nothing."
  elif decision.low == decision.high and np.ptp(np.r_[a, b]) > 0:
    yield "Every resample gives the same P(A > B): its interval has no width, which few runs alone can bring about."
  ends = (np.searchsorted(np.sort(b), a, side) for side in ("right", "left"))
  ties = (a == b).sum() if paired else np.subtract(*ends).sum()
  compared = len(a) if paired else len(a) * len(b)
  if ties == compared:
    yield "All accuracies compared are equal: nothing tells A from B."
  elif ties > 0.1 * compared:
    yield f"{100 * ties / compared:.0f} % of the comparisons are ties, which count half; power is that without ties."
  for name, x in (("A", a), ("B", b)):
    if len(x) > 1 and np.ptp(x) == 0 and ties < compared:
      yield f"All runs of {name} have the same accuracy: were they given the same seeds?"


def _loaded(
  folder: Folder, test_set: str, epoch: int | None, where: Where, flag: str
) -> xr.Dataset:
  """The chosen runs of a folder, without predictions, logits, counts and results of
  single epochs.
  """
  results = open_results(folder, test_set, epoch).drop_dims("epoch", errors="ignore")
  results = loaded(
    results.drop_vars(["predictions", "logits", *COUNTS], errors="ignore"), folder
  )
  try:
    results = groups.chosen(results, where)
    groups.check_not_pooled(results, where, flag)
  except Mistake as mistake:
    raise Mistake(f"{folder}: {mistake}") from None
  return results


def _figure(accuracies: Sequence[np.ndarray], examples: int) -> pages.Figure:
  sides = {
    f"{name}, {run_count(len(x))}": x for name, x in zip("AB", accuracies, strict=True)
  }
  return pages.Figure(
    "Test accuracy over runs",
    "The accuracies that are compared.",
    lambda ax: plots.accuracy_histograms(sides, ax, examples=examples),
  )


def _record(accuracy: np.ndarray, folder: Folder, where: Where) -> dict[str, Any]:
  sd = float(accuracy.std(ddof=1)) if len(accuracy) > 1 else None
  where = {
    name: np.atleast_1d(values).tolist() for name, values in (where or {}).items()
  }
  return {
    "folder": str(folder),
    "where": where,
    "runs": len(accuracy),
    "mean_accuracy": float(accuracy.mean()),
    "sd_accuracy": sd,
  }


def _accuracies(
  results: Sequence[xr.Dataset], folders: Sequence[str], paired: bool | None
) -> tuple[list[np.ndarray], str]:
  """Accuracies of the runs that did not diverge, and what paired runs have in common
  (empty if they are not paired).
  """
  kept = [~r.diverged.values for r in results]
  if paired:
    numbers = [len(alive) for alive in kept]
    if numbers[0] != numbers[1]:
      raise Mistake(
        f"{folders[0]} has {numbers[0]} finished runs and {folders[1]} {numbers[1]}: to pair them row by row, give as "
        "many of each"
      )
    kept = [kept[0] & kept[1]] * 2
  for folder, alive in zip(folders, kept, strict=True):
    if not alive.any():
      which = (
        f"pairs of which neither diverged, with {folders[1]}"
        if paired
        else "runs that did not diverge"
      )
      raise Mistake(f"{folder} has no finished {which}: train some first")
  a, b = (
    r.isel(run=np.flatnonzero(alive)) for r, alive in zip(results, kept, strict=True)
  )
  accuracies = [a.accuracy.values, b.accuracy.values]
  if paired is not None:
    return accuracies, "rows of the same number" if paired else ""
  names, others = ([*groups.drawn(r)] for r in (a, b))
  if names and names == others:
    a, b = (r[["accuracy", *names]].to_dataframe() for r in (a, b))
    # If they repeat (a sweep), they do not say which runs belong together.
    repeated = a.duplicated(names).any() or b.duplicated(names).any()
    # With few common seeds, such as one run where each side varies another source,
    # pairs would leave out most runs.
    if not repeated and 2 * len(both := a.merge(b, on=names)) > min(len(a), len(b)):
      return [both.accuracy_x.values, both.accuracy_y.values], "the same seeds"
  return accuracies, ""


def _points(fraction: float | np.ndarray) -> str:
  return f"{100 * float(fraction):+.3f}"
