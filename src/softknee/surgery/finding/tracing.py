"""One run of a model on an example: which activations are called, from where, in what order, on what."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from ...nn.gated import GatedPointwise
from ..modules import run_example, tensors_in
from .expressions import ELEMENTWISE, MISSING, Part, Scope, whole_of
from .identify import FUNCTIONS, GATES, Identity, identify
from .rewriting import (
    Call,
    CannotRewrite,
    Method,
    Position,
    definition_of,
    describe,
    edits_of,
    method_named,
    method_of,
    node_at,
    parents_of,
    tensor_of,
)

# Files of torch whose frames only carry a call through.
_CARRIERS = (
    "torch/nn/functional.py",
    "torch/functional.py",
    "torch/overrides.py",
    "torch/_tensor.py",
    "torch/nn/modules/module.py",
    "torch/utils/_contextlib.py",
    "torch/_jit_internal.py",
    "torch/utils/_device.py",
    "contextlib.py",
    "surgery/finding/tracing.py",
)


@dataclass(frozen=True)
class Origin:
    """Where a call comes from.

    owner:    the module whose method makes it.
    key:      what tells it from other calls.
    identity: what is computed there, by the call or by the expression around it; None where that is no activation.
    call:     the call in the owner's source, None where there is trouble.
    trouble:  why it cannot be sent elsewhere, as a half sentence.
    whole:    whether the expression is more than the call that was made.
    trigger:  what tells the call that was made from others, where the expression has several.
    node:     of a graph, the name of its node.
    """

    owner: nn.Module
    key: tuple[Any, ...]
    identity: Identity | None = None
    call: Call | None = None
    trouble: str = ""
    whole: bool = False
    trigger: Any = None
    node: str = ""


def origin(
    frame: FrameType | None, *, inside: set[int], function: Any = None, identity: Identity | None = None
) -> Origin | None:
    """The call that is being made above this frame, None where no module of `inside` (by identity) makes it.

    Args:
        function: what torch was asked to compute; without it a module is being called.
        identity: what that computes, None where it is an activation only together with what stands around it.
    """
    carried = False
    while frame is not None and _carries(frame):
        carried, frame = carried or not frame.f_code.co_filename.endswith("tracing.py"), frame.f_back
    if frame is None:
        return None
    owners = [(each, me) for each in _stack(frame) if id(me := _first_argument(each)) in inside]
    if not owners:
        return None
    for index, (home, me) in enumerate(owners):
        if isinstance(me, fx.GraphModule):
            return _in_graph(home, me, identity)
        method = method_of(type(me), home.f_code)
        if method is None:
            continue
        if any(other.f_code not in _nested(home.f_code) for other, _ in owners[:index]):
            break
        return _in_method(frame, home, me, method, function=function, identity=identity, carried=carried)
    return _outside(frame, *owners[0], identity)


def _in_method(
    frame: FrameType, home: FrameType, owner: nn.Module, method: Method, *, function: Any, identity: Any, carried: bool
) -> Origin | None:
    """A call that a method makes itself, or through a helper function."""
    at = next(each for each in _stack(frame) if each is home or each.f_code in _nested(home.f_code))
    key = (at.f_code, _positions(at))  # not f_lasti: Python may use two instructions for one call
    trigger = (frame.f_code, _positions(frame))
    try:
        # Positions are those of the class as written; an edited method has the same lines.
        written = _written(owner, method.name)
        node = node_at(written, _position(at, written.__code__.co_firstlineno))
        scope, parents = Scope.of_frame(at), parents_of(definition_of(written))
        if at is not frame:
            part = whole_of(node, None, None, parents, scope)
            if part is None or not part.identity.known:
                return _outside(frame, home, owner, identity)
            call = _described(written, method, part)
            return Origin(owner, _key(at, part), part.identity, call, whole=True, trigger=trigger)
        on_tensor = isinstance(node, ast.Call) and _on_tensor(node, scope, function, carried)
        tensor = tensor_of(node, on_tensor=on_tensor) if isinstance(node, ast.Call) else None
        part = whole_of(node, tensor, identity, parents, scope)
        if part is not None and (part.node is not node or identity is None):
            call = _described(written, method, part)
            return Origin(owner, _key(at, part), part.identity, call, whole=True, trigger=trigger)
        if identity is None:
            return None
        return Origin(owner, key, identity, describe(written, node, method=method.name, on_tensor=on_tensor))
    except CannotRewrite as reason:
        return Origin(owner, key, identity, trouble=str(reason)) if identity is not None else None


def _written(owner: nn.Module, name: str) -> FunctionType:
    method = method_named(edits_of(type(owner))[0], name)
    assert method is not None
    return method.function


def _key(frame: FrameType, part: Part) -> tuple[Any, ...]:
    node = part.node
    return frame.f_code, (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)


def _described(written: FunctionType, method: Method, part: Part) -> Call:
    return describe(written, part.node, method=method.name, tensor=part.tensor)


def _in_graph(frame: FrameType, owner: fx.GraphModule, identity: Identity | None) -> Origin:
    """A call in the code that torch.fx wrote for a graph, where each node is assigned to its name."""
    first = type(owner).forward.__code__.co_firstlineno
    name = ""
    try:
        node: ast.AST | None = node_at(type(owner).forward, _position(frame, first))
        parents = parents_of(definition_of(type(owner).forward))
        while node is not None and not isinstance(node, ast.Assign | ast.AnnAssign):
            node = parents.get(node)
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        name = target.id if isinstance(target, ast.Name) else ""
    except CannotRewrite:
        pass
    return Origin(owner, (frame.f_code, _positions(frame)), identity, node=name)


def _outside(frame: FrameType, home: FrameType, owner: nn.Module, identity: Identity | None) -> Origin | None:
    """A call in a function that is no method of the owner."""
    if identity is None:
        return None
    return Origin(owner, (frame.f_code, _positions(frame)), identity, trouble=_elsewhere(frame, home, owner))


def _on_tensor(node: ast.Call, scope: Scope, function: Any, carried: bool) -> bool:
    """Whether the function is called as a method of its tensor; refused where something else calls it."""
    name = getattr(function, "__name__", "")
    if function is None:
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr == name:
        base = scope.value(node.func.value)
        as_method = type(function).__name__ in ("method_descriptor", "wrapper_descriptor") and not carried
        if isinstance(base, Tensor) or (base is MISSING and as_method):
            return True
    called = scope.value(node.func)
    while isinstance(called, functools.partial):
        called = called.func
    if called is not MISSING and getattr(called, "__name__", "") not in (name, f"{name}_", name.removesuffix("_")):
        raise CannotRewrite(f"it is handed over in {ast.unparse(node)!r}, which calls it")
    return False


def _positions(frame: FrameType) -> tuple[int | None, ...]:
    return next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))


def _position(frame: FrameType, first: int) -> Position:
    """The call that a frame is in the middle of, in lines counted from `first`."""
    line, end_line, column, end = _positions(frame)
    if line is None or end_line is None or column is None or end is None:
        raise CannotRewrite("Python was started without column numbers (-X no_debug_ranges)")
    return line - first, end_line - first, column, end


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _first_argument(frame: FrameType) -> Any:
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None


@functools.lru_cache(maxsize=1024)
def _nested(code: CodeType) -> frozenset[CodeType]:
    """The functions written inside a function: comprehensions, lambdas, inner functions."""
    direct = [each for each in code.co_consts if isinstance(each, CodeType)]
    return frozenset(direct).union(*(_nested(each) for each in direct))


def _carries(frame: FrameType) -> bool:
    return frame.f_code.co_filename.replace("\\", "/").endswith(_CARRIERS)


def _elsewhere(frame: FrameType, home: FrameType, owner: nn.Module) -> str:
    """Why a call that is not in a method of the owner cannot be replaced."""
    name, title = frame.f_code.co_name, type(owner).__name__
    if home is not frame:
        file = frame.f_code.co_filename.replace("\\", "/").rpartition("/")[2]
        line = _positions(frame)[0] or frame.f_lineno
        return f"it is called in the function {name!r} ({file}:{line}), outside every module"
    if hasattr(inspect.getattr_static(type(owner), name, None), "__wrapped__"):
        return f"it is called in {name!r} of {title}, which a decorator hides"
    return f"it is called in a function {name!r} that is no method of {title}"


# -- where the channels of a tensor are -------------------------------------------------------------------
#
# After a convolution they lie along dimension 1, after a linear layer along the last. The mark travels on the tensor
# itself through norms, additions, views and permutations; where it can no longer be told, it is dropped.


_MARK = "_softknee_channels"
_LASTS = "linear bilinear layer_norm rms_norm lstm gru rnn_tanh rnn_relu multi_head_attention_forward"
_LAST = frozenset(_LASTS.split())
# Products of matrices are linear layers where one of the two is a weight; of others the channels cannot be told.
_PRODUCTS = frozenset({"addmm", "matmul", "mm", "__matmul__"})
_MIXING = _PRODUCTS | {"bmm", "baddbmm", "einsum", "tensordot", "scaled_dot_product_attention"}
_CONVOLUTIONS = {f"conv{n}d": n for n in (1, 2, 3)} | {f"conv_transpose{n}d": n for n in (1, 2, 3)}
_SECOND = frozenset({"batch_norm", "group_norm", "instance_norm"})
# What moves, picks or reduces numbers by their place alone: done to the channels' numbers, it shows where they go.
_LAYOUTS = """
    T mT H mH adjoint amax amin chunk contiguous expand expand_as flatten flip getitem mean movedim moveaxis narrow
    permute repeat reshape reshape_as roll select split split_with_sizes squeeze sum swapaxes swapdims t tensor_split
    tile transpose unbind unflatten unfold unsqueeze view view_as
