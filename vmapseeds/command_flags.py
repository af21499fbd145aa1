"""The flags of each command."""

from pathlib import Path

from vmapseeds.parsing import (
  Parser,
  Switch,
  parse_epochs,
  parse_number,
  parse_whole_number,
)


def execution_flags(parser: Parser) -> None:
  """Add the flags of `WorkOptions`."""
  parser.add(
    "--seed-batch",
    type=parse_whole_number,
    metavar="N",
    help=(
      "how many runs are trained and written together, and in a new folder form "
      "a block; an interruption loses at most these (default: 256, or what fits "
      "in memory)"
    ),
  )
  parser.add(
    "--checkpoint-every",
    type=parse_epochs,
    metavar="EPOCHS|auto|never",
    help=(
      "save runs in training every EPOCHS epochs, or rounds of a task; auto "
      "chooses the interval so that saving takes at most 2 %% of the time; an "
      "interruption loses at most these; the default is auto where a seed batch "
      "trains for longer than a minute (default: auto if long)"
    ),
  )
  parser.switch(
    "--force-mixed",
    help=(
      "resume even where recipe, package versions, device kind, lane width, "
      "lowering or precision differ from the folder's; the folder records that"
    ),
  )
  parser.switch(
    "--allow-upgrade",
    help=(
      "resume where the programs of the same recipe differ because versions of "
      "packages do; reports say which runs were trained with which"
    ),
  )


def campaign_flags(parser: Parser) -> None:
  """Add the flags of `Options`."""
  execution_flags(parser)
  parser.add(
    "--lane-width",
    type=parse_whole_number,
    metavar="N",
    help=(
      "lanes that a device advances together, at most the seed batch; results "
      "depend on it by rounding, so a folder keeps one; it is reduced if the "
      "devices' memory is too small (default: the folder's, else measured)"
    ),
  )
  parser.add(
    "--lowering",
    metavar="NAME",
    help=(
      "how convolutions run their lanes: im2col, grouped or sequential; results "
      "depend on it by rounding (default: the folder's, else measured)"
    ),
  )
  parser.add(
    "--no-tallies",
    action=Switch,
    const=False,
    default=True,
    dest="tallies",
    help=(
      "do not count a new folder's votes and errors on the devices: vs.tally and "
      "reports then read predictions (default: they are counted, unless runs "
      "have label maps)"
    ),
  )
  parser.switch(
    "--pairs",
    help=(
      "in a new folder, also count the joint errors of all pairs of n examples: "
      "n² numbers per seed batch and combination"
    ),
  )
  parser.add(
    "--predictions",
    default="all",
    metavar="all|none",
    help=(
      "all, or none to keep only tallies, accuracies and numbers of errors: then "
      "no prediction leaves the devices, and a run takes a few bytes (default: "
      "all)"
    ),
  )
  parser.switch("--logits", help="keep logits beside predictions")
  parser.switch(
    "--keep-params",
    help=(
      "keep the trained parameters and batch statistics of all runs, for "
      "vs.load_networks"
    ),
  )


def demo_flags(parser: Parser) -> None:
  parser.add(
    "--out",
    default="results/demo",
    metavar="DIR",
    help=(
      "results folder; rerun with the same folder to resume (default: results/demo)"
    ),
  )
  parser.add(
    "--runs",
    type=parse_whole_number,
    default=256,
    metavar="N",
    help="runs of each duration (default: 256)",
  )


