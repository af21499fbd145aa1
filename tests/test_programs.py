"""The programs of docs/programs run as they stand, from a folder of their own, and do
what their last comments say.
"""

import os
import re
import resource
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import vmapseeds as vs

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "docs" / "programs"
MOST_SECONDS = 120  # of one core


def environment():
  """Puts the package on the path, so that it is found as if installed, not through the
  current folder.
  """
  return {**os.environ, "PYTHONPATH": str(ROOT)}


def run(folder, *argv):
  """The ended process of `python argv` in a folder."""
  begun = resource.getrusage(resource.RUSAGE_CHILDREN)
  ended = subprocess.run(
    [sys.executable, *argv],
    cwd=folder,
    env=environment(),
    capture_output=True,
    text=True,
  )
  after = resource.getrusage(resource.RUSAGE_CHILDREN)
  assert (
    after.ru_utime + after.ru_stime - begun.ru_utime - begun.ru_stime < MOST_SECONDS
  )
  return ended


def printed(folder, *argv):
  ended = run(folder, *argv)
  assert ended.returncode == 0, ended.stderr
  return ended.stdout


def written(folder):
  """When each file of a folder was last written."""
  return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.optimized
def test_own_model(tmp_path):
  program, out = str(PROGRAMS / "own_model.py"), tmp_path / "tiny"
  killed = subprocess.Popen(
    [sys.executable, program, str(out)],
    cwd=tmp_path,
    env=environment(),
    stderr=subprocess.PIPE,
  )
  while not (out / "zarr.json").exists():
    assert killed.poll() is None, killed.stderr.read()
    time.sleep(0.05)
  killed.send_signal(signal.SIGKILL)
  killed.communicate()

  said = printed(tmp_path, program, str(out))
  results = vs.open_results(out)
  wrong = results.predictions.values != results.labels.values
  for line, lr in zip(said.splitlines(), (1e-3, 3e-3, 1e-2), strict=True):
    these = wrong[np.isclose(results.lr.values, lr)]
    accuracies, n = 1 - these.mean(1), these.shape[1]
    # Equation 3: the variance of accuracies without what independent errors on n
    # examples would give.
    rate = these.mean(0)
    noise = (rate * (1 - rate)).mean() * 32 / 31 / n
    sd = 100 * np.sqrt((accuracies.var(ddof=1) - noise) * n / (n - 1))
    expected = f"lr {lr:.3g}: 32 runs, accuracy {100 * accuracies.mean():.2f} %, distribution-wise sd {sd:.2f} %"
    assert line == expected
  for again in (vs.work, lambda folder: vs.replay(folder, 0)):
    with pytest.raises(
      vs.Mistake,
      match=r"tiny were arrays in memory: resume with vs\.train in the program that created",
    ):
      again(out)
  before = written(out)
  assert printed(tmp_path, program, str(out)) == said
  assert written(out) == before


def test_own_models_dropout_has_a_seed_that_matters(tmp_path):
  recipe = runpy.run_path(str(PROGRAMS / "own_model.py"))["recipe"].replace(epochs=1)
  results = vs.train(
    recipe, vs.Runs.vary("dropout", 2), tmp_path / "r", keep_params=True, progress=False
  )
  one, other = (
    vs.load_params(tmp_path / "r", i)["params"]["Dense_0"]["kernel"] for i in range(2)
  )
  assert np.abs(one - other).max() > 1e-4
  assert len(np.unique(results.seed_init)) == 1


@pytest.fixture
def own_module(tmp_path):
  shutil.copytree(PROGRAMS / "own_module", tmp_path / "m")
  return tmp_path / "m"


@pytest.mark.slow
@pytest.mark.optimized
def test_own_module(own_module):
  """The commands of its README one by one, as the installed script runs them; then an
  edit.
  """
  commands = re.findall(
    r"^    vmapseeds (.*)$", (own_module / "README.md").read_text(), re.MULTILINE
  )
  assert [command.split()[0] for command in commands] == [
    "train",
    "train",
    "replay",
    "compare",
  ]
  # With -P the folder is not on Python's path, as it is not for a script.
  said = [
    printed(own_module, "-P", "-m", "vmapseeds", *command.split())
    for command in commands
  ]
  a, b = (
    vs.open_results(own_module / "results" / name) for name in ("warm", "warm_lr")
  )
  assert (a.sizes["run"], b.sizes["run"]) == (32, 32)
  assert (
    f"32 runs in results/warm, mean accuracy {a.accuracy.values.mean():.2%}" in said[0]
  )
  assert (
    f"32 runs in results/warm_lr, mean accuracy {b.accuracy.values.mean():.2%}"
    in said[1]
  )
  assert (
    said[2]
    == "run 7, test set test: predictions agree bit for bit on all 797 examples\n"
  )
  better = (
    np.mean(a.accuracy.values > b.accuracy.values)
    + np.mean(a.accuracy.values == b.accuracy.values) / 2
  )
  assert f"P(A > B) = {better:.3f}" in " ".join(said[3].split())

  module = own_module / "my_recipes.py"
  module.write_text(
    module.read_text().replace("logits.shape[-1]), 0.1)", "logits.shape[-1]), 0.2)")
  )
  for command in (commands[0], "work results/warm"):
    ended = run(own_module, "-P", "-m", "vmapseeds", *command.split())
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert re.search(r"loss:? my_recipes:smoothed .*source", line)
    assert ended.stdout == ""


