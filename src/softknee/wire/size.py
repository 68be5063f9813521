"""How long symbols are, in bits each: what no code can go below, and what each coder makes of them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .coding import encode
from .symbols import counts_of, entropy_of, require_symbols


@dataclass(frozen=True)
class Sizes:
    """Bits per symbol of one tensor: whole messages with header, table and checksum, as they go onto the wire.

    count:    how many symbols there are; where there are none, none has bits, and entropy and coders are 0.
    entropy:  the bound for any code that treats symbols alike and one by one.
    float32, bfloat16: what the same number of activations takes without coding.
    """

    count: int
    entropy: float
    huffman: float
    rans: float
    packed: float
    float32: float = 32.0
    bfloat16: float = 16.0

    @property
    def smallest(self) -> str:
        """The coder with the fewest bits."""
        return min(("rans", "huffman", "packed"), key=lambda name: getattr(self, name))

    def __str__(self) -> str:
        if not self.count:
            return "no symbols, and so no bits per symbol"
        names = ("entropy", "rans", "huffman", "packed", "bfloat16", "float32")
        return f"bits per symbol of {self.count:,}: " + ", ".join(f"{name} {getattr(self, name):.4g}" for name in names)


def entropy(symbols: Tensor, *, levels: int | None = None) -> float:
    """H = -sum_s p_s log2 p_s in bits per symbol, p_s the share of level s; 0 of an empty tensor.

    Levels that do not occur change nothing; given, they say which symbols are refused.

    >>> import torch
    >>> entropy(torch.tensor([0, 0, 1, 2]), levels=33)
    1.5
    """
    levels = require_symbols(symbols, levels)
    return entropy_of(counts_of(symbols, levels))


def sizes(symbols: Tensor, levels: int | None = None) -> Sizes:
    """Encode the symbols with every coder and say how many bits each needs per symbol.

    Without `levels` they end at the largest symbol that occurs, as for `encode`.

    A message without symbols still has a header; its bytes are `len(encode(...))`.

    >>> import torch
    >>> print(sizes(torch.arange(8000) % 8, levels=33))
    bits per symbol of 8,000: entropy 3, rans 3.062, huffman 3.036, packed 5.357, bfloat16 16, float32 32
    """
    bound = entropy(symbols, levels=levels)
    count, coders = symbols.numel(), ("huffman", "rans", "packed")
    if not count:
        return Sizes(0, bound, **dict.fromkeys(coders, 0.0))
    bits = {name: 8 * len(encode(symbols, levels=levels, coder=name)) / count for name in coders}
    return Sizes(count, bound, **bits)
