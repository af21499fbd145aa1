"""Which lowering and lane width: what is tried, when, and what is kept of it."""

import math
import os
import sys
import types
from pathlib import Path
from types import SimpleNamespace

import flax.linen as nn
import jax
import numpy as np
import pytest

import vmapseeds as vs
from vmapseeds import machine
from vmapseeds.campaign import execution
from vmapseeds.convolutions import LOWERINGS
from vmapseeds.lanes import Execution, choice, memory
from vmapseeds.training.supervised import load_recipe_task
from vmapseeds.training.task import lanes_of

FIRST, SECOND, THIRD = WANTED = [
  Execution("sequential", 1),
  Execution("im2col", 1),
  Execution("sequential", 2),
]
LONG = 10**9


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  return tmp_path / "vmapseeds" / "timings.json"


@pytest.fixture
def clock(monkeypatch):
  """A clock that only measuring moves."""
  now = [0.0]
  monkeypatch.setattr(choice.time, "monotonic", lambda: now[0])
  return now


def measured(timings, known=(), model_steps=LONG, clock=None, takes=0.0):
  """(what was tried, the timings after it)."""
  tried = []

  def measure(how):
    tried.append(how)
    if clock:
      clock[0] += takes
    return timings[how]

  return tried, choice.time_candidates(WANTED, dict(known), measure, model_steps)[1]


def test_candidates():
  assert choice.candidates("cpu")[0] == ("sequential", 1)
  assert choice.candidates("gpu")[0] == ("im2col", 64)
  assert choice.candidates("tpu")[0] == ("grouped", 64)
  for platform in ("cpu", "gpu", "tpu"):
    tried = choice.candidates(platform)
    assert {how.lowering for how in tried} <= set(LOWERINGS)
    assert min(how.width for how in tried) == 1, "for what fills a device alone"
    widths = list(dict.fromkeys(how.width for how in tried))
    assert choice.candidates(platform, lowering="grouped") == [
      ("grouped", w) for w in widths
    ]
    assert {how.width for how in choice.candidates(platform, width=7)} == {7}
    assert choice.candidates(platform, lowering="im2col", width=3) == [("im2col", 3)]
    assert choice.candidates(platform, most=1) == list(
      dict.fromkeys((how.lowering, 1) for how in tried)
    )
  assert choice.candidates("gpu", most=40)[:2] == [("im2col", 40), ("grouped", 40)]


def test_small_lanes_of_a_cpu_are_tried_wide_first():
  tried = choice.candidates("cpu", wide=64)
  assert tried[:3] == [("sequential", 64), ("sequential", 16), ("sequential", 1)]
  assert choice.candidates("cpu", wide=64, most=5)[:2] == [
    ("sequential", 5),
    ("sequential", 1),
  ], "few runs"


class Dense(nn.Module):
  hidden: int

  @nn.compact
  def __call__(self, x):
    return nn.Dense(2)(nn.relu(nn.Dense(self.hidden)(x)))


def task_of(model, shape, batch):
  """A recipe's task on random inputs, and the first row of its runs table."""
  inputs = np.random.default_rng(0).normal(size=(2 * batch, *shape)).astype(np.float32)
  data = inputs, np.arange(2 * batch) % 2
  recipe = vs.Recipe(
    name="r",
    dataset=vs.Dataset(train=data, test=data),
    model=model,
    epochs=1,
    batch_size=batch,
    lr=0.1,
    normalize=False,
  )
  task = load_recipe_task(recipe, vs.Runs.independent(1))
  return task, lanes_of(task, vs.Runs.independent(1))


@pytest.mark.parametrize(
  ("hidden", "batch", "least", "most"),
  # The widths of 1, 2, 4, 8, 16, 64 and 256 whose steps took at most 1.25 times the
  # processor seconds of the fastest, on two cores with AVX-512.
  [(4, 8, 64, 256), (16, 16, 64, 256), (128, 32, 4, 64), (256, 256, 1, 8)],
)
def test_how_wide_a_cpu_starts_follows_from_the_size_of_operations(
  hidden, batch, least, most
):
  wide = execution.wide_width(*task_of(Dense(hidden), (hidden,), batch))
  assert least <= wide <= most


