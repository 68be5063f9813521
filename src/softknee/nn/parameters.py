"""What every module over a definition shares: its parameters, learned or fixed, and how they are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, Protocol, Self

import torch
import torch.fx
from torch import Tensor, nn

from ..errors import InputError, ParameterError, did_you_mean
from ..spec import Constraint
from ..spec.param import check_name, read_number
from .granularity import Granularity
from .held_numbers import refuse_converted, refuse_loaded, refuse_written, written


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

    def _hold(
        self,
        title: str,
        *,
        params: Sequence[Held],
        starts: Mapping[str, Any],
        learned: tuple[str, ...],
        granularity: Granularity,
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
        for one in each:
            if not allows(one):
                how = "to be learned, " if learned else ""
                raise ParameterError(f"{self.title}: {how}{p.name} must be {words}, and {one!r} was given.")
        value = self._expanded(p, start) if isinstance(start, Tensor) else each[0]
        # set_ checks all values before it writes one; while a layer is built there is nothing to write to yet.
        if (kept := self._kept(p)) is not None:
            refuse_written(self, p, value, kept.dtype, learned=learned)
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
        kept, learned = self._kept(p), p.name in self.learned
        assert kept is not None
        refuse_written(self, p, value, kept.dtype, learned=learned)
        for name, number in written(p, value, kept.dtype, learned=learned).items():
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
        return lifted(p, raw, self._held(f"anchor_{p.name}") if p.constraint.anchored else None)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What .to(), .half() and .cuda() do; here .half() is refused where a number would be lost."""
        for name, kept in (*self._parameters.items(), *self._buffers.items()):
            if kept is None or kept.is_meta or not kept.is_floating_point():
                continue
            made = fn(kept.detach())
            if not made.is_meta and type(made) is Tensor and made.is_floating_point():
                refuse_converted(self, name, kept.detach(), made.dtype)
        return super()._apply(fn, recurse)

    def _load_from_state_dict(  # as torch calls it
        self, state_dict: Any, prefix: str, local_metadata: Any, *others: Any, **named: Any
    ) -> None:
        if not local_metadata.get("assign_to_params_buffers", False):  # else the types are those of the state
            refuse_loaded(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *others, **named)

    def _held(self, name: str) -> Tensor:
        """A parameter or buffer of this module by its stored name."""
        found = self._parameters.get(name)
        found = self._buffers.get(name) if found is None else found
        assert found is not None
        return found

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
        parts = [_show(p.name, self.effective(p), p.name in self.learned) for p in self.params]
        if self.learned or self.granularity.per != "layer":
            parts.append(str(self.granularity))
        return parts


def lifted(p: Held, raw: Tensor, anchor: Tensor | None) -> Tensor:
    """The effective value of a raw one, at least in float32."""
    work = torch.float64 if raw.dtype == torch.float64 else torch.float32
    return p.constraint.lift(raw.to(work), None if anchor is None else anchor.to(work))


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
    asked = [learn] if isinstance(learn, str) else list(learn)
    for name in asked:
        if name not in names:
            has = f"it can learn {', '.join(names)}" if names else "it has nothing to learn"
            near = did_you_mean(name, names)
            raise ParameterError(f"{title} has no parameter {name!r} to learn; {has}.{near}")
    return tuple(name for name in names if name in asked)


def _show(name: str, value: Tensor, learned: bool) -> str:
    if value.device.type == "meta":
        text = "?"
    else:
        low, high = value.min().item(), value.max().item()
        text = f"{low:.6g}" if low == high else f"{low:.4g}..{high:.4g}"
    return f"{name}={text}{' (learned)' if learned else ''}"
