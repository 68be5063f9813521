"""Puts modules in place, all or none, and takes them out again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ...errors import InputError
from ..finding.graphs import redirect
from ..finding.rewriting import edits_for, with_calls, without_calls
from ..finding.sites import Place
from .loading import keep_loadable

Undo = Callable[[], None]

# What a hook is registered in. The new module gets the very same dictionaries, so that a handle still removes its hook.
# Those around loading are not among them: they belong to the parameters of the old module.
_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_is_full_backward_hook",
)


@dataclass(frozen=True)
class Step:
    """A module, and the place that it goes to."""

    place: Place
    new: Any
    """A module; a function only where it is kept."""
    kept: bool = False
    """Whether it is the old module or function, moved so that it stays as it is."""
    plain: bool = False
    """Whether nothing of ours may be left in the new module."""


def perform(steps: Sequence[Step], extra: Sequence[Callable[[], Undo]] = ()) -> list[Undo]:
    """Do every step, then everything extra; if one fails, undo those before it and let the error through.

    Returns how to undo each, in the order in which they were done.
    """
    done: list[Undo] = []
    try:
        for step in steps:
            done.append(_put(step))
        for one in extra:
            done.append(one())
    except BaseException:
        take_back(done)
        raise
    return done


def take_back(done: list[Undo]) -> None:
    """Undo in the reverse order."""
    while done:
        done.pop()()


def still_there(steps: Sequence[Step]) -> None:
    """Refuse to undo where something else has been put in place since; checked for all before any is undone."""
    for step in steps:
        owner, name = step.place.owner, step.place.name
        if owner._modules.get(name, vars(owner).get(name)) is not step.new:
            raise InputError(
                f"The activation {name!r} of {type(owner).__name__} was replaced once more after this surgery; undo "
                f"the later one first."
            )


def _put(step: Step) -> Undo:
    place, new = step.place, step.new
    owner, old = place.owner, place.old
    forget = keep_loadable(step.place, new, kept=step.kept) if not step.plain else _nothing
    if not step.kept:
        new.train(old.training if isinstance(old, nn.Module) else owner.training)
        if isinstance(old, nn.Module):
            _inherit_hooks(old, new)
    try:
        if place.node:
            undo = _put_in_graph(place, new)
        else:
            undo = _put_in_code(place, new, kept=step.kept) if place.calls else _put_in_attribute(place, new)
    except BaseException:
        forget()
        raise

    home = home_of(new, owner)

    def undo_all() -> None:
        now = home_of(new, owner)
        undo()
        forget()
        if isinstance(old, nn.Module) and not step.kept:
            old.train(new.training)
            if now != home:  # the model has moved to another device or type since
                old.to(**now)

    return undo_all


def home_of(*near: Any) -> dict[str, Any]:
    """The device and the type of the first weights in these modules, in this order."""
    for one in near:
        if isinstance(one, nn.Module):
            for tensor in (*one.parameters(), *one.buffers()):
                if tensor.dtype in _TYPES:
                    return {"device": tensor.device, "dtype": tensor.dtype}
    return {}


_TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def _nothing() -> None:
    pass


def _put_in_attribute(place: Place, new: nn.Module) -> Undo:
    """A module or a function that is an attribute of the owner makes room."""
    owner, name, old = place.owner, place.name, place.old
    before = vars(owner).pop(name, None)
    owner._modules[name] = new
    lists = _put_in_lists(owner, old, new)
    if isinstance(owner, nn.TransformerDecoderLayer):
        # torch fills in F.relu where the state of a copy has no such entry, and would not see the module.
        vars(owner)[name] = new

    def undo() -> None:
        lists()
        vars(owner).pop(name, None)
        if isinstance(old, nn.Module):
            owner._modules[name] = old
        else:
            del owner._modules[name]
        if before is not None:
            vars(owner)[name] = before

    return undo


def _put_in_lists(owner: nn.Module, old: Any, new: nn.Module) -> Undo:
    """A module that its owner also has in a list, from which it calls it, makes room there, too."""
    lists = [value for value in vars(owner).values() if isinstance(value, list)]
    slots = [(held, index) for held in lists for index, each in enumerate(held) if each is old]
    for held, index in slots:
        held[index] = new

    def undo() -> None:
        for held, index in slots:
            if index < len(held) and held[index] is new:
                held[index] = old

    return undo


def _put_in_graph(place: Place, new: nn.Module) -> Undo:
    """A node of a graph calls the new module."""
    owner: Any = place.owner
    owner._modules[place.name] = new
    undo_node = redirect(owner, place.node, place.name)

    def undo() -> None:
        undo_node()
        del owner._modules[place.name]

    return undo


def _put_in_code(place: Place, new: Any, *, kept: bool) -> Undo:
    """Calls in the owner's methods go to the new module."""
    owner, name = place.owner, place.name
    edits = edits_for(place.calls, name, whole=kept)
    held: Any = owner._modules if isinstance(new, nn.Module) else vars(owner)
    try:
        changed = with_calls(type(owner), edits)
        held[name] = new
        owner.__class__ = changed
    except InputError:  # the source has changed; nothing was put in yet
        raise
    except TypeError as error:  # a class that cannot be subclassed, or whose instances cannot change theirs
        held.pop(name, None)
        raise InputError(
            f"The class of {type(owner).__name__} cannot be changed ({error}), so that {place.calls[0].text!r} stays; "
            f"leave it out with where=."
        ) from error

    def undo() -> None:
        # Without these edits, and not the class of before: other surgery on the owner may have come in between.
        owner.__class__ = without_calls(type(owner), edits)
        del held[name]

    return undo


def _inherit_hooks(old: nn.Module, new: nn.Module) -> None:
    for name in _HOOKS:
        if name in vars(old):
            vars(new)[name] = vars(old)[name]
