"""The table of examples of losses, beside pandas."""

import numpy as np
import pandas as pd
import pytest

from vmapseeds.results.by_example import table_of_losses


@pytest.mark.parametrize("runs", [1, 2, 6])
def test_mean_and_standard_deviation_of_each_example(runs):
  losses = np.random.default_rng(runs).exponential(size=(runs, 5)).astype(np.float32)
  table, frame = table_of_losses(losses), pd.DataFrame(losses.astype(np.float64))
  np.testing.assert_allclose(table.mean_loss, frame.mean())
  np.testing.assert_allclose(table.sd, frame.std())
