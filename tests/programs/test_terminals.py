"""What is printed to terminals that lack letters, and to full disks; figures as vectors."""

import io
import os
import subprocess
import sys

import numpy as np
import pytest
from cases import mostly_slow

import vmapseeds as vs
from vmapseeds import cli
from vmapseeds.machine import print_what_can_be_encoded


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  out = tmp_path_factory.mktemp("terminals") / "a"
  labels = np.arange(30) % 2
  rng = np.random.default_rng(0)
  predictions = np.where(rng.random((8, 30)) < 0.2, 1 - labels, labels)
  vs.import_runs(out, predictions=predictions, labels=labels, progress=False)
  return out


def stream(encoding):
  return io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)


@pytest.mark.parametrize(
  ("encoding", "printed"),
  [
    ("ascii", b"1 +- 2, sd ^2 ?"),
    ("cp1252", b"1 \xb1 2, sd \xb2 ?"),
    ("utf-8", "1 ± 2, σ ² 猫".encode()),
  ],
)
def test_letters_that_an_encoding_lacks(encoding, printed):
  out = stream(encoding)
  print_what_can_be_encoded(out)
  out.write("1 ± 2, σ ² 猫")
  assert out.buffer.getvalue() == printed
  print_what_can_be_encoded(io.StringIO())  # has no encoding, and takes all letters


@pytest.mark.parametrize("encoding", mostly_slow(["ascii", "cp1252"]))
def test_reports_are_printed_whole(folder, encoding, monkeypatch):
  for print_all, words in (
    (lambda: vs.report(folder).print(), "standard deviation"),
    (lambda: cli.main(["report", str(folder)]), "standard deviation"),
    (lambda: vs.sample_size(folder).print(), "standard deviation"),
    (lambda: vs.compare(folder, folder).print(), "sd of a run"),
  ):
    out = stream(encoding)
    monkeypatch.setattr(sys, "stdout", out)
    print_all()
    text = out.buffer.getvalue().decode(encoding)
    monkeypatch.undo()
    assert words in text.lower()
    assert "+-" in text or "\N{PLUS-MINUS SIGN}" in text


@pytest.mark.skipif(
  not os.path.exists("/dev/full"), reason="only Linux has such a file"
)
def test_a_full_disk_behind_what_is_printed_is_one_line():
  with open("/dev/full", "w") as full:
    ended = subprocess.run(
      [sys.executable, "-m", "vmapseeds.cli", "recipes"],
      stdout=full,
      stderr=subprocess.PIPE,
      text=True,
    )
  assert (ended.returncode, ended.stderr) == (
    1,
    "error: no space is left on the disk for what is written or printed\n",
  )


@pytest.mark.slow
def test_figures_are_written_in_other_formats_too(folder, tmp_path):
  report = vs.report(folder)
  report.save(tmp_path / "a", image="pdf")
  drawn = {path.stem for path in (tmp_path / "a").glob("*.svg")}
  pdfs = [*(tmp_path / "a").glob("*.pdf")]
  assert {path.stem for path in pdfs} == drawn != set()
  assert all(path.read_bytes().startswith(b"%PDF") for path in pdfs)
  for name in ("b", "c"):
    report.save(tmp_path / name, image="png")
  pngs = [*(tmp_path / "b").glob("*.png")]
  assert {path.stem for path in pngs} == drawn
  assert all(path.read_bytes().startswith(b"\x89PNG") for path in pngs)
  svgs = [*(tmp_path / "b").glob("*.svg")]
  assert {path.stem for path in svgs} == drawn
  assert all(
    "</svg>" in path.read_text() and "<text" in path.read_text() for path in svgs
  )
  for path in svgs:  # the same bytes again
    assert path.read_bytes() == (tmp_path / "c" / path.name).read_bytes()
  with pytest.raises(
    vs.UserError, match="unknown image format 'svg': choose one of png, pdf"
  ):
    report.save(image="svg")


def test_figures_are_objects_too(folder, tmp_path):
  vs.report(folder).save(tmp_path / "a")
  figures = vs.report(folder).draw()
  assert {*figures} == {path.stem for path in (tmp_path / "a").glob("*.svg")}
  for figure in figures.values():
    assert len(figure.axes[0].get_children()) > 0
  figures["accuracy_distribution"].savefig(tmp_path / "own.svg")
  assert (tmp_path / "own.svg").stat().st_size > 1000


@pytest.mark.slow
def test_it_works_without_assertions(tmp_path):
  """`python -O` trains, extends and reports."""
  for runs in ("2", "3"):
    argv = ["train", "digits_cnn", "--set", "model=linear", "epochs=1", "--runs", runs]
    argv += ["--logits", "--quiet", "--out", str(tmp_path / "a")]
    command = [sys.executable, "-O", "-m", "vmapseeds.cli"]
    subprocess.run([*command, *argv], check=True, capture_output=True)
  ended = subprocess.run(
    [*command, "report", str(tmp_path / "a")],
    check=True,
    capture_output=True,
    text=True,
  )
  assert "3 runs" in ended.stdout
