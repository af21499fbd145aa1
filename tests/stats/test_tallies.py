"""Tallies: the counts against loops, the statistics against those of all runs at once,
bit for bit.
"""

import collections
import dataclasses
import doctest
import inspect
import itertools
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zarr

from vmapseeds import stats
from vmapseeds.errors import UserError
from vmapseeds.stats import Tallies, counting, counts, tallies, tally, tally_blocks
from vmapseeds.stats.counting import votes_of

EXAMPLES, CLASSES = 11, 3
FIELDS = [field.name for field in dataclasses.fields(Tallies)]
# Of runs that were asked for all examples.
COUNTED = [name for name in FIELDS if name != "asked"]
arrays = pytest.mark.parametrize("array", [np.asarray, jnp.asarray])


def some_predictions(runs, examples=EXAMPLES, classes=CLASSES, seed=0, dtype=np.int8):
  """Predictions and labels: runs and examples of different error rates, some
  predictions missing.
  """
  rng = np.random.default_rng(seed)
  labels = rng.integers(0, classes, examples)
  rates = np.clip(
    rng.uniform(0, 1, examples) + rng.normal(0, 0.3, (runs, 1)), 0.05, 0.95
  )
  wrong = rng.uniform(size=(runs, examples)) < rates
  return np.where(wrong, rng.integers(-1, classes, (runs, examples)), labels).astype(
    dtype
  ), labels


def assert_equal(a, b):
  for name in FIELDS:
    np.testing.assert_array_equal(
      getattr(a, name), getattr(b, name), err_msg=name, strict=name != "runs"
    )


# The counts


@arrays
@pytest.mark.parametrize("runs", [0, 1, 2, 9])
def test_counts_equal_loops(runs, array):
  predictions, labels = some_predictions(runs)
  given = tally(array(predictions), labels, CLASSES, pairs=True)
  votes = np.zeros((EXAMPLES, CLASSES), int)
  half_errors = collections.Counter()
  joint = np.zeros((EXAMPLES, EXAMPLES), int)
  for row in predictions:
    wrong = [i for i in range(EXAMPLES) if row[i] != labels[i]]
    even, odd = sum(i % 2 == 0 for i in wrong), sum(i % 2 == 1 for i in wrong)
    half_errors[even, odd] += 1
    for i, j in itertools.product(wrong, wrong):
      joint[i, j] += 1
    for i, c in enumerate(row):
      if c >= 0:
        votes[i, c] += 1
  half_errors = np.reshape(
    [(*pair, times) for pair, times in sorted(half_errors.items())], (-1, 3)
  ).T
  assert given.asked is None
  expected_fields = (runs, labels, votes, half_errors, joint)
  for name, expected in zip(COUNTED, expected_fields, strict=True):
    np.testing.assert_array_equal(getattr(given, name), expected, err_msg=name)
  assert [getattr(given, n).dtype for n in COUNTED[1:]] == [
    np.int32,
    np.int64,
    np.int64,
    np.int32,
  ]
  assert all(isinstance(getattr(given, n), np.ndarray) for n in COUNTED[1:])
  assert tally(array(predictions), labels, CLASSES).joint_errors is None


# Examples fill one tile or several, runs one group of words or several, some of them
# only in part.
@pytest.mark.parametrize(("runs", "examples"), [(40, 300), (512, 256), (600, 300)])
@pytest.mark.parametrize("in_bits", [True, False])
def test_joint_counts_by_either_way(runs, examples, in_bits):
  errors = np.random.default_rng(runs).random((runs, examples)) < 0.3
  add = jax.jit(counting._add_bits if in_bits else counting._add_product)
  start = counting.no_joint_errors(examples) + 1
  padding = ((0, 0), (0, len(start) - examples))
  joint = jax.jit(counting.mirror_joint_counts)(add(start, np.pad(errors, padding)))
  np.testing.assert_array_equal(
    joint[:examples, :examples] - 1, errors.astype(int).T @ errors.astype(int)
  )


