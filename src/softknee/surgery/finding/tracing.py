"""One run of a model on an example: which activations are called, from where, in what order, on what."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from .frames import Origin, origin
from .identify import Identity, identify
from .probing import FUNCTIONS
from .producers import Channels, channels_of, follow
from .running import run_example, tensors_in
from .source import Call

_OVERWRITTEN = "it overwrites its input, and the model goes on to use what was overwritten; use its result instead"
# These are activations only where they compute one: clamp(min=0) is a ReLU.
_PERHAPS = frozenset({"clamp", "clamp_min", "clip"})


@dataclass(frozen=True)
class Pass:
    """One call: its rank among all of the run, and what comes in."""

    order: int
    channels: Channels | None
    shape: tuple[int, ...]


@dataclass
class Seen:
    """What an example showed of one place.

    passes:  the calls, in order.
    call:    the call in its owner's source, None where it cannot be told.
    trouble: why it cannot be changed, as a half sentence.
    """

    passes: list[Pass]
    call: Call | None = None
    trouble: str = ""

    @property
    def order(self) -> int:
        return self.passes[0].order

    @property
    def times(self) -> int:
        return len(self.passes)

    @property
    def channels(self) -> Channels | None:
        """Of what comes in, None where they cannot be told or are not the same every time."""
        return self._always({one.channels for one in self.passes})

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Of what comes in, None where it is not the same every time."""
        return self._always({one.shape for one in self.passes})

    @staticmethod
    def _always(found: set[Any]) -> Any:
        return found.pop() if len(found) == 1 else None


@dataclass
class FunctionCall:
    """A function that was called inside a module's method."""

    owner: nn.Module
    name: str
    identity: Identity
    seen: Seen


@dataclass
class Trace:
    """All that one run showed."""

    uses: dict[tuple[Any, int], list[Seen]] = field(default_factory=dict)
    """Of modules and of functions that are attributes: by what is called (the identity of a module, or that of an owner
    and a name) and the identity of the module that calls it, one for each line."""
    functions: list[FunctionCall] = field(default_factory=list)
    output: Any = None
    places: dict[Any, Seen] = field(default_factory=dict)
    """By what tells one call from the others."""
    passes: int = 0

    def positions(self) -> dict[int, list[tuple[int | None, ...]]]:
        """Where functions were called (first and last line, first and last column), by the identity of the module whose
        method it stands in."""
        found: dict[int, list[tuple[int | None, ...]]] = {}
        for key in self.places:
            if key[0] != "use":
                found.setdefault(key[0], []).append(key[1][1])
        return found

    def note(self, key: Any, tensor: Tensor, found: Origin | None) -> tuple[Seen, bool]:
        """What is known of a place that is called now, and whether it is new."""
        new = key not in self.places
        if new:
            call, trouble = (found.call, found.trouble) if found is not None else (None, "")
            self.places[key] = Seen([], call, trouble)
        seen = self.places[key]
        seen.passes.append(Pass(self.passes, channels_of(tensor), tuple(tensor.shape)))
        self.passes += 1
        return seen, new


def trace(
    model: nn.Module,
    example: Any,
    *,
    sites: Collection[int],
    attributes: Iterable[tuple[nn.Module, str]] = (),
    parts: Iterable[int] = (),
) -> Trace:
    """Run the example and see every activation.

    Args:
        sites: the modules that are activations, by identity.
        attributes: the functions that are activations, each an attribute of its owner.
        parts: modules, by identity, in which nothing is an activation.
    """
    watch = _Watch(inside={id(module) for module in model.modules()}, sites=set(sites), parts=set(parts))
    with contextlib.ExitStack() as at_the_end:
        for module in model.modules():
            if id(module) in sites:
                before = module.register_forward_pre_hook(partial(_enter, watch), with_kwargs=True)
                after = module.register_forward_hook(partial(_leave, watch), with_kwargs=True)
                at_the_end.callback(before.remove)
                at_the_end.callback(after.remove)
        for owner, name in attributes:
            function = vars(owner)[name]
            vars(owner)[name] = partial(_through, watch, (id(owner), name), function)
            at_the_end.callback(vars(owner).__setitem__, name, function)
        watch.found.output = run_example(model, example, inside=watch)
    for tensor in tensors_in(watch.found.output):
        watch.overwritten_is_used(tensor)
    return watch.found


