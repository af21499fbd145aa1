"""Reports, comparisons and --until of losses and scores, and the table of statistics
that drives them.
"""

import dataclasses
import io
import json

import folders
import numpy as np
import pytest
import scipy.stats
import test_report
import xarray as xr
from cases import words_of
from rich.console import Console

import vmapseeds as vs
from vmapseeds.campaign import until
from vmapseeds.campaign.until import NARROWED, Until
from vmapseeds.errors import UserError
from vmapseeds.reports import plots, results_page
from vmapseeds.reports.results_page import figures_of_output
from vmapseeds.reports.summaries import measure_outputs, summarize
from vmapseeds.results.formatting import show
from vmapseeds.results.roles import REPORTED_ROLES
from vmapseeds.results.statistics import STATISTICS

pytestmark = pytest.mark.usefixtures("undrawn")
LOSS = {"role": "loss", "unit": "nats"}
SCORE = {"role": "score", "unit": "reward", "higher_is_better": True}
FRAMES = {"role": "score", "unit": "frames", "higher_is_better": False}
rng = np.random.default_rng(0)
SCORES = 103 + 10 * rng.standard_normal(40)
LOSSES = (rng.gamma(1, 1, 50) * rng.lognormal(0, 0.3, (40, 50))).astype(np.float32)


def dataset(columns=None, **outputs):
  """What `open_results` gives: name -> (values, attributes)."""
  axes = ("run", "example", "token")
  runs = len(next(iter(outputs.values()))[0])
  return xr.Dataset(
    {
      name: (axes[: np.ndim(values)], values, about)
      for name, (values, about) in outputs.items()
    },
    coords={
      "seed_init": ("run", np.arange(runs), {"role": "seed"}),
      **(columns or {}),
    },
    attrs={
      "recipe": '{"name": "walk", "values": {"lr": 0.1}}',
      "device_kind": "cpu",
      "lane_width": 1,
      "lowering": "sequential",
      "versions": "{}",
    },
  )


def quietly(function, *args, **options):
  """What is returned, and what is printed of it and its pages."""
  text = io.StringIO()
  found = function(*args, **options)
  found.save()
  found.print(Console(width=200, file=text))
  return found, text.getvalue()


def test_losses_of_0_and_1_have_the_statistics_of_errors():
  classes = test_report.dataset(30, 61)
  errors = (classes.predictions != classes.labels).values
  of_class = summarize(classes)["statistics"]
  of_loss = summarize(dataset(errors=(errors.astype(np.float32), LOSS)))["statistics"]
  same = {
    "sd_accuracy": "sd_loss",
    "independent_errors_sd": "independent_losses_sd",
    **{name: name for name in ("distribution_variance", "distribution_sd")},
    "split_correlation": "split_correlation",
    "runs_for_variance": "runs_for_variance",
    "normality": "normality",
  }
  for theirs, ours in same.items():
    for part in ("value", "se", "low", "high"):
      expected, found = of_class[theirs][part], of_loss[ours][part]
      assert (expected is None) == (found is None), (ours, part)
      assert found is None or found == pytest.approx(expected, rel=1e-9), (ours, part)
  assert of_loss["mean_loss"]["value"] == pytest.approx(
    1 - of_class["mean_accuracy"]["value"]
  )
  assert of_loss["max_loss"]["value"] == pytest.approx(errors.mean(1).max())
  assert of_loss["distribution_variance"]["unit"] == "nats²"


def test_variances_of_losses_are_not_bounded_as_those_of_accuracies():
  found = summarize(dataset(loss=(100 * LOSSES, LOSS)))["statistics"]
  assert found["sd_loss"]["high"] > found["sd_loss"]["value"] > 0.5


def test_the_hardest_examples_come_first():
  found = summarize(dataset(loss=(LOSSES, LOSS)))
  hard = found["hard_examples"]
  mean = LOSSES.astype(float).mean(0)
  assert [row["example"] for row in hard] == np.argsort(-mean)[:10].tolist()
  first = LOSSES[:, hard[0]["example"]].astype(float)
  assert hard[0]["mean_loss"] == pytest.approx(first.mean())
  assert hard[0]["sd"] == pytest.approx(first.std(ddof=1))


