"""Hardening: knobs moved to their hard limit while a model trains, after Algorithm 1 of the lambda-GELU paper."""

from .hardener import Hardener
from .sites import distance_bound, hard_module

__all__ = ["Hardener", "distance_bound", "hard_module"]
