"""Compare recipes: which is better by the mean of their runs, by how much, and how often
a run of one beats a run of the other.
"""

import functools
import itertools
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from upath import UPath

from vmapseeds import stats
from vmapseeds.errors import (
  UserError,
  hide_own_frames,
  hide_own_frames_of_methods,
  option,
)
from vmapseeds.reports import over_tasks, pages, plots
from vmapseeds.reports.documents import Cell, Document, Figure, Section, Table
from vmapseeds.reports.findings import (
  FindingsOfMany,
  check_above_0,
  command_to_repeat,
)
from vmapseeds.reports.groups import Where, format_values
from vmapseeds.reports.over_tasks import (
  OnTasks,
  Together,
  all_together,
  with_units,
  within_tasks,
)
from vmapseeds.reports.sides import (
  SAME_SEEDS,
  Side,
  check_comparable,
  in_order_of,
  match,
  performance_on_examples,
  read_side,
  settings_of_side,
  sides_by_value,
  which_sources_vary,
)
from vmapseeds.reports.sources import Source, how_read, read_source, report_folder
from vmapseeds.reports.step_curves import StepCurves, curves_of, figure_of_curves
from vmapseeds.reports.verdict import (
  BETTER,
  Comparison,
  compare_values,
  describe_spread,
  gap,
  headline,
  names_by_lead,
  sd_of,
  what_is_drawn,
)
from vmapseeds.results.description import parsed_attribute
from vmapseeds.results.formatting import (
  ACCURACY,
  Quantity,
  capitalized,
  finite_or_none,
  run_count,
  show,
  show_difference,
  show_interval,
)
from vmapseeds.results.measured_runs import (
  is_higher_better,
  quantity_of,
  roles,
  values_of_runs,
)
from vmapseeds.results.opening import resolve_test_set
from vmapseeds.results.score_tables import ScoreColumns, ScoreTable
from vmapseeds.results.units import plural
from vmapseeds.stats.designs import paired_units
from vmapseeds.target import moves_data

LETTERS = string.ascii_uppercase
MOST_LINES = 200  # pairs of runs that are drawn as lines
MOST_LETTERS_OF_LABEL = 28  # of a side's name in a figure
_FOOTER = """Intervals of 95 %. Those over runs are what other runs on the same test \
examples would give; those over runs and examples what other runs on other examples of the \
same kind would. If two recipes are the same, the first sentence calls one of them better in \
at most 5 % of cases, whatever the law and number of runs; where runs share seeds or folds, a \
sentence says what is drawn anew, and intervals are over that."""
_INTERVALS = """Difference of means with its 95 % interval: thick over runs, on these test \
examples; thin over runs and examples. Dots: differences of paired runs."""


@hide_own_frames_of_methods
class Comparisons(FindingsOfMany[Comparison]):
  """Which of two or more recipes is better: what `vs.compare` returns.

  It is the sequence of what is compared, a `Comparison` for each two. Of two recipes that
  one can be asked directly: `vs.compare(a, b).verdict`, `sentence`, `leads`, `found`,
  `p_value`, `outperforming` and `elsewhere`.

  `tables` are "comparisons" and "sides"; of runs on several tasks "tasks" and "means"; of a
  table with several steps of each run "curves". `notes` are what a reader must know before
  believing the numbers. `print`, `save` and a notebook show it.
  """

  def __init__(self, compared: "Compared", folder: Path | UPath | None, call: str):
    document = comparison_document(compared)
    super().__init__(compared.comparisons, document, compared.tables, folder, call)
    # They are among the first sentences, where nobody misses them.
    self._notes = compared.notes

  @property
  def notes(self) -> list[str]:
    return self._notes

  @property
  def only(self) -> Comparison:
    """Return the comparison of two recipes.

    Raises:
      UserError: more than two are compared.
    """
    if len(self) > 1:
      raise UserError(
        f"{len(self)} comparisons were made: take one of them, such as comparisons[0]"
      )
    return self[0]

  def __getattr__(self, name: str) -> Any:
    """Return what the comparison of two recipes says, such as its `verdict`."""
    if name.startswith("_") or not hasattr(Comparison, name):
      raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
    return getattr(self.only, name)