def test_tiles_cover_all_examples():
  for examples in (0, 1, 128, 129, 512, 513, 1797, 2049, 10_000):
    tile, tiles = counting._tile_size(examples), -(-examples // 512)
    padded = len(jax.eval_shape(lambda: counting.no_joint_errors(examples)))
    assert tile % 128 == 0
    assert 0 < tile <= 512
    assert counting._tile_size(padded) == tile
    # The padding is less than one row of tiles.
    assert examples <= padded < examples + max(tile, 128 * tiles) + 1


def test_joint_counts_of_many_examples():
  predictions, labels = some_predictions(70, 1100, seed=1)
  errors = (predictions != labels).astype(int)
  np.testing.assert_array_equal(
    tally(predictions, labels, CLASSES, pairs=True).joint_errors, errors.T @ errors
  )


@pytest.mark.optimized
def test_joint_errors_are_added_in_place():
  counts = counting.no_runs(2000, CLASSES, pairs=True)
  block = np.zeros((512, 2000), np.int8), np.zeros(2000, np.int32)
  lowered = tallies._count_block.lower(counts, *block, CLASSES)
  memory = lowered.compile().memory_analysis()
  assert memory.alias_size_in_bytes >= 4 * counts.joint.size >= 4 * 2000**2
  assert memory.temp_size_in_bytes < 8 * 512 * 2048


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_accelerators_count_joint_errors_in_one_product(platform):
  errors = jax.ShapeDtypeStruct((32, 200), bool)
  traced = jax.jit(counting.joint_error_counts).trace(errors)
  lowered = traced.lower(lowering_platforms=(platform,)).as_text()
  (product,) = (line for line in lowered.splitlines() if "dot_general" in line)
  assert "(tensor<256x32xbf16>, tensor<32x256xbf16>) -> tensor<256x256xf32>" in product


@pytest.mark.parametrize(("runs", "examples"), [(0, 5), (40, 300), (600, 129)])
def test_counts_inside_jit(runs, examples):
  """As campaigns count in the program of their evaluation."""
  predictions, labels = some_predictions(runs, examples)

  @jax.jit
  def evaluate(predictions):
    errors = predictions != labels
    return (
      counting.count_votes(predictions, CLASSES),
      counting.count_half_errors(errors),
      counting.joint_error_counts(errors),
    )

  votes, halves, joint = map(np.asarray, evaluate(predictions))
  assert votes.dtype == halves.dtype == joint.dtype == np.int32
  given = Tallies.from_counts(labels.astype(np.int32), votes, halves.T, joint)
  assert_equal(given, tally(predictions, labels, CLASSES, pairs=True))


def test_predictions_are_counted_where_they_lie():
  predictions, labels = some_predictions(8)
  expected = tally(predictions, labels, CLASSES, pairs=True)
  _, second = jax.devices()
  on_second = jax.device_put(predictions, second)
  assert_equal(tally(on_second, labels, CLASSES, pairs=True), expected)
  mesh = jax.sharding.Mesh(np.array(jax.devices()), ("lanes",))
  spread = jax.device_put(
    predictions, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("lanes"))
  )
  assert_equal(tally(spread, labels, CLASSES, pairs=True), expected)
  assert_equal(
    tally_blocks(
      [predictions[:3], on_second[3:5], spread[5:]], labels, CLASSES, pairs=True
    ),
    expected,
  )


@pytest.mark.parametrize("runs", [127, 128, 255, 256, 257, 512])
def test_votes_of_runs_that_all_agree(runs):
  """A byte counts to 255: a block of runs that holds more would count 0 votes."""
  agreed = np.repeat([[2, 0, -1]], runs, axis=0).astype(np.int8)
  expected = [[0, 0, runs], [runs, 0, 0], [0, 0, 0]]
  np.testing.assert_array_equal(votes_of(agreed, 3), expected)
  assert stats.ensemble_accuracy(agreed, [2, 1, 0], 3) == 1 / 3
  assert stats.expected_disagreement(agreed, 3) == 0


