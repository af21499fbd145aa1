"""Searches of hyperparameters: what is drawn, what is stored, and what is asked again."""

import math
import subprocess
import sys
import time

import jax
import numpy as np
import optuna
import pytest
import scipy.stats

import vmapseeds as vs
from vmapseeds import cli
from vmapseeds.campaign import block_loop
from vmapseeds.data import load_dataset
from vmapseeds.reports import plots
from vmapseeds.reports.search_section import draw_regret, variance_components
from vmapseeds.searches import samplers
from vmapseeds.searches.spaces import (
  Dimension,
  grid_sizes,
  noisy_grid,
  parse_space,
  random_trial,
)
from vmapseeds.searches.trials import read_trials, repeats_of
from vmapseeds.store import growing
from vmapseeds.store.results import Results
from vmapseeds.training.runs import source_key

TASK = """
import jax
import jax.numpy as jnp
import vmapseeds as vs

def score(lr, momentum, noise):
  return -((jnp.log(lr) + 3) ** 2) / 9 - (momentum - 0.8) ** 2 + 0.01 * noise

def start(data, run):
  return run["lr"], run["momentum"], jax.random.normal(run.key("init"))

def advance(data, run, state, first, last):
  return state

def finish(data, run, state):
  lr, momentum, noise = state
  found = score(lr, momentum, noise)
  return {"reward": jnp.where(lr > 0.9, jnp.nan, found), "cost": -found}

task = vs.Task(
  name="hill", start=start, advance=advance, finish=finish, sources=("init",),
  values={"lr": 0.1, "momentum": 0.9},
  outputs={
    "reward": vs.Output(role="score"),
    "cost": vs.Output(role="score", higher_is_better=False),
  },
)
"""
OVER = {"lr": "log 1e-3..1", "momentum": "0.5..0.99"}
HOW = dict(lane_width=4, lowering="sequential", progress=False)
COLUMNS = (
  "search",
  "trial",
  "repeat",
  "round",
  "lr",
  "momentum",
  "reward",
  "seed_sampler",
)


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory):
  """A folder with the module `hill`, importable here and in other processes."""
  folder = tmp_path_factory.mktemp("hill")
  (folder / "hill.py").write_text(TASK)
  sys.path.insert(0, str(folder))
  yield folder
  sys.path.remove(str(folder))
  sys.modules.pop("hill", None)


def found(out):
  results = vs.open_results(out)
  return {name: results[name].values for name in COLUMNS}


def assert_same(a, b):
  a, b = found(a), found(b)
  for name in COLUMNS:
    np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def search(out, sampler="random", trials=6, searches=3, **more):
  how = {**HOW, **more}
  return vs.search(
    "hill:task", OVER, trials=trials, searches=searches, sampler=sampler, out=out, **how
  )


# What is drawn.


def test_random_trials_are_uniform_on_their_scales():
  space = parse_space(
    {**OVER, "units": "int 1..4", "depth": [2, 8], "k": "log int 1..9"}
  )
  drawn = [random_trial(space, 7, trial) for trial in range(2000)]
  of = {name: np.array([d[name] for d in drawn]) for name in space}
  ends = math.log(1e-3), math.log(1)
  uniform = scipy.stats.uniform(ends[0], ends[1] - ends[0])
  assert scipy.stats.kstest(np.log(of["lr"]), uniform.cdf).pvalue > 0.01
  assert scipy.stats.kstest((of["momentum"] - 0.5) / 0.49, "uniform").pvalue > 0.01
  for name, values in (("units", [1, 2, 3, 4]), ("depth", [2, 8])):
    there, counts = np.unique(of[name], return_counts=True)
    assert there.tolist() == values
    assert scipy.stats.chisquare(counts).pvalue > 0.01
  there, counts = np.unique(of["k"], return_counts=True)
  edges = np.log(np.arange(0.5, 10))
  share = np.diff(edges) / (edges[-1] - edges[0])
  assert there.tolist() == [*range(1, 10)]
  assert scipy.stats.chisquare(counts, 2000 * share).pvalue > 0.01
  # By numpy alone, in the order of the names.
  u = np.random.default_rng([7, 3]).random(5)
  assert [*space] == ["depth", "k", "lr", "momentum", "units"]
  assert drawn[3]["lr"] == pytest.approx(10 ** (-3 + 3 * u[2]), rel=1e-12)
  assert drawn[3]["momentum"] == pytest.approx(0.5 + 0.49 * u[3], rel=1e-12)
  assert drawn[3] != random_trial(space, 8, 3)


