"""Which training examples a network memorises: right when it is trained on them, wrong
when not (Feldman & Zhang 2020).
"""

import numpy as np
from sklearn.datasets import load_digits

import vmapseeds as vs

images, labels = load_digits(return_X_y=True)
images, labels = (
  images[:1000].reshape(-1, 8, 8, 1).astype(np.float32),
  labels[:1000].astype(np.int32),
)
mislabelled = np.arange(0, 1000, 20)
labels[mislabelled] = (labels[mislabelled] + 1) % 10

recipe = vs.Recipe(
  name="memorization",
  dataset=vs.Dataset(train=(images, labels), test=(images, labels)),
  model="small_cnn",
  optimizer="adam",
  lr=1e-2,
  epochs=30,
  batch_size=50,
)

if __name__ == "__main__":
  results = vs.train(
    recipe, vs.Runs.independent(64).subset(500), "results/memorization"
  )
  right = (results.predictions == results.labels).values  # (runs, examples)
  seen = np.zeros(right.shape, bool)
  np.put_along_axis(seen, vs.training_examples("results/memorization"), True, axis=1)
  memorized = right.mean(0, where=seen) - right.mean(0, where=~seen)
  print(
    f"memorized: mislabelled {memorized[mislabelled].mean():.2f}, all {memorized.mean():.2f}"
  )
  # Half of the runs see each example; those with a wrong label are memorised, the
  # others follow from the rest.
