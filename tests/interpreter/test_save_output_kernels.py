"""Kernels that compute gradients from the output, in Triton's interpreter.

Run with TRITON_INTERPRET=1 in the environment: Triton reads it when it is imported.
"""

import os
from typing import Any

import pytest
import torch
from torch import Tensor

import softknee as sk

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("Triton's interpreter is asked for with TRITON_INTERPRET=1.", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
WIDE: dict[str, Any] = {"srelu": {"delta": 1.0}}
NAMES = ["relu", "srelu", "smelu", "generalized_smelu", "elu", "softplus", "gelu", "lambda_gelu", "swish", "mish"]


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def gradients(module: Any, x: Tensor, g: Tensor) -> tuple[Tensor, ...]:
    x = x.clone().requires_grad_()
    return torch.autograd.grad(module(x), [x, *module.parameters()], g.to(x.dtype))


def learned(name: str) -> Any:
    """What keeps the function in its shape, whatever its value."""
    return [p.name for p in sk.get(name).params if p.symbol.is_positive]


# sqrt(2 c eps |m|) at a minimum, and the interpreter cuts bfloat16 off instead of rounding it.
CLOSE = {torch.float32: 5e-4, torch.bfloat16: 0.2, torch.float16: 0.05}


@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_gradients_from_the_output(name: str, dtype: torch.dtype) -> None:
    saving, usual = (sk.nn.make(name, save=s, learn=learned(name), **WIDE.get(name, {})) for s in ("output", "input"))
    x, g = numbers(3, 171).to(dtype), numbers(3, 171, seed=1)  # three programs, the last with one number
    assert torch.equal(saving(x.clone().requires_grad_()), usual(x))
    got, want = gradients(saving, x, g), gradients(usual, x, g)
    assert len(saving._calls) == 1
    torch.testing.assert_close(got[0], want[0], atol=3 * CLOSE[dtype], rtol=0.02)
    for of_got, of_want in zip(got[1:], want[1:], strict=True):
        torch.testing.assert_close(of_got, of_want, atol=20 * CLOSE[dtype], rtol=0.02)
    again = gradients(saving, x, g)
    assert all(map(torch.equal, got, again))


@pytest.mark.parametrize("name", ["srelu", "gelu", "smelu"])
@pytest.mark.parametrize("dim", [1, -1])
def test_one_value_per_channel(name: str, dim: int) -> None:
    param = "delta" if name == "srelu" else "beta"
    width = torch.linspace(0.5, 2, 9)
    options = {"learn": param, "per": "channel", "size": 9, "dim": dim, param: width}
    saving, usual = (sk.nn.make(name, save=s, **options) for s in ("output", "input"))
    x, g = numbers(5, 9, 9), numbers(5, 9, 9, seed=1)
    for got, want in zip(gradients(saving, x, g), gradients(usual, x, g), strict=True):
        torch.testing.assert_close(got, want, atol=1e-3, rtol=1e-3)


def test_bits_are_those_of_torch_operations() -> None:
    from softknee.kernels import operators
    from softknee.kernels.inverse import inverse_of

    inverse, x = inverse_of(sk.get("gelu")), numbers(1003)
    beta = torch.ones(1)
    _, sides = operators.pointwise_with_sides(x, [beta], inverse.key)
    assert torch.equal(sides[:-1], operators.pack(x > -0.7517915)[:-1])
    assert torch.equal(operators.unpack(sides, x), x > -0.7517915)


def test_numbers_beyond_the_function() -> None:
    """What rounding or a caller makes of an output: infinite, NaN, below the minimum."""
    for name in ("gelu", "srelu", "softplus", "elu"):
        module = sk.nn.make(name, save="output")
        x = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 1e-40, -1e-40, 3e38, -3e38, -0.7518])
        (slope,) = gradients(module, x, torch.ones(10))
        assert slope[2].isnan()
        assert slope[torch.arange(10) != 2].isfinite().all()
