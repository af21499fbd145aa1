"""What every experiment shares: its flags, its campaigns, and how numbers, figure and table are written.

An experiment module trains through `Setting.train`, reduces the errors with its own pure `compute`, and
hands numbers, table rows and its `plot` to `write`, which saves `<name>.json`, `<name>.png` and
`<name>.md`.
"""

import dataclasses
import hashlib
import io
import itertools
import json
import math
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro
import xarray as xr
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from upath import UPath

import vmapseeds as vs
from vmapseeds import lanes, models, stats
from vmapseeds.cli import overrides, parse
from vmapseeds.mistakes import Mistake, at_least
from vmapseeds.store import files
from vmapseeds.store.folders import check_writable

QUICK_RUNS = 16


def _arg(metavar: str, default: str | None = None) -> Any:
  return tyro.conf.arg(metavar=metavar, help_behavior_hint=default and f"(default: {default})")


@dataclasses.dataclass(frozen=True)
class Flags:
  """What a figure is made from and where it goes."""

  recipe: Annotated[str, _arg("RECIPE")] = "digits_cnn"
  """what to train: a name that `vmapseeds recipes` lists"""

  epochs: Annotated[tuple[int, ...] | None, _arg("E [E ...]", "by recipe")] = None
  """training durations in epochs"""

  runs: Annotated[int | None, _arg("N", "by recipe")] = None
  """runs of each duration, and of each group where there are groups"""

  seed_batch: Annotated[int | None, _arg("S", "256, or what fits in memory")] = None
  """runs trained between two writes; an interruption loses at most these"""

  lane_width: Annotated[int | None, _arg("N", "the campaign's, else measured")] = None
  """lanes that a device advances together"""

  lowering: Annotated[str | None, _arg("NAME", "the campaign's, else measured")] = None
  """how convolutions run their lanes: im2col, grouped or sequential"""

  set: Annotated[tuple[str, ...], _arg("FIELD=VALUE", "none")] = ()
  """recipe fields to change, e.g. width=0.25 dataset=cifar10"""

  out: Annotated[str | None, _arg("DIR", "results/<paper>/<experiment>/<recipe>")] = None
  """folder for numbers, figure and table; by default that of a quick run ends in -quick"""

  campaigns: Annotated[str, _arg("DIR")] = "results/campaigns"
  """folder of trained runs, which experiments share: what is there is not trained again"""

  quick: tyro.conf.FlagCreatePairsOff[bool] = False
  """short durations and 16 runs by default: shows that everything works; its numbers mean little"""


class Defaults(NamedTuple):
  """An experiment's default durations and number of runs for a recipe."""

  epochs: tuple[int, ...]
  runs: int


@dataclasses.dataclass(frozen=True)
class Setting:
  """The flags with every default filled in."""

  paper: str  # the experiment's folder and module
  experiment: str
  recipe: vs.Recipe
  epochs: tuple[int, ...]
  runs: int
  options: vs.Options
  out: Path | UPath
  campaigns: Path | UPath
  quick: bool
  used: dict[str, dict[str, Any]]  # campaigns read so far: their runs and what these depend on
  flags: Flags | None = None  # as given, with those that are the experiment's own

  def train(
    self, epochs: int, runs: vs.Runs | None = None, suffix: str = "", logits: bool = False
  ) -> xr.Dataset:  # fmt: skip
    """The results of the first `self.runs` runs of this duration: independent ones, or of another table.

    The campaign's folder is named after the recipe, its hash and, for another table than independent runs,
    `suffix`: experiments find each other's runs, and a shorter or longer table retrains none. Runs with logits
    have their own.
    """
    recipe = self.recipe.replace(epochs=epochs)
    lanes.start_jax()
    meant = recipe.replace(precision=models.resolved(recipe.precision))
    digest = hashlib.sha256(meant.to_json().encode()).hexdigest()[:8]
    folder = self.campaigns / f"{recipe.name}-{epochs}epochs-{digest}{suffix}{'-logits' * logits}"
    print(f"{folder.name}: {self.runs} runs", file=sys.stderr)
    runs = vs.Runs.independent(self.runs) if runs is None else runs
    results = vs.train(recipe, runs, folder, **vars(self.options) | {"logits": logits}).isel(run=slice(self.runs))
    counts = {"runs": results.sizes["run"], "diverged": int(results.diverged.sum())}
    self.used[folder.name] = counts | {k: results.attrs[k] for k in CONDITIONS}
    if counts["diverged"]:
      print(f"{counts['diverged']} runs diverged and are left out", file=sys.stderr)
    return results

  @property
  def is_papers(self) -> bool:
    """Whether this trains what the paper did: its ResNet-9 on CIFAR-10, by either of its input pipelines."""
    return any(self.recipe.replace(epochs=r.epochs) == r for r in map(vs.recipe, PAPERS_RECIPES))


