"""Discrete activations as bits: entropy coding of symbols, with a checked form for the wire."""

from ..errors import WireError
from .coding import decode, encode
from .size import Sizes, entropy, sizes

__all__ = ["Sizes", "WireError", "decode", "encode", "entropy", "sizes"]
