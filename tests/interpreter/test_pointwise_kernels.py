"""The fused kernels of every element-wise definition, run by Triton's interpreter and held to the same references.

Run with TRITON_INTERPRET=1 in the environment: Triton reads it when it is imported.
"""

import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import softknee as sk
from extremes import assert_is_the_limit, computed, derivatives, extreme_points
from half import assert_rounds_well, every_number
from helpers import (
    BF16,
    F16,
    F32,
    F64,
    KINDS,
    assert_close_to_reference,
    draw,
    each_kind,
    every_subject,
    ordinary_values,
    settings,
)
from softknee.kernels.launch import power_of_two
from softknee.spec import Activation

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("Triton's interpreter is asked for with TRITON_INTERPRET=1.", allow_module_level=True)

# The interpreter computes with NumPy, which warns of an overflow in a piece that is not selected; a GPU does not.
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
THREE = pytest.mark.parametrize("name", ["srelu", "gelu", "generalized_smelu"])


def run(act: Activation, x: Tensor, params: dict[str, Tensor], g: Tensor) -> list[Tensor]:
    inputs = [t.detach().requires_grad_() for t in (x, *params.values())]
    value = act(inputs[0], **dict(zip(params, inputs[1:], strict=True)))
    return [value.detach(), *torch.autograd.grad(value, inputs, g)]