def test_a_noisy_grid_is_that_of_the_paper():
  space, n = {"a": Dimension(0, 10), "b": Dimension(1e-4, 1, log=True)}, 5
  grids = [noisy_grid(space, seed, n * n) for seed in range(2000)]
  for grid in grids[:20]:
    points = {(p["a"], p["b"]) for p in grid}
    assert len(points) == n * n
    for name, spread in (("a", np.asarray), ("b", np.log)):
      axis = spread(sorted({p[name] for p in grid}))
      assert len(axis) == n
      np.testing.assert_allclose(np.diff(axis), axis[1] - axis[0], rtol=1e-9)
  delta = 10 / (n - 1)
  axes = np.array([sorted({p["a"] for p in grid}) for grid in grids])
  assert (abs(axes[:, 0]) <= delta / 2).all()
  assert (abs(axes[:, -1] - 10) <= delta / 2).all()
  # Appendix E.2: the expectation is the grid. The variance follows from two uniform ends.
  w = np.arange(n) / (n - 1)
  variance = delta**2 / 12 * ((1 - w) ** 2 + w**2)
  np.testing.assert_allclose(
    axes.mean(0), delta * np.arange(n), atol=4 * np.sqrt(variance.max() / len(grids))
  )
  np.testing.assert_allclose(axes.var(0), variance, rtol=0.1)
  logs = np.log([sorted({p["b"] for p in grid})[0] for grid in grids])
  low, reach = math.log(1e-4), math.log(1e4) / (n - 1) / 2
  assert scipy.stats.kstest((logs - low + reach) / (2 * reach), "uniform").pvalue > 0.01
  # The order is random: the first trial is any point.
  assert len({round(g[0]["a"] / delta) for g in grids[:100]}) == n


def test_grids_have_as_many_values_of_each_range():
  space = parse_space({"a": "0..1", "b": "0..1", "c": [1, 2, 3]})
  assert grid_sizes(space, 27) == {"a": 3, "b": 3, "c": 3}
  with pytest.raises(
    vs.UserError, match=r"a grid of 20 trials .* give 12 or 27 trials"
  ):
    grid_sizes(space, 20)


@pytest.mark.slow
def test_validation_and_test_examples_are_out_of_the_bootstrap():
  n = 1797
  seeds = vs.Runs.independent(40).out_of_bootstrap()
  splits = [*zip(*seeds.split_examples(n).values(), strict=True)]
  drawn, held = np.zeros(n), np.zeros((2, n))
  for train, valid, test in splits:
    assert (len(train), len(valid), len(test)) == (1198, 299, 299)
    assert not {*train} & {*valid}
    assert not ({*train} | {*valid}) & {*test}
    drawn += np.bincount(train, minlength=n)
    held += [np.bincount(of, minlength=n) for of in (valid, test)]
  distinct = np.array([len({*train}) / n for train, _, _ in splits])
  assert distinct.mean() == pytest.approx(1 - math.exp(-1198 / n), abs=0.005)
  # Draws with replacement from what is left: as often as from as many urns.
  left = [n - len({*train}) for train, _, _ in splits]
  twice = [len(valid) - len({*valid}) for _, valid, _ in splits]
  expected = [299 - m * (1 - (1 - 1 / m) ** 299) for m in left]
  assert np.mean(twice) == pytest.approx(np.mean(expected), rel=0.05)
  assert drawn.var() == pytest.approx(40 * 1198 / n, rel=0.15)  # nearly Poisson
  for counts, of in ((drawn, 1198), (held[0], 299), (held[1], 299)):
    assert counts.mean() == pytest.approx(40 * of / n)
  few = vs.Runs.independent(2).out_of_bootstrap(2).split_examples(5)
  assert [of.shape for of in few.values()] == [(2, 2), (2, 1), (2, 1)]


# What is stored.


