"""What `compare` says of two results folders. Nothing is trained: each test writes the
accuracies that it needs.
"""

import html
import io
import json
import tracemalloc
from pathlib import Path

import folders
import numpy as np
import pytest
import scipy.stats
from cases import words_of
from rich.console import Console

import vmapseeds as vs
from vmapseeds import cli, stats
from vmapseeds.errors import UserError
from vmapseeds.reports import pages, plots, verdict
from vmapseeds.results.description import IMPORTED
from vmapseeds.store.files import write
from vmapseeds.training.names import SOURCES

EXAMPLES = 20


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
  """Pages have a stand-in for their figure, which takes longer than all the rest."""

  def save(figure, path, image):
    write(path, b"")
    return "data:image/png;base64,"

  monkeypatch.setattr(pages, "_save_figure", save)


def folder(
  path,
  accuracies,
  seeds=None,
  diverged=(),
  labels=None,
  test_sets=("test",),
  predictions=None,
  **swept,
):
  """A results folder of runs with these accuracies; without seeds, as imported runs
  are.
  """
  labels = np.arange(EXAMPLES, dtype=np.int32) % 3 if labels is None else labels
  columns = (
    {}
    if seeds is None
    else {f"seed_{s}": np.asarray(seeds, np.uint32) for s in SOURCES}
  )
  columns |= {name: np.asarray(values) for name, values in swept.items()}
  attributes = {
    "recipe": vs.recipe("digits_cnn").to_json(),
    "test_sets": [*test_sets],
    "num_classes": 3,
    "sampling": None,
    "device_kind": "cpu" if columns else IMPORTED,
    "lane_width": 1,
    "lowering": "im2col",
    "precision": "float32",
    "data_digest": "",
    "versions": {},
  }
  runs = len(accuracies)
  return folders.folder(
    path,
    attributes,
    block_runs=128,
    columns=columns,
    labels=labels,
    diverged=np.isin(np.arange(runs), diverged),
    accuracy=np.asarray(accuracies, float),
    predictions=np.full((runs, len(labels)), -1)
    if predictions is None
    else predictions,
  )


def said(*args, **options):
  """The first comparison, and what is printed of it, its page, and all sentences."""
  found, text = compared(*args, **options)
  *lines, page = text.splitlines()
  return found[0], "\n".join([*lines, *sentences_of(Path(page)), page, ""])


def sentences_of(page):
  """The sentences of the first comparison, of which a terminal shows some."""
  record = json.loads(page.with_suffix(".json").read_text())
  return record["comparisons"][0]["sentences"]


def compared(*args, out=None, **options):
  """All comparisons, and what is printed of them and their page."""
  text = io.StringIO()
  found = vs.compare(*args, **options)
  found.save(out)
  found.print(Console(width=300, file=text))
  return found, text.getvalue()


A = np.array([0.95, 0.9, 0.85, 0.95, 0.8, 0.75, 0.9, 1.0])
B = np.array([0.9, 0.85, 0.85, 0.7, 0.85, 0.65, 0.8, 0.95])


def test_pairs_of_the_same_seeds(tmp_path):
  """B has the runs in another order, and one run of its own. One pair is left out
  because a run of A diverged.
  """
  a = folder(tmp_path / "a", [*A, 0.1], seeds=range(9), diverged=[8])
  b = folder(tmp_path / "b", [0.2, *B[::-1], 0.3], seeds=[50, *range(7, -1, -1), 8])
  found, text = said(a, b)
  difference = stats.compare_means(A, B)
  assert tuple(found.found) == tuple(difference)
  low, high = (f"{-100 * end:z.0f}" for end in (difference[2], difference[1]))
  assert difference.p_value > 0.05
  assert text.startswith(
    "No difference shown on these 20 test examples: B minus A is -7 points (95 % interval "
    f"{low} to {high}).\n"
  )
  low, high = (f"{100 * end**0.5:.0f}" for end in stats.variance_over_runs(A).interval)
  assert f"A {100 * A.std(ddof=1):.2f} % ({low} to {high} %)" in text
  assert f"{100 * A.mean():.1f} ± {100 * A.std(ddof=1) / 8**0.5:.1f} % " in text
  ratio = stats.variance_ratio(A, B)
  assert (
    f"{float(ratio):.3g}, 95 % interval {ratio.low:.3g} to {ratio.high:.3g} (jackknife of pairs)"
    in text
  )
  assert f"Shapiro-Wilk: p {scipy.stats.shapiro(A).pvalue:.2g} for A" in text
  assert "12 % of the comparisons are ties" in text


