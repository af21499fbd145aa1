"""The runs table."""

import numpy as np
import pytest

import vmapseeds as vs
from vmapseeds.training.names import SOURCES
from vmapseeds.training.recipe_runs import check_runs_fit_recipe, recipe_lanes
from vmapseeds.training.runs import Runs

RECIPE = vs.recipe(
  "digits_cnn", epochs=2, batch_size=2
)  # four steps an epoch of nine examples


def filled(**values):
  return Runs.sweep(**values, seeds=2).filled(SOURCES, {"lr": 0.1})


def test_independent_runs_vary_in_every_source():
  runs = Runs.independent(4, start=3)
  assert len(runs) == 4
  assert {s: c.tolist() for s, c in runs.seeds.items()} == {
    key: [3, 4, 5, 6] for key in SOURCES
  }


def test_more_runs_extend_the_table():
  for make in (
    Runs.independent,
    lambda n: Runs.vary("order", n),
    lambda n: Runs.sweep(lr=[0.1, 0.2], seeds=n),
  ):
    few, many = make(3).columns(), make(5).columns()
    assert all((many[name][: len(few[name])] == few[name]).all() for name in few)


def test_runs_from_a_later_seed_on_are_the_later_rows():
  for make in (
    Runs.independent,
    lambda n, start=0: Runs.vary(["init", "order"], n, start=start, fixed=9),
    lambda n, start=0: Runs.sweep(lr=[0.1], seeds=n, start=start),
  ):
    later, all_of_them = make(2, start=3).columns(), make(5).columns()
    assert {name: c.tolist() for name, c in later.items()} == {
      name: c[3:].tolist() for name, c in all_of_them.items()
    }


def test_vary_fixes_the_others():
  runs = Runs.vary(["init", "order"], 3, fixed=8)
  for source in SOURCES:
    assert runs.seeds[source].tolist() == (
      [0, 1, 2] if source in ("init", "order") else [8, 8, 8]
    )


def test_what_was_chosen_to_vary():
  assert Runs.vary(["data", "order"], 3).varying() == ["order", "data"]
  assert Runs.concat([Runs.vary("order", 2), Runs.vary("init", 2)]).varying() == [
    "init",
    "order",
  ]
  for runs in (
    Runs.vary("order", 1),
    Runs.independent(3),
    Runs.vary(SOURCES, 3),
    Runs.sweep(lr=[1, 2], seeds=2),
  ):
    assert runs.varying() == []


def test_a_sweep_crosses_values_with_seeds():
  runs = Runs.sweep(lr=[0.1, 0.2], weight_decay=[0, 1], seeds=2)
  rows = list(
    zip(
      runs.seeds["init"].tolist(),
      runs.values["lr"],
      runs.values["weight_decay"],
      strict=True,
    )
  )
  crossed = [(s, lr, wd) for s in (0, 1) for lr in (0.1, 0.2) for wd in (0, 1)]
  assert rows == crossed


def test_names_to_sweep_are_texts_that_folders_keep():
  runs = Runs.sweep(
    optimizer=["sgd", "größe:adam"],
    stop_at=[None, 0.5, True],
    loss=vs.Recipe.replace,
    seeds=2,
  )
  assert runs.values["stop_at"].tolist()[:3] == ["none", "0.5", "true"]
  assert runs.values["loss"][0] == "vmapseeds.training.recipes:Recipe.replace"
  again = Runs.from_columns(runs.columns(), SOURCES)
  for name, column in runs.values.items():
    assert again.values[name].tolist() == column.tolist()
  assert Runs.from_columns(runs[:0].columns(), SOURCES).values["loss"].tolist() == []
  assert runs.swept() == ["optimizer", "stop_at"]


def test_a_sweep_of_a_sweep_crosses_both():
  inner = Runs.sweep(lr=[0.1, 0.2], seeds=Runs.vary("init", 2, start=5))
  crossed = Runs.sweep(gamma=[0, 1], seeds=inner)
  rows = list(
    zip(
      crossed.seeds["init"].tolist(),
      crossed.values["lr"],
      crossed.values["gamma"],
      strict=True,
    )
  )
  assert rows == [
    (s, lr, gamma) for s in (5, 6) for lr in (0.1, 0.2) for gamma in (0, 1)
  ]


