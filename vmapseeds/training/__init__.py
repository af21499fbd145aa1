"""What one run is: the recipe, the row of the runs table, the training loop,
augmentation and evaluation, all written for one lane.

It may import `models` and `data`, but nothing of `lanes`: code here does not know that
many runs train at once.
"""
