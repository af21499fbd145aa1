"""Tasks of a user's own: a random walk of three rounds beside the same walk in a Python
loop; what is wrong is one line.
"""

import dataclasses
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import plain
import pytest
from cases import words_of

import vmapseeds as vs
from vmapseeds import cli
from vmapseeds.campaign import starting
from vmapseeds.campaign.options import Options
from vmapseeds.campaign.replaying import differing_entries
from vmapseeds.store.checkpoints import Checkpoints
from vmapseeds.training.names import SOURCES


def start(data, run):
  return {"place": jax.random.normal(run.key("init"), (2,)), "pushes": jnp.int32(0)}


def advance(data, run, state, first, last):
  def step(i, state):
    push = jax.random.normal(jax.random.fold_in(run.key("push"), i), (2,))
    return {
      "place": state["place"] + run["size"] * push + data["drift"],
      "pushes": state["pushes"] + 1,
    }

  return jax.lax.fori_loop(first, last, step, state)


def finish(data, run, state):
  return {
    "place": state["place"],
    "distance": jnp.sqrt((state["place"] ** 2).sum()),
    "pushes": state["pushes"],
  }


DRIFT = np.array([0.5, -1], np.float32)
WALK = dict(
  name="walk",
  start=start,
  advance=advance,
  finish=finish,
  data={"drift": DRIFT},
  rounds=3,
  sources=("init", "push"),
  values={"size": 0.1, "unread": 1},
  dims={"place": ("axis",)},
)
walk = vs.Task(**WALK)


def walked(seed_init, seed_push, size):
  """The end of the walk, as a script of one walk computes it."""
  push = jax.random.fold_in(
    jax.random.key(len(plain.SOURCES) + zlib.crc32(b"push") % 2**31), seed_push
  )
  place = np.asarray(jax.random.normal(plain.key("init", seed_init), (2,)))
  for i in range(3):
    place = (
      place
      + np.float32(size)
      * np.asarray(jax.random.normal(jax.random.fold_in(push, i), (2,)))
      + DRIFT
    )
  return place


def quiet(*args, **options):
  return vs.train(*args, progress=False, **options)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
  """Runs at two sizes, each with two seeds that vary only the pushes."""
  out = tmp_path_factory.mktemp("walk") / "r"
  return out, quiet(
    "test_tasks:walk",
    vs.Runs.sweep(size=[0.1, 2], seeds=vs.Runs.vary("push", 2, start=5)),
    out,
  )


def test_a_task_is_its_loop(swept):
  _, results = swept
  assert results.seed_push.values.tolist() == [5, 5, 6, 6]
  assert results.seed_init.values.tolist() == [0, 0, 0, 0]
  expected = [
    walked(0, push, size)
    for push, size in zip(results.seed_push.values, results["size"].values, strict=True)
  ]
  np.testing.assert_allclose(results.place, expected, rtol=1e-5)
  np.testing.assert_allclose(
    results.distance, np.linalg.norm(expected, axis=1), rtol=1e-5
  )
  assert results.pushes.values.tolist() == [3] * 4
  assert results.place.dims == ("run", "axis")


def test_a_task_that_was_interrupted_goes_on_where_it_was_saved(
  swept, tmp_path, monkeypatch
):
  save, load, went_on = Checkpoints.save, Checkpoints.load, []

  def saves_and_ends(self, rounds, state):
    save(self, rounds, state)
    if rounds == 2:
      raise KeyboardInterrupt

  def loads(self, like):
    found = load(self, like)
    went_on.append(found and found[0])
    return found

  table = vs.Runs.sweep(size=[0.1, 2], seeds=vs.Runs.vary("push", 2, start=5))
  monkeypatch.setattr(Checkpoints, "save", saves_and_ends)
  with pytest.raises(KeyboardInterrupt):
    quiet(walk, table, tmp_path / "r", checkpoint_every=1)
  monkeypatch.setattr(Checkpoints, "save", save)
  monkeypatch.setattr(Checkpoints, "load", loads)
  results = quiet(walk, table, tmp_path / "r", checkpoint_every=1)
  assert went_on == [2]
  np.testing.assert_array_equal(results.place, swept[1].place)
  assert not (tmp_path / "r" / "checkpoints").exists()


def test_what_differs_is_counted_along_the_first_axis():
  nan = np.nan
  assert differing_entries(np.array([1, nan, 3, nan]), np.array([1, nan, 4, 0])) == 2
  assert (
    differing_entries(
      np.array([[1, 2], [3, 4], [5, 6]]), np.array([[1, 2], [0, 0], [5, 6]])
    )
    == 1
  )
  assert differing_entries(np.float32(nan), np.float32(nan)) == 0


