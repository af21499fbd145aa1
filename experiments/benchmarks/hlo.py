"""The cost of an optimised XLA program: of each operation the compiler's own estimate,
else its bytes and products.
"""

import functools
import math
import re
from collections.abc import Callable
from typing import NamedTuple

FREE = {
  "parameter",
  "constant",
  "tuple",
  "get-tuple-element",
  "bitcast",
  "after-all",
  "partition-id",
  "iota",
  "opt-barrier",
  "copy-done",
  "slice-done",
  "async-done",
  "custom-call-done",
}
# Custom calls that do nothing: the slices that they join lie side by side already.
NOTHING = {"ConcatBitcast"}
# Asynchronous copies: their bytes count, their time does not.
BESIDE = {"copy-start", "slice-start", "async-start"}
SLICES = {"gather", "dynamic-slice", "slice"}
# An operation without the compiler's estimate takes this many times what its bytes or
# products take at the peak rates.
CHARGE = 2.0
ARRAY = re.compile(r"\b(pred|[a-z]+\d\w*)\[([\d,]*)\](?:\{([\d,]*)(?::([^}]*))?\})?")


class Chip(NamedTuple):
  """The peak rates of a device."""

  clock: float  # cycles a second
  flops: float  # bfloat16 floating-point operations a second
  bandwidth: float  # bytes a second to and from the main memory
  # Seconds of a kernel that does nothing, if the compiler does not count them
  launch: float = 0.0


class StepCost(NamedTuple):
  """What a program, or a part of it, costs when it runs once."""

  seconds: float = 0.0  # of its operations, one after another
  traffic: float = 0.0  # bytes to and from the device's main memory
  launches: float = 0.0  # operations, each a kernel on a GPU

  def times(self, number: float | int) -> "StepCost":
    return StepCost(*(number * part for part in self))


class Operation(NamedTuple):
  """One line of a computation."""

  name: str
  shape: str
  kind: str
  operands: list[str]
  rest: str  # everything from the operands on
  root: bool

  def attribute(self, name: str) -> str:
    """The computation that the attribute `name` refers to, as in `calls=%fused`; empty
    if there is none.
    """
    match = re.search(rf"\b{name}=%?([\w.\-]+)", self.rest)
    return match[1] if match else ""


def dimensions(text: str) -> list[int]:
  """The sizes in e.g. `64,8,8`."""
  return [int(d) for d in text.split(",") if d]


def sizes_of(shape: str) -> list[int]:
  """The sizes of the first array of a shape."""
  return dimensions(ARRAY.findall(shape)[0][1])


