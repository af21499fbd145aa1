"""Jordan 2023/24, "On the Variance of Neural Network Training with respect to Test Sets and Distributions".

Figures and sections are numbered as in the conference version, ICLR 2024. The later revision, arXiv v4, numbers the
figures of the appendices otherwise: 10 and 11, those of appendix D, are its 11 and 12.
"""
