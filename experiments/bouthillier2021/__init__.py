"""Bouthillier et al. 2021, "Accounting for Variance in Machine Learning Benchmarks"
(MLSys).
"""

TITLE = "Bouthillier 2021: whether one recipe is better than another"
ABSENT = {
  "the paper's five tasks": "VGG11, an FCN, BERT and an MLP on peptides are not built in: others stand in",
  "figures 1 and F.2, hyperparameter optimisation": "nothing is searched here: what repetitions share is seeds instead",
  "figure 3": "published accuracies from paperswithcode.com, no training",
}
