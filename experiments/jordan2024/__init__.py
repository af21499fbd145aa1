"""Jordan 2024, "On the Variance of Neural Network Training with respect to Test Sets
and Distributions" (ICLR).

Figures and sections are numbered as in the conference version. Where the later
revision, arXiv v4, has other numbers, they stand in brackets.
"""
