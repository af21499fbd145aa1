"""The printed values. Numbers of figures and sections are ICLR's; arXiv v4's stand in
brackets where they differ.
"""

# By training duration; 60,000 runs each.
SD = {
  "untrained": (0.0187, "figure 1"),
  "short": (0.0056, "figure 1"),
  "medium": (0.0019, "figure 1"),
  "long": (0.00149, "section 3.3; figure 1 rounds to 0.15 %"),
}
RANGE = {
  "untrained": (0.132, "figure 1"),
  "short": (0.066, "figure 1"),
  "medium": (0.017, "figure 1"),
  "long": (0.014, "figure 1"),
}
MEAN = {"untrained": (0.10, "section 2"), "long": (0.9442, "section 3.1")}
DISTRIBUTION_SD = {"short": (0.0052, "section 3.3"), "long": (0.00033, "section 3.3")}
VARIANCE_RATIO = {"long": ("22 [20]", "figure 5; 0.149 and 0.033 % give 20")}

CORRELATION = {
  "short": ("substantial", "section 3.1; figure 2 prints no number"),
  "long": ("nearly none", "section 3.1; figure 2 prints no number"),
}
TOP_QUARTER_GAIN = {"long": (0.0002, "section 3.1; 0.007 % would fit section 3.3")}
BEST_RUN_GAIN = {"long": ("not above 0 %", "section 3.1")}
INDEPENDENT_SD = {
  "short": (0.0022, "section 3.3"),
  "long": (0.00145, "arXiv v4, section 3.2"),
}
OVER_INDEPENDENT = {
  "short": ("6.5", "from 0.56 and 0.22 %"),
  "long": ("1.06", "from 0.149 and 0.145 %"),
}
# Figure 4: images 776 and 796 of the test set, 60,000 runs.
RIGHT = ((0.362, "figure 4, image 776"), (0.607, "figure 4, image 796"))
BOTH_RIGHT = ("21.83 %, the product is 21.97 %", "figure 4")
P_VALUE = ("0.16", "from figure 4's counts")
BINOMIAL_OVER_OBSERVED = ("≈ 2.5", "figure 13 [14]; 0.9441 and 0.149 % give 2.38")
INDEPENDENT_OVER_OBSERVED = ("0.95", "from 0.145 and 0.149 %")
DEPENDENT_PAIRS = ("5 of 49,995,000", "figure 14 [13]")
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
TWICE_OVER_BEST = (
  "5",
  "section 4.3; with 1,000 runs the lesser is 0.9 standard errors above 0",
)
LARGEST_WITHOUT_EXCESS = ("the best, 0.5", "section 4.3, figure 8")

# Figure 10 [11]: 4,000 runs each, from another code base than figure 1's. The shortest
# and the longest training.
SD_SOURCES = {
  ("all", 1): (0.0133, "figure 10 [11]"),
  ("all", 4): (0.0045, "appendix D.1"),
  ("init", 4): (0.0038, "appendix D.1"),
  ("all", 64): (0.00160, "appendix D.1"),
  ("init", 64): (0.00158, "appendix D.1"),
}
ONE_SOURCE_SHORT = ("25 to 40 % less variance", "figure 10 [11], 1 epoch")
ONE_SOURCE_LONG = ("as much variance", "figure 10 [11], 64 epochs")

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
POKED_OVER_DISTINCT = {
  "short": ("0.82 to 0.88", "from figure 11 [12]"),
  "long": ("0.99", "from 5.14 and 5.19 %"),
}
POKED_LATER = ("the less, the later", "figure 11 [12], right")
FIRST_STEP = ("about as a poke", "appendix D.2")

# Figure 6. It says neither which R² nor how many runs a task had.
CALIBRATION_FIT = ("0.996, not said of which R²", "section 3.4, figure 6")
BINOMIAL_MSE = ("70.5 [70]", "section 3.4")

# Figure 7.
LINEAR_SD = ("below 0.01 %", "section 3.4, figure 7")
ABLATED_MEAN = ("about 87.5 %", "section 4.2")
ABLATED_RATIO = ("over 3.5", "section 4.2")
ENSEMBLES = {
  "without": (0.912, "section 4.2"),
  "fifth": (0.898, "section 4.2"),
  "difference": ("1.4 %", "from 91.2 and 89.8 %"),
}
FINETUNED = {  # BERT base and large on MRPC, 1,000 runs each
  "small": {
    "sd": (0.0080, "section 4.1, BERT base"),
    "distribution": (0.0021, "section 4.1, BERT base; 1.5 standard errors above 0"),
    "correlation": ("nearly none", "section 4.1, BERT base"),
    "gain": (0.0009, "section 4.1, BERT base"),
  },
  "large": {
    "sd": (0.0224, "section 4.1, BERT large"),
    "distribution": (0.0208, "section 4.1, BERT large"),
    "correlation": ("clear", "section 4.1, BERT large"),
    "gain": None,
  },
}

# Figures 9 and 12 [10]: 1,000 ResNet-18 on ImageNet's validation set; ImageNet-R,
# ObjectNet and Sketch are shifted.
SHIFT_MEAN = {"test": (0.71, "appendix C, ImageNet")}
SHIFT_SD = {"test": (0.00118, "appendix C, ImageNet")}
SHIFT_DISTRIBUTION_SD = {
  "test": ("0.034 %", "appendix C, ImageNet; 1.9 standard errors above 0"),
  "shifted": ("0.179 to 0.257 %", "appendix C: ImageNet-R, ObjectNet, Sketch"),
}
SIGNIFICANT_PAIRS = ("4 of 10", "figure 12 [10]")
LARGEST_R_SQUARED = {
  "test": ("below 0.01", "figure 12 [10]"),
  "shifted": ("0.14, p < 1e-8", "appendix C: ImageNet-R and Sketch"),
}
