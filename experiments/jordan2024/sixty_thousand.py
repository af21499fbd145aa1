"""Sixty thousand real runs of each of several durations: the paper's numbers from them,
and what they teach.

    python -m experiments.jordan2024.sixty_thousand
    python -m experiments.jordan2024.sixty_thousand --recipe narrow_mnist --epochs 0 1 2 --runs 5000 --out results/mnist

Run it again to resume after an interruption. Tallies are kept beside the numbers. If
the folder of trained runs is lost, the next sitting trains only the missing runs, and
the tallies of both sittings are added. `python -m experiments.pages` makes the page.
"""

import dataclasses
import functools
import io
import json
import math
import operator
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

import vmapseeds as vs
from experiments import frame
from experiments.estimates import format_interval
from experiments.frame import format_percent
from experiments.jordan2024 import fig04, fig14, lessons
from experiments.kept import describe_runs
from experiments.pages import words_of
from vmapseeds import lanes, stats
from vmapseeds.cli import one_line_errors
from vmapseeds.errors import UserError, check_at_least
from vmapseeds.flags import Negatable, metavar, parse_flags
from vmapseeds.store import files
from vmapseeds.store.folders import check_writable
from vmapseeds.store.results import Results
from vmapseeds.training.recipe_data import dataset_of

FEW = 500  # runs of a small campaign, for comparison
SOME = 1000  # runs of a larger one
PRECISE = 0.05  # relative precision of a variance that fixes two digits of its root


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
  """Trains very many runs of some durations, and writes the paper's numbers from their
  tallies.
  """

  recipe: Annotated[str, metavar("NAME")] = "digits_cnn"
  """what is trained; its data set gives the names of folders and files"""

  epochs: Annotated[tuple[int, ...], metavar("E")] = (0, 1, 4, 16)
  """durations: two or three of at least one epoch, and optionally 0"""

  runs: frame.Count = 60_000
  """runs of each duration, all sittings together"""

  seed_batch: frame.Count = 500
  """runs trained between two writes; an interruption loses at most these"""

  train: Negatable = True
  """whether to train missing runs; if not, only the runs that are there are used"""

  campaigns: Annotated[str, metavar("DIR")] = "results/campaigns"
  """folder of trained runs"""

  out: Annotated[str, metavar("DIR")] = "docs/gallery/sixty_thousand"
  """folder for tallies and numbers"""


class Sitting(NamedTuple):
  """The runs of one folder: their seeds (first, last + 1), their tallies, and by what
  they were trained, as `experiments.kept.describe_runs` says it.
  """

  seeds: tuple[int, int]
  tallies: stats.Tallies
  record: dict[str, Any]


def main(argv: Sequence[str] | None = None) -> None:
  with one_line_errors():
    flags = parse_flags(
      Flags,
      argv,
      prog="python -m experiments.jordan2024.sixty_thousand",
      description=__doc__,
    )
    names = name_durations(flags.epochs)
    check_at_least("--runs", flags.runs, 4)
    check_at_least("--seed-batch", flags.seed_batch, 1)
    recipes = {
      name: vs.recipe(flags.recipe, epochs=epochs) for name, epochs in names.items()
    }
    data = dataset_of(recipes["long"])
    out = Path(flags.out)
    for folder in (flags.campaigns, out):
      check_writable(folder)
    out.mkdir(parents=True, exist_ok=True)
    lanes.start_jax()
    kept = {
      name: sittings(recipe, f"{data.name}-{recipe.epochs}", flags)
      for name, recipe in recipes.items()
    }
    write_numbers(flags, names, kept, data)
    print(f"wrote {out / 'numbers.json'}")


def name_durations(epochs: Sequence[int]) -> dict[str, int]:
  """The durations by the figures' names: untrained, short, medium, long."""
  trained = sorted({check_at_least("--epochs", e, 0) for e in epochs} - {0})
  if not 2 <= len(trained) <= 3:
    raise UserError(
      f"--epochs is {' '.join(map(str, epochs))}: give two or three durations above 0, and 0 as you like"
    )
  names = ["short", "medium", "long"]
  if len(trained) == 2:
    names.remove("medium")
  by_name = dict(zip(names, trained, strict=True))
  if 0 in epochs:
    return {"untrained": 0} | by_name
  return by_name


