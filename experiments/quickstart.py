"""Train a network hundreds of times for four lengths, and draw the first figure of Jordan
2024: the longer the training, the narrower the distribution of accuracy.

    python experiments/quickstart.py

It takes a minute or two on two CPU cores; run it again to resume, or with more runs.
"""

from pathlib import Path

import matplotlib.pyplot as plt

import vmapseeds as vs

RUNS = 200
OUT = Path("results/quickstart")


def main():
  figure, axes = plt.subplots(1, 4, figsize=(12, 3), layout="constrained")
  for ax, epochs in zip(axes, (0, 1, 4, 16), strict=True):
    recipe = vs.recipe("digits_cnn", epochs=epochs)
    results = vs.train(recipe, RUNS, OUT / f"{epochs}_epochs")
    errors = vs.error_matrix(results)  # bool (runs, examples)
    accuracies = 100 * (1 - errors.mean(axis=1))

    # What would be left of the variance on infinitely many test examples
    variance = vs.stats.distribution_variance(errors)
    left = 100 * max(float(variance), 0) ** 0.5

    sd = accuracies.std(ddof=1)
    ax.hist(accuracies, bins=20)
    ax.set_xlabel("test accuracy (%)")
    ax.set_title(f"epochs: {epochs}, sd {sd:.2f} %\non the distribution {left:.2f} %")
  figure.savefig(OUT / "figure1.png")
  print(f"wrote {OUT / 'figure1.png'}")


if __name__ == "__main__":
  main()
