"""Margins of `compare`: the difference that does not matter."""

import numpy as np
import pytest
from cases import mostly_slow

import vmapseeds as vs
from vmapseeds import cli


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
  """Two imported folders; B errs on one example of 400 more than A."""
  root = tmp_path_factory.mktemp("margins")
  labels = np.zeros(400, np.int32)
  predictions = np.zeros((8, 400), np.int32)
  for run in range(8):
    predictions[run, : 20 + run % 2] = 1
  for side in ("a", "b"):
    vs.import_runs(root / side, predictions=predictions, labels=labels, num_classes=2)
    predictions[:, 399] = 1
  return str(root / "a"), str(root / "b")


@pytest.mark.parametrize("margin", mostly_slow(["0.5", "1", "3"]))
def test_a_margin_may_be_under_one_point(sides, margin, capsys):
  cli.main(["compare", *sides, "--margin", margin])
  out, _ = capsys.readouterr()
  assert f"{margin} points" in out
