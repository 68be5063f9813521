"""Functions of whole rows: the stated place for gated and norm-based ones, shown on two real examples."""

import copy
import pickle

import pytest
import torch

import softknee as sk
from softknee.errors import DefinitionError
from softknee.registry import unregister
from softknee.spec import Definition
from subjects import POLYNORM, SWIGLU, silu_gate

F64 = torch.float64


@pytest.fixture(autouse=True)
def _registered():
    for item in (SWIGLU, POLYNORM):
        sk.register(item)
    yield
    for item in (SWIGLU, POLYNORM):
        unregister(item.name)


def rows(*shape, dtype=F64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=F64).to(dtype)


# ---- the definition ---------------------------------------------------------------------------------


def test_registered_it_is_a_name_like_any_other():
    result: Definition = sk.get("swiglu")
    assert result is SWIGLU
    assert "polynorm" in sk.names()
    x = rows(4, 6)
    torch.testing.assert_close(result(x), silu_gate(x))
    torch.testing.assert_close(result(x, beta=2.0), silu_gate(x, 2.0))
    assert pickle.loads(pickle.dumps(SWIGLU)) is SWIGLU
    assert copy.deepcopy(SWIGLU) is SWIGLU
    assert repr(SWIGLU) == "<row-wise activation swiglu(beta=1)>"
    assert sk.explain(SWIGLU, x).path == "plain"
    with pytest.raises(DefinitionError, match="already"):
        sk.register(SWIGLU)


def test_the_norm_is_taken_along_the_row():
    x = rows(4, 6)
    value = sk.get("polynorm")(x, a1=1.0, a2=0.0, a3=0.0)
    torch.testing.assert_close(value.square().mean(-1), torch.ones(4, dtype=F64), rtol=1e-5, atol=0)
    torch.testing.assert_close(sk.get("polynorm")(7 * x, a1=1.0, a2=0.0, a3=0.0), value, rtol=1e-4, atol=1e-5)


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
