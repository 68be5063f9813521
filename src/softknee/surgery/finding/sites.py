"""Finds the activations of a model: modules of any library, functions kept as attributes, and calls in a forward."""

from __future__ import annotations

import ast
import contextlib
import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.parametrize import ParametrizationList

from ... import registry
from ...nn.parameters import require_model
from .expressions import MISSING, Part, Scope, activation_nodes, whole_of
from .identify import FUNCTIONS, GATES, Identity, harmless, identify, identify_module
from .rewriting import (
    Call,
    CannotRewrite,
    Method,
    calls_of,
    definition_of,
    describe,
    edits_of,
    methods,
    parents_of,
    span,
    tensor_of,
)
from .tracing import Seen, Trace, trace


@dataclass(frozen=True)
class Place:
    """Where an activation sits: an attribute of its owner, and the calls that must be sent there."""

    owner: nn.Module = field(repr=False)
    name: str
    old: Any = field(repr=False)
    """The module or function that is there now; None for a function that is called by its global name."""
    calls: tuple[Call, ...] = ()
    node: str = ""
    """Of a graph of torch.fx, the name of the node that calls the function."""


@dataclass(frozen=True)
class Site:
    """One place of a model where an activation is applied.

    path:       where it is, and where its replacement will be; patterns of `where` are matched against it.
    activation: the softknee name of the function it computes, or the name of a foreign class.
    kind:       "module" or "functional".
    shared:     whether the same instance, or the same line of code, is used in several places.
    params:     the parameters of the function, where they are not softknee's defaults.
    owner:      the path of the module that holds it.
    known:      whether softknee knows the function.
    trouble:    why it cannot be changed, as a half sentence.
    role:       what it does there other than to activate: it is changed only where it is named.
    """

    path: str
    activation: str
    kind: str
    shared: bool
    params: dict[str, float] = field(default_factory=dict)
    owner: str = ""
    known: bool = True
    trouble: str = ""
    role: str = ""
    place: Place = field(kw_only=True, repr=False, compare=False)
    seen: Seen | None = field(default=None, repr=False, compare=False)

    @property
    def function(self) -> str:
        """What it computes, with its parameters."""
        return str(Identity(self.activation, self.params))


def sites(model: nn.Module, example: Any = None) -> list[Site]:
    """The activation sites of a model, in order of execution where an example shows it, else of registration.

    What a module computes is found out by computing it, so timm's, transformers' and your own classes are all found.
    With `example` (what the model is called with: a tensor, a tuple of arguments, or a dict of named ones) the
    functions called inside methods are found too: F.gelu(x), torch.relu(x), x.relu(), x.clamp(min=0), and those that
    are spelled out: x * torch.sigmoid(x), torch.where(x > 0, x, 0.1 * x).

    >>> import softknee as sk, torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.GELU("tanh"), torch.nn.Linear(8, 1))
    >>> [(site.path, site.activation, site.kind) for site in sk.sites(net)]
    [('1', 'gelu_tanh', 'module')]
    """
    require_model(model, "sites")
    return find_sites(model, example)[0]


def find_sites(model: nn.Module, example: Any = None) -> tuple[list[Site], Trace | None]:
    """The sites, and what the run of the example showed."""
    require_model(model)
    parts = parts_of_weights(model)
    modules = [module for module in model.modules() if id(module) not in parts]
    identities = {id(module): identity for module in modules if (identity := identify_module(module)) is not None}
    order = {path: index for index, (path, _) in enumerate(model.named_modules(remove_duplicate=False))}
    held = [*_modules(model, identities), *_attributes(model, identities, parts)]
    held.sort(key=lambda site: order.get(site.path, order[site.owner]))
    names = _Names()
    nodes = [site for path, module in model.named_modules() for site in _nodes(path, module, names)]
    if example is None:
        return held + nodes, None
    functions = [(site.place.owner, site.place.name) for site in held if site.kind == "functional"]
    run = trace(model, example, sites=identities, attributes=functions, parts=parts)
    result = [each for site in held for each in _as_seen(site, _mates(site, held), run, names)]
    result += [_node_as_seen(site, run) for site in nodes]
    result += _calls(model, run, names)
    result += _scripted(model, names, {id(site.place.old) for site in held} | parts)
    # What the example did not reach comes last.
    return sorted(result, key=lambda site: site.seen.order if site.seen is not None else run.passes), run


def _nodes(path: str, module: nn.Module, names: _Names) -> Iterator[Site]:
    """The functions that a graph of torch.fx calls."""
    if not isinstance(module, fx.GraphModule):
        return
    for node, identity, trouble in activation_nodes(module):
        place = Place(module, names.free(module, identity.name), None, node=node.name)
        yield replace(_site(identity, path, place, kind="functional", shared=False), trouble=trouble)


