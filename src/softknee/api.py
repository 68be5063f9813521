"""The functions of the front page. They import what they need when called: SymPy alone takes 0.35 s."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import registry, zoo  # noqa: F401 - importing the zoo announces its names

if TYPE_CHECKING:
    from torch import Tensor

    from .kernels import Choice


def get(name: str) -> Any:
    """The definition of an activation.

    >>> import softknee as sk, torch
    >>> act = sk.get("srelu")
    >>> act.derivative(1)(torch.tensor([0.0]), delta=0.1)
    tensor([0.5000])
    """
    from .kernels import find

    return find(name)


def names() -> tuple[str, ...]:
    """Every name there is: the zoo's, those of installed packages, and those registered here."""
    return registry.names()


def register(activation: Any, *, replace: bool = False) -> Any:
    """Make a definition of your own available everywhere a name is; returns it."""
    from . import kernels  # noqa: F401 - a definition computes itself only once the kernels are there

    return registry.register(activation, replace=replace)


def explain(what: Any, x: Tensor) -> Choice:
    """Say which path a module or a definition takes on this tensor, and why."""
    from .nn import explain

    return explain(what, x)
