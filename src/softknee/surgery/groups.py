"""Optimiser groups: the parameters of activations apart from the weights.

A width or a hardness is not a weight: decay pulls it to 0, which for a width is not small but hard, and it needs a
larger step than weights do (the lambda-GELU paper: nine times). Weights are grouped as timm does it: no decay for
biases, for vectors (norms) and for what the model itself names in `no_weight_decay()`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from ..errors import InputError, ParameterError
from ..nn.parameters import Parameterised, require_model
from .hardening.sites import unwrapped

Group = dict[str, Any]
LR_SCALE = 9.0


def param_groups(model: nn.Module, *, lr: float, weight_decay: float = 0.0, lr_scale: float = LR_SCALE) -> list[Group]:
    """The trainable parameters of a model in groups, for every torch optimiser that takes groups of any shape.

    LBFGS takes no groups, Muon matrices alone (the group "weights"), and SparseAdam no dense gradients.

    Three groups, each with its `name`, of which an empty one is left out: "weights" with `weight_decay`; "no_decay"
    (biases, norms, what the model exempts); "activations" (every parameter of an activation, whatever its shape)
    without decay and with the learning rate `lr * lr_scale`.

    >>> import softknee as sk, torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 8), sk.nn.SReLU(learn=True), torch.nn.Linear(8, 1))
    >>> groups = sk.param_groups(net, lr=0.01, weight_decay=0.05)
    >>> [(g["name"], g["lr"], g["weight_decay"], len(g["params"])) for g in groups]
    [('weights', 0.01, 0.05, 2), ('no_decay', 0.01, 0.0, 2), ('activations', 0.09, 0.0, 1)]
    """
    require_model(model, "param_groups")
    for name, value in (("lr", lr), ("weight_decay", weight_decay), ("lr_scale", lr_scale)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise ParameterError(
                f"param_groups: {name} must be a finite number of at least 0, and {value!r} was given."
            )
    parts = split(model)
    settings = {
        "weights": {"lr": lr, "weight_decay": weight_decay},
        "no_decay": {"lr": lr, "weight_decay": 0.0},
        "activations": {"lr": lr * lr_scale, "weight_decay": 0.0},
    }
    groups = [{"name": name, "params": parts[name], **settings[name]} for name in parts if parts[name]]
    check(model, groups)
    return groups


def split(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """The trainable parameters under "weights", "no_decay" and "activations"."""
    own = activation_parameters(model)
    exempt = _exempt(model)
    parts: dict[str, list[nn.Parameter]] = {"weights": [], "no_decay": [], "activations": []}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if id(parameter) in own:
            parts["activations"].append(parameter)
        elif parameter.ndim <= 1 or name.endswith(".bias") or id(parameter) in exempt:
            parts["no_decay"].append(parameter)
        else:
            parts["weights"].append(parameter)
    if not any(parts.values()):
        raise InputError(
            f"{type(model).__name__} has no trainable parameter; set requires_grad on some before making groups."
        )
    return parts


def activation_parameters(model: nn.Module) -> dict[int, str]:
    """The parameters that belong to activations, by identity, with their names; torch's PReLU counts as one."""
    owners: dict[int, set[bool]] = {}
    names: dict[int, str] = {}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            owners.setdefault(id(parameter), set()).add(isinstance(module, Parameterised | nn.PReLU))
            names.setdefault(id(parameter), f"{path}.{name}" if path else name)
    for key, kinds in owners.items():
        if len(kinds) > 1:
            raise InputError(
                f"The parameter {names[key]!r} belongs to an activation and to another module too, so that it cannot "
                f"be in one group; give the activation a parameter of its own."
            )
    return {key: names[key] for key, kinds in owners.items() if True in kinds}


def check(model: nn.Module, groups: Iterable[Mapping[str, Any]]) -> None:
    """Refuse groups that leave a trainable parameter out or hold one twice."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    seen: dict[int, int] = {}
    for group in groups:
        for parameter in group["params"]:
            seen[id(parameter)] = seen.get(id(parameter), 0) + 1
    _refuse("stands in more than one group", [names.get(key, "(not the model's)") for key, n in seen.items() if n > 1])
    _refuse("is not the model's", ["(unnamed)" for key in seen if key not in names])
    missing = [name for name, p in model.named_parameters() if p.requires_grad and id(p) not in seen]
    _refuse("stands in no group and would never be trained", missing)


def _refuse(what: str, names: Sequence[str]) -> None:
    if names:
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        raise InputError(f"The parameter {names[0]!r}{more} {what}.")


def _exempt(model: nn.Module) -> set[int]:
    """The parameters, by identity, that the model wants no decay for (timm's convention: names, or patterns).

    It speaks of its own names, so that DDP or the compiler around it must not hide it.
    """
    inside = unwrapped(model)
    asked: Any = getattr(inside, "no_weight_decay", lambda: ())
    patterns = [str(name) for name in asked()]
    return {id(p) for name, p in inside.named_parameters() if any(fnmatchcase(name, one) for one in patterns)}
