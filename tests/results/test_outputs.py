"""What a declared role promises, for tasks of a user's own: accuracies, tallies,
reports, comparisons, --until, replay and merge, without a recipe.
"""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vmapseeds as vs
from vmapseeds import cli, stats
from vmapseeds.campaign import until
from vmapseeds.campaign.until import Until
from vmapseeds.results.opening import prediction_blocks
from vmapseeds.training.runs import Run

rng = np.random.default_rng(0)
LABELS = rng.integers(0, 3, 21)
PAGE = rng.integers(0, 3, (5, 4))
READ = rng.random((5, 4)) < 0.8  # examples that count
HARD = rng.gamma(1, 1, (5, 4)).astype(np.float32)


def answers(key, labels):
  """The right class with probability 0.7, else one of four, or -1 for none."""
  right, other = jax.random.split(key)
  guess = jax.random.randint(other, labels.shape, -1, 4)
  right = jax.random.bernoulli(right, 0.7, labels.shape)
  return jnp.where(right, labels, guess).astype(jnp.int8)


def start(data, run):
  return {name: jax.random.key_data(run.key(name)) for name in ("init", "order")}


def advance(data, run, state, first, last):
  return state


def key_of(state, name):
  return jax.random.wrap_key_data(state[name], impl="threefry2x32")


def task(finish, outputs=None, **fields):
  """A task without training, whose `finish` gets a key, and adds `skill` to a score."""
  return vs.Task(
    **{
      "name": "quiz",
      "start": start,
      "advance": advance,
      "finish": finish,
      "outputs": outputs or {},
      "values": {"skill": 0.003},
      **fields,
    }
  )


def answer(data, run, state):
  return {"answers": answers(key_of(state, "init"), jnp.asarray(LABELS))}


def skilled(data, run, state):
  labels = jnp.asarray(LABELS)
  found, key = answer(data, run, state)["answers"], key_of(state, "order")
  return {
    "answers": jnp.where(
      jax.random.bernoulli(key, run["skill"], labels.shape), labels, found
    )
  }


OF_CLASS = vs.Output(("question",), "class", labels=LABELS, num_classes=4)
quiz = task(answer, {"answers": OF_CLASS})
exam = task(skilled, {"answers": OF_CLASS})


def train(task, runs, out, **options):
  # Five runs a block: steps end inside blocks, and the last step is padded.
  how = {"seed_batch": 5, "lane_width": 2, "lowering": "sequential", "progress": False}
  return vs.train(task, runs, out, **{**how, **options})


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
  out = tmp_path_factory.mktemp("answered") / "r"
  return out, train("test_outputs:quiz", 13, out)


def equal(given, expected):
  ours, theirs = given.to_arrays(), expected.to_arrays()
  assert ours.keys() == theirs.keys()
  for name in ours:
    np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


def counted_alone(monkeypatch):
  """Make counting predictions an error."""
  for name in ("tally", "tally_blocks"):
    monkeypatch.setattr(stats, name, None)


# One class.


@pytest.mark.slow
@pytest.mark.optimized
def test_accuracy_follows_from_a_class(answered):
  _, results = answered
  wrong = results.answers.values != LABELS
  np.testing.assert_array_equal(results.accuracy, (~wrong).mean(1))
  np.testing.assert_array_equal(
    results.half_errors, np.stack([wrong[:, 0::2].sum(1), wrong[:, 1::2].sum(1)], 1)
  )
  np.testing.assert_array_equal(results.labels, LABELS)
  assert results.answers.dims == ("run", "question")
  assert results.answers.attrs == {
    "role": "class",
    "labels": "labels",
    "num_classes": 4,
  }
  assert (results.answers.values == -1).any()
  assert 0 < wrong.mean() < 1


@pytest.mark.slow
@pytest.mark.optimized
@pytest.mark.parametrize("pairs", [False, True])
def test_tallies_of_a_class(pairs, answered, tmp_path, monkeypatch):
  out, results = answered
  if pairs:
    out = tmp_path / "r"
    results = train(quiz, 13, out, pairs=True)
  expected = stats.tally(results.answers.values, LABELS, 4, pairs=pairs)
  counted_alone(monkeypatch)
  assert results.sizes["block"] == 3
  equal(vs.tally(out, pairs=pairs), expected)


