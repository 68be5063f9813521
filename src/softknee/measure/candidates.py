"""What takes part in the speed measurement: our definitions, and how one would write them otherwise."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import softknee as sk

from .clock import bytes_held
from .pseudocode import PSEUDOCODE

VARIANTS = (
    "softknee eager",
    "softknee compiled",
    "softknee layer",
    "softknee sampled",
    "softknee step",
    "pseudocode eager",
    "pseudocode compiled",
    "torch",
)
_PROBE_ELEMENTS = 4096
# SQUAF as a layer, which has a shorter way to its kernels than the function.
_MODES = {"softknee layer": sk.nn.SQUAF, "softknee sampled": sk.nn.SQUAFP, "softknee step": sk.nn.SQUAFS}


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
    """The chosen variants of one function, all on the same parameters."""
    parameters, options = parameters_of(name, device=device, dtype=dtype)
    ours, theirs = sk.get(name), PSEUDOCODE.get(name, _no_pseudocode)
    title = Path(name).name  # of a file; a record names no folder of this machine
    calls: dict[str, Callable[..., Tensor]] = {
        "softknee eager": ours,
        "softknee compiled": torch.compile(lambda x, **rest: ours(x, **rest), dynamic=False),
        "pseudocode eager": theirs,
        # torch 2.6 compiles no function of its own, such as F.relu, that is not called by another.
        "pseudocode compiled": torch.compile(lambda x, **rest: theirs(x, **rest), dynamic=False),
    }
    for variant in variants:
        if variant in calls:
            yield Candidate(
                function=title, variant=variant, call=calls[variant], parameters=parameters, options=options
            )
        elif name == "squaf" and variant in _MODES:
            yield _squaf_layer(variant, parameters, device=device, dtype=dtype)


def _squaf_layer(variant: str, values: Mapping[str, Tensor], *, device: torch.device, dtype: torch.dtype) -> Candidate:
    """SQUAF as a layer in one of its modes, with parameters of its own that begin at these values."""
    q, alpha, z = (values[name].detach().tolist() for name in ("q", "alpha", "z"))
    layer = _MODES[variant](k=len(z) // 2, q=q[0], alpha=alpha[0], z=z, window=5, learn=True)
    layer = layer.to(device=device, dtype=dtype)
    # A staircase depends on nothing but its heights.
    own = {name: one for name, one in layer.named_parameters() if variant != "softknee step" or name == "z"}
    return Candidate(function="squaf", variant=variant, call=lambda x, **_: layer(x), parameters=own)


def _no_pseudocode(x: Tensor, **parameters: Tensor) -> Tensor:
    raise NotImplementedError("No pseudocode is written down for this function.")


def held_per_element(candidate: Candidate, x: Tensor) -> float | None:
    """Bytes per element held for backward; None for a candidate that cannot run at all."""
    try:
        held = bytes_held(lambda: candidate.forward(x), besides=list(candidate.parameters.values()))
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
    found = re.search(r"MemAvailable:\s+(\d+) kB", text)
    return int(found.group(1)) * 1024 if found else None