class _Watch(TorchFunctionMode):
    """Sees every function of torch that is called, follows channels, and notes the activations."""

    def __init__(self, *, inside: set[int], sites: set[int], parts: set[int]) -> None:
        super().__init__()
        self.found, self.inside, self.apart = Trace(), inside, sites | parts
        self.deep = 0  # inside an activation, whose parts are its own business
        self.current: dict[int, Seen] = {}
        # Tensors that an activation has overwritten, each with the place where that was.
        self.overwritten: Any = WeakIdKeyDictionary()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        tensor = args[0] if args else kwargs.get("input")
        seen = None
        if not self.deep and name.strip("_") in FUNCTIONS | _PERHAPS and isinstance(tensor, Tensor):
            seen = self._note(func, name.strip("_"), tensor, args, kwargs)
        result = func(*args, **kwargs)
        follow(func, args, kwargs, result)
        if tensors_in(result):
            for one in tensors_in([*args, *kwargs.values()]):
                self.overwritten_is_used(one)
        return self.set_apart(tensor, result, seen) if seen is not None else result

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

    def _note(self, func: Any, name: str, tensor: Tensor, args: Any, kwargs: Mapping[str, Any]) -> Seen | None:
        if not tensor.is_floating_point():
            return None
        found = origin(sys._getframe(1), inside=self.inside, function=func)
        if found is None or id(found.owner) in self.apart or type(found.owner).__module__.startswith("softknee."):
            return None
        identity = _identity(func, name, args, kwargs)
        if identity is None:
            return None
        key = (id(found.owner), found.key)
        seen, new = self.found.note(key, tensor, found)
        if new:
            self.found.functions.append(FunctionCall(found.owner, name, identity, seen))
        elif any(one.seen is seen and one.identity != identity for one in self.found.functions):
            seen.trouble = seen.trouble or "one call computes several functions in turn"
        return seen


def _identity(func: Callable[..., Any], name: str, args: Any, kwargs: Mapping[str, Any]) -> Identity | None:
    rest = args[1:]
    if tensors_in([*rest, *(value for key, value in kwargs.items() if key != "input")]):
        return Identity("prelu") if name == "prelu" else None
    named = {key: value for key, value in kwargs.items() if key not in ("input", "inplace")}
    found = identify(lambda x: func(x, *rest, **named))
    if found is not None and found.known:
        return found
    return None if name in _PERHAPS else Identity(name, known=False)


def _enter(watch: _Watch, module: nn.Module, args: Any, kwargs: Any) -> None:
    tensor = next(iter(tensors_in([*args, *kwargs.values()])), None)
    if tensor is not None:
        watch.current[id(module)] = _used(watch, id(module), tensor, alone=len(args) + len(kwargs) == 1)


def _leave(watch: _Watch, module: nn.Module, args: Any, kwargs: Any, result: Any) -> Any:
    tensor = next(iter(tensors_in([*args, *kwargs.values()])), None)
    seen = watch.current.get(id(module))
    return watch.set_apart(tensor, result, seen) if seen is not None else result


def _through(watch: _Watch, what: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Stands in for a function that is an attribute."""
    tensor = next(iter(tensors_in([*args, *kwargs.values()])), None)
    seen = _used(watch, what, tensor, alone=len(args) + len(kwargs) == 1) if tensor is not None else None
    watch.deep += 1
    try:
        result = function(*args, **kwargs)
    finally:
        watch.deep -= 1
    return watch.set_apart(tensor, result, seen) if seen is not None else result


def _used(watch: _Watch, what: Any, tensor: Tensor, *, alone: bool) -> Seen:
    """Note that a module, or a function that is an attribute, is called now, with the tensor alone or with more."""
    found = origin(sys._getframe(1), inside=watch.inside)
    owner = id(found.owner) if found is not None else 0
    call = found.call if found is not None else None
    # Where the line cannot be told, all calls of one owner are one place; that only matters where there are several.
    seen, new = watch.found.note(("use", what, owner, call), tensor, None)
    seen.call = call
    if not alone:
        seen.trouble = seen.trouble or "it is called with more than a tensor"
    if new:
        watch.found.uses.setdefault((what, owner), []).append(seen)
    return seen