@pytest.mark.slow
def test_the_best_is_measured_on_examples_that_nothing_else_saw(tmp_path):
  """Accuracies against networks that are kept and applied by hand."""
  recipe = vs.recipe("digits_cnn", model="linear", epochs=2, augment="", lr=0.01)
  out = tmp_path / "s"
  over = {"lr": "log 1e-4..0.1"}
  results = vs.search(
    recipe, over, trials=2, searches=2, out=out, keep_params=True, **HOW
  )
  runs = vs.Runs.independent(2).out_of_bootstrap()
  parts = runs.split_examples(1797)
  data = load_dataset("digits")
  inputs, labels = (
    np.concatenate([getattr(of, what) for of in (data.train, data.tests["test"])])
    for what in ("inputs", "targets")
  )
  for run in range(4):
    own = inputs[parts["subset"][results.search.values[run]]]
    scaled = (inputs - own.mean((0, 1, 2))) / own.std((0, 1, 2))
    leaves = jax.tree.leaves(vs.load_networks(out, run).variables["params"])
    bias, kernel = sorted(map(np.asarray, leaves), key=np.ndim)
    logits = scaled.reshape(1797, -1) @ kernel + bias
    right = logits.argmax(1) == labels
    for what in ("valid", "test"):
      examples = parts[f"{what}_examples"][results.search.values[run]]
      assert results[f"{what}_accuracy"].values[run] == pytest.approx(
        right[examples].mean(), abs=1.5 / len(examples)
      )
  trials = read_trials(out)
  for number, place in trials.best().items():
    mine = results.search.values == number
    assert trials.objective[place] == results.valid_accuracy.values[mine].max()
    row = np.flatnonzero(mine)[results.valid_accuracy.values[mine].argmax()]
    assert trials.measured[place] == results.test_accuracy.values[row]


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_the_same_seeds_give_the_same_search(sampler, tmp_path):
  search(tmp_path / "a", sampler, trials=14)
  search(tmp_path / "b", sampler, trials=14)
  assert_same(tmp_path / "a", tmp_path / "b")
  # Searches do not depend on how many there are, nor on how they came about.
  search(tmp_path / "c", sampler, trials=9, searches=2)
  search(tmp_path / "c", sampler, trials=14, searches=2)
  results = search(tmp_path / "c", sampler, trials=14)
  whole = vs.open_results(tmp_path / "a")
  order = [np.lexsort((r.trial, r.search)) for r in (results, whole)]
  for name in {*COLUMNS} - {"round"}:
    np.testing.assert_array_equal(
      results[name].values[order[0]], whole[name].values[order[1]]
    )
  one = vs.replay(tmp_path / "a", 11)
  assert one.same


@pytest.mark.slow
def test_a_finished_search_goes_on_as_if_it_had_never_stopped(tmp_path):
  """Rounds are known also where TPE draws no longer at random, and blocks were joined."""
  for trials in (14, 17, 22):
    search(tmp_path / "a", "tpe", trials=trials, seed_batch=3, lane_width=3)
  search(tmp_path / "b", "tpe", trials=22, seed_batch=3, lane_width=3)
  assert_same(tmp_path / "a", tmp_path / "b")


def plain_optuna(seed, trials, sampler=None):
  """Optuna in a loop, with the objective computed for one trial at a time."""
  import hill

  study = optuna.create_study(
    direction="maximize", sampler=sampler or optuna.samplers.TPESampler(seed=seed)
  )
  noise = jax.random.normal(source_key("init", np.uint32(seed)))
  objective = jax.jit(hill.score)
  for _ in range(trials):
    trial = study.ask(
      {
        "lr": optuna.distributions.FloatDistribution(1e-3, 1, log=True),
        "momentum": optuna.distributions.FloatDistribution(0.5, 0.99),
      }
    )
    lr, momentum = (np.float32(trial.params[name]) for name in ("lr", "momentum"))
    value = float(objective(lr, momentum, noise))
    if lr > np.float32(0.9):
      study.tell(trial, state=optuna.trial.TrialState.FAIL)
    else:
      study.tell(trial, value)
  return study


RUNGS = dict(trials=8, searches=2, sampler="random", progress=False, seed_batch=5)


@pytest.fixture(scope="module")
def rungs(tmp_path_factory):
  """Searches of 1, 2 and 4 epochs by rungs, and by each length alone."""
  base = tmp_path_factory.mktemp("rungs")
  linear = vs.recipe("digits_cnn", model="linear", epochs=4)
  over = {"lr": "log 1e-5..1"}
  vs.search(linear, over, rungs=(1, 2), out=base / "rungs", **RUNGS)
  for epochs in (1, 2, 4):
    alone = linear.replace(epochs=epochs)
    vs.search(alone, over, out=base / f"alone{epochs}", **RUNGS)
  return base, linear, over


