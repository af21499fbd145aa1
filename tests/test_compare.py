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
from rich.console import Console

import vmapseeds as vs
from vmapseeds import cli, stats
from vmapseeds.mistakes import Mistake
from vmapseeds.reports import comparison_page, pages, plots
from vmapseeds.results.description import IMPORTED
from vmapseeds.store.files import write
from vmapseeds.training.names import SOURCES

EXAMPLES = 20


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
  """Pages have a stand-in for their figure, which takes longer than all the rest."""

  def save(figure, path):
    write(path, b"")
    return "data:image/png;base64,"

  monkeypatch.setattr(pages, "_save_figure", save)


def folder(
  path, accuracies, seeds=None, diverged=(), labels=None, test_sets=("test",), **swept
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
    predictions=np.full((runs, len(labels)), -1),
  )


def said(*args, **options):
  text = io.StringIO()
  return vs.compare(
    *args, **options, console=Console(width=300, file=text)
  ), text.getvalue()


A = np.array([0.95, 0.9, 0.85, 0.95, 0.8, 0.75, 0.9, 1.0])
B = np.array([0.9, 0.85, 0.85, 0.7, 0.85, 0.65, 0.8, 0.95])


def test_pairs_of_the_same_seeds(tmp_path):
  """B has the runs in another order, and one run of its own. One pair is left out
  because a run of A diverged.
  """
  a = folder(tmp_path / "a", [*A, 0.1], seeds=range(9), diverged=[8])
  b = folder(tmp_path / "b", [0.2, *B[::-1], 0.3], seeds=[50, *range(7, -1, -1), 8])
  decision, text = said(a, b)
  assert tuple(decision) == tuple(stats.decide(A, B))
  assert (
    "P(A > B) = 0.812, 95 % interval 0.562 to 1.000, over pairs of runs with the same seeds"
    in text
  )
  interval = scipy.stats.ttest_rel(A, B).confidence_interval()
  low, high = (f"{100 * end:+.4g}" for end in interval)
  assert (
    f"Test accuracy of A less that of B: +6.875 percentage points, 95 % interval {low} to {high} (Student's t of the differences)"
    in text
  )
  sigma = ((A.var(ddof=1) + B.var(ddof=1)) / 2) ** 0.5
  assert f"That is {(A - B).mean() / sigma:.2f} standard deviations of a run" in text
  assert "A is not better" in text
  low, high = (f"{100 * end**0.5:.0f}" for end in stats.variance_interval(A))
  assert f"A {100 * A.std(ddof=1):.2f} % ({low} to {high} %)" in text
  assert f"{100 * A.mean():.1f} ± {100 * A.std(ddof=1) / 8**0.5:.1f} % " in text
  ratio = stats.variance_ratio(A, B)
  assert (
    f"{ratio.ratio:.2f}, 95 % interval {ratio.low:.2f} to {ratio.high:.2f} (jackknife of pairs)"
    in text
  )
  assert f"Shapiro-Wilk: p {scipy.stats.shapiro(A).pvalue:.2g} for A" in text
  power = stats.paired_power(8, 0.75)
  assert (
    f"Few runs: 44 pairs find P(A > B) = 0.75 with about 95 % power; the 8 here have {100 * power:.0f} %"
    in text
  )
  assert "12 % of the comparisons are ties" in text


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
    decision, text = said(folder(tmp_path / name, A, seeds=seeds), b)
    assert decision.probability == stats.probability_of_outperforming(
      A, B[:5], paired=False
    )
    assert "over all pairs of runs" in text
    ties = sum(x == y for x in A for y in B[:5])
    assert f"{100 * ties / 40:.0f} % of the comparisons are ties" in text
    low, high = scipy.stats.ttest_ind(A, B[:5], equal_var=False).confidence_interval()
    assert f"95 % interval {100 * low:+.4g} to {100 * high:+.4g} (Welch's t)" in text
    assert "(jackknife)" in text
    assert "Few runs: 29 runs each find" in text


