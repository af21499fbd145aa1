"""Data sets of frames, names of classes and ids: against pandas and arrays made by hand."""

import flax.linen as nn
import numpy as np
import pandas as pd
import pytest

import vmapseeds as vs
from vmapseeds import cli

HOW = dict(progress=False, lane_width=2, lowering="sequential")
RNG = np.random.default_rng(0)
N = 40
FRAME = pd.DataFrame(
  {
    "age": RNG.integers(20, 80, N),
    "dose": RNG.normal(size=N),
    "treated": RNG.random(N) < 0.5,
    "outcome": RNG.choice(["well", "ill"], N),
  },
  index=[f"patient {i:02}" for i in range(N)],
)
X, Y = FRAME.drop(columns="outcome"), FRAME["outcome"]
TRAIN, TEST = slice(0, 30), slice(30, None)
DATA = dict(train=(X[TRAIN], Y[TRAIN]), test=(X[TEST], Y[TEST]))


def test_frames_are_arrays_and_names_are_classes():
  data = vs.Dataset(**DATA)
  assert data.class_names == ("ill", "well")
  assert data.num_classes == 2
  for part, rows in ((data.train, TRAIN), (data.tests["test"], TEST)):
    due = np.stack([X[name][rows].astype(float) for name in X], axis=1)
    np.testing.assert_array_equal(part.inputs, due.astype(np.float32))
    np.testing.assert_array_equal(part.targets, (Y[rows] == "well").astype(int))
    assert part.ids.tolist() == FRAME.index[rows].tolist()


def test_the_order_of_classes_may_be_chosen():
  names = ["well", "ill"]
  chosen = vs.Dataset(**DATA, class_names=names)
  category = Y.astype(pd.CategoricalDtype(["well", "ill"]))
  of_categories = vs.Dataset(
    train=(X[TRAIN], category[TRAIN]), test=(X[TEST], category[TEST])
  )
  for data in (chosen, of_categories):
    assert [*data.class_names] == names
    np.testing.assert_array_equal(data.train.targets, Y[TRAIN] == "ill")


@pytest.mark.parametrize(
  "targets",
  [
    Y.to_numpy() == "well",
    (Y == "well"),
    (Y == "well").astype(int),
    (Y == "well").astype("category").cat.codes,
    (Y == "well").astype(int).astype("category"),
    (Y == "well").astype("Int64"),
    (Y == "well").astype(object),
  ],
)
def test_numbers_and_truths_are_classes_without_names(targets):
  data = vs.Dataset(train=(X, targets))
  assert data.class_names is None
  np.testing.assert_array_equal(data.train.targets, (Y == "well").astype(int))
  assert data.train.targets.dtype == np.int32


def test_a_category_that_is_not_trained_on_is_a_class():
  rows = Y.to_numpy() == "well"
  some = Y.astype("category")[rows]
  data = vs.Dataset(train=(X[rows], some), test=(X, Y.astype("category")))
  assert data.num_classes == 2
  assert (data.train.targets == 1).all()


def test_an_index_that_counts_rows_is_no_id():
  frame = X.reset_index(drop=True)
  assert vs.Dataset(train=(frame, Y)).train.ids is None
  shuffled = frame.iloc[::-1]
  assert vs.Dataset(train=(shuffled, Y.to_numpy())).train.ids[0] == "39"
  given = {"train": range(100, 140)}
  assert vs.Dataset(train=(frame, Y), example_ids=given).train.ids[1] == "101"


