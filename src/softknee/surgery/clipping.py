r"""Activations clipped to [-c, c]: f(x) becomes min(max(f(x), -c), c), as ReLU6 clips ReLU.

Networks clip large activations to keep their numbers in range. Where nothing else does that, clipping puts two kinks
into every smooth function, one at each end, and the kinks come back that a smooth knee was to take away; rows of fixed
norm (`sk.nn.row_norm`) keep pre-activations small, so that few of them reach the ends.

Reference: Shamir, Lin and Coviello, Smooth activations and reproducibility in deep networks, appendix A and figure 5,
where activations are clipped to [-6, 6].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ..errors import InputError, require_choice, require_number
from ..nn.parameters import require_model
from .finding.identify import GATES
from .finding.sites import Site, sites
from .swapping.swap import choose

SIDES = ("output", "input")


@dataclass(frozen=True)
class Clipping:
    """What `clip_activations_` did: the paths of the activations, and where they are clipped.

    `remove_()` takes it away again.
    """

    paths: tuple[str, ...]
    limit: float
    side: str
    modules: tuple[nn.Module, ...] = field(repr=False, compare=False)

    def remove_(self) -> None:
        """Make every activation what it was before; one that is clipped no more is passed over."""
        for module in self.modules:
            if isinstance(module, Clipped) and type(module) not in _CLASSES.values():
                raise InputError(
                    f"A clipped {module.clip_kind.__name__} was given another class since; undo that first. "
                    "Nothing was changed."
                )
        for module in self.modules:
            if isinstance(module, Clipped):
                module.__class__ = module.clip_kind
                for name in ("clip_limit", "clip_side"):
                    del vars(module)[name]


class Clipped(nn.Module):
    """What a clipped activation's class has before its own; its tensors and their names stay as they are."""

    clip_kind: type  # of the activation itself
    clip_limit: float
    clip_side: str

    def forward(self, input: Any, *others: Any, **named: Any) -> Tensor:
        limit = self.clip_limit
        if self.clip_side == "input":
            return super().forward(input.clamp(-limit, limit), *others, **named)  # pyright: ignore
        return super().forward(input, *others, **named).clamp(-limit, limit)  # pyright: ignore

    def extra_repr(self) -> str:
        inner = super().extra_repr()
        return f"{inner}{', ' if inner else ''}{self.clip_side} in [-{self.clip_limit:g}, {self.clip_limit:g}]"

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # Nobody can look this class up by its name; the class of the activation itself they can.
        return _blank, (self.clip_kind,), self.__dict__


def clip_activations_(
    model: nn.Module,
    *,
    limit: float = 6.0,
    side: str = "output",
    where: str | Iterable[str] | Callable[[Site], bool] | None = None,
    example: Any = None,
) -> Clipping:
    """Clip what the activations of a model give (or are given) to [-limit, limit], from now on.

    Args:
        limit: the largest absolute value.
        side: "output" clips f(x), "input" clips x. For ReLU, SmeLU and S-ReLU (width at most `limit`) and for no
            activation at all the two are the same function; for GELU and Swish they differ a little.
        where: a pattern for the paths of the activations, several, or a function of a Site; left out, all of them.
        example: what the model is called with, to be told of activations that are called as functions inside forward.
            Those cannot be clipped; `sk.swap_` makes modules of them first.

    Activations are modules of softknee, of torch or of your own, as `sk.sites` finds them, except gates (sigmoid, tanh
    and the like), which are bounded already. Parameters, buffers and their names stay the same, so that checkpoints fit
    before and after; a compiled model notices. All or nothing. A swap puts in what is not clipped: clip after it.

    >>> import softknee as sk, torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), sk.nn.SmeLU(beta=1.0), torch.nn.Linear(8, 2))
    >>> done = sk.surgery.clip_activations_(net, limit=6.0)
    >>> done.paths, net[1](torch.tensor([-9.0, 0.0, 5.0, 9.0]))
    (('1',), tensor([0.0000, 0.2500, 5.0000, 6.0000]))
    >>> done.remove_()
    >>> net[1](torch.tensor([9.0]))
    tensor([9.])
    """
    require_model(model, "clip_activations_")
    require_number("clip_activations_", "limit", limit)
    require_choice("clip_activations_", "side", side, SIDES)
    chosen = _chosen(model, where, example)
    modules = {id(site.place.old): site.place.old for site in chosen}
    for module in modules.values():
        # A hook would be simpler, but compiled code does not look for new hooks, and would go on without.
        module.__class__ = _class_of(type(module))
        vars(module).update(clip_limit=float(limit), clip_side=side)
    return Clipping(tuple(site.path for site in chosen), float(limit), side, tuple(modules.values()))


def _chosen(model: nn.Module, where: Any, example: Any) -> list[Site]:
    title = type(model).__name__
    candidates = [site for site in sites(model, example) if site.activation not in GATES]
    if not candidates:
        raise InputError(
            f"clip_activations_: {title} has no activation to clip. Activations that are called as "
            "functions inside forward become modules by sk.swap_(model, ..., example=...)."
        )
    chosen, skipped = choose(candidates, where=where, replacing=None, example=example is not None, title=title)
    for site in chosen:
        name = f"{site.path} ({site.function})"
        if site.kind != "module":
            raise InputError(
                f"clip_activations_: {name} is a function that {site.owner or 'the model'} calls; put a module in its "
                "place with sk.swap_, or leave it out with where=. Nothing was changed."
            )
        if isinstance(site.place.old, Clipped):
            raise InputError(
                f"clip_activations_: {name} is clipped already; remove_() that first. Nothing was changed."
            )
    troubled = [site for site, _ in skipped if site.trouble and site.kind == "module"]
    if troubled:
        raise InputError(
            f"clip_activations_: {troubled[0].path} cannot be changed: {troubled[0].trouble}. Nothing was changed."
        )
    return chosen


# One class for each kind of activation: a class per module would make the compiler compile each for itself.
_CLASSES: dict[type, type] = {}


def _class_of(kind: type) -> type:
    if kind not in _CLASSES:
        _CLASSES[kind] = type(f"Clipped{kind.__name__}", (Clipped, kind), {"clip_kind": kind})
    return _CLASSES[kind]


def _blank(kind: type) -> nn.Module:
    made: Any = _class_of(kind)
    return made.__new__(made)
