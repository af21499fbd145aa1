"""Banerjee et al. 2024, "Measuring model variability using robust non-parametric
testing".
"""
