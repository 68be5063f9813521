"""The activations of softknee inside a model, in order of depth."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from ..nn.parameters import Parameterised, require_model


def activation_modules(model: nn.Module) -> dict[str, Parameterised]:
    """Every softknee module of a model by its path, in order of depth; a shared one once.

    The order is that of registration, unless one swap put all of them in place and saw the order of execution: a module
    that took the place of a call is registered last wherever it is called.

    >>> import softknee as sk, torch
    >>> from softknee.surgery.modules import activation_modules
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 8), sk.nn.SReLU(), torch.nn.Linear(8, 1))
    >>> activation_modules(net)
    {'1': SReLU(delta=0.01)}
    """
    require_model(model)
    found = {path: module for path, module in model.named_modules() if isinstance(module, Parameterised)}
    depths = [vars(module).get(_DEPTH) for module in found.values()]
    if None in depths or len(set(depths)) != len(depths):
        return found
    return dict(sorted(found.items(), key=lambda one: vars(one[1])[_DEPTH]))


def number_by_depth(modules: Iterable[nn.Module]) -> None:
    """Remember the order in which modules are applied."""
    for depth, module in enumerate(modules):
        vars(module)[_DEPTH] = depth


_DEPTH = "_softknee_depth"
