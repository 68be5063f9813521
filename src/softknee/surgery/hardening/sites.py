"""The activations that a hardener moves: which they are, what their knobs are now, and how they are frozen."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ...errors import InputError, ParameterError, did_you_mean
from ...nn.module import Pointwise
from ...nn.parameters import require_model
from ..modules import activation_modules, read_where
from .limits import definition_of, is_hard, why_no_limit

Where = str | Iterable[str] | Callable[[str, nn.Module], bool] | None
Knobs = dict[str, Tensor]

# What wrappers put between a model and its parts.
_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


@dataclass(frozen=True)
class HardeningSite:
    """One activation whose knob is moved."""

    path: str
    module: Pointwise

    @property
    def knobs(self) -> tuple[str, ...]:
        return self.module.definition.knobs

    @property
    def toward(self) -> float:
        return float(self.module.definition.toward)

    def now(self) -> Knobs:
        """The effective knobs, in float64 on the CPU."""
        return {name: getattr(self.module, name).detach().double().cpu().clone() for name in self.knobs}

    def softness(self, knobs: Knobs) -> Knobs:
        """How far each knob is from where it hardens: above 0, and the harder the smaller."""
        if math.isinf(self.toward):
            return {name: (1 / value).where(value > 0, math.inf) for name, value in knobs.items()}
        return {name: (value - self.toward).abs() for name, value in knobs.items()}

    def scaled(self, knobs: Knobs, scale: Tensor | float) -> Knobs:
        """The knobs with their softness multiplied, all of a site together."""
        if math.isinf(self.toward):
            return {name: value / scale for name, value in knobs.items()}
        return {name: self.toward + (value - self.toward) * scale for name, value in knobs.items()}

    def harder(self, knobs: Knobs, begin: Knobs) -> Knobs:
        """Of each knob the harder one, element by element: nothing is ever softened."""
        asked, had = self.softness(knobs), self.softness(begin)
        return {name: knobs[name].where(asked[name] < had[name], begin[name]) for name in self.knobs}

    def check(self, name: str, values: Tensor) -> None:
        """Refuse targets that the knob may not take."""
        constraint = next(p.constraint for p in self.module.params if p.name == name)
        learned = name in self.module.learned
        allows = constraint.allows_learned if learned else constraint.allows
        for one in values.flatten().tolist():
            if not allows(one):
                words = constraint.learned_words if learned else constraint.words
                raise ParameterError(
                    f"Hardener: the target of {name} at {self.path!r} must be {words}, and {one!r} was given or asked "
                    "for by the tolerance."
                )

    def set_(self, knobs: Knobs) -> None:
        """Write effective knobs in place."""
        # One number goes as a number: a fixed knob has one value even in a module with channels.
        plain = {name: value.item() if value.numel() == 1 else value for name, value in knobs.items()}
        self.module.set_(**plain)

    @torch.no_grad()
    def copy_to(self, module: Pointwise) -> None:
        """Give a copy of the module the same knobs, as they are stored: averaging equal numbers changes nothing."""
        for ours, theirs in zip(_stored(self.module, self.knobs), _stored(module, self.knobs), strict=True):
            theirs.copy_(ours)

    def parameters(self) -> list[nn.Parameter]:
        """The trained tensors behind the knobs, raw ones where a constraint is kept."""
        own = dict(self.module.named_parameters(recurse=False))
        return [own[stored] for name in self.knobs for stored in (f"raw_{name}", name) if stored in own]


def _stored(module: Pointwise, knobs: Iterable[str]) -> list[Tensor]:
    """What a module keeps for its knobs: a raw value and its anchor, or the value itself."""
    own = {**dict(module.named_parameters(recurse=False)), **dict(module.named_buffers(recurse=False))}
    return [own[one] for name in knobs for one in (f"raw_{name}", f"anchor_{name}", name) if one in own]


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside of what DDP, averaging or the compiler put around it."""
    require_model(model)
    while True:
        children = dict(model.named_children())
        inside = [children[name] for name in ("module", *_WRAPPERS) if name in children]
        if len(children) != 1 or not inside:
            return model
        model = inside[0]


def modules_by_path(model: nn.Module) -> dict[str, nn.Module]:
    """The softknee modules of a model by paths that do not depend on how it is wrapped."""
    found = activation_modules(unwrapped(model))
    return {".".join(part for part in path.split(".") if part not in _WRAPPERS): one for path, one in found.items()}


