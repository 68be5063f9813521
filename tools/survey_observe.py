"""Counts the activations that really execute in a forward pass, without asking softknee's surgery.

A dispatch mode sees every operator below autograd. Operators that are activations (aten.gelu, aten.relu, ...) count at
once. Activations that a model spells out (`x * sigmoid(x)`, `0.5 * x * (1 + erf(x / sqrt(2)))`, `x * (x > 0)`) are
recognised by their values: the mode keeps a few elements of every tensor and the tensors it is an elementwise function
of; where the elements agree with a known activation of such a tensor, the operators between them are its parts.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

GATES = frozenset({"sigmoid", "tanh", "hardsigmoid", "softsign", "hardtanh", "logsigmoid", "recurrent"})
"""Not activations unless somebody names them: they gate, squash or limit. Unlisted ones have their own column."""

_SAMPLES = 48  # elements kept of every tensor
_ANCESTORS = 14  # a spelled-out activation is shorter than that
_TORCH = Path(torch.__file__).parent.as_posix() + "/"
_HERE = Path(__file__).as_posix()

_REFERENCES = {
    "relu": F.relu,
    "relu6": F.relu6,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "mish": F.mish,
    "softplus": F.softplus,
    "elu": F.elu,
    "leaky_relu(0.01)": lambda x: F.leaky_relu(x, 0.01),
    "leaky_relu(0.1)": lambda x: F.leaky_relu(x, 0.1),
    "leaky_relu(0.2)": lambda x: F.leaky_relu(x, 0.2),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softsign": F.softsign,
    "relu_squared": lambda x: F.relu(x) ** 2,
}
_UNARY = """
    relu gelu silu mish hardswish hardsigmoid hardtanh elu leaky_relu softplus sigmoid tanh log_sigmoid_forward
    threshold softshrink hardshrink neg exp expm1 log log1p erf abs sqrt rsqrt reciprocal square pow clamp clamp_min
    clamp_max sign clone _to_copy view _unsafe_view reshape alias detach unsqueeze squeeze contiguous dropout
    logical_not