def test_columns_of_test_frames_are_taken_by_name():
  rows = X[TRAIN], Y[TRAIN]
  backwards = X[TEST][X.columns[::-1]]
  data = vs.Dataset(train=rows, test=(backwards, Y[TEST]), tests={"b": (X, Y)})
  np.testing.assert_array_equal(data.tests["test"].inputs, X[TEST].astype(np.float32))
  np.testing.assert_array_equal(data.tests["b"].inputs, X.astype(np.float32))
  # Frames of any library.
  polars = pytest.importorskip("polars")
  for train in (X[TRAIN], polars.from_pandas(X[TRAIN])):
    test = polars.from_pandas(backwards)
    named = vs.Dataset(train=(train, Y[TRAIN].array), test=(test, Y[TEST].array))
    np.testing.assert_array_equal(
      named.tests["test"].inputs, X[TEST].astype(np.float32)
    )
    with pytest.raises(vs.UserError, match="it has no column 'age'"):
      vs.Dataset(
        train=(train, Y[TRAIN].array),
        test=(test.rename({"age": "years"}), Y[TEST].array),
      )
  # Arrays have no names.
  plain = vs.Dataset(train=rows, test=(X[TEST].to_numpy(float), Y[TEST]))
  np.testing.assert_array_equal(plain.tests["test"].inputs, X[TEST].astype(np.float32))


def test_an_index_of_other_rows_is_refused():
  for wrong in (Y.iloc[::-1], Y.rename(lambda name: f"{name}x")):
    with pytest.raises(
      vs.UserError, match="targets with another index than its inputs"
    ):
      vs.Dataset(train=(X, wrong))
  counted = X.reset_index(drop=True)
  shuffled = counted.sample(frac=1, random_state=0)
  with pytest.raises(vs.UserError, match=r"another index .* in the same order"):
    vs.Dataset(train=(shuffled, Y.reset_index(drop=True)))
  by_name = vs.Dataset(train=(X, Y.iloc[::-1].loc[X.index]))
  np.testing.assert_array_equal(
    by_name.train.targets, vs.Dataset(train=(X, Y)).train.targets
  )


def test_ids_are_whole_and_different():
  paths = [f"/data/of/a/study/{'with/long/names/' * 6}{n:03}.png" for n in range(40)]
  paths[3] += "Ω" * 200
  data = vs.Dataset(train=(X, Y), test=(X, Y), example_ids={"test": paths})
  assert data.tests["test"].ids.tolist() == paths
  for ids in (["a"] * 40, [*paths[:39], paths[0]]):
    with pytest.raises(vs.UserError, match=r"examples have the id '.{,70}': give each"):
      vs.Dataset(train=(X, Y), test=(X, Y), example_ids={"test": ids})
  twice = X.set_axis(["p"] * 40)
  with pytest.raises(vs.UserError, match="40 examples have the id 'p'"):
    vs.Dataset(train=(twice, Y.to_numpy()))


@pytest.mark.parametrize(
  ("given", "message"),
  [
    (
      {"train": (X, Y), "test": (X.rename(columns={"age": "years"}), Y)},
      "columns of 'test' of 'arrays' are not those of 'train', it has no column 'age'",
    ),
    (
      {"train": (X, Y), "test": (X.assign(more=1), Y)},
      "are not those of 'train', it has the column 'more': give the same, in any",
    ),
    (
      {"train": (X.assign(age=X.age.where(X.age > 30)), Y)},
      f"column 'age' of 'train' of 'arrays' lacks {(X.age <= 30).sum()} of 40 values: fill",
    ),
    (
      {"train": (np.where(X.to_numpy(float) > 30, np.nan, X.to_numpy(float)), Y)},
      f"column 0 of 'train' of 'arrays' lacks {(X.age > 30).sum()} of 40 values: fill",
    ),
    (
      {"train": (FRAME, Y)},
      r"column 'outcome' of 'train' .*: make numbers of it, such as by pandas.get_dummies",
    ),
    (
      {"train": (X, Y.where(X.age > 30))},
      f"'train' of 'arrays' has {(X.age <= 30).sum()} of 40 examples without a target",
    ),
    (
      {"train": (X[TRAIN], Y[TRAIN]), "test": (X[TEST], Y[TEST].replace("ill", "?"))},
      "'test' of 'arrays' has the class '.', which is none of ill, well",
    ),
    (
      {"train": (X, (Y == "ill").astype(int)), "test": (X, Y)},
      "targets of 'test' of 'arrays' are names, those of 'train' are none",
    ),
    (
      {"train": (X, Y), "example_ids": {"train": range(3)}},
      "3 example_ids for the 40 examples of 'train' of 'arrays': give one for each",
    ),
    ({"train": (X, Y), "example_ids": [1]}, "example_ids is .1.: give a dict"),
    ({"train": (X, Y), "example_ids": {"tset": [1]}}, "unknown set with example_ids"),
  ],
)
def test_mistakes(given, message):
  with pytest.raises(vs.UserError, match=message):
    vs.Dataset(**given)


