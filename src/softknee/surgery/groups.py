"""Optimiser groups, the parameters of activations apart from the weights, and two optimisers as one.

A width or a hardness is not a weight: decay pulls it to 0, which for a width is not small but hard, and it needs a
larger step than weights do (the lambda-GELU paper: nine times). Weights are grouped as timm does it: no decay for
biases, for vectors (norms) and for what the model itself names in `no_weight_decay()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ..errors import InputError, require_number
from ..nn.parameters import Parameterised, require_model
from .modules import unwrapped

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
        require_number("param_groups", name, value, zero=True)
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
    no_weight_decay: Any = getattr(inside, "no_weight_decay", lambda: ())
    patterns = [str(name) for name in no_weight_decay()]
    return {id(p) for name, p in inside.named_parameters() if any(fnmatchcase(name, pattern) for pattern in patterns)}


Maker = Callable[[list[Group]], Optimizer]
_PARTS = ("weights", "activations")


def optimizers(model: nn.Module, *, weights: Maker, activations: Maker) -> PairedOptimizer:
    """One optimiser for the weights and another for the activations' parameters, used like one.

    Each is a function of groups: `weights` gets the weights and, without decay, biases and norms; `activations` gets
    the parameters of the activations, without decay.

    >>> import softknee as sk, torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 8), sk.nn.SReLU(learn=True), torch.nn.Linear(8, 1))
    >>> both = sk.optimizers(net, weights=lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9),
    ...                      activations=lambda groups: torch.optim.Adam(groups, lr=0.001))
    >>> net(torch.ones(4, 2)).sum().backward(); both.step(); both.zero_grad()
    >>> [(group["name"], group["lr"]) for group in both.param_groups]
    [('weights', 0.1), ('no_decay', 0.1), ('activations', 0.001)]
    """
    require_model(model, "optimizers")
    parts = split(model)
    if not parts["activations"]:
        raise InputError(
            f"{type(model).__name__} has no trainable parameter in an activation; use one optimiser for it, or make "
            f"the activations with learn=..."
        )
    plain: list[Group] = [{"name": "weights", "params": parts["weights"]}] if parts["weights"] else []
    if parts["no_decay"]:
        plain.append({"name": "no_decay", "params": parts["no_decay"], "weight_decay": 0.0})
    if not plain:
        raise InputError(f"Only activations of {type(model).__name__} are trainable; use one optimiser for them.")
    own: list[Group] = [{"name": "activations", "params": parts["activations"], "weight_decay": 0.0}]
    pair = _made("weights", weights, plain), _made("activations", activations, own)
    check(model, [group for optimizer in pair for group in optimizer.param_groups])
    return PairedOptimizer(*pair)


def _made(name: str, maker: Any, groups: list[Group]) -> Optimizer:
    if not callable(maker):
        raise InputError(
            f"optimizers: {name} must be a function of groups that makes an optimiser, such as lambda groups: "
            f"torch.optim.SGD(groups, lr=0.1), and {type(maker).__name__} was given."
        )
    return _optimizer(name, maker(groups))


def _optimizer(name: str, optimizer: Any) -> Optimizer:
    if not isinstance(optimizer, Optimizer):
        raise InputError(f"optimizers: {name} must make a torch Optimizer, and made a {type(optimizer).__name__}.")
    return optimizer


class PairedOptimizer(Optimizer):
    """Steps, clears, saves and loads two optimisers together. Its groups are theirs, so schedulers reach both.

    Its state has one entry for each of the two, and not the form that torch.distributed.checkpoint.state_dict reads
    (`get_optimizer_state_dict(model, both)` stops with KeyError: 'state'). Those functions take several optimisers,
    so give them the pair:

        from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

        state = get_optimizer_state_dict(model, list(both.pair.values()))
        set_optimizer_state_dict(model, list(both.pair.values()), state)
    """

    def __init__(self, weights: Optimizer, activations: Optimizer) -> None:
        self.pair = {
            name: _optimizer(name, optimizer) for name, optimizer in zip(_PARTS, (weights, activations), strict=True)
        }
        super().__init__([{**group, "params": list(group["params"])} for group in self._groups()], {})

    @property
    def param_groups(self) -> list[Group]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The groups of both as they are now: loading makes new ones, also where one of the pair is loaded alone."""
        return self._groups() if hasattr(self, "_joined") else self._first_groups

    @param_groups.setter
    def param_groups(self, groups: list[Group]) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._first_groups = groups  # torch's own, which it fills while it is built

    def _groups(self) -> list[Group]:
        return [group for optimizer in self.pair.values() for group in optimizer.param_groups]

    def __getstate__(self) -> dict[str, Any]:
        # torch's own keeps the groups and drops the rest, and a copy could not step.
        return super().__getstate__() | {"pair": self.pair, "_joined": True}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of both. A closure is evaluated once, before either."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for optimizer in self.pair.values():
            optimizer.step()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        for optimizer in self.pair.values():
            optimizer.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        return {name: optimizer.state_dict() for name, optimizer in self.pair.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if set(state_dict) != set(_PARTS):
            raise InputError(
                f"The state of a paired optimiser has the entries {' and '.join(_PARTS)}, and this one has "
                f"{', '.join(sorted(map(str, state_dict))) or 'none'}; it was saved by another optimiser."
            )
        before = self.state_dict()
        try:
            for name, optimizer in self.pair.items():
                optimizer.load_state_dict(state_dict[name])
        except Exception:
            for name, optimizer in self.pair.items():  # all or nothing
                optimizer.load_state_dict(before[name])
            raise

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if hasattr(self, "_joined"):
            raise InputError("A paired optimiser takes no more groups; add the group to one of its `pair`.")
        super().add_param_group(param_group)
        if len(self.param_groups) == len(self._groups()):
            self._joined = True
