"""Tallies the runs of a seed batch on the devices, before outputs are fetched."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from vmapseeds import lanes
from vmapseeds.stats import tallies
from vmapseeds.store.results import Results
from vmapseeds.training.task import Task

STORED = (
  "votes",
  "joint_errors",
)  # the parts of a `stats.Tallies` stored per block; others are stored per run


class Counting:
  """The tallies of a block's runs, for each test set; they stay on the devices until all
  runs are added.

  Args:
    results: the folder.
    task: what is trained.
    rows: the runs, in the order of their lanes.
    width: the lane width.
  """

  def __init__(
    self, results: Results, task: Task, rows: Int[np.ndarray, " rows"], width: int
  ):
    self.results, self.task = results, task
    # Rounded up, so that a smaller last batch needs no program of its own. An unused
    # place costs a few bytes.
    self.capacity = -(-len(rows) // (256 * len(lanes.devices())) * 256) + width
    self.test_sets = [
      name.removesuffix("/votes") for name in results.counts if name.endswith("/votes")
    ]
    self.held: dict[str, tallies.DeviceTallies] = {}

  def add(
    self, numbers: Int[np.ndarray, " lanes"], outputs: dict[str, jax.Array]
  ) -> dict[str, jax.Array]:
    """Adds the runs of a step that did not diverge to the tallies. Returns the outputs
    that the folder stores.
    """
    for name in self.test_sets:
      diverged = outputs["diverged"]
      counted = jax.device_put(numbers >= 0, diverged.sharding) & ~diverged
      held = self.held.get(name) or self._nothing(name)
      self.held[name] = tallies.update(held, outputs[f"{name}/predictions"], counted)
    return {
      name: values for name, values in outputs.items() if name in self.results.outputs
    }

  def _nothing(self, test_set: str) -> tallies.DeviceTallies:
    labels, classes = (
      self.task.examples[f"{test_set}/labels"],
      self.results.array(f"{test_set}/votes").shape[-1],
    )
    pairs = f"{test_set}/joint_errors" in self.results.counts
    return tallies.zeros(
      labels, classes, capacity=self.capacity, pairs=pairs, devices=lanes.devices()
    )

  def found(self) -> dict[str, np.ndarray]:
    """The tallies, by the names of the folder's arrays."""
    found: dict[str, Any] = {}
    for test_set, held in self.held.items():
      counts = tallies.fetch(held).to_arrays()
      found.update({f"{test_set}/{n}": counts[n] for n in STORED if n in counts})
    return found
