"""Compare two recipes: P(A > B) of their runs (Bouthillier et al. 2021, appendix C)."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from rich.console import Console

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
)
from vmapseeds.results.opening import (
  COUNTS,
  loaded,
  open_results,
  resolve_test_set,
  with_role,
)
from vmapseeds.results.statistics import (
  largest_variance,
  quantity_of,
  roles,
  standard_deviation,
  values_of_runs,
)
from vmapseeds.store.files import Folder, place


class Side(NamedTuple):
  """Runs of A or of B, and what is compared of them."""

  folder: Folder
  where: Where
  name: str
  first_output: str
  output: str
  about: Mapping[str, Any]
  results: xr.Dataset  # the output's number of each run under its name
  tested: Any  # labels, or how many examples


class Comparison(NamedTuple):
  """What is compared, and what was decided.

  Attributes:
    a, b: (runs_a,) and (runs_b,), numbers of A and of B.
    decision: what `stats.decide` returns for them.
    gamma: P(A > B) from which A is meaningfully better.
    matching: what pairs of runs have in common; empty if all are compared with all.
    of: what the numbers are.
    higher_is_better: whether A with higher numbers is better.
  """

  a: np.ndarray
  b: np.ndarray
  decision: stats.Decision
  gamma: float
  matching: str = ""
  of: Quantity = ACCURACY
  higher_is_better: bool = True

  @property
  def paired(self) -> bool:
    return bool(self.matching)

  @property
  def sides(self) -> dict[str, np.ndarray]:
    return {"A": self.a, "B": self.b}


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
  ours = _side(a, where, "--where", test_set, epoch, output)
  test_set = resolve_test_set(ours.results.attrs.get("test_sets"), test_set)
  other = a if b is None else b
  theirs = _side(other, against, "--against", test_set, epoch, ours.output)
  sides, about = (ours, theirs), ours.about
  of = quantity_of(ours.output, about)
  if not np.array_equal(ours.tested, theirs.tested):
    raise Mistake(
      f"{ours.name} and {theirs.name} were tested on different examples: compare results "
      "of one test set"
    )
  values, matching = _values(ours, theirs, paired)
  higher = about["role"] != "loss" and about.get("higher_is_better", True)
  better = values if higher else [-x for x in values]
  key = None if matching else jax.random.key(0)
  decision = stats.decide(
    better[0], better[1], gamma=gamma, paired=bool(matching), key=key
  )
  compared = Comparison(values[0], values[1], decision, gamma, matching, of, higher)
  found = [stats.ideal_estimate(x) for x in values]
  rows = [
    ("results", ours.name, theirs.name),
    ("runs compared", *(str(len(x)) for x in values)),
    (of.name, *(show(x.mean, x.se, of.unit) for x in found)),
    ("sd (95 % interval)", *_sds(compared)),
  ]
  table = pages.Table("", ("", "A", "B"), rows)
  console = console or Console()
  console.print(table.for_terminal())
  said = list(sentences(compared))
  for sentence in said:
    # Only the terminal wraps sentences, so that output can be searched and piped.
    console.print(sentence, soft_wrap=True, highlight=False)
  if out is None:
    of_b = "" if b is None else pages.path_parts(b)[-1]
    out = pages.below(
      pages.of_test_set(place(a) / "report", ours.results, test_set),
      format_values(where),
      "" if ours.output == ours.first_output else ours.output,
      f"against_{pages.join_names(of_b, format_values(against))}",
    )
  examples = np.size(ours.tested) if of is ACCURACY else None

  def draw(ax: Axes) -> Axes:
    edges = plots.bin_edges(values, examples, of)
    for side, x in compared.sides.items():
      mean = show(x.mean(), None, of.unit)
      label = f"{side}, {run_count(len(x))}: mean {mean}"
      plots.accuracy_histogram(x, ax, edges=edges, label=label, of=of)
    return ax

  figure = pages.Figure(
    f"{capitalized(of.name)} over runs", "The runs that are compared.", draw
  )
  mean_and_sd = [
    f"{what}_accuracy" * (of is ACCURACY) or what for what in ("mean", "sd")
  ]
  record = {
    side: {
      "folder": str(of_side.folder),
      "where": {c: np.atleast_1d(v).tolist() for c, v in (of_side.where or {}).items()},
      "runs": len(x),
      **dict(zip(mean_and_sd, map(finite_or_none, (e.mean, e.sd)), strict=True)),
    }
    for side, of_side, x, e in zip("ab", sides, values, found, strict=True)
  }
  page = pages.write_page(
    place(out),
    "compare",
    {
      **record,
      "output": ours.output,
      "test_set": test_set,
      "epoch": ours.results.attrs.get("epoch"),
      "gamma": gamma,
      "matching": matching or None,
      "probability": float(decision.probability),
      "low": float(decision.low),
      "high": float(decision.high),
      "decision": decision.decision,
      "sentences": said,
    },
    [
      pages.Section(lead=said[0], tables=[table]),
      pages.Section("Figures", figures={"accuracies": figure}),
      pages.Section("What the runs say", sentences=said[1:]),
    ],
    title=f"{ours.name} against {theirs.name}",
    under=f"{of.name} · test set: {test_set}",
    footer="""Intervals are over runs: what other runs on the same test examples would \
