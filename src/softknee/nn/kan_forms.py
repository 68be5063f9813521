"""Edges of a KAN layer as closed forms: a f(b x + c) + d with f of a library, or a small soft table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..design.concrete import Curve, concrete
from ..design.fitting import Fitted, fit
from ..errors import ParameterError, require_number
from .kan import KANLinear
from .make import make

# From the plainest on: the first that is near enough is taken.
LIBRARY = (
    *("x", "x**2", "exp(x)", "sin(x)", "abs(x)", "relu", "tanh", "sigmoid", "normal_pdf(x)", "x**3", "silu"),
    *("log(x)", "sqrt(x)", "1/x", "atan(x)", "softplus", "gelu"),
)
_SAMPLES = 65  # on an edge's range, for fitting
_LOOKS = 16  # places per step of the grid at which the error is looked at
_STEPS = 60


@dataclass(frozen=True, eq=False)
class EdgeForm:
    """One edge, from input `i` to output `o`: scale f(rate x + shift) + offset.

    function: f as a text; "squaf" for a fitted table, which is `table`.
    error:    the largest difference to the edge seen on its range, at 16 places per step of its grid. A look, not a
              proof.
    """

    i: int
    o: int
    function: str
    scale: float
    rate: float
    shift: float
    offset: float
    error: float
    table: Fitted | None = None

    def __str__(self) -> str:
        if self.function == "x":
            slope, offset = self.scale * self.rate, self.offset + self.scale * self.shift
            return f"{slope:.4g}*x{self.i}{offset:+.4g}"
        inner = f"{self.rate:.4g}*x{self.i}{self.shift:+.4g}"
        call = f"{self.function}(x)" if self.function.isidentifier() else self.function
        call = re.sub(r"\(x\)|\bx\b", f"({inner})", call)
        return f"{self.scale:.4g}*{call}{self.offset:+.4g}"


@dataclass(frozen=True, eq=False)
class ClosedForms:
    """What `KANLinear.closed_forms` found: an `EdgeForm` for each edge that is not pruned.

    >>> import softknee as sk, torch
    >>> layer = sk.nn.KANLinear(1, 1, base="tanh")
    >>> with torch.no_grad():
    ...     _ = layer.table.zero_()
    ...     _ = layer.weight.fill_(2.0)
    >>> forms = layer.closed_forms(1e-3)
    >>> forms.edges[0].function, forms.error < 1e-3
    ('tanh', True)
    >>> forms.module()(torch.zeros(1, 1)).shape
    torch.Size([1, 1])
    """

    n_in: int
    n_out: int
    edges: tuple[EdgeForm, ...]
    bias: Tensor

    @property
    def error(self) -> float:
        """The largest difference of an output, as far as its edges' errors were seen: their sum over the inputs."""
        return max((sum(edge.error for edge in self.edges if edge.o == o) for o in range(self.n_out)), default=0.0)

    @property
    def texts(self) -> tuple[str, ...]:
        """Each output as a text."""
        lines = []
        for o in range(self.n_out):
            terms = [str(edge) for edge in self.edges if edge.o == o]
            lines.append(" + ".join([*terms, f"{float(self.bias[o]):.4g}"]))
        return tuple(lines)

    def module(self) -> KANForms:
        """The layer with these edges; scales, rates, shifts and the bias can be trained on."""
        return KANForms(self)


class KANForms(nn.Module):
    """A layer whose edges are closed forms; `ClosedForms.module` makes it."""

    def __init__(self, forms: ClosedForms) -> None:
        super().__init__()
        self.n_in, self.n_out = forms.n_in, forms.n_out
        bias = forms.bias.double().clone()
        groups: dict[object, list[EdgeForm]] = {}
        for edge in forms.edges:
            bias[edge.o] += edge.offset
            groups.setdefault(edge.function if edge.table is None else edge, []).append(edge)
        self.functions = nn.ModuleList()
        self.lines = nn.ParameterList()
        for number, edges in enumerate(groups.values()):
            table = edges[0].table
            self.functions.append(make(edges[0].function) if table is None else table.module())
            numbers = torch.tensor([[edge.scale, edge.rate, edge.shift] for edge in edges], dtype=torch.float64)
            self.lines.append(nn.Parameter(numbers.T.to(forms.bias)))
            self.register_buffer(f"source_{number}", torch.tensor([edge.i for edge in edges]))
            # A product with ones and zeros: the ONNX exporter of torch 2.12 translates index_add wrongly.
            target = nn.functional.one_hot(torch.tensor([edge.o for edge in edges]), self.n_out)
            self.register_buffer(f"target_{number}", target.to(forms.bias))
        self.functions.to(forms.bias)
        self.to(forms.bias.device)
        self.bias = nn.Parameter(bias.to(forms.bias))

    def forward(self, input: Tensor) -> Tensor:
        out = self.bias.expand(*input.shape[:-1], self.n_out)
        for number, (function, line) in enumerate(zip(self.functions, self.lines, strict=True)):
            scale, rate, shift = line
            source, target = self.get_buffer(f"source_{number}"), self.get_buffer(f"target_{number}")
            out = out + (scale * function(rate * input.index_select(-1, source) + shift)) @ target
        return out

    def extra_repr(self) -> str:
        return f"n_in={self.n_in}, n_out={self.n_out}, edges={sum(line.shape[1] for line in self.lines)}"


