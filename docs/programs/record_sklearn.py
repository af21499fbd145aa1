"""Random forests of scikit-learn: how much accuracy depends on the seed, by the number of
trees.
"""

import sys

from sklearn.ensemble import RandomForestClassifier

import vmapseeds as vs

if __name__ == "__main__":
  out = sys.argv[1] if len(sys.argv) > 1 else "results/record_sklearn"
  digits = vs.load_dataset("digits")
  train, test = digits.train, digits.tests["test"]
  x, x_test = (of.inputs.reshape(len(of), -1) for of in (train, test))
  recorder = vs.Recorder(out, labels=test.targets)
  for trees in (5, 20):
    for seed in range(50):
      if not recorder.has(seed=seed, trees=trees):
        forest = RandomForestClassifier(trees, random_state=seed)
        forest.fit(x, train.targets)
        recorder.add(forest.predict(x_test), seed=seed, trees=trees)
  vs.report(out).print()
  print(vs.open_results(out).accuracy.groupby("trees").std(ddof=1).values)
  # Accuracy and its variance of 5 and of 20 trees, and the standard deviations.
