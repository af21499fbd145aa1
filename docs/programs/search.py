"""Many independent searches by optuna, whose next trials train side by side. A trial trains
for one epoch first; if optuna's pruner does not stop it, the folder is extended by a run
of more. Start the program again to resume.
"""

import dataclasses
import sys

import numpy as np
import optuna

import vmapseeds as vs

RECIPE = vs.recipe("digits_cnn", width=0.5)
SPACE = {
  "lr": optuna.distributions.FloatDistribution(1e-3, 1, log=True),
  "momentum": optuna.distributions.FloatDistribution(0.5, 0.99),
}
EPOCHS = (1, 4)  # a single number stops no trial early
SEARCHES, TRIALS = 20, 20
# Each search draws training, validation and test examples of its own.
SEEDS = vs.Runs.independent(SEARCHES).out_of_bootstrap()


def make_study(search: int) -> optuna.Study:
  return optuna.create_study(
    direction="maximize",
    sampler=optuna.samplers.TPESampler(seed=search),
    pruner=optuna.pruners.SuccessiveHalvingPruner(reduction_factor=4),
  )


def runs_of(jobs: list[tuple[int, optuna.Trial, int]]) -> vs.Runs:
  """Return a run for each (search, trial, epochs), which has the seeds of its search."""
  seeds = SEEDS[[search for search, _, _ in jobs]]
  values = {
    name: np.array([trial.params[name] for _, trial, _ in jobs]) for name in SPACE
  }
  values["epochs"] = np.array([epochs for _, _, epochs in jobs], float)
  return dataclasses.replace(seeds, values=values)


def main(out: str = "results/search", trials: int = TRIALS) -> list[optuna.Study]:
  studies = [make_study(search) for search in range(SEARCHES)]
  trained, jobs = [], []
  while len(studies[0].trials) < trials or jobs:
    if len(studies[0].trials) < trials:
      new = [(search, study.ask(SPACE)) for search, study in enumerate(studies)]
      jobs += [(search, trial, EPOCHS[0]) for search, trial in new]
    first, trained = len(trained), trained + jobs
    results = vs.train(
      RECIPE, runs_of(trained), out, seed_batch=SEARCHES, progress=False
    )
    # A folder that is resumed has later trials, too.
    results = results.isel(run=slice(first, len(trained)))
    valid_and_test = results[["valid_accuracy", "test_accuracy"]].to_array().values.T

    longer = []
    for (search, trial, epochs), (valid, test) in zip(
      jobs, valid_and_test, strict=True
    ):
      trial.report(valid, epochs)
      trial.set_user_attr("test_accuracy", float(test))
      if epochs == EPOCHS[-1]:
        studies[search].tell(trial, valid)
      elif trial.should_prune():
        studies[search].tell(trial, state=optuna.trial.TrialState.PRUNED)
      else:
        longer.append((search, trial, EPOCHS[1 + EPOCHS.index(epochs)]))
    jobs = longer
  print(f"{len(trained)} trainings of {SEARCHES} searches in {out}")
  return studies


if __name__ == "__main__":
  optuna.logging.set_verbosity(optuna.logging.WARNING)
  best = [study.best_trial for study in main(*sys.argv[1:])]
  test = [trial.user_attrs["test_accuracy"] for trial in best]
  # What a search's luck does to what it finds:
  print(f"best: {np.mean(test):.2%}, sd over searches {np.std(test, ddof=1):.2%}")
