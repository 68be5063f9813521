"""The activations that a hardener moves: which they are, what their knobs are now, and how they are frozen."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ...errors import InputError, MissingToolError, ParameterError, did_you_mean
from ...nn.module import Pointwise
from ...nn.parameters import Parameterised, show_range
from ...registry import get
from ...spec import Activation, Rowwise, SoftTable
from ...spec.algebra import sympy
from ..modules import WRAPPERS, Reservoir, activation_modules, quietly, quoted, read_where, run_all, unwrapped

Batches = Iterable[Any] | Callable[[], Iterable[Any]]
SIZE = 65536  # numbers per activation: an expected error is then good to about half a percent


@dataclass(frozen=True)
class Sample:
    """Pre-activations in float64, and for each the place of its parameters in the module."""

    x: Tensor
    row: Tensor

    def at(self, value: Tensor) -> Tensor:
        """A parameter's value for each x."""
        flat = value.flatten()
        return flat if flat.numel() == 1 else flat[self.row]


def _rows(module: Pointwise, x: Tensor, place: Tensor) -> Tensor:
    """Which of the module's parameters the elements of an input at these places meet."""
    granularity = module.granularity
    if granularity.count == 1:
        return torch.zeros_like(place)
    if granularity.per == "neuron":
        return place % granularity.count
    dim = granularity.dim if granularity.dim >= 0 else x.dim() + granularity.dim
    behind = x.shape[dim + 1 :].numel()
    return place // behind % granularity.count


def samples(
    model: nn.Module, sites: Sequence[HardeningSite], batches: Batches, *, size: int = SIZE, seed: int = 0
) -> dict[str, Sample]:
    """A sample for each site. The model runs in eval mode without gradients and is left as it was."""
    model = unwrapped(model)  # each process for itself: a wrapper would wait for the others
    reservoirs = {site.path: Reservoir(size, seed) for site in sites}

    def taker(site: HardeningSite) -> Callable[[Tensor], None]:
        return lambda x: reservoirs[site.path].add(x, lambda place: _rows(site.module, x, place))

    try:
        with quietly(model, {site.module: taker(site) for site in sites}):
            count = run_all(model, batches() if callable(batches) else batches)
    except InputError as error:
        raise InputError(f"Hardener, data: {error} The knobs are as they were.") from error
    if not count:
        raise ParameterError("Hardener: data has no batch; pass a loader or a list with at least one.")
    for path, reservoir in reservoirs.items():
        if not len(reservoir.values):
            raise ParameterError(
                f"Hardener: no finite number reached the activation at {path!r} in the batches given; pass batches "
                f"that go through it, or give its target (target=...)."
            )
    return {path: Sample(reservoir.values, reservoir.rows) for path, reservoir in reservoirs.items()}


def refuse_no_batches(data: Any) -> None:
    """Refuse what is one batch, or nothing to iterate over: else it would be said after a quarter of the training."""
    if isinstance(data, Tensor | Mapping | str) or not (callable(data) or isinstance(data, Iterable)):
        count = "one " if isinstance(data, Tensor | Mapping) else ""
        raise ParameterError(
            f"Hardener: data must be batches (a loader or a list of them) or a function that gives them, and "
            f"{count}{type(data).__name__} was given; put a single batch in a list."
        )


# Functions that are what they harden into. prelu and leaky_relu have a knob, but no tool asks for less leak.
HARD = ("relu", "leaky_relu", "prelu", "relu6", "hardtanh", "hardswish")
_PLAIN: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "hardtanh": nn.Hardtanh,
    "hardswish": nn.Hardswish,
}
_OUTWARD = 1 + 2.0**-50  # a few roundings of float64
_SWAP = "Swap it for a function with a hard limit first."


def definition_of(module: nn.Module) -> Activation:
    """The element-wise definition of a module, or a sentence that says why it has no hard limit."""
    if isinstance(module, Pointwise):
        return module.definition
    if isinstance(module, Parameterised):
        definition = getattr(module, "definition", None)
        why = (
            "its limit is a staircase, which no plain torch module computes"
            if isinstance(definition, SoftTable)
            else "it is a function of whole rows"
            if isinstance(definition, Rowwise)
            else "it has none"
        )
        raise ParameterError(f"{module.title} cannot be replaced by a hard limit: {why}. {_SWAP}")
    raise ParameterError(f"A hard limit is asked of a softknee activation, and {type(module).__name__} is none.")


