"""`python tests/few.py ARGUMENT ...`: vmapseeds with few runs, for commands of pages."""

import sys

import whole

from vmapseeds import cli


def with_few_runs(words: list[str]) -> list[str]:
  """Return a command that trains few runs of each combination."""
  words = list(words)
  for flag in ("--runs", "--first-seed"):
    if flag in words:
      place = words.index(flag) + 1
      words[place] = str(whole.trained(int(words[place])))
  if "--until" in words:
    words += ["--most-runs", "256"]
  # No widths are measured.
  if words[0] == "train" and whole.RUNS and "--lane-width" not in words:
    words += ["--lane-width", "2", "--lowering", "sequential"]
  return words


if __name__ == "__main__":
  sys.exit(cli.main(with_few_runs(sys.argv[1:])))
