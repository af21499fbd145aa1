"""Names that recipes, runs tables and results share; importing them is cheap."""

# The sources of randomness of supervised training.
SOURCES = ("init", "order", "augment", "dropout", "data")
# The optimizers by name, and how many arrays as large as the parameters each keeps:
# memory is checked with these before a training.
OPTIMIZERS = {"sgd": 1, "nesterov": 1, "adam": 2, "adamw": 2}
# Columns that the methods of `Runs` make, beside the values that a sweep varies.
FOLD, FOLD_GROUPS = "fold", "fold_groups"  # of runs of k-fold cross-validation
MADE_COLUMNS = (
  *("label_map", "subset", "start"),
  *(FOLD, FOLD_GROUPS),
)
# Entries of a run whose inputs are normalised by moments of its own.
INPUT_MEAN, INPUT_STD = "input_mean", "input_std"
# Entries of a run that follow from the data seed.
DRAWN_BY_DATA = {"subset", INPUT_MEAN}
# The array with the places, in the training set, of test examples that it has too.
TWINS = "in_training"
# The array with the ids of examples: of texts, as UTF-8 bytes.
EXAMPLE_ID = "example_id"
# In predicted classes: the run was not asked for the example. Equal to that of `stats`.
NOT_ASKED = -2
# The array that says which examples each run held out.
MASK = "mask"
# The group of arrays with what runs make of the examples that they held out.
HELD_OUT = "held_out"
# Names of arrays of a test set, and of what is opened with them, which no metric and no
# value of a run can have.
OF_TEST_SETS = (
  *("predictions", "labels", "targets", "accuracy", "half_errors", "losses", "logits"),
  *("votes", "counted", "joint_errors", "mask", TWINS, "example", "class"),
  *(EXAMPLE_ID, "id_letter", "original_labels", "run_place"),
)
# Names in a results folder that no array can have.
MEASURED = "measured"  # the folder with metrics that were measured after the training
FOLDER_NAMES = ("run", "zarr.json", "blocks", "checkpoints", "report", MEASURED)
# A bool output of this name marks runs that statistics leave out.
DIVERGED = "diverged"


def seed_column(source: str) -> str:
  """Return the name of the column with a source's seeds."""
  return f"seed_{source}"
