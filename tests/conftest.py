"""Settings made before JAX starts: two XLA devices on any machine's CPU, fast
compilation, and for each worker and its subprocesses a cache of programs and one of
timings. Annotated shapes are checked at run time.
"""

import atexit
import contextlib
import gc
import os
import shutil
import tempfile

import jaxtyping
import pytest

os.environ["JAX_NUM_CPU_DEVICES"] = "2"
os.environ["MPLBACKEND"] = "Agg"
FAST = "JAX_DISABLE_MOST_OPTIMIZATIONS"  # compiles in a quarter of the time
os.environ.setdefault(FAST, "1")
OPTIMIZED = (
  os.environ[FAST] != "1"
)  # all tests with full optimization, as users compile

# The same examples in every run; `--hypothesis-profile random` draws others, and keeps
# those that fail.
with contextlib.suppress(ImportError):  # the environments of a short list have none
  from hypothesis import settings

  settings.register_profile("fixed", derandomize=True, database=None, deadline=None)
  settings.register_profile("random", print_blob=True, deadline=None)
  settings.load_profile("fixed")

worker = os.environ.get("PYTEST_XDIST_WORKER", "")
if not worker:
  os.environ["VMAPSEEDS_TESTS"] = tempfile.mkdtemp(prefix="vmapseeds-tests-")
  atexit.register(shutil.rmtree, os.environ["VMAPSEEDS_TESTS"], ignore_errors=True)
# Each worker has its own cache, because JAX does not write caches atomically.
for name in ("JAX_COMPILATION_CACHE_DIR", "XDG_CACHE_HOME"):
  os.environ[name] = os.path.join(os.environ["VMAPSEEDS_TESTS"], worker, name)
gc.set_threshold(
  100_000, 50, 50
)  # traced programs are many objects that stay: frequent collections cost a tenth of the time

SHAPES = (
  *(f"training.{name}" for name in ("augment", "evaluation", "inputs", "loop")),
  # Not the passes over programs, of thousands of short calls: they annotate no shape.
  *(f"lanes.{name}" for name in ("memory", "spreading")),
  "models",
)
jaxtyping.install_import_hook(
  [f"vmapseeds.{name}" for name in SHAPES], "beartype.beartype"
)
# In these only arrays are checked: other wrong types must reach the package's own
# one-line messages.
ARRAYS = ("results.recording", "reports.plots", "training.runs", "stats")
jaxtyping.install_import_hook(
  [f"vmapseeds.{name}" for name in ARRAYS], "shapes.checked"
)


def pytest_configure():
  """Caches quickly compiled programs too, but only in the tests' own process, which is
  not killed while it writes.
  """
  import jax

  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def is_optimized(item):
  return OPTIMIZED or item.get_closest_marker("optimized") is not None


def pytest_collection_modifyitems(items):
  """A file's `optimized` tests come last."""
  files = {
    path: place for place, path in enumerate(dict.fromkeys(item.path for item in items))
  }
  items.sort(key=lambda item: (files[item.path], is_optimized(item)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
  """Switches optimization before a test's fixtures: `optimized` tests share no program
  with the others.

  Which optimizations there are is not in the key under which JAX keeps a program.
  Another setting is, which does nothing on a CPU, and is switched with it.
  """
  import jax

  fast, name = not is_optimized(item), "jax_disable_most_optimizations"
  if fast != jax.config.values[name]:
    jax.config.update(name, fast)
    os.environ[FAST] = str(int(fast))  # for subprocesses
    jax.config.update("jax_threefry_gpu_kernel_lowering", not fast)


# These draw from the same campaigns, which a worker trains once.
PAPERS = tuple(
  f"tests/test_{name}.py" for name in ("banerjee", "bouthillier", "papers")
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
  """With `--dist loadfile`, the files of the papers go to one worker."""
  from xdist.scheduler import LoadFileScheduling

  class ByFile(LoadFileScheduling):
    def _split_scope(self, nodeid):
      file = super()._split_scope(nodeid)
      return "papers" if file in PAPERS else file

  return ByFile(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def made(tmp_path_factory):
  """A folder in which the papers' figures are made, sharing their campaigns."""
  return tmp_path_factory.mktemp("papers")
