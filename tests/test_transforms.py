"""torch.func and forward-mode differentiation over the whole zoo."""

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import softknee as sk
from helpers import F64, away_from_seams, each_kind, each_learned_kind, every_subject, ordinary_values
from softknee.spec import Activation

# torch's forward mode scripts a few functions of its own when it is first used.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


def smooth_points(act: Activation) -> Tensor:
    points = torch.linspace(-2.9, 3.1, 12, dtype=F64)
    return away_from_seams(act, points, ordinary_values(act))


def tensors(act: Activation) -> dict[str, Tensor]:
    return {name: torch.full((1,), value, dtype=F64) for name, value in ordinary_values(act).items()}


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@every_subject
def test_grad(act: Activation):
    x, values = smooth_points(act), tensors(act)
    same(grad(lambda x: act(x, **values).sum())(x), act.derivative(1)(x, **values))
    for name in values:
        by_param = grad(lambda p, name=name: act(x, **{**values, name: p}).sum())(values[name])
        same(by_param, act.partial(name)(x, **values).sum().reshape(1))


@every_subject
def test_grad_of_grad(act: Activation):
    x, values = smooth_points(act), tensors(act)
    twice = grad(lambda x: grad(lambda x: act(x, **values).sum())(x).sum())(x)
    same(twice, act.derivative(2)(x, **values))


@every_subject
def test_vmap_over_the_input_and_over_parameters(act: Activation):
    x, values = smooth_points(act), tensors(act)
    batch = torch.stack([x, 0.5 * x, -x])
    same(vmap(lambda x: act(x, **values))(batch), act(batch, **values))
    if values:
        wide = {name: torch.stack([p, 1.1 * p, 1.2 * p]) for name, p in values.items()}
        actual = vmap(lambda x, p: act(x, **p), in_dims=(None, 0))(x, wide)
        expected = torch.stack([act(x, **{n: p[i] for n, p in wide.items()}) for i in range(3)])
        same(actual, expected)


@each_kind
def test_gradients_per_sample(act: Activation):
    x, values = smooth_points(act), tensors(act)
    batch = torch.stack([x, 0.5 * x])
    actual = vmap(grad(lambda x, p: act(x, **p).square().sum(), argnums=(0, 1)), in_dims=(0, None))(batch, values)
    for i, row in enumerate(batch):
        inputs = [t.clone().requires_grad_() for t in (row, *values.values())]
        value = act(inputs[0], **dict(zip(values, inputs[1:], strict=True)))
        expected = torch.autograd.grad(value.square().sum(), inputs)
        same(actual[0][i], expected[0])
        for name, item in zip(values, expected[1:], strict=True):
            same(actual[1][name][i], item)


@every_subject
def test_jvp_and_vjp(act: Activation):
    x, values = smooth_points(act), tensors(act)
    tangent = torch.linspace(-1, 1, len(x), dtype=F64)
    directions = {name: torch.full((1,), 0.5 + i, dtype=F64) for i, name in enumerate(values)}
    value, along = jvp(lambda x, p: act(x, **p), (x, values), (tangent, directions))
    same(value, act(x, **values))
    expected = tangent * act.derivative(1)(x, **values)
    for name, direction in directions.items():
        expected = expected + direction * act.partial(name)(x, **values)
    same(along, expected)
    _, pull = vjp(lambda x: act(x, **values), x)
    same(pull(tangent)[0], tangent * act.derivative(1)(x, **values))


@each_kind
def test_dual_numbers(act: Activation):
    x, values = smooth_points(act), tensors(act)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        value, slope = forward_ad.unpack_dual(act(dual, **values))
        same(value, act(x, **values))
        assert slope is not None
        same(slope, act.derivative(1)(x, **values))


@each_kind
def test_hessian_and_jacobians(act: Activation):
    x, values = smooth_points(act)[:4], tensors(act)
    expected = torch.diag(act.derivative(2)(x, **values))
    same(hessian(lambda x: act(x, **values).sum())(x), expected)
    slopes = torch.diag(act.derivative(1)(x, **values))
    same(jacfwd(lambda x: act(x, **values))(x), slopes)
    same(jacrev(lambda x: act(x, **values))(x), slopes)


@each_learned_kind
def test_functional_call(act: Activation):
    """A module's parameters as arguments, one set per replica: how an ensemble is trained."""
    x = smooth_points(act)
    module = sk.nn.make(act, learn=True, dtype=F64, **ordinary_values(act))
    state = {name: p.detach() for name, p in module.named_parameters()}
    wide = {name: torch.stack([p, p + 0.1]) for name, p in state.items()}
    rows = [{name: p[i] for name, p in wide.items()} for i in range(2)]
    same(
        vmap(lambda s: functional_call(module, s, (x,)))(wide),
        torch.stack([functional_call(module, s, (x,)) for s in rows]),
    )
    gradients = vmap(grad(lambda s: functional_call(module, s, (x,)).square().sum()))(wide)
    for i, row in enumerate(rows):
        alone = grad(lambda s: functional_call(module, s, (x,)).square().sum())(row)
        for name, item in alone.items():
            same(gradients[name][i], item)
    same(functional_call(module, state, (x,)), module(x).detach())


@each_kind
def test_several_gradients_at_once(act: Activation):
    """torch.autograd's own batching, which jacobian(vectorize=True) and gradcheck use; it is not torch.func's vmap."""
    x, values = smooth_points(act).requires_grad_(), {n: p.requires_grad_() for n, p in tensors(act).items()}
    leaves, y = [x, *values.values()], act(x, **values)
    outer = torch.stack([torch.ones_like(y), y.detach(), -y.detach()])
    result = torch.autograd.grad(y, leaves, outer, is_grads_batched=True, retain_graph=True)
    one_by_one = [torch.autograd.grad(y, leaves, g, retain_graph=True) for g in outer]
    for place, together in enumerate(result):
        same(together, torch.stack([each[place] for each in one_by_one]))