@pytest.mark.slow
def test_rungs_train_the_best_of_each_search_longer(rungs):
  base, *_ = rungs
  results = vs.open_results(base / "rungs")
  alone = {e: read_trials(base / f"alone{e}") for e in (1, 2, 4)}
  table = results[["search", "trial", "epochs", "valid_accuracy"]].to_dataframe()
  expected = set()
  for number in (0, 1):
    left = [*range(8)]
    for epochs, go_on in ((1, 4), (2, 2), (4, 1)):
      objective = alone[epochs].objective[alone[epochs].of_search(number)]
      for trial in left:
        at = (table.search == number) & (table.trial == trial)
        (found,) = table.valid_accuracy[at & (table.epochs == epochs)]
        assert found == pytest.approx(objective[trial], abs=1e-6)
        expected.add((number, trial, epochs))
      left = sorted(left, key=lambda i: (-objective[i], i))[:go_on]
    trials = read_trials(base / "rungs")
    assert trials.trial[trials.best()[number]] == left[0]
  assert len(table) == len(expected) == 28
  assert (alone[1].objective != alone[4].objective).any()


@pytest.mark.slow
def test_rungs_that_are_interrupted_repeated_and_extended(rungs, tmp_path, monkeypatch):
  base, linear, over = rungs
  calls, train_blocks = [], block_loop.train_blocks

  def interrupted(*args, **more):
    calls.append(train_blocks(*args, **more))
    if len(calls) == 2:
      raise KeyboardInterrupt

  out = tmp_path / "r"
  monkeypatch.setattr(block_loop, "train_blocks", interrupted)
  with pytest.raises(KeyboardInterrupt):
    vs.search(linear, over, rungs=(1, 2), out=out, **RUNGS)
  assert len(vs.open_results(out).run) == 24
  names = "search", "trial", "epochs", "round", "lr", "valid_accuracy"
  vs.search(linear, over, rungs=(1, 2), out=out, **RUNGS)
  whole, resumed = (vs.open_results(of) for of in (base / "rungs", out))
  for name in names:
    np.testing.assert_array_equal(resumed[name], whole[name], name)
  more = vs.search(linear, over, rungs=(1, 2), repeats=2, out=out, **RUNGS)
  assert more.epochs.values[more["repeat"].values > 0].tolist() == [4] * 4
  more = vs.search(linear, over, rungs=(1, 2), out=out, **RUNGS | {"trials": 12})
  assert (more.epochs.values == 1).sum() == 24
  assert vs.verify(out).problems == []
  report = vs.report(out)
  report.save()
  assert report[0]["runs"] == 2
  page = (out / "report" / "report.html").read_text()
  assert "trials (random; of all epochs, after rungs of 1 and 2)" in page
  assert "digits_cnn, 4 epochs" in page


@pytest.mark.parametrize(
  ("more", "says"),
  [
    ({"rungs": (2, 1)}, r"rungs \[2, 1\] of a recipe of 4 epochs: .*ascend"),
    ({"rungs": (1, 4)}, "fewer than the recipe's"),
    ({"rungs": (0,)}, "rungs"),
    ({"rungs": (1,), "sampler": "tpe"}, "drawn at once: give the sampler random"),
    ({"rungs": (1,), "over": {"epochs": [1, 2]}}, "where epochs are searched"),
    ({"rungs": (1,), "task": "hill:task"}, "epochs of a recipe"),
  ],
)
def test_rungs_that_do_not_fit(tmp_path, more, says):
  linear = vs.recipe("digits_cnn", model="linear", epochs=4)
  given = {"task": linear, "over": OVER, "out": tmp_path / "r"} | more
  with pytest.raises(vs.UserError, match=says):
    vs.search(**given)
  assert not (tmp_path / "r").exists()


