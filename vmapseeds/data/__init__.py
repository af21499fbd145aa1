"""Data sets as arrays: training sets, test sets, and the choice of examples that a run
is trained on.
"""

from vmapseeds.data.dataset import Dataset, Examples
from vmapseeds.data.sources import load_dataset

__all__ = ["Dataset", "Examples", "load_dataset"]
