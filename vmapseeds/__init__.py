"""Train hundreds of small networks at once and read their variance off the runs ×
examples tensor.
"""

import lazy_loader

__version__ = "0.2.0"

# The names of `__init__.pyi`, imported on first use: JAX, SciPy and xarray take
# seconds, and a command that trains nothing needs none of them.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
