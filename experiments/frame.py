"""What the papers' experiments share: campaigns by name and scale, one command a paper,
rows, pictures and the gallery.

A paper is a package beside this file. Modules and functions of these names are found in
it by name, so that all papers have them:

- `campaigns.py`: `campaigns(scale)` returns each `Campaign` by name. Figures share
  campaigns; each is trained once.
- `paper.py`: the printed values, and what is `STATED` of statistics.
- one module for each figure, `fig05_….py`, `table1_….py` or `theorem2_….py`, with a
  `TITLE`: `compute(trained)` turns campaigns into numbers, `rows(numbers)` puts the
  paper's beside ours, `plot(numbers, axes)` draws on `PANELS` or `panels(numbers)` axes.
  `with_images(numbers, trained)` adds images, which no record has.
- `page.py`: the paper's `PAGE` in docs/gallery; `recompute(out)` makes the records anew
  that need no training.

`python -m experiments.<paper>` makes all figures, or those that are named, and a page
of all figures made so far. `python -m experiments.pages` makes the pages of
docs/gallery, the paper's numbers beside ours, from the records kept there.
"""

import contextlib
import dataclasses
import hashlib
import importlib
import io
import itertools
import json
import math
import operator
import sys
import textwrap
import time
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, NamedTuple

import matplotlib
import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from rich.console import Console
from rich.table import Table

import vmapseeds as vs
from experiments import gallery, kept
from experiments.estimates import Estimate, Printed, Stated
from vmapseeds import lanes, models, stats
from vmapseeds.campaign.options import Options
from vmapseeds.cli import one_line_errors
from vmapseeds.errors import UserError, check_one_of
from vmapseeds.flags import metavar, parse_flags
from vmapseeds.results.formatting import count_of
from vmapseeds.store import files
from vmapseeds.store.folders import check_writable
from vmapseeds.training.recipe_data import dataset_of
from vmapseeds.training.runs import OUT_OF_BOOTSTRAP

# Prefixes of modules and scripts of figures
KINDS = ("fig", "table", "theorem")
PLAIN = vs.Recipe(
  name="plain",
  dataset="digits",
  model="linear",
  epochs=0,
  batch_size=1,
  lr=0.0,
)
# Looks like the figures that `vmapseeds.reports` makes itself.
STYLE = {
  "axes.spines.top": False,
  "axes.spines.right": False,
  "grid.alpha": 0.25,
  "grid.linewidth": 0.7,
  "legend.frameon": False,
  "legend.fontsize": "small",
}


# Campaigns.


class Campaign(NamedTuple):
  """What is trained, and how many runs of it."""

  recipe: vs.Recipe
  runs: vs.Runs | int
  # Options to switch on: `logits`, `keep_params`
  keep: tuple[str, ...] = ()
  # The campaign whose trained networks these runs start from
  start_from: str | None = None

  @property
  def count(self) -> int:
    return self.runs if isinstance(self.runs, int) else len(self.runs)


