"""Compare recipes: which is better by the mean of their runs, by how much, and how often
a run of one beats a run of the other.
"""

import functools
import itertools
import json
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from rich.console import Console

from vmapseeds import stats
from vmapseeds.mistakes import Mistake, door, number, one_of
from vmapseeds.reports import groups, pages, plots
from vmapseeds.reports.groups import Where, format_values
from vmapseeds.reports.results_page import MOST_READ
from vmapseeds.reports.verdict import (
  Comparison,
  compare_values,
  criteria,
  headline,
  sd_of,
  spread,
)
from vmapseeds.results.formatting import (
  ACCURACY,
  Quantity,
  capitalized,
  difference_of_labels,
  finite_or_none,
  run_count,
  show,
  show_difference,
  show_interval,
)
from vmapseeds.results.opening import (
  COUNTS,
  loaded,
  open_results,
  resolve_test_set,
  with_role,
)
from vmapseeds.results.searches import best_runs
from vmapseeds.results.statistics import (
  is_higher_better,
  quantity_of,
  roles,
  values_of_runs,
)
from vmapseeds.store.files import Folder, place
from vmapseeds.store.layout import readable
from vmapseeds.target import moves_data

LETTERS = string.ascii_uppercase
_FOOTER = """Intervals of 95 %. Those over runs are what other runs on the same test \
examples would give; those over runs and examples what other runs on other examples of the \
same kind would. If two recipes are the same, the first sentence calls one of them better in \
at most 5 % of cases, whatever the law and number of runs."""
_INTERVALS = """Difference of means with its 95 % interval: thick over runs, on these test \
examples; thin over runs and examples. Dots: differences of paired runs."""


class Side(NamedTuple):
  """Runs of A or of B, and what is compared of them."""

  folder: Folder
  where: Where
  name: str
  first_output: str
  output: str
  about: Mapping[str, Any]
  results: xr.Dataset  # the output's number of each run under its name
  opened: xr.Dataset  # the same runs, with all of their arrays, not read
  tested: Any  # labels, or how many examples
  levels: Mapping[str, Any] = {}  # columns that runs are averaged over -> their values

  @property
  def values(self) -> np.ndarray:
    return self.results[self.output].values

  @property
  def examples(self) -> int:
    """Return how many test examples the values are about, 0 for scores."""
    if self.about["role"] == "score":
      return 0
    shape = self.tested if isinstance(self.tested, tuple) else self.tested.shape
    return int(np.prod(shape))


