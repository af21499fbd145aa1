"""airbench94: each part beside NumPy, and the whole beside PyTorch."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import plain
import pytest

import vmapseeds as vs
from experiments import airbench
from vmapseeds.data.sources import load_digits
from vmapseeds.training import supervised
from vmapseeds.training.outputs import Keep
from vmapseeds.training.runs import Runs

EPOCHS, BATCH, EXAMPLES, WIDTH = 3, 16, 64, 0.125
TESTED = 10
STEPS = EPOCHS * EXAMPLES // BATCH
DIGITS = load_digits().train.inputs


def begin(recipe):
  """A task on random images, one run of it, and its network before training."""
  rng = np.random.default_rng(0)
  # Neighbouring pixels are alike, as in photographs.
  pixels = rng.integers(0, 256, (2 * EXAMPLES, 8, 8, 3)).repeat(4, 1).repeat(4, 2)
  pixels = ((3 * pixels + rng.integers(0, 256, pixels.shape)) // 4).astype(np.uint8)
  targets = np.arange(EXAMPLES) % 10
  recipe = recipe.replace(
    dataset=vs.Dataset(
      train=(pixels[:EXAMPLES], targets), test=(pixels[-TESTED:], targets[:TESTED])
    ),
    width=WIDTH,
    epochs=EPOCHS,
    batch_size=BATCH,
    augment="",
    precision="float32",
  )
  keep = Keep(logits=True, params=True)
  task = supervised.load_recipe_task(recipe, Runs.independent(2), keep)
  run = vs.single_run(task, 1)
  return task, run, jax.jit(task.start)(task.data, run)


def train(begun):
  """What is kept of the run after all epochs."""
  task, run, state = begun
  advance, finish = (
    jax.jit(vs.fast_convolutions(stage)) for stage in (task.advance, task.finish)
  )
  state = advance(task.data, run, state, 0, EPOCHS)
  return jax.tree.map(np.asarray, finish(task.data, run, state))


@pytest.fixture(scope="module")
def begun():
  return begin(airbench.airbench94_cifar10)


@pytest.fixture(scope="module")
def trained(begun):
  return train(begun)


def test_the_kernel_whitens_patches(begun):
  task, _, state = begun
  kernel = np.asarray(state.batch_stats["whitening"]["whitening"]["kernel"])
  data = task.data[0]
  inputs = (data.inputs.astype(np.float64) - data.mean) / data.std
  windows = np.lib.stride_tricks.sliding_window_view(inputs, (2, 2), axis=(1, 2))
  patches = np.moveaxis(windows, 3, -1).reshape(-1, 12)  # (row, column, channel)
  white = patches @ kernel[:, :12]
  covariance = np.cov(white, rowvar=False)
  variances = np.linalg.eigvalsh(np.cov(patches, rowvar=False))[::-1]
  expected = np.diag(variances / (variances + airbench.WHITENING_EPSILON))
  np.testing.assert_allclose(covariance, expected, atol=2e-3)
  np.testing.assert_array_equal(kernel[:, 12:], -kernel[:, :12])


def test_runs_share_the_kernel_and_do_not_train_it(begun, trained):
  task, _, state = begun
  other = jax.jit(task.start)(task.data, vs.single_run(task, 0))
  kernel = state.batch_stats["whitening"]["whitening"]["kernel"]
  np.testing.assert_array_equal(
    kernel, other.batch_stats["whitening"]["whitening"]["kernel"]
  )
  np.testing.assert_array_equal(kernel, trained["variables/whitening.whitening.kernel"])
  bias = [s.params["whitening"]["bias"] for s in (state, other)]
  assert (bias[0] != bias[1]).all()
  assert (bias[0] != trained["variables/params.whitening.bias"]).all()


@pytest.mark.parametrize(("inputs", "outputs"), [(3, 5), (5, 3)])
def test_first_features_are_the_inputs(inputs, outputs):
  kernel = airbench.partly_identity(jax.random.key(0), (3, 3, inputs, outputs))
  x = np.random.default_rng(0).normal(size=(2, 6, 7, inputs)).astype(np.float32)
  y = jax.lax.conv_general_dilated(
    x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
  )
  same = min(inputs, outputs)
  np.testing.assert_array_equal(y[..., :same], x[..., :same])
  assert y.shape[-1] == outputs
  others = kernel[..., inputs:]
  assert (np.abs(others) <= (9 * inputs) ** -0.5).all()
  assert (others != 0).all()


def test_views_are_six_weighted():
  x = np.random.default_rng(0).normal(size=(2, 5, 6, 3)).astype(np.float32)
  views, weights = airbench.views_of(jnp.asarray(x))
  bordered = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="reflect")
  places = [(1, 0.25), (0, 0.125), (2, 0.125)]
  expected = [(bordered[:, i : i + 5, i : i + 6], weight) for i, weight in places]
  expected += [(image[:, :, ::-1], weight) for image, weight in expected]
  for (image, weight), view, found in zip(expected, views, weights, strict=True):
    np.testing.assert_array_equal(view, image)
    assert found == weight


def test_logits_are_the_mean_over_views(begun, trained):
  task, _, _ = begun
  net = airbench.Airbench(num_classes=10, width=WIDTH, views=False)
  variables = {}
  for name, array in trained.items():
    if name.startswith("variables/"):
      *path, last = name.removeprefix("variables/").split(".")
      inner = variables
      for part in path:
        inner = inner.setdefault(part, {})
      inner[last] = array
  test = jax.tree.map(jnp.asarray, task.data[1]["test"])
  views, weights = airbench.views_of(test.preprocess(test.inputs))
  apply = jax.jit(vs.fast_convolutions(lambda x: net.apply(variables, x, train=False)))
  logits = sum(
    weight * apply(view) for view, weight in zip(views, weights, strict=True)
  )
  np.testing.assert_allclose(trained["test/logits"], logits, atol=1e-4)
  np.testing.assert_array_equal(
    trained["test/predictions"], trained["test/logits"].argmax(1)
  )


def test_triangle():
  height = airbench.triangle(100)
  found = [float(height(step)) for step in (0, 23, 100)]
  np.testing.assert_allclose(found, (0.2, 1, 0.07), rtol=1e-6)
  np.testing.assert_allclose(float(height(61.5)), (1 + 0.07) / 2, rtol=1e-6)


def test_lookahead_is_a_plain_loop():
  steps, rate = 23, 0.3
  optimizer = airbench.lookahead(optax.sgd(rate), steps)
  params = jnp.array([1.0, -2.0])
  state = optimizer.init(params)
  fast = slow = np.array([1.0, -2.0])
  for step in range(1, steps + 1):
    updates, state = optimizer.update(2 * params + step, state, params)
    params = optax.apply_updates(params, updates)
    fast = fast - rate * (2 * fast + step)
    if step % 5 == 0:
      weight = 0.95**5 * (step / steps) ** 3
      fast = slow = weight * slow + (1 - weight) * fast
    np.testing.assert_allclose(params, fast, rtol=1e-5)
    np.testing.assert_allclose(airbench.slow_params(state, params), slow, rtol=1e-5)


def named(state):
  """The variables of a network in training, by the names that they are kept under."""
  return {
    f"variables/{kind}.{jax.tree_util.keystr(path, simple=True, separator='.')}": leaf
    for kind, tree in {"params": state.params, **state.batch_stats}.items()
    for path, leaf in jax.tree.leaves_with_path(tree)
  }


def torch_inputs(torch, data):
  """Images and targets as PyTorch takes them."""
  inputs = torch.from_numpy((np.asarray(data.inputs) - data.mean) / data.std)
  targets = torch.from_numpy(np.array(data.targets)).long()
  return inputs.permute(0, 3, 1, 2).float(), targets


def torch_net(torch, variables, divisor=9):
  """The network in PyTorch, with the parameters and statistics of ours."""
  from torch import nn

  class Scale(nn.Module):
    def forward(self, x):
      return x / divisor

  def array(name):
    return torch.from_numpy(np.array(variables[f"variables/{name}"]))

  first = nn.Conv2d(3, 24, 2)
  kernel = array("whitening.whitening.kernel").reshape(2, 2, 3, 24)
  first.weight.data = kernel.permute(3, 2, 0, 1).contiguous()
  first.weight.requires_grad = False
  first.bias.data = array("params.whitening.bias")
  layers = [first, nn.GELU()]
  for block, place in itertools.product(range(3), range(2)):
    kernel = array(f"params.conv_{block}_{place}.kernel").permute(3, 2, 0, 1)
    conv = nn.Conv2d(*kernel.shape[1::-1], 3, padding="same", bias=False)
    conv.weight.data = kernel.contiguous()
    norm = nn.BatchNorm2d(len(kernel), eps=1e-12, momentum=0.4)
    norm.weight.requires_grad = False
    norm.bias.data = array(f"params.norm_{block}_{place}.bias")
    norm.running_mean = array(f"batch_stats.norm_{block}_{place}.mean")
    norm.running_var = array(f"batch_stats.norm_{block}_{place}.var")
    layers += [conv, *([nn.MaxPool2d(2)] if place == 0 else []), norm, nn.GELU()]
  linear = nn.Linear(len(kernel), 10, bias=False)
  linear.weight.data = array("params.linear.kernel").T.contiguous()
  return nn.Sequential(*layers, nn.MaxPool2d(3), nn.Flatten(), linear, Scale())


def test_training_is_that_of_torch(begun, trained):
  torch = pytest.importorskip("torch")
  task, run, state = begun
  variables = named(state)
  net = torch_net(torch, variables).train()
  norms = [m for m in net if isinstance(m, torch.nn.BatchNorm2d)]
  # As published: sums over 1,024 examples, coefficients divided by the reach of momentum.
  reach = 1024 * (1 + 1 / (1 - 0.85))
  rate, decay = 11.5 / reach, 0.0153 * 1024 / reach
  biases = [norm.bias for norm in norms]
  others = [
    p
    for p in net.parameters()
    if p.requires_grad and all(p is not bias for bias in biases)
  ]
  optimizer = torch.optim.SGD(
    [
      {"params": biases, "lr": rate * 64, "weight_decay": decay / (rate * 64)},
      {"params": others, "lr": rate, "weight_decay": decay / rate},
    ],
    momentum=0.85,
    nesterov=True,
  )
  corners = [0, int(0.23 * STEPS), STEPS]
  scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda step: np.interp(step, corners, [0.2, 1, 0.07])
  )
  inputs, targets = torch_inputs(torch, task.data[0])
  slow = {name: p.detach().clone() for name, p in net.named_parameters()}
  step = 0
  for epoch in range(EPOCHS):
    for batch in np.array(vs.batches(run, epoch, EXAMPLES, BATCH)):
      if step >= 0.3 * STEPS:
        net[0].bias.requires_grad = False
        net[0].bias.grad = None
      loss = torch.nn.functional.cross_entropy(
        net(inputs[batch]), targets[batch], label_smoothing=0.2
      )
      optimizer.zero_grad(set_to_none=True)
      (1024 * loss).backward()
      optimizer.step()
      scheduler.step()
      step += 1
      if step % 5 == 0:
        weight = 0.95**5 * (step / STEPS) ** 3
        for name, p in net.named_parameters():
          slow[name].lerp_(p.data, 1 - weight)
          p.data.copy_(slow[name])
  with torch.no_grad():
    for name, p in net.named_parameters():
      p.copy_(slow[name])
  check_moved(*(torch_net(torch, of) for of in (variables, trained)), net, within=2e-2)


def check_moved(at_first, ours, theirs, within):
  """Each parameter is where PyTorch's training moved it, up to a part of the way."""
  at_first, ours = (dict(net.named_parameters()) for net in (at_first, ours))
  for name, p in theirs.named_parameters():
    if p.requires_grad or name == "0.bias":
      moved, far = (float((p - of[name]).detach().norm()) for of in (at_first, ours))
      assert far < within * moved, name


