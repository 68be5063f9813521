"""The lists of timm, transformers and Keras against the zoo: what they have is here, by name and by value."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import softknee as sk
from helpers import F64

X = torch.cat([torch.linspace(-9, 9, 2001, dtype=F64), torch.tensor([-0.0, 12.0, -40.0, 40.0], dtype=F64)])
IDENTITY = "is torch.nn.Identity: nothing happens"
# Names that the zoo has under another one are its aliases; these are no activations of ours.
LEFT_OUT = {
    "identity": IDENTITY,
    "linear": IDENTITY,
    "sqrtsoftplus": "scores the experts of a router; sk.spec.parse('sqrt(softplus(x))') makes it",
    "exponential": "is torch.exp, one operation without a parameter",
    "glu": "multiplies one half of a row by the other",
    "softmax": "depends on a whole row",
    "log_softmax": "depends on a whole row",
    "sparsemax": "depends on a whole row",
}
# keras.activations of Keras 3, which is not installed where the tests run.
KERAS = (
    "celu elu exponential gelu glu hard_shrink hard_sigmoid hard_silu hard_swish hard_tanh leaky_relu linear "
    "log_sigmoid log_softmax mish relu relu6 selu sigmoid silu soft_shrink softmax softplus softsign sparse_plus "
    "sparse_sigmoid sparsemax squareplus swish tanh tanh_shrink threshold"
)
# The constant of these is rounded, or their arithmetic is coarse where ours is exact.
COARSE = {"gelu_fast": 1e-9}


def same(name: str, peer: nn.Module) -> None:
    expected = peer.double()(X.clone()).detach()
    torch.testing.assert_close(sk.get(name)(X), expected, rtol=1e-13, atol=COARSE.get(name, 1e-14))


def test_transformers():
    activations = pytest.importorskip("transformers.activations")
    table = [name for name in activations.ACT2CLS if not name.startswith("softknee")]
    assert len(table) > 20
    checked = 0
    for name in table:
        if name in LEFT_OUT:
            continue
        assert name in sk.names(), f"transformers has {name}, and the zoo has not"
        result = activations.ACT2CLS[name]
        cls, given = result if isinstance(result, tuple) else (result, {})
        if not getattr(cls, "__module__", "").startswith(("transformers", "torch")):
            continue  # another test has registered our own names there
        if name == "xielu":
            given = {
                "eps": 0.0,
                "dtype": F64,
            }  # its eps shifts the value at 0 by 1e-6, against rounding that ours avoids
        same(name, cls(**given))
        checked += 1
    assert checked > 20


def test_timm():
    create = pytest.importorskip("timm.layers.create_act")
    table: dict[str, Any] = create._ACT_LAYER_DEFAULT
    assert len(table) > 15
    for name, cls in table.items():
        if name in LEFT_OUT:
            continue
        assert name in sk.names(), f"timm has {name}, and the zoo has not"
        same(name, cls())


def test_star_relu_is_that_of_metaformer():
    metaformer = pytest.importorskip("timm.models.metaformer")
    peer = metaformer.StarReLU(scale_value=0.8944, bias_value=-0.4472)
    torch.testing.assert_close(sk.get("star_relu")(X.float()), peer(X.float()).detach(), rtol=1e-6, atol=1e-6)


KERAS_FORMULAS = {
    "sparse_plus": lambda x: torch.where(x <= -1, 0.0, torch.where(x < 1, (x + 1) ** 2 / 4, x)),
    "sparse_sigmoid": lambda x: torch.clamp((x + 1) / 2, 0, 1),
    "squareplus": lambda x: (x + torch.sqrt(x**2 + 4)) / 2,
    "hard_sigmoid": lambda x: torch.clamp(x / 6 + 0.5, 0, 1),
    "hard_silu": lambda x: x * torch.clamp(x / 6 + 0.5, 0, 1),
    "hard_tanh": lambda x: torch.clamp(x, -1, 1),
    "soft_shrink": lambda x: torch.sign(x) * torch.relu(x.abs() - 0.5),
    "hard_shrink": lambda x: torch.where(x.abs() > 0.5, x, 0.0),
    "tanh_shrink": lambda x: x - torch.tanh(x),
    "log_sigmoid": lambda x: torch.log(torch.sigmoid(x)),
}


def test_keras():
    missing = [name for name in KERAS.split() if name not in sk.names() and name not in LEFT_OUT]
    assert missing == []
    for name, formula in KERAS_FORMULAS.items():
        torch.testing.assert_close(
            sk.get(name)(X), formula(X), rtol=1e-13, atol=1e-13, msg=lambda m, n=name: f"{n}: {m}"
        )
    torch.testing.assert_close(sk.nn.Squareplus(b=9.0).double()(X), (X + torch.sqrt(X**2 + 9)) / 2)


def test_what_is_left_out_is_not_there_and_the_page_says_why():
    text = (Path(__file__).parent.parent / "docs" / "drop-in.md").read_text(encoding="utf-8")
    for name in LEFT_OUT:
        assert name not in sk.names()
        assert f"`{name}`" in text, name
    made = sk.Activation("router", sk.spec.parse("sqrt(softplus(x))"))
    torch.testing.assert_close(made(X), nn.functional.softplus(X, threshold=100).sqrt())
