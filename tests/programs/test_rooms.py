"""The house: which room may import which, and no public function of a module's name."""

import ast
import importlib
import pkgutil
import tomllib
from pathlib import Path

import pytest

import vmapseeds as vs

GROUND = {"jaxprs", "errors", "machine", "target"}
# What each room may import besides itself and the ground floor.
ROOMS = {
  "lanes": set(),
  "models": set(),
  "data": set(),
  "training": {"models", "data"},
  "store": set(),
  "stats": set(),
  "results": {"store", "training", "data", "stats"},
  "campaign": {"results", "store", "training", "lanes", "models", "data", "stats"},
  "searches": {"campaign", "results", "store", "training"},
  "reports": {"searches", "results", "store", "stats", "training", "data"},
}
FILES = sorted(Path(vs.__file__).parent.rglob("*.py"))
MODULES = [name for _, name, _ in pkgutil.walk_packages(vs.__path__, "vmapseeds.")]


def imports(file: Path) -> set[str]:
  """The modules of the package that a file imports, without `vmapseeds.`."""
  found = set()
  for node in ast.walk(ast.parse(file.read_text())):
    if isinstance(node, ast.ImportFrom) and node.module == "vmapseeds":
      found |= {name.name for name in node.names}
    elif isinstance(node, ast.ImportFrom) and node.module.startswith("vmapseeds."):
      inner = node.module.removeprefix("vmapseeds.")
      modules = {
        f"{inner}.{name.name}"
        for name in node.names
        if f"vmapseeds.{inner}.{name.name}" in MODULES
      }
      found |= modules or {inner}
    elif isinstance(node, ast.Import):
      found |= {
        name.name.removeprefix("vmapseeds.")
        for name in node.names
        if name.name.startswith("vmapseeds.")
      }
  return found


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_what_lies_below(room):
  allowed = GROUND | ROOMS[room] | {room}
  for file in FILES:
    if file.parent.name == room:
      beyond = {name for name in imports(file) if name.split(".")[0] not in allowed}
      assert not beyond, f"{file.name} imports {beyond}"


def test_the_ground_floor_imports_no_room():
  for file in FILES:
    if file.stem in GROUND:
      assert {name.split(".")[0] for name in imports(file)} <= GROUND


def test_every_package_is_a_room():
  assert {file.parent.name for file in FILES} == {*ROOMS, "vmapseeds"}


def test_no_import_goes_in_a_circle():
  root = Path(vs.__file__).parent
  names = {
    ".".join(f.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): f
    for f in FILES
  }
  left = {
    name: {i for i in imports(f) if i in names and i != name}
    for name, f in names.items()
    if name != "__init__"
  }
  # A package re-exports its modules: a module's import of its own package does not
  # count as a circle.
  for name, below in left.items():
    below -= {name.rpartition(".")[0]}
  while free := [name for name, below in left.items() if not below & left.keys()]:
    for name in free:
      del left[name]
  assert not left


def test_no_function_is_hidden_by_a_module():
  public = {name for name in vs.__all__ if callable(getattr(vs, name))}
  assert not public & {name.rpartition(".")[2] for name in MODULES}
  for package in ROOMS:
    home = importlib.import_module(f"vmapseeds.{package}")
    functions = {name for name, value in vars(home).items() if callable(value)}
    assert not functions & {
      n.removeprefix(f"{home.__name__}.")
      for n in MODULES
      if n.startswith(f"{home.__name__}.")
    }
  assert {*vs.__all__} <= {*dir(vs)}
  with pytest.raises(AttributeError, match="attribute trian"):
    vs.trian  # noqa: B018


def test_templates_and_types_are_installed_too():
  above = Path(vs.__file__).parents[1]
  data = tomllib.loads((above / "pyproject.toml").read_text())["tool"]["setuptools"][
    "package-data"
  ]
  package = above / "vmapseeds"
  needed = {
    file
    for kind in ("*.j2", "*.js", "*.pyi", "py.typed")
    for file in package.rglob(kind)
  }
  assert needed == {
    file for pattern in data["vmapseeds"] for file in package.glob(pattern)
  }
