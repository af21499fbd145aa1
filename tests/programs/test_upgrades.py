"""Another version of a package in the middle of a campaign, whose programs of the same
recipe are others.
"""

import pytest

import vmapseeds as vs
from vmapseeds.campaign import planning
from vmapseeds.training import identity
from vmapseeds.training.recipes import recipe

LINEAR = recipe("digits_cnn", model="linear", epochs=1)
HOW = dict(progress=False, lane_width=2, seed_batch=2, lowering="sequential")
DIGEST = identity.program_digest


@pytest.fixture
def upgrade(monkeypatch):
  """Lets JAX have another version, which writes programs in another way."""
  now = planning.package_versions()

  def upgraded(jax="99.0"):
    monkeypatch.setattr(planning, "package_versions", lambda: {**now, "jax": jax})
    monkeypatch.setattr(identity, "program_digest", lambda stage: jax + DIGEST(stage))
    return now["jax"]

  return upgraded


@pytest.mark.slow
def test_the_message_names_the_versions_and_a_folder_may_be_mixed(tmp_path, upgrade):
  vs.train(LINEAR, 2, tmp_path / "a", **HOW)
  before = upgrade()
  with pytest.raises(vs.UserError) as caught:
    vs.train(LINEAR, 4, tmp_path / "a", **HOW)
  assert str(caught.value) == (
    f"{tmp_path / 'a'} belongs to another campaign: its program was another (start, "
    f"advance, finish), and versions differ: jax: {before}, 99.0; give another out=, or "
    "what it was started with, or force_mixed=True"
  )
  with pytest.raises(vs.UserError, match=r"versions differ: jax: .*force_mixed=True"):
    vs.work(tmp_path / "a", progress=False)

  results = vs.train(LINEAR, 4, tmp_path / "a", force_mixed=True, **HOW)
  assert results.sizes["run"] == 4
  assert results.attrs["mixed"] == 1
  assert vs.verify(tmp_path / "a").problems == []
  (summary,) = vs.report(tmp_path / "a")
  assert any("Runs of different programs" in text for text in summary["warnings"])


@pytest.mark.slow
def test_all_versions_of_folders_that_were_mixed_are_named(tmp_path, upgrade):
  vs.train(LINEAR, 2, tmp_path / "a", **HOW)
  before = upgrade()
  others = vs.Runs.independent(4, start=2)
  vs.train(LINEAR, others[:2], tmp_path / "b", **HOW)
  upgrade("100.0")
  vs.train(LINEAR, others, tmp_path / "b", force_mixed=True, **HOW)
  folders = [tmp_path / "b", tmp_path / "a"]
  said = rf"versions differ: jax: {before}, 99.0 and 100.0; leave one of them out"
  with pytest.raises(vs.UserError, match=said):
    vs.merge(folders, tmp_path / "c", progress=False)
