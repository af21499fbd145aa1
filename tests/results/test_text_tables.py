"""Text tables of predictions, labels and values, as pandas, NumPy and spreadsheets write
them, are read as what was written, or refused with both readings.
"""

import numpy as np
import pandas as pd
import pytest

import vmapseeds as vs
from vmapseeds.results.given import GivenArray, read_values, read_values_file

rng = np.random.default_rng(0)
LABELS = rng.integers(0, 4, 40)
PREDICTIONS = np.where(
  rng.random((6, 40)) < 0.9, LABELS, rng.integers(0, 4, (6, 40))
).astype(np.int64)
FRAME = pd.DataFrame(PREDICTIONS)
NAMED = FRAME.add_prefix("x")
VALUES = pd.DataFrame({"seed": [3, 1, 4, 1, 5, 2**60 + 1], "lr": np.arange(6) / 4})


def predictions_of(file, header=None):
  source = GivenArray("predictions", file, header=header)
  return source[:], source.note


@pytest.mark.parametrize(
  ("frame", "options", "said"),
  [
    (FRAME, {"index": False}, "the first line is names (0, 1, 2, 3, 4, 5, ...)"),
    (FRAME, {}, "(0, 1, 2, 3, 4, 5, ...), without pandas' index"),
    (FRAME, {"index_label": "run"}, "without pandas' index run"),
    (FRAME, {"index": False, "header": False}, "no line of names"),
    (FRAME, {"index": False, "header": False, "encoding": "utf-8-sig"}, "no line of"),
    (FRAME, {"index": False, "encoding": "utf-8-sig"}, "the first line is names (0"),
    (FRAME, {"index": False, "header": False, "encoding": "utf-16"}, "no line of"),
    (FRAME, {"index": False, "sep": ";"}, "separated by semicolons"),
    (FRAME, {"index": False, "sep": "\t"}, "separated by tabs"),
    (FRAME, {"index": False, "sep": "|", "header": False}, "separated by bars"),
    (FRAME, {"index": False, "sep": " ", "header": False}, "separated by spaces"),
    (NAMED, {"index": False}, "names (x0, x1, x2, x3, x4, x5, ...)"),
    (NAMED, {"quoting": 1}, "x5, ...), without pandas' index"),
    (
      FRAME / 1,
      {"index": False, "decimal": ",", "sep": ";"},
      "separated by semicolons",
    ),
    (FRAME.set_axis([5, 0, 9, 2, 4, 1]), {}, "without pandas' index"),
  ],
)
def test_what_pandas_writes_of_predictions(frame, options, said, tmp_path):
  file = tmp_path / "p.csv"
  frame.to_csv(file, **options)
  read, note = predictions_of(file)
  np.testing.assert_array_equal(read, PREDICTIONS, strict=True)
  assert note.startswith(f"{file}: 6 rows × 40 columns, ")
  assert said in note


def test_numbers_of_columns_are_no_run(tmp_path):
  """Read as a run, 0 to 39 would be 40 classes, and a run at chance."""
  FRAME.to_csv(tmp_path / "p.csv", index=False)
  results = vs.import_runs(
    tmp_path / "r", predictions=tmp_path / "p.csv", labels=LABELS, progress=False
  )
  assert results.sizes["run"] == 6
  assert results.attrs["num_classes"] == 4
  expected = (PREDICTIONS == LABELS).mean(1)
  np.testing.assert_array_equal(results.accuracy, expected)


@pytest.mark.parametrize("fmt", ["%.18e", "%d"])
@pytest.mark.parametrize("delimiter", [" ", ",", "\t", ", "])
def test_what_numpy_writes(fmt, delimiter, tmp_path):
  np.savetxt(tmp_path / "p.txt", PREDICTIONS, fmt, delimiter)
  np.savetxt(tmp_path / "y.txt", LABELS, fmt)
  read, note = predictions_of(tmp_path / "p.txt")
  np.testing.assert_array_equal(read, PREDICTIONS, strict=True)
  assert "6 rows × 40 columns" in note
  labels = GivenArray("labels", tmp_path / "y.txt")
  np.testing.assert_array_equal(labels[:], LABELS, strict=True)
  assert labels.note.endswith("y.txt: 40 rows × 1 column, no line of names")


