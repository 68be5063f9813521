"""Discrete activations as bits: entropy coding of symbols, and a boundary that sends them between processes."""

from ..errors import PeerError, WireError
from .boundary import Boundary
from .coding import decode, encode
from .size import Sizes, entropy, sizes
from .traffic import Traffic

__all__ = ["Boundary", "PeerError", "Sizes", "Traffic", "WireError", "decode", "encode", "entropy", "sizes"]
