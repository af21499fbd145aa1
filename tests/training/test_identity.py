"""One name, one experiment: what changes a campaign's identity, and what does not."""

import dataclasses
import importlib
import json
import linecache
import sys

import jax
import numpy as np
import optax
import pytest
from cases import mostly_seldom, mostly_slow, one_in
from lab import HELPER, MODULE

import vmapseeds as vs
from vmapseeds.campaign import block_training, planning, provenance, starting
from vmapseeds.campaign.options import Options
from vmapseeds.errors import UserError
from vmapseeds.store.results import Results
from vmapseeds.training import task as task_module
from vmapseeds.training.identity import canonical_text

if hasattr(jax, "enable_x64"):
  enable_x64 = jax.enable_x64
else:  # jax 0.7
  from jax.experimental import enable_x64


@pytest.fixture
def lab(tmp_path, monkeypatch):
  """A function that writes the module and its helper, edited, and imports them anew, in
  one process as a user's session does.
  """
  monkeypatch.syspath_prepend(tmp_path)
  # An edit of the same length within a second looks like no edit.
  monkeypatch.setattr(sys, "dont_write_bytecode", True)

  def load(*edits, helper=()):
    for name, text, changes in (
      ("lab_helper", HELPER, helper),
      ("lab_own", MODULE, edits),
    ):
      for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
      (tmp_path / f"{name}.py").write_text(text)
      sys.modules.pop(name, None)
    importlib.invalidate_caches()
    linecache.clearcache()
    return importlib.import_module("lab_own")

  yield load
  for name in ("lab_helper", "lab_own"):
    sys.modules.pop(name, None)


def identity(task, runs=2, **options):
  options = Options(progress=False, **options)
  loaded = planning.load_task(
    planning.resolve_task(task), starting.as_runs(runs), options
  )
  return planning.check_task(*loaded, options).identity


def dataset(train=lambda x, y: (x, y), test=None):
  """The lab's data set, with its sets changed; the test set like the training set if it
  is not said how.
  """
  own = sys.modules["lab_own"]
  sets = train(*own.images()), (test or train)(*own.images(1))
  return vs.Dataset(train=sets[0], test=sets[1], name="lab")


def same(x, y):
  return x, y


