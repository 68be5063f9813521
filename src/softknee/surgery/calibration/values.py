"""The new width, hardness or grid of one site, from the spread of its pre-activations (see `calibrate`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...design.soft_table_fit import fit_table
from ...errors import InputError
from ...nn import Squaf
from ...nn.parameters import Parameterised
from ...spec.constraints import AtLeastOne
from ..activation_text import sampled_name
from .spread import Spread

WIDTH, HARDNESS, GRID = "width", "hardness", "grid"


@dataclass(frozen=True, eq=False)
class CalibratedSite:
    """What one site had, has now, and saw. `inside` is the share of its pre-activations inside the knee or the grid."""

    path: str
    activation: str
    kind: str
    old: Mapping[str, Tensor]
    new: Mapping[str, Tensor]
    spread: Tensor
    inside: float
    count: int
    note: str = ""


@dataclass(frozen=True)
class Rule:
    """What was asked of `calibrate_`."""

    fraction: float
    cover: float
    stands_for: Any = None


def planned(path: str, module: Parameterised, kind: str, seen: Spread, rule: Rule) -> CalibratedSite:
    """What a site is to be, from what it saw; nothing is changed yet."""
    if not float(seen.pooled.scale) > 0:
        raise InputError(
            f"Half or more of the pre-activations of {path!r} are 0, so that they have no spread to go by; leave the "
            f"site out with where=, or look why its layer is dead. Nothing was changed."
        )
    note: list[str] = []
    if isinstance(module, Squaf):
        new, width, spread = _table(module, seen, rule, note)
    else:
        new, width, spread = _knobs(module, kind, seen, rule, note)
    return CalibratedSite(
        path=path,
        activation=module.title,
        kind=kind,
        old={name: _effective(module, name) for name in new},
        new=new,
        spread=spread.scale,
        inside=spread.share_below(width.reshape(-1)),
        count=seen.count,
        note="; ".join(note),
    )


def _knobs(
    module: Any, kind: str, seen: Spread, rule: Rule, note: list[str]
) -> tuple[dict[str, Tensor], Tensor, Spread]:
    """New widths or hardnesses, the width they make, and the spread they come from.

    Where there are two (left and right of the knee) their mean is set, and their ratio kept.
    """
    old = {name: _effective(module, name) for name in module.definition.knobs}
    grouped = all(value.numel() > 1 for value in old.values())
    spread = seen if grouped else seen.pooled
    scale = spread.scale.reshape(module.granularity.shape if grouped else (1,))
    mean = sum(old.values()) / len(old)
    wanted = rule.fraction * scale if kind == WIDTH else 1 / (rule.fraction * scale)
    factor = torch.where(scale == 0, 1.0, wanted / mean)
    _note_dead(scale, note)
    new = {name: value * (factor if value.numel() > 1 else factor.mean()) for name, value in old.items()}
    for name, value in new.items():
        p = module.definition.param(name)
        least = p.start if name in module.learned else 1.0
        if isinstance(p.constraint, AtLeastOne) and (low := value < least).any():
            new[name] = value.clamp(min=least)
            which = "" if low.numel() == 1 else f" for {int(low.sum())} of {low.numel()}"
            note.append(f"{name} would be below {least:g}, and is {least:g}{which}")
    reached = sum(new.values()) / len(new)
    width = torch.as_tensor(reached if kind == WIDTH else 1 / reached)
    return new, width if grouped else width.mean(), spread


def _table(module: Squaf, seen: Spread, rule: Rule, note: list[str]) -> tuple[dict[str, Tensor], Tensor, Spread]:
    """A new grid with the same overlap of neighbours, and the table on it that stands for the same function."""
    assert module.k is not None
    q, alpha, z = (_effective(module, name) for name in ("q", "alpha", "z"))
    # A channel may only have a spacing of its own if it has a table and a sharpness of its own to go with it.
    grouped = q.numel() > 1 and alpha.shape == q.shape == z.shape[:-1]
    spread = seen if grouped else seen.pooled
    reach = spread.quantile(rule.cover).reshape(q.shape if grouped else (1,))
    _note_dead(reach, note)
    new_q = torch.where(reach == 0, q, reach / module.k).expand_as(q).clone()
    stretch = (new_q / q) ** (1 if module.weights == "laplacian" else 2)
    new_alpha = alpha / (stretch if alpha.numel() > 1 else stretch.mean())
    rows = z.reshape(-1, z.shape[-1])
    tables, errors, names = torch.empty_like(rows), [], set()
    known: dict[tuple[float, ...], Any] = {}  # the channels of an untrained module share one function
    for index, row in enumerate(rows):
        before, after = ({"q": _row(a, index), "alpha": _row(b, index)} for a, b in ((q, alpha), (new_q, new_alpha)))
        key = (before["q"], before["alpha"], *row.tolist())
        if key not in known:
            known[key] = rule.stands_for or _stands_for(module, row, **before)
        names.add(
            known[key] if isinstance(known[key], str) else "its curve" if rule.stands_for is None else "its target"
        )
        fit = fit_table(known[key], k=module.k, weights=module.weights, window=module.window, **after)
        tables[index] = fit.z
        errors.append(fit.error)
    note.append(f"z fitted to {' and '.join(sorted(names))}, off by {max(errors):.2g} at most")
    width = module.k * (new_q if grouped else new_q.mean())
    return {"q": new_q, "alpha": new_alpha, "z": tables.reshape(z.shape)}, width, spread


def _note_dead(scale: Tensor, note: list[str]) -> None:
    if dead := int((scale == 0).sum()):
        note.append(f"{dead} of {scale.numel()} saw nothing but 0 and stay as they are")


def _stands_for(module: Squaf, z: Tensor, *, q: float, alpha: float) -> str | Callable[[Tensor], Tensor]:
    """The name of the function that a table samples, or else the curve that it is."""
    assert module.k is not None
    name = sampled_name(z.to(module.z.dtype), q=torch.tensor(q, dtype=torch.float64), k=module.k)
    definition: Any = module.definition
    return name or (lambda x: definition(x, k=module.k, q=q, alpha=alpha, z=z, window=module.window))


def _row(values: Tensor, index: int) -> float:
    return float(values.reshape(-1)[index if values.numel() > 1 else 0])


def _effective(module: Parameterised, name: str) -> Tensor:
    p = next(one for one in module.params if one.name == name)
    return module.effective(p).detach().double().cpu().clone()
