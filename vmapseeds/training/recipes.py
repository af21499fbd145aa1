"""Recipes: everything about a training but its randomness (the papers' 𝒜), frozen and
named.
"""

import copy
import dataclasses
import functools
import json
import os
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Annotated, Any, NamedTuple

from vmapseeds import models
from vmapseeds.errors import (
  Rule,
  UnknownField,
  UserError,
  check_at_least,
  check_fields,
  check_number,
  check_one_of,
  hide_own_frames,
  hide_own_frames_of_methods,
  is_bool,
  safe_name,
  whole_number,
  wording,
)
from vmapseeds.training import objects
from vmapseeds.training.names import (
  FOLDER_NAMES,
  HELD_OUT,
  MADE_COLUMNS,
  OF_TEST_SETS,
  OPTIMIZERS,
  SOURCES,
  seed_column,
)

# Training computes in float32, where numbers beyond these limits become 0 or infinity.
FLOAT32_TINY, FLOAT32_MAX = 1.2e-38, 3.4e38
MOST_EPOCHS = 10**6  # steps are counted in 32 bits
MOST_WIDTH = 1000
HYPERPARAMETERS = ("lr", "momentum", "weight_decay", "gamma")
# Fields that no sweep varies: what they change is not the training, or other data, or no
# number and no name.
NOT_SWEPT = (
  *("name", "version", "dataset", "test_sets", "start_from", "sources"),
  *("values", "model_args", "metrics", "milestones", "normalize", "mean", "std"),
)
# Names of other arrays and groups in a results folder, which a test set cannot have.
RESERVED = (
  HELD_OUT,
  *FOLDER_NAMES,
  *MADE_COLUMNS,
  *HYPERPARAMETERS,
  *map(seed_column, SOURCES),
  *("diverged", "nonfinite_steps", "variables", "epoch", "trained_epochs"),
  *("repeats", "input_mean", "input_std", "input_moments"),
  *(
    f"{series}{part}_{what}"
    for series in ("", "epoch_")
    for part in ("train", "valid", "test")
    for what in ("loss", "accuracy", "examples")
  ),
)


class RegisteredNames(NamedTuple):
  """The registered names of a field, and what may stand in place of a name. The code
  that uses a name says what it means.
  """

  names: tuple[str, ...]
  other: str = ""

  def check(self, what: str, value) -> None:
    """Raise `UserError` unless `value` is a name or what may stand in its place."""
    if not self.other or objects.is_name(value):
      return check_one_of(what, value, self.names)
    if self.other == MODELS and objects.is_pair(value):
      return
    if callable(value) or isinstance(value, str | objects.ImportedByName):
      return
    field = what.split()[0]
    names = ""
    if self.names:
      names = f"a name ({', '.join(self.names)}), "
    raise UserError(
      f"{field} is {value!r:.100}: give {names}package.module:name, or {self.other}"
    )


class Trainable:
  """A rule: what may say which parameters are trained."""

  def check(self, what: str, value) -> None:
    """Raise `UserError` unless `value` says which parameters are trained."""
    if value == "all":
      return
    is_list = isinstance(value, tuple) and len(value) > 0
    if is_list and all(isinstance(name, str) and name for name in value):
      return
    is_text = isinstance(value, str | objects.ImportedByName)
    if callable(value) or (is_text and not objects.is_name(value)):
      return
    raise UserError(
      f"trainable is {value!r:.100}: give all, a list of parameters or layers such as "
      "['head'], or a function of such a name"
    )


MODELS = "a module of Flax or Equinox, its class, a Haiku transform, or (init, apply)"
AUGMENTATIONS = ("flip", "alternate", "translate", "reflect", "cutout")
WITHOUT_SIZE = ("flip", "alternate")
METRICS = (
  *(
    "auc",
    "average_precision",
    "balanced_accuracy",
    "sensitivity",
    "specificity",
    "f1",
  ),
  *("brier", "log_loss", "ece", "r2", "rmse", "concordance_index"),
)
FROM_0 = Rule(lambda n: n >= 0, "a whole number of at least 0")
FROM_1 = Rule(lambda n: n >= 1, "a whole number of at least 1")
BELOW_1 = Rule(lambda x: 0 <= x < 1, "a number of at least 0 and below 1")
FINITE = Rule(lambda x: abs(x) <= FLOAT32_MAX, "a finite number")
NOT_NEGATIVE = Rule(lambda x: 0 <= x <= FLOAT32_MAX, "a finite number of at least 0")


