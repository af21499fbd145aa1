"""What the scripts train at each scale."""


def script_flags(scale: str, script: str) -> list[str]:
  """Return what a script trains at a scale: 8×8 digits, or what the paper does."""
  if scale == "smoke":
    return []
  last_layers = script == "fig12"
  if scale == "laptop":
    return ["--data", "cifar10", "--runs", "24" if last_layers else "30"]
  runs = {"fig12": "90", "table1": "1600"}
  return ["--data", "cifar10", "--runs", runs.get(script, "200")]