# Sittings.


def sittings(recipe: vs.Recipe, key: str, flags: Flags) -> list[Sitting]:
  """Trains the missing runs of a duration, saves the tallies of their folder, and
  returns all sittings.
  """
  out = Path(flags.out)
  place = Path(flags.campaigns, key)
  earlier = [
    read_sitting(path, recipe)
    for path in (
      out / f"tallies-{key}.npz",
      *sorted(out.glob(f"tallies-{key}-from*.npz")),
    )
    if path.exists()
  ]
  if place.exists():
    first = int(Results(place).table()["seed_init"][0])
  else:
    first = max((s.seeds[1] for s in earlier), default=0)
  if flags.train and first < flags.runs:
    print(f"{key}: runs {first} to {flags.runs}", file=sys.stderr)
    vs.train(
      recipe,
      vs.Runs.independent(flags.runs - first, start=first),
      place,
      seed_batch=flags.seed_batch,
    )
  if place.exists():
    results = vs.open_results(place)
    tallies = vs.tally(results, pairs=recipe.epochs > 0)
    seeds = first, first + results.sizes["run"]
    fields = json.loads(recipe.to_json())
    record = describe_runs(place, fields) | {"seconds": seconds_of(place)}
    sitting = Sitting(seeds, tallies, record)
    name = f"tallies-{key}-from{first}" if first else f"tallies-{key}"
    save_sitting(out / f"{name}.npz", sitting)
    earlier = [s for s in earlier if s.seeds[0] != first] + [sitting]
  if not earlier:
    raise UserError(f"there are no runs of {key}: leave --no-train out")
  return earlier


def seconds_of(place: Path) -> float:
  """The seconds that a folder's runs took, by the median over blocks of seconds per
  run: so a pause does not count.
  """
  results = Results(place)
  records = [results.record(block) for block in results.finished_blocks()]
  seconds = np.median([record["seconds"] / record["runs"] for record in records])
  return seconds * sum(record["runs"] for record in records)


def save_sitting(path: Path, sitting: Sitting) -> None:
  """Saves a sitting with the smallest dtypes; joint errors only on and above the
  diagonal.
  """
  arrays = sitting.tallies.to_arrays()
  if "joint_errors" in arrays:
    arrays["joint_errors"] = np.triu(arrays["joint_errors"])
  arrays |= {
    "seeds": np.array(sitting.seeds),
    "record": np.array(json.dumps(sitting.record)),
  }
  for name, array in arrays.items():
    if array.dtype.kind in "iu":
      smallest = np.min_scalar_type(int(array.max(initial=0)))
      arrays[name] = array.astype(smallest)
  stream = io.BytesIO()
  np.savez_compressed(stream, **arrays)
  files.write(path, stream.getvalue())


def read_sitting(path: Path, recipe: vs.Recipe) -> Sitting:
  """Reads a sitting; `UserError` if its runs are of another recipe."""
  with np.load(path) as file:
    arrays = dict(file)
  for name, array in arrays.items():
    if array.dtype.kind == "u":
      arrays[name] = array.astype(np.int64)
  record = json.loads(str(arrays.pop("record", "{}")))
  if record.get("recipe") != json.loads(recipe.to_json()):
    raise UserError(
      f"{path} has runs of another recipe: give another folder with --out"
    )
  if "joint_errors" in arrays:
    arrays["joint_errors"] += np.triu(arrays["joint_errors"], 1).T
  first, stop = arrays["seeds"].tolist()
  return Sitting((first, stop), stats.Tallies.from_arrays(arrays), record)


# Numbers and tables.


