"""Two XLA devices on the CPU, whatever the machine, before JAX starts; data sets and results stay in `tmp_path`."""

import os
import tempfile

os.environ["JAX_NUM_CPU_DEVICES"] = "2"
os.environ["MPLBACKEND"] = "Agg"
# Compiled once for the whole suite, its subprocesses included.
os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="vmapseeds-tests-")