def test_the_second_folder_may_be_better(tmp_path):
  """Whichever is given first, the same sentence says which is better."""
  a, b = (
    folder(tmp_path / n, x, seeds=range(8)) for n, x in (("a", A), ("b", A - 0.3))
  )
  first, forth = said(a, b)
  second, back = said(b, a)
  swapped = str.maketrans("AB", "BA")
  assert forth.splitlines()[0] == back.splitlines()[0].translate(swapped)
  assert back.startswith("B is better than A by 30")
  assert first.verdict == second.verdict == "better"
  assert (first.leads, second.leads) == (True, False)
  assert (first.found.low, first.found.high) == (-second.found.high, -second.found.low)
  assert (first.outperforming[0], second.outperforming[0]) == (1, 0)
  assert "a run of B beats one of A in 100 % of pairs (63 to 100 %)" in back


PAIRS_NEEDED = "at least 6 pairs, or 4 runs of each without pairs"


def test_too_few_runs_are_not_called_better(tmp_path):
  """A wins all of 3 pairs by far, which happens to one of two equal recipes in 1 of 4
  cases. Nothing else that is printed calls it better.
  """
  for number, paired, chance, fewest in (
    (3, True, "all pairs of one ahead in 25 %", PAIRS_NEEDED),
    (5, True, "all pairs of one ahead in 6.2 %", PAIRS_NEEDED),
    (3, False, "all runs of one ahead in 10 %", "at least 4 runs of each"),
    (1, True, "a single run shows no spread", PAIRS_NEEDED),
  ):
    a, b = A[:number], B[:number] - 0.5
    sides = (
      folder(tmp_path / f"{n}{number}{paired}", x) for n, x in (("a", a), ("b", b))
    )
    found, text = said(*sides, paired=paired)
    assert found.verdict == "too few runs"
    first, second, *_ = text.splitlines()
    assert first.startswith("Too few runs to say which is better: B minus A is -5")
    assert chance in first
    assert second == f"At an error rate of 5 % it takes {fewest}."
    if number == 3 and paired:
      ends = [f"{100 * x:.0f}" for x in stats.mean_difference(b, a).interval]
      assert f"({ends[0]} to {ends[1]} if runs were normal)" in first


@pytest.mark.slow
def test_no_difference_shown_says_what_is_compatible_and_what_it_would_take(tmp_path):
  rng = np.random.default_rng(5)
  a, b = rng.integers(14, 20, (2, 30)) / 20
  sides = [folder(tmp_path / n, x, seeds=range(30)) for n, x in (("a", a), ("b", b))]
  found, text = said(*sides)
  assert found.verdict == "no difference shown"
  low, high = (100 * float(x) for x in found.found[1:3])
  assert low < 0 < high
  first, second, *_ = text.splitlines()
  assert f"B minus A is {100 * (b - a).mean():.1f} points (95 % interval" in first
  assert f"up to {max(-low, high):.2g} points is compatible" in second
  wanted = float(f"{(high - low) / 4:.0e}")
  needed = stats.runs_for_difference((a - b).std(ddof=1), wanted / 100) - 30
  number = int(second.split("about ")[1].split(" more pairs are needed")[0])
  assert f"to show one of {wanted:g} points, about " in second
  assert needed <= number <= 1.1 * needed
  # With that many, 8 of 10 simulated campaigns of such a difference show it.
  shown = [
    stats.compare_means(
      rng.choice(a - b, 30 + number) - (a - b).mean() + wanted / 100,
      0 * np.arange(30 + number),
    ).p_value
    <= 0.05
    for _ in range(200)
  ]
  assert 0.7 < np.mean(shown) < 0.9


