"""What the figures train, by name, at each scale.

Scatter plots have a star of runs for each configuration and pair: one first run, and a partner for each group that
differs from it in what the group varies. Ensembles have as many runs of each group, of one configuration.

All groups are trained on equally many examples. The paper says of pairs that differ in their data that these are
disjoint halves of the training set, and of the others nothing.
"""

import itertools
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

import vmapseeds as vs
from experiments.frame import Campaign
from experiments.jiang2022.domains import DOMAINS

# What varies; AllDiff and DiffData also have a training set each.
GROUPS = {"AllDiff": ("init", "order", "data"), "DiffData": ("data",), "DiffInit": ("init",), "DiffOrder": ("order",)}
PARTNERS = {**GROUPS, "SameData": ("init", "order")}  # of a star's first run


class Scatter(NamedTuple):
  """A scatter plot's configurations: a campaign for each combination of `varied`, in which `swept` are swept."""

  name: str
  recipe: vs.Recipe
  examples: int  # of the training set
  train: int  # of them a run is trained on
  varied: dict[str, tuple[Any, ...]]  # fields of the recipe
  swept: dict[str, tuple[float, ...]]
  pairs: int

  def recipes(self) -> dict[str, vs.Recipe]:
    """By the names of campaigns."""
    combinations = itertools.product(*self.varied.values())
    return {
      f"{self.name}-{i}": self.recipe.replace(**dict(zip(self.varied, values, strict=True)))
      for i, values in enumerate(combinations)
    }

  def runs(self) -> vs.Runs:
    """Rows by pair, then by member of the star, then by what is swept."""
    return vs.Runs.sweep(seeds=stars(self.examples, self.train, self.pairs), **self.swept)


class Ensemble(NamedTuple):
  """Runs of one configuration, a campaign for each group."""

  name: str
  recipe: vs.Recipe
  examples: int
  train: int
  runs: int
  groups: tuple[str, ...] = tuple(GROUPS)

  def campaigns(self) -> dict[str, str]:
    """The groups' campaigns by the groups."""
    return {group: f"{self.name}-{group}" for group in self.groups}


class Shift(NamedTuple):
  """Runs trained on each domain: pairs that differ in initialisation and order, and share 80 % of the data."""

  data: str
  recipe: vs.Recipe
  examples: int
  pairs: int

  def campaigns(self) -> dict[str, str]:
    """The campaigns by the domain that they are trained on."""
    return {domain: f"{self.data}-{domain}" for domain in DOMAINS}

  def recipe_of(self, domain: str) -> vs.Recipe:
    return self.recipe.replace(dataset=f"experiments.jiang2022.domains:{self.data}_{domain}", test_sets=tuple(DOMAINS))

  def runs(self) -> vs.Runs:
    """Pair after pair."""
    sets = [
      np.random.default_rng([1, i]).permutation(self.examples)[: self.examples * 4 // 5] for i in range(self.pairs)
    ]
    return vs.Runs.vary(("init", "order"), 2 * self.pairs).subset(np.repeat(sets, 2, axis=0))


class Scale(NamedTuple):
  """What is trained, by what it is of: figures of one scale may share what stands for their data."""

  scatters: dict[str, Scatter]  # cifar10, svhn, cifar100, few (2,000 examples), nin, mlp, mlp_few
  ensembles: dict[str, Ensemble]  # cifar10, few, cifar100, and same_data
  shift: Shift  # of PACS


def training_sets(examples: int, size: int, runs: int) -> Int[np.ndarray, "runs size"]:
  """A training set for each run: of runs 2i and 2i + 1 two disjoint parts of one shuffle. More runs change none."""
  shuffles = (np.random.default_rng([0, i]).permutation(examples) for i in range((runs + 1) // 2))
  return np.concatenate([shuffled[: 2 * size].reshape(2, size) for shuffled in shuffles])[:runs]


def stars(examples: int, size: int, pairs: int) -> vs.Runs:
  """For each pair a first run and its partners: what they share has seed 2i, or training set 2i, the rest 2i + 1."""
  sets = training_sets(examples, size, 2 * pairs)
  members = []
  for i in range(pairs):
    members.append(vs.Runs.vary("init", 1, start=2 * i, fixed=2 * i).subset(sets[2 * i]))
    for sources in PARTNERS.values():
      partner = vs.Runs.vary(sources, 1, start=2 * i + 1, fixed=2 * i)
      members.append(partner.subset(sets[2 * i + ("data" in sources)]))
  return vs.Runs.concat(members)


def groups(examples: int, size: int, runs: int) -> dict[str, vs.Runs]:
  """The runs of each group of an ensemble. Those without a training set of their own share that of run 0."""
  sets = training_sets(examples, size, runs)
  return {
    group: vs.Runs.vary(sources, runs).subset(sets if "data" in sources else sets[0])
    for group, sources in PARTNERS.items()
  }


def ensemble(scale: str, of: str) -> dict[str, str]:
  """The campaign of each group, of the ensemble that stands for `cifar10`, `few` or `cifar100` at a scale; of
  `same_data` the one group."""
  return SCALES[scale].ensembles[of].campaigns()


def campaigns(scale: str) -> dict[str, Campaign]:
  """Every campaign of the paper's at a scale."""
  made = {}
  for scatter in SCALES[scale].scatters.values():
    runs = scatter.runs()
    made |= {name: Campaign(recipe, runs) for name, recipe in scatter.recipes().items()}
  for of in SCALES[scale].ensembles.values():
    tables = groups(of.examples, of.train, of.runs)
    made |= {name: Campaign(of.recipe, tables[group]) for group, name in of.campaigns().items()}
  shift = SCALES[scale].shift
  return made | {name: Campaign(shift.recipe_of(domain), shift.runs()) for domain, name in shift.campaigns().items()}


SCATTERS = ("cifar10", "svhn", "cifar100", "few", "nin", "mlp", "mlp_few")
ENSEMBLES = ("cifar10", "few", "cifar100")

_DIGITS = vs.recipe("digits_cnn", epochs=8, width=0.25, augment="")
_SWEPT = {"lr": (0.05, 0.025), "weight_decay": (5e-4, 0.0)}
_ENSEMBLE = Ensemble("digits", _DIGITS, 1000, 200, 8)

SCALES = {
  "smoke": Scale(
    dict.fromkeys(SCATTERS, Scatter("digits", _DIGITS, 1000, 200, {"augment": ("", "cutout=2")}, _SWEPT, 2)),
    dict.fromkeys(ENSEMBLES, _ENSEMBLE) | {"same_data": _ENSEMBLE._replace(groups=("SameData",))},
    Shift("digits", vs.recipe("linear_cifar10", name="linear_digits", epochs=2, batch_size=100), 1000, 2),
  ),
}
