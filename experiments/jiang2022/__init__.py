"""Jiang 2022, "Assessing Generalization via Disagreement" (ICLR): two runs disagree
about as often as one errs.
"""

TITLE = "Jiang 2022: disagreement and generalisation"
RECIPES = (
  "resnet18_cifar10",
  "resnet18_svhn",
  "resnet18_cifar100",
  "nin_cifar10",
  "mlp_mnist",
)  # the paper's own
ABSENT = {
  "figures 5 and 9, table 2, PACS": "its images may not be redistributed, and ResNet-50 pretrained on ImageNet is not "
  "trained here; four domains made of one data set stand for it, without pretraining"
}
