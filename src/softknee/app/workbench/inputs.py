"""The density of the inputs: a named one with mean and scale, or what was uploaded, as a sketch of its quantiles.

A sketch is 256 quantiles, at (i + 1/2)/256, as float32 in base64: small enough for an address, so that a link takes
the uploaded numbers along and the server keeps nothing. What is computed from an upload is computed from these.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...design.entropic import densities
from ...design.entropic.densities import Density
from ...design.entropic.sample_density import of_samples
from ...errors import InputError, ParameterError, did_you_mean

QUANTILES = 256
BINS = 72
_POINTS = 240
_TEXT = 4 * math.ceil(4 * QUANTILES / 3)


def density_of(given: Any) -> Density:
    """The density that the page chose: {"kind": "normal", "mean": 0, "scale": 1} or {"kind": "data", "sketch": ...}."""
    if not isinstance(given, Mapping):
        raise ParameterError("The inputs are a named density or uploaded numbers; neither was sent.")
    kind = given.get("kind", "normal")
    if kind == "data":
        return of_samples(unpack(given.get("sketch")))
    if kind not in densities.NAMED:
        near = did_you_mean(kind, densities.NAMED)
        raise ParameterError(f"There is no density {str(kind)[:40]!r}; choose {', '.join(densities.NAMED)}.{near}")
    mean, scale = (_number(given, name, usual) for name, usual in (("mean", 0.0), ("scale", 1.0)))
    if not 1e-6 <= scale <= 1e6 or abs(mean) > 1e6:
        raise ParameterError("The scale of the inputs lies between 1e-6 and 1e6, and their mean within a million of 0.")
    if kind == "uniform":
        return densities.uniform(low=mean - scale, high=mean + scale)
    named: Any = densities.NAMED[kind]
    return named(mean=mean, scale=scale)


def _number(given: Mapping[str, Any], name: str, usual: float) -> float:
    value = given.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ParameterError(f"The {name} of the inputs is a finite number.")
    return float(value)


def shape(asked: dict[str, Any]) -> dict[str, Any]:
    """What is drawn under the curve between "low" and "high": a density as a line, uploaded numbers as bars."""
    low, high = float(asked["low"]), float(asked["high"])
    given = asked.get("density")
    if isinstance(given, Mapping) and given.get("kind") == "data":
        edges = torch.linspace(low, high, BINS + 1, dtype=torch.float64)
        share = _distribution(unpack(given.get("sketch")), edges).diff()
        return {"bars": {"low": low, "high": high, "share": share.tolist()}}
    found = density_of(given)
    x = torch.linspace(low, high, _POINTS, dtype=torch.float64)
    return {"line": {"x": x.tolist(), "y": found.pdf(x).tolist()}, "name": str(found)}


def _distribution(quantiles: Tensor, at: Tensor) -> Tensor:
    """The distribution function that goes straight from quantile to quantile, and half a step beyond the outermost."""
    n = len(quantiles)
    half = 0.5 * (quantiles[-1] - quantiles[0]) / n
    x = torch.cat([quantiles[:1] - half, quantiles, quantiles[-1:] + half])
    y = torch.cat([torch.zeros(1), (torch.arange(n) + 0.5) / n, torch.ones(1)]).to(torch.float64)
    place = torch.searchsorted(x, at).clamp(1, len(x) - 1)
    inside = ((at - x[place - 1]) / (x[place] - x[place - 1]).clamp(min=1e-300)).clamp(0, 1)
    return y[place - 1] + inside * (y[place] - y[place - 1])


# -- sketches ---------------------------------------------------------------------------------------------


def sketch(samples: Tensor) -> str:
    """The quantiles of samples as a text that an address can hold.

    >>> import torch
    >>> unpack(sketch(torch.arange(256.0)))[:3].tolist()
    [0.0, 1.0, 2.0]
    """
    ordered = samples.reshape(-1).to(torch.float64).sort()[0]
    n = len(ordered)
    # Between two ranks by their share: the quantile of 256 samples is the samples.
    rank = ((torch.arange(QUANTILES, dtype=torch.float64) + 0.5) / QUANTILES * n - 0.5).clamp(0, n - 1)
    left = rank.floor().long()
    right = (left + 1).clamp(max=n - 1)
    found = ordered[left] + (rank - left) * (ordered[right] - ordered[left])
    return base64.urlsafe_b64encode(found.to(torch.float32).numpy().astype("<f4").tobytes()).decode().rstrip("=")


def unpack(text: Any) -> Tensor:
    """The quantiles that a sketch holds, or a sentence."""
    import numpy

    if not isinstance(text, str) or len(text) > _TEXT:
        raise InputError("The address says that numbers were uploaded, and does not hold them; upload them again.")
    try:
        content = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        found = torch.tensor(numpy.frombuffer(content, "<f4").astype("f8"))
    except (binascii.Error, ValueError) as error:
        raise InputError("The uploaded numbers in the address are damaged; upload them again.") from error
    if len(found) != QUANTILES or not bool(found.isfinite().all()) or not bool((found.diff() >= 0).all()):
        raise InputError("The uploaded numbers in the address are damaged; upload them again.")
    return found
