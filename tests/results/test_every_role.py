"""Every reader of results takes outputs of every role: a role that is added is tried here
with all of them.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vmapseeds as vs
from vmapseeds.campaign.until import NARROWED, Until, measure_statistic
from vmapseeds.errors import UserError
from vmapseeds.reports.listing import _mean as mean_in_the_list
from vmapseeds.reports.summaries import summarize
from vmapseeds.results.roles import ROLES
from vmapseeds.training import outputs

LABELS = np.arange(12) % 3
DIVERGING = 2.0
KINDS = [0.0, 1.0, DIVERGING]


def start(data, run):
  return {"init": jax.random.key_data(run.key("init"))}


def advance(data, run, state, first, last):
  return state


def task_of(role):
  """A task without training, whose output has a role."""
  declared = {}
  stored = outputs.ROLES[role]
  shape = LABELS.shape if stored.has_examples else ()

  def finish(data, run, state):
    key = jax.random.wrap_key_data(state["init"], impl="threefry2x32")
    found = jax.random.uniform(key, shape) ** (1 + run["kind"])
    if stored.has_labels:
      found = jnp.where(found < 0.6, LABELS, (3 * found).astype(int)).astype(jnp.int8)
    return {"out": found, "diverged": run["kind"] == DIVERGING}

  if stored.has_labels:
    declared = {"labels": LABELS, "num_classes": 3}
  dims = ("example",) if stored.has_examples else ()
  return vs.Task(
    name="quiz",
    start=start,
    advance=advance,
    finish=finish,
    outputs={"out": vs.Output(dims, role, **declared)},
    values={"kind": 0.0},
  )


def train(role, out, **options):
  runs = vs.Runs.sweep(kind=KINDS, seeds=4)
  vs.train(
    task_of(role), runs, out, seed_batch=12, lane_width=4, progress=False, **options
  )
  return out


@pytest.fixture(scope="module", params=ROLES)
def trained(request, tmp_path_factory):
  role = request.param
  return role, train(role, tmp_path_factory.mktemp(role) / "r")


def numbers_of(results, role):
  """Each run's number, by definition."""
  found = results.out.values.astype(float)
  if outputs.ROLES[role].is_counted:
    return (found == LABELS).mean(1)
  return found.reshape(len(found), -1).mean(1)


def test_several_runs(trained):
  role, folder = trained
  chosen = {"kind": 0.0}
  results = vs.open_results(folder)
  results = results.isel(run=np.flatnonzero(results.kind == 0))
  expected = numbers_of(results, role)
  report = vs.report(folder, where=chosen)
  (section,) = report
  means = [s for s in section["statistics"].values() if s["label"].startswith("mean ")]
  assert means[0]["value"] == pytest.approx(expected.mean())
  column = ROLES[role].column.format("out")
  np.testing.assert_allclose(vs.run_table(results)[column], expected)
  assert vs.sample_size(folder, where=chosen).document.sections
  for name in NARROWED[role]:
    statistic = measure_statistic(results, Until(name, False, 1.0))
    assert statistic == section["statistics"][name] | {
      k: v for k, v in statistic.items() if k == "width"
    }
  assert mean_in_the_list(results) not in ("", "–")
  if ROLES[role].parts:
    table = vs.example_table(folder, where=chosen).table
    assert sorted(table.rank_hard) == list(range(len(LABELS)))
    assert section["hard_examples"]
  else:
    with pytest.raises(UserError, match="no numbers of examples"):
      vs.example_table(folder)


def test_comparison(trained):
  role, folder = trained
  (one,) = vs.compare(folder, by="kind", where={"kind": KINDS[:2]})
  results = vs.open_results(folder)
  numbers = numbers_of(results, role)
  difference = numbers[results.kind == 0].mean() - numbers[results.kind == 1].mean()
  assert difference != 0
  assert abs(one.found.difference) == pytest.approx(abs(difference))


def test_one_run(trained):
  role, folder = trained
  (section,) = vs.report(folder, where={"kind": 0.0, "seed_init": 0})
  assert (section["role"], section["runs"]) == (role, 1)
  with pytest.raises(UserError, match="run"):
    vs.sample_size(folder, where={"kind": 0.0, "seed_init": 0})


def test_all_diverged(trained):
  _, folder = trained
  chosen = {"kind": DIVERGING}
  for read in (vs.report, vs.sample_size):
    with pytest.raises(UserError, match="all 4 finished runs diverged"):
      read(folder, where=chosen)
  with pytest.raises(UserError):
    vs.example_table(folder, where=chosen)
  results = vs.open_results(folder)
  lost = results.isel(run=np.flatnonzero(results.kind == DIVERGING))
  assert len(vs.run_table(lost)) == 4


COUNTED = [role for role in ROLES if outputs.ROLES[role].is_counted]


@pytest.mark.parametrize("role", COUNTED)
def test_no_predictions(role, tmp_path):
  all_of_them = train(role, tmp_path / "all")
  counted = train(role, tmp_path / "counted", predictions="none")
  chosen = {"kind": 0.0}
  (expected,), (found,) = (vs.report(f, where=chosen) for f in (all_of_them, counted))
  for name in ("mean_accuracy", "sd_accuracy", "distribution_variance"):
    value = expected["statistics"][name]["value"]
    assert found["statistics"][name]["value"] == pytest.approx(value)
  tables = [vs.example_table(f, where=chosen).table for f in (all_of_them, counted)]
  np.testing.assert_array_equal(*tables)


@pytest.mark.parametrize("role", COUNTED)
def test_label_maps(role, tmp_path):
  """Where labels differ between runs, answers are right and wrong alone."""
  results = vs.open_results(train(role, tmp_path / "r"))
  results = results.isel(run=np.flatnonzero(results.kind == 0))
  maps = np.array([[0, 1, 2], [1, 1, 2]])[np.arange(4) % 2]
  labels = maps[:, LABELS]
  mapped = results.drop_vars(["accuracy", "votes"]).assign(
    labels=(("run", "example"), labels, results.labels.attrs)
  )
  right = (mapped.out.values == labels).mean(1)
  section = summarize(mapped)
  assert section["statistics"]["mean_accuracy"]["value"] == pytest.approx(right.mean())
  with pytest.raises(UserError, match="label map"):
    vs.example_table(mapped)
