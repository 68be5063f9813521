"""Two optimisers as one: weights with one rule, activations with another (the SQUAF paper: SGD and Adam)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ..errors import InputError
from ..nn.parameters import require_model
from .groups import Group, check, split

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
    check(model, [group for one in pair for group in one.param_groups])
    return PairedOptimizer(*pair)


def _made(name: str, maker: Any, groups: list[Group]) -> Optimizer:
    if not callable(maker):
        raise InputError(
            f"optimizers: {name} must be a function of groups that makes an optimiser, such as lambda groups: "
            f"torch.optim.SGD(groups, lr=0.1), and {type(maker).__name__} was given."
        )
    return _optimizer(name, maker(groups))


def _optimizer(name: str, one: Any) -> Optimizer:
    if not isinstance(one, Optimizer):
        raise InputError(f"optimizers: {name} must make a torch Optimizer, and made a {type(one).__name__}.")
    return one


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
        self.pair = {name: _optimizer(name, one) for name, one in zip(_PARTS, (weights, activations), strict=True)}
        super().__init__([{**group, "params": list(group["params"])} for group in self._groups()], {})

    @property
    def param_groups(self) -> list[Group]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The groups of both as they are now: loading makes new ones, also where one of the pair is loaded alone."""
        return self._groups() if hasattr(self, "_joined") else self._first_groups

    @param_groups.setter
    def param_groups(self, groups: list[Group]) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._first_groups = groups  # torch's own, which it fills while it is built

    def _groups(self) -> list[Group]:
        return [group for one in self.pair.values() for group in one.param_groups]

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
        for one in self.pair.values():
            one.step()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        for one in self.pair.values():
            one.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        return {name: one.state_dict() for name, one in self.pair.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if set(state_dict) != set(_PARTS):
            raise InputError(
                f"The state of a paired optimiser has the entries {' and '.join(_PARTS)}, and this one has "
                f"{', '.join(sorted(map(str, state_dict))) or 'none'}; it was saved by another optimiser."
            )
        before = self.state_dict()
        try:
            for name, one in self.pair.items():
                one.load_state_dict(state_dict[name])
        except Exception:
            for name, one in self.pair.items():  # all or nothing
                one.load_state_dict(before[name])
            raise

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if hasattr(self, "_joined"):
            raise InputError("A paired optimiser takes no more groups; add the group to one of its `pair`.")
        super().add_param_group(param_group)
        if len(self.param_groups) == len(self._groups()):
            self._joined = True
