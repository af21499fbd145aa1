"""Jiang 2022, "Assessing Generalization via Disagreement" (ICLR): two runs disagree
about as often as one errs.
"""