def _node_as_seen(site: Site, run: Trace) -> Site:
    owner, node = site.place.owner, site.place.node
    seen = next((each.seen for each in run.functions if each.owner is owner and each.node == node), None)
    return replace(site, seen=seen, shared=seen is not None and seen.times > 1)


def parts_of_weights(model: nn.Module) -> set[int]:
    """Modules that make weights out of parameters: a softplus there keeps a weight positive and activates nothing."""
    lists = (module for module in model.modules() if isinstance(module, ParametrizationList))
    return {id(part) for parametrization in lists for part in parametrization.modules()}


def _owners(model: nn.Module, identities: dict[int, Identity]) -> Iterator[tuple[str, nn.Module]]:
    """Every module that may hold an activation, once, with its first path."""
    # Of a module that is an activation itself, the parts are its own business.
    inside = {id(part) for module in model.modules() if id(module) in identities for part in module.modules()}
    for path, module in model.named_modules():
        if id(module) not in inside:
            yield path, module


def _modules(model: nn.Module, identities: dict[int, Identity]) -> list[Site]:
    # Not named_children, which leaves out what it has seen before: a Sequential may hold one activation twice.
    held = [
        (path, owner, name, child)
        for path, owner in _owners(model, identities)
        for name, child in owner._modules.items()
        if child is not None and id(child) in identities
    ]
    uses = Counter(id(child) for _, _, _, child in held)
    return [
        _site(identities[id(child)], path, Place(owner, name, child), kind="module", shared=uses[id(child)] > 1)
        for path, owner, name, child in held
    ]


def _attributes(model: nn.Module, identities: dict[int, Identity], parts: set[int]) -> list[Site]:
    """Functions kept as attributes, as `self.activation = F.relu` keeps them."""
    result = []
    for path, owner in _owners(model, identities):
        for name, value in vars(owner).items() if id(owner) not in parts else ():
            if name == "forward" or not isinstance(value, _FUNCTIONS) or not harmless(value):
                continue
            identity = identify(value)
            # A stranger that happens to bend is only taken for an activation where it is called one.
            if identity is None or not (identity.known or "act" in name.lower()):
                continue
            site = _site(identity, path, Place(owner, name, value), kind="functional", shared=False)
            if hasattr(type(owner), name):
                site = replace(site, trouble=f"the class {type(owner).__name__} has an attribute {name!r} of its own")
            result.append(site)
    return result


_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodDescriptorType, functools.partial, torch.jit.ScriptFunction)


def _mates(site: Site, sites: list[Site]) -> list[str]:
    """The names under which a module's owner has it."""
    places = (place.place for place in sites)
    return [place.name for place in places if place.owner is site.place.owner and place.old is site.place.old]


def _as_seen(site: Site, mates: list[str], run: Trace, names: _Names) -> Iterator[Site]:
    """The site with what the run showed of it; one that is called from two lines of its owner is two."""
    owner, name = site.place.owner, site.place.name
    what = id(site.place.old) if site.kind == "module" else (id(owner), name)
    # A container calls what its own owner asks it to, so the caller need not be the owner.
    elsewhere = (seen for (called, _), seen in run.uses.items() if called == what)
    seen = run.uses.get((what, id(owner))) or next(elsewhere, [])
    own = [use for use in seen if use.call is not None and use.call.attribute == name]
    if not seen and what in run.inside:
        return  # it is only called as a part of larger expressions, which are sites of their own
    by_name = all(use.call is not None and use.call.attribute in mates for use in seen)
    if not (own if by_name else seen):
        idle = not seen and id(owner) in run.ran
        yield replace(site, trouble=site.trouble or _IDLE) if idle else site
        return
    trouble = site.trouble or next((use.trouble for use in seen if use.trouble), "")
    site = replace(site, role=next((use.role for use in seen if use.role), ""))
    shared = site.shared or sum(use.times for use in seen) > 1
    if not by_name:
        passes = sorted((each for use in seen for each in use.passes), key=lambda each: each.order)
        if len(passes) % len(mates) == 0:  # a container runs through its places in turn
            passes = passes[mates.index(name) :: len(mates)]
        yield replace(site, shared=shared, seen=Seen(passes), trouble=trouble)
        return
    yield replace(site, shared=shared, seen=own[0], trouble=trouble)
    for number, use in enumerate(own[1:], start=2):
        assert use.call is not None
        place = Place(owner, names.free(owner, f"{name}_{number}"), site.place.old, (use.call,))
        yield replace(site, path=_join(site.owner, place.name), shared=True, place=place, seen=use, trouble=trouble)