def test_equal_within_a_margin(tmp_path, capsys):
  rng = np.random.default_rng(1)
  a, b = rng.integers(16, 19, (2, 40)) / 20
  sides = [folder(tmp_path / n, x, seeds=range(40)) for n, x in (("a", a), ("b", b))]
  found, text = said(*sides, margin=3)
  most = 100 * max(-found.found.low, found.found.high)
  assert found.verdict == "equal"
  assert text.startswith(
    "A and B are equal within 3 points on these 20 test examples: "
  )
  found, text = said(*sides, margin=0.9 * most)
  assert found.verdict == "no difference shown"
  about = f"to tell a difference of {0.9 * most:.3g} points from none, about "
  assert about in text
  more = int(text.split(about)[1].split(" more pairs")[0])
  # Of two equal recipes that many pairs in all show it in 8 of 10 cases.
  pairs = 40 + more
  sd = (a - b).std(ddof=1)
  differences = sd * rng.standard_normal((4000, pairs))
  reach = scipy.stats.t.ppf(0.975, pairs - 1) * differences.std(1, ddof=1) / pairs**0.5
  shown = abs(differences.mean(1)) + reach <= 0.9 * most / 100
  assert 0.77 < shown.mean() < 0.86
  worse = folder(tmp_path / "worse", a - 0.05, seeds=range(40))
  for margin, words in (
    (6, ", which is within the margin of 6 points;"),
    (3, ", more than the margin of 3 points;"),
  ):
    found, text = said(sides[0], worse, margin=margin)
    assert found.verdict == "better"
    assert words in text
  cli.main(["compare", *map(str, sides), "--margin", "3"])
  assert "equal within 3 points" in capsys.readouterr().out
  for margin in (0, -1, "x", np.inf):
    with pytest.raises(UserError, match="margin is"):
      said(*sides, margin=margin)


def test_other_examples(tmp_path):
  """Predictions say how the runs would do on other examples, and whose they are is said."""
  rng = np.random.default_rng(0)
  labels = np.zeros(60, np.int32)
  # A is right where B is on all examples but three, in every run.
  wrong = rng.random((2, 12, 60)) < 0.02
  wrong[0, :, :3], wrong[1, :, :3] = False, True
  sides = [
    folder(
      tmp_path / name,
      (~of).mean(1),
      seeds=range(12),
      labels=labels,
      predictions=of.astype(np.int8),
    )
    for name, of in zip("ab", wrong, strict=True)
  ]
  found, text = said(*sides)
  both = stats.compare_means_on_other_examples(*(~wrong))
  assert found.elsewhere.interval == both.interval
  assert found.found.low > 0 > both.low
  assert "on these 60 test examples" in text
  ends = f"{100 * both.low:z.0f} to {100 * both.high:z.0f} points"
  assert (
    "On other test examples of the same kind that is not shown: with other runs and "
    f"other examples the interval is {ends}."
  ) in text
  found, text = said(*sides, paired=False)
  unpaired = stats.compare_means_on_other_examples(*(~wrong), paired=False)
  assert found.elsewhere.interval == unpaired.interval != both.interval


def test_several_against_the_first_and_all_pairs(tmp_path, capsys):
  rng = np.random.default_rng(3)
  accuracies = rng.integers(14, 19, 12) / 20
  shifts = {"a": 0, "b": -0.2, "c": 0, "d": -0.25}
  sides = [
    folder(tmp_path / name, accuracies + shift + rng.integers(0, 2, 12) / 20, range(12))
    for name, shift in shifts.items()
  ]
  found, text = compared(*sides)
  assert [c.names for c in found] == [("A", "B"), ("A", "C"), ("A", "D")]
  assert [c.verdict for c in found] == ["better", "no difference shown", "better"]
  p = stats.holm([c.found.p_value for c in found])
  assert [c.p_value for c in found] == p.tolist()
  assert "D - A" in text
  assert f"{p[0]:.2g}" in text
  page = tmp_path / "a" / "report" / "against_b, c, d" / "compare.html"
  assert text.endswith(f"{page}\n")
  written = json.loads(page.with_suffix(".json").read_text())
  assert [c["verdict"] for c in written["comparisons"]] == [c.verdict for c in found]
  assert [*written["sides"]] == ["A", "B", "C", "D"]
  for c in found:
    assert c.sentence in html.unescape(page.read_text()).replace(
      "\N{NO-BREAK SPACE}", " "
    )
  cli.main(["compare", *map(str, sides), "--all-pairs"])
  assert "D - C" in capsys.readouterr().out
  assert len(vs.compare(*sides, all_pairs=True)) == 6
  # Of 6 comparisons a p-value of 0.02 shows nothing, and the sentence says so.
  few = [
    folder(tmp_path / n, np.full(7, 0.5) + s, range(7))
    for n, s in (("e", [0.1] * 7), ("f", [0] * 7), ("g", [0.1] * 7), ("h", [0] * 7))
  ]
  assert vs.compare(*few[:2]).verdict == "better"
  found, text = compared(*few, all_pairs=True)
  assert {c.verdict for c in found} == {"too few runs"}
  assert "at least 8 pairs" in text


