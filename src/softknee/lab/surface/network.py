r"""A random network of two inputs and one output, whose output over the plane is the surface.

    a_1 = W_1 x,    a_l = W_l f(a_{l-1}),    output = W_6 f(a_5),    x in [-6, 6]^2,

with hidden layers of 256, 128, 64, 32 and 16 neurons, no biases, and weights drawn from N(0, 1): the same ones for
every function, norm and clipping of a seed. Beside them:

    weight norm   every row of every W is scaled to the 2-norm v (`sk.nn.row_norm`);
    layer norm    v (a_l - mean)/sqrt(variance + 1e-5) over the neurons of a hidden layer takes the place of a_l;
    clipping      f(a) is clipped to [-c, c] (`sk.surgery.clip_activations_`).

Reference: Shamir, Lin and Coviello, Smooth activations and reproducibility in deep networks, figures 2 and 5 to 7. It
does not say how the output is read from the last hidden layer, nor where v enters layer norm; here a linear map like
the others does the first, and v is the gain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import ParameterError, did_you_mean
from ...nn.row_norm import row_norm
from ...surgery.activation_text import module_of, read_name
from ...surgery.clipping import clip_activations_

WIDTHS = (256, 128, 64, 32, 16)
REACH = 6.0
LINEAR = "linear"
NORMS = ("weight", "layer", "none")
DTYPES = {"f32": torch.float32, "f64": torch.float64}
_CHUNK = 1024  # points at a time: their 256 neurons stay in the cache


@dataclass(frozen=True)
class Setting:
    """What one surface is of.

    activation: its text, as `sk.surgery.module_of` reads it, or "linear" for none.
    norm, v:    "weight", "layer" or "none", and the norm's value.
    clip:       where activations are clipped; None for nowhere.

    >>> Setting("smelu(beta=0.5)", norm="weight", v=2.0)
    Setting(activation='smelu(beta=0.5)', norm='weight', v=2.0, clip=None)
    """

    activation: str
    norm: str = "weight"
    v: float = 1.0
    clip: float | None = None

    def __post_init__(self) -> None:
        if self.norm not in NORMS:
            near = did_you_mean(self.norm, NORMS) or f" Known are {', '.join(NORMS)}."
            raise ParameterError(f"There is no norm called {self.norm!r}.{near}")
        for name, value in (("v", self.v), ("clip", self.clip)):
            if value is not None and not 0 < value < math.inf:
                raise ParameterError(f"{name} must be a finite number above 0, and {value!r} was given.")
        if self.activation != LINEAR:
            read_name(self.activation)


def network(setting: Setting, *, seed: int, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """The network, its weights drawn from that seed."""
    drawn = torch.Generator().manual_seed(seed)
    sizes = (2, *WIDTHS, 1)
    layers: list[nn.Module] = []
    for depth, (incoming, outgoing) in enumerate(pairwise(sizes)):
        linear = nn.Linear(incoming, outgoing, bias=False, dtype=torch.float64)
        with torch.no_grad():
            linear.weight.normal_(generator=drawn)
        layers.append(linear)
        if depth < len(WIDTHS):
            if setting.norm == "layer":
                layers.append(_layer_norm(outgoing, setting.v))
            layers.append(_activation(setting))
    made = nn.Sequential(*layers).to(dtype).eval()
    if setting.norm == "weight":
        row_norm(made, v=setting.v)
    if setting.clip is not None and setting.activation != LINEAR:
        clip_activations_(made, limit=setting.clip)
    return made


def _activation(setting: Setting) -> nn.Module:
    if setting.activation != LINEAR:
        return module_of(setting.activation)
    return nn.Identity() if setting.clip is None else nn.Hardtanh(-setting.clip, setting.clip)


def _layer_norm(width: int, v: float) -> nn.LayerNorm:
    made = nn.LayerNorm(width, dtype=torch.float64)
    nn.init.constant_(made.weight, v)
    return made


def axis(points: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """The coordinates of the grid along either input."""
    return torch.linspace(-REACH, REACH, points, dtype=torch.float64).to(dtype)


@torch.inference_mode()
def heights(setting: Setting, *, seed: int, points: int = 121, dtype: torch.dtype = torch.float64) -> Tensor:
    """The output over the grid, [points, points]; the first index is that of the first input.

    >>> heights(Setting("relu"), seed=0, points=5).shape
    torch.Size([5, 5])
    """
    if points < 3:
        raise ParameterError(f"A surface needs at least 3 points along each input, and {points} were asked for.")
    made: Any = network(setting, seed=seed, dtype=dtype)
    along = axis(points, dtype)
    x = torch.cartesian_prod(along, along)
    return torch.cat([made(part) for part in x.split(_CHUNK)]).view(points, points)