def test_more_axes_of_examples_are_flattened():
  flat = summarize(dataset(loss=(LOSSES, LOSS)))
  folded = summarize(dataset(loss=(LOSSES.reshape(40, 10, 5), LOSS)))
  assert folded == flat
  assert flat["examples"] == 50


def test_classes_of_any_name_and_axes():
  """Predictions (run, example, token) that are called otherwise, with their labels."""
  flat = test_report.dataset(12, 60)
  tokens = flat.predictions.values.reshape(12, 20, 3)
  about = {"role": "class", "labels": "words", "num_classes": 3}
  results = dataset(tokens=(tokens, about))
  words = (("example", "token"), flat.labels.values.reshape(20, 3))
  found = summarize(results.assign(words=words))
  expected = summarize(flat)
  assert found["output"] == "tokens"
  for part in ("statistics", "pairs", "summary", "warnings", "examples", "classes"):
    assert found[part] == expected[part]


def test_statistics_of_scores():
  found = summarize(dataset(returns=(SCORES, SCORE)))
  numbers = found["statistics"]
  for name, p in {"q05": 5, "q25": 25, "median": 50, "q75": 75, "q95": 95}.items():
    assert numbers[name]["value"] == pytest.approx(np.percentile(SCORES, p))
    assert numbers[name]["unit"] == "reward"
  # The binomial number of runs below the median lies between these ranks.
  ranks = scipy.stats.binom.ppf([0.025, 0.975], 40, 0.5).astype(int)
  ordered = np.sort(SCORES)
  assert numbers["median"]["low"] == ordered[ranks[0] - 1]
  assert numbers["median"]["high"] == ordered[ranks[1]]
  assert numbers["q05"]["low"] is None
  assert numbers["iqm"]["value"] == pytest.approx(ordered[10:30].mean())
  assert numbers["iqm"]["low"] < numbers["iqm"]["value"] < numbers["iqm"]["high"]
  low, high = scipy.stats.t.interval(0.95, 39, SCORES.mean(), scipy.stats.sem(SCORES))
  mean = numbers["mean"]
  assert (mean["low"], mean["high"]) == pytest.approx((low, high))
  assert numbers["sd"]["value"] == pytest.approx(SCORES.std(ddof=1))
  assert numbers["sd"]["high"] == pytest.approx(
    np.sqrt(vs.stats.variance_over_runs(SCORES).high)
  )
  assert (numbers["min"]["value"], numbers["max"]["value"]) == (ordered[0], ordered[-1])
  assert "%" not in found["summary"]
  assert show(103.2, None, "reward") == "103 reward"
  for s in numbers.values():
    assert s["unit"] == "p" or "reward" in s["reading"]
  assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize("runs", [1, 2, 5])
def test_few_runs_and_equal_ones(runs):
  for values in (SCORES[:runs], np.full(runs, 7.0)):
    results = dataset(returns=(values, SCORE), loss=(LOSSES[:runs], LOSS))
    found = summarize(results)
    assert found["statistics"]["mean"]["value"] == pytest.approx(values.mean())
    for runs_of, section in zip(
      measure_outputs(results), results_page.summaries_of_outputs(found), strict=True
    ):
      for figure in figures_of_output(runs_of, section).values():
        figure.draw(plots.figure()[1])


