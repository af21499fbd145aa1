"""What the papers' experiments share: campaigns by name and scale, one command a paper,
rows, pictures and the gallery.

A paper is a package beside this file:

- `campaigns.py`: `campaigns(scale)` returns each `Campaign` by name. Figures share
  campaigns; each is trained once.
- `paper.py`: the printed values.
- one module for each figure, `fig05_….py`, `table1_….py` or `theorem2_….py`, with a
  `TITLE`: `compute(trained)` turns campaigns into numbers, `rows(numbers)` puts the
  paper's beside ours, `plot(numbers, axes)` draws on `PANELS` or `panels(numbers)` axes.

`python -m experiments.<paper>` makes all figures, or those that are named, and a page
of all figures made so far. `python -m experiments.pages` makes the pages of
docs/gallery, which judge a few statements of each paper, from the records kept there.
"""

import contextlib
import dataclasses
import hashlib
import importlib
import io
import itertools
import json
import math
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
from tyro.conf import Positional, arg

import vmapseeds as vs
from experiments import gallery, kept
from experiments.claims import Claim, Estimate, Printed
from experiments.command import hint, parse
from vmapseeds import lanes, models, stats
from vmapseeds.cli import one_line_errors
from vmapseeds.errors import UserError, one_of
from vmapseeds.results.formatting import count_of
from vmapseeds.searches.trials import trials_of
from vmapseeds.store import files
from vmapseeds.store.folders import check_writable
from vmapseeds.training.runs import OUT_OF_BOOTSTRAP
from vmapseeds.training.supervised import dataset_of