def is_hard(act: Activation) -> bool:
    """Whether a definition is its own hard limit already."""
    return act.name in HARD and act is get(act.name)


def hard_module(module: nn.Module) -> nn.Module:
    """The plain torch module that a softknee module becomes in its hard limit, for its present parameters.

    >>> import softknee as sk
    >>> from softknee.surgery.hardening import hard_module
    >>> hard_module(sk.nn.SReLU()), hard_module(sk.nn.LeakySmeLU(g_minus=0.25))
    (ReLU(), LeakyReLU(negative_slope=0.25))
    """
    act = definition_of(module)
    assert isinstance(module, Pointwise)
    if is_hard(act):
        return _named(act.name, module, {p.name: p.name for p in act.params})
    if act.limit is not None:
        return _named(act.limit, module, act.limit_params)
    if act.name in _LINES and act is get(act.name):
        return _LINES[act.name](module)
    raise ParameterError(f"{act.name} cannot be replaced by a plain torch module: {why_no_limit(act)}. {_SWAP}")


def why_no_limit(act: Activation) -> str:
    """Why a definition without a named limit has no plain torch module."""
    if not act.knobs:
        return "it has no knob that hardens it"
    if act.claims is not None and act.claims.distance is sympy.oo:
        return f"it stays infinitely far from its limit for every {' and '.join(act.knobs)}"
    return "its hard limit has no name"


def _named(limit: str, module: Pointwise, params: Mapping[str, str]) -> nn.Module:
    """The torch module of a hard function whose parameters are these parameters of ours."""
    if limit in _PLAIN:
        return _PLAIN[limit]()
    if limit in ("leaky_relu", "prelu"):
        slope = (
            getattr(module, params["slope"]).detach()
            if "slope" in params
            else torch.tensor([get(limit).params[0].default])
        )
        return _leaky(module, slope, as_prelu=module.definition.name == "prelu")
    raise ParameterError(f"{module.title} hardens into {limit!r}, for which torch has no plain module. {_SWAP}")


def _leaky(module: Pointwise, slope: Tensor, *, as_prelu: bool = False) -> nn.Module:
    equal = bool((slope == slope.flatten()[0]).all())
    if equal and not as_prelu:
        value = slope.flatten()[0].item()
        return nn.ReLU() if value == 0 else nn.LeakyReLU(value)
    by_channel = module.granularity.per == "channel" and module.granularity.dim == 1
    if slope.numel() > 1 and not equal and not by_channel:
        raise ParameterError(
            f"{module.title} has a slope for each channel, and torch's PReLU takes slopes along dimension 1 alone, not "
            f"for {module.granularity}. Give all of them one value with set_, or use per='layer'."
        )
    # A PReLU with a slope for each channel keeps them, equal or not: so does the stock module it is loaded into.
    slope = slope.flatten()[:1] if equal and not by_channel else slope
    made = nn.PReLU(slope.numel(), device=slope.device, dtype=slope.dtype)
    with torch.no_grad():
        made.weight.copy_(slope)
    return made.requires_grad_(bool(module.learned))


def _two_lines(module: Pointwise) -> nn.Module:
    """Generalized and origin-crossing SmeLU: the lines g_minus x + t and g_plus x + t."""
    values = {p.name: module.effective(p).detach().double().cpu() for p in module.params}
    for name, wanted in (("g_plus", 1.0), ("t", 0.0)):
        if name in values and bool((values[name] != wanted).any()):
            raise ParameterError(
                f"{module.title} hardens into two lines with {name}={show_range(values[name])}, and torch has modules "
                f"for {name}={wanted:g} alone (ReLU, LeakyReLU). Set it with set_({name}={wanted:g}) before it is "
                f"replaced."
            )
    return _leaky(module, module.g_minus.detach())


def _shifted(module: Pointwise) -> nn.Module:
    shift = module.shift.detach()
    if bool((shift != 0).any()):
        raise ParameterError(
            f"{module.title} hardens into relu(x - shift) with shift={show_range(shift)}, and torch has a module for "
            f"shift=0 alone (ReLU). Move the shift into the bias of the layer before it, or set it to 0 with set_."
        )
    return nn.ReLU()


