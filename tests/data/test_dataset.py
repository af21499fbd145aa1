"""Data of a user's own as arrays, and a regression on them: what is stored, and what
needs classes says so.
"""

import flax.linen as nn
import numpy as np
import pytest

import vmapseeds as vs
from vmapseeds.data import Examples
from vmapseeds.results.opening import prediction_blocks

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(24, 3)), np.arange(24) % 4


def test_arrays_become_what_jax_has_and_stay_what_they_are():
  data = vs.Dataset(
    train=(X, Y), tests={"a": (X[:5], Y[:5]), "b": (X.tolist(), Y.tolist())}
  )
  assert (data.train.inputs.dtype, data.train.targets.dtype) == (np.float32, np.int32)
  np.testing.assert_array_equal(data.train.inputs, X.astype(np.float32))
  np.testing.assert_array_equal(data.tests["b"].targets, Y)
  assert (data.num_classes, [*data.tests], len(data.tests["a"])) == (4, ["a", "b"], 5)
  pixels = RNG.integers(0, 256, (24, 5, 5, 1), np.uint8)
  assert vs.Dataset(train=(pixels, Y), test=(pixels, Y)).train.inputs.dtype == np.uint8


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.int64])
def test_what_happens_to_the_arrays_afterwards_changes_nothing(dtype):
  inputs, targets = (10 * X).astype(dtype), Y.astype(np.int32)
  numbers = X[:, 0].astype(np.float32)
  due = inputs.astype(np.float32), targets.copy(), numbers.copy()
  of_classes = vs.Dataset(train=(inputs, targets), test=(inputs[:8], targets[:8]))
  of_numbers = vs.Dataset(train=(inputs, numbers), test=(inputs[:8], numbers[:8]))
  inputs[:], targets[:], numbers[:] = 7, 0, 0
  for data, expected in ((of_classes, due[1]), (of_numbers, due[2])):
    np.testing.assert_array_equal(data.train.inputs, due[0])
    np.testing.assert_array_equal(data.tests["test"].inputs, due[0][:8])
    np.testing.assert_array_equal(data.train.targets, expected)
    np.testing.assert_array_equal(data.tests["test"].targets, expected[:8])


def test_examples_are_copied_and_checked_as_pairs_are():
  inputs, targets = X.astype(np.float32), Y.copy()
  due = inputs.copy()
  given = Examples(inputs, targets)
  data = vs.Dataset(train=given, test=given)
  inputs[:], targets[:] = 7, 0
  np.testing.assert_array_equal(data.train.inputs, due)
  np.testing.assert_array_equal(data.train.targets, Y)
  # Those of a data set are its own already.
  again = vs.Dataset(train=data.train, test=data.tests["test"])
  assert again.train.inputs is data.train.inputs
  inputs[3, 1] = np.nan
  with pytest.raises(vs.UserError, match="column 1 of 'train' of 'arrays' lacks 1"):
    vs.Dataset(train=Examples(inputs, Y), test=data.train)


def test_tables_of_runs_and_labels_of_a_recorder_are_copied(tmp_path):
  rows, folds = np.arange(12), np.arange(24) % 3
  subset = vs.Runs.independent(2).subset(rows)
  grouped = vs.Runs.independent(2).k_fold(3, groups=folds)
  maps = np.array([[0, 1, 1, 0], [1, 0, 0, 1]])
  mapped = vs.Runs.independent(2).with_label_map(maps)
  labels = Y.copy()
  recorder = vs.Recorder(tmp_path / "r", labels=labels, progress=False)
  before = [
    grouped.split_examples(24)["test_examples"],
    mapped.values["label_map"].copy(),
  ]
  rows[:], folds[:], maps[:], labels[:] = 5, 0, 0, 0
  assert subset.training_examples(24)[0].tolist() == [*range(12)]
  np.testing.assert_array_equal(grouped.split_examples(24)["test_examples"], before[0])
  np.testing.assert_array_equal(mapped.values["label_map"], before[1])
  recorder.add(predictions=Y)
  assert vs.open_results(tmp_path / "r").accuracy.values.tolist() == [1]


