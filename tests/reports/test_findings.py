"""What reports, comparisons, plans and tables of examples are as objects: they print and
write when asked alone, and say the same in the terminal, on pages and in frames.
"""

import html
import io
import json
import re

import matplotlib.figure
import numpy as np
import pandas as pd
import pytest
import test_compare
import test_report
from rich.console import Console

import vmapseeds as vs
from vmapseeds import cli
from vmapseeds.errors import UserError
from vmapseeds.machine import commit
from vmapseeds.reports import rendering

RNG = np.random.default_rng(0)
RUNS = 12


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
  """Results of two recipes, the second of which is wrong more often."""
  top = tmp_path_factory.mktemp("findings")
  paths = []
  labels = np.arange(40, dtype=np.int32) % 3
  for name, rate in (("a", 0.1), ("b", 0.3)):
    wrong = np.random.default_rng(1).random((RUNS, 40)) < rate
    predictions = ((labels + wrong) % 3).astype(np.int8)
    path = test_compare.folder(
      top / name,
      (~wrong).mean(1),
      range(RUNS),
      labels=labels,
      predictions=predictions,
    )
    paths.append(path)
  return paths


@pytest.fixture
def undrawn(monkeypatch):
  """Figures are empty: drawing them takes longer than all the rest."""
  monkeypatch.setattr(rendering, "drawing_of", lambda figure, width=None: None)
  monkeypatch.setattr(rendering, "image", lambda *_: b"")


@pytest.fixture(scope="module")
def found(folders):
  return {
    "report": vs.report(folders[0]),
    "compare": vs.compare(*folders),
    "sample_size": vs.sample_size(folders[0]),
    "examples": vs.example_table(folders[0]),
  }


def files_of(folder):
  return sorted(str(path) for path in folder.rglob("*"))


def test_nothing_is_printed_or_written_unless_asked(folders, capsys, undrawn):
  before = files_of(folders[0].parent)
  for findings in (
    vs.report(folders[0]),
    vs.compare(*folders),
    vs.sample_size(folders[0]),
    vs.example_table(folders[0]),
  ):
    assert findings.table is next(iter(findings.tables.values()))
    assert isinstance(findings.table, pd.DataFrame)
    assert len(findings.table) > 0
    assert {*findings.figures} == {*findings.document.figures}
    assert repr(findings).startswith(f"<{type(findings).__name__}: ")
    assert all(isinstance(note, str) for note in findings.notes)
    findings._repr_html_()
    str(findings)
  assert files_of(folders[0].parent) == before
  assert capsys.readouterr().out == ""


def test_a_saved_page_has_its_files(found, tmp_path, undrawn):
  for name, findings in found.items():
    page = findings.save(tmp_path / name)
    assert page == findings.page == tmp_path / name / f"{name}.html"
    images = {path.stem for path in page.parent.glob("*.svg")}
    assert images == {*findings.figures}
    json.loads(page.with_suffix(".json").read_text())
    shown = test_report.Page(page.read_text("utf-8"))
    assert shown.links == [f"{name}.json", f"{name}.csv"]
    written = pd.read_csv(
      page.with_suffix(".csv"), index_col=findings.table.index.names
    )
    pd.testing.assert_index_equal(written.index, findings.table.index, exact="equiv")
    for column in findings.table.select_dtypes("number"):
      np.testing.assert_allclose(written[column], findings.table[column])


def test_figures_are_objects_of_matplotlib(found):
  (figure,) = found["examples"].figures.values()
  assert isinstance(figure, matplotlib.figure.Figure)
  assert figure.axes[0].get_xlabel() == "runs that have the example wrong (%)"


def test_pages_stand_in_the_results_by_default(found, folders, undrawn):
  pages = {name: findings.save() for name, findings in found.items()}
  report = folders[0] / "report"
  assert pages == {
    "report": report / "report.html",
    "compare": report / "against_b" / "compare.html",
    "sample_size": report / "sample_size.html",
    "examples": report / "examples.html",
  }
  text = io.StringIO()
  findings = vs.sample_size(folders[0])
  findings.print(Console(file=text))
  assert "plan.html" not in text.getvalue()
  with pytest.raises(UserError, match="not read from a folder: give out= to save in"):
    vs.example_table(vs.open_results(folders[0])).save()


@pytest.mark.parametrize("name", ["report", "compare", "sample_size", "example_table"])
def test_the_command_prints_what_print_does(folders, name, tmp_path, capsys, undrawn):
  names = [str(folder) for folder in folders]
  given = names if name == "compare" else names[:1]
  out = ["--out", str(tmp_path)] if name in ("report", "compare") else []
  command = {"sample_size": "sample-size", "example_table": "examples"}.get(name, name)
  cli.main([command, *given, *out])
  of_command = capsys.readouterr().out
  getattr(vs, name)(*given).print()
  of_findings = capsys.readouterr().out
  page = f"{tmp_path / name}.html\n" if out else ""
  assert of_command.replace(page, "") == of_findings
  assert page in of_command


