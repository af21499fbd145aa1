"""`python -m vmapseeds` is the program `vmapseeds`."""

from vmapseeds.cli import run

if __name__ == "__main__":
  run()