@pytest.mark.parametrize(
  ("series", "options"),
  [
    (pd.Series(LABELS), {}),
    (pd.Series(LABELS, name="y"), {}),
    (pd.Series(LABELS, name="y"), {"index": False}),
    (pd.DataFrame([LABELS]), {"index": False}),
  ],
)
def test_what_pandas_writes_of_labels(series, options, tmp_path):
  series.to_csv(tmp_path / "y.csv", **options)
  read = GivenArray("labels", tmp_path / "y.csv")[:]
  np.testing.assert_array_equal(read, LABELS, strict=True)


@pytest.mark.parametrize(
  ("text", "kind", "rows"),
  [
    ("0\n1\n2\n1\n", "labels", 3),  # a frame of labels without names, or four labels
    ("0,1,2\n1,1,0\n2,1,2\n", "predictions", 2),
  ],
)
def test_numbers_that_may_be_names_are_refused(text, kind, rows, tmp_path):
  file = tmp_path / "t.csv"
  file.write_text(text)
  both = f"names, above {rows} rows of {kind}, or numbers, the first of {rows + 1} rows"
  with pytest.raises(
    vs.UserError, match=f"may be {both}: give a .npy file, or vs.import_runs"
  ):
    GivenArray(kind, file)
  expected = np.loadtxt(file, delimiter=",", dtype=int)
  for header in (True, False):
    read = GivenArray(kind, file, header=header)
    np.testing.assert_array_equal(read[:], expected[header:], strict=True)
    assert ("no line of names" in read.note) != header


def test_a_header_is_not_asked_for_where_the_file_shows_it(tmp_path):
  for header in (True, False):
    NAMED.to_csv(tmp_path / "named.csv", index=False)
    FRAME.to_csv(tmp_path / "plain.csv", index=False, header=False)
    for name in ("named", "plain"):
      read, _ = predictions_of(tmp_path / f"{name}.csv", header)
      np.testing.assert_array_equal(read, PREDICTIONS)


@pytest.mark.parametrize(
  ("frame", "options", "said"),
  [
    (VALUES, {"index": False}, "6 rows with seed, lr"),
    (VALUES, {"index": False, "sep": ";", "decimal": ","}, "separated by semicolons"),
    (VALUES, {"sep": "\t", "decimal": ","}, "separated by tabs, without pandas' index"),
    (VALUES, {}, "without pandas' index"),
    (VALUES, {"index": False, "encoding": "utf-8-sig", "quoting": 1}, "seed, lr"),
    (VALUES.reset_index(), {"index": False}, "without pandas' index index"),
    (VALUES.set_axis(range(3, 9)), {"sep": " "}, "separated by spaces"),
  ],
)
def test_what_pandas_writes_of_values(frame, options, said, tmp_path):
  file = tmp_path / "v.csv"
  frame.to_csv(file, **options)
  assert said in read_values_file(file)[1]
  read = read_values(file, 6)
  assert [*read] == ["seed", "lr"]
  for name, column in read.items():
    np.testing.assert_array_equal(column, VALUES[name], strict=True)


def test_the_index_of_a_frame_that_was_read_again(tmp_path):
  VALUES.to_csv(tmp_path / "v.csv")
  again = pd.read_csv(tmp_path / "v.csv")
  assert [*again] == ["Unnamed: 0", "seed", "lr"]
  assert [*read_values(again, 6)] == ["seed", "lr"]
  again.to_csv(tmp_path / "v.csv", index=False)
  assert [*read_values(tmp_path / "v.csv", 6)] == ["seed", "lr"]


TEXTS = pd.DataFrame(
  {
    "seed": [0, 1, 2],
    "model": ["mlp", "cnn", "mlp"],
    "note": ["a;b", "c", "d, e;f|g"],
    "lr": [0.5, 0.25, 0.125],
  }
)


@pytest.mark.parametrize(
  ("frame", "options"),
  [
    (TEXTS, {}),
    (TEXTS, {"sep": ";", "decimal": ","}),
    (TEXTS, {"sep": "\t"}),
    (TEXTS.drop(columns="note"), {}),  # as many texts as numbers
    (TEXTS.drop(columns="lr").assign(tag=["x y", "z w", "v u"]), {}),  # more texts
    (TEXTS.drop(columns=["seed", "lr"]), {}),  # texts alone
  ],
)
def test_columns_of_texts_do_not_hide_how_columns_are_separated(
  frame, options, tmp_path
):
  frame.to_csv(tmp_path / "v.csv", index=False, **options)
  read, _ = read_values_file(tmp_path / "v.csv")
  pd.testing.assert_frame_equal(read, frame, check_dtype=False)


