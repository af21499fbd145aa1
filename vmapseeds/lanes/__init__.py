"""Run code written for one lane over many: the spreading over devices, the choice of
lowering and lane width, and the seed-batched convolution.
"""

from vmapseeds.lanes.choice import Execution
from vmapseeds.lanes.convolution import LOWERINGS, lowering, sizes_of
from vmapseeds.lanes.memory import narrower_width, parse_oom_message
from vmapseeds.lanes.rewriting import conv_general_dilated, fast_convolutions
from vmapseeds.lanes.spreading import (
  Stages,
  compile_step_to_measure,
  devices,
  replicate,
  shapes_of_lanes,
  spread,
  spread_stages,
  start_jax,
  sum_over_devices,
)
from vmapseeds.target import compiling_for, platform
