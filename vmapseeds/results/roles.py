"""The roles of outputs that reports are about, and what is said of each: a table that
statistics, run tables, examples, pages and comparisons read.

To add a role, write what is stored of it in `training.outputs.ROLES`, and a `Role` here.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from vmapseeds.results.formatting import ACCURACY, Quantity, joined

Attributes = Mapping[str, Any]  # of an output in a folder


def stored_numbers(results: xr.Dataset, name: str) -> np.ndarray:
  """Return an output as it is stored."""
  return results[name].values


class Role(NamedTuple):
  """What reports say of the outputs of a role.

  Attributes:
    heading: of the statistics of a run's number.
    noun: what a run's number is.
    column: what it is called in `vs.run_table`, with {} for the output's name.
    quantity: it and its unit, of the output's name and attributes.
    suffix: end of the names of its statistics.
    parts: what it is the mean of: errors or losses of examples; empty if it is of none.
    has_votes: whether runs vote for a class of each example. Else examples have losses,
      if a run's number is a mean of them.
    numbers: the loss of each example, (run, ...), or the number of each run; not of votes.
    higher_is_better: None where the output's attributes say it.
  """

  heading: str
  noun: str
  column: str
  quantity: Callable[[str, Attributes], Quantity]
  suffix: str = ""
  parts: str = ""
  has_votes: bool = False
  numbers: Callable[[xr.Dataset, str], np.ndarray] = stored_numbers
  higher_is_better: bool | None = None


def number(name: str, attributes: Attributes) -> Quantity:
  """Return the quantity of an output of one number a run."""
  return Quantity(name, attributes.get("unit") or "number")


def mean_number(name: str, attributes: Attributes) -> Quantity:
  """Return the quantity of an output of one number an example."""
  return number("mean loss" if name == "losses" else f"mean {name}", attributes)


ROLES = {
  "class": Role(
    heading="Accuracy",
    noun="accuracy",
    column="accuracy",
    quantity=lambda name, attributes: ACCURACY,
    suffix="_accuracy",
    parts="errors",
    has_votes=True,
    higher_is_better=True,
  ),
  "loss": Role(
    heading="Mean loss",
    noun="loss",
    column="mean_{}",
    quantity=mean_number,
    suffix="_loss",
    parts="losses",
    higher_is_better=False,
  ),
  "score": Role(heading="Score", noun="score", column="{}", quantity=number),
}


# Recorded predictions without labels, which no task declares: runs disagree with each other.
VOTE = Role(
  heading="Disagreement",
  noun="disagreement",
  column="disagreement",
  quantity=lambda name, attributes: Quantity("disagreement", "fraction"),
)
REPORTED_ROLES = {**ROLES, "vote": VOTE}


REPORTED = joined(ROLES, "or")
OF_EXAMPLES = joined((name for name, role in ROLES.items() if role.parts), "or")
