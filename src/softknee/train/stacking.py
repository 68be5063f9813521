"""The tensors of M models as one tensor each, with the replicas as first dimension; and back to single models."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..errors import InputError, ParameterError, did_you_mean
from ..nn.parameters import Parameterised
from ..surgery.groups import split
from ..surgery.modules import activation_modules

Knobs = Mapping[str, Sequence[float] | Tensor]


class Stack:
    """`template` is replica 0 as it was built; `tensors` are the parameters and buffers of all by name, [M, ...]."""

    def __init__(
        self, make_model: Callable[..., nn.Module], *, seeds: Sequence[int], knobs: Knobs, device: torch.device
    ) -> None:
        self.count, self.device = len(seeds), device
        values = check_knobs(knobs, self.count)
        self.template = made = build_model(make_model, seeds[0])
        self._refuse(made)
        names = {id(parameter): name for name, parameter in made.named_parameters()}
        self.groups = {group: [names[id(p)] for p in params] for group, params in split(made).items() if params}
        self.frozen: frozenset[str] = frozenset()
        self.tensors: dict[str, Tensor] = {}
        for index, seed in enumerate(seeds):
            if index:
                made = self.template if seed == seeds[0] else build_model(make_model, seed)
                self._refuse_another(made, index, fresh=index == 1 and seed != seeds[0])
            changed = copy.deepcopy(made)
            apply_knobs(changed, {name: each[index] for name, each in values.items()})
            self._put(index, changed)

    def _refuse(self, model: nn.Module) -> None:
        refuse_unstackable(model)

    def _put(self, index: int, model: nn.Module) -> None:
        for name, tensor in named_tensors(model).items():
            if name not in self.tensors:
                self.tensors[name] = tensor.new_empty((self.count, *tensor.shape), device=self.device)
            self.tensors[name][index].copy_(tensor)

    def stacked(self, names: Iterable[str] | None = None) -> dict[str, Tensor]:
        """The tensors of these names, or all of them, [M, ...]."""
        return self.tensors if names is None else {name: self.tensors[name] for name in names}

    def shapes(self) -> dict[str, Tensor]:
        """What `stacked` gives, without the values."""
        return {
            name: torch.empty((self.count, *tensor.shape), dtype=tensor.dtype, device="meta")
            for name, tensor in named_tensors(self.template).items()
        }

    def load(self, stacked: Mapping[str, Tensor]) -> None:
        """Copy the values of `stacked`, or of some of its names."""
        for name, values in stacked.items():
            self.tensors[name].copy_(values)

    @property
    def trainable(self) -> list[str]:
        return [name for names in self.groups.values() for name in names]

    @property
    def moving(self) -> dict[str, list[str]]:
        """The groups without what is frozen, and without a group that is frozen as a whole."""
        left = {group: [name for name in names if name not in self.frozen] for group, names in self.groups.items()}
        return {group: names for group, names in left.items() if names}

    def behind(self, knobs: str | Iterable[str] | None) -> frozenset[str]:
        """The trained tensors behind these activation parameters; behind all of them for None."""
        if knobs is None:
            return frozenset(self.groups.get("activations", ()))
        behind: set[str] = set()
        for key in [knobs] if isinstance(knobs, str) else knobs:
            name = key.rpartition(".")[2]
            for path, module in fitting(activation_modules(self.template), key).items():
                stored = next(module._raw_name(p) for p in module.params if p.name == name)
                behind.add(f"{path}.{stored}" if path else stored)
        return frozenset(behind & set(self.trainable))  # a fixed one is not moved by the optimiser anyway

    def model(self, index: int) -> nn.Module:
        """An ordinary model with the tensors of one replica."""
        made = copy.deepcopy(self.template).to(self.device)
        for name, tensor in named_tensors(made).items():
            tensor.copy_(self._tensor(name, index))
        return made

    def _tensor(self, name: str, index: int) -> Tensor:
        return self.tensors[name][index]

    @torch.no_grad()
    def set_knobs(self, knobs: Knobs) -> None:
        """New effective values in every replica, in place; nothing is changed where one value is refused."""
        values = check_knobs(knobs, self.count)
        self.load(
            self._each_activation(lambda i, work: apply_knobs(work, {name: each[i] for name, each in values.items()}))
        )

    @torch.no_grad()
    def knobs(self) -> dict[str, Tensor]:
        """The effective parameters of every activation by "path.name", [M, ...], on the CPU."""
        values: dict[str, list[Tensor]] = {}

        def read(index: int, model: nn.Module) -> None:
            for path, module in activation_modules(model).items():
                for p in module.params:
                    key = f"{path}.{p.name}" if path else p.name
                    values.setdefault(key, []).append(module.effective(p).detach().clone())

        self._each_activation(read)
        return {key: torch.stack(each) for key, each in values.items()}

    def _each_activation(self, do: Callable[[int, nn.Module], object]) -> dict[str, Tensor]:
        """Call `do` on a model that has the activation tensors of each replica in turn; those tensors afterwards."""
        work = copy.deepcopy(self.template)
        own = named_tensors(work)
        prefixes = [f"{path}." if path else "" for path in activation_modules(work)]
        names = [name for name in own if any(name.startswith(prefix) for prefix in prefixes)]
        new = {name: tensor.to("cpu", copy=True) for name, tensor in self.stacked(names).items()}
        for index in range(self.count):
            for name in names:
                own[name].copy_(new[name][index])
            do(index, work)
            for name in names:
                new[name][index].copy_(own[name])
        return new

    def _refuse_another(self, made: nn.Module, index: int, *, fresh: bool) -> None:
        first, second = _anatomy(self.template), _anatomy(made)
        if first != second:
            differs = next((key for key in (*first, *second) if first.get(key) != second.get(key)), "the order")
            raise InputError(
                f"make_model returned another architecture for model {index} than for model 0 (they differ in "
                f"{differs!r}: {first.get(differs, 'not there')} and {second.get(differs, 'not there')}); they "
                "may differ in their numbers only. Compare architectures by training each on its own."
            )
        trained = [(p, dict(made.named_parameters())[n]) for n, p in self.template.named_parameters()]
        if fresh and all(torch.equal(a, b) for a, b in trained):
            raise ParameterError(
                "make_model returned the same weights for two seeds: it must draw them from torch's global generator, "
                "or take an argument called seed. Pass share_init=True if all models shall start alike."
            )


def build_model(make_model: Callable[..., nn.Module], seed: int) -> nn.Module:
    """The model of a seed, on the CPU; torch's global random state is left as it was."""
    if isinstance(make_model, nn.Module) or not callable(make_model):
        raise InputError(
            f"make_model is a function that builds a new model, and {type(make_model).__name__} was given; give for "
            "instance lambda: MyNet()."
        )
    takes_seed = "seed" in inspect.signature(make_model).parameters
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        made = make_model(seed=seed) if takes_seed else make_model()
    if not isinstance(made, nn.Module):
        raise InputError(f"make_model must return an nn.Module, and it returned a {type(made).__name__}.")
    return made.cpu()


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, a shared one once, as tensors outside autograd."""
    return {name: tensor.detach() for name, tensor in (*model.named_parameters(), *model.named_buffers())}


def refuse_unbuilt(model: nn.Module) -> None:
    """Refuse a model with tensors that have no values yet."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor) or tensor.device.type == "meta":
            raise InputError(f"{name!r} has no values yet; run the model once inside make_model, or build it whole.")


