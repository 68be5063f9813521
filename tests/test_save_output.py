"""save="output": the same values, gradients from the output alone, and nothing but the output held.

The bound on a slope: it is the slope of f at a point where f is within 4 roundings of y, up to what the first guess of
the half types leaves (2^-10) and the rounding of the gradient itself.
"""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import softknee as sk
from softknee.design.proof.certify import prove_shape
from softknee.errors import ParameterError
from softknee.kernels.inverse import ROUNDING, inverse_of
from softknee.kernels.saving import call_saving_output
from softknee.spec import Activation, reference
from softknee.torch_compat import FOLLOWS_EVERY_PATH

MONOTONE = [
    *("relu", "leaky_relu", "relu6", "hardtanh", "elu", "celu", "selu", "softplus", "tanh", "sigmoid", "softsign"),
    *("srelu", "smelu", "asymmetric_smelu", "leaky_smelu", "shifted_smelu", "generalized_smelu", "origin_smelu"),
    *("sigmoid_rescu", "smooth_relu", "clamp", "hardsigmoid", "laplace", "logsigmoid", "squareplus", "softshrink"),
    *("hardshrink", "tanhshrink", "threshold", "relu2", "star_relu", "mollify(relu, gaussian)"),
    *("mollify(relu, triangle)", "mollify(relu6, epanechnikov, width=0.5)", "softplus(x) + x / 7"),
]
ONE_MINIMUM = [
    *("gelu", "gelu_tanh", "gelu_10", "lambda_gelu", "quick_gelu", "swish", "mish", "tanhexp", "hardswish"),
    *("hard_mish", "crrelu", "xielu", "abs(x)", "x * sigmoid(1.3 * x)"),
]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def points(act: Activation, dtype: torch.dtype, count: int = 30) -> Tensor:
    """Numbers around 0, and around the seams and the minimum."""
    spread = torch.linspace(-1, 1, count, dtype=torch.float64)
    near = torch.tensor([-3.0, -1.2785, -1.0, -0.7518, 0.0, 1.0, 6.0], dtype=torch.float64)
    moved = near[:, None] + torch.tensor([-0.02, -1e-3, 1e-3, 0.02], dtype=torch.float64)
    return torch.cat([7 * spread**3, moved.flatten()]).to(dtype)


def reach(act: Activation, x: Tensor, values: dict[str, float], rounding: float, turn: float) -> tuple[Tensor, Tensor]:
    """The farthest points on either side of x, not beyond the turn, where f is within the rounding of f(x)."""
    y = act(x, **values)
    near = rounding * y.abs() + 1e-300
    direction = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    inside, outside = torch.zeros(2, len(x), dtype=torch.float64), torch.full((2, len(x)), 64.0, dtype=torch.float64)
    for _ in range(60):  # 64 / 2^60 is less than a rounding
        middle = (inside + outside) / 2
        there = x + direction * middle
        same = (act(there, **values) - y).abs() <= near
        same &= (there > turn) == (x > turn)
        inside, outside = torch.where(same, middle, inside), torch.where(same, outside, middle)
    below, above = x + direction * inside
    return below, above


def gradients(act: Activation, x: Tensor, values: dict[str, float]) -> tuple[Tensor, dict[str, Tensor]]:
    """The slope by x and by each parameter that may be learned, at each point, from the output alone."""
    inverse = inverse_of(act, (), values)
    work = torch.float64 if x.dtype == torch.float64 else torch.float32
    params = [torch.full_like(x, values[p.name], dtype=work).requires_grad_() for p in act.params]
    x = x.clone().requires_grad_()
    y = call_saving_output(inverse, x, params)
    grads = torch.autograd.grad(y, [x, *params], torch.ones_like(y))
    return grads[0], {p.name: g for p, g in zip(act.params, grads[1:], strict=True) if p.symbol.is_positive}