def test_errors_of_a_class(answered):
  out, results = answered
  np.testing.assert_array_equal(vs.error_matrix(out), results.answers.values != LABELS)
  blocks = np.concatenate([*prediction_blocks(out, 4)])
  np.testing.assert_array_equal(blocks, results.answers)


@pytest.mark.slow
@pytest.mark.optimized
def test_a_class_trained_again_and_merged(answered, tmp_path):
  out, results = answered
  again = vs.replay(out, 11)
  assert again.same
  assert again.examples == {"answers": 21}
  other = train("test_outputs:quiz", vs.Runs.independent(7, start=50), tmp_path / "b")
  vs.merge([out, tmp_path / "b"], tmp_path / "m")
  merged = vs.open_results(tmp_path / "m")
  both = np.concatenate([results.answers.values, other.answers.values])
  np.testing.assert_array_equal(merged.answers, both)
  assert merged.answers.attrs["role"] == "class"
  equal(vs.tally(tmp_path / "m"), stats.tally(both, LABELS, 4))


def test_the_progress_line_of_a_class(tmp_path, capsys):
  results = train(quiz, 13, tmp_path / "r", progress=True)
  mean = 100 * results.accuracy.values.mean()
  assert f"13/13 runs, accuracy {mean:.3f} ± " in without_speed(capsys)
  train(quiz, 15, tmp_path / "r", progress=True)
  assert "15/15 runs, accuracy" in without_speed(capsys)


def without_speed(capsys):
  """The last progress line, without runs per second."""
  line = capsys.readouterr().err.splitlines()[-1]
  return ", ".join(part for part in line.split(", ") if "runs/s" not in part)


@pytest.mark.slow
@pytest.mark.optimized
def test_a_task_with_a_class_from_the_command_line(tmp_path, capsys):
  argv = ["train", "test_outputs:quiz", "--out", str(tmp_path / "r"), "--quiet"]
  cli.main([*argv, "--runs", "8", "--until", "mean_accuracy abs 9%"])
  results = vs.open_results(tmp_path / "r")
  assert results.sizes["run"] >= 8
  said = capsys.readouterr().out
  assert f"mean accuracy {results.accuracy.values.mean():.2%}; next: vmap" in said


@pytest.mark.parametrize(
  "changes",
  [{"labels": (LABELS + 1) % 3}, {"mask": np.arange(21) >= 10}],
)
def test_a_folder_keeps_its_labels_and_mask(changes, tmp_path):
  """The other half of the examples, or other right classes: the shapes are the same."""
  first = dataclasses.replace(OF_CLASS, mask=np.arange(21) <= 10)
  train(task(answer, {"answers": first}), 2, tmp_path / "r")
  other = dataclasses.replace(first, **changes)
  same = dataclasses.replace(first, labels=LABELS.copy())
  assert train(task(answer, {"answers": same}), 4, tmp_path / "r").sizes["run"] == 4
  with pytest.raises(
    vs.UserError, match="belongs to another campaign: its data digest is"
  ):
    train(task(answer, {"answers": other}), 6, tmp_path / "r")


# Several classes, axes and masks.


def of_two_sets(data, run, state):
  return {
    "a/answers": answers(key_of(state, "init"), jnp.asarray(LABELS)),
    "b/guesses": answers(key_of(state, "order"), jnp.asarray(PAGE)),
  }


two = task(
  of_two_sets,
  {
    "b/guesses": vs.Output(
      ("page", "line"), "class", labels=PAGE, mask=READ, num_classes=5
    ),
    "a/answers": OF_CLASS,
  },
)


@pytest.mark.slow
@pytest.mark.optimized
def test_classes_in_two_groups(tmp_path, monkeypatch):
  out = tmp_path / "r"
  train("test_outputs:two", 13, out, pairs=True)
  b, a = (vs.open_results(out, test_set) for test_set in ("b", "a"))
  assert vs.open_results(out).identical(b)  # the one declared first
  assert b.num_classes == 5
  for test_set, opened, name, labels in (
    ("a", a, "answers", LABELS),
    ("b", b, "guesses", PAGE[READ]),
  ):
    wrong = opened[name].values != labels
    np.testing.assert_array_equal(opened.accuracy, (~wrong).mean(1))
    np.testing.assert_array_equal(vs.error_matrix(opened), wrong)
    classes = opened[name].attrs["num_classes"]
    expected = stats.tally(opened[name].values, labels, classes, pairs=True)
    with monkeypatch.context() as patch:
      counted_alone(patch)
      equal(vs.tally(out, test_set, pairs=True), expected)
    (summary,) = vs.report(out, test_set=test_set)
    found = summary["statistics"]["mean_accuracy"]["value"]
    assert found == pytest.approx(opened.accuracy.values.mean())
  again = vs.replay(out, 12)
  assert (again.same, again.examples) == (True, {"a": 21, "b": READ.sum()})


