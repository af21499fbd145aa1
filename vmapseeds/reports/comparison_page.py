"""Compare recipes: which is better by the mean of their runs, by how much, and how often
a run of one beats a run of the other.
"""

import functools
import itertools
import json
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from rich.console import Console
from upath import UPath

from vmapseeds import stats
from vmapseeds.mistakes import Mistake, door, number, one_of, option
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
from vmapseeds.results.statistics import (
  is_higher_better,
  quantity_of,
  roles,
  values_of_runs,
)
from vmapseeds.searches.trials import best_runs
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
  info: Mapping[str, Any]  # of the output: its role, labels, unit
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
    if self.info["role"] == "score":
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
  if margin is not None:
    margin = _check_margin(margin)
  if paired not in (None, True, False):
    raise Mistake(f"paired is {paired!r:.100}: give True, False or None")
  _check_number_of_sides(others, against)
  over = (over,) if isinstance(over, str) else tuple(over)

  first = read_side(a, where, "where", test_set, epoch, output, over)
  test_set = resolve_test_set(first.results.attrs.get("test_sets"), test_set)
  sides = {"A": first}
  for letter, folder in zip(LETTERS[1:], others or (a,), strict=False):
    side = read_side(folder, against, "against", test_set, epoch, first.output, over)
    _check_comparable(first, side)
    sides[letter] = side

  quantity = quantity_of(first.output, first.info)
  if margin is not None:
    margin /= quantity.scale
  pairs = _pairs_of_names(sides, all_pairs)
  comparisons = _compare_all(pairs, sides, paired, gamma, margin, quantity)

  # Scores are set together only if the user did not ask for one of them.
  scores = {} if output or over else _scores_together(sides)
  tables = _tables(sides, comparisons, scores, quantity)
  sentences = _sentences(sides, comparisons, over)
  details = _details(comparisons)
  console = console or pages.terminal()
  _print_comparison(console, sentences, tables, details)

  if out is None:
    out = _page_folder(a, others, first, where, against, test_set)
  record = {
    "output": first.output,
    "test_set": test_set,
    "epoch": first.results.attrs.get("epoch"),
    "gamma": gamma,
    "margin": margin,
    "sides": {name: _record_of_side(side, quantity) for name, side in sides.items()},
    "comparisons": [
      _record_of_comparison(comparison, lines)
      for comparison, lines in zip(comparisons, sentences, strict=True)
    ],
  }
  figures = _figures(sides, comparisons, scores, quantity)
  names = [side.name for side in sides.values()]
  page = pages.write_page(
    place(out),
    "compare",
    record,
    _page_sections(sentences, tables, figures, details),
    title=f"{names[0]} against {', '.join(names[1:])}",
    under=f"{quantity.name} · test set: {test_set}",
    footer=_FOOTER,
  )
  console.print(page, highlight=False, markup=False, soft_wrap=True)
  return comparisons


def _check_margin(margin: float) -> float:
  margin = number("margin", margin)
  if not 0 < margin < np.inf:
    raise Mistake(f"margin is {margin}: give a number above 0, in the unit printed")
  return margin


def _check_number_of_sides(others: Sequence[Folder], against: Where) -> None:
  if not others and not against:
    raise Mistake(
      "one results folder, and nothing to compare it with: give a second one, or e.g. "
      f"{option('against', {'lr': 0.05})}"
    )
  if len(others) >= len(LETTERS):
    raise Mistake(
      f"{len(others) + 1} results folders: give at most {len(LETTERS)} at once"
    )


def _check_comparable(first: Side, other: Side) -> None:
  """Raise `Mistake` if means of the two sides are not about the same values and examples."""
  if other.levels != first.levels:
    raise Mistake(
      f"{first.name} is averaged over {format_values(first.levels)}, {other.name} over "
      f"{format_values(other.levels)}: give runs of the same values"
    )
  if np.array_equal(first.tested, other.tested):
    return
  difference = ""
  if _has_label_vector(first) and _has_label_vector(other):
    labels = np.asarray(first.tested), np.asarray(other.tested)
    difference = f", {difference_of_labels(*labels)}"
  raise Mistake(
    f"{first.name} and {other.name} were tested on different examples{difference}: "
    "compare results of one test set"
  )


def _has_label_vector(side: Side) -> bool:
  return not isinstance(side.tested, tuple) and np.ndim(side.tested) <= 1