def test_scores_that_are_not_finite_are_undefined_and_nothing_else_is():
  scores = SCORES.copy()
  scores[[3, 5]] = np.nan, np.inf
  found = summarize(dataset(returns=(scores, SCORE), frames=(SCORES, FRAMES)))
  assert [found[name] for name in ("runs", "diverged", "undefined")] == [38, 0, 2]
  (warning,) = (w for w in found["warnings"] if "undefined" in w)
  assert warning == (
    "returns is undefined in 2 of 40 runs, NaN or infinite, which are left out of its "
    "statistics."
  )
  kept = np.delete(SCORES, [3, 5])
  assert found["statistics"]["mean"]["value"] == pytest.approx(kept.mean())
  frames = found["further"][0]
  assert (frames["runs"], frames["undefined"]) == (40, 0)
  assert not any("undefined" in w for w in frames["warnings"])
  nowhere = np.full(40, np.nan), SCORE
  with pytest.raises(
    UserError, match="returns is undefined in all 40 runs, NaN or inf"
  ):
    summarize(dataset(returns=nowhere))
  beside = summarize(dataset(returns=nowhere, frames=(SCORES, FRAMES)))
  assert beside["statistics"] == frames["statistics"]
  assert (
    "returns is undefined in all 40 runs, NaN or infinite: it has no statistics."
    in beside["warnings"]
  )
  said = xr.Variable("run", np.arange(40) == 7)
  one = summarize(dataset(returns=(scores, SCORE)).assign(diverged=said))
  assert [one[name] for name in ("runs", "diverged", "undefined")] == [37, 1, 2]
  assert "1 run diverged and is left out of every statistic." in one["warnings"]


def test_a_folder_of_several_outputs_has_a_section_each(tmp_path):
  path = folders.outputs_folder(
    tmp_path / "walk",
    {"returns": (SCORES, SCORE), "loss": (LOSSES, LOSS), "frames": (SCORES, FRAMES)},
  )
  (summary,), text = quietly(vs.report, path)
  assert [s["output"] for s in results_page.summaries_of_outputs(summary)] == [
    "returns",
    "loss",
    "frames",
  ]
  assert json.loads((path / "report/report.json").read_text()) == summary
  assert {p.name for p in (path / "report").glob("*.svg")} == {
    *words_of(
      "returns.score_distribution.svg loss.loss_distribution.svg "
      "loss.losses.svg loss.split.svg frames.score_distribution.svg"
    )
  }
  page = test_report.Page((path / "report/report.html").read_text("utf-8"))
  assert page.tags["img"] == 5
  shown = page.text.replace("\N{NO-BREAK SPACE}", " ")
  for section in results_page.summaries_of_outputs(summary):
    assert section["summary"] in shown
    for s in section["statistics"].values():
      assert show(s["value"], s["se"], s["unit"]) in shown
      assert show(s["value"], s["se"], s["unit"]) in text
  assert f"{summary['further'][0]['hard_examples'][0]['example']}" in shown
  assert "The test examples with the largest mean loss" in shown
  assert "lr=0.1" in shown


@pytest.mark.slow
def test_groups_of_several_outputs_side_by_side(tmp_path):
  columns = {
    "lr": np.repeat([0.1, 0.2], 20),
    "seed_init": np.tile(np.arange(20, dtype=np.uint32), 2),
  }
  path = folders.outputs_folder(
    tmp_path / "walk", {"returns": (SCORES, SCORE), "loss": (LOSSES, LOSS)}, columns
  )
  summaries, text = quietly(vs.report, path)
  assert [s["values"] for s in summaries] == [{"lr": 0.1}, {"lr": 0.2}]
  assert "returns side by side, in reward" in text
  assert "mean loss side by side, in nats" in text
  page = test_report.Page((path / "report/report.html").read_text("utf-8"))
  # Three, and for each output a response curve and the means beside each other.
  assert page.tags["img"] == 7
  assert "lr=0.1: loss" in page.text.replace("\N{NO-BREAK SPACE}", " ")


def test_a_group_of_which_one_output_is_never_finite_keeps_the_others(tmp_path):
  lost = np.where(np.arange(40)[:, None] < 20, LOSSES, np.inf).astype(np.float32)
  columns = {"lr": np.repeat([0.1, 0.2], 20)}
  path = folders.outputs_folder(
    tmp_path / "walk", {"returns": (SCORES, SCORE), "loss": (lost, LOSS)}, columns
  )
  summaries, text = quietly(vs.report, path)
  outputs = [[s["output"], *(f["output"] for f in s["further"])] for s in summaries]
  assert outputs == [["returns", "loss"], ["returns"]]
  alone = dataset(returns=(SCORES[20:], SCORE), loss=(LOSSES[20:], LOSS))
  mean = summarize(alone)["statistics"]["mean"]
  assert summaries[1]["statistics"]["mean"]["value"] == mean["value"]
  assert "loss is undefined in all 20 runs, NaN or infinite" in text
  # Of a single output that is undefined, there is nothing to say of the group.
  only = folders.outputs_folder(tmp_path / "only", {"loss": (lost, LOSS)}, columns)
  (summary,), text = quietly(vs.report, only)
  assert summary["values"] == {"lr": 0.1}
  assert "lr=0.2: loss is undefined in all 20 runs." in text


