"""Programs that factorise matrices: a call of a library for one matrix at a time."""

import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import pytest
from cases import mostly_seldom, mostly_slow

import vmapseeds as vs
from experiments.reliability import hangs
from vmapseeds.lanes import factorising, spreading


def band(a):
  return jax.lax.linalg.tridiagonal_solve(a[:, 0], a[:, 1] + 9, a[:, 2], a)


def times_q(a):
  return jax.lax.linalg.ormqr(*jnp.linalg.qr(a, "raw"), a)


# The name of LAPACK's routine, and a function of a positive definite matrix.
ROUTINES = {
  "potrf": jnp.linalg.cholesky,
  "getrf": lambda a: jsl.lu_factor(a)[0],
  "trsm": lambda a: jsl.solve_triangular(a, a),
  "geqrf": lambda a: jnp.linalg.qr(a)[1],
  "orgqr": lambda a: abs(jnp.linalg.qr(a)[0]),
  "geqp3": lambda a: abs(jsl.qr(a, pivoting=True)[1]),
  "gesdd": lambda a: jnp.linalg.svd(a)[1],
  "syevd": lambda a: jnp.linalg.eigh(a)[0],
  "geev": lambda a: jnp.sort(jnp.linalg.eig(a)[0].real),
  "gees": lambda a: jnp.diag(jsl.schur(a)[0]),
  "gehrd": lambda a: abs(jsl.hessenberg(a)),
  "sytrd": lambda a: jnp.linalg.norm(jax.lax.linalg.tridiagonal(a)[1]),
  "gtsv": band,
}
if hasattr(jax.lax.linalg, "ormqr"):
  ROUTINES["ormqr"] = times_q


def calls(text):
  """The routines that a program calls, and the axes of their first operands."""
  found = re.findall(r"@lapack_[sdcz](\w+?)(?:_ffi)?\(.*?: \(tensor<([^>]*)>", text)
  return [(routine, shape.count("x")) for routine, shape in found]


@pytest.fixture
def matrices():
  a = np.random.default_rng(0).normal(size=(4, 2, 5, 5)).astype(np.float32)
  return a @ a.swapaxes(-1, -2) + 5 * np.eye(5, dtype=np.float32)


@pytest.mark.parametrize("inner", mostly_slow(["vmap", "scan", "cond", "grad"]))
def test_every_library_call_of_lanes_is_of_one_matrix(inner, matrices, monkeypatch):
  """Also where the lane itself has several."""
  monkeypatch.setattr(factorising, "SEVERAL_AT_ONCE_WAIT", True)

  def all_of(a):
    return {name: routine(a) for name, routine in ROUTINES.items()}

  def lane(_, pair):
    if inner == "vmap":
      return jax.vmap(all_of)(pair)
    if inner == "scan":
      return jax.lax.scan(lambda n, a: (n + 1, all_of(a)), 0, pair)[1]
    if inner == "cond":
      mapped = jax.jit(jax.vmap(all_of))
      return jax.lax.cond(pair.sum() > 0, mapped, lambda p: mapped(-p), pair)
    root = jax.grad(lambda a: jnp.linalg.cholesky(jnp.linalg.inv(a)).sum())
    return {"gradient": jax.vmap(root)(pair)}

  mesh = spreading._mesh(jax.devices())
  lowered = spreading._compile_step(lane, mesh).lower(0, matrices)
  found = calls(lowered.as_text())
  wanted = {"getrf", "potrf", "trsm"} if inner == "grad" else {*ROUTINES}
  assert {routine for routine, _ in found} >= wanted
  assert all(axes <= 2 for _, axes in found)
  together = calls(jax.jit(jax.vmap(lambda p: lane(0, p))).lower(matrices).as_text())
  assert max(axes for _, axes in together) >= 3, "this looks at what JAX does"
  if inner not in ("vmap", "grad"):
    return
  parts = [out for _, out in vs.spread(lane, width=2)(0, matrices)]
  ours = jax.tree.map(lambda *p: np.concatenate(p), *parts)
  for i, pair in enumerate(matrices):
    for name, expected in jax.jit(lane)(0, pair).items():
      np.testing.assert_allclose(
        ours[name][i], expected, rtol=2e-4, atol=2e-4, err_msg=name
      )


@pytest.mark.parametrize("waits", [False, True])
def test_other_programs_stay_as_they_are(waits, matrices, monkeypatch):
  monkeypatch.setattr(factorising, "SEVERAL_AT_ONCE_WAIT", waits)
  plain = jax.make_jaxpr(jax.jit(jax.vmap(lambda a: jnp.sort(a @ a))))(matrices)
  assert factorising.factorise_one_by_one(plain) is plain
  single = jax.make_jaxpr(jnp.linalg.cholesky)(matrices[0, 0])
  assert factorising.factorise_one_by_one(single) is single
  several = jax.make_jaxpr(jnp.linalg.cholesky)(matrices)
  assert (factorising.factorise_one_by_one(several) is several) is not waits


def turns(run, i):
  """What a round of the task below adds to its matrix, one after another."""
  return jax.random.normal(jax.random.fold_in(run.key("order"), i), (3, 6, 4))


def start(data, run):
  frame = jax.nn.initializers.orthogonal()(run.key("init"), (6, 4))
  return {"frame": frame, "lengths": jnp.zeros(4)}


def advance(data, run, state, first, last):
  def turn(state, by):
    q, r = jnp.linalg.qr(state["frame"] + 0.2 * by)
    lengths = jnp.sort(state["lengths"] + abs(r.diagonal()))
    return {"frame": q * jnp.sign(r.diagonal()), "lengths": lengths}, None

  def round_(i, state):
    return jax.lax.scan(turn, state, turns(run, i))[0]

  return jax.lax.fori_loop(first, last, round_, state)


def finish(data, run, state):
  return state | {"longest": jax.lax.top_k(state["lengths"], 2)[0]}


FRAMES = vs.Task(
  name="frames",
  start=start,
  advance=advance,
  finish=finish,
  rounds=2,
  dims={"frame": ("row", "column"), "lengths": ("column",), "longest": ("place",)},
)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 2, 8])
def test_values_of_a_task_that_factorises_and_sorts_are_those_of_one_run(
  width, tmp_path
):
  """Of NumPy's, for every lane width."""
  found = vs.train(FRAMES, 9, tmp_path / "r", lane_width=width, progress=False)
  for seed in (0, 1, 7, 8):
    run = vs.single_run(FRAMES, seed)
    frame, lengths = map(np.float64, start(None, run).values())
    for by in np.concatenate([turns(run, i) for i in range(2)]):
      q, r = np.linalg.qr(frame + 0.2 * by)
      frame = q * np.sign(np.diag(r))
      lengths = np.sort(lengths + abs(np.diag(r)))
    of = found.isel(run=seed)
    np.testing.assert_allclose(of.frame, frame, atol=2e-5)
    np.testing.assert_allclose(of.lengths, lengths, rtol=1e-5)
    np.testing.assert_allclose(of.longest, lengths[:-3:-1], rtol=1e-5)


@pytest.mark.parametrize("form", mostly_seldom(["once", "looped", "of two"]))
def test_orthogonal_initialisers_of_several_lanes_end(form):
  command = [sys.executable, "-m", "experiments.reliability.hangs"]
  for width in ("2", "8"):
    case = ["--case", "after", "orthogonal", form, width, "2"]
    ended = subprocess.run(command + case, env=os.environ | hangs.QUICK, timeout=300)
    assert ended.returncode == 0
