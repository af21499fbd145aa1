"""Runs that are trained on a bootstrap sample and measured on what it leaves."""

import jax
import numpy as np
import pytest
from cases import mostly_slow

import vmapseeds as vs
from vmapseeds.data.splits import out_of_bootstrap
from vmapseeds.mistakes import Mistake


@pytest.mark.parametrize(
  ("n", "size", "trained", "held_out"),
  mostly_slow([(10, 4, 4, 3), (3, 1, 1, 1), (11, 4, 4, 3), (12, None, 8, 2)]),
)
def test_validation_and_test_examples_share_what_is_left(n, size, trained, held_out):
  split = out_of_bootstrap(jax.random.key(3), n, size)
  train, valid, test = (set(np.asarray(part).tolist()) for part in split)
  assert [len(part) for part in split] == [trained, held_out, held_out]
  assert not train & valid
  assert not train & test
  assert not valid & test
  assert train | valid | test <= set(range(n))


def test_one_example_is_the_least_to_train_on():
  runs = vs.Runs.independent(2)
  assert runs.out_of_bootstrap(1).sampling[1] == 1
  with pytest.raises(Mistake, match="training examples"):
    runs.out_of_bootstrap(0)