def refuse_unstackable(model: nn.Module) -> None:
    """Refuse state that cannot be stacked."""
    refuse_unbuilt(model)
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor):
                raise InputError(
                    f"{type(module).__name__} at {path!r} keeps a tensor as plain attribute {name!r}, which cannot be "
                    "stacked over replicas; register it as a buffer or a parameter."
                )
    kinds = set()
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise InputError(f"{name!r} is {tensor.layout} or quantised, which cannot be stacked; use dense tensors.")
        if isinstance(tensor, nn.Parameter) and tensor.requires_grad:
            kinds.add(tensor.dtype)
    if len(kinds) > 1:
        raise InputError(f"The trained parameters have several types ({', '.join(map(str, kinds))}); use one.")


def check_knobs(knobs: Knobs, count: int) -> dict[str, list[Any]]:
    """For every knob its values, one for each replica."""
    checked = {}
    for name, each in knobs.items():
        values = list(each)
        if len(values) != count:
            raise ParameterError(f"knobs: {name!r} has {len(values)} values for {count} replicas; give one for each.")
        checked[name] = [float(v) if not isinstance(v, Tensor) or v.numel() == 1 else v for v in values]
    return checked


def apply_knobs(model: nn.Module, values: Mapping[str, Any]) -> None:
    """Set effective parameters: "beta" in every activation that has one, "layers.1.beta" in that one."""
    modules = activation_modules(model)
    for key, value in values.items():
        for module in fitting(modules, key).values():
            module.set_(**{key.rpartition(".")[2]: value})


def fitting(modules: Mapping[str, Parameterised], key: str) -> dict[str, Parameterised]:
    """The activations that a key such as "beta" or "layers.1.beta" speaks of."""
    path, _, name = key.rpartition(".")
    candidates = modules if not path else {path: modules[path]} if path in modules else {}
    fitting = {where: module for where, module in candidates.items() if any(p.name == name for p in module.params)}
    if not fitting:
        known = {p.name for module in modules.values() for p in module.params}
        known |= {f"{where}.{p.name}" for where, module in modules.items() for p in module.params}
        near = did_you_mean(key, known) or f" It has {', '.join(sorted(known)) or 'no activation of softknee'}."
        raise ParameterError(f"knobs: no activation of the model has a parameter {key!r}.{near}")
    return fitting


def _anatomy(model: nn.Module) -> dict[str, str]:
    """What two replicas must have in common."""
    anatomy = {path or "the model": type(module).__name__ for path, module in model.named_modules()}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        trained = ", trained" if tensor.requires_grad else ""
        anatomy[name] = f"{tuple(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}{trained}"
    return anatomy
