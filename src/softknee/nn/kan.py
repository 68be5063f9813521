"""Layers with a learned function on every edge (Kolmogorov-Arnold networks), and what is proved of them.

    out_o = bias_o + sum_i phi_oi(x_i),    phi_oi(x) = sum_g z_oig b_g(u) + w_oi base(x),    u = (x - middle_i) / step_i

All edges of an input share the functions b_g, so that a layer is one product of the values b_g(u_i), a matrix of
batch x (G n_in), with the table z; no tensor of batch x n_in x n_out exists. Two kinds of b_g:

    soft table   b_g = e^(-h (u - g)^2) / sum_j e^(-h (u - j)^2): every edge is a SQUAF over all points of its grid
    spline       b_g = f(u - g + 1) - 2 f(u - g) + f(u - g - 1) of a soft ReLU f: a mollified hat. For f the ReLU it is
                 the hat itself, for SmeLU with beta = 1/2 the quadratic B-spline, and for ReLU mollified with a
                 triangle of width 1 the cubic B-spline of Liu et al.

`KANPointwise` has any other definition on its edges, w_oi f(x; p_oi), each computed by itself.

A window of five points with a gathered product was tried against the full sum: on a CPU it was slower on grids of the
usual sizes, and it jumps where it slides.

References: Z. Liu et al., KAN: Kolmogorov-Arnold networks (2024); the SQUAF paper, equation 10, for the soft table.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..errors import InputError, ParameterError, require_count, require_number
from .make import make
from .module import Pointwise
from .parameters import leaf_of_graph, refuse_script, require_model, require_tensor

if TYPE_CHECKING:
    from .kan_forms import ClosedForms

SPLINE = "mollify(relu, triangle, width=1)"  # its second difference is the cubic B-spline
_BEYOND = 4.0  # steps beyond the first and the last point at which u is held: the soft table is flat there to 1e-5
_SHARPEST = 100.0
_LOOKS = 8  # places per step of the grid at which edges are looked at
_NOISE = 0.03
_VALUES = 2**22  # values of edges that are held at a time where each is computed by itself


@dataclass(frozen=True)
class Pruned:
    """What `KANLinear.prune_` did.

    edges: how many are left.
    gone:  how many were taken away by this call.
    error: for each output the sum of half the ranges of what was taken away: how far it can have moved, as far as the
           places that were looked at show.
    """

    edges: int
    gone: int
    error: Tensor


class KANLinear(nn.Module):
    """A layer with a function of its own on each of its n_in x n_out edges: out_o = bias_o + sum_i phi_oi(x_i).

    Args:
        n_in, n_out: sizes of the last dimension of input and output.
        edge: "squaf" for a soft table; "spline" for cubic B-splines; or any soft ReLU by name, text or definition
            ("srelu", "smelu(beta=0.5)", "mollify(relu, bump)"), whose second differences are the spline's functions.
            Widths are in steps of the grid.
        grid: how many points an edge has. The first and the last lie one step outside of [low, high].
        low, high: the inputs that the grid is for; `update_grid_` takes them from data. Beyond the grid a soft table
            is flat, a spline is 0, and the base goes on.
        base: a function whose multiple w_oi base(x) is added to each edge; None for none.
        sharpness: h of the soft table, alpha q^2 of a SQUAF.
        learn: parameters of the soft ReLU that are learned, one for the layer, as in `sk.nn.make`.
        device, dtype: of the parameters.

    >>> import softknee as sk, torch
    >>> net = torch.nn.Sequential(sk.nn.KANLinear(2, 5), sk.nn.KANLinear(5, 1, edge="spline"))
    >>> net(torch.zeros(3, 2)).shape
    torch.Size([3, 1])
    >>> net[0]
    KANLinear(
      n_in=2, n_out=5, edge='squaf', grid=11
      (base): SiLU()
    )
    """

    middle: Tensor
    step: Tensor
    points: Tensor
    offsets: Tensor
    kept: Tensor | None

    def __init__(
        self,
        n_in: int,
        n_out: int,
        *,
        edge: Any = "squaf",
        grid: int = 11,
        low: float = -1.0,
        high: float = 1.0,
        base: Any = "silu",
        sharpness: float = 1.5,
        learn: bool | str | Iterable[str] = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for name, count, least in (("n_in", n_in, 1), ("n_out", n_out, 1), ("grid", grid, 5)):
            require_count("KANLinear", name, count, least=least)
        require_number("KANLinear", "sharpness", sharpness, most=_SHARPEST)
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ParameterError(f"KANLinear: low must be below high, both finite, and {low!r}, {high!r} were given.")
        self.n_in, self.n_out, self.sharpness = int(n_in), int(n_out), float(sharpness)
        self.edge = edge if isinstance(edge, str) else getattr(edge, "name", type(edge).__name__)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.knee = None if edge == "squaf" else _knee(SPLINE if edge == "spline" else edge, learn, where)
        if self.knee is None and learn is not False:
            raise ParameterError("KANLinear: learn names parameters of a soft ReLU, and the table is always learned.")
        # torch's own SiLU: one kernel, and a call that costs a small layer little.
        self.base = nn.SiLU() if base == "silu" else None if base is None else make(base, **where)
        step = (high - low) / (grid - 3)
        self.register_buffer("middle", torch.full((n_in,), (low + high) / 2, **where))
        self.register_buffer("step", torch.full((n_in,), step, **where))
        for name in ("points", "offsets"):
            self.register_buffer(name, None, persistent=False)
        self.register_buffer("kept", None)
        self.table = nn.Parameter(torch.empty(grid, n_in, n_out, **where))
        self.weight = nn.Parameter(torch.empty(n_in, n_out, **where)) if base is not None else None
        self.bias = nn.Parameter(torch.empty(n_out, **where))
        self._set_points()
        self.reset_parameters()

    def _set_points(self) -> None:
        """The points in steps from the middle; second differences need one more on each side.

        For a soft table -h (u - g)^2 is u (2 h g) - h g^2, up to what all points share: `points` holds the factors
        of u and `offsets` the rest.
        """
        count = self.grid if self.knee is None else self.grid + 2
        dtype = torch.promote_types(self.step.dtype, torch.float32)
        points = torch.arange(count, device=self.step.device, dtype=dtype).unsqueeze(1) - (count - 1) / 2
        self.offsets = -self.sharpness * points.square()
        self.points = points if self.knee is not None else 2 * self.sharpness * points

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self._set_points()  # a type with few digits or memory without content would have spoilt them
        return self

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the edges anew: small noise in the table, and the weights of the base as those of a linear layer."""
        nn.init.normal_(self.table, std=_NOISE / self.n_in**0.5)
        if self.weight is not None:
            nn.init.uniform_(self.weight, -(self.n_in**-0.5), self.n_in**-0.5)
        nn.init.zeros_(self.bias)
        self.kept = None

    @property
    def grid(self) -> int:
        """How many points an edge has."""
        return self.table.shape[0]

    @property
    def z(self) -> Tensor:
        """The values at the points of each edge, (grid, n_in, n_out); 0 where it is pruned."""
        return self._kept_parts()[0]

    # -- computing --------------------------------------------------------------------------------------

    def forward(self, input: Tensor) -> Tensor:
        if (node := leaf_of_graph(self, input)) is not None:
            return node
        x = _as_rows("KANLinear", input, self.n_in)
        table, weight = self._kept_parts()
        out = torch.addmm(self.bias, self.basis(x).flatten(1).to(table.dtype), table.flatten(0, 1))
        if self.base is not None and weight is not None:
            out = torch.addmm(out, self.base(x).to(weight.dtype), weight)
        return out.reshape(*input.shape[:-1], self.n_out)

    def _kept_parts(self) -> tuple[Tensor, Tensor | None]:
        """The table and the base's weights, 0 where edges are pruned."""
        if self.kept is None:
            return self.table, self.weight
        return self.table * self.kept, None if self.weight is None else self.weight * self.kept

    def basis(self, input: Tensor) -> Tensor:
        """b_g(u_i) for each point and each input, of shape (..., grid, n_in).

        The inputs come last: a CPU takes the softmax of many columns at once, and not that of many short rows.
        """
        last = (self.grid - 1) / 2 + _BEYOND
        u = nn.functional.hardtanh((input - self.middle) / self.step, -last, last).unsqueeze(-2)
        if self.knee is None:
            return torch.addcmul(self.offsets, u, self.points).softmax(-2)
        return self.knee(u - self.points).diff(n=2, dim=-2)

    def edges(self, input: Tensor) -> Tensor:
        """phi_oi(x_i), each edge by itself, of shape (..., n_in, n_out): for looking at them, not for training."""
        z, weight = self.z, self._kept_parts()[1]
        values = torch.einsum("...gi,gio->...io", self.basis(input).to(z.dtype), z)
        if self.base is None or weight is None:
            return values
        return values + self.base(input).to(weight.dtype).unsqueeze(-1) * weight

    # -- the grid ---------------------------------------------------------------------------------------

    @property
    def low(self) -> Tensor:
        """Where the grid's range begins, for each input."""
        return self.middle - (self.grid - 3) / 2 * self.step

    @property
    def high(self) -> Tensor:
        """Where the grid's range ends, for each input."""
        return self.middle + (self.grid - 3) / 2 * self.step

    def places(self, looks: int = _LOOKS) -> Tensor:
        """Places spread evenly over the range of each input, (places, n_in): `looks` per step of the grid."""
        share = torch.linspace(0, 1, looks * (self.grid - 3) + 1, device=self.step.device, dtype=torch.float64)
        return self.low.double() + share[:, None] * (self.high.double() - self.low.double())

    @torch.no_grad()
    def update_grid_(self, input: Tensor, *, grid: int | None = None, margin: float = 0.05) -> float:
        """Lay the grids over the range of these inputs, and fit the tables so that the edges stay as they are there.

        Args:
            input: examples of what reaches the layer, (..., n_in).
            grid: another number of points; the table is then a new parameter, and an optimiser must be made anew.
            margin: what is added to the range on either side, as a share of it.

        Returns the largest change of an edge on the new ranges.
        """
        grid = self.grid if grid is None else grid
        require_count("update_grid_", "grid", grid, least=5)
        require_number("update_grid_", "margin", margin, zero=True)
        seen = input.detach().reshape(-1, self.n_in).double() if input.shape[-1:] == (self.n_in,) else input[:0]
        if not len(seen) or not bool(seen.isfinite().all()):
            raise InputError(
                f"update_grid_ needs finite examples of shape (..., {self.n_in}), and a tensor of shape "
                f"{tuple(input.shape)} was given; leave out examples that are not finite."
            )
        low, high = seen.amin(0), seen.amax(0)
        width = torch.where(high > low, high - low, self.high.double() - self.low.double())
        low, step = low - margin * width, (1 + 2 * margin) * width / (grid - 3)
        places = low + torch.arange(_LOOKS * (grid - 3) + 1, device=low.device).double()[:, None] / _LOOKS * step
        wide = self._float64()
        before = wide.edges(places)
        wide.middle, wide.step = low + (grid - 3) / 2 * step, step
        wide.table = nn.Parameter(wide.table.new_zeros(grid, self.n_in, self.n_out), requires_grad=False)
        wide._set_points()
        missing = before - wide.edges(places)  # what the base does not do
        rows = wide.basis(places)[..., 0]  # the same for each input, in steps of its grid
        wide.table[:] = torch.einsum("gm,mio->gio", torch.linalg.pinv(rows), missing)
        moved = float((wide.edges(places) - before).abs().max())
        self.middle.copy_(wide.middle)
        self.step.copy_(wide.step)
        if grid == self.grid:
            self.table.copy_(wide.table)
        else:
            self.table = nn.Parameter(wide.table.to(self.table), requires_grad=self.table.requires_grad)
            self._set_points()
        return moved

    def _float64(self) -> KANLinear:
        """A copy in double precision."""
        return copy.deepcopy(self).double().requires_grad_(False)

    # -- pruning ----------------------------------------------------------------------------------------

    @torch.no_grad()
    def prune_(self, tolerance: float, input: Tensor | None = None) -> Pruned:
        """Replace every edge of small range by a constant, which the bias takes over.

        Args:
            tolerance: the range up to which an edge is taken away, as a share of the largest range in the layer.
            input: what the ranges are taken over; left out, eight places per step of each grid.

        An edge that is gone stays away in training; `reset_parameters` brings all back.
        """
        require_number("prune_", "tolerance", tolerance, zero=True)
        wide = self._float64()
        values = wide.edges(self.places() if input is None else input.double().reshape(-1, self.n_in))
        if not len(values):
            raise InputError("prune_ needs examples to see the range of an edge on; leave the input out for the grid.")
        low, high = values.amin(0), values.amax(0)
        kept = torch.ones_like(self.table[0]) if self.kept is None else self.kept
        gone = (high - low <= tolerance * (high - low).max()) & (kept > 0)
        self.bias += torch.where(gone, (low + high) / 2, 0.0).sum(0).to(self.bias)
        self.kept = kept.masked_fill(gone, 0.0)
        error = torch.where(gone, (high - low) / 2, 0.0).sum(0)
        return Pruned(int(self.kept.sum()), int(gone.sum()), error)

    def _load_from_state_dict(  # as torch calls it
        self, state_dict: Any, prefix: str, local_metadata: Any, *others: Any, **named: Any
    ) -> None:
        kept = state_dict.get(f"{prefix}kept")  # there is one once edges were pruned
        self.kept = None if kept is None else torch.ones_like(self.table[0])
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *others, **named)

    # -- what is proved ---------------------------------------------------------------------------------

    @torch.no_grad()
    def lipschitz(self) -> Tensor:
        """A Lipschitz constant of each edge, (n_out, n_in) in float64: no slope is larger in absolute value.

        The slope of an edge is a sum of its table's differences with weights that are not negative. For a soft table
        they add up to the slope of the mean point, 2 h Var(g), whose largest value is bounded cell by cell; for a
        spline of a convex soft ReLU to at most the variation of its slope, which is certified. With kappa for that, the
        constant is kappa max|z_(g+1) - z_g| / step + |w| L(base). Numbers are float64 and rounded up by 1e-9 of
        themselves.
        """
        z, weight = self.z.double(), self._kept_parts()[1]
        if self.knee is None:
            kappa = spread_bound(self.grid, self.sharpness)
        else:
            kappa = _variation(self.knee)
            z = nn.functional.pad(z, (0, 0, 0, 0, 1, 1))  # a spline is 0 beyond its grid
        slopes = kappa * z.diff(dim=0).abs().amax(0) / self.step.double()[:, None]
        if self.base is not None and weight is not None:
            slopes = slopes + constant_of(self.base) * weight.double().abs()
        return (1 + 1e-9) * slopes.T

    def closed_forms(self, tolerance: float, *, library: Iterable[str] | None = None) -> ClosedForms:
        """Each edge as a closed form a f(b x + c) + d, or as a soft table of its own; see `ClosedForms`.

        Args:
            tolerance: the largest error allowed, as a share of the edge's range.
            library: texts of functions f in the order in which they are tried; left out, `kan_forms.LIBRARY`.
        """
        from .kan_forms import LIBRARY, find_forms

        return find_forms(self, tolerance, tuple(LIBRARY if library is None else library))

    def __prepare_scriptable__(self) -> Self:
        refuse_script(self)

    def extra_repr(self) -> str:
        pruned = "" if self.kept is None or self.kept.is_meta else f", pruned={int((self.kept == 0).sum())}"
        return f"n_in={self.n_in}, n_out={self.n_out}, edge={self.edge!r}, grid={self.grid}{pruned}"


