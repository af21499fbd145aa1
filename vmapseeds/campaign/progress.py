"""Show how far a campaign is: by a live line on a terminal, else by a printed line now
and then.
"""

import math
import time
from collections.abc import Callable
from datetime import timedelta

import numpy as np
from jaxtyping import Float
from rich.live import Live
from rich.text import Text

from vmapseeds.errors import console_of_stderr, say
from vmapseeds.results.measurements import measure_sd_of_values

INTERVAL = 30.0  # seconds between two lines where there is no terminal


def written_speed(speed: float) -> str:
  """Return a number of runs per second: three digits, large ones as whole numbers."""
  if speed >= 100:
    return f"{speed:,.0f}"
  return f"{speed:.3g}"


class SpeedMeter:
  """Runs per second of this process, without compilation, and without what comes before
  its first epochs as soon as more is trained.

  Args:
    compiled: returns the seconds of compilation in this process so far.
  """

  def __init__(self, compiled: Callable[[], float]):
    self.compiled = compiled
    self.latest = time.monotonic()  # when more was trained
    self.begun = self.latest - compiled()
    # Like `latest`, but on a clock that stands still during compilation
    self.worked = self.begun
    # When the first epochs were trained, by that clock, and how many runs they are worth
    self.first: tuple[float, float] | None = None

  def record(self, runs: float) -> None:
    """Note that this process has trained what is worth so many runs."""
    self.latest = time.monotonic()
    self.worked = self.latest - self.compiled()
    if self.first is None:
      self.first = (self.worked, runs)

  def speed(self, runs: float, whole_runs: float) -> float | None:
    """Return runs per second; None before the first epochs.

    Args:
      runs: what this process has trained is worth so many.
      whole_runs: of these, runs that have ended.
    """
    if self.first is None:
      return None
    first, runs_at_first = self.first
    if runs > runs_at_first:
      return (runs - runs_at_first) / max(self.worked - first, 1e-9)
    return max(0, whole_runs) / max(self.worked - self.begun, 1e-9)