@pytest.mark.slow
def test_without_common_seeds_all_are_compared_with_all(tmp_path):
  b = folder(tmp_path / "b", B[:5], seeds=range(100, 105))
  # In "few" only two runs have a partner in `b`: comparing these pairs alone would
  # ignore the other runs.
  for name, seeds in (
    ("other", range(8)),
    ("none", None),
    ("repeated", [100] * 8),
    ("few", range(94, 102)),
  ):
    found, text = said(folder(tmp_path / name, A, seeds=seeds), b)
    assert not found.paired
    p = stats.probability_of_outperforming(A, B[:5], paired=False)
    assert found.outperforming[0] == p
    assert tuple(found.found) == tuple(stats.compare_means(A, B[:5], paired=False))
    ties = sum(x == y for x in A for y in B[:5])
    assert f"{100 * ties / 40:.0f} % of the comparisons are ties" in text
    assert "more runs of each are needed" in text
    assert "(jackknife)" in text


def test_runs_from_the_same_seeds_and_networks_are_pairs(tmp_path):
  """Each stored network is the start of runs of all seeds: both are drawn anew."""
  seeds, start = [0, 1, 2] * 3, np.repeat([0, 1, 2], 3)
  of_a, of_b = np.r_[A, 0.7], np.r_[B, 0.6]
  a, b = (
    folder(tmp_path / n, x, seeds=seeds, start=start)
    for n, x in (("a", of_a), ("b", of_b))
  )
  found, text = said(a, b)
  assert found.matching == "the same seeds"
  labels = {"seed": np.asarray(seeds), "start": start}
  mean = stats.design(of_a - of_b, labels).mean()
  assert found.found.low == pytest.approx(float(mean.low))
  assert found.found.high == pytest.approx(float(mean.high))
  assert "3 seeds of start are drawn anew, each with each of the others" in text
  # Wins of runs that share seeds have no interval.
  assert np.isnan(found.outperforming[1:]).all()
  assert "nan" not in text
  other = folder(tmp_path / "other", of_b, seeds=seeds, start=2 - start)
  found, text = said(a, other)
  moved = of_b.reshape(3, 3)[::-1].ravel()
  assert found.outperforming[0] == (of_a > moved).mean() + (of_a == moved).mean() / 2


def test_another_test_set_has_a_page_of_its_own(tmp_path):
  a = folder(tmp_path / "a", A, test_sets=["train", "test"])
  _, text = said(a, a)
  assert text.endswith(f"{a / 'report' / 'test' / 'against_a' / 'compare.html'}\n")


