"""What a hardener is given, read and refused: each refusal a sentence, before anything is changed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from numbers import Integral
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ...errors import ParameterError
from .sites import HardeningSite, Knobs, modules_by_path


def free_steps(name: str, given: Any, total: int) -> int:
    """How many epochs train freely: a share of all as a float, their number as an int. At least one must be left."""
    if isinstance(given, Integral) and not isinstance(given, bool) and 0 <= int(given) < total:
        return int(given)
    if isinstance(given, float) and 0 <= given < 1:
        # The decimal that was written: 0.29 of 100 are 29, and not 28 because the nearest float is a little less. A
        # float of NumPy is a float, too, and writes itself in another way.
        return math.floor(Fraction(repr(float(given))) * total)
    words = "" if name == "latest" else ", or 'plateau'"
    raise ParameterError(
        f"Hardener: {name} must be a share below 1, such as 0.25, or a whole number below total={total}{words}, and "
        f"{given!r} was given."
    )


def metric_number(given: Any) -> float:
    try:
        return float(given)
    except (TypeError, ValueError):
        raise ParameterError(f"Hardener: metric must be a number, and {type(given).__name__} was given.") from None


def agreed(targets: dict[str, Knobs]) -> dict[str, Knobs]:
    """With several processes, what the first one found: each has seen other data."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1):
        return targets
    shared: list[Any] = [targets]
    distributed.broadcast_object_list(shared, src=0)
    return shared[0]


def innermost(optimizer: Any) -> Optimizer:
    """The optimiser that steps, inside of what Accelerate put around it, which takes no hooks."""
    inside = optimizer
    while isinstance(getattr(inside, "optimizer", None), Optimizer):
        inside = inside.optimizer
    if not isinstance(inside, Optimizer):
        raise ParameterError(
            f"Hardener.attach takes a torch optimiser, and {type(optimizer).__name__} was given; call step() before "
            f"each of its steps instead."
        )
    return inside


def some(paths: tuple[str, ...]) -> str:
    return ", ".join(map(repr, paths[:3])) + (", ..." if len(paths) > 3 else "")


def refuse_replaced(model: nn.Module, sites: Iterable[HardeningSite]) -> None:
    """Refuse a model whose activations were changed since the hardener was made."""
    found = modules_by_path(model)
    for site in sites:
        if found.get(site.path) is not site.module:
            raise ParameterError(
                f"Hardener: the activation at {site.path!r} is not the one that the hardener was made for; make the "
                f"hardener after the surgery on the model."
            )


def refuse_zero(targets: dict[str, Knobs]) -> None:
    """A geometric way to 0 has no end."""
    for path, knobs in targets.items():
        if any(bool((one == 0).any()) for one in knobs.values()):
            raise ParameterError(
                f"Hardener: a geometric schedule never arrives at 0, the target at {path!r}; take 'linear' or 'cosine'."
            )


def refuse_other_sign(begin: dict[str, Knobs], targets: dict[str, Knobs]) -> None:
    """A geometric way does not lead through 0."""
    for path, knobs in begin.items():
        for name, one in knobs.items():
            if bool((one * targets[path][name] < 0).any()):
                raise ParameterError(
                    f"Hardener: a geometric schedule cannot take {name} at {path!r} through 0 to a target of the other "
                    f"sign; take 'linear' or 'cosine'."
                )