@door
@moves_data
def compare(
  a: Folder,
  *others: Folder,
  where: Where = None,
  against: Where = None,
  over: Sequence[str] = (),
  all_pairs: bool = False,
  margin: float | None = None,
  gamma: float = 0.75,
  test_set: str = "test",
  epoch: int | None = None,
  paired: bool | None = None,
  output: str | None = None,
  out: Folder | None = None,
  console: Console | None = None,
) -> list[Comparison]:
  """Print and return which recipe is better by the mean accuracy, mean loss or score of
  its runs, by how much, and how often its run beats one of the other.

  The first sentence of a comparison is two-sided. If A and B are the same, it calls one
  of them better in at most 5 % of cases, at any number of runs; of several comparisons
  any of them, by Holm's method. It is about other runs on the same test examples. The
  next one is about other runs on other examples of the same kind; it needs the
  predictions or losses, at most 256 MiB of them.

  A is better if its loss, or a score of which lower is better, is lower. Diverged runs
  are left out. `compare.html`, `compare.json` and figures are written into the folder
  `report` of A's results, in its subfolder `against_<B>`. A test set other than the
  recipe's first, a chosen epoch, `where` and an output other than the first add a
  subfolder each above that, such as `report/lr=0.02/against_lr=0.05`.

  Args:
    a: results folder of A.
    others: results folders of B, C and so on; that of A by default.
    where: column -> value or values. Takes only the runs of A that have them. Swept
      columns must be named.
    against: likewise for the others.
    over: swept columns that are not what is asked about, such as ["optimizer"]: runs of
      the same seeds are averaged over their values, and these means are compared as runs
      are. Seeds that lack a value are left out.
    all_pairs: compare every two of the folders, not only A with each of the others.
    margin: difference that does not matter, in the unit that is printed: percentage
      points of accuracy. If the interval lies within it, A and B are called equal.
    gamma: P(A > B) from which Bouthillier's criterion calls a difference meaningful.
    test_set: which test set.
    epoch: after which epoch, for runs trained with `evaluate_every`; None for the end.
    paired: None pairs the runs that have the same seeds on both sides, if they are more
      than half of the smaller side. Otherwise (other sources vary, or runs were
      imported and have no seeds) it compares all against all. True pairs the finished
      runs row by row, False compares all against all.
    output: which output of role class, loss or score; by default the first of A.
    out: folder for the page instead.
    console: where to print.

  Of a folder of searches the best trial of each search is compared: searches are the runs.

  Returns:
    a `Comparison` for each two that are compared: `sentence`, `verdict`, `found` (the
    difference, its interval, p), `outperforming` (P(A > B) and its interval),
    `elsewhere` (over runs and examples), `decision` (Bouthillier's, of who leads).

  Raises:
    Mistake: a folder has no finished runs, the test examples differ, columns, values or
      the output are unknown, swept values would be pooled, gamma is outside (1/2, 1],
      the margin is not above 0, paired=True with unequal numbers of runs, or the page
      cannot be written.
  """
  gamma = number("gamma", gamma)
  if margin is not None and not 0 < (margin := number("margin", margin)) < np.inf:
    raise Mistake(f"margin is {margin}: give a number above 0, in the unit printed")
  if paired not in (None, True, False):
    raise Mistake(f"paired is {paired!r:.100}: give True, False or None")
  if not others and not against:
    raise Mistake(
      "one results folder, and nothing to compare it with: give a second one, or e.g. "
      "--against lr=0.05"
    )
  if len(others) >= len(LETTERS):
    raise Mistake(
      f"{len(others) + 1} results folders: give at most {len(LETTERS)} at once"
    )
  over = (over,) if isinstance(over, str) else tuple(over)
  ours = read_side(a, where, "--where", test_set, epoch, output, over)
  test_set = resolve_test_set(ours.results.attrs.get("test_sets"), test_set)
  theirs = [
    read_side(other, against, "--against", test_set, epoch, ours.output, over)
    for other in others or (a,)
  ]
  for side in theirs:
    if side.levels != ours.levels:
      raise Mistake(
        f"{ours.name} is averaged over {format_values(ours.levels)}, {side.name} over "
        f"{format_values(side.levels)}: give runs of the same values"
      )
    if not np.array_equal(ours.tested, side.tested):
      both = [np.asarray(of.tested) for of in (ours, side)]
      how = ""
      if not any(
        isinstance(of.tested, tuple) or np.ndim(of.tested) > 1 for of in (ours, side)
      ):
        how = f", {difference_of_labels(*both)}"
      raise Mistake(
        f"{ours.name} and {side.name} were tested on different examples{how}: compare "
        "results of one test set"
      )
  sides = dict(zip(LETTERS, (ours, *theirs), strict=False))
  which = [("A", letter) for letter in sides if letter != "A"]
  if all_pairs:
    which = [*itertools.combinations(sides, 2)]
  of = quantity_of(ours.output, ours.about)
  if margin is not None:
    margin /= of.scale
  compared = [_compare(names, sides, paired, gamma, margin, of) for names in which]
  adjusted = stats.holm([c.p_value for c in compared])
  compared = [
    c._replace(p_value=float(p), comparisons=len(compared))
    for c, p in zip(compared, adjusted, strict=True)
  ]
  tables = [_table_of_sides(sides, of)]
  if len(compared) > 1:
    tables.append(_table_of_comparisons(compared))
  together = {} if output or over else _scores_together(sides)
  if together:
    tables.append(_table_of_scores(together, which))
  said = [
    [*_fixed_seeds(sides[names[0]], sides[names[1]], names), *headline(c)]
    for names, c in zip(which, compared, strict=True)
  ]
  console = console or pages.terminal()
  searched = [name for name, side in sides.items() if "search" in side.opened.attrs]
  if searched:
    note = f"A run of {' and of '.join(searched)} is the best trial of a search."
    said[0].append(note)
  if over:
    said[0].append(
      f"A run stands for the mean over {format_values(ours.levels)} of runs of the same "
      "seeds."
    )
  for sentence in itertools.chain(*said):
    # Only the terminal wraps sentences, so that output can be searched and piped.
    console.print(sentence, soft_wrap=True, highlight=False, markup=False)
  for table in tables:
    console.print(table.for_terminal())
  sections = [pages.Section(lead=" ".join(said[0]), tables=tables)]
  if len(compared) > 1:
    sections = [pages.Section(sentences=[*map(" ".join, said)], tables=tables)]
  figures = _figures(sides, compared, of)
  if together:
    figures["profiles"] = pages.Figure(
      "Performance profiles",
      "The fraction of all scores, of all runs and outputs, above each value.",
      functools.partial(plots.performance_profiles, together),
    )
  sections.append(pages.Section("Figures", figures=figures))
  for heading, sentences in (
    ("Criteria of the papers", criteria),
    ("What else the runs say", spread),
  ):
    if len(compared) == 1:
      lines = [*sentences(compared[0])]
      console.print(f"\n{heading}", style="bold")
      for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)
      sections.append(pages.Section(heading, sentences=lines))
  if out is None:
    of_b = ", ".join(pages.path_parts(other)[-1] for other in others)
    out = pages.below(
      pages.of_test_set(place(a) / "report", ours.results, test_set),
      format_values(where),
      "" if ours.output == ours.first_output else ours.output,
      f"against_{pages.join_names(of_b, format_values(against))}",
    )
  record = {
    "output": ours.output,
    "test_set": test_set,
    "epoch": ours.results.attrs.get("epoch"),
    "gamma": gamma,
    "margin": margin,
    "sides": {name: _record_of_side(side, of) for name, side in sides.items()},
    "comparisons": [
      _record_of_comparison(c, lines) for c, lines in zip(compared, said, strict=True)
    ],
  }
  names = [side.name for side in sides.values()]
  page = pages.write_page(
    place(out),
    "compare",
    record,
    sections,
    title=f"{names[0]} against {', '.join(names[1:])}",
    under=f"{of.name} · test set: {test_set}",
    footer=_FOOTER,
  )
  console.print(page, highlight=False, markup=False, soft_wrap=True)
  return compared


