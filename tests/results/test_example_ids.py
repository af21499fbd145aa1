"""Ids of examples and names of classes: what belongs together is found by these, and not
by its place.
"""

import numpy as np
import pandas as pd
import pytest

import vmapseeds as vs
from vmapseeds import cli

RNG = np.random.default_rng(0)
N, RUNS = 40, 8
LABELS = np.repeat([0, 1], N // 2)
IDS = np.array([f"image {number:02}" for number in range(N)])
PREDICTIONS = np.where(RNG.random((RUNS, N)) < RNG.beta(2, 1, N), LABELS, 1 - LABELS)
# The same labels in the same places, of other examples.
ORDER = np.concatenate([RNG.permutation(N // 2), N // 2 + RNG.permutation(N // 2)])
HOW = dict(values={"seed": range(RUNS)}, progress=False)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
  a, b, without = (tmp_path_factory.mktemp("ids") / name for name in "abc")
  vs.import_runs(a, predictions=PREDICTIONS, labels=LABELS, example_ids=IDS, **HOW)
  shuffled = dict(labels=LABELS[ORDER], example_ids=IDS[ORDER])
  vs.import_runs(b, predictions=PREDICTIONS[:, ORDER], **shuffled, **HOW)
  vs.import_runs(without, predictions=PREDICTIONS[:, ORDER], labels=LABELS, **HOW)
  return a, b, without


def test_ids_are_shown_in_place_of_numbers(folders):
  assert vs.open_results(folders[0]).example_id.values.tolist() == IDS.tolist()
  table = vs.example_table(folders[0]).table
  assert table.example_id.tolist() == IDS.tolist()


def test_examples_of_two_folders_are_matched_by_id(folders):
  """The same networks on the same examples in another order: the difference on other
  examples is 0 to 0. By place it is not.
  """
  np.testing.assert_array_equal(LABELS, LABELS[ORDER])
  elsewhere = vs.compare(folders[0], folders[1]).elsewhere
  assert (elsewhere.low, elsewhere.high) == (0, 0)
  by_place = vs.compare(folders[0], folders[2]).elsewhere
  assert by_place.high - by_place.low > 0.01


def test_other_ids_are_other_examples(folders, tmp_path):
  ids = [*IDS[:-1], "another"]
  out = tmp_path / "a"
  vs.import_runs(out, predictions=PREDICTIONS, labels=LABELS, example_ids=ids, **HOW)
  with pytest.raises(
    vs.UserError, match=r"different examples, by their ids, such as another"
  ):
    vs.compare(folders[0], out)


@pytest.mark.parametrize("renamed", [False, True])
def test_classes_of_two_folders_are_matched_by_name(renamed, tmp_path):
  labels = np.arange(N) % 2
  cats = dict(labels=labels, class_names=["cat", "dog"])
  vs.import_runs(tmp_path / "a", predictions=PREDICTIONS, **cats, **HOW)
  number = np.array([1, 0]) if renamed else np.array([0, 1])
  dogs = dict(labels=number[labels], class_names=["dog", "cat"])
  predictions = number[PREDICTIONS]
  vs.import_runs(tmp_path / "b", predictions=predictions, **dogs, **HOW)
  if renamed:
    found = vs.compare(tmp_path / "a", tmp_path / "b")
    assert (found.elsewhere.low, found.elsewhere.high) == (0, 0)
  else:
    with pytest.raises(vs.UserError, match="were tested on different examples"):
      vs.compare(tmp_path / "a", tmp_path / "b")
    with pytest.raises(vs.UserError, match="its classes are dog, cat, there cat, dog"):
      vs.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "c", progress=False)


def test_frames_are_read_by_their_ids(folders, tmp_path):
  frame = pd.DataFrame(PREDICTIONS[:, ORDER], columns=IDS[ORDER])
  labels = pd.Series(LABELS, index=IDS)
  results = vs.import_runs(tmp_path / "a", predictions=frame, labels=labels, **HOW)
  np.testing.assert_array_equal(results.predictions, PREDICTIONS)
  assert results.example_id.values.tolist() == IDS.tolist()
  recorder = vs.Recorder(tmp_path / "b", labels=LABELS, example_ids=IDS)
  recorder.add(frame, seed=range(RUNS))
  recorded = vs.open_results(tmp_path / "b")
  np.testing.assert_array_equal(recorded.predictions, PREDICTIONS)


@pytest.mark.parametrize("suffix", ["txt", "csv", "npy"])
def test_ids_of_a_file(suffix, tmp_path, capsys):
  file = tmp_path / f"ids.{suffix}"
  if suffix == "npy":
    np.save(file, IDS)
  else:
    above = "patient\n" if suffix == "csv" else ""
    file.write_text(above + "\n".join(IDS) + "\n")
  np.save(tmp_path / "p.npy", PREDICTIONS)
  np.save(tmp_path / "y.npy", LABELS)
  names = ["--predictions", "p.npy", "--labels", "y.npy", "--out", "out"]
  words = [str(tmp_path / word) if "-" not in word else word for word in names]
  cli.main(["import", *words, "--example-ids", str(file)])
  stored = vs.open_results(tmp_path / "out").example_id.values.tolist()
  assert stored == IDS.tolist()
  cli.main(["examples", str(tmp_path / "out"), "--most", "hard", "--n", "3"])
  assert capsys.readouterr().out.count("image ") == 3


@pytest.mark.parametrize(
  ("ids", "message"),
  [
    (IDS[1:], "example ids are 39 of 40 examples: give one for each"),
    ([*IDS[:-1], "image 03"], "2 examples have the id 'image 03': give each its own"),
    ({"shift": IDS}, "unknown test set with example ids"),
  ],
)
def test_mistakes(ids, message, tmp_path):
  with pytest.raises(vs.UserError, match=message):
    vs.Recorder(tmp_path / "a", labels=LABELS, example_ids=ids)


def test_a_folder_keeps_its_ids(folders):
  with pytest.raises(vs.UserError, match="ids of test are in another order than there"):
    vs.Recorder(folders[0], labels=LABELS, example_ids=IDS[ORDER])
  frame = pd.DataFrame(PREDICTIONS[:1], columns=[*IDS[:-1], "another"])
  with pytest.raises(vs.UserError, match="are not the ids of the examples, such as"):
    vs.Recorder(folders[0]).add(frame, seed=99)
