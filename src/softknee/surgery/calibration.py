"""Widths and grids from what really reaches each activation."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from ..design.fitting import fit_table
from ..errors import InputError, ParameterError, did_you_mean, require_number
from ..nn import Squaf
from ..nn.parameters import Parameterised, require_model
from ..spec import Activation
from ..spec.constraints import AtLeastOne
from .activation_text import sampled_name
from .modules import activation_modules, hook_input, quietly, read_where, refuse_one_batch, run_all, table_lines

# -- how far numbers spread from 0, counted as they stream by ---------------------------------------------
#
# The magnitudes are counted in bins of a sixteenth of an octave, from 2^-32 to 2^32, for each group (a layer, or each
# channel or neuron) apart: 8 KiB for a group. Counts of two streams add up to those of both, in any order and on any
# device. A quantile read from them is right to 4.4%, the width of a bin, and to a fraction of a percent where the bin
# is well filled.


_BINS_PER_OCTAVE = 16
_LOWEST, _HIGHEST = -32, 32
_BINS = _BINS_PER_OCTAVE * (_HIGHEST - _LOWEST)
# The median of |x| for a normal x of standard deviation 1.
_NORMAL_MEDIAN = 0.6744897501960817


class Spread:
    """Counts of magnitudes in groups; bin 0 holds what is 0 or below 2^-32.

    >>> import torch
    >>> from softknee.surgery.calibration import Spread
    >>> seen = Spread(1)
    >>> for part in torch.linspace(-3, 3, 60001).split(1000):
    ...     seen.add(part[None])
    >>> f"{seen.quantile(0.5).item():.2f}, {seen.share_below(1.0):.3f}"
    '1.50, 0.333'
    """

    def __init__(self, groups: int, counts: Tensor | None = None) -> None:
        self.counts = torch.zeros(groups, _BINS + 1, dtype=torch.int64) if counts is None else counts

    def add(self, x: Tensor) -> None:
        """Count finite numbers, laid out as (groups, any number)."""
        groups = len(self.counts)
        work = x.detach().to(torch.promote_types(x.dtype, torch.float32)).abs()
        # log2(0) is -inf, and becomes bin 0.
        place = ((work.log2() - _LOWEST) * _BINS_PER_OCTAVE).floor().clamp(-1, _BINS - 1).to(torch.int64) + 1
        offset = torch.arange(groups, device=x.device)[:, None] * (_BINS + 1)
        counts = torch.bincount((place + offset).reshape(-1), minlength=groups * (_BINS + 1))
        self.counts += counts.cpu().reshape(groups, -1)

    @property
    def pooled(self) -> Spread:
        """All groups as one."""
        return Spread(1, self.counts.sum(0, keepdim=True))

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    def quantile(self, level: float) -> Tensor:
        """The magnitude that this share of the numbers does not exceed, for each group; 0 where they are 0."""
        total = self.counts.cumsum(1).double()
        wanted = level * total[:, -1:]
        place = (total < wanted).sum(1, keepdim=True).clamp(max=_BINS)
        inside = self.counts.gather(1, place).clamp(min=1).double()
        share = ((wanted - (total.gather(1, place) - inside)) / inside).clamp(0, 1)
        exponent = (place - 1 + share) / _BINS_PER_OCTAVE + _LOWEST
        return torch.where(place == 0, torch.zeros_like(exponent), exponent.exp2())[:, 0]

    @property
    def scale(self) -> Tensor:
        """A standard deviation about 0 that a few huge numbers do not move: the median of |x|, over a normal one's."""
        return self.quantile(0.5) / _NORMAL_MEDIAN

    def share_below(self, magnitude: float | Tensor) -> float:
        """The share of the numbers whose magnitude is at most this, given once or for each group."""
        limit = torch.as_tensor(magnitude, dtype=torch.float64).reshape(-1, 1).expand(len(self.counts), 1)
        place = ((limit.log2() - _LOWEST) * _BINS_PER_OCTAVE + 1).clamp(0, _BINS + 1)
        whole = place.floor().to(torch.int64)
        total = torch.nn.functional.pad(self.counts.cumsum(1).double(), (1, 0))
        ends = torch.nn.functional.pad(total, (0, 1), mode="replicate")
        below = ends.gather(1, whole) + (place - whole) * (ends.gather(1, whole + 1) - ends.gather(1, whole))
        return float(below.sum()) / max(self.count, 1)