def test_other_processes_find_a_task_by_its_import_string(
  swept, tmp_path, monkeypatch, capsys
):
  out, results = swept
  again = vs.replay(out, 2)
  assert again.same
  assert again.examples == {"place": 2, "distance": 1, "pushes": 1}
  cli.main(["replay", str(out), "--run", "1"])
  said = capsys.readouterr().out.splitlines()
  assert (
    sorted(said)[1] == "run 1, place: its numbers agree bit for bit on all 2 entries"
  )
  # A folder that was made, but has no trained runs yet.
  starting.open_campaign("test_tasks:walk", 3, tmp_path / "r", Options(progress=False))
  assert vs.work(tmp_path / "r", progress=False).sizes["run"] == 3
  np.testing.assert_allclose(
    vs.open_results(tmp_path / "r").place[2], walked(2, 2, 0.1), rtol=1e-5
  )
  monkeypatch.setitem(globals(), "walk", dataclasses.replace(walk, rounds=4))
  with pytest.raises(
    vs.UserError, match="its recipe and this one differ in rounds: 3, 4"
  ):
    vs.work(out, progress=False)
  with pytest.raises(
    vs.UserError,
    match="belongs to another campaign: its recipe and this one differ in rounds: 3, 4",
  ):
    quiet("test_tasks:walk", 3, tmp_path / "r")


def test_other_processes_do_not_find_an_object(tmp_path):
  quiet(walk, 1, tmp_path / "r")
  with pytest.raises(
    vs.UserError,
    match="was created from a task that cannot be imported by name",
  ):
    vs.work(tmp_path / "r")
  with pytest.raises(
    vs.UserError,
    match="task walk is an object of this program: an executor needs it in a module",
  ):
    vs.train(walk, 1, tmp_path / "e", executor=object())


def test_a_task_from_the_command_line(tmp_path, capsys):
  argv = [
    *words_of("train test_tasks:walk --runs 2 --set size=3 --out"),
    str(tmp_path / "r"),
    "--quiet",
  ]
  cli.main(argv)
  said = capsys.readouterr().out
  assert (
    said
    == f"2 runs in {tmp_path / 'r'}; next: vs.open_results({str(tmp_path / 'r')!r})\n"
  )
  results = vs.open_results(tmp_path / "r")
  np.testing.assert_allclose(results.place[1], walked(1, 1, 3), rtol=1e-5)
  assert vs.replay(tmp_path / "r", 1).same
  assert cli.main(["work", str(tmp_path / "r")]) is None
  assert capsys.readouterr().out == said
  for wrong in ("rounds=2", "sizes=3"):
    with pytest.raises(SystemExit):
      cli.main([*argv[:5], wrong, *argv[6:]])
    (line,) = capsys.readouterr().err.splitlines()
    assert (
      f"unknown value of task walk '{wrong[:-2]}': choose one of size, unread" in line
    )


def test_a_task_has_no_statistic_to_wait_for(tmp_path, capsys):
  with pytest.raises(SystemExit):
    cli.main(
      [
        "train",
        "test_tasks:walk",
        "--out",
        str(tmp_path / "r"),
        "--until",
        "mean_accuracy abs 1%",
      ]
    )
  (line,) = capsys.readouterr().err.splitlines()
  assert (
    line
    == "error: --until mean_accuracy: no output has that; none is a class, loss or score"
  )
  assert not (tmp_path / "r").exists()


