"""What a store has confirmed is on the disk, and what that costs."""

import os
from pathlib import Path

from cases import words_of

import vmapseeds as vs
from vmapseeds.store import claims, files


def test_a_replaced_file_and_its_folder_are_flushed(tmp_path, monkeypatch):
  """A power failure right after it loses neither the contents nor the new name."""
  flushed, flush = [], os.fsync

  def record(descriptor):
    flushed.append(os.fstat(descriptor).st_ino)
    flush(descriptor)

  monkeypatch.setattr(os, "fsync", record)
  path = tmp_path / "record.json"
  files.replace(path, "{}")
  assert path.read_text() == "{}"
  assert flushed == [path.stat().st_ino, tmp_path.stat().st_ino]
  assert os.listdir(tmp_path) == ["record.json"]


def test_what_a_campaign_of_two_runs_costs(tmp_path, monkeypatch):
  """Waits for the disk, reads and claims take long on shared disks."""
  flushed, read_files, claimed = [], [], []
  flush, read_bytes, create = os.fsync, Path.read_bytes, claims.create

  def counted_flush(descriptor):
    flushed.append(descriptor)
    flush(descriptor)

  def counted_read(path):
    read_files.append(path.name)
    return read_bytes(path)

  def counted_create(path, text):
    claimed.append(path.name)
    return create(path, text)

  monkeypatch.setattr(os, "fsync", counted_flush)
  monkeypatch.setattr(Path, "read_bytes", counted_read)
  monkeypatch.setattr(claims, "create", counted_create)
  recipe = vs.recipe("digits_cnn", model="linear", epochs=1)
  results = vs.train(recipe, 2, tmp_path / "r", lane_width=1, progress=False)
  assert results.sizes["run"] == 2
  assert len(flushed) == 6
  assert read_files.count("zarr.json") == 2
  assert claimed == ["folder.claim", "0.claim"]
  left = [file for file in (tmp_path / "r").rglob("*") if file.is_file()]
  assert sorted(
    file.relative_to(tmp_path / "r").as_posix() for file in left
  ) == words_of(
    "blocks/0.json blocks/values_1.npz plan.npz test/predictions/c/0/0 "
    "test/votes/c/0/0/0/0 zarr.json"
  )