class Progress:
  """Runs done, runs per second, mean and standard deviation of an accuracy or a score
  so far, time left; a context manager.

  Args:
    total: how many runs there will be.
    done: how many are done; the caller updates it when other processes train some,
      whose values are not shown.
    values: those of the runs that are done and did not diverge.
    displayed: the array that they come from, what they are called, and their unit, "%" for
      fractions; None if there is nothing to show.
    visible: whether anything is printed.
    compiled: returns the seconds of compilation in this process so far, which tell nothing
      of the speed.
  """

  def __init__(
    self,
    total: int,
    done: int,
    values: Float[np.ndarray, " runs"],
    displayed: tuple[str, str, str] | None,
    visible: bool,
    compiled: Callable[[], float] = lambda: 0.0,
  ):
    _, self.label, self.unit = displayed or ("", "", "")
    self.total = total
    self.done = done
    self.trained = 0  # runs, by this process
    self.values = np.array([])
    self.add(values)
    # Of runs in training, which end together: how far they are, in words, how many they
    # are, and how many whole runs their epochs are worth
    self.training: str | None = None
    self.runs_in_training = 0
    self.runs_by_epochs = 0.0
    # The same of all epochs that were read from checkpoints: nobody trained them here.
    self.resumed_by_epochs = 0.0
    self.doing = "compiling"  # while no run is in training
    self.meter = SpeedMeter(compiled)
    self.live: Live | None = None
    console = console_of_stderr()
    if visible and console.is_terminal:
      self.live = Live(console=console, get_renderable=self._text)
    self.plain = visible and self.live is None
    self.printed = time.monotonic()  # when a line was printed

  def __enter__(self) -> "Progress":
    if self.live:
      self.live.start()
    return self

  def __exit__(self, *_) -> None:
    if self.live:
      self.live.stop()
    elif self.plain:
      say(self.line())

  def add(self, values: Float[np.ndarray, " runs"]) -> None:
    """Add the values of more runs."""
    self.values = np.append(self.values, values[np.isfinite(values)])

  def at_epoch(self, runs: int, epochs: int, reached: int, resumed: bool) -> None:
    """Show that `runs` runs have trained for `reached` of `epochs` epochs; `resumed` if they
    continue from a checkpoint there.
    """
    self.training = f"{runs} at epoch {reached}"
    self.runs_in_training = runs
    self.runs_by_epochs = runs * min(1, reached / epochs)
    if resumed:
      self.resumed_by_epochs += self.runs_by_epochs
      if self.live or self.plain:
        say(f"{runs} runs resume after epoch {reached}")
    else:
      self.meter.record(self._trained_here())
      self._print()

  def trained_more(self, runs: int, values: Float[np.ndarray, " runs"]) -> None:
    """Count `runs` more runs that this process has trained."""
    if self.training:
      self.training = None
      self.runs_by_epochs = self.runs_in_training
    # What the epochs of these runs were worth is counted as runs now.
    self.runs_by_epochs = max(0, self.runs_by_epochs - runs)
    self.trained += runs
    self.done += runs
    self.add(values)
    self.meter.record(self._trained_here())
    self._print()

  def waits(self, others: bool) -> None:
    """Show whether this process only waits for others, which train what is left."""
    self.doing = "waiting for other processes" if others else "compiling"
    if others:
      self._print()

  def _trained_here(self):
    """Return how many runs all that this process has trained is worth."""
    return self.trained + self.runs_by_epochs - self.resumed_by_epochs

  def _print(self):
    if self.plain and time.monotonic() - self.printed >= INTERVAL:
      self.printed = time.monotonic()
      say(self.line())

  def speed(self) -> float | None:
    """Return runs per second of this process; None at first."""
    return self.meter.speed(self._trained_here(), self.trained - self.resumed_by_epochs)

  def line(self) -> str:
    """Return the progress as one line of text."""
    parts = [f"{self.done}/{self.total} runs"]
    if self.training:
      parts.append(self.training)
    speed = self.speed()
    if speed:
      parts.append(f"{written_speed(speed)} runs/s")
    elif self.done < self.total and not self.training:
      parts.append(self.doing)
    parts += self._describe_values()
    seconds = self._remaining_seconds(speed)
    if seconds > 0:  # else it waits for others, or is slower than it was
      parts.append(f"{timedelta(seconds=round(seconds))} left")
    return ", ".join(parts)

  def _describe_values(self):
    """Return mean and standard deviation of the values so far, as texts."""
    count = len(self.values)
    if count == 0:
      return []
    mean = self.values.mean()
    if count == 1:
      return [f"{self.label} {with_error(mean, math.nan, self.unit)}"]
    sd = self.values.std(ddof=1)
    # As reports have them.
    error_of_mean = sd / math.sqrt(count)
    error_of_sd = measure_sd_of_values(self.values, math.inf).se
    return [
      f"{self.label} {with_error(mean, error_of_mean, self.unit)}",
      f"σ {with_error(sd, error_of_sd, self.unit)}",
    ]

  def _remaining_seconds(self, speed):
    """Return the seconds until all runs are done, 0 if they are not known."""
    remaining = self.total - self.done
    if not speed or not remaining:
      return 0.0
    since_latest = time.monotonic() - self.meter.latest
    return (remaining - self.runs_by_epochs) / speed - since_latest

  def _text(self):
    return Text(self.line(), no_wrap=True, overflow="ellipsis")


def with_error(value: float, error: float, unit: str) -> str:
  """Return a number with its standard error, if that is known, and its unit.

  >>> with_error(0.5, 0.001, "%"), with_error(103.25, 1.5, "reward")
  ('50.000 ± 0.100 %', '103.2 ± 1.5 reward')
  """
  is_known = not math.isnan(error)
  if unit in ("%", "fraction"):
    if is_known:
      return f"{100 * value:.3f} ± {100 * error:.3f} %"
    return f"{value:.2%}"
  text = f"{value:.4g}"
  if is_known:
    text += f" ± {error:.2g}"
  return f"{text} {unit}".rstrip()
