"""Surgery as a file: what was put where, so that it can be repeated on another model of the same kind."""

from __future__ import annotations

import ast
import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from ... import registry
from ...design.texts.files import from_text, to_text
from ...errors import InputError, SoftkneeError
from ...files import read_small, write_whole
from ...nn.baselines import Baseline, baseline_named
from ...spec import Activation
from ...version import VERSION
from ..finding.identify import Identity, harmless, identify, identify_module
from ..finding.rewriting import Call, CannotRewrite, edits_of, method_named, node_at
from ..finding.rewriting import describe as describe_call
from ..finding.sites import Place, Site
from .operation import Step

# -- the form of a file of surgery, checked before anything in it is believed -----------------------------


FORMAT, SCHEMA = "softknee surgery", 2
_FIELDS = dict.fromkeys(("path", "owner", "name", "kind", "was", "node"), str) | {"arguments": dict, "calls": list}
_CALL_FIELDS = {"method": str, "position": list, "text": str, "attribute": str, "on_tensor": bool, "tensor": str}
# Nobody's layer is wider than this, and a file that says so would only fill the memory.
_MOST_VALUES = 10**7
_MOST_BYTES = 64_000_000
_COUNTS = ("size", "k", "points", "cells", "order")
_NOT_FROM_A_FILE = ("definition", "device", "dtype")


class PlanError(SoftkneeError, ValueError):
    """A file of surgery cannot be read, or does not fit the model."""


def check(plan: Any, *, source: str) -> dict[str, Any]:
    """Refuse what is no plan of this version."""
    if not isinstance(plan, dict) or plan.get("format") != FORMAT:
        raise PlanError(f"'{source}' is no file of surgery; those are written by report.save().")
    if plan.get("schema") == 1:
        plan = _of_schema_1(plan)
    if plan.get("schema") != SCHEMA:
        raise PlanError(
            f"'{source}' has schema {plan.get('schema')!r} of softknee {plan.get('softknee')!r}, and this softknee "
            f"({VERSION}) reads schemas 1 and {SCHEMA}; use the version that wrote it."
        )
    _check_activation(plan.get("activation"), source)
    for part in _PARTS:
        if not isinstance(plan.get(part), list):
            raise _damaged(source, f"its {part!r} is no list")
        for change in plan[part]:
            _check_change(change, part, source)
    if not plan["changes"]:
        raise _damaged(source, "it changes nothing")
    if not isinstance(plan.setdefault("fuse", False), bool):  # a plan from before there were gates does not say
        raise _damaged(source, "its 'fuse' is neither true nor false")
    places = [(change["owner"], change["name"]) for part in ("changes", "kept") for change in plan[part]]
    if len(set(places)) != len(places):
        raise _damaged(source, "it puts two activations into one place")
    return plan


