"""What earlier versions had, and what to do instead: said where one would type it."""

_SEARCH = "optuna searches over vs.train, as docs/programs/search.py does"

# Names of the package, commands, and flags.
NAMES = {
  "search": _SEARCH,
  "optuna_studies": f"{_SEARCH}: its studies are optuna's",
}
COMMANDS = {
  "search": _SEARCH,
}
FLAGS: dict[str, str] = {}
