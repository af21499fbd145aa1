"""Losses and their variance between runs: what `vmapseeds.stats.variance` has of errors, of any per-example loss.

Losses are (runs, examples), R runs and n examples. The theorems of Jordan 2023 on variance between runs do not need
errors to be 0 or 1 (the end of its appendix B.2), so the same formulas hold for a cross-entropy or a squared error.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
import scipy.special
from jaxtyping import Float

from vmapseeds.mistakes import Mistake
from vmapseeds.stats._arrays import (
  Array,
  Given,
  centred,
  correlation,
  namespace,
  ratio,
  read,
  read_classes,
  read_reals,
  real,
  traced,
)
from vmapseeds.stats.variance import beyond_independence, standard_error

# Logits are taken to losses so many numbers at once (32 MB in float64), and losses centred.
_AT_ONCE = 2**22


class LossVariance(NamedTuple):
  """The mean of a loss, and the parts of its variance between runs; all but the mean and the correlation are squares.

  `test_set` is the variance of the runs' mean losses, `independent` what it were if the examples' losses were
  independent, `distribution` the variance on the whole distribution with its standard error over runs, and
  `split_correlation` that of the mean losses on the examples of even and of odd index.
  """

  mean: Float[Array, ""]
  test_set: Float[Array, ""]
  independent: Float[Array, ""]
  distribution: Float[Array, ""]
  distribution_se: Float[Array, ""]
  split_correlation: Float[Array, ""]


def loss_variance(losses: Given["runs examples"]) -> LossVariance:
  """Variance between runs of a mean loss: on the test set, if examples were independent, and on the distribution.

      test_set = Var_h(mean_i loss_i(h))
      independent = (1/n²) Σ_i Var_h(loss_i(h))
      distribution = n/(n - 1) [test_set - independent]

  All variances have ddof = 1, so the three are unbiased. Of losses that are 0 and 1 they are `test_set_variance`,
  `independent_errors_variance`, `distribution_variance` and `distribution_variance_se`, and the last is
  `split_correlation`. Every example's first loss is taken off before anything is summed, so that a large common part
  costs no digits.

  Args:
    losses: (runs, examples), finite numbers, such as `cross_entropy(logits, labels)`.

  Returns:
    Six numbers, 0-d. A single run has a mean only, two runs no `distribution_se`, a single example no `distribution`,
    `distribution_se` and `split_correlation`, no examples nothing: the rest is NaN. `split_correlation` is NaN also
    where a half's mean loss is the same in all runs.

  Raises:
    Mistake: losses is not (runs, examples), or one is not finite.

  Source: jordan2023, theorem 2 and equation 3, which its appendix B.2 extends to any loss.

  >>> v = loss_variance([[0.5, 0.0, 0.25], [1.5, 0.5, 0.25], [0.5, 0.5, 0.5]])
  >>> print(v.mean, v.test_set, v.independent.round(6), v.distribution.round(6), v.distribution_se.round(6))
  0.5 0.0625 0.048611 0.020833 0.09375
  """
  losses = read_reals("losses", losses, "runs examples")
  xp, (runs, examples) = namespace(losses), losses.shape
  # Of even width, so that a block's even columns are the even examples.
  width = max(examples, 1) if traced(losses) else 2 * max(1, _AT_ONCE // (2 * max(runs, 1)))
  blocks = [_parts(losses[:, start : start + width]) for start in range(0, max(examples, 1), width)]
  first, even, odd, squares = (sum(parts) for parts in zip(*blocks, strict=True))
  above = ratio(even + odd, examples)  # each run's mean loss, less that of the first run
  test_set = ratio((centred(above) ** 2).sum(), max(runs - 1, 0))
  independent = ratio(squares, max(runs - 1, 0) * examples**2)
  return LossVariance(
    mean=xp.asarray(ratio(first, examples) + ratio(above.sum(), runs)),
    test_set=test_set if examples else xp.full_like(test_set, xp.nan),
    independent=independent,
    distribution=beyond_independence(test_set, independent, runs, examples, unbiased=True),
    distribution_se=standard_error(above, examples),
    split_correlation=correlation(even, odd),
  )


def _parts(losses: Array) -> tuple[Array, Array, Array, Array]:
  """The first run's sum, every run's sums over the even and the odd examples less the first's, and Σ (loss - mean)²."""
  above = losses - losses[:1]
  from_mean = above - ratio(above.sum(0, keepdims=True), len(above))
  return losses[:1].sum(), above[:, 0::2].sum(1), above[:, 1::2].sum(1), (from_mean**2).sum()


