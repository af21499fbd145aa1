"""Banerjee et al. 2024, "Measuring model variability using robust non-parametric
testing".
"""

TITLE = "Banerjee 2024: trimming levels of logit gaps"
RECIPES = ("cnn_cifar10_binary",)  # the paper's own, by Adam, which is our reading
ABSENT = {
  "figures 1 and 2": "illustrations without data",
  "figures 3 (right) and 16": "what runs are worth after each epoch is not kept here",
  "figures 12 to 14": "a transformer trained on ImageNet before cannot be had",
}