def test_convolutions_are_not_run_wide():
  model = nn.Sequential([nn.Conv(2, (3, 3)), lambda x: x.mean((1, 2)), nn.Dense(2)])
  assert execution.wide_width(*task_of(model, (4, 4, 1), 8)) == 1


def test_a_task_of_a_few_numbers_is_run_as_wide_as_there_are_runs():
  sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "programs"))
  import own_task

  run = lanes_of(own_task.task, vs.Runs.independent(1))
  assert execution.wide_width(own_task.task, run) == execution.MOST_WIDE
  chosen = execution.choose_execution(
    own_task.task, run, model_steps=256, most=128, platform="cpu", progress=False
  )
  assert chosen == ("sequential", 128)


@pytest.mark.parametrize(("method", "can_batch"), [(None, False), ("sequential", True)])
def test_a_program_that_cannot_be_batched_starts_with_one_lane(method, can_batch):
  def advance(data, run, state, first, last):
    return jax.pure_callback(lambda x: x, state, state, vmap_method=method)

  task = vs.Task(
    name="calls",
    start=lambda data, run: jax.random.normal(run.key("init"), (3,)),
    advance=advance,
    finish=lambda data, run, state: {"value": (state * state).sum()},
    rounds=1,
    sources=("init",),
    outputs={"value": vs.Output(role="score")},
    version="1",
  )
  width = execution.wide_width(task, lanes_of(task, vs.Runs.independent(1)))
  assert (width > 1) == can_batch


def test_large_networks_are_tried_alone_first():
  tried = choice.candidates("tpu", filling=2)
  assert tried == [("sequential", 1), ("grouped", 2), ("sequential", 2), ("im2col", 2)]
  assert choice.candidates("tpu", most=1, filling=2) == [
    ("sequential", 1),
    ("grouped", 1),
    ("im2col", 1),
  ]
  assert choice.candidates("tpu", filling=64)[0] == ("grouped", 64), (
    "64 lanes are no more than fill the device"
  )
  assert choice.candidates("tpu", most=2)[0] == ("grouped", 2), (
    "few runs of a small network"
  )
  assert choice.candidates("tpu", lowering="grouped", filling=2) == [
    ("grouped", 1),
    ("grouped", 2),
  ]


def test_all_are_tried_and_the_fastest_is_taken():
  tried, timings = measured({FIRST: 3.0, SECOND: 1.0, THIRD: 2.0})
  assert tried == WANTED
  assert choice.best(WANTED, timings) == SECOND
  tried, timings = measured({THIRD: 0.5}, known={FIRST: 3.0, SECOND: 1.0})
  assert tried == [THIRD]
  assert choice.best(WANTED, timings) == THIRD
  assert measured({}, known=timings)[0] == []


def test_short_campaigns_do_not_pay():
  tried, timings = measured({}, model_steps=choice.FEW_MODEL_STEPS - 1)
  assert (tried, choice.best(WANTED, timings)) == ([], FIRST)
  # The first choice takes less than a minute here. Only a longer campaign measures the
  # others.
  tried, timings = measured({FIRST: 0.001}, model_steps=50_000)
  assert (tried, timings, choice.best(WANTED, timings)) == (
    [FIRST],
    {FIRST: 0.001},
    FIRST,
  )
  assert measured({}, known=timings, model_steps=50_000)[0] == []
  assert measured(dict.fromkeys(WANTED, 1.0), known=timings, model_steps=70_000)[0] == [
    SECOND,
    THIRD,
  ]
  # A known timing costs nothing, but counts only if the first choice was timed too.
  assert (
    choice.best(WANTED, measured({}, known={THIRD: 1.0}, model_steps=1)[1]) == FIRST
  )
  assert (
    choice.best(WANTED, measured({}, known={FIRST: 2.0, THIRD: 1.0}, model_steps=1)[1])
    == THIRD
  )