@hide_own_frames_of_methods
@check_fields("recipe")
@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Recipe:
  """A training configuration without its randomness. Without a `name` it is called as its
  model.

  `dataset`, `model`, `loss`, `optimizer`, `schedule`, `augment` and `predict` are a
  registered name, an import string "package.module:attribute", or the object itself:

  - `dataset`: `digits`, a tensorflow-datasets name, the path of an .npz (which becomes
    absolute), or a `vs.Dataset`.
  - `model`: a Flax module (Linen or NNX) or its class. A class gets those of
    `num_classes`, `width`, `depth`, `dtype`, `dropout`, `rngs` that it takes; its own
    defaults count where `width`, `depth`, `dropout` here are not set. The module is
    called with a batch of inputs, and with `train` if it takes that. Or an Equinox
    module, its class, or a function of `key` that makes one, called with one input. Or
    a Haiku transform, or any `(init, apply)`.
  - `model_args`: further arguments of a class or function that makes the model, by name.
  - `eval_model`: a model with the same parameters that is evaluated instead, if the
    mode is a field of the module.
  - `initialize(variables, data, run)`: the variables that training starts from, given
    those that the model drew. `data.inputs` and `data.targets` are the run's training
    examples as stored, `data.preprocess(rows)` makes inputs of some; `run.key("init")` is the key.
  - `loss(outputs, targets)`: one number per example, (batch,); training minimises their
    mean.
  - `optimizer(run, steps)`: an `optax.GradientTransformation`; `run["lr"]` is a value
    of the run, traced.
  - `eval_params(opt_state, params)`: the parameters that are evaluated and kept, where
    an optimizer averages them; optax's own that do (schedule-free, lookahead) need
    none.
  - `schedule(run, steps)`: the learning rate as a function of the step, for a training
    of `steps` steps.
  - `augment(key, input)`: one input, augmented; each has a key of its own.
  - `objective(model, params, batch, run)`: the number whose gradient in `params` trains
    the network, and the updates that `model.apply` returned: see docs/howto/own_step.md.
  - `predict(outputs)`: what is kept of each example: `argmax`, or `outputs` as they are;
    by default the first where targets are classes, the second where they are not.
  - `metrics`: numbers of each run beside its accuracy or loss, by names: functions of
    (outputs, targets) of a whole test set, import strings, or ready ones such as "auc";
    a list of ready ones is as good. They are evaluated with the run, under `jit`, and
    are outputs of role score. Higher is better, unless a function has the attribute
    `higher_is_better = False`.

  A sweep may vary any field that is a number or a name, and any name in `values` or
  `model_args`. `lr`, `momentum`, `weight_decay`, `gamma`, `label_smoothing`, `values`,
  and `dropout` of a built-in model are traced, so that all their values compile once;
  the others compile once a value.

  Raises:
    UserError: a field's value is not allowed.
  """

  name: Annotated[str, safe_name] = ""
  dataset: Any
  model: Annotated[Any, RegisteredNames(models.NAMES, MODELS)]
  # 0: evaluated at initialisation
  epochs: Annotated[
    int, FROM_0, Rule(lambda n: n <= MOST_EPOCHS, f"at most {MOST_EPOCHS}")
  ]
  # The last, smaller batch of an epoch is dropped
  batch_size: Annotated[int, FROM_1]
  # Numbers and names
  model_args: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  # None: `model` itself
  eval_model: Annotated[Any, RegisteredNames(models.NAMES, MODELS)] = None
  # None: the variables that the model draws
  initialize: Annotated[
    Any, RegisteredNames((), "a function of (variables, data, run)")
  ] = None
  # Examples that are evaluated at once; None: at most 500, fewer if their arrays are large
  eval_batch_size: Annotated[int | None, FROM_1] = None
  # May be None if an optimizer of your own does not use it
  lr: Annotated[float | None, NOT_NEGATIVE] = None
  # Of SGD; the first-moment decay of Adam
  momentum: Annotated[float, BELOW_1] = 0.9
  # Of every parameter: added to the gradient, or with AdamW subtracted from the weights
  weight_decay: Annotated[float, NOT_NEGATIVE] = 0.0
  # Factor on the learning rate: of `step` at each milestone, of `exponential` in each
  # epoch
  gamma: Annotated[float, NOT_NEGATIVE] = 0.1
  # Others that an optimizer or schedule reads
  values: Mapping[str, float] = dataclasses.field(default_factory=dict)
  optimizer: Annotated[
    Any, RegisteredNames(tuple(OPTIMIZERS), "a function of (run, steps)")
  ] = "sgd"
  # linear, cosine: down to 0 by the end of training
  schedule: Annotated[
    Any,
    RegisteredNames(
      ("constant", "linear", "step", "exponential", "cosine"),
      "a function of (run, steps)",
    ),
  ] = "constant"
  # None: what the optimizer's own state says
  eval_params: Annotated[
    Any, RegisteredNames((), "a function of (opt_state, params)")
  ] = None
  # Epochs, also fractions, in which the learning rate first rises linearly to its full
  # value
  warmup: float = 0.0
  # Epochs, counted from the start, after which the schedule `step` applies gamma
  milestones: Annotated[
    tuple[int, ...],
    Rule(lambda epochs: min(epochs, default=1) >= 1, "epochs from 1 on"),
  ] = ()
  loss: Annotated[
    Any,
    RegisteredNames(
      ("cross_entropy", "squared_error"), "a function of (outputs, targets)"
    ),
  ] = "cross_entropy"
  # None: the mean of `loss`
  objective: Annotated[
    Any, RegisteredNames((), "a function of (model, params, batch, run)")
  ] = None
  sources: tuple[str, ...] = ()  # of randomness, that the objective has of its own
  label_smoothing: Annotated[float, BELOW_1] = 0.0  # of cross entropy
  # Built in: steps in order, e.g. "flip translate=2 cutout=12"
  augment: Annotated[
    Any, RegisteredNames(AUGMENTATIONS, "a function of (key, input)")
  ] = ""
  # None: argmax of classes, other outputs as they are
  predict: Annotated[
    Any, RegisteredNames(("argmax", "outputs"), "a function of outputs")
  ] = None
  # Beside accuracy or loss
  metrics: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  # Multiplies the model's channels
  width: Annotated[
    float,
    Rule(
      lambda x: 0 < x <= MOST_WIDTH, f"a finite number above 0, at most {MOST_WIDTH}"
    ),
  ] = 1.0
  # Layers, as `mlp` and models of your own count them; None: the model's default
  depth: Annotated[int | None, FROM_1] = None
  dropout: Annotated[float, BELOW_1] = 0.0  # rate before the last layer, in training
  # Whether the network sees (input - mean) / std, or inputs as they are
  normalize: bool = True
  # Per channel, in pixel values; None: the training set's
  mean: Annotated[
    tuple[float, ...] | None,
    Rule(lambda m: all(map(FINITE.fits, m)), "finite numbers, one a channel"),
  ] = None
  std: Annotated[
    tuple[float, ...] | None,
    Rule(
      lambda std: all(FLOAT32_TINY <= s <= FLOAT32_MAX for s in std),
      "finite numbers above 0, one a channel",
    ),
  ] = None
  test_sets: tuple[str, ...] = ("test",)
  # Of the computation; auto: bfloat16 on GPU and TPU, else float32. tensorfloat32 takes
  # GPUs and TPUs fewer passes a product than float32. Parameters are
  # float32
  precision: Annotated[
    str, RegisteredNames(("auto", "float32", "tensorfloat32", "bfloat16"))
  ] = "auto"
  # A run stops after an epoch with this accuracy on its training examples
  stop_at: Annotated[
    float | None,
    Rule(lambda a: 0 < a <= 1, "an accuracy above 0, at most 1: all examples"),
  ] = None
  # Epochs between evaluations; there is one at the end, too. None: only that
  evaluate_every: Annotated[int | None, FROM_1] = None
  # Whether evaluations include loss and accuracy on the run's training examples
  training_metrics: bool = False
  # Folder with n stored networks: run i starts from network i modulo n
  start_from: str | None = None
  # Or names of parameters or layers, such as ("head",), or a function that is true of the
  # names to train. The network is in evaluation mode
  trainable: Annotated[Any, Trainable()] = "all"
  # Part of the identity. What calls Python (`jax.pure_callback`) needs one, and another
  # after each change of what is called
  version: str = ""
  # The import string that it came from
  origin: str = dataclasses.field(default="", compare=False)

  def __post_init__(self):
    # Set through `vars`, because the dataclass is frozen.
    if self.name == "":
      vars(self)["name"] = model_name(self.model)
    self._check(_HINTS)

  def __repr__(self) -> str:
    """Return the fields that differ from their defaults, in a line."""
    defaults = {f.name: f.default for f in dataclasses.fields(self)}
    parts = []
    for name in FIELDS:
      value = getattr(self, name)
      if value is defaults[name] or value == defaults[name] or value == {}:
        continue
      text = repr(value)
      if objects.is_object(value):
        text = objects.name_of(value)
      parts.append(f"{name}={text:.200}")
    return f"Recipe({', '.join(parts)})"

  def __hash__(self) -> int:
    # Not of objects of the user's, such as a module with a dict: these need no hash.
    return hash((self.name, self.epochs, self.batch_size, self.lr))

  def _check(self, names):
    """Coerce these fields to plain Python, and raise `UserError` for a value that is not
    allowed.
    """
    fields = {name: getattr(self, name) for name in names}
    fields |= self._split_values(fields.pop("values", self.values))
    fields["model_args"] = self._checked_args(self.model_args)
    fields["metrics"] = self._checked_metrics(self.metrics)
    for name, value in fields.items():
      if name not in ("values", "model_args", "metrics"):
        fields[name] = self._checked_field(name, value)
    vars(self).update(fields)
    self._check_paths()
    if self.lr is None and objects.is_name(self.optimizer):
      raise UserError(f"recipe {self.name!r} lacks lr: give a learning rate")
    if not 0 <= self.warmup < max(1, self.epochs):
      raise UserError(
        f"warmup is {self.warmup!r}: give at least 0 and fewer than the {self.epochs} "
        "epochs"
      )
    check_test_sets(self.test_sets)
    self._check_together()

  def _checked_field(self, name: str, value: Any) -> Any:
    """Return a field's value in plain Python, if its rules allow it."""
    hint, *rules = _HINTS[name]
    value = _coerced(name, hint, value)
    if value is None:
      return value
    if name == "name":
      safe_name("recipe name", value)
      return value
    if name == "augment" and objects.is_name(value):
      augmentation(value)
      return value
    for rule in rules:
      described = name
      if isinstance(rule, RegisteredNames | Trainable):
        described = f"{name} of recipe {self.name!r}:"
      rule.check(described, value)
    return value

  def _check_paths(self) -> None:
    """Check the data set, and make paths absolute."""
    is_named = isinstance(self.dataset, str | objects.ImportedByName)
    if not is_named and not hasattr(self.dataset, "tests"):
      raise UserError(
        f"dataset is {self.dataset!r:.200}: give a name, the path of an .npz, or a "
        "vs.Dataset"
      )
    # Absolute, because a campaign may be resumed from another working directory.
    if isinstance(self.dataset, str) and self.dataset.endswith(".npz"):
      vars(self)["dataset"] = os.path.abspath(os.path.expanduser(self.dataset))
    if self.start_from is not None and "://" not in self.start_from:
      vars(self)["start_from"] = os.path.abspath(os.path.expanduser(self.start_from))

  def _split_values(self, values: Any) -> dict[str, Any]:
    """Return the hyperparameters among `values` as fields, and the other values."""
    if not isinstance(values, Mapping):
      raise UserError(
        f"values is {values!r:.100}: give numbers by their names, such as "
        "{'temperature': 0.1}"
      )
    fields: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, value in values.items():
      if name in HYPERPARAMETERS:
        fields[name] = value
        if getattr(self, name) != getattr(Recipe, name):
          raise UserError(
            f"{name} is {getattr(self, name)!r}, and {value!r} in values: give one "
            "of the two"
          )
      elif safe_name("value", name) in (*RESERVED, *FIELDS):
        raise UserError(
          f"value {name!r}: that name is already used in the results, rename it"
        )
      else:
        others[name] = value
    numbers = {name: hyperparameter(name, value) for name, value in others.items()}
    return fields | {"values": numbers}

  def _checked_args(self, args: Any) -> dict[str, Any]:
    """Return the arguments of the model in plain Python."""
    if not isinstance(args, Mapping):
      raise UserError(
        f"model_args is {args!r:.100}: give arguments of the model by name, such as "
        "{'hidden': 64}"
      )
    plain = {}
    for name, value in args.items():
      if safe_name("model argument", name) in (*RESERVED, *FIELDS, *self.values):
        raise UserError(
          f"model argument {name!r}: that name is already used in the recipe, rename it"
        )
      plain[name] = value
      if value is None or isinstance(value, str):
        continue
      if is_bool(value):
        plain[name] = bool(value)
        continue
      plain[name] = whole_number(value)
      if plain[name] is None:
        plain[name] = check_number(f"model argument {name}", value)
    return plain

  def _checked_metrics(self, metrics: Any) -> dict[str, Any]:
    """Return functions, or names of functions, by the names of metrics."""
    if isinstance(metrics, str):
      metrics = [name for name in metrics.split(",") if name]
    is_list = isinstance(metrics, list | tuple)
    if is_list and all(isinstance(name, str) for name in metrics):
      metrics = {name: name for name in metrics}
    if not isinstance(metrics, Mapping):
      raise UserError(
        f"metrics is {metrics!r:.100}: give functions of (outputs, targets) by names, such "
        f"as {{'mine': f}}, or some of {', '.join(METRICS)}"
      )
    for name, value in metrics.items():
      check_metric(name, value, (*self.values, *self.model_args))
    return dict(metrics)

  def _check_together(self) -> None:
    """Raise `UserError` if one field leaves another without effect."""

    def refuse(reason):
      raise UserError(f"recipe {self.name!r}: {reason}")

    own_optimizer = not objects.is_name(self.optimizer)
    own_schedule = not objects.is_name(self.schedule)
    if bool(self.milestones) != (self.schedule == "step"):
      refuse("milestones go with schedule 'step': give both or neither")
    if self.label_smoothing and self.loss != "cross_entropy":
      refuse("label_smoothing is of the loss cross_entropy alone")
    if own_optimizer and self.schedule != "constant":
      refuse("an optimizer of your own has a schedule: leave this 'constant'")
    if self.eval_params is not None and not own_optimizer:
      refuse("eval_params are of an optimizer of your own: leave them out")
    if self.warmup and (own_optimizer or own_schedule):
      refuse("what you give makes the learning rate: leave warmup out")
    if self.trainable != "all" and self.dropout:
      refuse(
        f"with trainable {self.trainable!r} the rest does not train: leave dropout out"
      )

  @property
  def hyperparameters(self) -> dict[str, float]:
    """Return the values that a sweep may vary, by name."""
    fields = {name: getattr(self, name) for name in HYPERPARAMETERS}
    set_fields = {name: value for name, value in fields.items() if value is not None}
    return set_fields | dict(self.values)

  @property
  def swept_fields(self) -> list[str]:
    """Return the names of fields and arguments that a sweep may vary beside the
    hyperparameters.
    """
    others = (*HYPERPARAMETERS, *NOT_SWEPT)
    fields = [name for name in FIELDS if name not in others]
    return [*fields, *self.model_args]

  def check_swept(self, names: Iterable[str]) -> None:
    """Raise `UserError` if a sweep cannot vary one of these."""
    for name in names:
      if name in NOT_SWEPT:
        remedy = wording(command=f"--set {name}=...", function=f"{name}=...")
        raise UserError(
          f"a sweep varies numbers and names, not {name}: train a folder for each, with "
          f"{remedy}"
        )
      if name == "lr" and self.lr is None:
        raise UserError(
          f"recipe {self.name!r} has no lr: give one, and read run['lr'] in the "
          "optimizer; or sweep what it reads, given as values={'name': number}"
        )
      known = (*self.hyperparameters, *self.swept_fields)
      check_one_of("value to sweep", name, known, UnknownField)

  def with_swept(self, values: Mapping[str, float | str]) -> "Recipe":
    """Return the recipe with fields as a runs table has them.

    Raises:
      UserError: the recipe does not allow a value, or they do not fit together.
    """
    changes = {}
    for name, value in values.items():
      changes[name] = _swept_value(name, value, self.model_args.get(name))
    return self.replace(**changes)

  def replace(self, **changes: Any) -> "Recipe":
    """Return the recipe with some fields changed.

    Raises:
      UnknownField (a TypeError): there is no field of that name.
    """
    known = (*FIELDS, *self.values, *self.model_args)
    values = {}
    args = {}
    fields = {}
    for name, value in changes.items():
      check_one_of("recipe field", name, known, UnknownField)
      if name in FIELDS:
        fields[name] = value
      elif name in self.values:
        values[name] = value
      else:
        args[name] = value
    if values:
      fields["values"] = {**self.values, **values}
    if args:
      fields["model_args"] = {**self.model_args, **args}
    changed = copy.copy(self)
    vars(changed).update(fields)
    changed._check(fields)  # the others were checked when this recipe was made
    return changed

  def to_json(self) -> str:
    """Return the recipe as one JSON object; `from_json` reads it back."""
    fields = {field: objects.to_spec(getattr(self, field)) for field in FIELDS}
    metrics = {name: objects.to_spec(value) for name, value in self.metrics.items()}
    return json.dumps(fields | {"metrics": metrics})

  @classmethod
  def from_json(cls, text: str) -> "Recipe":
    """Return the recipe that `to_json` wrote.

    Raises:
      UserError: the text is anything else.
    """
    fields = objects.fields_of(text)
    for name in fields:
      check_one_of("recipe field", name, FIELDS, UnknownField)
    missing = [name for name in REQUIRED if name not in fields]
    if missing:
      raise UserError(
        f"the recipe lacks {', '.join(missing)}: give every field that has no default"
      )
    for name, value in fields.items():
      if isinstance(value, dict) and list(value) == ["object"]:
        fields[name] = objects.ImportedByName(str(value["object"]))
    metrics = fields.get("metrics")
    if isinstance(metrics, dict):
      for name, value in metrics.items():
        if isinstance(value, dict):
          metrics[name] = objects.ImportedByName(str(value["object"]))
    return cls(**fields)

  def found_in(self, other: "Recipe") -> "Recipe":
    """Return the recipe with the objects of `other` instead of their names, where these
    are the same.
    """
    changes: dict[str, Any] = {}
    for name in FIELDS:
      mine = getattr(self, name)
      theirs = getattr(other, name)
      if not isinstance(mine, objects.ImportedByName):
        continue
      if objects.to_spec(theirs) == objects.to_spec(mine):
        changes[name] = theirs
    metrics = dict(self.metrics)
    for name, mine in self.metrics.items():
      theirs = other.metrics.get(name)
      if theirs is not None and objects.to_spec(theirs) == objects.to_spec(mine):
        metrics[name] = theirs
    return dataclasses.replace(self, metrics=metrics, **changes)

  def check_found(self, who: str) -> None:
    """Raise `UserError` if another process (`who`, in the message) cannot import an object
    of the recipe by its name.
    """
    if self.origin:
      return
    named = {field: getattr(self, field) for field in FIELDS if field != "metrics"}
    named |= {f"metric {name}": value for name, value in self.metrics.items()}
    for field, value in named.items():
      if not objects.is_importable_again(value):
        what = (
          f"the {field} of {self.name} is {objects.to_spec(value)['object']}, which no "
          "other process can import"
        )
        raise UserError(
          f"{what}: {who} needs it in a module, named by package.module:name"
        )