SOURCE = {
  "a global of the network": ("SCALE = 1.0", "SCALE = 0.01"),
  "a nested module": ("nn.relu(nn.Dense(self.features)(x))", "nn.gelu(nn.Dense(self.features)(x))"),
  "its size": ("Block(5)", "Block(6)"),
  "an entry of a dict": ('"gain": 1.0', '"gain": 1.5'),
  "a default of a dataclass": ("slope: float = 0.1", "slope: float = 0.2"),
  "an array that the loss reads": ("[1.0, 2.0, 1.5]", "[1.0, 2.0, 1.6]"),
  "a cached helper": ("def cached_gain():\n  return 1.0", "def cached_gain():\n  return 1.1"),
  "a jitted helper": ("return x * 1.0", "return x * 1.1"),
  "a default argument": ("exponent=2.0", "exponent=4.0"),
  "an attribute of an instance": ("Penalty(0.01)", "Penalty(0.02)"),
  "a closure": ("smoothed(0.001)", "smoothed(0.002)"),
  "a partial": ("jnp.multiply, 0.5", "jnp.multiply, 0.6"),
  "the loss": ("+ penalty(outputs)", "- penalty(outputs)"),
  "the optimizer's chain": ("optax.clip(CLIP), ", "optax.identity(), "),
  "a global of the optimizer": ("CLIP = 1.0", "CLIP = 0.1"),
  "another optimizer": ("optax.sgd(rate(run, steps), momentum", "optax.adam(rate(run, steps), b1"),
  "a schedule": ("optax.linear_schedule(run[\"lr\"], 0.0, steps)", "optax.linear_schedule(run[\"lr\"], 0.01, steps)"),
  "another schedule": ("optax.linear_schedule(run[\"lr\"], 0.0, steps)", "optax.cosine_decay_schedule(run[\"lr\"], steps)"),
  "the augmentation": ("x + NOISE", "x - NOISE"),
  "a global of the augmentation": ("NOISE = 0.1", "NOISE = 0.2"),
  "the predictions": ("outputs.argmax(-1)", "outputs.argmin(-1)"),
  "a module's name, of which Flax makes keys": ("Block", "Layer"),
  "a value read by the wrong name": ('momentum=run["momentum"]', 'momentum=run["weight_decay"]'),
}  # fmt: skip
HELPERS = {
  "a helper in another module": ("jnp.tanh(x)", "jnp.sin(x)"),
  "a helper's body": ("return jnp.tanh(x)", "return jnp.tanh(x) + 1"),
}
TASK_SOURCE = {
  "start": ("jax.random.normal(run", "jax.random.uniform(run"),
  "a helper of advance": ("state - 0.1 *", "state - 0.2 *"),
  "advance": ("first, last, lambda", "first, last + 1, lambda"),
  "finish": ("jnp.abs(state", "jnp.square(state"),
  "a key of another name": (
    'run.key("init")',
    'jax.random.fold_in(run.key("init"), 1)',
  ),
  "rounds": ("rounds=4", "rounds=5"),
  "data": ("np.array([1.0, 2.0, 3.0]", "np.array([1.0, 2.0, 4.0]"),
  "order of the data": ("np.array([1.0, 2.0, 3.0]", "np.array([2.0, 1.0, 3.0]"),
  "structure of the data": ('"x"', '"z"'),
  "dtype of the data": ("3.0], np.float32)", "3.0], np.float16)"),
}
RECIPES = {
  "epochs": {"epochs": 3},
  "batch size": {"batch_size": 6},
  "a built-in loss": {"loss": "cross_entropy"},
  "label smoothing": {"loss": "cross_entropy", "label_smoothing": 0.1},
  "a built-in optimizer": {"optimizer": "sgd"},
  "another built-in optimizer": {"optimizer": "nesterov"},
  "a built-in schedule": {"optimizer": "sgd", "schedule": "cosine"},
  "warm-up": {"optimizer": "sgd", "schedule": "cosine", "warmup": 1.0},
  "no augmentation": {"augment": ""},
  "a built-in augmentation": {"augment": "flip"},
  "another": {"augment": "flip translate=1"},
  "its size": {"augment": "flip translate=2"},
  "a built-in model": {"model": "mlp"},
  "its width": {"model": "mlp", "width": 2.0},
  "its depth": {"model": "mlp", "depth": 2},
  "normalisation": {"normalize": False},
  "a mean": {"mean": (0.5,)},
  "a standard deviation": {"std": (2.0,)},
  "what is trained": {"trainable": ["Dense_0"]},
  "when it stops": {"stop_at": 0.9},
  "evaluations": {"evaluate_every": 1},
  "training metrics": {"training_metrics": True},
  "TensorFloat-32": {"precision": "tensorfloat32"},
  "a version": {"version": "2"},
}  # fmt: skip
DATA = {
  "pixels": lambda: dataset(lambda x, y: (x + 1, y)),
  "one pixel": lambda: dataset(lambda x, y: (np.where(x == x.max(), 0, x), y), same),
  "height and width": lambda: dataset(lambda x, y: (x.reshape(24, 2, 4, 1), y)),
  "dtype": lambda: dataset(lambda x, y: (x.astype(np.float16), y)),
  "order": lambda: dataset(lambda x, y: (x[::-1], y[::-1]), same),
  "labels": lambda: dataset(lambda x, y: (x, (y + 1) % 3), same),
  "fewer examples": lambda: dataset(lambda x, y: (x[:21], y[:21]), same),
  "labels of the test set": lambda: dataset(same, lambda x, y: (x, (y + 1) % 3)),
  "inputs of the test set": lambda: dataset(same, lambda x, y: (-x, y)),
}
FLAGS = {
  "64-bit types": lambda: enable_x64(True),
  "precision of products": lambda: jax.default_matmul_precision("highest"),
  "random bits": lambda: jax.threefry_partitionable(False),
}


