"""The trained variables of all runs: parameters and other collections, in the group
`variables` of a results folder.

There is one array per leaf. Its first axis is the run, in the same blocks as all other
arrays of runs. Its name is the leaf's path with dots: `params.Conv_0.kernel`,
`batch_stats.BatchNorm_0.mean`.
"""

import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

import flax
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import unflatten_dict
from jaxtyping import Array, Float, Integer, PyTree, Real

from vmapseeds.errors import UserError, hide_own_frames, option
from vmapseeds.machine import free_host_memory
from vmapseeds.results.description import MIXED, campaign_of, stored_variable_shapes
from vmapseeds.store.files import Folder
from vmapseeds.store.layout import bytes_of, read_verified_metadata, require_metadata
from vmapseeds.store.results import Results
from vmapseeds.training import objects
from vmapseeds.training.inputs import normalize
from vmapseeds.training.moments import from_origin, origin_of
from vmapseeds.training.networks import layers_of, make_network, product_precision
from vmapseeds.training.recipe_outputs import VARIABLES
from vmapseeds.training.recipes import Recipe


class Networks(NamedTuple):
  """Trained networks of a results folder.

  `apply(variables, images)` returns one network's logits (examples, classes), float32.
  It takes images as the data set has them, (examples, height, width, channels), and
  normalises them as the training did. For many networks use `jax.vmap(networks.apply,
  (0, None))(networks.variables, images)`.
  """

  # `params`, where there are some `batch_stats` and other collections and, of runs with
  # training examples of their own, `input_moments`; first axis the run
  variables: PyTree[Float[np.ndarray, "..."]]
  apply: Callable[
    [PyTree[Float[Array, "..."]], Real[Array, "examples height width channels"]],
    Float[Array, "..."],
  ]


@hide_own_frames
def load_networks(path: Folder, runs: int | Sequence[int] | None = None) -> Networks:
  """Load the trained networks of a results folder, to apply them to any images.

  >>> networks = vs.load_networks("results/mine", runs=[0, 17])  # doctest: +SKIP
  >>> jax.vmap(networks.apply, (0, None))(networks.variables, images).argmax(-1)  # doctest: +SKIP

  Args:
    path: a results folder that was trained with `keep_params=True`, or `--keep-params`.
    runs: rows of the folder. None means all trained runs, in the order of
      `open_results`. A single number means that run's network, without the axis of
      runs.

  Returns:
    `Networks`: their variables, in dictionaries as Flax names them, and the function
      that applies them.

  Raises:
    UserError: there are no such runs, they are not trained yet, their parameters were not
      kept, do not fit in memory or are damaged. From `apply`: images that the networks
      cannot take.
  """
  stored = require_metadata(path)
  if not stored_variable_shapes(stored):
    raise UserError(
      f"{path} holds no trained parameters: `vmapseeds train --keep-params` into a new folder keeps them"
    )
  # `apply` normalises images as the training did, which is one way for all networks.
  if MIXED in (stored["mean"], stored["std"]):
    raise UserError(
      f"{path} has no one mean and std of pixels: its networks were trained with different ones"
    )
  results = Results(path, stored)
  rows = _rows(path, runs, results.done)
  leaves = _read(results, rows, list(stored_variable_shapes(stored)))
  variables = unflatten_dict({layers_of(name): leaf for name, leaf in leaves.items()})
  # Of a sweep, runs may differ in what their evaluation does not depend on, such as lr.
  recipes = {
    _evaluation_settings(recipe): recipe
    for recipe in _recipes(path, np.atleast_1d(rows))
  }
  if len(recipes) > 1:
    raise UserError(
      f"{path} has networks of several models, which no one function applies: give runs "
      "of one of them"
    )
  _, recipe = recipes.popitem()
  return Networks(variables, _apply(recipe, stored))


def _recipes(path, rows):
  """Return the recipe of each run, with the fields that a sweep gave it."""
  runs, results = campaign_of(path)
  shared = Recipe.from_json(results.root["recipe"])
  swept = [name for name in runs.values if name in shared.swept_fields]
  recipes = []
  for row in rows:
    values_of_run = {name: runs.values[name][row].item() for name in swept}
    recipes.append(shared.with_swept(values_of_run))
  return recipes


def _evaluation_settings(recipe):
  """Return what the evaluation of a recipe's networks depends on."""
  fields = ("model", "eval_model", "model_args", "width", "depth", "precision")
  return json.dumps([objects.to_spec(getattr(recipe, field)) for field in fields])


def _read(results, rows, names):
  """Read some variables of stored networks.

  Raises:
    UserError: they do not fit in memory.
  """
  arrays = results.root["arrays"]
  bytes_of_run = sum(bytes_of(arrays[f"{VARIABLES}/{name}"]) for name in names)
  needed = rows.size * bytes_of_run
  # Said here, because the system would end the process without a word.
  if needed > free_host_memory():
    raise UserError(
      f"{rows.size} networks take {needed / 1e9:.3g} GB, more than memory is free: give fewer runs"
    )
  return {name: results.read(f"{VARIABLES}/{name}", rows) for name in names}


