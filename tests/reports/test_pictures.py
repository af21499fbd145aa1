"""Examples of a report: their inputs, votes and pairs, and what the page's script gets,
against loops over runs and examples.
"""

import base64
import io
import itertools
import json
import re
from collections import Counter

import numpy as np
import pytest
import test_report
import test_roles
from PIL import Image

import vmapseeds as vs
from vmapseeds import cli
from vmapseeds.data import sources
from vmapseeds.errors import UserError
from vmapseeds.reports import example_cards, pictures
from vmapseeds.reports.pictures import ExampleInputs, as_inputs, find_inputs
from vmapseeds.reports.summaries import measure_outputs, summarize

DIGITS = vs.Dataset(
  train=(np.ones((4, 8, 8, 1)), [0, 1, 2, 0]), test=(np.ones((61, 8, 8, 1)), [0] * 61)
)


def digits():
  """Results with the labels of the built-in digits."""
  results = test_report.dataset(runs=6, n=797, classes=10)
  test = sources.load_dataset("digits").tests["test"]
  return results.assign(labels=("example", test.targets)), test.inputs


def decode(packed):
  dtype = {"Uint8Array": "u1", "Uint16Array": "<u2", "Uint32Array": "<u4"}
  kind = dtype.get(packed["type"], "<f4")
  return np.frombuffer(base64.b64decode(packed["bytes"]), kind)


def image_of(address):
  return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.split(",")[1]))))


def test_the_data_of_the_recipe_are_found():
  results, inputs = digits()
  found = find_inputs(None, results, "test")
  np.testing.assert_array_equal(found.values, inputs)
  assert (found.why, found.extremes) == ("", (0, 16))
  shown = find_inputs(None, results.isel(example=slice(50)), "test")
  assert shown.values is None
  assert "there are 797 inputs for 50 examples" in shown.why
  swapped = results.assign(labels=results.labels[::-1].values + 0 * results.labels)
  assert "labels that come with" in find_inputs(None, swapped, "test").why


def test_nothing_is_downloaded_or_imported(tmp_path, monkeypatch):
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  monkeypatch.setattr("vmapseeds.data.tfds_read.prepare", None)
  monkeypatch.setattr("vmapseeds.reports.pictures.import_object", None)
  results = test_report.dataset()
  settings = json.loads(results.attrs["recipe"])
  for dataset, why in (
    ("mnist", f"data set 'mnist' is not in {str(tmp_path)!r}"),
    ("/nowhere.npz", "no such file '/nowhere.npz'"),
    ({"object": "antigravity:fly"}, "give an array or the name"),
    (None, "give an array or the name"),
  ):
    results.attrs["recipe"] = json.dumps(settings | {"dataset": dataset})
    found = find_inputs(None, results, "test")
    assert found.values is None
    assert why in found.why


def test_inputs_that_are_given(tmp_path):
  results, rng = test_report.dataset(), np.random.default_rng(0)
  images = rng.random((61, 5, 6, 3)).astype(np.float32)
  np.save(tmp_path / "a.npy", images)
  labels = results.labels.values
  train = {"x_train": images[:3], "y_train": [0, 1, 2]}
  np.savez(tmp_path / "set.npz", x_test=images, y_test=labels, **train)
  np.savez(tmp_path / "other.npz", x_test=images, y_test=(1 + labels) % 3, **train)
  for given in (
    images,
    np.load(tmp_path / "a.npy", mmap_mode="r"),
    tmp_path / "set.npz",
  ):
    found = find_inputs(given, results, "test")
    np.testing.assert_array_equal(found.values, images)
    assert found.extremes == (images.min(), images.max())
  of_zeros = results.assign(labels=0 * results.labels)
  given = find_inputs("test_pictures:DIGITS", of_zeros, "test")
  assert given.values.shape == (61, 8, 8, 1)
  for wrong, said in (
    (images[:60], "there are 60 inputs for 61 examples: give one for each"),
    (np.float64(1), "there are 0 inputs for 61 examples"),
    (tmp_path / "a.npy", r"images is .*a.npy: give np.load\('.*a.npy'\)"),
    (tmp_path / "other.npz", "labels that come with the inputs are not those"),
    ("test_pictures:digits", "is function: give the name of a vs.Dataset"),
    ("cifar1", "unknown data set 'cifar1'"),
  ):
    with pytest.raises(UserError, match=said):
      find_inputs(wrong, results, "test")


def test_what_is_a_picture():
  grey = np.zeros((3, 28, 20), np.uint8)
  for values, shape in (
    (grey, (3, 28, 20, 1)),
    (grey[..., None], (3, 28, 20, 1)),
    (np.zeros((3, 3, 28, 20)), (3, 28, 20, 3)),  # PyTorch's order
    (np.zeros((3, 28, 20, 4), bool), (3, 28, 20, 4)),
  ):
    found = as_inputs(values)
    assert found.values.shape == shape
    assert found.extremes
  for values in (
    np.zeros((3, 1, 20, 1)),
    np.zeros((3, 28, 20, 7)),
    np.zeros((3, 784)),
    np.array(["a", "b"]),
  ):
    assert as_inputs(values) == ExampleInputs(values)


