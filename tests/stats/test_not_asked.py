"""Predictions of runs that were not asked for all examples: votes of annotators, folds,
padded arrays. Each statistic is over what was asked, against loops over NumPy arrays.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from vmapseeds import UserError, stats

RNG = np.random.default_rng(0)
CLASSES = 4
LABELS = RNG.integers(0, CLASSES, 30)


def predictions_of(runs, asked):
  """Return predictions with a code for not asked, some of them -1 for none."""
  right = RNG.random((runs, len(LABELS))) < 0.8
  other = RNG.integers(-1, CLASSES, right.shape)
  return np.where(asked, np.where(right, LABELS, other), -2)


ASKED = RNG.random((9, 30)) < 0.6
ASKED[:, 4] = False
ASKED[1:, 5] = False
ASKED[0, 5] = True
SOME = predictions_of(9, ASKED)


def pairs_of(example, predictions=SOME):
  votes = predictions[predictions[:, example] != -2, example]
  return [a != b for a, b in itertools.combinations(votes.tolist(), 2)]


def as_masked(predictions):
  return np.ma.masked_equal(predictions, -2)


def as_floats(predictions):
  return np.where(predictions == -2, np.nan, predictions)


@pytest.mark.parametrize(
  "form",
  [
    np.asarray,
    as_masked,
    as_floats,
    lambda x: pd.DataFrame(as_floats(x)),
    jnp.asarray,
    lambda x: jnp.asarray(as_floats(x)),
    lambda x: x.tolist(),
  ],
)
def test_every_way_to_say_not_asked_is_the_same(form):
  given = form(SOME)
  shares = [np.mean(pairs) for e in range(30) if (pairs := pairs_of(e))]
  found = stats.expected_disagreement(given, CLASSES)
  assert found.value == pytest.approx(np.mean(shares), rel=1e-12)
  tallied = stats.tally(given, LABELS, CLASSES)
  assert tallied.expected_disagreement().value == pytest.approx(found.value, rel=1e-12)
  np.testing.assert_array_equal(tallied.asked, ASKED.sum(0))


def test_votes_of_annotators_are_of_those_who_were_asked():
  """47 to 63 of 300 annotators vote on each image, as on CIFAR-10's test set."""
  rng = np.random.default_rng(1)
  votes = np.full((300, 40), -2)
  labels = rng.integers(0, 10, 40)
  shares = []
  for image in range(40):
    voters = rng.choice(300, rng.integers(47, 64), replace=False)
    chosen = np.where(rng.random(len(voters)) < 0.95, labels[image], 9 - labels[image])
    votes[voters, image] = chosen
    shares.append(np.mean(pairs_of(image, votes)))
  found = stats.expected_disagreement(votes, 10)
  assert found.value == pytest.approx(np.mean(shares), rel=1e-12)
  # As an answer of its own, -1 makes most pairs of annotators disagree or agree on nothing.
  as_answers = stats.expected_disagreement(np.maximum(votes, -1), 10)
  assert abs(as_answers.value - found.value) > 0.2
  fractions = stats.vote_fractions(votes, 10)
  np.testing.assert_allclose(fractions.sum(1), 1)


def test_disagreement_has_the_jackknifes_error():
  def mean(rows):
    shares = [pairs_of(e, SOME[rows]) for e in range(30)]
    return np.mean([np.mean(pairs) for pairs in shares if pairs])

  without = [mean(np.delete(np.arange(9), run)) for run in range(9)]
  se = np.sqrt(8 / 9 * ((without - np.mean(without)) ** 2).sum())
  assert stats.expected_disagreement(SOME, CLASSES).se == pytest.approx(se, rel=1e-10)


@pytest.mark.parametrize("of", [as_masked, as_floats])
def test_error_rates_are_over_what_was_asked(of):
  wrong = of(SOME) != LABELS
  errors = wrong if of is as_masked else np.where(SOME == -2, np.nan, wrong)
  runs = [np.mean(SOME[r, ASKED[r]] != LABELS[ASKED[r]]) for r in range(9)]
  np.testing.assert_allclose(stats.error_rates(errors), runs)
  with np.errstate(all="ignore"):
    examples = ((SOME != LABELS) & ASKED).sum(0) / ASKED.sum(0)
  np.testing.assert_allclose(stats.example_error_rates(errors), examples)
  tallied = stats.tally(SOME, LABELS, CLASSES)
  np.testing.assert_allclose(tallied.example_error_rates(), examples)