def begun(changes, runs, out):
  return starting.open_campaign(
    vs.Task(**{**WALK, **changes}), runs, out, Options(progress=False)
  )


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"name": 3}, "task name is 3: give a text"),
    ({"name": "a/b"}, "task name 'a/b' cannot be the name of a file"),
    ({"rounds": -1}, "rounds is -1: .*at least 0"),
    ({"start": 3}, "start is 3: give a pure function of one lane"),
    ({"sources": "init"}, "sources is 'init': give a list of names"),
    ({"sources": [1]}, "source or value is 1: give a text"),
    ({"dims": ["y"]}, r"dims is \['y'\]: give names of axes by array"),
    ({"values": ["size"]}, r"values is \['size'\]: give numbers by their names"),
    ({"values": {"size": "x"}}, "size is 'x': give a number"),
    (
      {"values": {"seed_init": 1}},
      "value 'seed_init': .*already used",
    ),
    (
      {"start": lambda data, run: run.key("order")},
      "unknown source of randomness 'order': choose one of init, push",
    ),
    (
      {"start": lambda data, run: run["sise"]},
      "unknown value of a run 'sise': choose one of size, unread; did you mean 'size'",
    ),
    (
      {"start": lambda data, run: no_such_name},  # noqa: F821
      r"walk raised an error while being traced \(NameError: .*, test_tasks.py line \d+\)",
    ),
    (
      {
        "advance": lambda data, run, state, first, last: next(
          state for _ in range(first, last)
        )
      },
      r"walk needs the numbers of an array that JAX only traces, test_tasks.py line \d+: "
      "compute with jax.numpy",
    ),
    (
      {"advance": lambda data, run, state, first, last: state["place"]},
      "advance of walk makes of a state .*float32.2.*give one of the same shapes",
    ),
    (
      {"finish": lambda data, run, state: state["place"]},
      "finish of task walk gives no arrays by name: give a dict",
    ),
    (
      {"finish": lambda data, run, state: {"../place": state["place"]}},
      r"gives '\.\./place': give a printable name",
    ),
    (
      {"finish": lambda data, run, state: {"place": state["place"], "seed_init": 0.0}},
      "gives 'seed_init': that name is already used",
    ),
    (
      {"finish": lambda data, run, state: {"place": state["place"] * 1j}},
      "gives 'place' of complex64: give numbers of NumPy's dtypes",
    ),
    (
      {
        "finish": lambda data, run, state: {"place": state["place"], "b": jnp.zeros(3)},
        "dims": {"place": ("axis",), "b": ("axis",)},
      },
      "gives '.*' with . along 'axis', another array has .: give the axes other names",
    ),
    (
      {"dims": {"plase": ("axis",)}},
      "unknown array in outputs or dims 'plase': choose one of distance, place, pushes; did you mean 'place'",
    ),
    ({"dims": {"place": "axis"}}, "dims of 'place' are 'axis': give 1 names"),
    ({"dims": {"place": ("run",)}}, "none of them run or block"),
    (
      {
        "finish": lambda data, run, state: {"square": jnp.zeros((3, 3))},
        "dims": {"square": ("axis", "axis")},
      },
      "dims of 'square' are .'axis', 'axis'.: give 2 names, all different",
    ),
    ({"data": {"drift": "north"}}, "walk raised an error while being traced"),
  ],
)
def test_a_wrong_task_is_one_line(changes, message, tmp_path):
  with pytest.raises(vs.UserError, match=message):
    begun(changes, 1, tmp_path / "r")
  assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
  ("runs", "message"),
  [
    (
      lambda: vs.Runs.vary("order", 2),
      "unknown source of randomness 'order': choose one of init, push",
    ),
    (
      lambda: vs.Runs.sweep(length=[1, 2], seeds=1),
      "unknown value to sweep 'length': choose one of size, unread",
    ),
    (
      lambda: vs.Runs.sweep(unread=[1, 2], seeds=1),
      "walk does not read unread: a sweep of it would train the same run again",
    ),
    (
      lambda: vs.Runs.independent(2).subset(3),
      "these runs choose training examples, of which task walk knows none",
    ),
    (
      lambda: vs.Runs.independent(2).with_label_map([0, 1]),
      "these runs have label_map, which task walk does not know",
    ),
  ],
)
def test_runs_that_a_task_does_not_know(runs, message, tmp_path):
  with pytest.raises(vs.UserError, match=message):
    begun({}, runs(), tmp_path / "r")


def test_sources_that_a_task_does_not_read(tmp_path):
  with pytest.raises(
    vs.UserError, match="walk reads no seed of other: vary some of init, push"
  ):
    begun(
      {"sources": ("init", "push", "other")}, vs.Runs.vary("other", 2), tmp_path / "r"
    )


def test_a_seed_that_the_end_alone_reads_may_vary(tmp_path):
  def drawn(data, run, state):
    return {"noise": run["unread"] * jax.random.normal(run.key("push"))}

  task = vs.Task(
    name="r",
    start=start,
    advance=lambda data, run, state, first, last: state,
    finish=drawn,
    sources=("init", "push"),
    values={"unread": 1},
  )
  results = quiet(
    task, vs.Runs.sweep(unread=[0, 1], seeds=vs.Runs.vary("push", 2)), tmp_path / "r"
  )
  assert len({*results.noise.values.tolist()}) == 3, "0 twice"


