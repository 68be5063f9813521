"""Gated activations: act(a) * b and its gradients, whatever the activation, the layout and the transform."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

import softknee as sk
from softknee.errors import InputError, ParameterError
from softknee.kernels.gated import row_step

GATES: dict[str, Any] = {
    "silu": sk.nn.Gated("silu"),
    "geglu": sk.nn.Gated("gelu", approximate="tanh"),
    "learned": sk.nn.Gated("lambda_gelu", learn=True),
    "per channel": sk.nn.Gated("smelu", learn=True, per="channel", size=6, dim=-1),
    "formula": sk.nn.Gated("x * sigmoid(2 * x)"),
    "soft table": sk.nn.Gated("squaf", k=4, q=0.5, z="gelu", learn=True),
    "baseline": sk.nn.Gated("polyrelu"),
}
each_gate = pytest.mark.parametrize("gate", GATES.values(), ids=GATES)


def pair(*shape: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    a, b = torch.randn((2, *(shape or (3, 5, 6))), generator=generator, dtype=dtype)
    return a.requires_grad_(), b.requires_grad_()


def plainly(gate: sk.nn.Gated, a: Tensor, b: Tensor) -> Tensor:
    """The activation as a function of its own, and then the product."""
    if not isinstance(gate.act, sk.nn.Pointwise):
        return gate.act(a) * b
    params = {p.name: value for p, value in zip(gate.act.params, gate.act.fitted(a), strict=True)}
    return gate.act.definition(a, **params) * b


@each_gate
def test_it_is_the_activation_times_the_gate(gate):
    gate = copy.deepcopy(gate).double()
    a, b = pair()
    torch.testing.assert_close(gate(a, b), plainly(gate, a, b))
    torch.testing.assert_close(gate(torch.cat([a, b], -1)), gate(a, b), rtol=0, atol=0)


@pytest.mark.slow
@each_gate
def test_gradients(gate):
    gate = copy.deepcopy(gate).double()
    names = [name for name, _ in gate.named_parameters()]

    def function(a: Tensor, b: Tensor, *values: Tensor) -> Tensor:
        return functional_call(gate, dict(zip(names, values, strict=True)), (a, b))

    inputs = (*pair(2, 1, 6), *gate.parameters())
    assert torch.autograd.gradcheck(function, inputs)
    if gate.act.__class__.__name__ == "GatedPointwise" and gate.act.definition.name != "smelu":
        assert torch.autograd.gradgradcheck(function, inputs)


def test_it_saves_its_two_inputs_and_nothing_else():
    held: list[Tensor] = []
    a, b = pair(64, 64, dtype=torch.float32)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: held.append(t) or t, lambda t: t):
        sk.nn.Gated("silu")(a, b)
    assert {t.data_ptr() for t in held if t.numel() > 1} == {a.data_ptr(), b.data_ptr()}


def test_only_what_is_needed_has_a_gradient():
    gate = sk.nn.Gated("srelu", learn=True, dtype=torch.float64)
    a, b = pair()
    for index, value in enumerate((a, b)):
        inputs = [a.detach(), b.detach()]
        inputs[index] = value
        (gradient,) = torch.autograd.grad(gate(*inputs).sum(), value)
        (wanted,) = torch.autograd.grad(plainly(gate, *inputs).sum(), value)
        torch.testing.assert_close(gradient, wanted)


@pytest.mark.parametrize(
    "layout",
    [
        lambda t: t.transpose(0, 1),
        lambda t: t[..., ::2],
        lambda t: t[:, 1:],
        lambda t: t.expand(4, *t.shape),
        lambda t: t[0, 0, 0],
        lambda t: t[:0],
    ],
    ids=["transposed", "steps", "part", "expanded", "number", "empty"],
)
def test_layouts(layout):
    gate = sk.nn.Gated("gelu")
    a, b = pair()
    torch.testing.assert_close(gate(layout(a), layout(b)), F.gelu(layout(a)) * layout(b))


def test_a_gate_of_another_shape_or_type_broadcasts():
    gate = sk.nn.Gated("silu")
    a, b = pair()
    torch.testing.assert_close(gate(a, b[:, :1]), F.silu(a) * b[:, :1])
    assert gate(a.float(), b).dtype == torch.float64


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_transforms():
    gate = sk.nn.Gated("silu")
    a, b = (t.detach() for t in pair())
    slope = torch.func.grad(lambda a: gate(a, b).sum())(a)
    torch.testing.assert_close(slope, torch.func.grad(lambda a: (F.silu(a) * b).sum())(a))
    torch.testing.assert_close(torch.vmap(gate)(a, b), gate(a, b))
    _, tangent = torch.func.jvp(gate, (a, b), (b, a))
    torch.testing.assert_close(tangent, torch.func.jvp(lambda a, b: F.silu(a) * b, (a, b), (b, a))[1])
    with torch.autograd.forward_ad.dual_level():
        dual = gate(torch.autograd.forward_ad.make_dual(a, b), b)
        torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(dual).tangent, slope * b)


@pytest.mark.slow
def test_compiled_in_one_graph():
    gate = sk.nn.Gated("srelu", learn=True)
    a, b = pair(dtype=torch.float32)
    compiled = torch.compile(gate, backend="aot_eager", fullgraph=True)
    for function in (gate, compiled):
        gate.zero_grad()
        function(a, b).sum().backward()
    torch.testing.assert_close(compiled(torch.cat([a, b], -1).detach()), gate(a, b).detach())


def test_copies_pickles_and_symbolic_traces():
    gate = sk.nn.Gated("smelu", learn="beta", beta=0.7)
    a, b = pair(dtype=torch.float32)
    for twin in (copy.deepcopy(gate), pickle.loads(pickle.dumps(gate))):
        torch.testing.assert_close(twin(a, b), gate(a, b))
    traced = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(6, 8), gate))
    assert traced(a).shape == (3, 5, 4)
    assert repr(gate) == ("Gated(\n  split=-1\n  (act): GatedPointwise('smelu', beta=0.7 (learned), per='layer')\n)")


@pytest.mark.parametrize(
    ("call", "error", "cure"),
    [
        (lambda: sk.nn.Gated("silu")(torch.zeros(3)), InputError, "even size"),
        (lambda: sk.nn.Gated("silu", split=4)(torch.zeros(2, 4)), InputError, "dimension 4"),
        (lambda: sk.nn.Gated("silu")([1.0]), InputError, "torch.as_tensor"),
        (lambda: sk.nn.Gated("silu")(torch.zeros(4), 1.0), InputError, "torch.as_tensor"),
        (lambda: sk.nn.Gated("nosuch"), sk.errors.SoftkneeError, "nosuch"),
        (lambda: sk.nn.Gated("silu", delta=1), ParameterError, "delta"),
    ],
)
def test_refusals(call, error, cure):
    with pytest.raises(error, match=cure):
        call()


def test_rows_and_their_steps():
    x = torch.zeros(2, 3, 8)
    assert row_step(x) == 8
    assert row_step(x[..., 4:]) == 8
    assert row_step(x.transpose(0, 1)) is None
    assert row_step(x[..., ::2]) is None
    assert row_step(x[:, 1:]) is None
    assert row_step(x[0, 0]) == 8
