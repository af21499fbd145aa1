"""The trained variables of all runs: parameters and batch statistics, in the group `variables` of a results folder.

One array a leaf, its first axis the run, in the same blocks of runs as everything else there. Its name is the leaf's
path with dots: `params.Conv_0.kernel`, `batch_stats.BatchNorm_0.mean`.
"""

import math
import os
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Float, PyTree

from vmapseeds.errors import Mistake, at_least
from vmapseeds.metadata import VARIABLES, checked
from vmapseeds.recipe import Recipe
from vmapseeds.results import Results, readable
from vmapseeds.train import network


def shapes(recipe: Recipe, image: Sequence[int], num_classes: int) -> PyTree[jax.ShapeDtypeStruct]:
  """What one run's variables look like.

  Args:
    recipe: whose network.
    image: height, width and channels.
    num_classes: K.
  """
  model = network(recipe, num_classes)
  return jax.eval_shape(lambda: model.init(jax.random.key(0), jnp.zeros((1, *image)), train=False))


def size(shapes: PyTree[jax.ShapeDtypeStruct]) -> int:
  """How many bytes one run's variables have."""
  return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def named(variables: PyTree) -> dict:
  """The leaves by their names in a results folder; none of None."""
  return {jax.tree_util.keystr(path, simple=True, separator="."): a for path, a in jax.tree.leaves_with_path(variables)}


def load_params(path: str | os.PathLike, run: int) -> dict[str, PyTree[Float[jax.Array, "..."]]]:
  """The trained variables of one run, as `network.apply` takes them: `params` and, where there are some, `batch_stats`.

  >>> variables = vs.load_params("results/mine", run=17)  # doctest: +SKIP
  >>> model = vmapseeds.train.network(recipe, num_classes=10)  # doctest: +SKIP
  >>> logits = model.apply(variables, normalized_images, train=False)  # doctest: +SKIP

  Args:
    path: a results folder that was trained with `keep_params=True`, or `--keep-params`.
    run: the run's row in the folder.

  Returns:
    NumPy arrays, in dictionaries as Flax names them.

  Raises:
    Mistake: there is no such run, it is not trained yet, its parameters were not kept, or they are damaged.
  """
  stored = checked(path)
  if stored is None:
    raise Mistake(f"{path} is no results folder: give one that `vmapseeds train --keep-params` made")
  if not stored.get("variables"):
    raise Mistake(f"{path} holds no trained parameters: `vmapseeds train --keep-params` into a new folder keeps them")
  with readable(path):
    results = Results(path)
    done = results.done
    if at_least("run", run, 0) >= len(done):
      raise Mistake(f"run {run} of a folder with {len(done)}: the last is {len(done) - 1}")
    if not done[run]:
      raise Mistake(f"run {run} of {path} is not trained yet: `vmapseeds train` with the same --out goes on")
    variables = {}
    for name in stored["variables"]:
      *parents, leaf = name.split(".")
      inner = variables
      for parent in parents:
        inner = inner.setdefault(parent, {})
      inner[leaf] = results.array(f"{VARIABLES}/{name}")[run]
  return variables