@dataclasses.dataclass(frozen=True)
class Trained:
  """The campaigns of a paper at a scale, each trained when it is first asked for by its
  name.
  """

  paper: str
  scale: str
  campaigns: Mapping[str, Campaign]
  folder: Path
  options: Options
  # Records of the campaigns that any figure asked for
  trained: dict[str, dict[str, Any]]
  # Those that this figure asked for
  used: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

  def __call__(self, name: str, test_set: str | None = None) -> xr.Dataset:
    """A campaign's results on its first test set, or on `test_set`. Trains the runs
    that are missing.
    """
    campaign = self.campaigns[name]
    recipe = campaign.recipe
    place = self.place(name)
    if name not in self.trained:
      if campaign.start_from:
        self(campaign.start_from)
        recipe = recipe.replace(start_from=str(self.place(campaign.start_from)))
      print(f"{place.name}: {campaign.count} runs", file=sys.stderr)
      finished = 0
      if (place / "zarr.json").exists():
        finished = vs.open_results(place, recipe.test_sets[0]).sizes["run"]
      options = vars(self.options) | dict.fromkeys(campaign.keep, True)
      times = place.with_name(f"{place.name}.json")
      with _timed(times, finished < campaign.count) as spent:
        results = vs.train(recipe, campaign.runs, place, **options)
      diverged = int(results.diverged.sum())
      if diverged:
        print(f"{diverged} runs diverged and are left out", file=sys.stderr)
      record = kept.describe_runs(place, campaign.recipe) | spent
      self.trained[name] = record | {"trained_on": trained_on(campaign)}
    self.used[name] = self.trained[name]
    results = vs.open_results(place, test_set or recipe.test_sets[0])
    return results.isel(run=slice(campaign.count))

  def errors(
    self,
    name: str,
    test_set: str | None = None,
  ) -> Bool[np.ndarray, "runs examples"]:
    """Which test examples each run of a campaign gets wrong; without runs that
    diverged.
    """
    return vs.error_matrix(self(name, test_set))

  def tallies(
    self,
    name: str,
    test_set: str | None = None,
    *,
    pairs: bool = False,
  ) -> stats.Tallies:
    """The tallies of a campaign's runs that did not diverge; with `pairs` they include
    joint errors.
    """
    return vs.tally(self(name, test_set), pairs=pairs)

  def epochs(self, name: str) -> int:
    """How many epochs a campaign trains."""
    return self.campaigns[name].recipe.epochs

  def images(self, name: str) -> np.ndarray:
    """The images of a campaign's first test set, (examples, height, width, channels)."""
    recipe = self.campaigns[name].recipe
    return dataset_of(recipe).tests[recipe.test_sets[0]].inputs

  def place(self, name: str) -> Path:
    """A campaign's folder. Every recipe has its own; a campaign with more runs extends
    the same folder.
    """
    campaign = self.campaigns[name]
    recipe = campaign.recipe
    lanes.start_jax()  # on all cores, before anything asks what the device is
    precision = models.resolve_precision(recipe.precision)
    fields = json.loads(recipe.replace(precision=precision).to_json())
    defaults = json.loads(PLAIN.to_json())
    # Only fields that differ from the default count, so that a field added to recipes
    # later renames no folder.
    description = {
      field: value
      for field, value in sorted(fields.items())
      if value != defaults[field]
    }
    digest = hashlib.sha256(json.dumps(description).encode()).hexdigest()[:8]
    return self.folder / f"{self.paper}-{self.scale}-{name}-{digest}"


@contextlib.contextmanager
def _timed(path: Path, trains: bool) -> Iterator[dict[str, float]]:
  """Yields the seconds stored in a file; if `trains`, adds the block's wall-clock and
  processor seconds to the file.
  """
  spent = {"seconds": 0.0, "processor_seconds": 0.0}
  if path.exists():
    spent = json.loads(path.read_text())
  start = time.perf_counter()
  processor_start = time.process_time()
  try:
    yield spent
  finally:
    if trains and path.parent.exists():
      spent["seconds"] += time.perf_counter() - start
      spent["processor_seconds"] += time.process_time() - processor_start
      files.write(path, json.dumps(spent).encode())


def trained_on(campaign: Campaign) -> str:
  """What a campaign's runs are trained on, in words."""
  recipe = campaign.recipe
  runs = campaign.runs
  every = examples_of(str(recipe.dataset), recipe)
  how = ""
  examples = every
  if isinstance(runs, vs.Runs) and runs.sampling:
    scheme = runs.sampling[0]
    if scheme == OUT_OF_BOOTSTRAP:
      # It draws from the training and the test examples together.
      tests = dataset_of(recipe).tests.values()
      every += sum(len(test) for test in tests)
    examples = runs.num_train(every)
    if scheme != "subset" or examples < every:
      how = scheme.removeprefix("out_of_") + " of "
  elif isinstance(runs, vs.Runs) and runs.values.get("subset") is not None:
    examples = np.shape(runs.values["subset"])[-1]
  count = f"{every:,}"
  if examples < every:
    count = f"{examples:,} of {every:,}"
  data = gallery.short_name(recipe.dataset)
  return f"{recipe.name}, {how}{count} training examples of {data}"


_EXAMPLES: dict[str, int] = {}


def examples_of(dataset: str, recipe: vs.Recipe) -> int:
  """How many training examples a data set has. Loads each only once."""
  if dataset not in _EXAMPLES:
    _EXAMPLES[dataset] = len(dataset_of(recipe).train.inputs)
  return _EXAMPLES[dataset]