@pytest.mark.slow
def test_tpe_is_that_of_plain_optuna(tmp_path):
  optuna.logging.set_verbosity(optuna.logging.WARNING)
  results = search(tmp_path / "s", "tpe", trials=25)
  studies = vs.optuna_studies(tmp_path / "s")
  for seed, study in enumerate(studies):
    plain = plain_optuna(seed, 25)
    mine = results.isel(run=np.flatnonzero(results.search.values == seed))
    for name in ("lr", "momentum"):
      due = [trial.params[name] for trial in plain.trials]
      np.testing.assert_array_equal(mine[name].values, due)
    assert study.best_params == plain.best_params
    assert study.best_value == pytest.approx(plain.best_value, rel=1e-6)
    table = study.trials_dataframe()
    assert (table.state == [t.state.name for t in plain.trials]).all()


@pytest.mark.slow  # SQL tables take long to make
def test_studies_in_a_storage(tmp_path):
  search(tmp_path / "s", trials=4)
  studies = vs.optuna_studies(tmp_path / "s")
  names = [study.study_name for study in studies]
  address = f"sqlite:///{tmp_path}/studies.db"
  storage = optuna.storages.RDBStorage(address)
  try:
    vs.optuna_studies(tmp_path / "s", storage)
    again = optuna.load_study(study_name=names[1], storage=storage)
    assert again.best_params == studies[1].best_params
    with pytest.raises(vs.UserError, match="already: give another storage"):
      vs.optuna_studies(tmp_path / "s", storage)
  finally:
    storage.remove_session()
    storage.engine.dispose()


@pytest.mark.filterwarnings("ignore:QMCSampler is experimental")
def test_any_sampler_of_optuna_and_several_trials_at_once(tmp_path):
  def quasi(seed):
    return optuna.samplers.QMCSampler(seed=seed, qmc_type="halton", scramble=True)

  quasi.__module__, quasi.__qualname__ = "hill", "quasi"
  results = search(tmp_path / "s", quasi, trials=5, searches=2, at_once=2)
  assert results.trial.values.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
  study = optuna.create_study(direction="maximize", sampler=quasi(1))
  space = samplers.distributions_of(parse_space(OVER))
  due = []
  for count in (2, 2, 1):
    asked = [study.ask(space) for _ in range(count)]
    for trial in asked:
      study.tell(trial, 0.0)
    due += [trial.params["lr"] for trial in asked]
  assert results.lr.values[results.search.values == 1].tolist() == due


def test_sources_that_searches_share(tmp_path):
  results = search(tmp_path / "s", searches=vs.Runs.vary("sampler", 3))
  assert np.ptp(results.seed_init.values) == 0
  assert np.unique(results.seed_sampler.values).tolist() == [0, 1, 2]
  firsts = results.lr.values[results.trial.values == 0]
  assert len({*firsts}) == 3


def test_repeats_have_other_seeds_of_everything(tmp_path):
  results = search(tmp_path / "s", trials=4, searches=2, repeats=3)
  trials = read_trials(tmp_path / "s")
  assert len(trials.rows) == 8
  repeats = results.isel(run=np.flatnonzero(results["repeat"].values))
  assert repeats.sizes["run"] == 6
  for number, place in trials.best().items():
    mine = repeats.isel(run=np.flatnonzero(repeats.search.values == number))
    assert np.unique(mine.lr) == trials.values["lr"][place]
    assert mine.seed_init.values.tolist() == [2**31, 2**31 + 1, 2**31 + 2]
    assert len(np.unique(mine.reward)) == 3
  measured = repeats_of(results, trials)
  assert measured.shape == (2, 3)
  # A search that lacks a repeat is left out, not that repeat of all searches.
  lost = (results.search.values == 0) & (results["repeat"].values == 2)
  lacking = results.assign(diverged=("run", lost))
  np.testing.assert_array_equal(repeats_of(lacking, trials), measured[1:])
  more = search(tmp_path / "s", trials=4, searches=2, repeats=4)
  assert more.sizes["run"] == results.sizes["run"] + 2