@pytest.mark.slow
@pytest.mark.optimized
def test_pages_of_the_group_declared_first(tmp_path):
  out = tmp_path / "r"
  train(two, 5, out)
  report = vs.report(out)
  report.save()
  (summary,) = report
  assert (summary["test_set"], summary["output"]) == ("b", "guesses")
  assert (out / "report" / "report.html").exists()
  vs.compare(out, out).save()
  page = out / "report" / "against_r" / "compare.json"
  assert json.loads(page.read_text())["test_set"] == "b"
  vs.report(out, test_set="a").save()
  assert (out / "report" / "a" / "report.html").exists()
  vs.compare(out, out, test_set="a").save()
  page = out / "report" / "a" / "against_r" / "compare.html"
  assert "--test-set a" in page.read_text()


@pytest.mark.slow
@pytest.mark.optimized
def test_counts_of_a_group_are_of_its_own_classes(tmp_path):
  """Runs that were not counted together are counted by their predictions."""
  train(two, 7, tmp_path / "r")
  for test_set, name, labels, classes in (
    ("a", "answers", LABELS, 4),
    ("b", "guesses", PAGE[READ], 5),
  ):
    some = vs.open_results(tmp_path / "r", test_set).isel(run=slice(3))
    equal(vs.tally(some), stats.tally(some[name].values, labels, classes))


@pytest.mark.slow
@pytest.mark.optimized
def test_axes_of_examples_are_flattened(tmp_path):
  results = train(two, 3, tmp_path / "r")
  pages, lines = np.nonzero(READ)
  assert results.guesses.dims == ("run", "example")
  np.testing.assert_array_equal(results.page, pages)
  np.testing.assert_array_equal(results.line, lines)
  np.testing.assert_array_equal(results.labels, PAGE[READ])
  run = Run(dict.fromkeys(("init", "order"), np.uint32(2)), {})
  state = start((), run)
  expected = np.asarray(answers(key_of(state, "order"), jnp.asarray(PAGE)))
  np.testing.assert_array_equal(results.guesses[2], expected[READ])
  right = (results.guesses == results.labels).mean("example")
  np.testing.assert_allclose(results.accuracy, right)


@pytest.mark.slow
@pytest.mark.optimized
def test_axes_without_a_name_are_called_after_their_array(tmp_path):
  output = vs.Output(role="class", labels=PAGE, mask=READ, num_classes=5)
  train(task(of_two_sets, {"b/guesses": output}), 2, tmp_path / "r")
  results = vs.open_results(tmp_path / "r", "b")
  for axis, places in enumerate(np.nonzero(READ)):
    np.testing.assert_array_equal(results[f"guesses.{axis}"], places)
  assert results.guesses.dims == ("run", "example")


def test_labels_under_a_mask_may_be_anything():
  output = vs.Output(
    ("page", "line"), "class", labels=np.where(READ, PAGE, -1), mask=READ
  )
  assert output.num_classes == 3
  padded = vs.Output(role="class", labels=[0, 1, 9], mask=[True, True, False])
  assert padded.num_classes == 2


# Runs that diverged.


def with_diverged(data, run, state):
  lost = jax.random.bernoulli(key_of(state, "order"), 0.4)
  found = answer(data, run, state)["answers"]
  return {"answers": jnp.where(lost, -1, found), "diverged": lost}


@pytest.mark.slow
@pytest.mark.optimized
def test_runs_that_diverged_are_not_counted(tmp_path, monkeypatch, capsys):
  lossy = task(with_diverged, {"answers": OF_CLASS})
  results = train(lossy, 13, tmp_path / "r", pairs=True, progress=True)
  kept = ~results.diverged.values
  assert 3 < kept.sum() < 13
  line = without_speed(capsys)
  assert f"accuracy {100 * results.accuracy.values[kept].mean():.3f} ±" in line
  np.testing.assert_array_equal(
    vs.error_matrix(results), (results.answers != LABELS)[kept]
  )
  expected = stats.tally(results.answers.values[kept], LABELS, 4, pairs=True)
  (summary,) = vs.report(tmp_path / "r")
  assert (summary["runs"], summary["diverged"]) == (kept.sum(), 13 - kept.sum())
  counted_alone(monkeypatch)
  equal(vs.tally(tmp_path / "r", pairs=True), expected)