def test_runs_from_the_same_seeds_and_networks_are_pairs(tmp_path):
  """Seeds repeat here: each stored network is the start of two runs of each seed."""
  seeds, start = [0, 1, 2, 3] * 2, np.repeat([0, 1], 4)
  a, b = (
    folder(tmp_path / n, x, seeds=seeds, start=start) for n, x in (("a", A), ("b", B))
  )
  decision, text = said(a, b)
  assert tuple(decision) == tuple(stats.decide(A, B))
  assert "with the same seeds" in text
  other = folder(tmp_path / "other", B, seeds=seeds, start=1 - start)
  decision, text = said(a, other)
  assert decision.probability == stats.probability_of_outperforming(
    A, np.r_[B[4:], B[:4]]
  )


def test_another_test_set_has_a_page_of_its_own(tmp_path):
  a = folder(tmp_path / "a", A, test_sets=["train", "test"])
  _, text = said(a, a)
  assert text.endswith(f"{a / 'report' / 'test' / 'against_a' / 'compare.html'}\n")


def test_the_histograms_share_their_bins(tmp_path, monkeypatch):
  drawn = []
  monkeypatch.setattr(
    pages,
    "_save_figure",
    lambda figure, _: drawn.append(figure.draw(plots.figure()[1])) or "data:",
  )
  said(folder(tmp_path / "a", A), folder(tmp_path / "b", B - 0.4))
  of_a, of_b = (patch.get_xy()[:, 0] for patch in drawn[0].patches)
  assert {*of_a} == {*of_b}
  assert [text.get_text() for text in drawn[0].get_legend().get_texts()] == [
    "A, 8 runs: mean 88.75 %",
    "B, 8 runs: mean 41.87 %",
  ]


def test_ties_of_many_runs_need_little_memory():
  a, b = np.random.default_rng(0).integers(0, 5, (2, 4000)) / 5
  tracemalloc.start()
  said = " ".join(
    comparison_page._warnings(
      comparison_page.Comparison(
        a, b, stats.Decision(0.5, 0.4, 0.6, False, False), 0.75
      )
    )
  )
  peak = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  assert f"{100 * (a[:, None] == b).mean():.0f} % of the comparisons are ties" in said
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
  decision, text = said(a, b, paired=True)
  assert tuple(decision) == tuple(stats.decide(A[kept], B[kept]))
  assert "over pairs of runs with rows of the same number" in text
  seeded = [folder(tmp_path / n, x, seeds=range(8)) for n, x in (("c", A), ("d", B))]
  decision, text = said(*seeded, paired=False)
  assert decision.probability == stats.probability_of_outperforming(A, B, paired=False)
  with pytest.raises(
    Mistake,
    match=r"has 8 finished runs and .*short 3: to pair them row by row, give as many",
  ):
    said(a, folder(tmp_path / "short", B[:3]), paired=True)
  with pytest.raises(
    Mistake, match="e has no finished pairs of which neither diverged, with"
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
  decision, text = said(sweep, where={"lr": 0.01}, against={"lr": 0.02})
  assert tuple(decision) == tuple(stats.decide(A, B))
  assert "with the same seeds" in text
  page = sweep / "report" / "lr=0.01" / "against_lr=0.02" / "compare.html"
  assert text.endswith(f"{page}\n")
  written = json.loads(page.with_suffix(".json").read_text())
  assert (written["probability"], written["low"]) == (
    float(decision.probability),
    float(decision.low),
  )
  assert written["a"] == {
    "folder": str(sweep),
    "where": {"lr": [0.01]},
    "runs": 8,
    "mean_accuracy": pytest.approx(A.mean()),
    "sd_accuracy": pytest.approx(A.std(ddof=1)),
  }
  shown = html.unescape(page.read_text("utf-8")).replace("\N{NO-BREAK SPACE}", " ")
  for part in (
    *written["sentences"],
    f"{sweep}, lr=0.01",
    f"{100 * A.mean():.1f} ± ",
    "data:image/png",
  ):
    assert part in shown
  assert page.with_name("accuracies.png").exists()

  for pooled in ({"where": {"lr": 0.01}, "b": sweep}, {"against": {"lr": 0.01}}):
    with pytest.raises(
      Mistake,
      match=r"sweep: lr takes 0\.01, 0\.02, 0\.05: choose, such as --\w+ lr=0.01",
    ):
      said(sweep, **pooled)
  with pytest.raises(Mistake, match=r"sweep: no run has lr=0.03: lr takes"):
    said(sweep, where={"lr": 0.03}, against={"lr": 0.02})
  with pytest.raises(
    Mistake, match=r"one results folder, and nothing to compare it with: .* --against"
  ):
    said(sweep, where={"lr": 0.01})

  decision, text = said(
    sweep, where={"lr": [0.01, 0.02]}, against={"lr": 0.05}, out=tmp_path / "out"
  )
  assert decision.probability == stats.probability_of_outperforming(
    np.r_[A, B], A - 0.3, paired=False
  )
  assert "lr=0.01 or 0.02" in text
  assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
    "accuracies.png",
    "compare.html",
    "compare.json",
  ]
  cli.main(
    [
      "compare",
      str(sweep),
      "--where",
      "lr=0.01",
      "--against",
      "lr=0.02",
      "--out",
      str(tmp_path / "cli"),
    ]
  )
  assert "P(A > B) = 0.812" in capsys.readouterr().out