class Compared(NamedTuple):
  """What is compared, and what came out: all that tables and pages are made of."""

  sides: Mapping[str, Side]
  comparisons: Sequence[Comparison]
  sentences: Sequence[Sequence[str]]  # of each comparison
  notes: list[str]  # those of the sentences that are about what is compared
  scores: Mapping[str, np.ndarray]  # of each side, if they are set together
  quantity: Quantity
  test_set: str
  tables: dict[str, pd.DataFrame]
  together: Together | None = None  # what all tasks say
  curves: StepCurves | None = None

  @property
  def first(self) -> Side:
    return next(iter(self.sides.values()))

  @property
  def pairs(self) -> list[tuple[str, str]]:
    return [comparison.names for comparison in self.comparisons]

  @property
  def single(self) -> Comparison | None:
    """Return the comparison, if there is but one."""
    if len(self.comparisons) > 1:
      return None
    return self.comparisons[0]


@hide_own_frames
@moves_data
def compare(
  a: Source,
  *others: Source,
  where: Where = None,
  against: Where = None,
  by: str | Sequence[str] | None = None,
  over: Sequence[str] = (),
  all_pairs: bool = False,
  margin: float | None = None,
  test_set: str = "test",
  epoch: int | None = None,
  paired: bool | None = None,
  output: str | None = None,
  **columns: Unpack[ScoreColumns],
) -> Comparisons:
  """Return which recipe is better by the mean accuracy, mean loss or score of its runs, by
  how much, and how often its run beats one of the other. Nothing is printed or written.

  ::

    comparison = vs.compare("results/a", "results/b")
    comparison.sentence
    comparison.print()
    comparison.save()  # results/a/report/against_b/compare.html
    vs.compare("scores.csv", by="model", score="rmse", lower_is_better=True).print()

  What is compared are means over what is drawn anew: of each seed where runs of one seed
  share folds or swept values; of folds where there is one seed; of crossed sources by the
  analysis of variance. A sentence in `notes` says so where it is not runs.

  The first sentence of a comparison is two-sided. If A and B are the same, it calls one
  of them better in at most 5 % of cases, at any number of runs; of several comparisons
  any of them, by Holm's method. It is about other runs on the same test examples. The
  next one is about other runs on other examples of the same kind; it needs the
  predictions or losses, at most 256 MiB of them.

  A is better if its loss, or a score of which lower is better, is lower. Diverged runs
  are left out, and those of which the output is undefined, as a note says. `save` writes `compare.html`, `compare.json`, `compare.csv` and figures
  into the folder `report` of A's results, in its subfolder `against_<B>`. A test set other
  than the recipe's first, a chosen epoch, `where` and an output other than the first add a
  subfolder each above that, such as `report/lr=0.02/against_lr=0.05`.

  Args:
    a: results folder of A; or a table of scores, a row for each run: a frame of pandas or
      polars, or a file (`.csv`, `.tsv`, `.parquet`, `.xlsx`, `.json`, `.jsonl`).
    others: results folders or tables of B, C and so on; that of A by default.
    where: column -> value or values. Takes only the runs of A that have them. Swept
      columns must be named.
    against: likewise for the others.
    by: columns of a single folder or table whose values are compared, such as "model",
      every two of them. `where` takes runs of all of them then, and `against` is the one
      that all others are compared with. By default the columns of text of a table.
    over: swept columns that are not what is asked about, such as ["optimizer"]: runs of
      the same seeds are averaged over their values, and these means are compared as runs
      are. Seeds that lack a value are left out.
    all_pairs: compare every two of the folders, not only A with each of the others.
    margin: difference that does not matter, in the unit that is printed: percentage
      points of accuracy. If the interval lies within it, A and B are called equal.
    test_set: which test set.
    epoch: after which epoch, for runs trained with `evaluate_every`; None for the end.
    paired: None pairs the runs that have the same seeds on both sides, if they are more
      than half of the smaller side. Otherwise (other sources vary, or runs were
      imported and have no seeds) it compares all against all, as it does where 4 or 5
      pairs could show nothing. True pairs the finished
      runs row by row, False compares all against all.
    output: which output of role class, loss or score; by default the first of A.
    **columns: what the columns of a table are: see `ScoreColumns`.

  Test examples with ids are matched by these, and classes with names by these; others by
  their places and numbers.

  Returns:
    a `Comparisons`: `tables`, `figures` and `notes`; `print` and `save` it. Of two recipes
    it has `sentence`, `verdict`, `found` (the difference, its interval, p),
    `outperforming` (P(A > B) and its interval) and `elsewhere` (over runs and examples).
    It is also the sequence of these for each two that are compared.

  Raises:
    UserError: a folder has no finished runs, the test examples differ, columns, values or
      the output are unknown, swept values would be pooled, the margin is not above 0, or
      paired=True with unequal numbers of runs.
  """
  # All that can be said without reading results comes first.
  margin = check_above_0("margin", margin)
  if paired not in (None, True, False):
    raise UserError(f"paired is {paired!r:.100}: give True, False or None")
  # A text is a sequence of letters, not of columns.
  over = (over,) if isinstance(over, str) else tuple(over)
  # Two choices of one table's rows, rather than all values of a column.
  chosen = () if by or not (where and against) else tuple({**where, **against})
  asked, asked_margin = where, margin
  rows = None if chosen else where
  a, *others = [
    read_source(source, by, rows, chosen, columns) for source in (a, *others)
  ]
  if isinstance(a, ScoreTable) and not chosen:
    by, where = a.by, None
  _check_number_of_sides(others, against, by)

  read = functools.partial(
    read_side, test_set=test_set, epoch=epoch, output=output, over=over
  )
  if by and not others:
    sides = sides_by_value(a, by, where, read)
    pairs = _pairs_of_values(sides, against)
  else:
    sides = {"A": read(a, where, "where")}
    # Without a second folder, two values of one folder are compared.
    for letter, folder in zip(LETTERS[1:], others or (a,), strict=False):
      sides[letter] = read(folder, against, "against", output=sides["A"].output)
    pairs = _pairs_of_names(sides, all_pairs)
  first, *rest = sides
  for name in rest:
    sides[name] = in_order_of(sides[first], sides[name])
    check_comparable(sides[first], sides[name])
  curves = curves_of(sides)
  sides, on_tasks = with_units(sides)
  first = sides[first]

  resolved = resolve_test_set(parsed_attribute(first.results, "test_sets"), test_set)
  quantity = quantity_of(first.output, first.info)
  # The user gives it as it is printed, such as in percentage points.
  if margin is not None:
    margin /= quantity.scale
  comparisons = _compare_all(pairs, sides, on_tasks, paired, margin, quantity)

  remarks = _remarks(sides, over)
  if curves is not None:
    remarks += curves.left_out
  tables = {
    "comparisons": comparisons_frame(comparisons),
    "sides": sides_frame(sides, on_tasks),
  }
  together = None
  if on_tasks is not None:
    remarks.append(on_tasks.drawn)
    together = all_together(on_tasks, pairs)
    tables |= {"tasks": together.sides, "means": on_tasks.table}
  if curves is not None:
    tables["curves"] = curves.table
  sentences, notes = _sentences(comparisons, sides, remarks)
  # Scores are set together only if the user did not ask for one of them.
  scores = {} if output or over or on_tasks else _scores_together(sides)
  compared = Compared(
    sides,
    comparisons,
    sentences,
    notes,
    scores,
    quantity,
    resolved,
    tables,
    together,
    curves,
  )
  return Comparisons(
    compared,
    _page_folder(a, others, first, asked, against, by, resolved),
    command_to_repeat(
      "compare",
      (a, *others),
      by=None if isinstance(a, ScoreTable) else by,
      where=asked,
      against=against,
      test_set=test_set,
      epoch=epoch,
      over=over,
      all_pairs=all_pairs,
      margin=asked_margin,
      paired=paired is True,
      unpaired=paired is False,
      output=output,
    ),
  )