def infinite_once(model, params, batch, run):
  value, updates = model.mean_loss(params, batch)
  return jnp.where(batch.step == run["bad"], jnp.inf, value), updates


@pytest.mark.slow
@pytest.mark.optimized
def test_a_loss_that_was_infinite_once_is_counted_and_has_not_diverged(tmp_path):
  recipe = vs.recipe(
    "digits_cnn", model="linear", epochs=1, objective=infinite_once, values={"bad": -1}
  )
  steps = 1000 // 32
  table = vs.Runs.sweep(bad=[-1, 0, 3, steps - 1, steps], seeds=1)
  results = train(recipe, table, tmp_path / "r", keep_params=True)
  assert results.nonfinite_steps.values.tolist() == [0, 1, 1, 1, 0]
  assert not results.diverged.any()
  (leaf, *_) = jax.tree.leaves(vs.load_networks(tmp_path / "r").variables)
  assert np.isfinite(leaf).all()


# Losses and scores.


def lose(data, run, state):
  noise = jax.random.gamma(key_of(state, "init"), 2.0, (5, 4))
  scale = 1 + jax.random.uniform(key_of(state, "order"))
  return {"squared": noise * scale * HARD}


@pytest.mark.slow
@pytest.mark.optimized
def test_losses(tmp_path):
  losses = task(
    lose, {"squared": vs.Output(("page", "line"), "loss", mask=READ, unit="mm²")}
  )
  results = train(losses, 40, tmp_path / "r")
  assert results.squared.dims == ("run", "example")
  assert results.squared.attrs == {"role": "loss", "unit": "mm²"}
  assert results.line.values.tolist() == np.nonzero(READ)[1].tolist()
  (summary,) = vs.report(tmp_path / "r")
  expected = stats.loss_variance(results.squared.values)
  numbers = summary["statistics"]
  assert (summary["role"], summary["examples"]) == ("loss", READ.sum())
  assert numbers["mean_loss"]["value"] == pytest.approx(float(expected.mean))
  assert numbers["distribution_variance"]["value"] == pytest.approx(
    float(expected.distribution)
  )
  hardest = results.squared.values.astype(float).mean(0).argmax()
  assert summary["hard_examples"][0]["example"] == hardest
  rule = Until.parse("squared:mean_loss rel 10%")
  narrowed = until.train_until(
    losses, vs.Runs.independent(400), tmp_path / "u", rule, first=8, progress=False
  )
  assert 8 < narrowed.sizes["run"] < 400


def earn(data, run, state):
  normal = jax.random.normal(key_of(state, "init"))
  return {"earned": 103 + 5 * normal + run["skill"], "place": jnp.zeros(2)}


def test_scores(tmp_path, capsys):
  scored = task(earn, {"earned": vs.Output(role="score", unit="reward")})
  results = train(scored, 40, tmp_path / "r", progress=True)
  earned = results.earned.values.astype(float)
  mean, sd = earned.mean(), earned.std(ddof=1)
  squares = (earned - mean) ** 2
  of_variance = np.sqrt(40 / 39 / 38**2 * ((squares - squares.mean()) ** 2).sum())
  known, sd_known = sd / np.sqrt(40), of_variance / (2 * sd)
  assert without_speed(capsys) == (
    f"40/40 runs, earned {mean:.4g} ± {known:.2g} reward, σ {sd:.4g} ± {sd_known:.2g} "
    "reward"
  )
  assert results.earned.attrs == {
    "role": "score",
    "unit": "reward",
    "higher_is_better": True,
  }
  (summary,) = vs.report(tmp_path / "r")
  assert summary["statistics"]["mean"]["value"] == pytest.approx(mean)
  assert "reward" in summary["summary"]
  assert "%" not in summary["summary"]
  rule = Until.parse("mean abs 1")
  narrowed = until.train_until(
    scored, vs.Runs.independent(400), tmp_path / "u", rule, first=8, progress=False
  )
  assert 8 < narrowed.sizes["run"] < 400
  with pytest.raises(vs.UserError, match="no labels, and so no errors"):
    vs.error_matrix(tmp_path / "r")