def cross_entropy(logits: Given["runs examples classes"], labels: Given["examples"]) -> Float[Array, "runs examples"]:
  """Cross-entropy of each run on each example: -log softmax(logits)_y = log(1 + Σ_{c≠y} exp(z_c - z_y)), in nats.

  In this form neither large logits overflow nor small losses vanish: e^-40 comes out as such and not as 0.

  Args:
    logits: (runs, examples, classes), finite numbers; float16 serves. They are read a few runs at a time, so that a
      memory-mapped array may be larger than the memory.
    labels: (examples,), class indices.

  Returns:
    (runs, examples), 0 or more; 0 where there is a single class.

  Raises:
    Mistake: shapes that do not fit, labels not 0 to classes - 1, or a logit that is not finite, named by run, example
      and class.

  Source: standard; Good 1952.

  >>> cross_entropy([[[0.0, 0.0], [40.0, 0.0]]], [0, 0])
  array([[6.93147181e-01, 4.24835426e-18]])
  """
  return _by_runs(_cross_entropy, logits, labels)


def brier_score(logits: Given["runs examples classes"], labels: Given["examples"]) -> Float[Array, "runs examples"]:
  """Brier score of each run on each example: Σ_c (softmax(logits)_c - 1{c = y})².

  This is Brier's own score, summed over classes; for two classes it is twice the squared error of one probability.

  Args:
    logits: (runs, examples, classes), finite numbers; read as in `cross_entropy`.
    labels: (examples,), class indices.

  Returns:
    (runs, examples), from 0 to 2; 0 where there is a single class.

  Raises:
    Mistake: as `cross_entropy` does.

  Source: Brier 1950.

  >>> brier_score([[[0.0, 0.0], [40.0, 0.0]]], [0, 1])
  array([[0.5, 2. ]])
  """
  return _by_runs(_brier_score, logits, labels)


def _cross_entropy(logits: Array, label: Array) -> Array:
  xp = namespace(logits, label)
  own = xp.take_along_axis(logits, label, axis=-1)
  others = xp.where(label == xp.arange(logits.shape[-1])[None, None], -xp.inf, logits - own)
  return xp.logaddexp(0.0, (scipy if xp is np else jax.scipy).special.logsumexp(others, axis=-1))


def _brier_score(logits: Array, label: Array) -> Array:
  xp = namespace(logits, label)
  probabilities = xp.exp(logits - logits.max(-1, keepdims=True))
  probabilities = probabilities / probabilities.sum(-1, keepdims=True)
  wrong = xp.where(label == xp.arange(logits.shape[-1])[None, None], 0.0, probabilities)
  # 1 - p_y as the sum of the others, which does not cancel.
  return (wrong**2).sum(-1) + wrong.sum(-1) ** 2


def _by_runs(loss: Callable[[Array, Array], Array], logits: object, labels: object) -> Array:
  """A loss of every run and example, of concrete logits so many runs at once that float64 takes little memory."""
  logits = read("logits", logits, "runs examples classes")
  runs, examples, classes = logits.shape
  labels = read_classes("labels", labels, "examples", classes, 0)
  if len(labels) != examples:
    raise Mistake(
      f"labels has shape {labels.shape} beside logits of shape {logits.shape}, (runs, examples, classes), axis 0 runs, "
      f"axis 1 examples, axis 2 classes: give one label an example, {examples}"
    )
  label = labels[None, :, None]
  if traced(logits, labels):
    return loss(real(logits, namespace(logits, labels)), label)
  losses, label = np.empty((runs, examples)), np.asarray(label)
  step = max(1, _AT_ONCE // max(1, examples * classes))
  for start in range(0, runs, step):
    block = np.asarray(logits[start : start + step])
    if not np.isfinite(block).all():
      run, example, c = np.argwhere(~np.isfinite(block))[0]
      raise Mistake(
        f"logits is {block[run, example, c]} at run {start + run}, example {example}, class {c}: leave such entries "
        "out, or repair them, first"
      )
    losses[start : start + step] = loss(real(block), label)
  return losses
