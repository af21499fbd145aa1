"""Jordan 2023/24, "On the Variance of Neural Network Training with respect to Test Sets and Distributions".

Figures and sections are numbered as in the ICLR 2024 version. Its preprint of 2023 has figures 11 and 12,
those of appendix D, as 10 and 11.
"""
