"""Another version of a package in the middle of a campaign, whose programs of the same
recipe are others.
"""

import numpy as np
import pytest

import vmapseeds as vs
from vmapseeds.campaign import starting
from vmapseeds.training import identity
from vmapseeds.training.recipes import recipe

LINEAR = recipe("digits_cnn", model="linear", epochs=1)
HOW = dict(progress=False, lane_width=2, seed_batch=2, lowering="sequential")
DIGEST = identity.program_digest


@pytest.fixture
def upgrade(monkeypatch):
  """Lets JAX have another version, which writes programs in another way."""
  now = starting.package_versions()

  def upgraded(jax="99.0"):
    monkeypatch.setattr(starting, "package_versions", lambda: {**now, "jax": jax})
    monkeypatch.setattr(identity, "program_digest", lambda stage: jax + DIGEST(stage))
    return now["jax"]

  return upgraded


@pytest.mark.slow
def test_the_message_names_the_versions_and_how_to_restore_them(tmp_path, upgrade):
  vs.train(LINEAR, 2, tmp_path / "a", **HOW)
  before = upgrade()
  with pytest.raises(vs.UserError) as caught:
    vs.train(LINEAR, 4, tmp_path / "a", **HOW)
  assert str(caught.value) == (
    f"{tmp_path / 'a'} was trained with jax {before}, and with jax 99.0 "
    f"its program is another: `pip install jax=={before}` restores them, or "
    "allow_upgrade=True to train on: runs of both may then differ by more than rounding, "
    "and reports say which are which"
  )
  with pytest.raises(vs.UserError, match="allow_upgrade=True to train on"):
    vs.work(tmp_path / "a", **{"progress": False})

  results = vs.train(LINEAR, 4, tmp_path / "a", allow_upgrade=True, **HOW)
  assert results.sizes["run"] == 4
  assert results.attrs["upgraded"] == 1
  assert "mixed" not in results.attrs
  assert vs.verify(tmp_path / "a").problems == []
  (summary,) = vs.report(tmp_path / "a")
  said = f"runs 0 to 1 with jax {before}, runs 2 to 3 with jax 99.0"
  assert any(said in warning for warning in summary["warnings"])
  upgrade("100.0")
  with pytest.raises(vs.UserError, match=f"`pip install jax=={before}` restores"):
    vs.train(LINEAR, 6, tmp_path / "a", **HOW)


@pytest.mark.slow
def test_all_versions_of_folders_that_were_upgraded_are_named(tmp_path, upgrade):
  vs.train(LINEAR, 2, tmp_path / "a", **HOW)
  before = upgrade()
  others = vs.Runs.independent(4, start=2)
  vs.train(LINEAR, others[:2], tmp_path / "b", **HOW)
  upgrade("100.0")
  vs.train(LINEAR, others, tmp_path / "b", allow_upgrade=True, **HOW)
  a, b = tmp_path / "a", tmp_path / "b"
  said = (
    f"{a} was trained with jax {before}, and with jax 99.0 and 100.0 its program is "
    f"another: `pip install jax=={before}` restores them"
  )
  with pytest.raises(vs.UserError, match=said):
    vs.merge([b, a], tmp_path / "c", progress=False)
  with pytest.raises(
    vs.UserError, match=rf"b was trained with jax 99.0, and with jax {before}"
  ):
    vs.merge([a, b], tmp_path / "c", progress=False)


@pytest.mark.slow
def test_it_forgives_versions_alone(tmp_path, upgrade):
  vs.train(LINEAR, 2, tmp_path / "a", **HOW)
  other = LINEAR.replace(label_smoothing=0.5)
  with pytest.raises(vs.UserError, match="differ in label_smoothing"):
    vs.train(other, 4, tmp_path / "a", allow_upgrade=True, **HOW)
  upgrade()
  for changed in (other, LINEAR.replace(epochs=2)):
    with pytest.raises(vs.UserError, match="this one differ in"):
      vs.train(changed, 4, tmp_path / "a", allow_upgrade=True, **HOW)


@pytest.mark.slow
def test_folders_of_several_versions_are_merged(tmp_path, upgrade):
  vs.train(LINEAR, 2, tmp_path / "a", **HOW)
  before = upgrade()
  vs.train(LINEAR, vs.Runs.independent(2, start=2), tmp_path / "b", **HOW)
  folders = [tmp_path / name for name in ("a", "b")]
  with pytest.raises(vs.UserError, match=r"was trained with jax 99.0, and with jax"):
    vs.merge(folders, tmp_path / "c", progress=False)
  merged = vs.merge(folders, tmp_path / "c", allow_upgrade=True, progress=False)
  np.testing.assert_array_equal(merged.seed_init, range(4))
  assert merged.attrs["upgraded"] == 1
  warnings = vs.report(tmp_path / "c")[0]["warnings"]
  assert any(f"runs 0 to 1 with jax {before}, runs 2" in text for text in warnings)