def assert_like_float64(act: Activation, x: Tensor, params: dict[str, Tensor], g: Tensor) -> None:
    """float64 never takes the fused kernels; a sum is judged by the size of its terms."""
    assert sk.explain(act, x).path == "fused"
    result = run(act, x, params, g)
    exact = run(act, x.double(), {name: p.double() for name, p in params.items()}, g.double())
    for item, other in zip(result, exact, strict=True):
        assert item.shape == other.shape
        terms = max(1, x.numel() // max(1, other.numel()))
        torch.testing.assert_close(
            item.double(), other, rtol=1e-5, atol=2e-6 * terms**0.5 * (1 + other.abs().max().item())
        )


def spread(value: float, shape: tuple[int, ...]) -> Tensor:
    return value * (1 + 0.05 * torch.rand(shape, generator=torch.Generator().manual_seed(7)))


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@every_subject
def test_value_and_slopes_match_fifty_digits(act: Activation):
    """Parameters of the shape of x: each gradient is a sum of one term, the derivative itself."""
    x, params = draw(act, 80, F32, seed=5)
    assert sk.explain(act, x).path == "fused"
    result = run(act, x, params, torch.ones_like(x))
    for quantity, got in zip(derivatives(act).values(), result, strict=True):
        assert_close_to_reference(quantity, got, x, params)


@every_subject
def test_one_parameter_for_all_matches_fifty_digits(act: Activation):
    """The flat kernel, whose code is another than that for parameters per neuron."""
    for seed, values in enumerate(settings(act)[:4]):
        x, _ = draw(act, 32, F32, seed=50 + seed)
        x = x if act.implicit is None else x[:12]  # 3 ms for each reference
        params = {name: value.to(F32) for name, value in values.items()}
        result = run(act, x, params, torch.ones_like(x))
        for quantity, got in zip(list(derivatives(act).values())[:2], result[:2], strict=True):
            assert_close_to_reference(quantity, got, x, params)


def telling_numbers(act: Activation, values: dict[str, Tensor], dtype: torch.dtype) -> Tensor:
    """A sample of a 16-bit type, and all numbers around the places where the slope changes sign and its terms cancel.

    No subnormals: the interpreter reads those of bfloat16 as other numbers (-1.38e-39 as -1.03e-38), a GPU does not.
    """
    x = every_number(dtype)
    x = x[x.abs() >= torch.finfo(dtype).smallest_normal].double().sort().values.to(dtype)
    slope = act.derivative(1)(x.double(), **values)
    crossings = (slope[1:] * slope[:-1] < 0).nonzero().reshape(-1, 1)
    around = (crossings + torch.arange(-100, 100)).reshape(-1).clamp(0, len(x) - 1)
    return torch.cat([x[::61], x[around]])


@pytest.mark.parametrize("dtype", [BF16, F16], ids=["bfloat16", "float16"])
@every_subject
def test_half_types_round_well(act: Activation, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch):
    """The defaults in both types, every other setting in one of them: both are float32 work, rounded at the end."""
    # One program for all numbers: each takes the interpreter as long, however many numbers it has.
    monkeypatch.setattr("softknee.kernels.fused._block", lambda n, most: power_of_two(n))
    chosen = settings(act)
    for values in [chosen[0], *chosen[1 + (dtype == F16) :: 2]]:
        x = telling_numbers(act, values, dtype)
        params = {name: value.to(F32) for name, value in values.items()}
        assert sk.explain(act, x).path == "fused"
        value, slope, *_ = run(act, x, params, torch.ones_like(x))
        truth, steepness, *_ = run(act, x.double(), values, torch.ones_like(x, dtype=F64))
        assert_rounds_well(value, truth, x)
        assert_rounds_well(slope, steepness, x)


@every_subject
def test_extremes(act: Activation):
    points = extreme_points(F32)
    for values in settings(act):
        x = torch.tensor([*points, torch.nan])
        result = computed(act, x, {name: value.to(F32) for name, value in values.items()})
        numbers = {name: value.item() for name, value in values.items()}
        for index, quantity in derivatives(act).items():
            assert result[index][-1].isnan(), quantity.name
            for at, got in zip(points, result[index].tolist(), strict=False):
                assert_is_the_limit(quantity, got, at, numbers, F32)


LAYOUTS = {
    "flat": (lambda: numbers(2, 6, 7), (1,)),
    "channels": (lambda: numbers(3, 6, 5, 4), (6, 1, 1)),
    "channels_last": (lambda: numbers(3, 6, 5, 4).to(memory_format=torch.channels_last), (6, 1, 1)),
    "features": (lambda: numbers(9, 70), (70,)),
    "neurons": (lambda: numbers(3, 6, 5), (6, 5)),
    "transposed": (lambda: numbers(6, 9).T, (9, 1)),
    "transposed_features": (lambda: numbers(6, 9).T, (6,)),
    "sliced": (lambda: numbers(4, 6, 10)[..., ::2], (6, 1)),
    "expanded": (lambda: numbers(1, 6, 1).expand(4, 6, 5), (6, 1)),
    "batch": (lambda: numbers(4, 6, 5), (4, 1, 1)),
    "zero_dim": (lambda: numbers(1)[0], (1,)),
}


# How memory is walked does not ask for the formula: all layouts for three functions, and for one of each other kind one
# number for all, one for each channel, and one more in turn.
WALKS = [
    pytest.param(KINDS[name], layout, id=f"{name}-{layout}")
    for place, name in enumerate(KINDS)
    for layout in LAYOUTS
    if name in ("srelu", "gelu", "generalized_smelu")
    or layout in ("flat", "channels", list(LAYOUTS)[2 + place % (len(LAYOUTS) - 2)])
]


@pytest.mark.parametrize(("act", "layout"), WALKS)
def test_layouts(act: Activation, layout: str):
    make, shape = LAYOUTS[layout]
    x = make()
    params = {name: spread(value, shape) for name, value in ordinary_values(act).items()}
    assert_like_float64(act, x, params, numbers(*x.shape, seed=1))


def widths(*shape: int) -> Tensor:
    return numbers(*shape).abs() + 0.5


@pytest.mark.parametrize("shape", [(4, 6), (3, 6, 5)], ids=str)
@pytest.mark.parametrize(
    "lying",
    [lambda: widths(6, 2)[:, 0], lambda: widths(1).expand(6), lambda: widths(12)[::2]],
    ids=["a column", "expanded", "every second"],
)
@pytest.mark.parametrize("name", ["srelu", "smelu"])
def test_parameters_that_do_not_lie_side_by_side(name: str, lying: Callable[[], Tensor], shape: tuple[int, ...]):
    act, x, wide = sk.get(name), numbers(*shape), (6,) + (1,) * (len(shape) - 2)
    actual, expected = (
        run(act, x, {act.knob: item.reshape(wide)}, numbers(*shape, seed=1)) for item in (lying(), lying().contiguous())
    )
    for ours, theirs in zip(actual, expected, strict=True):
        assert torch.equal(ours, theirs)


def test_parameters_of_different_shapes():
    act, x = sk.get("generalized_smelu"), numbers(3, 6, 5)
    shapes = [(1,), (6, 1), (6, 1), (1, 1), (1, 6, 1)]
    params = {n: spread(v, s) for (n, v), s in zip(ordinary_values(act).items(), shapes, strict=True)}
    assert_like_float64(act, x, params, numbers(3, 6, 5, seed=1))


@pytest.mark.parametrize("size", [1, 63, 64, 65, 1023, 1024, 1025, 4097, 70_000])
@THREE
def test_sizes_around_the_blocks(name: str, size: int):
    act = sk.get(name)
    params = {label: spread(value, (1,)) for label, value in ordinary_values(act).items()}
    assert_like_float64(act, numbers(size), params, numbers(size, seed=1))


@pytest.mark.parametrize("shape", [(1, 1), (17, 63), (16, 65), (1025, 3), (3, 1025), (2, 129, 33)], ids=str)
@pytest.mark.parametrize("per", ["channel", "neuron"])
def test_sizes_of_channels(shape: tuple[int, ...], per: str):
    act, x = sk.get("smelu"), numbers(*shape)
    size = (shape[1], *([1] * (len(shape) - 2))) if per == "channel" else shape[1:]
    assert_like_float64(act, x, {"beta": spread(0.7, size)}, numbers(*shape, seed=1))


@THREE
def test_gradients_repeat_to_the_last_bit(name: str):
    act, x, g = sk.get(name), numbers(5000), numbers(5000, seed=1)
    params = {label: spread(value, (1,)) for label, value in ordinary_values(act).items()}
    first = run(act, x, params, g)
    assert all(torch.equal(a, b) for a, b in zip(first, run(act, x, params, g), strict=True))


@each_kind
def test_second_derivatives_beside_the_kernels(act: Activation):
    x = numbers(40).requires_grad_()
    params = {name: spread(value, (1,)) for name, value in ordinary_values(act).items()}
    (slope,) = torch.autograd.grad(act(x, **params).sum(), x, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.square().sum(), x, allow_unused=True, materialize_grads=True)
    exact = {name: p.double() for name, p in params.items()}
    expected = 2 * act.derivative(1)(x.detach().double(), **exact) * act.derivative(2)(x.detach().double(), **exact)
    torch.testing.assert_close(curvature.double(), expected, rtol=1e-4, atol=1e-4)


@THREE
def test_opcheck(name: str):
    act, x = sk.get(name), numbers(4, 3, 5)
    params = [spread(value, (3, 1)) for value in ordinary_values(act).values()]
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(torch.ops.softknee.pointwise.default, (x, params, act.key), test_utils=checks)
    needs = [True] * (1 + len(params))
    arguments = (numbers(4, 3, 5, seed=1), x, params, act.key, needs)
    torch.library.opcheck(torch.ops.softknee.pointwise_backward.default, arguments, test_utils=checks)


def test_inplace_overwrites_and_counts():
    x = numbers(3, 50)
    expected, version = sk.get("srelu")(x, delta=0.5), x._version
    result = sk.nn.SReLU(delta=0.5, inplace=True)(x)
    assert result.data_ptr() == x.data_ptr()
    assert x._version > version
    assert torch.equal(x, expected)
