"""The registered operators, fake tensors, deterministic mode and autocast."""

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import softknee as sk
from helpers import BF16, F16, F32, F64, each_kind, ordinary_values
from softknee.kernels import operators
from softknee.spec import Activation

CASES = {
    "relu": [],
    "srelu": [(1,)],
    "gelu": [(3, 1)],
    "mish": [(4, 3, 5)],
    "generalized_smelu": [(1,), (3, 1), (5,), (1,), (3, 5)],
    "crrelu_exact": [(1,)],
}
LAYOUTS = {
    "contiguous": lambda: torch.randn(4, 3, 5, dtype=F64),
    "transposed": lambda: torch.randn(4, 5, 3, dtype=F64).transpose(1, 2),
    "sliced": lambda: torch.randn(4, 3, 10, dtype=F64)[..., ::2],
    "large": lambda: torch.randn(9, 3, 350, dtype=F64),
}
CHECKS = ("test_schema", "test_faketensor", "test_autograd_registration")


def operands(name: str, layout: str) -> tuple[Tensor, list[Tensor], str]:
    torch.manual_seed(0)
    act, x = sk.get(name), LAYOUTS[layout]()
    shapes = CASES[name] if layout != "large" else [(1,)] * len(CASES[name])
    values = ordinary_values(act).values()
    params = [torch.full(shape, value, dtype=F64) for shape, value in zip(shapes, values, strict=True)]
    act(x[:1], **ordinary_values(act))  # a definition is prepared by its first call
    return x, params, act.key


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CASES)
def test_opcheck_of_the_value(name: str, layout: str):
    torch.library.opcheck(torch.ops.softknee.pointwise.default, operands(name, layout), test_utils=CHECKS)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CASES)
def test_opcheck_of_the_gradients(name: str, layout: str):
    x, params, key = operands(name, layout)
    some = [[True] * (1 + len(params)), [True] + [False] * len(params), [False] + [True] * len(params)]
    for needs in filter(any, some):
        arguments = (torch.randn(x.shape, dtype=F64), x, params, key, needs)
        torch.library.opcheck(torch.ops.softknee.pointwise_backward.default, arguments, test_utils=CHECKS)


def test_opcheck_through_the_compiler():
    arguments = operands("srelu", "contiguous")
    torch.library.opcheck(torch.ops.softknee.pointwise.default, arguments)


@each_kind
def test_fake_tensors_have_the_shape_type_and_strides_of_real_ones(act: Activation):
    values = ordinary_values(act)
    for make in (
        lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        lambda: torch.randn(3, 8)[:, ::2],
        lambda: torch.randn(6, dtype=BF16),
    ):
        real = act(make(), **values)
        with FakeTensorMode():
            fake = act(make(), **values)
        assert (fake.shape, fake.dtype, fake.stride()) == (real.shape, real.dtype, real.stride())


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("deterministic", "small_blocks")
@pytest.mark.parametrize(("size", "path"), [(100, "plain"), (9_000, "blocks")])
@each_kind
def test_deterministic_mode_refuses_nothing(act: Activation, size: int, path: str):
    assert sk.explain(act, torch.zeros(size)).path == path
    runs = []
    for _ in range(2):
        x = torch.linspace(-3, 3, size).requires_grad_()
        params = {n: torch.full((1,), v, requires_grad=True) for n, v in ordinary_values(act).items()}
        runs.append(torch.autograd.grad(act(x, **params).square().sum(), [x, *params.values()]))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


@pytest.mark.parametrize("half", [BF16, F16], ids=["bfloat16", "float16"])
@each_kind
def test_autocast_leaves_the_type_of_the_input(act: Activation, half: torch.dtype):
    """An activation works in the type that arrives; its float32 parameters are untouched and read as float32."""
    module = sk.nn.make(act, learn=True)
    x = torch.linspace(-3, 3, 50)
    with torch.autocast("cpu", dtype=half):
        assert module(x).dtype == F32
        assert torch.equal(module(x), act(x, **{p.name: getattr(module, p.name) for p in act.params}))
        low = module(x.to(half))
    assert low.dtype == half
    assert torch.equal(low, module(x.to(half)))
    assert all(p.dtype == F32 for p in module.parameters())


@pytest.mark.parametrize("name", ["srelu", "generalized_smelu", "lambda_gelu"])
def test_a_model_trains_under_autocast(name: str):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), sk.nn.make(name, learn=True, per="neuron", size=8))
    with torch.autocast("cpu", dtype=BF16):
        result = model(torch.randn(16, 8))
    assert result.dtype == BF16
    result.float().square().mean().backward()
    for label, p in model.named_parameters():
        assert p.grad is not None, label
        assert p.grad.dtype == F32
        assert p.grad.isfinite().all(), label


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_gradient_is_laid_out_as_tracers_are_promised(layout: str):
    """As x, not as the gradient that comes in; opcheck asks for it from torch 2.15 on."""
    x, params, key = operands("srelu", layout)
    arguments = (torch.randn(x.shape, dtype=F64), x, params, key, [True] + [False] * len(params))
    (gradient,) = torch.ops.softknee.pointwise_backward.default(*arguments)
    (promised,) = operators._fake_backward(*arguments)
    assert gradient.stride() == promised.stride()


def test_a_profiler_sees_the_operators_and_nobody_else_pays_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = sk.nn.SReLU(learn=True), torch.randn(64)
    with torch.autograd.profiler.profile() as watched:
        with torch.no_grad():
            module(x)
        module(x).sum().backward()
    names = [event.name for event in watched.function_events]
    assert (names.count("softknee::pointwise"), names.count("softknee::pointwise_backward")) == (2, 1)

    def refuse(*arguments: object) -> None:
        raise AssertionError("an operator was called by its name")

    monkeypatch.setattr(torch.ops.softknee.pointwise, "default", refuse)
    monkeypatch.setattr(torch.ops.softknee.pointwise_backward, "default", refuse)
    with torch.no_grad():
        module(x)
    module(x).sum().backward()
