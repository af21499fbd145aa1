"""What the scripts train at each scale."""

RECIPES = {
  "smoke": "digits_cnn",
  "laptop": "narrow_cifar10",
  "gpu": "resnet9_cifar10",
  "paper": "resnet9_cifar10",
}
LENGTHS = {
  "smoke": "0 1 2 4",
  "laptop": "0 1 2 8",
  "gpu": "0 4 16 64",
  "paper": "0 4 16 64",
}
RUNS = {"smoke": 16, "laptop": 64, "gpu": 1000, "paper": 60_000}
OF_ONE_LENGTH = ("fig04", "fig09", "fig12", "fig14")
# Of figures that have runs of their own: runs, and what they vary
OTHER = {
  "smoke": {
    "fig06": "--runs 3 --every 73 --epochs 1",
    "fig07": "--runs 8 --epochs 1",
    "fig08": "--runs 4 --epochs 1",
    "fig10": "--runs 16 --epochs 1 2",
    "fig11": "--runs 8 --epochs 1 2 --eighths 0 4",
  },
  "laptop": {
    "fig06": "--recipe digits_cnn --runs 100 --every 5",
    "fig07": "--runs 32 --epochs 4 --few 500 --rates 0.005 0.05",
    "fig08": "--recipe digits_cnn --runs 100 --steps 2",
    "fig10": "--recipe digits_cnn --runs 250 --epochs 1 4 16 32 64",
    "fig11": "--recipe digits_cnn --runs 60 --epochs 1 16 64",
  },
  "gpu": {
    "fig06": "--runs 8 --every 7 --epochs 16",
    "fig07": "--runs 50 --epochs 16 --few 3000 --rates 0.05 1",
    "fig08": "--runs 50 --epochs 16",
    "fig10": "--runs 100 --epochs 1 4 16 32",
    "fig11": "--runs 50 --epochs 4 32 --eighths 0 1 2 4 6 7",
  },
  "paper": {
    "fig06": "--runs 100",
    "fig07": "--runs 1000 --few 3668 --rates 0.05 1",
    "fig08": "--runs 1000",
    "fig10": "--runs 4000 --epochs 1 4 16 32 64 128",
    "fig11": "--runs 1000 --epochs 4 128 --eighths 0 1 2 4 6 7",
  },
}


def script_flags(scale: str, script: str) -> list[str]:
  """Return what a script trains at a scale: little, or as much as the paper does."""
  flags = ["--recipe", RECIPES[scale]]
  if script in OTHER[scale]:
    return [*flags, *OTHER[scale][script].split()]
  flags += ["--runs", str(RUNS[scale])]
  lengths = LENGTHS[scale].split()
  if script in OF_ONE_LENGTH:
    lengths = lengths[-1:]
  return [*flags, "--epochs", *lengths]