def test_a_figure_is_drawn_once_unless_it_has_too_many_points(
  found, tmp_path, monkeypatch
):
  drawn = []
  draw = matplotlib.figure.Figure.savefig

  def savefig(figure, stream, **options):
    drawn.append(options["format"])
    draw(figure, stream, **options)

  monkeypatch.setattr(matplotlib.figure.Figure, "savefig", savefig)
  page = found["examples"].save(tmp_path / "a")
  assert drawn == ["svg"]
  assert "data:image/svg+xml;" in page.read_text("utf-8")
  monkeypatch.setattr(rendering, "MOST_SVG_BYTES", 100)
  page = found["examples"].save(tmp_path / "b")
  assert drawn == ["svg", "svg", "png"]
  assert "data:image/png;" in page.read_text("utf-8")


def test_a_notebook_shows_the_page_in_a_frame(found, undrawn):
  for findings in found.values():
    frame = findings._repr_html_()
    (source,) = re.findall(r'srcdoc="([^"]*)"', frame)
    page = test_report.Page(html.unescape(source))
    assert page.tags["html"] == 1
    assert findings.document.title in page.text
    base, *images = page.loads
    assert all(image.startswith("data:image/") for image in images)
    # The contents list leads to the frame's own sections, not to the notebook's.
    assert base == "about:srcdoc"
    assert {*page.anchors} <= {*page.ids}
    # There are no files beside it.
    assert page.links == []
    assert page.tags["img"] >= len(findings.document.figures)


def test_figures_say_what_they_show(found):
  for name in ("report", "compare"):
    document = found[name].document
    for figure in document.figures.values():
      assert re.search(r"\d", figure.finding), figure.title
      assert figure.finding.endswith(".")


def test_a_comparison_of_two_is_asked_directly(folders):
  comparisons = vs.compare(*folders)
  (comparison,) = comparisons
  for name in ("sentence", "verdict", "leads", "p_value", "outperforming"):
    assert getattr(comparisons, name) == getattr(comparison, name)
  assert comparisons.found.difference == comparison.found.difference
  assert (comparisons.verdict, comparisons.leads) == ("better", True)
  row = comparisons.table.loc[("A", "B")]
  assert row.difference == pytest.approx(float(comparison.found.difference))
  assert (row.verdict, row.leads, row.runs) == ("better", "A", RUNS)
  sides = comparisons.tables["sides"]
  assert sides.loc["A", "mean"] - sides.loc["B", "mean"] == pytest.approx(
    row.difference
  )
  several = vs.compare(*folders, folders[0])
  assert len(several) == 2
  with pytest.raises(UserError, match="2 comparisons were made: take one of them"):
    several.sentence  # noqa: B018


def test_a_comparison_says_in_which_settings_the_recipes_differ(tmp_path):
  accuracies = RNG.random(16)
  lr = np.repeat([0.01, 0.02], 8)
  seeds = np.tile(np.arange(8), 2)
  sweep = test_compare.folder(tmp_path / "sweep", accuracies, seeds, lr=lr)
  comparison = vs.compare(sweep, where={"lr": 0.01}, against={"lr": 0.02})
  (section,) = [s for s in comparison.document.sections if "differs" in s.heading]
  (table,) = section.tables
  assert table.headings == ("setting", "A", "B")
  assert table.rows == [("lr", "0.01", "0.02")]
  assert comparison.document.title == "sweep, lr=0.01 against sweep, lr=0.02"
  same = vs.compare(sweep, sweep, where={"lr": 0.01}, against={"lr": 0.01})
  (section,) = [s for s in same.document.sections if "differs" in s.heading]
  assert section.sentences == ["No setting that is stored with the results."]


def test_a_report_says_how_it_is_made_again(folders, tmp_path, undrawn):
  page = vs.report(folders[0], where={"seed_init": [1, 2, 3]}).save(tmp_path)
  command = f"vmapseeds report {folders[0]} --where seed_init=1,2,3"
  text = page.read_text()
  assert f"Made by <code>{command}, vmapseeds {vs.__version__}" in text
  # Where it is a checkout.
  if commit():
    assert f"(commit {commit()}), " in text
  argv = command.split()[1:]
  cli.main([*argv, "--out", str(tmp_path / "again")])
  again = json.loads((tmp_path / "again" / "report.json").read_text())
  assert again == json.loads((tmp_path / "report.json").read_text())


def test_a_comparison_says_how_it_is_made_again(folders, tmp_path, undrawn):
  page = vs.compare(*folders, margin=0.5, paired=False).save(tmp_path)
  command = f"vmapseeds compare {folders[0]} {folders[1]} --margin 0.5 --unpaired"
  assert f"Made by <code>{command}, vmapseeds {vs.__version__}" in page.read_text()