def _pairs_of_names(
  sides: Mapping[str, Side], all_pairs: bool
) -> list[tuple[str, str]]:
  if all_pairs:
    return list(itertools.combinations(sides, 2))
  return [("A", name) for name in sides if name != "A"]


def _compare_all(
  pairs: Sequence[tuple[str, str]],
  sides: Mapping[str, Side],
  paired: bool | None,
  gamma: float,
  margin: float | None,
  quantity: Quantity,
) -> list[Comparison]:
  """Return the comparison of each pair of names, with p-values by Holm's method."""
  comparisons = [
    _compare(names, sides, paired, gamma, margin, quantity) for names in pairs
  ]
  adjusted = stats.holm([comparison.p_value for comparison in comparisons])
  return [
    comparison._replace(p_value=float(p_value), comparisons=len(comparisons))
    for comparison, p_value in zip(comparisons, adjusted, strict=True)
  ]


def _compare(
  names: tuple[str, str],
  sides: Mapping[str, Side],
  paired: bool | None,
  gamma: float,
  margin: float | None,
  quantity: Quantity,
) -> Comparison:
  a, b = sides[names[0]], sides[names[1]]
  (rows_a, rows_b), matching = matched_rows(a, b, paired)

  elsewhere = None
  examples_of_a = _performance_on_examples(a, rows_a)
  examples_of_b = _performance_on_examples(b, rows_b)
  if examples_of_a is not None and examples_of_b is not None:
    elsewhere = stats.compare_means_on_other_examples(
      examples_of_a, examples_of_b, bool(matching)
    )

  return compare_values(
    a.values[rows_a],
    b.values[rows_b],
    gamma=gamma,
    matching=matching,
    names=names,
    elsewhere=elsewhere,
    margin=margin,
    of=quantity,
    higher_is_better=is_higher_better(a.info),
    examples=a.examples or None,
  )


