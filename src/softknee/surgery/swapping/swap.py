"""Another activation in an existing model: `swap_`, and `apply_`, which repeats a swap."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from torch import nn

from ...errors import InputError
from ...nn import make
from ...nn.baselines import Baseline
from ...registry import resolve
from ...spec import Activation, Rowwise, SoftTable
from ..finding.identify import compare, run_example
from ..finding.rewriting import edits_of
from ..finding.sites import Site, find_sites
from ..finding.unrun import unrun
from ..modules import number_by_depth
from . import plan as plans
from .configs import retell
from .operation import Step, home_of, listed, perform, settle, take_back
from .report import Changed, Report, Skipped, fast_paths, hidden, refuse_untouchable
from .starting import Replacing, Where, choose, fitted_table, granularity, start_values

Definition = Activation | SoftTable | Rowwise | Baseline


def swap_(
    model: nn.Module,
    activation: str | os.PathLike[str] | Definition,
    *,
    where: Where = None,
    replacing: Replacing = None,
    learn: bool | str | Iterable[str] | None = None,
    per: str = "layer",
    example: Any = None,
    dry_run: bool = False,
    **values: Any,
) -> Report:
    """Put another activation into a model, in place: everywhere it is meant, or nowhere if anything fails.

    Args:
        activation: the new function, as `sk.nn.make` takes it: a text such as "srelu(delta=0.05)", or a definition.
        where: a pattern for the sites' paths ("*.mlp.act"), several, or a function of a `Site`.
        replacing: what to replace, by the function computed ("gelu" is every class and call that computes GELU, the
            tanh form included; "gelu_tanh" that form alone), or a class. Left out: every activation except gates
            (sigmoid, tanh) and functions that softknee does not know.
        learn, per: as in `sk.nn.make`; the channels and their dimension are those of the layer before each site. Left
            out, nothing is learned, except by a baseline ("polynorm", "polyrelu", "kaf", "ditac"), which is there to
            learn.
        example: what the model is called with. Needed for functions called inside forward, for per="channel" or
            "neuron", and for the change of the output in the report.
        dry_run: only report.
        values: parameters of the new function: a number, a list with one for each site, or "uniform", "increasing",
            "decreasing" with depth. For SQUAF, z="fit" fits the table to the function that is replaced.

    Weights, hooks, modes, devices and dtypes stay; weights saved before a swap load after it. `report.undo()` is the
    way back.

    >>> import softknee as sk, torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
    >>> report = sk.swap_(net, "srelu", replacing="gelu", learn="delta", delta=0.1)
    >>> print(report)
    1 changed, 0 left
    site  was   is now
    1     gelu  SReLU(delta=0.1 (learned), per='layer')
    >>> report.undo(); net[1]
    GELU(approximate='none')
    """
    refuse_untouchable(model, "swap_")
    definition, own_values, own_learn = resolve(activation)
    values, learn = {**own_values, **values}, own_learn if learn is None else learn
    if not isinstance(definition, Definition):
        given = f"the class {activation.__name__}" if isinstance(activation, type) else type(activation).__name__
        raise InputError(
            f"swap_ takes the new activation by name or as a definition, and {given} was given; softknee.names() lists "
            f"the names."
        )
    learn = _read_learn(isinstance(definition, Baseline) if learn is None else learn)
    found, run = find_sites(model, example)
    title = type(model).__name__
    unseen = [Skipped(path, name, reason) for path, name, reason in hidden(model)]
    everything = unrun(model, found, run)
    found = everything[: len(found)]
    chosen, left = _choose(everything, where=where, replacing=replacing, example=example, title=title, unseen=unseen)
    settled = settle(chosen, found, apart=per != "layer" or bool(learn and definition.params))
    chosen, kept = settled.sites, settled.kept
    arguments = _arguments(definition, chosen, learn=learn, per=per, values=values)
    steps = _steps(model, definition, chosen, arguments)
    changes, more = retell(model, found, chosen, steps)
    report = Report(
        changed=_changed(chosen, steps, settled.served),
        skipped=[*(Skipped(site.path, site.function, reason) for site, reason in left), *unseen],
        notes=settled.notes + more + _unknown(model, run),
        dry_run=dry_run,
        plan=plans.describe(model, definition, chosen, arguments, kept),
    )
    if dry_run:
        return report
    report.steps = [*steps, *kept]
    report._done = perform(report.steps, extra=[*fast_paths(steps, model), *changes])
    if run is not None:
        calls = _Calls(steps)
        try:
            after = run_example(model, example, inside=calls, after=f"With {definition.name} in place")
        except BaseException:
            take_back(report._done)
            raise
        report.output_change, report.relative_change = compare(run.output, after)
        if idle := [site.path for site, step in zip(chosen, steps, strict=True) if site.seen and not calls.of(step)]:
            report.notes.append(
                f"Not called any more, though its predecessor was: {listed(idle)}. Something in the model holds on to "
                f"the old activation, or another way was taken; look at the output before training."
            )
        report.uncalled = [site.path for site, step in zip(chosen, steps, strict=True) if not calls.of(step)]
        report.notes += _unmoved(report)
    return report


WITHOUT_EXAMPLE = (
    "Nothing was run: whether these sites are called, and what functions outside the modules compute, is known with "
    "example= only."
)


def _unmoved(report: Report) -> list[str]:
    """What the run of the example says of the sites: which it never called, and that nothing came of the others."""
    notes = []
    if report.uncalled:
        notes.append(
            f"Never called by the example: {listed(report.uncalled)}. Give an example that reaches them, or see "
            f"whether the model calls a function of the same name instead."
        )
    if report.output_change == 0:
        notes.append(
            "The output on the example did not move: either every new function equals the old one there, or none of "
            "them is used. Look at the sites before training."
        )
    return notes


def _unknown(model: nn.Module, run: Any) -> list[str]:
    """What cannot be known of a model without an example."""
    homes = (edits_of(type(module))[0].__module__ for module in model.modules())
    if run is not None or all(home.startswith(("torch.nn.", "softknee.")) for home in homes):
        return []
    return [WITHOUT_EXAMPLE]


def _read_learn(learn: Any) -> bool | str | tuple[Any, ...]:
    if isinstance(learn, bool | str):
        return learn
    if not isinstance(learn, Iterable):
        raise InputError(
            f"learn takes the name of a parameter, several, or True for all, and {type(learn).__name__} was given."
        )
    return tuple(learn)


class _Calls(contextlib.ExitStack):
    """Notes which of the new modules are called while it is entered."""

    def __init__(self, steps: Sequence[Step]) -> None:
        super().__init__()
        self.steps, self.called = steps, set[int]()

    def __enter__(self) -> Self:
        for step in self.steps:
            self.callback(step.new.register_forward_pre_hook(lambda module, _: self.called.add(id(module))).remove)
        return super().__enter__()

    def of(self, step: Step) -> bool:
        return id(step.new) in self.called


def apply_(model: nn.Module, path: str | os.PathLike[str]) -> Report:
    """Repeat the surgery that `report.save(path)` wrote, before the weights of the changed model are loaded."""
    refuse_untouchable(model, "apply_")
    plan = plans.read(path)
    definition, chosen, arguments, kept = plans.resolve(model, plan, source=os.fspath(path))
    with plans.blamed_on(os.fspath(path)):
        steps = _steps(model, definition, chosen, arguments)
    changes, notes = retell(model, find_sites(model)[0], chosen, steps)
    done = perform([*steps, *kept], extra=[*fast_paths(steps, model), *changes])
    changed = _changed(chosen, steps)
    return Report(changed=changed, skipped=[], notes=notes, plan=plan, steps=[*steps, *kept], _done=done)


def _choose(found: Sequence[Site], *, unseen: Sequence[Skipped], title: str, example: Any, **asked: Any) -> Any:
    try:
        return choose(found, example=example is not None, title=title, **asked)
    except InputError as error:
        if not unseen:
            raise
        there = "; ".join(f"{one.path} ({one.activation}): {one.reason}" for one in unseen[:3])
        raise InputError(f"{error} Some of its layers hide their activation: {there}") from None


def _arguments(
    definition: Definition, chosen: Sequence[Site], *, learn: Any, per: str, values: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """What the module of each site is made with."""
    common = {"learn": learn if isinstance(learn, bool | str) else list(learn)}
    starts = start_values(definition, values, count=len(chosen), learn=learn)
    arguments = [
        common | _inplace(site, definition) | start | granularity(site, per=per)
        for site, start in zip(chosen, starts, strict=True)
    ]
    for site, one in zip(chosen, arguments, strict=True):
        if isinstance(definition, SoftTable) and isinstance(one.get("z"), str) and one["z"] == "fit":
            one["z"] = fitted_table(site, definition, one)
    return arguments


def _inplace(site: Site, definition: Definition) -> dict[str, Any]:
    """A module that was asked to overwrite its input is replaced by one that does where it can."""
    asked = getattr(site.place.old, "inplace", False) is True and not isinstance(definition, Baseline)
    return {"inplace": True} if asked else {}


def _steps(
    model: nn.Module, definition: Definition, chosen: Sequence[Site], arguments: Sequence[dict[str, Any]]
) -> list[Step]:
    """A new module for each site, on the device and in the type of the weights nearest to it."""
    around = dict(model.named_modules(remove_duplicate=False))
    steps = []
    for site, one in zip(chosen, arguments, strict=True):
        parts = site.owner.split(".") if site.owner else []
        parents = [around[".".join(parts[:n])] for n in range(len(parts), -1, -1)]
        steps.append(Step(site.place, make(definition, **(home_of(site.place.old, *parents) | one))))
    number_by_depth(step.new for step in steps)
    return steps


def _changed(
    chosen: Sequence[Site], steps: Sequence[Step], served: Mapping[str, tuple[str, ...]] | None = None
) -> list[Changed]:
    return [
        Changed(site.path, site.function, repr(step.new), site.kind, also=(served or {}).get(site.path, ()))
        for site, step in zip(chosen, steps, strict=True)
    ]
