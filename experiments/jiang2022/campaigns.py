"""What the figures train, by name, at each scale.

A scatter plot has a star of runs for each configuration and pair: a first run, and for
each group a partner that differs from it in what the group varies. An ensemble has
equally many runs of each group, all of one configuration.

All groups are trained on equally many examples. The paper says that pairs that differ
in their data have disjoint halves of the training set; of other pairs it says nothing.
"""

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

import vmapseeds as vs
from experiments.frame import Campaign
from experiments.jiang2022.nin import NIN_CIFAR10

# What varies in each group. Where the data vary, each run has its own training set.
GROUPS = {
  "AllDiff": ("init", "order", "data"),
  "DiffData": ("data",),
  "DiffInit": ("init",),
  "DiffOrder": ("order",),
}
PARTNERS = {**GROUPS, "SameData": ("init", "order")}  # of a star's first run


class Scatter(NamedTuple):
  """A scatter plot's configurations: a campaign for each combination of `varied`, in
  which `swept` are swept.
  """

  name: str
  recipe: vs.Recipe
  examples: int  # of the training set
  train: int  # how many of them a run is trained on
  varied: dict[str, tuple[Any, ...]]  # fields of the recipe
  swept: dict[str, tuple[float, ...]]
  pairs: int

  def recipes(self) -> dict[str, vs.Recipe]:
    """The recipes by the names of campaigns."""
    recipes = {}
    combinations = itertools.product(*self.varied.values())
    for i, values in enumerate(combinations):
      fields = dict(zip(self.varied, values, strict=True))
      recipes[f"{self.name}-{i}"] = self.recipe.replace(**fields)
    return recipes

  def runs(self) -> vs.Runs:
    """The runs table, ordered by pair, then by member of the star, then by what is
    swept.
    """
    seeds = runs_with_partners(self.examples, self.train, self.pairs)
    return vs.Runs.sweep(seeds=seeds, **self.swept)

  def learning_rates(self) -> Float[np.ndarray, " configurations"]:
    """The learning rate of each configuration, campaign by campaign. It is swept."""
    swept = math.prod(map(len, self.swept.values()))
    return np.tile(self.runs().values["lr"][:swept], len(self.recipes()))


class EnsembleRuns(NamedTuple):
  """Runs of one configuration, a campaign for each group."""

  name: str
  recipe: vs.Recipe
  examples: int
  train: int
  runs: int
  groups: tuple[str, ...] = tuple(GROUPS)

  def campaigns(self) -> dict[str, str]:
    """The names of campaigns by group."""
    return {group: f"{self.name}-{group}" for group in self.groups}


class GroupScale(NamedTuple):
  """What is trained, by the paper's data that it stands for. Several of these may share
  one stand-in.
  """

  # By name: cifar10, svhn, cifar100, few (2,000 examples), nin, mlp, mlp_few, mlp_rates
  scatters: dict[str, Scatter]
  ensembles: dict[str, EnsembleRuns]  # cifar10, few, cifar100, and same_data