def _check_number_of_sides(
  others: Sequence[Source], against: Where, by: Sequence[str] | str | None
) -> None:
  if not others and not against and not by:
    raise UserError(
      "one results folder, and nothing to compare it with: give a second one, or e.g. "
      f"{option('against', {'lr': 0.05})}"
    )
  # Sides are called by letters.
  if len(others) >= len(LETTERS):
    raise UserError(
      f"{len(others) + 1} results folders: give at most {len(LETTERS)} at once"
    )


def _pairs_of_values(
  sides: Mapping[str, Side], against: Where
) -> list[tuple[str, str]]:
  """Return every two of the sides, or each with the one that has the values `against`.

  Raises:
    UserError: none has, or several have.
  """
  if not against:
    return list(itertools.combinations(sides, 2))
  chosen = []
  for name, side in sides.items():
    values = side.where or {}
    # The command line gives a list of one.
    if all(values.get(k) in np.atleast_1d(v).tolist() for k, v in against.items()):
      chosen.append(name)
  if len(chosen) != 1:
    raise UserError(
      f"{option('against')} is {format_values(against)}: give the values of one of "
      f"{', '.join(sides)}"
    )
  return [(name, chosen[0]) for name in sides if name != chosen[0]]


def _pairs_of_names(
  sides: Mapping[str, Side], all_pairs: bool
) -> list[tuple[str, str]]:
  if all_pairs:
    return list(itertools.combinations(sides, 2))
  # Fewer comparisons leave each of them more power.
  return [("A", name) for name in sides if name != "A"]


