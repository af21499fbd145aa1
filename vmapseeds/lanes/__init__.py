"""How one-lane code runs as many: lanes over devices, lane width, the seed-batched convolution."""

from vmapseeds.lanes.convolution import LOWERINGS, conv_general_dilated, lowering
from vmapseeds.lanes.spread import default_width, devices, replicate, spread

__all__ = ["LOWERINGS", "conv_general_dilated", "default_width", "devices", "lowering", "replicate", "spread"]