def test_numbers_that_float32_cannot_tell_apart_are_refused():
  far = 1e8 + X[:, 0]
  with pytest.raises(
    vs.UserError, match=r"targets of 'train' .* vary by .* around 1e.08"
  ):
    vs.Dataset(train=(X, far))
  with pytest.raises(vs.UserError, match="subtract their mean"):
    vs.Dataset(train=(X, np.stack([X[:, 0], far], axis=1)))
  whole = (10**9 + np.arange(24)).astype(np.int64)
  with pytest.raises(vs.UserError, match="subtract their mean"):
    vs.Dataset(train=(X, whole), num_classes=None)
  vs.Dataset(train=(X, 2000 + X[:, 0]))
  with pytest.raises(vs.UserError, match=r"numbers up to 1e.39, .* scale them"):
    vs.Dataset(train=(X * 1e39 / np.abs(X).max(), Y))


@pytest.mark.parametrize(
  ("targets", "given", "classes"),
  [
    (Y, {}, 4),
    (Y, {"num_classes": 7}, 7),
    (Y, {"num_classes": None}, None),
    (Y / 2, {}, None),
    (np.eye(4)[Y], {}, None),
  ],
)
def test_whole_numbers_are_classes(targets, given, classes):
  assert (
    vs.Dataset(train=(X, targets), test=(X, targets), **given).num_classes == classes
  )


@pytest.mark.parametrize(
  ("given", "message"),
  [
    (
      {"train": X, "test": (X, Y)},
      r"'train' of 'arrays' is array.*: give \(inputs, targets\), two arrays",
    ),
    (
      {"train": ([[1, 2], [3]], [0, 1]), "test": (X, Y)},
      r"give \(inputs, targets\), two arrays",
    ),
    (
      {"train": (X, Y), "test": (X, Y), "num_classes": 2**15 + 1},
      "'arrays' has 32769 classes: give at most 32768",
    ),
    (
      {"train": (X, Y), "test": (X, Y), "num_classes": "none"},
      "num_classes is 'none': .*at least 1",
    ),
    (
      {"train": (X, Y), "test": (X, Y), "num_classes": True},
      "num_classes is True: give a whole number",
    ),
    (
      {"train": (X, Y), "test": (X, Y), "num_classes": [4]},
      r"num_classes is \[4\]: give a whole number",
    ),
    (
      {"train": (X, Y), "tests": [(X, Y)]},
      r"tests is \[.*: give a dict, name -> \(inputs, targets\)",
    ),
    (
      {"train": (np.ma.masked_greater(X, 0.5), Y), "test": (X, Y)},
      "'train' of 'arrays' has masked entries: fill them, or",
    ),
    (
      {"train": (X, Y), "test": (X * np.nan, Y)},
      "column 0 of 'test' of 'arrays' lacks 24 of 24 values: fill them from training",
    ),
    (
      {"train": (X, Y / 0.5), "test": (X, np.full(24, np.inf))},
      "'test' of 'arrays' holds NaN or infinite values",
    ),
  ],
)
def test_arrays_that_do_not_fit_are_one_line(given, message):
  with pytest.raises(vs.UserError, match=message):
    vs.Dataset(**given)


@pytest.mark.slow
def test_names_of_classes_are_no_part_of_a_campaign(tmp_path):
  names = ["low", "high", "higher", "highest"]
  sets = {"train": (images := X.reshape(-1, 3, 1, 1), Y), "test": (images, Y)}
  plain, named = (vs.Dataset(**sets, class_names=of) for of in (None, names))
  recipe = vs.recipe("digits_cnn", model="linear", augment="", epochs=1, batch_size=8)
  for dataset, out in ((plain, "plain"), (named, "named"), (named, "plain")):
    vs.train(recipe.replace(dataset=dataset), 2, tmp_path / out, progress=False)
  assert vs.example_table(tmp_path / "named").dataset.attrs["class_names"] == tuple(
    names
  )
  assert "class_names" not in vs.example_table(tmp_path / "plain").dataset.attrs
  with pytest.raises(vs.UserError, match="go from 0 to 3: classes lie in 0 to 1"):
    vs.Dataset(**sets, class_names=["a", "b"])
  with pytest.raises(vs.UserError, match="which has no classes: leave them out"):
    vs.Dataset(train=(X, X), test=(X, X), class_names=["a", "b"], num_classes=None)
  with pytest.raises(vs.UserError, match="where they are none, give a vs"):
    vs.Dataset(train=(X, X), test=(X, X), class_names=["a", "b"])


