"""What earlier versions had, and what to do instead: said where one would type it."""

_SEARCH = "optuna searches over vs.train, as docs/programs/search.py does"

_EXPORT = "docs/programs/export_networks.py writes orbax checkpoints"

# Names of the package, commands, and flags.
NAMES = {
  "export_networks": _EXPORT,
  "search": _SEARCH,
  "report_figures": "vs.report(...).figures, or .draw(width=3.3), has them",
  "optuna_studies": f"{_SEARCH}: its studies are optuna's",
}
COMMANDS = {
  "export": _EXPORT,
  "search": _SEARCH,
  "bench": "in a clone, python -m experiments.benchmarks.bench RECIPE",
}
_HOSTS = "start vmapseeds work DIR on each host"
FLAGS = {
  "--engine": "give --workers N, --ray ADDRESS or --dask ADDRESS",
  "--coordinator": _HOSTS,
  "--processes": _HOSTS,
  "--process": _HOSTS,
  "--header": "vs.import_runs(..., header=True) in Python",
  "--gamma": "vs.compare(..., gamma=0.75) in Python",
  "--format": 'in Python, vs.report(DIR).print(format="md") or .save(image="pdf")',
  "--open": "the report ends with the path of its page",
  "--images": "vs.report(..., images=FILE) in Python",
  "--no-tallies": "vs.train(..., tallies=False) in Python",
  "--json": "a report writes its numbers as JSON beside its page",
}
