"""The page on tables of scores: what it prints is what the table on it gives."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from test_cli import run

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
TABLE = HOWTO / "data" / "scores.csv"


@pytest.fixture
def page(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  shutil.copy(TABLE, "scores.csv")
  return (HOWTO / "scores.md").read_text("utf-8")


def test_the_sentences_are_those_of_the_table(page, capsys):
  words = ["compare", "scores.csv", "--by", "model", "--score", "accuracy"]
  _, out, _ = run(capsys, *words)
  said = " ".join(out.split())
  lines = [line[1:] for line in page.splitlines() if line.startswith(">")]
  quoted = " ".join(" ".join(lines).split())
  pieces = re.split(r" … | (?=note: )| (?=For other)", quoted)
  assert len(pieces) == 4
  for piece in pieces:
    assert piece in said
  table = pd.read_csv(TABLE)
  means = table.groupby(["model", "dataset"]).accuracy.mean().unstack("model")
  friedman = scipy.stats.friedmanchisquare(*means.to_numpy().T).pvalue
  assert f"p = {friedman:.2f} (Friedman)" in said
  assert np.isclose((means.linear - means.neighbours).mean(), 0.013, atol=5e-4)


rng = np.random.default_rng(0)
# The last score of each run.
LAST = {
  model: mean + 0.01 * rng.random(8) for model, mean in (("gat", 0.8), ("gcn", 0.7))
}
RUNS = [(model, seed) for model in LAST for seed in range(8)]


def write(path, text):
  file = Path(path)
  file.parent.mkdir(parents=True, exist_ok=True)
  file.write_text(text, "utf-8")


def curve(model, seed):
  """Return a learning curve that ends with the run's score."""
  return [*(LAST[model][seed] - 0.3 * rng.random(2 + seed % 3)), LAST[model][seed]]


def lightning():
  """As `CSVLogger` of Lightning 2: metrics of training and of validation in rows apart,
  also at one step.
  """
  for model, seed in RUNS:
    lines = ["epoch,step,train_loss,val_acc"]
    for epoch, value in enumerate(curve(model, seed)):
      lines.append(f"{epoch},{10 * epoch + 5},{1 / (epoch + 1)},")
      lines.append(f"{epoch},{10 * epoch + 9},{1 / (epoch + 2)},")
      lines.append(f"{epoch},{10 * epoch + 9},,{float(value)!r}")
    write(f"logs/{model}/version_{seed}/metrics.csv", "\n".join(lines) + "\n")
    write(f"logs/{model}/version_{seed}/hparams.yaml", "{}\n")


def keras():
  for model, seed in RUNS:
    values = [float(value) for value in curve(model, seed)]
    losses = [1 - value for value in values]
    history = {"accuracy": values, "loss": losses, "val_accuracy": values}
    write(f"histories/{model}/{seed}.json", json.dumps(history))


def mlflow():
  """As the file store: a file for each parameter, a line for each value of a metric."""
  for number, (model, seed) in enumerate(RUNS):
    folder = f"mlruns/0/{number:032x}"
    write(f"{folder}/meta.yaml", f"run_id: {number:032x}\nstatus: 3\n")
    write(f"{folder}/params/model", model)
    write(f"{folder}/params/seed", str(seed))
    write(f"{folder}/tags/mlflow.user", "me")
    lines = [
      f"{1700000000000 + step} {-float(value)!r} {step}"
      for step, value in enumerate(curve(model, seed))
    ]
    write(f"{folder}/metrics/rmse", "\n".join(lines) + "\n")


def wandb():
  """As its table of runs exports: all cells quoted, a crashed run among the others."""
  rows = [
    {
      "Name": f"glad-sky-{i}",
      "State": "finished",
      "Notes": "-",
      "User": "me",
      "Tags": "",
    }
    | {"Created": f"2026-11-{i + 1:02}T10:00:00.000Z", "Runtime": 60 + i, "Sweep": ""}
    | {"seed": seed, "model": model, "ID": f"q{i}", "acc": LAST[model][seed]}
    for i, (model, seed) in enumerate(RUNS)
  ]
  rows.append(rows[0] | {"Name": "sad-sea", "State": "crashed", "acc": 0.1})
  pd.DataFrame(rows).to_csv("wandb_export.csv", index=False, quoting=1)


def hydra():
  for number, (model, seed) in enumerate(RUNS):
    folder = f"multirun/2026-11-29/10-00-00/{number}"
    write(f"{folder}/.hydra/overrides.yaml", f"- model={model}\n- seed={seed}\n")
    write(f"{folder}/.hydra/config.yaml", f"model: {model}\nseed: {seed}\n")
    write(f"{folder}/scores.json", json.dumps({"acc": float(LAST[model][seed])}))


@pytest.mark.parametrize("writer", [lightning, keras, mlflow, wandb, hydra])
def test_folders_of_others_are_read_by_the_lines_of_the_page(writer, page):
  """In the layout that Lightning 2, Keras 3, MLflow 3.17 and Hydra 1.3 were seen to write;
  the export of Weights & Biases has the columns that public scripts read of theirs.
  """
  writer()
  blocks = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
  (imports,) = [block for block in blocks if block.startswith("import json")]
  (lines,) = [block for block in blocks if f"{writer.__name__} = vs.compare(" in block]
  assert len(lines.splitlines()) <= 12
  names = {}
  exec(imports + lines, names)
  comparison = names[writer.__name__]
  differences = LAST["gat"] - LAST["gcn"]
  if writer is mlflow:
    # There the scores are the same numbers with their sign changed.
    assert "gat is better than gcn: its rmse is lower" in comparison.sentence
  assert comparison.found.difference == pytest.approx(differences.mean())
  assert comparison.only.matching == "the same seeds"