def train_flags(parser: Parser) -> None:
  parser.add(
    "recipe",
    metavar="RECIPE",
    help=(
      "a name that `vmapseeds recipes` lists, or package.module:name, where the "
      "module may be in this folder"
    ),
  )
  parser.add(
    "--out",
    required=True,
    metavar="DIR",
    help="results folder; with more runs than it holds, it is extended",
  )
  parser.add(
    "--runs",
    type=parse_whole_number,
    default=256,
    metavar="N",
    help=(
      "number of runs in the results; with --sweep, of each combination (default: 256)"
    ),
  )
  parser.add(
    "--first-seed",
    type=parse_whole_number,
    default=0,
    metavar="N",
    help=(
      "seed of the first run; the others take the seeds after it. Folders of "
      "different seeds can be merged (default: 0)"
    ),
  )
  parser.add(
    "--until",
    metavar="'NAME rel X%'",
    help=(
      "train more than --runs, until half the width of a statistic's 95 %% "
      "interval is at most X, e.g. 'distribution_variance rel 10%%' or "
      "'mean_accuracy abs 0.02%%' (default: no more than --runs)"
    ),
  )
  parser.add(
    "--most-runs",
    type=parse_whole_number,
    default=100_000,
    metavar="N",
    help="with --until, the most runs to train (default: 100000)",
  )
  parser.several(
    "--vary",
    metavar="SOURCE",
    help=(
      "sources of randomness that vary; the others stay fixed. A recipe has "
      "those of init order augment dropout data that it uses, a task those that "
      "it names (default: all vary)"
    ),
  )
  parser.several(
    "--repeat",
    metavar="SOURCE=N",
    help=(
      "with --vary, train each of the --runs with each of N seeds of another "
      "source, e.g. --vary init --repeat order=5: the report says how much "
      "variance is due to each (default: none)"
    ),
  )
  parser.several(
    "--sweep",
    metavar="NAME=X,Y",
    help=(
      "values to sweep, in every combination: numbers and names of fields of the "
      "recipe, of its values and model_args, e.g. lr=0.01,0.05 "
      "optimizer=sgd,adam (default: none)"
    ),
  )
  parser.add(
    "--subset",
    type=parse_whole_number,
    metavar="N",
    help=(
      "train each run on N of the training examples, drawn by its data seed "
      "(default: all)"
    ),
  )
  parser.several(
    "--bootstrap",
    type=parse_whole_number,
    default=None,
    metavar="N",
    help=(
      "train each run on N examples, drawn with replacement by its data seed; "
      "without N, as many as there are (default: none)"
    ),
  )
  parser.several(
    "--k-fold",
    type=parse_whole_number,
    default=None,
    metavar="K",
    help=(
      "K or K REPEATS: train each run once for each of K folds of all examples, "
      "training and test: on the others, and test it on those of its own; REPEATS "
      "times, divided anew (default: none)"
    ),
  )
  parser.switch(
    "--stratified",
    help="with --k-fold, give each fold its share of each class",
  )
  parser.add(
    "--groups",
    metavar="FILE",
    help=(
      "with --k-fold, keep the examples of a group, such as a patient, in one fold: the "
      "group of each example, training then test, one a line, or .npy, .npz or .parquet; "
      "with --stratified as scikit-learn's StratifiedGroupKFold (default: none)"
    ),
  )
  parser.several(
    "--set",
    metavar="FIELD=VALUE",
    help=(
      "fields of the recipe to change, or values of the recipe or the task, e.g. "
      "epochs=4 lr=0.25 dataset=cifar10 (default: none)"
    ),
  )
  parser.add(
    "--workers",
    type=parse_whole_number,
    metavar="N",
    help=(
      "train in N processes of this machine, which share its cores (default: in this "
      "process)"
    ),
  )
  parser.add(
    "--ray",
    metavar="ADDRESS",
    help=(
      "train on the Ray cluster at HOST:PORT; local starts one here (default: in this "
      "process)"
    ),
  )
  parser.add(
    "--dask",
    metavar="ADDRESS",
    help=(
      "train on the workers of Dask's scheduler at HOST:PORT (default: in this process)"
    ),
  )
  parser.switch(
    "--dry-run",
    help=(
      "check everything and say what the runs will take, but train and write nothing"
    ),
  )
  parser.switch("--quiet", help="print neither progress nor what was chosen")
  campaign_flags(parser)


def work_flags(parser: Parser) -> None:
  parser.add("folder", metavar="DIR", help="results folder")
  parser.add(
    "--blocks",
    default=":",
    metavar="A:B",
    help="which blocks: from A up to but not including B (default: all)",
  )
  parser.add(
    "--dataset",
    metavar="PATH",
    help=(
      "where the data are now, if they were moved; they must be the same "
      "(default: where they were)"
    ),
  )
  parser.switch("--quiet", help="no progress")
  execution_flags(parser)


def verify_flags(parser: Parser) -> None:
  parser.add("folder", metavar="DIR", help="results folder")
  parser.switch(
    "--repair",
    help="remove the records of damaged blocks, so that their runs are trained again",
  )


def replay_flags(parser: Parser) -> None:
  parser.add("folder", metavar="DIR", help="results folder")
  parser.add(
    "--run",
    type=parse_whole_number,
    required=True,
    metavar="N",
    help="which run, from 0",
  )
  parser.add(
    "--dataset",
    metavar="PATH",
    help=(
      "where the data are now, if they were moved; they must be the same "
      "(default: where they were)"
    ),
  )


