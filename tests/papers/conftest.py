"""Experiments are asked by the longer tests. README's test command has what alone
reaches a part of the package, among its tests.
"""

from pathlib import Path

import pytest

QUICK = (
  "test_initialize_keeps_names_and_shapes",
  "test_initialize_sees_the_training_set_and_the_seed",
  "test_training_goes_on_from_the_poked_weight",
)


@pytest.hookimpl(tryfirst=True)  # before pytest looks at marks
def pytest_collection_modifyitems(items):
  for item in items:
    is_here = Path(__file__).parent in item.path.parents
    if not is_here or item.originalname in QUICK or item.get_closest_marker("seldom"):
      continue
    item.add_marker(pytest.mark.slow)