def _compare(
  names: tuple[str, str],
  sides: Mapping[str, Side],
  paired: bool | None,
  gamma: float,
  margin: float | None,
  of: Quantity,
) -> Comparison:
  a, b = (sides[name] for name in names)
  rows, matching = matched_rows(a, b, paired)
  elsewhere = None
  of_a, of_b = _of_examples(a, rows[0]), _of_examples(b, rows[1])
  if of_a is not None and of_b is not None:
    elsewhere = stats.compare_means_on_other_examples(of_a, of_b, bool(matching))
  return compare_values(
    a.values[rows[0]],
    b.values[rows[1]],
    gamma=gamma,
    matching=matching,
    names=names,
    elsewhere=elsewhere,
    margin=margin,
    of=of,
    higher_is_better=is_higher_better(a.about),
    examples=a.examples or None,
  )


def _fixed_seeds(a: Side, b: Side, names: tuple[str, str]) -> Iterator[str]:
  """Yield a sentence if one side has a single seed of a source that varies on the other:
  its mean rests on that seed.
  """
  ours, theirs = _varying(a), _varying(b)
  said = []
  for name, mine, other in ((names[0], ours, theirs), (names[1], theirs, ours)):
    fixed = [source for source in mine if not mine[source] and other.get(source)]
    if fixed and any(mine.values()):
      said.append(
        f"{name} has one seed of {' and '.join(fixed)}, which the other varies"
      )
  if said:
    yield (
      f"The means are not comparable: {'; '.join(said)}. Such a mean rests on that one "
      "seed: vary the same sources, or cross them, as --vary init --repeat order=5 does."
    )