_LINES: dict[str, Callable[[Pointwise], nn.Module]] = {
    "generalized_smelu": _two_lines,
    "origin_smelu": _two_lines,
    "shifted_smelu": _shifted,
}


# -- distance ---------------------------------------------------------------------------------------------


def distance_bound(module: nn.Module) -> float:
    """An upper bound on sup |f - hard limit| for the module's present parameters, the largest over its channels.

    It is the least upper bound, rounded up in float64: 0 for what is hard already, infinite for what never comes near
    (smooth_relu). It speaks of the function, not of the rounding of a type that it is computed in.

    >>> import softknee as sk
    >>> from softknee.surgery.hardening import distance_bound
    >>> round(distance_bound(sk.nn.SReLU(delta=0.16)), 6)
    0.03
    """
    act = definition_of(module)
    assert isinstance(module, Pointwise)
    if is_hard(act):
        return 0.0
    distance = distance_of(act)
    return max(distance(row) for row in distinct_rows(module))


def distance_of(act: Activation) -> Callable[[Mapping[str, float]], float]:
    """sup |f - limit| as a function of all parameters, rounded up: claimed where it is, certified otherwise."""
    if act.claims is not None and act.claims.distance is not None:
        formula = _formula(act)
        return lambda values: formula(*(values[p.name] for p in act.params)) * _OUTWARD
    if not act.knobs:
        raise ParameterError(f"{act.name} cannot be hardened: {why_no_limit(act)}. {_SWAP}")
    return lambda values: _certified(act, tuple(sorted(values.items())))


@functools.lru_cache(maxsize=256)
def _formula(act: Activation) -> Callable[..., float]:
    assert act.claims is not None
    return sympy.lambdify([p.symbol for p in act.params], act.claims.distance, "math")


@functools.lru_cache(maxsize=4096)
def _certified(act: Activation, values: tuple[tuple[str, float], ...]) -> float:
    from ...design.proof.certify import certify

    try:
        certificate = certify(act, **dict(values))
    except MissingToolError as error:
        raise MissingToolError(
            f"How far {act.name} is from its hard limit is proved with python-flint, which is not installed. Install "
            "it with: pip install 'softknee[design]', or give the target yourself (target=...)."
        ) from error
    if certificate.distance is None or (
        not math.isfinite(certificate.distance.upper) and certificate.distance.lower != math.inf
    ):
        reason = next(iter(certificate.open), "its certificate leaves it open").rstrip(".")
        raise ParameterError(
            f"How far {act.name} is from its hard limit is not settled ({reason}). Give the target yourself "
            "(target=...) or take it from data (data=...)."
        )
    return float(certificate.distance.upper) * _OUTWARD


def rows_of(module: Pointwise) -> dict[str, Tensor]:
    """The effective parameters in float64 on the CPU, flat: one number each, or one for each channel or neuron."""
    values = {p.name: module.effective(p).detach().double().cpu().flatten() for p in module.params}
    longest = max((value.numel() for value in values.values()), default=1)
    return {name: value.expand(longest) for name, value in values.items()}


def distinct_rows(module: Pointwise) -> list[dict[str, float]]:
    """Each combination of parameters that occurs in a module, once."""
    rows = rows_of(module)
    if not rows:
        return [{}]
    table: Any = torch.stack(list(rows.values()), dim=1).unique(dim=0)
    return [dict(zip(rows, row, strict=True)) for row in table.tolist()]