def _compare_all(
  pairs: Sequence[tuple[str, str]],
  sides: Mapping[str, Side],
  on_tasks: OnTasks | None,
  paired: bool | None,
  margin: float | None,
  quantity: Quantity,
) -> list[Comparison]:
  """Return the comparison of each pair of names, with p-values by Holm's method."""
  comparisons = [
    _compare(names, sides, on_tasks, paired, margin, quantity) for names in pairs
  ]
  # Any of many would be called better by chance sooner or later.
  adjusted = stats.holm([comparison.p_value for comparison in comparisons])
  return [
    comparison._replace(p_value=float(p_value), comparisons=len(comparisons))
    for comparison, p_value in zip(comparisons, adjusted, strict=True)
  ]


def _compare(
  names: tuple[str, str],
  sides: Mapping[str, Side],
  on_tasks: OnTasks | None,
  paired: bool | None,
  margin: float | None,
  quantity: Quantity,
) -> Comparison:
  a, b = sides[names[0]], sides[names[1]]
  rows, designs, matching = match(a, b, paired)
  # Runs may share seeds with each other, and their means have partners.
  share_seeds = not all(design.independent_runs for design in designs)
  if not matching and paired is None and share_seeds and paired_units(*designs):
    matching = SAME_SEEDS
  few_pairs = 0
  if matching and paired is None and _could_show_more_unpaired(designs):
    few_pairs = designs[0].values.size
    rows, designs, matching = match(a, b, False)

  # It needs predictions or losses, which need not be kept.
  elsewhere = networks = None
  examples_of_a = performance_on_examples(a, rows[0])
  examples_of_b = performance_on_examples(b, rows[1])
  independent = all(design.independent_runs for design in designs)
  if examples_of_a is not None and examples_of_b is not None and independent:
    elsewhere = stats.compare_means_on_other_examples(
      examples_of_a, examples_of_b, bool(matching)
    )
    if len(examples_of_a) == len(examples_of_b) == 1:
      networks = _compare_networks(examples_of_a[0], examples_of_b[0])

  comparison = compare_values(
    *designs,
    matching=matching,
    few_pairs=few_pairs,
    networks=networks,
    names=names,
    elsewhere=elsewhere,
    margin=margin,
    of=quantity,
    higher_is_better=is_higher_better(a.info),
    examples=a.examples or None,
  )
  if on_tasks and on_tasks.tasks:
    comparison = within_tasks(comparison, rows, on_tasks)
  return comparison


def _could_show_more_unpaired(designs: Sequence[stats.Design]) -> bool:
  """Return whether pairs are too few for any verdict, and as many runs of each are not."""
  if not all(design.exchangeable for design in designs):
    return False
  units = min(design.values.size for design in designs)
  fewest_pairs, fewest_of_each = map(stats.runs_for_significance, (True, False))
  return fewest_of_each <= units < fewest_pairs


def _compare_networks(
  a: np.ndarray, b: np.ndarray
) -> tuple[stats.Difference, tuple[int, int] | None]:
  """Return the difference of two networks over examples and, if these are right or wrong,
  how many each alone has right.
  """
  found = stats.compare_networks(a, b)
  if a.dtype != bool:
    return found, None
  return found, (int((a & ~b).sum()), int((b & ~a).sum()))


# Sentences.


def _warnings(sides: Mapping[str, Side], names: tuple[str, str]) -> list[str]:
  """Return a sentence if one side has a single seed of a source that varies on the other:
  its mean rests on that seed.
  """
  a, b = names
  varying_a, varying_b = which_sources_vary(sides[a]), which_sources_vary(sides[b])
  clauses = []
  for name, own, other in ((a, varying_a, varying_b), (b, varying_b, varying_a)):
    fixed = []
    for source, varies in own.items():
      if not varies and other.get(source):
        fixed.append(source)
    # Of a single run nothing varies, and nobody takes it for a mean.
    if fixed and any(own.values()):
      clauses.append(
        f"{name} has one seed of {' and '.join(fixed)}, which the other varies"
      )
  if not clauses:
    return []
  return [
    f"The means are not comparable: {'; '.join(clauses)}. Such a mean rests on that one "
    "seed: vary the same sources, or cross them, as --vary init --repeat order=5 does."
  ]


