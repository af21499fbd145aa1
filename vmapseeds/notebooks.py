"""Begin a notebook: where its results are kept, and how many runs it trains."""

import os
from pathlib import Path

DRIVE = Path("/content/drive/MyDrive")  # where Colab mounts it


def begin(name: str, *, on_cpu: int, elsewhere: int) -> tuple[str, int]:
  """Start JAX, say on what is trained, and return a notebook's folder and its runs.

  Args:
    name: the folder's, in `VMAPSEEDS_RESULTS`, else on a mounted drive of Colab, else in
      `results`.
    on_cpu: how many runs are trained on a CPU.
    elsewhere: how many on a GPU or TPU. `VMAPSEEDS_RUNS` stands above both.
  """
  # Starting JAX takes seconds, which an import need not.
  from vmapseeds import lanes

  device = lanes.start_jax()[0]
  is_cpu = device.platform == "cpu"
  top = "results"
  if DRIVE.is_dir():
    top = str(DRIVE / "vmapseeds")
  folder = os.path.join(os.environ.get("VMAPSEEDS_RESULTS", top), name)
  usual = on_cpu if is_cpu else elsewhere
  runs = int(os.environ.get("VMAPSEEDS_RUNS", usual))
  print(f"{runs} runs on {device.device_kind}, in {folder}")
  if is_cpu:
    print("There is no TPU or GPU here, so fewer runs are trained.")
    print("On Colab, choose one under Runtime > Change runtime type.")
  return folder, runs
