"""How many runs a question takes, from the runs of a pilot. Nothing is trained."""

import io

import folders
import numpy as np
import pytest
import scipy.stats
from rich.console import Console
from test_compare import folder, of_seeds_and_folds

import vmapseeds as vs
from vmapseeds import cli, commands, stats
from vmapseeds.errors import UserError
from vmapseeds.reports import pages, runs_needed
from vmapseeds.store.files import write
from vmapseeds.store.results import Results

RNG = np.random.default_rng(0)
SCORES = 100 + 10 * RNG.standard_normal(20)


def said(*args, **options):
  text = io.StringIO()
  found = vs.sample_size(*args, **options)
  found.print(Console(width=200, file=text))
  return found, text.getvalue()


def of_scores(path, scores, seeds=None):
  columns = {} if seeds is None else {"seed_init": np.asarray(seeds, np.uint32)}
  about = {"role": "score", "unit": "reward"}
  return folders.outputs_folder(path, {"returns": (scores, about)}, columns)


def test_numbers_follow_from_the_pilots_standard_deviation(tmp_path):
  a = of_scores(tmp_path / "a", SCORES)
  (mean, difference, variance), text = said(a, detect=4, power=0.9)
  sds = np.sqrt([SCORES.var(ddof=1), *stats.variance_over_runs(SCORES).interval])
  assert mean[1:4] == pytest.approx(tuple(stats.runs_for_mean(sds, 4)))
  expected = stats.runs_for_difference(sds, 4, paired=False, power=0.9)
  assert difference[1:4] == pytest.approx(tuple(expected))
  assert difference.unit == "runs of each"
  assert "the mean to ± 4 reward" in text
  assert "a difference of 4 reward to another recipe, shown in 90 % of cases" in text
  assert f"{int(expected[0])} of each" in text
  # It follows from the kurtosis of the pilot alone, whose interval nobody knows.
  estimate = stats.variance_over_runs(SCORES)
  z = scipy.stats.norm.ppf(0.975)
  reach = z * float(estimate.se) / (0.1 * float(estimate))
  assert variance.runs == np.ceil(1 + 19 * reach**2)
  assert np.isnan([variance.low, variance.high]).all()
  power = stats.power_for_difference(20, sds[0], 4, paired=False)
  assert (
    f"A true difference of 4 reward would be shown with 20 runs of each in "
    f"{100 * power:.0f} % of cases." in text
  )
  assert "variance between runs to ± 10 %" in text
  # Without a difference it is half a standard deviation, in one digit.
  (mean, *_), text = said(a)
  assert mean.question == f"the mean to ± {float(f'{sds[0] / 2:.0e}'):g} reward"
  assert "n/a" in text  # these runs have no times


def test_pairs_by_seeds_take_as_many_as_their_differences_vary(tmp_path):
  noise = RNG.standard_normal(20)
  a = of_scores(tmp_path / "a", SCORES, range(20))
  order = RNG.permutation(20)
  b = of_scores(tmp_path / "b", (SCORES + noise + 3)[order], order)
  (*_, pairs, _), text = said(a, b, detect=1)
  expected = stats.runs_for_difference(noise.std(ddof=1), 1)
  # Of either recipe, not of the first alone.
  both = np.sqrt((SCORES.var(ddof=1) + (SCORES + noise).var(ddof=1)) / 2)
  unpaired = said(a, b, detect=1)[0][1]
  assert unpaired.runs == stats.runs_for_difference(both, 1, paired=False)
  assert (pairs.runs, pairs.unit) == (float(expected), "pairs")
  assert pairs.runs < said(a, detect=1)[0][1].runs / 10
  r = scipy.stats.pearsonr(SCORES, SCORES + noise).statistic
  assert f"have a correlation of {r:.2f} (" in text
  assert "the same, paired by seeds" in text


def test_the_variance_on_the_distribution_of_a_class(tmp_path):
  labels = np.zeros(200, np.int32)
  wrong = RNG.random((30, 200)) < 0.2 + 0.05 * RNG.standard_normal((30, 1))
  path = folder(
    tmp_path / "a",
    (~wrong).mean(1),
    range(30),
    labels=labels,
    predictions=wrong.astype(np.int8),
  )
  (mean, _, variance), text = said(path, detect=0.5)
  assert variance.runs == stats.runs_for_variance(wrong, 0.1)
  low, high = stats.distribution_variance(wrong).interval
  total = stats.test_set_variance(wrong)
  independent = total - stats.distribution_variance(wrong)
  # Normal runs: 2 (S²/σ²)² (1.96/0.1)², at both ends of σ².
  ends = [2 * ((v + independent) / v * 19.6) ** 2 for v in (high, low)]
  assert variance.low <= ends[0] * 1.01
  assert variance.high == np.inf if low <= 0 else variance.high >= ends[1] * 0.99
  assert "the mean to ± 0.5 points" in text
  assert mean.runs == stats.runs_for_mean((~wrong).mean(1).std(ddof=1), 0.005)


