"""The state of a hardener as plain numbers and texts: what JSON and every checkpoint format can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from ...errors import ParameterError
from .plateau import Plateau
from .sites import HardeningSite, Knobs

if TYPE_CHECKING:
    from .hardener import Hardener

VERSION = 1


@dataclass(frozen=True)
class State:
    """A state that was read and fits."""

    position: float
    last_free: int
    plateau: Plateau | None
    given: dict[str, Knobs]
    begin: dict[str, Knobs]
    targets: dict[str, Knobs]


def state_of(hardener: Hardener) -> dict[str, Any]:
    """What `read_state` reads."""
    return {
        "version": VERSION,
        "total": hardener.total,
        "schedule": hardener.schedule.name,
        "tolerance": hardener.tolerance,
        "position": hardener.position,
        "last_free": hardener.last_free,
        "plateau": None if hardener.plateau is None else hardener.plateau.state(),
        "sites": {
            site.path: {
                "activation": site.module.definition.name,
                "given": _numbers(hardener._given.get(site.path)),
                "begin": _numbers(hardener.begin.get(site.path)),
                "target": _numbers(hardener.targets.get(site.path)),
            }
            for site in hardener.sites
        },
    }


def _numbers(knobs: Knobs | None) -> dict[str, list[float]] | None:
    return None if knobs is None else {name: value.flatten().tolist() for name, value in knobs.items()}


def read_state(hardener: Hardener, given: Mapping[str, Any]) -> State:
    """The state, checked whole against this hardener before anything is changed."""
    if not isinstance(given, Mapping) or given.get("version") != VERSION:
        version = given.get("version") if isinstance(given, Mapping) else type(given).__name__
        raise ParameterError(
            f"This is not the state of a Hardener that this softknee reads (version {VERSION}): it has version "
            f"{version!r}."
        )
    made = {"total": hardener.total, "schedule": hardener.schedule.name, "tolerance": hardener.tolerance}
    for name, ours in made.items():
        # States of before the tolerance was kept in them have none to compare.
        theirs = given.get(name, ours if name == "tolerance" else None)
        if theirs != ours:
            raise ParameterError(
                f"The state was saved by a Hardener with {name}={theirs!r}, and this one has {name}={ours!r}; "
                f"resuming would not give the same numbers. Make the hardener as it was."
            )
    sites, ours = given.get("sites"), {site.path: site for site in hardener.sites}
    if not isinstance(sites, Mapping) or set(sites) != set(ours):
        theirs = sorted(map(str, sites)) if isinstance(sites, Mapping) else []
        raise ParameterError(
            f"The state belongs to another model: it has the activations {_list(theirs)}, and this model has "
            f"{_list(list(ours))}."
        )
    if (given.get("plateau") is None) != (hardener.plateau is None):
        raise ParameterError(
            "The state was saved by a Hardener that starts in another way (start='plateau' on one side alone). Make "
            "the hardener as it was."
        )
    last_free = given.get("last_free")
    if hardener.plateau is None and last_free != hardener.last_free:
        raise ParameterError(
            f"The state was saved by a Hardener that trains freely for {last_free!r} steps, and this one does for "
            f"{hardener.last_free}; make the hardener with the start that it had."
        )
    read = {
        part: {path: knobs for path, site in ours.items() if (knobs := _knobs(site, sites[path], part)) is not None}
        for part in ("given", "begin", "target")
    }
    position = _number(given.get("position"))
    if (
        not isinstance(last_free, int)
        or not 0 <= last_free < hardener.total
        or set(read["begin"]) != set(read["target"])
    ):
        raise ParameterError("The state of the Hardener is damaged; take it again from the checkpoint.")
    if read["begin"] and len(read["begin"]) != len(ours):
        raise ParameterError("The state of the Hardener is damaged: only some of its activations have begun to harden.")
    return State(position, last_free, _plateau(hardener.plateau, given), read["given"], read["begin"], read["target"])


def _plateau(ours: Plateau | None, given: Mapping[str, Any]) -> Plateau | None:
    if ours is None:
        return None
    best, waited = given["plateau"].get("best"), given["plateau"].get("waited", 0)
    return replace(ours, best=None if best is None else _number(best), waited=int(_number(waited)))


def _knobs(site: HardeningSite, given: Any, part: str) -> Knobs | None:
    name = site.module.definition.name
    if not isinstance(given, Mapping) or given.get("activation") != name:
        theirs = given.get("activation") if isinstance(given, Mapping) else None
        raise ParameterError(
            f"The state belongs to another model: at {site.path!r} it has {theirs!r}, and this model has {name!r}."
        )
    values = given.get(part)
    if values is None:
        return None
    now = site.now()
    if set(values) != set(now) or any(len(values[one]) != now[one].numel() for one in now):
        raise ParameterError(
            f"The state belongs to another model: the knobs at {site.path!r} have other names or numbers of values "
            "there."
        )
    return {
        one: torch.tensor([_number(each) for each in values[one]], dtype=torch.float64).reshape(now[one].shape)
        for one in now
    }


def _number(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
        raise ParameterError(f"The state of the Hardener is damaged: {given!r} stands where a number should.")
    return given


def _list(names: list[str]) -> str:
    return ", ".join(map(repr, names[:4])) + (", ..." if len(names) > 4 else "") or "none"