@pytest.mark.parametrize("higher", [True, False])
def test_which_score_is_better(higher, tmp_path):
  output = vs.Output(role="score", higher_is_better=higher)
  out = tmp_path / "r"
  # Fewer than six pairs are compared unpaired.
  table = vs.Runs.sweep(skill=[0, 1], seeds=6)
  train(task(earn, {"earned": output}), table, out)
  (found,) = vs.compare(out, where={"skill": 1}, against={"skill": 0})
  assert found.outperforming[0] == float(higher)


# Columns.


def test_every_declared_value_is_a_column_as_it_was_given(answered, tmp_path):
  _, results = answered
  assert results["skill"].dtype == np.float64
  assert results["skill"].isin([0.003]).all()
  assert "skill" in results.coords
  results = train(exam, vs.Runs.sweep(skill=[0.1, 0.3], seeds=2), tmp_path / "r")
  assert results["skill"].values.tolist() == [0.1, 0.3, 0.1, 0.3]
  assert results["skill"].isin([0.3]).sum() == 2


@pytest.mark.slow
@pytest.mark.optimized
def test_every_value_of_a_recipe_is_a_column(tmp_path):
  recipe = vs.recipe("digits_cnn", model="linear", epochs=1, lr=0.003, momentum=0.7)
  results = train(recipe, vs.Runs.sweep(momentum=[0.1, 0.7], seeds=2), tmp_path / "r")
  assert results.lr.isin([0.003]).all()
  assert results.momentum.isin([0.7]).values.tolist() == [False, True] * 2
  assert results.weight_decay.isin([5e-4]).all()
  assert results.lr.dtype == results.momentum.dtype == np.float64


# What is wrong is one line.


def finds(**arrays):
  """A task whose `finish` gives these arrays."""
  return lambda data, run, state: dict(arrays)


CLASSES, FEW = jnp.zeros(3, int), [0, 1, 2]


@pytest.mark.parametrize(
  ("made", "message"),
  [
    (
      lambda: vs.Output(role="klass"),
      "unknown role 'klass': choose one of class, loss",
    ),
    (lambda: vs.Output(role="class"), "role 'class' without labels: give the right"),
    (lambda: vs.Output(role="loss", labels=FEW), "role 'loss' with labels: give the"),
    (
      lambda: vs.Output(role="class", labels=[0.0, 1.0]),
      r"labels are float64 \(2,\): give at least one class, as integers",
    ),
    (
      lambda: vs.Output(role="class", labels=[0, -1]),
      "labels have -1: give classes from 0, and leave examples without one out by mask",
    ),
    (
      lambda: vs.Output(role="class", labels=FEW, num_classes=2),
      "num_classes is 2: .*at least 3",
    ),
    (
      lambda: vs.Output(role="class", labels=FEW, mask=[0, 1, 1]),
      "mask: give a bool for each example of a class or a loss",
    ),
    (
      lambda: vs.Output(role="class", labels=FEW, mask=[True]),
      r"mask of shape \(1,\) with labels of \(3,\): give a bool for each label",
    ),
    (lambda: task(answer, ["answers"]), r"outputs is \['answers'\]: give a vs.Output"),
    (
      lambda: task(answer, {"answers": "class"}),
      "outputs has 'class' for 'answers': give a vs.Output",
    ),
    (
      lambda: task(answer, {"answers": OF_CLASS}, dims={"answers": ("question",)}),
      "'answers' is in dims and in outputs: give dims in its Output",
    ),
  ],
)
def test_a_wrong_declaration_is_one_line(made, message):
  with pytest.raises(vs.UserError, match=message):
    made()


SCORE, LOSS = vs.Output(role="score"), vs.Output(role="loss")
OF_THREE = vs.Output(("x",), "class", labels=FEW)


