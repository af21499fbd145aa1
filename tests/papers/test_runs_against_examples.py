"""Components of variance of made-up runs whose effects are known, and by loops."""

import numpy as np
import pytest

from experiments import runs_against_examples as crossed

EFFECTS = {"init": 0.5, "data": 0.3, "init, data": 0.2}
BY_EXAMPLE = {"order": 0.7, "": 0.4}


def made_up(groups: int, examples: int) -> np.ndarray:
  """Return sums of normal effects, of sets of sources and of these with examples."""
  rng = np.random.default_rng(0)
  names = list(crossed.SOURCES)
  cells = np.array(np.meshgrid(*[[0, 1]] * 4, indexing="ij")).reshape(4, -1).T
  of_example = 0.4 * rng.normal(size=examples)
  x = np.zeros((groups, 16, examples)) + of_example
  for sets, shape in ((EFFECTS, (1,)), (BY_EXAMPLE, (examples,))):
    for sources, sd in sets.items():
      if not sources:
        continue
      varied = [names.index(source) for source in sources.split(", ")]
      level = cells[:, varied] @ (2 ** np.arange(len(varied)))
      x += sd * rng.normal(size=(groups, level.max() + 1, *shape))[:, level]
  return x


def test_components_are_those_that_the_runs_were_made_of():
  n = crossed.decompose(made_up(400, 100))
  both = {"init": 0.25 + 0.04, "data": 0.09 + 0.04}
  for found, truths in (
    (n.runs.first, {"init": 0.25, "data": 0.09}),
    (n.runs.total, both),
    (n.both.first, {"order": 0.49}),
    (n.both.total, {"order": 0.49}),
  ):
    for source, x in found.items():
      reach = (x.high - x.low) / 2
      assert abs(x.value - truths.get(source, 0.0)) < 2 * reach + 1e-9
      assert reach < 0.05
  assert n.runs.whole.low < 0.25 + 0.09 + 0.04 < n.runs.whole.high
  assert n.runs.interactions.low < 0.04 < n.runs.interactions.high
  assert n.example.low < 0.4**2 < n.example.high


def test_the_components_of_one_run_add_to_its_variance():
  x = made_up(300, 50)
  n = crossed.decompose(x)
  # Over groups, of one run's mean on these examples
  expected = np.mean([x[:, cell].mean(1).var(ddof=1) for cell in range(16)])
  assert n.runs.whole.value + n.both.whole.value / 50 == pytest.approx(
    expected, rel=0.15
  )
  whole = crossed.standard_error(n, 1, 50) ** 2
  assert whole == pytest.approx(expected + n.example.value / 50, rel=0.15)


def test_a_contrast_by_hand():
  x = np.random.default_rng(1).normal(size=(1, 16, 5))
  (found,) = crossed.components(
    (np.einsum("sc,gcx->gsx", crossed.contrasts(), x).sum(2)) ** 2
  )["init, order, augment, data"]
  signs = np.array([1, -1])
  of_cells = np.einsum("a,b,c,d->abcd", *[signs] * 4).ravel()
  assert found == pytest.approx((of_cells @ x[0].sum(1) / 4) ** 2)


def test_groups_share_no_seed_and_errors_are_kept_whole(tmp_path):
  runs = crossed.runs_of(3)
  seeds = np.stack([runs.seeds[source] for source in crossed.SOURCES])
  by_group = seeds.reshape(4, 3, 16, 2)
  for of_source in by_group:
    levels = [set(of_group.ravel().tolist()) for of_group in of_source]
    assert all(len(level) == 2 for level in levels)
    assert len(set().union(*levels)) == 6
  cells = {tuple(cell) for cell in by_group[:, 1, :, 0].T.tolist()}
  assert len(cells) == 16
  errors = np.random.default_rng(2).random((3, 16, 2, 7)) < 0.3
  crossed.keep(tmp_path / "errors.npz", errors)
  np.testing.assert_array_equal(crossed.read_kept(tmp_path / "errors.npz"), errors)