def test_figures(tmp_path, monkeypatch):
  """Histograms share their bins. Intervals are drawn where they are, dots too."""
  drawn = {}
  monkeypatch.setattr(
    pages,
    "_save_figure",
    lambda figure, path, image: (
      drawn.update({path.stem: figure.draw(plots.figure()[1])}) or "data:"
    ),
  )
  a = folder(tmp_path / "a", A, seeds=range(8))
  b = folder(tmp_path / "b", B - 0.4, seeds=range(8))
  found, _ = said(a, b, margin=5)
  histogram = drawn["distributions"]
  of_a, of_b = (patch.get_data().edges for patch in histogram.patches)
  assert {*of_a} == {*of_b}
  assert [text.get_text() for text in histogram.get_legend().get_texts()] == [
    "A (a), 8 runs: mean 88.75 %",
    "B (b), 8 runs: mean 41.87 %",
  ]
  ax = drawn["differences"]
  _, both, runs, mean = ax.lines
  # B less A: positive where B is better.
  low, high = found.found[1:3]
  assert runs.get_xdata() == pytest.approx([-100 * high, -100 * low])
  low, high = found.over_runs_and_examples
  assert both.get_xdata() == pytest.approx([-100 * high, -100 * low])
  assert mean.get_xdata() == pytest.approx([-100 * found.found.difference])
  dots = ax.collections[0].get_offsets()[:, 0]
  assert sorted(dots) == pytest.approx(np.unique(100 * (B - 0.4 - A).round(9)))
  assert [text.get_text() for text in ax.get_yticklabels()] == ["B (b)\nless A (a)"]
  assert [text.get_text() for text in drawn["pairs"].get_xticklabels()] == [
    "A (a)",
    "B (b)",
  ]

  # A path says where results lie; a long name is cut.
  long = folder(tmp_path / "deep" / ("c" * 60), B - 0.2, seeds=range(8))
  said(a, b, long)
  boxes = [text.get_text() for text in drawn["distributions"].get_yticklabels()]
  assert boxes == ["A (a)\n8 runs", "B (b)\n8 runs", f"C ({'c' * 27}…)\n8 runs"]


def test_ties_of_many_runs_need_little_memory():
  a, b = np.random.default_rng(0).integers(0, 5, (2, 4000)) / 5
  few = stats.design(a[:9]), stats.design(b[:9])
  found = verdict.compare_values(*few, names=("A", "B"))._replace(a=a, b=b)
  tracemalloc.start()
  ties, compared = verdict._count_ties(found)
  peak = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  assert ties == (a[:, None] == b).sum()
  assert compared == 4000**2
  assert peak < 4000**2 / 10


def test_very_many_values_have_a_folder(tmp_path):
  lr = np.arange(1, 101) / 128
  sweep = folder(tmp_path / "sweep", np.arange(100) / 100, seeds=range(100), lr=lr)
  pages = [
    said(sweep, where={"lr": lr[:n]}, against={"lr": lr[n:]})[1].splitlines()[-1]
    for n in (50, 60)
  ]
  assert pages[0] != pages[1]
  assert all(Path(page).exists() for page in pages)


def test_paired_row_by_row_and_not_at_all(tmp_path):
  a, b = (
    folder(tmp_path / "a", A, diverged=[1]),
    folder(tmp_path / "b", B, diverged=[6]),
  )
  kept = [0, 2, 3, 4, 5, 7]
  found, text = said(a, b, paired=True)
  assert tuple(found.found) == tuple(stats.compare_means(A[kept], B[kept]))
  assert found.matching == "rows of the same number"
  seeded = [folder(tmp_path / n, x, seeds=range(8)) for n, x in (("c", A), ("d", B))]
  found, text = said(*seeded, paired=False)
  assert found.outperforming[0] == stats.probability_of_outperforming(
    A, B, paired=False
  )
  with pytest.raises(
    UserError,
    match=r"has 8 finished runs and .*short 3: to pair them row by row, give as many",
  ):
    said(a, folder(tmp_path / "short", B[:3]), paired=True)
  with pytest.raises(
    UserError, match="e has no finished pairs of which neither diverged, with"
  ):
    said(
      folder(tmp_path / "e", [0.5], diverged=[0]),
      folder(tmp_path / "f", [0.5]),
      paired=True,
    )


