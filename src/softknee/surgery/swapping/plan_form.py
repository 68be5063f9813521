"""The form of a file of surgery, checked before anything in it is believed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import registry
from ...errors import SoftkneeError
from ...nn.baselines import baseline_named
from ...version import VERSION

FORMAT, SCHEMA = "softknee surgery", 2
_FIELDS = {"path": str, "owner": str, "name": str, "kind": str, "was": str, "arguments": dict, "calls": list}
_FIELDS |= {"node": str}
_CALL_FIELDS = {"method": str, "position": list, "text": str, "attribute": str, "on_tensor": bool, "tensor": str}
# Nobody's layer is wider than this, and a file that says so would only fill the memory.
_MOST_VALUES = 10**7
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


def _check_activation(said: Any, source: str) -> None:
    if not isinstance(said, dict):
        raise _damaged(source, "its 'activation' is no object")
    if "definition" in said:
        return  # read by the language of definitions, with limits of its own
    if said.get("name") not in registry.names() and baseline_named(said.get("name")) is None:
        raise PlanError(
            f"'{source}' puts in {str(said.get('name'))[:60]!r}, an activation that there is not; register it first."
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
        if len(call["position"]) != 4 or not all(isinstance(one, int) for one in call["position"]):
            raise _damaged(source, "the position of a call is not four whole numbers")
    for name, value in change["arguments"].items():
        if name in _NOT_FROM_A_FILE or not _modest(value) or (name in _COUNTS and _product(value) > _MOST_VALUES):
            raise _damaged(source, f"an activation cannot be made with {name}={str(value)[:40]}")


def _modest(value: Any) -> bool:
    """Numbers, words, and lists of them, not deeper than a table for each neuron of an image."""
    for _ in range(5):
        if not isinstance(value, list):
            break
        value = [part for one in value for part in (one if isinstance(one, list) else [one])]
        if not any(isinstance(one, list) for one in value):
            return all(_is_leaf(one) for one in value)
    return _is_leaf(value)


def _is_leaf(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _product(value: Any) -> float:
    total = 1.0
    for one in value if isinstance(value, list) else [value]:
        total *= min(abs(one), 1e12) if isinstance(one, int | float) else 1
    return total


def _check_fields(value: Any, wanted: Mapping[str, type], source: str) -> None:
    if not isinstance(value, dict) or set(value) != set(wanted):
        raise _damaged(source, f"an entry should have the fields {', '.join(wanted)}")
    for name, kind in wanted.items():
        if not isinstance(value[name], kind):
            raise _damaged(source, f"{name!r} should be of type {kind.__name__}")


def _damaged(source: str, how: str) -> PlanError:
    return PlanError(f"'{source}' is damaged: {how}; save it again with report.save().")