def test_the_flag(tmp_path, capsys):
  a, b = (folder(tmp_path / n, x) for n, x in (("a", A), ("b", B)))
  cli.main(["compare", str(a), str(b), "--paired"])
  assert "over pairs of runs with rows of the same number" in " ".join(
    capsys.readouterr().out.split()
  )
  cli.main(["compare", str(a), str(b)])
  assert "over all pairs of runs" in capsys.readouterr().out


@pytest.mark.parametrize(
  ("a", "b", "expected"),
  [
    (
      [0.9],
      [0.8],
      [
        "an interval needs two runs of each",
        "With one run nothing is known of the variance",
        "95 % power.",
      ],
    ),
    ([0.9, 0.8], [0.9, 0.8], ["All runs compared are equal"]),
    (
      [0.9, 0.8, 0.7],
      [0.4, 0.4, 0.4],
      ["All runs of B have the same test accuracy", "its interval has no width"],
    ),
    (
      [0.1, 0.2, 0.3],
      [0.4, 0.45, 0.5],
      ["B is better than A: swap A and B"],
    ),
    (
      np.arange(44) / 44,
      np.arange(44) / 50,
      ["44 pairs find P(A > B) = 0.75 with 94 % power"],
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


def test_power_is_that_of_the_gamma_asked_for(tmp_path):
  both = folder(tmp_path / "a", A), folder(tmp_path / "b", B)
  _, text = said(*both, paired=True, gamma=0.9)
  power = 100 * stats.paired_power(8, 0.9, 0.9)
  assert (
    f"Few runs: 17 pairs find P(A > B) = 0.9 with about 95 % power; the 8 here have "
    f"{power:.0f} %"
  ) in text
  assert round(power) != round(100 * stats.paired_power(8, 0.75, 0.9))


def test_mistakes(tmp_path):
  a, gone = folder(tmp_path / "a", A), folder(tmp_path / "gone", [0.5], diverged=[0])
  other = folder(tmp_path / "other", A, labels=np.zeros(EXAMPLES, np.int32))
  with pytest.raises(Mistake, match="other were tested on different examples"):
    said(a, other)
  with pytest.raises(Mistake, match="gone has no finished runs that did not diverge"):
    said(a, gone)
  for options, message in (
    ({"gamma": 0.3}, "gamma is 0.3"),
    ({"gamma": "x"}, "gamma is 'x': give a number"),
    ({"paired": "no"}, "paired is 'no': give True, False or None"),
    ({"where": "lr=0.02"}, "a: the values wanted are 'lr=0.02': give column -> value"),
  ):
    with pytest.raises(Mistake, match=message):
      said(a, a, **options)
