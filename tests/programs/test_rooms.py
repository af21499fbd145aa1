"""The house: which room may import which, and no public function of a module's name."""

import ast
import dataclasses
import importlib
import pkgutil
import re
import tomllib
import types
from pathlib import Path

import pytest

import vmapseeds as vs

GROUND = {"jaxprs", "errors", "forks", "machine", "removed", "target"}
# What each room may import besides itself and the ground floor.
ROOMS = {
  "convolutions": set(),
  "lanes": {"convolutions"},
  "models": set(),
  "data": set(),
  "training": {"models", "data", "stats"},
  "store": set(),
  "stats": set(),
  "results": {"store", "training", "data", "stats"},
  "campaign": {
    "results",
    "store",
    "training",
    "lanes",
    "convolutions",
    "models",
    "data",
    "stats",
  },
  "reports": {"results", "store", "stats", "training", "data"},
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


def imported_modules(module: types.ModuleType, tree: ast.Module) -> set[str]:
  """The names at the top of a file that are modules, not functions or classes."""
  statements = [
    node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)
  ]
  names = {
    alias.asname or alias.name.split(".")[0]
    for statement in statements
    for alias in statement.names
  }
  return {
    name for name in names if isinstance(getattr(module, name, None), types.ModuleType)
  }


def local_names(function: ast.AST) -> dict[str, int]:
  """The parameters and local variables of a function, each with its line."""
  lines = {}
  for node in ast.walk(function):
    if isinstance(node, ast.arg):
      lines[node.arg] = node.lineno
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
      lines[node.id] = node.lineno
    elif isinstance(node, ast.ExceptHandler) and node.name:
      lines[node.name] = node.lineno
  return lines


def hidden_modules(module: types.ModuleType, source: str) -> list[str]:
  """Where a function of a module gives the name of an imported module to a value: a
  later use of the module in it would meet the value, which no import shows.
  """
  tree = ast.parse(source)
  modules = imported_modules(module, tree)
  functions = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
  return [
    f"{module.__name__}:{line} hides the module {name}"
    for function in ast.walk(tree)
    if isinstance(function, functions)
    for name, line in local_names(function).items()
    if name in modules
  ]


def test_no_local_name_hides_an_imported_module():
  for file in FILES:
    inner = file.relative_to(Path(vs.__file__).parents[1]).with_suffix("")
    name = ".".join(inner.parts).removesuffix(".__init__")
    assert not hidden_modules(importlib.import_module(name), file.read_text())


def test_no_field_of_a_dataclass_begins_as_what_python_3_11_refuses():
  """It takes a mapping proxy for a mutable default; later versions do not."""
  for file in FILES:
    inner = file.relative_to(Path(vs.__file__).parents[1]).with_suffix("")
    module = importlib.import_module(".".join(inner.parts).removesuffix(".__init__"))
    for value in vars(module).values():
      if isinstance(value, type) and dataclasses.is_dataclass(value):
        defaults = [field.default for field in dataclasses.fields(value)]
        assert not any(isinstance(x, types.MappingProxyType) for x in defaults), value


@pytest.mark.parametrize(
  ("function", "hidden"),
  [
    ("def f(os): pass", "os"),
    ("def f():\n  for ast in (): pass", "ast"),
    ("def f(): return lambda *, np: np", "np"),
    ("def f():\n  try: pass\n  except ValueError as os: pass", "os"),
    ("def f(Path, join, path): os.path, ast.x = 1, 2", None),
    ("os = 1", None),
  ],
)
def test_a_hidden_module_is_told_from_a_hidden_function(function, hidden):
  head = "import ast\nimport os\nimport numpy as np\nfrom os.path import join\n"
  head += "from pathlib import Path\n"
  module = types.ModuleType("tried")
  exec(head, vars(module))
  lines = hidden_modules(module, head + function)
  assert bool(lines) == (hidden is not None)
  assert all(line.endswith(f" hides the module {hidden}") for line in lines)


def resolves(name: str) -> bool:
  """Return whether a dotted name is a module, or what is in one: of the package, with
  its room or without it, or of another package.
  """
  first = name.split(".")[0]
  homes = [module for module in MODULES if module.split(".")[-1] == first]
  paths = [home + name.removeprefix(first) for home in homes]
  if not homes:
    paths = [re.sub(r"^vs\b", "vmapseeds", name)]
  for path in paths:
    try:
      pkgutil.resolve_name(path)
    except (ImportError, AttributeError):
      continue
    return True
  return False