def changes():
  """Yield every change as (name, what to change, how): what must be told apart."""
  for kind, table in {
    "source": SOURCE,
    "helper": HELPERS,
    "task": TASK_SOURCE,
    "recipe": RECIPES,
    "data": DATA,
    "flag": FLAGS,
  }.items():
    cases = [pytest.param(kind, how, id=f"{kind}: {n}") for n, how in table.items()]
    yield from mostly_slow(cases, fast=len(cases) // 3)


BASES = {  # what a recipe needs besides, before the change too
  "label_smoothing": {"loss": "cross_entropy"},
  "schedule": {"optimizer": "sgd"},
  "width": {"model": "mlp"},
  "depth": {"model": "mlp"},
}
identified = {}  # what does not change, by its kind and base


def changed(lab, kind, how):
  """Return the identities before and after a change."""
  own = lab()
  of_task = kind in ("task", "flag")
  task = own.TASK if of_task else own.RECIPE
  needed = [field for field in BASES if kind == "recipe" and field in how]
  for field in needed:
    task = task.replace(**BASES[field])
  before = of_task, *needed
  if before not in identified:
    identified[before] = identity(task)
  before = identified[before]
  if kind == "recipe":
    return before, identity(task.replace(**how))
  if kind == "data":
    return before, identity(task.replace(dataset=how()))
  if kind == "flag":
    with how():
      return before, identity(task)
  own = lab(helper=[how]) if kind == "helper" else lab(how)
  return before, identity(own.TASK if of_task else own.RECIPE)


@pytest.mark.parametrize(("kind", "how"), one_in(6, changes()))
def test_another_experiment_has_another_identity(lab, kind, how):
  before, after = changed(lab, kind, how)
  assert before != after


HARMLESS = {
  "a comment": [("SCALE = 1.0", "# as in the paper\nSCALE = 1.0")],
  "a docstring": [("def losses(outputs, targets):", 'def losses(outputs, targets):\n  """Return."""')],
  "a renamed variable": [("weighted", "by_class")],
  "a renamed function": [("noisy", "with_noise"), ("cached_gain", "kept_gain")],
  "a renamed jitted function": [("jitted", "compiled")],
  "a renamed class": [("Penalty", "Decay")],
  "an unused global": [("UNUSED = 3", "UNUSED = 4")],
  "an unused import": [("import os\n", "import math\nimport os\n")],
  "reordered imports": [("import dataclasses\nimport functools\n", "import functools\nimport dataclasses\n")],
  "an equal expression": [("SCALE = 1.0", "SCALE = 0.5 + 0.5")],
  "a name": [('name="lab",\n  dataset', 'name="other",\n  dataset')],
  "a moved function": [
    ("def predicted(outputs):\n  return outputs.argmax(-1)\n", ""),
    ("SCALE = 1.0\n", "SCALE = 1.0\n\n\ndef predicted(outputs):\n  return outputs.argmax(-1)\n"),
  ],
  "a lambda in place of a function": [("predict=predicted", "predict=lambda o: o.argmax(-1)")],
  "another default of a value": [("lr=0.1", "lr=0.2"), ("factor\": 1.0", "factor\": 2.0")],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", HARMLESS)
def test_the_same_experiment_keeps_its_identity(lab, name):
  own = lab()
  before = [identity(own.RECIPE), identity(own.TASK)]
  own = lab(*HARMLESS[name], helper=[("def unused(x):\n  return x\n", "")])
  assert [identity(own.RECIPE), identity(own.TASK)] == before


@pytest.mark.parametrize("name", mostly_seldom(HARMLESS, slow=4))
def test_with_the_same_identity_predictions_are_the_same(lab, name, tmp_path):
  """Bit for bit, in one folder: the edited program adds runs, and replays the old."""
  old = lab()
  runs = vs.Runs.sweep(seeds=3, lr=[0.1], momentum=[0.5])
  vs.train(old.RECIPE, runs, tmp_path / "one", progress=False, seed_batch=1)
  own = lab(*HARMLESS[name])
  again = vs.train(own.RECIPE, runs, tmp_path / "two", progress=False, seed_batch=1)
  first = vs.open_results(tmp_path / "one")
  np.testing.assert_array_equal(first.predictions, again.predictions)
  more = vs.Runs.sweep(seeds=4, lr=[0.1], momentum=[0.5])
  longer = vs.train(own.RECIPE, more, tmp_path / "one", progress=False)
  np.testing.assert_array_equal(longer.predictions[:3], first.predictions)


@pytest.mark.parametrize("what", ["lane_width", "processor", "threads", "versions"])
def test_conditions_are_recorded_and_do_not_change_the_identity(
  lab, what, tmp_path, monkeypatch
):
  own = lab()
  train = dict(progress=False, seed_batch=2)
  vs.train(own.TASK, 2, tmp_path / "r", lane_width=1, **train)
  if what == "versions":
    versions = provenance.package_versions() | {"jax": "99.0"}
    monkeypatch.setattr(planning, "package_versions", lambda: versions)
  elif what != "lane_width":
    machine = provenance.machine_conditions() | {what: "another"}
    monkeypatch.setattr(planning, "machine_conditions", lambda: machine)
  width = 2 if what == "lane_width" else 1
  results = vs.train(own.TASK, 4, tmp_path / "r", lane_width=width, **train)
  written = Results(tmp_path / "r")
  first, second = written.record(0), written.record(1)
  name = "jax" if what == "versions" else what
  assert [*json.loads(results.attrs["kinds"])] == [name]
  assert first["identity"] == second["identity"]
  held = (r["versions"] if what == "versions" else r for r in (first, second))
  assert json.loads(results.attrs["kinds"])[name] == [r[name] for r in held]


def test_an_edit_before_work_and_replay_is_refused(lab, tmp_path):
  lab()
  vs.train("lab_own:TASK", 2, tmp_path / "r", progress=False)
  assert vs.replay(tmp_path / "r", 0).same
  lab(helper=[("STRENGTH = 1.0", "STRENGTH = 2.0")])
  for again in (lambda: vs.replay(tmp_path / "r", 0), lambda: vs.work(tmp_path / "r")):
    with pytest.raises(UserError, match=r"program was another \(.*: look at what chan"):
      again()


def test_versions_and_settings_of_jax_that_differ_are_said(lab, tmp_path):
  own = lab()
  vs.train(own.TASK, 2, tmp_path / "r", progress=False)
  with (
    jax.threefry_partitionable(False),
    pytest.raises(
      UserError,
      match=r"program was another \(start\), and versions differ: jax: .*partitionable=False",
    ),
  ):
    vs.train(own.TASK, 4, tmp_path / "r", progress=False)


def test_what_the_environment_changes_is_another_experiment(lab, monkeypatch):
  before = identity(lab().RECIPE)
  monkeypatch.setenv("LAB_GAIN", "2")
  assert identity(lab().RECIPE)["advance"] != before["advance"]


def test_an_edit_while_runs_are_trained_changes_none_of_them(
  lab, tmp_path, monkeypatch
):
  """All blocks of a process run the program that was traced when it began."""
  own = lab()
  reference = vs.train(own.TASK, 4, tmp_path / "a", progress=False, seed_batch=1)
  block_training.spread_program.cache_clear()
  make_plan = starting.make_plan

  def edited(*args):
    monkeypatch.setattr(sys.modules["lab_helper"], "STRENGTH", 5.0)
    return make_plan(*args)

  monkeypatch.setattr(starting, "make_plan", edited)
  results = vs.train(own.TASK, 4, tmp_path / "b", progress=False, seed_batch=1)
  np.testing.assert_array_equal(results.distance, reference.distance)


def test_callbacks_need_a_version(lab):
  own = lab()

  def called(data, run, state):
    shape = jax.ShapeDtypeStruct((), np.float32)
    return {"distance": jax.pure_callback(lambda x: np.sum(x), shape, state)}

  def shown(data, run, state):
    jax.debug.print("{}", state)
    return own.finish(data, run, state)

  task = dataclasses.replace(own.TASK, finish=called)
  with pytest.raises(
    UserError, match=r"calls Python .*pure_callback.* give version='1'"
  ):
    identity(task)
  one, two = (identity(dataclasses.replace(task, version=v)) for v in "12")
  assert one != two
  assert identity(dataclasses.replace(own.TASK, finish=shown))


def test_a_program_without_its_names():
  def f(x):
    return jax.nn.relu(x) * 2

  @jax.jit
  def inner(x):
    return x + 1

  @jax.jit
  def renamed(x):
    return x + 1

  x = np.ones(3, np.float32)
  texts = [
    canonical_text(jax.jit(g).lower(x).as_text())
    for g in (lambda x: {"a": inner(f(x))}, lambda x: {"b": renamed(f(x))})
  ]
  assert texts[0] == texts[1]
  assert "relu" not in texts[0]
  assert "result_info" not in texts[0]
  other = canonical_text(jax.jit(lambda x: {"a": inner(inner(x))}).lower(x).as_text())
  assert other != texts[0]


@pytest.mark.slow
def test_float32_products_have_the_highest_precision(lab):
  """Products of the three programs, as the text for any device has them."""
  own = lab()
  options = Options(progress=False)

  def precisions(recipe):
    plan = planning.check_task(
      *planning.load_task(recipe, vs.Runs.independent(1), options), options
    )
    text = "".join(
      s.lower(lowering_platforms=("tpu",)).as_text() for s in plan.traced.stages
    )
    lines = [t for t in text.splitlines() if "dot_general" in t or "convolution(" in t]
    assert lines
    return {"HIGHEST" in line for line in lines}

  assert precisions(vs.recipe("digits_cnn", precision="float32")) == {True}
  assert precisions(own.RECIPE.replace(precision="tensorfloat32")) == {False}


def test_arrays_of_equal_bytes_are_told_apart_by_shape_dtype_and_place():
  from vmapseeds.data.dataset import fingerprint

  a = np.arange(6, dtype=np.int32)
  digests = [
    fingerprint(tree)
    for tree in (
      {"a": a},
      {"b": a},
      {"a": a.reshape(2, 3)},
      {"a": a.view(np.float32)},
      [a],
      (a, a),
      {"a": a[::-1]},
      {"a": jax.random.key(0)},
      {"a": jax.random.key_data(jax.random.key(0))},
      {"a": np.float32(0)},
      {"a": np.zeros(1, np.float32)},
      {"a": np.zeros(0, np.float32)},
    )
  ]
  assert len({*digests}) == len(digests) - 1, "a key is its data"


# Values that Python code reads


def branching(limit=1.5, gain=2.0):
  """A task whose Python code reads `factor`, and no other value."""

  def finish(data, run, state):
    scale = gain if run["factor"] > limit else 1.0
    drawn = jax.random.normal(run.key("init"))
    return {"score": scale * drawn + run["shift"]}

  return vs.Task(
    name="branching",
    start=lambda data, run: np.float32(0),
    advance=lambda data, run, state, first, last: state,
    finish=finish,
    sources=("init",),
    values={"factor": 1.0, "shift": 0.0},
    outputs={"score": vs.Output(role="score")},
  )


@pytest.mark.slow
def test_values_that_python_reads_are_compiled_in(tmp_path, capsys):
  runs = vs.Runs.sweep(factor=[1, 2, 3], shift=[0, 10], seeds=4)
  results = vs.train(branching(), runs, tmp_path / "r", seed_batch=7, lane_width=2)
  assert "factor is compiled once a value: 3 compilations" in capsys.readouterr().err
  drawn = {}
  for factor, shift, seed, score in zip(
    *(results[n].values for n in ("factor", "shift", "seed_init", "score")), strict=True
  ):
    own = (score - shift) / (2 if factor > 1.5 else 1)
    np.testing.assert_allclose(drawn.setdefault(seed, own), own, rtol=1e-4, atol=1e-5)
  assert len(drawn) == 4
  more = vs.Runs.concat([runs, vs.Runs.sweep(factor=[4], shift=[0], seeds=1)])
  assert vs.train(branching(), more, tmp_path / "r", progress=False).sizes["run"] == 25
  with pytest.raises(UserError, match=r"program was another.*commit of vmapseeds"):
    vs.train(branching(gain=3.0), more, tmp_path / "r", progress=False)
  with pytest.raises(UserError, match="its program was another"):
    vs.train(branching(limit=2.5), more, tmp_path / "r", progress=False)


def test_values_that_no_program_can_be_traced_without_are_named():
  def finish(data, run, state):
    return {"score": np.float32(float(state))}

  with pytest.raises(
    UserError, match="branching needs the numbers of an array that JAX only traces"
  ):
    identity(dataclasses.replace(branching(), finish=finish))


def test_each_program_of_values_read_in_python_is_traced_once(monkeypatch):
  traced, trace = [], task_module.trace

  def counted(task, runs):
    traced.append((*task.internal.fixed, *runs.values["lr"][:1]))
    return trace(task, runs)

  def branches(run, steps):
    return optax.sgd(optax.warmup_cosine_decay_schedule(0.0, run["lr"], 10, steps))

  monkeypatch.setattr(task_module, "trace", counted)
  recipe = vs.recipe(
    "digits_cnn", model="linear", optimizer=branches, schedule="constant"
  )
  runs, options = vs.Runs.sweep(lr=[0.01, 0.1], seeds=2), Options(progress=False)
  task, runs = planning.load_task(recipe, runs, options)
  task, programs = task_module.trace_programs(task, runs)
  assert [*task.internal.fixed] == ["lr"]
  assert [*programs] == [(0.01,), (0.1,)]
  assert [traced.count(("lr", lr)) for lr in (0.01, 0.1)] == [1, 1]


@pytest.mark.slow
def test_a_schedule_that_branches_on_its_peak(tmp_path):
  """It trains as the same schedule that does not branch."""

  def make(schedule):
    return vs.recipe(
      "digits_cnn",
      model="linear",
      epochs=1,
      augment="",
      optimizer=lambda run, steps: optax.sgd(schedule(run["lr"], steps)),
      schedule="constant",
    )

  def branches(peak, steps):
    return optax.warmup_cosine_decay_schedule(0.0, peak, 10, steps)

  def plain(peak, steps):
    rise = optax.linear_schedule(0.0, 1.0, 10)
    fall = optax.cosine_decay_schedule(1.0, steps - 10)
    height = optax.join_schedules([rise, fall], [10])
    return lambda step: peak * height(step)

  runs = vs.Runs.sweep(lr=[0.01, 0.1], seeds=3)
  found = [
    vs.train(
      make(schedule), runs, tmp_path / schedule.__name__, progress=False, logits=True
    )
    for schedule in (branches, plain)
  ]
  fixed = [json.loads(results.attrs["identity"])["fixed"] for results in found]
  assert [*fixed[0]] == ["lr=0.01", "lr=0.1"]
  assert not fixed[1]
  np.testing.assert_allclose(found[0].logits, found[1].logits, rtol=1e-3, atol=1e-4)
