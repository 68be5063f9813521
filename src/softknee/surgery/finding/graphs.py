"""The activations that a graph of torch.fx calls as functions, and how to send a node elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx

from .expressions import ELEMENTWISE
from .identify import GATES, Identity, identify
from .probing import FUNCTIONS

_CLAMPS = frozenset({"clamp", "clamp_min", "clip"})
_PRODUCTS = frozenset({"mul", "multiply", "truediv", "div"})
_MULTIPLIED = (
    "its result is multiplied by its own input in another node, so that both compute one function; trace the model "
    "with that function as a module of its own"
)


def activation_nodes(module: fx.GraphModule) -> Iterator[tuple[fx.Node, Identity, str]]:
    """The nodes that call an activation, what each computes, and why it cannot be changed, if it cannot."""
    multiplied = _multiplied(module.graph)
    for node in module.graph.nodes:
        name = _name(node)
        if node.op not in ("call_function", "call_method") or name not in FUNCTIONS | _CLAMPS:
            continue
        identity = _identity(node)
        if identity is not None and identity.known and not (name in _CLAMPS and identity.name in GATES):
            yield node, identity, _MULTIPLIED if node in multiplied else ""
        elif name in FUNCTIONS:
            yield node, Identity(name, known=False), _MULTIPLIED if node in multiplied else ""


def redirect(module: fx.GraphModule, name: str, attribute: str) -> Callable[[], None]:
    """Let a node call the module under an attribute with its tensor alone; returns how to take that back."""
    node = next(each for each in module.graph.nodes if each.name == name)
    before = node.op, node.target, node.args, node.kwargs
    node.op, node.target, node.args, node.kwargs = "call_module", attribute, (_tensor(node),), {}
    module.recompile()

    def undo() -> None:
        node.op, node.target, node.args, node.kwargs = before
        module.recompile()

    return undo


def _name(node: fx.Node) -> str:
    """The name of the function that a node calls: of torch.ops.aten.relu_.default, relu."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        target = target.overloadpacket
    return (target if isinstance(target, str) else getattr(target, "__name__", "")).strip("_")


def _tensor(node: fx.Node) -> Any:
    return node.args[0] if node.args else node.kwargs.get("input")


def _identity(node: fx.Node) -> Identity | None:
    rest = list(node.args[1:])
    named = {key: value for key, value in node.kwargs.items() if key not in ("input", "inplace")}
    if any(isinstance(value, fx.Node) for value in (*rest, *named.values())):
        return None
    target: Any = getattr(Tensor, node.target) if isinstance(node.target, str) else node.target
    return identify(lambda x: target(x, *rest, **named))


def _multiplied(graph: fx.Graph) -> set[fx.Node]:
    """The nodes whose result is multiplied by what they were made from, place by place."""
    roots: dict[fx.Node, fx.Node] = {}
    through: dict[fx.Node, set[fx.Node]] = {}
    result: set[fx.Node] = set()
    for node in graph.nodes:
        inputs = node.all_input_nodes
        origins = {roots.get(each, each) for each in inputs}
        if (
            node.op in ("call_function", "call_method")
            and _name(node) in ELEMENTWISE | _OPERATORS
            and len(origins) == 1
        ):
            if _name(node) in _PRODUCTS and len(inputs) == 2:
                result |= through.get(inputs[0], set()) ^ through.get(inputs[1], set())
            roots[node] = origins.pop()
            through[node] = {node}.union(*(through.get(each, set()) for each in inputs))
    return result


_OPERATORS = frozenset({"truediv", "add", "sub", "mul", "neg", "pow", "gt", "lt", "ge", "le"})