@pytest.mark.parametrize("runs", [128, 256, 512])
def test_votes_on_devices_of_runs_that_all_agree(runs):
  agreed = np.repeat([[2, 0, -1]], runs, axis=0).astype(np.int8)
  given = tally(jnp.asarray(agreed), [2, 1, 0], 3, pairs=True)
  np.testing.assert_array_equal(given.votes, [[0, 0, runs], [runs, 0, 0], [0, 0, 0]])
  np.testing.assert_array_equal(
    given.joint_errors, [[0, 0, 0], [0, runs, runs], [0, runs, runs]]
  )


@arrays
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32])
def test_votes_are_the_same_for_every_type(dtype, array):
  # A byte counts to 255, and devices count 128 runs at a time; int8 has no class 200,
  # and would count -1 for class 255.
  for runs in (255, 256, 600) if array is np.asarray else (256, 600):
    predictions, _ = some_predictions(runs)
    wide = np.maximum(predictions, 0) if dtype == np.uint8 else predictions
    expected = np.transpose([(wide == c).sum(0) for c in range(300)])
    np.testing.assert_array_equal(
      votes_of(array(wide.astype(dtype)), 300), expected, strict=True
    )


@pytest.mark.parametrize(
  ("examples", "classes", "dtype"),
  [(0, 1, np.int8), (1, 2, np.int8), (70, 256, np.uint8), (70, 300, np.int16)],
)
def test_counts_of_any_width_and_type(examples, classes, dtype):
  """Class 255 is not -1, and class 256 not class 0, in 8 bits."""
  labels = np.arange(examples) * 255 % classes
  predictions = np.where(
    np.arange(5)[:, None] < 3, labels, (labels + 1) % classes
  ).astype(dtype)
  given = tally(predictions, labels, classes)
  expected = np.zeros((examples, classes), int)
  np.add.at(expected, (np.arange(examples), predictions.astype(int)), 1)
  np.testing.assert_array_equal(given.votes, expected)
  wrong = (predictions != labels).sum(1)
  np.testing.assert_array_equal(
    given.error_rates() * examples, np.sort(wrong) if examples else [np.nan] * 5
  )


@pytest.mark.parametrize("pairs", [True, False])
def test_arrays_of_tallies_are_the_tallies(pairs, tmp_path):
  predictions, labels = some_predictions(5)
  given = tally(predictions, labels, CLASSES, pairs=pairs)
  np.savez(tmp_path / "tallies.npz", **given.to_arrays())
  with np.load(tmp_path / "tallies.npz") as arrays:
    assert_equal(Tallies.from_arrays(arrays) + given, given + given)


# Blocks and sums


@pytest.mark.slow
@arrays
def test_blocks_of_any_size_equal_the_whole(array, monkeypatch):
  predictions, labels = some_predictions(23)
  whole = tally(predictions, labels, CLASSES, pairs=True)
  monkeypatch.setattr(tallies, "_RUNS", 5)
  for sizes in ([23], [1] * 23, [0, 4, 0, 12, 7, 0], [5, 5, 5, 5, 3]):
    blocks = np.split(predictions, np.cumsum(sizes)[:-1])
    assert_equal(tally_blocks(map(array, blocks), labels, CLASSES, pairs=True), whole)
  assert_equal(
    tally_blocks(
      [predictions[:9].tolist(), array(predictions[9:])], labels, CLASSES, pairs=True
    ),
    whole,
  )


def test_sums_do_not_depend_on_order_or_grouping():
  predictions, labels = some_predictions(12)
  whole = tally(predictions, labels, CLASSES, pairs=True)
  a, b, c = (
    tally(p, labels, CLASSES, pairs=True) for p in np.split(predictions, [2, 7])
  )
  nothing = tally_blocks([], labels, CLASSES, pairs=True)
  for total in (
    (a + b) + c,
    a + (b + c),
    c + a + b,
    nothing + a + b + c + nothing,
    sum([b, c], start=a),
  ):
    assert_equal(total, whole)
  # Additions did not change their operands in place.
  assert_equal(nothing, tally(predictions[:0], labels, CLASSES, pairs=True))
  assert_equal(a, tally(predictions[:2], labels, CLASSES, pairs=True))
  assert repr(whole) == "Tallies(runs=12)"


