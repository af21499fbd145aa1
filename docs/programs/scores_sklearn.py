"""Three classifiers of scikit-learn on its four built-in data sets, ten times each: a
table of scores as many people have one.

A run draws its own training and test examples, the same for all classifiers of one seed.
"""

import pandas as pd
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

DATASETS = {
  "breast_cancer": datasets.load_breast_cancer,
  "digits": datasets.load_digits,
  "iris": datasets.load_iris,
  "wine": datasets.load_wine,
}


def models(seed):
  return {
    "forest": RandomForestClassifier(100, random_state=seed),
    "linear": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    "neighbours": make_pipeline(StandardScaler(), KNeighborsClassifier(5)),
  }


def main(out="scores.csv", seeds=10):
  rows = []
  for dataset, load in DATASETS.items():
    x, y = load(return_X_y=True)
    for seed in range(seeds):
      x_train, x_test, y_train, y_test = train_test_split(
        x, y, test_size=0.3, random_state=seed, stratify=y
      )
      for name, model in models(seed).items():
        model.fit(x_train, y_train)
        row = {"model": name, "dataset": dataset, "seed": seed}
        row["accuracy"] = accuracy_score(y_test, model.predict(x_test))
        row["log_loss"] = log_loss(y_test, model.predict_proba(x_test))
        rows.append(row)
  table = pd.DataFrame(rows).sort_values(["model", "dataset", "seed"])
  table.round(5).to_csv(out, index=False)


if __name__ == "__main__":
  main()