"""
_LAYOUT = frozenset(_LAYOUTS.split())


@dataclass(frozen=True)
class Channels:
    """The dimension that the channels lie along (-1: the last) and how many there are."""

    dim: int
    count: int


def channels_of(tensor: Tensor) -> Channels | None:
    """What is known of a tensor's channels, if it still fits."""
    mark = getattr(tensor, _MARK, None)
    return mark if mark is not None and _fits(mark, tensor) else None


def follow(func: Any, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
    """After a function of torch was called: mark its result."""
    name = func if isinstance(func, str) else _name(func)
    results = [result] if isinstance(result, Tensor) else list(result) if isinstance(result, tuple | list) else []
    inputs = [*args, *kwargs.values()]
    if name in _LAYOUT:
        marks = _moved(func, args, kwargs, results)
    else:
        marks = [
            _made(name, inputs, tensor) or (_kept(inputs, tensor) if name not in _MIXING else None)
            for tensor in results
        ]
    for tensor, mark in zip(results, marks, strict=False):
        if not isinstance(tensor, Tensor) or isinstance(tensor, nn.Parameter):
            continue
        if mark is not None and _fits(mark, tensor):
            setattr(tensor, _MARK, mark)
        elif hasattr(tensor, _MARK):
            delattr(tensor, _MARK)


def _name(func: Any) -> str:
    """The name of a function of torch; `x.T` and `x[0]` are functions, too."""
    name = getattr(func, "__name__", "")
    if name == "__get__":
        return getattr(getattr(func, "__self__", None), "__name__", "")
    return "getitem" if name == "__getitem__" else name


def _made(name: str, inputs: list[Any], tensor: Any) -> Channels | None:
    """The mark of a tensor that comes out of a layer."""
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point() or not tensor.dim():
        return None
    if name in _CONVOLUTIONS and tensor.dim() > _CONVOLUTIONS[name]:
        dim = tensor.dim() - _CONVOLUTIONS[name] - 1
        return Channels(dim, tensor.shape[dim])
    if name in _LAST or (name in _PRODUCTS and any(_is_weight(value) for value in inputs[1:])):
        return Channels(-1, tensor.shape[-1])
    if name in _SECOND and tensor.dim() > 1:
        return Channels(1, tensor.shape[1])
    return None


def _is_weight(value: Any) -> bool:
    return isinstance(value, nn.Parameter) or (isinstance(value, Tensor) and isinstance(value._base, nn.Parameter))


def _kept(inputs: list[Any], tensor: Any) -> Channels | None:
    """The mark of the first argument that has one, where the result has as many dimensions."""
    for value in inputs:
        for source in value if isinstance(value, tuple | list) else [value]:
            mark = channels_of(source) if isinstance(source, Tensor) else None
            if mark is not None:
                same = isinstance(tensor, Tensor) and tensor.dim() == source.dim() and _fits(mark, tensor)
                return mark if same else None
    return None


def _moved(func: Any, args: Any, kwargs: Mapping[str, Any], results: list[Any]) -> list[Channels | None]:
    """Do the same to the channels' numbers, and see along which dimension they lie now."""
    source = args[0] if args else kwargs.get("input")
    mark = channels_of(source) if isinstance(source, Tensor) else None
    if mark is None or not isinstance(source, Tensor):
        return [None] * len(results)
    shape = [1] * source.dim()
    shape[mark.dim] = mark.count
    numbers = torch.arange(1.0, mark.count + 1, dtype=torch.float64, device="cpu")
    numbers = numbers.reshape(shape).expand(source.shape).contiguous()
    try:
        others = [value.cpu() if isinstance(value, Tensor) else value for value in args[1:]]
        # The input by position, the rest as it was given.
        named = {key: value for key, value in kwargs.items() if key != "input" and value is not source}
        moved = func(numbers, *others, **named)
    except (RuntimeError, TypeError, IndexError, ValueError):
        return [None] * len(results)
    each = list(moved) if isinstance(moved, tuple | list) else [moved]
    return [_along(value) if isinstance(value, Tensor) else None for value in each[: len(results)]]


def _along(numbers: Tensor) -> Channels | None:
    """The one dimension along which the channels' numbers change, each time to another channel."""
    changing = [dim for dim, size in enumerate(numbers.shape) if size > 1 and bool((numbers.diff(dim=dim) != 0).any())]
    if len(changing) != 1:
        return None
    dim, count = changing[0], numbers.shape[changing[0]]
    if len(numbers.movedim(dim, 0).reshape(count, -1)[:, 0].unique()) != count:
        return None
    return Channels(-1 if dim == numbers.dim() - 1 else dim, count)


def _fits(mark: Channels, tensor: Tensor) -> bool:
    return -tensor.dim() <= mark.dim < tensor.dim() and tensor.shape[mark.dim] == mark.count


# -- what a tensor was made from: which input, through which activations, or from weights alone -------------
#
# Marks travel on the tensors through element-wise functions. So it is seen where the result of an activation meets its
# own input again (`gate = torch.sigmoid(h)`, then `h * gate`), where a clamp only keeps a square root defined, and
# where a softplus makes a weight out of a parameter.


_ROOT, _THROUGH, _WEIGHT = "_softknee_root", "_softknee_through", "_softknee_weight"

_PRODUCTS_AND_QUOTIENTS = frozenset(
    ["mul", "multiply", "imul", "rmul", "div", "divide", "truediv", "itruediv", "rtruediv"]
)
_FOLLOWED = (
    frozenset(name.strip("_") for name in ELEMENTWISE)
    | _PRODUCTS_AND_QUOTIENTS
    | {"activation", "iadd", "isub", "ipow"}
)
_DEFINED_FROM_0 = frozenset({"log", "rsqrt", "sqrt"})
_POWERS = frozenset({"pow", "ipow"})

_MULTIPLIED = (
    "its result is multiplied by its own input in another statement, so that both compute one function; write that "
    "function as one expression, or as a module of its own"
)


def made_of_weights(tensor: Any) -> bool:
    """Whether a tensor is a parameter, or made from parameters alone."""
    return isinstance(tensor, nn.Parameter) or getattr(tensor, _WEIGHT, False) is True


def mark_origins(name: str, inputs: Sequence[Any], result: Any, seen: Any) -> None:
    """After a function was called: mark its result, and note what its inputs are to one another.

    Args:
        seen: where the function is an activation, what is known of the place; it has `trouble`, `role` and `clamps`.
    """
    core = name.strip("_")
    tensors, results = tensors_in(list(inputs)), tensors_in(result)
    if not tensors or not results:
        return
    if all(made_of_weights(each) for each in tensors):
        for each in results:
            _mark(each, _WEIGHT, True)
    if core in _DEFINED_FROM_0 or (core in _POWERS and isinstance(inputs[-1], float) and inputs[-1] % 1):
        for place in _passed_through(tensors[0]):
            if place.clamps:
                place.role = "it keeps a root or a logarithm defined"
    if core not in _FOLLOWED or len(results) != 1:
        return
    roots = {id(root): root for root in map(_root, tensors)}
    if core in _PRODUCTS_AND_QUOTIENTS and len(tensors) == 2 and len(roots) == 1:
        for place in _passed_through(tensors[0]) ^ _passed_through(tensors[1]):
            place.trouble = place.trouble or _MULTIPLIED
    if len(roots) == 1:
        passed = frozenset().union(*map(_passed_through, tensors))
        _mark(results[0], _ROOT, next(iter(roots.values())))
        _mark(results[0], _THROUGH, passed | {seen} if seen is not None and not seen.whole else passed)
    elif getattr(results[0], _ROOT, None) is not None:  # overwritten with something else
        _mark(results[0], _ROOT, object())
        _mark(results[0], _THROUGH, frozenset())


def _root(tensor: Tensor) -> object:
    """What stands for the tensor that this one was made from, place by place."""
    if getattr(tensor, _ROOT, None) is None:
        _mark(tensor, _ROOT, object())
    return getattr(tensor, _ROOT, tensor)


def _passed_through(tensor: Tensor) -> frozenset[Any]:
    return getattr(tensor, _THROUGH, frozenset())


def _mark(tensor: Tensor, name: str, value: Any) -> None:
    if not isinstance(tensor, nn.Parameter):  # those stay as they are
        setattr(tensor, name, value)


# -- one run of a model on an example ---------------------------------------------------------------------

_OVERWRITTEN = "it overwrites its input, and the model goes on to use what was overwritten; use its result instead"
_SEVERAL = "one call computes several functions in turn"
_CLAMPS = frozenset({"clamp", "clamp_min", "clip"})
# These are activations only where they compute one, alone or with what stands around them: clamp(min=0) is a ReLU, and
# so is h * (h > 0).
_PERHAPS = _CLAMPS | frozenset(
    ["abs", "erf", "exp", "ge", "gt", "le", "logaddexp", "lt", "max", "maximum", "min", "minimum", "sqrt", "where"]
)


@dataclass(frozen=True)
class Pass:
    """One call: its rank among all of the run, and what comes in."""

    order: int
    channels: Channels | None
    shape: tuple[int, ...]


@dataclass(eq=False)
class Seen:
    """What an example showed of one place.

    passes:  the calls, in order.
    call:    the call in its owner's source, None where it cannot be told.
    trouble: why it cannot be changed, as a half sentence.
    role:    what it does there other than to activate, as a half sentence: it is changed only by who names it.
    whole:   whether the place is an expression, of which what was called is a part.
    clamps:  whether it is a clamp.
    """

    passes: list[Pass]
    call: Call | None = None
    trouble: str = ""
    role: str = ""
    whole: bool = False
    clamps: bool = False

    @property
    def order(self) -> int:
        return self.passes[0].order

    @property
    def times(self) -> int:
        return len(self.passes)

    @property
    def channels(self) -> Channels | None:
        """Of what comes in, None where they cannot be told or are not the same every time."""
        return self._always({each.channels for each in self.passes})

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Of what comes in, None where it is not the same every time."""
        return self._always({each.shape for each in self.passes})

    @staticmethod
    def _always(values: set[Any]) -> Any:
        return values.pop() if len(values) == 1 else None


@dataclass
class FunctionCall:
    """A function that was called inside a module's method.

    node: of a graph, the name of its node.
    """

    owner: nn.Module
    name: str
    identity: Identity
    seen: Seen
    node: str = ""


@dataclass
class Trace:
    """All that one run showed."""

    uses: dict[tuple[Any, int], list[Seen]] = field(default_factory=dict)
    """Of modules and of functions that are attributes: by what is called (the identity of a module, or that of an owner
    and a name) and the identity of the module that calls it, one for each line."""
    functions: list[FunctionCall] = field(default_factory=list)
    inside: set[Any] = field(default_factory=set)
    """What is called as a part of a larger expression, such as the sigmoid of `h * self.gate(h)`."""
    ran: set[int] = field(default_factory=set)
    """The modules that were called, by identity."""
    output: Any = None
    places: dict[Any, Seen] = field(default_factory=dict)
    """By what tells one call from the others."""
    triggers: dict[Any, Any] = field(default_factory=dict)
    passes: int = 0

    def positions(self) -> dict[int, list[tuple[int | None, ...]]]:
        """Where functions were called (first and last line, first and last column), by the identity of the module whose
        method it stands in."""
        positions: dict[int, list[tuple[int | None, ...]]] = {}
        for key in self.places:
            if key[0] != "use":
                positions.setdefault(key[0], []).append(key[1][1])
        return positions

    def note(self, key: Any, tensor: Tensor, source: Origin | None) -> tuple[Seen, bool]:
        """What is known of a place that is called now, and whether it is new."""
        new = key not in self.places
        if new:
            call, trouble = (source.call, source.trouble) if source is not None else (None, "")
            self.places[key] = Seen([], call, trouble, whole=source is not None and source.whole)
            self.triggers[key] = source.trigger if source is not None else None
        seen = self.places[key]
        # Of an expression with two functions of torch in it, one is counted.
        if source is None or self.triggers[key] == source.trigger:
            seen.passes.append(Pass(self.passes, channels_of(tensor), tuple(tensor.shape)))
            self.passes += 1
        if made_of_weights(tensor):
            seen.role = "it makes a weight out of a parameter"
        return seen, new


def trace(
    model: nn.Module,
    example: Any,
    *,
    sites: Mapping[int, Identity],
    attributes: Iterable[tuple[nn.Module, str]] = (),
    parts: Iterable[int] = (),
) -> Trace:
    """Run the example and see every activation.

    Args:
        sites: what each module that is an activation computes, by its identity.
        attributes: the functions that are activations, each an attribute of its owner.
        parts: modules, by identity, in which nothing is an activation.
    """
    watch = _Watch(inside={id(module) for module in model.modules()}, sites=sites, parts=set(parts))
    with contextlib.ExitStack() as at_the_end:
        # By identity: what the parts of an activation do is its own business.
        for module in model.modules():
            ran = module.register_forward_pre_hook(lambda module, _: watch.run.ran.add(id(module)))
            at_the_end.callback(ran.remove)
            if id(module) in sites:
                before = module.register_forward_pre_hook(partial(_enter, watch), with_kwargs=True)
                after = module.register_forward_hook(partial(_leave, watch), with_kwargs=True)
                at_the_end.callback(before.remove)
                at_the_end.callback(after.remove)
        for owner, name in attributes:
            function = vars(owner)[name]
            vars(owner)[name] = partial(_through, watch, (id(owner), name), identify(function), function)
            at_the_end.callback(vars(owner).__setitem__, name, function)
        watch.run.output = run_example(model, example, inside=watch)
    for tensor in tensors_in(watch.run.output):
        watch.overwritten_is_used(tensor)
    return watch.run


class _Watch(TorchFunctionMode):
    """Sees every function of torch that is called, follows channels, and notes the activations."""

    def __init__(self, *, inside: set[int], sites: Mapping[int, Identity], parts: set[int]) -> None:
        super().__init__()
        self.run, self.inside, self.sites, self.apart = Trace(), inside, sites, set(sites) | parts
        self.deep = 0  # inside an activation, whose parts are its own business
        self.current: dict[int, Seen] = {}
        # Tensors that an activation has overwritten, each with the place where that was.
        self.overwritten: Any = WeakIdKeyDictionary()
        self.identities: dict[Any, Identity | None] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        tensor = args[0] if args else kwargs.get("input")
        seen = None
        if not self.deep and name.strip("_") in FUNCTIONS | _PERHAPS and isinstance(tensor, Tensor):
            seen = self._note(func, name.strip("_"), args, kwargs)
        result = func(*args, **kwargs)
        follow(func, args, kwargs, result)
        mark_origins(name, [*args, *kwargs.values()], result, seen)
        if tensors_in(result):
            for each in tensors_in([*args, *kwargs.values()]):
                self.overwritten_is_used(each)
        return self.set_apart(tensor, result, seen) if seen is not None else result

    @contextlib.contextmanager
    def unwatched(self) -> Iterator[None]:
        """What is called in here is no part of the run."""
        self.deep += 1
        try:
            yield
        finally:
            self.deep -= 1

    def set_apart(self, tensor: Any, result: Any, seen: Seen) -> Any:
        """The result of an activation that overwrote its input, as another tensor than the input on the same memory.

        Its result may be used; whoever goes on to use the input relies on its having been overwritten.
        """
        if result is not tensor or not isinstance(result, Tensor):
            return result
        alias = result.detach()
        follow("alias", (result,), {}, alias)
        self.overwritten[tensor] = seen
        return alias

    def overwritten_is_used(self, tensor: Tensor) -> None:
        if (seen := self.overwritten.get(tensor)) is not None:
            seen.trouble = seen.trouble or _OVERWRITTEN

    def _note(self, func: Any, name: str, args: Any, kwargs: Mapping[str, Any]) -> Seen | None:
        tensor = next((each for each in tensors_in([*args, *kwargs.values()]) if each.is_floating_point()), None)
        if tensor is None:
            return None
        numbers = [each for each in args if not isinstance(each, Tensor)]
        key = (func, len(tensors_in([*args, *kwargs.values()])), repr(numbers), repr(sorted(kwargs.items(), key=str)))
        if key not in self.identities:
            with self.unwatched():
                self.identities[key] = _identity(func, name, args, kwargs)
        identity = self.identities[key]
        with self.unwatched():
            source = origin(sys._getframe(1), inside=self.inside, function=func, identity=identity)
        if source is None or id(source.owner) in self.apart or type(source.owner).__module__.startswith("softknee."):
            return None
        if name in _PERHAPS and source.identity is not None and source.identity.name in GATES:
            return None  # a limit, or a sigmoid of parts
        return self.note_function(source, name, tensor)

    def note_function(self, source: Origin, name: str, tensor: Tensor) -> Seen:
        """Note a function that is called in a method, or an expression that computes one."""
        identity = source.identity
        assert identity is not None
        seen, new = self.run.note((id(source.owner), source.key), tensor, source)
        title = identity.name if source.whole and identity.known else name
        seen.clamps = name in _CLAMPS
        if name == "glu":
            seen.trouble = seen.trouble or "it multiplies one half of its input by a gate of the other"
        if new:
            self.run.functions.append(FunctionCall(source.owner, title, identity, seen, source.node))
        elif any(each.seen is seen and each.identity != identity for each in self.run.functions):
            seen.trouble = seen.trouble or _SEVERAL
        return seen


def _identity(func: Callable[..., Any], name: str, args: Any, kwargs: Mapping[str, Any]) -> Identity | None:
    """What a function of torch computes with these arguments; None where it is no activation by itself."""
    rest = args[1:]
    if tensors_in([*rest, *(value for key, value in kwargs.items() if key != "input")]):
        return Identity("prelu") if name == "prelu" else None
    named = {key: value for key, value in kwargs.items() if key not in ("input", "inplace")}
    identity = identify(lambda x: func(x, *rest, **named))
    if name in _PERHAPS:
        return identity if identity is not None and identity.known and identity.name not in GATES else None
    return identity if identity is not None and identity.known else Identity(name, known=False)


def _enter(watch: _Watch, module: nn.Module, args: Any, kwargs: Any) -> None:
    tensor = next(iter(tensors_in([*args, *kwargs.values()])), None)
    watch.current.pop(id(module), None)
    if tensor is not None and not watch.deep:
        alone = len(args) + len(kwargs) == 1 or isinstance(module, GatedPointwise)
        watch.current[id(module)] = _used(watch, id(module), watch.sites[id(module)], tensor, alone=alone)
    watch.deep += 1


def _leave(watch: _Watch, module: nn.Module, args: Any, kwargs: Any, result: Any) -> Any:
    watch.deep -= 1
    tensor = next(iter(tensors_in([*args, *kwargs.values()])), None)
    seen = watch.current.pop(id(module), None)
    if seen is None or tensor is None:
        return result
    mark_origins("activation", [tensor], result, seen)
    return watch.set_apart(tensor, result, seen)


def _through(watch: _Watch, what: Any, identity: Identity | None, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Stands in for a function that is an attribute."""
    tensor = next(iter(tensors_in([*args, *kwargs.values()])), None)
    seen = None
    if tensor is not None and not watch.deep:
        seen = _used(watch, what, identity, tensor, alone=len(args) + len(kwargs) == 1)
    with watch.unwatched():
        result = function(*args, **kwargs)
    if seen is None:
        return result
    mark_origins("activation", [tensor], result, seen)
    return watch.set_apart(tensor, result, seen)


def _used(watch: _Watch, what: Any, identity: Identity | None, tensor: Tensor, *, alone: bool) -> Seen:
    """Note that a module, or a function that is an attribute, is called now, with the tensor alone or with more."""
    with watch.unwatched():
        source = origin(sys._getframe(1), inside=watch.inside, identity=identity)
    if source is not None and source.whole and source.identity is not None and source.call is not None:
        watch.run.inside.add(what)
        return watch.note_function(source, identity.name if identity is not None else "activation", tensor)
    owner = id(source.owner) if source is not None else 0
    call = source.call if source is not None else None
    # Where the line cannot be told, all calls of one owner are one place; that only matters where there are several.
    seen, new = watch.run.note(("use", what, owner, call), tensor, None)
    seen.call = call
    if not alone:
        seen.trouble = seen.trouble or "it is called with more than a tensor"
    if new:
        watch.run.uses.setdefault((what, owner), []).append(seen)
    return seen
