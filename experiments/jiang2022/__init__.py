"""Jiang 2022, "Assessing Generalization via Disagreement" (ICLR): two runs disagree
about as often as one errs.
"""

TITLE = "Jiang 2022: disagreement and generalisation"
ABSENT = {
  "figures 5 and 9, table 2, PACS": "its images may not be redistributed, and ResNet-50 pretrained on ImageNet is not "
  "trained here; shifts of one data set stand for it, without pretraining"
}