CONDITIONS = ("device_kind", "lane_width", "lowering", "precision", "versions")
PAPERS_RECIPES = ("resnet9_cifar10", "resnet9_cifar10_published")


def settings(
  module: str, doc: str, argv: Sequence[str] | None, defaults: Mapping[str, Defaults], quick: tuple[int, ...],
  flags: type[Flags] = Flags,
) -> Setting:  # fmt: skip
  """An experiment's command line. `Mistake` for what does not fit, before any device is touched.

  Args:
    module: the `__file__` of the experiment.
    doc: its docstring, shown by --help.
    argv: None for the program's own.
    defaults: by recipe, "" for all others.
    quick: the durations of --quick.
    flags: with those of the experiment's own.
  """
  paper, experiment = Path(module).parent.name, Path(module).stem
  by_recipe = [f"{r or 'others'} {' '.join(map(str, d.epochs))}, {d.runs}" for r, d in defaults.items()]
  doc = f"{doc}\nDefault --epochs and --runs by recipe: {'; '.join(by_recipe)}."
  target = type("Flags", (flags,), {"__doc__": doc})
  flags = parse(target, argv, prog=f"python -m experiments.{paper}.{experiment}")
  recipe = vs.recipe(flags.recipe, **overrides(flags.set))
  default = defaults.get(flags.recipe, defaults[""])
  if flags.quick:
    default = Defaults(quick, QUICK_RUNS)
  epochs = default.epochs if flags.epochs is None else flags.epochs
  if not epochs:
    raise Mistake("--epochs without a duration: give one or more, e.g. --epochs 1 16")
  for e in epochs:
    recipe.replace(epochs=e)
  runs = default.runs if flags.runs is None else at_least("--runs", flags.runs, 2)
  vs.Runs.independent(runs)  # refuses too many
  out = flags.out or Path("results", paper, experiment, flags.recipe + "-quick" * flags.quick)
  for folder in (out, flags.campaigns):
    check_writable(folder)
  options = vs.Options(seed_batch=flags.seed_batch, lane_width=flags.lane_width, lowering=flags.lowering)
  return Setting(
    paper=paper, experiment=experiment, recipe=recipe, epochs=tuple(sorted(set(epochs))), runs=runs, options=options,
    out=files.place(out), campaigns=files.place(flags.campaigns), quick=flags.quick, used={}, flags=flags,
  )  # fmt: skip


# Numbers that several figures need.


class Spread(NamedTuple):
  """The accuracies of some runs: mean and standard deviation (ddof = 1) with their standard errors."""

  runs: int
  examples: int
  mean: float
  mean_se: float
  sd: float
  sd_se: float  # by the jackknife of the variance
  accuracies: Float[np.ndarray, " runs"]


def spread(errors: Bool[np.ndarray, "runs examples"]) -> Spread:
  """The distribution of the test-set accuracy over runs."""
  runs, examples = errors.shape
  sd = math.sqrt(stats.test_set_variance(errors))
  accuracies = 1 - stats.error_rates(errors)
  variance_se = (1 - 1 / examples) * float(stats.distribution_variance_se(errors))
  sd_se = variance_se / (2 * sd) if sd else math.nan
  return Spread(runs, examples, float(accuracies.mean()), sd / math.sqrt(runs), sd, sd_se, accuracies)


def relative_error(s: Spread) -> float:
  """Of a standard deviation; that of its square is twice this."""
  return s.sd_se / s.sd if s.sd else math.nan