@pytest.mark.parametrize("role", ["score", "loss"])
def test_comparisons_and_plans_say_in_how_many_runs_an_output_is_undefined(
  role, tmp_path
):
  values, attributes = (SCORES, SCORE) if role == "score" else (LOSSES, LOSS)
  undefined = 0.9 * values
  undefined[[2, 5, 11]] = np.nan
  paths = [
    folders.outputs_folder(tmp_path / name, {"out": (of_side, attributes)})
    for name, of_side in (("a", values), ("b", undefined))
  ]
  (said,) = found = vs.compare(*paths)
  means = [np.asarray(v, float).reshape(40, -1).mean(1) for v in (values, undefined)]
  # They are paired by their seeds.
  differences = np.delete(means[0] - means[1], [2, 5, 11])
  sign = 1 if role == "score" else -1
  assert said.found.difference == pytest.approx(sign * differences.mean())
  sentence = "out is undefined in 3 of 40 runs, NaN or infinite"
  assert [note for note in found.notes if "undefined" in note] == [
    f"B: {sentence}, which are left out of its statistics."
  ]
  assert sentence in found.document.brief[0].sentences[-1]
  assert sentence in vs.sample_size(paths[1]).notes[0]
  assert not vs.sample_size(paths[0]).notes
  nowhere = folders.outputs_folder(
    tmp_path / "c", {"out": (np.full_like(values, np.nan), attributes)}
  )
  with pytest.raises(UserError, match="and of which out is defined: choose another"):
    vs.compare(paths[0], nowhere)
  with pytest.raises(UserError, match="out is undefined in all 40 runs"):
    vs.sample_size(nowhere)


def test_comparisons_of_scores_and_losses(tmp_path):
  better = {"returns": SCORES + 10, "frames": SCORES - 10, "loss": LOSSES * 0.9}
  worse = {"returns": SCORES, "frames": SCORES, "loss": LOSSES}
  roles = {"returns": SCORE, "frames": FRAMES, "loss": LOSS}
  a, b = (
    folders.outputs_folder(
      tmp_path / name, {of: (values[of], roles[of]) for of in roles}
    )
    for name, values in (("a", better), ("b", worse))
  )
  (found,), text = quietly(vs.compare, a, b)
  assert found.outperforming[0] == 1
  assert text.startswith("A is better than B by 10 reward (95 % interval")
  assert "percent" not in text
  assert show(SCORES.std(ddof=1), None, "reward") in text
  difference = 0.1 * LOSSES.astype(float).mean()
  for name, sentence in (
    ("frames", "A is better than B: its frames is lower by 10 frames ("),
    ("loss", f"A is better than B: its mean loss is lower by {difference:.4f} nats ("),
  ):
    (found,), text = quietly(vs.compare, a, b, output=name)
    assert found.outperforming[0] == 1
    assert text.startswith(sentence)
    page = a / "report" / name / "against_b" / "compare.html"
    assert text.endswith(f"{page}\n")
    assert json.loads(page.with_suffix(".json").read_text())["output"] == name
  assert "on these 50 test examples" in text
  assert (
    "On other test examples of the same kind, with other runs, it is better" in text
  )
  with pytest.raises(UserError, match="unknown output 'return': choose one of returns"):
    quietly(vs.compare, a, b, output="return")
  short = folders.outputs_folder(tmp_path / "short", {"loss": (LOSSES[:, :9], LOSS)})
  with pytest.raises(UserError, match="short were tested on different examples"):
    quietly(vs.compare, a, short, output="loss")


