"""`python tests/few.py ARGUMENT ...`: vmapseeds for commands of pages, with few runs (or,
where `VMAPSEEDS_RUNS` is 0, with all), which keeps what it compiles for the next command.
"""

import sys

import program_cache
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
  program_cache.keep_all()
  sys.exit(cli.main(with_few_runs(sys.argv[1:])))