def root(variance: float, se: float) -> tuple[float, float]:
  """The standard deviation of a variance, and its standard error; NaN where the variance is not positive."""
  sd = math.sqrt(variance) if variance > 0 else math.nan
  return sd, se / (2 * sd)


# The table.


class Row(NamedTuple):
  """One quantity: the durations compared, the paper's value and where it stands, ours."""

  quantity: str
  epochs: str
  paper: str
  where: str
  ours: str
  runs: int | str


HEAD = ("quantity", "epochs: paper / ours", "paper", "where", "ours ± standard error", "runs")


def percent(value: float, se: float | None = None) -> str:
  """A fraction as per cent, to two digits of its standard error."""
  if not math.isfinite(value):
    return "—"
  if se is None or not math.isfinite(se):
    return f"{100 * value:.4g} %"
  digits = max(0, 1 - math.floor(math.log10(100 * se))) if se > 0 else 2
  return f"{100 * value:z.{digits}f} ± {100 * se:.{digits}f} %"


def number(value: float, se: float) -> str:
  """A pure number, to two digits of its standard error."""
  if not (math.isfinite(value) and math.isfinite(se)):
    return "—"
  digits = max(0, 1 - math.floor(math.log10(se))) if se > 0 else 2
  return f"{value:z.{digits}f} ± {se:.{digits}f}"


def duration(epochs: int) -> str:
  return f"{epochs} epoch{'s' * (epochs != 1)}"


def rows(
  setting: Setting, numbers: Mapping[int, Any], quantity: str, where: str,
  paper: Mapping[int, float | str | None], ours: Callable[[Any], str],
) -> list[Row]:  # fmt: skip
  """A row a duration: the paper's value beside ours.

  Equal durations stand in one row. Another recipe than the paper's is trained for other durations: if they
  are as many as the paper's, they stand beside those in their order, shortest to longest.

  Args:
    setting: whose recipe tells whether durations are the paper's.
    numbers: by duration, each with `runs`.
    quantity: what the values are of.
    where: where in the paper it stands.
    paper: by duration; a fraction, words, or None where the paper has the duration but not the value.
    ours: the text of one of `numbers`.
  """
  papers, mine = sorted(paper), sorted(numbers)
  if setting.is_papers or len(papers) != len(mine):
    papers = mine = sorted({*papers, *mine})
  return [
    Row(
      quantity,
      f"{p if p in paper else '—'} / {m if m in numbers else '—'}",
      published(paper[p]) if p in paper else "—",
      where if p in paper else "—",
      ours(numbers[m]) if m in numbers else "—",
      numbers[m].runs if m in numbers else "—",
    )
    for p, m in zip(papers, mine, strict=True)
  ]


def published(value: float | str | None) -> str:
  """A value of the paper's as the table has it."""
  return "not given" if value is None else value if isinstance(value, str) else percent(value)


def note(setting: Setting, pattern: str) -> str:
  """What may be compared: values for the paper's recipe, else only the pattern."""
  recipe = setting.recipe
  if setting.is_papers:
    return (
      "Ours is the paper's recipe. If the stored cifar10 is a re-encoded copy, write that beside these "
      f"numbers: values are then not expected to agree. Pattern: {pattern}."
    )
  return (
    f"Ours is {recipe.name} on {recipe.dataset}, not the paper's ResNet-9 on CIFAR-10: values are not "
    f"expected to agree, only the pattern is comparable: {pattern}."
  )


def legend_above(ax: Axes) -> None:
  """Makes room for the legend above what is drawn."""
  ax.set_ylim(top=1.35 * ax.get_ylim()[1])
  ax.legend(frameon=False, fontsize="small", loc="upper left")


# Writing.