def allowed(
    act: Activation, index: str, ends: tuple[Tensor, Tensor], values: dict[str, float], *, digits: bool
) -> tuple[Tensor, Tensor]:
    """The least and the largest derivative between two points: in 50 digits, or as float64 computes them."""
    partial = act.partial(index)
    # Between two points that float64 hardly tells apart, three places are enough.
    share = torch.linspace(0, 1, 3 if digits else 9, dtype=torch.float64)
    between = ends[0][:, None] * (1 - share) + ends[1][:, None] * share
    if digits:
        exact = [[float(reference.evaluate(partial, z, **values)) for z in row] for row in between.tolist()]
        slopes = torch.tensor(exact, dtype=torch.float64)
    else:
        slopes = partial(between, **values)
    return slopes.amin(1), slopes.amax(1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", [*MONOTONE, *ONE_MINIMUM])
def test_gradients_are_as_good_as_the_output_tells(name: str, dtype: torch.dtype) -> None:
    act = sk.registry.resolve(name).as_definition()
    values = {p.name: float(torch.tensor(p.default, dtype=torch.float32)) for p in act.params}
    place = inverse_of(act, (), values).place
    turn = -1e9 if place is None else float(place.subs({p.symbol: values[p.name] for p in act.params}))
    x = points(act, dtype)
    slope, by_param = gradients(act, x, values)
    assert slope.isfinite().all()
    ends = reach(act, x.double(), values, 4 * ROUNDING[dtype], turn)
    left = {torch.float64: 1e-11, torch.float32: 2e-6}.get(dtype, 2.0**-10)
    for index, gradient in {"x": slope, **by_param}.items():
        low, high = allowed(act, index, ends, values, digits=dtype == torch.float64)
        size = torch.maximum(low.abs(), high.abs())
        slack = left * max(1.0, size.max().item()) + 2 * ROUNDING[dtype] * size
        wrong = (gradient.double() < low - slack) | (gradient.double() > high + slack)
        kinks = (x.double() - x.double().round()).abs() < 1e-9  # on a seam either slope is right
        assert not (wrong & ~kinks).any(), (index, x[wrong], gradient[wrong], low[wrong], high[wrong])


@pytest.mark.parametrize("name", ["gelu", "swish", "mish", "lambda_gelu"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_bound_at_a_minimum(name: str, dtype: torch.dtype) -> None:
    """At most sqrt(2 c eps |m|), with eps of 4 roundings; never of the wrong sign."""
    act = sk.get(name)
    place = float(inverse_of(act).place.subs({p.symbol: p.default for p in act.params}))
    bend, least = act.derivative(2), act(torch.tensor([place], dtype=torch.float64)).abs().item()
    x = (place + torch.linspace(-0.3, 0.3, 4001, dtype=torch.float64)).to(dtype)
    slope, _ = gradients(act, x, {p.name: p.default for p in act.params})
    exact = act.derivative()(x.double())
    most = (2 * bend(torch.tensor([place]).double()).item() * 4 * ROUNDING[dtype] * least) ** 0.5
    assert ((slope.double() - exact).abs() <= most + ROUNDING[dtype]).all()
    away = (x.double() - place).abs() > 1e-7
    assert ((slope > 0) == (x.double() > place))[away].all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["relu", "srelu", "elu", "softplus", "gelu", "swish", "mish", "hardswish", "clamp"])
def test_extreme_numbers(name: str, dtype: torch.dtype) -> None:
    kind = torch.finfo(dtype)
    x = torch.tensor([0.0, -0.0, kind.tiny, -kind.tiny, kind.smallest_normal / 4, kind.max, -kind.max], dtype=dtype)
    x = torch.cat([x, torch.tensor([torch.inf, -torch.inf, -100.0, 100.0], dtype=dtype)])
    want, got = x.clone().requires_grad_(), x.clone().requires_grad_()
    sk.nn.make(name)(want).backward(torch.ones_like(x))
    sk.nn.make(name, save="output")(got).backward(torch.ones_like(x))
    torch.testing.assert_close(got.grad, want.grad, atol=4 * ROUNDING[dtype] ** 0.5 * (name not in ("relu",)), rtol=0)
    nan = torch.tensor([torch.nan], dtype=dtype, requires_grad=True)
    sk.nn.make(name, save="output")(nan).backward()
    assert nan.grad.isnan().all() or name in ("relu", "clamp")


def test_a_flat_piece_at_a_number_that_rounds() -> None:
    """0.3 is none of the numbers of bfloat16; where the function stands still its slope is 0."""
    for low in (-0.3, -0.7, -1.1, 0.3):
        x = torch.tensor([low - 1, low - 0.01, low + 0.5], dtype=torch.bfloat16, requires_grad=True)
        sk.nn.make("clamp", low=low, high=2.3, save="output")(x).sum().backward()
        assert x.grad.tolist() == [0, 0, 1]


# -- what is held -------------------------------------------------------------------------------------------


def held(run: Any) -> tuple[Tensor, dict[int, int]]:
    """What a call returns, and the bytes of each storage that it keeps for the backward pass."""
    kept: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        return run(), kept


@pytest.mark.parametrize("name", ["srelu", "smelu", "gelu", "mish"])
def test_nothing_but_the_output_is_held(name: str) -> None:
    module = sk.nn.make(name, save="output", learn=True)
    x = torch.randn(16, 512, requires_grad=True)
    y, kept = held(lambda: module(x))
    assert kept.pop(y.untyped_storage().data_ptr())
    assert x.untyped_storage().data_ptr() not in kept
    large = [size for size in kept.values() if size > 64]
    assert large == ([16 * 512 // 8] if name in ("gelu", "mish") else [])


@pytest.mark.parametrize(("name", "most"), [("srelu", 1.25), ("smelu", 1.25), ("relu", 1.25), ("gelu", 1.35)])
def test_a_block_holds_its_hidden_tensor_once(name: str, most: float) -> None:
    """In tensors of the hidden size; the input of the block is a quarter of one."""
    block = nn.Sequential(nn.Linear(64, 256), sk.nn.make(name, save="output"), nn.Linear(256, 64)).bfloat16()
    x = torch.randn(512, 64, dtype=torch.bfloat16)
    weights = {p.untyped_storage().data_ptr() for p in (*block.parameters(), *block.buffers())}
    _, kept = held(lambda: block(x))
    tensors = sum(size for place, size in kept.items() if place not in weights) / (512 * 256 * 2)
    assert tensors <= most + 1e-3


@pytest.mark.parametrize("name", ["srelu", "smelu", "leaky_relu", "gelu", "hardswish"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_values_and_states_are_the_same(name: str, dtype: torch.dtype) -> None:
    x = (3 * torch.randn(5, 77)).to(dtype)
    one, other = sk.nn.make(name), sk.nn.make(name, save="output")
    assert torch.equal(one(x), other(x.requires_grad_()).detach())
    assert list(one.state_dict()) == list(other.state_dict())
    other.load_state_dict(one.state_dict())


def test_layouts() -> None:
    module, plain = (sk.nn.make("gelu", save=save) for save in ("output", "input"))
    whole = torch.randn(6, 5, 4, 7)
    for x in (
        whole.transpose(1, 3),
        whole[:, ::2],
        whole.contiguous(memory_format=torch.channels_last),
        whole[0, 0, 0, 0],
    ):
        grads = [torch.autograd.grad(m(z := x.clone().requires_grad_()).sum(), z)[0] for m in (module, plain)]
        torch.testing.assert_close(grads[0], grads[1], atol=1e-4, rtol=1e-4)


def test_a_change_of_the_output_is_seen() -> None:
    module = sk.nn.make("gelu", save="output")
    y = module(torch.randn(5, requires_grad=True))
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


# -- orders, transforms, compilers --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["srelu", "smelu", "softplus", "gelu", "swish"])
def test_second_derivatives(name: str) -> None:
    module, plain = (sk.nn.make(name, save=save, learn=True, dtype=torch.float64) for save in ("output", "input"))
    x = torch.linspace(-3, 3, 41, dtype=torch.float64, requires_grad=True)
    results = []
    for m in (module, plain):
        first = torch.autograd.grad(m(x).square().sum(), [x, *m.parameters()], create_graph=True)
        total = sum(g.square().sum() for g in first)
        results.append(torch.autograd.grad(total, [x, *m.parameters()]))
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)


def test_transforms_take_the_usual_way() -> None:
    module = sk.nn.make("gelu", save="output")
    x = torch.randn(6)
    slope = torch.func.vmap(torch.func.grad(lambda z: module(z)))(x)
    torch.testing.assert_close(slope, sk.get("gelu").derivative()(x))
    many = torch.eye(6)
    y = module(z := x.clone().requires_grad_())
    (rows,) = torch.autograd.grad(y, z, many, is_grads_batched=True)
    torch.testing.assert_close(rows.diagonal(), slope, atol=1e-5, rtol=1e-5)


@pytest.mark.skipif(FOLLOWS_EVERY_PATH, reason="the compiler of an old torch takes long")
@pytest.mark.parametrize("name", ["gelu", "srelu", "smelu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_compiler_makes_one_graph_of_it(name: str, dtype: torch.dtype) -> None:
    module = sk.nn.make(name, save="output", learn=True, **({"delta": 1.0} if name == "srelu" else {}))
    x, results = torch.randn(8, 40).to(dtype), []
    for run in (module, torch.compile(module, fullgraph=True, backend="aot_eager")):
        z = x.clone().requires_grad_()
        y = run(z)
        results.append((y, *torch.autograd.grad(y.float().square().sum(), [z, *module.parameters()])))
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want)


# -- modules and models -------------------------------------------------------------------------------------


def test_copies_keep_it() -> None:
    module = sk.nn.make("mish", save="output", learn=True)
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert twin.save == "output"
        assert "save='output'" in repr(twin)
        x = torch.randn(9, requires_grad=True)
        y, kept = held(lambda twin=twin, x=x: twin(x))
        assert x.untyped_storage().data_ptr() not in kept
        y.sum().backward()
    assert "save" not in repr(sk.nn.Mish())


def test_one_value_per_channel() -> None:
    x = torch.randn(6, 5, 3)
    width = torch.tensor([0.2, 0.5, 1.0, 2.0, 4.0])
    for name, param in (("srelu", "delta"), ("gelu", "beta"), ("smelu", "beta")):
        results = []
        for save in ("output", "input"):
            module = sk.nn.make(name, save=save, learn=param, per="channel", size=5, dim=1, **{param: width})
            z = x.clone().requires_grad_()
            results.append(torch.autograd.grad(module(z).square().sum(), [z, *module.parameters()]))
        for got, want in zip(*results, strict=True):
            torch.testing.assert_close(got, want, atol=2e-3, rtol=1e-3)


def test_a_parameter_that_is_set_is_looked_at() -> None:
    module = sk.nn.make("leaky_relu", save="output")
    x = torch.tensor([-2.0, 3.0], requires_grad=True)
    assert torch.autograd.grad(module.set_(slope=0.5)(x).sum(), x)[0].tolist() == [0.5, 1.0]
    # With a negative slope it has a minimum, at its corner.
    assert torch.autograd.grad(module.set_(slope=-0.5)(x).sum(), x)[0].tolist() == [-0.5, 1.0]
    module.load_state_dict({"slope": torch.tensor([0.25])})
    assert torch.autograd.grad(module(x).sum(), x)[0].tolist() == [0.25, 1.0]
    crrelu = sk.nn.make("crrelu", save="output")
    with pytest.raises(ParameterError, match="turns more than once"):
        crrelu.set_(eps=-0.5)
    assert crrelu.eps.item() == pytest.approx(0.3)


def test_explain_says_it() -> None:
    x = torch.zeros(3)
    assert "the output is saved" in sk.explain(sk.nn.make("smelu", save="output"), x).reason
    assert "one bit per element" in sk.explain(sk.nn.make("gelu", save="output"), x).reason
    assert "output" not in sk.explain(sk.nn.make("gelu"), x).reason


def test_swap_puts_it_into_a_model(tmp_path: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4), nn.ReLU())
    names = list(model.state_dict())
    report = sk.swap_(model, "srelu", save="output", learn=True)
    assert [model[i].save for i in (1, 3)] == ["output", "output"]
    report.save(tmp_path / "plan.json")
    report.undo()
    assert isinstance(model[1], nn.GELU)
    assert list(model.state_dict()) == names
    sk.apply_(model, tmp_path / "plan.json")
    assert model[1].save == "output"


REFUSED = [
    (lambda: sk.nn.make("sin(x)", save="output"), "turns more than once"),
    (lambda: sk.nn.make("-x", save="output"), "never rises"),
    (lambda: sk.nn.make("prelu", learn=True, save="output"), "fix slope"),
    (lambda: sk.nn.make("crrelu", learn=True, save="output"), "one value of eps"),
    (lambda: sk.nn.make("crrelu_exact", save="output"), "an equation"),
    (lambda: sk.nn.make("squaf", save="output"), "given by a formula"),
    (lambda: sk.nn.make("threshold", theta=0.0, value=1.0, save="output"), "falls"),
    (lambda: sk.nn.RReLU(save="output"), "draws its parameter"),
    (lambda: sk.nn.Gated("silu", save="output"), "both factors"),
    (lambda: sk.nn.GELU(save="both"), "must be 'input' or 'output'"),
    (lambda: sk.swap_(nn.Sequential(nn.GELU()), "srelu", fuse=True, save="output"), "leave one of them out"),
]


@pytest.mark.parametrize(("make", "words"), REFUSED)
def test_refusals_say_why(make: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        make()


@pytest.mark.parametrize("name", [n for n in sk.names() if getattr(sk.get(n).claims, "one_minimum", False)])
def test_the_claim_of_one_minimum_is_proved(name: str) -> None:
    act = sk.get(name)
    values = {p.name: p.default for p in act.params}
    place = float(inverse_of(act).place.subs({p.symbol: values[p.name] for p in act.params}))
    assert prove_shape(act, values, place) == ""