FIELDS = tuple(f.name for f in dataclasses.fields(Recipe) if f.name != "origin")
REQUIRED = tuple(
  f.name
  for f in dataclasses.fields(Recipe)
  if f.default is f.default_factory is dataclasses.MISSING
)


def _type_and_rules(hint: Any) -> tuple[Any, ...]:
  if hasattr(hint, "__metadata__"):
    return (hint.__origin__, *hint.__metadata__)
  return (hint,)


# name -> (type, rules)
_HINTS: dict[str, tuple[Any, ...]] = {
  name: _type_and_rules(hint)
  for name, hint in typing.get_type_hints(Recipe, include_extras=True).items()
}


def model_name(model: Any) -> str:
  """Return what a recipe is called by its model: a name, or that of a class or function."""
  if objects.is_pair(model):
    return "model"
  name = objects.name_of(model).removesuffix("()")
  return name.rpartition(":")[2].rpartition(".")[2].strip("<>") or "model"


def check_metric(name: str, value: Any, taken: Iterable[str] = ()) -> None:
  """Raise `UserError` unless `value` is a metric, or the name of one, and results can have
  a metric of this name, beside what else is `taken`.
  """
  if safe_name("metric", name) in {
    *("loss", *RESERVED, *FIELDS),
    *(*OF_TEST_SETS, *taken),
  }:
    raise UserError(
      f"metric {name!r}: that name is already used in the results, rename it"
    )
  # Of a list of names, each is its own.
  what = "metric" if name == value else f"metric {name}"
  RegisteredNames(METRICS, "a function of (outputs, targets)").check(what, value)