def test_regression(tmp_path):
  said = " ".join(printed(tmp_path, str(PROGRAMS / "regression.py")).split())
  results = vs.open_results(tmp_path / "results" / "diabetes")
  assert results.predictions.shape == (64, 142)
  losses = np.mean(
    (results.predictions.values - results.targets.values) ** 2, axis=1, dtype=np.float64
  )
  for name, value in (("mean", losses.mean()), ("test_set", losses.var(ddof=1))):
    found = float(re.search(rf"\b{name}=array\(([\d.e-]+)\)", said)[1])
    assert found == pytest.approx(value, rel=1e-4)
  assert losses.mean() < 0.9  # the mean of the training targets would give about 1


@pytest.mark.slow
@pytest.mark.optimized
def test_memorization(tmp_path):
  said = printed(tmp_path, str(PROGRAMS / "memorization.py"))
  results, out = (
    vs.open_results(tmp_path / "results" / "memorization"),
    tmp_path / "results" / "memorization",
  )
  right, saw = (
    results.predictions.values == results.labels.values,
    vs.training_examples(out),
  )
  assert [len({*row}) for row in saw.tolist()] == [500] * 64
  memorized = [
    np.mean([right[r, i] for r in range(64) if i in saw[r]])
    - np.mean([right[r, i] for r in range(64) if i not in saw[r]])
    for i in range(1000)
  ]
  wrong = memorized[::20]
  assert (
    said
    == f"memorized: mislabelled {np.mean(wrong):.2f}, all {np.mean(memorized):.2f}\n"
  )
  assert np.mean(wrong) > 0.8 > 0.2 > np.mean(memorized)


@pytest.mark.slow
def test_own_task(tmp_path):
  said = printed(tmp_path, str(PROGRAMS / "own_task.py"))
  results = vs.open_results(tmp_path / "results" / "bandit")
  assert dict(results.policy.sizes) == {"run": 2000, "arm": 2}
  np.testing.assert_allclose(results.policy.sum("arm"), 1, rtol=1e-5)
  expected = []
  for lr in (0.03, 0.3):
    these = results.isel(run=np.isclose(results.lr, lr))
    # 2,000 pulls: between what the two arms pay, nearer to the better one's 400.
    assert 250 < these.earned.values.mean() < 400
    expected.append(these.earned.values.std())
    assert f"{these.earned.values.mean():.4g}" in said
  np.testing.assert_allclose(
    [float(sd) for sd in re.findall(r"\d+\.\d+", said[said.rindex("array(") :])[:2]],
    expected,
    rtol=1e-5,
  )
  assert not (tmp_path / "results" / "bandit" / "checkpoints").exists()


@pytest.mark.slow
def test_finetune(tmp_path):
  said = [
    line.split()
    for line in printed(tmp_path, str(PROGRAMS / "finetune.py")).splitlines()
  ]
  assert [line[:2] for line in said] == [
    ["all", "own"],
    ["all", "shared"],
    ["last", "own"],
    ["last", "shared"],
  ]
  base = vs.load_networks(tmp_path / "results" / "base").variables["params"]
  for what, name, *variances in said:
    results = vs.open_results(tmp_path / "results" / f"{what}_{name}")
    wrong = (results.predictions.values != results.labels.values).mean(1)
    assert float(variances[0]) == pytest.approx(wrong.var(ddof=1), rel=1e-5)
    assert wrong.mean() < 0.5, "of five classes"
    starts = [0] * 64 if name == "shared" else [*range(16)] * 4
    assert results.attrs["recipe"].count("results/base") == 1
    if "start" in results:
      assert results.start.values.tolist() == starts
  assert len(base["Dense_0"]["bias"]) == 16
