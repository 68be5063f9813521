"""Puts modules in place, all or none, and takes them out again."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InputError
from ...nn.gated import GatedPointwise
from ...nn.parameters import Parameterised, require_model
from ..finding.expressions import redirect
from ..finding.identify import identify_module
from ..finding.rewriting import count_calls, edits_for, gate_products, with_calls, without_calls
from ..finding.sites import Place, Site

# -- weights saved before a swap load after it, strictly: the new activations keep their values -----------


def keep_loadable(place: Place, new: nn.Module, *, kept: bool) -> Callable[[], None]:
    """Let a module be loaded from weights that were saved before it was there; returns how to take that back."""
    old = place.old
    names = tuple(old.state_dict()) if isinstance(old, nn.Module) else ()
    if not kept:
        handle = new.register_load_state_dict_pre_hook(partial(_keep_own, old_names=names))
        return handle.remove
    if not names:
        return _nothing
    # The old module under a second name: its weights were saved under the first.
    first = place.calls[0].attribute
    handle = place.owner.register_load_state_dict_pre_hook(partial(_take_from, first=first, second=place.name))
    return handle.remove


def _nothing() -> None:
    pass


def _keep_own(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any, old_names: tuple[str, ...]) -> None:
    """Weights saved before the swap know nothing of the new module: it keeps its values, and the old ones are left."""
    own = _values(module)
    news = [name for name in own if name not in old_names]
    if any(prefix + name in state for name in news) or (own and not news):
        return  # saved after the swap, or the two have the same names
    for name in old_names:
        state.pop(prefix + name, None)
    for name, value in own.items():
        state[prefix + name] = value


def _values(module: nn.Module) -> dict[str, Tensor]:
    """The state of a module; one on the meta device has none yet, so that its start values stand in."""
    own = module.state_dict()
    if isinstance(module, Parameterised) and any(value.device.type == "meta" for value in own.values()):
        started = copy.copy(module)
        for kind in ("_parameters", "_buffers"):
            held = {name: torch.empty_like(tensor, device="cpu") for name, tensor in vars(module)[kind].items()}
            vars(started)[kind] = held
        started.reset_parameters()
        return {name: started._held(name) for name in own}
    return own


def _take_from(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any, first: str, second: str) -> None:
    """What was saved under the first name goes under the second, unless that was saved, too."""
    if any(key.startswith(f"{prefix}{second}.") for key in state):
        return
    begin = f"{prefix}{first}."
    state.update(
        {f"{prefix}{second}.{key.removeprefix(begin)}": v for key, v in state.items() if key.startswith(begin)}
    )


# -- puts modules in place, all or none, and takes them out again -----------------------------------------


Undo = Callable[[], None]
# What a hook is registered in. The new module gets the very same dictionaries, so that a handle still removes its hook.
# Those around loading are not among them: they belong to the parameters of the old module.
_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_is_full_backward_hook",
)


@dataclass(frozen=True)
class Step:
    """A module, and the place that it goes to."""

    place: Place
    new: Any
    """A module; a function only where it is kept."""
    kept: bool = False
    """Whether it is the old module or function, moved so that it stays as it is."""
    plain: bool = False
    """Whether nothing of ours may be left in the new module."""


def perform(steps: Sequence[Step], extra: Sequence[Callable[[], Undo]] = ()) -> list[Undo]:
    """Do every step, then everything extra; if one fails, undo those before it and let the error through.

    Returns how to undo each, in the order in which they were done.
    """
    done: list[Undo] = []
    try:
        for step in steps:
            done.append(_put(step))
        for change in extra:
            done.append(change())
    except BaseException:
        take_back(done)
        raise
    return done


def take_back(done: list[Undo]) -> None:
    """Undo in the reverse order."""
    while done:
        done.pop()()


def still_there(steps: Sequence[Step]) -> None:
    """Refuse to undo where something else has been put in place since; checked for all before any is undone."""
    for step in steps:
        owner, name = step.place.owner, step.place.name
        if owner._modules.get(name, vars(owner).get(name)) is not step.new:
            raise InputError(
                f"The activation {name!r} of {type(owner).__name__} was replaced once more after this surgery; undo "
                f"the later one first."
            )


def _put(step: Step) -> Undo:
    place, new = step.place, step.new
    owner, old = place.owner, place.old
    forget = keep_loadable(step.place, new, kept=step.kept) if not step.plain else _nothing
    if not step.kept:
        new.train(old.training if isinstance(old, nn.Module) else owner.training)
        if isinstance(old, nn.Module):
            vars(new).update({name: vars(old)[name] for name in _HOOKS if name in vars(old)})
    try:
        if place.node:
            undo = _put_in_graph(place, new)
        else:
            undo = _put_in_code(place, new, kept=step.kept) if place.calls else _put_in_attribute(place, new)
    except BaseException:
        forget()
        raise

    home = home_of(new, owner)

    def undo_all() -> None:
        now = home_of(new, owner)
        undo()
        forget()
        if isinstance(old, nn.Module) and not step.kept:
            old.train(new.training)
            if now != home:  # the model has moved to another device or type since
                old.to(**now)

    return undo_all


def home_of(*near: Any) -> dict[str, Any]:
    """The device and the type of the first weights in these modules, in this order."""
    for module in near:
        if isinstance(module, nn.Module):
            for tensor in (*module.parameters(), *module.buffers()):
                if tensor.dtype in _TYPES:
                    return {"device": tensor.device, "dtype": tensor.dtype}
    return {}


_TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def _put_in_attribute(place: Place, new: nn.Module) -> Undo:
    """A module or a function that is an attribute of the owner makes room."""
    owner, name, old = place.owner, place.name, place.old
    before = vars(owner).pop(name, None)
    owner._modules[name] = new
    lists = _put_in_lists(owner, old, new)
    before_gate, after_gate = (isinstance(module, GatedPointwise) for module in (old, new))
    if before_gate != after_gate:
        _fuse_products(owner, name, fused=after_gate)
    if isinstance(owner, nn.TransformerDecoderLayer):
        # torch fills in F.relu where the state of a copy has no such entry, and would not see the module.
        vars(owner)[name] = new

    def undo() -> None:
        if before_gate != after_gate:
            _fuse_products(owner, name, fused=before_gate)
        lists()
        vars(owner).pop(name, None)
        if isinstance(old, nn.Module):
            owner._modules[name] = old
        else:
            del owner._modules[name]
        if before is not None:
            vars(owner)[name] = before

    return undo


def _fuse_products(owner: nn.Module, name: str, *, fused: bool) -> None:
    """The products `self.NAME(a) * b` of the owner's methods become `self.NAME(a, b)`, or themselves again."""
    edits: Any = gate_products(type(owner), name)
    owner.__class__ = (with_calls if fused else without_calls)(type(owner), edits)


