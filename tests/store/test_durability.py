"""What a store has confirmed is on the disk."""

import os

from vmapseeds.store import files


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
