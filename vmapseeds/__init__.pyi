"""The public names."""

from . import stats as stats
from .campaign.loop import Estimate as Estimate
from .campaign.loop import estimate as estimate
from .campaign.loop import train as train
from .campaign.loop import work as work
from .campaign.options import Options as Options
from .campaign.planning import run_of as run_of
from .campaign.replaying import replay as replay
from .campaign.searching import search as search
from .data import Dataset as Dataset
from .data import Examples as Examples
from .data import load as load
from .lanes import conv_general_dilated as conv_general_dilated
from .lanes import fast_convolutions as fast_convolutions
from .lanes import spread as spread
from .mistakes import Failure as Failure
from .mistakes import Mistake as Mistake
from .mistakes import UnknownField as UnknownField
from .reports.comparison_page import compare as compare
from .reports.pilots import plan as plan
from .reports.results_page import report as report
from .reports.results_page import summary_table as summary_table
from .results.by_example import examples as examples
from .results.by_run import to_dataframe as to_dataframe
from .results.description import training_examples as training_examples
from .results.merging import merge as merge
from .results.networks import export_networks as export_networks
from .results.networks import load_networks as load_networks
from .results.networks import load_params as load_params
from .results.opening import errors as errors
from .results.opening import open_results as open_results
from .results.opening import prediction_blocks as prediction_blocks
from .results.opening import tally as tally
from .results.recording import Recorder as Recorder
from .results.recording import import_runs as import_runs
from .results.searches import optuna_studies as optuna_studies
from .store.verification import verify as verify
from .training.inputs import batches as batches
from .training.outputs import Output as Output
from .training.recipes import Recipe as Recipe
from .training.recipes import recipe as recipe
from .training.runs import Runs as Runs
from .training.task import Task as Task

__version__: str
