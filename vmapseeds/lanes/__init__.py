"""How one-lane code runs as many: lanes over devices, lane width and its choice, the seed-batched convolution."""

from vmapseeds.lanes.choice import Choice
from vmapseeds.lanes.convolution import LOWERINGS, conv_general_dilated, lowering
from vmapseeds.lanes.spread import Stages, compiled, devices, replicate, spread, spread_stages
from vmapseeds.lanes.target import compiling_for, platform

__all__ = [
  "LOWERINGS",
  "Choice",
  "Stages",
  "compiled",
  "compiling_for",
  "conv_general_dilated",
  "devices",
  "lowering",
  "platform",
  "replicate",
  "spread",
  "spread_stages",
]
