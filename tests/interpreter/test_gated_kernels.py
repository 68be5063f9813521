"""The kernels of act(a) * b, run by Triton's interpreter and held to float64.

Run with TRITON_INTERPRET=1 in the environment: Triton reads it when it is imported.
"""

import os

import pytest
import torch
from torch import Tensor

import softknee as sk
from helpers import BF16, F16, F32, KINDS, ordinary_values
from softknee.kernels.gated import _plan
from softknee.spec import Activation

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("Triton's interpreter is asked for with TRITON_INTERPRET=1.", allow_module_level=True)

# The interpreter computes with NumPy, which warns of an overflow in a piece that is not selected; a GPU does not.
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")


SOME = ("gelu", "generalized_smelu", "lambda_gelu", "srelu", "crrelu_exact")


def run(gate: sk.nn.Gated, *inputs: Tensor, g: Tensor) -> list[Tensor]:
    """The value and all gradients."""
    leaves = [t.detach().requires_grad_() for t in inputs]
    value = gate(*leaves)
    return [value.detach(), *torch.autograd.grad(value, [*leaves, *gate.parameters()], g.to(value.dtype))]


def assert_like_float64(gate: sk.nn.Gated, *inputs: Tensor, rtol: float = 1e-5) -> None:
    size = inputs[0].shape if len(inputs) == 2 else inputs[0].chunk(2, -1)[0].shape
    g = torch.randn(size, generator=torch.Generator().manual_seed(9))
    result = run(gate, *inputs, g=g)
    wide = sk.nn.Gated(gate.act.definition, learn=gate.act.learned, dtype=torch.float64)
    wide.load_state_dict(gate.state_dict())
    exact = run(wide, *(t.double() for t in inputs), g=g.to(inputs[0].dtype).double())
    for item, other in zip(result, exact, strict=True):
        assert item.shape == other.shape
        terms = max(1, g.numel() // max(1, other.numel()))
        atol = rtol * terms**0.5 * (1 + other.abs().max().item())
        torch.testing.assert_close(item.double(), other, rtol=rtol, atol=atol)


def numbers(*shape: int, dtype: torch.dtype = F32) -> Tensor:
    return (2 * torch.randn(shape, generator=torch.Generator().manual_seed(3))).to(dtype)


@pytest.mark.parametrize(
    "act", [KINDS[name] for name in ("gelu", "generalized_smelu", "lambda_gelu", "srelu", "crrelu_exact")]
)
def test_two_tensors_and_two_halves(act: Activation):
    gate = sk.nn.Gated(act, learn=True, dtype=F32, **ordinary_values(act))
    both = numbers(3, 5, 140)
    a, b = (t.contiguous() for t in both.chunk(2, -1))
    for x, other in ((a, b), both.chunk(2, -1)):
        assert _plan(act, x, other, gate.act.fitted(x)) is not None
    assert_like_float64(gate, a, b)
    assert_like_float64(gate, both)


@pytest.mark.parametrize("dtype", [BF16, F16], ids=["bfloat16", "float16"])
def test_half_types_are_rounded_once(dtype):
    assert_like_float64(sk.nn.Gated("silu"), numbers(4, 33, dtype=dtype), numbers(4, 33, dtype=dtype), rtol=8e-3)


@pytest.mark.parametrize(
    "layout",
    [lambda t: t.transpose(0, 1), lambda t: t[..., ::2], lambda t: t[:, 1:], lambda t: t[0, 0, 0]],
    ids=["transposed", "steps", "part", "number"],
)
def test_layouts(layout):
    assert_like_float64(sk.nn.Gated("srelu", learn=True), layout(numbers(3, 5, 6)), layout(numbers(3, 5, 6) + 1))


def test_expanded_rows_are_no_rows_apart():
    row, other = numbers(1, 12).expand(4, 12), numbers(4, 12)
    assert_like_float64(sk.nn.Gated("silu"), row, other)


@pytest.mark.parametrize("halves", [True, False])
def test_inplace_overwrites_what_the_backward_pass_needs_no_more(halves):
    x, weight = numbers(5, 6), numbers(6, 20).requires_grad_()
    results = []
    for inplace in (False, True):
        gate = sk.nn.Gated("srelu", learn=True, inplace=inplace)
        whole = x @ weight
        a, b = whole.chunk(2, -1) if halves else (whole[:, :10] * 1, whole[:, 10:] * 1)
        before = a.detach().clone()
        y = gate(a, b)
        results.append(torch.autograd.grad(y.sum(), [weight, *gate.parameters()], retain_graph=True))
        assert torch.equal(a.detach(), before) != inplace
        if inplace:
            with pytest.raises(RuntimeError, match="inplace"):
                torch.autograd.grad(y.sum(), weight)
    for plain, other in zip(*results, strict=True):
        torch.testing.assert_close(plain, other)


@pytest.mark.parametrize(
    "views",
    [lambda t: (t, t), lambda t: (t[:, :8], t[:, 4:12]), lambda t: (t[1:], t[:-1])],
    ids=["same", "over", "rows"],
)
def test_inplace_does_not_overwrite_what_lies_over_one_another(views):
    x = numbers(5, 12).requires_grad_()
    gradients = []
    for inplace in (False, True):
        a, b = views(x * 1)
        gradients.append(torch.autograd.grad(sk.nn.Gated("silu", inplace=inplace)(a, b).sum(), x)[0])
    torch.testing.assert_close(*gradients)


def test_inplace_leaves_leaves_alone():
    a, b = numbers(4, 8).requires_grad_(), (numbers(4, 8) + 1).requires_grad_()
    before = a.detach().clone()
    sk.nn.Gated("silu", inplace=True)(a, b).sum().backward()
    assert torch.equal(a.detach(), before)


def test_the_last_half_may_be_the_gate():
    gate = sk.nn.Gated("silu", gate_last=True)
    x = numbers(7, 10).requires_grad_()
    a, b = (t.detach().requires_grad_() for t in x.chunk(2, -1))
    gate(x).sum().backward()
    (torch.nn.functional.silu(b) * a).sum().backward()
    torch.testing.assert_close(x.grad, torch.cat([a.grad, b.grad], -1))


def test_more_blocks_than_programs_and_repeatable_sums(monkeypatch):
    monkeypatch.setattr("softknee.kernels.gated._PER_CORE", 3)
    gate = sk.nn.Gated("smelu", learn=True)
    a, b, g = numbers(9, 3000), numbers(9, 3000) + 1, numbers(9, 3000)
    assert_like_float64(gate, a, b)
    for one, two in zip(run(gate, a, b, g=g), run(gate, a, b, g=g), strict=True):
        assert torch.equal(one, two)
