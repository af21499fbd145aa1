"""What earlier versions had, and what to do instead: said where one would type it."""

_SEARCH = "optuna searches over vs.train, as docs/programs/search.py does"

_CRITERIA = "in a clone, experiments.measures has the criteria of Bouthillier 2021"

_EXPORT = "docs/programs/export_networks.py writes orbax checkpoints"

_BANERJEE = "experiments.banerjee2024.network"

_NIN = "experiments.jiang2022.nin"

# Names of the package and of `stats`, arguments, commands, and flags.
NAMES = {
  "Batch": "vmapseeds.training.loop has it",
  "CostEstimate": "vmapseeds.campaign.estimating has it",
  "Examples": "vmapseeds.data has it",
  "Failure": "vmapseeds.errors has it",
  "Model": "vmapseeds.training.loop has it",
  "Options": "vmapseeds.campaign.options has it",
  "Repetition": "vmapseeds.campaign.repeating has it",
  "Run": "vmapseeds.training.runs has it",
  "ScoreColumns": "vmapseeds.results.score_tables has it",
  "conv_general_dilated": "vmapseeds.convolutions has it",
  "export_networks": _EXPORT,
  "search": _SEARCH,
  "report_figures": "vs.report(...).figures, or .draw(width=3.3), has them",
  "summary": "vs.report(...).table is it",
  "optuna_studies": f"{_SEARCH}: its studies are optuna's",
}
STATISTICS = dict.fromkeys(
  (
    "decide",
    "average_comparison",
    "power_for_probability_of_outperforming",
    "runs_for_probability_of_outperforming",
  ),
  _CRITERIA,
) | {
  "finite_ensemble_calibration": "in a clone, experiments.measures has it",
  "source_variances": "stats.design(scores, {source: seeds, ...}).components() has them",
}
ARGUMENTS = {"gamma": _CRITERIA}
# Fields of a recipe, and what is named in one: as the error about an unknown one begins.
CHOICES = {
  "recipe field classes": "give a vs.Dataset of the labels that you want, as "
  "docs/programs/finetune.py does",
  "recipe cnn_cifar10_binary": f"in a clone, {_BANERJEE}:CNN_CIFAR10_BINARY",
  "model banerjee_cnn": f"in a clone, {_BANERJEE}:BanerjeeCNN",
  "recipe nin_cifar10": f"in a clone, {_NIN}:NIN_CIFAR10",
  "model nin": f"in a clone, {_NIN}:NiN",
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
  "--allow-upgrade": "give --force-mixed",
  "--header": "vs.import_runs(..., header=True) in Python",
  "--gamma": _CRITERIA,
  "--format": 'in Python, vs.report(DIR).table.to_markdown() or .save(image="pdf")',
  "--open": "the report ends with the path of its page",
  "--images": "vs.report(..., images=ARRAY) in Python",
  "--no-tallies": "vs.train(..., tallies=False) in Python",
  "--json": "a report writes its numbers as JSON beside its page",
}
