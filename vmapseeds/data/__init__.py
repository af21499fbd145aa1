"""Data sets as arrays: what is trained on, what is tested on, and which examples of it a run sees."""

from vmapseeds.data.examples import Dataset, Examples
from vmapseeds.data.sources import load

__all__ = ["Dataset", "Examples", "load"]
