r"""The widths that an ensemble learns: one value for all its models at each activation, and their order along depth.

A width is the parameter that makes an activation soft: the knob of its definition, such as beta of SmeLU (larger is
wider) or of Swish (smaller is wider). A positive one is learned as start * exp(theta), theta from 0: no step leaves the
constraint, a step means the same for a width of 0.01 and of 1, and the start is exact. Other parameters are learned as
their constraint says.

`wider_first` keeps activations nearer the input at least as wide as those behind them: after each step the thetas are
moved to the nearest ones in that order (least squares on log widths, solved exactly by pooling neighbours that violate
it). The paper holds that reproducibility hangs on layers that control rich sets of parameters, those at the input, and
that layers near the output can then be left to accuracy (section 4); it gives no rule, so the mildest is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...errors import InputError, ParameterError, did_you_mean
from ...nn.parameters import Held, Parameterised
from ...spec.constraints import NARROWEST, WIDEST, AtLeastOne, Positive
from ...surgery.modules import activation_modules


@dataclass(frozen=True)
class Width:
    """One learned parameter of one activation. `narrows`: it hardens as it grows (1), as it falls (-1), or neither."""

    key: str
    family: tuple[str, str]
    param: Held
    narrows: int
    start: Tensor


class Widths:
    """Every learned width of a model by "path.name" (the name of its buffer), in order of depth."""

    def __init__(
        self, model: nn.Module, *, learn: str | Iterable[str] | None, wider_first: bool, device: torch.device
    ) -> None:
        self.all = {one.key: one for one in find_widths(model, learn)}
        self.anchors: dict[str, Tensor] = {}
        self.raw: dict[str, Tensor] = {}
        for key, one in self.all.items():
            start = one.start.to(device)
            positive = isinstance(one.param.constraint, Positive)
            self.anchors[key] = start.clone() if positive else one.param.constraint.anchor(start)
            self.raw[key] = torch.zeros_like(start) if positive else one.param.constraint.raw(start)
        self.orders = self._orders() if wider_first else []
        self.order_()

    def values(self, raw: dict[str, Tensor] | None = None) -> dict[str, Tensor]:
        """The widths, differentiable in the raw values."""
        found = {}
        for key, value in (self.raw if raw is None else raw).items():
            constraint, anchor = self.all[key].param.constraint, self.anchors[key]
            if isinstance(constraint, Positive):
                found[key] = (anchor * value.exp()).clamp(NARROWEST, WIDEST)
            else:
                found[key] = constraint.lift(value, anchor) if constraint.lifted else value
        return found

    @torch.no_grad()
    def order_(self) -> None:
        """Move the raw values to the nearest ones in which no activation is wider than one before it."""
        for keys in self.orders:
            sign = -self.all[keys[0]].narrows
            now = [self._place(key) for key in keys]
            for key, old, new in zip(keys, now, falling([sign * one for one in now]), strict=True):
                if sign * new != old:  # what is in order keeps its bits
                    self.raw[key].copy_(torch.as_tensor(self._raw_at(key, sign * new)))

    def _place(self, key: str) -> float:
        """A number that grows with the parameter, comparable between activations of a family."""
        raw, anchor = self.raw[key].double(), self.anchors[key].double()
        positive = isinstance(self.all[key].param.constraint, Positive)
        return float(raw + anchor.log() if positive else raw / anchor)

    def _raw_at(self, key: str, place: float) -> float:
        anchor = float(self.anchors[key].double())
        return place - math.log(anchor) if isinstance(self.all[key].param.constraint, Positive) else place * anchor

    def _orders(self) -> list[list[str]]:
        families: dict[tuple[str, str], list[str]] = {}
        for key, one in self.all.items():
            if one.narrows and isinstance(one.param.constraint, Positive | AtLeastOne):
                if one.start.numel() != 1:
                    raise ParameterError(
                        f"wider_first compares one width for each activation, and {key!r} has {one.start.numel()}; "
                        "build the activations with one value per layer, or leave wider_first out."
                    )
                families.setdefault(one.family, []).append(key)
        found = [keys for keys in families.values() if len(keys) > 1]
        if not found:
            raise ParameterError("wider_first orders the widths of equal activations by depth, and no two are there.")
        return found


def find_widths(model: nn.Module, learn: str | Iterable[str] | None) -> list[Width]:
    """The parameters of these names in every activation that has them; the knob of each for None."""
    modules = activation_modules(model)
    asked = None if learn is None else [learn] if isinstance(learn, str) else list(learn)
    found = [
        _width(path, module, p)
        for path, module in modules.items()
        for p in module.params
        if p.name in (_knobs(module) if asked is None else asked)
    ]
    known = sorted({p.name for module in modules.values() for p in module.params})
    missing = [name for name in asked or () if name not in known]
    if missing or not found:
        what = f"a parameter {missing[0]!r}" if missing else "a width to learn"
        near = did_you_mean(missing[0], known) if missing else ""
        has = f"parameters {', '.join(known)}" if known else "no parameter"
        raise ParameterError(f"No activation of {type(model).__name__} has {what}; its activations have {has}.{near}")
    return found


def _knobs(module: Parameterised) -> Sequence[str]:
    return getattr(getattr(module, "definition", None), "knobs", ())


def _width(path: str, module: Parameterised, p: Held) -> Width:
    key = f"{path}.{p.name}" if path else p.name
    if p.name in module.learned:
        raise InputError(
            f"{key!r} is learned by the model itself; build the activation with {p.name} fixed (without learn=), so "
            "that the ensemble can learn it, and models retrained with what it found keep it."
        )
    start = module.effective(p).detach().clone()
    for one in start.double().flatten().tolist():
        if not p.constraint.allows_learned(one):
            raise ParameterError(f"To be learned, {key} must start at {p.constraint.learned_words}, and it is {one!r}.")
    narrows = 0
    if p.name in _knobs(module):
        definition = getattr(module, "definition", None)
        narrows = -1 if getattr(definition, "toward", 0.0) == 0 else 1
    return Width(key, (module.title, p.name), p, narrows, start)


def falling(values: Sequence[float]) -> list[float]:
    """The nearest non-increasing sequence, in least squares: neighbours in the wrong order are pooled into their mean.

    >>> falling([3.0, 1.0, 2.0, 0.0])
    [3.0, 1.5, 1.5, 0.0]
    """
    blocks: list[tuple[float, int]] = []
    for value in values:
        mean, count = value, 1
        while blocks and blocks[-1][0] < mean:
            before, size = blocks.pop()
            mean, count = (before * size + mean * count) / (size + count), size + count
        blocks.append((mean, count))
    return [mean for mean, count in blocks for _ in range(count)]


def widths_by_depth(model: nn.Module, *, first: float, last: float, name: str | None = None) -> dict[str, float]:
    """Widths that go from `first` at the input to `last` at the output by equal factors: a start, or fixed ones.

    Args:
        model: with softknee activations, in order of depth.
        first, last: values of the parameter, above 0; a single activation gets `first`.
        name: of the parameter; left out, the knob of each activation.

    The keys are those of the knobs of `sk.train.Replicas`, which takes a value for each replica.

    >>> import softknee as sk, torch
    >>> act, linear = sk.nn.SmeLU, torch.nn.Linear
    >>> net = torch.nn.Sequential(linear(2, 8), act(), linear(8, 8), act(), linear(8, 8), act(), linear(8, 2))
    >>> sk.train.widths_by_depth(net, first=2.0, last=0.5)
    {'1.beta': 2.0, '3.beta': 1.0, '5.beta': 0.5}
    """
    for one in (first, last):
        if isinstance(one, bool) or not isinstance(one, int | float) or not 0 < one < math.inf:
            raise ParameterError(f"widths_by_depth: first and last must be finite numbers above 0, and {one!r} is not.")
    keys = [one.key for one in find_widths(model, name)]
    depths = list(dict.fromkeys(key.rpartition(".")[0] for key in keys))
    place = {path: index / max(1, len(depths) - 1) for index, path in enumerate(depths)}
    return {key: float(first * (last / first) ** place[key.rpartition(".")[0]]) for key in keys}
