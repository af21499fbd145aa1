"""How a campaign is trained: what its results do not depend on, or by rounding alone, and what is kept of each run.

The command line has a flag for each field, whose help is the text below it.
"""

import dataclasses
from typing import Annotated, Any, Self

from tyro.conf import arg

from vmapseeds.mistakes import Mistake, UnknownField, at_least, one_of


def _hint(metavar: str, default: str) -> Any:
  return arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkOptions:
  """What changes nothing of a folder that is there: so `vs.work` takes it too."""

  seed_batch: Annotated[int | None, _hint("N", "256, or what fits in memory")] = None
  """runs trained between two writes, and runs of a block in a new folder; an interruption loses at most these"""

  checkpoint_every: Annotated[int | None, _hint("EPOCHS", "none")] = None
  """save the runs in training every so many epochs, or rounds of a task; an interruption loses at most these"""

  force_mixed: bool = False
  """go on although recipe, package versions, device kind, lane width, lowering or precision are others than the
  folder's, which says so from then on"""

  progress: bool = True
  """say on stderr what was chosen and how far it is"""

  def __post_init__(self):
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if field.type is bool and value not in (True, False):
        raise Mistake(f"{field.name} is {value!r:.100}: give True or False")
      if field.name in ("seed_batch", "lane_width", "checkpoint_every") and value is not None:
        at_least(field.name if field.name == "checkpoint_every" else field.name.replace("_", " "), value, 1)

  @classmethod
  def of(cls, **given: Any) -> Self:
    """These options. `UnknownField` (a TypeError) for a name that is none."""
    names = [field.name for field in dataclasses.fields(cls)]
    for name in given:
      one_of("option", name, names, UnknownField)
    return cls(**given)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(WorkOptions):
  """What `vs.train` and Ray take by these names. Raises `Mistake` for a value that is not allowed."""

  lane_width: Annotated[int | None, _hint("N", "the folder's, else measured")] = None
  """lanes that a device advances together, at most the seed batch; results depend on it by rounding, so a folder keeps
  one; narrower where the devices' memory does not hold so many"""

  lowering: Annotated[str | None, _hint("NAME", "the folder's, else measured")] = None
  """how convolutions run their lanes: im2col, grouped or sequential; results depend on it by rounding"""

  tallies: bool = True
  """of a new folder: count runs where they finish, so that `vs.tally` and reports need not read predictions; of
  classifiers, and of runs that differ in seeds alone"""

  pairs: bool = False
  """of a new folder: count joint errors of all pairs of examples too, n² numbers a seed batch"""

  predictions: Annotated[str, arg(metavar="all|none")] = "all"
  """none keeps tallies, accuracies and numbers of errors alone: a few bytes a run"""

  logits: bool = False
  """keep logits beside predictions"""

  keep_params: bool = False
  """keep the trained parameters and batch statistics of all runs, for vs.load_networks"""

  def __post_init__(self):
    super().__post_init__()
    one_of("predictions", self.predictions, ("all", "none"))
    if self.lowering is not None:
      from vmapseeds.lanes import LOWERINGS  # help needs no JAX

      one_of("lowering", self.lowering, LOWERINGS)
