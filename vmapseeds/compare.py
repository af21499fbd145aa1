"""Whether one recipe outperforms another: P(A > B) of their runs (Bouthillier et al. 2021, appendix C)."""

import functools
import os

import jax
import numpy as np
import xarray as xr
from rich.console import Console
from rich.table import Table

from vmapseeds import stats
from vmapseeds.errors import Mistake
from vmapseeds.results import open_results
from vmapseeds.runs import SOURCES


def compare(
  a: str | os.PathLike, b: str | os.PathLike, *, gamma: float = 0.75, test_set: str = "test",
  console: Console | None = None,
) -> stats.Decision:  # fmt: skip
  """Prints P(A > B) of accuracies, its 95 % interval and the decision, and returns them.

  Runs that have the same seeds in both are pairs, and only pairs are compared; results without any such runs are
  compared all against all. Diverged runs are left out.

  Raises:
    Mistake: a folder without finished runs, or a gamma outside (1/2, 1].
  """
  results = [_finished(folder, test_set) for folder in (a, b)]
  if results[0].labels.shape != results[1].labels.shape or (results[0].labels != results[1].labels).any():
    raise Mistake(f"{a} and {b} were tested on different examples: compare results of one test set")
  seeds = [_seeds(r) for r in results]
  _, in_a, in_b = np.intersect1d(*seeds, return_indices=True)
  # Seeds that repeat (a sweep) do not say which run belongs to which.
  unique = all(len(np.unique(s)) == len(s) for s in seeds)
  paired = unique and len(in_a) > 0
  accuracy_a, accuracy_b = (r.accuracy.values for r in results)
  if paired:
    accuracy_a, accuracy_b = accuracy_a[in_a], accuracy_b[in_b]
  key = None if paired else jax.random.key(0)
  decision = stats.decide(accuracy_a, accuracy_b, gamma=gamma, paired=paired, key=key)

  table = Table("", "A", "B")
  table.add_row("results", str(a), str(b))
  table.add_row("runs compared", *(f"{len(x)}" for x in (accuracy_a, accuracy_b)))
  table.add_row("mean accuracy", *(f"{x.mean():.3%}" for x in (accuracy_a, accuracy_b)))
  table.add_row("standard deviation", *(_sd(x) for x in (accuracy_a, accuracy_b)))
  console = console or Console()
  console.print(table)
  # Sentences are left to the terminal to wrap, so that they can be searched and piped.
  say = functools.partial(console.print, soft_wrap=True, highlight=False)
  say(
    f"P(A > B) = {float(decision.probability):.3f}, 95 % interval {float(decision.low):.3f} to "
    f"{float(decision.high):.3f}, over {'pairs of runs with the same seeds' if paired else 'all pairs of runs'}"
  )
  say(f"{decision.decision} (γ = {gamma}; Bouthillier et al. 2021, appendix C.6)")
  needed = int(stats.paired_sample_size(gamma) if paired else stats.noether_sample_size(gamma))
  if min(len(accuracy_a), len(accuracy_b)) < needed:
    say(f"Few runs: {needed} {'pairs' if paired else 'runs each'} find P(A > B) = {gamma} with 95 % power.")
  return decision


def _finished(folder: str | os.PathLike, test_set: str) -> xr.Dataset:
  results = open_results(folder, test_set)
  kept = results.isel(run=np.flatnonzero(~results.diverged.values))
  if not kept.sizes["run"]:
    raise Mistake(f"{folder} has no finished runs that did not diverge: train some first")
  return kept


def _seeds(results: xr.Dataset) -> np.ndarray:
  """One structured value a run, equal where all seeds are."""
  return np.rec.fromarrays([results[f"seed_{source}"].values for source in SOURCES], names=list(SOURCES))


def _sd(accuracy: np.ndarray) -> str:
  return f"{accuracy.std(ddof=1):.3%}" if len(accuracy) > 1 else "needs two runs"
