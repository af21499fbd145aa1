"""A rehearsal of the measurements on a borrowed machine: its packages alone, a copy of
the source that is neither installed nor a checkout, and no network.
"""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cases import words_of
from test_on_device import save_jpegs

from experiments.benchmarks import on_device
from experiments.benchmarks.carried import Archive

SOURCE = Path(__file__).parents[2]
# What our programs may find there, as its list of packages says, with what these need
PACKAGES = """
  absl-py aiofiles attrs certifi charset-normalizer chex click cloudpickle contourpy
  cycler einops etils flax fonttools fsspec humanize idna jax jaxlib jaxtyping jinja2
  joblib kiwisolver lazy-loader markdown-it-py markupsafe matplotlib mdurl ml-dtypes
  mpmath msgpack narwhals networkx numpy nvidia-ml-py optax opt-einsum orbax-checkpoint
  packaging pandas pillow prometheus-client protobuf psutil pygments pyparsing
  python-dateutil pyyaml regex requests rich scikit-learn scipy simplejson six sympy
  tensorstore threadpoolctl toolz torch tqdm treescope triton typing-extensions
  typing-inspect urllib3 uvloop wadler-lindig wrapt xarray zipp
"""
ABSENT = words_of("vmapseeds zarr cyclopts tensorflow_datasets upath array_record")
CALLS = {
  1: words_of(
    "--counts errors --examples 20 --recipes digits_cnn --workloads digits "
    "--rounds 1 --patience 1000 --steps 2 --set model=linear"
  ),
  2: words_of(
    "--repeated digits_cnn --recipes digits_cnn --set epochs=1 batch_size=4 "
    "model=linear augment="
  ),
  3: words_of(
    "--lengths airbench_quarter-0 airbench_quarter-2 --set model=mlp "
    "batch_size=4 augment= initialize=None eval_params=None predict=argmax "
    "optimizer=nesterov"
  ),
}


@pytest.fixture(scope="module")
def borrowed(tmp_path_factory):
  """A folder with a copy of the source, images, and `site`, where the packages are."""
  folder = tmp_path_factory.mktemp("borrowed")
  for package in ("vmapseeds", "experiments"):
    shutil.copytree(
      SOURCE / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
    )
  (folder / ".commit").write_text("0123abc\n")
  save_jpegs(folder / "cifar10_jpeg.npz", {"train": 20, "test": 6}, (32, 32, 3))
  site = folder / "site"
  site.mkdir()
  for name in PACKAGES.split():
    try:
      files = importlib.metadata.files(name) or []
    except importlib.metadata.PackageNotFoundError:
      continue
    for file in files:
      top = file.parts[0]
      link = site / top
      if top not in ("..", "__pycache__") and not link.exists():
        whole = Path(str(file.locate())).parents[len(file.parts) - 1] / top
        link.symlink_to(whole)
  return folder


def run(folder, *arguments):
  """Run Python in the copy: nothing else can be imported, and no network is there if the
  system lets us leave it.
  """
  alone = ["unshare", "--map-root-user", "--net"]
  try:
    subprocess.run([*alone, "true"], check=True, capture_output=True)
  except (OSError, subprocess.CalledProcessError):
    alone = []
  kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
  environment = kept | {
    "PYTHONPATH": "site",
    "PYTHONDONTWRITEBYTECODE": "1",
    "JAX_PLATFORMS": "cpu",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "XDG_CACHE_HOME": str(folder / "cache"),
  }
  # -S: without the packages of this interpreter. Processes that it starts have it, too.
  return subprocess.run(
    [*alone, sys.executable, "-S", *arguments],
    cwd=folder,
    env=environment,
    capture_output=True,
    text=True,
  )


@pytest.mark.slow
def test_the_borrowed_machine_lacks_what_it_lacks(borrowed):
  code = (
    "import importlib.metadata as m, importlib.util as u, json\n"
    f"absent = [n for n in {ABSENT[1:]} if u.find_spec(n)]\n"
    "try: m.version('vmapseeds')\n"
    "except m.PackageNotFoundError: absent.append(m.version('jax'))\n"
    "print(json.dumps(absent))"
  )
  result = run(borrowed, "-c", code)
  assert json.loads(result.stdout) == [importlib.metadata.version("jax")], result.stderr


@pytest.mark.seldom
def test_every_call_runs_on_a_borrowed_machine(borrowed):
  module = ["-m", "experiments.benchmarks.on_device"]
  done = []
  for call, small in CALLS.items():
    what = ["--call", str(call), "--out", "results.zip", "--runs", "3", "--most", "1"]
    result = run(borrowed, *module, *what, *small)
    print(f"--- call {call}", result.stdout, result.stderr, sep="\n")
    assert result.returncode == 0
    done += [line.split(":") for line in result.stdout.splitlines()]
  seconds = [name for name, rest in done if rest.strip().removesuffix(" s").isdecimal()]
  assert len(seconds) == len(done), "an item failed"
  assert {name.split()[0] for name in seconds} == {*on_device.PARTS}
  archive = Archive(borrowed / "results.zip")
  records = {
    name: archive.read_json(name) for name in archive.members if name.endswith(".json")
  }
  assert len(records) == len(done)
  assert all(record["done"] for record in records.values())
  rows = [row for record in records.values() for row in record["rows"]]
  assert {row["commit"] for row in rows} == {"0123abc"}
  assert all("is not installed" in row["error"] for row in rows if row.get("error")), (
    "only PyTorch may be missing"
  )
  predictions = archive.read_arrays("airbench_quarter/predictions-2-0.npz")
  assert predictions["predictions"].shape == (6, 3)
  # Called again, nothing is left to do.
  assert run(borrowed, *module, *what, *CALLS[3]).stdout == ""
  result = run(borrowed, *module, "--out", "results.zip", "--write", "RESULTS.md")
  assert result.returncode == 0, result.stderr
  text = (borrowed / "RESULTS.md").read_text()
  assert [line.split()[-1] for line in text.splitlines() if line.startswith("###")] == [
    *on_device.PARTS
  ]
