"""The experiment of Banerjee 2024 with --quick: its numbers against NumPy on the stored runs, its files, its mistakes."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image

import vmapseeds as vs
from experiments import common
from experiments.banerjee2024 import trimming_levels
from vmapseeds import stats

HALF, EXAMPLES = common.QUICK_RUNS // 2, 797


@pytest.fixture(scope="module")
def quick(tmp_path_factory) -> Path:
  folder = tmp_path_factory.mktemp("banerjee")
  trimming_levels.main(["--quick", "--out", str(folder / "out"), "--campaigns", str(folder / "campaigns")])
  return folder


@pytest.fixture(scope="module")
def numbers(quick) -> dict:
  return json.loads((quick / "out" / "trimming_levels.json").read_text())["numbers"]["2"]


def stored(quick: Path, source: str) -> tuple[np.ndarray, np.ndarray]:
  """Logit gaps and labels of one source's runs."""
  (folder,) = (quick / "campaigns").glob("digits_cnn-2epochs-" + "[0-9a-f]" * 8 + source + "-logits")
  results = vs.open_results(folder)
  varied = {s for s in ("init", "order", "augment") if len(set(results[f"seed_{s}"].values)) > 1}
  assert varied == ({source[1:]} if source else {"init", "order", "augment"})
  logits = results.logits.values.astype(float)
  return logits[..., 1] - logits[..., 0], results.labels.values


@pytest.mark.parametrize(("name", "source"), [("S_init", "-init"), ("S_batch", "-order"), ("S_all", "")])
def test_candidates_are_compared_with_the_other_half(quick, numbers, name, source):
  gaps, labels = stored(quick, source)
  n = numbers["sources"][name]
  reference, candidates = gaps[:HALF], gaps[HALF:]
  level = stats.trimming_level(reference, candidates, key=jax.random.key(0), replicates=100).level
  np.testing.assert_allclose(np.array(n["level"], float), level)
  small = level <= 0.05
  assert n["small"] == small.mean()
  predictions = (candidates >= 0).astype(int)
  accuracy = (predictions == labels).mean(1)
  np.testing.assert_allclose(n["accuracy"]["accuracies"], accuracy)
  np.testing.assert_allclose(list(n["accuracy_range"].values()), [accuracy.min(), accuracy.max()])
  np.testing.assert_allclose(list(n["accuracy_range_small"].values()), [accuracy[small].min(), accuracy[small].max()])
  together = candidates.mean(0) >= 0
  assert n["ensemble_accuracy"] == pytest.approx((together == labels).mean())
  np.testing.assert_allclose(n["churn"], (predictions != together).mean(1))
  pairs = {(i, j): (predictions[i] != predictions[j]).mean() for i in range(HALF) for j in range(i)}
  np.testing.assert_allclose(list(n["pair_churn_range"].values()), [min(pairs.values()), max(pairs.values())])
  both = [churn for (i, j), churn in pairs.items() if small[i] and small[j]]
  np.testing.assert_allclose(list(n["pair_churn_range_small"].values()), [min(both), max(both)])
  of_first = [churn for pair, churn in pairs.items() if 0 in pair]
  assert n["mean_churn"][0] == pytest.approx(np.mean(of_first))


def test_ensembles_are_as_large_as_the_candidates_allow(numbers):
  ensembles = numbers["ensembles"]
  assert list(ensembles) == ["3", "5"]
  for size, n in ensembles.items():
    assert (n["members"], n["runs"], n["ensembles"]) == (int(size), HALF, 500)
  assert ensembles["5"]["churn"] < ensembles["3"]["churn"] < np.mean(numbers["sources"]["S_all"]["churn"])


def test_ensembles_are_drawn_without_replacement():
  """Every one of all candidates but one, each as often as the others."""
  rng = np.random.default_rng(0)
  reference, candidates, labels = rng.normal(size=(2, 40)), rng.normal(size=(4, 40)), rng.integers(0, 2, 40)
  n = trimming_levels.of_ensembles(reference, candidates, labels, members=3)
  without = [(candidates.sum(0) - c) / 3 for c in candidates]
  accuracies = [((w >= 0) == labels).mean() for w in without]
  assert n.accuracy == pytest.approx(np.mean(accuracies), abs=4 * np.std(accuracies) / 500**0.5)
  whole = trimming_levels.of_ensembles(reference, candidates, labels, members=4)
  assert (whole.churn, whole.accuracy_sd) == (0, pytest.approx(0))


def test_no_small_level_is_shown_as_none(quick):
  gaps = np.arange(12.0).reshape(4, 1, 3).repeat(20, axis=2).reshape(4, 60)
  n = trimming_levels.of_source(gaps[:2], 100 + gaps[2:], np.ones(60, int))
  assert n.small == 0
  assert n.failed.sum() == 200
  assert trimming_levels.span(n.accuracy_range_small) == "none"
  assert trimming_levels.span((283, 462), 8018) == "3.53 to 5.76 %"


def test_files(quick):
  with Image.open(quick / "out" / "trimming_levels.png") as image:
    image.load()
    assert min(image.size) > 300
    assert len(image.convert("L").getcolors()) > 20
  table = (quick / "out" / "trimming_levels.md").read_text()
  assert "| ensembles of 3: small α̂ | 50 / 2 | 77.2 % | table 1 |" in table
  assert "| S_all: accuracy of the ensemble | 50 / 2 | 92.36 % | table 2 |" in table
  assert "not expected to agree, only the pattern is comparable" in table
  assert "a little above its 2" in table


@pytest.mark.parametrize(
  ("flags", "text"),
  [
    (("--runs", "3"), "--runs is 3"),
    (("--set", "classes=0,1,2,0,1,2,0,1,2,0"), "digits with 3 classes"),
    (("--recipe", "nothing"), "nothing"),
    (("--unknown", "1"), "--unknown"),
  ],
)
def test_mistakes(flags, text, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(vs, "train", lambda *_, **__: pytest.fail("trained"))
  with pytest.raises(SystemExit) as end:
    trimming_levels.main(list(flags))
  assert end.value.code == 2
  err = capsys.readouterr().err
  assert len(err.splitlines()) == 1
  assert text in err
  assert not list(tmp_path.iterdir())


def test_only_the_papers_recipe_is_called_so(tmp_path):
  def said(recipe):
    setting = common.Setting(
      paper="banerjee2024", experiment="x", recipe=recipe, epochs=(2,), runs=4, options=vs.Options(seed_batch=1), out=tmp_path,
      campaigns=tmp_path, quick=False, used={},
    )  # fmt: skip
    return trimming_levels.notes(setting, 8000)

  assert "the paper's network and data" in said(vs.recipe("cnn_cifar10_binary"))
  assert "only the pattern" in said(vs.recipe("cnn_cifar10_binary", lr=0.1))
  assert "a little above its 2" not in said(vs.recipe("cnn_cifar10_binary"))
