"""How a SQUAF of a study starts, and where it is trained: what the settings of its paper need beside its parameters."""

from __future__ import annotations

from torch import nn

import softknee as sk

from ...errors import RecipeError
from ...surgery.squaf_training import PARTS
from .trial import Chosen


def start_squaf_(model: nn.Module, chosen: Chosen) -> None:
    """Fit every SQUAF to the function that `fitted` names, and freeze those that `trained` leaves out; else nothing.

    >>> net = nn.Sequential(sk.nn.SQUAF(k=16, q=1.0, learn=True), nn.Linear(2, 2), sk.nn.SQUAF(k=16, q=1.0, learn=True))
    >>> start_squaf_(net, Chosen(name="squaf", label="squaf", learn=True, fitted="relu", trained="first"))
    >>> round(net[0].z[0, 16].item(), 3), sum(one.numel() for one in net.parameters() if one.requires_grad)
    (-0.139, 41)
    """
    if chosen.fitted is None and chosen.trained is None:
        return
    layers = [one for one in model.modules() if isinstance(one, sk.nn.SQUAF)]
    if chosen.fitted is not None:
        for one in layers:
            if one.k is None or one.q.numel() > 1:
                raise RecipeError(f"activation {chosen.label!r}: fitted is for one table a layer on a uniform grid.")
            found = sk.design.start(chosen.fitted, k=one.k, q=one.q.item(), weights=one.weights, window=one.window)
            one.set_(z=found.z, alpha=found.alpha)
    if chosen.trained is not None:
        parts = PARTS if chosen.learn is True else (chosen.learn,) if isinstance(chosen.learn, str) else chosen.learn
        sk.train_squaf_(model, parts or (), where=chosen.trained)
