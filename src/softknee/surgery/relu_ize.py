"""The last step: every activation replaced by its hard limit, with the cost measured."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ..errors import InputError, MissingToolError, ParameterError, require_choice
from ..nn.parameters import Parameterised
from .finding.identify import uncompiled
from .finding.sites import Site, find_sites
from .hardening.sites import distance_bound, hard_module
from .modules import by_depth, compare, run_example
from .swapping.configs import update_configs
from .swapping.operation import Step, Undo, perform, refuse_untouchable, take_back

Evaluate = Callable[[nn.Module], float]
ORDERS = ("together", "layerwise")
_BUILD = "Build the stock model with the plain modules of this report and load the weights into that."


@dataclass
class ReluIzed:
    """What the replacement cost; prints as a table.

    before, after: the metric with the smooth functions, and right after the replacement without any training.
    recovered:     the metric after `finetune`, where one was given.
    output_change: the largest change of any output on `data` by the replacement alone, None without data or where
                   training came between.
    bounds:        for each site, the proved bound on |smooth - hard| at its values then.
    replaced:      for each site, the plain module that is there now.
    trace:         layer by layer, the metric right after the replacement and after recovering.
    dry_run:       whether the model is as it was, and all this is what the replacement would cost.
    """

    before: float | None = None
    after: float | None = None
    recovered: float | None = None
    output_change: float | None = None
    bounds: dict[str, float] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)
    trace: list[tuple[str, float | None, float | None]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    dry_run: bool = False

    def __str__(self) -> str:
        wide = max(len(path) for path in self.replaced)
        done, moved = ("would be replaced", "moves") if self.dry_run else ("replaced", "moved")
        lines = [f"{len(self.replaced)} activation{'s' * (len(self.replaced) != 1)} {done}"]
        lines += [
            f"{path.ljust(wide)}  {now}  ({moved} by at most {self.bounds[path]:.3g})"
            for path, now in self.replaced.items()
        ]
        for name in ("before", "after", "recovered"):
            if (value := getattr(self, name)) is not None:
                lines.append(f"metric {name}: {value:.6g}")
        if self.output_change is not None:
            lines.append(f"largest change of an output: {self.output_change:.3g}")
        return "\n".join([*lines, *self.notes])


def relu_ize_(
    model: nn.Module,
    evaluate: Evaluate | None = None,
    *,
    data: Any = None,
    finetune: Callable[[nn.Module], Any] | None = None,
    order: str = "together",
    tolerance: float = 0.01,
    dry_run: bool = False,
) -> ReluIzed:
    """Replace every softknee activation by its hard limit, a plain torch module, in place.

    Args:
        evaluate: a function of the model that returns its metric; called before and after.
        data: what the model is called with (a tensor, a tuple, a dict), to measure the change of its outputs.
        finetune: a function that trains the model for a few steps after the replacement.
        order: "together", or "layerwise": replace the first in depth, finetune, replace the next, and so on.
        tolerance: how far an activation may be from its hard limit before a warning says what replacing it costs; with
            `finetune` the cost is expected, and nothing is said.
        dry_run: only report what it would cost; the model stays as it is.

    The result has plain torch modules only: it loads into the stock model with ReLU and exports to standard operators.
    If anything fails the model is as it was, with its weights. Parameters of the activations are gone afterwards, so an
    optimiser made before still holds them; make a new one in `finetune`.

    >>> import softknee as sk, torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 8), sk.nn.SReLU(delta=0.016), torch.nn.Linear(8, 1))
    >>> print(sk.relu_ize_(net, data=torch.zeros(1, 2)))  # doctest: +ELLIPSIS
    1 activation replaced
    1  ReLU()  (moved by at most 0.003)
    largest change of an output: ...
    >>> print(sk.relu_ize_(torch.nn.Sequential(sk.nn.SReLU()), dry_run=True))
    1 activation would be replaced
    0  ReLU()  (moves by at most 0.188)
    """
    require_choice("relu_ize_", "order", order, ORDERS)
    if order == "layerwise" and finetune is None:
        raise ParameterError("order='layerwise' recovers after each layer, which needs finetune=.")
    if dry_run and finetune is not None:
        raise ParameterError("dry_run=True changes nothing, and finetune= would train the model; leave one out.")
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not tolerance >= 0:
        raise ParameterError(f"relu_ize_: tolerance must be a number, 0 or more, and {tolerance!r} was given.")
    for name, function in (("evaluate", evaluate), ("finetune", finetune)):
        if function is not None and not callable(function):
            raise InputError(f"{name} must be a function of the model, and {type(function).__name__} was given.")
    cure = "and its wrapper knows its parameters; give the model inside (model.module)."
    refuse_untouchable(model, "relu_ize_", cure=cure)
    everything = find_sites(model)[0]
    sites = [site for site in everything if isinstance(_old(site), Parameterised)]
    sites = by_depth(sites, _old)
    if not sites:
        raise InputError(
            f"{type(model).__name__} has no activation of softknee to replace; put them in with sk.swap_ first."
        )
    hard = _hard_modules(sites)
    result = ReluIzed(dry_run=dry_run)
    result.replaced = {site.path: repr(new) for site, new in zip(sites, hard, strict=True)}
    result.bounds, unbounded = _bounds(sites)
    steps = [Step(site.place, new, plain=True) for site, new in zip(sites, hard, strict=True)]
    as_it_was = _remember(model, weights=finetune is not None)
    done: list[Undo] = []
    try:
        result.before = _metric(evaluate, model)
        outputs = run_example(model, data) if data is not None else None
        changes, notes = update_configs(model, everything, sites, steps, keep=_BUILD)
        result.notes = unbounded + notes
        if order == "together":
            done += perform(steps, extra=changes)
            result.after = _metric(evaluate, model)
            if data is not None:
                after = run_example(model, data, after="With the hard limits in place")
                result.output_change = compare(outputs, after)[0]
            if dry_run:
                take_back(done)
                done.clear()
            elif finetune is None:
                _warn_of_cost(result, tolerance)
            result.recovered = _recovered(finetune, evaluate, model)
        else:
            for site, step in zip(sites, steps, strict=True):
                done += perform([step], extra=changes if step is steps[-1] else ())
                swapped = _metric(evaluate, model)
                result.recovered = _recovered(finetune, evaluate, model)
                result.trace.append((site.path, swapped, result.recovered))
    except BaseException:
        take_back(done)
        as_it_was()
        raise
    return result


def _warn_of_cost(result: ReluIzed, tolerance: float) -> None:
    """Say what replacing functions that are not hard does; where warnings are errors, nothing is replaced."""
    soft = {path: bound for path, bound in result.bounds.items() if bound > tolerance}
    if not soft:
        return
    worst = max(soft, key=soft.__getitem__)
    costs = [f"{worst} moves by up to {soft[worst]:.3g}"]
    costs += [f"an output by {result.output_change:.3g}"] if result.output_change is not None else []
    if result.before is not None and result.after is not None:
        costs.append(f"the metric from {result.before:.6g} to {result.after:.6g}")
    warnings.warn(
        f"relu_ize_: {len(soft)} of {len(result.bounds)} activations are not hard yet: {', '.join(costs)}. Harden them "
        f"first (sk.Hardener), recover with finetune=, look before with dry_run=True, or allow it with tolerance=.",
        stacklevel=3,
    )


def _old(site: Site) -> Any:
    """What is there now, without what the compiler put around it."""
    return uncompiled(site.place.old)


def _hard_modules(sites: list[Site]) -> list[nn.Module]:
    """The replacement of every site; all are asked for before any is put in."""
    made: dict[int, nn.Module] = {}
    for site in sites:
        try:
            made.setdefault(id(_old(site)), hard_module(_old(site)))
        except ParameterError as error:
            raise ParameterError(f"{site.path}: {error}") from None
    return [made[id(_old(site))] for site in sites]


def _bounds(sites: list[Site]) -> tuple[dict[str, float], list[str]]:
    """The proved bound of every site, infinite with a note where none is proved."""
    bounds: dict[str, float] = {}
    notes: list[str] = []
    for site in sites:
        try:
            bounds[site.path] = distance_bound(_old(site))
        except (ParameterError, MissingToolError) as error:
            bounds[site.path] = math.inf
            notes.append(f"No bound for {site.path}: {error}")
    return bounds, notes


def _metric(evaluate: Evaluate | None, model: nn.Module) -> float | None:
    if evaluate is None:
        return None
    value = evaluate(model)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"evaluate must return a number, and {type(value).__name__} was returned.") from None


def _recovered(
    finetune: Callable[[nn.Module], Any] | None, evaluate: Evaluate | None, model: nn.Module
) -> float | None:
    if finetune is None:
        return None
    finetune(model)
    return _metric(evaluate, model)


def _remember(model: nn.Module, *, weights: bool) -> Callable[[], None]:
    """How to bring a model back to its modes and, where something trains it, to its weights."""
    modes = [(module, module.training) for module in model.modules()]
    tensors = [*model.parameters(), *model.buffers()] if weights else []
    before = [(tensor, tensor.detach().clone(), tensor.requires_grad, tensor.grad) for tensor in tensors]
    gradients = [(tensor.grad, tensor.grad.clone()) for tensor in tensors if tensor.grad is not None]

    @torch.no_grad()
    def bring_back() -> None:
        for tensor, value, needed, grad in before:
            tensor.copy_(value)
            tensor.requires_grad_(needed)
            tensor.grad = grad
        for grad, value in gradients:
            grad.copy_(value)
        for module, mode in modes:
            module.training = mode

    return bring_back
