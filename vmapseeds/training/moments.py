"""The moments that inputs are normalised by: those of the training examples that all runs
share, or of each run's own.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Integer, Shaped

from vmapseeds.data import Dataset
from vmapseeds.data.dataset import MOST_OFFSET
from vmapseeds.errors import UserError
from vmapseeds.training.inputs import DeviceExamples
from vmapseeds.training.names import INPUT_MEAN, INPUT_STD
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Run

PART = 2**20  # numbers of inputs whose moments are summed at once

# Of what the moments are, as results say it.
GIVEN = "given"
SHARED = "the training set"
OWN = "each run's own training examples"

# Names of own moments beside a run's variables: no network of Flax has such a collection.
KEPT_MOMENTS = {"input_moments.mean": INPUT_MEAN, "input_moments.std": INPUT_STD}


LEAST_STD = 1e-36  # of inputs: smaller numbers lose digits in float32, or become 0


def moments_of(
  recipe: Recipe, data: Dataset
) -> tuple[Float[np.ndarray, " channels"], Float[np.ndarray, " channels"]]:
  """Return mean and standard deviation per channel (last axis), float64: the recipe's,
  or those of the training set's inputs.

  Raises:
    UserError: a channel is constant, or varies too little for float32; or the recipe's
      are of another number of channels.
  """
  inputs = data.train.inputs
  channels = channels_of(inputs)
  for name, declared in (("mean", recipe.mean), ("std", recipe.std)):
    if declared is not None and len(declared) != channels:
      raise UserError(
        f"{name} of {len(declared)} channels for {data.name} images of {channels}: give "
        f"{channels} or none"
      )
  # Inputs (n,) have one channel.
  axes = tuple(range(max(1, inputs.ndim - 1)))
  mean, std = recipe.mean, recipe.std
  if mean is None:
    mean = np.mean(inputs, axis=axes, dtype=np.float64)
  if std is None:
    std = std_in_parts(inputs, axis=axes, dtype=np.float64)
  std = np.asarray(std, np.float64)
  if recipe.std is None and np.any(inputs.max(axes) == inputs.min(axes)):
    remedy = ""
    if inputs.ndim == 3:
      remedy = ", or x[..., None] if these are images"
    raise UserError(
      f"a channel of {data.name} is constant: give std for each channel, or "
      f"normalize=False{remedy}"
    )
  if (std < LEAST_STD).any():
    raise UserError(
      f"a channel of {data.name} has a standard deviation of {std.min():.3g}, too small "
      "for float32, in which training computes: scale it up"
    )
  return np.asarray(mean, np.float64), std


class Centred(NamedTuple):
  """A data set as runs read it, and the moments of its inputs.

  Attributes:
    data: its inputs are less `origin`, in float32, if there is one.
    mean: per channel, less `origin`, float32; None if inputs are not normalised.
    std: likewise.
    origin: per channel, float64: the mean where this is so far from 0 that float32 would
      take most digits of what differs between inputs, else 0. None if it is 0 everywhere.
  """

  data: Dataset
  mean: Float[np.ndarray, " channels"] | None
  std: Float[np.ndarray, " channels"] | None
  origin: Float[np.ndarray, " channels"] | None


def centre(recipe: Recipe, data: Dataset) -> Centred:
  """Return a data set with inputs of at most 32 bits, centred where these would lose
  their digits.
  """
  mean = std = origin = None
  if recipe.normalize:
    mean, std = moments_of(recipe, data)
    # Bytes, and numbers of 16 bits, are exact in float32.
    if data.train.inputs.dtype.itemsize >= 4:
      origin = origin_of(mean, std)
    if origin is not None:
      mean = mean - origin
    mean, std = mean.astype(np.float32), std.astype(np.float32)

  def moved(examples):
    inputs = examples.inputs
    if origin is not None:
      inputs = from_origin(inputs, origin)
    elif inputs.dtype == np.float64:
      inputs = inputs.astype(np.float32)
    return dataclasses.replace(examples, inputs=inputs)

  if origin is not None or data.train.inputs.dtype == np.float64:
    tests = {name: moved(examples) for name, examples in data.tests.items()}
    data = dataclasses.replace(data, train=moved(data.train), tests=tests)
  return Centred(data, mean, std, origin)


def origin_of(
  mean: Float[np.ndarray, " channels"], std: Float[np.ndarray, " channels"]
) -> Float[np.ndarray, " channels"] | None:
  """Return the `origin` of `Centred` for inputs of such moments, float64."""
  is_far = np.abs(mean) > MOST_OFFSET * std
  return np.where(is_far, mean, 0.0) if is_far.any() else None


def from_origin(
  inputs: np.ndarray, origin: Float[np.ndarray, " channels"]
) -> Float[np.ndarray, "examples ..."]:
  """Return inputs less their origin, subtracted in float64, in float32."""
  shift = origin if inputs.ndim > 1 else origin[0]
  return (np.asarray(inputs, np.float64) - shift).astype(np.float32)


def channels_of(inputs: np.ndarray) -> int:
  """Return how many channels inputs have: the last axis of an input."""
  return inputs.shape[-1] if inputs.ndim > 1 else 1


def std_in_parts(
  inputs: np.ndarray, *, axis: tuple[int, ...], dtype: type
) -> np.ndarray:
  """Return `np.std`, computed in parts: NumPy would allocate all deviations from the
  mean, eight times as large as bytes.
  """
  mean: np.ndarray = np.mean(inputs, axis=axis, dtype=dtype)
  parts = np.array_split(inputs, math.ceil(inputs.size / PART))
  squares = sum(((part - mean) ** 2).sum(axis) for part in parts)
  numbers = inputs.size // mean.size  # of a channel
  return np.sqrt(squares / numbers)


@dataclasses.dataclass(frozen=True, eq=False)
class InputMoments:
  """What the moments of any of the training examples follow from.

  Attributes:
    means: of each example's channels over its other axes, as float64, or the inputs
      themselves if there are no other axes.
    squares: sums of squared deviations from these; 0 if there are no other axes.
    size: how many numbers of an example are in a channel.
    mean, std: what the recipe gives instead, per channel.
  """

  means: Shaped[np.ndarray, "examples channels"]
  squares: Float[np.ndarray, "examples channels"] | None
  size: int
  mean: tuple[float, ...] | None
  std: tuple[float, ...] | None

  @classmethod
  def of(cls, recipe: Recipe, centred: Centred) -> "InputMoments":
    """Return the moments of each example of a training set."""
    inputs = centred.data.train.inputs
    channels = channels_of(inputs)
    mean = recipe.mean
    if mean is not None and centred.origin is not None:
      mean = tuple(np.asarray(mean, np.float64) - centred.origin)
    if inputs.ndim < 3:
      return cls(inputs.reshape(-1, channels), None, 1, mean, recipe.std)
    size = inputs[0].size // channels
    means = np.empty((len(inputs), channels))
    squares = np.empty_like(means)
    for part in _parts(len(inputs), inputs[0].size):
      numbers = inputs[part].reshape(-1, size, channels)
      means[part] = numbers.mean(1, dtype=np.float64)
      squares[part] = ((numbers - means[part, None]) ** 2).sum(1)
    return cls(means, squares, size, mean, recipe.std)

  def of_runs(
    self, examples: Integer[np.ndarray, "runs examples"]
  ) -> dict[str, Float[np.ndarray, "runs channels"]]:
    """Return mean and standard deviation of each run's training examples. Where a run
    has a constant channel, its standard deviation is 1: it is centred, and not scaled.
    """
    # Runs may share their examples, as those that a table names once for all.
    _, first, same = np.unique(examples, axis=0, return_index=True, return_inverse=True)
    distinct = [self._of_run(examples[row]) for row in first]
    places = same.ravel()
    means = np.array([mean for mean, _ in distinct], np.float32)[places]
    stds = np.array([std for _, std in distinct], np.float32)[places]
    if self.mean is not None:
      means = np.broadcast_to(np.asarray(self.mean, np.float32), means.shape)
    if self.std is not None:
      stds = np.broadcast_to(np.asarray(self.std, np.float32), stds.shape)
    return {INPUT_MEAN: means, INPUT_STD: stds}

  def _of_run(self, examples):
    """Return mean and standard deviation of some examples, each as often as it is there."""
    counts = np.bincount(examples, minlength=len(self.means)).astype(np.float64)
    total = len(examples)
    # Deviations from one of the examples, so that those of a constant channel are 0.
    shift = self.means[examples[0]].astype(np.float64)
    parts = list(_parts(len(self.means), self.means.shape[1]))
    mean = shift + sum(counts[p] @ (self.means[p] - shift) for p in parts) / total
    # The variance within examples, and that between their means.
    squares = sum(counts[p] @ (self.means[p] - mean) ** 2 for p in parts)
    if self.squares is not None:
      squares = squares + counts @ self.squares / self.size
    std = np.sqrt(squares / total)
    return mean, np.where(std > 0, std, 1)


def _parts(examples: int, numbers: int) -> Iterator[slice]:
  """Yield slices of examples, so that a part has about `PART` numbers."""
  step = max(1, PART // numbers)
  for first in range(0, examples, step):
    yield slice(first, first + step)


def with_own_moments(
  sets: tuple[DeviceExamples, dict[str, DeviceExamples]], run: Run
) -> tuple[DeviceExamples, dict[str, DeviceExamples]]:
  """Return the training set and the test sets as a run sees them: normalised by the
  moments of its own training examples, if it has any.
  """
  mean, std = run.get(INPUT_MEAN), run.get(INPUT_STD)
  if mean is None:
    return sets

  def of_run(data):
    return dataclasses.replace(data, mean=mean, std=std)

  return jax.tree.map(of_run, sets, is_leaf=lambda x: isinstance(x, DeviceExamples))
