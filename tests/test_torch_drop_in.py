"""A module of ours in the place of torch's of the same name: its arguments, its values, its gradients.

The table of cases is read from torch: a class that torch gets and we lack fails here.
"""

import inspect
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import activation as theirs

import softknee as sk
from helpers import F64, tolerance
from softknee.errors import ParameterError

NOT_ELEMENT_WISE = {
    "GLU": "multiplies one half of a row by the other",
    "MultiheadAttention": "is a layer with weights, and no function of one number",
    "Softmin": "depends on a whole row",
    "Softmax": "depends on a whole row",
    "Softmax2d": "depends on a whole row",
    "LogSoftmax": "depends on a whole row",
}
CLASSES = [name for name in theirs.__all__ if name not in NOT_ELEMENT_WISE]
# Arguments by their place beside those that torch's signature has by default.
ARGUMENTS: dict[str, list[tuple[Any, ...]]] = {
    "Threshold": [(0.25, 20.0), (-1.0, -1.0, True)],
    "ReLU": [(True,)],
    "RReLU": [(0.1, 0.4), (0.2, 0.2, True)],
    "Hardtanh": [(0, 6), (-2.5, 0.1), (0.25, 0.75, True)],
    "ReLU6": [(True,)],
    "Hardsigmoid": [(True,)],
    "SiLU": [(True,)],
    "Mish": [(True,)],
    "Hardswish": [(True,)],
    "ELU": [(0.5,), (2.0, True)],
    "CELU": [(0.5,), (2.0, True)],
    "SELU": [(True,)],
    "GELU": [("none",), ("tanh",)],
    "Hardshrink": [(0.25,), (2.0,)],
    "LeakyReLU": [(0.2,), (-0.5,), (0.5, True)],
    "Softplus": [(2,), (0.5, 20), (3.0, 30.0)],
    "Softshrink": [(0.25,), (2.0,)],
    "PReLU": [(8,), (1, 0.1), (8, -0.5, None, F64)],
}
REQUIRED = {"Threshold": {"threshold": 0.25, "value": 20.0}}


def parameters_of(name: str) -> list[str]:
    """The arguments of torch's class in their order."""
    return [p for p in inspect.signature(getattr(nn, name).__init__).parameters if p not in ("self", "args", "kwargs")]


def cases() -> list[Any]:
    results = []
    for name in CLASSES:
        required = REQUIRED.get(name, {})
        if not required:
            results.append(pytest.param(name, (), {}, id=name))
        for given in ARGUMENTS.get(name, []):
            named = dict(zip(parameters_of(name), given, strict=False))
            results.append(pytest.param(name, given, {}, id=f"{name}{given}"))
            results.append(pytest.param(name, (), named, id=f"{name}({named})"))
    return results


def inputs() -> Tensor:
    """Channels in dimension 1; seams, zeros and large numbers among them."""
    places = [0.0, -0.0, 0.25, 0.5, 0.75, 1.0, 2.0, 3.0, 6.0, 12.0, 1e-9, 40.0]
    seams = torch.tensor([sign * at for at in places for sign in (1.0, -1.0)], dtype=F64)
    drawn = 3 * torch.randn(8 * 40 - len(seams), generator=torch.Generator().manual_seed(0), dtype=F64)
    return torch.cat([seams, drawn]).reshape(8, 8, 5)