def test_only_a_few_blocks_are_held(monkeypatch):
  monkeypatch.setattr(tallies, "_RUNS", 4)
  given, most = [], 0

  def blocks():
    nonlocal most
    for seed in range(40):
      block, _ = some_predictions(2, seed=seed)
      assert block.base is None
      given.append(weakref.ref(block))
      most = max(most, sum(reference() is not None for reference in given))
      yield block

  assert tally_blocks(blocks(), some_predictions(0)[1], CLASSES, pairs=True).runs == 80
  assert 0 < most <= 4


def test_predictions_on_disk(tmp_path):
  predictions, labels = some_predictions(10)
  array = zarr.create_array(
    tmp_path / "predictions",
    shape=predictions.shape,
    chunks=(3, EXAMPLES),
    dtype=np.int8,
  )
  array[:] = predictions
  blocks = (array[start : start + 4] for start in range(0, array.shape[0], 4))
  assert_equal(
    tally_blocks(blocks, labels, CLASSES), tally(predictions, labels, CLASSES)
  )


# The statistics

OF_ERRORS = {
  "example_error_rates": [{}],
  "test_set_variance": [{}],
  "independent_errors_variance": [{}, {"unbiased": False}],
  "distribution_variance": [{}, {"unbiased": False}, {"level": 0.5}],
  "noise_share": [{}, {"level": 0.5}],
  "split_correlation": [{}, {"level": 0.5}],
  "split_covariance": [{}],
  "top_fraction_gain": [{}, {"fraction": 0.29}, {"fraction": 1.0}],
  "dependent_pairs": [{}, {"threshold": 0.0}],
  "most_dependent_pairs": [{"k": 5}],
  "top_fraction_gain_bootstrap": [{"key": jax.random.key(0), "replicates": 9}],
  "runs_for_variance": [
    {},
    {"relative": 0.2, "statistic": "test_set_variance", "level": 0.9},
  ],
}
OF_PREDICTIONS = {
  "vote_fractions": [{}],
  "plurality": [{}],
  "expected_disagreement": [{}, {"self_pairs": True}],
}
OF_LABELS = {
  "ensemble_accuracy": [{}],
  "gde_gap": [{}, {"self_pairs": True}],
  "confusion_matrix": [{}],
  "cace": [{}, {"bins": 7}],
  "ece": [{}, {"bins": 7}],
  "calibration_curve": [{}, {"bins": 4, "of": "top"}],
  "calibration_band": [{"key": jax.random.key(0), "replicates": 9}],
}
OF_PAIRS_OF_RUNS = {"independent_errors_variance", "expected_disagreement", "gde_gap"}
METHODS = [*OF_ERRORS, *OF_PREDICTIONS, *OF_LABELS]
SIZES = [(0, 11), (1, 11), (2, 11), (9, 11), (400, 40), (3, 1), (3, 2), (2, 0)]