def test_a_swept_value_has_no_name_of_another_array(tmp_path):
  for name, other in (
    ("run", {}),
    ("axis", {}),
    ("example", {"dims": {"place": ("example",)}}),
  ):
    changes = {"values": {"size": 0.1, name: 1}, **other}
    changes["start"] = lambda data, run, name=name: {
      **start(data, run),
      "place": run[name] * jnp.ones(2),
    }
    with pytest.raises(
      vs.UserError,
      match=f"a value '{name}': .*already used",
    ):
      begun(changes, vs.Runs.sweep(**{name: [1, 2]}, seeds=1), tmp_path / "r")


def test_all_seeds_of_a_task_vary_if_all_of_supervised_training_do(tmp_path):
  results = quiet(walk, vs.Runs.vary(SOURCES, 3, start=4), tmp_path / "r")
  assert results.seed_push.values.tolist() == [4, 5, 6]
  np.testing.assert_allclose(results.place[1], walked(5, 5, 0.1), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.optimized
def test_keys_in_a_state_are_kept_in_checkpoints(tmp_path, monkeypatch):
  """A walk that splits the key of its state, interrupted after its second round."""

  def begin(data, run):
    fast = jax.random.wrap_key_data(
      jnp.zeros(4, jnp.uint32) + run.seeds["init"], impl="unsafe_rbg"
    )
    return {"place": jnp.zeros(()), "keys": (run.key("init"), fast)}

  def go_on(data, run, state, first, last):
    def one(_, state):
      pairs = [jax.random.split(key) for key in state["keys"]]
      step = sum(jax.random.normal(pair[1]) for pair in pairs)
      keys = tuple(pair[0] for pair in pairs)
      return {"place": state["place"] + step, "keys": keys}

    return jax.lax.fori_loop(first, last, one, state)

  keyed = vs.Task(
    name="keyed",
    start=begin,
    advance=go_on,
    finish=lambda data, run, state: {"place": state["place"]},
    rounds=4,
  )
  whole = quiet(keyed, 3, tmp_path / "whole")
  save = Checkpoints.save

  def interrupted(self, rounds, state):
    save(self, rounds, state)
    if rounds == 2:
      raise KeyboardInterrupt

  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    patch.setattr(Checkpoints, "save", interrupted)
    quiet(keyed, 3, tmp_path / "r", checkpoint_every=1)
  resumed = quiet(keyed, 3, tmp_path / "r", checkpoint_every=1)
  np.testing.assert_array_equal(resumed.place, whole.place)
  assert len({*whole.place.values.tolist()}) == 3


@pytest.mark.slow
@pytest.mark.optimized
def test_one_run_outside_a_campaign_is_the_campaigns(tmp_path):
  results = quiet(
    walk, vs.Runs.sweep(size=[0.1, 0.5], seeds=2, start=7), tmp_path / "r"
  )
  for row, (seed, size) in enumerate([(7, 0.1), (7, 0.5), (8, 0.1), (8, 0.5)]):
    run = vs.single_run(walk, seed, size=size)
    state = walk.advance(walk.data, run, walk.start(walk.data, run), 0, walk.rounds)
    found = walk.finish(walk.data, run, state)
    for name, value in found.items():
      np.testing.assert_allclose(results[name][row], value, rtol=1e-5)


@pytest.mark.parametrize(("n", "size"), [(7, 3), (6, 3), (2, 2), (1, 1)])
def test_batches_are_those_of_recipes(n, size):
  run = vs.single_run("digits_cnn", 5)
  found = np.asarray(jax.jit(vs.batches, static_argnums=(2, 3))(run, 2, n, size))
  key = jax.random.fold_in(plain.key("order", 5), 2)
  order = np.asarray(jax.random.permutation(key, n))
  np.testing.assert_array_equal(found, order[: n // size * size].reshape(-1, size))


@pytest.mark.parametrize(
  ("call", "said"),
  [
    (lambda: vs.single_run(walk, -1), "seed is -1: .*at least 0"),
    (
      lambda: vs.single_run(walk, 0, seize=1),
      "unknown value to sweep 'seize': choose one",
    ),
    (lambda: vs.single_run("digit", 0), "unknown recipe 'digit'"),
    (
      lambda: vs.batches(vs.single_run(walk, 0), 0, 3, 4),
      "batch_size is 4 with 3 examples",
    ),
    (
      lambda: vs.batches(vs.single_run(walk, 0), 0, 3, 0),
      "batch_size is 0: give a whole",
    ),
  ],
)
def test_mistakes_in_one_run(call, said):
  with pytest.raises(vs.UserError, match=said):
    call()


def test_recipes_keep_what_a_task_says_itself(tmp_path):
  with pytest.raises(
    vs.UserError,
    match="walk is a task, whose finish says what is kept: leave logits, keep_params",
  ):
    quiet(walk, 1, tmp_path / "r", logits=True)
