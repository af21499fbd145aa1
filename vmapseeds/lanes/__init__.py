"""Run code written for one lane over many: the spreading over devices, and the choice
of lowering and lane width.
"""

from vmapseeds.lanes.choice import Execution
from vmapseeds.lanes.memory import narrower_width, parse_oom_message
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
