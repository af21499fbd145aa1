"""Settings made before JAX starts: two XLA devices on any machine's CPU, fast
compilation, a cache of compiled programs that all workers, their subprocesses and later
runs share, and one of timings for each worker. Annotated shapes are checked at run time.
"""

import atexit
import collections
import contextlib
import functools
import gc
import os
import shutil
import tempfile

import jaxtyping
import program_cache
import pytest

os.environ["JAX_NUM_CPU_DEVICES"] = "2"
os.environ["MPLBACKEND"] = "Agg"
FAST = "JAX_DISABLE_MOST_OPTIMIZATIONS"  # compiles in a quarter of the time
os.environ.setdefault(FAST, "1")
OPTIMIZED = (
  os.environ[FAST] != "1"
)  # all tests with full optimization, as users compile

# The same programs on all machines; tests of oneDNN's calls turn them on.
os.environ["VMAPSEEDS_ONEDNN"] = "0"
os.environ["VMAPSEEDS_TRACEBACK"] = "1"  # a failure shows the package's own frames
# The same examples in every run; `--hypothesis-profile random` draws others, and keeps
# those that fail.
with contextlib.suppress(ImportError):  # the environments of a short list have none
  from hypothesis import settings

  settings.register_profile("fixed", derandomize=True, database=None, deadline=None)
  settings.register_profile("random", print_blob=True, deadline=None)
  settings.load_profile("fixed")

# Campaigns are many small files: in memory, where there is room, making and removing
# them takes half the time.
MEMORY = "/dev/shm"
if os.path.isdir(MEMORY) and shutil.disk_usage(MEMORY).free > 4 * 2**30:
  os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)

worker = os.environ.get("PYTEST_XDIST_WORKER", "")
if not worker:
  folder = tempfile.mkdtemp(
    prefix="vmapseeds-tests-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")
  )
  os.environ["VMAPSEEDS_TESTS"] = folder
  atexit.register(shutil.rmtree, os.environ["VMAPSEEDS_TESTS"], ignore_errors=True)
os.environ["XDG_CACHE_HOME"] = os.path.join(
  os.environ["VMAPSEEDS_TESTS"], worker, "XDG_CACHE_HOME"
)
# Subprocesses read the cache of programs, and do not write it: a test may kill them.
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "1000000"
gc.set_threshold(
  100_000, 50, 50
)  # traced programs are many objects that stay: frequent collections cost a tenth of the time
# No test takes the power away, and waiting for the disk takes a tenth of the time. Tests
# of what is flushed look at the calls.
os.fsync = lambda descriptor: None

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
from vmapseeds import machine  # noqa: E402, after the hooks

# Once a process: looking for plugins of JAX takes a third of a short command.
machine.hide_absent_accelerators = functools.cache(machine.hide_absent_accelerators)


# Of this process, by what they count
programs = collections.Counter()
EVENTS = {
  "/jax/core/compile/jaxpr_trace_duration": "traced",
  "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowered",
  "/jax/core/compile/backend_compile_duration": "compiled",
}
HIT = "/jax/compilation_cache/cache_hits"


def pytest_configure(config):
  """Caches all compiled programs, and counts them."""
  import jax

  folder = cache_folder(config, f"xla-{jax.__version__}")
  jax.config.update("jax_compilation_cache_dir", folder)
  os.environ["JAX_COMPILATION_CACHE_DIR"] = folder
  program_cache.keep_all()
  os.environ["MPLCONFIGDIR"] = cache_folder(config, "matplotlib")  # its list of fonts

  def count_duration(event, seconds, **_):
    if event in EVENTS:
      programs[EVENTS[event]] += 1

  def count_hit(event, **_):
    if event == HIT:  # counted as compiled too
      programs.update({"read from the cache": 1, "compiled": -1})

  jax.monitoring.register_event_duration_secs_listener(count_duration)
  jax.monitoring.register_event_listener(count_hit)


