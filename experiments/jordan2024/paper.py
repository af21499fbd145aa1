"""The printed values. Numbers of figures and sections are ICLR's; arXiv v4's stand in
brackets where they differ.
"""

from experiments.estimates import Stated

# Figure 4: images 776 and 796 of the test set, 60,000 runs.
RIGHT = ((0.362, "figure 4, image 776"), (0.607, "figure 4, image 796"))
BOTH_RIGHT = ("21.83 %, the product is 21.97 %", "figure 4")
MOST_DEPENDENT = tuple(
  (f"{product} → {joint} %", "figure 14 [13]")
  for product, joint in (
    (46.76, 59.78),
    (58.46, 64.57),
    (40.89, 43.63),
    (25.46, 27.96),
    (43.88, 46.04),
  )
)

# Figure 8: 1,000 runs of each learning rate.
BEST_RATE = ("0.5, the recipe's own", "section 4.3")
SD_BEST_RATE = (0.00148, "section 4.3")
SD_TWICE_BEST_RATE = (0.00168, "section 4.3")

# Figure 10 [11]: 4,000 runs each, from another code base than figure 1's. The shortest
# and the longest training.
SD_SOURCES = {
  ("all", 1): (0.0133, "figure 10 [11]"),
  ("all", 4): (0.0045, "appendix D.1"),
  ("init", 4): (0.0038, "appendix D.1"),
  ("all", 64): (0.00160, "appendix D.1"),
  ("init", 64): (0.00158, "appendix D.1"),
}

# Figure 11 [12]. It says neither how long its short training is nor how many pairs
# there are.
POKED = {
  "short": ("7.0 to 7.5 %", "figure 11 [12]"),
  "long": (0.0514, "appendix D.2, 128 epochs"),
}
DISTINCT = {
  "short": ("about 8.5 %", "figure 11 [12]"),
  "long": (0.0519, "appendix D.2, 128 epochs"),
}

# Figure 6. It says neither which R² nor how many runs a task had.
CALIBRATION_FIT = ("0.996, not said of which R²", "section 3.4, figure 6")

# Figure 7.
ABLATED_MEAN = ("about 87.5 %", "section 4.2")
ENSEMBLES = {
  "without augmentation": (0.912, "section 4.2"),
  "with a fifth of the data": (0.898, "section 4.2"),
}
FINETUNED = {  # BERT base and large on MRPC, 1,000 runs each
  "small": {
    "sd": (0.0080, "section 4.1, BERT base"),
    "distribution": (0.0021, "section 4.1, BERT base; 1.5 standard errors above 0"),
    "gain": (0.0009, "section 4.1, BERT base"),
  },
  "large": {
    "sd": (0.0224, "section 4.1, BERT large"),
    "distribution": (0.0208, "section 4.1, BERT large"),
    "gain": None,
  },
}

# Figures 9 and 12 [10]: 1,000 ResNet-18 on ImageNet's validation set; ImageNet-R,
# ObjectNet and Sketch are shifted.
SHIFT_MEAN = {"test": (0.71, "appendix C, ImageNet")}
SHIFT_SD = {"test": (0.00118, "appendix C, ImageNet")}
SHIFT_DISTRIBUTION_SD = {
  "test": ("0.034 %", "appendix C, ImageNet; 1.9 standard errors above 0")
}
SIGNIFICANT_PAIRS = ("4 of 10", "figure 12 [10]")

STATED = {
  "pair": Stated(
    "share of runs that have both of a pair right, less the product",
    ("-0.14 %", "figure 4: 21.83 less 21.97 %"),
  ),
  "equation 6": Stated(
    "mean variance of the binary tasks over equation 6's",
    ("1", "section 3.4: R² 0.996, errors 70.5 [70] times less than the binomial's"),
  ),
  "linear": Stated(
    "sd of accuracy of the linear model", ("below 0.01 %", "section 3.4, figure 7")
  ),
  "augmentation": Stated(
    "variance without augmentation over that with a fifth of the data",
    ("over 3.5", "section 4.2"),
  ),
  "ensembles": Stated(
    "gain of the ensemble without augmentation, less that with a fifth of the data",
    ("1.4 %", "section 4.2: from 91.2 and 89.8 %"),
  ),
  "finetuned small": Stated(
    "correlation of the halves after the stable finetuning",
    ("nearly none", "section 4.1, BERT base"),
  ),
  "finetuned large": Stated(
    "correlation of the halves after the unstable finetuning",
    ("clear", "section 4.1, BERT large"),
  ),
  "rate doubled": Stated(
    "sd of accuracy at twice the best learning rate over that at the best",
    ("1.14", "section 4.3: 0.168 over 0.148 %"),
  ),
  "rate best": Stated(
    "variance over that of independent errors at the best learning rate",
    ("hardly above 1", "section 4.3, figure 8"),
  ),
  "shift": Stated(
    "variance on the distribution: a shifted test set's less the test set's",
    ("sd 0.179 to 0.257 %, not 0.034 %", "appendix C: ImageNet-R, ObjectNet, Sketch"),
  ),
  "one source short": Stated(
    "variance with one source over that with all, after the shortest training",
    ("25 to 40 % less variance", "figure 10 [11], 1 epoch"),
  ),
  "one source long": Stated(
    "variance with one source over that with all, after the longest training",
    ("as much variance", "figure 10 [11], 64 epochs"),
  ),
  "poked short": Stated(
    "disagreement of poked pairs over that of distinct seeds, shortest training",
    ("0.82 to 0.88", "from figure 11 [12]"),
  ),
  "poked long": Stated(
    "disagreement of poked pairs over that of distinct seeds, longest training",
    ("0.99", "from 5.14 and 5.19 %"),
  ),
  "poked later": Stated(
    "disagreement of runs poked first, less that of runs poked last",
    ("the less, the later", "figure 11 [12], right"),
  ),
  "first step": Stated(
    "disagreement after another first step over that after a poke",
    ("about as a poke", "appendix D.2"),
  ),
  "test and shifted": Stated(
    "correlation of the accuracies on the test set and on a shifted one",
    ("R² below 0.01", "figure 12 [10]"),
  ),
  "rate far": Stated(
    "variance over that of independent errors well above the best learning rate",
    (
      "eq. 3 rises 5 times at twice the rate",
      "section 4.3, figure 8",
    ),
  ),
  "dependent pairs": Stated(
    "share of the pairs of examples that deviate from independence by more than 2 %",
    ("5 of 49,995,000", "figure 14 [13]"),
  ),
  "theorem 1": Stated(
    "mean variance on test sets over that on the distribution",
    ("at least 1", "theorem 1"),
  ),
  "theorem 2": Stated(
    "mean of equation 3 over the variance on the distribution", ("1", "theorem 2")
  ),
  "theorem 4": Stated(
    "mean variance on test sets over err/(n k)", ("at least 1", "theorem 4")
  ),
  "theorem 5": Stated("disagreement over error", ("1", "theorem 5")),
}
