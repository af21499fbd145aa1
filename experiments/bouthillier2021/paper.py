"""The printed values."""

from typing import NamedTuple

from experiments.estimates import Printed, Stated

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
NOISE = ("0 but for segmentation", "appendix A")
# By γ
SAMPLE_SIZES = {0.55: ("more than 700", "appendix C.3"), 0.75: ("29", "appendix C.3")}
SEARCHES = ("sizable, not negligible", "section 2.2")
STAND_OUT = ("below 1: data stand out", "section 2.2")
STATED = {
  "init over data": Stated(
    "variance of init over that of data", ("generally below 0.5", "section 2.2")
  ),
  "over data": Stated(
    "variance of another source over that of data, which draw the test set too",
    STAND_OUT,
  ),
  "together": Stated(
    "variance of everything over that of data", ("not the sum", "section 2.2")
  ),
  "search over init": Stated(
    "mean variance of three kinds of search over that of init",
    ("on average as much", "section 2.2"),
  ),
  "early": Stated(
    "sd between searches after a quarter of the trials over that at the end",
    ("stable before 50 of 200", "figure F.2"),
  ),
  "order over init": Stated(
    "variance of order over that of init", ("on par", "section 2.2")
  ),
  "binomial": Stated(
    "sd where the data vary over that of a binomial", ("1", "figure 2")
  ),
  "worth init": Stated(
    "ρ where only init varies: worth at most 2 measures",
    ("at best 2: ρ above 0.5", "section 3.3"),
  ),
  "worth data": Stated(
    "ρ where only the data vary: worth 2 to 10 measures",
    ("2 to 10: ρ from 0.1 to 0.5", "section 3.3"),
  ),
  "worth all": Stated(
    "ρ where all but the hyperparameters vary: worth 2 to 100 measures",
    ("2 to 100: ρ from 0.01 to 0.5", "section 3.3"),
  ),
  "mse": Stated(
    "mean squared error where init varies over that where all do",
    ("reduced most by all: above 1", "figure H.5"),
  ),
  "bias": Stated(
    "ρ where only init varies less that where only the data do",
    ("above 0: init by far the worst", "figure H.4"),
  ),
  "size": Stated("Noether's sample size less the printed one", ("0", "")),
  "power": Stated("power of 29 pairs at γ = 0.75", ("95 %", "appendix C.3")),
  "normal": Stated(
    "skewness of accuracies, whose size is at most 0.5",
    ("normal but for SST-2", "figure G.3"),
  ),
}
# Exact rates for 50 pairs of normal measures. The paper's are read off curves, false
# negatives at no P(A > B) that it names.
STATED |= {
  "positives single_point": Stated(
    "false positives of single runs at P = 0.5, within 3 points",
    DETECTION["single_point"].positives,
  ),
  "negatives single_point": Stated(
    f"false negatives of single runs at P = {GAMMA}, within 3 points",
    DETECTION["single_point"].negatives,
  ),
  "positives average": Stated(
    f"false positives of averages of {PAIRS} at P = 0.5", DETECTION["average"].positives
  ),
  "negatives average": Stated(
    f"false negatives of averages of {PAIRS} less those of single runs, P = {GAMMA}",
    ("15 points: 90 and 75 %", "figure 6"),
  ),
  "positives outperforming": Stated(
    f"false positives of P(A > B) of {PAIRS} at P = 0.5, at most the level",
    DETECTION["outperforming"].positives,
  ),
  "negatives outperforming": Stated(
    f"false negatives of P(A > B) of {PAIRS} less those of averages, P = {GAMMA}",
    ("-60 points: 30 and 90 %", "figure 6"),
  ),
  "outperforming after one search": Stated(
    f"false negatives of P(A > B) of {PAIRS} by the biased estimator, P = {GAMMA}",
    DETECTION["outperforming"].negatives,
  ),
}