def _remarks(sides: Mapping[str, Side], over: Sequence[str]) -> list[str]:
  """Return of which runs there is no number, and what a run stands for, if it is not a
  run of its own.
  """
  remarks = []
  for name, side in sides.items():
    if side.undefined:
      remarks.append(f"{name}: {side.undefined}")
  levels = next(iter(sides.values())).levels
  if levels and over:
    remarks.append(
      f"A run stands for the mean over {format_values(levels)} of runs of "
      "the same seeds."
    )
  return remarks


def _sentences(
  comparisons: Sequence[Comparison], sides: Mapping[str, Side], remarks: Sequence[str]
) -> tuple[list[list[str]], list[str]]:
  """Return the sentences of each comparison, what is about all in the first; and those that
  a reader must know before believing the others, each once.
  """
  sentences: list[list[str]] = []
  notes: list[str] = []
  for comparison in comparisons:
    warnings = _warnings(sides, comparison.names)
    units = what_is_drawn(comparison)
    sentences.append([*warnings, *headline(comparison), *units])
    notes += [*warnings, *units]
  sentences[0].extend(remarks)
  return sentences, list(dict.fromkeys([*notes, *remarks]))


# The document.


def comparison_document(compared: Compared) -> Document:
  """Return what there is to say of a comparison."""
  sides, quantity, single = compared.sides, compared.quantity, compared.single
  names = _short_names(sides)
  first, *others = names.values()
  understood = how_read(side.opened for side in sides.values())
  about = " ".join(understood) or f"test set: {compared.test_set}"
  on_all_tasks = []
  if compared.together is not None:
    on_all_tasks.append(over_tasks.section(compared.together, quantity))

  full_names = {letter: side.name for letter, side in sides.items()}
  cells = {letter: Cell(names[letter], small=full_names[letter]) for letter in sides}
  of_comparisons = _table_of_comparisons(compared.comparisons)
  of_scores = _table_of_scores(compared)
  brief = [_table_of_sides(compared, full_names), of_comparisons, *of_scores]
  top = Section(tables=[_table_of_sides(compared, cells), of_comparisons, *of_scores])
  paragraphs = [" ".join(lines) for lines in compared.sentences]
  details = []
  if single:
    # It has said all of it in its sentences; the page has more.
    brief.remove(of_comparisons)
    top = top._replace(lead=paragraphs[0])
    sentences = list(describe_spread(single))
    details.append(Section("What else the runs say", sentences=sentences))
  else:
    # Several verdicts in larger type would be read as one text.
    top = top._replace(sentences=paragraphs)
  return Document(
    name="compare",
    title=f"{first} against {', '.join(others)}",
    under=f"{quantity.name} · {about}",
    brief=[
      Section(sentences=list(itertools.chain(*compared.sentences)), tables=brief),
      *on_all_tasks,
    ],
    # Others are among the first sentences.
    notes=understood,
    sections=[
      top,
      Section("Figures", figures=_figures(compared)),
      *on_all_tasks,
      *details,
      _differing_settings(sides),
    ],
    record=_record(compared),
    footer=_FOOTER,
  )


def _short_names(sides: Mapping[str, Side]) -> dict[str, str]:
  """Return the shortest names that tell the sides apart."""
  # Paths say where results lie, and hide what tells them apart.
  folders = pages.short_names([side.folder for side in sides.values()])
  names = {}
  for (letter, side), folder in zip(sides.items(), folders, strict=True):
    if letter not in LETTERS:
      # A value of one folder is called by itself.
      names[letter] = letter
      continue
    # What follows the folder: the selected runs, and the epoch.
    rest = side.name.removeprefix(str(side.folder))
    names[letter] = f"{folder}{rest}"
  return names


def _differing_settings(sides: Mapping[str, Side]) -> Section:
  """Return in which settings the recipes differ."""
  heading = "What differs between the recipes"
  settings = {letter: settings_of_side(side) for letter, side in sides.items()}
  # Recipes of two versions may have other settings.
  frame = pd.DataFrame(settings).fillna("–")
  differing = frame[frame.nunique(axis=1) > 1]
  if differing.empty:
    return Section(heading, sentences=["No setting that is stored with the results."])
  rows = list(differing.itertuples(name=None))
  return Section(heading, tables=[Table("", ("setting", *sides), rows)])


