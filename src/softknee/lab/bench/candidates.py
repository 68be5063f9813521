"""The candidates of the speed measurement: our definitions, and the same functions written without softknee."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import softknee as sk

from .clock import bytes_held

# -- each function written without softknee: the baseline of the speed tables -----------------------------
#
# Where a paper prints pseudocode (S-ReLU, CRReLU) or a formula (SmeLU, lambda-GELU, SQUAF), this does the same
# operations. Where torch has the function it is torch's, applied to `beta * x` where the function is a
# rescaled one, because torch takes such numbers as Python floats and gives them no gradient. Everything else
# is the straightforward composition. The parameters are tensors of one element that may need gradients.


def srelu(x: Tensor, *, delta: Tensor) -> Tensor:
    left = x <= -delta
    inside = (x > -delta) & (x < delta)
    curve = x / 2 + 3 * x**2 / (8 * delta) + 3 * delta / 16 - x**4 / (16 * delta**3)
    return torch.where(left, torch.zeros_like(x), torch.where(inside, curve, x))


def smelu(x: Tensor, *, beta: Tensor) -> Tensor:
    curve = (x + beta) ** 2 / (4 * beta)
    return torch.where(x <= -beta, torch.zeros_like(x), torch.where(x >= beta, x, curve))


def generalized_smelu(x: Tensor, *, alpha: Tensor, beta: Tensor, g_minus: Tensor, g_plus: Tensor, t: Tensor) -> Tensor:
    width = alpha + beta
    left = g_minus * x + t + g_minus * alpha
    right = g_plus * x + t + g_minus * width / 2 + g_plus * (alpha - beta) / 2
    square = (g_plus - g_minus) / (2 * width)
    linear = (alpha * g_plus + beta * g_minus) / width
    constant = t + (alpha**2 * (g_plus + g_minus) + 2 * alpha * beta * g_minus) / (2 * width)
    return torch.where(x <= -alpha, left, torch.where(x >= beta, right, square * x**2 + linear * x + constant))


def asymmetric_smelu(x: Tensor, *, alpha: Tensor, beta: Tensor) -> Tensor:
    curve = (x + alpha) ** 2 / (2 * (alpha + beta))
    return torch.where(x <= -alpha, torch.zeros_like(x), torch.where(x >= beta, x + (alpha - beta) / 2, curve))


def leaky_smelu(x: Tensor, *, beta: Tensor, g_minus: Tensor) -> Tensor:
    curve = (1 - g_minus) * x**2 / (4 * beta) + (1 + g_minus) * x / 2 + beta * (1 + 3 * g_minus) / 4
    return torch.where(x <= -beta, g_minus * (x + beta), torch.where(x >= beta, x + g_minus * beta, curve))


def origin_smelu(x: Tensor, *, alpha: Tensor, beta: Tensor, g_minus: Tensor, g_plus: Tensor) -> Tensor:
    width = alpha + beta
    left = g_minus * x + alpha**2 * (g_minus - g_plus) / (2 * width)
    right = g_plus * x + beta**2 * (g_minus - g_plus) / (2 * width)
    curve = (g_plus - g_minus) / (2 * width) * x**2 + (alpha * g_plus + beta * g_minus) / width * x
    return torch.where(x <= -alpha, left, torch.where(x >= beta, right, curve))


def smooth_relu(x: Tensor, *, beta: Tensor) -> Tensor:
    # The logarithm sees only x >= 0: below -1/beta it would put NaN into the gradient of a branch not taken.
    above = F.relu(x)
    return above - torch.log1p(beta * above) / beta


def squaf(x: Tensor, *, q: Tensor, alpha: Tensor, z: Tensor, window: int = 5) -> Tensor:
    """The `window` grid points nearest to x: five of everything, and a gather from z for each."""
    k = (z.numel() - 1) // 2
    reach = window // 2
    nearest = torch.clamp(torch.round(x / q), -k, k)
    offsets = torch.arange(-reach, reach + 1, device=x.device, dtype=x.dtype)
    indices = nearest.unsqueeze(-1) + offsets
    distances = (x.unsqueeze(-1) - indices * q) ** 2
    logits = (-alpha * distances).masked_fill(indices.abs() > k, -math.inf)
    weights = torch.softmax(logits, dim=-1)
    values = z[(indices.clamp(-k, k) + k).long()]
    return (weights * values).sum(dim=-1)


PSEUDOCODE: Mapping[str, Callable[..., Tensor]] = {
    **{function.__name__: function for function in (F.relu, F.relu6, F.hardtanh, F.hardswish, F.softsign)},
    **{function.__name__: function for function in (torch.tanh, torch.sigmoid)},
    "leaky_relu": lambda x, *, slope: torch.where(x >= 0, x, slope * x),
    "prelu": lambda x, *, slope: F.prelu(x, slope),
    "elu": lambda x, *, beta: torch.where(x > 0, x, beta * torch.expm1(x)),
    "celu": lambda x, *, beta: beta * F.elu(x / beta),
    "selu": lambda x, *, lam, beta: lam * torch.where(x > 0, x, beta * torch.expm1(x)),
    "softplus": lambda x, *, beta: F.softplus(beta * x) / beta,
    **dict.fromkeys(("swish", "silu"), lambda x, *, beta: x * torch.sigmoid(beta * x)),
    "gelu": lambda x, *, beta: F.gelu(beta * x) / beta,
    "gelu_tanh": lambda x, *, beta: F.gelu(beta * x, approximate="tanh") / beta,
    "lambda_gelu": lambda x, *, lam: x * 0.5 * (1 + torch.erf(lam * x / math.sqrt(2))),
    "mish": lambda x, *, beta: F.mish(beta * x) / beta,
    "tanhexp": lambda x, *, beta: x * torch.tanh(torch.exp(beta * x)),
    "srelu": srelu,
    "smelu": smelu,
    "generalized_smelu": generalized_smelu,
    "asymmetric_smelu": asymmetric_smelu,
    "leaky_smelu": leaky_smelu,
    "shifted_smelu": lambda x, *, beta, shift: smelu(x - shift, beta=beta),
    "origin_smelu": origin_smelu,
    "sigmoid_rescu": lambda x, *, beta: torch.where(x <= beta, 2 * beta * torch.sigmoid(2 * (x - beta) / beta), x),
    "smooth_relu": smooth_relu,
    "crrelu": lambda x, *, eps: F.relu(x) + eps * x * torch.exp(-(x**2) / 2),
    "squaf": squaf,
}

# -- what takes part in the speed measurement -------------------------------------------------------------

VARIANTS = (
    *("softknee eager", "softknee compiled", "softknee sampled", "softknee step"),
    *("pseudocode eager", "pseudocode compiled", "torch"),
)
_PROBE_ELEMENTS = 4096
# The modes of SQUAF, by the variant that measures them.
_MODES = {"softknee sampled": sk.nn.SQUAFP, "softknee step": sk.nn.SQUAFS}


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way of computing one function, on given parameters, all of which want a gradient."""

    function: str
    variant: str
    call: Callable[..., Tensor]
    parameters: Mapping[str, Tensor] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def forward(self, x: Tensor) -> Tensor:
        return self.call(x, **self.parameters, **self.options)


