"""What a user sees of `vs.train` and its neighbours before reading: the options in their
signatures, and results without a folder.
"""

import atexit
import dataclasses
import functools
import inspect
import os

import numpy as np
import pytest

import vmapseeds as vs
from vmapseeds.campaign.options import Options, WorkOptions

LINEAR = vs.recipe("digits_cnn", model="linear", epochs=1)


@pytest.mark.parametrize(
  ("function", "options"),
  [
    (vs.train, Options),
    (vs.estimate, Options),
    (vs.work, WorkOptions),
  ],
)
def test_options_stand_in_the_signature(function, options):
  parameters = inspect.signature(function).parameters
  kinds = {parameter.kind for parameter in parameters.values()}
  assert inspect.Parameter.VAR_KEYWORD not in kinds
  for field in dataclasses.fields(options):
    parameter = parameters[field.name]
    assert parameter.kind == parameter.KEYWORD_ONLY
    assert parameter.default == field.default
    assert parameter.annotation is not parameter.empty
    assert field.name in function.__doc__


def test_an_option_that_is_none_is_a_type_error():
  with pytest.raises(TypeError, match="unexpected keyword argument 'seedbatch'"):
    vs.train(LINEAR, 2, seedbatch=2)


@pytest.fixture
def at_exit(monkeypatch):
  """What is to be called when Python ends."""
  calls = []

  def register(function, *args, **kwargs):
    calls.append(functools.partial(function, *args, **kwargs))

  monkeypatch.setattr(atexit, "register", register)
  return calls


def test_results_without_a_folder_are_in_memory(at_exit, tmp_path):
  results = vs.train(LINEAR, runs=2, progress=False)
  folder = results.encoding["source"]
  kept = vs.train(LINEAR, 2, tmp_path / "kept", progress=False)
  assert kept.encoding["source"] == str(tmp_path / "kept")
  # The folder is there for what reads it, such as `vs.load_networks`.
  np.testing.assert_array_equal(vs.error_matrix(folder), vs.error_matrix(kept))
  for call in at_exit:
    call()
  assert not os.path.exists(folder)
  assert results.load().identical(kept.load())


@pytest.mark.parametrize(
  "function",
  [
    vs.train,
    vs.work,
    vs.estimate,
    vs.replay,
    vs.tally,
    vs.measure,
    vs.held_out,
    vs.example_table,
    vs.report,
    vs.compare,
    vs.sample_size,
    vs.training_examples,
    vs.import_runs,
  ],
)
def test_what_starts_jax_asks_for_all_cores_first(function, monkeypatch):
  """A training may follow, and JAX starts once."""

  class Asked(Exception):
    pass

  def ask():
    raise Asked

  monkeypatch.setattr("vmapseeds.target.ask_for_all_cores", ask)
  with pytest.raises(Asked):
    function()