def check_test_sets(names: Sequence[str]) -> None:
  """Raise `UserError` unless results can have test sets of these names."""
  if not names or len(set(names)) < len(names):
    raise UserError(f"test_sets is {names!r}: give at least one name, each once")
  for name in names:
    safe_name("test set", name)
    if name in RESERVED:
      raise UserError(
        f"test set {name!r}: that name is already used in the results, rename the set"
      )


@functools.cache
def augmentation(text: str) -> tuple[tuple[str, int | None], ...]:
  """Return the steps of a text such as "flip translate=2", with their sizes in pixels.

  Raises:
    UserError: a step is unknown, or its size is wrong.
  """
  steps = []
  for word in text.split():
    name, _, size = word.partition("=")
    check_one_of("augmentation", name, AUGMENTATIONS)
    if name in WITHOUT_SIZE:
      is_well_formed = not size
    else:
      # Longer numbers are refused before Python converts them.
      is_well_formed = size.isdecimal() and len(size) <= 9
    if not is_well_formed:
      raise UserError(
        f"augmentation {word!r}: write {' and '.join(WITHOUT_SIZE)} without a size, the "
        f"others as {name}=PIXELS"
      )
    pixels = None
    if size:
      pixels = check_at_least(f"augmentation {name}", int(size), 1)
    steps.append((name, pixels))
  return tuple(steps)