"""
_BINARY = "add sub rsub mul div maximum minimum where gt lt ge le addcmul logaddexp lerp"
_ELEMENTWISE = frozenset(_UNARY.split()) | frozenset(_BINARY.split())
_BENDS = frozenset(_UNARY.split()[:-12]) - {"neg"} | frozenset({"maximum", "minimum", "where", "gt", "lt", "ge", "le"})
# Where a spelled-out activation may end. What bends by itself counts as an operator, not as an end.
_ENDS = frozenset({"add", "sub", "rsub", "mul", "div", "maximum", "where", "log", "log1p", "addcmul", "pow", "square"})
_CONSTANTS = frozenset({"zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_full"})


@dataclass(eq=False)
class Node:
    """A tensor at one moment: some elements, and which earlier tensors it is an elementwise function of."""

    sample: Tensor
    ancestors: tuple[Node, ...] = ()
    bends: int = 0
    events: frozenset[int] = frozenset()
    constant: bool = False
    references: Tensor | None = None


@dataclass
class Event:
    """An activation that executed: its function, and where."""

    function: str
    operator: str
    owners: tuple[str, ...]
    """Paths of the modules in whose methods it happened, innermost first."""
    kind: str
    """The class of the innermost module."""
    place: str
    text: str
    parts: frozenset[int] = frozenset()
    """Of a spelled-out activation: the events inside it."""
    inside: int | None = None
    """The spelled-out activation that this is a part of."""
    method: str = ""

    @property
    def owner(self) -> str:
        return self.owners[0] if self.owners else ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.owner, self.function, self.place

    @property
    def gate(self) -> bool:
        return self.function in GATES


@dataclass
class Recorder(TorchDispatchMode):
    """Records every activation that executes while it is entered."""

    paths: dict[int, str]
    """Of every module of the model, by identity, its first path."""
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.nodes: Any = WeakIdKeyDictionary()
        self.recurrent: FrameType | None = None

    @property
    def units(self) -> list[Event]:
        """The activations that are no part of another."""
        return [event for event in self.events if event.inside is None]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.partition("::")[2].rstrip("_")
        before = (
            [self.node(argument) for argument in args if isinstance(argument, Tensor)] if name in _ELEMENTWISE else []
        )
        function = _activation(name, args, kwargs)
        result = func(*args, **kwargs)
        tensors = [
            output
            for output in (result if isinstance(result, tuple | list) else [result])
            if isinstance(output, Tensor)
        ]
        if not tensors or tensors[0].device.type == "meta":
            return result
        event = self.note(function, name) if function else None
        node = self.follow(name, before, tensors[0], event)
        if node is not None:
            self.nodes[tensors[0]] = node
            if name in _ENDS and node.bends and event is None:
                self.recognise(node, name)
        return result

    def node(self, tensor: Tensor) -> Node:
        known = self.nodes.get(tensor)
        if known is None:
            known = Node(_sample(tensor), constant=tensor.numel() == 1)
            known.ancestors = (known,)
            self.nodes[tensor] = known
        return known

    def follow(self, name: str, operands: list[Node], result: Tensor, event: int | None) -> Node | None:
        """The node of an operator's first result; None where it starts anew, which a later look finds out."""
        values = result.is_floating_point() or result.dtype is torch.bool
        if not values or (name not in _ELEMENTWISE | _CONSTANTS and event is None):
            self.nodes.pop(result, None)
            return None
        node = Node(_sample(result), constant=name in _CONSTANTS)
        moving = [operand for operand in operands if not operand.constant]
        same_size = all(operand.sample.shape == node.sample.shape for operand in moving)
        shared: list[Node] = []
        if moving and same_size:
            shared = [
                ancestor for ancestor in moving[0].ancestors if all(ancestor in other.ancestors for other in moving[1:])
            ]
        node.ancestors = (*shared[-_ANCESTORS:], node)
        if shared:
            node.bends = max(operand.bends for operand in moving) + (name in _BENDS)
            node.events = frozenset().union(*(operand.events for operand in moving))
        if event is not None:
            node.events |= {event}
        return node

    def recognise(self, node: Node, name: str) -> None:
        """Note a spelled-out activation that ends in this operator."""
        for start in node.ancestors[:-1]:
            if node.bends <= start.bends or not _wide(start.sample):
                continue
            function = _same_values(start, node.sample)
            inner = node.events - start.events
            covered = [index for index in inner if self.events[index].inside is None]
            if not function or any(self.events[index].function == function for index in covered):
                continue
            event = self.note(function, f"spelled out, ends in {name}", parts=frozenset(covered))
            if event is not None:
                for index in covered:
                    self.events[index].inside = event
                node.events |= {event}
            return

    def note(self, function: str, operator: str, parts: frozenset[int] = frozenset()) -> int | None:
        frames = [frame for frame in _frames(sys._getframe(1)) if frame.f_code.co_filename != _HERE]
        if any(_ours(frame) for frame in frames):
            return None
        recurrent = next((f for f in frames if isinstance(_first_argument(f), nn.RNNBase | nn.RNNCellBase)), None)
        if recurrent is not None:
            # One operator where oneDNN has a kernel for this processor, else a hundred gates: one event either way.
            if recurrent is self.recurrent:
                return None
            function, self.recurrent = "recurrent", recurrent
        owners: dict[str, nn.Module] = {}
        for frame in frames:
            me = _first_argument(frame)
            if isinstance(me, nn.Module) and id(me) in self.paths:
                owners.setdefault(self.paths[id(me)], me)
        at = next((candidate for candidate in frames if not _carrier(candidate)), frames[-1])
        text = linecache.getline(at.f_code.co_filename, at.f_lineno).strip()
        kind = type(next(iter(owners.values()))).__name__ if owners else ""
        place = f"{_short(at.f_code.co_filename)}:{at.f_lineno}"
        self.events.append(
            Event(function, operator, tuple(owners), kind, place, text, parts, method=at.f_code.co_qualname)
        )
        return len(self.events) - 1


