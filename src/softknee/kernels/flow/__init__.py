"""The flow of a piecewise-affine velocity on an interval (CPAB in one dimension), under the activation DiTAC."""

from .function import bend

__all__ = ["bend"]
