"""The printed values. Place and version: ICLR's, and arXiv v4's in brackets where it differs."""

from experiments.frame import Printed

# By training duration; 60,000 runs each.
SD = {
  "untrained": Printed(0.0187, "figure 1"),
  "short": Printed(0.0056, "figure 1"),
  "medium": Printed(0.0019, "figure 1"),
  "long": Printed(0.00149, "section 3.3; figure 1 rounds to 0.15 %"),
}
RANGE = {
  "untrained": Printed(0.132, "figure 1"),
  "short": Printed(0.066, "figure 1"),
  "medium": Printed(0.017, "figure 1"),
  "long": Printed(0.014, "figure 1"),
}
MEAN = {"untrained": Printed(0.10, "section 2"), "long": Printed(0.9442, "section 3.1")}
DISTRIBUTION_SD = {"short": Printed(0.0052, "section 3.3"), "long": Printed(0.00033, "section 3.3")}
VARIANCE_RATIO = {"long": Printed("22 [20]", "figure 5; 0.149 and 0.033 % give 20")}
