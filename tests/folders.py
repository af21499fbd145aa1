"""Results folders with given outcomes, as a campaign would leave them."""

import numpy as np

from vmapseeds.store.folders import create_folder
from vmapseeds.store.layout import array_entry


def folder(
  path, attributes, *, block_runs, columns, labels, diverged, accuracy, predictions
):
  """Writes a folder of one test set."""
  classes = {"num_classes": attributes["num_classes"]}
  outputs = {
    "diverged": array_entry(bool, ["run"], []),
    "test/accuracy": array_entry(float, ["run"], []),
    "test/predictions": array_entry(
      "int8", ["run", "example"], labels.shape, role="class", labels="labels", **classes
    ),
  }
  with create_folder(
    path,
    attributes,
    extents=[len(accuracy)],
    block_runs=block_runs,
    columns=columns,
    examples={"test/labels": labels},
    dimensions={"test/labels": ("example",)},
    outputs=outputs,
    attributes={
      "test/labels": {"role": "labels", "of": "predictions", **classes},
      **{n: {"role": "seed" if n.startswith("seed_") else "column"} for n in columns},
    },
  ) as results:
    values = {
      "diverged": diverged,
      "test/accuracy": accuracy,
      "test/predictions": predictions,
    }
    for block, runs in enumerate(results.blocks):
      of_block = {name: array[runs.start : runs.stop] for name, array in values.items()}
      results.write_block(block, of_block)
  return path


def outputs_folder(path, outputs, columns=None, block_runs=16):
  """Writes a folder of a task's outputs, name -> (values, attributes of their role)."""
  values = {name: np.asarray(of) for name, (of, _) in outputs.items()}
  runs = len(next(iter(values.values())))
  columns = {"seed_init": np.arange(runs, dtype=np.uint32)} | (columns or {})
  axes = ("run", "example", "token")
  arrays = {
    name: array_entry(of.dtype, axes[: of.ndim], of.shape[1:], **outputs[name][1])
    for name, of in values.items()
  }
  attributes = {
    "recipe": '{"name": "walk", "values": {"lr": 0.1}}',
    "test_sets": [],
    "num_classes": None,
    "sampling": None,
    "device_kind": "cpu",
    "lane_width": 1,
    "lowering": "sequential",
    "precision": None,
    "data_digest": "",
    "versions": {"jax": "0.9"},
  }
  with create_folder(
    path,
    attributes,
    extents=[runs],
    block_runs=block_runs,
    columns=columns,
    examples={},
    dimensions={},
    outputs=arrays,
    attributes={
      name: {"role": "seed", "source": "init"}
      if name == "seed_init"
      else {"role": "column"}
      for name in columns
    },
  ) as results:
    for block, rows in enumerate(results.blocks):
      results.write_block(block, {n: of[np.array(rows)] for n, of in values.items()})
  return path