def test_one_column_with_decimal_commas(tmp_path):
  (tmp_path / "v.csv").write_text("lr\n0,5\n0,001\n")
  np.testing.assert_array_equal(read_values(tmp_path / "v.csv", 2)["lr"], [0.5, 0.001])


CLASSES = np.array(["cat", "None", "a, dog;", "owl"])


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("sep", [",", ";", "\t"])
def test_names_of_classes_in_text_files(header, index, sep, tmp_path):
  options = {"header": header, "index": index and header, "sep": sep}
  frame = pd.DataFrame(CLASSES[PREDICTIONS])
  frame.to_csv(tmp_path / "p.csv", **options)
  pd.Series(CLASSES[LABELS], name="class").to_csv(tmp_path / "y.csv", **options)
  results = vs.import_runs(
    tmp_path / "r",
    predictions=tmp_path / "p.csv",
    labels=tmp_path / "y.csv",
    progress=False,
  )
  expected = (PREDICTIONS == LABELS).mean(1)
  np.testing.assert_array_equal(results.accuracy, expected)


def test_a_first_line_of_names_that_occurs_once(tmp_path):
  """Whether it is a class or the column's name, only its reader knows."""
  (tmp_path / "y.txt").write_text("owl\ncat\ncat\n")
  for header in (True, False):
    read = GivenArray("labels", tmp_path / "y.txt", header=header)
    names = [read.names[number] for number in read[:]]
    assert names == ["owl", "cat", "cat"][header:]


@pytest.mark.parametrize(
  ("text", "said"),
  [
    ("0,0.1\n1,0.2\n", "has no names of columns, its first line is 0, 0.1: begin it"),
    ("seed;n\n0;1,000\n1;2,500\n", "n has 1,000, which may be 1.000 or 1000: write it"),
    ("seed,seed\n0,1\n1,1\n", "has two columns 'seed': give each its own name"),
    ("seed,,lr\n0,1,2\n1,1,2\n", "column 2 of .* has no name: give it one"),
    ("seed,lr\n0,1,2\n1,2,3\n", "is no table: line 2 has 3 cells and the first 2"),
    ("seed,lr\n0,1\n1,\n", "lr is nan at run 1: give finite numbers"),
    ("", "is empty: give a line of names"),
  ],
)
def test_values_that_are_refused(text, said, tmp_path):
  (tmp_path / "v.csv").write_text(text)
  with pytest.raises(vs.UserError, match=said):
    read_values(tmp_path / "v.csv", 2)


@pytest.mark.parametrize(
  ("text", "said"),
  [
    ("a,b\n0,1\n0,cat\n", "has 'cat' in line 3, column 2: give numbers only, or names"),
    ("0,1\n0,1,2\n", "is no table: line 2 has 3 cells and the first 2"),
  ],
)
def test_predictions_that_are_refused(text, said, tmp_path):
  (tmp_path / "p.csv").write_text(text)
  with pytest.raises(vs.UserError, match=said):
    predictions_of(tmp_path / "p.csv")


def test_what_was_understood_is_printed(tmp_path, capsys):
  FRAME.to_csv(tmp_path / "p.csv", index=False)
  pd.Series(LABELS, name="y").to_csv(tmp_path / "y.csv")
  VALUES.to_csv(tmp_path / "v.csv", sep=";", decimal=",")
  given = {n: tmp_path / f"{n[0]}.csv" for n in ("predictions", "values")}
  given["labels"] = tmp_path / "y.csv"
  vs.import_runs(tmp_path / "r", **given)
  lines = [x for x in capsys.readouterr().err.splitlines() if ".csv: " in x]
  assert sorted(line.rpartition("/")[2] for line in lines) == [
    "p.csv: 6 rows × 40 columns, separated by commas, the first line is names (0, 1, 2, "
    "3, 4, 5, ...)",
    "v.csv: 6 rows with seed, lr, separated by semicolons, without pandas' index",
    "y.csv: 40 rows × 1 column, the first line is names (y), without pandas' index",
  ]
  vs.import_runs(tmp_path / "quiet", **given, progress=False)
  assert capsys.readouterr().err == ""
