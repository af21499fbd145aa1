"""How a notebook begins: where its results are kept, and how many runs it trains."""

from vmapseeds import notebooks


def test_results_are_kept_on_a_mounted_drive(monkeypatch, tmp_path, capsys):
  monkeypatch.delenv("VMAPSEEDS_RESULTS", raising=False)
  monkeypatch.delenv("VMAPSEEDS_RUNS", raising=False)
  monkeypatch.setattr(notebooks, "DRIVE", tmp_path / "none")
  assert notebooks.begin("a", on_cpu=5, elsewhere=50) == ("results/a", 5)
  assert "There is no TPU or GPU here" in capsys.readouterr().out

  monkeypatch.setattr(notebooks, "DRIVE", tmp_path)
  monkeypatch.setenv("VMAPSEEDS_RUNS", "7")
  on_drive = str(tmp_path / "vmapseeds" / "a")
  assert notebooks.begin("a", on_cpu=5, elsewhere=50) == (on_drive, 7)
  monkeypatch.setenv("VMAPSEEDS_RESULTS", "mine")
  assert notebooks.begin("a", on_cpu=5, elsewhere=50) == ("mine/a", 7)