def hyperparameter(name: str, value: object) -> float:
  """Return a value as a float.

  Raises:
    UserError: it is out of range for the hyperparameter `name`.
  """
  as_float = check_number(name, value)
  rule = FINITE
  if name in HYPERPARAMETERS:
    _, rule = _HINTS[name]
  rule.check(name, as_float)
  return as_float


def _coerced(name: str, hint: Any, value: Any) -> Any:
  """Return `value` as the field's type in plain Python, as JSON needs: lists become
  tuples, and whole numbers floats.
  """
  if hint is Any:
    if isinstance(value, list):
      return tuple(value)
    if isinstance(value, str | os.PathLike):
      return _as(name, str, value)
    return value
  if isinstance(hint, types.UnionType):
    if value is None:
      return None
    hint = typing.get_args(hint)[0]
  if typing.get_origin(hint) is not tuple:
    return _as(name, hint, value)
  if hasattr(value, "tolist"):  # an array
    value = value.tolist()
  if not isinstance(value, Sequence) or isinstance(value, str | bytes):
    raise UserError(f"{name} is {value!r:.200}: give a list")
  kind = typing.get_args(hint)[0]
  return tuple(_as(name, kind, item) for item in value)


def _as(name, kind, value):
  if kind is float:
    return check_number(name, value)
  if kind is bool:
    if is_bool(value):
      return bool(value)
    allowed = "true or false"
  elif kind is str:
    if isinstance(value, os.PathLike):
      value = os.fspath(value)
    if isinstance(value, str):
      return str(value)
    allowed = "a name"
  else:
    whole = whole_number(value)
    if whole is not None:
      return whole
    allowed = "a whole number"
  raise UserError(f"{name} is {value!r:.200}: give {allowed}")


