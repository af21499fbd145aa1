"""The public names."""

from . import stats as stats
from .campaign.estimating import estimate as estimate
from .campaign.planning import single_run as single_run
from .campaign.repeating import repeat as repeat
from .campaign.replaying import replay as replay
from .campaign.running import create as create
from .campaign.running import train as train
from .campaign.running import work as work
from .convolutions import fast_convolutions as fast_convolutions
from .data import Dataset as Dataset
from .data import load_dataset as load_dataset
from .errors import UserError as UserError
from .lanes import spread as spread
from .reports.comparison_page import compare as compare
from .reports.confusions import confusion as confusion
from .reports.examples_table import example_table as example_table
from .reports.results_page import report as report
from .reports.runs_needed import sample_size as sample_size
from .results.by_run import run_table as run_table
from .results.description import training_examples as training_examples
from .results.kept_networks import load_networks as load_networks
from .results.merging import merge as merge
from .results.opening import error_matrix as error_matrix
from .results.opening import open_results as open_results
from .results.opening import tally as tally
from .results.recording import Recorder as Recorder
from .results.recording import import_runs as import_runs
from .results.unseen import held_out as held_out
from .results.unseen import measure as measure
from .store.verification import verify as verify
from .training.inputs import batches as batches
from .training.outputs import Output as Output
from .training.recipes import Recipe as Recipe
from .training.recipes import recipe as recipe
from .training.runs import Runs as Runs
from .training.task import Task as Task

__version__: str