class KANPointwise(nn.Module):
    """A layer with one function f on all edges and parameters of its own on each.

        out_o = bias_o + sum_i w_oi f(x_i; p_oi)

    No two edges share anything, so that batch x n_in x n_out values of f are computed, where `KANLinear` has one
    product: n_out times the work of an activation on the inputs. At most 4M of them are held at a time; a batch that
    has more is cut into pieces, and each piece is computed once more in the backward pass. Under torch.compile and in
    an export there is one piece, which the compiler fuses with the sum.

    Args:
        n_in, n_out: sizes of the last dimension of input and output.
        edge: any element-wise activation by name, text, file or definition, as in `sk.nn.make`.
        learn: the parameters that are learned on every edge; all where nothing is given.
        values: the values at which the parameters start; left out, their defaults.
        device, dtype: of the parameters.

    >>> import softknee as sk, torch
    >>> layer = sk.nn.KANPointwise(2, 3, edge="swish", beta=2.0)
    >>> layer(torch.zeros(4, 2)).shape, layer.edge.raw_beta.shape
    (torch.Size([4, 3]), torch.Size([2, 3]))
    >>> sk.nn.KANPointwise(2, 3, edge="let(sin(b*x + c), b=2.0, c=0.0)").edge.learned
    ('b', 'c')

    References: as for `KANLinear`; a function with parameters on every edge is Liu et al., section 2.
    """

    def __init__(
        self,
        n_in: int,
        n_out: int,
        *,
        edge: Any,
        learn: bool | str | Iterable[str] = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **values: Any,
    ) -> None:
        super().__init__()
        for name, count in (("n_in", n_in), ("n_out", n_out)):
            require_count("KANPointwise", name, count)
        self.n_in, self.n_out = int(n_in), int(n_out)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.edge = make(edge, learn=learn, per="neuron", size=(self.n_in, self.n_out), **where, **values)
        if not isinstance(self.edge, Pointwise):
            raise ParameterError(
                f"KANPointwise: edge must be an element-wise formula, and {edge!r} is none; soft tables are the edges "
                "of KANLinear."
            )
        self.weight = nn.Parameter(torch.empty(n_in, n_out, **where))
        self.bias = nn.Parameter(torch.empty(n_out, **where))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """The functions as at the start, and weights as those of a linear layer."""
        if isinstance(self.edge, Pointwise):
            self.edge.reset_parameters()
        nn.init.uniform_(self.weight, -(self.n_in**-0.5), self.n_in**-0.5)
        nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        if (node := leaf_of_graph(self, input)) is not None:
            return node
        x = _as_rows("KANPointwise", input, self.n_in)
        rows = max(1, _VALUES // (self.n_in * self.n_out))
        if torch.compiler.is_compiling() or len(x) <= rows:
            out = self._sums(x)
        else:
            parts: list[Any] = [checkpoint(self._sums, part, use_reentrant=False) for part in x.split(rows)]
            out = torch.cat(parts)
        return (out + self.bias).reshape(*input.shape[:-1], self.n_out)

    def _sums(self, x: Tensor) -> Tensor:
        return self.edges(x).sum(-2)

    def edges(self, input: Tensor) -> Tensor:
        """w_oi f(x_i; p_oi), each edge by itself, of shape (..., n_in, n_out)."""
        values = self.edge(input.unsqueeze(-1).expand(*input.shape, self.n_out))
        return values.to(self.weight.dtype) * self.weight

    @torch.no_grad()
    def lipschitz(self) -> Tensor:
        """A Lipschitz constant of each edge, (n_out, n_in) in float64: |w_oi| times the certified constant of f there.

        Every set of values that occurs has a certificate of its own, a fraction of a second each.
        """
        sizes = self.weight.double().abs().T
        if not isinstance(self.edge, Pointwise):  # surgery has put a plain ReLU here
            return (1 + 1e-9) * constant_of(self.edge) * sizes
        names = [p.name for p in self.edge.params]
        numbers = [self.edge.effective(p).double().expand(self.n_in, self.n_out).T.flatten() for p in self.edge.params]
        sets = torch.stack(numbers, dim=1).tolist() if numbers else [[]] * sizes.numel()
        known = {
            values: _largest_slope(self.edge.definition, dict(zip(names, values, strict=True)))
            for values in set(map(tuple, sets))
        }
        constants = torch.tensor([known[tuple(values)] for values in sets], dtype=torch.float64, device=sizes.device)
        return (1 + 1e-9) * constants.reshape(sizes.shape) * sizes

    def __prepare_scriptable__(self) -> Self:
        refuse_script(self)

    def extra_repr(self) -> str:
        return f"n_in={self.n_in}, n_out={self.n_out}"


def _as_rows(title: str, input: Tensor, n_in: int) -> Tensor:
    """The input as a matrix of rows, in float32 or better."""
    require_tensor(title, input)
    if not input.is_floating_point() or not input.dim() or input.shape[-1] != n_in:
        raise InputError(
            f"{title} takes real floating-point tensors of shape (..., {n_in}), and one of shape "
            f"{tuple(input.shape)} and {input.dtype} was given."
        )
    return input.to(torch.promote_types(input.dtype, torch.float32)).reshape(math.prod(input.shape[:-1]), n_in)


def _knee(edge: Any, learn: bool | str | Iterable[str], where: dict[str, Any]) -> Pointwise:
    knee = make(edge, learn=learn, **where)
    definition = knee.definition if isinstance(knee, Pointwise) else None
    if not isinstance(knee, Pointwise) or definition is None or "relu" not in (definition.name, definition.limit):
        raise ParameterError(
            f"KANLinear: edge must be 'squaf', 'spline' or a soft ReLU, such as 'srelu', 'smelu' or 'softplus', whose "
            f"second differences are local; {edge!r} has no ReLU as its limit. It can be the base of every edge, and "
            f"KANPointwise has it on each edge with parameters of its own."
        )
    return knee


@functools.lru_cache(maxsize=64)
def spread_bound(grid: int, sharpness: float) -> float:
    """An upper bound of 2 h Var(g) over all u: the largest slope of the mean point of a soft table.

    In a cell of u each weight is between its values at the cell's ends, relative to that of the nearest point; and a
    variance is at most the mean square about any other number.

    >>> 1.03 < spread_bound(11, 1.5) < 1.05
    True
    """
    points = torch.arange(grid, dtype=torch.float64)
    cells = 512 * int(grid - 1 + 2 * _BEYOND)
    ends = torch.linspace(-_BEYOND, grid - 1 + _BEYOND, cells + 1, dtype=torch.float64)
    largest = 0.0
    for first, last in zip(ends[:-1].split(4096), ends[1:].split(4096), strict=True):
        centre = ((first + last) / 2)[:, None].round().clamp(0, grid - 1)
        away = points - centre
        logs = [2 * sharpness * (end[:, None] - centre) * away - sharpness * away.square() for end in (first, last)]
        upper, lower = torch.maximum(*logs).exp(), torch.minimum(*logs).exp()
        mean = (upper * points).sum(1, keepdim=True) / upper.sum(1, keepdim=True)
        squares = (upper * (points - mean).square()).sum(1) / lower.sum(1)
        largest = max(largest, float(squares.max()))
    return 2 * sharpness * largest * (1 + 1e-9)


def _values(module: Pointwise) -> dict[str, float]:
    return {p.name: module.effective(p).double().item() for p in module.params}


def _variation(knee: nn.Module) -> float:
    """The total variation of the slope of a convex soft ReLU, from above; what is not proved convex is refused."""
    if isinstance(knee, nn.ReLU) or (isinstance(knee, Pointwise) and knee.definition.name == "relu"):
        return 1.0
    from ..design.proof.certify import certify

    assert isinstance(knee, Pointwise)
    values = _values(knee)
    proof, slope = certify(knee.definition, **values), certify(knee.definition.derivative(1), **values)
    if not slope.monotone:
        raise ParameterError(
            f"KANLinear: the bound of a spline's slope needs a convex soft ReLU, and {knee.definition.name} is not "
            "proved to be one; 'spline', 'srelu', 'smelu' and 'softplus' are."
        )
    return math.nextafter(float(proof.largest_slope.upper - proof.smallest_slope.lower), math.inf)


def constant_of(module: nn.Module) -> float:
    """The certified Lipschitz constant of an element-wise module, from above."""
    if isinstance(module, nn.ReLU):
        return 1.0
    module = make("silu") if isinstance(module, nn.SiLU) else module
    if not isinstance(module, Pointwise):
        raise ParameterError(
            f"A Lipschitz constant is proved of softknee's own functions, not of {type(module).__name__}."
        )
    return _largest_slope(module.definition, _values(module))


def _largest_slope(definition: Any, values: dict[str, float]) -> float:
    from ..design.proof.certify import certify

    return math.nextafter(float(certify(definition, **values).lipschitz.upper), math.inf)


@torch.no_grad()
def jacobian_bound(model: nn.Module) -> Tensor:
    """A bound of |d out_o / d x_i| for all inputs, as a matrix (n_out, n_in) in float64.

    A product of matrices is entry by entry at most the product of bounds of their entries: this is the product of the
    layers' bounds, `lipschitz` of KAN layers and the absolute weights of linear layers. Norms of it are certified
    Lipschitz constants of the network: `matrix_norm(2)` for distances, `.sum(1).max()` for the largest change of one
    output.

    model: a KAN layer, a linear layer, or a Sequential of these and of element-wise functions of the zoo; dropout is
        taken as in eval mode.

    >>> import softknee as sk, torch
    >>> layer = sk.nn.KANLinear(2, 1, grid=5)
    >>> with torch.no_grad():
    ...     _ = layer.table.zero_()
    ...     _ = layer.weight.fill_(1.0)  # silu(x) + silu(y)
    >>> sk.nn.jacobian_bound(layer)
    tensor([[1.0998, 1.0998]], dtype=torch.float64)
    """
    require_model(model, "jacobian_bound")
    layers = list(model) if isinstance(model, nn.Sequential) else [model]
    bound: Tensor | None = None
    scale = 1.0
    for layer in layers:
        if isinstance(layer, nn.Sequential):
            matrix = jacobian_bound(layer)
        elif isinstance(layer, (KANLinear, KANPointwise)):
            matrix = layer.lipschitz()
        elif isinstance(layer, nn.Linear):
            matrix = layer.weight.double().abs()
        elif isinstance(layer, (Pointwise, nn.ReLU, nn.SiLU)):
            scale *= constant_of(layer)
            continue
        elif isinstance(layer, (nn.Identity, nn.Dropout, nn.Flatten)):
            continue
        else:
            raise InputError(
                f"jacobian_bound takes a Sequential of KAN layers, nn.Linear and functions of the zoo, and one of its "
                f"layers is a {type(layer).__name__}."
            )
        bound = matrix if bound is None else matrix @ bound
    if bound is None:
        raise InputError("jacobian_bound needs a layer with inputs and outputs, a KANLinear or nn.Linear.")
    return scale * bound


__all__ = ["KANLinear", "KANPointwise", "Pruned", "jacobian_bound"]