class Section(NamedTuple):
  """A table, with what it says."""

  title: str
  text: str
  head: Sequence[str]
  rows: Sequence[Sequence[Any]]


def write_numbers(
  flags: Flags,
  names: Mapping[str, int],
  kept: Mapping[str, list[Sitting]],
  data: vs.Dataset,
) -> None:
  """Writes the numbers of each duration, all tables, and what draws of runs show of each
  claim.
  """
  tallies = {}
  lengths = {}
  for name, sittings in kept.items():
    parts = [sitting.tallies for sitting in sittings]
    tallies[name] = functools.reduce(operator.add, parts)
    entries = [{"seeds": sitting.seeds, **sitting.record} for sitting in sittings]
    lengths[f"{data.name}-{names[name]}"] = {
      **numbers(tallies[name]),
      "epochs": names[name],
      "seconds": sum(entry["seconds"] for entry in entries),
      "sittings": entries,
    }
  by_claim = shares_shown(tallies)
  sections = [
    *figure_sections(tallies["long"]),
    disagreeing(names, tallies),
    covered(names, tallies),
    digits(names, tallies),
    dependent(names, tallies),
    decided(names, tallies),
    claims_section(names, tallies, by_claim),
  ]
  record = {
    "recipe": flags.recipe,
    "training_examples": len(data.train.inputs),
    "lengths": lengths,
    "shares": by_claim,
    "coverage": {
      names[name]: held_shares(t, few_of(tallies)) for name, t in tallies.items()
    },
    "tables": [section._asdict() for section in sections],
  }
  text = json.dumps(frame.plain(record), indent=1) + "\n"
  files.write(Path(flags.out, "numbers.json"), text.encode())


def numbers(tallies: stats.Tallies) -> dict[str, Any]:
  """The statistics of a duration's runs; intervals are of 95 %, over runs."""
  accuracies = 1 - tallies.error_rates()
  of_runs = stats.variance_over_runs(accuracies)
  on_distribution = tallies.distribution_variance()
  correlation = tallies.split_correlation()
  return {
    "runs": tallies.runs,
    "examples": tallies.examples,
    # How many runs have so many errors
    "errors": np.bincount(tallies.halves.sum(0).astype(int)).tolist(),
    "mean": float(accuracies.mean()),
    "mean_interval": stats.mean_over_runs(accuracies).interval,
    "sd": math.sqrt(of_runs),
    "sd_interval": roots(of_runs.interval),
    "independent_sd": math.sqrt(tallies.independent_errors_variance()),
    "distribution_variance": on_distribution.value,
    "distribution_variance_interval": on_distribution.interval,
    "distribution_sd": math.sqrt(max(0.0, on_distribution.value)),
    "distribution_sd_interval": roots(on_distribution.interval),
    "split_correlation": correlation.value,
    "split_correlation_interval": correlation.interval,
    "top_quarter_gain": tallies.top_fraction_gain().mean,
  }


def roots(ends: tuple[float, float]) -> tuple[float, float]:
  """Return the interval of a standard deviation from that of its variance."""
  low, high = (math.sqrt(max(0.0, end)) for end in ends)
  return low, high


def figure_sections(long: stats.Tallies) -> list[Section]:
  """The rows of figures 4 and 14 from these runs."""
  sections = []
  for script in (fig04, fig14):
    found = script.measure(long)
    rows = [(row["quantity"], words_of(row)) for row in found["rows"]]
    sections.append(Section(found["title"], "", ("quantity", "here"), rows))
  return sections


WORDS = {
  "mean": "mean accuracy",
  "variance": "variance on the test set",
  "correlation": "correlation of the halves",
  "gain": "gain of the top quarter on the other half",
}