Where = str | Iterable[str] | Callable[[str, nn.Module], bool] | None
Knobs = dict[str, Tensor]


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
        wanted, had = self.softness(knobs), self.softness(begin)
        return {name: knobs[name].where(wanted[name] < had[name], begin[name]) for name in self.knobs}

    def check(self, name: str, values: Tensor) -> None:
        """Refuse targets that the knob may not take."""
        constraint = next(p.constraint for p in self.module.params if p.name == name)
        learned = name in self.module.learned
        allows = constraint.allows_learned if learned else constraint.allows
        for number in values.flatten().tolist():
            if not allows(number):
                words = constraint.learned_words if learned else constraint.words
                raise ParameterError(
                    f"Hardener: the target of {name} at {self.path!r} must be {words}, and {number!r} was given or "
                    "asked for by the tolerance."
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
    return [own[stored] for name in knobs for stored in (f"raw_{name}", f"anchor_{name}", name) if stored in own]


def modules_by_path(model: nn.Module) -> dict[str, nn.Module]:
    """The softknee modules of a model by paths that do not depend on how it is wrapped."""
    modules = activation_modules(unwrapped(model))
    return {
        ".".join(part for part in path.split(".") if part not in WRAPPERS): module for path, module in modules.items()
    }


def choose_sites(model: nn.Module, where: Where) -> list[HardeningSite]:
    """The sites to harden, in order of depth; a sentence where there is none or where one cannot be hardened."""
    wanted, modules = read_where(where, "Hardener"), modules_by_path(model)
    if not modules:
        raise InputError(
            f"{type(model).__name__} has no softknee activation to harden; put one in first, for instance with "
            f"sk.swap_(model, 'lambda_gelu', learn=True)."
        )
    chosen = {path: module for path, module in modules.items() if _matches(wanted, path, module)}
    if not chosen:
        near = did_you_mean(where, modules) if isinstance(where, str) else ""
        raise ParameterError(
            f"Hardener: where={where!r} matches none of the {len(modules)} softknee activations of "
            f"{type(model).__name__}: {quoted(list(modules))}.{near}"
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
        kinds = dict.fromkeys(definition_of(module).name for module in chosen.values())
        raise ParameterError(
            f"Hardener: every activation chosen is hard already ({', '.join(kinds)}); there is nothing to harden."
        )
    return sites


def _matches(wanted: Any, path: str, module: nn.Module) -> bool:
    if wanted is None:
        return True
    if callable(wanted):
        return bool(wanted(path, module))
    return any(fnmatchcase(path, pattern) for pattern in wanted)


def _refuse_sharded(site: HardeningSite) -> None:
    """Refuse a trained knob that is spread over processes: its shards go on being trained after a freeze."""
    sharding = sys.modules.get("torch.distributed.tensor")  # where nothing is sharded, nothing is loaded
    if sharding is not None and any(isinstance(parameter, sharding.DTensor) for parameter in site.parameters()):
        raise ParameterError(
            f"Hardener: the knob at {site.path!r} is learned and sharded over processes (fully_shard), where it cannot "
            "be frozen. Make the activation with a fixed knob (learn=False), which the hardener moves as well."
        )


def refuse_strict_ddp(model: nn.Module, sites: Iterable[HardeningSite]) -> None:
    """Refuse a data-parallel wrapper that waits for the gradient of every parameter it has ever seen."""
    learned = [site.path for site in sites if any(parameter.requires_grad for parameter in site.parameters())]
    for module in model.modules():
        strict = isinstance(module, DistributedDataParallel) and not module.find_unused_parameters
        if strict and learned:
            raise ParameterError(
                f"Hardener: DistributedDataParallel waits for the gradient of the knob at {learned[0]!r}, which has "
                "none after it is frozen. Wrap the model with find_unused_parameters=True."
            )


def copies_of(sites: Iterable[HardeningSite], model: nn.Module) -> Mapping[str, Pointwise]:
    """The modules of a copy of the model that stand for these sites."""
    modules = modules_by_path(model)
    copies: dict[str, Pointwise] = {}
    for site in sites:
        module = modules.get(site.path)
        if not isinstance(module, Pointwise) or module.definition is not site.module.definition:
            there = "nothing" if module is None else type(module).__name__
            raise ParameterError(
                f"The copy has {there} where the model has {type(site.module).__name__}, at {site.path!r}; pass a copy "
                "of the model that the hardener was made for."
            )
        ours, theirs = ([tensor.shape for tensor in _stored(each, site.knobs)] for each in (site.module, module))
        if ours != theirs:
            raise ParameterError(
                f"The copy has other knobs than the model at {site.path!r} ({module} and {site.module}); pass a copy "
                "of the model that the hardener was made for."
            )
        copies[site.path] = module
    return copies
