"""Another activation in an existing model: `swap_`, and `apply_`, which repeats a swap."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Self

import torch
from torch import Tensor, nn

from ... import registry
from ...design.fitting import fit_table
from ...errors import InputError, ParameterError, SoftkneeError, did_you_mean, require_number
from ...kernels import find
from ...nn import Squaf, make
from ...nn.baselines import Baseline
from ...nn.gated import GatedPointwise
from ...registry import resolve, with_preset
from ...spec import Activation, Param, Rowwise, SoftTable
from ..calibration import Rule, calibrate_new_
from ..finding.identify import GATES, double, identify_module, stand_in
from ..finding.rewriting import edits_of, gate_products
from ..finding.sites import Site, find_sites, unrun
from ..modules import compare, first_line, number_by_depth, read_where, run_example
from . import plan as plans
from .configs import update_configs
from .operation import (
    Step,
    fast_paths,
    hidden,
    home_of,
    listed,
    perform,
    refuse_untouchable,
    resolve_shared,
    take_back,
)
from .report import Changed, Report, Skipped

Where = str | Iterable[str] | Callable[[Site], bool] | None
Replacing = str | type | Activation | SoftTable | Rowwise | Iterable[Any] | None


def choose(
    sites: Sequence[Site], *, where: Where, replacing: Replacing, example: bool, title: str
) -> tuple[list[Site], list[tuple[Site, str]]]:
    """The sites meant, and the others with the reason; a sentence where none is meant or none can be changed."""
    hint = "" if example else " Give example= to find the functions that are called inside forward, too."
    if not sites:
        raise InputError(f"{title} has no activation that can be replaced.{hint}")
    pattern, wanted = read_where(where, "swap_", error=InputError), _read_replacing(replacing)
    by_place = [(site, _not_there(site, pattern)) for site in sites]
    there = [site for site, reason in by_place if not reason]
    if not there:
        raise InputError(
            f"{_pattern_text(pattern)} matches none of the {len(sites)} activations of {title}. Did you mean "
            f"{' or '.join(repr(name) for name in _nearest(pattern, sites))}?{hint}"
        )
    reasons = [(site, reason or _not_that(site, wanted)) for site, reason in by_place]
    if all(reason for _, reason in reasons):
        raise InputError(f"{title} has {_none_of_that(wanted, there)}{hint}")
    chosen = [site for site, reason in reasons if not reason and not site.trouble]
    skipped = [(site, reason or _sentence(site.trouble)) for site, reason in reasons if reason or site.trouble]
    if not chosen:
        site = next(site for site, reason in reasons if not reason)
        raise InputError(f"Nothing of {title} can be changed. {site.path} ({site.function}): {_sentence(site.trouble)}")
    return chosen, skipped


def _sentence(trouble: str) -> str:
    """The reason why a site cannot be changed, and what to do."""
    cure = "" if ";" in trouble else "; make it a module of its own to change it"
    return f"{trouble[0].upper()}{trouble[1:]}{cure}."


def _pattern_text(where: Any) -> str:
    if callable(where):
        return "The function where="
    return f"where={where[0]!r}" if len(where) == 1 else f"where={where!r}"


def _nearest(where: Any, sites: Sequence[Site]) -> list[str]:
    """The paths, or patterns for several of them, that look most like what was asked for."""
    paths = [site.path for site in sites]
    if callable(where) or not where:
        return paths[:1]
    patterns = sorted({f"*.{path.rpartition('.')[2]}" for path in paths if "." in path})
    tails = sorted({"*." + ".".join(path.split(".")[-2:]) for path in paths if path.count(".") > 1})
    return get_close_matches(where[0], [*patterns, *tails, *paths], n=2, cutoff=0.4) or paths[:1]


def _not_there(site: Site, where: list[str] | Callable[[Site], bool] | None) -> str:
    if where is None:
        return ""
    if not isinstance(where, list):
        return "" if where(site) else "The function where= leaves it out."
    return (
        ""
        if any(fnmatchcase(site.path, pattern) for pattern in where)
        else f"Its path does not match {_pattern_text(where)}."
    )


def _read_replacing(replacing: Any) -> list[Any]:
    """What is to be replaced: names, classes and definitions; nothing for what is replaced unasked."""
    if replacing is None:
        return []
    several = isinstance(replacing, Iterable) and not isinstance(replacing, str | type)
    targets = list(replacing) if several else [replacing]
    for target in targets:
        if not isinstance(target, str | type | Activation | SoftTable | Rowwise):
            raise InputError(
                f"replacing takes the name of a function or a class, a class, a definition, or several of them, and "
                f"{type(target).__name__} was given."
            )
    if not targets:
        raise InputError("replacing was given with nothing in it; name what to replace, or leave it out.")
    return targets


def _none_of_that(wanted: Sequence[Any], there: Sequence[Site]) -> str:
    """The sentence for a model that computes other functions than those asked for."""
    functions = sorted({site.function for site in there})
    names = [target.partition("(")[0] for target in functions]
    lacks, near = "nothing that is replaced unasked", ""
    if wanted:
        wanted_names = (
            repr(target) if isinstance(target, str) else getattr(target, "__name__", str(target)) for target in wanted
        )
        lacks = f"no activation here that is {' or '.join(wanted_names)}"
        # Who names a function that there is has not mistyped it; it is not in this model.
        known = list(dict.fromkeys([*names, *registry.names()]))
        near = "".join(
            did_you_mean(target, known) for target in wanted[:1] if isinstance(target, str) and target not in known
        )
    return f"{lacks}: it computes {', '.join(functions)}. Name what to replace, such as replacing={names[0]!r}.{near}"


def _not_that(site: Site, replacing: Sequence[Any]) -> str:
    if replacing:
        return "" if any(_computes(site, target) for target in replacing) else f"It computes {site.function}."
    if site.trouble:
        return ""  # the better reason
    if not site.known:
        return f"It computes no function of softknee; name it to replace it: replacing={site.activation!r}."
    if site.role:
        return f"{site.role[0].upper()}{site.role[1:]}; name it to replace it: replacing={site.activation!r}."
    if site.activation in GATES:
        return f"It is a gate or a limit; name it to replace it: replacing={site.activation!r}."
    return ""


def _computes(site: Site, target: Any) -> bool:
    if isinstance(target, type):
        return isinstance(site.place.old, target)
    if not isinstance(target, str):
        return getattr(site.place.old, "definition", None) is target
    try:
        wanted = registry.get(target)
    except SoftkneeError:  # neither a name nor a text of the language
        return target in (site.activation, type(site.place.old).__name__)
    if not site.known:
        return target == site.activation
    held = getattr(site.place.old, "definition", None)
    here: Any = find(site.activation) if held is None else held
    if target != wanted.name:  # an alias, such as silu of swish, is the function at its usual parameters
        return here is wanted and not site.params
    # "gelu" is every GELU; "gelu_tanh" is the approximation alone.
    forms = [name for choice in getattr(wanted, "variants", {}).values() for name in choice.values()]
    if here is wanted or (bool(forms) and forms[0] == wanted.name and here.name in forms):
        return True
    return _same_function(here, site.params, wanted)


def _same_function(here: Any, params: Mapping[str, float], wanted: Any) -> bool:
    """Whether one definition at these parameters is another at its usual ones, as ELU is CELU, and Swish QuickGELU."""
    both = isinstance(here, Activation) and isinstance(wanted, Activation)
    return both and torch.allclose(here(double(), **params), wanted(double()), rtol=1e-7, atol=1e-7)


MODES = ("uniform", "increasing", "decreasing")


def start_values(activation: Any, values: Mapping[str, Any], *, count: int, learn: Any) -> list[dict[str, Any]]:
    """For each of `count` sites in order of depth: the values its module is made with.

    A list has one value per site; "uniform" is the usual start everywhere, "increasing" goes from there to twice the
    usual value with depth and "decreasing" comes back (the lambda-GELU paper: from about 1 to 2).
    """
    numbers = {p.name: p for p in activation.params if isinstance(p, Param)}
    spread = {
        name: _over_depth(activation, numbers[name], value, count, learn) if name in numbers else [value] * count
        for name, value in values.items()
    }
    return [{name: each[index] for name, each in spread.items()} for index in range(count)]


def _over_depth(activation: Any, param: Param, value: Any, count: int, learn: Any) -> list[Any]:
    title = f"{activation.name}: {param.name}"
    if isinstance(value, list | tuple):
        if len(value) != count:
            raise ParameterError(
                f"{title} was given {len(value)} values for {count} sites; give one for each, in order of depth "
                f"(dry_run=True lists them)."
            )
        return list(value)
    if not isinstance(value, str) or (isinstance(activation, SoftTable) and value == "auto"):
        return [value] * count
    if value not in MODES:
        raise ParameterError(
            f"{title} starts at a number, a list, or one of {', '.join(MODES)}, not {value!r}."
            f"{did_you_mean(value, MODES)}"
        )
    learned = param.name in ([learn] if isinstance(learn, str) else learn) if not isinstance(learn, bool) else learn
    low, high = param.start if learned else param.default, 2 * param.default
    if value != "uniform" and low == high:
        raise ParameterError(f"{title} usually starts at {low:g}, from where {value!r} leads nowhere; give a list.")
    steps = torch.linspace(low, high, count, dtype=torch.float64).tolist() if count > 1 else [low]
    return {"uniform": [low] * count, "increasing": steps, "decreasing": steps[::-1]}[value]


def granularity(site: Site, *, per: str) -> dict[str, Any]:
    """The size (and the dimension) of a module with a value per channel or neuron, from the layer before the site."""
    if per == "layer":
        return {}
    seen = site.seen
    if per == "neuron":
        if seen is None or seen.shape is None or len(seen.shape) < 2:
            changes = seen is not None and seen.shape is None
            how = "use per='layer', because it changes from call to call" if changes else "give example=, with a batch"
            raise InputError(f"per='neuron' needs the one shape of all that reaches {site.path!r}; {how}.")
        return {"per": per, "size": seen.shape[1:]}
    if per != "channel":
        return {"per": per}
    if seen is not None and seen.channels is not None:
        return {"per": per, "size": seen.channels.count, "dim": seen.channels.dim}
    known = _before_in_sequence(site) if seen is None else None
    if known is None:
        how = "give example=" if seen is None else "use per='layer', or leave the site out with where="
        raise InputError(
            f"per='channel' needs the layer that produces what reaches {site.path!r}, and it cannot be told; {how}."
        )
    return {"per": per, "size": known[0], "dim": known[1]}


def _before_in_sequence(site: Site) -> tuple[int, int] | None:
    """In a Sequential the order is known without running it."""
    owner = site.place.owner
    if type(owner).forward is not nn.Sequential.forward:
        return None
    before = list(owner._modules.items())
    here = [name for name, _ in before].index(site.place.name)
    for _, module in reversed(before[:here]):
        if isinstance(module, nn.Linear):
            return module.out_features, -1
        if isinstance(module, nn.modules.conv._ConvNd):
            return module.out_channels, 1
        if isinstance(module, nn.modules.batchnorm._NormBase):
            return module.num_features, 1
        if isinstance(module, nn.GroupNorm):
            return module.num_channels, 1
        if isinstance(module, nn.LayerNorm):
            return module.normalized_shape[-1], -1
        if not isinstance(module, _IN_PLACE) and (module is None or identify_module(module) is None):
            return None
    return None


# What leaves the channels where they are.
_IN_PLACE = (nn.Identity, nn.modules.dropout._DropoutNd, nn.modules.pooling._MaxPoolNd, nn.modules.pooling._AvgPoolNd)


# -- a SQUAF that starts as the function it replaces ------------------------------------------------------


def fitted_table(site: Site, definition: SoftTable, arguments: Mapping[str, Any]) -> Tensor:
    """The table z, by least squares, with which SQUAF is nearest to what the site computes now."""
    if any(isinstance(arguments.get(name), Tensor) and arguments[name].numel() != 1 for name in ("q", "alpha")):
        raise ParameterError("squaf: z='fit' needs one q and one alpha for the layer; give numbers.")
    shape = {name: value for name, value in arguments.items() if name not in _NOT_OF_THE_SHAPE}
    made = Squaf(definition, **shape, dtype=torch.float64, device="cpu")
    if made.k is None:
        raise ParameterError("squaf: z='fit' needs a uniform grid; give q= and k= instead of grid=.")
    q, alpha = made.q.item(), made.alpha.item()
    try:
        return fit_table(_target(site), k=made.k, q=q, alpha=alpha, weights=made.weights, window=made.window).z
    except Exception as error:  # what a foreign function raises may be anything
        raise ParameterError(
            f"squaf: z='fit' cannot be fitted to {site.path} ({site.function}), because {first_line(error)}. Leave the "
            f"site out with where=, or give z= a name to start from."
        ) from error


_NOT_OF_THE_SHAPE = ("z", "learn", "per", "size", "dim", "inplace", "save", "device", "dtype")


def _target(site: Site) -> Any:
    """What the site computes, as fit_table takes it."""
    old = site.place.old
    if site.known and isinstance(definition := find(site.activation), Activation) and not _has_numbers(old):
        return definition if not site.params else lambda x: definition(x, **site.params)
    if isinstance(old, nn.Module):
        # With its numbers as they are now: a copy, because those may lie on another device.
        twin = stand_in(old)
        if twin is not None:
            return twin.forward
    if old is None or isinstance(old, nn.Module):
        raise ParameterError("it cannot be evaluated on its own")
    return old


def _has_numbers(old: Any) -> bool:
    return isinstance(old, nn.Module) and any(True for _ in (*old.parameters(), *old.buffers()))


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
    calibrate: bool | float = False,
    fuse: bool = False,
    save: str = "input",
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
            "neuron", for calibrate, and for the change of the output in the report.
        calibrate: True scales the default width of each new activation by the spread of what reaches it on the example,
            as `sk.calibrate_` does; a number is the width in units of that spread. SQUAF gets its grid so.
        fuse: where a block computes `self.act(a) * b`, as those of Llama, Mistral, Qwen and Gemma do, compute the
            product in the activation's kernel, which then saves a and b alone (see `sk.nn.Gated`).
        save: what an activation keeps for the backward pass: "input", or "output", which the next layer holds anyway
            (see `sk.nn.make`).
        dry_run: only report.
        values: parameters of the new function: a number, a list with one for each site, or "uniform", "increasing",
            "decreasing" with depth; preset="paper" for those of its paper. For SQUAF, z="fit" fits the table to the
            function that is replaced.

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
    learn = own_learn if learn is None else learn
    if not isinstance(definition, Definition):
        kind = f"the class {activation.__name__}" if isinstance(activation, type) else type(activation).__name__
        raise InputError(
            f"swap_ takes the new activation by name or as a definition, and {kind} was given; softknee.names() lists "
            f"the names."
        )
    values = with_preset(definition, {**own_values, **values})
    usual = isinstance(definition, Baseline) and definition.learns
    learn = _read_learn(usual if learn is None else learn)
    if fuse and save != "input":
        raise ParameterError(
            "swap_: fuse=True saves both factors of a product, and save='output' neither; leave one of them out."
        )
    if save != "input":
        values["save"] = save
    if calibrate is not False:
        _check_calibrate(calibrate, definition, example, values)
    sites, run = find_sites(model, example)
    title = type(model).__name__
    unseen = [Skipped(path, name, reason) for path, name, reason in hidden(model)]
    everything = unrun(model, sites, run)
    sites = everything[: len(sites)]
    chosen, left = _choose(everything, where=where, replacing=replacing, example=example, title=title, unseen=unseen)
    shared = resolve_shared(chosen, sites, apart=per != "layer" or bool(learn and definition.params))
    chosen, kept = shared.sites, shared.kept
    arguments = _arguments(definition, chosen, learn=learn, per=per, values=values)
    steps = _steps(model, definition, chosen, arguments, fuse=fuse)
    written, calibration_notes = _written_out(definition, steps, arguments), list[str]()
    if calibrate is not False:
        written, calibration_notes = _calibrated(model, example, calibrate, chosen, [*steps, *kept], written)
    changes, more = update_configs(model, sites, chosen, steps)
    report = Report(
        changed=_changed(chosen, steps, shared.served),
        skipped=[*(Skipped(site.path, site.function, reason) for site, reason in left), *unseen],
        notes=shared.notes + more + calibration_notes + (_unfused(steps) if fuse else []) + _unknown(model, run),
        dry_run=dry_run,
        plan=plans.describe(model, definition, chosen, written, kept, fuse=fuse),
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
        uncalled = [site for site, step in zip(chosen, steps, strict=True) if not calls.reached(step)]
        if idle := [site.path for site in uncalled if site.seen]:
            report.notes.append(
                f"Not called any more, though its predecessor was: {listed(idle)}. Something in the model holds on to "
                f"the old activation, or another way was taken; look at the output before training."
            )
        report.uncalled = [site.path for site in uncalled]
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

    def reached(self, step: Step) -> bool:
        return id(step.new) in self.called


def apply_(model: nn.Module, path: str | os.PathLike[str]) -> Report:
    """Repeat the surgery that `report.save(path)` wrote, before the weights of the changed model are loaded."""
    refuse_untouchable(model, "apply_")
    plan = plans.read(path)
    definition, chosen, arguments, kept = plans.resolve(model, plan, source=os.fspath(path))
    with plans.blamed_on(os.fspath(path)):
        steps = _steps(model, definition, chosen, arguments, fuse=plan["fuse"])
    changes, notes = update_configs(model, find_sites(model)[0], chosen, steps)
    done = perform([*steps, *kept], extra=[*fast_paths(steps, model), *changes])
    changed = _changed(chosen, steps)
    return Report(changed=changed, skipped=[], notes=notes, plan=plan, steps=[*steps, *kept], _done=done)


def _choose(sites: Sequence[Site], *, unseen: Sequence[Skipped], title: str, example: Any, **selection: Any) -> Any:
    try:
        return choose(sites, example=example is not None, title=title, **selection)
    except InputError as error:
        if not unseen:
            raise
        there = "; ".join(f"{layer.path} ({layer.activation}): {layer.reason}" for layer in unseen[:3])
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
    for site, site_values in zip(chosen, arguments, strict=True):
        if isinstance(definition, SoftTable) and isinstance(site_values.get("z"), str) and site_values["z"] == "fit":
            site_values["z"] = fitted_table(site, definition, site_values)
    return arguments


def _written_out(
    definition: Definition, steps: Sequence[Step], arguments: Sequence[Mapping[str, Any]]
) -> Sequence[Mapping[str, Any]]:
    """The arguments with every default that is not given: a plan means the same when a default changes."""
    if not isinstance(definition, Activation):
        return arguments
    return [
        {p.name: p.start if p.name in step.new.learned else p.default for p in step.new.params} | dict(values)
        for step, values in zip(steps, arguments, strict=True)
    ]


def _check_calibrate(calibrate: Any, definition: Definition, example: Any, values: Mapping[str, Any]) -> None:
    if example is None:
        raise InputError(
            "swap_: calibrate=True goes by what reaches each activation, which needs a run; give example=, a batch of "
            "real inputs."
        )
    if calibrate is not True:
        require_number("swap_", "calibrate, unless it is True,", calibrate)
    knobs = ("q", "alpha") if isinstance(definition, SoftTable) else getattr(definition, "knobs", ())
    if both := [name for name in knobs if name in values]:
        raise ParameterError(
            f"swap_: calibrate sets {both[0]}, and {both[0]}={values[both[0]]!r} was given; leave it out, or say how "
            f"wide a knee is in units of the spread, as in calibrate=0.5."
        )


def _calibrated(
    model: nn.Module,
    example: Any,
    calibrate: float,
    chosen: Sequence[Site],
    steps: Sequence[Step],
    arguments: Sequence[Mapping[str, Any]],
) -> tuple[list[dict[str, Any]], list[str]]:
    """Set the new modules from a run with them in place, and take them out again; the arguments with what was set."""
    rule = Rule() if calibrate is True else Rule(fraction=calibrate)
    modules = {site.path: step.new for site, step in zip(chosen, steps, strict=False)}
    done = perform(steps, extra=fast_paths(steps, model))
    try:
        after = "With the new activations in place"
        sites = calibrate_new_(lambda hooks: run_example(model, example, inside=hooks, after=after), modules, rule)
    finally:
        take_back(done)
    new = {site.path: site.new for site in sites}
    written = [dict(values) | dict(new.get(site.path, {})) for site, values in zip(chosen, arguments, strict=True)]
    return written, [f"{site.path}: {site.note}." for site in sites if site.note]


def _inplace(site: Site, definition: Definition) -> dict[str, Any]:
    """A module that was asked to overwrite its input is replaced by one that does where it can."""
    inplace = getattr(site.place.old, "inplace", False) is True and not isinstance(definition, Baseline)
    return {"inplace": True} if inplace else {}


def _steps(
    model: nn.Module,
    definition: Definition,
    chosen: Sequence[Site],
    arguments: Sequence[dict[str, Any]],
    *,
    fuse: bool,
) -> list[Step]:
    """A new module for each site, on the device and in the type of the weights nearest to it."""
    around = dict(model.named_modules(remove_duplicate=False))
    steps = []
    for site, values in zip(chosen, arguments, strict=True):
        parts = site.owner.split(".") if site.owner else []
        parents = [around[".".join(parts[:n])] for n in range(len(parts), -1, -1)]
        values = home_of(site.place.old, *parents) | values
        gated = fuse and isinstance(definition, Activation) and _multiplies(site)
        steps.append(Step(site.place, GatedPointwise(definition, **values) if gated else make(definition, **values)))
    number_by_depth(step.new for step in steps)
    return steps


def _multiplies(site: Site) -> bool:
    """Whether all that its owner does with the result of the site is to multiply it."""
    place = site.place
    return not place.calls and not place.node and bool(gate_products(type(place.owner), place.name))


def _unfused(steps: Sequence[Step]) -> list[str]:
    left = [step.place.name for step in steps if not isinstance(step.new, GatedPointwise)]
    if not left:
        return []
    return [
        f"fuse=True: of {len(steps)} activations {len(left)} stay apart, because they are no factor of a product "
        "written as self.act(a) * b, or no function of single elements."
    ]


def _changed(
    chosen: Sequence[Site], steps: Sequence[Step], served: Mapping[str, tuple[str, ...]] | None = None
) -> list[Changed]:
    return [
        Changed(site.path, site.function, repr(step.new), site.kind, also=(served or {}).get(site.path, ()))
        for site, step in zip(chosen, steps, strict=True)
    ]