@pytest.mark.parametrize(
  ("arrays", "outputs", "message"),
  [
    (
      {"earned": jnp.zeros(3)},
      {"earned": SCORE},
      r"gives 'earned' of shape \(3,\): a score is one number a run",
    ),
    (
      {"loss": jnp.zeros(())},
      {"loss": LOSS},
      "gives 'loss', one number: a loss has one for each example",
    ),
    (
      {"guess": jnp.zeros(3)},
      {"guess": OF_THREE},
      "gives 'guess' of float32: give classes as integers",
    ),
    (
      {"empty": jnp.zeros((3, 0))},
      {},
      r"gives 'empty' of shape \(3, 0\), which has no number: leave it out",
    ),
    (
      {"guess": jnp.zeros(4, int)},
      {"guess": OF_THREE},
      r"gives 'guess' of shape \(4,\), with labels of \(3,\): give a class for each",
    ),
    (
      {"loss": jnp.zeros(4)},
      {"loss": vs.Output(role="loss", mask=[True, False])},
      r"gives 'loss': its mask has shape \(2,\), give \(4,\)",
    ),
    (
      {"a": CLASSES, "b": CLASSES},
      {"a": OF_THREE, "b": OF_THREE},
      "a, b are classes: name them 'a/predictions', 'b/predictions', in a group each",
    ),
    (
      {"guess": CLASSES},
      {"guess": OF_THREE, "gess": SCORE},
      "unknown array in outputs or dims 'gess': choose one of guess; did you mean",
    ),
    (
      {"guess": CLASSES, "accuracy": jnp.zeros(())},
      {"guess": OF_THREE},
      "gives 'accuracy', which follows from the class 'guess': leave it out, or",
    ),
    *(
      (
        {"guess": CLASSES, name: jnp.zeros(())},
        {"guess": OF_THREE},
        f"gives '{name}': .*already used",
      )
      for name in ("labels", "votes", "joint_errors")
    ),
    (
      {"a": jnp.zeros(()), "a/b": jnp.zeros(())},
      {},
      "gives 'a': .*already used",
    ),
    *(
      (
        {"a/x": jnp.zeros(2), "x": jnp.zeros(2)},
        {name: vs.Output() for name in order},
        f"gives '{order[1]}': .*already used",
      )
      for order in (("a/x", "x"), ("x", "a/x"))
    ),
    (
      {"guess": CLASSES, "logits": jnp.zeros((4, 5))},
      {"guess": OF_THREE, "logits": vs.Output(("image", "class"), "logits")},
      "gives 'logits' with 5 along 'class', another array has 3: give the axes other",
    ),
    (
      {"guess": CLASSES, "all": jnp.zeros(3)},
      {
        "guess": vs.Output(("x",), "class", labels=FEW, mask=[True, True, False]),
        "all": vs.Output(("x",)),
      },
      "gives 'all' with 3 along 'x', another array has 2: give the axes other names",
    ),
  ],
)
def test_an_array_that_is_not_what_was_declared(arrays, outputs, message, tmp_path):
  with pytest.raises(vs.UserError, match=message):
    train(task(finds(**arrays), outputs), 1, tmp_path / "r", lane_width=1)
  assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
  ("guess", "message"),
  [
    ([0, 3, 1], "classes from 0 to 3 in 'guess', of which there are 3: give 2 at most"),
    ([0, -2, 1], "classes from -2 to 1 in 'guess', of which there are 3: give 2 at"),
  ],
)
def test_a_class_that_there_is_not_is_refused_before_it_is_written(
  guess, message, tmp_path
):
  with pytest.raises(vs.UserError, match=message):
    train(task(finds(guess=jnp.array(guess)), {"guess": OF_THREE}), 2, tmp_path / "r")
  assert not (tmp_path / "r").exists()


def test_classes_beyond_the_labels_that_are_masked_are_none(tmp_path):
  """A network whose outputs are padded to a width that its hardware likes."""
  logits = jnp.where(jnp.arange(8) < 3, 1.0, -jnp.inf) * jnp.ones((3, 1))
  arrays = finds(guess=logits.argmax(-1))
  train(task(arrays, {"guess": OF_THREE}), 2, tmp_path / "r")
  assert (vs.open_results(tmp_path / "r").guess == 0).all()


def test_arrays_of_equal_names_in_groups_of_their_own(tmp_path):
  """What could be confused, and is not: one axis name with two lengths, in two groups."""
  arrays = finds(**{"a/x": jnp.arange(2), "b/x": jnp.arange(3), "c": jnp.arange(4)})
  declared = {name: vs.Output(("axis",)) for name in ("a/x", "b/x")}
  train(task(arrays, declared), 1, tmp_path / "r", lane_width=1)
  for group, size in (("a", 2), ("b", 3)):
    opened = vs.open_results(tmp_path / "r", group)
    assert opened.x.values.tolist() == [[*range(size)]]
    assert opened.c.values.tolist() == [[0, 1, 2, 3]]