def _of_schema_1(plan: dict[str, Any]) -> dict[str, Any]:
    """A plan of schema 1 with the fields that came later, empty."""

    def filled(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        new = {**value, "node": ""} if "calls" in value else {**value, "tensor": ""}
        if isinstance(value.get("calls"), list):
            new["calls"] = [filled(call) for call in value["calls"]]
        return new

    parts = {part: [filled(change) for change in plan[part]] for part in _PARTS if isinstance(plan.get(part), list)}
    return {**plan, **parts, "schema": SCHEMA}


_PARTS = ("changes", "kept")


def _check_activation(entry: Any, source: str) -> None:
    if not isinstance(entry, dict):
        raise _damaged(source, "its 'activation' is no object")
    if "definition" in entry:
        return  # read by the language of definitions, with limits of its own
    if entry.get("name") not in registry.names() and baseline_named(entry.get("name")) is None:
        raise PlanError(
            f"'{source}' puts in {str(entry.get('name'))[:60]!r}, an activation that there is not; register it first."
        )


def _check_change(change: Any, part: str, source: str) -> None:
    _check_fields(change, _FIELDS, source)
    kinds = ("module", "functional", "call") if part == "changes" else ("kept",)
    if change["kind"] not in kinds or not change["name"] or "." in change["name"]:
        raise _damaged(source, f"an entry of {part!r} has kind {change['kind']!r} and name {change['name']!r}")
    says_where = change["calls"] or change["node"]
    if bool(change["was"]) != (part == "changes") or (change["kind"] in ("call", "kept") and not says_where):
        raise _damaged(source, f"an entry of {part!r} does not say what it replaces")
    for call in change["calls"]:
        _check_fields(call, _CALL_FIELDS, source)
        if len(call["position"]) != 4 or not all(isinstance(number, int) for number in call["position"]):
            raise _damaged(source, "the position of a call is not four whole numbers")
    for name, value in change["arguments"].items():
        if name in _NOT_FROM_A_FILE or not _modest(value) or (name in _COUNTS and _product(value) > _MOST_VALUES):
            raise _damaged(source, f"an activation cannot be made with {name}={str(value)[:40]}")


def _modest(value: Any) -> bool:
    """Numbers, words, and lists of them, not deeper than a table for each neuron of an image."""
    for _ in range(5):
        if not isinstance(value, list):
            break
        value = [part for item in value for part in (item if isinstance(item, list) else [item])]
        if not any(isinstance(item, list) for item in value):
            return all(_is_leaf(item) for item in value)
    return _is_leaf(value)


def _is_leaf(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _product(value: Any) -> float:
    total = 1.0
    for number in value if isinstance(value, list) else [value]:
        total *= min(abs(number), 1e12) if isinstance(number, int | float) else 1
    return total


def _check_fields(value: Any, wanted: Mapping[str, type], source: str) -> None:
    if not isinstance(value, dict) or set(value) != set(wanted):
        raise _damaged(source, f"an entry should have the fields {', '.join(wanted)}")
    for name, kind in wanted.items():
        if not isinstance(value[name], kind):
            raise _damaged(source, f"{name!r} should be of type {kind.__name__}")


def _damaged(source: str, how: str) -> PlanError:
    return PlanError(f"'{source}' is damaged: {how}; save it again with report.save().")


# -- writing ------------------------------------------------------------------------------------------------


def describe(
    model: nn.Module,
    definition: Any,
    chosen: Sequence[Site],
    arguments: Sequence[Mapping[str, Any]],
    kept: Sequence[Step],
    *,
    fuse: bool,
) -> dict[str, Any]:
    """The plan of a swap; the definition and the arguments become text when it is saved."""
    paths = {id(module): path for path, module in model.named_modules()}
    changes = [
        _change(site.path, site.place, kind=site.kind, was=site.activation, arguments=values, owner=site.owner)
        for site, values in zip(chosen, arguments, strict=True)
    ]
    aside = [
        _change("", step.place, kind="kept", was="", arguments={}, owner=paths[id(step.place.owner)]) for step in kept
    ]
    return {
        "format": FORMAT,
        "schema": SCHEMA,
        "softknee": VERSION,
        "model": type(model).__name__,
        "activation": definition,
        "changes": changes,
        "kept": aside,
        "fuse": fuse,
    }


def _change(
    path: str, place: Place, *, kind: str, was: str, arguments: Mapping[str, Any], owner: str
) -> dict[str, Any]:
    return {
        "path": path,
        "owner": owner,
        "name": place.name,
        "kind": "call" if (place.calls or place.node) and place.old is None else kind,
        "was": was,
        "arguments": dict(arguments),
        "node": place.node,
        "calls": [{**asdict(call), "position": list(call.position)} for call in place.calls],
    }


def write(plan: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write a plan to a file, whole or not at all."""
    plan = {
        **plan,
        "activation": _definition_fields(plan["activation"]),
        "changes": [
            {**change, "arguments": {name: _plain(name, value) for name, value in change["arguments"].items()}}
            for change in plan["changes"]
        ],
    }
    return write_whole(path, json.dumps(plan, indent=1) + "\n", what="surgery")


def _plain(name: str, value: Any) -> Any:
    """An argument as JSON has it."""
    if isinstance(value, Tensor):
        return value.detach().double().cpu().tolist()
    if isinstance(value, list | tuple):
        return [_plain(name, item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(
        f"This surgery cannot be saved: {name}= was given as {type(value).__name__}, and a file holds numbers, lists "
        f"and names. Do it again with one of those, and save that."
    )


def _definition_fields(definition: Any) -> dict[str, Any]:
    """A definition by its name where every installation has it under that, else whole."""
    if isinstance(definition, Mapping):
        return dict(definition)
    name = getattr(definition, "name", "")
    if registry.ships(definition) or name == "squaf" or isinstance(definition, Baseline):
        weights = getattr(definition, "weights", None)
        return {"name": name} | ({"weights": weights} if weights not in (None, "gaussian") else {})
    return {"definition": json.loads(to_text(definition))}


# -- reading ------------------------------------------------------------------------------------------------


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The plan in a file, checked in its form."""
    text = read_small(path, what="surgery", most_bytes=_MOST_BYTES)
    try:
        plan = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"'{path}' is no whole file of surgery ({error}); save it again with report.save().") from None
    return check(plan, source=os.fspath(path))


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def resolve(
    model: nn.Module, plan: Mapping[str, Any], *, source: str
) -> tuple[Any, list[Site], list[dict[str, Any]], list[Step]]:
    """What a plan means in this model: the definition, the sites, the arguments, and what is moved aside."""
    with blamed_on(source):
        definition = _definition(plan["activation"], source)
        # A plan from before all values were written means the defaults of its time, which are presets now.
        usual = definition.presets.get("paper", {}) if isinstance(definition, Activation) else {}
        arguments = [
            {**usual, **{name: _argument(value) for name, value in change["arguments"].items()}}
            for change in plan["changes"]
        ]
    sites = [_site(model, change, source) for change in plan["changes"]]
    kept = [_site(model, change, source).place for change in plan["kept"]]
    return definition, sites, arguments, [Step(place, place.old, kept=True) for place in kept]


@contextlib.contextmanager
def blamed_on(source: str) -> Iterator[None]:
    """What a file says may be anything; where Python stumbles over it, the file is at fault."""
    try:
        yield
    except SoftkneeError as error:
        if isinstance(error, PlanError):
            raise
        raise PlanError(f"'{source}' cannot be followed: {error}") from error
    except (TypeError, ValueError, RuntimeError, OverflowError, AttributeError, LookupError) as error:
        raise PlanError(
            f"'{source}' is damaged: its values make no activation ({type(error).__name__}: {str(error)[:100]}); save "
            f"it again with report.save()."
        ) from error


def _definition(entry: Mapping[str, Any], source: str) -> Any:
    if "definition" in entry:
        return from_text(json.dumps(entry["definition"]), source)
    definition = registry.resolve(entry["name"]).definition
    return definition.with_weights(entry["weights"]) if "weights" in entry else definition


def _argument(value: Any) -> Any:
    """Lists of numbers are tensors, except sizes, which are whole."""
    if isinstance(value, list) and value and not isinstance(value[0], str):
        return value if all(isinstance(item, int) for item in value) else torch.tensor(value, dtype=torch.float64)
    return value


def _site(model: nn.Module, change: Mapping[str, Any], source: str) -> Site:
    """The site that an entry of a plan means, which must compute what it computed then."""
    try:
        owner = model.get_submodule(change["owner"])
    except AttributeError:
        raise PlanError(
            f"'{source}' was made for {change['owner']!r}, which {type(model).__name__} does not have; build the model "
            f"as it was before the surgery."
        ) from None
    name = change["name"]
    calls = tuple(_find_call(owner, call, source) for call in change["calls"])
    attribute = "" if change["kind"] == "call" else calls[0].attribute if calls else name
    old: Any = owner._modules.get(attribute, vars(owner).get(attribute)) if attribute else None
    if (calls or change["node"]) and hasattr(owner, name):
        raise PlanError(
            f"'{source}' puts an activation at {change['path'] or name!r}, and there is something now; was the surgery "
            f"done already?"
        )
    if change["kind"] != "call" and (not callable(old) or isinstance(old, type)):
        raise PlanError(
            f"'{source}': {type(owner).__name__} has no activation {attribute!r} at {change['owner']!r}; build the "
            f"model as it was before the surgery."
        )
    nodes = {node.name for node in owner.graph.nodes} if isinstance(owner, fx.GraphModule) else set()
    if change["node"] and change["node"] not in nodes:
        raise PlanError(
            f"'{source}' replaces the node {change['node']!r} of a graph, which {type(owner).__name__} does not have; "
            f"trace the model as it was before the surgery."
        )
    now = _identity(old)
    if old is not None and change["was"] and (now is None or now.name != change["was"]):
        raise PlanError(
            f"'{source}' replaces {change['was']} at {change['path']!r}, and there is {now or type(old).__name__} now; "
            f"was the surgery done already, or is this another model?"
        )
    params = dict(now.params) if now is not None else {}
    kind = "module" if isinstance(old, nn.Module) else "functional"
    return Site(
        change["path"],
        change["was"],
        kind,
        False,
        params,
        change["owner"],
        place=Place(owner, name, old, calls, change["node"]),
    )


def _identity(old: Any) -> Identity | None:
    if isinstance(old, nn.Module):
        return identify_module(old)
    return identify(old) if old is not None and harmless(old) else None


def _find_call(owner: nn.Module, call: Mapping[str, Any], source: str) -> Call:
    original, _ = edits_of(type(owner))
    method = method_named(original, call["method"])
    try:
        if method is None:
            raise CannotRewrite("the method is not there")
        line, end_line, column, end = call["position"]
        node = node_at(method.function, (line, end_line, column, end))
        parts = (part for part in ast.walk(node) if isinstance(part, ast.expr))
        tensor = next((part for part in parts if call["tensor"] and ast.unparse(part) == call["tensor"]), None)
        here = describe_call(method.function, node, method=call["method"], on_tensor=call["on_tensor"], tensor=tensor)
        if (here.text, here.attribute, here.tensor) != (call["text"], call["attribute"], call["tensor"]):
            raise CannotRewrite(f"it reads {here.text!r} now")
    except CannotRewrite as reason:
        raise PlanError(
            f"'{source}' replaces {call['text']!r} in {original.__name__}.{call['method']}, which has changed since "
            f"({reason}); plan the surgery again with swap_."
        ) from None
    return here