def write(
  setting: Setting, numbers: Any, paper: Any, table: Sequence[Row], notes: str,
  plot: Callable[[Any, np.ndarray], None], panels: int, quoted: str | tuple[str, ...] = "",
) -> None:  # fmt: skip
  """Saves numbers, then figure and table drawn from them, into the output folder, and prints the table.

  Args:
    setting: where to, and of which recipe and runs.
    numbers: what `compute` returned, with dataclasses and dicts around arrays and numbers.
    paper: the paper's numbers.
    table: its lines.
    notes: what stands below the table.
    plot: draws `numbers` on an array of axes.
    panels: how many axes.
    quoted: how the quantities begin whose values in the paper stand below the figure.
  """
  if not files.is_remote(setting.out):
    setting.out.mkdir(parents=True, exist_ok=True)
  stem = setting.out / setting.experiment
  record = {
    "experiment": f"{setting.paper}.{setting.experiment}",
    "recipe": json.loads(setting.recipe.to_json()),
    "epochs": setting.epochs,
    "runs": setting.runs,
    "quick": setting.quick,
    "campaigns": setting.used,
    "numbers": numbers,
    "paper": paper,
  }
  files.write(stem.with_suffix(".json"), (json.dumps(plain(record), indent=1, allow_nan=False) + "\n").encode())

  said = textwrap.wrap(of_paper([row for row in table if row.quantity.startswith(quoted)]), 62 * panels)
  figure = Figure(figsize=(4.4 * panels, 3.9 + 0.16 * len(said)), layout="constrained")
  plot(numbers, figure.subplots(1, panels, squeeze=False)[0])
  figure.supxlabel("\n".join(said), fontsize="small", x=0.01, ha="left")
  figure.suptitle(f"{setting.recipe.name}, {setting.runs} runs each", fontsize="medium")
  drawn = io.BytesIO()
  figure.savefig(drawn, dpi=120)
  files.write(stem.with_suffix(".png"), drawn.getvalue())

  title = f"{setting.experiment}: paper beside ours"
  lines = [HEAD, ("---",) * len(HEAD), *table]
  text = "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
  files.write(stem.with_suffix(".md"), f"# {title}\n\n{text}\n\n{notes}\n".encode())

  shown = Table(title=title, caption=notes, caption_justify="left")
  for name in HEAD:
    shown.add_column(name)
  for quantity, group in itertools.groupby(table, lambda row: row.quantity):
    for i, row in enumerate(group):
      shown.add_row("" if i else quantity, *map(str, row[1:]))
    shown.add_section()
  show(shown)
  print(f"wrote {stem}.json, .png and .md")


def of_paper(table: Sequence[Row]) -> str:
  """The paper's values in a sentence, each with its duration; empty where it gives none."""
  given = dict.fromkeys((row.quantity, row.epochs.split(" / ")[0], row.paper) for row in table)
  given = [entry for entry in given if entry[2] not in ("—", "not given", "figure only")]
  durations = {e: duration(int(e)) if e.isdigit() else e for _, e, _ in given}
  one = len(durations) == 1
  quantities = [
    f"{quantity}: " + ", ".join(value if one else f"{value} ({durations[e]})" for _, e, value in values)
    for quantity, values in itertools.groupby(given, key=lambda entry: entry[0])
  ]
  when = f", {durations.popitem()[1]}" if one and "—" not in durations else ""
  text = f"The paper{when}. {'; '.join(quantities)}." if given else ""
  return text.replace(" %", "\N{NO-BREAK SPACE}%")


def show(table: Table) -> None:
  """Prints a table whose words and numbers stay whole: wider than a narrow terminal if it must be."""
  for column in table.columns:
    cells = (str(cell) for cell in (column.header, *column.cells))
    column.min_width = max((len(word) for cell in cells for word in cell.split()), default=1)
  words = sum(column.min_width + 3 for column in table.columns) + 1
  Console(width=max(words, Console().width if sys.stdout.isatty() else 160)).print(table)


def plain(value: Any) -> Any:
  """`value` as JSON has it: NaN becomes null."""
  if dataclasses.is_dataclass(value):
    value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
  elif hasattr(value, "_asdict"):
    value = value._asdict()
  if isinstance(value, Mapping):
    return {str(k): plain(v) for k, v in value.items()}
  if isinstance(value, np.ndarray | np.generic):
    value = value.tolist()
  if isinstance(value, list | tuple):
    return [plain(v) for v in value]
  return None if isinstance(value, float) and not math.isfinite(value) else value