def _put_in_lists(owner: nn.Module, old: Any, new: nn.Module) -> Undo:
    """A module that its owner also has in a list, from which it calls it, makes room there, too."""
    lists = [value for value in vars(owner).values() if isinstance(value, list)]
    slots = [(held, index) for held in lists for index, each in enumerate(held) if each is old]
    for held, index in slots:
        held[index] = new

    def undo() -> None:
        for held, index in slots:
            if index < len(held) and held[index] is new:
                held[index] = old

    return undo


def _put_in_graph(place: Place, new: nn.Module) -> Undo:
    """A node of a graph calls the new module."""
    owner: Any = place.owner
    owner._modules[place.name] = new
    undo_node = redirect(owner, place.node, place.name)

    def undo() -> None:
        undo_node()
        del owner._modules[place.name]

    return undo


def _put_in_code(place: Place, new: Any, *, kept: bool) -> Undo:
    """Calls in the owner's methods go to the new module."""
    owner, name = place.owner, place.name
    edits = edits_for(place.calls, name, whole=kept)
    held: Any = owner._modules if isinstance(new, nn.Module) else vars(owner)
    try:
        changed = with_calls(type(owner), edits)
        held[name] = new
        owner.__class__ = changed
    except InputError:  # the source has changed; nothing was put in yet
        raise
    except TypeError as error:  # a class that cannot be subclassed, or whose instances cannot change theirs
        held.pop(name, None)
        raise InputError(
            f"The class of {type(owner).__name__} cannot be changed ({error}), so that {place.calls[0].text!r} stays; "
            f"leave it out with where=."
        ) from error

    def undo() -> None:
        # Without these edits, and not the class of before: other surgery on the owner may have come in between.
        owner.__class__ = without_calls(type(owner), edits)
        del held[name]

    return undo