def test_measuring_ends_with_the_budget(clock):
  timings = {FIRST: 0.001, SECOND: 0.0005, THIRD: 0.0001}
  for takes, tried in (
    (choice.BUDGET / 1.5, [FIRST, SECOND]),
    (choice.BUDGET + 1, [FIRST]),
    (1, WANTED),
  ):
    assert measured(timings, model_steps=100_000, clock=clock, takes=takes)[0] == tried
  # For a campaign of a day, measuring may take a hundredth of the time.
  assert measured(timings, model_steps=86_400_000, clock=clock, takes=100)[0] == WANTED


def test_what_does_not_fit_is_not_taken():
  tried, timings = measured(
    {FIRST: None, SECOND: 4.0, THIRD: None}, model_steps=choice.FEW_MODEL_STEPS
  )
  assert tried == WANTED
  assert choice.best(WANTED, timings) == SECOND
  assert choice.best(WANTED, {FIRST: None}) == SECOND, "not known to be too large"
  assert choice.best(WANTED[::-1], dict.fromkeys(WANTED)).width == 1


def test_a_candidate_that_does_not_run_costs_no_other_its_turn(clock):
  """The budget begins with the first that runs."""
  timings = {FIRST: None, SECOND: 0.001, THIRD: 0.0005}
  long = {"clock": clock, "takes": choice.BUDGET + 1}
  assert measured(timings, model_steps=100_000, **long)[0] == [FIRST, SECOND]
  nothing = dict.fromkeys(WANTED)
  assert measured(nothing, model_steps=100_000, **long) == (WANTED, nothing)
  # The first that runs takes less than a minute for the campaign.
  assert measured(timings, model_steps=50_000)[0] == [FIRST, SECOND]


def test_no_narrower_width_is_tried_of_what_does_not_run():
  asked = []

  def check(execution):
    asked.append(execution)
    return None if execution.lowering == "grouped" else memory.MemoryFit(True, 1.0, 2.0)

  wanted = [Execution("grouped", 64), Execution("im2col", 64)]
  assert list(choice.fitting_candidates(wanted, check)) == wanted[1:]
  assert asked == wanted


def test_timings_are_kept_by_their_conditions(cache):
  conditions = {"device_kind": "cpu", "image": (8, 8, 1)}
  assert choice.read_timings(conditions) == {}
  choice.write_timings(conditions, {FIRST: 1.5, SECOND: None})
  choice.write_timings(conditions, {SECOND: 0.5, Execution("grouped", 64): None})
  choice.write_timings({"device_kind": "gpu"}, {THIRD: 2.0})
  assert choice.read_timings(conditions) == {
    FIRST: 1.5,
    SECOND: 0.5,
    Execution("grouped", 64): None,
  }
  assert choice.read_timings({"device_kind": "gpu"}) == {THIRD: 2.0}
  assert [path.name for path in cache.parent.iterdir()] == [cache.name]


@pytest.mark.parametrize(
  "content",
  [
    "",
    "{",
    "[1]",
    "7",
    '{"{}": 3}',
    '{"{}": {"im2col": 1}}',
    '{"{}": {"im2col 1": "x"}}',
  ],
)
def test_a_damaged_file_is_written_anew(cache, content):
  cache.parent.mkdir()
  cache.write_text(content)
  assert choice.read_timings({}) == {}
  choice.write_timings({}, {FIRST: 1.0})
  assert choice.read_timings({}) == {FIRST: 1.0}


def test_a_file_that_cannot_be_written_does_not_matter(cache):
  cache.parent.write_text("a file where the folder should be")
  choice.write_timings({}, {FIRST: 1.0})
  assert choice.read_timings({}) == {}


def test_memory(monkeypatch):
  assert 0 < machine.free_host_memory() < math.inf
  assert memory.free_memory(jax.devices()[0]) == pytest.approx(
    machine.free_host_memory() / 2, rel=0.2
  )


