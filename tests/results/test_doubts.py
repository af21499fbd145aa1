"""UserErrors that leave results which look sound: each has its line, and sound results
have none.
"""

import itertools

import numpy as np
import pytest
import test_report
import test_roles
import xarray as xr

import vmapseeds as vs
from vmapseeds import cli
from vmapseeds.data.dataset import count_seen, find_training_twins
from vmapseeds.reports.summaries import summarize
from vmapseeds.results import doubts
from vmapseeds.results.doubts import doubts_of_runs, doubts_of_votes


def campaign(runs, n, classes, accuracy, seed=0):
  """Predictions of runs that agree as trained networks do, and the labels."""
  rng = np.random.default_rng(seed)
  labels = rng.integers(0, classes, n)
  rates = rng.beta(0.3 * (1 - accuracy), 0.3 * accuracy, n)
  wrong = rng.random((runs, n)) < rates
  others = (labels + 1 + rng.integers(0, classes - 1, n)) % classes
  return np.where(wrong, others, labels), labels


def said(predictions, labels, classes):
  return [*doubts_of_votes(vs.stats.tally(predictions, labels, classes))]


@pytest.mark.slow
@pytest.mark.parametrize("runs", [1, 2, 16])
def test_sound_accuracies_are_no_doubt(runs):
  sizes = itertools.product((2, 3, 10, 100), (1, 2, 20, 360), (0.65, 0.75, 0.95))
  for seed, (classes, n, accuracy) in enumerate(sizes):
    assert said(*campaign(runs, n, classes, accuracy, seed), classes) == []
  assert said(np.zeros((runs, 0), int), [], 3) == []
  assert said(np.zeros((0, 40), int), [1] * 40, 3) == []


@pytest.mark.parametrize("sensitivity", [0.3, 0.97])
def test_a_test_set_of_one_class_is_no_doubt(sensitivity):
  """All orders of equal labels are one: the accuracy, here sensitivity, is no chance."""
  right = np.random.default_rng(0).random((5, 2000)) < sensitivity
  assert said(right.astype(int), np.ones(2000, int), 2) == []
  # Of two classes, the same predictions beside shuffled labels are doubted.
  labels = np.random.default_rng(1).integers(0, 2, 2000)
  assert len(said(right.astype(int), labels, 2)) == 1


@pytest.mark.parametrize("runs", [1, 2, 16])
@pytest.mark.parametrize("classes", [10, 100])
def test_accuracies_of_chance_say_what_to_look_at(runs, classes):
  predictions, labels = campaign(runs, 1000, classes, 0.9)
  rng = np.random.default_rng(1)
  wrong = {
    "in the order of the examples": (predictions, rng.permutation(labels), classes),
    "with the labels of the next examples": (predictions, np.roll(labels, 1), classes),
    "with the labels of the examples before": (
      predictions,
      np.roll(labels, -1),
      classes,
    ),
    "with predictions less 1": (predictions + 1, labels, classes + 1),
    "with predictions plus 1": (predictions, labels + 1, classes + 1),
    "predictions are class 3": (np.full_like(predictions, 3), labels, classes),
    "whether the inputs": (rng.integers(0, classes, (runs, 1000)), labels, classes),
  }
  for text, given in wrong.items():
    (line,) = said(*given)
    of_one = text in ("in the order of the examples", "whether the inputs")
    assert ("the order of the labels" if runs == 1 and of_one else text) in line
    mean = (given[0] == given[1]).mean()
    assert line.startswith(f"Mean accuracy {mean:.2%} is no better than chance, ")


@pytest.mark.slow
def test_chance_and_its_variance_are_those_of_shuffled_labels(monkeypatch):
  """Against drawing orders of the labels: the two limits of the test are where they
  should be.
  """
  rng = np.random.default_rng(0)
  labels = rng.choice(3, 60, p=[0.6, 0.3, 0.1])
  predictions = rng.choice(4, (5, 60), p=[0.3, 0.3, 0.3, 0.1]) - 1
  predictions[1:4] = predictions[0]
  orders = [rng.permutation(labels) for _ in range(20000)]
  drawn = np.array([(predictions == order).mean() for order in orders])
  mean, sd = drawn.mean(), drawn.std()
  monkeypatch.setattr(doubts, "NEAR", 10.0)  # only the first limit is left
  accuracies = {}
  for order, accuracy in zip(orders[:2000], drawn, strict=False):
    accuracies.setdefault(bool(said(predictions, order, 3)), []).append(accuracy)
  assert max(accuracies[True]) < min(accuracies[False])
  limit = (max(accuracies[True]) + min(accuracies[False])) / 2
  assert limit == pytest.approx(mean + 2 * sd, abs=0.1 * sd)


@pytest.mark.slow
def test_a_stored_campaign_and_imports_say_it_in_a_line(tmp_path, capsys):
  predictions, labels = campaign(8, 500, 10, 0.95)
  shuffled = np.random.default_rng(1).permutation(labels)
  np.save(tmp_path / "p.npy", predictions)
  for name, given in {"sound": labels, "shuffled": shuffled}.items():
    np.save(tmp_path / "y.npy", given)
    out = str(tmp_path / name)
    argv = ["--predictions", str(tmp_path / "p.npy"), "--labels"]
    cli.main(["import", *argv, str(tmp_path / "y.npy"), "--out", out])
    notes = [x for x in capsys.readouterr().err.splitlines() if x.startswith("note:")]
    found = summarize(vs.open_results(out))["warnings"]
    doubt = [line for line in found if "no better than chance" in line]
    assert [f"note: {line}" for line in doubt] == notes
    assert len(notes) == (name == "shuffled")


