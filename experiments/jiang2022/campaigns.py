"""What the scripts train at each scale."""

import vmapseeds as vs


def script_flags(scale: str, script: str) -> list[str]:
  """Return what a script trains at a scale: 8×8 digits, or what the paper does."""
  if scale == "smoke":
    return []
  runs = "4" if script == "fig01" else "100"
  if scale == "laptop":
    return ["--runs", runs]
  recipe = vs.recipe("resnet18_cifar10")
  flags = ["--recipe", recipe.name, "--epochs", str(recipe.epochs), "--runs", runs]
  if script == "fig05":
    return flags
  train = "25000" if script == "fig01" else "10000"
  return [*flags, "--examples", "50000", "--train", train]