class Line(nn.Module):
  @nn.compact
  def __call__(self, x):
    return nn.Dense(2)(x)


TARGETS = (X @ RNG.normal(size=(3, 2))).astype(np.float32)
REGRESSION = dict(
  name="line",
  dataset=vs.Dataset(train=(X[:16], TARGETS[:16]), test=(X[16:], TARGETS[16:])),
  model=Line,
  loss="squared_error",
  predict="outputs",
  normalize=False,
  lr=0.1,
  epochs=40,
  batch_size=16,
  momentum=0,
)


@pytest.fixture(scope="module")
def regression(tmp_path_factory):
  out = tmp_path_factory.mktemp("regression") / "r"
  return out, vs.train(
    vs.Recipe(**REGRESSION), 3, out, keep_params=True, progress=False
  )


@pytest.mark.slow
def test_a_regression_is_gradient_descent(regression):
  """Full batches of a linear model: each step is known in closed form."""
  out, results = regression
  assert results.predictions.dims == ("run", "example", "target")
  # Subtracted by name: each entry of a prediction from its own target.
  np.testing.assert_array_equal(
    results.predictions - results.targets, results.predictions.values - TARGETS[16:]
  )
  np.testing.assert_array_equal(results.targets, TARGETS[16:])
  assert {"labels", "accuracy"} & {*results} == set()
  x, y = np.c_[X[:16], np.ones(16)], TARGETS[:16].astype(float)
  best = np.linalg.lstsq(x, y, rcond=None)[0]
  start = vs.Recipe(**REGRESSION).replace(epochs=0)
  begun = vs.train(start, 3, out.parent / "start", keep_params=True, progress=False)
  assert begun.sizes["run"] == 3
  # The error of the weights shrinks by the same matrix in each step: the mean over
  # examples and the two outputs.
  shrinks = np.linalg.matrix_power(np.eye(4) - 0.1 * x.T @ x / 16, 40)
  for run in range(3):
    before, after = (
      vs.load_networks(folder, run).variables["params"]["Dense_0"]
      for folder in (out.parent / "start", out)
    )
    first, last = (np.r_[p["kernel"], p["bias"][None]] for p in (before, after))
    np.testing.assert_allclose(
      last, best + shrinks @ (first - best), rtol=2e-3, atol=2e-5
    )
    np.testing.assert_allclose(
      results.predictions[run], np.c_[X[16:], np.ones(8)] @ last, rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize(
  "call",
  [
    vs.error_matrix,
    vs.tally,
    lambda out: next(prediction_blocks(out)),
  ],
)
def test_what_needs_classes_says_so(regression, call):
  with pytest.raises(
    vs.UserError, match=r"no labels, and so no errors|has the role class, loss"
  ):
    call(regression[0])


def test_a_regression_has_a_report_of_its_losses(regression):
  out, results = regression
  losses = ((results.predictions.values - results.targets.values) ** 2).mean(-1)
  np.testing.assert_allclose(results.losses, losses, rtol=1e-5)
  (summary,) = vs.report(out)
  assert (summary["output"], summary["role"]) == ("losses", "loss")
  assert summary["statistics"]["mean_loss"]["value"] == pytest.approx(
    losses.mean(), rel=1e-5
  )
  assert vs.compare(out, out).verdict != "better"


@pytest.mark.slow
def test_losses_of_each_epoch(tmp_path):
  recipe = vs.Recipe(**REGRESSION).replace(epochs=3, evaluate_every=2)
  results = vs.train(recipe, 2, tmp_path / "r", progress=False)
  assert results.epoch_losses.dims == ("run", "epoch", "example")
  error = (results.epoch_predictions - results.targets) ** 2
  np.testing.assert_allclose(results.epoch_losses, error.mean("target"), rtol=1e-5)
  np.testing.assert_array_equal(results.epoch_losses[:, -1], results.losses)
  assert (results.epoch_losses[:, 0] != results.losses).any()


def test_statistics_take_a_losses_matrix(regression):
  _, results = regression
  losses = ((results.predictions.values - results.targets.values) ** 2).mean(-1)
  assert vs.stats.loss_variance(losses).test_set == pytest.approx(
    losses.mean(1).var(ddof=1), rel=1e-4
  )


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    (
      {"loss": "cross_entropy"},
      r"the targets of arrays are float32 \(16, 2\), no classes, .* give a loss for them, such as squared_error",
    ),
    (
      {
        "loss": "cross_entropy",
        "dataset": vs.Dataset(
          train=(np.eye(16), np.arange(16.0)), test=(np.eye(16), np.arange(16.0))
        ),
      },
      r"float32 \(16,\), no classes, which are whole numbers \(n,\): use .astype\(int\) if",
    ),
    (
      {"stop_at": 1},
      "no classes, which are whole numbers .n,.: leave stop_at out, which is an accuracy",
    ),
    ({"predict": "argmax"}, "no classes, .*: leave predict out, which is of classes"),
    (
      {"loss": lambda outputs, targets: ((outputs - targets) ** 2).mean()},
      r"loss .* gives shape \(\) for a batch of 16: give one number an example",
    ),
    (
      {"loss": lambda outputs, targets: (outputs - targets) ** 2},
      r"loss .* gives shape \(16, 2\) for a batch of 16",
    ),
    (
      {"predict": lambda outputs: outputs.mean()},
      r"predict .* gives shape \(\) for 8 examples: give \(8, ...\)",
    ),
    (
      {"predict": lambda outputs: outputs.no},
      "predict .* raised an error while being traced .AttributeError: .* test_dataset.py line",
    ),
    (
      {"optimizer": lambda run, steps: None},
      "optimizer .* gives NoneType: give an optax.GradientTransformation",
    ),
    (
      {"optimizer": lambda run, steps: run["lr_"]},
      "unknown value of a run 'lr_': choose one of .* did you mean 'lr'",
    ),
    (
      {"optimizer": lambda run: None},
      "optimizer .* raised an error while being traced .TypeError: .* 1 positional argument but 2",
    ),
    (
      {"schedule": lambda run, steps: 0.1},
      "schedule .* gives float: give a function of the step",
    ),
    ({"augment": lambda key, x: x[:2]}, "line raised an error while being traced"),
    (
      {"dataset": "digits", "predict": "argmax"},
      "loss is squared_error, the targets of digits are classes: give cross_entropy, or a vs.Dataset",
    ),
    ({"dataset": "math:pi"}, "dataset math:pi is float: give the name of a vs.Dataset"),
  ],
)
def test_wrong_parts_of_a_recipe_are_one_line(changes, message, tmp_path):
  with pytest.raises(vs.UserError, match=message):
    vs.train(vs.Recipe(**REGRESSION | changes), 2, tmp_path / "r", progress=False)
  assert not (tmp_path / "r").exists()


def test_predictions_of_classes_are_classes(tmp_path):
  data = vs.Dataset(train=(X, Y), test=(X, Y))
  recipe = vs.Recipe(
    name="c",
    dataset=data,
    model=lambda: nn.Dense(4),
    lr=0.1,
    epochs=1,
    batch_size=8,
    predict="outputs",
  )
  with pytest.raises(
    vs.UserError,
    match=r"predict outputs gives float32 \(24, 4\), the targets are classes: give whole numbers \(24,\)",
  ):
    vs.train(recipe, 2, tmp_path / "r", progress=False)
