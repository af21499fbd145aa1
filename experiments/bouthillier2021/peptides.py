"""Peptides that bind to MHC molecules, the paper's fifth task (appendix D.5):
`experiments.bouthillier2021.peptides:affinities` in a recipe's `dataset`.

The measured affinities are those of MHCflurry's training data (O'Donnell et al. 2018),
"curated_training_data.no_mass_spec", which the source archive of epitopepredict has:

    pip download epitopepredict==0.5.0 --no-deps --no-binary :all:
    tar -xzf epitopepredict-0.5.0.tar.gz
    export MHCFLURRY_DATA=epitopepredict-0.5.0/epitopepredict/mhcdata/curated_training_data.no_mass_spec.zip

The paper's network also sees the part of the allele's sequence that touches the peptide,
which these data lack: here it sees which allele it is.
"""

import csv
import functools
import io
import os
import zipfile
from collections.abc import Iterable, Mapping

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

import vmapseeds as vs
from vmapseeds.errors import UserError
from vmapseeds.training.metrics import auc

VARIABLE = "MHCFLURRY_DATA"
AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
SHORTEST, LONGEST = 8, 15  # amino acids of a peptide
END = len(AMINO_ACIDS)  # the code after a peptide's end
ALLELES = 170
WEAKEST = 50_000  # nM, has affinity 0
BINDS = 500  # nM: peptides with a smaller IC50 are called binders


class PeptideMLP(nn.Module):
  """A layer of `hidden` units on amino acids and allele, each as indicators, and one
  output. Weights are drawn as scikit-learn draws them (Glorot and Bengio 2010).
  """

  hidden: int = 150
  dtype: jnp.dtype = jnp.dtype("float32")

  @nn.compact
  def __call__(self, codes: Int[Array, "batch 16"]) -> Float[Array, "batch 1"]:
    peptide = jax.nn.one_hot(codes[:, :LONGEST], END + 1, dtype=self.dtype)
    allele = jax.nn.one_hot(codes[:, LONGEST], ALLELES, dtype=self.dtype)
    x = jnp.concatenate([peptide.reshape(len(codes), -1), allele], axis=-1)
    glorot = nn.initializers.glorot_uniform()
    x = nn.relu(nn.Dense(self.hidden, dtype=self.dtype, kernel_init=glorot)(x))
    return nn.Dense(1, dtype=self.dtype, kernel_init=glorot)(x)


def pearson(
  outputs: Float[Array, "examples 1"],
  targets: Float[Array, " examples"],
) -> Float[Array, ""]:
  """Return Pearson's correlation of predicted and measured affinities."""
  predicted = outputs.reshape(targets.shape)
  return jnp.corrcoef(predicted, targets)[0, 1]


def binder_auc(
  outputs: Float[Array, "examples 1"],
  targets: Float[Array, " examples"],
) -> Float[Array, ""]:
  """Return the area under the ROC curve of predicted affinities, for peptides that bind
  at less than 500 nM.
  """
  score = outputs.reshape(targets.shape)
  binds = targets > affinity(BINDS)
  return auc(jnp.stack([jnp.zeros_like(score), score], -1), binds.astype(jnp.int32))


# scikit-learn's MLPRegressor: Adam on half the squared error, and a decay of 0.001 over
# the size of the batch. On the whole squared error, gradients are twice as large.
MLP_MHC = vs.Recipe(
  name="mlp_mhc",
  dataset=f"{__name__}:affinities",
  model=PeptideMLP,
  model_args={"hidden": 150},
  loss="squared_error",
  predict="outputs",
  metrics={"pearson": pearson, "binder_auc": binder_auc},
  normalize=False,
  epochs=20,
  batch_size=200,
  lr=1e-3,
  optimizer="adam",
  weight_decay=2 * 1e-3 / 200,
)


def affinity(ic50: float | np.ndarray) -> float | np.ndarray:
  """Return the affinity of a half maximal inhibitory concentration in nM, from 0 to 1."""
  return np.clip(1 - np.log(ic50) / np.log(WEAKEST), 0, 1)


def read(
  rows: Iterable[Mapping[str, str]],
) -> tuple[Int[np.ndarray, "examples 16"], Float[np.ndarray, " examples"]]:
  """Return codes of amino acids and allele, and affinities, of all quantitative rows
  whose peptides have 8 to 15 of the 20 amino acids.
  """
  code = {letter: i for i, letter in enumerate(AMINO_ACIDS)}
  kept = [
    row
    for row in rows
    if row["measurement_type"] == "quantitative"
    and SHORTEST <= len(row["peptide"]) <= LONGEST
    and set(row["peptide"]) <= set(AMINO_ACIDS)
  ]
  alleles = sorted({row["allele"] for row in kept})
  number = {name: i for i, name in enumerate(alleles)}
  inputs = np.full((len(kept), LONGEST + 1), END, np.int32)
  for row, codes in zip(kept, inputs, strict=True):
    peptide = row["peptide"]
    codes[: len(peptide)] = [code[letter] for letter in peptide]
    codes[LONGEST] = number[row["allele"]]
  ic50 = np.array([row["ic50"] for row in kept], np.float64)
  return inputs, affinity(np.maximum(ic50, 1)).astype(np.float32)


@functools.cache
def load_affinities() -> vs.Dataset:
  """Return the measured affinities. Two thirds are called the training set; runs out of
  bootstrap draw from all.

  Raises:
    UserError: the environment variable `MHCFLURRY_DATA` does not lead to them.
  """
  path = os.environ.get(VARIABLE, "")
  if not os.path.isfile(path):
    raise UserError(
      f"{VARIABLE} is {path!r}: give the path of curated_training_data.no_mass_spec.zip, "
      f"see {__name__}"
    )
  with zipfile.ZipFile(path) as archive:
    (name,) = archive.namelist()
    with archive.open(name) as file:
      inputs, targets = read(csv.DictReader(io.TextIOWrapper(file)))
  shuffled = np.random.RandomState(0).permutation(len(targets))
  inputs = inputs[shuffled]
  targets = targets[shuffled]
  cut = 2 * len(targets) // 3
  return vs.Dataset(
    train=(inputs[:cut], targets[:cut]),
    test=(inputs[cut:], targets[cut:]),
    name="affinities of peptides",
    num_classes=None,
  )


def __getattr__(name: str) -> vs.Dataset:
  """Load the data set when a recipe asks for it."""
  if name != "affinities":
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  return load_affinities()
