"""torch.compile(fullgraph=True): the same numbers as eager mode, and no second compilation when a knob moves."""

import shutil

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter
from torch.nn.utils import parameters_to_vector
from torch.overrides import TorchFunctionMode

import softknee as sk
from helpers import F32, F64, SUBJECTS, every_subject, ordinary_values, rounding
from softknee.kernels.pointwise import traced_of
from softknee.spec import Activation

X = torch.linspace(-4.0, 4.0, 64, dtype=F64).reshape(8, 8)
EXTREMES = torch.tensor([-torch.inf, -1e38, -1.0, -0.0, 0.0, 1.0, 1e38, torch.inf], dtype=F64).repeat(8, 1)
# What follows Dynamo's graph does not ask for the formula: a plain one, one with a special function, one with several
# parameters, and two that are made stand for all.
THROUGH_AUTOGRAD = ("relu", "gelu", "generalized_smelu", "relu6_gaussian", "leaky_relu_triangle")
# One compiler run takes seconds, and one kernel takes both: a special function, and pieces with several parameters.
THROUGH_INDUCTOR = ("gelu", "generalized_smelu")


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def run(function, x: Tensor, values: dict[str, Tensor]) -> list[Tensor]:
    inputs = [t.detach().clone().requires_grad_() for t in (x, *values.values())]
    result = function(inputs[0], **dict(zip(values, inputs[1:], strict=True)))
    return [result.detach(), *torch.autograd.grad(result.square().sum(), inputs)]


def tensors(act: Activation, dtype: torch.dtype = F64) -> dict[str, Tensor]:
    return {name: torch.full((1,), value, dtype=dtype) for name, value in ordinary_values(act).items()}


