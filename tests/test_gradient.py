"""Gradients of x and of every parameter: right, to second order, repeatable, and cheap to keep."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import softknee as sk
from helpers import F32, F64, away_from_seams, each_kind, each_learned_kind, every_subject, ordinary_values, tolerance
from softknee.spec import Activation

LARGE = 9_001  # more than two of the small blocks, and not a whole number of them
small_blocks = pytest.mark.usefixtures("small_blocks")
# Large enough for real blocks and for two threads. How blocks are cut and summed does not ask for the formula, so a
# polynomial, one with a special function and one with several parameters stand for all.
REALLY_LARGE = 540_001
three = pytest.mark.parametrize("name", ["srelu", "lambda_gelu", "generalized_smelu"])


def leaves(act: Activation, x: Tensor, shape: tuple[int, ...] = (1,), dtype=F64) -> list[Tensor]:
    values = ordinary_values(act)
    return [x.detach().clone().requires_grad_()] + [
        torch.full(shape, v, dtype=dtype, requires_grad=True) for v in values.values()
    ]


def apply(act: Activation):
    names = [p.name for p in act.params]
    return lambda x, *values: act(x, **dict(zip(names, values, strict=True)))


def smooth_points(act: Activation, count: int = 12) -> Tensor:
    x = torch.linspace(-3.1, 3.3, count, dtype=F64)
    kept = away_from_seams(act, x, ordinary_values(act))
    assert len(kept) > count // 2
    return kept


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch's own use of it
@every_subject
def test_gradcheck(act: Activation):
    inputs = leaves(act, smooth_points(act))
    assert gradcheck(apply(act), inputs, atol=tolerance(F64, "gradcheck"), fast_mode=False, check_forward_ad=True)


@pytest.mark.slow
@every_subject
def test_gradgradcheck(act: Activation):
    inputs = leaves(act, smooth_points(act, 7))
    assert gradgradcheck(apply(act), inputs, atol=tolerance(F64, "gradcheck"))


@each_learned_kind
def test_gradcheck_per_neuron(act: Activation):
    x = smooth_points(act, 8)[:4]
    assert gradcheck(apply(act), leaves(act, x, (4,)), atol=tolerance(F64, "gradcheck"))


@every_subject
def test_double_backward_is_the_second_derivative(act: Activation):
    x, *params = leaves(act, smooth_points(act))
    (first,) = torch.autograd.grad(apply(act)(x, *params).sum(), x, create_graph=True)
    values = ordinary_values(act)
    if first.requires_grad:  # a piecewise linear function has a constant slope, and torch may know it
        (second,) = torch.autograd.grad(first.sum(), x, allow_unused=True, materialize_grads=True)
    else:
        second = torch.zeros_like(x)
    torch.testing.assert_close(second, act.derivative(2)(x.detach(), **values), rtol=1e-14, atol=1e-14)


def assert_repeats(act: Activation, x: Tensor) -> None:
    assert sk.explain(act, x).path == "blocks"
    runs = []
    for _ in range(3):
        inputs = leaves(act, x, dtype=F32)
        runs.append(torch.autograd.grad(apply(act)(*inputs).square().sum(), inputs))
    for again in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], again, strict=True))


@small_blocks
@each_learned_kind
def test_parameter_gradients_repeat_to_the_last_bit(act: Activation):
    assert_repeats(act, 3 * torch.randn(LARGE, generator=torch.Generator().manual_seed(0)))


@pytest.mark.slow
@pytest.mark.usefixtures("two_threads")
@three
def test_parameter_gradients_repeat_with_two_threads(name: str):
    assert_repeats(sk.get(name), 3 * torch.randn(REALLY_LARGE, generator=torch.Generator().manual_seed(0), dtype=F64))


@small_blocks
@each_kind
def test_only_the_input_and_the_parameters_are_saved(act: Activation):
    x, *params = leaves(act, torch.randn(LARGE), dtype=F32)
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        result = apply(act)(x, *params)
    held = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in saved}
    own = {t.untyped_storage().data_ptr() for t in (x, *params)}
    assert result.requires_grad
    # A constrained parameter that is learned is saved as the number that its range has for it.
    assert all(size <= 4 for place, size in held.items() if place not in own)
    assert sum(held.values()) <= 4 * (x.numel() + len(params))


def assert_blocks_are_pieces(act: Activation, size: int, piece: int) -> None:
    x = 3 * torch.randn(size, generator=torch.Generator().manual_seed(1), dtype=F64)
    g = torch.randn(size, generator=torch.Generator().manual_seed(2), dtype=F64)
    assert sk.explain(act, x).path == "blocks"
    assert sk.explain(act, x[:1000]).path == "plain"

    def run(x: Tensor, g: Tensor) -> list[Tensor]:
        inputs = leaves(act, x)
        value = apply(act)(*inputs)
        return [value.detach(), *torch.autograd.grad(value, inputs, g)]

    whole = run(x, g)
    pieces = [run(a, b) for a, b in zip(x.split(piece), g.split(piece), strict=True)]
    for i in (0, 1):
        torch.testing.assert_close(whole[i], torch.cat([p[i] for p in pieces]), rtol=1e-14, atol=1e-14)
    for i in range(2, len(whole)):
        terms = sum(p[i].abs() for p in pieces)
        parts = sum(p[i] for p in pieces)
        assert (whole[i] - parts).abs() <= tolerance(F64, "sum") * terms


@small_blocks
@each_kind
def test_blocks_give_what_small_pieces_give(act: Activation):
    assert_blocks_are_pieces(act, LARGE, 512)


@three
def test_blocks_of_the_real_size_do_too(name: str):
    assert_blocks_are_pieces(sk.get(name), REALLY_LARGE, 1 << 14)


@small_blocks
@each_learned_kind
def test_blocks_of_rows_with_a_parameter_per_neuron(act: Activation):
    x = 3 * torch.randn(9, 5, 200, generator=torch.Generator().manual_seed(3), dtype=F64)
    inputs = leaves(act, x, (5, 200))
    assert sk.explain(act, x).path == "blocks"
    whole = torch.autograd.grad(apply(act)(*inputs).square().sum(), inputs)
    rows = [leaves(act, row, (5, 200)) for row in x]
    parts = [torch.autograd.grad(apply(act)(*row).square().sum(), row) for row in rows]
    torch.testing.assert_close(whole[0], torch.stack([p[0] for p in parts]), rtol=1e-14, atol=1e-14)
    for i in range(1, len(whole)):
        torch.testing.assert_close(whole[i], sum(p[i] for p in parts), rtol=1e-12, atol=1e-9)


@each_kind
def test_no_gradient_is_made_where_none_is_wanted(act: Activation):
    x, *params = leaves(act, torch.linspace(-2, 2, 5, dtype=F64))
    with torch.no_grad():
        assert not apply(act)(x, *params).requires_grad
    if params:
        (only,) = torch.autograd.grad(apply(act)(x.detach(), *params).sum(), params[:1])
        assert only.shape == params[0].shape
