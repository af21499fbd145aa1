"""What one run is: the recipe, the row of the runs table, the training loop, augmentation and evaluation, all written
for one lane.

May import `models`, `data` and `machine`; of `lanes` nothing: that many runs train at once is not known here.
"""