def training_sets(examples: int, size: int, runs: int) -> Int[np.ndarray, "runs size"]:
  """A training set for each run. Those of runs 2i and 2i + 1 are disjoint. More runs
  leave earlier sets unchanged.
  """
  sets = []
  for pair in range((runs + 1) // 2):
    # A generator for each pair, so that more runs change none.
    shuffled = np.random.default_rng([0, pair]).permutation(examples)
    sets.append(shuffled[: 2 * size].reshape(2, size))
  return np.concatenate(sets)[:runs]


def runs_with_partners(examples: int, size: int, pairs: int) -> vs.Runs:
  """For each pair i a first run and its partners. What they share has seed or training
  set 2i, what differs 2i + 1.
  """
  sets = training_sets(examples, size, 2 * pairs)
  members = []
  for pair in range(pairs):
    shared = 2 * pair
    other = 2 * pair + 1
    first = vs.Runs.vary("init", 1, start=shared, fixed=shared)
    members.append(first.subset(sets[shared]))
    for sources in PARTNERS.values():
      partner = vs.Runs.vary(sources, 1, start=other, fixed=shared)
      own_set = other if "data" in sources else shared
      members.append(partner.subset(sets[own_set]))
  return vs.Runs.concat(members)


def group_tables(examples: int, size: int, runs: int) -> dict[str, vs.Runs]:
  """The runs of each group of an ensemble. Runs without a training set of their own
  share that of run 0.
  """
  sets = training_sets(examples, size, runs)
  tables = {}
  for group, sources in PARTNERS.items():
    subsets = sets if "data" in sources else sets[0]
    tables[group] = vs.Runs.vary(sources, runs).subset(subsets)
  return tables


def ensemble_campaigns(scale: str, data: str) -> dict[str, str]:
  """The names of campaigns by group, for the ensemble `cifar10`, `few`, `cifar100` or
  `same_data` at a scale.
  """
  return SCALES[scale].ensembles[data].campaigns()


def campaigns(scale: str) -> dict[str, Campaign]:
  """Every campaign of the paper's at a scale."""
  every = {}
  for scatter in SCALES[scale].scatters.values():
    runs = scatter.runs()
    for name, recipe in scatter.recipes().items():
      every[name] = Campaign(recipe, runs)
  for ensemble in SCALES[scale].ensembles.values():
    tables = group_tables(ensemble.examples, ensemble.train, ensemble.runs)
    for group, name in ensemble.campaigns().items():
      every[name] = Campaign(ensemble.recipe, tables[group])
  return every


SCATTERS = (
  *("cifar10", "svhn", "cifar100", "few", "nin"),
  *("mlp", "mlp_few", "mlp_rates"),
)
ENSEMBLES = ("cifar10", "few", "cifar100")
# The paper's are 0.1 and 0.05. At 0.2 two of five runs on 2,000 examples of MNIST still
# make training errors after 200 epochs.
RATES = (0.1, 0.05, 0.02, 0.01)
# The paper's fully connected networks, together with two weight decays
OF_MLP = {
  "depth": (1, 2, 3, 4),
  "width": (1.0, 2.0, 3.0, 4.0),
  "batch_size": (100, 200, 300),
}
AUGMENTED = ("", "flip translate=4")  # the paper does not say how images are augmented


# "The same learning rate schedule" as ResNet-18's (appendix C.1), which begins with 0.1.
MLP_MNIST = vs.recipe("mlp_cifar10", name="mlp_mnist", dataset="mnist", lr=0.1)


def with_same_data(ensembles: dict[str, EnsembleRuns]) -> dict[str, EnsembleRuns]:
  """Return them, and the one whose runs have the same data."""
  return {**ensembles, "same_data": ensembles["cifar10"]._replace(groups=("SameData",))}


def smoke() -> GroupScale:
  digits = vs.recipe("digits_cnn", epochs=8, width=0.25, augment="")
  swept = {"lr": (0.05, 0.025), "weight_decay": (5e-4, 0.0)}
  ensemble = EnsembleRuns("digits", digits, 1000, 200, 8)
  varied = {"augment": ("", "cutout=2")}
  scatter = Scatter("digits", digits, 1000, 200, varied, swept, 2)
  return GroupScale(
    dict.fromkeys(SCATTERS, scatter),
    with_same_data(dict.fromkeys(ENSEMBLES, ensemble)),
  )


def laptop() -> GroupScale:
  """ResNet-18 and Network in Network fit no training set in the time that a laptop has.
  A small CNN fits 2,000 examples of CIFAR-10, and 500 in place of the paper's 2,000.
  MNIST stands for SVHN. A fully connected network, which errs as often as ResNet-18
  does on CIFAR-100, stands for that. CIFAR-10 is only flipped, as it is not fitted if
  translated. The ensembles of `cifar10` are the paper's fully connected networks on
  2,000 examples of MNIST at its learning rate, as many runs as the paper's.
  """
  cnn = vs.recipe(
    "resnet18_cifar10",
    name="small_cnn_cifar10",
    model="small_cnn",
    lr=0.02,
    batch_size=50,
    epochs=50,
    milestones=(30,),
  )
  mlp = vs.recipe("mlp_cifar10", lr=0.01, batch_size=50, epochs=60, milestones=(50,))
  nin = NIN_CIFAR10.replace(
    width=0.25,
    lr=0.05,
    batch_size=50,
    weight_decay=1e-4,
    epochs=45,
    milestones=(20, 35),
  )
  cnn_mnist = cnn.replace(name="small_cnn_mnist", dataset="mnist")
  mlp_mnist = mlp.replace(name="mlp_mnist", dataset="mnist")
  varied = {"width": (1.0, 0.5), "augment": ("", "flip")}
  swept = {"lr": (0.02, 0.01), "weight_decay": (1e-4, 0.0)}
  layers = {"depth": (1, 2), "width": (1.0, 2.0)}
  decays = {"weight_decay": (1e-3, 0.0)}
  at_rates = OF_MLP | decays | {"lr": RATES}
  scatters = (
    Scatter("cifar10", cnn, 50_000, 2000, varied, swept, 2),
    Scatter(
      "svhn",
      cnn_mnist,
      60_000,
      500,
      varied | {"augment": ("", "translate=2")},
      swept,
      1,
    ),
    Scatter("cifar100", mlp, 50_000, 1000, layers, decays | {"lr": (0.01, 0.005)}, 1),
    Scatter("few", cnn, 50_000, 500, varied, swept, 1),
    Scatter(
      "nin",
      nin,
      50_000,
      500,
      {"depth": (4, 7)},
      {"lr": (0.05, 0.02), "weight_decay": (1e-4, 0.0)},
      1,
    ),
    Scatter("mlp", mlp_mnist, 60_000, 10_000, {"depth": (1, 2)}, decays, 1),
    Scatter("mlp_few", mlp_mnist, 60_000, 1000, layers, decays, 1),
    Scatter("mlp_rates", MLP_MNIST, 60_000, 2000, {}, at_rates, 1),
  )
  ensembles = {
    "cifar10": EnsembleRuns("mnist", MLP_MNIST.replace(depth=2), 60_000, 2000, 100),
    "few": EnsembleRuns("few", cnn, 50_000, 500, 32),
    "cifar100": EnsembleRuns("cifar100", mlp, 50_000, 1000, 32),
  }
  return GroupScale(
    {scatter.name: scatter for scatter in scatters},
    with_same_data(ensembles),
  )


def published(
  width: float = 1.0,
  most: int = 50_000,
  pairs: int = 4,
  runs: int = 100,
) -> GroupScale:
  """What the paper trains, or networks with `width` times its features on at most
  `most` examples. Domains made of CIFAR-10 stand for PACS.
  """
  resnet = vs.recipe("resnet18_cifar10", width=width)
  cifar100 = resnet.replace(name="resnet18_cifar100", dataset="cifar100")
  svhn = resnet.replace(name="resnet18_svhn", dataset="svhn_cropped")
  mlp = vs.recipe("mlp_cifar10", name="mlp_mnist", dataset="mnist", width=width)
  nin = NIN_CIFAR10.replace(width=width)
  varied = {"width": (width, 2 * width), "batch_size": (200, 100), "augment": AUGMENTED}
  swept = {"lr": (0.1, 0.05), "weight_decay": (1e-4, 0.0)}
  of_nin = {
    "depth": (7, 10, 13),
    "width": (width, 2 * width, 3 * width),
    "batch_size": (200, 100, 300),
  }
  of_mlp = OF_MLP | {"width": tuple(i * width for i in OF_MLP["width"])}
  decays = {"weight_decay": (1e-3, 0.0)}
  scatters = (
    Scatter("cifar10", resnet, 50_000, min(most, 25_000), varied, swept, pairs),
    Scatter("svhn", svhn, 73_257, min(most, 36_628), varied, swept, 1),
    Scatter("cifar100", cifar100, 50_000, min(most, 25_000), varied, swept, 1),
    Scatter("few", resnet, 50_000, 2000, varied, swept, 1),
    Scatter("nin", nin, 50_000, min(most, 25_000), of_nin, decays, 1),
    Scatter("mlp", mlp, 60_000, min(most, 30_000), of_mlp, decays, 1),
    Scatter("mlp_few", mlp, 60_000, 2000, of_mlp, decays, 1),
    Scatter("mlp_rates", MLP_MNIST, 60_000, 2000, of_mlp, decays | {"lr": RATES}, 1),
  )
  ensembles = {
    "cifar10": EnsembleRuns("cifar10", resnet, 50_000, 10_000, runs),
    "few": EnsembleRuns("few", resnet, 50_000, 2000, runs),
    "cifar100": EnsembleRuns("cifar100", cifar100, 50_000, 10_000, runs),
  }
  return GroupScale(
    {scatter.name: scatter for scatter in scatters},
    with_same_data(ensembles),
  )


SCALES = {
  "smoke": smoke(),
  "laptop": laptop(),
  "gpu": published(0.5, 10_000, 2, 64),
  "paper": published(),
}


def script_flags(scale: str, script: str) -> list[str]:
  """Return what a script trains at a scale: 8×8 digits, or what the paper does."""
  if scale == "smoke":
    return []
  runs = "4" if script == "fig01" else "100"
  if scale == "laptop":
    return ["--runs", runs]
  recipe = vs.recipe("resnet18_cifar10")
  flags = ["--recipe", recipe.name, "--epochs", str(recipe.epochs), "--runs", runs]
  if script == "fig05":
    return flags
  train = "25000" if script == "fig01" else "10000"
  return [*flags, "--examples", "50000", "--train", train]