def test_two_values_of_a_sweep(tmp_path, capsys):
  """The runs of one folder, paired by seeds, as if each value had its own folder."""
  sweep = folder(
    tmp_path / "sweep",
    [*A, *B, *A - 0.3],
    seeds=[*range(8)] * 3,
    lr=np.repeat([0.01, 0.02, 0.05], 8),
  )
  found, text = said(sweep, where={"lr": 0.01}, against={"lr": 0.02})
  assert tuple(found.found) == tuple(stats.compare_means(A, B))
  assert found.matching == "the same seeds"
  page = sweep / "report" / "lr=0.01" / "against_lr=0.02" / "compare.html"
  assert text.endswith(f"{page}\n")
  written = json.loads(page.with_suffix(".json").read_text())
  (compared,) = written["comparisons"]
  assert (compared["probability"], compared["low"]) == (
    found.outperforming[0],
    float(found.found.low),
  )
  assert written["sides"]["A"] == {
    "folder": str(sweep),
    "where": {"lr": [0.01]},
    "runs": 8,
    "mean_accuracy": pytest.approx(A.mean()),
    "sd_accuracy": pytest.approx(A.std(ddof=1)),
  }
  shown = html.unescape(page.read_text("utf-8")).replace("\N{NO-BREAK SPACE}", " ")
  for part in (
    *compared["sentences"],
    f"{sweep}, lr=0.01",
    f"{100 * A.mean():.1f} ± ",
    "data:image/png",
  ):
    assert part in shown
  assert page.with_name("distributions.svg").exists()

  for other, pooled in (
    ([sweep], {"where": {"lr": 0.01}}),
    ([], {"against": {"lr": 0.01}}),
  ):
    with pytest.raises(
      UserError,
      match=r"sweep: lr takes 0\.01, 0\.02, 0\.05: choose, such as \w+={.lr.: 0.01}",
    ):
      said(sweep, *other, **pooled)
  with pytest.raises(UserError, match=r"sweep: no run has lr=0.03: lr takes"):
    said(sweep, where={"lr": 0.03}, against={"lr": 0.02})
  with pytest.raises(
    UserError, match=r"one results folder, and nothing to compare it with: .* against="
  ):
    said(sweep, where={"lr": 0.01})

  found, text = said(
    sweep, where={"lr": [0.01, 0.02]}, against={"lr": 0.05}, out=tmp_path / "out"
  )
  # The unit is a seed, with its mean over both values.
  assert tuple(found.found) == tuple(stats.compare_means((A + B) / 2, A - 0.3))
  assert "lr=0.01 or 0.02" in text
  assert sorted(p.name for p in (tmp_path / "out").iterdir()) == words_of(
    "compare.csv compare.html compare.json differences.svg distributions.svg pairs.svg"
  )
  cli.main(
    [
      "compare",
      str(sweep),
      *words_of("--where lr=0.01 --against lr=0.02 --out"),
      str(tmp_path / "cli"),
    ]
  )
  page = tmp_path / "cli" / "compare.html"
  assert str(page) in capsys.readouterr().out
  assert "(jackknife of pairs)" in " ".join(sentences_of(page))


def test_the_flag(tmp_path, capsys):
  a, b = (folder(tmp_path / n, x) for n, x in (("a", A), ("b", B)))
  cli.main(["compare", str(a), str(b), "--paired"])
  page = Path(capsys.readouterr().out.splitlines()[-1])
  assert "(jackknife of pairs)" in " ".join(sentences_of(page))
  cli.main(["compare", str(a), str(b)])
  said = " ".join(sentences_of(page))
  assert "(jackknife)" in said


def test_a_comparison_fits_one_screen(tmp_path, capsys):
  a, b = (folder(tmp_path / n, x) for n, x in (("a", A), ("b", B)))
  cli.main(["compare", str(a), str(b)])
  lines = capsys.readouterr().out.splitlines()
  assert len(lines) <= 24
  assert lines[0].startswith("No difference shown")
  assert "are needed" in lines[1]
  assert lines[-1].endswith("compare.html")


@pytest.mark.parametrize(
  ("a", "b", "expected"),
  [
    ([0.9], [0.8], ["but a single run shows no spread"]),
    ([0.9, 0.8], [0.9, 0.8], ["All runs compared are equal"]),
    (
      [0.9, 0.8, 0.7],
      [0.4, 0.4, 0.4],
      ["All runs of B have the same test accuracy"],
    ),
    (
      np.r_[np.zeros(30), 1],
      np.arange(31) / 31,
      ["the runs of A are not normal"],
    ),
    (
      np.arange(9) / 9,
      np.arange(9)[::-1] / 9,
      ["no sign that runs are not normal"],
    ),
  ],
)
def test_warnings_where_numbers_mean_little(a, b, expected, tmp_path):
  _, text = said(folder(tmp_path / "a", a), folder(tmp_path / "b", b), paired=True)
  for sentence in expected:
    assert sentence in text
  assert "nan" not in text