def _activation(name: str, args: Any, kwargs: Any) -> str:
    """The activation that an operator computes, or nothing."""
    if name in ("_transformer_encoder_layer_fwd", "glu"):
        return {"glu": "glu"}.get(name, "fused_encoder_layer")
    if name in ("mkldnn_rnn_layer", "lstm", "gru", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"):
        return "recurrent"
    if not (args and isinstance(args[0], Tensor) and args[0].is_floating_point() and args[0].numel() > 1):
        return ""
    given = [*args[1:], *kwargs.values()]
    if name in ("clamp", "clamp_min", "hardtanh"):
        low, high = ([*args[1:], None, None] if name != "hardtanh" else [*args[1:], -1.0, 1.0])[:2]
        low, high = kwargs.get("min", low), kwargs.get("max", high)
        if isinstance(low, Tensor) or isinstance(high, Tensor):
            return ""
        known = {(0, None): "relu", (0, 6): "relu6"}
        return known.get((low, high), "hardtanh" if name == "hardtanh" else "")
    if name == "elu":
        alpha, scale, slope = ([*args[1:], 1.0, 1.0, 1.0] if len(args) < 4 else list(args[1:]))[:3]
        return "selu" if scale != 1 else "celu" if slope != 1 else "elu" if alpha == 1 else f"elu({alpha})"
    if name == "gelu":
        return "gelu_tanh" if "tanh" in given else "gelu"
    plain = "relu silu mish hardswish hardsigmoid softplus sigmoid tanh softshrink hardshrink threshold leaky_relu"
    if name in plain.split():
        return name
    other = {"_prelu_kernel": "prelu", "prelu": "prelu", "log_sigmoid_forward": "logsigmoid"}
    return "rrelu" if name.startswith("rrelu_with_noise") else other.get(name, "")


def _sample(tensor: Tensor) -> Tensor:
    """The same few elements of all tensors of one size, in float64."""
    count = tensor.numel()
    if not count or tensor.is_complex():
        return torch.zeros(0, dtype=torch.float64)
    tensor = tensor.detach()
    if count > _SAMPLES:
        flat = [*range(0, count, max(1, count // _SAMPLES))][:_SAMPLES]
        index = torch.unravel_index(torch.tensor(flat), tensor.shape)
        return tensor[index].double()
    return tensor.reshape(-1).double()


def _wide(sample: Tensor) -> bool:
    """Whether elements tell functions apart: some of both signs lie where activations bend."""
    bends = (sample.abs() > 0.05) & (sample.abs() < 2.5)
    return sample.numel() > 3 and bool((bends & (sample < 0)).any()) and bool((bends & (sample > 0)).any())


def _same_values(start: Node, sample: Tensor) -> str:
    if start.references is None:
        start.references = torch.stack([function(start.sample) for function in _REFERENCES.values()])
    if sample.shape != start.sample.shape or not bool(sample.isfinite().all()):
        return ""
    tolerance = 2e-6 + 1e-5 * start.references.abs()
    agree = ((start.references - sample).abs() <= tolerance).all(dim=1).tolist()
    return next((name for name, same in zip(_REFERENCES, agree, strict=True) if same), "")


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _first_argument(frame: FrameType) -> Any:
    code = frame.f_code
    if not code.co_argcount:
        return None
    name = code.co_varnames[0]
    return frame.f_locals.get(name)


def _ours(frame: FrameType) -> bool:
    """Whether a module of softknee computes, which is what the swap put there."""
    return type(_first_argument(frame)).__module__.startswith(("softknee.nn", "softknee.kernels"))


def _carrier(frame: FrameType) -> bool:
    name = frame.f_code.co_filename.replace("\\", "/")
    return name.startswith((_TORCH, "<")) or "/softknee/" in name


def _short(file: str) -> str:
    return file.replace("\\", "/").rpartition("/site-packages/")[2] or file
