"""What a recipe is made of: the names and digests of objects, and what another process
is told of them.
"""

import importlib
import json
import linecache
import sys

import numpy as np
import pytest

import vmapseeds as vs
from vmapseeds.results.description import differing_fields
from vmapseeds.training import objects
from vmapseeds.training.objects import (
  ImportedByName,
  import_object,
  is_importable_again,
  name_of,
  resolve_object,
)

MODULE = """
import functools

def halved(outputs, targets):
  return (outputs - targets) ** 2 / 2

def other(outputs, targets):
  return 0 * outputs

class Scaled:
  def __init__(self, scale):
    self.scale = scale
  def __call__(self, outputs, targets):
    return self.scale * outputs
  def of(self, outputs, targets):
    return self.scale * outputs
  @classmethod
  def one(cls, outputs, targets):
    return outputs

def scaled(scale):
  def loss(outputs, targets):
    return scale * outputs
  return loss

part = functools.partial(halved, targets=1)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
  """A function that writes a module from a text and imports it anew."""
  monkeypatch.syspath_prepend(tmp_path)
  # An edit of the same length within a second looks like no edit.
  monkeypatch.setattr(sys, "dont_write_bytecode", True)

  def load(text=MODULE):
    (tmp_path / "own_objects.py").write_text(text)
    sys.modules.pop("own_objects", None)
    importlib.invalidate_caches()
    linecache.clearcache()
    return importlib.import_module("own_objects")

  yield load
  sys.modules.pop("own_objects", None)


def test_names(module):
  own = module()
  assert name_of(own.halved) == "own_objects:halved"
  assert name_of(own.Scaled) == "own_objects:Scaled"
  assert name_of(own.Scaled(2)) == "own_objects:Scaled()"
  assert name_of(own.scaled(2)) == "own_objects:scaled.<locals>.loss"
  assert name_of(own.part) == "functools:partial()"
  assert name_of(own.Scaled(2).of) == "own_objects:Scaled().of"
  assert name_of(own.Scaled.one) == "own_objects:Scaled.one"
  assert import_object("own_objects:halved") is own.halved
  assert import_object("own_objects:Scaled.__call__") is own.Scaled.__call__
  found = [
    is_importable_again(v)
    for v in (
      own.halved,
      own.Scaled,
      "own_objects:halved",
      "sgd",
      3,
      own.Scaled.one,
      own.Scaled(2),
      own.scaled(2),
      own.part,
      own.Scaled(2).of,
    )
  ]
  assert found == [True, True, True, True, True, True, False, False, False, False]


@pytest.mark.parametrize(
  "name", ["__main__:loss", "own_objects:scaled.<locals>.loss", "functools:partial()"]
)
def test_another_process_is_told_what_it_cannot_make(name):
  with pytest.raises(
    vs.UserError,
    match="cannot be imported by name: resume from the program that created it",
  ):
    resolve_object("loss", ImportedByName(name))


@pytest.mark.parametrize(
  ("text", "why"),
  [
    ("no_such_module:x", "ModuleNotFoundError: No module named 'no_such_module'"),
    ("own_objects:x", "AttributeError: module 'own_objects' has no attribute 'x'"),
    ("own_broken:x", r"ZeroDivisionError: division by zero, own_broken.py line 2"),
    ("own_syntax:x", "SyntaxError: "),
  ],
)
def test_what_cannot_be_imported(module, tmp_path, text, why):
  module()
  (tmp_path / "own_broken.py").write_text("\nx = 1 / 0\n")
  (tmp_path / "own_syntax.py").write_text("x = = 1\n")
  with pytest.raises(
    vs.UserError,
    match=rf"'{text}' cannot be imported \({why}.*\): give package.module:attribute",
  ):
    import_object(text)


def test_a_mistake_in_an_imported_recipe_is_told_as_it_is(module, tmp_path):
  module()
  (tmp_path / "own_objects.py").write_text(
    "import vmapseeds as vs\nown = vs.recipe('digits_cnn', lr=-1)\n"
  )
  sys.modules.pop("own_objects")
  with pytest.raises(
    vs.UserError, match=r"^lr is -1.0: give a finite number of at least 0"
  ):
    vs.recipe("own_objects:own")


def test_recipes_of_objects_as_json(module):
  own = module()
  x, y = np.zeros((4, 2), np.float32), np.arange(4)
  data = vs.Dataset(train=(x, y), test=(x, y), name="four")
  recipe = vs.recipe(
    "digits_cnn", loss=own.halved, dataset=data, values={"temperature": 2}
  )
  fields = json.loads(recipe.to_json())
  assert fields["loss"] == {"object": "own_objects:halved"}
  assert fields["dataset"] == {"object": "<four>"}
  read = vs.Recipe.from_json(recipe.to_json())
  assert read.loss == ImportedByName("own_objects:halved")
  assert read.found_in(recipe) == recipe
  other = recipe.replace(loss=own.other)
  assert read.found_in(other).loss == read.loss, "not what was to_spec"
  assert (
    differing_fields(*({"recipe": of.to_json()} for of in (recipe, other)))
    == "recipe and this one differ in loss: own_objects:halved, own_objects:other"
  )
  with pytest.raises(
    vs.UserError,
    match="the dataset of digits_cnn is <four>, which no other process can import: Ray needs it",
  ):
    recipe.check_found("Ray")
  assert vs.recipe("digits_cnn", loss=own.halved).check_found("Ray") is None


def test_import_strings_are_told_from_names_of_data():
  assert objects.is_import("a.b:c.d")
  assert not objects.is_import("cifar10:3.0.2")
  assert not objects.is_import("emnist/letters")
