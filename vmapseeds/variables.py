"""The trained variables of all runs: parameters and batch statistics, in the group `variables` of a results folder.

One array a leaf, its first axis the run, in the same blocks of runs as everything else there. Its name is the leaf's
path with dots: `params.Conv_0.kernel`, `batch_stats.BatchNorm_0.mean`.
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import zarr
from jaxtyping import Float, Int, PyTree

from vmapseeds.errors import Mistake, at_least
from vmapseeds.recipe import Recipe
from vmapseeds.train import network

GROUP = "variables"


def shapes(recipe: Recipe, image: Sequence[int], num_classes: int) -> PyTree[jax.ShapeDtypeStruct]:
  """What one run's variables look like.

  Args:
    image: height, width and channels.
  """
  model = network(recipe, num_classes)
  return jax.eval_shape(lambda: model.init(jax.random.key(0), jnp.zeros((1, *image)), train=False))


def num_bytes(shapes: PyTree[jax.ShapeDtypeStruct]) -> int:
  """How many bytes one run's variables have, 0 for None."""
  return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def create(group: zarr.Group, shapes: PyTree[jax.ShapeDtypeStruct] | None, runs: int, chunk: int) -> None:
  """Makes room for the variables of so many runs in a results folder, given what those of one look like, if any."""
  if shapes is None:
    return
  if GROUP in group:
    raise Mistake(f"a test set named {GROUP!r}, where trained parameters go: give it another name")
  of_runs = group.create_group(GROUP)
  for name, leaf in _named(shapes).items():
    of_runs.create_array(
      name,
      shape=(runs, *leaf.shape),
      dtype=leaf.dtype,
      chunks=(max(1, min(chunk, runs)), *leaf.shape),
      dimension_names=("run", *(f"{name}.{axis}" for axis in range(len(leaf.shape)))),
      fill_value=np.nan,
      compressors=None,  # trained numbers are noise in all but their first bits
    )


def arrays(group: zarr.Group) -> list[str]:
  """The arrays of variables in a results folder, by their paths in it; none where they are not kept."""
  return [f"{GROUP}/{name}" for name in sorted(group[GROUP].array_keys())] if GROUP in group else []


def write(group: zarr.Group, rows: Int[np.ndarray, " rows"], trained: PyTree[Float[np.ndarray, "rows ..."]]) -> None:
  """Writes the variables of some runs into a results folder; None are none."""
  for name, leaf in _named(trained).items():
    group[f"{GROUP}/{name}"].oindex[rows] = leaf


def load_params(path: str | os.PathLike, run: int) -> dict[str, PyTree[Float[np.ndarray, "..."]]]:
  """The trained variables of one run, as `network.apply` takes them: `params` and, where there are some, `batch_stats`.

  >>> variables = vs.load_params("results/mine", run=17)  # doctest: +SKIP
  >>> model = vmapseeds.train.network(recipe, num_classes=10)  # doctest: +SKIP
  >>> logits = model.apply(variables, normalized_images, train=False)  # doctest: +SKIP

  Args:
    path: a results folder that was trained with `keep_params=True`, or `--keep-params`.
    run: the run's row in the folder.

  Raises:
    Mistake: there is no such run, it is not trained yet, or its parameters were not kept.
  """
  from vmapseeds.results import attributes  # which writes variables

  stored = attributes(path)
  if stored is None:
    raise Mistake(f"{path} is no results folder: give one that `vmapseeds train --keep-params` made")
  if not stored.get("keep_params"):
    raise Mistake(f"{path} holds no trained parameters: `vmapseeds train --keep-params` into a new folder keeps them")
  group = zarr.open_group(Path(path), mode="r", use_consolidated=False)
  done = group["done"][:]
  if at_least("run", run, 0) >= len(done):
    raise Mistake(f"run {run} of a folder with {len(done)}: the last is {len(done) - 1}")
  if not done[run]:
    raise Mistake(f"run {run} of {path} is not trained yet: `vmapseeds train` with the same --out goes on")
  variables = {}
  for array in arrays(group):
    *parents, leaf = array.removeprefix(f"{GROUP}/").split(".")
    inner = variables
    for name in parents:
      inner = inner.setdefault(name, {})
    inner[leaf] = group[array][run]
  return variables


def _named(variables: PyTree) -> dict:
  """The leaves by their names in the store."""
  return {jax.tree_util.keystr(path, simple=True, separator="."): a for path, a in jax.tree.leaves_with_path(variables)}
