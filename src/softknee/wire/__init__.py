"""Discrete activations as bits: entropy coding of symbols, and a boundary that sends them between processes."""

from ..errors import PeerError, WireError
from .boundary import Boundary, Traffic
from .coding import Sizes, decode, encode, entropy, sizes

__all__ = ["Boundary", "PeerError", "Sizes", "Traffic", "WireError", "decode", "encode", "entropy", "sizes"]