def from_text(field: str, text: str) -> Any:
  """Return the value that `--set field=text` stands for: JSON unless the field is a name,
  commas for lists.

  `field` may also be one of the recipe's `values`. A recipe or task without that name
  refuses it later.
  """
  hint, *_ = _HINTS.get(field, (float,))
  is_none = field in FIELDS and text.lower() in ("none", "null")
  if is_none and hint is not str:
    return "" if field == "augment" else None
  if hint is str or hint is Any:
    return text
  holds_texts = "str" in str(hint)  # as `str | None` and `tuple[str, ...]`
  if "tuple" in str(hint):
    items = [item for item in text.strip("[]()").split(",") if item]
    if holds_texts:
      return items
    return [_number(item) for item in items]
  if holds_texts:
    return text
  if hint is bool:
    text = text.lower()
  return _number(text)


def _swept_value(name: str, value: float | str, own: Any) -> Any:
  """Return a field, or an argument of the model, from a column of a runs table. `own` is
  what the recipe has for the argument.
  """
  if not isinstance(value, str):
    if value.is_integer() and not isinstance(own, float):
      return int(value)
    return value
  if name in FIELDS:
    return from_text(name, value)
  return value_of_text(value)


def value_of_text(text: str) -> Any:
  """Return what a swept text of a model's argument means: None, a bool, a number or a
  text, which has quotes where it would read as one of the others.

  >>> [value_of_text(text) for text in ("none", "true", "0.5", "relu", '"none"')]
  [None, True, 0.5, 'relu', 'none']
  """
  if text in ("", "none"):
    return None
  return _number(text)


