"""The printed values."""

from typing import NamedTuple

from experiments.frame import Printed

GAMMA = 0.75  # what P(A > B) is compared with, sections 4.1 and 4.2
PAIRS = 50  # section 4.2
THRESHOLD = 1.9952  # in standard deviations of a run, section 4.2


class Detection(NamedTuple):
  """Rates of figure 6."""

  positives: Printed  # false positives, where A is no better
  negatives: Printed  # false negatives, where A is better


DETECTION = {
  "single_point": Detection((0.10, "figure 6"), (0.75, "figure 6")),
  "average": Detection(("below 5 %", "figure 6"), (0.90, "figure 6")),
  "outperforming": Detection((0.05, "figure 6"), (0.30, "figure 6")),
}
WORTH = {"init": ("at best 2", "section 3.3"), "data": ("2 to 10", "section 3.3")}
OUTSTANDING = ("below 1: data stand out", "section 2.2")
OVER_DATA = dict.fromkeys(
  ("augment", "order", "dropout"), OUTSTANDING
)  # ratios of variances
OVER_DATA["init"] = ("generally below 0.5", "section 2.2")
BINOMIAL = ("that of a binomial", "figure 2")
ORDER_OVER_INIT = ("on par", "section 2.2")
ON_PAR = 2  # a factor of our choice; the paper only has the words
TOGETHER = ("not the sum of the sources", "section 2.2")
NOISE = ("0 but for segmentation", "appendix A")
NORMAL = ("normal but for SST-2", "figure G.3")
SAMPLE_SIZES = {
  0.55: ("more than 700", "appendix C.3"),
  0.75: ("29", "appendix C.3"),
}  # by γ
POWER = (0.95, "appendix C.3")
