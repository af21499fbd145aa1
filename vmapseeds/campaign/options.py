"""Campaign options: how runs are executed (affects results only by rounding) and what is
stored for each run.
"""

import dataclasses
from typing import Literal

from vmapseeds.errors import UserError, check_at_least, check_one_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkOptions:
  """Options that change nothing in an existing folder; `vs.work` takes them too.

  Args:
    seed_batch: how many runs are trained and written together, and in a new folder form
      a block; an interruption loses at most these (default: 256, or what fits in memory)
    checkpoint_every: save runs in training every EPOCHS epochs, or rounds of a task;
      auto chooses the interval so that saving takes at most 2 % of the time; an
      interruption loses at most these (default: auto where a seed batch trains for
      longer than a minute)
    force_mixed: resume even where recipe, package versions, device kind, lane width,
      lowering or precision differ from the folder's; the folder records that
    progress: print on stderr what was chosen and how far the training is
  """

  seed_batch: int | None = None
  checkpoint_every: int | Literal["auto", "never"] | None = None
  force_mixed: bool = False
  progress: bool = True

  def __post_init__(self):
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if isinstance(field.default, bool) and value not in (True, False):
        raise UserError(f"{field.name} is {value!r:.100}: give True or False")
    self._check_number("seed_batch", "seed batch")
    self._check_number("lane_width", "lane width")
    if self.checkpoint_every not in ("auto", "never"):
      self._check_number("checkpoint_every", "checkpoint_every")

  def _check_number(self, field, name):
    """Check that a field, if there is one and it is given, is at least 1."""
    value = getattr(self, field, None)
    if value is not None:
      # The dataclass is frozen; `check_at_least` makes numbers of NumPy into those of Python.
      object.__setattr__(self, field, check_at_least(name, value, 1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(WorkOptions):
  """The options of `vs.train`.

  Args:
    lane_width: lanes that a device advances together, at most the seed batch; results
      depend on it by rounding, so a folder keeps one; it is reduced if the devices'
      memory is too small (default: the folder's, else measured)
    lowering: how convolutions run their lanes: im2col, grouped or sequential; results
      depend on it by rounding (default: the folder's, else measured)
    tallies: whether a new folder's votes and errors are counted on the devices, one set
      for each combination of swept values, so that `vs.tally` and reports need not read
      predictions; only for classifiers without label maps
    pairs: in a new folder, also count the joint errors of all pairs of n examples: n²
      numbers per seed batch and combination
    predictions: all, or none to keep only tallies, accuracies and numbers of errors:
      then no prediction leaves the devices, and a run takes a few bytes
    logits: keep logits beside predictions
    keep_params: keep the trained parameters and batch statistics of all runs, for
      vs.load_networks

  Raises:
    UserError: a value that is not allowed.
  """

  lane_width: int | None = None
  lowering: str | None = None
  tallies: bool = True
  pairs: bool = False
  predictions: Literal["all", "none"] = "all"
  logits: bool = False
  keep_params: bool = False

  def __post_init__(self):
    super().__post_init__()
    check_one_of("predictions", self.predictions, ("all", "none"))
    if self.lowering is not None:
      from vmapseeds.convolutions import LOWERINGS  # help needs no JAX

      check_one_of("lowering", self.lowering, LOWERINGS)
