"""Functions that are more than a formula of one number: soft tables, functions of rows, and the baselines.

What is asked of every formula of the zoo and needs no symbolic derivative is asked of these as well, by their modules:
see test_subjects.py. A new kind of module is tested by one more row of this table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import softknee as sk
from softknee.errors import ParameterError
from softknee.spec import Rowwise, positive, real

CHANNELS = 2


@dataclass(frozen=True)
class Subject:
    """A function with parameters, as the module that computes it."""

    name: str
    make: Callable[..., nn.Module]
    """Takes `dtype`, `device`, `per`, `size` and `learn`."""
    reference: Callable[[nn.Module, Tensor], Tensor] | None = None
    """A plain, slow way to the same values, for one layer whose parameters all inputs share."""
    options: dict[str, Any] = field(default_factory=dict)
    differentiable: bool = True
    """Whether its gradient is that of its values: of a draw it is that of the mean, and a staircase has none."""
    needs_rows: bool = False
    rounds_once: bool = True
    """Whether half types are computed in float32; what a user writes for rows is computed in their type."""
    atol: float = 1e-6
    """Of central differences, which a steep function makes worse."""

    def module(self, **options: Any) -> nn.Module:
        """With parameters that are all learned, one set for each channel, and none of them at a special value."""
        given = {"learn": True, "per": "channel", "size": CHANNELS} | self.options | options
        torch.manual_seed(3)
        module = self.make(**given)
        with torch.no_grad():
            for p in module.parameters():
                if not p.is_meta:
                    p += (0.05 * torch.randn(p.shape, dtype=torch.float64)).to(p.dtype)
        return module


def inputs(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    """Numbers inside and beyond a grid from -1 to 1; the second dimension is that of channels."""
    generator = torch.Generator().manual_seed(seed)
    return (1.2 * torch.randn(shape or (2, CHANNELS, 4), generator=generator, dtype=torch.float64)).to(dtype)


def call(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """The same draws each time, where the function draws."""
    torch.manual_seed(7)
    return function(*arguments)


def of_parameters(module: nn.Module) -> tuple[Callable[..., Tensor], list[Tensor]]:
    """The module as a function of x and of its parameters, and their values."""
    names = [name for name, _ in module.named_parameters()]

    def function(x: Tensor, *values: Tensor) -> Tensor:
        return functional_call(module, dict(zip(names, values, strict=True)), (x,))

    return function, [p.detach().clone().requires_grad_() for p in module.parameters()]


# -- functions of rows ----------------------------------------------------------------------------------------


def half(size: int) -> int:
    if size % 2:
        raise ParameterError(f"swiglu needs rows of even length to halve, and {size} was given.")
    return size // 2


def compute_swiglu(x: Tensor, *, beta: Tensor) -> Tensor:
    value, gate = x.chunk(2, -1)
    return value * gate * torch.sigmoid(beta * gate)


def compute_polynorm(x: Tensor, *, a1: Tensor, a2: Tensor, a3: Tensor, shift: Tensor) -> Tensor:
    """PolyNorm of order 3: a sum of powers, each brought to unit root mean square along the row."""
    terms = (a * _unit(x**n) for n, a in ((1, a1), (2, a2), (3, a3)))
    return sum(terms) + shift


def _unit(row: Tensor) -> Tensor:
    return row * torch.rsqrt(row.square().mean(-1, keepdim=True) + 1e-6)


SWIGLU = Rowwise("swiglu", compute_swiglu, params=(positive("beta", 1.0),), size_out=half, about="Shazeer 2020.")
POLYNORM = Rowwise(
    "polynorm",
    compute_polynorm,
    params=(real("a1", 1 / 3), real("a2", 1 / 3), real("a3", 1 / 3), real("shift", 0.0)),
    about="Zhuo et al. 2024.",
)


# -- plain references -----------------------------------------------------------------------------------------


def silu_gate(x: Tensor, beta: Tensor | float = 1.0) -> Tensor:
    value, gate = x.chunk(2, -1)
    return value * gate / (1 + torch.exp(-beta * gate))


def _grid_of(module: nn.Module) -> Tensor:
    count = module.z.shape[-1]
    uniform = "grid" not in dict(module.named_parameters())
    return module.q * torch.arange(-(count // 2), count // 2 + 1) if uniform else module.grid


def soft_table(module: nn.Module, x: Tensor) -> Tensor:
    far = x[..., None] - _grid_of(module)
    return (torch.softmax(-module.alpha * far.square(), -1) * module.z).sum(-1)


def nearest(module: nn.Module, x: Tensor) -> Tensor:
    return module.z[0][(x[..., None] - _grid_of(module)).abs().argmin(-1)]


def ramp_polynomial(module: nn.Module, x: Tensor) -> Tensor:
    return sum(a * x.clamp(min=0) ** n for n, a in enumerate(module.a[0]))


# -- the table ------------------------------------------------------------------------------------------------

TABLE = {"k": 2, "q": 0.5, "alpha": 3.0, "z": "gelu"}
GRID = {"grid": [-1.1, -0.4, 0.1, 0.9], "alpha": 2.0, "z": "gelu"}


def _squaf(name: str, mode: str = "soft", reference: Any = None, **options: Any) -> Subject:
    layer = {"soft": sk.nn.SQUAF, "sampled": sk.nn.SQUAFP, "step": sk.nn.SQUAFS}[mode]
    options = (GRID if name == "squaf_grid" else TABLE) | options
    return Subject(name, layer, reference, options, differentiable=mode == "soft")


MODULES = {
    subject.name: subject
    for subject in (
        _squaf("squaf", window=5),
        _squaf("squaf_laplacian", window=3, weights="laplacian"),
        _squaf("squaf_full", window=None, reference=soft_table),
        _squaf("squaf_grid", window=None, reference=soft_table),
        _squaf("squaf_tails", window=5, tails="linear"),
        _squaf("squaf_sampled", mode="sampled"),
        _squaf("squaf_step", mode="step", reference=nearest),
        Subject(
            "swiglu",
            lambda **given: sk.nn.RowwiseModule(SWIGLU, **given),
            reference=lambda module, x: silu_gate(x, module.beta),
            needs_rows=True,
            rounds_once=False,
        ),
        Subject(
            "rowwise_polynorm",
            lambda **given: sk.nn.RowwiseModule(POLYNORM, **given),
            needs_rows=True,
            rounds_once=False,
        ),
        Subject("polynorm", sk.nn.PolyNorm, needs_rows=True),
        Subject("polyrelu", sk.nn.PolyReLU, reference=ramp_polynomial),
        Subject("kaf", lambda **given: sk.nn.KAF("gelu", points=5, **given)),
        Subject("ditac", lambda **given: sk.nn.DiTAC([0.4, -0.3, 1.2], cells=4, **given), atol=1e-4),
    )
}
every_kind = pytest.mark.parametrize("subject", MODULES.values(), ids=MODULES)
DIFFERENTIABLE = {name: subject for name, subject in MODULES.items() if subject.differentiable}
every_differentiable = pytest.mark.parametrize("subject", DIFFERENTIABLE.values(), ids=DIFFERENTIABLE)
