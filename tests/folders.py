"""Results folders with given outcomes, as a campaign would leave them."""

from vmapseeds.store.folders import create_folder
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
  with create_folder(
    path,
    attributes,
    extents=[len(accuracy)],
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
    for block, runs in enumerate(results.blocks):
      of_block = {name: array[runs.start : runs.stop] for name, array in values.items()}
      results.write_block(block, of_block)
  return path
