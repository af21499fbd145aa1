"""Searches of hyperparameters: the trials that a folder holds, and the best of each
search.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int

from vmapseeds.errors import UserError, hide_own_frames
from vmapseeds.results.opening import open_results
from vmapseeds.store.files import Folder
from vmapseeds.training.names import DIVERGED, TRIAL_COLUMNS


class Trials(NamedTuple):
  """Finished trials of searches, in the order of the folder.

  Attributes:
    about: what is searched, as the folder has it: `over`, `sampler`, `objective`,
      `measure`, `higher_is_better`.
    search: (trials,), the number of each trial's search.
    trial: (trials,), its number in this search.
    values: name -> (trials,), its hyperparameters.
    objective: (trials,), by which the best is chosen; NaN if the trial failed.
    measured: (trials,), what is measured of the best: on other examples, if the
      recipe's data were split.
    diverged: (trials,).
    rows: (trials,), their runs in what `open_results` returns.
  """

  about: dict[str, Any]
  search: Int[np.ndarray, " trials"]
  trial: Int[np.ndarray, " trials"]
  values: dict[str, Float[np.ndarray, " trials"]]
  objective: Float[np.ndarray, " trials"]
  measured: Float[np.ndarray, " trials"]
  diverged: Bool[np.ndarray, " trials"]
  rows: Int[np.ndarray, " trials"]

  @property
  def unit(self) -> str:
    """The unit of the objective and of what is measured."""
    return self.about["unit"] or "number"

  @property
  def sign(self) -> int:
    """1 if higher objectives are better, else -1."""
    return 1 if self.about["higher_is_better"] else -1

  @property
  def performance(self) -> Float[np.ndarray, " trials"]:
    """The objective, negated if lower is better; -inf of trials that cannot win."""
    # Outputs of NaN have an argmax, and so an accuracy.
    lost = self.diverged | ~np.isfinite(self.objective)
    return np.where(lost, -np.inf, self.sign * self.objective)

  def values_at(self, place: int) -> dict[str, float]:
    """Return the hyperparameters of one trial."""
    return {name: float(column[place]) for name, column in self.values.items()}

  def numbers(self) -> list[int]:
    """Return the numbers of the searches, ascending."""
    return np.unique(self.search).tolist()

  def of_search(self, number: int) -> Int[np.ndarray, " of"]:
    """Return the places of one search's trials, by their numbers."""
    places = np.flatnonzero(self.search == number)
    return places[np.argsort(self.trial[places])]

  def best(self) -> dict[int, int]:
    """Return search -> the place of its best trial, the first of several; none where all
    trials failed.
    """
    best_places = {}
    for number in self.numbers():
      places = self.of_search(number)
      best = places[np.argmax(self.performance[places])]
      # Of trials that all failed, argmax picks the first.
      if np.isfinite(self.performance[best]):
        best_places[number] = int(best)
    return best_places

  def incumbents(self) -> Int[np.ndarray, "searches trials"]:
    """Return the place of the best trial so far after each trial; -1 before any trial
    that did not fail. As many trials as all searches have.
    """
    searches = [self.of_search(number) for number in self.numbers()]
    # Of a folder that is not finished, searches may have different numbers of trials.
    trials = min(map(len, searches), default=0)
    incumbents = np.full((len(searches), trials), -1)
    for row, places in zip(incumbents, searches, strict=True):
      best, incumbent = -np.inf, -1
      for i, place in enumerate(places[:trials]):
        if self.performance[place] > best:
          best, incumbent = self.performance[place], place
        row[i] = incumbent
    return incumbents


def trials_of(results: xr.Dataset) -> Trials:
  """Return the trials among opened results, without the repeats of the best and without
  shorter trainings.

  Raises:
    UserError: these are no results of searches.
  """
  searched = results.attrs.get("search")
  if searched is None:
    raise UserError(
      "these results are of no search: give a folder of `vmapseeds search`"
    )
  is_trial = results["repeat"].values == 0
  rungs = searched.get("rungs")
  if rungs:
    # Under successive halving, only the longest trainings compete.
    is_trial &= results["epochs"].values == rungs[-1]
  rows = np.flatnonzero(is_trial)

  diverged = np.zeros(len(rows), bool)
  if DIVERGED in results.variables:
    diverged = results[DIVERGED].values[rows].astype(bool)
  objective = _values_of(results, searched["objective"])[rows]
  measured = _values_of(results, searched["measure"])[rows]
  search_column, trial_column = TRIAL_COLUMNS[:2]
  return Trials(
    about=searched,
    search=results[search_column].values[rows],
    trial=results[trial_column].values[rows],
    values={name: results[name].values[rows] for name in searched["over"]},
    objective=np.where(np.isfinite(objective), objective, np.nan),
    measured=measured,
    diverged=diverged,
    rows=rows,
  )


def _values_of(results: xr.Dataset, output: str) -> Float[np.ndarray, " runs"]:
  """Return an output of each run, of the test set that is opened."""
  # Opened results have one test set, and their variables leave its name out.
  variable = output.rpartition("/")[2]
  return results[variable].values.astype(np.float64)


def read_trials(path: Folder) -> Trials:
  """Return the finished trials of a folder of searches.

  Raises:
    UserError: as `open_results`; or it has none.
  """
  return trials_of(open_results(path))


