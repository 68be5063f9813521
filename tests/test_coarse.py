"""The coarse functions that a compiler gets for half types on a GPU: near enough that a rounded result is right.

And the masks of dropout in torch operations, which the Triton kernel repeats (tests/interpreter/test_keyed_mask.py).
"""

import pytest
import torch

import softknee as sk
from half import HALF_TYPES, UNDERFLOW, assert_rounds_well, every_number
from helpers import F16, F32, F64, every_subject, settings
from softknee.kernels import torch_math
from softknee.kernels.generate import torch_function
from softknee.spec import Activation
from softknee.train.random_keys import bits, masks, seed_keys
from softknee.train.stacked_modules import Draws

GELU = sk.get("gelu")


@pytest.mark.parametrize(
    ("dtype", "reach", "of_value", "of_pair"),
    # In float32 the square of u loses u^2/2 units of the result, as it does in the fused kernels.
    [(F64, 12, 2**-12, 2**-19.9), (F32, 6, 2**-12, 2**-19), (F32, 12, 2**-12, 2**-17.5)],
    ids=["the approximation", "float32", "float32, far out"],
)
def test_coarse_normal_functions_keep_the_digits_they_promise(dtype, reach, of_value, of_pair):
    u = torch.linspace(-reach, reach, 200_001, dtype=dtype)
    below = torch.special.erfc(-u.double() * 0.5**0.5) / 2
    density = torch.exp(-(u.double() ** 2) / 2) / (2 * torch.pi) ** 0.5
    value, (paired, slope) = torch_math.normal_cdf_half(u), torch_math.normal_pair_half(u)
    for result, truth, bound in ((value, below, of_value), (paired, below, of_pair), (slope, density, of_pair)):
        assert result.dtype == dtype
        assert float(((result.double() - truth) / truth).abs().max()) < bound


def is_changed(act: Activation) -> bool:
    used = {name for index in ((), ("x",)) for name in torch_function(act, index, coarse=True).__code__.co_names}
    return any(f"{name}_half" in vars(torch_math) for name in used)


def test_some_functions_have_coarse_parts_and_others_are_as_they_were():
    assert is_changed(GELU)
    assert not is_changed(sk.get("smelu"))
    x = torch.linspace(-4, 4, 101)
    fine, coarse = (torch_function(GELU, (), coarse=item)(x, torch.ones(1))[0] for item in (False, True))
    assert not torch.equal(fine, coarse)
    torch.testing.assert_close(fine, coarse, rtol=2**-11, atol=0)


@HALF_TYPES
@every_subject
def test_coarse_values_and_slopes_round_well(act: Activation, dtype: torch.dtype):
    if not is_changed(act):  # the same function as without it, which test_half.py is about
        assert torch_function(act, (), coarse=True).__code__.co_code == torch_function(act, ()).__code__.co_code
        return
    numbers = every_number(dtype)
    # Where a slope crosses 0, two parts of a tenth and more cancel, each known to 2^-20; this is 2 units of a float16.
    near_zero = 2.0**-23 if dtype == F16 else UNDERFLOW
    for values in settings(act):
        exact = numbers.double().requires_grad_()
        truth = act(exact, **values)
        (slope,) = torch.autograd.grad(truth.sum(), exact)
        params = [values[p.name].to(F32) for p in act.params]
        got, steep = (torch_function(act, index, coarse=True)(numbers.to(F32), *params)[0] for index in ((), ("x",)))
        assert_rounds_well(got.to(dtype), truth.detach(), numbers)
        assert_rounds_well(steep.to(dtype), slope, numbers, near_zero)


@pytest.mark.parametrize("dtype", [F32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_masks_are_bits_that_reach_the_threshold(p, dtype):
    keys = seed_keys([0, 5, 2**40 + 7])
    step = torch.zeros(1, dtype=torch.int64)
    scale = 1 / (1 - p) if p < 1 else 0.0
    # What dropout did before masks had a function of their own.
    drawn = Draws(keys, step).bits("layers.1", 5000)
    before = (drawn >= round(p * 2**32)).to(dtype).mul_(scale)
    assert torch.equal(Draws(keys, step).mask("layers.1", 5000, p=p, dtype=dtype), before)
    assert torch.equal(masks(keys, 9, threshold=2**31, scale=2.0, dtype=dtype), (bits(keys, 9) >= 2**31).to(dtype) * 2)
    share = float((before == 0).double().mean())
    assert abs(share - p) < 4 * (0.25 / before.numel()) ** 0.5


def test_a_site_that_is_known_draws_as_before():
    keys, step = seed_keys([1, 2]), torch.full((1,), 3)
    fresh, known = Draws(keys, step), Draws(keys, step)
    known.know("a.b")
    for _ in range(2):  # a second pass of the same site draws anew
        assert torch.equal(fresh.bits("a.b", 50), known.bits("a.b", 50))
    assert not torch.equal(Draws(keys, step).bits("a.b", 50), fresh.bits("a.b", 50))
