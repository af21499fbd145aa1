"""Shifted test sets: the images of a test set, changed in the same way every time.

`experiments.shifts:mnist` in a recipe's `dataset` is MNIST with the test sets `blur`,
`noise`, `contrast`, `translation` and `inversion` beside `test`. A shift's name may have
a severity from 1 to 5, as `blur-5`; the default is 3. With pixels x from `low` to
`high`, the least and the greatest value of the training set, an image becomes

- `blur`: the convolution of x with a Gaussian of standard deviation 0.4, 0.6, 0.7, 0.8,
  1 pixels, cut off at four standard deviations; pixels outside the image are those at
  its border.
- `noise`: x + s (high - low) e, with e standard normal for each pixel and channel, s =
  0.04, 0.06, 0.08, 0.09, 0.1.
- `contrast`: m + c (x - m), with m the mean of the image's channel, c = 0.75, 0.5, 0.4,
  0.3, 0.15.
- `translation`: moved by 2, 3, 4, 5, 6 pixels along rows and as many along columns,
  each in a direction drawn for the image; pixels from outside the image are `low`.
- `inversion`: low + high - x. It has one severity.

Values are clipped to [low, high], and rounded if they are integers or bool. Draws use
one fixed seed. The severities of blur, noise and contrast are those of CIFAR-10-C
(Hendrycks and Dietterich 2019, github.com/hendrycks/robustness, make_cifar_c.py), where
values are truncated instead of rounded.
"""

import functools
from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Shaped

import vmapseeds as vs

Images = Shaped[np.ndarray, "n height width channels"]
Values = Float[np.ndarray, "n height width channels"]


def blur(
  sigma: float,
  x: Values,
  low: float,
  high: float,
) -> Values:
  # The module fills itself in when it is imported.
  from scipy.ndimage import gaussian_filter  # type: ignore[attr-defined]

  return gaussian_filter(x, sigma, mode="nearest", axes=(1, 2))


def noise(
  deviation: float,
  x: Values,
  low: float,
  high: float,
) -> Values:
  # The draws of RandomState are frozen by NumPy's policy; those of newer generators are
  # not.
  draws = np.random.RandomState(0).standard_normal(x.shape)
  return x + deviation * (high - low) * draws


def contrast(
  factor: float,
  x: Values,
  low: float,
  high: float,
) -> Values:
  mean = x.mean((1, 2), keepdims=True)
  return mean + factor * (x - mean)


def translation(
  size: int,
  x: Values,
  low: float,
  high: float,
) -> Values:
  n, height, width, _ = x.shape
  margin = (size, size)
  padded = np.pad(x, ((0, 0), margin, margin, (0, 0)), constant_values=low)
  # Each image moves into one of the four corners.
  corners = 2 * size * np.random.RandomState(0).randint(0, 2, (n, 2))
  rows = corners[:, [0]] + np.arange(height)
  columns = corners[:, [1]] + np.arange(width)
  # Index arrays of (n, height, width) together leave the channels as the last axis.
  images = np.arange(n)[:, None, None]
  return padded[images, rows[:, :, None], columns[:, None, :]]


def inversion(
  x: Values,
  low: float,
  high: float,
) -> Values:
  return low + high - x


STRENGTHS: dict[Callable[..., Values], tuple[float, ...]] = {
  blur: (0.4, 0.6, 0.7, 0.8, 1.0),
  noise: (0.04, 0.06, 0.08, 0.09, 0.1),
  contrast: (0.75, 0.5, 0.4, 0.3, 0.15),
  translation: (2, 3, 4, 5, 6),
}
# Functions of (values, low, high).
SHIFTS: dict[str, Callable[..., Values]] = {"inversion": inversion}
for shift, strengths in STRENGTHS.items():
  for severity, strength in enumerate(strengths, 1):
    SHIFTS[f"{shift.__name__}-{severity}"] = functools.partial(shift, strength)
  SHIFTS[shift.__name__] = SHIFTS[f"{shift.__name__}-3"]
NAMES = ("blur", "noise", "contrast", "translation", "inversion")  # without severities
DATASETS = ("digits", "mnist", "cifar10")


@functools.cache
def with_shifts(name: str) -> vs.Dataset:
  """Return a data set with all shifts of its test set, at the default severity."""
  data = vs.load_dataset(name)
  test = data.tests["test"]
  low = float(np.min(data.train.inputs))
  high = float(np.max(data.train.inputs))
  tests = {"test": test}
  for shift in NAMES:
    tests[shift] = (apply_shift(test.inputs, shift, low, high), test.targets)
  return vs.Dataset(
    train=data.train, tests=tests, name=name, num_classes=data.num_classes
  )


def __getattr__(name: str) -> vs.Dataset:
  """Load a data set when a recipe asks for it."""
  if name not in DATASETS:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  return with_shifts(name)


def apply_shift(
  images: Images,
  name: str,
  low: float,
  high: float,
) -> Images:
  """Apply the shift `name` of `SHIFTS` to images; pixels go from `low` to `high`."""
  apply = SHIFTS[name]
  values = apply(images.astype(np.float64), low, high)
  values = values.clip(low, high)
  if images.dtype.kind in "biu":
    # A cast alone would cut the fractions off.
    values = values.round()
  return values.astype(images.dtype)
