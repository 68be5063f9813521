"""What every module over a definition shares: its parameters, learned or fixed, and how they are kept."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, Self, SupportsIndex

import torch
import torch.fx
from torch import Tensor, nn

from ..errors import InputError, ParameterError, did_you_mean
from ..kernels.calls import Calls, lifted
from ..spec import AtLeastOne, Between, Constraint, Positive
from ..spec.param import check_name, read_number

# -- how many values a parameter has: one per layer, per channel or per neuron ------------------------------

_KINDS = ("layer", "channel", "neuron")


@dataclass(frozen=True)
class Granularity:
    """`per` with the shape its parameters are stored in; `dim` is the channels' dimension of the input."""

    per: str
    shape: tuple[int, ...]
    dim: int = 1

    @classmethod
    def read(cls, name: str, *, per: str, size: int | Sequence[int] | None, dim: int) -> Granularity:
        """What a module's arguments mean, or a sentence that says what they should be."""
        if per not in _KINDS:
            raise ParameterError(
                f"{name}: per must be 'layer', 'channel' or 'neuron', and {per!r} was given.{did_you_mean(per, _KINDS)}"
            )
        if per == "layer":
            if size is not None:
                raise ParameterError(f"{name}: size={size!r} was given, but per='layer' has one value; leave size out.")
            return cls(per, (1,))
        shape = _counts(size)
        counts = all(n >= 1 for n in shape)
        if not shape or not counts or (per == "channel" and len(shape) != 1):
            needs = "the number of channels" if per == "channel" else "the trailing shape of the input"
            raise ParameterError(f"{name}: per={per!r} needs size=, {needs}, and {size!r} was given.")
        if per == "channel" and (isinstance(dim, bool) or not isinstance(dim, int)):
            raise ParameterError(f"{name}: dim must be a whole number, the channels' dimension, and {dim!r} was given.")
        return cls(per, shape, dim)

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    def shaped(self, value: Tensor, x: Tensor, name: str, *, tail: int = 0) -> Tensor:
        """A parameter in the shape that broadcasts against this input; `tail` dimensions stay last."""
        own = value.shape[: value.dim() - tail]
        if self.per != "channel":
            return value
        dim = self.dim if self.dim >= 0 else x.dim() + self.dim
        if not 0 <= dim < x.dim() or x.shape[dim] != self.shape[0]:
            raise ParameterError(
                f"{name}: built for {self.shape[0]} channels along dimension {self.dim}, and the input has "
                f"shape {tuple(x.shape)}; pass the right size= and dim=."
            )
        if own.numel() == 1:
            return value
        return value.reshape([self.shape[0]] + [1] * (x.dim() - dim - 1) + list(value.shape[len(own) :]))

    def __str__(self) -> str:
        if self.per == "layer":
            return "per='layer'"
        size = self.shape[0] if self.per == "channel" else self.shape
        return f"per={self.per!r}, size={size}" + (f", dim={self.dim}" if self.per == "channel" else "")


def _counts(size: Any) -> tuple[int, ...]:
    """The whole numbers of a size, Python's or NumPy's; empty where it is none."""
    try:
        each = (size,) if isinstance(size, SupportsIndex) else tuple(size or ())
        return () if any(isinstance(n, bool) for n in each) else tuple(map(operator.index, each))
    except TypeError:
        return ()


# -- numbers that the type of a layer cannot hold are refused: what is left of them gives NaN or infinity ---
#
# float16 ends at 65504 and 6e-8; SQUAF's alpha = 1.5/q^2 is above that from q = 0.0047 down. Everything that writes
# numbers asks here first: building a layer, set_, reset_parameters, load_state_dict, learning what was fixed, and
# .half().


