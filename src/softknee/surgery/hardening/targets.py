"""Where a knob is to end: by a tolerance, as given, or by the layer's own pre-activations.

By tolerance, lambda-GELU takes the paper's distance between gates, E(lam) = integral |H(x) - Phi(lam x)| dx =
2/(lam sqrt(2 pi)), so that lam = 159.576912161 at 5e-3. Every other function takes its proved distance to the limit and
ends where that distance is the tolerance: S-ReLU at delta = 16 tolerance/3, SmeLU at beta = 4 tolerance. Several knobs
of one function keep their ratio.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from fractions import Fraction
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ...errors import ParameterError, did_you_mean
from ...registry import get
from ...spec import Activation
from .sites import HardeningSite, Knobs, Sample, distance_of, modules_by_path, rows_of

_GUESSES = 8  # a distance proportional to the knob, as nearly all are, needs one
_HALVINGS = 60
_HARDEST = 2.0**-60
_SAME = 1e-12
_ALL_BUT_ZERO = 1e-18  # a knob at its end, as far as float64 can tell


# -- by tolerance -----------------------------------------------------------------------------------------


def by_tolerance(site: HardeningSite, tolerance: float) -> Knobs:
    """The knobs at which the site is within the tolerance of its limit, harder than they are now or as they are."""
    act, now = site.module.definition, site.now()
    if act is get("lambda_gelu"):
        target = 2 / (tolerance * math.sqrt(2 * math.pi))
        return site.harder({name: torch.full_like(value, target) for name, value in now.items()}, now)
    rows = rows_of(site.module)
    distance = distance_of(act)
    known: dict[tuple[float, ...], float] = {}
    scales = []
    for row in zip(*(value.tolist() for value in rows.values()), strict=True):
        if row not in known:
            values = dict(zip(rows, row, strict=True))
            known[row] = _scale_for(_along(site, values, distance), tolerance, f"{act.name} at {site.path!r}")
        scales.append(known[row])
    scale = torch.tensor(scales, dtype=torch.float64)
    if any(value.numel() != len(scale) for value in now.values()):
        # A fixed knob has one value for all channels: all move as far as the channel that has to move most.
        return site.scaled(now, scale.min())
    return {name: site.scaled({name: value}, scale.reshape(value.shape))[name] for name, value in now.items()}


def _along(
    site: HardeningSite, values: Mapping[str, float], distance: Callable[[Mapping[str, float]], float]
) -> Callable[[float], float]:
    """The distance of one row as a function of how much of its softness is kept."""
    knobs = {name: torch.tensor(values[name], dtype=torch.float64) for name in site.knobs}

    def at(scale: float) -> float:
        return distance({**values, **{name: value.item() for name, value in site.scaled(knobs, scale).items()}})

    return at


def _scale_for(distance: Callable[[float], float], tolerance: float, what: str) -> float:
    """The largest share of the softness at which the distance is within the tolerance."""
    whole = distance(1.0)
    if whole <= tolerance:
        return 1.0
    if math.isinf(whole):
        raise ParameterError(
            f"Hardener: {what} is infinitely far from its limit, whatever its knob; no tolerance can be kept. Leave it "
            "out with where=, or give its target (target=...)."
        )
    scale, now = 1.0, whole
    for _ in range(_GUESSES):
        scale *= tolerance / now
        if not _HARDEST <= scale <= 1:
            break
        now = distance(scale)
        if abs(now / tolerance - 1) <= _SAME:
            return scale
    return largest_within(distance, tolerance, what)


def largest_within(error: Callable[[float], float], tolerance: float, what: str) -> float:
    """By bisection of its logarithm, the largest scale in (0, 1] whose error is within the tolerance."""
    if error(1.0) <= tolerance:
        return 1.0
    if not error(_HARDEST) <= tolerance:
        raise ParameterError(
            f"Hardener: {what} does not come within {tolerance:g} of its limit however hard it is made; ask for a "
            "larger tolerance or give its target (target=...)."
        )
    low, high = math.log(_HARDEST), 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if error(math.exp(middle)) <= tolerance else (low, middle)
    return math.exp(low)


# -- by data ----------------------------------------------------------------------------------------------


def by_data(site: HardeningSite, sample: Sample, tolerance: float) -> Knobs:
    """The softest knobs whose mean |f(x) - limit(x)| over the sample is within the tolerance.

    One target for the layer: channels that are harder already stay.
    """
    now = site.now()
    softest = {name: _softest(site, name, value) for name, value in now.items()}
    hard = limit_values(site, sample)

    def knobs(scale: float) -> Knobs:
        return site.harder(site.scaled(softest, scale), now)

    def error(scale: float) -> float:
        return (_values(site, sample, knobs(scale)) - hard).abs().mean().item()

    return knobs(largest_within(error, tolerance, f"{site.module.title} at {site.path!r}"))


def _softest(site: HardeningSite, name: str, value: Tensor) -> Tensor:
    """The softest knob of the layer in every place, with each place's own sign."""
    if math.isinf(site.toward):
        return value.min().expand_as(value)
    away = value - site.toward
    return site.toward + away.abs().max() * torch.where(away < 0, -1.0, 1.0)


def _values(site: HardeningSite, sample: Sample, knobs: Knobs) -> Tensor:
    """f at the sample, each x with the parameters of its channel."""
    values = {p.name: site.module.effective(p).detach().double().cpu() for p in site.module.params} | knobs
    return site.module.definition(sample.x, **{name: sample.at(value) for name, value in values.items()})


