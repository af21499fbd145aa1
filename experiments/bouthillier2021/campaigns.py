"""What the scripts train at each scale."""

EXACT = ("fig06", "figc1")  # nothing is trained
TASKS = {
  "smoke": ["breast_cancer", "digits"],
  "laptop": ["breast_cancer", "digits", "mnist", "cifar10", "peptides"],
  "gpu": ["breast_cancer", "digits", "mnist", "peptides", "vgg11"],
  "paper": ["breast_cancer", "peptides", "vgg11"],
}
SEARCHED = ("breast_cancer", "digits", "peptides", "vgg11")


def script_flags(scale: str, script: str) -> list[str]:
  """Return what a script trains at a scale: little, or as much as the gallery's runs, or
  the paper's.
  """
  if script in EXACT:
    return []
  names = TASKS[scale]
  if script == "fig05":
    names = [name for name in names if name in SEARCHED]
  flags = ["--tasks", *names]
  if scale == "smoke":
    sizes = {"fig01": "--runs 4 --repetitions 4 --searches 2 --trials 4"}
    sizes["fig05"] = "--runs 4 --repetitions 4 --searches 8 --trials 4"
    sizes["fig02"] = "--runs 4 --repetitions 4"
  elif scale == "laptop":
    sizes = {"fig01": "--searches 2", "fig02": ""}
    sizes["fig05"] = "--runs 20 --searches 60"
  else:
    sizes = {"fig01": "--searches 2 --trials 196", "fig02": ""}
    sizes["fig05"] = "--runs 100 --searches 100 --trials 196"
  return [*flags, *sizes[script].split()]
