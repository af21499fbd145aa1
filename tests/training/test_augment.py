"""Augmentation against NumPy, and how its draws are distributed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vmapseeds as vs
from vmapseeds.training.augment import apply_steps, check_steps, draw_steps, parse_steps
from vmapseeds.training.inputs import DeviceExamples, draw_augmentation
from vmapseeds.training.runs import Run

IMAGE = jnp.arange(5 * 6 * 2, dtype=jnp.float32).reshape(5, 6, 2)
FILL = jnp.array([-1.0, -2.0])


def many(text, n=2000):
  keys = jax.random.split(jax.random.key(0), n)
  return np.asarray(
    jax.vmap(
      lambda k: apply_steps(text, IMAGE, draw_steps(text, k, IMAGE.shape), FILL)
    )(keys)
  )


def counts(images, candidates):
  """How often each candidate came; every image must be one of them."""
  which = (images[:, None] == np.stack(candidates)[None]).all((2, 3, 4))
  assert (which.sum(1) == 1).all()
  return which.sum(0)


def test_flip_mirrors_half_of_the_images():
  flipped, straight = counts(many("flip"), [IMAGE[:, ::-1], IMAGE])
  assert abs(flipped - 1000) < 5 * np.sqrt(500)
  assert flipped + straight == 2000


def test_alternate_mirrors_every_second_epoch():
  recipe = vs.recipe("digits_cnn", augment="alternate flip")
  run = Run({"augment": jnp.uint32(3)}, {})
  data = DeviceExamples(jnp.zeros((40, 8, 8, 1)), jnp.zeros(40, int), None, None, 1)
  shown = jnp.arange(40).reshape(4, 10)
  drawn = [draw_augmentation(recipe, data, run, jnp.array(e), shown) for e in range(4)]
  first = np.asarray(drawn[0][0])
  assert first.shape == (4, 10)
  assert 8 < first.sum() < 32
  for epoch, (mirrored, flipped) in enumerate(drawn):
    np.testing.assert_array_equal(mirrored, first ^ (epoch % 2 == 1))
    # Beside it a random flip is drawn anew.
    other = [d for i, (_, d) in enumerate(drawn) if i != epoch]
    assert all((flipped != d).any() for d in other)
  assert (first != drawn[0][1]).any()


@pytest.mark.parametrize(
  ("name", "mode"), [("translate", "constant"), ("reflect", "reflect")]
)
def test_translations_are_uniform(name, mode):
  padded = np.pad(np.asarray(IMAGE), [(2, 2), (2, 2), (0, 0)], mode)
  shifts = [padded[i : i + 5, j : j + 6] for i in range(5) for j in range(5)]
  found = counts(many(f"{name}=2"), shifts)
  assert (np.abs(found - 80) < 5 * np.sqrt(80)).all()


def test_cutout_lies_wholly_inside_the_image():
  squares = []
  for i in range(5 - 3 + 1):
    for j in range(6 - 3 + 1):
      square = np.asarray(IMAGE).copy()
      square[i : i + 3, j : j + 3] = FILL
      squares.append(square)
  found = counts(many("cutout=3"), squares)
  assert (np.abs(found - 2000 / 12) < 5 * np.sqrt(2000 / 12)).all()


def test_order_of_steps_counts():
  # A square that is cut out first is shifted too. A shift after it can bring the black
  # border next to it.
  before, after = many("cutout=5 translate=2"), many("translate=2 cutout=5")
  assert (after == FILL).all(-1).sum((1, 2)).min() == 25
  assert (before == FILL).all(-1).sum((1, 2)).min() < 25


def test_steps_have_keys_of_their_own():
  both = many("translate=2 reflect=2")
  assert len({image.tobytes() for image in both}) > 25, (
    "equal keys would give equal shifts"
  )


def test_no_step_leaves_the_image():
  np.testing.assert_array_equal(many("", 1)[0], IMAGE)
  assert parse_steps("") == ()


def test_sizes_are_checked_against_the_images():
  check_steps("flip translate=5 cutout=5", (5, 6, 3))
  with pytest.raises(
    vs.UserError,
    match="augmentation 'cutout=6' on images of 5×6 pixels: at most cutout=5",
  ):
    check_steps("flip cutout=6", (5, 6, 3))
  with pytest.raises(vs.UserError, match="at most reflect=4"):
    check_steps("reflect=5", (5, 6, 3))
