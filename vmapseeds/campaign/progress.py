"""Shows how far a campaign is: by a live line on a terminal, else by a printed line now
and then.
"""

import math
import sys
import time
from datetime import timedelta

import numpy as np
from jaxtyping import Float
from rich.console import Console
from rich.live import Live
from rich.text import Text

INTERVAL = 30.0  # seconds between two lines where there is no terminal


class Progress:
  """Runs done, runs per second, mean and standard deviation of accuracy so far, time
  left; a context manager.

  Args:
    total: how many runs there will be.
    accuracies: those of the runs that are done and did not diverge.
    done: how many are done; the caller updates it when other processes train some,
      whose accuracies are not shown.
    shown: whether anything is said at all.
  """

  def __init__(
    self, total: int, done: int, accuracies: Float[np.ndarray, " runs"], shown: bool
  ):
    self.total, self.done, self.trained = total, done, 0
    self.training: str | None = None
    self.doing = "compiling"  # while no run is in training
    self.accuracies = np.array([])
    self.begun, self.before = time.monotonic(), 0
    self.first: float | None = None
    self.add(accuracies)
    console = Console(stderr=True)
    self.live = (
      Live(console=console, get_renderable=self._text)
      if shown and console.is_terminal
      else None
    )
    self.plain, self.printed = shown and self.live is None, self.begun

  def __enter__(self) -> "Progress":
    if self.live:
      self.live.start()
    return self

  def __exit__(self, *_) -> None:
    if self.live:
      self.live.stop()
    elif self.plain:
      print(self.line(), file=sys.stderr)

  def add(self, accuracies: Float[np.ndarray, " runs"]) -> None:
    """Adds the accuracies of more runs."""
    self.accuracies = np.append(self.accuracies, accuracies[np.isfinite(accuracies)])

  def at_epoch(self, runs: int, epochs: int, resumed: bool) -> None:
    """Shows that `runs` runs have trained for `epochs` epochs; `resumed` if they go on
    from a checkpoint there.
    """
    self.training = f"{runs} at epoch {epochs}"
    if (
      self.first is None
    ):  # runs will come out in a burst, so that their speed must count from the beginning
      self.first, self.before = self.begun, 0
    if resumed and (self.live or self.plain):
      print(f"{runs} runs go on after epoch {epochs}", file=sys.stderr)
    else:
      self._print()

  def trained_more(self, runs: int, accuracies: Float[np.ndarray, " runs"]) -> None:
    """Counts `runs` more runs that this process has trained."""
    self.training = None
    self.trained += runs
    self.done += runs
    self.add(accuracies)
    if self.first is None:
      self.first, self.before = time.monotonic(), self.trained
    self._print()

  def waits(self, others: bool) -> None:
    """Says whether this process only waits for others, who train what is left."""
    self.doing = "waiting for other processes" if others else "compiling"
    if others:
      self._print()

  def _print(self) -> None:
    if self.plain and time.monotonic() - self.printed >= INTERVAL:
      self.printed = time.monotonic()
      print(self.line(), file=sys.stderr)

  def speed(self) -> float | None:
    """Runs per second of this process, without the first compilation if that can be
    told apart; None at first.
    """
    if self.first is None:
      return None
    now = time.monotonic()
    if self.trained > self.before:
      return (self.trained - self.before) / max(now - self.first, 1e-9)
    return self.trained / max(now - self.begun, 1e-9)

  def line(self) -> str:
    """The progress as one line of text."""
    parts = [f"{self.done}/{self.total} runs"]
    if self.training:
      parts.append(self.training)
    speed = self.speed()
    if speed:
      parts.append(f"{speed:.3g} runs/s")
    elif self.done < self.total and not self.training:
      parts.append(self.doing)
    if count := len(self.accuracies):
      mean, sd = (
        self.accuracies.mean(),
        self.accuracies.std(ddof=1) if count > 1 else math.nan,
      )
      parts.append(f"accuracy {_with_error(mean, sd / math.sqrt(count))}")
      if count > 1:
        parts.append(f"σ {_with_error(sd, sd / math.sqrt(2 * (count - 1)))}")
    if speed and self.done < self.total:
      parts.append(f"{timedelta(seconds=round((self.total - self.done) / speed))} left")
    return ", ".join(parts)

  def _text(self) -> Text:
    return Text(self.line(), no_wrap=True, overflow="ellipsis")


def _with_error(value: float, error: float) -> str:
  return (
    f"{value:.2%}" if math.isnan(error) else f"{100 * value:.3f} ± {100 * error:.3f} %"
  )