@pytest.mark.slow
def test_trials_whose_objective_is_not_a_number_fail(tmp_path, capsys):
  out = str(tmp_path / "s")
  argv = ["search", "hill:task", "--over", "lr=0.8..1", "--trials", "8"]
  cli.main([*argv, "--searches", "2", "--out", out, "--quiet"])
  results = vs.open_results(out)
  lost = int((results.lr.values > 0.9).sum())
  assert 0 < lost < 16
  assert np.isnan(results.reward.values).sum() == lost
  assert f"2 searches, 16 trials in {out}, {lost} failed, mean reward" in (
    capsys.readouterr().out
  )
  best = read_trials(out).best()
  assert all(np.isfinite(read_trials(out).objective[place]) for place in best.values())
  argv[3] = "lr=0.95..1"
  cli.main([*argv, "--sampler", "tpe", "--out", out + "2", "--quiet"])
  assert "160 failed; no trial succeeded" in capsys.readouterr().out


@pytest.mark.slow
def test_incumbents_and_lower_is_better(tmp_path):
  search(tmp_path / "s", "tpe", trials=12, searches=2, objective="cost")
  trials = read_trials(tmp_path / "s")
  assert trials.about["higher_is_better"] is False
  for number, places in enumerate(trials.incumbents()):
    costs = trials.objective[trials.of_search(number)]
    np.testing.assert_array_equal(
      trials.objective[places], np.minimum.accumulate(costs)
    )
  study = vs.optuna_studies(tmp_path / "s")[0]
  assert study.best_value == trials.objective[trials.best()[0]]
  # The same draws as a maximisation of what has the other sign.
  search(tmp_path / "t", "tpe", trials=12, searches=2)
  if not np.isnan(found(tmp_path / "t")["reward"]).any():
    assert_same(tmp_path / "s", tmp_path / "t")


# Reports.


@pytest.mark.slow
def test_reports_and_comparisons_take_searches_as_the_unit(tmp_path, capsys):
  a, b = tmp_path / "a", tmp_path / "b"
  search(a, "tpe", trials=10, searches=5, repeats=3)
  vs.search("hill:task", {"lr": "log 1e-2..0.5"}, trials=4, searches=5, out=b, **HOW)
  report = vs.report(a)
  report.save()
  (reported,) = report
  trials = read_trials(a)
  best = [trials.measured[place] for place in trials.best().values()]
  assert reported["runs"] == 5
  assert reported["statistics"]["mean"]["value"] == pytest.approx(np.mean(best))
  record = reported["search"]
  assert [of["measured"] for of in record["best"]] == best
  assert record["variance_between_searches"] == pytest.approx(np.var(best, ddof=1))
  page = (a / "report" / "report.html").read_text()
  said = ("The best so far", "Regret over trials", "lr against reward", "Importance")
  assert all(text in page for text in (*said, "by luck alone", "between seeds"))
  compared = vs.compare(a, b)
  (comparison,) = compared
  assert comparison.matching == "the same seeds"
  np.testing.assert_array_equal(comparison.a, best)
  assert compared.notes == ["A run of A and of B is the best trial of a search."]
  compared.print()
  assert compared.notes[0] in capsys.readouterr().out


def test_variance_between_searches_and_between_seeds():
  """Against the law that the numbers are drawn from, and the sums of squares by hand."""
  rng = np.random.default_rng(0)
  found, covered = [], 0
  for _ in range(400):
    luck, seeds = 0.5 * rng.normal(size=(12, 1)), 2 * rng.normal(size=(1, 6))
    of = variance_components(luck + seeds + rng.normal(size=(12, 6)))
    found.append((of.searches, of.seeds))
    covered += of.low <= 0.25 <= of.high
  mean, se = np.mean(found, axis=0), np.std(found, axis=0) / 20
  assert abs(mean - [0.25, 5]) == pytest.approx(0, abs=3 * se.max())
  assert 0.92 < covered / 400 < 0.98
  table = np.array([[1.0, 2.0], [3.0, 6.0]])
  # Effects of rows ±1.5, of columns ±1, of both ±0.5.
  assert variance_components(table)[0] == pytest.approx((9 - 1) / 2)
  assert np.isnan(variance_components(table[:1])[0])
  assert np.isnan(variance_components(table[:, :1])[0])


def test_searches_are_not_merged(tmp_path):
  for name in "ab":
    search(tmp_path / name, trials=2, searches=2)
  with pytest.raises(
    vs.UserError, match=r"b holds searches.*numbered within their folder"
  ):
    vs.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "m", progress=False)
  assert not (tmp_path / "m").exists()


