"""Results folders with given outcomes, as a campaign would leave them."""

import numpy as np

from vmapseeds.store.folders import made
from vmapseeds.store.layout import array


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
