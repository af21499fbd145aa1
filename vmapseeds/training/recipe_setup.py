"""What the task of a recipe is made of."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from vmapseeds.training.evaluation import depends_on_batch
from vmapseeds.training.holding_out import HeldOutEvaluation
from vmapseeds.training.inputs import DeviceExamples, Sets
from vmapseeds.training.outputs import DEFAULT_KEEP, Keep
from vmapseeds.training.recipes import Recipe


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RecipeSetup:
  """A recipe on its sets, and what is measured and kept of each run.

  Attributes:
    recipe: what is trained.
    sets: what it is trained and tested on.
    keep: what is kept of each run.
    num_train: how many examples each run is trained on.
    held_out: the examples that runs hold out, if any.
    whole_loss: whether the loss depends on its batch, and so is one number of a run.
    own_moments: whether inputs of a run are normalised by the moments of its own
      training examples.
    class_names: names of the classes.
    twins: by test set, where in the training set its examples are too.
    ids: by set, the ids of its examples.
  """

  recipe: Recipe
  sets: Sets
  keep: Keep = DEFAULT_KEEP
  num_train: int
  held_out: HeldOutEvaluation | None = None
  whole_loss: bool
  own_moments: bool = False
  class_names: Sequence[str] | None = None
  twins: Mapping[str, Int[np.ndarray, " examples"]] = dataclasses.field(
    default_factory=dict
  )
  ids: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

  @classmethod
  def on_sets(
    cls,
    recipe: Recipe,
    sets: Sets,
    *,
    num_train: int | None = None,
    held_out: HeldOutEvaluation | None = None,
    **attributes: Any,
  ) -> "RecipeSetup":
    """Return the setup of a recipe on these sets. By default, runs are trained on the
    whole training set.
    """
    train, _ = sets
    whole_loss = depends_on_batch(recipe, train)
    if held_out is not None:
      held_out = dataclasses.replace(held_out, whole_loss=whole_loss)
    return cls(
      recipe=recipe,
      sets=sets,
      num_train=num_train or len(train),
      held_out=held_out,
      whole_loss=whole_loss,
      **attributes,
    )

  @property
  def train(self) -> DeviceExamples:
    return self.sets[0]

  @property
  def tests(self) -> dict[str, DeviceExamples]:
    return self.sets[1]
