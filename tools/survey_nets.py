"""Networks that spell their activations in the ways that people do, each with what a swap must make of it.

`functions` are the activations of a network in the order of execution. `reference(x, *functions)` computes what the
network computes, with other functions in their places: a swap is right if the output is that of the reference with the
new function at the sites reported as changed, and with the old one at the others.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

Function = Callable[[Tensor], Tensor]
WIDTH = 8


class Net(nn.Module):
    """Two linear layers around an activation; a network below says how the activation is written."""

    functions: tuple[Function, ...] = (F.relu,)

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def reference(self, x: Tensor, *functions: Function) -> Tensor:
        return self.fc2(functions[0](self.fc1(x)))


class HSigmoid(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU6(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(x + 3) / 6


class HSwish(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sigmoid = HSigmoid()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.sigmoid(x)


class MobileNetCopy(Net):
    functions = (F.hardswish,)

    def __init__(self) -> None:
        super().__init__()
        self.act = HSwish()

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))


class SqueezeExcite(Net):
    """A gate of h_sigmoid, and a ReLU in the branch that makes it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Sequential(nn.Linear(WIDTH, 4), nn.ReLU(inplace=True), nn.Linear(4, WIDTH), HSigmoid())

    def forward(self, x: Tensor) -> Tensor:
        h = self.fc1(x)
        return self.fc2(h * self.gate(h))

    def reference(self, x: Tensor, *functions: Function) -> Tensor:
        h = self.fc1(x)
        return self.fc2(h * F.hardsigmoid(self.gate[2](functions[0](self.gate[0](h)))))


class MishOfParts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tanh, self.softplus = nn.Tanh(), nn.Softplus()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.tanh(self.softplus(x))


class MishNet(Net):
    functions = (F.mish,)

    def __init__(self) -> None:
        super().__init__()
        self.act = MishOfParts()

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))


class InlineHardSwish(Net):
    functions = (F.hardswish,)

    def forward(self, x: Tensor) -> Tensor:
        h = self.fc1(x)
        h = h * F.relu6(h + 3) / 6
        return self.fc2(h)


class InlineSilu(Net):
    functions = (F.silu,)

    def forward(self, x: Tensor) -> Tensor:
        h = self.fc1(x)
        return self.fc2(h * torch.sigmoid(h))


class InlineMish(Net):
    functions = (F.mish,)

    def forward(self, x: Tensor) -> Tensor:
        h = self.fc1(x)
        return self.fc2(h * torch.tanh(F.softplus(h)))


class InlineGelu(Net):
    functions = (F.gelu,)

    def forward(self, x: Tensor) -> Tensor:
        h = self.fc1(x)
        return self.fc2(h * 0.5 * (1.0 + torch.erf(h / math.sqrt(2.0))))


class WhereNet(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = self.fc1(x)
        return self.fc2(torch.where(h > 0, h, torch.zeros_like(h)))


class MaskNet(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = self.fc1(x)
        return self.fc2(h * (h > 0))


class MaximumNet(Net):
    def forward(self, x: Tensor) -> Tensor:
        h = self.fc1(x)
        return self.fc2(torch.maximum(h, torch.zeros_like(h)))


class BuiltInForward(Net):
    functions = (F.relu, F.gelu)

    def forward(self, x: Tensor) -> Tensor:
        h = nn.ReLU()(self.fc1(x))
        return self.fc2(nn.GELU()(h + x))

    def reference(self, x: Tensor, *functions: Function) -> Tensor:
        return self.fc2(functions[1](functions[0](self.fc1(x)) + x))


class GluNet(Net):
    """The ReLU may change; the gated linear unit has no activation of its own to change."""

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.fc1(x))
        return self.fc2(F.glu(torch.cat([h, x], dim=-1)))

    def reference(self, x: Tensor, *functions: Function) -> Tensor:
        return self.fc2(F.glu(torch.cat([functions[0](self.fc1(x)), x], dim=-1)))


def logged(method: Any) -> Any:
    @functools.wraps(method)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    return wrapper


class DecoratedForward(Net):
    functions = (F.gelu,)

    @logged
    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class Base(Net):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.fc1(x))


