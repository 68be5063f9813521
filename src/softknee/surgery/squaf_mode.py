"""Every SQUAF of a model switched between its three modes at once."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from ..errors import InputError, ParameterError
from ..nn.parameters import require_model
from ..nn.squaf import SQUAF
from ..nn.squaf_modes import class_in_mode
from .modules import activation_modules


@dataclass(frozen=True)
class SquafMode:
    """What `squaf_mode_` did: the mode, the paths of all SQUAF layers, and how many of them had another mode."""

    mode: str
    paths: tuple[str, ...]
    switched: int

    @property
    def count(self) -> int:
        """How many SQUAF layers there are."""
        return len(self.paths)

    def __str__(self) -> str:
        return (
            f"{self.count} SQUAF layer{'s' * (self.count != 1)} in the mode {self.mode!r} ({self.switched} switched): "
            f"{', '.join(self.paths)}"
        )


def squaf_mode_(model: nn.Module, mode: str) -> SquafMode:
    """Make every SQUAF of a model "soft" (SQUAF), "sampled" (SQUAF-P) or "step" (SQUAF-S), in place.

    The modules stay the same objects with the same parameters, names, hooks and optimiser state: train in one mode,
    evaluate in another, and switch back. A compiled model notices. All or nothing.

    >>> import softknee as sk, torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), sk.nn.SQUAF(k=4, learn=True), torch.nn.Linear(8, 2))
    >>> print(sk.squaf_mode_(net, "sampled"))
    1 SQUAF layer in the mode 'sampled' (1 switched): 1
    >>> type(net[1]).__name__
    'SQUAFP'
    """
    require_model(model, "squaf_mode_")
    found = {path: one for path, one in activation_modules(model).items() if isinstance(one, SQUAF)}
    if not found:
        raise InputError(
            f"squaf_mode_: {type(model).__name__} has no SQUAF layer to switch; put them in with "
            "sk.swap_(model, 'squaf') first."
        )
    classes: dict[str, type[SQUAF]] = {}
    for path, module in found.items():
        try:
            classes[path] = class_in_mode(module, mode)
        except ParameterError as error:
            raise ParameterError(f"squaf_mode_: {path or 'the model'}: {error} Nothing was changed.") from None
    switched = sum(type(found[path]) is not cls for path, cls in classes.items())
    for path, cls in classes.items():
        found[path].__class__ = cls
    return SquafMode(mode, tuple(found), switched)
