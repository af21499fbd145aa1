"""K-fold cross-validation: folds against hand-made ones and scikit-learn's properties,
what is kept of examples that are held out, and what is said of runs that share folds.
"""

import runpy
from pathlib import Path

import flax.linen as nn
import jax
import numpy as np
import orbax.checkpoint as ocp
import pandas as pd
import pytest
import scipy.special
import scipy.stats
import sklearn.metrics as sk

import vmapseeds as vs
from vmapseeds import cli, commands
from vmapseeds.data import splits
from vmapseeds.reports.summaries import summarize
from vmapseeds.training.runs import source_key

HOW = dict(progress=False, lane_width=2, lowering="sequential")
RNG = np.random.default_rng(0)
N = 62
X = RNG.normal(size=(N, 3)).astype(np.float32)
Y = (X[:, 0] + RNG.normal(size=N) > 0.5).astype(int)
PROGRAM = Path(__file__).parents[2] / "docs" / "programs" / "export_networks.py"
EXPORT = runpy.run_path(str(PROGRAM))["export"]
GROUPS = [f"patient {number}" for number in RNG.integers(0, 17, N)]


def recipe(data=None, **more):
  given = dict(
    name="folds",
    dataset=data or vs.Dataset(train=(X, Y)),
    model=nn.Dense,
    model_args={"features": 2},
    epochs=3,
    batch_size=10,
    lr=0.1,
  )
  return vs.Recipe(**(given | more))


def key(partition):
  return source_key("data", np.uint32(partition))


@pytest.mark.parametrize(("n", "k"), [(10, 2), (11, 3), (62, 5), (3, 3), (7, 7)])
def test_folds_are_of_one_size_and_random(n, k):
  folds = splits.k_fold(key(0), n, k)
  sizes = np.bincount(folds, minlength=k)
  assert np.ptp(sizes) <= 1
  assert splits.fold_sizes(n, k) == tuple(sorted({*sizes.tolist()}))
  if n > 10:
    assert (folds != splits.k_fold(key(1), n, k)).any()
  np.testing.assert_array_equal(folds, splits.k_fold(key(0), n, k))


def test_stratified_folds_have_equally_many_of_each_class():
  labels = RNG.choice(3, 101, p=[0.7, 0.25, 0.05])
  folds = splits.k_fold(key(0), 101, 4, labels=labels)
  counts = np.array([np.bincount(labels[folds == f], minlength=3) for f in range(4)])
  assert np.ptp(counts, axis=0).max() <= 1
  assert np.ptp(counts.sum(1)) <= 1


def test_groups_stay_together():
  groups = np.unique(GROUPS, return_inverse=True)[1]
  sizes = set()
  for partition in range(5):
    folds = splits.k_fold(key(partition), N, 4, groups=groups)
    assert all(len({*folds[groups == g]}) == 1 for g in {*groups})
    sizes.add(tuple(sorted(np.bincount(folds, minlength=4).tolist())))
  (only,) = sizes  # the same sizes in all partitions
  assert splits.fold_sizes(N, 4, groups) == tuple(sorted({*only}))
  assert only[-1] <= N / 4 + np.bincount(groups).max()


NUMBERS = np.unique(GROUPS, return_inverse=True)[1]


@pytest.mark.parametrize(
  "groups",
  [
    pd.Series(GROUPS),
    pd.Series(GROUPS, dtype="category"),
    pd.Categorical(GROUPS),
    pd.Series(NUMBERS / 4),
    pd.Series(NUMBERS, dtype="Int64"),
    np.array(GROUPS, object),
  ],
  ids=lambda groups: f"{type(groups).__name__} {getattr(groups, 'dtype', '')}",
)
def test_groups_may_be_any_column(groups):
  """Folds are those of the same groups as a list."""
  runs = vs.Runs.independent(2).k_fold(3, groups=groups)
  due = vs.Runs.independent(2).k_fold(3, groups=GROUPS)
  held_out = runs.split_examples(N, Y)["test_examples"]
  np.testing.assert_array_equal(held_out, due.split_examples(N, Y)["test_examples"])


