"""Convolutions of any program, made fast: forward and backward, of one network and of
many with kernels of their own.

`fast_convolutions` is for functions, `fast_equations` for whoever rewrites a program.
`lowering` says how the lanes of `jax.vmap` are run.
"""

from vmapseeds.convolutions.primitive import LOWERINGS, lowering
from vmapseeds.convolutions.rewriting import (
  CONVOLUTIONS,
  calls_onednn,
  conv_general_dilated,
  fast_convolutions,
  fast_equations,
  multiplications,
)
