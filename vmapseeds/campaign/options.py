"""How a campaign is trained: what its results do not depend on, or by rounding alone, and what is kept of each run."""

import dataclasses
from typing import Any

from vmapseeds.lanes.convolution import LOWERINGS
from vmapseeds.mistakes import Mistake, UnknownField, at_least, one_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """What `vs.train`, `vs.work` and Ray take by these names. Raises `Mistake` for a value that is not allowed."""

  seed_batch: int | None = None
  """runs trained between two writes: an interruption loses at most these; results do not depend on it. Given none, 256
  or what fits in the host's memory, in whole steps of all lanes. That of a new folder is how many runs a block has"""

  lane_width: int | None = None
  """lanes that a device advances together, at most the seed batch. Given none, the folder's, else chosen, see
  `campaign.benchmark.choose`. Results depend on it by rounding, so a folder keeps one. When the devices' memory does
  not hold so many, and the folder has no finished runs, a narrower one is taken"""

  lowering: str | None = None
  """how convolutions run their lanes, one of `lanes.LOWERINGS`; the same holds for it"""

  logits: bool = False
  """keep logits beside predictions"""

  keep_params: bool = False
  """keep the trained parameters and batch statistics of all runs, see `vs.load_networks`"""

  checkpoint_every: int | None = None
  """after so many epochs each, the runs of the seed batch are saved in the folder's `checkpoints`, so that an
  interruption loses at most these; removed when the runs are written. Given none, nothing is saved"""

  force_mixed: bool = False
  """go on with a folder whose recipe, package versions, device kind, lane width, lowering or precision are others. Its
  attributes then say so, and the records of its blocks what each run was trained with"""

  progress: bool = True
  """say on stderr what was chosen and how far it is"""

  def __post_init__(self):
    for name in ("seed_batch", "lane_width", "checkpoint_every"):
      if getattr(self, name) is not None:
        at_least(name.replace("_", " ") if name != "checkpoint_every" else name, getattr(self, name), 1)
    if self.lowering is not None:
      one_of("lowering", self.lowering, LOWERINGS)
    for name in ("logits", "keep_params", "force_mixed", "progress"):
      if getattr(self, name) not in (True, False):
        raise Mistake(f"{name} is {getattr(self, name)!r:.100}: give True or False")

  @classmethod
  def of(cls, **given: Any) -> "Options":
    """These options. `UnknownField` (a TypeError) for a name that is none."""
    for name in given:
      one_of("option", name, NAMES, UnknownField)
    return cls(**given)


NAMES = tuple(field.name for field in dataclasses.fields(Options))
# What changes nothing of a folder that is there, and so may be given to whoever goes on with it.
OF_WORK = ("seed_batch", "checkpoint_every", "force_mixed", "progress")