_IDLE = (
    "the module that has it ran on the example and did not call it, so that another function there would change "
    "nothing; give an example that reaches it, or leave example= out"
)


def _calls(model: nn.Module, run: Trace, names: _Names) -> list[Site]:
    """The functions that were called in methods."""
    paths = {id(module): path for path, module in model.named_modules()}
    result = []
    for call in run.functions:
        if isinstance(call.owner, fx.GraphModule):
            continue
        calls = (call.seen.call,) if call.seen.call is not None else ()
        place = Place(call.owner, names.free(call.owner, call.name), None, calls)
        site = _site(call.identity, paths[id(call.owner)], place, kind="functional", shared=call.seen.times > 1)
        result.append(replace(site, seen=call.seen, trouble=call.seen.trouble, role=call.seen.role))
    return result


def _scripted(model: nn.Module, names: _Names, apart: set[int]) -> Iterator[Site]:
    """The scripted functions that methods call, which a run does not show: they are read in the source."""
    for path, owner in model.named_modules():
        if id(owner) in apart or isinstance(owner, fx.GraphModule):
            continue
        original, edits = edits_of(type(owner))
        for method in methods(original, below=nn.Module) if not original.__module__.startswith("torch.") else ():
            for part in _scripted_calls(method.function, owner):
                call = describe(method.function, part.node, method=method.name, tensor=part.tensor)
                if call.position not in edits.get(method.name, {}):
                    place = Place(owner, names.free(owner, part.identity.name), None, (call,))
                    yield _site(part.identity, path, place, kind="functional", shared=False)


def _scripted_calls(function: FunctionType, owner: nn.Module) -> list[Part]:
    parts = []
    with contextlib.suppress(CannotRewrite):
        scope = Scope.of_method(function, owner)
        for node, attribute in calls_of(function):
            # One that is an attribute of its owner is a site already.
            if attribute not in vars(owner) and isinstance(scope.value(node.func), torch.jit.ScriptFunction):
                part = whole_of(node, None, None, parents_of(definition_of(function)), scope)
                parts += [part] if part is not None and part.identity.known else []
    return parts


def _site(identity: Identity, owner: str, place: Place, *, kind: str, shared: bool) -> Site:
    return Site(
        path=_join(owner, place.name),
        activation=identity.name,
        kind=kind,
        shared=shared,
        params=dict(identity.params),
        owner=owner,
        known=identity.known,
        place=place,
    )


class _Names:
    """Gives out names that an owner has no attribute under yet, each once."""

    def __init__(self) -> None:
        self.taken: set[tuple[int, str]] = set()

    def free(self, owner: nn.Module, name: str) -> str:
        number, free = 2, name
        while hasattr(owner, free) or (id(owner), free) in self.taken:
            free, number = f"{name}_{number}", number + 1
        self.taken.add((id(owner), free))
        return free


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


# -- activations that stand in the source of a model's methods and were not seen to run -------------------
#
# A branch that the example does not take, or all of them without an example: not to be changed, but not to be passed
# over in silence either.


def unrun(model: nn.Module, sites: Sequence[Site], run: Trace | None) -> list[Site]:
    """The sites with those of their methods that the run did not reach, which cannot be changed.

    Args:
        sites: what was found, among it the modules that are activations themselves.
        run: what the example showed, None without one.
    """
    ran = run.positions() if run is not None else {}
    apart = {id(site.place.old) for site in sites} | parts_of_weights(model)
    parts: dict[tuple[int, str], str] = {}
    unreached = []
    for path, owner in model.named_modules():
        original, edits = edits_of(type(owner))
        if id(owner) in apart or original.__module__.startswith(("torch.", "softknee.")):
            continue
        for method in _reached(original):
            for node, name, attribute in _activations(method, owner):
                if span(node, method.function) in edits.get(method.name, {}) or any(
                    _within(node, at) for at in ran.get(id(owner), ())
                ):
                    continue
                where = f"it is called in {original.__name__}.{method.name} as {ast.unparse(node)!r}"
                where += _UNREACHED if run is not None else _WITHOUT_EXAMPLE
                if attribute:  # a module, and so a site already, is a part of the expression
                    parts[id(owner), attribute] = where
                identity = Identity(name, known=name in registry.names())
                site = _site(identity, path, Place(owner, name, None), kind="functional", shared=False)
                unreached.append(replace(site, trouble=where))
    return [_as_part(site, parts) for site in sites] + unreached


def _as_part(site: Site, parts: Mapping[tuple[int, str], str]) -> Site:
    """A site that the example did not reach, and that is a part of an expression: not to be changed by itself."""
    where = parts.get((id(site.place.owner), site.place.name))
    if where is None or site.seen is not None:
        return site
    return replace(site, trouble=where.replace("it is called in", "it is a part of a function, which is computed in"))


