"""Reports: tables, figures and pages of one campaign, or of several side by side.

This package may import `results`, `store` and `stats`. It trains nothing.
"""
