"""Optimisers over stacked parameters: each replica moves exactly as torch.optim would move it alone.

Every rule is element-wise, so that stacking changes nothing; the rate and the number of steps are tensors on the
device, so that a captured step can be replayed. With one rate for all replicas SGD, Adam and AdamW use torch's fused
kernels, which pass over the memory once; the rules written out here serve everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..errors import ParameterError, did_you_mean, require_number
from ..surgery.groups import LR_SCALE, Group, PairedOptimizer

State = dict[str, list[Tensor]]


@dataclass(frozen=True)
class Kind:
    """An optimiser: torch's class, its options with defaults, the tensors it keeps, its rule, its fused form if any.

    coupled: weight decay is added to the gradient before the rule; else the rule applies it.
    """

    plain: Callable[..., Optimizer]
    options: Mapping[str, Any]
    keeps: Callable[[Mapping[str, Any]], Sequence[str]]
    rule: Callable[..., None]
    fused: Callable[..., None] | None = None
    coupled: bool = True


def _sgd(p: Tensor, g: Tensor, kept: Mapping[str, Tensor], lr: Tensor, age: Tensor, o: Mapping[str, Any]) -> None:
    if o["momentum"]:
        mean = kept["momentum"].mul_(o["momentum"]).add_(g)
        g = g.add(mean, alpha=o["momentum"]) if o["nesterov"] else mean
    p.addcmul_(g, lr, value=-1)


def _adagrad(p: Tensor, g: Tensor, kept: Mapping[str, Tensor], lr: Tensor, age: Tensor, o: Mapping[str, Any]) -> None:
    if o["lr_decay"]:
        lr = (lr / (1 + (age - 1) * o["lr_decay"])).to(lr.dtype)
    total = kept["sum"].addcmul_(g, g)
    p.addcmul_(g / total.sqrt().add_(o["eps"]), lr, value=-1)


def _adamw(p: Tensor, g: Tensor, kept: Mapping[str, Tensor], lr: Tensor, age: Tensor, o: Mapping[str, Any]) -> None:
    if o["weight_decay"]:
        p.mul_(1 - lr * o["weight_decay"])
    _adam(p, g, kept, lr, age, o)


def _adam(p: Tensor, g: Tensor, kept: Mapping[str, Tensor], lr: Tensor, age: Tensor, o: Mapping[str, Any]) -> None:
    first, second = o["betas"]
    mean = kept["mean"].lerp_(g, 1 - first)
    square = kept["square"].mul_(second).addcmul_(g, g, value=1 - second)
    # In float64: 1 - 0.999 has only four digits left in float32.
    steps = age.double()
    corrected = (square.sqrt() / (1 - second**steps).sqrt().to(p.dtype)).add_(o["eps"])
    p.addcmul_(mean / corrected, (lr.double() / (1 - first**steps)).to(p.dtype), value=-1)


def _rmsprop(p: Tensor, g: Tensor, kept: Mapping[str, Tensor], lr: Tensor, age: Tensor, o: Mapping[str, Any]) -> None:
    square = kept["square"].mul_(o["alpha"]).addcmul_(g, g, value=1 - o["alpha"])
    if o["centered"]:
        mean = kept["mean"].lerp_(g, 1 - o["alpha"])
        square = square.addcmul(mean, mean, value=-1)
    move = g / square.sqrt().add_(o["eps"])
    if o["momentum"]:
        move = kept["momentum"].mul_(o["momentum"]).add_(move)
    p.addcmul_(move, lr, value=-1)


def _fused_sgd(p: list[Tensor], g: list[Tensor], kept: State, lr: Tensor, age: Tensor, o: Mapping[str, Any]) -> None:
    torch.ops.aten._fused_sgd_.tensor_lr(
        p,
        g,
        kept.get("momentum", []),
        weight_decay=o["weight_decay"],
        momentum=o["momentum"],
        lr=lr,
        dampening=0.0,
        nesterov=o["nesterov"],
        maximize=False,
        is_first_step=False,  # with a momentum that starts at 0, the first step is one like any other
    )


def _fused_adam(operator: Any) -> Callable[..., None]:
    def step(p: list[Tensor], g: list[Tensor], kept: State, lr: Tensor, age: Tensor, o: Mapping[str, Any]) -> None:
        operator(
            p,
            g,
            kept["mean"],
            kept["square"],
            [],
            [age] * len(p),
            lr=lr,
            beta1=o["betas"][0],
            beta2=o["betas"][1],
            weight_decay=o["weight_decay"],
            eps=o["eps"],
            amsgrad=False,
            maximize=False,
        )

    return step


_ADAM = {"betas": (0.9, 0.999), "eps": 1e-8}
KINDS: dict[str, Kind] = {
    "sgd": Kind(
        torch.optim.SGD,
        {"momentum": 0.0, "nesterov": False, "weight_decay": 0.0},
        lambda o: ("momentum",) if o["momentum"] else (),
        _sgd,
        _fused_sgd,
    ),
    "adagrad": Kind(
        torch.optim.Adagrad,
        {"lr_decay": 0.0, "initial_accumulator_value": 0.0, "eps": 1e-10, "weight_decay": 0.0},
        lambda o: ("sum",),
        _adagrad,
    ),
    "adam": Kind(
        torch.optim.Adam,
        {**_ADAM, "weight_decay": 0.0},
        lambda o: ("mean", "square"),
        _adam,
        _fused_adam(torch.ops.aten._fused_adam_.tensor_lr),
    ),
    "adamw": Kind(
        torch.optim.AdamW,
        {**_ADAM, "weight_decay": 1e-2},
        lambda o: ("mean", "square"),
        _adamw,
        _fused_adam(torch.ops.aten._fused_adamw_.tensor_lr),
        coupled=False,
    ),
    "rmsprop": Kind(
        torch.optim.RMSprop,
        {"alpha": 0.99, "eps": 1e-8, "momentum": 0.0, "centered": False, "weight_decay": 0.0},
        lambda o: ("square", *(["momentum"] if o["momentum"] else []), *(["mean"] if o["centered"] else [])),
        _rmsprop,
    ),
}


@dataclass(frozen=True)
class Own:
    """What moves the parameters of activations where it is not the optimiser of the weights.

    name: of the optimiser, which has torch's own settings.
    rate: stays as it is, whatever the schedule does to that of the weights.
    """

    name: str
    rate: float


@dataclass(frozen=True)
class _Mover:
    """How one group is moved: with its own `rate`, or with a share of the one that a step is given."""

    kind: Kind
    options: Mapping[str, Any]
    fused: bool
    share: float
    rate: Tensor | None


class StackedOptimizer:
    """One optimiser over groups of stacked parameters, each [M, ...]; its state starts at zero.

    Args:
        name: "sgd", "adagrad", "adam", "adamw" or "rmsprop".
        groups: for each group its parameters, its share of the rate (or the optimiser that it has for its own, with its
            rate) and whether weight decay applies.
        options: as torch.optim has them, with its defaults.
        fused: torch's fused kernels; None takes them where there are some.
    """

    def __init__(
        self,
        name: str,
        groups: Sequence[tuple[Sequence[Tensor], float | Own, bool]],
        *,
        options: Mapping[str, Any],
        fused: bool | None = None,
    ) -> None:
        self.name, self.options = name, read_options(name, options)
        self.groups = groups
        self.age = torch.zeros((), dtype=torch.float32, device=groups[0][0][0].device)
        self._movers = [self._mover(share, decays, fused) for _, share, decays in groups]
        self.state: list[State] = [
            {
                key: [torch.full_like(p, mover.options.get("initial_accumulator_value", 0.0)) for p in params]
                for key in mover.kind.keeps(mover.options)
            }
            for (params, _, _), mover in zip(groups, self._movers, strict=True)
        ]

    def _mover(self, share: float | Own, decays: bool, fused: bool | None) -> _Mover:
        on, name, options, rate = self.age.device, self.name, self.options, None
        if isinstance(share, Own):
            name, options = share.name, read_options(share.name, {})
            rate, share = torch.tensor(share.rate, dtype=rate_dtype(on), device=on), 1.0
        kind = KINDS[name]
        takes_fused = fused is not False and kind.fused is not None and on.type in ("cpu", "cuda")
        return _Mover(kind, options if decays else {**options, "weight_decay": 0.0}, takes_fused, share, rate)

    def tensors(self) -> list[Tensor]:
        """Everything that a step changes, except the parameters."""
        return [self.age, *(tensor for state in self.state for kept in state.values() for tensor in kept)]

    @torch.no_grad()
    def step(self, gradients: Sequence[Sequence[Tensor]], lr: Tensor) -> None:
        """Move the parameters; `lr` has one element, or one for each replica."""
        self.age.add_(1)
        for (params, _, _), mover, grads, state in zip(self.groups, self._movers, gradients, self.state, strict=True):
            rate = lr * mover.share if mover.rate is None else mover.rate
            if mover.fused and rate.numel() == 1:
                assert mover.kind.fused is not None
                # The fused kernels walk through parameters and gradients side by side, as they lie in memory.
                alike = [
                    g if g.stride() == p.stride() else torch.empty_like(p).copy_(g)
                    for p, g in zip(params, grads, strict=True)
                ]
                mover.kind.fused(list(params), alike, state, rate.reshape(()), self.age, mover.options)
                continue
            for index, (p, g) in enumerate(zip(params, grads, strict=True)):
                if mover.kind.coupled and mover.options["weight_decay"]:
                    g = g.add(p, alpha=mover.options["weight_decay"])
                shaped = rate.to(p.dtype).reshape(-1, *[1] * (p.dim() - 1))
                kept = {key: each[index] for key, each in state.items()}
                mover.kind.rule(p, g, kept, shaped, self.age, mover.options)


def rate_dtype(device: torch.device) -> torch.dtype:
    """Of a rate. On a GPU torch's fused kernels read float32; some GPUs have no float64 at all."""
    return torch.float64 if device.type == "cpu" else torch.float32


