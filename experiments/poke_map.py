"""Where one weight's change begins to matter: a run beside its twin, in which one random
weight is multiplied by 1.001.

python -m experiments.poke_map --runs 100     trains; run it again to resume

A fully connected network is trained on 1,000 images of Fashion-MNIST, with batch norm
and without; one setting is changed at a time. The ratio of the test predictions in which
a twin differs from its run to those in which two runs of other seeds differ is 0 where
the change is forgotten, and 1 where a thousandth of a weight does what new seeds do.
"""

import argparse
import functools
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import flax.linen as nn
import numpy as np
import scipy.stats
from jaxtyping import Float, Int

import vmapseeds as vs
from experiments.jordan2024.poking import FACTOR, poked
from experiments.scripts import make_parser, write_numbers
from vmapseeds import stats
from vmapseeds.models.layers import Images, Logits

FOLDER = "poke_map"
TRAINED_ON, TESTED_ON = 1000, 2000


@functools.cache
def load_images() -> vs.Dataset:
  whole = vs.load_dataset("fashion_mnist")
  train, test = whole.train, whole.tests["test"]
  return vs.Dataset(
    train=(train.inputs[:TRAINED_ON], train.targets[:TRAINED_ON]),
    test=(test.inputs[:TESTED_ON], test.targets[:TESTED_ON]),
  )


def __getattr__(name: str) -> vs.Dataset:
  """Load the data set when a recipe asks for it."""
  if name != "images":
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  return load_images()


class Layers(nn.Module):
  """Fully connected layers of 64 units with ReLU, and a linear layer."""

  num_classes: int
  layers: int = 3
  norm: bool = True

  @nn.compact
  def __call__(self, x: Images, train: bool) -> Logits:
    x = x.reshape(len(x), -1)
    for _ in range(self.layers):
      x = nn.Dense(64)(x)
      if self.norm:
        x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(x)
      x = nn.relu(x)
    return nn.Dense(self.num_classes)(x)


CENTRE = vs.Recipe(
  name="poke_map",
  dataset="experiments.poke_map:images",
  model=Layers,
  epochs=16,
  batch_size=50,
  lr=0.05,
  momentum=0.9,
  optimizer="nesterov",
  schedule="linear",
)
# Of each setting, what it is changed to.
SETTINGS: dict[str, list[Any]] = {
  "centre": [None],
  "lr": [0.00625, 0.0125, 0.025, 0.1, 0.2],
  "batch_size": [25, 100, 200],
  "epochs": [1, 2, 4, 8, 32],
  "layers": [1, 2, 5],
  "augment": ["flip", "translate=2"],
  "poked after": [0.125, 0.25, 0.5, 0.75],  # of the steps
}


def train(
  norm: bool, setting: str, value: Any, flags: argparse.Namespace
) -> tuple[Int[np.ndarray, "runs examples"], ...]:
  """Train runs and their twins. Return what the runs and the twins predict, and the
  labels.
  """
  args = {"norm": norm, "layers": 3}
  values = {"lr": CENTRE.lr, "poke_step": 0.0}
  recipe = CENTRE
  match setting:
    case "lr":
      values["lr"] = value
    case "poked after":
      steps = CENTRE.epochs * TRAINED_ON // CENTRE.batch_size
      values["poke_step"] = float(round(value * steps))
    case "layers":
      args["layers"] = value
    case "batch_size" | "epochs" | "augment":
      recipe = CENTRE.replace(**{setting: value})
  recipe = poked(recipe.replace(model_args=args), 0)
  swept = {name: [number] for name, number in values.items()}
  table = vs.Runs.sweep(seeds=flags.runs, **swept, poke_factor=[1.0, FACTOR])
  place = flags.runs_in / f"{'norm' if norm else 'plain'}-{setting}-{value}"
  results = vs.train(recipe, table, place, seed_batch=flags.seed_batch)
  finished = ~results.diverged.values.reshape(-1, 2).any(1)
  predictions = results.predictions.values.reshape(flags.runs, 2, -1)[finished]
  return predictions[:, 0], predictions[:, 1], results.labels.values


def compare_twins(
  runs: Int[np.ndarray, "runs examples"],
  twins: Int[np.ndarray, "runs examples"],
  labels: Int[np.ndarray, " examples"],
) -> dict[str, Any]:
  """Return each run's disagreement with its twin and with the runs of other seeds."""
  with_others = stats.disagreement_matrix(runs).sum(1) / (len(runs) - 1)
  return {
    "error": float((runs != labels).mean()),
    "of_twins": stats.churn(runs, twins),
    "with_others": with_others,
  }


def summarize(kept: Mapping[str, Any]) -> dict[str, Any]:
  """Return the ratio of disagreements and the share of pokes that change no prediction,
  with 95 % intervals over runs.
  """
  of_twins, with_others = np.array(kept["of_twins"]), np.array(kept["with_others"])
  runs = len(of_twins)
  unchanged = int((of_twins == 0).sum())
  share = scipy.stats.binomtest(unchanged, runs).proportion_ci(method="wilson")
  return {
    "runs": runs,
    "disagreement": float(with_others.mean()),
    "ratio": ratio_of(of_twins, with_others),
    "unchanged": [unchanged / runs, float(share.low), float(share.high)],
  }


def ratio_of(
  of_twins: Float[np.ndarray, " runs"],
  with_others: Float[np.ndarray, " runs"],
) -> list[float]:
  """Return the mean disagreement of twins over that of runs of other seeds, and its
  interval by the jackknife over runs.
  """
  count = len(of_twins)
  pairs = count * (count - 1)
  ratio = of_twins.mean() / with_others.mean()
  without_each_twin = (of_twins.sum() - of_twins) / (count - 1)
  # A run is in 2 (count - 1) of the ordered pairs.
  left_out = pairs * with_others.mean() - 2 * (count - 1) * with_others
  without_each_run = left_out / (pairs - 2 * (count - 1))
  each = without_each_twin / without_each_run
  se = np.sqrt((count - 1) / count * ((each - each.mean()) ** 2).sum())
  reach = scipy.stats.t.isf(0.025, count - 1) * se
  return [ratio, max(0.0, ratio - reach), ratio + reach]


def measure(flags: argparse.Namespace) -> list[dict[str, Any]]:
  """Return what is kept of every setting."""
  found = []
  for setting, values in SETTINGS.items():
    for value, norm in itertools.product(values, (True, False)):
      of_setting = {"norm": norm, "setting": setting, "value": value}
      found.append(of_setting | compare_twins(*train(norm, setting, value, flags)))
  return found


def recompute(out: Path) -> None:
  """Write the numbers of the page anew, from what is kept of each run."""
  write_summaries(out / FOLDER)


def write_summaries(folder: Path) -> None:
  """Write the numbers of each setting from what is kept of each run."""
  found = []
  for each in json.loads((folder / "kept.json").read_text()):
    place = {name: each[name] for name in ("norm", "setting", "value", "error")}
    found.append(place | summarize(each))
  write_numbers(folder / "numbers.json", {"settings": found})


def main(words: list[str] | None = None) -> None:
  flags = make_parser(__doc__, FOLDER, runs=100).parse_args(words)
  flags.out.mkdir(parents=True, exist_ok=True)
  write_numbers(flags.out / "kept.json", measure(flags))
  write_summaries(flags.out)
  for each in json.loads((flags.out / "numbers.json").read_text())["settings"]:
    print(*each.values(), sep="  ")


if __name__ == "__main__":
  main()
