"""Compare two recipes: P(A > B) of their runs (Bouthillier et al. 2021, appendix C)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vmapseeds import stats
from vmapseeds.mistakes import Mistake, number, one_of
from vmapseeds.reports import groups, pages, plots
from vmapseeds.reports.groups import Where, format_values
from vmapseeds.results.formatting import (
  ACCURACY,
  Quantity,
  capitalized,
  finite_or_none,
  run_count,
  scale_and_sign,
  show,
  show_interval,
  show_p,
)
from vmapseeds.results.opening import (
  COUNTS,
  loaded,
  open_results,
  resolve_test_set,
  with_role,
)
from vmapseeds.results.statistics import quantity_of, roles, values_of_runs
from vmapseeds.store.files import Folder, place


class Measure(NamedTuple):
  """What is compared: a number of each run."""

  of: Quantity = ACCURACY
  noun: str = "accuracy"
  plural: str = "accuracies"
  mean: str = "mean accuracy"
  higher_is_better: bool = True

  def better(self, values: np.ndarray) -> np.ndarray:
    """Return values of which higher ones are better."""
    return values if self.higher_is_better else -values


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
  output: str | None = None,
  out: Folder | None = None,
  console: Console | None = None,
) -> stats.Decision:
  """Print and return P(A > B) of accuracies, mean losses or scores, its 95 % interval
  and the decision. Print what else the runs show.

  A > B means that A is better: its loss, or a score of which lower is better, is lower.
  Diverged runs are left out. `compare.html`, `compare.json` and a figure are written
  into the folder `report` of A's results, in its subfolder `against_<B>`. A test set
  other than the recipe's first, a chosen epoch, `where` and an output other than the
  first add a subfolder each above that, such as `report/lr=0.02/against_lr=0.05`.

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
    output: which output of role class, loss or score; by default the first of A.
    out: folder for the page instead.
    console: where to print.

  Raises:
    Mistake: a folder has no finished runs, the test examples differ, columns, values or
      the output are unknown, swept values would be pooled, gamma is outside (1/2, 1],
      paired=True with unequal numbers of runs, or the page cannot be written.
  """
  gamma = number("gamma", gamma)
  if paired not in (None, True, False):
    raise Mistake(f"paired is {paired!r:.100}: give True, False or None")
  if b is None and not against:
    raise Mistake(
      "one results folder, and nothing to compare it with: give a second one, or e.g. "
      "--against lr=0.05"
    )
  sides = ((a, where, "--where"), (a if b is None else b, against, "--against"))
  opened = [
    open_results(folder, test_set, epoch).drop_dims("epoch", errors="ignore")
    for folder, *_ in sides
  ]
  test_set = resolve_test_set(opened[0].attrs.get("test_sets"), test_set)
  outputs, others = map(roles, opened)
  name = next(iter(outputs)) if output is None else output
  one_of("output", name, outputs)
  one_of("output", name, others)
  measure = _measure(name, outputs[name])
  results = [
    _load(r, name, outputs, *side) for r, side in zip(opened, sides, strict=True)
  ]
  after = "" if epoch is None else f"epoch={epoch}"
  names = tuple(
    pages.join_names(str(of), format_values(values), after) for of, values, _ in sides
  )
  labels = outputs[name].get("labels", "")
  tested = [
    r.get("original_labels", r.get(labels, np.shape(of.get(name, 0))[1:]))
    for r, of in zip(results, opened, strict=True)
  ]
  if not np.array_equal(tested[0], tested[1]):
    raise Mistake(
      f"{names[0]} and {names[1]} were tested on different examples: compare results of "
      "one test set"
    )
  values, matching = _values(results, name, names, paired)
  ours, theirs = map(measure.better, values)
  key = None if matching else jax.random.key(0)
  decision = stats.decide(ours, theirs, gamma=gamma, paired=bool(matching), key=key)

  rows = [
    ("results", *names),
    ("runs compared", *(f"{len(x)}" for x in values)),
    (
      measure.mean,
      *(
        show(finite_or_none(found.mean), finite_or_none(found.se), measure.of.unit)
        for found in map(stats.ideal_estimate, values)
      ),
    ),
    ("standard deviation", *(_sd(x, measure) for x in values)),
  ]
  table = Table("", "A", "B")
  for row in rows:
    table.add_row(*map(escape, row))
  console = console or Console()
  console.print(table)
  said = list(sentences(values[0], values[1], decision, gamma, matching, measure))
  for sentence in said:
    # Only the terminal wraps sentences, so that output can be searched and piped.
    console.print(sentence, soft_wrap=True, highlight=False)
  if out is None:
    of_b = "" if b is None else pages.path_parts(b)[-1]
    of_b = pages.join_names(of_b, format_values(against))
    out = pages.below(
      pages.of_test_set(place(a) / "report", results[0], test_set),
      format_values(where),
      "" if name == next(iter(outputs)) else name,
      f"against_{of_b}",
    )
  shown = {f"{of}, {run_count(len(x))}": x for of, x in zip("AB", values, strict=True)}
  title, is_class = measure.of.name, measure.of is ACCURACY
  examples = np.size(tested[0]) if is_class else None
  page = pages.write_page(
    place(out),
    "compare",
    "compare",
    {
      "accuracies": pages.Figure(
        f"{capitalized(title)} over runs",
        f"The {measure.plural} that are compared.",
        lambda ax: plots.accuracy_histograms(
          shown, ax, examples=examples, of=measure.of
        ),
      )
    },
    {
      "a": _record(values[0], a, where, is_class),
      "b": _record(values[1], sides[1][0], against, is_class),
      "output": name,
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
    about=title + f", examples of {test_set}" * is_class,
  )
  console.print(page, highlight=False, markup=False, soft_wrap=True)
  return decision


def _measure(name: str, about: Mapping[str, Any]) -> Measure:
  of, is_loss = quantity_of(name, about), about["role"] == "loss"
  if about["role"] == "class":
    return Measure()
  higher = not is_loss and about.get("higher_is_better", True)
  return Measure(of, of.name, f"values of {of.name}", f"mean {name}", higher)


def sentences(
  a: Float[np.ndarray, " runs_a"],
  b: Float[np.ndarray, " runs_b"],
  decision: stats.Decision,
  gamma: float,
  matching: str,
  measure: Measure,
) -> Iterator[str]:
  """Yield sentences about what the numbers say of A and B.

  Args:
    a, b: (runs_a,) and (runs_b,), numbers of A and of B.
    decision: what `stats.decide` returns for them.
    gamma: P(A > B) from which A is meaningfully better.
    matching: what pairs of runs have in common; empty if all are compared with all.
    measure: what the numbers are.
  """
  paired = bool(matching)
  pairs = f"pairs of runs with {matching}" if paired else "all pairs of runs"
  yield (
    f"P(A > B) = {float(decision.probability):.3f}, 95 % interval "
    f"{float(decision.low):.3f} to {float(decision.high):.3f}, over {pairs}"
  )
  yield f"{decision.decision} (γ = {gamma}; Bouthillier et al. 2021, appendix C.6)"
  if not measure.higher_is_better:
    yield f"A > B means that A is better: its {measure.noun} is lower."
  if decision.high < 0.5:
    yield "B is better than A: swap A and B for the decision on that."
  yield _difference(a, b, paired, measure)
  if min(len(a), len(b)) > 1:
    yield from _spread(a, b, paired, measure)
  yield from _warnings(a, b, decision, gamma, paired, measure)


def _difference(a: np.ndarray, b: np.ndarray, paired: bool, measure: Measure) -> str:
  found = stats.mean_difference(a, b, paired)
  sign = unit = scale_and_sign(measure.of.unit)[1]
  difference, low, high = (f"{float(x):+.4g}" for x in found)
  if measure.of is ACCURACY:
    sign, unit = "", " percentage points"
    difference, low, high = (f"{100 * float(x):+.3f}" for x in found)
  said = f"{capitalized(measure.mean)} of A less that of B: {difference}{unit}"
  if np.isnan(found.low):
    return f"{said}; an interval needs two runs of each."
  test = "Student's t of the differences" if paired else "Welch's t"
  return f"{said}, 95 % interval {low} to {high}{sign} ({test})."


def _spread(
  a: np.ndarray, b: np.ndarray, paired: bool, measure: Measure
) -> Iterator[str]:
  average = stats.average_comparison(measure.better(a), measure.better(b))
  if average.threshold > 0:
    lead = "That is" if measure.higher_is_better else "A is better by"
    yield (
      f"{lead} {1.9952 * average.difference / average.threshold:.2f} standard deviations "
      "of a run: by the average comparison, which asks for 1.9952 (as much as P(A > B) = "
      f"0.921), A is {'' if average.better else 'not '}better."
    )
  of_a, of_b = (_sd(x, measure, interval=True) for x in (a, b))
  yield f"Standard deviation of a run: A {of_a}, B {of_b}."
  ratio = stats.variance_ratio(a, b, paired)
  if np.isfinite(ratio.high):
    law = "jackknife of pairs" if paired else "jackknife"
    yield (
      f"Variance of A over that of B: {ratio.ratio:.2f}, 95 % interval {ratio.low:.2f} to "
      f"{ratio.high:.2f} ({law})."
    )
  p = [float(stats.normality(x).p_value) for x in (a, b)]
  if not np.isnan(p).any():
    verdict = f"no sign that {measure.plural} are not normal"
    if of := " and ".join(side for side, x in zip("AB", p, strict=True) if x < 0.05):
      verdict = (
        f"the {measure.plural} of {of} are not normal, which the intervals of variances "
        "allow for"
      )
    yield f"Shapiro-Wilk: p {show_p(p[0])} for A and p {show_p(p[1])} for B; {verdict}."


def _sd(values: np.ndarray, measure: Measure, interval: bool = False) -> str:
  if len(values) < 2:
    return "needs two runs"
  unit = measure.of.unit
  text = show(values.std(ddof=1), None, unit)
  low, high = map(finite_or_none, np.sqrt(stats.variance_interval(values)))
  if measure.of is ACCURACY and high:
    high = min(high, 0.5)  # no accuracies vary more
  shown = f" (95 % interval {show_interval(low, high, unit)})"
  return text + shown * (interval and low != high)


def _warnings(
  a: np.ndarray,
  b: np.ndarray,
  decision: stats.Decision,
  gamma: float,
  paired: bool,
  measure: Measure,
) -> Iterator[str]:
  runs = min(len(a), len(b))
  unit = "pairs" if paired else "runs each"
  size = stats.paired_sample_size if paired else stats.noether_sample_size
  needed = int(size(gamma))
  power = (
    f"{100 * float(stats.paired_power(runs, gamma, gamma)):.0f} %"
    if paired and runs > 1
    else ""
  )
  if runs < needed:
    here = f"; the {runs} here have {power}" if power else ""
    yield (
      f"Few runs: {needed} {unit} find P(A > B) = {gamma} with about 95 % power{here}."
    )
  elif paired:
    yield f"{runs} pairs find P(A > B) = {gamma} with {power} power."
  if runs == 1:
    yield (
      "With one run nothing is known of the variance: the interval of P(A > B) means "
      "nothing."
    )
  elif decision.low == decision.high and np.ptp(np.r_[a, b]) > 0:
    yield (
      "Every resample gives the same P(A > B): its interval has no width, which few runs "
      "alone can bring about."
    )
  ends = (np.searchsorted(np.sort(b), a, side) for side in ("right", "left"))
  ties = (a == b).sum() if paired else np.subtract(*ends).sum()
  compared = len(a) if paired else len(a) * len(b)
  if ties == compared:
    yield f"All {measure.plural} compared are equal: nothing tells A from B."
  elif ties > 0.1 * compared:
    yield (
      f"{100 * ties / compared:.0f} % of the comparisons are ties, which count half; "
      "power is that without ties."
    )
  for name, x in (("A", a), ("B", b)):
    if len(x) > 1 and np.ptp(x) == 0 and ties < compared:
      yield (
        f"All runs of {name} have the same {measure.noun}: were they given the same seeds?"
      )


def _load(
  results: xr.Dataset,
  name: str,
  outputs: Mapping[str, Any],
  folder: Folder,
  where: Where,
  flag: str,
) -> xr.Dataset:
  """Return the selected runs with the output's number of each run in its place, and
  without predictions, logits and counts.
  """
  unread = {*with_role(results, "logits"), *COUNTS}
  if "accuracy" in results.variables and outputs[name]["role"] == "class":
    unread.add(name)
  results = results.assign_attrs(roles=outputs).drop_vars(unread, errors="ignore")
  results = loaded(results, folder)
  try:
    results = results.assign({name: ("run", values_of_runs(results, name))})
    results = groups.select_runs(results, where)
    groups.check_not_pooled(results, where, flag)
  except Mistake as mistake:
    raise Mistake(f"{folder}: {mistake}") from None
  return results


def _record(
  values: np.ndarray, folder: Folder, where: Where, is_class: bool
) -> dict[str, Any]:
  found, of = stats.ideal_estimate(values), "_accuracy" * is_class
  return {
    "folder": str(folder),
    "where": {name: np.atleast_1d(x).tolist() for name, x in (where or {}).items()},
    "runs": len(values),
    f"mean{of}": float(found.mean),
    f"sd{of}": finite_or_none(found.sd),
  }


def _values(
  results: Sequence[xr.Dataset],
  name: str,
  folders: Sequence[str],
  paired: bool | None,
) -> tuple[list[np.ndarray], str]:
  """Return the values of the runs that did not diverge, and what paired runs have in
  common (empty if they are not paired).
  """
  kept = [np.isfinite(r[name].values) for r in results]
  if paired:
    numbers = [len(alive) for alive in kept]
    if numbers[0] != numbers[1]:
      raise Mistake(
        f"{folders[0]} has {numbers[0]} finished runs and {folders[1]} {numbers[1]}: to "
        "pair them row by row, give as many of each"
      )
    kept = [kept[0] & kept[1]] * 2
  for folder, alive in zip(folders, kept, strict=True):
    if not alive.any():
      which = "runs that did not diverge"
      if paired:
        which = f"pairs of which neither diverged, with {folders[1]}"
      raise Mistake(f"{folder} has no finished {which}: train some first")
  a, b = (
    r.isel(run=np.flatnonzero(alive)) for r, alive in zip(results, kept, strict=True)
  )
  values = [a[name].values, b[name].values]
  if paired is not None:
    return values, "rows of the same number" if paired else ""
  names, others = ([*groups.seed_columns(r)] for r in (a, b))
  if names and names == others:
    a, b = (r[[name, *names]].to_dataframe() for r in (a, b))
    # If they repeat (a sweep), they do not say which runs belong together.
    repeated = a.duplicated(names).any() or b.duplicated(names).any()
    # With few common seeds, such as one run where each side varies another source,
    # pairs would leave out most runs.
    if not repeated and 2 * len(both := a.merge(b, on=names)) > min(len(a), len(b)):
      return [both[f"{name}_{side}"].values for side in "xy"], "the same seeds"
  return values, ""