def results(module: nn.Module, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    leaf = x.clone().requires_grad_()
    value = module(leaf + 0)
    weights = torch.linspace(0.5, 1.5, value.numel(), dtype=value.dtype).reshape(value.shape)
    return value.detach(), list(torch.autograd.grad((weights * value).sum(), [leaf, *module.parameters()]))


def test_the_table_is_torchs():
    assert {"Threshold", "RReLU", "PReLU", "Hardtanh", "LogSigmoid", "Tanhshrink"} <= set(CLASSES)
    assert set(NOT_ELEMENT_WISE) <= set(theirs.__all__)
    for name in CLASSES:
        assert hasattr(sk.nn, name), f"torch.nn has {name}, and softknee.nn has not"
        # What torch's takes is what the table of ours says, in the same order.
        assert parameters_of(name) == list(getattr(sk.nn, name).torch_arguments), name
        assert name in ARGUMENTS or not parameters_of(name), f"{name} has arguments and no case"


@pytest.fixture
def in_float64() -> Iterator[None]:
    """Both hold their numbers in float64 from the start: 0.2 rounded to float32 is another number."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(F64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize(("name", "given", "named"), cases())
def test_values_and_gradients_are_torchs(name: str, given: tuple[Any, ...], named: dict[str, Any]):
    ours, other = getattr(sk.nn, name)(*given, **named), getattr(nn, name)(*given, **named)
    if name == "RReLU":
        ours.eval(), other.eval()
    x = inputs()
    value, gradients = results(ours, x)
    expected, wanted = results(other, x)
    # torch's softplus is x from 20 on, 2e-9 below the function.
    near = 3e-9 if name == "Softplus" else 32 * tolerance(F64, "same") * torch.finfo(F64).eps
    torch.testing.assert_close(value, expected, rtol=near, atol=near)
    assert len(gradients) == len(wanted)
    near = 1e-7 if name == "Hardsigmoid" else near  # torch has 1/6 in float32 there, whatever the type
    kinks = at_a_kink(name, given or tuple(named.values()), x)
    for i, (got, want) in enumerate(zip(gradients, wanted, strict=True)):
        keep = ~kinks if i == 0 else torch.ones_like(want, dtype=torch.bool)
        torch.testing.assert_close(got.reshape(want.shape)[keep], want[keep], rtol=near * 10, atol=near * 10)


def at_a_kink(name: str, given: tuple[Any, ...], x: Tensor) -> Tensor:
    """Where the two may take the slope of different sides: torch itself is of two minds, and has slope 1 for
    hardtanh at neither limit and for clamp at both."""
    ends = {
        "Hardtanh": given[:2] or (-1.0, 1.0),
        "ReLU6": (0.0, 6.0),
        "Hardswish": (-3.0, 3.0),
        "Hardsigmoid": (-3.0, 3.0),
        "LeakyReLU": (0.0,),
        "PReLU": (0.0,),
        "RReLU": (0.0,),
        "ELU": (0.0,),
        "SELU": (0.0,),
        "CELU": (0.0,),
    }.get(name, ())
    return torch.isin(x, torch.tensor([float(end) for end in ends], dtype=F64))


@pytest.mark.parametrize("name", CLASSES)
def test_our_own_arguments_keep_working(name: str):
    definition = getattr(sk.nn, name)().definition if name != "Threshold" else sk.get("threshold")
    values = {p.name: p.start for p in definition.params}
    module = getattr(sk.nn, name)(**values, learn=True, per="channel", size=8, dim=-2, dtype=F64, device="cpu")
    x = inputs()
    assert torch.equal(module.eval()(x), definition(x, **{n: getattr(module, n).reshape(-1, 1) for n in values}))
    assert len(list(module.parameters())) == len(values)


def test_prelu_learns_as_torchs_does_and_by_name_nothing_does():
    assert [p.shape for p in sk.nn.PReLU(8).parameters()] == [(8,)]
    assert [p.shape for p in sk.nn.PReLU().parameters()] == [(1,)]
    assert not list(sk.nn.PReLU(8, learn=False).parameters())
    assert not list(sk.nn.make("prelu").parameters())


def test_rrelu_draws_in_training_and_is_its_mean_by_name():
    module = sk.nn.RReLU(0.1, 0.4)
    by_name = sk.nn.make("rrelu", lower=0.1, upper=0.4)
    assert by_name.training
    torch.testing.assert_close(by_name(torch.tensor([-2.0])), torch.tensor([-0.5]))
    x = -torch.rand(200_000) - 0.5
    torch.manual_seed(3)
    first = module(x) / x
    torch.manual_seed(3)
    assert torch.equal(module(x) / x, first)  # by torch's own generator
    assert not torch.equal(module(x) / x, first)
    assert 0.1 - 1e-6 < first.min() < 0.1001
    assert 0.3999 < first.max() < 0.4 + 1e-6
    assert first.mean().item() == pytest.approx(0.25, abs=1e-3)  # 5 standard deviations
    assert first.var().item() == pytest.approx(0.3**2 / 12, rel=0.01)
    assert torch.equal(module(-x), -x)
    half = module(x.bfloat16())
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(module.eval()(x), nn.RReLU(0.1, 0.4).eval()(x))


def test_the_slope_that_was_drawn_is_the_gradient():
    module, x = sk.nn.RReLU(0.1, 0.4, learn=True), torch.linspace(-3, 3, 301, requires_grad=True)
    y = module(x)
    y.sum().backward()
    negative = x.detach() < 0
    torch.testing.assert_close(x.grad[negative] * x.detach()[negative], y.detach()[negative])
    share = (x.grad[negative] - 0.1) / 0.3
    below = x.detach()[negative]
    torch.testing.assert_close(module.upper.grad, (share * below).sum()[None])
    torch.testing.assert_close(module.lower.grad, ((1 - share) * below).sum()[None])


def test_inplace_by_its_place():
    x = torch.linspace(-1, 1, 5)
    with torch.no_grad():
        assert sk.nn.LeakyReLU(0.2, True)(x) is x
        assert sk.nn.ReLU(True)(x) is x


REFUSED = {
    "too many": (
        lambda: sk.nn.LeakyReLU(0.2, False, 3),
        r"at most 2 arguments without a name",
    ),
    "by place and name": (lambda: sk.nn.ELU(0.5, alpha=0.5), "alpha was given twice"),
    "torch's name and ours": (lambda: sk.nn.ELU(alpha=0.5, beta=0.5), "alpha was given twice, which beta says too"),
    "crossed limits": (lambda: sk.nn.Hardtanh(6, 0), "lower limit 6 is above the upper limit 0"),
    "crossed slopes": (lambda: sk.nn.RReLU(0.5, 0.1), "lower limit 0.5 is above"),
    "a low threshold": (lambda: sk.nn.Softplus(1.0, 5.0), "jump by 0.0067/beta"),
    "no channels": (lambda: sk.nn.PReLU(0), "the number of channels"),
    "channels twice": (lambda: sk.nn.PReLU(8, size=4), "num_parameters was given twice"),
    "shrinking by nothing": (lambda: sk.nn.Softshrink(0.0), "lam must be a finite number above 0"),
    "no such way": (lambda: sk.nn.GELU("erf"), "approximate must be one of"),
    "ours by place": (lambda: sk.nn.SReLU(0.1), "takes its arguments by name"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str):
    build, words = REFUSED[case]
    with pytest.raises(ParameterError, match=words):
        build()


# -- at infinity ------------------------------------------------------------------------------------------

LIMITS = {"SiLU": (0.0, math.inf), "Mish": (0.0, math.inf), "Softsign": (-1.0, 1.0)}


@pytest.mark.parametrize("name", LIMITS)
def test_finite_limits_where_torch_has_nan(name: str):
    """Documented in docs/drop-in.md, which this pins on both sides."""
    ends = torch.tensor([-math.inf, math.inf], dtype=F64)
    assert getattr(sk.nn, name)()(ends).tolist() == list(LIMITS[name])
    torchs = getattr(nn, name)()(ends)
    assert torchs.isnan().tolist() == ([True, True] if name == "Softsign" else [True, False])
    slope = ends.clone().requires_grad_()
    getattr(sk.nn, name)()(slope).sum().backward()
    assert slope.grad.tolist() == pytest.approx([0.0, 0.0] if name == "Softsign" else [0.0, 1.0], abs=1e-59)


@pytest.mark.parametrize("count", [1, 5])
def test_a_state_dict_of_torchs_prelu_loads(count: int) -> None:
    theirs = nn.Sequential(nn.Linear(3, 5), nn.PReLU(count, init=0.1))
    ours = nn.Sequential(nn.Linear(3, 5), sk.nn.PReLU(count))
    state = theirs.state_dict()
    ours.load_state_dict(state)
    assert list(state) == ["0.weight", "0.bias", "1.weight"]  # the caller's own is as it was
    x = torch.randn(4, 3)
    torch.testing.assert_close(ours(x), theirs(x))
    ours.load_state_dict(ours.state_dict())
    with pytest.raises(RuntimeError, match=r"1\.slope"):
        ours.load_state_dict({name: value for name, value in state.items() if name != "1.weight"})