def _page_folder(
  a: Source,
  others: Sequence[Source],
  first: Side,
  where: Where,
  against: Where,
  by: Sequence[str] | str | None,
  test_set: str,
) -> Path | UPath | None:
  """Return the folder for the page of A's comparison with the others, in A's report."""
  top = report_folder(a)
  if top is None:
    return None
  other_names = ", ".join(pages.path_parts(other)[-1] for other in others)
  output = ""
  # The first output's page is where a reader looks first.
  if first.output != first.first_output:
    output = first.output
  compared = f"against_{pages.join_names(other_names, format_values(against))}"
  if by and not others:
    columns = [by] if isinstance(by, str) else by
    of_one = format_values(against) and f"against {format_values(against)}"
    compared = pages.join_names(f"by_{'_'.join(columns)}", of_one)
  return pages.nested_folder(
    top,
    *pages.subfolders_of(first.results, test_set),
    format_values(where),
    output,
    compared,
  )


def _table_of_sides(compared: Compared, names: Mapping[str, str | Cell]) -> Table:
  quantity = compared.quantity
  on_one_task = compared.together is not None and compared.together.on.sds
  rows = []
  for letter, row in compared.tables["sides"].to_dict("index").items():
    side = compared.sides[letter]
    sd = show(row["sd"], None, quantity.unit)
    # Its interval takes runs as independent, of one law.
    if side.design.independent_runs and not on_one_task:
      sd = sd_of(side.finite_values, quantity)
    mean = show(row["mean"], row["se"], quantity.unit)
    rows.append((letter, str(row["runs"]), mean, sd, names[letter]))
  headings = ("", "runs", quantity.name, "sd of a run (95 % interval)", "results")
  return Table("", headings, rows)


def _table_of_comparisons(comparisons: Sequence[Comparison]) -> Table:
  rows = []
  for comparison in comparisons:
    value, ends, unit = show_difference(gap(comparison, of_b=True), comparison.of.unit)
    # Too few runs have no interval.
    if np.isfinite(comparison.found.low):
      value += f" ({ends})"
    probability, low, high = comparison.outperforming
    outperforms = show(1 - probability, None, "fraction")
    # Units that share something have no interval of it.
    interval = show_interval(1 - high, 1 - low, "fraction")
    if interval:
      outperforms += f" ({interval})"
    verdict = comparison.verdict
    # Alone it would not say which.
    if verdict == BETTER:
      verdict = f"{names_by_lead(comparison)[0]} is better"
    first, second = comparison.names
    name, p = f"{second} - {first}", f"{comparison.p_value:.2g}"
    rows.append((name, f"{value}{unit}", outperforms, p, verdict))
  headings = ("", "difference (95 % interval)", "P(first > second)", "p", "verdict")
  caption = "The difference is positive where the first is better."
  if len(comparisons) > 1:
    caption = """p and verdict by Holm's method: in at most 5 % of cases is any of equal \
recipes called better. Each interval is for itself. Differences are positive where the \
first is better."""
  return Table(caption, headings, rows)


def _scores_together(sides: Mapping[str, Side]) -> dict[str, np.ndarray]:
  """Return the scores (runs, outputs) of each side, if all have several outputs of role
  score in one unit, of which higher is better; else nothing.
  """
  outputs = roles(next(iter(sides.values())).opened)
  scores = {name: info for name, info in outputs.items() if info["role"] == "score"}
  # A mean over outputs has no meaning if they differ in unit or direction, and of returns
  # and costs it would reward neither.
  units = {info.get("unit") for info in scores.values()}
  if (
    len(scores) < 2 or len(units) > 1 or not all(map(is_higher_better, scores.values()))
  ):
    return {}
  of_sides = {}
  for letter, side in sides.items():
    # The other side may have declared other outputs.
    if not set(scores) <= set(side.opened.variables):
      return {}
    of_runs = np.stack([values_of_runs(side.opened, name) for name in scores], axis=1)
    # A run counts with all of its scores, or not.
    of_sides[letter] = of_runs[np.isfinite(of_runs).all(axis=1)]
  if not all(map(len, of_sides.values())):
    return {}
  return of_sides