def test_regret_is_what_the_best_so_far_lacks(tmp_path):
  search(tmp_path / "s", trials=5, searches=3)
  trials = read_trials(tmp_path / "s")
  _, ax = plots.figure()
  draw_regret(trials, trials.incumbents(), ax)
  drawn = dict(ax.lines[0].get_xydata())
  objective = np.stack([trials.objective[trials.of_search(n)] for n in range(3)])
  best = np.fmax.accumulate(objective, axis=1)
  due = np.nanmax(objective, 1, keepdims=True) - best
  for number, regret in drawn.items():
    assert regret == pytest.approx(due[:, int(number) - 1].mean())
  assert drawn[5.0] == 0


def test_a_search_of_one_trial_is_reported(tmp_path, capsys):
  search(tmp_path / "s", trials=1, searches=1, lane_width=1)
  vs.report(tmp_path / "s").print()
  assert "One search cannot say how much" in capsys.readouterr().out


# Interruptions.


class Killed(BaseException):
  """What no code catches, as a kill."""


@pytest.mark.slow
@pytest.mark.parametrize("place", ["extend", "train_blocks", "read"])
def test_an_interrupted_search_resumes_bit_for_bit(place, tmp_path, monkeypatch):
  search(tmp_path / "whole", "tpe", trials=13)
  homes = {"extend": growing, "read": Results, "train_blocks": block_loop}
  home = homes[place]
  original, calls = getattr(home, place), []

  def fails(*args, **kwargs):
    calls.append(place)
    if len(calls) == 4:
      raise Killed
    return original(*args, **kwargs)

  monkeypatch.setattr(home, place, fails)
  with pytest.raises(Killed):
    search(tmp_path / "cut", "tpe", trials=13)
  monkeypatch.undo()
  search(tmp_path / "cut", "tpe", trials=13)
  assert_same(tmp_path / "whole", tmp_path / "cut")
  roots = [vs.open_results(tmp_path / n).attrs for n in ("whole", "cut")]
  assert roots[0]["search"] == roots[1]["search"]


@pytest.mark.slow
def test_a_killed_search_and_two_processes(home, tmp_path):
  """Killed at two moments, of random and of later trials, then two processes at once: as one that was left alone."""
  program = f"""
import sys
sys.path.insert(0, {str(home)!r})
import vmapseeds as vs
vs.search("hill:task", {OVER!r}, trials=20, searches=4, sampler="tpe", seed_batch=2,
  repeats=2, out={str(tmp_path / "cut")!r}, lane_width=2, lowering="sequential",
  progress=False)
"""
  vs.search(
    "hill:task",
    OVER,
    trials=20,
    searches=4,
    sampler="tpe",
    seed_batch=2,
    repeats=2,
    out=tmp_path / "whole",
    **(HOW | {"lane_width": 2}),
  )
  blocks = tmp_path / "cut" / "blocks"
  for count in (3, 30):
    process = subprocess.Popen([sys.executable, "-c", program])
    while len([*blocks.glob("*.json")]) < count:
      assert process.poll() is None
      time.sleep(0.02)
    process.kill()
    process.wait()
  both = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]
  assert [process.wait() for process in both] == [0, 0]
  assert_same(tmp_path / "whole", tmp_path / "cut")


# UserErrors.


@pytest.mark.parametrize(
  ("over", "more", "message"),
  [
    ({}, {}, r"over is \{\}: give names with what to search, like "),
    ({"lr": "1e-3"}, {}, "lr has the choices 1e-3: give two or more"),
    ({"lr": "1..0.1"}, {}, "lr goes from 1 to 0.1: give a lower end below the upper"),
    ({"lr": "log 0..1"}, {}, "on a logarithmic scale: begin above 0"),
    ({"lr": "int 0.5..2"}, {}, "lr goes from 0.5 to 2: give whole numbers with int"),
    ({"lr": "sqrt 1..2"}, {}, "lr is searched over 'sqrt 1..2': write '0.5..0.99'"),
    ({"lr": "1..nan"}, {}, "lr is searched over '1..nan': write"),
    ({"lr": "1..."}, {}, "lr is searched over '1...': write"),
    ({"lr": [1, 1]}, {}, r"lr has the choices \[1, 1\]: give two or more, each once"),
    ({"rl": "0..1"}, {}, "unknown value to search 'rl': choose one of lr, momentum"),
    (OVER, {"trials": 0}, "trials is 0: .*at least 1"),
    (OVER, {"searches": 0}, "runs is 0: .*at least 1"),
    (OVER, {"sampler": "grid"}, "unknown sampler 'grid': choose one of random"),
    (OVER, {"sampler": "noisy_grid"}, "a grid of 6 trials .* give 4 or 9 trials"),
    (OVER, {"objective": "x"}, "unknown objective 'x': choose one of reward, cost"),
    (OVER, {"measure": "x"}, "unknown output to measure 'x'"),
  ],
)
def test_a_mistake_is_said_before_anything_is_written(over, more, message, tmp_path):
  how = dict(trials=6, searches=2, out=tmp_path / "s") | HOW | more
  with pytest.raises(vs.UserError, match=message):
    vs.search("hill:task", over, **how)
  assert not (tmp_path / "s").exists()