def observe(
    model: nn.Module, sites: Mapping[str, Parameterised], batches: Iterable[Any]
) -> tuple[dict[str, Spread], int]:
    """The spread of every site's input over the batches, and how many batches there were."""
    seen = {path: Spread(module.granularity.count) for path, module in sites.items()}
    refuse_one_batch(batches)
    with quietly(model, {module: _counter(path, module, seen[path]) for path, module in sites.items()}):
        count = run_all(model, batches)
    if not count:
        raise InputError("batches was empty, so that there is nothing to go by; nothing was changed.")
    if missed := [path for path in sites if not seen[path].count]:
        more = f" (and {len(missed) - 1} more)" if len(missed) > 1 else ""
        raise InputError(
            f"No batch reached the activation {missed[0]!r}{more}; leave it out with where=, or give batches that take "
            f"that way. Nothing was changed."
        )
    return seen, count


def _counter(path: str, module: Parameterised, seen: Spread) -> Callable[[Tensor], None]:
    granularity = module.granularity

    def count(x: Tensor) -> None:
        if not bool(x.isfinite().all()):
            raise InputError(
                f"A pre-activation of {path!r} is NaN or infinite; check the batches and the model. Nothing was "
                f"changed."
            )
        if granularity.per == "channel":
            seen.add(x.movedim(granularity.dim, 0).reshape(granularity.count, -1))
        elif granularity.per == "neuron":
            seen.add(x.reshape(-1, granularity.count).T)
        else:
            seen.add(x.reshape(1, -1))

    return count


# -- the new width, hardness or grid of one site, from the spread of its pre-activations ----------


WIDTH, HARDNESS, GRID = "width", "hardness", "grid"


@dataclass(frozen=True, eq=False)
class CalibratedSite:
    """What one site had, has now, and saw. `inside` is the share of its pre-activations inside the knee or the grid."""

    path: str
    activation: str
    kind: str
    old: Mapping[str, Tensor]
    new: Mapping[str, Tensor]
    spread: Tensor
    inside: float
    count: int
    note: str = ""


@dataclass(frozen=True)
class Rule:
    """What was asked of `calibrate_`."""

    fraction: float | None = None
    cover: float = 0.999
    stands_for: Any = None


def planned(path: str, module: Parameterised, kind: str, seen: Spread, rule: Rule) -> CalibratedSite:
    """What a site is to be, from what it saw; nothing is changed yet."""
    if not float(seen.pooled.scale) > 0:
        raise InputError(
            f"Half or more of the pre-activations of {path!r} are 0, so that they have no spread to go by; leave the "
            f"site out with where=, or look why its layer is dead. Nothing was changed."
        )
    note: list[str] = []
    if isinstance(module, Squaf):
        new, width, spread = _table(module, seen, rule, note)
    else:
        new, width, spread = _knobs(module, kind, seen, rule, note)
    return CalibratedSite(
        path=path,
        activation=module.title,
        kind=kind,
        old={name: _effective(module, name) for name in new},
        new=new,
        spread=spread.scale,
        inside=spread.share_below(width.reshape(-1)),
        count=seen.count,
        note="; ".join(note),
    )