def choose_sites(model: nn.Module, where: Where) -> list[HardeningSite]:
    """The sites to harden, in order of depth; a sentence where there is none or where one cannot be hardened."""
    wanted, found = read_where(where, "Hardener"), modules_by_path(model)
    if not found:
        raise InputError(
            f"{type(model).__name__} has no softknee activation to harden; put one in first, for instance with "
            f"sk.swap_(model, 'lambda_gelu', learn=True)."
        )
    chosen = {path: module for path, module in found.items() if _matches(wanted, path, module)}
    if not chosen:
        names = ", ".join(map(repr, list(found)[:4])) + (", ..." if len(found) > 4 else "")
        near = did_you_mean(where, found) if isinstance(where, str) else ""
        raise ParameterError(
            f"Hardener: where={where!r} matches none of the {len(found)} softknee activations of "
            f"{type(model).__name__}: {names}.{near}"
        )
    sites: list[HardeningSite] = []
    for path, module in chosen.items():
        try:
            act = definition_of(module)
            if is_hard(act):
                continue
            if not act.knobs:
                raise ParameterError(f"{act.name} cannot be hardened: {why_no_limit(act)}.")
        except ParameterError as error:
            raise ParameterError(
                f"Hardener: the activation at {path!r} stands in the way. {error} Choose others with where=."
            ) from None
        assert isinstance(module, Pointwise)
        sites.append(HardeningSite(path, module))
        _refuse_sharded(sites[-1])
    if not sites:
        raise ParameterError(
            f"Hardener: every activation chosen is hard already ({_kinds(chosen.values())}); there is nothing to "
            "harden."
        )
    return sites


def _matches(wanted: Any, path: str, module: nn.Module) -> bool:
    if wanted is None:
        return True
    if callable(wanted):
        return bool(wanted(path, module))
    return any(fnmatchcase(path, pattern) for pattern in wanted)


def _kinds(modules: Iterable[nn.Module]) -> str:
    return ", ".join(dict.fromkeys(definition_of(module).name for module in modules))


def _refuse_sharded(site: HardeningSite) -> None:
    """Refuse a trained knob that is spread over processes: its shards go on being trained after a freeze."""
    sharding = sys.modules.get("torch.distributed.tensor")  # where nothing is sharded, nothing is loaded
    if sharding is not None and any(isinstance(one, sharding.DTensor) for one in site.parameters()):
        raise ParameterError(
            f"Hardener: the knob at {site.path!r} is learned and sharded over processes (fully_shard), where it cannot "
            "be frozen. Make the activation with a fixed knob (learn=False), which the hardener moves as well."
        )


def refuse_strict_ddp(model: nn.Module, sites: Iterable[HardeningSite]) -> None:
    """Refuse a data-parallel wrapper that waits for the gradient of every parameter it has ever seen."""
    learned = [site.path for site in sites if any(one.requires_grad for one in site.parameters())]
    for module in model.modules():
        strict = isinstance(module, DistributedDataParallel) and not module.find_unused_parameters
        if strict and learned:
            raise ParameterError(
                f"Hardener: DistributedDataParallel waits for the gradient of the knob at {learned[0]!r}, which has "
                "none after it is frozen. Wrap the model with find_unused_parameters=True."
            )


def copies_of(sites: Iterable[HardeningSite], model: nn.Module) -> Mapping[str, Pointwise]:
    """The modules of a copy of the model that stand for these sites."""
    found = modules_by_path(model)
    copies: dict[str, Pointwise] = {}
    for site in sites:
        module = found.get(site.path)
        if not isinstance(module, Pointwise) or module.definition is not site.module.definition:
            there = "nothing" if module is None else type(module).__name__
            raise ParameterError(
                f"The copy has {there} where the model has {type(site.module).__name__}, at {site.path!r}; pass a copy "
                "of the model that the hardener was made for."
            )
        ours, theirs = ([one.shape for one in _stored(each, site.knobs)] for each in (site.module, module))
        if ours != theirs:
            raise ParameterError(
                f"The copy has other knobs than the model at {site.path!r} ({module} and {site.module}); pass a copy "
                "of the model that the hardener was made for."
            )
        copies[site.path] = module
    return copies