@pytest.mark.slow
def test_values_that_a_recipe_does_not_allow_or_read(tmp_path):
  out = tmp_path / "s"
  with pytest.raises(
    vs.UserError, match=r"momentum may be drawn as 1: momentum is 1.0"
  ):
    vs.search("digits_cnn", {"momentum": "0.5..1"}, out=out)
  with pytest.raises(vs.UserError, match="as a noisy grid moves the ends"):
    vs.search(
      "digits_cnn", {"momentum": "0..0.9"}, sampler="noisy_grid", trials=3, out=out
    )
  with pytest.raises(vs.UserError, match="does not read gamma: a s"):
    vs.search(
      "digits_cnn",
      {"gamma": "0..1"},
      searches=1,
      sampler="tpe",
      out=out,
      progress=False,
    )
  with pytest.raises(
    vs.UserError, match="searches that choose their training examples"
  ):
    vs.search(
      "digits_cnn", {"lr": "0..1"}, searches=vs.Runs.independent(2).subset(9), out=out
    )
  with pytest.raises(vs.UserError, match="1797 of 1797 examples to train on"):
    seeds = vs.Runs.independent(2).out_of_bootstrap(1797)
    vs.search("digits_cnn", {"lr": "0..1"}, searches=seeds, out=out, **HOW)
  assert not out.exists()


def test_a_folder_of_another_search(tmp_path):
  out = tmp_path / "s"
  search(out, trials=2)
  with pytest.raises(vs.UserError, match="belongs to another search: its sampler is"):
    search(out, "tpe", trials=2)
  with pytest.raises(vs.UserError, match="belongs to another search: its over is"):
    vs.search("hill:task", {"lr": "0..1"}, trials=2, searches=3, out=out, **HOW)
  with pytest.raises(vs.UserError, match="its objective is 'reward', not 'cost'"):
    search(out, trials=2, objective="cost")
  with pytest.raises(
    vs.UserError, match="holds 3 searches, not 2: give as many or more"
  ):
    search(out, trials=2, searches=2)
  with pytest.raises(vs.UserError, match="belongs to another campaign"):
    search(out, trials=2, searches=vs.Runs.independent(3, start=5))
  vs.train("hill:task", 4, tmp_path / "t", **HOW)
  with pytest.raises(vs.UserError, match="holds runs of no search"):
    search(tmp_path / "t", trials=2)
  with pytest.raises(vs.UserError, match="these results are of no search"):
    read_trials(tmp_path / "t")


def test_without_optuna(tmp_path, monkeypatch, capsys):
  monkeypatch.setitem(sys.modules, "optuna", None)
  with pytest.raises(SystemExit) as stopped:
    cli.main(
      ["search", "hill:task", "--over", "lr=0..1", "--sampler", "tpe", "--out", "s"]
    )
  assert stopped.value.code == 2
  said = capsys.readouterr().err
  assert said.count("\n") == 1
  assert "needs optuna, which is not installed: python -m pip install" in said
  search(tmp_path / "s", trials=2)


def test_another_optuna_that_draws_otherwise_is_told_apart(tmp_path, monkeypatch):
  out = tmp_path / "s"
  search(out, "tpe", trials=3)
  other = lambda self, seed: optuna.samplers.TPESampler(seed=seed + 1)  # noqa: E731
  monkeypatch.setattr(samplers.AskedOfOptuna, "_tpe", other)
  with pytest.raises(vs.UserError, match="use the version that began these searches"):
    search(out, "tpe", trials=4)
