"""How one-lane code runs as many: lanes over devices, lane width and its choice, what compilers say of them, the
seed-batched convolution."""

from vmapseeds.lanes.choice import Choice
from vmapseeds.lanes.convolution import LOWERINGS, conv_general_dilated, lowering
from vmapseeds.lanes.estimates import Estimate, asked, estimate, narrower, ranked, said
from vmapseeds.lanes.spreading import Stages, compiled, devices, replicate, spread, spread_stages, start_jax
from vmapseeds.target import TARGETS, absent, compiling_for, platform, target_of