def _fixed_seeds(a: Side, b: Side, names: tuple[str, str]) -> Iterator[str]:
  """Yield a sentence if one side has a single seed of a source that varies on the other:
  its mean rests on that seed.
  """
  of_a, of_b = _varying(a), _varying(b)
  clauses = []
  for name, own, other in ((names[0], of_a, of_b), (names[1], of_b, of_a)):
    fixed = [source for source in own if not own[source] and other.get(source)]
    if fixed and any(own.values()):
      clauses.append(
        f"{name} has one seed of {' and '.join(fixed)}, which the other varies"
      )
  if clauses:
    yield (
      f"The means are not comparable: {'; '.join(clauses)}. Such a mean rests on that one "
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
  varying = {}
  for column, seeds in groups.seed_columns(side.results).items():
    source = column.removeprefix("seed_")
    # Seeds of a source that training does not read change nothing.
    if not unread.get(source):
      varying[source] = bool((seeds != seeds[:1]).any())
  return varying


def _performance_on_examples(side: Side, rows: np.ndarray) -> np.ndarray | None:
  """Return each run's performance on each example: whether it is right, or its loss
  with the sign changed. None if that is not kept, or too much to read.
  """
  if side.levels:
    return None
  role = side.info["role"]
  if role == "score" or side.output not in side.opened:
    return None
  outputs = side.opened[side.output]
  if outputs.nbytes > MOST_READ:
    return None

  with readable(side.folder):
    outputs = outputs.isel(run=rows)
    if role == "loss":
      performance = -outputs.values
    else:
      performance = (outputs == _labels(side, rows)).values
  return performance.reshape(len(rows), -1)


def _labels(side: Side, rows: np.ndarray) -> xr.DataArray:
  labels = side.opened[side.info["labels"]]
  # If label maps differ between runs, each run has labels of its own.
  return labels.isel(run=rows) if "run" in labels.dims else labels


# The page.


def _tables(
  sides: Mapping[str, Side],
  comparisons: Sequence[Comparison],
  scores: Mapping[str, np.ndarray],
  quantity: Quantity,
) -> list[pages.Table]:
  tables = [_table_of_sides(sides, quantity)]
  if len(comparisons) > 1:
    tables.append(_table_of_comparisons(comparisons))
  if scores:
    tables.append(_table_of_scores(scores, comparisons))
  return tables


def _sentences(
  sides: Mapping[str, Side], comparisons: Sequence[Comparison], over: Sequence[str]
) -> list[list[str]]:
  """Return the sentences of each comparison; what is about all is in the first."""
  sentences = []
  for comparison in comparisons:
    first, second = comparison.names
    warnings = _fixed_seeds(sides[first], sides[second], comparison.names)
    sentences.append([*warnings, *headline(comparison)])

  searched = [name for name, side in sides.items() if "search" in side.opened.attrs]
  if searched:
    note = f"A run of {' and of '.join(searched)} is the best trial of a search."
    sentences[0].append(note)
  if over:
    sentences[0].append(
      f"A run stands for the mean over {format_values(sides['A'].levels)} of runs of "
      "the same seeds."
    )
  return sentences


def _details(comparisons: Sequence[Comparison]) -> dict[str, list[str]]:
  """Return heading -> sentences of what else a comparison says; of several comparisons
  nothing, which would bury the verdicts.
  """
  if len(comparisons) > 1:
    return {}
  return {
    "Criteria of the papers": list(criteria(comparisons[0])),
    "What else the runs say": list(spread(comparisons[0])),
  }


def _print_comparison(
  console: Console,
  sentences: Sequence[Sequence[str]],
  tables: Sequence[pages.Table],
  details: Mapping[str, Sequence[str]],
) -> None:
  for sentence in itertools.chain(*sentences):
    # Only the terminal wraps sentences, so that output can be searched and piped.
    console.print(sentence, soft_wrap=True, highlight=False, markup=False)
  for table in tables:
    console.print(table.for_terminal())
  for heading, lines in details.items():
    console.print(f"\n{heading}", style="bold")
    for line in lines:
      console.print(line, soft_wrap=True, highlight=False, markup=False)


def _page_sections(
  sentences: Sequence[Sequence[str]],
  tables: Sequence[pages.Table],
  figures: Mapping[str, pages.Figure],
  details: Mapping[str, Sequence[str]],
) -> list[pages.Section]:
  paragraphs = [" ".join(lines) for lines in sentences]
  if len(paragraphs) == 1:
    top = pages.Section(lead=paragraphs[0], tables=tables)
  else:
    top = pages.Section(sentences=paragraphs, tables=tables)
  sections = [top, pages.Section("Figures", figures=figures)]
  for heading, lines in details.items():
    sections.append(pages.Section(heading, sentences=lines))
  return sections


def _page_folder(
  a: Folder,
  others: Sequence[Folder],
  first: Side,
  where: Where,
  against: Where,
  test_set: str,
) -> Path | UPath:
  """Return the folder for the page of A's comparison with the others, in A's report."""
  other_names = ", ".join(pages.path_parts(other)[-1] for other in others)
  output = "" if first.output == first.first_output else first.output
  return pages.below(
    pages.of_test_set(place(a) / "report", first.results, test_set),
    format_values(where),
    output,
    f"against_{pages.join_names(other_names, format_values(against))}",
  )


def _table_of_sides(sides: Mapping[str, Side], quantity: Quantity) -> pages.Table:
  rows = []
  for name, side in sides.items():
    values = _finite_values(side)
    mean = stats.mean_over_runs(values)
    rows.append(
      (
        name,
        str(len(values)),
        show(mean, mean.se, quantity.unit),
        sd_of(values, quantity),
        side.name,
      )
    )
  headings = ("", "runs", quantity.name, "sd of a run (95 % interval)", "results")
  return pages.Table("", headings, rows)


def _finite_values(side: Side) -> np.ndarray:
  """Return the numbers of the runs that did not diverge."""
  return side.values[np.isfinite(side.values)]


def _leader(comparison: Comparison) -> str:
  a, b = comparison.names
  return a if comparison.leads else b


def _table_of_comparisons(comparisons: Sequence[Comparison]) -> pages.Table:
  rows = []
  for comparison in comparisons:
    value, ends, sign = show_difference(comparison.found[:3], comparison.of.unit)
    difference = f"{value}{sign}"
    if np.isfinite(comparison.found.low):
      difference = f"{value} ({ends}){sign}"

    probability, low, high = comparison.outperforming
    point = show(probability, None, "fraction")
    interval = show_interval(low, high, "fraction")

    verdict = comparison.verdict
    if verdict == "better":
      verdict = f"{_leader(comparison)} is better"

    rows.append(
      (
        " - ".join(comparison.names),
        difference,
        f"{point} ({interval})",
        f"{comparison.p_value:.2g}",
        verdict,
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
  outputs = roles(sides["A"].opened)
  names = [name for name, info in outputs.items() if info["role"] == "score"]
  units = {outputs[name].get("unit") for name in names}
  # A mean over outputs has no meaning if they differ in unit or direction.
  if len(names) < 2 or len(units) > 1:
    return {}
  if not all(is_higher_better(outputs[name]) for name in names):
    return {}

  scores = {}
  for letter, side in sides.items():
    if not set(names) <= set(side.opened.variables):
      return {}
    with readable(side.folder):
      columns = [values_of_runs(side.opened, name) for name in names]
    of_runs = np.stack(columns, axis=1)
    finite = of_runs[np.isfinite(of_runs).all(axis=1)]
    if not len(finite):
      return {}
    scores[letter] = finite
  return scores


def _table_of_scores(
  scores: Mapping[str, np.ndarray], comparisons: Sequence[Comparison]
) -> pages.Table:
  def cells(statistic, *samples):
    # A fixed key, so that a page that is written again has the same numbers.
    interval = stats.stratified_bootstrap(statistic, *samples, key=jax.random.key(0))
    point = show(statistic(*samples), None, "number")
    return point, show_interval(interval.low, interval.high, "number")

  rows = []
  for name, of_side in scores.items():
    point, ends = cells(stats.interquartile_mean, of_side)
    rows.append((f"interquartile mean of {name}", point, ends))
  for comparison in comparisons:
    a, b = comparison.names
    point, ends = cells(stats.probability_of_improvement, scores[a], scores[b])
    rows.append((f"P({a} > {b}) on one of them", point, ends))

  outputs = scores["A"].shape[1]
  caption = f"""All {outputs} scores together (Agarwal 2021), as they are: they must be \
comparable. Intervals: bootstrap of the runs, on each score for itself."""
  return pages.Table(caption, ("", "value", "95 % interval"), rows)


def _figures(
  sides: Mapping[str, Side],
  comparisons: Sequence[Comparison],
  scores: Mapping[str, np.ndarray],
  quantity: Quantity,
) -> dict[str, pages.Figure]:
  figures = {
    "differences": _figure_of_differences(comparisons, quantity),
    "distributions": _figure_of_distributions(sides, comparisons, quantity),
  }
  if scores:
    figures["profiles"] = pages.Figure(
      "Performance profiles",
      "The fraction of all scores, of all runs and outputs, above each value.",
      functools.partial(plots.performance_profiles, scores),
    )
  return figures


def _figure_of_differences(
  comparisons: Sequence[Comparison], quantity: Quantity
) -> pages.Figure:
  rows = []
  for comparison in comparisons:
    dots = None
    if comparison.paired:
      # As the interval: positive where the first is better.
      sign = 1 if comparison.higher_is_better else -1
      dots = sign * (comparison.a - comparison.b)
    name = " - ".join(comparison.names)
    both = comparison.over_runs_and_examples
    rows.append((name, dots, comparison.found[:3], both))

  margin = comparisons[0].margin
  return pages.Figure(
    "Differences of means",
    _INTERVALS,
    lambda ax: plots.differences(rows, ax, of=quantity, margin=margin),
    1.8 + 0.6 * len(rows),
  )


def _figure_of_distributions(
  sides: Mapping[str, Side], comparisons: Sequence[Comparison], quantity: Quantity
) -> pages.Figure:
  """Return histograms of two sides over each other, or boxes of more beside each other."""
  if len(sides) == 2:
    # Of paired runs those alone that are compared.
    values = comparisons[0].sides
    draw = _histograms(values, sides["A"].examples, quantity)
  else:
    values = {name: _finite_values(side) for name, side in sides.items()}
    draw = functools.partial(plots.accuracies_side_by_side, values, of=quantity)
  return pages.Figure(
    f"{capitalized(quantity.name)} over runs",
    "The runs that are compared.",
    draw,
    max(4.0, 1 + 0.5 * len(values)),
  )


def _histograms(
  values: Mapping[str, np.ndarray], examples: int, quantity: Quantity
) -> Callable[[Axes], Axes]:
  # Accuracies are multiples of one over the number of examples, on which bins are laid.
  tested = examples if quantity is ACCURACY else None
  edges = plots.bin_edges(list(values.values()), tested, quantity)

  def draw(ax: Axes) -> Axes:
    for name, x in values.items():
      mean = show(x.mean(), None, quantity.unit)
      label = f"{name}, {run_count(len(x))}: mean {mean}"
      plots.accuracy_histogram(x, ax, edges=edges, label=label, of=quantity)
    return ax

  return draw


def _record_of_side(side: Side, quantity: Quantity) -> dict[str, Any]:
  values = _finite_values(side)
  mean = stats.mean_over_runs(values)
  sd = np.sqrt(stats.variance_over_runs(values))
  where = {
    column: np.atleast_1d(selected).tolist()
    for column, selected in (side.where or {}).items()
  }
  suffix = "_accuracy" if quantity is ACCURACY else ""
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
    "leads": _leader(c),
    "decision": c.decision.decision,
    "sentences": [*lines, *criteria(c), *spread(c)],
  }


def read_side(
  folder: Folder,
  where: Where,
  chosen_by: str,
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
  search = opened.attrs.get("search")
  if search:
    opened = best_runs(opened)
    first = search["measure"].rpartition("/")[2]
  results = opened

  name = first if output is None else output
  one_of("output", name, outputs)
  info = outputs[name]
  shape = np.shape(results.get(name, 0))[1:]
  unread = set(with_role(results, "logits")).union(COUNTS)
  # Predictions are the largest array, and the accuracy of each run is stored.
  if "accuracy" in results.variables and info["role"] == "class":
    unread.add(name)
  results = results.assign_attrs(roles=outputs).drop_vars(unread, errors="ignore")
  results = loaded(results, folder)
  try:
    results = results.assign({name: ("run", values_of_runs(results, name))})
    results = groups.select_runs(results, where)
    opened = groups.select_runs(opened, where)
    groups.check_columns(results, over)
    groups.check_not_pooled(results, set(where or ()).union(over), chosen_by)
    levels = {column: groups.values_of(results, column) for column in over}
    if over:
      results = opened = averaged_over(results, name, over)
  except Mistake as mistake:
    raise Mistake(f"{folder}: {mistake}") from None

  # Under label maps only the data set's own labels say that examples are the same.
  labels = results.get(info.get("labels", ""), shape)
  tested = results.get("original_labels", labels)
  after = "" if epoch is None else f"epoch={epoch}"
  title = pages.join_names(str(folder), format_values(where), after)
  return Side(folder, where, title, first, name, info, results, opened, tested, levels)


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

  same_seeds = table.groupby(list(seeds))[name]
  means = pd.DataFrame(
    {
      "size": same_seeds.size(),
      # A run that diverged makes the mean NaN, so that its seeds are left out.
      "mean": same_seeds.apply(lambda x: x.mean(skipna=False)),
    }
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
  kept_a, kept_b = np.isfinite(ours.values), np.isfinite(theirs.values)
  if paired:
    if len(kept_a) != len(kept_b):
      raise Mistake(
        f"{ours.name} has {len(kept_a)} finished runs and {theirs.name} "
        f"{len(kept_b)}: to pair them row by row, give as many of each"
      )
    kept_a = kept_b = kept_a & kept_b

  for side, kept in ((ours, kept_a), (theirs, kept_b)):
    if not kept.any():
      missing = "runs that did not diverge"
      if paired:
        missing = f"pairs of which neither diverged, with {theirs.name}"
      raise Mistake(f"{side.name} has no finished {missing}: train some first")

  rows_a, rows_b = np.flatnonzero(kept_a), np.flatnonzero(kept_b)
  if paired:
    return [rows_a, rows_b], "rows of the same number"
  if paired is None:
    same_seeds = _rows_of_same_seeds(ours, rows_a, theirs, rows_b)
    if same_seeds is not None:
      return same_seeds, "the same seeds"
  return [rows_a, rows_b], ""


def _rows_of_same_seeds(
  ours: Side, our_rows: np.ndarray, theirs: Side, their_rows: np.ndarray
) -> list[np.ndarray] | None:
  """Return the rows of runs that have the same seeds on both sides; None if seeds do not
  say which runs belong together, or belong to too few.
  """
  our_seeds = groups.seed_columns(ours.results)
  their_seeds = groups.seed_columns(theirs.results)
  names = list(our_seeds)
  if not names or names != list(their_seeds):
    return None

  our_table = pd.DataFrame({name: our_seeds[name][our_rows] for name in names})
  their_table = pd.DataFrame({name: their_seeds[name][their_rows] for name in names})
  # If they repeat (a sweep), they do not say which runs belong together.
  if our_table.duplicated().any() or their_table.duplicated().any():
    return None

  pairs = our_table.assign(row=our_rows).merge(
    their_table.assign(row=their_rows), on=names
  )
  # With few common seeds, such as one run where each side varies another source,
  # pairs would leave out most runs.
  if 2 * len(pairs) <= min(len(our_rows), len(their_rows)):
    return None
  return [pairs.row_x.to_numpy(), pairs.row_y.to_numpy()]