def best_runs(results: xr.Dataset) -> xr.Dataset:
  """Return the best trial of each search, a run each. Their hyperparameters are no
  coordinates, so that nothing groups the runs by them.
  """
  trials = trials_of(results)
  places = list(trials.best().values())
  best = results.isel(run=trials.rows[places])
  return best.reset_coords([*trials.values, *TRIAL_COLUMNS])


def repeats_of(
  results: xr.Dataset, trials: Trials
) -> Float[np.ndarray, "searches repeats"]:
  """Return what was measured of the best of each search, trained again with other seeds;
  without searches that lack a repeat, and repeats in which a run diverged.
  """
  table = results[list(TRIAL_COLUMNS)].to_dataframe().reset_index(drop=True)
  table["value"] = _values_of(results, trials.about["measure"])
  if DIVERGED in results.variables:
    table.loc[results[DIVERGED].values.astype(bool), "value"] = np.nan
  best_places = trials.best().items()
  best = {(number, trials.trial[place]) for number, place in best_places}
  pairs = zip(table.search, table.trial, strict=True)
  is_best = np.array([pair in best for pair in pairs])
  repeats = table[is_best & (table["repeat"] > 0)]
  wide = repeats.pivot(index="search", columns="repeat", values="value")
  # A repeat that diverged in every search would leave no search.
  complete = wide.dropna(axis=1, how="all").dropna(axis=0)
  return complete.to_numpy(np.float64)


# Optuna, which is an extra.


def import_optuna(who: str) -> Any:
  """Return the module `optuna`, which prints warnings and errors only.

  Raises:
    UserError: it is not installed.
  """
  try:
    import optuna
  except ImportError:
    raise UserError(
      f"{who} needs optuna, which is not installed: python -m pip install "
      "'vmapseeds[search]'"
    ) from None
  # By default it says of each study that it was created.
  optuna.logging.set_verbosity(optuna.logging.WARNING)
  return optuna


def create_study(higher_is_better: bool, **options: Any) -> Any:
  """Return a new study of optuna's; `options` as `optuna.create_study` takes them."""
  direction = "maximize" if higher_is_better else "minimize"
  return import_optuna("a study").create_study(direction=direction, **options)


def distributions_of(over: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
  """Return optuna's distributions of a space: low, high, log, integer and choices by
  name.
  """
  kinds = import_optuna("a study").distributions
  distributions = {}
  for name, (low, high, log, integer, choices) in over.items():
    if choices:
      distributions[name] = kinds.CategoricalDistribution(list(choices))
    elif integer:
      distributions[name] = kinds.IntDistribution(int(low), int(high), log=log)
    else:
      distributions[name] = kinds.FloatDistribution(low, high, log=log)
  return distributions


def tell(study: Any, trial: Any, objective: float) -> None:
  """Tell a study the objective of a trial, which failed if that is NaN."""
  failed = import_optuna("a study").trial.TrialState.FAIL
  if np.isnan(objective):
    study.tell(trial, state=failed)
  else:
    study.tell(trial, objective)


def optuna_trials(trials: Trials, places: Sequence[int] | np.ndarray) -> list[Any]:
  """Return some trials as optuna's, with what was measured in `user_attrs`."""
  optuna_trial = import_optuna("a study").trial
  space = trials.about["over"]
  distributions = distributions_of(space)
  converted = []
  for place in places:
    state: Any = optuna_trial.TrialState.COMPLETE
    value: Any = trials.objective[place]
    # Optuna takes no value of a trial that failed.
    if np.isnan(value):
      state, value = optuna_trial.TrialState.FAIL, None
    params: dict[str, Any] = {}
    for name, column in trials.values.items():
      _, _, _, integer, _ = space[name]
      params[name] = int(column[place]) if integer else float(column[place])
    converted.append(
      optuna_trial.create_trial(
        state=state,
        value=value,
        params=params,
        distributions=distributions,
        user_attrs={trials.about["measure"]: float(trials.measured[place])},
      )
    )
  return converted


@hide_own_frames
def optuna_studies(path: Folder, storage: Any = None) -> list[Any]:
  """Return a folder's searches as optuna's studies, made from its trials:
  `optuna_studies(path)[0].trials_dataframe()`, or any of `optuna.visualization`.

  Args:
    path: a folder of searches.
    storage: where the studies are written too, as `optuna.create_study` takes it: an
      address such as "sqlite:///studies.db", which `optuna-dashboard` opens, or a
      storage of optuna's. None keeps them in memory.

  Raises:
    UserError: optuna is not installed, or the folder has no searches, or the storage has
      studies of the same names.
  """
  optuna = import_optuna("optuna_studies")
  trials = read_trials(path)
  studies = []
  for number in trials.numbers():
    try:
      study = create_study(
        trials.about["higher_is_better"],
        storage=storage,
        study_name=f"{path}: search {number}",
      )
    except optuna.exceptions.DuplicatedStudyError:
      raise UserError(
        f"the storage has a study {path}: search {number} already: give another storage"
      ) from None
    study.add_trials(optuna_trials(trials, trials.of_search(number)))
    studies.append(study)
  return studies
