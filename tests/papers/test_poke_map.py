"""The map of pokes against loops over runs, and what its page is made of."""

import json

import numpy as np
import pytest

from experiments import pages, poke_map
from experiments.page_poke_map import PAGE


def predictions(runs=7, examples=40):
  rng = np.random.default_rng(0)
  labels = rng.integers(0, 4, examples)
  x = np.where(rng.random((runs, examples)) < 0.3, rng.integers(0, 4), labels)
  twins = np.where(rng.random((runs, examples)) < 0.1, 0, x)
  twins[0] = x[0]
  return x, twins, labels


def ratio_by_loops(x, twins):
  runs = len(x)
  others = [(x[i] != x[j]).mean() for i in range(runs) for j in range(runs) if i != j]
  return np.mean([(x[i] != twins[i]).mean() for i in range(runs)]) / np.mean(others)


def test_the_ratio_and_its_interval_are_those_of_loops_over_runs():
  x, twins, labels = predictions()
  kept = poke_map.compare_twins(x, twins, labels)
  found = poke_map.summarize(kept)
  assert found["ratio"][0] == pytest.approx(ratio_by_loops(x, twins))
  runs = len(x)
  each = [
    ratio_by_loops(np.delete(x, i, 0), np.delete(twins, i, 0)) for i in range(runs)
  ]
  se = np.sqrt((runs - 1) * np.var(each))
  # Student's 97.5 % point with 6 degrees of freedom
  assert found["ratio"][2] - found["ratio"][0] == pytest.approx(2.446912 * se)
  same = sum(list(a) == list(b) for a, b in zip(x, twins, strict=True))
  assert 0 < same < runs
  assert found["unchanged"][0] == same / runs
  assert kept["error"] == (x != labels).mean()


def test_pokes_that_change_nothing_have_the_ratio_0():
  x, _, labels = predictions()
  found = poke_map.summarize(poke_map.compare_twins(x, x, labels))
  assert found["ratio"] == [0, 0, 0]
  assert found["unchanged"][:1] == [1]


def test_every_setting_is_kept_and_summarized():
  folder = pages.GALLERY / PAGE.folder
  kept = json.loads((folder / "kept.json").read_text())
  stored = json.loads((folder / "numbers.json").read_text())["settings"]
  expected = [
    (setting, value, norm)
    for setting, values in poke_map.SETTINGS.items()
    for value in values
    for norm in (True, False)
  ]
  assert [(n["setting"], n["value"], n["norm"]) for n in stored] == expected
  for each, numbers in zip(kept, stored, strict=True):
    value = np.mean(each["of_twins"]) / np.mean(each["with_others"])
    assert numbers["ratio"][0] == pytest.approx(value, rel=1e-6)
