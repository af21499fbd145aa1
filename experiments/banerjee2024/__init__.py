"""Banerjee et al. 2024, "Measuring model variability using robust non-parametric
testing".
"""

TITLE = "Banerjee 2024: trimming levels of logit gaps"
ABSENT = {
  "figure 15": "the network's table of layers; a test holds its 71,250 parameters",
}
