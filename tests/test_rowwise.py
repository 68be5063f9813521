"""Functions of whole rows: the stated place for gated and norm-based ones, shown on two real examples."""

import copy
import io
import pickle

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import softknee as sk
from softknee.errors import DefinitionError, InputError, ParameterError
from softknee.registry import unregister
from softknee.spec import Definition, Rowwise, positive, real

F64 = torch.float64


def half(size: int) -> int:
    if size % 2:
        raise ParameterError(f"swiglu needs rows of even length to halve, and {size} was given.")
    return size // 2


def compute_swiglu(x, *, beta):
    value, gate = x.chunk(2, -1)
    return value * gate * torch.sigmoid(beta * gate)


def compute_polynorm(x, *, a1, a2, a3, shift):
    """PolyNorm of order 3: a sum of powers, each brought to unit root mean square along the row."""
    terms = (a * _unit(x**n) for n, a in ((1, a1), (2, a2), (3, a3)))
    return sum(terms) + shift


def _unit(row):
    return row * torch.rsqrt(row.square().mean(-1, keepdim=True) + 1e-6)


SWIGLU = Rowwise("swiglu", compute_swiglu, params=(positive("beta", 1.0),), size_out=half, about="Shazeer 2020.")
POLYNORM = Rowwise(
    "polynorm",
    compute_polynorm,
    params=(real("a1", 1 / 3), real("a2", 1 / 3), real("a3", 1 / 3), real("shift", 0.0)),
    about="Zhuo et al. 2024.",
)


@pytest.fixture(autouse=True)
def _registered():
    for one in (SWIGLU, POLYNORM):
        sk.register(one)
    yield
    for one in (SWIGLU, POLYNORM):
        unregister(one.name)


def rows(*shape, dtype=F64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=F64).to(dtype)


def silu_gate(x, beta=1.0):
    value, gate = x.chunk(2, -1)
    return value * gate / (1 + torch.exp(-beta * gate))


# ---- the definition ---------------------------------------------------------------------------------


def test_registered_it_is_a_name_like_any_other():
    found: Definition = sk.get("swiglu")
    assert found is SWIGLU
    assert "polynorm" in sk.names()
    x = rows(4, 6)
    torch.testing.assert_close(found(x), silu_gate(x))
    torch.testing.assert_close(found(x, beta=2.0), silu_gate(x, 2.0))
    assert pickle.loads(pickle.dumps(SWIGLU)) is SWIGLU
    assert copy.deepcopy(SWIGLU) is SWIGLU
    assert repr(SWIGLU) == "<row-wise activation swiglu(beta=1)>"
    assert sk.explain(SWIGLU, x).path == "plain"


def test_the_norm_is_taken_along_the_row():
    x = rows(4, 6)
    value = sk.get("polynorm")(x, a1=1.0, a2=0.0, a3=0.0)
    torch.testing.assert_close(value.square().mean(-1), torch.ones(4, dtype=F64), rtol=1e-5, atol=0)
    torch.testing.assert_close(sk.get("polynorm")(7 * x, a1=1.0, a2=0.0, a3=0.0), value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("act", [SWIGLU, POLYNORM], ids=lambda a: a.name)
def test_gradients_of_both_orders(act):
    names = [p.name for p in act.params]
    values = [torch.full((1,), p.default, dtype=F64, requires_grad=True) for p in act.params]

    def of_parts(x, *given):
        return act(x, **dict(zip(names, given, strict=True)))

    arguments = [rows(2, 4).requires_grad_(), *values]
    assert gradcheck(of_parts, arguments)
    assert gradgradcheck(of_parts, arguments)


# torch loads its forward-mode formulas with its own deprecated function on first use.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("act", [SWIGLU, POLYNORM], ids=lambda a: a.name)
def test_every_transform_works(act):
    x = rows(3, 4)
    torch.testing.assert_close(torch.func.vmap(act)(x), act(x))
    torch.testing.assert_close(torch.func.jvp(act, (x,), (x,))[0], act(x))
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: act(x), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), act(x))
    assert act(x.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: SWIGLU(torch.zeros(4), bta=1.0), ParameterError, "Did you mean 'beta'"),
        (lambda: SWIGLU(torch.zeros(4), beta=-1.0), ParameterError, "above 0, and -1.0"),
        (lambda: SWIGLU(torch.zeros(2, 4), beta=torch.ones(4)), ParameterError, "one value for each row"),
        (lambda: SWIGLU(torch.zeros(2, 4), beta=torch.ones(3, 1)), ParameterError, "does not broadcast"),
        (lambda: SWIGLU(torch.zeros(2, 3)), ParameterError, "even length"),
        (lambda: SWIGLU(torch.zeros(4, dtype=torch.int64)), InputError, "floating-point"),
        (lambda: SWIGLU([1.0]), InputError, r"torch\.Tensor"),
        (lambda: SWIGLU(torch.tensor(1.0)), InputError, "does not have"),
        (
            lambda: Rowwise("wrong", compute_swiglu, SWIGLU.params)(torch.zeros(4)),
            DefinitionError,
            "size_out",
        ),
        (lambda: sk.register(SWIGLU), DefinitionError, "already"),
    ],
)
def test_what_cannot_be_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


# ---- the module -------------------------------------------------------------------------------------


def test_a_module_by_name():
    module = sk.nn.make("swiglu", beta=2.0, learn="beta")
    assert isinstance(module, sk.nn.RowwiseModule)
    x = rows(5, 6, dtype=torch.float32)
    torch.testing.assert_close(module(x), silu_gate(x, 2.0))
    assert set(module.state_dict()) == {"raw_beta", "anchor_beta"}
    assert module.beta.item() == pytest.approx(2.0, rel=1e-6)
    assert repr(module) == "RowwiseModule('swiglu', beta=2 (learned), per='layer')"
    module(x).sum().backward()
    assert module.raw_beta.grad.abs().item() > 0
    assert sk.explain(module, x).path == "plain"
    module.set_(beta=0.5)
    torch.testing.assert_close(module(x), silu_gate(x, 0.5))
    module.reset_parameters()
    torch.testing.assert_close(module(x), silu_gate(x, 2.0))


def test_one_value_for_each_channel():
    module = sk.nn.make("polynorm", learn=True, per="channel", size=3)
    assert sum(p.numel() for p in module.parameters()) == 12
    x = rows(2, 3, 8, dtype=torch.float32)
    module.set_(a1=torch.tensor([0.0, 1.0, 2.0]))
    for channel in range(3):
        alone = sk.get("polynorm")(x[:, channel], a1=float(channel))
        torch.testing.assert_close(module(x)[:, channel], alone)


@pytest.mark.parametrize("options", [{"per": "neuron", "size": 6}, {"per": "channel", "size": 6, "dim": -1}])
def test_a_row_shares_its_parameters(options):
    with pytest.raises(ParameterError, match="a row has one value"):
        sk.nn.make("swiglu", learn=True, **options)


def test_states_copies_and_the_meta_device():
    module, x = sk.nn.make("polynorm", a2=0.7, learn=True), rows(2, 8, dtype=torch.float32)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    fresh = sk.nn.make("polynorm", learn=True)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    meta = sk.nn.make("polynorm", a2=0.7, learn=True, device="meta").to_empty(device="cpu")
    meta.reset_parameters()
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), fresh, meta):
        assert torch.equal(other(x), module(x))


def test_compiled_and_exported():
    module, x = sk.nn.make("swiglu", learn=True), rows(3, 6, dtype=torch.float32)
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), module(x))
    torch.testing.assert_close(torch.export.export(module, (x,)).module()(x), module(x))