@pytest.mark.slow
@pytest.mark.parametrize(("runs", "examples"), SIZES)
def test_statistics_equal_those_of_all_runs(runs, examples):
  predictions, labels = some_predictions(runs, examples)
  given = tally(predictions[: runs // 3], labels, CLASSES, pairs=True)
  given += tally(jnp.asarray(predictions[runs // 3 :]), labels, CLASSES, pairs=True)
  for array in (np.asarray, jnp.asarray):
    errors = array(predictions != labels)
    args = dict.fromkeys(OF_ERRORS, (errors,))
    args |= {name: (array(predictions), CLASSES) for name in OF_PREDICTIONS}
    args |= {name: (array(predictions), array(labels), CLASSES) for name in OF_LABELS}
    for name, choices in (OF_ERRORS | OF_PREDICTIONS | OF_LABELS).items():
      statistic = getattr(stats, name)
      of_tallies = getattr(given, name)
      for options in choices:
        ours, theirs = of_tallies(**options), statistic(*args[name], **options)
        assert type(ours) is type(theirs), name
        parts = [*zip(*map(leaves, (ours, theirs)), strict=True)]
        if name in OF_PAIRS_OF_RUNS:
          # Tallies have no single runs for the jackknife to leave out.
          parts = parts[:1]
        for a, b in parts:
          np.testing.assert_array_equal(a, b, err_msg=f"{name} {options}", strict=True)
    np.testing.assert_array_equal(
      given.error_rates(), np.sort(stats.error_rates(errors)), strict=True
    )


def leaves(result):
  if isinstance(result, stats.Estimate):
    return result.value, result.se, result.low, result.high
  return result if isinstance(result, tuple) else (result,)


def test_every_statistic_is_compared():
  methods = {
    name
    for name, _ in inspect.getmembers(Tallies, inspect.isfunction)
    if not name.startswith("_")
  }
  own = {"covariance", "first_classes", "joint_blocks", "to_arrays", "votes_for"}
  own |= {"of_examples", "of_asked_examples"}
  assert methods == {*METHODS, "error_rates", *own}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_its_function(name):
  """It takes the function's arguments but errors, predictions, labels and classes."""
  ours, theirs = (
    inspect.signature(getattr(x, name)).parameters for x in (Tallies, stats)
  )
  data = {"errors", "predictions", "labels", "num_classes"}
  options = [p for p in theirs.values() if p.name not in data]
  assert [p for p in ours.values() if p.name != "self"] == options
  assert getattr(Tallies, name).__doc__ == f"See `stats.{name}`."
  given = tally(*some_predictions(9), CLASSES, pairs=True)
  (chosen, *_) = (OF_ERRORS | OF_PREDICTIONS | OF_LABELS)[name]
  ours, theirs = getattr(given, name)(**chosen), getattr(stats, name)(given, **chosen)
  for a, b in zip(*map(leaves, (ours, theirs)), strict=True):
    np.testing.assert_array_equal(a, b, strict=True)


@pytest.mark.optimized
def test_statistics_are_of_exact_sums():
  """In floating point these would cancel: runs, and halves of them, that differ by one
  error in 30,000.
  """
  predictions = np.ones((400, 30_000), np.int8)
  predictions[::2, :2] = 0
  given = tally(predictions, np.zeros(30_000, int), 2)
  np.testing.assert_allclose(
    given.test_set_variance(), 400 / 399 / 30_000**2, rtol=1e-15
  )
  np.testing.assert_allclose(
    given.split_covariance(), 400 / 399 / 4 / 15_000**2, rtol=1e-15
  )
  assert given.split_correlation() == 1


@arrays
@pytest.mark.optimized
def test_covariance_is_numpys(array):
  predictions, labels = some_predictions(9)
  errors = predictions != labels
  given = tally(array(predictions), labels, CLASSES, pairs=True)
  covariance = given.covariance()
  assert covariance.dtype == np.float64
  np.testing.assert_allclose(
    covariance, np.cov(errors.astype(float), rowvar=False), rtol=1e-12, atol=1e-15
  )
  np.testing.assert_array_equal(covariance, covariance.T)
  for rows in (slice(2, 5), slice(-1, None), np.array([7, 0]), slice(3, 3)):
    np.testing.assert_array_equal(given.covariance(rows), covariance[rows], strict=True)
  off_diagonal = (covariance.sum() - np.trace(covariance)) / (EXAMPLES * (EXAMPLES - 1))
  np.testing.assert_allclose(given.distribution_variance(), off_diagonal, rtol=1e-10)
  np.testing.assert_allclose(
    given.independent_errors_variance(), np.trace(covariance) / EXAMPLES**2, rtol=1e-12
  )
  assert np.isnan(
    tally(predictions[:1], labels, CLASSES, pairs=True).covariance()
  ).all()


def test_dependent_pairs_over_several_blocks_of_examples(monkeypatch):
  predictions, labels = some_predictions(30)
  expected = stats.dependent_pairs(predictions != labels)
  monkeypatch.setattr(counts, "BLOCK", 4)
  given = tally(predictions, labels, CLASSES, pairs=True).dependent_pairs()
  assert len(given.i) > 0
  for a, b in zip(given, expected, strict=True):
    np.testing.assert_array_equal(a, b)


# UserErrors

P, L = some_predictions(4)
T = tally(P, L, CLASSES)


@pytest.mark.parametrize(
  ("call", "text"),
  [
    (
      lambda: tally_blocks(P, L, CLASSES),
      r"predictions has shape \(11,\).* for a single run give predictions\[None\]",
    ),
    (
      lambda: tally_blocks([P, P[:, 1:]], L, CLASSES),
      r"beside predictions of shape \(4, 10\)",
    ),
    (
      lambda: tally(np.minimum(P, 1), L, 2),
      "labels is 2 at example .: give class indices, 0 to 1",
    ),
    (
      lambda: tally(P + 1, L, CLASSES),
      "predictions is 3 at run ., example .: give class indices, 0 to 2, -1 for none",
    ),
    (
      lambda: jax.jit(lambda p: tally(p, L, CLASSES).votes)(P),
      "predictions is traced: .* call it outside jit",
    ),
    (
      lambda: jax.jit(lambda y: tally(P, y, CLASSES).votes)(L),
      "labels is traced: .* call it outside jit",
    ),
    (
      lambda: T + tally(P[:, 1:], L[1:], CLASSES),
      "tallies of 11 examples of 3 classes and 10 examples of 3 classes",
    ),
    (
      lambda: T + tally(P, L, 5),
      "tallies of 11 examples of 3 classes and 11 examples of 5 classes: add tallies",
    ),
    (
      lambda: T + tally(P, (L + (np.arange(11) == 4)) % 3, CLASSES),
      "tallies with labels . and . of example 4: add",
    ),
    (
      lambda: T + tally(P, L, CLASSES, pairs=True),
      "only one of two tallies has joint error counts",
    ),
    (
      lambda: T.covariance(),
      "tallies without joint error counts: tally with pairs=True",
    ),
    (
      lambda: T.dependent_pairs(),
      "tallies without joint error counts: tally with pairs=True",
    ),
    (
      lambda: tally(P, L, CLASSES, pairs=True).dependent_pairs(-1),
      "threshold is -1: give a number of at least 0",
    ),
    (lambda: T.top_fraction_gain(0), "fraction is 0: give a number above 0"),
    (lambda: stats.cace(T, 7), "tallies have labels and num_classes of their own"),
    (lambda: stats.cace(T, bins=0), "bins is 0"),
    (lambda: stats.plurality(T, 3), "tallies have labels and num_classes of their own"),
    (lambda: stats.plurality(P), "num_classes is None: give a whole number"),
    (
      lambda: stats.ece(P, num_classes=3),
      r"labels has shape \(\): give \(examples,\), axis 0 examples",
    ),
  ],
)
def test_mistakes(call, text):
  with pytest.raises(UserError, match=text):
    call()


def test_tallies_are_added_to_tallies_only():
  with pytest.raises(TypeError, match="unsupported operand"):
    T + 1


@pytest.mark.optimized
def test_docstrings_say_what_they_must():
  failed, tried = doctest.testmod(tallies)
  assert (failed, tried) == (0, 4)
  for function in (tally, tally_blocks):
    for part in ("Args:", "Returns:", "Source: ", ">>> "):
      assert part in inspect.getdoc(function), part
  for name, method in inspect.getmembers(Tallies, inspect.isfunction):
    assert name.startswith("_") or method.__doc__, name