def test_lanes_fill_in_the_recipe():
  run = recipe_lanes(vs.recipe("resnet9_cifar10"), Runs.sweep(lr=[0.1], seeds=2), 50)
  assert run["lr"].tolist() == [np.float32(0.1)] * 2
  assert run["momentum"].tolist() == [np.float32(0.9)] * 2
  assert run.get("label_map") is None
  assert run.get("subset") is None


def test_concatenation_keeps_rows_in_order():
  runs = Runs.concat(
    [Runs.independent(2).start_from(7), Runs.independent(2).start_from([0, 3])]
  )
  assert runs.seeds["init"].tolist() == [0, 1, 0, 1]
  assert runs.values["start"].tolist() == [7, 7, 0, 3]
  assert len(runs[1:3]) == 2
  assert runs[1:3].values["start"].tolist() == [7, 0]


def test_one_value_and_any_values_are_swept():
  for values in ((0.1, 0.2), np.array([0.1, 0.2]), (v for v in (0.1, 0.2))):
    assert Runs.sweep(lr=values, seeds=2).values["lr"].tolist() == [0.1, 0.2, 0.1, 0.2]
  assert Runs.sweep(lr=0.1, seeds=2).values["lr"].tolist() == [0.1] * 2
  assert Runs.sweep(lr=np.array(0.1), seeds=1).values["lr"].tolist() == [0.1]


def test_rows_of_a_table():
  runs = Runs.independent(4).start_from([0, 1, 2, 3])
  for rows, expected in (
    (2, [2]),
    (-1, [3]),
    ([3, 1], [3, 1]),
    (slice(0), []),
    (np.array([True, False, True, False]), [0, 2]),
  ):
    assert runs[rows].values["start"].tolist() == expected
  assert [len(row) for row in runs] == [1] * 4
  with pytest.raises(IndexError):
    runs[4]


def test_subsets_and_label_maps_are_a_run():
  runs = Runs.independent(2).subset([[0, 1], [2, 5]]).with_label_map([0, 1, 1])
  assert recipe_lanes(vs.recipe("digits_cnn"), runs, 6)["subset"].tolist() == [
    [0, 1],
    [2, 5],
  ]
  assert runs.values["label_map"].tolist() == [[0, 1, 1]] * 2
  assert runs.num_train(6) == 2
  check_runs_fit_recipe(RECIPE, runs, 6, 3)
  assert Runs.independent(1).bootstrap().num_train(6) == 6
  assert Runs.independent(1).bootstrap(9).num_train(6) == 9


