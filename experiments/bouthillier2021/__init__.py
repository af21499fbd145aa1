"""Bouthillier et al. 2021, "Accounting for Variance in Machine Learning Benchmarks"
(MLSys).
"""
