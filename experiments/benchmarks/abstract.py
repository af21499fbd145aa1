"""Tasks with shapes in place of data: what is compiled or timed needs no data set."""

import jax
import numpy as np

from vmapseeds.data import Dataset, Examples
from vmapseeds.training.recipe_data import check_data, dataset_of, put_sets_on_device
from vmapseeds.training.recipe_setup import RecipeSetup
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.supervised import make_task
from vmapseeds.training.task import Task

# Data sets with equally many examples of each class: (height, width, channels),
# classes, training and test examples. Programs depend on nothing else about the data,
# so compiling them needs no data.
BALANCED = {
  "cifar10": ((32, 32, 3), 10, 50_000, 10_000),
  "experiments.banerjee2024.groups:cifar10": ((32, 32, 3), 2, 40_000, 8_000),
}


def abstract_task(recipe: Recipe) -> Task:
  """Return the recipe's task with shapes and dtypes in place of data, to estimate its
  speed. Data sets in `BALANCED` are not loaded.

  Raises:
    UserError: another data set cannot be loaded.
  """
  known = recipe
  if recipe.dataset in BALANCED and set(recipe.test_sets) <= {"train", "test"}:
    dataset = balanced_dataset(recipe.dataset)
    channels = dataset.train.inputs.shape[-1]
    known = recipe.replace(dataset=dataset, mean=(0,) * channels, std=(1,) * channels)
  data = dataset_of(known)
  check_data(known, data, data.num_classes)
  sets = put_sets_on_device(known, data, data.num_classes)
  shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), sets)
  return make_task(RecipeSetup.on_sets(recipe, sets), data=shapes)


def balanced_dataset(name: str) -> Dataset:
  """Return black images in place of one of the data sets in `BALANCED`."""
  shape, num_classes, num_train, num_test = BALANCED[name]

  def examples(n):
    # Of one byte, broadcast: it takes no memory.
    inputs = np.broadcast_to(np.uint8(0), (n, *shape))
    return Examples(inputs, np.arange(n, dtype=np.int32) % num_classes)

  return Dataset(train=examples(num_train), test=examples(num_test), name=name)
