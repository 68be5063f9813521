"""A thin module over an element-wise definition: holds its parameters, learned or fixed, and calls it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..errors import ParameterError, did_you_mean
from ..kernels import call, find, fit_shape, prepare, resolve
from ..kernels.pointwise import check_input
from ..spec import Activation, AtLeastOne, Param
from .granularity import Granularity


class Pointwise(nn.Module):
    """An activation function as a module.

    Args:
        learn: the parameters to train: a name, several names, or True for all. The others are buffers.
        per: "layer" (one value), "channel" (with `size`; along `dim`, 1 by default) or "neuron" (with `size`, the
            whole trailing shape of the input without the batch).
        size, dim: see `per`.
        inplace: overwrite the input where no gradient is needed; elsewhere it has no effect.
        device, dtype: of the parameters, as in torch.nn.
        values: the parameters by name, numbers or tensors; a missing one has its default.

    A constrained parameter is trained through a raw one (`raw_beta`) that may take any value; `module.beta` is
    always the effective value, a tensor.
    """

    activation: ClassVar[str] = ""

    def __init__(
        self,
        definition: Activation | None = None,
        *,
        learn: bool | str | Iterable[str] = False,
        per: str = "layer",
        size: int | Sequence[int] | None = None,
        dim: int = 1,
        inplace: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **values: Any,
    ) -> None:
        super().__init__()
        definition = find(self.activation) if definition is None else definition
        definition, values = resolve(definition, values)
        self.definition = definition
        self.inplace = inplace
        self.granularity = Granularity.read(definition.name, per=per, size=size, dim=dim)
        self.params = _with_settings(definition, values)
        definition.check(values)
        self.learned = _learned(definition, learn)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        if not dtype.is_floating_point:
            raise ParameterError(f"{definition.name}: dtype must be a floating-point type, and {dtype} was given.")
        self._starts: dict[str, float | Tensor] = {}
        for p in self.params:
            start = values.get(p.name, p.start if p.name in self.learned else p.default)
            self._starts[p.name] = self._checked(p, start)
            self._add(p, torch.device(device) if device is not None else None, dtype)
        self.reset_parameters()
        prepare(definition.key)

    # -- parameters -------------------------------------------------------------------------------------

    def _checked(self, p: Param, start: Any) -> float | Tensor:
        """The start value, refused with a sentence where the constraint does not hold."""
        learned = p.name in self.learned
        allows = p.constraint.allows_learned if learned else p.constraint.allows
        words = p.constraint.learned_words if learned else p.constraint.words
        try:
            each = start.detach().double().cpu().flatten().tolist() if isinstance(start, Tensor) else [float(start)]
        except (TypeError, ValueError):
            raise ParameterError(
                f"{self.definition.name}: {p.name} must be a number or a tensor, and {type(start).__name__} was given."
            ) from None
        for one in each:
            if not allows(one):
                how = "to be learned, " if learned else ""
                raise ParameterError(f"{self.definition.name}: {how}{p.name} must be {words}, and {one!r} was given.")
        if isinstance(start, Tensor):
            return start.detach().cpu().expand(self.granularity.shape).clone()
        return float(start)

    def _add(self, p: Param, device: torch.device | None, dtype: torch.dtype) -> None:
        start = self._starts[p.name]
        many = p.name in self.learned or isinstance(start, Tensor)
        empty = torch.empty(self.granularity.shape if many else (1,), device=device, dtype=dtype)
        if p.name not in self.learned:
            self.register_buffer(p.name, empty)
            return
        self.register_parameter(self._raw_name(p), nn.Parameter(empty))
        if p.constraint.anchored:
            self.register_buffer(f"anchor_{p.name}", torch.empty_like(empty))

    def _raw_name(self, p: Param) -> str:
        """A parameter without a constraint is trained under its own name."""
        return f"raw_{p.name}" if p.constraint.lifted else p.name

    def reset_parameters(self) -> None:
        """Bring every parameter back to the value the module was built with."""
        for p in self.params:
            self._write(p, self._starts[p.name])

    @torch.no_grad()
    def _write(self, p: Param, value: float | Tensor) -> None:
        if p.name not in self.learned:
            self._held(p.name).copy_(torch.as_tensor(value))
            return
        raw = self._held(self._raw_name(p))
        start = torch.as_tensor(value, dtype=torch.float64).expand(raw.shape)
        raw.copy_(p.constraint.raw(start))
        if p.constraint.anchored:
            self._held(f"anchor_{p.name}").copy_(p.constraint.anchor(start))

    def set_(self, **values: float | Tensor) -> Pointwise:
        """Give parameters new effective values in place: no new tensors, so nothing recompiles."""
        self.definition.check(values)
        for name, value in values.items():
            p = next(p for p in self.params if p.name == name)
            self._write(p, self._checked(p, value))
        return self

    def effective(self, p: Param) -> Tensor:
        """The value the function sees: at least float32 where it is lifted from a raw one."""
        if p.name not in self.learned:
            return self._held(p.name)
        raw = self._held(self._raw_name(p))
        if not p.constraint.lifted:
            return raw
        work = torch.float64 if raw.dtype == torch.float64 else torch.float32
        anchor = self._held(f"anchor_{p.name}").to(work) if p.constraint.anchored else None
        return p.constraint.lift(raw.to(work), anchor)

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

    # -- computing --------------------------------------------------------------------------------------

    def fitted(self, input: Tensor) -> list[Tensor]:
        """The effective parameters in shapes that broadcast against this input."""
        act = self.definition
        check_input(act, input)
        shaped = [self.granularity.shaped(self.effective(p), input, act.name) for p in self.params]
        return [fit_shape(act, p.name, value, input) for p, value in zip(self.params, shaped, strict=True)]

    def forward(self, input: Tensor) -> Tensor:
        return call(self.definition, input, self.fitted(input), inplace=self.inplace)

    def extra_repr(self) -> str:
        parts = [_shown(p, self.effective(p), p.name in self.learned) for p in self.params]
        if type(self) is Pointwise:
            parts.insert(0, repr(self.definition.name))
        if self.learned or self.granularity.per != "layer":
            parts.append(str(self.granularity))
        return ", ".join([*parts, "inplace=True"] if self.inplace else parts)


def _with_settings(definition: Activation, values: dict[str, Any]) -> tuple[Param, ...]:
    """The parameters, with settings of their constraints (lambda's temperature) taken out of the values."""
    params = []
    for p in definition.params:
        if isinstance(p.constraint, AtLeastOne) and "temperature" in values:
            given = values.pop("temperature")
            if not isinstance(given, int | float) or not 0 < given < float("inf"):
                raise ParameterError(
                    f"{definition.name}: temperature must be a finite number above 0, and {given!r} was given."
                )
            p = dataclasses.replace(p, constraint=AtLeastOne(temperature=float(given)))
        params.append(p)
    return tuple(params)


def _learned(definition: Activation, learn: bool | str | Iterable[str]) -> tuple[str, ...]:
    names = [p.name for p in definition.params]
    if isinstance(learn, bool):
        return tuple(names) if learn else ()
    asked = [learn] if isinstance(learn, str) else list(learn)
    for name in asked:
        if name not in names:
            has = f"it can learn {', '.join(names)}" if names else "it has nothing to learn"
            raise ParameterError(
                f"{definition.name} has no parameter {name!r} to learn; {has}.{did_you_mean(name, names)}"
            )
    return tuple(name for name in names if name in asked)


def _shown(p: Param, value: Tensor, learned: bool) -> str:
    if value.device.type == "meta":
        text = "?"
    else:
        low, high = value.min().item(), value.max().item()
        text = f"{low:.6g}" if low == high else f"{low:.4g}..{high:.4g}"
    return f"{p.name}={text}{' (learned)' if learned else ''}"
