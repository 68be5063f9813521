"""Which expression around a call computes one activation: `h * F.relu6(h + 3) / 6` is hardswish, and not a ReLU6.

An expression is evaluated on numbers by an interpreter of its own: arithmetic, comparisons, element-wise functions of
torch, and helpers that may be called without harm. Whatever else stands in it counts as an input.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, FrameType, FunctionType, MethodDescriptorType
from typing import Any

import torch
from torch import Tensor, fx, nn

from .identify import FUNCTIONS, GATES, Identity, harmless, identify, identify_module, stand_in

MISSING = object()

_ELEMENTWISE = """
    abs add addcdiv addcmul asinh atan bfloat16 clamp clamp_max clamp_min clip clone contiguous cos cosh detach div
    divide double erf erfc exp exp2 expm1 float fmax fmin full_like ge gt half heaviside le lerp log log1p logaddexp lt
    masked_fill max maximum min minimum mul multiply neg negative ones ones_like positive pow reciprocal rsqrt sign sin
    sinh sqrt square sub subtract tensor to true_divide type_as where zeros zeros_like
    __add__ __ge__ __gt__ __le__ __lt__ __mul__ __neg__ __pow__ __radd__ __rmul__ __rpow__ __rsub__ __rtruediv__ __sub__
    __truediv__
"""
# Functions of torch whose result has at each place a number made from the numbers at that place.
ELEMENTWISE = frozenset(_ELEMENTWISE.split()) | FUNCTIONS

_BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_UNARY: Mapping[type, Callable[[Any], Any]] = {ast.USub: operator.neg, ast.UAdd: operator.pos}


class Scope:
    """What the names in a function stand for, looked up without running anything."""

    def __init__(self, *spaces: Mapping[str, Any], hidden: frozenset[str] = frozenset()) -> None:
        self.spaces, self.hidden = (*spaces, vars(builtins)), hidden

    @classmethod
    def of_frame(cls, frame: FrameType) -> Scope:
        """The names of a function that runs."""
        return cls(frame.f_locals, frame.f_globals)

    @classmethod
    def of_method(cls, function: FunctionType, owner: nn.Module) -> Scope:
        """The names of a method that does not run: its local variables are unknown but for the first argument."""
        code = function.__code__
        local = frozenset((*code.co_varnames, *code.co_cellvars))
        return cls({code.co_varnames[0]: owner}, function.__globals__, hidden=local - {code.co_varnames[0]})

    def value(self, node: ast.expr) -> Any:
        """What a name, or an attribute of one, stands for; MISSING where that cannot be told."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            spaces = self.spaces if node.id not in self.hidden else ()
            return next((names[node.id] for names in spaces if node.id in names), MISSING)
        if isinstance(node, ast.Attribute):
            return _attribute(self.value(node.value), node.attr)
        return MISSING


def _attribute(base: Any, name: str) -> Any:
    if base is MISSING or isinstance(base, Tensor):
        return MISSING
    if isinstance(base, nn.Module):
        for held in (base._modules, base._parameters, base._buffers):
            if name in held:
                return held[name]
    value = inspect.getattr_static(base, name, MISSING)
    if isinstance(value, staticmethod):
        return value.__func__
    return MISSING if inspect.isdatadescriptor(value) else value


# -- one expression ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """An expression that computes one function of one input."""

    node: ast.expr
    tensor: ast.expr
    identity: Identity


def whole_of(
    node: ast.expr, tensor: ast.expr | None, identity: Identity | None, parents: Mapping[ast.AST, ast.AST], scope: Scope
) -> Part | None:
    """The expression around a call that has to be replaced with it, as it computes one function together with it.

    Args:
        node: the call, or another expression that bends.
        tensor: its input where that is known.
        identity: what it computes of its input, None where that is no activation by itself.
        parents: for every node the one around it.

    Returns the call itself where it stands alone, and None where nothing there is an activation. An expression that
    bends, multiplies the call by its own input, and is no function of softknee comes back under its text, unknown.
    """
    alone = Part(node, tensor, identity) if tensor is not None and identity is not None else None
    if alone is not None and not isinstance(parents.get(node), _AROUND):
        return alone
    reader = _Reader(scope)
    levels = list(_levels(node, parents, reader))
    known = alone if alone is not None and alone.identity.known else None
    for level in levels:
        for variable in _variables(level, tensor, reader):
            if alone is not None and level is node and variable is tensor:
                continue
            computed = reader.identity(level, variable)
            # A conversion of the result, or a further ReLU of a ReLU6, changes nothing: the smaller part it is.
            if computed is not None and computed.known and not (known and known.identity == computed):
                known = Part(level, variable, computed)
                break
    if known is None:
        return alone
    outer = levels[-1] if levels else node
    if _multiplied(known.node, outer, parents, reader):
        if alone is None:  # a comparison or an erf somewhere in a longer formula
            return None
        variable = next(_variables(outer, None, reader), known.tensor)
        return Part(outer, variable, Identity(ast.unparse(outer), known=False))
    return known