def _knobs(
    module: Any, kind: str, seen: Spread, rule: Rule, note: list[str]
) -> tuple[dict[str, Tensor], Tensor, Spread]:
    """New widths or hardnesses, the width they make, and the spread they come from.

    Where there are two (left and right of the knee) their mean is set, and their ratio kept.
    """
    old = {name: _effective(module, name) for name in module.definition.knobs}
    grouped = all(value.numel() > 1 for value in old.values())
    spread = seen if grouped else seen.pooled
    scale = spread.scale.reshape(module.granularity.shape if grouped else (1,))
    mean = sum(old.values()) / len(old)
    usual = sum(module.definition.param(name).default for name in old) / len(old)
    if kind == WIDTH:
        wanted = (usual if rule.fraction is None else rule.fraction) * scale
    else:
        wanted = (usual if rule.fraction is None else 1 / rule.fraction) / scale
    factor = torch.where(scale == 0, 1.0, wanted / mean)
    _note_dead(scale, note)
    new = {name: value * (factor if value.numel() > 1 else factor.mean()) for name, value in old.items()}
    for name, value in new.items():
        p = module.definition.param(name)
        least = p.start if name in module.learned else 1.0
        if isinstance(p.constraint, AtLeastOne) and (low := value < least).any():
            new[name] = value.clamp(min=least)
            which = "" if low.numel() == 1 else f" for {int(low.sum())} of {low.numel()}"
            note.append(f"{name} would be below {least:g}, and is {least:g}{which}")
    reached = sum(new.values()) / len(new)
    width = torch.as_tensor(reached if kind == WIDTH else 1 / reached)
    return new, width if grouped else width.mean(), spread


def _table(module: Squaf, seen: Spread, rule: Rule, note: list[str]) -> tuple[dict[str, Tensor], Tensor, Spread]:
    """A new grid with the same overlap of neighbours, and the table on it that stands for the same function."""
    assert module.k is not None
    q, alpha, z = (_effective(module, name) for name in ("q", "alpha", "z"))
    # A channel may only have a spacing of its own if it has a table and a sharpness of its own to go with it.
    grouped = q.numel() > 1 and alpha.shape == q.shape == z.shape[:-1]
    spread = seen if grouped else seen.pooled
    reach = spread.quantile(rule.cover).reshape(q.shape if grouped else (1,))
    _note_dead(reach, note)
    new_q = torch.where(reach == 0, q, reach / module.k).expand_as(q).clone()
    stretch = (new_q / q) ** (1 if module.weights == "laplacian" else 2)
    new_alpha = alpha / (stretch if alpha.numel() > 1 else stretch.mean())
    rows = z.reshape(-1, z.shape[-1])
    tables, errors, names = torch.empty_like(rows), [], set()
    known: dict[tuple[float, ...], Any] = {}  # the channels of an untrained module share one function
    for index, row in enumerate(rows):
        before, after = ({"q": _row(a, index), "alpha": _row(b, index)} for a, b in ((q, alpha), (new_q, new_alpha)))
        key = (before["q"], before["alpha"], *row.tolist())
        if key not in known:
            known[key] = rule.stands_for or _stands_for(module, row, **before)
        names.add(
            known[key] if isinstance(known[key], str) else "its curve" if rule.stands_for is None else "its target"
        )
        fit = fit_table(known[key], k=module.k, weights=module.weights, window=module.window, **after)
        tables[index] = fit.z
        errors.append(fit.error)
    note.append(f"z fitted to {' and '.join(sorted(names))}, off by {max(errors):.2g} at most")
    width = module.k * (new_q if grouped else new_q.mean())
    return {"q": new_q, "alpha": new_alpha, "z": tables.reshape(z.shape)}, width, spread


def _note_dead(scale: Tensor, note: list[str]) -> None:
    if dead := int((scale == 0).sum()):
        note.append(f"{dead} of {scale.numel()} saw nothing but 0 and stay as they are")


def _stands_for(module: Squaf, z: Tensor, *, q: float, alpha: float) -> str | Callable[[Tensor], Tensor]:
    """The name of the function that a table samples, or else the curve that it is."""
    assert module.k is not None
    name = sampled_name(z.to(module.z.dtype), q=torch.tensor(q, dtype=torch.float64), k=module.k)
    definition: Any = module.definition
    return name or (lambda x: definition(x, k=module.k, q=q, alpha=alpha, z=z, window=module.window))


def _row(values: Tensor, index: int) -> float:
    return float(values.reshape(-1)[index if values.numel() > 1 else 0])