KINDS = ("fig", "table", "theorem")  # prefixes of figure modules
PLAIN = vs.Recipe(
  name="plain", dataset="digits", model="linear", epochs=0, batch_size=1, lr=0.0
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


class Search(NamedTuple):
  """What `vs.search` is given."""

  over: Mapping[str, str]
  trials: int
  sampler: str = "random"
  at_once: int = 1
  objective: str | None = None  # None: accuracy


class Campaign(NamedTuple):
  """What is trained, and how many runs of it; or how many searches."""

  recipe: vs.Recipe
  runs: vs.Runs | int
  keep: tuple[str, ...] = ()  # options to switch on: `logits`, `keep_params`
  start_from: str | None = (
    None  # the campaign whose trained networks these runs start from
  )
  search: Search | None = None
  # A campaign of searches, and how many of them count: run i has the values of the best
  # trial of search i modulo that
  best_of: tuple[str, int] | None = None
  lane_width: int | None = None  # whatever the command says

  @property
  def count(self) -> int:
    """How many runs it has, trials of searches among them."""
    runs = self.runs if isinstance(self.runs, int) else len(self.runs)
    return runs * (self.search.trials if self.search else 1)


@dataclasses.dataclass(frozen=True)
class Trained:
  """The campaigns of a paper at a scale, each trained when it is first asked for by its
  name.
  """

  paper: str
  scale: str
  campaigns: Mapping[str, Campaign]
  folder: Path
  options: vs.Options
  # Records of the campaigns that any figure asked for: of each part of the runs
  trained: dict[str, list[dict[str, Any]]]
  used: dict[str, dict[str, Any]] = dataclasses.field(
    default_factory=dict
  )  # those that this figure asked for
  kept: Path | None = None  # a folder of runs that need not be trained
  describes: bool = True  # what runs are trained on, for which it reads the data

  def __call__(self, name: str, test_set: str | None = None) -> xr.Dataset:
    """A campaign's results on its first test set, or on `test_set`. Trains the runs
    that are missing.
    """
    campaign, place = self.campaigns[name], self.place(name)
    recipe = campaign.recipe
    found = []
    if self.kept and len(recipe.test_sets) == 1:
      found = kept.parts(self.kept, place.name)
    first = sum(made["runs"] for _, made in found)
    if campaign.search and first < campaign.count:  # searches are kept whole
      found, first = [], 0
    lacking = first < campaign.count
    if lacking and campaign.start_from:
      self(campaign.start_from)
    if name not in self.trained:
      made = [made for _, made in found]
      if lacking:
        made.append(self._made(name, first))
      said = trained_on(campaign) if self.describes else ""
      self.trained[name] = [of | {"trained_on": said} for of in made]
    for part, of in enumerate(self.trained[name], 1):
      self.used[name if part == 1 else f"{name}, part {part}"] = of
    each = [kept.opened(arrays, made) for arrays, made in found]
    if lacking:
      folder = self.place(name, first)
      each.append(vs.open_results(folder, test_set or recipe.test_sets[0]))
    results = each[0] if len(each) == 1 else kept.joined(each)
    return results.isel(run=slice(campaign.count))

  def _made(self, name: str, first: int) -> dict[str, Any]:
    """How a campaign's runs from some place on were made. Trains those that are missing."""
    campaign, place = self.campaigns[name], self.place(name, first)
    recipe, count = campaign.recipe, campaign.count - first
    if campaign.start_from:
      recipe = recipe.replace(start_from=str(self.place(campaign.start_from)))
    print(f"{place.name}: {count} runs", file=sys.stderr)
    there = (
      vs.open_results(place, recipe.test_sets[0]).sizes["run"]
      if (place / "zarr.json").exists()
      else 0
    )
    with _timed(place.with_name(f"{place.name}.json"), there < count) as spent:
      results = self._train(campaign._replace(recipe=recipe), place, first)
    diverged = int(results.diverged.sum())
    if diverged:
      print(f"{diverged} runs diverged and are left out", file=sys.stderr)
    return {**kept.described(place, campaign.recipe), **spent}

  def _train(self, campaign: Campaign, place: Path, first: int) -> xr.Dataset:
    options = vars(self.options) | dict.fromkeys(campaign.keep, True)
    if campaign.lane_width:
      options["lane_width"] = campaign.lane_width
    recipe, runs = campaign.recipe, campaign.runs
    if campaign.search:
      given = campaign.search._asdict()
      return vs.search(recipe, searches=runs, out=place, **given, **options)
    if campaign.best_of:
      searched, searches = campaign.best_of
      runs = with_best(runs, self(searched), searches)
    if first:
      runs = (vs.Runs.independent(runs) if isinstance(runs, int) else runs)[first:]
    return vs.train(recipe, runs, place, **options)

  def errors(
    self, name: str, test_set: str | None = None
  ) -> Bool[np.ndarray, "runs examples"]:
    """Which test examples each run of a campaign gets wrong; without runs that
    diverged.
    """
    return vs.error_matrix(self(name, test_set))

  def tallies(
    self, name: str, test_set: str | None = None, *, pairs: bool = False
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

  def place(self, name: str, first: int = 0) -> Path:
    """A campaign's folder, of its runs from some place on. Every recipe has its own; a
    campaign with more runs extends the same folder.
    """
    recipe = self.campaigns[name].recipe
    lanes.start_jax()  # on all cores, before anything asks what the device is
    meant = json.loads(
      recipe.replace(precision=models.resolve_precision(recipe.precision)).to_json()
    )
    plain = json.loads(PLAIN.to_json())
    # Only fields that differ from the default count, so that a field added to recipes
    # later renames no folder.
    told = {
      field: value for field, value in sorted(meant.items()) if value != plain[field]
    }
    campaign = self.campaigns[name]
    if campaign.search:
      told["search"] = campaign.search
    if campaign.best_of:
      told["best_of"] = self.place(campaign.best_of[0]).name, campaign.best_of[1]
    digest = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:8]
    of = f"-{first}" if first else ""
    return self.folder / f"{self.paper}-{self.scale}-{name}-{digest}{of}"


def with_best(runs: vs.Runs, searched: xr.Dataset, searches: int) -> vs.Runs:
  """Return the runs with hyperparameters of the best trials of some searches, run i with
  those of search i modulo `searches`.

  Raises:
    UserError: in one of these searches all trials failed.
  """
  trials = trials_of(searched)
  best = trials.best()
  if failed := {*range(searches)} - {*best}:
    raise UserError(f"all trials of search {min(failed)} failed: search other values")
  places = [best[i % searches] for i in range(len(runs))]
  found = {name: of[places] for name, of in trials.values.items()}
  return dataclasses.replace(runs, values=runs.values | found)


@contextlib.contextmanager
def _timed(path: Path, trains: bool) -> Iterator[dict[str, float]]:
  """Yields the seconds stored in a file; if `trains`, adds the block's wall-clock and
  processor seconds to the file.
  """
  spent = (
    json.loads(path.read_text())
    if path.exists()
    else {"seconds": 0.0, "processor_seconds": 0.0}
  )
  begun = time.perf_counter(), time.process_time()
  try:
    yield spent
  finally:
    if trains and path.parent.exists():
      spent["seconds"] += time.perf_counter() - begun[0]
      spent["processor_seconds"] += time.process_time() - begun[1]
      files.write(path, json.dumps(spent).encode())


def trained_on(campaign: Campaign) -> str:
  """What a campaign's runs are trained on, in words."""
  recipe, runs = campaign.recipe, campaign.runs
  every = examples_of(str(recipe.dataset), recipe)
  how, examples = "", every
  if not isinstance(runs, int) and runs.sampling:
    if runs.sampling[0] == OUT_OF_BOOTSTRAP:
      every += sum(map(len, dataset_of(recipe).tests.values()))
    examples = runs.num_train(every)
    if runs.sampling[0] != "subset" or examples < every:
      how = runs.sampling[0].removeprefix("out_of_") + " of "
  elif not isinstance(runs, int) and runs.values.get("subset") is not None:
    examples = np.shape(runs.values["subset"])[-1]
  of = f"{examples:,} of {every:,}" if examples < every else f"{every:,}"
  data = gallery.said(recipe.dataset)
  return f"{recipe.name}, {how}{of} training examples of {data}"


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
  claim: Claim | None
  estimate: Estimate | None


def row(
  quantity: str,
  stated: Claim | Printed | None,
  ours: str | Estimate,
  runs: int | str,
  estimate: Estimate | None = None,
) -> Row:
  """Return a row.

  Args:
    quantity: what it is.
    stated: the paper's claim; or only its value, a fraction or words, and its place;
      None if it gives none.
    ours: our value, with its interval or standard error; or the estimate.
    runs: how many runs it is of.
    estimate: if `ours` says more than that.
  """
  claim = stated if isinstance(stated, Claim) else None
  value, where = (claim.printed if claim else stated) or ("not given", "—")
  paper = value if isinstance(value, str) else percent(value)
  if isinstance(ours, Estimate):
    estimate = ours
  return Row(quantity, paper, where, str(ours), runs, claim, estimate)


def of_runs(runs: int | str, *rows: tuple) -> list[Row]:
  """Return rows that are all of the same runs, given without them."""
  return [row(*given[:3], runs, *given[3:]) for given in rows]


HEAD = ("quantity", "paper", "where", "ours", "runs")


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


def spread(of: Bool[np.ndarray, "runs examples"] | stats.Tallies) -> Spread:
  """Return the distribution of the test-set accuracy over runs, from errors or tallies.
  Tallies do not keep the order of the runs.
  """
  if isinstance(of, stats.Tallies):
    examples = of.examples
  else:
    examples = of.shape[1]
  rates = stats.error_rates(of)
  variance = stats.test_set_variance(of)
  runs, sd = len(rates), math.sqrt(variance)
  sd_se = variance.se / (2 * sd) if sd else math.nan
  mean = float(1 - rates.mean())
  return Spread(runs, examples, mean, sd / math.sqrt(runs), sd, sd_se, 1 - rates)


def root(variance: float, se: float) -> tuple[float, float]:
  """The root of a variance, and its standard error from the variance's; both NaN if the
  variance is not positive.
  """
  sd = math.sqrt(variance) if variance > 0 else math.nan
  return sd, se / (2 * sd)


def show_image(image: np.ndarray, ax: Axes) -> None:
  """Draws an image, (height, width, channels), its values scaled to the whole range of
  colours.
  """
  low, high = image.min(), image.max()
  shown = (image - low) / max(high - low, 1e-9)
  ax.imshow(shown[..., 0] if image.shape[-1] == 1 else shown, cmap="gray")
  ax.set_axis_off()


def legend_above(ax: Axes) -> None:
  """Makes room for the legend above what is drawn: a twelfth of the height an entry."""
  entries = len(ax.get_legend_handles_labels()[1])
  ax.set_ylim(top=ax.get_ylim()[1] / (1 - entries / 12))
  ax.legend(loc="upper left")


# The command.

Count = Annotated[int, arg(metavar="N")]


@dataclasses.dataclass(frozen=True)
class Flags:
  """Makes a paper's figures from runs trained here at some scale."""

  figures: Positional[Annotated[tuple[str, ...], hint("[FIGURE ...]", "all")]] = ()
  """which figures, by number or by the beginning of the module's name: 5, fig05, table1, c1; all if none is named"""

  scale: Annotated[Literal["smoke", "laptop", "gpu", "paper"], arg(metavar="SCALE")] = (
    "smoke"
  )
  """smoke: in a minute or two, numbers mean little; laptop: real data, hours on two CPU cores; gpu: a day on one
  accelerator; paper: what the paper trained"""

  seed_batch: Annotated[int | None, hint("S", "256, or what fits in memory")] = None
  """runs trained between two writes; an interruption loses at most these"""

  lane_width: Annotated[int | None, hint("N", "the campaign's, else measured")] = None
  """lanes that a device advances together"""

  lowering: Annotated[str | None, hint("NAME", "the campaign's, else measured")] = None
  """how convolutions run their lanes: im2col, grouped or sequential"""

  out: Annotated[str | None, hint("DIR", "results/<paper>/<scale>")] = None
  """folder for numbers, pictures and their page"""

  campaigns: Annotated[str, arg(metavar="DIR")] = "results/campaigns"
  """folder of trained runs: runs that are there are not trained again, interrupted campaigns resume"""

  kept: Annotated[Path | None, hint("DIR", "none")] = None
  """folder of kept runs, which are not trained: docs/gallery/<paper> where a gallery keeps its runs"""

  redraw: bool = False
  """draw the numbers that are in --out anew; nothing is trained"""

  note: Annotated[str, hint("TEXT", "none")] = ""
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
    flags = parse(Flags, argv, prog=f"python -m {name}", description=doc)
    make(folder, chosen(folder, flags.figures), flags)


def figures(folder: Path) -> list[str]:
  """The modules of a paper's figures, in order."""
  return sorted(
    path.stem for path in folder.glob("*.py") if path.stem.startswith(KINDS)
  )


def chosen(folder: Path, named: Sequence[str]) -> list[str]:
  """The modules that some numbers or beginnings of names select; all modules if there
  are none.
  """
  every = figures(folder)
  found = []
  for name in named:
    number = f"{int(name):02d}" if name.isdecimal() else name
    ours = [
      figure
      for figure in every
      if figure == name or figure.startswith((f"{name}_", f"fig{number}_"))
    ]
    found += ours or [one_of("figure", name, every)]
  return found or every


def make(folder: Path, modules: Sequence[str], flags: Flags) -> None:
  """Makes some figures of the paper in `folder`: trains what they need, writes them and
  their page.
  """
  paper, every = folder.name, figures(folder)
  out = files.place(flags.out or Path("results", paper, flags.scale))
  trained_runs = files.place(flags.campaigns)
  options = vs.Options(
    seed_batch=flags.seed_batch, lane_width=flags.lane_width, lowering=flags.lowering
  )
  for place in (out, trained_runs):
    check_writable(place)
  gallery.check_same(out, paper, flags.scale)
  campaigns = importlib.import_module(f"experiments.{paper}.campaigns").campaigns(
    flags.scale
  )
  if flags.redraw:
    modules = [name for name in modules if (out / f"{name}.json").exists()]
  elif len(modules) == len(every):
    check_data(campaigns)
  if flags.kept and not [*flags.kept.glob(f"{paper}-{flags.scale}-*.npz")]:
    raise UserError(
      f"--kept is {flags.kept}, where no runs of {paper} at scale {flags.scale} are kept"
    )
  made: dict[str, list[dict[str, Any]]] = {}
  for i, name in enumerate(modules, 1):
    module = importlib.import_module(f"experiments.{paper}.{name}")
    print(f"{i} of {len(modules)}, {name}: {module.TITLE}", file=sys.stderr)
    trained = Trained(
      paper, flags.scale, campaigns, trained_runs, options, made, kept=flags.kept
    )
    if flags.redraw:
      numbers, note = stored(out / f"{name}.json", module, trained)
    else:
      numbers, note = module.compute(trained), flags.note
    write(out, trained, module, numbers, note)
    if not flags.redraw:
      show_rows(gallery.write(out, paper, every)[name])
  gallery.write(out, paper, every)
  print(f"wrote {out / 'index.html'}")


def stored(path: Path, module: ModuleType, trained: Trained) -> tuple[Any, str]:
  """Return a figure's numbers from its record, and the note; what was trained goes into
  `trained.used`.
  """
  record = json.loads(path.read_text())
  for name, of in record["campaigns"].items():
    said = of.get("trained_on") or trained_on(trained.campaigns[name])
    trained.used[name] = of | {"trained_on": said}
  numbers = revived(record["numbers"], return_type(module.compute))
  if hasattr(module, "with_images"):  # records have no images
    numbers = module.with_images(numbers, trained)
  return numbers, record["note"]


def return_type(function: Callable[..., Any]) -> Any:
  """Return what a function, or the function of a partial, says that it returns."""
  function = getattr(function, "func", function)
  return typing.get_type_hints(function)["return"]


def revived(value: Any, kind: Any) -> Any:
  """Return what `plain` made of a value of some type as a value of that type; null is
  NaN.
  """
  origin, args = typing.get_origin(kind), typing.get_args(kind)
  if hasattr(kind, "_fields") and isinstance(kind, type):
    hints = typing.get_type_hints(kind)
    return kind(**{k: revived(v, hints[k]) for k, v in value.items()})
  if origin in (dict, Mapping):
    return {
      int(k) if args[0] is int else k: revived(v, args[1]) for k, v in value.items()
    }
  if origin in (list, Sequence):
    return [revived(v, args[0]) for v in value]
  if origin is tuple:
    kinds = itertools.repeat(args[0]) if args[-1] is ... else args
    return tuple(map(revived, value, kinds))
  if isinstance(value, list):
    return without_null(value)
  return math.nan if value is None and kind is not type(None) else value


def without_null(value: Any) -> np.ndarray:
  """Return nested lists as an array, with NaN for null."""
  array = np.array(value)
  return array.astype(float) if array.dtype == object else array


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


def write(
  out: Path, trained: Trained, module: ModuleType, numbers: Any, note: str = ""
) -> None:
  """Saves a figure's picture and then its numbers."""
  name = module.__name__.rpartition(".")[2]
  out.mkdir(parents=True, exist_ok=True)
  panels = getattr(module, "PANELS", 1)
  if hasattr(module, "panels"):
    panels = module.panels(numbers)
  caption = gallery.caption(trained.used.values())
  files.write(out / f"{name}.png", drawn(module.plot, numbers, panels, caption))
  save(out, trained, module, numbers, note)


def save(
  out: Path, trained: Trained, module: ModuleType, numbers: Any, note: str = ""
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
    "rows": [stored_row(each) for each in module.rows(numbers)],
    "campaigns": trained.used,
    "numbers": numbers,
  }
  files.write(
    out / f"{name}.json",
    (json.dumps(plain(record), indent=1, allow_nan=False) + "\n").encode(),
  )


def stored_row(row: Row) -> dict[str, Any]:
  """Return what a record keeps of a row: all but the claim, which `paper.py` has."""
  return {name: value for name, value in row._asdict().items() if name != "claim"}


def show_rows(figure: Mapping[str, Any]) -> None:
  """Prints a figure's rows."""
  shown = Table(*HEAD, title=figure["title"])
  for quantity, group in itertools.groupby(figure["rows"], lambda of: of["quantity"]):
    for i, each in enumerate(group):
      cells = (each[k] for k in HEAD[1:])
      shown.add_row("" if i else quantity, *map(str, cells))
    shown.add_section()
  show(shown)


@matplotlib.rc_context(STYLE)
def drawn(
  plot: Callable[[Any, np.ndarray], None], numbers: Any, panels: int, caption: str = ""
) -> bytes:
  """Return a figure as a PNG of 256 colours, under a caption that says what was trained."""
  lines = -(-panels // 3)
  columns = -(-panels // lines)
  figure = Figure(figsize=(4.4 * columns, 3.7 * lines), layout="constrained")
  axes = figure.subplots(lines, columns, squeeze=False).ravel()
  for ax in axes[panels:]:
    ax.set_axis_off()
  plot(numbers, axes[:panels])
  if caption:
    wide = textwrap.fill(caption, 64 * columns)
    figure.suptitle(wide, fontsize="small", color="0.35")
  canvas, stream = FigureCanvasAgg(figure), io.BytesIO()
  canvas.draw()
  image = Image.fromarray(np.asarray(canvas.buffer_rgba()))
  image.convert("RGB").quantize().save(stream, "PNG")
  return stream.getvalue()


def show(table: Table) -> None:
  """Prints a table whose words and numbers stay whole: wider than a narrow terminal if
  it must be.
  """
  for column in table.columns:
    cells = (str(cell) for cell in (column.header, *column.cells))
    column.min_width = max(
      (len(word) for cell in cells for word in cell.split()), default=1
    )
  words = sum(column.min_width + 3 for column in table.columns) + 1
  Console(width=max(words, Console().width if sys.stdout.isatty() else 160)).print(
    table
  )


def plain(value: Any) -> Any:
  """`value` in JSON's types: NaN and infinity become null, and arrays of three or more
  axes become their shape.
  """
  if dataclasses.is_dataclass(value):
    value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
  elif hasattr(value, "_asdict"):
    value = value._asdict()
  if isinstance(value, Mapping):
    return {str(k): plain(v) for k, v in value.items()}
  if isinstance(value, np.ndarray | np.generic):
    value = value.tolist() if value.ndim < 3 else f"array of {value.shape}"
  if isinstance(value, list | tuple):
    return [plain(v) for v in value]
  return None if isinstance(value, float) and not math.isfinite(value) else value
