r"""A strictly increasing spline on tensors: slopes at knots, straight lines between them, straight tails.

    f' is linear between knots and constant outside them, so f is once continuously differentiable, made of parabolas,
    and has an inverse in closed form

The whole function is a table of four rows (knots, values, slopes, bends); only x is kept for the backward pass.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...errors import ParameterError
from ...spec import Activation, x
from ...spec.algebra import Expr, Float, Piecewise

KNOTS, VALUES, SLOPES, BENDS = range(4)


def table_of(knots: Tensor, values: Tensor, slopes: Tensor) -> Tensor:
    """The four rows; the last bend, beyond the last knot, is 0."""
    bends = torch.zeros_like(slopes)
    bends[:-1] = (slopes[1:] - slopes[:-1]) / (knots[1:] - knots[:-1])
    return torch.stack([knots, values, slopes, bends])


def _cell(at: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x clipped to the knots, the number of its cell, and its distance to the knot on its left."""
    knots = table[KNOTS].clone(memory_format=torch.contiguous_format)  # which it is not for each of many replicas
    inside = torch.clamp(at, knots[0], knots[-1])
    cell = torch.clamp(torch.searchsorted(knots, inside, right=True) - 1, 0, knots.shape[0] - 2)
    return inside, cell, inside - knots[cell]


def _value(at: Tensor, table: Tensor) -> Tensor:
    inside, cell, d = _cell(at, table)
    slope, bend = table[SLOPES][cell], table[BENDS][cell]
    # x - inside is 0 between the knots, and an infinite x times a slope above 0 stays infinite.
    return table[VALUES][cell] + d * (slope + 0.5 * bend * d) + (at - inside) * (slope + bend * d)


def _slope(at: Tensor, table: Tensor) -> Tensor:
    _, cell, d = _cell(at, table)
    slope = table[SLOPES][cell] + table[BENDS][cell] * d
    return torch.where(torch.isnan(at), at, slope)


def _bend(at: Tensor, table: Tensor) -> Tensor:
    inside, cell, _ = _cell(at, table)
    bend = torch.where(inside == at, table[BENDS][cell], 0.0)
    return torch.where(torch.isnan(at), at, bend)


class _Function(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)


class _Slope(_Function):
    """The slope, whose own derivative is the bend of the cell."""

    @staticmethod
    def forward(at: Tensor, table: Tensor) -> Tensor:
        return _slope(at, table)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        at, table = ctx.saved_tensors
        return grads[0] * _bend(at, table), None


class _Value(_Function):
    """The value. Differentiating the operations of `_value` would multiply an infinite x by 0."""

    @staticmethod
    def forward(at: Tensor, table: Tensor) -> Tensor:
        return _value(at, table)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None]:
        at, table = ctx.saved_tensors
        by_table = _by_table(grads[0], at, table) if ctx.needs_input_grad[1] else None
        return grads[0] * _Slope.apply(at, table), by_table


def _by_table(grad: Tensor, at: Tensor, table: Tensor) -> Tensor:
    """The gradient by values, slopes and bends, each a sum over a cell; that by the knots is left out."""
    inside, cell, d = _cell(at, table)
    beyond = at - inside
    rows = torch.zeros_like(grad), grad, grad * (d + beyond), grad * d * (0.5 * d + beyond)
    empty = torch.zeros_like(table[KNOTS])
    return torch.stack([empty.index_add(0, cell.reshape(-1), row.reshape(-1)) for row in rows])


def spline_value(at: Tensor, table: Tensor) -> Tensor:
    """The spline on a tensor of any floating type; half types are computed in float32.

    Twice differentiable in x, and once in the values, slopes and bends of the table.
    """
    work = torch.promote_types(at.dtype, torch.float32)
    value: Any = _Value.apply(at.to(work), table.to(work))
    return value.to(at.dtype)


@dataclass(frozen=True, eq=False)
class Spline:
    """A strictly increasing spline with straight tails; `slopes` are all above 0.

    >>> import torch
    >>> from softknee.design.entropic.spline import Spline
    >>> knee = Spline(torch.tensor([-1.0, 1.0]), torch.tensor([0.0, 1.1]), torch.tensor([0.1, 1.0]))
    >>> knee(torch.tensor([-3.0, 0.0, 3.0])), knee.inverse(knee(torch.tensor([-3.0, 0.0, 3.0])))
    (tensor([-0.2000, 0.3250, 3.1000]), tensor([-3., 0., 3.]))
    """

    knots: Tensor
    values: Tensor
    slopes: Tensor

    def __post_init__(self) -> None:
        if (
            self.knots.dim() != 1
            or len(self.knots) < 2
            or not self.knots.shape == self.values.shape == self.slopes.shape
        ):
            raise ParameterError("A spline takes knots, values and slopes as three vectors of one length, two or more.")
        if not bool((self.knots[1:] > self.knots[:-1]).all()) or not bool((self.slopes > 0).all()):
            raise ParameterError("A spline takes increasing knots and slopes above 0, and these are not.")

    @property
    def table(self) -> Tensor:
        """Knots, values, slopes and bends as four rows."""
        return table_of(self.knots, self.values, self.slopes)

    def __call__(self, at: Tensor) -> Tensor:
        return spline_value(at, self.table.to(at.device))

    def slope(self, at: Tensor) -> Tensor:
        """The derivative."""
        return _slope(at, self.table.to(at.device, at.dtype))

    def inverse(self, y: Tensor) -> Tensor:
        """The x with f(x) = y, by the root of a quadratic that does not cancel."""
        table = self.table.to(y.device, y.dtype)
        inside = torch.clamp(y, table[VALUES][0], table[VALUES][-1])
        cell = torch.clamp(torch.searchsorted(table[VALUES], inside, right=True) - 1, 0, table.shape[1] - 2)
        slope, bend, rise = table[SLOPES][cell], table[BENDS][cell], inside - table[VALUES][cell]
        end = torch.sqrt(torch.clamp(slope * slope + 2 * bend * rise, min=0))
        return table[KNOTS][cell] + 2 * rise / (slope + end) + (y - inside) / end

    def refined(self, count: int) -> Spline:
        """The same function with more knots, each new one in the middle of the widest cell."""
        knots = self.knots
        while len(knots) < count:
            widest = int((knots[1:] - knots[:-1]).argmax())
            knots = torch.cat([knots[: widest + 1], (knots[widest : widest + 2].sum() / 2)[None], knots[widest + 1 :]])
        return Spline(knots, self(knots), self.slope(knots))

    def definition(self, name: str = "entropic_spline") -> Activation:
        """The same function as a formula of parabolas, for everything that takes a definition; slow to build with many
        knots (about a second for each ten)."""
        rows = self.table.double().T.tolist()
        pairs: list[tuple[Expr, Any]] = []
        first, last = rows[0], rows[-1]
        pairs.append((_parabola(first[0], first[1], first[2], 0.0), x <= Float(first[0], 17)))
        pairs += [(_parabola(*row), x <= Float(after[0], 17)) for row, after in itertools.pairwise(rows)]
        pairs.append((_parabola(last[0], last[1], last[2], 0.0), True))
        return Activation(name, Piecewise(*pairs, evaluate=False), about="A monotone spline found by entropy descent.")


def _parabola(knot: float, value: float, slope: float, bend: float) -> Expr:
    t = x - Float(knot, 17)
    return Float(value, 17) + t * (Float(slope, 17) + Float(bend / 2, 17) * t)