def merge_flags(parser: Parser) -> None:
  parser.add(
    "folders",
    nargs="*",
    default=[],
    metavar="DIR",
    help="results folders of one recipe (one or more)",
  )
  parser.add(
    "--out",
    required=True,
    metavar="DIR",
    help=(
      "folder for all the runs, new or empty; a run that several folders hold is "
      "taken once"
    ),
  )
  parser.switch(
    "--force-mixed",
    help=(
      "merge even where recipe, versions, device kind, lane width, lowering or "
      "precision differ"
    ),
  )
  parser.switch(
    "--allow-upgrade",
    help=(
      "merge where the programs of the same recipe differ because versions of "
      "packages do"
    ),
  )
  parser.switch("--quiet", help="no progress bar")


def import_flags(parser: Parser) -> None:
  parser.add(
    "scores",
    nargs="?",
    metavar="TABLE",
    help="a table of scores, a row for each run (or --predictions, or --logits)",
  )
  parser.add(
    "--out",
    required=True,
    metavar="DIR",
    help="folder for the results; new, empty, or with runs on the same examples",
  )
  parser.several(
    "--labels",
    metavar="[SET=]FILE",
    help="the true classes, (examples,) (default: those of DIR)",
  )
  parser.several(
    "--predictions",
    metavar="[SET=]FILE",
    help=(
      "predicted classes, (runs, examples), -1 for none, which is an error, -2 or nothing "
      "where a run was not asked (or --logits)"
    ),
  )
  parser.several(
    "--logits",
    metavar="[SET=]FILE",
    help=(
      "logits, (runs, examples, classes); .npy files may have any size, they are "
      "read a block of runs at a time (or --predictions)"
    ),
  )
  parser.add(
    "--values",
    type=Path,
    metavar="FILE",
    help=(
      ".csv, .tsv, .txt, .parquet or .npz file with a number for each run in "
      "columns: seed or seed_SOURCE, by which compare pairs runs, lr and others "
      "by any names (default: none)"
    ),
  )
  parser.switch("--keep-logits", help="keep logits beside predictions")
  parser.add(
    "--classes",
    type=parse_whole_number,
    metavar="N",
    help=(
      "number of classes (default: those of the logits, or up to the highest "
      "that occurs)"
    ),
  )
  parser.several(
    "--class-names",
    metavar="NAME",
    help="what reports call the classes, the first class 0 (default: numbers)",
  )
  parser.several(
    "--example-ids",
    metavar="[SET=]FILE",
    help=(
      "the id of each example, one a line, or .npy, .npz or .parquet: what tables show, "
      "and by which compare matches the examples of two folders (default: none)"
    ),
  )
  parser.add(
    "--name",
    metavar="NAME",
    help="name of these runs in reports (default: the name of the file)",
  )
  parser.add(
    "--header",
    metavar="yes|no",
    help=(
      "whether the first line of predictions and labels in text files is names, "
      "where it may be names or numbers, such as 0,1,2 (default: as the file "
      "shows)"
    ),
  )
  parser.switch(
    "--quiet",
    help="no progress bar, and no line on how a text file was read",
  )
  parser.several(
    "--by",
    metavar="COLUMN",
    help="of a table: the columns with what varies (default: those of text)",
  )
  table_flags(parser)


def list_flags(parser: Parser) -> None:
  parser.add(
    "folder",
    nargs="?",
    default="results",
    metavar="DIR",
    help="folder with results folders, at any depth (default: results)",
  )


