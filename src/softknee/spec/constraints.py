"""What values a parameter may take, in one place: the check, the sentence, and how it is learned.

`raw` and `lift` are the two directions of a reparameterisation, as arithmetic on tensors: no optimiser
step on the raw value can leave the constraint. `anchor` is a tensor kept beside the raw value (the start
value or a scale made from it), which is what lets the start come back to the last bits. A type of few digits rounds the
anchor, and `raw_beside` makes up for that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from .algebra import Expr, sympy
from .primitives import Softplus, Tanh

if TYPE_CHECKING:
    from torch import Tensor

# A learned width stays inside [2^-40, 2^40], where width^2 and 1/width^2 are normal float32 numbers: d/d beta of a gate
# is u^2 g'(u)/beta^2, which no arrangement of float32 operations can hold below 1e-19.
NARROWEST, WIDEST = 2.0**-40, 2.0**40
_MARGIN = 2.0**-20  # of an open interval, which a learned number keeps from its ends


@dataclass(frozen=True)
class Constraint:
    """Any finite number; learned as it is. The other constraints narrow this one.

    `lifted` says whether the value is computed from a raw one, `anchored` whether that needs an anchor.
    """

    lifted: ClassVar[bool] = False
    anchored: ClassVar[bool] = False

    @property
    def words(self) -> str:
        """What is allowed, to stand after 'must be' in an error."""
        return "a finite number"

    @property
    def learned_words(self) -> str:
        """What is allowed as the start of a learned parameter."""
        return self.words

    @property
    def learned_range(self) -> tuple[float, float]:
        """The least and the largest value while it is learned.

        In it the value of every function of the zoo and its derivatives by x and by the parameter are no NaN, and
        infinite only where the exact number is beyond the type.
        """
        return -math.inf, math.inf

    def within(self, value: Tensor) -> Tensor:
        """The value, or the end of the learned range where it lies outside.

        Its gradient is that of the end, and not 0, so that training can bring it back (and a NaN is not hidden).
        """
        low, high = self.learned_range
        if (low, high) == (-math.inf, math.inf):
            return value
        # float16 has no 2^-40: its 0 must become the least width too.
        value = value if value.dtype.itemsize >= 4 else value.float()
        return value.detach().clamp(low, high) + (value - value.detach())

    def allows(self, value: float) -> bool:
        """Whether the parameter may have this value. (In comparisons alone: torch.compile traces no math.isfinite.)"""
        return -math.inf < value < math.inf

    def allows_learned(self, value: float) -> bool:
        """Whether a learned parameter may start there."""
        return self.allows(value)

    def anchor(self, start: Tensor) -> Tensor:
        """The tensor to keep beside the raw value, where one is needed."""
        return start

    def raw(self, start: Tensor) -> Tensor:
        """What the optimiser sees when the parameter starts there."""
        return start.clone()

    def raw_beside(self, start: Tensor, anchor: Tensor) -> Tensor:
        """The raw value that gives the start beside an anchor which was rounded."""
        return self.raw(start)

    def lift(self, raw: Tensor, anchor: Tensor | None) -> Tensor:
        """The effective value, always inside the range."""
        return raw

    def lift_formula(self, raw: Expr, anchor: Expr) -> Expr:
        """`lift` as a formula, from which kernels get it and its derivative."""
        return raw


@dataclass(frozen=True)
class Real(Constraint):
    """Any finite number; learned as it is."""


@dataclass(frozen=True)
class Positive(Constraint):
    """Above 0; learned as scale * softplus(raw), raw starting at 0 and scale at start / log 2.

    A plain softplus(raw) would lose the last bits of a small start (its raw value is log(start)), and
    one step of an optimiser would mean something else for a width of 0.001 than for one of 1. In bfloat16 the scale is
    off by up to 0.4 %; raw then starts where it takes that back, within 0.006 of 0, where the type has fine steps.
    """

    lifted = anchored = True

    @property
    def words(self) -> str:
        return "a finite number above 0"

    @property
    def learned_words(self) -> str:
        return "a number between 2^-40 and 2^40"

    @property
    def learned_range(self) -> tuple[float, float]:
        return NARROWEST, WIDEST

    def allows(self, value: float) -> bool:
        return 0 < value < math.inf

    def allows_learned(self, value: float) -> bool:
        return NARROWEST <= value <= WIDEST

    def anchor(self, start: Tensor) -> Tensor:
        return start / math.log(2.0)

    def raw(self, start: Tensor) -> Tensor:
        return start.new_zeros(start.shape)

    def raw_beside(self, start: Tensor, anchor: Tensor) -> Tensor:
        return (start / anchor).expm1().log()

    def lift(self, raw: Tensor, anchor: Tensor | None) -> Tensor:
        from torch.nn.functional import softplus

        assert anchor is not None
        return (anchor * softplus(raw)).clamp(*self.learned_range)

    def lift_formula(self, raw: Expr, anchor: Expr) -> Expr:
        value = anchor * Softplus(raw)
        low, high = self.learned_range
        return sympy.Piecewise((low, value < low), (high, value > high), (value, True))


@dataclass(frozen=True)
class AtLeastOne(Constraint):
    """1 or more; learned as 1 + softplus(raw / temperature) (lambda-GELU's hardness).

    The temperature is the anchor, so that it is kept with the raw value wherever that goes.
    """

    lifted = anchored = True
    temperature: float = 0.1

    @property
    def words(self) -> str:
        return "a finite number of at least 1"

    @property
    def learned_words(self) -> str:
        return "a number above 1 (1 itself would be a raw value of minus infinity) and at most 2^40"

    @property
    def learned_range(self) -> tuple[float, float]:
        return 1.0, WIDEST

    def allows(self, value: float) -> bool:
        return 1 <= value < math.inf

    def allows_learned(self, value: float) -> bool:
        return 1 < value <= WIDEST

    def raw(self, start: Tensor) -> Tensor:
        return self.raw_beside(start, self.anchor(start.double()))

    def raw_beside(self, start: Tensor, anchor: Tensor) -> Tensor:
        excess = start.double() - 1
        # log(expm1(e)) = e + log(1 - exp(-e)): exact for a tiny excess and finite for a large one.
        return (anchor * (excess + (-(-excess).expm1()).log())).to(start.dtype)

    def anchor(self, start: Tensor) -> Tensor:
        return start.new_full(start.shape, self.temperature)

    def lift(self, raw: Tensor, anchor: Tensor | None) -> Tensor:
        from torch.nn.functional import softplus

        assert anchor is not None
        return 1 + softplus(raw / anchor).clamp(max=WIDEST)

    def lift_formula(self, raw: Expr, anchor: Expr) -> Expr:
        excess = Softplus(raw / anchor)
        return 1 + sympy.Piecewise((WIDEST, excess > WIDEST), (excess, True))


@dataclass(frozen=True)
class Between(Constraint):
    """Strictly between two bounds; learned as start + room * tanh(raw / room) on either side."""

    lifted = anchored = True
    low: float = 0.0
    high: float = 1.0

    @property
    def words(self) -> str:
        return f"a number strictly between {self.low:.6g} and {self.high:.6g}"

    @property
    def learned_range(self) -> tuple[float, float]:
        room = _MARGIN * (self.high - self.low)
        return (self.low + room, self.high - room) if room < math.inf else (self.low, self.high)

    def allows(self, value: float) -> bool:
        return self.low < value < self.high

    def anchor(self, start: Tensor) -> Tensor:
        return start.clone()

    def raw(self, start: Tensor) -> Tensor:
        return start.new_zeros(start.shape)

    def raw_beside(self, start: Tensor, anchor: Tensor) -> Tensor:
        room = self._room(start - anchor, anchor)
        return room * ((start - anchor) / room).clamp(-0.99, 0.99).atanh()

    def lift(self, raw: Tensor, anchor: Tensor | None) -> Tensor:
        assert anchor is not None
        room = self._room(raw, anchor)
        return anchor + room * (raw / room).tanh()

    def lift_formula(self, raw: Expr, anchor: Expr) -> Expr:
        room = sympy.Float(0.999) * sympy.Piecewise((self.high - anchor, raw >= 0), (anchor - self.low, True))
        return anchor + room * Tanh(raw / room)

    def _room(self, way: Tensor, anchor: Tensor) -> Tensor:
        """How far a value may go from the anchor: up where `way` is not negative, down where it is."""
        import torch

        # A thousandth of the room is kept free: at the bound itself the function stops being one.
        return torch.where(way >= 0, self.high - anchor, anchor - self.low) * 0.999