def rotated(torch, gradient):
  """The singular values of a kernel's gradient, mapped by the published polynomial."""
  matrix = gradient.double().flatten(1)
  u, values, v = torch.linalg.svd(matrix / matrix.norm(), full_matrices=False)
  for _ in range(3):
    values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
  return (u * values @ v).reshape(gradient.shape).float()


@pytest.mark.parametrize("shape", [(3, 3, 5, 7), (1, 1, 4, 4)])
def test_gradients_are_made_orthogonal(shape):
  torch = pytest.importorskip("torch")
  gradient = np.random.default_rng(0).normal(size=shape).astype(np.float32)
  found = airbench.orthogonal(jnp.asarray(gradient))
  of_torch = rotated(torch, torch.from_numpy(gradient).permute(3, 2, 0, 1))
  np.testing.assert_allclose(found, of_torch.permute(2, 3, 1, 0), atol=2e-5)


def test_the_head_begins_with_a_deviation_of_one():
  kernel = airbench.unit_init(jax.random.key(0), (16, 10))
  np.testing.assert_allclose(np.std(kernel, ddof=1), 1, rtol=1e-6)
  drawn = airbench.torch_init(jax.random.key(0), (16, 10))
  assert np.ptp(kernel / drawn) < 1e-5


def test_training_with_muon_is_that_of_torch():
  """Two rates of SGD and one of Muon, as published for sums of losses, but over a
  smaller batch. One epoch of three agrees to rounding. In the second, as gradients
  vanish, their directions are rounding's in part: by a tenth on some processors.
  """
  torch = pytest.importorskip("torch")
  recipe, share = airbench.airbench94_muon_cifar10, BATCH / 2000
  rates = {name: recipe.values[name] * share for name in ("bias_lr", "linear_lr")}
  task, run, state = begin(recipe.replace(**rates))
  advance = jax.jit(vs.fast_convolutions(task.advance))
  trained = [named(advance(task.data, run, state, 0, epochs)) for epochs in (1, 2)]
  variables = named(state)
  divisor = 256 * WIDTH**0.5
  net = torch_net(torch, variables, divisor).train()
  kernels = [m.weight for m in net if isinstance(m, torch.nn.Conv2d)][1:]
  norms = [m.bias for m in net if isinstance(m, torch.nn.BatchNorm2d)]
  momenta = [torch.zeros_like(kernel) for kernel in kernels]
  decay = 2e-6 * 2000
  (linear,) = (m for m in net if isinstance(m, torch.nn.Linear))
  rates = [(net[0].bias, 0.053), (linear.weight, 0.67), *((n, 0.053) for n in norms)]
  sgd = torch.optim.SGD(
    [{"params": [p], "lr": r, "weight_decay": decay / r} for p, r in rates],
    momentum=0.85,
    nesterov=True,
  )
  inputs, targets = torch_inputs(torch, task.data[0])
  step, trained_bias = 0, -(-3 * STEPS // 8)
  for epoch, ours in enumerate(trained):
    for batch in np.array(vs.batches(run, epoch, EXAMPLES, BATCH)):
      left = 1 - step / STEPS
      for (_, rate), group in zip(rates, sgd.param_groups, strict=True):
        group["lr"] = rate * left
      sgd.param_groups[0]["lr"] = 0.053 * (1 - step / trained_bias)
      loss = torch.nn.functional.cross_entropy(
        net(inputs[batch]), targets[batch], label_smoothing=0.2
      )
      net.zero_grad(set_to_none=True)
      (BATCH * loss).backward()
      if step >= trained_bias:
        net[0].bias.grad = None
      sgd.step()
      with torch.no_grad():
        for kernel, momentum in zip(kernels, momenta, strict=True):
          momentum.mul_(0.6).add_(kernel.grad)
          turned = rotated(torch, kernel.grad + 0.6 * momentum)
          kernel.mul_(len(kernel) ** 0.5 / kernel.norm()).sub_(0.24 * left * turned)
      step += 1
    nets = (torch_net(torch, of, divisor) for of in (variables, ours))
    check_moved(*nets, net, within=(1e-4, 0.2)[epoch])
  # Its training ends early in the second epoch.
  np.testing.assert_allclose(
    torch_net(torch, trained[1], divisor)[0].bias.detach(),
    net[0].bias.detach(),
    atol=1e-5,
  )


def test_evaluation_is_that_of_torch(begun, trained):
  torch = pytest.importorskip("torch")
  task, _, _ = begun
  net = torch_net(torch, trained).eval()
  x, _ = torch_inputs(torch, task.data[1]["test"])
  bordered = torch.nn.functional.pad(x, (1, 1, 1, 1), "reflect")
  with torch.no_grad():
    crops = [
      (x, 0.25),
      (bordered[..., :32, :32], 0.125),
      (bordered[..., 2:, 2:], 0.125),
    ]
    logits = sum(w * (net(crop) + net(crop.flip(-1))) for crop, w in crops)
  np.testing.assert_allclose(trained["test/logits"], logits.numpy(), atol=1e-3)


def test_initialize_keeps_names_and_shapes():
  def wrong(variables, data, run):
    return {**variables, "params": {}}

  recipe = vs.recipe("digits_cnn", initialize=wrong)
  with pytest.raises(
    vs.UserError, match=r"initialize .*wrong gives .*: give variables of"
  ):
    vs.train(recipe, 1, "unused")


def test_initialize_sees_the_training_set_and_the_seed():
  def centred(variables, data, run):
    mean = data.preprocess(jnp.asarray(data.inputs)).mean()
    noise = jax.random.normal(jax.random.fold_in(run.key("init"), 2), (10,))
    dense = {**variables["params"]["Dense_0"], "bias": mean + noise}
    return {"params": {**variables["params"], "Dense_0": dense}}

  recipe = vs.recipe(
    "digits_cnn", initialize=centred, mean=(0.0,), std=(1.0,), epochs=0
  )
  task = supervised.load_recipe_task(recipe, Runs.independent(2))
  for seed in range(2):
    begun = jax.jit(task.start)(task.data, vs.single_run(task, seed))
    bias = begun.params["Dense_0"]["bias"]
    key = jax.random.fold_in(plain.key("init", seed), 2)
    expected = DIGITS.mean() + np.asarray(jax.random.normal(key, (10,)))
    np.testing.assert_allclose(bias, expected, rtol=1e-4)
