"""Widths and grids from what each site of a model really sees.

A knee of width 0.01 is a kink at a site whose pre-activations spread over 5, and half of the function at one where they
spread over 0.02. `calibrate_` runs a few batches through the model and gives every site

    a width (S-ReLU's delta, SmeLU's beta, ...)       fraction * spread
    a hardness (beta of Swish, GELU, softplus; lambda) 1 / (fraction * spread), so that 1/hardness is that width
    a grid (SQUAF's q)                                 the quantile `cover` of |x|, over k; alpha keeps alpha q^2

`spread` is the median of |x| over 0.6745, which for a normal distribution around 0 is its standard deviation. About 0,
because that is where the knee stands; by the median, because in a transformer a few channels are a hundred times the
others, and would set a standard deviation while nearly all pre-activations sat inside the knee. At fraction 0.5 a width
takes in 38% of normal pre-activations, and S-ReLU, SmeLU, GELU and Swish are all about a tenth of a spread away from
ReLU.

What is a width is not read from names: a knob is one if scaling x and the knob together leaves the slope alone,
f'(2x; 2w) = f'(x; w), and a hardness if f'(x/2; 2h) = f'(x; h). CRReLU's eps and ELU's beta are heights, and are
skipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InputError, ParameterError, did_you_mean
from ...nn import Squaf
from ...nn.parameters import Parameterised, require_model
from ...spec import Activation
from ..modules import activation_modules, read_where
from .observe import observe
from .values import GRID, HARDNESS, WIDTH, CalibratedSite, Rule, planned


@dataclass(frozen=True, eq=False)
class Calibration:
    """What `calibrate_` did: every site changed, and every one skipped with the reason. Prints as a table."""

    sites: tuple[CalibratedSite, ...]
    skipped: Mapping[str, str]
    fraction: float
    cover: float
    batches: int

    def __str__(self) -> str:
        head = ("site", "activation", "was", "is", "spread", "inside", "")
        lines = [
            (
                one.path or "(model)",
                one.activation,
                _shown(one.old),
                _shown(one.new),
                _range(one.spread),
                f"{one.inside:.1%}",
                one.note,
            )
            for one in self.sites
        ]
        widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
        rows = [
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in (head, *lines)
        ]
        rows += [f"{path or '(model)'} was skipped: {reason}" for path, reason in self.skipped.items()]
        return "\n".join(row.rstrip() for row in rows)


def calibrate_(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    fraction: float = 0.5,
    cover: float = 0.999,
    where: str | Sequence[str] | Callable[[str], bool] | None = None,
    stands_for: str | Activation | Callable[[Tensor], Tensor] | None = None,
) -> Calibration:
    """Set the widths and grids of a model's softknee modules from their own pre-activations, in place.

    Args:
        model: with modules of softknee in it (`sk.swap_` puts them there).
        batches: inputs of the model: tensors, tuples whose first entry is the input, or dicts of keyword arguments.
            They are moved to the model's device.
        fraction: of the spread, the width that every knee gets.
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
    >>> f"{net[1].delta.item():.2f}"  # half of the median 1.5 of |x| over 0.6745
    '1.11'
    """
    require_model(model, "calibrate_")
    _check_number("fraction", fraction, 0, math.inf)
    _check_number("cover", cover, 0, 1)
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


def _check_number(name: str, value: Any, low: float, high: float) -> None:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and low < value <= high
    if not fits or value == math.inf:
        limit = f" and at most {high:g}" if high < math.inf else ""
        raise ParameterError(f"calibrate_: {name} must be a number above {low:g}{limit}, and {value!r} was given.")


def _chosen(model: nn.Module, where: Any) -> dict[str, Parameterised]:
    found = activation_modules(model)
    if not found:
        raise InputError(
            f"{type(model).__name__} has no activation of softknee to calibrate; put some in with softknee.swap_ first."
        )
    patterns = read_where(where, "calibrate_")
    if patterns is None:
        return found
    matches = patterns if callable(patterns) else lambda path: any(fnmatchcase(path, one) for one in patterns)
    chosen = {path: module for path, module in found.items() if matches(path)}
    if not chosen:
        near = did_you_mean(where, found) if isinstance(where, str) else ""
        raise InputError(
            f"calibrate_ matched 0 of the {len(found)} activations for where={where!r}; the first is "
            f"{next(iter(found))!r}.{near}"
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
