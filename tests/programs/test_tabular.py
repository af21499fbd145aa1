"""The page on tabular data, run as it stands."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics as sk

import vmapseeds as vs

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "tabular.md"


@pytest.mark.slow
def test_the_page_runs_as_it_stands(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
  names = {"__name__": "tabular"}
  for block in blocks:
    exec(compile(block, str(PAGE), "exec"), names)
  err = capsys.readouterr().err
  assert "depends on the examples beside one" in err

  table = pd.read_csv("clinic.csv")
  labels = (table.diagnosis == "malignant").to_numpy()
  together = names["together"]
  assert together.example_id.values.tolist() == table.patient.tolist()
  assert (together.runs.values == 5).all()
  results = vs.open_results("results/plain", "held_out")
  for run in (0, 7, 24):
    own = results["mask"].values[run]
    logits = results.logits.values[run, own]
    due = sk.roc_auc_score(labels[own], logits[:, 1] - logits[:, 0])
    assert results.test_auc.values[run] == pytest.approx(due, abs=1e-6)
  ensemble = names["found"].average_precision.attrs["ensemble"]
  due = sk.average_precision_score(labels, together.probabilities.values[:, 1])
  assert ensemble == pytest.approx(due, abs=1e-4)
  assert {*Path("results/plain/report").glob("*.pdf")}
  survival = vs.open_results("results/survival")
  assert np.isfinite(survival.test_loss.values).all()
  assert "losses" not in survival