# -- what is used in several places: separate modules where they learn, else one for all ------------------


@dataclass
class SharedSites:
    """What is to be done.

    sites:  the sites that get a module of their own.
    served: by the path of such a site, the paths of further sites that call the same module.
    kept:   what must be put aside to stay as it is.
    notes:  what to know of it.
    """

    sites: list[Site] = field(default_factory=list)
    served: dict[str, tuple[str, ...]] = field(default_factory=dict)
    kept: list[Step] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def resolve_shared(chosen: Sequence[Site], sites: Sequence[Site], *, apart: bool) -> SharedSites:
    """Say what is done about what is called from several lines of its owner.

    Args:
        apart: whether each line gets a module of its own, because it has parameters to learn.
    """
    result = SharedSites()
    looped: list[str] = []
    lines: list[str] = []
    for site in chosen:
        mates = [other for other in sites if _same_attribute(other, site)]
        all_chosen = all(any(other is mate for other in chosen) for mate in mates)
        if _is_repeated_line(site) and all_chosen and not apart:
            continue  # the module of the first line serves this one, too
        result.sites.append(site)
        if not _is_repeated_line(site):
            # What a line that is left out calls from now on: the old module or function, under a name of its own.
            aside = [mate for mate in mates if not any(mate is site for site in chosen)]
            result.kept += [Step(mate.place, mate.place.old, kept=True) for mate in aside]
            if all_chosen and not apart:
                result.served[site.path] = tuple(mate.path for mate in mates if mate is not site)
        if apart and site.seen is not None and site.seen.times > 1:
            looped.append(site.path)
        if apart and site.seen is None and len(mates) == 1:
            lines += [site.path] * (count_calls(type(site.place.owner), site.place.name) > 1)
    if looped:
        result.notes.append(
            f"Called several times from one line, with parameters shared by all calls: {listed(looped)}."
        )
    if lines:
        result.notes.append(
            f"Called from several lines, which will share their parameters: {listed(lines)}. Give example= for one "
            f"module each."
        )
    return result


def _is_repeated_line(site: Site) -> bool:
    """Whether it is one more line that calls an attribute: the first line is the site of the attribute itself."""
    return bool(site.place.calls) and site.place.old is not None


def _same_attribute(site_a: Site, site_b: Site) -> bool:
    """Whether two sites are one attribute that is called from two lines."""
    if site_a is site_b:
        return True
    if (
        site_a.place.old is None
        or site_a.place.old is not site_b.place.old
        or site_a.place.owner is not site_b.place.owner
    ):
        return False
    names = [site.place.calls[0].attribute if _is_repeated_line(site) else site.place.name for site in (site_a, site_b)]
    return names[0] == names[1]


def listed(paths: Sequence[str]) -> str:
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


# -- what hides its activation, and what cannot be changed -------------------------------------------------