def _reached(cls: type) -> Iterator[Method]:
    """The methods of a class, without those of base classes that it overrides and does not call."""
    every = [method for method in methods(cls, below=nn.Module) if not _of_every_model(method.function, cls)]
    called = {name for method in every for name in _super_calls(method.function)}
    for method in every:
        if "." not in method.name or method.name.rpartition(".")[2] in called:
            yield method


def _of_every_model(function: FunctionType, cls: type) -> bool:
    """Whether a model inherits it with all models of transformers: how they are saved, loaded and asked for text.

    That is two hundred methods, none of which computes an activation.
    """
    home = str(function.__module__)
    own = function.__qualname__.rpartition(".")[0] == cls.__qualname__
    return not own and home.startswith("transformers.") and not home.startswith("transformers.models.")


@functools.lru_cache(maxsize=4096)
def _super_calls(function: FunctionType) -> frozenset[str]:
    """The methods that a function calls as `super().NAME`."""
    try:
        calls = [node.func for node, _ in calls_of(function)]
    except CannotRewrite:
        return frozenset()
    return frozenset(
        func.attr
        for func in calls
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Call) and "super" in ast.unparse(func.value)
    )


def _within(node: ast.expr, at: tuple[int | None, ...]) -> bool:
    """Whether a call was made inside a node: of `F.relu(x) if flat else F.gelu(x)` one line runs, and one call."""
    line, end_line, column, end = at
    last = node.end_lineno or node.lineno
    if line is None or end_line is None or column is None or end is None:  # python -X no_debug_ranges
        return line is not None and node.lineno <= line <= last
    return (node.lineno, node.col_offset) <= (line, column) and (end_line, end) <= (last, node.end_col_offset or 0)


_UNREACHED = ", which the example, run in eval mode, did not reach; give one that does, or make it a module of its own"
_WITHOUT_EXAMPLE = "; give example= to change it, too"


def _activations(method: Method, owner: nn.Module) -> list[tuple[ast.expr, str, str]]:
    """The expressions in a method that compute an activation, without gates: those stand in half of all models.

    Each with its name, and with the attribute of the owner that it calls, if it is more than that call.
    """
    result: dict[ast.expr, tuple[str, str]] = {}
    with contextlib.suppress(CannotRewrite):
        for node, attribute in _candidates(method.function, owner):
            scope = Scope.of_method(method.function, owner)
            called = _called(node, scope)
            identity = Identity(called) if called in registry.names() else None
            held = owner._modules.get(attribute) if attribute else None
            if held is not None:
                identity = identify_module(held)
            if attribute and identity is None:
                continue
            tensor = tensor_of(node, on_tensor=_on_tensor(node, scope))
            part = whole_of(node, tensor, identity, parents_of(definition_of(method.function)), scope)
            larger = part is not None and part.node is not node
            if (
                part is not None
                and part.identity.known
                and part.identity.name not in GATES
                and (larger or not attribute)
            ):
                result.setdefault(part.node, (part.identity.name, attribute if larger else ""))
            elif called in FUNCTIONS - GATES and not attribute and part is None:
                result.setdefault(node, (called, ""))
    return [(node, *names) for node, names in result.items()]


def _candidates(function: FunctionType, owner: nn.Module) -> Iterator[tuple[ast.Call, str]]:
    """The calls of functions of torch, of helpers, and of attributes of the owner that are activations."""
    scope = Scope.of_method(function, owner)
    for node, attribute in calls_of(function):
        held = owner._modules.get(attribute) if attribute else None
        if held is not None or _called(node, scope) in FUNCTIONS:
            yield node, attribute if held is not None else ""
        else:
            value = scope.value(node.func)
            helper = isinstance(value, FunctionType) and not _of_torch(value)
            if helper or isinstance(value, torch.jit.ScriptFunction):
                yield node, ""


def _called(node: ast.Call, scope: Scope) -> str:
    """The name of the function of torch that a call applies, also as a method of a tensor; nothing for others."""
    name = getattr(node.func, "attr", getattr(node.func, "id", "")).strip("_")
    value = scope.value(node.func)
    if value is not MISSING:
        return getattr(value, "__name__", name).strip("_") if _of_torch(value) else ""
    return name if _on_tensor(node, scope) else ""


def _on_tensor(node: ast.Call, scope: Scope) -> bool:
    func = node.func
    return isinstance(func, ast.Attribute) and hasattr(Tensor, func.attr) and scope.value(func.value) is MISSING


def _of_torch(value: Any) -> bool:
    home = str(getattr(value, "__module__", None) or type(value).__module__)
    return home.startswith("torch") or isinstance(value, BuiltinFunctionType)