def _effective(module: Parameterised, name: str) -> Tensor:
    p = next(param for param in module.params if param.name == name)
    return module.effective(p).detach().double().cpu().clone()


# -- widths and grids from what each site of a model really sees ------------------------------------------


@dataclass(frozen=True, eq=False)
class Calibration:
    """What `calibrate_` did: every site changed, and every one skipped with the reason. Prints as a table."""

    sites: tuple[CalibratedSite, ...]
    skipped: Mapping[str, str]
    fraction: float | None
    cover: float
    batches: int

    def __str__(self) -> str:
        rows = [
            (
                site.path or "(model)",
                site.activation,
                _shown(site.old),
                _shown(site.new),
                _range(site.spread),
                f"{site.inside:.1%}",
                site.note,
            )
            for site in self.sites
        ]
        lines = table_lines([("site", "activation", "was", "is", "spread", "inside", ""), *rows])
        lines += [f"{path or '(model)'} was skipped: {reason}" for path, reason in self.skipped.items()]
        return "\n".join(lines)


def calibrate_(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    fraction: float | None = None,
    cover: float = 0.999,
    where: str | Sequence[str] | Callable[[str], bool] | None = None,
    stands_for: str | Activation | Callable[[Tensor], Tensor] | None = None,
) -> Calibration:
    """Set the widths and grids of a model's softknee modules from their own pre-activations, in place.

    Args:
        model: with modules of softknee in it (`sk.swap_` puts them there).
        batches: inputs of the model: tensors, tuples whose first entry is the input, or dicts of keyword arguments.
            They are moved to the model's device.
        fraction: of the spread, the width that every knee gets; a hardness is the inverse of it. Left out, the default
            of each function, which is made for a spread of 1: a knee of S-ReLU then reaches one standard deviation.
        cover: the share of the pre-activations that a SQUAF grid reaches.
        where: which sites, by a pattern of their paths ("*.mlp.act"), several, or a function of the path.
        stands_for: the function that SQUAF tables are fitted to on their new grids. Left out, it is the function that a
            table samples, or else the table's own curve as it is.

    The model runs without gradients, in eval mode, which is put back after; no random number is drawn. All statistics
    come from one pass with the old values (a second call refines those of deeper sites). Parameters per channel or
    neuron get statistics of their own; one whose pre-activations are all 0 keeps its value. All or nothing: where a
    batch does not fit, a pre-activation is not finite or a site is never reached, nothing has changed.

    >>> import softknee as sk, torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(1, 1, bias=False), sk.nn.SReLU(), torch.nn.Flatten())
    >>> _ = net[0].weight.data.fill_(3.0)
    >>> report = sk.calibrate_(net, [torch.linspace(-1, 1, 10001)[:, None]])
    >>> f"{net[1].delta.item():.2f}"  # the median 1.5 of |x| over 0.6745, that of a normal x
    '2.22'
    """
    require_model(model, "calibrate_")
    if fraction is not None:
        require_number("calibrate_", "fraction", fraction)
    require_number("calibrate_", "cover", cover, most=1)
    chosen = _chosen(model, where)
    kinds = {path: _kind(module) for path, module in chosen.items()}
    skipped = {path: kind for path, kind in kinds.items() if kind not in (WIDTH, HARDNESS, GRID)}
    wanted = {path: module for path, module in chosen.items() if path not in skipped}
    if not wanted:
        path, reason = next(iter(skipped.items()))
        raise InputError(f"calibrate_ has nothing to calibrate: {path!r} was skipped because {reason}")
    seen, count = observe(model, wanted, batches)
    rule = Rule(fraction, cover, stands_for)
    sites = tuple(planned(path, module, kinds[path], seen[path], rule) for path, module in wanted.items())
    _apply(wanted, sites)
    return Calibration(sites, skipped, fraction, cover, count)


# -- which sites, and what their knobs are ------------------------------------------------------------------------