def names_and_paths(page: str) -> tuple[set[str], set[str]]:
  """Return the dotted names and the paths of files in a page's code within lines."""
  prose = re.sub(r"(?ms)^```.*?^```$", "", page)
  words = [word for code in re.findall(r"`([^`]+)`", prose) for word in code.split()]
  paths = {
    word for word in words if re.fullmatch(r"[\w.]+(/[\w.]*)+|\w+\.\w{2,4}", word)
  }
  paths = {word for word in paths if "/" in word or word.endswith((".py", ".toml"))}
  names = {word for word in words if re.fullmatch(r"[a-z_]\w*(\.\w+)+", word)}
  return names - paths, paths


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_pages_for_developers_name_what_there_is(page):
  root = Path(vs.__file__).parents[1]
  names, paths = names_and_paths((root / page).read_text(encoding="utf-8"))
  assert names
  assert paths
  assert not {name for name in names if not resolves(name)}
  homes = (root, root / "vmapseeds")
  missing = {
    path for path in paths if not any((home / path).exists() for home in homes)
  }
  assert not missing


def test_a_name_that_is_gone_is_noticed():
  assert resolves("block_loop.train_blocks")
  assert resolves("campaign.block_loop.train_blocks")
  assert resolves("vs.open_results")
  assert resolves("os.fsync")
  assert not resolves("loop.attach_folder")
  assert not resolves("campaign.loop.train_blocks")
  text = "See `a/b.py` and `x.y`.\n```\n`c.d`\n```\n`python -m e.f tests/g`"
  assert names_and_paths(text) == ({"x.y", "e.f"}, {"a/b.py", "tests/g"})


TESTS = Path(__file__).parents[1]
# Tests that use the package as its users do. However its rooms are divided, they need no
# change.
CONTRACTS = [
  "benchmarks/test_borrowed.py",
  "data/test_data_sources.py",
  "papers/test_banerjee.py",
  "papers/test_estimates.py",
  "papers/test_jiang.py",
  "papers/test_pages.py",
  "papers/test_papers.py",
  "papers/test_quickstart.py",
  "papers/test_sixty_thousand.py",
  "programs/test_docs.py",
  "programs/test_importing.py",
  "programs/test_notebook.py",
  "programs/test_package.py",
  "programs/test_programs.py",
  "programs/test_real.py",
  "programs/test_site.py",
  "programs/test_strict_modes.py",
  "programs/test_tabular.py",
  "recipes/test_sweeps.py",
  "reports/test_browser.py",
  "reports/test_margins.py",
  "results/test_pandas.py",
  "stats/test_aggregates.py",
  "stats/test_contract.py",
  "stats/test_differences.py",
  "stats/test_estimators.py",
  "stats/test_gaps.py",
  "stats/test_intervals.py",
  "stats/test_theory.py",
  "training/test_collections.py",
]
PUBLIC = {*vs.__all__, "__all__", "__version__", "__file__", "__doc__"}


def inner_names(source: str) -> set[str]:
  """Return what a file uses of the package beside its public names and `cli.main`."""
  tree = ast.parse(source)
  used = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.ImportFrom) and node.module == "vmapseeds":
      used |= {name.name for name in node.names} - PUBLIC - {"cli"}
    elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
      "vmapseeds."
    ):
      imported = {f"{node.module}.{name.name}" for name in node.names}
      used |= imported - {"vmapseeds.cli.main"}
    elif isinstance(node, ast.Import):
      used |= {name.name for name in node.names if name.name.startswith("vmapseeds.")}
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
      if node.value.id in ("vs", "vmapseeds"):
        used |= {node.attr} - PUBLIC
      elif node.value.id == "cli":
        used |= {node.attr} - {"main"}
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
      # What a patch names, or a program in a text imports.
      used |= inner_modules(node.value)
  return used


def inner_modules(text: str) -> set[str]:
  """Return the modules below the package that a text names where code would."""
  names = set()
  if re.fullmatch(r"vmapseeds(\.\w+)+", text):
    names.add(text)
  names.update(re.findall(r"(?:from|import) (vmapseeds\.[\w.]+)", text))
  return {name for name in names if not name.startswith("vmapseeds.cli")}


@pytest.mark.parametrize("file", CONTRACTS)
def test_contracts_use_public_names_alone(file):
  assert not inner_names((TESTS / file).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
  ("line", "inner"),
  [
    ("import vmapseeds as vs\nvs.train(vs.recipe('x'))", None),
    ("from vmapseeds import UserError, cli, stats\ncli.main([])", None),
    ("from vmapseeds.cli import main", None),
    ("run('-m', 'vmapseeds.cli')", None),
    ("from vmapseeds import lanes", "lanes"),
    ("from vmapseeds.stats import scoring", "vmapseeds.stats.scoring"),
    ("import vmapseeds.store.files", "vmapseeds.store.files"),
    ("from vmapseeds import cli\ncli.summaries()", "summaries"),
    ("import vmapseeds as vs\nvs.lanes.devices()", "lanes"),
    ("patch.setattr('vmapseeds.campaign.running.train', f)", "vmapseeds.campaign.running.train"),
    ("CODE = 'import os\\nfrom vmapseeds.store import files'", "vmapseeds.store"),
  ],
)  # fmt: skip
def test_an_inner_name_is_told_from_a_public_one(line, inner):
  assert inner_names(line) == ({inner} if inner else set())
