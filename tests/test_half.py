"""bfloat16 and float16: as near to the float64 truth as a correctly rounded result, or one unit further.

What float16 cannot hold of a SQUAF layer is refused by everything that writes it.
"""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

import softknee as sk
from half import HALF_TYPES, UNDERFLOW, assert_rounds_well, every_number
from helpers import BF16, F16, F32, F64, each_kind, every_subject, settings
from softknee.errors import ParameterError
from softknee.spec import Activation

# The tails of the bump kernel are known to 1e-14 of the width and not relative to their size, and computed in float32.
BUMP = 1e-12


def test_the_numbers_are_many():
    for dtype in (BF16, F16):
        numbers = every_number(dtype)
        assert len(numbers) > 30_000
        assert numbers.min() < -49
        assert numbers.max() > 49


def test_the_rule_sees_a_wrong_bit():
    truth = torch.tensor([1.0 + 2**-10], dtype=F64)
    assert_rounds_well(torch.tensor([1.0 + 2**-7], dtype=BF16), truth, truth)
    with pytest.raises(AssertionError, match="units"):
        assert_rounds_well(torch.tensor([1.0 + 2**-6], dtype=BF16), truth, truth)


@HALF_TYPES
@every_subject
def test_value_and_slope_round_well(act: Activation, dtype: torch.dtype):
    numbers = every_number(dtype, 3 if act.implicit is not None else 1)
    for values in settings(act):
        exact = numbers.double().requires_grad_()
        truth = act(exact, **values)
        (slope,) = torch.autograd.grad(truth.sum(), exact)
        x = numbers.clone().requires_grad_()
        got = act(x, **{name: value.to(F32) for name, value in values.items()})
        (gradient,) = torch.autograd.grad(got.sum(), x)
        assert got.dtype == gradient.dtype == dtype
        floor = BUMP * max(1.0, values["delta"].item()) if act.name.endswith("_bump") else UNDERFLOW
        assert_rounds_well(got.detach(), truth.detach(), numbers, floor)
        assert_rounds_well(gradient, slope, numbers, floor)


@HALF_TYPES
@each_kind
def test_parameters_of_a_half_type_are_read_as_they_are(act: Activation, dtype: torch.dtype):
    """A parameter in bfloat16 is the number it is, not rounded again and not promoted in the result."""
    x = every_number(dtype, 7)
    values = {name: value.to(dtype) for name, value in settings(act)[0].items()}
    got = act(x, **values)
    truth = act(x.double(), **{name: value.double() for name, value in values.items()})
    assert_rounds_well(got, truth, x)


def squaf(**arguments: Any) -> sk.nn.SQUAF:
    return sk.nn.SQUAF(**{"k": 4, "z": "gelu", **arguments})


def as_it_was(module: torch.nn.Module, state: dict[str, Tensor]) -> bool:
    now = module.state_dict()
    return all(torch.equal(item, state[name]) and item.dtype == state[name].dtype for name, item in now.items())


@pytest.mark.parametrize("learn", [False, "alpha"])
def test_half_is_refused_where_alpha_would_be_lost(learn: bool | str):
    fine, module = squaf(alpha=4e4, learn=learn).half(), squaf(alpha=7e4, learn=learn)
    assert fine.alpha.item() == pytest.approx(4e4, rel=1e-3)
    state = copy.deepcopy(module.state_dict())
    lost = r"(: alpha=70000|anchor_alpha=100989 .*) is inf in torch\.float16.*bfloat16"
    for way in (module.half, lambda: module.to("cpu", torch.float16), torch.nn.Sequential(module).half):
        with pytest.raises(ParameterError, match=lost):
            way()
    assert as_it_was(module, state)
    module.bfloat16().double().float().to_empty(device="meta").half()
    with pytest.raises(ParameterError, match=r"alpha=1e-60 is 0 in torch\.float32.*keep this layer in torch\.float64"):
        squaf(alpha=1e-60, dtype=F64).float()


@pytest.mark.parametrize("learn", [False, True])
def test_a_layer_in_half_takes_no_number_that_it_cannot_hold(learn: bool):
    module = squaf(dtype=F16, learn=learn)
    state = copy.deepcopy(module.state_dict())
    large = torch.full((9,), 7e4)
    cure = r"keep this layer in torch\.float32 or torch\.bfloat16"
    for values, lost in (
        ({"alpha": 7e4}, r"alpha=(70000|100989 \(alpha is learned as a multiple of it\)) is inf in torch\.float16"),
        ({"alpha": 2.0, "q": 1e-9}, r"q=1\.?\d*e-09 .*is 0 in torch\.float16"),
        ({"z": large}, r"z=70000 is inf in torch\.float16"),
    ):
        with pytest.raises(ParameterError, match=f"{lost}.*{cure}, or give another"):
            module.set_(**values)
        with pytest.raises(ParameterError, match=f"{lost}.*{cure}, or give another"):
            squaf(dtype=F16, learn=learn, **values)
        whole = squaf(learn=learn, **values)
        for own, given in ((module, whole), (torch.nn.Sequential(module), torch.nn.Sequential(whole))):
            with pytest.raises(ParameterError, match=f"{lost}.*{cure} before the state is loaded"):
                own.load_state_dict(given.state_dict())
        assert as_it_was(module, state)  # q stands before alpha, and neither was written
        # What the types hold is taken: in bfloat16, and where the types come with the state.
        squaf(dtype=BF16, learn=learn).load_state_dict(whole.state_dict())
        squaf(dtype=F16, learn=learn).load_state_dict(whole.state_dict(), assign=True)
    module.set_(alpha=45000.0, z=large * 0.93).load_state_dict(squaf(alpha=45000.0, learn=learn).state_dict())
    assert module.alpha.item() == pytest.approx(45000.0, rel=1e-3)
    # A start that the layer was built with in another type is lost as well when it is asked for again.
    with pytest.raises(ParameterError, match=cure):
        squaf(alpha=7e4, learn=learn).set_(alpha=2.0).half().reset_parameters()