def written(p: Held, value: float | Tensor, dtype: torch.dtype, *, learned: bool) -> dict[str, Tensor]:
    """What is written for a value of a parameter into tensors of this type, by their names in a state dict; float64."""
    # On the CPU whatever device stands for all tensors here, such as transformers' meta device.
    start = torch.as_tensor(value, dtype=torch.float64, device="cpu")
    if not learned or not p.constraint.lifted:
        return {p.name: start}
    if not p.constraint.anchored:
        return {f"raw_{p.name}": p.constraint.raw(start)}
    anchor = p.constraint.anchor(start)
    # From float32 on the anchor is as near as the value itself can be.
    coarse = torch.finfo(dtype).eps > torch.finfo(torch.float32).eps
    raw = p.constraint.raw_beside(start, anchor.to(dtype).double()) if coarse else p.constraint.raw(start)
    return {f"anchor_{p.name}": anchor, f"raw_{p.name}": raw}


def refuse_written(module: Parameterised, p: Held, value: float | Tensor, dtype: torch.dtype, *, learned: bool) -> None:
    """Raise where a value cannot be written into a layer whose numbers have this type."""
    for name, tensor in written(p, value, dtype, learned=learned).items():
        cure = f"{_wider(dtype)}, or give another {p.name}."
        refuse_lost(module.title, name, tensor, dtype, cure, constraint=p.constraint)


def refuse_converted(module: Parameterised, name: str, tensor: Tensor, dtype: torch.dtype) -> None:
    """Raise where a tensor of the layer cannot be converted to this type."""
    if _narrows(tensor.dtype, dtype):
        cure = f"{_wider(dtype)}, or use torch.autocast. This layer is as it was; others of the model may have been"
        constraint = _constraint_of(module, name)
        refuse_lost(module.title, name, tensor, dtype, f"{cure} converted before it.", constraint=constraint)


def refuse_loaded(module: Parameterised, state: Mapping[str, Any], prefix: str) -> None:
    """Raise where numbers of a state dict cannot be copied into the tensors of this layer."""
    for name, held in (*module._parameters.items(), *module._buffers.items()):
        loaded: Any = state.get(f"{prefix}{name}")
        if held is None or held.is_meta or type(loaded) not in (Tensor, nn.Parameter) or loaded.is_meta:
            continue
        if held.is_floating_point() and loaded.is_floating_point() and _narrows(loaded.dtype, held.dtype):
            cure = f"{_wider(held.dtype)} before the state is loaded. This layer is as it was; others of the model may"
            cure, constraint = f"{cure} have been loaded before it.", _constraint_of(module, name)
            refuse_lost(module.title, name, loaded.detach(), held.dtype, cure, constraint=constraint)


def refuse_lost(
    title: str, name: str, tensor: Tensor, dtype: torch.dtype, cure: str, *, constraint: Constraint | None
) -> None:
    """Raise where a number that is allowed is none that is, once it is of this type: infinite, 0, or a bound."""
    small, large = torch.finfo(dtype).smallest_normal, torch.finfo(dtype).max
    before = tensor.flatten().tolist()
    if not isinstance(constraint, Between) and all(number == 0 or small <= abs(number) <= large for number in before):
        return
    allows = _allowed(name, constraint)
    for number, held in zip(before, tensor.flatten().to(dtype).tolist(), strict=True):
        if allows(number) and not allows(held):
            part = name.removeprefix("anchor_").removeprefix("raw_")
            scale = name.startswith("anchor_") and isinstance(constraint, Positive)
            why = f" ({part} is learned {'as a multiple of' if scale else 'with'} it)" if part != name else ""
            raise ParameterError(
                f"{title}: {name}={number:.10g}{why} is {held:g} in {dtype}, which has no number so near; {cure}"
                if isinstance(constraint, Between)
                else f"{title}: {name}={number:g}{why} is {held:g} in {dtype}, which has no number so near to 0 or so "
                f"large; {cure}"
            )


def _allowed(name: str, constraint: Constraint | None) -> Callable[[float], bool]:
    """What a tensor of that name may hold."""
    if constraint is None or name.startswith("raw_"):
        return math.isfinite
    # An anchor is the start, a multiple of it, or a temperature.
    temperature = name.startswith("anchor_") and isinstance(constraint, AtLeastOne)
    return Positive().allows if temperature else constraint.allows


def _constraint_of(module: Parameterised, name: str) -> Constraint | None:
    part = name.removeprefix("anchor_").removeprefix("raw_")
    return next((p.constraint for p in module.params if p.name == part), None)


