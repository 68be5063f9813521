r"""Symbols before they are coded: what is accepted, how often each occurs, and what its weight is.

    entropy:  H = -sum_s p_s log2 p_s  bits per symbol,  p_s = count_s / count

No code that treats symbols one by one and independently needs fewer bits on average (Shannon 1948).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, MissingToolError, ParameterError
from .message import MOST_DIMENSIONS, MOST_LEVELS, TYPES

_WEIGHT_BITS = 32  # known probabilities become whole numbers of this many bits: the same on every machine


def numpy_for(what: str) -> ModuleType:
    """NumPy, which the coders with a loop over positions use: a step of it costs a fifth of a step of torch."""
    try:
        import numpy
    except ImportError as error:
        raise MissingToolError(
            f"{what} needs NumPy, which is not installed. Install it with: pip install 'softknee[lab]' "
            "(or use coder='packed', which needs torch alone)."
        ) from error
    return numpy


def require_symbols(symbols: Tensor, levels: int | None) -> int:
    """Raise unless this is a tensor of whole numbers in [0, levels). Give the levels: as many as occur if left out."""
    if levels is not None:
        require_levels(levels)
    if not isinstance(symbols, Tensor) or symbols.dtype not in TYPES:
        what = f"a tensor of {symbols.dtype}" if isinstance(symbols, Tensor) else f"a {type(symbols).__name__}"
        raise InputError(
            f"Symbols are a tensor of whole numbers, and this is {what}. Convert it, e.g. x.to(torch.uint8)."
        )
    if symbols.layout != torch.strided or symbols.is_quantized or symbols.device.type == "meta":
        raise InputError(
            f"Symbols are a dense tensor with values, and this one is not ({symbols.layout}, {symbols.device})."
        )
    if symbols.dim() > MOST_DIMENSIONS:
        raise InputError(f"Symbols have at most {MOST_DIMENSIONS} dimensions, and these {symbols.dim()}.")
    least, most = (int(bound) for bound in torch.aminmax(wide(symbols))) if symbols.numel() else (0, 0)
    largest = (MOST_LEVELS if levels is None else levels) - 1
    if least < 0 or most > largest:
        among = "S" if levels is None else f"With levels={levels} s"
        cure = "." if levels is None else ", or give the right number of levels."
        raise ParameterError(
            f"{among}ymbols are 0 to {largest:,}, and these go from {least} to {most}. Shift them to start at 0{cure} "
            "(A -1 of symbols() stands for NaN.)"
        )
    return most + 1 if levels is None else levels


def require_levels(levels: int) -> None:
    if isinstance(levels, bool) or not isinstance(levels, int) or not 1 <= levels <= MOST_LEVELS:
        raise ParameterError(f"levels is a whole number from 1 to {MOST_LEVELS:,}, and here it is {levels!r}.")


def wide(symbols: Tensor) -> Tensor:
    """Symbols in a type that torch can calculate with (it cannot with most unsigned ones)."""
    if symbols.dtype in (torch.uint16, torch.uint32):
        return symbols.to(torch.int64)
    if symbols.dtype == torch.uint64:
        # Above 2^63 a value becomes negative in int64, and is refused as such.
        return symbols.view(torch.int64)
    return symbols


def flat_array(symbols: Tensor, what: str) -> Any:
    """The symbols in a row, as a NumPy array on the host."""
    numpy_for(what)
    return wide(symbols.detach()).reshape(-1).cpu().numpy()


def counts_of(symbols: Tensor, levels: int) -> Tensor:
    """How often each level occurs."""
    return torch.bincount(wide(symbols.detach()).reshape(-1), minlength=levels).cpu()


def entropy_of(counts: Tensor) -> float:
    """Bits per symbol, of counts."""
    total = int(counts.sum())
    present = counts[counts > 0].double()
    return math.log2(total) - float((present * present.log2()).sum()) / total if len(present) > 1 else 0.0


def count_of(probabilities: Tensor | Sequence[float]) -> int:
    """How many probabilities these are."""
    try:
        return len(probabilities)
    except TypeError:
        raise ParameterError("Probabilities are a list of numbers or a tensor with one dimension.") from None


def weights_of(probabilities: Tensor | Sequence[float], levels: int) -> list[int]:
    """Probabilities known to both sides as whole numbers, by arithmetic that is the same on every machine.

        w_s = max(1, round(2^32 p_s / sum p)),  and 0 where p_s = 0

    The sum is rounded once (`math.fsum`), so its order does not matter.
    """
    numbers = probabilities.detach().double().cpu() if isinstance(probabilities, Tensor) else probabilities
    try:
        values = [float(value) for value in (numbers.tolist() if isinstance(numbers, Tensor) else numbers)]
    except (TypeError, ValueError):
        raise ParameterError("Probabilities are a list of numbers or a tensor with one dimension.") from None
    if len(values) != levels:
        raise ParameterError(f"There are {levels} levels and {len(values)} probabilities; give one for each level.")
    if not all(math.isfinite(value) and value >= 0 for value in values) or not 0 < math.fsum(values) < math.inf:
        raise ParameterError("Probabilities are finite, not negative, and not all zero; these are not.")
    total = math.fsum(values)
    return [max(1, round(value / total * 2**_WEIGHT_BITS)) if value else 0 for value in values]


def require_weights(counts: Tensor, weights: Sequence[int]) -> None:
    """Raise if a symbol occurs that the given probabilities call impossible."""
    impossible = [level for level in counts.nonzero().flatten().tolist() if not weights[level]]
    if impossible:
        raise ParameterError(
            f"Symbol {impossible[0]} occurs, and its probability is given as 0, so it has no code. "
            "Give every symbol that may occur a probability above 0."
        )
