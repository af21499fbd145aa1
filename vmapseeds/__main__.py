"""`python -m vmapseeds` is the program `vmapseeds`."""

from vmapseeds.cli import main

if __name__ == "__main__":
  main()