def disagreeing(
  names: Mapping[str, int],
  tallies: Mapping[str, stats.Tallies],
) -> Section:
  """How often two runs disagree, beside how often one errs."""
  rows = []
  for name, t in tallies.items():
    errors = t.error_rates()
    apart = t.expected_disagreement().value
    low, high = stats.mean_over_runs(errors).interval
    rows.append(
      (
        frame.format_duration(names[name]),
        format_interval(errors.mean(), low, high, 100, " %"),
        format_percent(apart),
        f"{apart / errors.mean():.3f}",
        format_percent(t.ensemble_accuracy()),
      )
    )
  text = """How often a run errs, how often two runs predict different classes, the latter over the former (1 by
theorem 5 of the paper, if the runs' ensemble is calibrated), and the accuracy of the vote of all runs. Of disagreement
the tallies give no interval."""
  head = ("training", "error", "disagreement", "over error", "accuracy of all together")
  return Section("Disagreement of two runs", text, head, rows)


def few_of(tallies: Mapping[str, stats.Tallies]) -> int:
  """The runs of a small campaign, of which every duration has two at least."""
  return min(FEW, min(t.runs for t in tallies.values()) // 2)


def held_shares(
  tallies: stats.Tallies,
  few: int,
) -> dict[str, tuple[float, float, float]]:
  """How many of the intervals from `few` runs hold the value of all runs, by statistic,
  with Wilson's interval.
  """
  groups, held = lessons.coverage_of_groups(tallies, few)
  return {
    WORDS[statistic]: (
      hits / groups,
      *stats.proportion_over_examples(hits / groups, groups).interval,
    )
    for statistic, hits in held.items()
  }


def covered(names: Mapping[str, int], tallies: Mapping[str, stats.Tallies]) -> Section:
  """Whether intervals from few runs contain the value from all runs."""
  rows = []
  few = few_of(tallies)
  for name, t in tallies.items():
    groups, held = lessons.coverage_of_groups(t, few)
    for statistic, hits in held.items():
      low, high = stats.proportion_over_examples(hits / groups, groups).interval
      share = format_interval(hits / groups, low, high, 100, " %")
      rows.append(
        (
          frame.format_duration(names[name]),
          WORDS[statistic],
          f"{hits} of {groups}",
          share,
        )
      )
  text = f"""Disjoint groups of {few} of these runs, and the 95 % intervals of vmapseeds.stats from each: how many
hold what all runs say? In brackets Wilson's interval of that share. Equation 3's interval is not listed: it is that of
the variance on the test set, less what independent errors give, and holds when that does."""
  return Section(
    f"Intervals from {few} runs",
    text,
    ("training", "interval of", "hold", "share"),
    rows,
  )


def digits(names: Mapping[str, int], tallies: Mapping[str, stats.Tallies]) -> Section:
  """How precisely equation 3 is known."""
  rows = []
  few = few_of(tallies)
  for name, t in tallies.items():
    found = t.distribution_variance()
    sd = math.sqrt(max(0.0, found.value)), *roots(found.interval)
    reach = lessons.half_width(t, few)
    needed = t.runs_for_variance(PRECISE)
    rows.append(
      (
        frame.format_duration(names[name]),
        format_interval(*sd, 100, " %"),
        f"± {100 * reach / 2:.2g} %",
        f"{needed:,.0f}",
      )
    )
  text = f"""The standard deviation on the distribution with its 95 % interval from all runs; half the width of the
interval that {few} runs give, as a part of it; and how many runs bring that of the variance to ± {100 * PRECISE:.0f} %,
so that two digits of the standard deviation stand."""
  head = (
    "training",
    "equation 3 from all runs",
    f"reach of the interval from {few}",
    "runs for two digits",
  )
  return Section("Equation 3 to two digits", text, head, rows)


def dependent(
  names: Mapping[str, int],
  tallies: Mapping[str, stats.Tallies],
) -> Section:
  """Pairs beyond the paper's threshold, beside what chance alone gives."""
  rows = []
  for name, t in tallies.items():
    if t.joint_errors is not None:
      rates = t.example_error_rates()
      by_chance = [
        f"{stats.expected_false_pairs(rates, runs):,.0f}" for runs in (t.runs, FEW)
      ]
      pairs = t.examples * (t.examples - 1) // 2
      rows.append(
        (
          frame.format_duration(names[name]),
          f"{len(t.dependent_pairs().i):,} of {pairs:,}",
          *by_chance,
        )
      )
  text = """Pairs of test examples that are both right more than 2 % of the runs more or less often than independent
ones would be, beside how many chance alone puts there."""
  head = ("training", "pairs found", "by chance alone", f"by chance alone, {FEW} runs")
  return Section("Dependent pairs above chance", text, head, rows)


def decided(names: Mapping[str, int], tallies: Mapping[str, stats.Tallies]) -> Section:
  """What all runs decide and a larger campaign does not."""
  rows = []
  some = min(SOME, min(t.runs for t in tallies.values()) // 2)
  for name, t in tallies.items():
    duration = frame.format_duration(names[name])
    skewness = lessons.skewness_of_accuracy(t.halves)
    rows.append(
      (
        duration,
        "accuracies are not symmetric: p < 0.01",
        f"in {format_percent(lessons.skewed(t, some, 0.01))} of groups",
        f"skewness {skewness.skewness:.3f}, p = {skewness.p_value:.2g}",
      )
    )
    if t.joint_errors is not None and len(lessons.middling(t)) > 1:
      seen = map(format_percent, lessons.pairs_seen(t, np.array([some, t.runs])))
      rows.append((duration, "pairs 30 to 70 % right are seen to depend", *seen))
  text = f"""Disjoint groups of {some:,} of these runs, and all of them: whether accuracies are seen to have a longer tail
to one side, and the pairs of examples of figure 4's χ² test at 5 %, by its power."""
  head = ("training", "question", f"from {some:,} runs", "from all")
  return Section(f"What all runs decide that {some:,} do not", text, head, rows)


def shorter_duration(tallies: Mapping[str, stats.Tallies]) -> str:
  """The longest training but one."""
  if "medium" in tallies:
    return "medium"
  return "short"


def shares_shown(tallies: Mapping[str, stats.Tallies]) -> dict[str, dict[int, float]]:
  """By claim and number of runs: in how many draws of so many runs it is shown, of the
  long training against the next shorter one.
  """
  short = tallies[shorter_duration(tallies)]
  long = tallies["long"]
  by_size = {
    size: lessons.claim_shares(short, long, size)
    for size in lessons.group_sizes(min(short.runs, long.runs))
  }
  shares: dict[str, dict[int, float]] = {}
  for claim in lessons.CLAIMS:
    shares[claim] = {size: by_claim[claim] for size, by_claim in by_size.items()}
  return shares


def claims_section(
  names: Mapping[str, int],
  tallies: Mapping[str, stats.Tallies],
  by_claim: Mapping[str, Mapping[int, float]],
) -> Section:
  """How many runs each of the paper's claims needs."""
  shorter = shorter_duration(tallies)
  long = tallies["long"]
  most = max(max(by_size, default=0) for by_size in by_claim.values())
  least = {claim: lessons.smallest(by_size) for claim, by_size in by_claim.items()}

  def text_of(runs: int | None, most: int) -> str:
    return f"{runs:,}" if runs else f"more than {most:,}"

  rows = [(claim, text_of(runs, most)) for claim, runs in least.items()]
  needed, pairs, chosen = lessons.half_seen(long)
  rows.append(
    (
      "figure 4: half of the pairs of examples 30 to 70 % right are seen to depend (χ² test at 5 %)",
      f"{text_of(needed, long.runs)}: of {pairs:,} pairs of {chosen:,} examples",
    )
  )
  text = f"""Runs drawn from these, {lessons.DRAWS} times: from how many runs of {frame.format_duration(names[shorter])} and of
{frame.format_duration(names["long"])} on do at least 95 % of the draws show a claim, so that its 95 % intervals leave no doubt?
The last row follows from the χ² test's power at the dependence that all runs show."""
  head = ("claim", "runs of either training")
  return Section("The least number of runs for each claim", text, head, rows)


if __name__ == "__main__":
  main()