class SuperForward(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(super().forward(x))


def outside(x: Tensor) -> Tensor:
    return F.silu(x)


class HelperOutside(Net):
    functions = (F.silu,)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(outside(self.fc1(x)))


class SharedTwice(Net):
    functions = (F.relu, F.relu)

    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.fc2(self.relu(self.fc1(x))) + x)

    def reference(self, x: Tensor, *functions: Function) -> Tensor:
        return functions[1](self.fc2(functions[0](self.fc1(x))) + x)


class TwoOfOneClass(nn.Module):
    """Two blocks of one class, one of which is linear: a change of a class must not reach the other."""

    functions = (F.relu,)

    class Block(Net):
        def __init__(self, bend: bool) -> None:
            super().__init__()
            self.bend = bend

        def forward(self, x: Tensor) -> Tensor:
            return self.fc2(F.relu(self.fc1(x)) if self.bend else self.fc1(x))

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = self.Block(True), self.Block(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))

    def reference(self, x: Tensor, *functions: Function) -> Tensor:
        return self.second(self.first.reference(x, *functions))


class Decoder(nn.Module):
    functions = (F.relu, F.relu)

    def __init__(self) -> None:
        super().__init__()
        options = {"d_model": WIDTH, "nhead": 2, "dim_feedforward": 16, "batch_first": True, "dropout": 0.0}
        self.encoder = nn.TransformerEncoderLayer(**options)
        self.decoder = nn.TransformerDecoderLayer(**options)

    def forward(self, x: Tensor) -> Tensor:
        x = x[None]
        return self.decoder(x, self.encoder(x))[0]

    def reference(self, x: Tensor, *functions: Function) -> Tensor:
        x = x[None]
        e, d = self.encoder, self.decoder
        m = e.norm1(x + e.self_attn(x, x, x, need_weights=False)[0])
        m = e.norm2(m + e.linear2(functions[0](e.linear1(m))))
        y = d.norm1(x + d.self_attn(x, x, x, need_weights=False)[0])
        y = d.norm2(y + d.multihead_attn(y, m, m, need_weights=False)[0])
        return d.norm3(y + d.linear2(functions[1](d.linear1(y))))[0]


class Transformer(nn.Module):
    """The encoder layer runs in torch's fused form unless somebody switches that off."""

    functions = (F.gelu,)

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True, dropout=0.0, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x[None])[0]

    def reference(self, x: Tensor, *functions: Function) -> Tensor:
        x, e = x[None], self.layers.layers[0]
        x = e.norm1(x + e.self_attn(x, x, x, need_weights=False)[0])
        return e.norm2(x + e.linear2(functions[0](e.linear1(x))))[0]


class Scripted(Net):
    """The helper is TorchScript: nobody can change what is inside it."""

    functions = (F.silu, F.relu)

    def __init__(self) -> None:
        super().__init__()
        self.helper = torch.jit.script(outside)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.relu(self.helper(self.fc1(x)) + x))

    def reference(self, x: Tensor, *functions: Function) -> Tensor:
        return self.fc2(functions[1](functions[0](self.fc1(x)) + x))


class Recurrent(Net):
    """The gates of the LSTM are its own."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.relu(self.fc1(self.lstm(x[None])[0][0])))

    def reference(self, x: Tensor, *functions: Function) -> Tensor:
        return self.fc2(functions[0](self.fc1(self.lstm(x[None])[0][0])))


def graph_module() -> nn.Module:
    """A traced network, with the reference of the network it was traced from."""
    source = GraphSource()
    traced = fx.symbolic_trace(source)
    traced.functions, traced.reference = source.functions, source.reference
    return traced


class GraphSource(Net):
    functions = (F.relu, F.gelu)

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(F.relu(self.fc1(x)) + x))

    reference = BuiltInForward.reference


NETS: dict[str, Callable[[], nn.Module]] = {
    cls.__name__: cls
    for cls in (
        *(MobileNetCopy, SqueezeExcite, MishNet, InlineHardSwish, InlineSilu, InlineMish, InlineGelu, WhereNet),
        *(MaskNet, MaximumNet, BuiltInForward, GluNet, DecoratedForward, SuperForward, HelperOutside, SharedTwice),
        *(TwoOfOneClass, Decoder, Transformer, Scripted, Recurrent),
    )
} | {"GraphModule": graph_module}


def example() -> Tensor:
    return 2.0 * torch.randn(16, WIDTH)