def test_texts_and_rows():
  rows = as_inputs(np.arange(12.0).reshape(1, 12) / 3)
  assert pictures.text_of(rows, 0) == (
    "0, 0.3333, 0.6667, 1, 1.333, 1.667, 2, 2.333, …"
  )
  texts = as_inputs(np.array(["<b>short", "x" * 300]))
  assert pictures.show_input(texts, 0) == "<code>&lt;b&gt;short</code>"
  assert pictures.text_of(texts, 1) == "x" * 200 + "…"
  assert pictures.text_of(as_inputs(np.array([b"\xff?"])), 0) == "\ufffd?"
  assert pictures.show_input(ExampleInputs(), 0) == ""


@pytest.mark.parametrize("count", [1, 2, 61])
def test_tiles_show_the_pictures(count):
  smooth = np.linspace(0, 1, 16)[:, None, None] * np.ones((1, 16, 3))
  images = np.stack([smooth * (1 + i % 7) / 7 for i in range(61)]) * 3 - 1
  inputs = as_inputs(images)
  chosen = np.random.default_rng(0).permutation(61)[:count].tolist()
  made = pictures.tile_pictures(inputs, chosen)
  whole = image_of(made["address"]).astype(float)
  assert whole.shape == (16 * (1 + (count > 50)), 16 * min(count, 50), 3)
  for n, example in enumerate(chosen):
    y, x = divmod(n, 50)
    tile = whole[16 * y : 16 * y + 16, 16 * x : 16 * x + 16]
    expected = 255 * (images[example] + 1) / 3
    assert np.abs(tile - expected).mean() < 12  # lossy
  (address,) = re.findall('src="([^"]*)"', pictures.show_input(inputs, 5))
  exact = 255 * (images[5] + 1) / 3
  np.testing.assert_allclose(image_of(address), exact, atol=0.51)


def test_large_pictures_are_made_small():
  inputs = as_inputs(np.random.default_rng(0).random((2, 300, 150, 3)))
  assert pictures.tile_pictures(inputs, [0, 1])["height"] == 40
  (address,) = re.findall('src="([^"]*)"', pictures.show_input(inputs, 0))
  assert image_of(address).shape == (96, 48, 3)


def measured(results):
  (runs,) = measure_outputs(results)
  return runs, summarize(results, measured=[runs])


def test_cards_by_hand():
  results = test_report.dataset(runs=30)
  predictions, labels = results.predictions.values, results.labels.values
  runs, summary = measured(results)
  inputs = as_inputs(np.array([f"text {i}" for i in range(61)]))
  found = example_cards.notable_cards(runs, summary, inputs)
  for cards, most in zip(found, ("split", "hard", "mislabelled"), strict=False):
    rows = summary[f"{most}_examples"]
    assert len(cards.cards) == len(rows) > 0
    for card, row in zip(cards.cards, rows, strict=True):
      i = row["example"]
      assert card.title == f"#{i}, label {labels[i]}"
      assert card.inputs == [f"<code>text {i}</code>"]
      votes = Counter(predictions[:, i].tolist())
      assert {v.name: v.share for v in card.votes} == pytest.approx(
        {str(c): n / 30 for c, n in votes.items()}
      )
      assert [v.name for v in card.votes if v.right] in ([], [str(labels[i])])
      assert (
        f"wrong in {100 * (predictions[:, i] != labels[i]).mean():.1f} %" in card.text
      )
  # Of few runs no pair of examples is beyond chance.
  assert example_cards.PAIRS not in [cards.caption for cards in found]


def test_cards_of_pairs_by_hand():
  results = test_report.dataset(runs=30)
  labels = results.labels.values
  # Examples 0 and 1 go wrong together, in every second run.
  wrong = np.arange(30) % 2 == 0
  predictions = np.where(results.predictions.values >= 0, labels, 0)
  for example in (0, 1):
    predictions[wrong, example] = (labels[example] + 1) % 3
  results["predictions"][:] = predictions.astype(np.int8)
  runs, summary = measured(results)
  inputs = as_inputs(np.array([f"text {i}" for i in range(61)]))
  together = example_cards.notable_cards(runs, summary, inputs)[-1]
  assert together.caption == example_cards.PAIRS
  assert len(together.cards) == 1
  errors = predictions != labels
  for card in together.cards:
    i, j = map(int, re.findall(r"#(\d+)", card.title))
    both, rates = (errors[:, i] & errors[:, j]).mean(), errors[:, [i, j]].mean(0)
    assert both > rates.prod()
    assert card.text == (
      f"both wrong in {100 * both:.1f} %, by chance in {100 * rates.prod():.1f} %"
    )
    assert card.inputs == [f"<code>text {k}</code>" for k in (i, j)]


