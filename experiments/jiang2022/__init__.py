"""Jiang, Nagarajan, Baek & Kolter 2022, "Assessing Generalization via Disagreement" (ICLR 2022)."""
