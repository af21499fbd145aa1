"""Distillation in a recipe: a narrow network also learns from stored networks."""

import functools
import sys

import jax
import numpy as np
import optax
from sklearn.datasets import load_digits

import vmapseeds as vs

digits = load_digits()
images, labels = digits.images[..., None].astype(np.float32), digits.target
teacher = vs.Recipe(
  name="teacher",
  dataset=vs.Dataset(
    train=(images[:1000], labels[:1000]), test=(images[1000:], labels[1000:])
  ),
  model="small_cnn",
  optimizer="adam",
  lr=1e-2,
  epochs=6,
  batch_size=50,
)
student = teacher.replace(name="student", width=0.25)


def distillation(taught, model, params, batch, run):
  outputs, updates = model.apply(params, batch.inputs)
  soft = optax.losses.softmax_cross_entropy(outputs, taught[batch.examples])
  return (model.loss(outputs, batch.targets) + soft).mean() / 2, updates


if __name__ == "__main__":
  out = sys.argv[1] if len(sys.argv) > 1 else "results/distillation"
  vs.train(teacher, 4, f"{out}/teachers", keep_params=True)
  teachers = vs.load_networks(f"{out}/teachers")
  logits = jax.vmap(teachers.apply, (0, None))(teachers.variables, images[:1000])
  taught = jax.nn.softmax(logits).mean(0)  # (examples, classes)
  distilled = student.replace(objective=functools.partial(distillation, taught))
  for recipe, name in ((distilled, "distilled"), (student, "alone")):
    accuracy = vs.train(recipe, 32, f"{out}/{name}").accuracy
    print(f"{name}: accuracy {100 * accuracy.mean():.2f} %")
  vs.compare(f"{out}/distilled", f"{out}/alone").print()
  # Accuracies of students, and the decision whether distillation makes them better.