@pytest.mark.parametrize(
  ("make", "message"),
  [
    (lambda: Runs.independent(0), "runs is 0: .*at least 1"),
    (lambda: Runs.independent(2.5), "runs is 2.5: give a whole number"),
    (
      lambda: Runs.independent(1, start=-1),
      "seed is -1: .*at least 0",
    ),
    (
      lambda: Runs.independent(2, start=2**32 - 1),
      r"seeds up to 4294967296: give numbers below 2\*\*32",
    ),
    (
      lambda: Runs.vary("batches", 2).filled(SOURCES, {}),
      "unknown source of randomness 'batches': choose one of init, order, augment",
    ),
    (
      lambda: Runs.vary([], 2),
      "sources that vary are none: choose some of init, order, augment, dropout, data, each once",
    ),
    (
      lambda: Runs.sweep(lr=[1], gamma=[1], seeds=Runs.sweep(lr=[1], seeds=2)),
      "^lr: the table of seeds is a sweep of it already, leave it out of one",
    ),
    (lambda: Runs.sweep(lr=[], seeds=2), "lr is swept over no values"),
    (
      lambda: check_runs_fit_recipe(RECIPE, Runs.sweep(lr=[-1.0], seeds=2), 9, 3),
      "lr is -1.0: give a finite number of at least 0",
    ),
    (lambda: Runs.sweep(seeds=2), "nothing to sweep"),
    (lambda: Runs.sweep(lr=[1.0], seeds=0), "seeds is 0"),
    (lambda: Runs.sweep(lr=0.1), "seeds is None: .*at least 1"),
    (lambda: filled(lr=[0.1, "fast"]), "lr is 'fast': give a number"),
    (lambda: filled(lr=[None]), "lr is 'none': give a number"),
    (lambda: Runs.sweep(lr=["a/b"], seeds=2), "lr is 'a/b': give numbers or names"),
    (lambda: Runs.sweep(optimizer=[lambda: 0], seeds=2), "cannot be imported by name"),
    (lambda: Runs.sweep(lr=[[0.1]], seeds=2), r"lr is \[0.1\]: give a number"),
    (
      lambda: Runs.sweep(
        lr=np.linspace(0, 1, 5000), momentum=np.linspace(0, 0.9, 5000), seeds=9
      ),
      "runs is 225000000: give",
    ),
    (lambda: Runs.vary(None, 2), "sources that vary are None: choose some of init"),
    (
      lambda: Runs.independent(np.array([1, 2])),
      r"runs is array\(\[1, 2\]\): give a whole number",
    ),
    (lambda: Runs.concat([]), r"tables is \[\]: give a list of at least one table"),
    (
      lambda: Runs.concat([Runs.independent(2), 1]),
      "give a list of at least one table",
    ),
    (
      lambda: Runs.concat([Runs.independent(1), Runs.sweep(lr=[1], seeds=1)]),
      "these tables have different columns",
    ),
    (
      lambda: Runs.independent(1).start_from(-2),
      "network to start from is -2: give whole numbers from 0, one or one a run",
    ),
    (
      lambda: Runs.independent(1).start_from(2**40),
      "network to start from is 1099511627776: give whole numbers",
    ),
    (
      lambda: Runs.independent(2).start_from([1, 2, 3]),
      "network to start from for 3 runs in a table of 2: give one a run",
    ),
    (lambda: Runs.independent(1).subset(None), "training subset is None"),
    (
      lambda: Runs.independent(2).subset([[1], [2, 3]]),
      "training indices is .*: give whole numbers from 0",
    ),
    (
      lambda: Runs.independent(1).subset([2**40]),
      "training indices is .*: give whole numbers from 0",
    ),
    (
      lambda: Runs.independent(1).subset([[0], [1]]),
      "training indices for 2 runs in a table of 1: give one a run",
    ),
    (
      lambda: Runs.independent(1).subset([0.5]),
      r"training indices is \[0.5\]: give whole numbers from 0, \(train,\) or \(runs, train\)",
    ),
    (lambda: Runs.independent(1).bootstrap(0), "bootstrap size is 0"),
    (
      lambda: Runs.independent(1).with_label_map([0, -1]),
      r"label map is \[0, -1\]: give whole numbers from 0",
    ),
    (
      lambda: Runs.independent(1).with_label_map([[0], [1]]),
      "label map for 2 runs in a table of 1",
    ),
    (
      lambda: check_runs_fit_recipe(
        RECIPE, Runs.independent(1).with_label_map([0, 1]), 9, 3
      ),
      "label map of 2 classes for data with 3",
    ),
    (
      lambda: check_runs_fit_recipe(RECIPE, Runs.independent(1).subset([9]), 9, 3),
      "training index 9 in data with 9 examples: the last is 8",
    ),
  ],
)
def test_mistakes(make, message):
  with pytest.raises(vs.UserError, match=message):
    make()


def test_runs_are_repeated_with_seeds_of_another_source():
  runs = Runs.vary("init", 3, start=5, fixed=2, repeat={"order": 2, "mixup": 2})
  assert len(runs) == 12
  seeds = {source: column.tolist() for source, column in runs.seeds.items()}
  assert seeds["init"] == [5] * 4 + [6] * 4 + [7] * 4
  assert seeds["order"] == [5, 5, 6, 6] * 3
  assert seeds["mixup"] == [5, 6] * 6
  assert seeds["augment"] == [2] * 12
  more = Runs.vary("init", 4, start=5, fixed=2, repeat={"order": 2, "mixup": 2})
  for source, column in more.seeds.items():
    assert column.tolist()[:12] == seeds[source]
  for repeat, message in (
    ({"init": 2}, "init varies and is repeated: give it in one place"),
    ({"order": 1}, "repeats of order is 1: .*at least 2"),
    ({"order": 10**7}, "runs is 30000000: give at most"),
  ):
    with pytest.raises(vs.UserError, match=message):
      Runs.vary("init", 3, repeat=repeat)
