"""Write kept networks as orbax checkpoints, one a run: any Flax program restores them
without vmapseeds, with the recipe and the normalisation of the inputs beside them.
"""

import sys
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp

import vmapseeds as vs


def export(folder: str, out: str) -> None:
  results = vs.open_results(folder)
  # Without normalisation there are none.
  shared = {name: results.attrs.get(name) for name in ("mean", "std")}
  with ocp.StandardCheckpointer() as checkpointer:
    for run in range(results.sizes["run"]):
      variables = jax.tree.map(np.asarray, vs.load_networks(folder, run).variables)
      # Runs with training examples of their own, as of folds, have their own moments.
      moments = variables.pop("input_moments", shared)
      about = {"recipe": results.attrs["recipe"]}
      for name, unchanged in (("mean", 0.0), ("std", 1.0)):
        moment = moments[name]
        about[name] = unchanged if moment is None else np.asarray(moment).tolist()
      path = Path(out).absolute() / str(run)  # orbax takes no relative paths
      checkpointer.save(path, variables, custom_metadata=about)


if __name__ == "__main__":
  export(*sys.argv[1:])  # a folder trained with --keep-params, and a new one