def limit_values(site: HardeningSite, sample: Sample) -> Tensor:
    """The hard limit at the sample: the named one, or the function itself with its knob all but at the end."""
    act = site.module.definition
    if act.limit is None:
        now = site.now()
        end = {
            name: torch.full_like(v, 1 / _ALL_BUT_ZERO if math.isinf(site.toward) else site.toward + _ALL_BUT_ZERO)
            for name, v in now.items()
        }
        return _values(site, sample, end)
    hard: Activation = get(act.limit)
    ours = {theirs: getattr(site.module, name).detach().double().cpu() for theirs, name in act.limit_params.items()}
    return hard(sample.x, **{name: sample.at(value) for name, value in ours.items()})


# -- as given ---------------------------------------------------------------------------------------------


def given_targets(sites: list[HardeningSite], target: Any) -> dict[str, Knobs]:
    """What `target` says for which site: one number for all, or by knob or by path (a pattern).

    A path says more than the name of a knob, and wins over it.
    """
    if not isinstance(target, Mapping):
        names = {site.knobs for site in sites}
        if len(names) > 1:
            shown = ", ".join(sorted({name for knobs in names for name in knobs}))
            raise ParameterError(
                f"Hardener: one target was given for knobs of several kinds ({shown}); say which is meant, for "
                f"instance target={{{next(iter(sites)).knobs[0]!r}: {target!r}}}."
            )
        return {site.path: {name: _read(site, name, target) for name in site.knobs} for site in sites}
    targets: dict[str, Knobs] = {}
    known = {name for site in sites for name in site.knobs}
    for by_knob in (True, False):
        for key, value in target.items():
            if (key in known and key not in {site.path for site in sites}) != by_knob:
                continue
            reached = [site for site in sites if (key in site.knobs if by_knob else fnmatchcase(site.path, str(key)))]
            if not reached:
                near = did_you_mean(key, [*known, *(site.path for site in sites)])
                raise ParameterError(
                    f"Hardener: target has an entry for {key!r}, which is neither a knob ({', '.join(sorted(known))}) "
                    f"nor the path of an activation that is hardened.{near}"
                )
            for site in reached:
                targets.setdefault(site.path, {}).update(_of_site(site, key if by_knob else None, value))
    for site in sites:
        missing = set(site.knobs) - targets.get(site.path, {}).keys()
        if site.path in targets and missing:
            raise ParameterError(
                f"Hardener: {site.path!r} has the knobs {', '.join(site.knobs)}, and target leaves out "
                f"{', '.join(sorted(missing))}; give all of them."
            )
    return targets


def _of_site(site: HardeningSite, knob: str | None, value: Any) -> Knobs:
    if knob is not None:
        return {knob: _read(site, knob, value)}
    if not isinstance(value, Mapping):
        return {name: _read(site, name, value) for name in site.knobs}
    for name in value:
        if name not in site.knobs:
            raise ParameterError(
                f"Hardener: {site.path!r} has no knob {name!r}; its knobs are {', '.join(site.knobs)}."
                f"{did_you_mean(name, site.knobs)}"
            )
    return {name: _read(site, name, number) for name, number in value.items()}


def _read(site: HardeningSite, name: str, value: Any) -> Tensor:
    """A target that the knob may take, in the knob's shape."""
    shape = site.now()[name].shape
    try:
        read = torch.as_tensor(value, dtype=torch.float64).detach().cpu().expand(shape).clone()
    except (TypeError, ValueError, RuntimeError):
        raise ParameterError(
            f"Hardener: the target of {name} at {site.path!r} must be a number or have the shape {tuple(shape)}, and "
            f"{value!r} was given."
        ) from None
    site.check(name, read)
    return read


def free_steps(name: str, value: Any, total: int) -> int:
    """How many epochs train freely: a share of all as a float, their number as an int. At least one must be left."""
    if isinstance(value, Integral) and not isinstance(value, bool) and 0 <= int(value) < total:
        return int(value)
    if isinstance(value, float) and 0 <= value < 1:
        # The decimal that was written: 0.29 of 100 are 29, and not 28 because the nearest float is a little less. A
        # float of NumPy is a float, too, and writes itself in another way.
        return math.floor(Fraction(repr(float(value))) * total)
    words = "" if name == "latest" else ", or 'plateau'"
    raise ParameterError(
        f"Hardener: {name} must be a share below 1, such as 0.25, or a whole number below total={total}{words}, and "
        f"{value!r} was given."
    )


def metric_number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ParameterError(f"Hardener: metric must be a number, and {type(value).__name__} was given.") from None


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


def refuse_replaced(model: nn.Module, sites: Iterable[HardeningSite]) -> None:
    """Refuse a model whose activations were changed since the hardener was made."""
    modules = modules_by_path(model)
    for site in sites:
        if modules.get(site.path) is not site.module:
            raise ParameterError(
                f"Hardener: the activation at {site.path!r} is not the one that the hardener was made for; make the "
                f"hardener after the surgery on the model."
            )


def refuse_zero(targets: dict[str, Knobs]) -> None:
    """A geometric way to 0 has no end."""
    for path, knobs in targets.items():
        if any(bool((value == 0).any()) for value in knobs.values()):
            raise ParameterError(
                f"Hardener: a geometric schedule never arrives at 0, the target at {path!r}; take 'linear' or 'cosine'."
            )


def refuse_other_sign(begin: dict[str, Knobs], targets: dict[str, Knobs]) -> None:
    """A geometric way does not lead through 0."""
    for path, knobs in begin.items():
        for name, value in knobs.items():
            if bool((value * targets[path][name] < 0).any()):
                raise ParameterError(
                    f"Hardener: a geometric schedule cannot take {name} at {path!r} through 0 to a target of the other "
                    f"sign; take 'linear' or 'cosine'."
                )
