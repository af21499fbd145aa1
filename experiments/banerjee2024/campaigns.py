"""What the figures train, by name, at each scale: runs that differ in one source of
randomness or in all, and last layers of a network that was trained on other classes.
"""

from typing import NamedTuple

import vmapseeds as vs
from experiments.frame import Campaign

ADAM = vs.recipe("cnn_cifar10_binary")
# Of the readings of what the paper leaves open, the nearest to it after 50 epochs:
# docs/reference/recipes.md has what each gives. On the classes that the task leaves out
# it learns too little for last layers: they are trained by Adam.
SGD = ADAM.replace(
  optimizer="sgd",
  momentum=0.0,
  mean=(0.0, 0.0, 0.0),
  std=(1.0, 1.0, 1.0),
  evaluate_every=10,
)
DIGITS = vs.recipe(
  "digits_cnn",
  classes=ADAM.classes,
  augment="",
  epochs=2,
  evaluate_every=1,
)


class CandidateScale(NamedTuple):
  """Recipe and sizes of the campaigns. All runs have the same training examples."""

  recipe: vs.Recipe  # of two classes
  tuned_recipe: vs.Recipe  # of last layers, and of the network that they are put on
  examples: int  # to train on
  runs: int  # of each source of randomness: half of them the reference, half candidates
  pool: int  # runs of S_all: half of them the reference, half members of ensembles
  tuned: int  # last layers: half of them the reference, half candidates
  tuned_examples: int


SCALES = {
  "smoke": CandidateScale(DIGITS, DIGITS, 700, 16, 16, 8, 700),
  "laptop": CandidateScale(SGD, ADAM, 40_000, 30, 30, 24, 4_000),
  "gpu": CandidateScale(SGD, ADAM, 40_000, 200, 1600, 90, 40_000),
  "paper": CandidateScale(SGD, ADAM, 40_000, 200, 1600, 90, 40_000),
}
VARIED = {"S_init": "init", "S_batch": "order", "S_all": ("init", "order")}


def campaigns(scale: str) -> dict[str, Campaign]:
  """Every campaign of the paper's at a scale. Sources that do not vary have seed 0."""
  recipe, tuned_recipe, examples, runs, pool, tuned, tuned_examples = SCALES[scale]
  sizes = dict.fromkeys(VARIED, runs) | {"S_all": pool}
  pretrained = tuned_recipe.replace(
    dataset=f"experiments.banerjee2024.others:{recipe.dataset}",
    classes=None,
    epochs=10,
    evaluate_every=None,
  )
  campaigns = {}
  for name, varied in VARIED.items():
    # Figures 3 and 16 show S_all alone by epoch.
    by_epoch = name == "S_all"
    campaigns[name] = Campaign(
      recipe if by_epoch else recipe.replace(evaluate_every=None),
      vs.Runs.vary(varied, sizes[name]).subset(examples),
      ("logits",),
    )
  campaigns["pretrained"] = Campaign(pretrained, 1, ("keep_params",))
  last = "Dense_1" if tuned_recipe.model == "banerjee_cnn" else "Dense_0"
  campaigns["last_layers"] = Campaign(
    tuned_recipe.replace(trainable=[last], epochs=5, evaluate_every=1),
    vs.Runs.vary(VARIED["S_all"], tuned).subset(tuned_examples),
    ("logits",),
    start_from="pretrained",
  )
  return campaigns
