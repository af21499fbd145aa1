"""Jordan's figures 6 to 8 and 10 to 12: their numbers against loops, and what their
campaigns vary.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
import xarray as xr
from places import place

import vmapseeds as vs
from experiments import frame, measures
from experiments.jordan2024 import (
  campaigns,
  fig06_binary_tasks,
  fig07_ablations,
  fig08_learning_rate,
  fig09_distribution_shift,
  fig10_randomness_sources,
  fig11_poking,
  fig12_shift_correlations,
  poking,
)
from vmapseeds import stats
from vmapseeds.training.optimizers import make_optimizer
from vmapseeds.training.recipe_runs import check_runs_fit_recipe, recipe_lanes
from vmapseeds.training.runs import as_runs

STUDIES = campaigns.STUDIES["smoke"]


def draw(seed: int, *shape: int, rate: float = 0.3) -> np.ndarray:
  return np.random.default_rng(seed).random(shape) < rate


@pytest.mark.parametrize("scale", campaigns.STUDIES)
def test_campaigns_of_every_scale_fit_their_data(scale):
  found = campaigns.campaigns(scale)
  for name, campaign in found.items():
    recipe = campaign.recipe
    examples = campaigns.TRAIN.get(
      recipe.dataset, 10_000
    )  # MNIST's training and test sets are exchanged
    kept = sum(c >= 0 for c in recipe.classes) / 10 if recipe.classes else 1
    check_runs_fit_recipe(
      recipe.replace(start_from="x"),
      as_runs(campaign.runs),
      int(0.99 * kept * examples) if kept < 1 else examples,
      10,
    )
    if campaign.start_from:
      assert "keep_params" in found[campaign.start_from].keep, name


# Figure 6.


def test_there_are_511_ways_to_split_ten_classes():
  maps = campaigns.label_maps()
  assert maps.shape == (511, 10)
  # A split and its complement count once: no map equals another or another's
  # complement. Each has two groups.
  assert len({tuple(m) for m in maps} | {tuple(1 - m) for m in maps}) == 1022
  assert set(maps.ravel()) == {0, 1}
  assert (maps.max(1) == 1).all()


def test_more_runs_of_each_task_extend_the_table():
  few, more = (
    campaigns.binary_tasks(STUDIES._replace(every_task=1, task_runs=n))[
      "binary_tasks"
    ].runs.columns()
    for n in (2, 3)
  )
  for name, column in few.items():
    np.testing.assert_array_equal(column, more[name][:1022])
  np.testing.assert_array_equal(more["label_map"][511:1022], campaigns.label_maps())
  assert len(set(more["seed_init"])) == 1533


@pytest.mark.slow
def test_binary_tasks_equal_loops_over_the_stored_runs(tmp_path):
  runs, every = 3, 64
  maps = campaigns.label_maps()[::every]
  table = campaigns.binary_tasks(STUDIES._replace(every_task=every, task_runs=runs))[
    "binary_tasks"
  ].runs
  recipe = vs.recipe("digits_cnn", model="linear", epochs=1, lr=0.01)
  results = vs.train(recipe, table, tmp_path / "tasks")
  n = fig06_binary_tasks.fit_tasks(fig06_binary_tasks.count(results, len(maps)))
  predictions, labels = results.predictions.values, results.original_labels.values
  examples = len(labels)
  observed, error = np.zeros(len(maps)), np.zeros(len(maps))
  for task, groups in enumerate(maps):
    wrong = predictions[task :: len(maps)] != groups[labels]
    assert len(wrong) == runs
    observed[task], error[task] = wrong.mean(1).var(ddof=1), wrong.mean()
    assert n.variance[task] == pytest.approx(observed[task], rel=1e-9)
    assert n.independent[task] == pytest.approx(
      stats.independent_errors_variance(wrong), rel=1e-9
    )
    assert n.distribution[task] == pytest.approx(
      stats.distribution_variance(wrong), rel=1e-9, abs=1e-15
    )
  assert len(set(error)) > len(maps) / 2
  equation_6, binomial = error / 2 / examples, error * (1 - error) / examples
  errors = {
    "equation_6": ((observed - equation_6) ** 2).mean(),
    "binomial": ((observed - binomial) ** 2).mean(),
  }
  assert n.mse_ratio.value == pytest.approx(
    errors["binomial"] / errors["equation_6"], rel=1e-9
  )
  for name, predicted in {"equation_6": equation_6, "binomial": binomial}.items():
    found = getattr(n, name)
    assert found["mean_squared_error"].value == pytest.approx(errors[name], rel=1e-9)
    fit = (
      1
      - ((observed**0.5 - predicted**0.5) ** 2).sum()
      / ((observed**0.5 - (observed**0.5).mean()) ** 2).sum()
    )
    assert found["identity_r_squared_sd"].value == pytest.approx(fit, rel=1e-9)
    assert found["r_squared"].value == pytest.approx(
      np.corrcoef(observed, predicted)[0, 1] ** 2, rel=1e-9
    )
  # Theorem 3 with equation 3 inserted is equation 6 plus (1 - 1/n) times the
  # distribution-wise variance.
  theorem_3 = np.maximum(0, equation_6 + (1 - 1 / examples) * n.distribution)
  assert n.theorem_3["mean_squared_error"].value == pytest.approx(
    ((observed - theorem_3) ** 2).mean(), rel=1e-9
  )


def counts(
  errors: np.ndarray, diverged: tuple[int, int] | None = None
) -> fig06_binary_tasks.Counts:
  """The counts of errors (runs, tasks, examples). `diverged` names a run of a task to
  leave out.
  """
  rates, kept = errors.mean(2), np.ones(errors.shape[:2], bool)
  if diverged:
    kept[diverged] = False
  return fig06_binary_tasks.Counts(
    np.where(kept, rates, np.nan), (errors & kept[..., None]).sum(0)
  )


@pytest.mark.slow
def test_runs_of_tasks_that_diverged_are_left_out():
  errors = draw(0, 5, 4, 60)
  n = fig06_binary_tasks.fit_tasks(counts(errors, diverged=(3, 1)))
  others = np.delete(errors[:, 1], 3, axis=0)
  assert n.error[1] == pytest.approx(others.mean())
  assert n.independent[1] == pytest.approx(stats.independent_errors_variance(others))
  assert n.distribution[1] == pytest.approx(stats.distribution_variance(others))
  assert n.variance[0] == pytest.approx(stats.test_set_variance(errors[:, 0]))
  # One of two runs diverged; the one left is too few, so the task is left out.
  assert (
    len(fig06_binary_tasks.fit_tasks(counts(errors[:2], diverged=(1, 2))).error) == 3
  )


@pytest.mark.parametrize(
  ("runs", "r_squared", "mse_ratio"),
  [(100, 0.86, 38), (1000, 0.985, 380), (4000, 0.996, 1500)],
)
def test_caps_of_sampling_noise(runs, r_squared, mse_ratio):
  """The expected values are those of errors of 2 to 9 %."""
  error = np.linspace(0.02, 0.09, 511)
  predicted = (
    measures.calibration_variance(error, 10_000),
    stats.binomial_variance(error, 10_000),
  )
  fit, ratio = fig06_binary_tasks.caps(*predicted, np.full(511, runs))
  assert fit["r_squared"].mean == pytest.approx(
    r_squared, abs=0.015 * (1 - r_squared) / 0.14
  )
  assert fit["r_squared"].low < fit["r_squared"].mean < fit["r_squared"].high
  assert ratio.mean == pytest.approx(mse_ratio, rel=0.1)


@pytest.mark.slow
def test_equation_6_fits_errors_that_are_calibrated_and_independent():
  """Each example has a share q: runs predict 1, and its label is 1, independently with
  probability q.
  """
  rng = np.random.default_rng(2)
  tasks, n, runs = 40, 400, 200
  share = rng.uniform(0, 1, (tasks, n)) * np.linspace(0.1, 1, tasks)[:, None]
  label = rng.random((tasks, n)) < share
  found = fig06_binary_tasks.fit_tasks(
    counts((rng.random((runs, tasks, n)) < share) != label)
  )
  assert found.equation_6["r_squared"].value == pytest.approx(
    found.cap["r_squared"].mean, abs=0.1
  )
  assert found.mse_ratio.value > 10
  assert found.independent_equation_6["identity_r_squared"].value > 0.9


# Figure 7.


def test_ensembles_of_two_configurations():
  rng = np.random.default_rng(8)
  labels = rng.integers(0, 3, 90)
  without, fifth = (
    np.where(rng.random((runs, 90)) < 0.6, labels, rng.integers(0, 3, (runs, 90)))
    for runs in (7, 5)
  )
  n = fig07_ablations.ablate(without, fifth, labels)
  votes = [
    [np.bincount(column, minlength=3).argmax() for column in p.T]
    for p in (without, fifth)
  ]
  right = [np.array(v) == labels for v in votes]
  assert (n.without.ensemble, n.fifth.ensemble) == pytest.approx(
    [r.mean() for r in right]
  )
  of_runs = [(p == labels).mean(0) for p in (without, fifth)]
  gains = right[0] - of_runs[0] - right[1] + of_runs[1]
  assert n.gain == pytest.approx(
    right[0].mean()
    - (without == labels).mean()
    - right[1].mean()
    + (fifth == labels).mean()
  )
  variances = [(p == labels).mean(1).var(ddof=1) for p in (without, fifth)]
  assert n.ratio == pytest.approx(variances[0] / variances[1])
  assert n.gain_se == pytest.approx(gains.std(ddof=1) / 90**0.5)


def test_halves_of_finetuned_runs():
  errors = draw(0, 20, 61)
  n = fig07_ablations.finetune(0.1, errors)
  validation, test = 1 - errors[:, ::2].mean(1), 1 - errors[:, 1::2].mean(1)
  assert n.correlation == pytest.approx(np.corrcoef(validation, test)[0, 1])
  cut = np.sort(validation)[-3]  # of 20 runs 15 % are three
  assert (validation >= cut).sum() == 3
  assert n.gain == pytest.approx(test[validation >= cut].mean() - test.mean())


def test_only_a_fixed_fifth_of_the_data_and_a_new_last_layer():
  sizes = campaigns.ABLATIONS["laptop"]
  found = campaigns.ablations(sizes)
  fifth = found["fifth_of_data"].runs.columns()["subset"]
  assert fifth.shape == (sizes.runs, 10_000)
  assert (fifth == fifth[0]).all()
  assert len(set(fifth[0])) == 10_000
  first, others = (found[name].recipe.classes for name in ("pretrained", "finetuned"))
  assert all(
    (a == -1) != (b == -1) for a, b in zip(first, others, strict=True)
  )  # no class is in both
  assert max(first) != max(
    others
  )  # so that the last layer does not fit, and is drawn anew


# Figure 8.


def test_the_learning_rates_are_the_papers():
  paper = campaigns.learning_rates(campaigns.STUDIES["paper"])["learning_rates"].runs
  np.testing.assert_array_equal(np.unique(paper.values["lr"]), 2.0 ** np.arange(-10, 3))
  assert len(paper) == 13_000


def test_learning_rates():
  rates, wrong = np.tile([0.25, 0.5, 1.0], 5), draw(1, 15, 40)
  diverged = np.zeros(15, bool)
  diverged[[1, 2, 5, 8]] = True  # one of 0.5, three of 1.0
  low, middle = fig08_learning_rate.by_rate(rates, wrong, diverged)
  assert (
    low.rate,
    low.runs,
    low.diverged,
    middle.rate,
    middle.runs,
    middle.diverged,
  ) == (0.25, 5, 0, 0.5, 4, 1)
  errors = wrong[[4, 7, 10, 13]]
  assert middle.accuracy.mean == pytest.approx(1 - errors.mean())
  covariance = np.cov(errors.T)
  assert middle.distribution == pytest.approx(
    (covariance.sum() - np.trace(covariance)) / (40 * 39)
  )
  assert middle.independent == pytest.approx(np.trace(covariance) ** 0.5 / 40)


def test_what_holds_of_learning_rates():
  """Runs vary 1.15 times as much at learning rate 1.0 as at 0.5, the best rate."""
  rng, runs, n = np.random.default_rng(3), 2000, 1000
  rates, levels = np.tile([0.25, 0.5, 1.0], runs), np.tile([0.2, 0.1, 0.12], runs)
  moved = levels + np.tile([0.0, 0.0, 0.0065], runs) * rng.uniform(-1, 1, 3 * runs)
  numbers = fig08_learning_rate.by_rate(
    rates, rng.random((3 * runs, n)) < moved[:, None], np.zeros(3 * runs, bool)
  )
  rows = {
    row.quantity: row for row in fig08_learning_rate.rows(numbers) if row.estimate
  }
  best, twice = rows.values()
  assert place(best, 1 / 1.2, 1.2) == "within"
  assert best.estimate.value == pytest.approx(1, abs=0.1)
  assert place(twice, 1.07, 1.21) == "within"
  sd = [n.accuracy.sd for n in numbers]
  assert twice.estimate.value == pytest.approx(sd[2] / sd[1])
  wide = numbers[2]._replace(accuracy=numbers[2].accuracy._replace(sd=0.1, sd_se=0.001))
  rows = fig08_learning_rate.rows([*numbers[:2], wide])
  (_, twice) = (row for row in rows if row.estimate)
  assert place(twice, 1.07, 1.21) == "outside"
  far = wide._replace(rate=1.5)
  (last,) = (
    r for r in fig08_learning_rate.rows([*numbers, far]) if "1.5" in r.quantity
  )
  assert place(last, 1) == "within"
  assert (
    len([row for row in fig08_learning_rate.rows(numbers[:2]) if row.estimate]) == 1
  )


# Figure 10.


def test_one_source_varies_and_the_others_stand_still():
  for name, (_, runs, *_) in campaigns.source_campaigns(STUDIES).items():
    source = name.split("_")[0]
    columns = vs.Runs.independent(runs).columns() if source == "all" else runs.columns()
    vary = {s for s in campaigns.SOURCES if len(set(columns[f"seed_{s}"])) > 1}
    assert vary == ({*campaigns.SOURCES} if source == "all" else {source})


def test_sources():
  errors = {"all": draw(4, 12, 50), "init": draw(5, 9, 50, rate=0.1)}
  found = fig10_randomness_sources.variance_by_source(errors)
  a, b = (errors[source].mean(1).var(ddof=1) for source in ("init", "all"))
  assert found["init"].ratio == pytest.approx(a / b)
  assert found["init"].interval[0] < a / b < found["init"].interval[1]
  assert found["all"].ratio == 1


def test_what_is_said_of_sources():
  """After 1 epoch each source alone gives two thirds of the variance of all; after 64
  the same, half and twice.
  """
  rng = np.random.default_rng(13)

  def runs(share: float) -> np.ndarray:
    return rng.random((2000, 500)) < 0.4 + 0.2 * share**0.5 * rng.normal(size=(2000, 1))

  shares = {
    1: {"all": 1, "init": 0.67, "order": 0.67, "augment": 0.67},
    64: {"all": 1, "init": 1, "order": 0.5, "augment": 2},
  }
  found = {
    e: fig10_randomness_sources.variance_by_source({s: runs(x) for s, x in of.items()})
    for e, of in shares.items()
  }
  rows = [row for row in fig10_randomness_sources.rows(found) if row.estimate]
  bounds = {"1 epoch": (0.5, 0.85), "64 epochs": (0.8, 1.25)}
  results = [place(row, *bounds[row.quantity.rpartition(", ")[2]]) for row in rows]
  assert results.count("within") == 4
  no = {
    row.quantity for row, found in zip(rows, results, strict=True) if found == "outside"
  }
  assert no == {
    "variance, order alone over all, 64 epochs",
    "variance, augment alone over all, 64 epochs",
  }


# Figure 11.


def test_mean_disagreement_is_that_of_all_pairs():
  predictions = np.random.default_rng(2).integers(-1, 3, (7, 50))
  matrix = stats.disagreement_matrix(predictions)
  np.testing.assert_allclose(
    fig11_poking.mean_disagreement(predictions), matrix.sum(1) / 6
  )


def test_disagreement_of_pairs():
  unpoked = np.random.default_rng(6).integers(0, 3, (6, 80))
  poked = np.where(draw(7, 6, 80, rate=0.1), (unpoked + 1) % 3, unpoked)
  n = fig11_poking.compare_changed(unpoked, poked)
  np.testing.assert_allclose(n.matched_pairs, (unpoked != poked).mean(1))
  distinct = np.mean(
    [(unpoked[a] != unpoked[b]).mean() for a in range(6) for b in range(a)]
  )
  assert n.distinct == pytest.approx(distinct)
  assert n.ratio == pytest.approx((unpoked != poked).mean() / distinct)
  np.testing.assert_allclose(n.distinct_pairs[2], (unpoked[2] != unpoked[3]).mean())


def test_pokes_are_of_the_runs_of_figure_10():
  studied = campaigns.poke_campaigns(STUDIES) | campaigns.source_campaigns(STUDIES)
  changed = studied["poked_2epochs_4of8"]
  unchanged = studied["all_2epochs"]
  assert changed.recipe.replace(objective=None, values={}) == unchanged.recipe
  np.testing.assert_array_equal(
    changed.runs.columns()["seed_order"], np.arange(STUDIES.pairs)
  )
  assert STUDIES.pairs <= unchanged.runs
  assert changed.recipe.values == {"poke_step": 31, "poke_factor": 1.001}  # of 62


@pytest.mark.parametrize("scale", campaigns.STUDIES)
def test_no_poke_comes_after_the_last_step(scale):
  studies = campaigns.STUDIES[scale]
  steps_per_epoch = campaigns.TRAIN[studies.recipe.dataset] // studies.recipe.batch_size
  for name, campaign in campaigns.poke_campaigns(studies).items():
    if name.startswith("poked"):
      steps = campaign.recipe.epochs * steps_per_epoch
      assert 0 <= campaign.recipe.values["poke_step"] < steps, name


def test_a_poke_changes_one_weight():
  params = {
    "Conv_0": {"bias": jnp.zeros(3), "kernel": jnp.ones((3, 3, 1, 3))},
    "Dense_0": {"kernel": jnp.ones((4, 2))},
    "Dense_1": {"kernel": jnp.ones((2, 2))},
  }

  def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])

  @jax.jit
  def poke(key):
    place = poking.poke_place(params, key)
    return poking.poke_weight(params, place, jnp.float32(1.5))

  places = set()
  for seed in range(300):
    changed = flat(poke(jax.random.key(seed)))
    differs = changed != flat(params)
    assert differs.sum() == 1
    places.add(int(np.argmax(differs)))
  assert places == set(range(3, 3 + 27 + 8 + 4)), (
    "every weight and no bias is poked now and then"
  )


POKED_INPUTS = np.random.default_rng(0).normal(size=(24, 6)).astype(np.float32)
POKED_LABELS = (np.arange(24) % 3).astype(np.int32)
POKED_RECIPE = vs.Recipe(
  name="poked",
  dataset=vs.Dataset(
    train=(POKED_INPUTS, POKED_LABELS), test=(POKED_INPUTS, POKED_LABELS)
  ),
  model="linear",
  epochs=1,
  batch_size=6,
  lr=0.0,
  momentum=0.0,
  schedule="constant",
  normalize=False,
)


def train_layers(folder, recipe, runs) -> dict[str, np.ndarray]:
  """Return the trained kernels and biases of a linear network, runs first."""
  vs.train(recipe, runs, folder, keep_params=True, progress=False)
  return vs.load_networks(folder).variables["params"]["Dense_0"]


def test_poke_happens_at_its_step(tmp_path):
  """At learning rate 0 a poke within the four steps stays as it is. The init seed alone
  chooses the weight.
  """
  runs = vs.Runs.concat([vs.Runs.vary("init", 3), vs.Runs.vary("order", 2, start=5)])
  unchanged = train_layers(tmp_path / "unchanged", POKED_RECIPE, runs)["kernel"]
  changed = {}
  for step in (0, 3, 4):
    recipe = poking.poked(POKED_RECIPE, step, factor=2.0)
    changed[step] = train_layers(tmp_path / str(step), recipe, runs)["kernel"]
  differs = (changed[0] != unchanged).reshape(5, -1)
  assert differs.sum(1).tolist() == [1] * 5
  np.testing.assert_array_equal(
    changed[0].reshape(5, -1)[differs], 2 * unchanged.reshape(5, -1)[differs]
  )
  np.testing.assert_array_equal(changed[3], changed[0])
  np.testing.assert_array_equal(changed[4], unchanged)
  places = differs.argmax(1).tolist()
  assert len(set(places[:3])) == 3
  # The runs that vary the order have the init seed 0.
  assert places[3:] == [places[0]] * 2


def test_training_goes_on_from_the_poked_weight(tmp_path):
  """Beside a loop of gradient descent on all examples."""
  steps, poke_step, factor, lr = 3, 1, 5.0, 0.5
  runs = vs.Runs.independent(2)
  still = POKED_RECIPE.replace(epochs=steps, batch_size=len(POKED_INPUTS))
  initial = train_layers(tmp_path / "initial", still, runs)
  still_poked = poking.poked(still, poke_step, factor)
  moved = train_layers(tmp_path / "moved", still_poked, runs)["kernel"]
  recipe = poking.poked(still.replace(lr=lr), poke_step, factor)
  trained = train_layers(tmp_path / "trained", recipe, runs)

  one_hot = np.eye(3)[POKED_LABELS]
  for run in range(len(runs)):
    kernel = np.array(initial["kernel"][run], np.float64)
    bias = np.array(initial["bias"][run], np.float64)
    changes = moved[run] != initial["kernel"][run]
    for step in range(steps):
      if step == poke_step:
        kernel[changes] *= factor
      excess = scipy.special.softmax(POKED_INPUTS @ kernel + bias, axis=1) - one_hot
      kernel -= lr * POKED_INPUTS.T @ excess / len(excess)
      bias -= lr * excess.mean(0)
    np.testing.assert_allclose(trained["kernel"][run], kernel, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(trained["bias"][run], bias, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_another_first_step(which, nesterov):
  """Against the recipe's own optimizer, given the other first gradient."""
  name = "nesterov" if nesterov else "sgd"
  recipe = vs.recipe("digits_cnn", epochs=2, optimizer=name)
  swept = vs.Runs.sweep(first_step=[which], seeds=1)
  run = recipe_lanes(recipe.replace(values={"first_step": 0.0}), swept, 1000)
  run = type(run)({}, {name: column[0] for name, column in run.values.items()})
  gradients = [
    jnp.array([0.1, -3e-9, 2.0]),
    jnp.array([0.3, 0.2, 0.1]),
    jnp.array([-1.0, 0.0, 0.5]),
  ]
  expected = [
    np.float32([0.1, -3e-9, 2.0]),
    np.float16([0.1, -3e-9, 2.0]).astype(np.float32),
    np.zeros(3, np.float32),
  ]
  parameters = jnp.array([1.0, -2.0, 0.5])
  optimizers = (
    campaigns.other_first_step(run, 10, nesterov),
    make_optimizer(recipe, run, 10),
  )
  states = [optimizer.init(parameters) for optimizer in optimizers]
  for step, gradient in enumerate(gradients):
    ours, states[0] = optimizers[0].update(gradient, states[0], parameters)
    theirs, states[1] = optimizers[1].update(
      expected[which] if step == 0 else gradient, states[1], parameters
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


# Figures 9 and 12.


def test_halves_are_of_even_and_odd_examples():
  errors = draw(12, 4, 7)
  half_errors = np.stack([errors[:, ::2].sum(1), errors[:, 1::2].sum(1)], 1)
  results = xr.Dataset(
    {
      "half_errors": (("run", "half"), half_errors),
      "diverged": ("run", [False, True, False, False]),
    },
    coords={"example": range(7)},
  )
  halves = fig12_shift_correlations.accuracies_of_halves(results)
  np.testing.assert_allclose(
    halves[1], [1 - errors[2, ::2].mean(), 1 - errors[2, 1::2].mean()]
  )
  assert len(halves) == 3


def test_shifted_test_sets_are_compared_with_the_first():
  """A test set on which runs differ by chance, and one on which some runs are better."""
  rng, labels = np.random.default_rng(10), np.zeros(2000, int)
  levels = {"test": np.full(200, 0.1), "blur": rng.uniform(0.2, 0.4, 200)}
  tallies = {
    name: stats.tally((rng.random((200, 2000)) < p[:, None]).astype(int), labels, 2)
    for name, p in levels.items()
  }
  shifts = {
    name: fig09_distribution_shift.ShiftedSpread(
      frame.spread_of(t), fig09_distribution_shift.variance_of(t)
    )
    for name, t in tallies.items()
  }
  rows = {row.quantity: row for row in fig09_distribution_shift.rows({"data": shifts})}
  assert place(rows["sd on the distribution, data, blur"], 0) == "within"
  assert shifts["blur"].variance.distribution == pytest.approx(0.2 / 12**0.5, rel=0.1)
  both = dict.fromkeys(("one", "two"), shifts)
  assert len(frame.draw_png(fig09_distribution_shift.plot, both, 4)) < 150_000


def test_correlations_are_scipys():
  rng = np.random.default_rng(11)
  common = rng.normal(size=50)
  accuracies = {
    "test": rng.normal(size=50),
    "blur": common,
    "noise": common + rng.normal(size=50),
    "flat": np.ones(50),
  }
  accuracies = {
    name: np.stack([a, a[::-1] if name == "test" else a], 1)
    for name, a in accuracies.items()
  }
  n = fig12_shift_correlations.correlations(accuracies)
  assert [(p.first, p.second) for p in n.pairs][:3] == [
    ("test", "blur"),
    ("test", "noise"),
    ("blur", "noise"),
  ]
  for pair in n.pairs[:3]:
    expected = scipy.stats.pearsonr(
      accuracies[pair.first][:, 0], accuracies[pair.second][:, 1]
    )
    assert (pair.r, pair.p_value) == pytest.approx(
      (expected.statistic, expected.pvalue)
    )
    assert pair.interval[0] < pair.r < pair.interval[1]
  assert np.isnan(n.pairs[-1].r)
  shifted = ("blur", "noise", "flat")
  rows = {row.quantity: row for row in fig12_shift_correlations.rows({"data": n})}
  judged = {
    name: place(row, -0.1, 0.1) for name, row in rows.items() if "on test and" in name
  }
  assert set(judged) == {f"data: correlation on test and {x}" for x in shifted}
  assert judged["data: correlation on test and flat"] == "across"
  assert rows["data: pairs with p < 0.05"].ours.startswith(
    f"{sum(p.p_value < 0.05 for p in n.pairs)} of 3"
  )