def _varying(side: Side) -> dict[str, bool]:
  """Return whether its seeds differ between runs, for each source that training reads, as
  far as is known.
  """
  attrs = side.results.attrs
  settings = json.loads(attrs["recipe"])
  own_model = isinstance(settings.get("model"), dict)
  unread = {
    "data": attrs.get("sampling") is None and "model" in settings,
    "augment": settings.get("augment") == "",
    "dropout": settings.get("dropout") == 0 and not own_model,
  }
  found = {
    name.removeprefix("seed_"): bool((of != of[:1]).any())
    for name, of in groups.seed_columns(side.results).items()
  }
  return {source: varies for source, varies in found.items() if not unread.get(source)}


def _of_examples(side: Side, rows: np.ndarray) -> np.ndarray | None:
  """Return each run's performance on each example: whether it is right, or its loss
  with the sign changed. None if that is not kept, or too much to read.
  """
  if side.levels:
    return None
  role, name, opened = side.about["role"], side.output, side.opened
  if role == "score" or name not in opened or opened[name].nbytes > MOST_READ:
    return None
  with readable(side.folder):
    of = opened[name].isel(run=rows)
    found = -of.values if role == "loss" else (of == _labels(side, rows)).values
  return found.reshape(len(rows), -1)


def _labels(side: Side, rows: np.ndarray) -> xr.DataArray:
  labels = side.opened[side.about["labels"]]
  return labels.isel(run=rows) if "run" in labels.dims else labels


# The page.


def _table_of_sides(sides: Mapping[str, Side], of: Quantity) -> pages.Table:
  rows = []
  for name, side in sides.items():
    values = side.values[np.isfinite(side.values)]
    mean, _, se = stats.ideal_estimate(values)
    cells = str(len(values)), show(mean, se, of.unit), sd_of(values, of)
    rows.append((name, *cells, side.name))
  headings = ("", "runs", of.name, "sd of a run (95 % interval)", "results")
  return pages.Table("", headings, rows)


def _table_of_comparisons(compared: Sequence[Comparison]) -> pages.Table:
  rows = []
  for c in compared:
    value, ends, sign = show_difference(c.found[:3], c.of.unit)
    p, low, high = c.outperforming
    known = np.isfinite(c.found.low)
    who = f"{c.names[0 if c.leads else 1]} is better"
    rows.append(
      (
        " - ".join(c.names),
        f"{value} ({ends}){sign}" if known else f"{value}{sign}",
        f"{show(p, None, 'fraction')} ({show_interval(low, high, 'fraction')})",
        f"{c.p_value:.2g}",
        who if c.verdict == "better" else c.verdict,
      )
    )
  headings = ("", "difference (95 % interval)", "P(first > second)", "p", "verdict")
  caption = """p and verdict by Holm's method: in at most 5 % of cases is any of equal \
recipes called better. Each interval is for itself. Differences are positive where the \
first is better."""
  return pages.Table(caption, headings, rows)


def _scores_together(sides: Mapping[str, Side]) -> dict[str, np.ndarray]:
  """Return the scores (runs, outputs) of each side, if all have several outputs of role
  score in one unit, of which higher is better; else nothing.
  """
  found = roles(sides["A"].opened)
  names = [name for name, about in found.items() if about["role"] == "score"]
  units = {found[name].get("unit") for name in names}
  if len(names) < 2 or len(units) > 1:
    return {}
  if not all(is_higher_better(found[name]) for name in names):
    return {}
  scores = {}
  for letter, side in sides.items():
    if not {*names} <= {*side.opened.variables}:
      return {}
    with readable(side.folder):
      of = np.stack([values_of_runs(side.opened, name) for name in names], axis=1)
    scores[letter] = of[np.isfinite(of).all(1)]
  return scores if all(map(len, scores.values())) else {}