def read_own(name: str | None, rate: float | None, *, lr_scale: float = LR_SCALE) -> Own | None:
    """The optimiser that activation parameters have for their own; None where they have the weights'."""
    if name is None and rate is None:
        return None
    if name is None or rate is None:
        given, missing = ("activation_optimizer", "activation_lr")[:: -1 if name is None else 1]
        raise ParameterError(f"{given} needs {missing}, too: an optimiser and its rate come as a pair.")
    read_options(name, {})
    require_number("fit", "activation_lr", rate, zero=True)
    if lr_scale != LR_SCALE:
        raise ParameterError(
            f"lr_scale={lr_scale!r} is a multiple of the weights' rate, and activation_lr={rate!r} does not depend on "
            "it; leave one of them out."
        )
    return Own(name, float(rate))


def read_options(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of that optimiser, completed; unknown ones and impossible values are refused with a sentence."""
    if name not in KINDS:
        near = did_you_mean(name, KINDS) or f" Known are {', '.join(KINDS)}."
        raise ParameterError(f"There is no optimiser called {name!r} for replicas.{near}")
    known = KINDS[name].options
    for key in given:
        if key not in known:
            near = did_you_mean(key, known) or f" It has {', '.join(known)}."
            raise ParameterError(f"The optimiser {name!r} has no option {key!r}.{near}")
    options = {**known, **given}
    for key, value in options.items():
        if key == "betas":
            options[key] = value = tuple(value)
            fits = len(value) == 2 and all(isinstance(b, int | float) and 0 <= b < 1 for b in value)
            words = "two numbers in [0, 1)"
        elif isinstance(known[key], bool):
            fits, words = isinstance(value, bool), "True or False"
        else:
            fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
            words = "a finite number of at least 0"
        if not fits:
            raise ParameterError(f"The optimiser {name!r}: {key} must be {words}, and {value!r} was given.")
    if options.get("nesterov") and not options["momentum"]:
        raise ParameterError("The optimiser 'sgd': nesterov=True needs a momentum above 0.")
    return options


# -- torch's own optimisers over the groups of one model --------------------------------------------------
#
# One of them, or a pair where activations have their own.


def make_optimizer(groups: Sequence[Group], name: str, options: Mapping[str, Any], own: Own | None) -> Optimizer:
    """What moves these groups, which `param_groups` made and of which none is empty.

    own: moves the group "activations" where it is there; the optimiser called `name` moves the others, or all.
    """
    apart = [{**group, "lr": own.rate} for group in groups if own is not None and group["name"] == "activations"]
    others = [group for group in groups if not apart or group["name"] != "activations"]
    made = [KINDS[name].plain(others, lr=1.0, **options)] if others else []
    if own is not None and apart:
        made.append(KINDS[own.name].plain(apart, lr=own.rate))
    return made[0] if len(made) == 1 else PairedOptimizer(*made)


def parts_of(optimizer: Optimizer) -> list[Optimizer]:
    """Those that keep something for their parameters: the two of a pair, or the optimiser itself."""
    return list(optimizer.pair.values()) if isinstance(optimizer, PairedOptimizer) else [optimizer]
