"""The programs of docs/programs run from a folder of their own, with few runs, and do
what their last comments say: `whole.RUNS`.
"""

import dataclasses
import functools
import importlib.util
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import plain
import pytest
import scipy.stats
import whole
from sklearn.datasets import load_digits

import vmapseeds as vs
from vmapseeds import cli

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "docs" / "programs"


def environment():
  """Puts the package on the path, so that it is found as if installed, not through the
  current folder.
  """
  return {**os.environ, "PYTHONPATH": str(ROOT)}


def run(folder, *argv):
  """The ended process of `python argv` in a folder."""
  return subprocess.run(
    [sys.executable, *argv],
    cwd=folder,
    env=environment(),
    capture_output=True,
    text=True,
  )


@pytest.fixture
def printed(tmp_path, monkeypatch, capsys):
  """printed(name, *argv): what a program of docs/programs prints, with few runs."""
  monkeypatch.chdir(tmp_path)

  def run_and_read(name, *argv, runs=whole.RUNS):
    capsys.readouterr()
    whole.run_program(str(PROGRAMS / f"{name}.py"), *argv, runs=runs)
    return capsys.readouterr().out

  return run_and_read


@pytest.fixture
def command(monkeypatch, capsys):
  """command(folder, *argv): what `vmapseeds argv` prints in a folder, by the entry of
  the command line in this process.
  """
  monkeypatch.setattr(sys, "path", [*sys.path])

  def run_and_read(folder, *argv):
    monkeypatch.chdir(folder)
    capsys.readouterr()
    cli.main([*argv])
    return capsys.readouterr().out

  yield run_and_read
  for name in ("my_recipes", "variants"):
    sys.modules.pop(name, None)


def written(folder):
  """When each file of a folder was last written."""
  return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_own_model(tmp_path, printed):
  """Killed as a process of its own, and resumed."""
  runs = whole.trained(32)
  program, out = str(PROGRAMS / "own_model.py"), tmp_path / "tiny"
  killed = subprocess.Popen(
    [sys.executable, whole.__file__, program, str(out)],
    cwd=tmp_path,
    env=environment(),
    stderr=subprocess.PIPE,
  )
  while not (out / "zarr.json").exists():
    assert killed.poll() is None, killed.stderr.read()
    time.sleep(0.05)
  killed.send_signal(signal.SIGKILL)
  killed.communicate()

  said = printed("own_model", str(out))
  results = vs.open_results(out)
  wrong = results.predictions.values != results.labels.values
  for line, lr in zip(said.splitlines(), (1e-3, 3e-3, 1e-2), strict=True):
    these = wrong[np.isclose(results.lr.values, lr)]
    accuracies, n = 1 - these.mean(1), these.shape[1]
    # Equation 3: the variance of accuracies without what independent errors on n
    # examples would give.
    rate = these.mean(0)
    noise = (rate * (1 - rate)).mean() * runs / (runs - 1) / n
    sd = 100 * np.sqrt((accuracies.var(ddof=1) - noise) * n / (n - 1))
    expected = f"lr {lr:.3g}: {runs} runs, accuracy {100 * accuracies.mean():.2f} %, distribution-wise sd {sd:.2f} %"
    assert line == expected
  for again in (vs.work, lambda folder: vs.replay(folder, 0)):
    with pytest.raises(
      vs.UserError,
      match="the data set <arrays> cannot be imported by name: resume from the program",
    ):
      again(out)
  before = written(out)
  assert printed("own_model", str(out)) == said
  assert written(out) == before


@pytest.mark.slow
def test_own_models_dropout_has_a_seed_that_matters(tmp_path):
  recipe = runpy.run_path(str(PROGRAMS / "own_model.py"))["recipe"].replace(epochs=1)
  results = vs.train(
    recipe, vs.Runs.vary("dropout", 2), tmp_path / "r", keep_params=True, progress=False
  )
  one, other = (
    vs.load_networks(tmp_path / "r", i).variables["params"]["Dense_0"]["kernel"]
    for i in range(2)
  )
  assert np.abs(one - other).max() > 1e-4
  assert len(np.unique(results.seed_init)) == 1