@pytest.mark.parametrize("seed", range(5))
def test_stratified_groups_stay_together_with_their_share_of_each_class(seed):
  """30 patients, each of one class, one in five ill."""
  rng = np.random.default_rng(seed)
  ill = rng.permutation(30) < 6
  groups = np.repeat(np.arange(30), rng.integers(2, 6, 30))
  labels = ill[groups].astype(int)
  folds = splits.k_fold(key(seed), len(labels), 3, labels=labels, groups=groups)
  assert all(len({*folds[groups == g]}) == 1 for g in range(30))
  # Patients at random would often leave a fold with none who are ill.
  counts = np.bincount(folds[labels == 1], minlength=3)
  assert counts.min() >= counts.sum() / 3 - 5
  np.testing.assert_array_equal(
    folds, splits.k_fold(key(seed), len(labels), 3, labels=labels, groups=groups)
  )


@pytest.mark.parametrize("kind", ["plain", "stratified", "groups", "both"])
def test_each_example_is_held_out_once_by_each_seed_and_partition(kind):
  more = {"plain": {}, "stratified": {"stratified": True}, "groups": {"groups": GROUPS}}
  more["both"] = {"stratified": True, "groups": GROUPS}
  runs = vs.Runs.independent(2).k_fold(4, repeats=3, **more[kind])
  assert len(runs) == 24
  np.testing.assert_array_equal(runs.values["fold"], np.tile(np.arange(12), 2))
  np.testing.assert_array_equal(runs.seeds["init"], np.repeat([0, 1], 12))
  split = runs.split_examples(N, Y)
  held = np.zeros((2, 3, N), int)
  for run, (train, test) in enumerate(
    zip(split["subset"], split["test_examples"], strict=True)
  ):
    test = test[test < N]
    assert not {*train.tolist()} & {*test.tolist()}
    assert len({*train.tolist()}) == len(train) == runs.num_train(N, Y)
    seed, fold = divmod(run, 12)
    held[seed, fold // 4, test] += 1
    if kind in ("groups", "both"):
      ours = {GROUPS[i] for i in train}
      assert not ours & {GROUPS[i] for i in test}
  assert (held == 1).all()
  # All seeds share the folds.
  np.testing.assert_array_equal(split["subset"][:12], split["subset"][12:])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  folder = tmp_path_factory.mktemp("folds") / "a"
  runs = vs.Runs.independent(3).k_fold(4, stratified=True, repeats=2)
  data = vs.Dataset(train=(X, Y), class_names=["sick", "well"])
  of = recipe(data, metrics=["auc"])
  vs.train(of, runs, folder, logits=True, keep_params=True, **HOW)
  return folder, runs


def test_held_out_examples_are_kept_with_their_mask(trained):
  """Against each network, applied by hand to the examples that its run held out."""
  folder, runs = trained
  results = vs.open_results(folder)
  split = runs.split_examples(N, Y)
  networks = vs.load_networks(folder)
  logits = np.asarray(jax.vmap(networks.apply, (0, None))(networks.variables, X))
  for run in range(len(runs)):
    test = split["test_examples"][run]
    test = test[test < N]
    mask = np.isin(np.arange(N), test)
    np.testing.assert_array_equal(results["mask"].values[run], mask)
    kept = results.logits.values[run]
    np.testing.assert_allclose(kept[mask], logits[run][mask], rtol=1e-4, atol=1e-5)
    assert np.isnan(kept[~mask]).all()
    predictions = results.predictions.values[run]
    np.testing.assert_array_equal(predictions[mask], kept[mask].argmax(1))
    assert (predictions[~mask] == -2).all()
    p = scipy.special.softmax(kept[mask].astype(float), axis=1)
    losses = results.losses.values[run]
    own = -np.log(p[np.arange(len(p)), Y[mask]])
    np.testing.assert_allclose(losses[mask], own, rtol=1e-4, atol=1e-6)
    assert np.isnan(losses[~mask]).all()
    right = (kept[mask].argmax(1) == Y[mask]).mean()
    assert results.test_accuracy.values[run] == pytest.approx(right)
    # Folds of 15 and of 16 examples: a metric is of those that there are.
    assert results.test_auc.values[run] == pytest.approx(
      sk.roc_auc_score(Y[mask], p[:, 1]), abs=1e-6
    )
  np.testing.assert_array_equal(results.labels, Y)
  np.testing.assert_array_equal(
    vs.training_examples(folder), runs.split_examples(N, Y)["subset"]
  )


def test_runs_that_had_not_seen_an_example_vote_on_it(trained):
  folder, _ = trained
  results = vs.open_results(folder)
  found = vs.held_out(folder)
  for example in range(N):
    rows = results["mask"].values[:, example]
    assert found.runs.values[example] == rows.sum() == 6
    votes = np.bincount(results.predictions.values[rows, example], minlength=2)
    np.testing.assert_allclose(found.vote_fractions.values[example], votes / 6)
    assert found.prediction.values[example] == votes.argmax()
    assert found.error_rate.values[example] == pytest.approx(1 - votes[Y[example]] / 6)
    logits = results.logits.values[rows, example].astype(float)
    p = scipy.special.softmax(logits, axis=1).mean(0)
    np.testing.assert_allclose(found.probabilities.values[example], p, rtol=1e-6)
    assert found.mean_loss.values[example] == pytest.approx(
      results.losses.values[rows, example].mean(), rel=1e-5
    )
  measured = vs.measure(vs.open_results(folder), ["auc", "brier"])
  np.testing.assert_allclose(measured.auc, results.test_auc, rtol=1e-6)
  p = found.probabilities.values[:, 1]
  assert measured.auc.attrs["ensemble"] == pytest.approx(
    sk.roc_auc_score(Y, p), abs=1e-6
  )
  assert measured.brier.attrs["ensemble"] == pytest.approx(
    sk.brier_score_loss(Y, p), abs=1e-6
  )


def test_the_table_of_examples_has_the_votes_of_those_who_held_them_out(trained):
  results = vs.open_results(trained[0], "held_out")
  for runs in ([], [0], list(range(results.sizes["run"]))):
    some = results.isel(run=runs)
    together = vs.held_out(some)
    table = vs.example_table(some).dataset
    for column, other in (
      ("runs", "runs"),
      ("labels", "label"),
      ("prediction", "most_voted"),
      ("error_rate", "error_rate"),
    ):
      np.testing.assert_array_equal(together[column], table[other])
    # A plain count, example by example.
    mask, predictions = some["mask"].values, some.predictions.values
    for example in range(N):
      votes = predictions[mask[:, example], example].tolist()
      fractions = [votes.count(label) / max(len(votes), 1) for label in range(2)]
      due = fractions if votes else [np.nan, np.nan]
      np.testing.assert_array_equal(together.vote_fractions[example], due)


def test_variance_over_folds_and_seeds_is_taken_apart(trained):
  results = vs.open_results(trained[0])
  summary = summarize(results)
  found = summary["sources"]
  assert found["names"][0] == "fold"
  assert found["seeds"] == [8, 3]
  table = results.test_accuracy.values.astype(float).reshape(3, 8).T
  folds, seeds = np.indices(table.shape).reshape(2, -1)
  due = vs.stats.design(table.ravel(), {"fold": folds, "seed": seeds}).components()
  np.testing.assert_allclose(found["variance"], [part.variance for part in due])
  # The error of the mean is that over seeds, of each of which there are all folds.
  of_seeds = table.mean(axis=0)
  mean = summary["statistics"]["mean"]
  assert mean["se"] == pytest.approx(of_seeds.std(ddof=1) / 3**0.5)
  said = (
    "3 seeds are drawn anew, each with its mean over 8 folds: intervals are about other "
    "seeds, not about other folds or examples."
  )
  assert any(said in warning for warning in summary["warnings"])


@pytest.mark.slow
def test_numbers_that_are_no_classes(tmp_path):
  targets = (X @ [1, 2, 3]).astype(np.float32)
  of = recipe(
    vs.Dataset(train=(X[:50], targets[:50]), test=(X[50:], targets[50:])),
    loss="squared_error",
    predict="outputs",
    model_args={"features": 1},
    metrics=["r2"],
  )
  vs.train(of, vs.Runs.independent(1).k_fold(4), tmp_path / "a", **HOW)
  results = vs.open_results(tmp_path / "a")
  found = vs.held_out(results)
  # The loss of each example that was held out, beside the score of each run.
  (summary,) = vs.report(tmp_path / "a")
  section = summary["further"][-1]
  assert section["output"] == "losses"
  assert section["statistics"]["mean_loss"]["value"] == pytest.approx(
    results.test_loss.values.mean(), rel=1e-5
  )
  losses = np.nanmean(results.losses.values, axis=0)
  hard = [row["example"] for row in section["hard_examples"]]
  assert hard == np.argsort(-losses)[: len(hard)].tolist()
  mask, predictions = results["mask"].values, results.predictions.values[..., 0]
  np.testing.assert_array_equal(found.targets, targets)
  np.testing.assert_allclose(found.prediction.values[:, 0], predictions.T[mask.T])
  for run in range(4):
    own = mask[run]
    assert results.test_loss.values[run] == pytest.approx(
      ((predictions[run][own] - targets[own]) ** 2).mean(), rel=1e-4
    )
    assert results.test_r2.values[run] == pytest.approx(
      sk.r2_score(targets[own], predictions[run][own]), abs=1e-4
    )


@pytest.mark.slow
def test_out_of_bootstrap_examples_are_kept(tmp_path):
  runs = vs.Runs.independent(6).out_of_bootstrap()
  vs.train(recipe(), runs, tmp_path / "a", logits=True, **HOW)
  results = vs.open_results(tmp_path / "a")
  for run, test in enumerate(runs.split_examples(N)["test_examples"]):
    np.testing.assert_array_equal(
      results["mask"].values[run], np.isin(np.arange(N), test)
    )
    right = results.predictions.values[run][test] == Y[test]
    assert results.test_accuracy.values[run] == pytest.approx(right.mean())
  found = vs.held_out(tmp_path / "a")
  none = found.runs.values == 0
  assert none.any()
  assert (found.prediction.values[none] == -1).all()
  assert np.isnan(found.error_rate.values[none]).all()


def test_a_report_of_folds(trained):
  """Beside the scores of runs, what they make together of examples held out: against a
  table of six runs, those that held each example out.
  """
  (summary,) = vs.report(trained[0])
  sections = (summary, *summary["further"])
  outputs = [section["output"] for section in sections]
  assert outputs == ["test_accuracy", "test_auc", "predictions"]
  section = sections[-1]
  assert section["class_names"] == ("sick", "well")

  results = vs.open_results(trained[0])
  mask, predictions = results["mask"].values, results.predictions.values
  votes = np.stack([predictions[mask[:, e], e] for e in range(N)], axis=1)
  found = {name: each["value"] for name, each in section["statistics"].items()}
  assert found["mean_accuracy"] == pytest.approx(results.test_accuracy.values.mean())
  assert found["ensemble_accuracy"] == pytest.approx(
    vs.stats.ensemble_accuracy(votes, Y, 2)
  )
  assert found["expected_disagreement"] == pytest.approx(
    vs.stats.expected_disagreement(votes, 2).value
  )
  p = vs.held_out(trained[0]).probabilities.values
  assert found["probability_accuracy"] == pytest.approx(np.mean(p.argmax(1) == Y))
  assert found["ensemble_log_loss"] == pytest.approx(sk.log_loss(Y, p))
  hardest = (votes != Y).mean(0).max()
  assert section["hard_examples"][0]["error_rate"] == pytest.approx(hardest)
  tallies = vs.tally(trained[0])
  np.testing.assert_array_equal(tallies.wrong, (votes != Y).sum(0))
  errors = vs.error_matrix(trained[0])
  np.testing.assert_allclose(errors.mean(1), 1 - results.test_accuracy, atol=1e-6)


@pytest.mark.parametrize("seeds", [1, 3])
def test_mislabelled_examples_are_ranked_by_the_loss_where_it_is_kept(seeds, trained):
  """Labels planted in a table of folds: votes of few runs tie, and losses tell."""
  results = vs.open_results(trained[0]).isel(run=slice(0, 8 * seeds))
  table = vs.example_table(results).dataset
  mean = np.nanmean(results.losses.values, axis=0)
  np.testing.assert_allclose(table.mean_loss, mean, rtol=1e-5)
  np.testing.assert_array_equal(
    np.argsort(table.rank_mislabelled.values), np.argsort(-mean, kind="stable")
  )
  rows = [
    row["example"] for row in vs.example_table(results).document.record["mislabelled"]
  ]
  suspects = [e for e in np.argsort(-mean)[:20].tolist() if table.other_share[e] > 0.5]
  assert rows == suspects


@pytest.mark.parametrize(
  ("make", "message"),
  [
    (lambda runs: runs.k_fold(1), "folds is 1: .*at least 2"),
    (lambda runs: runs.k_fold(2, repeats=0), "repeats is 0"),
    (
      lambda runs: runs.k_fold(3, groups=[0, 1]),
      "groups are 2 for 3 folds: give at least 3 groups, or fewer folds",
    ),
    (
      lambda runs: runs.k_fold(2, groups=["a", np.nan, "b", None]),
      "groups lack 2 of 4 values: give each example a group",
    ),
    (
      lambda runs: runs.k_fold(2, groups=pd.DataFrame({"patient": GROUPS})),
      r"groups have shape \(62, 1\): give .* of each example's group",
    ),
    (
      lambda runs: runs.k_fold(2, groups=[0, 1, 1]),
      "groups of 3 examples for data with 62",
    ),
    (lambda runs: runs.k_fold(63), "63 folds of 62 examples: give at most as many"),
    (lambda runs: runs, "has no test set: give test=.*, or hold examples out with"),
  ],
)
def test_mistakes(make, message, tmp_path):
  with pytest.raises(vs.UserError, match=message):
    vs.train(recipe(), make(vs.Runs.independent(2)), tmp_path / "a", **HOW)
  assert not (tmp_path / "a").exists()


def test_examples_that_are_there_twice_are_not_held_out(tmp_path):
  data = vs.Dataset(train=(X, Y), test=(X[:30], Y[:30]), name="twice")
  for runs in (
    vs.Runs.independent(1).k_fold(3),
    vs.Runs.independent(2).out_of_bootstrap(),
  ):
    with pytest.raises(
      vs.UserError, match="30 of the 30 examples of 'test' of 'twice'"
    ):
      vs.train(recipe(data), runs, tmp_path / "a", **HOW)


@pytest.mark.slow
def test_results_without_held_out_examples(tmp_path):
  data = vs.Dataset(train=(X, Y), test=(X[:5] + 9, Y[:5]))
  vs.train(recipe(data, epochs=1), 2, tmp_path / "a", **HOW)
  with pytest.raises(vs.UserError, match="these runs hold no examples out"):
    vs.held_out(tmp_path / "a")


@pytest.mark.parametrize("suffix", ["txt", "csv", "npy"])
def test_the_command_line_reads_groups_of_a_file(suffix, tmp_path, monkeypatch):
  file = tmp_path / f"groups.{suffix}"
  if suffix == "npy":
    np.save(file, np.array(GROUPS))
  elif suffix == "txt":
    file.write_text("\n".join(GROUPS))
  else:
    # Numbers, below the line that pandas writes above them.
    numbers = [group.removeprefix("patient ") for group in GROUPS]
    file.write_text("\n".join(["patient", *numbers]) + "\n")
  asked = []
  monkeypatch.setattr(vs, "train", lambda task, runs, out, **_: asked.append(runs))
  monkeypatch.setattr(commands, "conclude", lambda results, out: None)
  words = ["train", "digits_cnn", "--runs", "2", "--out", str(tmp_path / "a")]
  folds = ["--k-fold", "4", "--stratified", "--groups", str(file)]
  cli.main([*words, *folds])
  due = vs.Runs.independent(2).k_fold(4, stratified=True, groups=GROUPS)
  found = asked[0].split_examples(N, Y)["test_examples"]
  np.testing.assert_array_equal(
    np.sort(found), np.sort(due.split_examples(N, Y)["test_examples"])
  )
  with pytest.raises(SystemExit):
    cli.main([*words, "--groups", str(file)])


@pytest.fixture(scope="module")
def of_patients(tmp_path_factory):
  folder = tmp_path_factory.mktemp("patients") / "a"
  runs = vs.Runs.independent(2).k_fold(4, stratified=True, groups=GROUPS)
  vs.train(recipe(), runs, folder, keep_params=True, **HOW)
  return folder


def test_patients_are_drawn_anew(of_patients):
  """The interval of the share of right answers over other patients, by a loop."""
  (summary,) = vs.report(of_patients)
  found = summary["further"][-1]["statistics"]["accuracy_over_groups"]
  results = vs.open_results(of_patients)
  right = np.where(results["mask"], results.predictions.values == Y, np.nan)
  share = np.nanmean(right, axis=0)
  residuals = []
  for patient in sorted({*GROUPS}):
    own = np.array(GROUPS) == patient
    residuals.append((share[own] - share.mean()).sum())
  count = len(residuals)
  se = np.sqrt(count / (count - 1) * np.square(residuals).sum()) / N
  assert found["value"] == pytest.approx(share.mean())
  assert found["se"] == pytest.approx(se)
  reach = scipy.stats.t.ppf(0.975, count - 1) * se
  assert found["low"] == pytest.approx(max(0, share.mean() - reach))
  assert f"as these {count}," in found["reading"]


def test_exported_networks_of_folds_have_their_moments(of_patients, tmp_path):
  """The documentation's snippet, with any Flax program's own network."""
  EXPORT(of_patients, tmp_path / "networks")
  split = vs.Runs.independent(2).k_fold(4, stratified=True, groups=GROUPS)
  for run in (0, 5):
    path = tmp_path / "networks" / str(run)
    with ocp.StandardCheckpointer() as checkpointer:
      variables = checkpointer.restore(path)
      about = checkpointer.metadata(path).custom_metadata
    trained_on = X[split.split_examples(N, Y)["subset"][run]]
    np.testing.assert_allclose(about["mean"], trained_on.mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(about["std"], trained_on.std(0), rtol=1e-4)
    assert set(variables) == {"params"}
    logits = nn.Dense(2).apply(variables, (X - about["mean"]) / about["std"])
    networks = vs.load_networks(of_patients, run)
    due = networks.apply(networks.variables, X)
    np.testing.assert_allclose(logits, due, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_exported_networks_that_normalise_nothing(tmp_path):
  of = recipe(
    vs.Dataset(train=(X[:50], Y[:50]), test=(X[50:], Y[50:])), normalize=False
  )
  vs.train(of, 2, tmp_path / "a", keep_params=True, **HOW)
  EXPORT(tmp_path / "a", tmp_path / "networks")
  with ocp.StandardCheckpointer() as checkpointer:
    about = checkpointer.metadata(tmp_path / "networks" / "0").custom_metadata
  np.testing.assert_array_equal((X - about["mean"]) / about["std"], X)