@pytest.mark.slow
def test_no_better_than_chance_is_no_doubt_without_training():
  results = test_report.dataset(8, 400, 10)
  shuffled = results.assign(labels=results.labels[::-1].drop_attrs())
  wrong = (shuffled.predictions != shuffled.labels).values.mean(1)
  shuffled = shuffled.assign(accuracy=("run", 1 - wrong))
  of = vs.recipe("digits_cnn", width=0.5)
  lines = {}
  for name, recipe in {
    "sound": of,
    "idle": of.replace(epochs=0),
  }.items():
    given = shuffled.assign_attrs(recipe=recipe.to_json())
    lines[name] = [x for x in doubts.find_doubts(given) if "no better than chance" in x]
    found = [x for x in summarize(given)["warnings"] if "no better than chance" in x]
    assert found == lines[name]
  assert {name: len(found) for name, found in lines.items()} == {
    "sound": 1,
    "idle": 0,
  }


def test_seeds_that_change_nothing():
  losses = np.tile(test_roles.LOSSES[:1], (4, 1))
  equal = test_roles.dataset(nats=(losses, test_roles.LOSS))
  (line,) = doubts_of_runs(equal)
  assert line.startswith("All 4 runs are equal although the seeds of seed_init differ")
  assert [*doubts_of_runs(equal.assign_coords(seed_init=equal.seed_init * 0))] == []
  assert [*doubts_of_runs(equal.isel(run=[0]))] == []
  losses[3, 49] += 1e-6
  assert [*doubts_of_runs(test_roles.dataset(nats=(losses, test_roles.LOSS)))] == []
  whole = np.ones((4, 50), np.float32)  # may be a bound that all runs reach
  assert [*doubts_of_runs(test_roles.dataset(nats=(whole, test_roles.LOSS)))] == []


@pytest.mark.parametrize(("wrong", "lines"), [(0, 0), (19, 0), (20, 1)])
def test_equal_predictions_tell_of_seeds_if_many_are_wrong(wrong, lines):
  results = test_report.dataset(3, 200)
  predictions = np.tile(results.labels.values, (3, 1))
  predictions[:, :wrong] = (predictions[:, :wrong] + 1) % 3
  equal = results.copy()
  equal["predictions"] = results.predictions.copy(data=predictions.astype(np.int8))
  equal["accuracy"] = "run", np.full(3, 1 - wrong / 200)
  found = [*doubts_of_runs(equal)]
  assert len(found) == lines
  assert all("the seeds of init, order differ" in line for line in found)
  assert [*doubts_of_runs(results)] == []


def test_outputs_that_sum_to_1(tmp_path, capsys):
  rng = np.random.default_rng(0)
  logits = rng.standard_normal((3, 40, 5)).astype(np.float32)
  shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
  labels = logits.mean(0).argmax(1)
  for name, given in {"l": logits, "p": shares}.items():
    vs.import_runs(tmp_path / name, logits=given, labels=labels, keep_logits=True)
    told = "logits are probabilities, they sum to 1" in capsys.readouterr().err
    assert told == (name == "p")
  about = {"role": "logits"}
  results = test_report.dataset(3, 40, 5)
  for given, count in ((logits, 0), (shares, 1)):
    of = xr.Variable(("run", "example", "class"), given, about)
    lines = [*doubts_of_runs(results.assign(logits=of))]
    assert len([x for x in lines if "leave softmax out of the network" in x]) == count
  own = vs.recipe("digits_cnn", loss=test_sound_accuracies_are_no_doubt)
  results = results.assign(logits=of).assign_attrs(recipe=own.to_json())
  assert [*doubts_of_runs(results)] == []


def images(n, seed):
  rng = np.random.default_rng(seed)
  return rng.integers(0, 256, (n, 4, 4, 1)).astype(np.uint8), np.arange(n) % 2


def test_test_examples_in_the_training_set():
  train, other = images(500, 0), images(300, 1)

  def found(train=train, **tests):
    twins = find_training_twins(vs.Dataset(train=train, tests=tests))
    for name, places in twins.items():
      there = places >= 0
      np.testing.assert_array_equal(
        train[0][places[there]], np.asarray(tests[name][0])[there]
      )
    return {name: count_seen(places, None) for name, places in twins.items()}

  some = np.concatenate([other[0][:280], train[0][:20]]), other[1]
  fewer = np.concatenate([other[0][:281], train[0][:19]]), other[1]
  many = images(2001, 2)
  many = np.concatenate([many[0][:1981], train[0][:20]]), many[1]
  assert found(other=other, some=some, fewer=fewer, many=many) == {"some": 20}
  assert found(test=train, train=train) == {"test": 500}
  assert found(test=tuple(x[:1] for x in train)) == {}
  # Inputs of few values repeat within the training set as well.
  bits = [
    (images(400, seed)[0][:, :1, :3] // 128, np.arange(400) % 2) for seed in (3, 4)
  ]
  assert found(bits[0], test=bits[1]) == {}
  # Labels and the memory's layout do not count.
  turned = np.asfortranarray(train[0][::-1]), 1 - train[1]
  assert found(test=turned) == {"test": 500}


@pytest.mark.slow
def test_training_says_which_test_examples_it_has(tmp_path, capsys):
  train, other = images(64, 0), images(64, 1)
  of = dict(model="linear", epochs=1, batch_size=32, lr=0.1, augment="")
  for name, test in {"same": train, "other": other}.items():
    data = vs.Dataset(train=train, test=test)
    recipe = vs.recipe("digits_cnn", dataset=data, **of)
    vs.train(recipe, 2, tmp_path / name)
    told = "note: 64 of the 64 examples of test are in the training set too" in (
      capsys.readouterr().err
    )
    assert told == (name == "same")
