"""What the outputs of a run mean: their roles, axes and labels, and what follows of them."""

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Integer, Num, Shaped

from vmapseeds.errors import (
  UserError,
  check_at_least,
  check_class_names,
  check_fields,
  check_one_of,
)
from vmapseeds.stats.counting import count_half_errors
from vmapseeds.training.names import FOLDER_NAMES, NOT_ASKED
from vmapseeds.training.runs import Run


class StoredRole(NamedTuple):
  """What arrays of a role are, and what is stored of them.

  Attributes:
    has_examples: the last axes are of examples.
    has_labels: the right class of each example is given, too.
    is_counted: accuracies and errors of each run, and votes, are stored, too.
    is_number: there is one number a run.
  """

  has_examples: bool = False
  has_labels: bool = False
  is_counted: bool = False
  is_number: bool = False


ROLES = {
  "class": StoredRole(has_examples=True, has_labels=True, is_counted=True),
  "loss": StoredRole(has_examples=True),
  "score": StoredRole(is_number=True),
  **dict.fromkeys(("logits", "count", "variable", "value"), StoredRole()),
}
FOLDER_AXES = ("run", "block")  # names of axes that no array of a run has
BLOCK_COUNTS = ("votes", "counted", "joint_errors")  # what is stored of classes a block
Shapes = Mapping[str, jax.ShapeDtypeStruct]
# Arrays that are stored once for all runs, by name, with their axes.
Constants = Mapping[str, tuple[Sequence[str], np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Keep:
  """What is kept of each run beside accuracies."""

  predictions: bool = True
  logits: bool = False
  params: bool = False  # parameters and batch statistics


DEFAULT_KEEP = Keep()


@check_fields("output")
@dataclasses.dataclass(frozen=True, eq=False)
class Output:
  """What an array that `finish` returns for each run means.

  Whoever declares a role gets what belongs to it:

  - `class`: the predicted class of each example, -1 for none. Accuracy in the progress
    line, votes and errors counted on the devices, `vs.report`, `vs.compare`,
    `vs.tally`, `--until`.
  - `loss`: a number for each example. Its mean, its variance on the test set and on the
    distribution that this is drawn from, the hardest examples.
  - `score`: a number for each run. Mean, standard deviation and quantiles with their
    intervals; the progress line.
  - `logits`, `count`, `variable` (of a network) and `value`, which is anything else, are
    stored.

  Attributes:
    dims: names of the axes, without that of the run; those that are not given are named
      after the array. Of `class`, those of the labels are the last; of `loss`, all are
      axes of examples. Several axes of examples are stored as one, `example`, with the
      index along each in an array of its name.
    role: one of the above.
    labels: of `class`: the right class of each example, from 0; anything where the mask
      is False.
    num_classes: of `class`: how many there are; None for as many as `labels` have.
    class_names: of `class`: what reports call the classes, the first class 0; None for
      their numbers.
    mask: of `class` and `loss`: bool, over the axes of examples: which ones count. The
      others are not stored.
    unit: of `score`: what its number counts, such as "reward".
    higher_is_better: of `score`.
    total: of `count`: what it is a part of. The fraction is stored.
    label_map: of `class`: the column of the runs table that maps labels, if it is there.
    series: name of a first axis along which the same quantity is repeated, such as
      "epoch".
    of: with `series`: the array that is its last entry. Else, of `count`: the array
      that it was counted in.
    partial: of `class` and `loss`: whether a run may be asked for some of the examples
      alone, as for those that it holds out. The others are -2 of a class, which is neither
      an answer nor an error, and NaN of a loss. Nothing of a class is counted on the
      devices then.
    kept: whether it is stored. What follows from a class is stored anyway.

  Raises:
    UserError: an attribute does not fit the role.
  """

  dims: Sequence[str] = ()
  role: str = "value"
  _: dataclasses.KW_ONLY
  labels: Integer[np.ndarray, "..."] | None = None
  num_classes: int | None = None
  class_names: Sequence[str] | None = None
  mask: Bool[np.ndarray, "..."] | None = None
  unit: str = ""
  higher_is_better: bool = True
  total: int | None = None
  label_map: str = ""
  series: str = ""
  of: str = ""
  partial: bool = False
  kept: bool = True

  def __post_init__(self):
    check_one_of("role", self.role, ROLES)
    for name in ("labels", "mask"):
      if getattr(self, name) is not None:
        object.__setattr__(self, name, np.asarray(getattr(self, name)))
    role = ROLES[self.role]
    has_labels = self.labels is not None
    if role.has_labels != has_labels:
      with_labels = "with labels" if has_labels else "without labels"
      raise UserError(
        f"role {self.role!r} {with_labels}: give the right class of each example with "
        "role='class', and only there"
      )
    if self.mask is not None and not (
      role.has_examples and self.mask.dtype == bool and self.mask.any()
    ):
      raise UserError(
        "mask: give a bool for each example of a class or a loss, True for at least one"
      )
    if self.labels is not None:
      least = least_classes(self.labels, self.mask)
      count = self.num_classes
      if count is None:
        count = least
      if self.label_map:  # which makes fewer classes
        least = 1
      object.__setattr__(
        self, "num_classes", check_at_least("num_classes", count, least)
      )
    if self.class_names is not None:
      if not role.has_labels:
        raise UserError(f"class_names with role {self.role!r}: leave them out")
      names = check_class_names(self.class_names, self.num_classes)
      object.__setattr__(self, "class_names", names)
    if self.partial and not role.has_examples:
      raise UserError(f"partial with role {self.role!r}: leave it out")

  @property
  def attributes(self) -> dict[str, Any]:
    """Return what a folder's description says of the array, ready for JSON."""
    fields = {name: getattr(self, name) for name in ("role", "series", "of", "unit")}
    fields["num_classes"] = self.num_classes
    if ROLES[self.role].has_labels:
      fields |= {"labels": "labels", "label_map": self.label_map}
    attributes = {
      name: value for name, value in fields.items() if value not in ("", None)
    }
    if ROLES[self.role].is_number:
      attributes["higher_is_better"] = self.higher_is_better
    if self.partial:
      attributes["partial"] = True
    return attributes

  @property
  def is_counted(self) -> bool:
    """Return whether accuracies, errors and votes follow from the array."""
    return ROLES[self.role].is_counted and not self.partial

  @property
  def of_labels(self) -> dict[str, Any]:
    """Return what a folder's description says of the array with the labels."""
    attributes: dict[str, Any] = {"role": "labels", "num_classes": self.num_classes}
    if self.class_names:
      attributes["class_names"] = list(self.class_names)
    return attributes

  @property
  def program(self) -> tuple:
    """Return what the program that measures the output depends on, to be hashed."""
    mask = None
    if self.mask is not None:
      mask = (self.mask.shape, self.mask.tobytes())
    axes = self.example_axes(len(self.dims))
    return self.role, self.series, self.label_map, axes, mask, self.partial

  def example_axes(self, ndim: int) -> int:
    """Return how many of an array's last axes are axes of examples."""
    if self.labels is not None:
      return self.labels.ndim
    if not ROLES[self.role].has_examples:
      return 0
    return ndim - 1 if self.series else ndim


def least_classes(
  labels: Shaped[np.ndarray, "..."], mask: Bool[np.ndarray, "..."] | None
) -> int:
  """Return how many classes there are at least by the labels that count.

  Raises:
    UserError: they are no classes, or do not fit the mask.
  """
  if labels.dtype.kind not in "iu" or not labels.size:
    raise UserError(
      f"labels are {labels.dtype} {labels.shape}: give at least one class, as integers"
    )
  if mask is not None and mask.shape != labels.shape:
    raise UserError(
      f"mask of shape {mask.shape} with labels of {labels.shape}: give a bool for each "
      "label"
    )
  counted = labels
  if mask is not None:
    counted = labels[mask]
  if counted.min() < 0:
    raise UserError(
      f"labels have {counted.min()}: give classes from 0, and leave examples without "
      "one out by mask"
    )
  return int(counted.max()) + 1


def sibling(name: str, array: str, series: str = "") -> str:
  """Return the name of another array in the same group.

  >>> sibling("test/predictions", "accuracy", "epoch")
  'test/epoch_accuracy'
  """
  group, slash, _ = name.rpartition("/")
  if series:
    array = f"{series}_{array}"
  return f"{group}{slash}{array}"


def declare_outputs(
  name: str, meanings: Mapping[str, Output], shapes: Shapes, taken: Iterable[str]
) -> dict[str, Output]:
  """Return the meaning of each array that `finish` returns.

  Args:
    name: the task's, for messages.
    meanings: what it declares.
    shapes: the shapes and dtypes that `finish` returns.
    taken: names that results have already.

  Raises:
    UserError: an array cannot be stored under its name, or is not what was declared.
  """
  declared = {}
  taken = set(taken).union(FOLDER_NAMES)
  for array, leaf in shapes.items():
    what = f"finish of {name} gives {array!r}"
    check_storable(what, array, leaf, taken)
    output = meanings.get(array, Output())
    own = array.rpartition("/")[2]
    dims = output.dims or tuple(f"{own}.{axis}" for axis in range(leaf.ndim))
    allowed = set(dims).difference(FOLDER_AXES)
    if isinstance(dims, str) or len(dims) != leaf.ndim or len(allowed) != leaf.ndim:
      raise UserError(
        f"dims of {array!r} are {dims!r}: give {leaf.ndim} names, all different, none "
        f"of them {' or '.join(FOLDER_AXES)}"
      )
    output = dataclasses.replace(output, dims=tuple(dims))
    check_role(what, output, leaf)
    declared[array] = output
  for array in meanings:
    check_one_of("array in outputs or dims", array, shapes)
  # JAX sorts dicts: the order is that of the declarations.
  return {array: declared[array] for array in dict.fromkeys((*meanings, *declared))}


def check_storable(
  what: str, array: Any, leaf: jax.ShapeDtypeStruct, taken: Collection[str]
) -> None:
  """Raise `UserError` unless results can have an array of this name, shape and dtype."""
  # Names between slashes are those of folders and files.
  legal = r"[^/\\.][^/\\]*(/[^/\\.][^/\\]*)*"
  is_printable = isinstance(array, str) and array.isprintable()
  if not is_printable or not re.fullmatch(legal, array):
    raise UserError(f"{what}: give a printable name without \\ and no . in front")
  if array.split("/")[0] in taken:
    raise UserError(f"{what}: that name is already used in the results, give another")
  if getattr(leaf.dtype, "kind", "") not in ("b", "i", "u", "f"):
    raise UserError(
      f"{what} of {leaf.dtype}: give numbers of NumPy's dtypes, such as float32"
    )
  if 0 in leaf.shape:
    raise UserError(
      f"{what} of shape {leaf.shape}, which has no number: leave it out, or give at "
      "least one along each axis"
    )


def check_role(what: str, output: Output, leaf: jax.ShapeDtypeStruct) -> None:
  """Raise `UserError` unless an array's shape and dtype fit its role."""
  shape = leaf.shape[leaf.ndim - output.example_axes(leaf.ndim) :]
  role = ROLES[output.role]
  if role.is_number and leaf.shape:
    raise UserError(
      f"{what} of shape {leaf.shape}: a {output.role} is one number a run"
    )
  if role.has_examples and not role.has_labels and not shape:
    raise UserError(f"{what}, one number: a {output.role} has one for each example")
  if output.labels is not None:
    if leaf.dtype.kind not in "iu":
      raise UserError(f"{what} of {leaf.dtype}: give classes as integers")
    if shape != output.labels.shape:
      raise UserError(
        f"{what} of shape {leaf.shape}, with labels of {output.labels.shape}: give a "
        "class for each label"
      )
  if output.mask is not None and output.mask.shape != shape:
    raise UserError(f"{what}: its mask has shape {output.mask.shape}, give {shape}")


def check_together(
  name: str, kept: Mapping[str, Output], shapes: Shapes, constants: Constants
) -> None:
  """Raise `UserError` unless all that is stored has a name of its own, and each axis one
  length.

  Args:
    name: the task's, for messages.
    kept: what is stored of a run.
    shapes: of that, without the axis of runs.
    constants: what is stored once.
  """
  # Name, axes and shape of each array: those that are stored once, those of blocks, and
  # those of runs.
  arrays: list[tuple[str, Sequence[str], Sequence[Any]]] = []
  for array, (dims, values) in constants.items():
    arrays.append((array, dims, np.shape(values)))
  for array, output in kept.items():
    if output.is_counted and not output.series:
      shape = (shapes[array].shape[-1], output.num_classes)
      for count in BLOCK_COUNTS:
        arrays.append((sibling(array, count), ("example", "class"), shape))
  for array, output in kept.items():
    arrays.append((array, output.dims, shapes[array].shape))

  groups = {array.rpartition("/")[0] for array in (*kept, *constants)}
  checked = {group: Opened(set(), {}) for group in (*groups, "")}
  for array, dims, array_shape in arrays:
    what = f"finish of {name} gives {array!r}"
    group, _, _ = array.rpartition("/")
    # A group is opened together with the arrays that are in none.
    opened_with = [group] if group else sorted(checked)
    for opened in opened_with:
      if array in groups:
        raise UserError(
          f"{what}: that name is already used in the results, give another"
        )
      checked[opened].add(what, array, dims, array_shape)


class Opened(NamedTuple):
  """The names and the lengths of axes of arrays that are opened together."""

  names: set[str]
  lengths: dict[str, int]

  def add(
    self, what: str, array: str, dims: Sequence[str], shape: Sequence[Any]
  ) -> None:
    """Add an array; raise `UserError` if its name or the length of an axis is another's."""
    _, _, own = array.rpartition("/")
    if own in self.names:
      raise UserError(f"{what}: that name is already used in the results, give another")
    self.names.add(own)
    for axis, size in zip(dims, shape, strict=False):
      other = self.lengths.setdefault(axis, size)
      if size != other:
        raise UserError(
          f"{what} with {size} along {axis!r}, another array has {other}: give the "
          "axes other names"
        )


def tested_classes(outputs: Mapping[str, Output]) -> dict[str, Output]:
  """Return the outputs that are classes of all examples at the end of training, by name.

  Raises:
    UserError: two of them are in one group.
  """
  classes = {
    name: output
    for name, output in outputs.items()
    if output.is_counted and not output.series
  }
  groups = [name.rpartition("/")[0] for name in classes]
  if len(set(groups)) < len(groups):
    raise UserError(
      f"{', '.join(classes)} are classes: name them 'a/predictions', 'b/predictions', in "
      "a group each, which has their accuracy"
    )
  return classes


def stored_outputs(outputs: Mapping[str, Output]) -> dict[str, Output]:
  """Return the meaning of everything that is stored of a run: the outputs that are kept,
  with flattened examples, and the counts that follow from classes.
  """
  meanings = {}
  for name, output in outputs.items():
    if output.kept:
      meanings[name] = dataclasses.replace(output, dims=stored_dims(output))
    if not output.is_counted:
      continue
    for derived, counts in counts_of_class(name, output).items():
      if derived in outputs:
        raise UserError(
          f"finish gives {derived!r}, which follows from the class {name!r}: leave it "
          "out, or give another name"
        )
      meanings[derived] = counts
  return meanings


def counts_of_class(name: str, output: Output) -> dict[str, Output]:
  """Return the meaning of the counts that follow from a class, by their names."""
  axes = output.example_axes(len(output.dims))
  lead = tuple(output.dims[: len(output.dims) - axes])
  total = select_examples(output, output.labels, axes).shape[-1]

  def count_in(counted, dims, total):
    return Output(dims, "count", total=total, series=output.series, of=counted)

  accuracy = sibling(name, "accuracy", output.series)
  half_errors = sibling(name, "half_errors", output.series)
  # The last entry of a series is the array of its own name.
  if output.series:
    return {
      accuracy: count_in("accuracy", lead, total),
      half_errors: count_in("half_errors", (*lead, "half"), None),
    }
  _, _, counted = name.rpartition("/")
  return {
    accuracy: count_in(counted, lead, total),
    half_errors: count_in(counted, (*lead, "half"), None),
  }


def stored_dims(output: Output):
  """Return the names of the axes of what is stored of an output."""
  axes = output.example_axes(len(output.dims))
  if axes < 2:
    return tuple(output.dims)
  return (*output.dims[: len(output.dims) - axes], "example")


def select_examples(output: Output, array, axes: int):
  """Return an array, of NumPy or JAX, with its last `axes` axes, those of examples, as
  one, and without the examples that the mask leaves out.
  """
  if axes > 1:
    array = array.reshape(*array.shape[: array.ndim - axes], -1)
  if output.mask is not None:
    array = array[..., np.flatnonzero(output.mask)]
  return array


def labels_of_outputs(
  outputs: Mapping[str, Output],
) -> dict[str, Integer[np.ndarray, " examples"]]:
  """Return the labels of the outputs that are classes, as they are stored, by name."""
  return {
    name: select_examples(output, output.labels, output.labels.ndim)
    for name, output in outputs.items()
    if output.labels is not None
  }


def constants(
  outputs: Mapping[str, Output], shapes: Shapes
) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
  """Return the arrays that are stored once for all runs, with their axes: labels, and
  the places of examples whose axes were flattened or masked.
  """
  arrays = {}
  for name, output in outputs.items():
    axes = output.example_axes(len(output.dims))
    dims = stored_dims(output)[-1:]
    if output.labels is not None:
      labels = select_examples(output, output.labels, axes)
      arrays[sibling(name, "labels")] = dims, labels
    if axes > 1 or output.mask is not None:
      shape = shapes[name].shape[len(output.dims) - axes :]
      for axis, places in zip(output.dims[-axes:], np.indices(shape), strict=True):
        arrays[sibling(name, axis)] = dims, select_examples(output, places, axes)
  return arrays


def stored_outputs_and_counts(
  outputs: Mapping[str, Output],
  labels: Mapping[str, Any],
  finished: Mapping[str, Num[Array, "..."]],
  run: Run,
) -> dict[str, Array]:
  """Return one run's outputs as they are stored, and the counts that follow from
  classes: how many are right, and how many are wrong among the examples of even and of
  odd index.

  Args:
    outputs: what they mean.
    labels: (examples,) of the outputs that are classes.
    finished: what `finish` returned.
    run: the run, for its label map.
  """
  results = {}
  for name, array in finished.items():
    output = outputs[name]
    array = select_examples(
      output, jnp.asarray(array), output.example_axes(jnp.ndim(array))
    )
    results[name] = array
    if not output.is_counted:
      continue
    is_right = array == apply_label_map(output, labels[name], run)
    accuracy = sibling(name, "accuracy", output.series)
    half_errors = sibling(name, "half_errors", output.series)
    results[accuracy] = is_right.sum(-1, dtype=jnp.int32)
    results[half_errors] = count_half_errors(~is_right)
  return results


def check_predictions(
  name: str,
  stored: Mapping[str, Output],
  values: Mapping[str, Shaped[np.ndarray, "runs ..."]],
) -> None:
  """Raise `UserError` if runs predict other classes than there are.

  Args:
    name: the task's, for messages.
    stored: what is stored of a run.
    values: that of some runs.
  """
  for array, output in stored.items():
    classes = output.num_classes
    if classes is None:
      continue
    lowest, highest = int(values[array].min()), int(values[array].max())
    least = NOT_ASKED if output.partial else -1
    if lowest >= least and highest < classes:
      continue
    remedy = f"give {classes - 1} at most, or -1 for none"
    if lowest >= least:
      remedy += f", or declare num_classes={highest + 1}"
    raise UserError(
      f"{name} predicts classes from {lowest} to {highest} in {array!r}, of which there "
      f"are {classes}: {remedy}"
    )


def apply_label_map(output: Output, labels, run: Run) -> Int[Array, " examples"]:
  """Return the labels through the run's label map, if it has one."""
  labels = jnp.asarray(labels)
  label_map = run.get(output.label_map)
  if label_map is None:
    return labels
  return label_map[labels]