def every_function() -> tuple[str, ...]:
    """Every function once: a second name for the same definition is left out."""
    return tuple(name for name in sk.names() if sk.get(name).name == name)


def parameters_of(name: str, *, device: torch.device, dtype: torch.dtype) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The parameters of a function at their start values, wanting gradients, and its fixed options.

    They have one element and the dtype of the input, as those of a module moved to that dtype have.
    """

    def parameter(value: float | Sequence[float]) -> Tensor:
        values = [value] if isinstance(value, int | float) else list(value)
        return torch.tensor(values, device=device, dtype=dtype, requires_grad=True)

    if name == "squaf":
        # The paper's networks: 33 points, fitted to ReLU, h = alpha q^2 = 1.5, a window of five.
        k, q = 16, 0.25
        grid = [max(0.0, index * q) for index in range(-k, k + 1)]
        return {"q": parameter(q), "alpha": parameter(1.5 / q**2), "z": parameter(grid)}, {"window": 5}
    return {p.name: parameter(float(p.default)) for p in sk.get(name).params}, {}


def candidates_for(
    name: str, *, variants: Sequence[str], device: torch.device, dtype: torch.dtype
) -> Iterable[Candidate]:
    """The chosen variants of one function, all from the same values.

    Ours is a layer that learns its parameters: a function that is given a learned tensor moves it into its range first,
    which takes four kernels more.
    """
    values, options = parameters_of(name, device=device, dtype=dtype)
    theirs = PSEUDOCODE.get(name, _no_pseudocode)
    title = Path(name).name  # of a file; a record names no folder of this machine
    for variant in variants:
        if variant in ("softknee eager", "softknee compiled") or (name == "squaf" and variant in _MODES):
            layer = _layer(name, variant, values).to(device=device, dtype=dtype)
            # A staircase depends on nothing but its heights.
            own = {key: value for key, value in layer.named_parameters() if variant != "softknee step" or key == "z"}
            call = torch.compile(layer, dynamic=False) if variant == "softknee compiled" else layer
            yield Candidate(function=title, variant=variant, call=_without_parameters(call), parameters=own)
        elif variant.startswith("pseudocode"):
            # torch 2.6 compiles no function of its own, such as F.relu, that is not called by another.
            compiled = torch.compile(lambda x, **rest: theirs(x, **rest), dynamic=False)
            call = theirs if variant == "pseudocode eager" else compiled
            yield Candidate(function=title, variant=variant, call=call, parameters=values, options=options)


def _layer(name: str, variant: str, values: Mapping[str, Tensor]) -> torch.nn.Module:
    """The function as a layer that learns every parameter, from these values."""
    if name != "squaf":
        return sk.nn.make(name, learn=True)
    q, alpha, z = (values[key].detach().tolist() for key in ("q", "alpha", "z"))
    kind = _MODES.get(variant, sk.nn.SQUAF)
    return kind(k=len(z) // 2, q=q[0], alpha=alpha[0], z=z, window=5, learn=True)


def _without_parameters(layer: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """A layer has its parameters already."""
    return lambda x, **_: layer(x)


def _no_pseudocode(x: Tensor, **parameters: Tensor) -> Tensor:
    raise NotImplementedError("No pseudocode is written down for this function.")


def held_per_element(candidate: Candidate, x: Tensor) -> float | None:
    """Bytes per element held for backward; None for a candidate that cannot run at all."""
    try:
        held = bytes_held(lambda: candidate.forward(x), excluded=list(candidate.parameters.values()))
    except Exception:
        return None
    return held / x.numel()


def too_large(candidate: Candidate, x: Tensor) -> str | None:
    """A sentence when an eager candidate would not fit in memory, judged by what a small piece of x needs."""
    free = _free_bytes(x.device)
    if free is None or "eager" not in candidate.variant:
        return None
    piece = x.detach()[:_PROBE_ELEMENTS].requires_grad_()
    # Three times what is held: the backward pass makes gradients of the same sizes, and temporaries.
    held = held_per_element(candidate, piece.clone()) or 0.0
    needed = 3 * held * x.numel()
    if needed < 0.9 * free:
        return None
    return f"It would need about {needed / 2**30:.0f} GiB, and {free / 2**30:.0f} GiB are free."


def _free_bytes(device: torch.device) -> int | None:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    available = re.search(r"MemAvailable:\s+(\d+) kB", text)
    return int(available.group(1)) * 1024 if available else None