def recipe(data, **more):
  given = dict(
    name="clinic",
    dataset=data,
    model=nn.Dense,
    model_args={"features": 2},
    epochs=1,
    batch_size=10,
    lr=0.01,
  )
  return vs.Recipe(**(given | more))


@pytest.mark.parametrize(
  ("targets", "remedy"),
  [
    (np.eye(3)[np.arange(40) % 3], r"one-hot labels: give y.argmax\(1\)"),
    (np.eye(3, dtype=int)[np.arange(40) % 3], r"one-hot labels: give y.argmax\(1\)"),
    (np.arange(40)[:, None] % 2, r"labels \(n, 1\): give y.ravel\(\)"),
    ((np.arange(40)[:, None] % 2).astype(float), r"y.ravel\(\).astype\(int\)"),
    (RNG.normal(size=(40, 3)), "give a loss for them, such as squared_error"),
  ],
)
def test_labels_of_other_shapes_are_told_what_to_do(targets, remedy, tmp_path):
  data = vs.Dataset(train=(X, targets), test=(X, targets))
  with pytest.raises(vs.UserError, match=remedy):
    vs.train(recipe(data), 2, tmp_path / "a", **HOW)


def test_other_targets_are_predicted_as_they_are(tmp_path):
  targets = RNG.normal(size=(N, 2)).astype(np.float32)
  data = vs.Dataset(train=(X[TRAIN], targets[TRAIN]), test=(X[TEST], targets[TEST]))
  vs.train(recipe(data, loss="squared_error"), 2, tmp_path / "a", logits=True, **HOW)
  results = vs.open_results(tmp_path / "a")
  assert results.predictions.shape == (2, 10, 2)
  np.testing.assert_array_equal(results.predictions, results.logits)
  assert results.example_id.values.tolist() == FRAME.index[TEST].tolist()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  folder = tmp_path_factory.mktemp("clinic") / "a"
  vs.train(recipe(vs.Dataset(**DATA)), 6, folder, **HOW)
  return folder


def test_ids_are_shown(trained, capsys, undrawn):
  results = vs.open_results(trained)
  assert results.example_id.values.tolist() == FRAME.index[TEST].tolist()
  table = vs.example_table(trained).dataset
  assert table.to_dataframe().example_id.tolist() == FRAME.index[TEST].tolist()
  report = vs.report(trained)
  report.save()
  (summary,) = report
  hard = summary["hard_examples"]
  assert hard
  for row in hard:
    assert row["id"] == FRAME.index[TEST][row["example"]]
  page = (trained / "report" / "report.html").read_text()
  assert f"{hard[0]['id']}, label" in page
  assert "#" + str(hard[0]["example"]) + ", label" not in page
  capsys.readouterr()
  cli.main(["examples", str(trained), "--most", "hard"])
  assert hard[0]["id"] in capsys.readouterr().out


def test_ids_of_examples_that_are_held_out(tmp_path):
  runs = vs.Runs.independent(2).k_fold(4)
  vs.train(recipe(vs.Dataset(**DATA)), runs, tmp_path / "a", **HOW)
  assert vs.held_out(tmp_path / "a").example_id.values.tolist() == FRAME.index.tolist()