def test_mistakes(tmp_path):
  a, gone = folder(tmp_path / "a", A), folder(tmp_path / "gone", [0.5], diverged=[0])
  other = folder(tmp_path / "other", A, labels=np.zeros(EXAMPLES, np.int32))
  with pytest.raises(UserError, match="other were tested on different examples"):
    said(a, other)
  with pytest.raises(UserError, match="gone has no finished runs that did not diverge"):
    said(a, gone)
  for options, message in (
    ({"paired": "no"}, "paired is 'no': give True, False or None"),
    ({"where": "lr=0.02"}, "a: the values wanted are 'lr=0.02': give column -> value"),
  ):
    with pytest.raises(UserError, match=message):
      said(a, a, **options)


@pytest.mark.slow
def test_several_scores_are_taken_together_too(tmp_path):
  """As in rliable: the numbers are those of tests/stats/test_aggregates.py."""
  about, rng = {"role": "score", "unit": "reward"}, np.random.default_rng(0)
  scores = rng.gamma(2, 1, (2, 20, 3))
  sides = [
    folders.outputs_folder(
      tmp_path / name, {f"task{i}": (of[:, i], about) for i in range(3)}
    )
    for name, of in zip("ab", scores, strict=True)
  ]
  _, text = said(*sides)
  for of, name in zip(scores, "AB", strict=True):
    mean = stats.interquartile_mean(of)
    assert f"interquartile mean of {name} │ {mean:>7.3g}" in text
  p = stats.probability_of_improvement(*scores)
  assert f"P(A > B) on one of them │ {100 * p:.2f} %" in text
  assert (tmp_path / "a" / "report" / "against_b" / "profiles.svg").exists()
  # Not of one output, nor of units that cannot be pooled.
  _, text = said(*sides, output="task1")
  assert "interquartile" not in text


@pytest.mark.slow
def test_means_that_rest_on_one_seed_are_not_comparable(tmp_path):
  def varying(name, **seeds):
    columns = {f"seed_{s}": np.uint32(seeds.get(s, np.zeros(8))) for s in SOURCES}
    return folder(tmp_path / name, A if name == "init" else B, **columns)

  each = np.arange(8)
  init, order = varying("init", init=each), varying("order", order=each)
  text = said(init, order)[1]
  assert text.startswith(
    "The means are not comparable: A has one seed of order, which the other varies; B has "
    "one seed of init, which the other varies. Such a mean rests on that one seed"
  )
  every = folder(tmp_path / "every", A, seeds=each)
  # digits_cnn draws neither dropout nor its data, but augments.
  text = said(every, varying("most", init=each, order=each))[1]
  assert text.startswith(
    "The means are not comparable: B has one seed of augment, which"
  )
  silent = (
    (every, varying("read", init=each, order=each, augment=each)),
    (init, varying("again", init=each)),
    (every, folder(tmp_path / "imported", B)),
    (folder(tmp_path / "single", A[:1], seeds=[3]), every),
  )
  for a, b in silent:
    assert "not comparable" not in said(a, b)[1]


def of_seeds_and_folds(path, scores, **columns):
  """Scores (seeds, folds) of runs that hold a fold out each."""
  seeds, folds = np.indices(scores.shape).reshape(2, -1)
  about = {"role": "score", "unit": "points"}
  columns = {"seed_init": np.uint32(seeds), "fold": np.int32(folds)} | columns
  return folders.outputs_folder(path, {"score": (scores.ravel(), about)}, columns)


