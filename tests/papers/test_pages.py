"""The committed pages: what their records give, within bounds that a reader can take."""

import importlib
import json
import re
import shutil
import xml.etree.ElementTree as ET

import pytest

from experiments import kept, pages
from experiments.jordan2024 import fig05, real

MODULES = {name: importlib.import_module(f"experiments.{name}") for name in pages.PAGES}
RECORDS = pages.Records()
LOCAL = re.compile(r"\]\(([\w./-]+\.(?:svg|md|csv))\)")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(params=MODULES, name="module")
def page_module(request):
  return MODULES[request.param]


def committed(page: pages.Page, name: str) -> str:
  return (pages.GALLERY / page.folder / name).read_text()


def test_a_page_says_what_its_records_give(module):
  page = module.PAGE
  assert committed(page, "index.md") == pages.page_text(module, RECORDS)
  if not page.appendix:
    return
  rows = pages.appendix(page, RECORDS)
  assert committed(page, "appendix.csv") == pages.as_csv(rows)


def test_a_page_is_short_and_its_links_lead_somewhere(module):
  page = module.PAGE
  text = committed(page, "index.md")
  without_links = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
  words = re.findall(r"\w[\w.,'’-]*", without_links)
  assert len(words) <= pages.WORDS, len(words)
  assert len(page.pictures) <= pages.PICTURES
  assert not re.search(r"\b[Rr]eproduced?\b|\b[Oo]pposite\b", without_links)
  folder = pages.GALLERY / page.folder
  linked = LOCAL.findall(text)
  assert {f"{name}-light.svg" for name in page.pictures} <= {*linked}
  for path in linked:
    # The site has a page for each README of experiments.
    assert (folder / path).resolve().exists(), path


def test_pictures_can_be_read_at_400_pixels_in_both_themes(module):
  folder = pages.GALLERY / module.PAGE.folder
  for name in module.PAGE.pictures:
    for theme in pages.THEMES:
      text = (folder / f"{name}-{theme}.svg").read_text()
      root = ET.fromstring(text)
      width = float(root.get("viewBox").split()[2])
      sizes = [float(size) for size in re.findall(r"font-size: ([\d.]+)px", text)]
      assert len(sizes) >= len([*root.iter(f"{SVG}text")]) > 4
      assert min(sizes) * 400 / width >= 8, (name, min(sizes))
      assert pages.THEMES[theme].page in text


@pytest.mark.parametrize(("column", "study"), [(0, "mnist"), (1, "fashion_mnist")])
def test_jordans_conditions_are_those_of_the_kept_runs(column, study):
  text = (pages.GALLERY / "jordan2024" / "index.md").read_text()
  said = {}
  for line in text.partition("## Conditions")[2].partition("##")[0].splitlines():
    if line.startswith("| "):
      name, _, *ours = [cell.strip() for cell in line.strip("|").split("|")]
      said[name] = ours[column]
  for epochs in real.STUDIES[study].epochs:
    parts = kept.read_parts(pages.GALLERY / study, f"predictions-{epochs}")
    (augment,) = {record["recipe"]["augment"] for _, record in parts}
    assert said["augmentation"] == (augment or "none")
    runs = sum(record["runs"] for _, record in parts)
    assert said["runs of each length"] == f"{runs:,}"
    assert {f"{len(arrays['labels']):,}" for arrays, _ in parts} == {
      said["test examples"]
    }


def test_records_of_kept_predictions_are_made_anew(tmp_path, monkeypatch):
  """Their rows are the committed ones, whether the data set is there or not."""
  for study in ("mnist", "fashion_mnist"):
    shutil.copytree(pages.GALLERY / study, tmp_path / study)
  (tmp_path / "mnist" / "fig05.json").unlink()
  (tmp_path / "mnist" / "fig14.json").unlink()
  monkeypatch.setattr(real, "OF_LENGTHS", (fig05,))
  MODULES["jordan2024.page"].recompute(tmp_path)
  for name in ("fig05", "fig14"):
    again = json.loads((tmp_path / "mnist" / f"{name}.json").read_text())
    assert again["rows"] == RECORDS[f"mnist/{name}"]["rows"]