def _narrows(old: torch.dtype, new: torch.dtype) -> bool:
    """Values are looked at only where a type of less range is asked for: nothing else waits for a GPU."""
    before, after = torch.finfo(old), torch.finfo(new)
    return after.max < before.max or after.smallest_normal > before.smallest_normal


def _wider(dtype: torch.dtype) -> str:
    wide = "torch.float64" if dtype in (torch.float32, torch.bfloat16) else "torch.float32 or torch.bfloat16"
    return f"keep this layer in {wide}"


# -- the base class ---------------------------------------------------------------------------------------


class Held(Protocol):
    """What is asked of a parameter's description (`spec.Param` and `spec.VectorParam` both fit)."""

    @property
    def name(self) -> str: ...

    @property
    def constraint(self) -> Constraint: ...


class Parameterised(nn.Module):
    """Holds the parameters of a definition, each learned or a buffer, one per layer, channel or neuron.

    A constrained parameter is trained through a raw one (`raw_beta`) that may take any value; `module.beta`
    is always the effective value, a tensor. A subclass calls `_hold` once, at the end of its construction.
    """

    title: str
    params: Sequence[Held]
    learned: tuple[str, ...]
    granularity: Granularity
    _calls: Calls = Calls()  # a module that has some has its own

    def __getstate__(self) -> dict[str, Any]:
        """Prepared calls stay here: what they launch belongs to this process and to these tensors."""
        return {name: value for name, value in self.__dict__.items() if name != "_calls"}

    def _hold(
        self,
        title: str,
        params: Sequence[Held],
        starts: Mapping[str, Any],
        learned: tuple[str, ...],
        granularity: Granularity,
        *,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        """Make the parameters, at these start values."""
        self.title, self.params, self.learned, self.granularity = title, params, learned, granularity
        dtype = torch.get_default_dtype() if dtype is None else dtype
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise ParameterError(f"{title}: dtype must be a floating-point type, and {dtype!r} was given.")
        self._starts: dict[str, float | Tensor] = {}
        self._unstarted = False
        for p in params:
            self._starts[p.name] = self._checked(p, starts[p.name])
            self._add(p, torch.device(device) if device is not None else None, dtype)
        self.reset_parameters()

    def _tail(self, name: str) -> tuple[int, ...]:
        """The shape of one value of a parameter: () for a number, (n,) for a vector."""
        return ()

    def _checked(self, p: Held, start: Any) -> float | Tensor:
        """The start value, refused with a sentence where the constraint does not hold."""
        learned = p.name in self.learned
        allows = p.constraint.allows_learned if learned else p.constraint.allows
        words = p.constraint.learned_words if learned else p.constraint.words
        if isinstance(start, Tensor):
            self._refuse_unreadable(p, start)
            each = start.detach().double().flatten().tolist()
        else:
            each = [read_number(self.title, p.name, start)]
        for number in each:
            if not allows(number):
                how = "to be learned, " if learned else ""
                raise ParameterError(f"{self.title}: {how}{p.name} must be {words}, and {number!r} was given.")
        value = self._expanded(p, start) if isinstance(start, Tensor) else each[0]
        # set_ checks all values before it writes one; while a layer is built there is nothing to write to yet.
        if (stored := self._kept(p)) is not None:
            refuse_written(self, p, value, stored.dtype, learned=learned)
        return value

    def _refuse_unreadable(self, p: Held, start: Tensor) -> None:
        if start.is_meta:
            raise ParameterError(
                f"{self.title}: {p.name} lies on the meta device, which holds no numbers; make the tensor with "
                "device='cpu'."
            )
        if start.is_complex():
            raise ParameterError(f"{self.title}: {p.name} must be real, and {start.dtype} was given.")

    def _expanded(self, p: Held, start: Tensor) -> Tensor:
        shape = (*self.granularity.shape, *self._tail(p.name))
        try:
            return start.detach().cpu().expand(shape).clone()
        except RuntimeError:
            raise ParameterError(
                f"{self.title}: {p.name} has shape {tuple(start.shape)}, which does not expand to {shape}, "
                f"the shape of its values for {self.granularity}."
            ) from None

    def _kept(self, p: Held) -> Tensor | None:
        """The tensor that stands for a parameter, once there is one."""
        return self._parameters.get(self._raw_name(p)) if p.name in self.learned else self._buffers.get(p.name)

    def _add(self, p: Held, device: torch.device | None, dtype: torch.dtype) -> None:
        many = p.name in self.learned or isinstance(self._starts[p.name], Tensor)
        shape = (*(self.granularity.shape if many else (1,)), *self._tail(p.name))
        empty = torch.empty(shape, device=device, dtype=dtype)
        if p.name not in self.learned:
            self.register_buffer(p.name, empty)
            return
        self.register_parameter(self._raw_name(p), nn.Parameter(empty))
        if p.constraint.anchored:
            self.register_buffer(f"anchor_{p.name}", torch.empty_like(empty))

    def _raw_name(self, p: Held) -> str:
        """A parameter without a constraint is trained under its own name."""
        return f"raw_{p.name}" if p.constraint.lifted else p.name

    def reset_parameters(self) -> None:
        """Bring every parameter back to the value the module was built with."""
        for p in self.params:
            self._write(p, self._starts[p.name])
        self._unstarted = any(self.effective(p).device.type == "meta" for p in self.params)

    # -- transformers' protocol -------------------------------------------------------------------------
    # Its from_pretrained builds models on the meta device, gives each tensor that the checkpoint lacks whatever memory
    # comes, and then asks every module whether it is initialised: the only moment at which a start can be given.

    @property
    def _is_hf_initialized(self) -> bool:
        if self._unstarted and all(self.effective(p).device.type != "meta" for p in self.params):
            self._start_what_was_not_loaded()
            self._unstarted = False
        return True

    @_is_hf_initialized.setter
    def _is_hf_initialized(self, value: bool) -> None:
        """Versions before 5 say so of a module whose tensors all came from the checkpoint; later ones mark tensors."""
        self._unstarted = self._unstarted and not value

    def _start_what_was_not_loaded(self) -> None:
        for p in self.params:
            names = [p.name] if p.name not in self.learned else [self._raw_name(p), f"anchor_{p.name}"]
            held = [self._held(name) for name in names if name in self._parameters or name in self._buffers]
            if not all(getattr(tensor, "_is_hf_initialized", False) for tensor in held):
                self._write(p, self._starts[p.name])

    @torch.no_grad()
    def _write(self, p: Held, value: float | Tensor) -> None:
        stored, learned = self._kept(p), p.name in self.learned
        assert stored is not None
        refuse_written(self, p, value, stored.dtype, learned=learned)
        for name, number in written(p, value, stored.dtype, learned=learned).items():
            self._held(name).copy_(number)

    def set_(self, **values: Any) -> Self:
        """Give parameters new effective values in place: no new tensors, so nothing recompiles."""
        for name in values:
            check_name(self.title, [p.name for p in self.params], name)
        new = {p: self._checked(p, values[p.name]) for p in self.params if p.name in values}
        for p, value in new.items():
            self._write(p, value)
        return self

    def effective(self, p: Held) -> Tensor:
        """The value the function sees: at least float32 where it is lifted from a raw one."""
        if p.name not in self.learned:
            return self._held(p.name)
        raw = self._held(self._raw_name(p))
        if not p.constraint.lifted:
            return raw
        return lifted(p.constraint, raw, self._held(f"anchor_{p.name}") if p.constraint.anchored else None)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What .to(), .half() and .cuda() do; here .half() is refused where a number would be lost."""
        for name, tensor in (*self._parameters.items(), *self._buffers.items()):
            if tensor is None or tensor.is_meta or not tensor.is_floating_point():
                continue
            made = fn(tensor.detach())
            if not made.is_meta and type(made) is Tensor and made.is_floating_point():
                refuse_converted(self, name, tensor.detach(), made.dtype)
        return super()._apply(fn, recurse)

    def _load_from_state_dict(  # as torch calls it
        self, state_dict: Any, prefix: str, local_metadata: Any, *others: Any, **named: Any
    ) -> None:
        if not local_metadata.get("assign_to_params_buffers", False):  # else the types are those of the state
            refuse_loaded(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *others, **named)

    def _held(self, name: str) -> Tensor:
        """A parameter or buffer of this module by its stored name."""
        tensor = self._parameters.get(name, self._buffers.get(name))
        assert tensor is not None
        return tensor

    def __getattr__(self, name: str) -> Any:
        for p in self.__dict__.get("params", ()):
            if p.name == name and name in self.learned and self._raw_name(p) != name:
                return self.effective(p)
        return super().__getattr__(name)

    def __prepare_scriptable__(self) -> Self:
        """torch.jit.script asks every module for this before it reads code; ours is not in its part of Python."""
        refuse_script(self)

    def _shown(self) -> list[str]:
        """The parameters and their granularity, for `repr`."""
        parts = [
            f"{p.name}={show_range(self.effective(p))}{' (learned)' * (p.name in self.learned)}" for p in self.params
        ]
        if self.learned or self.granularity.per != "layer":
            parts.append(str(self.granularity))
        return parts


def leaf_of_graph(module: nn.Module, input: Any) -> Any:
    """While torch.fx traces symbolically, a call of this module becomes one node; None outside such a trace.

    What we do with an input (its shape, its memory) cannot be asked of a proxy, and one node is what surgery wants.
    """
    if not isinstance(input, torch.fx.Proxy):
        return None
    tracer: Any = input.tracer
    path = tracer.path_of_module(module)
    if not path:
        title = type(module).__name__
        raise InputError(
            f"{title} cannot be traced by itself: its call is one node of a model's graph. Trace a model that holds "
            f"it, for instance torch.nn.Sequential({title}(...))."
        )
    return tracer.create_proxy("call_module", path, (input,), {})


def refuse_script(module: nn.Module) -> NoReturn:
    """Say why torch.jit.script does not take this module, and what does."""
    raise InputError(
        f"{type(module).__name__} cannot be scripted: torch.jit.script reads a small part of Python only. Use "
        "torch.export.export(model, (x,)), or torch.jit.trace(model, x) where TorchScript is asked for."
    )


def require_tensor(title: str, input: Any) -> None:
    """Raise unless this is a tensor."""
    if not isinstance(input, Tensor):
        raise InputError(
            f"{title} works on a torch.Tensor, and {type(input).__name__} was given; wrap it with torch.as_tensor."
        )


def require_model(model: Any, title: str = "") -> None:
    """Raise unless this is a model: an instance of torch.nn.Module."""
    if isinstance(model, nn.Module):
        return
    kind = type(model).__name__
    if isinstance(model, type):
        kind, cure = f"the class {model.__name__}", "make a model of it first"
    elif isinstance(model, Mapping):
        cure = "build the model, give it these weights with load_state_dict, and pass the model"
    elif isinstance(model, (list, tuple)):
        cure = "pass one model, or join several in a torch.nn.ModuleList"
    else:
        cure = "build or load the model first and pass that"
    raise InputError(f"{title + ': a' if title else 'A'} torch.nn.Module is needed, and {kind} was given; {cure}.")


def choose_learned(title: str, *, names: Sequence[str], learn: bool | str | Iterable[str]) -> tuple[str, ...]:
    """The names that `learn` asks for, in the definition's order."""
    if isinstance(learn, bool):
        return tuple(names) if learn else ()
    if not isinstance(learn, Iterable):
        raise ParameterError(f"{title}: learn is True, False, a name or several, and {learn!r} was given.")
    requested = [learn] if isinstance(learn, str) else list(learn)
    for name in requested:
        if name not in names:
            has = f"it can learn {', '.join(names)}" if names else "it has nothing to learn"
            near = did_you_mean(name, names)
            raise ParameterError(f"{title} has no parameter {name!r} to learn; {has}.{near}")
    return tuple(name for name in names if name in requested)


def show_range(value: Tensor) -> str:
    """The number, or the smallest and the largest of several."""
    if value.device.type == "meta":
        return "?"
    low, high = value.min().item(), value.max().item()
    return f"{low:.6g}" if low == high else f"{low:.4g}..{high:.4g}"