class StoredNetworks:
  """The networks of a results folder as the start of other runs: a
  `training.recipe_runs.Base`.

  Raises:
    UserError: there is no such folder, its parameters were not kept, or runs are left to
      train.
  """

  def __init__(self, path: str):
    self.path = path
    root = read_verified_metadata(path)
    if root is None:
      raise UserError(
        f"start_from is {path}, which is not a results folder: train it first, or put it back"
      )
    if not stored_variable_shapes(root):
      raise UserError(
        f"start_from is {path}, which holds no trained parameters: train it with keep_params=True"
      )
    self.results = Results(path, root)
    # A run that starts from a network must find it whenever it is repeated.
    if not self.results.done.all():
      raise UserError(
        f"start_from is {path}, where runs are left to train: `vmapseeds work {path}` first"
      )
    self.shapes = {
      name: tuple(shape) for name, shape in stored_variable_shapes(root).items()
    }
    # The records have a digest of each array of each block, so no network is read.
    digests = []
    for block in range(len(self.results.blocks)):
      record = self.results.record(block) or {}
      digests.append([record["digests"][f"{VARIABLES}/{name}"] for name in self.shapes])
    text = json.dumps(digests).encode()
    self.digest = hashlib.blake2b(text, digest_size=8).hexdigest()

  def __len__(self) -> int:
    return len(self.results)

  def load(
    self, rows: Integer[np.ndarray, " networks"], names: Sequence[str]
  ) -> dict[str, np.ndarray]:
    """Load the variables `names` of the networks in these rows. The first axis is the
    network.
    """
    return self._loaded(tuple(rows), tuple(names))

  # The first run's variables are requested many times.
  @functools.lru_cache(maxsize=1)  # noqa: B019
  def _loaded(self, rows, names):
    # Many runs may start from one network, which is read once.
    distinct, places = np.unique(rows, return_inverse=True)
    variables = _read(self.results, distinct, names)
    return {name: leaves[places] for name, leaves in variables.items()}


@hide_own_frames
def _rows(path, runs, done):
  """Return the rows of the requested runs.

  Raises:
    UserError: a run does not exist or is not trained.
  """
  if runs is None:
    return np.flatnonzero(done)
  rows = np.asarray(runs)
  is_row_or_list = rows.dtype.kind in "iu" and rows.ndim < 2 and rows.size > 0
  # A negative number would count from the end, which moves when runs are added.
  if not is_row_or_list or rows.min() < 0:
    raise UserError(
      f"runs is {runs!r:.100}: give the number of a run, from 0, or a list of such"
    )
  if rows.max() >= len(done):
    raise UserError(
      f"run {rows.max()} of a folder with {len(done)}: the last is {len(done) - 1}"
    )
  if not done[rows].all():
    run = rows[~done[rows]][0]
    raise UserError(
      f"run {run} of {path} is not trained yet: `vmapseeds train` with the same "
      f"{option('out')} resumes"
    )
  return rows


def _apply(recipe, stored):
  """Make `Networks.apply` for a folder with this recipe and these attributes."""
  precision = stored["precision"]
  if precision in (MIXED, None):
    precision = recipe.precision
  shared_mean, shared_std = _moment(stored["mean"]), _moment(stored["std"])
  # Of runs with moments of their own, it is all that the folder has.
  origin = shared_mean
  if shared_mean is not None and shared_std is not None:
    origin = origin_of(shared_mean, shared_std)
    if origin is not None:
      shared_mean = shared_mean - origin

  def apply(variables, inputs):
    # Outside of the program, which computes in 32 bits.
    if origin is None or np.shape(inputs)[-1:] != origin.shape:
      return apply_in_32_bits(variables, inputs)
    if isinstance(inputs, jax.core.Tracer):
      inputs = inputs - jnp.asarray(origin, jnp.float32)
    else:
      inputs = from_origin(inputs, origin)
    return apply_in_32_bits(variables, inputs)

  @jax.jit
  def apply_in_32_bits(variables, inputs):
    moments = variables.get("input_moments")
    mean, std = shared_mean, shared_std
    if moments is not None:
      mean, std = moments["mean"], moments["std"]
    # The model does not know the moments, which only normalise its inputs.
    of_model = {
      name: leaves for name, leaves in variables.items() if name != "input_moments"
    }
    model = make_network(recipe.replace(precision=precision), stored["num_classes"])

    problem = f"inputs have shape {inputs.shape}"
    remedy = _remedy_of_inputs(recipe, mean)
    has_channels = mean is None or inputs.shape[-1:] == (len(mean),)
    if inputs.ndim < 2 or not has_channels:
      raise UserError(f"{problem}: {remedy}")
    if mean is not None:
      mean = jnp.asarray(mean, jnp.float32)
    if std is not None:
      std = jnp.asarray(std, jnp.float32)
    try:
      with product_precision(precision):
        outputs = model.apply(of_model, normalize(inputs, mean, std))
    # It says already what to do.
    except UserError:
      raise
    except (TypeError, ValueError, flax.errors.ScopeParamShapeError) as error:
      # An error of this package's own code is no mistake of the user.
      if objects.is_ours(error):
        raise
      raise UserError(
        f"{problem}, which these networks cannot take "
        f"({objects.describe_exception(error)}): {remedy}"
      ) from error
    return outputs.astype(jnp.float32)

  return apply


def _moment(stored):
  """Return a folder's mean or standard deviation of inputs, None if it has none."""
  return None if stored is None else np.asarray(stored, np.float64)


def _remedy_of_inputs(recipe, mean):
  """Return what inputs to give to the networks of a recipe."""
  dataset = objects.to_spec(recipe.dataset)
  if not isinstance(dataset, str):
    dataset = dataset["object"]
  batch = "a batch"
  if mean is not None:
    batch = f"(examples, ..., {len(mean)})"
  return f"give {batch}, as in {dataset}"