@torch.no_grad()
def find_forms(layer: KANLinear, tolerance: float, library: Sequence[str]) -> ClosedForms:
    """The first form of the library that is near enough, for each edge; else the smallest soft table that is."""
    require_number("closed_forms", "tolerance", tolerance)
    wide = layer._float64().cpu()
    middle, half = (wide.low + wide.high) / 2, (wide.high - wide.low) / 2
    kept = torch.ones_like(wide.table[0]) if wide.kept is None else wide.kept
    place_i, place_o = kept.nonzero().T
    s = torch.linspace(-1, 1, _SAMPLES, dtype=torch.float64)
    y = wide.edges(middle + s[:, None] * half)[:, place_i, place_o].T  # (edges, samples)
    looks = wide.places(_LOOKS)
    truth = wide.edges(looks)[:, place_i, place_o].T
    allowed = (tolerance * (truth.amax(1) - truth.amin(1))).tolist()
    x = ((looks - middle) / half)[:, 0]
    open_ = torch.ones(len(y), dtype=torch.bool)
    forms: dict[int, EdgeForm] = {}
    for text in library:
        if not open_.any():
            break
        curve = concrete(text)
        which = open_.nonzero().flatten()
        lines = _refined(curve.value, curve.slope, s, y[which], _start(curve.value, s, y[which]))
        off = (_value(curve.value, x, lines) - truth[which]).abs().amax(1).nan_to_num(nan=torch.inf)
        for edge, line, error in zip(which.tolist(), lines.tolist(), off.tolist(), strict=True):
            if error <= allowed[edge]:
                i, o = int(place_i[edge]), int(place_o[edge])
                scale, offset, rate, shift = line
                rate /= float(half[i])
                shift -= rate * float(middle[i])
                forms[edge] = EdgeForm(i, o, text, scale, rate, shift, offset, error)
                open_[edge] = False
    for edge in open_.nonzero().flatten().tolist():
        i, o = int(place_i[edge]), int(place_o[edge])
        forms[edge] = _fitted(wide, i, o, float(middle[i]), float(half[i]), allowed[edge])
    edges = tuple(forms[edge] for edge in sorted(forms))
    return ClosedForms(layer.n_in, layer.n_out, edges, layer.bias.detach().clone())


def _fitted(wide: KANLinear, i: int, o: int, middle: float, half: float, tolerance: float) -> EdgeForm:
    def curve(t: Tensor) -> Tensor:
        x = (middle + t).unsqueeze(-1).expand(*t.shape, wide.n_in)
        return wide.edges(x)[..., i, o]

    try:
        table = fit(curve, low=-half, high=half, tolerance=tolerance, window=None, largest=2 * wide.grid)
    except ParameterError as error:
        raise ParameterError(f"closed_forms: the edge from input {i} to output {o}. {error}") from error
    return EdgeForm(i, o, "squaf", 1.0, 1.0, -middle, 0.0, table.sup, table)


def _value(f: Curve, s: Tensor, lines: Tensor) -> Tensor:
    scale, offset, rate, shift = lines.T.unsqueeze(-1)
    return scale * f(rate * s + shift) + offset


def _start(f: Curve, s: Tensor, y: Tensor) -> Tensor:
    """For each row of y the best (scale, offset, rate, shift) of a coarse grid of rates and shifts; (rows, 4)."""
    rates = torch.logspace(-1.5, 3.5, 16, base=2, dtype=torch.float64)
    rate, shift = torch.cartesian_prod(torch.cat([rates, -rates]), torch.linspace(-5, 5, 41, dtype=torch.float64)).T
    values = f(rate[:, None] * s + shift[:, None])
    inside = values.isfinite().all(1) & (values.abs().amax(1) < 1e4)
    rate, shift, values = rate[inside], shift[inside], values[inside]
    means = values.mean(1)
    centred = values - means[:, None]
    sizes = centred.square().sum(1).clamp(min=1e-20)
    along = (y - y.mean(1, keepdim=True)) @ centred.T  # (rows, candidates)
    best = (along.square() / sizes).argmax(1)
    scale = along.gather(1, best[:, None])[:, 0] / sizes[best]
    return torch.stack([scale, y.mean(1) - scale * means[best], rate[best], shift[best]], dim=1)


def _refined(f: Curve, slope: Curve, s: Tensor, y: Tensor, lines: Tensor) -> Tensor:
    """Levenberg and Marquardt's steps for all rows at once."""
    damping = torch.full((len(y), 1), 1e-3, dtype=torch.float64)
    cost = (_value(f, s, lines) - y).square().sum(1)
    for _ in range(_STEPS):
        scale, offset, rate, shift = lines.T.unsqueeze(-1)
        inner = rate * s + shift
        value, along = f(inner), scale * slope(inner)
        rows = torch.stack([value, torch.ones_like(value), along * s, along], dim=-1).nan_to_num()
        missing = (y - scale * value - offset).nan_to_num()
        square = rows.mT @ rows
        ridge = torch.diag_embed(damping * (square.diagonal(dim1=1, dim2=2) + 1e-12))
        tried = lines + torch.linalg.solve(square + ridge, (rows.mT @ missing.unsqueeze(-1)))[..., 0]
        after = (_value(f, s, tried) - y).square().sum(1).nan_to_num(nan=torch.inf)
        better = after < cost
        lines, cost = torch.where(better[:, None], tried, lines), torch.where(better, after, cost)
        damping = torch.where(better[:, None], 0.3 * damping, 4 * damping).clamp(1e-12, 1e8)
    return lines


__all__ = ["LIBRARY", "ClosedForms", "EdgeForm", "KANForms"]
