"""Which parts of which SQUAF layers are trained: z, q and alpha by name, layers by where they stand.

The paper's settings, for a model whose activations are SQUAF (k=16: 33 values z, q and alpha, 35 numbers a layer):

    sk.train_squaf_(model, where="first")               CIFAR-100: 35
    sk.train_squaf_(model, where="all but last stage")  ImageNet, networks with stages
    sk.train_squaf_(model)                              ImageNet with ViT-T, GPT-2: 12 layers, 420
    sk.train_squaf_(model, ("alpha", "z"))              q stays as it is (functions fitted by SQUAF alone)

Reference: Soft quantization activation functions, appendices A.3 and A.7.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from ..errors import InputError, ParameterError, did_you_mean
from ..nn.parameters import Held, refuse_written, require_model
from ..nn.squaf import SQUAF, class_in_mode
from .modules import activation_modules, unwrapped

# -- every SQUAF of a model switched between its three modes at once --------------------------------------


@dataclass(frozen=True)
class SquafMode:
    """What `squaf_mode_` did: the mode, the paths of all SQUAF layers, and how many of them had another mode."""

    mode: str
    paths: tuple[str, ...]
    switched: int

    @property
    def count(self) -> int:
        """How many SQUAF layers there are."""
        return len(self.paths)

    def __str__(self) -> str:
        return (
            f"{self.count} SQUAF layer{'s' * (self.count != 1)} in the mode {self.mode!r} ({self.switched} switched): "
            f"{', '.join(self.paths)}"
        )


def squaf_mode_(model: nn.Module, mode: str) -> SquafMode:
    """Make every SQUAF of a model "soft" (SQUAF), "sampled" (SQUAF-P) or "step" (SQUAF-S), in place.

    The modules stay the same objects with the same parameters, names, hooks and optimiser state: train in one mode,
    evaluate in another, and switch back. A compiled model notices. All or nothing.

    >>> import softknee as sk, torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), sk.nn.SQUAF(k=4, learn=True), torch.nn.Linear(8, 2))
    >>> print(sk.squaf_mode_(net, "sampled"))
    1 SQUAF layer in the mode 'sampled' (1 switched): 1
    >>> type(net[1]).__name__
    'SQUAFP'
    """
    require_model(model, "squaf_mode_")
    layers = {path: module for path, module in activation_modules(model).items() if isinstance(module, SQUAF)}
    if not layers:
        raise InputError(
            f"squaf_mode_: {type(model).__name__} has no SQUAF layer to switch; put them in with "
            "sk.swap_(model, 'squaf') first."
        )
    classes: dict[str, type[SQUAF]] = {}
    for path, module in layers.items():
        try:
            classes[path] = class_in_mode(module, mode)
        except ParameterError as error:
            raise ParameterError(f"squaf_mode_: {path or 'the model'}: {error} Nothing was changed.") from None
    switched = sum(type(layers[path]) is not cls for path, cls in classes.items())
    for path, cls in classes.items():
        layers[path].__class__ = cls
    return SquafMode(mode, tuple(layers), switched)


# -- which parts of which SQUAF layers are trained --------------------------------------------------------

PARTS = ("q", "alpha", "z")
# Names of stages in models that do not say what theirs are: layer4, stage_3, stages.2.
_STAGE = re.compile(r"(?:.*\.)?(?:(?:layer|stage)_?\d+|stages?\.\d+)(?=\.|$)")


@dataclass(frozen=True)
class SquafTraining:
    """What is trained now: the parts of each layer by its path, the layers frozen whole, and how many numbers."""

    trained: Mapping[str, tuple[str, ...]]
    frozen: tuple[str, ...]
    numbers: int

    def __str__(self) -> str:
        lines = [f"{path}: {', '.join(parts)}" for path, parts in self.trained.items()]
        lines += [f"{path}: frozen" for path in self.frozen]
        return "\n".join([f"{self.numbers} SQUAF parameters are trained", *lines])


def train_squaf_(
    model: nn.Module,
    parts: str | Iterable[str] = PARTS,
    *,
    where: str | Iterable[str] = "all",
    but: str | Iterable[str] = (),
) -> SquafTraining:
    """Train these parts of these SQUAF layers of a model and freeze all other ones; no value changes.

    Args:
        parts: any of "q", "alpha", "z"; of a layer with a general grid "q" means its points. () freezes everything.
        where: "all"; "first", in the order of execution where one sk.swap_ put all layers in place, else in the order
            of the model's names; "all but last stage", for models that have stages (timm's feature_info, or
            modules named layer4, stage_4, stages.3); or a pattern for the layers' paths ("blocks.*"), or several.
        but: a pattern for layers to leave frozen, or several.

    A part that was fixed becomes a parameter (`raw_q` and so on in the state dict, as `learn=` makes it), a frozen one
    keeps its place and gets requires_grad=False; so make the optimiser, DDP or a compiled form after this call.

    >>> import softknee as sk, torch
    >>> net = torch.nn.Sequential(sk.nn.SQUAF(k=16), torch.nn.Linear(4, 4), sk.nn.SQUAF(k=16))
    >>> print(sk.train_squaf_(net, where="first"))
    35 SQUAF parameters are trained
    0: q, alpha, z
    2: frozen
    >>> sk.train_squaf_(net, "z").numbers, net[0].learned, net[0].raw_q.requires_grad
    (66, ('q', 'alpha', 'z'), False)
    """
    require_model(model, "train_squaf_")
    names = _read_parts(parts)
    inside = unwrapped(model)
    layers = _layers(inside)
    if not layers:
        raise InputError(
            f"{type(model).__name__} has no SQUAF layer; put some in first, for instance with "
            f"sk.swap_(model, 'squaf', k=16, q=0.25, z='fit')."
        )
    chosen = _chosen(inside, layers, where) - (_matching(layers, but, "but") if but else set())
    if not chosen:
        raise InputError(
            f"where={where!r} and but={but!r} leave no SQUAF layer to train; parts=() freezes all of them."
        )
    wanted = {
        path: tuple(p for p in module.params if _part(p) in names and path in chosen)
        for path, (module, _) in layers.items()
    }
    for path, held in wanted.items():
        _refuse_unlearnable(path, layers[path][0], held)
    for path, held in wanted.items():
        _train_(layers[path][0], held)
    trained = {path: tuple(p.name for p in held) for path, held in wanted.items() if held}
    numbers = sum(
        tensor.numel()
        for path in wanted
        for tensor in layers[path][0].parameters(recurse=False)
        if tensor.requires_grad
    )
    return SquafTraining(trained, tuple(path for path in wanted if path not in trained), numbers)


def _read_parts(parts: str | Iterable[str]) -> set[str]:
    try:
        names = {parts} if isinstance(parts, str) else set(parts)
    except TypeError:
        raise ParameterError(f"parts are names, any of q, alpha and z, and {parts!r} was given.") from None
    for name in names:
        if name not in PARTS:
            raise ParameterError(
                f"SQUAF has the parts q, alpha and z, and {name!r} was asked.{did_you_mean(name, PARTS)}"
            )
    return names


def _part(p: Held) -> str:
    return "q" if p.name == "grid" else p.name


def _layers(model: nn.Module) -> dict[str, tuple[SQUAF, list[str]]]:
    """The SQUAF layers under their first names, each once, with all the names they have."""
    layers: dict[int, tuple[str, SQUAF, list[str]]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, SQUAF):
            layers.setdefault(id(module), (path, module, []))[2].append(path)
    return {path: (module, names) for path, module, names in layers.values()}


def _chosen(model: nn.Module, layers: Mapping[str, tuple[SQUAF, list[str]]], where: str | Iterable[str]) -> set[str]:
    if where == "all":
        return set(layers)
    if where == "first":
        return {next(path for path in activation_modules(model) if path in layers)}
    if where == "all but last stage":
        stages = _last_stage(model)
        last = {path for path in layers if any(path.startswith(f"{stage}.") or path == stage for stage in stages)}
        if not last:
            raise InputError(
                f"The last stage of {type(model).__name__} ({', '.join(stages)}) has no SQUAF layer to freeze."
            )
        return set(layers) - last
    return _matching(layers, where, "where")


def _matching(layers: Mapping[str, tuple[SQUAF, list[str]]], patterns: str | Iterable[str], what: str) -> set[str]:
    several: list[str] = [patterns] if isinstance(patterns, str) else []
    if not several and isinstance(patterns, Iterable):
        several = list(patterns)
    if not isinstance(patterns, Iterable) or not all(isinstance(pattern, str) for pattern in several):
        raise ParameterError(f"{what} is a pattern for the layers' paths, or several, and {patterns!r} was given.")
    chosen: set[str] = set()
    for pattern in several:
        here = {path for path, (_, names) in layers.items() if any(fnmatchcase(name, pattern) for name in names)}
        if not here:
            paths = ", ".join(repr(path) for path in list(layers)[:3])
            raise InputError(f"{what}: no SQUAF layer matches {pattern!r}; they are named {paths} and so on.")
        chosen |= here
    return chosen


def _last_stage(model: nn.Module) -> list[str]:
    """The paths that the last stage consists of: what has the coarsest resolution, or the last by name."""
    info: Any = getattr(model, "feature_info", None)
    info = getattr(info, "info", info)
    if isinstance(info, list) and all(isinstance(stage, dict) and "reduction" in stage for stage in info):
        coarsest = max((stage["reduction"] for stage in info), default=0)
        if len({stage["reduction"] for stage in info}) > 1:
            return [stage["module"] for stage in info if stage["reduction"] == coarsest]
    else:
        stages = list(dict.fromkeys(match[0] for path, _ in model.named_modules() if (match := _STAGE.match(path))))
        if len(stages) > 1:
            return stages[-1:]
    raise InputError(
        f"{type(model).__name__} has no stages that can be told apart; say which layers stay frozen with but=, for "
        f"instance but='layers.3.*'."
    )


def _refuse_unlearnable(path: str, module: SQUAF, held: Iterable[Held]) -> None:
    for p in held:
        value = module.effective(p).detach()
        if p.name in module.learned or value.device.type == "meta":
            continue
        for number in value.double().flatten().tolist():
            if not p.constraint.allows_learned(number):
                raise ParameterError(
                    f"{path}: to be learned, {p.name} must be {p.constraint.learned_words}, and it is {number!r}."
                )
        try:
            refuse_written(module, p, value.cpu(), value.dtype, learned=True)
        except ParameterError as error:
            raise ParameterError(f"{path}: {error} Nothing was changed.") from None


def _train_(module: SQUAF, held: Iterable[Held]) -> None:
    wanted = {p.name for p in held}
    for p in module.params:
        if p.name in wanted and p.name not in module.learned:
            _make_learned_(module, p)
        if p.name in module.learned:
            stored = module._held(module._raw_name(p))
            stored.requires_grad_(p.name in wanted)
            if p.name not in wanted:
                stored.grad = None  # else an optimiser made before would step with it once more


@torch.no_grad()
def _make_learned_(module: SQUAF, p: Held) -> None:
    """From a buffer to a parameter of the same value, one for each channel or neuron where the module has them."""
    old = module._buffers.pop(p.name)
    assert old is not None
    value = module._starts[p.name] if old.device.type == "meta" else old.detach().cpu().double()
    module.learned = tuple(
        param.name for param in module.params if param.name == p.name or param.name in module.learned
    )
    module._add(p, old.device, old.dtype)
    module._write(p, value)