def table_flags(parser: Parser) -> None:
  """Add the flags that say what the columns of a table of scores are."""
  parser.several(
    "--score",
    default=None,
    metavar="COLUMN",
    help=(
      "of a table: the columns with scores, of which the first is compared (default: "
      "the only one that can be)"
    ),
  )
  parser.several(
    "--lower-is-better",
    default=None,
    metavar="COLUMN",
    help="of a table: lower scores are better; of several scores, of these (default: none)",
  )
  parser.switch(
    "--higher-is-better",
    help="of a table: higher scores are better, though the name sounds otherwise",
  )
  parser.several(
    "--seed",
    default=None,
    metavar="COLUMN",
    help=(
      "of a table: the columns that tell repeats apart, by which runs are paired "
      "(default: seed, seed_..., run, trial or alike)"
    ),
  )
  parser.add(
    "--task",
    metavar="COLUMN",
    help="of a table: the column with tasks (default: task, dataset, env or alike)",
  )
  parser.add(
    "--fold",
    metavar="COLUMN",
    help="of a table: the column with folds (default: fold or alike)",
  )
  parser.add(
    "--step",
    metavar="COLUMN",
    help=(
      "of a table: the column with the steps of learning curves (default: step, epoch "
      "or alike)"
    ),
  )
  parser.add(
    "--at",
    metavar="STEP",
    help=(
      "of a table: the step at which scores are taken: last, best or a number "
      "(default: last)"
    ),
  )
  parser.several(
    "--wide",
    default=None,
    metavar="COLUMN",
    help=(
      "of a table: every column of numbers, or each of these, has the scores of one "
      "model (default: a row for each run)"
    ),
  )


def report_flags(parser: Parser) -> None:
  parser.add(
    "folders",
    nargs="*",
    default=[],
    metavar="DIR",
    help="results folders, or tables of scores (one or more)",
  )
  parser.several(
    "--by",
    metavar="COLUMN",
    help=(
      "columns of the runs table that group the runs, e.g. lr or seed_init; runs "
      "are pooled over all other columns (default: all that are swept)"
    ),
  )
  parser.several(
    "--where",
    metavar="COLUMN=NUMBER",
    help=(
      "take only the runs with these values, e.g. lr=0.02,0.05 momentum=0.9 "
      "(default: all runs)"
    ),
  )
  parser.add(
    "--test-set",
    default="test",
    metavar="NAME",
    help="which test set (default: test)",
  )
  parser.add(
    "--epoch",
    type=parse_whole_number,
    metavar="N",
    help=(
      "report the results after this epoch, for runs trained with evaluate_every "
      "(default: the end of the training)"
    ),
  )
  parser.add(
    "--images",
    metavar="FILE",
    help=(
      "inputs of the test examples, shown on the pages: pictures, rows or texts; "
      "a .npy file, an .npz file with x_test or one array, or a data set, e.g. "
      "cifar10 (default: the recipe's data set, if it is on the disk)"
    ),
  )
  parser.add(
    "--out",
    metavar="DIR",
    help=(
      "folder for the pages (default: report in each DIR; side by side: "
      "report/side_by_side in the first)"
    ),
  )
  parser.add(
    "--format",
    default="text",
    metavar="text|md|png|pdf",
    help=(
      "print tables for a terminal, or in Markdown; png or pdf write figures in "
      "that format, beside SVG (default: text)"
    ),
  )
  parser.switch("--open", help="show the page in a browser")
  table_flags(parser)


def compare_flags(parser: Parser) -> None:
  parser.add(
    "folders",
    nargs="*",
    default=[],
    metavar="DIR",
    help=(
      "results of A, and of B, C and so on, each of which is compared with A "
      "(one or more)"
    ),
  )
  parser.several(
    "--where",
    metavar="COLUMN=NUMBER",
    help=(
      "take only the runs of A with these values, e.g. lr=0.02,0.05 momentum=0.9 "
      "(default: all runs of the first)"
    ),
  )
  parser.several(
    "--against",
    metavar="COLUMN=NUMBER",
    help=(
      "take only the runs of the others with these values (default: all runs of "
      "the others)"
    ),
  )
  parser.several(
    "--by",
    metavar="COLUMN",
    help=(
      "columns of a single DIR whose values are compared, every two, or each with the "
      "one that --against names (default: none; of a table, its columns of text)"
    ),
  )
  parser.several(
    "--over",
    metavar="COLUMN",
    help=(
      "swept columns over whose values runs of the same seeds are averaged, e.g. "
      "optimizer (default: none)"
    ),
  )
  parser.switch("--all-pairs", help="compare every two folders")
  parser.add(
    "--margin",
    type=parse_number,
    metavar="X",
    help=(
      "a difference that does not matter, in percentage points of accuracy, or "
      "in the unit of the loss or score; A and B may then be called equal "
      "(default: none)"
    ),
  )
  parser.add(
    "--gamma",
    type=parse_number,
    default=0.75,
    help=(
      "P(A > B) from which Bouthillier's criterion calls a difference meaningful "
      "(default: 0.75)"
    ),
  )
  parser.add(
    "--test-set",
    default="test",
    metavar="NAME",
    help="which test set (default: test)",
  )
  parser.add(
    "--epoch",
    type=parse_whole_number,
    metavar="N",
    help=(
      "compare the results after this epoch, for runs trained with "
      "evaluate_every (default: the end of the training)"
    ),
  )
  parser.switch(
    "--paired",
    help=(
      "pair the runs row by row; without this flag, runs with the same seeds are "
      "paired if most runs have a partner"
    ),
  )
  parser.add(
    "--output",
    metavar="NAME",
    help=(
      "the output of role class, loss or score to compare (default: the first of "
      "the first folder)"
    ),
  )
  parser.add(
    "--out",
    metavar="DIR",
    help=(
      "folder for the page (default: report/<test set, epoch, where>/against_<B> "
      "in the first folder)"
    ),
  )
  table_flags(parser)


