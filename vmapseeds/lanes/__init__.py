"""Runs code written for one lane over many: the spreading over devices, the choice of
lowering and lane width, compilers' estimates, and the seed-batched convolution.
"""

from vmapseeds.lanes.choice import Choice
from vmapseeds.lanes.convolution import LOWERINGS, conv_general_dilated, lowering
from vmapseeds.lanes.estimates import Estimate, asked, estimate, narrower, ranked, said
from vmapseeds.lanes.spreading import (
  Stages,
  compiled,
  devices,
  replicate,
  spread,
  spread_stages,
  start_jax,
  sum_over_devices,
)
from vmapseeds.target import TARGETS, absent, compiling_for, platform, target_of