@pytest.mark.slow
@every_subject
def test_forward_and_backward_equal_eager(act: Activation):
    """Also at extremes: the compiler must not differentiate a piece that overflows beside the one that is selected."""
    backend = "aot_eager" if act.name in THROUGH_AUTOGRAD else "eager"
    compiled = torch.compile(lambda x, **p: act(x, **p), fullgraph=True, backend=backend)
    for actual, expected in zip(run(compiled, X, tensors(act)), run(act, X, tensors(act)), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    value, slope, *_ = run(compiled, EXTREMES, tensors(act))
    assert not value.isnan().any()
    expected_value, expected_slope, *_ = run(act, EXTREMES, tensors(act))
    torch.testing.assert_close(value, expected_value, rtol=1e-12, atol=1e-12)
    # The loss is a sum of squares, so an infinite value times a vanished slope may be NaN, in both.
    torch.testing.assert_close(slope, expected_slope, rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["relu", "srelu", "selu", "hardshrink_epanechnikov", "generalized_smelu"])
def test_without_a_gradient(name: str):
    """Under no_grad, and with nothing to learn: torch 2.12 calls a Function with two parameters without its context."""
    act = SUBJECTS[name]
    module = sk.nn.make(act, dtype=F64, **ordinary_values(act))
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(X), module(X), rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(compiled(EXTREMES), module(EXTREMES), rtol=1e-12, atol=1e-12)


class LastTensor(TorchFunctionMode):
    """Whether the last operation that gave a tensor gave back one of its own arguments, as x.to(x.dtype) does."""

    given_back = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.given_back = any(result is arg for arg in args)
        return result


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_what_is_traced_ends_in_an_operation(dtype: torch.dtype):
    """torch 2.11 loses the gradient of a Function whose last operation does nothing; later versions do not."""
    troubled = []
    for name, act in SUBJECTS.items():
        with LastTensor() as last:
            traced_of(act).function.apply(X.to(dtype, copy=True).requires_grad_(), *tensors(act, dtype).values())
        if last.given_back:
            troubled.append(name)
    assert not troubled


@pytest.mark.slow
def test_inductor_equals_eager():
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("torch.compile needs a C++ compiler on a CPU, and there is none here.")
    gelu, smelu = (sk.get(name) for name in THROUGH_INDUCTOR)
    values = {f"gelu_{name}": value for name, value in tensors(gelu, F32).items()} | tensors(smelu, F32)

    def both(x: Tensor, gelu_beta: Tensor, **given: Tensor) -> Tensor:
        return torch.stack([gelu(x, beta=gelu_beta), smelu(x, **given)])

    x, compiled = X.to(F32), torch.compile(both, fullgraph=True)
    for actual, expected in zip(run(compiled, x, values), run(both, x, values), strict=True):
        close = rounding(F32)
        torch.testing.assert_close(actual, expected, rtol=close, atol=close * expected.abs().max().item())


# -- no recompilation -------------------------------------------------------------------------------------


def knob_values(act: Activation, step: int) -> dict[str, float]:
    return {name: abs(value) / (1 + 0.1 * step) + 1 for name, value in ordinary_values(act).items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lambda_gelu", "generalized_smelu"])
@pytest.mark.parametrize("learn", [False, True], ids=["fixed", "learned"])
def test_a_hundred_knob_steps_of_a_module_compile_once(name: str, learn: bool):
    act = sk.get(name)
    module = sk.nn.make(name, learn=learn, dtype=F64)
    counter = CompileCounter()
    compiled = torch.compile(module, fullgraph=True, backend=counter)
    seen = set()
    for step in range(100):
        module.set_(**knob_values(act, step))
        result = compiled(X)
        seen.add(result.sum().item())
        if step % 33 == 0:
            effective = {p.name: getattr(module, p.name) for p in act.params}
            torch.testing.assert_close(result, act(X, **effective), rtol=1e-12, atol=1e-12)
    assert counter.frame_count == 1
    assert len(seen) > 90


@pytest.mark.parametrize("name", ["lambda_gelu", "generalized_smelu"])
def test_a_hundred_tensors_as_knobs_compile_once(name: str):
    act, counter = sk.get(name), CompileCounter()
    compiled = torch.compile(lambda x, p: act(x, **p), fullgraph=True, backend=counter)
    for step in range(100):
        values = {n: torch.full((1,), v, dtype=F64) for n, v in knob_values(act, step).items()}
        result = compiled(X, values)
    torch.testing.assert_close(result, act(X, **values), rtol=1e-12, atol=1e-12)
    assert counter.frame_count == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["srelu", "lambda_gelu", "leaky_relu", "crrelu_exact", "squaf"])
def test_numbers_as_knobs_compile_twice_at_most(name: str):
    """Once for the first number as it is; from the second one on torch.compile takes a number for a variable."""
    act, counter = sk.get(name), CompileCounter()
    knob = act.knobs[0]
    compiled = torch.compile(lambda x, value: act(x, **{knob: value}), fullgraph=True, backend=counter)
    for step in range(20):
        value = (0.01 if name == "crrelu_exact" else 1.1) + 0.02 * step
        torch.testing.assert_close(compiled(X, value), act(X, **{knob: value}), rtol=1e-12, atol=1e-12)
    assert counter.frame_count <= 2


@pytest.mark.slow
def test_training_a_knob_compiles_once():
    module = sk.nn.make("smelu", learn=True)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    start = parameters_to_vector(module.parameters()).clone()
    with torch._dynamo.config.patch(error_on_recompile=True):
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        for _ in range(10):
            optimiser.zero_grad()
            compiled(X.to(F32)).square().mean().backward()
            optimiser.step()
    assert not torch.equal(start, parameters_to_vector(module.parameters()))


# -- definitions met for the first time inside a compiled function -----------------------------------------


def test_a_definition_may_be_looked_up_inside():
    compiled = torch.compile(lambda x: sk.get("tanhexp")(x, beta=1.5), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(X), sk.get("tanhexp")(X, beta=1.5))


def test_a_definition_never_used_before_may_be_first_used_inside():
    fresh = sk.Activation("fresh_inside", sk.spec.Sigmoid(3 * sk.spec.x) * sk.spec.x)
    compiled = torch.compile(fresh, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(X), X * torch.sigmoid(3 * X))


def test_a_variant_may_be_chosen_inside():
    compiled = torch.compile(lambda x: sk.get("gelu")(x, approximate="tanh"), fullgraph=True, backend="aot_eager")
    expected = torch.nn.functional.gelu(X, approximate="tanh")
    torch.testing.assert_close(compiled(X), expected, rtol=1e-12, atol=1e-12)


def test_a_derivative_is_a_definition_here_too():
    slope = sk.get("softplus").derivative(1)
    compiled = torch.compile(lambda x: slope(x, beta=2.0), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(X), torch.sigmoid(2 * X))


@pytest.mark.parametrize("shape", [(), (0,), (3, 1, 4)], ids=str)
def test_shapes_under_the_compiler(shape: tuple[int, ...]):
    x = torch.ones(shape)
    compiled = torch.compile(sk.nn.SReLU(delta=0.5), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), sk.nn.SReLU(delta=0.5)(x))