def test_times_are_those_of_the_pilot(tmp_path, monkeypatch):
  a = of_scores(tmp_path / "a", SCORES)
  record = {"seconds": 50.0, "compile_seconds": 2.0}
  monkeypatch.setattr(Results, "record", lambda *_: record)
  assert runs_needed.seconds_of_a_run(a) == 48 / 16  # runs of a block
  (mean, difference, _), text = said(a, detect=4)
  assert runs_needed.show_time(mean.runs * 3) in text
  assert runs_needed.show_time(2 * difference.runs * 3) in text
  assert [runs_needed.show_time(s) for s in (0.2, 59, 100, 5000, 200_000)] == [
    "0.2 s",
    "59 s",
    "1.7 min",
    "1.4 h",
    "2.3 days",
  ]


def test_reports_and_dry_runs_say_it_too(tmp_path, monkeypatch, capsys):
  def save(figure, path, image):
    write(path, b"")
    return "data:image/png;base64,"

  monkeypatch.setattr(pages, "_save_figure", save)
  a = of_scores(tmp_path / "a", SCORES)
  vs.report(a).save()
  page = (a / "report" / "report.html").read_text()
  assert "How many runs?" in page
  (mean, *_), _ = said(a)
  assert mean.question in page
  few = of_scores(tmp_path / "few", SCORES[:2])
  vs.report(few).save()
  assert "How many runs?" not in (few / "report" / "report.html").read_text()
  commands.print_sample_size_hint(str(a))
  commands.print_sample_size_hint(str(tmp_path / "none"))
  commands.print_sample_size_hint(str(few))
  assert capsys.readouterr().out == (
    f"20 runs are there: vmapseeds sample-size {a} says how many a question takes\n"
  )


def test_mistakes_and_the_command(tmp_path, capsys):
  a = of_scores(tmp_path / "a", SCORES)
  cli.main(["sample-size", str(a), "--detect", "4", "--power", "0.9"])
  assert "the mean to ± 4 reward" in capsys.readouterr().out
  few = of_scores(tmp_path / "few", SCORES[:2])
  same = of_scores(tmp_path / "same", SCORES[:1].repeat(9))
  other = of_scores(tmp_path / "other", SCORES, range(100, 120))
  three = of_scores(tmp_path / "three", SCORES[:3])
  for args, options, message in (
    ([few], {}, "few has 2 runs that did not diverge: a plan needs at least 3"),
    ([same], {}, "same has 9 runs .* that differ"),
    ([a, other], {}, "have too few seeds in common"),
    ([a, three], {}, "three have 3 pairs of runs: a correlation needs at least 4"),
    ([a], {"detect": 0}, "detect is 0"),
    ([a], {"detect": "x"}, "detect is 'x': give a number"),
    ([a], {"power": 1}, "power is 1"),
  ):
    with pytest.raises(UserError, match=message):
      said(*args, **options)


def test_sizes_of_two_folders_take_the_spread_of_both(tmp_path):
  """Of the sd 1.44 of one alone, 10 of each would be said, which show it in 68 %."""
  a = RNG.standard_normal(12)
  b = RNG.standard_normal(12)
  a, b = 1.44 * a / a.std(ddof=1), 2 * b / b.std(ddof=1)
  sides = [of_scores(tmp_path / n, x, range(12)) for n, x in (("a", a), ("b", b))]
  (_, difference, *_), _ = said(*sides, detect=2)
  sd = np.sqrt((1.44**2 + 2**2) / 2)
  assert difference.runs == stats.runs_for_difference(sd, 2, paired=False) == 13
  assert stats.power_for_difference(10, sd, 2, paired=False) < 0.7


def test_a_pilot_of_folds_counts_seeds(tmp_path):
  """15 runs would not do: the mean moves with the seed, of which there are 6."""
  means = 5 * RNG.standard_normal(6)
  scores = means[:, None] + 0.1 * RNG.standard_normal((6, 5))
  path = of_seeds_and_folds(tmp_path / "a", scores)
  (mean, difference), text = said(path, detect=4)
  sd = scores.mean(1).std(ddof=1)
  assert (mean.runs, mean.unit) == (float(stats.runs_for_mean(sd, 4)), "seeds")
  assert mean.runs_of_unit == 5
  assert difference.unit == "seeds of each"
  assert mean.seconds(2.0) == mean.runs * 5 * 2
  assert difference.seconds(2.0) == difference.runs * 5 * 2 * 2
  assert "6 seeds are drawn anew, each with its mean over 5 folds" in text


def test_no_number_of_folds_knows_a_mean_better_than_their_overlap(tmp_path):
  """Of 10 folds the variance of a mean is at least a ninth of that of a fold."""
  scores = RNG.standard_normal((1, 10))
  path = of_seeds_and_folds(tmp_path / "a", scores)
  sd = scores.std(ddof=1)
  (mean, *_), text = said(path, detect=0.6 * sd)
  assert mean.runs == np.inf
  assert "∞" in text
  (mean, *_), _ = said(path, detect=sd)
  folds = int(mean.runs)
  reaches = [
    scipy.stats.t.ppf(0.975, n - 1) * sd * (1 / n + 1 / 9) ** 0.5
    for n in (folds - 1, folds)
  ]
  assert reaches[1] <= sd < reaches[0]