def _number(text):
  try:
    return json.loads(text)
  except (ValueError, RecursionError):
    return text


RESNET9_CIFAR10 = Recipe(
  name="resnet9_cifar10",
  dataset="cifar10",
  model="resnet9",
  augment="flip translate=2 cutout=12",
  epochs=64,
  batch_size=500,
  lr=0.5,
  momentum=0.9,
  weight_decay=5e-4,
  schedule="linear",
  # From Jordan's script (github.com/KellerJordan/ffcv-cifar, data.py), in pixel values.
  mean=(125.307, 122.961, 113.8575),
  std=(51.5865, 50.847, 51.255),
)

# Chosen by measurement: see docs/reference/recipes.md.
NARROW_CIFAR10 = Recipe(
  name="narrow_cifar10",
  dataset="cifar10",
  model="narrow_cnn",
  augment="flip translate=2",
  epochs=8,
  batch_size=100,
  lr=0.05,
  momentum=0.9,
  weight_decay=5e-4,
  optimizer="nesterov",
  schedule="linear",
)

# Jiang et al. 2022, appendix C: the first value of each hyperparameter. For our own
# choices see docs/reference/recipes.md.
RESNET18_CIFAR10 = Recipe(
  name="resnet18_cifar10",
  dataset="cifar10",
  model="resnet18",
  stop_at=1.0,
  epochs=200,
  batch_size=200,
  lr=0.1,
  momentum=0.9,
  weight_decay=1e-4,
  schedule="step",
  milestones=(50, 100, 150),
)

