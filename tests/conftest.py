"""Two XLA devices on the CPU, whatever the machine, before JAX starts; data sets and results stay in `tmp_path`."""

import os

os.environ["JAX_NUM_CPU_DEVICES"] = "2"
os.environ["MPLBACKEND"] = "Agg"