# Rows: the paper beside ours.


class Row(NamedTuple):
  """One quantity, the paper's beside ours. Make one by `row`."""

  quantity: str
  paper: str
  where: str
  ours: str
  runs: int | str
  estimate: Estimate | None


def row(
  quantity: str,
  stated: Stated | Printed | None,
  ours: str | Estimate,
  runs: int | str,
  estimate: Estimate | None = None,
) -> Row:
  """Return a row.

  Args:
    quantity: what it is.
    stated: what the paper says; or only its value, a fraction or words, and its place;
      None if it gives none.
    ours: our value, with its interval or standard error; or the estimate.
    runs: how many runs it is of.
    estimate: if `ours` says more than that.
  """
  printed = stated.printed if isinstance(stated, Stated) else stated
  value, where = printed or ("not given", "—")
  paper = value if isinstance(value, str) else format_percent(value)
  if isinstance(ours, Estimate):
    estimate = ours
  return Row(quantity, paper, where, str(ours), runs, estimate)


def rows_of(runs: int | str, *rows: tuple) -> list[Row]:
  """Return rows that are all of the same runs: `rows` are the arguments of `row` but
  `runs`.
  """
  return [row(*cells[:3], runs, *cells[3:]) for cells in rows]


HEAD = ("quantity", "paper", "where", "ours", "runs")


def format_percent(value: float, se: float | None = None) -> str:
  """A fraction as per cent, to two digits of its standard error."""
  if not math.isfinite(value):
    return "—"
  if se is None or not math.isfinite(se):
    return f"{100 * value:.4g} %"
  digits = _digits(100 * se)
  return f"{100 * value:z.{digits}f} ± {100 * se:.{digits}f} %"


def format_number(value: float, se: float) -> str:
  """A pure number, to two digits of its standard error."""
  if not (math.isfinite(value) and math.isfinite(se)):
    return "—"
  digits = _digits(se)
  return f"{value:z.{digits}f} ± {se:.{digits}f}"


def _digits(se: float) -> int:
  """Return how many decimals show two digits of a standard error."""
  if se <= 0:
    return 2
  return max(0, 1 - math.floor(math.log10(se)))


def format_duration(epochs: int) -> str:
  return count_of(epochs, "epoch")


# Numbers that several figures need.


class Spread(NamedTuple):
  """The accuracies of some runs: mean and standard deviation (ddof = 1) with their
  standard errors.
  """

  runs: int
  examples: int
  mean: float
  mean_se: float
  sd: float
  sd_se: float  # by the jackknife of the variance
  accuracies: Float[np.ndarray, " runs"]


def spread_of(errors: Bool[np.ndarray, "runs examples"] | stats.Tallies) -> Spread:
  """Return the distribution of the test-set accuracy over runs, from errors or tallies.
  Tallies do not keep the order of the runs.
  """
  if isinstance(errors, stats.Tallies):
    examples = errors.examples
  else:
    examples = errors.shape[1]
  rates = stats.error_rates(errors)
  variance = stats.test_set_variance(errors)
  runs = len(rates)
  sd = math.sqrt(variance)
  # By the delta method: the slope of the root at the variance is 1 / (2 sd).
  sd_se = variance.se / (2 * sd) if sd else math.nan
  mean = float(1 - rates.mean())
  return Spread(runs, examples, mean, sd / math.sqrt(runs), sd, sd_se, 1 - rates)


def sqrt_with_se(variance: float, se: float) -> tuple[float, float]:
  """The root of a variance, and its standard error from the variance's; both NaN if the
  variance is not positive.
  """
  sd = math.sqrt(variance) if variance > 0 else math.nan
  return sd, se / (2 * sd)


def show_image(image: np.ndarray, ax: Axes) -> None:
  """Draws an image, (height, width, channels), its values scaled to the whole range of
  colours.
  """
  low = image.min()
  high = image.max()
  scaled = (image - low) / max(high - low, 1e-9)
  if image.shape[-1] == 1:
    scaled = scaled[..., 0]
  ax.imshow(scaled, cmap="gray")
  ax.set_axis_off()


def legend_above(ax: Axes) -> None:
  """Makes room for the legend above what is drawn: a twelfth of the height an entry."""
  _, labels = ax.get_legend_handles_labels()
  _, top = ax.get_ylim()
  ax.set_ylim(top=top / (1 - len(labels) / 12))
  ax.legend(loc="upper left")