# What may stand around a part of an expression.
_AROUND = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.keyword, ast.Attribute)


def _levels(node: ast.expr, parents: Mapping[ast.AST, ast.AST], reader: _Reader) -> Iterator[ast.expr]:
    """The call and the expressions around it, from the inside out, while they have one input."""
    current: ast.AST | None = node
    while isinstance(current, ast.expr) and len({key for key, _ in reader.inputs(current)}) == 1:
        if reader.inputs(current)[0][1] is current:
            return
        yield current
        current = parents.get(current)
        while isinstance(current, ast.keyword | ast.Attribute):  # an argument, or the object of a method
            current = parents.get(current)


def _variables(level: ast.expr, tensor: ast.expr | None, reader: _Reader) -> Iterator[ast.expr]:
    """What may be the input of an expression: that of the call inside, where nothing else comes in, or the variable."""
    inside = tensor is not None and any(part is tensor for part in ast.walk(level))
    if tensor is not None and inside and all(each is tensor for _, each in reader.inputs(level, opaque=tensor)):
        yield tensor
    if inputs := reader.inputs(level):
        yield inputs[0][1]


def _multiplied(inner: ast.expr, outer: ast.expr, parents: Mapping[ast.AST, ast.AST], reader: _Reader) -> bool:
    """Whether an expression is combined with its own input, other than by a sum, on the way out."""
    own = {key for key, _ in reader.inputs(inner)}
    current: ast.AST = inner
    while current is not outer:
        around = parents[current]
        summed = isinstance(around, ast.BinOp) and isinstance(around.op, ast.Add | ast.Sub)
        summed = summed or (isinstance(around, ast.Call) and getattr(around.func, "attr", "") in _CONVERSIONS)
        if isinstance(around, ast.expr) and not isinstance(around, ast.Attribute) and not summed:
            others = [part for part in _operands(around) if not any(each is inner for each in ast.walk(part))]
            if any(own & {key for key, _ in reader.inputs(part)} for part in others):
                return True
        current = around
    return False


_CONVERSIONS = ("to", "type_as")


def _operands(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Call):
        base = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return [*base, *node.args, *(keyword.value for keyword in node.keywords)]
    return []