def size(shape: str, *, main: bool = False) -> float:
  """Bytes of the arrays of a shape as they are stored, padded to their tiles.

  Args:
    shape: as programs write it, of one array or of a tuple of arrays.
    main: whether to count only arrays in the main memory.
  """
  total = 0.0
  for kind, sizes, order, tiles in ARRAY.findall(shape):
    if main and "S(" in tiles:
      continue
    sizes = dimensions(sizes)
    tile = re.match(r"T\(([\d,]+)\)", tiles)
    if tile and sizes:
      for axis, step in zip(
        dimensions(order), reversed(dimensions(tile[1])), strict=False
      ):
        sizes[axis] = -(-sizes[axis] // step) * step
    bits = 8 if kind == "pred" else int(re.findall(r"\d+", kind)[0])
    total += math.prod(sizes) * bits / 8
  return total


class Program:
  """An optimised program, as `compiled.as_text()` gives it, on a chip.

  Args:
    text: the program.
    chip: what it is compiled for.
    rounds: the trip count assumed for a loop whose length is known only when it runs.
  """

  def __init__(self, text: str, chip: Chip, rounds: int = 1):
    self.chip, self.rounds = chip, rounds
    self.computations: dict[str, dict[str, Operation]] = {}
    operations = {}
    for line in text.splitlines():
      header = re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{\s*$", line)
      if header:
        operations = self.computations[header[2]] = {}
        if header[1]:
          self.entry = header[2]
        continue
      operation = re.match(
        r"\s+(ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\((.*)", line
      )
      if operation:
        root, name, shape, kind, rest = operation.groups()
        arguments = re.split(r"\)(?:, |$)", rest, maxsplit=1)[0]
        operands = re.findall(r"%([\w.\-]+)", arguments)
        operations[name] = Operation(name, shape, kind, operands, rest, bool(root))
    self.cost: Callable[[str], StepCost] = functools.cache(self._cost)
    self.read: Callable[[str, int], float] = functools.cache(self._read)

  def total(self) -> StepCost:
    """The cost of running the program once. Its seconds are at least those that its
    traffic takes.
    """
    cost = self.cost(self.entry)
    return cost._replace(seconds=max(cost.seconds, cost.traffic / self.chip.bandwidth))

  def _cost(self, computation: str) -> StepCost:
    costs = (self.of(computation, op) for op in self.computations[computation].values())
    return StepCost(*map(sum, zip(StepCost(), *costs, strict=True)))

  def of(self, computation: str, op: Operation) -> StepCost:
    """What one operation costs."""
    if op.kind == "while":
      return self.cost(op.attribute("body")).times(self.trips(op))
    if op.kind == "call":
      return self.cost(op.attribute("to_apply"))
    if op.kind == "conditional":
      names = re.findall(r"[\w.\-]+", op.rest)
      names = [name for name in names if name in self.computations]
      return max(self.cost(name) for name in names)
    target = re.search(r'custom_call_target="(\w+)"', op.rest)
    if op.kind in FREE or (target and target[1] in NOTHING):
      return StepCost()
    traffic = self.moved(computation, op, main=True)
    if op.kind in BESIDE:
      return StepCost(0.0, traffic, 0.0)
    estimated = re.search(r'"estimated_cycles":"([1-9]\d*)"', op.rest)
    if estimated:
      return StepCost(int(estimated[1]) / self.chip.clock, traffic, 1.0)
    moved = self.moved(computation, op) / self.chip.bandwidth
    products = self.flops(computation, op) / self.chip.flops
    return StepCost(
      max(CHARGE * moved, CHARGE * products, self.chip.launch), traffic, 1.0
    )

  def trips(self, loop: Operation) -> int:
    """How often a loop runs: the compiler's count, else the only constant in its
    condition, else `rounds`.
    """
    known = re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.rest)
    if known:
      return int(known[1])
    constants = []
    for op in self.computations[loop.attribute("condition")].values():
      number = re.match(r"(-?\d+)\)", op.rest)
      if op.kind == "constant" and number:
        constants.append(int(number[1]))
    # Several constants do not say which of them bounds the loop.
    if len(constants) != 1:
      return self.rounds
    return max(1, constants[0])

  # Bytes.

  def moved(self, computation: str, op: Operation, main: bool = False) -> float:
    """Bytes that an operation reads and writes. Of an array that it slices or gathers
    from, only the part it takes.
    """
    operations = self.computations[computation]
    shapes = [operations[o].shape if o in operations else "" for o in op.operands]
    if op.kind in SLICES:
      return size(op.shape, main=main) + size(op.shape, main=main and "S(" in shapes[0])
    if op.kind == "dynamic-update-slice":
      return 2 * size(shapes[1], main=main)
    if op.kind in BESIDE:
      # The shape is a copy, its source and a context. A slice is smaller than its source.
      return min(size(array[0]) for array in list(ARRAY.finditer(op.shape))[:-1])
    called = op.attribute("calls") if op.kind == "fusion" else None
    reads = [size(shape, main=main) for shape in shapes]
    if not called:
      return size(op.shape, main=main) + sum(reads)
    reads = [min(whole, self.read(called, n)) for n, whole in enumerate(reads)]
    root = next(o for o in self.computations[called].values() if o.root)
    return min(size(op.shape, main=main), self.written(called, root)) + sum(reads)

  def _read(self, computation: str, parameter: int) -> float:
    """Bytes that a fused computation reads of its n-th operand."""
    operations = self.computations[computation].values()
    names = [
      op.name
      for op in operations
      if op.kind == "parameter" and op.rest.startswith(f"{parameter})")
    ]
    return sum((self.used(computation, name) for name in names), 0.0)

  def used(self, computation: str, name: str) -> float:
    total = 0.0
    for op in self.computations[computation].values():
      if name not in op.operands:
        continue
      place = op.operands.index(name)
      called = op.attribute("calls")
      if op.kind in SLICES and place == 0:
        total += size(op.shape)
      elif op.kind == "bitcast" and not op.root:
        total += self.used(computation, op.name)
      elif op.kind == "fusion" and called:
        total += self.read(called, place)
      elif op.kind != "dynamic-update-slice" or place:
        # Its first operand is updated in place, and not read.
        return math.inf
    return total

  def written(self, computation: str, op: Operation) -> float:
    """Bytes that a fused computation writes for `op`, which is its root or an operand
    of its root.
    """
    operations = self.computations[computation]
    if op.kind == "dynamic-update-slice":
      return size(operations[op.operands[1]].shape)
    if op.kind in ("bitcast", "tuple"):
      return sum((self.written(computation, operations[o]) for o in op.operands), 0.0)
    return size(op.shape)

  # Products.

  def flops(self, computation: str, op: Operation) -> float:
    """Floating-point operations of the matrix products and convolutions of an
    operation.
    """
    called = op.attribute("calls") if op.kind == "fusion" else None
    if called:
      return sum(
        (self.flops(called, inner) for inner in self.computations[called].values()), 0.0
      )
    operations = self.computations[computation]
    shapes = [operations[o].shape if o in operations else "" for o in op.operands]
    contracted = re.search(r'lhs_contracting_dim\w*"?[=:][{\[]([^}\]]*)', op.rest)
    if contracted:
      sizes = sizes_of(shapes[0])
      axes = map(int, re.findall(r"\d+", contracted[1]))
      return (
        2.0 * math.prod(sizes_of(op.shape)) * math.prod(sizes[axis] for axis in axes)
      )
    labels = re.search(r"dim_labels=\w+_(\w+)->", op.rest)
    if labels:
      output = op.shape
      kernel = shapes[1]
      if "convBackwardInput" in op.rest:
        output = shapes[0]
      elif "convBackwardFilter" in op.rest:
        output = shapes[1]
        kernel = op.shape
      features = sizes_of(kernel)[labels[1].index("o")]
      return 2.0 * math.prod(sizes_of(output) + sizes_of(kernel)) / features
    return 0.0