def test_seeds_are_the_units_of_folds(tmp_path):
  """Not each seed with each fold: that many pairs would show a difference."""
  rng = np.random.default_rng(0)
  a = 50 + rng.normal(size=(8, 1)) + rng.normal(size=(8, 5)) / 3
  b = 49.3 + rng.normal(size=(8, 1)) + rng.normal(size=(8, 5)) / 3
  assert stats.compare_means(a.ravel(), b.ravel()).p_value < 0.01
  found, text = compared(
    of_seeds_and_folds(tmp_path / "a", a), of_seeds_and_folds(tmp_path / "b", b)
  )
  expected = stats.compare_means(a.mean(1), b.mean(1))
  np.testing.assert_allclose(found.found, expected)
  assert expected.p_value > 0.05
  assert found.verdict == "no difference shown"
  (note,) = found.notes
  assert note == (
    "8 seeds are drawn anew, each with its mean over 5 folds: intervals are about other "
    "seeds, not about other folds or examples."
  )
  assert note in text
  assert found.tables["comparisons"]["runs"].tolist() == [8]
  se = a.mean(1).std(ddof=1) / 8**0.5
  assert found.tables["sides"]["se"]["A"] == pytest.approx(se)


def test_folds_of_one_seed_are_corrected_for_their_overlap(tmp_path):
  rng = np.random.default_rng(0)
  a, b = rng.normal(50, 1, (2, 1, 10))
  found, text = said(
    of_seeds_and_folds(tmp_path / "a", a), of_seeds_and_folds(tmp_path / "b", b)
  )
  d = (a - b).ravel()
  # Nadeau and Bengio: each test set is a ninth of a training set.
  se = (d.var(ddof=1) * (1 / 10 + 1 / 9)) ** 0.5
  p = 2 * scipy.stats.t.sf(abs(d.mean()) / se, 9)
  assert found.found.p_value == pytest.approx(p)
  assert "10 folds are drawn anew, with training sets of 9 test sets. These" in text


def test_four_seeds_are_compared_without_pairs(tmp_path):
  """4 or 5 pairs could show nothing: all runs with all of the other can."""
  rng = np.random.default_rng(3)
  for seeds in (4, 5):
    a, b = 0.9 + 0.02 * rng.random((2, seeds)) - [[0], [0.2]]
    sides = [
      folder(tmp_path / f"{n}{seeds}", x, seeds=range(seeds))
      for n, x in (("a", a), ("b", b))
    ]
    found, text = said(*sides)
    assert found.verdict == "better"
    assert tuple(found.found) == tuple(stats.compare_means(a, b, paired=False))
    assert f"{seeds} pairs of the same seeds could show nothing" in text
    # Who asks for pairs gets them.
    assert said(*sides, paired=True)[0].verdict == "too few runs"


def test_all_are_compared_with_all_on_the_command_line(tmp_path, capsys):
  sides = [folder(tmp_path / n, x, seeds=range(8)) for n, x in (("a", A), ("b", B))]
  cli.main(["compare", *map(str, sides), "--unpaired"])
  unpaired = capsys.readouterr().out
  assert said(*sides, paired=False)[0].sentence in " ".join(unpaired.split())
  assert said(*sides)[0].sentence not in " ".join(unpaired.split())
  with pytest.raises(SystemExit):
    cli.main(["compare", *map(str, sides), "--unpaired", "--paired"])
  assert "--paired and --unpaired: give one" in capsys.readouterr().err


def test_two_networks_are_compared_over_examples(tmp_path, capsys):
  """62 examples that A alone has right, 124 that B alone has: McNemar's exact test."""
  labels = np.zeros(1639, np.int32)
  wrong = np.zeros((2, 1639), np.int8)
  wrong[0, :124] = 1
  wrong[1, 124:186] = 1
  sides = [
    folder(tmp_path / n, [1 - x.mean()], labels=labels, predictions=x[None])
    for n, x in zip("ab", wrong, strict=True)
  ]
  found, text = said(*sides)
  assert found.verdict == "too few runs"
  difference, alone = found.networks
  assert alone == (62, 124)
  assert difference.p_value == scipy.stats.binomtest(62, 186).pvalue
  assert (
    "Of these two networks, not of their recipes, B is better than A by 3.8" in text
  )
  assert "A alone is right on 62 examples, B alone on 124" in text
