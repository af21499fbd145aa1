"""Jordan 2024, "On the Variance of Neural Network Training with respect to Test Sets
and Distributions" (ICLR).

Figures and sections are numbered as in the conference version. Where the later
revision, arXiv v4, has other numbers, they stand in brackets.
"""

TITLE = "Jordan 2024: variance between runs, on test sets and on distributions"
ABSENT = {
  "figure 7, BERT": "finetuning BERT on MRPC needs pretrained language models, which this package does not train",
  "figure 9, ImageNet": "ImageNet and its shifted versions may not be redistributed; figures 9 and 12 shift CIFAR-10",
}