SUMMARIES = {
  Recipe(
    name="digits_cnn",
    dataset="digits",
    model="small_cnn",
    augment="cutout=2",
    epochs=16,
    batch_size=32,
    lr=0.05,
    momentum=0.9,
    weight_decay=5e-4,
    schedule="linear",
  ): "a small CNN on scikit-learn's 8×8 digits: built in, seconds on a laptop",
  NARROW_CIFAR10: "a narrow CNN on CIFAR-10: half a minute a run on one CPU core",
  NARROW_CIFAR10.replace(
    name="narrow_mnist", dataset="mnist", epochs=2, augment=""
  ): "the same network on MNIST: five seconds a run on one CPU core",
  RESNET9_CIFAR10: "Jordan 2024, appendix A.1: the 9-layer ResNet on CIFAR-10, 64 epochs",
  RESNET9_CIFAR10.replace(
    name="resnet9_cifar10_published",
    augment="flip cutout=12 reflect=2",
    # github.com/KellerJordan/cifar10-loader, quick_cifar/loader.py, times 255.
    std=(0.2470 * 255, 0.2435 * 255, 0.2616 * 255),
  ): "the same network with the input pipeline of the 61,565 published runs: cutout, then reflecting translation",
  RESNET18_CIFAR10: "Jiang 2022, appendix C: a ResNet-18 on CIFAR-10 until it is right on all training examples",
  RESNET18_CIFAR10.replace(
    name="mlp_cifar10", model="mlp", batch_size=100, lr=0.01, weight_decay=0
  ): "the same with a fully connected network: one hidden layer of 128",
  Recipe(
    name="linear_cifar10",
    dataset="cifar10",
    model="linear",
    epochs=16,
    batch_size=500,
    lr=0.01,
    momentum=0.9,
    weight_decay=0.05,
    schedule="linear",
  ): "Jordan 2024, figure 7: a regularised linear model, convex, so nearly the same every time",
}
RECIPES = {recipe.name: (recipe, summary) for recipe, summary in SUMMARIES.items()}


def plugins() -> dict[str, str]:
  """Import strings by the names that installed packages give them, as entry points in
  the group `vmapseeds.recipes`.
  """
  return {
    point.name: point.value
    for point in entry_points(group="vmapseeds.recipes")
    if point.name not in RECIPES
  }


@hide_own_frames
def recipe(name: str | Recipe, /, **overrides: Any) -> Recipe:
  """Return the named recipe with some fields overridden.

  Args:
    name: one of `vmapseeds recipes`, or an import string "package.module:attribute"; or
      a recipe.
    **overrides: any field of `Recipe`.

  Raises:
    UserError (a ValueError): no such recipe, or a value that its field does not allow.
    UnknownField (a TypeError and ValueError): an override that is no field.

  >>> recipe("digits_cnn", epochs=4).epochs
  4
  """
  if isinstance(name, Recipe):
    return name.replace(**overrides)
  if isinstance(name, str) and name in RECIPES:
    return RECIPES[name][0].replace(**overrides)
  if not (isinstance(name, str) and objects.is_import(name)):
    objects.check_no_module(name)
    of_packages = plugins()
    check_one_of("recipe", name, (*RECIPES, *of_packages, "package.module:name"))
    name = of_packages[name]
  imported = objects.import_object(name)
  if not isinstance(imported, Recipe):
    raise UserError(f"{name} is {type(imported).__name__}: give a vs.Recipe")
  return dataclasses.replace(imported.replace(**overrides), origin=name)