give.""",
  )
  console.print(page, highlight=False, markup=False, soft_wrap=True)
  return decision


def sentences(c: Comparison) -> Iterator[str]:
  """Yield sentences about what the numbers say of A and B."""
  pairs = f"pairs of runs with {c.matching}" if c.paired else "all pairs of runs"
  probability, low, high = (float(x) for x in c.decision[:3])
  yield (
    f"P(A > B) = {probability:.3f}, 95 % interval {low:.3f} to {high:.3f}, over {pairs}"
  )
  yield f"{c.decision.decision} (γ = {c.gamma}; Bouthillier et al. 2021, appendix C.6)"
  if not c.higher_is_better:
    yield f"A > B means that A is better: its {c.of.name} is lower."
  if high < 0.5:
    yield "B is better than A: swap A and B for a decision on that."
  difference, low, high = (
    f"{c.of.scale * float(x):+.4g}" for x in stats.mean_difference(c.a, c.b, c.paired)
  )
  sign = scale_and_sign(c.of.unit)[1].replace("%", "percentage points")
  said = f"{capitalized(c.of.name)} of A less that of B: {difference}{sign}"
  if min(len(c.a), len(c.b)) < 2:
    yield f"{said}; an interval needs two runs of each."
  else:
    test = "Student's t of the differences" if c.paired else "Welch's t"
    yield f"{said}, 95 % interval {low} to {high} ({test})."
    yield from _spread(c)
  yield from _warnings(c)


def _spread(c: Comparison) -> Iterator[str]:
  sign = 1 if c.higher_is_better else -1
  average = stats.average_comparison(sign * c.a, sign * c.b)
  if average.threshold > 0:
    yield (
      f"That is {1.9952 * average.difference / average.threshold:.2f} standard "
      "deviations of a run in favour of A: by the average comparison, which asks for 1.9952 (as much as "
      f"P(A > B) = 0.921), A is {'' if average.better else 'not '}better."
    )
  of_a, of_b = _sds(c)
  yield f"Standard deviation of a run (95 % interval): A {of_a}, B {of_b}."
  ratio = stats.variance_ratio(c.a, c.b, c.paired)
  if np.isfinite(ratio.high):
    law = "jackknife of pairs" if c.paired else "jackknife"
    yield (
      f"Variance of A over that of B: {ratio.ratio:.2f}, 95 % interval {ratio.low:.2f} to "
      f"{ratio.high:.2f} ({law})."
    )
  p = {side: float(stats.normality(x).p_value) for side, x in c.sides.items()}
  if not np.isnan([*p.values()]).any():
    of_p = " and ".join(f"{show(x, None, 'p')} for {side}" for side, x in p.items())
    verdict = "no sign that runs are not normal"
    if strange := " and ".join(side for side, x in p.items() if x < 0.05):
      verdict = f"the runs of {strange} are not normal, which the intervals of variances allow for"
    yield f"Shapiro-Wilk: p {of_p}; {verdict}."


def _sds(c: Comparison) -> Iterator[str]:
  """Yield the standard deviation of A and of B, each with its interval."""
  for values in c.sides.values():
    sd, _, (low, high), *_ = standard_deviation(values, largest_variance(c.of))
    ends = show_interval(low, high, c.of.unit)
    known = f" ({ends})" if ends and low != high else ""
    yield show(sd, None, c.of.unit) + known


def _warnings(c: Comparison) -> Iterator[str]:
  runs = min(len(c.a), len(c.b))
  unit = "pairs" if c.paired else "runs each"
  size = stats.paired_sample_size if c.paired else stats.noether_sample_size
  needed = int(size(c.gamma))
  power = ""
  if c.paired and runs > 1:
    power = f"{100 * float(stats.paired_power(runs, c.gamma, c.gamma)):.0f} %"
  if runs < needed:
    here = f"; the {runs} here have {power}" * bool(power)
    yield (
      f"Few runs: {needed} {unit} find P(A > B) = {c.gamma} with about 95 % power{here}."
    )
  elif c.paired:
    yield f"{runs} pairs find P(A > B) = {c.gamma} with {power} power."
  if runs == 1:
    yield (
      "With one run nothing is known of the variance: the interval of P(A > B) means "
      "nothing."
    )
  elif c.decision.low == c.decision.high and np.ptp(np.r_[c.a, c.b]) > 0:
    yield (
      "Every resample gives the same P(A > B): its interval has no width, which few runs "
      "alone can bring about."
    )
  ends = (np.searchsorted(np.sort(c.b), c.a, side) for side in ("right", "left"))
  ties = (c.a == c.b).sum() if c.paired else np.subtract(*ends).sum()
  compared = len(c.a) if c.paired else len(c.a) * len(c.b)
  if ties == compared:
    yield "All runs compared are equal: nothing tells A from B."
    return
  if ties > 0.1 * compared:
    yield (
      f"{100 * ties / compared:.0f} % of the comparisons are ties, which count half; "
      "power is that without ties."
    )
  for side, x in c.sides.items():
    if len(x) > 1 and np.ptp(x) == 0:
      yield (
        f"All runs of {side} have the same {c.of.name}: were they given the same seeds?"
      )


def _side(
  folder: Folder,
  where: Where,
  flag: str,
  test_set: str,
  epoch: int | None,
  output: str | None,
) -> Side:
  """Read the selected runs of a folder, without predictions, logits and counts."""
  results = open_results(folder, test_set, epoch).drop_dims("epoch", errors="ignore")
  outputs = roles(results)
  first = next(iter(outputs))
  name = first if output is None else output
  one_of("output", name, outputs)
  about, shape = outputs[name], np.shape(results.get(name, 0))[1:]
  unread = {*with_role(results, "logits"), *COUNTS}
  if "accuracy" in results.variables and about["role"] == "class":
    unread.add(name)
  results = results.assign_attrs(roles=outputs).drop_vars(unread, errors="ignore")
  results = loaded(results, folder)
  try:
    results = results.assign({name: ("run", values_of_runs(results, name))})
    results = groups.select_runs(results, where)
    groups.check_not_pooled(results, where, flag)
  except Mistake as mistake:
    raise Mistake(f"{folder}: {mistake}") from None
  tested = results.get("original_labels", results.get(about.get("labels", ""), shape))
  after = "" if epoch is None else f"epoch={epoch}"
  title = pages.join_names(str(folder), format_values(where), after)
  return Side(folder, where, title, first, name, about, results, tested)


def _values(
  ours: Side, theirs: Side, paired: bool | None
) -> tuple[list[np.ndarray], str]:
  """Return the values of the runs that did not diverge, and what paired runs have in
  common (empty if they are not paired).
  """
  name, a, b = ours.output, ours.results, theirs.results
  kept = [np.isfinite(r[name].values) for r in (a, b)]
  if paired:
    if a.sizes["run"] != b.sizes["run"]:
      raise Mistake(
        f"{ours.name} has {a.sizes['run']} finished runs and {theirs.name} "
        f"{b.sizes['run']}: to pair them row by row, give as many of each"
      )
    kept = [kept[0] & kept[1]] * 2
  for side, alive in zip((ours, theirs), kept, strict=True):
    if not alive.any():
      which = "runs that did not diverge"
      if paired:
        which = f"pairs of which neither diverged, with {theirs.name}"
      raise Mistake(f"{side.name} has no finished {which}: train some first")
  a, b = (r.isel(run=np.flatnonzero(k)) for r, k in zip((a, b), kept, strict=True))
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
