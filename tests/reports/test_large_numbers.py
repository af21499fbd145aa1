"""Losses and scores that are large beside their spread, constant or not finite: every
statistic is that of the numbers less their common part, and every figure is drawn.
"""

import io
import json

import numpy as np
import pytest
import xarray as xr
from cases import mostly_slow

from vmapseeds.reports import plots, results_page, summaries
from vmapseeds.results.formatting import Quantity, show

RUNS, EXAMPLES = 12, 40
LOSS = Quantity("loss", "number")
noise = np.random.default_rng(0).normal(size=(RUNS, EXAMPLES))
NUMBERS = {
  "1e7 ± 1 in float32": (1e7 + noise).astype(np.float32),
  "1e8 ± 1": 1e8 + noise,
  "-1e8 ± 1e-6": -1e8 + 1e-6 * noise,
  "1 ± 1e-12": 1 + 1e-12 * noise,
  "1e-12": 1e-12 * noise,
  "constant": np.full((RUNS, EXAMPLES), 1e8),
  "zero": np.zeros((RUNS, EXAMPLES)),
  "one number apart": 1e8 + np.spacing(1e8) * (noise > 0),
  "an infinite run": np.where(np.arange(RUNS)[:, None] == 3, np.inf, 1e8 + noise),
  "a run of -inf": np.where(np.arange(RUNS)[:, None] == 3, -np.inf, 1e8 + noise),
}


def results(numbers, role):
  dims = ("run", "example")[: numbers.ndim]
  attrs = {"recipe": json.dumps({"name": "t"}), "versions": {}}
  attrs |= dict.fromkeys(("device_kind", "lane_width", "lowering"))
  return xr.Dataset({"out": (dims, numbers, {"role": role})}, attrs=attrs)


def summarized(numbers, role="loss"):
  given = results(numbers, role)
  (runs,) = summaries.measure_outputs(given)
  return runs, summaries.summarize(given, measured=[runs])


@pytest.mark.parametrize("role", mostly_slow(["loss", "score"]))
@pytest.mark.parametrize("name", NUMBERS)
def test_tables_and_figures(name, role):
  numbers = NUMBERS[name] if role == "loss" else NUMBERS[name][:, 0]
  for count in (1, 2, RUNS):
    runs, said = summarized(numbers[:count], role)
    alive = np.isfinite(np.asarray(numbers[:count], float).reshape(count, -1)).all(1)
    assert said["runs"] == alive.sum()
    drawn = results_page.figures_of_output(runs, said)
    assert len(drawn) == (0 if count == 1 else {"loss": 3, "score": 1}[role])
    for figure in drawn.values():
      _, ax = plots.figure()
      figure.draw(ax)
  ax.figure.savefig(io.BytesIO(), dpi=20)


def test_statistics_are_those_of_the_numbers_less_their_common_part():
  """Multiples of 2^-20 are exact beside 1e8, so that nothing may differ by more than
  rounding of the means.
  """
  exact = np.round(noise * 2**20) / 2**20
  offset = np.random.default_rng(1).integers(1e8, 2e8, EXAMPLES).astype(float)
  plain, shifted = (
    summarized(x)[1]["statistics"] for x in (exact, exact + offset[None])
  )
  for name, of in plain.items():
    for end in ("value", "se", "low", "high"):
      expected = of[end]
      if expected is not None and end in ("value", "low", "high"):
        expected += {"mean_loss": 1, "min_loss": 1, "max_loss": 1}.get(name, 0) * (
          offset.mean()
        )
      if expected is None:
        assert shifted[name][end] is None
      else:
        assert shifted[name][end] == pytest.approx(expected, rel=2e-6), (name, end)


@pytest.mark.parametrize("name", NUMBERS)
def test_bins_hold_all_numbers(name):
  numbers = np.asarray(NUMBERS[name], np.float64).ravel()
  numbers = numbers[np.isfinite(numbers)]
  for edges in (
    plots.bin_edges([numbers, numbers[:9]], None, LOSS),
    plots.even_edges(numbers, 40),
  ):
    assert (np.diff(edges) > 0).all()
    assert np.histogram(numbers, edges)[0].sum() == numbers.size


@pytest.mark.parametrize(
  ("value", "se", "text"),
  [
    (1e8, 0.25, "100000000.00 ± 0.25"),
    (1 + 1e-12, 3e-13, "1.00000000000100 ± 0.00000000000030"),
    (1.5e-12, 3e-13, "1.5e-12 ± 3.0e-13"),
    (-1.5e-24, None, "-1.50e-24"),
    (0.0, None, "0.00"),
    (np.inf, None, "n/a"),
  ],
)
def test_numbers_as_text(value, se, text):
  assert show(value, se, "number") == text