def cache_folder(config, name):
  """Return a folder of pytest's cache: `pytest --cache-clear` empties it. JAX's key of a
  program does not tell how well it was optimized.
  """
  cache = getattr(config, "cache", None)  # none with `-p no:cacheprovider`
  above = cache.mkdir("vmapseeds") if cache else os.environ["VMAPSEEDS_TESTS"]
  folder = os.path.join(above, f"{name}{'-optimized' * OPTIMIZED}")
  os.makedirs(folder, exist_ok=True)
  return folder


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
  """Hands a worker's count to the process that reports."""
  output = getattr(session.config, "workeroutput", None)
  if output is not None:
    output["programs"] = dict(programs)
  gc.collect()
  gc.freeze()  # pytest collects five times more at its end, which takes seconds


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
  programs.update(getattr(node, "workeroutput", {}).get("programs", {}))


def pytest_terminal_summary(terminalreporter):
  names = (*EVENTS.values(), "read from the cache")
  counts = ", ".join(f"{programs[name]} {name}" for name in names)
  terminalreporter.write_line(f"JAX programs: {counts}")


def is_optimized(item):
  return OPTIMIZED or item.get_closest_marker("optimized") is not None


def pytest_collection_modifyitems(config, items):
  """A file's `optimized` tests come last. For workers, the longest files come first, and
  then those of the most tests.
  """
  counts = collections.Counter(item.path for item in items)
  files = [*counts]
  if worker:
    longest = LONGEST
    if "not slow" not in config.option.markexpr:
      longest = tuple(dict.fromkeys((*LONGEST_SLOW, *LONGEST)))
    first = {f"test_{name}": place for place, name in enumerate(longest)}
    files.sort(key=lambda path: (first.get(path.stem, len(first)), -counts[path]))
  places = {path: place for place, path in enumerate(files)}
  items.sort(key=lambda item: (places[item.path], is_optimized(item)))


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
    jax.config.update("jax_threefry_gpu_kernel_lowering", not fast)
    os.environ[FAST] = str(int(fast))  # for subprocesses
    os.environ["JAX_THREEFRY_GPU_KERNEL_LOWERING"] = str(int(not fast))


@pytest.fixture
def undrawn(monkeypatch):
  """Saved pages have an empty file for each figure, whose drawing takes longer than all
  the rest.
  """
  from vmapseeds.reports import pages
  from vmapseeds.store.files import write

  def save(figure, path, image):
    write(path, b"")
    return "data:image/png;base64,"

  monkeypatch.setattr(pages, "_save_figure", save)


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


# Of a module, not of all tests: until it is closed, no other loop of asyncio can run.
@pytest.fixture(scope="module")
def browser():
  """A Chromium or Chrome that is there, by Playwright."""
  reason = "Playwright is not installed: pip install playwright"
  api = pytest.importorskip("playwright.sync_api", reason=reason)
  program = next(filter(None, map(shutil.which, BROWSERS)), None)
  if program is None:
    pytest.skip(f"there is none of {', '.join(BROWSERS)}")
  with api.sync_playwright() as playwright:
    started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
    yield started
    started.close()


# The files that take longest, of the README's test command, the longest first. Workers
# begin with these, so that none is left alone with one at the end; some have few tests.
LONGEST = (
  "train", "metrics", "hostile", "report", "convolution", "tallies", "k_fold", "campaign",
  "rewriting", "score_tables", "reliability", "identity", "recorder", "networks", "cli",
  "compare", "odd_programs", "supervised", "sweeps", "checkpoints", "batch_losses",
  "onednn", "examples", "pandas", "outputs", "roles", "engines", "strict_modes", "tables",
  "docs", "counted", "contract", "over_tasks", "stores", "large_reports", "estimate",
)  # fmt: skip


# Those with the longest of the longer tests: campaigns of the papers, whole programs, and
# installations. A worker that met them last would leave the other one idle for minutes.
LONGEST_SLOW = (
  "banerjee", "bouthillier", "jordan", "hostile",
  "notebook", "programs", "package", "engines", "reliability", "benchmarks", "search",
)  # fmt: skip


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
  """With `--dist loadfile`, the longest files come first."""
  from xdist.scheduler import LoadFileScheduling

  config.option.loadscopereorder = False  # by the number of tests
  return (
    LoadFileScheduling(config, log) if config.getvalue("dist") == "loadfile" else None
  )
