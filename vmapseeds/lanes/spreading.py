"""Run a function of one lane over many lanes, a fixed number at a time, on all
devices.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int, PyTree

from vmapseeds.convolutions import lowering as lowered_by
from vmapseeds.errors import UserError, check_at_least, warn
from vmapseeds.jaxprs import evaluate_program
from vmapseeds.lanes.factorising import factorise_one_by_one
from vmapseeds.lanes.one_lane import prepare_lane
from vmapseeds.machine import ask_for_all_cores, cache_folder, cores
from vmapseeds.target import start_devices

Shared = TypeVar("Shared")
Lane = TypeVar("Lane")
Out = TypeVar("Out")

# The newest JAX that all tests have passed with.
NEWEST_TRIED_JAX = (0, 12, 0)

# On a CPU, vectors of the full width: LLVM alone uses half. On a TPU, the fast memory
# that one operation may use: with the default of 16 MiB a convolution gets smaller
# windows. On a GPU, deterministic operations, none of them chosen by timing: another
# process could choose differently.
OPTIONS: dict[str, dict[str, str | bool]] = {
  "cpu": {"xla_cpu_prefer_vector_width": "512"},
  "tpu": {"xla_tpu_scoped_vmem_limit_kib": "32768"},
  "gpu": {"xla_gpu_deterministic_ops": True},
}
if jax.__version_info__ >= (0, 11):
  # Matrix products by cuBLAS. XLA uses it anyway for deterministic ones, but fails
  # without this if the GPU is absent.
  OPTIONS["gpu"]["xla_gpu_enable_triton_gemm"] = False

MEMORY = (
  "argument_size_in_bytes",
  "temp_size_in_bytes",
  "output_size_in_bytes",
  "generated_code_size_in_bytes",
)


class Stages(NamedTuple):
  """A function of one lane that runs for `length` rounds, in three parts.

  Each part is compiled separately, and `advance` gets the numbers of its rounds at run
  time. So results are the same to the last bit, however many rounds a call runs. In one
  program for everything, Adam's steps would round differently.
  """

  start: Callable[[Any, Any], Any]  # (shared, lane) -> state
  advance: Callable[
    [Any, Any, Any, Int[Array, ""], Int[Array, ""]], Any
  ]  # (..., state, first, last) -> state
  finish: Callable[[Any, Any, Any], Any]  # (shared, lane, state) -> outputs
  length: int
  # (shared, carry, outputs of all lanes of a device, marks) -> (carry, what is fetched),
  # in the same program as `finish`. `carry` accumulates what need not be fetched.
  reduce: Callable[[Any, Any, Any, Any], tuple[Any, Any]] | None = None
  lowering: str | None = None  # of convolutions: one of LOWERINGS, or the device's


@runtime_checkable
class Keeper(Protocol):
  """Checkpoints of lanes: saves their states between rounds, and loads them."""

  every: int  # rounds between two saves

  def load(
    self, like: PyTree[jax.ShapeDtypeStruct]
  ) -> tuple[int, PyTree[np.ndarray]] | None:
    """Return how many rounds the lanes have done, and their states; None unless stored
    states have the shapes of `like`.
    """

  def save(self, rounds: int, state: PyTree[np.ndarray]) -> None:
    """Save the states of the lanes after `rounds` rounds."""


def start_jax() -> list[jax.Device]:
  """Start JAX and return all local devices. Set what must be set before, unless the user
  has set it.

  On a CPU there is one XLA device per core. If JAX has already started with fewer, a
  line on stderr says so. Compiled programs are cached in the user's cache folder, so
  that a resumed campaign does not compile again. Change that with
  `JAX_COMPILATION_CACHE_DIR` or `JAX_ENABLE_COMPILATION_CACHE=false`.
  """
  if jax.config.values["jax_compilation_cache_dir"] is None:
    jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "xla"))
  if not ask_for_all_cores():
    _say_which_are_missing()
  if jax.__version_info__[:3] > NEWEST_TRIED_JAX:
    _warn_about_newer_jax()
  return devices()


def devices() -> list[jax.Device]:
  """Return all local devices. Start JAX if it has not started yet."""
  start_devices()
  return jax.local_devices()


@functools.cache
def _warn_about_newer_jax():
  newest = ".".join(map(str, NEWEST_TRIED_JAX))
  warn(
    f"jax {jax.__version__} is newer than {newest}, the newest that vmapseeds was tried "
    f"with; if a training fails, install jax=={newest}"
  )


@functools.cache
def _say_which_are_missing():
  """Print a line on stderr, once, that JAX started with fewer CPU devices than there are
  cores.
  """
  count = len(devices())
  warn(
    f"JAX has already started, with {count} CPU device(s): training uses about {count} of "
    f"{cores()} cores. To use all, train before JAX computes anything, or set "
    f"JAX_NUM_CPU_DEVICES={cores()}"
  )


def _mesh(devices):
  return Mesh(np.array(devices), ("lanes",), axis_types=(AxisType.Auto,))


def shapes_on_devices(
  tree: PyTree, devices: Sequence[jax.Device], *, of_lanes: bool
) -> PyTree[jax.ShapeDtypeStruct]:
  """Return the shapes of `tree` on devices, sharded over them by its leading lane axis,
  or replicated.
  """
  sharding = NamedSharding(_mesh(devices), P("lanes") if of_lanes else P())
  return jax.tree.map(
    lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding), tree
  )


def replicate(shared: Shared, devices: Sequence[jax.Device]) -> Shared:
  """Copy `shared` to every device. Do this once, and pass the copy to `spread` functions
  many times.

  Raises:
    UserError: `jax.set_mesh` has set a mesh.
  """
  if not jax.sharding.get_abstract_mesh().empty:
    raise UserError(
      f"jax.set_mesh has set {jax.sharding.get_abstract_mesh()!s:.60}: lanes have all "
      "devices for themselves, call this outside of it"
    )
  return jax.device_put(shared, NamedSharding(_mesh(devices), P()))


def _compile_step(function, mesh, of_lanes=1, donate=(), lowering=None):
  """Compile `function` over a leading lane axis, with an equal share of the lanes on
  each device.

  Args:
    function: takes what all lanes share, then the arguments of one lane.
    mesh: the devices.
    of_lanes: how many arguments, after the shared one, have a lane axis.
    donate: the arguments whose memory the outputs may reuse.
    lowering: of convolutions.
  """
  return _compile_sharded(_over_lanes(function, mesh, lowering), mesh, of_lanes, donate)


def _over_lanes(function, mesh, lowering):
  """Return `function`, its convolutions made fast, over a leading axis of the lanes of
  one device.
  """
  fast = lowered_by(lowering)(prepare_lane(function))

  def over_lanes(shared, *lanes):
    # An axis of one lane would keep XLA from merging loops. On a TPU layouts are chosen
    # by it.
    if _platform(mesh) != "tpu" and len(jax.tree.leaves(lanes)[0]) == 1:
      return _as_share(fast(shared, *_of_share(lanes)))
    return jax.vmap(fast, in_axes=(None, *[0] * len(lanes)))(shared, *lanes)

  return over_lanes


def _of_share(tree):
  """Return arrays without their first axis, which has one entry."""
  return jax.tree.map(lambda a: a[0], tree)


def _as_share(tree):
  """Return arrays with a first axis of one entry."""
  return jax.tree.map(lambda a: jnp.expand_dims(a, 0), tree)


def _finish_step(stages, mesh):
  """Compile the end of a step: `finish` of all lanes, and `reduce` of their outputs,
  which is given a carry with a first axis of devices.
  """
  finish = _over_lanes(stages.finish, mesh, stages.lowering)

  def share(shared, lanes, state, carry, marks):
    outputs = finish(shared, lanes, state)
    if stages.reduce is None:
      return outputs, carry
    carry, outputs = stages.reduce(shared, _of_share(carry), outputs, marks)
    return outputs, _as_share(carry)

  return _compile_sharded(share, mesh, 4, donate=(3,))


def _compile_sharded(function, mesh, count, donate=()):
  """Compile a function that runs on each device with what all share, and its share of
  the `count` arguments after that.
  """

  def on_each_device(shared, *parts):
    # Traced before `shard_map`, whose types are not those of `jit` of `vmap`: Diffrax,
    # for one, refuses them. The inner `jit` keeps the program whole.
    traced, out = jax.make_jaxpr(jax.jit(function), return_shape=True)(
      shared, *_share_shapes(parts, mesh.size)
    )
    program = traced
    if _platform(mesh) == "cpu":
      program = factorise_one_by_one(traced)

    def share(constants, *args):
      found = evaluate_program(
        program.replace(consts=constants), *jax.tree.leaves(args)
      )
      return jax.tree.unflatten(jax.tree.structure(out), found)

    return jax.shard_map(
      share,
      mesh=mesh,
      in_specs=(P(), P(), *[P("lanes")] * count),
      out_specs=P("lanes"),
      check_vma=False,
    )(program.consts, shared, *parts)

  def on_one_device(shared, *parts):
    shares = [
      jax.tree.map(lambda a: a[_share_of(device, len(a), mesh.size)], parts)
      for device in range(mesh.size)
    ]
    found = [function(shared, *share) for share in shares]
    return jax.tree.map(lambda *of_devices: jnp.concatenate(of_devices), *found)

  # Looking for the first NaN, JAX runs each operation by itself, and calls a `jit` within
  # `shard_map` again and again.
  if jax.config.values["jax_debug_nans"] or jax.config.values["jax_debug_infs"]:
    return jax.jit(on_one_device)
  options = OPTIONS.get(_platform(mesh))
  return jax.jit(on_each_device, donate_argnums=donate, compiler_options=options)


def _share_of(device, lanes, devices):
  """Return which lanes a device has, as a slice."""
  each = lanes // devices
  return slice(device * each, (device + 1) * each)


def _share_shapes(tree, devices):
  """Return the shapes of one device's share."""
  return jax.tree.map(
    lambda a: jax.ShapeDtypeStruct(
      (len(a) // devices, *a.shape[1:]), a.dtype, weak_type=a.weak_type
    ),
    tree,
  )


def _platform(mesh):
  return mesh.devices.flat[0].platform


@functools.lru_cache(maxsize=16)
def _each_device(function, devices):
  return _compile_sharded(
    lambda _, carry: _as_share(function(_of_share(carry))), _mesh(devices), 1
  )


def sum_over_devices(
  function: Callable[[Any], Any], carry: PyTree, devices: Sequence[jax.Device]
) -> PyTree[np.ndarray]:
  """Return the sum over devices of a function of what each has summed up, fetched."""
  found = _each_device(function, tuple(devices))((), carry)
  return jax.tree.map(lambda a: np.asarray(a).sum(0, dtype=a.dtype), found)


def compile_step_to_measure(
  function: Callable[[Shared, Lane], Out],
  shared: Shared,
  lanes: Lane,
  *,
  devices: Sequence[jax.Device],
  lowering: str | None = None,
) -> tuple[Callable[[], None], float]:
  """Compile one step of `spread`, to measure it.

  Returns:
    A function that runs the step with these arguments and waits for it, and the bytes
    it needs on each device.
  """
  mesh = _mesh(devices)
  args = (
    replicate(shared, devices),
    jax.device_put(lanes, NamedSharding(mesh, P("lanes"))),
  )
  step = _compile_step(function, mesh, lowering=lowering).lower(*args).compile()

  def run():
    return jax.block_until_ready(step(*args))

  return run, memory_of_program(step)


def memory_of_program(program) -> float:
  """Return the bytes that a compiled program needs on each device, with its arguments."""
  analysis = program.memory_analysis()
  return float(
    sum(getattr(analysis, part, 0) for part in MEMORY)
    - getattr(analysis, "alias_size_in_bytes", 0)
  )


def spread(
  function: Callable[[Shared, Lane], Out],
  *,
  width: int,
  devices: Sequence[jax.Device] | None = None,
  lowering: str | None = None,
) -> Callable[[Shared, Lane], Iterator[tuple[slice, Out]]]:
  """Map `function(shared, lane)` over a leading lane axis, `width` lanes at a time on
  each device.

  Every step has the same shape: the last one is padded with copies of the last lane,
  which are dropped. So one compilation serves any number of lanes, and a lane's result
  depends on that lane and `width` alone. Convolutions are made fast, as
  `fast_convolutions` does.

  Args:
    function: of what all lanes share and one lane's arrays.
    width: how many lanes a device advances together.
    devices: all local ones, unless given.
    lowering: how convolutions run their lanes, one of `convolutions.LOWERINGS`; None for what
      suits the device.

  Returns:
    `spread_function(shared, lanes)`: yields (which lanes, their outputs as NumPy arrays
    with a leading lane axis) step by step. The next step starts before a step is
    yielded, so that devices do not wait for the reader.

  Raises:
    UserError: `width` is no whole number from 1, or the arrays of the lanes are not of
      one length.

  >>> squares = spread(lambda scale, lane: scale * lane**2, width=2)
  >>> [values.tolist() for _, values in squares(10, np.arange(5))][0][:2]
  [0, 10]
  """
  check_at_least("width", width, 1)
  if devices is None:
    devices = start_jax()
  step = _compile_step(function, _mesh(devices), lowering=lowering)

  def spread_function(shared, lanes):
    given = [np.shape(leaf) for leaf in jax.tree.leaves(lanes)]
    if not all(given) or len({shape[0] for shape in given}) != 1:
      raise UserError(
        f"lanes are arrays of shapes {given}: give at least one, each with as many lanes as first axis"
      )
    shared = replicate(shared, devices)  # copies nothing that is there already
    return _step_by_step(lambda lanes, _: step(shared, lanes), lanes, width, devices)

  return spread_function


def compile_programs(
  stages: Stages, devices: Sequence[jax.Device]
) -> tuple[Any, Any, Any]:
  """Compile the three parts of `stages` for all lanes of a step:

  - start(shared, lanes) -> state
  - advance((shared, first, last), lanes, state) -> state
  - finish(shared, lanes, state, carry, marks) -> (outputs, carry)
  """

  def some_rounds(shared, lane, state):
    shared, first, last = shared
    return stages.advance(shared, lane, state, first, last)

  mesh = _mesh(devices)
  # The old state's memory becomes the new one's.
  lowering = stages.lowering
  advance = _compile_step(some_rounds, mesh, of_lanes=2, donate=(2,), lowering=lowering)
  start = _compile_step(stages.start, mesh, lowering=lowering)
  return start, advance, _finish_step(stages, mesh)


def spread_stages(
  stages: Stages, *, width: int, devices: Sequence[jax.Device] | None = None
) -> Callable[..., Iterator[tuple[slice, Any, Any]]]:
  """Map a function in stages over lanes, as `spread` does.

  Returns:
    `spread_function(shared, lanes, keeper=None, carry=(), marks=None)`: yields (which
    lanes, their outputs, the carry so far on the devices, valid until the next step).
    With a `Keeper`, the lanes resume from the states that it loads. All lanes advance
    `keeper.every` rounds before any advances further, and the keeper saves their
    states. `carry` is where `stages.reduce` begins on each device, and `marks`, an
    array of whole numbers (lanes,), is what it gets of each lane; -1 for copies that
    pad a step.
  """
  if devices is None:
    devices = jax.local_devices()
  start, advance, finish = compile_programs(stages, devices)
  sharded = NamedSharding(_mesh(devices), P("lanes"))

  def shapes_of_states(shared, lanes):
    # In the types that JAX gives them: a column of float64 trains as float32.
    shapes = jax.eval_shape(lambda lanes: lanes, lanes)
    a_step = shapes_of_lanes(shapes, width * len(devices))
    states = start.eval_shape(shared, a_step)
    return shapes_of_lanes(states, len(jax.tree.leaves(lanes)[0]))

  def spread_function(shared, lanes, keeper=None, carry=(), marks=None):
    shared = replicate(shared, devices)
    rounds, states, shapes = 0, None, None
    if keeper:
      shapes = shapes_of_states(shared, lanes)
      stored = keeper.load(jax.eval_shape(as_numbers, shapes))
      if stored:
        rounds, states = stored

    def advance_to(last, lanes, states):
      if states is None:
        states = start(shared, lanes)
      else:
        states = as_keys(states, shapes)
      return advance((shared, np.int32(rounds), np.int32(last)), lanes, states)

    while keeper and rounds + keeper.every < stages.length:
      last = rounds + keeper.every
      steps = _step_by_step(
        lambda placed, _: advance_to(last, *placed), (lanes, states), width, devices
      )
      parts = [part for _, part in steps]
      rounds = last
      states = jax.tree.map(lambda *parts: np.concatenate(parts), *parts)
      keeper.save(rounds, states)

    if marks is None:
      marks = np.zeros(len(jax.tree.leaves(lanes)[0]), np.int32)
    of_devices = jax.tree.map(lambda a: np.stack([a] * len(devices)), carry)
    carry_so_far = jax.device_put(of_devices, sharded)

    def finish_step(placed, which):
      nonlocal carry_so_far
      ended = advance_to(stages.length, *placed)
      # Lanes that pad the step have the mark -1.
      marked = np.full(width * len(devices), -1, np.int32)
      marked[: which.stop - which.start] = marks[which]
      marked = jax.device_put(marked, sharded)
      outputs, carry_so_far = finish(shared, placed[0], ended, carry_so_far, marked)
      return outputs

    for which, outputs in _step_by_step(finish_step, (lanes, states), width, devices):
      yield which, outputs, carry_so_far

  return spread_function


def as_numbers(tree: PyTree) -> PyTree:
  """Return a tree with the numbers of random keys in their place: host memory and files
  hold no keys.
  """
  return jax.tree.map(lambda a: jax.random.key_data(a) if _is_key(a) else a, tree)


def as_keys(numbers: PyTree, like: PyTree) -> PyTree:
  """Return a tree with random keys again where the tree `like` has some."""
  kinds: list[Any] = []  # of generators; only an array tells its own

  def look(tree):
    for leaf in jax.tree.leaves(tree):
      kinds.append(jax.random.key_impl(leaf) if _is_key(leaf) else None)

  jax.eval_shape(look, like)
  leaves, structure = jax.tree.flatten(numbers)
  restored = []
  for leaf, kind in zip(leaves, kinds, strict=True):
    if kind is not None:
      leaf = jax.random.wrap_key_data(jnp.asarray(leaf), impl=kind)
    restored.append(leaf)
  return jax.tree.unflatten(structure, restored)


def _is_key(leaf):
  return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def shapes_of_lanes(tree: PyTree, count: int) -> PyTree[jax.ShapeDtypeStruct]:
  """Return the shapes of arrays like those of `tree`, with `count` as first axis."""
  return jax.tree.map(
    lambda a: jax.ShapeDtypeStruct((count, *a.shape[1:]), a.dtype), tree
  )


def _step_by_step(step, lanes, width, devices):
  """Yield which lanes a step has, and what it gives for them. The next step starts
  before that is fetched.
  """
  step_size = width * len(devices)
  count = len(jax.tree.leaves(lanes)[0])
  started = None
  for first in range(0, count, step_size):
    which = slice(first, min(first + step_size, count))
    rows = np.minimum(np.arange(first, first + step_size), count - 1)
    lane_step = jax.tree.map(lambda a: _rows_of(a, rows), lanes)
    placed = jax.device_put(lane_step, NamedSharding(_mesh(devices), P("lanes")))
    out = step(placed, which)
    if started:
      yield _fetched(*started)
    started = which, out
  if started:
    yield _fetched(*started)


def _rows_of(a, rows):
  """Return rows of an array, on the host unless it holds keys."""
  if jnp.issubdtype(getattr(a, "dtype", np.int32), jax.dtypes.prng_key):
    return a[rows]
  return np.asarray(a)[rows]


def _fetched(rows, out):
  numbers = as_numbers(out)
  return rows, jax.tree.map(lambda a: np.asarray(a)[: rows.stop - rows.start], numbers)