def test_churn_is_over_the_examples_that_both_were_asked_for():
  matrix = stats.disagreement_matrix(SOME)
  for a, b in itertools.combinations(range(9), 2):
    both = ASKED[a] & ASKED[b]
    due = np.mean(SOME[a, both] != SOME[b, both])
    assert matrix[a, b] == matrix[b, a] == pytest.approx(due)
    assert stats.churn(SOME[a], SOME[b]) == pytest.approx(due)


def test_the_ensemble_is_of_the_runs_that_were_asked():
  due, right = [], []
  for example in range(30):
    votes = SOME[ASKED[:, example], example]
    counts = np.bincount(votes[votes >= 0], minlength=CLASSES)
    due.append(counts.argmax() if counts.any() else -1)
    if ASKED[:, example].any():
      right.append(due[-1] == LABELS[example])
  np.testing.assert_array_equal(stats.plurality(SOME, CLASSES), due)
  assert stats.ensemble_accuracy(SOME, LABELS, CLASSES) == pytest.approx(np.mean(right))
  assert len(right) == 29


def test_calibration_is_of_the_runs_that_were_asked():
  examples = np.flatnonzero(ASKED.any(0))
  items = []
  for e in examples:
    votes = SOME[ASKED[:, e], e]
    for k in range(CLASSES):
      items.append((np.sum(votes == k), len(votes), LABELS[e] == k))
  votes, asked, right = np.array(items).T
  place = np.minimum(10 * votes // asked, 9)
  due = 0.0
  for b in range(10):
    inside = place == b
    due += abs((right - votes / asked)[inside].sum()) / len(examples)
  assert stats.cace(SOME, LABELS, CLASSES) == pytest.approx(due)
  curve = stats.calibration_curve(SOME, LABELS, CLASSES)
  np.testing.assert_array_equal(curve.items, np.bincount(place, minlength=10))
  for b in range(10):
    if (place == b).any():
      assert curve.accuracy[b] == pytest.approx(right[place == b].mean())
      assert curve.confidence[b] == pytest.approx((votes / asked)[place == b].mean())
  band = stats.calibration_band(SOME, LABELS, CLASSES, key=jax.random.key(0))
  assert np.nanmax(band.low - curve.accuracy) <= 0


def test_equally_many_of_all_runs_are_a_table_of_so_many_runs():
  """Where each example was held out by three runs, as by three seeds of folds, votes are
  those of three runs on all examples.
  """
  whole = predictions_of(3, np.ones((3, 30), bool))
  folds = np.full((9, 30), -2)
  fold = RNG.integers(0, 3, 30)
  for seed, f in itertools.product(range(3), range(3)):
    folds[3 * seed + f, fold == f] = whole[seed, fold == f]
  for statistic in (
    stats.ensemble_accuracy,
    stats.cace,
    stats.ece,
    lambda *args: stats.gde_gap(*args).value,
    lambda p, y, k: stats.expected_disagreement(p, k).value,
    lambda p, y, k: stats.expected_disagreement(p, k, self_pairs=True).value,
  ):
    found, due = (statistic(p, LABELS, CLASSES) for p in (folds, whole))
    assert found == pytest.approx(due, rel=1e-12)


def test_tallies_of_blocks_add_up():
  whole = predictions_of(3, np.ones((3, 30), bool))
  both = stats.tally(np.concatenate([whole, SOME]), LABELS, CLASSES)
  for tallied in (
    stats.tally_blocks([whole, SOME[:4], SOME[4:]], LABELS, CLASSES),
    stats.tally(whole, LABELS, CLASSES) + stats.tally(SOME, LABELS, CLASSES),
    stats.Tallies.from_arrays(both.to_arrays()),
  ):
    np.testing.assert_array_equal(tallied.asked, 3 + ASKED.sum(0))
    np.testing.assert_array_equal(tallied.votes, both.votes)
    np.testing.assert_array_equal(tallied.half_errors, both.half_errors)
  assert both.half_errors[:2].T @ [1, 1] @ both.half_errors[2] == (
    (whole != LABELS).sum() + ((SOME != LABELS) & ASKED).sum()
  )


@pytest.mark.parametrize(
  ("call", "text"),
  [
    (
      lambda: stats.tally(SOME, LABELS, CLASSES).distribution_variance(),
      "runs were asked for different examples: .* give those that all runs",
    ),
    (
      lambda: stats.tally(SOME, LABELS, CLASSES).error_rates(),
      "do not say how many each was asked for: take vs.error_matrix",
    ),
    (
      lambda: stats.tally(SOME, LABELS, CLASSES, pairs=True).covariance(),
      "runs were asked for different examples",
    ),
    (
      lambda: stats.test_set_variance(as_masked(SOME) != LABELS),
      "errors has masked entries",
    ),
  ],
)
def test_mistakes(call, text):
  with pytest.raises(UserError, match=text):
    call()