def _chosen(model: nn.Module, where: Any) -> dict[str, Parameterised]:
    modules = activation_modules(model)
    if not modules:
        raise InputError(
            f"{type(model).__name__} has no activation of softknee to calibrate; put some in with softknee.swap_ first."
        )
    patterns = read_where(where, "calibrate_")
    if patterns is None:
        return modules
    matches = patterns if callable(patterns) else lambda path: any(fnmatchcase(path, pattern) for pattern in patterns)
    chosen = {path: module for path, module in modules.items() if matches(path)}
    if not chosen:
        near = did_you_mean(where, modules) if isinstance(where, str) else ""
        raise InputError(
            f"calibrate_ matched 0 of the {len(modules)} activations for where={where!r}; the first is "
            f"{next(iter(modules))!r}.{near}"
        )
    return chosen


def _kind(module: Parameterised) -> str:
    """Width, hardness or grid; or a half sentence that says why the site is skipped."""
    definition: Any = getattr(module, "definition", None)
    if isinstance(module, Squaf):
        return GRID if module.k is not None else "its grid is a general one, whose points are given one by one."
    if not isinstance(definition, Activation) or not definition.knobs:
        return f"{module.title} has no knob."
    number = {p.name: float(module.effective(p).detach().double().mean()) for p in definition.params}
    size = sum(number[knob] for knob in definition.knobs) / len(definition.knobs)
    kind, stretch = (HARDNESS, 0.5) if definition.toward == math.inf else (WIDTH, 2.0)
    x = torch.linspace(-4, 4, 65, dtype=torch.float64) * (1 / size if kind == HARDNESS else size)
    slope = definition.derivative(1)
    try:
        before, after = slope(x, **number), slope(stretch * x, **number | {k: 2 * number[k] for k in definition.knobs})
    except ParameterError:
        return f"twice its {' and '.join(definition.knobs)} is not allowed, so that it is no width."
    if size > 0 and torch.allclose(before, after, rtol=0.0, atol=1e-9):
        return kind
    return f"{' and '.join(definition.knobs)} of {module.title} is neither a width nor a hardness in units of x."


def calibrate_new_(
    run: Callable[[contextlib.AbstractContextManager[Any]], Any], modules: Mapping[str, Parameterised], rule: Rule
) -> tuple[CalibratedSite, ...]:
    """Set the modules that a swap puts in, by path, from one run with them in place; those it misses stay.

    `run` calls the model inside of the context that it is given.
    """
    kinds = {path: _kind(module) for path, module in modules.items()}
    for path, kind in kinds.items():
        if kind not in (WIDTH, HARDNESS, GRID):
            raise InputError(
                f"swap_: calibrate=True has nothing to set at {path!r}: {kind} Leave it out. Nothing was changed."
            )
    seen = {path: Spread(module.granularity.count) for path, module in modules.items()}
    with contextlib.ExitStack() as hooks:
        for path, module in modules.items():
            hooks.callback(hook_input(module, _counter(path, module, seen[path])))
        run(hooks)
    reached = {path: module for path, module in modules.items() if seen[path].count}
    sites = tuple(planned(path, module, kinds[path], seen[path], rule) for path, module in reached.items())
    _apply(reached, sites)
    return sites


def _apply(modules: Mapping[str, Parameterised], sites: Sequence[CalibratedSite]) -> None:
    """Write all new values, or none."""
    before = {path: {k: v.clone() for k, v in module.state_dict().items()} for path, module in modules.items()}
    try:
        for site in sites:
            module = modules[site.path]
            module.set_(**{name: value if value.numel() > 1 else value.item() for name, value in site.new.items()})
            if isinstance(module, Squaf):
                module.refresh_window_()
    except BaseException:
        for path, state in before.items():
            modules[path].load_state_dict(state)
        raise


def _shown(values: Mapping[str, Tensor]) -> str:
    return ", ".join(f"{name} {_range(value)}" for name, value in values.items() if name != "z")


def _range(value: Tensor) -> str:
    low, high = float(value.min()), float(value.max())
    return f"{low:.4g}" if low == high else f"{low:.3g}..{high:.3g}"
