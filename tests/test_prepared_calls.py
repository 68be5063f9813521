"""Prepared calls do what general ones do: gradients of any order, hooks, transforms, copies, changed parameters.

They are those of a CPU's compiled kernels; with TRITON_INTERPRET=1 in the environment, which Triton reads when it is
imported, those of the fused ones.
"""

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import softknee as sk
from softknee.kernels import compiled, operators
from softknee.kernels.dispatch import interpreting
from softknee.kernels.pointwise import runtime_of

if not interpreting():
    try:
        compiled.compile_command()
    except compiled.CompileError as error:
        pytest.skip(f"There are no compiled kernels here: {error}.", allow_module_level=True)

# One of each constraint, several parameters, one without a constraint, none at all.
NAMES = ["srelu", "lambda_gelu", "crrelu_exact", "generalized_smelu", "crrelu", "relu"]
each_name = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(autouse=True)
def kernels_serve_small_tensors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those of a CPU, too; what was planned for such tensors before or is planned now is forgotten."""
    monkeypatch.setattr(compiled, "SMALLEST", 1)
    for name in (*NAMES, "prelu"):
        operators._plans(sk.get(name)).clear()
    yield
    for name in (*NAMES, "prelu"):
        operators._plans(sk.get(name)).clear()


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def learned(name: str) -> Any:
    """A module off its start, where raw values are 0; float64 never takes a kernel."""
    module = sk.nn.make(name, learn=True, **({"delta": 1.0} if name == "srelu" else {}))
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.1)
    return module


def gradients(module: Any, x: Tensor, g: Tensor, **options: Any) -> tuple[Tensor, ...]:
    return torch.autograd.grad(module(x), [x, *module.parameters()], g, **options)


def second(module: Any, x: Tensor) -> tuple[Tensor, ...]:
    first = torch.autograd.grad(module(x).square().sum(), [x, *module.parameters()], create_graph=True)
    return torch.autograd.grad(sum(g.square().sum() for g in first), [x, *module.parameters()], allow_unused=True)


def assert_all_close(result: tuple[Tensor, ...], exact: tuple[Tensor, ...], rtol: float = 1e-5) -> None:
    for got, want in zip(result, exact, strict=True):
        torch.testing.assert_close(got.to(want.dtype), want, rtol=rtol, atol=rtol)


@each_name
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradients_reach_the_raw_parameters(name: str, dtype: torch.dtype):
    module = learned(name)
    x, g = numbers(3, 171).to(dtype).requires_grad_(), numbers(3, 171, seed=1).to(dtype)
    once, again = gradients(module, x, g), gradients(module, x, g)
    assert len(module._calls) == 1
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    exact = gradients(copy.deepcopy(module).double(), x.detach().double().requires_grad_(), g.double())
    assert_all_close(once, exact, rtol=2e-5 if dtype == torch.float32 else 2e-2)


@each_name
def test_gradients_of_gradients(name: str):
    module, x = learned(name), numbers(6, 5).requires_grad_()
    exact = second(copy.deepcopy(module).double(), x.detach().double().requires_grad_())
    for got, want in zip(second(module, x), exact, strict=True):
        assert (got is None) == (want is None)
        if got is not None:
            torch.testing.assert_close(got.double(), want, rtol=2e-4, atol=1e-5)


@each_name
def test_several_gradients_at_once(name: str):
    module, x, g = learned(name), numbers(6, 5).requires_grad_(), numbers(3, 6, 5, seed=1)
    batched = gradients(module, x, g, is_grads_batched=True)
    for place, row in enumerate(g):
        assert_all_close(tuple(part[place] for part in batched), gradients(module, x, row))


@each_name
def test_a_hook_that_saves_another_layout(name: str):
    module, base, g = learned(name), numbers(5, 6).requires_grad_(), numbers(6, 5, seed=1)
    plain = torch.autograd.grad(module(base.T), [base, *module.parameters()], g)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t.contiguous()):
        y = module(base.T)
    assert_all_close(torch.autograd.grad(y, [base, *module.parameters()], g), plain)


@pytest.mark.parametrize("name", NAMES[:-1])
def test_a_parameter_that_is_changed_too_early_is_refused(name: str):
    module = learned(name)
    y = module(numbers(6, 5))
    with torch.no_grad():
        next(module.parameters()).add_(0.01)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning", "ignore:.*Profiler clears events")
@each_name
def test_whatever_watches_takes_the_general_way(name: str):
    module, x = learned(name), numbers(6, 5)
    y = module(x)
    with forward_ad.dual_level():
        assert forward_ad.unpack_dual(module(forward_ad.make_dual(x, torch.ones_like(x)))).tangent is not None
    torch.testing.assert_close(torch.func.vmap(module)(x), y)
    slope = torch.func.grad(lambda x: module(x).sum())(x)
    torch.testing.assert_close(slope, torch.autograd.grad(module(x.requires_grad_()).sum(), x)[0])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        module(x)
    assert any(event.key == "softknee::pointwise" for event in seen.key_averages())


def test_other_tensors_in_the_place_of_parameters():
    module, x = learned("srelu"), numbers(6, 5)
    y = module(x)
    with torch.no_grad():
        module.raw_delta.add_(0.5)
    assert not torch.equal(module(x), y)  # the same tensor with another number
    other = {"raw_delta": torch.tensor([0.1], requires_grad=True)}
    torch.func.functional_call(module, other, (x,)).sum().backward()
    assert other["raw_delta"].grad is not None
    assert module.raw_delta.grad is None
    module.raw_delta.requires_grad_(False)
    assert not module(x).requires_grad
    module.double()
    assert module(x.double()).dtype == torch.float64


def test_a_buffer_may_want_a_gradient():
    module, x = sk.nn.make("srelu", delta=0.5), numbers(6, 5)
    assert not module(x).requires_grad
    module.delta.requires_grad_()
    assert torch.autograd.grad(module(x).sum(), module.delta)[0] is not None


def test_copies_and_pickles_have_no_calls():
    module, x = learned("srelu"), numbers(6, 5)
    y = module(x)
    for other in (copy.deepcopy(module), copy.copy(module), pickle.loads(pickle.dumps(module))):
        assert "_calls" not in other.__dict__
        assert torch.equal(other(x), y)


def test_what_has_no_memory_of_its_own():
    module = learned("srelu")
    part = [torch.randn(shape, dtype=torch.complex64).conj().imag for shape in ((1,), (6, 5))]
    for x in (*part, torch._efficientzerotensor((6, 5))):
        module(torch.zeros(x.shape))
        torch.testing.assert_close(module(x), module(x.clone()))
    x = numbers(6, 5).requires_grad_()
    for _ in range(2):
        got, want = (torch.autograd.grad(module(x), x, g)[0] for g in (part[1], part[1].clone()))
        torch.testing.assert_close(got, want)


def test_numbers_are_told_apart():
    act, x = sk.get("prelu"), numbers(6, 5)
    assert not torch.equal(act(x, slope=0.5), act(x, slope=0.25))
    act(x, slope=0.0)
    act(x, slope=-0.0)  # equal, and another number
    assert {"0.0", "-0.0"} <= {repr(call.numbers[0]) for call in runtime_of(act).calls.values()}
    assert torch.equal(act(x, slope=1), act(x, slope=1.0))
    with pytest.raises(sk.ParameterError, match="must be a number"):
        act(x, slope=True)
    with pytest.raises(sk.ParameterError, match="no parameter 'slop'"):
        act(x, slop=0.5)


def test_the_input_is_overwritten_where_that_is_asked_for():
    module, x = sk.nn.make("srelu", delta=0.5, inplace=True), numbers(6, 5)
    expected, version = sk.get("srelu")(x, delta=0.5), x._version
    assert module(x) is x
    assert torch.equal(x, expected)
    assert x._version > version


def _replace_parameters(module: Any) -> None:
    for name, p in list(module._parameters.items()):
        module._parameters[name] = torch.nn.Parameter(1.02 * p.detach(), requires_grad=p.requires_grad)


CHANGES: dict[str, Any] = {
    "values": lambda module: [p.data.mul_(1.05) for p in module.parameters()],
    "memory": lambda module: [setattr(p, "data", 1.1 * p.data) for p in module.parameters()],
    "other parameters": _replace_parameters,
    "state": lambda module: module.load_state_dict(copy.deepcopy(module.state_dict()), assign=True),
    "frozen": lambda module: [p.requires_grad_(not p.requires_grad) for p in module.parameters()],
    "double": lambda module: module.double(),
    "bfloat16": lambda module: module.bfloat16(),
    "float": lambda module: module.float(),
    "in place": lambda module: setattr(module, "inplace", not module.inplace),
    **{mode: lambda module, mode=mode: sk.squaf_mode_(module, mode) for mode in ("soft", "sampled", "step")},
}


@pytest.mark.parametrize("name", [*NAMES, "squaf"])
@pytest.mark.parametrize("seed", range(1 if interpreting() else 4))
def test_whatever_was_done_to_a_module_it_gives_what_a_copy_gives(name: str, seed: int):
    """A copy has no calls, so that what a call had kept of the module before would be seen."""
    shape = (4, 8) if interpreting() else (32, 256)  # SQUAF's compiled pass serves no smaller ones
    torch.manual_seed(seed)
    module = sk.nn.SQUAF(k=4, q=0.5, z="gelu", window=5, learn=True) if name == "squaf" else learned(name)
    mine = [change for change in CHANGES if name == "squaf" or change not in ("soft", "sampled", "step")]
    for turn in range(20):
        change = mine[int(torch.randint(len(mine), ()))]
        CHANGES[change](module)
        results = []
        for each in (module, copy.deepcopy(module)):
            x = numbers(*shape, seed=turn).requires_grad_(turn % 2 == 0)
            torch.manual_seed(turn)
            value = each(1 * x)
            wanted = [t for t in (x, *each.parameters()) if t.requires_grad]
            made = torch.autograd.grad(value.square().sum(), wanted, materialize_grads=True) if wanted else ()
            results.append([value.detach(), *made])
        for ours, expected in zip(*results, strict=True):
            assert torch.equal(ours, expected), change