def sample_size_flags(parser: Parser) -> None:
  parser.add("a", metavar="DIR", help="results of the pilot")
  parser.add(
    "b",
    nargs="?",
    metavar="DIR_B",
    help=(
      "results of another recipe with the same seeds: they say what pairing by "
      "seeds saves (default: none)"
    ),
  )
  parser.add(
    "--detect",
    type=parse_number,
    metavar="X",
    help=(
      "the mean is wanted to within X, and a difference of X between two recipes "
      "is to be shown: in percentage points of accuracy, or in the unit of the "
      "loss or score (default: about half a standard deviation)"
    ),
  )
  parser.add(
    "--power",
    type=parse_number,
    default=0.8,
    help="how often such a difference is to be shown (default: 0.8)",
  )
  parser.several(
    "--where",
    metavar="COLUMN=NUMBER",
    help=(
      "take only the runs of DIR with these values, e.g. lr=0.02 (default: all "
      "runs of DIR)"
    ),
  )
  parser.several(
    "--against",
    metavar="COLUMN=NUMBER",
    help=(
      "take only the runs of DIR_B, by default of DIR, with these values "
      "(default: all runs of DIR_B)"
    ),
  )
  parser.add(
    "--test-set",
    default="test",
    metavar="NAME",
    help="which test set (default: test)",
  )
  parser.add(
    "--epoch",
    type=parse_whole_number,
    metavar="N",
    help=(
      "take the results after this epoch, for runs trained with evaluate_every "
      "(default: the end of the training)"
    ),
  )
  parser.add(
    "--output",
    metavar="NAME",
    help="the output of role class, loss or score (default: the first of DIR)",
  )
  table_flags(parser)


def confusion_flags(parser: Parser) -> None:
  parser.add("folder", metavar="DIR", help="results folder")
  parser.several(
    "--where",
    metavar="COLUMN=NUMBER",
    help=(
      "take only the runs with these values, e.g. lr=0.02,0.05 momentum=0.9 "
      "(default: all runs)"
    ),
  )
  parser.add(
    "--test-set",
    default="test",
    metavar="NAME",
    help="which test set (default: test)",
  )
  parser.add(
    "--epoch",
    type=parse_whole_number,
    metavar="N",
    help="after which epoch (default: the end)",
  )
  parser.add(
    "--out",
    metavar="DIR",
    help="folder for the page (default: DIR/report/confusion)",
  )


def examples_flags(parser: Parser) -> None:
  parser.add("folder", metavar="DIR", help="results folder")
  parser.add(
    "--most",
    default="split",
    metavar="NAME",
    help=(
      "which come first: split, where runs agree least; hard, where most are "
      "wrong; mislabelled, where most agree on another class than the label "
      "(default: split)"
    ),
  )
  parser.add(
    "--n",
    type=parse_whole_number,
    default=20,
    metavar="N",
    help="the most examples to print (default: 20)",
  )
  parser.several(
    "--where",
    metavar="COLUMN=NUMBER",
    help=(
      "take only the runs with these values, e.g. lr=0.02,0.05 momentum=0.9 "
      "(default: all runs)"
    ),
  )
  parser.add(
    "--output",
    metavar="NAME",
    help="the output of role class or loss (default: the first)",
  )
  parser.add(
    "--test-set",
    default="test",
    metavar="NAME",
    help="which test set (default: test)",
  )
  parser.add(
    "--epoch",
    type=parse_whole_number,
    metavar="N",
    help=(
      "after which epoch, for runs trained with evaluate_every (default: the end "
      "of the training)"
    ),
  )