class _Reader:
    """Reads expressions in a scope: what goes in, and what comes out."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def inputs(self, node: ast.expr, opaque: ast.expr | None = None) -> list[tuple[Any, ast.expr]]:
        """The inputs of an expression, each with what tells it from others: a name by its text, a call by its place."""
        if node is opaque:
            return [(id(node), node)]
        if isinstance(node, ast.Constant | ast.Name | ast.Attribute):
            value = self.scope.value(node)
            if isinstance(node, ast.Attribute) and value is MISSING and node.attr in ("dtype", "device"):
                return []
            return [(ast.unparse(node), node)] if value is MISSING or _varies(value) else []
        if self._operator(node) is not None or (isinstance(node, ast.Call) and self.callee(node) is not None):
            parts = _operands(node)
            if isinstance(node, ast.Call) and not self._on_tensor(node):
                parts = [*node.args, *(keyword.value for keyword in node.keywords)]
            return [each for part in parts for each in self.inputs(part, opaque)]
        plain = all(isinstance(part, _PLAIN_NODES) for part in ast.walk(node))
        return [(ast.unparse(node) if plain else id(node), node)]

    def identity(self, node: ast.expr, variable: ast.expr) -> Identity | None:
        """What an expression computes of its input."""
        key = ast.unparse(variable) if self._repeats(variable) else None
        return identify(lambda x: self._evaluate(node, variable, key, x))

    def _repeats(self, variable: ast.expr) -> bool:
        return all(isinstance(part, _PLAIN_NODES) for part in ast.walk(variable))

    @staticmethod
    def _operator(node: ast.expr) -> Callable[..., Any] | None:
        if isinstance(node, ast.BinOp):
            return _BINARY.get(type(node.op))
        if isinstance(node, ast.UnaryOp):
            return _UNARY.get(type(node.op))
        return _BINARY.get(type(node.ops[0])) if isinstance(node, ast.Compare) and len(node.ops) == 1 else None

    def _on_tensor(self, node: ast.Call) -> bool:
        """Whether a call is a method of a tensor: of something that is not known, or is a tensor."""
        if not isinstance(node.func, ast.Attribute) or self.scope.value(node.func) is not MISSING:
            return False
        base = self.scope.value(node.func.value)
        return (base is MISSING or isinstance(base, Tensor)) and not isinstance(node.func.value, ast.Constant)

    def callee(self, node: ast.Call) -> Callable[..., Any] | None:
        """The function that a call applies; None where it may do more than compute numbers from numbers."""
        if any(isinstance(part, ast.Starred) for part in node.args) or any(k.arg is None for k in node.keywords):
            return None
        if self._on_tensor(node):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            return getattr(Tensor, name, None) if name in ELEMENTWISE else None
        if isinstance(node.func, ast.Call):  # nn.ReLU()(x)
            return self._made(node.func)
        return _pure(self.scope.value(node.func))

    def _made(self, node: ast.Call) -> Callable[..., Any] | None:
        kind = self.scope.value(node.func)
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        if not (isinstance(kind, type) and kind.__module__ == "torch.nn.modules.activation"):
            return None
        if not all(isinstance(part, ast.Constant) for part in arguments):
            return None
        args = [self.scope.value(part) for part in node.args]
        return kind(*args, **{str(k.arg): self.scope.value(k.value) for k in node.keywords if k.arg != "inplace"})

    def _evaluate(self, node: ast.expr, variable: ast.expr, key: str | None, x: Tensor) -> Any:
        if node is variable or (key is not None and ast.unparse(node) == key):
            return x.clone()
        if isinstance(node, ast.Attribute) and node.attr in ("dtype", "device") and self.scope.value(node) is MISSING:
            return getattr(x, node.attr)
        if isinstance(node, ast.Constant | ast.Name | ast.Attribute):
            value = self.scope.value(node)
            if value is MISSING or _varies(value):
                raise ValueError("an input that is not the one")
            return value.detach().cpu().double() if isinstance(value, Tensor) else value
        part = functools.partial(self._evaluate, variable=variable, key=key, x=x)
        if (apply := self._operator(node)) is not None:
            return apply(*(part(each) for each in _operands(node)))
        function = self.callee(node) if isinstance(node, ast.Call) else None
        if function is None or not isinstance(node, ast.Call):
            raise ValueError("no arithmetic")
        parts = _operands(node)[: len(_operands(node)) - len(node.keywords)]
        args = [part(each) for each in (parts if self._on_tensor(node) else node.args)]
        return function(*args, **{str(k.arg): part(k.value) for k in node.keywords})


_PLAIN_NODES = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.Slice, ast.Tuple, ast.UnaryOp)
_PLAIN_NODES = (*_PLAIN_NODES, ast.Load, ast.USub)


def _varies(value: Any) -> bool:
    """Whether a value is an input and no constant of the formula: a tensor of several numbers, or one that learns."""
    if isinstance(value, Tensor):
        return isinstance(value, nn.Parameter) or value.numel() != 1 or value.device.type == "meta"
    return not (value is None or isinstance(value, bool | int | float | str | torch.dtype | torch.device))


_TORCH = (BuiltinFunctionType, MethodDescriptorType, FunctionType)


def _pure(value: Any) -> Callable[..., Any] | None:
    """A function that only computes numbers from numbers: of torch, of math, or a helper that may be called."""
    if isinstance(value, functools.partial):
        return value if _pure(value.func) is not None else None
    if isinstance(value, nn.Module):
        # A copy of a module that is an activation, to be evaluated in its place.
        twin = stand_in(value) if identify_module(value) is not None else None
        return twin.forward if twin is not None else None
    if isinstance(value, torch.jit.ScriptFunction):
        return value
    if not isinstance(value, _TORCH):
        return None
    home, name = str(getattr(value, "__module__", None) or ""), getattr(value, "__name__", "")
    if getattr(math, name, None) is value or value in (abs, min, max, float):
        return value
    from_torch = home.startswith("torch") or home in ("", "None") or isinstance(value, MethodDescriptorType)
    if from_torch:
        return value if name in ELEMENTWISE else None
    return value if isinstance(value, FunctionType) and harmless(value) and _short(value) else None


def _short(function: FunctionType) -> bool:
    """A helper that spells an activation out is a few lines long; others are not run for a look."""
    return len(function.__code__.co_code) < 2_000 and not function.__code__.co_flags & inspect.CO_GENERATOR


# -- the activations that a graph of torch.fx calls as functions, and how to send a node elsewhere --------


_CLAMPS = frozenset({"clamp", "clamp_min", "clip"})
_PRODUCTS = frozenset({"mul", "multiply", "truediv", "div"})
_MULTIPLIED = (
    "its result is multiplied by its own input in another node, so that both compute one function; trace the model "
    "with that function as a module of its own"
)


def activation_nodes(module: fx.GraphModule) -> Iterator[tuple[fx.Node, Identity, str]]:
    """The nodes that call an activation, what each computes, and why it cannot be changed, if it cannot."""
    multiplied = _multiplied_nodes(module.graph)
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
    tensor = node.args[0] if node.args else node.kwargs.get("input")
    node.op, node.target, node.args, node.kwargs = "call_module", attribute, (tensor,), {}
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


def _identity(node: fx.Node) -> Identity | None:
    rest = list(node.args[1:])
    named = {key: value for key, value in node.kwargs.items() if key not in ("input", "inplace")}
    if any(isinstance(value, fx.Node) for value in (*rest, *named.values())):
        return None
    target: Any = getattr(Tensor, node.target) if isinstance(node.target, str) else node.target
    return identify(lambda x: target(x, *rest, **named))


def _multiplied_nodes(graph: fx.Graph) -> set[fx.Node]:
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