@pytest.fixture
def own_module(tmp_path):
  shutil.copytree(PROGRAMS / "own_module", tmp_path / "m")
  return tmp_path / "m"


@pytest.mark.slow
def test_own_module(own_module, command):
  """The commands of its README one by one, with few runs, the first as the installed
  script runs it; then an edit.
  """
  lines = re.findall(
    r"^    vmapseeds (.*)$", (own_module / "README.md").read_text(), re.MULTILINE
  )
  first, *others = (line.replace("--runs 32", "--runs 8").split() for line in lines)
  assert first[0] == "train"
  assert [argv[0] for argv in others] == ["train", "replay", "compare"]
  # With -P the folder is not on Python's path, as it is not for a script.
  ended = run(own_module, "-P", "-m", "vmapseeds", *first)
  assert ended.returncode == 0, ended.stderr
  said = [ended.stdout, *(command(own_module, *argv) for argv in others)]
  a, b = (
    vs.open_results(own_module / "results" / name) for name in ("warm", "warm_lr")
  )
  assert (a.sizes["run"], b.sizes["run"]) == (8, 8)
  assert (
    f"8 runs in results/warm, mean accuracy {a.accuracy.values.mean():.2%}" in said[0]
  )
  assert (
    f"8 runs in results/warm_lr, mean accuracy {b.accuracy.values.mean():.2%}"
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
  share = f"a run of A beats one of B in {100 * better:.0f} % of pairs"
  assert share in " ".join(said[3].split())

  module = own_module / "my_recipes.py"
  module.write_text(
    module.read_text().replace("logits.shape[-1]), 0.1)", "logits.shape[-1]), 0.2)")
  )
  for argv in (first, ["work", "results/warm"]):
    ended = run(own_module, "-P", "-m", "vmapseeds", *argv)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert re.search(
      r"program was another .*: look at what changed in your modul", line
    )
    assert ended.stdout == ""


@pytest.mark.slow
def test_regression(tmp_path, printed):
  said = " ".join(printed("regression").split())
  results = vs.open_results(tmp_path / "results" / "diabetes")
  assert results.predictions.shape == (whole.trained(64), 142)
  losses = np.mean(
    (results.predictions.values - results.targets.values) ** 2, axis=1, dtype=np.float64
  )
  for name, value in (("mean", losses.mean()), ("test_set", losses.var(ddof=1))):
    found = float(re.search(rf"\b{name}=(?:array\()?([\d.e-]+)", said)[1])
    assert found == pytest.approx(value, rel=0.01)
  assert losses.mean() < 0.9  # the mean of the training targets would give about 1


@pytest.mark.seldom
def test_memorization(tmp_path, printed):
  runs = whole.trained(64, 16)  # of which some see each example, and some do not
  said = printed("memorization", runs=runs)
  results, out = (
    vs.open_results(tmp_path / "results" / "memorization"),
    tmp_path / "results" / "memorization",
  )
  right, saw = (
    results.predictions.values == results.labels.values,
    vs.training_examples(out),
  )
  assert [len({*row}) for row in saw.tolist()] == [500] * runs
  memorized = [
    np.mean([right[r, i] for r in range(runs) if i in saw[r]])
    - np.mean([right[r, i] for r in range(runs) if i not in saw[r]])
    for i in range(1000)
  ]
  wrong = memorized[::20]
  assert (
    said
    == f"memorized: mislabelled {np.mean(wrong):.2f}, all {np.mean(memorized):.2f}\n"
  )
  assert np.mean(wrong) > 0.8 > 0.2 > np.mean(memorized)


@pytest.mark.slow
def test_own_task(tmp_path, printed):
  runs = whole.trained(1000, 250)
  said, reports = printed("own_task", runs=runs).split("earned side by side, in reward")
  results = vs.open_results(tmp_path / "results" / "bandit")
  assert dict(results.policy.sizes) == {"run": 2 * runs, "arm": 2}
  np.testing.assert_allclose(results.policy.sum("arm"), 1, rtol=1e-5)
  expected = []
  for lr in (0.03, 0.3):
    these = results.isel(run=np.isclose(results.lr, lr))
    # 2,000 pulls: between what the two arms pay, nearer to the better one's 400.
    assert 250 < these.earned.values.mean() < 400
    expected.append(these.earned.values.std())
    assert f"{these.earned.values.mean():.4g}" in said
    assert f"{these.earned.values.mean():.1f}" in reports
  np.testing.assert_allclose(
    [float(sd) for sd in re.findall(r"\d+\.\d+", said[said.rindex("array(") :])[:2]],
    expected,
    rtol=1e-5,
  )
  assert not (tmp_path / "results" / "bandit" / "checkpoints").exists()


@pytest.mark.slow
def test_finetune(tmp_path, printed):
  runs = whole.trained(64)
  said = [line.split() for line in printed("finetune").splitlines()]
  assert [line[:2] for line in said] == [
    ["all", "own"],
    ["all", "shared"],
    ["last", "own"],
    ["last", "shared"],
  ]
  base = vs.load_networks(tmp_path / "results" / "base").variables["params"]
  digits = vs.load_dataset("digits").tests["test"].targets
  trained_on = vs.open_results(tmp_path / "results" / "base").labels
  np.testing.assert_array_equal(trained_on, digits[digits < 5])
  for what, name, *variances in said:
    results = vs.open_results(tmp_path / "results" / f"{what}_{name}")
    wrong = (results.predictions.values != results.labels.values).mean(1)
    assert float(variances[0]) == pytest.approx(wrong.var(ddof=1), rel=0.01)
    assert wrong.mean() < 0.5, "of five classes"
    np.testing.assert_array_equal(results.labels, digits[digits >= 5] - 5)
    starts = [0] * runs if name == "shared" else ([*range(16)] * 4)[:runs]
    assert results.attrs["recipe"].count("results/base") == 1
    if "start" in results:
      assert results.start.values.tolist() == starts
  assert len(base["Dense_0"]["bias"]) == whole.trained(16)


# Objectives of one's own, each beside a loop of Flax and optax.

DIGITS = load_digits()
IMAGES = DIGITS.images[:200, ..., None].astype(np.float32)
LABELS = DIGITS.target[:200].astype(np.int32)


def program(name):
  """What a program defines."""
  return runpy.run_path(str(PROGRAMS / f"{name}.py"))


def small(recipe, **changes):
  """One epoch of the recipe on few digits."""
  digits = vs.Dataset(train=(IMAGES, LABELS), test=(IMAGES[:50], LABELS[:50]))
  return recipe.replace(dataset=digits, augment="", epochs=1, **changes)


def trained_params(recipe, runs, out):
  vs.train(recipe, runs, out, keep_params=True, progress=False)
  return vs.load_networks(out).variables["params"]


def source_key(source, seed):
  number = len(plain.SOURCES) + zlib.crc32(source.encode()) % 2**31
  return jax.random.fold_in(jax.random.key(number), seed)


def plain_params(model, gradient, optimizer, *, batch, init=0, order=0):
  """The parameters after an epoch of a Python loop, where `gradient(params, inputs,
  labels, examples, step)` has the program's name for its job.
  """
  inputs = (IMAGES - IMAGES.mean()) / IMAGES.std()
  params = model.init(plain.key("init", init), inputs[:1], train=False)["params"]
  state, gradient = optimizer.init(params), jax.jit(gradient)
  key = jax.random.fold_in(plain.key("order", order), 0)
  examples = np.asarray(jax.random.permutation(key, len(inputs)))
  for step in range(len(inputs) // batch):
    chosen = examples[step * batch :][:batch]
    given = gradient(params, inputs[chosen], LABELS[chosen], chosen, step)
    updates, state = optimizer.update(given, state, params)
    params = optax.apply_updates(params, updates)
  return params


def digits_sgd(steps):
  """The optimizer of the recipe digits_cnn."""
  schedule = optax.linear_schedule(0.05, 0.0, steps)
  return optax.chain(optax.add_decayed_weights(5e-4), optax.sgd(schedule, 0.9))


def losses(model, params, inputs, labels):
  logits = model.apply({"params": params}, inputs, train=True)
  return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def assert_same(ours, theirs, run):
  chosen = jax.tree.map(lambda leaf: leaf[run], ours)
  assert jax.tree.structure(chosen) == jax.tree.structure(theirs)
  for a, b in zip(jax.tree.leaves(chosen), jax.tree.leaves(theirs), strict=True):
    np.testing.assert_allclose(a, b, atol=2e-5)


def differ(params):
  """Whether the networks of the first two runs differ by more than rounding."""
  return max(np.abs(leaf[0] - leaf[1]).max() for leaf in jax.tree.leaves(params)) > 1e-3


@pytest.mark.seldom
def test_mixup_is_a_plain_loop(tmp_path):
  model = plain.SmallCNN()

  def gradient(params, inputs, labels, examples, step):
    one, two = jax.random.split(jax.random.fold_in(source_key("mixup", 1), step))
    share = jax.random.beta(one, 0.4, 0.4)
    other = jax.random.permutation(two, 32)

    def value(params):
      mixed = share * inputs + (1 - share) * inputs[other]
      first, second = (
        losses(model, params, mixed, y).mean() for y in (labels, labels[other])
      )
      return share * first + (1 - share) * second

    return jax.grad(value)(params)

  ours = trained_params(
    small(program("mixup")["recipe"]), vs.Runs.vary("mixup", 2), tmp_path / "r"
  )
  assert_same(ours, plain_params(model, gradient, digits_sgd(6), batch=32), run=1)
  assert differ(ours)


@pytest.mark.seldom
def test_sharpness_aware_steps_are_a_plain_loop(tmp_path):
  model = plain.SmallCNN()

  def gradient(rho, params, inputs, labels, examples, step):
    at = jax.grad(lambda params: losses(model, params, inputs, labels).mean())
    here = at(params)
    norm = jnp.sqrt(sum((g**2).sum() for g in jax.tree.leaves(here)))
    return at(jax.tree.map(lambda p, g: p + rho * g / norm, params, here))

  recipe = small(program("sharpness_aware")["recipe"])
  ours = trained_params(recipe, vs.Runs.sweep(rho=[0.0, 0.5], seeds=1), tmp_path / "r")
  for run, rho in enumerate((0.0, 0.5)):
    theirs = plain_params(
      model, functools.partial(gradient, rho), digits_sgd(6), batch=32
    )
    assert_same(ours, theirs, run)
  assert differ(ours)


@pytest.mark.seldom
def test_label_noise_is_a_plain_loop_on_wrong_labels(tmp_path):
  made, model = program("label_noise"), plain.SmallCNN()
  noisy = LABELS.copy()
  for i, label in enumerate(LABELS):
    wrong, shift = jax.random.split(jax.random.fold_in(source_key("label_noise", 1), i))
    if jax.random.bernoulli(wrong, 0.4):
      noisy[i] = (label + jax.random.randint(shift, (), 1, 10)) % 10
  assert 0.3 < (noisy != LABELS).mean() < 0.5

  def gradient(params, inputs, labels, examples, step):
    at = jnp.asarray(noisy)[examples]
    return jax.grad(lambda params: losses(model, params, inputs, at).mean())(params)

  table = vs.Runs.vary("label_noise", 2)
  recipe = small(made["recipe"], share=0.4)
  ours = trained_params(recipe, table, tmp_path / "r")
  assert_same(ours, plain_params(model, gradient, digits_sgd(6), batch=32), run=1)
  assert differ(ours)


def test_a_share_of_labels_is_wrong_and_stays_so():
  noisy_labels = jax.jit(program("label_noise")["noisy_labels"])
  labels, examples = np.tile(np.arange(10), 2000), np.arange(20_000)
  for share in (0.0, 0.2, 1.0):
    noisy = np.asarray(noisy_labels(jax.random.key(0), labels, examples, share))
    # Five standard errors of a proportion.
    error = 5 * np.sqrt(share * (1 - share) / 20_000)
    assert abs((noisy != labels).mean() - share) <= error
  assert {*((noisy - labels) % 10)} == {*range(1, 10)}
  places = np.random.default_rng(0).permutation(20_000)
  again = noisy_labels(jax.random.key(0), labels[places], examples[places], 0.2)
  first = noisy_labels(jax.random.key(0), labels, examples, 0.2)
  np.testing.assert_array_equal(again, np.asarray(first)[places])
  other = noisy_labels(jax.random.key(1), labels, examples, 0.2)
  assert (np.asarray(other) != np.asarray(first)).any()


@pytest.mark.slow
def test_adversarial_training_is_a_plain_loop(tmp_path):
  model = plain.SmallCNN()

  def gradient(radius, params, inputs, labels, examples, step):
    moved = jnp.zeros_like(inputs)
    for _ in range(3):
      at = jax.grad(lambda moved: losses(model, params, inputs + moved, labels).mean())
      moved = jnp.clip(moved + radius / 2 * jnp.sign(at(moved)), -radius, radius)
    return jax.grad(lambda p: losses(model, p, inputs + moved, labels).mean())(params)

  recipe = small(program("adversarial")["recipe"], lr=0.05, test_sets=("test",))
  table = vs.Runs.sweep(radius=[0.0, 0.2], seeds=1)
  ours = trained_params(recipe, table, tmp_path / "r")
  for run, radius in enumerate((0.0, 0.2)):
    theirs = plain_params(
      model, functools.partial(gradient, radius), digits_sgd(6), batch=32
    )
    assert_same(ours, theirs, run)
  assert differ(ours)


class NarrowCNN(nn.Module):
  @nn.compact
  def __call__(self, x, train):
    for features in (4, 8):
      x = nn.max_pool(nn.relu(nn.Conv(features, (3, 3))(x)), (2, 2), (2, 2))
    return nn.Dense(10)(x.reshape(len(x), -1))


@pytest.mark.slow
def test_distillation_is_a_plain_loop(tmp_path):
  made, model = program("distillation"), NarrowCNN()
  taught = np.random.default_rng(0).dirichlet(np.ones(10), 200).astype(np.float32)

  def gradient(params, inputs, labels, examples, step):
    def value(params):
      log_p = jax.nn.log_softmax(model.apply({"params": params}, inputs, train=True))
      soft = -(jnp.asarray(taught)[examples] * log_p).sum(-1).mean()
      return (soft - log_p[jnp.arange(50), labels].mean()) / 2

    return jax.grad(value)(params)

  objective = functools.partial(made["distillation"], jnp.asarray(taught))
  student = small(made["student"], objective=objective)
  ours = trained_params(student, 2, tmp_path / "r")
  optimizer = optax.adam(1e-2)
  theirs = plain_params(model, gradient, optimizer, batch=50, init=1, order=1)
  assert_same(ours, theirs, run=1)
  # What the teachers say is part of what the folder keeps of the student.
  others = functools.partial(made["distillation"], jnp.asarray(taught[::-1]))
  other, kept = student.replace(objective=others), {"keep_params": True}
  with pytest.raises(vs.UserError, match=r"its program was another \(advance"):
    vs.train(other, 2, tmp_path / "r", progress=False, **kept)


# Tasks of one's own.


@pytest.mark.slow
def test_token_accuracy_is_that_of_present_tokens(tmp_path):
  made = program("transformer")
  task = dataclasses.replace(made["task"], rounds=0)
  results = vs.train(task, 3, tmp_path / "r", progress=False)
  tokens, present = made["tokens"], made["present"]
  np.testing.assert_array_equal(present[:, :3].all(1), True)
  init, apply = jax.jit(made["model"].init), jax.jit(made["model"].apply)
  for run in range(3):
    params = init(plain.key("init", run), tokens, present)
    logits = np.asarray(apply(params, tokens, present))
    sure = np.sort(logits, -1)[..., -1] - np.sort(logits, -1)[..., -2] > 1e-4
    ours = np.full(present.shape, -1)
    ours[results.sequence.values, results.token.values] = results.letters[run]
    np.testing.assert_array_equal(ours >= 0, present)
    both = sure & present
    np.testing.assert_array_equal(ours[both], logits.argmax(-1)[both])
    right = [
      ours[i, j] == sorted(tokens[i][present[i]])[j] for i, j in np.argwhere(present)
    ]
    assert float(results.accuracy[run]) == pytest.approx(np.mean(right))
  (summary,) = vs.report(tmp_path / "r")
  assert summary["examples"] == present.sum()


@pytest.mark.slow
def test_the_score_of_a_gan_is_the_distance_of_its_samples(tmp_path):
  made = program("gan")
  task = dataclasses.replace(made["task"], rounds=1)
  out = tmp_path / "r"
  table = vs.Runs.sweep(generator=[0.0, 2e-3], critic=[0.0, 2e-3], seeds=2)
  results = vs.train(task, table, out, progress=False)
  distance = np.abs(np.sort(results.samples, axis=1) - made["truth"]).mean(1)
  np.testing.assert_allclose(results.distance, distance, rtol=1e-5)
  assert results.distance.attrs["higher_is_better"] == 0
  # Without steps of its own the generator stays what it was; it learns from a critic.
  still = results.distance.values[results.generator.values == 0]
  moved = results.distance.values[results.generator.values > 0]
  np.testing.assert_array_equal(still[0::2], still[1::2])
  learning, lazy = (moved[i::2] for i in (1, 0))
  assert (learning != lazy).all()
  np.testing.assert_array_less(learning, still[1::2])
  (found,) = vs.compare(
    out,
    where={"generator": 2e-3, "critic": 2e-3},
    against={"generator": 0.0, "critic": 2e-3},
  )
  assert found.outperforming[0] == 1


def upright(actions, places):
  """The steps for which each pole stands, in float64, after the equations of Barto,
  Sutton and Anderson (1983).
  """
  lengths = np.zeros(len(places))
  for cart, (x, v, angle, turn) in enumerate(places.astype(float)):
    for action in actions[:, cart]:
      lengths[cart] += 1
      force, length, pole, total = 10.0 if action else -10.0, 0.5, 0.1, 1.1
      push = (force + pole * length * turn**2 * np.sin(angle)) / total
      bend = (9.8 * np.sin(angle) - np.cos(angle) * push) / (
        length * (4 / 3 - pole * np.cos(angle) ** 2 / total)
      )
      pull = push - pole * length * bend * np.cos(angle) / total
      x, v, angle, turn = (
        x + 0.02 * v, v + 0.02 * pull, angle + 0.02 * turn, turn + 0.02 * bend
      )  # fmt: skip
      if abs(x) > 2.4 or abs(angle) > 12 * np.pi / 180:
        break
  return lengths


@pytest.mark.slow
def test_the_returns_of_ppo_are_those_of_its_environment(tmp_path):
  """With an agent that acts at random, which tells all seeds the same."""
  made = program("ppo")
  agent, steps = made["agent"], made["MOST"]
  still = jax.tree.map(jnp.zeros_like, agent.init(jax.random.key(0), jnp.zeros(4)))
  start = made["task"].start
  random = dataclasses.replace(
    made["task"], rounds=0, start=lambda data, run: (still, *start(data, run)[1:])
  )
  (found,) = vs.train(random, 1, tmp_path / "r", progress=False).returns.values
  keys = jax.random.split(jax.random.key(0), steps)
  actions = np.stack([jax.random.categorical(k, jnp.zeros((64, 2))) for k in keys])
  places = jax.random.uniform(jax.random.key(1), (64, 4), minval=-0.05, maxval=0.05)
  assert found == pytest.approx(upright(actions, np.asarray(places)).mean())


@pytest.mark.slow
def test_ppo_learns_the_same_at_every_lane_width(tmp_path):
  """Its initialisers factorise matrices, of which a call for several lanes hung."""
  task = dataclasses.replace(program("ppo")["task"], rounds=4)
  untrained = dataclasses.replace(task, rounds=0)
  before = vs.train(untrained, 1, tmp_path / "0", progress=False).returns.item()
  returns = {
    width: vs.train(
      task, 16, tmp_path / str(width), lane_width=width, progress=False
    ).returns.values
    for width in (1, 2, 8)
  }
  # Last bits differ, which may move the end of an episode.
  for width in (2, 8):
    np.testing.assert_allclose(returns[width], returns[1], atol=1)
  assert returns[1].mean() > 2 * before
  assert len(np.unique(returns[1])) > 8


@pytest.mark.slow
@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_the_page_of_the_noise_share_runs(library, capsys):
  pytest.importorskip(library)
  page = (ROOT / "docs" / "howto" / "noise_share.md").read_text("utf-8")
  _, after = page.split(f"```python\nimport {library}")
  program, rest = after.split("```", 1)
  block = f"import {library}{program}"
  shown = rest.split("```text\n")[1].split("\n")[0]
  exec(compile(block, library, "exec"), {})
  share, low, high = map(float, re.findall(r"\d\.\d+", capsys.readouterr().out))
  assert low < share < high
  # Other versions of a library draw other numbers: within what the page shows.
  _, lowest, highest = map(float, re.findall(r"\d\.\d+", shown))
  assert lowest < share < highest


# The programs as they stand.

RECORDED = {
  "record_torch": ("dropout", 20, ["torch"]),
  "record_sklearn": ("trees", 50, []),
  "record_trainer": ("lr", 10, ["torch", "transformers", "accelerate"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED)
def test_programs_that_record(name, tmp_path, printed):
  column, runs, packages = RECORDED[name]
  for package in packages:
    if importlib.util.find_spec(package) is None:
      pytest.skip(f"{name}.py needs {package}, which is not installed")
  said = printed(name, "out")
  results = vs.open_results(tmp_path / "out")
  groups = results.accuracy.groupby(column)
  assert [len(of) for _, of in groups] == [runs, runs]
  for value, of in groups:
    assert f"{column}={value:g}" in said
    assert f"{100 * of.values.mean():.2f}"[:4] in said
    assert of.values.mean() > 0.7
  # Labels are those of the data set, in its order.
  np.testing.assert_array_equal(results.labels, load_digits().target[1000:][SHUFFLED])
  before = written(tmp_path / "out" / "test")
  printed(name, "out")
  assert written(tmp_path / "out" / "test") == before


SHUFFLED = np.random.RandomState(0).permutation(797)
# The folders that each program makes, how many combinations of swept values there are,
# and how many runs of each the program says.
FULL = {
  "mixup": [("", 1, 32)],
  "sharpness_aware": [("", 2, 16)],
  "label_noise": [("", 2, 32)],
  "distillation": [("distilled", 1, 32), ("alone", 1, 32), ("teachers", 1, 4)],
  "transformer": [("", 2, 16)],
  "gan": [("", 2, 64)],
  "ppo": [("", 2, 16)],
  "equinox_model": [("", 1, 32)],
  "init_apply": [("", 1, 64)],
  "vae": [("", 2, 16)],
  "neural_ode": [("", 2, 16)],
  "plateau": [("", 2, 32)],
  "schedule_free": [("free", 1, 64), ("cosine", 1, 64)],
  "adversarial": [("", 2, 32)],
}
MORE = {"ppo": 16}  # runs, where few say little
COMPARED = ("vae", "neural_ode", "schedule_free", "adversarial", "ppo")
LEAST = {"equinox_model": 0.85, "init_apply": 0.9, "plateau": 0.94, "adversarial": 0.85}


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL)
def test_a_whole_program(name, tmp_path, printed):
  if name == "neural_ode":
    pytest.importorskip("diffrax", reason="Diffrax is not installed")
  few = MORE.get(name, whole.RUNS)
  said = printed(name, "out", runs=whole.trained(64, few))
  shown = " ".join(said.split())
  opened = {}
  for folder, combinations, runs in FULL[name]:
    path = tmp_path / "out" / folder
    results = opened[folder] = vs.open_results(path)
    assert results.sizes["run"] == combinations * whole.trained(runs, few)
  if name in ("mixup", "label_noise"):
    groups = (
      results.accuracy.groupby("share")
      if name == "label_noise"
      else [("", results.accuracy)]
    )
    for _, accuracy in groups:
      values = 100 * accuracy.values
      assert f"{values.mean():.2f} %, sd {values.std(ddof=1):.2f} %" in shown
      assert values.std() > 0.1
  elif name == "distillation":
    for folder in ("distilled", "alone"):
      mean = 100 * opened[folder].accuracy.values.mean()
      assert f"{folder}: accuracy {mean:.2f} %" in said
  elif name == "transformer":
    wrong = results.letters.values != results.labels.values
    rates = [wrong[:, results.token.values == i].mean() for i in range(8)]
    found = [float(x) for x in re.findall(r"0\.\d+", said[said.index("array(") :])]
    np.testing.assert_allclose(found[:8], rates, atol=1e-6)
    assert wrong.mean() < 0.15
  elif name == "vae":
    images = load_digits().data / 16
    rates = images[:1000].mean(0).clip(1e-3, 1 - 1e-3)
    x = images[1000:]
    bits = -(x * np.log(rates) + (1 - x) * np.log(1 - rates)).sum(1)
    assert float(results.predictions.min()) >= 0
    assert float(results.predictions.max()) <= 1
    better = results.losses.groupby("lr").mean(...)
    assert better.values[1] < bits.mean() - 2, "than of pixels one by one"
    assert str(better.values[1].round(4))[:6] in shown
  elif name == "neural_ode":
    ways = results.targets.values
    errors = ((results.predictions.values - ways) ** 2).mean((1, 2, 3))
    np.testing.assert_allclose(results.losses.mean("example"), errors, rtol=1e-4)
    assert errors[results.lr.values > 5e-3].mean() < 0.2 * ways.var()
  elif name == "schedule_free":
    free, cosine = (opened[folder].accuracy for folder in ("free", "cosine"))
    assert float(free.mean()) > float(cosine.mean()) > 0.9
  elif name == "ppo":
    by_clip = results.returns.groupby("clip")
    clipped, free = (of.values for _, of in by_clip)
    # 16 chaotic runs of each tell their spread surely and their means hardly.
    more_alike = scipy.stats.levene(clipped, free)
    assert more_alike.pvalue < 0.05, (clipped, free)
    assert clipped.std() < free.std(), (clipped, free)
    assert clipped.mean() > free.mean()
    assert clipped.mean() > 150
  elif name in LEAST:
    assert float(results.accuracy.mean()) > LEAST[name]
  else:
    shown_values = results.accuracy if name == "sharpness_aware" else results.distance
    column = "rho" if name == "sharpness_aware" else "critic"
    for _, group in shown_values.groupby(column):
      scale, digits = (100, 2) if name == "sharpness_aware" else (1, 3)
      assert f"{scale * group.values.mean():.{digits}f}" in shown
  if name in (*COMPARED, "distillation", "transformer", "gan", "sharpness_aware"):
    assert "difference shown" in shown or "better than" in shown


@pytest.mark.slow
def test_search_asks_as_plain_optuna_and_resumes(tmp_path):
  """Each search beside a study of its own, whose trials train one at a time."""
  program = runpy.run_path(str(PROGRAMS / "search.py"))
  seeds = program["SEEDS"][[0, 1]]
  program["main"].__globals__.update(SEARCHES=2, SEEDS=seeds)
  studies = program["main"](str(tmp_path / "r"), 5)
  before = written(tmp_path / "r")

  @functools.cache
  def accuracy(search, epochs, **values):
    recipe = program["RECIPE"].replace(epochs=epochs, **values)
    results = vs.train(recipe, seeds[[search]], progress=False)
    return results.valid_accuracy.values[0]

  pruned = 0
  for search, study in enumerate(studies):
    assert len(study.trials) == 5
    for trial in study.trials:
      for epochs, reached in trial.intermediate_values.items():
        expected = accuracy(search, epochs, **trial.params)
        assert reached == pytest.approx(expected, abs=0.01)
      is_pruned = trial.state.name == "PRUNED"
      assert list(trial.intermediate_values) == ([1] if is_pruned else [1, 4])
      pruned += is_pruned
  assert 0 < pruned < 10

  again = program["main"](str(tmp_path / "r"), 5)
  assert written(tmp_path / "r") == before
  for study, same in zip(studies, again, strict=True):
    assert [t.params for t in study.trials] == [t.params for t in same.trials]
    assert study.best_value == same.best_value