def _table_of_scores(compared: Compared) -> list[Table]:
  """Return the table of all scores together, if they are set together."""
  scores = compared.scores
  if not scores:
    return []
  rows = []
  means = over_tasks.interquartile_means_of(scores)
  for name, mean, low, high in means.reset_index().to_numpy().tolist():
    cells = show(mean, None, "number"), show_interval(low, high, "number")
    rows.append([f"interquartile mean of {name}", *cells])
  improvements = over_tasks.improvements_of(scores, compared.pairs)
  rows += over_tasks.rows_of_improvements(improvements, " on one of them")
  outputs = next(iter(scores.values())).shape[1]
  caption = f"""All {outputs} scores together (Agarwal 2021), as they are: they must be \
comparable. A run of which one is undefined is left out. Intervals: bootstrap of the runs, on \
each score for itself."""
  return [Table(caption, ("", "value", "95 % interval"), rows)]


# Figures.


def _figures(compared: Compared) -> dict[str, Figure]:
  labels = _labels(compared.sides)
  figures = {
    "differences": _figure_of_differences(compared, labels),
    "distributions": _figure_of_distributions(compared, labels),
  }
  comparison = compared.single
  # More lines than that are a band.
  if comparison and comparison.paired and len(comparison.a) <= MOST_LINES:
    figures["pairs"] = _figure_of_pairs(comparison, labels)
  if compared.curves is not None:
    figures["curves"] = figure_of_curves(compared.curves, compared.quantity)
  if compared.scores:
    scores = {labels[letter]: of_side for letter, of_side in compared.scores.items()}
    figures["profiles"] = Figure(
      "Performance profiles",
      "The fraction of all scores, of all runs and outputs, above each value.",
      functools.partial(plots.performance_profiles, scores),
    )
  return figures


def _labels(sides: Mapping[str, Side]) -> dict[str, str]:
  """Return what figures call each side: its letter and its short name."""
  labels = {}
  for letter, name in _short_names(sides).items():
    # A figure leaves the page for a talk, where no table says what a letter is.
    if len(name) > MOST_LETTERS_OF_LABEL:
      name = f"{name[: MOST_LETTERS_OF_LABEL - 1]}…"
    labels[letter] = name if name == letter else f"{letter} ({name})"
  return labels


def _figure_of_differences(compared: Compared, labels: Mapping[str, str]) -> Figure:
  quantity = compared.quantity
  rows = []
  for comparison in compared.comparisons:
    dots = None
    if comparison.paired:
      dots = comparison.b - comparison.a
      # As the interval: positive where the second is better.
      if not comparison.higher_is_better:
        dots = -dots
    first, second = comparison.names
    name = f"{labels[second]}\nless {labels[first]}"
    both = comparison.over_runs_and_examples
    if both:
      _, low, high = gap(comparison, of_b=True, ends=both)
      both = low, high
    rows.append((name, dots, gap(comparison, of_b=True), both))

  # One margin was given for all.
  margin = compared.comparisons[0].margin
  return Figure(
    "Differences of means",
    _INTERVALS,
    lambda ax: plots.differences(rows, ax, of=quantity, margin=margin),
    1.8 + 0.6 * len(rows),
    " ".join(comparison.sentence for comparison in compared.comparisons),
  )


def _figure_of_distributions(compared: Compared, labels: Mapping[str, str]) -> Figure:
  """Return histograms of two sides over each other, or boxes of more beside each other."""
  sides, quantity = compared.sides, compared.quantity
  height = None
  if len(sides) == 2:
    # Of paired runs those alone that are compared.
    values = compared.comparisons[0].sides
    draw = functools.partial(_draw_histograms, examples=compared.first.examples)
  else:
    values = {letter: side.finite_values for letter, side in sides.items()}
    draw = plots.accuracies_side_by_side
    height = max(4.0, 1 + 0.5 * len(sides))

  labelled = {labels[letter]: numbers for letter, numbers in values.items()}
  means = []
  for name, numbers in labelled.items():
    mean = show(numbers.mean(), None, quantity.unit)
    means.append(f"{name} has {run_count(len(numbers))} with a mean of {mean}")
  return Figure(
    f"{capitalized(quantity.name)} over runs",
    "The runs that are compared.",
    functools.partial(draw, labelled, of=quantity),
    height,
    f"{'; '.join(means)}.",
  )


