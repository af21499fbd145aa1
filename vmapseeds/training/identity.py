"""The identity of a task: what decides the law from which its runs are drawn.

It is made of the programs of one lane in a canonical form, and of all data that these
read. Values are columns of the runs table, and so are not in it. What changes the last
bits of a run at most (the machine, how lanes are run) is a condition, and is not in it
either.
"""

import hashlib
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax
from jax.stages import Traced as Stage
from jaxtyping import PyTree

from vmapseeds.data.dataset import fingerprint
from vmapseeds.errors import UserError
from vmapseeds.training.task import STAGES, Traced, data_digest

# Changes when seeds, subsets or bootstrap samples are drawn in another way on the host,
# which no program shows.
LAW = 1
# Operations whose results no program determines.
CALLBACKS = {"pure_callback", "io_callback"}

Identity = dict[str, Any]  # ready for JSON


def identify(
  traced: Traced, fixed: Mapping[str, Traced] = MappingProxyType({})
) -> Identity:
  """Return the identity of a traced task.

  Args:
    traced: the task, traced for a run with its own values.
    fixed: it, traced for other `fixed` values, by what these are called.

  Returns:
    `start`, `advance` and `finish`: digests of these programs. `runs`: of what a row of
    the runs table has. `data`: of all arrays that they read, with labels and masks.
    `rounds`, `networks` (digest of those that runs start from), `version` (of the
    task), `law`. `fixed`: a digest of the programs for each of these.

  Raises:
    UserError: a program calls Python, and the task has no version.
  """
  task = traced.task
  programs = dict(zip(STAGES, traced.stages, strict=True))
  called = CALLBACKS & {equation.primitive.name for equation in traced.equations}
  if called and not task.version:
    raise UserError(
      f"{task.name} calls Python from its program ({', '.join(sorted(called))}), which "
      "no identity can show: give version='1', and another after each change of what is "
      "called"
    )
  digests = {name: program_digest(stage) for name, stage in programs.items()}
  fixed_digests = {}
  for name, variant in fixed.items():
    of_stages = "".join(map(program_digest, variant.stages))
    fixed_digests[name] = _digest(f"{variant.task.rounds}{of_stages}")
  return {
    "law": LAW,
    "rounds": task.rounds,
    "version": task.version,
    **digests,
    "runs": _digest(describe_leaves(traced.lane)),
    "data": data_digest(task),
    "networks": task.internal.conditions.get("networks_digest"),
    "fixed": fixed_digests,
  }


def are_same(theirs: Identity, mine: Identity) -> bool:
  """Return whether two identities are of one experiment. Programs for fixed values that
  only one of them has are no difference.
  """
  if theirs | {"fixed": {}} != mine | {"fixed": {}}:
    return False
  shared = theirs["fixed"].keys() & mine["fixed"].keys()
  return all(theirs["fixed"][name] == mine["fixed"][name] for name in shared)


def program_digest(stage: Stage) -> str:
  """Return a digest of a traced function: of its StableHLO text, as for CPUs, without
  what its author called things and where they stand in the source.
  """
  try:
    lowered = stage.lower(lowering_platforms=("cpu",))
  except Exception:  # it has operations that CPUs lack, of which each raises its own
    lowered = stage.lower()
  constants = fingerprint(list(stage.jaxpr.consts))
  return _digest(canonical_text(lowered.as_text()) + constants)


def canonical_text(text: str) -> str:
  """Return a StableHLO module with its functions numbered in place of their names, and
  without the names of results.
  """
  text = re.sub(r'(, )?jax\.result_info = "(\\.|[^"\\])*"(, )?', "", text)
  text = text.partition("\n")[2]  # the module has the function's name
  symbol = r'@("[^"]*"|[\w.$-]+)'
  names = re.findall(rf"func\.func private {symbol}", text)
  numbers = {name: f"@{n}" for n, name in enumerate(names)}
  return re.sub(symbol, lambda match: numbers.get(match[1], match[0]), text)


def describe_leaves(tree: PyTree) -> str:
  """Return the path, the shape and the dtype of each leaf."""
  leaves = jax.tree.leaves_with_path(tree)
  return repr([(jax.tree_util.keystr(p), a.shape, str(a.dtype)) for p, a in leaves])


def _digest(text):
  return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
