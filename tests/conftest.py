"""Set before JAX starts: two XLA devices on the CPU whatever the machine, and one cache of compiled programs and one of
timings for the whole suite with its subprocesses. Annotated shapes are checked at run time."""

import gc
import os
import tempfile

import jaxtyping
import pytest

os.environ["JAX_NUM_CPU_DEVICES"] = "2"
os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="vmapseeds-tests-")
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="vmapseeds-tests-timings-")
os.environ["MPLBACKEND"] = "Agg"
gc.set_threshold(100_000, 50, 50)  # traced programs are many objects that stay: to look at them often takes a tenth longer

SHAPES = (*(f"training.{name}" for name in ("augment", "evaluation", "inputs", "loop")), "lanes", "models")
jaxtyping.install_import_hook([f"vmapseeds.{name}" for name in SHAPES], "beartype.beartype")
# Of these the arrays alone: users' mistakes of other types are one line, which a type checker would speak before.
ARRAYS = ("results.imports", "reports.plots", "training.runs", "stats")
jaxtyping.install_import_hook([f"vmapseeds.{name}" for name in ARRAYS], "shapes.checked")


def pytest_configure():
  """Programs that compile fast are kept too: by the tests' own process, which nothing kills while it writes them."""
  import jax

  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
  """Before a test's fixtures: `unoptimized` ones compile in a third of the time, and share no program with the others."""
  import jax

  wanted, name = item.get_closest_marker("unoptimized") is not None, "jax_disable_most_optimizations"
  if wanted != jax.config.values[name]:
    jax.config.update(name, wanted)
    jax.clear_caches()


@pytest.fixture(scope="session")
def made(tmp_path_factory):
  """A folder in which the papers' figures are made, sharing their campaigns."""
  return tmp_path_factory.mktemp("papers")
