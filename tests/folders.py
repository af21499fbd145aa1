"""Results folders with given outcomes, as a campaign would leave them."""

import numpy as np

from vmapseeds.results.opening import open_results
from vmapseeds.store.folders import made
from vmapseeds.store.layout import array
from vmapseeds.store.results import Results


def folder(
  path, attributes, *, block_runs, columns, labels, diverged, accuracy, predictions
):
  """Writes a folder of one test set."""
  outputs = {
    "diverged": array(bool, ["run"], []),
    "test/accuracy": array(float, ["run"], []),
    "test/predictions": array("int8", ["run", "example"], labels.shape),
  }
  with made(
    path,
    attributes,
    runs=len(accuracy),
    block_runs=block_runs,
    columns=columns,
    examples={"test/labels": labels},
    dimensions={"test/labels": ("example",)},
    outputs=outputs,
  ) as results:
    values = {
      "diverged": diverged,
      "test/accuracy": accuracy,
      "test/predictions": predictions,
    }
    results.write(np.arange(len(accuracy)), values)
  return path


def outputs_folder(path, outputs, columns=None, block_runs=16):
  """Writes a folder of a task's outputs, name -> (values, attributes of their role)."""
  values = {name: np.asarray(of) for name, (of, _) in outputs.items()}
  runs = len(next(iter(values.values())))
  columns = {"seed_init": np.arange(runs, dtype=np.uint32)} | (columns or {})
  axes = ("run", "example", "token")
  arrays = {
    name: array(of.dtype, axes[: of.ndim], of.shape[1:]) | outputs[name][1]
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
  with made(
    path,
    attributes,
    runs=runs,
    block_runs=block_runs,
    columns=columns,
    examples={},
    dimensions={},
    outputs=arrays,
  ) as results:
    results.write(np.arange(runs), values)
  return path


def open_with_roles(path, *args, **options):
  """What `open_results` returns, with the roles of the description as attributes."""
  results = open_results(path, *args, **options)
  for name, about in Results(path).root["arrays"].items():
    role = {k: v for k, v in about.items() if k not in ("dtype", "dimensions", "shape")}
    if role and name in results:
      results[name].attrs = role
  return results