# The command.

Count = Annotated[int, metavar("N")]


@dataclasses.dataclass(frozen=True)
class Flags:
  """Makes a paper's figures from runs trained here at some scale."""

  figures: Annotated[tuple[str, ...], metavar("[FIGURE ...]", "all")] = ()
  """which figures, by number or by the beginning of the module's name: 5, fig05, table1, c1; all if none is named"""

  _: dataclasses.KW_ONLY

  scale: Annotated[Literal["smoke", "laptop", "gpu", "paper"], metavar("SCALE")] = (
    "smoke"
  )
  """smoke: in a minute or two, numbers mean little; laptop: real data, hours on two CPU cores; gpu: a day on one
  accelerator; paper: what the paper trained"""

  seed_batch: Annotated[int | None, metavar("S", "256, or what fits in memory")] = None
  """runs trained between two writes; an interruption loses at most these"""

  lane_width: Annotated[int | None, metavar("N", "the campaign's, else measured")] = (
    None
  )
  """lanes that a device advances together"""

  lowering: Annotated[str | None, metavar("NAME", "the campaign's, else measured")] = (
    None
  )
  """how convolutions run their lanes: im2col, grouped or sequential"""

  out: Annotated[str | None, metavar("DIR", "results/<paper>/<scale>")] = None
  """folder for numbers, pictures and their page"""

  campaigns: Annotated[str, metavar("DIR")] = "results/campaigns"
  """folder of trained runs: runs that are there are not trained again, interrupted campaigns resume"""

  redraw: bool = False
  """draw the numbers that are in --out anew; nothing is trained"""

  note: Annotated[str, metavar("TEXT", "none")] = ""
  """a remark for the page, e.g. that a data set is a re-encoded copy"""


def main(file: str, argv: Sequence[str] | None = None) -> None:
  """Run the command line of a paper.

  Args:
    file: the `__file__` of the paper's `__main__.py`.
    argv: the arguments; None takes the program's own.
  """
  folder = Path(file).parent
  name = f"experiments.{folder.name}"
  with one_line_errors():
    doc = importlib.import_module(name).__doc__
    flags = parse_flags(Flags, argv, prog=f"python -m {name}", description=doc)
    make_figures(folder, select_figures(folder, flags.figures), flags)


def figure_names(folder: Path) -> list[str]:
  """The modules of a paper's figures, in order."""
  stems = sorted(path.stem for path in folder.glob("*.py"))
  return [stem for stem in stems if stem.startswith(KINDS) and "_" in stem]


def script_names(folder: Path) -> list[str]:
  """The figures that are scripts, which the public API alone makes."""
  stems = sorted(path.stem for path in folder.glob("*.py"))
  return [stem for stem in stems if stem.startswith(KINDS) and "_" not in stem]


def select_figures(folder: Path, named: Sequence[str]) -> list[str]:
  """The modules that some numbers or beginnings of names select; all modules if there
  are none.
  """
  every = [*script_names(folder), *figure_names(folder)]
  if not named:
    return every
  selected = []
  for name in named:
    # 5 and 05 are figure 5; c1 is figure C.1, table1 table 1.
    number = f"{int(name):02d}" if name.isdecimal() else name
    beginnings = (f"{name}_", f"fig{number}_")
    matches = []
    for figure in every:
      if figure in (name, f"fig{number}") or figure.startswith(beginnings):
        matches.append(figure)
    if not matches:
      check_one_of("figure", name, every)
    selected += matches
  return selected