@pytest.fixture
def in_groups(tmp_path, monkeypatch):
  """in_groups(of_process, files): a process in these control groups."""

  def make(of_process, files):
    for name, text in files.items():
      (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
      (tmp_path / name).write_text(text)
    monkeypatch.setattr(machine, "CONTROL_GROUPS", tmp_path)
    read = machine.Path.read_text
    monkeypatch.setattr(
      machine.Path,
      "read_text",
      lambda path: of_process if str(path) == "/proc/self/cgroup" else read(path),
    )

  return make


@pytest.mark.parametrize(
  ("of_process", "files", "left"),
  [
    # A job of Slurm: the limit is that of the job, two groups above the step's.
    (
      "0::/slurm/job_7/step_0",
      {
        "slurm/job_7/memory.max": "8000\n",
        "slurm/job_7/memory.current": "5000\n",
        "slurm/job_7/memory.stat": "anon 3500\ninactive_file 1200\nactive_file 300\n",
        "slurm/job_7/step_0/memory.max": "max\n",
        "slurm/job_7/step_0/memory.current": "5000\n",
      },
      [4200],
    ),
    # A container that sees only its own group.
    ("0::/", {"memory.max": "700", "memory.current": "100", "memory.stat": ""}, [600]),
    # Version 1, in a container that does not see the groups it is named after.
    (
      "3:cpuset:/\n4:memory:/docker/a1\n0::/",
      {
        "memory/memory.limit_in_bytes": "900",
        "memory/memory.usage_in_bytes": "600",
        "memory/memory.stat": "inactive_file 50\ntotal_inactive_file 200\n",
      },
      [500],
    ),
    ("", {}, []),
  ],
)
def test_memory_of_control_groups(in_groups, monkeypatch, of_process, files, left):
  in_groups(of_process, files)
  free = types.SimpleNamespace(available=3072)
  monkeypatch.setattr("psutil.virtual_memory", lambda: free)
  assert [*machine.left_to_groups()] == left
  assert machine.free_host_memory() == min([3072, *left])


@pytest.mark.parametrize(
  ("of_process", "files", "expected"),
  [
    # A container of 1.5 of 8 cores, and a job above whose limit is lower.
    ("0::/", {"cpu.max": "150000 100000\n"}, 2),
    (
      "0::/job/step",
      {"job/step/cpu.max": "max 100000", "job/cpu.max": "5000 10000"},
      1,
    ),
    (
      "4:cpu,cpuacct:/docker/a1\n0::/",
      {
        "cpu,cpuacct/cpu.cfs_quota_us": "300000",
        "cpu,cpuacct/cpu.cfs_period_us": "100000",
      },
      3,
    ),
    ("2:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
    ("0::/", {"cpu.max": "1600000 100000"}, 8),
    ("", {}, 8),
  ],
)
def test_cores_of_control_groups(in_groups, monkeypatch, of_process, files, expected):
  in_groups(of_process, files)
  cores = set(range(8))
  monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: cores, raising=False)
  assert machine.cores() == expected


@pytest.mark.parametrize(
  ("files", "plugins", "hidden", "platforms"),
  [
    ([], ["xla_cuda12"], True, "cpu"),
    ([], [], False, "cpu"),
    ([], ["xla_cuda12", "rocm"], True, None),
    (["nvidiactl"], ["xla_cuda12"], False, None),
    (["vfio/0"], [], False, None),
    (["vfio/vfio"], [], False, "cpu"),
  ],
)
def test_compilers_for_absent_accelerators_do_not_start(
  tmp_path, monkeypatch, files, plugins, hidden, platforms
):
  for file in files:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
  points = [SimpleNamespace(name=name, value=f"jax_plugins.{name}") for name in plugins]
  updates = []
  config = SimpleNamespace(update=lambda *setting: updates.append(setting))
  modules = dict(sys.modules) | {"jax": SimpleNamespace(config=config)}
  monkeypatch.setattr(machine, "DEVICES", tmp_path)
  monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
  monkeypatch.setattr(
    machine, "sys", SimpleNamespace(modules=modules, platform="linux")
  )
  monkeypatch.setenv("JAX_PLATFORMS", "")
  monkeypatch.delenv("JAX_PLATFORMS")
  machine.hide_absent_accelerators.__wrapped__()
  assert ("jax_plugins.xla_cuda12" in modules) is hidden
  assert ("jax_cuda12_plugin" in modules) is hidden
  assert os.environ.get("JAX_PLATFORMS") == platforms
  # JAX may be imported before a command begins.
  assert updates == ([("jax_platforms", "cpu")] if platforms else [])