def _table_of_scores(
  scores: Mapping[str, np.ndarray], which: Sequence[tuple[str, str]]
) -> pages.Table:
  def cells(statistic, *given):
    found = stats.stratified_bootstrap(statistic, *given, key=jax.random.key(0))
    ends = show_interval(found.low, found.high, "number")
    return show(statistic(*given), None, "number"), ends

  rows = [
    (f"interquartile mean of {name}", *cells(stats.interquartile_mean, x))
    for name, x in scores.items()
  ]
  rows += [
    (
      f"P({a} > {b}) on one of them",
      *cells(stats.probability_of_improvement, scores[a], scores[b]),
    )
    for a, b in which
  ]
  outputs = next(iter(scores.values())).shape[1]
  caption = f"""All {outputs} scores together (Agarwal 2021), as they are: they must be \
comparable. Intervals: bootstrap of the runs, on each score for itself."""
  return pages.Table(caption, ("", "value", "95 % interval"), rows)


def _figures(
  sides: Mapping[str, Side], compared: Sequence[Comparison], of: Quantity
) -> dict[str, pages.Figure]:
  shown = {name: side.values[np.isfinite(side.values)] for name, side in sides.items()}
  if len(sides) == 2:
    shown = compared[0].sides
    tested = sides["A"].examples if of is ACCURACY else None
    edges = plots.bin_edges([*shown.values()], tested, of)

    def draw(ax: Axes) -> Axes:
      for name, x in shown.items():
        label = f"{name}, {run_count(len(x))}: mean {show(x.mean(), None, of.unit)}"
        plots.accuracy_histogram(x, ax, edges=edges, label=label, of=of)
      return ax

  else:
    draw = functools.partial(plots.accuracies_side_by_side, shown, of=of)
  rows = []
  for c in compared:
    sign = 1 if c.higher_is_better else -1
    dots = sign * (c.a - c.b) if c.paired else None
    both = c.over_runs_and_examples
    rows.append((" - ".join(c.names), dots, c.found[:3], both))
  height = 1.8 + 0.6 * len(rows)
  margin = compared[0].margin
  return {
    "differences": pages.Figure(
      "Differences of means",
      _INTERVALS,
      lambda ax: plots.differences(rows, ax, of=of, margin=margin),
      height,
    ),
    "distributions": pages.Figure(
      f"{capitalized(of.name)} over runs",
      "The runs that are compared.",
      draw,
      max(4.0, 1 + 0.5 * len(shown)),
    ),
  }


def _record_of_side(side: Side, of: Quantity) -> dict[str, Any]:
  values = side.values[np.isfinite(side.values)]
  mean, sd, _ = stats.ideal_estimate(values)
  where = {c: np.atleast_1d(v).tolist() for c, v in (side.where or {}).items()}
  suffix = "_accuracy" * (of is ACCURACY)
  return {
    "folder": str(side.folder),
    "where": where,
    "runs": len(values),
    f"mean{suffix}": finite_or_none(mean),
    f"sd{suffix}": finite_or_none(sd),
  }


def _record_of_comparison(c: Comparison, lines: Sequence[str]) -> dict[str, Any]:
  p, low, high = c.outperforming
  both = c.over_runs_and_examples or (None, None)
  return {
    "names": c.names,
    "runs": [len(c.a), len(c.b)],
    "matching": c.matching or None,
    "verdict": c.verdict,
    "difference": finite_or_none(c.found.difference),
    "low": finite_or_none(c.found.low),
    "high": finite_or_none(c.found.high),
    "over_runs_and_examples_low": finite_or_none(both[0]),
    "over_runs_and_examples_high": finite_or_none(both[1]),
    "p_value": float(c.found.p_value),
    "p_holm": c.p_value,
    "probability": p,
    "probability_low": low,
    "probability_high": high,
    "leads": c.names[0 if c.leads else 1],
    "decision": c.decision.decision,
    "sentences": [*lines, *criteria(c), *spread(c)],
  }


