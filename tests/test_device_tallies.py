"""Tallies to which runs are added on the devices that hold them."""

import jax
import numpy as np
import pytest
from test_tallies import CLASSES, assert_equal, some_predictions

from vmapseeds.mistakes import Mistake
from vmapseeds.stats import tallies, tally


@pytest.mark.optimized
def test_tallies_are_updated_in_place():
  predictions, labels = some_predictions(6)
  before = tallies.zeros(labels, CLASSES, capacity=6, pairs=True)
  tallies.update(before, predictions)
  assert all(leaf.is_deleted() for leaf in before)
  held = tallies.zeros(
    np.zeros(2000, int), CLASSES, capacity=512, pairs=True, devices=jax.devices()[:1]
  )
  add = tallies._on_each(tallies._add, held.votes.sharding)
  memory = (
    add.lower(held, np.zeros((512, 2000), np.int8), np.ones(512, bool))
    .compile()
    .memory_analysis()
  )
  assert memory.alias_size_in_bytes == sum(leaf.nbytes for leaf in held) > 4 * 2000**2
  assert memory.temp_size_in_bytes < 8 * 512 * 2048


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("runs", [0, 1, 2, 13])
def test_runs_added_on_devices_equal_a_tally(devices, runs):
  """Runs come a few at a time, equally many for each device. Padding runs and diverged
  ones are left out.
  """
  predictions, labels = some_predictions(runs)
  share = 3
  held = tallies.zeros(
    labels, CLASSES, capacity=20, pairs=True, devices=jax.devices()[:devices]
  )
  taken = np.arange(runs) != 1
  for start in range(0, runs, share * devices):
    rows = np.arange(start, start + share * devices)
    some = predictions[np.minimum(rows, runs - 1)]
    lies = jax.device_put(some, held.votes.sharding)
    held = tallies.update(held, lies, np.append(taken, False)[np.minimum(rows, runs)])
  assert len(held.votes.sharding.device_set) == devices
  assert_equal(
    tallies.fetch(held), tally(predictions[taken], labels, CLASSES, pairs=True)
  )


def test_no_device_takes_more_runs_than_it_has_places_for():
  predictions, labels = some_predictions(6)
  held = tallies.zeros(labels, CLASSES, capacity=4)
  for _ in range(2):
    held = tallies.update(held, predictions)
  with pytest.raises(
    Mistake,
    match="tallies of 6 runs on a device: make them with a capacity of as many, not 4",
  ):
    tallies.fetch(held)
  with pytest.raises(
    Mistake, match="tallies of 5 runs on a device: make them with a capacity"
  ):
    tallies.update(
      tallies.zeros(labels, CLASSES, capacity=4), np.repeat(predictions, 5, 0)[:10]
    )


@pytest.mark.parametrize(("rows", "columns"), [(5, None), (4, 1)])
def test_an_update_is_of_the_same_examples_and_as_many_runs_on_each_device(
  rows, columns
):
  predictions, labels = some_predictions(6)
  with pytest.raises(
    Mistake,
    match=rf"predictions has shape \({rows}, .*\): give \(runs, {len(labels)}\), as many runs on",
  ):
    tallies.update(
      tallies.zeros(labels, CLASSES, capacity=4), predictions[:rows, :columns]
    )


def test_joint_errors_of_many_runs_are_counted_a_few_passes_at_a_time(monkeypatch):
  """Two shares of three fit into seven places. Waiting runs are counted before the next
  share, and at the end.
  """
  monkeypatch.setattr(tallies, "_RUNS", 7)
  predictions, labels = some_predictions(30)
  held = tallies.zeros(labels, CLASSES, capacity=15, pairs=True)
  for some in np.split(predictions, 5):
    held = tallies.update(held, some)
  assert np.asarray(held.joint_errors).any()
  np.testing.assert_array_equal(held.waiting, [3, 3])
  errors = (predictions != labels).astype(int)
  np.testing.assert_array_equal(tallies.fetch(held).joint_errors, errors.T @ errors)
  with pytest.raises(Mistake, match="8 runs at once on a device: give at most 7"):
    tallies.update(tallies.zeros(labels, CLASSES, capacity=15), predictions[:16])
