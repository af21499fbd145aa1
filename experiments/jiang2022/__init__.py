"""Jiang 2022, "Assessing Generalization via Disagreement" (ICLR): two runs disagree about as often as one errs."""

TITLE = "Jiang 2022: disagreement and generalisation"
RECIPES = ()  # the paper's own
ABSENT: dict[str, str] = {}