def test_losses_have_cards():
  results = test_roles.dataset(nats=(test_roles.LOSSES, test_roles.LOSS))
  runs, summary = measured(results)
  hard, split = example_cards.notable_cards(
    runs, summary, ExampleInputs(np.arange(50.0))
  )
  means = test_roles.LOSSES.mean(0)
  assert hard.cards[0].title == f"#{means.argmax()}"
  assert hard.cards[0].inputs == [f"<code>{means.argmax()}</code>"]
  assert len(split.cards) == 10
  assert example_cards.explorer_of(runs, ExampleInputs()) == {}


@pytest.mark.parametrize("runs", [2, 3, 300])
def test_the_script_gets_exact_counts(runs):
  results = test_report.dataset(runs=runs, n=61, classes=6)
  results.predictions[0, 3] = -1
  predictions, labels = results.predictions.values, results.labels.values
  errors = predictions != labels
  measures, _ = measured(results)
  data = json.loads(json.dumps(example_cards.explorer_of(measures, ExampleInputs())))
  ids = decode(data["id"])
  assert {*ids} == {i for i in range(61) if errors[:, i].any()}
  assert data["examples"] == len(ids)
  assert data["errors"] == errors.sum()
  np.testing.assert_array_equal(decode(data["label"]), labels[ids])
  np.testing.assert_array_equal(decode(data["wrong"]), errors[:, ids].sum(0))
  agree = vs.example_table(results).dataset.agreement.values[ids]
  np.testing.assert_allclose(decode(data["agree"]), agree, rtol=1e-6)
  classes, votes = (decode(data[n]).reshape(len(ids), 4) for n in ("classes", "votes"))
  for i, of, counts in zip(ids, classes, votes, strict=True):
    every = Counter(c for c in predictions[:, i].tolist() if c >= 0)
    first = sorted(every.items(), key=lambda item: (-item[1], item[0]))[:4]
    assert [
      (c, n) for c, n in zip(of.tolist(), counts.tolist(), strict=True) if n
    ] == first
  confused = Counter(
    (labels[i], c)
    for i in range(61)
    for c in predictions[:, i].tolist()
    if c not in (-1, labels[i])
  )
  shown = {(a, b): n for a, b, n in data["confusions"]}
  assert shown.items() <= confused.items()
  assert sorted(shown.values()) == sorted(confused.values())[-24:]
  bins = data["bins"]
  edges, accuracy = bins["edges"], 1 - errors.mean(1)
  wrong = decode(bins["wrong"]).reshape(len(bins["runs"]), len(ids))
  assert len(edges) == len(wrong) + 1 <= 25
  for b, (low, high) in enumerate(itertools.pairwise(edges)):
    within = (accuracy > low) & (accuracy < high)
    assert bins["runs"][b] == within.sum()
    np.testing.assert_array_equal(wrong[b], errors[within][:, ids].sum(0))
  order = np.argsort(accuracy, kind="stable")
  assert decode(bins["number"]).tolist() == order.tolist()
  np.testing.assert_allclose(decode(bins["accuracy"]), accuracy[order], rtol=1e-6)
  assert sum(bins["runs"]) == runs


def test_what_cannot_be_explored():
  right = test_report.dataset(runs=3)
  right["predictions"][:] = right.labels.values
  assert example_cards.explorer_of(measured(right)[0], ExampleInputs()) == {}
  one = test_report.dataset(runs=1)
  assert example_cards.explorer_of(measured(one)[0], ExampleInputs()) == {}


@pytest.mark.slow
def test_the_report_shows_pictures(tmp_path):
  results = test_report.dataset(runs=5)
  out = tmp_path / "r"
  labels, predictions = results.labels.values, results.predictions.values
  vs.import_runs(out, predictions=predictions, labels=labels, progress=False)
  cli.main(["report", str(out)])
  page = out / "report" / "report.html"
  said = "Inputs of these examples are not at hand: give an array or the name of a data"
  assert said in page.read_text()
  assert 'class="picture" src' not in page.read_text()
  vs.report(out, images=np.random.default_rng(0).random((61, 8, 8))).save()
  shown = page.read_text()
  assert said not in shown
  cards = sum(
    len(c)
    for n, c in json.loads(page.with_suffix(".json").read_text()).items()
    if n.endswith("_examples")
  )
  assert shown.count('class="picture" src="data:image/png') >= cards > 0
  with pytest.raises(vs.UserError, match=r"give np\.load"):
    vs.report(out, images=tmp_path / "y.npy")