def _draw_histograms(
  values: Mapping[str, np.ndarray], ax: Axes, *, examples: int, of: Quantity
) -> Axes:
  # Accuracies are multiples of one over the number of examples, on which bins are laid.
  tested = None
  if of is ACCURACY:
    tested = examples
  edges = plots.bin_edges(list(values.values()), tested, of)
  for name, x in values.items():
    label = f"{name}, {run_count(len(x))}: mean {show(x.mean(), None, of.unit)}"
    plots.accuracy_histogram(x, ax, edges=edges, label=label, of=of)
  # Names are long: inside the axes the legend would lie on the bars.
  return plots.finish_axes(ax, ax.get_xlabel(), ax.get_ylabel(), above=1)


def _figure_of_pairs(comparison: Comparison, labels: Mapping[str, str]) -> Figure:
  a, b = comparison.names
  sides = {labels[letter]: values for letter, values in comparison.sides.items()}
  higher = int((comparison.a > comparison.b).sum())
  equal = int((comparison.a == comparison.b).sum())
  count = len(comparison.a)
  return Figure(
    f"{capitalized(comparison.of.name)} of paired runs",
    f"A line is a pair of {plural(comparison.unit)} with {comparison.matching}; the thick one joins the means.",
    lambda ax: plots.paired_lines(sides, ax, of=comparison.of),
    finding=(
      f"{labels[a]} is higher than {labels[b]} in {higher} of {count} pairs, and equal in {equal}."
    ),
  )


# Numbers.


def comparisons_frame(comparisons: Sequence[Comparison]) -> pd.DataFrame:
  """Return a row for each comparison; fractions are not in percent."""
  rows = [_numbers_of_comparison(comparison) for comparison in comparisons]
  names = pd.MultiIndex.from_tuples(
    [comparison.names for comparison in comparisons], names=["first", "second"]
  )
  return pd.DataFrame(rows, names)


def sides_frame(sides: Mapping[str, Side], on_tasks: OnTasks | None) -> pd.DataFrame:
  """Return a row for each side: results, runs, mean, its standard error, and the standard
  deviation of a run: on its task, if runs are of several.
  """
  rows = {}
  for letter, side in sides.items():
    values, mean = side.finite_values, side.design.mean()
    row = {"results": side.name, "runs": len(values), "mean": float(mean)}
    if on_tasks is not None and on_tasks.sds:
      sd = on_tasks.sds[letter]
      row |= {"se": sd / len(values) ** 0.5, "sd": sd}
    else:
      variance = stats.variance_over_runs(values)
      row |= {"se": float(mean.se), "sd": float(np.sqrt(variance))}
    rows[letter] = row
  return pd.DataFrame.from_dict(rows, orient="index")


def _record(compared: Compared) -> dict[str, Any]:
  """Return all numbers, ready for JSON."""
  # What is no accuracy is named by "output" alone.
  suffix = "_accuracy" if compared.quantity is ACCURACY else ""
  sides = {}
  for letter, row in compared.tables["sides"].to_dict("index").items():
    side = compared.sides[letter]
    where = side.where or {}
    sides[letter] = {
      "folder": str(side.folder),
      "where": {name: np.atleast_1d(values).tolist() for name, values in where.items()},
      "runs": row["runs"],
      f"mean{suffix}": finite_or_none(row["mean"]),
      f"sd{suffix}": finite_or_none(row["sd"]),
    }
  comparisons = []
  for c, lines in zip(compared.comparisons, compared.sentences, strict=True):
    numbers = _numbers_of_comparison(c) | {"runs": [len(c.a), len(c.b)]}
    sentences = [*lines, *describe_spread(c)]
    comparisons.append({"names": c.names, **numbers, "sentences": sentences})
  further: dict[str, Any] = {}
  if compared.curves is not None:
    further["curves"] = compared.curves.table.reset_index().to_dict("records")
  if compared.together is not None:
    further["tasks"] = over_tasks.record(compared.together)
  first = compared.first
  return {
    **further,
    "output": first.output,
    "test_set": compared.test_set,
    "epoch": first.results.attrs.get("epoch"),
    "margin": compared.comparisons[0].margin,
    "sides": sides,
    "comparisons": comparisons,
  }


def _numbers_of_comparison(c: Comparison) -> dict[str, Any]:
  p, low, high = c.outperforming
  both = c.over_runs_and_examples or (None, None)
  # JSON has no infinite ends, which too few runs have.
  return {
    "runs": min(len(c.a), len(c.b)),
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
    "probability_low": finite_or_none(low),
    "probability_high": finite_or_none(high),
    "drawn": dict(zip(c.designs[0].drawn, c.designs[0].counts, strict=True)),
    "leads": names_by_lead(c)[0],
  }