def make_figures(folder: Path, modules: Sequence[str], flags: Flags) -> None:
  """Makes some figures of the paper in `folder`: trains what they need, writes them and
  their page.
  """
  paper = folder.name
  every = figure_names(folder)
  out = files.as_folder(flags.out or Path("results", paper, flags.scale))
  trained_runs = files.as_folder(flags.campaigns)
  options = Options(
    seed_batch=flags.seed_batch,
    lane_width=flags.lane_width,
    lowering=flags.lowering,
  )
  # What fails, fails before hours of training.
  for place in (out, trained_runs):
    check_writable(place)
  gallery.check_same(out, paper, flags.scale)
  package = importlib.import_module(f"experiments.{paper}.campaigns")
  campaigns = package.campaigns(flags.scale) if every else {}
  if flags.redraw:
    modules = [name for name in modules if (out / f"{name}.json").exists()]
  elif set(every) <= set(modules):
    check_data(campaigns)
  run_scripts(folder, modules, flags, package)
  modules = [name for name in modules if name in every]
  if not modules:
    return

  # All figures share it, so that each campaign is trained once.
  records: dict[str, dict[str, Any]] = {}
  for i, name in enumerate(modules, 1):
    module = importlib.import_module(f"experiments.{paper}.{name}")
    print(f"{i} of {len(modules)}, {name}: {module.TITLE}", file=sys.stderr)
    trained = Trained(
      paper,
      flags.scale,
      campaigns,
      trained_runs,
      options,
      records,
    )
    if flags.redraw:
      numbers, note = read_stored(out / f"{name}.json", module, trained)
    else:
      numbers = module.compute(trained)
      note = flags.note
    write_figure(out, trained, module, numbers, note)
    if not flags.redraw:
      # The page is whole after each figure, so that the command can be stopped.
      figures = gallery.write_gallery(out, paper, every)
      show_rows(figures[name])
  gallery.write_gallery(out, paper, every)
  print(f"wrote {out / 'index.html'}")


def run_scripts(
  folder: Path,
  names: Sequence[str],
  flags: Flags,
  package: ModuleType,
) -> None:
  """Run those of some figures that are scripts, with what a scale trains."""
  for name in script_names(folder):
    if name not in names or flags.redraw:
      continue
    words = [*package.script_flags(flags.scale, name), "--runs-in", flags.campaigns]
    words += ["--out", flags.out or f"results/{folder.name}/{flags.scale}"]
    if flags.seed_batch:
      words += ["--seed-batch", str(flags.seed_batch)]
    importlib.import_module(f"experiments.{folder.name}.{name}").main(words)


def read_stored(path: Path, module: ModuleType, trained: Trained) -> tuple[Any, str]:
  """Return a figure's numbers from its record, and the note; what was trained goes into
  `trained.used`.
  """
  record = json.loads(path.read_text())
  for name, campaign in record["campaigns"].items():
    data = campaign.get("trained_on") or trained_on(trained.campaigns[name])
    trained.used[name] = campaign | {"trained_on": data}
  numbers = revive(record["numbers"], return_type(module.compute))
  if hasattr(module, "with_images"):  # records have no images
    numbers = module.with_images(numbers, trained)
  return numbers, record["note"]


def return_type(function: Callable[..., Any]) -> Any:
  """Return what a function, or the function of a partial, says that it returns."""
  function = getattr(function, "func", function)
  return typing.get_type_hints(function)["return"]


def revive(value: Any, kind: Any) -> Any:
  """Return what `plain` made of a value of some type as a value of that type; null is
  NaN.
  """
  origin = typing.get_origin(kind)
  args = typing.get_args(kind)
  if isinstance(kind, type) and hasattr(kind, "_fields"):  # a NamedTuple
    hints = typing.get_type_hints(kind)
    return kind(**{name: revive(field, hints[name]) for name, field in value.items()})
  if origin in (dict, Mapping):
    # JSON has no keys but strings.
    to_key = int if args[0] is int else str
    return {to_key(key): revive(entry, args[1]) for key, entry in value.items()}
  if origin in (list, Sequence):
    return [revive(entry, args[0]) for entry in value]
  if origin is tuple:
    kinds = itertools.repeat(args[0]) if args[-1] is ... else args
    return tuple(map(revive, value, kinds))
  if isinstance(value, list):
    return without_null(value)
  if value is None and kind is not type(None):
    return math.nan
  return value


def without_null(value: Any) -> np.ndarray:
  """Return nested lists as an array, with NaN for null."""
  array = np.array(value)
  if array.dtype == object:
    return array.astype(float)
  return array


def check_data(campaigns: Mapping[str, Campaign]) -> None:
  """Raises `UserError` if a data set is not available, before hours go into training on
  the others.
  """
  recipes = {
    str(campaign.recipe.dataset): campaign.recipe for campaign in campaigns.values()
  }
  for recipe in recipes.values():
    try:
      dataset_of(recipe)
    except UserError as mistake:
      raise UserError(f"{mistake}; or name the figures that do without it") from None