def read_side(
  folder: Folder,
  where: Where,
  flag: str,
  test_set: str,
  epoch: int | None,
  output: str | None,
  over: Sequence[str] = (),
) -> Side:
  """Read the selected runs of a folder, without predictions, logits and counts. Those of
  the same seeds are averaged over the columns `over`.
  """
  opened = open_results(folder, test_set, epoch).drop_dims("epoch", errors="ignore")
  outputs = roles(opened)
  first = next(iter(outputs))
  if about := opened.attrs.get("search"):
    opened, first = best_runs(opened), about["measure"].rpartition("/")[2]
  results = opened
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
    opened = groups.select_runs(opened, where)
    groups.check_columns(results, over)
    groups.check_not_pooled(results, {*(where or {}), *over}, flag)
    levels = {column: groups.values_of(results, column) for column in over}
    if over:
      results = opened = averaged_over(results, name, over)
  except Mistake as mistake:
    raise Mistake(f"{folder}: {mistake}") from None
  tested = results.get("original_labels", results.get(about.get("labels", ""), shape))
  after = "" if epoch is None else f"epoch={epoch}"
  title = pages.join_names(str(folder), format_values(where), after)
  return Side(folder, where, title, first, name, about, results, opened, tested, levels)


def averaged_over(results: xr.Dataset, name: str, over: Sequence[str]) -> xr.Dataset:
  """Return the means of an output's numbers over all values of the columns `over`, of runs
  that agree in all seeds: a run for each seeds.

  Raises:
    Mistake: runs have no seeds, or none has all values.
  """
  seeds = groups.seed_columns(results)
  count = np.prod([len(groups.values_of(results, column)) for column in over])
  table = pd.DataFrame({column: results[column].values for column in (*seeds, *over)})
  table[name] = results[name].values
  if not seeds or table.duplicated([*seeds, *over]).any():
    raise Mistake(
      f"runs do not differ by their seeds and {', '.join(over)} alone: name the other "
      "columns in where, or in over"
    )
  of_seeds = table.groupby([*seeds])[name]
  means = pd.DataFrame(
    {"size": of_seeds.size(), "mean": of_seeds.apply(lambda x: x.mean(skipna=False))}
  )
  whole = means[means["size"] == count].reset_index()
  if not len(whole):
    raise Mistake(f"no seeds have runs of all {count} values of {', '.join(over)}")
  columns = {
    column: ("run", whole[column].to_numpy(), results[column].attrs) for column in seeds
  }
  values = {name: ("run", whole["mean"].to_numpy(), results[name].attrs)}
  return xr.Dataset(values, coords=columns, attrs=results.attrs)


def matched_rows(
  ours: Side, theirs: Side, paired: bool | None
) -> tuple[list[np.ndarray], str]:
  """Return the rows of the runs that did not diverge, those of a pair at the same place,
  and what paired runs have in common (empty if they are not paired).
  """
  a, b = ours.results, theirs.results
  kept = [np.isfinite(side.values) for side in (ours, theirs)]
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
  rows = [np.flatnonzero(k) for k in kept]
  if paired is not None:
    return rows, "rows of the same number" if paired else ""
  seeds = [groups.seed_columns(r) for r in (a, b)]
  names = [*seeds[0]]
  if names and names == [*seeds[1]]:
    of_a, of_b = (
      pd.DataFrame({name: column[r] for name, column in of.items()}).assign(row=r)
      for of, r in zip(seeds, rows, strict=True)
    )
    # If they repeat (a sweep), they do not say which runs belong together.
    repeated = of_a.duplicated(names).any() or of_b.duplicated(names).any()
    # With few common seeds, such as one run where each side varies another source,
    # pairs would leave out most runs.
    both = of_a.merge(of_b, on=names)
    if not repeated and 2 * len(both) > min(map(len, rows)):
      return [both.row_x.values, both.row_y.values], "the same seeds"
  return rows, ""