def test_a_folder_without_a_role_says_how_to_declare_one(tmp_path):
  path = folders.outputs_folder(tmp_path / "walk", {"place": (SCORES, {})})
  message = (
    r"no output of these results has the role class, loss or score: they have place; "
    r"declare .*role='score'"
  )
  for function in (vs.report, lambda *a, **o: vs.compare(*a, path, **o)):
    with pytest.raises(UserError, match=message):
      quietly(function, path)


# --until.


def test_until_of_scores_and_losses():
  results = dataset(returns=(SCORES, SCORE), loss=(LOSSES, LOSS))
  summary = summarize(results)
  assert (
    until.measure_statistic(results, Until.parse("mean rel 1%"))
    == summary["statistics"]["mean"]
  )
  for section in results_page.summaries_of_outputs(summary):
    for name in NARROWED[section["role"]]:
      found = until.measure_statistic(
        results, Until(name, True, 0.1, section["output"])
      )
      assert found == section["statistics"][name]
  assert (
    until.measure_statistic(results, Until.parse("sd_loss rel 1%"))
    == summary["further"][0]["statistics"]["sd_loss"]
  )
  assert Until.parse("returns:mean abs 0.1") == Until("mean", False, 0.1, "returns")
  with pytest.raises(UserError, match="unknown output 'return': choose one of returns"):
    until.measure_statistic(results, Until.parse("return:mean abs 0.1"))
  with pytest.raises(
    UserError, match="--until mean_accuracy: no output has that; returns has mean, sd"
  ):
    until.measure_statistic(results, Until.parse("mean_accuracy abs 1%"))


@pytest.mark.parametrize(
  ("first", "trained"), [(500, [500]), (350, [350, 380]), (16, [16, 64, 256, 380])]
)
def test_a_stage_has_five_per_cent_more_runs_than_seem_to_be_needed(
  first, trained, monkeypatch
):
  """The interval is 19/√R on either side, so 361 runs are enough."""
  counts = []

  def trains(recipe, runs, out, **how):
    counts.append(len(runs))
    return dataset(returns=(np.zeros(len(runs)), SCORE))

  def estimate(results, rule):
    reach = 19 / np.sqrt(results.sizes["run"])
    return {"value": 0.0, "low": -reach, "high": reach, "unit": "reward"}

  monkeypatch.setattr(until, "measure_statistic", estimate)
  monkeypatch.setattr(until.running, "train", trains)
  rule = Until.parse("mean_accuracy abs 1")
  recipe, runs = vs.recipe("digits_cnn"), vs.Runs.independent(1000)
  results = until.train_until(recipe, runs, "", rule, first=first)
  assert counts == trained
  assert results.sizes["run"] == trained[-1]


# The table.


@pytest.mark.parametrize("runs", [29, 30])
def test_few_runs_are_fewer_than_30(runs):
  for results in (
    test_report.dataset(runs),
    dataset(returns=(SCORES[:runs], SCORE)),
    dataset(loss=(LOSSES[:runs], LOSS)),
  ):
    said = [w for w in summarize(results)["warnings"] if "With only" in w]
    assert len(said) == (runs < 30)


def test_names_are_of_one_statistic_in_a_role():
  assert tuple(STATISTICS) == tuple(REPORTED_ROLES)
  for role, rows in STATISTICS.items():
    named = [row.name for row in rows if row.needs is None]
    assert len({*named}) == len(named)
    assert all(row.over in (None, "runs", "examples") for row in rows)
    assert {"mean", "sd"} <= {row.heading for row in rows}, role


def test_headings_are_for_the_eye_alone(monkeypatch):
  summary = test_report.usual()
  figures = figures_of_output(measure_outputs(test_report.dataset())[0], summary)
  for role, rows in STATISTICS.items():
    others = []
    for row in rows:
      heading = row.heading and f"{row.name}!"
      others.append(dataclasses.replace(row, heading=heading))
    monkeypatch.setitem(STATISTICS, role, others)
  other = summarize(test_report.dataset())
  assert other["summary"] == summary["summary"]
  assert other["statistics"] == summary["statistics"]
  names = summary["headline"].values()
  assert other["headline"] == {f"{name}!": name for name in names}
  drawn = figures_of_output(measure_outputs(test_report.dataset())[0], other)
  assert list(drawn) == list(figures)
