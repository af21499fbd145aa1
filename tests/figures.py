"""The papers' figures, each made once for all tests of a worker."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from experiments import frame

EXPERIMENTS = Path(frame.__file__).parent
PAPERS = sorted(path.parent.name for path in EXPERIMENTS.glob("*/campaigns.py"))


def plotted(plot, numbers, panels, caption=""):
  """Return an empty PNG, once `plot` has put what it shows on its axes."""
  figure = Figure()
  FigureCanvasAgg(figure)
  plot(numbers, np.ravel(figure.subplots(1, panels, squeeze=False)))
  stream = io.BytesIO()
  Image.new("P", (1, 1)).save(stream, "PNG")
  return stream.getvalue()


def make(made: Path, paper: str, figures=()) -> None:
  """Make those of the figures, of all for none, that are not there. Nothing is drawn
  but what comes before that is done: their axes get what they show.
  """
  out = made / paper
  names = figures or frame.figure_names(EXPERIMENTS / paper)
  for name in names:
    if (out / f"{name}.json").exists():
      continue
    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(frame, "draw_png", plotted)
      folders = ["--out", str(out), "--campaigns", str(made / "campaigns")]
      frame.main(str(EXPERIMENTS / paper / "__main__.py"), [name, *folders])


def numbers(made: Path, paper: str) -> dict:
  """Return each figure's numbers, by its name and by the beginning of its name."""
  found = {}
  for path in (made / paper).glob("*_*.json"):
    record = json.loads(path.read_text())
    found[record["figure"]] = record["numbers"]
    found[record["figure"].partition("_")[0]] = record["numbers"]
  return found