def write_figure(
  out: Path,
  trained: Trained,
  module: ModuleType,
  numbers: Any,
  note: str = "",
) -> None:
  """Saves a figure's picture and then its numbers."""
  name = module.__name__.rpartition(".")[2]
  out.mkdir(parents=True, exist_ok=True)
  panels = getattr(module, "PANELS", 1)
  if hasattr(module, "panels"):
    panels = module.panels(numbers)
  caption = gallery.caption(trained.used.values())
  files.write(out / f"{name}.png", draw_png(module.plot, numbers, panels, caption))
  save_record(out, trained, module, numbers, note)


def save_record(
  out: Path,
  trained: Trained,
  module: ModuleType,
  numbers: Any,
  note: str = "",
) -> None:
  """Saves a figure's numbers and rows."""
  name = module.__name__.rpartition(".")[2]
  record = {
    "paper": trained.paper,
    "figure": name,
    "title": module.TITLE,
    "scale": trained.scale,
    "note": note,
    "missing": getattr(module, "MISSING", ""),
    "rows": module.rows(numbers),
    "campaigns": trained.used,
    "numbers": numbers,
  }
  text = json.dumps(plain(record), indent=1, allow_nan=False) + "\n"
  files.write(out / f"{name}.json", text.encode())


def show_rows(figure: Mapping[str, Any]) -> None:
  """Prints a figure's rows."""
  table = Table(*HEAD, title=figure["title"])
  groups = itertools.groupby(figure["rows"], operator.itemgetter("quantity"))
  for quantity, rows in groups:
    label = quantity
    for row in rows:
      cells = [str(row[column]) for column in HEAD[1:]]
      table.add_row(label, *cells)
      label = ""  # a quantity that several rows have stands in the first
    table.add_section()
  print_table(table)


@matplotlib.rc_context(STYLE)
def draw_png(
  plot: Callable[[Any, np.ndarray], None],
  numbers: Any,
  panels: int,
  caption: str = "",
) -> bytes:
  """Return a figure as a PNG of 256 colours, under a caption that says what was trained."""
  lines = math.ceil(panels / 3)
  columns = math.ceil(panels / lines)
  figure = Figure(figsize=(4.4 * columns, 3.7 * lines), layout="constrained")
  axes = figure.subplots(lines, columns, squeeze=False).ravel()
  for ax in axes[panels:]:
    ax.set_axis_off()
  plot(numbers, axes[:panels])
  if caption:
    wide = textwrap.fill(caption, 64 * columns)
    figure.suptitle(wide, fontsize="small", color="0.35")
  canvas = FigureCanvasAgg(figure)
  stream = io.BytesIO()
  canvas.draw()
  image = Image.fromarray(np.asarray(canvas.buffer_rgba()))
  image.convert("RGB").quantize().save(stream, "PNG")
  return stream.getvalue()


def print_table(table: Table) -> None:
  """Prints a table whose words and numbers stay whole: wider than a narrow terminal if
  it must be.
  """
  for column in table.columns:
    cells = [str(cell) for cell in (column.header, *column.cells)]
    words = " ".join(cells).split()
    column.min_width = max(map(len, words), default=1)
  # Borders and spaces take three characters a column.
  least = sum(column.min_width + 3 for column in table.columns) + 1
  width = 160  # of a file
  if sys.stdout.isatty():
    width = Console().width
  Console(width=max(least, width)).print(table)


def plain(value: Any) -> Any:
  """`value` in JSON's types: NaN and infinity become null, and arrays of three or more
  axes become their shape.
  """
  if dataclasses.is_dataclass(value):
    names = [field.name for field in dataclasses.fields(value)]
    value = {name: getattr(value, name) for name in names}
  elif hasattr(value, "_asdict"):
    value = value._asdict()
  if isinstance(value, Mapping):
    return {str(key): plain(entry) for key, entry in value.items()}
  if isinstance(value, np.ndarray | np.generic):
    if value.ndim >= 3:
      return f"array of {value.shape}"
    value = value.tolist()
  if isinstance(value, list | tuple):
    return [plain(entry) for entry in value]
  if isinstance(value, float) and not math.isfinite(value):
    return None
  return value