# Layers that compute an activation inside a kernel of their own, by the names of their classes.
_FUSED = {
    "FusedMLP": "it computes its activation inside a fused kernel",
    "ParallelFusedMLP": "it computes its activation inside a fused kernel",
    "FusedDenseGeluDense": "it computes GELU inside a fused kernel",
    "LayerNormMLP": "it computes its activation inside a fused kernel",
    "LigerSwiGLUMLP": "it computes SiLU inside a fused kernel",
    "LigerGEGLUMLP": "it computes GELU inside a fused kernel",
    "LigerPhi3SwiGLUMLP": "it computes SiLU inside a fused kernel",
    "LigerBlockSparseTop2MLP": "it computes SiLU inside a fused kernel",
    "LigerQwen3MoeSwiGLUMLP": "it computes SiLU inside a fused kernel",
    "InplaceAbn": "it computes its activation inside its batch norm",
    "InPlaceABN": "it computes its activation inside its batch norm",
    "InPlaceABNSync": "it computes its activation inside its batch norm",
}
_RECURRENT = (nn.RNNBase, nn.RNNCellBase)


def hidden(model: nn.Module) -> Iterator[tuple[str, str, str]]:
    """Modules that hide an activation: path, class, and the reason why it cannot be changed."""
    for path, module in model.named_modules():
        if isinstance(module, _RECURRENT):
            yield path, type(module).__name__, "It computes its activation inside a recurrent kernel."
        for cls in type(module).__mro__:
            if cls.__name__ in _FUSED and all(identify_module(child) is None for child in module.children()):
                reason = _FUSED[cls.__name__]
                yield path, type(module).__name__, f"{reason[0].upper()}{reason[1:]}; build the layer unfused first."
                break


def fast_paths(steps: Sequence[Step], model: nn.Module) -> list[Callable[[], Undo]]:
    """For each encoder layer of torch that gets a new activation: how to switch its fused path off."""
    layers = [step.place.owner for step in steps if isinstance(step.place.owner, nn.TransformerEncoderLayer)]
    return [partial(_leave_fast_path, layer, model) for layer in layers]


def _leave_fast_path(layer: nn.TransformerEncoderLayer, model: nn.Module) -> Undo:
    """torch's encoder layer has a fused eval path that uses the activation it was built with: switch it off.

    The encoder around it would pack padded batches into nested tensors, which only that path takes.
    """
    before: list[tuple[nn.Module, str, Any]] = [(layer, "activation_relu_or_gelu", layer.activation_relu_or_gelu)]
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder) and any(other is layer for other in module.layers):
            before += [(module, name, getattr(module, name)) for name in _NESTED if hasattr(module, name)]
    for owner, name, _ in before:
        setattr(owner, name, 0 if name == "activation_relu_or_gelu" else False)

    def undo() -> None:
        for owner, name, value in before:
            setattr(owner, name, value)

    return undo


_NESTED = ("enable_nested_tensor", "use_nested_tensor")


def refuse_untouchable(
    model: nn.Module, title: str, *, cure: str = "and would not train what surgery adds; swap first, then wrap."
) -> None:
    """Refuse what cannot be changed, or would not train what is added; `cure` ends the sentence for a wrapped model."""
    require_model(model, title)
    own = identify_module(model)
    if own is not None:
        raise InputError(
            f"The model is itself an activation ({own}), which cannot be replaced inside itself; put it into a "
            f"torch.nn.Sequential, or make the new one with sk.nn.make."
        )
    wrappers: tuple[Any, ...] = (nn.parallel.DistributedDataParallel, nn.DataParallel)
    if (sharding := sys.modules.get("torch.distributed.fsdp")) is not None:
        wrappers += (sharding.FSDPModule, sharding.FullyShardedDataParallel)
    for module in model.modules():
        if isinstance(module, wrappers):
            raise InputError(f"The model is already wrapped ({type(module).__name__}), {cure}")
        if isinstance(module, torch.jit.ScriptModule):
            raise InputError(
                f"{type(module).__name__} is TorchScript, whose code is fixed; change the model before it is scripted."
            )
